"""On a PostgreSQL server: triggers that let spending only grow, and the record only be appended to."""

from almoner.errors import ArgumentError
from almoner.ledger._ledger import Ledger
from almoner.ledger._stores.postgres import Postgres

__all__ = ["protect"]

_REFUSE = """
CREATE OR REPLACE FUNCTION ledger.refuse_change() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog AS '
BEGIN
    IF pg_has_role(current_user, (SELECT c.relowner FROM pg_class c WHERE c.oid = TG_RELID), ''MEMBER'') THEN
        RETURN CASE WHEN TG_OP = ''DELETE'' THEN OLD ELSE NEW END;
    END IF;
    RAISE EXCEPTION ''spending only grows, and the record is only appended to'' USING ERRCODE = ''42501'';
END'
"""
_FALLS = "NEW.spent < OLD.spent OR NEW.person IS DISTINCT FROM OLD.person"
_TRIGGERS = {
    "accounts_only_grow": f"BEFORE UPDATE ON ledger.accounts FOR EACH ROW WHEN ({_FALLS} OR OLD.gone AND NOT NEW.gone)",
    "accounts_begin": "BEFORE INSERT ON ledger.accounts FOR EACH ROW WHEN (NEW.spent < 0)",
    "shares_only_grow": f"BEFORE UPDATE ON ledger.shares FOR EACH ROW WHEN ({_FALLS})",
    "shares_begin": "BEFORE INSERT ON ledger.shares FOR EACH ROW WHEN (NEW.spent < 0)",
    "charges_stay": "BEFORE UPDATE OR DELETE ON ledger.charges FOR EACH ROW",
    "charges_begin": "BEFORE INSERT ON ledger.charges FOR EACH ROW WHEN (NEW.units < 0)",
    "record_stays": "BEFORE UPDATE OR DELETE ON ledger.record FOR EACH ROW",
}


def protect(ledger: Ledger) -> None:
    """Install triggers: only the owner's role can lower what a person spent, or change or remove an entry.

    Any other role may raise what a person has spent, append to the record, and mark a person as gone, as a role that
    answers questions must. It can lower nothing, bring nobody back, and change no entry, whatever SQL it sends.
    Settling a training gives back, so it needs the owner's role, as do ``restore``, ``compact`` and ``erase``.
    Calling it again changes nothing.

    Args:
        ledger: open on a server, with the role that owns its tables.

    Raises:
        ArgumentError: the ledger is a file, which its owner alone can read.
        LedgerError: this role does not own the tables.
    """
    store = ledger.store
    if not isinstance(store, Postgres):
        raise ArgumentError("ledger: it is a file, without roles; protect() is for ledgers on a server")

    def work(_: object) -> None:
        store.run(_REFUSE)
        for name, when in _TRIGGERS.items():
            table = when.split(" ON ")[1].split()[0]
            store.run(f"DROP TRIGGER IF EXISTS {name} ON {table}")
            store.run(f"CREATE TRIGGER {name} {when} EXECUTE FUNCTION ledger.refuse_change()")

    ledger.transact(work)

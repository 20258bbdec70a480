"""Where a ledger may be kept: in a file (``File``) or on a server (``Postgres``); it is made there, and opened."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from almoner._spelling import EXACT
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._accounts.parquet import ParquetAccounts
from almoner.ledger._accounts.postgres import PostgresAccounts
from almoner.ledger._accounts.tables import TableAccounts
from almoner.ledger._names import Names, check_of, checked_key, new_key
from almoner.ledger._periods import Periods
from almoner.ledger._record.entries import START, read_rows, sealed
from almoner.ledger._record.terms import TABLES, RecordedTerms, Terms
from almoner.ledger._stores.file import File
from almoner.ledger._stores.postgres import Postgres
from almoner.ledger.interfaces import AccountStore, AccountWriter, Store

__all__ = ["accounts_of", "closed_on_error", "create_in", "names_of", "on_a_server", "open_store"]


def on_a_server(ledger: Path | str) -> bool:
    """True for a connection string, False for a path; what only looks like one is refused without being quoted."""
    if not isinstance(ledger, str) or ledger.startswith(("postgresql://", "postgres://")):
        return isinstance(ledger, str)
    if "://" in ledger or re.match(r"\s*(host|hostaddr|dbname|user|password|port|service)\s*=", ledger):
        raise ArgumentError("ledger: a connection string begins with postgresql:// ; what was given is no path either")
    return False


def open_store(ledger: Path | str) -> Store:
    """The place that a path, or a text like ``postgresql://server/database``, names; nothing is opened yet."""
    return Postgres(ledger) if isinstance(ledger, str) and on_a_server(ledger) else File(Path(ledger))


@contextmanager
def closed_on_error(store: Store) -> Iterator[None]:
    """Close a store whose ledger cannot be opened; a LedgerError where its first entry does not say the terms."""
    try:
        yield
    except BaseException as error:
        store.close()
        if isinstance(error, IndexError | ValueError | KeyError) and not isinstance(error, ArgumentError):
            raise LedgerError(
                f"{store.name} is damaged: its first entry does not say the terms", reason="damaged"
            ) from None
        raise


def create_in(
    store: Store,
    wanted: Terms,
    accounts: str,
    *,
    create: bool,
    pseudonyms: Path | None = None,
    witness: Path | str | None = None,
) -> None:
    """Make a ledger, unless nobody said that it is new, or its witness has seen it; and the key of its pseudonyms."""
    if witness is not None and Path(witness).exists():
        raise LedgerError(
            f"there is no ledger at {store.name}, but its witness {witness} is there: the ledger got lost. Restore a "
            "backup (`almoner ledger restore-backup`); a new ledger, with a fresh budget for everybody, needs another "
            "witness",
            reason="missing",
        )
    if witness is not None and create and not Path(witness).absolute().parent.is_dir():
        raise LedgerError(f"witness={str(witness)!r}: its folder must be there before the ledger", reason="missing")
    if not create:
        raise LedgerError(
            f"there is no ledger at {store.name}. If it is new, write create=True, or on the command line `almoner "
            "ledger create FILE`, with the file of questions or the policy; if it got lost, restore a backup: a new "
            "ledger has a fresh budget for everybody",
            reason="missing",
        )
    terms = RecordedTerms.of(wanted, accounts)
    if terms.accounts != TABLES and terms.spelling != EXACT:
        raise ArgumentError(f"spelling={terms.spelling!r}: accounts in Parquet files name people letter by letter")
    if pseudonyms is None:
        whole = terms.periods is not None and terms.names == "BIGINT"
        if whole and terms.accounts == TABLES and not isinstance(store, Postgres):
            terms = replace(terms, person=Periods.NUMBERS)
        store.create(terms.person, sealed(0, START, terms.public, {}))
        return
    if terms.accounts != TABLES:
        raise ArgumentError("pseudonyms: accounts in Parquet files name people as the data do")
    where = pseudonyms.absolute()
    key = new_key(where)
    hashed = replace(terms, pseudonyms=check_of(key))
    store.create(Names(terms.person, key).kind, sealed(0, START, hashed.public, {"key": str(where)}))


def names_of(store: Store, terms: RecordedTerms, pseudonyms: Path | None) -> Names:
    """The names of people in a ledger: as in the data, or hashes with the key that it was made with."""
    if terms.pseudonyms is None:
        if pseudonyms is not None:
            raise ArgumentError(
                f"pseudonyms={str(pseudonyms)!r}: {store.name} was made without, and names people as the data do"
            )
        return Names(terms.person, units=terms.periods if terms.person == Periods.NUMBERS else None)
    recorded = read_rows(store.run, "number = 0")[0].entry(private=True).private["key"]
    return Names(terms.person, checked_key(Path(recorded) if pseudonyms is None else pseudonyms, terms.pseudonyms))


def accounts_of(store: Store, writer: AccountWriter | None, kind: str) -> AccountStore:
    """The accounts of a ledger: in tables beside its record, or in files."""
    if writer is not None or kind == ParquetAccounts.kind:
        return ParquetAccounts(writer)
    return PostgresAccounts(store) if isinstance(store, Postgres) else TableAccounts()

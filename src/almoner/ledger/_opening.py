"""Where a ledger may be kept: in a file (``File``) or on a server (``Postgres``); it is made there, and opened."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._names import Names, check_of, checked_key, new_key
from almoner.ledger._periods import Periods
from almoner.ledger._record.entries import START, read_rows, sealed
from almoner.ledger._record.terms import RecordedTerms, Terms
from almoner.ledger._stores import File, Postgres, Store


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
            raise LedgerError(f"{store.name} is damaged: its first entry lacks the terms", reason="damaged") from None
        raise


def create_in(
    store: Store, wanted: Terms, *, create: bool, pseudonyms: Path | None = None, witness: Path | str | None = None
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
            "ledger create FILE` with a file of questions, `almoner serve --prepare FILE` with a policy; if it got "
            "lost, restore a backup: a new ledger has a fresh budget for everybody",
            reason="missing",
        )
    terms = RecordedTerms.of(wanted)
    if pseudonyms is None:
        if terms.periods is not None and terms.names == "BIGINT" and not isinstance(store, Postgres):
            terms = replace(terms, person=Periods.NUMBERS)
        store.create(terms.person, sealed(0, START, terms.public, {}))
        return
    where = pseudonyms.absolute()
    key = new_key(where)
    hashed = replace(terms, pseudonyms=check_of(key))
    store.create(Names(terms.person, key).kind, sealed(0, START, hashed.public, {"key": str(where)}))


def names_of(store: Store, terms: RecordedTerms, pseudonyms: Path | None) -> Names:
    """The names of people in a ledger: as in the data, or hashes with the key that it was made with."""
    if terms.pseudonyms is None:
        if pseudonyms is not None:
            raise ArgumentError(f"pseudonyms={str(pseudonyms)!r}: {store.name} names people as the data do")
        return Names(terms.person, units=terms.periods if terms.person == Periods.NUMBERS else None)
    recorded = read_rows(store.run, "number = 0")[0].entry(private=True).private["key"]
    return Names(terms.person, checked_key(Path(recorded) if pseudonyms is None else pseudonyms, terms.pseudonyms))

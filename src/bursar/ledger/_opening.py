"""How is a ledger made in a store, and which accounts belong to it?"""

from bursar.errors import LedgerError
from bursar.ledger._accounts.parquet import ParquetAccounts
from bursar.ledger._accounts.postgres import PostgresAccounts
from bursar.ledger._accounts.tables import TableAccounts
from bursar.ledger._record import START, read_rows, sealed
from bursar.ledger._stores.postgres import Postgres
from bursar.ledger._terms import Terms
from bursar.ledger.interfaces import AccountStore, AccountWriter, Store

__all__ = ["accounts_of", "create_in", "terms_of"]


def create_in(store: Store, terms: Terms | None, *, create: bool) -> None:
    """Make a ledger that is not there."""
    if not create:
        raise LedgerError(f"{store.name} is not there, and a new one must not be made (create=False)", reason="missing")
    if terms is None:
        why = "is not there, and cannot be made without a budget and a kind of names"
        raise LedgerError(f"{store.name} {why}", reason="missing")
    store.create(terms.person, sealed(0, START, terms.public, {}))


def terms_of(store: Store) -> Terms:
    """What a ledger was made for, as its first entry says."""
    return Terms.read(read_rows(store.run, "number = 0")[0].entry().public)


def accounts_of(store: Store, writer: AccountWriter | None, kind: str) -> AccountStore:
    """The accounts of a ledger: in tables beside its record, or in files."""
    if writer is not None or kind == ParquetAccounts.kind:
        return ParquetAccounts(writer)
    return PostgresAccounts(store) if isinstance(store, Postgres) else TableAccounts()

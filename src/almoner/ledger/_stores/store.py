"""Where a ledger may be kept: in a file (``File``) or on a server (``Postgres``)."""

import re
from pathlib import Path

from almoner.errors import ArgumentError
from almoner.ledger._stores.file import File
from almoner.ledger._stores.postgres import Postgres
from almoner.ledger.interfaces import Store

__all__ = ["on_a_server", "open_store"]


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

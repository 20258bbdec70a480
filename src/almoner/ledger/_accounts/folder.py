"""The folder of accounts that outgrow a database: generations of Parquet files beside the ledger's file.

::

    people.ledger                   the record; the names of what is in force are in the private part of its entries
    people.ledger.accounts/
        ledger                      whose folder this is: the hash of the record's first entry
        accounts/NAME/*.parquet     a generation: person, spent, gone
        shares/NAME/*.parquet       what each person has spent on an analyst or a purpose that is limited
        charges/NAME/*.parquet      what one question cost each person: question, person, units; never changed
        work/NAME/                  what a question computes on its way, removed afterwards

Each NAME has a file _files, which lists the others and their sizes: none of them can get lost unnoticed.

A name is drawn at random for each attempt, so nothing is ever written over. Files are complete and on the disk before
the record's transaction names them, and only that commit puts them in force; whatever is not named is removed when
the ledger is opened with a writer.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from almoner._disk import sync_tree
from almoner.errors import ArgumentError, LedgerError

__all__ = ["Generation", "check_whole", "folder_beside", "seal"]

_LISTED = "_files"
_SPECIAL = set("*?[]{}\\,:%")


@dataclass(frozen=True, slots=True)
class Generation:
    """Accounts in force, as an entry of the record names them: JSON in its private part."""

    accounts: str | None = None
    """The name of the generation; None before the first."""
    people: int = 0
    """Rows in it."""
    units: int = 0
    """The sum of all people's spends."""
    most: int = 0
    """The most that one person has spent."""
    shares: dict[str, str | None] = field(default_factory=dict)
    """{scope: name}, None while nothing was spent."""
    charges: dict[str, str] = field(default_factory=dict)
    """{question: name} of the question that made it; not of those before."""

    @property
    def note(self) -> str:
        """This value as JSON, for the private part of an entry."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def names(self) -> set[str]:
        """The names of the accounts and shares in force."""
        return {name for name in (self.accounts, *self.shares.values()) if name is not None}


def folder_beside(ledger: Path | str) -> Path:
    """The folder of a ledger's accounts; refuses names that programs which read the files take for patterns."""
    path = Path(ledger).resolve()
    folder = path.with_name(path.name + ".accounts")
    if _SPECIAL & set(str(folder)) or not str(folder).isprintable():
        raise ArgumentError(
            f"ledger: Spark keeps accounts beside a file, whose path must have none of {' '.join(sorted(_SPECIAL))}"
        )
    return folder


def seal(folder: Path) -> None:
    """List a folder's files in it, so that none can get lost unnoticed, and bring all to the disk."""
    (folder / _LISTED).write_text(json.dumps(_sizes(folder)), encoding="utf-8")
    sync_tree(folder)


def check_whole(folder: Path) -> None:
    """Refuse a folder in which files are missing, were cut off, or were added since it was sealed."""
    with suppress(OSError, ValueError):
        if json.loads((folder / _LISTED).read_text(encoding="utf-8")) == _sizes(folder):
            return
    raise LedgerError(f"{folder} does not hold the files that were written there", reason="damaged")


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.glob("*.parquet"))}

"""What a ledger asks of its witness: at opening, and after each transaction."""

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bursar._uncopyable import Uncopyable
from bursar.errors import ArgumentError, LedgerError
from bursar.ledger._rules import Rules
from bursar.ledger._turn import Turn
from bursar.ledger._witness import Head, Witness
from bursar.ledger.interfaces import Store

__all__ = ["Remembered"]

Result = TypeVar("Result")


class Remembered(Uncopyable):
    """A ledger whose newest entry a witness may remember, where its record says so."""

    store: Store
    _rules: Rules

    @abstractmethod
    def transact(self, work: Callable[[Turn], Result]) -> Result:
        """Work that reads and writes the ledger as one transaction."""

    @abstractmethod
    def _catch_up(self) -> None:
        """Read what any writer has recorded since the last time."""

    def witnessed_by(self, path: Path | str) -> None:
        """Have a new file, on another volume than the ledger, remember the newest entry from now on.

        Wherever the ledger is opened from now on, the file must be there; an older copy of the ledger is refused.

        Args:
            path: absolute; not there yet. Its folder is.

        Raises:
            ArgumentError: the path is not absolute.
            LedgerError: the file is there already, or cannot be made.
        """
        path = Path(path)
        if not path.is_absolute():
            raise ArgumentError(f"path={str(path)!r} must be absolute: the ledger may be opened from anywhere")
        with self.store.lock:
            Witness(path, self.store.name).begin(Head(0, str(self._hash_of(0))))
            self.transact(lambda turn: turn.append({"kind": "witnessed", "where": str(path)}))
            self.store.snapshot(self._catch_up)
            self._tell_witness()

    def _tell_witness(self) -> None:
        """Show the witness the newest entry; closes a ledger that is not the newest."""
        if self._rules.witness is None:
            return
        newest = self._newest()
        try:
            Witness(Path(self._rules.witness), self.store.name).check(newest, self._hash_of)
        except LedgerError:
            self.store.close()
            raise

    def _newest(self) -> Head:
        ((number, hash_),) = self.store.run("SELECT number, hash FROM ledger.record ORDER BY number DESC LIMIT 1")
        return Head(int(number), str(hash_))

    def _hash_of(self, number: int) -> str | None:
        """The hash of an entry; None where there is none of that number."""
        rows = self.store.run("SELECT hash FROM ledger.record WHERE number = ?", [number])
        return str(rows[0][0]) if rows else None

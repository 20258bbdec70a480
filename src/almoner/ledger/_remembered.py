"""What a ledger asks of its witness: at opening, and after each transaction."""

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from almoner._uncopyable import Uncopyable
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._copy_guard import Head, Witness
from almoner.ledger._record.entries import read_rows
from almoner.ledger._record.rules import Rules
from almoner.ledger._transaction import Transaction
from almoner.ledger.interfaces import Store

__all__ = ["Remembered"]

Result = TypeVar("Result")


class Remembered(Uncopyable):
    """A ledger whose newest entry a witness may remember, where its record says so."""

    store: Store
    _rules: Rules
    _written: tuple[int, str]

    @abstractmethod
    def transact(self, work: Callable[[Transaction], Result]) -> Result:
        """Work that reads and writes the ledger as one transaction."""

    @abstractmethod
    def _catch_up(self) -> None:
        """Read what any writer has recorded since the last time."""

    @property
    def head(self) -> str:
        """Number and hash of the last entry. Kept elsewhere, it lets ``verify`` show that nothing was cut off."""
        return str(self._newest())

    @property
    def last_seen(self) -> tuple[int, str]:
        """Number and hash of the newest entry that was read or written here; also of a ledger that is closed."""
        return max((self._rules.number, self._rules.hash), self._written)

    def continues(self, seen: tuple[int, str]) -> bool:
        """Whether the record has an entry of this number and hash, so that nothing up to it was lost or changed."""
        number, digest = seen
        return number < 0 or [row.hash for row in read_rows(self.store.run, "number = ?", (number,))] == [digest]

    @property
    def witness(self) -> str | None:
        """The file that remembers the newest entry; None where there is none. Public."""
        return self._rules.witness

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
            self._record_witness(path)

    def _record_witness(self, path: Path) -> None:
        self.transact(lambda transaction: transaction.append({"kind": "witnessed", "where": str(path)}))
        self.store.snapshot(self._catch_up)
        self._tell_witness()

    def _expect_witness(self, path: Path | str | None, *, begin: bool) -> None:
        """Refuse a ledger that has no witness, or another one, where one is asked for.

        Args:
            path: of the witness; None where none is asked for.
            begin: whether the ledger gets it, if it has none.
        """
        if path is None:
            return
        wanted, known = Path(path).absolute(), self._rules.witness
        cure = f"`almoner ledger witness {self.store.name} --file {path}`"
        if known is not None:
            if Path(known).resolve() != wanted.resolve():
                raise ArgumentError(
                    f"witness={str(path)!r}: the witness of {self.store.name} is {known}; {cure} moves it"
                )
        elif wanted.exists():  # of a newer state, unless whoever began it was killed before the record said so
            Witness(wanted, self.store.name).check(self._newest(), self._hash_of)
            self._record_witness(wanted)
        elif begin:
            self.witnessed_by(wanted)
        else:
            raise LedgerError(
                f"{self.store.name} has no witness, and witness={str(path)!r} is asked for; {cure} begins it",
                reason="missing",
            )

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

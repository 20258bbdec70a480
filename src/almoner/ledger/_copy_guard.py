"""Compare the newest entry with the witness, a file outside the ledger that remembers it: older copies are found so.

The witness is a text file on another volume. It grows by a line, "number:hash", for each transaction, before anything
of that transaction is revealed. The ledger's own record says where it is.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from almoner._disk import Lock, first_file
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._stores import Store

_TAIL = 4096  # bytes at the end of the file, in which the last line is


class Head(NamedTuple):
    """The number and the hash of an entry. Public."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


def newest(store: Store) -> Head:
    ((number, hash_),) = store.run("SELECT number, hash FROM ledger.record ORDER BY number DESC LIMIT 1")
    return Head(int(number), str(hash_))


def witness_to_record(store: Store, known: str | None, path: Path | str | None, *, begin: bool) -> Path | None:
    """The witness that the record has to name from now on; None where ``known``, which it names, says all.

    With ``begin`` a ledger that has none gets it. An ArgumentError says that it has another one, a LedgerError that it
    has none, or that this one saw another ledger or a newer state.
    """
    if path is None:
        return None
    wanted, cure = Path(path).absolute(), f"`almoner ledger witness {store.name} --file {path}`"
    if known is not None:
        if Path(known).resolve() != wanted.resolve():
            raise ArgumentError(f"witness={str(path)!r}: the witness of {store.name} is {known}; {cure} moves it")
        return None
    if wanted.exists():  # of a newer state, unless whoever began it was killed before the record said so
        Witness(wanted, store).check()
    elif begin:
        Witness(wanted, store).begin()
    else:
        raise LedgerError(f"{store.name} has no witness; witness={str(path)!r}: {cure} begins it", reason="missing")
    return wanted


class Witness:
    """The file of a witness, whose folder is there, for an open ledger.

    Guarantee: while ``check`` returns, the ledger holds every entry that the witness ever saw of it, so that
        nothing that was revealed is missing from it.
    Source: docs/ledger/backups.md.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._path, self._store, self._ledger = path, store, store.name

    def begin(self) -> None:
        """Make the file, with the ledger's first entry; a LedgerError where it is there already, or cannot be made."""
        if self._path.exists():
            raise LedgerError(f"{self._path} is there already: a witness begins as a new file")
        try:
            first_file(self._path, f"{Head(0, str(self._hash_of(0)))}\n")  # nobody ever finds it empty
        except OSError as error:
            raise LedgerError(f"{self._path} cannot be made: {error.strerror}", reason="forbidden") from None
        self.check()

    def check(self) -> None:
        """Refuse a ledger that lacks what the witness saw; the witness catches up with a newer one."""
        last = newest(self._store)
        with _locked(self._path):
            seen = self._last()
            self._refuse(seen, last)
            if last.number > seen.number:
                self._append(last)

    def _hash_of(self, number: int) -> str | None:
        rows = self._store.run("SELECT hash FROM ledger.record WHERE number = ?", [number])
        return str(rows[0][0]) if rows else None

    def _refuse(self, seen: Head, last: Head) -> None:
        if seen.number > last.number:
            missing = seen.number - last.number
            raise LedgerError(
                f"{self._ledger} is older than its witness {self._path}: {missing} "
                f"{'entry is' if missing == 1 else 'entries are'} missing. It is a backup or a copy, and answers "
                "nothing more: what was charged since would be forgotten",
                reason="damaged",
            )
        if self._hash_of(seen.number) != seen.hash:
            raise LedgerError(
                f"{self._ledger} is not the ledger that its witness {self._path} saw: its entry {seen.number} is "
                "another one. Two copies went on side by side, and this one answers nothing more",
                reason="damaged",
            )

    def _last(self) -> Head:
        try:
            with self._path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _TAIL))
                lines = file.read().decode("ascii").rpartition("\n")[0].splitlines()
            number, _, hash_ = lines[-1].partition(":")
            return Head(int(number), hash_)
        except (OSError, ValueError, IndexError):
            raise LedgerError(
                f"{self._ledger}: its witness {self._path} is missing or cannot be read; nothing is answered without",
                reason="missing",
            ) from None

    def _append(self, head: Head) -> None:
        line = f"{head}\n".encode()
        try:
            with os.fdopen(os.open(self._path, os.O_RDWR | os.O_APPEND), "r+b", buffering=0) as file:
                size = file.seek(0, os.SEEK_END)
                if size and os.pread(file.fileno(), 1, size - 1) != b"\n":  # the end of a line that was cut off
                    line = b"\n" + line
                written = os.write(file.fileno(), line)
                os.fsync(file.fileno())
        except OSError:
            written = 0
        if written < len(line):
            raise LedgerError(f"{self._ledger}: its witness {self._path} cannot be written; nothing was revealed")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path = path.with_name(path.name + ".lock")
    try:
        lock, taken = Lock(path), False
        for _ in range(2000):
            if taken := lock.take(required=False):
                break
            time.sleep(0.005)
    except OSError:
        cure = "put the witness back into its folder; then `almoner ledger witness LEDGER --file NEW` may move it"
        raise LedgerError(f"{path} cannot be made: {cure}", reason="missing") from None
    if not taken:
        raise LedgerError(f"{path} is held by another program", reason="busy")
    try:
        yield
    finally:
        lock.release()

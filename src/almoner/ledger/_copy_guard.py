"""A witness outside the ledger, which remembers its newest entry: an older copy is found when it is opened.

The witness is a text file on another volume. It grows by a line, "number:hash", for each transaction, before anything
of that transaction is revealed. The ledger's own record says where it is.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from almoner._disk import PRIVATE_FILE, Lock, sync
from almoner.errors import LedgerError

__all__ = ["Head", "Witness"]

_TAIL = 4096  # bytes at the end, in which the last line is


class Head(NamedTuple):
    """The number and the hash of an entry. Public."""

    number: int
    hash: str

    def __str__(self) -> str:
        return f"{self.number}:{self.hash}"


class Witness:
    """The file of a witness.

    Args:
        path: of the file; its folder must be there.
        ledger: the name of the ledger, for messages.

    Guarantee: while ``check`` returns, the ledger holds every entry that the witness ever saw of it, so that
        nothing that was revealed is missing from it.
    Source: docs/ledger.md, "Backups, copies and rollback".
    """

    def __init__(self, path: Path, ledger: str) -> None:
        self._path, self._ledger = path, ledger

    def begin(self, head: Head) -> None:
        """Make the file, with this entry.

        Raises:
            LedgerError: it is there already, or cannot be made.
        """
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        except FileExistsError:
            raise LedgerError(f"{self._path} is there already: a witness begins as a new file") from None
        except OSError as error:
            raise LedgerError(f"{self._path} cannot be made: {error.strerror}", reason="forbidden") from None
        os.close(descriptor)
        sync(self._path.parent)
        self._append(head)

    def check(self, last: Head, hash_of: Callable[[int], str | None]) -> None:
        """At opening, and after each transaction before anything of it is revealed.

        Refuse a ledger that lacks what the witness saw; the witness catches up with a newer one.

        Args:
            last: the ledger's newest entry.
            hash_of: the hash of the ledger's entry of a number; None where there is none.

        Raises:
            LedgerError: the ledger is an older copy, or one of two copies that both went on; or the witness is missing.
        """
        with _Locked(self._path):
            seen = self._last()
            self._refuse(seen, last, hash_of)
            if last.number > seen.number:
                self._append(last)

    def _refuse(self, seen: Head, last: Head, hash_of: Callable[[int], str | None]) -> None:
        if seen.number > last.number:
            missing = seen.number - last.number
            raise LedgerError(
                f"{self._ledger} is older than its witness {self._path}: {missing} "
                f"{'entry is' if missing == 1 else 'entries are'} missing. It is a backup or a copy, and answers "
                "nothing more: what was charged since would be forgotten",
                reason="damaged",
            )
        if hash_of(seen.number) != seen.hash:
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
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND)
            try:
                size = os.lseek(descriptor, 0, os.SEEK_END)
                if size and os.pread(descriptor, 1, size - 1) != b"\n":  # the end of a line that was cut off
                    line = b"\n" + line
                written = os.write(descriptor, line)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            written = 0
        if written < len(line):
            raise LedgerError(f"{self._ledger}: its witness {self._path} cannot be written; nothing was revealed")


class _Locked:
    """The lock file of a witness, waited for."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + ".lock")

    def __enter__(self) -> None:
        try:
            self._lock = Lock(self._path)
            for _ in range(2000):
                if self._lock.take(required=False):
                    return
                time.sleep(0.005)
        except OSError:
            raise LedgerError(f"{self._path} cannot be made; a witness needs its folder", reason="missing") from None
        raise LedgerError(f"{self._path} is held by another program", reason="busy")

    def __exit__(self, *_: object) -> None:
        self._lock.release()

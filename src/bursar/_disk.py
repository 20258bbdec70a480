"""One writer, whatever processes do: a lock that reading the ledger's file does not undo, and nothing shared by forks.

DuckDB's own lock is one of POSIX: it is gone as soon as its process closes the same file once more, say after reading
it for a backup. And a forked process has its parent's connections: it would write beside it, with nothing to stop it.
"""

import ctypes
import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

try:
    import fcntl
except ModuleNotFoundError:  # not a system of this kind; DuckDB's lock remains
    fcntl = None  # type: ignore[assignment]

__all__ = ["Lock", "leaked", "not_for_forks"]

_WITHOUT = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}
"""What file systems without locks of this kind say."""


_HELD: set[tuple[int, int]] = set()
"""The files of the ledgers that this process has open: their names may change, or be several."""


class Lock:
    """A file that one process at a time has locked, beside the ledger's; it is there while the ledger is open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._held: tuple[int, int] | None = None

    def take(self) -> bool:
        """Whether nobody else has it. Raises OSError where no file can be made."""
        while fcntl is not None and self._descriptor is None:
            found = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(found), self._path.stat()):
                    self._descriptor = found
            except BlockingIOError:
                return False
            except FileNotFoundError:  # whoever had it just removed it: once more, with a new one
                continue
            except OSError as error:
                if error.errno not in _WITHOUT:
                    raise
                self._descriptor = found  # DuckDB's lock remains
            finally:
                if self._descriptor is None:
                    os.close(found)
        return True

    def hold(self, status: os.stat_result) -> bool:
        """Whether nobody else in this process has the ledger's file itself, by whatever name."""
        key = status.st_dev, status.st_ino
        if key in _HELD:
            return False
        _HELD.add(key)
        self._held = key
        return True

    def leave(self) -> None:
        """Remove the file and let it go."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._path.unlink()
        self.forget()

    def __del__(self) -> None:
        """A ledger that was never closed, and is not used any more, may be opened again."""
        self.leave()

    def forget(self) -> None:
        """Let go of this process's share of the lock: a parent that has it keeps it."""
        if self._held is not None:
            _HELD.discard(self._held)
            self._held = None
        found, self._descriptor = self._descriptor, None
        if found is not None:
            os.close(found)


class Forked(Protocol):
    """Something that must not be used after a fork, in the new process."""

    def abandon(self) -> None:
        """In the new process: let go without closing anything, which would write where the other process does."""


_OPEN: WeakSet[Any] = WeakSet()


def not_for_forks(thing: Forked) -> None:
    """Have a thing abandoned in processes that are forked from now on."""
    _OPEN.add(thing)


def leaked(connection: object) -> None:
    """Have Python never take something apart, not even at its end: closing it would write."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _abandon() -> None:
    for thing in list(_OPEN):
        thing.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon)

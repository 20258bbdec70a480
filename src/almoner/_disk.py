"""Keep files: one lock, one fsync, one private mode, one way to write a file or a folder whole or not at all.

What is written here is forced to the disk before it gets its name: after a crash there is the old state or the new one.
Nothing that holds a file or a connection is shared with a forked process, which would write beside its parent.
"""

import ctypes
import errno
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import RLock
from typing import Any, BinaryIO
from weakref import WeakSet

try:
    import fcntl
except ModuleNotFoundError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700  # modes of files and folders that their owner alone may use
_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}  # where there are no hard links
_NO_LOCKS_HERE = {errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}  # where locks are unknown
_CLAIMED: set[tuple[int, int]] = set()  # (device, inode) of files that this process claimed, whose names may be many
_OPEN: WeakSet[Any] = WeakSet()


def abandon_after_fork(thing: Any) -> None:
    """Call ``thing.abandon()`` in every process that is forked from now on: it closes nothing that the parent uses."""
    _OPEN.add(thing)


def never_close(connection: object) -> None:
    """Keep Python from ever destroying an object, even at its exit: closing this connection would write."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


class Lock:
    """A lock file that one process at a time holds, beside what it protects; it exists while the lock is held.

    DuckDB's own lock is one of POSIX: it is gone as soon as its process closes the same file once more, say after
    reading it for a backup. This one (flock) stays until it is released or its process ends.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._claimed: tuple[int, int] | None = None
        abandon_after_fork(self)

    @property
    def held(self) -> bool:
        """True if this process holds the lock file."""
        return self._descriptor is not None

    def take(self, *, required: bool = True) -> bool:
        """Take the lock: True if it is taken, or was already; False where another process holds it.

        Systems and file systems that have no locks count as free, or raise OSError where one is ``required``.
        """
        if fcntl is None and required:
            raise OSError(errno.ENOTSUP, "this system has no file locks")
        while fcntl is not None and self._descriptor is None:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                    self._descriptor = descriptor
            except BlockingIOError:
                return False
            except FileNotFoundError:  # its last holder has just removed it: try again with a new one
                continue
            except OSError as error:
                if required or error.errno not in _NO_LOCKS_HERE:
                    raise
                self._descriptor = descriptor
            finally:
                if self._descriptor is None:
                    os.close(descriptor)
        return True

    def claim(self, status: os.stat_result) -> bool:
        """Claim the protected file: False if another lock in this process has, under whatever name."""
        key = status.st_dev, status.st_ino
        if key in _CLAIMED:
            return False
        _CLAIMED.add(key)
        self._claimed = key
        return True

    def moved(self, status: os.stat_result) -> None:
        """Claim the file that took the place of the one that was claimed."""
        if self._claimed is not None:
            _CLAIMED.discard(self._claimed)
        self.claim(status)

    def release(self) -> None:
        """Remove the lock file and let it go."""
        if self._descriptor is not None:
            with suppress(OSError):
                self._path.unlink()
        self.abandon()

    def __del__(self) -> None:
        self.release()

    def abandon(self) -> None:
        """Let go of this process's share of the lock; a parent process keeps its own."""
        if self._claimed is not None:
            _CLAIMED.discard(self._claimed)
            self._claimed = None
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


class _Mask:
    """The process's mask for new files: the first thread that enters sets it, the last that leaves restores it."""

    def __init__(self) -> None:
        self.lock, self.threads, self.before = RLock(), 0, 0

    def forked(self) -> None:
        """In the forked process: the threads that were inside do not exist here."""
        if self.threads:
            os.umask(self.before)
        self.lock, self.threads = RLock(), 0


_MASK = _Mask()


@contextmanager
def private_files(*written_over: Path) -> Iterator[None]:
    """Files that are made inside this block, or written over, are for their owner alone; threads may be inside."""
    for each in filter(Path.is_file, written_over):
        each.chmod(PRIVATE_FILE)
    with _MASK.lock:
        before = os.umask(0o077)
        _MASK.before = _MASK.before if _MASK.threads else before
        _MASK.threads += 1
    try:
        yield
    finally:
        with _MASK.lock:
            _MASK.threads -= 1
            if not _MASK.threads:
                os.umask(_MASK.before)


def private_folder(path: Path) -> None:
    """Make a folder for its owner alone, unless it exists."""
    path.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)


def sync(path: Path) -> None:
    """Force a file, or the names in a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A private file to write and read; it takes the place of ``path``, whole, when the block ends without an error.

    Until then it is ``path`` with ``.new`` at the end, which is removed after an error.
    """
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    try:
        with _new_file(fresh) as file:
            yield file
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    sync(path.parent)


def first_file(path: Path, text: str) -> None:
    """A private file with a text of ASCII, unless there is one: of several processes, the fastest's stays, whole."""
    whole = path.with_name(f"{path.name}.{secrets.token_hex(8)}.tmp")  # nobody ever finds half of it under the name
    try:
        if not path.exists():
            with _new_file(whole) as file:
                file.write(text.encode("ascii"))
            with suppress(FileExistsError):
                try:
                    os.link(whole, path)
                except OSError as error:
                    if error.errno not in _NO_LINKS:
                        raise
                    with _new_file(path) as file:  # here a crash can leave half of it under its name
                        file.write(text.encode("ascii"))
            sync(path.parent)
    finally:
        with suppress(OSError):
            whole.unlink(missing_ok=True)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A new file, for its owner alone, on the disk when the block ends."""
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, PRIVATE_FILE), "w+b") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def whole_folder(path: Path, mode: int = PRIVATE_FOLDER) -> Iterator[Path]:
    """A new folder to fill; it takes the place of ``path``, whole, when the block ends without an error."""
    fresh = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    try:
        yield fresh
        fresh.chmod(mode)
        for each in (*fresh.rglob("*"), fresh, fresh.parent):  # all that is in it, its names, and its own name
            sync(each)
        if path.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}-old-", dir=path.parent))
            path.rename(old / path.name)
            try:
                fresh.rename(path)
            except BaseException:
                (old / path.name).rename(path)
                old.rmdir()
                raise
            shutil.rmtree(old)
        else:
            fresh.rename(path)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    sync(path.parent)


def _in_forked_process() -> None:
    _MASK.forked()
    for thing in list(_OPEN):
        thing.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_process)

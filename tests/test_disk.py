"""Locks, private modes, and files and folders that are written whole or not at all."""

import errno
import gc
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from almoner import _disk


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def half(target):
    """Write half of what is wanted, and fail."""
    if isinstance(target, Path):
        (target / "x").write_text("half")
    else:
        target.write(b"half")
    raise KeyError


def in_a_forked_process(work):
    """Whether work() is true in a forked process."""
    child = os.fork()
    if child == 0:
        os._exit(0 if work() else 1)
    return os.waitpid(child, 0)[1] == 0


def elsewhere(path):
    """Whether another process can take the lock."""
    code = f"from pathlib import Path; from almoner._disk import Lock; print(Lock(Path({str(path)!r})).take())"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.strip() == "True"


@pytest.mark.slow
def test_one_process_holds_a_lock(tmp_path):
    """A second process, and a second lock in this one, are refused until the first is released or forgotten."""
    path = tmp_path / "lock"
    first, second = _disk.Lock(path), _disk.Lock(path)
    assert first.take()
    assert first.take()
    assert mode(path) == 0o600
    assert not second.take()
    assert not elsewhere(path)
    first.release()
    assert not path.exists()
    assert second.take()
    assert not first.take()
    del second
    gc.collect()
    assert first.take()


def test_a_lock_file_that_was_left_over_locks_nothing(tmp_path):
    """The file of a process that was killed is no lock."""
    path = tmp_path / "lock"
    path.touch()
    assert _disk.Lock(path).take()


def test_a_forked_process_has_no_lock_and_does_not_release_its_parents(tmp_path):
    """In the child the lock is not held; when the child ends, the parent's is still there."""
    lock = _disk.Lock(tmp_path / "lock")
    assert lock.take()

    def work():
        lock.release()
        return not lock.held

    assert in_a_forked_process(work)
    assert lock.held
    assert (tmp_path / "lock").exists()
    assert not elsewhere(tmp_path / "lock")


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS])
def test_a_required_lock_needs_a_file_system_with_locks(tmp_path, monkeypatch, number):
    """Without locks, a lock that is required raises OSError; one that is not counts as free."""

    def refuse(*_):
        raise OSError(number, "no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.raises(OSError, match="no locks here"):
        _disk.Lock(tmp_path / "lock").take()
    assert _disk.Lock(tmp_path / "lock").take(required=False)
    monkeypatch.setattr(_disk, "fcntl", None)
    with pytest.raises(OSError, match="no file locks"):
        _disk.Lock(tmp_path / "lock").take()
    assert _disk.Lock(tmp_path / "lock").take(required=False)


def test_a_file_is_claimed_once_by_all_its_names(tmp_path):
    """A hard link is the same file; it is free again when the lock is released."""
    (tmp_path / "a").touch()
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    first, second = _disk.Lock(tmp_path / "a.lock"), _disk.Lock(tmp_path / "b.lock")
    assert first.claim((tmp_path / "a").stat())
    assert not second.claim((tmp_path / "b").stat())
    first.release()
    assert second.claim((tmp_path / "b").stat())


def test_files_and_folders_are_for_their_owner(tmp_path):
    """Private files have mode 0600 and private folders 0700, whatever the process's mask is."""
    before = os.umask(0)
    try:
        with _disk.private_files():
            (tmp_path / "a").write_text("x")
        with _disk.whole_file(tmp_path / "b") as file:
            file.write(b"x")
        _disk.private_folder(tmp_path / "c")
        with _disk.whole_folder(tmp_path / "d") as folder:
            (folder / "e").write_text("x")
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in "abcd"] == [0o600, 0o600, 0o700, 0o700]


def test_a_private_file_keeps_no_rights_of_the_one_that_it_is_written_over(tmp_path):
    """With --force a statement went into a file that all users of the machine could read."""
    there, new = tmp_path / "there", tmp_path / "new"
    there.write_text("old")
    there.chmod(0o644)
    with _disk.private_files(there, new):
        for each in (there, new):
            each.write_text("private")
    assert [mode(there), mode(new)] == [0o600, 0o600]


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    """After an error the old file is there and nothing else; what a crash left over is replaced."""
    path = tmp_path / "a"
    path.write_bytes(b"old")
    (tmp_path / "a.new").write_bytes(b"left over by a crash")
    with pytest.raises(KeyError), _disk.whole_file(path) as file:
        half(file)
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    with _disk.whole_file(path) as file:
        file.write(b"new")
        file.seek(0)
        assert file.read() == b"new"
    assert path.read_bytes() == b"new"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_folder_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    """After an error, also one of the last renaming, the old folder is there and nothing else."""
    path = tmp_path / "a"
    for text in ("old", "new"):
        with pytest.raises(KeyError), _disk.whole_folder(path) as folder:
            half(folder)
        with _disk.whole_folder(path) as folder:
            (folder / "x").write_text(text)
        assert (path / "x").read_text() == text
    renamed = Path.rename

    def fails_on_fresh(self, target):
        if target == path and "-old-" not in str(self):
            raise OSError("no")
        return renamed(self, target)

    monkeypatch.setattr(Path, "rename", fails_on_fresh)
    with pytest.raises(OSError, match="no"), _disk.whole_folder(path) as folder:
        (folder / "x").write_text("newer")
    assert (path / "x").read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_content_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """The file is synced, then renamed, then its folder is synced; a folder likewise."""
    done = []
    monkeypatch.setattr("os.fsync", lambda number: done.append(Path(f"/proc/self/fd/{number}").readlink().name))
    for name in ("replace", "rename"):
        before = getattr(Path, name)
        monkeypatch.setattr(Path, name, lambda self, to, before=before: (done.append("renamed"), before(self, to)))
    with _disk.whole_file(tmp_path / "a") as file:
        file.write(b"x")
    assert done == ["a.new", "renamed", tmp_path.name]
    done.clear()
    with _disk.whole_folder(tmp_path / "b") as folder:
        (folder / "x").write_text("y")
    assert done[0] == "x"
    assert done[-2:] == ["renamed", tmp_path.name]
    assert folder.name in done[: done.index("renamed")]

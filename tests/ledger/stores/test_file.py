"""The file of a ledger: private, with one writer, whole after any failure."""

import contextlib
import errno
import gc
import os
import pickle
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event

import duckdb
import pytest

from almoner._disk import private_files
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger import Ledger, summary
from ledgers import ask, clean, opened


def test_files_are_private(path):
    """The file is its owner's alone, and so are those that appear while it is open; they go when it is closed."""
    with opened(path) as book:
        ask(book, "a", {"ann": 5})
        modes = [stat.S_IMODE(each.stat().st_mode) & 0o077 for each in path.parent.iterdir()]
        assert len(modes) > 1
        assert not any(modes)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_one_writer(path):
    """A second opening fails with a clear error, in this process and in another one, and harms nothing."""
    with opened(path) as book:
        with pytest.raises(LedgerError, match="one writer"):
            opened(path)
        script = (
            "import sys; from almoner import errors, filters; from almoner.ledger import Ledger\n"
            "try: Ledger.open(sys.argv[1])\n"
            "except errors.LedgerError as error: print(error)"
        )
        run = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True)
        assert "one writer" in run.stdout
        assert ask(book, "a", {"ann": 5}) == {"ann"}
    with opened(path) as book:
        assert book.spent("ann") == 5


def test_one_ledger_by_all_its_names(path, monkeypatch):
    """Through a link, and after a change of folder, files beside a ledger are its own; nobody else's are removed."""
    other = path.parent / "elsewhere"
    (other / "people.ledger.tmp").mkdir(parents=True)
    (other / "people.ledger.tmp" / "mine").write_text("x")
    (path.parent / "link").symlink_to(path.name)
    monkeypatch.chdir(path.parent)
    with opened(Path("people.ledger")) as book:
        monkeypatch.chdir(other)
        ask(book, "a", {"ann": 5})
        with pytest.raises(LedgerError, match="one writer"):
            opened(path.parent / "link")
    assert (other / "people.ledger.tmp" / "mine").read_text() == "x"
    assert not (path.parent / "people.ledger.tmp").exists()
    with opened(path.parent / "link") as book:
        assert book.spent("ann") == 5


def test_a_ledger_that_was_moved_or_replaced_answers_nothing_more(path):
    """What would be charged in a file that nobody finds again is refused; the file that has the name is untouched."""
    for replaced in (False, True):
        book = opened(path)
        ask(book, f"before {replaced}", {"ann": 5})
        shutil.copy(path, path.with_name("backup"))
        path.rename(path.with_name("moved"))
        if replaced:
            path.with_name("backup").rename(path)
        with pytest.raises(LedgerError, match="moved or replaced"):
            ask(book, "after", {"ann": 5})
        assert book.store.closed
        path.with_name("moved").replace(path)
    with opened(path) as book:
        assert [entry.public["key"] for entry in book.entries("answered")] == ["before False", "before True"]
        assert clean(book)


RACES = """
import sys, time
from almoner import filters
from almoner.errors import LedgerError
from almoner.ledger import Ledger, Terms
sys.stdin.readline()
try:
    with Ledger.open(sys.argv[1], Terms(filters.Zcdp(rho=1.0), person="BIGINT"), create=True): time.sleep(0.2)
    print("made")
except LedgerError as error: print(error)
"""


@pytest.mark.slow
def test_several_that_make_the_same_file_at_once(path):
    """One of them makes it, whole; the others are told that it is open already; a failure leaves no lock."""
    with pytest.raises(LedgerError, match="folder"):
        opened(path.parent / "none" / "l")
    racers = [
        subprocess.Popen([sys.executable, "-c", RACES, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    time.sleep(2)  # for all of them to be ready, or nearly
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()
    told = [racer.communicate()[0] for racer in racers]
    assert any("made" in each for each in told)
    assert all("made" in each or "one writer" in each for each in told)
    with Ledger.open(path) as book:
        assert clean(book)
    assert [each.name for each in path.parent.iterdir()] == ["people.ledger"]
    path.unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
        with pytest.raises(LedgerError, match="cannot be created"):
            opened(path)
    opened(path).close()


OPENS = """
import sys
from almoner.errors import LedgerError
from almoner.ledger import Ledger
try: Ledger.open(sys.argv[1])
except LedgerError as error: print(error)
"""


@pytest.mark.slow
def test_reading_the_file_does_not_let_a_second_writer_in(path):
    """A copy made by the process that has the ledger open undoes DuckDB's lock, not ours; nothing is left behind."""
    opened(path).close()
    with opened(path) as book:
        shutil.copy(path, path.with_name("backup"))
        run = subprocess.run([sys.executable, "-c", OPENS, str(path)], capture_output=True, text=True, check=True)
        assert "one writer" in run.stdout
        ask(book, "a", {"ann": 5})
    assert sorted(each.name for each in path.parent.iterdir()) == ["backup", "people.ledger"]
    lock = path.with_name("people.ledger.lock")
    lock.touch()  # as a process leaves it that was killed
    with opened(path) as book:
        assert book.spent("ann") == 5
    assert not lock.exists()


@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.EACCES])
def test_where_files_cannot_be_locked(path, monkeypatch, number):
    """On file systems without such locks DuckDB's own remains; a lock that is refused is an error."""

    def refuse(*_):
        raise OSError(number, os.strerror(number))

    opened(path).close()
    monkeypatch.setattr("fcntl.flock", refuse)
    if number == errno.EACCES:
        with pytest.raises(LedgerError, match="may not be written"):
            opened(path)
        return
    with opened(path) as book:
        assert ask(book, "a", {"ann": 5}) == {"ann"}
        with pytest.raises(LedgerError, match="one writer"):
            opened(path)


@pytest.mark.slow
def test_a_ledger_that_was_never_closed_is_not_locked_for_ever(path):
    """Once nothing refers to it any more, the ledger may be opened again in the same process."""
    book = opened(path)
    ask(book, "a", {"ann": 5})
    del book
    gc.collect()
    with opened(path) as book:
        assert book.spent("ann") == 5


def test_names_beside_the_ledger_that_are_taken(path):
    """Something of somebody else's under a name that a ledger needs is an error that names it, and is left alone."""
    opened(path).close()
    for name in ("people.ledger.lock", "people.ledger.tmp"):
        taken = path.with_name(name)
        if name.endswith("lock"):
            taken.mkdir()
        else:
            taken.write_text("mine")
        with pytest.raises(LedgerError, match=name):
            opened(path)
        assert taken.is_dir() or taken.read_text() == "mine"
        taken.rmdir() if taken.is_dir() else taken.unlink()
        with opened(path) as book:
            assert clean(book)


@pytest.mark.quick(1)
@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.6, 0.99])
def test_a_truncated_file_is_an_error(path, share):
    """A ledger that lost its end is refused or found out, unless that held nothing; it never becomes empty."""
    with opened(path) as book:
        for number in range(50):
            ask(book, f"q{number}", {f"p{i}": 1 for i in range(5)})
        head = book.head
    size = path.stat().st_size
    os.truncate(path, int(size * share))
    with contextlib.suppress(LedgerError), opened(path) as book:
        assert share > 0.5
        if clean(book, head=head):
            assert [book.spent(f"p{i}") for i in range(5)] == [50] * 5


def test_a_foreign_file_is_refused(path, tmp_path):
    """Text, a folder, and another DuckDB file are no ledgers."""
    import duckdb

    path.write_text("hello" * 10_000)
    with pytest.raises(LedgerError, match="damaged"):
        opened(path)
    with pytest.raises(LedgerError, match="not a file"):
        opened(tmp_path)
    other = tmp_path / "other.duckdb"
    duckdb.connect(str(other)).close()
    with pytest.raises(LedgerError, match="not a ledger"):
        opened(other)


def in_a_child(work):
    """Run work in a forked child; its exit code is 0 if nothing was raised."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


FULL = """
import resource, signal, sys
from almoner import filters
from almoner.errors import LedgerError
from almoner.ledger import Ledger
sys.path.insert(0, sys.argv[2])
from ledgers import ask
book = Ledger.open(sys.argv[1])
many = {f"p{i}": 1 for i in range(2)}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
try:
    for number in range(10_000):
        ask(book, f"q{number}", many)
        print(number, flush=True)
except LedgerError as error:
    print(error)
"""


@pytest.mark.slow
def test_full_disk(path):
    """When no more can be written the question is refused; all before it is there, and room makes it work again."""
    opened(path).close()
    size = path.stat().st_size
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(Path(__file__).parents[2] / "helpers"), str(min(size, 20_000))],
        capture_output=True,
        text=True,
        check=True,
    )
    *answered, last = run.stdout.splitlines()
    assert "could not be written" in last
    assert answered
    with opened(path) as book:
        recorded = len(book.entries("answered"))
        assert recorded - len(answered) in (0, 1)  # the last one is there whole, or not at all
        assert book.spent("p0") == recorded
        assert clean(book)
        assert ask(book, "afterwards", {"p0": 1}) == {"p0"}


def test_read_only_file(path):
    """Who may not write the file, or beside it, looks at it, and gets a clear error for a change; it stays as it is."""
    folder, said = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
    try:
        path = folder / "people.ledger"
        with opened(path, witness=said / "head") as book:
            ask(book, "a", {"ann": 5})
        shutil.rmtree(said)  # an auditor's copy has none
        before = path.read_bytes()
        path.chmod(0o444)
        folder.chmod(0o555)

        def refused():
            if os.getuid() == 0:  # root may write everything
                os.setgid(65534)
                os.setuid(65534)
            with Ledger.open(path) as book:
                assert book.spent("ann") == 5
                assert clean(book)
                assert summary(book).questions[0]["key"] == "a"
                for change in (lambda: book.retire("ann"), lambda: ask(book, "b", {"ann": 5}), book.store.shrink):
                    with pytest.raises(LedgerError, match="may not be written"):
                        change()

        assert in_a_child(refused) == 0
        assert path.read_bytes() == before
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_second_name_of_the_file_does_not_open_it_again(path):
    """A hard link is another name without another budget."""
    opened(path).close()
    os.link(path, path.with_name("copy"))
    for place in (path, path.with_name("copy")):
        with pytest.raises(LedgerError, match="another name"):
            opened(place)
    path.with_name("copy").unlink()
    with opened(path):
        path.rename(path.with_name("moved"))
        with pytest.raises(LedgerError, match="is open already"):
            opened(path.with_name("moved"))
        path.with_name("moved").rename(path)
    opened(path).close()
    os.link(path, path.with_name("copy"))
    path.with_name("copy").rename(path.with_name("people.ledger.new"))  # as a crash leaves it while a ledger is made
    opened(path).close()


def test_threads_leave_the_mask_for_new_files_as_it_was():
    """It is the process's: the last out puts back what the first in found."""
    first_in, second_in, first_out = Event(), Event(), Event()

    def one():
        with private_files():
            first_in.set()
            assert second_in.wait(30)
        first_out.set()

    def other():
        assert first_in.wait(30)
        with private_files():
            second_in.set()
            assert first_out.wait(30)

    before = os.umask(0o022)
    try:
        with ThreadPoolExecutor(2) as pool:
            for done in (pool.submit(one), pool.submit(other)):
                done.result(60)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_program_can_tell_why_a_ledger_cannot_be_used(path, tmp_path):
    """Busy, closed, damaged and missing ledgers are told apart by ``reason``, also after the error was pickled."""

    def reason(work):
        with pytest.raises(LedgerError) as refused:
            work()
        assert pickle.loads(pickle.dumps(refused.value)).reason == refused.value.reason
        return refused.value.reason

    book = opened(path)
    assert reason(lambda: opened(path)) == "busy"
    book.close()
    assert reason(lambda: book.spent("ann")) == "closed"
    assert reason(lambda: opened(tmp_path / "none", create=False)) == "missing"
    assert reason(lambda: opened(tmp_path / "none" / "l")) == "forbidden"
    path.write_text("hello" * 10_000)
    assert reason(lambda: opened(path)) == "damaged"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["people.ledger", "lock, already attached, read-only, Permission denied"])
def test_a_damaged_ledger_is_not_called_busy(tmp_path, name):
    """A flipped bit in the first 12 KB: 80 of 80 are damaged, or harmless, and none is to be tried again later."""
    path, random, told = tmp_path / name, Random(1), []
    with opened(path) as book:
        ask(book, "a", {"ann": 5})
    whole = path.read_bytes()
    for _ in range(80):
        place, bit = random.randrange(12 * 1024), random.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            opened(path).close()
        except LedgerError as refused:
            told.append(refused.reason)
    assert set(told) == {"damaged"}
    assert len(told) > 40


def test_a_file_that_another_program_holds_is_busy(path):
    """Without our own lock, too: DuckDB's, held by a process that is no ledger's, says so."""
    opened(path).close()
    script = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(LedgerError, match="one writer") as refused:
            opened(path)
        assert refused.value.reason == "busy"
        other.stdin.close()
    held = duckdb.connect(str(path))
    with pytest.raises(LedgerError, match="one writer") as refused:
        opened(path)
    assert refused.value.reason == "busy"
    held.close()
    opened(path).close()


def test_a_file_that_may_not_be_written_is_forbidden(path, monkeypatch):
    """Where the system says so of the file, whatever DuckDB's message."""
    opened(path).close()
    path.write_text("hello" * 10_000)
    monkeypatch.setattr("almoner.ledger._stores.file.os.access", lambda *_: False)
    with pytest.raises(LedgerError, match="may not be written") as refused:
        opened(path)
    assert refused.value.reason == "forbidden"


def test_names_of_files_beside_a_ledger_are_refused(tmp_path):
    """A ledger called so would be taken for the lock or the copy of another one."""
    for ending in (".lock", ".new", ".tmp", ".wal"):
        with pytest.raises(ArgumentError, match="must not end in"):
            opened(tmp_path / f"people.ledger{ending}")


def test_what_a_killed_compaction_left_is_removed(tmp_path):
    """When the ledger is opened next."""
    place = tmp_path / "people.ledger"
    opened(place).close()
    left = [place.with_name(place.name + ending) for ending in (".new", ".new.wal")]
    for each in left:
        each.write_bytes(b"half of a copy")
    opened(place).close()
    assert not any(each.exists() for each in left)

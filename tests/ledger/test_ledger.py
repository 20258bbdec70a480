"""The ledger: charged and stored in one transaction, append-only, checked by its own arithmetic."""

import contextlib
import errno
import gc
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from bursar import filters
from bursar._disk import private_files
from bursar.errors import ArgumentError, BudgetExceeded, CopyRefused, DataError, LedgerError, UnknownPerson
from bursar.ledger import Ledger, check_export, export
from bursar.ledger._accounts.folder import folder_beside as folder_of
from ledgers import RHO, ask, clean, opened


@pytest.fixture
def path(tmp_path):
    return tmp_path / "people.ledger"


def test_everybody_is_charged_to_the_last_unit_and_nobody_above_the_budget(where):
    """Ten tenths fit; the eleventh question leaves out exactly those who spent everything."""
    with opened(where) as book:
        for day in range(10):
            assert ask(book, f"day {day}", {"ann": RHO // 10, "bob": 7}) == {"ann", "bob"}
        assert ask(book, "day 10", {"ann": 1, "bob": 7}) == {"bob"}
        assert (book.spent("ann"), book.spent("bob"), book.spent("cy")) == (RHO, 77, 0)
        assert clean(book)


def test_what_was_written_is_there_after_opening_again(where):
    """Accounts, answers, limits, reservations and tombstones survive."""
    with opened(where) as book:
        ask(book, "a", {"ann": 5})
        book.limit(6, analyst="ann")
        book.reserve(RHO // 2, key="later")
        book.retire("bob")
        head = book.head
    with opened(where) as book:
        assert book.spent("ann") == 5
        assert book.find("a").public["answer"] == [1]
        assert book.find("b") is None
        assert ask(book, "b", {"ann": 2, "bob": 2, "cy": 2}) == {"cy"}  # ann's limit is 6; bob has left
        with pytest.raises(BudgetExceeded):
            ask(book, "c", {"cy": RHO // 2 + 1}, analyst="ed")
        assert clean(book, head=head)


def test_files_are_private(path):
    """The file is its owner's alone, and so are those that appear while it is open; they go when it is closed."""
    with opened(path) as book:
        ask(book, "a", {"ann": 5})
        modes = [stat.S_IMODE(each.stat().st_mode) & 0o077 for each in path.parent.iterdir()]
        assert len(modes) > 1
        assert not any(modes)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_key_is_used_once(where):
    """The record itself refuses a second answer under a key, and charges nobody for it."""
    with opened(where) as book:
        ask(book, "a", {"ann": 5})
        with pytest.raises(LedgerError, match="ask with the same key"):
            ask(book, "a", {"ann": 5})
        with pytest.raises(LedgerError, match="closed"):
            book.spent("ann")
    with opened(where) as book:
        assert book.spent("ann") == 5
        assert clean(book)


def test_a_returning_person_has_the_old_account(where):
    """Leaving keeps the spends; a person who left is in no answer until restored."""
    with opened(where) as book:
        ask(book, "a", {"ann": RHO - 3})
        book.retire("ann")
        assert ask(book, "b", {"ann": 1}) == set()
        book.restore("ann")
        assert ask(book, "c", {"ann": 4}) == set()
        assert ask(book, "d", {"ann": 3}) == {"ann"}
        assert clean(book)


def test_limits_hold_per_person_under_the_one_cap(where):
    """An analyst's limit stops that analyst for that person; others go on up to the cap; it counts what was before."""
    with opened(where) as book:
        ask(book, "a", {"x": 10, "y": 1})
        book.limit(12, analyst="ann")
        book.limit(20, purpose="ads")
        assert ask(book, "b", {"x": 3, "y": 3}) == {"y"}
        assert ask(book, "c", {"x": 12, "y": 12}, analyst="bea", purpose="ads") == {"x", "y"}
        assert ask(book, "d", {"x": 9, "y": 2}, analyst="cy", purpose="ads") == {"y"}
        with pytest.raises(BudgetExceeded) as refused:
            ask(book, "e", {"x": 13}, analyst="ann")
        assert refused.value.asked == pytest.approx(13e-15)
        assert clean(book)


def test_reserved_budget_is_left_for_its_question(where):
    """What is reserved counts as spent for all others, is there for its own question, and can be released."""
    with opened(where) as book:
        book.reserve(RHO - 10, key="big")
        book.reserve(RHO - 10, key="big")  # the same again changes nothing
        with pytest.raises(BudgetExceeded):
            book.reserve(11, key="more")
        with pytest.raises(ArgumentError, match="reserves"):
            book.reserve(5, key="big")
        assert ask(book, "a", {"x": 10}) == {"x"}
        assert ask(book, "b", {"x": 1, "y": 1}) == {"y"}
        assert ask(book, "c", {"x": RHO - 10}, reserved="big") == {"x"}
        with pytest.raises(ArgumentError, match="reserves nothing"):
            ask(book, "d", {"x": 1}, reserved="big")
        book.reserve(5, key="other", analyst="bea", purpose="p")
        for asked in ({}, {"analyst": "bea"}, {"purpose": "p"}):
            with pytest.raises(ArgumentError, match="for this analyst and purpose"):
                ask(book, "d", {"y": 1}, reserved="other", **asked)
        with pytest.raises(ArgumentError, match="already"):
            book.reserve(5, key="other")
        book.release("other")
        with pytest.raises(ArgumentError, match="nothing"):
            book.release("other")
        assert book.spent("x") == RHO
        assert clean(book)


def test_one_writer(path):
    """A second opening fails with a clear error, in this process and in another one, and harms nothing."""
    with opened(path) as book:
        with pytest.raises(LedgerError, match="one writer"):
            opened(path)
        script = (
            "import sys; from bursar import errors, filters; from bursar.ledger import Ledger\n"
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
    assert folder_of(path.parent / "link") == folder_of(path)
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
from bursar import filters
from bursar.errors import LedgerError
from bursar.ledger import Ledger
sys.stdin.readline()
try:
    with Ledger.open(sys.argv[1], budget=filters.Zcdp(rho=1.0), person="BIGINT"): time.sleep(0.2)
    print("made")
except LedgerError as error: print(error)
"""


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
from bursar.errors import LedgerError
from bursar.ledger import Ledger
try: Ledger.open(sys.argv[1])
except LedgerError as error: print(error)
"""


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


FORKS = """
import os, sys
import pyarrow
from bursar import filters
from bursar.errors import LedgerError
from bursar.queries import Count, Session
rows = pyarrow.table({"who": ["ann", "bob"]})
session = Session.open(rows, person="who", budget=filters.Zcdp(rho=1.0), ledger=sys.argv[1])
session.analyst("zoe").ask(Count(sigma=20.0), key="before")
child = os.fork()
if not child:
    for key in ("before", "a"):
        try: session.analyst("zoe").ask(Count(sigma=20.0), key=key)
        except LedgerError: print("refused", flush=True)
    session.close()
    sys.exit()
print(os.waitpid(child, 0)[1])
session.analyst("zoe").ask(Count(sigma=20.0), key="b")
session.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_forked_process_answers_nothing(where):
    """What a fork inherits is closed there, and goes on in its parent: no answer without its charge."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKS, str(where)], capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["refused", "refused", "0"]
    with Ledger.open(where) as book:
        assert [entry.public["key"] for entry in book.entries("answered")] == ["before", "b"]
        assert book.spent("ann") == 2 * RHO // 800
        assert clean(book)


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


def test_a_lost_ledger_is_not_replaced_silently(path):
    """With create=False a missing file is an error; a folder that is not there is one always."""
    with pytest.raises(LedgerError, match="not there"):
        opened(path, create=False)
    with pytest.raises(LedgerError, match="without a budget"):
        Ledger.open(path)
    with pytest.raises(LedgerError, match="cannot be created"):
        opened(path / "below")


def test_terms_are_fixed(where):
    """Another budget or another kind of names is refused; none given takes the ledger's own."""
    opened(where).close()
    with pytest.raises(ArgumentError, match="budget"):
        opened(where, budget=filters.Zcdp(rho=2.0))
    with pytest.raises(ArgumentError, match="person"):
        opened(where, person="BIGINT")
    with pytest.raises(ArgumentError, match="must be a fresh"):
        opened(where, budget=filters.Gaussian(mu=1.0))
    with pytest.raises(ArgumentError, match="below"):
        opened(where, budget=filters.Zcdp(rho=1e5))
    with Ledger.open(where) as book:
        assert book.budget == 1.0
        assert repr(book) == f"Ledger({book.store.name!r}, rho=1.0)"
        with pytest.raises(CopyRefused):
            __import__("copy").copy(book)


def test_names_of_people(where):
    """Whole-number ledgers take numbers and their decimal text; anything else is unknown, without being quoted."""
    with opened(where, person="BIGINT") as book:
        book.retire("17")
        book.restore(17)
        for wrong in ("x", True, 1.5, 2**63, None):
            with pytest.raises(UnknownPerson, match="whole numbers"):
                book.spent(wrong)


def test_names_of_people_that_are_text(where):
    """Text ledgers take any text at all, and tell people apart to the last character; halves of characters are none."""
    people = ["", "ann", "Ann", "ann ", "a\0b", "a\\0b", "\\x61", "é", "e\u0301", "\t", "\r\n", "'\"?%s", "\U0001f642"]
    with opened(where) as book:
        assert ask(book, "a", {person: place for place, person in enumerate(people, start=1)}) == set(people)
        assert [book.spent(person) for person in people] == list(range(1, len(people) + 1))
        for person in people[:5]:
            book.retire(person)
        assert ask(book, "b", dict.fromkeys(people, 1)) == set(people[5:])
        charged = book.store.workspace.run(book.accounts.charged()).fetchall()
        assert {person for _, person, _ in charged} == set(people)
        assert clean(book)
        for wrong in (17, None, b"ann", "\ud800"):
            with pytest.raises(UnknownPerson, match="text"):
                book.spent(wrong)


PLANTED = [
    "UPDATE ledger.accounts SET spent = spent - 1 WHERE person = 'ann'",
    "UPDATE ledger.accounts SET person = 'eve' WHERE person = 'ann'",
    "DELETE FROM ledger.accounts WHERE person = 'bob'",
    "INSERT INTO ledger.accounts VALUES ('ann', 0, FALSE)",
    "UPDATE ledger.accounts SET gone = NOT gone WHERE person = 'ann'",
    "UPDATE ledger.accounts SET gone = FALSE WHERE person = 'cy'",
    "DELETE FROM ledger.charges WHERE person = 'ann' AND question = 1",
    "UPDATE ledger.charges SET units = units + CASE WHEN question = 1 THEN 1 ELSE -1 END WHERE person = 'ann'",
    "UPDATE ledger.shares SET spent = 0 WHERE person = 'ann'",
    "INSERT INTO ledger.shares VALUES ('analyst:zed', 'ann', 1)",
    "UPDATE ledger.record SET public = replace(public, '\"answer\":[1]', '\"answer\":[2]') WHERE number = 1",
    "UPDATE ledger.record SET private = replace(private, '\"people\":2', '\"people\":1') WHERE number = 1",
    "DELETE FROM ledger.record WHERE number = 1",
    "DELETE FROM ledger.record WHERE number = (SELECT max(number) FROM ledger.record)",
    "UPDATE ledger.record SET key = 'z' WHERE number = 1",
    "UPDATE ledger.record SET analyst = 'z' WHERE number = 1",
    "UPDATE ledger.record SET reserved = 'z' WHERE number = 1",
    "UPDATE ledger.record SET public = 'x' WHERE number = 0",
    "DELETE FROM ledger.record",
]


@pytest.mark.parametrize("change", PLANTED)
def test_verify_finds_every_planted_change(where, change):
    """Each single change of the record, an account, a charge, a share or a tombstone is found."""
    with opened(where) as book:
        ask(book, "a", {"ann": 5, "bob": 3})
        book.limit(100, analyst="ann")
        book.retire("cy")
        ask(book, "b", {"ann": 1, "bob": 3})
        head = book.head
        assert clean(book, head=head)
        try:
            book.store.run(change)
        except LedgerError:
            assert "INSERT INTO ledger.accounts" in change  # a server does not even take a second account
            return
        assert not clean(book, head=head)


def test_exported_record_can_be_checked_without_the_private_parts(where):
    """The chain of an export holds; it names nobody and tells no totals; any changed line is found."""
    with opened(where) as book:
        ask(book, "a", {"ann-secret": 5, "bob-secret": 3})
        book.retire("ann-secret")
        lines = list(export(book))
    assert check_export(lines) == 3
    assert "secret" not in "".join(lines)
    assert all(set(json.loads(line)) == {"number", "public", "private", "hash"} for line in lines)
    assert not {"units", "people"} & set(json.loads(lines[1])["public"])
    for place in range(3):
        with pytest.raises(DataError, match="broken"):
            check_export([line.replace('"kind"', '"king"') if i == place else line for i, line in enumerate(lines)])
    with pytest.raises(DataError, match="broken"):
        check_export(lines[1:])


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
from bursar import filters
from bursar.errors import LedgerError
from bursar.ledger import Ledger
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


def test_full_disk(path):
    """When no more can be written the question is refused; all before it is there, and room makes it work again."""
    opened(path).close()
    size = path.stat().st_size
    run = subprocess.run(
        [sys.executable, "-c", FULL, str(path), str(Path(__file__).parents[1] / "helpers"), str(min(size, 20_000))],
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
    """Somebody who may not write the file gets a clear error, and it stays as it is."""
    folder = Path(tempfile.mkdtemp())
    try:
        path = folder / "people.ledger"
        opened(path).close()
        before = path.read_bytes()
        path.chmod(0o444)
        folder.chmod(0o555)

        def refused():
            if os.getuid() == 0:  # root may write everything
                os.setgid(65534)
                os.setuid(65534)
            with pytest.raises(LedgerError, match="may not be written"):
                Ledger.open(path)

        assert in_a_child(refused) == 0
        assert path.read_bytes() == before
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_threads_of_one_session_take_turns(where):
    """A thread that begins while another one sets a limit waits for it, and then sees the limit."""
    begun = Event()

    def sets_a_limit(_):
        begun.set()
        time.sleep(0.2)
        book.limit(7, analyst="ann")

    with opened(where) as book, ThreadPoolExecutor(2) as pool:
        first = pool.submit(book.transact, sets_a_limit)
        begun.wait()
        second = pool.submit(book.transact, lambda _: dict(book._rules.limits))
        assert second.result() == {"analyst:ann": 7}
        first.result()
        assert ask(book, "a", {"x": 8, "y": 7}, price=7) == {"y"}
        assert clean(book)


VERSION_1 = """
CREATE TABLE old.bursar_ledger(version INTEGER NOT NULL);
CREATE TABLE old.record(number BIGINT NOT NULL, kind VARCHAR NOT NULL, key VARCHAR UNIQUE, analyst VARCHAR,
    purpose VARCHAR, public VARCHAR NOT NULL, private VARCHAR NOT NULL, hash VARCHAR NOT NULL);
CREATE TABLE old.accounts(person VARCHAR NOT NULL, spent BIGINT NOT NULL, gone BOOLEAN NOT NULL);
CREATE TABLE old.shares(scope VARCHAR NOT NULL, person VARCHAR NOT NULL, spent BIGINT NOT NULL);
CREATE TABLE old.charges(question BIGINT NOT NULL, person VARCHAR NOT NULL, units BIGINT NOT NULL);
INSERT INTO old.bursar_ledger VALUES (1);
INSERT INTO old.record SELECT number, kind, key, analyst, purpose, public, private, hash FROM new.record;
INSERT INTO old.accounts FROM new.accounts;
INSERT INTO old.shares FROM new.shares;
INSERT INTO old.charges FROM new.charges;
"""


@pytest.fixture
def version_1(path):
    """A file as the first version of the tables would hold it, and its head."""
    import duckdb

    fresh = path.with_name("fresh")
    with opened(fresh) as book:
        book.reserve(50, key="used")
        book.reserve(60, key="open")
        ask(book, "a", {"ann": 5, "bob": 3}, reserved="used")
        ask(book, "b", {"ann": 2}, purpose="ads")
        book.limit(10, analyst="ann")
        book.retire("cy")
        head = book.head
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{fresh}' AS new (READ_ONLY); ATTACH '{path}' AS old")
        for statement in VERSION_1.split(";"):
            if statement.strip():
                connection.execute(statement)
    return path, head


def versions(path):
    import duckdb

    with duckdb.connect(str(path), read_only=True) as connection:
        return [row[0] for row in connection.execute("SELECT version FROM bursar_ledger").fetchall()]


def test_a_file_of_an_older_version_is_brought_to_this_one(version_1):
    """The record is the same to the last hash, everything in force stays so, and it happens once."""
    path, head = version_1
    for _ in range(2):
        with opened(path) as book:
            assert book.head == head
            assert clean(book, head=head)
    assert versions(path) == [1, 2]
    with opened(path) as book:
        with pytest.raises(ArgumentError, match="reserves nothing"):
            ask(book, "c", {"ann": 1}, reserved="used")
        assert ask(book, "c", {"ann": 4, "bob": 4, "cy": 4}) == {"bob"}
        assert ask(book, "d", {"ann": 9}, analyst="zoe", reserved="open") == {"ann"}
        assert clean(book, head=head)


def test_a_step_to_another_version_that_fails_changes_nothing(version_1, monkeypatch):
    """A failure in the middle leaves the file as it was; the next opening brings it to this version."""
    from bursar.ledger._stores import schema

    def half(run):
        schema._reservations(run)
        run("SELECT error('stop')")

    path, head = version_1
    with monkeypatch.context() as patched:
        patched.setattr(schema, "STEPS", ((2, half),))
        with pytest.raises(LedgerError, match="could not be written"):
            opened(path)
    assert versions(path) == [1]
    with opened(path) as book:
        assert clean(book, head=head)


def test_a_file_of_a_newer_version_is_refused(path):
    """This program does not touch what it does not know."""
    import duckdb

    opened(path).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO bursar_ledger VALUES (99, 'later')")
    with pytest.raises(LedgerError, match="version 99"):
        opened(path)


def test_a_clock_that_goes_backwards(where, monkeypatch):
    """Times are told, and nothing depends on them: order, chain and accounts are right when the clock is wrong."""
    from datetime import UTC, datetime, timedelta

    from bursar.ledger import _record

    class Clock(datetime):
        days = 0

        @classmethod
        def now(cls, tz=None):
            cls.days += 1
            return datetime(2030, 1, 1, tzinfo=UTC) - timedelta(days=cls.days)

    monkeypatch.setattr(_record, "datetime", Clock)
    with opened(where) as book:
        book.reserve(RHO - 10, key="r")
        assert ask(book, "a", {"ann": 10}) == {"ann"}
        head = book.head
    with opened(where) as book:
        assert ask(book, "b", {"ann": 1, "bob": 1}) == {"bob"}
        times = [entry.public["time"] for entry in book.entries()]
        assert times == sorted(times, reverse=True)
        assert clean(book, head=head)


def test_reading_waits_for_other_threads(where):
    """A connection keeps one result: a step of one thread never comes between another's question and its answer."""
    book = opened(where)
    ask(book, "first", {"p": RHO // 4})
    begun, go_on = Event(), Event()

    def slow(_):
        begun.set()
        assert go_on.wait(30)

    reads = [lambda: book.head, lambda: book.entries(), lambda: book.find("first"), lambda: book.spent("p")]
    reads += [lambda: book.charges("p"), lambda: list(export(book)), lambda: book.accounts.totals()]
    with ThreadPoolExecutor() as pool:
        writer = pool.submit(book.transact, slow)
        assert begun.wait(30)
        waiting = [pool.submit(read) for read in reads]
        time.sleep(0.2)
        assert not any(found.done() for found in waiting)
        go_on.set()
        writer.result(30)
        assert all(found.result(30) is not None for found in waiting)
    book.close()


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

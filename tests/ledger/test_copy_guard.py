"""Older copies of a ledger: a witness outside the file finds them when they are opened, and before they reveal more."""

import shutil

import pytest
from typer.testing import CliRunner

from almoner.cli import app
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger import Ledger, backup, restore
from ledgers import ask, clean, opened


@pytest.fixture
def where(tmp_path):
    """A ledger with a question and a witness, closed."""
    (tmp_path / "other volume").mkdir()
    with opened(tmp_path / "people.ledger") as book:
        ask(book, "a", {"ann": 5})
        book.witnessed_by(tmp_path / "other volume" / "head")
    return tmp_path / "people.ledger"


def head_of(where):
    return (where.parent / "other volume" / "head").read_text(encoding="ascii").splitlines()[-1]


def test_a_restored_backup_is_refused_with_the_number_of_missing_entries(where):
    """The same key would be answered and charged twice: opening says that two entries are missing."""
    copy = where.with_name("copy")
    shutil.copy(where, copy)
    with opened(where) as book:
        ask(book, "b", {"ann": 5})
        ask(book, "c", {"ann": 5})
        assert head_of(where) == book.head
    shutil.copy(copy, where)
    with pytest.raises(LedgerError, match="2 entries are missing") as refused:
        opened(where)
    assert refused.value.reason == "damaged"


def test_without_the_witness_nothing_notices(tmp_path):
    """The control: a ledger without a witness is reset by a copy, which is why there is one."""
    where, copy = tmp_path / "l", tmp_path / "copy"
    with opened(where) as book:
        ask(book, "a", {"ann": 5})
    shutil.copy(where, copy)
    with opened(where) as book:
        ask(book, "b", {"ann": 5})
    shutil.copy(copy, where)
    with opened(where) as book:
        assert ask(book, "b", {"ann": 5}) == {"ann"}
        assert clean(book)


def test_two_copies_that_both_went_on_are_found(where):
    """Both are open at once: the second to answer is refused before it reveals anything, and at every opening."""
    copy = where.with_name("copy")
    shutil.copy(where, copy)
    with opened(where) as one, opened(copy) as two:
        ask(one, "b", {"ann": 5})
        with pytest.raises(LedgerError, match=r"older than its witness|side by side"):
            ask(two, "b", {"ann": 5})
        with pytest.raises(LedgerError, match="closed"):
            ask(two, "c", {"ann": 5})
    with pytest.raises(LedgerError, match="side by side"):
        opened(copy)
    with opened(where) as book:
        ask(book, "c", {"ann": 5})
    with pytest.raises(LedgerError, match="1 entry is missing"):
        opened(copy)


def test_a_witness_that_is_gone_or_cut_off_stops_the_ledger(where):
    """Removing the witness resets nothing; the beginning of a line that a crash cut off is no line."""
    file = where.parent / "other volume" / "head"
    text = file.read_text(encoding="ascii")
    file.write_text(text + "99", encoding="ascii")
    with opened(where) as book:
        ask(book, "b", {"ann": 5})
        assert head_of(where) == book.head
    file.unlink()
    with pytest.raises(LedgerError, match="missing"):
        opened(where)
    file.write_text("", encoding="ascii")
    with pytest.raises(LedgerError, match="cannot be read"):
        opened(where)


def test_a_ledger_that_moved_says_how_its_witness_moves(where):
    """It asks for the witness where the record says it is; from there a new one begins, and the ledger opens."""
    moved, folder, new = where.with_name("moved"), where.parent / "other volume", where.parent / "new.head"
    where.rename(moved)
    folder.rename(where.parent / "gone")
    with pytest.raises(LedgerError, match="put the witness back into its folder; then `almoner ledger witness "):
        Ledger.open(moved)
    (where.parent / "gone").rename(folder)
    with Ledger.open(moved) as book:
        book.witnessed_by(new)
    shutil.rmtree(folder)
    with Ledger.open(moved) as book:
        assert new.read_text(encoding="ascii").splitlines()[-1] == str(book.head)


def test_a_crash_before_the_witness_was_told_loses_nothing(where):
    """A ledger that is ahead of its witness opens, and the witness catches up."""
    file = where.parent / "other volume" / "head"
    before = file.read_bytes()
    with opened(where) as book:
        ask(book, "b", {"ann": 5})
        head = book.head
    file.write_bytes(before)
    opened(where).close()
    assert head_of(where) == head


def test_a_witness_that_cannot_be_written_reveals_nothing(where, monkeypatch):
    """A question whose entry nobody outside remembers is not answered; asked again later, it has its stored answer."""
    with opened(where) as book:
        monkeypatch.setattr("almoner.ledger._copy_guard.os.write", lambda *_: 0)
        with pytest.raises(LedgerError, match="cannot be written"):
            ask(book, "b", {"ann": 5})
        monkeypatch.undo()
        assert book.store.closed
    with opened(where) as book:
        assert book.find("b") is not None
        assert book.spent("ann") == 10


@pytest.mark.slow
def test_backup_and_restore_keep_the_head(where):
    """A backup is whole while the ledger is open; restored, it is the same ledger, unless anything is missing."""
    copy, lost = where.with_name("backup"), where.with_name("lost")
    with opened(where) as book:
        assert backup(book, copy) == book.head
        with pytest.raises(ArgumentError, match="already"):
            backup(book, copy)
    where.rename(lost)
    rest = where.with_name(f"{where.name}.wal")
    rest.write_bytes(b"the last transactions of the file that was lost")
    with pytest.raises(ArgumentError, match=r"\.wal is there already: move it away"):
        restore(copy, where)
    rest.unlink()
    assert restore(copy, where) == head_of(where)
    with pytest.raises(ArgumentError, match="already"):
        restore(copy, where)
    with opened(where) as book:
        assert clean(book)
        assert book.spent("ann") == 5
        with pytest.raises(LedgerError):  # keys are still unique
            book.store.transact(lambda: book.store.run("INSERT INTO ledger.record SELECT * FROM ledger.record"))
    with opened(where) as book:
        ask(book, "b", {"ann": 5})
    where.rename(where.with_name("lost again"))
    with pytest.raises(LedgerError, match="1 entry is missing"):
        restore(copy, where)
    assert not where.exists()


def test_a_backup_that_may_not_be_written_is_compared_with_the_witness(where, monkeypatch):
    """Copies are often kept on read-only disks: one that lacks an entry was put in the ledger's place all the same."""
    copy = where.with_name("copy")
    with opened(where) as book:
        backup(book, copy)
        ask(book, "b", {"ann": 5})
    lost = where.rename(where.with_name("lost"))
    monkeypatch.setattr("almoner.ledger._stores.file.os.access", lambda place, _: place.name != "copy")
    with pytest.raises(LedgerError, match="1 entry is missing"):
        restore(copy, where)
    assert not where.exists()
    lost.rename(copy)
    assert restore(copy, where) == head_of(where)


@pytest.mark.parametrize("ending", [".lock", ".new", ".tmp", ".wal"])
def test_a_backup_is_not_called_as_a_file_beside_the_ledger(where, ending):
    """The ledger removes such a file when it is opened next, and the backup would be gone."""
    with opened(where) as book, pytest.raises(ArgumentError, match="must not end in"):
        backup(book, where.with_name(f"people.ledger{ending}"))


def test_a_witness_on_a_server(server, tmp_path):
    """Two sessions tell one witness in any order; a database that was restored is refused."""
    place = server.place()
    with opened(place) as one, opened(place) as two:
        one.witnessed_by(tmp_path / "head")
        for number in range(4):
            ask((one, two)[number % 2], str(number), {"ann": 5})
        head = one.head
        assert (tmp_path / "head").read_text(encoding="ascii").splitlines()[-1] == head
        number = int(head.partition(":")[0])
        for table, column in (("record", "number"), ("charges", "question")):
            one.store.run(f"DELETE FROM ledger.{table} WHERE {column} = ?", [number])
        one.store.run("UPDATE ledger.accounts SET spent = spent - 5")
    with pytest.raises(LedgerError, match="1 entry is missing"):
        opened(place)


@pytest.mark.slow
def test_commands(where):
    """`almoner ledger witness`, `backup` and `restore-backup` do the same; a path must be absolute in Python."""
    with opened(where.with_name("new")) as book, pytest.raises(ArgumentError, match="absolute"):
        book.witnessed_by("head")
    with opened(where) as book, pytest.raises(LedgerError, match="already"):
        book.witnessed_by(where.parent / "other volume" / "head")

    def call(*arguments):
        return CliRunner().invoke(app, ["ledger", *map(str, arguments)])

    new, copy = where.with_name("new"), where.with_name("copy")
    assert call("witness", new, "--file", where.parent / "new head").exit_code == 0
    told = call("backup", new, "--out", copy).stdout
    assert told.startswith("head: 1:")
    new.unlink()
    assert call("restore-backup", copy, "--out", new).stdout == told
    with Ledger.open(new) as book:
        assert clean(book)


@pytest.mark.slow
def test_a_witness_that_is_asked_for_begins_with_the_ledger(tmp_path):
    """It is recorded, told of every entry, and asked for at every opening; another one, or none, is refused."""
    where, head = tmp_path / "l", tmp_path / "head"
    with opened(where, witness=head) as book:
        ask(book, "a", {"ann": 5})
        assert book.witness == str(head)
        assert head.read_text(encoding="ascii").splitlines()[-1] == book.head
    opened(where, witness=head, create=False).close()
    with pytest.raises(ArgumentError, match="moves it"):
        opened(where, witness=tmp_path / "other")
    bare = tmp_path / "bare"
    opened(bare).close()
    with pytest.raises(LedgerError, match=r"has no witness.*`almoner ledger witness .*--file .*` begins it"):
        opened(bare, witness=tmp_path / "bare.head", create=False)
    opened(bare, witness=tmp_path / "bare.head").close()
    with pytest.raises(LedgerError, match="folder must be there"):
        opened(tmp_path / "third", witness=tmp_path / "none" / "head")
    assert not (tmp_path / "third").exists()


def test_a_lost_ledger_is_not_made_anew_beside_its_witness(tmp_path):
    """With create=True, too: everybody would have a fresh budget, and the same keys would be answered again."""
    where, head, copy = tmp_path / "l", tmp_path / "head", tmp_path / "copy"
    with opened(where, witness=head) as book:
        ask(book, "a", {"ann": 5})
        backup(book, copy)
    where.unlink()
    for create in (True, False):
        with pytest.raises(LedgerError, match="the ledger got lost") as refused:
            opened(where, witness=head, create=create)
        assert refused.value.reason == "missing"
        assert not where.exists()
    restore(copy, where)
    with opened(where, witness=head) as book:
        assert book.spent("ann") == 5


def test_an_older_ledger_that_knows_no_witness_is_refused(tmp_path):
    """A backup from before the witness began is older than what the witness saw, though its record names none."""
    where, head, copy = tmp_path / "l", tmp_path / "head", tmp_path / "copy"
    with opened(where) as book:
        backup(book, copy)
    with opened(where, witness=head) as book:
        ask(book, "a", {"ann": 5})
    where.unlink()
    shutil.copy(copy, where)
    with pytest.raises(LedgerError, match="2 entries are missing"):
        opened(where, witness=head)
    shutil.copy(copy, where)
    with opened(tmp_path / "other") as book:
        ask(book, "b", {"ann": 5})
    with pytest.raises(LedgerError, match=r"older than its witness|another one"):
        opened(tmp_path / "other", witness=head)


def test_a_crash_while_the_witness_begins_is_made_good(tmp_path, monkeypatch):
    """The file of the witness was made and the record does not name it yet: the next opening goes on."""
    where, head = tmp_path / "l", tmp_path / "head"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "_record_witness", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(where, witness=head)
    assert head.exists()
    with opened(where, witness=head) as book:
        ask(book, "a", {"ann": 5})
        assert head.read_text(encoding="ascii").splitlines()[-1] == book.head


def test_a_full_disk_while_the_witness_begins_is_made_good(tmp_path, monkeypatch):
    """An empty file stood under its name, and the ledger was refused with it, and refused to begin it anew."""
    place, witness = tmp_path / "people.ledger", tmp_path / "head"
    monkeypatch.setattr("almoner.ledger._copy_guard.os.write", lambda *_: 0)
    with pytest.raises(LedgerError, match="cannot be written"):
        opened(place, witness=witness)
    monkeypatch.undo()
    with opened(place, witness=witness) as book:
        assert book.witness == str(witness)
        assert witness.read_text(encoding="ascii").splitlines()[-1] == book.head
        assert witness.stat().st_mode & 0o777 == 0o600

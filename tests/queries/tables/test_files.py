"""Files under an open session: questions are about the rows as they were when it was opened, or are refused."""

import os

import duckdb
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from almoner import queries
from almoner.errors import ArgumentError, DataError
from almoner.ledger import Ledger
from sessions import opened, without_noise

OLD = pa.table({"who": [f"p{place % 50}" for place in range(100)], "n": [1.0] * 100})
NEW = pa.table({"who": [f"p{place % 90}" for place in range(180)], "n": [1.0] * 180})
PEOPLE = queries.People(sigma=20.0)


def write(table, path):
    """The table as a new file, which then takes its place as a whole."""
    fresh = path.with_name("fresh")
    if path.suffix == ".csv":
        csv.write_csv(table, fresh)
    elif path.suffix == ".parquet":
        parquet.write_table(table, fresh)
    else:
        with duckdb.connect(str(fresh)) as connection:
            connection.register("rows", table)
            connection.execute("CREATE TABLE events AS SELECT * FROM rows")
    fresh.replace(path)


def refused(session, key):
    """Why a question is refused."""
    with pytest.raises(DataError) as error:
        session.analyst("ann").ask(PEOPLE, key=key)
    return error.value.reason


@pytest.mark.parametrize("ending", ["parquet", "duckdb"])
def test_a_file_that_is_read_each_time_must_be_the_same(tmp_path, ending):
    """Moved away it is waited for, moved back it is read again; another file in its place is refused, not read."""
    path, options = tmp_path / f"rows.{ending}", {"table": "events"} if ending == "duckdb" else {}
    write(OLD, path)
    with opened(tmp_path / "l", path, **options) as session:
        analyst = session.analyst("ann")
        first = analyst.ask(PEOPLE, key="a")
        path.rename(tmp_path / "away")
        assert refused(session, "b") == refused(session, "c") == "away"
        assert session.changed_files == session.refused_files == {"data": "away"}
        assert analyst.ask(PEOPLE, key="a") == first
        (tmp_path / "away").rename(path)
        assert session.changed_files == {}
        analyst.ask(PEOPLE, key="b")
        write(NEW, path)
        assert refused(session, "c") == "changed"
        assert session.changed_files == {"data": "changed"}
        with pytest.raises(DataError, match="open the session again"):
            session.verify(replay=True)
        assert [answer.key for answer in analyst.answers()] == ["a", "b"], "what is refused is not charged"
    with opened(tmp_path / "l", path, **options) as session:
        assert without_noise(session, PEOPLE)[0] == 90


def test_a_file_that_is_written_to_in_place_is_refused(tmp_path):
    """Its inode and its size may stay as they were."""
    path = tmp_path / "rows.parquet"
    write(OLD, path)
    with opened(tmp_path / "l", path) as session:
        data, status = path.read_bytes(), path.stat()
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        session.analyst("ann").ask(PEOPLE, key="a")
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
        assert refused(session, "b") == "changed"


def test_the_rows_of_a_csv_file_stay(tmp_path):
    """They are in memory: another file in the place of theirs is told to the holder, and not read."""
    path = tmp_path / "rows.csv"
    write(OLD, path)
    with opened(tmp_path / "l", path) as session:
        write(NEW, path)
        assert session.changed_files == {"data": "changed"}
        path.unlink()
        assert session.changed_files == {"data": "away"}
        assert session.refused_files == {}
        assert without_noise(session, PEOPLE)[0] == 50
        session.analyst("ann").ask(PEOPLE, key="a")


def test_files_that_come_into_a_folder_later_are_not_read(tmp_path):
    """Of a folder and of a pattern, the files are those that were there; a missing one of them is waited for."""
    folder = tmp_path / "rows"
    folder.mkdir()
    write(OLD, folder / "a.parquet")
    for place, data in enumerate((folder, str(folder / "*.parquet"))):
        with opened(tmp_path / f"l{place}", data) as session:
            write(NEW, folder / "b.parquet")
            assert without_noise(session, PEOPLE)[0] == 50
            (folder / "a.parquet").rename(tmp_path / "away")
            assert refused(session, "a") == "away"
            (tmp_path / "away").rename(folder / "a.parquet")
            session.analyst("ann").ask(PEOPLE, key="a")
        with opened(tmp_path / f"again{place}", data) as session:
            assert without_noise(session, PEOPLE)[0] == 90
        (folder / "b.parquet").unlink()


def test_a_file_that_is_replaced_while_it_is_read_answers_nothing(tmp_path, monkeypatch):
    """Between the look at the file and the end of the reading: nothing is charged, and the session goes on."""
    path = tmp_path / "rows.parquet"
    write(OLD, path)
    with opened(tmp_path / "l", path) as session:
        kept, answer = tmp_path / "kept", Ledger.answer

        def replaced(book, charges, work):
            path.rename(kept)
            write(NEW, path)
            return answer(book, charges, work)

        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "answer", replaced)
            assert refused(session, "a") == "changed"
        assert session.ledger.spent("p1") == 0
        kept.rename(path)
        session.analyst("ann").ask(PEOPLE, key="a")


def test_a_file_that_goes_away_while_it_is_read_is_no_fact_about_anybody(tmp_path, monkeypatch):
    """The reading fails: the reason is the file, and later questions are answered."""
    path = tmp_path / "rows.parquet"
    write(OLD, path)
    with opened(tmp_path / "l", path) as session:
        kept, answer = tmp_path / "kept", Ledger.answer

        def removed(book, charges, work):
            path.rename(kept)
            return answer(book, charges, work)

        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "answer", removed)
            assert refused(session, "a") == "away"
        kept.rename(path)
        session.analyst("ann").ask(PEOPLE, key="a")


def test_an_entry_that_a_view_cannot_read_is_told_once_still(tmp_path):
    """An error inside of the reading is a fact about somebody, and ends the session's questions: the control."""
    path = tmp_path / "rows.parquet"
    write(OLD, path)
    view = "SELECT who, CAST(CASE WHEN who = 'p7' THEN 'x' ELSE '1' END AS INTEGER) AS one FROM data"
    with opened(tmp_path / "l", path, view=view, check_view=False) as session:
        with pytest.raises(DataError) as error:
            session.analyst("ann").ask(queries.People(where="one = 1", sigma=20.0), key="a")
        assert error.value.reason == "unfit"
        assert refused(session, "b") == "unfit"
        assert session.changed_files == {}


def test_a_file_that_changes_while_a_session_is_opened_is_refused(tmp_path, monkeypatch):
    """What was checked of the rows would not be true of those that questions read."""
    path = tmp_path / "rows.parquet"
    write(OLD, path)
    given = Ledger.open

    def replaced(*arguments, **options):
        write(NEW, path)
        return given(*arguments, **options)

    monkeypatch.setattr(Ledger, "open", replaced)
    with pytest.raises(DataError) as error:
        opened(tmp_path / "l", path)
    assert error.value.reason == "changed"
    with pytest.raises((DataError, ArgumentError), match="is not there"):
        opened(tmp_path / "l", tmp_path / "none.parquet")

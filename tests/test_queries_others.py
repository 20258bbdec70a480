"""What one person's rows must not do: change how other people's rows are read, counted or named."""

import numpy as np
import pyarrow as pa
import pytest

from bursar import filters
from bursar.errors import ArgumentError, BursarError, DataError
from bursar.queries import Count, Histogram, People, Session, Sum

CHEAP = {"sigma": 1000.0}


def opened(folder, data, **options):
    return Session.open(
        data, **{"person": "who", "budget": filters.Zcdp(rho=1.0), "ledger": folder / "people.ledger", **options}
    )


def without_noise(session, asked):
    """Whole counts without noise; nothing is charged."""
    session._rows.offer(asked)
    session._rows.admit(asked, analyst="ann", purpose=None, reserved=None)
    return [value / asked.steps for value in session._rows.sums(asked)]


OTHERS = {
    "a day that only one order of day and month allows": (
        ["{},01/02/2011,x", "{},03/02/2011,x"],
        "0,02/13/2011,x",
        {"day": ["2011-02-01", "2011-01-02", "2011-02-03", "2011-03-02", "01/02/2011", "03/02/2011"]},
    ),
    "a quote inside of a quoted text": (
        ['{},2011-02-01,"north"', '{},2011-02-03,"south"'],
        '0,2011-02-01,"a"b"',
        {"place": ["north", "south", '"north"', '"south"']},
    ),
    "a line that looks like a remark": (
        ["{},2011-02-01,flat #5", "{},2011-02-03,flat #7"],
        "#0,2011-02-01,x",
        {"place": ["flat #5", "flat #7", "flat ", "flat"]},
    ),
    "a slash before a quote": (
        ['{},2011-02-01,"a""b"', '{},2011-02-01,"c"'],
        '0,2011-02-01,"a\\"b"',
        {"place": ['a"b', "c", '"a""b"', '"c"']},
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_one_line_of_a_csv_file_changes_how_no_other_is_read(tmp_path, case):
    """With one more person, every count of a CSV file moves by that person's rows alone, or the file is refused."""
    lines, one, by = OTHERS[case]
    rows = [lines[number % 2].format(number + 1) for number in range(60)]
    found = []
    for name, listed in (("with", [*rows, one]), ("without", rows)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.csv").write_text("\n".join(["who,day,place", *listed]) + "\n")
        try:
            view = "SELECT CAST(who AS VARCHAR) AS who, * EXCLUDE (who) FROM data"
            with opened(folder, folder / "a.csv", view=view) as session:
                column = next(iter(by))
                keys = [key for key in by[column] if column != "day" or fits(session, key)]
                counts = dict(zip(keys, without_noise(session, Count(by={column: keys}, **CHEAP)), strict=True))
        except BursarError:  # to the data holder, who opens it
            assert name == "with"
            continue
        found.append([counts.get(key, 0) for key in by[column]])
    assert sum(found[-1]) == 60
    assert len(found) == 1 or sum(abs(a - b) for a, b in zip(*found, strict=True)) <= 1


def test_times_of_a_csv_file_have_one_spelling(tmp_path):
    """Times are read as times in one spelling, which no other row changes; in others they are text."""
    spelled = ["{},01-02-03 10:00:00"] * 5
    cases = [(spelled, 0), ([*spelled, "{},01-02-32 10:00:00"], 0), ([*spelled, "{},32-02-03 10:00:00"], 0)]
    cases += [(["{},2003-02-01 10:00:00"] * 5, 5), (["{},2003-02-01T10:00:00", "{},01/02/2003 10:00:00 AM"], 0)]
    for number, (lines, wanted) in enumerate(cases):
        rows = [line.format(place) for place, line in enumerate(lines)]
        (tmp_path / "a.csv").write_text("\n".join(["who,at", *rows]) + "\n")
        with opened(tmp_path, tmp_path / "a.csv", ledger=tmp_path / str(number)) as session:
            for day in ("2001-02-03", "2003-02-01", "2003-01-02"):
                found = without_noise(session, Count(where=f"at = '{day} 10:00:00'", **CHEAP))
                assert found == [wanted if day == "2003-02-01" else 0]


def fits(session, day):
    try:
        session.analyst("ann").quote(Count(by={"day": [day]}, **CHEAP))
    except ArgumentError:
        return False
    return True


def test_columns_with_a_collation_take_nobody_for_somebody_else(tmp_path):
    """People, keys and filters are compared letter by letter, whatever collation a column of a DuckDB file has."""
    import duckdb

    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TABLE t(who VARCHAR COLLATE nocase, place VARCHAR COLLATE noaccent)")
        connection.execute("INSERT INTO t VALUES ('ann', 'é'), ('ANN', 'e'), ('Ann', 'e'), ('Ann', 'é')")
    for number, view in enumerate(
        [None, "SELECT who COLLATE nocase AS who, place COLLATE noaccent AS place FROM data"]
    ):
        (tmp_path / str(number)).mkdir()
        with opened(tmp_path / str(number), tmp_path / "a.duckdb", table="t", view=view) as session:
            assert without_noise(session, People(clip=9, **CHEAP)) == [3]
            assert without_noise(session, Count(clip=9, by={"place": ["e", "é"]}, **CHEAP)) == [2, 2]
            assert without_noise(session, Count(clip=9, where="who = 'ANN'", **CHEAP)) == [1]
            assert without_noise(session, Count(clip=9, where="place in ('e')", **CHEAP)) == [2]
            session.analyst("zoe").ask(Count(clip=9, sigma=20.0), key="all")
            session.analyst("zoe").ask(Count(clip=9, sigma=20.0, where="place = 'e'"), key="some")
            assert [session.ledger.spent(who) for who in ("ann", "ANN", "Ann")] == pytest.approx(
                [1.25e12, 2.5e12, 6.25e12], rel=1e-9
            )


def test_all_rows_of_a_folder_are_read_or_none(tmp_path, monkeypatch):
    """A file with an ending of another spelling is an error; paths mean the same after a change of folder."""
    from pyarrow import parquet

    (tmp_path / "rows").mkdir()
    parquet.write_table(pa.table({"who": ["ann", "bob"]}), tmp_path / "rows" / "a.parquet")
    monkeypatch.chdir(tmp_path)
    for number, data in enumerate(["rows", "rows/a.parquet"]):
        with opened(tmp_path, data, ledger=tmp_path / str(number)) as session:
            monkeypatch.chdir(tmp_path / "rows")
            assert without_noise(session, Count(**CHEAP)) == [2]
        monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"who": ["cy"]}), tmp_path / "rows" / "b.PARQUET")
    with pytest.raises(DataError, match="files of one kind"):
        opened(tmp_path, "rows")
    with opened(tmp_path, "rows/b.PARQUET") as session:
        assert without_noise(session, Count(**CHEAP)) == [1]


def test_hidden_files_and_names_above_the_data_are_no_rows(tmp_path):
    """Half-written files are refused; a folder's name is a column only below the folder that was given."""
    from pyarrow import parquet

    def written(place, table):
        place.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(table, place)
        return place

    table = pa.table({"who": ["ann", "bob"], "n": [1, 2]})
    for number, name in enumerate(["_temporary/0/b.parquet", ".b.parquet", "_delta_log/b.parquet"]):
        written(tmp_path / str(number) / "a.parquet", table)
        written(tmp_path / str(number) / name, table)
        with pytest.raises(DataError, match="hidden"):
            opened(tmp_path, tmp_path / str(number))
    above = written(tmp_path / "who=all" / "rows" / "a.parquet", table)
    for number, data in enumerate([above, above.parent]):
        with opened(tmp_path, data, ledger=tmp_path / f"l{number}") as session:
            assert without_noise(session, People(**CHEAP)) == [2]
    for day in ("2011-12-08", "2011-12-09"):
        written(tmp_path / "split" / f"day={day}" / "a.parquet", table)
        written(tmp_path / "who=all" / "split" / f"day={day}" / "a.parquet", table)
    with opened(tmp_path, tmp_path / "split") as session:
        assert without_noise(session, Count(clip=9, by={"day": ["2011-12-09"]}, **CHEAP)) == [2]
    with pytest.raises(DataError, match="part of a folder"):
        opened(tmp_path, tmp_path / "who=all" / "split")


def test_a_stream_of_rows_is_read_whole(tmp_path):
    """Arrow's readers give their rows once: all of them are in every answer."""
    table = pa.table({"who": ["ann", "bob"]})
    with opened(tmp_path, pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches()))) as session:
        assert [without_noise(session, Count(**CHEAP)) for _ in range(2)] == [[2], [2]]


def test_lists_are_no_texts(tmp_path):
    """Columns of lists, of any length, name nobody and group nothing."""
    import duckdb

    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('x', 'y')")
        connection.execute("CREATE TABLE t AS SELECT 'ann' AS who, ['x', 'y']::mood[2] AS two, ['x']::mood[] AS some")
    for column in ("two", "some"):
        with pytest.raises(ArgumentError, match="must hold whole numbers or text"):
            opened(tmp_path, tmp_path / "a.duckdb", table="t", person=column)


def test_a_name_that_is_no_text_is_found_at_opening(tmp_path):
    """A table in memory with broken bytes is refused to the data holder: no question finds out whose row has them."""
    places = np.array([0, 3, 5, 8], np.int32).tobytes()
    broken = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(places), pa.py_buffer(b"annb\xffcat")])
    for column in ("who", "place"):
        table = pa.table({"who": ["x", "y", "z"], "n": [1, 2, 3]} | {column: broken})
        with pytest.raises(DataError) as told:
            opened(tmp_path, table)
        assert "ann" not in str(told.value)
    assert not (tmp_path / "people.ledger").exists()


def test_numbers_of_numpy_are_numbers(tmp_path):
    """Bounds, clips, noise and keys from NumPy ask the same question as plain ones, and find its answer again."""
    table = pa.table({"who": ["ann", "bob"], "n": [1.0, 2.0], "k": [0, 1]})
    pairs = [
        (
            Sum("n", np.int64(0), np.float32(2), clip=np.float32(2), sigma=np.float64(50), by={"k": np.array([0, 1])}),
            Sum("n", 0, 2, clip=2, sigma=50, by={"k": [0, 1]}),
        ),
        (Count(rho=np.float64(0.01), per_group=np.int32(1)), Count(rho=0.01, per_group=1)),
        (People(sigma=np.int64(50), spare=np.float64(0.01)), People(sigma=50, spare=0.01)),
        (Histogram(np.str_("n"), np.array([0, 1, 2]), sigma=50.0), Histogram("n", (0, 1, 2), sigma=50.0)),
    ]
    with opened(tmp_path, table) as session:
        for number, (odd, plain) in enumerate(pairs):
            first = session.analyst("zoe").ask(odd, key=str(number))
            assert session.analyst("zoe").ask(plain, key=str(number)) == first

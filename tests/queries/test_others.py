"""What one person's rows must not do: change how other people's rows are read, counted or named."""

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner.errors import AlmonerError, ArgumentError, DataError
from almoner.queries import Count, Histogram, People, Session, Sum
from ledgers import exact
from terms import grouped

CHEAP = {"sigma": 1000.0}


def opened(folder, data, **options):
    given = {"data": data, "person": "who", "budget": filters.Zcdp(rho=1.0), "ledger": folder / "people.ledger"}
    return Session.open(**grouped(given | options), create=True)


def without_noise(session, asked):
    """Whole counts without noise; nothing is charged."""
    return [value / asked.steps for value in exact(session, asked)[0]]


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


@pytest.mark.slow
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
                counts = dict(zip(keys, without_noise(session, Count(clip=1, by={column: keys}, **CHEAP)), strict=True))
        except AlmonerError:  # to the data holder, who opens it
            assert name == "with"
            continue
        found.append([counts.get(key, 0) for key in by[column]])
    assert sum(found[-1]) == 60
    assert len(found) == 1 or sum(abs(a - b) for a, b in zip(*found, strict=True)) <= 1


@pytest.mark.parametrize("line", ["5", "5,x", "5,x,y,z", "5;x;y", '5,"x"y,z', " "])
@pytest.mark.parametrize("types", [None, {"who": "whole"}])
def test_a_line_with_other_fields_takes_nobody_out_of_a_folder(tmp_path, line, types):
    """A file in a folder whose lines do not all fit its line of names is refused; nobody is missing silently."""
    (tmp_path / "rows").mkdir()
    for name, last in (("a", ()), ("b", ("3,y,s", line))):
        (tmp_path / "rows" / f"{name}.csv").write_text("\n".join(["who,day,place", "1,x,p", "2,y,q", *last]) + "\n")
    with pytest.raises(DataError, match="cannot be read as a table"):
        opened(tmp_path, tmp_path / "rows", types=types)


@pytest.mark.parametrize(
    "lines", [('5,"a,p', '5,b",q'), ('"5,a,p', '5",b,q'), ('5,a,"p', '5,b,q"'), ('5,"a\nb",p', "5,b,q")]
)
@pytest.mark.parametrize("types", [None, {}, {"who": "whole", "day": "date"}])
def test_quotes_that_are_left_open_take_in_nobodys_lines(tmp_path, lines, types):
    """Two lines of one person, with a quote in each, and others' in between; so entries have no line breaks."""
    text = ["who,day,place", "1,x,p", lines[0], "2,y,q", "3,y,s", lines[1], "4,x,p"]
    (tmp_path / "a.csv").write_text("\n".join(text) + "\n")
    with pytest.raises(DataError, match="each line must be a row"):
        opened(tmp_path, tmp_path / "a.csv", types=types)


def test_the_line_of_names_says_what_separates_fields(tmp_path):
    """No other line does, in no file of a folder; names in quotes may hold anything."""
    lines = {
        "who;day;the place": "1;2,5;x",
        '"who"|"day;hour"|"a,""b"",c,d"': "1|2;5|x,y;z",
        "who\tday\tplace": "1\t2,5;3\tx",
        "who": "1",
    }
    for number, (names, line) in enumerate(lines.items()):
        (tmp_path / f"{number}.csv").write_bytes(f"\ufeff{names}\r\n{line}\r\n".encode())
        with opened(tmp_path, tmp_path / f"{number}.csv", ledger=tmp_path / str(number)) as session:
            assert without_noise(session, Count(clip=1, where="who = 1", **CHEAP)) == [1]
    (tmp_path / "either.csv").write_text("who;day,place\n1;2\n")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.csv").write_text("who,day\n1,2\n")
    (tmp_path / "rows" / "b.csv").write_text("who;day\n1;2\n")
    for data, said in (("either.csv", "',' or ';' between"), ("rows", "the same in all files")):
        with pytest.raises(DataError, match=said):
            opened(tmp_path, tmp_path / data, ledger=tmp_path / "none")


@pytest.mark.slow
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
                found = without_noise(session, Count(clip=1, where=f"at = '{day} 10:00:00'", **CHEAP))
                assert found == [wanted if day == "2003-02-01" else 0]


def test_with_types_no_entry_changes_the_type_of_a_column(tmp_path):
    """One line with entries of other types is missing in these columns; everybody else's are read as before."""
    rows = [f"{number},{number / 2},2011-02-0{number % 3 + 1},true" for number in range(1, 61)]
    types = {"who": "whole", "hours": "number", "day": "date", "well": "bool"}
    found = []
    for name, listed in (("without", rows), ("with", [*rows, "61,n/a,1/2/11,perhaps"]), ("nobody", [*rows, "x,1,,"])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "a.csv").write_text("\n".join(["who,hours,day,well", *listed]) + "\n")
        with opened(folder, folder / "a.csv", types=types) as session:
            asked = Sum("hours", clip=1, low=0, high=30, where="day >= '2011-02-01' AND well", **CHEAP)
            found.append(without_noise(session, asked))
            assert without_noise(session, People(**CHEAP)) == [60 + (name == "with")]
    assert found[0] == found[1] == found[2]
    assert found[0][0] == pytest.approx(sum(range(1, 61)) / 2 / 30, rel=1e-6)  # in units of the largest


@pytest.mark.slow
def test_entries_of_typed_columns_have_one_spelling(tmp_path):
    """What fits a type is read, with spaces around it; everything else is missing. Columns without a type are text."""
    spelled = {
        "whole": (["12", " +12 ", "12.0", "1e1", "9223372036854775808", "x"], "at = 12", 2),
        "number": (["1.5", " 15e-1", "1,5", "nan", "x"], "at = 1.5", 2),
        "bool": (["true", " TRUE", "perhaps"], "at", 2),
        "date": (["2011-02-03", " 2011-02-03 ", "03/02/2011", "2011-02-30"], "at = '2011-02-03'", 2),
        "time": (["2011-02-03 10:00:00", "2011-02-03T10:00:00", "10:00"], "at = '2011-02-03 10:00:00'", 1),
        "text": (["12", " 12", "12.0"], "at = '12'", 1),
        None: (["12", " 12", "12.0"], "at = '12'", 1),
    }
    for number, (kind, (entries, where, wanted)) in enumerate(spelled.items()):
        rows = [f'{place},"{entry}"' for place, entry in enumerate(entries)]
        (tmp_path / f"{number}.csv").write_text("\n".join(["who,at", *rows]) + "\n")
        types = {"who": "whole"} if kind is None else {"who": "whole", "at": kind}
        with opened(tmp_path, tmp_path / f"{number}.csv", types=types, ledger=tmp_path / str(number)) as session:
            assert without_noise(session, Count(clip=1, where=where, **CHEAP)) == [wanted], kind
            missing = without_noise(session, Count(clip=1, where="at IS NULL", **CHEAP))
            assert missing == [0 if kind in ("text", None) else len(entries) - wanted], kind


def test_types_are_for_the_columns_of_csv_files(tmp_path):
    """Also of folders, whose names give columns, too; whatever cannot be is refused before there is a ledger."""
    for day in ("2011-02-03", "2011-02-04"):
        (tmp_path / "rows" / f"day={day}").mkdir(parents=True)
        (tmp_path / "rows" / f"day={day}" / "a.csv").write_text("who,hours\n1,2\n2,3\n")
    with opened(tmp_path, tmp_path / "rows", types={"who": "whole", "day": "date"}) as session:
        asked = Count(by={"day": ["2011-02-03", "2011-02-04", "2011-02-05"]}, clip=2, **CHEAP)
        assert without_noise(session, asked) == [2, 2, 0]
    with opened(tmp_path, tmp_path / "rows", types={"day": "date"}, ledger=tmp_path / "other") as session:
        assert without_noise(session, Count(where="who = '1'", clip=2, **CHEAP)) == [2]
    view = {"types": {"hours": "number"}, "view": "SELECT who, hours > 2 AS long FROM data"}
    with opened(tmp_path, tmp_path / "rows", ledger=tmp_path / "third", **view) as session:
        assert without_noise(session, Count(where="long", clip=2, **CHEAP)) == [2]
    for data, types, said in (
        (tmp_path / "rows", {"hour": "number"}, "'hour': no such column"),
        (tmp_path / "rows", {"hours": "float"}, "must be one of text, whole"),
        (tmp_path / "rows", {"hours": ["number"]}, "must be one of text, whole"),
        (tmp_path / "rows", "number", "must name columns"),
        (pa.table({"who": [1]}), {"who": "date"}, "of kind whole already"),
        (pa.table({"who": [1]}), {"day": "date"}, "'day': no such column"),
    ):
        with pytest.raises(ArgumentError, match=said):
            opened(tmp_path, data, types=types, ledger=tmp_path / "none")
    assert not (tmp_path / "none").exists()


def fits(session, day):
    try:
        session.analyst("ann").quote(Count(clip=1, by={"day": [day]}, **CHEAP))
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
            assert without_noise(session, Count(clip=1, **CHEAP)) == [2]
        monkeypatch.chdir(tmp_path)
    parquet.write_table(pa.table({"who": ["cy"]}), tmp_path / "rows" / "b.PARQUET")
    with pytest.raises(DataError, match="files of one kind"):
        opened(tmp_path, "rows")
    with opened(tmp_path, "rows/b.PARQUET") as session:
        assert without_noise(session, Count(clip=1, **CHEAP)) == [1]


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
        assert [without_noise(session, Count(clip=1, **CHEAP)) for _ in range(2)] == [[2], [2]]


def test_lists_are_no_texts(tmp_path):
    """Columns of lists, of any length, name nobody and group nothing."""
    import duckdb

    with duckdb.connect(str(tmp_path / "a.duckdb")) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('x', 'y')")
        connection.execute("CREATE TABLE t AS SELECT 'ann' AS who, ['x', 'y']::mood[2] AS two, ['x']::mood[] AS some")
    for column in ("two", "some"):
        with pytest.raises(ArgumentError, match=r"is of type (LIST|ARRAY) and must hold whole numbers, text or dates"):
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
        (Count(clip=1, rho=np.float64(0.01), per_group=np.int32(1)), Count(clip=1, rho=0.01, per_group=1)),
        (People(sigma=np.int64(50), spare=np.float64(0.01)), People(sigma=50, spare=0.01)),
        (
            Histogram(np.str_("n"), np.array([0, 1, 2], np.float32), clip=1, sigma=50.0),
            Histogram("n", (0, 1, 2), clip=1, sigma=50.0),
        ),
    ]
    with opened(tmp_path, table) as session:
        for number, (odd, plain) in enumerate(pairs):
            first = session.analyst("zoe").ask(odd, key=str(number))
            assert session.analyst("zoe").ask(plain, key=str(number)) == first

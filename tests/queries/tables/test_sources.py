"""Files as tables: which types are guessed, what folders give, and what is refused."""

import gzip

import duckdb
import pytest

from almoner.errors import ArgumentError, DataError
from almoner.queries import Sum
from almoner.queries._tables.sources import ReadOptions, attach
from ledgers import exact
from sessions import opened


def read(path, types=None, **options):
    """(the kinds of the columns, the rows)."""
    with duckdb.connect() as connection:
        kinds = attach(connection, path, ReadOptions(types=types), load=True, **options)
        told = attach(connection, path, ReadOptions(types=types), **options)
        assert told == kinds
        attach(connection, path, ReadOptions(types=types), load=True, **options)
        return kinds, connection.execute("SELECT * FROM data").fetchall()


def kind(tmp_path, entries):
    """The kind of a column with these entries."""
    (tmp_path / "a.csv").write_text("who,v\n" + "".join(f'1,"{entry}"\n' for entry in entries))
    return read(tmp_path / "a.csv")[0]["v"]


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("wanted", "entries"),
    [
        ("whole", ["0", "1", " 5", "5 ", "-5", "9223372036854775807", ""]),
        ("number", ["1.0", "1e3", ".5", "5.", " 1.5", "-inf", "nan", "9223372036854775808", "12345678901234567890"]),
        ("bool", ["true", "TRUE", "t", "yes", "F"]),
        ("date", ["2011-02-03", "2011-2-3", " 2011-02-03 "]),
        ("time", ["2011-02-03 10:00:00", " 2011-02-03 10:00:00"]),
        ("TIME", ["10:00", "10:00:00", "1:00", "10:00:00.5"]),
        ("text", ["007", "+5", "1_000", "1.5 ", "-", "y", "on", "NULL", "NA", "1d", "$5", "2011-02-30", "x", " true"]),
    ],
)
def test_each_type_has_one_spelling(tmp_path, wanted, entries):
    """Alone, and beside numbers in the same column; an empty entry is of every type."""
    for entry in entries:
        assert kind(tmp_path, [entry, ""]) == (wanted if entry else "text"), entry
    assert kind(tmp_path, entries) == wanted
    assert kind(tmp_path, ["", ""]) == "text"


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("first", "last", "wanted"),
    [
        ("5", "5.5", "number"),
        ("5", "x", "text"),
        ("5", "true", "text"),
        ("2011-02-03", "5", "text"),
        ("", "5", "whole"),
    ],
)
def test_types_fit_all_entries_also_the_last(tmp_path, first, last, wanted):
    """The guess from the first rows is checked against all others; numbers may turn out to be broken ones."""
    assert kind(tmp_path, [first] * 5000 + [last]) == wanted


def test_folders_give_columns_and_files_may_lack_some(tmp_path):
    """Names of folders are decoded and are columns; a column that a file lacks is missing there."""
    for day, text in (("2011-02-03", "who,n\n1,2\n"), ("2011-02-04", "Who,at\n2,a\n")):
        (tmp_path / f"day={day}" / "place=a%20b").mkdir(parents=True)
        (tmp_path / f"day={day}" / "place=a%20b" / "x.csv").write_text(text)
    (tmp_path / "day=2011-02-04" / "place=a%20b" / "empty.csv").touch()
    kinds, rows = read(tmp_path, person="who")
    assert kinds == {"who": "whole", "n": "whole", "day": "date", "place": "text", "at": "text"}
    assert [tuple(map(str, row)) for row in rows] == [
        ("1", "2", "2011-02-03", "a b", "None"),
        ("2", "None", "2011-02-04", "a b", "a"),
    ]
    (tmp_path / "x.csv").write_text("who,n\n3,4\n")
    with pytest.raises(DataError, match="split by the same names"):
        read(tmp_path)


def test_columns_that_differ_in_case_alone_are_refused(tmp_path):
    """To SQL they are one column; so are a column and the name of a folder."""
    (tmp_path / "a.csv").write_text("who,Who\n1,2\n")
    with pytest.raises(DataError, match="two columns of the same name"):
        read(tmp_path / "a.csv")
    (tmp_path / "rows" / "who=3").mkdir(parents=True)
    (tmp_path / "rows" / "who=3" / "a.csv").write_text("who\n1\n")
    with pytest.raises(DataError, match="two columns of the same name"):
        read(tmp_path / "rows")


@pytest.mark.slow
def test_a_broken_line_far_down_is_named_by_its_rule(tmp_path):
    """Whatever the types are; the error has no context that could quote it."""
    (tmp_path / "a.csv").write_text("who,v\n" + "1,2\n" * 300_000 + "secret\n")
    for types in (None, {"who": "whole"}):
        with pytest.raises(DataError, match="each line must be a row") as refused:
            read(tmp_path / "a.csv", types)
        assert refused.value.__context__ is None
        assert "secret" not in str(refused.value)


def test_a_late_entry_decides_the_type_of_the_person_before_rows_are_loaded(tmp_path):
    """The first rows look like whole numbers: the person's column is read to its end at once, others when they load."""
    rows = "".join(f"{number},{number}\n" for number in range(5000))
    (tmp_path / "a.csv").write_text(f"who,v\n{rows}p1,w1\n")
    with duckdb.connect() as connection:
        options = ReadOptions()
        assert attach(connection, tmp_path / "a.csv", options, person="who")["who"] == "text"
        assert attach(connection, tmp_path / "a.csv", options, load=True) == {"who": "text", "v": "text"}
    (tmp_path / "a.csv").write_text(f"who,v\n{rows}1,w1\n")
    with duckdb.connect() as connection:
        assert attach(connection, tmp_path / "a.csv", options, person="who")["who"] == "whole"
        assert attach(connection, tmp_path / "a.csv", options, load=True) == {"who": "whole", "v": "text"}


ROWS = "who,n\n1,2\n1,3\n2,4\n"


def test_lists_and_patterns_of_files_are_one_table(tmp_path):
    """Of CSV files, compressed ones too, and of Parquet files; what is not there, or of several kinds, is refused."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(ROWS.encode()))
        duckdb.sql(f"COPY (SELECT 1 AS who, '{name}' AS t) TO '{tmp_path}/{name}.parquet'")
    both = [tmp_path / "a.csv.gz", str(tmp_path / "b.csv.gz")]
    wanted = ({"who": "whole", "n": "whole"}, [(1, 2), (1, 3), (2, 4)] * 2)
    assert read(both) == read(str(tmp_path / "*.csv.gz")) == wanted
    kinds, rows = read([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert (kinds, sorted(rows)) == ({"who": "whole", "t": "text"}, [(1, "a"), (1, "b")])
    for data, message in [
        (tmp_path / "x*.csv", "is not there"),
        ([tmp_path / "a.csv.gz", tmp_path / "none.csv"], "none.csv is not there"),
        ([tmp_path / "a.csv.gz", tmp_path / "a.parquet"], "of one kind"),
        ([both[0], both[0]], "each given once"),
        ("s3://bucket/x.parquet", "no file here"),
    ]:
        with pytest.raises(DataError, match=message):
            read(data)
    (tmp_path / "rows.jsonl").write_text('{"who": 1}\n')
    with pytest.raises(DataError, match="write it as Parquet first"):
        read(tmp_path / "rows.jsonl")


def test_tables_of_other_libraries_open(tmp_path):
    """pandas with people as doubles, some of them missing, a lazy frame of Polars, a connection, a list of files."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    (tmp_path / "a.csv").write_text(ROWS + ",5\n")
    frame = pandas.read_csv(tmp_path / "a.csv")
    assert frame["who"].dtype == "float64"
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE visits AS SELECT * FROM '{tmp_path}/a.csv'")
    sums = []
    for place, (data, options) in enumerate(
        [
            (frame, {}),
            (polars.scan_csv(tmp_path / "a.csv"), {}),
            (connection, {"table": "visits"}),
            ([str(tmp_path / "a.csv")], {}),
            (tmp_path / "a.csv", {"types": {"who": "whole", "n": "whole"}}),
        ]
    ):
        with opened(tmp_path / f"l{place}", data, **options) as session:
            sums.append(exact(session, Sum("n", 0, 10, clip=5, sigma=100.0)))
    assert set(sums[0][1]) == {1, 2}
    assert all(each == sums[0] for each in sums)
    frame["who"] += 0.5
    for data, message in ((frame, "is of type DOUBLE.*CAST"), (connection, "table= is missing")):
        with pytest.raises(ArgumentError, match=message):
            opened(tmp_path / "l", data)
    with pytest.raises(DataError, match="cannot be read from the connection"):
        opened(tmp_path / "l", connection, table="secret")

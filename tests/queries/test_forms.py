"""The same table in every form: the same sums, the same charges, the same refusals."""

import gzip

import duckdb
import pyarrow as pa
import pytest
from pyarrow import dataset
from pyarrow import parquet as pq

import forms
from almoner import filters
from almoner._workspace import text
from almoner.errors import AlmonerError, DataError, MissingExtra
from almoner.queries import Count, Mean, Session, Sum
from ledgers import exact
from sessions import opened
from terms import grouped


def found(session, asked):
    """What each question comes to before noise, and everybody's units; or why it is refused."""
    listed = []
    for each in asked:
        try:
            listed.append(exact(session, each))
        except AlmonerError as error:
            listed.append((type(error), str(error)))
    return listed


def compare(folder, given, asked, **options):
    """Refuse a form that gives anything else than the first one; returns what each question came to."""
    wanted = {}
    for form, how in given.items():
        questions = asked(form) if callable(asked) else asked
        terms = {"person": "who", "budget": filters.Zcdp(rho=1e3), "ledger": folder / f"{form}.ledger", "create": True}
        terms["threads"] = 1
        with Session.open(**grouped({**how, **options, **terms})) as session:
            came = dict(zip(questions, found(session, questions), strict=True))
        wanted = wanted or came
        for each, one in came.items():
            assert wanted[each] == one, (form, each)
    return wanted


def people(wanted, question):
    """Who pays for a question."""
    return set(wanted[question][1])


@pytest.mark.slow
def test_every_form_of_a_table_gives_the_same(tmp_path):
    """NaN that a file's statistics hide, infinities, -0.0, denormals, columns of NaN alone: missing, or as they are."""
    given = {form: {"data": data, **how} for form, (data, how) in forms.forms(tmp_path).items()}
    every = [*forms.asked("w"), *forms.asked("f", "i", "z")[::3], *forms.filters("f"), Mean("z", 0, 1, sigma=1000.0)]
    few = [*forms.filters("w", "f"), *forms.asked("w")[::5], *forms.asked("i", "z")[::9]]
    wanted = compare(tmp_path, given, lambda form: {"arrow": [*every, *few], "pyarrow": every}.get(form, few))
    assert people(wanted, Count(where="w is null", clip=2, sigma=1000.0)) == {"a", "e", "f"}
    assert people(wanted, Count(where="not (w <= 0.5)", clip=2, sigma=1000.0)) == {"c", "g", "a"}
    assert people(wanted, Mean("z", 0, 1, sigma=1000.0)) == set()


@pytest.mark.slow
def test_every_form_of_a_joined_table_gives_the_same(tmp_path):
    """Columns of another table of people, and of a public one, where those are files too."""
    asked = [*forms.filters("customers.w", "places.w"), Mean("places.w", 0, 1, sigma=1000.0)]
    listed = {"arrow", "polars", "duckdb", "over_file", "csv"}
    given = {form: how for form, how in forms.joined(tmp_path).items() if form in listed}
    wanted = compare(tmp_path, given, asked)
    assert people(wanted, Count(where="customers.w > 0.5", clip=2, sigma=1000.0)) == {"c", "d"}


VIEWS = [
    "SELECT * FROM data WHERE NOT isnan(w)",
    "SELECT * REPLACE (CASE WHEN isnan(w) THEN 7 ELSE w END AS w) FROM data",
    "SELECT * FROM data WHERE w > 0.5",
    "SELECT who, coalesce(max(w), -1) AS w FROM data GROUP BY who",
    "SELECT who, s.w AS w FROM (SELECT who, {'w': w} AS s FROM data)",
]


@pytest.mark.quick(1)
@pytest.mark.parametrize("view", VIEWS)
def test_views_over_every_form_give_the_same(tmp_path, view):
    """SQL of the data holder sees each NaN too, in the rows that it keeps and in what it computes."""
    read = forms.forms(tmp_path)
    given = {form: {"data": read[form][0], **read[form][1]} for form in ("arrow", "pyarrow", "duckdb", "over_file")}
    asked = [
        Count(clip=9, sigma=1000.0),
        Sum("w", -9, 9, clip=9, sigma=1000.0),
        Count(where="w is null", clip=9, sigma=1000.0),
    ]
    compare(tmp_path, given, asked, view=view, check_view=False)


@pytest.mark.slow
def test_a_view_of_a_file_or_connection_that_computes_gives_the_same(tmp_path):
    """A DuckDB file's own view over a Parquet file sees each NaN; the settings of a connection stay as they were."""
    path, file = tmp_path / "rows.parquet", tmp_path / "rows.duckdb"
    pq.write_table(forms.ROWS, path)
    body = "SELECT * REPLACE (nullif(w, 'nan'::DOUBLE) AS w) FROM {} WHERE f IS NULL OR NOT isnan(f)"
    with duckdb.connect(file) as connection:
        connection.register("given", forms.ROWS)
        rows = connection.sql(body.format("given")).to_arrow_table()
        connection.execute(f"CREATE VIEW computed AS {body.format(text(str(path)))}")
    asked = [*forms.asked("w")[::4], *forms.filters("f")]
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH {text(str(file))} AS file (READ_ONLY)")
        kept = {"data": connection, "table": "file.main.computed"}
        compare(tmp_path, {"arrow": {"data": rows}, "connection": kept}, asked)
        assert connection.sql("SELECT current_setting('parquet_can_have_nan')").fetchall() == [(False,)]
    compare(tmp_path, {"arrow": {"data": rows}, "file": {"data": file, "table": "computed"}}, asked)


@pytest.mark.slow
def test_a_folder_split_by_names_gives_the_same(tmp_path):
    """Hive folders, whose names are a column."""
    pq.write_to_dataset(forms.ROWS, tmp_path / "rows", partition_cols=["day"])
    given = {"arrow": {"data": forms.ROWS}, "split": {"data": tmp_path / "rows"}}
    by = [Mean("w", 0, 1, by={"day": ["d0", "d1", "d2"]}, sigma=1000.0)]
    compare(tmp_path, given, [*by, *forms.asked("w")[::4], *forms.filters("f", "i", "z")])


def test_an_engine_that_overlooks_nan_is_refused(tmp_path, monkeypatch):
    """A file whose statistics hide NaN is read once in a process: an engine that gives a number says which is right."""
    from almoner.queries._tables import sources as parquet_nan

    read = pq.read_table(pa.BufferReader(parquet_nan._FILE))
    statistics = pq.read_metadata(pa.BufferReader(parquet_nan._FILE)).row_group(0).column(0).statistics
    assert [str(each) for each in read["w"].to_pylist()] == ["nan", "0.0", "1.0"]
    assert (statistics.min, statistics.max) == (0.0, 1.0)
    parquet_nan.check_engine.cache_clear()
    monkeypatch.setattr(parquet_nan, "EXPECT_NAN", "SET parquet_can_have_nan = false")
    with pytest.raises(MissingExtra, match=r"counts NaN in Parquet files as a number: pip install 'duckdb>=2.0.1'"):
        opened(tmp_path / "a.ledger", data=forms.ROWS)
    monkeypatch.setattr(parquet_nan, "EXPECT_NAN", "SET no_such_setting = true")
    with pytest.raises(MissingExtra, match="NaN"):
        opened(tmp_path / "a.ledger", data=forms.ROWS)
    monkeypatch.setattr(parquet_nan.tempfile, "TemporaryDirectory", _full)
    with pytest.raises(DataError, match="set TMPDIR"):
        opened(tmp_path / "a.ledger", data=forms.ROWS)
    assert not (tmp_path / "a.ledger").exists()


def _full(**_):
    raise OSError(28, "No space left on device")


def test_plain_python_datasets_and_folders_of_packed_csv_give_the_same(tmp_path):
    """Rows of Python, where an entry that one lacks is missing, columns; datasets of Arrow; *.csv.gz in a folder."""
    rows = [{"who": 1}, {"who": 1, "v": 2.5}, {"who": 2, "v": 0.5}, {"who": 3, "v": 9.0}]
    table = pa.table({"who": [1, 1, 2, 3], "v": [None, 2.5, 0.5, 9.0]})
    (tmp_path / "rows").mkdir()
    for place, lines in enumerate(("1,\n1,2.5\n", "2,0.5\n3,9\n")):
        (tmp_path / "rows" / f"2011.{place}.csv.gz").write_bytes(gzip.compress(f"who,v\n{lines}".encode()))
    given = {"arrow": table, "rows": rows, "columns": table.to_pydict(), "set": dataset.dataset(table)}
    forms_given = {name: {"data": data} for name, data in {**given, "folder": tmp_path / "rows"}.items()}
    asked = [Count(clip=2, sigma=1000.0), Mean("v", 0, 10, sigma=1000.0)]
    wanted = compare(tmp_path, forms_given, asked)
    assert people(wanted, asked[1]) == {1, 2, 3}
    for bad in ([[1, 2.5]], [], {"who": [1], "v": [1, 2]}):
        with pytest.raises(AlmonerError, match="data"):
            opened(tmp_path / "l", bad)
    (tmp_path / "rows" / "more.csv").write_text("who,v\n4,1\n")
    with pytest.raises(DataError, match="files of one kind"):
        opened(tmp_path / "l", tmp_path / "rows")

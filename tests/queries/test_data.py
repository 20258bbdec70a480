"""Data of all kinds: read alike, or refused without quoting an entry."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from almoner.errors import ArgumentError, DataError, UnknownPerson
from almoner.queries import Count, People, Sum
from ledgers import exact
from sessions import CHEAP, ROWS, opened, without_noise


@pytest.mark.slow
def test_engines_of_tables_agree(tmp_path):
    """pandas, Polars, Arrow, Parquet, CSV, folders, DuckDB tables and views give the same sums and charges."""
    import duckdb

    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    from pyarrow import csv, parquet

    table = pa.table({name: column for name, column in ROWS.items() if name != "amount"})
    (tmp_path / "parts").mkdir()
    parquet.write_table(table, tmp_path / "all.parquet")
    parquet.write_table(table.slice(0, 3), tmp_path / "parts" / "a.parquet")
    parquet.write_table(table.slice(3), tmp_path / "parts" / "b.parquet")
    csv.write_csv(table, tmp_path / "all[1].csv")
    with duckdb.connect(str(tmp_path / "all.duckdb")) as connection:
        connection.execute(f'CREATE TABLE "odd ""table" AS SELECT * FROM \'{tmp_path}/all.parquet\'')
    sources = [
        (table, {}),
        (table.to_pandas(), {}),
        (polars.from_arrow(table), {}),
        (tmp_path / "all.parquet", {}),
        (tmp_path / "parts", {}),
        (str(tmp_path / "all[1].csv"), {}),
        (tmp_path / "all.duckdb", {"table": 'odd "table'}),
        (table, {"view": "SELECT * FROM data WHERE TRUE;"}),
    ]
    assert isinstance(sources[1][0], pandas.DataFrame)
    asked = Sum("n", 0, 8, where="paid and day <= '2011-12-02'", by={"place": ["x", "y"]}, clip=1.5, **CHEAP)
    found = []
    for number, (data, options) in enumerate(sources):
        with opened(tmp_path / f"l{number}", data, **options) as session:
            found.append(exact(session, asked))
    assert all(each == found[0] for each in found)
    assert any(found[0][0])


def test_data_that_cannot_be_read(tmp_path):
    """Missing files, wrong endings, mixed folders, broken files and views are errors that quote nothing from them."""
    broken = tmp_path / "broken.parquet"
    broken.write_text("secret " * 100)
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "a.csv").write_text("who\n1\n")
    (mixed / "b.parquet").write_text("secret")
    other = tmp_path / "other.txt"
    other.write_text("secret")
    for data, options, error in [
        (tmp_path / "none.csv", {}, DataError),
        (other, {}, DataError),
        (broken, {}, DataError),
        (mixed, {}, DataError),
        (tmp_path / "mixed" / "a.csv", {"table": "t"}, ArgumentError),
        (pa.table(ROWS), {"view": "SELECT secret FROM data"}, DataError),
        (pa.table(ROWS), {"person": "amount"}, ArgumentError),
        (pa.table(ROWS), {"person": "nobody"}, ArgumentError),
        (17, {}, ArgumentError),
    ]:
        with pytest.raises(error) as refused:
            opened(tmp_path / "l", data, **options)
        assert "secret" not in str(refused.value)
        assert not (tmp_path / "l").exists()


def test_entries_that_break_a_view_quote_nothing(path):
    """A view that fails on an entry fails without the entry and charges nobody; whose it is cannot be probed for."""
    with opened(path, view="SELECT who, CAST(place AS INTEGER) AS secret FROM data") as session:
        with pytest.raises(DataError, match="nothing was charged") as refused:
            session.analyst("x").ask(Count(clip=1, where="secret = 1", sigma=9.0), key="a")
        error = refused.value
        while error is not None:
            assert "'x'" not in str(error)
            error = error.__cause__ or error.__context__
        assert session.analyst("x").answers() == []
        with pytest.raises(DataError, match="open the session again"):  # also a question that touches no such entry
            session.analyst("y").ask(Count(clip=1, sigma=9.0), key="b")
    with opened(path) as session:
        told = session.analyst("y").ask(Count(clip=1, sigma=9.0), key="b")
    with opened(path, view="SELECT who, CAST(place AS INTEGER) AS secret FROM data") as session:
        with pytest.raises(DataError):
            session.analyst("x").ask(Count(clip=1, where="secret = 1", sigma=9.0), key="a")
        assert session.analyst("y").ask(Count(clip=1, sigma=9.0), key="b") == told


@pytest.mark.parametrize(
    ("view", "words"),
    [
        ("SELEC who FROM data", "view: .*syntax error"),
        ("SELECT whom FROM data", "view: .*columns there that it names"),
        ("SELECT * FROM rows", "view: .*is called data"),
        ("SELECT amount FROM data", "person='who' is no column"),
    ],
)
def test_a_wrong_view_says_what_is_wrong_with_it(path, view, words):
    """The reason comes from the view's own text, and not from anybody's rows; no ledger is made."""
    with pytest.raises((DataError, ArgumentError), match=words):
        opened(path, view=view)
    assert not path.exists()


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_folder_hides_nobodys_rows(tmp_path, kind):
    """Folders that are links, which no reader follows, and files without the person's column, whose rows would be
    nobody's, are refused."""
    folder, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for where, name, column in ((folder, "a", "who"), (elsewhere, "b", "who")):
        where.mkdir()
        table = pa.table({column: ["ann", "bob"], "n": [1, 2]})
        if kind == "csv":
            csv.write_csv(table, where / f"{name}.csv")
        else:
            parquet.write_table(table, where / f"{name}.parquet")
    (folder / "more").symlink_to(elsewhere)
    with pytest.raises(DataError, match="link to a folder"):
        opened(tmp_path / "l", folder)
    (folder / "more").unlink()
    (folder / "more").symlink_to(tmp_path / "nowhere")
    with pytest.raises(DataError, match="or to nothing"):
        opened(tmp_path / "l", folder)
    (folder / "more").unlink()
    lacking = pa.table({"whose": ["cy", "dee"], "n": [1, 2]})
    if kind == "csv":
        csv.write_csv(lacking, folder / "c.csv")
    else:
        parquet.write_table(lacking, folder / "c.parquet")
    with pytest.raises(DataError, match="'who' must be in all files"):
        opened(tmp_path / "l", folder)
    with opened(
        tmp_path / "l", folder, view="SELECT coalesce(who, whose) AS person, n FROM data", person="person"
    ) as s:
        assert without_noise(s, People(sigma=100.0)) == [4]


def test_rows_are_read_once_for_a_question_and_its_watch(path):
    """Rows that come out differently at each reading do not make the watch speak."""
    people = pa.table({"who": list(range(2000))})
    with opened(path, people, view="SELECT * FROM data WHERE random() < 0.5") as session:
        session.watch(200, epsilon=1.0)  # two readings differ by about 1,000 people
        analyst = session.analyst("ann")
        assert all(analyst.ask(People(sigma=50.0), key=f"{number}").complete for number in range(10))


def test_whole_numbers_as_names(tmp_path):
    """People named by whole numbers have whole-number accounts; a ledger for texts refuses them."""
    rows = pa.table({"who": [1, 1, -5, None], "n": [1, 2, 3, 4]})
    with opened(tmp_path / "a", rows) as session:
        session.analyst("x").ask(Count(clip=2, sigma=9.0), key="k")
        assert session.ledger.spent(1) == 4 * session.ledger.spent("-5") > 0
        assert session.ledger.spent(np.int64(1)) == session.ledger.spent("1")
        for nobody in ("9" * 5000, "1.0", "0x1", "", "-", 1.0, True, None, 2**63):
            with pytest.raises(UnknownPerson):
                session.ledger.spent(nobody)
    with opened(tmp_path / "b"):
        pass
    with pytest.raises(ArgumentError, match="person"):
        opened(tmp_path / "b", rows)

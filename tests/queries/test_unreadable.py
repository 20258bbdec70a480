"""Entries that cannot be read as the type of their column, in every source: refused where all are, told where some."""

import ast
import logging
import re

import duckdb
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from almoner import filters
from almoner.cli import app
from almoner.errors import ArgumentError, DataError
from almoner.ledger import Ledger
from almoner.queries import Count, Lookup, Session, Table
from almoner.queries._tables import sources
from almoner.queries.plans import Plan
from sessions import CHEAP, without_noise
from terms import grouped

PRIVATE = "private: for the data holder"
PEOPLE = 40
# as people write them: entry number n, and the type that was given
FORMS = {
    "decimal comma": (lambda n: f"{n % 10},50", "number"),
    "comma and groups": (lambda n: f"1.00{n % 10},50", "number"),
    "groups": (lambda n: f"1,00{n % 10}.5", "number"),
    "currency": (lambda n: f"€{n % 10}", "number"),
    "day first": (lambda n: f"{n % 28 + 1:02d}/09/2011", "date"),
    "day and clock": (lambda n: f"{n % 28 + 1:02d}/09/2011 12:30", "time"),
    "yes in German": (lambda n: ("ja", "nein")[n % 2], "bool"),
    "letters in ids": (lambda n: f"K{n % 10}", "whole"),
}


def rows(form, *, bad=PEOPLE, good=None):
    """Columns who and given; the first so many entries are spelled in this form, the others are good ones."""
    spelled, _ = FORMS[form]
    return {"who": [str(n) for n in range(PEOPLE)], "given": [spelled(n) if n < bad else good for n in range(PEOPLE)]}


def csv_text(columns, separator=";"):
    lines = [separator.join(columns), *(separator.join(row) for row in zip(*columns.values(), strict=True))]
    return "\n".join(lines) + "\n"


def csv_file(folder, columns):
    (folder / "data.csv").write_text(csv_text(columns), encoding="utf-8")
    return {"data": folder / "data.csv"}


def csv_folder(folder, columns):
    (folder / "data").mkdir()
    for part in range(2):
        some = {name: entries[part::2] for name, entries in columns.items()}
        (folder / "data" / f"{part}.csv").write_text(csv_text(some), encoding="utf-8")
    return {"data": folder / "data"}


def parquet_file(folder, columns):
    parquet.write_table(pa.table(columns), folder / "data.parquet")
    return {"data": folder / "data.parquet"}


def duckdb_file(folder, columns):
    with duckdb.connect(str(folder / "data.duckdb")) as connection:
        connection.register("given", pa.table(columns))
        connection.execute("CREATE TABLE visits AS FROM given")
    return {"data": folder / "data.duckdb", "table": "visits"}


def duckdb_connection(folder, columns):
    connection = duckdb.connect()
    connection.register("columns", pa.table(columns))
    connection.execute("CREATE TABLE visits AS FROM columns")
    return {"data": connection, "table": "visits"}


SOURCES = {
    "csv": csv_file,
    "folder": csv_folder,
    "parquet": parquet_file,
    "duckdb": duckdb_file,
    "connection": duckdb_connection,
    "pandas": lambda folder, columns: {"data": pd.DataFrame(columns)},
    "polars": lambda folder, columns: {"data": polars.DataFrame(columns)},
    "arrow": lambda folder, columns: {"data": pa.table(columns)},
    "categories": lambda folder, columns: {"data": pd.DataFrame(columns).astype({"given": "category"})},
}
each_source = pytest.mark.parametrize("source", SOURCES)
each_form = pytest.mark.parametrize("form", FORMS)


def opened(folder, **given):
    budget, ledger = filters.Zcdp(rho=1000.0), folder / "people.ledger"
    return Session.open(**grouped({"person": "who", "budget": budget, "ledger": ledger, "create": True, **given}))


def refusal(folder, **given):
    """The refusal, which nothing is made after."""
    with pytest.raises(DataError, match="no entry can be read of column") as refused:
        opened(folder, **given)
    assert not (folder / "people.ledger").exists()
    assert refused.value.__context__ is None
    return refused.value


@pytest.mark.quick(22)
@each_source
@each_form
def test_a_column_of_which_nothing_can_be_read_is_refused(tmp_path, source, form):
    """Before a ledger is made; the message has the column and the type, and its note, marked, the numbers."""
    given = SOURCES[source](tmp_path, rows(form))
    kind = FORMS[form][1]
    refused = refusal(tmp_path, types={"given": kind}, **given)
    assert f"column 'given' as a {kind!r}" in str(refused)
    assert str(PEOPLE) not in str(refused)
    assert "line" not in str(refused)
    (note,) = refused.__notes__
    assert note.startswith(PRIVATE)
    assert f"{PEOPLE} of {PEOPLE} entries are no {kind!r}" in note
    assert ("line 2" if source in ("csv", "folder") else "row 1") in note
    assert ("of 0.csv" in note) == (source == "folder")


@pytest.mark.quick(8)
@each_source
def test_entries_that_are_not_there_are_no_mistake(tmp_path, source):
    """Empty, blank or null entries alone say nothing about a type."""
    empty = ["", " "] if source in ("csv", "folder") else [None, "", " "]
    columns = {"who": [str(n) for n in range(PEOPLE)], "given": [empty[n % len(empty)] for n in range(PEOPLE)]}
    with opened(tmp_path, types={"given": "number"}, **SOURCES[source](tmp_path, columns)) as session:
        assert [(each.entries, each.unfit) for each in session.misfits] == [(0, 0)]


READ = {
    "decimal comma": ("given = 3.5", 4),
    "comma and groups": ("given = 1003.5", 4),
    "groups": ("given = 1003.5", 4),
    "currency": ("given = 3", 4),
    "day first": ("given = '2011-09-15'", 1),
    "day and clock": ("given >= '2011-09-15 12:30:00'", 14),
    "yes in German": ("given", PEOPLE / 2),
    "letters in ids": ("given = 'K3'", 4),
}


def lines_to_write(form, message):
    """The line of the message for this form, as arguments of Python and as lines of TOML."""
    if "view = '''" in message:
        view = re.search(r"view = '''(.*?)'''", message)[1]
        assert f"Table(data, view={view!r})" in message
        return {"view": view}, f"view = '''{view}'''"
    types = ast.literal_eval(re.search(r"types=({.*?})", message)[1])
    toml = re.search(r"in TOML: (types = {.*?})\)", message)[1]
    other = {"groups": "decimal point", "currency": "decimal point", "letters in ids": "text"}.get(form)
    if other is None:
        return {"types": types}, toml
    assert repr(other) in message
    return {"types": {"given": other}}, toml.replace("decimal comma", other)


def is_read(session, form):
    where, wanted = READ[form]
    assert without_noise(session, Count(where=where, clip=1, **CHEAP)) == [wanted]
    assert not any(each.unfit for each in session.misfits)


@pytest.mark.quick(6)
@pytest.mark.parametrize("source", ["csv", "parquet", "pandas"])
@each_form
def test_the_line_of_the_refusal_reads_the_column(tmp_path, source, form):
    """What the message says to write is written, and the entries are read."""
    given = SOURCES[source](tmp_path, rows(form))
    cure, _ = lines_to_write(form, str(refusal(tmp_path, types={"given": FORMS[form][1]}, **given)))
    if source == "csv":
        cure = {"types": {}} | cure
    with opened(tmp_path, **cure, **given) as session:
        is_read(session, form)


PLAN = """
data = "data.csv"
person = "who"
ledger = "people.ledger"
rho = 1000.0
analyst = "ann"
{types}

[[questions]]
key = "all"
ask = "people"
sigma = 20
"""


@pytest.mark.quick(3)
@each_form
def test_a_plan_is_refused_on_the_command_line_and_its_line_helps(tmp_path, form):
    """`almoner query ask` charges nothing and makes no ledger; the TOML of the message reads the column."""
    csv_file(tmp_path, rows(form))
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.format(types=f"types = {{ given = '{FORMS[form][1]}' }}"), encoding="utf-8")
    told = CliRunner().invoke(app, ["query", "ask", str(plan)])
    assert told.exit_code == 2
    assert told.stdout == ""
    assert f"{PRIVATE}: column 'given': {PEOPLE} of {PEOPLE} entries" in told.stderr
    assert not (tmp_path / "people.ledger").exists()
    _, line = lines_to_write(form, told.stderr)
    line = line if line.startswith("types") else f"types = {{}}\n{line}"
    plan.write_text(PLAN.format(types=line), encoding="utf-8")
    with Plan.read(plan).open(create=True) as session:
        is_read(session, form)


@pytest.mark.quick(7)
@each_source
@pytest.mark.parametrize("bad", [1, 8])
def test_where_some_entries_cannot_be_read_the_holder_is_told(tmp_path, source, bad, caplog):
    """One in forty, or a fifth: the log names the column, ``misfits`` counts, and answers are about the others."""
    given = SOURCES[source](tmp_path, rows("decimal comma", bad=bad, good="3.5"))
    with caplog.at_level(logging.WARNING), opened(tmp_path, types={"given": "number"}, **given) as session:
        (misfit,) = session.misfits
        assert (misfit.column, misfit.entries, misfit.unfit) == ("given", PEOPLE, bad)
        assert len(misfit.first) == min(bad, 5)
        assert "and count as missing" in misfit.words()
        assert without_noise(session, Count(where="given is not null", clip=1, **CHEAP)) == [PEOPLE - bad]
    (line,) = caplog.messages
    assert "column 'given'" in line
    assert PRIVATE in line
    assert not re.search(r"\d", line)
    assert repr([misfit]) == f"[Misfit(column='given', kind='number', {PRIVATE})]"


def test_lines_are_those_of_the_file(tmp_path):
    """Empty lines count, as an editor counts them; of several files each has its own numbers."""
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.csv").write_text("who,given\n\n1,x\n\n\n2,5\n3,y\n", encoding="utf-8")
    (tmp_path / "rows" / "b.csv").write_text("given,who\r\n1,1\r\n\r\nz,2", encoding="utf-8")
    with opened(tmp_path, data=tmp_path / "rows", types={"given": "number"}) as session:
        assert session.misfits[0].first == ("line 3 of a.csv", "line 7 of a.csv", "line 4 of b.csv")
        assert session.misfits[0][3:5] == (5, 3)


@pytest.mark.parametrize("bad", [PEOPLE, 8])
def test_ids_with_letters_are_no_whole_numbers(tmp_path, bad, caplog):
    """People whose names cannot be read would be in no answer: refused where all are, told where some are."""
    columns = {"who": [f"K{n}" if n < bad else str(n) for n in range(PEOPLE)], "given": ["1"] * PEOPLE}
    given = csv_file(tmp_path, columns)
    if bad == PEOPLE:
        assert "'text' takes entries as they are, as ids" in str(refusal(tmp_path, types={"who": "whole"}, **given))
        with opened(tmp_path, types={"who": "text"}, **given) as session:
            assert without_noise(session, Count(clip=1, **CHEAP)) == [PEOPLE]
        return
    with opened(tmp_path, types={"who": "whole"}, **given) as session:
        assert session.misfits[0].unfit == bad
    assert len(caplog.messages) == 1


@pytest.mark.slow
@pytest.mark.parametrize("source", ["csv", "parquet", "arrow"])
def test_the_casts_of_a_view_are_judged_like_types(tmp_path, source):
    """A view that reads nothing of a column of text is refused; where it keeps all rows, what it loses is counted."""
    view = 'SELECT * REPLACE (TRY_CAST("given" AS DOUBLE) AS "given") FROM data'
    types = {"types": {}} if source == "csv" else {}
    given = SOURCES[source](tmp_path, rows("decimal comma"))
    assert "as a 'number'" in str(refusal(tmp_path, view=view, **types, **given))
    other = tmp_path / "other"
    other.mkdir()
    given = SOURCES[source](other, rows("decimal comma", bad=3, good="3.5"))
    with opened(other, view=view, **types, **given) as session:
        assert [tuple(each)[1:5] for each in session.misfits] == [("given", "number", PEOPLE, 3)]
    some = f"{view} WHERE who IN ('0', '39')"
    with opened(other, view=some, ledger=other / "second", **types, **given) as session:
        assert [each.unfit for each in session.misfits] == [0]  # what was left out, and what was lost, is one number


def test_long_files_are_counted_while_they_are_read(tmp_path, monkeypatch):
    """Files that are read once, beside the ledger: refused without a charge, or counted."""
    monkeypatch.setattr(sources, "SHORT", 0)
    given = csv_file(tmp_path, rows("currency"))
    with pytest.raises(DataError, match="no entry can be read"):
        opened(tmp_path, types={"given": "number"}, **given)
    with Ledger.open(tmp_path / "people.ledger") as book:
        assert not book.entries("answered")
    with opened(tmp_path, types={"given": "decimal point"}, **given) as session:
        assert [(each.entries, each.unfit) for each in session.misfits] == [(PEOPLE, 0)]


def test_several_tables_and_public_ones_are_named(tmp_path):
    """The table stands in the message, of public tables too."""
    (tmp_path / "sizes.csv").write_text("place;size\nx;1,5\ny;2,5\n", encoding="utf-8")
    place = Lookup(tmp_path / "sizes.csv", "place", on="given", types={"size": "number"})
    visits = Table(**csv_file(tmp_path, rows("currency")))
    assert "column 'size' of table 'places'" in str(
        refusal(tmp_path, tables={"visits": visits}, public={"places": place})
    )


def test_types_of_columns_with_types_of_their_own(tmp_path):
    """Text is read as its declared type wherever it is; another column keeps its own, and is not taken for another."""
    table = pa.table({"who": [1, 2], "given": ["1", "x"], "hours": [1, 2]})
    with opened(tmp_path, data=table, types={"given": "whole", "hours": "number", "who": "whole"}) as session:
        assert session.columns["data"] == {"who": "whole", "given": "whole", "hours": "whole"}
        assert [each[1:5] for each in session.misfits] == [("given", "whole", 2, 1)]
    for types, said in (({"hours": "date"}, "of kind whole already"), ({"hour": "date"}, "no such column")):
        with pytest.raises(ArgumentError, match=said):
            opened(tmp_path, data=table, types=types, ledger=tmp_path / "none")


@pytest.mark.quick(9)
@pytest.mark.parametrize(
    ("kind", "entry", "number"),
    [
        ("decimal comma", "1,5", 1.5),
        ("decimal comma", "-1.234.567,5", -1234567.5),
        ("decimal comma", "1 234,5 €", 1234.5),
        ("decimal comma", "1\u202f234,5\u00a0€", 1234.5),
        ("decimal comma", "1'234", 1234),
        ("decimal comma", "€ -3", -3),
        ("decimal comma", "1.5", None),
        ("decimal comma", "1,234.5", None),
        ("decimal comma", "1,2,3", None),
        ("decimal comma", "12,", 12),
        ("decimal point", "1,234.5", 1234.5),
        ("decimal point", "+$1,234", 1234),
        ("decimal point", "12.50 £", 12.5),
        ("decimal point", "1,50", None),
        ("decimal point", "1.234,5", None),
        ("decimal point", "12a", None),
        ("decimal point", "--1", None),
        ("decimal point", "-€-1", None),
        ("decimal point", "€", None),
        ("decimal point", "1e3", None),
    ],
)
def test_numbers_as_people_write_them(tmp_path, kind, entry, number):
    """Each spelling has one value or none, by the declared sign before the decimals; nothing is guessed."""
    table = pa.table({"who": [1, 2], "given": [entry, "7"]})
    with opened(tmp_path, data=table, types={"given": kind}) as session:
        found = session.ledger.store.workspace.connection.execute(
            f"SELECT given FROM {sources.view_name(session._rows.places[0])} ORDER BY who"
        ).fetchall()
        assert found == [(number,), (7.0,)]
        assert np.isfinite(session.misfits[0].entries)


def test_a_view_with_a_cast_that_fails_is_refused_at_opening(tmp_path):
    """The holder is told before a ledger is made; with the cast that the message names all 300 people are there."""
    given = pa.table({"who": [*(str(number) for number in range(299)), "x"]})
    view = "SELECT CAST(who AS {}) AS who FROM data"
    with pytest.raises(DataError, match=r"view: .*an entry does not fit a cast: .* CAST\(\.\.\. AS VARCHAR\)") as told:
        opened(tmp_path, data=given, view=view.format("BIGINT"))
    assert "x" not in str(told.value).split()
    assert not (tmp_path / "people.ledger").exists()
    with opened(tmp_path, data=given, view=view.format("VARCHAR")) as session:
        assert without_noise(session, Count(clip=1, **CHEAP)) == [300]

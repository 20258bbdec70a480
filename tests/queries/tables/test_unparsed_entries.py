"""Entries of CSV files that don't fit their column's type: the data holder is told before anything is spent."""

import json

import pytest
from typer.testing import CliRunner

from almoner.cli import app
from almoner.queries import Count
from almoner.queries.plans import Plan

VISITS = """who,hours,day,seen,note
ann,1.5,2026-12-31,true,a
bob,2,31.12.2026,yes,b
cat,two, 2026-01-02 ,,c
dan,,,no,
eve,1,5.1.2026,perhaps,e
"""
PLAN = """
data = "visits.csv"
person = "who"
ledger = "people.ledger"
rho = 1.0
analyst = "ann"
types = { who = "text", hours = "number", day = "date", seen = "bool" }

[[questions]]
key = "hours"
ask = "mean"
column = "hours"
low = 0
high = 24
sigma = 20
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "visits.csv").write_text(VISITS, encoding="utf-8")
    (tmp_path / "plan.toml").write_text(PLAN, encoding="utf-8")
    return tmp_path


def test_entries_that_do_not_fit_are_counted(folder):
    """Of four, four and four entries that are not empty, one, two and one are spelled otherwise; text always fits."""
    found = {
        each.column: (each.table, each.kind, each.entries, each.unfit)
        for each in Plan.read(folder / "plan.toml").misfits()
    }
    assert found == {
        "hours": (None, "number", 4, 1),
        "day": (None, "date", 4, 2),
        "seen": (None, "bool", 4, 1),
    }


def test_the_count_is_what_answers_leave_out(folder):
    """Entries that fit are those that answers are about, here with almost no noise."""
    (folder / "plan.toml").write_text(PLAN.replace("rho = 1.0", "rho = 1000.0"), encoding="utf-8")
    plan = Plan.read(folder / "plan.toml")
    with plan.open(create=True) as session:
        for each in plan.misfits():
            asked = Count(where=f"{each.column} is not null", clip=1, sigma=0.1)
            counted = session.analyst("ann").ask(asked, key=each.column).values[0]
            assert round(counted) == each.entries - each.unfit


def test_tables_and_public_ones_by_name(folder):
    """Several tables, and public ones, are named; Parquet and guessed columns have nothing that could misfit."""
    (folder / "places.csv").write_text("place,size\nx,1\ny,big\n", encoding="utf-8")
    text = PLAN.replace('data = "visits.csv"\n', "").replace(
        'types = { who = "text", hours = "number", day = "date", seen = "bool" }\n', ""
    )
    text = text.replace('key = "hours"\n', 'key = "hours"\ntable = "visits"\n')
    text += '[tables.visits]\ndata = "visits.csv"\ntypes = { hours = "whole" }\n'
    text += '[public.places]\ndata = "places.csv"\nkey = "place"\non = "note"\n'
    text += 'types = { place = "text", size = "number" }\n'
    (folder / "plan.toml").write_text(text, encoding="utf-8")
    assert [tuple(each) for each in Plan.read(folder / "plan.toml").misfits()] == [
        ("visits", "hours", "whole", 4, 2, ("line 2", "line 4")),
        ("places", "size", "number", 2, 1, ("line 3",)),
    ]
    (folder / "plan.toml").write_text(PLAN.replace("types =", "#"), encoding="utf-8")
    assert Plan.read(folder / "plan.toml").misfits() == []


def test_the_command_line_tells_and_charges_nobody(folder):
    """`almoner query check` marks what it prints as private, and makes no ledger."""
    plan = str(folder / "plan.toml")
    told = CliRunner().invoke(app, ["query", "check", plan])
    assert told.exit_code == 0
    assert "private: for the data holder" in told.stdout
    assert "day" in told.stdout
    as_json = json.loads(CliRunner().invoke(app, ["query", "check", plan, "--json"]).stdout)
    assert {
        "table": None,
        "column": "day",
        "kind": "date",
        "entries": 4,
        "unfit": 2,
        "first": ["line 3", "line 6"],
    } in as_json
    assert not (folder / "people.ledger").exists()


def test_nothing_of_an_entry_is_told(folder):
    """Numbers and names of columns alone: no entry is quoted."""
    words = " ".join(each.words() for each in Plan.read(folder / "plan.toml").misfits())
    assert "column 'day': 2 of 4 entries are no 'date', and count as missing" in words
    assert "31.12" not in words
    assert "perhaps" not in words

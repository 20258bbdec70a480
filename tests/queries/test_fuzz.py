"""Hostile filters, names, keys and people: parsed or refused, never executed, never another person's data."""

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from almoner import filters
from almoner._workspace import quoted, text
from almoner.errors import ArgumentError
from almoner.queries import Count, Session
from almoner.queries._language.expressions import And, Column, Compare, In, IsNull, IsTrue, Literal, Not, Or, parse
from ledgers import exact

ODD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
HOSTILE = st.one_of(
    ODD,
    st.sampled_from(
        [
            '"; DROP TABLE data; --',
            "'); DELETE FROM ledger.accounts; --",
            'a" OR "1"="1',
            "person",
            "cell",
            "x0",
            "units",
            "rowid",
            "admitted",
            "d.who",
            "*",
            "?",
            "$1",
            "\\",
            "%s{}",
            "a.b",
            "/* */",
            "NULL",
            "ÄÖ\u202e",
        ]
    ),
)
RELAXED = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
ROWS = [
    {"id": place, "n": n, "f": f, "t": t, "b": b}
    for place, (n, f, t, b) in enumerate(
        zip(
            [0, 1, -2, None, 7, 7, 2**60, None] * 2,
            [0.0, -1.5, math.nan, None, math.inf, 2.0, 1e-300, 7.0] * 2,
            ["", "a", "it's", None, "ä", "A", "%", "a "] * 2,
            [True, False, None, True] * 4,
            strict=True,
        )
    )
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A session over ROWS, each row a person."""
    table = pa.table(
        {
            "id": pa.array([row["id"] for row in ROWS]),
            "n": pa.array([row["n"] for row in ROWS], pa.int64()),
            "f": pa.array([row["f"] for row in ROWS], pa.float64()),
            "t": pa.array([row["t"] for row in ROWS]),
            "b": pa.array([row["b"] for row in ROWS]),
        }
    )
    path = tmp_path_factory.mktemp("fuzz") / "l"
    with Session.open(table, person="id", budget=filters.Zcdp(rho=1.0), ledger=path, create=True) as session:
        yield session


def chosen(session, where):
    """The people whose rows a filter takes."""
    asked = Count(clip=1, where=where, sigma=1000.0)
    sums, units = exact(session, asked)
    assert sums == [len(units) * asked.steps]
    return set(units)


numbers = st.one_of(st.sampled_from([0, 1, -2, 7, 2**60, 2**60 + 1]), st.sampled_from([0.0, -1.5, 2.0, 1e-300, 7.5]))
literals = {
    "n": numbers.map(Literal),
    "f": numbers.map(Literal),
    "t": st.sampled_from(["", "a", "it's", "ä", "A", "%", "a ", "' OR 1=1 --"]).map(Literal),
    "b": st.booleans().map(Literal),
}


@st.composite
def leaves(draw):
    name = draw(st.sampled_from(list(literals)))
    column, kind = Column(name), draw(st.integers(0, 3))
    if kind == 0:
        return IsNull(column)
    if kind == 1:
        return In(column, tuple(draw(st.lists(literals[name], min_size=1, max_size=3))))
    if name == "b" and kind == 2:
        return IsTrue(column)
    sides = (column, draw(literals[name]))
    return Compare(draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="])), *(sides if kind == 2 else sides[::-1]))


trees = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: And(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Or(tuple(parts))),
    ),
    max_leaves=6,
)


def written(tree):
    """A filter as text."""
    match tree:
        case Column():
            return '"' + tree.name.replace('"', '""') + '"'
        case Literal(value=str()):
            return "'" + tree.value.replace("'", "''") + "'"
        case Literal():
            return str(tree.value).lower()
        case Compare():
            return f"{written(tree.left)} {tree.sign} {written(tree.right)}"
        case In():
            return f"{written(tree.column)} IN ({', '.join(map(written, tree.values))})"
        case IsNull():
            return f"{written(tree.column)} is null"
        case IsTrue():
            return written(tree.column)
        case Not():
            return f"not ({written(tree.of)})"
        case And():
            return " and ".join(f"({written(part)})" for part in tree.parts)
    return " or ".join(f"({written(part)})" for part in tree.parts)


def true(tree, row):
    """Three-valued logic in plain Python: True, False or None."""
    match tree:
        case IsNull():
            return value(tree.column, row) is None
        case IsTrue():
            return value(tree.column, row)
        case Not():
            inner = true(tree.of, row)
            return None if inner is None else not inner
        case And():
            parts = [true(part, row) for part in tree.parts]
            return False if False in parts else None if None in parts else True
        case Or():
            parts = [true(part, row) for part in tree.parts]
            return True if True in parts else None if None in parts else False
        case In():
            return either([compared("=", value(tree.column, row), each.value) for each in tree.values])
    return compared(tree.sign, value(tree.left, row), value(tree.right, row))


def either(parts):
    return True if True in parts else None if None in parts else False


def value(side, row):
    if isinstance(side, Literal):
        return side.value
    found = row[side.name]
    return None if isinstance(found, float) and math.isnan(found) else found


def compared(sign, left, right):
    if left is None or right is None:
        return None
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    elif isinstance(left, float) or isinstance(right, float):  # one of them is no whole number
        left, right = float(left), float(right)
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[sign]


@settings(RELAXED, max_examples=150)
@given(tree=trees)
def test_filters_mean_what_they_say(rows, tree):
    """Random filters, written as text and parsed again, take the rows that plain Python takes."""
    assume(not mixed(tree))
    assert parse(written(tree)) == tree or isinstance(tree, And | Or | Not)
    assert chosen(rows, written(tree)) == {row["id"] for row in ROWS if true(tree, row) is True}


def mixed(tree):
    """Whether a list holds whole and other numbers: then all are compared as doubles, which true() does not do."""
    match tree:
        case In():
            return len({type(each.value) for each in tree.values}) > 1
        case Not():
            return mixed(tree.of)
        case And() | Or():
            return any(map(mixed, tree.parts))
    return False


PIECES = """n f t "t" and or not ( ) in is null = < <> , between 1 -2.5 'a' '' ; -- select drop * /* union
true ' " e 1e5 0x1 :: $1 ?"""
pieces = st.sampled_from(PIECES.split())


@settings(RELAXED, max_examples=300)
@given(where=st.one_of(st.text(max_size=60), st.lists(pieces, max_size=12).map(" ".join)))
def test_any_text_is_a_filter_or_an_argument_error(rows, where):
    """Nothing else happens: no other error, and the accounts and the data are as they were."""
    try:
        asked = Count(clip=1, where=where, sigma=1000.0)
        rows.analyst("a").quote(asked)
    except ArgumentError:
        return
    chosen(rows, where)
    assert chosen(rows, "id >= 0") == {row["id"] for row in ROWS}


@RELAXED
@given(names=st.lists(HOSTILE, min_size=3, max_size=3), key=HOSTILE, person=HOSTILE, other=HOSTILE)
def test_hostile_names_keys_and_people(tmp_path_factory, names, key, person, other):
    """Odd names of columns, keys and people are only names: the right rows count and the right person pays."""
    assume(
        len({name.lower() for name in names}) == 3 and not any("\0" in each for each in (*names, key, person, other))
    )
    assume(person != other)
    who, group, flag = names
    table = pa.table({who: [person, person, other], group: [key, key + "x", key], flag: [True, True, False]})
    path = tmp_path_factory.mktemp("names") / 'it\'s a "ledger"'
    with Session.open(table, person=who, budget=filters.Zcdp(rho=1.0), ledger=path, create=True) as session:
        where = '"' + flag.replace('"', '""') + '"'
        asked = Count(where=where, by={group: [key, "no such key"]}, clip=9, sigma=100.0)
        sums, units = exact(session, asked)
        assert sums == [asked.steps, 0]
        assert list(units) == [person]
        try:
            session.analyst(key, purpose=person).ask(asked, key=other)
        except ArgumentError:
            assert not all(each.isprintable() for each in (key, person, other))
            return
        assert asked.price <= 81 * session.ledger.spent(person) <= asked.price + 162
        assert session.ledger.spent(other) == 0
        assert session.analyst(key, purpose=person).answers()[0].key == other
        assert [line.key for line in session.statement(person).lines] == [other]
        session.retire(other)
        assert all(finding.holds for finding in session.verify(replay=True))


@given(name=ODD)
def test_quoting(name):
    """Names and texts as SQL are read back as they were."""
    import duckdb

    assume("\0" not in name)
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT {text(name)} AS {quoted(name)}").fetchall() == [(name,)]
        assert connection.description[0][0] == name


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
def test_fuzzing_guided_by_coverage():
    """A short run of the benchmark that fuzzes filters, files, words and connection strings breaks no rule."""
    script = Path(__file__).parents[2] / "benchmarks" / "crashes" / "fuzz_queries.py"
    run = subprocess.run([sys.executable, script, "--runs", "300"], capture_output=True, text=True, check=True)
    told = json.loads(run.stdout)
    assert (told["inputs"], told["rules broken"]) == (300, 0)
    assert told["grown: taken"] > 0

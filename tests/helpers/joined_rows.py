"""Rows of people with homes and codes joined to them: as tables of a session, and in plain Python."""

from dataclasses import fields, is_dataclass, replace

import pyarrow as pa

from almoner.queries import Lookup, Table
from almoner.queries._language.expressions import Column, parse_value
from almoner.queries._sql.columns import FilterCompiler
from almoner.queries._sql.dialects import duckdb_dialect
from almoner.queries._sql.rows import Joined
from expressions import KINDS, NASTY, value, written

__all__ = ["PEOPLE", "ROWS", "check_joined", "given", "joined"]

PEOPLE = 20
ROWS = {name: [NASTY[name][row % len(NASTY[name])] for row in range(PEOPLE)] for name in "fbds"} | {
    "who": list(range(PEOPLE)),
    "n": [row % 7 for row in range(PEOPLE)],
    "t": ["a", "b", "it's", None] * 5,
}
HOMES = {"who": list(range(15))} | {
    name: [NASTY[name][(3 * row + 1) % len(NASTY[name])] for row in range(15)] for name in KINDS
}
CODES = {"code": [0, 1, 2, 3, 4, None]} | {
    name: [NASTY[name][(5 * row + 2) % len(NASTY[name])] for row in range(6)] for name in KINDS
}
_TYPES = {"n": pa.int64(), "f": pa.float64(), "t": pa.string(), "b": pa.bool_(), "d": pa.date32()}
_TYPES["s"] = pa.timestamp("us")


def _table(columns):
    return pa.table({name: pa.array(entries, _TYPES.get(name, pa.int64())) for name, entries in columns.items()})


def given():
    """What ``Session.open`` takes."""
    tables = {"rows": _table(ROWS), "homes": Table(_table(HOMES), one_row=True)}
    return {"tables": tables, "public": {"codes": Lookup(_table(CODES), "code", on="n")}, "person": "who"}


def _as_rows():
    """Each row with what is joined to it."""
    listed = []
    for place in range(PEOPLE):
        row = {name: entries[place] for name, entries in ROWS.items()}
        for table, columns, key, found_by in (("homes", HOMES, "who", row["who"]), ("codes", CODES, "code", row["n"])):
            at = columns[key].index(found_by) if found_by in columns[key] else None
            row |= {f"{table}.{name}": None if at is None else columns[name][at] for name in KINDS}
        listed.append(row)
    return listed


def joined(node, choose):
    """An expression in which some columns are those of other tables; ``choose(n)`` gives a number below n."""
    if isinstance(node, Column):
        return Column(("", "rows.", "homes.", "codes.")[choose(4)] + node.name)
    if isinstance(node, tuple):
        return tuple(joined(each, choose) for each in node)
    if is_dataclass(node):
        return type(node)(*(joined(getattr(node, each.name), choose) for each in fields(node)))
    return node


def check_joined(session, tree):
    """Refuse values of an expression that are not what Python computes for each row."""
    dialect = duckdb_dialect([])
    rows = Joined(session._rows.schema, "rows", dialect)
    compiler = FilterCompiler(rows, replace(dialect, columns=rows.columns), "column")
    _, sql = compiler.value(parse_value(written(tree), name="column"))
    run = session.ledger.store.workspace.run
    entries = run(f"SELECT {sql.text} FROM {rows.rows.text} d ORDER BY d.who", sql.parameters).fetchall()
    named = [{**row, **{f"rows.{name}": row[name] for name in KINDS}} for row in _as_rows()]
    if [entry for (entry,) in entries] != [value(tree, row) for row in named]:
        raise RuntimeError(f"other values than Python's: {written(tree)}")

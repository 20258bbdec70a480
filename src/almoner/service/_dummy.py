"""Made-up data with the public shape of a policy's tables, in which analysts try questions, and holders a policy.

They are drawn from declarations alone: names and kinds of columns, keys, bounds, periods and paths to the person. No
file of data is opened.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from math import ceil, floor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from almoner._workspace import duckdb, quoted, text
from almoner.errors import AlmonerError
from almoner.queries import Answer, Lookup, Question, Session, Table
from almoner.service.policies import ColumnPart, Policy

ABOUT = "DUMMY: made-up numbers that are about nobody"
"""Stands in the place of the key of a dummy answer, and before what its intervals are about."""
PEOPLE = 2_000
_ROWS = 3  # of each person, in tables that may have several
_YEAR = date(2026, 1, 1), date(2026, 12, 31)
_KEYS: Mapping[type, str] = {bool: "bool", int: "whole", float: "number", date: "date", datetime: "time"}
_DAY = "DATE '{first}' + CAST(floor({share} * (1 + (DATE '{last}' - DATE '{first}'))) AS INTEGER)"
_DRAWN = {
    "whole": ("BIGINT", "floor({low} + {share} * ({high} - {low}))"),
    "number": ("DOUBLE", "{low}::DOUBLE + {share} * ({high}::DOUBLE - {low}::DOUBLE)"),
    "text": ("VARCHAR", "chr(97 + CAST(floor({share} * 10) AS INTEGER))"),
    "bool": ("BOOLEAN", "{share} < 0.5"),
    "date": ("DATE", _DAY),
    "time": ("TIMESTAMP", _DAY),
}  # by kinds, the type of a column, and what it draws from a share in [0, 1)
_LOOKED_UP: Mapping[str, Iterable[Any]] = {"text": "abcdefghij", "whole": range(101), "bool": (True, False)}


class Dummy:
    """A session over made-up data, with an empty ledger of the policy's terms, in which nothing stays charged.

    Args:
        policy: whose declarations they are drawn from.
        kinds: the kinds of the columns of each table, public; None for what the declarations say of them.
    """

    def __init__(self, policy: Policy, kinds: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._folder = TemporaryDirectory(prefix="almoner-")
        try:
            given = _opened(policy, declared_kinds(policy) if kinds is None else kinds)
            given |= {"memory_limit": policy.plan.settings.memory_limit, "threads": 1, "create": True}
            ledger = Path(self._folder.name) / "dummy.ledger"
            self.session = Session.open(**given, budget=policy.plan.terms, ledger=ledger)
        except BaseException:
            self._folder.cleanup()
            raise

    def close(self) -> None:
        self.session.close()
        self._folder.cleanup()

    def ask(self, asked: Question) -> Answer:
        """The answer to a question about made-up rows, by fresh budgets: what it charges is undone."""
        answers: list[Answer] = []

        def work(_: object) -> None:
            answers.append(self.session.analyst("dummy").ask(asked, key="dummy"))
            raise _Undone

        with suppress(_Undone):
            self.session.ledger.transact(work)
        (answer,) = answers
        return replace(answer, key=ABOUT, about=f"{ABOUT}; {answer.about}")


class _Undone(AlmonerError):
    """Ends a transaction of which nothing is to stay."""


def declared_kinds(policy: Policy) -> dict[str, dict[str, str]]:
    """Kinds of columns by declarations: types, or else keys, or bounds; text where there are none of them."""
    found = {name: {part.key: "text"} | (part.types or {}) for name, part in policy.plan.settings.public.items()}
    for name, table in policy.file.tables.items():
        found[name] = {}
        for column, told in table.columns.items():
            otherwise = _KEYS.get(type(told.keys[0]), "text") if told.keys else "text" if told.low is None else "number"
            kind = (table.types or {}).get(column, otherwise)
            found[name][column] = "number" if kind.startswith("decimal") else kind
    return found


def _opened(policy: Policy, kinds: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Arguments of ``Session.open`` about the tables; a row is found by its person, or by the row its path leads to."""
    settings, connection = policy.plan.settings.model_copy(update={"spark": None}), duckdb().connect()
    given, tables, periods = settings.opened(policy.plan.folder, policy.plan.domains), {}, policy.plan.periods
    ways = {name: re.split(r"\s*->\s*|\.", whose.strip()) for name, whose in given["person"].items()}
    found_by = {name: {way[0]} for name, way in ways.items()}
    for way in ways.values():
        if len(way) > 1:
            found_by[way[1]].add(way[2] if len(way) > 2 else way[0])
    whole = any(kinds[name].get(each) == "whole" for name, columns in found_by.items() for each in columns)
    for name, table in given["tables"].items():
        fixed = dict.fromkeys(found_by[name], f"i % {PEOPLE}" if whole else f"'dummy ' || i % {PEOPLE}")
        if periods is not None:
            fixed[periods.column] = _drawn(ColumnPart(), periods.column, "date", (periods.first, periods.last))
        led_to = any(name == way[1] for way in ways.values() if len(way) > 1)
        rows = PEOPLE if table.one_row or led_to else PEOPLE * _ROWS
        _make(connection, name, f"range({rows}) r(i)", policy.file.tables[name].columns, kinds[name], fixed)
        tables[name] = Table(connection, table=name, one_row=table.one_row, columns=table.columns)
    for name, lookup in (given["public"] or {}).items():
        on, kind = lookup.on or lookup.key, kinds[name].get(lookup.key, "text")
        alike = (part.columns.get(on.rpartition(".")[2]) for part in policy.file.tables.values())
        keys = next((told.keys for told in alike if told is not None and told.keys), _LOOKED_UP.get(kind, "ab"))
        listed = ", ".join(f"({place}, {text(str(key))})" for place, key in enumerate(keys))
        fixed = {lookup.key: f"k::{_DRAWN.get(kind, _DRAWN['text'])[0]}"}
        _make(connection, name, f"(VALUES {listed}) v(i, k)", {}, kinds[name], fixed)
        given["public"][name] = Lookup(connection, lookup.key, table=name, on=on)
    return {**given, "tables": tables}


def _make(connection: Any, name: str, rows: str, told: Any, kinds: Mapping[str, str], fixed: dict[str, str]) -> None:
    """Make a table over rows with a number i: columns as SQL where ``fixed``, and drawn, by their kinds, elsewhere."""
    drawn = {each: _drawn(told.get(each, ColumnPart()), each, kind) for each, kind in kinds.items()}
    listed = ", ".join(f"{sql} AS {quoted(each)}" for each, sql in {**drawn, **fixed}.items())
    connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT {listed} FROM {rows}")


def _drawn(told: ColumnPart, column: str, kind: str, days: tuple[Any, Any] = _YEAR) -> str:
    """Entries of a column as SQL over row i: of its keys, within its bounds, or of days."""
    share = f"(hash(i, {text(column)}) % 1000003 / 1000003)"
    sql_type, drawn = _DRAWN.get(kind, _DRAWN["text"])  # questions cannot use other kinds
    low, high = (0.0, 100.0) if told.low is None or told.high is None else (told.low, told.high)
    if told.keys and not any(isinstance(key, list) for key in told.keys):
        listed = ", ".join(text(str(key)) for key in told.keys)
        drawn = f"list_extract([{listed}], 1 + CAST(floor({share} * {len(told.keys)}) AS INTEGER))"
    elif kind == "whole":
        low, high = max(ceil(low), -(2**53)), min(floor(high), 2**53) + 1
        drawn = drawn.format(share=share, low=low, high=high)
    else:
        drawn = drawn.format(share=share, low=repr(low), high=repr(high), first=days[0], last=days[1])
    return f"CAST({drawn} AS {sql_type})"

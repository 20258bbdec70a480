"""Rows of people as SQL: a table, and what is made of each person's rows alone.

What is made of a table keeps whose each row is, and a person's rows of it follow from that person's rows alone. So for
adding or removing a person with all rows, they are that person's rows and nobody else's: no step here costs privacy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bursar.errors import ArgumentError
from bursar.queries._engines.columns import FilterCompiler
from bursar.queries._engines.dialects import Dialect
from bursar.queries._engines.functions import Sql, filled
from bursar.queries._expressions import Expression, Literal
from bursar.queries._steps import Steps, parse_step

__all__ = ["People", "one_row_each"]

_COUNTED = ("whole", "text", "bool", "date", "time")


@dataclass(frozen=True, slots=True)
class People:
    """Rows of people.

    Fields:
        rows: a table or a query in brackets, without an alias.
        who: whose row it is, as SQL over the alias d; NULL for nobody.
        kinds: of the columns.
        columns: each column as SQL over the alias d.
    """

    rows: Sql
    who: str
    kinds: Mapping[str, str]
    columns: Mapping[str, str]


def one_row_each(people: People, steps: Steps, dialect: Dialect) -> People:
    """One row for each person, with a column for each step.

    Guarantee: the row of each person is a function of that person's rows, whatever other people's are.
    Source: theory 2.6 and docs/proofs/noise.md, Theorem 3: contributions may be any function of a person's rows.
    """
    compiler = FilterCompiler(people.kinds, replace(dialect, columns=people.columns), "each_person")
    kinds, columns, listed, parameters = {}, {}, [], list[object]()
    for place, (name, text) in enumerate(steps):
        kinds[name], value = _aggregate(*parse_step(text), compiler)
        columns[name] = f"d.step{place:d}"
        listed.append(f", {value.text} AS step{place:d}")
        parameters += value.parameters
    sql = (
        f"(SELECT {people.who} AS person{''.join(listed)} FROM {people.rows.text} d "
        f"WHERE {people.who} IS NOT NULL GROUP BY {people.who})"
    )
    return People(Sql(sql, (*parameters, *people.rows.parameters)), "d.person", kinds, columns)


def _aggregate(name: str, arguments: tuple[Expression, ...], compiler: FilterCompiler) -> tuple[str, Sql]:
    """The kind of an aggregate, and its SQL: the same in whatever order the rows come."""
    if any(isinstance(each, Literal) for each in arguments):
        raise ArgumentError(f"each_person: {name}() takes columns or expressions, not a literal alone")
    functions, values = compiler.dialect.functions, [compiler.value(each) for each in arguments]
    kinds, pieces = [kind for kind, _ in values], [value for _, value in values]
    if name == "count" and not arguments:
        return "whole", Sql("CAST(count(*) AS BIGINT)")
    if name in ("any", "all", "count"):
        _need(name, kinds[0], ("bool",))
    if name == "distinct":
        _need(name, kinds[0], _COUNTED)
    if name == "sum":
        _need(name, kinds[0], ("whole", "number"))
        pieces = [filled("CAST({0} AS DOUBLE)", *pieces, bound="")]
    kind = {"count": "whole", "distinct": "whole", "sum": "number", "any": "bool", "all": "bool"}.get(name, kinds[0])
    return kind, compiler.lettered(kind, filled(functions[f"each {name}"], *pieces, bound=""))


def _need(name: str, kind: str, wanted: tuple[str, ...]) -> None:
    if kind not in wanted:
        raise ArgumentError(f"each_person: {name}() takes a {' or '.join(wanted)}, not a {kind}")

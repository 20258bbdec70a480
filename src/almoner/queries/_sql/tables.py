"""Rows of people as SQL: a table, and what is made of each person's rows alone.

What is made of a table keeps whose each row is, and a person's rows of it follow from that person's rows alone. So for
adding or removing a person with all rows, they are that person's rows and nobody else's: no step here costs privacy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from almoner.errors import ArgumentError
from almoner.queries._language.expressions import Column, Expression, Literal, parts
from almoner.queries._language.steps import Steps, parse_step
from almoner.queries._sql.columns import FilterCompiler
from almoner.queries._sql.dialects import Dialect
from almoner.queries._sql.functions import Sql, filled
from almoner.queries._sql.joins import Joined

__all__ = ["People", "one_row_each"]

_COUNTED = ("whole", "text", "bool", "date", "time")
_NUMBERS = ("count", "distinct")  # aggregates that are 0 for a person without rows


@dataclass(frozen=True, slots=True)
class People:
    """Rows of people.

    It has what a ``Joined`` has; nothing can be joined to it.

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


def one_row_each(people: People | Joined, steps: Steps, dialect: Dialect) -> People:
    """One row for each person with rows, with a column for each step.

    A step may be about the person's rows of another table. Where the person has none there, what it gives is missing; a
    number of rows is 0.

    Guarantee: the row of each person is a function of that person's rows, whatever other people's are.
    Source: theory 2.6 and docs/proofs/noise.md, Theorem 3: contributions may be any function of a person's rows.
    """
    parsed = [(name, *parse_step(text)) for name, text in steps]
    tables = [_table_of(people, arguments) for _, _, arguments in parsed]
    others = {name: Joined(people.schema, name, dialect) for name in tables if name and isinstance(people, Joined)}
    kinds, columns, beside = {}, {}, []
    listed: dict[str | None, list[tuple[str, Sql]]] = {table: [] for table in (None, *tables)}
    for place, ((name, aggregate, arguments), table) in enumerate(zip(parsed, tables, strict=True)):
        rows, step = others.get(table or "", people), f"step{place:d}"
        compiler = FilterCompiler(rows.kinds, replace(dialect, columns=rows.columns), "each_person")
        if aggregate == "count" and isinstance(rows, Joined) and arguments == (Column(rows.name),):
            arguments = ()  # count(orders): all rows
        kinds[name], value = _aggregate(aggregate, arguments, compiler)
        listed[table].append((step, value))
        columns[name] = f"d.{step}"
        if table is not None:
            taken = f"other{tables.index(table):d}.{step}"
            beside.append(f"coalesce({taken}, 0) AS {step}" if aggregate in _NUMBERS else f"{taken} AS {step}")
    sql = _grouped(people, listed.pop(None))
    if beside:
        joins = {f"other{tables.index(name):d}": _grouped(others[str(name)], each) for name, each in listed.items()}
        text = " ".join(f"LEFT JOIN {each.text} {alias} ON {alias}.person = d.person" for alias, each in joins.items())
        parameters = (*sql.parameters, *(each for join in joins.values() for each in join.parameters))
        sql = Sql(f"(SELECT d.*, {', '.join(beside)} FROM {sql.text} d {text})", parameters)
    return People(sql, "d.person", kinds, columns)


def _grouped(people: People | Joined, listed: list[tuple[str, Sql]]) -> Sql:
    """A row for each person, with these aggregates under their names."""
    values = "".join(f", {value.text} AS {step}" for step, value in listed)
    parameters = [each for _, value in listed for each in value.parameters]
    sql = (
        f"(SELECT {people.who} AS person{values} FROM {people.rows.text} d "
        f"WHERE {people.who} IS NOT NULL GROUP BY {people.who})"
    )
    return Sql(sql, (*parameters, *people.rows.parameters))


def _table_of(people: People | Joined, arguments: tuple[Expression, ...]) -> str | None:
    """The other table of people that a step is about; None for that of the question."""
    if not isinstance(people, Joined) or not people.schema.named:
        return None
    named = [each for argument in arguments for each in _columns(argument)]
    tables = {table for table in map(people.other_table, named) if table is not None}
    if len(tables) > 1:
        raise ArgumentError(
            f"each_person: a step is about the rows of one table, not of {' and '.join(sorted(tables))}"
        )
    for name in named if tables else ():
        if "." not in name and name not in tables:
            (table,) = tables
            raise ArgumentError(f"each_person: column {name!r} stands in a step about {table!r}: name its table")
    return next(iter(tables), None)


def _columns(node: Expression) -> list[str]:
    """The names of the columns in an expression."""
    return [node.name] if isinstance(node, Column) else [name for part in parts(node) for name in _columns(part)]


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

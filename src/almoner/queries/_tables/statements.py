"""The question that a SELECT statement means, by the names of a session's tables and what its data sets declare."""

from collections.abc import Iterator, Mapping
from functools import partial
from math import inf
from typing import Any

from almoner._check import quoted, similar
from almoner.errors import ArgumentError
from almoner.ledger import Domain
from almoner.queries._language import expressions as tree
from almoner.queries._language.expressions import Expression
from almoner.queries._language.nodes import column, written
from almoner.queries._language.sql import Aggregate, Statement, statement
from almoner.queries._questions.kinds.counts import Quantiles
from almoner.queries._questions.kinds.entries import Keys
from almoner.queries._questions.kinds.several import Several
from almoner.queries._questions.kinds.sql import Sql
from almoner.queries._questions.question import Question
from almoner.queries._sql.rows import PeopleTable, Schema

_PRICED = ("clip", "at_most", "report", "per_group", "sigma", "rho", "epsilon", "pace", "anyway")


def domain_of(column: str, table: str, declared: Mapping[str, Mapping[str, Domain]]) -> Domain | None:
    """Declaration of a column of a table, or of another one as ``table.column``."""
    other, dot, name = column.partition(".")
    return declared[other].get(name) if dot and other in declared else declared.get(table, {}).get(column)


def read_with(sql: str, schema: Schema) -> Statement:
    """The statement in the names of a session's columns; ArgumentError where a table or a column is not there."""
    people = schema.people if schema.named else {"data": next(iter(schema.people.values()))}

    def tables(names: tuple[str, ...]) -> Any:
        for nth, name in enumerate(names):
            known = {**people, **(schema.public if nth else {})}
            if name not in known:
                here = ", ".join(known) + similar(name, known)
                raise ArgumentError(f"sql: no table {quoted(name, 'of it')} is here; there are {here}")
        found = {name: people.get(name) or schema.public[name] for name in names}  # the person may be named, not used
        kinds = {name: {str(getattr(each, "person", "")): "", **each.kinds} for name, each in found.items()}

        def place(table: str | None, name: str) -> str:
            places = [each for each in (names if table is None else [table]) if _known(name, kinds[each]) is not None]
            if not places or (len(places) > 1 and places[0] != names[0]):
                listed = [str(_known(each, kinds[table])) for table in names for each in kinds[table] if each]
                near = similar(name, listed, f"; a text stands in single quotes: `{quoted(name, repr('text'))}`")
                raise ArgumentError(f"sql: column {quoted(name, 'of it')} is not there, or in several tables{near}")
            own = _known(name, kinds[places[0]])
            return str(own) if places[0] == names[0] else f"{places[0]}.{own}"

        return place

    return statement(sql, tables)


def _known(name: str, kinds: Mapping[str, str]) -> str | None:
    """The column of this name; in other letters, small or large, where one alone is."""
    alike = [each for each in kinds if each.casefold() == name.casefold()]
    return name if name in kinds else alike[0] if len(alike) == 1 else None


def meant(asked: Sql, schema: Schema, declared: Mapping[str, Mapping[str, Domain]]) -> Question:
    """The question that a statement means; refused, with the line to write, where keys or bounds are not public."""
    told = read_with(asked.sql, schema)
    table = schema.people[schema.name(told.table if schema.named else None)]
    person, found_by = _owner(told.table if schema.named else "", table, schema)
    people, kinds = {person}, dict(table.kinds)
    for name, stays, ours, theirs in told.joins:
        if name not in found_by:
            line = f"begin FROM with it, or ask with each_person={{'n': 'count({name})'}}"
            raise ArgumentError(f"sql: a person may have several rows in table {name!r}: {line}")
        if (ours, theirs) != (right := found_by[name]):
            raise ArgumentError(f"sql: write JOIN {name} ON {right[0]} = {right[1]}: rows are found by that alone")
        people |= {theirs} if ours == person and not stays else set()
        kinds |= {f"{name}.{n}": kind for n, kind in (schema.people.get(name) or schema.public[name]).kinds.items()}
    given: dict[str, Any] = {name: getattr(asked, name) for name in _PRICED} | _steps(told, people, person)
    given |= {"table": told.table if schema.named else None, "where": told.where and written(told.where)}
    if told.steps:  # columns are steps, whatever they are called
        kinds, declared = {}, {}
    reader = _Meaning(asked, told, kinds, partial(domain_of, table=schema.name(given["table"]), declared=declared))
    aggregates = [(name, value) for name, value in told.outputs if isinstance(value, Aggregate)]
    if not aggregates:
        raise ArgumentError("sql: nothing is asked for: write an aggregate, such as count(*)")
    for name, value in aggregates:
        if value.kind == "people" and column(value.of) not in people:
            raise ArgumentError(f"sql: {name} counts people alone: `count(DISTINCT {person})`; see queries.Distinct")
    if asked.delta is not None:
        if len(told.group) != 1 or [value.kind for _, value in aggregates] != ["people"] or asked.by:
            wanted = "one column in GROUP BY, without by=, and count(DISTINCT person) alone"
            raise ArgumentError(f"sql: delta= is for {wanted}")
        return Keys(column(told.group[0]), delta=asked.delta, most=asked.most, **given)
    if given["clip"] is None and table.one_row and not told.steps:
        given["clip"] = 1.0
    given["by"] = [(column(key), reader.keys(key, told)) for key in told.group]
    if all(value.kind == "quantile" for _, value in aggregates) and len({value.of for _, value in aggregates}) == 1:
        of, levels = aggregates[0][1].of, tuple(dict.fromkeys(value.level for _, value in aggregates))
        low, high, _ = reader.bounds(of, needed=True)
        edges = [low + (high - low) * place / asked.quantile_bins for place in range(asked.quantile_bins)]
        given |= {"levels": levels, "per": "row", "bounds_hold": asked.bounds_hold}
        return Quantiles(column(of), (*edges, high), **given)
    if any(value.kind == "quantile" for _, value in aggregates):
        raise ArgumentError("sql: quantiles are a release of their own: ask for those of one column in one statement")
    return Several({name: reader.member(value) for name, value in aggregates}, **given)


def _steps(told: Statement, people: set[str], person: str) -> dict[str, Any]:
    """``sets``, and the steps over a person's rows that SELECTs inside of FROM make: ``each`` and ``each_person``."""
    given: dict[str, Any] = {"sets": [[column(told.group[place]) for place in each] for each in told.sets] or None}
    for keys, steps in told.steps:
        others = [column(key) for key in keys if column(key) not in people]
        if len(others) == len(keys):
            raise ArgumentError(f"sql: GROUP BY inside of FROM is for each person: write GROUP BY {person}, there too")
        if (given.keys() & {"each_person", "each"} and (others or "each_person" in given)) or len(others) > 1:
            raise ArgumentError(f"sql: inside of FROM, GROUP BY {person} and one more column, then GROUP BY {person}")
        given |= {"each": {others[0]: steps}} if others else {"each_person": steps}
    return given


def _owner(first: str, table: PeopleTable, schema: Schema) -> tuple[str, dict[str, tuple[str, str]]]:
    """(The column that names a row's person, for each table that can be joined the two columns that are equal)."""
    path, place = dict[str, tuple[str, str]](), ""
    while table.parent is not None:
        above = table.parent.table
        path[above] = f"{place}{table.parent.column}", f"{above}.{table.parent.key}"
        place, table = f"{above}.", schema.people[above]
    person, alone = place + table.person, {n: each for n, each in schema.people.items() if each.one_row}
    found_by = {n: (person, f"{n}.{each.person}") for n, each in alone.items() if each.parent is None}
    looked_up = {n: (each.on.removeprefix(f"{first}."), f"{n}.{each.key}") for n, each in schema.public.items()}
    return person, found_by | looked_up | path


class _Meaning:
    """Keys and bounds of expressions, from what is public."""

    def __init__(self, asked: Sql, told: Statement, kinds: Mapping[str, str], domain: partial[Domain | None]) -> None:
        self._asked, self._names = asked, told.names
        self._kinds, self._domain = kinds, domain
        given: Any = asked.bounds
        self._bounds: dict[str, tuple[float, float]] = {column: ends for column, *ends in given or ()}

    def member(self, value: Aggregate) -> dict[str, Any]:
        if value.of is None or value.kind == "people":
            return {"ask": value.kind}
        low, high, sure = self.bounds(value.of, needed=self._domain(column(value.of)) is None)
        ends = {"low": low, "high": high} if abs(low) < inf and abs(high) < inf else {}
        more: dict[str, Any] = {} if value.kind == "sum" else {"per": "row"}
        return {"ask": value.kind, "column": column(value.of), "bounds_hold": sure, **ends, **more}

    def keys(self, key: Expression, told: Statement) -> Any:
        """Public keys of an expression, or None for those of the data set."""
        by: Any = self._asked.by
        names = [self._shown(key), column(key), written(key), *(name for name, value in told.outputs if value == key)]
        for name, listed in by or ():
            if name in names:
                return listed
        found = list(_listed(told.where, key)) or _results(key)
        if found:
            return list(dict.fromkeys(found))
        if isinstance(key, tree.Condition) or self._kinds.get(column(key)) == "bool":
            return [True, False]
        domain = self._domain(column(key))
        if domain is None or not domain.keys:
            shown = quoted(names[0], "a column")
            it, name = (names[0], shown) if isinstance(key, tree.Column) else ("the same expression", quoted(names[-1]))
            cure = f"write WHERE {it} IN (...), or give by={{{name}: [...]}}"
            if [value.kind for _, value in told.outputs if isinstance(value, Aggregate)] == ["people"]:
                cure += ", or, where the ledger has a keys_delta, delta=1e-9 for keys that nobody lists"
            raise ArgumentError(f"sql: GROUP BY {shown} needs public keys: {cure}")
        return None

    def bounds(self, node: Expression | None, *, needed: bool = False) -> tuple[float, float, bool]:
        """Two numbers to which an expression is clipped, infinite where not known, and whether it is between them."""
        low, high = self._between(node, assumed=True)
        least, most = self._between(node, assumed=self._asked.bounds_hold)
        if needed and not -inf < low < high < inf:
            shown = "x" if node is None else self._shown(node)
            line = f"bounds={{{shown!r}: (0, 100)}}"
            raise ArgumentError(f"sql: bounds of {quoted(shown, 'an expression')} are not known; for example `{line}`")
        return low, high, low <= least and most <= high

    def _shown(self, node: Expression | None) -> str:
        """The name of an expression: as a SELECT inside of FROM called it, or as it is written."""
        return column(node) if node is None else self._names.get(written(node), column(node))

    def _between(self, node: Expression | None, *, assumed: bool) -> tuple[float, float]:
        """Two numbers between which an expression is, if what was given for columns is ``assumed``."""
        name, domain = column(node), self._domain(column(node))
        if isinstance(node, tree.Condition) or self._kinds.get(name) == "bool":
            return 0.0, 1.0
        if assumed and (shown := self._shown(node) if name not in self._bounds else name) in self._bounds:
            return self._bounds[shown]
        if assumed and domain is not None and domain.low is not None and domain.high is not None:
            return domain.low, domain.high
        match node:
            case tree.Literal(int() | float() as value):
                return float(value), float(value)
            case tree.Case(branches, otherwise):
                values = [value for _, value in branches] + ([] if otherwise is None else [otherwise])
                lows, highs = zip(*(self._between(value, assumed=assumed) for value in values), strict=True)
                return min(lows), max(highs)
            case tree.Call("least" | "greatest" as limit, arguments):
                lows, highs = zip(*(self._between(value, assumed=assumed) for value in arguments), strict=True)
                ends = highs if limit == "least" else lows  # of those that are there, one of which is the result
                there = [end for end, each in zip(ends, arguments, strict=True) if isinstance(each, tree.Literal)]
                if limit == "least":
                    return min(lows), min(there, default=max(highs))
                return max(there, default=min(lows)), max(highs)
        return -inf, inf


def _listed(node: tree.Condition | None, key: Expression) -> Iterator[Any]:
    """Literals one of which an expression is wherever a condition is true."""
    match node:
        case tree.And(parts):
            for part in parts:
                yield from _listed(part, key)
        case tree.In(value, among) if value == key:
            yield from (each.value for each in among)
        case tree.Compare("=", value, tree.Literal(one)) if value == key:
            yield one


def _results(key: Expression) -> list[Any]:
    if not isinstance(key, tree.Case):
        return []
    values = [*(value for _, value in key.branches), *([] if key.otherwise is None else [key.otherwise])]
    found = [value.value for value in values if isinstance(value, tree.Literal)]
    return found if len(found) == len(values) else []

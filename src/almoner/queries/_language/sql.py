"""SELECT statements as trees of this language: parsed by DuckDB, in which there are no data, and read by a whitelist.

A SELECT inside of FROM, or of WITH, is read into the one around it: what it computes are expressions, what it filters
is one filter, and one that groups by the person makes steps over that person's rows.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from almoner._check import quoted
from almoner.errors import AlmonerError, ArgumentError
from almoner.queries._language import expressions as tree
from almoner.queries._language import nodes
from almoner.queries._language.expressions import DEEPEST, Condition, Expression, as_condition
from almoner.queries._language.nodes import column, literal, parsed, refused, taken, written


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Aggregate of a SELECT: its kind of question, of which expression; ``root``: of a variance, the square root."""

    kind: str
    of: Expression | None = None
    level: float = 0.5
    root: bool = False


Join = tuple[str, bool, str, str]
"""Table, whether rows without a match stay, and the columns that are equal: of the rows so far, and of the table."""
Tables = Callable[[tuple[str, ...]], Callable[[str | None, str], str]]
"""Of the tables of a statement, the first of which it is about: (table or None, column) to the name of our column."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A SELECT. In ``having`` and ``order``, column c0 is the first of ``outputs``, and so on."""

    table: str
    joins: tuple[Join, ...]
    where: Condition | None
    steps: tuple[tuple[tuple[Expression, ...], dict[str, str]], ...]
    """SELECTs inside of FROM that group: keys, and steps over the rows of each; ``where`` is about what they make."""
    names: Mapping[str, str]
    """The names that SELECTs inside of FROM gave to expressions, by these as text."""
    group: tuple[Expression, ...]
    outputs: tuple[tuple[str, Expression | Aggregate], ...]
    """Names and values: keys and aggregates, first the ``shown`` ones, then what only HAVING and ORDER BY name."""
    shown: int
    having: Condition | None
    order: tuple[str, ...]
    limit: tuple[int | None, int]
    """The number of rows, or None, and of those before them that are left out."""
    sets: list[list[int]]
    """Of GROUPING SETS, ROLLUP and CUBE: the keys of each, by their places in ``group``; empty without."""


def statement(text: str, tables: Tables) -> Statement:
    """The SELECT that a text is; ArgumentError, with the word, where it says anything that is not known here."""
    try:
        return _Reader(tables).statement(parsed(text))
    except AlmonerError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError):  # a field that another version of DuckDB does not write
        raise ArgumentError("sql: a word of it is not known here") from None


class _Reader:
    """Nodes to trees, in the names of one statement's tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._listed = tables, list[str]()
        self._joins, self._where = list[Join](), list[Condition]()
        self._steps, self._names = list[tuple[tuple[Expression, ...], dict[str, str]]](), dict[str, str]()
        self._aliases = dict[str, str]()  # tables of this SELECT, by their names in it
        self._over: str | None = None  # the name of a SELECT that this one is over, whose columns these are
        self._made, self._open = dict[str, Expression](), True  # open: those of tables, too
        self._anchor: list[Condition] = []  # true, of the first table: a step over joined rows is about its rows
        self._outputs: list[tuple[str, Expression | Aggregate]] = []
        self._sets = list[list[int]]()
        self._released = ""  # HAVING or ORDER BY, in which names stand for outputs, too
        self._keys: tuple[Expression, ...] | None = None  # of a SELECT over a person's rows; what stands there:
        self._taken, self._here, self._hint = dict[str, str](), dict[str, Expression](), ""

    def statement(self, node: Any) -> Statement:
        selected, by_all, group, having, modifiers = self._select(node, {})
        sets = self._sets
        for node in selected:
            alias, item = node.get("alias", ""), {**node, "alias": ""}
            found = self._aggregate(item) or self._value(item)
            own = _called(item, found) if isinstance(found, Aggregate) else column(found)
            self._outputs.append((alias or own, found))
        shown = len(self._outputs)
        if len({name for name, _ in self._outputs}) < shown:
            raise ArgumentError("sql: two columns have one name: give names of your own, as in avg(x) AS mean")
        keys = tuple(map(self._key, group))
        if by_all:
            keys = tuple(value for _, value in self._outputs if not isinstance(value, Aggregate))
        for name, value in self._outputs:
            if not isinstance(value, Aggregate) and value not in keys:
                why = "; there a column comes first that is called so" * (name in map(column, keys))
                raise ArgumentError(f"sql: {quoted(name, 'a column')} must be an aggregate, or stand in GROUP BY{why}")
        self._outputs += [(written(key), key) for key in keys if key not in [value for _, value in self._outputs]]
        self._released = "HAVING"
        kept = None if having is None else self._condition(having)
        self._released = "ORDER BY"
        order, limit = self._modifiers(modifiers, shown)
        asked = tuple(self._joins), _all(self._where), tuple(self._steps), self._names, keys
        return Statement(self._listed[0], *asked, tuple(self._outputs), shown, kept, order, limit, sets)

    def _select(self, node: Any, views: dict[str, Any]) -> tuple[list[Any], bool, list[Any], Any, list[Any]]:
        """Columns, GROUP BY ALL, GROUP BY, HAVING and what follows; FROM and WHERE are read here."""
        if node["type"] != "SELECT_NODE":
            raise refused(node["type"])
        by_all = node["aggregate_handling"] == "FORCE_AGGREGATES"
        node = {**node, "aggregate_handling": "STANDARD_HANDLING"} if by_all else node
        named, selected, source, where, group, sets, having, modifiers = taken(
            node, "cte_map", "select_list", "from_table", "where_clause", "group_expressions", "group_sets", "having",
            "modifiers",
        )  # fmt: skip
        for each in named["map"]:
            views = {**views, each["key"].casefold(): (*taken(each["value"], "query_node"), views)}
        self._sets = [] if sets in ([], [list(range(len(group)))]) else sets
        self._from(source, views)
        self._where += [] if where is None else [self._condition(where)]
        return selected, by_all, group, having, modifiers

    def _from(self, node: Any, views: dict[str, Any]) -> None:
        """Tables and joins, the first table first; a SELECT in place of it is read as what its columns are."""
        if node["type"] == "JOIN":
            self._join(node, views)
        elif node["type"] == "SUBQUERY":
            alias, inside = taken(node, "alias", "subquery")
            self._derive(taken(inside, "node")[0], views, alias)
        elif node["type"] == "BASE_TABLE" and (name := node["table_name"].casefold()) in views:
            query, outer = views[name]
            self._derive(query, outer, taken(node, "alias", "table_name")[0] or name)
        else:
            self._table(node)

    def _table(self, node: Any) -> str:
        if node["type"] != "BASE_TABLE":
            raise refused(node["type"])
        name, alias = taken(node, "table_name", "alias")
        if (alias or name).casefold() in (*self._aliases, self._over) or name in self._listed:
            raise ArgumentError(f"sql: table {quoted(name, 'of FROM')} may stand there once, by a name of its own")
        self._aliases[(alias or name).casefold()] = name
        self._listed.append(name)
        self._column = self._tables(tuple(self._listed))
        return str(name)

    def _join(self, node: Any, views: dict[str, Any]) -> None:
        left, right, on, using, kind = taken(node, "left", "right", "condition", "using_columns", "join_type")
        plain = right["type"] == "BASE_TABLE" and right["table_name"].casefold() not in views
        if kind not in ("INNER", "LEFT") or not plain or (on is None and len(using) != 1):
            raise refused(f"{kind} JOIN", "is not taken as it is written")
        self._from(left, views)
        if self._steps:
            raise ArgumentError("sql: JOIN stands inside of the SELECT that groups by the person, not behind it")
        both = [] if on else [self._named(using)]
        table = self._table(right)
        if on is None:
            both.append(tree.Column(self._column(table, using[0])))
        elif on["type"] == "COMPARE_EQUAL":
            both = [self._value(side) for side in taken(on, "left", "right")]
        names = [side.name for side in both if isinstance(side, tree.Column)]
        if len(names) != 2:
            raise refused("ON", "must be one equality of two columns")
        ours, theirs = sorted(names, key=lambda name: name.startswith(f"{table}."))
        self._joins.append((table, kind == "LEFT", ours, theirs))
        if not self._anchor:
            there = tree.IsNull(tree.Column(ours))
            self._anchor = [tree.Or((there, tree.Not(there)))]
        self._where += [] if kind == "LEFT" else [tree.Not(tree.IsNull(tree.Column(theirs)))]

    def _derive(self, node: Any, views: dict[str, Any], alias: str) -> None:
        """A SELECT inside of FROM: its columns as expressions over rows; where it groups, over what steps make."""
        selected, by_all, group, having, modifiers = self._select(node, views)
        if modifiers:
            raise ArgumentError("sql: ORDER BY, LIMIT and DISTINCT stand in the last SELECT; inside of FROM, GROUP BY")
        if self._sets:
            raise refused("GROUPING SETS", "stand in the last SELECT")
        if group or by_all or having is not None:
            made, is_open = self._grouped(selected, by_all, group, having), False
        else:
            stars = [item for item in selected if item["type"] == "STAR" and not taken(item)]
            if len(stars) > 1 or (stars and self._over is not None and self._aliases):
                raise refused("STAR", "cannot stand here")
            made, is_open = dict(self._made) if stars else {}, bool(stars) and self._open
            listed = [(_called_as(item), self._value({**item, "alias": ""})) for item in selected if item not in stars]
            for name, value in listed:
                if name.casefold() in made or (is_open and self._is_there(name)):
                    raise ArgumentError(f"sql: {quoted(name, 'a column')} is there twice: give it another name")
                made[name.casefold()] = value
        self._names |= {written(value): name for name, value in made.items() if name[:1] != " "}
        self._made, self._open, self._over, self._aliases = made, is_open, alias.casefold(), {}
        self._below = self._column

    def _is_there(self, name: str) -> bool:
        with suppress(ArgumentError):
            return bool(self._named([name]))
        return False

    def _grouped(self, selected: list[Any], by_all: bool, group: list[Any], having: Any) -> dict[str, Expression]:
        """The columns of a SELECT that makes a row of each person's rows, or of those with each key."""
        for item in selected:
            value: Expression | Aggregate = Aggregate("count")
            with suppress(ArgumentError):  # an aggregate, or refused below
                value = self._value({**item, "alias": ""})
            self._outputs.append((_called_as(item), value))
        keys = tuple(value for _, value in self._outputs if not isinstance(value, Aggregate))
        self._keys = keys if by_all else tuple(map(self._key, group))
        self._taken, self._here = dict[str, str](), dict[str, Expression]()
        for (name, _), item in zip(self._outputs, selected, strict=True):
            self._hint = "" if name.startswith(" ") else name
            value = self._value({**item, "alias": ""})
            if self._here.setdefault(name.casefold(), value) is not value:
                raise ArgumentError(f"sql: {quoted(name, 'a column')} is there twice: give it another name")
        self._hint, rows = "", _all(self._where)
        kept: list[Condition] = [] if having is None else [self._condition(having)]
        if rows is not None:
            kept.append(tree.Compare(">", self._stepped("count", rows), tree.Literal(0)))
        if not self._taken:
            self._stepped("count")
        self._steps.append((self._keys, self._taken))
        self._where, self._keys, self._outputs, self._anchor = kept, None, [], []
        return self._here

    def _stepped(self, aggregate: str, *of: Expression, called: str = "") -> tree.Column:
        text = f"{aggregate}({', '.join(map(written, of))})"
        name = next((name for name, known in self._taken.items() if known == text), called or text)
        others = {column(key).casefold() for key in self._keys or ()}
        if self._taken.setdefault(name, text) != text or name.casefold() in others:
            raise ArgumentError(f"sql: {quoted(name, 'a column')} is there twice: give it another name")
        return tree.Column(name)

    def _step(self, node: Any, depth: int) -> Expression | None:
        """Over a person's rows, or those with a key: an aggregate of these, as a column; None where it is none."""
        name = node.get("function_name", "").lower()
        if node["type"] != "FUNCTION" or name not in nodes.STEPS:
            return None
        values, filter_, distinct = self._arguments(node, name)
        kind, rows, called = nodes.STEPS[name], [*self._where, *filter_, *self._anchor], self._hint * (depth == 1)
        if kind == "count" and not distinct:
            rows += [] if not values or isinstance(values[0], tree.Literal) else [_counted(name, values[0])]
            return self._stepped("count", *(() if (both := _all(rows)) is None else (both,)), called=called)
        if distinct and kind not in ("count", "min", "max"):
            raise refused("DISTINCT", "is for count(DISTINCT x)")
        if (among := _all(rows)) is not None:
            values[-1] = tree.Case(((among, values[-1]),), None)
        if kind == "mean":
            there = _counted("count", values[0])
            return tree.Arithmetic("/", self._stepped("sum", *values), self._stepped("count", there))
        return self._stepped("distinct" if kind == "count" else kind, *values, called=called)

    def _arguments(self, node: Any, name: str) -> tuple[list[Expression], list[Condition], bool]:
        """Values of an aggregate's rows, the filter of the rows, and whether each value counts once."""
        before, self._keys, self._released = (self._keys, self._released), None, ""  # inside of it are rows
        where, distinct, arguments = taken({**node, "function_name": ""}, "filter", "distinct", "arguments")
        values = [self._value(*taken(each, "expression")) for each in arguments]
        kept = [] if where is None else [self._condition(where)]
        self._keys, self._released = before
        wanted = {"count_star": (0,), "count": (0, 1), "quantile_cont": (2,), "approx_quantile": (2,)}.get(name, (1,))
        if len(values) not in ((2,) if nodes.STEPS.get(name) in ("first", "last") else wanted):
            raise refused(name, f"takes {' or '.join(map(str, wanted))} values")
        return values, kept, distinct

    def _of_person(self, node: Any, depth: int) -> Expression:
        """An expression of keys and of aggregates over a person's rows."""
        if (found := self._step(node, depth)) is not None:
            return found
        keys, self._keys = self._keys or (), None
        try:
            with suppress(ArgumentError):  # it has an aggregate in it, or is refused below
                if (value := self._plain(node, depth)) in keys:
                    return tree.Column(column(value))
        finally:
            self._keys = keys
        if node["type"] != "COLUMN_REF":
            return self._plain(node, depth)
        name = node["column_names"][-1]
        if len(node["column_names"]) == 1 and name.casefold() in self._here:
            return self._here[name.casefold()]
        raise ArgumentError(f"sql: {quoted(name, 'a column')} must be an aggregate, or stand in GROUP BY")

    def _key(self, node: Any) -> Expression:
        """A key of GROUP BY: an expression, the number of a column, or its name, if no column of the rows has it."""
        path = [name.casefold() for name in node.get("column_names", ())]
        named = [each for name, each in self._outputs if path == [name.casefold()] and not self._is_there(name)]
        value = named[0] if named else self._value(node)
        if isinstance(value, tree.Literal):
            value = self._outputs[self._whole(node, 1, len(self._outputs)) - 1][1]
        if isinstance(value, Aggregate):
            raise ArgumentError("sql: GROUP BY takes no aggregate")
        return value

    def _modifiers(self, listed: list[Any], shown: int) -> tuple[tuple[str, ...], tuple[int | None, int]]:
        order, most, skipped = list[str](), None, 0
        for node in listed:
            if node["type"] == "ORDER_MODIFIER":
                for each in taken(node, "orders")[0]:
                    expression, nulls = taken(each, "expression", "null_order")
                    value = self._value(expression)
                    if isinstance(value, tree.Literal):
                        value = tree.Column(f"c{self._whole(expression, 1, shown) - 1}")
                    down = {"ORDER_DEFAULT": "", "ASCENDING": "", "DESCENDING": " desc"}[each["type"]]
                    last = {"ORDER_DEFAULT": "last", "NULLS LAST": "last", "NULLS FIRST": "first"}[nulls]
                    order.append(f"{written(value)}{down} nulls {last}")
            elif node["type"] == "LIMIT_MODIFIER" and node["limit_type"] == "ROW_COUNT":
                limit, offset, _ = taken(node, "limit", "offset", "limit_type")
                most = None if limit is None else self._whole(limit, 0, 2**31)
                skipped = 0 if offset is None else self._whole(offset, 0, 2**31)
            else:
                raise refused(node["type"])
        return tuple(order), (most, skipped)

    def _whole(self, node: Any, low: int, high: int) -> int:
        value = self._value(node)
        number = value.value if isinstance(value, tree.Literal) else None
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise ArgumentError(f"sql: a place or a limit must be a whole number from {low} to {high}")
        return number

    def _aggregate(self, node: Any) -> Aggregate | None:
        name = node.get("function_name", "").lower()
        if node["type"] != "FUNCTION" or name not in nodes.AGGREGATES:
            return None
        (values, kept, distinct), kind = self._arguments(node, name), nodes.AGGREGATES[name]
        filter_ = kept[0] if kept else None
        share = (values[1].value if isinstance(values[1], tree.Literal) else -1) if len(values) == 2 else 0.5
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise refused(name, "takes shares from 0 to 1")
        of, one, zero = (values[0] if values else None), tree.Literal(1), tree.Literal(0)
        if distinct:
            if kind != "count" or filter_ is not None or of is None:
                raise refused("DISTINCT", "is for count(DISTINCT person), with a filter in WHERE")
            return Aggregate("people", of)
        if kind == "count" and (isinstance(of, tree.Literal) or (self._steps and of in self._steps[-1][0])):
            of = None  # every row has it
        if kind == "count" and of is not None:
            of = tree.Case(((_counted(name, of), one),), zero)
        if filter_ is not None:
            of = tree.Case(((filter_, of or one),), None if of else zero)
        return Aggregate("sum" if kind == "count" and of is not None else kind, of, float(share), name == "stddev_pop")

    def _condition(self, node: Any, depth: int = 0) -> Condition:
        return as_condition(self._value(node, depth))

    def _value(self, node: Any, depth: int = 0) -> Expression:
        """An expression; where columns are released, of these."""
        if depth > DEEPEST:
            raise ArgumentError(f"sql is nested more than {DEEPEST} deep")
        composed = node["type"].startswith(nodes.COMPOSED) or node.get("function_name") in ("+", "-", "*", "/")
        if self._keys is not None:
            return self._of_person(node, depth + 1)
        return self._plain(node, depth + 1) if composed or not self._released else self._output(node, depth + 1)

    def _output(self, node: Any, depth: int) -> tree.Column:
        """The released column that a node names: by its name, or as a key or an aggregate, which may be a new one."""
        names, path = [name.casefold() for name, _ in self._outputs], node.get("column_names", [])
        known = [value for _, value in self._outputs]
        if path and self._released == "HAVING":
            with suppress(ArgumentError, ValueError):
                return tree.Column(f"c{known.index(self._named(path))}")  # a column of GROUP BY comes before a name
        if len(path) == 1 and path[0].casefold() in names:
            return tree.Column(f"c{names.index(path[0].casefold())}")
        found: Expression | Aggregate | None = self._aggregate(node)
        if found is None:
            before, self._released = self._released, ""
            found, self._released = self._plain(node, depth), before
        if found not in known and not isinstance(found, Aggregate):
            raise refused("HAVING", "and ORDER BY are about keys, aggregates, numbers and comparisons")
        if isinstance(found, Aggregate) and found not in known:
            self._outputs.append((_called(node, found), found))
        return tree.Column(f"c{[*known, found].index(found)}")

    def _plain(self, node: Any, depth: int) -> Expression:
        kind = node["type"]

        def inside(name: str) -> list[Expression]:
            return [self._value(each, depth) for each in taken(node, name)[0]]

        match kind:
            case "COLUMN_REF":
                return self._named(*taken(node, "column_names"))
            case "VALUE_CONSTANT":
                return literal(*taken(node, "literal"))
            case "CONJUNCTION_AND" | "CONJUNCTION_OR":
                parts = tuple(map(as_condition, inside("children")))
                return tree.And(parts) if kind == "CONJUNCTION_AND" else tree.Or(parts)
            case "COMPARE_BETWEEN":
                value, low, high = (self._value(each, depth) for each in taken(node, "input", "lower", "upper"))
                return tree.And((tree.Compare(">=", value, low), tree.Compare("<=", value, high)))
            case "COMPARE_IN" | "COMPARE_NOT_IN":
                value, *listed = inside("children")
                if not all(isinstance(each, tree.Literal) for each in listed):
                    raise refused("IN", "takes a list of literals")
                among = tree.In(value, tuple(each for each in listed if isinstance(each, tree.Literal)))
                return among if kind == "COMPARE_IN" else tree.Not(among)
            case "OPERATOR_NOT":
                return tree.Not(*map(as_condition, inside("children")))
            case "OPERATOR_IS_NULL" | "OPERATOR_IS_NOT_NULL":
                missing = tree.IsNull(*inside("children"))
                return missing if kind == "OPERATOR_IS_NULL" else tree.Not(missing)
            case "OPERATOR_COALESCE":
                return tree.Call("coalesce", tuple(inside("children")))
            case "CASE_EXPR":
                return self._case(node, depth)
            case "OPERATOR_CAST":
                return self._cast(node, depth)
            case "FUNCTION":
                return self._function(node, depth)
        if kind.removeprefix("COMPARE_") in nodes.SIGNS and kind.startswith("COMPARE_"):
            left, right = (self._value(each, depth) for each in taken(node, "left", "right"))
            return tree.Compare(nodes.SIGNS[kind.removeprefix("COMPARE_")], left, right)
        raise refused(kind)

    def _named(self, path: list[str]) -> Expression:
        table, name = (path[0].casefold() if len(path) == 2 else None), path[-1]
        if len(path) > 2 or table not in (None, self._over, *self._aliases):
            raise refused(".".join(path))
        if table in self._aliases:
            return tree.Column(self._column(self._aliases[table or ""], name))
        if self._over is None:
            return tree.Column(self._column(None, name))
        if name.casefold() in self._made:
            return self._made[name.casefold()]
        for place in ([None] if self._open else []) + ([*self._aliases.values()] if table is None else []):
            with suppress(ArgumentError):
                return tree.Column((self._below if place is None else self._column)(place, name))
        raise ArgumentError(f"sql: column {quoted(name, 'of it')} is not there")

    def _case(self, node: Any, depth: int) -> Expression:
        checks, otherwise = taken(node, "case_checks", "else_expr")
        branches = []
        for check in checks:
            condition, value = taken(check, "when_expr", "then_expr")
            branches.append((self._condition(condition, depth), self._value(value, depth)))
        none = otherwise is None or otherwise.get("literal", {}).get("kind") == "NULL_LITERAL"
        return tree.Case(tuple(branches), None if none else self._value(otherwise, depth))

    def _cast(self, node: Any, depth: int) -> Expression:
        child, kind, _ = taken(node, "child", "type_expr", "try_cast")
        (name,), value = taken(kind, "type_name"), self._value(child, depth)
        if isinstance(value, tree.Literal) and isinstance(value.value, str) and name.upper() in ("DATE", "TIMESTAMP"):
            return tree.Literal(value.value[:10]) if name.upper() == "DATE" else value
        if name.upper() not in nodes.TYPES:
            raise refused(name.upper())
        return tree.Call(nodes.TYPES[name.upper()], (value,))

    def _function(self, node: Any, depth: int) -> Expression:
        name, arguments, _ = taken(node, "function_name", "arguments", "is_operator")
        values = [self._value(each, depth) for (each,) in (taken(each, "expression") for each in arguments)]
        first = values[0].value if values and isinstance(values[0], tree.Literal) else None
        match name.lower(), values:
            case "-" | "+" | "*" | "/", [left, right]:
                return tree.Arithmetic(name, left, right)
            case "-" | "+", [one]:
                return tree.Arithmetic(name, tree.Literal(0), one)
            case "~~" | "!~~", [value, tree.Literal(str() as pattern)]:
                like = tree.Like(value, pattern)
                return like if name == "~~" else tree.Not(like)
            case "date_part" | "date_trunc" as called, [_, value] if isinstance(first, str):
                ours = (nodes.PARTS if called == "date_part" else nodes.TRUNCATED).get(first.lower())
                if ours is not None:
                    return tree.Call(ours, (value,))
            case "date_diff" | "datediff", [_, start, end] if first == "day":
                return tree.Call("days", (start, end))
            case called, _ if called in nodes.NAMES:
                return tree.Call(nodes.NAMES[called], tuple(values))
            case called, _ if called in nodes.AGGREGATES:
                raise ArgumentError("sql: an aggregate must stand alone in its column; inside of FROM, beside GROUP BY")
        raise refused(name)


def _counted(name: str, of: Expression) -> Condition:
    """Rows that an aggregate counts: with an entry, or for which a condition is true."""
    return tree.Not(tree.IsNull(of)) if name == "count" else as_condition(of)


def _all(listed: list[Condition]) -> Condition | None:
    return None if not listed else listed[0] if len(listed) == 1 else tree.And(tuple(listed))


def _called_as(item: Mapping[str, Any]) -> str:
    """The name of a column inside of FROM; one that cannot be written where it has none."""
    return str(item.get("alias") or [*item.get("column_names", ()), f" {item['query_location']}"][-2:][0])


def _called(node: Mapping[str, Any], found: Aggregate) -> str:
    """The name of an aggregate that has none of its own."""
    name, of = node["function_name"].removesuffix("_star"), "*" if found.of is None else written(found.of)
    return f"{name}({of}{f', {found.level:g}' if 'quantile' in name else ''})"

"""SELECT statements as trees of this language: parsed by DuckDB, in which there are no data, and read by a whitelist.

DuckDB says the statement as nodes. Every field of every node is read here, or must say nothing: an unknown node, or an
unknown word in a known one, is refused by its name. No text of a statement is passed on.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from almoner._check import quoted
from almoner._workspace import apart
from almoner.errors import AlmonerError, ArgumentError
from almoner.queries._language import expressions as tree
from almoner.queries._language.expressions import DEEPEST, LONGEST, Condition, Expression

_SAYS_NOTHING: dict[str, tuple[object, ...]] = {
    "ref_type": ("REGULAR",), "nearest_count": (1,), "nearest_order_type": ("ASCENDING",),
    "aggregate_handling": ("STANDARD_HANDLING",),
}  # fmt: skip
_AGGREGATES = {
    "count": "count", "count_star": "count", "count_if": "count", "countif": "count", "sum": "sum", "avg": "mean",
    "mean": "mean", "var_pop": "variance", "stddev_pop": "variance", "median": "quantile", "quantile_cont": "quantile",
    "approx_quantile": "quantile",
}  # fmt: skip
"""Functions over rows, and the kinds of questions that they are."""
_INSTEAD = {
    "min": "a quantile, as median(x) or quantile_cont(x, 0.01)",
    "max": "a quantile, as quantile_cont(x, 0.99)",
    "var_samp": "var_pop", "variance": "var_pop", "stddev": "stddev_pop", "stddev_samp": "stddev_pop",
    "percentile_cont": "quantile_cont(x, 0.5)", "approx_count_distinct": "queries.Distinct",
    "INTEGER": "round(x), or a CASE of 1 and 0", "BIGINT": "round(x), or a CASE of 1 and 0",
    "SUBQUERY": "each_person= of a question, for a step over each person's rows", "cte_map": "one SELECT",
    "DISTINCT_MODIFIER": "GROUP BY", "SET_OPERATION_NODE": "two statements", "STAR": "the columns, or count(*)",
}  # fmt: skip
_NAMES = {
    **{name: name for name in ("abs", "floor", "round", "lower", "upper", "trim", "length", "substring", "least")},
    "greatest": "greatest", "substr": "substring", "year": "year", "month": "month_of_year", "day": "day",
    "hour": "hour", "isodow": "weekday",
    "exp": "exp", "ln": "ln", "sqrt": "sqrt", "contains": "contains",
}  # fmt: skip
_PARTS = {"year": "year", "month": "month_of_year", "day": "day", "hour": "hour", "isodow": "weekday"}
_TRUNCATED = {"day": "date", "week": "week", "month": "month", "quarter": "quarter"}
_TYPES = {"DOUBLE": "number", "VARCHAR": "text", "TEXT": "text", "DATE": "date"}
_SIGNS = {
    "EQUAL": "=", "NOTEQUAL": "<>", "LESSTHAN": "<", "GREATERTHAN": ">", "LESSTHANOREQUALTO": "<=",
    "GREATERTHANOREQUALTO": ">=",
}  # fmt: skip


_COMPOSED = ("CONJUNCTION_", "COMPARE_", "OPERATOR_NOT", "OPERATOR_IS_", "VALUE_CONSTANT")
"""Nodes that may stand over released columns; beside arithmetic."""


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
    group: tuple[Expression, ...]
    outputs: tuple[tuple[str, Expression | Aggregate], ...]
    """Names and values: keys and aggregates, first the ``shown`` ones, then what only HAVING and ORDER BY name."""
    shown: int
    having: Condition | None
    order: tuple[str, ...]
    limit: tuple[int | None, int]
    """The number of rows, or None, and of those before them that are left out."""


def statement(text: str, tables: Tables | None = None) -> Statement:
    """The SELECT that a text is; ArgumentError, with the word, where it says anything that is not known here."""
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        raise ArgumentError(f"sql must be a SELECT of 1 to {LONGEST} characters")
    try:
        return _Reader(tables or (lambda _: _as_written)).statement(_parsed(text))
    except AlmonerError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError):  # a field that another version of DuckDB does not write
        raise ArgumentError("sql: a word of it is not known here") from None


def _as_written(table: str | None, column: str) -> str:
    return column if table is None else f"{table}.{column}"


@lru_cache(64)
def _parsed(text: str) -> Any:
    """The tree of a text: DuckDB's parser alone sees it, as a parameter, in a connection without data."""
    parse = "SELECT json_serialize_sql(CAST(? AS VARCHAR))"
    ((told,),) = apart(parse, text, refusal="sql must be one SELECT statement")
    found = json.loads(told)
    if found["error"] or len(found["statements"]) != 1:
        why = quoted(found.get("error_message", "several statements"), "it is none", most=200)
        raise ArgumentError(f"sql must be one SELECT statement: {why}")
    (one,) = found["statements"]
    (node,) = _taken(one, "node")
    return node


def _refused(word: str, why: str = "is not known here") -> ArgumentError:
    if word in _INSTEAD:
        return ArgumentError(f"sql: {word!r} {why}; write {_INSTEAD[word]}")
    return ArgumentError(f"sql: {quoted(word, 'a word of it')} {why}; docs/sql.md says what is")


def _taken(node: Mapping[str, Any], *names: str) -> list[Any]:
    """Values of these fields of a node; refused where another one says anything."""
    for name, value in node.items():
        if name in names or name in ("class", "type") or name.startswith("query_location"):
            continue
        if name == "qualified_name":
            if len(value["path"]) != 1:
                raise _refused(".".join(value["path"]))
        elif value not in _SAYS_NOTHING.get(name, ()) and not _empty(value):
            raise _refused(name, "is not taken")
    return [node[name] for name in names]


def _empty(value: object) -> bool:
    if isinstance(value, dict):
        return all(_empty(each) for name, each in value.items() if name != "type")
    return value is None or value is False or value == "" or value == []


class _Reader:
    """Nodes to trees, in the names of one statement's tables."""

    def __init__(self, tables: Tables) -> None:
        self._tables, self._names = tables, dict[str, str]()
        self._outputs: list[tuple[str, Expression | Aggregate]] = []
        self._released = False  # names stand for outputs, too

    def statement(self, node: Any) -> Statement:
        if node["type"] != "SELECT_NODE":
            raise _refused(node["type"])
        by_all = node["aggregate_handling"] == "FORCE_AGGREGATES"
        node = {**node, "aggregate_handling": "STANDARD_HANDLING"} if by_all else node
        selected, source, where, group, sets, having, modifiers = _taken(
            node, "select_list", "from_table", "where_clause", "group_expressions", "group_sets", "having", "modifiers"
        )
        listed = self._from(source)
        self._column = self._tables(tuple(table for table, _, _ in listed))
        joins = tuple(self._join(*each) for each in listed[1:])
        condition = None if where is None else self._condition(where)
        for item in selected:
            self._outputs.append(self._item(item))
        shown = len(self._outputs)
        if len({name for name, _ in self._outputs}) < shown:
            raise ArgumentError("sql: two columns have one name: give names of your own, as in avg(x) AS mean")
        if sets not in ([], [list(range(len(group)))]):
            raise _refused("GROUPING SETS")
        keys = tuple(map(self._key, group))
        if by_all:
            keys = tuple(value for _, value in self._outputs if not isinstance(value, Aggregate))
        for name, value in self._outputs:
            if not isinstance(value, Aggregate) and value not in keys:
                raise ArgumentError(f"sql: {quoted(name, 'a column')} must be an aggregate, or stand in GROUP BY")
        self._outputs += [(written(key), key) for key in keys if key not in [value for _, value in self._outputs]]
        self._released = True
        kept = None if having is None else self._condition(having)
        order, limit = self._modifiers(modifiers, shown)
        return Statement(listed[0][0], joins, condition, keys, tuple(self._outputs), shown, kept, order, limit)

    def _from(self, node: Any) -> list[tuple[str, bool, Any]]:
        """(Table, whether rows without a match stay, what is equal), the first table first."""
        if node["type"] == "BASE_TABLE":
            name, alias = _taken(node, "table_name", "alias")
            if (alias or name).casefold() in self._names:
                raise ArgumentError("sql: each table needs a name of its own")
            self._names[(alias or name).casefold()] = name
            return [(name, True, None)]
        if node["type"] != "JOIN":
            raise _refused(node["type"])
        left, right, on, using, kind = _taken(node, "left", "right", "condition", "using_columns", "join_type")
        if kind not in ("INNER", "LEFT") or right["type"] != "BASE_TABLE" or (on is None and len(using) != 1):
            raise _refused(f"{kind} JOIN", "is not taken as it is written")
        rows, ((name, _, _),) = self._from(left), self._from(right)
        return [*rows, (name, kind == "LEFT", on or using[0])]

    def _join(self, table: str, stays: bool, on: Any) -> Join:
        if isinstance(on, str):
            return table, stays, self._column(None, on), self._column(table, on)
        both = [self._value(side) for side in (_taken(on, "left", "right") if on["type"] == "COMPARE_EQUAL" else ())]
        names = [side.name for side in both if isinstance(side, tree.Column)]
        if len(names) != 2:
            raise _refused("ON", "must be one equality of two columns")
        names.sort(key=lambda name: name.startswith(f"{table}."))
        return table, stays, names[0], names[1]

    def _item(self, node: Any) -> tuple[str, Expression | Aggregate]:
        alias, node = node.get("alias", ""), {**node, "alias": ""}
        value = self._aggregate(node)
        found = value or self._value(node)
        if isinstance(found, Aggregate):
            return alias or _called(node, found), found
        return alias or (found.name if isinstance(found, tree.Column) else written(found)), found

    def _key(self, node: Any) -> Expression:
        """A key of GROUP BY: an expression, the number of a column, or its name."""
        path = [name.casefold() for name in node.get("column_names", ())]
        named = [each for name, each in self._outputs if path == [name.casefold()]]
        value = named[0] if named else self._value(node)
        if isinstance(value, tree.Literal):
            value = self._outputs[self._whole(node, 1, len(self._outputs)) - 1][1]
        if isinstance(value, Aggregate):
            raise ArgumentError("sql: GROUP BY takes no aggregate")
        return value

    def _modifiers(self, nodes: list[Any], shown: int) -> tuple[tuple[str, ...], tuple[int | None, int]]:
        order, most, skipped = list[str](), None, 0
        for node in nodes:
            if node["type"] == "ORDER_MODIFIER":
                for each in _taken(node, "orders")[0]:
                    expression, nulls = _taken(each, "expression", "null_order")
                    value = self._value(expression)
                    if isinstance(value, tree.Literal):
                        value = tree.Column(f"c{self._whole(expression, 1, shown) - 1}")
                    down = {"ORDER_DEFAULT": "", "ASCENDING": "", "DESCENDING": " desc"}[each["type"]]
                    last = {"ORDER_DEFAULT": "last", "NULLS LAST": "last", "NULLS FIRST": "first"}[nulls]
                    order.append(f"{written(value)}{down} nulls {last}")
            elif node["type"] == "LIMIT_MODIFIER" and node["limit_type"] == "ROW_COUNT":
                limit, offset, _ = _taken(node, "limit", "offset", "limit_type")
                most = None if limit is None else self._whole(limit, 0, 2**31)
                skipped = 0 if offset is None else self._whole(offset, 0, 2**31)
            else:
                raise _refused(node["type"])
        return tuple(order), (most, skipped)

    def _whole(self, node: Any, low: int, high: int) -> int:
        value = self._value(node)
        number = value.value if isinstance(value, tree.Literal) else None
        if not isinstance(number, int) or isinstance(number, bool) or not low <= number <= high:
            raise ArgumentError(f"sql: a place or a limit must be a whole number from {low} to {high}")
        return number

    def _aggregate(self, node: Any) -> Aggregate | None:
        """The aggregate that a node is; None where it is none."""
        name = node.get("function_name", "").lower()
        if node["type"] != "FUNCTION" or name not in _AGGREGATES:
            return None
        kind, released, self._released = _AGGREGATES[name], self._released, False  # inside of it are rows
        where, distinct, arguments = _taken({**node, "function_name": ""}, "filter", "distinct", "arguments")
        values = [self._value(*_taken(each, "expression")) for each in arguments]
        filter_ = None if where is None else self._condition(where)
        self._released = released
        wanted = {"count_star": (0,), "count": (0, 1), "quantile_cont": (2,), "approx_quantile": (2,)}.get(name, (1,))
        share = values[1].value if len(values) == 2 and isinstance(values[1], tree.Literal) else 0.5
        if len(values) not in wanted or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise _refused(name, f"takes {' or '.join(map(str, wanted))} values, and shares from 0 to 1")
        of, one, zero = (values[0] if values else None), tree.Literal(1), tree.Literal(0)
        if distinct:
            if kind != "count" or filter_ is not None or of is None:
                raise _refused("DISTINCT", "is for count(DISTINCT person), with a filter in WHERE")
            return Aggregate("people", of)
        if kind == "count" and of is not None:
            of = tree.Case(((tree.Not(tree.IsNull(of)) if name == "count" else _as_condition(of), one),), zero)
        if filter_ is not None:
            of = tree.Case(((filter_, of or one),), None if of else zero)
        return Aggregate("sum" if kind == "count" and of is not None else kind, of, float(share), name == "stddev_pop")

    def _condition(self, node: Any, depth: int = 0) -> Condition:
        return _as_condition(self._value(node, depth))

    def _value(self, node: Any, depth: int = 0) -> Expression:
        """An expression; where columns are released, of these."""
        if depth > DEEPEST:
            raise ArgumentError(f"sql is nested more than {DEEPEST} deep")
        composed = node["type"].startswith(_COMPOSED) or node.get("function_name") in ("+", "-", "*", "/")
        return self._plain(node, depth + 1) if composed or not self._released else self._output(node, depth + 1)

    def _output(self, node: Any, depth: int) -> tree.Column:
        """The released column that a node names: by its name, or as a key or an aggregate, which may be a new one."""
        names, path = [name.casefold() for name, _ in self._outputs], node.get("column_names", [])
        if len(path) == 1 and path[0].casefold() in names:
            return tree.Column(f"c{names.index(path[0].casefold())}")
        found: Expression | Aggregate | None = self._aggregate(node)
        if found is None:
            self._released = False
            found, self._released = self._plain(node, depth), True
        known = [value for _, value in self._outputs]
        if found not in known and not isinstance(found, Aggregate):
            raise _refused("HAVING", "and ORDER BY are about keys, aggregates, numbers and comparisons")
        if isinstance(found, Aggregate) and found not in known:
            self._outputs.append((_called(node, found), found))
        return tree.Column(f"c{[*known, found].index(found)}")

    def _plain(self, node: Any, depth: int) -> Expression:
        kind = node["type"]

        def inside(name: str) -> list[Expression]:
            return [self._value(each, depth) for each in _taken(node, name)[0]]

        match kind:
            case "COLUMN_REF":
                return self._named(*_taken(node, "column_names"))
            case "VALUE_CONSTANT":
                return _literal(*_taken(node, "literal"))
            case "CONJUNCTION_AND" | "CONJUNCTION_OR":
                parts = tuple(map(_as_condition, inside("children")))
                return tree.And(parts) if kind == "CONJUNCTION_AND" else tree.Or(parts)
            case "COMPARE_BETWEEN":
                value, low, high = (self._value(each, depth) for each in _taken(node, "input", "lower", "upper"))
                return tree.And((tree.Compare(">=", value, low), tree.Compare("<=", value, high)))
            case "COMPARE_IN" | "COMPARE_NOT_IN":
                value, *listed = inside("children")
                if not all(isinstance(each, tree.Literal) for each in listed):
                    raise _refused("IN", "takes a list of literals")
                among = tree.In(value, tuple(each for each in listed if isinstance(each, tree.Literal)))
                return among if kind == "COMPARE_IN" else tree.Not(among)
            case "OPERATOR_NOT":
                return tree.Not(*map(_as_condition, inside("children")))
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
        if kind.removeprefix("COMPARE_") in _SIGNS and kind.startswith("COMPARE_"):
            left, right = (self._value(each, depth) for each in _taken(node, "left", "right"))
            return tree.Compare(_SIGNS[kind.removeprefix("COMPARE_")], left, right)
        raise _refused(kind)

    def _named(self, path: list[str]) -> Expression:
        if len(path) > 2 or (len(path) == 2 and path[0].casefold() not in self._names):
            raise _refused(".".join(path))
        table = self._names[path[0].casefold()] if len(path) == 2 else None
        return tree.Column(self._column(table, path[-1]))

    def _case(self, node: Any, depth: int) -> Expression:
        checks, otherwise = _taken(node, "case_checks", "else_expr")
        branches = []
        for check in checks:
            condition, value = _taken(check, "when_expr", "then_expr")
            branches.append((self._condition(condition, depth), self._value(value, depth)))
        none = otherwise is None or otherwise.get("literal", {}).get("kind") == "NULL_LITERAL"
        return tree.Case(tuple(branches), None if none else self._value(otherwise, depth))

    def _cast(self, node: Any, depth: int) -> Expression:
        child, kind, _ = _taken(node, "child", "type_expr", "try_cast")
        (name,), value = _taken(kind, "type_name"), self._value(child, depth)
        if isinstance(value, tree.Literal) and isinstance(value.value, str) and name.upper() in ("DATE", "TIMESTAMP"):
            return value
        if name.upper() not in _TYPES:
            raise _refused(name.upper())
        return tree.Call(_TYPES[name.upper()], (value,))

    def _function(self, node: Any, depth: int) -> Expression:
        name, arguments, _ = _taken(node, "function_name", "arguments", "is_operator")
        values = [self._value(each, depth) for (each,) in (_taken(each, "expression") for each in arguments)]
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
                ours = (_PARTS if called == "date_part" else _TRUNCATED).get(first.lower())
                if ours is not None:
                    return tree.Call(ours, (value,))
            case "date_diff" | "datediff", [_, start, end] if first == "day":
                return tree.Call("days", (start, end))
            case called, _ if called in _NAMES:
                return tree.Call(_NAMES[called], tuple(values))
            case called, _ if called in _AGGREGATES:
                raise ArgumentError("sql: an aggregate must stand alone in its column: compute from the columns")
        raise _refused(name)


def _as_condition(node: Expression) -> Condition:
    if isinstance(node, tree.Literal):
        raise ArgumentError("sql: a literal alone is no condition")
    return node if isinstance(node, Condition) else tree.IsTrue(node)


def _literal(node: Mapping[str, Any]) -> tree.Literal:
    kind, text = _taken(node, "kind", "text")
    read: dict[str, Callable[[str], Any]] = {"INTEGER": int, "NUMERIC": float, "STRING": str, "BOOLEAN": "true".__eq__}
    value = read[kind](text) if kind in read else None
    if value is None or (isinstance(value, int | float) and not -(2**63) <= value < 2**63):
        raise _refused("NULL" if kind == "NULL_LITERAL" else str(text), "is no literal that is taken")
    return tree.Literal(value)


def _called(node: Mapping[str, Any], found: Aggregate) -> str:
    """The name of an aggregate that has none of its own."""
    name, of = node["function_name"].removesuffix("_star"), "*" if found.of is None else written(found.of)
    return f"{name}({of}{f', {found.level:g}' if 'quantile' in name else ''})"


def written(node: Expression) -> str:
    """An expression as text of the language."""
    match node:
        case tree.Column(name):
            plain = re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) and name.lower() not in tree.WORDS
            doubled = name.replace('"', '""')
            return name if plain else f'"{doubled}"'
        case tree.Literal(bool() as value):
            return str(value).lower()
        case tree.Literal(str() as value):
            doubled = value.replace("'", "''")
            return f"'{doubled}'"
        case tree.Literal(value):
            return f"{value!r}"
        case tree.Arithmetic(sign, left, right) | tree.Compare(sign, left, right):
            return f"({written(left)} {sign} {written(right)})"
        case tree.Call(name, arguments):
            return f"{name}({', '.join(map(written, arguments))})"
        case tree.Case(branches, otherwise):
            listed = " ".join(f"when {written(condition)} then {written(value)}" for condition, value in branches)
            return f"case {listed} {'' if otherwise is None else f'else {written(otherwise)} '}end"
        case tree.In(value, among):
            return f"({written(value)} in ({', '.join(map(written, among))}))"
        case tree.Like(value, pattern):
            return f"({written(value)} like {written(tree.Literal(pattern))})"
        case tree.IsNull(value):
            return f"({written(value)} is null)"
        case tree.IsTrue(value):
            return written(value)
        case tree.Not(inside):
            return f"(not {written(inside)})"
        case tree.And(parts) | tree.Or(parts):
            return f"({(' and ' if isinstance(node, tree.And) else ' or ').join(map(written, parts))})"
    raise ArgumentError("sql: an expression is missing")

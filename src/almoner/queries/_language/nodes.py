"""Nodes that DuckDB's parser makes of SELECT statements: the words that are known, and expressions as text.

Every field of every node is read, or must say nothing: an unknown node, or an unknown word in a known one, is refused
by its name. No text of a statement is passed on.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from almoner._check import quoted, similar
from almoner._workspace import apart, text
from almoner._workspace import quoted as in_quotes
from almoner.errors import ArgumentError
from almoner.queries._language import expressions as tree
from almoner.queries._language.expressions import Expression

_SAYS_NOTHING: dict[str, tuple[object, ...]] = {
    "ref_type": ("REGULAR",), "nearest_count": (1,), "nearest_order_type": ("ASCENDING",),
    "aggregate_handling": ("STANDARD_HANDLING",), "cte_map": ({"map": []},),
    "materialized": ("CTE_MATERIALIZE_DEFAULT", "CTE_MATERIALIZE_ALWAYS", "CTE_MATERIALIZE_NEVER"),
}  # fmt: skip
AGGREGATES = {
    "count": "count", "count_star": "count", "count_if": "count", "countif": "count", "sum": "sum", "avg": "mean",
    "mean": "mean", "var_pop": "variance", "stddev_pop": "variance", "median": "quantile", "quantile_cont": "quantile",
    "approx_quantile": "quantile",
}  # fmt: skip
"""Functions over rows, and the kinds of questions that they are."""
STEPS = {
    **{name: kind for name, kind in AGGREGATES.items() if kind in ("count", "sum", "mean")}, "min": "min",
    "max": "max", "bool_or": "any", "bool_and": "all", "arg_min": "first", "min_by": "first", "argmin": "first",
    "arg_max": "last", "max_by": "last", "argmax": "last",
}  # fmt: skip
"""Functions over a person's rows, and the steps that they are."""
_INSTEAD = {
    "min": "`quantile_cont(x, 0.01)`", "max": "`quantile_cont(x, 0.99)`",
    "var_samp": "`var_pop`", "variance": "`var_pop`", "stddev": "`stddev_pop`", "stddev_samp": "`stddev_pop`",
    "percentile_cont": "`quantile_cont(x, 0.5)`", "approx_count_distinct": "queries.Distinct",
    "INTEGER": "`round(x)`, or a CASE of 1 and 0", "BIGINT": "`round(x)`, or a CASE of 1 and 0",
    "SUBQUERY": "WITH t AS (SELECT person, count(*) AS n FROM ... GROUP BY person) SELECT ... FROM t WHERE n > 3",
    "DISTINCT_MODIFIER": "GROUP BY", "SET_OPERATION_NODE": "two statements", "STAR": "`count(*)`, or sums and means",
    "RECURSIVE_CTE_NODE": "WITH without RECURSIVE", "~~*": "`lower(x) LIKE 'a%'`", "!~~*": "`lower(x) NOT LIKE 'a%'`",
    "dayofweek": "`isodow(x)`", "dow": "`isodow(x)`", "quarter": "`date_trunc('quarter', x)`",
    "strftime": "`date_trunc('month', x)`, or year(x)", "ceil": "`-floor(-x)`",
    "nullif": "`CASE WHEN x <> 0 THEN x END`",
    "WINDOW_AGGREGATE": "a question with beside={'n': 'count()'}, of all rows of a person; or ask, and use to_pandas()",
}  # fmt: skip
NAMES = {
    **{name: name for name in ("abs", "floor", "round", "lower", "upper", "trim", "length", "substring", "least")},
    "greatest": "greatest", "substr": "substring", "year": "year", "month": "month_of_year", "day": "day",
    "hour": "hour", "isodow": "weekday",
    "exp": "exp", "ln": "ln", "sqrt": "sqrt", "contains": "contains",
}  # fmt: skip
PARTS = {"year": "year", "month": "month_of_year", "day": "day", "hour": "hour", "isodow": "weekday"}
TRUNCATED = {"day": "date", "week": "week", "month": "month", "quarter": "quarter"}
TYPES = {"DOUBLE": "number", "VARCHAR": "text", "TEXT": "text", "DATE": "date"}
SIGNS = {
    "EQUAL": "=", "NOTEQUAL": "<>", "LESSTHAN": "<", "GREATERTHAN": ">", "LESSTHANOREQUALTO": "<=",
    "GREATERTHANOREQUALTO": ">=",
}  # fmt: skip


COMPOSED = ("CONJUNCTION_", "COMPARE_", "OPERATOR_NOT", "OPERATOR_IS_", "VALUE_CONSTANT")
"""Nodes that may stand over released columns; beside arithmetic."""


@lru_cache(64)
def parsed(sql: str) -> Any:
    """The tree of a text: DuckDB's parser alone sees it, as a parameter, in a connection without data."""
    parse = "SELECT json_serialize_sql(CAST(? AS VARCHAR))"
    ((told,),) = apart(parse, sql, refusal="sql must be one SELECT statement")
    found = json.loads(told)
    if found["error"] or len(found["statements"]) != 1:
        why = quoted(found.get("error_message", "several statements"), "it is none", most=200)
        word = re.search(r'near "(\w+)"', why)
        words = ("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "COUNT", "DISTINCT")
        near = similar(word[1].upper(), words) if word else ""
        raise ArgumentError(f"sql must be one SELECT statement: {why}{near}")
    (one,) = found["statements"]
    (node,) = taken(one, "node")
    return node


def refused(word: str, why: str = "is not known here") -> ArgumentError:
    if word in _INSTEAD:
        return ArgumentError(f"sql: {word!r} {why}; write {_INSTEAD[word]}")
    return ArgumentError(f"sql: {quoted(word, 'a word of it')} {why}; docs/sql.md says what is")


def taken(node: Mapping[str, Any], *names: str) -> list[Any]:
    """Values of these fields of a node; refused where another one says anything."""
    for name, value in node.items():
        if name in names or name in ("class", "type") or name.startswith("query_location"):
            continue
        if name == "qualified_name":
            if len(value["path"]) != 1:
                raise refused(".".join(value["path"]))
        elif value not in _SAYS_NOTHING.get(name, ()) and not _empty(value):
            raise refused(name, "is not taken")
    return [node[name] for name in names]


def _empty(value: object) -> bool:
    if isinstance(value, dict):
        return all(_empty(each) for name, each in value.items() if name != "type")
    return value is None or value is False or value == "" or value == []


def literal(node: Mapping[str, Any]) -> tree.Literal:
    kind, spelled = taken(node, "kind", "text")
    read: dict[str, Callable[[str], Any]] = {"INTEGER": int, "NUMERIC": float, "STRING": str, "BOOLEAN": "true".__eq__}
    value = read[kind](spelled) if kind in read else None
    if value is None or (isinstance(value, int | float) and not -(2**63) <= value < 2**63):
        raise refused("NULL" if kind == "NULL_LITERAL" else str(spelled), "is no literal that is taken")
    return tree.Literal(value)


def column(node: Expression | None) -> str:
    """The name of a column, or an expression as text."""
    return node.name if isinstance(node, tree.Column) else "" if node is None else written(node)


def written(node: Expression) -> str:
    match node:
        case tree.Column(name) if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name) and name.lower() not in tree.WORDS:
            return name
        case tree.Column(name):
            return in_quotes(name)
        case tree.Literal(str() as value):
            return text(value)
        case tree.Literal(value):
            return str(value).lower() if isinstance(value, bool) else f"{value!r}"
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
            return f"({written(value)} like {text(pattern)})"
        case tree.IsNull(value):
            return f"({written(value)} is null)"
        case tree.IsTrue(value):
            return written(value)
        case tree.Not(inside):
            return f"(not {written(inside)})"
        case tree.And(parts) | tree.Or(parts):
            return f"({(' and ' if isinstance(node, tree.And) else ' or ').join(map(written, parts))})"
    raise ArgumentError("sql: an expression is missing")

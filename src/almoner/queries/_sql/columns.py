"""Columns, literals, expressions and keys as SQL, spelled as the dialect does. No entry can fail a type.

Every column is of one kind: whole, number, text, bool, date or time. The kind of a column that questions cannot use is
the name of its type; a refusal tells the data holder the line to write, which loses no entry.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from math import nan
from typing import Literal as OneOf
from typing import NamedTuple, Self

from almoner import _check, _workspace
from almoner.errors import ArgumentError
from almoner.queries._language import expressions as tree
from almoner.queries._sql.dialects import Dialect, Literal, Sql, double, filled

Wanted = OneOf["question", "person", "text"]
"""Uses of a column that its type does not allow: in questions, as a name of people, as a name that is a text."""
Cure = Callable[[str, str, Wanted], str]  # the line to write, for a column, its type and what is wanted
ZONED = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
_CASTS = {
    "BLOB": "hex({0})",
    **dict.fromkeys(("STRUCT", "LIST", "ARRAY", "MAP", "UNION"), "CAST(to_json({0}) AS VARCHAR)"),
}
# NaN is nobody's name, 0 and -0 are one; times do not depend on a setting
_PEOPLE = {
    **dict.fromkeys(("FLOAT", "DOUBLE"), "CAST(nullif({0} + 0, 'nan') AS VARCHAR)"),
    **dict.fromkeys(ZONED, "CAST({0} AT TIME ZONE 'UTC' AS VARCHAR)"),
}


class Unusable(str):
    """The kind of a column that questions cannot use: the name of its type; with the line to write, of a plugin."""

    cure: str

    def __new__(cls, sql_type: str, cure: str) -> Self:
        made = super().__new__(cls, sql_type)
        made.cure = cure
        return made


def shown_type(sql_type: str) -> str:
    """The name of a type, without what it is made of: the values of an ENUM are entries of the data."""
    if sql_type.endswith("]"):
        return "LIST" if sql_type.endswith("[]") else "ARRAY"
    if re.fullmatch(r"(?i)decimal\(\d+,-?\d+\)", sql_type):
        return sql_type
    return re.split("[(<]", sql_type)[0].strip('" ')


def cure_of(column: str, sql_type: str, wanted: Wanted) -> str:
    """Line to write so that a column of DuckDB can be used, whose entries that are there stay apart."""
    if sql_type in ZONED and wanted == "question":
        return "`Table(data, zone='UTC')`, or another zone such as 'Europe/Berlin'"
    known = {"question": _CASTS, "person": _CASTS | _PEOPLE, "text": {}}[wanted]
    return recast(column, known.get(shown_type(sql_type).partition("(")[0], "CAST({0} AS VARCHAR)"))


def as_dates(column: str, sql_type: str) -> str:
    """Line to write so that a column of DuckDB holds dates or times."""
    if sql_type in ZONED:
        return cure_of(column, sql_type, "question")
    if sql_type == "VARCHAR":
        return recast(column, "CAST({0} AS DATE)") + ", if it is spelled like 2011-12-09"
    return recast(column, "make_timestamp(CAST({0} * 1000000 AS BIGINT))") + ", if it holds seconds since 1970"


def recast(column: str, expression: str) -> str:
    """A line that puts an expression of DuckDB, with {0} for the column, in the column's place."""
    name = _workspace.quoted(column)
    return f"Table(data, view={f'SELECT * REPLACE ({expression.format(name)} AS {name}) FROM data'!r})"


_NAN = double(nan)
_KINDS = ("whole", "number", "text", "bool", "date", "time")
_KIND_OF = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"), "whole"),
    **dict.fromkeys(("UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE"), "number"),
    **dict.fromkeys(("VARCHAR", "UUID"), "text"),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "time"),
    "BOOLEAN": "bool",
    "DATE": "date",
}


def kind_of_type(sql_type: str) -> str:
    """The kind of a column from DuckDB's name of its type; that name where questions cannot use it."""
    if re.fullmatch(r"DECIMAL\(\d+,\d+\)", sql_type):
        return "number"
    if sql_type.startswith("ENUM(") and sql_type.endswith(")"):
        return "text"
    return _KIND_OF.get(sql_type, shown_type(sql_type))


_CHECKED = {"number text": "finite", "date text": "dated", "exp": "finite"}
"""Properties that results of functions are checked for."""


class FilterCompiler:
    """Expressions as SQL over the alias ``d``: types are checked by the kinds of columns, and no entry fails."""

    def __init__(self, kinds: Mapping[str, str], dialect: Dialect, name: str = "where") -> None:
        self.kinds = kinds
        self.dialect = dialect
        self._name = name
        self._values: dict[int, tuple[tree.Expression, tuple[str, Sql]]] = {}

    def value(self, node: tree.Expression) -> tuple[str, Sql]:
        """The kind of an expression, and its SQL."""
        if id(node) not in self._values:  # each node once, also where its kind is asked for first
            self._values[id(node)] = node, self._value(node)
        return self._values[id(node)][1]

    def _value(self, node: tree.Expression) -> tuple[str, Sql]:
        if isinstance(node, tree.Literal):
            kind = _kind_of_literal(node.value)
            return kind, self._as(node, kind)
        match node:
            case tree.Column():
                kind = kind_of(node.name, self.kinds, value=True)
                return kind, Sql(cast(node.name, kind, self.dialect))
            case tree.Arithmetic():
                return "number", self._filled("finite", self._computed(node))
            case tree.Call():
                return self._call(node)
            case tree.Case():
                return self._case(node)
        return "bool", self._condition(node)

    def _computed(self, node: tree.Expression) -> Sql:
        """Arithmetic in doubles, whose result may be infinite or NaN; then so is all that it is added to or divided."""
        if not isinstance(node, tree.Arithmetic):
            return self._as(node, "number")
        left, right = self._computed(node.left), self._computed(node.right)
        divisor = node.sign == "/" and not (isinstance(node.right, tree.Literal) and node.right.value)
        return self._filled(node.sign, left, self._filled("divisor", right) if divisor else right)

    def _condition(self, node: tree.Expression) -> Sql:
        match node:
            case tree.And() | tree.Or():
                word = " AND " if isinstance(node, tree.And) else " OR "
                return joined(word, [self._condition(part) for part in node.parts])
            case tree.Not():
                return around("(NOT ", self._condition(node.of), ")")
            case tree.IsNull():
                return around("(", self.value(node.column)[1], " IS NULL)")
            case tree.IsTrue():
                kind, value = self.value(node.column)
                if kind != "bool":
                    shown = f"column {node.column.name!r}" if isinstance(node.column, tree.Column) else "an expression"
                    raise ArgumentError(f"{self._name}: {shown} holds no truth values; compare it")
                return value
            case tree.In():
                kind = self._common((node.column, *node.values), "compared")
                listed = joined(", ", [self._as(value, kind) for value in node.values])
                return joined(" IN ", [self._as(node.column, kind), listed])
            case tree.Like():
                regex = self.constant(self.dialect.regex(node.pattern))
                return self._filled("like", self._as(node.column, "text"), regex)
            case tree.Compare():
                kind = self._common((node.left, node.right), "compared")
                return joined(f" {node.sign} ", [self._as(node.left, kind), self._as(node.right, kind)])
        raise ArgumentError(f"{self._name}: a condition is missing")

    def _call(self, node: tree.Call) -> tuple[str, Sql]:
        name, arguments = node.name, node.arguments
        if name in ("coalesce", "least", "greatest"):
            if not arguments:
                raise ArgumentError(f"{self._name}: {name}() needs values")
            kind = self._common(arguments, f"in one {name}()")
            if len(arguments) == 1:
                return kind, self._as(arguments[0], kind)
            return kind, self.lettered(kind, around(name, joined(", ", [self._as(each, kind) for each in arguments])))
        self._check_literals(node)
        chosen = self._chosen(node)
        pieces = [self._as(each, kind) for each, kind in zip(arguments, chosen.takes, strict=True)]
        if name == "bucket":
            share = self._filled("finite", self._filled("/", *pieces))
            return "number", self._filled("finite", self._filled("*", self._filled("floor", share), pieces[1]))
        takes = zip(pieces, chosen.takes, strict=True)  # dates of the years 1 to 9999; others are missing
        pieces = [self._filled("dated", piece) if kind == "date" else piece for piece, kind in takes]
        if chosen.template == "whole number":
            pieces = [self._filled("round", *pieces)]
        if name in ("lower", "upper") and self.dialect.case_tables is not None:
            pieces += [self.constant(letters) for letters in self.dialect.case_tables(name)]
        result = self._filled(chosen.template, *pieces)
        if chosen.template in _CHECKED:
            result = self._filled(_CHECKED[chosen.template], result)
        return chosen.gives, self.lettered(chosen.gives, result)

    def _chosen(self, node: tree.Call) -> tree.Signature:
        """The form of a function that takes these arguments."""
        forms = [each for each in tree.SIGNATURES[node.name] if len(each.takes) == len(node.arguments)]
        kinds = [None if isinstance(each, tree.Literal) else self.value(each)[0] for each in node.arguments]
        similar = {("whole", "number"), *[("time", "date")] * (node.name != "text")}  # literals are checked when read
        for form in forms:
            pairs = list(zip(kinds, form.takes, strict=True))
            if all(kind in (None, wanted) or (kind, wanted) in similar for kind, wanted in pairs):
                return form
        wanted = " or ".join(f"{node.name}({', '.join(each.takes)})" for each in tree.SIGNATURES[node.name])
        shown = ", ".join("literal" if kind is None else kind for kind in kinds)
        raise ArgumentError(f"{self._name}: there is {wanted}, but no {node.name}({shown})")

    def _check_literals(self, node: tree.Call) -> None:
        """Places and widths are literals: they are checked here, and not for each entry."""
        listed = node.arguments[1:] if node.name in ("substring", "bucket") else ()
        for each in listed:
            value = each.value if isinstance(each, tree.Literal) else None
            width = isinstance(value, int | float) and not isinstance(value, bool) and 1e-100 <= value <= 1e100
            place = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**6
            if not (width if node.name == "bucket" else place):
                what = "a width above 0" if node.name == "bucket" else "places that are whole numbers from 1"
                raise ArgumentError(f"{self._name}: {node.name}() takes {what}")

    def _case(self, node: tree.Case) -> tuple[str, Sql]:
        values = [value for _, value in node.branches] + ([] if node.otherwise is None else [node.otherwise])
        kind = self._common(values, "in one case")
        pieces = [
            joined(" THEN ", [self._condition(condition), self._as(value, kind)], brackets=False)
            for condition, value in node.branches
        ]
        listed = around("(CASE WHEN ", joined(" WHEN ", pieces, brackets=False), "")
        both = [listed, *([] if node.otherwise is None else [self._as(node.otherwise, kind)])]
        return kind, self.lettered(kind, around("", joined(" ELSE ", both, brackets=False), " END)"))

    def _common(self, nodes: Sequence[tree.Expression], what: str) -> str:
        """The kind in which values meet: that of those that are no literals, if there are any."""
        kinds = {self.value(node)[0] for node in nodes if not isinstance(node, tree.Literal)}
        values = [node.value for node in nodes if isinstance(node, tree.Literal)]
        if not kinds:
            kinds = {_kind_of_literal(value) for value in values}
        if kinds == {"date", "time"}:
            kinds = {"time"}
        if len(kinds) > 1 and kinds != {"whole", "number"}:
            date = "; a date stands in quotes, as `'2026-01-31'`" if kinds & {"date", "time"} else ""
            raise ArgumentError(f"{self._name}: values of kinds {' and '.join(sorted(kinds))} cannot be {what}{date}")
        kind = min(kinds)  # "number" comes before "whole"
        return "number" if kind == "whole" and any(isinstance(value, float) for value in values) else kind

    def _as(self, node: tree.Expression, kind: str) -> Sql:
        """A value of this kind; whole numbers are numbers too, and times have dates."""
        if isinstance(node, tree.Literal):
            return self.constant(literal(node.value, kind))
        if isinstance(node, tree.Column) and {kind_of(node.name, self.kinds), kind} <= {"whole", "number"}:
            return Sql(cast(node.name, kind, self.dialect))
        own, value = self.value(node)
        if own == kind:
            return value
        if (own, kind) == ("whole", "number"):
            return around("CAST(", value, " AS DOUBLE)")
        if (own, kind) == ("time", "date"):
            return self._filled("date of time", value)
        if (own, kind) == ("date", "time"):
            return around("CAST(", self._filled("dated", value), f" AS {self.dialect.types['time']})")
        raise ArgumentError(f"{self._name}: a {kind} is needed where there is a {own}")

    def lettered(self, kind: str, value: Sql) -> Sql:
        """A value of this kind; a text that equals another one only letter by letter."""
        return filled(self.dialect.letters, value, bound=self.dialect.bound) if kind == "text" else value

    def _filled(self, name: str, *pieces: Sql) -> Sql:
        return filled(self.dialect.functions[name], *pieces, bound=self.dialect.bound)

    def constant(self, value: Literal) -> Sql:
        """A literal as the dialect spells it, or as a parameter."""
        parameters: list[object] = []
        return Sql(self.dialect.literal(value, parameters), tuple(parameters))


def around(before: str, piece: Sql, after: str = "") -> Sql:
    return Sql(f"{before}{piece.text}{after}", piece.parameters)


def joined(word: str, pieces: Sequence[Sql], *, brackets: bool = True) -> Sql:
    text = word.join(piece.text for piece in pieces)
    return Sql(f"({text})" if brackets else text, tuple(each for piece in pieces for each in piece.parameters))


def _kind_of_literal(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return "whole" if isinstance(value, int) else "number" if isinstance(value, float) else "text"


def kind_of(name: str, kinds: Mapping[str, str], *, value: bool = False) -> str:
    """The kind of a column; refuses those that are not there, or of a type that questions cannot use."""
    try:
        kind = kinds[name]  # another table's column says itself why it cannot be joined
    except KeyError:
        near = _check.similar(name, kinds, f"; a text stands in quotes: `'{name}'`" if value else "")
        raise ArgumentError(f"column {name!r} is not in the data{near}") from None
    check_usable(name, kind, name)
    return kind


def check_usable(name: str, kind: str, column: str) -> None:
    """Refuse a column of a type that questions cannot use; ``name`` is as the question has it."""
    if kind not in _KINDS:
        line = getattr(kind, "cure", None) or cure_of(column, kind, "question")
        raise ArgumentError(
            f"column {name!r} is of type {kind}: questions take numbers, texts, truth values, dates, and times without "
            f"a zone. The data holder opens the table with {line}"
        )


def cast(name: str, kind: str, dialect: Dialect) -> str:
    """A column as SQL of one type for each kind; entries that do not fit, and NaN, are missing."""
    entry = f"TRY_CAST({dialect.columns[name]} AS {dialect.types[kind]})"
    if kind == "text":
        return dialect.letters.format(entry)
    return f"nullif({entry}, {_NAN})" if kind == "number" else entry


def literal(value: object, kind: str) -> Literal:
    try:
        match kind:
            case "number" if isinstance(value, int | float) and not isinstance(value, bool) and value == value:
                return float(value)
            case "whole" if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
                return int(value)
            case "text" if isinstance(value, str):
                value.encode()  # refuses halves of characters
                return value
            case "bool" if isinstance(value, bool):
                return value
            case "date" if isinstance(value, date) and not isinstance(value, datetime):
                return value
            case "date" if isinstance(value, str):
                return date.fromisoformat(value)
            case "time" if isinstance(value, str):
                value = datetime.fromisoformat(value)
        if kind == "time" and isinstance(value, datetime) and value.tzinfo is None:
            return value
    except (ValueError, OverflowError):
        pass
    raise ArgumentError(f"{_check.quoted(value)} cannot be compared with a column of kind {kind}")


CELLS = "cells"  # name of the table of each person's contribution to each cell, where it is not beside the prices
KEY_KINDS = {"whole": "BIGINT", "text": "VARCHAR", "bool": "BOOLEAN", "date": "DATE"}
"""The kinds of columns whose entries may be keys, each with the type of a table of them."""


class Keys(NamedTuple):
    """A table of the keys of one column to group by: its name, the type of the keys, the keys in their order."""

    table: str
    kind: str
    values: tuple[object, ...]

    def to_make(self) -> _workspace.TempTable:
        """The table in a workspace."""
        sql = f"SELECT unnest(CAST(? AS {self.kind}[])) AS key, unnest(range({len(self.values):d})) AS place"
        return _workspace.TempTable(self.table, sql, ([*self.values],))


def keys_of(
    name: str, column: str, keys: tuple[object, ...], kinds: Mapping[str, str], sql: Dialect
) -> tuple[Keys, str]:
    """A table of keys, and the join that gives it to each row under its name as an alias: key, place."""
    if kind_of(column, kinds) == "number" and tree.is_whole(column):
        column = f"whole({column})"
    kind = key_kind(column, kinds)
    values = tuple(literal(key, kind) for key in keys)
    if len(set(values)) < len(values):
        raise ArgumentError(f"by: two keys of column {column!r} are the same")
    join = f"JOIN {sql.table.format(name)} {name}_k ON {name}_k.key = {cast(column, kind, sql)}"
    return Keys(name, KEY_KINDS[kind], values), join


def key_kind(column: str, kinds: Mapping[str, str]) -> str:
    """The kind of a column whose entries are keys; refuses others."""
    kind = kind_of(column, kinds)
    if kind not in KEY_KINDS:
        raise ArgumentError(f"by: column {column!r} is of kind {kind}; group by text, whole, bool, date, or by ranges")
    return kind

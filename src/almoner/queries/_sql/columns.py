"""Columns, literals and expressions as SQL, spelled as the dialect does. No entry can fail a type.

Every column is of one kind: whole, number, text, bool, date or time. The kind of a column that questions cannot use is
the name of its type.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from math import nan

from almoner._check import quoted
from almoner.errors import ArgumentError
from almoner.queries._language.expressions import (
    And,
    Arithmetic,
    Call,
    Case,
    Column,
    Compare,
    Condition,
    Expression,
    In,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Not,
    Or,
)
from almoner.queries._sql.cures import cure_of, shown_type
from almoner.queries._sql.dialects import Dialect, double
from almoner.queries._sql.dialects import Literal as Value
from almoner.queries._sql.functions import SIGNATURES, Signature, Sql, filled

__all__ = ["FilterCompiler", "cast", "check_usable", "kind_of", "kind_of_type", "literal"]


_NAN = double(nan)
_KINDS = ("whole", "number", "text", "bool", "date", "time")


def kind_of_type(sql_type: str) -> str:
    """The kind of a column from DuckDB's name of its type; that name where questions cannot use it."""
    if sql_type in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"):
        return "whole"
    if sql_type in ("UBIGINT", "HUGEINT", "UHUGEINT", "FLOAT", "DOUBLE") or re.fullmatch(
        r"DECIMAL\(\d+,\d+\)", sql_type
    ):
        return "number"
    if sql_type in ("VARCHAR", "UUID") or (sql_type.startswith("ENUM(") and sql_type.endswith(")")):
        return "text"
    if sql_type in ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"):
        return "time"
    return {"BOOLEAN": "bool", "DATE": "date"}.get(sql_type, shown_type(sql_type))


_CHECKED = {"number text": "finite", "date text": "dated"}
"""Properties that results of functions are checked for."""


class FilterCompiler:
    """Expressions as SQL over the alias ``d``, given the kinds of the columns (whole, number, text, bool, date, time).

    Types are checked here, against the kinds of the columns; nothing here can fail on an entry.
    """

    def __init__(self, kinds: Mapping[str, str], dialect: Dialect, name: str = "where") -> None:
        self.kinds = kinds
        self.dialect = dialect
        self._name = name
        self._values: dict[int, tuple[Expression, tuple[str, Sql]]] = {}
        self.parameters: list[object] = []

    def sql(self, filter_: Condition) -> str:
        """A condition; the literals that the dialect does not write down are appended to ``parameters`` in order."""
        condition = self._condition(filter_)
        self.parameters += condition.parameters
        return condition.text

    def value(self, node: Expression) -> tuple[str, Sql]:
        """The kind of an expression, and its SQL."""
        if id(node) not in self._values:  # each node once, also where its kind is asked for first
            self._values[id(node)] = node, self._value(node)
        return self._values[id(node)][1]

    def _value(self, node: Expression) -> tuple[str, Sql]:
        if isinstance(node, Literal):
            kind = _kind_of_literal(node.value)
            return kind, self._as(node, kind)
        match node:
            case Column():
                kind = kind_of(node.name, self.kinds)
                return kind, Sql(cast(node.name, kind, self.dialect))
            case Arithmetic():
                return "number", self._filled("finite", self._computed(node))
            case Call():
                return self._call(node)
            case Case():
                return self._case(node)
        return "bool", self._condition(node)

    def _computed(self, node: Expression) -> Sql:
        """Arithmetic in doubles, whose result may be infinite or NaN; then so is all that it is added to or divided."""
        if not isinstance(node, Arithmetic):
            return self._as(node, "number")
        left, right = self._computed(node.left), self._computed(node.right)
        divisor = node.sign == "/" and not (isinstance(node.right, Literal) and node.right.value)
        return self._filled(node.sign, left, self._filled("divisor", right) if divisor else right)

    def _condition(self, node: Expression) -> Sql:
        match node:
            case And() | Or():
                word = " AND " if isinstance(node, And) else " OR "
                return _joined(word, [self._condition(part) for part in node.parts])
            case Not():
                return _around("(NOT ", self._condition(node.of), ")")
            case IsNull():
                return _around("(", self.value(node.column)[1], " IS NULL)")
            case IsTrue():
                kind, value = self.value(node.column)
                if kind != "bool":
                    shown = f"column {node.column.name!r}" if isinstance(node.column, Column) else "an expression"
                    raise ArgumentError(f"{self._name}: {shown} holds no truth values; compare it")
                return value
            case In():
                kind = self._common((node.column, *node.values), "compared")
                listed = _joined(", ", [self._as(value, kind) for value in node.values])
                return _joined(" IN ", [self._as(node.column, kind), listed])
            case Like():
                regex = self._literal(self.dialect.regex(node.pattern))
                return self._filled("like", self._as(node.column, "text"), regex)
            case Compare():
                kind = self._common((node.left, node.right), "compared")
                return _joined(f" {node.sign} ", [self._as(node.left, kind), self._as(node.right, kind)])
        raise ArgumentError(f"{self._name}: a condition is missing")

    def _call(self, node: Call) -> tuple[str, Sql]:
        name, arguments = node.name, node.arguments
        if name in ("coalesce", "least", "greatest"):
            if not arguments:
                raise ArgumentError(f"{self._name}: {name}() needs values")
            kind = self._common(arguments, f"in one {name}()")
            if len(arguments) == 1:
                return kind, self._as(arguments[0], kind)
            return kind, self.lettered(kind, _around(name, _joined(", ", [self._as(each, kind) for each in arguments])))
        self._check_literals(node)
        chosen = self._chosen(node)
        pieces = [self._as(each, kind) for each, kind in zip(arguments, chosen.takes, strict=True)]
        if name == "bucket":
            share = self._filled("finite", self._filled("/", *pieces))
            return "number", self._filled("finite", self._filled("*", self._filled("floor", share), pieces[1]))
        pieces = [
            self._dated(piece) if kind == "date" else piece for piece, kind in zip(pieces, chosen.takes, strict=True)
        ]
        if chosen.template == "whole number":
            pieces = [self._filled("round", *pieces)]
        if name in ("lower", "upper") and self.dialect.case_tables is not None:
            pieces += [self._literal(letters) for letters in self.dialect.case_tables(name)]
        result = self._filled(chosen.template, *pieces)
        if chosen.template in _CHECKED:
            result = self._filled(_CHECKED[chosen.template], result)
        return chosen.gives, self.lettered(chosen.gives, result)

    def _chosen(self, node: Call) -> Signature:
        """The form of a function that takes these arguments."""
        forms = [each for each in SIGNATURES[node.name] if len(each.takes) == len(node.arguments)]
        kinds = [None if isinstance(each, Literal) else self.value(each)[0] for each in node.arguments]
        for form in forms:
            if all(_fits(kind, wanted) for kind, wanted in zip(kinds, form.takes, strict=True)):
                return form
        wanted = " or ".join(f"{node.name}({', '.join(each.takes)})" for each in SIGNATURES[node.name])
        shown = ", ".join("literal" if kind is None else kind for kind in kinds)
        raise ArgumentError(f"{self._name}: there is {wanted}, but no {node.name}({shown})")

    def _check_literals(self, node: Call) -> None:
        """Places and widths are literals: they are checked here, and not for each entry."""
        listed = node.arguments[1:] if node.name in ("substring", "bucket") else ()
        for each in listed:
            value = each.value if isinstance(each, Literal) else None
            width = isinstance(value, int | float) and not isinstance(value, bool) and 1e-100 <= value <= 1e100
            place = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 10**6
            if not (width if node.name == "bucket" else place):
                what = "a width above 0" if node.name == "bucket" else "places that are whole numbers from 1"
                raise ArgumentError(f"{self._name}: {node.name}() takes {what}")

    def _case(self, node: Case) -> tuple[str, Sql]:
        values = [value for _, value in node.branches] + ([] if node.otherwise is None else [node.otherwise])
        kind = self._common(values, "in one case")
        pieces = [
            _joined(" THEN ", [self._condition(condition), self._as(value, kind)], brackets=False)
            for condition, value in node.branches
        ]
        listed = _around("(CASE WHEN ", _joined(" WHEN ", pieces, brackets=False), "")
        if node.otherwise is None:
            return kind, self.lettered(kind, _around("", listed, " END)"))
        both = [listed, self._as(node.otherwise, kind)]
        return kind, self.lettered(kind, _around("", _joined(" ELSE ", both, brackets=False), " END)"))

    def _common(self, nodes: Sequence[Expression], what: str) -> str:
        """The kind in which values meet: that of those that are no literals, if there are any."""
        kinds = {self.value(node)[0] for node in nodes if not isinstance(node, Literal)}
        values = [node.value for node in nodes if isinstance(node, Literal)]
        if not kinds:
            kinds = {_kind_of_literal(value) for value in values}
        if kinds == {"date", "time"}:
            kinds = {"time"}
        if len(kinds) > 1 and kinds != {"whole", "number"}:
            raise ArgumentError(
                f"{self._name}: columns or values of kinds {' and '.join(sorted(kinds))} cannot be {what}"
            )
        kind = min(kinds)  # "number" comes before "whole"
        return "number" if kind == "whole" and any(isinstance(value, float) for value in values) else kind

    def _as(self, node: Expression, kind: str) -> Sql:
        """A value of this kind; whole numbers are numbers too, and times have dates."""
        if isinstance(node, Literal):
            return self._literal(literal(node.value, kind))
        if isinstance(node, Column) and {kind_of(node.name, self.kinds), kind} <= {"whole", "number"}:
            return Sql(cast(node.name, kind, self.dialect))
        own, value = self.value(node)
        if own == kind:
            return value
        if (own, kind) == ("whole", "number"):
            return _around("CAST(", value, " AS DOUBLE)")
        if (own, kind) == ("time", "date"):
            return self._filled("date of time", value)
        if (own, kind) == ("date", "time"):
            return _around("CAST(", value, f" AS {self.dialect.types['time']})")
        raise ArgumentError(f"{self._name}: a {kind} is needed where there is a {own}")

    def _dated(self, value: Sql) -> Sql:
        """A date of the years 1 to 9999; others are missing."""
        return self._filled("dated", value)

    def lettered(self, kind: str, value: Sql) -> Sql:
        """A value of this kind; a text that equals another one only letter by letter."""
        return filled(self.dialect.letters, value, bound=self.dialect.bound) if kind == "text" else value

    def _filled(self, name: str, *pieces: Sql) -> Sql:
        return filled(self.dialect.functions[name], *pieces, bound=self.dialect.bound)

    def _literal(self, value: Value) -> Sql:
        parameters: list[object] = []
        return Sql(self.dialect.literal(value, parameters), tuple(parameters))


def _around(before: str, piece: Sql, after: str = "") -> Sql:
    return Sql(f"{before}{piece.text}{after}", piece.parameters)


def _joined(word: str, pieces: Sequence[Sql], *, brackets: bool = True) -> Sql:
    text = word.join(piece.text for piece in pieces)
    parameters = tuple(each for piece in pieces for each in piece.parameters)
    return Sql(f"({text})" if brackets else text, parameters)


def _fits(kind: str | None, wanted: str) -> bool:
    """True if a value of a kind may stand where another one is wanted; literals are checked when they are read."""
    return kind is None or kind == wanted or (kind, wanted) in (("whole", "number"), ("time", "date"))


def _kind_of_literal(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return "whole" if isinstance(value, int) else "number" if isinstance(value, float) else "text"


def kind_of(name: str, kinds: Mapping[str, str]) -> str:
    """The kind of a column; refuses those that are not there, or of a type that questions cannot use."""
    try:
        kind = kinds[name]  # another table's column says itself why it cannot be joined
    except KeyError:
        raise ArgumentError(f"column {name!r} is not in the data") from None
    check_usable(name, kind, name)
    return kind


def check_usable(name: str, kind: str, column: str) -> None:
    """Refuse a column of a type that questions cannot use.

    Args:
        name: as the question has it.
        kind: of the column.
        column: its name in its table.
    """
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


def literal(value: object, kind: str) -> Value:
    """A literal as a parameter for a column of this kind."""
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
    raise ArgumentError(f"{quoted(value)} cannot be compared with a column of kind {kind}")

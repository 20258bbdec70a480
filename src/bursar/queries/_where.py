"""Row filters: text in a small language, parsed and checked here, never pasted.

::

    or          and ("or" and)*
    and         not ("and" not)*
    not         "not" not  |  test
    test        "(" or ")"  |  value (= | != | < | <= | > | >=) value  |  column
                column "is" ["not"] "null"  |  column ["not"] "in" "(" literal, ... ")"
                column ["not"] "between" literal "and" literal
    value       column | literal
    column      name  |  "any name, quotes doubled"
    literal     12, -3.5e2, 'text, quotes doubled', true, false; dates and times as text: '2011-12-09'

A comparison with a missing entry or NaN is neither true nor false, as in SQL; rows for which the filter is true count.
"""

import re
from dataclasses import dataclass

from bursar.errors import ArgumentError

__all__ = ["And", "Column", "Compare", "Filter", "In", "IsNull", "IsTrue", "Literal", "Not", "Or", "parse"]

LONGEST = 10_000
DEEPEST = 40

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?!\w)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")+")
    |(?P<word>[^\W\d]\w*)
    |(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,))""",
    re.VERBOSE,
)
_WORDS = {"and", "or", "not", "in", "is", "null", "between", "true", "false"}
_COMPARISONS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a text or a truth value."""

    value: int | float | str | bool


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison: left sign right."""

    sign: str
    left: Column | Literal
    right: Column | Literal


@dataclass(frozen=True, slots=True)
class In:
    """A column's entry is one of some literals."""

    column: Column
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column's entry is missing."""

    column: Column


@dataclass(frozen=True, slots=True)
class IsTrue:
    """A column of truth values."""

    column: Column


@dataclass(frozen=True, slots=True)
class Not:
    """A filter is false."""

    of: "Filter"


@dataclass(frozen=True, slots=True)
class And:
    """Every part is true."""

    parts: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Some part is true."""

    parts: tuple["Filter", ...]


Filter = Compare | In | IsNull | IsTrue | Not | And | Or


def parse(where: str) -> Filter:
    """The filter that a text describes; refuses what is not in the language."""
    if not isinstance(where, str) or not where.strip() or len(where) > LONGEST:
        raise ArgumentError(f"where must be a filter of 1 to {LONGEST} characters")
    tokens, place = [], 0
    while where[place:].strip():
        match = _TOKEN.match(where, place)
        if match is None:
            raise ArgumentError(f"where: {where[place:].strip()[:20]!r} is not in the language of filters")
        tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
        place = match.end()
    reader = _Reader(tokens)
    filter_ = reader.disjunction(0)
    reader.end()
    return filter_


class _Reader:
    """Recursive descent over the tokens."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._place = 0

    def end(self) -> None:
        if self._place < len(self._tokens):
            raise self._unexpected("the end")

    def disjunction(self, depth: int) -> Filter:
        parts = [self._conjunction(depth)]
        while self._take("or"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _conjunction(self, depth: int) -> Filter:
        parts = [self._negation(depth)]
        while self._take("and"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _negation(self, depth: int) -> Filter:
        if depth > DEEPEST:
            raise ArgumentError(f"where is nested more than {DEEPEST} deep")
        if self._take("not"):
            return Not(self._negation(depth + 1))
        if self._take("("):
            inside = self.disjunction(depth + 1)
            self._need(")")
            return inside
        return self._test()

    def _test(self) -> Filter:
        left = self._value()
        kind, word = self._peek()
        if kind == "sign" and word in _COMPARISONS:
            self._place += 1
            right = self._value()
            if isinstance(left, Literal) and isinstance(right, Literal):
                raise ArgumentError("where: a comparison needs a column on one side")
            return Compare(_COMPARISONS[word], left, right)
        if not isinstance(left, Column):
            raise ArgumentError("where: a literal alone is no filter")
        if self._take("is"):
            opposite = self._take("not")
            self._need("null")
            return Not(IsNull(left)) if opposite else IsNull(left)
        opposite = self._take("not")
        if self._take("in"):
            test: Filter = In(left, self._list())
        elif self._take("between"):
            low = self._literal()
            self._need("and")
            test = And((Compare(">=", left, low), Compare("<=", left, self._literal())))
        elif opposite:
            raise self._unexpected("in or between")
        else:
            return IsTrue(left)
        return Not(test) if opposite else test

    def _list(self) -> tuple[Literal, ...]:
        self._need("(")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        self._need(")")
        return tuple(values)

    def _literal(self) -> Literal:
        value = self._value()
        if not isinstance(value, Literal):
            raise ArgumentError("where: a literal must stand here, not a column")
        return value

    def _value(self) -> Column | Literal:
        kind, word = self._peek()
        if kind == "word" and word.lower() in ("true", "false"):
            self._place += 1
            return Literal(word.lower() == "true")
        if kind not in ("number", "text", "quoted", "word") or (kind == "word" and word.lower() in _WORDS):
            raise self._unexpected("a column or a literal")
        self._place += 1
        if kind == "number":
            return Literal(_number(word))
        if kind == "text":
            return Literal(word[1:-1].replace("''", "'"))
        return Column(word[1:-1].replace('""', '"') if kind == "quoted" else word)

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._place] if self._place < len(self._tokens) else ("end", "")

    def _take(self, wanted: str) -> bool:
        kind, word = self._peek()
        taken = kind in ("word", "sign") and word.lower() == wanted
        self._place += taken
        return taken

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise self._unexpected(repr(wanted))

    def _unexpected(self, wanted: str) -> ArgumentError:
        kind, word = self._peek()
        return ArgumentError(f"where: expected {wanted}, found {'the end' if kind == 'end' else repr(word[:40])}")


def _number(word: str) -> int | float:
    value: int | float = int(word) if re.fullmatch(r"[+-]?[0-9]{1,19}", word) else float(word)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        value = float(word)
    if value in (float("inf"), float("-inf")):
        raise ArgumentError(f"where: {word[:40]} is too large")
    return value

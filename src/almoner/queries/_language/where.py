"""Expressions about one row, and row filters: text in a small language, parsed and checked here, never pasted.

::

    expression  and ("or" and)*
    and         not ("and" not)*
    not         "not" not  |  test
    test        sum [(= | != | < | <= | > | >=) sum  |  "is" ["not"] "null"  |  ["not"] "in" "(" literal, ... ")"
                |  ["not"] "between" literal "and" literal  |  ["not"] "like" 'pattern']
    sum         product (("+" | "-") product)*
    product     sign (("*" | "/") sign)*
    sign        ["-" | "+"] sign  |  "(" expression ")"  |  column  |  literal  |  function "(" [expression, ...] ")"
                |  "case" ("when" expression "then" expression)+ ["else" expression] "end"
    column      name  |  table.name  |  "any name, quotes doubled"
    literal     12, 3.5e2, 'text, quotes doubled', true, false; dates and times as text: '2011-12-09'

A comparison with a missing entry or NaN is neither true nor false, as in SQL; rows for which a filter is true count.
"""

import re
from collections.abc import Collection

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
    parts,
)

__all__ = [
    "FUNCTIONS",
    "And",
    "Column",
    "Compare",
    "Condition",
    "In",
    "IsNull",
    "IsTrue",
    "Literal",
    "Not",
    "Or",
    "parse",
    "parse_value",
]

LONGEST = 10_000
DEEPEST = 40
LONGEST_PATTERN = 200

FUNCTIONS = frozenset(
    {
        "abs",
        "bucket",
        "coalesce",
        "date",
        "day",
        "days",
        "floor",
        "greatest",
        "hour",
        "least",
        "length",
        "lower",
        "month",
        "month_of_year",
        "number",
        "quarter",
        "round",
        "substring",
        "text",
        "trim",
        "upper",
        "week",
        "weekday",
        "whole",
        "year",
    }
)
"""The functions of one row's values."""

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?!\w)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")+")
    |(?P<word>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    |(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,|\+|-|\*|/))""",
    re.VERBOSE,
)
_WORDS = {"and", "or", "not", "in", "is", "null", "between", "true", "false"}
_COMPARISONS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_CONDITIONS = Compare | In | Like | IsNull | IsTrue | Not | And | Or


def parse(where: str) -> Condition:
    """The filter that a text describes; refuses what is not in the language."""
    return _condition(_parsed(where, "where", FUNCTIONS), "where")


def parse_value(text: str, *, name: str, functions: Collection[str] = FUNCTIONS) -> Expression:
    """The expression that a text describes.

    Args:
        text: the expression.
        name: of the argument, for messages.
        functions: those that may stand in it.
    """
    return _parsed(text, name, functions)


def _parsed(text: str, name: str, functions: Collection[str]) -> Expression:
    if not isinstance(text, str) or not text.strip() or len(text) > LONGEST:
        what = "a filter" if name == "where" else "an expression"
        raise ArgumentError(f"{name} must be {what} of 1 to {LONGEST} characters")
    tokens, place = [], 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise ArgumentError(f"{name}: {_from(text[place:].strip(), place, 20)} is not in the language of filters")
        tokens.append((str(match.lastgroup), match.group(str(match.lastgroup)), match.start(str(match.lastgroup))))
        place = match.end()
    reader = _Reader(tokens, name, functions)
    tree = reader.expression(0)
    reader.end()
    _check_depth(tree, name)
    return tree


def _from(text: str, place: int, most: int = 40) -> str:
    """Words for the text at a place, which is counted from 0."""
    return quoted(text, f"what begins at character {place + 1}", most=most)


def _condition(node: Expression, name: str) -> Condition:
    """A node where a condition is wanted: a value must be a truth value."""
    if isinstance(node, Literal):
        raise ArgumentError(f"{name}: a literal alone is no filter")
    return node if isinstance(node, _CONDITIONS) else IsTrue(node)


def _check_depth(tree: Expression, name: str) -> None:
    """Refuse what is nested too deeply, also by long chains of signs."""
    level: list[Expression] = [tree]
    for _ in range(2 * DEEPEST):
        level = [each for node in level for each in parts(node)]
        if not level:
            return
    raise ArgumentError(f"{name} is nested more than {2 * DEEPEST} deep")


class _Reader:
    """Recursive descent over the tokens."""

    def __init__(self, tokens: list[tuple[str, str, int]], name: str, functions: Collection[str]) -> None:
        self._tokens = tokens
        self._name = name
        self._functions = functions
        self._place = 0

    def end(self) -> None:
        if self._place < len(self._tokens):
            raise self._unexpected("the end")

    def expression(self, depth: int) -> Expression:
        first = self._conjunction(depth)
        listed = [first]
        while self._take("or"):
            listed.append(self._conjunction(depth))
        return first if len(listed) == 1 else Or(tuple(_condition(each, self._name) for each in listed))

    def _conjunction(self, depth: int) -> Expression:
        first = self._negation(depth)
        listed = [first]
        while self._take("and"):
            listed.append(self._negation(depth))
        return first if len(listed) == 1 else And(tuple(_condition(each, self._name) for each in listed))

    def _negation(self, depth: int) -> Expression:
        self._check(depth)
        if self._take("not"):
            return Not(_condition(self._negation(depth + 1), self._name))
        return self._test(depth)

    def _test(self, depth: int) -> Expression:
        left = self._sum(depth)
        kind, word = self._peek()
        if kind == "sign" and word in _COMPARISONS:
            self._place += 1
            right = self._sum(depth)
            if isinstance(left, Literal) and isinstance(right, Literal):
                raise ArgumentError(f"{self._name}: a comparison needs a column on one side")
            return Compare(_COMPARISONS[word], left, right)
        test = self._postfix(left)
        if test is not left and isinstance(left, Literal):
            raise ArgumentError(f"{self._name}: a literal alone is no filter")
        return test

    def _postfix(self, left: Expression) -> Expression:
        if self._take("is"):
            opposite = self._take("not")
            self._need("null")
            return Not(IsNull(left)) if opposite else IsNull(left)
        opposite = self._take("not")
        if self._take("in"):
            test: Condition = In(left, self._list())
        elif self._take("between"):
            low = self._literal()
            self._need("and")
            test = And((Compare(">=", left, low), Compare("<=", left, self._literal())))
        elif self._take("like"):
            test = Like(left, self._pattern())
        elif opposite:
            raise self._unexpected("in, between or like")
        else:
            return left
        return Not(test) if opposite else test

    def _list(self) -> tuple[Literal, ...]:
        self._need("(")
        values = [self._literal()]
        while self._take(","):
            values.append(self._literal())
        self._need(")")
        return tuple(values)

    def _pattern(self) -> str:
        pattern = self._literal().value
        if not isinstance(pattern, str) or len(pattern) > LONGEST_PATTERN:
            raise ArgumentError(f"{self._name}: like needs a text of at most {LONGEST_PATTERN} characters")
        return pattern

    def _literal(self) -> Literal:
        value = self._sign(0)
        if not isinstance(value, Literal):
            raise ArgumentError(f"{self._name}: a literal must stand here, not a column")
        return value

    def _sum(self, depth: int) -> Expression:
        left = self._product(depth)
        while (sign := self._take_one("+", "-")) is not None:
            left = Arithmetic(sign, left, self._product(depth))
        return left

    def _product(self, depth: int) -> Expression:
        left = self._sign(depth)
        while (sign := self._take_one("*", "/")) is not None:
            left = Arithmetic(sign, left, self._sign(depth))
        return left

    def _sign(self, depth: int) -> Expression:
        self._check(depth)
        sign = self._take_one("+", "-")
        kind, word = self._peek()
        if kind == "number":
            self._place += 1
            return Literal(self._number((sign or "") + word))
        if sign is not None:
            inside = self._sign(depth + 1)
            return Arithmetic(sign, Literal(0), inside)
        return self._primary(kind, word, depth)

    def _primary(self, kind: str, word: str, depth: int) -> Expression:
        if self._take("("):
            inside = self.expression(depth + 1)
            self._need(")")
            return inside
        if kind == "word" and word.lower() in ("true", "false"):
            self._place += 1
            return Literal(word.lower() == "true")
        if kind not in ("text", "quoted", "word") or (kind == "word" and word.lower() in _WORDS):
            raise self._unexpected("a column or a literal")
        self._place += 1
        if kind == "text":
            return Literal(word[1:-1].replace("''", "'"))
        if kind == "quoted":
            return Column(word[1:-1].replace('""', '"'))
        if word.lower() == "case" and self._peek() == ("word", self._peek()[1]) and self._peek()[1].lower() == "when":
            return self._case(depth + 1)
        return self._call(word.lower(), depth + 1) if self._peek() == ("sign", "(") else Column(word)

    def _call(self, name: str, depth: int) -> Call:
        if name not in self._functions:
            known = ", ".join(sorted(self._functions))
            called = quoted(name, "a word before a bracket")
            raise ArgumentError(f"{self._name}: {called} is no function here; there are {known}")
        self._need("(")
        arguments: list[Expression] = []
        while not self._take(")"):
            if arguments:
                self._need(",")
            arguments.append(self.expression(depth))
        return Call(name, tuple(arguments))

    def _case(self, depth: int) -> Case:
        branches: list[tuple[Condition, Expression]] = []
        while self._take("when"):
            condition = _condition(self.expression(depth), self._name)
            self._need("then")
            branches.append((condition, self.expression(depth)))
        otherwise = self.expression(depth) if self._take("else") else None
        self._need("end")
        return Case(tuple(branches), otherwise)

    def _number(self, word: str) -> int | float:
        value: int | float = int(word) if re.fullmatch(r"[+-]?[0-9]{1,19}", word) else float(word)
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            value = float(word)
        if value in (float("inf"), float("-inf")):
            raise ArgumentError(f"{self._name}: {quoted(word, 'a number of it')} is too large")
        return value

    def _check(self, depth: int) -> None:
        if depth > DEEPEST:
            raise ArgumentError(f"{self._name} is nested more than {DEEPEST} deep")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._place][:2] if self._place < len(self._tokens) else ("end", "")

    def _take(self, wanted: str) -> bool:
        kind, word = self._peek()
        taken = kind in ("word", "sign") and word.lower() == wanted
        self._place += taken
        return taken

    def _take_one(self, *wanted: str) -> str | None:
        return next((each for each in wanted if self._take(each)), None)

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise self._unexpected(repr(wanted))

    def _unexpected(self, wanted: str) -> ArgumentError:
        kind, word = self._peek()
        shown = "the end" if kind == "end" else _from(word, self._tokens[self._place][2])
        return ArgumentError(f"{self._name}: expected {wanted}, found {shown}")

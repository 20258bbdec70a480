"""Expressions about one row, row filters, and steps over a person's rows: text in a small language, never pasted.

They are parsed and checked here, into frozen nodes; what these mean in SQL is elsewhere.

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
With steps for each person, a person's rows become one row before the question is asked.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType

from almoner._check import quoted
from almoner.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Column:
    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    value: int | float | str | bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    sign: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true, else the other value; missing where there is none."""

    branches: tuple[tuple["Condition", "Expression"], ...]
    otherwise: "Expression | None"


@dataclass(frozen=True, slots=True)
class Compare:
    sign: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class In:
    column: "Expression"
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """A text matches a pattern, in which % stands for any text and _ for one character."""

    column: "Expression"
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    column: "Expression"


@dataclass(frozen=True, slots=True)
class IsTrue:
    column: "Expression"


@dataclass(frozen=True, slots=True)
class Not:
    of: "Condition"


@dataclass(frozen=True, slots=True)
class And:
    parts: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Or:
    parts: tuple["Condition", ...]


Condition = Compare | In | Like | IsNull | IsTrue | Not | And | Or
Expression = Column | Literal | Arithmetic | Call | Case | Condition


def parts(node: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside one."""
    return tuple(_nodes([getattr(node, each.name) for each in fields(node)]))


def _nodes(value: object) -> Iterator[Expression]:
    if isinstance(value, Expression):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _nodes(each)


LONGEST = 10_000
DEEPEST = 40
LONGEST_CHAIN = 200
LONGEST_PATTERN = 200


@dataclass(frozen=True, slots=True)
class Signature:
    """The kinds that a function takes, the kind that it gives, and the name of its template."""

    takes: tuple[str, ...]
    gives: str
    template: str


def _forms(names: str, gives: str, *takes: str) -> dict[str, tuple[Signature, ...]]:
    """Signatures of functions, each of which takes these kinds; their templates are named by function and form."""
    return {
        name: tuple(Signature(tuple(each.split()), gives, f"{name} {each}" if takes[1:] else name) for each in takes)
        for name in names.split()
    }


SIGNATURES: Mapping[str, tuple[Signature, ...]] = MappingProxyType(
    _forms("abs exp floor ln round sqrt", "number", "number")
    | _forms("bucket", "number", "number number")
    | _forms("lower upper trim", "text", "text")
    | _forms("length", "whole", "text")
    | _forms("contains", "bool", "text text")
    | _forms("substring", "text", "text whole", "text whole whole")
    | _forms("year month_of_year day weekday", "whole", "date")
    | _forms("hour", "whole", "time")
    | _forms("week month quarter", "date", "date")
    | _forms("days", "whole", "date date")
    | _forms("number", "number", "number", "text", "bool")
    | _forms("whole", "whole", "whole", "number", "text", "bool")
    | _forms("text", "text", "text", "whole", "bool", "date")
    | _forms("date", "date", "date", "text")
)  # signatures of functions; ``coalesce``, ``least`` and ``greatest`` take any values of one kind
FUNCTIONS = frozenset({*SIGNATURES, "coalesce", "greatest", "least"})  # the functions of one row's values
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?!\w)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>"(?:[^"]|"")+")
    |(?P<word>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    |(?P<sign><=|>=|<>|!=|==|=|<|>|\(|\)|,|\+|-|\*|/))""",
    re.VERBOSE,
)
_WORDS = {"and", "or", "not", "in", "is", "null", "between", "true", "false"}
WORDS = _WORDS | {"like", "case", "when", "then", "else", "end"}  # that a column in quotes alone can be called
_COMPARISONS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def parse(where: str) -> Condition:
    """The filter that a text describes; refuses what is not in the language."""
    return as_condition(parse_value(where, name="where"), "where")


def parse_value(text: str, *, name: str, functions: Collection[str] = FUNCTIONS) -> Expression:
    """The expression that a text describes; ``functions`` may stand in it, and ``name`` is the argument's."""
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
    level = [tree]  # long chains of signs are deep, too
    for _ in range(LONGEST_CHAIN):
        level = [each for node in level for each in parts(node)]
        if not level:
            return tree
    raise ArgumentError(f"{name} is nested more than {LONGEST_CHAIN} deep")


def is_condition(text: str) -> bool:
    """True if a text describes what is true or false; False also where it describes nothing."""
    try:
        return not text.isidentifier() and isinstance(parse_value(text, name="column"), Condition)
    except ArgumentError:  # said by who needs its value
        return False


def is_whole(text: str) -> bool:
    """True if an expression has whole numbers alone, as keys must be: floor, round, or bucket of a whole width."""
    try:
        node = parse_value(text, name="by")
    except ArgumentError:  # a column's name may be no expression
        return False
    if not isinstance(node, Call) or node.name not in ("bucket", "floor", "round"):
        return False
    last = node.arguments[-1]
    return node.name != "bucket" or (isinstance(last, Literal) and isinstance(last.value, int))


def _from(text: str, place: int, most: int = 40) -> str:
    """Words for the text at a place, which is counted from 0."""
    return quoted(text, f"what begins at character {place + 1}", most=most)


def as_condition(node: Expression, name: str = "sql") -> Condition:
    """A node where a condition is wanted: a value must be a truth value."""
    if isinstance(node, Literal):
        raise ArgumentError(f"{name}: a literal alone is no filter")
    return node if isinstance(node, Condition) else IsTrue(node)


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
        return self._chain("or", Or, lambda: self._chain("and", And, lambda: self._negation(depth)))

    def _chain(self, word: str, joined: type[And | Or], part: Callable[[], Expression]) -> Expression:
        listed = [part()]
        while self._take(word):
            listed.append(part())
        return listed[0] if len(listed) == 1 else joined(tuple(as_condition(each, self._name) for each in listed))

    def _negation(self, depth: int) -> Expression:
        self._check(depth)
        if self._take("not"):
            return Not(as_condition(self._negation(depth + 1), self._name))
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
            self._need("(")
            among = [self._literal()]
            while self._take(","):
                among.append(self._literal())
            self._need(")")
            test: Condition = In(left, tuple(among))
        elif self._take("between"):
            low = self._literal()
            self._need("and")
            test = And((Compare(">=", left, low), Compare("<=", left, self._literal())))
        elif self._take("like"):
            pattern = self._literal().value
            if not isinstance(pattern, str) or len(pattern) > LONGEST_PATTERN:
                raise ArgumentError(f"{self._name}: like needs a text of at most {LONGEST_PATTERN} characters")
            test = Like(left, pattern)
        elif opposite:
            raise self._unexpected("in, between or like")
        else:
            return left
        return Not(test) if opposite else test

    def _literal(self) -> Literal:
        value = self._sign(0)
        if not isinstance(value, Literal):
            raise ArgumentError(f"{self._name}: a literal must stand here, not a column")
        return value

    def _sum(self, depth: int) -> Expression:
        return self._computed(("+", "-"), lambda: self._computed(("*", "/"), lambda: self._sign(depth)))

    def _computed(self, signs: tuple[str, str], part: Callable[[], Expression]) -> Expression:
        left = part()
        while sign := self._take(*signs):
            left = Arithmetic(sign, left, part())
        return left

    def _sign(self, depth: int) -> Expression:
        self._check(depth)
        sign = self._take("+", "-")
        kind, word = self._peek()
        if kind == "number":
            self._place += 1
            return Literal(self._number(sign + word))
        if sign:
            return Arithmetic(sign, Literal(0), self._sign(depth + 1))
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
            condition = as_condition(self.expression(depth), self._name)
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

    def _take(self, *wanted: str) -> str:
        kind, word = self._peek()
        taken = kind in ("word", "sign") and word.lower() in wanted
        self._place += taken
        return word.lower() if taken else ""

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise self._unexpected(repr(wanted))

    def _unexpected(self, wanted: str) -> ArgumentError:
        kind, word = self._peek()
        shown = "the end" if kind == "end" else _from(word, self._tokens[self._place][2])
        return ArgumentError(f"{self._name}: expected {wanted}, found {shown}")


AGGREGATES = frozenset({"all", "any", "count", "distinct", "first", "last", "max", "min", "sum"})
"""The functions of all of a person's rows."""

Steps = tuple[tuple[str, str], ...]  # pairs of a column's name and what it is for a person
KeyedSteps = tuple[tuple[str, Steps], ...]
"""A column, or an expression, whose values divide a person's rows, and the steps for each of them."""

MOST_STEPS = 100


def checked_steps(steps: object, name: str = "each_person") -> Steps:
    """{name: aggregate} as pairs; refuses what is no aggregate of a person's rows. ``name`` is the argument's."""
    pairs = tuple(steps.items()) if isinstance(steps, Mapping) else tuple(map(tuple, steps))  # type: ignore[call-overload]
    if not 1 <= len(pairs) <= MOST_STEPS or not all(
        len(pair) == 2 and all(isinstance(each, str) and 1 <= len(each) <= 1000 for each in pair) for pair in pairs
    ):
        raise ArgumentError(f"{name} must be {{name: aggregate}}, as in {{'visits': 'count()'}}")
    if len({step.casefold() for step, _ in pairs}) < len(pairs):
        raise ArgumentError(f"{name}: each name once")
    for _, text in pairs:
        parse_step(text)
    return pairs


def checked_each(each: object) -> KeyedSteps:
    """{column: {name: aggregate}}, of one column or expression, as pairs."""
    pairs = tuple(each.items()) if isinstance(each, Mapping) else tuple(map(tuple, each))  # type: ignore[call-overload]
    if len(pairs) != 1 or len(pairs[0]) != 2 or not isinstance(pairs[0][0], str) or isinstance(pairs[0][1], str):
        raise ArgumentError("each must be {column: {name: aggregate}}, as in {'invoice': {'total': 'sum(price)'}}")
    ((key, steps),) = pairs
    checked = checked_steps(steps, "each")
    if not 1 <= len(key) <= 1000 or key.casefold() in {name.casefold() for name, _ in checked}:
        raise ArgumentError("each: the column has its own name in the rows that are made: call no aggregate like it")
    return ((key, checked),)


def parse_step(text: str) -> tuple[str, tuple[Expression, ...]]:
    """(The aggregate, its arguments): expressions about one row."""
    tree = parse_value(text, name="each_person", functions=FUNCTIONS | AGGREGATES)
    if not isinstance(tree, Call) or tree.name not in AGGREGATES:
        raise ArgumentError(
            f"each_person: {quoted(text, 'each')} must be one of {', '.join(sorted(AGGREGATES))} of a person's rows"
        )
    takes = {"count": (0, 1), "first": (2,), "last": (2,)}.get(tree.name, (1,))
    if len(tree.arguments) not in takes:
        raise ArgumentError(f"each_person: {tree.name}() takes {' or '.join(map(str, takes))} values")
    if any(map(_has_aggregate, tree.arguments)):
        raise ArgumentError(f"each_person: {quoted(text, 'one')} has an aggregate inside of an aggregate")
    return tree.name, tree.arguments


def _has_aggregate(node: Expression) -> bool:
    return (isinstance(node, Call) and node.name in AGGREGATES) or any(map(_has_aggregate, parts(node)))

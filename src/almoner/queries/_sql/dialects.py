"""Differences between the SQL of engines, functions of expressions among them: statements are the same but for these.

No text of another author gets into the SQL: columns are quoted or numbered, literals are parameters, or spelled out by
type, texts as hexadecimal bytes.

No function fails on an entry: what has no value is missing. Numbers are computed in doubles; a result that is no finite
number is missing. Dates are those of the years 1 to 9999. Texts are compared and cut letter by letter, and matched in
time linear in their length.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from string import Formatter

from almoner._workspace import quoted
from almoner.errors import ArgumentError

_LARGEST_SQL = 100_000
_SHORT = 100


@dataclass(frozen=True, slots=True)
class Sql:
    text: str
    parameters: tuple[object, ...] = ()


def filled(template: str, *pieces: Sql, bound: str) -> Sql:
    """A template with pieces in its places {0}, {1}, each of which brings its parameters.

    A long one that stands in several places is computed once, under a name (``bound``), so that SQL stays short.
    """
    listed = list(Formatter().parse(template))
    for place, piece in enumerate(pieces):
        if bound and len(piece.text) > _SHORT and sum(each == str(place) for _, each, _, _ in listed) > 1:
            name = Sql(f"once{place:d}")
            inside = filled(template, *pieces[:place], name, *pieces[place + 1 :], bound=bound)
            return filled(bound, piece, name, inside, bound=bound)
    texts: list[str] = []
    parameters: list[object] = []
    for before, place_, _, _ in listed:
        texts.append(before)
        if place_ is not None:
            texts.append(pieces[int(place_)].text)
            parameters += pieces[int(place_)].parameters
    if sum(map(len, texts)) > _LARGEST_SQL:
        raise ArgumentError("an expression is too large: write it with fewer functions inside of each other")
    return Sql("".join(texts), tuple(parameters))


_NUMBER = r"\A([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\z"
_WHOLE = r"\A([+-]?[0-9]+)\z"
_DATE = r"\A([0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9])\z"
_EXACT = "CAST('9007199254740992' AS DOUBLE)"  # 2^53
_BROKEN = "CAST('4503599627370496' AS DOUBLE)"  # 2^52: larger doubles are whole numbers
_FINITE = "(CASE WHEN abs({0}) < CAST('inf' AS DOUBLE) THEN {0} END)"
_DATED = "(CASE WHEN {0} BETWEEN DATE'0001-01-01' AND DATE'9999-12-31' THEN {0} END)"

_SHARED = {
    **{sign: f"({{0}} {sign} {{1}})" for sign in "+-*/"},
    "finite": _FINITE,
    "divisor": "(CASE WHEN {0} <> 0 AND abs({0}) < CAST('inf' AS DOUBLE) THEN {0} END)",
    "abs": "abs({0})",
    "exp": "exp({0})",
    "ln": "(CASE WHEN {0} > 0 THEN ln({0}) END)",
    "sqrt": "(CASE WHEN {0} >= 0 THEN sqrt({0}) END)",
    "contains": "(instr({0}, {1}) > 0)",
    "substring text whole": "substring({0}, {1})",
    "substring text whole whole": "substring({0}, {1}, {2})",
    **{name: f"CAST({name}({{0}}) AS BIGINT)" for name in ("length", "year", "day", "hour")},
    "month_of_year": "CAST(month({0}) AS BIGINT)",
    "dated": _DATED,
    **dict.fromkeys(("number number", "whole whole", "text text", "date date"), "{0}"),
    "number bool": "CAST({0} AS DOUBLE)",
    "whole number": f"TRY_CAST((CASE WHEN abs({{0}}) <= {_EXACT} THEN {{0}} END) AS BIGINT)",
    "whole bool": "CAST({0} AS BIGINT)",
    "date of time": "CAST({0} AS DATE)",
    "each any": "bool_or({0})",
    "each all": "bool_and({0})",
    "each count": "CAST(count(*) FILTER (WHERE {0}) AS BIGINT)",
    "each distinct": "CAST(count(DISTINCT {0}) AS BIGINT)",
    "each min": "min({0})",
    "each max": "max({0})",
}


def functions(
    *, string: str, floor: str, rounded: str, regex: str, total: str, pair: str, trim: str = "trim({0})", **own: str
) -> dict[str, str]:
    """Templates of all functions, for ``Dialect.functions``.

    Args:
        string: the type of texts.
        floor, rounded: of numbers below 2^52.
        regex: a text literal with backslashes.
        total: the sum of doubles over a person's rows, the smallest first, so that it depends on no order; NULL where
            there are none.
        pair: a value whose least and largest are those of {1}, and of several those of {0}, which is its part ``x``.
        trim: without blanks at both ends: all of Unicode's category Zs.
        own: the functions that every engine spells in its own way: lower, upper, weekday, week, month, quarter, days
            and like. A week begins on Monday, which is day 1.
    """

    def extracted(pattern: str, kind: str) -> str:
        return f"TRY_CAST(regexp_extract({trim}, {regex.format(pattern)}, 1) AS {kind})"

    def below(sql: str) -> str:
        return f"(CASE WHEN abs({{0}}) < {_BROKEN} THEN {sql} ELSE {{0}} END)"

    # the entry beside the least or largest of another column; of several, the least or largest
    both = "FILTER (WHERE {0} IS NOT NULL AND {1} IS NOT NULL)"
    return {
        **_SHARED,
        "trim": trim,
        "floor": below(floor),
        "round": below(rounded),
        "number text": extracted(_NUMBER, "DOUBLE"),
        "whole text": extracted(_WHOLE, "BIGINT"),
        **dict.fromkeys(("text whole", "text bool", "text date"), f"CAST({{0}} AS {string})"),
        "date text": extracted(_DATE, "DATE"),
        "each sum": _FINITE.replace("{0}", total),
        "each first": f"(min({pair}) {both}).x",
        "each last": f"(max({pair}) {both}).x",
        **own,
    }


@cache
def case_tables(name: str) -> tuple[str, str]:
    """(Letters, what lower or upper makes of each): one letter for one, as DuckDB does, wherever it stands."""
    letters, results = [], []
    for number in range(sys.maxunicode + 1):
        letter, upper = chr(number), chr(number).upper()
        changed = letter.lower()[0]  # of a capital I with a dot: i
        if name == "upper":
            changed = "\u1e9e" if letter == "\u00df" else upper if len(upper) == 1 else letter.title()
        if len(changed) == 1 and changed != letter and not 0xD800 <= number < 0xE000:
            letters.append(letter)
            results.append(changed)
    return "".join(letters), "".join(results)


Literal = bool | int | float | str | date | datetime  # a value that a column is compared with


@dataclass(frozen=True, slots=True)
class Dialect:
    """Spellings of an engine: templates, in which {0} is an expression.

    Contributions are whole numbers in doubles, below 2^53 wherever they are rounded.

    Fields:
        types: the type of each kind of column.
        columns: each column of the data, of the alias d, by its name.
        table: a table of ours, by its name.
        person: whose row it is, by how people are named (BIGINT or VARCHAR); NULL for nobody.
        letters: a text that equals another one only letter by letter.
        present: whether there is a number that is not NaN.
        rounded: the nearest whole number, halves away from zero, of something below 2^50.
        truncated: rounded towards zero, of something up to 2^50.
        quotient: whole part of the quotient of a whole number that is not negative by {1}.
        total: the exact sum of whole numbers of up to 2^50, over any number of people.
        literal: spells a literal; what SQL does not hold itself is added to the parameters.
        functions: templates of the functions of expressions.
        bound: computes {0} once, under the name {1}, for {2}.
        regex: the regular expression of a ``like`` pattern.
        case_tables: letters and what lower or upper makes of them, for an engine with rules of its own; else None.
    """

    types: Mapping[str, str]
    columns: Mapping[str, str]
    table: str
    person: Mapping[str, str]
    letters: str
    present: str
    rounded: str
    truncated: str
    quotient: str
    total: str
    literal: Callable[[Literal, list[object]], str]
    functions: Mapping[str, str]
    bound: str
    regex: Callable[[str], str]
    case_tables: Callable[[str], tuple[str, str]] | None = None


def double(value: float) -> str:
    """A number as SQL, to the last bit."""
    return f"CAST('{float(value)!r}' AS DOUBLE)"


_TYPES = dict[str, str](whole="BIGINT", number="DOUBLE", text="VARCHAR", bool="BOOLEAN", date="DATE", time="TIMESTAMP")
_LETTERS = '({0} COLLATE "binary")'  # a column of a DuckDB file or a view may have a collation, which unites spellings


_FUNCTIONS = functions(
    string="VARCHAR",
    floor="floor({0})",
    rounded="round({0})",
    regex="'{}'",
    # a sum of doubles depends on the order: the smallest comes first
    total="list_reduce(list_filter(list_sort(list({0})), lambda v: v IS NOT NULL), "
    "lambda a, b: coalesce(a, CAST(0 AS DOUBLE)) + b, CAST(NULL AS DOUBLE))",
    pair="struct_pack(o := {1}, x := {0})",
    lower="lower({0})",
    upper="upper({0})",
    weekday="CAST(isodow({0}) AS BIGINT)",
    week="CAST(date_trunc('week', {0}) AS DATE)",
    month="CAST(date_trunc('month', {0}) AS DATE)",
    quarter="CAST(date_trunc('quarter', {0}) AS DATE)",
    days="date_diff('day', {0}, {1})",
    like="regexp_full_match({0}, {1})",
)


def duckdb_dialect(columns: Iterable[str]) -> Dialect:
    """DuckDB's, over columns of these names."""
    return Dialect(
        types=_TYPES,
        columns={name: f"d.{quoted(name)}" for name in columns},
        table="{0}",
        person={"BIGINT": "CAST({0} AS BIGINT)", "VARCHAR": _LETTERS.format("CAST({0} AS VARCHAR)")},
        letters=_LETTERS,
        present="NOT isnan({0})",  # NULL is neither NaN nor not
        rounded="round({0})",
        truncated="trunc({0})",
        quotient="{0} // {1:d}",
        total="sum(CAST({0} AS BIGINT))",  # in 128 bits
        literal=_parameter,
        functions=_FUNCTIONS,
        bound="list_transform([{0}], lambda {1}: {2})[1]",
        regex=lambda pattern: like_regex(pattern, r"[\s\S]*{}"),  # matched in linear time
    )


def like_regex(pattern: str, middle: str) -> str:
    """A ``like`` pattern as a regular expression; ``middle`` is one that skips to the first {} in linear time."""
    letters = {letter: r"[\s\S]" if letter == "_" else rf"\x{{{ord(letter):x}}}" for letter in pattern}
    first, *others = ["".join(map(letters.__getitem__, part)) for part in pattern.split("%")]
    if not others:
        return rf"\A{first}\z"
    listed = "".join(middle.format(part) for part in others[:-1] if part)
    return rf"\A{first}{listed}[\s\S]*{others[-1]}\z"


def _parameter(value: Literal, parameters: list[object]) -> str:
    parameters.append(value)
    return "?"

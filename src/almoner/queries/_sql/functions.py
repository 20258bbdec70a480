"""The functions of expressions, as SQL of each engine. None of them fails on an entry: what has no value is missing.

Numbers are computed in doubles; a result that is no finite number is missing. Dates are those of the years 1 to 9999.
Texts are compared and cut letter by letter, and matched in time linear in their length.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from string import Formatter
from types import MappingProxyType

from almoner.errors import ArgumentError

__all__ = ["SIGNATURES", "Signature", "Sql", "case_tables", "duckdb_functions", "filled", "functions"]

_LARGEST_SQL = 100_000
_SHORT = 100


@dataclass(frozen=True, slots=True)
class Sql:
    """A piece of SQL, and its parameters in their order."""

    text: str
    parameters: tuple[object, ...] = ()


def filled(template: str, *pieces: Sql, bound: str) -> Sql:
    """A template with pieces in its places {0}, {1}.

    A piece that stands in several places brings its parameters each time; a long one is computed once, under a name, so
    that functions inside of each other stay short.

    Args:
        template: the SQL.
        pieces: what stands in its places.
        bound: the dialect's way to give a name to a value; empty where that cannot be done.
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


@dataclass(frozen=True, slots=True)
class Signature:
    """The kinds that a function takes, the kind that it gives, and the name of its template."""

    takes: tuple[str, ...]
    gives: str
    template: str


def _listed(gives: str, *takes: tuple[str, ...]) -> dict[str, tuple[tuple[str, ...], str]]:
    return {" ".join(each): (each, gives) for each in takes}


_FORMS: Mapping[str, dict[str, tuple[tuple[str, ...], str]]] = {
    **dict.fromkeys(("abs", "floor", "round"), _listed("number", ("number",))),
    "bucket": _listed("number", ("number", "number")),
    **dict.fromkeys(("lower", "upper", "trim"), _listed("text", ("text",))),
    "length": _listed("whole", ("text",)),
    "substring": _listed("text", ("text", "whole"), ("text", "whole", "whole")),
    **dict.fromkeys(("year", "month_of_year", "day", "weekday"), _listed("whole", ("date",))),
    "hour": _listed("whole", ("time",)),
    **dict.fromkeys(("week", "month", "quarter"), _listed("date", ("date",))),
    "days": _listed("whole", ("date", "date")),
    "number": _listed("number", ("number",), ("text",), ("bool",)),
    "whole": _listed("whole", ("whole",), ("number",), ("text",), ("bool",)),
    "text": _listed("text", ("text",), ("whole",), ("bool",), ("date",)),
    "date": _listed("date", ("date",), ("text",)),
}
SIGNATURES: Mapping[str, tuple[Signature, ...]] = MappingProxyType(
    {
        name: tuple(
            Signature(takes, gives, name if len(forms) == 1 else f"{name} {kinds}")
            for kinds, (takes, gives) in forms.items()
        )
        for name, forms in _FORMS.items()
    }
)
"""Signatures of functions; ``coalesce``, ``least`` and ``greatest`` take any values of one kind."""

_NUMBER = r"\A([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\z"
_WHOLE = r"\A([+-]?[0-9]+)\z"
_DATE = r"\A([0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9])\z"
_EXACT = "CAST('9007199254740992' AS DOUBLE)"  # 2^53
_BROKEN = "CAST('4503599627370496' AS DOUBLE)"  # 2^52: larger doubles are whole numbers
_FINITE = "(CASE WHEN abs({0}) < CAST('inf' AS DOUBLE) THEN {0} END)"
_DATED = "(CASE WHEN {0} BETWEEN DATE'0001-01-01' AND DATE'9999-12-31' THEN {0} END)"

# A sum of doubles depends on the order: the smallest comes first.
_DUCKDB_SUM = (
    "list_reduce(list_filter(list_sort(list({0})), lambda v: v IS NOT NULL), "
    "lambda a, b: coalesce(a, CAST(0 AS DOUBLE)) + b, CAST(NULL AS DOUBLE))"
)
# The entry beside the least or largest of another column; of several, the least or largest. Both must be there.
_ENDS = {
    "each first": "(min({row}) FILTER (WHERE {{0}} IS NOT NULL AND {{1}} IS NOT NULL)).x",
    "each last": "(max({row}) FILTER (WHERE {{0}} IS NOT NULL AND {{1}} IS NOT NULL)).x",
}

_EACH = {
    "each any": "bool_or({0})",
    "each all": "bool_and({0})",
    "each count": "CAST(count(*) FILTER (WHERE {0}) AS BIGINT)",
    "each distinct": "CAST(count(DISTINCT {0}) AS BIGINT)",
    "each min": "min({0})",
    "each max": "max({0})",
}


_SHARED = {
    **{sign: f"({{0}} {sign} {{1}})" for sign in "+-*/"},
    "finite": _FINITE,
    "divisor": "(CASE WHEN {0} <> 0 AND abs({0}) < CAST('inf' AS DOUBLE) THEN {0} END)",
    "abs": "abs({0})",
    "trim": "trim({0})",
    "length": "CAST(length({0}) AS BIGINT)",
    "substring text whole": "substring({0}, {1})",
    "substring text whole whole": "substring({0}, {1}, {2})",
    "year": "CAST(year({0}) AS BIGINT)",
    "month_of_year": "CAST(month({0}) AS BIGINT)",
    "day": "CAST(day({0}) AS BIGINT)",
    "hour": "CAST(hour({0}) AS BIGINT)",
    "dated": _DATED,
    "number number": "{0}",
    "number bool": "CAST({0} AS DOUBLE)",
    "whole whole": "{0}",
    "whole number": f"TRY_CAST((CASE WHEN abs({{0}}) <= {_EXACT} THEN {{0}} END) AS BIGINT)",
    "whole bool": "CAST({0} AS BIGINT)",
    "text text": "{0}",
    "date date": "{0}",
    "date of time": "CAST({0} AS DATE)",
    **_EACH,
}


def functions(
    *, string: str, floor: str, rounded: str, regex: str, total: str, pair: str, **own: str
) -> dict[str, str]:
    """Templates of all functions, for ``Dialect.functions``.

    Args:
        string: the type of texts.
        floor, rounded: of numbers below 2^52.
        regex: a text literal with backslashes.
        total: the sum of doubles over a person's rows, the smallest first, so that it depends on no order; NULL where
            there are none.
        pair: a value whose least and largest are those of {1}, and of several those of {0}, which is its part ``x``.
        own: the functions that every engine spells in its own way: lower, upper, weekday, week, month, quarter, days
            and like. A week begins on Monday, which is day 1.
    """

    def extracted(pattern: str, kind: str) -> str:
        return f"TRY_CAST(regexp_extract(trim({{0}}), {regex.format(pattern)}, 1) AS {kind})"

    def below(sql: str) -> str:
        return f"(CASE WHEN abs({{0}}) < {_BROKEN} THEN {sql} ELSE {{0}} END)"

    return {
        **_SHARED,
        "floor": below(floor),
        "round": below(rounded),
        "number text": extracted(_NUMBER, "DOUBLE"),
        "whole text": extracted(_WHOLE, "BIGINT"),
        "text whole": f"CAST({{0}} AS {string})",
        "text bool": f"CAST({{0}} AS {string})",
        "text date": f"CAST({{0}} AS {string})",
        "date text": extracted(_DATE, "DATE"),
        "each sum": _FINITE.replace("{0}", total),
        **{name: form.format(row=pair) for name, form in _ENDS.items()},
        **own,
    }


def duckdb_functions() -> dict[str, str]:
    """Templates for DuckDB."""
    return functions(
        string="VARCHAR",
        floor="floor({0})",
        rounded="round({0})",
        regex="'{}'",
        total=_DUCKDB_SUM,
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


@cache
def case_tables(name: str) -> tuple[str, str]:
    """(Letters, what lower or upper makes of each): one letter for one, as DuckDB does, wherever it stands."""
    letters, results = [], []
    for number in range(sys.maxunicode + 1):
        letter = chr(number)
        changed = _changed(letter, name)
        if len(changed) == 1 and changed != letter and not 0xD800 <= number < 0xE000:
            letters.append(letter)
            results.append(changed)
    return "".join(letters), "".join(results)


def _changed(letter: str, name: str) -> str:
    if name == "lower":
        return letter.lower()[0]  # of a capital I with a dot: i
    if letter == "\u00df":
        return "\u1e9e"
    return letter.upper() if len(letter.upper()) == 1 else letter.title()

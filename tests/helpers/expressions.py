"""Random expressions of the language of filters, and what they mean in plain Python."""

import math
import re
from datetime import date, datetime, timedelta

from almoner.queries._language.expressions import (
    And,
    Arithmetic,
    Call,
    Case,
    Column,
    Compare,
    In,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Not,
    Or,
)
from almoner.queries._sql.dialects import case_tables

KINDS = {"n": "whole", "f": "number", "t": "text", "b": "bool", "d": "date", "s": "time"}
NASTY = {
    "n": [0, 1, -2, 7, 2**53 + 1, 2**63 - 1, -(2**63), None],
    "f": [0.0, -0.0, 0.5, -1.5, 2.5, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan, 4503599627370497.5, None],
    "t": [
        *("", "a", "it's", "Ab c", " a ", "\U0001f600x", "a\0b", "e\u0301", "ΑΣ", "İß", "12", "-1.5e3", "1e999"),
        *("2011-12-09", "2011-02-30", "9223372036854775808", "12\n", "%", "_", "a%b", "null", "nan", "1_0", None),
    ],
    "b": [True, False, None],
    "d": [date(1, 1, 1), date(9999, 12, 31), date(2011, 12, 9), date(2012, 2, 29), date(1970, 1, 1), None],
    "s": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), datetime(2011, 12, 9, 14, 30), None],
}
NUMBERS = [0, 1, -1, 2, 7, 0.5, -1.5, 1e308, 5e-324, 2**53 + 1, 2**63 - 1]
TEXTS = ["", "a", "12", "it's", "ΑΣ", "2011-12-09", "%", "\U0001f600"]
DATES = ["0001-01-01", "2011-12-09", "9999-12-31"]
TIMES = ["2011-12-09T14:30:00", "0001-01-01T00:00:00"]
PATTERNS = ["%", "a%", "%a%", "_", "%_b%", "a\0b", "%%b", "", "%1%2", "it's", "%\U0001f600_"]
SIGNS = ["=", "<>", "<", "<=", ">", ">="]


def grown(kind, choose, depth):
    """A random expression of a kind; ``choose(n)`` gives a number below n."""
    column = Column(next(name for name, each in KINDS.items() if each == kind))
    if depth == 0:
        return column
    forms = {"number": _number, "whole": _whole, "text": _text, "bool": _bool, "date": _date, "time": _time}
    picked = choose(8)
    if picked == 0:
        return column
    if picked == 1:
        tests = [_condition(grown("bool", choose, depth - 1)) for _ in range(1 + choose(2))]
        values = [grown(kind, choose, depth - 1), *(_or_literal(kind, choose, depth) for _ in tests[1:])]
        otherwise = None if choose(3) == 0 else _or_literal(kind, choose, depth)
        return Case(tuple(zip(tests, values, strict=True)), otherwise)
    if picked == 2:
        name = ("coalesce", "least", "greatest")[choose(3)]
        return Call(name, (grown(kind, choose, depth - 1), _or_literal(kind, choose, depth)))
    return forms[kind](choose, depth - 1)


def _condition(node):
    return IsTrue(node) if isinstance(node, Column | Call | Case) else node


def _or_literal(kind, choose, depth):
    listed = {"number": NUMBERS, "whole": [0, 1, -2, 2**63 - 1], "text": TEXTS, "bool": [True, False]}
    listed |= {"date": DATES, "time": TIMES}
    if choose(2):
        return Literal(listed[kind][choose(len(listed[kind]))])
    return grown(kind, choose, depth - 1)


def _any_number(choose, depth):
    return grown(("number", "whole")[choose(2)], choose, depth)


def _number(choose, depth):
    picked = choose(9)
    if picked < 5:
        left = _any_number(choose, depth)
        return Arithmetic("+-*/"[picked % 4], left, _or_literal("number", choose, max(depth, 1)))
    if picked == 5:
        return Call("bucket", (_any_number(choose, depth), Literal((1, 0.5, 7, 1e-3)[choose(4)])))
    if picked == 6:
        return Call("number", (grown(("text", "bool", "whole")[choose(3)], choose, depth),))
    return Call(("abs", "floor", "round", "sqrt")[choose(4)], (_any_number(choose, depth),))


def _whole(choose, depth):
    picked = choose(5)
    if picked == 0:
        name = ("year", "month_of_year", "day", "weekday")[choose(4)]
        return Call(name, (grown(("date", "time")[choose(2)], choose, depth),))
    if picked == 1:
        return Call("hour", (grown("time", choose, depth),))
    if picked == 2:
        return Call("length", (grown("text", choose, depth),))
    if picked == 3:
        return Call("days", (grown("date", choose, depth), grown("date", choose, depth)))
    return Call("whole", (grown(("number", "text", "bool")[choose(3)], choose, depth),))


def _text(choose, depth):
    picked = choose(5)
    if picked == 0:
        return Call("text", (grown(("whole", "bool", "date")[choose(3)], choose, depth),))
    if picked == 1:
        places = (Literal(1 + choose(3)), *([Literal(1 + choose(3))] if choose(2) else []))
        return Call("substring", (grown("text", choose, depth), *places))
    return Call(("lower", "upper", "trim")[choose(3)], (grown("text", choose, depth),))


def _bool(choose, depth):
    picked = choose(9)
    if picked == 8:
        return IsTrue(Call("contains", (grown("text", choose, depth), _or_literal("text", choose, max(depth, 1)))))
    if picked == 0:
        return Not(_condition(grown("bool", choose, depth)))
    if picked in (1, 2):
        return (And, Or)[picked - 1](tuple(_condition(grown("bool", choose, depth)) for _ in range(2)))
    kind = ("number", "whole", "text", "bool", "date", "time")[choose(6)]
    if picked == 3:
        return IsNull(grown(kind, choose, depth))
    if picked == 4:
        return Like(grown("text", choose, depth), PATTERNS[choose(len(PATTERNS))])
    if picked == 5:
        return In(grown("text", choose, depth), tuple(Literal(TEXTS[choose(len(TEXTS))]) for _ in range(1 + choose(2))))
    return Compare(SIGNS[choose(6)], grown(kind, choose, depth), _or_literal(kind, choose, max(depth, 1)))


def _date(choose, depth):
    if choose(3) == 0:
        return Call("date", (grown(("text", "time")[choose(2)], choose, depth),))
    return Call(("week", "month", "quarter")[choose(3)], (grown(("date", "time")[choose(2)], choose, depth),))


def _time(choose, depth):
    return Column("s")


def written(node):
    """An expression as text."""
    match node:
        case Column():
            return '"' + node.name.replace('"', '""') + '"'
        case Literal(value=str()):
            return "'" + node.value.replace("'", "''") + "'"
        case Literal():
            return str(node.value).lower()
        case Arithmetic():
            return f"({written(node.left)} {node.sign} {written(node.right)})"
        case Call():
            return f"{node.name}({', '.join(map(written, node.arguments))})"
        case Case():
            listed = " ".join(f"when {written(test)} then {written(value)}" for test, value in node.branches)
            return f"case {listed}{'' if node.otherwise is None else f' else {written(node.otherwise)}'} end"
        case Compare():
            return f"({written(node.left)} {node.sign} {written(node.right)})"
        case In():
            return f"({written(node.column)} in ({', '.join(map(written, node.values))}))"
        case Like():
            return f"({written(node.column)} like {written(Literal(node.pattern))})"
        case IsNull():
            return f"({written(node.column)} is null)"
        case IsTrue():
            return written(node.column)
        case Not():
            return f"(not {written(node.of)})"
    return f"({(' and ' if isinstance(node, And) else ' or ').join(map(written, node.parts))})"


def kind_of(node):
    """The kind of an expression that ``grown`` made; of a literal, what it looks like."""
    match node:
        case Column():
            return KINDS[node.name.rpartition(".")[2]]
        case Literal():
            named = {bool: "bool", int: "whole", float: "number", str: "text"}
            return named[type(node.value)]
        case Arithmetic():
            return "number"
        case Case():
            listed = [value for _, value in node.branches] + ([] if node.otherwise is None else [node.otherwise])
            return common(listed)
        case Call():
            if node.name in ("coalesce", "least", "greatest"):
                return common(node.arguments)
            for kind, names in {
                "number": ("abs", "exp", "floor", "ln", "round", "sqrt", "bucket", "number"),
                "bool": ("contains",),
                "text": ("lower", "upper", "trim", "substring", "text"),
                "date": ("week", "month", "quarter", "date"),
            }.items():
                if node.name in names:
                    return kind
            return "whole"
    return "bool"


def common(nodes):
    """The kind in which values meet."""
    kinds = {kind_of(node) for node in nodes if not isinstance(node, Literal)} or {kind_of(node) for node in nodes}
    if any(isinstance(node, Literal) and isinstance(node.value, float) for node in nodes):
        kinds.add("number")
    if kinds == {"date", "time"}:
        return "time"
    return min(kinds)


def value(node, row):
    """What an expression is for a row, a table of entries by column; None is missing."""
    match node:
        case Column():
            entry = row[node.name]
            return None if isinstance(entry, float) and math.isnan(entry) else entry
        case Literal():
            return node.value
        case Arithmetic():
            return _computed(node.sign, _as(node.left, "number", row), _as(node.right, "number", row))
        case Call():
            return _called(node, row)
        case Case():
            kind = kind_of(node)
            for test, result in node.branches:
                if true(test, row) is True:
                    return _as(result, kind, row)
            return None if node.otherwise is None else _as(node.otherwise, kind, row)
    return true(node, row)


def true(node, row):
    """Three-valued logic: True, False or None."""
    match node:
        case IsNull():
            return value(node.column, row) is None
        case IsTrue():
            return value(node.column, row)
        case Not():
            inner = true(node.of, row)
            return None if inner is None else not inner
        case And():
            parts = [true(part, row) for part in node.parts]
            return False if False in parts else None if None in parts else True
        case Or():
            return _either([true(part, row) for part in node.parts])
        case In():
            return _either([_compared("=", node.column, each, row) for each in node.values])
        case Like():
            entry = value(node.column, row)
            return None if entry is None else bool(re.fullmatch(_regex(node.pattern), entry, re.DOTALL))
    return _compared(node.sign, node.left, node.right, row)


def _regex(pattern):
    return "".join({"%": ".*", "_": "."}.get(letter, re.escape(letter)) for letter in pattern)


def _either(parts):
    return True if True in parts else None if None in parts else False


def _compared(sign, left, right, row):
    kind = common((left, right))
    a, b = _key(_as(left, kind, row)), _key(_as(right, kind, row))
    if a is None or b is None:
        return None
    return {"=": a == b, "<>": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[sign]


def _key(entry):
    """What entries are ordered by."""
    return entry.encode() if isinstance(entry, str) else entry


def _as(node, kind, row):
    entry = value(node, row)
    if entry is None:
        return None
    if kind == "number":
        return float(entry)
    if kind == "date" and isinstance(entry, str):
        return date.fromisoformat(entry)
    if kind == "time" and isinstance(entry, str):
        return datetime.fromisoformat(entry)
    if kind == "date" and isinstance(entry, datetime):
        return entry.date()
    if kind == "time" and not isinstance(entry, datetime):
        return datetime(entry.year, entry.month, entry.day)
    return entry


def _finite(number):
    return number if number is not None and math.isfinite(number) else None


def _computed(sign, left, right):
    if left is None or right is None or (sign == "/" and (right == 0 or math.isinf(right))):
        return None
    try:
        return _finite({"+": left + right, "-": left - right, "*": left * right, "/": left / (right or 1)}[sign])
    except OverflowError:
        return None


def _called(node, row):
    name, kind = node.name, kind_of(node)
    if name == "coalesce":
        return next((each for node in node.arguments if (each := _as(node, kind, row)) is not None), None)
    if name in ("least", "greatest"):
        listed = [each for node in node.arguments if (each := _as(node, kind, row)) is not None]
        return (min if name == "least" else max)(listed, key=_key) if listed else None
    entry, *others = [value(each, row) for each in node.arguments]
    if entry is None or None in others:
        return None
    if name in ("week", "month", "quarter", "year", "month_of_year", "day", "weekday", "days") and isinstance(
        entry, datetime
    ):
        entry = entry.date()
    return _FUNCTIONS[name](entry, *others)


def _rounded(entry):
    if abs(entry) >= 2**52:
        return float(entry)
    whole = math.trunc(entry)
    return float(whole + (abs(entry - whole) >= 0.5) * (1 if entry > 0 else -1))


def _floor(entry):
    return float(math.floor(entry)) if abs(entry) < 2**52 else float(entry)


def _bucket(entry, width):
    quotient = _computed("/", float(entry), float(width))
    return None if quotient is None else _computed("*", _floor(quotient), float(width))


def _cased(name):
    def changed(entry):
        return entry.translate(table)

    letters, results = case_tables(name)
    table = dict(zip(map(ord, letters), results, strict=True))
    return changed


def _to_number(entry):
    if isinstance(entry, str):
        entry = entry.strip(" ")
        if not re.fullmatch(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", entry):
            return None
        return _finite(float(entry))
    return float(entry)


def _to_whole(entry):
    if isinstance(entry, str):
        entry = entry.strip(" ")
        if not re.fullmatch(r"[+-]?[0-9]+", entry):
            return None
        return int(entry) if -(2**63) <= int(entry) < 2**63 else None
    if isinstance(entry, float):
        return int(_rounded(entry)) if abs(entry) <= 2**53 else None
    return int(entry)


def _to_text(entry):
    return (
        str(entry).lower() if isinstance(entry, bool) else entry.isoformat() if isinstance(entry, date) else str(entry)
    )


def _to_date(entry):
    if isinstance(entry, str):
        try:
            entry = entry.strip(" ")
            return date.fromisoformat(entry) if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", entry) else None
        except ValueError:
            return None
    return entry.date() if isinstance(entry, datetime) else entry


_FUNCTIONS = {
    "abs": lambda entry: abs(float(entry)),
    "exp": lambda entry: math.exp(entry) if entry < 709 else None,
    "ln": lambda entry: math.log(entry) if entry > 0 else None,
    "sqrt": lambda entry: math.sqrt(entry) if entry >= 0 else None,
    "contains": lambda entry, part: part in entry,
    "floor": _floor,
    "round": _rounded,
    "bucket": _bucket,
    "lower": _cased("lower"),
    "upper": _cased("upper"),
    "trim": lambda entry: entry.strip(" "),
    "length": len,
    "substring": lambda entry, start, count=10**6: entry[start - 1 : start - 1 + count],
    "year": lambda entry: entry.year,
    "month_of_year": lambda entry: entry.month,
    "day": lambda entry: entry.day,
    "weekday": lambda entry: entry.isoweekday(),
    "hour": lambda entry: entry.hour,
    "week": lambda entry: entry - timedelta(days=entry.weekday()),
    "month": lambda entry: entry.replace(day=1),
    "quarter": lambda entry: entry.replace(month=(entry.month - 1) // 3 * 3 + 1, day=1),
    "days": lambda entry, other: (other - entry).days,
    "number": _to_number,
    "whole": _to_whole,
    "text": _to_text,
    "date": _to_date,
}

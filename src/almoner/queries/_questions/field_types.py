"""Types of the fields of questions: each says its rule once, for Python, TOML, JSON and the OpenAPI document.

A question is open with an ``error`` in place of noise, or "auto" in place of a clip or bounds.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from almoner import _check
from almoner._check import quoted, told
from almoner._reading import AfterValidator, Checked, Field, Number, Numbers, Rule, plain
from almoner.errors import ArgumentError
from almoner.queries._language import expressions as tree
from almoner.queries._language.keys import LONGEST_KEY, check_column, check_table, keys_by_column
from almoner.queries._questions.margins import checked_sets

SHARE = r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*(?:of\s+(\d[\d_]*(?:\.\d*)?(?:[eE]\+?\d+)?)\s*)?"


class Target(NamedTuple):
    """Error that an answer may have: ``amount`` times ``of``, in its units; of its own size where that is None."""

    amount: float
    of: float | None = 1.0


def target(error: object) -> Target:
    """An ``error`` as numbers; refused where it is no positive one, and no share such as "2%" or "2% of 5000"."""
    if isinstance(error, str):
        match = re.fullmatch(SHARE, error)
        if match:
            size = None if match[2] is None else float(match[2])
            read = Target(float(match[1]) / 100, size)
            if 0 < read.amount <= 1e3 and (size is None or 0 < size <= 1e100):
                return read
    elif isinstance(error, int | float) and not isinstance(error, bool) and 0 < error <= 1e100:
        return Target(float(error))
    raise ArgumentError(f"{told(error=error)} must be a number above 0, or a share such as '2%' or '2% of 5000'")


def check_auto(clip: object, most: float | None, *, sigma: object, error: object) -> None:
    """Refuse "auto" where nothing is to be chosen (``most``: a contribution's longest is known), or no price weighs."""
    if clip == "auto" and most is not None:
        raise ArgumentError("clip='auto': nobody counts for more than one full row here; leave clip= out")
    if sigma is not None or error is not None:
        raise ArgumentError("'auto' weighs clipping against the noise that a price buys: give rho= or epsilon=")


LARGEST = 1e100
MOST_CLIP = 1e6
_MOST_COLUMNS = 64

Column = tuple[str, float, float]  # a column's name and the bounds to which its entries are clipped
_Name = Annotated[str, Field(min_length=1, max_length=1000)]
_End = Annotated[float | str, Rule("a number, a date or a time")] | None
_Range = Annotated[list[_End], Field(min_length=2, max_length=2)]
_Key = Annotated[str, Field(max_length=LONGEST_KEY)] | int | bool
_Once = Field(min_length=1, json_schema_extra={"uniqueItems": True})
KeyList = Annotated[list[_Key], _Once]  # keys in JSON
_Keys = KeyList | Annotated[list[_Range], _Once]
_Bound = Annotated[float, Field(ge=-LARGEST, le=LARGEST)]


def _by(by: Any) -> Any:
    """Each column with its keys, or with None where they are left out."""
    return tuple((column, keys or None) for column, keys in keys_by_column(by))


def _same(check: Callable[[Any], object]) -> Callable[[Any], Any]:
    """A validator that changes nothing: the check refuses."""

    def checked(value: Any) -> Any:
        check(value)
        return value

    return checked


def _columns(columns: object) -> tuple[Column, ...]:
    """{column: (low, high)}, or (column, low, high) for each, as tuples."""
    listed: list[Any]
    if isinstance(columns, Mapping):
        listed = [(name, *_listed(bounds)) for name, bounds in columns.items()]
    else:
        listed = [tuple(each) if isinstance(each, Iterable) else (each,) for each in _listed(columns)]
    checked = []
    for each in listed:
        if len(each) != 3:
            raise ArgumentError("each column must have two bounds: {column: (low, high)}")
        check_column(each[0])
        low, high = (plain(bound, float) for bound in each[1:])
        _check.each(_check.within, -LARGEST, LARGEST, columns=(low, high))
        if not high - low > max(1e-100, 1e-9 * max(abs(low), abs(high))):
            name = quoted(each[0], "one")
            raise ArgumentError(f"columns: the bounds of {name} must be increasing, within {LARGEST:g}")
        checked.append((each[0], float(low), float(high)))
    if not 1 <= len(checked) <= _MOST_COLUMNS or len({name for name, _, _ in checked}) < len(checked):
        raise ArgumentError(f"columns must be 1 to {_MOST_COLUMNS} columns, each once")
    return tuple(checked)


def _listed(values: object) -> list[Any]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ArgumentError("columns must be {column: (low, high)}")
    return list(values)


_SHORT, _LONG = (Field(json_schema_extra={"minLength": 1, "maxLength": most}) for most in (100, tree.LONGEST))
TableName = Annotated[str, AfterValidator(_same(lambda name: check_table(table=name))), _SHORT]
ColumnName = Annotated[_Name, Rule("a name")]
Filter = Annotated[str, AfterValidator(_same(tree.parse)), _LONG]
By = Annotated[
    tuple[tuple[str, Any], ...] | Mapping[str, Any] | list[str] | str,
    Checked(_by, dict[_Name, _Keys | None] | list[_Name] | list[tuple[_Name, _Keys | None]] | _Name, "{column: keys}"),
]
Sets = Annotated[
    tuple[tuple[str, ...], ...] | list[list[str]],
    Checked(checked_sets, Annotated[list[list[_Name]], Field(min_length=1)], "lists of columns of by="),
]
_Steps = Field(min_length=1, max_length=tree.MOST_STEPS)
_Listed = Annotated[dict[_Name, _Name], _Steps] | Annotated[list[tuple[_Name, _Name]], _Steps]
PerPerson = Annotated[
    tree.Steps | Mapping[str, str],
    Checked(tree.checked_steps, _Listed, "{name: aggregate}, as in {'visits': 'count()'}"),
]
_One = Field(min_length=1, max_length=1)
PerKey = Annotated[
    tree.KeyedSteps | Mapping[str, Mapping[str, str]],
    Checked(
        tree.checked_each,
        Annotated[dict[_Name, _Listed], _One] | Annotated[list[tuple[_Name, _Listed]], _One],
        "{column: {name: aggregate}}, as in {'invoice': {'total': 'sum(price)'}}",
    ),
]
Length = Annotated[float, Number(1e-3, MOST_CLIP)]
Clip = Annotated[float | str, Number(1e-3, MOST_CLIP, words=("auto",))]
_Size = Annotated[float, Field(gt=0, le=LARGEST)]
_Share = Annotated[str, Field(pattern=f"^{SHARE}$")]
Error = Annotated[float | str, Checked(_same(target), _Size | _Share, "a number above 0, or a share such as '2%'")]
End = Annotated[float | Literal["auto"], Number(-LARGEST, LARGEST, words=("auto",))]
Bounds = Annotated[
    tuple[float, float],
    Numbers(2, 2, -LARGEST, LARGEST, f"two increasing numbers, within {LARGEST:g}", increasing=True),
]
_Many = Field(min_length=1, max_length=_MOST_COLUMNS)
_COLUMNS = Annotated[dict[_Name, tuple[_Bound, _Bound]], _Many] | Annotated[list[tuple[_Name, _Bound, _Bound]], _Many]
Columns = Annotated[
    tuple[Column, ...] | Mapping[str, tuple[float, float]], Checked(_columns, _COLUMNS, "{column: (low, high)}")
]

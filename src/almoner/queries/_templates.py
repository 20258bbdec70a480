"""Write one question of a file for each day, week or month, or for each of several names: templates as plain values."""

import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from itertools import product
from typing import Any

from almoner import _check
from almoner._calendar import start_of
from almoner.errors import ArgumentError

__all__ = ["written_out"]

_MOST = 100_000
_PLACE = re.compile(r"\{\{|\}\}|\{(\w*)\}")


def written_out(entry: Mapping[str, Any], today: date) -> list[dict[str, Any]]:
    """The questions that an entry of a file stands for: itself, if it is no template.

    Args:
        entry: the table of the file. ``every``, ``from``, ``to`` and ``for`` make it a template.
        today: without ``to``, the last period is the last one that ended before today.

    Raises:
        ArgumentError: a template that makes no sense.
    """
    fields = dict(entry)
    every, first, last, matrix = (fields.pop(name, None) for name in ("every", "from", "to", "for"))
    if every is None:
        if first is not None or last is not None:
            raise ArgumentError("from and to need every = 'day', 'week' or 'month'")
        if matrix is None:
            return [fields]
    periods: list[dict[str, Any]] = [{}] if every is None else list(_periods(every, first, last, today))
    names = _matrix(matrix)
    if len(periods) * len(names) > _MOST:
        raise ArgumentError(f"a template stands for at most {_MOST} questions")
    return [_filled(fields, {**period, **each}) for period in periods for each in names]


def _periods(every: object, first: object, last: object, today: date) -> Iterator[dict[str, Any]]:
    """Values for the places of each period that begins between first and last."""
    _check.one_of(("day", "week", "month"), every=every)
    start = start_of(str(every), _date("from", first))
    if last is not None and _date("to", last) < _date("from", first):
        raise ArgumentError("to must not be before from")
    stop = today if last is None else _date("to", last) + timedelta(days=1)
    for place in range(_MOST + 1):
        until = _next(every, start)
        if (until > stop if last is None else start >= stop) or place == _MOST:
            return
        year, week, _ = start.isocalendar()
        named = {"day": start.isoformat(), "week": f"{year:04d}-W{week:02d}", "month": f"{start:%Y-%m}"}
        yield {str(every): named[str(every)], "from": start.isoformat(), "until": until.isoformat()}
        start = until


def _next(every: object, start: date) -> date:
    if every == "month":
        return (start.replace(day=1) + timedelta(days=32)).replace(day=1)
    return start + timedelta(days=7 if every == "week" else 1)


def _date(name: str, value: object) -> date:
    if type(value) is date:
        day = value
    else:
        try:
            day = date.fromisoformat(str(value))
        except ValueError:
            raise ArgumentError(f"{name} must be a date, such as 2011-12-09") from None
    if not 1000 <= day.year <= 9000:
        raise ArgumentError(f"{name} must be in the years 1000 to 9000")
    return day


def _matrix(matrix: object) -> list[dict[str, Any]]:
    """Each combination of the names' values."""
    if matrix is None:
        return [{}]
    if not isinstance(matrix, Mapping) or not all(isinstance(values, list) and values for values in matrix.values()):
        raise ArgumentError("for must be a table of lists, such as { country = ['France', 'Spain'] }")
    for name in matrix:
        if not re.fullmatch(r"\w+", name) or name in ("day", "week", "month", "from", "until"):
            raise ArgumentError("for: each name must be letters and digits, and no name of a period")
    return [dict(zip(matrix, values, strict=True)) for values in product(*matrix.values())]


def _filled(value: Any, places: Mapping[str, Any], field: str = "") -> Any:
    """The value with each {name} in its texts replaced; a text that is nothing else becomes what stands there."""
    if isinstance(value, dict):
        return {name: _filled(each, places, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, places) for each in value]
    if not isinstance(value, str):
        return value
    alone = _PLACE.fullmatch(value)
    if alone and alone[1] and field not in ("key", "where"):
        return _at(alone[1], places)

    def replaced(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]  # a doubled bracket
        text = str(_at(match[1], places))
        return text.replace("'", "''") if field == "where" else text  # it stands in quotes there

    return _PLACE.sub(replaced, value)


def _at(name: str, places: Mapping[str, Any]) -> Any:
    if name not in places:
        raise ArgumentError(f"{{{name}}} is not known here; known are {', '.join(f'{{{each}}}' for each in places)}")
    return places[name]

"""Compare two runs of neighbouring data with the same outputs: what could be told of the person between them.

Everything that the runs make public must follow from what was released, so it must be the same in both.

Names and symbols
    shift         the difference of what noise was added to, in one call; private
    tolerance     by what share of a sensitivity floating-point sums may differ because they are added up otherwise
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from almoner.audit._accounts import Account, Comparison
from almoner.audit._calls import Call, Run
from almoner.errors import ArgumentError, Unsupported
from almoner.mechanisms import Gaussian, Laplace, SampledGaussian

__all__ = ["Found", "Pair", "compare", "difference", "plain"]

Array = NDArray[np.float64]
SIMPLE = (str, bytes, int, bool, type(None), date, Decimal, Fraction, Path, Enum)
"""Kinds of values that are compared as they are."""


class Found(NamedTuple):
    """A rule that is broken: which, in which call (0: in all together), and how. Private."""

    rule: str
    call: int
    says: str


class Pair(NamedTuple):
    """The result of a comparison. Private."""

    found: list[Found]
    revealed: float | None
    paid: float | None
    largest: float
    """The largest shift of a call, as a share of its sensitivity."""


def compare(there: Run, absent: Run, account: Account | None, tolerance: float) -> Pair:
    """Compare two runs with the same calls.

    Args:
        there: the run with the person; private.
        absent: the run without.
        account: what the person paid in the first; None to check single calls alone.
        tolerance: public.

    Guarantee: where nothing is found, each call's exact values differ by at most its sensitivity, and what all calls
        together reveal of the person, for these outputs, costs no more than the account paid; up to the tolerance.
    Source: docs/audit.md
    """
    compared = None if account is None else account.compared()
    found, largest, groups = [], 0.0, {}  # type: list[Found], float, dict[int, list[tuple[Call, Array]]]
    for mine, other in zip(there.calls, absent.calls, strict=True):
        shift = np.asarray(mine.exact.minus(other.exact), np.float64)
        if not np.isfinite(shift).all():
            found.append(Found("not a number", mine.number, "the person makes a sum something that is not finite"))
            continue
        shift = _beyond_rounding(mine, shift, tolerance)
        if mine.of is not None:
            groups.setdefault(mine.of, []).append((mine, shift))
            continue
        norm, limit = _norm(mine.mechanism, shift), _limit(mine.mechanism)
        largest = max(largest, norm / limit)
        if norm > limit:
            found.append(Found("sensitivity", mine.number, _too_far(norm, limit)))
        if compared is not None and norm > 0:
            compared.charge(mine.mechanism, norm)
    for calls in groups.values():
        found += _group(calls, compared)
    if compared is not None and compared.problem():
        found.append(Found("account", 0, compared.problem()))
    revealed, paid = (None, None) if compared is None else (compared.revealed, compared.paid)
    return Pair(found, revealed, paid, largest)


def _too_far(norm: float, limit: float) -> str:
    return f"the person moves the sum by {norm:.6g}, and its sensitivity is {limit:.6g}"


def _beyond_rounding(call: Call, shift: Array, tolerance: float) -> Array:
    """The shift, shortened by what floating-point sums may be off; whole numbers are exact."""
    if call.exact.whole:
        return shift
    length = float(np.linalg.norm(shift))
    size = float(np.linalg.norm(call.exact.numbers)) * 1e-14
    limit = call.part.most if call.part is not None and call.part.rule != "rows" else _limit(call.mechanism)
    room = tolerance * min(limit, 1e300) + size
    return shift * max(0.0, 1 - room / length) if length > 0 else shift


def _limit(mechanism: Any) -> float:
    """The most that a person may move a sum."""
    return float(getattr(mechanism, "sensitivity", np.inf))


def _norm(mechanism: Any, shift: Array) -> float:
    """The length of a shift in the norm in which the mechanism's sensitivity is."""
    if isinstance(mechanism, Laplace):
        return float(np.abs(shift).sum())
    return float(np.linalg.norm(shift))


def _group(calls: Sequence[tuple[Call, Array]], compared: Comparison | None) -> Iterator[Found]:
    """The calls of one mechanism, charged together."""
    first = calls[0][0]
    part = first.part
    if part is None:
        return
    if part.rule == "rows":
        yield from _rows(calls, compared)
        return
    shifts = np.array([float(shift.sum()) for _, shift in calls])
    if part.rule == "counter":
        moved = float(np.abs(np.diff(shifts, prepend=0.0)).sum())
    else:
        moved = float(np.abs(shifts).max())
        if part.one_way and (shifts > 0).any() and (shifts < 0).any():
            yield Found("sensitivity", first.number, "the person moves numbers up and down that must move one way")
    if moved > part.most:
        yield Found("sensitivity", first.number, _too_far(moved, part.most))
    if compared is not None and moved > 0:
        compared.charge(first.mechanism, _limit(first.mechanism) if np.isfinite(_limit(first.mechanism)) else 1.0)


def _rows(calls: Sequence[tuple[Call, Array]], compared: Comparison | None) -> Iterator[Found]:
    """Rows of correlated noise: what is private is C times the shifts, all rows together."""
    last = calls[-1][0].part
    if last is None:
        return
    factor: Any = last.factor
    shifts = np.zeros((factor.steps, calls[0][1].size))
    for call, shift in calls:
        if call.part is not None:
            shifts[call.part.step] = shift
        if float(np.linalg.norm(shift)) > _limit(call.mechanism):
            yield Found("sensitivity", call.number, _too_far(float(np.linalg.norm(shift)), _limit(call.mechanism)))
    moved = float(np.linalg.norm(factor.columns(range(factor.steps)) @ shifts))
    mechanism = calls[0][0].mechanism
    if not isinstance(mechanism, Gaussian | SampledGaussian):
        raise Unsupported(f"{mechanism!r}: correlated noise must be Gaussian")
    if compared is not None and moved > 0:
        compared.charge(mechanism, moved)


def plain(value: Any) -> Any:
    """A value as texts, numbers, lists and dictionaries, which are compared entry by entry.

    Raises:
        ArgumentError: it holds something that has no entries to compare.
    """
    if isinstance(value, SIMPLE):
        return value
    if isinstance(value, float | np.generic):
        return repr(value)  # so that NaN is NaN
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), [plain(each) for each in value.reshape(-1).tolist()]]
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"": type(value).__name__, **named}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Set):
        return sorted(repr(plain(each)) for each in value)
    if isinstance(value, list | tuple | range):
        return [plain(each) for each in value]
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    raise ArgumentError(
        f"public: {type(value).__name__} cannot be compared: give numbers, texts, arrays, tensors, dataclasses, or "
        "lists and dictionaries of them"
    )


def difference(one: Any, other: Any, place: str = "public") -> str:
    """Where two plain values differ first; nothing where they do not."""
    if type(one) is not type(other):
        return f"{place} is of another kind"
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{place} has other names"
        return next(filter(None, (difference(one[key], other[key], f"{place}.{key}") for key in one)), "")
    if isinstance(one, list):
        if len(one) != len(other):
            return f"{place} is of another length"
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (difference(*pair, f"{place}[{at}]") for at, pair in pairs)), "")
    return "" if one == other else f"{place} differs"

"""Check the noise of a recorded run: as large as its mechanisms say, fresh in each call, and new in each run.

Each check is a test whose false-alarm rate is below one in a million; what it misses, it misses.
"""

from collections.abc import Sequence
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc
from scipy.stats import chi2, gamma

from almoner.audit._calls import Call, Run, values_of
from almoner.audit._compare import Found
from almoner.audit._reuse import COLUMNS, Numbers, evidence, numbers_of, used_again
from almoner.mechanisms import DiscreteGaussian, Gaussian, Laplace, SampledGaussian

__all__ = ["noise_found"]

Array = NDArray[np.float64]

ALARM = 1e-7
USED_AGAIN = "the noise of an earlier release is used again"
LEAST_NUMBERS = 8
"""Vectors of at least so many numbers are compared by their directions as well."""
COARSE = 8.0
MOST_PAIRS = 200
SINGLE, DOUBLE = 2.0**-22, 2.0**-51
"""Twice the largest relative error of adding noise in single and in double precision."""


class _Noise(NamedTuple):
    """The noise of one call, in units of its standard deviation or scale, and by how much each number may be off."""

    call: Call
    values: Array
    tolerance: Array


def noise_found(run: Run, again: Run | None) -> list[Found]:
    """Find what is wrong with the noise of a run.

    Args:
        run: private.
        again: the same pipeline on the same data, for noise that is the same in every run; None to leave that out.
    """
    drawn = [_standard(call) for call in run.calls if call.of is None]
    noises = [noise for noise in [*drawn, *_rows(run)] if noise is not None and noise.values.size]
    return [*_too_small(noises), *_twice(noises), *_known(run, again)]


def _standard(call: Call) -> _Noise | None:
    """The noise of a call; None where it cannot be told."""
    if call.exact.labels is not None or not isinstance(call.mechanism, _NOISY):
        return None
    released = values_of(call.released)
    if released.numbers.size != call.exact.numbers.size:
        return None
    scale, noise = _scale(call), np.asarray(released.minus(call.exact), np.float64)
    told, exact = (np.asarray(each.numbers, np.float64) for each in (released, call.exact))
    with np.errstate(over="ignore"):
        rounded = SINGLE if (told.astype(np.float32) == told).all() else DOUBLE
    return _Noise(call, noise / scale, (np.abs(told) + np.abs(exact)) * (rounded / scale))


def _scale(call: Call) -> float:
    return float(call.mechanism.scale if isinstance(call.mechanism, Laplace) else call.mechanism.sigma)


_NOISY = (Gaussian, SampledGaussian, DiscreteGaussian, Laplace)


def _rows(run: Run) -> list[_Noise]:
    """Correlated noise, made independent again: C times the noise of all rows."""
    groups: dict[int, list[Call]] = {}
    for call in run.calls:
        if call.of is not None and call.part is not None and call.part.rule == "rows":
            groups.setdefault(call.of, []).append(call)
    found: list[_Noise] = []
    for calls in groups.values():
        part = calls[-1].part
        factor: Any = None if part is None else part.factor
        rows = [_standard(call) for call in calls]
        complete = [row for row in rows if row is not None]
        if factor is None or len(complete) < len(rows):
            continue
        columns = np.asarray(factor.columns(range(factor.steps)))[: len(rows), : len(rows)]
        values = columns @ np.array([row.values for row in complete])
        off = len(rows) * np.abs(columns) @ np.array([row.tolerance for row in complete])
        found += map(_Noise, calls, values, off)
    return found


def _too_small(noises: Sequence[_Noise]) -> list[Found]:
    """Noise that is smaller than stated, of each kind and size of mechanism."""
    found = []
    for mechanism, same in _kinds(noises).items():
        numbers = np.concatenate([noise.values for noise in same])
        if isinstance(mechanism, Laplace):
            chance = float(gamma.cdf(np.abs(numbers).sum() + len(numbers) / mechanism.scale, len(numbers)))
        else:
            chance = float(chi2.cdf(np.square(numbers).sum(), len(numbers)))
        if not np.isfinite(numbers).all() or chance < ALARM:
            found.append(Found("noise", same[0].call.number, f"there is less noise than {mechanism!r} says"))
    return found


def _kinds(noises: Sequence[_Noise]) -> dict[Any, list[_Noise]]:
    kinds: dict[Any, list[_Noise]] = {}
    for noise in noises:
        kinds.setdefault(noise.call.mechanism, []).append(noise)
    return kinds


def _twice(noises: Sequence[_Noise]) -> list[Found]:
    """Noise of two calls that is the same but for a factor: in few numbers of many calls, or in long vectors."""
    place = used_again(_measured(noises), ALARM)
    if place is not None:
        return [Found("noise", noises[place].call.number, USED_AGAIN)]
    long = [noise for noise in noises if noise.values.size >= LEAST_NUMBERS and not _coarse(noise.call)][:MOST_PAIRS]
    pairs = max(1, len(long) * (len(long) - 1) // 2)
    for place, noise in enumerate(long):
        for before in long[:place]:
            if _alike(noise.values, before.values, ALARM / pairs):
                return [Found("noise", noise.call.number, USED_AGAIN)]
    return []


def _measured(noises: Sequence[_Noise]) -> list[Numbers]:
    """The first numbers of each noise, with what they are rounded to: seen beside other noise of the same mechanism."""
    measured: dict[int, Numbers] = {}
    for same in _kinds(noises).values():
        ends = np.cumsum([noise.values[:COLUMNS].size for noise in same])
        values = np.concatenate([noise.values[:COLUMNS] for noise in same])
        off = np.concatenate([noise.tolerance[:COLUMNS] for noise in same])
        together = numbers_of(values, off, _scale(same[0].call))
        measured |= zip(map(id, same), together.split(ends[:-1]), strict=True)
    return [measured[id(noise)] for noise in noises]


def _coarse(call: Call) -> bool:
    """True if noise in whole numbers is so small that it is often the same."""
    return call.exact.whole and _scale(call) < COARSE


def _alike(one: Array, other: Array, alarm: float) -> bool:
    """True if two vectors point the same way further than independent normal ones do but with this probability."""
    size = min(one.size, other.size)
    one, other = one[:size], other[:size]
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    if not length > 0:
        return False
    cosine = min(1.0, abs(float(one @ other)) / length)
    return float(betaincc(0.5, (size - 1) / 2, cosine**2)) < alarm


def _known(run: Run, again: Run | None) -> list[Found]:
    """Noise that is the same in a second run, in more numbers than would happen by chance."""
    if again is None:
        return []
    both = zip(map(_standard, run.calls), map(_standard, again.calls), strict=False)
    pairs = [(one, two) for one, two in both if one and two and one.values.shape == two.values.shape]
    measured = _measured([one for one, _ in pairs])
    found = [
        each.agree(two.values[:COLUMNS], two.tolerance[:COLUMNS])
        for each, (_, two) in zip(measured, pairs, strict=True)
    ]
    if not found:
        return []
    agree, chance = (np.concatenate(each) for each in zip(*found, strict=True))
    if evidence(agree, chance) < log(1 / ALARM):
        return []
    first = next(one.call.number for (one, _), (same, _) in zip(pairs, found, strict=True) if same.any())
    return [Found("noise", first, "the noise is the same in every run: anybody can draw it again")]

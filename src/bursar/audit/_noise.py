"""Whether the noise of a recorded run is what its mechanisms say: as large, fresh in each call, and new in each run.

Each check is a test whose false-alarm rate is below one in a million; what it misses, it misses.
"""

from collections.abc import Sequence
from math import inf, log, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc
from scipy.stats import chi2, gamma

from bursar.audit._calls import Call, Run, values_of
from bursar.audit._compare import Found
from bursar.mechanisms import DiscreteGaussian, Gaussian, Laplace, SampledGaussian

__all__ = ["noise_found"]

Array = NDArray[np.float64]

ALARM = 1e-7
LEAST_NUMBERS = 8
"""Fewer numbers than this say nothing about being drawn twice."""
COARSE = 8.0
MOST_PAIRS = 200


def noise_found(run: Run, again: Run | None) -> list[Found]:
    """What is wrong with the noise of a run.

    Args:
        run: private.
        again: the same pipeline on the same data, for noise that is the same in every run; None to leave that out.
    """
    drawn = [(call, _standard(call)) for call in run.calls if call.of is None]
    noises = [(call, noise) for call, noise in [*drawn, *_rows(run)] if noise is not None and noise.size]
    return [*_too_small(noises), *_twice(noises), *_known(run, again)]


def _standard(call: Call) -> Array | None:
    """The noise of a call, in units of its standard deviation or scale; None where it cannot be told."""
    mechanism = call.mechanism
    if call.exact.labels is not None or not isinstance(mechanism, _NOISY):
        return None
    released = values_of(call.released)
    if released.numbers.size != call.exact.numbers.size:
        return None
    scale = mechanism.scale if isinstance(mechanism, Laplace) else mechanism.sigma
    return np.asarray(np.asarray(released.minus(call.exact), np.float64) / scale)


_NOISY = (Gaussian, SampledGaussian, DiscreteGaussian, Laplace)


def _rows(run: Run) -> list[tuple[Call, Array | None]]:
    """Correlated noise, made independent again: C times the noise of all rows."""
    groups: dict[int, list[Call]] = {}
    for call in run.calls:
        if call.of is not None and call.part is not None and call.part.rule == "rows":
            groups.setdefault(call.of, []).append(call)
    found: list[tuple[Call, Array | None]] = []
    for calls in groups.values():
        part = calls[-1].part
        factor: Any = None if part is None else part.factor
        rows = [_standard(call) for call in calls]
        complete = [row for row in rows if row is not None]
        if factor is None or len(complete) < len(rows):
            continue
        columns = np.asarray(factor.columns(range(factor.steps)))[: len(rows), : len(rows)]
        found += zip(calls, columns @ np.array(complete), strict=True)
    return found


def _too_small(noises: Sequence[tuple[Call, Array]]) -> list[Found]:
    """Noise that is smaller than stated, of each kind and size of mechanism."""
    kinds: dict[Any, list[tuple[Call, Array]]] = {}
    for call, noise in noises:
        kinds.setdefault(call.mechanism, []).append((call, noise))
    found = []
    for mechanism, same in kinds.items():
        numbers = np.concatenate([noise for _, noise in same])
        if isinstance(mechanism, Laplace):
            chance = float(gamma.cdf(np.abs(numbers).sum() + len(numbers) / mechanism.scale, len(numbers)))
        else:
            chance = float(chi2.cdf(np.square(numbers).sum(), len(numbers)))
        if not np.isfinite(numbers).all() or chance < ALARM:
            found.append(Found("noise", same[0][0].number, f"there is less noise than {mechanism!r} says"))
    return found


def _twice(noises: Sequence[tuple[Call, Array]]) -> list[Found]:
    """The same noise in two calls, whatever it was multiplied by."""
    long = [(call, noise) for call, noise in noises if noise.size >= LEAST_NUMBERS and not _coarse(call)][:MOST_PAIRS]
    pairs = max(1, len(long) * (len(long) - 1) // 2)
    for place, (call, noise) in enumerate(long):
        for _, before in long[:place]:
            if _alike(noise, before, ALARM / pairs):
                return [Found("noise", call.number, "the noise of an earlier release is used again")]
    return []


def _coarse(call: Call) -> bool:
    """Whether noise in whole numbers is so small that it is often the same."""
    scale = call.mechanism.scale if isinstance(call.mechanism, Laplace) else call.mechanism.sigma
    return call.exact.whole and scale < COARSE


def _alike(one: Array, other: Array, alarm: float) -> bool:
    """Whether two vectors point the same way further than independent normal ones do but with this probability."""
    size = min(one.size, other.size)
    one, other = one[:size], other[:size]
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    if not length > 0:
        return False
    cosine = min(1.0, abs(float(one @ other)) / length)
    return float(betaincc(0.5, (size - 1) / 2, cosine**2)) < alarm


def _known(run: Run, again: Run | None) -> list[Found]:
    """Noise that is the same in a second run, in more releases than would happen by chance.

    Where release i would be the same with a chance of p_i, exp of the sum of log(1 / p_i) over those that are is below
    2^N / ALARM for N releases, but with a probability of ALARM (Markov's inequality).
    """
    if again is None:
        return []
    first, evidence = None, -log(1 / ALARM)
    for mine, other in zip(run.calls, again.calls, strict=False):
        one, two = _standard(mine), _standard(other)
        if one is None or two is None or not one.size or _coarse(mine):
            continue
        if mine.exact.whole:
            evidence -= log(2)
        if np.allclose(one, two, rtol=1e-9, atol=1e-12):
            first = mine.number if first is None else first
            evidence += one.size * _surprise(mine)
    if first is None or evidence < 0:
        return []
    return [Found("noise", first, "the noise is the same in every run: anybody can draw it again")]


def _surprise(call: Call) -> float:
    """The logarithm of one over the chance that a number of noise is drawn twice; infinite for real numbers."""
    if not call.exact.whole:
        return inf
    if isinstance(call.mechanism, Laplace):
        return log(4 * call.mechanism.scale)
    return log(2 * sqrt(pi) * call.mechanism.sigma)

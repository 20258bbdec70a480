"""Everybody's epsilon from privacy loss distributions: one matrix product for all people at once.

Names and symbols
    counts    (n, j) how often each person took each kind of round; private
    W, c      half-width and centre of a person's window [c - W, c + W)
    K         frequencies used; what is wanted of a loss becomes a Fourier series on the window
    tilt      t >= 0: the series is of exp(-t v) (1 - exp(-v)), v = loss - eps > 0, under exp(t * loss)
    delta     failure probability, in (0, 1)

What the bounds add for the window, the frequencies left out, and rounding: docs/proofs/losses.md.

Source: theory 7.1, 7.2; Koskela, Tobaben & Honkela (2023), section 5 and appendix D.
"""

from collections.abc import Sequence
from math import pi
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, to_device
from numpy.typing import NDArray
from scipy.special import ndtri

from bursar import mechanisms
from bursar.curves.losses._laws import law
from bursar.curves.losses._windows import BLOCK, Group, groups, host, on, shifted, tilts_at_delta, tilts_at_epsilons

__all__ = ["deltas", "epsilons"]

Floats = NDArray[np.float64]

_ULP = 2.0**-52
_COARSE, _TURNS = 64, 24
_FAR = 600.0  # an exponent that needs no further telling apart
_AGAIN = (0, 0, -1, -2, -4, 1)  # places of the tilt: tried one after the other where what is charged is seen
_BLUNT = 4e-3  # part of delta
_LEAST = 1e-8  # the delta that windows are sized for where epsilon is given and delta is not small
_ENOUGH = 1e-5  # relative: how far above the crossing an epsilon may be found


def _flat(v: Floats, tilt: float, width: float) -> Floats:
    """The part of a series that does not wave."""
    less = np.expm1(-(1 + tilt) * v) / (1 + tilt)
    return np.asarray((less + (-np.expm1(-tilt * v) / tilt if tilt > 0 else v)) / (2 * width))


def _coefficients(u: Floats, tilt: float, width: float, count: int) -> tuple[Floats, Floats]:
    """(points,) and (points, 2K): the series at centre + u is the first plus the second times the group's."""
    v = width - u
    k = np.arange(1.0, count + 1)
    tau = pi * k / width
    low = tilt + 1j * tau
    sign = np.where(k % 2, -1.0, 1.0)
    end = np.exp(-tilt * v)[:, None] * (1 - low * np.expm1(-v)[:, None])
    c = (np.exp(-1j * np.outer(u, tau)) - sign * end) / (low * (1 + low) * 2 * width)
    return _flat(v, tilt, width), np.concatenate([2 * c.real, -2 * c.imag], axis=1)


def _product(series: Any, matrix: Floats, xp: Any) -> Floats:
    """A matrix product whose sums are taken in blocks, which keeps their rounding small."""
    total = np.zeros((series.shape[0], matrix.shape[1]))
    for start in range(0, matrix.shape[0], BLOCK):
        stop = start + BLOCK
        total += host(xp.matmul(series[:, start:stop], on(matrix[start:stop], series, xp)))
    return total


def _at(group: Group, u: Floats, who: NDArray[np.int64], xp: Any) -> Floats:
    """The series of some people, each at their own u."""
    width, tilt, series = group.width, group.tilt, group.series
    if len(who) < series.shape[0]:
        series = xp.take(series, xp.asarray(who, device=device(series)), axis=0)
    k = np.arange(1.0, group.count + 1)
    tau = pi * k / width
    v = width - u
    low = tilt + 1j * tau
    inverse = 1 / (low * (1 + low)) / width
    angle = on(u, series, xp)[:, None] * on(tau, series, xp)[None, :]
    cosine, sine = xp.cos(angle), xp.sin(angle)
    real, imaginary = series[:, : group.count], series[:, group.count :]
    moved_real, moved_imaginary = real * cosine + imaginary * sine, imaginary * cosine - real * sine
    moved = xp.concat([moved_real, moved_imaginary], axis=1)
    waves = _product(moved, np.concatenate([inverse.real, -inverse.imag])[:, None], xp)[:, 0]
    sign = np.where(k % 2, -1.0, 1.0)
    fixed = np.stack([sign * inverse, -sign * inverse * low], axis=1)
    ends = np.concatenate([fixed.real, -fixed.imag], axis=0)
    constant = _product(series, ends, xp)
    end = np.exp(-tilt * v) * (constant[:, 0] + constant[:, 1] * np.expm1(-v))
    return _flat(v, tilt, width) + waves - end


def _value(group: Group, u: Floats, who: NDArray[np.int64], lower: bool, xp: Any) -> Floats:
    """An upper bound (lower: a lower one) on the computed composition's delta at centre + u, for some people."""
    charge = -group.charge if lower else group.charge
    sum_ = np.maximum(_at(group, u, who, xp) + charge[who], 0.0)
    return np.exp(np.clip(group.height[who] - group.tilt * u, None if lower else -_FAR, _FAR)) * sum_


def _table(group: Group, points: Floats, lower: bool, xp: Any) -> Floats:
    """The same for everybody at the same points."""
    charge = -group.charge if lower else group.charge
    flat, waves = _coefficients(points, group.tilt, group.width, group.count)
    sums = np.maximum(_product(group.series, waves.T.copy(), xp) + flat + charge[:, None], 0.0)
    return np.exp(np.clip(group.height[:, None] - group.tilt * points, None if lower else -_FAR, _FAR)) * sums


def _crossing(group: Group, target: Floats, lower: bool, xp: Any) -> Floats:
    """The least epsilon found whose delta is at most the target (lower: the largest whose delta is above it)."""
    usable = (target > 0) & (target < 1)
    goal = np.where(usable, target, 0.5)
    start = -min(group.width, max(0.0, float(group.centre.max())) + 1e-9)
    points = np.linspace(start, group.width, _COARSE)
    table = _table(group, points, lower, xp)
    fits = table <= goal[:, None]
    people = np.arange(len(goal))
    # the first that fits; lower bounds are weak far to the left: after the last that does not fit
    right = _COARSE - (~fits[:, ::-1]).argmax(axis=1) if lower else fits.argmax(axis=1)
    found, below = fits.any(axis=1), (fits.all(axis=1) if lower else right == 0)
    left, right = np.maximum(right - 1, 0), np.minimum(right, _COARSE - 1)
    a, b = points[left], points[right]
    high, low = table[people, left], table[people, right]
    for turn in range(_TURNS):
        drop = np.log(np.maximum(high, 1e-290) / np.maximum(low, 1e-3 * goal))
        doubt = (b - a) * np.where(lower, 1.0, drop / 8)  # of the chord's root
        open_ = usable & found & ~below & (doubt > _ENOUGH * (group.centre + b))
        who = np.flatnonzero(open_ & (group.centre + b > 0))
        if not len(who):
            break
        share = np.log(np.maximum(high[who], 1e-290) / goal[who]) / np.maximum(drop[who], 1e-12)
        from_, to = a[who], b[who]
        guess = from_ + (to - from_) * np.clip(share, 0.01, 0.99)
        guess += (0.1 if turn % 2 == 0 else -0.1) * np.minimum(guess - from_, to - guess)
        value = _value(group, guess, who, lower, xp)
        fit = value <= goal[who]
        b[who], low[who] = np.where(fit, guess, to), np.where(fit, value, low[who])
        a[who], high[who] = np.where(fit, from_, guess), np.where(fit, high[who], value)
    if lower:
        return np.where(usable & found & ~below, np.maximum(group.centre + a, 0.0), 0.0)
    # delta is convex in exp(epsilon): below the chord. The chord's root, a little to the right
    share = np.clip((high - goal) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    root = a + np.log1p(share * np.expm1(b - a))
    root = np.where(below, points[0], np.minimum(root + 1e-9 * (b - a), b))
    return np.where(usable & found, np.maximum(group.centre + root, 0.0) * (1 + 4 * _ULP), np.inf)


def _prepared(
    counts: Any, rounds: Sequence[mechanisms.Mechanism], lower: bool
) -> tuple[Any, Any, NDArray[np.bool_], NDArray[np.bool_], list[mechanisms.Mechanism]]:
    """Rounds of infinite loss taken aside; who has any round at all."""
    xp = array_namespace(counts)
    finite = np.asarray([law(r, lower=lower) is not None for r in rounds], dtype=bool)
    lost = np.zeros(counts.shape[0], dtype=bool)
    if not finite.all():
        away = xp.take(counts, xp.asarray(np.flatnonzero(~finite), device=device(counts)), axis=1)
        lost = np.asarray(to_device(xp.any(away > 0, axis=1), "cpu"))
        counts = xp.take(counts, xp.asarray(np.flatnonzero(finite), device=device(counts)), axis=1)
    some = np.asarray(to_device(xp.any(counts > 0, axis=1), "cpu")) if finite.any() else np.zeros(len(lost), dtype=bool)
    return counts, xp, lost, some & ~lost, [r for r, kept in zip(rounds, finite, strict=True) if kept]


def _moved(blur: float, delta: float) -> float:
    """The noise added is above this with probability at most delta / 1000."""
    return blur * blur / 2 + blur * float(-ndtri(1e-3 * delta)) * (1 + 1e-9)


def epsilons(counts: Any, rounds: Sequence[mechanisms.Mechanism], /, *, delta: float, lower: bool = False) -> Floats:
    """Everybody's epsilon at one delta.

    Args:
        counts: (n, j) whole numbers >= 0, private.
        rounds: (j,) public; the mechanism of each column.
        delta: public, in (0, 1).
        lower: a lower bound instead of an upper one.

    Returns:
        (n,) nats, private; upper bounds are inf where the certificate does not reach delta, lower bounds 0.

    Guarantee: each person's composition of rounds, fixed in advance, is (epsilon, delta)-DP in both directions (with
        lower: is not (e, delta)-DP for any e below).
    Source: theory 7.1, 7.2; docs/proofs/losses.md.
    """
    counts, xp, lost, some, kinds = _prepared(counts, rounds, lower)
    people = np.flatnonzero(some)
    best = np.full((2, len(lost)), 0.0 if lower else np.inf)  # of each direction
    best[:, ~(lost | some)] = 0.0
    blunt = np.zeros(best.shape, dtype=bool)
    tilt = np.zeros(len(lost))
    if len(people):
        tilt[people] = tilts_at_delta(counts, kinds, delta, people, xp)
    for turn, by in enumerate(_AGAIN):
        tilts = shifted(tilt[people], by)
        for index, pair in groups(counts, kinds, tilts, delta, lower, people, xp, close=turn > 0):
            for side, group in enumerate(pair):
                found, unsure = _epsilon(group, delta, lower, xp)
                blunt[side, index] = np.where((found > best[side, index]) == lower, unsure, blunt[side, index])
                best[side, index] = (np.maximum if lower else np.minimum)(found, best[side, index])
        last = blunt[best.argmax(axis=0), np.arange(len(lost))]
        people = people[last[people] & (tilt[people] > 0)]
    return np.asarray(best.max(axis=0))


def _epsilon(group: Group, delta: float, lower: bool, xp: Any) -> tuple[Floats, NDArray[np.bool_]]:
    """Of one direction; and whether another tilt may do better."""
    if lower:
        found = _crossing(group, delta * (1 + 1e-3) / group.shrink, True, xp)
    else:
        found = _crossing(group, delta * group.shrink - group.ceiling, False, xp)
    u = np.where(found < np.inf, found, 0.0) - group.centre
    share = np.exp(np.clip(group.height - group.tilt * u, -_FAR, _FAR)) * group.blunt / delta
    unsure = ((share > _BLUNT) | (u < -0.999 * group.width)) & (found > 0) | (found == np.inf)
    return (np.maximum(found - _moved(group.blur, delta), 0.0) if lower else found), unsure


def deltas(counts: Any, rounds: Sequence[mechanisms.Mechanism], /, *, epsilon: Any) -> Floats:
    """Everybody's delta at one or several epsilons.

    Args:
        counts: (n, j) whole numbers >= 0, private.
        rounds: (j,) public; the mechanism of each column.
        epsilon: public, >= 0, one or several.

    Returns:
        (n,) or (several, n) in [0, 1], private, rounded up.

    Guarantee: each person's composition of rounds, fixed in advance, is (epsilon, delta)-DP in both directions.
    Source: theory 7.1, 7.2; docs/proofs/losses.md.
    """
    counts, xp, lost, some, kinds = _prepared(counts, rounds, False)
    points = np.atleast_1d(np.asarray(epsilon, dtype=np.float64))
    result = np.tile(np.where(lost | some, 1.0, 0.0), (len(points), 1))
    people = np.flatnonzero(some)
    chosen = np.zeros(result.shape)
    if len(people):
        chosen[:, people] = tilts_at_epsilons(counts, kinds, points, people, xp)
    unsure = np.zeros(result.shape, dtype=bool)
    unsure[:, people] = True
    for turn, by in enumerate(_AGAIN[:4]):
        tilts = shifted(chosen, by)
        again = unsure.copy()
        for tilt in np.unique(tilts[again]):
            wanted = again & (tilts == tilt)
            who = np.flatnonzero(wanted.any(axis=0))
            same = np.full(len(who), tilt)
            for index, pair in groups(counts, kinds, same, _LEAST, False, who, xp, close=turn > 0):
                for j in np.flatnonzero(wanted[:, index].any(axis=1)):
                    mine = index[wanted[j, index]]
                    both = [_delta(group, float(points[j]), xp) for group in pair]
                    value, far = (np.maximum(*each)[wanted[j, index]] for each in zip(*both, strict=True))
                    result[j, mine] = np.minimum(result[j, mine], value)
                    unsure[j, mine] = (far > _BLUNT * value) & (tilt > 0)
    return result if np.ndim(epsilon) else result[0]


def _delta(group: Group, epsilon: float, xp: Any) -> tuple[Floats, Floats]:
    """Certified delta of one direction, and about how far it may be above the truth; outside the window only what is
    monotone is used."""
    u = epsilon - group.centre
    inside = np.clip(u, -group.width, group.width)  # to the right of the window delta only falls
    value = _value(group, inside, np.arange(len(u)), False, xp) + group.ceiling
    far = np.exp(np.clip(group.height - group.tilt * inside, -_FAR, _FAR)) * group.blunt
    return np.where(u >= -group.width, np.minimum(value / group.shrink * (1 + 8 * _ULP), 1.0), 1.0), np.where(
        u >= -group.width, far, 1.0
    )

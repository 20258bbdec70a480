"""Everybody's epsilon from privacy loss distributions: one matrix product for all people at once.

Names and symbols
    counts    (n, j) how often each person took each kind of round; private
    c         centre, the mean of a person's composed loss
    W         half-width of a person's window [c - W, c + W)
    K         frequencies used; the function (1 - exp(eps - loss))_+ becomes a Fourier series on the window
    delta     failure probability, in (0, 1)

What the bounds add for the window, the frequencies left out, and rounding: docs/proofs/losses.md.

Source: theory 7.1, 7.2; Koskela, Tobaben & Honkela (2023), section 5 and appendix D.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, to_device
from numpy.typing import NDArray
from scipy.special import exp1, ndtri

from bursar import mechanisms
from bursar.curves import _spectra
from bursar.curves._laws import Law, Normal, law

__all__ = ["deltas", "epsilons"]

Floats = NDArray[np.float64]

_ULP = 2.0**-52
_CHUNK = 8192
_LOSS = 1e-4  # part of delta that the window and the frequencies left out may each cost
_CAPS = (2**11, 2**13, 2**16)
_WIDEST = 1024.0
_COARSE, _ROUNDS = 64, 4
_BLOCK = 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """All kinds of rounds in one direction."""

    laws: tuple[Law | Normal, ...]
    means: Floats
    ceilings: Floats
    xis: Floats
    up: Floats  # log moment generating functions (j, tilts)
    down: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Where to compute a person: window, cap, and the three sums that do not depend on the frequencies."""

    width: Floats
    cap: NDArray[np.int64]
    rounds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """People who share a window and a number of frequencies, in one direction, and what is charged for it."""

    series: Any  # (m, 2K) real and imaginary parts of their characteristic functions
    centre: Floats  # (m,) nats, with the shift for xi and the rounding of the centre
    charge: Floats  # (m,) what is charged to delta
    shrink: Floats  # (m,) exp(-sum of xi)
    width: float
    count: int
    blur: float


def _sides(rounds: Sequence[mechanisms.Mechanism], lower: bool) -> tuple[_Side, _Side]:
    pairs = [law(r, lower=lower) for r in rounds]
    sides = []
    for which in (0, 1):
        laws = tuple(pair[which] for pair in pairs if pair is not None)
        grown = [_spectra.moments(one) for one in laws]
        sides.append(
            _Side(
                laws,
                np.asarray([one.mean for one in laws]),
                np.asarray([one.ceiling for one in laws]),
                np.asarray([one.xi + 2 * _ULP * one.variance**0.5 for one in laws]),
                np.asarray([up for up, _ in grown]),
                np.asarray([down for _, down in grown]),
            )
        )
    return sides[0], sides[1]


def _on(array: Floats, like: Any, xp: Any) -> Any:
    return xp.asarray(array, dtype=xp.float64, device=device(like))


def _host(array: Any) -> Floats:
    return np.asarray(to_device(array, "cpu"))


def _chunks(index: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for start in range(0, len(index), _CHUNK):
        yield index[start : start + _CHUNK]


def _rows(counts: Any, index: NDArray[np.int64], xp: Any) -> Any:
    chosen = xp.take(counts, xp.asarray(index, device=device(counts)), axis=0)
    return xp.astype(chosen, xp.float64)


def _plan(counts: Any, sides: tuple[_Side, _Side], tolerance: float, people: NDArray[np.int64], xp: Any) -> _Plan:
    """Windows that lose at most the tolerance at either end, by Chernoff's bound at the best tilt."""
    both = np.concatenate([sides[0].up, sides[0].down, sides[1].up, sides[1].down], axis=1)
    variances = np.asarray([one.variance for one in sides[0].laws])
    matrix = _on(np.concatenate([both, variances[:, None], np.ones((len(both), 1))], axis=1), counts, xp)
    width, spread, rounds = (np.empty(len(people)) for _ in range(3))
    place = np.arange(len(people))
    for part in _chunks(place):
        sums = _host(xp.matmul(_rows(counts, people[part], xp), matrix))
        grown = sums[:, :-2].reshape(len(part), 4, -1)
        width[part] = ((grown + log(1 / tolerance)) / _spectra.TILTS).min(axis=2).max(axis=1)
        spread[part], rounds[part] = np.sqrt(sums[:, -2]), sums[:, -1]
    width = np.exp2(np.ceil(np.log2(width * 1.01) * 3) / 3)
    wanted = 150 * width / np.maximum(spread, 1e-300)
    cap = np.where(wanted <= _CAPS[0], _CAPS[0], np.where(wanted <= _CAPS[1], _CAPS[1], _CAPS[2]))
    return _Plan(width, cap, rounds)


def _tier(
    rows: Any, sides: tuple[_Side, _Side], width: float, cap: int, tolerance: float, rounds: Floats, xp: Any
) -> tuple[NDArray[np.int64], Floats]:
    """How many frequencies each person needs, and (m, tiers) what those left out may cost in delta."""
    edges = np.asarray(_spectra.tiers(cap))
    blur = (pi * edges[:-1] / width) ** 2 * _blur(width, cap) ** 2 / 2
    cost = np.full((len(rounds), len(edges)), exp1(_spectra.BLUR**2 / 2) / pi)
    for side in sides:
        least = np.asarray([_spectra.tails(one, width, cap).least for one in side.laws])
        sums = _host(xp.matmul(rows, _on(least, rows, xp)))
        each = 2 / pi * np.log(edges[1:] / edges[:-1]) * np.exp(-(sums * (1 - 1e-12) + blur))
        left = np.cumsum(each[:, ::-1], axis=1)[:, ::-1] + exp1(_spectra.BLUR**2 / 2) / pi
        cost[:, :-1] = np.maximum(cost[:, :-1], left)
    cost *= min(1.0, 2 * width) * (1 + 1e-9)
    fits = cost <= tolerance
    fits[:, -1] = True
    return fits.argmax(axis=1), cost


def _blur(width: float, cap: int) -> float:
    return _spectra.BLUR * width / (pi * cap)


def _matrix(side: _Side, width: float, count: int, most: Floats) -> tuple[Floats, float]:
    """(j, 2K) real and imaginary parts of the logarithms, and a bound for all rounding in a person's delta."""
    parts = [_spectra.columns(one, width, count) for one in side.laws]
    real, imaginary = np.asarray([p.real for p in parts]), np.asarray([p.imaginary for p in parts])
    error, lost = np.asarray([p.error for p in parts]), np.maximum(-real, 1e-300)
    size = np.exp(real)
    gemm = (len(parts) + 8) * _ULP * (1 + np.abs(imaginary) / lost)
    rate = gemm + np.where(size >= 0.25, error / size / lost, 0.0)
    plain = most[:, None] * np.where(size >= 0.25, rate * lost, gemm * lost)  # where a lattice returns to one
    per = np.where(0.4 * rate <= plain, 0.4 * rate, 0.0).max(axis=0)
    per += np.where(0.4 * rate <= plain, 0.0, plain).sum(axis=0) + np.where(size < 0.25, 4 * error, 0.0).sum(axis=0)
    k = np.arange(1.0, count + 1)
    scale = min(1.0, 2 * width)
    total = scale * float((2 / (pi * k) * (per + 64 * _ULP)).sum())
    # sums over frequencies come in blocks; an angle's rounding meets the part of a coefficient that falls as 1/k²
    total += scale * (min(2 * count, _BLOCK) + 2 * count / _BLOCK + 32) * _ULP * (2 + log(count))
    total += 8 * _ULP * width * (1 + log(count))
    return np.concatenate([real, imaginary], axis=1), total


def _groups(
    counts: Any, sides: tuple[_Side, _Side], tolerance: float, lower: bool, people: NDArray[np.int64], xp: Any
) -> Iterator[tuple[NDArray[np.int64], tuple[_Group, _Group]]]:
    """Everybody, in groups of similar spread; both directions of each."""
    plan = _plan(counts, sides, tolerance, people, xp)
    fits = plan.width <= _WIDEST
    for width in np.unique(plan.width[fits]):
        for cap in np.unique(plan.cap[fits & (plan.width == width)]):
            index = np.flatnonzero(fits & (plan.width == width) & (plan.cap == cap))
            for part in _chunks(index):
                rows, used = _used(_rows(counts, people[part], xp), sides, xp)
                tier, cost = _tier(rows, used, float(width), int(cap), tolerance, plan.rounds[part], xp)
                for chosen in np.unique(tier):
                    mine = np.flatnonzero(tier == chosen)
                    some = xp.take(rows, xp.asarray(mine, device=device(rows)), axis=0)
                    count = _spectra.tiers(int(cap))[chosen]
                    shared = some, float(width), int(cap), count, cost[mine, chosen], plan.rounds[part][mine], lower, xp
                    yield people[part[mine]], (_group(used[0], *shared), _group(used[1], *shared))


def _used(rows: Any, sides: tuple[_Side, _Side], xp: Any) -> tuple[Any, tuple[_Side, _Side]]:
    """Without the kinds of rounds that none of these people took part in."""
    kept = np.flatnonzero(np.asarray(to_device(xp.any(rows > 0, axis=0), "cpu")))
    rows = xp.take(rows, xp.asarray(kept, device=device(rows)), axis=1)
    first, second = (
        _Side(tuple(s.laws[j] for j in kept), s.means[kept], s.ceilings[kept], s.xis[kept], s.up[kept], s.down[kept])
        for s in sides
    )
    return rows, (first, second)


def _group(
    side: _Side, rows: Any, width: float, cap: int, count: int, left: Floats, rounds: Floats, lower: bool, xp: Any
) -> _Group:
    """One direction of a group: the characteristic functions, and what is charged to delta and to epsilon."""
    matrix, rounding = _matrix(side, width, count, _host(xp.max(rows, axis=0)))
    ends = side.down if lower else side.up
    sums = _host(
        xp.matmul(
            rows,
            _on(
                np.concatenate(
                    [np.stack([side.means, np.abs(side.means), side.ceilings, side.xis], axis=1), ends], axis=1
                ),
                rows,
                xp,
            ),
        )
    )
    blur = _blur(width, cap)
    exponent = sums[:, 4:] + (_spectra.TILTS * blur) ** 2 / 2 - _spectra.TILTS * width
    wrapped = np.exp(exponent.min(axis=1) + 1e-13 * (1 + rounds))
    logs = xp.matmul(rows, _on(matrix, rows, xp))
    k = np.arange(1.0, count + 1)
    size = xp.exp(logs[:, :count] + _on(-((pi * k / width * blur) ** 2) / 2, rows, xp))
    angle = logs[:, count:]
    series = xp.concat([size * xp.cos(angle), size * xp.sin(angle)], axis=1)
    spare = 2 * sums[:, 3] + 64 * _ULP * (sums[:, 1] + width)
    centre = sums[:, 0] + blur**2 / 2 + (-spare if lower else spare)
    ceiling = 0.0 if lower else sums[:, 2]
    return _Group(series, centre, left + wrapped + rounding + ceiling, np.exp(-sums[:, 3]), width, count, blur)


def _coefficients(u: Floats, width: float, count: int) -> tuple[Floats, Floats]:
    """(points,) and (points, 2K): delta at centre + u is the first plus the second times the series."""
    v = width - u
    flat = (v + np.expm1(-v)) / (2 * width)
    k = np.arange(1.0, count + 1)
    tau = pi * k / width
    whole = 1j * tau * (1 + 1j * tau)
    sign = np.where(k % 2, -1.0, 1.0)
    waves = np.exp(-1j * np.outer(u, tau)) - sign * (1 - 1j * tau * np.expm1(-v)[:, None])
    c = waves / (whole * 2 * width)
    return flat, np.concatenate([2 * c.real, -2 * c.imag], axis=1)


def _product(series: Any, matrix: Floats, xp: Any) -> Floats:
    """A matrix product whose sums are taken in blocks, which keeps their rounding small."""
    total = np.zeros((series.shape[0], matrix.shape[1]))
    for start in range(0, matrix.shape[0], _BLOCK):
        stop = start + _BLOCK
        total += _host(xp.matmul(series[:, start:stop], _on(matrix[start:stop], series, xp)))
    return total


def _at(group: _Group, u: Floats, xp: Any) -> Floats:
    """The series' delta of each person at their own u."""
    width, series = group.width, group.series
    k = np.arange(1.0, group.count + 1)
    tau = pi * k / width
    v = width - u
    flat = (v + np.expm1(-v)) / (2 * width)
    inverse = 1 / (1j * tau * (1 + 1j * tau)) / width
    angle = _on(u, series, xp)[:, None] * _on(tau, series, xp)[None, :]
    cosine, sine = xp.cos(angle), xp.sin(angle)
    real, imaginary = series[:, : group.count], series[:, group.count :]
    moved_real, moved_imaginary = real * cosine + imaginary * sine, imaginary * cosine - real * sine
    moved = xp.concat([moved_real, moved_imaginary], axis=1)
    waves = _product(moved, np.concatenate([inverse.real, -inverse.imag])[:, None], xp)[:, 0]
    sign = np.where(k % 2, -1.0, 1.0)
    fixed = np.stack([sign * inverse, -sign * inverse * 1j * tau], axis=1)
    ends = np.concatenate([fixed.real, -fixed.imag], axis=0)
    constant = _product(series, ends, xp)
    return flat + waves - constant[:, 0] - constant[:, 1] * np.expm1(-v)


def _crossing(group: _Group, target: Floats, lower: bool, xp: Any) -> Floats:
    """The least epsilon found whose delta is at most the target (lower: the largest whose delta is above it)."""
    usable = (target > 0) & (target < 1)
    goal = np.where(usable, target, 0.5)
    start = -min(group.width, max(0.0, float(group.centre.max())) + 1e-9)
    points = np.linspace(start, group.width, _COARSE)
    flat, waves = _coefficients(points, group.width, group.count)
    table = _product(group.series, waves.T.copy(), xp) + flat
    fits = table <= goal[:, None]
    people = np.arange(len(goal))
    right = fits.argmax(axis=1)
    found, below = fits.any(axis=1), right == 0
    left = np.maximum(right - 1, 0)
    a, b = points[left], points[right]
    high, low = table[people, left], table[people, right]
    for turn in range(_ROUNDS):
        safe_high, safe_low = np.maximum(high, 1e-290), np.maximum(low, 1e-3 * goal)
        share = np.log(safe_high / goal) / np.maximum(np.log(safe_high / safe_low), 1e-12)
        guess = a + (b - a) * np.clip(share, 0.01, 0.99)
        guess += (0.1 if turn % 2 == 0 else -0.1) * np.minimum(guess - a, b - guess)
        value = _at(group, guess, xp)
        fit = value <= goal
        b, low = np.where(fit, guess, b), np.where(fit, value, low)
        a, high = np.where(fit, a, guess), np.where(fit, high, value)
    if lower:
        return np.where(usable & found & ~below, np.maximum(group.centre + a, 0.0), 0.0)
    # delta is convex in exp(epsilon): below the chord. The chord's root, a little to the right
    share = np.clip((high - goal) / np.maximum(high - low, 1e-300), 0.0, 1.0)
    root = a + np.log1p(share * np.expm1(b - a))
    root = np.where(below, points[0], np.minimum(root + 1e-9 * (b - a), b))
    return np.where(usable & found, np.maximum(group.centre + root, 0.0) * (1 + 4 * _ULP), np.inf)


def _prepared(
    counts: Any, rounds: Sequence[mechanisms.Mechanism], lower: bool
) -> tuple[Any, Any, NDArray[np.bool_], NDArray[np.bool_], tuple[_Side, _Side]]:
    """Rounds of infinite loss taken aside; who has any round at all."""
    xp = array_namespace(counts)
    finite = np.asarray([law(r, lower=lower) is not None for r in rounds], dtype=bool)
    lost = np.zeros(counts.shape[0], dtype=bool)
    if not finite.all():
        away = xp.take(counts, xp.asarray(np.flatnonzero(~finite), device=device(counts)), axis=1)
        lost = np.asarray(to_device(xp.any(away > 0, axis=1), "cpu"))
        counts = xp.take(counts, xp.asarray(np.flatnonzero(finite), device=device(counts)), axis=1)
    some = np.asarray(to_device(xp.any(counts > 0, axis=1), "cpu")) if finite.any() else np.zeros(len(lost), dtype=bool)
    return counts, xp, lost, some & ~lost, _sides(rounds, lower)


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
    counts, xp, lost, some, sides = _prepared(counts, rounds, lower)
    result = np.where(lost, 0.0 if lower else np.inf, 0.0)
    people = np.flatnonzero(some)
    if not lower:
        result[people] = np.inf
    for index, pair in _groups(counts, sides, _LOSS * delta, lower, people, xp) if len(people) else ():
        best = np.zeros(len(index))
        for group in pair:
            if lower:
                target = (delta + 1e-3 * delta + group.charge) / group.shrink
                best = np.maximum(best, _crossing(group, target, True, xp) - _moved(group.blur, delta))
            else:
                best = np.maximum(best, _crossing(group, delta * group.shrink - group.charge, False, xp))
        result[index] = np.maximum(best, 0.0)
    return result


def deltas(counts: Any, rounds: Sequence[mechanisms.Mechanism], /, *, epsilon: Any, least: float = 1e-12) -> Floats:
    """Everybody's delta at one or several epsilons.

    Args:
        counts: (n, j) whole numbers >= 0, private.
        rounds: (j,) public; the mechanism of each column.
        epsilon: public, >= 0, one or several.
        least: the delta at which the window is sized; smaller ones come out larger than they are, never smaller.

    Returns:
        (n,) or (several, n) in [0, 1], private, rounded up.

    Guarantee: each person's composition of rounds, fixed in advance, is (epsilon, delta)-DP in both directions.
    Source: theory 7.1, 7.2; docs/proofs/losses.md.
    """
    counts, xp, lost, some, sides = _prepared(counts, rounds, False)
    points = np.atleast_1d(epsilon)
    result = np.tile(np.where(lost | some, 1.0, 0.0), (len(points), 1))
    people = np.flatnonzero(some)
    for index, pair in _groups(counts, sides, least, False, people, xp) if len(people) else ():
        for row, e in zip(result, points, strict=True):
            row[index] = np.clip(np.maximum(*(_delta(group, e, xp) for group in pair)), 0.0, 1.0)
    return result if np.ndim(epsilon) else result[0]


def _delta(group: _Group, epsilon: float, xp: Any) -> Floats:
    """Certified delta of one direction; outside the window only what is monotone is used."""
    u = epsilon - group.centre
    inside = np.clip(u, -group.width, group.width)  # to the right of the window delta only falls
    value = (_at(group, inside, xp) + group.charge) / group.shrink * (1 + 8 * _ULP)
    return np.where(u >= -group.width, value, 1.0)

"""Bound each person's epsilon at a delta, or delta at an epsilon, by a Fourier series of the composed privacy loss.

Names and symbols
    counts    (n, j) how often each person took part in each kind of round; private
    W, c      half-width and centre of a person's window [c - W, c + W)
    u, v      eps - c, and W - u: places from the centre, and to the window's right end
    K         frequencies used: the kernel becomes a Fourier series on the window
    tilt      t >= 0: the kernel is exp(-t v) (1 - exp(-v)), v = loss - eps > 0, under exp(t * loss)
    delta     failure probability, in (0, 1)

The error terms are in the table of ``curves.losses._groups``.

Source: theory 7.1, 7.2; docs/proofs/losses.md; Koskela, Tobaben & Honkela (2023), section 5 and appendix D.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi

import numpy as np
from array_api_compat import array_namespace, device, to_device
from numpy.typing import NDArray
from scipy.special import ndtri

from almoner import _check, mechanisms
from almoner._arrays import Array, Library
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.curves._grid.laws import law
from almoner.curves.losses._groups import Group, groups, moved, on, product, tilts_at_delta, tilts_at_epsilons, to_host

Mask = NDArray[np.bool_]

FIRST_POINTS = 64  # epsilons that a search looks at first
SEARCH_STEPS = 24  # most steps of bisection
SEARCH_PRECISION = 1e-5  # relative: how far above the crossing an epsilon may be found
LARGEST_EXPONENT = 600.0  # exponents of the factor are clipped to it: the factor stays a float
TILT_RETRIES = (0, 0, -1, -2, -4, 1)  # steps along TILTS, tried in turn while the error terms are seen in the bound
LOOSE = 4e-3  # looseness, as a part of delta, from which on the error terms are seen
DELTA_OF_WINDOWS = 1e-8  # delta that windows are sized for where epsilon is given and delta is not small
BLUR_SHARE = 1e-3  # part of delta with which the blur moves a loss further than lower bounds allow for


@dataclass(frozen=True, slots=True, eq=False)
class _Composition:
    """Counts and rounds of finite loss, and the people by what they took part in."""

    counts: Array
    rounds: list[mechanisms.Mechanism]
    xp: Library
    infinite: Mask  # (n,) took part in a round of infinite loss
    active: Mask  # (n,) took part in rounds, all of finite loss


def _composition(counts: Array, rounds: Sequence[mechanisms.Mechanism], lower: bool) -> _Composition:
    xp = array_namespace(counts)
    finite = np.asarray([law(round_, lower=lower) is not None for round_ in rounds], dtype=bool)

    def took_part(kinds: Mask) -> Mask:
        columns = xp.take(counts, xp.asarray(np.flatnonzero(kinds), device=device(counts)), axis=1)
        return np.asarray(to_device(xp.any(columns > 0, axis=1), "cpu"))

    none = np.zeros(counts.shape[0], dtype=bool)
    infinite = none if finite.all() else took_part(~finite)
    active = took_part(finite) & ~infinite if finite.any() else none
    if not finite.all():
        counts = xp.take(counts, xp.asarray(np.flatnonzero(finite), device=device(counts)), axis=1)
    return _Composition(counts, [r for r, keep in zip(rounds, finite, strict=True) if keep], xp, infinite, active)


def _constant_term(v: Floats, tilt: float, width: float) -> Floats:
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
    return _constant_term(v, tilt, width), np.concatenate([2 * c.real, -2 * c.imag], axis=1)


def _series_at(group: Group, u: Floats, people: NDArray[np.int64], xp: Library) -> Floats:
    """The series of some people, each at a u of their own."""
    width, tilt, series = group.window.half_width, group.window.tilt, group.series
    if len(people) < series.shape[0]:
        series = xp.take(series, xp.asarray(people, device=device(series)), axis=0)
    k = np.arange(1.0, group.count + 1)
    tau = pi * k / width
    v = width - u
    low = tilt + 1j * tau
    inverse = 1 / (low * (1 + low)) / width
    angle = on(u, series, xp)[:, None] * on(tau, series, xp)[None, :]
    cosine, sine = xp.cos(angle), xp.sin(angle)
    real, imaginary = series[:, : group.count], series[:, group.count :]
    turned = xp.concat([real * cosine + imaginary * sine, imaginary * cosine - real * sine], axis=1)
    waves = product(turned, np.concatenate([inverse.real, -inverse.imag])[:, None], xp)[:, 0]
    sign = np.where(k % 2, -1.0, 1.0)
    at_end = np.stack([sign * inverse, -sign * inverse * low], axis=1)
    ends = product(series, np.concatenate([at_end.real, -at_end.imag], axis=0), xp)
    end = np.exp(-tilt * v) * (ends[:, 0] + ends[:, 1] * np.expm1(-v))
    return _constant_term(v, tilt, width) + waves - end


def _factor(group: Group, height: Floats, u: Floats, lower: bool = False) -> Floats:
    """exp(height - tilt u); upper bounds do not fall below exp(-600)."""
    exponent = np.clip(height - group.window.tilt * u, None if lower else -LARGEST_EXPONENT, LARGEST_EXPONENT)
    return np.asarray(np.exp(exponent))


def _value(group: Group, u: Floats, people: NDArray[np.int64], lower: bool, xp: Library) -> Floats:
    """An upper bound (lower: a lower one) on the computed composition's delta at centre + u, for some people."""
    error = -group.error if lower else group.error
    sums = np.maximum(_series_at(group, u, people, xp) + error[people], 0.0)
    return _factor(group, group.height[people], u, lower) * sums


def _table(group: Group, points: Floats, lower: bool, xp: Library) -> Floats:
    """(m, points) the same for all people at the same points."""
    error = -group.error if lower else group.error
    constant, coefficients = _coefficients(points, group.window.tilt, group.window.half_width, group.count)
    sums = np.maximum(product(group.series, coefficients.T.copy(), xp) + constant + error[:, None], 0.0)
    return _factor(group, group.height[:, None], points, lower) * sums


@dataclass(slots=True, eq=False)
class _Brackets:
    """For each person, epsilons (from the centre) left and right of the crossing, and the deltas bounded there."""

    left: Floats
    right: Floats
    high: Floats  # at left: above the target
    low: Floats  # at right: at most the target
    exists: Mask  # some point fits
    everywhere: Mask  # the first point fits already (lower: all points)
    first: float


def _brackets(group: Group, target: Floats, lower: bool, xp: Library) -> _Brackets:
    first = -min(group.window.half_width, max(0.0, float(group.centre.max())) + 1e-9)
    points = np.linspace(first, group.window.half_width, FIRST_POINTS)
    table = _table(group, points, lower, xp)
    fits: Mask = np.asarray(table <= target[:, None])
    people = np.arange(len(target))
    # the first that fits; lower bounds are weak far to the left: after the last that does not fit
    place = FIRST_POINTS - (~fits[:, ::-1]).argmax(axis=1) if lower else fits.argmax(axis=1)
    everywhere = np.asarray(fits.all(axis=1) if lower else place == 0)
    left, right = np.maximum(place - 1, 0), np.minimum(place, FIRST_POINTS - 1)
    high, low = table[people, left], table[people, right]
    return _Brackets(points[left], points[right], high, low, np.asarray(fits.any(axis=1)), everywhere, first)


def _narrow(brackets: _Brackets, group: Group, target: Floats, usable: Mask, lower: bool, xp: Library) -> None:
    """Move left and right towards the crossing, at a point near the chord's root in each step."""
    b = brackets
    for step in range(SEARCH_STEPS):
        drop = np.log(np.maximum(b.high, 1e-290) / np.maximum(b.low, 1e-3 * target))
        doubt = (b.right - b.left) * np.where(lower, 1.0, drop / 8)  # of the chord's root
        wide = usable & b.exists & ~b.everywhere & (doubt > SEARCH_PRECISION * (group.centre + b.right))
        people = np.flatnonzero(wide & (group.centre + b.right > 0))
        if not len(people):
            break
        share = np.log(np.maximum(b.high[people], 1e-290) / target[people]) / np.maximum(drop[people], 1e-12)
        left, right = b.left[people], b.right[people]
        guess = left + (right - left) * np.clip(share, 0.01, 0.99)
        guess += (0.1 if step % 2 == 0 else -0.1) * np.minimum(guess - left, right - guess)
        value = _value(group, guess, people, lower, xp)
        fits = value <= target[people]
        b.right[people], b.low[people] = np.where(fits, guess, right), np.where(fits, value, b.low[people])
        b.left[people], b.high[people] = np.where(fits, left, guess), np.where(fits, b.high[people], value)


def _crossing(group: Group, target: Floats, lower: bool, xp: Library) -> Floats:
    """The least epsilon found whose delta is at most the target (lower: the largest whose delta is above it)."""
    usable = (target > 0) & (target < 1)
    target = np.where(usable, target, 0.5)
    b = _brackets(group, target, lower, xp)
    _narrow(b, group, target, usable, lower, xp)
    if lower:
        return np.where(usable & b.exists & ~b.everywhere, np.maximum(group.centre + b.left, 0.0), 0.0)
    # delta is convex in exp(epsilon): below the chord. The chord's root, a little to the right
    share = np.clip((b.high - target) / np.maximum(b.high - b.low, 1e-300), 0.0, 1.0)
    root = b.left + np.log1p(share * np.expm1(b.right - b.left))
    root = np.where(b.everywhere, b.first, np.minimum(root + 1e-9 * (b.right - b.left), b.right))
    return np.where(usable & b.exists, np.maximum(group.centre + root, 0.0) * (1 + 4 * ULP), np.inf)


def _hidden_by_blur(blur: float, delta: float) -> float:
    """The blur's loss is above this with probability at most BLUR_SHARE of delta."""
    return blur * blur / 2 + blur * float(-ndtri(BLUR_SHARE * delta)) * (1 + 1e-9)


def epsilons(counts: Array, rounds: Sequence[mechanisms.Mechanism], /, *, delta: float, lower: bool = False) -> Floats:
    """Each person's epsilon, (n,) nats, private, at one delta, in (0, 1): an upper bound, or a lower one.

    Counts are (n, j) whole numbers >= 0, private; rounds (j,) the mechanism of each column, public. Upper bounds are
    inf where the certificate does not reach delta, lower bounds 0.

    Guarantee: each person's composition of rounds, fixed in advance, is (epsilon, delta)-DP in both directions (with
        lower: is not (e, delta)-DP for any e below).
    Source: theory 7.1, 7.2; docs/proofs/losses.md.
    """
    made = _composition(counts, rounds, lower)
    people = np.flatnonzero(made.active)
    best = np.full((2, len(made.active)), 0.0 if lower else np.inf)  # in each direction
    best[:, ~(made.infinite | made.active)] = 0.0
    loose = np.zeros(best.shape, dtype=bool)
    tilts = np.zeros(len(made.active))
    if len(people):
        tilts[people] = tilts_at_delta(made.counts, made.rounds, delta, people, made.xp)
    for attempt, steps in enumerate(TILT_RETRIES):
        tried = moved(tilts[people], steps)
        for index, pair in groups(made.counts, made.rounds, tried, delta, lower, people, made.xp, retry=attempt > 0):
            for side, group in enumerate(pair):
                bound, seen = _epsilon(group, delta, lower, made.xp)
                loose[side, index] = np.where((bound > best[side, index]) == lower, seen, loose[side, index])
                best[side, index] = (np.maximum if lower else np.minimum)(bound, best[side, index])
        larger = loose[best.argmax(axis=0), np.arange(len(tilts))]  # of the two directions, the one that counts
        people = people[larger[people] & (tilts[people] > 0)]
    bounds = np.asarray(best.max(axis=0))
    return bounds if lower else np.minimum(bounds, _added_up(made))


def _added_up(made: _Composition) -> Floats:
    """Sum the epsilons of pure rounds, rounded up; inf for people who took part in others."""
    each = np.array([_most(round_) for round_ in made.rounds])
    counts = np.asarray(to_host(made.counts), np.float64)
    with np.errstate(invalid="ignore"):
        total = np.where(counts > 0, counts * each, 0.0).sum(axis=1)
    return np.where(made.infinite, np.inf, total * (1 + 2 * len(each) * ULP + 8 * ULP))


def _most(mechanism: mechanisms.Mechanism) -> float:
    """The largest loss of a round; inf where it has none."""
    match mechanism:
        case mechanisms.Pure(epsilon) | mechanisms.RandomizedResponse(epsilon):
            return float(epsilon)
        case mechanisms.Laplace(scale, sensitivity):
            return sensitivity / scale * (1 + 4 * ULP)
    return np.inf


def _epsilon(group: Group, delta: float, lower: bool, xp: Library) -> tuple[Floats, Mask]:
    """Of one direction; and whether another tilt may do better."""
    if lower:
        epsilon = _crossing(group, delta * (1 + BLUR_SHARE) / group.shrink, True, xp)
    else:
        epsilon = _crossing(group, delta * group.shrink - group.ceiling, False, xp)
    u = np.where(epsilon < np.inf, epsilon, 0.0) - group.centre
    with np.errstate(over="ignore"):
        looseness = _factor(group, group.height, u) * group.looseness / delta
    seen = ((looseness > LOOSE) | (u < -0.999 * group.window.half_width)) & (epsilon > 0) | (epsilon == np.inf)
    return np.maximum(epsilon - _hidden_by_blur(group.window.blur, delta), 0.0) if lower else epsilon, seen


def deltas(
    counts: Array, rounds: Sequence[mechanisms.Mechanism], /, *, epsilon: float | Sequence[float] | Floats
) -> Floats:
    """Each person's delta, (n,) or (several, n) in [0, 1], private, at one or several epsilons, public, >= 0.

    It is rounded up. Counts and rounds are as of ``epsilons``.

    Guarantee: each person's composition of rounds, fixed in advance, is (epsilon, delta)-DP in both directions.
    Source: theory 7.1, 7.2; docs/proofs/losses.md.
    """
    made = _composition(counts, rounds, False)
    points = np.atleast_1d(_check.floats(epsilon=epsilon))
    best = np.tile(np.where(made.infinite | made.active, 1.0, 0.0), (len(points), 1))
    people = np.flatnonzero(made.active)
    tilts = np.zeros(best.shape)
    if len(people):
        tilts[:, people] = tilts_at_epsilons(made.counts, made.rounds, points, people, made.xp)
    loose = np.zeros(best.shape, dtype=bool)
    loose[:, people] = True
    for attempt, steps in enumerate(TILT_RETRIES[:4]):
        tried, again = moved(tilts, steps), loose.copy()
        for tilt in np.unique(tried[again]).tolist():
            _try_tilt(made, points, tilt, again & (tried == tilt), best, loose, retry=attempt > 0)
    return best if np.ndim(epsilon) else np.asarray(best[0])


def _try_tilt(
    made: _Composition, points: Floats, tilt: float, wanted: Mask, best: Floats, loose: Mask, *, retry: bool
) -> None:
    """Lower the best deltas (points, n) where wanted, and say where they are still loose."""
    people = np.flatnonzero(wanted.any(axis=0))
    same = np.full(len(people), tilt)
    for index, pair in groups(made.counts, made.rounds, same, DELTA_OF_WINDOWS, False, people, made.xp, retry=retry):
        for j in np.flatnonzero(wanted[:, index].any(axis=1)):
            here = wanted[j, index]
            both = [_delta(group, float(points[j]), made.xp) for group in pair]
            value, looseness = (np.maximum(*each)[here] for each in zip(*both, strict=True))
            best[j, index[here]] = np.minimum(best[j, index[here]], value)
            loose[j, index[here]] = (looseness > LOOSE * value) & (tilt > 0)


def _delta(group: Group, epsilon: float, xp: Library) -> tuple[Floats, Floats]:
    """Certified delta of one direction, and about how far it may be above the truth; outside the window by monotony."""
    u, width = epsilon - group.centre, group.window.half_width
    inside = np.clip(u, -width, width)  # to the right of the window delta only falls
    value = _value(group, inside, np.arange(len(u)), False, xp) + group.ceiling
    looseness = _factor(group, group.height, inside) * group.looseness
    reached = u >= -width
    bound = np.minimum(value / group.shrink * (1 + 8 * ULP), 1.0)
    return np.where(reached, bound, 1.0), np.where(reached, looseness, 1.0)

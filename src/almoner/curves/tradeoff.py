"""Trade-off functions and hockey-stick curves: what a promise means for someone who guesses whether a person is in.

Names and symbols
    epsilon, delta   the hockey-stick curve: at every epsilon the least delta that is known to hold
    alpha      α     false positive rate of a test of "the person is in the data" against "is not", or turned round
    beta       β     false negative rate; the trade-off function gives the least that any test of rate alpha has

    lam              order - 1, > 0
    x, y             how often a test says "in" of people who are in, and of those who are not
    up, down         logarithms of x/y and of (1 - x)/(1 - y), up > down
    level            the logarithm of x/(1 - x)

A curve is a list of points (epsilon, delta), all of which hold for the same run. Between two points delta is convex in
exp(epsilon), so it is at most on the chord; every point is a lower bound on the trade-off function.

A Rényi curve implies points, because a test has two outcomes, no easier to tell apart. Where the divergence of the
order 1 + lam is at most r, every test obeys x - exp(epsilon) y <= delta with the epsilon and the delta of ``_lines``,
for all numbers up > down: the tangent of the divergence of two outcomes. So each point holds by itself, however up,
down and the order were found; the search only decides how near it is.

Source: Dong, Roth & Su (2022), https://arxiv.org/abs/1905.02383, Propositions 2.4 and 2.12; theory 8.3; Asoodeh, Liao,
Calmon, Kosut & Sankar (2020), https://arxiv.org/abs/2001.05990, Theorem 2
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from math import exp, expm1, inf, log, log1p, nextafter, prod, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check, mechanisms
from almoner._units import as_float, times
from almoner.curves import _pairs, _selection, approximate, gaussian, renyi, zcdp
from almoner.curves._grid import discrete
from almoner.curves._grid.connect_the_dots import Floats
from almoner.errors import ArgumentError, Unsupported

__all__ = ["Curve", "from_epsilons", "least", "of"]


MOST_ROUNDS = 10**7  # most rounds whose loss distributions are certified
FEW_ROUNDS, MOST_POINTS = 12, 2**14  # most rounds, and most outcomes, of which all are listed
SMALLEST_DELTA = 1e-12  # curves are worked out down to this delta
_ROUND_UP = 1 + 2.0**-48
_LEAST_LEVEL = -31.0  # level of the rarest test: x is 3e-14
_HALVINGS = 40
_LEAST_LAM = 1e-8
_GUARD = 2.0**-46  # allowance for rounding of each logarithm and of each sum that may cancel


@dataclass(frozen=True, slots=True)
class Curve:
    """Points at which (epsilon, delta)-DP holds, all of them for the same run. Every field is public.

    >>> response = Curve((0.0, 1.0), (0.4621171572600098, 0.0))  # randomised response with epsilon = 1
    >>> response.beta([0.0, 0.1, 0.5]).round(4).tolist()
    [1.0, 0.7282, 0.1839]
    """

    epsilons: tuple[float, ...]  # increasing, nats, >= 0
    deltas: tuple[float, ...]  # not increasing, in [0, 1]

    def __post_init__(self) -> None:
        for name in ("epsilons", "deltas"):
            object.__setattr__(self, name, tuple(map(float, getattr(self, name))))
        _check.equally_long(epsilons=self.epsilons, deltas=self.deltas)
        for epsilon, delta in zip(self.epsilons, self.deltas, strict=True):
            _check.within(0, 1e300, epsilon=epsilon)
            _check.within(0, 1, delta=delta)
        if any(a >= b for a, b in pairwise(self.epsilons)) or any(a < b for a, b in pairwise(self.deltas)):
            raise ArgumentError("epsilons must increase strictly, and deltas must not increase")

    def delta(self, epsilon: ArrayLike, /) -> Floats:
        """The hockey-stick curve: a delta (...), in [0, 1], rounded up, that holds at each epsilon (...), nats, >= 0.

        Guarantee: the run is (epsilon, delta)-DP for adding and for removing a person, if the points hold.
        Source: convexity in exp(epsilon); at 0 the least that a point allows: randomised response with its epsilon,
            which fails with its delta, dominates both orders (theory 2.3, 2.4).
        """
        at = _check.floats(epsilon=epsilon)
        if not (at >= 0).all():
            raise ArgumentError("epsilon must be numbers >= 0")
        points, values = np.asarray(self.epsilons), np.asarray(self.deltas)
        at_zero = min(1.0, float((values + (1 - values) * np.tanh(points / 2)).min()) * _ROUND_UP)
        known = slice(int(points[0] == 0), None)
        points = np.concatenate([[0.0], points[known]])
        values = np.minimum.accumulate(np.concatenate([[at_zero], values[known]]))
        place = np.searchsorted(points, at, side="right")
        left, right = place - 1, np.minimum(place, len(points) - 1)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            share = np.expm1(at - points[left]) / np.expm1(points[right] - points[left])
        share = np.where(share >= 0, np.minimum(share, 1.0), 0.0) * (1 - 2.0**-48)
        chord = values[left] * (1 - share) + values[right] * share
        return np.minimum(np.where(place == len(points), values[-1], chord * _ROUND_UP), 1.0)

    def beta(self, alpha: ArrayLike, /) -> Floats:
        """The trade-off function: the least false negative rate (...) of any test with each false positive rate (...).

        Both are in [0, 1]; it is rounded down.

        Guarantee: every test of whether a person was in the data that has false positive rate at most alpha has false
            negative rate at least beta, whichever of the two it takes as given, if the points hold.
        Source: Dong, Roth & Su (2022), Proposition 2.4; Wasserman & Zhou (2010).
        """
        rate = _check.floats(alpha=alpha)
        if not ((rate >= 0) & (rate <= 1)).all():
            raise ArgumentError("alpha must be numbers in [0, 1]")
        best = np.zeros(rate.shape)
        for epsilon, delta in zip(self.epsilons, self.deltas, strict=True):
            factor = np.exp(min(epsilon, 700.0))
            steep = 1 - delta - factor * rate * _ROUND_UP if epsilon <= 700 else np.where(rate == 0, 1 - delta, 0.0)
            flat = (1 - delta - rate) * np.exp(-epsilon)
            best = np.maximum(best, np.maximum(steep, flat))
        return np.maximum(best * (2 - _ROUND_UP) - 2.0**-50, 0.0)

    def with_failures(self, probability: float, /) -> "Curve":
        """The curve of a run that may also reveal everything, with a probability of at most this, in [0, 1]; public.

        Guarantee: the points hold, if those of this curve hold for the run where it does not fail.
        Source: theory 2.4, 4.5.
        """
        _check.within(0, 1, probability=probability)
        more = probability * _ROUND_UP
        points = ((at, min(1.0, (each + more) * _ROUND_UP)) for at, each in _points(self))
        return _from_points(points) if more else self


def of(promise: object, /, *, points: int = 128) -> Curve:
    """The curve of a mechanism or a composition, or of a total in a notion of privacy.

    Args:
        promise: public; a mechanism (also Repeated or Composed, with all its rounds fixed in advance), or a value of
            ``curves.gaussian.Gaussian``, ``zcdp.Zcdp``, ``renyi.Renyi`` or ``approximate.Approximate``. What a filter
            promises is ``filter.tradeoff()``. Odometers have no curve: their bound is not (epsilon, delta)-DP.
        points: how many points; more come nearer to the truth.

    Returns:
        Points from the tightest bounds that there are for the mechanism: exact for Gaussian noise, from privacy loss
        distributions where each round has one, otherwise from zCDP and Rényi DP.

    Raises:
        Unsupported: nothing is known about the promise.

    Guarantee: the promise is (epsilon, delta)-DP at every point, for adding and for removing a person.
    Source: theory 3.2, 3.3, 7.2, 2.3 to 2.10.

    >>> curve = of(mechanisms.Repeated(mechanisms.Gaussian(sigma=10.0), 100))
    >>> curve.delta([0.0, 1.0]).round(3).tolist(), curve.beta(0.05).round(2).item()
    ([0.383, 0.127], 0.74)
    """
    _check.whole(2, points=points)
    match promise:
        case mechanisms.Mechanism():
            return _of_mechanism(promise, points)
        case gaussian.Gaussian(mu):
            return _on_grid(lambda at: gaussian.delta(mu, epsilon=at), promise.epsilon(delta=SMALLEST_DELTA), points)
        case zcdp.Zcdp(rho):
            return _from_points(_of_zcdp(rho, points=points) or [(0.0, 1.0)])
        case renyi.Renyi(orders, values):
            return _from_points(_of_orders(np.array(orders), np.array(values), points=points))
        case approximate.Approximate(epsilon, delta) if epsilon < 1e300:
            return Curve((epsilon,), (delta,))
    raise Unsupported(f"{type(promise).__name__} has no curve: give a mechanism, or what curves.*.of returned")


def from_epsilons(
    epsilon: Callable[[float], float], /, *, points: int = 128, deltas: Iterable[float] | None = None
) -> Curve:
    """The curve of a promise that is known as an epsilon for each delta.

    ``epsilon`` gives the one that holds at a delta; infinite, or Unsupported, where there is none. It is asked for so
    many deltas between 1e-12 and 1, or for ``deltas``, public, in (0, 1).

    Guarantee: the points hold, if all epsilons hold for the same run.
    Source: theory 1.4.

    Raises:
        Unsupported: there is a finite epsilon for none of the deltas.
    """
    grid = np.sort(1 / (1 + np.exp(np.linspace(27.6, -3.0, points)))) if deltas is None else sorted(deltas)
    pairs = []
    for delta in map(float, grid):
        _check.between(0, 1, delta=delta)
        try:
            pairs.append((float(epsilon(delta)), delta))
        except Unsupported:
            continue
    return _from_points(pairs)


def least(*curves: Curve) -> Curve:
    """The least of several curves of one run, fixed in advance or with all of these promises whatever happens; public.

    Guarantee: the points hold, if those of all the curves hold for the same run.
    Source: theory 1.4.
    """
    return _from_points(point for curve in curves for point in _points(curve))


def _from_points(pairs: Iterable[tuple[float, float]]) -> Curve:
    """Sort points by epsilon, and drop those that say nothing beside the others: above one before, or above a chord."""
    kept: list[tuple[float, float]] = []
    for epsilon, delta in sorted((max(epsilon, 0.0), delta) for epsilon, delta in pairs):
        if epsilon <= 1e300 and (not kept or (epsilon > kept[-1][0] and delta < kept[-1][1])):
            while len(kept) > 1 and _above_chord(kept[-1], kept[-2], (epsilon, delta)):
                kept.pop()
            kept.append((epsilon, delta))
    if not kept:
        raise Unsupported("there is no finite epsilon at any delta")
    return Curve(tuple(e for e, _ in kept), tuple(d for _, d in kept))


def _above_chord(point: tuple[float, float], left: tuple[float, float], right: tuple[float, float]) -> bool:
    """Tell whether a point is above the chord of two others, in exp(epsilon)."""
    width = right[0] - left[0]
    share = expm1(point[0] - left[0]) / expm1(width) if width < 700 else exp(point[0] - right[0])
    return point[1] > left[1] * (1 - share) + right[1] * share


def _on_grid(delta: Callable[[float], ArrayLike], end: float, points: int) -> Curve:
    grid = np.linspace(0.0, end, points) if 0 < end < inf else np.zeros(1)
    return _from_points([(float(at), min(1.0, float(np.max(delta(at))))) for at in grid.tolist()])


def _of_mechanism(mechanism: mechanisms.Mechanism, points: int) -> Curve:
    pairs: list[tuple[float, float]] = []
    also = {_basic}  # beside another bound; those left out are never much below the others
    if any(isinstance(leaf, mechanisms.SampledGaussian) for leaf in mechanisms.leaves(mechanism)):
        also.add(_by_losses)
    if _selection.only(mechanism) is not None:
        also.add(_by_renyi)
    for bound in (_failures, _best_of, _by_few_points, _by_losses, _by_zcdp, _by_renyi, _basic):
        if pairs and bound not in also:
            continue
        try:
            pairs += bound(mechanism, points)
        except Unsupported:
            continue
        if bound is _by_zcdp:
            also.add(_by_renyi)  # less for rounds that are more than zCDP says
    return _from_points(pairs)


def _points(curve: Curve) -> list[tuple[float, float]]:
    return list(zip(curve.epsilons, curve.deltas, strict=True))


def _failures(mechanism: mechanisms.Mechanism, _: int) -> list[tuple[float, float]]:
    """Of rounds that tell nothing unless they fail, exactly: that one of them fails (theory 2.4)."""
    rounds = mechanisms.leaves(mechanism)
    if not rounds or not all(isinstance(leaf, mechanisms.Approximate) and leaf.epsilon == 0 for leaf in rounds):
        raise Unsupported("not failures alone")
    deltas = [(leaf.delta, count) for leaf, count in rounds.items() if isinstance(leaf, mechanisms.Approximate)]
    if any(delta == 1 for delta, _ in deltas):
        return [(0.0, 1.0)]
    logs = sum(count * log1p(-delta) for delta, count in deltas)
    return [(0.0, min(1.0, -expm1(logs * (1 + len(deltas) * 2.0**-50)) * _ROUND_UP))]


def _best_of(mechanism: mechanisms.Mechanism, points: int) -> list[tuple[float, float]]:
    """Of the best of a random number of runs: the points of one run, moved to the right and up (theory 8.2)."""
    best = _selection.only(mechanism)
    if best is None:
        raise Unsupported("not the best of several runs")
    curve, more = of(best.mechanism, points=points), exp(_selection.log_mean(best)) * _ROUND_UP
    ratio = _selection.log_ratio(best, np.asarray(curve.epsilons), np.asarray(curve.deltas))
    return [((ratio + at) * _ROUND_UP, min(1.0, more * delta)) for at, delta in _points(curve)]


def _by_losses(mechanism: mechanisms.Mechanism, points: int) -> list[tuple[float, float]]:
    rounds = mechanisms.leaves(mechanism)
    if all(isinstance(leaf, mechanisms.Gaussian) for leaf in rounds):
        return _points(of(gaussian.of(mechanism), points=points))
    if sum(rounds.values()) > MOST_ROUNDS:
        raise Unsupported("so many rounds are not composed")
    from almoner.curves import losses  # here: exact curves need none of it

    counts, kinds = np.array([list(rounds.values())]), list(rounds)
    end = float(losses.epsilons(counts, kinds, delta=SMALLEST_DELTA)[0])
    if end == inf:  # mass at infinity: as far as epsilons go
        ends = [float(losses.epsilons(counts, kinds, delta=delta)[0]) for delta in (1e-9, 1e-6, 1e-3, 0.1, 0.5)]
        end = next((each for each in ends if each < inf), 0.0)
    grid = np.linspace(0.0, end, points) if end else np.zeros(1)
    return list(zip(grid.tolist(), losses.deltas(counts, kinds, epsilon=grid)[:, 0].tolist(), strict=True))


def _by_few_points(mechanism: mechanisms.Mechanism, points: int) -> list[tuple[float, float]]:
    """Few rounds of few points each, composed one by one: at the losses, where the curve has its corners."""
    rounds = mechanisms.leaves(mechanism)
    if any(isinstance(leaf, mechanisms.Gaussian) for leaf in rounds) or not 1 <= sum(rounds.values()) <= FEW_ROUNDS:
        raise Unsupported("no few points")
    sides = [[_pairs_of(leaf)] * count for leaf, count in rounds.items()]
    each = [both for same in sides for both in same]
    if prod(max(len(pair.losses) for pair in both) for both in each) > MOST_POINTS:
        raise Unsupported("too many points")
    if len(each) > 1 and max(map(len, each)) > 2:
        raise Unsupported("one pair for each order is composed")
    laws = each[0] if len(each) == 1 else tuple(reduce(_composed, [both[side] for both in each]) for side in (0, -1))
    fails = as_float(renyi.failure(mechanism)) * _ROUND_UP
    corners = np.unique(np.concatenate([[0.0], *(law.losses for law in laws)]))
    corners = corners[corners >= 0]
    if len(corners) > points:
        corners = np.append(corners[:: len(corners) // points], corners[-1])
    corners = np.union1d(corners, np.linspace(0.0, corners[-1], points))  # the larger of both orders has others
    return [(at, min(1.0, max(law.delta(epsilon=at) for law in laws) * _ROUND_UP + fails)) for at in corners.tolist()]


def _pairs_of(leaf: mechanisms.Mechanism) -> tuple[_pairs.Pair, ...]:
    """The pairs of one round that does not fail; those of one's own with all their points."""
    if isinstance(leaf, mechanisms.Paired) and renyi.failure(leaf) < 1:
        both = discrete.directions(leaf)
        return tuple(_pairs.Pair(one.losses + one.error, one.masses * (1 + one.error)) for one in both)
    return _pairs.of(leaf, cut=SMALLEST_DELTA)


def _composed(one: _pairs.Pair, other: _pairs.Pair) -> _pairs.Pair:
    masses = np.outer(one.masses, other.masses).ravel() * _pairs.ROUND_UP
    losses = np.add.outer(one.losses, other.losses).ravel()
    losses = losses + 2.0**-50 * np.abs(losses)
    return _pairs.Pair(losses, masses, (one.leak + other.leak) * _pairs.ROUND_UP)


def _by_zcdp(mechanism: mechanisms.Mechanism, points: int) -> list[tuple[float, float]]:
    """Points of rounds that may fail, from those of rounds that do not."""
    counts = mechanisms.leaves(mechanism).items()
    total = sum((times(count, zcdp.cost(renyi.without_failures(leaf))) for leaf, count in counts), Fraction(0))
    promise = zcdp.Zcdp(nextafter(as_float(total), inf) if total else 0.0)
    return _points(of(promise, points=points).with_failures(min(1.0, as_float(renyi.failure(mechanism)))))


def _by_renyi(mechanism: mechanisms.Mechanism, points: int) -> list[tuple[float, float]]:
    fails, values = min(1.0, as_float(renyi.failure(mechanism))), renyi.values(mechanism, renyi.ORDERS)
    curve = _from_points(_of_orders(np.array(renyi.ORDERS), values, points=points))
    return _points(curve.with_failures(fails))


def _basic(mechanism: mechanisms.Mechanism, points: int) -> list[tuple[float, float]]:
    return _points(of(approximate.of(mechanism), points=points))


def _of_orders(orders: Floats, values: Floats, *, points: int) -> list[tuple[float, float]]:
    """Points that hold for all laws with at most these divergences in both orders, near their trade-off function.

    Values (m,) are inf where none is known; there are no points where none is finite.

    Guarantee: every such run is (epsilon, delta)-DP at each point, for adding and for removing a person.
    Source: theory 8.3.
    """
    known = values < 1e300
    lam, divergence = orders[known] - 1, values[known] * _ROUND_UP
    if not lam.size:
        return []
    if float(divergence.min()) <= 0:  # the laws are the same
        return [(0.0, 0.0)]
    level = _levels(float(_at_even_odds(lam, divergence).min()), points)
    spread = _spread(level[:, None], lam[None, :], divergence[None, :])
    best = np.argmin(spread, axis=1)
    return _lines(level, spread[np.arange(len(level)), best], lam[best], divergence[best])


def _of_zcdp(rho: float, *, points: int) -> list[tuple[float, float]]:
    """Points that hold for all laws with divergence at most order times rho at every order above 1, in both orders.

    Guarantee: every rho-zCDP run is (epsilon, delta)-DP at each point, for adding and for removing a person.
    Source: theory 8.3.
    """
    if not 0 < rho < 1e300:
        return [(0.0, 0.0)] if rho == 0 else []

    def divergence(lam: Floats) -> Floats:
        return np.asarray((1 + lam) * rho * _ROUND_UP)

    nearest = np.full(1, _LEAST_LAM)  # at even odds the order 1 decides
    level = _levels(float(_at_even_odds(nearest, divergence(nearest))[0]), points)
    most = 10 + 10 * sqrt(-_LEAST_LEVEL / rho)
    width, count = log(most / _LEAST_LAM) / 60, 61
    center = np.full((len(level), 1), log(_LEAST_LAM) + 30 * width)
    for _ in range(4):  # ever finer orders around the best one of each test
        lam = np.exp(center + width * (np.arange(count) - count // 2))
        spread = _spread(level[:, None], lam, divergence(lam))
        best = np.argmin(spread, axis=1)[:, None]
        center, width, count = np.log(np.take_along_axis(lam, best, axis=1)), width / 4, 9
    lam, spread = (np.take_along_axis(each, best, axis=1)[:, 0] for each in (lam, spread))
    return _lines(level, spread, lam, divergence(lam))


def _levels(even: float, points: int) -> Floats:
    """From the best test at even odds, which errs as often in both ways, to the rarest: denser at first."""
    top = min(even, 40.0)  # above, the rarest of all errors
    levels: Floats = top - (top - _LEAST_LEVEL) * np.linspace(0.0, 1.0, points) ** 1.5
    levels[0] = even
    return levels


def _at_even_odds(lam: Floats, divergence: Floats) -> Floats:
    """(m,) the level of the test with x + y = 1 whose divergence at each order is the given one."""
    low, high = np.sqrt(2 * divergence / (1 + lam)) * 0.99, divergence + 0.6
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        inside = _inside(middle, 2 * middle, lam, divergence)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high


def _spread(level: Floats, lam: Floats, divergence: Floats) -> Floats:
    """The difference of the levels of x and y at which the divergence of two outcomes is the given one."""
    low = np.sqrt(8 * divergence / (1 + lam)) * 0.99 + 0 * level
    high = divergence + np.logaddexp(0, -level) / lam + np.logaddexp(0, level) + low
    for _ in range(_HALVINGS):
        middle = np.sqrt(low * high)
        inside = _inside(level, middle, lam, divergence)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high


def _inside(level: Floats, spread: Floats, lam: Floats, divergence: Floats) -> NDArray[np.bool_]:
    """Tell whether two outcomes have at most this divergence: about, for a search."""
    up, down = _ratios(level, spread)
    x, rest = 1 / (1 + np.exp(-level)), 1 / (1 + np.exp(np.minimum(level, 700)))
    near = lam * divergence < 1
    with np.errstate(over="ignore"):
        close = x * np.expm1(lam * up) + rest * np.expm1(lam * down) <= np.expm1(np.where(near, lam * divergence, 1.0))
        far = np.logaddexp(lam * up - np.logaddexp(0, -level), lam * down - np.logaddexp(0, level)) <= lam * divergence
    return np.asarray(np.where(near, close, far))


def _ratios(level: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """The logarithms of x/y and (1 - x)/(1 - y), without cancellation where x and y are close."""
    x, rest = 1 / (1 + np.exp(-level)), 1 / (1 + np.exp(np.minimum(level, 700)))
    near = np.minimum(spread, 30.0)
    log_x, log_rest = -np.logaddexp(0, -level), -np.logaddexp(0, level)
    up = np.where(spread < 30, np.log1p(rest * np.expm1(near)), np.logaddexp(log_x, log_rest + spread))
    small = np.where(level < 2, x, 0.0)
    return up, np.where(level < 2, np.log1p(small * np.expm1(-spread)), np.logaddexp(log_rest, log_x - spread))


def _lines(level: Floats, spread: Floats, lam: Floats, divergence: Floats) -> list[tuple[float, float]]:
    """The lines x - exp(epsilon) y = delta that touch what two outcomes may do: on the safe side for any numbers given.

    With t = exp(up) and s = exp(down): epsilon = log(lam (t^a - s^a) / (a (t^lam - s^lam))) and
    delta = (exp(lam r) - a s^lam + lam s^a) / (a (t^lam - s^lam)), a = 1 + lam. Rounded up.
    """
    up, down = _ratios(level, spread)
    proper = (up > down) & np.isfinite(up) & np.isfinite(down)
    up, down, lam, divergence = (each[proper] for each in (up, down, lam, divergence))
    order, wide = 1 + lam, up - down
    parts = [np.log(lam), -np.log1p(lam), up, np.log(-np.expm1(-order * wide)), -np.log(-np.expm1(-lam * wide))]
    epsilons = sum(parts) + _GUARD * sum(map(np.abs, parts))
    first, second = lam * renyi.above_tangent(order * down), order * renyi.above_tangent(lam * down)
    rest = first - second + _GUARD * (first + second)
    power = lam * divergence * _ROUND_UP
    close = power < 1
    near = np.log(np.expm1(np.where(close, power, 1.0)) + rest)
    far = power + np.log1p((rest - 1) * np.exp(-np.maximum(power, 1.0)))
    terms = [np.where(close, near, far), -lam * up, -np.log1p(lam), parts[-1]]
    logs = sum(terms) + _GUARD * (1 + sum(map(np.abs, terms)))
    deltas = np.exp(np.minimum(logs, 0.0)) * _ROUND_UP + 1e-320
    found = zip(np.maximum(epsilons, 0.0).tolist(), np.minimum(deltas, 1.0).tolist(), strict=True)
    return [(epsilon, delta) for epsilon, delta in found if epsilon < inf and delta <= 1]

"""Rényi differential privacy: one number per order, and all of them add up.

Names and symbols
    order, alpha  α    Rényi order, > 1; lam = alpha - 1
    value         nats, >= 0: the Rényi divergence at that order, the larger of both directions
    delta         δ    failure probability, in (0, 1)

A curve is known only at its orders and never interpolated downwards.

Source: Mironov (2017), https://arxiv.org/abs/1702.07476
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from math import floor, inf, lgamma, log, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike

from almoner import _check, mechanisms
from almoner._units import as_float, exact, times
from almoner.curves import _selection, zcdp
from almoner.curves._grid import discrete
from almoner.curves._grid.connect_the_dots import Floats
from almoner.errors import ArgumentError, Unsupported

__all__ = [
    "ORDERS", "Renyi", "budget", "cost", "costs", "epsilon", "failure", "mironov", "of", "sampled_gaussian", "values",
    "without_failures",
]  # fmt: skip


_GUARD = 1 + 1e-12
_LEAST = 1e-300  # smaller values are rounded up to this, lest they vanish
_LARGEST_SUM = 2**14  # whole orders up to here by their sum; above, Minkowski's inequality
_LARGEST_GRID = 2**20  # points of the quadrature; above, Minkowski's inequality
_TIGHT = 23.0  # from this log of q e^((a-1)/(2 z^2)) on, Minkowski's bound is within 1e-11: the term of k = a is in A
_LOG_ERROR = 2.0**-50  # relative: twice what four units in the last place of lgamma, of logarithms and products make
_OVER = 1 + 1e-11
"""Over the relative error of A, and so of log(1 + A).

Whole orders: errors of the terms' logarithms are added to them; exp, log and a pairwise sum of up to 2**14 terms make
less than 1e-13. Quadrature: the trapezoidal rule with steps z/3 and 0.1 z**2 is off by 2 exp(-18 pi**2) and
exp(-20 pi**2), and what lies beyond ten standard deviations is 1e-22; where (1+u)**b - 1 - b u is not summed as a
series, abs(b u) >= 0.02 or abs(u) >= 0.02, so cancelling makes at most 200 of the errors of its parts, 2e-13.
"""

ORDERS: tuple[float, ...] = (
    *(1 + j / 20 for j in range(1, 20)),
    *(1 + j / 10 for j in range(10, 100)),
    *(float(j) for j in range(11, 64)),
    *(float(round(64 * 2 ** (j / 4))) for j in range(33)),
)
"""Default orders, 1.05 to 16384: far enough that small contributions do not sit at the edge."""


@dataclass(frozen=True, slots=True)
class Renyi:
    """The guarantee "at most values[j] at orders[j]". Every field is public.

    >>> round(Renyi((8.0, 16.0, 32.0), (0.1, 0.2, 0.4)).epsilon(delta=1e-5), 4)
    0.6278
    """

    orders: tuple[float, ...]
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        mechanisms.Renyi(self.orders, self.values)  # refuses what is no curve

    def epsilon(self, *, delta: float) -> float:
        """An epsilon that holds at delta, rounded up; inf when no order has a finite value.

        Guarantee: every mechanism with this curve is (epsilon, delta)-DP.
        Source: theory 3.2; Canonne, Kamath & Steinke (2020), Prop. 12.
        """
        return float(epsilon(self.values, self.orders, delta=delta))

    def order(self, *, delta: float) -> tuple[float, bool]:
        """The order that gives ``epsilon``, and whether it sits at an edge of the grid (then add orders there)."""
        best = int(np.argmin(_at_orders(np.asarray(self.values), _checked(self.orders), delta)))
        return self.orders[best], best in (0, len(self.orders) - 1)


def of(mechanism: mechanisms.Mechanism, orders: ArrayLike = ORDERS) -> Renyi:
    """The Rényi curve of a mechanism.

    Guarantee: at every order, in both directions, the divergence is at most the value; values above 1e60 are infinite.
    Source: theory 2.1 to 2.7.
    """
    grid = _checked(orders)
    if failure(mechanism):
        raise Unsupported("a mechanism that fails with probability delta has no finite Rényi curve; see failure()")
    curve = values(mechanism, grid)
    return Renyi(tuple(map(float, grid)), tuple(map(float, np.where(curve <= 1e60, curve, inf))))


def cost(mechanism: mechanisms.Mechanism, order: float) -> Fraction | float:
    """Price a mechanism at one order, as it adds to a total: exact where it is rational, else rounded up.

    Guarantee: in both directions, the divergence at this order is at most the cost, whatever came before.
    Source: theory 2.1 to 2.7.

    >>> cost(mechanisms.Zcdp(0.0125), 16)
    Fraction(1, 5)
    """
    return costs(mechanism, (order,))[0]


def costs(mechanism: mechanisms.Mechanism, orders: Sequence[float]) -> tuple[Fraction | float, ...]:
    """Price a mechanism at several orders; see ``cost``.

    Guarantee: in both directions, the divergence at every order is at most its cost, whatever came before.
    Source: theory 2.1 to 2.7.
    """
    totals: tuple[Fraction | float, ...] = (Fraction(0),) * len(orders)
    for leaf, count in mechanisms.leaves(mechanism).items():
        added = (times(count, each) for each in _costs(leaf, orders))
        totals = tuple([total + each for total, each in zip(totals, added, strict=True)])
    return totals


def _costs(leaf: mechanisms.Mechanism, orders: Sequence[float]) -> list[Fraction | float]:
    match leaf:
        case mechanisms.Gaussian() | mechanisms.DiscreteGaussian() | mechanisms.Zcdp():
            rho = zcdp.cost(leaf)
            return [exact(order) * rho if rho != inf else inf for order in orders]
        case mechanisms.Renyi():
            known = map(float, _next_order(leaf, _check.floats(orders=orders)))
            return [exact(value) if value < inf else inf for value in known]
    return [Fraction(value) if value < inf else inf for value in map(float, values(leaf, orders))]  # exact sums


def values(mechanism: mechanisms.Mechanism, orders: ArrayLike) -> Floats:
    """Price a mechanism at these orders (m,), each > 1, for the rounds in which it does not fail; all public.

    Values (m,) are in nats, >= 0, rounded up; inf where no finite value is known.

    Guarantee: outside an event of probability ``failure(mechanism)``, in both directions and whatever came before,
    the divergence at every order is at most the value.
    Source: theory 2.1 to 2.7.
    """
    grid = _checked(orders)
    total = np.zeros_like(grid)
    for leaf, count in mechanisms.leaves(mechanism).items():
        one = _values(leaf, grid)
        total = total + np.where(one <= 0, 0.0, one * as_float(count))
    return total * _GUARD


def failure(mechanism: mechanisms.Mechanism) -> Fraction:
    """The probability, exact, with which a mechanism may reveal everything: the deltas of its parts that may fail.

    Guarantee: an (epsilon, delta)-DP mechanism post-processes "reveal all with probability delta, else randomised
    response with epsilon"; a dominating pair fails with the probability of an infinite loss.
    Source: theory 2.4, 2.10; Kairouz, Oh & Viswanath (2015).
    """
    failures = Fraction(0)
    for leaf, count in mechanisms.leaves(mechanism).items():
        if isinstance(leaf, mechanisms.Approximate):
            failures += count * exact(leaf.delta)
        elif isinstance(leaf, mechanisms.Paired):
            failures += count * discrete.failure(leaf)
    return failures


def without_failures(leaf: mechanisms.Mechanism) -> mechanisms.Mechanism:
    """A single round as it is where it does not fail.

    Guarantee: with probability ``failure(leaf)`` the round may reveal everything; else it is no easier to tell apart
    than what is returned, which cannot fail.
    Source: theory 2.4, 2.10; Kairouz, Oh & Viswanath (2015); docs/proofs/dominating-pairs.md.

    >>> without_failures(mechanisms.Approximate(0.1, 1e-9))
    Pure(epsilon=0.1)
    """
    if isinstance(leaf, mechanisms.Approximate):
        return mechanisms.Pure(leaf.epsilon)
    return discrete.without_failures(leaf) if isinstance(leaf, mechanisms.Paired) else leaf


def _values(leaf: mechanisms.Mechanism, orders: Floats) -> Floats:
    match leaf:
        case mechanisms.Gaussian() | mechanisms.DiscreteGaussian() | mechanisms.Zcdp():
            return orders * as_float(zcdp.cost(leaf))
        case mechanisms.SampledGaussian():
            return sampled_gaussian(leaf.sample_rate, leaf.sigma / leaf.sensitivity * (1 - 4e-16), orders)
        case mechanisms.Laplace():
            return _laplace(leaf.sensitivity / leaf.scale * (1 + 4e-16), orders)
        case mechanisms.Pure() | mechanisms.RandomizedResponse() | mechanisms.Approximate():
            return _randomized_response(leaf.epsilon, orders)
        case mechanisms.Exponential():
            square = max(leaf.eta**2 / 8, _LEAST) if leaf.eta else 0.0
            return np.minimum(orders * square, _randomized_response(leaf.eta, orders))
        case mechanisms.Renyi():
            return _next_order(leaf, orders)
        case mechanisms.Paired():
            return discrete.renyi(leaf, orders)
        case mechanisms.BestOf():
            return _best_of(leaf, orders)
    raise Unsupported(f"{type(leaf).__name__} has no Rényi cost that we know")


def _laplace(epsilon: float, orders: Floats) -> Floats:
    """Theory 2.2, with A - 1 = (a g(lam eps) + lam g(-a eps)) / (2a - 1), g(x) = e^x - 1 - x: nothing cancels."""
    lam = orders - 1
    up, down = lam * epsilon, orders * epsilon
    far = up > 500
    near = (orders * above_tangent(np.where(far, 0.0, up)) + lam * above_tangent(-down)) / (2 * orders - 1)
    log_a = np.where(far, np.log(orders / (2 * orders - 1)) + up + np.exp(-up), np.log1p(near))
    return np.minimum(log_a / lam, epsilon)


def above_tangent(x: Floats) -> Floats:
    """exp(x) - 1 - x without cancellation."""
    small = np.abs(x) < 0.5
    v = np.where(small, x, 0.0)
    series = np.zeros_like(v)
    for j in range(18, 2, -1):
        series = (series + 1) * v / j
    return np.where(small, (series + 1) * v * v / 2, np.expm1(x) - x)


def _best_of(best: mechanisms.BestOf, orders: Floats) -> Floats:
    """Theory 8.2: the price of one run at all orders bounds what choosing the best adds at each."""
    if failure(best.mechanism):
        raise Unsupported("the best of several runs that may fail has no Rényi curve that we know")
    grid = np.union1d(orders, ORDERS)
    return _selection.renyi(best, values(best.mechanism, grid), grid)[np.searchsorted(grid, orders)]


def _next_order(mechanism: mechanisms.Renyi, orders: Floats) -> Floats:
    """The divergence does not decrease in the order, so the value at the next known order above is a bound."""
    place = np.searchsorted(np.asarray(mechanism.orders), orders, side="left")
    return np.asarray((*mechanism.values, inf))[place]


def _randomized_response(epsilon: float, orders: Floats) -> Floats:
    """Theory 2.3, as A - 1 = tanh(eps/2) sinh(lam eps) + 2 sinh(lam eps / 2)^2: nothing cancels."""
    if epsilon == inf or not epsilon:
        return np.full_like(orders, epsilon)
    lam = orders - 1
    x = lam * epsilon
    far = x > 500
    y = np.where(far, 0.0, x)
    near = np.log1p(np.tanh(epsilon / 2) * np.sinh(y) + 2 * np.sinh(y / 2) ** 2)
    return np.maximum(np.minimum(np.where(far, x, near) / lam, epsilon), _LEAST)


def sampled_gaussian(sample_rate: float, noise: ArrayLike, orders: ArrayLike, /) -> Floats:
    """The Rényi curves of the Poisson-sampled Gaussian for arrays of noise levels.

    Args:
        sample_rate: scalar, public, in (0, 1].
        noise: (...), relative noise sigma / contribution, > 0; inf (no contribution) costs 0, NaN costs inf.
        orders: (m,) public, each > 1, whole or fractional.

    Returns:
        (..., m) nats, rounded up.

    Guarantee: the divergence is at most the value, in both directions.
    Source: theory 2.6; Mironov, Talwar & Zhang (2019), Thm 5 and section 3.3.
    """
    _check.positive(sample_rate=sample_rate)
    _check.within(0, 1, sample_rate=sample_rate)
    grid, z = _checked(orders), _check.floats(noise=noise)
    proper = (z > 0) & (z < inf)
    safe = np.where(proper, z, 1.0)
    with np.errstate(over="ignore"):
        table = np.maximum(np.stack([_remove(sample_rate, safe, float(a)) for a in grid], axis=-1), _LEAST)
    return np.where(proper[..., None], table, np.where(z[..., None] == inf, 0.0, inf))


def epsilon(values: ArrayLike, orders: ArrayLike, /, *, delta: float) -> Floats:
    """An epsilon (...), nats, >= 0, that holds at delta, in (0, 1), for each person's curve, private or public.

    It is that of the best order of a budget fixed in advance, rounded up; inf where no order has a finite value. Curves
    are (..., m) nats, of which NaN and negative ones count as infinite, at orders (m,), public, each > 1.

    Guarantee: a mechanism with this curve, fixed in advance, is (epsilon, delta)-DP. Read off at a time chosen from
    the results it is no guarantee: use a filter or an odometer there.
    Source: theory 3.2; Canonne, Kamath & Steinke (2020), Prop. 12; Koskela, Tobaben & Honkela (2023), Lemma C.4.
    """
    bounds = _at_orders(_check.floats(values=values), _checked(orders), delta)
    best: Floats = np.maximum(np.min(bounds, axis=-1), 0.0)
    return best


def budget(order: float, /, *, epsilon: float, delta: float) -> float:
    """The largest Rényi divergence at one order that implies (epsilon, delta)-DP; may be negative (then none does).

    Guarantee: a mechanism with at most this divergence at this order, fixed in advance, is (epsilon, delta)-DP.
    Source: theory 3.2, solved for the divergence and rounded down.
    """
    _check.between(1, inf, order=order)
    _check.positive(epsilon=epsilon)
    _check.between(0, 1, delta=delta)
    shift, tail = float(np.log1p(-1 / order)), -(log(order) + log(delta)) / (order - 1)
    return epsilon - shift - tail - 2e-15 * (epsilon + abs(shift) + abs(tail) + order / (order - 1))


def mironov(values: ArrayLike, orders: ArrayLike, /, *, delta: float) -> Floats:
    """As ``epsilon``, by the looser conversion of the papers' tables.

    Guarantee: a mechanism with this curve, fixed in advance, is (epsilon, delta)-DP.
    Source: theory 3.1; Mironov (2017), Prop. 3; Feldman & Zrnic (2021), Fact 2.4.
    """
    _check.between(0, 1, delta=delta)
    grid, known = _checked(orders), _check.floats(values=values)
    curve = np.where(known >= 0, known, inf)
    best: Floats = np.min((curve - np.log(delta) / (grid - 1)) * _GUARD, axis=-1)
    return best


def _at_orders(values: Floats, orders: Floats, delta: float) -> Floats:
    _check.between(0, 1, delta=delta)
    shift, tail = np.log1p(-1 / orders), -(np.log(orders) + log(delta)) / (orders - 1)
    curve = np.where(values >= 0, values, inf)
    rounding = curve + np.abs(shift) + np.abs(tail) + orders / (orders - 1)  # the last: both logarithms' arguments
    bounds: Floats = curve + shift + tail + 1e-15 * rounding
    return bounds


def _checked(orders: ArrayLike) -> Floats:
    grid = _check.floats(orders=orders)
    if grid.ndim != 1 or not grid.size or not np.all((grid > 1) & (grid < inf)):
        raise ArgumentError(f"orders={orders!r} must be a list of finite numbers > 1")
    return grid


def _remove(rate: float, noise: Floats, order: float) -> Floats:
    """D(mixture || noise) at one order, for an array of relative noise (each > 0); rounded up, however small it is.

    With q the sample rate, z the relative noise sigma/contribution and u(x) = q (e^((2x-1)/(2 z^2)) - 1), so that
    E[u] = 0 for x ~ N(0, z^2):

        remove   D(mixture || noise) = log E[(1+u)^alpha] / (alpha - 1)          the larger one (Mironov et al., Thm 5)
        add      D(noise || mixture) = log E[(1+u)^(1-alpha)] / (alpha - 1)

    Each is log1p(A) with A = E[(1+u)^b - 1 - b u], b = alpha or 1 - alpha: an integral of something non-negative, so
    nothing cancels. For whole alpha, A is a finite sum of non-negative terms as well.
    """
    if rate == 1:
        return order / (2 * noise**2) * _OVER
    # never above Minkowski's bound nor the bound without sampling
    bound: Floats = np.minimum(_minkowski(rate, noise, order), order / (2 * noise**2) * _OVER)
    wanted = log(rate) + (order - 1) / (2 * noise**2) < _TIGHT
    if wanted.any():
        bound = np.array(bound, dtype=np.float64)
        bound[wanted] = np.minimum(bound[wanted], _remove_exactly(rate, noise[wanted], order))
    return bound


def _remove_exactly(rate: float, noise: Floats, order: float) -> Floats:
    if order == floor(order) and order <= _LARGEST_SUM:
        log_a = _by_sum(rate, noise, int(order))
    else:
        log_a = np.array([_by_quadrature(rate, float(z), order) for z in noise.ravel()]).reshape(noise.shape)
    exact: Floats = np.logaddexp(0.0, log_a) / (order - 1) * _OVER
    return exact


def _minkowski(rate: float, noise: Floats, order: float) -> Floats:
    """||1 - q + q Y||_a <= 1 - q + q ||Y||_a in the norm of order a: an upper bound at every order."""
    exponent = (order - 1) / (2 * noise**2)
    bound: Floats = order / (order - 1) * np.logaddexp(log1p(-rate), log(rate) + exponent)
    # near zero the logarithm cancels: log(1 + q (e^x - 1)) <= q (e^x - 1)
    small = order / (order - 1) * rate * np.expm1(np.minimum(exponent, 700.0))
    either: Floats = np.where(exponent < 1e-3, small, bound * (1 + 1e-12) + 1e-15) * _OVER
    return either


def _by_sum(rate: float, noise: Floats, order: int) -> Floats:
    """Log A = log sum_{k>=2} C(a, k) (1-q)^(a-k) q^k (e^(k(k-1)/(2 z^2)) - 1)."""
    k, log_weight = _binomial(rate, order)
    flat, out = noise.ravel(), np.empty(noise.size)
    step = max(1, 2**20 // order)
    for start in range(0, flat.size, step):
        exponent = (k * (k - 1) / 2) / flat[start : start + step, None] ** 2
        with np.errstate(divide="ignore"):
            terms = log_weight + exponent * (1 + _LOG_ERROR) + np.log(-np.expm1(-exponent))
            top = terms.max(axis=-1, keepdims=True)
            total = np.log(np.exp(terms - np.where(top > -inf, top, 0.0)).sum(axis=-1))
        out[start : start + step] = np.where(top[:, 0] > -inf, top[:, 0], 0.0) + total
    return out.reshape(noise.shape)


@cache
def _log_factorials() -> Floats:
    """Log j! for j up to the largest order whose sum is taken."""
    return np.array([lgamma(j + 1) for j in range(_LARGEST_SUM + 1)])


@lru_cache(maxsize=512)
def _binomial(rate: float, order: int) -> tuple[Floats, Floats]:
    k = np.arange(2, order + 1, dtype=np.float64)
    logs = _log_factorials()[: order + 1]
    parts = logs[order], logs[2:], logs[order - 2 :: -1]
    powers = (order - k) * log1p(-rate), k * log(rate)
    error = _LOG_ERROR * (parts[0] + parts[1] + parts[2] - powers[0] - powers[1])
    return k, parts[0] - parts[1] - parts[2] + powers[0] + powers[1] + error


@lru_cache(maxsize=2**16)
def _by_quadrature(rate: float, noise: float, order: float) -> float:
    """Log A by the trapezoidal rule, which converges exponentially for analytic integrands; inf if too long.

    The integrand is a mixture of Gaussians of width z with centres between 0 and max(order, 2), and analytic up to
    the branch points of the power, pi z^2 away from the real line.
    """
    if noise == inf:
        return -inf
    low, high = -10 * noise, max(order, 2.0) + 10 * noise
    step = min(noise / 3, 0.1 * noise**2)
    if (high - low) / step > _LARGEST_GRID:
        return inf
    x = np.arange(low, high + step, step)
    u = rate * np.expm1(np.minimum((2 * x - 1) / (2 * noise**2), 700.0))
    far = np.logaddexp(log1p(-rate), log(rate) + (2 * x - 1) / (2 * noise**2))
    log_u1 = np.where(np.abs(u) < 0.5, np.log1p(np.maximum(u, -0.5)), far)  # log(1 + u), to the last digit near zero
    log_density = -(x**2) / (2 * noise**2) - log(noise * sqrt(2 * np.pi))
    top: float = float(np.logaddexp.reduce(log_density + _log_excess(u, log_u1, order)))
    return top + log(step)


def _log_excess(u: Floats, log_u1: Floats, power: float) -> Floats:
    """log((1+u)^b - 1 - b u), b > 1, >= 0 by Bernoulli's inequality; by its series where u is small."""
    small = np.abs(u) * power < 0.02
    v = np.where(small, u, 0.0)
    term, total = np.ones_like(v), np.ones_like(v)
    for j in range(2, 12):
        term = term * (power - j) / (j + 1) * v
        total = total + term
    with np.errstate(all="ignore"):
        series = np.log(power * (power - 1) / 2 * total) + 2 * np.log(np.abs(v))
        raised = power * log_u1
        large = raised > 600
        known = np.where(large, 0.0, log_u1)
        if power < 1.5:  # (1+u) ((1+u)^(b-1) - 1) - (b-1) u: nothing cancels where b is nearly one
            direct = np.log(np.exp(known) * np.expm1((power - 1) * known) - (power - 1) * u)
        else:
            direct = np.log(np.expm1(power * known) - power * u)
        result = np.where(small, series, np.where(large, raised, direct))
    return np.where(np.isnan(result), np.where(u == 0, -inf, inf), result)

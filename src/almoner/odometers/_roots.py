"""Solve for a boundary, for one account or for many people's, so that the answer is never below the root.

A boundary is the loss u at which a mixture of exponentials reaches a level. The logarithm of such a mixture is convex
and increasing in u, so Newton's method from the right stays to the right of the root: every iterate is a bound.

Names and symbols
    u, l    a privacy loss, nats
    lam λ   alpha - 1, > 0
    S       totals of the account at the orders, nats
    delta δ failure probability

Arrays are NumPy's or PyTorch's (``xp``, by the array API standard); a leading axis is people.
"""

from collections.abc import Callable
from math import inf, log, pi
from typing import cast

import numpy as np
from scipy import special

from almoner._arrays import NUMPY, Array, Library, Mask

_STEPS = 60
_CLOSE = 1e-13


def raised(bound: Array, *, xp: Library = NUMPY) -> Array:
    """A bound moved up by more than the rounding errors of its computation; never negative."""
    up = bound + 4e-12 * (1.0 + xp.abs(bound))
    return xp.where(up > 0, up, 0.0)


def _descend(start: Array, logarithm: Callable[[Array], tuple[Array, Array]], steps: int, xp: Library) -> Array:
    """Newton's method from the right on a convex increasing function; where it meets rounding errors it stops."""
    u = start
    for _ in range(steps):
        value, slope = logarithm(u)
        step = xp.where(value > 0, value, 0.0) / slope
        u = u - step
        if not bool(xp.any(step > _CLOSE * (1.0 + xp.abs(u)))):
            break
    return u


def _exponentials(exponent: Array, slope: Array, powers: Array, steps: int, xp: Library) -> tuple[Array, Array, Mask]:
    """The root u of sum_a e^(exponent_a + slope_a u) = 1, with the sums there of e^(...) @ powers; inf where none."""
    start = xp.min(-exponent / slope, axis=-1)  # here one term alone is 1, and no term is above it
    exists = start < inf
    start = xp.where(exists, start, 0.0)
    known = xp.where(exists[..., None], xp.where(exponent > -inf, exponent, -1e300), 0.0)

    def logarithm(u: Array) -> tuple[Array, Array]:
        sums = xp.matmul(xp.exp(known + slope * u[..., None]), powers)
        return xp.log(sums[..., 0]), sums[..., 1] / sums[..., 0]

    u = _descend(start, logarithm, steps, xp)
    sums = xp.matmul(xp.exp(known + slope * u[..., None]), powers)
    return u, sums, exists


def exponentials(exponent: Array, lam: Array, /, *, steps: int = _STEPS, xp: Library = NUMPY) -> Array:
    """The loss at which sum_a e^(exponent_a + lam_a u) reaches 1, rounded up.

    The exponent (..., m) is log(delta w_a) - lam_a S_a: -inf where an order is lost. The root is inf where all are.
    Steps are Newton's at most; fewer are faster and give a larger bound.

    Guarantee: at every loss above the result the sum is >= 1.
    Source: theory 6.3 P.
    """
    powers = xp.stack((xp.ones_like(lam), lam), axis=-1)
    u, _, exists = _exponentials(exponent, lam, powers, steps, xp)
    return _finish(u, exists, xp)


def exponentials_ex_post(exponent: Array, lam: Array, /, *, steps: int = _STEPS, xp: Library = NUMPY) -> Array:
    """The least u with 1 - e^(u-l) <= sum_a e^(exponent_a + lam_a l) for every loss l, rounded up.

    u is the maximum of the concave function h(l) = l + log(1 - sum), taken where sum_a alpha_a e^(...) = 1. From a
    point l to the right of it with slope -s, h(l') <= min(l', h(l) + s (l - l')) for l' <= l, hence the result.

    Guarantee: at the result, the inequality holds for every l.
    Source: theory 6.3 D, with G there written as a root.
    """
    shifted, alpha = exponent + xp.log1p(lam), 1.0 + lam
    powers = xp.stack((xp.ones_like(lam), lam, 1.0 / alpha), axis=-1)
    location, sums, exists = _exponentials(shifted, lam, powers, steps, xp)
    return _finish(_tangent(location, sums[..., 0], sums[..., 2], xp), exists, xp)


def _tangent(location: Array, total: Array, below: Array, xp: Library) -> Array:
    """The bound on max h from the values (M + M') delta and M delta at a point to the right of the maximum."""
    proper = below < 1
    room = xp.where(proper, 1.0 - below, 1.0)
    slope = xp.where(total > 1, total - 1.0, 0.0) / room
    return xp.where(proper, (location + xp.log(room) + slope * location) / (1.0 + slope), location)


def _finish(bound: Array, exists: Mask, xp: Library) -> Array:
    return xp.where(exists & (bound == bound), raised(bound, xp=xp), inf)


def normal(
    clock: Array, scale: Array, log_weight: Array, /, *, delta: float, steps: int = _STEPS, xp: Library = NUMPY
) -> Array:
    """The loss at which a mixture of one-sided normal mixtures reaches 1/delta, rounded up.

    The clock is V: the sum of mu squared, or twice the sum of rho; weights (k,) of the scales sum to one. The loss is
    0 where the clock stands at 0, inf where it is infinite.

    Guarantee: with probability >= 1 - delta, the loss is never above the result.
    Source: theory 6.5.
    """
    parts, start = _normal_parts(clock, scale, log_weight, delta, xp)

    def logarithm(u: Array) -> tuple[Array, Array]:
        value, first, _ = parts(u)
        return xp.log(value), first / value

    return _normal_finish(_descend(start, logarithm, steps, xp), clock, xp)


def normal_ex_post(
    clock: Array, scale: Array, log_weight: Array, /, *, delta: float, steps: int = _STEPS, xp: Library = NUMPY
) -> Array:
    """As ``normal``, for the ex-post promise.

    Guarantee: at the result u, 1 - e^(u-l) <= delta times the mixture at l, for every loss l.
    Source: theory 6.1 D, 6.5; the maximum of h as in ``exponentials_ex_post``.
    """
    parts, start = _normal_parts(clock, scale, log_weight, delta, xp)

    def logarithm(u: Array) -> tuple[Array, Array]:
        value, first, second = parts(u)
        return xp.log(value + first), (first + second) / (value + first)

    location = _descend(start, logarithm, steps, xp)
    value, first, _ = parts(location)
    return _normal_finish(_tangent(location, value + first, value, xp), clock, xp)


def _normal_parts(
    clock: Array, scale: Array, log_weight: Array, delta: float, xp: Library
) -> tuple[Callable[[Array], tuple[Array, Array, Array]], Array]:
    """Delta times the mixture M(u) and its first two derivatives, and a start to the right of the root."""
    time = xp.where((clock >= 0) & (clock < inf), clock, 1.0)[..., None]
    spread = xp.sqrt(time + scale)
    log_share = log_weight + log(delta) + 0.5 * xp.log(4.0 * scale / (time + scale))
    room = log(2.0) - log_share  # x**2 / 2 = room is enough for one part alone, because Phi(x) >= 1/2
    start = xp.min(time / 2 + xp.sqrt(2.0 * xp.where(room > 0, room, 0.0)) * spread, axis=-1)

    def parts(u: Array) -> tuple[Array, Array, Array]:
        x = (u[..., None] - time / 2) / spread
        value = xp.exp(log_share + x * x / 2 + _log_ndtr(x, xp))
        first = (x * value + xp.exp(log_share) / (2 * pi) ** 0.5) / spread
        second = (value / spread + x * first) / spread
        return xp.sum(value, axis=-1), xp.sum(first, axis=-1), xp.sum(second, axis=-1)

    return parts, start


def _normal_finish(bound: Array, clock: Array, xp: Library) -> Array:
    known = (clock >= 0) & (clock < inf) & (bound == bound)
    return xp.where(clock == 0, 0.0, xp.where(known, raised(bound, xp=xp), inf))


def _log_ndtr(x: Array, xp: Library) -> Array:
    """The logarithm of the normal distribution function, which the array standard does not have."""
    library = getattr(xp, "special", None)  # PyTorch's
    return xp.asarray(special.log_ndtr(np.asarray(x))) if library is None else cast(Array, library.log_ndtr(x))

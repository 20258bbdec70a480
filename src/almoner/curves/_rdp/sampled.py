"""The Rényi curve of the Poisson-sampled Gaussian mechanism, accurate however small it is.

With q the sample rate, z the relative noise sigma/contribution and u(x) = q (e^((2x-1)/(2 z^2)) - 1), so that
E[u] = 0 for x ~ N(0, z^2):

    remove   D(mixture || noise) = log E[(1+u)^alpha] / (alpha - 1)          the larger one (Mironov et al., Thm 5)
    add      D(noise || mixture) = log E[(1+u)^(1-alpha)] / (alpha - 1)

Both are log1p(A) with A = E[(1+u)^b - 1 - b u], b = alpha or 1 - alpha: an integral of something non-negative, so
nothing cancels. For whole alpha, A is a finite sum of non-negative terms as well.

Source: theory 2.6; Mironov, Talwar & Zhang (2019), https://arxiv.org/abs/1908.10530
"""

from functools import cache, lru_cache
from math import floor, inf, lgamma, log, log1p, sqrt

import numpy as np

from almoner.curves._grid.connect_the_dots import Floats

_LARGEST_SUM = 2**14  # whole orders up to here by their sum; above, Minkowski's inequality
_LARGEST_GRID = 2**20  # points of the quadrature; above, Minkowski's inequality
_TIGHT = 23.0  # from this log of q e^((a-1)/(2 z^2)) on, Minkowski's bound is within 1e-11: the term of k = a is in A
_LOG_ERROR = 2.0**-50  # relative: twice what four units in the last place of lgamma, of logarithms and products make
_GUARD = 1 + 1e-11
"""Over the relative error of A, and so of log(1 + A).

Whole orders: errors of the terms' logarithms are added to them; exp, log and a pairwise sum of up to 2**14 terms make
less than 1e-13. Quadrature: the trapezoidal rule with steps z/3 and 0.1 z**2 is off by 2 exp(-18 pi**2) and
exp(-20 pi**2), and what lies beyond ten standard deviations is 1e-22; where (1+u)**b - 1 - b u is not summed as a
series, abs(b u) >= 0.02 or abs(u) >= 0.02, so cancelling makes at most 200 of the errors of its parts, 2e-13.
"""


def remove(rate: float, noise: Floats, order: float) -> Floats:
    """D(mixture || noise) at one order, for an array of relative noise (each > 0); rounded up."""
    if rate == 1:
        return order / (2 * noise**2) * _GUARD
    # never above Minkowski's bound nor the bound without sampling
    bound: Floats = np.minimum(_minkowski(rate, noise, order), order / (2 * noise**2) * _GUARD)
    wanted = log(rate) + (order - 1) / (2 * noise**2) < _TIGHT
    if wanted.any():
        bound = np.array(bound, dtype=np.float64)
        bound[wanted] = np.minimum(bound[wanted], _remove_exactly(rate, noise[wanted], order))
    return bound


def _remove_exactly(rate: float, noise: Floats, order: float) -> Floats:
    if order == floor(order) and order <= _LARGEST_SUM:
        log_a = _whole(rate, noise, int(order))
    else:
        log_a = np.array([_moment(rate, float(z), order, order) for z in noise.ravel()]).reshape(noise.shape)
    exact: Floats = np.logaddexp(0.0, log_a) / (order - 1) * _GUARD
    return exact


def add(rate: float, noise: Floats, order: float) -> Floats:
    """D(noise || mixture) at one order, for an array of relative noise (each > 0); rounded up."""
    if rate == 1:
        return order / (2 * noise**2) * _GUARD
    log_a = np.array([_moment(rate, float(z), order, 1 - order) for z in noise.ravel()]).reshape(noise.shape)
    exact = np.logaddexp(0.0, log_a) / (order - 1) * _GUARD
    bound: Floats = np.minimum(exact, -log1p(-rate) * order / (order - 1) * _GUARD)
    return bound


def _minkowski(rate: float, noise: Floats, order: float) -> Floats:
    """||1 - q + q Y||_a <= 1 - q + q ||Y||_a in the norm of order a: an upper bound at every order."""
    exponent = (order - 1) / (2 * noise**2)
    bound: Floats = order / (order - 1) * np.logaddexp(log1p(-rate), log(rate) + exponent)
    # near zero the logarithm cancels: log(1 + q (e^x - 1)) <= q (e^x - 1)
    small = order / (order - 1) * rate * np.expm1(np.minimum(exponent, 700.0))
    either: Floats = np.where(exponent < 1e-3, small, bound * (1 + 1e-12) + 1e-15) * _GUARD
    return either


def _whole(rate: float, noise: Floats, order: int) -> Floats:
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
def _moment(rate: float, noise: float, order: float, power: float) -> float:
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
    top: float = float(np.logaddexp.reduce(log_density + _log_excess(u, log_u1, power)))
    return top + log(step)


def _log_excess(u: Floats, log_u1: Floats, power: float) -> Floats:
    """log((1+u)^b - 1 - b u), >= 0 by Bernoulli's inequality; by its series where u is small."""
    small = np.abs(u) * max(1.0, abs(power)) < 0.02
    v = np.where(small, u, 0.0)
    term, total = np.ones_like(v), np.ones_like(v)
    for j in range(2, 12):
        term = term * (power - j) / (j + 1) * v
        total = total + term
    with np.errstate(all="ignore"):
        series = np.log(abs(power * (power - 1)) / 2 * total) + 2 * np.log(np.abs(v))
        raised = power * log_u1
        large = raised > 600
        known = np.where(large, 0.0, log_u1)
        if abs(power - 1) < 0.5:  # (1+u) ((1+u)^(b-1) - 1) - (b-1) u: nothing cancels where b is nearly one
            direct = np.log(np.exp(known) * np.expm1((power - 1) * known) - (power - 1) * u)
        else:
            direct = np.log(np.expm1(power * known) - power * u)
        result = np.where(small, series, np.where(large, raised, direct))
    return np.where(np.isnan(result), np.where(u == 0, -inf, inf), result)

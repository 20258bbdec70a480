"""Points (epsilon, delta) that a Rényi curve implies: a test has two outcomes, and they are no easier to tell apart.

Names and symbols
    lam           order - 1, > 0
    x, y          how often a test says "in" of people who are in, and of those who are not
    up, down      logarithms of x/y and of (1 - x)/(1 - y), up > down
    level         the logarithm of x/(1 - x)

Let the Rényi divergence of the order 1 + lam be at most r. For all numbers up > down, every test obeys
x - exp(epsilon) y <= delta with the epsilon and the delta of ``_lines``: the tangent of the divergence of two outcomes.
So each point holds by itself, however up, down and the order were found; the search only decides how near it is.

Source: theory 8.3; Asoodeh, Liao, Calmon, Kosut & Sankar (2020), https://arxiv.org/abs/2001.05990, Theorem 2
"""

from math import inf, log, sqrt

import numpy as np
from numpy.typing import NDArray

from almoner.curves._grid.connect_the_dots import Floats

_LEAST_LEVEL = -31.0  # level of the rarest test: x is 3e-14
_HALVINGS = 40
_LEAST_LAM = 1e-8
_GUARD = 2.0**-46  # allowance for rounding of each logarithm and of each sum that may cancel
_UP = 1 + 2.0**-48


def of_orders(orders: Floats, values: Floats, *, points: int) -> list[tuple[float, float]]:
    """Points that hold for all laws with at most these divergences in both orders, near their trade-off function.

    Values (m,) are inf where none is known; there are no points where none is finite.

    Guarantee: every such run is (epsilon, delta)-DP at each point, for adding and for removing a person.
    Source: theory 8.3.
    """
    known = values < 1e300
    lam, divergence = orders[known] - 1, values[known] * _UP
    if not lam.size:
        return []
    if float(divergence.min()) <= 0:  # the laws are the same
        return [(0.0, 0.0)]
    level = _levels(float(_at_even_odds(lam, divergence).min()), points)
    spread = _spread(level[:, None], lam[None, :], divergence[None, :])
    best = np.argmin(spread, axis=1)
    return _lines(level, spread[np.arange(len(level)), best], lam[best], divergence[best])


def of_zcdp(rho: float, *, points: int) -> list[tuple[float, float]]:
    """Points that hold for all laws with divergence at most order times rho at every order above 1, in both orders.

    Guarantee: every rho-zCDP run is (epsilon, delta)-DP at each point, for adding and for removing a person.
    Source: theory 8.3.
    """
    if not 0 < rho < 1e300:
        return [(0.0, 0.0)] if rho == 0 else []

    def divergence(lam: Floats) -> Floats:
        return np.asarray((1 + lam) * rho * _UP)

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
    first, second = lam * above_tangent(order * down), order * above_tangent(lam * down)
    rest = first - second + _GUARD * (first + second)
    power = lam * divergence * _UP
    close = power < 1
    near = np.log(np.expm1(np.where(close, power, 1.0)) + rest)
    far = power + np.log1p((rest - 1) * np.exp(-np.maximum(power, 1.0)))
    terms = [np.where(close, near, far), -lam * up, -np.log1p(lam), parts[-1]]
    logs = sum(terms) + _GUARD * (1 + sum(map(np.abs, terms)))
    deltas = np.exp(np.minimum(logs, 0.0)) * _UP + 1e-320
    found = zip(np.maximum(epsilons, 0.0).tolist(), np.minimum(deltas, 1.0).tolist(), strict=True)
    return [(epsilon, delta) for epsilon, delta in found if epsilon < inf and delta <= 1]


def above_tangent(x: Floats) -> Floats:
    """exp(x) - 1 - x without cancellation."""
    small = np.abs(x) < 0.5
    v = np.where(small, x, 0.0)
    series = np.zeros_like(v)
    for j in range(18, 2, -1):
        series = (series + 1) * v / j
    return np.where(small, (series + 1) * v * v / 2, np.expm1(x) - x)

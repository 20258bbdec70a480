"""Combine Rényi totals at many orders by a mixture of exponential supermartingales with fixed weights.

With totals S(a), lam = a - 1 and weights w, M(l) = sum_a w_a exp(lam_a (l - S(a))) has mean at most 1 along the
realised loss l, and

    G(S, u) = sup over l > u of (1 - e^(u - l)) / M(l)

bounds the delta that the totals still allow at epsilon = u. log((1 - e^-t) / M(u + t)) is concave in t, so the
supremum is where its derivative 1 / (e^t - 1) - (mean of lam) vanishes, and a tangent bounds it from above.

Source: theory 1.5 and 4.4 (docs/proofs/whole-curve-filter.md)
"""

import numpy as np

from almoner.curves._grid.connect_the_dots import Floats


def allowed_delta(totals: Floats, lam: Floats, log_weights: Floats, epsilon: float) -> Floats:
    """G(S, epsilon), rounded up, for totals (..., m), inf allowed; weights (m,) add up to at most 1.

    Guarantee: G(S, epsilon) is at most the value, which is inf where every total is infinite.
    Source: theory 4.4.
    """
    rows = totals.shape[:-1]
    low = np.full(rows, np.log1p(1 / lam.max()))
    high = np.full(rows, np.log1p(1 / lam.min()))
    low, high = low * (1 - 1e-9), high * (1 + 1e-9)
    for _ in range(48):
        middle = np.sqrt(low * high)
        rising = 1 / np.expm1(middle) - _mixture(middle, totals, lam, log_weights, epsilon)[1]
        low, high = np.where(rising > 0, middle, low), np.where(rising > 0, high, middle)
    log_m, mean, size = _mixture(low, totals, lam, log_weights, epsilon)
    slope = np.maximum(1 / np.expm1(low) - mean, 0.0)
    # 1e-15 (size + 20): an exponent log w + lam (u - S) is off by less than 4 units of 1.1e-16 of the sizes of its
    # parts; in log M these errors are averaged with the terms, as in ``size``; exp, log and sum make less than 2e-14
    log_g = np.log(-np.expm1(-low)) - log_m + slope * (high - low) + 1e-15 * (size + 20)
    with np.errstate(over="ignore"):
        return np.where(np.isnan(log_g), np.inf, np.exp(log_g))


def _mixture(
    t: Floats, totals: Floats, lam: Floats, log_weights: Floats, epsilon: float
) -> tuple[Floats, Floats, Floats]:
    """Log M(epsilon + t), the mean of lam under its terms, and the size of the numbers that were added up."""
    with np.errstate(over="ignore"):
        exponents = log_weights + lam * ((epsilon + t)[..., None] - totals)
    top = exponents.max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore", over="ignore"):
        terms = np.exp(exponents - top)
        total = terms.sum(axis=-1)
        finite = np.where(np.isfinite(totals), totals, 0.0)
        size = (terms * (lam * ((epsilon + t)[..., None] + finite) - log_weights)).sum(axis=-1) / total
        return top[..., 0] + np.log(total), (terms * lam).sum(axis=-1) / total, size


def around(best: float, *, share: float) -> tuple[Floats, Floats]:
    """Lam (62,), the best lam* first, and weights (62,) that add up to at most 1 (theory 4.4): a share of it at lam*.

    The rest goes to 61 geometric points, lam*/30 to 3000 lam*, falling as lam*/lam above and as (lam/lam*)**3 below.
    The exponentials of the weights' logarithms add up to at most 1 too: each is off by less than 2e-15 of itself.
    """
    grid = best * np.geomspace(1 / 30, 3000, 61)
    fall = np.where(grid > best, best / grid, (grid / best) ** 3)
    return np.append(best, grid), np.append(share, (1 - share) * fall / fall.sum()) / (1 + 4e-15)


def default_weights(best: float, *, share: float = 0.5) -> tuple[Floats, Floats]:
    """Orders and weights ``around`` the best one; orders above 20 are whole, which are quickest to compute."""
    lam, weights = around(best, share=share)
    orders = np.where(1 + lam > 20, np.round(1 + lam), 1 + lam)
    unique, place = np.unique(orders, return_inverse=True)
    merged: Floats = np.bincount(place, weights=weights).astype(np.float64)
    return unique, merged

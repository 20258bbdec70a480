"""Gaussian differential privacy: mu squared adds up, and the total is exact.

Names and symbols
    mu     μ    GDP parameter: as hard to tell apart as N(0, 1) and N(mu, 1)
    delta  δ    failure probability, in (0, 1)

Only mechanisms that *are* Gaussian have a cost here. A mu that was fitted to something else does not qualify.

Source: Dong, Roth & Su (2022), https://arxiv.org/abs/1905.02383; Koskela, Tobaben & Honkela (2023), Cor. C.2
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import inf, log, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from almoner import _check, mechanisms
from almoner._search import last_true
from almoner._units import as_float, exact
from almoner.curves._grid import discrete
from almoner.errors import Unsupported

__all__ = ["Gaussian", "cost", "delta", "epsilon", "mu", "of"]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_GUARD = 4e-12
"""Over the relative error of ``_delta`` beside that of its exponents; Mills' ratio R is off by at most 8 ULP (tested).

``close``: 1 - t R(t) > 1 / (t**2 + 3), and t < 38.5 where delta is a float, so 8 ULP of t R(t) are 2.7e-12 of it; the
rule of Gauss and Legendre on a span of at most 0.3 (1 + t) adds less than 1e-13. ``right``: R(t + mu) <= 0.8 R(t), so
16 ULP become 80. ``left``: the first term is at least 0.5, and the difference at least a tenth of it.
"""


@dataclass(frozen=True, slots=True)
class Gaussian:
    """The guarantee "mu-GDP". Every field is public.

    >>> round(Gaussian(0.5).epsilon(delta=1e-5), 6)
    1.993091
    """

    mu: float

    def __post_init__(self) -> None:
        _check.within(0, inf, mu=self.mu)

    def epsilon(self, *, delta: float) -> float:
        """The epsilon that holds at delta: exact, rounded up.

        Guarantee: every mu-GDP mechanism is (epsilon, delta)-DP.
        Source: theory 3.3; Koskela, Tobaben & Honkela (2023), Cor. C.2.
        """
        return float(epsilon(self.mu, delta=delta))

    def delta(self, *, epsilon: float) -> float:
        """The delta that holds at epsilon: exact, rounded up.

        Guarantee: every mu-GDP mechanism is (epsilon, delta)-DP.
        Source: theory 3.3; Koskela, Tobaben & Honkela (2023), Cor. C.2.
        """
        return float(delta(self.mu, epsilon=epsilon))


def of(mechanism: mechanisms.Mechanism, *, dominated: bool = True) -> Gaussian:
    """The GDP guarantee of a mechanism; ``dominated``: also of pairs that Gaussian noise only dominates.

    Guarantee: the mechanism is mu-GDP; mu is rounded up.
    Source: theory 2.1.

    >>> of(mechanisms.Repeated(mechanisms.Gaussian(sigma=20.0), 100)).mu
    0.5000000000000002
    """
    total = cost(mechanism, dominated=dominated)
    return Gaussian(float(np.nextafter(np.nextafter(sqrt(as_float(total)), inf), inf)) if total else 0.0)


def cost(mechanism: mechanisms.Mechanism, *, dominated: bool = True) -> Fraction:
    """Price a mechanism: mu squared that it adds to a Gaussian total, exactly; ``dominated`` as for ``of``.

    Guarantee: the mechanism is mu-GDP, whatever came before it.
    Source: theory 2.1; Koskela, Tobaben & Honkela (2023), Thm 11.
    """
    leaves = mechanisms.leaves(mechanism)
    return sum((count * _cost(leaf, dominated) for leaf, count in leaves.items()), Fraction(0))


def _cost(leaf: mechanisms.Mechanism, dominated: bool) -> Fraction:
    match leaf:
        case mechanisms.Gaussian() | mechanisms.SampledGaussian(sample_rate=1):
            return (exact(leaf.sensitivity) / exact(leaf.sigma)) ** 2
        case mechanisms.SampledGaussian():
            raise Unsupported(
                "SampledGaussian is no Gaussian mechanism unless sample_rate=1; use filters.Residue or `filters.Renyi`"
            )
        case mechanisms.Paired() if dominated:
            mu = discrete.mu(leaf)
            if mu == inf:
                raise Unsupported(
                    f"{type(leaf).__name__}: its loss may be infinite in either order; it is mu-GDP for no mu"
                )
            return Fraction(mu) ** 2
    raise Unsupported(
        f"{type(leaf).__name__} is not a Gaussian mechanism, and a mu fitted to it would be no guarantee; "
        "use filters.Zcdp, Renyi or `filters.Residue`"
    )


def is_gaussian(leaf: mechanisms.Mechanism) -> bool:
    """True for Gaussian noise without sampling."""
    return isinstance(leaf, mechanisms.Gaussian | mechanisms.SampledGaussian) and getattr(leaf, "sample_rate", 1) == 1


def delta(mu: ArrayLike, /, *, epsilon: ArrayLike) -> NDArray[np.float64]:
    """The delta (...), in [0, 1], that holds at epsilon (...), public, for each person's mu (...), private or public.

    It is exact but for rounding, which is up. A mu that is negative or NaN counts as infinite; epsilon is in nats,
    >= 0, and NaN counts as zero.

    Guarantee: every mu-GDP mechanism is (epsilon, delta)-DP.
    Source: theory 3.3; Koskela, Tobaben & Honkela (2023), Cor. C.2.
    """
    mus, epsilons = np.broadcast_arrays(_check.floats(mu=mu), _check.floats(epsilon=epsilon))
    known = (mus >= 0) & (mus < inf)
    proper = known & (mus > 0) & (epsilons < inf)
    with np.errstate(all="ignore"):
        value = _delta(np.where(proper, mus, 1.0), np.where(proper & (epsilons > 0), epsilons, 0.0))
    value = np.where(mus == 0, 0.0, np.where(known & (epsilons == inf), 0.0, value))
    return np.where(known, np.clip(value, 0.0, 1.0), 1.0)


def _delta(mu: NDArray[np.float64], epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
    """With x = epsilon/mu - mu/2 and Mills' ratio R: delta = phi(x) (R(x) - R(x + mu)), free of large exponentials.

    R' (t) = t R(t) - 1, so where the difference would cancel it is the integral of 1 - t R(t), which is positive.
    """
    x = epsilon / mu - mu / 2
    close = mu < 0.3 * (1 + np.abs(x))  # then x >= -mu/2 > -0.2
    value = np.empty_like(x)
    t, width = x[close], mu[close]
    inside = t[:, None] + width[:, None] * (_NODES + 1) / 2
    value[close] = np.exp(-(t**2) / 2) / sqrt(2 * pi) * (width / 2) * ((1 - inside * _mills(inside)) @ _WEIGHTS)
    right = ~close & (x > 0)
    t, width = x[right], mu[right]
    value[right] = np.exp(-(t**2) / 2) / sqrt(2 * pi) * (_mills(t) - _mills(t + width))
    left = ~close & (x <= 0)
    t, width = x[left], mu[left]
    value[left] = special.ndtr(-t) - np.exp(epsilon[left] + special.log_ndtr(-t - width))
    guard = 1 + _GUARD + 1e-15 * (np.abs(x) * (epsilon / mu + mu) + epsilon)  # the last: rounding of x and exponents
    guarded: NDArray[np.float64] = np.where(np.isnan(value), 1.0, value * guard + 1e-320)
    return guarded


def _mills(t: NDArray[np.float64]) -> NDArray[np.float64]:
    ratio: NDArray[np.float64] = sqrt(pi / 2) * special.erfcx(t / sqrt(2))
    return ratio


def epsilon(mu: ArrayLike, /, *, delta: float) -> NDArray[np.float64]:
    """The epsilon (...), nats, >= 0, that holds at delta, in (0, 1), for each person's mu (...), private or public.

    It is the upper end of the last bracket; 0 where delta(0) <= delta. A mu that is negative or NaN counts as infinite.

    Guarantee: every mu-GDP mechanism is (epsilon, delta)-DP.
    Source: theory 3.3; Koskela, Tobaben & Honkela (2023), Cor. C.2.
    """
    _check.between(0, 1, delta=delta)
    mus = _check.floats(mu=mu)
    known = (mus >= 0) & (mus < inf)
    safe = np.where(known & (mus > 0), mus, 1.0)
    with np.errstate(all="ignore"):
        # P(loss > high) <= delta, by the Gaussian tail bound exp(-t**2 / 2)
        low, high = np.zeros_like(safe), (safe * safe / 2 + safe * sqrt(2 * log(1 / delta))) * (1 + 1e-12)
        at_high = _delta(safe, high)
        for _ in range(20):
            # log delta is concave in epsilon, so Newton's step from above stays above; the bracket holds all the same
            slope = np.exp(high + special.log_ndtr(-high / safe - safe / 2)) / at_high
            newton = high + (np.log(at_high) - log(delta)) / slope + 4e-15 * high
            trial = np.where((newton > low) & (newton < high), newton, (low + high) / 2)
            value = _delta(safe, trial)
            enough = value <= delta
            low, high = np.where(enough, low, trial), np.where(enough, trial, high)
            at_high = np.where(enough, value, at_high)
        high = np.where(_delta(safe, np.zeros_like(safe)) <= delta, 0.0, high)
    return np.where(mus == 0, 0.0, np.where(known, high, inf))


def mu(*, epsilon: float, delta: float) -> float:
    """The largest mu that implies (epsilon, delta)-DP, rounded down; epsilon in nats, >= 0, delta in (0, 1), public.

    Guarantee: every mu-GDP mechanism is (epsilon, delta)-DP.
    Source: theory 3.3.

    >>> round(mu(epsilon=1.0, delta=1e-5), 6)
    0.268051
    """
    _check.within(0, 1e6, epsilon=epsilon)
    _check.between(0, 1, delta=delta)
    return _largest(float(epsilon), float(delta))


@lru_cache(maxsize=256)
def _largest(epsilon: float, delta: float) -> float:
    return last_true(lambda m: Gaussian(m).delta(epsilon=epsilon) <= delta, start=1.0)

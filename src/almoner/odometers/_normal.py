"""Bound the loss of Gaussian and zCDP mechanisms as a Brownian motion with drift.

Names and symbols
    V       the clock: the sum of mu squared, or twice the sum of rho
    L       the realised loss; for Gaussian rounds L - V/2 is Brownian motion at time V
    r       scale of a mixture, in the unit of V
    plan    V*, the V at which the boundary should be smallest

For zCDP rounds e^(lam (L - V/2) - lam^2 V / 2) is a supermartingale for lam > 0 only, so only those are mixed, and
what holds for Gaussian rounds holds for zCDP rounds with the same V.

Source: theory 6.5; Howard, Ramdas, McAuliffe & Sekhon (2021), https://arxiv.org/abs/1810.08240
"""

from abc import abstractmethod
from dataclasses import dataclass
from math import inf, log, log1p, sqrt

import numpy as np

from almoner import _check, mechanisms
from almoner._arrays import NUMPY, Array, Library
from almoner._notions import STEPS, Boundary, Totals
from almoner._units import up
from almoner.curves import zcdp
from almoner.odometers import _roots
from almoner.odometers._odometer import Odometer

_PLANS = tuple(10.0**power for power in range(-6, 7))


@dataclass(frozen=True, kw_only=True)
class Clock(Boundary):
    """Boundaries whose cost is one clock, V."""

    @property
    def width(self) -> int:
        return 1

    def costs(self, leaf: mechanisms.Mechanism) -> Totals:
        return (up(2 * zcdp.cost(leaf)),)

    def bound(
        self, costs: Array, /, *, delta: float, ex_post: bool = False, steps: int = STEPS, xp: Library = NUMPY
    ) -> Array:
        return self.at_clock(costs[..., 0], delta=delta, ex_post=ex_post, steps=steps, xp=xp)

    @abstractmethod
    def at_clock(self, clock: Array, *, delta: float, ex_post: bool, steps: int, xp: Library) -> Array:
        """Either bound at V (...)."""


@dataclass(frozen=True, kw_only=True)
class NormalMixture(Clock):
    """One-sided normal mixtures of several scales, with equal weights."""

    scales: tuple[float, ...]

    def at_clock(self, clock: Array, *, delta: float, ex_post: bool, steps: int, xp: Library) -> Array:
        count = len(self.scales)
        log_weight = -log(count) - (1e-14 if count > 1 else 0.0)
        scales = xp.asarray(np.asarray(self.scales), device=clock.device)
        weights = xp.asarray(np.full(count, log_weight), device=clock.device)
        solve = _roots.normal_ex_post if ex_post else _roots.normal
        return solve(clock, scales, weights, delta=delta, steps=steps, xp=xp)


@dataclass(frozen=True, kw_only=True)
class StraightLine(Clock):
    """A straight line in V: one Rényi order."""

    lam: float

    def at_clock(self, clock: Array, *, delta: float, ex_post: bool, steps: int, xp: Library) -> Array:
        lam = xp.asarray(np.asarray([self.lam]), device=clock.device)
        exponent = log(delta) - lam * (1.0 + lam) * clock[..., None] / 2.0
        solve = _roots.exponentials_ex_post if ex_post else _roots.exponentials
        return xp.where(clock == 0, 0.0, solve(exponent, lam, steps=steps, xp=xp))


class Gaussian(Odometer):
    """For Gaussian mechanisms and every mechanism with a zCDP cost: a mixture of normal mixtures.

    Promises the same as ``Renyi``, pathwise and ex-post; nothing for a plan chosen after seeing a result.

    Args:
        delta: failure probability, in (0, 1/2).
        plan: the V (sum of mu squared), or the mechanism, at whose end the bound should be small. Without a plan,
            thirteen plans from 1e-6 to 1e6 are mixed, and no tuning is needed.
        sum_delta: as of ``Renyi``.

    >>> odometer = Gaussian(delta=1e-5, plan=1.0)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(sigma=20.0), 400))
    >>> round(odometer.epsilon(), 3), round(odometer.ex_post_epsilon(), 3)
    (5.589, 5.027)

    Guarantee: both promises of ``Renyi``.
    Source: theory 6.1, 6.5.
    """

    def __init__(
        self, *, delta: float, plan: mechanisms.Mechanism | float | None = None, sum_delta: float | None = None
    ) -> None:
        _check.between(0, 0.5, delta=delta)
        chosen = None if plan is None else planned(plan)
        scales = tuple(tuned(best, delta) for best in (_PLANS if chosen is None else (chosen,)))
        notion = NormalMixture(delta=delta, sum_delta=sum_delta, scales=scales)
        super().__init__(notion, delta=delta, sum_delta=sum_delta, plan=chosen)


class Line(Odometer):
    """For Gaussian mechanisms and every mechanism with a zCDP cost: a straight line in V; one Rényi order.

    Promises the same as ``Renyi``, pathwise and ex-post; the smallest there is at V = plan, poor far from it.

    Args:
        delta: failure probability, in (0, 1).
        plan: the V (sum of mu squared), or the mechanism, at whose end the bound should be small.
        sum_delta: as of ``Renyi``.

    >>> odometer = Line(delta=1e-5, plan=1.0)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(sigma=20.0), 400))
    >>> round(odometer.epsilon(), 3), round(odometer.ex_post_epsilon(), 3)
    (5.299, 4.743)

    Guarantee: both promises of ``Renyi``.
    Source: theory 6.1, 6.5; ex-post by 3.2 at the one order of the line.
    """

    def __init__(self, *, delta: float, plan: mechanisms.Mechanism | float, sum_delta: float | None = None) -> None:
        _check.between(0, 1, delta=delta)
        chosen = planned(plan)
        notion = StraightLine(delta=delta, sum_delta=sum_delta, lam=sqrt(-2 * log(delta) / chosen))
        super().__init__(notion, delta=delta, sum_delta=sum_delta, plan=chosen)


def planned(plan: mechanisms.Mechanism | float) -> float:
    """A plan as a clock: the sum of mu squared."""
    value = float(2 * zcdp.cost(plan)) if isinstance(plan, mechanisms.Mechanism) else plan
    _check.positive(plan=value)
    return value


def tuned(plan: float, delta: float) -> float:
    """The scale r of the one-sided normal mixture that is smallest near V = plan; theory 6.5."""
    twice = -log(delta) - log(2)
    return plan / (2 * twice + log1p(2 * twice)) if twice > 0 else inf

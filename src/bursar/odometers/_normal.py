"""Boundaries for Gaussian mechanisms and for zCDP: the loss as a Brownian motion with drift.

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
from math import inf, log, log1p, sqrt
from typing import Any

import numpy as np

from bursar import _check, mechanisms
from bursar._units import Units, to_float, up
from bursar.curves import zcdp
from bursar.odometers import _boundary
from bursar.odometers._account import Odometer

__all__ = ["Gaussian", "Line"]

Array = Any
_PLANS = tuple(10.0**power for power in range(-6, 7))


class Clocked(Odometer):
    """Odometers whose total is one clock, V."""

    @property
    def clock(self) -> float:
        """V: the sum of mu squared, or twice the sum of rho; rounded up. Public."""
        return to_float(self._totals[0])

    def _costs(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        return (up(2 * zcdp.cost(mechanism)),)

    def _bound(self, totals: Array, /, *, delta: float) -> Array:
        return self._at_clock(totals[..., 0], delta=delta)

    def _ex_post(self, totals: Array, /, *, delta: float) -> Array:
        return self._at_clock(totals[..., 0], delta=delta, ex_post=True)

    @abstractmethod
    def _at_clock(self, clock: Array, *, delta: float, ex_post: bool = False, steps: int = 60, xp: Any = np) -> Array:
        """Either boundary at V (...), for one account or for everybody's."""


class Gaussian(Clocked):
    """For Gaussian mechanisms and every mechanism with a zCDP cost: a mixture of normal mixtures.

    Promises, for every adversary who chooses mechanisms, their noise and the moment to stop from earlier results:

    - ``epsilon()``: with probability at least 1 - delta, the realised loss is at no time above the bound of its time.
    - ``ex_post_epsilon()``: P(E) <= E_Q[e^(bound at T) 1_E] + delta for every stopping time T and event E.

    Does not promise: that "the run is (bound, delta)-DP"; nor anything for a plan chosen after seeing a result.

    Args:
        delta: failure probability, in (0, 1/2).
        plan: the V (sum of mu squared), or the mechanism, at whose end the bound should be small. Without a plan,
            thirteen plans from 1e-6 to 1e6 are mixed, and no tuning is needed.
        sum_delta: the part of delta kept for rounds with a delta of their own; by default half if the first mechanism
            charged may fail, otherwise nothing.

    >>> odometer = Gaussian(delta=1e-5, plan=1.0)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(sigma=20.0), 400))
    >>> round(odometer.epsilon(), 3), round(odometer.ex_post_epsilon(), 3)
    (5.589, 5.027)

    Guarantee: both promises above.
    Source: theory 6.1, 6.5.
    """

    def __init__(
        self, *, delta: float, plan: mechanisms.Mechanism | float | None = None, sum_delta: float | None = None
    ) -> None:
        _check.between(0, 0.5, delta=delta)
        chosen = None if plan is None else planned(plan)
        plans = _PLANS if chosen is None else (chosen,)
        self._scales = np.asarray([tuned(best, delta) for best in plans])
        self._log_weights = np.full(len(plans), -log(len(plans)) - (1e-14 if len(plans) > 1 else 0.0))
        super().__init__(delta, sum_delta, 1, plan=chosen)

    def _at_clock(self, clock: Array, *, delta: float, ex_post: bool = False, steps: int = 60, xp: Any = np) -> Array:
        where = {} if xp is np else {"device": clock.device}
        scales, weights = xp.asarray(self._scales, **where), xp.asarray(self._log_weights, **where)
        solve = _boundary.normal_ex_post if ex_post else _boundary.normal
        return solve(clock, scales, weights, delta=delta, steps=steps, xp=xp)


class Line(Clocked):
    """For Gaussian mechanisms and every mechanism with a zCDP cost: a straight line in V; one Rényi order.

    Promises the same as ``Gaussian``, pathwise and ex-post; the smallest there is at V = plan, poor far from it.

    Args:
        delta: failure probability, in (0, 1).
        plan: the V (sum of mu squared), or the mechanism, at whose end the bound should be small.
        sum_delta: the part of delta kept for rounds with a delta of their own; by default half if the first mechanism
            charged may fail, otherwise nothing.

    >>> odometer = Line(delta=1e-5, plan=1.0)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Gaussian(sigma=20.0), 400))
    >>> round(odometer.epsilon(), 3), round(odometer.ex_post_epsilon(), 3)
    (5.299, 4.743)

    Guarantee: both promises of ``Gaussian``.
    Source: theory 6.1, 6.5; ex-post by 3.2 at the one order of the line.
    """

    def __init__(self, *, delta: float, plan: mechanisms.Mechanism | float, sum_delta: float | None = None) -> None:
        _check.between(0, 1, delta=delta)
        chosen = planned(plan)
        self._lam = np.asarray([sqrt(2 * log(1 / delta) / chosen)])
        super().__init__(delta, sum_delta, 1, plan=chosen)

    def _at_clock(self, clock: Array, *, delta: float, ex_post: bool = False, steps: int = 60, xp: Any = np) -> Array:
        lam = xp.asarray(self._lam) if xp is np else xp.asarray(self._lam, device=clock.device)
        exponent = log(delta) - lam * (1.0 + lam) * clock[..., None] / 2.0
        solve = _boundary.exponentials_ex_post if ex_post else _boundary.exponentials
        return xp.where(clock == 0, 0.0, solve(exponent, lam, steps=steps, xp=xp))


def planned(plan: mechanisms.Mechanism | float) -> float:
    """A plan as a clock: the sum of mu squared."""
    value = float(2 * zcdp.cost(plan)) if isinstance(plan, mechanisms.Mechanism) else plan
    _check.positive(plan=value)
    return value


def tuned(plan: float, delta: float) -> float:
    """The scale r of the one-sided normal mixture that is smallest near V = plan; theory 6.5."""
    twice = log(1 / (2 * delta))
    return plan / (2 * twice + log1p(2 * twice)) if twice > 0 else inf

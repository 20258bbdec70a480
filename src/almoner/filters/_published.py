"""Filters as papers state them, to compare with; none is recommended."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import e, log, log1p, sqrt
from threading import Lock
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from almoner import _check, _notions, mechanisms
from almoner._search import least
from almoner._uncopyable import Uncopyable
from almoner._units import FAILURE, FINE, budget, to_float, up
from almoner.curves import approximate, gaussian, losses, renyi, zcdp
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.filters._filter import Filter

__all__ = ["Koskela", "Pure", "Rogers"]

Floats = NDArray[np.float64]

_POINTS = 51  # epsilons of the default grid
_MOST_ROUNDS = 10**7


class Koskela(Uncopyable):
    """Admit while the composition of all rounds looks no worse than mu-GDP, at the epsilons of a grid.

    The budget mu is that of rho = mu**2 / 2 in zCDP (5.3), so that it loses what the conversion from Rényi DP loses:
    of Gaussian rounds it admits what ``Zcdp`` admits. The paper checks (5.1) with a Fourier accountant; here the
    composition's delta is the certified upper bound of loss distributions, in both directions, so what is not
    certified is the grid alone.

    It is for comparison, and no ``filters.Filter``: nothing takes it as a budget. For sampled Gaussians (5.1) fails far
    out in the tail for every useful mu (theory 7.4), so a grid that shows it to hold shows too little. Certified
    answers to the same question are ``Residue`` and ``Planned``.

    Args:
        epsilon, delta: public: > 0, and in (0, 1).
        epsilons: public: the grid, each >= 0; 51 from 0 to epsilon, if it is not given.

    Attributes:
        mu: public; the budget.
        count: public; rounds charged.

    Guarantee: none is certified. If (5.1) held at every real epsilon, the whole adaptive interaction would be
        mu**2 / 2-zCDP, hence (epsilon, delta)-DP; it is checked at finitely many.
    Source: theory 7.4; Koskela, Tobaben & Honkela (2023), section 5, eq. 5.1 to 5.3.

    >>> account = Koskela(epsilon=0.8157, delta=1e-5)
    >>> account.admits(mechanisms.Repeated(mechanisms.Gaussian(sigma=100.0), 420))
    True
    """

    def __init__(self, *, epsilon: float, delta: float, epsilons: Sequence[float] | None = None) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        grid = np.linspace(0.0, epsilon, _POINTS).tolist() if epsilons is None else [float(each) for each in epsilons]
        if not grid:
            raise ArgumentError("epsilons must not be empty")
        _check.each(_check.within, 0, 1e6, epsilons=grid)
        self.mu = sqrt(2 * zcdp.rho(epsilon=epsilon, delta=delta)) * (1 - 2.0**-50)
        self.count = 0
        self._grid, self._lock = np.asarray(grid), Lock()
        self._charged: dict[mechanisms.Mechanism, int] = {}

    def __repr__(self) -> str:
        return f"Koskela(mu={self.mu!r}, count={self.count!r})"

    @property
    def spent(self) -> float:
        """The least mu whose curve is not below the composition's on the grid, to 1e-6 of it. Public."""
        return self._fitted(self._charged)

    @property
    def left(self) -> float:
        """The budget less what was spent, in mu squared. Public."""
        return max(0.0, self.mu**2 - self.spent**2)

    def admits(self, mechanism: mechanisms.Mechanism) -> bool:
        """True if (5.1) holds on the grid with this mechanism as well. Asking changes nothing.

        Raises:
            Unsupported: a round has no privacy loss distribution here, or there are more than 10**7 rounds.
        """
        return self._holds(self.mu, self._deltas(self._with(mechanism)))

    def charge(self, mechanism: mechanisms.Mechanism) -> None:
        """Compose a mechanism, before it is run.

        Raises:
            BudgetExceeded: (5.1) fails on the grid. Nothing is spent.
        """
        with self._lock:
            after = self._with(mechanism)
            if not self._holds(self.mu, self._deltas(after)):
                spent = self.spent
                words = f"{mechanism!r} does not fit: with it the composition is above mu={self.mu:g} on the grid"
                asked, left = max(0.0, self._fitted(after) ** 2 - spent**2), max(0.0, self.mu**2 - spent**2)
                raise BudgetExceeded(words, asked=asked, spent=spent**2, left=left)
            self._charged = after
            self.count += mechanisms.rounds(mechanism)

    def _with(self, mechanism: mechanisms.Mechanism) -> dict[mechanisms.Mechanism, int]:
        after = dict(self._charged)
        for leaf, count in mechanisms.leaves(mechanism).items():
            after[leaf] = after.get(leaf, 0) + count
        if sum(after.values()) > _MOST_ROUNDS:
            raise Unsupported(f"more than {_MOST_ROUNDS} rounds are not composed")
        return after

    def _deltas(self, rounds: dict[mechanisms.Mechanism, int]) -> Floats:
        """The composition's delta on the grid, the larger direction, rounded up: the left side of (5.1)."""
        if all(isinstance(leaf, mechanisms.Gaussian) for leaf in rounds):
            squares = sum(gaussian.cost(leaf) * count for leaf, count in rounds.items())
            return gaussian.delta(sqrt(squares) * (1 - 2.0**-50), epsilon=self._grid)
        return losses.deltas(np.array([list(rounds.values())]), list(rounds), epsilon=self._grid)[:, 0]

    def _holds(self, mu: float, deltas: Floats) -> bool:
        return bool((deltas <= gaussian.delta(mu, epsilon=self._grid)).all())

    def _fitted(self, rounds: dict[mechanisms.Mechanism, int]) -> float:
        deltas = self._deltas(rounds)
        return least(lambda mu: self._holds(mu, deltas), near=1.0, tolerance=1e-6) if deltas.any() else 0.0


@dataclass(frozen=True, kw_only=True)
class Squares(_notions.Scalar):
    """Half the sum of epsilon squared, of pure mechanisms."""

    epsilon: float
    delta: float
    measure: ClassVar[str] = "rho"
    theorem: ClassVar[str] = "theory 4.7; Feldman & Zrnic (2021), Thm 4.7"

    def total(self, limits: tuple[int, ...]) -> approximate.Approximate:  # noqa: ARG002 - Scalar has it
        """As printed: the budget's own epsilon and delta, and nothing at other deltas."""
        return approximate.Approximate(self.epsilon, self.delta)

    def price_of_round(self, leaf: mechanisms.Mechanism) -> _notions.Totals:
        _notions.no_failures(leaf, "Pure")
        return (up(approximate.cost(leaf)[0] ** 2 / 2, per=FINE),)


class Pure(Filter):
    """Pure mechanisms only, by Feldman & Zrnic's theorem as printed: half the sum of epsilon squared fits rho.

    ``Zcdp`` admits more of the same mechanisms; this one is for comparison with the paper. The measure of ``spent`` and
    ``left`` is rho = epsilon squared / 2.

    Args:
        epsilon, delta: public: > 0, and in (0, 1).

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP.
    Source: theory 4.7; Feldman & Zrnic (2021), Thm 4.7.
    """

    def __init__(self, *, epsilon: float, delta: float) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        limit = budget(Fraction(zcdp.mironov(epsilon=epsilon, delta=delta)), per=FINE)
        super().__init__(Squares(limit=limit, epsilon=epsilon, delta=delta), epsilon=epsilon, delta=delta)


@dataclass(frozen=True, kw_only=True)
class SquareAndDrift(_notions.WithFailures[tuple[float, float]]):
    """The sum of epsilon squared, V, and the drift of the loss. Totals: V, drift, failures."""

    measure: ClassVar[str] = "V and drift"
    theorem: ClassVar[str] = "theory 6.7; Rogers, Roth, Ullman & Vadhan (2016), Theorem 5.1"

    @property
    def columns(self) -> int:
        return 3

    def price_of_round(self, leaf: mechanisms.Mechanism) -> _notions.Totals:
        return *approximate.square_and_drift(leaf), up(renyi.failure(leaf), per=FAILURE)

    def holds_for(self, totals: _notions.Totals, delta: Fraction) -> bool:  # noqa: ARG002 - WithFailures has it
        return self.boundary(totals) <= self.epsilon  # the formula is written for the whole delta

    def spent(self, totals: _notions.Totals) -> tuple[float, float]:
        return to_float(totals[0]), to_float(totals[1])

    def left(self, totals: _notions.Totals) -> float:  # type: ignore[override]
        return max(0.0, self.epsilon - self.boundary(totals))

    def boundary(self, totals: _notions.Totals) -> float:
        """The epsilon that these totals amount to, rounded up."""
        square, drift = self.spent(totals)
        floor = self.epsilon**2 / (28.04 * -log(self.delta))
        root = sqrt(2 * (square + floor) * (1 + log1p(square / floor) / 2) * (log(2) - log(self.delta)))
        return (drift + root) * (1 + 1e-14)


class Rogers(Filter):
    """Pure, approximate and zCDP mechanisms by the filter of Rogers et al., whose constants we quote second-hand.

    Admit while the deltas add up to at most sum_delta and, with V the sum of epsilon squared and c = 28.04
    log(1/delta), drift + sqrt(2 (V + epsilon^2/c) (1 + log(c V / epsilon^2 + 1) / 2) log(2/delta)) <= epsilon, the
    next one included. For comparison: ``Zcdp`` and ``Renyi`` admit far more.

    ``spent`` is the pair (V, drift); ``left`` is epsilon less the boundary at what was spent, nats, at least 0.

    Args:
        epsilon, delta: public: > 0, and in (0, 1/e), the theorem's range.
        sum_delta: public: the part of delta for mechanisms that may fail; half of it, if it is not given.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP, according to its authors.
    Source: theory 6.7; Rogers, Roth, Ullman & Vadhan (2016), Theorem 5.1.
    """

    def __init__(self, *, epsilon: float, delta: float, sum_delta: float | None = None) -> None:
        _check.between(0, 1 / e, delta=delta)
        share = delta / 2 if sum_delta is None else sum_delta
        notion = SquareAndDrift(epsilon=epsilon, delta=delta, sum_delta=share)
        super().__init__(notion, epsilon=epsilon, delta=delta, sum_delta=share)

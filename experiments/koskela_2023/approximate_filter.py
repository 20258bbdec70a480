"""Koskela, Tobaben & Honkela (2023), section 5: the approximate filter, as printed, for any mechanism.

It certifies nothing, so it is no part of the library, whose ``filters.Residue`` and ``filters.Planned`` answer the same
question with a proof. Its tests show what it prints, and where the grid shows too little.
"""

from collections.abc import Sequence
from math import sqrt
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from almoner import _check, mechanisms
from almoner._search import least
from almoner._uncopyable import Uncopyable
from almoner.curves import gaussian, losses, zcdp
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported

Floats = NDArray[np.float64]

_POINTS = 51  # epsilons of the default grid
_MOST_ROUNDS = 10**7


class ApproximateFilter(Uncopyable):
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

    >>> account = ApproximateFilter(epsilon=0.8157, delta=1e-5)
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
        return f"ApproximateFilter(mu={self.mu!r}, count={self.count!r})"

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

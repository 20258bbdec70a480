"""Budgets that also take mechanisms that may fail, with a part of delta set aside for them.

Names and symbols
    V          the sum of epsilon squared, or of 2 rho
    failures   the sum of the probabilities of failure, in FAILURE units; always the last total
    aside      the part of delta for failures; the rest is for the losses of the rounds that do not fail
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self, TypeVar

from almoner import _check, mechanisms
from almoner._notions._notion import Budget, Totals
from almoner._units import FAILURE, FINE, budget, exact, to_float, up
from almoner.curves import renyi, zcdp
from almoner.errors import ArgumentError, Unsupported

Measure = TypeVar("Measure", covariant=True)

SHARE_OF_LATER = 1000  # a part of delta for failures where the first charge cannot fail: 0.01 % of the rounds


def default_share(delta: float, *, may_fail: bool) -> float:
    """The part of delta for failures where none was named: the one rule of filters and odometers.

    The first charge decides, before there is a result: half of delta if it may fail, otherwise a thousandth, so that
    later rounds may. It can be decided neither later nor anew: see ``WithFailures``.
    """
    return delta / 2 if may_fail else delta / SHARE_OF_LATER


def check_share(sum_delta: float | None, delta: float) -> None:
    """Reject what is no part of delta that can be set aside."""
    if sum_delta is not None:
        _check.number(sum_delta=sum_delta)
        if not 0 <= sum_delta < delta:
            raise ArgumentError(f"sum_delta={sum_delta!r} must be in [0, delta={delta!r})")


@dataclass(frozen=True, kw_only=True)
class WithFailures(Budget[Measure]):
    """An (epsilon, delta) budget whose last total counts probabilities of failure (theory 4.5).

    A fixed part of delta, sum_delta, is set aside for them. It must be fixed before the first charge: what "delta minus
    the sum of deltas so far" would leave depends on the path, and an adversary can use it twice (theory 4.10; a test
    shows it). None: what ``default_share`` says once the first round is charged.
    """

    epsilon: float
    delta: float
    sum_delta: float | None = None

    def __post_init__(self) -> None:
        _check.positive(epsilon=self.epsilon)
        _check.between(0, 1, delta=self.delta)
        check_share(self.sum_delta, self.delta)

    @abstractmethod
    def holds_for(self, totals: Totals, delta: Fraction) -> bool:
        """True if the totals of the rounds that do not fail imply (epsilon, delta)-DP for this part of delta."""

    def holds(self, totals: Totals) -> bool:
        return totals[-1] <= self.aside(totals) * FAILURE and self.holds_for(totals, self.share(totals))

    def settle(self, mechanism: mechanisms.Mechanism, after: Totals) -> tuple[Self, Totals]:
        if self.sum_delta is not None or not mechanisms.rounds(mechanism):
            return self, after
        return replace(self, sum_delta=float(self.aside(after))), after

    def chosen(self) -> dict[str, float | None]:
        return {"sum_delta": self.sum_delta}

    def aside(self, totals: Totals) -> Fraction:
        """The part of delta for failures, at totals after the first charge."""
        return self._asides[totals[-1] > 0]

    def share(self, totals: Totals) -> Fraction:
        """The part of delta for the losses of rounds that do not fail."""
        return self._shares[totals[-1] > 0]

    @cached_property
    def _asides(self) -> tuple[Fraction, Fraction]:
        """The part of delta for failures if the first charge cannot fail, and if it can."""
        if self.sum_delta is not None:
            return exact(self.sum_delta), exact(self.sum_delta)
        return exact(default_share(self.delta, may_fail=False)), exact(default_share(self.delta, may_fail=True))

    @cached_property
    def _shares(self) -> tuple[Fraction, Fraction]:
        without, with_failures = self._asides
        return exact(self.delta) - without, exact(self.delta) - with_failures

    def refusal(self, totals: Totals, mechanism: mechanisms.Mechanism) -> str:
        after = self.after(totals, mechanism)
        aside = self.aside(after)
        if after[-1] > aside * FAILURE:
            more, so_far = (to_float(units, per=FAILURE) for units in (after[-1] - totals[-1], totals[-1]))
            told = f"it may fail with probability {more:g}, failures so far add up to {so_far:g}"
            return f"{told}, and sum_delta={float(aside):g} was set aside for them"
        return self.too_much(totals, mechanism)

    def too_much(self, totals: Totals, mechanism: mechanisms.Mechanism) -> str:
        """Why the losses of a mechanism do not fit beside these totals."""
        return super().refusal(totals, mechanism)

    def person_limits(self) -> tuple[int, ...]:
        raise Unsupported(f"there are no accounts per person with {type(self).__name__}")


@dataclass(frozen=True, kw_only=True)
class Approximate(WithFailures[float]):
    """Pure, approximate and zCDP mechanisms: sqrt(2 log(1/d) V) + V/2 <= epsilon, with d what is left of delta.

    Guarantee: totals that hold are (epsilon, delta)-DP.
    Source: theory 4.6; Whitehouse, Ramdas, Rogers & Wu (2023), Thm 1.
    """

    measure: ClassVar[str] = "V"
    theorem: ClassVar[str] = "theory 4.6; Whitehouse, Ramdas, Rogers & Wu (2023), Thm 1"

    @property
    def columns(self) -> int:
        return 2

    def price_of_round(self, leaf: mechanisms.Mechanism) -> Totals:
        return up(2 * zcdp.cost(renyi.without_failures(leaf)), per=FINE), up(renyi.failure(leaf), per=FAILURE)

    def holds_for(self, totals: Totals, delta: Fraction) -> bool:
        return totals[0] <= self._most(delta)

    def spent(self, totals: Totals) -> float:
        return to_float(totals[0], per=FINE)

    def left(self, totals: Totals) -> float:
        return to_float(max(0, self._most(self.share(totals)) - totals[0]), per=FINE, down=True)

    def _most(self, delta: Fraction) -> int:
        """Units of the largest V admitted: 2 (sqrt(ell + epsilon) - sqrt(ell))**2, rounded down."""
        if delta not in self._known:
            below = to_float(delta, per=1, down=True)
            self._known[delta] = budget(2 * Fraction(zcdp.mironov(epsilon=self.epsilon, delta=below)), per=FINE)
        return self._known[delta]

    @cached_property
    def _known(self) -> dict[Fraction, int]:
        return {}

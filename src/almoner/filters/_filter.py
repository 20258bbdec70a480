"""Ask, charge, refuse: an account with a budget."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

from almoner import _check, mechanisms
from almoner._notions import Account, Budget, Totals
from almoner._units import FINE
from almoner.curves import tradeoff
from almoner.errors import ArgumentError, BudgetExceeded


class Filter(Account[Budget[Any]]):
    """An account with a budget. ``charge`` is the only method that changes it.

    Where mechanisms may fail, the last total counts probabilities of failure (theory 4.5); they have a share of delta
    of their own, set aside before the first charge.
    """

    KIND: ClassVar[str] = "filter"
    _SAVED: ClassVar[tuple[str, ...]] = ("spent",)
    _spent_by: str | None = None
    _forgotten = False

    @property
    def delta(self) -> float | None:
        """The delta of the promise; None when the budget was given in another measure. Public."""
        return self._notion.delta

    @property
    def spent(self) -> Any:
        """Amount spent, in the filter's own measure, rounded up. Public."""
        return self._notion.spent(self._totals)

    @property
    def left(self) -> Any:
        """Amount left, in the filter's own measure, rounded down; nothing once it was given up. Public."""
        left = self._notion.left(self._totals)
        if not self._forgotten:
            return left
        return (0.0,) * len(left) if isinstance(left, tuple) else left * 0.0

    def epsilon(self, *, delta: float | None = None) -> float:
        """The epsilon that the whole budget promises, rounded up; it does not depend on what was charged. Public.

        It is that at delta, public, in (0, 1); by default the filter's own.

        Raises:
            ArgumentError: no delta is given, and the filter has none of its own.
            Unsupported: the filter promises nothing at this delta.

        Guarantee: all that this filter ever admits is together (epsilon, delta)-DP.
        Source: the filter's own.
        """
        return self._notion.statement(delta).epsilon

    def tradeoff(self, *, deltas: Iterable[float] | None = None) -> tradeoff.Curve:
        """The trade-off function and the hockey-stick curve of the whole budget, whatever was charged. Public.

        It is ``epsilon`` at the deltas, public, in (0, 1); by default the least of all that is known of the budget, as
        ``curves.tradeoff.of`` says of its total.

        Guarantee: at every point of the curve, all that this filter ever admits is together (epsilon, delta)-DP.
        Source: the filter's own; Dong, Roth & Su (2022), Proposition 2.4.

        Raises:
            Unsupported: the filter promises nothing at these deltas.
        """
        if deltas is None:
            return self._notion.curve()
        return tradeoff.from_epsilons(lambda delta: self.epsilon(delta=delta), deltas=deltas)

    def hand_over(self, to: str) -> None:
        """Give the whole budget to one analysis, which spends it in accounts of its own; nothing else may, from now on.

        ``to`` names it in messages: "Trainer.fit". Public.

        Raises:
            BudgetExceeded: it was given away before.
            ArgumentError: something was charged already.
        """
        self._process.check("this filter")
        with self._lock:
            self.refuse_if_given()
            if self._count:
                raise ArgumentError(f"budget={self!r} must be fresh, not charged {self._count} times")
            self._spent_by = to

    def refuse_if_given(self) -> None:
        """Raise BudgetExceeded where the budget was handed over, or given up."""
        if self._forgotten:
            words = f"budget={self!r} was given up by forget(). For another budget call budget.fresh()"
            raise BudgetExceeded(words, asked=None, spent=self.spent, left=self.left)
        if self._spent_by is not None:
            given = f"budget={self!r} was given to {self._spent_by}, which may spend all of it"
            cure = "For another budget call budget.fresh(); to spend one budget per person several times give the same"
            raise BudgetExceeded(f"{given}. {cure} individual.Filter", asked=None, spent=None, left=None)

    def admits(self, mechanism: mechanisms.Mechanism, *, units: bool = False) -> bool:
        """True if a mechanism fits into what is left. Asking changes nothing.

        With ``units`` it must also fit where rounds are rounded up to 10^-15, as in accounts of people and ledgers.

        Raises:
            Unsupported: no theorem gives this mechanism a cost here.
        """
        after = self._notion.after(self._totals, mechanism)
        fits = self._spent_by is None and not self._forgotten and self._notion.holds(after)
        return fits and (not units or self._notion.holds(self._notion.after_in_units(self._totals, mechanism)))

    def charge(self, mechanism: mechanisms.Mechanism) -> None:
        """Spend what a mechanism costs, before it is run.

        Raises:
            BudgetExceeded: it does not fit. Nothing is spent, and something cheaper may still fit.
            Unsupported: no theorem gives this mechanism a cost here. Nothing is spent.
        """
        self._process.check("this filter")
        with self._lock:
            self.refuse_if_given()
            notion, totals = self._notion, self._totals
            after = notion.after(totals, mechanism)
            if not notion.holds(after):
                words = f"{mechanism!r} does not fit: {notion.refusal(totals, mechanism)}"
                asked, spent, left = notion.asked(totals, mechanism), notion.spent(totals), notion.left(totals)
                raise BudgetExceeded(words, asked=asked, spent=spent, left=left)
            self._notion, self._totals = notion.settle(mechanism, after)
            self._count += mechanisms.rounds(mechanism)

    def forget(self) -> None:
        """Give up what is left, for good: nothing is admitted from now on. What was spent stays spent.

        For whoever may be asked to forget what a budget was for, as a browser is when a site's data are cleared: a
        budget that began anew would be a second one for the same data.

        Raises:
            BudgetExceeded: it was given away before.
        """
        with self._lock:
            if not self._forgotten:
                self.refuse_if_given()
            self._forgotten = True

    def state(self) -> dict[str, Any]:
        """Everything needed to go on later; refused for a budget that was given away, because a copy would be fresh."""
        if self._forgotten:
            return {**super().state(), "forgotten": True}
        self.refuse_if_given()
        return super().state()

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The account that ``state()`` described, to the last unit."""
        _check.saved(state, "units_in_one")
        if (units := state["units_in_one"]) != FINE:
            why = "it was saved by a version that counts in other units"
            raise ArgumentError(f"state: units_in_one={units!r} must be {FINE}: {why}")
        account = super().from_state(state)
        account._forgotten = bool(state.get("forgotten", False))
        return account

    def _saved(self) -> dict[str, Any]:
        return {"spent": list(self._totals), "units_in_one": FINE}

    def _restore(self, *parts: Totals) -> None:
        (spent,) = parts
        if len(spent) != len(self._totals) or not self._notion.holds(spent):
            raise ArgumentError("state: spent must fit the budget it came from")
        self._totals = spent

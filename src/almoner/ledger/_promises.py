"""What a ledger promises, as its terms say: for everybody to know."""

from almoner._units import as_float, exact, to_float
from almoner.accounting.meaning import Meaning
from almoner.ledger._record.periods import Periods
from almoner.ledger._record.rules import Rules
from almoner.ledger._record.terms import LedgerBudget
from almoner.ledger.interfaces import Store

__all__ = ["Promises"]


class Promises:
    """A ledger's budget, measure, and what they mean. Public."""

    _rules: Rules
    store: Store

    @property
    def budget(self) -> float:
        """What each person may spend, in the ledger's measure, rounded down. Public."""
        return to_float(self.budget_units, down=True)

    @property
    def budget_units(self) -> int:
        """The same in whole units. Public."""
        return self._rules.terms.budget

    @property
    def measure(self) -> str:
        """What is counted: "zCDP rho", "Gaussian rho" (mu squared / 2), or "epsilon". Public."""
        return self._rules.terms.measure

    @property
    def symbol(self) -> str:
        """Of the measure, for messages: rho or epsilon. Public."""
        return self._rules.terms.symbol

    def promise(self, delta: float) -> float:
        """The epsilon, rounded up, that the whole budget promises at delta. Public.

        Guarantee: all that is charged within the budget is together (epsilon, delta)-DP.
        Source: theory 3.2 (zCDP), 3.3 (Gaussian), 4.5 (pure).
        """
        return self._rules.terms.promise(delta)

    def meaning(self) -> Meaning:
        """How well anyone can tell whether a person was in, from all that the budget ever pays for. Public.

        With periods: from all that the budgets of all periods pay for.

        Guarantee: no attack on all that is charged within the budget does better.
        Source: theory 8.1; docs/proofs/periods.md, Theorem 2.
        """
        return self._rules.terms.meaning()

    @property
    def delta(self) -> float | None:
        """The delta at which the budget was given; None if it was given as rho. Public."""
        return self._rules.terms.delta

    @property
    def stated_delta(self) -> float:
        """The delta at which pages and statements say what the budget promises. Public.

        That of the budget, or 1e-6 where it was given without one, and what keys may cost on top.
        """
        return as_float(exact(self.delta or 1e-6) + exact(self.keys_delta or 0))

    @property
    def keys_delta(self) -> float | None:
        """What all questions for keys together may cost in delta; None where there may be none. Public."""
        return self._rules.terms.keys_delta

    @property
    def pseudonyms(self) -> bool:
        """Whether people's names are kept as keyed hashes. Public."""
        return self._rules.terms.pseudonyms is not None

    @property
    def person_kind(self) -> str:
        """How accounts are named: BIGINT or VARCHAR; HUGEINT for numbers of people in periods. Public."""
        return self._rules.terms.person

    def refuse_other(
        self,
        *,
        budget: LedgerBudget | None,
        person: str,
        keys_delta: float | None,
        periods: Periods | None,
        spelling: str | None,
    ) -> None:
        """Refuse to use this ledger, which is open, for other terms than its own; None for whatever they are."""
        terms = self._rules.terms
        given = {"budget": budget, "person": person, "keys_delta": keys_delta, "periods": periods, "spelling": spelling}
        terms.refuse_other(self.store.name, accounts=terms.accounts, **given)  # type: ignore[arg-type]

    @property
    def spelling(self) -> str:
        """Which spellings of a text name one person: "exact", "nfc" or "caseless". Public."""
        return self._rules.terms.spelling

    @property
    def periods(self) -> Periods | None:
        """The periods that bring every person a budget; None: there is one for good. Public."""
        return self._rules.terms.periods

    def lifetime(self, delta: float) -> float:
        """The epsilon, rounded up, that the budgets of all periods together promise a person at delta. Public.

        Guarantee: all that is charged is together (epsilon, delta)-DP for adding or removing a person with all rows.
        Source: docs/proofs/periods.md, Theorem 2.
        """
        return self._rules.terms.lifetime(delta)

"""Statements to one person about the steps that were counted, or charged, for that person."""

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

from almoner._units import shown
from almoner.accounting import meaning

PRIVATE = "This statement is itself computed from your data: anyone you show it to learns something about them."


class ForOnePerson:
    """Something that is printed for the person it is about, and for nobody else."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(private: print it for the person it is about, and for nobody else)"


@dataclass(frozen=True, slots=True, repr=False)
class BudgetStatement(ForOnePerson):
    """Statement to one person about that person's own budget. Private: for that person alone.

    Attributes (private): person; used, the share of the budget that is spent, in [0, 1], rounded up; epsilon, what the
    person's whole budget promises; guess, how often a guess whether the person's data were used is right at most, at
    even odds, from all that the budget pays for. Public: delta.
    """

    person: Hashable
    used: float
    epsilon: float
    delta: float
    guess: float

    def __str__(self) -> str:
        return (
            f"For {self.person} alone: {shown(100 * self.used, 4)} % of your budget is used. "
            f"{meaning.sentence(self.guess)} "
            "This holds for your whole budget, also for results that are still to come. "
            f"(For specialists: your budget is ({shown(self.epsilon, 4)}, {self.delta:.3g})-differential privacy.) "
            f"{PRIVATE}"
        )


@dataclass(frozen=True, slots=True, repr=False)
class LossStatement(ForOnePerson):
    """Statement to one person from the counts of that person's steps. Private: for that person alone.

    Attributes (private): person, the row; steps, how many were counted; least and epsilon, bounds on the person's
    epsilon, had noise, rates and norms been fixed in advance. Public: delta.
    """

    person: int
    steps: int
    least: float
    epsilon: float
    delta: float

    def __str__(self) -> str:
        return f"For person {self.person} alone: {self._said()} {PRIVATE}"

    def _said(self) -> str:
        if self.epsilon == inf:
            why = "too much was used, or an unknown amount"
            return f"there is no bound on what {self.steps} steps tell about you; {why}."
        if self.steps == 0:
            return "your data contributed nothing to any step that was counted."
        return (
            f"if the noise, the sampling rates and the size of your contribution to each of the {self.steps} steps had "
            "been fixed in advance, what was published would depend on your data with epsilon "
            f"{shown(self.epsilon, 4)} (and not less than {shown(self.least, 4, down=True)}), "
            f"except with probability {self.delta:.3g}. "
            "Where they depended on results published before, as in training, this number is an approximation and no "
            "guarantee. What is guaranteed then is the budget of the account that admitted the steps, if there was one."
        )

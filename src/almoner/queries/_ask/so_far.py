"""Public facts about an analyst's next question: the answers so far, and the prices of all questions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from almoner.ledger import Entry, Ledger
from almoner.queries._ask.answer import Answer, answer_of
from almoner.queries._questions.expected_width import same_question
from almoner.queries._questions.kinds_of import recorded

__all__ = ["GIVEN", "AnalystId", "SoFar", "answered"]

GIVEN = ("answered", "shared")
"""The kinds of entries that give an analyst an answer: the second stands for an earlier one, and charges nobody."""


class AnalystId(NamedTuple):
    """Who asks, and what for."""

    analyst: str
    purpose: str | None


@dataclass(frozen=True, slots=True)
class SoFar:
    """Public facts about a ledger for one analyst and purpose, as of its entry ``head``.

    Fields:
        left_by_period: units of each person's budget, at worst: what a person has left for this analyst's questions who
            paid the highest price of every question so far; by the first day of the period from which on it is so much.
        answers: the public parts of this analyst's answers for this purpose, in order.
    """

    head: str
    analyst: str
    purpose: str | None
    left_by_period: Mapping[str, int]
    answers: tuple[Mapping[str, Any], ...] = field(repr=False)

    @classmethod
    def read(cls, ledger: Ledger, analyst: str, purpose: str | None, before: "SoFar | None") -> "SoFar":
        """The state now; ``before``, if nothing was recorded since: else only what is new is read."""

        def work() -> SoFar:
            head, own = ledger.head, before
            if own is None or (own.analyst, own.purpose) != (analyst, purpose):
                own = SoFar("-1:", analyst, purpose, {"": 0}, ())
            if own.head == head:
                return own
            new = answered(ledger, analyst, purpose, after=int(own.head.partition(":")[0]))
            left = ledger.left_by_period(analyst, purpose)
            return cls(head, analyst, purpose, left, (*own.answers, *(entry.public for entry in new)))

        return ledger.snapshot(work)

    @property
    def left(self) -> int:
        """The least of ``left_by_period``."""
        return min(self.left_by_period.values())

    def left_in(self, periods: tuple[str, str] | None) -> int:
        """Units left at worst to a question about the periods from a first to a last one; to any, for None."""
        if periods is None:
            return self.left
        starts = [*self.left_by_period, "9999"]
        runs = zip(starts, starts[1:], self.left_by_period.values(), strict=False)
        return min(units for start, beyond, units in runs if start <= periods[1] and beyond > periods[0])

    def find(self, key: str) -> Entry | None:
        """The entry of the answer under a key, if it is one of these; without its number and hash."""
        found = next((public for public in self.answers if public["key"] == key), None)
        return None if found is None else Entry(-1, dict(found), "")

    def answer(self, key: str) -> Answer | None:
        """The answer under a key, if it is one of these."""
        found = self.find(key)
        return None if found is None else answer_of(found.public, recorded(found.public))

    def released(self, values: Mapping[str, Any]) -> Sequence[int] | None:
        """The noisy sums of the latest answer to the same question, with whatever clip and noise."""
        for public in reversed(self.answers):
            if same_question(public["question"], values):
                sums: Sequence[int] = public["released"]
                return sums
        return None


def answered(ledger: Ledger, analyst: str, purpose: str | None, *, after: int = -1) -> list[Entry]:
    """The entries of an analyst's answers for a purpose, in order, from the one after ``after`` on."""
    entries = ledger.entries(*GIVEN, after=after)
    return [e for e in entries if (e.public["analyst"], e.public["purpose"]) == (analyst, purpose)]

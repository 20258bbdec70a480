"""What an analyst's answers so far, and the prices of all questions, tell about the next one: public facts alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bursar.ledger import Ledger, left_at_worst
from bursar.queries._widths import same_question

__all__ = ["SoFar"]


@dataclass(frozen=True, slots=True)
class SoFar:
    """The state of a ledger for one analyst and purpose, at one head. Public.

    Fields:
        left: of each person's budget at worst, units.
        answers: the public parts of this analyst's answers for this purpose, in order.
    """

    head: str
    analyst: str
    purpose: str | None
    left: int
    answers: tuple[Mapping[str, Any], ...]

    @classmethod
    def read(cls, ledger: Ledger, analyst: str, purpose: str | None, before: "SoFar | None") -> "SoFar":
        """The state now; ``before``, if nothing was recorded since."""

        def work() -> SoFar:
            head = ledger.head
            if before is not None and (before.head, before.analyst, before.purpose) == (head, analyst, purpose):
                return before
            publics = (entry.public for entry in ledger.entries("answered"))
            own = tuple(public for public in publics if (public["analyst"], public["purpose"]) == (analyst, purpose))
            return cls(head, analyst, purpose, left_at_worst(ledger, analyst=analyst, purpose=purpose), own)

        return ledger.snapshot(work)

    def released(self, values: Mapping[str, Any]) -> Sequence[int] | None:
        """The noisy sums of the latest answer to the same question, with whatever clip and noise."""
        for public in reversed(self.answers):
            if same_question(public["question"], values):
                sums: Sequence[int] = public["released"]
                return sums
        return None

"""Stop when noisy answers say that too few people have budget left: the rule, and when people begin to be counted."""

from collections.abc import Callable

import numpy as np

from almoner import individual
from almoner._arrays import Array, Mask
from almoner.errors import ArgumentError
from almoner.mechanisms import Mechanism
from almoner.training._accounts.counters import SquareRoot
from almoner.training._accounts.stopping_accounts import ActiveAnswer, DropoutCount, StoppingAccounts
from almoner.training.stopping import Dropouts

__all__ = ["Counting", "StoppingRule", "by_square_root"]

Counting = Callable[[individual.Filter], StoppingAccounts]


class StoppingRule:
    """Accounts that are asked, from a planned step on, how many people are still active. Private, but for the answer.

    The price is booked in each account at once. The first ``planned`` steps are charged to the accounts directly, which
    everybody can pay; the steps after them are counted. A person who is out before that is in the first count.

    Args:
        people: private. The accounts.
        counting: makes the accounts that count, of these.
        planned: public. The steps that come before the first count.
        most_inactive: public. The number of people that may have dropped out; None: where the answer is yes or no.
        counts: public. How many steps may be counted.
        check: raises where the price cannot be counted elsewhere; then it is given back.

    Guarantee: as for ``Dropouts`` and ``StillActive``: each person who drops out is in the answers from one step on.
    Source: theory 5.8; docs/proofs/dropouts.md.
    """

    def __init__(
        self,
        people: individual.Filter,
        counting: Counting,
        *,
        planned: int,
        most_inactive: float | None,
        counts: int,
        check: Callable[[Mechanism], object] = lambda _price: None,
    ) -> None:
        counted = counting(people)
        if not isinstance(counted, StoppingAccounts) or counted.people is not people:
            raise ArgumentError("counting must make Dropouts or StillActive of the accounts that it is given")
        self._people, self._counted, self._left = people, counted, planned
        self._most_inactive = most_inactive
        try:
            check(counted.price)
            self._refuse_unfit(counts)
        except BaseException:
            counted.undo()
            raise

    def _refuse_unfit(self, counts: int) -> None:
        """Refuse a counting that cannot answer this rule's question so often."""
        counted, most_inactive = self._counted, self._most_inactive
        if counted.most is not None and counted.most < counts:
            raise ArgumentError(f"counting: {counted.most} counts are fewer than extra_steps={counts}")
        by_number = isinstance(counted.answer, DropoutCount)
        if by_number and most_inactive is None:
            raise ArgumentError("stop_when_inactive must be given where drops are counted: the share that ends it")
        if not by_number and most_inactive is not None:
            raise ArgumentError("stop_when_inactive: StillActive has its own number of people; leave the share out")

    @property
    def answer(self) -> DropoutCount | ActiveAnswer:
        """The latest answer. Public."""
        return self._counted.answer

    @property
    def reproducible(self) -> bool:
        """True if the caller gave the noise of the answers. Public."""
        return self._counted.reproducible

    def allowance(self, step: Mechanism) -> Array:
        """(n,) private: the largest norm each may still contribute to this step."""
        return (self._people if self._left > 0 else self._counted).allowance(step)

    def check(self, step: Mechanism) -> None:
        """Raise what ``charge`` would raise for a step, whoever is in it; nobody is charged."""
        (self._people if self._left > 0 else self._counted).check(step)

    def charge(self, step: Mechanism, norms: Array) -> Mask:
        """(n,) bool, private: charge each person, and from the planned step on ask the question anew."""
        self._left -= 1
        return (self._people if self._left >= 0 else self._counted).charge(step, norms)

    def says_stop(self) -> bool:
        """True if the latest answer ends the run. Public; never before the first count."""
        answer = self._counted.answer
        if self._left >= 0:
            return False
        if isinstance(answer, ActiveAnswer):
            return not answer.still
        return answer.count > float(self._most_inactive or 0)

    def close(self) -> None:
        """Give back what was booked for counts to those who are in none."""
        self._counted.close()


def by_square_root(counter: SquareRoot, noise: np.random.Generator | None) -> Counting:
    """Count those who dropped out with this counter."""
    return lambda people: Dropouts(people, counter, noise=noise)

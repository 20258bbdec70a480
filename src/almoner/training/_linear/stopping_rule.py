"""Stop when noisy answers say that too few people have budget left: the rule, and when people begin to be counted."""

from collections.abc import Callable

import numpy as np

from almoner import individual
from almoner.errors import ArgumentError
from almoner.mechanisms import Mechanism
from almoner.training._accounts.counters import SquareRoot
from almoner.training._accounts.stopping_accounts import ActiveAnswer, DropoutCount, StoppingAccounts
from almoner.training.stopping import Dropouts

__all__ = ["Counting", "by_square_root", "counted", "says_stop"]

Counting = Callable[[individual.Filter], StoppingAccounts]


def counted(
    people: individual.Filter,
    counting: Counting,
    *,
    planned: int,
    most_inactive: float | None,
    counts: int,
    check: Callable[[Mechanism], object],
) -> StoppingAccounts:
    """Accounts that are asked, after the planned steps, how many people are still active. Private, but for the answer.

    The price is booked in each account at once. The planned steps are charged to the accounts directly, which everybody
    can pay; the steps after them are counted. A person who is out before that is in the first count.

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
    stopping = counting(people)
    if not isinstance(stopping, StoppingAccounts) or stopping.people is not people:
        raise ArgumentError("counting must make Dropouts or StillActive of the accounts that it is given")
    try:
        check(stopping.price)
        if stopping.most is not None and stopping.most < counts:
            raise ArgumentError(f"counting: {stopping.most} counts are fewer than extra_steps={counts}")
        by_number = isinstance(stopping.answer, DropoutCount)
        if by_number and most_inactive is None:
            raise ArgumentError("stop_when_inactive must be given where drops are counted: the share that ends it")
        if not by_number and most_inactive is not None:
            raise ArgumentError("stop_when_inactive: StillActive has its own number of people; leave the share out")
    except BaseException:
        stopping.undo()
        raise
    stopping.begin_after(planned)
    return stopping


def says_stop(stopping: StoppingAccounts, most_inactive: float | None) -> bool:
    """True if the latest answer ends the run. Public; never before the first count."""
    answer = stopping.answer
    if not stopping.begun:
        return False
    return not answer.still if isinstance(answer, ActiveAnswer) else answer.count > float(most_inactive or 0)


def by_square_root(counter: SquareRoot, noise: np.random.Generator | None) -> Counting:
    """Count those who dropped out with this counter."""
    return lambda people: Dropouts(people, counter, noise=noise)

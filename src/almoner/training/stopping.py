"""When to stop: noisy counts of the people who dropped out, and "are at least so many still active?".

How many people have budget left is private, so it is counted with noise, and the noise is paid for from the same
accounts. To count the active people anew at each step would charge each of them at each step. But each person drops
out once at most, so a running count of *drops* is cheap: one person moves it by one unit, from one step on.

Both questions book their price in each account before the first step. What remains is the budget for training,
so each person who takes part has paid, and no total exceeds the budget, whatever else the accounts are used for.

Names and symbols
    steps     T   how many steps there may be; public
    drop          a person's first step at which that person cannot pay, or has almost nothing left; private

Source: theory 5.8; the proof is in docs/proofs/dropouts.md.
"""

from math import log

import numpy as np

from almoner import _audit_hook, _check, individual, mechanisms
from almoner.errors import ArgumentError, Unsupported
from almoner.training._accounts import ActiveAnswer, DropoutCount, SquareRoot, StoppingAccounts, Tree, rounded
from almoner.training._run.books import publish

__all__ = ["Dropouts", "SquareRoot", "StillActive", "Tree"]

LEAST = 0.01  # a person who can contribute less than this share of a step's sensitivity has dropped out


class Dropouts(StoppingAccounts):
    """Accounts per person, and after each step a noisy count of the people who have dropped out so far.

    Args:
        people: private. The accounts. The price of the counts is booked in each of them now; a person who cannot pay it
            is not counted and takes no part.
        counter: public. A Tree or a SquareRoot: how many steps there are at most, and the noise.
        noise: public. The generator of the noise; by default seeded by the system; else a card says: reproducible.
        least: public, in (0, 1). Who can contribute less than this share of a step's sensitivity has dropped out.

    Use it in place of the accounts: in ``descend``, or in a loop of your own. Public after each charge: ``count``,
    and its ``standard_error``. It cannot be saved: a new one books its price anew and counts drops from then on.

    Guarantee: all counts and everything else that the accounts paid for are together as private as the budget says,
        for adding or removing any one person.
    Source: theory 5.8 and 5.1; docs/proofs/dropouts.md.

    >>> from almoner import filters
    >>> people = individual.Filter(1000, filters.Gaussian(epsilon=1.0, delta=1e-5))
    >>> accounts = Dropouts(people, SquareRoot(steps=100, sigma=50.0), noise=np.random.default_rng(0))
    >>> step = mechanisms.Gaussian(sigma=10.0)
    >>> for _ in range(10):
    ...     active = accounts.charge(step, np.ones(1000))
    >>> bool(abs(accounts.count - 1000) < 4 * accounts.standard_error), round(accounts.standard_error, 1)
    (True, 66.9)
    """

    own_samples = True  # each count is a Gaussian round, whatever the samples were

    def __init__(
        self,
        people: individual.Filter,
        counter: Tree | SquareRoot,
        *,
        noise: np.random.Generator | None = None,
        least: float = LEAST,
    ) -> None:
        if not isinstance(counter, Tree | SquareRoot):
            raise ArgumentError(f"counter={counter!r} must be a Tree or a SquareRoot")
        if isinstance(people, individual.Filter) and not people.refundable(counter.mechanism):
            raise Unsupported(f"people: the price of counts has no exact amount in {people.budget!r}, to be given back")
        super().__init__(people, counter.mechanism, counter.mechanism.sensitivity, noise, least)
        self._counter, self._step, self._dropped, self._closed = counter, 0, 0, False
        self._errors = counter.errors(self._noise)
        self._count = 0.0

    @property
    def most(self) -> int:
        """The most counts that there may be. Public."""
        return self._counter.steps

    @property
    def count(self) -> float:
        """The noisy count after the last step; 0 before the first. Public."""
        return self._count

    @property
    def standard_error(self) -> float:
        """The standard deviation of ``count``. Public."""
        return self._counter.standard_error(self._step) if self._step else 0.0

    @property
    def answer(self) -> DropoutCount:
        """The latest count. Public."""
        return DropoutCount(self.count, self.standard_error, self.price)

    def close(self) -> individual.Filter:
        """End the counting, and give the accounts; a person who never dropped out gets back what was booked."""
        with self._lock:
            if not self._closed:
                if self._people.spent().shape[0] != self._inside.shape[0]:
                    raise ArgumentError("people: nobody may join while drops are counted")
                self._closed = True
                self._people.refund(self._price, self._inside)
                self._inside = self._xp.zeros_like(self._inside)  # nothing is given back twice
        return self._people

    def _refuse_more(self) -> None:
        if self._closed:
            raise ArgumentError("the counting was closed")
        if self._step == self._counter.steps:
            raise ArgumentError(f"all {self._counter.steps} counts that were paid for are released")

    def _terms(self) -> str:
        return repr(self._counter)

    def _noisy_answer(self, dropped: int, active: int) -> float:  # noqa: ARG002 - StillActive needs it
        self._step += 1
        self._dropped += dropped
        return publish(
            lambda: rounded(self._dropped + next(self._errors), self._counter.sigma),
            exact=float(self._dropped),
            mechanism=self._price,
            part=_audit_hook.Part(self, "counter"),
        )

    def _release(self, answer: float) -> None:
        self._count = answer


class StillActive(StoppingAccounts):
    """Accounts per person, and after each step the answer to "are at least so many people still active?".

    Args:
        people: private. The accounts, with a budget that takes pure mechanisms (Zcdp, Renyi, ...). The whole price is
            booked in each of them now; a person who cannot pay it is not counted and takes no part.
        at_least: public. So many people.
        epsilon: public, > 0. The price, whatever the number of steps.
        noise: public. As for ``Dropouts``.
        least: public, in (0, 1). As for ``Dropouts``.

    Public after each charge: ``still``. Once it is False it remains so, and no more is asked.

    Guarantee: all answers together are epsilon-DP, whatever else is released in between, for adding or removing any
        one person; with everything else that the accounts paid for they are as private as the budget says.
    Source: theory 5.8; Dwork & Roth (2014), Alg. 1; for queries that all move one way Lyu, Su & Li (2017), Thm 5; for
        other releases in between Vadhan & Wang (2021). docs/proofs/dropouts.md.
    """

    own_samples = False  # its price is not a sum of prices of rounds

    def __init__(
        self,
        people: individual.Filter,
        *,
        at_least: float,
        epsilon: float,
        noise: np.random.Generator | None = None,
        least: float = LEAST,
    ) -> None:
        _check.number(at_least=at_least)
        _check.positive(epsilon=epsilon)
        super().__init__(people, mechanisms.Pure(epsilon), True, noise, least)
        self._at_least, self._scale = at_least, 2.0 / epsilon
        self._threshold = at_least + self._noise.laplace(0.0, self._scale)  # secret
        self._still = True

    @property
    def still(self) -> bool:
        """True if at least so many were active, as far as noisy answers tell. Public."""
        return self._still

    @property
    def answer(self) -> ActiveAnswer:
        """The latest answer. Public."""
        return ActiveAnswer(self._still, self.price)

    def margin(self, *, steps: int, beta: float) -> float:
        """With probability 1 - beta every one of so many answers is right but for this number of people. Public."""
        _check.whole(1, steps=steps)
        _check.between(0, 1, beta=beta)
        return self._scale * (log(2 / beta) + log(2 * steps / beta))

    def _terms(self) -> str:
        return f"{self._at_least!r}, {self._price!r}"

    def _noisy_answer(self, dropped: int, active: int) -> bool:  # noqa: ARG002 - Dropouts needs it
        return self._still and publish(
            lambda: bool(active + self._noise.laplace(0.0, self._scale) >= self._threshold),
            exact=float(active),
            mechanism=self._price,
            part=_audit_hook.Part(self, "threshold", one_way=True),
        )

    def _release(self, answer: float) -> None:
        self._still = bool(answer)

"""Steps of fixed batches with correlated noise: who contributes what, what it commits each person to, and the noise.

Names and symbols
    m, j          number of batches, and a batch; batch j takes part in steps j, j + m, j + 2 m, ...; m is public
    turn          how often a batch has taken part before; public
    past          (n, turns) the norms that each person contributed, by turn; private
    most          the largest price of a contribution in any step, and so the sensitivity of every step; public

Source: theory 5.11; docs/proofs/correlated-noise.md
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import floor, inf, nextafter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from almoner import _check, filters, individual
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import AccountsPerPerson
from almoner.mechanisms import Gaussian, Mechanism, Repeated
from almoner.training._records import Records
from almoner.training._run.books import Opened
from almoner.training._run.samplings import Beginning, Model, Sampling, Sums, Turnout, refuse_others
from almoner.training._run.settings import Picked
from almoner.training.correlated import Banded, BandedInverse, PrefixSums
from almoner.training.correlated._factor import Factor, Noise, Pattern, largest_norm, price
from almoner.training.correlated._kinds import FixedBatches
from almoner.training.gradients._batches import Column

Array = NDArray[np.float64]
Correlation = Banded | BandedInverse | PrefixSums
ADDITIVE = (filters.Gaussian, filters.Zcdp, filters.RenyiOrder, filters.RenyiCurve)
"""The budgets whose totals of Gaussian rounds add up, so that later rows may be paid in advance."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """Batches, factor and what they cost a person who contributes the clip each time. Public."""

    batches: FixedBatches
    noise: Correlation
    factor: Factor
    count: int
    patterns: tuple[Pattern, ...]
    most: float  # the sensitivity of each step
    together: float  # the sensitivity of the whole run

    def describe(self) -> str:
        """Batches, noise and the factor in force: a resumed run must have the same."""
        digest, of = blake2b(self.factor.parameters().tobytes(), digest_size=8).hexdigest(), self.batches
        named = f"FixedBatches(size={of.size!r}, order={of.order!r}, key={of.key!r})"
        return f"{named}, {self.noise!r}, {self.count} batches, factor {digest}"


def batch_plan(sampling: FixedBatches, *, steps: int | None, people: float, max_grad_norm: float) -> BatchPlan:
    """The plan of a run with fixed batches of a public number of people; ArgumentError: arguments that do not fit."""
    noise = Banded(1) if sampling.noise is None else sampling.noise
    _check.whole(1, steps=steps)
    steps, count = int(steps or 1), sampling.count(people)
    if isinstance(noise, Banded) and noise.band > count:
        raise ArgumentError(
            f"band={noise.band} must be at most {count}, the number of batches: people would come before their last "
            "place is over; take a smaller band or smaller batches"
        )
    factor = noise.factor(steps)
    patterns = tuple(Pattern(factor, range(j, steps, count), max_grad_norm) for j in range(min(count, steps)))
    most = max(pattern.most(turn) for pattern in patterns for turn in range(len(pattern.places)))
    most = nextafter(most, inf) if most == 1 else most  # questions have sensitivity 1
    return BatchPlan(sampling, noise, factor, count, patterns, most, max(each.together() for each in patterns))


def noise_for(plan: BatchPlan, picked: Picked, *, given: float | None, clip: float) -> Picked:
    """The budget, and the noise for the plan as one round; Unsupported where it can't pay later rows in advance."""
    if not isinstance(picked.budget, ADDITIVE):
        raise Unsupported(
            f"budget={picked.budget!r}: FixedBatches needs a filters.Gaussian, Zcdp, RenyiOrder or RenyiCurve"
        )
    if given is not None:
        return picked
    return picked._replace(noise_multiplier=picked.noise_multiplier * (plan.together / clip) * (1 + 1e-12))


class BatchContributions(Sampling):
    """People's contributions to steps of fixed batches, whose plan is public, and the noise of these steps.

    Guarantee: each person's contribution is a function of that person's data, past outputs and own account; its price,
        for all rows of the mechanism that it is in, is charged before the first of them is released. Without individual
        accounts all are charged the worst case of all steps, before the first.
    Source: theory 5.11; docs/proofs/correlated-noise.md
    """

    def __init__(self, run: Beginning) -> None:
        plan: BatchPlan = run.plan
        self._plan, self._clip, self._individual = plan, run.clip, run.individual
        self._spend_remainder = plan.batches.spend_remainder
        self._pace = plan.batches.pace if self._spend_remainder else 0.0
        seed = run.seed
        key = None if seed is None else int.from_bytes(np.random.default_rng([seed, 1]).bytes(16), "little")
        self.noise: Noise = Noise(plan.factor, run.numbers, key=key)
        self._batch = _batches(plan, run.records)
        self._charged, self._done = 0, 0
        turns = max(len(pattern.places) for pattern in plan.patterns)
        self._past: Array = np.zeros((run.people, turns))
        self._next: tuple[Any, int, Array] | None = None

    def contribute(self, model: Model, turnout: Turnout, accounts: AccountsPerPerson, step: Mechanism) -> Sums:
        number = self._plan.factor.steps - turnout.left
        if number != self.noise.step:
            raise ArgumentError(f"step={number!r}: the noise is that of step {self.noise.step}; nothing was released")
        members = np.flatnonzero(self._batch == number % self._plan.count)
        pattern, turn = self._plan.patterns[number % self._plan.count], number // self._plan.count
        own, cross = pattern.own(turn), pattern.cross(turn, self._past[members, :turn])
        most = self._allowed(accounts, step, pattern, turn, members, cross)
        clip = most if self._spend_remainder else np.full(len(members), self._clip)
        made = model.clipped_sum(turnout.records.of(members), clip, most)
        self._charged = number + 1
        prices = np.zeros(len(self._batch))
        prices[members] = price(own, cross, made.clipped)
        weights = np.zeros(len(self._batch))
        weights[members] = made.weights
        if self._individual:
            refuse_others(weights, np.asarray(accounts.charge(step, prices), dtype=bool))
        elif number == 0:  # for the whole run
            accounts.charge(Gaussian(step.sigma, self._plan.together), np.zeros_like(prices))  # type: ignore[attr-defined]
        elif isinstance(accounts, Opened):
            accounts.paid = True
        self._next = members, turn, np.where(made.weights > 0, made.clipped, 0.0)
        return made.sums

    def released(self) -> None:
        if self._next is not None:
            members, turn, given = self._next
            self._past[members, turn], self._done = given, self._charged

    def _allowed(
        self, accounts: AccountsPerPerson, step: Mechanism, pattern: Pattern, turn: int, members: Any, cross: Array
    ) -> Array:
        """(members,) the largest norm that each member may contribute."""
        if not self._individual:
            return np.full(len(members), self._clip)
        now = pattern.most(turn)
        left = sum((pattern.most(later) / now) ** 2 for later in range(turn, len(pattern.places)))
        shared = 1 + floor(self._pace * (left - 1) + 1e-6)
        paid = np.asarray(accounts.allowance(Repeated(step, shared) if shared > 1 else step), dtype=np.float64)
        return np.minimum(largest_norm(pattern.own(turn), cross, paid[members]), self._clip)

    def state(self) -> dict[str, Any]:
        """Contributions in the steps that are done, and the SECRET keys; ``afresh``: a charged one may be released."""
        keys = [[first, None if key is None else str(key)] for first, key in self.noise.keys]
        return {"past": self._past, "keys": keys, "step": self._done, "afresh": self._charged > self._done}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; ``write_off`` decides with which noise."""
        self._past = np.array(state["past"])
        self._kept = [(int(first), None if key is None else int(key)) for first, key in state["keys"]]
        self._charged = self._done = int(state["step"])
        self._afresh = bool(state["afresh"])

    def write_off(self, unseen: Sequence[Any], book: Any) -> None:
        """Go on with noise that was not used; ``unseen`` is what may have been released since.

        Without it the noise goes on, with a fresh key. With it those who may have contributed are charged the most that
        it can have cost them, and a new mechanism begins: of rows that hold none of the contributions so far. So it
        does after a step that was charged and not done.
        """
        number, afresh = self._done, self._afresh
        for announced in unseen:
            mechanism, norms = announced.mechanism, None
            if isinstance(mechanism, Gaussian) and mechanism.sensitivity == self._plan.most:  # not a question
                norms = np.where(self._batch == number % self._plan.count, self._plan.most, 0.0)
                number, afresh = number + 1, True
            self._refuse_shared(book, norms is not None)
            book.write_off(mechanism, norms=norms)
        self._refuse_shared(book, afresh)
        self._past = np.zeros_like(self._past) if afresh else self._past
        self.noise.go_on(self._kept, self._done, afresh=afresh)

    def begin_afresh(self, step: int) -> None:
        """Take a step of all processes next, as a new mechanism: what each has saved may be of different steps."""
        self._past, self._charged, self._done = np.zeros_like(self._past), step, step
        self.noise.go_on(self._kept, step, afresh=True)

    @staticmethod
    def _refuse_shared(book: Any, steps: bool) -> None:
        if steps and not isinstance(book.accounts, individual.Filter):
            raise Unsupported("resume: steps of batches need accounts per person")


def _batches(plan: BatchPlan, records: Records) -> NDArray[np.int64]:
    """(n,) private: the batch of each person, by the person's id, or by all of the person's records."""
    if records.ids is not None:
        return plan.batches.of_ids(records.ids, count=plan.count)
    columns = (*records.inputs, records.targets)
    if any(isinstance(part, Column) for part in columns):
        raise Unsupported("batches= of a data set that is loaded as needed go by people's ids: give people=")
    people = None if records.people is None else records.people.numpy()
    parts = [part.detach().cpu().contiguous().reshape(len(part), -1).view(torch.uint8).numpy() for part in columns]
    return plan.batches.of_records(parts, people, count=plan.count, n=records.person_count)

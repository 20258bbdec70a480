"""Steps of fixed batches with correlated noise: who contributes what, what it commits each person to, and the noise.

Names and symbols
    m, j          number of batches, and a batch; batch j takes part in steps j, j + m, j + 2 m, ...; m is public
    turn          how often a batch has taken part before; public
    past          (n, turns) the norms that each person contributed, by turn; private
    most          the largest price of a contribution in any step, and so the sensitivity of every step; public

Source: theory 5.11; docs/proofs/correlated-noise.md
"""

from dataclasses import dataclass, replace
from hashlib import blake2b
from math import floor, inf, nextafter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from almoner import _audit_hook, _check, filters, individual
from almoner.errors import ArgumentError, Unsupported
from almoner.individual import AccountsPerPerson
from almoner.mechanisms import Gaussian, Mechanism, Repeated
from almoner.training._accounts.run_accounts import TrainingAccounts
from almoner.training._records.records import Records
from almoner.training._run.recommended_budget import Recommended
from almoner.training.correlated import Banded, BandedInverse, Factor, FixedBatches, Noise, PrefixSums
from almoner.training.correlated._charges import Pattern, largest_norm, price
from almoner.training.gradients import Gradients
from almoner.training.gradients._batches import Column

__all__ = ["BatchContributions", "BatchPlan", "Correlation", "batch_plan", "noise_for"]

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
    most: float
    """The sensitivity of each step."""
    together: float
    """The sensitivity of the whole run."""

    def describe(self) -> str:
        """Batches, noise and the factor in force: a resumed run must have the same."""
        digest = blake2b(self.factor.parameters().tobytes(), digest_size=8).hexdigest()
        return f"{self.batches!r}, {self.noise!r}, {self.count} batches, factor {digest}"


def batch_plan(
    batches: FixedBatches | None,
    noise: Correlation | None,
    *,
    steps: int | None,
    people: float,
    max_grad_norm: float,
    **others: object,
) -> BatchPlan | None:
    """The plan of a run with fixed batches; None where none are asked for.

    Args:
        people: public: their number.
        others: by name, what is not done together with fixed batches: each must be None, False or 0.

    Raises:
        ArgumentError, Unsupported: the arguments do not fit together.
    """
    if batches is None:
        if noise is not None:
            raise ArgumentError("noise needs batches=FixedBatches(...): it says who takes part where")
        return None
    if not isinstance(batches, FixedBatches):
        raise ArgumentError(f"batches={batches!r} must be a training.correlated.FixedBatches")
    noise = Banded(1) if noise is None else noise
    if not isinstance(noise, Correlation):
        raise ArgumentError(f"noise={noise!r} must be Banded, BandedInverse or PrefixSums")
    _check.whole(1, steps=steps)
    for name, value in others.items():
        if value:
            raise Unsupported(f"{name} is not done together with batches=")
    steps, count = int(steps or 1), batches.count(people)
    if isinstance(noise, Banded) and noise.band > count:
        raise ArgumentError(
            f"band={noise.band} must be at most {count}, the number of batches: people would come before their last "
            "place is over; take a smaller band or smaller batches"
        )
    factor = noise.factor(steps)
    patterns = tuple(Pattern(factor, range(j, steps, count), max_grad_norm) for j in range(min(count, steps)))
    most = max(pattern.most(turn) for pattern in patterns for turn in range(len(pattern.places)))
    most = nextafter(most, inf) if most == 1 else most  # questions have sensitivity 1
    return BatchPlan(batches, noise, factor, count, patterns, most, max(each.together() for each in patterns))


def noise_for(plan: BatchPlan | None, chosen: Recommended, *, given: float | None, clip: float) -> Recommended:
    """The budget, and the noise as a multiple of the clip where it was searched for the plan as one round.

    Raises:
        Unsupported: later rows can't be paid in advance with this budget.
    """
    if plan is None:
        return chosen
    if not isinstance(chosen.budget, ADDITIVE):
        raise Unsupported(
            f"budget={chosen.budget!r}: batches= needs a filters.Gaussian, Zcdp, RenyiOrder or RenyiCurve"
        )
    if given is not None:
        return chosen
    return replace(chosen, noise_multiplier=chosen.noise_multiplier * (plan.together / clip) * (1 + 1e-12))


class BatchContributions:
    """People's contributions to steps of fixed batches, and the noise of these steps.

    Args:
        plan: public.
        records: private; they say which batch each person is in.
        clip: public.
        individual: whether each person is charged for their own contributions; otherwise all for the worst case of all
            steps, before the first.
        spend_remainder, pace: as for ``Trainer``.
        noise: SECRET.

    Guarantee: each person's contribution is a function of that person's data, past outputs and own account; its price,
        for all rows of the mechanism that it is in, is charged before the first of them is released.
    Source: theory 5.11; docs/proofs/correlated-noise.md
    """

    own_samples = False

    def __init__(
        self,
        plan: BatchPlan,
        records: Records,
        *,
        clip: float,
        individual: bool,
        spend_remainder: bool,
        pace: float,
        noise: Noise,
    ) -> None:
        self._plan, self._clip, self._individual = plan, clip, individual
        self._spend_remainder, self._pace = spend_remainder, pace if spend_remainder else 0.0
        self._noise = noise
        self._batch = _batches(plan, records)
        self._charged = 0
        turns = max(len(pattern.places) for pattern in plan.patterns)
        self._past: Array = np.zeros((records.person_count, turns))

    @property
    def noise(self) -> "Rows":
        """The noise of the steps, to be added to their sums in order. SECRET."""
        return Rows(self._noise)

    def charge_and_sum(
        self, gradients: Gradients, records: Records, accounts: AccountsPerPerson, step: Gaussian, steps_left: int
    ) -> list[Tensor]:
        """Charge the people of the next batch, and give the private sum of their clipped gradients."""
        number = self._plan.factor.steps - steps_left
        if number != self._noise.step:
            raise ArgumentError(f"step={number!r}: the noise is that of step {self._noise.step}; nothing was released")
        members = np.flatnonzero(self._batch == number % self._plan.count)
        pattern, turn = self._plan.patterns[number % self._plan.count], number // self._plan.count
        own, cross = pattern.own(turn), pattern.cross(turn, self._past[members, :turn])
        allowed = self._allowed(accounts, step, pattern, turn, members, cross)
        clipped_norms = np.full(len(members), np.nan)
        weights = np.zeros(len(members))

        def weigh(rows: Tensor, norms: Tensor) -> Tensor:
            people, norm = rows.numpy(), norms.numpy()
            most = allowed[people]
            clipped = np.minimum(norm, most if self._spend_remainder else self._clip)  # NaN stays NaN
            weight = np.divide(clipped, norm, out=np.zeros_like(norm), where=(norm > 0) & (clipped <= most))
            clipped_norms[people], weights[people] = clipped, weight
            return torch.from_numpy(weight)

        inputs, targets, new_numbers = records.select_people(torch.from_numpy(members))
        sums, _ = gradients.sums(inputs, targets, weigh, people=new_numbers)
        self._charged = number + 1
        self._charge(accounts, step, number, members, price(own, cross, clipped_norms), weights)
        self._past[members, turn] = np.where(weights > 0, clipped_norms, 0.0)
        return sums

    def _charge(
        self, accounts: AccountsPerPerson, step: Gaussian, number: int, members: Any, prices: Array, weights: Array
    ) -> None:
        """Charge the members for their contributions; or all people for the whole run, before its first step."""
        charged = np.zeros(len(self._batch))
        if self._individual:
            charged[members] = prices
        elif number == 0:
            step = Gaussian(step.sigma, self._plan.together)
        else:
            return
        active = np.asarray(accounts.charge(step, charged), dtype=bool)
        if self._individual and np.any((weights > 0) & ~active[members]):
            raise Unsupported("accounts: a person who kept to the allowance was refused; nothing was released")

    def _allowed(
        self, accounts: AccountsPerPerson, step: Gaussian, pattern: Pattern, turn: int, members: Any, cross: Array
    ) -> Array:
        """(members,) the largest norm that each member may contribute."""
        if not self._individual:
            return np.full(len(members), self._clip)
        now = pattern.most(turn)
        left = sum((pattern.most(later) / now) ** 2 for later in range(turn, len(pattern.places)))
        shared = 1 + floor(self._pace * (left - 1) + 1e-6)
        paid = np.asarray(accounts.allowance(Repeated(step, shared) if shared > 1 else step), dtype=np.float64)
        return np.minimum(largest_norm(pattern.own(turn), cross, paid[members]), self._clip)

    def to_fields(self, done: int) -> dict[str, Any]:
        """People's contributions in the steps that are done, and the SECRET keys of the noise; for a checkpoint.

        A step that people were charged for, and that is not done, may have been released: ``afresh`` says so.
        """
        keys = [[first, None if key is None else str(key)] for first, key in self._noise.keys]
        afresh = self._charged > done
        return {"past": torch.from_numpy(self._past.copy()), "keys": keys, "step": done, "afresh": afresh}

    def restore(self, fields: dict[str, Any], unseen: list[Mechanism], accounts: TrainingAccounts) -> None:
        """Go on from a checkpoint; ``unseen`` is what may have been released since.

        Without it the noise goes on, with a fresh key. With it those who may have contributed are charged the most that
        it can have cost them, and a new mechanism begins: of rows that hold none of the contributions so far. So it
        does after a step that was charged and not done.
        """
        step, number = int(fields["step"]), int(fields["step"])
        afresh = bool(fields.get("afresh", False))
        if afresh and not isinstance(accounts.people, individual.Filter):
            raise Unsupported("resume: steps of batches need accounts per person")
        for mechanism in unseen:
            if not isinstance(mechanism, Gaussian) or mechanism.sensitivity != self._plan.most:
                accounts.charge_worst_case(mechanism)  # a question
                continue
            norms = np.where(self._batch == number % self._plan.count, self._plan.most, 0.0)
            if not isinstance(accounts.people, individual.Filter):
                raise Unsupported("resume: steps of batches need accounts per person")
            accounts.people.write_off(mechanism, norms)
            number, afresh = number + 1, True
        self._past = np.zeros_like(self._past) if afresh else fields["past"].numpy().copy()
        keys = [(int(first), None if key is None else int(key)) for first, key in fields["keys"]]
        self._charged = step
        self._noise.go_on(keys, step, afresh=afresh)


def _batches(plan: BatchPlan, records: Records) -> NDArray[np.int64]:
    """(n,) private: the batch of each person, by the person's id, or by all of the person's records."""
    if records.ids is not None:
        return plan.batches.of_ids(records.ids, count=plan.count)
    columns = (*records.inputs, records.targets)
    if any(isinstance(part, Column) for part in columns):
        raise Unsupported("batches= of a data set that is loaded as needed go by people's ids: give people=")
    people = None if records.people is None else records.people.numpy()
    return plan.batches.of_records(
        [_bytes_of(part) for part in columns], people, count=plan.count, n=records.person_count
    )


def _bytes_of(part: Tensor) -> NDArray[np.uint8]:
    """(records, bytes) what each record is stored as; also of numbers that NumPy does not have."""
    return part.detach().cpu().contiguous().reshape(len(part), -1).view(torch.uint8).numpy()


class Rows:
    """The rows of correlated noise, as a generator of normal numbers gives them. SECRET."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise

    def part(self) -> _audit_hook.Part:
        """Which row of which factor comes next: public."""
        return _audit_hook.Part(self._noise, "rows", factor=self._noise.factor, step=self._noise.step)

    def normal(self, mean: float, sigma: float, size: int) -> Array:
        """The next row, times sigma."""
        row = self._noise.next()
        if len(row) != size:
            raise ArgumentError(f"size={size!r} must be that of the noise, {len(row)}")
        return mean + sigma * row

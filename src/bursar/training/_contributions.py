"""Who contributes what to one step: everybody, or a Poisson sample of the people.

A pass gives the private sum of what people contribute to a step. Everybody has paid for it when it is given.

Names and symbols
    step          what one step releases; public
    allowance     (n,) the largest norm that each person may still contribute; private
    bounds        (n,) what each person's contribution is clipped to if that person is sampled; private
    norms         (n,) L2 norm of each person's gradient; private

Source: theory 5.1 to 5.3 (everybody), 5.6 (Poisson samples)
"""

from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bursar.errors import Unsupported
from bursar.training.gradients import Gradients

__all__ = ["FullBatch", "Poisson", "Records"]

Array = NDArray[np.float64]


class Records:
    """Everybody's records, private: inputs, targets and whose each record is.

    Args:
        inputs: tensors with the records on the first axis.
        targets: a tensor with the records on the first axis.
        people: (records,) whole numbers from 0, or None where each record is a person.
        at_least: so many people there are at least; the last of them may have no records.
    """

    def __init__(self, inputs: tuple[Tensor, ...], targets: Tensor, people: Tensor | None, at_least: int = 0) -> None:
        people = None if people is None else people.cpu()
        self.inputs, self.targets, self.people = inputs, targets, people
        self.count = len(inputs[0])
        if people is not None:
            self.count = max(at_least, int(people.max()) + 1 if len(people) else 0)
            self._order = torch.argsort(people, stable=True)
            self._numbers = torch.bincount(people, minlength=self.count)
            self._starts = torch.cumsum(self._numbers, 0) - self._numbers

    def fingerprint(self) -> str:
        """Private. Tells whether these are the same records of the same people in the same order."""
        print_of = blake2b(digest_size=16)
        for part in (*self.inputs, self.targets, self.people):
            if part is not None:
                print_of.update(f"{part.dtype} {tuple(part.shape)}".encode())
                print_of.update(part.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return print_of.hexdigest()

    def of(self, rows: Tensor) -> tuple[tuple[Tensor, ...], Tensor, Tensor | None]:
        """The records of some people, who are numbered anew in the order of ``rows``."""
        if self.people is None:
            return tuple(part[rows] for part in self.inputs), self.targets[rows], None
        numbers = self._numbers[rows]
        local = torch.repeat_interleave(torch.arange(len(rows)), numbers)
        within = torch.arange(int(numbers.sum())) - (torch.cumsum(numbers, 0) - numbers)[local]
        records = self._order[self._starts[rows][local] + within]
        return tuple(part[records] for part in self.inputs), self.targets[records], local


class FullBatch:
    """Everybody contributes to every step.

    Args:
        spend_remainder: clip each person's gradient to what that person can still pay (Feldman & Zrnic, Alg. 8);
            False: who cannot pay for the gradient clipped to the sensitivity is left out (Alg. 3).

    Guarantee: each person's contribution is a function of that person's data, past outputs and own account; it has at
        most the norm that is charged; who was not admitted contributes nothing.
    Source: theory 5.1 to 5.3.
    """

    def __init__(self, *, spend_remainder: bool = True) -> None:
        self._spend_remainder = spend_remainder

    def sums(self, gradients: Gradients, records: Records, accounts: Any, step: Any) -> list[Tensor]:
        """The private sum of this step's contributions."""
        allowance = np.asarray(accounts.allowance(step), dtype=np.float64)
        given, weights_of = np.full(records.count, np.nan), np.zeros(records.count)

        def weigh(rows: Tensor, norms: Tensor) -> Tensor:
            people = rows.numpy()
            norm = norms.numpy()
            most = allowance[people]
            clipped = np.minimum(norm, most if self._spend_remainder else step.sensitivity)  # NaN stays NaN
            weights = np.divide(clipped, norm, out=np.zeros_like(norm), where=(norm > 0) & (clipped <= most))
            given[people], weights_of[people] = clipped, weights
            return torch.from_numpy(weights)

        sums, _ = gradients.sums(records.inputs, records.targets, weigh, people=records.people)
        active = np.asarray(accounts.charge(step, given), dtype=bool)
        if np.any((weights_of > 0) & ~active):
            raise Unsupported("accounts: somebody was refused who kept to the allowance; nothing was released")
        return sums


class Poisson:
    """Each person is sampled independently in each step, and pays in every step, sampled or not.

    Each person's bound is that person's gradient norm when it was last seen, times ``slack``, at most the sensitivity.
    It is seen in a refresh of everybody's bounds, every ``refresh_every`` steps.

    Args:
        refresh_every: public. How many steps bounds are kept for.
        slack: public, > 0. A bound is this much larger than the norm was.
        individual: whether people have bounds of their own; otherwise everybody's bound is the sensitivity.
        own_past: whether norms of a person's own sampled gradients may be used instead of a refresh: only where the
            budget's proof covers it (theory 5.6).
        coins: draws who is sampled.

    Guarantee: a person's bound is a function of that person's own data and past outputs and, for budgets of one order,
        all orders or zCDP, of that person's own past samples; it is fixed before the step's coin is tossed; the
        person's contribution has at most that norm, and the person is charged for it at every step.
    Source: theory 5.6.
    """

    def __init__(
        self, *, refresh_every: int, slack: float, individual: bool, own_past: bool, coins: np.random.Generator
    ) -> None:
        self._every, self._slack, self._individual, self._coins = refresh_every, slack, individual, coins
        self.own_past = own_past
        self._bounds: Array | None = None
        self._seen: Array | None = None
        self._steps = 0

    def sums(self, gradients: Gradients, records: Records, accounts: Any, step: Any) -> list[Tensor]:
        """The private sum of this step's contributions."""
        bounds = self._current(gradients, records, accounts, step)
        active = np.asarray(accounts.charge(step, bounds), dtype=bool)
        sampled = active & (self._coins.random(records.count) < step.sample_rate) & (bounds > 0)
        rows = torch.from_numpy(np.flatnonzero(sampled))
        inputs, targets, people = records.of(rows)
        of_rows, seen = bounds[rows.numpy()], self._seen

        def weigh(chosen: Tensor, norms: Tensor) -> Tensor:
            norm = norms.numpy()
            clipped = np.minimum(norm, of_rows[chosen.numpy()])
            weights = np.divide(clipped, norm, out=np.zeros_like(norm), where=norm > 0)
            if seen is not None:
                seen[rows[chosen].numpy()] = norm
            return torch.from_numpy(weights)

        return gradients.sums(inputs, targets, weigh, people=people)[0]

    def _current(self, gradients: Gradients, records: Records, accounts: Any, step: Any) -> Array:
        """Everybody's bounds for this step."""
        if not self._individual:
            return np.full(records.count, step.sensitivity)
        if self._bounds is None or self._steps % self._every == 0:
            self._bounds = self._refreshed(gradients, records, accounts, step)
        self._steps += 1
        return self._bounds

    def _refreshed(self, gradients: Gradients, records: Records, accounts: Any, step: Any) -> Array:
        norms = np.full(records.count, np.nan) if self._seen is None else self._seen
        missing = torch.from_numpy(np.flatnonzero(np.isnan(norms)))
        inputs, targets, people = records.of(missing)
        found = gradients.norms(inputs, targets, people=people).numpy()
        norms[missing.numpy()] = np.pad(found, (0, len(missing) - len(found)))  # the last may have no record: zero
        bounds: Array = np.minimum(norms * self._slack, step.sensitivity)  # NaN: out until the next refresh
        self._seen = np.full(records.count, np.nan) if self.own_past else None
        return bounds

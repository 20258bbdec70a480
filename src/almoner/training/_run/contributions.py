"""People's contributions to one step, and their charges: all people, or a Poisson sample of them.

Names and symbols
    step          what one step releases; public
    allowance     (n,) the largest norm that each person may still contribute; private
    bounds        (n,) what each person's contribution is clipped to if that person is sampled; private
    norms         (n,) L2 norm of each person's gradient; private

Source: theory 5.1 to 5.3 (all people), 5.6 (Poisson samples)
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from almoner import _audit_hook, filters
from almoner.errors import Unsupported
from almoner.individual import AccountsPerPerson
from almoner.mechanisms import Gaussian, SampledGaussian
from almoner.training._accounts.pace import paced_allowance
from almoner.training._records.records import Records
from almoner.training._run.fixed_batches import BatchContributions
from almoner.training._run.settings import Settings
from almoner.training.correlated import Noise
from almoner.training.gradients import Gradients

__all__ = ["FullBatch", "Poisson", "contributions"]

OWN_SAMPLES = (filters.RenyiOrder, filters.RenyiCurve, filters.Zcdp)
"""The budgets for which bounds may use a person's own past samples (theory 5.6)."""

Array = NDArray[np.float64]
Step = Gaussian | SampledGaussian


class FullBatch:
    """Every person contributes to every step.

    Args:
        spend_remainder: clip each person's gradient to what that person can still pay (Feldman & Zrnic, Alg. 8);
            False: a person who cannot pay for the gradient clipped to the sensitivity is left out (Alg. 3).
        pace: how evenly what is left is spread over the steps that are left, if the remainder is spent.

    Guarantee: each person's contribution is a function of that person's data, past outputs and own account; it has at
        most the norm that is charged; a person who was not admitted contributes nothing.
    Source: theory 5.1 to 5.3.
    """

    def __init__(self, *, spend_remainder: bool = True, pace: float = 0.0) -> None:
        self._spend_remainder, self._pace = spend_remainder, pace if spend_remainder else 0.0
        self.were_clipped: Array | None = None
        """(n,) private: 1 for each person whose gradient was longer than the clip in the last step, else 0."""

    def charge_and_sum(
        self, gradients: Gradients, records: Records, accounts: AccountsPerPerson, step: Step, steps_left: int
    ) -> list[Tensor]:
        """Charge each person for this step, and give the private sum of their clipped gradients."""
        allowance = paced_allowance(accounts, step, steps_left, self._pace)
        clipped_norms, weights = np.full(records.person_count, np.nan), np.zeros(records.person_count)
        longer = np.zeros(records.person_count)

        def weigh(rows: Tensor, norms: Tensor) -> Tensor:
            people, norm = rows.numpy(), norms.numpy()
            most = allowance[people]
            clipped = np.minimum(norm, most if self._spend_remainder else step.sensitivity)  # NaN stays NaN
            weight = np.divide(clipped, norm, out=np.zeros_like(norm), where=(norm > 0) & (clipped <= most))
            clipped_norms[people], weights[people] = clipped, weight
            longer[people] = np.where(np.isnan(norm), np.nan, norm > step.sensitivity)
            return torch.from_numpy(weight)

        sums, _ = gradients.sums(records.inputs, records.targets, weigh, people=records.people)
        active = np.asarray(accounts.charge(step, clipped_norms), dtype=bool)
        if np.any((weights > 0) & ~active):
            raise Unsupported("accounts: a person who kept to the allowance was refused; nothing was released")
        self.were_clipped = longer
        return sums


class Poisson:
    """Each person is sampled independently in each step, and pays in every step, sampled or not.

    Each person's bound is that person's gradient norm when it was last computed, times ``slack``, at most the
    sensitivity. All people's bounds are refreshed together, every ``refresh_every`` steps.

    Args:
        refresh_every: public. For how many steps bounds are kept.
        slack: public, > 0. A bound is this much larger than the norm was.
        individual: whether people have bounds of their own; otherwise each person's bound is the sensitivity.
        own_samples: whether norms of a person's own sampled gradients may be used instead of a refresh: only where the
            budget's proof covers it (theory 5.6).
        coins: draws who is sampled.

    Guarantee: a person's bound is a function of that person's own data and past outputs and, for budgets of one order,
        all orders or zCDP, of that person's own past samples; it is fixed before the step's coin is tossed; the
        person's contribution has at most that norm, and the person is charged for it at every step.
    Source: theory 5.6.
    """

    def __init__(
        self, *, refresh_every: int, slack: float, individual: bool, own_samples: bool, coins: np.random.Generator
    ) -> None:
        self._refresh_every, self._slack, self._individual, self._coins = refresh_every, slack, individual, coins
        self.own_samples = own_samples
        self._bounds: Array | None = None
        self._last_norms: Array | None = None
        self._steps = 0

    def charge_and_sum(
        self,
        gradients: Gradients,
        records: Records,
        accounts: AccountsPerPerson,
        step: Step,
        steps_left: int,  # noqa: ARG002 - full batches pace people by it
    ) -> list[Tensor]:
        """Charge each person for this step, sample people, and give the private sum of their clipped gradients."""
        bounds = self._current_bounds(gradients, records, step)
        active = np.asarray(accounts.charge(step, bounds), dtype=bool)
        coins = _audit_hook.coins(lambda: self._coins.random(records.person_count))
        sampled = active & (coins < _sample_rate(step)) & (bounds > 0)
        people = torch.from_numpy(np.flatnonzero(sampled))
        inputs, targets, new_numbers = records.select_people(people)
        sampled_bounds, last_norms = bounds[people.numpy()], self._last_norms

        def weigh(rows: Tensor, norms: Tensor) -> Tensor:
            norm = norms.numpy()
            clipped = np.minimum(norm, sampled_bounds[rows.numpy()])
            weights = np.divide(clipped, norm, out=np.zeros_like(norm), where=norm > 0)
            if last_norms is not None:
                last_norms[people[rows].numpy()] = norm
            return torch.from_numpy(weights)

        return gradients.sums(inputs, targets, weigh, people=new_numbers)[0]

    def _current_bounds(self, gradients: Gradients, records: Records, step: Step) -> Array:
        """(n,) each person's bound for this step."""
        if not self._individual:
            return np.full(records.person_count, step.sensitivity)
        if self._bounds is None or self._steps % self._refresh_every == 0:
            self._bounds = self._refreshed_bounds(gradients, records, step)
        self._steps += 1
        return np.minimum(self._bounds, step.sensitivity)  # the clip may have been lowered since; NaN stays NaN

    def _refreshed_bounds(self, gradients: Gradients, records: Records, step: Step) -> Array:
        norms = np.full(records.person_count, np.nan) if self._last_norms is None else self._last_norms
        missing = torch.from_numpy(np.flatnonzero(np.isnan(norms)))
        inputs, targets, people = records.select_people(missing)
        computed = gradients.norms(inputs, targets, people=people).numpy()
        norms[missing.numpy()] = np.pad(computed, (0, len(missing) - len(computed)))  # no record: a norm of zero
        bounds: Array = np.minimum(norms * self._slack, step.sensitivity)  # NaN: out until the next refresh
        self._last_norms = np.full(records.person_count, np.nan) if self.own_samples else None
        return bounds


def contributions(
    settings: Settings,
    records: Records,
    gradients: Gradients,
    *,
    refresh_every: int,
    slack: float,
    seed: int | None,
) -> FullBatch | Poisson | BatchContributions:
    """The contributions of the steps of a run, by its settings.

    Args:
        gradients: of the module, whose parameters say how long the noise is.
        refresh_every, slack: public; with Poisson samples.
        seed: public; None: coins and noise from the operating system.
    """
    individual, remainder = settings.individual, settings.spend_remainder
    if settings.batches is not None:
        size = sum(parameter.numel() for parameter in gradients.parameters)
        key = None if seed is None else int.from_bytes(np.random.default_rng([seed, 1]).bytes(16), "little")
        return BatchContributions(
            settings.batches,
            records,
            clip=settings.max_grad_norm,
            individual=individual,
            spend_remainder=remainder,
            pace=settings.pace,
            noise=Noise(settings.batches.factor, size, key=key),
        )
    if settings.sample_rate is None:
        return FullBatch(spend_remainder=remainder, pace=settings.pace if individual else 0.0)
    return Poisson(
        refresh_every=refresh_every,
        slack=slack,
        individual=individual,
        own_samples=isinstance(settings.budget, OWN_SAMPLES) and settings.odometer is None,
        coins=np.random.default_rng(seed),
    )


def _sample_rate(step: Step) -> float:
    return step.sample_rate if isinstance(step, SampledGaussian) else 1.0

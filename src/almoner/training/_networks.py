"""Candidates of a search that are trainings of PyTorch modules.

A run is a training and the score of its module. Where all people are in every step, or in fixed batches, they have
accounts of Gaussian DP, so that whatever a run does it is no easier to tell apart than one Gaussian mechanism. DP-SGD
takes the same steps in each run, and charges everybody for all of them.

Source: theory 4.3, 5.1, 8.2; docs/proofs/tuning.md
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from almoner import filters
from almoner.curves import renyi
from almoner.errors import ArgumentError, Unsupported
from almoner.mechanisms import Gaussian, Mechanism, Repeated, SampledGaussian, repeated
from almoner.training._card import Card
from almoner.training._records import Records, as_records, as_rows, correct, means_by_person, values_by_record
from almoner.training._run.samplings import Poisson
from almoner.training._run.settings import Target
from almoner.training._trainer import Trainer
from almoner.training.gradients._batches import check_batch

ROUNDING, ORDER = 1 + 1e-6, 8.0  # DP-SGD's budget has so much more noise than was priced, and this Rényi order


class Trainers:
    """Candidates that a function makes: ``make(budget, **settings)``, a new ``Trainer`` each time."""

    parts, scored = 2**20, "the scores of all people, 0 to 1 each"

    def __init__(self, make: Callable[..., Any], scoring: Callable[..., Any] | None, *, reproducible: bool) -> None:
        self._make, self._scoring, self._reproducible = make, scoring or correct, reproducible
        self._used: set[StorageWeakRef] = set()  # by the modules of runs, and what of that was trained
        self._trained: set[StorageWeakRef] = set()

    def check_name(self, name: str) -> None:
        """Every setting is public, and changes nothing of what is promised."""

    def sampled(self, settings: Mapping[str, Any]) -> tuple[float, int] | None:
        """The rate and the steps of DP-SGD; None where no people are sampled."""
        found = self._made(Target(1.0, 1e-5), settings)._settings
        return None if found.sampling.rate is None else (found.sampling.rate, found.steps or 1)

    def prepare(self, candidates: Sequence[Mapping[str, Any]], one_run: Mechanism, delta: float) -> None:
        """Make all candidates, of which none is kept; those that break a rule are refused here."""
        self._candidates, self._delta, self._one_run = candidates, delta, one_run
        for settings in candidates:
            self._trainer(settings)

    def check(self, *scored: Any) -> None:
        """Score a module that was not trained, so that what can't be scored is refused before anybody pays."""
        self.right(self._trainer(self._candidates[0]), *scored)

    def train(self, place: int, _seed: int | None, X: Any, y: Any, people: Any) -> Trainer:
        """Train a candidate; its trainer, which has the module."""
        trainer = self._trainer(self._candidates[place])
        self._used |= _storages(chain(trainer._module.parameters(), trainer._module.buffers()))
        self._trained |= _storages(trainer._gradients.parameters)
        taken = set(trainer.fit(X, y, people).released)
        if isinstance(self._one_run, Repeated) and not taken <= {trainer._settings.first_step()}:
            raise Unsupported("estimator: the optimizer changes the steps of a run, which were priced as they are")
        return trainer

    def right(self, trainer: Trainer, X: Any, y: Any, groups: Any) -> int:
        """The score in parts of people. Private; one person counts ``parts`` at most."""
        inputs, targets = as_records(X, y, trainer._gradients.parameters[0].dtype)
        if not (count := check_batch(inputs, targets, None)):
            raise ArgumentError("held_out must hold at least one record")
        people, _ = as_rows(groups, count, rows=False)
        values = np.clip(values_by_record(trainer._module, inputs, targets, self._scoring), 0.0, 1.0)
        means = means_by_person(values, people, Records(inputs, targets, people).person_count)
        return int(np.floor(np.nan_to_num(means, nan=0.0) * self.parts).sum())

    def released(self, trainer: Trainer, card: Callable[[Card], Card]) -> tuple[torch.nn.Module, Card]:
        """The module, and its card."""
        return trainer._module, card(trainer.card(delta=self._delta))

    def _trainer(self, settings: Mapping[str, Any]) -> Trainer:
        """A candidate with the budget of one run."""
        if isinstance(self._one_run, Gaussian):
            return self._made(filters.Gaussian(mu=1 / self._one_run.sigma), settings)
        step, count = cast(tuple[SampledGaussian, int], repeated(self._one_run))
        rho = renyi.values(Repeated(replace(step, sigma=step.sigma * ROUNDING), count), (ORDER,))[0]
        trainer = self._made(filters.RenyiOrder(alpha=ORDER, rho=rho), settings)
        found = trainer._settings
        steps = not found.individual and type(found.sampling) is Poisson and found.sampling.rate == step.sample_rate
        if not steps or found.last_step != count or found.noise_multiplier < step.sigma:
            raise ArgumentError(
                "estimator: all candidates must take the same steps of DP-SGD, with the noise of the budget: Trainer("
                f"..., budget, sampling=Poisson({step.sample_rate!r}), steps={count}, individual=False)"
            )
        return trainer

    def _made(self, budget: Any, settings: Mapping[str, Any]) -> Trainer:
        trainer = self._make(budget, **settings)
        if not isinstance(trainer, Trainer) or trainer._given is not budget or trainer._run is not None:
            line = "lambda budget, rate: Trainer(module, loss, SGD(rate), budget, max_grad_norm=1, divisor=n, steps=9)"
            raise ArgumentError(f"estimator must make a new training.Trainer with the budget that it is given: {line}")
        if not trainer._processes.single or (trainer._settings.seeded and not self._reproducible):
            raise ArgumentError("estimator: a Trainer of a search must have neither compute=Compute(group=) nor seed=")
        every = _storages(chain(trainer._module.parameters(), trainer._module.buffers()))
        if every & self._trained or _storages(trainer._gradients.parameters) & self._used:
            raise ArgumentError("estimator must make a new module each time: a part of this one was in another run")
        return trainer


def _storages(tensors: Iterable[torch.Tensor]) -> set[StorageWeakRef]:
    """The memory of tensors, which is no other's as long as this is kept."""
    return {StorageWeakRef(each.untyped_storage()) for each in tensors}  # type: ignore[no-untyped-call]

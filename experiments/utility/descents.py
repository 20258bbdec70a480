"""Several private descents of a softmax model at once: the law of ``almoner.training.descend``, one pass over the data.

For experiments on public data only: single precision, seeded noise, and accounts without the library's roundings. The
tests compare it with ``descend`` and ``individual.Filter``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

CHUNK = 5000

RULES = {"plain": (1.0, 1.0), "planned": (1.25, 1.0), "paced": (1.25, 1.0), "filtered": (1.25, 0.0)}
"""Steps over the planned steps, and the pace: plain descent, plain descent whose noise is planned for as many steps as
the others take, paced budgets, Feldman & Zrnic's Algorithm 8."""

PLAIN = ("plain", "planned")
"""Rules without accounts."""


@dataclass(frozen=True)
class Setting:
    """How a model is trained. The rate is for the clipped sum over the number of people."""

    steps: int
    clip: float
    rate: float
    momentum: float = 0.8
    decay: float = 0.5
    average: float = 0.3


@dataclass(frozen=True)
class Run:
    """One training."""

    setting: Setting
    mu: float
    rule: str
    seed: int

    @property
    def steps(self) -> int:
        """Steps in all."""
        return round(self.setting.steps * RULES[self.rule][0])

    @property
    def sigma(self) -> float:
        """Noise on the sum: the planned steps at the full clip cost the whole budget, mu squared."""
        return self.setting.clip * sqrt(planned(self.rule, self.setting.steps)) / self.mu


def planned(rule: str, steps: int) -> int:
    """The number of steps at the full clip that noise is planned for."""
    return round(RULES[rule][0] * steps) if rule == "planned" else steps


def descents(x: Tensor, y: Tensor, runs: Sequence[Run], *, people: int, classes: int = 10) -> Tensor:
    """Models (features, runs, classes) of runs that have the same number of steps.

    With fewer records than ``people`` the noise is scaled to the records, so that accuracy is nearly that of a run on
    all people: for tuning.
    """
    (steps,) = {run.steps for run in runs}
    column = _columns(runs)
    scaled = len(x) / people
    noise = [torch.Generator().manual_seed(run.seed) for run in runs]
    weights = torch.zeros(x.shape[1], len(runs), classes)
    velocity, total, count = torch.zeros_like(weights), torch.zeros_like(weights), torch.zeros(len(runs))
    left = column["mu"].double().square().repeat(len(x), 1) if any(run.rule not in PLAIN for run in runs) else None
    lengths, target = x.norm(dim=1), torch.nn.functional.one_hot(y, classes).to(x)
    for number in range(steps):
        cap = column["sigma"] / (1 + (column["pace"] * (steps - number - 1)).floor()).sqrt()
        ahead = weights + column["momentum"][:, None] * velocity
        noisy = _clipped_sum(x, lengths, target, ahead, left, column, cap)
        for place, run in enumerate(runs):
            noisy[:, place] += run.sigma * scaled * torch.randn(x.shape[1], classes, generator=noise[place])
        rate = column["rate"] * ((1 - number / steps) / column["decay"]).clamp(max=1) / len(x)
        velocity = column["momentum"][:, None] * velocity - rate[:, None] * noisy
        weights = weights + velocity
        late = (number >= steps - (column["average"] * steps - 1e-4).ceil()).float()
        total, count = total + late[:, None] * weights, count + late
    return total / count[:, None]


def _columns(runs: Sequence[Run]) -> dict[str, Tensor]:
    """The numbers of each run, (runs,) each."""
    values: dict[str, list[float]] = {
        name: [getattr(run.setting, name) for run in runs] for name in ("clip", "rate", "momentum", "decay", "average")
    }
    values["mu"], values["sigma"] = [run.mu for run in runs], [run.sigma for run in runs]
    values["pace"] = [RULES[run.rule][1] for run in runs]
    return {name: torch.tensor(each) for name, each in values.items()}


def _clipped_sum(
    x: Tensor,
    lengths: Tensor,
    target: Tensor,
    weights: Tensor,
    left: Tensor | None,
    column: dict[str, Any],
    cap: Tensor,
) -> Tensor:
    """Sums (features, runs, classes) of what people contribute; ``left`` (people, runs) becomes what they still have.

    A gradient is the record times the error of its probabilities, so that its norm is the product of two norms.
    """
    features, runs, classes = weights.shape
    total = torch.zeros(features, runs * classes)
    for start in range(0, len(x), CHUNK):
        part = slice(start, start + CHUNK)
        error = (x[part] @ weights.reshape(features, -1)).reshape(-1, runs, classes).softmax(dim=2)
        error -= target[part, None, :]
        norms = error.norm(dim=2) * lengths[part, None]
        given = torch.minimum(norms, column["clip"])
        if left is not None:
            given = torch.minimum(given, cap * left[part].clamp(min=0).sqrt().to(given))
            left[part] -= (given / column["sigma"]).double().square()
        error *= (given / norms.clamp(min=1e-12))[:, :, None]
        total += x[part].T @ error.reshape(len(error), -1)
    return total.reshape(features, runs, classes)


def accuracies(weights: Tensor, x: Tensor, y: Tensor) -> list[float]:
    """Percent of correct answers of each model."""
    features, runs, classes = weights.shape
    right = torch.zeros(runs)
    for part in torch.arange(len(x)).split(CHUNK):
        scores = (x[part] @ weights.reshape(features, -1)).reshape(-1, runs, classes)
        right += scores.argmax(dim=2).eq(y[part, None]).float().sum(dim=0)
    return [round(100 * float(each) / len(x), 3) for each in right]

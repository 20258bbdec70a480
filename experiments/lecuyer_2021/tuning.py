"""Tune a learning rate under one budget: every trial and every question is charged to the accounts of the final model.

    python experiments/lecuyer_2021/tuning.py            # Adult, two budgets, ten seeds
    python experiments/lecuyer_2021/tuning.py --quick    # 2,000 people, one seed

Lécuyer (2021, sections 1 and 7) names parameter tuning as what filters are for: trials are chosen by the results of
earlier trials, and one budget covers them all. Here it is successive halving: four learning rates get a few steps each,
a noisy count of correctly classified training people says which two go on, again which one, and that model gets the
steps that are left. Each trial is a `training.Trainer` that charges the same `individual.Filter`. It is compared, with
paired seeds and at the same budget, with each rate as the fixed choice for all steps. Each finished run is written to
docs/experiments/tuning.json at once; a run that is there is not repeated; --page alone makes the page's table and
figure again. The noise is seeded, so these models are not private: experiments on public data. A seed repeats a run on
the same machine with the same versions; elsewhere roundings differ, and numbers do within the spread of the seeds.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from almoner import filters, individual, training
from almoner.report import figures

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "koskela_2023")]
import groups  # noqa: E402
import pages  # noqa: E402

BY_RECORD = nn.CrossEntropyLoss(reduction="none")
RATES = (1.0, 4.0, 16.0, 64.0)
DEFAULT = 4.0
"""That of `training.LogisticRegression`."""
BUDGETS = (1.0, 0.3)
"""Epsilons."""


@dataclass(frozen=True)
class Size:
    """The size of an experiment, fixed in advance."""

    epsilon: float = 1.0
    delta: float = 1e-5
    clip: float = 1.0
    steps: int = 100
    """How many steps at the full clip, beside six questions, cost the whole budget."""
    first: int = 5
    """Steps of each of the four rates."""
    second: int = 10
    """More steps of each of the two best."""
    sigma: float = 200.0
    """The noise on a count of right answers."""

    @property
    def questions(self) -> int:
        """Counts that are asked in a tuned run."""
        return len(RATES) + len(RATES) // 2

    @property
    def noise_multiplier(self) -> float:
        """The least noise with which all steps and questions fit the budget."""
        left = filters.Gaussian(epsilon=self.epsilon, delta=self.delta).mu ** 2 - self.questions / self.sigma**2
        return float(np.sqrt(self.steps / left) * (1 + 1e-9))


def dense(features: Any) -> Tensor:
    """(records, features) float32, from a sparse or dense array."""
    return torch.from_numpy(np.asarray(features.toarray() if hasattr(features, "toarray") else features, np.float32))


def correct(output: Tensor, labels: Tensor) -> Tensor:
    """1 for each record whose label gets the largest score, else 0."""
    return (output.argmax(-1) == labels).double()


@dataclass
class Tuning:
    """Models in training that all charge the same accounts. Private: it holds the records of people."""

    x: Tensor
    y: Tensor
    accounts: individual.Filter
    size: Size
    seed: int
    models: dict[float, tuple[nn.Linear, torch.optim.Optimizer]] = field(default_factory=dict)
    trainings: int = 0

    def go_on(self, rate: float, steps: int, *, ask: bool) -> float:
        """Train the model of a rate for some more steps, and ask at the end how many training people it gets right."""
        if rate not in self.models:
            model = nn.Linear(self.x.shape[1], 2, bias=False)
            nn.init.zeros_(model.weight)
            self.models[rate] = model, torch.optim.SGD(model.parameters(), lr=rate)
        model, optimizer = self.models[rate]
        answers = []

        def question(run: Any) -> None:
            if ask and run.step == steps:
                answers.append(run.noisy_sum(correct, sigma=self.size.sigma, name="correct"))

        trainer = training.Trainer(
            model,
            BY_RECORD,
            optimizer,
            self.accounts,
            max_grad_norm=self.size.clip,
            divisor=len(self.accounts.spent()),
            steps=steps,
            noise_multiplier=self.size.noise_multiplier,
            seed=1000 * self.seed + self.trainings,  # its own noise for each training
        )
        self.trainings += 1
        trainer.fit(self.x, self.y, callbacks=[question])
        return answers[0] if answers else 0.0

    def halve(self, rates: Sequence[float], steps: int) -> list[float]:
        """The half of the rates whose models get most people right, by noisy counts after some more steps."""
        counts = {rate: self.go_on(rate, steps, ask=True) for rate in rates}
        return sorted(rates, key=lambda rate: -counts[rate])[: len(rates) // 2]


def tuned(tuning: Tuning) -> tuple[float, nn.Linear]:
    """Successive halving: the rate that is chosen, and its model after all steps that the budget was planned for."""
    size = tuning.size
    two = tuning.halve(RATES, size.first)
    (best,) = tuning.halve(two, size.second)
    trials = len(RATES) * size.first + len(two) * size.second
    tuning.go_on(best, size.steps - trials, ask=False)
    return best, tuning.models[best][0]


def fixed(tuning: Tuning, rate: float) -> tuple[float, nn.Linear]:
    """A rate that was fixed in advance gets all steps, and asks nothing."""
    tuning.go_on(rate, tuning.size.steps, ask=False)
    return rate, tuning.models[rate][0]


def run(how: str, data: groups.Data, size: Size, seed: int) -> dict[str, Any]:
    """Train once; how is "tuned" or a rate."""
    torch.manual_seed(seed)
    x, y = dense(data.x), torch.from_numpy(np.asarray(data.y, np.int64))
    accounts = individual.Filter(data.count, filters.Gaussian(epsilon=size.epsilon, delta=size.delta))
    tuning = Tuning(x, y, accounts, size, seed)
    begun = time.perf_counter()
    rate, model = tuned(tuning) if how == "tuned" else fixed(tuning, float(how))
    seconds = time.perf_counter() - begun
    with torch.no_grad():
        right = model(dense(data.x_test)).argmax(1).numpy() == data.y_test
    spent = float(accounts.spent().max() / accounts.budget.mu**2)  # type: ignore[attr-defined]
    row = {"epsilon": size.epsilon, "how": how, "seed": seed, "rate": rate, "accuracy": 100 * float(right.mean())}
    return row | {"most spent of a budget": spent, "trainings": tuning.trainings, "seconds": seconds}


def table(results: list[dict[str, Any]]) -> str:
    """Mean accuracies, and the paired difference of the tuned run to each rate, as Markdown."""
    lines = [
        "| epsilon | learning rate | seeds | test accuracy, %: mean (least, largest) | tuned minus this, points "
        "[95 % over seeds] | most that a person spent of the budget, % |",
        "|---" * 6 + "|",
    ]
    for epsilon in dict.fromkeys(row["epsilon"] for row in results):
        runs = {
            how: {row["seed"]: row for row in results if (row["epsilon"], row["how"]) == (epsilon, how)}
            for how in ("tuned", *(f"{rate:g}" for rate in RATES))
        }
        for how, rows in runs.items():
            if not rows:
                continue
            right = [row["accuracy"] for row in rows.values()]
            gain = [runs["tuned"][seed]["accuracy"] - rows[seed]["accuracy"] for seed in rows if seed in runs["tuned"]]
            chosen = sorted({row["rate"] for row in rows.values()})
            times = [f"{rate:g} {sum(r['rate'] == rate for r in rows.values())} times" for rate in chosen]
            label = f"tuned: chose {', '.join(times)}" if how == "tuned" else f"{how} for all steps"
            label += " (the default)" if how == f"{DEFAULT:g}" else ""
            lines.append(
                f"| {epsilon:g} | {label} | {len(rows)} | {np.mean(right):.2f} ({min(right):.2f}, {max(right):.2f}) | "
                f"{'' if how == 'tuned' else interval(gain)} | "
                f"{100 * max(row['most spent of a budget'] for row in rows.values()):.1f} |"
            )
    return "\n".join(lines) + "\n"


def interval(values: list[float]) -> str:
    """The mean, and its 95 % interval by Student's t."""
    if len(values) < 2:
        return "-"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.2f} [{np.mean(values) - half:+.2f}, {np.mean(values) + half:+.2f}]"


@figures.styled()
def draw(results: list[dict[str, Any]]) -> Any:
    """Test accuracy of each run: a column for each rate and for the tuned runs, a panel for each budget."""
    epsilons = list(dict.fromkeys(row["epsilon"] for row in results))
    picture = figures.figure(4.5 * len(epsilons), 3.4)
    ways = [*(f"{rate:g}" for rate in RATES), "tuned"]
    for axes, epsilon in zip(picture.subplots(1, len(epsilons), squeeze=False)[0], epsilons, strict=True):
        for row in (row for row in results if row["epsilon"] == epsilon):
            shift = 0.03 * (row["seed"] - 4.5)
            axes.plot(
                ways.index(row["how"]) + shift, row["accuracy"], ".", color="C1" if row["how"] == "tuned" else "C0"
            )
        axes.set(title=f"epsilon = {epsilon:g}", xlabel="learning rate", ylabel="test accuracy, %")
        axes.set_xticks(range(len(ways)), ways)
    return picture


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run what is not recorded, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,000 people, one seed; writes nothing by itself")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--page", action="store_true", help="make table and figure from the record alone")
    parser.add_argument("--out", type=Path, default=None, help="the folder of tuning.json and tuning.md")
    options = parser.parse_args(arguments)
    out = options.out or (None if options.quick else pages.DOCS)
    record = None if out is None else out / "tuning.json"
    results = json.loads(record.read_text(encoding="utf-8")) if record is not None and record.is_file() else []
    data = None if options.page else groups.part(groups.adult(), 2000) if options.quick else groups.adult()
    for epsilon in BUDGETS if data is not None else ():
        size = Size(epsilon, steps=20, first=1, second=2, sigma=30.0) if options.quick else Size(epsilon)
        for seed in range(1 if options.quick else options.seeds):
            for how in ("tuned", *(f"{rate:g}" for rate in RATES)):
                if not any((row["epsilon"], row["how"], row["seed"]) == (epsilon, how, seed) for row in results):
                    results.append(run(how, data, size, seed))
                    if out is not None:
                        pages.save("tuning", results, table(results), out=out)
    print(table(results))
    if out is not None:
        pages.save("tuning", results, table(results), draw(results), out)
    return results


if __name__ == "__main__":
    main()

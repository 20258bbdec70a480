"""Tune a model under one budget: every trial and every question is charged to the accounts of the final model.

    python experiments/lecuyer_2021/tuning.py            # Adult and Fashion-MNIST, two budgets, ten and three seeds
    python experiments/lecuyer_2021/tuning.py --quick    # 2,000 people, one seed

Lécuyer (2021, sections 1 and 7) names parameter tuning and architecture search as what filters are for: trials are
chosen by the results of earlier trials, and one budget covers them all. Here it is successive halving: four candidates
get a few steps each, a noisy count of correctly classified training people says which two go on, again which one, and
that model gets the steps that are left. The candidates are learning rates of a linear model on UCI Adult, or networks
on Fashion-MNIST. Each trial is a `training.Trainer` that charges the same `individual.Filter`. It is compared, with
paired seeds and at the same budget, with each candidate as the fixed choice for all steps. Each finished run is written
to docs/experiments/tuning.json at once; a run that is there is not repeated; --page alone makes the page's tables and
figure again. The networks' learning rates were chosen by training people who were held out: `--rates` prints what was
tried. The noise is seeded, so these models are not private: experiments on public data. A seed repeats a run on the
same machine with the same versions; elsewhere roundings differ, and numbers do within the spread of the seeds.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from almoner import filters, individual, training
from almoner.report import figures

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "koskela_2023")]
import groups  # noqa: E402
import pages  # noqa: E402
from data_sets import digits, folder  # noqa: E402

BY_RECORD = nn.CrossEntropyLoss(reduction="none")


@dataclass(frozen=True)
class Candidate:
    """A model that may be trained: its name, its learning rate, and the sizes of its hidden layers."""

    name: str
    rate: float
    hidden: tuple[int, ...] = ()

    def model(self, inputs: int, classes: int, seed: int) -> nn.Module:
        """A new model; a linear one begins with zeros and has no intercept."""
        if not self.hidden:
            model = nn.Linear(inputs, classes, bias=False)
            nn.init.zeros_(model.weight)
            return model
        torch.manual_seed(seed)
        sizes = [inputs, *self.hidden]
        layers = [layer for one in pairwise(sizes) for layer in (nn.Linear(*one), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(sizes[-1], classes))


RATES = tuple(Candidate(f"{rate:g}", rate) for rate in (1.0, 4.0, 16.0, 64.0))
NETWORKS = (
    Candidate("linear", 4.0),
    Candidate("one layer of 32", 4.0, (32,)),
    Candidate("one layer of 256", 4.0, (256,)),
    Candidate("three layers of 64", 4.0, (64, 64, 64)),
)
KINDS = {"rates": RATES, "networks": NETWORKS}
CANDIDATES = 4
DEFAULT = "4"
"""The rate that was the default of `training.LogisticRegression` when this was run."""
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
    """Steps of each of the four candidates."""
    second: int = 10
    """More steps of each of the two best."""
    sigma: float = 200.0
    """The noise on a count of right answers."""

    @property
    def questions(self) -> int:
        """Counts that are asked in a tuned run."""
        return CANDIDATES + CANDIDATES // 2

    @property
    def noise_multiplier(self) -> float:
        """The least noise with which all steps and questions fit the budget."""
        left = filters.Gaussian(epsilon=self.epsilon, delta=self.delta).mu ** 2 - self.questions / self.sigma**2
        return float(np.sqrt(self.steps / left) * (1 + 1e-9))


@dataclass(frozen=True)
class Data:
    """Records of training people, (n, features) and (n,), and of people to judge by. Private."""

    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.y_test.max()) + 1


def dense(features: Any) -> Tensor:
    """(records, features) float32, from a sparse or dense array."""
    return torch.from_numpy(np.asarray(features.toarray() if hasattr(features, "toarray") else features, np.float32))


def loaded(kind: str, people: int | None, place: Path | None = None) -> Data:
    """UCI Adult for learning rates, Fashion-MNIST for networks; the first people of it.

    "held out": Fashion-MNIST, judged by the last 10,000 of its training people; the test file is not opened.
    """
    if kind == "rates":
        adult = groups.adult(place) if people is None else groups.part(groups.adult(place), people)
        x, x_test, y, y_test = dense(adult.x), dense(adult.x_test), adult.y, adult.y_test
    else:
        where = folder("fashion_mnist", place)
        x, y = digits(where, "train")
        x_test, y_test = (x[-10_000:], y[-10_000:]) if kind == "held out" else digits(where, "t10k")
        x, x_test = (torch.from_numpy(part.reshape(len(part), -1) / np.float32(255)) for part in (x, x_test))
    labels, judge = (torch.from_numpy(np.asarray(part, np.int64)) for part in (y, y_test))
    return Data(x[:people], labels[:people], x_test, judge)


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
    classes: int = 2
    models: dict[Candidate, tuple[nn.Module, torch.optim.Optimizer]] = field(default_factory=dict)
    trainings: int = 0

    def go_on(self, candidate: Candidate, steps: int, *, ask: bool) -> float:
        """Train a candidate for some more steps, and ask at the end how many training people it gets right."""
        if candidate not in self.models:
            model = candidate.model(self.x.shape[1], self.classes, self.seed)
            self.models[candidate] = model, torch.optim.SGD(model.parameters(), lr=candidate.rate)
        model, optimizer = self.models[candidate]
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

    def halve(self, candidates: Sequence[Candidate], steps: int) -> list[Candidate]:
        """The half of the candidates that get most people right, by noisy counts after some more steps."""
        counts = {candidate: self.go_on(candidate, steps, ask=True) for candidate in candidates}
        return sorted(candidates, key=lambda candidate: -counts[candidate])[: len(candidates) // 2]


def tuned(tuning: Tuning, candidates: Sequence[Candidate] = RATES) -> tuple[Candidate, nn.Module]:
    """Successive halving: who is chosen, and its model after all steps that the budget was planned for."""
    size = tuning.size
    two = tuning.halve(candidates, size.first)
    (best,) = tuning.halve(two, size.second)
    trials = len(candidates) * size.first + len(two) * size.second
    tuning.go_on(best, size.steps - trials, ask=False)
    return best, tuning.models[best][0]


def fixed(tuning: Tuning, candidate: Candidate) -> tuple[Candidate, nn.Module]:
    """A candidate that was fixed in advance gets all steps, and asks nothing."""
    tuning.go_on(candidate, tuning.size.steps, ask=False)
    return candidate, tuning.models[candidate][0]


def run(kind: str, how: str, data: Data, size: Size, seed: int) -> dict[str, Any]:
    """Train once; how is "tuned" or the name of a candidate."""
    torch.manual_seed(seed)
    accounts = individual.Filter(len(data.x), filters.Gaussian(epsilon=size.epsilon, delta=size.delta))
    tuning = Tuning(data.x, data.y, accounts, size, seed, data.classes)
    begun = time.perf_counter()
    named = {candidate.name: candidate for candidate in KINDS[kind]}
    chosen, model = tuned(tuning, KINDS[kind]) if how == "tuned" else fixed(tuning, named[how])
    seconds = time.perf_counter() - begun
    with torch.no_grad():
        right = (model(data.x_test).argmax(1) == data.y_test).double()
    spent = float(accounts.spent().max() / accounts.budget.mu**2)  # type: ignore[attr-defined]
    row = {"kind": kind, "epsilon": size.epsilon, "how": how, "seed": seed, "chosen": chosen.name}
    row |= {"accuracy": 100 * float(right.mean()), "most spent of a budget": spent}
    return row | {"trainings": tuning.trainings, "seconds": seconds}


def table(results: list[dict[str, Any]], kind: str) -> str:
    """Mean accuracies, and the paired difference of the tuned run to each candidate, as Markdown."""
    what = {"rates": "learning rate", "networks": "network"}[kind]
    lines = [
        f"| epsilon | {what} | seeds | test accuracy, %: mean (least, largest) | tuned minus this, points "
        "[95 % over seeds] | most that a person spent of the budget, % |",
        "|---" * 6 + "|",
    ]
    mine = [row for row in results if row["kind"] == kind]
    for epsilon in dict.fromkeys(row["epsilon"] for row in mine):
        runs = {
            how: {row["seed"]: row for row in mine if (row["epsilon"], row["how"]) == (epsilon, how)}
            for how in ("tuned", *(candidate.name for candidate in KINDS[kind]))
        }
        for how, rows in runs.items():
            if not rows:
                continue
            right = [row["accuracy"] for row in rows.values()]
            gain = [runs["tuned"][seed]["accuracy"] - rows[seed]["accuracy"] for seed in rows if seed in runs["tuned"]]
            times = Counter(row["chosen"] for row in rows.values())
            label = f"{how} for all steps"
            if how == "tuned":
                label = "tuned: chose " + ", ".join(f"{name} {n} times" for name, n in sorted(times.items()))
            label += " (the default)" if (kind, how) == ("rates", DEFAULT) else ""
            lines.append(
                f"| {epsilon:g} | {label} | {len(rows)} | {np.mean(right):.2f} ({min(right):.2f}, {max(right):.2f}) | "
                f"{'' if how == 'tuned' else pages.interval(gain)} | "
                f"{100 * max(row['most spent of a budget'] for row in rows.values()):.1f} |"
            )
    return "\n".join(lines) + "\n"


@figures.styled()
def draw(results: list[dict[str, Any]]) -> Any:
    """Test accuracy of each run: a column for each candidate and for the tuned runs, a panel for each budget."""
    panels = list(dict.fromkeys((row["kind"], row["epsilon"]) for row in results))
    picture = figures.figure(9.0, 3.4 * ((len(panels) + 1) // 2))
    all_axes = picture.subplots((len(panels) + 1) // 2, 2, squeeze=False).ravel()
    for axes, (kind, epsilon) in zip(all_axes, panels, strict=False):
        ways = [*(candidate.name for candidate in KINDS[kind]), "tuned"]
        for row in (row for row in results if (row["kind"], row["epsilon"]) == (kind, epsilon)):
            shift = 0.03 * (row["seed"] - 4.5)
            axes.plot(
                ways.index(row["how"]) + shift, row["accuracy"], ".", color="C1" if row["how"] == "tuned" else "C0"
            )
        label = "learning rate (Adult)" if kind == "rates" else "network (Fashion-MNIST)"
        axes.set(title=f"epsilon = {epsilon:g}", xlabel=label, ylabel="test accuracy, %")
        axes.set_xticks(range(len(ways)), [way.replace(" of ", "\nof ") for way in ways])
    return picture


def try_rates(place: Path | None, *, quick: bool) -> None:
    """Print the accuracy of each network on training people who are held out, by learning rate and budget."""
    data = loaded("held out", 2000 if quick else 20_000, place)
    for epsilon in BUDGETS:
        size = Size(3 * epsilon, steps=20 if quick else 100)  # a third of the people: about as much noise for each
        for network in NETWORKS:
            for rate in (0.5, 1.0, 2.0, 4.0):
                one = Candidate(network.name, rate, network.hidden)
                accounts = individual.Filter(len(data.x), filters.Gaussian(epsilon=size.epsilon, delta=size.delta))
                _, model = fixed(Tuning(data.x, data.y, accounts, size, 7, data.classes), one)
                with torch.no_grad():
                    right = 100 * float((model(data.x_test).argmax(1) == data.y_test).double().mean())
                print(f"{epsilon:g} {network.name} {rate:g}: {right:.2f}", flush=True)


def save(results: list[dict[str, Any]], out: Path, picture: Any = None) -> None:
    """Write the record and the tables of the page."""
    pages.save("tuning", results, table(results, "rates"), picture, out)
    page = out / "tuning.md"
    if pages.marked(page, "networks"):
        pages.insert(page, table(results, "networks"), "networks")


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run what is not recorded, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2,000 people, one seed; writes nothing by itself")
    parser.add_argument("--kind", choices=tuple(KINDS), nargs="*", default=list(KINDS), help="what is chosen")
    parser.add_argument("--seeds", type=int, default=None, help="default: 10 for rates, 3 for networks")
    parser.add_argument(
        "--rates", action="store_true", help="try the networks' learning rates on people who are held out"
    )
    parser.add_argument("--page", action="store_true", help="make tables and figure from the record alone")
    parser.add_argument("--data", type=Path, default=None, help="the folder of the data sets")
    parser.add_argument("--out", type=Path, default=None, help="the folder of tuning.json and tuning.md")
    options = parser.parse_args(arguments)
    if options.rates:
        try_rates(options.data, quick=options.quick)
        return []
    out = options.out or (None if options.quick else pages.DOCS)
    record = None if out is None else out / "tuning.json"
    results = json.loads(record.read_text(encoding="utf-8")) if record is not None and record.is_file() else []
    for kind in options.kind if not options.page else ():
        data = loaded(kind, 2000 if options.quick else None, options.data)
        seeds = options.seeds or (1 if options.quick else 10 if kind == "rates" else 3)
        for epsilon, seed in ((epsilon, seed) for epsilon in BUDGETS for seed in range(seeds)):
            size = Size(epsilon, steps=20, first=1, second=2, sigma=30.0) if options.quick else Size(epsilon)
            for how in ("tuned", *(candidate.name for candidate in KINDS[kind])):
                keys = (kind, epsilon, how, seed)
                if not any((row["kind"], row["epsilon"], row["how"], row["seed"]) == keys for row in results):
                    results.append(run(kind, how, data, size, seed))
                    if out is not None:
                        save(results, out)
    for kind in options.kind:
        print(table(results, kind))
    if out is not None:
        save(results, out, draw(results))
    return results


if __name__ == "__main__":
    main()

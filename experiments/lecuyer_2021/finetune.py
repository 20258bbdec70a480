"""Lécuyer (2021), section 5.2: private fine-tuning that stops when it stops improving, and what the odometer says then.

    python experiments/lecuyer_2021/finetune.py            # half an hour or more on one core
    python experiments/lecuyer_2021/finetune.py --tune     # the learning rates, on training people alone
    python experiments/lecuyer_2021/finetune.py --quick    # few people, few steps, for continuous integration

A small network is trained without privacy on the first five classes of CIFAR-10, which are treated as public, and then
by DP-SGD on the images of the other five, in the paper's regime: sampling rate 512/50000, 98 steps an epoch, 50 epochs,
noise multiplier 1, or 2 and then 0.1 less after each epoch without a significant increase. Only the last layer is
trained, or the whole network; the same from random parameters. A run with noise 1 goes on to the end of its plan, so
that the page can say what stopping saved and what it lost: the moment at which `EarlyStopping` says stop is noted, and
so are both bounds of the odometer after each epoch. Each finished run is written to docs/experiments/finetune.json at
once, and a run that is there is not repeated. The table and the figure are made from that file (--page alone makes them
again). The noise is seeded, so these models are not private: experiments on public data. A seed repeats a run on the
same machine with the same versions; elsewhere roundings differ, and numbers do within the spread of the seeds.
"""

import argparse
import copy
import json
import sys
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from almoner import filters, mechanisms, odometers, training
from almoner.report import figures
from almoner.training import callbacks

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent)]
import lecuyers_policies  # noqa: E402
import pages  # noqa: E402
from policies import accuracy, planned_epsilon  # noqa: E402
from transfer import BY_RECORD, Images, load, network, pretrained  # noqa: E402

RATES = {
    ("last layer", "public"): 0.1,
    ("last layer", "random"): 0.5,
    ("whole network", "public"): 0.1,
    ("whole network", "random"): 0.1,
}
"""Learning rates, chosen by --tune."""
STARTS, PARTS, NOISES = ("public", "random"), ("last layer", "whole network"), ("noise 1", "falling noise")


@dataclass(frozen=True)
class Size:
    """The size of an experiment."""

    public: int
    """Images of the first five classes."""
    public_epochs: int
    people: int
    """Images of the last five."""
    tests: int
    width: int
    """Channels of the first layer."""
    epochs: int
    """Of the plan."""
    whole_network_epochs: int
    """After which a run of the whole network ends, to save time."""
    falling_epochs: int
    """After which a run with falling noise ends, to save time."""
    sigma: float
    """The noise on a count of right answers."""
    rate: float = 0.01024
    epoch: int = 98
    """Steps of an epoch."""
    patience: int = 3
    """Epochs without a significant increase, after which the run stops."""
    target: float = 0.7
    """A share of training images that are right: when it is reached is noted, too."""
    first: float = 2.0
    """Where falling noise begins."""
    least: float = 1.0
    by: float = 0.1
    momentum: float = 0.9
    delta: float = 1e-6
    clip: float = 1.0


WHOLE = Size(
    public=25_000,
    public_epochs=10,
    people=25_000,
    tests=5000,
    width=16,
    epochs=50,
    whole_network_epochs=10,
    falling_epochs=25,
    sigma=100.0,
)
QUICK = Size(
    public=600, public_epochs=1, people=600, tests=300, width=4, epochs=3, whole_network_epochs=2, falling_epochs=3,
    sigma=10.0, rate=0.1, epoch=6, patience=1,
)  # fmt: skip


def plan(size: Size) -> mechanisms.Mechanism:
    """What is released if a run does not stop early: all steps at the least noise, and two questions an epoch."""
    step = mechanisms.SampledGaussian(size.least * size.clip, size.clip, size.rate)
    questions = mechanisms.Repeated(mechanisms.Gaussian(size.sigma, 1.0), 2 * size.epochs)
    return mechanisms.Composed((mechanisms.Repeated(step, size.epochs * size.epoch), questions))


class Noting:
    """Stands between a policy and its run: notes the first time that the policy says stop, and lets the run go on."""

    def __init__(self, policy: Any) -> None:
        self._policy, self._run = policy, None
        self.why: str | None = None
        self.noted = 0

    def __call__(self, run: Any) -> None:
        """Call the policy with this object in place of the run."""
        self._run = run
        self._policy(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def stop(self, reason: str) -> None:
        """Note what the run would have ended with."""
        if self.why is None:
            self.why, self.noted = reason, self._run.step  # type: ignore[attr-defined]


def start(name: str, part: str, size: Size, learnt: nn.Sequential, known: tuple[Images, Images], seed: int) -> Any:
    """The module to train, with a last layer of zeros, and the images or features that it is trained and tested on."""
    torch.manual_seed(seed)
    whole = network(size.width) if name == "random" else copy.deepcopy(learnt)
    last: Any = whole[-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    if part == "whole network":
        return whole, *known
    return last, *(images.through(whole[:-1]) for images in known)


def run(
    name: str,
    part: str,
    noise: str,
    size: Size,
    learnt: nn.Sequential,
    known: tuple[Images, Images],
    seed: int,
    rate: float,
) -> dict[str, Any]:
    """Fine-tune to the end of the plan, and note what is known after each epoch and when the policy says stop."""
    module, train, test = start(name, part, size, learnt, known, seed)
    whole, falling = part == "whole network", noise == "falling noise"
    last = size.whole_network_epochs if whole else size.falling_epochs if falling else size.epochs
    stopping = callbacks.EarlyStopping(
        patience=size.patience,
        every=size.epoch,
        odometer=odometers.Renyi(delta=size.delta, plan=plan(size)),
        sigma=size.sigma,
    )
    noting, looks = Noting(stopping), list[list[float]]()

    def look(now: Any) -> None:
        if now.step and now.step % size.epoch == 0:
            meter, count = stopping.odometer, now.history["EarlyStopping"]["count"]
            bounds = meter.ex_post_epsilon(), meter.epsilon()
            looks.append([now.step // size.epoch, now.noise_multiplier, count, *bounds])
            looks[-1].append(accuracy(module, test.x, test.y))
            looks[-1] = [float(f"{value:.6g}") for value in looks[-1]]
            if looks[-1][0] == last:
                now.stop("as many epochs as are trained here")

    lower = lecuyers_policies.ReduceNoiseOnPlateau(
        by=size.by, least=size.least, every=1, epoch=size.epoch, sigma=size.sigma
    )
    trainer = training.Trainer(
        module,
        BY_RECORD,
        torch.optim.SGD(module.parameters(), lr=rate, momentum=size.momentum),
        filters.Renyi(epsilon=plan_epsilon(size), delta=size.delta, plan=plan(size)),
        max_grad_norm=size.clip,
        divisor=len(train.y),
        steps=size.epochs * size.epoch,
        individual=False,
        noise_multiplier=size.first if falling else size.least,
        sampling=training.Poisson(size.rate),
        seed=seed,
    )
    begun = time.perf_counter()
    trainer.fit(train.x, train.y, callbacks=[noting, look, *([lower] if falling else [])])
    row = {"start": name, "part": part, "noise": noise, "seed": seed, "rate": rate, "looks": looks}
    return row | {
        "stopped": noting.noted // size.epoch or None,
        "people": len(train.y),
        "seconds": time.perf_counter() - begun,
    }


@cache
def plan_epsilon(size: Size) -> float:
    """The epsilon of the whole plan."""
    return planned_epsilon(plan(size), size.delta)


def at(row: dict[str, Any], moment: str, size: Size) -> dict[str, float] | None:
    """What is known of a run when the policy said stop, when the target was reached, or after its last epoch."""
    names = ("epoch", "noise", "count", "ex-post", "pathwise", "accuracy")
    looks = [dict(zip(names, look, strict=True)) for look in row["looks"]]
    if moment == "target":
        margin = callbacks.DEVIATIONS * size.sigma
        found = [look for look in looks if look["count"] - margin >= size.target * row["people"]]
    else:
        epoch = {"stopped": row["stopped"], "last": looks[-1]["epoch"]}[moment]
        found = [look for look in looks if look["epoch"] == epoch]
    return found[0] if found else None


def spread(values: list[float], digits: int = 1) -> str:
    """The mean, the least and the largest, if there are any."""
    if not values:
        return "-"
    return f"{np.mean(values):.{digits}f} ({min(values):.{digits}f}, {max(values):.{digits}f})"


def table(results: list[dict[str, Any]], size: Size) -> str:
    """Two Markdown tables: where the runs stop, and what the target costs."""
    planned = plan_epsilon(size)
    lines = [
        f"At the moment when the run stops improving; the plan of {size.epochs} epochs costs epsilon = {planned:.2f}:",
        "",
        "| trained | start | noise | seeds that stop | stops at epoch | test accuracy there, % | "
        "ex-post epsilon there | pathwise epsilon there | saved of the plan, % | last epoch run | "
        "test accuracy there, % |",
        "|---" * 11 + "|",
    ]
    goals = [
        "",
        f"When {100 * size.target:g} % of the training images are right, by three standard deviations of the count:",
        "",
        "| trained | start | noise | seeds that reach it | at epoch | ex-post epsilon | pathwise epsilon |",
        "|---" * 7 + "|",
    ]
    for part, name, noise in cells():
        rows = [r for r in results if (r["part"], r["start"], r["noise"]) == (part, name, noise)]
        if not rows:
            continue
        begin = f"| {part} | {name} | {noise} | "
        stops, ends, hits = ([at(r, m, size) for r in rows] for m in ("stopped", "last", "target"))
        there, reached, last = ([at_one for at_one in found if at_one] for found in (stops, hits, ends))
        cost = [stop["ex-post"] for stop in there]
        lines.append(
            f"{begin}{len(there)} of {len(rows)} | {spread([s['epoch'] for s in there], 0)} | "
            f"{spread([s['accuracy'] for s in there])} | {spread(cost, 2)} | "
            f"{spread([s['pathwise'] for s in there], 2)} | {spread([100 - 100 * c / planned for c in cost], 0)} | "
            f"{last[0]['epoch']:.0f} | {spread([end['accuracy'] for end in last])} |"
        )
        goal = [spread([h[key] for h in reached], d) for key, d in (("epoch", 0), ("ex-post", 2), ("pathwise", 2))]
        goals.append(f"{begin}{len(reached)} of {len(rows)} | {' | '.join(goal)} |")
    return "\n".join([*lines, *goals]) + "\n"


def cells() -> list[tuple[str, str, str]]:
    """What is trained, the start and the noise of each kind of run."""
    return [(part, name, noise) for part in PARTS for name in STARTS for noise in NOISES]


@figures.styled()
def draw(results: list[dict[str, Any]], size: Size, out: Path) -> None:
    """Test accuracy over the epochs and over epsilon, as figures 2(a) to 2(d); a dot where the run stops."""
    picture = figures.figure(10, 7)
    axes = picture.subplots(2, 2, sharey=True, sharex="col")
    colours = {name: f"C{number}" for number, name in enumerate((s, n) for s in STARTS for n in NOISES)}
    for panels, part in zip(axes, PARTS, strict=True):
        for row in [row for row in results if row["part"] == part]:
            colour, label = colours[row["start"], row["noise"]], f"{row['start']} start, {row['noise']}"
            accuracy = [look[5] for look in row["looks"]]
            stop = at(row, "stopped", size)
            for axis, place, key in ((panels[0], 0, "epoch"), (panels[1], 3, "ex-post")):
                x = [look[place] for look in row["looks"]]
                axis.plot(x, accuracy, color=colour, lw=1, label=label if row["seed"] == 0 else None)
                if stop is not None:
                    axis.plot(stop[key], stop["accuracy"], "o", color=colour, ms=4)
        panels[0].set(title=part, ylabel="test accuracy, %")
        panels[1].axvline(plan_epsilon(size), color="0.5", ls=":", lw=1)
    axes[0][0].legend()
    axes[1][0].set_xlabel("epochs")
    axes[1][1].set_xlabel(f"ex-post epsilon at delta = {size.delta:g}; dotted: the plan's")
    pages.save_picture(picture, "finetune", out)


def write(size: Size, results: list[dict[str, Any]], out: Path) -> None:
    """The numbers, and the table of the page."""
    out.mkdir(parents=True, exist_ok=True)
    numbers = {"size": asdict(size), "rows": results}
    (out / "finetune.json").write_text(json.dumps(numbers) + "\n", encoding="utf-8")
    pages.insert(out / "finetune.md", table(results, size))


def recorded(size: Size, out: Path) -> list[dict[str, Any]]:
    """The runs of this size that were finished before."""
    file = out / "finetune.json"
    numbers = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"size": {}, "rows": []}
    return list(numbers["rows"]) if numbers["size"] == asdict(size) else []


def tune(size: Size, learnt: nn.Sequential, train: Images) -> None:
    """Print what each learning rate gives after some epochs, on the last fifth of the training people."""
    count = len(train.y) * 4 // 5
    for part in PARTS:
        for name in STARTS:
            for rate in (0.02, 0.1, 0.5):
                short = Size(**asdict(size) | {"epochs": 4})
                row = run(name, part, "noise 1", short, learnt, (train.first(count), train.after(count)), 100, rate)
                print(part, name, rate, [look[5] for look in row["looks"]], f"{row['seconds']:.0f} s", flush=True)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run what is not recorded, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few people, few steps; writes nothing by itself")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tune", action="store_true", help="try learning rates, and write nothing")
    parser.add_argument("--page", action="store_true", help="make table and figure from the record alone")
    parser.add_argument("--out", type=Path, default=None, help="the folder of finetune.json and finetune.md")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else WHOLE
    out = options.out or (None if options.quick else pages.DOCS)
    results = [] if out is None else recorded(size, out)
    kinds = (
        {"part": part, "start": name, "noise": noise, "seed": seed}
        for seed in range(1 if options.quick else options.seeds)
        for part, name, noise in cells()
    )
    missing: list[dict[str, Any]] = [kind for kind in kinds if not any(kind.items() <= row.items() for row in results)]
    if options.tune or (missing and not options.page):
        public, train, test = load(size.public, size.people, size.tests, quick=options.quick)
        learnt = pretrained(public, width=size.width, epochs=size.public_epochs)
        if options.tune:
            tune(size, learnt, train)
            return []
        for kind in missing:
            rate = RATES[kind["part"], kind["start"]]
            results.append(
                run(kind["start"], kind["part"], kind["noise"], size, learnt, (train, test), kind["seed"], rate)
            )
            print(", ".join(map(str, kind.values())), f"{results[-1]['seconds']:.0f} s", flush=True)
            if out is not None:
                write(size, results, out)
    print(table(results, size))
    if out is not None:
        write(size, results, out)
        draw(results, size, out)
    return results


if __name__ == "__main__":
    main()

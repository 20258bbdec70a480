"""Lécuyer (2021), section 5.2: private fine-tuning that stops when it stops improving, and what the odometer says then.

    python experiments/lecuyer_2021/finetune.py            # the last layer
    python experiments/lecuyer_2021/finetune.py --tune     # the learning rates, on training people alone
    python experiments/lecuyer_2021/finetune.py --part "last layer on moved images"
    python experiments/lecuyer_2021/finetune.py --part "whole network" --seeds 1 --work FOLDER --until 2   # then more
    python experiments/lecuyer_2021/finetune.py --quick    # few people, few steps, for continuous integration

A network that was trained on ImageNet is fine-tuned by DP-SGD on the 50,000 training images of CIFAR-10 in the paper's
regime: sampling rate 512/50000, 98 steps an epoch, 50 epochs, clip 1, momentum 0.9, delta = 1e-6, and noise multiplier
1, or 2 and then 0.1 less after each epoch without a significant increase. Its packages are named in imagenet.py; its
features of all images are computed once, in a quarter of an hour of one core or more, and kept; those of four moved
copies of the training images take an hour more (`--part "last layer on moved images"`). Every run goes on to the end of
its plan, so that the page can say what stopping saved and what it lost: what is known after each epoch is noted, with
both bounds of the odometer, and so is the moment at which `EarlyStopping` says stop. Each finished run is added to
experiments/results/finetune.jsonl at once, and a run that is there is not repeated. An epoch of the whole network takes
half an hour of one core: with --work a run that was killed goes on, and one that ended by --until takes more epochs.
The table and the figure are made from that file (--page alone makes them again). The noise is seeded, so these models
are not private: experiments on public data. A seed repeats a run on the same machine with the same versions; elsewhere
roundings differ, and numbers do within the spread of the seeds.
"""

import argparse
import copy
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from almoner import filters, mechanisms, odometers, training
from almoner.report import figures
from almoner.training import callbacks
from almoner.training.gradients.augmentations import Views, shifted_and_flipped

HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE.parent)]
import imagenet  # noqa: E402
import journal  # noqa: E402
import lecuyers_policies  # noqa: E402
import pages  # noqa: E402
from data_sets import cifar10  # noqa: E402
from imagenet import Images  # noqa: E402
from policies import accuracy, planned_epsilon, spread  # noqa: E402
from replay import curves  # noqa: E402

LAYER, MOVED, NETWORK = "last layer", "last layer on moved images", "whole network"
"""The parts that are trained. For the whole network images are moved at random in each step. The last layer on moved
images is its control: it tells how much of a gain is due to moving them."""
COPIES = 4
"""So many moved copies of each image, for the last layer: in each step one of them, drawn at random, is taken."""
PARTS, NOISES = (LAYER, MOVED, NETWORK), ("noise 1", "falling noise")
RATES = {LAYER: 0.05, MOVED: 0.05, NETWORK: 0.01}
"""Learning rates: the last layer's chosen by --tune on images that are not moved, the network's his."""
TRIED = {LAYER: (0.002, 0.005, 0.01, 0.02, 0.05), MOVED: (0.02, 0.05), NETWORK: (0.005, 0.01, 0.02)}


@dataclass(frozen=True)
class Size:
    """The size of an experiment."""

    people: int
    tests: int
    side: int
    """Pixels to which images are enlarged for the pretrained network; 0: a small network with random parameters."""
    epochs: int
    """Of the plan."""
    sigma: float
    """The noise on a count of right answers."""
    rate: float = 0.01024
    epoch: int = 98
    """Steps of an epoch."""
    patience: int = 3
    """Epochs without a significant increase, after which the run stops."""
    target: float = 0.8
    """A share of images that are right: when it is reached is noted, too."""
    first: float = 2.0
    """Where falling noise begins."""
    least: float = 1.0
    by: float = 0.1
    momentum: float = 0.9
    delta: float = 1e-6
    clip: float = 1.0


WHOLE = Size(people=50_000, tests=10_000, side=112, epochs=50, sigma=100.0)
QUICK = Size(people=600, tests=300, side=0, epochs=3, sigma=10.0, rate=0.1, epoch=6, patience=1)


def plan(size: Size) -> mechanisms.Mechanism:
    """What is released if a run does not stop early: all steps at the least noise, and two questions an epoch."""
    step = mechanisms.SampledGaussian(size.least * size.clip, size.clip, size.rate)
    questions = mechanisms.Repeated(mechanisms.Gaussian(size.sigma, 1.0), 2 * size.epochs)
    return mechanisms.Composed((mechanisms.Repeated(step, size.epochs * size.epoch), questions))


class Enough(Exception):
    """So many epochs are done as were asked for; the folder keeps them."""


class Noting:
    """Stands between a policy and its run: notes the first time that the policy says stop, and lets the run go on.

    The note, (reason, step), is in the run's history, and so in its folder.
    """

    def __init__(self, policy: Any) -> None:
        self._policy, self._run = policy, None

    def __call__(self, run: Any) -> None:
        """Call the policy with this object in place of the run."""
        self._run = run
        self._policy(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._run, name)

    def stop(self, reason: str) -> None:
        """Note what the run would have ended with."""
        run: Any = self._run
        run.history.setdefault("stopped", [reason, run.step])


class First(nn.Module):
    """The features that come first, of those of an image and its moved copies: (n, 1 + copies, features)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(n, features)"""
        return x[:, 0]


def one_of_the_copies(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each image's features of one of its moved copies, drawn at random, come first."""
    drawn = torch.randint(1, x.shape[1], (len(x),), generator=generator)
    return torch.cat([x[torch.arange(len(x)), drawn].unsqueeze(1), x[:, 1:]], 1)


def start(part: str, size: Size, network: nn.Module, known: tuple[Images, Images], seed: int) -> Any:
    """The module to train, with a last layer of zeros, and the features or images that it is trained and tested on."""
    torch.manual_seed(seed)
    last = nn.Linear(network.count, 10)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    if part != NETWORK:
        return last if part == LAYER else nn.Sequential(First(), last), *known
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = nn.Sequential(copy.deepcopy(network), last).to(device)
    return module, *(images.to(device) for images in known)


def run(
    part: str,
    noise: str,
    size: Size,
    network: nn.Module,
    known: tuple[Images, Images],
    seed: int,
    rate: float,
    *,
    until: int | None = None,
    work: Path | None = None,
) -> dict[str, Any]:
    """Fine-tune to the end of the plan, and note what is known after each epoch and when the policy says stop.

    Args:
        part, noise, size, network, known, seed, rate: what is trained, and how.
        until: so many epochs at most. A run in a folder goes on there when it is given more.
        work: the folder, private; None: none.
    """
    module, train, test = start(part, size, network, known, seed)
    falling, moves = noise == "falling noise", {NETWORK: shifted_and_flipped(4), MOVED: one_of_the_copies}
    stopping = callbacks.EarlyStopping(
        patience=size.patience,
        every=size.epoch,
        odometer=odometers.Renyi(delta=size.delta, plan=plan(size)),
        sigma=size.sigma,
    )
    noting, begun = Noting(stopping), time.perf_counter()
    history: dict[str, Any] = {}

    def look(now: Any) -> None:
        nonlocal history, begun
        history = now.history
        looks = history.setdefault("looks", [])
        history["seconds"], begun = history.get("seconds", 0.0) + time.perf_counter() - begun, time.perf_counter()
        if now.step > size.epoch * len(looks) and now.step % size.epoch == 0:
            meter, count = stopping.odometer, now.history["EarlyStopping"]["count"]
            bounds = meter.ex_post_epsilon(), meter.epsilon()
            looks.append([now.step // size.epoch, now.noise_multiplier, count, *bounds])
            looks[-1].append(accuracy(module, test.x, test.y))
            looks[-1] = [float(f"{value:.6g}") for value in looks[-1]]
            if part == NETWORK:
                print(f"  {part}, {noise}, seed {seed}:", looks[-1], f"{history['seconds']:.0f} s", flush=True)
        if until is not None and len(looks) >= until:
            raise Enough

    lower = lecuyers_policies.ReduceNoiseOnPlateau(
        by=size.by, least=size.least, every=1, epoch=size.epoch, sigma=size.sigma
    )
    going_on = journal.resuming(work, seed)
    trainer = training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD([each for each in module.parameters() if each.requires_grad], lr=rate, momentum=size.momentum),
        filters.Renyi(epsilon=plan_epsilon(size), delta=size.delta, plan=plan(size)),
        max_grad_norm=size.clip,
        divisor=len(train.y),
        steps=size.epochs * size.epoch,
        individual=False,
        noise_multiplier=size.first if falling else size.least,
        sampling=training.Poisson(size.rate),
        compute=training.Compute(views=Views(moves[part], count=1, seed=seed)) if part in moves else None,
        seed=going_on["seed"],
    )
    with suppress(Enough):
        called: list[Any] = [noting, look, *([lower] if falling else [])]
        trainer.fit(train.x, train.y, callbacks=called, folder=going_on["folder"])
    row = {"size": asdict(size), "part": part, "noise": noise, "seed": seed, "rate": rate, "looks": history["looks"]}
    return row | {
        "stopped": history["stopped"][1] // size.epoch if "stopped" in history else None,
        "people": len(train.y),
        "seconds": history["seconds"],
        "machine": journal.machine(),
    }


@cache
def plan_epsilon(size: Size) -> float:
    """The epsilon of the whole plan."""
    return planned_epsilon(plan(size), size.delta)


def looks_of(row: dict[str, Any]) -> list[dict[str, float]]:
    """What is known of a run after each epoch; with his odometer, which leaves the counts out, as in the paper."""
    names = ("epoch", "noise", "count", "ex-post", "pathwise", "accuracy")
    looks = [dict(zip(names, look, strict=True)) for look in row["looks"]]
    his = curves(tuple(look["noise"] for look in looks))["his"]
    return [look | {"his": value} for look, value in zip(looks, his, strict=True)]


def at(row: dict[str, Any], moment: str, size: Size) -> dict[str, float] | None:
    """What is known of a run at a moment, if it came.

    "stopped": when the policy said stop; "target": when so many training images are right by their noisy count, less
    three standard deviations; "test": when so many test images are right, as in the paper; "last": after all epochs.
    """
    looks = looks_of(row)
    if moment == "target":
        margin = callbacks.DEVIATIONS * size.sigma
        found = [look for look in looks if look["count"] - margin >= size.target * row["people"]]
    elif moment == "test":
        found = [look for look in looks if look["accuracy"] >= 100 * size.target]
    else:
        epoch = {"stopped": row["stopped"], "last": looks[-1]["epoch"]}[moment]
        found = [look for look in looks if look["epoch"] == epoch]
    return found[0] if found else None


MOMENTS = {
    "test": "{target:g} % of the test images right",
    "target": "{target:g} % of the training images right, by the noisy count less three standard deviations",
    "stopped": "no significant increase in {patience} epochs",
    "last": "the last epoch",
}
UNFINISHED = "the last epoch that was trained, of {epochs}"


def table(results: list[dict[str, Any]], size: Size) -> str:
    """What each kind of run has reached and spent at each moment, as Markdown."""
    lines = [
        "| trained | noise | moment | seeds | epoch | test accuracy, % | ours, ex-post | ours, pathwise | "
        "his odometer |",
        "|---" * 9 + "|",
    ]
    for part, noise in cells(PARTS):
        rows = [row for row in results if (row["part"], row["noise"]) == (part, noise)]
        for moment, text in MOMENTS.items() if rows else ():
            there = [found for row in rows if (found := at(row, moment, size))]
            if moment == "last" and there[0]["epoch"] < size.epochs:
                text = UNFINISHED
            named = text.format(target=100 * size.target, patience=size.patience, epochs=size.epochs)
            columns = (("epoch", 0), ("accuracy", 1), ("ex-post", 2), ("pathwise", 2), ("his", 2))
            numbers = [spread([found[key] for found in there], digits) for key, digits in columns]
            lines.append(f"| {part} | {noise} | {named} | {len(there)} of {len(rows)} | {' | '.join(numbers)} |")
    return "\n".join(lines) + "\n"


def cells(parts: tuple[str, ...]) -> list[tuple[str, str]]:
    """What is trained, and the noise, of each kind of run."""
    return [(part, noise) for part in parts for noise in NOISES]


@figures.styled()
def draw(results: list[dict[str, Any]], size: Size, out: Path) -> None:
    """Test accuracy over the epochs and over epsilon, as figures 2(a) to 2(d); dots at the target, squares at stops."""
    picture = figures.figure(10, 4.2)
    panels = picture.subplots(1, 2, sharey=True)
    kinds = [kind for kind in cells(PARTS) if any((row["part"], row["noise"]) == kind for row in results)]
    first = set[tuple[str, str]]()
    for row in results:
        kind = row["part"], row["noise"]
        colour, looks = f"C{kinds.index(kind)}", looks_of(row)
        label = None if kind in first else ", ".join(kind)
        first.add(kind)
        for axis, key in zip(panels, ("epoch", "ex-post"), strict=True):
            axis.plot(
                [look[key] for look in looks], [look["accuracy"] for look in looks], color=colour, lw=1, label=label
            )
            for moment, mark in (("test", "o"), ("stopped", "s")):
                if found := at(row, moment, size):
                    axis.plot(found[key], found["accuracy"], mark, color=colour, ms=4)
    panels[1].axvline(plan_epsilon(size), color="0.5", ls=":", lw=1)
    panels[0].set(xlabel="epochs", ylabel="test accuracy, %")
    panels[1].set_xlabel(f"ex-post epsilon at delta = {size.delta:g}; dotted: the plan's")
    panels[0].legend(loc="lower right")
    pages.save_picture(picture, "finetune", out)


def furthest(results: list[dict[str, Any]], size: Size) -> list[dict[str, Any]]:
    """The runs of a size; of one that went on later, the longest record."""
    found: dict[Any, dict[str, Any]] = {}
    for row in (row for row in results if row["size"] == asdict(size)):
        before = found.setdefault((row["part"], row["noise"], row["seed"]), row)
        if len(row["looks"]) > len(before["looks"]):
            found[row["part"], row["noise"], row["seed"]] = row
    return list(found.values())


def write(size: Size, results: list[dict[str, Any]], out: Path) -> None:
    """The table of the page, and its picture."""
    out.mkdir(parents=True, exist_ok=True)
    rows = furthest(results, size)
    pages.insert(out / "finetune.md", table(rows, size))
    draw(rows, size, out)


def tune(part: str, size: Size, network: nn.Module, train: Images, only: str) -> None:
    """Print what each learning rate gives, on the last fifth of the training people."""
    count = len(train.y) * 4 // 5
    for noise in NOISES:
        for rate in TRIED[part]:
            if only in f"{part}, {noise}, {rate}":
                row = run(part, noise, size, network, (train.first(count), train.after(count)), 100, rate)
                shown = {int(look[0]): look[5] for look in row["looks"] if look[0] in (1, 2, 4, 7, 10, 15, 20, 30, 50)}
                print(part, noise, rate, shown, row["looks"][-1][3], f"{row['seconds']:.0f} s", flush=True)


def data(part: str, size: Size, network: nn.Module, *, quick: bool) -> tuple[Images, Images]:
    """Features or images of training and test; the quick form takes both from the smaller file, and keeps nothing."""
    x_test, y_test = cifar10("test")
    x, y = (x_test[size.tests :], y_test[size.tests :]) if quick else cifar10("train")

    def made(pixels: Any) -> torch.Tensor:
        if part == NETWORK:
            return imagenet.scaled(pixels)
        if quick:
            with torch.no_grad():
                return network(imagenet.scaled(pixels))
        return imagenet.through(network, pixels)

    x, x_test = x[: size.people], x_test[: size.tests]
    train, test = made(x), made(x_test)
    if part == MOVED:
        train = torch.stack([train, *(made(imagenet.moved(x, seed)) for seed in range(COPIES))], 1)
        test = test.unsqueeze(1)
    return Images(train, torch.from_numpy(y[: size.people])), Images(test, torch.from_numpy(y_test[: size.tests]))


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    """Run what is not recorded, print, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few people, few steps; writes nothing by itself")
    parser.add_argument("--part", choices=PARTS, default=PARTS[0], help="what is trained")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", default="", help='runs whose name has this text: "last layer, noise 1, 0"')
    parser.add_argument("--until", type=int, help="so many epochs of the plan; with more, a run goes on in its folder")
    parser.add_argument("--work", type=Path, help="a folder, private, for runs that a kill must not lose")
    parser.add_argument("--side", type=int, default=WHOLE.side, help="pixels to which images are enlarged")
    parser.add_argument("--tune", action="store_true", help="try learning rates, and write nothing")
    parser.add_argument("--page", action="store_true", help="make table and figure from the record alone")
    parser.add_argument("--out", type=Path, default=None, help="the folder of finetune.jsonl and finetune.md")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else replace(WHOLE, side=options.side)
    out = options.out or (None if options.quick else pages.DOCS)
    record = None if out is None else pages.results(out) / "finetune.jsonl"
    results = [] if record is None else journal.recorded(record)
    epochs = min(options.until or size.epochs, size.epochs)
    kinds = [
        {"size": asdict(size), "part": part, "noise": noise, "seed": seed}
        for part, noise in cells(PARTS if options.quick else (options.part,))
        for seed in range(1 if options.quick else options.seeds)
        if options.only in f"{part}, {noise}, {seed}"
    ]
    done = [row for row in results if len(row["looks"]) >= epochs]
    missing: list[dict[str, Any]] = [kind for kind in kinds if not any(kind.items() <= row.items() for row in done)]
    if options.tune or (missing and not options.page):
        network = imagenet.body(size.side)
        parts = {options.part} if options.tune else {kind["part"] for kind in missing}
        known = {part: data(part, size, network, quick=options.quick) for part in parts}
        if options.tune:
            tune(options.part, size, network, known[options.part][0], options.only)
            return []
        for kind in missing:
            part, noise, seed = kind["part"], kind["noise"], kind["seed"]
            work = options.work and options.work / f"{part}-{noise}-{size.side}-{seed}".replace(" ", "-")
            how: dict[str, Any] = {"until": options.until and epochs, "work": work}
            made = run(part, noise, size, network, known[part], seed, RATES[part], **how)
            results.append(made)
            print(part, noise, seed, f"{made['looks'][-1][5]:.1f} %, {made['seconds']:.0f} s", flush=True)
            if record is not None:
                record.parent.mkdir(parents=True, exist_ok=True)
                journal.record(record, made)
    print(table(furthest(results, size), size))
    if out is not None:
        write(size, results, out)
    return results


if __name__ == "__main__":
    main()

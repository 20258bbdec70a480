"""Feldman & Zrnic (2021), MNIST: private gradient descent with and without individual filtering.

    python experiments/feldman_zrnic_2021/mnist.py --epsilon 0.3 --seeds 3   # as printed: 17 minutes a seed on one core
    python experiments/feldman_zrnic_2021/mnist.py --epsilon 0.3 --seeds 3 --control   # planned for k_max steps
    python experiments/feldman_zrnic_2021/mnist.py --tuned --epsilon 0.3     # our clip, rate and average of iterates
    python experiments/feldman_zrnic_2021/mnist.py --exact --epsilon 0.3 --steps 150   # exact Gaussian accounting
    python experiments/feldman_zrnic_2021/mnist.py --quick                   # few people, few steps; nothing is written

Measures the accuracy on the test images over the steps, for the four rows of the paper's table as printed in section
6.1: noise, clip, learning rate, k and k_max, the last iterate. One run gives both columns: everybody can pay for k full
steps, so filtering is plain descent until step k, with the same noise; it then goes on to k_max with those who have
budget left. The rows 0.3 also carry the paper's odometer for each person (Algorithm 6, figure 2). The control is plain
descent planned for k_max steps, with the noise that the same promise then needs, and the same seed, clip and rate.

Each finished run is appended to experiments/results/mnist.jsonl, and is not run again on such a device. A GPU is used
where there is one; there, several runs share it (``--workers``). On a processor a run that was killed goes on from its
folder in ``--work``. The noise is seeded, so the models are not private. A seed repeats a run on the same machine with
the same versions; elsewhere roundings differ, and numbers do within the spread of the seeds. The figures show counts of
people by their privacy loss, and the records who is misclassified, which may not be published for private data.
"""

import argparse
import json
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from almoner import filters, mechanisms, odometers
from almoner.training import FullBatch, Trainer

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from data_sets import digits, folder  # noqa: E402
from journal import machine, record, recorded, resuming  # noqa: E402

DELTA, ALL, TUNE = 1e-5, 60_000, 10_000
ALPHA, FILTER_SIZE, LOOKS = 63.0, 0.00109, (52, 104, 125)
"""Of figure 2: the Rényi order, the size of a filter, and the steps at which it is drawn."""
CLOSE = 10
"""Every iterate is looked at from so many steps before the printed k on."""


@dataclass(frozen=True)
class Printed:
    """A row of the paper's table: its section 6.1."""

    epsilon: float
    sigma: float
    clip: float
    rate: float
    steps: int
    k_max: int
    plain: tuple[float, float]
    filtered: tuple[float, float]
    """Accuracy in percent and its deviation over 10 trials."""


PRINTED = {
    0.3: Printed(0.3, 170.0, 10.0, 0.2, 104, 125, (92.80, 0.52), (93.18, 0.32)),
    0.5: Printed(0.5, 130.0, 15.0, 0.15, 180, 198, (94.62, 0.43), (94.90, 0.26)),
    1.2: Printed(1.2, 88.0, 10.0, 0.25, 460, 460, (96.56, 0.15), (96.56, 0.15)),
    3.0: Printed(3.0, 50.0, 10.0, 0.25, 875, 875, (97.71, 0.12), (97.71, 0.12)),
}


@dataclass(frozen=True)
class Setting:
    """How one run is trained. ``noise_multiplier`` None: that of exact Gaussian accounting at epsilon."""

    kind: str
    epsilon: float
    noise_multiplier: float | None
    steps: int
    k_max: int
    clip: float
    learning_rate: float
    momentum: float = 0.0
    decay: float = 0.0
    average: float = 0.0
    people: int = ALL
    """So many of the training images; with fewer the noise is scaled to their number, and there is no guarantee."""


def images(name, place):
    """(n, 1, 28, 28) images standardised by public constants, and labels; place: the folder of MNIST."""
    pixels, labels = digits(place, name)
    return torch.from_numpy((pixels[:, None].astype(np.float32) / 255 - 0.5) / 0.5), torch.from_numpy(labels)


def usual_device():
    """A GPU where there is one."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def network(device="cpu"):
    """The network of the PyTorch-DP MNIST example, on a device; on a GPU its convolutions keep ten bits, as usual."""
    module = nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip
    if device == "cpu":
        return module.to(memory_format=torch.channels_last)
    torch.backends.cudnn.deterministic = True  # so that a seed repeats a run
    return module.to(device)


def right(module, values, x, y):
    """(n,) whether the module with these parameters answers correctly."""
    names = [name for name, _ in module.named_parameters()]
    with torch.no_grad():
        answers = [
            functional_call(module, dict(zip(names, values, strict=True)), part).argmax(1) for part in x.split(5000)
        ]
    return torch.cat(answers).eq(y).cpu().numpy()


def accuracy(module, values, x, y):
    """Share of correct answers of the module with these parameters, in percent."""
    return round(100 * float(right(module, values, x, y).mean()), 2)


class Watch:
    """A callback that notes accuracy and people with budget left; notes live in the run's history, in its folder."""

    def __init__(self, setting, module, train, test):
        self.setting, self.module, self.train, self.test = setting, module, train, test
        self.trainer, self.since = None, time.perf_counter()
        self.close = min(setting.steps, PRINTED[setting.epsilon].steps) - CLOSE
        self.filter_size = FILTER_SIZE * (ALL / setting.people) ** 2  # with less noise a step costs so much more

    def __call__(self, run):
        """Set the rate of the next step, and look."""
        notes, set_ = run.history, self.setting
        for name in ("curve", "active", "missed", "odometers"):
            notes.setdefault(name, [])
        now = time.perf_counter()
        notes["seconds"], self.since = notes.get("seconds", 0.0) + now - self.since, now
        for group in run.optimizer.param_groups:
            left = 1 - run.step / set_.k_max
            group["lr"] = set_.learning_rate * (min(1.0, left / set_.decay) if set_.decay else 1.0)
        values = [parameter.detach() for parameter in self.module.parameters()]
        if set_.average:
            before = notes.get("average", values)
            notes["average"] = [
                old.lerp(new, 1 - set_.average) if run.step > 1 else new.clone()
                for old, new in zip(before, values, strict=True)
            ]
        new = not notes["curve"] or notes["curve"][-1][0] < run.step
        if new and run.step and (run.step >= self.close or run.step % 4 == 0):
            found = [accuracy(self.module, values, *self.test)]
            if set_.average:
                found.insert(0, accuracy(self.module, notes["average"], *self.test))
            notes["curve"].append([run.step, *found])
            if run.step >= set_.steps and set_.kind != "control":
                inside = np.asarray(self.trainer.accounts.allowance(run.next_step())) > 1e-3 * set_.clip
                wrong = ~right(self.module, values, *self.train)
                notes["active"].append([run.step, float(np.mean(inside))])
                notes["missed"].append([run.step, float(np.mean(wrong)), float(np.mean(wrong & inside))])
        if self.has_odometer and run.step in LOOKS:
            opened = np.rint(self.trainer.odometer.opened() / self.filter_size).astype(int)
            notes["odometers"].append([run.step, np.bincount(opened).tolist()])

    @property
    def has_odometer(self):
        """Whether the run carries the paper's odometer for each person."""
        return self.setting.kind == "printed" and self.setting.epsilon == 0.3


def run(train, test, setting, seed, *, budget, work, device="cpu"):
    """Train once, or go on; the line to record."""
    torch.manual_seed(seed)
    module = network(device)
    going_on = resuming(work if device == "cpu" else None, seed)  # a GPU takes seconds
    watch = Watch(setting, module, train, test)
    odometer = odometers.FeldmanZrnic(delta=DELTA, alpha=ALPHA, step=watch.filter_size)
    trainer = Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=setting.learning_rate, momentum=setting.momentum),
        budget,
        max_grad_norm=setting.clip,
        noise_multiplier=setting.noise_multiplier,
        divisor=len(train[0]),
        steps=setting.steps,
        sampling=FullBatch(pace=0.0, extra_steps=setting.k_max - setting.steps),  # Algorithm 8
        seed=going_on["seed"],
    )
    watch.trainer = trainer
    bounds = odometer if watch.has_odometer else None
    done = trainer.fit(*train, callbacks=[watch], watch=bounds, folder=going_on["folder"])
    notes = done.history
    charged = sum(count for one, count in done.released.items() if isinstance(one, mechanisms.Gaussian))
    return (
        vars(setting)
        | {
            "noise_multiplier": trainer.noise_multiplier,
            "seed": seed,
            "at_steps": next(found for step, found, *_ in notes["curve"] if step == setting.steps),
            "accuracy": notes["curve"][-1][1],
            "charged_again_after_a_kill": charged - done.step,
            "seconds": round(notes["seconds"], 1),
            **machine(device),
            "curve": notes["curve"],
            "active": notes["active"],
            "missed": notes["missed"],
        }
        | ({"odometers": notes["odometers"]} if watch.has_odometer else {})
    )


def settings(options):
    """The settings that the command line names, and the budget of each in Gaussian DP."""
    for epsilon in options.epsilon[:1] if options.quick else options.epsilon:
        row = PRINTED[epsilon]
        steps = options.steps or (6 if options.quick else row.steps)
        sigma, people = row.sigma, TUNE if options.tune else options.people
        fewer = people / ALL
        mu = float(np.sqrt(steps)) / sigma / fewer * (1 + 1e-9)
        if options.exact:
            mu, sigma = filters.Gaussian(epsilon=epsilon, delta=DELTA).mu / fewer, None
        if options.tuned or options.exact:
            k_max = steps + round(options.extra * steps)
            how = {"clip": 1.0, "learning_rate": options.rate, "average": options.average}
        else:
            k_max = row.k_max if steps == row.steps else steps + 2
            how = {"clip": row.clip, "learning_rate": row.rate}
        kind = "exact" if options.exact else "tuned" if options.tuned else "printed"
        noise = sigma and sigma * fewer  # the same noise for each person as in the full run; no guarantee
        how |= {"momentum": options.momentum, "decay": options.decay, "people": people}
        if options.control:
            yield Setting("control", epsilon, noise * float(np.sqrt(k_max / steps)), k_max, k_max, **how), mu
        else:
            yield Setting(kind, epsilon, noise, steps, k_max, **how), mu


@cache
def loaded(place, quick, tune, people, device):
    """(x, y) of the training images and of those that judge, on the device."""
    train, test = (images(name, folder("mnist", place)) for name in ("train", "t10k"))
    if quick:
        train, test = tuple(part[:1000] for part in train), tuple(part[:1000] for part in test)
    if tune:
        test = tuple(part[-TUNE:] for part in train)
    train = tuple(part[: TUNE if tune else people] for part in train)
    return tuple(tuple(part.to(device) for part in parts) for parts in (train, test))


def train_one(options, setting, seed, mu):
    """The line of one run."""
    parts = loaded(options.data, options.quick, options.tune, options.people, options.device)
    work = options.work / f"{setting.kind}-{setting.epsilon}-{setting.people}-{seed}"
    line = run(*parts, setting, seed, budget=filters.Gaussian(mu=mu), work=work, device=options.device)
    shutil.rmtree(work, ignore_errors=True)
    return line


def missing(options, keep):
    """The runs that are asked for and not recorded, on such a device."""
    for setting, mu in settings(options):
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            wanted = vars(setting) | {"seed": seed, "device": machine(options.device)["device"]}
            if setting.noise_multiplier is None:
                del wanted["noise_multiplier"]
            if not keep or all(wanted != {name: line.get(name) for name in wanted} for line in recorded(options.out)):
                yield setting, seed, mu


def train_all(options):
    """Train what is not recorded, one after the other or side by side."""
    keep, longest, begun = not (options.quick or options.tune), 0.0, time.monotonic()

    def done(line):
        shown = ("kind", "epsilon", "seed", "at_steps", "accuracy", "seconds")
        print(json.dumps({key: line[key] for key in shown}), flush=True)
        if keep:
            record(options.out, line)

    if options.workers > 1:
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            for each in as_completed([pool.submit(train_one, options, *one) for one in missing(options, keep)]):
                done(each.result())
        return
    for one in missing(options, keep):
        if 60 * options.minutes < time.monotonic() - begun + 1.1 * longest:
            return
        started = time.monotonic()
        done(train_one(options, *one))
        longest = max(longest, time.monotonic() - started)


def main():
    """Parse the command line, then train, or make the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--epsilon", type=float, choices=sorted(PRINTED), nargs="*", default=sorted(PRINTED))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=np.inf, help="start no run that would end later")
    parser.add_argument("--device", default=usual_device(), help="cpu or cuda; a GPU where there is one")
    parser.add_argument("--workers", type=int, default=1, help="so many runs side by side")
    parser.add_argument("--control", action="store_true", help="plain descent planned for k_max steps")
    parser.add_argument("--tuned", action="store_true", help="clip 1 and the rate and average of these options")
    parser.add_argument("--exact", action="store_true", help="the same; exact Gaussian accounting gives the noise")
    parser.add_argument("--rate", type=float, default=3.0)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument(
        "--decay", type=float, default=0.0, help="the last share of steps, over which the rate falls to 0"
    )
    parser.add_argument("--average", type=float, default=0.9, help="weight of the moving average of the iterates")
    parser.add_argument("--extra", type=float, default=0.0, help="more steps for filtering, as a share")
    parser.add_argument(
        "--people", type=int, default=ALL, help="so many training images, with less noise in proportion"
    )
    parser.add_argument("--steps", type=int, help="instead of the printed number")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--tune", action="store_true", help="10,000 training images with less noise in proportion; validate on others"
    )
    parser.add_argument(
        "--out", type=Path, default=HERE.parent / "results" / "mnist.jsonl", help="the file of finished runs"
    )
    parser.add_argument("--work", type=Path, default=Path("mnist-checkpoints"), help="a folder, private")
    train_all(parser.parse_args())


if __name__ == "__main__":
    main()

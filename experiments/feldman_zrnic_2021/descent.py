"""Feldman & Zrnic (2021), section 6: private gradient descent against DP-SGD at the same epsilon.

    python experiments/feldman_zrnic_2021/descent.py            # a quarter of an hour a linear row on one core
    python experiments/feldman_zrnic_2021/descent.py --only 4 --workers 8    # the paper's network, on a GPU
    python experiments/feldman_zrnic_2021/descent.py --only 5    # the same at 3.0: five hours of one core
    python experiments/feldman_zrnic_2021/descent.py --quick    # one trial, two seeds, 1,000 people; nothing is written

Measures the accuracy on the test files of one model, trained with all people in every step (GD) or with a Poisson
sample of them (DP-SGD), everybody charged the worst case. Both get the same promise (epsilon, 1e-5), the accounting
that is best for them, the same clip, features and start, and the last iterate is the model: a linear one, or the
paper's network on all images of MNIST. Both are tuned with the same number of trials, three plans times three learning
rates, judged on a quarter of the training people; the network's trials train on a third of the others, with the noise
scaled to their number. The chosen setting is then trained on all training people with five seeds (three of the
network), and the test file is read once for each.

Each finished run is appended to experiments/results/descent.jsonl, and is not run again; on a processor a run of the
network with everybody in each step goes on from its folder in ``--work`` after Ctrl-C or SIGTERM. A GPU is used where
there is one. The noise is seeded, so these models are not private: experiments on public data. A seed repeats a run on
the same machine with the same versions; elsewhere roundings differ, and numbers do within the spread of the seeds.
"""

import argparse
import json
import shutil
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from adult import SCHEMAS, data_folder, features
from mnist import images, network, usual_device
from torch import nn

from almoner import odometers
from almoner.training import Poisson, Target, Trainer

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
import pages  # noqa: E402
from journal import machine, record, recorded, resuming  # noqa: E402

DELTA = 1e-5
LINEAR, NETWORK = "MNIST, 10,000 images", "MNIST, the paper's network"
TASKS = (("Adult", 1.2), (LINEAR, 1.2), (LINEAR, 3.0), ("Adult", 0.3), (NETWORK, 1.19), (NETWORK, 3.0))
OWN = {"GD": ((None, 100), (None, 200), (None, 400)), "SGD": ((0.02, 300), (0.02, 1000), (0.1, 300))}
PLANS = dict.fromkeys(TASKS[:4], OWN) | {
    (NETWORK, 1.19): {
        "GD": ((None, 115), (None, 230), (None, 460)),
        "SGD": ((0.0043, 3500), (0.0125, 1500), (0.025, 750)),
    },
    (NETWORK, 3.0): {
        "GD": ((None, 219), (None, 438), (None, 875)),
        "SGD": ((0.025, 750), (0.025, 1500), (0.05, 750)),
    },
}
"""Sample rates (None: everybody), and steps."""
RATES = {
    ("Adult", "GD"): (3.0, 6.0, 12.0),
    ("Adult", "SGD"): (2.0, 4.5, 9.0),
    (LINEAR, "GD"): (0.5, 1.5, 4.5),
    (LINEAR, "SGD"): (0.3, 0.9, 2.7),
    (NETWORK, "GD"): (1.5, 3.0, 6.0),
    (NETWORK, "SGD"): (0.25, 0.75, 2.25),
    (NETWORK, 3.0, "SGD"): (0.75, 2.25, 6.75),
}
"""Learning rates, of a task or of a task at an epsilon: at 1.19 the network chose the highest for DP-SGD."""
CLIP = {"Adult": 0.7, LINEAR: 1.0, NETWORK: 1.0}
SEEDS = {"Adult": 5, LINEAR: 5, NETWORK: 3}
TRIED_ON = {"Adult": 1.0, LINEAR: 1.0, NETWORK: 1 / 3}
"""The share of the people that are not held out that a trial trains on, with the noise scaled to their number."""


class Job(NamedTuple):
    """One training: of the people that are not held out, judged on those (seed 0), or of all, judged on the test."""

    task: str
    epsilon: float
    sample_rate: float | None
    steps: int
    learning_rate: float
    noise_multiplier: float
    seed: int


@cache
def loaded(task, folder, few, device):
    """(x, y) of the training people, of the test file, of those that trials train on, and of those held out."""
    if task == "Adult":
        files = (features(SCHEMAS["own"], folder / "adult" / name) for name in ("adult.data", "adult.test"))
        train, test = ((torch.from_numpy(np.asarray(x.todense() if hasattr(x, "todense") else x)).float(),
                      torch.from_numpy(np.asarray(y)).long()) for x, y in files)  # fmt: skip
    else:
        train, test = (images(name, folder / "mnist") for name in ("train", "t10k"))
        if task == LINEAR:
            train, test = tuple(part[:10_000] for part in train), (test[0].flatten(1), test[1])
            train = train[0].flatten(1), train[1]
    train = tuple(part[:1000] for part in train) if few else train
    order = torch.from_numpy(np.random.default_rng(7).permutation(len(train[0])))
    held, inside = order[: len(order) // 4], order[len(order) // 4 :]
    inside = inside[: round(TRIED_ON[task] * len(inside))]
    parts = (train, test, *(tuple(part[rows] for part in train) for rows in (inside, held)))
    return tuple(tuple(part.to(device) for part in pair) for pair in parts)


@cache
def least_noise(task, epsilon, rate, steps):
    """The least noise multiplier with which so many steps fit (epsilon, DELTA)."""
    budget = Target(epsilon, DELTA)
    return _trainer(nn.Linear(2, 2), budget, rate, steps, None, CLIP[task], 1.0, 10, 0).noise_multiplier


def _trainer(module, budget, rate, steps, noise_multiplier, clip, learning_rate, n, seed):
    return Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=learning_rate),
        budget,
        max_grad_norm=clip,
        noise_multiplier=noise_multiplier,
        divisor=n,
        steps=steps,
        individual=False,
        sampling=None if rate is None else Poisson(rate),
        seed=seed,
    )


def train(job, folder, few, work, device):
    """Train once, or go on in the folder; percent of right answers, and seconds since it was last begun."""
    started = time.perf_counter()
    whole, test, inside, held = loaded(job.task, folder, few, device)
    (x, y), (x_judged, y_judged) = (whole, test) if job.seed else (inside, held)
    if job.task == NETWORK:
        torch.manual_seed(job.seed)
        module = network(device)
    else:
        module = nn.Linear(x.shape[1], int(y.max()) + 1)
        nn.init.zeros_(module.weight)
        nn.init.zeros_(module.bias)
        module.to(device)
    noise, budget = job.noise_multiplier, Target(job.epsilon, DELTA)
    if not job.seed and TRIED_ON[job.task] < 1:  # as noisy for the model as among all who are not held out
        noise, budget = noise * TRIED_ON[job.task], odometers.Renyi(delta=DELTA)
    how = budget, job.sample_rate, job.steps, noise, CLIP[job.task], job.learning_rate
    long = job.task == NETWORK and job.sample_rate is None and device == "cpu" and not few
    own = work / "-".join(str(part) for part in (job.epsilon, job.steps, job.learning_rate, job.seed))
    going_on = resuming(own if long else None, job.seed)
    done = _trainer(module, *how, len(x), going_on["seed"]).fit(x, y, folder=going_on["folder"])
    if done.step != job.steps and not done.reason.startswith("the parameters have exploded"):
        raise RuntimeError(f"only {done.step} of {job.steps} steps fit")
    with torch.no_grad():
        answers = torch.cat([module(part).argmax(1) for part in x_judged.split(5000)])
    found = round(100 * float(answers.eq(y_judged).double().mean()), 3)
    shutil.rmtree(own, ignore_errors=True)
    return found, round(time.perf_counter() - started, 1)


class Runs:
    """Runs of jobs, side by side where there are workers; those that a journal has are not run again."""

    def __init__(self, journal, pool, *how):
        self.journal, self.pool, self.how = journal, pool, how
        self.lines = [] if journal is None else recorded(journal)

    def __call__(self, jobs):
        """[(accuracy, seconds)] of the jobs."""
        missing = [job for job in dict.fromkeys(jobs) if self.known(job) is None]
        if self.pool is None:
            for job in missing:
                self.add(job, *train(job, *self.how))
        else:
            longest_first = sorted(missing, key=lambda job: -job.steps * (job.sample_rate or 1.0))
            running = {self.pool.submit(train, job, *self.how): job for job in longest_first}
            for each in as_completed(running):
                self.add(running[each], *each.result())
        return [self.known(job) for job in jobs]

    def known(self, job):
        """Accuracy and seconds of a job; None if it has not run."""
        wanted = job._asdict()
        return next(((line["found"], line["seconds"]) for line in self.lines if wanted.items() <= line.items()), None)

    def device(self, job):
        """The device that ran a job."""
        return next(line["device"] for line in self.lines if job._asdict().items() <= line.items())

    def add(self, job, found, seconds, device=None):
        """Keep what was found."""
        self.lines.append(job._asdict() | {"found": found, "seconds": seconds} | machine(device or self.how[-1]))
        print(*job, found, seconds, flush=True)
        if self.journal is not None:
            record(self.journal, self.lines[-1])


def compare(tasks, runs, *, few):
    """Tune both on training people, then train both with paired seeds; a result for each task."""
    jobs = {}
    for task, epsilon in tasks:
        for way in ("GD", "SGD"):
            rates = RATES.get((task, epsilon, way), RATES[task, way])
            grid = [(*plan, rate) for plan in PLANS[task, epsilon][way] for rate in rates][: 1 if few else None]
            jobs[task, epsilon, way] = [
                Job(task, epsilon, *each, least_noise(task, epsilon, *each[:2]), 0) for each in grid
            ]
    runs([job for each in jobs.values() for job in each])
    best = {key: max(each, key=lambda job: runs.known(job)[0]) for key, each in jobs.items()}
    final = {
        key: [job._replace(seed=1 + seed) for seed in range(2 if few else SEEDS[key[0]])] for key, job in best.items()
    }
    runs([job for each in final.values() for job in each])
    results = []
    for task, epsilon in tasks:
        people = len(loaded(task, runs.how[0], few, runs.how[-1])[0][0])
        results.append({"task": task, "epsilon": epsilon, "people": people})
        for way in ("GD", "SGD"):
            key = task, epsilon, way
            results[-1][way] = {
                "trials": [[*job[2:5], runs.known(job)[0]] for job in jobs[key]],
                **dict(zip(("sample_rate", "steps", "learning_rate", "noise_multiplier"), best[key][2:6], strict=True)),
                "validation": runs.known(best[key])[0],
                "test": [runs.known(job)[0] for job in final[key]],
                "seconds": round(sum(runs.known(job)[1] for job in (*jobs[key], *final[key])), 1),
                "device": runs.device(final[key][0]),
            }
    return results


def table(results):
    """The results as a Markdown table."""
    lines = [
        "| people | epsilon | GD: steps, rate, noise | GD, % | DP-SGD: q, steps, rate, noise | DP-SGD, % | "
        "GD - SGD [95 %] | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        gd, sgd = one["GD"], one["SGD"]
        gaps = np.asarray(gd["test"]) - np.asarray(sgd["test"])
        a, b = (f"{np.mean(each['test']):.2f} ± {np.std(each['test'], ddof=1):.2f}" for each in (gd, sgd))
        lines.append(
            f"| {one['task']} | {one['epsilon']:g} | {gd['steps']}, {gd['learning_rate']:g}, "
            f"{gd['noise_multiplier']:.2f} | {a} | {sgd['sample_rate']:g}, {sgd['steps']}, {sgd['learning_rate']:g}, "
            f"{sgd['noise_multiplier']:.3f} | {b} | {pages.interval(gaps)} | {len(gaps)} |"
        )
    return "\n".join(lines) + "\n"


def main():
    """Run what is not recorded, and save; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one trial, two seeds, 1,000 people; nothing is written")
    parser.add_argument("--data", type=Path, default=None, help="the folder that holds adult and mnist")
    parser.add_argument("--only", type=int, nargs="+", default=range(len(TASKS)), help="rows of TASKS, from 0")
    parser.add_argument("--device", default=usual_device(), help="cpu or cuda; a GPU where there is one")
    parser.add_argument("--workers", type=int, default=1, help="so many runs side by side")
    parser.add_argument("--out", type=Path, default=pages.DOCS)
    parser.add_argument("--work", type=Path, default=Path("descent-checkpoints"), help="a folder, private")
    given = parser.parse_args()
    folder = given.data or data_folder().parent
    file = given.out / "descent.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.is_file() and not given.quick else []
    known = {(one["task"], one["epsilon"]) for one in results}
    tasks = [task for task in (TASKS[:2] if given.quick else [TASKS[row] for row in given.only]) if task not in known]
    pool = ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) if given.workers > 1 else None
    journal = None if given.quick else pages.results(given.out) / "descent.jsonl"
    results += compare(tasks, Runs(journal, pool, folder, given.quick, given.work, given.device), few=given.quick)
    if not given.quick:
        pages.save("descent", results, table(results), out=given.out)
    print(table(results))


if __name__ == "__main__":
    main()

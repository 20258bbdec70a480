"""Feldman & Zrnic (2021), section 6: private gradient descent against DP-SGD at the same epsilon.

    python experiments/feldman_zrnic_2021/descent.py            # a quarter of an hour a row on one core
    python experiments/feldman_zrnic_2021/descent.py --quick    # one trial, two seeds, 1,000 people; nothing is written

Measures the accuracy on the test files of one linear model, trained with all people in every step (GD) or with a
Poisson sample of them (DP-SGD), everybody charged the worst case. Both get the same promise (epsilon, 1e-5), the
accounting that is best for them, the same clip, features and start, and the last iterate is the model. Both are tuned
with the same number of trials, three plans times three learning rates, on a quarter of the training people. The chosen
setting is then trained on all training people with five seeds, and the test file is read once for each.

The noise is seeded, so these models are not private: experiments on public data. A seed repeats a run on the same
machine with the same versions; elsewhere roundings differ, and numbers do within the spread of the seeds.
"""

import argparse
import json
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import torch
from adult import SCHEMAS, data_folder, features
from mnist import images
from scipy import stats
from torch import nn

from almoner.training import Poisson, Target, Trainer

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
import pages  # noqa: E402

DELTA = 1e-5
PLANS = {"GD": ((None, 100), (None, 200), (None, 400)), "SGD": ((0.02, 300), (0.02, 1000), (0.1, 300))}
"""Sample rates (None: everybody), and steps."""
TASKS = (("Adult", 1.2), ("MNIST, 10,000 images", 1.2), ("MNIST, 10,000 images", 3.0), ("Adult", 0.3))
RATES = {
    ("Adult", "GD"): (3.0, 6.0, 12.0),
    ("Adult", "SGD"): (2.0, 4.5, 9.0),
    ("MNIST, 10,000 images", "GD"): (0.5, 1.5, 4.5),
    ("MNIST, 10,000 images", "SGD"): (0.3, 0.9, 2.7),
}
CLIP = {"Adult": 0.7, "MNIST, 10,000 images": 1.0}


def loaded(task, folder):
    """((x, y) of the training people, (x, y) of the test file)."""
    if task == "Adult":
        files = (features(SCHEMAS["own"], folder / "adult" / name) for name in ("adult.data", "adult.test"))
        return tuple((torch.from_numpy(np.asarray(x.todense() if hasattr(x, "todense") else x)).float(),
                      torch.from_numpy(np.asarray(y)).long()) for x, y in files)  # fmt: skip
    (x, y), test = (images(name, folder / "mnist") for name in ("train", "t10k"))
    return (x[:10_000].flatten(1), y[:10_000]), (test[0].flatten(1), test[1])


@cache
def least_noise(epsilon, rate, steps, clip):
    """The least noise multiplier with which so many steps fit (epsilon, DELTA)."""
    return _trainer(nn.Linear(2, 2), epsilon, rate, steps, None, clip, 1.0, 10, 0).noise_multiplier


def _trainer(module, epsilon, rate, steps, noise_multiplier, clip, learning_rate, n, seed):
    return Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=learning_rate),
        Target(epsilon, DELTA),
        max_grad_norm=clip,
        noise_multiplier=noise_multiplier,
        divisor=n,
        steps=steps,
        individual=False,
        sampling=None if rate is None else Poisson(rate),
        seed=seed,
    )


def accuracy(task, train, test, epsilon, rate, steps, learning_rate, seed):
    """Train once; percent of right answers."""
    x, y = train
    module = nn.Linear(x.shape[1], int(y.max()) + 1)
    nn.init.zeros_(module.weight)
    nn.init.zeros_(module.bias)
    multiplier = least_noise(epsilon, rate, steps, CLIP[task])
    trainer = _trainer(module, epsilon, rate, steps, multiplier, CLIP[task], learning_rate, len(x), seed)
    done = trainer.fit(x, y)
    if done.step != steps:
        raise RuntimeError(f"only {done.step} of {steps} steps fit")
    with torch.no_grad():
        return round(100 * float(module(test[0]).argmax(1).eq(test[1]).double().mean()), 3)


def compare(task, epsilon, folder, *, trials, seeds):
    """Tune both on training people, then train both with paired seeds."""
    train, test = loaded(task, folder)
    if trials == 1:
        train = tuple(part[:1000] for part in train)
    order = torch.from_numpy(np.random.default_rng(7).permutation(len(train[0])))
    inside, held = order[len(order) // 4 :], order[: len(order) // 4]
    result = {"task": task, "epsilon": epsilon, "people": len(order)}
    for way in ("GD", "SGD"):
        tried = []
        grid = [(plan, rate) for plan in PLANS[way] for rate in RATES[task, way]][:trials]
        started = time.perf_counter()
        for (rate, steps), learning_rate in grid:
            parts = (tuple(part[rows] for part in train) for rows in (inside, held))
            tried.append([rate, steps, learning_rate, accuracy(task, *parts, epsilon, rate, steps, learning_rate, 0)])
        rate, steps, learning_rate, validated = max(tried, key=lambda one: one[-1])
        found = [accuracy(task, train, test, epsilon, rate, steps, learning_rate, 1 + s) for s in range(seeds)]
        result[way] = {
            "trials": tried,
            "sample_rate": rate,
            "steps": steps,
            "learning_rate": learning_rate,
            "noise_multiplier": least_noise(epsilon, rate, steps, CLIP[task]),
            "validation": validated,
            "test": found,
            "seconds": round(time.perf_counter() - started, 1),
        }
        print(task, epsilon, way, steps, rate, learning_rate, validated, found, flush=True)
    return result


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
        spread = stats.t.ppf(0.975, len(gaps) - 1) * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
        a, b = (f"{np.mean(each['test']):.2f} ± {np.std(each['test'], ddof=1):.2f}" for each in (gd, sgd))
        lines.append(
            f"| {one['task']} | {one['epsilon']:g} | {gd['steps']}, {gd['learning_rate']:g}, "
            f"{gd['noise_multiplier']:.2f} | {a} | {sgd['sample_rate']:g}, {sgd['steps']}, {sgd['learning_rate']:g}, "
            f"{sgd['noise_multiplier']:.3f} | {b} | {np.mean(gaps):+.2f} "
            f"[{np.mean(gaps) - spread:+.2f}, {np.mean(gaps) + spread:+.2f}] | {len(gaps)} |"
        )
    return "\n".join(lines) + "\n"


def main():
    """Run what is not recorded, and save; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one trial, two seeds, 1,000 people; nothing is written")
    parser.add_argument("--data", type=Path, default=None, help="the folder that holds adult and mnist")
    parser.add_argument("--only", type=int, nargs="+", default=range(len(TASKS)), help="rows of TASKS, from 0")
    parser.add_argument("--out", type=Path, default=pages.DOCS)
    given = parser.parse_args()
    folder = given.data or data_folder().parent
    file = given.out / "descent.json"
    results = json.loads(file.read_text(encoding="utf-8")) if file.is_file() and not given.quick else []
    for task, epsilon in TASKS[:2] if given.quick else [TASKS[row] for row in given.only]:
        if any((one["task"], one["epsilon"]) == (task, epsilon) for one in results):
            continue
        trials, seeds = (1, 2) if given.quick else (9, 5)
        results.append(compare(task, epsilon, folder, trials=trials, seeds=seeds))
        if not given.quick:
            pages.save("descent", results, table(results), out=given.out)
    print(table(results))


if __name__ == "__main__":
    main()

"""A fixed clip and one that adapts, each begun too small, about right and too large, on Adult.

    python experiments/utility/clips.py           # settings on the training people, then the test people; resumes
    python experiments/utility/clips.py --quick   # 500 people, few steps; nothing is written

Logistic regression by ``Trainer`` on full batches at (1, 1e-5)-DP for each person, 100 steps, paced accounts. A fifth
of the training people judge three learning rates for each rule and each clip, with the noise scaled to the others.
With a fixed clip the rates are in proportion to 1 / clip, with an adaptive one they are the same for all clips. Each
run is a line of experiments/results/clips.jsonl.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1]))
import pages
from journal import record, recorded
from tables import Data, held_out, load

from almoner import filters, training
from almoner.curves import gaussian
from almoner.training import callbacks

PAGE = pages.DOCS / "adaptive-clip.md"

EPSILON, DELTA, STEPS = 1.0, 1e-5, 100
CLIPS = (0.005, 0.05, 0.5, 5.0, 50.0)
RATES = (2.0, 8.0, 32.0)
"""Learning rate times clip where it is fixed; times 0.5 where it adapts."""
QUANTILES = {"fixed": None, "adaptive, 0.8": 0.8, "adaptive, median": 0.5}
"""The rules; of the adaptive ones the quantile that is followed."""
TUNE_SEED, SEEDS = 1000, 5


def run(data: Data, rule: str, clip: float, rate: float, seed: int, *, mu: float, steps: int) -> dict[str, float]:
    """Train once: accuracy of the averaged model in percent on the test people, and the clip at the end."""
    torch.manual_seed(seed)
    inputs, labels = dense(data.x), torch.from_numpy(data.y.astype(np.int64))
    module = nn.Linear(inputs.shape[1], 2, bias=False)
    nn.init.zeros_(module.weight)
    quantile = QUANTILES[rule]
    optimizer = torch.optim.SGD(module.parameters(), lr=rate / (clip if quantile is None else 0.5))
    mean = callbacks.MovingAverage(0.9)
    trainer = training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        optimizer,
        filters.Gaussian(mu=mu),
        max_grad_norm=clip,
        noise_multiplier=float(np.sqrt(steps)) / mu * (1 + 1e-9),
        divisor=float(data.count),
        steps=steps,
        seed=seed,
    )
    adaptive = [] if quantile is None else [callbacks.AdaptiveClip(quantile=quantile, rate=0.5)]
    done = trainer.fit(inputs, labels, callbacks=[*adaptive, mean])
    with torch.no_grad():
        right = mean.module(dense(data.x_test)).argmax(-1).numpy() == data.y_test
    return {"accuracy": round(100 * float(np.mean(right)), 3), "last clip": round(done.max_grad_norm, 5)}


def dense(x: Any) -> torch.Tensor:
    """Features as a tensor."""
    return torch.from_numpy(np.asarray(x.todense() if hasattr(x, "todense") else x, dtype=np.float32))


def rows_of(runs: list[dict[str, Any]], **cell: Any) -> list[dict[str, Any]]:
    """The runs of a cell."""
    return [row for row in runs if cell.items() <= row.items()]


def table(runs: list[dict[str, Any]]) -> str:
    """The table of the page: accuracy by first clip and rule, and paired differences."""
    first, *others = QUANTILES
    lines = [
        f"| first clip | {first}, % | "
        + " | ".join(f"{rule}, % | gain [95 %] | clip at the end" for rule in others)
        + " |",
        "|---|---|" + "---|---|---|" * len(others),
    ]
    for clip in CLIPS:
        fixed = accuracies(runs, clip, first)
        cells = [f"{clip:g}", f"{fixed.mean():.2f}"]
        for rule in others:
            found = accuracies(runs, clip, rule)
            gain, ends = found - fixed, [row["last clip"] for row in rows_of(runs, stage="test", rule=rule, clip=clip)]
            cells += [f"{found.mean():.2f}", pages.interval(gain), f"{min(ends):.2g} to {max(ends):.2g}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def accuracies(runs: list[dict[str, Any]], clip: float, rule: str) -> np.ndarray:
    """(seeds,) on the test people."""
    own = sorted(rows_of(runs, stage="test", rule=rule, clip=clip), key=lambda row: row["seed"])
    return np.array([row["accuracy"] for row in own])


def do_missing(data: Data, path: Path, seeds: int) -> None:
    """Judge the rates of every cell on training people, then run the best ones on the test people."""
    inner, mu = held_out(data), float(gaussian.mu(epsilon=EPSILON, delta=DELTA))
    for clip in CLIPS:
        for rule in QUANTILES:
            for rate in RATES:
                cell = {"stage": "tune", "rule": rule, "clip": clip, "rate": rate, "seed": TUNE_SEED}
                if not rows_of(recorded(path), **cell):
                    scaled = mu * data.count / inner.count
                    keep(path, cell | run(inner, rule, clip, rate, TUNE_SEED, mu=scaled, steps=STEPS))
            tuned = rows_of(recorded(path), stage="tune", rule=rule, clip=clip)
            best = max(tuned, key=lambda row: row["accuracy"])["rate"]
            for seed in range(seeds):
                cell = {"stage": "test", "rule": rule, "clip": clip, "rate": best, "seed": seed}
                if not rows_of(recorded(path), **cell):
                    keep(path, cell | run(data, rule, clip, best, seed, mu=mu, steps=STEPS))


def keep(path: Path, row: dict[str, Any]) -> None:
    """Add a line."""
    record(path, row)
    print(*row.values(), flush=True)


def main() -> None:
    """Do what is missing, and write the page's table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--out", type=Path, default=pages.RESULTS / "clips.jsonl", help="where runs are recorded")
    parser.add_argument("--quick", action="store_true", help="500 people and five steps; nothing is written")
    given = parser.parse_args()
    data = load("adult", given.data)
    if given.quick:
        few = Data(data.x[:500], data.y[:500], None, data.x_test[:500], data.y_test[:500], {}, {})
        for rule in QUANTILES:
            print(rule, run(few, rule, 5.0, 2.0, 0, mu=1.0, steps=5))
        return
    do_missing(data, given.out, given.seeds)
    pages.insert(PAGE, table(recorded(given.out)) + "\n")


if __name__ == "__main__":
    main()

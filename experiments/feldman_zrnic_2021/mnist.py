"""Feldman & Zrnic (2021), MNIST: private gradient descent with and without individual filtering.

    python experiments/feldman_zrnic_2021/mnist.py --epsilon 0.3 --seeds 3     # some hours for all rows on two cores
    python experiments/feldman_zrnic_2021/mnist.py --ours --epsilon 0.3        # exact Gaussian accounting, more steps
    python experiments/feldman_zrnic_2021/mnist.py --plot                      # the recorded runs: a table, mnist.png
    python experiments/feldman_zrnic_2021/mnist.py --quick                     # one row, few people, few steps

Measures the accuracy on the test images. The four rows as printed fix the noise multiplier and the number of steps of
plain gradient descent; filtering continues for a share of more steps with the people who have budget left. Before that,
no person's budget is used up, so the accuracy of filtering after the printed steps is that of another run of plain
descent. The paper does not print clip and learning rate; ours were chosen on training images only (10,000 to train, the
last 10,000 to validate). The model is a moving average of the iterates, which costs nothing, because all iterates are
released. Each run appends a line to mnist.jsonl beside this file.
"""

import argparse
import gzip
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from bursar import filters
from bursar.training import Trainer

HERE = Path(__file__).parent
ROWS = {0.3: (170.0, 104), 0.5: (130.0, 180), 1.2: (88.0, 460), 3.0: (50.0, 875)}
DELTA, EXTRA, CLIP, RATE, AVERAGE, TUNE = 1e-5, 0.1, 1.0, 3.0, 0.9, 10_000


def images(name, folder):
    """(n, 1, 28, 28) images standardised by public constants, and labels."""

    def read(file, offset):
        with gzip.open(folder / file) as stream:
            return np.frombuffer(stream.read(), np.uint8, offset=offset)

    pixels = read(f"{name}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).astype(np.float32)
    labels = read(f"{name}-labels-idx1-ubyte.gz", 8).astype(np.int64)
    return torch.from_numpy((pixels / 255 - 0.5) / 0.5), torch.from_numpy(labels)


def network():
    """The network of the PyTorch-DP MNIST example."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    ).to(memory_format=torch.channels_last)  # fmt: skip


def accuracy(module, x, y):
    """Share of correct answers, in percent."""
    with torch.no_grad():
        return 100 * float(torch.cat([module(part).argmax(1) for part in x.split(1000)]).eq(y).double().mean())


def run(train, test, *, budget, noise_multiplier, steps, extra, filtering, clip, rate, momentum, decay, average, seed):
    """Train once; (step, accuracy of the average, of the iterate) on the test images, which are reported only."""
    torch.manual_seed(seed)
    module = network()
    averaged = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(average))
    n = len(train[0])
    trainer = Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=rate / clip, momentum=momentum),
        budget,
        max_grad_norm=clip,
        noise_multiplier=noise_multiplier,
        divisor=n,
        steps=steps,
        extra_steps=extra,
        pace=0.0,  # Algorithm 8
        individual=filtering,
    )
    curve = []

    def look(run):
        for group in run.optimizer.param_groups:
            left = 1 - run.step / (steps + extra)
            group["lr"] = rate / clip * (min(1.0, left / decay) if decay else 1.0)
        if run.step:
            averaged.update_parameters(module)
        if run.step and (run.step % 10 == 0 or run.step in (steps, steps + extra)):
            curve.append((run.step, accuracy(averaged, *test), accuracy(module, *test)))

    started = time.perf_counter()
    trainer.fit(*train, callbacks=[look])
    return curve, time.perf_counter() - started, trainer


def recorded():
    """The runs in mnist.jsonl, by row: {(epsilon, ours, steps, extra, rate, momentum, decay): lines}."""
    rows = {}
    for text in (HERE / "mnist.jsonl").read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        fields = ("epsilon", "ours", "steps", "extra", "rate", "momentum", "decay")
        row = tuple(line.get(of, 0.0) for of in fields)
        rows.setdefault(row, []).append(line)
    return rows


def show():
    """Print a table of the recorded runs, and plot accuracy against steps, as in figure 1 of the paper."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = recorded()
    budgets = sorted({row[0] for row in rows})
    figure, panels = pyplot.subplots(2, 2, figsize=(11, 8), sharey=True)
    print(
        "| budget | noise multiplier | rate | momentum | decay | steps | after them | more steps | after them | runs |"
    )
    print("|---" * 10 + "|")
    for row, lines in sorted(rows.items()):
        epsilon, ours, steps, extra, *how = row
        accounting = "exact Gaussian" if ours else "as printed"
        plain, last = (float(np.mean([line[of] for line in lines])) for of in ("at_steps", "accuracy"))
        noise = lines[0]["noise_multiplier"]
        after = f"{extra} | {last:.2f} %" if extra else "none | "
        settings = " | ".join(f"{value:g}" for value in how)
        print(
            f"| epsilon {epsilon:g}, {accounting} | {noise:.4g} | {settings} | {steps} | {plain:.2f} % | {after} "
            f"| {len(lines)} |"
        )
        panel = panels.flat[budgets.index(epsilon)]
        color, label = None, f"{accounting}, {steps} steps"
        for line in lines:
            step, found, _ = zip(*line["curve"], strict=True)
            (drawn,) = panel.plot(step, found, linewidth=1, label=label, color=color)
            color, label = drawn.get_color(), None  # one color and one entry for all seeds of a row
            panel.plot(steps, line["at_steps"], "o", markersize=4, color=color)
        panel.set(title=f"epsilon {epsilon:g}", xlabel="step", ylim=(85, 100))
        panel.legend(title="dots: no budget is used up before", loc="lower right", fontsize=8, title_fontsize=8)
    for panel in panels[:, 0]:
        panel.set_ylabel("accuracy on the test images, %")
    figure.tight_layout()
    figure.savefig(HERE / "mnist.png", dpi=110)


def main():
    """Parse the command line, then train or show."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("BURSAR_DATA", "data")))
    parser.add_argument("--epsilon", type=float, choices=sorted(ROWS), nargs="*", default=sorted(ROWS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", choices=("plain", "filtering"))
    parser.add_argument("--clip", type=float, default=CLIP)
    parser.add_argument("--rate", type=float, default=RATE, help="learning rate times clip")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument(
        "--decay", type=float, default=0.0, help="the last share of steps, over which the rate falls to 0"
    )
    parser.add_argument("--average", type=float, default=AVERAGE, help="weight of the moving average of the iterates")
    parser.add_argument("--extra", type=float, default=EXTRA, help="more steps for filtering, as a share")
    parser.add_argument(
        "--ours", action="store_true", help="exact Gaussian accounting at (epsilon, 1e-5), noise follows"
    )
    parser.add_argument("--steps", type=int, help="instead of the printed number")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument(
        "--tune", action="store_true", help="10,000 training images with less noise in proportion; validate on others"
    )
    parser.add_argument("--plot", action="store_true", help="show the recorded runs; train nothing")
    options = parser.parse_args()
    show() if options.plot else train_all(options)


def train_all(options):
    """Train the selected rows, one after the other."""
    train, test = (images(name, options.data / "mnist") for name in ("train", "t10k"))
    if options.quick:
        train, test = tuple(part[:1000] for part in train), tuple(part[:1000] for part in test)
    if options.tune:
        fewer = TUNE / len(train[0])
        train, test = tuple(part[:TUNE] for part in train), tuple(part[-TUNE:] for part in train)
    how = {name: getattr(options, name) for name in ("clip", "rate", "momentum", "decay", "average")}
    for epsilon in options.epsilon[:1] if options.quick else options.epsilon:
        noise_multiplier, steps = ROWS[epsilon]
        steps = options.steps or (6 if options.quick else steps)
        budget = filters.Gaussian(mu=float(np.sqrt(steps)) / noise_multiplier * (1 + 1e-9))
        if options.ours:
            budget, noise_multiplier = filters.Gaussian(epsilon=epsilon, delta=DELTA), None
        if options.tune:  # the same noise for each person as in the full run; no guarantee
            budget = filters.Gaussian(mu=budget.mu / fewer)
            noise_multiplier = noise_multiplier and noise_multiplier * fewer
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            for filtering in (False, True):
                if options.only not in (None, "filtering" if filtering else "plain"):
                    continue
                fresh = filters.Gaussian.from_state(budget.state())
                extra = round(options.extra * steps) if filtering else 0
                curve, seconds, trainer = run(
                    train,
                    test,
                    budget=fresh,
                    noise_multiplier=noise_multiplier,
                    steps=steps,
                    extra=extra,
                    filtering=filtering,
                    seed=seed,
                    **how,
                )
                line = {
                    "epsilon": epsilon,
                    "ours": options.ours,
                    "noise_multiplier": trainer.noise_multiplier,
                    "steps": steps,
                    "extra": extra,
                    "filtering": filtering,
                    "seed": seed,
                    **how,
                    "accuracy": curve[-1][1],
                    "at_steps": next(found for step, found, _ in curve if step == steps),
                    "seconds": round(seconds, 1),
                    "curve": curve,
                }
                print(json.dumps({key: value for key, value in line.items() if key != "curve"}), flush=True)
                if not (options.quick or options.tune):
                    with (HERE / "mnist.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()

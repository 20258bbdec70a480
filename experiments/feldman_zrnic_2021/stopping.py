"""Feldman & Zrnic (2021), section 6: k_max chosen in the run, by noisy counts of the people who have budget left.

    python experiments/feldman_zrnic_2021/stopping.py            # 5 seeds: 20 minutes on one core
    python experiments/feldman_zrnic_2021/stopping.py --mnist --seeds 1    # the network on MNIST: half an hour a seed
    python experiments/feldman_zrnic_2021/stopping.py --quick    # one seed, few people, nothing is written

Measures what counting costs, what it finds, and the accuracy on the test file where it stops, beside the printed k_max
and beside stopping after k. Adult, two settings: as printed at 0.3 (noise, clip, learning rate, k = 800), and our way
at 0.3 (tuned on a split of the training file); MNIST as printed at 0.3 (k = 104). Each way to count costs 1 % of each
budget, taken out of the same budget that the steps are paid from, so that the promise is the same. A run goes on to
five times k, on MNIST to twice k; it is read off afterwards where it would have stopped at other shares. All counts
come after step k; on MNIST they are made, and paid for, from the first step on. As printed there is a control: plain
descent planned for the steps at which the counts say that 10 % are out, with the noise that the promise then needs.

The noise is seeded, so these models are not private: experiments on public data. A seed repeats a run on the same
machine with the same versions; elsewhere roundings differ, and numbers do within the spread of the seeds.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from multiprocessing import get_context
from pathlib import Path

import mnist
import numpy as np
import torch
from adult import DELTA, OURS, PRINTED, RAW, SCHEMAS, data_folder, features
from torch import nn

from almoner import filters
from almoner.training import Descent, FullBatch, LogisticRegression, Trainer
from almoner.training._accounts import ActiveAnswer
from almoner.training._linear.descent import plan
from almoner.training.stopping import Dropouts, SquareRoot, StillActive, Tree

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
import pages  # noqa: E402
from journal import machine  # noqa: E402

SHARES = (0.05, 0.1, 0.2, 0.3)
LONGEST = 5
"""A run takes so many times k steps at most."""
CONTROL, CONTROL_STEPS = "plain, planned", 1737
"""The control as printed; its steps are those at which the counts of ten seeds say that 10 % are out, on average."""


def settings(name):
    """Features, their factor, epsilon, noise, clip, learning rate and k of a setting."""
    if name == "as printed":
        row = PRINTED[0]
        exact = plan(
            "gaussian",
            epsilon=None,
            delta=DELTA,
            noise_multiplier=row.sigma,
            max_grad_norm=row.clip,
            steps=row.steps,
            counted=False,
        )
        return (
            "plain",
            float(RAW),
            exact.budget.epsilon(delta=exact.delta),
            row.sigma,
            row.clip,
            row.rate,
            row.steps,
            row.k_max,
        )
    return "own", 1.0, 0.3, None, OURS["clip"], OURS["rate"], OURS["steps"], OURS["steps"] + OURS["extra_steps"]


class Asked:
    """Makes the accounts that count, and keeps them."""

    def __init__(self, way, planned, counts, share, people, seed):
        self.way, self.planned, self.counts, self.share, self.people = way, planned, counts, share, people
        self.noise, self.made = np.random.default_rng([seed, 2]), None

    def __call__(self, accounts):
        """One of the three ways, at 1 % of the budget."""
        if self.way == "sparse vector":  # epsilon^2 / 2 is its price in zCDP
            epsilon = sqrt(0.02 * self.planned.budget.left) * (1 - 1e-9)
            self.made = StillActive(
                accounts, at_least=(1 - self.share) * self.people, epsilon=epsilon, noise=self.noise
            )
            return self.made
        counter = self.planned.drops
        if self.way == "tree":
            one = Tree(self.counts, 1.0).mechanism.sensitivity
            price = counter.mechanism.sensitivity / counter.sigma
            counter = Tree(self.counts, one / price * (1 + 1e-9))
        self.made = Dropouts(accounts, counter, noise=self.noise)
        return self.made


def run(name, way, share, data, seed, factor=LONGEST):
    """Train once; what was counted, and the accuracy at each of the moments of interest."""
    which, scale, epsilon, sigma, clip, rate, steps, k_max = settings(name)
    (x, y), (x_test, y_test) = data[which]
    x, x_test, extra = x * scale, x_test * scale, (factor - 1) * steps
    accounting = "zcdp" if way == "sparse vector" else "gaussian"
    how = {"epsilon": epsilon, "delta": DELTA, "max_grad_norm": clip, "steps": steps}
    planned = plan(accounting, noise_multiplier=sigma, counted=False, drop_counts=extra, **how)
    asked = Asked(way, planned, extra, share, len(y), seed)
    noted, total = {}, 0.0

    def look(number, parameters):
        nonlocal total
        if number > steps // 2:
            total = total + parameters
        moments = {"k": number == steps, "k_max": number == k_max, "longest": number == steps + extra}
        answer = asked.made.answer if number > steps else None
        if isinstance(answer, ActiveAnswer):
            moments[str(share)] = not answer.still
        elif answer is not None:
            moments |= {str(each): answer.count > each * len(y) for each in SHARES if each <= share}
        for moment in (each for each, now in moments.items() if now and each not in noted):
            inside = np.asarray(asked.made._inside) if number > steps else np.ones(len(y), bool)
            noted[moment] = {
                "step": number,
                "people": len(y),
                "counted": getattr(answer, "count", None),
                "standard_error": getattr(answer, "standard_error", None),
                "dropped": int(np.count_nonzero(~inside)),
                "last": _accuracy(x_test, y_test, parameters),
                "averaged": _accuracy(x_test, y_test, total / (number - steps // 2)),
            }

    model = LogisticRegression(
        **how,
        learning_rate=rate,
        noise_multiplier=planned.step.sigma / clip,
        fit_intercept=False,
        classes=[0, 1],
        n_people=len(y),
        descent=Descent(
            momentum=0.0, extra_steps=extra, pace=0.0, stop_when_inactive=None if way == "sparse vector" else share
        ),
        seed=seed,
    )
    model.fit(x, y, counting=asked, observe=look)
    price = asked.made.price
    cost = price.epsilon**2 / 2 if way == "sparse vector" else (price.sensitivity / price.sigma) ** 2
    return {
        "setting": name,
        "way": way,
        "seed": seed,
        "people": len(y),
        "epsilon": epsilon,
        "noise_multiplier": planned.step.sigma / clip,
        "price": repr(price),
        "price_of_budget": cost / planned.budget.left,
        "stopped": model.n_iter_,
        "noted": noted,
    }


def _accuracy(x, y, parameters):
    return round(100 * float(np.mean((x @ parameters > 0).ravel() == y)), 3)


def run_control(data, seed, steps=CONTROL_STEPS):
    """Plain descent planned for so many steps, at the promise and with the average of the setting as printed."""
    which, scale, _, sigma, clip, rate, k, _ = settings("as printed")
    (x, y), (x_test, y_test) = data[which]
    x, x_test, total, last = x * scale, x_test * scale, 0.0, None

    def look(number, parameters):
        nonlocal total, last
        total, last = total + parameters if number > k // 2 else 0.0, parameters

    model = LogisticRegression(
        epsilon=None,
        delta=DELTA,
        noise_multiplier=sigma * sqrt(steps / k),
        max_grad_norm=clip,
        learning_rate=rate,
        steps=steps,
        descent=Descent(momentum=0.0, extra_steps=0, pace=0.0),
        individual=False,
        fit_intercept=False,
        classes=[0, 1],
        n_people=len(y),
        seed=seed,
    )
    model.fit(x, y, observe=look)
    return {
        "setting": "as printed",
        "way": CONTROL,
        "seed": seed,
        "people": len(y),
        "epsilon": model.card_.epsilon,
        "noise_multiplier": model.card_.noise_multiplier,
        "stopped": steps,
        "noted": {
            "planned": {
                "step": steps,
                "last": _accuracy(x_test, y_test, last),
                "averaged": _accuracy(x_test, y_test, total / (steps - k // 2)),
            }
        },
    }


def run_mnist(place, seed, device, few=None, *, factor=2, steps=None):
    """The network on MNIST as printed at 0.3, counted by the square root at 1 % of the budget; the same record."""
    parts = [tuple(part[:few].to(device) for part in mnist.images(name, place)) for name in ("train", "t10k")]
    (x, y), test = parts
    row = mnist.PRINTED[0.3]
    steps, sigma = steps or row.steps, row.sigma * len(y) / mnist.ALL
    budget = filters.Gaussian(mu=sqrt(steps) / sigma * (1 + 1e-9))
    counts = factor * steps
    counter = SquareRoot(counts, 10 * SquareRoot(counts, 1.0).mechanism.sensitivity / budget.mu * (1 + 1e-9))
    torch.manual_seed(seed)
    module, made, noted = mnist.network(device), [], {}
    total = [torch.zeros_like(parameter) for parameter in module.parameters()]

    def count(people):
        made.append(Dropouts(people, counter, noise=np.random.default_rng([seed, 2])))
        return made[0]

    def look(run):
        values = [parameter.detach() for parameter in module.parameters()]
        if run.step > steps // 2:
            torch._foreach_add_(total, values)
        moments = {"k": run.step == steps, "k_max": run.step == row.k_max, "longest": run.step == counts}
        answer = run.counting
        if run.step > steps:
            moments |= {str(share): answer.count > share * len(y) for share in SHARES}
        for moment in (each for each, now in moments.items() if now and each not in noted):
            averaged = [each / (run.step - steps // 2) for each in total]
            noted[moment] = {
                "step": run.step,
                "people": len(y),
                "counted": answer.count if run.step > steps else None,
                "standard_error": answer.standard_error if run.step > steps else None,
                "dropped": int(np.count_nonzero(~np.asarray(made[0]._inside))),
                "last": mnist.accuracy(module, values, *test),
                "averaged": mnist.accuracy(module, averaged, *test),
            }

    trainer = Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=row.rate),
        budget,
        max_grad_norm=row.clip,
        noise_multiplier=sigma,
        divisor=len(y),
        steps=steps,
        sampling=FullBatch(pace=0.0, extra_steps=counts - steps),
        seed=seed,
    )
    done = trainer.fit(x, y, callbacks=[look], watch=count)
    price = made[0].price
    return {
        "setting": "MNIST, as printed",
        "way": "square root",
        "seed": seed,
        "people": len(y),
        "epsilon": budget.epsilon(delta=DELTA),
        "noise_multiplier": sigma,
        "price": repr(price),
        "price_of_budget": (price.sensitivity / price.sigma / budget.mu) ** 2,
        "stopped": done.step,
        **machine(device),
        "noted": noted,
    }


def table(runs):
    """The recorded runs as a Markdown table: means over seeds, and paired differences to stopping after k."""
    lines = [
        "| setting, how it was counted | stops at | step | counted | truly out | SE of the count | last, % | "
        "averaged, % | averaged, against k [95 %] | runs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, way in dict.fromkeys((one["setting"], one["way"]) for one in runs if one["way"] != CONTROL):
        noted = [one["noted"] for one in runs if (one["setting"], one["way"]) == (name, way)]
        moments = dict.fromkeys(moment for one in noted for moment in one)
        steps = {moment: np.mean([one[moment]["step"] for one in noted if moment in one]) for moment in moments}
        in_order = sorted(moments, key=lambda moment: steps[moment])
        lines += [_row(name, way, moment, [one for one in noted if moment in one]) for moment in in_order]
    return "\n".join([*lines, *_control_table(runs)]) + "\n"


def _control_table(runs):
    """The row as printed where 10 % are out, against plain descent planned for as many steps: paired over the seeds."""
    ways = {"square root": {}, CONTROL: {}}
    for one in runs:
        if one["setting"] == "as printed":
            ways[one["way"]][one["seed"]] = one["noted"]
    seeds = sorted(ways[CONTROL].keys() & ways["square root"].keys())
    if not seeds:
        return
    counted = [ways["square root"][seed] for seed in seeds]
    plain, filtered = ([one[moment]["averaged"] for one in counted] for moment in ("k", "0.1"))
    planned = [ways[CONTROL][seed]["planned"]["averaged"] for seed in seeds]
    gaps = (np.subtract(*pair) for pair in ((filtered, planned), (planned, plain)))
    yield from ("", "As printed, averaged iterates, paired over the seeds:", "")
    yield (
        f"| plain, at k, % | counted, at 10 % out, % | plain, planned for {CONTROL_STEPS:,}, % | "
        "counted - planned [95 %] | planned - at k [95 %] | runs |"
    )
    yield "|---|---|---|---|---|---|"
    cells = [*(f"{np.mean(each):.2f}" for each in (plain, filtered, planned)), *map(pages.interval, gaps)]
    yield f"| {' | '.join(cells)} | {len(seeds)} |"


def _row(name, way, moment, found):
    def mean(field):
        values = [one[moment][field] for one in found if one[moment][field] is not None]
        return np.mean(values) if values else None

    people = found[0][moment]["people"]
    printed, times = name.endswith("as printed"), 2 if name.startswith("MNIST") else LONGEST
    what = {"k": "k", "k_max": "printed k_max" if printed else "k_max of the table", "longest": f"{times} k"}
    stops = what.get(moment) or f"{100 * float(moment):g} % out"
    gaps = [one[moment]["averaged"] - one["k"]["averaged"] for one in found]
    gap = "-" if moment == "k" or len(gaps) < 2 else pages.interval(gaps)
    counted, error = mean("counted"), mean("standard_error")
    return (
        f"| {name}, {way} | {stops} | {mean('step'):.0f} | "
        f"{'-' if counted is None else f'{100 * counted / people:.1f} %'} | {100 * mean('dropped') / people:.1f} % | "
        f"{'-' if error is None else f'{100 * error / people:.2f} %'} | {mean('last'):.2f} | {mean('averaged'):.2f} | "
        f"{gap} | {len(found)} |"
    )


PLAN = [("our way", "square root", 0.3), ("our way", "tree", 0.3), ("our way", "sparse vector", 0.2)]
PLAN += [("as printed", "square root", 0.3), ("as printed", CONTROL, None)]


def made(given, folder, known):
    """The runs that the command line asks for and that are not known, one after the other."""
    place, few = folder.parent / "mnist", 300 if given.quick else None
    if given.quick:
        yield run_mnist(place, 1, "cpu", few, steps=3)
    if given.mnist:
        seeds = [seed for seed in range(1, 1 + given.seeds) if ("MNIST, as printed", "square root", seed) not in known]
        with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
            yield from pool.map(run_mnist, *zip(*((place, seed, given.device) for seed in seeds), strict=True))
        return
    data = {}
    for name, schema in SCHEMAS.items():
        (x, y), test = features(schema, folder / "adult.data"), features(schema, folder / "adult.test")
        few = 2000 if given.quick else None
        data[name] = (x[:few], y[:few]), test
    for seed in range(1 if given.quick else given.seeds):
        for name, way, share in PLAN[:3] if given.quick else PLAN:
            if (name, way, seed) in known:
                continue
            if way == CONTROL:
                yield run_control(data, seed)
            else:
                yield run(name, way, share, data, seed, factor=2 if given.quick else LONGEST)


def main():
    """Run what is not recorded, and save; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, few people, nothing is written")
    parser.add_argument("--mnist", action="store_true", help="the network on MNIST instead of Adult")
    parser.add_argument("--device", default=mnist.usual_device(), help="for MNIST: cpu, or cuda where there is one")
    parser.add_argument("--workers", type=int, default=1, help="for MNIST: so many runs side by side")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--data", type=Path, default=None, help="the folder of adult.data and adult.test")
    parser.add_argument("--out", type=Path, default=pages.DOCS)
    given = parser.parse_args()
    folder = data_folder(given.data)
    file = given.out / "stopping-counts.json"
    runs = json.loads(file.read_text(encoding="utf-8")) if file.is_file() and not given.quick else []
    for one in made(given, folder, {(one["setting"], one["way"], one["seed"]) for one in runs}):
        runs.append(one)
        shown = {moment: (found["step"], found["averaged"]) for moment, found in one["noted"].items()}
        print(one["setting"], one["way"], one["seed"], shown, flush=True)
        if not given.quick:
            pages.save("stopping-counts", runs, table(runs), out=given.out)
    print(table(runs))


if __name__ == "__main__":
    main()

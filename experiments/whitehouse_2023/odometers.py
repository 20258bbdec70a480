"""Every paper's filter and odometer on one task; among them the figure of Whitehouse et al. (2023).

    python experiments/whitehouse_2023/odometers.py
    python experiments/whitehouse_2023/odometers.py --quick    # the first ten rounds, two budgets; writes nothing
    python experiments/whitehouse_2023/odometers.py --draw     # tables and pictures again, from the recorded numbers

Rounds of 0.1-DP, as on the poster of Whitehouse et al., and Gaussian rounds with noise 10, which cost as much in zCDP.
How many rounds does each filter admit: of Rogers et al. (2016), Feldman & Zrnic, Lécuyer, Koskela et al., Whitehouse
et al. and Almoner? What does each odometer say after each of 100 rounds? The floor is the optimum for rounds fixed in
advance. The poster's odometers are shown as printed and with the drift that it omits. Writes whitehouse.json, two
pictures (.svg, .png) and the tables of whitehouse.md in docs/experiments; takes a minute.
"""

import argparse
import json
import sys
from collections.abc import Callable
from math import inf, log, nextafter, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from almoner import filters, mechanisms, odometers
from almoner.accounting.compare import optimum
from almoner.curves import approximate, gaussian, renyi, zcdp
from almoner.report.figures import INK, figure, styled

sys.path.append(str(Path(__file__).parents[1]))
import pages

SHOWN = (1, 3, 10, 30, 100)
ROUNDS, EPSILON, DELTA, PEOPLE = 100, 0.1, 1e-6, 100_000
TASKS: dict[str, mechanisms.Mechanism] = {"pure": mechanisms.Pure(EPSILON), "Gaussian": mechanisms.Gaussian(10.0)}
"""Both cost 0.005 in zCDP."""

TITLES = {"pure": "rounds of 0.1-DP", "Gaussian": "Gaussian rounds, noise 10"}
BUDGETS, MOST = (0.5, 1.0, 2.0, 3.0, 5.0), 1000
DRAWN = tuple(k / 4 for k in range(1, 21))
"""The epsilons of the picture of filters; BUDGETS are among them."""

HIS_ORDERS = (*(1 + j / 4 for j in range(1, 37)), 16.0, 32.0)
OPTIMUM = "optimum, rounds fixed in advance"
STYLES = {
    "basic composition": (INK, ":", 1.0),
    OPTIMUM: (INK, "-", 4.5),
    "Rogers et al.": ("C3", "-", 1.2),
    "Feldman & Zrnic, Theorem 4.7": ("C4", "--", 1.2),
    "Feldman & Zrnic, one order": ("C4", "-", 1.2),
    "Feldman & Zrnic, restarts": ("C4", "-", 1.2),
    "Lécuyer, any order, as printed": ("C1", ":", 1.6),
    "Lécuyer": ("C1", "-", 1.2),
    "Koskela et al., Gaussian DP": ("C5", "--", 2.0),
    "Koskela et al., restarts": ("C5", "-", 1.4),
    "Whitehouse et al., Filter Theorem": ("C2", "-", 1.4),
    "mixture, with drift": ("C2", "-", 1.2),
    "mixture, as printed": ("C2", ":", 1.2),
    "stitched, with drift": ("C2", "--", 1.2),
    "stitched, as printed": ("C2", "-.", 0.9),
    "zCDP": ("C0", ":", 1.4),
    "Rényi": ("C0", "--", 1.4),
    "Planned": ("C0", "-", 2.0),
    "Planned, ex-post": ("C0", "-.", 1.4),
    "recommended": ("C0", "-", 1.6),
}
"""The lines of the pictures: a colour for each paper; ours are blue."""


def as_gaussian(step: mechanisms.Mechanism) -> mechanisms.Gaussian:
    """The quietest Gaussian round that dominates a round: itself, or that of a pure round.

    The trade-off function of epsilon-DP has two straight pieces from (0, 1) and (1, 0), which meet on the diagonal.
    That of mu-GDP is convex and has the same ends, so it is below where it is not above the corner: from this mu on.
    """
    if isinstance(step, mechanisms.Gaussian):
        return step
    corner = 1 / (1 + np.exp(step.epsilon))
    return mechanisms.Gaussian(1 / (-2 * float(ndtri(corner)) * (1 + 1e-12)))


# Odometers


def fixed(step: mechanisms.Mechanism, rounds: range) -> dict[str, tuple[str, list[float]]]:
    """Bounds for a number of rounds fixed in advance."""
    runs = [mechanisms.Repeated(step, count) for count in rounds]
    found = {
        OPTIMUM: [least(step, count) for count in rounds],
        "Rényi, rounds fixed in advance": [renyi.of(run).epsilon(delta=DELTA) for run in runs],
        "zCDP, rounds fixed in advance": [zcdp.of(run).epsilon(delta=DELTA) for run in runs],
    }
    if isinstance(step, mechanisms.Pure):
        found = {"basic composition": [approximate.of(run).epsilon for run in runs]} | found
    return {name: ("fixed", values) for name, values in found.items()}


def least(step: mechanisms.Mechanism, count: int) -> float:
    """The exact epsilon of so many rounds fixed in advance."""
    if isinstance(step, mechanisms.Pure):
        return float(optimum(step, count, DELTA))
    return float(gaussian.of(mechanisms.Repeated(step, count)).epsilon(delta=DELTA))


def curves(step: mechanisms.Mechanism) -> dict[str, tuple[str, Any]]:
    """The odometers of the papers, and Almoner's, by promise."""
    plan, normal = mechanisms.Repeated(step, ROUNDS), as_gaussian(step)
    filter_rounds = 1 + round(sqrt(ROUNDS))  # as FeldmanZrnic.for_plan chooses
    restarts = odometers.GaussianRestarts(delta=DELTA, step=filter_rounds * gaussian.of(normal).mu ** 2 * (1 + 1e-9))
    whole: dict[str, Callable[[], Any]] = {
        "Rényi, planned": lambda: odometers.Renyi(delta=DELTA, sum_delta=0.0, plan=plan),
        "Planned": lambda: odometers.Planned(plan, delta=DELTA),
    }
    return {
        "Rogers et al.": ("pathwise", odometers.Rogers(delta=DELTA, people=PEOPLE)),
        "mixture, with drift": ("pathwise", odometers.Mixture(delta=DELTA, sum_delta=0.0, plan=plan)),
        "stitched, with drift": ("pathwise", odometers.Stitched(delta=DELTA, sum_delta=0.0)),
        "Lécuyer": ("pathwise", odometers.Lecuyer(delta=DELTA, sum_delta=0.0)),
        "Feldman & Zrnic, restarts": ("restarts", odometers.FeldmanZrnic.for_plan(plan, delta=DELTA)),
        "Koskela et al., restarts": ("restarts", restarts),
        "Rényi": ("pathwise", odometers.Renyi(delta=DELTA, sum_delta=0.0)),
        **{name: ("pathwise", make()) for name, make in whole.items()},
        **{f"{name}, ex-post": ("ex-post", make()) for name, make in whole.items()},
    }


def running(step: mechanisms.Mechanism, most: int = ROUNDS) -> list[dict[str, Any]]:
    """Every bound after every round, up to so many: name, promise and epsilons."""
    rounds = range(1, most + 1)
    found = fixed(step, rounds)
    for name, (promise, odometer) in curves(step).items():
        round_of = as_gaussian(step) if name.startswith("Koskela") else step
        values = []
        for _ in rounds:
            odometer.charge(round_of)
            values.append(odometer.ex_post_epsilon() if promise == "ex-post" else odometer.epsilon())
        found[name] = promise, values
        if name.endswith(", with drift"):  # the poster leaves out half the sum of the squares
            drift = 2 * zcdp.of(step).rho / 2
            printed = [value - k * drift for k, value in zip(rounds, values, strict=True)]
            found[name.replace("with drift", "as printed")] = "none", printed
    return [{"name": name, "promise": promise, "epsilons": values} for name, (promise, values) in found.items()]


# Filters


def one_order(step: mechanisms.Mechanism, epsilon: float, orders: Any) -> int:
    """The rounds that the best single order admits, chosen for this budget; with Mironov's conversion, as printed."""
    orders = np.asarray(orders, dtype=float)
    budget = epsilon - log(1 / DELTA) / (orders - 1)
    best = int(np.argmax(budget / renyi.values(step, orders)))
    if budget[best] <= 0:
        return 0
    return admitted(filters.RenyiOrder(alpha=float(orders[best]), rho=nextafter(float(budget[best]), -inf)), step)


def admitted(account: Any, step: mechanisms.Mechanism) -> int:
    """How many rounds fit, up to MOST."""
    low, high = 0, MOST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if account.admits(mechanisms.Repeated(step, middle)) else (low, middle - 1)
    return low


def planned(step: mechanisms.Mechanism, epsilon: float) -> int:
    """The rounds of a filter that plans for as many as fit."""
    choice = filters.recommend(epsilon=epsilon, delta=DELTA, plan=step)
    return admitted(choice.budget, step)


def stops(step: mechanisms.Mechanism, epsilons: tuple[float, ...]) -> dict[str, list[int]]:
    """The rounds that each filter admits, at each budget; all of delta is for the loss, because no round fails."""
    pure = isinstance(step, mechanisms.Pure)
    spent = [least(step, count) for count in range(1, 2 * ROUNDS)]
    made: dict[str, Callable[[float], int]] = {
        "Rogers et al.": lambda e: admitted(filters.Rogers(epsilon=e, delta=DELTA, sum_delta=0.0), step),
        "Whitehouse et al., Filter Theorem": lambda e: admitted(
            filters.Approximate(epsilon=e, delta=DELTA, sum_delta=0.0), step
        ),
        "Feldman & Zrnic, one order": lambda e: one_order(step, e, renyi.ORDERS),
        "Lécuyer, any order, as printed": lambda e: one_order(step, e, HIS_ORDERS),
        "Koskela et al., Gaussian DP": lambda e: admitted(filters.Gaussian(epsilon=e, delta=DELTA), as_gaussian(step)),
        "zCDP": lambda e: admitted(filters.Zcdp(epsilon=e, delta=DELTA), step),
        "Rényi": lambda e: admitted(filters.Renyi(epsilon=e, delta=DELTA, sum_delta=0.0), step),
        "recommended": lambda e: planned(step, e),
        OPTIMUM: lambda e: sum(one <= e for one in spent),
    }
    if pure:
        made = {
            "basic composition": lambda e: admitted(filters.Basic(epsilon=e), step),
            "Feldman & Zrnic, Theorem 4.7": lambda e: admitted(filters.Pure(epsilon=e, delta=DELTA), step),
        } | made
    return {name: [count(epsilon) for epsilon in epsilons] for name, count in made.items()}


# Tables


def rows(heads: list[str], lines: list[list[str]]) -> str:
    """A Markdown table."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (heads, ["---"] * len(heads), *lines))


def filter_table(task: dict[str, Any]) -> str:
    """The rounds that filters admit, at BUDGETS."""
    places = [task["budgets"].index(epsilon) for epsilon in BUDGETS]
    heads = ["filter", *(f"epsilon {epsilon:g}" for epsilon in BUDGETS)]
    return rows(heads, [[name, *(f"{counts[k]:,}" for k in places)] for name, counts in task["filters"].items()])


def after(count: int) -> str:
    """A number of rounds in words."""
    return f"{count} round{'s' * (count > 1)}"


def table(task: dict[str, Any]) -> str:
    """The bounds after some rounds."""
    heads = ["bound", "promise", *map(after, SHOWN)]
    lines = [
        [bound["name"], bound["promise"], *(f"{bound['epsilons'][count - 1]:.3f}" for count in SHOWN)]
        for bound in task["bounds"]
    ]
    return rows(heads, lines)


def parts(task: dict[str, Any]) -> str:
    """Both odometers of the poster as a part of the original one, and what the drift adds to them."""
    bounds = {bound["name"]: bound["epsilons"] for bound in task["bounds"]}
    lines = []
    for name in ("mixture", "stitched"):
        full, printed = bounds[f"{name}, with drift"], bounds[f"{name}, as printed"]
        original = bounds["Rogers et al."]
        lines.append([f"{name}, of Rogers et al.", *(f"{full[k - 1] / original[k - 1]:.2f}" for k in SHOWN)])
        lines.append([f"{name}, what the drift adds", *(f"{full[k - 1] - printed[k - 1]:.3f}" for k in SHOWN)])
    return rows(["", *map(after, SHOWN)], lines)


def tables(numbers: dict[str, Any]) -> dict[str, str]:
    """Mark on the page -> table."""
    found = {"parts": parts(numbers["pure"])}
    for task, mark in (("pure", ""), ("Gaussian", " Gaussian")):
        found |= {f"table{mark}": table(numbers[task]), f"filters{mark}": filter_table(numbers[task])}
    return found


# Pictures


@styled()
def draw_odometers(numbers: dict[str, Any]) -> Any:
    """Epsilon over the rounds by each odometer, a panel for each kind of rounds."""
    picture = figure(12, 6.2)
    for axes, (task, title) in zip(picture.subplots(1, 2, sharey=True), TITLES.items(), strict=True):
        for bound in numbers[task]["bounds"]:
            if bound["name"] in STYLES and bound["name"] != "basic composition":
                line(axes, numbers[task]["rounds"], bound["epsilons"], bound["name"], bound["promise"])
        axes.set(xlabel="rounds", ylabel=f"epsilon at delta = {DELTA:g}", title=title)
    return with_legend(picture)


@styled()
def draw_filters(numbers: dict[str, Any]) -> Any:
    """The rounds that each filter admits over its epsilon, a panel for each kind of rounds."""
    picture = figure(12, 5.6)
    for axes, (task, title) in zip(picture.subplots(1, 2, sharey=True), TITLES.items(), strict=True):
        for name, counts in numbers[task]["filters"].items():
            line(axes, numbers[task]["budgets"], counts, name, "")
        axes.set(xlabel=f"epsilon at delta = {DELTA:g}", ylabel="rounds admitted", title=title)
    return with_legend(picture)


def line(axes: Any, x: Any, y: Any, name: str, promise: str) -> None:
    """One line in its paper's colour."""
    colour, dashes, width = STYLES[name]
    note = {"restarts": " (fixed number of filters)", "none": " (not valid)"}.get(promise, "")
    behind = {"alpha": 0.4, "zorder": 1} if name == OPTIMUM else {}
    axes.plot(x, y, dashes, color=colour, lw=width, label=name + note, **behind)


def with_legend(picture: Any) -> Any:
    """One legend below, of all lines of both panels."""
    found = {}
    for axes in picture.axes:
        found |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    picture.legend(found.values(), found.keys(), loc="outside lower center", ncols=4)
    return picture


def computed(most: int = ROUNDS, epsilons: tuple[float, ...] = DRAWN) -> dict[str, Any]:
    """All numbers of the page."""
    return {
        task: {
            "mechanism": repr(step),
            "delta": DELTA,
            "rounds": [*range(1, most + 1)],
            "bounds": running(step, most),
            "budgets": [*epsilons],
            "filters": stops(step, epsilons),
        }
        for task, step in TASKS.items()
    }


def main() -> None:
    """Compute, write, plot, and print some rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=pages.DOCS)
    parser.add_argument("--quick", action="store_true", help="the first ten rounds, two budgets; writes nothing")
    parser.add_argument("--draw", action="store_true", help="tables and pictures from the recorded numbers")
    options = parser.parse_args()
    if options.quick:
        print(json.dumps(computed(10, (1.0, 2.0)), indent=1))
        return
    recorded = options.out / "whitehouse.json"
    numbers = json.loads(recorded.read_text(encoding="utf-8")) if options.draw else computed()
    found = tables(numbers)
    print(*found.values(), sep="\n")
    pages.save("whitehouse", numbers, found.pop("table"), draw_odometers(numbers), options.out)
    pages.save_picture(draw_filters(numbers), "whitehouse-filters", options.out)
    for mark, text in found.items():
        pages.insert(options.out / "whitehouse.md", text, mark)


if __name__ == "__main__":
    main()

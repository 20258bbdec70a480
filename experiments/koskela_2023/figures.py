"""Koskela, Tobaben & Honkela (2023), figures 3 to 5: Gaussian DP against Rényi DP, by closed forms.

    python experiments/koskela_2023/figures.py

Noise 100, delta = 1e-5. Figure 3: delta over epsilon after 420 rounds. Figure 4: epsilon over the number of rounds.
Figure 5: the number of rounds that fit into epsilon. Prints a table, and writes koskela-figures.json, .svg, .png and
the table of koskela-figures.md in docs/experiments.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from almoner import mechanisms
from almoner.curves import gaussian, renyi, zcdp
from almoner.report.figures import figure, one_two_five, styled

sys.path.append(str(Path(__file__).parents[1]))
import pages

SIGMA, DELTA, ROUNDS = 100.0, 1e-5, 420
GRID = [float(order) for order in range(2, 33)]  # the paper's orders
Epsilon = Callable[[int], float]


def run(rounds: int) -> mechanisms.Repeated:
    """The given number of rounds of the paper's mechanism."""
    return mechanisms.Repeated(mechanisms.Gaussian(SIGMA), rounds)


def epsilons(delta: float) -> dict[str, Epsilon]:
    """Epsilon after a number of rounds, by each accounting."""
    return {
        "Gaussian DP": lambda k: gaussian.of(run(k)).epsilon(delta=delta),
        "Rényi, all orders": lambda k: zcdp.of(run(k)).epsilon(delta=delta),
        "Rényi, orders 2 to 32": lambda k: renyi.of(run(k), GRID).epsilon(delta=delta),
        "Rényi, Mironov's conversion": lambda k: _mironov(k, delta),
    }


def _mironov(rounds: int, delta: float) -> float:
    rho = float(zcdp.cost(run(rounds)))
    best = 1 + (np.log(1 / delta) / rho) ** 0.5
    return float(renyi.mironov(renyi.values(run(rounds), [best]), [best], delta=delta))


def figure_3() -> dict[str, list[float]]:
    """Delta at each epsilon after 420 rounds, by inverting epsilon at each delta."""
    grid = np.linspace(0.05, 1.2, 47)
    mu, rho = gaussian.of(run(ROUNDS)).mu, zcdp.of(run(ROUNDS))
    curve = renyi.values(run(ROUNDS), GRID)
    orders = np.asarray(GRID)
    at_grid = [float(np.min(np.exp((orders - 1) * (curve - e + np.log1p(-1 / orders))) / orders)) for e in grid]
    mironov = [float(np.exp(-(max(0.0, e - rho.rho) ** 2) / (4 * rho.rho))) for e in grid]
    return {
        "epsilon": list(map(float, grid)),
        "Gaussian DP": list(map(float, gaussian.delta(mu, epsilon=grid))),
        "Rényi, all orders": [rho.delta(epsilon=float(e)) for e in grid],
        "Rényi, orders 2 to 32": [min(1.0, value) for value in at_grid],
        "Rényi, Mironov's conversion": mironov,
    }


def figure_4() -> dict[str, list[float]]:
    """Epsilon at each number of rounds."""
    rounds = [int(k) for k in np.unique(np.geomspace(10, 5000, 40).astype(int))]
    return {"rounds": rounds} | {name: [f(k) for k in rounds] for name, f in epsilons(DELTA).items()}


def figure_5() -> dict[str, list[float]]:
    """The largest number of rounds at each epsilon."""
    targets = [0.1, 0.2, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0]
    return {"epsilon": targets} | {name: [_most(f, e) for e in targets] for name, f in epsilons(DELTA).items()}


def _most(epsilon: Epsilon, target: float) -> int:
    low, high = 0, 1
    while epsilon(high) <= target:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if epsilon(middle) <= target else (low, middle)
    return low


def printed_rounds() -> dict[str, float]:
    """The numbers behind "495 against 420 rounds": epsilons of so many rounds, and the rounds at 0.8 exactly."""
    by_name = epsilons(DELTA)
    exact, orders = by_name["Gaussian DP"], by_name["Rényi, orders 2 to 32"]
    most = _most(exact, orders(ROUNDS))
    return {
        "Rényi, 420": orders(ROUNDS),
        "Gaussian, 420": exact(ROUNDS),
        "rounds": most,
        "Gaussian, rounds": exact(most),
        "Gaussian, one more": exact(most + 1),
        "Gaussian at 0.8": _most(exact, 0.8),
        "Rényi at 0.8": _most(orders, 0.8),
    }


def rounds_table(found: dict[str, float]) -> str:
    """Format the rounds as a Markdown table."""
    less = 100 * (1 - found["Gaussian, 420"] / found["Rényi, 420"])
    rows = [
        ("epsilon of 420 rounds, Rényi DP", f"{found['Rényi, 420']:.4f}"),
        (
            "epsilon of 420 rounds, Gaussian DP",
            f"{found['Gaussian, 420']:.4f} ({less:.1f} % less; paper: roughly 10 %)",
        ),
        ("rounds by Gaussian DP within the epsilon of 420 by Rényi DP", f"{found['rounds']:.0f} (paper: 495)"),
        (
            "epsilon of so many, and of one more, Gaussian DP",
            f"{found['Gaussian, rounds']:.4f}, {found['Gaussian, one more']:.4f}",
        ),
        (
            "rounds at epsilon = 0.8 exactly, Gaussian DP and Rényi DP",
            f"{found['Gaussian at 0.8']:.0f} and {found['Rényi at 0.8']:.0f}",
        ),
    ]
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]) + "\n"


def table(figures: dict[str, dict[str, list[float]]]) -> str:
    """Figure 5 as a Markdown table: rounds by accounting and epsilon."""
    numbers = figures["figure 5"]
    lines = ["| epsilon | " + " | ".join(f"{value:g}" for value in numbers["epsilon"]) + " |"]
    lines.append("|---" * (len(numbers["epsilon"]) + 1) + "|")
    lines += [f"| {name} | " + " | ".join(f"{value:,}" for value in values) + " |" for name, values in numbers.items()][
        1:
    ]
    return "\n".join(lines) + "\n"


@styled()
def draw(figures: dict[str, Any]) -> Any:
    """The three figures side by side; lines that lie on each other are dashed differently."""
    about = {
        "figure 3": ("delta after 420 rounds, by epsilon", "delta"),
        "figure 4": ("epsilon, by rounds", "epsilon"),
        "figure 5": ("rounds that fit, by epsilon", "rounds"),
    }
    picture = figure(13, 4.2)
    panels = picture.subplots(1, 3)
    for axes, (name, data) in zip(panels, figures.items(), strict=True):
        (across, x), *lines = data.items()
        for place, (label, y) in enumerate(lines):
            dashes = (("-", 2.6), ("--", 1.6), (":", 1.6), ("-.", 1.2))[place % 4]
            axes.plot(x, y, dashes[0], lw=dashes[1], label=label)
        title, upward = about[name]
        axes.set(xlabel=across, ylabel=upward, title=f"{title} ({name})")
        if name != "figure 4":
            axes.set_yscale("log")
        if name == "figure 5":
            one_two_five(axes.yaxis)
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return picture


def main() -> None:
    """Compute, write and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=pages.DOCS)
    parser.add_argument("--quick", action="store_true", help="the table alone; writes nothing")
    options = parser.parse_args()
    out = options.out
    if options.quick:
        print(table({"figure 5": figure_5()}))
        return
    figures = {"figure 3": figure_3(), "figure 4": figure_4(), "figure 5": figure_5()}
    print(table(figures))
    rounds = printed_rounds()
    pages.save("koskela-figures", figures | {"rounds": rounds}, table(figures), draw(figures), out)
    pages.insert(out / "koskela-figures.md", rounds_table(rounds), "rounds")


if __name__ == "__main__":
    main()

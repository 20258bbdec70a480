"""The figure of Whitehouse et al. (2023): odometers over 100 rounds of 0.1-DP, with the drift that their poster omits.

    python experiments/whitehouse_2023/odometers.py
    python experiments/whitehouse_2023/odometers.py --quick    # the first ten rounds; writes nothing

Beside them: how many rounds of 0.1-DP each filter admits, the poster's and the original one of Rogers et al. Prints
both tables, and writes whitehouse.json, whitehouse.svg, whitehouse.png and the tables of whitehouse.md in
docs/experiments; takes about ten seconds.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from almoner import filters, mechanisms, odometers
from almoner.accounting.compare import Bound, Comparison, optimum
from almoner.curves import approximate, renyi, zcdp
from almoner.report import figures

sys.path.append(str(Path(__file__).parents[1]))
import pages

SHOWN = (1, 3, 10, 30, 100)
ROUNDS, EPSILON, DELTA, PEOPLE = 100, 0.1, 1e-6, 100_000
BUDGETS, MOST = (0.5, 1.0, 2.0, 3.0, 5.0), 1000


def curves() -> dict[str, tuple[str, odometers.Odometer]]:
    """The odometers of the figure, and Almoner's."""
    plan = mechanisms.Repeated(mechanisms.Pure(EPSILON), ROUNDS)
    return {
        "Rogers et al.": ("pathwise", odometers.Rogers(delta=DELTA, people=PEOPLE)),
        "mixture, with drift": ("pathwise", odometers.Mixture(delta=DELTA, sum_delta=0.0, plan=plan)),
        "stitched, with drift": ("pathwise", odometers.Stitched(delta=DELTA, sum_delta=0.0)),
        "Lécuyer": ("pathwise", odometers.Lecuyer(delta=DELTA, sum_delta=0.0)),
        "Rényi": ("pathwise", odometers.Renyi(delta=DELTA, sum_delta=0.0)),
        "Rényi, planned": ("pathwise", odometers.Renyi(delta=DELTA, sum_delta=0.0, plan=plan)),
        "Rényi ": ("ex-post", odometers.Renyi(delta=DELTA, sum_delta=0.0)),
        "Rényi, planned ": ("ex-post", odometers.Renyi(delta=DELTA, sum_delta=0.0, plan=plan)),
    }


def comparison(most: int = ROUNDS) -> Comparison:
    """Every curve at every round, up to so many."""
    step, rounds = mechanisms.Pure(EPSILON), tuple(range(1, most + 1))
    runs = [mechanisms.Repeated(step, count) for count in rounds]
    bounds = [
        Bound("basic composition", "fixed", tuple(approximate.of(run).epsilon for run in runs)),
        Bound("optimum, rounds fixed in advance", "fixed", tuple(optimum(step, k, DELTA) for k in rounds)),
        Bound("Rényi, rounds fixed in advance", "fixed", tuple(renyi.of(run).epsilon(delta=DELTA) for run in runs)),
        Bound("zCDP, rounds fixed in advance", "fixed", tuple(zcdp.of(run).epsilon(delta=DELTA) for run in runs)),
    ]
    for name, (promise, odometer) in curves().items():
        values = []
        for _ in rounds:
            odometer.charge(step)
            values.append(odometer.epsilon() if promise == "pathwise" else odometer.ex_post_epsilon())
        bounds.append(Bound(name.strip(), promise, tuple(values)))
    return Comparison(step, DELTA, rounds, tuple(bounds))


def budgets(epsilon: float) -> dict[str, filters.Filter]:
    """Fresh filters for the same promise; all of delta is for the loss, because no round fails."""
    return {
        "basic composition": filters.Basic(epsilon=epsilon),
        "Rogers et al.": filters.Rogers(epsilon=epsilon, delta=DELTA, sum_delta=0.0),
        "Whitehouse et al., Filter Theorem": filters.Approximate(epsilon=epsilon, delta=DELTA, sum_delta=0.0),
        "zCDP": filters.Zcdp(epsilon=epsilon, delta=DELTA),
        "Rényi": filters.Renyi(epsilon=epsilon, delta=DELTA, sum_delta=0.0),
    }


def admitted(account: filters.Filter) -> int:
    """How many rounds of the figure fit, up to MOST."""
    step, low, high = mechanisms.Pure(EPSILON), 0, MOST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if account.admits(mechanisms.Repeated(step, middle)) else (low, middle - 1)
    return low


def stops() -> dict[str, list[int]]:
    """The rounds that each filter admits, for each budget; last the optimum for rounds fixed in advance."""
    columns = [{name: admitted(account) for name, account in budgets(epsilon).items()} for epsilon in BUDGETS]
    rows = {name: [column[name] for column in columns] for name in columns[0]}
    spent = [optimum(mechanisms.Pure(EPSILON), count, DELTA) for count in range(1, 2 * ROUNDS)]
    rows["optimum, rounds fixed in advance"] = [sum(one <= epsilon for one in spent) for epsilon in BUDGETS]
    return rows


def filter_table(rows: dict[str, list[int]]) -> str:
    """The rounds that filters admit as a Markdown table."""
    lines = ["| filter | " + " | ".join(f"epsilon {e:g}" for e in BUDGETS) + " |", "|---" * (len(BUDGETS) + 1) + "|"]
    lines += [f"| {name} | " + " | ".join(f"{count:,}" for count in counts) + " |" for name, counts in rows.items()]
    return "\n".join(lines) + "\n"


def parts(numbers: dict[str, Any]) -> str:
    """Both odometers of the poster as a part of the original one, as a Markdown table."""
    bounds = {bound["name"]: bound["epsilons"] for bound in numbers["bounds"]}
    lines = [
        "| part of the bound of Rogers et al. | " + " | ".join(f"{k} round{'s' * (k > 1)}" for k in SHOWN) + " |",
        "|---" * (len(SHOWN) + 1) + "|",
    ]
    for name in ("mixture, with drift", "stitched, with drift"):
        values = " | ".join(f"{bounds[name][k - 1] / bounds['Rogers et al.'][k - 1]:.2f}" for k in SHOWN)
        lines.append(f"| {name} | {values} |")
    return "\n".join(lines) + "\n"


def table(numbers: dict[str, Any]) -> str:
    """The bounds after some rounds as a Markdown table."""
    lines = [
        "| bound | promise | " + " | ".join(f"{count} round{'s' * (count > 1)}" for count in SHOWN) + " |",
        "|---" * (len(SHOWN) + 2) + "|",
    ]
    for bound in numbers["bounds"]:
        values = " | ".join(f"{bound['epsilons'][count - 1]:.3f}" for count in SHOWN)
        lines.append(f"| {bound['name']} | {bound['promise']} | {values} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Compute, write, plot, and print some rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=pages.DOCS)
    parser.add_argument("--quick", action="store_true", help="the first ten rounds; writes nothing")
    options = parser.parse_args()
    out, bounds = options.out, comparison(10 if options.quick else ROUNDS)
    if options.quick:
        print(bounds)
        return
    text, rounds = table(bounds.as_dict()), stops()
    print(text, filter_table(rounds), sep="\n")
    pages.save("whitehouse", bounds.as_dict() | {"filters": rounds}, text, out=out)
    pages.insert(out / "whitehouse.md", filter_table(rounds), "filters")
    pages.insert(out / "whitehouse.md", parts(bounds.as_dict()), "parts")
    for kind in ("svg", "png"):
        figures.bounds(bounds, out / f"whitehouse.{kind}", title=f"{ROUNDS} rounds of {EPSILON}-DP, delta = {DELTA:g}")


if __name__ == "__main__":
    main()

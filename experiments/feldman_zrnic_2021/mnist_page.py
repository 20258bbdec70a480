"""Feldman & Zrnic (2021), MNIST: the table, figure 1 and figure 2 of docs/experiments/mnist.md, from the recorded runs.

    python experiments/feldman_zrnic_2021/mnist_page.py

Trains nothing: `mnist.py` records runs in mnist.jsonl. Writes the tables into the page, mnist.svg and mnist.png.
The histograms of figure 2 are functions of people's data: they are shown because these data are public.
"""

import sys
from pathlib import Path

import numpy as np
from mnist import ALL, FILTER_SIZE, LOOKS, PRINTED
from scipy import stats

from almoner.report.figures import INK, figure, styled

sys.path.append(str(Path(__file__).parents[1]))
import pages
from journal import recorded

ONE_RUN = {0.3: ((104, 92.28), (125, 93.65)), 0.5: ((180, 94.90), (198, 95.11))}
"""The points of the paper's figure 1."""


def printed_table(runs):
    """The paper's table beside the runs as printed, and the paired differences of filtering."""
    lines = [
        "| epsilon | people | k, k_max | plain, at k, % | with filtering, at k_max, % | difference [95 %] | "
        "budget left at k_max | paper, plain | paper, with filtering | runs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in PRINTED.values():
        mine = [one for one in runs if one["epsilon"] == row.epsilon]
        groups = sorted({one["people"] for one in mine}, reverse=True)
        lines += [_printed_row(row, people, [one for one in mine if one["people"] == people]) for people in groups]
    return "\n".join(lines) + "\n"


def _printed_row(row, people, chosen):
    paper = [f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in (row.plain, row.filtered)]
    plain, filtered = (np.asarray([one[name] for one in chosen]) for name in ("at_steps", "accuracy"))
    left = [100 * one["active"][-1][1] for one in chosen if one["active"]]
    cells = [_mean(plain), _mean(filtered), _gap(filtered - plain), f"{np.mean(left):.1f} %" if left else "-"]
    first = [f"{row.epsilon:g}", f"{people:,}", f"{row.steps}, {row.k_max}"]
    return f"| {' | '.join([*first, *cells, *paper, str(len(chosen))])} |"


def _mean(values):
    if len(values) < 2:
        return f"{values[0]:.2f}"
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"


def _gap(values):
    """The mean of paired differences, with its 95 % interval by Student's t where there are several."""
    if len(values) < 2:
        return f"{values[0]:+.2f}"
    spread = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.2f} [{np.mean(values) - spread:+.2f}, {np.mean(values) + spread:+.2f}]"


def own_table(runs):
    """Runs with settings of our own."""
    lines = [
        "| budget | noise multiplier | rate times clip | momentum | decay | k | at k | k_max | at k_max | runs |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    fields = ("epsilon", "kind", "steps", "k_max", "learning_rate", "momentum", "decay")
    names = {"exact": "exact Gaussian", "tuned": "printed noise"}
    for key in sorted({tuple(one[of] for of in fields) for one in runs}):
        chosen = [one for one in runs if tuple(one[of] for of in fields) == key]
        one, (plain, last) = chosen[0], (np.mean([each[of] for each in chosen]) for of in ("at_steps", "accuracy"))
        after = f"{one['k_max']} | {last:.2f} %" if one["k_max"] > one["steps"] else "none | "
        rate = one["learning_rate"] * one["clip"]
        lines.append(
            f"| epsilon {one['epsilon']:g}, {names[one['kind']]} | {one['noise_multiplier']:.4g} | {rate:g} | "
            f"{one['momentum']:g} | {one['decay']:g} | {one['steps']} | {plain:.2f} % | {after} | {len(chosen)} |"
        )
    return "\n".join(lines) + "\n"


def look_table(runs):
    """What the odometers say at the steps of figure 2."""
    lines = [
        "| people | seed | step | median RDP | 90 % | largest | people at the largest |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in runs:
        for step, counts in one.get("odometers", ()):
            rdp = FILTER_SIZE * np.repeat(np.arange(len(counts)), counts)
            most = counts[-1]
            levels = " | ".join(f"{level:.4f}" for level in np.quantile(rdp, [0.5, 0.9, 1.0]))
            lines.append(f"| {one['people']:,} | {one['seed']} | {step} | {levels} | {most:,} |")
    return "\n".join(lines) + "\n"


@styled()
def picture(runs):
    """Figure 1 above, a panel for each epsilon that was run, figure 2 below."""
    image = figure(13, 8)
    above, below = image.subfigures(2, 1)
    epsilons = sorted({one["epsilon"] for one in runs})
    panels = above.subplots(1, len(epsilons), squeeze=False)[0], below.subplots(1, len(LOOKS))
    for panel, epsilon in zip(panels[0], epsilons, strict=True):
        row = PRINTED[epsilon]
        sizes = sorted({one["people"] for one in runs if one["epsilon"] == epsilon}, reverse=True)
        for one in (each for each in runs if each["epsilon"] == epsilon):
            step, found = zip(*[point[:2] for point in one["curve"]], strict=True)
            panel.plot(step, found, color=f"C{0 if one['people'] == ALL else 1}", linewidth=1.0)
        for people in sizes:
            seeds = len({one["seed"] for one in runs if (one["epsilon"], one["people"]) == (epsilon, people)})
            label = f"{people:,} people, {seeds} run{'s' * (seeds > 1)}"
            panel.plot([], [], color=f"C{0 if people == ALL else 1}", label=label)
        for place, (step, found) in enumerate(ONE_RUN.get(epsilon, ())):
            panel.plot(step, found, "x", color=INK, label="the paper's run" if place == 0 else None)
        panel.axvline(row.steps, linewidth=0.8, color="gray")
        panel.set(title=f"epsilon {epsilon:g}", xlabel=f"step (the line: {row.steps}, as printed)", ylim=(80, 98))
        panel.legend(loc="lower right")
    panels[0][0].set_ylabel("accuracy on the test images, %")
    looked = sorted((one for one in runs if one.get("odometers")), key=lambda one: (-one["people"], one["seed"]))
    for panel, at in zip(panels[1], looked[0]["odometers"] if looked else (), strict=False):
        step, counts = at
        panel.bar(FILTER_SIZE * np.arange(len(counts)), counts, width=FILTER_SIZE)
        panel.axvline(0.113, linewidth=0.8, color="gray")
        panel.set(title=f"after {step} steps", xlabel="RDP of order 63", xlim=(0, 0.14), yscale="log")
    panels[1][0].set_ylabel("people, by their odometer\n(the line: the budget, 0.113)")
    return image


def sections(runs):
    """The generated part of the page."""
    as_printed = [one for one in runs if one["kind"] == "printed"]
    own = [one for one in runs if one["kind"] != "printed"]
    return (
        f"{printed_table(as_printed)}\nWhat each person's odometer says (figure 2):\n\n{look_table(as_printed)}\n"
        f"![Accuracy over the steps, and each person's odometer](mnist.svg)\n\n"
        f"With settings of our own (see below):\n\n{own_table(own)}"
    )


def main():
    """Write the page."""
    runs = recorded(pages.RESULTS / "mnist.jsonl")
    pages.insert(pages.DOCS / "mnist.md", sections(runs))
    image = picture([one for one in runs if one["kind"] == "printed"])
    pages.save_picture(image, "mnist")


if __name__ == "__main__":
    main()

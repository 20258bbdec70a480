"""Feldman & Zrnic (2021), MNIST: the table, figure 1 and figure 2 of docs/experiments/mnist.md, from the recorded runs.

    python experiments/feldman_zrnic_2021/mnist_page.py

Trains nothing: `mnist.py` records runs in mnist.jsonl. Writes the tables into the page, mnist.svg and mnist.png.
The histograms of figure 2 are functions of people's data: they are shown because these data are public.
"""

import sys
from pathlib import Path

import numpy as np
from mnist import CLOSE, FILTER_SIZE, LOOKS, PRINTED

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
        "budget left at k_max | paper, plain | paper, with filtering | runs, device |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for epsilon, people, device in _groups(runs):
        lines.append(_printed_row(PRINTED[epsilon], people, device, _of(runs, epsilon, people, device)))
    return "\n".join(lines) + "\n"


def _groups(runs):
    """(epsilon, people, device) of the runs; those of all people on the device with most runs first."""
    keys = [(one["epsilon"], one["people"], one["device"]) for one in runs]
    return sorted(set(keys), key=lambda key: (key[0], -key[1], -keys.count(key)))


def _of(runs, epsilon, people, device):
    return [one for one in runs if (one["epsilon"], one["people"], one["device"]) == (epsilon, people, device)]


def _printed_row(row, people, device, chosen):
    paper = [f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in (row.plain, row.filtered)]
    plain, filtered = (np.asarray([one[name] for one in chosen]) for name in ("at_steps", "accuracy"))
    left = [100 * one["active"][-1][1] for one in chosen if one["active"]]
    cells = [_mean(plain), _mean(filtered), pages.interval(filtered - plain), f"{np.mean(left):.1f} %" if left else "-"]
    first = [f"{row.epsilon:g}", f"{people:,}", f"{row.steps}, {row.k_max}"]
    return f"| {' | '.join([*first, *cells, *paper, f'{len(chosen)}, {device}'])} |"


def _pairs(runs):
    """(epsilon, device, [(with filtering, control) of each seed]) where there are both, on one device."""
    controls = {(one["epsilon"], one["device"], one["seed"]): one for one in runs if one["kind"] == "control"}
    found = {}
    for one in sorted((one for one in runs if one["kind"] == "printed"), key=lambda one: one["seed"]):
        key = one["epsilon"], one["device"]
        if (*key, one["seed"]) in controls:
            found.setdefault(key, []).append((one, controls[*key, one["seed"]]))
    return [(*key, pairs) for key, pairs in sorted(found.items()) if len(pairs) > 1]


def _late(one, until):
    """The mean accuracy of the ten iterates up to a step."""
    return np.mean([found for step, found, *_ in one["curve"] if until - 10 < step <= until])


def control_table(runs):
    """Filtering against plain descent planned for k_max steps, at the same promise: paired over the seeds."""
    lines = [
        "| epsilon, iterate | plain, at k, % | with filtering, at k_max, % | plain, planned for k_max, % | "
        "filtering - at k [95 %] | filtering - planned [95 %] | planned - at k [95 %] | seeds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for epsilon, _, pairs in _pairs(runs):
        row = PRINTED[epsilon]
        last = [(one["at_steps"], one["accuracy"], other["accuracy"]) for one, other in pairs]
        late = [(_late(one, row.steps), _late(one, row.k_max), _late(other, row.k_max)) for one, other in pairs]
        for name, found in (("the last", last), ("mean of the last ten", late)):
            plain, filtered, planned = np.transpose(found)
            gaps = (filtered - plain, filtered - planned, planned - plain)
            cells = [f"{epsilon:g}, {name}", *map(_mean, (plain, filtered, planned)), *map(pages.interval, gaps)]
            lines.append(f"| {' | '.join(cells)} | {len(pairs)} |")
    return "\n".join(lines) + "\n"


def out_table(runs):
    """The paper's explanation: who is out of budget after round k, and who is misclassified, among the trained."""
    lines = [
        "| epsilon | steps after k | out of budget | misclassified | misclassified and still in | runs |",
        "|---|---|---|---|---|---|",
    ]
    with_missed = [one for one in runs if one.get("missed")]
    for epsilon in sorted({one["epsilon"] for one in with_missed}):
        chosen, row = [one for one in with_missed if one["epsilon"] == epsilon], PRINTED[epsilon]
        for after in dict.fromkeys((0, 1, 5, 10, row.k_max - row.steps)):
            ends = [(one["active"][after], one["missed"][after]) for one in chosen if after < len(one["missed"])]
            if ends:
                shares = np.mean([(1 - active[1], missed[1], missed[2]) for active, missed in ends], axis=0)
                cells = " | ".join(f"{100 * share:.2f} %" for share in shares)
                lines.append(f"| {epsilon:g} | {after} | {cells} | {len(ends)} |")
    return "\n".join(lines) + "\n"


def _mean(values):
    if len(values) < 2:
        return f"{values[0]:.2f}"
    return f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"


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
    """Readings of the odometers at the steps of figure 2: means over the runs, and the largest of all."""
    lines = [
        "| people, device | step | median RDP | 90 % | largest of a run, least to most | runs |",
        "|---|---|---|---|---|---|",
    ]
    looked = [one for one in runs if one.get("odometers")]
    for epsilon, people, device in _groups(looked):
        chosen = _of(looked, epsilon, people, device)
        for place, step in enumerate(LOOKS):
            counts = [one["odometers"][place][1] for one in chosen]
            rdp = [FILTER_SIZE * np.repeat(np.arange(len(each)), each) for each in counts]
            middle, high, most = np.transpose([np.quantile(each, [0.5, 0.9, 1.0]) for each in rdp])
            shown = f"{np.mean(middle):.4f} | {np.mean(high):.4f} | {min(most):.4f} to {max(most):.4f}"
            lines.append(f"| {people:,}, {device} | {step} | {shown} | {len(chosen)} |")
    return "\n".join(lines) + "\n"


@styled()
def picture(runs):
    """Figure 1 above, from ten steps before k on, figure 2 below."""
    image = figure(13, 8)
    above, below = image.subfigures(2, 1)
    paired = _pairs(runs)
    panels = above.subplots(1, max(1, len(paired)), squeeze=False)[0], below.subplots(1, len(LOOKS))
    for panel, (epsilon, _, pairs) in zip(panels[0], paired, strict=False):
        row = PRINTED[epsilon]
        names = "with filtering (until k: plain)", "plain, planned for k_max"
        for place, (name, group) in enumerate(zip(names, zip(*pairs, strict=True), strict=True)):
            curves = [[point[:2] for point in one["curve"] if point[0] >= row.steps - CLOSE] for one in group]
            for curve in curves:
                panel.plot(*np.transpose(curve), color=f"C{place}", linewidth=0.6, alpha=0.35)
            looks = ({step for step, _ in curve} for curve in curves)  # some runs were looked at more often
            common = set.intersection(*looks)
            means = np.mean([[point for point in curve if point[0] in common] for curve in curves], axis=0)
            panel.plot(*means.T, color=f"C{place}", linewidth=2.2, label=name)
        for place, (step, found) in enumerate(ONE_RUN.get(epsilon, ())):
            panel.plot(step, found, "x", color=INK, label="the paper's run" if place == 0 else None)
        panel.axvline(row.steps, linewidth=0.8, color="gray")
        panel.set(
            title=f"epsilon {epsilon:g}: {len(pairs)} seeds, and their means",
            xlabel=f"step (the line: k = {row.steps})",
        )
        panel.legend(loc="best")
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
    own = [one for one in runs if one["kind"] in ("exact", "tuned")]
    return (
        f"{printed_table(as_printed)}\n"
        f"Filtering against the control, plain descent planned for k_max steps at the same promise, paired over the "
        f"seeds:\n\n{control_table(runs)}\n"
        f"Who is out of budget and who is misclassified, among the people of the training:\n\n{out_table(as_printed)}\n"
        f"What each person's odometer says (figure 2):\n\n{look_table(as_printed)}\n"
        f"![Accuracy over the steps, and each person's odometer](mnist.svg)\n\n"
        f"With settings of our own (see below):\n\n{own_table(own)}"
    )


def main():
    """Write the page."""
    runs = recorded(pages.RESULTS / "mnist.jsonl")
    pages.insert(pages.DOCS / "mnist.md", sections(runs))
    image = picture(runs)
    pages.save_picture(image, "mnist")


if __name__ == "__main__":
    main()

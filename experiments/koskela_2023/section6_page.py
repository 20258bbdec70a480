"""Tables and pictures of koskela-groups.md from the saved runs of section6.py: figures 2 and 6 to 10 of the paper."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from almoner.report.figures import figure, styled, thousands

sys.path.append(str(Path(__file__).parents[1]))
import pages

Line = dict[str, Any]
MAIN, PAGE = 2.75, "koskela-groups.md"
STARTS, ENDS = "filtering starts", "end"
ORDER = ("no condition", "pneumonia", "no pneumonia", "heart attack", "no heart attack", "others")


def chosen(
    lines: Sequence[Line], *, epsilon: float = MAIN, multiple: float = 1.0, kind: str = "filtered"
) -> list[Line]:
    """The runs of one setting, by seed."""
    key = (kind, epsilon, multiple)
    found = [line for line in lines if (line["kind"], line["epsilon"], line.get("multiple")) == key]
    return sorted(found, key=lambda line: line["seed"])


def interval(values: Any) -> tuple[Any, Any]:
    """The mean over the first axis, the seeds, and half the width of its 95 % interval (Student's t)."""
    table = np.asarray(values, dtype=np.float64)
    if len(table) < 2:
        return table.mean(axis=0), np.zeros(table.shape[1:])
    return table.mean(axis=0), pages.half_width(table)


def cell(values: Sequence[float], form: str = "{:+.3f}") -> str:
    """A mean with its interval."""
    mean, half = interval(values)
    return f"{form.format(mean)} ± {form.replace('+', '').format(half)}"


def by_group(run: Line, attribute: str, audience: str, column: str, moment: str) -> dict[str, float]:
    """Group -> value, of one run."""
    return {
        row["group"]: row[column]
        for row in run["groups"]
        if (row["attribute"], row["audience"], row["moment"]) == (attribute, audience, moment)
    }


def group_table(lines: Sequence[Line], attribute: str) -> str:
    """For each group: epsilon and losses when filtering starts and at the end, and how the losses change."""
    runs, others = chosen(lines), chosen(lines, kind="nobody left out")
    first = by_group(runs[0], attribute, "train", "people", ENDS)
    out = [
        f"| {attribute} | people | mean epsilon | loss (train) | change | loss (test) | change | "
        "change (test), nobody left out |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for group in sorted(first, key=lambda name: (ORDER.index(name) if name in ORDER else 0, name == "others", name)):

        def values(audience: str, column: str, moment: str, of: list[Line] = runs, group: str = group) -> list[float]:
            return [by_group(run, attribute, audience, column, moment)[group] for run in of]

        def changes(audience: str, of: list[Line], values: Callable[..., list[float]] = values) -> str:
            if not of:
                return "not run"
            ends, starts = values(audience, "loss", ENDS, of), values(audience, "loss", STARTS, of)
            return cell(np.subtract(ends, starts).tolist())

        means = [
            " → ".join(f"{np.mean(values(audience, column, moment)):{form}}" for moment in (STARTS, ENDS))
            for audience, column, form in (
                ("train", "epsilon", ".2f"),
                ("train", "loss", ".3f"),
                ("test", "loss", ".3f"),
            )
        ]
        out.append(
            f"| {group} | {first[group]} | {means[0]} | {means[1]} | {changes('train', runs)} | {means[2]} | "
            f"{changes('test', runs)} | {changes('test', others)} |"
        )
    return "\n".join(out) + "\n"


def at(run: Line, epoch: int) -> float:
    """AUC-ROC after an epoch, in percent."""
    return 100 * float(run["auc"][run["epoch"].index(epoch)])


def moments(run: Line) -> tuple[int, int, int]:
    """The epochs that tables show: the last in full, a fifth as many later, and the last."""
    return run["epochs"], run["epochs"] + max(1, run["epochs"] // 5), run["epochs"] + run["more"]


def setting_table(lines: Sequence[Line], settings: Sequence[tuple[float, float]]) -> str:
    """For each budget and clip: AUC-ROC when filtering starts and later, who takes part, and who is near the budget."""
    out = []
    for epsilon, multiple in settings:
        runs = chosen(lines, epsilon=epsilon, multiple=multiple)
        if not runs:
            continue
        start, soon, end = moments(runs[0])
        if not out:
            out = [
                "| epsilon | noise / clip | clip / best | clip | rate | "
                f"AUC-ROC after {start}, % | difference after {soon} | difference after {end} | "
                f"filtered, less the control, after {end} | taking part in {start + 1}, % | in {soon}, % | "
                f"in {end}, % | above 0.95 epsilon after {start}, % |",
                "|---" * 13 + "|",
            ]
        planned = chosen(lines, epsilon=epsilon, multiple=multiple, kind="planned")
        controls = {run["seed"]: 100 * run["auc"] for run in planned}
        over = [at(r, end) - controls[r["seed"]] for r in runs if r["seed"] in controls]
        one, people = runs[0], runs[0]["active"][0]
        active = [f"{100 * np.mean([r['active'][k - 1] for r in runs]) / people:.0f}" for k in (start + 1, soon, end)]
        out.append(
            f"| {epsilon:g} | {one['noise_multiplier']:.2f} | {multiple:g} | {one['clip']:g} | {one['rate']:g} | "
            f"{cell([at(r, start) for r in runs], '{:.2f}')} | "
            f"{cell([at(r, soon) - at(r, start) for r in runs], '{:+.2f}')} | "
            f"{cell([at(r, end) - at(r, start) for r in runs], '{:+.2f}')} | "
            f"{cell(over, '{:+.2f}') if over else 'not run'} | {' | '.join(active)} | "
            f"{100 * np.mean([r['near the budget'] for r in runs]):.0f} |"
        )
    return "\n".join(out) + "\n"


def trial_table(lines: Sequence[Line], budgets: Sequence[float], *, least: int, most: int = 3) -> str:
    """The best settings that were tried for each budget, by so many seeds at least, with their AUC-ROC.

    Clips that were tried at the main budget alone are those of other pictures, and were no choice.
    """
    grid = {line["clip"] for line in lines if line["kind"] == "tuning" and line["epsilon"] != MAIN}
    out = ["| epsilon | " + " | ".join(f"{place}: clip, rate, AUC-ROC" for place in range(1, most + 1)) + " |"]
    out.append("|---" * (most + 1) + "|")
    for epsilon in budgets:
        trials: dict[tuple[float, float], list[float]] = {}
        for line in lines:
            if (line["kind"], line["epsilon"]) == ("tuning", epsilon) and (line["clip"] in grid or not grid):
                trials.setdefault((line["clip"], line["rate"]), []).append(100 * line["auc"])
        seeds = max(map(len, trials.values()), default=0)
        judged = {pair: scores for pair, scores in trials.items() if len(scores) == seeds}
        best = sorted(judged.items(), key=lambda found: -float(np.mean(found[1])))[:most]
        cells = [
            f"{clip:g}, {rate:g}, {cell(scores, '{:.2f}') if seeds > 1 else f'{scores[0]:.3f}'} %"
            for (clip, rate), scores in best
        ]
        if cells and seeds >= least:
            out.append(f"| {epsilon:g} | {' | '.join(cells + [''] * (most - len(cells)))} |")
    return "\n".join(out) + "\n"


def tables(lines: Sequence[Line]) -> dict[str, str]:
    """Mark on the page -> table."""
    attributes = {row["attribute"]: None for row in chosen(lines)[0]["groups"]}
    found = {attribute: group_table(lines, attribute) for attribute in attributes}
    found["budgets"] = setting_table(lines, [(epsilon, 1.0) for epsilon in (0.5, MAIN, 10.0)])
    by_several = any(line["kind"] == "tuning" and line["seed"] > 100 for line in lines)
    found["trials"] = trial_table(lines, (0.5, MAIN, 10.0) if by_several else (0.5, 10.0), least=1 + by_several)
    multiples = sorted({line["multiple"] for line in lines if line["epsilon"] == MAIN and "multiple" in line})
    return found | {"clips": setting_table(lines, [(MAIN, multiple) for multiple in multiples])}


# Pictures


def band(axes: Any, x: Any, values: Any, label: str, color: Any) -> None:
    """A mean over seeds with its 95 % interval."""
    mean, half = interval(values)
    axes.plot(x, mean, color=color, label=label, lw=1.5)
    axes.fill_between(x, mean - half, mean + half, color=color, alpha=0.2, lw=0)


def finish(axes: Any, title: str, start: int, ylabel: str) -> None:
    """Mark where filtering starts, and name the axes."""
    axes.axvline(start, color="gray", lw=1, ls="--")
    axes.set(title=title, xlabel="epoch", ylabel=ylabel)


def group_curves(axes: Any, runs: list[Line], name: str) -> None:
    """One line for each of the five groups."""
    for number, group in enumerate(ORDER[:-1]):
        if group in runs[0][name]:
            band(axes, runs[0]["epoch"], [run[name][group] for run in runs], group, f"C{number}")


@styled()
def draw_groups(lines: Sequence[Line]) -> Any:
    """Figure 2: losses and mean epsilon of each group, over the epochs."""
    runs = chosen(lines)
    picture = figure(13, 4)
    titles = {"test": "test loss", "train": "training loss", "mean epsilon": "mean individual epsilon"}
    for axes, (name, title) in zip(picture.subplots(1, 3), titles.items(), strict=True):
        group_curves(axes, runs, name)
        finish(axes, title, runs[0]["epochs"], title)
    axes.legend()
    return picture


@styled()
def draw_clips(lines: Sequence[Line]) -> Any:
    """Figure 6: AUC-ROC and who takes part over the epochs, at each clip."""
    from matplotlib import colormaps

    picture = figure(11, 4)
    left, right = picture.subplots(1, 2)
    multiples = sorted({line["multiple"] for line in lines if line["epsilon"] == MAIN and "multiple" in line})
    for number, multiple in enumerate(multiples):  # in the order of the colours: from dark to light
        colour = colormaps["viridis"](0.9 * number / max(1, len(multiples) - 1))
        auc_and_active(left, right, chosen(lines, multiple=multiple), f"{multiple:g} times", colour)
    right.legend()
    return picture


def auc_and_active(left: Any, right: Any, runs: list[Line], label: str, color: Any) -> None:
    """AUC-ROC on the left, people who take part on the right."""
    band(left, runs[0]["epoch"], [run["auc"] for run in runs], label, color)
    band(right, range(1, len(runs[0]["active"]) + 1), [run["active"] for run in runs], label, color)
    finish(left, f"AUC-ROC (test), budget {runs[0]['epsilon']:g}", runs[0]["epochs"], "AUC-ROC, macro-averaged")
    finish(right, "people who take part", runs[0]["epochs"], "people")
    thousands(right.yaxis)


@styled()
def draw_histograms(lines: Sequence[Line]) -> Any:
    """Figures 7 and 8: each person's epsilon when filtering starts, at the best clip and at five times that."""
    picture = figure(11, 3.5)
    for axes, multiple in zip(picture.subplots(1, 2), (1.0, 5.0), strict=True):
        runs = chosen(lines, multiple=multiple)
        bars, edges = np.sum([run["histogram"] for run in runs], axis=0), np.linspace(0, MAIN, 41)
        axes.bar(edges[:-1], bars / len(runs), width=edges[1], align="edge")
        axes.axvline(MAIN, color="gray", lw=1, ls="--")
        name = "the best clip" if multiple == 1 else f"{multiple:g} times the best clip"
        axes.set(
            title=f"{name}, {runs[0]['clip']:g}", xlabel=f"epsilon after {runs[0]['epochs']} epochs", ylabel="people"
        )
        thousands(axes.yaxis)
    return picture


@styled()
def draw_budgets(lines: Sequence[Line]) -> Any:
    """Figures 9 and 10: budgets of 0.5 and 10, with the mean epsilon of each group."""
    picture = figure(13, 7)
    for row, epsilon in zip(picture.subplots(2, 3), (0.5, 10.0), strict=True):
        runs = chosen(lines, epsilon=epsilon)
        auc_and_active(row[0], row[1], runs, "", "C0")
        group_curves(row[2], runs, "mean epsilon")
        finish(row[2], "mean individual epsilon", runs[0]["epochs"], "epsilon")
        row[2].legend()
    return picture


def pictures(lines: Sequence[Line]) -> dict[str, Any]:
    """Ending of the file's name -> picture, for what has been run."""
    found = {"": draw_groups(lines)}
    if chosen(lines, multiple=5.0):
        found |= {"-clips": draw_clips(lines), "-histograms": draw_histograms(lines)}
    if chosen(lines, epsilon=0.5) and chosen(lines, epsilon=10.0):
        found["-budgets"] = draw_budgets(lines)
    return found


def write(lines: Sequence[Line], out: Path | None, name: str) -> None:
    """Print the tables; with a folder, put them between their marks on the page, and save the pictures."""
    if not chosen(lines):
        return
    found = tables(lines)
    print("\n".join(found.values()))
    if out is None:
        return
    prefix = "" if name == "koskela-groups" else f"{name}: "
    for mark, table in found.items():
        if (out / PAGE).is_file() and pages.marked(out / PAGE, prefix + mark):
            pages.insert(out / PAGE, table, prefix + mark)
    for ending, picture in pictures(lines).items():
        pages.save_picture(picture, f"{name}{ending}", out)

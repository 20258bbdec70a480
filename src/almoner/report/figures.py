"""Pictures in one style, made without a display: bounds, spends, trade-offs; needs matplotlib (extra ``plots``)."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from almoner import _extras
from almoner._disk import private_files
from almoner._private import LEVELS, MARK
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from almoner.accounting.compare import Comparison
    from almoner.curves.tradeoff import Curve
    from almoner.training import HolderReport

__all__ = ["INK", "bounds", "figure", "one_two_five", "save", "spends", "styled", "thousands", "tradeoff"]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, which colour-blind readers can tell apart, without the black and the yellow."""

INK = "#3c3c3d"
"""Colour of text and axes: light instead where a reader's device is dark."""

_ON_DARK = {INK: "#d8d8d9", "#000000": "#d8d8d9", "#0072b2": "#2e93d6"}
"""Colours that are too dark for a dark page, and those that are shown there instead."""

_INKED = ("axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "legend.labelcolor")
_STYLE: Any = {
    **dict.fromkeys((*_INKED, "text.color", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("axes.spines.right", "axes.spines.top", "legend.frameon"), False),
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "figure.facecolor": "white",
    "font.size": 10,
    "grid.alpha": 0.3,
    "grid.color": "#808081",
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "svg.hashsalt": "figures",
}

WIDTH = 6.0  # inches: the smallest letters are read on a telephone, where a picture is as wide as the screen


@contextmanager
def styled() -> Iterator[None]:
    """Draw in the style of Almoner's pictures: as a ``with`` block, or as a decorator of a function that draws.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with _extras.need("matplotlib", extra="plots"):
        from matplotlib import rc_context, rcsetup
    with rc_context(_STYLE | {"axes.prop_cycle": rcsetup.cycler(color=PALETTE)}):
        yield


def figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches, that belongs to no window: ``subplots`` fills it, :func:`save` writes it.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with _extras.need("matplotlib", extra="plots"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def thousands(axis: "Axis") -> None:
    """Write the numbers of an axis with commas: 12,000."""
    axis.set_major_formatter("{x:,.0f}")


def one_two_five(axis: "Axis") -> None:
    """Mark a logarithmic axis at 1, 2 and 5 times powers of ten, in plain numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def save(picture: "Figure", path: str | Path) -> None:
    """Write a picture; the ending says the format. An SVG has no background, and ink for light and dark pages."""
    path = Path(path)
    with styled():
        if path.suffix.lower() != ".svg":
            picture.savefig(path, dpi=120)
            return
        picture.savefig(path, metadata={"Date": None}, facecolor="none")
    svg = path.read_text(encoding="utf-8")
    rules = "".join(
        f'[style*="{kind}: {colour}"] {{ {kind}: {light} !important }}'
        for kind in ("fill", "stroke")
        for colour, light in _ON_DARK.items()
    )
    start = svg.index(">", svg.index("<svg ")) + 1
    style = f'\n <style type="text/css">@media (prefers-color-scheme: dark) {{ {rules} }}</style>'
    path.write_text(svg[:start] + style + svg[start:], encoding="utf-8")


def save_private(picture: "Figure", title: str, path: str | Path) -> None:
    """Write a picture for its owner alone, under a public title, if there is one, and the mark of private views."""
    picture.suptitle(f"{title}\n{MARK}" if title else MARK)
    with private_files(Path(path)):
        save(picture, path)


_PANELS = {"filters": ("filter", "restarts")} | {f"odometers, {each}": (each,) for each in ("pathwise", "ex-post")}
_MARKS = "osv^Dx+<>*"


@styled()
def bounds(comparison: "Comparison", path: str | Path, *, title: str | None = None) -> None:
    """Draw all bounds against the number of rounds, a panel for each promise, and save the picture.

    The smallest bound for rounds fixed in advance is the dark reference in every panel. Restarts, whose promise is for
    a number of filters fixed in advance, are dotted lines beside the filters.

    The ending of the path says the format (png, svg, pdf); the title is by default the mechanism and delta.
    """
    shown = ((heading, [b for b in comparison.bounds if b.promise in each]) for heading, each in _PANELS.items())
    groups = [(heading, found) for heading, found in shown if found]
    picture = figure(WIDTH, 4.5 * max(1, len(groups)))
    panels = picture.subplots(max(1, len(groups)), 1, sharey=True, squeeze=False)[:, 0]
    fixed = [bound.epsilons for bound in comparison.bounds if bound.promise == "fixed"]
    reference = [min(column) for column in zip(*fixed, strict=True)]
    for panel, (heading, drawn) in zip(panels, groups, strict=False):
        if reference:
            panel.plot(comparison.rounds, reference, "-", color=INK, lw=2, label="rounds fixed in advance")
        for bound, mark in zip(drawn, _MARKS * len(drawn), strict=False):
            style = ":" if bound.promise == "restarts" else "-"
            marks = {"marker": mark, "markevery": max(1, len(comparison.rounds) // 12), "ms": 4}
            panel.plot(comparison.rounds, bound.epsilons, style, **marks, lw=1, label=bound.name)
        panel.set(xscale="log", yscale="log", xlabel="rounds", title=heading)
        for axis in (panel.xaxis, panel.yaxis):
            one_two_five(axis)
        panel.legend(loc="upper left")
    for panel in panels:
        panel.set_ylabel("epsilon")
    picture.suptitle(title or f"{comparison.mechanism!r}, delta = {comparison.delta:g}")
    save(picture, path)


@styled()
def spends(report: "HolderReport", path: Path, *, title: str = "") -> list[Path]:
    """Draw how people's budgets are used up over time, and write the numbers beside the picture.

    The report is private, the title above the picture public. The path's suffix chooses the format (.png, .svg, .pdf);
    numbers go to its .json. Gives the two files, both marked private.
    """
    path = Path(path)
    picture = figure(WIDTH, 8.5)
    left, right = picture.subplots(2, 1)
    if len(report.steps):
        low, lower_quartile, median, upper_quartile, high, largest = 100 * report.quantiles.T
        band = f"{LEVELS[0]:.0%} to {LEVELS[-2]:.0%} of people"
        shade: Any = {"lw": 0, "color": "C0"}
        left.fill_between(report.steps, low, high, alpha=0.2, label=band, **shade)
        left.fill_between(report.steps, lower_quartile, upper_quartile, alpha=0.35, label="middle half", **shade)
        left.plot(report.steps, median, color="C0", label="median person")
        left.plot(report.steps, largest, color="C1", lw=1, label="largest share of one person")
        right_axes = left.twinx()
        (line,) = right_axes.plot(report.steps, report.active, color="C2", ls="--")
        right_axes.grid(visible=False)
        right_axes.spines["right"].set_visible(True)
        thousands(right_axes.yaxis)
        right_axes.set(ylabel="people with budget left", ylim=(0, 1.05 * len(report.shares)))
        handles, labels = left.get_legend_handles_labels()
        handles, labels = [*handles, line], [*labels, "people with budget left"]
        picture.legend(handles, labels, loc="outside lower center", ncols=2)
    left.set(xlabel="step", ylabel="% of the person's budget used", ylim=(0, 105))
    right.hist(100 * report.shares, bins=20, range=(0, 100))
    right.set(xlabel="% of the person's budget used at the end", ylabel="people")
    thousands(right.yaxis)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_private(picture, title, path)
    numbers = path.with_suffix(".json")
    with private_files(numbers):
        numbers.write_text(json.dumps(report.to_dict()) + "\n", encoding="utf-8")
    return [path, numbers]


@styled()
def tradeoff(curves: Mapping[str, "Curve"], path: str | Path, *, title: str = "") -> None:
    """Draw curves: the error rates of the best attack, and below them delta against epsilon; save the picture.

    Above, every attack lies on or above each line (dashed: guessing); below, (epsilon, delta)-DP holds on and above it.

    Curves, by name, and the title above the picture are public; the ending of the path says the format (png, svg, pdf).
    """
    if not curves:
        raise ArgumentError("curves must hold at least one curve")
    picture = figure(WIDTH, 9)
    left, right = picture.subplots(2, 1)
    alpha = np.linspace(0.0, 1.0, 400)
    epsilon = np.linspace(0.0, max(curve.epsilons[-1] for curve in curves.values()) or 1.0, 400)
    for name, curve in curves.items():
        left.plot(alpha, curve.beta(alpha), label=name)
        delta = curve.delta(epsilon)
        right.plot(epsilon[delta > 0], delta[delta > 0], label=name)
    left.plot([0, 1], [1, 0], "--", color=INK, lw=0.8)
    left.set(xlabel="false positive rate", ylabel="false negative rate", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    right.set(xlabel="epsilon", ylabel="delta", yscale="log", ylim=(1e-10, 1))
    for panel in (left, right):
        panel.legend()
    picture.suptitle(title)
    save(picture, path)

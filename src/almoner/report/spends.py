"""Draw what people have spent of their budgets over time, for the data holder (extra ``plots``).

The pictures are private: they are functions of single people's data.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from almoner._private import LEVELS
from almoner.report.figures import figure, private_title, save, styled, thousands
from almoner.training import HolderReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["spends"]


@styled()
def spends(report: HolderReport, path: Path, *, title: str = "") -> list[Path]:
    """Draw how people's budgets are used up over time, and write the numbers beside the picture.

    Args:
        report: private.
        path: where the picture goes; its suffix chooses the format (.png, .svg, .pdf). The numbers go to the same
            name with .json.
        title: public, above the picture.

    Returns:
        The two files, both marked private.
    """
    path = Path(path)
    picture = figure(10, 4.6)
    left, right = picture.subplots(1, 2)
    _shares_over_time(left, report)
    _shares_now(right, report)
    private_title(picture, title)
    path.parent.mkdir(parents=True, exist_ok=True)
    save(picture, path)
    numbers = path.with_suffix(".json")
    numbers.write_text(json.dumps(report.to_dict()) + "\n", encoding="utf-8")
    return [path, numbers]


def _shares_over_time(axes: "Axes", report: HolderReport) -> None:
    if len(report.steps):
        low, lower_quartile, median, upper_quartile, high, largest = 100 * report.quantiles.T
        band = f"{LEVELS[0]:.0%} to {LEVELS[-2]:.0%} of people"
        axes.fill_between(report.steps, low, high, alpha=0.2, lw=0, color="C0", label=band)
        axes.fill_between(
            report.steps, lower_quartile, upper_quartile, alpha=0.35, lw=0, color="C0", label="middle half"
        )
        axes.plot(report.steps, median, color="C0", label="median person")
        axes.plot(report.steps, largest, color="C1", lw=1, label="largest share of one person")
        right_axes = axes.twinx()
        (line,) = right_axes.plot(report.steps, report.active, color="C2", ls="--")
        right_axes.set_ylabel("people with budget left")
        right_axes.grid(visible=False)
        right_axes.spines["right"].set_visible(True)
        thousands(right_axes.yaxis)
        right_axes.set_ylim(0, 1.05 * len(report.shares))
        handles, labels = axes.get_legend_handles_labels()
        handles, labels = [*handles, line], [*labels, "people with budget left"]
        axes.figure.legend(handles, labels, loc="outside lower center", ncols=5)
    axes.set_xlabel("step")
    axes.set_ylabel("% of the person's budget used")
    axes.set_ylim(0, 105)


def _shares_now(axes: "Axes", report: HolderReport) -> None:
    axes.hist(100 * report.shares, bins=20, range=(0, 100))
    axes.set_xlabel("% of the person's budget used at the end")
    axes.set_ylabel("people")
    thousands(axes.yaxis)

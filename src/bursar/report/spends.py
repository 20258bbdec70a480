"""Pictures of people's spends over time, for the data holder.

Needs matplotlib (the extra ``plots``). The pictures are private: they are functions of single people's data.
"""

import json
from pathlib import Path
from typing import Any

from bursar import _extras
from bursar._private import LEVELS, MARK
from bursar.training import HolderReport

__all__ = ["spends"]


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
    with _extras.need("matplotlib", extra="plots"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _shares_over_time(left, report)
    _shares_now(right, report)
    figure.suptitle(f"{title}\n{MARK}" if title else MARK)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    numbers = path.with_suffix(".json")
    numbers.write_text(json.dumps(report.to_dict()) + "\n", encoding="utf-8")
    return [path, numbers]


def _shares_over_time(axes: Any, report: HolderReport) -> None:
    if len(report.steps):
        low, quarter, half, three, high, top = 100 * report.quantiles.T
        wide = f"{LEVELS[0]:.0%} to {LEVELS[-2]:.0%} of people"
        axes.fill_between(report.steps, low, high, alpha=0.2, lw=0, color="C0", label=wide)
        axes.fill_between(report.steps, quarter, three, alpha=0.35, lw=0, color="C0", label="middle half")
        axes.plot(report.steps, half, color="C0", label="median person")
        axes.plot(report.steps, top, color="C3", lw=1, label="most spent by anybody")
        still = axes.twinx()
        (line,) = still.plot(report.steps, report.active, color="C2", ls="--")
        still.set_ylabel("people with budget left")
        still.set_ylim(0, 1.05 * len(report.shares))
        handles, labels = axes.get_legend_handles_labels()
        handles, labels = [*handles, line], [*labels, "people with budget left"]
        axes.figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    axes.set_xlabel("step")
    axes.set_ylabel("% of the person's budget used")
    axes.set_ylim(0, 105)


def _shares_now(axes: Any, report: HolderReport) -> None:
    axes.hist(100 * report.shares, bins=20, range=(0, 100))
    axes.set_xlabel("% of the person's budget used at the end")
    axes.set_ylabel("people")

"""Pictures of bounds along the rounds (extra ``plots``). Everything shown is public."""

from pathlib import Path
from typing import Any

from bursar.compare import Comparison
from bursar.errors import MissingExtra

__all__ = ["draw", "pyplot"]

_PANELS = (("filter", "filters"), ("pathwise", "odometers, pathwise"), ("ex-post", "odometers, ex-post"))
_MARKS = "osv^Dx+<>*"


def draw(comparison: Comparison, path: str | Path, *, title: str | None = None) -> None:
    """Draw all bounds of a comparison against the number of rounds, a panel for each promise, and save the picture.

    The smallest bound for rounds fixed in advance is the black reference in every panel. Restarts, whose promise is for
    a number of filters fixed in advance, are dotted lines beside the filters.

    Args:
        comparison: what ``compare`` returned.
        path: where to save; the ending says the format (png, svg, pdf).
        title: by default the mechanism and delta.
    """
    plots = pyplot()
    figure, panels = plots.subplots(1, 3, figsize=(15, 5.5), sharex=True, sharey=True, layout="constrained")
    fixed = [bound.epsilons for bound in comparison.bounds if bound.promise == "fixed"]
    reference = [min(column) for column in zip(*fixed, strict=True)]
    for axes, (promise, heading) in zip(panels, _PANELS, strict=True):
        if reference:
            axes.plot(comparison.rounds, reference, "k-", lw=2, label="rounds fixed in advance")
        shown = [
            b for b in comparison.bounds if b.promise in ((promise, "restarts") if promise == "filter" else promise)
        ]
        for bound, mark in zip(shown, _MARKS * len(shown), strict=False):
            style = ":" if bound.promise == "restarts" else "-"
            axes.plot(comparison.rounds, bound.epsilons, style, marker=mark, ms=4, lw=1, label=bound.name)
        axes.set(xscale="log", yscale="log", xlabel="rounds", title=heading)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    panels[0].set_ylabel("epsilon")
    figure.suptitle(title or f"{comparison.mechanism!r}, delta = {comparison.delta:g}")
    figure.savefig(path, dpi=120)
    plots.close(figure)


def pyplot() -> Any:
    """matplotlib.pyplot without a display; asks for the extra if it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtra("pictures need matplotlib: pip install 'bursar[plots]'") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot as loaded

    return loaded

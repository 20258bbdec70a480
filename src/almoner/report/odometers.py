"""Draw the bounds of a comparison against the number of rounds (extra ``plots``). Everything shown is public."""

from pathlib import Path

from almoner.accounting.compare import Comparison
from almoner.report.figures import INK, figure, one_two_five, save, styled

__all__ = ["draw"]

_PANELS = (
    (("filter", "restarts"), "filters"),
    (("pathwise",), "odometers, pathwise"),
    (("ex-post",), "odometers, ex-post"),
)
_MARKS = "osv^Dx+<>*"


@styled()
def draw(comparison: Comparison, path: str | Path, *, title: str | None = None) -> None:
    """Draw all bounds against the number of rounds, a panel for each promise, and save the picture.

    The smallest bound for rounds fixed in advance is the dark reference in every panel. Restarts, whose promise is for
    a number of filters fixed in advance, are dotted lines beside the filters.

    Args:
        comparison: what ``compare`` returned.
        path: where to save; the ending says the format (png, svg, pdf).
        title: by default the mechanism and delta.
    """
    groups = [(heading, [b for b in comparison.bounds if b.promise in promises]) for promises, heading in _PANELS]
    groups = [(heading, bounds) for heading, bounds in groups if bounds]
    picture = figure(5 * max(1, len(groups)), 5)
    panels = picture.subplots(1, max(1, len(groups)), sharey=True, squeeze=False)[0]
    fixed = [bound.epsilons for bound in comparison.bounds if bound.promise == "fixed"]
    reference = [min(column) for column in zip(*fixed, strict=True)]
    for panel, (heading, bounds) in zip(panels, groups, strict=False):
        if reference:
            panel.plot(comparison.rounds, reference, "-", color=INK, lw=2, label="rounds fixed in advance")
        for bound, mark in zip(bounds, _MARKS * len(bounds), strict=False):
            style = ":" if bound.promise == "restarts" else "-"
            every = max(1, len(comparison.rounds) // 12)
            panel.plot(
                comparison.rounds, bound.epsilons, style, marker=mark, markevery=every, ms=4, lw=1, label=bound.name
            )
        panel.set(xscale="log", yscale="log", xlabel="rounds", title=heading)
        one_two_five(panel.xaxis)
        one_two_five(panel.yaxis)
        panel.legend(fontsize=7, loc="upper left")
    panels[0].set_ylabel("epsilon")
    picture.suptitle(title or f"{comparison.mechanism!r}, delta = {comparison.delta:g}")
    save(picture, path)

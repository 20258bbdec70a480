"""One style for all pictures, made without a display; needs matplotlib (extra ``plots``)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from almoner import _extras
from almoner._private import MARK

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

__all__ = ["INK", "figure", "one_two_five", "save", "styled", "thousands"]

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito's colours, which colour-blind readers can tell apart, without the black and the yellow."""

INK = "#3c3c3d"
"""Colour of text and axes: light instead where a reader's device is dark."""

_ON_DARK = {INK: "#d8d8d9", "#000000": "#d8d8d9", "#0072b2": "#2e93d6"}
"""Colours that are too dark for a dark page, and those that are shown there instead."""

_STYLE: Any = {
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "figure.facecolor": "white",
    "font.size": 9.5,
    "grid.alpha": 0.3,
    "grid.color": "#808081",
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "svg.hashsalt": "figures",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


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


def private_title(picture: "Figure", title: str) -> None:
    """Write a public title, if there is one, and the mark of private views above a picture."""
    picture.suptitle(f"{title}\n{MARK}" if title else MARK)


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
    path.write_text(_with_dark_ink(path.read_text(encoding="utf-8")), encoding="utf-8")


def _with_dark_ink(svg: str) -> str:
    """A picture whose dark colours are lighter where the reader's device prefers dark pages."""
    rules = "".join(
        f'[style*="{kind}: {colour}"] {{ {kind}: {light} !important }}'
        for kind in ("fill", "stroke")
        for colour, light in _ON_DARK.items()
    )
    start = svg.index(">", svg.index("<svg ")) + 1
    style = f'\n <style type="text/css">@media (prefers-color-scheme: dark) {{ {rules} }}</style>'
    return svg[:start] + style + svg[start:]

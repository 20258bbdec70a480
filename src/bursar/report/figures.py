"""Make the pictures of the reports without a display; needs matplotlib (extra ``plots``)."""

from typing import TYPE_CHECKING

from bursar import _extras
from bursar._private import MARK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["figure", "private_title"]


def figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches, that belongs to no window: ``subplots`` fills it, ``savefig`` writes it.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    with _extras.need("matplotlib", extra="plots"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def private_title(picture: "Figure", title: str) -> None:
    """Write a public title, if there is one, and the mark of private views above a picture."""
    picture.suptitle(f"{title}\n{MARK}" if title else MARK)

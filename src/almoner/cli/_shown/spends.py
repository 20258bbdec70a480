"""Views of the commands that train, during a run and after it: a progress bar, and what people have spent."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from almoner.training import HolderReport

__all__ = ["draw_spends", "progress_bar"]


def progress_bar(*, quiet: bool) -> Progress:
    """A progress bar on the error stream, which disappears when it is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True)


def draw_spends(report: "HolderReport | None", path: Path | None, title: str) -> list[str]:
    """Write the data holder's picture and its numbers, both PRIVATE, where asked; the names of the two files."""
    if report is None or path is None:
        return []
    from almoner.report.spends import spends

    return [str(written) for written in spends(report, path, title=title)]

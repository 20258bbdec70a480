"""Print rows: tables with borders on a terminal, lines with tabs in a pipe; and write them as a CSV file."""

import codecs
import csv
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

__all__ = ["Listing", "console", "show", "use_letters_of_the_terminal", "working"]

_SIGNS = {"±": "+-", "–": "-", "—": "-", "−": "-", "≤": "<=", "≥": ">=", "×": "x", "→": "->", "“": '"', "”": '"'}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Listing:
    """Rows of a command's answer.

    Args:
        columns: their names.
        rows: a cell for each column.
        title: printed above.
        right: the columns of numbers, which a terminal shows at the right.
        once: columns that a terminal leaves empty where the first cell is the same as above.
        narrow: without borders between the columns.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        title: str = "",
        right: tuple[str, ...] = (),
        once: tuple[str, ...] = (),
        narrow: bool = False,
    ) -> None:
        self._columns, self._title, self._right, self._once, self._narrow = columns, title, right, once, narrow
        self._rows = [[_CONTROL.sub(" ", cell) for cell in row] for row in rows]

    def table(self) -> Table:
        """For a terminal."""
        table = Table(title=self._title or None, title_justify="left")
        if self._narrow:
            table.box, table.padding, table.pad_edge = box.SIMPLE_HEAD, (0, 1, 0, 0), False
        for column in self._columns:
            number = column in self._right
            table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number)
        above = ""
        for row in self._rows:
            again = above == row[0] != ""
            hidden = self._once if again else ()
            table.add_row(*("" if name in hidden else cell for name, cell in zip(self._columns, row, strict=True)))
            above = row[0]
        return table

    def lines(self) -> list[str]:
        """For a pipe: the title, the names of the columns, and the rows, with tabs between the cells."""
        titled = [self._title] if self._title else []
        return [*titled, "\t".join(self._columns), *("\t".join(row) for row in self._rows)]

    def write(self, path: Path | None) -> None:
        """Write the rows to a CSV file, if there is to be one."""
        if path is None:
            return
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([self._columns, *self._rows])


def console() -> Console:
    """Prints names, keys and groups literally: nothing in them is a style, a link or an emoji."""
    return Console(markup=False, emoji=False, highlight=False)


def show(*parts: Listing | str) -> None:
    """Print tables and sentences: in the width of a terminal, or unbroken in a pipe."""
    out = console()
    for part in parts:
        if isinstance(part, str):
            out.print(part, soft_wrap=not out.is_terminal)
        elif out.is_terminal:
            out.print(part.table())
        else:
            print("\n".join(part.lines()))


@contextmanager
def working(words: str) -> Iterator[None]:
    """On a terminal, say what is computed and for how long already, until it is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    err = Console(stderr=True)
    with Progress(*columns, console=err, disable=not err.is_terminal, transient=True) as progress:
        progress.add_task(words, total=None)
        yield


def use_letters_of_the_terminal() -> None:
    """Print what the terminal's encoding lacks by the nearest ASCII letters: `Renyi`, `+-`."""
    codecs.register_error("nearest_letters", _nearest)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="nearest_letters")


def _nearest(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_plain, error.object[error.start : error.end])), error.end


def _plain(sign: str) -> str:
    return _SIGNS.get(sign) or unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode() or "?"

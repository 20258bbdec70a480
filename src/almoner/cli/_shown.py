"""Text, tables and JSON that commands print: borders on a terminal, tabs in a pipe; and rows as a CSV file."""

import codecs
import csv
import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from itertools import compress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from almoner._disk import private_files
from almoner._intervals import interval_shown, value_shown
from almoner._misfits import Misfit
from almoner._private import MARK

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from almoner.queries import Answer
    from almoner.training import HolderReport

_SIGNS = {"±": "+-", "–": "-", "—": "-", "−": "-", "≤": "<=", "≥": ">=", "×": "x", "→": "->", "“": '"', "”": '"'}
NARROW = 70  # columns of a terminal below which a row is a block of lines
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


@dataclass
class Listing:
    """Rows of a command's answer, with a cell for each column: texts, or what becomes one; None is empty.

    A terminal shows the columns ``right`` at the right, leaves those of ``once`` empty where the first cell is the same
    as above, and has no borders between ``narrow`` ones.
    """

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]
    _: KW_ONLY
    title: str = ""
    right: tuple[str, ...] = ()
    once: tuple[str, ...] = ()
    narrow: bool = False

    def __post_init__(self) -> None:
        self.rows = [["" if cell is None else _CONTROL.sub(" ", str(cell)) for cell in row] for row in self.rows]

    def table(self) -> "Table":
        from rich import box
        from rich.table import Table

        table = Table(title=self.title or None, title_justify="left")
        if self.narrow:
            table.box, table.padding, table.pad_edge = box.SIMPLE_HEAD, (0, 1, 0, 0), False
        for column in self.columns:
            number = column in self.right
            table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number)
        above = ""
        for row in self.rows:
            hidden = self.once if above == row[0] != "" else ()
            table.add_row(*("" if name in hidden else cell for name, cell in zip(self.columns, row, strict=True)))
            above = row[0]
        return table

    def lines(self) -> list[str]:
        """For a pipe: the title, the names of the columns, and the rows, with tabs between the cells."""
        return [*[self.title] * bool(self.title), *("\t".join(row) for row in (self.columns, *self.rows))]

    def blocks(self) -> list[str]:
        """For a narrow terminal: the title, and a block of lines for each row."""
        rows = [[f"{name}: {cell}" for name, cell in zip(self.columns, row, strict=True) if cell] for row in self.rows]
        return [*[self.title, ""] * bool(self.title), *(line for row in rows for line in (*row, ""))]

    def write(self, path: Path | None, *, private: bool = False) -> bool:
        """Write the rows to a CSV file, if there is to be one; True if they are all that is to be printed."""
        if path is None:
            return False
        with private_files(path) if private else nullcontext(), csv_file(path) as file:
            csv.writer(file, lineterminator="\n").writerows([self.columns, *self.rows])
        return path == STDOUT


STDOUT = Path("-")
"""The standard output in the place of a file."""


def csv_file(path: Path) -> AbstractContextManager[TextIO]:
    """A CSV file to write to, or the standard output."""
    return nullcontext(sys.stdout) if path == STDOUT else path.open("w", encoding="utf-8", newline="")


def console() -> "Console":
    """Prints names, keys and groups literally: nothing in them is a style, a link or an emoji."""
    from rich.console import Console

    return Console(markup=False, emoji=False, highlight=False)


def show(*parts: Listing | str) -> None:
    """Print tables and sentences: in the width of a terminal, or unbroken in a pipe."""
    out = console()
    for part in parts:
        if isinstance(part, str):
            out.print(part, soft_wrap=not out.is_terminal)
        elif out.is_terminal:
            out.print("\n".join(part.blocks()) if out.width < NARROW else part.table())
        else:
            print("\n".join(part.lines()))


def tell(told: object, *parts: Listing | str, as_json: bool) -> None:
    """Print what is told as JSON, or tables and sentences."""
    if as_json:
        print(dumps(told))
    else:
        show(*parts)


def use_letters_of_the_terminal() -> None:
    """Print what the terminal's encoding lacks by the nearest ASCII letters: `Renyi`, `+-`."""

    def nearest(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        signs = error.object[error.start : error.end]
        plain = (unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode() or "?" for sign in signs)
        return "".join(_SIGNS.get(sign) or near for sign, near in zip(signs, plain, strict=True)), error.end

    codecs.register_error("nearest_letters", nearest)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="nearest_letters")


def dumps(value: object) -> str:
    """The value as JSON that every reader accepts; Python's own ``Infinity`` is not."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(_strict(value), indent=2, ensure_ascii=ascii_only, allow_nan=False)


def _strict(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _strict(each) for key, each in value.items()}
    return [_strict(each) for each in value] if isinstance(value, list | tuple) else value


def print_misfits(found: Sequence[Misfit], *, as_json: bool) -> None:
    """Print how many entries of each column cannot be read, and where the first are. PRIVATE."""
    rows = []
    for each in found:
        counts = f"{each.entries:,}", f"{each.unfit:,}"
        rows.append((each.table or "-", each.column, each.kind, *counts, ", ".join(each.first) or "-"))
    table = Listing(("table", "column", "type", "entries", "don't fit", "first"), rows)
    shown = table if found else "No column has a type that its entries could miss."
    tell([each._asdict() for each in found], MARK, shown, as_json=as_json)


def print_answers(answers: "Mapping[str, Answer]", *, as_json: bool) -> None:
    """Print answers as JSON, or as a table with a line for each value."""
    if as_json:
        names = ["groups", "values", "intervals", "rho", "complete_clip", "truth_intervals", "estimand", "about"]
        described = {
            key: {name: getattr(answer, name) for name in [*names, *["complete"] * (answer.complete is not None)]}
            for key, answer in answers.items()
        }
        print(dumps(described))
        return
    lines = [line for key, answer in answers.items() for line in _lines(key, answer)]
    alike = all(noise == truth for *_, noise, truth in lines)
    kept = (True, any(group for _, group, *_ in lines), True, True, not alike)
    columns, *rows = (list(compress(row, kept)) for row in (("key", "group", "value", "95 % interval", _TRUTH), *lines))
    show(Listing(columns, rows, once=("key",)), f"Intervals are 95 % each{'' if alike else ', for the noise alone'}.")
    _print_notes(answers, "intervals cover" if alike else f'intervals of the column "{_TRUTH}" cover')


_TRUTH = "truth, 95 %"


def _lines(key: str, answer: "Answer") -> Iterator[tuple[str, str, str, str, str]]:
    """Each value of an answer: the answer's key, its group, and the intervals for the noise and the truth."""
    columns = answer.columns()
    values, lows, highs = (columns.pop(name) for name in ("value", "low", "high"))
    truths = list(zip(columns.pop("truth_low", [None] * len(values)), columns.pop("truth_high", lows), strict=True))
    groups = zip(*columns.values(), strict=True) if columns else [()]
    for place, (group, number, low, high) in enumerate(zip(groups, values, lows, highs, strict=True)):
        ends = interval_shown(low, high), interval_shown(*truths[place])
        yield key, ", ".join(map(str, group)), value_shown(number, low, high), *ends


def _print_notes(answers: "Mapping[str, Answer]", cover: str) -> None:
    keys: dict[str, list[str]] = {}
    for key, answer in answers.items():
        about = answer.about.replace("truth_intervals cover", cover)
        keys.setdefault(f"{answer.estimand}. {about[0].upper()}{about[1:]}", []).append(key)
    for note, alike in keys.items():
        show(f"{alike[0]}{f' and {len(alike) - 1} more' if alike[1:] else ''}: {note}")
    known = ((key, each.complete_clip, each.question.clip) for key, each in answers.items())
    certain = {key: complete / float(clip or 1) for key, complete, clip in known if complete is not None}
    if min(certain.values(), default=1) < 1:
        worst = min(certain, key=lambda key: certain[key])
        show(f"{worst!r}: {answers[worst].about_budgets}")
    if incomplete := [key for key, answer in answers.items() if answer.complete is False]:
        show(f"Too many people could not pay any more: do not trust totals from {incomplete[0]!r} on.")


def progress_bar(*, quiet: bool) -> "Progress":
    """A progress bar on the error stream, which disappears when it is done."""
    from rich import progress
    from rich.console import Console

    columns = (progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn())
    err, left = Console(stderr=True), progress.TimeRemainingColumn()
    return progress.Progress(*columns, left, console=err, disable=quiet, transient=True)


def draw_spends(report: "HolderReport | None", path: Path | None, title: str) -> list[str]:
    """Write the data holder's picture and its numbers, both PRIVATE, where asked; the names of the two files."""
    if report is None or path is None:
        return []
    from almoner.report.figures import spends

    return [str(written) for written in spends(report, path, title=title)]

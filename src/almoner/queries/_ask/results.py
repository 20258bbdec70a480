"""An answer as a table: for pandas, Arrow, CSV files, terminals, notebooks and plots. Everything here is public."""

import csv
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from almoner import _extras, _html
from almoner.queries._questions.question import Question

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from matplotlib.axes import Axes

__all__ = ["Answered", "about_budgets", "columns", "to_arrow", "to_axes", "to_csv", "to_html", "to_pandas", "to_text"]

_LAST = ("value", "low", "high", "truth_low", "truth_high")
_LINES = 10
_HTML_LINES = 20
_PLOTTED = 200
_BAR = 160  # width of the bar of an interval, in pixels


class Answered(Protocol):
    """Fields of an answer that its tables show."""

    @property
    def key(self) -> str: ...
    @property
    def question(self) -> Question: ...
    @property
    def groups(self) -> Sequence[tuple[Any, ...]]: ...
    @property
    def values(self) -> Sequence[Any]: ...
    @property
    def intervals(self) -> Sequence[Any]: ...
    @property
    def truth_intervals(self) -> Sequence[Any] | None: ...
    @property
    def estimand(self) -> str: ...
    @property
    def about(self) -> str: ...
    @property
    def complete_clip(self) -> float | None: ...
    @property
    def complete(self) -> bool | None: ...


def columns(answer: Answered, most: int | None = None) -> dict[str, list[Any]]:
    """The columns of the table, each of the same length: a row for each value of each group.

    Args:
        answer: public.
        most: rows to make at most; None for all.

    Returns:
        A column for each column grouped by, one that names the value where a group has several ("bin", "level"), then
        "value", "low" and "high"; also "truth_low" and "truth_high" if there are truth intervals, None where one is
        not known. A column grouped by that has one of these names gets "_" after it.
    """
    several = answer.question.several()
    if several is None and any(isinstance(each, list) for each in answer.intervals):
        several = "number", ()
    last = list(_LAST[: 3 if answer.truth_intervals is None else 5])
    named = last if several is None else [several[0], *last]
    truths = [None] * len(answer.groups) if answer.truth_intervals is None else answer.truth_intervals
    by = [column if column not in named else f"{column}_" for column in answer.question.key_columns()]
    rows: list[list[Any]] = []
    for group, value, interval, truth in zip(answer.groups, answer.values, answer.intervals, truths, strict=True):
        if most is not None and len(rows) >= most:
            break
        ends = _truths(interval, truth)
        for place, (label, number, low, high) in enumerate(_numbers(value, interval, "")):
            name = [] if several is None else [several[1][place] if several[1] else label]
            shown = map(_shown_key, group)
            rows.append([*shown, *name, number, low, high, *next(ends)][: len(by) + len(named)])
    return {name: [row[place] for row in rows[:most]] for place, name in enumerate([*by, *named])}


def _shown_key(key: Any) -> Any:
    """A key; of a range, its text."""
    return " to ".join(map(str, key)) if isinstance(key, tuple) else key


def _numbers(value: Any, interval: Any, label: str) -> Iterator[tuple[str, float | None, float, float]]:
    """(Its name, number, low, high) of each number of a group: of lists, of lists of lists, of pairs with a name."""
    if isinstance(interval, list):
        for place, each in enumerate(interval):
            inner = f"{label}, {place}" if label else str(place)
            yield from _numbers(None if value is None else value[place], each, inner)
    elif isinstance(value, tuple):
        name, number = value
        yield str(name), number, *interval
    else:
        yield label, value, *interval


def _truths(interval: Any, truth: Any) -> Iterator[tuple[float | None, float | None]]:
    """The ends of the truth interval of each number of a group, None where it is not known."""
    if isinstance(interval, list):
        for place, each in enumerate(interval):
            yield from _truths(each, None if truth is None else truth[place])
    else:
        yield (None, None) if truth is None else truth


def _size(intervals: Sequence[Any]) -> int:
    """Rows of the whole table."""
    return sum(_size(each) if isinstance(each, list) else 1 for each in intervals)


def to_pandas(answer: Answered) -> "pandas.DataFrame":
    """The table as a data frame; its ``attrs`` say what the numbers and the intervals are about."""
    with _extras.need("pandas", extra="queries"):
        import pandas
    frame = pandas.DataFrame(columns(answer))
    frame.attrs |= {"estimand": answer.estimand, "about": answer.about}
    return frame


def to_arrow(answer: Answered) -> "pyarrow.Table":
    """The table for Arrow; its metadata say what the numbers and the intervals are about."""
    with _extras.need("pyarrow", extra="queries"):
        import pyarrow
    return pyarrow.table(columns(answer)).replace_schema_metadata({"estimand": answer.estimand, "about": answer.about})


def to_csv(answers: Sequence[Answered], path: Path | str, *, keys: bool) -> None:
    """Write the tables below each other, with each answer's key before its rows if wanted; replaces a file.

    The last column says what the intervals of a row are about.
    """
    tables = [columns(answer) for answer in answers]
    names = list(dict.fromkeys(name for table in tables for name in table))
    names = [*(name for name in names if name not in _LAST), *(name for name in names if name in _LAST)]
    key = "key" if "key" not in names else "key_"
    with Path(path).open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*([key] if keys else []), *names, "about" if "about" not in names else "about_"])
        for answer, table in zip(answers, tables, strict=True):
            lines = zip(*(table.get(name, [None] * len(table["value"])) for name in names), strict=True)
            first = [answer.key] if keys else []
            writer.writerows([*first, *("" if cell is None else cell for cell in line), answer.about] for line in lines)


def to_text(answer: Answered) -> str:
    """The first rows of the table, and how many there are."""
    _, head, cells = _written(answer, _LINES)
    lines = [head, *cells]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([_title(answer), *text, *_notes(answer, _LINES)])


def _spans(table: dict[str, list[Any]]) -> tuple[list[str], list[list[str]]]:
    """(The names of the intervals that there are, and those of each row)."""
    pairs = [("low", "high"), *([("truth_low", "truth_high")] if "truth_low" in table else [])]
    columns = [
        [f"{_short(low)} to {_short(high)}" for low, high in zip(table[first], table[last], strict=True)]
        for first, last in pairs
    ]
    return ["95 % interval", "truth, 95 %"][: len(pairs)], [list(row) for row in zip(*columns, strict=True)]


def to_html(answer: Answered) -> str:
    """Table for notebooks, with a bar for each interval: SVG in the page, no script. All text is escaped."""
    table, head, cells = _written(answer, _HTML_LINES)
    place = _places([*table["low"], *table["high"], *table["value"]])
    rows = list(zip(cells, table["low"], table["value"], table["high"], strict=True))
    notes = _notes(answer, _HTML_LINES)
    title = _title(answer)
    return _html.render("answer_table.html", title=title, head=head, rows=rows, place=place, notes=notes, width=_BAR)


def _written(answer: Answered, most: int) -> tuple[dict[str, list[Any]], list[str], list[list[str]]]:
    """(The first rows of the table, and as text the names of its columns and the cells of each row)."""
    table = columns(answer, most)
    named = [name for name in table if name not in _LAST]
    names, spans = _spans(table)
    cells = [
        [*(str(table[name][row]) for name in named), _short(value), *spans[row]]
        for row, value in enumerate(table["value"])
    ]
    return table, [*named, "value", *names], cells


def _title(answer: Answered) -> str:
    column = getattr(answer.question, "column", None)
    kind = type(answer.question).__name__.lower()
    return f"{answer.key}: {kind}" + ("" if column is None else f" of {column}")


def _notes(answer: Answered, shown: int) -> list[str]:
    groups, rows = len(answer.groups), _size(answer.intervals)
    notes = [] if rows <= shown else [f"... {groups:,} groups" if rows == groups else f"... {rows:,} rows"]
    about = answer.about[0].upper() + answer.about[1:]
    notes.append(f"It is {answer.estimand}. Intervals are 95 % each, for the noise alone. {about}")
    if answer.complete_clip is not None and answer.complete_clip < float(answer.question.clip or 0):
        notes.append(about_budgets(answer))
    if answer.complete is False:
        notes.append("Too many people could not pay any more: do not trust totals.")
    return notes


def about_budgets(answer: Answered) -> str:
    """One sentence on what is certain about people who have little budget left."""
    clip, full = answer.complete_clip, float(answer.question.clip or 0)
    if clip is None:
        return "Whether people are missing for lack of budget is not known."
    if clip >= full:
        return "Nobody is shrunk or missing for lack of budget."
    if clip > 0:
        return (
            f"Who has little budget left may be shrunk: to no less than {_short(clip)} in place of the clip of "
            f"{_short(full)}. Nobody is missing."
        )
    return "Whose budget is spent may be missing, without a limit that is known."


def _short(number: float | None) -> str:
    return "-" if number is None else f"{number:,.6g}" if isfinite(number) and abs(number) < 1e6 else f"{number:.6g}"


def _places(numbers: Sequence[float | None]) -> Callable[[float], float]:
    """Where on a bar a number is, in pixels; what is not finite is at an end."""
    finite = [number for number in numbers if number is not None and isfinite(number)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    width = high / 2 - low / 2 or 1.0  # halves: the difference of huge numbers is not finite

    def place(number: float) -> float:
        return round(max(0.0, min(1.0, (number / 2 - low / 2) / width)) * (_BAR - 8) + 4, 1)

    return place


def to_axes(answer: Answered, axes: "Axes | None") -> "Axes":
    """Draw a point with its interval for each of the first rows of the table."""
    if axes is None:
        with _extras.need("matplotlib", extra="plots"):
            from matplotlib.figure import Figure
        figure = Figure(figsize=(6, 1 + 0.3 * min(_size(answer.intervals), 40)), layout="constrained")
        axes = figure.subplots()
    table = columns(answer, _PLOTTED)
    named = [table[name] for name in table if name not in _LAST]
    labels = [", ".join(map(str, row)) for row in zip(*named, strict=True)] or [""]
    places = range(len(labels))
    axes.hlines(places, table["low"], table["high"], color="tab:blue", alpha=0.5, linewidth=3)
    points = [(value, place) for value, place in zip(table["value"], places, strict=True) if value is not None]
    axes.plot([value for value, _ in points], [place for _, place in points], "o", color="tab:blue")
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set_title(_title(answer))
    axes.set_xlabel("\n".join(_notes(answer, _PLOTTED)))
    return axes

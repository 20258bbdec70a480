"""Answers, how far noise may have moved them, what follows from them at no cost, and their tables.

Everything here is public. ``intervals`` are about the noise alone; ``truth_intervals`` also about what was clipped, and
what people with little budget left could not pay for.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import accumulate, repeat
from math import hypot, inf, isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TextIO

from almoner import _check, _extras, _html
from almoner._intervals import interval_shown, value_shown
from almoner._units import MEASURE, to_float, up
from almoner.errors import ArgumentError
from almoner.queries._language.keys import Key
from almoner.queries._questions.intervals import NoiseBand, Whole, less, roots, share_interval
from almoner.queries._questions.kinds.counts import Count, Histogram, People, Quantiles
from almoner.queries._questions.kinds.entries import Distinct, Mean, Ratio, Sum, Variance
from almoner.queries._questions.kinds.several import Several
from almoner.queries._questions.kinds_of import question
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import Question, Told, complete_clip, least_share

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from matplotlib.axes import Axes

_LAST = ("value", "low", "high", "truth_low", "truth_high")
_LINES = 10
_HTML_LINES = 20
_PLOTTED = 200
_BAR = 160  # width of the bar of an interval, in pixels
_TOTALS = Count, People, Sum, Histogram
_COMPARED = (*_TOTALS, Mean, Variance, Ratio, Distinct, Quantiles, Several)
_Sum = tuple[float, NoiseBand, Whole | None]
"""A sum of an answer's numbers, the noise on it, and what all people have; None where that is not known."""
_Total = Callable[..., _Sum]
_Row = tuple[Any, Any, Any]  # value, interval, truth interval
NOT_THE_QUESTION = {"sigma", "rho", "epsilon", "error", "level", "clip", "at_most", "report", "pace", "anyway"}


def without(question: Mapping[str, Any], but: Set[str] = NOT_THE_QUESTION) -> dict[str, Any]:
    """Plain values of a question ``but`` for some fields: of what it asks for, with whatever clip and noise."""
    return {name: each for name, each in question.items() if name not in but}


@dataclass(frozen=True, slots=True)
class Answer(Generic[Told]):
    """A finished answer: one value for each group, or one list of them."""

    key: str
    question: Question
    groups: list[tuple[Key, ...]]
    values: list[Told]
    """None where the noise leaves nothing to say."""
    intervals: list[Any]
    """95 % each, for the noise alone."""
    truth_intervals: list[Any] | None
    """95 % each, for the estimand about all people in the data who have not left, without any clip: the noise, what was
    clipped, and what a pace took from people who have little budget left. They rest on what the question declares
    (``at_most``, ``bounds_hold``). None, for all or for a group, where that cannot be said: ``about`` says why."""
    about: str
    """The subject of the intervals, in a sentence."""
    rho: float
    """The price for a person who contributed the full clip. In a pure budget it is epsilon**2 / 2."""
    released: list[int] = field(repr=False)
    """The noisy sums, in whole steps, that all of the above comes from."""
    complete_clip: float = 0.0
    """Everybody's contribution is in the answer, clipped at no less than this. Equal to the question's ``clip``: nobody
    is shrunk or missing for lack of budget. 0: nothing is certain, and people whose budget is spent may be missing.
    It follows from the public record; people who were retired are in no answer."""
    complete: bool | None = None
    """Under a watch, False from the first question on from which too many people were missing; else None."""
    earlier: str | None = None
    """When it was released, in ISO form, where an earlier answer to the same question stands for it, which cost nothing
    again; else None."""
    floor: int = field(default=0, repr=False)
    """The least that everybody could pay for it, in units of the budget; 0 where that is not known."""
    derived: str = ""
    """The name of what was made of an answer by one of its methods; empty for an answer itself."""

    @classmethod
    def recorded(cls, public: Mapping[str, Any], asked: Question | None = None) -> "Answer":
        """The answer to a question, None for the recorded one, that the public part of an entry of the record holds."""
        known: Any = {name: public.get(name) for name in ("complete", "keys")} | {"floor": public["floor"]}
        told = answer(asked or question(public["question"]), public["released"], public["key"], **known)
        return replace(told, earlier=public.get("released at"))

    @property
    def about_budgets(self) -> str:
        """One sentence on what is certain about people who have little budget left."""
        clip, full = self.complete_clip, float(self.question.clip or 0)
        if clip >= full:
            return "Nobody is shrunk or missing for lack of budget."
        if clip > 0:
            return (
                f"Who has little budget left may be shrunk: to no less than {clip:,.6g} in place of the clip of "
                f"{full:,.6g}. Nobody is missing."
            )
        return "Whose budget is spent may be missing, without a limit that is known."

    @property
    def value(self) -> Told:
        """The value of a question without groups, or of the first group."""
        return self.values[0]

    @property
    def keys(self) -> list[Key]:
        """The keys of the groups, of a question with one column to group by; of ``Keys``, those that were told.

        All of them are public: ``Count(by={column: answer.keys})``.
        """
        if len(self.question.key_columns()) != 1:
            raise ArgumentError("keys: the question has no column to group by, or several; see groups")
        return [key for (key,) in self.groups if key is not None]

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        whole = _in_table(self.question.estimand, self.question)
        return f"{self.derived} of {whole}" if self.derived else whole

    @property
    def truth_interval(self) -> Any:
        """The interval of a question without groups, or of the first group, that covers what was clipped, too."""
        return None if self.truth_intervals is None else self.truth_intervals[0]

    @property
    def interval(self) -> Any:
        """The interval of a question without groups, or of the first group."""
        return self.intervals[0]

    def difference(self, first: Any, second: Any) -> "Answer":
        """The value of one group less that of another, with its interval, at no cost.

        Args:
            first, second: the key of a group, public; a tuple of keys where several columns are grouped by.

        Guarantee: the interval misses with a probability of at most 5 % what the answer's own intervals are about.
        Source: docs/proofs/truth-intervals.md, Theorem 6.
        """
        question, wide, places = self.question, self._together(2), []
        for key in (first, second):
            found = [place for place, group in enumerate(self.groups) if group in ((key,), key)]
            if not found:
                known = ", ".join(map(str, self.groups[:5]))
                raise ArgumentError(f"{key!r} is no group of the answer; there are {known}")
            places += found
        a, b = places
        truths = wide.truth_intervals or [None] * len(self.groups)
        value, interval, truth = (less(each[a], each[b]) for each in (self.values, wide.intervals, truths))
        if isinstance(question, _TOTALS) and question.sets is None:  # the noise on both is of one size, and independent
            numbers = (_parts(question, self.released, place) for place in places)
            error = sqrt(2) * question.spread * STEPS / question.steps
            value, interval = question.read(less(*numbers), NoiseBand(error, question.pure))
            truth = truth if truth is None or _paid(question, self.floor) != (1.0, False) else interval
        names = tuple(f"{one} - {other}" for one, other in zip(self.groups[a], self.groups[b], strict=True))
        return self._made("the difference", [(names, value, interval, truth)])

    def largest(self, k: int) -> "Answer":
        """The k groups with the largest values, largest first, at no cost.

        Guarantee: the intervals of all groups together, so also of those that come out on top, hold with a probability
            of at least 95 % what the answer's own are about.
        Source: docs/proofs/truth-intervals.md, Theorem 6.
        """
        _check.whole(1, k=k)
        wide = self._together(len(self.groups))
        if any(isinstance(value, list) for value in self.values):
            raise ArgumentError("largest() is for answers with one value in each group")
        truths = wide.truth_intervals or [None] * len(self.groups)
        values: list[Any] = self.values
        found = zip(self.groups, values, wide.intervals, truths, strict=True)
        rows = sorted(found, key=lambda row: inf if row[1] is None else -row[1])
        return self._made(f"the largest of {len(rows)} groups", rows[:k])

    def running(self) -> "Answer":
        """Running totals over the keys of the last column of ``by``, or over a histogram's bins, at no cost.

        With several columns they begin anew for each combination of the others. Intervals are 95 % each.
        """
        return self._along("running totals", lambda total, place, _: _read_sum(self.question, *total(0, place + 1)))

    def moving(self, values: int) -> "Answer":
        """Means of each value and those before it, ``values`` in all, along what ``running`` adds up, at no cost.

        The first ones are of the values that there are.
        """
        _check.whole(1, values=values)

        def mean(total: _Total, place: int, _: int) -> _Row:
            first = max(0, place + 1 - values)
            return _read_sum(self.question, *total(first, place + 1, 1 / (place + 1 - first)))

        return self._along(f"means of {values}", mean)

    def shares(self) -> "Answer":
        """Shares in the total of what ``running`` adds up, at no cost; without ends where that may be 0.

        Guarantee: each interval misses with a probability of at most 5 % what the answer's own are about.
        Source: docs/proofs/truth-intervals.md, Theorem 7.
        """
        positive = min(getattr(self.question, "ends", (0.0,))) >= 0

        def share(total: _Total, place: int, size: int) -> _Row:
            (part, noise, own), (every, _, whole) = total(place, place + 1), total(0, size)
            value, interval = share_interval(part, every, noise, size, positive=positive)
            if own is None or whole is None or own.least < 1 or not self.question.reported():
                return value, interval, None
            truth = share_interval(own.parts[0], whole.parts[0], own.noise, size, positive=positive)
            return value, interval, truth[1]

        return self._along("shares", share)

    def roots(self) -> "Answer":
        """Standard deviations, of a ``Variance``: the square roots of its values and intervals, at no cost."""
        if self.derived or not isinstance(self.question, Variance):
            raise ArgumentError("roots() is for the answer to a Variance(...), whose roots are standard deviations")
        truths = self.truth_intervals or [None] * len(self.groups)
        found = map(roots, (self.values, self.intervals, truths))
        return self._made("the square root", zip(self.groups, *found, strict=True))

    def _made(self, derived: str, rows: Iterable[tuple[Any, ...]]) -> "Answer":
        """An answer of other rows: (group, value, interval, truth interval)."""
        groups, values, intervals, truths = map(list, zip(*rows, strict=True))
        known = None if all(each is None for each in truths) else truths
        told: dict[str, Any] = {"about": f"{self.about} Here: {derived} of that.", "derived": derived}
        return replace(self, groups=groups, values=values, intervals=intervals, truth_intervals=known, **told)

    def _together(self, intervals: int) -> "Answer":
        """The answer with intervals of which so many hold together."""
        question = self.question
        if self.derived or not isinstance(question, _COMPARED) or question.choice is not None:
            kinds = ", ".join(kind.__name__ for kind in _COMPARED)
            raise ArgumentError(f"groups are compared of an answer to {kinds}, of quantiles with chosen=0")
        return answer(question, self.released, self.key, self.complete, floor=self.floor, together=intervals)

    def _along(self, derived: str, one: "Callable[[_Total, int, int], _Row]") -> "Answer":
        """Another value in place of each: ``one`` makes it from totals of numbers of its line, its place, and the size.

        A line is the bins of a group, or the groups that differ in their last key alone.
        """
        question, rows = self.question, list[Any]()
        if self.derived or not isinstance(question, _TOTALS) or question.sets is not None:
            raise ArgumentError(f"{derived}, without sets=, are of a {' or '.join(kind.__name__ for kind in _TOTALS)}")
        binned = isinstance(question, Histogram)
        size = question.coordinates if binned else len((question.keys or (("", ("",)),))[-1][1])
        sums, least, clipped = [0, *accumulate(self.released)], *_paid(question, self.floor)
        for start in range(0, question.groups * question.coordinates, size):

            def total(first: int, last: int, weight: float = 1.0, start: int = start) -> _Sum:
                places = start + first, start + last
                part, taken = (
                    weight * (sums[after + places[1]] - sums[after + places[0]]) / question.steps
                    for after in (0, question.groups * question.coordinates if clipped else 0)
                )
                error = weight * sqrt(last - first) * question.spread * STEPS / question.steps
                noise = NoiseBand(error, question.pure)
                return part, noise, whole_of(question, [part], [taken] if clipped else None, noise, least)

            line = [one(total, place, size) for place in range(size)]
            rows += [tuple(map(list, zip(*line, strict=True)))] if binned else line
        return self._made(derived, ((group, *row) for group, row in zip(self.groups, rows, strict=True)))

    def columns(self, most: int | None = None, *, wide: bool = False) -> dict[str, list[Any]]:
        """The table of ``to_pandas`` by columns, each of the same length; of ``most`` rows, or all."""
        if wide:
            return self._wide(most)
        several = self.question.several()
        last = list(_LAST[: 3 if self.truth_intervals is None else 5])
        named = last if several is None else [several[0], *last]
        truths = self.truth_intervals or [None] * len(self.groups)
        by = [column if column not in named else f"{column}_" for column in self.question.key_columns()]
        rows: list[list[Any]] = []
        for group, value, interval, truth in zip(self.groups, self.values, self.intervals, truths, strict=True):
            if most is not None and len(rows) >= most:
                break
            ends = repeat((None, None)) if truth is None else (each[2:] for each in numbers_of(None, truth, ""))
            for place, (label, number, low, high) in enumerate(numbers_of(value, interval, "")):
                name = [] if several is None else [several[1][place] if several[1] else label]
                shown = (" to ".join(map(str, key)) if isinstance(key, tuple) else key for key in group)  # a range
                rows.append([*shown, *name, number, low, high, *next(ends)][: len(by) + len(named)])
        return {name: [row[place] for row in rows[:most]] for place, name in enumerate([*by, *named])}

    def _wide(self, most: int | None) -> dict[str, list[Any]]:
        """A row for each group: its keys, then each value with its ends, named by what the values are called."""
        several, by, long = self.question.several() or ("", ["value"]), self.question.key_columns(), self.columns()
        names, size = list(map(str, several[1])), len(self.groups)
        if len(names) * size != len(long["value"]):
            raise ArgumentError("wide=True is for answers whose groups have the same values")
        listed = list(long.items())
        table = {column: each[:: len(names)][:most] for column, (_, each) in zip(by, listed, strict=False)}
        for place, name in enumerate(names):
            for last in [last for last in _LAST if last in long]:
                column = name if last == "value" else f"{name}_{last}"
                while column in table:
                    column += "_"
                table[column] = long[last][place :: len(names)][:most]
        return table

    def to_pandas(self, *, wide: bool = False) -> "pandas.DataFrame":
        """A row for each value: the keys of its group, the value, and the interval's low and high end.

        Where a group has several values a column says which one it is: "bin", "level" or such. If there are truth
        intervals, "truth_low" and "truth_high" follow, None where one is not known. A column grouped by that is called
        like one of ours gets "_" after its name. ``attrs`` say what the numbers and the intervals are about.

        With ``wide`` a row for each group, in which each value has columns of its own: "hours", "hours_low" and so on.
        """
        with _extras.need("pandas", extra="queries"):
            import pandas
        frame = pandas.DataFrame(self.columns(wide=wide))
        frame.attrs |= {"estimand": self.estimand, "about": self.about}
        return frame

    def to_arrow(self, *, wide: bool = False) -> "pyarrow.Table":
        """The table of ``to_pandas``, for Arrow; its metadata say what the numbers and the intervals are about."""
        with _extras.need("pyarrow", extra="queries"):
            import pyarrow
        about = {"estimand": self.estimand, "about": self.about}
        return pyarrow.table(self.columns(wide=wide)).replace_schema_metadata(about)

    def to_csv(self, path: Path | str) -> None:
        """Write the table of ``to_pandas`` to a file, which it replaces."""
        write_csv([self], path, keys=False)

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw each value with its interval, at most 200, on axes of Matplotlib, or on new ones without a display.

        ``axes.figure.savefig(path)`` writes the picture. Needs the extra ``plots``.
        """
        if axes is None:
            with _extras.need("matplotlib", extra="plots"):
                from matplotlib.figure import Figure
            figure = Figure(figsize=(6, 1 + 0.3 * min(_size(self.intervals), 40)), layout="constrained")
            axes = figure.subplots()
        table = self.columns(_PLOTTED)
        named = [table[name] for name in table if name not in _LAST]
        labels = [", ".join(map(str, row)) for row in zip(*named, strict=True)] or [""]
        places = range(len(labels))
        axes.hlines(places, table["low"], table["high"], color="tab:blue", alpha=0.5, linewidth=3)
        points = [(value, place) for value, place in zip(table["value"], places, strict=True) if value is not None]
        axes.plot([value for value, _ in points], [place for _, place in points], "o", color="tab:blue")
        axes.set_yticks(places, labels)
        axes.invert_yaxis()
        axes.set_title(self._title)
        axes.set_xlabel("\n".join(self._notes(_PLOTTED)))
        return axes

    def __str__(self) -> str:
        """The first ten values as a table."""
        _, head, cells = self._written(_LINES)
        lines = [head, *cells]
        widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
        text = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        return "\n".join([self._title, *text, *self._notes(_LINES)])

    def _repr_html_(self) -> str:
        """The first twenty values, for notebooks, with a bar for each interval: SVG, no script; all text is escaped."""
        table, head, cells = self._written(_HTML_LINES)
        place = _places([*table["low"], *table["high"], *table["value"]])
        rows = list(zip(cells, table["low"], table["value"], table["high"], strict=True))
        notes, title = self._notes(_HTML_LINES), self._title
        return _html.render(
            "answer_table.html", title=title, head=head, rows=rows, place=place, notes=notes, width=_BAR
        )

    def _written(self, most: int) -> tuple[dict[str, list[Any]], list[str], list[list[str]]]:
        """(The first rows of the table, and as text the names of its columns and the cells of each row)."""
        table = self.columns(most)
        named = [name for name in table if name not in _LAST]
        shown = [list(map(str, table[name])) for name in named]
        shown.append([value_shown(*each, thousands=",") for each in zip(*(table[n] for n in _LAST[:3]), strict=True)])
        pairs = [("low", "high"), ("truth_low", "truth_high")][: 2 if "truth_low" in table else 1]
        ends = [zip(table[low], table[high], strict=True) for low, high in pairs]
        shown += [[interval_shown(*each, thousands=",") for each in listed] for listed in ends]
        head = [*named, "value", *["95 % interval", "truth, 95 %"][: len(pairs)]]
        return table, head, [list(row) for row in zip(*shown, strict=True)]

    @property
    def _title(self) -> str:
        column = getattr(self.question, "column", None)
        return f"{self.key}: {type(self.question).__name__.lower()}" + ("" if column is None else f" of {column}")

    def _notes(self, shown: int) -> list[str]:
        groups, rows = len(self.groups), _size(self.intervals)
        notes = [] if rows <= shown else [f"... {groups:,} groups" if rows == groups else f"... {rows:,} rows"]
        about = self.about[0].upper() + self.about[1:]
        notes.append(f"It is {self.estimand}. Intervals are 95 % each, for the noise alone. {about}")
        if self.complete_clip < float(self.question.clip or 0):
            notes.append(self.about_budgets)
        if self.complete is False:
            notes.append("Too many people could not pay any more: do not trust totals.")
        return notes


def write_csv(answers: Sequence[Answer], path: Path | str | TextIO, *, keys: bool = True) -> None:
    """Write answers as one table to a CSV file, which is replaced: the columns of ``Answer.to_pandas``, after the key.

    Columns that an answer does not have are empty in its rows; the last one says what a row's intervals are about.
    Without ``keys`` the key is left out.
    """
    tables = [answer.columns() for answer in answers]
    names = list(dict.fromkeys(name for table in tables for name in table))
    names = [*(name for name in names if name not in _LAST), *(name for name in names if name in _LAST)]
    key = "key" if "key" not in names else "key_"
    new: dict[str, Any] = {"mode": "w", "encoding": "utf-8", "newline": ""}
    with Path(path).open(**new) if isinstance(path, Path | str) else nullcontext(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*([key] if keys else []), *names, "about" if "about" not in names else "about_"])
        for answer, table in zip(answers, tables, strict=True):
            lines = zip(*(table.get(name, [None] * len(table["value"])) for name in names), strict=True)
            first = [answer.key] if keys else []
            writer.writerows([*first, *("" if cell is None else cell for cell in line), answer.about] for line in lines)


def numbers_of(value: Any, interval: Any, label: str) -> Iterator[tuple[str, float | None, float, float]]:
    """(Its name, number, low, high) of each number of a group: of lists, of lists of lists, of pairs with a name."""
    if isinstance(interval, list):
        for place, each in enumerate(interval):
            inner = f"{label}, {place}" if label else str(place)
            yield from numbers_of(None if value is None else value[place], each, inner)
    elif isinstance(value, tuple):
        name, number = value
        yield str(name), number, *interval
    else:
        yield label, value, *(interval or (None, None))


def _size(intervals: Sequence[Any]) -> int:
    """Rows of the whole table."""
    return sum(_size(each) if isinstance(each, list) else 1 for each in intervals)


def _places(numbers: Sequence[float | None]) -> Callable[[float], float]:
    """Where on a bar a number is, in pixels; what is not finite is at an end."""
    finite = [number for number in numbers if number is not None and isfinite(number)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    width = high / 2 - low / 2 or 1.0  # halves: the difference of huge numbers is not finite

    def place(number: float) -> float:
        return round(max(0.0, min(1.0, (number / 2 - low / 2) / width)) * (_BAR - 8) + 4, 1)

    return place


def answer(
    question: Question,
    released: Sequence[int],
    key: str,
    complete: bool | None = None,
    keys: Sequence[Key] | None = None,
    floor: int = 0,
    together: int = 1,
) -> Answer:
    """The answer that noisy sums give: ``released`` are the sums, in whole steps, and the report on what was clipped.

    ``complete`` is what a watch said; ``keys`` name the groups, where the question lists none; ``floor``:
    Payment.floor; so many of its intervals hold ``together``.
    """
    noise = NoiseBand(question.spread * STEPS / question.steps, question.pure)
    if together > 1:
        noise = replace(noise, standard_error=noise.standard_error * noise.z(together) / noise.z(1))
    least, clipped = _paid(question, floor)
    values, intervals, truths = [], [], []
    groups: list[tuple[Key, ...]] = question.labels if keys is None else [(each,) for each in keys]
    numbers = [_parts(question, released, group) for group in range((1 + clipped) * len(groups))]
    parts, taken, left = numbers[: len(groups)], numbers[len(groups) :], [1.0] * len(groups)
    if question.sets is not None:
        (parts, left), (taken, _) = question.agreed(parts), question.agreed(taken)
    for group, share in enumerate(left):
        band = noise if share == 1 else noise.of_group(share)
        value, interval = question.read(parts[group], band)
        values.append(value)
        intervals.append(interval)
        whole = whole_of(question, parts[group], taken[group] if clipped else None, band, least)
        truths.append(None if whole is None else question.truth(whole))
    known = None if all(each is None for each in truths) else truths
    about = _about_in_words(question, everybody=floor >= question.price, least=least, covered=known is not None)
    told = key, question, groups, values, intervals, known, about, rho_of(question), list(released)
    return Answer(*told, complete_clip(question, floor), complete, floor=floor)


def _paid(question: Question, floor: int) -> tuple[float, bool]:
    """(The share of everybody's contribution in answer and report, 0 if not known; whether the report is needed)."""
    full = floor >= question.price and question.unclipped
    return least_share(question, floor), bool(question.report_scale) and not full


def _parts(question: Question, released: Sequence[int], group: int) -> list[float]:
    """The noisy coordinates of a group, in units of the largest entry in a row."""
    start = group * question.numbers
    return [part / question.steps for part in released[start : start + question.numbers]]


def whole_of(
    question: Question, parts: list[float], taken: list[float] | None, noise: NoiseBand, least: float
) -> Whole | None:
    """Numbers of a group as they would be without a clip; ``taken``: the report; None where it is noise."""
    if not least:
        return None
    if taken is None:
        return Whole(parts, noise, parts, noise, least)
    whole = [part + each / question.report_scale for part, each in zip(parts, taken, strict=True)]
    error = hypot(noise.standard_error, noise.standard_error / question.report_scale)
    return Whole(whole, replace(noise, standard_error=error), parts, noise, least)


def _read_sum(question: Question, part: float, noise: NoiseBand, whole: Whole | None) -> _Row:
    value, interval = question.read([part], noise)
    row = value, interval, None if whole is None else question.truth(whole)
    return row if question.bins() is None else tuple(each and each[0] for each in row)  # type: ignore[return-value]


def rho_of(question: Question) -> float:
    """The price in rho, rounded up: what is epsilon-DP is epsilon**2 / 2-zCDP (theory 2.3)."""
    return to_float(up(Fraction(question.price, MEASURE) ** 2 / 2) if question.pure else question.price)


def _in_table(estimand: str, question: Question) -> str:
    """Add the table to a noun phrase for what an answer estimates, where there are several tables."""
    return estimand if question.table is None else f"{estimand}, in table {question.table}"


def _about_in_words(question: Question, *, everybody: bool, least: float, covered: bool) -> str:
    """A sentence on what the intervals cover (``covered``: there are truth intervals), and what they rest on."""
    if covered:
        declared = [] if question.at_most is None else [f"at_most={question.at_most:g}"]
        declared += ["bounds_hold=True"] if getattr(question, "bounds_hold", None) else []
        rests = f", if what was declared is right ({', '.join(declared)})" if declared else ""
        paced = ""
        if least < 1:
            paced = f" They allow for people with little budget left, who count for at least {least:.2g} of themselves."
        whole = _in_table(question.whole_estimand, question)
        return f"truth_intervals cover {whole} for all people in the data{rests}.{paced}"
    reasons = []
    reported = question.reported()
    if not question.unclipped:
        lacking = " (declare at_most= to have it bounded)" if question.at_most is None and reported else ""
        reasons.append(f"each person's contribution is clipped to {question.clip:g} full rows{lacking}")
    if getattr(question, "bounds_hold", True) is False and not reported:
        reasons.append("entries are clipped to their bounds (declare bounds_hold=True where that changes none)")
    if not everybody and not least:
        reasons.append("people whose budget is spent may be missing")
    elif not everybody:
        shrunk = f"people with little budget left may be shrunk, to {least:.2g} of themselves at least"
        known = "" if question.report_scale or not reported else " (report= would tell what that takes away)"
        reasons.append(shrunk + known)
    if not reasons:
        return "intervals are about the noise; for this kind of question, or this noise, nothing more can be said."
    return f"intervals are about the clipped quantity: {'; '.join(reasons)}."

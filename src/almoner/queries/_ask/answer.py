"""Answers, and how far noise may have moved them. Everything here is public.

``intervals`` are about the noise alone; ``truth_intervals`` also about what was clipped, and what people with little
budget left could not pay for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import hypot
from pathlib import Path
from typing import TYPE_CHECKING, Any

from almoner._units import MEASURE, shown, to_float, up
from almoner.errors import ArgumentError
from almoner.queries._ask import results
from almoner.queries._questions.clips import complete_clip, least_share
from almoner.queries._questions.expected_width import expected_half_width
from almoner.queries._questions.intervals import NoiseBand, Whole
from almoner.queries._questions.prices import STEPS
from almoner.queries._questions.question import Key, Question

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from matplotlib.axes import Axes

__all__ = ["Answer", "Quote", "answer", "answer_of", "quote", "quote_of_price", "write_csv"]


@dataclass(frozen=True, slots=True)
class Quote:
    """Price of a question at worst, and the size of its noise."""

    rho: float
    """The price for a person who contributes the full clip, rounded up; every other person less. In a pure budget it is
    epsilon**2 / 2."""
    of_budget: float
    """The price as a share of each person's budget."""
    standard_errors: dict[str, float]
    """Of each number that is released, in the units of the answer."""
    margins: dict[str, float]
    """Half the width of a 95 % interval around each."""
    epsilon: float | None = None
    """The price in a pure budget; None in others."""
    half_width: float | None = None
    """Half the width of a 95 % interval that the answer will have, in its units, the mean over its numbers. None where
    it depends on how many rows there are, and this analyst has no earlier answer to the same question that tells."""
    fits: int | None = None
    """The number of questions of this price that every person can certainly still pay, also one who paid the highest
    price of every question so far. Most people can pay more. With periods, every question so far about the same
    periods, as the filters say: another period can pay for more."""
    table: str | None = None
    """The table that the question is about, where a session has several."""

    def __str__(self) -> str:
        """One sentence with the price, the noise and whether the question fits."""
        price = f"rho = {self.rho:.3g}" if self.epsilon is None else f"epsilon = {self.epsilon:.3g}"
        width = "" if self.half_width is None else f"95 % within about {self.half_width:.3g}; "
        more = "" if self.fits is None else f"; {self.fits:,} such questions certainly fit"
        where = "" if self.table is None else f"about table {self.table}: "
        return f"{where}{width}costs a person at most {price}, {shown(100 * self.of_budget, 3)} % of the budget{more}"


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished answer: one value for each group, or one list of them."""

    key: str
    question: Question
    groups: list[tuple[Key, ...]]
    values: list[Any]
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
    complete_clip: float | None = None
    """Everybody's contribution is in the answer, clipped at no less than this. Equal to the question's ``clip``: nobody
    is shrunk or missing for lack of budget. 0: nothing is certain, and people whose budget is spent may be missing.
    It follows from the public record; people who were retired are in no answer. None for answers of older versions."""
    complete: bool | None = None
    """Under a watch, False from the first question on from which too many people were missing; else None."""
    earlier: str | None = None
    """When it was released, in ISO form, where an earlier answer to the same question stands for it, which cost nothing
    again; else None."""

    @property
    def about_budgets(self) -> str:
        """One sentence on what is certain about people who have little budget left."""
        return results.about_budgets(self)

    @property
    def value(self) -> Any:
        """The value of a question without groups, or of the first group."""
        return self.values[0]

    @property
    def keys(self) -> list[Key]:
        """The keys of the groups, of a question with one column to group by; of ``Keys``, those that were told.

        All of them are public: ``Count(by={column: answer.keys})``.
        """
        if len(self.question.key_columns()) != 1:
            raise ArgumentError("keys: the question has no column to group by, or several; see groups")
        return [key for (key,) in self.groups]

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return _in_table(self.question.estimand, self.question)

    @property
    def truth_interval(self) -> Any:
        """The interval of a question without groups, or of the first group, that covers what was clipped, too."""
        return None if self.truth_intervals is None else self.truth_intervals[0]

    @property
    def interval(self) -> Any:
        """The interval of a question without groups, or of the first group."""
        return self.intervals[0]

    def columns(self) -> dict[str, list[Any]]:
        """The table of ``to_pandas`` by columns."""
        return results.columns(self)

    def to_pandas(self) -> "pandas.DataFrame":
        """A row for each value: the keys of its group, the value, and the interval's low and high end.

        Where a group has several values a column says which one it is: "bin", "level", or "number". A column grouped by
        that is called like one of ours gets "_" after its name.
        """
        return results.to_pandas(self)

    def to_arrow(self) -> "pyarrow.Table":
        """The table of ``to_pandas``, for Arrow."""
        return results.to_arrow(self)

    def to_csv(self, path: Path | str) -> None:
        """Write the table of ``to_pandas`` to a file, which it replaces."""
        results.to_csv([self], path, keys=False)

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draw each value with its interval, at most 200, on axes of Matplotlib, or on new ones without a display.

        ``axes.figure.savefig(path)`` writes the picture. Needs the extra ``plots``.
        """
        return results.to_axes(self, axes)

    def __str__(self) -> str:
        """The first ten values as a table."""
        return results.to_text(self)

    def _repr_html_(self) -> str:
        """The first twenty values, for notebooks."""
        return results.to_html(self)


def write_csv(answers: Sequence[Answer], path: Path | str) -> None:
    """Write answers as one table to a CSV file, which is replaced: the columns of ``Answer.to_pandas``, after the key.

    Columns that an answer does not have are empty in its rows.
    """
    results.to_csv(answers, path, keys=True)


def quote(question: Question, budget: int, *, left: int, released: Sequence[int] | None = None) -> Quote:
    """Price and noise of a question, from public facts alone.

    Args:
        question: what would be asked.
        budget: each person's, units.
        left: of it, at worst, units.
        released: the noisy sums of an earlier answer to the same question.
    """
    errors = {name: question.spread * scale for name, scale in question.scales().items()}
    quantile = NoiseBand(1.0, question.pure).z(1)
    return Quote(
        rho=_rho(question),
        of_budget=question.price / budget,
        standard_errors=errors,
        margins={name: quantile * error for name, error in errors.items()},
        epsilon=to_float(question.price) if question.pure else None,
        half_width=expected_half_width(question, released),
        fits=left // question.price,
        table=question.table,
    )


def quote_of_price(question: Question, budget: int, *, left: int) -> Quote:
    """Quote without noise, for a question whose noise is not known before its clip is chosen."""
    known = quote(question, budget, left=left)
    return replace(known, standard_errors={}, margins={}, half_width=None)


def answer_of(public: Mapping[str, Any], question: Question) -> Answer:
    """The answer to a question that the public part of an entry of the record holds."""
    known = {name: public.get(name) for name in ("complete", "keys", "floor")}
    return replace(answer(question, public["released"], public["key"], **known), earlier=public.get("released at"))


def answer(
    question: Question,
    released: Sequence[int],
    key: str,
    complete: bool | None = None,
    keys: Sequence[Key] | None = None,
    floor: int | None = None,
) -> Answer:
    """The answer that noisy sums give: the same for the same sums.

    Args:
        question: what was asked.
        released: the noisy sums, in whole steps, and the report on what was clipped.
        key: of the question.
        complete: what a watch said.
        keys: of the groups, where the question lists none.
        floor: units that every person could still pay for it; see ``Payment.floor``. None where that is not known.
    """
    noise = NoiseBand(question.spread * STEPS / question.steps, question.pure)
    least = 0.0 if floor is None else least_share(question, floor)
    everybody = floor is not None and floor >= question.price
    full = everybody and question.unclipped
    values, intervals, truths = [], [], []
    groups: list[tuple[Key, ...]] = question.labels if keys is None else [(each,) for each in keys]
    for group in range(len(groups)):
        parts = _parts(question, released, group)
        value, interval = question.read(parts, noise)
        values.append(value)
        intervals.append(interval)
        truths.append(_truth(question, parts, released, group, noise, least, full) if least else None)
    known = None if all(each is None for each in truths) else truths
    about = _about_in_words(question, everybody=everybody, least=least, covered=known is not None)
    rho, clip = _rho(question), None if floor is None else complete_clip(question, floor)
    return Answer(key, question, groups, values, intervals, known, about, rho, list(released), clip, complete)


def _parts(question: Question, released: Sequence[int], group: int) -> list[float]:
    """The noisy coordinates of a group, in units of the largest entry in a row."""
    start = group * question.coordinates
    return [part / question.steps for part in released[start : start + question.coordinates]]


def _truth(
    question: Question,
    parts: list[float],
    released: Sequence[int],
    group: int,
    noise: NoiseBand,
    least: float,
    full: bool,
) -> Any:
    """The intervals of a group about what would be without a clip; ``full`` is whether nothing was taken away."""
    if not question.report_scale or full:  # the report is noise
        return question.truth(Whole(parts, noise, parts, noise, least))
    taken = _parts(question, released[question.groups * question.coordinates :], group)
    whole = [part + each / question.report_scale for part, each in zip(parts, taken, strict=True)]
    error = hypot(noise.standard_error, noise.standard_error / question.report_scale)
    return question.truth(Whole(whole, NoiseBand(error, noise.pure), parts, noise, least))


def _rho(question: Question) -> float:
    """The price in rho, rounded up: what is epsilon-DP is epsilon**2 / 2-zCDP (theory 2.3)."""
    return to_float(up(Fraction(question.price, MEASURE) ** 2 / 2) if question.pure else question.price)


def _in_table(estimand: str, question: Question) -> str:
    """Add the table to a noun phrase for what an answer estimates, where there are several tables."""
    return estimand if question.table is None else f"{estimand}, in table {question.table}"


def _about_in_words(question: Question, *, everybody: bool, least: float, covered: bool) -> str:
    """A sentence on what the intervals cover, and what they rest on.

    Args:
        question: what was asked.
        everybody: whether every person could certainly pay for it in full.
        least: the share of each person's contribution that answer and report certainly hold; see ``least_share``.
        covered: whether there are truth intervals.
    """
    if covered:
        declared = _declared(question)
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
        other = ", or widest= to have it reported" if hasattr(question, "widest") else ""
        reasons.append(f"entries are clipped to their bounds (declare bounds_hold=True where that changes none{other})")
    if not everybody and not least:
        reasons.append("people whose budget is spent may be missing")
    elif not everybody:
        shrunk = f"people with little budget left may be shrunk, to {least:.2g} of themselves at least"
        known = "" if question.report_scale or not reported else " (report= would tell what that takes away)"
        reasons.append(shrunk + known)
    if not reasons:
        return "intervals are about the noise; for this kind of question, or this noise, nothing more can be said."
    return f"intervals are about the clipped quantity: {'; '.join(reasons)}."


def _declared(question: Question) -> list[str]:
    """Declarations of the analyst, as they were written."""
    values = {name: getattr(question, name, None) for name in ("at_most", "widest", "bounds_hold")}
    texts = {name: f"{value:g}" if name == "at_most" else str(value) for name, value in values.items() if value}
    return [f"{name}={text}" for name, text in texts.items()]

"""Quotes: price and noise of a question before it is asked, from public facts alone."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite, nextafter
from typing import Any

from almoner._units import shown, to_float
from almoner.errors import ArgumentError
from almoner.queries._ask.answer import numbers_of, rho_of, whole_of
from almoner.queries._questions.intervals import NoiseBand
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import Question

_MOST_GROUPS = 1000


def expected_half_width(question: Question, released: Sequence[int] | None, noise: float | None = None) -> float | None:
    """Half the width of a 95 % interval, in the units of the answer: the mean over its numbers.

    None where it depends on sums, and no ``released`` ones are given; ``noise``: in full rows, if not the question's.
    """
    varies = (question.width_varies and released is None) or question.sets is not None  # with each table
    if question.values() is not None or varies or question.choice is not None:
        return None
    sums = [0] * question.coordinates if released is None else released
    band = NoiseBand((question.spread if noise is None else noise) * STEPS / question.steps, question.pure)
    halves = [high / 2 - low / 2 for _, low, high in read_off(question, sums, band)]
    mean = sum(half / len(halves) for half in halves)
    return mean if isfinite(mean) else None


def read_off(question: Question, released: Sequence[int], noise: NoiseBand) -> Iterator[tuple[float, float, float]]:
    """(Number, low, high) of each number of the first groups; 0 for what the noise left nothing of."""
    width = question.coordinates
    for start in range(0, min(_MOST_GROUPS * width, question.groups * width, len(released)), width):
        told = question.read([part / question.steps for part in released[start : start + width]], noise)
        yield from ((number or 0.0, low, high) for _, number, low, high in numbers_of(*told, ""))


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
    alone: float | None = None
    """The epsilon that was given, in other budgets: this question alone keeps it, at the budget's delta."""
    warning: str | None = None
    """Where truth intervals of a total will be more than twice as wide as those for the noise: why, and what helps."""

    def __str__(self) -> str:
        """One sentence with the price, the noise and whether the question fits."""
        name, most = ("rho", self.rho) if self.epsilon is None else ("epsilon", self.epsilon)
        price = f"{name} = {shown(nextafter(most, 0), 3)}"  # a float is rounded up from whole units
        width = "" if self.half_width is None else f"95 % within about {self.half_width:.3g}; "
        price += "" if self.alone is None else f" (alone: epsilon = {self.alone:g} at the budget's delta)"
        more = "" if self.fits is None else f"; {self.fits:,} such questions certainly fit"
        where = "" if self.table is None else f"about table {self.table}: "
        more += "" if self.warning is None else f"; {self.warning}"
        return f"{where}{width}costs a person at most {price}, {shown(100 * self.of_budget, 3)} % of the budget{more}"


def quote(question: Question, budget: int, *, left: int, released: Sequence[int] | None = None) -> Quote:
    """Price and noise of a question, from public facts alone; ``left`` of the budget at worst, both in units."""
    errors = {name: question.spread * scale for name, scale in question.scales().items()}
    quantile, half = NoiseBand(1.0, question.pure).z(1), expected_half_width(question, released)
    return Quote(
        rho=rho_of(question),
        of_budget=question.price / budget,
        standard_errors=errors,
        margins={name: quantile * error for name, error in errors.items()},
        epsilon=to_float(question.price) if question.pure else None,
        half_width=half,
        fits=left // question.price,
        table=question.table,
        warning=None if half is None else _warning(question, half, released),
    )


def _warning(question: Question, half_width: float, released: Sequence[int] | None) -> str | None:
    """Words on truth intervals that a declared ``at_most`` makes much wider than the noise; None where it does not."""
    own, most = _truth_half_width(question), float(question.at_most or 0)
    if own is None or own <= 2 * half_width:
        return None
    told = f"truth intervals about +- {own:.3g}"
    if released is not None:
        size = max(abs(number) for number, _, _ in read_off(question, released, NoiseBand(1.0, question.pure)))
        told += f", more than the earlier answer of {size:.3g}" if own > size else ""
    told += f", since at_most={most:g} is far above clip={question.clip:g}"
    price: dict[str, Any] = {"sigma": None, "epsilon" if question.pure else "rho": to_float(question.price)}
    widths = dict[float, float]()
    for place in range(1, 25):
        with suppress(ArgumentError):  # a clip or a price that no question may have
            clip = float(f"{most * 2 ** (-place / 2):.2g}")
            widths[clip] = _truth_half_width(replace(question, clip=clip, **price)) or own
    best = max((clip for clip, each in widths.items() if each <= 1.1 * min(widths.values())), default=0.0)
    if widths.get(best, own) > 0.9 * own:
        return f"{told}: no clip makes them much narrower at this price, only a lower at_most="
    return f"{told}: clip={best:g} at this price gives +- {widths[best]:.3g}, and a lower at_most= less"


def _truth_half_width(question: Question) -> float | None:
    """Half the width of truth intervals while everybody can pay, where a report makes them wider; None elsewhere."""
    if question.width_varies or not question.report_scale or question.unclipped:
        return None
    parts = [0.0] * question.numbers
    noise = NoiseBand(question.spread * STEPS / question.steps, question.pure)
    whole = whole_of(question, parts, parts, noise, 1.0)
    truth = None if whole is None else question.truth(whole)
    ends = [] if truth is None else [(low, high) for _, _, low, high in numbers_of(None, truth, "")]
    return max(((high - low) / 2 for low, high in ends), default=None)

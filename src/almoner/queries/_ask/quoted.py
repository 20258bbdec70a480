"""Quotes: price and noise of a question before it is asked, from public facts alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from almoner._units import shown, to_float
from almoner.queries._ask.answer import numbers_of, rho_of
from almoner.queries._questions.intervals import NoiseBand
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import Question

_MOST_GROUPS = 1000


def expected_half_width(question: Question, released: Sequence[int] | None, noise: float | None = None) -> float | None:
    """Half the width of a 95 % interval, in the units of the answer: the mean over its numbers.

    None where it depends on sums, and no ``released`` ones are given; ``noise``: in full rows, None for the question's
    own.
    """
    if question.values() is not None or (question.width_varies and released is None) or question.choice is not None:
        return None
    width = question.coordinates
    sums = [0] * width if released is None else list(released[: min(_MOST_GROUPS, question.groups) * width])
    band = NoiseBand((question.spread if noise is None else noise) * STEPS / question.steps, question.pure)
    halves: list[float] = []
    for start in range(0, len(sums), width):
        value, interval = question.read([part / question.steps for part in sums[start : start + width]], band)
        halves += [high / 2 - low / 2 for _, _, low, high in numbers_of(value, interval, "")]
    mean = sum(half / len(halves) for half in halves)
    return mean if isfinite(mean) else None


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

    def __str__(self) -> str:
        """One sentence with the price, the noise and whether the question fits."""
        price = f"rho = {self.rho:.3g}" if self.epsilon is None else f"epsilon = {self.epsilon:.3g}"
        width = "" if self.half_width is None else f"95 % within about {self.half_width:.3g}; "
        price += "" if self.alone is None else f" (alone: epsilon = {self.alone:g} at the budget's delta)"
        more = "" if self.fits is None else f"; {self.fits:,} such questions certainly fit"
        where = "" if self.table is None else f"about table {self.table}: "
        return f"{where}{width}costs a person at most {price}, {shown(100 * self.of_budget, 3)} % of the budget{more}"


def quote(question: Question, budget: int, *, left: int, released: Sequence[int] | None = None) -> Quote:
    """Price and noise of a question, from public facts alone; ``left`` of the budget at worst, both in units."""
    errors = {name: question.spread * scale for name, scale in question.scales().items()}
    quantile = NoiseBand(1.0, question.pure).z(1)
    return Quote(
        rho=rho_of(question),
        of_budget=question.price / budget,
        standard_errors=errors,
        margins={name: quantile * error for name, error in errors.items()},
        epsilon=to_float(question.price) if question.pure else None,
        half_width=expected_half_width(question, released),
        fits=left // question.price,
        table=question.table,
    )

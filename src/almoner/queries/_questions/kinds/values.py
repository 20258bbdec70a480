"""Questions about the values of a column: how many differ, and which ones are there although nobody listed them.

Names and symbols
    delta  δ    the most that the chance may be that one of a person's own keys is told
    sigma  σ    standard deviation of the noise on each count, in whole steps, before it is rounded
"""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil, erfc, isqrt, nextafter, sqrt
from typing import Annotated, Any

from almoner import _check
from almoner._check import told
from almoner._reading import Number
from almoner.errors import ArgumentError
from almoner.queries._questions.field_types import ColumnName
from almoner.queries._questions.intervals import Whole
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import Question, set_fields
from almoner.queries._questions.row_contributions import Values

__all__ = ["Distinct", "Keys", "key_threshold", "tail"]

_Most = Annotated[int, Number(1, 100_000, whole=True)]
_FIRM = 1 + 1e-9  # factor above every rounding of the tail, of its argument and of the product


@dataclass(frozen=True, slots=True)
class Distinct(Question):
    """Number of different values of a column that people have, each person counted for at most ``most`` of them.

    A person with more values, over all groups together, keeps ``most`` of them, in the order of a hash of the person
    and the value. The answer is about the number of different values that at least one person keeps, in each group: at
    most the number of different values, and equal to it where nobody has more than ``most``. A person who keeps n
    values moves it by at most n, and pays for n; who cannot pay for all of them is left out (``pace`` is None).
    """

    column: ColumnName
    most: _Most
    _counts = "different values"
    _about = "the number of different values of {0.column} that people have, at most {0.most} of each person"

    def _check_kind(self) -> None:
        _check_values(self, float(self.most))

    def values(self) -> Values:
        return Values(self.column, self.most, people=False)

    def truth(self, whole: Whole) -> Any:
        """The interval of the number of all different values; only where everybody takes part in full."""
        return self.read(whole.parts, whole.noise)[1] if whole.least == 1 else None


@dataclass(frozen=True, slots=True)
class Keys(Question):
    """The keys of a column that enough people have, though nobody listed them, and how many people have each.

    Each person counts once for at most ``most`` keys, chosen as in ``Distinct``. Every key that a person who takes part
    has gets a noisy count of people; keys whose noisy count reaches ``threshold`` are told, largest count first. From
    then on they are public: ``Count(by={column: answer.keys})``.

    Besides its price in rho it costs ``delta``: the chance that a key is told that only one person has. The ledger must
    be made with a ``keys_delta``, of which all such questions together are paid. Who cannot pay in full is left out
    (``pace`` is None). The interval of a count misses with a chance of 5 % for each key that people have; keys that are
    told are those with large noise more often than others.

    Args:
        column: of text, whole numbers, truth values or dates.
        delta: public, in (0, 1).
        most: how many keys one person counts for.
        top: tell only the keys with so many largest noisy counts; None for all.
    """

    column: ColumnName
    delta: Annotated[float, Number(1e-100, nextafter(1, 0))]
    most: _Most = 1
    top: Annotated[int, Number(1, 2**53, whole=True)] | None = None
    _counts = "people with each key"
    _about = "the number of people who have each key of {0.column}, each counted for at most {0.most} keys"

    def _check_kind(self) -> None:
        if self.epsilon is not None:
            raise ArgumentError(f"{told(epsilon=self.epsilon)}: unlisted keys need a delta, so no pure budget")
        if self.by:
            raise ArgumentError("by: the keys of one column are asked for; ask with where= for each group")
        _check_values(self, (isqrt(self.most * STEPS**2 - 1) + 1) / STEPS)  # whole steps, not below the root

    def values(self) -> Values:
        return Values(self.column, self.most, people=True)

    @property
    def reveals(self) -> float:
        return self.delta

    @property
    def threshold_steps(self) -> int:
        """The least noisy count at which a key is told, in whole steps."""
        return key_threshold(sigma=self.noise * STEPS, delta=self.delta, most=self.most, person=STEPS)

    @property
    def threshold(self) -> float:
        """The least noisy number of people at which a key is told."""
        return self.threshold_steps / STEPS

    def key_columns(self) -> tuple[str, ...]:
        """The column whose keys name the groups of the answer."""
        return (self.column,)


def _check_values(asked: Distinct | Keys, clip: float) -> None:
    """Refuse what ``most`` leaves no room for, and set the clip, which follows from it; described questions have it."""
    if asked.per_group is not None or asked.clip not in (None, clip):
        name = "clip" if asked.per_group is None else "per_group"
        raise ArgumentError(f"{told(**{name: getattr(asked, name)})}: most= bounds what a person counts for")
    if asked.pace not in (None, 1):
        raise ArgumentError(f"{told(pace=asked.pace)}: values cannot shrink, so who cannot pay in full is left out")
    set_fields(asked, pace=None, clip=clip)


def tail(steps: int, sigma: float) -> float:
    """The chance that rounded Gaussian noise is at least so many whole steps, rounded up.

    Guarantee: at least Pr(round(N(0, sigma**2)) >= steps), which is Pr(N(0, 1) >= (steps - 1/2) / sigma).
    Source: docs/proofs/noise.md, Theorem 1.
    """
    return erfc((steps - 0.5) / sigma / sqrt(2)) / 2 * _FIRM


def key_threshold(*, sigma: float, delta: float, most: int, person: int) -> int:
    """Threshold for releasing a key that nobody listed: the least noisy count, in whole steps.

    ``sigma`` is that of the noise, and ``person`` what one person adds to the count of a key, both in whole steps.

    Guarantee: where at most ``most`` keys have a count of ``person`` steps, the chance that the noisy count of one of
        them reaches the threshold is at most delta.
    Source: docs/proofs/unknown-keys.md, Lemma 3.
    """
    _check.positive(sigma=sigma)
    _check.between(0, 1, delta=delta)
    _check.whole(1, most=most, person=person)
    low, high = -1, ceil(40 * Fraction(sigma)) + 2  # of the noise: at 40 sigma the chance is below 1e-300
    while high - low > 1:
        middle = (low + high) // 2
        if most * tail(middle, sigma) <= delta:
            high = middle
        else:
            low = middle
    return person + high

"""Questions about a column: sums, means, variances, ratios, how many values differ, and which keys there are.

Names and symbols
    delta  δ    the most that the chance may be that one of a person's own keys is told
    sigma  σ    standard deviation of the noise on each count, in whole steps, before it is rounded
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil, erfc, hypot, inf, isqrt, nextafter, sqrt
from typing import Annotated, Any

from almoner import _check
from almoner._check import told
from almoner._reading import Number
from almoner._search import last_whole
from almoner.errors import ArgumentError
from almoner.queries._questions import intervals
from almoner.queries._questions import row_contributions as terms
from almoner.queries._questions.field_types import LARGEST, Bounds, ColumnName, End, Filter
from almoner.queries._questions.intervals import OWN, Basis, Interval, NoiseBand, Whole, around, total_interval
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import Question, Told, set_fields


@dataclass(frozen=True, slots=True)
class _Bounded(Question[Told]):
    column: ColumnName
    low: End | None = None
    high: End | None = None
    bounds_hold: bool = field(default=False, kw_only=True)
    """A declaration: every entry, or every total of ``per="total"``, is within the bounds; for ``truth_intervals``."""

    middle: float = field(init=False, repr=False, compare=False)  # between the bounds
    half: float = field(init=False, repr=False, compare=False)  # from the middle to a bound

    def _check_kind(self) -> None:
        if {"auto", None} & {self.low, self.high}:  # the bounds follow before it is asked: see ``Question.open``
            set_fields(self, middle=0.0, half=1.0)
            return
        low, high = self.ends
        if not -LARGEST <= low < high <= LARGEST:
            raise ArgumentError(f"{told(low=low)} and {told(high=high)} must be increasing, within {LARGEST:g}")
        if not high - low > max(1e-100, 1e-9 * max(abs(low), abs(high))):
            raise ArgumentError(f"{told(low=low)} and {told(high=high)} are too close to each other")
        set_fields(self, middle=low / 2 + high / 2, half=high / 2 - low / 2)

    def auto_bounds(self) -> dict[str, float]:
        ends = zip(("low", "high"), self.ends, strict=True)
        return {name: end for name, end in ends if getattr(self, name) == "auto"}

    def left_out(self) -> tuple[str, ...]:
        return tuple(name for name in ("low", "high") if getattr(self, name) is None)

    @property
    def ends(self) -> tuple[float, float]:
        """The bounds; some numbers in place of those that are to be chosen, for the shape of the question."""
        low, high = self.low, self.high
        if low is None or low == "auto":
            return (-1.0, 1.0) if high is None or high == "auto" else (high - 1.0 - abs(high), high)
        return low, (low + 1.0 + abs(low) if high is None or high == "auto" else high)


_CORRELATED: dict[int, Basis] = {2: ((1, 1), (-1, 1)), 3: ((1, 1, 1), (1, -1, 1), (-1, 0, 1))}


@dataclass(frozen=True, slots=True)
class _Averaged(_Bounded[float | None]):
    per: terms.Per = field(default="person", kw_only=True)
    correlated: bool = field(default=True, kw_only=True)
    """True if noise on count and sums may be correlated, as it is in pure budgets: a row has parts that add up to
    1, which has less noise (docs/proofs/noise.md, Theorem 4). False: in a count and sums."""
    width_varies = True

    @property
    def estimand(self) -> str:
        over = terms.over_what(self.column, self.per, f", clipped to [{self.low}, {self.high}]")
        return f"the {type(self).__name__.lower()} of {over}"

    @property
    def whole_estimand(self) -> str:
        return f"the {type(self).__name__.lower()} of {terms.over_what(self.column, self.per)}"

    def row(self) -> tuple[terms.Coordinate, ...]:
        power = 2 if isinstance(self, Variance) else 1
        if self._basis is not OWN:
            up, down = (self._entry(end, 2 * self.half, power) for end in self.ends)
            both = terms.Product(self._entry(self.ends[0], 2 * self.half), self._entry(self.ends[1], self.half))
            return (up, down) if power == 1 else (up, down, both)
        count = terms.CountRows() if self.per == "row" else terms.AnyRow()
        return count, *(self._entry(self.middle, self.half, each + 1) for each in range(power))

    def _entry(self, center: float, scale: float, power: int = 1) -> terms.Entry:
        return terms.Entry(self.column, *self.ends, center, scale, power, self.per)

    @property
    def _basis(self) -> Basis:
        """The count, the sum and the sum of squares of differences from the middle, in halves, by the coordinates.

        Guarantee: where it is not ``OWN``, a row's coordinates add up to at most 1 in L1 norm, not to 2 or 3.
        Source: docs/proofs/noise.md, Theorem 4.
        """
        squares = isinstance(self, Variance)
        if not self.pure or not self.correlated or (squares and self.per == "total"):
            return OWN
        return _CORRELATED[3 if squares else 2]

    def _steps(self) -> int:
        """Whole steps; rounding of a row, and of a person's mean, then makes nothing longer than 1."""
        return Question._steps(self) if self._basis is OWN else STEPS - len(self.row()) * len(self.tables)

    def _read_off(self, parts: list[float], place: int) -> float:
        """The count, the sum or the sum of squares of differences from the middle, in halves."""
        return sum(part * line[place] for part, line in zip(parts, self._basis, strict=False))

    def _errors(self) -> list[float]:
        """Of each of these, in full rows, for noise of 1 on each coordinate."""
        size = len(self.row())
        return [STEPS / self.steps * hypot(*(line[k] for line in self._basis[:size])) for k in range(size)]

    def scales(self) -> dict[str, float]:
        names = "count", "sum of differences from the middle", "sum of their squares"
        return {names[power]: error * self.half**power for power, error in enumerate(self._errors())}

    def truth(self, whole: Whole) -> Any:
        return self._interval(whole.parts, whole.noise, whole.least) if self.reported() else None

    def _interval(self, parts: list[float], noise: NoiseBand, least: float = 1.0) -> Interval:
        if isinstance(self, Variance):
            low, high = intervals.variance_interval(parts, noise, least=least, basis=self._basis)
            return low * self.half**2, high * self.half**2
        low, high = intervals.mean_interval(parts, noise, least=least, basis=self._basis)
        return self.middle + self.half * low, self.middle + self.half * high


@dataclass(frozen=True, slots=True)
class Sum(_Bounded[float]):
    """The sum of a column, each entry clipped to [low, high]; a full row is an entry of max(|low|, |high|)."""

    @property
    def estimand(self) -> str:
        return f"{self.whole_estimand}, each entry clipped to [{self.low}, {self.high}]"

    @property
    def whole_estimand(self) -> str:
        return f"the sum of {self.column} over rows"

    @property
    def full(self) -> float:
        return max(map(abs, self.ends))

    def row(self) -> tuple[terms.Coordinate, ...]:
        return (terms.Entry(self.column, *self.ends, scale=self.full),)

    def scales(self) -> dict[str, float]:
        return {"sum": STEPS / self.steps * self.full}

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        return parts[0] * self.full, around(parts[0] * self.full, noise.margin(1) * self.full)

    def truth(self, whole: Whole) -> Any:
        """The interval of the sum without clip and bounds; of both signs only where a pace took nothing away."""
        if not self.reported():
            return None
        low, high = self.ends
        if low < 0 < high:
            return self.read(whole.parts, whole.noise)[1] if whole.least == 1 else None
        sign = -1.0 if high <= 0 else 1.0
        parts, answered = ([sign * each for each in listed] for listed in (whole.parts, whole.answered))
        least, most = total_interval(replace(whole, parts=parts, answered=answered), 0)
        return tuple(sorted((sign * least * self.full, sign * most * self.full)))


@dataclass(frozen=True, slots=True)
class Mean(_Averaged):
    """The mean of a column, entries clipped to [low, high]: a noisy sum over a noisy count, paid once.

    ``per="person"``: each person has one weight: the mean over people of the mean of each person's rows.
    ``per="row"``: each row has one weight; a clip must be given. ``per="total"``: the mean over people of the total of
    each person's rows, the total clipped to [low, high].
    """

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        count, total = self._read_off(parts, 0), self._read_off(parts, 1)
        if count <= 0:
            return None, self.ends
        return self.middle + self.half * _clip(total / count), self._interval(parts, noise)


@dataclass(frozen=True, slots=True)
class Variance(_Averaged):
    """The variance of a column, entries clipped to [low, high]: noisy count, sum and sum of squares, paid once.

    ``per`` is as for ``Mean``. Per person it is the variance of the entries of people drawn at random, each with one of
    their rows drawn at random: it has the differences between a person's own rows in it.
    """

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        count, total, squares = (self._read_off(parts, place) for place in range(3))
        if count <= 0:
            return None, (0.0, self.half**2)
        value = max(0.0, min(1.0, squares / count - _clip(total / count) ** 2))
        return value * self.half**2, self._interval(parts, noise)


def _clip(value: float) -> float:
    return max(-1.0, min(1.0, value))


@dataclass(frozen=True, slots=True)
class Ratio(Question[float | None]):
    """The sum of one column over the sum of another, or over a count: both are released with noise, and paid once.

    Each part is a column whose entries are clipped to its bounds, or a count of rows where no column is given; a part
    with a filter of its own takes the rows that match it. Rows in which a column of either part has no entry are in
    neither part. A full row is one in which both parts are as large as they can be.

    Examples: revenue per unit is ``Ratio("amount", "units", numerator_bounds=(0, 100), denominator_bounds=(0, 50))``;
    the share of rows that were cancelled is ``Ratio(numerator_where="cancelled")``.
    """

    numerator: ColumnName | None = None
    denominator: ColumnName | None = None
    numerator_bounds: Bounds | None = None
    denominator_bounds: Bounds | None = None
    numerator_where: Filter | None = None
    denominator_where: Filter | None = None
    bounds_hold: bool = False
    """A declaration: every entry is within the bounds of its part; for ``truth_intervals``."""
    width_varies = True

    def _check_kind(self) -> None:
        for part in ("numerator", "denominator"):
            column, bounds = getattr(self, part), getattr(self, f"{part}_bounds")
            if column is None and bounds is not None:
                raise ArgumentError(f"{told(**{f'{part}_bounds': bounds})} are for a column: give {part}=")
            if column is not None and bounds is None:
                raise ArgumentError(f"{told(**{part: column})} needs {part}_bounds=(low, high)")
            if bounds is not None and max(map(abs, bounds)) < 1e-100:
                raise ArgumentError(f"{told(**{f'{part}_bounds': bounds})} must not both be so near 0")

    @property
    def estimand(self) -> str:
        return f"{_words(self.numerator, self.numerator_where)} over {_words(self.denominator, self.denominator_where)}"

    def row(self) -> tuple[terms.Coordinate, ...]:
        above = _part(self.numerator, self.numerator_bounds, self.numerator_where)
        return above, _part(self.denominator, self.denominator_bounds, self.denominator_where)

    def scales(self) -> dict[str, float]:
        full = STEPS / self.steps
        return {"numerator": full * _full(self.numerator_bounds), "denominator": full * _full(self.denominator_bounds)}

    def reported(self) -> bool:
        """True if the bounds take away nothing: the report is then on what is taken away from both parts."""
        return self.bounds_hold or (self.numerator is None and self.denominator is None)

    def truth(self, whole: Whole) -> Any:
        """The interval of the ratio without a clip; after a pace, only where neither part can be negative."""
        if not self.reported():
            return None
        _, (low, high) = self.read(whole.parts, whole.noise)
        if whole.least == 1:
            return low, high
        if any(bounds is not None and bounds[0] < 0 for bounds in (self.numerator_bounds, self.denominator_bounds)):
            return None
        return max(0.0, low) * whole.least, max(0.0, high) / whole.least

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """The quotient, and the quotients that the noise allows (Fieller); None where the denominator may be 0."""
        above, below = parts
        scale = _full(self.numerator_bounds) / _full(self.denominator_bounds)
        positive = self.denominator_bounds is None or self.denominator_bounds[0] >= 0
        if below == 0 or (positive and below < 0):
            return None, (-inf, inf)
        low, high = _fieller(above, below, noise.margin(1))
        return above / below * scale, (low * scale, high * scale)


def _fieller(above: float, below: float, margin: float) -> Interval:
    """All r for which above - r * below is within the margin of what its noise, sqrt(1 + r**2) times one, allows.

    Guarantee: for independent Gaussian noise of equal spread on both, it holds the true quotient with the probability
        that the margin has for one of them.
    Source: Fieller (1954), "Some problems in interval estimation".
    """
    leading = below * below - margin * margin
    if leading <= 0:
        return -inf, inf
    root = margin * sqrt(max(0.0, above * above + leading))
    ends = (above * below - root) / leading, (above * below + root) / leading
    return min(ends), max(ends)


def _full(bounds: Bounds | None) -> float:
    return 1.0 if bounds is None else max(abs(bounds[0]), abs(bounds[1]))


def _part(column: str | None, bounds: Bounds | None, where: str | None) -> terms.Coordinate:
    if column is None or bounds is None:
        return terms.CountRows() if where is None else terms.Matching(where, terms.CountRows())
    entry = terms.Entry(column, *bounds, scale=_full(bounds))
    return entry if where is None else terms.Matching(where, entry)


def _words(column: str | None, where: str | None) -> str:
    what = "the number of rows" if column is None else f"the sum of {column}, clipped to its bounds"
    return what if where is None else f"{what} with {where}"


_Most = Annotated[int, Number(1, 100_000, whole=True)]
_FIRM = 1 + 1e-9  # factor above every rounding of the tail, of its argument and of the product


@dataclass(frozen=True, slots=True)
class Distinct(Question[float]):
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

    def values(self) -> terms.Values:
        return terms.Values(self.column, self.most, people=False)

    def truth(self, whole: Whole) -> Any:
        """The interval of the number of all different values; only where everybody takes part in full."""
        return self.read(whole.parts, whole.noise)[1] if whole.least == 1 else None


@dataclass(frozen=True, slots=True)
class Keys(Question[float]):
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

    def values(self) -> terms.Values:
        return terms.Values(self.column, self.most, people=True)

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
    highest = ceil(40 * Fraction(sigma)) + 1  # of the noise: at 40 sigma the chance is below 1e-300
    return person + last_whole(lambda noise: most * tail(noise, sigma) > delta, -1, highest) + 1

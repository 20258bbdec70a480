"""Questions as frozen and public descriptions, with the lengths to which contributions and their report are shrunk.

A row of the data becomes a vector of length at most 1, *one full row*. A person's rows are added up, group by group;
the sum is that person's contribution, and is shrunk to length ``clip`` if it is longer. The answer is the sum of
all contributions, plus noise of standard deviation ``sigma`` on each of its coordinates. All three are counted
in full rows, so a count, a sum and a mean with the same clip and sigma cost the same.

The fields of ``Question`` say what every question takes. Its price is in ``noise``, its answer in ``_ask.answer``.

A question with an ``error``, or with "auto" for its clip or bounds, is *open*: the session closes it before it asks it.
So is one that leaves out bounds, or keys of ``by``, which the session's data set declares.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import floor, inf, isqrt, nextafter, prod, sqrt
from typing import Annotated, Any, ClassVar, Generic

import numpy as np
from typing_extensions import TypeVar

from almoner._check import told
from almoner._reading import Number, model_of, read
from almoner._units import RANGE, up
from almoner.errors import ArgumentError
from almoner.ledger._payment import Payment
from almoner.mechanisms import Gaussian, Laplace
from almoner.queries._language.keys import Key
from almoner.queries._questions import field_types as types
from almoner.queries._questions import row_contributions as terms
from almoner.queries._questions.choice import Choice
from almoner.queries._questions.intervals import NoiseBand, Whole, around
from almoner.queries._questions.margins import agreeing, places_of
from almoner.queries._questions.noise import STEPS, BinFactor, price_of

Told = TypeVar("Told", default=Any, covariant=True)  # what an answer tells of a group
_SHARES = [share / 50 for share in range(1, 41)]
_MOST_CELLS = 1_000_000
_MOST_NOISE = 2.0**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Question(Generic[Told]):
    """Base of all questions. Fields without a place in ``Question(...)`` follow from the others."""

    table: types.TableName | None = None
    """The table of people that it is about, where a session has several; None for the first. Columns of the others may
    be used too, as ``people.age``."""
    where: types.Filter | None = None
    """The rows that count, a filter (see ``almoner.queries``); None for all."""
    by: types.By | None = ()
    """Public keys to group by, {column: keys}; an answer for each combination, whether or not it is in the data. A
    key may be a range, (low, high), which takes entries from low up to and without high."""
    sets: types.Sets | None = None
    """Several tables in one release, each a list of columns of ``by``: [["ward", "day"], ["ward"], []]. A row counts in
    all of them, and in none if a key of it is not listed. Numbers of rows, and sums, agree. None: one table of all."""
    clip: types.Clip | None = None
    """The length to which a person's contribution is shrunk. It must be given where one person may have more than one
    full row in a group. Elsewhere (``People``, ``per="person"``, ``per="total"``) it may be left out: then it is the
    longest that a contribution can be, and nothing is shrunk."""
    at_most: types.Length | None = None
    """A declaration: no person's contribution is longer than this before it is shrunk; for ``truth_intervals``."""
    report: Annotated[float, Number(0, 0.9)] | None = None
    """The share of the price for a report on what the clip and the pace take away, up to ``at_most``; 0 for none. None:
    the share at which ``truth_intervals`` are shortest, and none where nobody is longer than the clip."""
    per_group: types.Length | None = None
    """The length to which a person's contribution to each single group is shrunk first; None for no such bound."""
    sigma: Annotated[float, Number(1e-3, 1e9)] | None = None
    """The noise. One of ``sigma``, ``rho``, ``epsilon`` and ``error`` is given."""
    rho: Annotated[float, Number(1e-12, 1e3)] | None = None
    """The price for a person who contributes the full clip, from which the noise follows."""
    epsilon: Annotated[float, Number(1e-6, 1e3)] | None = None
    """Price as of ``rho``, for pure budgets. The noise is then discrete Laplace noise, and all lengths are L1 norms. In
    other budgets, with a delta: the highest rho at which this question alone is (epsilon, delta)-DP."""
    error: types.Error | None = None
    """Half the width of a 95 % interval of the answer, from which the noise follows. It is in the answer's units (500),
    or a share of its size ("2%" of an earlier answer to the same question, or "2% of 5000")."""
    level: Annotated[float, Number(0.5, 1 - 1e-9)] | None = None
    """Level of the interval that ``error`` is about; 0.95 if it is left out."""
    beside: types.PerPerson | None = None
    """{name: aggregate}, public. Each row has these columns beside its own, about all rows of its person, such as the
    month of the first one. Only a person's own rows are used: it costs no privacy."""
    each: types.PerKey | None = None
    """{column: {name: aggregate}}, public. Rows of a person with the same entry there, such as the lines of an invoice,
    become one row first, with these columns and that one. ``where``, ``by``, ``each_person`` and the question are then
    about those rows. Rows without an entry there are in none."""
    each_person: types.PerPerson | None = None
    """{name: aggregate}, public. Each person's rows become one row first, with these columns; ``where``, ``by`` and
    the question are then about those rows. Only a person's own rows are used: it costs no privacy."""
    pace: Annotated[int, Number(1, 1e6, whole=True)] | None = 1
    """The payment of people who have little left. A person pays at most one part in ``pace`` of what that person has
    left, and a contribution that costs more is shrunk to what that pays for. So 1 spends the remainder; r is for the
    question that is followed by r - 1 more of its kind. None: who cannot pay in full is left out."""
    anyway: bool = False
    """True if it is asked although it does not certainly fit (``Quote.fits`` is 0). A person who paid the highest price
    of every question so far cannot pay for it then, so people may be missing or shrunk, and nobody knows how many. It
    is refused otherwise, unless a ``pace`` of 2 or more says already that people are shrunk, or a watch tells when
    too many are missing."""

    keys: tuple[tuple[str, tuple[Key, ...]], ...] = field(init=False, repr=False, compare=False)
    """``by``: each column with its keys."""
    groups: int = field(init=False, repr=False, compare=False)
    """The number of groups: the product of the numbers of keys."""
    coordinates: int = field(init=False, repr=False, compare=False)
    """Numbers in each group."""
    choice: Choice | None = field(init=False, repr=False, compare=False)
    """Choices that are released of each group in place of noisy counts of its bins; None where these are."""
    numbers: int = field(init=False, repr=False, compare=False)
    """Numbers that are released of each group: its coordinates, or what is chosen."""
    steps: int = field(init=False, repr=False, compare=False)
    """Whole steps in a coordinate of a row that is as large as it can be."""
    noise: float = field(init=False, repr=False, compare=False)
    """Of the noise on each coordinate, in full rows: sigma of Gaussian noise, the scale of Laplace noise."""
    clip_steps: int = field(init=False, repr=False, compare=False)
    """The clip in whole steps, rounded down."""
    report_steps: int = field(init=False, repr=False, compare=False)
    """The longest report on what a clip takes away from a person, in whole steps."""
    report_scale: float = field(init=False, repr=False, compare=False)
    """The report's unit, one full row that was taken away; 0 for no report."""
    sensitivity_steps: int = field(init=False, repr=False, compare=False)
    """The longest that a clipped contribution with its report can be, in whole steps, rounded up."""
    price: int = field(init=False, repr=False, compare=False)
    """The most that the question costs a person, in units of rho or epsilon, rounded up; see ``price_of``."""
    pure: bool = field(init=False, repr=False, compare=False)
    """True if the noise is discrete Laplace noise, lengths are L1 norms, and the price is an epsilon."""
    tables: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)
    """The columns of each table of the answer, by their places in ``keys``; one table of all without ``sets``."""
    unfilled: bool = field(init=False, repr=False, compare=False)
    """True if bounds or keys are left out, so that a session takes those that the data set declares."""
    open: bool = field(init=False, repr=False, compare=False)
    """True if noise, clip or bounds follow from an ``error``, from "auto" or a data set: a session closes it."""
    unclipped: bool = field(init=False, repr=False, compare=False)
    """True if nobody is longer than the clip, or per_group, by what the question is or by what was declared."""
    spare_units: int = field(init=False, repr=False, compare=False)
    """The units that each person who is counted must keep after paying."""
    _counts: ClassVar[str] = "count"
    _about: ClassVar[str] = ""
    _once: ClassVar[bool] = False  # each person is at most one full row in a group
    _reported: ClassVar[bool] = False
    whole_rows: ClassVar[bool] = True
    """True if a row without an entry of one of the columns counts for no coordinate; else only for those of others."""
    width_varies: ClassVar[bool] = False
    """True if an interval's width depends on more than the noise, such as on how many rows there are."""

    def __post_init__(self) -> None:
        ask = type(self).__name__.lower()
        model = model_of(type(self), ask=ask)  # type: ignore[arg-type]
        given = {name: getattr(self, name, ask) for name in model.model_fields}  # a question has no field "ask"
        set_fields(self, **{name: value for name, value in read(model, given) if name != "ask"})
        by: Any = self.by
        listed = tuple((column, keys or ()) for column, keys in by or ())
        set_fields(self, keys=listed, pure=self.epsilon is not None, choice=None)
        self._check_kind()
        columns, every = [column for column, _ in self.keys], tuple(range(len(self.keys)))
        set_fields(self, tables=(every,) if self.sets is None else places_of(self.sets, columns))
        if sum(each is not None for each in (self.sigma, self.rho, self.epsilon, self.error)) != 1:
            raise ArgumentError("give either sigma=, rho=, epsilon= or error=; for example `rho=0.01`")
        if self.level is not None and self.error is None:
            raise ArgumentError(f"{told(level=self.level)} is the level of error=, which is missing")
        chosen = self.error is not None or self.clip == "auto" or bool(self.auto_bounds())
        unfilled = bool(self.left_out()) or any(not keys for _, keys in self.keys)
        set_fields(self, open=chosen or unfilled, unfilled=unfilled)
        bins = self.bins()
        coordinates = len(self.row()) if bins is None else bins.cells
        spare = getattr(self, "spare", None)
        groups = sum(prod(len(self.keys[place][1]) or 1 for place in each) for each in self.tables)
        if self.sets is not None and (self.error or self.per_group or bins or self.values()):
            raise ArgumentError("sets= is for numbers and sums of rows or people, without error= and per_group=")
        if groups * coordinates > _MOST_CELLS:
            raise ArgumentError(f"by: an answer has at most {_MOST_CELLS} numbers")
        set_fields(self, groups=groups, coordinates=coordinates, spare_units=0 if spare is None else int(up(spare)))
        if self.open:
            if chosen and self.values() is not None:
                raise ArgumentError("error= and 'auto' are for questions whose keys are public")
            if self.clip == "auto" or self.auto_bounds():
                types.check_auto(self.clip, self.most_in_group(), sigma=self.sigma, error=self.error)
            if self.clip is None and not chosen:
                clip_of(self)  # refuses one that must be given, whatever is filled in
            return
        self._set_price()

    def _set_price(self) -> None:
        """Set lengths, noise and price of a question that is not open."""
        parts = len(self.tables)  # of a row: it counts in each
        set_fields(self, steps=self._steps() // parts if self.pure else floor(self._steps() / sqrt(parts)))
        clip = clip_of(self)
        set_fields(self, clip=clip, clip_steps=floor(Fraction(clip) * STEPS))
        set_fields(self, unclipped=nobody_is_clipped(self))
        length, taken, scale = report_of(self, clip)
        if self.sigma is not None:
            noise = float(self.sigma)
        else:  # as the price that was given allows, rounded up
            rate = self.epsilon if self.epsilon is not None else sqrt(2 * float(self.rho or 0))
            noise = nextafter(length / rate * (1 + 1e-15), inf)
        set_fields(self, noise=noise, report_steps=floor(taken * STEPS))
        set_fields(self, report_scale=0.0 if taken and not self.report_steps else scale)
        choice = self._choice() if getattr(self, "chosen", 0) else None
        set_fields(self, choice=choice, numbers=self.coordinates if choice is None else 2 * len(choice.levels))
        joint = self.clip_steps  # the length of both in one vector, rounded up
        if self.report_steps:
            both = self.clip_steps, self.report_steps
            joint = sum(both) if self.pure else isqrt(sum(each**2 for each in both)) + 1
        set_fields(self, sensitivity_steps=joint)
        set_fields(self, price=price_of(self.sensitivity_steps, self.noise, pure=self.pure))
        if self.price >= RANGE:
            raise ArgumentError(f"{told(sigma=self.sigma)} is too small for {told(clip=self.clip)}")
        if self.noise * STEPS >= _MOST_NOISE:
            raise ArgumentError(f"{told(clip=self.clip)} is too large for so small a price: noise would be above 2**33")

    def _check_kind(self) -> None:
        """Refuse what makes no sense in this kind of question; each field alone is checked by its type."""

    def left_out(self) -> tuple[str, ...]:
        """The names of bounds that are left out."""
        return ()

    def auto_bounds(self) -> dict[str, float]:
        """The bounds of a column that are to be chosen, with some numbers that could stand there."""
        return {}

    def row(self) -> tuple[terms.Coordinate, ...]:
        """Terms that a person's rows add to each coordinate of a group, or of a bin."""
        return (terms.CountRows(),)

    def bins(self) -> terms.Bins | terms.KeyCells | terms.EntryBuckets | None:
        """The cells that a group is divided into, by a column's bins or keys; None where it is not."""
        return None

    def bin_factor(self) -> BinFactor | None:
        """Mixing of each group's counts of bins before noise is added; None where each has noise of its own.

        Where they are mixed, a person's length is the L2 norm, over groups, of the sum of what is in the group's bins.
        """
        return None

    def _choice(self) -> Choice | None:
        return None

    @property
    def estimand(self) -> str:
        """Noun phrase for the quantity that the answer estimates."""
        return self._about.format(self)

    @property
    def whole_estimand(self) -> str:
        """Noun phrase for the quantity that truth intervals cover."""
        return self.estimand

    def most_in_group(self) -> float | None:
        """The longest that a person's contribution to a group can be, before any clip; None for no such bound."""
        return None if self._per == "row" and not self._once else 1.0

    @property
    def _per(self) -> terms.Per:
        """Whose distribution it is about: of rows, where the kind has no ``per``."""
        per: terms.Per = getattr(self, "per", "row")
        return per

    def reported(self) -> bool:
        """True if what is taken away from contributions can be reported, and ``truth`` makes use of it."""
        return self._reported or bool(getattr(self, "bounds_hold", False))

    def truth(self, whole: Whole) -> Any:  # noqa: ARG002 - kinds of questions use it
        """Intervals like those of ``read``, about what would be without a clip; None where that cannot be said.

        ``whole`` is what all people have in the group, by the answer and its report.
        """
        return None

    @property
    def reports(self) -> int:
        """Numbers of the report: one for each of the answer, or none."""
        return self.groups * self.coordinates if self.report_scale else 0

    def values(self) -> terms.Values | None:
        """The values of a column, where they are asked for instead of sums over rows."""
        return None

    @property
    def reveals(self) -> float:
        """The delta that the question costs beside its price; public."""
        return 0.0

    def key_columns(self) -> tuple[str, ...]:
        """The columns whose keys name the groups of the answer."""
        return tuple(column for column, _ in self.keys)

    def several(self) -> tuple[str, Sequence[Any]] | None:
        """(What the values of a group are called, the name of each); None where a group has one value."""
        return None

    def scales(self) -> dict[str, float]:
        """For each released number, what one full row is in it, in the units of the answer."""
        return {self._counts: 1.0}

    def read(self, parts: list[float], noise: NoiseBand) -> tuple[Any, Any]:
        """(Value, interval) of one group; the value is None where the noise leaves nothing to say.

        Here: the noisy count, or counts of all bins, each with an interval of its own.

        Args:
            parts: the noisy coordinates of the group, each in units of its largest entry in a row.
            noise: on each of them.
        """
        ends = [around(value, noise.margin(1)) for value in parts]
        return (parts[0], ends[0]) if self.bins() is None else (parts, ends)

    def agreed(self, parts: Sequence[Sequence[float]]) -> tuple[list[list[float]], list[float]]:
        """The coordinates of each group, where there are ``sets`` made to agree; the share of noise left in each."""
        adding = [] if self.sets is None else [nth for nth, each in enumerate(self.row()) if self.adds_up(each)]
        if not parts or not adding:
            return [list(each) for each in parts], [1.0] * len(parts)
        noisy = np.array(parts, float)
        noisy[:, adding], left = agreeing(noisy[:, adding], self.tables, [len(keys) for _, keys in self.keys])
        return noisy.tolist(), left

    def adds_up(self, each: terms.Coordinate) -> bool:
        """True if, whatever the data, a number of a coarser table is the sum of those of a finer one."""
        per = getattr(getattr(each, "first", each), "per", "row")
        return self.each_person is not None or (per == "row" and not isinstance(each, terms.AnyRow))

    def _steps(self) -> int:
        """Whole steps in a coordinate that is as large as it can be: a row of only such numbers has length 1."""
        numbers = len(self.row())
        return STEPS // numbers if self.pure else floor(STEPS / sqrt(numbers))

    @property
    def payment(self) -> Payment:
        """Rule by which each person pays for it."""
        return Payment(self.pace, 0, self.pure)

    @property
    def mechanism(self) -> Gaussian | Laplace:
        """Mechanism that is run, in whole steps."""
        if self.pure:
            return Laplace(scale=self.noise * STEPS, sensitivity=float(self.sensitivity_steps))
        return Gaussian(sigma=self.noise * STEPS, sensitivity=float(self.sensitivity_steps))

    @property
    def spread(self) -> float:
        """Standard deviation of the noise on each coordinate, in full rows."""
        return self.noise * sqrt(2) if self.pure else self.noise

    @property
    def labels(self) -> list[tuple[Any, ...]]:
        """The keys of each group, in the order of the answer; None for a column that its table has not."""
        listed = [[keys if nth in each else (None,) for nth, (_, keys) in enumerate(self.keys)] for each in self.tables]
        return [group for columns in listed for group in product(*columns)]


def set_fields(asked: Question, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(asked, name, value)


def clip_of(asked: Question) -> float:
    """The clip: as given, or the longest that a contribution can be."""
    most = longest(asked)
    if isinstance(asked.clip, str):
        raise ArgumentError(f"{told(clip=asked.clip)} must be a number or 'auto'")
    if asked.clip is not None:
        if most is not None and asked.clip > most and hasattr(asked, "per"):
            rule = "each person counts once in a group; or ask per='row'"
            raise ArgumentError(f"{told(clip=asked.clip)} must be at most {most:g}: {rule}")
        return asked.clip
    if most is None and asked.at_most is None:
        raise ArgumentError("clip= must be given: the most full rows that one person counts for; for example `clip=1`")
    return min(each for each in (most, asked.at_most) if each is not None)


def most_in_group(asked: Question) -> float | None:
    """The longest that a person's contribution to a group can be: one row where each person has one."""
    return asked.most_in_group() if asked.each_person is None else 1.0


def longest(asked: Question) -> float | None:
    """The longest that a contribution can be before the clip, whatever the data; None for no such bound."""
    most = most_in_group(asked)
    if most is None:
        return None
    most = most if asked.per_group is None else min(most, asked.per_group)
    if asked.each_person is not None:  # a person has one row, in one group
        return most
    cells = asked.groups / len(asked.tables)
    return most * (cells if asked.pure else sqrt(cells))


def _declared(asked: Question) -> float | None:
    """The longest that a contribution can be, by what the question is or by what was declared; None for no bound."""
    return min((each for each in (longest(asked), asked.at_most) if each is not None), default=None)


def nobody_is_clipped(asked: Question) -> bool:
    """True if nobody is longer than the clip, or per_group, by what the question is or by what was declared."""
    most, in_group = _declared(asked), most_in_group(asked)
    if most is None:
        return False
    bounds = [each for each in (asked.at_most, in_group) if each is not None]
    if asked.per_group is not None and asked.per_group < min(bounds, default=0.0):
        return False
    return most <= float(asked.clip or 0) * (1 + 1e-9)


def report_of(asked: Question, clip: float) -> tuple[float, Fraction, float]:
    """(Joint, longest, scale): the longest contribution with its report, the longest report, a full row in it; or 0.

    In full rows; ``asked`` has its clip. Where nobody is longer than the clip, a report costs nothing; it is made if a
    share is given, for what a pace takes.
    """
    none = clip, Fraction(0), 0.0
    if not asked.reported() or asked.report == 0:
        return none
    if asked.unclipped:
        if asked.report is None or asked.pace is None:
            return none
        left = 1 - asked.report  # so that all is told while everybody can pay the report's share of the price
        return clip, Fraction(0), 1 - sqrt(left) if asked.pure else sqrt(asked.report / left)
    if asked.at_most is None or asked.at_most <= clip or (asked.per_group or inf) < asked.at_most:
        return none  # what per_group takes away is in no report
    share = best_share(asked.at_most / clip - 1, pure=asked.pure) if asked.report is None else asked.report
    of_clip = share / (1 - share) if asked.pure else sqrt(share / (1 - share))
    joint = clip * (1 + of_clip if asked.pure else sqrt(1 + of_clip**2))
    return joint, Fraction(clip * of_clip), clip * of_clip / (asked.at_most - clip)


def best_share(excess: float, *, pure: bool) -> float:
    """The price's share for the report at which a count's interval is shortest; ``excess`` over the clip, in clips."""

    def width(share: float) -> float:
        noise = 1 / (1 - share) if pure else 1 / sqrt(1 - share)
        report = excess / (share if pure else sqrt(share))
        return noise + sqrt(noise**2 + report**2)

    return min(_SHARES, key=width)


def least_share(asked: Question, floor: int) -> float:
    """The share of each person's whole contribution that is at least in the answer and its report together.

    In [0, 1]; 0 where nothing is known: a clip without a report, or people who cannot pay. Every person could pay
    ``floor`` units for it; public.

    Guarantee: for each person who has not left there is a factor between this and 1, so that answer and report are, but
        for noise and whole steps, the sum over people of factor times contribution; if what was declared is right.
    Source: docs/proofs/truth-intervals.md, Lemma 1.
    """
    most = _declared(asked)
    if most is None or (not asked.unclipped and not asked.report_scale):
        return 0.0
    if floor >= asked.price:
        return 1.0
    turn, cheapest = turn_of(asked.report_scale, pure=asked.pure)
    if not asked.unclipped and float(asked.clip or 0) <= turn * most:  # the longest shrink together with their report
        cheapest, joint = 1.0, most
    else:
        joint = _joint(asked)
    paid = _paid_share(asked, floor)
    return min(1.0, (paid / cheapest if asked.pure else sqrt(paid / cheapest)) * joint / most)


def complete_clip(asked: Question, floor: int) -> float:
    """The length to which everybody's contribution was clipped at least, where everybody could pay ``floor`` units.

    It is ``clip`` where nobody is shrunk or left out for lack of budget; 0 where nothing is known.

    Guarantee: each person's contribution is in the answer, shrunk to no less than this length, but for whole steps;
        except people who were retired.
    Source: docs/proofs/individual-filter.md, "How complete an answer is".
    """
    clip, share = float(asked.clip or 0), _paid_share(asked, floor)
    if share == 1:
        return clip
    turn, cheapest = turn_of(asked.report_scale, pure=asked.pure)
    least = turn * _joint(asked) * (share / cheapest if asked.pure else sqrt(share / cheapest))
    return min(clip * (share if asked.pure else sqrt(share)), least)


def _paid_share(asked: Question, floor: int) -> float:
    """The share of the price that everybody could pay at least, 0 where who cannot pay all of it is left out."""
    if floor >= asked.price:
        return 1.0
    if asked.pace is None or floor <= 0:
        return 0.0
    return floor / (asked.price + asked.price / floor) * (1 - 1e-7)  # units are rounded up, by one at most


def turn_of(scale: float, *, pure: bool) -> tuple[float, float]:
    """(The share of a contribution below which it shrinks together with its report, what it costs there).

    The cost is a share of that of the whole contribution, squared if lengths are L2 norms.
    """
    if not scale:
        return 1.0, 1.0
    if pure:
        turn = min(1.0, scale)
        return turn, turn * (2 - turn)
    return scale**2 / (1 + scale**2), scale**2 / (1 + scale**2)


def _joint(asked: Question) -> float:
    """The longest that a contribution with its report can be, in full rows, rounded down."""
    steps = Fraction(asked.sensitivity_steps, asked.clip_steps)
    return float(steps) * float(asked.clip or 0) * (1 if asked.sensitivity_steps == asked.clip_steps else 1 - 1e-6)

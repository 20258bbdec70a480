"""Longest contribution, and the lengths to which it and the report on what is taken away are shrunk."""

from fractions import Fraction
from math import isqrt, sqrt
from typing import NamedTuple, Protocol

from almoner._check import told
from almoner.errors import ArgumentError

__all__ = [
    "MOST_CLIP",
    "Clipped",
    "Reported",
    "best_share",
    "clip_of",
    "complete_clip",
    "joint_steps",
    "least_share",
    "longest",
    "most_in_group",
    "nobody_is_clipped",
    "report_of",
    "turn_of",
]

MOST_CLIP = 1e6
_SHARES = [share / 50 for share in range(1, 41)]


class Clipped(Protocol):
    """Fields of a question that its clip depends on; see ``Question``."""

    @property
    def clip(self) -> float | str | None: ...
    @property
    def at_most(self) -> float | None: ...
    @property
    def report(self) -> float | None: ...
    @property
    def per_group(self) -> float | None: ...
    @property
    def each_person(self) -> object: ...
    @property
    def pace(self) -> int | None: ...
    @property
    def groups(self) -> int: ...
    @property
    def pure(self) -> bool: ...
    @property
    def unclipped(self) -> bool: ...
    def most_in_group(self) -> float | None: ...
    def reported(self) -> bool: ...


class Reported(Clipped, Protocol):
    """Fields of a question that the completeness of its answer depends on; see ``Question``."""

    @property
    def report_scale(self) -> float: ...
    @property
    def sensitivity_steps(self) -> int: ...
    @property
    def clip_steps(self) -> int: ...
    @property
    def price(self) -> int: ...


class Report(NamedTuple):
    """A report on what is taken away from contributions, in full rows.

    Fields:
        joint: the longest that a contribution with its report can be.
        longest: the longest report of what a clip takes away; 0 where nobody is longer than the clip.
        scale: what one full row that was taken away is in the report; 0 for no report.
    """

    joint: float
    longest: Fraction
    scale: float


def clip_of(asked: Clipped) -> float:
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
        raise ArgumentError("clip= must be given: the most full rows that one person counts for")
    return min(each for each in (most, asked.at_most) if each is not None)


def most_in_group(asked: Clipped) -> float | None:
    """The longest that a person's contribution to a group can be: one row where each person has one."""
    return asked.most_in_group() if asked.each_person is None else 1.0


def longest(asked: Clipped) -> float | None:
    """The longest that a contribution can be before the clip, whatever the data; None for no such bound."""
    most = most_in_group(asked)
    if most is None:
        return None
    most = most if asked.per_group is None else min(most, asked.per_group)
    if asked.each_person is not None:  # a person has one row, in one group
        return most
    return most * (asked.groups if asked.pure else sqrt(asked.groups))


def _declared(asked: Clipped) -> float | None:
    """The longest that a contribution can be, by what the question is or by what was declared; None for no bound."""
    return min((each for each in (longest(asked), asked.at_most) if each is not None), default=None)


def nobody_is_clipped(asked: Clipped) -> bool:
    """True if nobody is longer than the clip, or per_group, by what the question is or by what was declared."""
    most, in_group = _declared(asked), most_in_group(asked)
    if most is None:
        return False
    bounds = [each for each in (asked.at_most, in_group) if each is not None]
    if asked.per_group is not None and asked.per_group < min(bounds, default=0.0):
        return False
    return most <= float(asked.clip or 0) * (1 + 1e-9)


def report_of(asked: Clipped, clip: float) -> Report:
    """The report that is released with an answer; ``asked`` has its clip, and ``unclipped``.

    Where nobody is longer than the clip, a report costs nothing; it is made if a share is given, for what a pace takes.
    """
    none = Report(clip, Fraction(0), 0.0)
    if not asked.reported() or asked.report == 0:
        return none
    if asked.unclipped:
        if asked.report is None or asked.pace is None:
            return none
        left = 1 - asked.report  # so that all is told while everybody can pay the report's share of the price
        return Report(clip, Fraction(0), 1 - sqrt(left) if asked.pure else sqrt(asked.report / left))
    if asked.at_most is None or asked.at_most <= clip:
        return none
    if asked.per_group is not None and asked.per_group < asked.at_most:  # what that takes away is in no report
        return none
    share = best_share(asked.at_most / clip - 1, pure=asked.pure) if asked.report is None else asked.report
    of_clip = share / (1 - share) if asked.pure else sqrt(share / (1 - share))
    joint = clip * (1 + of_clip if asked.pure else sqrt(1 + of_clip**2))
    return Report(joint, Fraction(clip * of_clip), clip * of_clip / (asked.at_most - clip))


def best_share(excess: float, *, pure: bool) -> float:
    """The share of a price for the report, at which an interval of a count without the clip is shortest.

    Args:
        excess: how far beyond the clip a person may be, in clips, > 0.
        pure: whether prices and lengths add up as L1 norms.
    """

    def width(share: float) -> float:
        noise = 1 / (1 - share) if pure else 1 / sqrt(1 - share)
        report = excess / (share if pure else sqrt(share))
        return noise + sqrt(noise**2 + report**2)

    return min(_SHARES, key=width)


def joint_steps(clip_steps: int, report_steps: int, *, pure: bool) -> int:
    """The length of both in one vector, rounded up."""
    if not report_steps:
        return clip_steps
    return clip_steps + report_steps if pure else isqrt(clip_steps**2 + report_steps**2) + 1


def least_share(asked: Reported, floor: int) -> float:
    """The share of each person's whole contribution that is at least in the answer and its report together.

    Args:
        asked: the question.
        floor: units that every person could pay for it; public.

    Returns:
        In [0, 1]; 0 where nothing is known: a clip without a report, or people who cannot pay.

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


def complete_clip(asked: Reported, floor: int) -> float:
    """The length to which everybody's contribution was clipped at least, where everybody could pay so much.

    Args:
        asked: the question.
        floor: units, as an answer's entry in the record states it; public.

    Returns:
        ``clip`` where nobody is shrunk or left out for lack of budget; 0 where nothing is known.

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


def _paid_share(asked: Reported, floor: int) -> float:
    """The share of the price that everybody could pay at least, 0 where who cannot pay all of it is left out."""
    if floor >= asked.price:
        return 1.0
    if asked.pace is None or floor <= 0:
        return 0.0
    return floor / (asked.price + asked.price / floor) * (1 - 1e-7)  # units are rounded up, by one at most


def turn_of(scale: float, *, pure: bool) -> tuple[float, float]:
    """(The share of a contribution below which it shrinks together with its report, what it costs there).

    Where less is left of a contribution, more is in the report. The cost is a share of that of the whole contribution,
    squared if lengths are L2 norms.

    Args:
        scale: what one full row that was taken away is in the report; 0 for no report.
        pure: whether prices and lengths add up as L1 norms.
    """
    if not scale:
        return 1.0, 1.0
    if pure:
        turn = min(1.0, scale)
        return turn, turn * (2 - turn)
    return scale**2 / (1 + scale**2), scale**2 / (1 + scale**2)


def _joint(asked: Reported) -> float:
    """The longest that a contribution with its report can be, in full rows, rounded down."""
    steps = Fraction(asked.sensitivity_steps, asked.clip_steps)
    return float(steps) * float(asked.clip or 0) * (1 if asked.sensitivity_steps == asked.clip_steps else 1 - 1e-6)

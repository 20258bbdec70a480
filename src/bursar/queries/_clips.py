"""How long a contribution can be, and to which length it and the report on the clip are shrunk."""

from fractions import Fraction
from math import isqrt, sqrt
from typing import Protocol

from bursar import _check
from bursar.errors import ArgumentError
from bursar.queries._missing import best_share

__all__ = ["MOST_CLIP", "Clipped", "clip_of", "joint_steps", "longest", "most_in_group", "report_of"]

MOST_CLIP = 1e6


class Clipped(Protocol):
    """What the clip of a question depends on; see ``Question``."""

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
    def groups(self) -> int: ...
    @property
    def pure(self) -> bool: ...
    @property
    def nobody_is_clipped(self) -> bool: ...
    def most_in_group(self) -> float | None: ...
    def reported(self) -> bool: ...


def clip_of(asked: Clipped) -> float:
    """The clip: as given, or the longest that a contribution can be."""
    if asked.at_most is not None:
        _check.within(1e-3, MOST_CLIP, at_most=asked.at_most)
    most = longest(asked)
    if isinstance(asked.clip, str):
        raise ArgumentError(f"clip={asked.clip!r} must be a number or 'auto'")
    if asked.clip is not None:
        _check.within(1e-3, MOST_CLIP, clip=asked.clip)
        if most is not None and asked.clip > most and hasattr(asked, "per"):
            raise ArgumentError(f"clip={asked.clip!r}: nobody is longer than {most:g} here; or ask per='row'")
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


def report_of(asked: Clipped, clip: float) -> tuple[float, Fraction]:
    """(The longest that a contribution with its report can be, the longest report), in full rows."""
    if asked.report is not None:
        _check.within(0, 0.9, report=asked.report)
    if asked.at_most is None or not asked.reported() or asked.report == 0 or asked.nobody_is_clipped:
        return clip, Fraction(0)
    if asked.per_group is not None and asked.per_group < asked.at_most:  # what that takes away is in no report
        return clip, Fraction(0)
    share = best_share(asked.at_most / clip - 1, pure=asked.pure) if asked.report is None else asked.report
    of_clip = share / (1 - share) if asked.pure else sqrt(share / (1 - share))
    return clip * (1 + of_clip if asked.pure else sqrt(1 + of_clip**2)), Fraction(clip * of_clip)


def joint_steps(clip_steps: int, report_steps: int, *, pure: bool) -> int:
    """The length of both in one vector, rounded up."""
    if not report_steps:
        return clip_steps
    return clip_steps + report_steps if pure else isqrt(clip_steps**2 + report_steps**2) + 1

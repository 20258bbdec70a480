"""A watch over how many people could not pay: it says once when too many are missing from an answer.

The sparse vector technique: a noisy threshold, kept secret, and each question's number of missing people, with fresh
noise, compared with it; until it is passed, "not yet" is told, then "now", and nothing more. A person who joins or
leaves the data moves each number by at most one. Its whole price is set aside from each person's budget at the start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log, nextafter
from typing import Any, Self

from bursar import _check
from bursar._units import exact, up
from bursar.errors import ArgumentError

__all__ = ["Watch"]


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch over the questions of a ledger. Public, but for the threshold's noise.

    Args:
        people: how many may be missing, about.
        epsilon: the watch's own; the larger, the less noise.

    Guarantee: all that the watch ever tells, together, is epsilon-DP, so epsilon**2 / 2 of rho; it costs each
        person ``units``, whether or not they are ever missing.
    Source: theory 5.8; Lyu, Su & Li (2017), https://arxiv.org/abs/1603.01699, Alg. 1; Bun & Steinke (2016), Prop. 1.4;
        beside other questions, Haney et al. (2023), https://arxiv.org/abs/2309.05901.
    """

    people: int
    epsilon: float
    noise: int | None = field(default=None, repr=False)
    """Of the threshold. Private. ``Session.watch`` draws it."""

    def __post_init__(self) -> None:
        _check.whole(0, people=self.people)
        object.__setattr__(self, "people", int(self.people))
        _check.positive(epsilon=self.epsilon)
        if self.people >= 2**53 or not 1e-6 <= self.epsilon <= 100:
            raise ArgumentError(f"epsilon={self.epsilon!r} must be in [1e-6, 100], and people={self.people} below 2^53")
        object.__setattr__(self, "epsilon", float(self.epsilon))

    @classmethod
    def recorded(cls, public: Mapping[str, Any], private: Mapping[str, Any]) -> Self:
        """The watch that an entry of the record began."""
        return cls(int(public["people"]), float(public["epsilon"]), int(private["noise"]))

    @property
    def units(self) -> int:
        """What it costs each person, rounded up."""
        return int(up(exact(self.epsilon) ** 2 / 2))

    @property
    def scales(self) -> tuple[float, float]:
        """Of the Laplace noise on the threshold, and on each number; rounded up."""
        return nextafter(2 / self.epsilon, inf), nextafter(4 / self.epsilon, inf)

    def margin(self, questions: int, *, failure: float = 0.05) -> float:
        """How far from ``people`` the number may be when it speaks or is silent, in so many questions.

        Guarantee: but for a probability of failure, no question with people - margin or fewer missing makes it speak,
            and none with people + margin or more leaves it silent.
        Source: Dwork & Roth (2014), Thm 3.24.
        """
        _check.whole(1, questions=questions)
        _check.between(0, 1, failure=failure)
        # a whole-number Laplace is beyond a value at most twice as often as a continuous one
        return 8 * (log(questions) + log(4 / failure)) / self.epsilon * (1 + 1e-12)

    def speaks(self, missing: int, noise: int) -> bool:
        """Whether so many missing people, with fresh noise, pass the threshold."""
        if self.noise is None:
            raise ArgumentError("this watch's threshold has no noise")
        return missing + noise >= self.people + self.noise

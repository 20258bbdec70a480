"""A watch over who could not pay in full: it says once when too many people, or too much of them, are missing.

The sparse vector technique: a noisy threshold, kept secret, and each question's number of missing people, with fresh
noise, compared with it; until it is passed, "not yet" is told, then "now", and nothing more. A person who joins or
leaves the data moves each number by at most one. Its whole price is set aside from each person's budget at the start.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log, nextafter
from typing import Any, Self

from scipy.special import expit, ndtri

from almoner import _check
from almoner._units import exact, up
from almoner.errors import ArgumentError
from almoner.ledger._payment import MASS
from almoner.ledger._record.terms import GAUSSIAN, PURE


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch over the questions of a ledger. Public, but for the threshold's noise.

    Args:
        people: how many may be missing, about; or, with ``mass``, how many full clips: what is missing of everybody's
            contributions, each as a share of the clip, added up.
        epsilon: the watch's own; the larger, the less noise.
        mass: whether it watches what is missing of contributions, not how many people are missing.

    Guarantee: all that the watch ever tells, together, is epsilon-DP; it costs each person ``price``, whether or not
        they are ever missing.
    Source: theory 5.8; Lyu, Su & Li (2017), https://arxiv.org/abs/1603.01699, Alg. 1; Bun & Steinke (2016), Prop. 1.4;
        beside other questions, Haney et al. (2023), https://arxiv.org/abs/2309.05901; with less noise on the numbers,
        as for mass: Lyu, Su & Li, section 4.3, since a person who is added never makes less of the others missing.
    """

    people: int
    epsilon: float
    noise: int | None = field(default=None, repr=False)
    """Of the threshold. Private. ``Session.watch`` draws it."""
    mass: bool = False

    def __post_init__(self) -> None:
        _check.whole(0, people=self.people)
        object.__setattr__(self, "people", int(self.people))
        _check.positive(epsilon=self.epsilon)
        if self.people >= 2**53 or not 1e-6 <= self.epsilon <= 100:
            raise ArgumentError(f"{_check.told(epsilon=self.epsilon)} must be in [1e-6, 100], and people below 2^53")
        object.__setattr__(self, "epsilon", float(self.epsilon))

    @classmethod
    def recorded(cls, public: Mapping[str, Any], private: Mapping[str, Any]) -> Self:
        return cls(int(public["people"]), float(public["epsilon"]), int(private["noise"]), public.get("of") == "mass")

    @property
    def public(self) -> dict[str, object]:
        """Public part of its entry in the record, but for the price."""
        return {"people": self.people, "epsilon": self.epsilon} | ({"of": "mass"} if self.mass else {})

    @property
    def units(self) -> int:
        """Cost to each person in rho of zCDP, rounded up; units."""
        return int(up(exact(self.epsilon) ** 2 / 2))

    def price(self, measure: str) -> int:
        """Cost to each person in a ledger's measure, units, rounded up.

        Guarantee: an epsilon-DP interaction is a post-processing of one randomised response with this epsilon. That is
            mu-GDP with mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)), the least there is, and epsilon**2 / 2-zCDP.
        Source: Vadhan & Wang (2021), https://arxiv.org/abs/2105.14427; theory 2.3. The trade-off curve of randomised
            response is straight from (0, 1) to its kink at a = 1 / (1 + e^epsilon) on the diagonal, and from there to
            (1, 0). That of mu is convex, has the same ends, and meets the diagonal at Phi(-mu / 2) = a: it is below.
        """
        if measure == PURE:
            return int(up(exact(self.epsilon)))
        if measure == GAUSSIAN:
            mu = -2 * float(ndtri(expit(-self.epsilon))) * (1 + 1e-9) + 1e-12  # above the errors of both functions
            return int(up(exact(mu) ** 2 / 2))
        return self.units

    @property
    def scales(self) -> tuple[float, float]:
        """Of the Laplace noise on the threshold, and on each number, in people or in parts of a clip; rounded up."""
        if self.mass:  # 1 / 2.5 + 1 / (5 / 3) = 1
            return tuple(nextafter(share * MASS / self.epsilon * (1 + 1e-15), inf) for share in (2.5, 5 / 3))  # type: ignore[return-value]
        return nextafter(2 / self.epsilon, inf), nextafter(4 / self.epsilon, inf)

    def margin(self, questions: int, *, failure: float = 0.05) -> float:
        """The farthest from ``people`` that the number may be when it speaks or is silent, in so many questions.

        With ``mass`` in full clips. It is known before the watch is begun, ``Watch(...).margin(...)``.

        Guarantee: but for a probability of failure, no question with people - margin or fewer missing makes it speak,
            and none with people + margin or more leaves it silent.
        Source: Dwork & Roth (2014), Thm 3.24.
        """
        _check.whole(1, questions=questions)
        _check.between(0, 1, failure=failure)
        if self.mass:
            first, each = (scale / MASS for scale in self.scales)
            return (first * log(4 / failure) + each * log(4 * questions / failure)) * (1 + 1e-12)
        # a whole-number Laplace is beyond a value at most twice as often as a continuous one
        return 8 * (log(questions) + log(4 / failure)) / self.epsilon * (1 + 1e-12)

    def speaks(self, missing: int, noise: int) -> bool:
        """True if so many missing people, or parts of clips, with fresh noise, pass the threshold."""
        if self.noise is None:
            raise ArgumentError("this watch's threshold has no noise")
        return missing + noise >= self.people * (MASS if self.mass else 1) + self.noise

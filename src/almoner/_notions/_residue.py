"""Budget whose remainder is a Gaussian ("the residue"), of which every round takes a certified part.

Names and symbols
    b, square   the Gaussian that is left, and b squared
    slack       by how much the bound may fail on the way, in FAILURE units; it is paid from delta

Source: theory 4.8; docs/proofs/residue-filter.md
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import floor, inf, sqrt
from typing import ClassVar, Self

from almoner import mechanisms
from almoner._notions._notion import ByRemainder, Totals, no_failures
from almoner._notions._order_mixture import certain
from almoner._notions._with_failures import WithFailures
from almoner._search import last_whole
from almoner._units import FAILURE, FINE, Units, budget, exact, times, to_float, up
from almoner.curves import _residue, gaussian, renyi, tradeoff
from almoner.errors import Unsupported

SLACK = Fraction(1, 100)
"""Part of delta that pays for slack: it costs less than 0.2 % of the budget, and sampled Gaussians need some."""


@dataclass(frozen=True, kw_only=True)
class Residue(ByRemainder, WithFailures[float]):
    """A price that depends on what is left of b squared.

    Totals: b squared, the sum of pure epsilons, slack, and failures. The first is infinite once a round was admitted by
    basic composition alone.

    Guarantee: totals that hold are (epsilon, delta)-DP.
    Source: theory 4.8; docs/proofs/residue-filter.md.
    """

    measure: ClassVar[str] = "b squared"
    theorem: ClassVar[str] = "theory 4.8; docs/proofs/residue-filter.md"

    @property
    def columns(self) -> int:
        return 4

    def after(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        counts = [(_round(leaf), count) for leaf, count in mechanisms.leaves(mechanism).items()]
        pure = totals[1] + sum([times(count, each.pure) for each, count in counts])
        failures = totals[3] + sum([count * each.failures for each, count in counts])
        start, slacks = self._start(self.share((0, 0, 0, failures)))
        square, slack = _spent(mechanism, start - totals[0], slacks - int(totals[2]))
        return start - square, pure, slacks - slack, failures

    def settle(self, mechanism: mechanisms.Mechanism, after: Totals) -> tuple[Self, Totals]:
        if after[0] > self._start(self.share(after))[0]:  # by basic composition, from now on
            after = (inf, *after[1:])
        return super().settle(mechanism, after)

    def holds_for(self, totals: Totals, delta: Fraction) -> bool:
        start, slacks = self._start(delta)
        return totals[1] <= self._pure_limit or (totals[0] <= start and totals[2] <= slacks)

    def spent(self, totals: Totals) -> float:
        return to_float(totals[0])

    def left(self, totals: Totals) -> float:
        return to_float(max(0, self._start(self.share(totals))[0] - totals[0]), down=True) if totals[0] < inf else 0.0

    def asked(self, totals: Totals, mechanism: mechanisms.Mechanism) -> float:
        after = self.after(totals, mechanism)[0]
        return to_float(inf if after == inf else after - totals[0])

    def person_limits(self) -> tuple[int, ...]:
        return (self._start(exact(self.delta))[0],)  # nothing is set aside: no round may fail

    def _left_converted(self, left: tuple[int, ...], delta: float) -> float:
        """Of what is left of b squared; the slack of the whole is taken off delta."""
        rest = delta - float(self.delta) * float(SLACK) * (1 + 1e-12)
        return float(gaussian.epsilon(sqrt(to_float(left[0])) * (1 + 1e-15), delta=rest)) if rest > 0 else inf

    def _left_curve(self, left: tuple[int, ...]) -> tradeoff.Curve:
        """Of what is left of b squared, and the slack of the whole; there are no rounds by basic composition."""
        return tradeoff.of(gaussian.Gaussian(sqrt(to_float(left[0])) * (1 + 1e-15))).with_failures(self.slack)

    @property
    def slack(self) -> float:
        """The part of delta that pays for the slack of all rounds together, rounded up."""
        return to_float(exact(self.delta) * SLACK, per=1)

    def person_price(self, leaf: mechanisms.Mechanism, count: int = 1) -> Totals:
        no_failures(leaf, "an account per person")
        exactly = _residue.needs_no_slack(leaf)
        if exactly is None:
            raise Unsupported(f"{type(leaf).__name__} costs a person what depends on what is left: see person_table")
        return (times(count, exactly),)

    def person_round(self, leaf: mechanisms.Mechanism) -> mechanisms.Mechanism:
        if isinstance(leaf, mechanisms.SampledGaussian) and leaf.sample_rate == 1:
            return mechanisms.Gaussian(leaf.sigma, leaf.sensitivity)
        return leaf

    def person_table(self, leaf: mechanisms.Mechanism) -> _residue.Table | None:
        """For accounts per person: the charges of one round by norm and by what is left; None of a Gaussian round.

        Guarantee: an account that spends at most ``person_limits()`` by these charges is (epsilon, delta)-DP.
        Source: theory 4.8; docs/proofs/residue-filter.md, section 6.
        """
        no_failures(leaf, "an account per person")
        if _residue.needs_no_slack(leaf) is not None:
            return None
        start, slack = self._start(exact(self.delta))
        return _residue.table(leaf, most=start, slack=slack)

    @cached_property
    def _pure_limit(self) -> int:
        return budget(self.epsilon, per=FINE)

    @cached_property
    def _start(self) -> Callable[[Fraction], tuple[int, int]]:
        """For a part of delta: the units of b squared and of slack at the start."""
        return lru_cache(maxsize=4)(self._start_units)

    def _start_units(self, delta: Fraction) -> tuple[int, int]:
        mu = gaussian.mu(epsilon=self.epsilon, delta=float(delta * (1 - SLACK)) * (1 - 1e-15))
        return budget(Fraction(mu) ** 2), floor(delta * SLACK * FAILURE)


@dataclass(frozen=True, slots=True)
class _Round:
    """Price of a round whatever is left, in units (``pure`` in fine ones); square is None where the rest decides."""

    leaf: mechanisms.Mechanism
    pure: Units
    failures: int
    square: Units | None
    size: Units


@lru_cache(maxsize=256)
def _round(leaf: mechanisms.Mechanism) -> _Round:
    square = _residue.needs_no_slack(leaf)
    size = up(_residue.size(leaf)) if square is None else 0
    return _Round(leaf, up(certain(leaf), per=FINE), int(up(renyi.failure(leaf), per=FAILURE)), square, size)


def _spent(mechanism: mechanisms.Mechanism, square: Units, slack: int) -> tuple[Units, int]:
    """Remainder of b squared (below 0 if it does not fit) and of the slack after a mechanism.

    The same as one round after the other, but equal blocks that take the same are taken in one go. (What a block takes
    where least is left is valid wherever more is left: section 6 of the proof.)
    """
    inner, count = mechanisms.repeated(mechanism)
    if not isinstance(inner, mechanisms.Composed):
        return _run(_round(inner), count, square, slack) if count else (square, slack)
    while count and square >= 0:
        after, slack_after = square, slack
        for part in inner.mechanisms:
            after, slack_after = _spent(part, after, slack_after)
        took, took_slack = square - after, slack - slack_after
        if after < 0:
            return -inf, slack
        free = not took and not took_slack
        blocks = count if free else _equal_blocks(inner, int(square), slack, (took, took_slack), count)
        square, slack, count = square - blocks * took, slack - blocks * took_slack, count - blocks
    return square, slack


def _equal_blocks(block: mechanisms.Mechanism, square: int, slack: int, took: tuple[Units, int], most: int) -> int:
    """Number of blocks in a row that take the same: at least one."""

    def takes_the_same(number: int) -> bool:
        left, slack_left = square - (number - 1) * int(took[0]), slack - (number - 1) * took[1]
        after = _spent(block, left, slack_left) if left >= 0 <= slack_left else (inf, 0)
        return (left - after[0], slack_left - after[1]) == took

    return last_whole(takes_the_same, 1, most)


def _run(each_round: _Round, count: int, square: Units, slack: int) -> tuple[Units, int]:
    """As ``_spent``, for a number of rounds: those at one grid point and with one slack are taken in one go."""
    if each_round.square is not None:
        return square - count * each_round.square, slack
    leaf, size = each_round.leaf, each_round.size
    while count and square >= 0:
        left = int(square)
        each = _slack(size, left, slack)
        cost = _residue.cost(leaf, square=left, slack=each) if each <= slack else inf
        if cost == inf:
            return -inf, slack
        cost = int(cost)
        most = min(count, (left - _residue.grid(_residue.level(left))) // cost + 1, slack // each)
        done = _last(size, left, cost, slack, each, most)
        square, slack, count = left - done * cost, slack - done * each, count - done
    return square, slack


def _last(size: Units, left: int, cost: int, slack: int, each: int, most: int) -> int:
    """Find how many equal rounds share one slack value: what is left for it changes one way only, round by round."""
    return last_whole(lambda n: _slack(size, left - (n - 1) * cost, slack - (n - 1) * each) == each, 1, most)


def _slack(size: Units, square: int, slack: int) -> int:
    """The slack of a round: of what is left for slack, the share that the round has in what is left of b squared.

    At least LEAST_SLACK, or a part in 10^9 of what is left: with less, rounding would be dearer than the round.
    """
    share = slack if size >= square else slack * int(size) // square
    return _residue.ladder(max(share, min(_residue.LEAST_SLACK, slack // 10**9)))

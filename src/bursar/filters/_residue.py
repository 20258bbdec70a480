"""The residue filter: what is left is a Gaussian, and every round takes a certified part of it."""

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from math import floor, inf

from bursar import _check, mechanisms
from bursar._units import FAILURE, Units, budget, exact, to_float, up
from bursar.curves import approximate, gaussian, renyi, residue
from bursar.errors import ArgumentError, Unsupported
from bursar.filters._account import WithFailures, refuse_failures

__all__ = ["Residue"]

_SLACK = Fraction(1, 100)
"""Part of delta that pays for slack: it costs less than 0.2 % of the budget, and sampled Gaussians need some."""


class Residue(WithFailures):
    """Randomised response, pure, approximate, Laplace, bounded-range and sampled Gaussian mechanisms: the tightest.

    The account holds b squared, as the Gaussian filter does. A Gaussian mechanism takes mu squared. Any other round
    takes the least c for which the round and then a Gaussian with b squared - c left are proven to be no easier to
    tell apart than a Gaussian with b squared, at every epsilon. That is close to the variance of its privacy loss
    while its losses are small beside b, and grows as b falls: large rounds are refused where b is small.

    Where a round does not fit but all epsilons so far add up to at most epsilon, it is admitted by basic composition,
    and from then on basic composition is all there is.

    Args (keyword-only, public): epsilon; delta; sum_delta, the part of delta for mechanisms that may fail (default:
    half if the first mechanism charged may fail, otherwise nothing; fixed from the first charge on). A hundredth of
    the rest of delta pays for slack. The measure of ``spent`` and ``left`` is b squared; ``spent`` is inf once only
    basic composition is left.

    Guarantee: the whole adaptive interaction is (epsilon, delta)-DP. While ``spent`` is finite it is also
    (e, H(e; b_0) + the slack and failures charged)-DP for every other e, where H belongs to the b_0 of the start.
    Source: theory 4.8; docs/proofs/residue-filter.md.

    >>> account = Residue(epsilon=1.0, delta=1e-6)
    >>> account.charge(mechanisms.Repeated(mechanisms.RandomizedResponse(epsilon=0.01), 550))
    >>> account.admits(mechanisms.RandomizedResponse(epsilon=0.01))
    True
    """

    def __init__(self, *, epsilon: float, delta: float, sum_delta: float | None = None) -> None:
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        self._most = lru_cache(maxsize=4)(self._most_for)
        super().__init__((0, 0, 0, 0), epsilon=epsilon, delta=delta, sum_delta=sum_delta)
        self._price = lru_cache(maxsize=0)(self._price_of)  # a price depends on what is left: never remembered

    @property
    def spent(self) -> float:
        """What was spent of b squared, rounded up; inf once only basic composition is left. Public."""
        return to_float(self._spent[0])

    @property
    def left(self) -> float:
        """What is left of b squared, rounded down. Public."""
        return to_float(max(0, self._start(self._spent) - self._spent[0]), down=True) if self._spent[0] < inf else 0.0

    def person_budget(self) -> tuple[int, ...]:
        """For accounts per person: the units of b squared at the start. Nothing is set aside: no round may fail."""
        return (self._most(exact(self._parameters["delta"])),)

    def person_price(self, leaf: mechanisms.Mechanism) -> tuple[Units, ...]:
        """For accounts per person: the units that a Gaussian round takes, whatever is left.

        Raises:
            Unsupported: the charge depends on what is left; see :meth:`person_table`.
        """
        exactly = residue.needs_no_slack(leaf)
        if exactly is None:
            raise Unsupported(f"{type(leaf).__name__} costs a person what depends on what is left: see person_table")
        return (exactly,)

    def person_table(self, leaf: mechanisms.Mechanism) -> residue.Table:
        """For accounts per person: the charges of one round by norm and by what is left.

        Guarantee: an account that spends at most :meth:`person_budget` by these charges is (epsilon, delta)-DP.
        Source: theory 4.8; docs/proofs/residue-filter.md, section 6.
        """
        refuse_failures(leaf, renyi.failure(leaf), "an account per person")
        slack = floor(exact(self._parameters["delta"]) * _SLACK * FAILURE)
        return residue.table(leaf, most=self.person_budget()[0], slack=slack)

    def _start(self, totals: tuple[Units, ...]) -> int:
        """Units of b squared at the start."""
        return self._most(exact(self._parameters["delta"]) - self._set_aside(totals))

    def _most_for(self, delta: Fraction) -> int:
        share = delta * (1 - _SLACK)
        return budget(Fraction(gaussian.mu(epsilon=self._parameters["epsilon"], delta=float(share) * (1 - 1e-15))) ** 2)

    def _holds(self, totals: tuple[Units, ...], delta: Fraction) -> bool:
        if totals[1] <= budget(self._parameters["epsilon"]):
            return True
        return totals[0] <= self._most(delta) and totals[2] <= delta * _SLACK * FAILURE

    def _shown(self, totals: tuple[Units, ...]) -> float:
        return to_float(totals[0])

    def _price_of(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        after = self._after(mechanism)
        return tuple(inf if a == inf else a - b for a, b in zip(after, self._spent, strict=True))

    def _after(self, mechanism: mechanisms.Mechanism) -> tuple[Units, ...]:
        rounds = list(_leaves(mechanism))
        pure = self._spent[1] + sum(count * _pure(leaf) for leaf, count in rounds)
        failures = self._spent[3] + sum(count * up(renyi.failure(leaf), per=FAILURE) for leaf, count in rounds)
        delta = exact(self._parameters["delta"]) - self._set_aside((0, 0, 0, failures))
        start, slacks = self._most(delta), floor(delta * _SLACK * FAILURE)
        square, slack = start - self._spent[0], slacks - int(self._spent[2])
        for leaf, count in rounds:
            square, slack = _run(leaf, count, square, slack)
        return start - square, pure, slacks - slack, failures

    def _commit(self, totals: tuple[Units, ...]) -> None:
        if totals[0] > self._start(totals):  # by basic composition, from now on
            totals = (inf, *totals[1:])
        super()._commit(totals)


def _pure(mechanism: mechanisms.Mechanism) -> Units:
    try:
        return up(approximate.cost(mechanism)[0])
    except Unsupported:
        return inf


def _leaves(mechanism: mechanisms.Mechanism) -> Iterator[tuple[mechanisms.Mechanism, int]]:
    """The rounds in their order, as (mechanism, how often)."""
    match mechanism:
        case mechanisms.Repeated():
            inner = list(_leaves(mechanism.mechanism))
            if len(inner) > 1:
                for _ in range(mechanism.count):
                    yield from inner
            elif inner and mechanism.count:
                yield inner[0][0], inner[0][1] * mechanism.count
        case mechanisms.Composed():
            for part in mechanism.mechanisms:
                yield from _leaves(part)
        case mechanisms.Mechanism():
            yield mechanism, 1
        case _:
            raise ArgumentError(f"mechanism={mechanism!r} must be a mechanism")


def _run(mechanism: mechanisms.Mechanism, count: int, square: Units, slack: int) -> tuple[Units, int]:
    """What is left of b squared (below 0 if it does not fit) and of the slack after a number of rounds.

    The same as one round after the other, but rounds at one grid point and with one slack are taken in one go.
    """
    exactly = residue.needs_no_slack(mechanism)
    if exactly is not None:
        return square - count * exactly, slack
    size = up(residue.size(mechanism))
    while count and square >= 0:
        left = int(square)
        each = _slack(size, left, slack)
        cost = residue.cost(mechanism, square=left, slack=each) if each <= slack else inf
        if cost == inf:
            return -inf, slack
        cost = int(cost)
        most = min(count, (left - residue.grid(residue.level(left))) // cost + 1, slack // each)
        times = _last(size, left, cost, slack, each, most)
        square, slack, count = left - times * cost, slack - times * each, count - times
    return square, slack


def _last(size: Units, left: int, cost: int, slack: int, each: int, most: int) -> int:
    """How many rounds in a row have the same slack: what is left of one for one of the other changes one way only."""
    few, many = 1, most + 1
    while many - few > 1:
        middle = (few + many) // 2
        done = middle - 1
        if _slack(size, left - done * cost, slack - done * each) == each:
            few = middle
        else:
            many = middle
    return few


def _slack(size: Units, square: int, slack: int) -> int:
    """The slack of a round: of what is left for slack, the share that the round has in what is left of b squared."""
    share = slack if size >= square else slack * int(size) // square
    return residue.ladder(share)

"""Prices of a round for people whose accounts hold planned rounds and change, from what each gives and has left.

Names and symbols
    norm       what a person contributes to the round; rounded up to the next of the table
    context    planned rounds that are left at least; of those in the table the last that a person has
    change     here: randomised response of one step of the grid, which runs with probability SHARE
    unit       what an exchange takes of the plan; worth, the variance of its loss in change
    net        what an exchange costs: worth times the units given, less the change that comes back

A round is bought for change, or for planned rounds with change given back. Each entry is certified as a whole, as it is
sold: one made of certified parts by arithmetic is a guess until the certificate has seen it. Each purchase uses a part
of the slack that is fixed in advance, in proportion to what it takes: what all purchases of a person take adds up to at
most what there can ever be, and so do their slacks.

Source: theory 4.11; docs/proofs/planned-filter.md, section 6
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import ceil, floor
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from almoner import mechanisms
from almoner.curves import _loss_grid, _residue
from almoner.curves.planned._prices import ERRORS, Prices, no_louder
from almoner.errors import Unsupported

Bundle = Mapping[Hashable, int]

NEVER = 2**62  # a price that nobody can pay
SHARE = 1 / 16  # the probability with which a round of change runs: small contributions are paid to about one per cent
RULE = 2
"""Number of the rule that says what is sold at what price. Saved accounts name it; those of other rules are refused."""

LEVELS = (0.9, 0.7, 0.5, 0.35, 0.25, 0.15, 0.09, 0.05, 0.035, 0.02, 0.01)  # levels, as parts of the planned rounds
EXCHANGE_LEVELS, PAYMENT_LEVELS = (0.7, 0.25, 0.05), (0.25, 0.02)  # LEVELS at which single norms are searched
FINENESS = 0.005  # a search comes so near to the least price, as a part of a payment or of a planned round
STEP = 0.001  # part of a planned round by which a guess is raised until it is certified, and which it must save
LARGEST_RATIO = 1.6  # largest ratio of a payment to what the variance suggests; dearer rounds are exchanged
LARGEST_PART = 0.5  # largest part of the planned rounds that are left which one round may cost
SMALLEST_PART = 0.15  # rounds cheaper than this part of a planned round are exchanged by way of change
LEAST_LEVEL = 8  # with at most so many planned rounds left none but planned rounds are admitted
OWN, OTHERS = 0.5, 0.5  # of a plan with counts: contexts with one or this part of a kind, beside this part of others
COARSER = 2  # such a plan has few rounds, whose prices are dear to find: one norm in so many
CERTIFICATES = 4  # certificates tried for one price, beginning at what looks like the least
CHANGE, ROW = "small change", "one norm"

_BUILDING = Lock()  # of tables: all accounts of a budget share a grid, on which ROW stands for one norm at a time


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Prices of one round for many people at once. Every field is public.

    Attributes:
        norms: (k,) increasing, the first is 0. A norm is rounded up to the next; one above the last does not fit. If a
            mechanism has no sensitivity: 0 and 1, for taking part or not.
        contexts: (j, m) int64; how often each mechanism of the plan is left at least, the first 0; the last that a
            person has decides.
        given: (k, j) int64; how many times ``unit`` buys the round; NEVER where it does not.
        back: (k, j) int64; change that is given back with it.
        change: (k, j) int64; the price in change alone; NEVER where that does not buy it.
        unit: how many of each mechanism of the plan one exchange takes.
        worth: no exchange gives back more change than this for each unit.
        most: no account pays for more rounds: all units there are, and all change that they could ever become.
    """

    norms: NDArray[np.float64]
    contexts: NDArray[np.int64]
    given: NDArray[np.int64]
    back: NDArray[np.int64]
    change: NDArray[np.int64]
    unit: tuple[int, ...]
    worth: int
    most: int


def of_one_kind(norms: NDArray[np.float64], levels: NDArray[np.int64], units: NDArray[np.int64], most: int) -> Table:
    """Costs (k, j) at norms and levels of what is left, in units of which there are so many: without any change."""
    given = np.where(units < NEVER, np.maximum(units, 1), NEVER)
    given = np.concatenate([np.full((len(norms), 1), NEVER, np.int64), given], axis=1)  # nothing is left
    contexts = np.concatenate([np.zeros(1, np.int64), levels])[:, None]
    return Table(norms, contexts, given, np.zeros_like(given), np.zeros_like(given), (1,), 0, most)


@lru_cache(maxsize=64)
def table(
    prices: Prices, mechanism: mechanisms.Mechanism, place: int | None = None, start: int = 0, *, top: bool = False
) -> Table:
    """Prices of one mechanism for people who contribute less than its sensitivity.

    Args:
        prices: of the plan, without a reserve of change.
        mechanism: one round, public (no Repeated, no Composed).
        place: of a plan that is there once, the mechanism of it that is given for rounds; public.
        start: the change that each account has at the start, public.
        top: give the prices of the largest norm alone, which are those of the whole table and found first.

    Returns:
        A table, built in seconds and remembered. 64 norms down to 1/32 of the sensitivity, 4 % apart above a quarter of
        it and 9 % apart below.

    Guarantee: an account that starts with the planned rounds of ``prices`` and ``start`` change, and gives for every
        round what some table says for a norm not below the person's and a context not above what is left, is
        (epsilon, delta)-DP at every stopping time.
    Source: theory 4.11, 4.12; docs/proofs/planned-filter.md, sections 6 and 7.

    Raises:
        Unsupported: the mechanism has no privacy loss distribution here, or there is a reserve.
    """
    if prices.change and place is None:
        raise Unsupported("accounts per person hold no reserve of change: make filters.Planned with reserve=0")
    with _BUILDING:
        norms, rows = _residue.norms_of(mechanism), _Rows(prices, mechanism, place, start)
        single, norms = len(norms) == 1, norms if place is None else norms[::-COARSER][::-1]
        norms = norms[-1:] if top else norms
        by_norm = [rows.prices_at(None if single else norm) for norm in reversed(norms)]  # the dearest first
        nothing = [0] * len(rows.contexts)
        net: NDArray[np.int64] = np.array([nothing, *(one for one, _ in reversed(by_norm))], np.int64)
        change: NDArray[np.int64] = np.array([nothing, *(one for _, one in reversed(by_norm))], np.int64)
        given = np.where(net < NEVER, -(-net // rows.worth), NEVER)
        back = np.where(net < NEVER, np.minimum(given, NEVER // rows.worth) * rows.worth - net, 0)
        contexts = np.array(rows.contexts, np.int64)
        return Table(np.array([0.0, *norms]), contexts, given, back, change, rows.unit, rows.worth, rows.most)


def worths(prices: Prices) -> tuple[int, ...]:
    """The most change that any exchange gives back for each mechanism of the plan."""
    return tuple([max(1, floor(prices.size(one) / SHARE)) for one, _ in prices.plan])


def sellers(prices: Prices, mechanism: mechanisms.Mechanism) -> list[int]:
    """Places of a plan that is there once whose rounds are given: the own kind, and the largest variance of others."""
    worth = [count * one for (_, count), one in zip(prices.plan, worths(prices), strict=True)]
    nearest = _nearest(prices, mechanism)
    others = [place for place in range(len(worth)) if place != nearest]
    largest = max(others, key=worth.__getitem__, default=None)
    return [place for place in (nearest, largest) if place is not None]


def _nearest(prices: Prices, mechanism: mechanisms.Mechanism) -> int | None:
    """Place of the cheapest mechanism of the plan of which a round is a smaller one; None where there is none."""
    same = [place for place, (one, _) in enumerate(prices.plan) if _same_kind(one, mechanism)]
    same = [place for place in same if _serves(prices.plan[place][0], mechanism)] or same
    return min(same, key=worths(prices).__getitem__, default=None)


def delta(prices: Prices, left: Sequence[int], change: int, epsilon: float) -> float:
    """Bound delta at an epsilon for so many of each mechanism of the plan and so much change of people.

    Guarantee: not below the delta of their composition, in either direction.
    Source: docs/proofs/planned-filter.md, sections 4 and 7.
    """
    return _known(prices).delta({**_as_bundle(prices, left), CHANGE: change}, epsilon)


@lru_cache(maxsize=64)
def opening(prices: Prices, epsilon: float) -> int:
    """Change beside a plan that is there once, with which accounts of people start.

    Guarantee: the plan and so much change have a delta at epsilon of at most what the slack leaves of it.
    Source: docs/proofs/planned-filter.md, section 7.
    """
    target = prices.all_slack / prices.slack * (1 - prices.slack) * (1 - 1.001 * ERRORS)
    most, counts, grid = ceil(1.02 * prices.change / SHARE), [count for _, count in prices.plan], _known(prices)

    def fits(less: int, surely: bool) -> bool:
        held = {**_as_bundle(prices, counts), CHANGE: most - less}
        return grid.promised(held, epsilon) and (grid.delta if surely else grid.rough_delta)(held, epsilon) <= target

    less = _near_least(fits, -1, most // 50, most, most / 2000) if most else None
    return most - less if less is not None else 0


def _known(prices: Prices) -> _loss_grid.Grid:
    """The grid of prices, on which the change of people is known."""
    if CHANGE not in prices.grid:
        prices.grid.add(CHANGE, _loss_grid.change(prices.grid.step, SHARE))
    return prices.grid


def _as_bundle(prices: Prices, counts: Sequence[int]) -> dict[Hashable, int]:
    return {one: count for (one, _), count in zip(prices.plan, counts, strict=True) if count}


def _same_kind(planned: mechanisms.Mechanism, mechanism: mechanisms.Mechanism) -> bool:
    """True if two rounds differ in noise and sensitivity at most."""
    match planned, mechanism:
        case mechanisms.SampledGaussian(sample_rate=one), mechanisms.SampledGaussian(sample_rate=other):
            return one == other
        case (mechanisms.Gaussian(), mechanisms.Gaussian()) | (mechanisms.Laplace(), mechanisms.Laplace()):
            return True
        case (mechanisms.Pure() | mechanisms.RandomizedResponse(), mechanisms.Pure() | mechanisms.RandomizedResponse()):
            return True
    return planned == mechanism


def _serves(planned: mechanisms.Mechanism, mechanism: mechanisms.Mechanism) -> bool:
    """True if a planned round is at least as easy to tell apart."""
    return planned == mechanism or no_louder(mechanism, planned)


Holds = Callable[[int, bool], bool]  # true if a price is enough: certainly (True), or only as far as a quick look tells


def _near_least(holds: Holds, low: int, guess: int, most: int, near: float) -> int | None:
    """A number up to ``most`` that is certainly enough, about ``near`` above the least; None if none is found.

    The search takes quick looks, and certifies what it has found.
    """
    if most <= low:
        return None
    high, step = min(max(guess, low + 1), most), max(1, floor(2 * near))
    while not holds(high, False):
        if high >= most:
            return None
        low, high, step = high, min(most, high + step), 2 * step
    while high - low > max(1.0, near):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle, False) else (middle, high)
    for _ in range(CERTIFICATES):
        if high <= most and holds(high, True):
            return high
        high += max(1, floor(near))
    return most if holds(most, True) else None


class _Rows:
    """Prices norm by norm, decreasing. A search proves nothing; what ``Grid.covers`` says yes to is in the table."""

    def __init__(self, prices: Prices, mechanism: mechanisms.Mechanism, place: int | None, start: int) -> None:
        self._prices, self._mechanism, self._place = prices, mechanism, place
        self._counts, each = [count for _, count in prices.plan], worths(prices)
        nearest = _nearest(prices, mechanism) if place is None else place
        self.unit = tuple(self._counts) if nearest is None else tuple(int(at == nearest) for at in range(len(each)))
        self.worth = sum(one * count for one, count in zip(each, self.unit, strict=True))
        self._planned = None if nearest is None else prices.plan[nearest][0]
        worth = sum(one * count for one, count in zip(each, self._counts, strict=True))
        self._all_change = start + prices.rounds * worth
        self._all_units = prices.rounds * sum(self._counts)  # of single mechanisms
        self.most = self._all_units + self._all_change
        self._grid = _known(prices)
        if not self._all_change * self._grid.error(CHANGE) <= 0.9 * ERRORS:  # see the proof
            raise Unsupported(f"plan={prices.plan!r} could become more change than is proven right: plan fewer rounds")
        self._overhead, self._size, self._smaller = 0.0, 0.0, 0.0  # of the norm at hand; by how much it is smaller
        self._rounds = prices.rounds if place is None else self._counts[place]
        self.contexts = [(0,) * len(each), *self._contexts(each)]
        self._converted = self._conversions()
        self._net, self._payment = [NEVER] * len(self.contexts), [NEVER] * len(self.contexts)
        self._ratios: dict[int, float] = {}

    def _contexts(self, each: Sequence[int]) -> list[tuple[int, ...]]:
        """Increasing in what they are worth; of a plan that is there once, of one kind and of the others."""
        levels = {floor(part * self._rounds) for part in LEVELS if part * self._rounds >= LEAST_LEVEL + 1}
        if self._place is None:
            return [tuple(level * count for count in self._counts) for level in sorted(levels)]
        beside = {*product(levels, (0.0,)), *product({1, ceil(OWN * self._rounds)}, (OTHERS,))}
        found = {
            tuple(own if at == self._place else floor(part * count) for at, count in enumerate(self._counts))
            for own, part in beside
        }
        return sorted(found, key=lambda one: sum(count * worth for count, worth in zip(one, each, strict=True)))

    def _above(self, column: int) -> list[int]:
        """Columns at which a price of this one is valid: nothing of its context is missing there."""
        least = self.contexts[column]
        return [at for at, one in enumerate(self.contexts) if all(map(int.__ge__, one, least))]

    def _from(self, prices: list[int], column: int, price: int) -> list[int]:
        """Carry a price to all contexts with more."""
        above = self._above(column)
        return [min(each, price) if at in above else each for at, each in enumerate(prices)]

    def prices_at(self, norm: float | None) -> tuple[list[int], list[int]]:
        """(net, payment) beside every context, for the next smaller norm."""
        round_ = self._mechanism if norm is None else replace(self._mechanism, sensitivity=norm)  # type: ignore[type-var]
        self._look_at(round_)
        net, payment = self._net, self._payment
        if self._planned is not None and _serves(self._planned, round_):
            net = [min(each, self.worth) for each in net]
        for column in range(1, len(self.contexts)):
            if self._looked_at(column, PAYMENT_LEVELS):
                payment = self._from(payment, column, self._payment_at(column, payment[column]))
        for column in range(1, len(self.contexts)):
            if column in self._converted and payment[column] < NEVER:
                guess = self._by_way_of_change(column, payment[column])
                net = self._from(net, column, self._exchange_near(column, guess, net[column]))
            if self._looked_at(column, EXCHANGE_LEVELS) and self._size > SMALLEST_PART * self.worth:
                net = self._from(net, column, self._exchange_at(column, net[column]))
        self._grid.remove(ROW)
        self._net, self._payment = net, payment
        return net, payment

    def _looked_at(self, column: int, parts: tuple[float, ...]) -> bool:
        others = (at for at in range(1, len(self.contexts)) if at != column)
        if self._place is not None and not any(column in self._above(at) for at in others):
            return True  # nothing has less
        return self._level(column) in {floor(part * self._rounds) for part in parts}

    def _level(self, column: int) -> int:
        """Units of a context, in whole planned rounds or in rounds of the kind that is given."""
        counts = self._counts if self._place is None else self.unit
        return min(left // count for left, count in zip(self.contexts[column], counts, strict=True) if count)

    def _look_at(self, round_: mechanisms.Mechanism) -> None:
        laws = _loss_grid.laws(round_, self._grid.step, 1e-3 * self._prices.cut)
        self._grid.add(ROW, laws)
        size = _loss_grid.spread(laws[0], self._grid.step) ** 2 / self._grid.step**2 / SHARE
        self._size, self._smaller = size, max(self._size - size, 0.0)
        self._overhead = 1.001 * self._grid.error(ROW) / ERRORS * self._prices.all_slack

    def _payment_at(self, column: int, bound: int) -> int:
        """The least payment found beside a context, below a bound that is a payment already."""
        ratio = self._ratios.get(column, LARGEST_RATIO)
        least = ceil(4 * self._overhead * self._all_change / self._prices.all_slack)
        most = min(bound, ceil(LARGEST_RATIO * self._size) + least, 64 * self.worth)
        low = floor(max(least, 0.99 * self._size if ratio == LARGEST_RATIO else (0.5 + 0.5 * ratio) * self._size))

        def pays(change: int, surely: bool) -> bool:
            slack = self._prices.all_slack / 2 * change / self._all_change - self._overhead
            return self._covers({ROW: 1}, {CHANGE: change}, self._bundle(column), slack, surely)

        price = _near_least(pays, low, ceil(ratio * self._size), most, 1.5 * FINENESS * self._size)
        if price is None:
            return NEVER
        self._ratios[column] = price / self._size
        return price

    def _exchange_at(self, column: int, bound: int) -> int:
        """The least net price found; a bound that is a net price already is improved only if it is worth while."""
        fine = FINENESS * self.worth
        most = min(bound - 2 * ceil(fine), self._largest_net(column))
        low = floor(max(self._size, bound - 1.3 * self._smaller - 3 * fine) if bound < NEVER else self._size)

        def exchanges(net: int, surely: bool) -> bool:
            return self._exchanges(column, net, surely)

        guess = most if bound < NEVER else ceil(1.1 * self._size)
        if bound < NEVER and not exchanges(most, False):
            return NEVER
        price = _near_least(exchanges, low, guess, most, 3 * fine)
        return NEVER if price is None else price

    def _exchange_near(self, column: int, guess: int, bound: int) -> int:
        """The first net price from a guess upwards that is certified, if it is worth while."""
        step = ceil(STEP * self.worth)
        tried = range(guess, min(bound - step, self._largest_net(column)) + 1, step)[:CERTIFICATES]
        certain = (net for net in tried if all(self._exchanges(column, net, surely) for surely in (False, True)))
        return next(certain, NEVER)

    def _by_way_of_change(self, column: int, payment: int) -> int:
        """About the net price of as many units as become so much change: where a search begins, and no bound."""
        units = -(-payment // self._converted[column])
        return units * (self.worth - self._converted[column]) + payment

    def _largest_net(self, column: int) -> int:
        return max(1, floor(LARGEST_PART * self._level(column))) * self.worth

    def _exchanges(self, column: int, net: int, surely: bool) -> bool:
        """Tell whether the units that a net price stands for buy the round and the change given back, all at once."""
        given = -(-net // self.worth)
        taken = [given * count for count in self.unit]
        slack = self._prices.all_slack / 2 * sum(taken) / self._all_units - self._overhead
        less: Bundle = {ROW: 1, CHANGE: given * self.worth - net}
        return self._covers(less, _as_bundle(self._prices, taken), self._bundle(column, taken), slack, surely)

    def _conversions(self) -> dict[int, int]:
        """About the most change for one unit beside what is left of a context: where a search begins."""
        converted: dict[int, int] = {}
        slack, unit = self._prices.all_slack / 2 * sum(self.unit) / self._all_units, _as_bundle(self._prices, self.unit)
        for column in reversed(range(1, len(self.contexts))):
            above = [at for at in self._above(column) if at != column]
            if not all(at in converted for at in above):
                continue

            def converts(lost: int, _surely: bool, column: int = column) -> bool:
                less: Bundle = {CHANGE: self.worth - lost}
                return self._covers(less, unit, self._bundle(column, self.unit), slack, False)

            lost = max((self.worth - converted[at] for at in above), default=self.worth // 50)
            least = _near_least(converts, lost, lost + lost // 8, self.worth - 1, FINENESS * self.worth)
            if least is not None:
                converted[column] = self.worth - least
        return converted

    def _covers(self, less: Bundle, more: Bundle, context: Bundle | None, slack: float, surely: bool) -> bool:
        if context is None or not slack > 0:
            return False
        grid = self._grid
        return (grid.covers if surely else grid.seems_to_cover)(less, more, context, self._prices.spare(slack))

    def _bundle(self, column: int, less: Sequence[int] | None = None) -> Bundle | None:
        """A context, less what is given of it; None where that is more than there is."""
        taken = (0,) * len(self._counts) if less is None else less
        left = [have - one for have, one in zip(self.contexts[column], taken, strict=True)]
        return _as_bundle(self._prices, left) if min(left) >= 0 else None

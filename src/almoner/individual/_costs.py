"""Prices of a round for people, in units, from what each contributes.

Costs take a block of private contributions (n,), with what each person has spent (n, m), and give (cost, known): (n, m)
int64 units, rounded up, and (n,) whether the contribution is known. NaN, negative contributions and those above the
promise are not known: such a person is out, as if the cost were infinite. Nothing contributed costs nothing.

Of accounts that hold planned rounds and change, cost has how many of each mechanism of the plan, change paid and change
got; all of them grow. ``charge_all`` charges powers of the norm in one pass over NumPy arrays, without large
temporaries: ten million accounts take a few times as long as adding two arrays. A test holds it against the rest.

Source: theory 2.1 (a person's own norm in place of the sensitivity), 2.8, 4.8, 4.11, 5.1;
    docs/proofs/residue-filter.md; docs/proofs/planned-filter.md, sections 6 and 7
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from math import inf, nextafter, sqrt
from os import cpu_count
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from almoner import mechanisms
from almoner._arrays import NUMPY, Array, Library, Mask
from almoner._notions import Notion, Planned
from almoner._units import RANGE, Units
from almoner.curves.planned import _table as planned_table
from almoner.errors import ArgumentError, Unsupported

_GRID = 512  # norms in a table; each rounded up to the next: at most 1.1 % in the norm
_SPAN = 256.0  # from sensitivity / _SPAN to sensitivity
_LEAST = 1e-60  # of a norm in a table: mechanisms refuse smaller sensitivities
_MOST = 10**180  # units at the sensitivity, which is 1e-60 or more: the factor still fits a float
TINY = 1e-150  # no square that a cost is made of is below the square of this: it would vanish


def at_least(smallest: float, norms: Array, xp: Library) -> Array:
    """Contributions between 0 and the smallest that is told apart as that one; 0 stays 0, and NaN stays NaN."""
    return xp.where((norms > 0) & (norms < smallest), smallest, norms)


@dataclass(frozen=True, slots=True)
class Power:
    """cost = factor * norm**power, exactly ``full`` at the sensitivity; the norm itself for Laplace in pure budgets.

    A full price of RANGE stands for all that are larger; the factor is that of the price itself.
    """

    full: tuple[int, ...]
    factor: tuple[float, ...]
    sensitivity: float
    power: int = 2

    @property
    def smallest(self) -> float:
        """Smaller contributions, but for 0, are rounded up to this, lest their costs vanish."""
        least = min(self.factor)
        return min(max(TINY, TINY / (sqrt(least) if self.power == 2 else least)), self.sensitivity)

    @property
    def grid(self) -> NDArray[np.float64]:
        """1,025 contributions up to the sensitivity."""
        return np.linspace(0.0, self.sensitivity, 1025)

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:  # noqa: ARG002 - Costs has it
        known = (given >= 0) & (given <= self.sensitivity)
        safe = at_least(self.smallest, xp.where(known, given, self.sensitivity), xp)
        factor = xp.asarray(self.factor, dtype=xp.float64, device=given.device)
        full = xp.asarray(self.full, dtype=xp.int64, device=given.device)
        top = xp.astype(full, xp.float64)
        # rounded up three times over; never above the full price, which is a bound for all
        powers = safe * safe if self.power == 2 else safe
        cost = xp.minimum(xp.ceil(powers[:, None] * factor), top)
        return xp.where(cost >= top, full, xp.astype(cost, xp.int64)), known

    def allowance(self, left: Array, xp: Library) -> Array | None:
        power = xp.astype(left, xp.float64) / self.factor[0]
        root = (xp.sqrt(power) if self.power == 2 else power) * (1 - 1e-15)
        return xp.where(left >= self.full[0], self.sensitivity, xp.where(root < self.sensitivity, root, 0.0))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Costs at a grid of norms; a norm is rounded up to the next on the grid."""

    grid: NDArray[np.float64]  # (k,) increasing, the first is 0
    units: NDArray[np.int64]  # (k, m)
    sensitivity: float
    full: None = None

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:  # noqa: ARG002 - Costs has it
        known = (given >= 0) & (given <= self.sensitivity)
        place = xp.searchsorted(xp.asarray(self.grid, device=given.device), xp.where(known, given, 0.0))
        return xp.take(xp.asarray(self.units, device=given.device), place, axis=0), known

    def allowance(self, left: Array, xp: Library) -> Array | None:
        costs = xp.asarray(np.ascontiguousarray(self.units[:, 0]), device=left.device)
        return xp.take(xp.asarray(self.grid, device=left.device), xp.searchsorted(costs, left, side="right") - 1)


@dataclass(frozen=True, slots=True)
class TakingPart:
    """The full price for each person who takes part: mechanisms without a sensitivity."""

    full: tuple[int, ...]
    sensitivity: None = None

    @property
    def grid(self) -> NDArray[np.float64]:
        return np.array([0.0, 1.0])

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:  # noqa: ARG002 - Costs has it
        full = xp.asarray(self.full, dtype=xp.int64, device=given.device)
        return xp.where(given[:, None], full, xp.zeros_like(full)), xp.ones_like(given)

    def allowance(self, left: Array, xp: Library) -> Array | None:  # noqa: ARG002 - Costs has it
        return None


@dataclass(slots=True)
class _Left:
    """Remainders of some people, and what they have paid; changed in place, round by round."""

    mechanisms: list[Array]
    change: Array
    paid: Array
    got: Array
    todo: Array


@dataclass(frozen=True, slots=True)
class _Prices:
    """Prices at each person's norm and context."""

    context: list[Array]  # valid while so many are left
    given: list[Array]
    back: Array
    change: Array
    sold: Mask  # for planned rounds that are there
    paid: Mask  # for change

    def or_else(self, other: "_Prices", stuck: Mask, xp: Library) -> "_Prices":
        """Prices of the other for those who are stuck at these; valid until either context changes."""

        def chosen(one: Any, two: Any) -> Any:
            return xp.where(stuck, two, one)

        return _Prices(
            list(map(xp.maximum, self.context, other.context)),
            list(map(chosen, self.given, other.given)),
            *(chosen(getattr(self, part), getattr(other, part)) for part in ("back", "change", "sold", "paid")),
        )


@dataclass(frozen=True, slots=True, eq=False)
class FromPlan:
    """Prices on a grid of norms and of planned rounds that are left; norms are rounded up, what is left down.

    Whoever has the price in change pays in change; anybody else exchanges planned rounds, or, where these are too few,
    looks at the next table. Tables are built when somebody looks at them; ``top`` has the largest norm alone.
    """

    top: planned_table.Table
    tables: tuple[Callable[..., planned_table.Table], ...]
    start: tuple[int, ...]  # how often each mechanism is there at the start, and change
    times: int  # rounds one after the other
    sensitivity: float | None
    full: None = None

    @property
    def grid(self) -> NDArray[np.float64]:
        return self.tables[0]().norms

    def __call__(self, given: Array, spent: Array, xp: Library) -> tuple[Array, Mask]:
        """RANGE for a person who cannot pay for all rounds."""
        cost, done, known = self.rounds(given, spent, xp.zeros_like(spent[:, 0]) + self.times, xp)
        return xp.where((known & (done < self.times))[:, None], RANGE, cost), known

    def rounds(self, given: Array, spent: Array, asked: Array, xp: Library) -> tuple[Array, Array, Mask]:
        """Cost of the rounds that each can pay for, of (n,) one after the other; their number; and known."""
        norms, most = xp.astype(given, xp.float64, copy=False), float(self.top.norms[-1])
        known = (norms >= 0) & (norms <= most)
        own = self.top if bool(xp.all(~known | (norms == 0) | (norms == most))) else self.tables[0]()
        row = xp.searchsorted(xp.asarray(own.norms, device=given.device), xp.where(known, norms, 0.0))
        *counts, start = self.start
        nothing, columns, limit = xp.zeros_like(spent[:, 0]), len(counts), self.top.most + 1
        todo = xp.where(known & (row > 0), xp.where(asked < limit, asked, limit), 0)
        undone = xp.where(known & (row == 0), 0, asked - todo)
        mine = [count - spent[:, column] for column, count in enumerate(counts)]
        changed = spent.shape[1] > columns  # an account of one number holds no change
        change = start + spent[:, columns + 1] - spent[:, columns] if changed else nothing
        left = _Left(mine, change, nothing, nothing, todo)
        while bool(xp.any(left.todo > 0)):  # rounds with the same price are paid in one go
            prices, once = self._prices(own, row, left, xp), xp.zeros_like(known)
            for table in self.tables[1:]:
                stuck = (left.todo > 0) & ~prices.sold & ~(prices.paid & (left.change >= prices.change))
                if bool(xp.any(stuck)):
                    once = once | (stuck & prices.paid)  # the change that comes back may pay by the table before
                    other = table(top=True) if own is self.top else table()
                    prices = prices.or_else(self._prices(other, row, left, xp), stuck, xp)
            # as many rounds as the change that each person has pays for
            runs = xp.where(prices.paid, xp.minimum(left.change // prices.change, left.todo), 0)
            left.change, left.paid = left.change - runs * prices.change, left.paid + runs * prices.change
            left.todo = left.todo - runs
            undone = undone + self._exchange(left, prices, once, xp)
        after = [count - one for count, one in zip(counts, left.mechanisms, strict=True)]
        used = [one - spent[:, column] for column, one in enumerate(after)]
        return xp.stack([*used, left.paid, left.got] if changed else used, axis=1), asked - undone, known

    def allowance(self, left: Array, xp: Library) -> Array | None:  # noqa: ARG002 - Costs has it
        return None

    def _prices(self, table: planned_table.Table, row: Array, left: _Left, xp: Library) -> _Prices:
        contexts, column = xp.asarray(table.contexts, device=row.device), xp.zeros_like(row)
        if len(left.mechanisms) == 1:
            column = xp.searchsorted(contexts[:, 0], left.mechanisms[0], side="right") - 1
        else:
            there = xp.stack(left.mechanisms, axis=1)
            for at in range(1, len(table.contexts)):
                column = xp.where(xp.all(there >= contexts[at, ...], axis=1), at, column)
        place, parts = row * len(table.contexts) + column, (table.given, table.back, table.change)
        units, back, change = (xp.take(xp.asarray(part.ravel(), device=row.device), place) for part in parts)
        sold, paid = (units > 0) & (units < planned_table.NEVER), (change > 0) & (change < planned_table.NEVER)
        given = [xp.where(sold, units, 1) * each for each in table.unit]
        for one, many in zip(left.mechanisms, given, strict=True):
            sold = sold & (one >= many)
        least = [xp.take(contexts[:, at], column) for at in range(len(given))]
        return _Prices(least, given, back, xp.where(paid, change, 1), sold, paid)

    def _exchange(self, left: _Left, prices: _Prices, once: Mask, xp: Library) -> Array:
        """Exchange until the context changes, with what change pays for in between; the rounds that are lost."""
        price, back = prices.change, prices.back
        # times t with t + (change + (t - 1) back) // price <= todo, where change is below the price; at this price
        # nobody pays for more rounds than all change buys and all units do, and no product overflows
        payable = (xp.zeros_like(price) + self.top.most) // price + sum(self.start[:-1]) + 1
        todo = xp.minimum(left.todo, payable)
        last = -(-((todo + 1) * price - left.change + back) // (price + back)) - 1
        times = xp.where(prices.paid, last, left.todo)
        for one, taken, least in zip(left.mechanisms, prices.given, prices.context, strict=True):
            each = xp.where(taken > 0, taken, 1)
            most = xp.minimum(one // each, (one - least) // each + 1)
            times = xp.where(taken > 0, xp.minimum(times, most), times)
        times = xp.where(prices.sold & (left.todo > 0), xp.where(once & (times > 1), 1, times), 0)
        lost: Mask = (left.todo > 0) & (times <= 0)
        times = xp.where(lost, 0, times)
        runs = xp.where(prices.paid & (times > 0), (left.change + (times - 1) * back) // price, 0)
        left.mechanisms = [one - times * taken for one, taken in zip(left.mechanisms, prices.given, strict=True)]
        left.got, left.paid = left.got + times * back, left.paid + runs * price
        left.change = left.change + times * back - runs * price
        undone = xp.where(lost, left.todo, 0)
        left.todo = left.todo - undone - times - runs
        return undone


Costs: TypeAlias = Power | Table | TakingPart | FromPlan
"""Prices of one step for people.

``sensitivity`` is the largest contribution, None where contributions are bools, who takes part; ``full`` its exact
cost, None where that is not one number; ``grid`` (k,) increasing contributions, the first is 0, among which an
allowance is looked for; ``allowance`` the largest contribution that costs at most what is left (n,) of one total, None
where no formula gives it.
"""


def search_allowance(costs: Costs, fits: Callable[[Array], Mask], people: int, xp: Library, device: object) -> Array:
    """(people,) the largest contribution on the grid that fits, by bisection: where no formula gives the allowance."""
    values = xp.asarray(costs.grid, device=device)
    low = xp.zeros(people, dtype=xp.int64, device=device)
    high = low + len(costs.grid)
    while int(xp.max(high - low)) > 1 if people else False:
        middle = (low + high) // 2
        fitting = fits(values[middle])
        low, high = xp.where(fitting, middle, low), xp.where(fitting, high, middle)
    return values[low]


def costs_of(notion: Notion, step: mechanisms.Mechanism, most: int = 0) -> Costs:
    """Return the prices of a step; ``most``: units that each starts with, where costs depend on what is left."""
    if not isinstance(step, mechanisms.Mechanism):
        raise ArgumentError(f"step={step!r} must be a mechanism")
    leaf, count = mechanisms.repeated(step)
    if isinstance(leaf, mechanisms.Composed):
        raise Unsupported("charge the parts of a Composed one by one: each has its own norms")
    if isinstance(leaf, mechanisms.TruncatedGaussian):  # also those who contribute nothing decide who is cut
        raise Unsupported("accounts leave people out, a TruncatedGaussian is for an exact number: take SampledGaussian")
    leaf = notion.person_round(leaf)
    contributes = "sensitivity" in {field.name for field in fields(leaf)}  # type: ignore[arg-type]
    sensitivity = float(leaf.sensitivity) if contributes else None  # type: ignore[attr-defined]
    table = notion.person_table(leaf)
    if table is not None:
        if count >= RANGE:
            raise ArgumentError("a Repeated stands for too many rounds")
        if isinstance(table, planned_table.Table):
            planned = cast(Planned, notion)
            return FromPlan(table, (*planned.person_tables(leaf),), planned.person_limits()[:-1], count, sensitivity)
        levels = planned_table.of_one_kind(table.norms, table.squares, table.units, most)
        return FromPlan(levels, (lambda: levels,), (most, 0), count, sensitivity)
    prices = notion.person_price(leaf, count)
    full = _capped(prices)
    if sensitivity is None:
        return TakingPart(full)
    power = notion.person_powers.get(type(leaf))
    if power is not None:
        if not max(prices) < _MOST:
            raise ArgumentError(f"step={step!r} stands for too many rounds, or has too little noise")
        largest = Fraction(sensitivity) ** power  # of the price itself: small contributions cost less than RANGE
        # so far above that norm * norm * factor, rounded twice, is not below the exact product
        factors = tuple(nextafter(float(Fraction(units) / largest) * (1 + 2**-50), inf) for units in prices)
        return Power(full, factors, sensitivity, power)
    return _table(notion, leaf, count, sensitivity)


def _table(notion: Notion, leaf: mechanisms.Mechanism, count: int, sensitivity: float) -> Table:
    least = min(max(sensitivity / _SPAN, _LEAST), sensitivity)
    grid = np.concatenate([[0.0], np.geomspace(least, sensitivity, _GRID)])
    grid[-1] = sensitivity
    each = (replace(leaf, sensitivity=float(norm)) for norm in grid[1:])  # type: ignore[type-var]
    rows = [_capped(notion.person_price(one, count)) for one in each]
    units = np.maximum.accumulate(np.array([(0,) * len(rows[0]), *rows], np.int64), axis=0)
    return Table(grid, units, sensitivity)


def _capped(prices: tuple[Units, ...]) -> tuple[int, ...]:
    return tuple(RANGE if units >= RANGE else int(units) for units in prices)


_BITS = np.float64(2.0**52).view(np.int64)
_BLOCK = 2**18  # people at a time: the temporary arrays of a block stay in the processor's cache
_PARALLEL = 2**20  # from so many people on, several threads share the blocks (NumPy lets them run side by side)


def charge_all(
    costs: Power, most: int, spent: NDArray[np.int64], norms: NDArray[np.float64], active: NDArray[np.bool_]
) -> None:
    """Charge each person who fits: changes ``spent`` (n,) and fills ``active`` (n,)."""
    threads = min(4, cpu_count() or 1) if norms.size >= _PARALLEL else 1
    cuts = [norms.size * j // threads for j in range(threads + 1)]
    if threads == 1:
        return _charge_span(costs, most, spent, norms, active)
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(_charge_span, costs, most, spent[a:b], norms[a:b], active[a:b]) for a, b in pairwise(cuts)]
    for job in jobs:
        job.result()
    return None


def _charge_span(
    costs: Power, most: int, spent: NDArray[np.int64], norms: NDArray[np.float64], active: NDArray[np.bool_]
) -> None:
    size = min(_BLOCK, norms.size)
    real, low = np.empty(size), np.empty(size, np.bool_)
    smallest = costs.smallest
    with np.errstate(all="ignore"):  # NaN and overflow become costs of people who are not known, see below
        for start in range(0, norms.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            norm, held, fits = norms[block], spent[block], active[block]
            f, k = real[: norm.size], low[: norm.size]
            known = norm.min() >= smallest and norm.max() <= costs.sensitivity  # False where there is a NaN
            if known:
                c = _units(costs, norm, float(norm.max()), f)
            else:
                norm = cast(NDArray[np.float64], at_least(smallest, norm, NUMPY))
                np.logical_and(norm >= 0.0, norm <= costs.sensitivity, out=k)
                c = _units(costs, np.where(k, norm, costs.sensitivity), costs.sensitivity, f)
            if costs.full[0] > most:  # a person who would pay more than the budget cannot pay: no sum may overflow
                np.minimum(c, most + 1, out=c)
            np.add(held, c, out=held)
            np.less_equal(held, most, out=fits)
            if not known:
                np.logical_and(fits, k, out=fits)
            if not fits.all():  # give back to those who are out what was just added
                np.multiply(c, np.logical_not(fits, out=k), out=c)
                np.subtract(held, c, out=held)


def _units(costs: Power, norm: NDArray[np.float64], top: float, real: NDArray[np.float64]) -> NDArray[np.int64]:
    """The costs of norms in [0, top], top <= sensitivity; ``real`` is overwritten and holds the result."""
    power = norm if costs.power == 1 else np.multiply(norm, norm, out=real)
    np.multiply(power, costs.factor[0], out=real)
    np.ceil(real, out=real)
    units = real.view(np.int64)
    if costs.full[0] < 2**51:  # whole numbers below 2**52 stand in the last bits of their sum with 2**52
        np.add(real, 2.0**52, out=real)
        np.subtract(units, _BITS, out=units)
    else:
        np.minimum(real, float(costs.full[0]), out=real)  # beyond int64 there is no whole number
        np.copyto(units, real.astype(np.int64))
    # costs increase with the norm
    if np.ceil((top if costs.power == 1 else top * top) * costs.factor[0]) > costs.full[0]:
        np.minimum(units, costs.full[0], out=units)
    return units

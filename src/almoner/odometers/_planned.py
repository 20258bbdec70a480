"""Bounds that follow a plan: up to each checkpoint what the best stopping rule makes of the planned rounds.

Names and symbols
    used      how often each mechanism of the plan was run, or given for other rounds
    ahead     the checkpoint whose bound holds now, in planned rounds
    change    rounds of the smallest kind there is, which pay for rounds that are not planned
    slack     by how much comparisons of curves may fail, in FAILURE units

Beside the bounds of the plan stands a mixture over Rényi orders with a part of delta of its own, which takes every
mechanism and never ends; the smaller of the two is read.

Source: docs/proofs/planned-odometer.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, floor, gcd, inf
from typing import Self, cast

from almoner import _check, mechanisms
from almoner._arrays import NUMPY, Array, Library
from almoner._notions import STEPS, Boundary, ByRemainder, Totals, as_floats
from almoner._units import FAILURE, budget, exact
from almoner.curves import _residue, renyi
from almoner.curves.planned import Plan, _anytime, level, rounds_at
from almoner.curves.planned._anytime import Exchanges
from almoner.curves.planned._prices import no_louder
from almoner.errors import ArgumentError, Unsupported
from almoner.odometers._odometer import Odometer
from almoner.odometers._renyi import Orders, around_plan

LEAST_DELTA = 1e-300  # parts of a smaller delta would vanish
BESIDE = 0.1  # part of delta that the mixture over orders has
CONTEXT = 32  # least planned rounds between a purchase of other rounds and the checkpoint that it is made beside
PART_OF_RUN = 8  # the same as one in so many of the planned rounds that were run, if that is more
BLOCKS_IN_CONTEXT = 16  # a block takes about this part of the context at most: larger blocks have better prices


@dataclass(frozen=True)
class _Run:
    """Holdings of an account of planned rounds."""

    used: tuple[int, ...]
    ahead: int
    paid: int
    got: int
    slack: int  # spent

    def totals(self) -> Totals:
        return (*self.used, self.ahead, self.paid, self.got, self.slack)


@dataclass(frozen=True, kw_only=True)
class PlannedBound(ByRemainder, Boundary):
    """Totals: ``_Run``'s, infinite once the plan's bounds say nothing any more; then the mixture's."""

    plan: mechanisms.Mechanism
    mixture: Orders

    @cached_property
    def parts(self) -> Plan:
        """The mechanisms of one planned round, and how often each runs in it."""
        return tuple((leaf, count // self.rounds) for leaf, count in mechanisms.leaves(self.plan).items())

    @cached_property
    def rounds(self) -> int:
        return gcd(*mechanisms.leaves(self.plan).values())

    @property
    def width(self) -> int:
        return self.mixture.width

    @property
    def columns(self) -> int:
        return len(self.parts) + 4 + self.mixture.columns

    def costs(self, leaf: mechanisms.Mechanism) -> Totals:
        return self.mixture.costs(leaf)

    def bound(
        self, costs: Array, /, *, delta: float, ex_post: bool = False, steps: int = STEPS, xp: Library = NUMPY
    ) -> Array:
        """The bound of the mixture alone."""
        return self.mixture.bound(costs, delta=delta, ex_post=ex_post, steps=steps, xp=xp)

    def after(self, totals: Totals, mechanism: mechanisms.Mechanism) -> Totals:
        own, mixed = self._split(totals)
        mixed = self.mixture.after(mixed, mechanism)
        if inf in own:
            return (*own, *mixed)
        prices = self._priced(self._kept(failing=bool(mixed[self.width])))
        now: _Run | None = _Run(tuple(map(int, own[:-4])), *map(int, own[-4:]))
        for leaf, count in mechanisms.leaves(mechanism).items():
            if now is not None and count:
                now = self._charged(now, leaf, count, prices)
        return (*(now.totals() if now else (inf,) * len(own)), *mixed)

    def settle(self, mechanism: mechanisms.Mechanism, after: Totals) -> tuple[Self, Totals]:
        mixture, _ = self.mixture.settle(mechanism, self._split(after)[1])
        return replace(self, mixture=mixture, sum_delta=mixture.sum_delta), after

    def epsilon(self, totals: Totals, delta: float, *, ex_post: bool) -> float:
        """The smaller of both bounds; below the odometer's own delta that of the mixture alone."""
        _check.between(0, 1, delta=delta)
        own, mixed = self._split(totals)
        kept, alone = self._kept(failing=bool(mixed[self.width])), delta < self.delta
        failures, costs = mixed[self.width], mixed[: self.width]
        if not ex_post and failures:
            failures += mixed[-1]
            costs = tuple(map(sum, zip(costs, mixed[self.width + 1 : -1], strict=True)))
        share = kept * exact(delta) if ex_post or alone else kept * exact(self.delta) / 2
        bound = inf
        if failures <= budget(share, per=FAILURE):
            rest = self.rest(delta, kept) * (1.0 if alone else BESIDE * (1 - 2.0**-50))
            bound = float(self.bound(as_floats(costs), delta=rest, ex_post=ex_post))
        bound = bound if bound >= 0 else inf
        return bound if alone else min(bound, self._followed(own, mixed[self.width], kept, ex_post))

    def _followed(self, own: Totals, failures: float, kept: Fraction, ex_post: bool) -> float:
        """The bound of the plan; infinite where there is none any more."""
        if inf in own:
            return inf
        now = _Run(tuple(map(int, own[:-4])), *map(int, own[-4:]))
        if not any(now.totals()):
            return 0.0
        weight = 1 if ex_post else 2 * max(_anytime.FACTORS)  # what a failure is worth; pathwise, of half the share
        if failures * weight > budget(kept * exact(self.delta), per=FAILURE):
            return inf
        run = self.run(kept)
        bounds = run.ex_post if ex_post else run.pathwise
        return bounds.epsilons[run.checkpoints.index(now.ahead)]

    def run(self, kept: Fraction) -> _anytime.Run:
        """The planned run, with what is not kept for failures or for the mixture."""
        return self._priced(kept)[0]

    def _priced(self, kept: Fraction) -> tuple[_anytime.Run, Exchanges]:
        return _run(self.parts, self.rounds, self.rest(self.delta, kept) * (1 - BESIDE) * (1 - 2.0**-50))

    def _split(self, totals: Totals) -> tuple[Totals, Totals]:
        place = len(self.parts) + 4
        return totals[:place], totals[place:]

    def _charged(
        self, now: _Run, leaf: mechanisms.Mechanism, count: int, prices: tuple[_anytime.Run, Exchanges]
    ) -> _Run | None:
        """Holdings after a number of equal rounds; None where the plan's bounds end."""
        leaf = renyi.without_failures(leaf)
        try:
            alike = [place for place, (planned, _) in enumerate(self.parts) if no_louder(leaf, planned)]
            if alike:
                least = min(alike, key=lambda place: prices[1].size(self.parts[place][0]))
                used = (one + count * (place == least) for place, one in enumerate(now.used))
                return self._at_checkpoint(replace(now, used=tuple(used)), 0, prices[0])
            bought: _Run | None = now
            while bought is not None and count:
                bought, paid_for = self._bought(bought, leaf, count, prices)
                count -= paid_for
        except Unsupported:
            return None
        return bought

    def _at_checkpoint(self, now: _Run, context: int, run: _anytime.Run) -> _Run | None:
        """With the first checkpoint ahead before which so many planned rounds are left, or a later one."""
        there = self._position(now) + context
        if there > run.checkpoints[-1]:
            return None
        return replace(now, ahead=max(now.ahead, next(place for place in run.checkpoints if place >= there)))

    def _position(self, now: _Run) -> int:
        """Planned rounds that were begun, or given."""
        return max(-(-used // count) for used, (_, count) in zip(now.used, self.parts, strict=True))

    def _bought(
        self, now: _Run, leaf: mechanisms.Mechanism, count: int, prices: tuple[_anytime.Run, Exchanges]
    ) -> tuple[_Run | None, int]:
        """Holdings after some equal blocks, and the number of rounds that those are."""
        run = prices[0]
        context = max(CONTEXT, self._position(now) // PART_OF_RUN)
        while (there := self._at_checkpoint(now, context, run)) is not None:
            paid = self._in_context(there, context, leaf, count, prices)
            if paid is not None:
                return paid
            context *= 4
        last = replace(now, ahead=run.checkpoints[-1])
        left = self._left(last)
        paid = self._in_context(last, left, leaf, count, prices) if left >= 1 else None
        return paid or (None, count)

    def _left(self, now: _Run) -> int:
        """Whole planned rounds that are left before the checkpoint ahead."""
        return min((now.ahead * count - used) // count for used, (_, count) in zip(now.used, self.parts, strict=True))

    def _in_context(
        self, now: _Run, context: int, leaf: mechanisms.Mechanism, count: int, prices: tuple[_anytime.Run, Exchanges]
    ) -> tuple[_Run, int] | None:
        """Holdings, and the number of rounds, if what is left before the next checkpoint buys them; else None."""
        run, exchanges = prices
        start = floor(exact(run.slack) * FAILURE)
        change, left = now.got - now.paid, start - now.slack
        block = 1 << (min(count, max(1, context // BLOCKS_IN_CONTEXT)).bit_length() - 1)
        size = exchanges.size(leaf) * block
        ahead = (run.checkpoints[-1] - self._position(now)) * exchanges.worth + change + 1
        slack = floor(left * min(1.0, size / max(ahead, 1)) / 2)
        if slack < 1:
            return None
        slack, here = _residue.ladder(slack), level(context)
        price = exchanges.price(leaf, block, level=here, slack=slack)
        each = slack + block * exchanges.overhead(leaf, start)
        most = min(count // block, left // each)
        if price.change is not None and price.change <= change and most:
            blocks = min(most, change // price.change)
            return replace(now, paid=now.paid + blocks * price.change, slack=now.slack + blocks * each), blocks * block
        if price.rounds is None or not most:
            return None
        blocks = min(most, (self._left(now) - rounds_at(here)) // price.rounds + 1)
        if price.change is not None:  # the change that comes back buys the rest
            blocks = min(blocks, max(1, ceil((most * price.change - change) / (price.change + price.back))))
        used = tuple(one + blocks * price.rounds * often for one, (_, often) in zip(now.used, self.parts, strict=True))
        got, spent = now.got + blocks * price.back, now.slack + blocks * each
        return replace(now, used=used, got=got, slack=spent), blocks * block


class Planned(Odometer):
    """For sampled and other rounds with a plan: from the first round on near what stopping makes unavoidable.

    Promises the same as ``Renyi``, pathwise and ex-post; nothing for a plan that was chosen after seeing a result.

    While the plan is kept the ex-post promise is exhausted: a stopping rule reaches most of delta. The end of the plan
    has a third of delta for itself; its ex-post bound is a few per cent above that of rounds fixed in advance. A round
    with more noise than planned, or a smaller rate, counts as a planned one. Other rounds are bought with planned ones
    at certified prices, as in ``filters.Planned``, and move the bound to a later checkpoint. Where that does not work,
    and after the plan, the bound is that of ``Renyi``, with a tenth of delta.

    Args:
        plan: all that will probably be run, public: ``Repeated(step, steps)``, or a Repeated of a Composed (epochs).
            At most 10**6 repetitions. Rounds of it are sampled Gaussian, Gaussian, Laplace, randomised response, pure.
        delta: failure probability, public, in (0, 1); from about 1e-12 on.
        sum_delta: as of ``Renyi``.

    Each kind of bound takes seconds to compute when it is first read. At another delta below the odometer's own, the
    bound is that of ``Renyi``.

    >>> step = mechanisms.SampledGaussian(sigma=1.0, sample_rate=0.01)
    >>> odometer = Planned(mechanisms.Repeated(step, 100), delta=1e-5)
    >>> odometer.charge(mechanisms.Repeated(step, 10))
    >>> round(odometer.ex_post_epsilon(), 2)
    0.56

    Guarantee: both promises of ``Renyi``.
    Source: docs/proofs/planned-odometer.md; theory 1.5, 4.11, 6.1, 6.3.

    Raises:
        ArgumentError: the plan has no round, or more than 10**6 repetitions.
        Unsupported: a mechanism of the plan has no privacy loss distribution here.
    """

    _SAVED = ("run", "totals", "excess", "failures")
    _OTHER_UNITS = "its bounds are others here"

    def __init__(self, plan: mechanisms.Mechanism, *, delta: float, sum_delta: float | None = None) -> None:
        _check.between(0, 1, delta=delta)
        if delta < LEAST_DELTA:
            raise ArgumentError(f"delta={delta!r} must be at least {LEAST_DELTA:g}: parts of it would vanish")
        if not isinstance(plan, mechanisms.Mechanism) or not mechanisms.rounds(plan):
            raise ArgumentError(f"plan={plan!r} must be a mechanism with at least one round")
        orders, weights = around_plan(plan, delta * BESIDE)
        mixture = Orders(delta=delta, sum_delta=sum_delta, orders=orders, weights=weights)
        notion = PlannedBound(delta=delta, sum_delta=sum_delta, plan=plan, mixture=mixture)
        if any(renyi.failure(leaf) for leaf, _ in notion.parts):
            raise Unsupported(f"plan={plan!r} must be of rounds that cannot fail; others are charged beside it")
        notion.run(notion._kept(failing=False))  # a plan without privacy loss distributions is refused here
        super().__init__(notion, plan=plan, delta=delta, sum_delta=sum_delta)

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The numbers of planned rounds up to which each bound holds. Public."""
        return _anytime.checkpoints(cast(PlannedBound, self._notion).rounds)

    def _units(self, saved: Mapping[str, float] | None) -> dict[str, float]:
        """The step, in which small change is counted, and the levels of the bounds that were read, or saved."""
        notion = cast(PlannedBound, self._notion)
        run = notion.run(notion._kept(failing=False))
        names = ["step", *(name for name in ("ex_post", "pathwise") if name in vars(run))] if saved is None else saved
        known = {"step": lambda: run.step, "ex_post": lambda: run.ex_post.level, "pathwise": lambda: run.pathwise.level}
        return {name: known[name]() for name in names if name in known}

    def _saved(self) -> dict[str, list[int | float]]:
        return {"run": list(self._totals[: -self._mixture.columns]), **super()._saved()}

    def _restore(self, *parts: Totals) -> None:
        run, *rest = parts
        if len(run) != self._notion.columns - self._mixture.columns:
            raise ArgumentError("state: run must have the length that the plan implies")
        if inf not in run and run[-4] not in (0, *self.checkpoints):
            raise ArgumentError("state: run must be at a checkpoint of the plan")
        super()._restore(*rest)
        self._totals = (*run, *self._totals)

    @property
    def _mixture(self) -> Orders:
        return cast(PlannedBound, self._notion).mixture


@lru_cache(maxsize=16)
def _run(parts: Plan, rounds: int, delta: float) -> tuple[_anytime.Run, Exchanges]:
    run = _anytime.Run(parts, rounds, delta=delta)
    return run, Exchanges(run)

"""The boundaries of Whitehouse et al., with the drift that their poster leaves out.

Names and symbols
    V       the sum of epsilon squared (of mu squared, twice the sum of rho)
    drift   V/2: what the loss is expected to be at most; without it the boundaries are crossed in the long run
    r       scale of the mixture
    v0      start of the stitching, > 0, fixed in advance

Source: theory 6.6 (Corrected); Whitehouse, Ramdas, Rogers & Wu (2023), https://arxiv.org/abs/2203.05481
"""

from dataclasses import dataclass, replace
from math import inf, log
from typing import Self

from almoner import _check, mechanisms
from almoner._arrays import Array, Library
from almoner._notions import Totals
from almoner._units import to_float
from almoner.odometers import _roots
from almoner.odometers._normal import Clock, Clocked, planned, tuned

__all__ = ["Mixture", "Stitched"]


@dataclass(frozen=True, kw_only=True)
class ClosedMixture(Clock):
    """A normal mixture of one scale, in closed form."""

    scale: float

    def at_clock(self, clock: Array, *, delta: float, ex_post: bool, steps: int, xp: Library) -> Array:  # noqa: ARG002 - Clock has it
        total = clock + self.scale
        log_ratio = 0.5 * xp.log(total / self.scale) - log(2.0) - log(delta)  # > 0, as delta < 1/2
        level = log_ratio + xp.log1p(xp.exp(-log_ratio))
        return _zero_at_start(clock, clock / 2 + xp.sqrt(2.0 * total * level), xp)


@dataclass(frozen=True, kw_only=True)
class Stitches(Clock):
    """Stitched straight lines from ``start`` on; None until the first round that costs anything."""

    start: float | None

    def settle(self, mechanism: mechanisms.Mechanism, after: Totals) -> tuple[Self, Totals]:
        notion, after = super().settle(mechanism, after)
        if notion.start is not None:
            return notion, after
        costs = (self.price(leaf)[0] for leaf, _ in mechanisms.in_order(mechanism))
        first = next((cost for cost in costs if 0 < cost < inf), None)
        return (notion if first is None else replace(notion, start=to_float(first))), after

    def chosen(self) -> dict[str, float | None]:
        return {"sum_delta": self.sum_delta, "start": self.start}

    @property
    def known_in_advance(self) -> bool:
        return self.start is not None

    def at_clock(self, clock: Array, *, delta: float, ex_post: bool, steps: int, xp: Library) -> Array:  # noqa: ARG002 - Clock has it
        start = self.start or 1.0  # the clock has not moved then, or is infinite
        time = xp.where(clock > start, clock, start)
        level = xp.log(xp.log(2.0 * time / start)) + 0.72 * (log(5.2) - log(delta))
        return _zero_at_start(clock, clock / 2 + 1.7 * xp.sqrt(time * level), xp)


class Mixture(Clocked):
    """A mixture boundary in closed form, for pure, approximate and zCDP mechanisms. For comparison.

    ``epsilon()`` promises: with probability at least 1 - delta, the realised loss is at no time above the bound of its
    time. ``ex_post_epsilon()`` is the same number: the pathwise promise implies the ex-post one. Neither says that
    "the run is (bound, delta)-DP". ``odometers.Gaussian`` is smaller.

    Args:
        delta: failure probability, in (0, 1/2).
        plan: the V, or the mechanism, at whose end the bound should be small.
        sum_delta: delta'', as of ``odometers.Renyi``.

    >>> odometer = Mixture(delta=1e-6)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Pure(0.1), 100))
    >>> round(odometer.epsilon(), 3)
    6.038

    Guarantee: the pathwise promise above.
    Source: theory 6.6; Whitehouse et al. (2023), with the drift V/2 added.
    """

    def __init__(
        self, *, delta: float, plan: mechanisms.Mechanism | float = 1.0, sum_delta: float | None = None
    ) -> None:
        _check.between(0, 0.5, delta=delta)
        chosen = planned(plan)
        notion = ClosedMixture(delta=delta, sum_delta=sum_delta, scale=tuned(chosen, delta))
        super().__init__(notion, delta=delta, sum_delta=sum_delta, plan=chosen)


class Stitched(Clocked):
    """A stitched boundary in closed form, for pure, approximate and zCDP mechanisms. For comparison.

    Promises the same as ``Mixture``: ``epsilon()`` pathwise, ``ex_post_epsilon()`` the same number.

    Args:
        delta: failure probability, in (0, 1).
        start: v0, fixed in advance; by default the V of the first round that costs anything, which is known before
            there is a result (the poster's epsilon_1 squared).
        sum_delta: delta'', as of ``odometers.Renyi``.

    >>> odometer = Stitched(delta=1e-6)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Pure(0.1), 1000))
    >>> round(odometer.epsilon(), 3)
    24.504

    Guarantee: the pathwise promise of ``Mixture``.
    Source: theory 6.6; Howard et al. (2021), polynomial stitching with s = 1.4, eta = 2; Whitehouse et al. (2023), with
    the drift V/2 added.
    """

    def __init__(self, *, delta: float, start: float | None = None, sum_delta: float | None = None) -> None:
        if start is not None:
            _check.positive(start=start)
        notion = Stitches(delta=delta, sum_delta=sum_delta, start=start)
        super().__init__(notion, delta=delta, sum_delta=sum_delta, start=start)


def _zero_at_start(clock: Array, bound: Array, xp: Library) -> Array:
    return xp.where(clock == 0, 0.0, _roots.raised(bound, xp=xp))

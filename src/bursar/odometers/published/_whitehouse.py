"""The boundaries of Whitehouse et al., with the drift that their poster leaves out.

Names and symbols
    V       the sum of epsilon squared (of mu squared, twice the sum of rho)
    drift   V/2: what the loss is expected to be at most; without it the boundaries are crossed in the long run
    r       scale of the mixture
    v0      start of the stitching, > 0, fixed in advance

Source: theory 6.6 (Corrected); Whitehouse, Ramdas, Rogers & Wu (2023), https://arxiv.org/abs/2203.05481
"""

from math import log
from typing import Any

import numpy as np

from bursar import _check, mechanisms
from bursar._units import Units, to_float
from bursar.odometers import _boundary
from bursar.odometers._normal import Clocked, planned, tuned

__all__ = ["Mixture", "Stitched"]

Array = Any


class Mixture(Clocked):
    """A mixture boundary in closed form, for pure, approximate and zCDP mechanisms. For comparison.

    ``epsilon()`` promises: with probability at least 1 - delta, the realised loss is at no time above the bound of its
    time. ``ex_post_epsilon()`` is the same number: the pathwise promise implies the ex-post one. Neither says that
    "the run is (bound, delta)-DP". ``odometers.Gaussian`` is smaller.

    Args:
        delta: failure probability, in (0, 1/2).
        plan: the V, or the mechanism, at whose end the bound should be small.
        sum_delta: delta'', the part of delta kept for rounds with a delta of their own; infinite once it is used up. By
            default half if the first mechanism charged may fail, otherwise nothing.

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
        self._scale = tuned(chosen, delta)
        super().__init__(delta, sum_delta, 1, plan=chosen)

    def _at_clock(self, clock: Array, *, delta: float, ex_post: bool = False, steps: int = 60, xp: Any = np) -> Array:
        total = clock + self._scale
        level = xp.log(xp.sqrt(total / self._scale) / (2.0 * delta) + 1.0)
        return _zero_at_start(clock, clock / 2 + xp.sqrt(2.0 * total * level), xp)


class Stitched(Clocked):
    """A stitched boundary in closed form, for pure, approximate and zCDP mechanisms. For comparison.

    ``epsilon()`` promises: with probability at least 1 - delta, the realised loss is at no time above the bound of its
    time. ``ex_post_epsilon()`` is the same number: the pathwise promise implies the ex-post one. Neither says that
    "the run is (bound, delta)-DP".

    Args:
        delta: failure probability, in (0, 1).
        start: v0, fixed in advance; by default the V of the first round that costs anything, which is known before
            there is a result (the poster's epsilon_1 squared).
        sum_delta: delta'', the part of delta kept for rounds with a delta of their own; infinite once it is used up. By
            default half if the first mechanism charged may fail, otherwise nothing.

    >>> odometer = Stitched(delta=1e-6)
    >>> odometer.charge(mechanisms.Repeated(mechanisms.Pure(0.1), 1000))
    >>> round(odometer.epsilon(), 3)
    24.504

    Guarantee: the pathwise promise above.
    Source: theory 6.6; Howard et al. (2021), polynomial stitching with s = 1.4, eta = 2; Whitehouse et al. (2023), with
    the drift V/2 added.
    """

    def __init__(self, *, delta: float, start: float | None = None, sum_delta: float | None = None) -> None:
        if start is not None:
            _check.positive(start=start)
        super().__init__(delta, sum_delta, 1, start=start)

    def charge(self, mechanism: mechanisms.Mechanism) -> None:
        """Count a mechanism, before it is run; the first one that costs anything fixes ``start``, if it was not given.

        Raises:
            Unsupported: no theorem gives this mechanism a cost here. Nothing is counted: do not run it.
        """
        self._checked(mechanism)
        with self._lock:
            if self._parameters["start"] is None:
                self._parameters["start"] = self._first(mechanism)
        super().charge(mechanism)

    def _first(self, mechanism: mechanisms.Mechanism) -> float | None:
        """The V of the first round of a mechanism that costs anything; None if none does."""
        match mechanism:
            case mechanisms.Repeated():
                return self._first(mechanism.mechanism) if mechanism.count else None
            case mechanisms.Composed():
                return next((v for part in mechanism.mechanisms if (v := self._first(part)) is not None), None)
        units: Units = self._checked(mechanism)[0].costs[0]
        return to_float(units) if 0 < units < float("inf") else None

    def _at_clock(self, clock: Array, *, delta: float, ex_post: bool = False, steps: int = 60, xp: Any = np) -> Array:
        start = self._parameters["start"] or 1.0  # the clock has not moved then, or is infinite
        time = xp.where(clock > start, clock, start)
        level = xp.log(xp.log(2.0 * time / start)) + 0.72 * log(5.2 / delta)
        return _zero_at_start(clock, clock / 2 + 1.7 * xp.sqrt(time * level), xp)


def _zero_at_start(clock: Array, bound: Array, xp: Any) -> Array:
    return xp.where(clock == 0, 0.0, _boundary.raised(bound, xp=xp))

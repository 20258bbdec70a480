"""Estimate how many rounds of a plan fit a budget, and where their losses lie: no bounds, for the choice of a grid.

Names and symbols
    plan      the mechanisms of one planned round, and how often each runs in it
    tilts     t > 0 of Chernoff's inequality: P[loss > x] <= exp(log E exp(t loss) - t x)
    outside   mass that may lie beyond the ends
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import ndtri

from almoner import mechanisms
from almoner.curves._grid.laws import Law as Points
from almoner.curves._grid.laws import law, tilted
from almoner.curves._grid.tilted import Kind, composition, tilt_at, tilt_where
from almoner.curves._loss_grid import Spectrum, power
from almoner.errors import Unsupported

Floats = NDArray[np.float64]
Plan = Sequence[tuple[mechanisms.Mechanism, int]]

_SIZES = 2**12, 2**14  # sizes of the grid, at first and for the result
_TILTS = np.geomspace(0.02, 4000.0, 40)  # tilts of Chernoff's inequality that are tried
_NEGLIGIBLE = 60.0  # minus the logarithm of the size of a Fourier coefficient that does not matter
_PLACES = (2**12, 20), (2**16, 200)  # places of the lattices of the estimate under a tilt, and how near each comes
_RARE, _NEVER, _PARTS = -3.0, -40.0, (0.9, 0.8, 0.65, 0.5)  # a kernel's mean at which these parts of a tilt are tried
_BELOW = 30.0  # minus the logarithm of the slack that is enough below the window, under a tilt
_LARGEST = 400.0  # largest product of a tilt and a loss
_FAR = 3.0  # minus the logarithm of a part of delta that is far below it
_TURNS = 4  # times that a tilt is made to suit its window
_LEAST_DELTA = 1e-12  # smaller deltas are below double precision; this one is used instead, and gives more rounds


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """About how many planned rounds fit, and where their losses lie. No bounds.

    Attributes:
        rounds: at least 0.
        ends: losses between which so many rounds lie, and two more.
        tilts: the tilts that show it, and some around them.
        under: the tilt of each direction under which the losses are counted; 0 is none.
    """

    rounds: int
    ends: tuple[float, float]
    tilts: tuple[float, ...]
    sides: tuple["_Side", "_Side"]
    under: tuple[float, float] = (0.0, 0.0)

    def widened(self, step: float) -> float:
        """By which factor a grid of this step raises the variance of the loss."""
        return max(side.widened(step) for side in self.sides)


class _Side:
    """One direction of one planned round."""

    def __init__(self, parts: Sequence[tuple[Points, int]]) -> None:
        self.parts = parts
        self.variance = sum(count * one.variance for one, count in parts)
        if (t := parts[0][0].tilt if parts else 0.0) > 0:  # of a normal loss with this scale
            self.variance = 2 * sum(count * one.scale for one, count in parts) / (t * (1 + t))
        self.up, self.down = (sum(count * _moments(one, sign) for one, count in parts) for sign in (1, -1))

    def ends(self, most: int, outside: float) -> tuple[float, float, set[float]]:
        """Losses between which any number of rounds up to ``most`` lies, and the tilts that show it."""
        numbers = np.unique(most // 2 ** np.arange(most.bit_length()))[:, None]
        below, above = ((numbers * logs - log(outside)) / _TILTS for logs in (self.down, self.up))
        tilts = {float(_TILTS[place]) for each in (below, above) for place in np.argmin(each, axis=1)[::-2]}
        return -float(below.min(axis=1).max()), float(above.min(axis=1).max()), tilts

    def widened(self, step: float) -> float:
        """By which factor a grid of this step raises the variance."""
        shares = [(one.masses, one.losses / step % 1.0, count) for one, count in self.parts]
        added = step**2 * sum(count * float(masses @ (share * (1 - share))) for masses, share, count in shares)
        return 1 + added / max(self.variance, 1e-60)

    def delta(self, step: float, low: int, size: int, epsilon: float) -> Callable[[int], float]:
        """For a grid: the delta of a number of rounds."""
        spectrum: Spectrum = np.ones(size // 2 + 1, np.complex128)
        for one, count in self.parts:
            spectrum = spectrum * power(fft.rfft(_folded(one, step, size)), count)
        excess = -np.expm1(np.minimum(epsilon - step * (low + np.arange(size)), 0.0))
        factors = np.conj(fft.rfft(np.roll(excess, low))) * (2 / size)
        factors[[0, -1]] /= 2
        logs = np.log(np.maximum(np.abs(spectrum), 1e-300))

        def value(rounds: int) -> float:
            live = int(np.flatnonzero(logs >= -_NEGLIGIBLE / max(rounds, 1))[-1]) + 1
            return float((power(spectrum[:live], rounds) * factors[:live]).real.sum())

        return value

    def under(self, tilt: float) -> "_Side":
        each = [(tilted(one, tilt), count) for one, count in self.parts]
        return _Side([(one, count) for one, count in each if isinstance(one, Points)])

    def without_ends(self, cut: float) -> "_Side":
        """Return the law without its largest losses, up to a mass of cut each, and with the least ones made larger."""
        return _Side([(_without_ends(one, cut), count) for one, count in self.parts])


def _moments(one: Points, sign: int) -> Floats:
    """Log E exp(sign * tilt * loss) for every tilt."""
    exponents = sign * _TILTS[:, None] * one.losses + np.log(one.masses)
    top = exponents.max(axis=1)
    return np.asarray(top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)))


def _without_ends(one: Points, cut: float) -> Points:
    order = np.argsort(one.losses)
    losses, masses = one.losses[order], one.masses[order]
    below = min(int(np.searchsorted(np.cumsum(masses), cut)), len(losses) - 1)
    within = np.cumsum(masses[::-1])[::-1] > cut
    within[below] |= not within.any()
    return replace(one, losses=np.maximum(losses, losses[below])[within], masses=masses[within])


def _folded(one: Points, step: float, size: int) -> Floats:
    low = np.floor(one.losses / step)
    share = one.losses / step - low
    places = low.astype(np.int64) % size
    folded = np.bincount(places, one.masses * (1 - share), size)
    return np.asarray(folded + np.bincount((places + 1) % size, one.masses * share, size))


def first_estimate(plan: Plan, *, epsilon: float, delta: float, most: int, outside: float, leak: float) -> Estimate:
    """About how many planned rounds fit, at most ``most``, and where their losses lie but for a leak of all together.

    Raises:
        Unsupported: a mechanism of the plan has no privacy loss distribution here, or its losses count as infinite.
    """
    sides = _sides(plan)
    deviation = sqrt(max(sides[0].variance, 1e-60))
    delta = max(delta, _LEAST_DELTA)
    mu = sqrt(2 * epsilon + float(ndtri(delta)) ** 2) + float(ndtri(delta))  # of a Gaussian with about this budget
    rounds = min(most, int(min((2 * mu / deviation) ** 2, 2.0**60)) + 20)
    fit = _fitting(sides, epsilon, delta, rounds, outside, _SIZES[0])
    while 20 < rounds > 3 * fit:
        rounds = min(rounds // 2, 2 * fit + 10)
        fit = _fitting(sides, epsilon, delta, rounds, outside, _SIZES[0])
    fit = _fitting(sides, epsilon, delta, rounds, outside, _SIZES[1])
    cut = leak / (fit + 2)
    low, high, tilts = _ends((sides[0].without_ends(cut), sides[1].without_ends(cut)), fit + 2 + fit // 50, outside)
    return Estimate(fit, (low, high), tuple(sorted(tilts | {1.2 * tilt for tilt in tilts})), sides)


def tilted_estimate(
    plan: Plan, *, epsilon: float, delta: float, most: int, outside: float, leak: float, fit: int = 0
) -> Estimate:
    """As ``first_estimate``, but under the tilt of Chernoff's bound in each direction; of ``fit`` rounds if any."""
    sides = _sides(plan, far=True)
    mu = sqrt(2 * epsilon + float(ndtri(delta)) ** 2) + float(ndtri(delta))
    guess = int(min((mu / sqrt(max(sides[0].variance, 1e-60))) ** 2, float(most)))

    def kinds(side: _Side, rounds: int) -> list[Kind]:
        return [Kind(rounds * count, one.losses, np.log(one.masses), 0.0) for one, count in side.parts]

    def best(side: _Side, rounds: int, places: int) -> tuple[float, float]:
        """About the logarithm of delta, less what the lattice adds to the scale, and the tilt that shows it."""
        each = kinds(side, rounds)
        if rounds * sum(count * float(one.losses.max()) for one, count in side.parts) <= epsilon:
            return -inf, tilt_at(each, epsilon)
        made = composition(each, tilt_at(each, epsilon), epsilon, most=places)
        parts = _PARTS if _NEVER < made.log_chance(epsilon) < _RARE else ()
        every = [made, *(composition(each, part * made.tilt, epsilon, most=places) for part in parts)]
        return min((one.log_delta(epsilon), one.tilt) for one in every)

    def value(places: int) -> Callable[[int], float]:
        return lambda rounds: exp(min(max(best(side, rounds, places)[0] for side in sides), 0.0))

    known, fit = fit, fit or guess
    for places, to in () if known else _PLACES:
        fit = largest(value(places), delta, guess=fit, most=most, to=to)
    under = []
    for side in sides:  # a direction that is far below delta needs no more than that
        tilt, each = best(side, max(fit, 1), _PLACES[-1][0])[1], kinds(side, max(fit, 1))
        enough = tilt_where(each, lambda t, scale, _: t * epsilon - scale + log(delta) - _FAR)
        under.append(min(tilt, enough))
    parts = [side.without_ends(leak / (fit + 2)) for side in sides]
    for _ in range(_TURNS):
        both = parts[0].under(under[0]), parts[1].under(under[1])
        low, high, tilts = _ends(both, fit + 2 + fit // 50, outside)
        low = min(low, -_BELOW / min(under))
        under = [min(tilt, _LARGEST / max(high, -low)) for tilt in under]
    both = parts[0].under(under[0]), parts[1].under(under[1])
    tilts |= {1.2 * tilt for tilt in tilts}
    return Estimate(fit, (low, high), tuple(sorted(tilts)), both, (under[0], under[1]))


def _fitting(sides: tuple[_Side, _Side], epsilon: float, delta: float, most: int, outside: float, size: int) -> int:
    """About how many rounds fit, by a grid whose window is wide enough for ``most``."""
    low, high, _ = _ends(sides, most, outside)
    step = (high - low) / size
    curves = [side.delta(step, int(np.floor(low / step)), size, epsilon) for side in sides]
    fit = largest(lambda n: max(curve(n) for curve in curves), delta, guess=most // 2, most=most, to=200)
    return min(most, round(fit * min(side.widened(step) for side in sides)))


def _sides(plan: Plan, *, far: bool = False) -> tuple[_Side, _Side]:
    parts: tuple[list[tuple[Points, int]], list[tuple[Points, int]]] = ([], [])
    for mechanism, count in plan:
        both = law(mechanism, points=True, far=far)
        if both is None or not all(isinstance(one, Points) and np.isfinite(one.losses).all() for one in both):
            raise Unsupported(f"{mechanism!r}: its privacy loss counts as infinite")
        for side, one in zip(parts, both, strict=True):
            if isinstance(one, Points):
                side.append((one, count))
    return _Side(parts[0]), _Side(parts[1])


def _ends(sides: tuple[_Side, _Side], most: int, outside: float) -> tuple[float, float, set[float]]:
    """The ends of both directions together, and their tilts."""
    (low, high, tilts), (other_low, other_high, other_tilts) = (side.ends(most, outside) for side in sides)
    return min(0.0, low, other_low) - 1e-6, max(0.0, high, other_high) + 1e-6, tilts | other_tilts


def largest(value: Callable[[int], float], target: float, *, guess: int, most: int, to: int) -> int:
    """The largest whole number up to ``most`` whose value is at most the target, to one part in ``to``; 0 if none is.

    The value does not decrease. A few steps of the secant method for its logarithm; the result was evaluated.
    """
    few, many, number = 0, most + 1, min(max(guess, 1), most)
    logs: dict[int, float] = {}
    while many - few > max(1, few // to):
        at = value(number)
        logs[number] = log(max(at, 1e-300) / target) if at < inf else 700.0
        few, many = (number, many) if at <= target else (few, number)
        number = _next(logs, few, many)
    return few


def _next(logs: dict[int, float], few: int, many: int) -> int:
    """Where to look next, strictly between few and many: by the secant of the two nearest values."""
    nearest = sorted(logs, key=lambda n: abs(logs[n]))[:2]
    middle = (few + many) // 2
    if len(nearest) < 2:
        (only,) = nearest
        slope = 10.0 / only  # of log delta, about
        place = only - logs[only] / slope
    elif logs[nearest[0]] == logs[nearest[1]] or len(logs) > 12:
        place = middle
    else:
        a, b = nearest
        place = a - logs[a] * (b - a) / (logs[b] - logs[a])
    return min(max(round(place), few + 1), many - 1)

"""Composed losses on an even lattice under a tilt: every error is a share of the delta that is asked for.

Names and symbols
    kind      one direction of one kind of round: points of loss, logarithms of their masses, and how often it runs
    tilt      t >= 0; a mass m at the loss l counts m exp(t l - K), where K = log of the sum of all m exp(t l)
    step      h, the distance of neighbouring losses of the lattice, nats; a number of few bits
    place     a whole number; the loss there is place * step
    kernel    exp(-t v) (1 - exp(-v)) for v = loss - epsilon > 0; delta = exp(K - t epsilon) times its tilted mean

Source: theory 4.13, 7.2; docs/proofs/losses.md, sections 8 and 9.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, floor, frexp, inf, ldexp, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from almoner._search import edge
from almoner.curves._grid.connect_the_dots import ULP

Floats = NDArray[np.float64]

FEWEST, MOST = 2**12, 2**20  # places of a window
SHARE = 3e-5  # part of epsilon that the lattice may cost, about
OUTSIDE = 1e-9  # tilted mass beyond either end of a window, about
DEEP = 700.0  # a tilted mass below exp(-700) of the largest is rounded up to that
FAR = 50.0  # tilt * v from which on the kernel counts as its value there
SHIFTS = 16  # tilts at which Chernoff's bound is tried


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One direction of one kind of round. Every field is public.

    Attributes:
        count: how often it runs, >= 1.
        losses, logs: (k,) losses, all finite, and logarithms of their masses.
        error: the masses times exp(error) dominate the round.
        places: (k,) int64, of the losses on a lattice; None where they are on none.
    """

    count: int
    losses: Floats
    logs: Floats
    error: float
    places: NDArray[np.int64] | None = None


def _weights(kind: Kind, tilt: float) -> tuple[Floats, float]:
    """Tilted masses, up to a factor that makes them add up to one, and the logarithm of that."""
    exponents = kind.logs + tilt * kind.losses
    top = float(exponents.max())
    masses = np.exp(np.maximum(exponents - top, -DEEP))
    total = float(masses.sum())
    return masses / total, top + log(total)


def moments(kinds: Sequence[Kind], tilt: float) -> tuple[float, float, float, float]:
    """K of the composition at a tilt, mean and variance of the tilted loss, and a bound on the error of K.

    The bound is one on the error of the logarithm of a tilted mass, too: each rounding counts once for each round.
    """
    value = mean = variance = doubt = 0.0
    for kind in kinds:
        masses, scale = _weights(kind, tilt)
        centre = float(masses @ kind.losses)
        value, mean = value + kind.count * scale, mean + kind.count * centre
        variance += kind.count * float(masses @ (kind.losses - centre) ** 2)
        doubt += kind.count * ULP * (64 + len(kind.logs) + 4 * (float(np.abs(kind.logs).max()) + DEEP + abs(scale)))
    return value, mean, variance, doubt


def tilt_at(kinds: Sequence[Kind], epsilon: float) -> float:
    """The tilt of Chernoff's bound at an epsilon."""
    return tilt_where(kinds, lambda t, _, mean: mean - epsilon + log(t) - log1p(t))


def tilt_where(kinds: Sequence[Kind], rising: Callable[[float, float, float], float]) -> float:
    """The tilt at which a rising function of tilt, K and its derivative is about zero: any tilt is valid."""
    variance = moments(kinds, 0.0)[2]
    reach = max(float(np.abs(kind.losses).max()) for kind in kinds)
    low: float = min(1e-3 / max(variance, 1e-290) ** 0.5, 1e-2 / max(reach, 1e-290))
    high = 1e18

    def value(tilt: float) -> float:
        return rising(tilt, *moments(kinds, tilt)[:2])

    if value(low) >= 0:
        return low
    start = max(low, 1 / max(variance, 1e-290) ** 0.5)
    bad = low
    while start < high and value(start) < 0:
        bad, start = start, start * 8
    return edge(lambda t: value(t) >= 0, min(start, high), bad, relative=1e-2)


def largest_kernel(tilt: float) -> float:
    """Logarithm of the kernel's largest value."""
    return -log1p(tilt) - (tilt * log1p(1 / tilt) if tilt else 0.0)


def _beyond(kinds: Sequence[Kind], tilt: float, at: float, shifts: Floats) -> float:
    """Log of Chernoff's bound on the tilted mass of losses >= at (shifts > 0) or <= at (shifts < 0)."""
    value, _, _, doubt = moments(kinds, tilt)
    bounds = []
    for s in shifts.tolist():
        shifted, _, _, more = moments(kinds, tilt + s)
        bounds.append(shifted + more - (value - doubt) - s * at + 8 * ULP * abs(s * at))
    return float(min(0.0, *bounds))


def _end(kinds: Sequence[Kind], tilt: float, sign: int, shifts: Floats) -> float:
    """A loss beyond which, on the side of the sign, little of the tilted mass lies."""
    start = moments(kinds, tilt)[0]
    ends: list[float] = [(moments(kinds, tilt + sign * s)[0] - start - log(OUTSIDE)) / s for s in shifts.tolist()]
    return sign * min(ends)


def _few_bits(step: float) -> float:
    """About the number, and at most that: its products with places below 2**41 are floats, exactly."""
    mantissa, exponent = frexp(step)
    return ldexp(floor(mantissa * 4096), exponent - 12)


def _on_lattice(kind: Kind, step: float) -> Kind:
    """Divide each mass between the two neighbouring losses such that both laws of the pair keep their mass."""
    low = np.floor(kind.losses / step)
    above = np.clip(kind.losses - low * step, 0.0, step)
    with np.errstate(divide="ignore"):
        up = kind.logs + np.log(np.expm1(-above) / np.expm1(-step))
        down = kind.logs - above + np.log(np.expm1(above - step) / np.expm1(-step))
    places = np.concatenate([low, low + 1]).astype(np.int64)
    logs = np.concatenate([down, up])
    used = logs > -inf
    error = kind.error + ULP * (16 + 2 * float(np.abs(logs[used]).max()))
    losses = np.asarray(places[used] * step, np.float64)
    return Kind(kind.count, losses, logs[used], error, places[used])


@dataclass(frozen=True, slots=True, eq=False)
class Composition:
    """Tilted masses of a composed loss in a window of the lattice, and all that they leave out. Symbols as above.

    Attributes:
        first: the place of the first mass.
        masses: (N,) float64.
        rounding: bound on the error of each mass.
        below, beyond: bounds on the masses below and above the window.
        scale: K of the composition.
        slack: bound on the error of the logarithm of every mass, and of K.
        cost: about how much of K the lattice added.
    """

    step: float
    tilt: float
    first: int
    masses: Floats
    rounding: float
    below: float
    beyond: float
    scale: float
    slack: float
    cost: float = 0.0

    def log_delta(self, epsilon: float) -> float:
        """The logarithm of delta at an epsilon.

        Guarantee: at least that of the composition of all kinds, in the direction that they were given in.
        Source: docs/proofs/losses.md, sections 8 and 9.
        """
        base = floor(epsilon / self.step)
        rest = epsilon - base * self.step
        start = max(0, base + 1 - self.first)
        stop = len(self.masses)
        if self.tilt > 0:
            stop = max(start, min(stop, base + ceil(FAR / self.tilt / self.step) + 2 - self.first))
        v = (np.arange(start, stop) + float(self.first - base)) * self.step - rest
        value = float((self.masses[start:stop] + self.rounding) @ (np.exp(-self.tilt * v) * -np.expm1(-v)))
        if stop < len(self.masses):
            value += self._from((self.first + stop - base) * self.step - rest) * (
                float(self.masses[stop:].sum()) + (len(self.masses) - stop) * self.rounding
            )
        above = (self.first + len(self.masses) - base) * self.step - rest
        value += self.beyond * self._from(above) + (self.below * self._from(0.0) if base < self.first else 0.0)
        doubt = self.slack + ULP * (64 + len(self.masses) + 4 * (abs(self.scale) + self.tilt * abs(epsilon) + FAR))
        return self.scale - self.tilt * epsilon + log(max(value, 1e-300)) + doubt

    def log_chance(self, epsilon: float) -> float:
        """Log of the kernel's tilted mean, over its largest value: small where no tilt helps; 0 on a coarse lattice."""
        if self.cost > 1:
            return 0.0
        return self.log_delta(epsilon) - (self.scale - self.tilt * epsilon + largest_kernel(self.tilt))

    def _from(self, v: float) -> float:
        """The largest value of the kernel at or above v."""
        if self.tilt == 0 or v < log1p(1 / self.tilt):
            return exp(largest_kernel(self.tilt)) * (1 + 1e-12)
        return exp(-self.tilt * v) * (1 + 1e-12)


def composition(kinds: Sequence[Kind], tilt: float, epsilon: float, most: int = MOST) -> Composition:
    """Compose all kinds, each as often as it runs, on a lattice that suits an epsilon.

    Guarantee: every delta of the result is an upper bound, whatever the tilt and the epsilon are.
    Source: docs/proofs/losses.md, sections 8 and 9.
    """
    exact, _, variance, _ = moments(kinds, tilt)
    spread = sqrt(max(variance, 1e-300))
    reach = max(float(np.abs(kind.losses).max()) for kind in kinds)
    shifts = np.geomspace(0.1 / max(spread, reach, 1e-290), 64 / spread, SHIFTS)
    low, high = (_end(kinds, tilt, sign, shifts) for sign in (-1, 1))
    width, size = max(high - low, reach * 2.0**-40, 1e-300), FEWEST
    while True:
        step = _few_bits(width / (size - 8))
        lattice = [_on_lattice(kind, step) for kind in kinds]
        cost = moments(lattice, tilt)[0] - exact
        wanted = SHARE * max(tilt * epsilon, 0.02)
        if cost <= wanted or size >= most:
            break
        size = min(most, 1 << ceil(log(size) / log(2) + min(max(0.5 * log(cost / wanted) / log(2) + 0.1, 1.0), 4.0)))
    made = _composed(lattice, tilt, step, floor((low + high - size * step) / 2 / step), size, shifts)
    return replace(made, cost=cost)


def _composed(lattice: Sequence[Kind], tilt: float, step: float, first: int, size: int, shifts: Floats) -> Composition:
    """Multiply powers of Fourier coefficients; section 9 of the proof bounds the errors."""
    gamma = 8 * (2 + log(size) / log(2)) * ULP
    scale, slack, moved = 0.0, moments(lattice, tilt)[3], 0
    spectra, logs = [], np.zeros(size // 2 + 1)
    for kind in lattice:
        masses, one = _weights(kind, tilt)
        places = kind.places if kind.places is not None else np.zeros(0, np.int64)
        centre = round(float(masses @ kind.losses) / step)
        spectra.append(fft.rfft(np.bincount((places - centre) % size, masses, size)))
        logs += kind.count * np.log(np.abs(spectra[-1]) + gamma)
        moved += kind.count * centre
        scale += kind.count * one
        slack += kind.count * kind.error
    live = int(np.flatnonzero(logs > -DEEP / 10)[-1]) + 1  # the others count as errors
    sizes = np.exp(np.minimum(logs, 1.0))
    angles, turns, doubts = np.zeros(live), np.zeros(live), np.zeros(live)
    for kind, spectrum in zip(lattice, spectra, strict=True):
        angle = kind.count * np.angle(spectrum[:live])
        angles += angle
        turns += np.abs(angle)
        doubts += kind.count * gamma / (np.abs(spectrum[:live]) + gamma)
    left = float(sizes[live:].sum())
    sizes = sizes[:live]
    doubts = sizes * (2 * doubts + ULP * (64 + 4 * np.abs(logs[:live]) + 4 * turns) + gamma)
    rounding = 2 * (float(doubts.sum()) + left) / size * (1 + 1e-9)
    masses = np.maximum(fft.irfft(sizes * np.exp(1j * angles), size), 0.0)
    masses = np.roll(masses, (moved - first) % size)
    below, beyond = (
        exp(_beyond(lattice, tilt, place * step, sign * shifts)) for sign, place in ((-1, first), (1, first + size))
    )
    return Composition(step, tilt, first, masses, rounding, below, beyond, scale, slack)

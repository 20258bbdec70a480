"""Privacy losses on an even grid, composed by Fourier transforms, with every error bounded.

Names and symbols
    step      h, the distance of neighbouring losses of the grid, nats
    law       weights >= 0 at the losses first * h, (first + 1) * h, ..., and a leak: the mass of infinite losses
    curve     of a law a: e -> sum over i of a_i (1 - exp(e - i h))_+ plus the leak; the delta at epsilon e
    bundle    how often each kind of round is composed: {kind: count}
    gamma     bound on the error of one Fourier coefficient, as a part of the sum of the weights

A law *dominates* a round (in one direction) if its curve is nowhere below the round's. The law of a composition is
the convolution of the laws. Between two neighbouring losses of the grid the curve is affine in exp(e): a comparison of
two curves on the grid is a comparison at every epsilon.

Source: docs/proofs/planned-filter.md, sections 2 and 4; theory 1.4, 7.2.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import exp, expm1, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from bursar import mechanisms
from bursar.curves._spectra import Spectrum, power
from bursar.curves.losses._laws import Law as Points
from bursar.curves.losses._laws import law as discrete_law
from bursar.errors import Unsupported

__all__ = ["MOST_PLACES", "TILTS", "Grid", "Law", "change", "laws", "spread"]

Floats = NDArray[np.float64]
Bundle = Mapping[Hashable, int]

_ULP = 2.0**-52
_LONG = np.longdouble  # of 64 bits or more, as the machine has it
_PI = _LONG("3.14159265358979323846264338327950288")
MOST_PLACES = 2**22  # of a law on either side of 0; larger losses count as infinite, and lower ones are moved up
NEGLIGIBLE = 1e-28  # a Fourier coefficient whose size is below this is not worked out
TILTS = tuple(np.geomspace(0.02, 4000.0, 60).tolist())
"""Of Chernoff bounds, in both directions."""


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """One direction of one round, on the grid. Every field is public.

    Attributes:
        first: the place of the least loss.
        weights: (k,) >= 0; they add up to one.
        leak: mass whose loss is infinite, rounded up.
        error: every weight is at least the true one divided by one plus this.
    """

    first: int
    weights: Floats
    leak: float
    error: float


@lru_cache(maxsize=256)
def laws(mechanism: mechanisms.Mechanism, step: float, cut: float) -> tuple[Law, Law]:
    """The laws of one round in the directions "remove" and "add".

    Args:
        mechanism: public; one round (no Repeated, no Composed).
        step: public, > 0; nats.
        cut: public, > 0; the largest losses count as infinite up to this mass, and the least ones are made larger.

    Guarantee: in each direction the law, its weights times (1 + error), dominates the round, for every two neighbouring
        data sets (an approximate mechanism's own delta is in the leak).
    Source: docs/proofs/planned-filter.md, section 4; theory 7.2.

    Raises:
        Unsupported: no privacy loss distribution is known for this mechanism, or its losses count as infinite.
    """
    both = discrete_law(mechanism, fine=True, points=True)
    if both is None:
        raise Unsupported(f"{mechanism!r}: its privacy loss counts as infinite")
    remove, add = (_on_grid(one, step, cut) for one in both if isinstance(one, Points))
    return remove, add


def _on_grid(points: Points, step: float, cut: float) -> Law:
    """Move each mass to the two neighbouring losses of the grid such that both laws of the pair keep their mass."""
    losses, masses, leak, error = points.losses, points.masses, points.ceiling, points.error
    if not np.isfinite(losses).all():
        raise Unsupported("a round reveals so much that some of its losses count as infinite")
    raised = losses + (error * (1 + np.abs(losses)) if points.loss_errors is None else points.loss_errors)
    order = np.argsort(raised)
    losses, masses = raised[order] + step * 2.0**-40, masses[order]
    below = int(np.searchsorted(np.cumsum(masses), cut))
    losses[:below] = losses[below]
    within = (np.cumsum(masses[::-1])[::-1] > cut) & (losses < MOST_PLACES * step)
    within[0] |= not within.any()
    losses = np.maximum(losses, -MOST_PLACES * step)
    leak, losses, masses = leak + 2 * float(masses[~within].sum()), losses[within], masses[within]
    low = np.floor(losses / step)
    upper = np.clip(np.expm1(-np.clip(losses - low * step, 0.0, step)) / np.expm1(-step), 0.0, 1.0)
    place = (low - low[0]).astype(np.int64)
    weights = np.zeros(int(place[-1]) + 2)
    np.add.at(weights, place, masses * (1 - upper))
    np.add.at(weights, place + 1, masses * upper)
    weights /= weights.sum()
    return Law(int(low[0]), weights, leak * (1 + error), error + (64 + len(losses) + 2.0**13) * _ULP)


def change(step: float, share: float = 1.0) -> tuple[Law, Law]:
    """The smallest round there is on the grid: randomised response with losses of one step either way.

    Args:
        step: public, > 0; nats.
        share: public, in (0, 1]; the probability with which it runs at all, known to everybody.

    Guarantee: both directions have the same law, which dominates randomised response with epsilon = step that runs
        with this probability.
    Source: theory 2.3.
    """
    truth = 1 / (1 + exp(-step))
    law = Law(-1, np.array([share * (1 - truth), 1 - share, share * truth]), 0.0, 8 * _ULP)
    return law, law


def spread(law: Law, step: float) -> float:
    """The standard deviation of the loss, about; no bound."""
    places = step * (law.first + np.arange(len(law.weights)))
    mean = float(law.weights @ places)
    return sqrt(max(float(law.weights @ (places - mean) ** 2), 0.0))


class _Seen:
    """One direction of one kind of round, as the grid computes with it."""

    def __init__(self, law: Law, step: float, size: int, tilts: Floats) -> None:
        self.spectrum: Spectrum
        self.spectrum, self.fine = _spectrum(law, size)
        self.larger = np.abs(self.spectrum.astype(np.complex128)) * (1 + 4 * _ULP) + self.fine
        self.log_larger = np.log(self.larger) + _ULP
        self.leak, self.error = law.leak, law.error
        places = step * (law.first + np.arange(len(law.weights)))
        with np.errstate(divide="ignore"):
            logs = np.log(law.weights)
        self.up = np.array([_log_sum(logs + tilt * places) for tilt in tilts])
        self.down = np.array([_log_sum(logs - tilt * places) for tilt in tilts])


def _spectrum(law: Law, size: int) -> tuple[Spectrum, float]:
    """Fourier coefficients of a law in long precision, and a bound on the error of each; few losses term by term."""
    eps = float(np.finfo(_LONG).eps)
    if len(law.weights) > 4 or size < 4:
        folded = np.zeros(size, _LONG)
        np.add.at(folded, (law.first + np.arange(len(law.weights))) % size, law.weights)
        return fft.rfft(folded), 8 * (2 + log(size) / log(2)) * eps
    angles = 2 * _PI * (np.arange(size // 2 + 1, dtype=_LONG) / size)
    terms = [weight * np.exp(-1j * (law.first + at) * angles) for at, weight in enumerate(law.weights.astype(_LONG))]
    return np.asarray(np.sum(terms, axis=0)), 8 * (4 + max(abs(law.first), abs(law.first + len(terms)))) * eps


def _log_sum(exponents: Floats) -> float:
    """log of the sum of exp(exponents), a little too large."""
    top = float(exponents.max())
    return top + log(float(np.exp(exponents - top).sum())) + 1e-12 * (1 + abs(top))


class Grid:
    """Compositions of rounds on one grid: their curves, and comparisons of curves, with all errors counted.

    A composition's losses outside [low, low + size) steps are folded into it; their mass is bounded by Chernoff's
    inequality and counted as an error. Kinds of rounds are added by name and remembered.

    Args (public): step, in nats; low, the place of the least loss of the window; size, a power of two; tilts > 0, at
    which the mass outside the window is bounded (any are valid).
    """

    def __init__(self, step: float, low: int, size: int, tilts: Sequence[float] = TILTS) -> None:
        self.step, self.low, self.size = step, low, size
        self._tilts = np.asarray(tilts, np.float64)
        self._kinds: dict[Hashable, tuple[_Seen, _Seen]] = {}
        self._places = step * (low + np.arange(size))
        self._gamma = 8 * (2 + log(size) / log(2)) * _ULP
        self._fine = float(np.finfo(_LONG).eps) / _ULP * self._gamma
        self._twice = np.full(size // 2 + 1, 2.0)  # coefficients of a real series come in pairs
        self._twice[[0, -1]] = 1.0
        self._composed = lru_cache(maxsize=16)(self._compose)

    def __contains__(self, kind: Hashable) -> bool:
        return kind in self._kinds

    def add(self, kind: Hashable, both: tuple[Law, Law]) -> None:
        """Make a kind of round known, by its laws in both directions."""
        remove = _Seen(both[0], self.step, self.size, self._tilts)
        same = both[1] is both[0]
        self._kinds[kind] = (remove, remove if same else _Seen(both[1], self.step, self.size, self._tilts))

    def remove(self, kind: Hashable) -> None:
        """Forget a kind of round that is in no bundle any more."""
        del self._kinds[kind]

    def delta(self, bundle: Bundle, epsilon: float) -> float:
        """An upper bound on the curve of a composition at one epsilon, in both directions.

        Guarantee: not below the curve of either direction.
        Source: docs/proofs/planned-filter.md, section 4.
        """
        return max(self.delta_of_side(bundle, epsilon, side) for side in (0, 1))

    def delta_of_side(self, bundle: Bundle, epsilon: float, side: int) -> float:
        """The same in one direction: 0 for "remove", 1 for "add".

        Guarantee: not below the curve of this direction.
        Source: docs/proofs/planned-filter.md, section 4.
        """
        spectrum, doubt = self._composed(tuple(bundle.items()), side)
        density, error = self._density(spectrum, doubt)
        first = int(np.searchsorted(self._places, epsilon))
        value = float((density[first:] * -np.expm1(epsilon - self._places[first:])).sum()) + error
        value += 4 * (8 + log(self.size)) * _ULP * float(np.abs(density).sum())  # of NumPy's pairwise sum
        value += self._outside(bundle, side) + self._leak(bundle, side)
        errors = sum(count * self._kinds[kind][side].error for kind, count in bundle.items())
        return value * exp(errors) * (1 + 1e-12)

    def covers(self, less: Bundle, more: Bundle, context: Bundle, slack: float) -> bool:
        """Whether ``less`` beside the context is nowhere easier to tell apart than ``more`` beside it, up to the slack.

        Args:
            less, more, context: public; how often each kind of round is composed.
            slack: public, > 0.

        Guarantee: True only if, in both directions and at every real e, the curve of less and context is at most
            that of more and context plus the slack. Then the same holds with any more rounds in the context.
        Source: docs/proofs/planned-filter.md, sections 2 and 4.
        """
        return all(self._spare(less, more, context, side) >= -slack for side in (0, 1))

    def seems_to_cover(self, less: Bundle, more: Bundle, context: Bundle, slack: float) -> bool:
        """What ``covers`` is likely to say, at a fraction of its price: for searches. It proves nothing."""
        for side in (0, 1):
            around, _ = self._composed(tuple(context.items()), side)
            size = 1 << max(10, (16 * len(around) - 1).bit_length())
            if size >= self.size:
                return self.covers(less, more, context, slack)
            live, turns = len(around), np.arange(len(around)) * (self.low / self.size % 1)
            right, left = (self._compose(tuple(each.items()), side, live)[0] for each in (more, less))
            padded = np.zeros(size // 2 + 1, dtype=np.complex128)
            padded[:live] = around * (right - left) * np.exp(2j * np.pi * turns)
            density, stride = fft.irfft(padded, size), self.size // size
            down, up = (ratios[::stride] for ratios in self._ratios)
            curve = np.cumsum(density[::-1])[::-1] - np.cumsum((density * down)[::-1])[::-1] * up
            if not float(curve.min()) >= -slack:
                return False
        return True

    def _spare(self, less: Bundle, more: Bundle, context: Bundle, side: int) -> float:
        """A lower bound on the least of (curve of more and context) - (curve of less and context)."""
        around, around_doubt = self._composed(tuple(context.items()), side)
        live = len(around)
        right, right_doubt = self._compose(tuple(more.items()), side, live)
        left, left_doubt = self._compose(tuple(less.items()), side, live)
        difference = right - left
        size, beside = np.abs(difference).astype(np.float64), np.abs(around).astype(np.float64)
        rounding = self._fine * (np.abs(right) + np.abs(left)).astype(np.float64)
        doubt = 2.0 * around_doubt  # coefficients that were left out: their size, times at most two
        doubt[:live] = around_doubt[:live] * size
        doubt[:live] += (beside + around_doubt[:live]) * (right_doubt + left_doubt + rounding)
        density, error = self._density(around * difference, doubt)
        error += 4 * self.size * _ULP * float(np.abs(density).sum())
        error += self.size * 2.0**-1074 * exp(min(self._places[-1], 700.0))  # of the running sums in ``_curve``
        error += self._outside(_joined(more, context), side) + self._outside(_joined(less, context), side)
        error += self._leak(less, side) * (1 + self._leak(context, side))
        least = min(float(self._curve(density).min()), float(density.sum()))
        return least - error if error < inf else -inf  # NaN anywhere makes every comparison false

    @cached_property
    def _ratios(self) -> tuple[Floats, Floats]:
        """exp(-loss) and exp(loss) at each loss of the window."""
        return np.exp(-self._places), np.exp(self._places)

    def _curve(self, density: Floats) -> Floats:
        """The curve at each loss of the window: what lies above it, less what it weighs under the other law."""
        mass = np.cumsum(density[::-1])[::-1]
        down, up = self._ratios
        weighed = np.cumsum((density * down)[::-1])[::-1] * up
        return np.asarray(mass - weighed)

    def _compose(
        self, bundle: tuple[tuple[Hashable, int], ...], side: int, live: int | None = None
    ) -> tuple[Spectrum, Floats]:
        """Fourier coefficients of a composition in long precision, and a bound on the error of each.

        Only the first coefficients are worked out: as many as asked for, or as many as matter; then the bound is on
        the size of the others.
        """
        half = self.size // 2 + 1 if live is None else live
        logs, least, fine = np.full(half, 1e-9), np.ones(half), 0.0  # the first covers the rounding of what follows
        for kind, count in bundle:
            seen = self._kinds[kind][side]
            logs, least = logs + count * seen.log_larger[:half], np.minimum(least, seen.larger[:half])
            fine += count * seen.fine
        sizes = np.exp(logs)
        if live is None:
            live = int(np.flatnonzero(sizes > NEGLIGIBLE)[-1]) + 1
        product: Spectrum = np.ones(live, dtype=np.clongdouble)
        for kind, count in bundle:
            product = product * power(self._kinds[kind][side].spectrum[:live], count)
        doubt = (2 * fine) * sizes / least
        doubt[live:] = sizes[live:]
        return product, doubt

    def _density(self, spectrum: Spectrum, doubt: Floats) -> tuple[Floats, float]:
        """The weights that belong to Fourier coefficients, and a bound on the error of any exact sum of them.

        The bound holds for sums with factors in [-1, 1] too. Errors of adding up are the caller's.
        """
        padded = np.zeros(self.size // 2 + 1, dtype=np.complex128)
        padded[: len(spectrum)] = spectrum
        density = np.roll(fft.irfft(padded, self.size), -self.low)
        error = sqrt(float((self._twice * doubt**2).sum()))
        error += self._gamma * float((self._twice * np.abs(padded)).sum())
        return density, error

    def _outside(self, bundle: Bundle, side: int) -> float:
        """A bound on twice the mass of losses outside the window: what is missing there, and what is folded in."""
        up, down = np.zeros(len(self._tilts)), np.zeros(len(self._tilts))
        for kind, count in bundle.items():
            up += count * self._kinds[kind][side].up
            down += count * self._kinds[kind][side].down
        top, bottom = self.step * (self.low + self.size), self.step * (self.low - 1)
        right, left = float((up - self._tilts * top).min()), float((down + self._tilts * bottom).min())
        return 2 * (exp(min(right, 0.0)) + exp(min(left, 0.0)))

    def _leak(self, bundle: Bundle, side: int) -> float:
        """A bound on the mass of infinite losses."""
        return expm1(min(1.01 * sum(count * self._kinds[kind][side].leak for kind, count in bundle.items()), 700.0))


def _joined(one: Bundle, other: Bundle) -> dict[Hashable, int]:
    return {kind: one.get(kind, 0) + other.get(kind, 0) for kind in (*one, *other)}

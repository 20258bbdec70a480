"""Privacy losses on an even grid, composed by Fourier transforms, with every error bounded.

Names and symbols
    step      h, the distance of neighbouring losses of the grid, nats
    law       weights >= 0 at the losses first * h, (first + 1) * h, ..., and a leak: the mass of infinite losses
    curve     of a law a: e -> sum over i of a_i (1 - exp(e - i h))_+ plus the leak; the delta at epsilon e
    bundle    how often each kind of round is composed: {kind: count}
    gamma     bound on the error of one Fourier coefficient, as a part of the sum of the weights
    tilt      t >= 0 of a direction: a weight a at the loss l is held as a exp(t l - scale), which add up to one, and a
              curve D as exp(t e - scale) D(e). Errors are then in proportion to exp(scale - t e), and not to one
    per       of each direction: tilted units times this are parts of a probability; 1 with no tilt

A law *dominates* a round (in one direction) if its curve is nowhere below the round's. The law of a composition is
the convolution of the laws. Between two neighbouring losses of the grid the curve is affine in exp(e): a comparison of
two curves on the grid is a comparison at every epsilon.

Source: docs/proofs/planned-filter.md, sections 2 and 4; theory 1.4, 7.2.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp, expm1, inf, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from almoner import mechanisms
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.curves._grid.laws import Law as Points
from almoner.curves._grid.laws import law as discrete_law
from almoner.errors import Unsupported

Bundle = Mapping[Hashable, int]
Spectrum = NDArray[np.complexfloating]
Items = tuple[tuple[Hashable, int], ...]  # of a bundle

_LONG = np.longdouble  # numbers of 64 bits or more, as the machine has it
_PI = _LONG("3.14159265358979323846264338327950288")
MOST_PLACES = 2**22  # places on either side of 0; larger losses count as infinite, and lower ones are moved up
NEGLIGIBLE = 1e-28  # a Fourier coefficient whose size is below this is not worked out
MANY_COEFFICIENTS = 500  # with so many that matter rounds are few, and a search does without long precision
FEW_LOSSES = 4  # the Fourier coefficients of a law of at most so many losses are worked out term by term
TILTS = tuple(np.geomspace(0.02, 4000.0, 60).tolist())  # of Chernoff bounds, in both directions


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """One direction of one round, on the grid. Every field is public."""

    first: int  # the place of the least loss
    weights: Floats  # (k,) >= 0; they add up to one
    leak: float  # mass whose loss is infinite, rounded up
    error: float  # every weight is at least the true one divided by one plus this


@lru_cache(maxsize=256)
def laws(mechanism: mechanisms.Mechanism, step: float, cut: float, far: bool = False) -> tuple[Law, Law]:
    """The laws of one round in the directions "remove" and "add"; Unsupported where none is known, or losses infinite.

    Up to the mass ``cut`` (> 0) the largest losses count as infinite, and the least ones are made larger. A far law has
    more of its tails.

    Guarantee: in each direction the law, its weights times (1 + error), dominates the round, for every two neighbouring
        data sets (an approximate mechanism's own delta is in the leak).
    Source: docs/proofs/planned-filter.md, section 4; theory 7.2.
    """
    both = discrete_law(mechanism, fine=True, points=True, far=far)
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
    return Law(int(low[0]), weights, leak * (1 + error), error + (64 + len(losses) + 2.0**13) * ULP)


def change(step: float, share: float = 1.0) -> tuple[Law, Law]:
    """The smallest round there is on the grid: randomised response with losses of one step either way.

    Guarantee: both directions have the same law, which dominates randomised response with epsilon = step that runs
        with the probability ``share``, known to everybody.
    Source: theory 2.3.
    """
    truth = 1 / (1 + exp(-step))
    law = Law(-1, np.array([share * (1 - truth), 1 - share, share * truth]), 0.0, 8 * ULP)
    return law, law


def spread(law: Law, step: float) -> float:
    """The standard deviation of the loss, about; no bound."""
    places = step * (law.first + np.arange(len(law.weights)))
    mean = float(law.weights @ places)
    return sqrt(max(float(law.weights @ (places - mean) ** 2), 0.0))


class _Seen:
    """One direction of one kind of round; its coefficients in long precision are worked out when first asked for."""

    def __init__(self, law: Law, step: float, size: int, tilts: Floats, tilt: float = 0.0) -> None:
        law, self.scale = _under(law, step, tilt) if tilt else (law, _LONG(0))
        self._law, self._size = law, size
        self._few = len(law.weights) <= FEW_LOSSES and size >= FEW_LOSSES
        self.fine = _coefficient_error(law, size, self._few, _LONG)
        self._spectrum: Spectrum = np.empty(0, np.clongdouble)
        few = self._few
        rough = _terms(law, size, size // 2 + 1, np.float64) if few else fft.rfft(_on_circle(law, size, np.float64))
        self.larger = np.abs(rough) * (1 + 4 * ULP) + _coefficient_error(law, size, self._few, np.float64)
        self.log_larger = np.log(self.larger) + ULP
        self.largest = max(float(self.log_larger.max()), 0.0)
        self.leak, self.error = law.leak, law.error
        used = np.flatnonzero(law.weights)
        logs, places = np.log(law.weights[used]).astype(np.float64), step * (law.first + used)
        self.up = log_sums(logs + tilts[:, None] * places)
        self.down = log_sums(logs - tilts[:, None] * places)

    def spectrum(self, live: int) -> Spectrum:
        """The first Fourier coefficients of the law, each with an error of at most ``fine``."""
        if len(self._spectrum) < live:
            law, size = self._law, self._size
            self._spectrum = _terms(law, size, live, _LONG) if self._few else fft.rfft(_on_circle(law, size, _LONG))
        return self._spectrum[:live]


def _under(law: Law, step: float, tilt: float) -> tuple[Law, np.longdouble]:
    """A law under a tilt, in long precision, and its scale: the law is what these two numbers say."""
    used = np.flatnonzero(law.weights)
    logs = np.log(law.weights[used].astype(_LONG)) + _LONG(tilt) * (_LONG(step) * (law.first + used))
    top = logs.max()
    if not logs.min() > top + 0.9 * float(np.log(np.finfo(_LONG).tiny)):
        raise Unsupported("a round has losses that lie too far apart")
    weights = np.zeros(len(law.weights), _LONG)
    weights[used] = np.exp(logs - top)
    total = weights.sum()
    error = float(np.finfo(_LONG).eps) * (64 + 16 * float(np.abs(logs).max()))
    return replace(law, weights=weights / total, error=law.error + error), top + np.log(total)


def _on_circle(law: Law, size: int, kind: type) -> NDArray[np.floating]:
    """The weights of a law, those outside the window folded into it."""
    first, count = law.first % size, len(law.weights)
    circle: NDArray[np.floating] = np.zeros(size * -(-(first + count) // size), kind)
    circle[first : first + count] = law.weights
    return np.asarray(circle.reshape(-1, size).sum(axis=0))


def _terms(law: Law, size: int, live: int, kind: type) -> Spectrum:
    """The first Fourier coefficients of a law with few losses, term by term."""
    weights: NDArray[np.floating] = law.weights.astype(kind)
    total: Spectrum = np.zeros(live, np.result_type(kind, np.complex64))
    for place, weight in zip(range(law.first, law.first + len(weights)), weights, strict=True):
        if place and weight:
            turn = _turned(abs(place), size, live, kind)
            total += weight * (turn if place > 0 else np.conj(turn))
        elif weight:
            total += weight
    return total


@lru_cache(maxsize=4)
def _turned(place: int, size: int, live: int, kind: type) -> Spectrum:
    """The first Fourier coefficients of a loss at one place."""
    pi = _PI if kind is _LONG else kind(_PI)
    return np.asarray(np.exp((-2j * pi * place / size) * np.arange(live, dtype=kind)))


def _coefficient_error(law: Law, size: int, few: bool, kind: type) -> float:
    """A bound on the error of one Fourier coefficient in this precision."""
    eps = float(np.finfo(kind).eps)
    if few:
        return 8 * (4 + max(abs(law.first), abs(law.first + len(law.weights)))) * eps
    return (16 * (2 + log(size) / log(2)) + 2 * (len(law.weights) // size)) * eps


def power(spectrum: Spectrum, count: int) -> Spectrum:
    """A whole power by repeated squaring, whose error is at most a few units a factor."""
    power: Spectrum = np.ones_like(spectrum)
    while count:
        if count & 1:
            power = power * spectrum
        count >>= 1
        if count:
            spectrum = spectrum * spectrum
    return power


def sums_from_above(values: NDArray[np.floating]) -> NDArray[np.floating]:
    """Sum the values at and above each place, in blocks, with few roundings each; their number is a power of two."""
    block = 1 << len(values).bit_length() // 2
    sums = np.cumsum(values[::-1].reshape(-1, block), axis=1)
    sums[1:] += np.cumsum(sums[:-1, -1])[:, None]
    return np.asarray(sums.ravel()[::-1])


def longest_sum(size: int) -> int:
    """Return the most numbers that are added one after the other in such a sum."""
    block = 1 << size.bit_length() // 2
    return block + size // block + 1


def log_sums(exponents: Floats) -> Floats:
    """Log of the sum of exp(exponents) of each row, a little too large."""
    top = exponents.max(axis=1)
    return np.asarray(top + np.log(np.exp(exponents - top[:, None]).sum(axis=1)) + 1e-12 * (1 + np.abs(top)))


class Grid:
    """Compositions of rounds on one grid: their curves, and comparisons of curves, with all errors counted.

    A composition's losses outside [low, low + size) steps are folded into it; their mass is bounded by Chernoff's
    inequality, with tilts > 0, and counted as an error. The size is a power of two; any tilt under is valid.
    """

    def __init__(
        self, step: float, low: int, size: int, tilts: Sequence[float] = TILTS, under: tuple[float, float] = (0.0, 0.0)
    ) -> None:
        self.step, self.low, self.size, self.under, self.per = step, low, size, under, (1.0, 1.0)
        self._tilts = np.asarray(tilts, np.float64)
        self._kinds: dict[Hashable, tuple[_Seen, _Seen]] = {}
        self._places = step * (low + np.arange(size))
        self._gamma = 8 * (2 + log(size) / log(2)) * ULP
        self._eps = float(np.finfo(_LONG).eps)
        self._fine = self._eps / ULP * self._gamma
        self._twice = np.full(size // 2 + 1, 2.0)  # coefficients of a real series come in pairs
        self._twice[[0, -1]] = 1.0
        self._composed = lru_cache(maxsize=16)(self._compose)
        self._around = lru_cache(maxsize=16)(self._roughly)
        self._live_coefficients = lru_cache(maxsize=64)(self._count_live)
        self._excess = lru_cache(maxsize=4)(self._excess_coefficients)
        self._ratios = lru_cache(maxsize=2)(self._tilted_ratios)

    def __contains__(self, kind: Hashable) -> bool:
        return kind in self._kinds

    def add(self, kind: Hashable, both: tuple[Law, Law]) -> None:
        """Make a kind of round known, by its laws in both directions."""
        t, other = self.under
        remove, same = _Seen(both[0], self.step, self.size, self._tilts, t), both[1] is both[0] and t == other
        self._kinds[kind] = (remove, remove if same else _Seen(both[1], self.step, self.size, self._tilts, other))

    def error(self, kind: Hashable) -> float:
        """The relative error of the weights of one round."""
        return max(seen.error for seen in self._kinds[kind])

    def scale(self, bundle: Bundle, side: int) -> np.longdouble:
        """Logarithm of the mean of exp(t loss) of a composition."""
        return _LONG(sum(count * self._kinds[kind][side].scale for kind, count in bundle.items()))

    def promise(self, bundle: Bundle, epsilon: float, delta: float) -> None:
        """Count slack in a probability, for accounts that start with a bundle and promise delta at epsilon.

        Guarantee: slacks given to ``covers`` that add up to a hundredth of delta on each path at most raise the delta
            of the whole at epsilon by at most their sum.
        Source: docs/proofs/planned-filter.md, section 8.
        """
        heights = (max(self._height(bundle, epsilon, side), delta) for side in (0, 1))
        first, second = (1.02 * height * exp(t * self.step) for height, t in zip(heights, self.under, strict=True))
        self.per = first, second

    def promised(self, bundle: Bundle, epsilon: float) -> bool:
        """True if accounts may start with another bundle on the same promise: its moment is no larger."""
        sides = [(side, t) for side, t in enumerate(self.under) if t]
        return all(
            1.01 * self._height(bundle, epsilon, side) * exp(t * self.step) <= self.per[side] for side, t in sides
        )

    def remove(self, kind: Hashable) -> None:
        """Forget a kind of round that is in no bundle any more."""
        del self._kinds[kind]

    def delta(self, bundle: Bundle, epsilon: float) -> float:
        """An upper bound on the curve of a composition at one epsilon, in both directions.

        Guarantee: not below the curve of either direction.
        Source: docs/proofs/planned-filter.md, sections 4 and 8.
        """
        return max(self._delta_of_side(bundle, epsilon, side) for side in (0, 1))

    def _delta_of_side(self, bundle: Bundle, epsilon: float, side: int) -> float:
        long, doubt, tail = self._composed(tuple(bundle.items()), side)
        all_factors, mean = self._excess(epsilon, self.under[side])
        spectrum, factors = long.astype(np.complex128), all_factors[: len(long)]
        sizes, twice = np.abs(spectrum), self._twice[: len(long)]
        value = float((spectrum * factors).real.sum())  # Parseval's identity
        doubts = sqrt(float((twice * doubt**2).sum()) + tail**2)
        value += mean * (doubts + self._gamma * sqrt(float((twice * sizes**2).sum())))
        farthest = abs(epsilon) + float(np.abs(self._places[[0, -1]]).max())
        value += (8 + 4 * farthest) * ULP * (1 + doubts)  # of the function, whose slope is at most 1
        value += 4 * (8 + log(self.size)) * ULP * float((sizes * np.abs(factors)).sum())  # of NumPy's pairwise sum
        height = self._height(bundle, epsilon, side)
        value = value * height + (self._outside(bundle, side) * height + self._leak(bundle, side))
        errors = sum(count * self._kinds[kind][side].error for kind, count in bundle.items())
        return value * exp(errors) * (1 + 1e-12)

    def covers(self, less: Bundle, more: Bundle, context: Bundle, slack: float) -> bool:
        """True if ``less`` composed with the context is proven at most as distinguishable as ``more`` composed with it.

        Guarantee: True only if, in both directions and at every real e, the curve of less and context is at most
            that of more and context plus the slack; under a tilt plus half of it times 1 + exp(scale - t e) / per, and
            the scale of less at most that of more plus slack / (2 per). More in the context keeps this true.
        Source: docs/proofs/planned-filter.md, sections 2, 4 and 8.
        """
        return all(self._spare(less, more, context, side) >= -slack for side in (0, 1))

    def doubt(self, less: Bundle, more: Bundle, context: Bundle) -> float:
        """The errors that a comparison counts: with no more slack than that, ``covers`` says no."""
        return max(self._gap(less, more, context, side)[1] for side in (0, 1))

    def seems_to_cover(self, less: Bundle, more: Bundle, context: Bundle, slack: float) -> bool:
        """Predict the answer of ``covers`` at a fraction of its price: for searches. It proves nothing."""
        return all(float(self._rough_gap(less, more, context, side).min()) >= -slack for side in (0, 1))

    def rough_gaps(self, less: Bundle, more: Bundle, context: Bundle) -> Floats:
        """The curve of more and context less that of less and context, at some e in both directions. Proves nothing."""
        return np.concatenate([self._rough_gap(less, more, context, side) for side in (0, 1)])

    def rough_delta(self, bundle: Bundle, epsilon: float) -> float:
        """About what ``delta`` says, at a fraction of its price: for searches. It is no bound."""
        values = []
        for side in (0, 1):
            live, _ = self._live(tuple(bundle.items()), side)
            product = self._product(tuple(bundle.items()), side, live).astype(np.complex128)
            value = float((product * self._excess(epsilon, self.under[side])[0][:live]).real.sum())
            values.append(value * self._height(bundle, epsilon, side))
        return max(values)

    def _rough_gap(self, less: Bundle, more: Bundle, context: Bundle, side: int) -> Floats:
        live, _ = self._live(tuple(context.items()), side)
        around = self._around(tuple(context.items()), side, live)
        short = live > MANY_COEFFICIENTS
        right, left = (self._product(tuple(each.items()), side, live, short=short) for each in (more, less))
        difference, apart = self._difference(right, left, less, more, side)
        size = min(self.size, 1 << max(10, (2 * live - 1).bit_length()))
        curve = self._curve(fft.irfft(around * difference.astype(np.complex128), size), side, self.size // size)
        return self._in_units(curve, apart, _joined(more, context), side) if self.under[side] else curve

    def _difference(
        self, right: Spectrum, left: Spectrum, less: Bundle, more: Bundle, side: int
    ) -> tuple[Spectrum, np.longdouble]:
        """Coefficients of more, less those of less in the same scale; and how far the scale of less is above."""
        if not self.under[side]:
            return right - left, _LONG(0)
        apart = self.scale(less, side) - self.scale(more, side)
        return right - left - left * np.expm1(min(apart, _LONG(50))), apart

    def _live(self, bundle: Items, side: int) -> tuple[int, float]:
        """Count the Fourier coefficients that matter, and bound the root of the squares of all others.

        Both are those of a smaller composition, with a power of two of each kind, times what the rest may add.
        """
        fewer = tuple((kind, 1 << (count.bit_length() - 1)) for kind, count in bundle if count)
        live, tail = self._live_coefficients(fewer, side)
        more = dict(bundle)
        rest = sum((more[kind] - count) * self._kinds[kind][side].largest for kind, count in fewer)
        return live, tail * exp(min(rest, 700.0)) if tail else 0.0

    def _count_live(self, bundle: Items, side: int) -> tuple[int, float]:
        logs = np.full(self.size // 2 + 1, 1e-9)  # this covers the rounding of what follows
        for kind, count in bundle:
            logs += count * self._kinds[kind][side].log_larger
        live = int(np.flatnonzero(logs > log(NEGLIGIBLE))[-1]) + 1
        return live, sqrt(float((self._twice[live:] * np.exp(2 * logs[live:])).sum()))

    def _roughly(self, bundle: Items, side: int, live: int) -> Spectrum:
        """The first Fourier coefficients of a composition, in the order of the window."""
        turns = np.arange(live) * self.low % self.size * (2j * np.pi / self.size)
        return np.asarray(self._product(bundle, side, live).astype(np.complex128) * np.exp(turns))

    def _height(self, bundle: Bundle, epsilon: float, side: int) -> float:
        """exp(scale - t epsilon), rounded up."""
        if not self.under[side]:
            return 1.0
        scale, away = self.scale(bundle, side), _LONG(self.under[side]) * _LONG(epsilon)
        return exp(min(float(scale - away) + 8 * ULP * float(abs(scale) + away) + 1e-12, 700.0))

    def _excess_coefficients(self, epsilon: float, tilt: float) -> tuple[Spectrum, float]:
        """Factors of a composition's Fourier coefficients, the sum of whose products is the curve at epsilon.

        Beside them the root of the mean of the squares of the function that they transform.
        """
        beyond = np.minimum(epsilon - self._places, 0.0)
        excess = -np.expm1(beyond) * np.exp(tilt * beyond) if tilt else -np.expm1(beyond)
        factors = np.conj(fft.rfft(np.roll(excess, self.low))) * (self._twice / self.size)
        return np.asarray(factors), sqrt(float(excess @ excess) / self.size) * (1 + 1e-9)

    def _spare(self, less: Bundle, more: Bundle, context: Bundle, side: int) -> float:
        """A lower bound on the least of (curve of more and context) - (curve of less and context)."""
        least, error = self._gap(less, more, context, side)
        return least - error if error < inf else -inf  # NaN anywhere makes every comparison false

    def _gap(self, less: Bundle, more: Bundle, context: Bundle, side: int) -> tuple[float, float]:
        """The least of the difference of the two curves, and a bound on its error."""
        around, around_doubt, tail = self._composed(tuple(context.items()), side)
        live = len(around)
        right, left = (self._product(tuple(each.items()), side, live) for each in (more, less))
        doubt = sum(self._doubts(tuple(each.items()), side, live) for each in (more, less))
        difference, apart = self._difference(right, left, less, more, side)
        doubtful = self._doubt_of_scales(less, more, side) if self.under[side] else 0.0
        size, beside = np.abs(difference).astype(np.float64), np.abs(around).astype(np.float64)
        rounding = (self._fine + doubtful) * (np.abs(right) + np.abs(left)).astype(np.float64)
        doubt = around_doubt * size + (beside + around_doubt) * (doubt + rounding)
        density, error = self._density(around * difference, doubt, 2 * tail)  # of two coefficients less than twice
        tilt, farthest = self.under[side], float(np.abs(self._places[[0, -1]]).max())
        error += 4 * (longest_sum(self.size) + 2 * tilt * farthest) * ULP * float(np.abs(density).sum())
        error += self.size * 2.0**-1074 * exp(min((1 + tilt) * self._places[-1], 700.0))  # of sums in ``_curve``
        whole = _joined(more, context)
        error += self._outside(whole, side) + self._outside(_joined(less, context), side)
        leak = self._leak(less, side) * (1 + self._leak(context, side))
        curve = self._curve(density, side)
        if not tilt:
            return min(float(curve.min()), float(density.sum())), error + leak
        below = exp(min(tilt * float(self._places[0]) - float(self.scale(whole, side)), 0.0))
        least = float(self._in_units(curve, apart, whole, side).min())
        return least, 2 * self.per[side] * (1.02 * (error + below + doubtful)) + leak

    def _doubt_of_scales(self, less: Bundle, more: Bundle, side: int) -> float:
        """A bound on the rounding of the difference of two scales."""
        sizes = float(abs(self.scale(less, side)) + abs(self.scale(more, side)))
        return 64 * self._eps * (sizes + sum(less.values()) + sum(more.values()))

    def moment(self, less: Bundle, more: Bundle, side: int) -> float:
        """By how much the scale of less is below that of more, in units of slack, rounded down."""
        apart = float(self.scale(less, side) - self.scale(more, side)) + self._doubt_of_scales(less, more, side)
        return -apart * (2 * self.per[side])

    def _in_units(self, curve: Floats, apart: np.longdouble, bundle: Bundle, side: int) -> Floats:
        """A tilted curve, and a moment, in units of slack: one half of it may be tilted, one half constant."""
        tilt, per = self.under[side], self.per[side]
        constant = tilt * self._places[:: self.size // len(curve)] - float(self.scale(bundle, side)) + log(per)
        return np.append(curve / (1 + np.exp(np.minimum(constant, 600.0))), -float(apart)) * (2 * per)

    def _tilted_ratios(self, tilt: float) -> list[tuple[Floats, Floats]]:
        """exp(-t loss) and exp(t loss) at each loss of the window, for this tilt, unless it is 0, and one more."""
        return [(np.exp(-t * self._places), np.exp(t * self._places)) for t in (tilt, 1 + tilt) if t]

    def _curve(self, density: Floats, side: int, stride: int = 1) -> Floats:
        """The curve at each loss of the window (or some): what lies above it, less its weight under the other law."""
        ratios = self._ratios(self.under[side])
        sums = [sums_from_above(density * down[::stride]) * up[::stride] for down, up in ratios]
        return np.asarray((sums[0] if len(sums) > 1 else sums_from_above(density)) - sums[-1])

    def _compose(self, bundle: Items, side: int) -> tuple[Spectrum, Floats, float]:
        """The Fourier coefficients of a composition that matter, and bounds on the error of each and on all others."""
        live, tail = self._live(bundle, side)
        return self._product(bundle, side, live), self._doubts(bundle, side, live), tail

    def _doubts(self, bundle: Items, side: int, live: int) -> Floats:
        """A bound on the error of each of the first coefficients of a composition."""
        logs, least, fine = np.full(live, 1e-9), np.ones(live), 0.0  # the first covers the rounding of what follows
        for kind, count in bundle:
            seen = self._kinds[kind][side]
            logs, least = logs + count * seen.log_larger[:live], np.minimum(least, seen.larger[:live])
            fine += count * seen.fine
        return np.asarray((2 * fine) * np.exp(logs) / least)

    def _product(self, bundle: Items, side: int, live: int, *, short: bool = False) -> Spectrum:
        """The first Fourier coefficients of a composition, in long precision, or not."""
        product: Spectrum = np.ones(live, np.complex128 if short else np.clongdouble)
        for kind, count in bundle:
            spectrum = self._kinds[kind][side].spectrum(live)
            product = product * power(spectrum.astype(product.dtype), count)
        return product

    def _density(self, spectrum: Spectrum, doubt: Floats, tail: float) -> tuple[Floats, float]:
        """The weights of the first Fourier coefficients; a bound for exact sums of them with factors in [-1, 1]."""
        padded = np.zeros(self.size // 2 + 1, dtype=np.complex128)
        padded[: len(spectrum)] = spectrum
        density = np.roll(fft.irfft(padded, self.size), -self.low)
        twice = self._twice[: len(spectrum)]
        error = sqrt(float((twice * doubt**2).sum()) + tail**2)
        error += self._gamma * float((twice * np.abs(padded[: len(spectrum)])).sum())
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


class Untilted(Grid):
    """Purchases of accounts under a tilt, of which each direction is judged with the tilt or without, as it is better.

    Guarantee: that of ``covers`` of the tilted grid, for the same slack.
    Source: docs/proofs/planned-filter.md, section 8.
    """

    def __init__(self, tilted: Grid) -> None:
        super().__init__(tilted.step, tilted.low, tilted.size)
        self._tilted = tilted

    def _gap(self, less: Bundle, more: Bundle, context: Bundle, side: int) -> tuple[float, float]:
        least, error = super()._gap(less, more, context, side)
        without = min(2 * least, self._tilted.moment(less, more, side)), 2 * error
        return max(without, self._tilted._gap(less, more, context, side), key=lambda gap: gap[0] - gap[1])

    def _rough_gap(self, less: Bundle, more: Bundle, context: Bundle, side: int) -> Floats:
        return np.append(2 * super()._rough_gap(less, more, context, side), self._tilted.moment(less, more, side))


def _joined(one: Bundle, other: Bundle) -> dict[Hashable, int]:
    return {kind: one.get(kind, 0) + other.get(kind, 0) for kind in (*one, *other)}

"""Choose for each person a Chernoff tilt, a window and a number of frequencies. Every choice is valid; these are sharp.

Names and symbols
    tilt       t >= 0; the composed loss is looked at under exp(t * loss), where a small delta is no rare event
    c, W       centre, the mean of a person's composed loss under the tilt; half-width of the window [c - W, c + W)
    kernel     exp(-t v) (1 - exp(-v)) at v = loss - eps > 0, and 0 below: what the Fourier series is of
    tolerance  the part of the kernel's maximum that aliasing and cutoff may each add

Source: theory 7.1, 7.2; docs/proofs/losses.md, sections 3, 4 and 7.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log, pi

import numpy as np
from array_api_compat import device, to_device
from numpy.typing import NDArray
from scipy.special import exp1

from almoner import mechanisms
from almoner._arrays import Array, Library
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.curves._grid.laws import Law, Normal, law, tilted
from almoner.curves.losses._spectra import BLUR, TILTS, decay, frequency_counts, log_moments

Integers = NDArray[np.int64]
Rounds = Sequence[mechanisms.Mechanism]

PEOPLE_AT_ONCE = 8192  # people whose numbers are in memory together
TILT_BELOW_DELTA = 1e-6  # a smaller delta is computed with a tilt
UNTILTED_TOLERANCE = 1e-4  # tolerance without a tilt, as a part of delta
TILTED_TOLERANCE = 1e-7  # tolerance under a tilt
RETRY_TOLERANCE = 1e-10  # tolerance where error terms may still be seen in a person's answer; takes longer
FEW_ROUNDS = 100  # up to so many rounds the blur is seen: four times as many frequencies are used
SOME_ROUNDS = 1000  # up to so many rounds each one's shape is seen: the fine discretisation is used
FREQUENCY_CAPS = (2**11, 2**13, 2**16)  # most frequencies of a person, in three classes
WIDEST_WINDOW = 1024.0  # largest half-width, nats; people with a wider window have no certified bound


@dataclass(frozen=True, slots=True, eq=False)
class Direction:
    """All kinds of rounds, seen from "remove" or from "add"."""

    laws: tuple[Law | Normal, ...]
    sums: Floats  # (j, 6) per round: mean, |mean|, ceiling, error, scale, |scale|
    up: Floats  # (j, tilts) log moment generating functions of the centred loss at TILTS
    down: Floats  # (j, tilts) at -TILTS

    def only(self, kinds: Integers) -> "Direction":
        return Direction(tuple(self.laws[j] for j in kinds), self.sums[kinds], self.up[kinds], self.down[kinds])


@dataclass(frozen=True, slots=True)
class Window:
    """The tilt, the half-width and the largest number of frequencies that a group shares."""

    tilt: float
    half_width: float
    cap: int

    @property
    def kernel_maximum(self) -> float:
        """At least exp(-tilt v) (1 - exp(-v)) for every v in [0, 2W]."""
        return min(1 / (1 + self.tilt), 2 * self.half_width) * (1 + 4 * ULP)

    @property
    def blur(self) -> float:
        """The parameter of the Gaussian round that silences the frequencies above the cap."""
        return BLUR * self.half_width / (pi * self.cap)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Each person's window: all (m,)."""

    half_width: Floats
    cap: Integers
    fine: NDArray[np.bool_]  # whether the fine discretisation is used
    rounds: Floats  # how many each person took part in

    def windows(self) -> Iterator[tuple[float, int, bool, Integers]]:
        """People by half-width, cap and discretisation; those with too wide a window are left out."""
        kinds = np.stack([self.half_width, self.cap, self.fine], axis=1)
        for kind in np.unique(kinds[self.half_width <= WIDEST_WINDOW], axis=0):
            yield float(kind[0]), int(kind[1]), bool(kind[2]), np.flatnonzero((kinds == kind).all(axis=1))


def on(values: Floats, like: Array, xp: Library) -> Array:
    """NumPy's numbers on the device of another array."""
    return xp.asarray(values, dtype=xp.float64, device=device(like))


def to_host(array: Array) -> Floats:
    return np.asarray(to_device(array, "cpu"))


def chunks(index: Integers, size: int = PEOPLE_AT_ONCE) -> Iterator[Integers]:
    for start in range(0, len(index), size):
        yield index[start : start + size]


def rows_of(counts: Array, people: Integers, xp: Library) -> Array:
    """(m, j) float64: the counts of some people."""
    return xp.astype(xp.take(counts, xp.asarray(people, device=device(counts)), axis=0), xp.float64)


def tolerance(tilt: float, delta: float, retry: bool) -> float:
    """Error that aliasing and cutoff may each add."""
    if tilt:
        return RETRY_TOLERANCE if retry else TILTED_TOLERANCE
    return UNTILTED_TOLERANCE * delta


def directions(rounds: Rounds, lower: bool, tilt: float = 0.0, fine: bool = False) -> tuple[Direction, Direction]:
    """The rounds seen from "remove" and from "add", under a tilt."""
    pairs = [law(round_, lower=lower, fine=fine) for round_ in rounds]
    both = []
    for which in (0, 1):
        laws = tuple(pair[which] for pair in pairs if pair is not None)
        if tilt > 0:
            laws = tuple(tilted(each, tilt, lower=lower) for each in laws)
        sums = [
            (x.mean, abs(x.mean), x.ceiling, x.error + 2 * ULP * x.variance**0.5, x.scale, abs(x.scale)) for x in laws
        ]
        moments = [log_moments(each) for each in laws]
        up, down = (np.asarray([pair[sign] for pair in moments]) for sign in (0, 1))
        both.append(Direction(laws, np.asarray(sums), up, down))
    return both[0], both[1]


def _log_moments(counts: Array, rounds: Rounds, people: Integers, xp: Library) -> Iterator[tuple[Integers, Floats]]:
    """(m, tilts) log E exp(t * loss), the larger of both directions, for some people at a time."""
    uncentred = [each.up + TILTS * each.sums[:, :1] for each in directions(rounds, False)]
    matrix = on(np.concatenate(uncentred, axis=1), counts, xp)
    for part in chunks(np.arange(len(people))):
        sums = to_host(xp.matmul(rows_of(counts, people[part], xp), matrix))
        yield part, sums.reshape(len(part), 2, -1).max(axis=1)


def shifted(tilts: Floats, steps: int) -> Floats:
    """So many places further in TILTS; zero stays zero."""
    place = np.clip(np.searchsorted(TILTS, tilts) + steps, 0, len(TILTS) - 1)
    return np.where(tilts > 0, TILTS[place], 0.0)


def tilts_at_delta(counts: Array, rounds: Rounds, delta: float, people: Integers, xp: Library) -> Floats:
    """(m,) the tilt of Chernoff's bound on each person's epsilon; 0 for all where delta is large enough without."""
    tilts = np.zeros(len(people))
    if delta < TILT_BELOW_DELTA:
        for part, moments in _log_moments(counts, rounds, people, xp):
            tilts[part] = TILTS[((moments - log(delta)) / TILTS).argmin(axis=1)]
    return tilts


def tilts_at_epsilons(counts: Array, rounds: Rounds, epsilons: Floats, people: Integers, xp: Library) -> Floats:
    """(several, m) the tilt of Chernoff's bound on each person's delta; 0 where that is large."""
    tilts = np.zeros((len(epsilons), len(people)))
    for part, moments in _log_moments(counts, rounds, people, xp):
        for row, epsilon in zip(tilts, epsilons.tolist(), strict=True):
            log_delta = moments - TILTS * epsilon
            use = log_delta.min(axis=1) < log(TILT_BELOW_DELTA)
            row[part] = np.where(use, TILTS[log_delta.argmin(axis=1)], 0.0)
    return tilts


def placed(
    counts: Array, both: tuple[Direction, Direction], tolerance: float, lower: bool, people: Integers, xp: Library
) -> Placement:
    """Windows beyond either end of which at most the tolerance lies, by Chernoff's bound at the best tilt."""
    moments = np.concatenate([both[0].up, both[0].down, both[1].up, both[1].down], axis=1)
    variances = np.asarray([[each.variance, 1.0] for each in both[0].laws])
    matrix = on(np.concatenate([moments, variances], axis=1), counts, xp)
    width, spread, rounds = (np.empty(len(people)) for _ in range(3))
    for part in chunks(np.arange(len(people))):
        sums = to_host(xp.matmul(rows_of(counts, people[part], xp), matrix))
        by_end = sums[:, :-2].reshape(len(part), 4, -1)
        width[part] = ((by_end + log(1 / tolerance)) / TILTS).min(axis=2).max(axis=1)
        spread[part], rounds[part] = np.sqrt(sums[:, -2]), sums[:, -1]
    width = np.exp2(np.ceil(np.log2(width * 1.01) * 3) / 3)
    wanted = 150 * width / np.maximum(spread, 1e-300)
    wanted *= np.where(rounds <= FEW_ROUNDS, 4, 1)
    few, middle, most = FREQUENCY_CAPS
    if lower:  # lower bounds lose what the blur may hide
        wanted = np.maximum(wanted, np.minimum(3 * wanted, middle))
    cap = np.where(wanted <= few, few, np.where(wanted <= middle, middle, most))
    return Placement(width, cap, rounds <= SOME_ROUNDS, rounds)


def cutoff_errors(rows: Array, both: tuple[Direction, Direction], window: Window, xp: Library) -> Floats:
    """(m, frequency counts) what the frequencies left out may add, as a part of the kernel's maximum."""
    counts = np.asarray(frequency_counts(window.cap))
    blurred = (pi * counts[:-1] / window.half_width * window.blur) ** 2 / 2
    beyond_cap = exp1(BLUR**2 / 2) / pi
    errors = np.full((rows.shape[0], len(counts)), beyond_cap)
    for each in both:
        least = np.asarray([decay(one, window.half_width, window.cap) for one in each.laws])
        decays = to_host(xp.matmul(rows, on(least, rows, xp)))
        ranges = 2 / pi * np.log(counts[1:] / counts[:-1]) * np.exp(-(decays * (1 - 1e-12) + blurred))
        errors[:, :-1] = np.maximum(errors[:, :-1], np.cumsum(ranges[:, ::-1], axis=1)[:, ::-1] + beyond_cap)
    return errors * (1 + 1e-9)

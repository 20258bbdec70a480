"""Compute characteristic functions of people's composed losses in groups, and bound every error that this makes.

Names and symbols
    tilt       t >= 0; the composed loss is looked at under exp(t * loss), where a small delta is no rare event
    c, W       centre, the mean of a person's composed loss under the tilt; half-width of the window [c - W, c + W)
    kernel     exp(-t v) (1 - exp(-v)) at v = loss - eps > 0, and 0 below: what the Fourier series is of
    theta      pi / W, the first frequency; frequency k is k theta
    cap        frequencies above cap theta are silenced by one round of Gaussian noise, blur = BLUR W / (pi cap)
    short      E(1 - cos y) of an angle y = frequency times centred loss; the real part is 1 - short
    odd        E sin y, or E(sin y - y) where frequencies are low ("bent"): the imaginary part
    tolerance  the part of the kernel's maximum that aliasing and cutoff may each add

Each person has a tilt, a window and a number of frequencies. Every choice is valid; the choices here are sharp. Losses
are counted from their means: the logarithms, which add up over rounds, are then small wherever they matter.

delta at centre + u is at most exp(height - tilt u) (series + error) + ceiling, over shrink, where the error terms are

    term            what it covers                                                     where it goes           proof
    discretisation  mass moved to the ends of its cell: delta only rises               nowhere                 1
    ceiling         losses beyond the outermost cells count as infinite                added to delta          1
    mass error      relative errors of masses and errors of losses, X in all           shrink; centre by 2X    2
    blur            one more Gaussian round: delta only rises (epsilon, in lower       nowhere                 3
                    bounds, falls by ``bounds._hidden_by_blur``)
    aliasing        losses outside the window, which the periodic series wraps         error                   3
    cutoff          frequencies left out of the series                                 error                   4
    rounding        of logarithms, of products of matrices and of the series           error                   5
    centre          rounding of the centre                                             centre                  5
    height          rounding of the exponent, and of the tilted masses' scales         height                  7

All terms of ``error`` are multiplied by exp(height - tilt u), as the series is: they are small beside delta, however
small delta is. Lower bounds subtract what upper bounds add.

Source: theory 7.1, 7.2; docs/proofs/losses.md, which numbers the sections.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import log, pi

import numpy as np
from array_api_compat import device, to_device
from numpy.typing import NDArray
from scipy.special import exp1

from almoner import mechanisms
from almoner._arrays import Array, Library
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.curves._grid.laws import Law, Normal, law, tilted

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
SUM_BLOCK = 1024  # terms of a sum over frequencies that are added up at once
SERIES_ENTRIES = 2**24  # most numbers in one group's series
TILTS: Floats = 2.0 ** np.arange(-4, 16.5, 0.5)  # Chernoff's, at which moment generating functions are known
BLUR = 9.0  # strength of the blur: the characteristic function of its noise at the cap is exp(-BLUR**2 / 2)
LOG_FLOOR = -700.0  # no logarithm is below it
ONE_THREAD = 2**18  # a matrix product of fewer multiplications runs on one thread
COLUMNS_AT_ONCE = 2**13  # frequencies worked out together
LONG = 2**13  # columns beyond this length are remembered for few laws only


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Logarithms of one law's centred characteristic function at the frequencies 1..K."""

    real: Floats
    imaginary: Floats
    error: Floats  # absolute error of the characteristic function itself


def frequency_counts(cap: int) -> tuple[int, ...]:
    """Numbers of frequencies that may be used: 8 * 2, 3, 4, 6, 8, 12, ... up to the cap."""
    steps = sorted({n for j in range(4, 18) for n in (2**j, 3 * 2 ** (j - 1))})
    return tuple(n for n in steps if 16 <= n <= cap)


@lru_cache(maxsize=8192)
def log_moments(law: Law | Normal) -> tuple[Floats, Floats]:
    """Log moment generating functions of the centred loss at +TILTS and at -TILTS."""
    if isinstance(law, Normal):
        square = TILTS**2 * law.variance / 2
        return square, square
    centred = law.losses - law.mean
    both = []
    for sign in (1.0, -1.0):
        exponents = sign * np.outer(TILTS, centred)
        top = exponents.max(axis=1)
        both.append(top + np.log(np.exp(exponents - top[:, None]) @ law.masses))
    return np.maximum(both[0], 0.0), np.maximum(both[1], 0.0)


def _sine_less_angle(y: Floats) -> Floats:
    """sin(y) - y to full relative accuracy."""
    square = np.minimum(y * y, 1.0)
    series = np.ones_like(y)
    for n in (272, 210, 156, 110, 72, 42, 20):
        series = 1 - square / n * series
    return np.where(y * y < 1.0, -y * square / 6 * series, np.sin(y) - y)


def _logarithm(short: Floats, odd: Floats) -> tuple[Floats, Floats]:
    """Real and imaginary part of log(1 - short + i odd), the former at least -700."""
    lost = np.minimum(2 * short - short**2 - odd**2, 1.0)
    with np.errstate(divide="ignore"):
        near, far = np.log1p(-np.minimum(lost, 0.75)) / 2, np.log(np.hypot(1 - short, odd))
    real = np.where(lost < 0.75, near, far)
    return np.clip(real, LOG_FLOOR, 0.0), np.arctan2(odd, 1 - short)


def _blocked(left: Floats, right: Floats) -> Floats:
    """Left @ right.T, in blocks of 32 to 256: the rounding is small, and no threads are woken, which cost more."""
    total = np.zeros((len(left), len(right)))
    block = min(max(ONE_THREAD // (len(left) * len(right)), 32), 256)
    for start in range(0, left.shape[1], block):
        total += left[:, start : start + block] @ right[:, start : start + block].T
    return total


def _waves(centred: Floats, angles: Floats, slow: bool) -> tuple[Floats, Floats, Floats]:
    """1 - cos, sin, and sin less the angle (where slow; else the sine again): (angles, values) each."""
    y = np.outer(angles, centred)
    sine = np.sin(y)
    return 2 * np.sin(y / 2) ** 2, sine, _sine_less_angle(y) if slow else sine


def _range(law: Law, theta: float, low: int, high: int) -> Columns:
    """The columns low .. high - 1: accurate however near to one the function is.

    Frequencies theta * (low .. high - 1), as sums of a coarse and a fine one: with short = 1 - cos,
    short(a + b) = short(a) + short(b) - short(a) short(b) + sin(a) sin(b), and the like for the sine.
    """
    spread = law.variance**0.5
    slow = theta * high * spread < 1
    centred, masses = np.asarray(law.losses - law.mean), law.masses
    side = int(np.ceil(np.sqrt(high - low)))
    coarse = _waves(centred, theta * np.arange(float(low), high, side), slow)
    fine = _waves(centred, theta * np.arange(0.0, side), slow)
    short_a, sine_a, bent_a = (masses * wave for wave in coarse)
    short_b, sine_b, bent_b = fine
    cross_short = _blocked(sine_a, sine_b) - _blocked(short_a, short_b)
    cross_odd = _blocked(sine_a, short_b) + _blocked(short_a, sine_b)
    ones, weights = np.ones((1, len(law.losses))), masses[None]
    shorts = _blocked(short_a, ones) + _blocked(weights, short_b)
    short = (shorts + cross_short).ravel()[: high - low]
    odd = (_blocked(bent_a, ones) + _blocked(weights, bent_b) - cross_odd).ravel()[: high - low]
    size = 4 * shorts + _blocked(np.abs(bent_a), ones) + _blocked(weights, np.abs(bent_b))
    terms = min(len(law.losses), 256) + len(law.losses) / 32 + 64
    error = terms * ULP * size.ravel()[: high - low]
    if not slow:
        error += 16 * ULP * theta * np.arange(low, high) * (spread + abs(law.mean))
    return Columns(*_logarithm(np.maximum(short, 0.0), odd), error)


def _absolute_values(law: Law, theta: float, count: int) -> Floats:
    """Absolute values of the characteristic function at theta * (0 .. count - 1), rounded up."""
    centred = law.losses - law.mean
    side = int(np.ceil(np.sqrt(count)))
    fine = np.outer(theta * np.arange(side), centred)
    coarse = np.outer(theta * side * np.arange(side), centred)
    cosine, sine = np.cos(fine), np.sin(fine)
    lead, lag = np.cos(coarse) * law.masses, np.sin(coarse) * law.masses
    even = _blocked(lead, cosine) - _blocked(lag, sine)
    odd = _blocked(lag, cosine) + _blocked(lead, sine)
    spread = float(law.masses @ np.abs(centred))
    error = (len(law.losses) + 64 + 4 * count * theta * spread) * 4 * ULP
    return np.minimum(np.hypot(even, odd).ravel()[:count] + error, 1.0)


def columns(law: Law | Normal, width: float, count: int) -> Columns:
    """The columns 1..count for the window [-width, width)."""
    return (_short if count <= LONG else _long)(law, width, count)


def _columns(law: Law | Normal, width: float, count: int) -> Columns:
    theta = pi / width
    if isinstance(law, Normal):
        frequencies = np.asarray(theta * np.arange(1, count + 1), dtype=np.float64)
        real = np.maximum(-(frequencies**2) * law.variance / 2, LOG_FLOOR)
        return Columns(real, np.zeros(count), -8 * ULP * real * np.exp(real))
    # low frequencies, where sin y - y is accurate, apart from the others
    low_end = int(min(max(1 / max(theta * law.variance**0.5, 1e-300) - 1, 1), count + 1))
    edges = [1, low_end, *range(low_end + COLUMNS_AT_ONCE, count + 1, COLUMNS_AT_ONCE), count + 1]
    parts = [_range(law, theta, low, high) for low, high in pairwise(edges) if low < high]
    return Columns(
        *(np.concatenate(each) for each in zip(*((p.real, p.imaginary, p.error) for p in parts), strict=True))
    )


_short = lru_cache(maxsize=20_000)(_columns)
_long = lru_cache(maxsize=64)(_columns)


@lru_cache(maxsize=20_000)
def decay(law: Law | Normal, width: float, cap: int) -> Floats:
    """The least -log|characteristic function| between each two neighbouring frequency counts, rounded down."""
    edges = frequency_counts(cap)
    theta = pi / width
    if isinstance(law, Normal):
        return np.asarray([(theta * low) ** 2 * law.variance / 2 for low in edges[:-1]]) * (1 - 8 * ULP)
    absolute = _absolute_values(law, theta, cap + 1)
    highest = [absolute[low + 1 : high + 1].max() for low, high in pairwise(edges)]
    return np.asarray(-np.log(np.asarray(highest)) * (1 - 8 * ULP))


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


def product(series: Array, matrix: Floats, xp: Library) -> Floats:
    """A matrix product whose sums are taken in blocks, which keeps their rounding small."""
    total = np.zeros((series.shape[0], matrix.shape[1]))
    for start in range(0, matrix.shape[0], SUM_BLOCK):
        stop = start + SUM_BLOCK
        total += to_host(xp.matmul(series[:, start:stop], on(matrix[start:stop], series, xp)))
    return total


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


def moved(tilts: Floats, steps: int) -> Floats:
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


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """People who share a window and a number of frequencies, in one direction, with their error terms: private.

    For lower bounds the signs are turned: centre and height are rounded down, the ceiling is 0.
    """

    series: Array  # (m, 2K) real and imaginary parts of their characteristic functions
    centre: Floats  # (m,) nats; with the shifts for mass errors and the centre's rounding
    height: Floats  # (m,) log of what the series is multiplied by at the centre: log E exp(t * loss) - t c
    error: Floats  # (m,) aliasing, cutoff and rounding
    ceiling: Floats  # (m,)
    shrink: Floats  # (m,) exp(-X), X the sum of the mass errors
    looseness: Floats  # (m,) about how far series + error may be above the truth
    window: Window
    count: int  # K


def groups(
    counts: Array,
    rounds: Rounds,
    tilts: Floats,
    delta: float,
    lower: bool,
    people: Integers,
    xp: Library,
    *,
    retry: bool = False,
) -> Iterator[tuple[Integers, tuple[Group, Group]]]:
    """People's rows, in groups of similar spread; both directions of each group.

    People (m,) are rows of the counts (n, j) with any round at all, tilts (m,) theirs, 0 or one of TILTS. Windows of
    tilt 0 are sized for delta. Retry: under a tilt, smaller error terms that take longer, for people most of whose
    losses are far below their epsilon.
    """
    for tilt in np.unique(tilts).tolist():
        alike = people[tilts == tilt]
        allowed = tolerance(tilt, delta, retry)
        placement = placed(counts, directions(rounds, lower, tilt), allowed, lower, alike, xp)
        for half_width, cap, fine, index in placement.windows():
            both = directions(rounds, lower, tilt, fine)
            window = Window(tilt, half_width, cap)
            for part in chunks(index):
                rows = rows_of(counts, alike[part], xp)
                for mine, pair in _by_frequencies(rows, both, placement.rounds[part], window, allowed, lower, xp):
                    yield alike[part[mine]], pair


def _by_frequencies(
    rows: Array,
    both: tuple[Direction, Direction],
    rounds: Floats,
    window: Window,
    allowed: float,
    lower: bool,
    xp: Library,
) -> Iterator[tuple[Integers, tuple[Group, Group]]]:
    """People of one window, by the number of frequencies that they need."""
    rows, both = _used(rows, both, xp)
    limit = allowed if window.tilt else allowed / window.kernel_maximum
    cutoffs = cutoff_errors(rows, both, window, xp)
    enough = cutoffs <= limit
    enough[:, -1] = True
    choice = enough.argmax(axis=1)
    for chosen in np.unique(choice):
        count = frequency_counts(window.cap)[chosen]
        for mine in chunks(np.flatnonzero(choice == chosen), max(1, SERIES_ENTRIES // (2 * count))):
            some = xp.take(rows, xp.asarray(mine, device=device(rows)), axis=0)
            shared = some, window, count, cutoffs[mine, chosen], limit, rounds[mine], lower, xp
            yield mine, (_group(both[0], *shared), _group(both[1], *shared))


def _used(rows: Array, both: tuple[Direction, Direction], xp: Library) -> tuple[Array, tuple[Direction, Direction]]:
    """Without the kinds of rounds that none of these people took part in."""
    kinds = np.flatnonzero(np.asarray(to_device(xp.any(rows > 0, axis=0), "cpu")))
    rows = xp.take(rows, xp.asarray(kinds, device=device(rows)), axis=1)
    return rows, (both[0].only(kinds), both[1].only(kinds))


def _group(
    direction: Direction,
    rows: Array,
    window: Window,
    count: int,
    cutoff: Floats,
    limit: float,
    rounds: Floats,
    lower: bool,
    xp: Library,
) -> Group:
    """One direction of a group. ``limit`` is what the cutoff may be: both are parts of the kernel's maximum."""
    tilt, blur = window.tilt, window.blur
    logarithms, rounding = _logarithms(direction, window, count, to_host(xp.max(rows, axis=0)))
    ends = direction.down if lower else direction.up
    sums = to_host(xp.matmul(rows, on(np.concatenate([direction.sums, ends], axis=1), rows, xp)))
    mean, means, ceiling, mass_error, scale, scales = sums[:, :6].T
    aliasing = _aliasing(sums[:, 6:], window, rounds)
    terms = (len(direction.laws) + 64) * ULP
    centre = mean + (0.5 + tilt) * blur**2
    centre_error = 2 * mass_error + terms * (means + window.half_width)
    height = scale + (tilt + tilt**2) * blur**2 / 2 - tilt * centre
    height_error = terms * (scales + tilt * (means + blur**2 * (1 + tilt) + window.half_width) + 1)
    error = cutoff * window.kernel_maximum + aliasing + rounding
    looseness = error + limit * window.kernel_maximum
    shrink, sign = np.exp(-mass_error), -1 if lower else 1
    return Group(
        _series(rows, logarithms, window, count, xp),
        centre + sign * centre_error,
        height + sign * height_error,
        error / shrink if lower else error,
        0.0 * ceiling if lower else ceiling,
        shrink,
        looseness,
        window,
        count,
    )


def _aliasing(log_moments: Floats, window: Window, rounds: Floats) -> Floats:
    """Mass beyond the window's end, by Chernoff's bound at the best tilt, times the largest value of the kernel."""
    exponents = log_moments + (TILTS * window.blur) ** 2 / 2 - TILTS * window.half_width
    return np.asarray(np.exp(exponents.min(axis=1) + 1e-13 * (1 + rounds)) / (1 + window.tilt))


def _series(rows: Array, logarithms: Floats, window: Window, count: int, xp: Library) -> Array:
    """(m, 2K): real and imaginary parts of each person's characteristic function, with the blur."""
    sums = xp.matmul(rows, on(logarithms, rows, xp))
    k = np.arange(1.0, count + 1)
    size = xp.exp(sums[:, :count] + on(-((pi * k / window.half_width * window.blur) ** 2) / 2, rows, xp))
    angle = sums[:, count:]
    return xp.concat([size * xp.cos(angle), size * xp.sin(angle)], axis=1)


def _logarithms(direction: Direction, window: Window, count: int, most: Floats) -> tuple[Floats, float]:
    """(j, 2K) real and imaginary parts of the logarithms, and a bound for all rounding in series of ``most`` rounds."""
    parts = [columns(each, window.half_width, count) for each in direction.laws]
    real, imaginary = np.asarray([p.real for p in parts]), np.asarray([p.imaginary for p in parts])
    error, lost = np.asarray([p.error for p in parts]), np.maximum(-real, 1e-300)
    size = np.exp(real)
    product = (len(parts) + 8) * ULP * (1 + np.abs(imaginary) / lost)
    rate = product + np.where(size >= 0.25, error / size / lost, 0.0)
    by_count = most[:, None] * np.where(size >= 0.25, rate * lost, product * lost)  # where a lattice returns to one
    per_frequency = np.where(0.4 * rate <= by_count, 0.4 * rate, 0.0).max(axis=0)
    per_frequency += np.where(0.4 * rate <= by_count, 0.0, by_count).sum(axis=0)
    per_frequency += np.where(size < 0.25, 4 * error, 0.0).sum(axis=0)
    k = np.arange(1.0, count + 1)
    maximum, half_width = window.kernel_maximum, window.half_width
    rounding = maximum * float((2 / (pi * k) * (per_frequency + 64 * ULP)).sum())
    # sums over frequencies come in blocks; an angle's rounding meets the part of a coefficient that falls as 1/k²
    rounding += maximum * (min(2 * count, SUM_BLOCK) + 2 * count / SUM_BLOCK + 32) * ULP * (2 + log(count))
    rounding += 8 * ULP * half_width * (1 + log(count)) + 8 * ULP / (1 + 2 * half_width * window.tilt)
    return np.concatenate([real, imaginary], axis=1), rounding

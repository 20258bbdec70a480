"""Who is computed how: tilts, windows and numbers of frequencies, and what a group is charged for them.

Names and symbols
    tilt    t >= 0; the composed loss is looked at under exp(t * loss), where a small delta is no rare event
    c       centre, the mean of a person's composed loss under the tilt
    W       half-width of a person's window [c - W, c + W)
    height  log of what the series is multiplied by at the centre: log E exp(t * loss) - t c
    scale   the largest value of exp(-t v) (1 - exp(-v)) in the window

Everything charged here is a multiple of exp(height - t u) at centre + u, as the series is: so that what is charged
is small beside delta, however small delta is.

Source: theory 7.1, 7.2; docs/proofs/losses.md, sections 3 to 5 and 7.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log, pi
from typing import Any

import numpy as np
from array_api_compat import device, to_device
from numpy.typing import NDArray
from scipy.special import exp1

from bursar import mechanisms
from bursar.curves.losses import _spectra
from bursar.curves.losses._laws import Law, Normal, law, tilted

__all__ = ["BLOCK", "Group", "groups", "host", "on", "shifted", "tilts_at_delta", "tilts_at_epsilons"]

Floats = NDArray[np.float64]
Whole = NDArray[np.int64]
Rounds = Sequence[mechanisms.Mechanism]

BLOCK = 1024
"""How many terms of a sum over frequencies are added up at once."""

_ULP = 2.0**-52
_CHUNK = 8192
_ENTRIES = 2**24  # of a group's series
_LOSS = 1e-4  # part of delta that the window and the frequencies left out may each cost
_LOSS_TILTED, _LOSS_CLOSE = 1e-7, 1e-10  # the same as a part of the scale
_TILTED = 1e-6  # a delta below it is computed with a tilt
_FEW, _SOME = 100, 1000  # rounds: so few that the noise added is seen; that the shape of each is seen
_CAPS = (2**11, 2**13, 2**16)
_WIDEST = 1024.0


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """All kinds of rounds in one direction."""

    laws: tuple[Law | Normal, ...]
    sums: Floats  # (j, 6): means, their sizes, ceilings, xis, scales, their sizes
    up: Floats  # log moment generating functions (j, tilts)
    down: Floats

    def some(self, kept: Whole) -> "_Side":
        """Some kinds of rounds only."""
        return _Side(tuple(self.laws[j] for j in kept), self.sums[kept], self.up[kept], self.down[kept])


_Sides = tuple[_Side, _Side]


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    """Where to compute a person: window, cap, and whether each round's shape is seen."""

    width: Floats
    cap: Whole
    fine: NDArray[np.bool_]
    rounds: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """People who share a tilt, a window and a number of frequencies, in one direction, and what is charged for it.

    delta at centre + u is at most exp(height - tilt u) (series + charge) + ceiling, over shrink.
    """

    series: Any  # (m, 2K) real and imaginary parts of their characteristic functions
    centre: Floats  # (m,) nats, with the shift for xi and the rounding of the centre
    height: Floats  # (m,)
    charge: Floats  # (m,)
    ceiling: Floats  # (m,) what is charged to delta
    shrink: Floats  # (m,) exp(-sum of xi)
    blunt: Floats  # (m,) about how far the series and its charge may be above the truth
    tilt: float
    width: float
    count: int
    blur: float


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a group shares."""

    tilt: float
    width: float
    cap: int

    @property
    def scale(self) -> float:
        """At least exp(-tilt v) (1 - exp(-v)) for every v in [0, 2W]."""
        return min(1 / (1 + self.tilt), 2 * self.width) * (1 + 4 * _ULP)

    @property
    def blur(self) -> float:
        """The parameter of the Gaussian round that silences the frequencies above the cap."""
        return _spectra.BLUR * self.width / (pi * self.cap)


def on(array: Floats, like: Any, xp: Any) -> Any:
    """The array on the device of another."""
    return xp.asarray(array, dtype=xp.float64, device=device(like))


def host(array: Any) -> Floats:
    """The array in NumPy."""
    return np.asarray(to_device(array, "cpu"))


def _sides(rounds: Rounds, lower: bool, tilt: float = 0.0, fine: bool = False) -> _Sides:
    pairs = [law(r, lower=lower, fine=fine) for r in rounds]
    sides = []
    for which in (0, 1):
        laws = tuple(pair[which] for pair in pairs if pair is not None)
        if tilt > 0:
            laws = tuple(tilted(one, tilt, lower=lower) for one in laws)
        grown = [_spectra.moments(one) for one in laws]
        sums = [
            (o.mean, abs(o.mean), o.ceiling, o.error + 2 * _ULP * o.variance**0.5, o.scale, abs(o.scale)) for o in laws
        ]
        up, down = (np.asarray([pair[way] for pair in grown]) for way in (0, 1))
        sides.append(_Side(laws, np.asarray(sums), up, down))
    return sides[0], sides[1]


def _chunks(index: Whole, size: int = _CHUNK) -> Iterator[Whole]:
    for start in range(0, len(index), size):
        yield index[start : start + size]


def _rows(counts: Any, index: Whole, xp: Any) -> Any:
    chosen = xp.take(counts, xp.asarray(index, device=device(counts)), axis=0)
    return xp.astype(chosen, xp.float64)


def _grown(counts: Any, rounds: Rounds, people: Whole, xp: Any) -> Iterator[tuple[Whole, Floats]]:
    """(m, tilts) log E exp(t * loss), the larger of both directions, for some people at a time."""
    sides = _sides(rounds, False)
    moved = [side.up + _spectra.TILTS * side.sums[:, :1] for side in sides]
    matrix = on(np.concatenate(moved, axis=1), counts, xp)
    for part in _chunks(np.arange(len(people))):
        sums = host(xp.matmul(_rows(counts, people[part], xp), matrix))
        yield part, sums.reshape(len(part), 2, -1).max(axis=1)


def shifted(tilt: Floats, by: int) -> Floats:
    """So many places further in TILTS; what has no tilt stays so."""
    place = np.clip(np.searchsorted(_spectra.TILTS, tilt) + by, 0, len(_spectra.TILTS) - 1)
    return np.where(tilt > 0, _spectra.TILTS[place], 0.0)


def tilts_at_delta(counts: Any, rounds: Rounds, delta: float, people: Whole, xp: Any) -> Floats:
    """(m,) the tilt of Chernoff's bound on each person's epsilon; 0 for all where delta is large enough without."""
    chosen = np.zeros(len(people))
    if delta < _TILTED:
        for part, grown in _grown(counts, rounds, people, xp):
            chosen[part] = _spectra.TILTS[((grown - log(delta)) / _spectra.TILTS).argmin(axis=1)]
    return chosen


def tilts_at_epsilons(counts: Any, rounds: Rounds, epsilons: Floats, people: Whole, xp: Any) -> Floats:
    """(several, m) the tilt of Chernoff's bound on each person's delta; 0 where that is large."""
    chosen = np.zeros((len(epsilons), len(people)))
    for part, grown in _grown(counts, rounds, people, xp):
        for row, epsilon in zip(chosen, epsilons.tolist(), strict=True):
            bound = grown - _spectra.TILTS * epsilon
            row[part] = np.where(bound.min(axis=1) < log(_TILTED), _spectra.TILTS[bound.argmin(axis=1)], 0.0)
    return chosen


def _plan(counts: Any, sides: _Sides, tolerance: float, lower: bool, people: Whole, xp: Any) -> _Plan:
    """Windows that lose at most the tolerance at either end, by Chernoff's bound at the best tilt."""
    both = np.concatenate([sides[0].up, sides[0].down, sides[1].up, sides[1].down], axis=1)
    variances = np.asarray([[one.variance, 1.0] for one in sides[0].laws])
    matrix = on(np.concatenate([both, variances], axis=1), counts, xp)
    width, spread, rounds = (np.empty(len(people)) for _ in range(3))
    for part in _chunks(np.arange(len(people))):
        sums = host(xp.matmul(_rows(counts, people[part], xp), matrix))
        grown = sums[:, :-2].reshape(len(part), 4, -1)
        width[part] = ((grown + log(1 / tolerance)) / _spectra.TILTS).min(axis=2).max(axis=1)
        spread[part], rounds[part] = np.sqrt(sums[:, -2]), sums[:, -1]
    width = np.exp2(np.ceil(np.log2(width * 1.01) * 3) / 3)
    wanted = 150 * width / np.maximum(spread, 1e-300)
    wanted *= np.where(rounds <= _FEW, 4, 1)
    if lower:  # what the noise may hide is taken off lower bounds
        wanted = np.maximum(wanted, np.minimum(3 * wanted, _CAPS[1]))
    cap = np.where(wanted <= _CAPS[0], _CAPS[0], np.where(wanted <= _CAPS[1], _CAPS[1], _CAPS[2]))
    return _Plan(width, cap, rounds <= _SOME, rounds)


def _tier(rows: Any, sides: _Sides, shape: _Shape, tolerance: float, xp: Any) -> tuple[Whole, Floats]:
    """How many frequencies each person needs, and (m, tiers) what those left out may cost, as a part of the scale."""
    edges = np.asarray(_spectra.tiers(shape.cap))
    blur = (pi * edges[:-1] / shape.width * shape.blur) ** 2 / 2
    cost = np.full((rows.shape[0], len(edges)), exp1(_spectra.BLUR**2 / 2) / pi)
    for side in sides:
        least = np.asarray([_spectra.tails(one, shape.width, shape.cap).least for one in side.laws])
        sums = host(xp.matmul(rows, on(least, rows, xp)))
        each = 2 / pi * np.log(edges[1:] / edges[:-1]) * np.exp(-(sums * (1 - 1e-12) + blur))
        left = np.cumsum(each[:, ::-1], axis=1)[:, ::-1] + exp1(_spectra.BLUR**2 / 2) / pi
        cost[:, :-1] = np.maximum(cost[:, :-1], left)
    cost *= 1 + 1e-9
    fits = cost <= tolerance
    fits[:, -1] = True
    return fits.argmax(axis=1), cost


def _matrix(side: _Side, shape: _Shape, count: int, most: Floats) -> tuple[Floats, float]:
    """(j, 2K) real and imaginary parts of the logarithms, and a bound for all rounding in a person's series."""
    width = shape.width
    parts = [_spectra.columns(one, width, count) for one in side.laws]
    real, imaginary = np.asarray([p.real for p in parts]), np.asarray([p.imaginary for p in parts])
    error, lost = np.asarray([p.error for p in parts]), np.maximum(-real, 1e-300)
    size = np.exp(real)
    gemm = (len(parts) + 8) * _ULP * (1 + np.abs(imaginary) / lost)
    rate = gemm + np.where(size >= 0.25, error / size / lost, 0.0)
    plain = most[:, None] * np.where(size >= 0.25, rate * lost, gemm * lost)  # where a lattice returns to one
    per = np.where(0.4 * rate <= plain, 0.4 * rate, 0.0).max(axis=0)
    per += np.where(0.4 * rate <= plain, 0.0, plain).sum(axis=0) + np.where(size < 0.25, 4 * error, 0.0).sum(axis=0)
    k = np.arange(1.0, count + 1)
    total = shape.scale * float((2 / (pi * k) * (per + 64 * _ULP)).sum())
    # sums over frequencies come in blocks; an angle's rounding meets the part of a coefficient that falls as 1/k²
    total += shape.scale * (min(2 * count, BLOCK) + 2 * count / BLOCK + 32) * _ULP * (2 + log(count))
    total += 8 * _ULP * width * (1 + log(count)) + 8 * _ULP / (1 + 2 * width * shape.tilt)
    return np.concatenate([real, imaginary], axis=1), total


def groups(
    counts: Any, rounds: Rounds, tilt: Floats, delta: float, lower: bool, people: Whole, xp: Any, *, close: bool = False
) -> Iterator[tuple[Whole, tuple[Group, Group]]]:
    """Everybody, in groups of similar spread; both directions of each.

    Args:
        counts: (n, j) whole numbers >= 0, private.
        rounds: (j,) public, of finite loss.
        tilt: (m,) each person's, 0 or one of TILTS.
        delta: public: what the windows of tilt 0 are sized for.
        lower: for lower bounds.
        people: (m,) rows with any round at all.
        xp: the counts' array namespace.
        close: under a tilt, charge less and take longer: for people most of whose losses are far below their epsilon.
    """
    for each in np.unique(tilt).tolist():
        who = people[tilt == each]
        tolerance = (_LOSS_CLOSE if close else _LOSS_TILTED) if each else _LOSS * delta
        plan = _plan(counts, _sides(rounds, lower, each), tolerance, lower, who, xp)
        fits = plan.width <= _WIDEST
        kinds = np.stack([plan.width, plan.cap, plan.fine], axis=1)
        for kind in np.unique(kinds[fits], axis=0):
            index = np.flatnonzero((kinds == kind).all(axis=1))
            sides = _sides(rounds, lower, each, bool(kind[2]))
            shape = _Shape(each, float(kind[0]), int(kind[1]))
            for part in _chunks(index):
                rows = _rows(counts, who[part], xp)
                for mine, pair in _alike(rows, sides, plan.rounds[part], shape, tolerance, lower, xp):
                    yield who[part[mine]], pair


def _alike(
    rows: Any, sides: _Sides, rounds: Floats, shape: _Shape, tolerance: float, lower: bool, xp: Any
) -> Iterator[tuple[Whole, tuple[Group, Group]]]:
    """People of one kind, by the number of frequencies that they need."""
    rows, used = _used(rows, sides, xp)
    limit = tolerance if shape.tilt else tolerance / shape.scale
    tier, cost = _tier(rows, used, shape, limit, xp)
    for chosen in np.unique(tier):
        count = _spectra.tiers(shape.cap)[chosen]
        for mine in _chunks(np.flatnonzero(tier == chosen), max(1, _ENTRIES // (2 * count))):
            some = xp.take(rows, xp.asarray(mine, device=device(rows)), axis=0)
            shared = some, shape, count, (cost[mine, chosen], limit), rounds[mine], lower, xp
            yield mine, (_group(used[0], *shared), _group(used[1], *shared))


def _used(rows: Any, sides: _Sides, xp: Any) -> tuple[Any, _Sides]:
    """Without the kinds of rounds that none of these people took part in."""
    kept = np.flatnonzero(np.asarray(to_device(xp.any(rows > 0, axis=0), "cpu")))
    rows = xp.take(rows, xp.asarray(kept, device=device(rows)), axis=1)
    return rows, (sides[0].some(kept), sides[1].some(kept))


def _group(
    side: _Side,
    rows: Any,
    shape: _Shape,
    count: int,
    costs: tuple[Floats, float],
    rounds: Floats,
    lower: bool,
    xp: Any,
) -> Group:
    """One direction of a group: the characteristic functions, and what is charged to delta and to epsilon."""
    tilt, width, blur = shape.tilt, shape.width, shape.blur
    matrix, rounding = _matrix(side, shape, count, host(xp.max(rows, axis=0)))
    ends = side.down if lower else side.up
    sums = host(xp.matmul(rows, on(np.concatenate([side.sums, ends], axis=1), rows, xp)))
    mean, means, ceiling, xi, grown, sizes = sums[:, :6].T
    exponent = sums[:, 6:] + (_spectra.TILTS * blur) ** 2 / 2 - _spectra.TILTS * width
    wrapped = np.exp(exponent.min(axis=1) + 1e-13 * (1 + rounds)) / (1 + tilt)
    logs = xp.matmul(rows, on(matrix, rows, xp))
    k = np.arange(1.0, count + 1)
    size = xp.exp(logs[:, :count] + on(-((pi * k / width * blur) ** 2) / 2, rows, xp))
    angle = logs[:, count:]
    series = xp.concat([size * xp.cos(angle), size * xp.sin(angle)], axis=1)
    terms = (len(side.laws) + 64) * _ULP
    spare = 2 * xi + terms * (means + width)
    middle = mean + (0.5 + tilt) * blur**2
    height = grown + (tilt + tilt**2) * blur**2 / 2 - tilt * middle
    doubt = terms * (sizes + tilt * (means + blur**2 * (1 + tilt) + width) + 1)
    shrink = np.exp(-xi)
    charge = costs[0] * shape.scale + wrapped + rounding
    shared = shrink, charge + costs[1] * shape.scale, tilt, width, count, blur
    if lower:
        return Group(series, middle - spare, height - doubt, charge / shrink, 0.0 * ceiling, *shared)
    return Group(series, middle + spare, height + doubt, charge, ceiling, *shared)

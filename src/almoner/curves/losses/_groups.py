"""Compute characteristic functions of people's composed losses in groups, and bound every error that this makes.

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

from collections.abc import Iterator
from dataclasses import dataclass
from math import log, pi

import numpy as np
from array_api_compat import device, to_device

from almoner._arrays import Array, Library
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.curves.losses._spectra import TILTS, columns, frequency_counts
from almoner.curves.losses._windows import (
    Direction,
    Integers,
    Rounds,
    Window,
    chunks,
    cutoff_errors,
    directions,
    on,
    placed,
    rows_of,
    to_host,
    tolerance,
)

SUM_BLOCK = 1024  # terms of a sum over frequencies that are added up at once
SERIES_ENTRIES = 2**24  # most numbers in one group's series


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

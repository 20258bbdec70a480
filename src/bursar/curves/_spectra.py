"""Characteristic functions of the laws, as columns of a matrix: one row per kind of round, one column per frequency.

Names and symbols
    W       half the length of the window outside which nothing is computed; nats
    cap     frequencies above pi cap / W are silenced by one round of Gaussian noise, blur = 9 W / (pi cap)
    tiers   how many frequencies may be used; the rest is bounded range by range

Losses are counted from their means: a column of a person's logarithm is then small wherever it matters.

Source: theory 7.1, 7.2; docs/proofs/losses.md, sections 3 to 5.
"""

import itertools
from dataclasses import dataclass
from functools import lru_cache
from math import pi

import numpy as np
from numpy.typing import NDArray

from bursar.curves._laws import Law, Normal

__all__ = ["BLUR", "TILTS", "Columns", "Tails", "columns", "moments", "tails", "tiers"]

Floats = NDArray[np.float64]

TILTS: Floats = 2.0 ** np.arange(-4, 13.5, 0.5)
"""Where moment generating functions are known."""

BLUR = 9.0
"""The noise added is such that its characteristic function at the cap is exp(-BLUR**2 / 2)."""

_ULP = 2.0**-52
_FLOOR = -700.0


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Logarithms of one law's centred characteristic function at pi k / W, k = 1..K, and what they may be off by."""

    real: Floats
    imaginary: Floats
    error: Floats  # absolute error of the characteristic function itself


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """For each range of frequencies between tiers, the least -log|characteristic function| in it, rounded down."""

    least: Floats


def tiers(cap: int) -> tuple[int, ...]:
    """Numbers of frequencies that may be used: 8 * 2, 3, 4, 6, 8, 12, ... up to the cap."""
    steps = sorted({n for j in range(4, 18) for n in (2**j, 3 * 2 ** (j - 1))})
    return tuple(n for n in steps if 16 <= n <= cap)


@lru_cache(maxsize=8192)
def moments(law: Law | Normal) -> tuple[Floats, Floats]:
    """Log moment generating functions of the centred loss at +TILTS and at -TILTS."""
    if isinstance(law, Normal):
        square = TILTS**2 * law.square / 2
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
    return np.clip(real, _FLOOR, 0.0), np.arctan2(odd, 1 - short)


def _direct(law: Law, frequencies: Floats) -> Columns:
    """Sums of 1 - cos and, at low frequencies, of sin - angle: accurate however near to one the function is."""
    angles = np.outer(law.losses - law.mean, frequencies)
    short = law.masses @ (2 * np.sin(angles / 2) ** 2)
    spread = law.variance**0.5
    slow = frequencies * spread < 1
    bent = np.where(slow, _sine_less_angle(angles), np.sin(angles))
    odd = law.masses @ bent
    error = (law.size + 64) * _ULP * (short + law.masses @ np.abs(bent))
    error += np.where(slow, 0.0, 8 * _ULP * frequencies * (spread + abs(law.mean)))
    return Columns(*_logarithm(short, odd), error)


def _values(law: Law, theta: float, count: int) -> tuple[NDArray[np.complex128], float]:
    """The centred characteristic function at theta * (0 .. count - 1), as one product of two short matrices."""
    centred = law.losses - law.mean
    side = int(np.ceil(np.sqrt(count)))
    steps = np.arange(side)
    fine = np.exp(1j * np.outer(steps * theta, centred))
    coarse = np.exp(1j * np.outer(steps * (side * theta), centred))
    values = np.asarray(((coarse * law.masses) @ fine.T).ravel()[:count], dtype=np.complex128)
    spread = float(law.masses @ np.abs(centred))
    return values, (law.size + 64 + 4 * count * theta * spread) * 2 * _ULP


_AT_ONCE = 2048


@lru_cache(maxsize=20_000)
def columns(law: Law | Normal, width: float, count: int) -> Columns:
    """The columns 1..count for the window [-width, width)."""
    theta = pi / width
    frequencies = np.asarray(theta * np.arange(1, count + 1), dtype=np.float64)
    if isinstance(law, Normal):
        real = np.maximum(-(frequencies**2) * law.square / 2, _FLOOR)
        return Columns(real, np.zeros(count), -8 * _ULP * real * np.exp(real))
    parts = [_direct(law, frequencies[i : i + _AT_ONCE]) for i in range(0, count, _AT_ONCE)]
    return Columns(
        np.concatenate([p.real for p in parts]),
        np.concatenate([p.imaginary for p in parts]),
        np.concatenate([p.error for p in parts]),
    )


@lru_cache(maxsize=20_000)
def tails(law: Law | Normal, width: float, cap: int) -> Tails:
    """The least -log|characteristic function| in each range (tier, next tier], rounded down."""
    edges = tiers(cap)
    theta = pi / width
    if isinstance(law, Normal):
        return Tails(np.asarray([(theta * low) ** 2 * law.square / 2 for low in edges[:-1]]) * (1 - 8 * _ULP))
    values, error = _values(law, theta, cap + 1)
    sizes = np.minimum(np.abs(values) + error, 1.0)
    highest = [sizes[low + 1 : high + 1].max() for low, high in itertools.pairwise(edges)]
    return Tails(-np.log(np.asarray(highest)) * (1 - 8 * _ULP))

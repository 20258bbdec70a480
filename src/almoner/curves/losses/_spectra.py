"""Characteristic functions of the laws: their logarithms at many frequencies, with rounding errors.

Names and symbols
    W        half the length of the window outside which nothing is computed; nats
    theta    pi / W, the first frequency; frequency k is k theta
    cap      frequencies above cap theta are silenced by one round of Gaussian noise, blur = BLUR W / (pi cap)
    short    E(1 - cos y) of an angle y = frequency times centred loss; the real part is 1 - short
    odd      E sin y, or E(sin y - y) where frequencies are low ("bent"): the imaginary part

Losses are counted from their means: the logarithms, which add up over rounds, are then small wherever they matter.

Source: theory 7.1, 7.2; docs/proofs/losses.md, sections 3 to 5.
"""

import itertools
from dataclasses import dataclass
from functools import lru_cache
from math import pi

import numpy as np

from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.curves._grid.laws import Law, Normal

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


def _product(left: Floats, right: Floats) -> Floats:
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
    cross_short = _product(sine_a, sine_b) - _product(short_a, short_b)
    cross_odd = _product(sine_a, short_b) + _product(short_a, sine_b)
    ones, weights = np.ones((1, len(law.losses))), masses[None]
    shorts = _product(short_a, ones) + _product(weights, short_b)
    short = (shorts + cross_short).ravel()[: high - low]
    odd = (_product(bent_a, ones) + _product(weights, bent_b) - cross_odd).ravel()[: high - low]
    size = 4 * shorts + _product(np.abs(bent_a), ones) + _product(weights, np.abs(bent_b))
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
    even = _product(lead, cosine) - _product(lag, sine)
    odd = _product(lag, cosine) + _product(lead, sine)
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
    parts = [_range(law, theta, low, high) for low, high in itertools.pairwise(edges) if low < high]
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
    highest = [absolute[low + 1 : high + 1].max() for low, high in itertools.pairwise(edges)]
    return np.asarray(-np.log(np.asarray(highest)) * (1 - 8 * ULP))

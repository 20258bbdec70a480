"""Fourier coefficients of laws on a grid.

A law that is composed often has few coefficients that matter, the first ones. They are smooth functions of the losses:
on blocks of neighbouring losses they are Taylor sums, whose terms are transforms of a size that suits their number.
"""

from math import factorial, floor, log2, pi

import numpy as np
from numpy.typing import NDArray
from scipy import fft

Spectrum = NDArray[np.complexfloating]
Floats = NDArray[np.floating]

SMALLEST_BLOCK = 64  # smaller blocks save nothing: the plain transform is used
TERMS = 16  # terms of Taylor's formula, at angles up to 1/4: the rest is below 2e-23


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


def block_for(size: int, live: int) -> int:
    """Size of a block for this many coefficients of a transform of a size: a power of two, or 0."""
    places = size / (4 * pi * live)
    return 1 << floor(log2(places)) if places >= SMALLEST_BLOCK else 0


def first_coefficients(places: NDArray[np.int64], weights: Floats, size: int, live: int, turn: Floats) -> Spectrum:
    """The first Fourier coefficients of weights >= 0 at some places of a circle, in the precision of the weights.

    Args: live, how many, with ``block_for(size, live) > 0``; turn, two pi in that precision.

    Each has an error of at most 16 (2 + log2 size) units of the precision, and 2e-23, times the sum of the weights.
    """
    block = block_for(size, live)
    place = places % size
    order = np.argsort(place, kind="stable")
    place, weights = place[order], weights[order]
    offset = (place % block - block // 2).astype(weights.dtype) / (block // 2)
    powers = np.empty((TERMS, len(weights)), weights.dtype)
    powers[0] = weights
    for term in range(1, TERMS):
        powers[term] = powers[term - 1] * offset
    which, sums = _added_up(place // block, powers)
    moments = np.zeros((TERMS, size // block), weights.dtype)
    moments[:, which] = sums
    parts = fft.rfft(moments, axis=1)[:, :live]
    angle = turn * (np.arange(live, dtype=weights.dtype) * (block // 2) / size)
    total = np.zeros(live, parts.dtype)
    for term in reversed(range(TERMS)):
        total = total + parts[term] * ((-1j) ** term * angle**term / factorial(term))
    return np.asarray(total * np.exp(-1j * angle))


def _added_up(blocks: NDArray[np.int64], rows: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Each block's sums, neighbours first: few roundings each."""
    while True:
        rank = np.arange(len(blocks)) - np.searchsorted(blocks, blocks)
        odd = np.flatnonzero(rank % 2)
        if not len(odd):
            return blocks, rows
        rows[:, odd - 1] += rows[:, odd]
        kept = rank % 2 == 0
        blocks, rows = blocks[kept], rows[:, kept]


def sums_from_above(values: Floats) -> Floats:
    """Sum the values at and above each place, in blocks, with few roundings each; their number is a power of two."""
    block = 1 << len(values).bit_length() // 2
    sums = np.cumsum(values[::-1].reshape(-1, block), axis=1)
    sums[1:] += np.cumsum(sums[:-1, -1])[:, None]
    return np.asarray(sums.ravel()[::-1])


def longest_sum(size: int) -> int:
    """Return the most numbers that are added one after the other in such a sum."""
    block = 1 << size.bit_length() // 2
    return block + size // block + 1

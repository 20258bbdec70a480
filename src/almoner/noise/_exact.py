"""Decide single draws exactly: numbers whose bits are drawn when needed, and bounds in whole-number arithmetic.

Names and symbols
    law    a density on [0, inf) proportional to exp(-f), in cells of width 1/parts; f(0) = 0, f increasing and convex
    j      the number of a cell: [j/parts, (j+1)/parts)
    w      where in its cell a number is, in [0, 1)
    C_j    the probability of the cells before j, if cell i has a probability proportional to exp(-f(i/parts))
"""

import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

__all__ = [
    "EXPONENTIAL",
    "GAUSSIAN",
    "Bits",
    "Law",
    "Uniform",
    "accepts",
    "cell_of",
    "cumulative",
    "exp_bounds",
    "surely_accepted",
]

Bits = Callable[[int], bytes]
"""Gives so many random bytes."""


@dataclass(frozen=True, slots=True)
class Law:
    """A density on [0, inf) proportional to exp(-x**power / power), and the width 1/parts of its cells."""

    power: int
    parts: int

    def exponent(self, x: Fraction) -> Fraction:
        """f(x)."""
        return x**self.power / self.power

    def rise(self, cell: int, where: Fraction) -> Fraction:
        """F at a place in a cell, less f at the cell's beginning: increasing in the place."""
        begin = Fraction(cell, self.parts)
        return self.exponent(begin + where / self.parts) - self.exponent(begin)


GAUSSIAN = Law(power=2, parts=16)
EXPONENTIAL = Law(power=1, parts=8)


class Uniform:
    """A number in [0, 1) of which some bits are known; the others are uniform, and drawn when needed."""

    __slots__ = ("_bits", "count", "value")

    def __init__(self, value: int, count: int, bits: Bits = os.urandom) -> None:
        self.value, self.count, self._bits = value, count, bits

    def more(self) -> None:
        """Draw 64 more bits."""
        self.value = self.value << 64 | int.from_bytes(self._bits(8), "little")
        self.count += 64

    @property
    def low(self) -> Fraction:
        """The least that the number can be."""
        return Fraction(self.value, 1 << self.count)

    @property
    def high(self) -> Fraction:
        """Upper bound of the number, exclusive."""
        return Fraction(self.value + 1, 1 << self.count)


def exp_bounds(x: Fraction, bits: int) -> tuple[int, int]:
    """Whole numbers around 2**bits * exp(-x), for x >= 0.

    Guarantee: low <= 2**bits * exp(-x) <= high.
    Source: docs/proofs/noise.md, section 3.
    """
    halvings = max(0, (x.numerator // x.denominator).bit_length() + 4)
    places = bits + 2 * halvings + 32
    one = 1 << places
    y_low = (x.numerator << places) // (x.denominator << halvings)
    y_high = y_low + 1
    low = high = term_low = term_high = one
    k = 0
    while term_high > 1:  # the terms fall, and alternate: the sum lies between two partial sums
        k += 1
        term_low = term_low * y_low // (k << places)
        term_high = -(-term_high * y_high // (k << places))
        low, high = (low - term_high, high - term_low) if k % 2 else (low + term_low, high + term_high)
    low, high = max(0, low - term_high), min(one, high + term_high)
    for _ in range(halvings):
        low, high = low * low >> places, -(-high * high >> places)
    spare = places - bits
    return low >> spare, -(-high >> spare)


@lru_cache(maxsize=8)
def cumulative(law: Law, bits: int) -> tuple[list[int], list[int]]:
    """Bounds on 2**bits * C_j for j = 1, 2, ..., until C_j is within about 2**-bits of 1; both lists increase.

    Guarantee: low <= 2**bits * C_j <= high, for each j.
    Source: docs/proofs/noise.md, section 3.
    """
    places = bits + 64
    weights: list[tuple[int, int]] = []
    while not weights or weights[-1][1] >> 32:
        weights.append(exp_bounds(law.exponent(Fraction(len(weights), law.parts)), places))
    count = len(weights)
    next_weight = exp_bounds(law.exponent(Fraction(count, law.parts)), places)[1]
    ratio = exp_bounds(law.rise(count, Fraction(1)), places)[1]  # later weights fall at least as fast: f is convex
    tail = -(-(next_weight << places) // ((1 << places) - ratio))
    lows, highs = (list(accumulate(ends)) for ends in zip(*weights, strict=True))
    all_low, all_high = lows[-1], highs[-1] + tail
    return [(low << bits) // all_high for low in lows], [-(-(high << bits) // all_low) for high in highs]


def surely_accepted(law: Law, cells: int, bits: int) -> list[int]:
    """For each of the first cells a bound on 2**bits times a uniform number, below which all of the cell is accepted.

    Guarantee: bound <= 2**bits * exp(-rise(cell, where)), wherever in the cell.
    Source: docs/proofs/noise.md, section 3.
    """
    return [exp_bounds(law.rise(cell, Fraction(1)), bits)[0] for cell in range(cells)]


def cell_of(law: Law, uniform: Uniform) -> int:
    """The cell j with C_j <= uniform < C_(j+1)."""
    while True:
        lows, highs = cumulative(law, uniform.count)
        cell = bisect_right(highs, uniform.value)
        if cell < len(highs) and bisect_right(lows, uniform.value) == cell:
            return cell
        uniform.more()


def accepts(law: Law, cell: int, where: Uniform, uniform: Uniform) -> bool:
    """True if uniform < exp(-rise(cell, where)); bits of both are drawn until it is certain."""
    while True:
        places = uniform.count + 32
        if uniform.high * 2**places <= exp_bounds(law.rise(cell, where.high), places)[0]:
            return True
        if uniform.low * 2**places >= exp_bounds(law.rise(cell, where.low), places)[1]:
            return False
        uniform.more()
        where.more()

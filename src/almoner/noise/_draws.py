"""Draw many numbers at once, in whole-number arithmetic; what its 64 bits do not decide is decided one by one.

A draw from a law: a cell j by the probabilities exp(-f(j/parts)), a uniform place w in it, accepted
with probability exp(f(j/parts) - f((j+w)/parts)). Then x = (j+w)/parts has the law, and the bits of w that were not
needed are still uniform. A scale times x is rounded by the 128-bit product of the scale's 53 bits and of j and w.

Names and symbols
    law    a density on [0, inf) proportional to exp(-f), in cells of width 1/parts; f(0) = 0, f increasing and convex
    j      the number of a cell: [j/parts, (j+1)/parts)
    w      where in its cell a number is, in [0, 1)
    C_j    the probability of the cells before j, if cell i has a probability proportional to exp(-f(i/parts))
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import factorial, inf
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner.errors import ArgumentError

Bits = Callable[[int], bytes]  # gives so many random bytes


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
    y_high, k = y_low + 1, 0
    low = high = term_low = term_high = one
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
    return _shares(weights, -(-(next_weight << places) // ((1 << places) - ratio)), bits)


def _shares(weights: Sequence[tuple[int, int]], tail: int, bits: int) -> tuple[list[int], list[int]]:
    """Bounds on 2**bits times the share of the first weights in all, from bounds on each and on the rest, ``tail``."""
    lows, highs = (list(accumulate(ends)) for ends in zip(*weights, strict=True))
    all_low, all_high = lows[-1], highs[-1] + tail
    return [(low << bits) // all_high for low in lows], [-(-(high << bits) // all_low) for high in highs]


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


_BLOCK = 8192
_PREFIX = 15  # bits of the cell, and 16 of the acceptance, that are drawn for every number
_BEYOND = 2**62
_LARGEST_SCALE = 2**53
_MARGIN = 2.0**-43
_OFF = 2.0**-30  # of the sum of weights in doubles: far above what it may be off
_TERMS = [(-1) ** k / factorial(k) for k in range(20)]
_LOW = np.uint64(2**32 - 1)
_32, _48, _49, _11 = np.uint64(32), np.uint64(48), np.uint64(49), np.uint64(11)

Words = NDArray[np.uint64]
Places = NDArray[np.intp]
Whole = NDArray[np.int64]


def rounded_gaussian(sigma: float | Fraction | NDArray[np.float64], *, size: int) -> Whole:
    """Normal random numbers, each rounded to the nearest whole number.

    Args:
        sigma: the standard deviation before rounding, public, in (0, 2**53); or (size,), one for each number.
        size: how many.

    Returns:
        (size,) int64; beyond 2**62, which no draw in 10**50000 is, they are cut off there.

    Raises:
        ArgumentError: sigma or size is out of its range.

    Guarantee: each number is k with probability Phi((k + 1/2) / sigma) - Phi((k - 1/2) / sigma) exactly, independently
        of the others, if the operating system's random bits are independent and fair. Added to whole numbers that move
        by at most s in L2 norm, the noise is (s / sigma)-GDP and (s**2 / (2 sigma**2))-zCDP.
    Source: docs/proofs/noise.md, Theorems 1 and 2.
    """
    return _rounded(sigma, size, os.urandom)


def discrete_laplace(scale: float | Fraction, *, size: int) -> Whole:
    """Random whole numbers k with probabilities proportional to exp(-abs(k) / scale).

    They are (size,) int64, for a scale, public, in (0, 2**53); beyond 2**62, which no draw in 10**200 is, they are cut
    off there. ArgumentError: scale or size is out of its range.

    Guarantee: the probabilities are exact, and the numbers independent, if the operating system's random bits are
        independent and fair. Added to whole numbers that move by at most s in L1 norm, the noise is (s / scale)-DP.
    Source: docs/proofs/noise.md, Theorems 1 and 3.
    """
    if isinstance(scale, np.ndarray):
        raise ArgumentError("scale must be one number, not an array")
    return _laplace(scale, size, os.urandom)


def choice(losses: Sequence[int], rate: float | Fraction, *, weights: Sequence[int] | None = None) -> int:
    """A random place, with a probability proportional to weights * exp(-rate * losses).

    Args:
        losses: (n,) whole numbers of any size, n up to 2**20, private: how bad each place is.
        rate: public, above 0.
        weights: (n,) whole numbers from 1 to 2**53, public; None for 1 each.

    Returns:
        Place, from 0 to n - 1.

    Raises:
        ArgumentError: there is no place, or the rate or a weight is out of its range.

    Guarantee: the probabilities are exact, if the operating system's random bits are independent and fair. Where rate
        times losses moves by d, largest less smallest over the places, the logarithms of the probabilities move within
        a range of d.
    Source: docs/proofs/chosen-quantiles.md, Theorems 1 and 2.
    """
    rate = Fraction(rate) if 0 < rate < inf else Fraction(0)
    weights = [1] * len(losses) if weights is None else weights
    if not rate or not 0 < len(losses) == len(weights) <= 2**20 or not all(0 < each <= 2**53 for each in weights):
        raise ArgumentError("choice: give a rate > 0, 1 to 2**20 losses, and as many weights from 1 to 2**53")
    return _choice(losses, rate, weights, os.urandom)


def _choice(losses: Sequence[int], rate: Fraction, weights: Sequence[int], bits: Bits) -> int:
    """``choice`` with given bits: by doubles where these decide it for certain, else by bounds on all weights."""
    least, far = min(losses), 10**4 * rate.denominator // rate.numerator + 1  # exp(-10000) is nothing in doubles
    above = [loss - least for loss in losses]
    exponents = np.array([min(each, far) * rate.numerator / rate.denominator for each in above])
    sizes = np.array(weights, np.float64) * np.exp(-exponents)
    ends, number = np.cumsum(sizes), Uniform(int.from_bytes(bits(8), "little"), 64, bits)
    place = ends[-1] * float(number.low)
    around = np.searchsorted(ends, [place - ends[-1] * _OFF, place + ends[-1] * _OFF], side="right")
    if around[0] == around[1] < len(ends):
        return int(around[0])
    while True:
        places = number.count + 64
        bounds = [exp_bounds(rate * each, places) for each in above]
        known = [(low * each, high * each) for (low, high), each in zip(bounds, weights, strict=True)]
        lows, highs = _shares(known, 0, number.count)
        chosen = bisect_right(highs, number.value)
        if chosen < len(highs) and bisect_right(lows, number.value) == chosen:
            return chosen
        number.more()


def _rounded(sigma: float | Fraction | NDArray[np.float64], size: int, bits: Bits) -> Whole:
    numbers, negative = _draw(GAUSSIAN, _scale("sigma", sigma, size, GAUSSIAN), size, bits)
    np.negative(numbers, out=numbers, where=negative)
    return numbers


def _laplace(scale: float | Fraction, size: int, bits: Bits) -> Whole:
    """``discrete_laplace`` with given bits: an exponential number rounded down, and a sign; zero has only one."""
    numbers = np.empty(0, np.int64)
    scales = _scale("scale", scale, size, EXPONENTIAL)
    while len(numbers) < size:
        sizes, negative = _draw(EXPONENTIAL, scales, size - len(numbers), bits)
        np.negative(sizes, out=sizes, where=negative)
        numbers = np.concatenate([numbers, sizes[(sizes != 0) | ~negative]])
    return numbers


class _Scale(NamedTuple):
    """A scale as mantissa * 2**-(shift + 64) * parts, of which only the shift is cut off; one, or for each number."""

    exactly: Fraction | NDArray[np.float64]
    mantissa: Words  # 53 bits, rounded down
    shift: Words  # in [1, 63]; 63 also stands for more, where every number of a table is rounded to 0
    rounded: bool  # whether the mantissa was rounded

    def part(self, start: int, count: int) -> "_Scale":
        """The scales of some numbers."""
        if isinstance(self.exactly, Fraction):
            return self
        some = slice(start, start + count)
        return _Scale(self.exactly[some], self.mantissa[some], self.shift[some], self.rounded)

    def at(self, place: int) -> Fraction:
        """The scale of one number."""
        return self.exactly if isinstance(self.exactly, Fraction) else Fraction(float(self.exactly[place]))


def _scale(name: str, value: float | Fraction | NDArray[np.float64], size: int, law: Law) -> _Scale:
    """Check and take apart a scale, or one for each number."""
    _check.whole(0, size=size)
    if isinstance(value, np.ndarray):
        if value.shape != (size,) or value.dtype != np.float64:
            raise ArgumentError(f"{name}: {value.dtype} of shape {value.shape} must be float64 of shape ({size},)")
        if not bool(np.all((value > 0) & (value < _LARGEST_SCALE))):
            raise ArgumentError(f"{name}: each entry must be in (0, 2**53)")
        parts, exponents = np.frexp(value)
        mantissa = np.ldexp(parts, 53).astype(np.uint64)
        return _Scale(value, mantissa, _shift(exponents, law), rounded=False)
    if not isinstance(value, Fraction):
        _check.number(**{name: value})
    if not 0 < value < _LARGEST_SCALE:
        raise ArgumentError(f"{name}={value!r} must be in (0, 2**53)")
    exactly = Fraction(value)
    exponent = exactly.numerator.bit_length() - exactly.denominator.bit_length() + 1
    exponent -= exactly < Fraction(2) ** (exponent - 1)  # now 2**(exponent - 1) <= scale < 2**exponent
    whole = exactly * Fraction(2) ** (53 - exponent)
    mantissa = np.asarray(int(whole), np.uint64)
    return _Scale(exactly, mantissa, _shift(np.asarray(exponent), law), rounded=whole.denominator > 1)


def _shift(exponents: NDArray[np.integer], law: Law) -> Words:
    """By how much the upper words are shifted, for scales below 2**exponents."""
    return cast(Words, np.clip(53 + law.parts.bit_length() - 1 - exponents, 1, 63).astype(np.uint64))


@dataclass(frozen=True, slots=True)
class _Table:
    """Table of what the first bits decide, for one law."""

    lows: Words  # (cells,): C_j is in [low, high] / 2**64 for j = 1, 2, ...
    highs: Words
    cell: NDArray[np.int16]  # (2**15,) the cell, if the first 15 bits decide it, else -1
    quick: NDArray[np.uint16]  # (cells + 1,): below it, 16 bits accept all of the cell, wherever in it; 0 at -1


@lru_cache(maxsize=2)
def _table(law: Law) -> _Table:
    bounds = [(low, high) for low, high in zip(*cumulative(law, 64), strict=True) if high < 2**64]
    lows, highs = (np.array(ends, np.uint64) for ends in zip(*bounds, strict=True))
    prefixes = np.arange(2**_PREFIX, dtype=np.uint64) << _49
    first = np.searchsorted(highs, prefixes, side="right")
    last = np.searchsorted(lows, prefixes | np.uint64(2**49 - 1), side="right")
    decided = (first == last) & (first < len(highs))
    quick = [exp_bounds(law.rise(cell, Fraction(1)), 16)[0] for cell in range(len(highs))]
    return _Table(lows, highs, np.where(decided, first, -1).astype(np.int16), np.array([*quick, 0], np.uint16))


class _Draws(NamedTuple):
    """Numbers (cell + where / 2**64) / parts of a law, each with a sign; all are (n,)."""

    cell: Words
    where: Words
    negative: NDArray[np.bool_]
    single: dict[int, tuple[int, Uniform]]  # by place, the numbers that were decided one by one: cell, and where in it


def _draws(law: Law, count: int, bits: Bits) -> _Draws:
    """Propose so many numbers; return those that are accepted, in their order."""
    table = _table(law)
    drawn = bits(12 * count)
    where = np.frombuffer(drawn, np.uint64, count)
    others = np.frombuffer(drawn, np.uint32, count, 8 * count)
    cell = table.cell[(others >> np.uint32(16)) & np.uint32(2**_PREFIX - 1)].astype(np.intp)
    accepted = (others & np.uint32(2**16 - 1)) < table.quick[cell]
    open_places = np.flatnonzero(~accepted)
    cells, decisions, single = _decided(law, where[open_places], others[open_places], bits)
    cell[open_places], accepted[open_places] = cells, decisions
    before = np.cumsum(accepted) if single else accepted
    return _Draws(
        cell[accepted].astype(np.uint64),
        where[accepted],
        (others[accepted] >> np.uint32(31)).astype(np.bool_),
        {int(before[open_places[place]]) - 1: number for place, number in single.items()},
    )


def _decided(
    law: Law, where: Words, others: NDArray[np.uint32], bits: Bits
) -> tuple[Places, NDArray[np.bool_], dict[int, tuple[int, Uniform]]]:
    """Cells and acceptances, by 64 bits for each; and by place those accepted one by one, where these leave it open."""
    count, table, power = len(where), _table(law), law.power
    more = np.frombuffer(bits(16 * count), np.uint64)
    first = others.astype(np.uint64)
    choice = (first >> np.uint64(16)) << _49 | more[:count] >> np.uint64(_PREFIX)  # the sign is shifted out
    chance = first << _48 | more[count:] >> np.uint64(16)
    cell = np.searchsorted(table.highs, choice, side="right")
    known = (np.searchsorted(table.lows, choice, side="right") == cell) & (cell < len(table.highs))
    place = (where >> _11) * 2.0**-53
    rise = (2.0 * cell + place) * place / (2.0 * law.parts**2) if power == 2 else place / law.parts
    total = np.full(count, _TERMS[-1])
    for term in reversed(_TERMS[:-1]):
        total = total * rise + term
    difference = (chance >> _11) * 2.0**-53 - total
    accepted = known & (difference < -_MARGIN)
    single = {}
    for at in np.flatnonzero(~known | (np.abs(difference) <= _MARGIN)):
        chosen = cell_of(law, Uniform(int(choice[at]), 64, bits))
        number = Uniform(int(where[at]), 64, bits)
        accepted[at] = accepts(law, chosen, number, Uniform(int(chance[at]), 64, bits))
        cell[at] = 0
        if accepted[at]:
            single[int(at)] = chosen, number
    return cell, accepted, single


def _draw(law: Law, scale: _Scale, size: int, bits: Bits) -> tuple[Whole, NDArray[np.bool_]]:
    """Sizes of scaled numbers of a law, rounded to the nearest if it is Gaussian and else down; and signs."""
    numbers, negative, done = np.empty(size, np.int64), np.empty(size, np.bool_), 0
    while done < size:
        draws = _draws(law, min(_BLOCK, int((size - done) * 1.06) + 8), bits)
        count = min(len(draws.cell), size - done)
        here = slice(done, done + count)
        numbers[here] = _scaled(law, scale.part(done, count), draws, count, bits)
        negative[here] = draws.negative[:count]
        done += count
    return numbers, negative


def _scaled(law: Law, scale: _Scale, draws: _Draws, count: int, bits: Bits) -> Whole:
    """Scale numbers and round them, by the 128 bits of the scale's mantissa times (cell * 2**64 + where).

    That product is below 2**126; the number is it over 2**(shift + 64), and the upper 64 bits decide nearly always.
    """
    cell, where = draws.cell[:count], draws.where[:count]
    low, high = scale.mantissa & _LOW, scale.mantissa >> _32
    where_low, where_high = where & _LOW, where >> _32
    middle, bottom = low * where_high, low * where_low
    carried = (bottom >> _32) + (middle & _LOW) + high * where_low
    upper = scale.mantissa * cell + high * where_high + (middle >> _32) + (carried >> _32)
    lower = carried << _32 | bottom & _LOW
    # what the next place gives: one mantissa more; a mantissa that was rounded is short by less than 1
    beyond = cell + np.uint64(2) if scale.rounded else (lower + scale.mantissa < lower).astype(np.uint64)
    half = law.power == 2
    if half:
        upper += np.uint64(1) << scale.shift - np.uint64(1)
    whole = upper >> scale.shift
    numbers: Whole = whole.astype(np.int64)
    open_places = np.flatnonzero(upper + beyond >> scale.shift != whole)
    single = {int(at): (int(cell[at]), Uniform(int(where[at]), 64, bits)) for at in open_places}
    for at, (chosen, number) in {**single, **draws.single}.items():
        if at < count:
            numbers[at] = _scaled_one(law, scale.at(at), chosen, number, half=half)
    return numbers


def _scaled_one(law: Law, scale: Fraction, cell: int, where: Uniform, *, half: bool) -> int:
    """Scale and round a number; bits of it are drawn until the result is certain."""
    step, more = scale / law.parts, Fraction(1, 2) if half else 0
    while True:
        lowest = (cell + where.low) * step + more
        highest = (cell + where.high) * step + more  # which the number does not reach
        if highest <= lowest.__floor__() + 1:
            return min(lowest.__floor__(), _BEYOND)
        where.more()

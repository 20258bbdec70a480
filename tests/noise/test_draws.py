"""Many draws: each is what exact arithmetic makes of the same bits, with the stated probabilities."""

import os
from bisect import bisect_right
from collections import Counter
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import stats

from almoner import noise
from almoner.errors import ArgumentError
from almoner.noise import _draws
from almoner.noise._draws import EXPONENTIAL, GAUSSIAN
from noise_bits import Replayed, laplace_probability, rounded_probability, thresholds

LAWS = [GAUSSIAN, EXPONENTIAL]
DRAWS = 300_000


def expected(probability, parameter, reach):
    """Exact probabilities of -reach ... reach, and of all else."""
    with mp.workdps(60):
        exact = [probability(k, mpf(parameter)) for k in range(-reach, reach + 1)]
        return np.array([*map(float, exact), float(1 - mp.fsum(exact))])


def p_value(numbers, probabilities, reach):
    """Of the chi-square test; cells that expect fewer than ten are put together."""
    inside = numbers[np.abs(numbers) <= reach] + reach
    counts = np.append(np.bincount(inside, minlength=2 * reach + 1), len(numbers) - len(inside))
    small = probabilities * len(numbers) < 10
    counts, probabilities = (np.append(each[~small], each[small].sum()) for each in (counts, probabilities))
    if probabilities[-1] * len(numbers) < 1:
        assert counts[-1] < 20
        counts, probabilities = counts[:-1], probabilities[:-1] / probabilities[:-1].sum()
    return stats.chisquare(counts, counts.sum() * probabilities).pvalue


@pytest.mark.parametrize("law", LAWS)
def test_every_entry_of_the_tables_is_right(law):
    """Each of the 2**15 prefixes names the cell that holds for all that may follow; each quick bound is below exp."""
    table = _draws._table(law)
    with mp.workdps(60):
        exact = [int(mp.floor(each * mpf(2) ** 64)) for each in thresholds(law.power, law.parts)]
        undecided = 0
        for prefix, cell in enumerate(table.cell.tolist()):
            low, high = prefix << 49, (prefix + 1 << 49) - 1
            if cell >= 0:
                assert exact[cell] < low or cell == low == 0
                assert high < exact[cell + 1]
            undecided += cell < 0
        assert undecided <= len(table.highs)
        for cell, below in enumerate(table.quick[:-1].tolist()):
            probability = mp.exp(
                -(mpf(cell + 1) ** law.power - mpf(cell) ** law.power) / law.power / law.parts**law.power
            )
            assert below <= probability * 2**16 < below + 1
        assert table.quick[-1] == 0


@pytest.mark.quick(7)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("scale", [0.7, 3e8, 2.0**52 - 1, Fraction(10**9, 7)])
def test_draws_are_what_exact_arithmetic_makes_of_the_same_bits(law, scale):
    """1000 proposals in 60 digits: whatever bits follow those that were drawn, cell, acceptance and result agree."""
    count, source = 1000, Replayed(seed=5)
    draws = _draws._draws(law, count, source)
    scaled = _draws._scaled(
        law, _draws._scale("scale", scale, len(draws.cell), law), draws, len(draws.cell), os.urandom
    )
    words = np.frombuffer(source.given[0], np.uint64, count).tolist()
    others = np.frombuffer(source.given[0], np.uint32, count, 8 * count).tolist()
    more = iter(np.frombuffer(source.given[1], np.uint64).reshape(2, -1).T.tolist())
    results = zip(draws.cell.tolist(), draws.where.tolist(), draws.negative.tolist(), scaled.tolist(), strict=True)
    with mp.workdps(60):
        exact = thresholds(law.power, law.parts)
        edges = [int(mp.floor(each * mpf(2) ** 64)) for each in exact]
        for word, other in zip(words, others, strict=True):
            prefix, chance = (other >> 16) & 0x7FFF, other & 0xFFFF
            spans = (prefix << 49, (prefix + 1 << 49) - 1), (chance << 48, (chance + 1 << 48) - 1)
            quick = _draws._table(law).cell[prefix]
            if quick < 0 or chance >= _draws._table(law).quick[quick]:
                one, two = next(more)
                spans = (spans[0][0] | one >> 15,) * 2, (spans[1][0] | two >> 16,) * 2
            cell = bisect_right(edges, spans[0][0]) - 1
            assert edges[cell] < spans[0][0] or cell == 0
            assert spans[0][1] < edges[cell + 1]
            ends = [mpf(cell) + mpf(word + more_where) / 2**64 for more_where in (0, 1)]
            low, high = (
                mp.exp((mpf(cell) ** law.power - x**law.power) / law.power / law.parts**law.power) for x in ends[::-1]
            )
            if mpf(spans[1][1] + 1) / 2**64 <= low:
                drawn_cell, drawn_word, negative, number = next(results)
                assert (drawn_cell, drawn_word, negative) == (cell, word, bool(other >> 31))
                half = mpf(1) / 2 if law is GAUSSIAN else 0
                step = mpf(Fraction(scale).numerator) / Fraction(scale).denominator / law.parts
                assert int(mp.floor(ends[0] * step + half)) <= number <= int(mp.floor(ends[1] * step + half))
            else:
                assert mpf(spans[1][0]) / 2**64 >= high
    assert next(results, None) is None


def bits_for(prefix_bits, chance_bits, where, negative):
    """The bytes of one proposal that needs 64 bits, and those of the second call."""
    other = negative << 31 | prefix_bits >> 49 << 16 | chance_bits >> 48
    first = where.to_bytes(8, "little") + other.to_bytes(4, "little")
    more = (prefix_bits << 15 & 2**64 - 1).to_bytes(8, "little") + (chance_bits << 16 & 2**64 - 1).to_bytes(8, "little")
    return first, more


def test_an_undecided_cell_is_decided_one_by_one():
    """Bits that agree with C_20 in 64 places draw more, and the number is in the cell that these choose."""
    with mp.workdps(60):
        exact = thresholds(2, 16)[20]
        first, second = int(exact * mpf(2) ** 64), int(exact * mpf(2) ** 128) % 2**64
    for more, cell in ((second - 10**6, 19), (second + 10**6, 20)):
        source = Replayed(first=[*bits_for(first, 0, 2**63, 1), more.to_bytes(8, "little")])
        draws = _draws._draws(GAUSSIAN, 1, source)
        assert draws.single[0][0] == cell
        assert draws.negative.tolist() == [True]
        numbers = _draws._scaled(GAUSSIAN, _draws._scale("sigma", 16.0 * 1000, 1, GAUSSIAN), draws, 1, source)
        assert numbers.tolist() == [cell * 1000 + 500]


@pytest.mark.parametrize("side", [-1, 1])
def test_an_undecided_acceptance_is_decided_one_by_one(side):
    """Bits within 2**-43 of the probability of acceptance are compared exactly."""
    where = 2**63
    with mp.workdps(60):
        probability = mp.exp(-((mpf(3) + mpf(1) / 2) ** 2) / 512 + mpf(9) / 512)
        chance = int(probability * mpf(2) ** 64) + side * 2**16
        in_cell = int(thresholds(2, 16)[3] * mpf(2) ** 64) + 2**50
    first, more = bits_for(in_cell, chance, where, 0)
    source = Replayed(first=[first, more])
    draws = _draws._draws(GAUSSIAN, 1, source)
    assert len(draws.cell) == (side < 0)
    assert len(draws.single) == (side < 0)


def test_an_undecided_rounding_draws_more_bits():
    """A place whose interval holds a half draws bits that say on which side of it the number is."""
    scale = _draws._scale(
        "sigma", 16.0 * 2**40, 1, GAUSSIAN
    )  # a step of the cell is 2**40: whole numbers are 2**24 apart
    last = 2**24 * 5 + 2**23 - 1  # the half after 5 is where the next place begins
    for where, number, drawn in ((last, 5, 0), (last + 1, 6, 0)):
        draws = _draws._Draws(*(np.array([each], np.uint64) for each in (0, where)), np.array([False]), {})
        source = Replayed()
        assert _draws._scaled(GAUSSIAN, scale, draws, 1, source).tolist() == [number]
        assert len(source.given) == drawn
    odd = _draws._scale("sigma", Fraction(16 * 2**40 * 3, 7), 1, GAUSSIAN)
    wanted = Fraction(11, 2) / Fraction(3, 7)  # in steps of the cell
    where = int(wanted * 2**24)
    for byte, number in ((0, 5), (255, 6)):
        draws = _draws._Draws(*(np.array([each], np.uint64) for each in (0, where)), np.array([False]), {})
        source = Replayed(first=[bytes([byte] * 8)])
        assert _draws._scaled(GAUSSIAN, odd, draws, 1, source).tolist() == [number]
        assert len(source.given) == 1


def test_numbers_beyond_the_table_and_beyond_64_bits_are_cut_off_last():
    """A draw far out in the tail is decided one by one; beyond 2**62 it is cut off there."""
    source = Replayed(first=[*bits_for(2**64 - 1, 0, 0, 0), *[b"\xff" * 8] * 4, bytes(8)])
    draws = _draws._draws(GAUSSIAN, 1, source)  # 320 bits of ones: beyond twenty standard deviations
    assert draws.single[0][0] > 20 * 16
    scale = _draws._scale("sigma", 1.0, 1, GAUSSIAN)
    assert 20 <= _draws._scaled(GAUSSIAN, scale, draws, 1, source).tolist()[0] <= 22
    far = _draws._Draws(np.array([0], np.uint64), np.array([0], np.uint64), np.array([False]), {0: (2**20, None)})
    where = type("At", (), {"low": Fraction(0), "high": Fraction(1, 2**64)})
    far.single[0] = 2**20, where
    scale = _draws._scale("sigma", 2.0**52, 1, GAUSSIAN)
    assert _draws._scaled(GAUSSIAN, scale, far, 1, os.urandom).tolist() == [2**62]


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.7, 40.0])
def test_rounded_gaussian_has_the_stated_probabilities(sigma):
    """Chi-square against probabilities of 60 digits; fails by chance once in a million."""
    reach = int(6 * sigma) + 1
    numbers = noise.rounded_gaussian(sigma, size=DRAWS)
    assert p_value(numbers, expected(rounded_probability, sigma, reach), reach) > 1e-6


@pytest.mark.parametrize("scale", [0.2, 1.0, 7.3])
def test_discrete_laplace_has_the_stated_probabilities(scale):
    """Chi-square against probabilities of 60 digits; fails by chance once in a million."""
    reach = int(12 * scale) + 2
    numbers = noise.discrete_laplace(scale, size=DRAWS)
    assert p_value(numbers, expected(laplace_probability, scale, reach), reach) > 1e-6


def test_the_test_of_probabilities_finds_a_small_error():
    """Noise of another kind (the discrete Gaussian), or 2 % smaller, fails the same chi-square test."""
    reach, right = 4, expected(rounded_probability, 0.5, 4)
    generator = np.random.default_rng(1)
    weights = np.exp(-(np.arange(-4, 5) ** 2) / 0.5)
    discrete = generator.choice(np.arange(-4, 5), DRAWS, p=weights / weights.sum())
    assert p_value(discrete, right, reach) < 1e-6
    assert p_value(noise.rounded_gaussian(0.49, size=DRAWS), right, reach) < 1e-6


@pytest.mark.parametrize("sigma", [1e6, 3.3e9, 1e15, 2.0**53 - 1])
def test_large_noise_is_normal_down_to_its_last_bits(sigma):
    """Normal by the Kolmogorov-Smirnov test; the last six bits are uniform; signs are fair."""
    numbers = noise.rounded_gaussian(sigma, size=DRAWS)
    assert stats.kstest(numbers / sigma, "norm").pvalue > 1e-6
    assert stats.chisquare(np.bincount(numbers & 63, minlength=64)).pvalue > 1e-6
    assert abs(np.sum(numbers < 0) - DRAWS / 2) < 5 * sqrt(DRAWS) / 2


def test_neighbouring_draws_are_independent():
    """Neither sizes nor signs of draws are correlated with those that follow, at several distances."""
    numbers = noise.rounded_gaussian(1e6, size=DRAWS) / 1e6
    for lag in (1, 2, 8000, 8192):
        for each in (numbers, numbers**2 - 1):
            assert abs(np.mean(each[lag:] * each[:-lag])) < 6 * np.mean(each**2) / sqrt(DRAWS - lag)


def test_each_number_has_its_own_sigma():
    """An array of standard deviations gives each number its own."""
    sigmas = np.repeat([0.4, 1e3, 1e15], DRAWS // 3)
    numbers = noise.rounded_gaussian(sigmas, size=len(sigmas))
    for sigma in (0.4, 1e3, 1e15):
        some = numbers[sigmas == sigma]
        if sigma < 1:
            assert p_value(some, expected(rounded_probability, sigma, 4), 4) > 1e-6
        else:
            assert stats.kstest(some / sigma, "norm").pvalue > 1e-6


@pytest.mark.parametrize("sigma", [0.01, 5e-324, 1e-300, Fraction(1, 10**400)])
def test_tiny_noise_rounds_to_zero(sigma):
    """Where no draw in 10**500 is not zero, all are."""
    assert not noise.rounded_gaussian(sigma, size=10_000).any()
    assert not noise.discrete_laplace(sigma / 1 if sigma != 0.01 else 1e-4, size=10_000).any()


def test_fractions_and_floats_of_the_same_value_give_the_same():
    """The same bits give the same numbers, whether the scale comes as a float or as a fraction."""
    for value in (0.75, 1000.0, 3.0 * 2**40):
        a, b = (_draws._rounded(kind(value), 2000, Replayed(seed=3)) for kind in (float, Fraction))
        assert a.tolist() == b.tolist()
    sigmas = np.full(2000, 1000.0)
    assert (
        _draws._rounded(sigmas, 2000, Replayed(seed=3)).tolist()
        == _draws._rounded(1000, 2000, Replayed(seed=3)).tolist()
    )


@pytest.mark.parametrize("draw", [noise.rounded_gaussian, noise.discrete_laplace])
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), 2.0**53, "1", True, Fraction(0), None])
def test_scales_out_of_range_are_refused(draw, bad):
    """Zero, negative, infinite and huge scales, and what is no number, are refused by name."""
    with pytest.raises(ArgumentError, match=r"sigma|scale"):
        draw(bad, size=3)


def test_arrays_of_scales_are_checked():
    """Another shape or type, or one bad entry, is refused; entries are not quoted."""
    for bad in (np.ones(2), np.ones(3, np.float32), np.array([1.0, np.nan, 1.0]), np.array([1.0, 0.0, 2.0])):
        with pytest.raises(ArgumentError, match="sigma"):
            noise.rounded_gaussian(bad, size=3)
    with pytest.raises(ArgumentError, match="scale must be one number"):
        noise.discrete_laplace(np.ones(3), size=3)
    with pytest.raises(ArgumentError, match="size"):
        noise.rounded_gaussian(1.0, size=-1)


def test_sizes():
    """Any number of draws is given, also none, one, and more than a block."""
    for size in (0, 1, 2, 8191, 8192, 8193, 20_000):
        assert noise.rounded_gaussian(5.0, size=size).shape == (size,)
        assert noise.discrete_laplace(5.0, size=size).shape == (size,)
        assert noise.rounded_gaussian(5.0, size=size).dtype == np.int64


def test_draws_do_not_repeat():
    """Two runs of large noise have nothing in common beyond chance."""
    a, b = (Counter(noise.rounded_gaussian(1e15, size=10_000).tolist()) for _ in range(2))
    assert not a.keys() & b.keys()

"""Single draws: bounds hold in many digits, and undecided numbers draw bits until they are decided."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from almoner.noise._draws import EXPONENTIAL, GAUSSIAN, Uniform, accepts, cell_of, cumulative, exp_bounds
from noise_bits import Replayed, thresholds

LAWS = [GAUSSIAN, EXPONENTIAL]


def high_precision(value):
    return mpf(value.numerator) / value.denominator


@given(st.fractions(0, 200), st.integers(1, 300))
def test_bounds_on_exp_hold_and_are_close(x, bits):
    """For any rational, the bounds enclose exp(-x) in 200 digits, and are at most two apart."""
    with mp.workdps(200):
        low, high = exp_bounds(x, bits)
        exact = mp.exp(-high_precision(x)) * mpf(2) ** bits
        assert low <= exact <= high <= low + 2


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bits", [64, 128])
def test_bounds_on_cumulative_probabilities_hold(law, bits):
    """Each C_j lies between its bounds, which increase, are at most two apart, and come within 2**-60 of 1."""
    with mp.workdps(120):
        lows, highs = cumulative(law, bits)
        exact = thresholds(law.power, law.parts)[1:]
        for low, high, c in zip(lows, highs, exact, strict=False):
            assert low <= c * mpf(2) ** bits <= high <= low + 2
        assert lows == sorted(lows)
        assert highs == sorted(highs)
        assert lows[-1] > 2**bits - 2 ** (bits - 60)


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_a_cell_is_undecided_exactly_at_its_threshold(law):
    """A number whose first 64 bits are those of C_j draws more bits, and they put it on the right side."""
    with mp.workdps(120):
        for j in (1, 2, 17, 60):
            exact = thresholds(law.power, law.parts)[j]
            first, second = int(exact * mpf(2) ** 64), int(exact * mpf(2) ** 128) % 2**64
            for more, cell in ((second - 10**6, j - 1), (second + 10**6, j)):
                source = Replayed(first=[more.to_bytes(8, "little")])
                assert cell_of(law, Uniform(first, 64, source)) == cell
                assert len(source.given) == 1


@pytest.mark.parametrize("law", LAWS)
def test_the_tail_has_no_end(law):
    """A number above all that 64 bits can tell apart draws more bits, and is in a cell beyond the table."""
    source = Replayed(first=[b"\xff" * 7 + b"\x00"])  # 56 of the next 64 bits are ones, the highest eight are zeros
    cell = cell_of(law, Uniform(2**64 - 1, 64, source))
    with mp.workdps(120):
        exact = thresholds(law.power, law.parts)
        value = (mpf(2**64 - 1) * 2**64 + int.from_bytes(source.given[0], "little")) / mpf(2) ** 128
        assert exact[cell] <= value < exact[cell + 1]
        assert cell > len([high for high in cumulative(law, 64)[1] if high < 2**64]) - 4


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("cell", [0, 3, 40])
def test_acceptance_is_undecided_exactly_at_its_probability(law, cell):
    """Bits that agree with the probability of acceptance in 64 places draw more, of both numbers."""
    with mp.workdps(120):
        where = Fraction(1, 3)
        place = int(where * 2**64)
        rest = int(where * 2**128) % 2**64
        exact = mp.exp(-high_precision(law.rise(cell, where)))
        first, second = int(exact * mpf(2) ** 64), int(exact * mpf(2) ** 128) % 2**64
        for more, accepted in ((second - 2**62, True), (second + 2**62, False)):
            more %= 2**64
            source = Replayed(first=[more.to_bytes(8, "little"), rest.to_bytes(8, "little")])
            number, chance = Uniform(place, 64, source), Uniform(first, 64, source)
            assert accepts(law, cell, number, chance) == (high_precision(chance.low) < exact)
            if 2**62 < second < 2**63:
                assert accepts(law, cell, number, chance) is accepted
            assert len(source.given) >= 2

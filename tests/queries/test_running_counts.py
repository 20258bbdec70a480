"""Quantiles whose noise is correlated over bins: what is released, what people pay, coverage, width, the record."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner._units import MEASURE
from almoner.errors import ArgumentError
from almoner.mechanisms import Gaussian
from almoner.queries import Count, Quantiles
from almoner.queries._ask.answer import answer
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.noise import FACTOR_BITS, STEPS, bin_factor, noisy_mixed
from ledgers import exact
from sessions import opened

UNIT = 2**FACTOR_BITS
RUNS = 150
RNG = np.random.default_rng(2)
WHO = np.sort(RNG.integers(0, 300, 2000))
ENTRY = np.clip(np.round(RNG.normal(20, 6, 2000)) + WHO % 7, 0, 63)
ROWS = pa.table({"who": WHO, "v": ENTRY, "g": [("a", "b")[k % 2] for k in range(2000)]})
EDGES = tuple(np.arange(0, 65) - 0.5)
WIDE, LONG = tuple(range(0, 65, 4)), EDGES  # 16 and 64 bins


def drawn(asked, sums, rng, *, mixed=True):
    """What would be released: exact sums, mixed, and Gaussian noise."""
    factor = asked.bin_factor() if mixed else None
    width, exactly = asked.coordinates, []
    for start in range(0, len(sums), width):
        block = [int(each) for each in sums[start : start + width]]
        exactly += block if factor is None else [each / UNIT for each in factor.mixed(block)]
    noise = rng.normal(0, asked.spread * STEPS, len(sums))
    return [round(x) for x in np.array(exactly) + noise]


def test_what_a_person_adds_is_no_longer_than_the_sum_of_weights():
    """For all whole weights up to 2 in up to 6 bins, in exact arithmetic; the L2 length would be too small a charge."""
    for bins in range(1, 7):
        factor, broken = bin_factor(bins), 0
        for x in itertools.product(range(3), repeat=bins):
            square = sum(each**2 for each in factor.mixed(x))
            assert square <= (sum(x) * UNIT) ** 2
            broken += square > sum(each**2 for each in x) * UNIT**2
        assert (broken > 0) == (bins > 1)
    for bins in (64, 1024):  # and the longest column is as long as it may be, but for rounding
        column = sum(each**2 for each in bin_factor(bins).column)
        assert 0.999 * UNIT**2 <= column <= UNIT**2


def test_mixing_is_exact_for_huge_sums():
    """The same as whole numbers of any size give, to 2^61; running counts come back."""
    factor = bin_factor(40)
    for sums in ([2**61 - 3 * k for k in range(40)], [0] * 39 + [7], [(-5) ** k for k in range(20)] * 2):
        want = [sum(factor.column[j - k] * sums[k] for k in range(j + 1)) for j in range(40)]
        assert factor.mixed(sums) == want
        running = factor.running([each / UNIT for each in want])
        assert np.allclose(running, np.cumsum(np.array(sums, float)), rtol=1e-9, atol=1e-3)
    assert factor.mixed([2**70] + [0] * 39) == factor.mixed([2**61] + [0] * 39)


def test_noise_is_added_after_mixing():
    """With almost no noise, W h in whole steps; rounding is after the noise."""
    sums, factor = [k * STEPS for k in range(24)], bin_factor(12)
    quiet = noisy_mixed(sums, factor, Gaussian(sigma=1e-3, sensitivity=1.0))
    want = [each / UNIT for start in (0, 12) for each in factor.mixed(sums[start : start + 12])]
    assert np.abs(np.array(quiet) - want).max() <= 1


def cost_of(asked, sums):
    """What the mixed sums cost, in units, exactly."""
    bins = asked.bin_factor().bins
    blocks = [asked.bin_factor().mixed(sums[start : start + bins]) for start in range(0, len(sums), bins)]
    square = Fraction(sum(each**2 for block in blocks for each in block), UNIT**2)
    return square / (2 * Fraction(asked.noise * STEPS) ** 2) * MEASURE


@pytest.mark.slow
@pytest.mark.parametrize("entries", [[1, 9, 20, 33, 60], [3, 3, 3, 50]])
def test_people_pay_for_the_sum_of_their_weights(tmp_path, entries):
    """Alone in a session, a person is charged at least what W x costs, and not what x costs; in groups, too."""
    table = pa.table({"who": ["p"] * len(entries), "v": [float(e) for e in entries], "g": ["x"] * len(entries)})
    shapes = {"by": {"g": ["x", "y"]}}, {}, {"clip": 0.6}, {"clip": 0.6, "at_most": 1, "report": 0.3}
    with opened(tmp_path / "l", table) as session:
        for edges, per, options in itertools.product((WIDE, LONG), ("person", "total"), shapes):
            asked = Quantiles("v", edges, per=per, chosen=0, sigma=40.0, **options)
            sums, units = exact(session, asked)
            assert 0 < cost_of(asked, sums) <= units["p"] <= asked.price
            if per == "person" and not options:
                plain = sum(each**2 for each in sums) / (2 * (asked.noise * STEPS) ** 2) * MEASURE
                assert plain < cost_of(asked, sums)  # the wrong variant: a charge for x itself
                assert units["p"] == pytest.approx(asked.price, rel=1e-5)


def test_paced_people_pay_for_what_is_left_of_them(tmp_path):
    """Shrunk to what a person can pay, in the long and the wide form, a contribution costs no more than was paid."""
    table = pa.table({"who": ["p"] * 5, "v": [1.0, 9.0, 20.0, 33.0, 60.0]})
    with opened(tmp_path / "l", table, budget=filters.Zcdp(rho=0.65)) as session:
        session.analyst("ann").ask(Count(clip=1, rho=0.4), key="before")
        for edges in (WIDE, LONG):
            asked = Quantiles("v", edges, chosen=0, rho=0.6)
            sums, units = exact(session, asked)
            assert 0 < cost_of(asked, sums) <= units["p"] <= 0.25001 * MEASURE


def test_intervals_cover_and_are_shorter_than_before(tmp_path):
    """Of 150 answers at least 92 % cover each quartile; they are less than 0.7 times as wide as with separate noise."""
    with opened(tmp_path / "l", ROWS, budget=filters.Zcdp(rho=9.0)) as session:
        asked = Quantiles("v", EDGES, (0.25, 0.5, 0.75), step=1, bounds_hold=True, chosen=0, rho=0.01)
        sums, _ = exact(session, asked)
    assert asked.bin_factor() is not None
    order, weights = np.argsort(ENTRY, kind="stable"), 1 / np.bincount(WHO)[WHO]
    below = np.cumsum(weights[order])
    truths = [ENTRY[order][np.searchsorted(below, level * below[-1] - 1e-9)] for level in asked.levels]
    widths, errors = {}, {}
    for kind in (True, False):
        this, rng = replace(asked, correlated=kind), np.random.default_rng(8)
        answers = [answer(this, drawn(this, sums, rng), "k", floor=this.price) for _ in range(RUNS)]
        spans = np.array([one.truth_intervals[0] for one in answers])
        assert (np.mean((spans[..., 0] <= truths) & (truths <= spans[..., 1]), axis=0) >= 0.92).all()
        widths[kind] = np.mean(spans[..., 1] - spans[..., 0])
        errors[kind] = np.mean((np.array([one.values[0] for one in answers]) - truths) ** 2)
    assert widths[True] < 0.7 * widths[False]
    assert errors[True] < 0.7 * errors[False]


def test_intervals_with_the_noise_of_separate_bins_do_not_cover():
    """Wrong variant: the covariance matters; running counts move together by the stated standard errors."""
    factor, rng = bin_factor(64), np.random.default_rng(1)
    running = np.array([factor.running(rng.normal(0, 1, 64)) for _ in range(4000)])
    for level, edge in ((0.5, 32), (0.25, 20), (0.9, 60), (0.0, 64), (1.0, 10)):
        found = np.std(running[:, edge - 1] - level * running[:, -1])
        assert found == pytest.approx(factor.error(level, edge), rel=0.06)
    assert np.std(running[:, 31] - running[:, -1] / 2) < 0.65 * math.sqrt(64) / 2


def test_it_is_chosen_where_noise_is_never_more():
    """By bins, levels and what people are alone: from 12 bins for medians, 33 for quartiles; not for rows."""

    def chosen(bins, levels=(0.5,), **options):
        return Quantiles("v", range(bins + 1), levels, **{"rho": 0.1, "chosen": 0, **options}).bin_factor() is not None

    assert [chosen(bins) for bins in (1, 2, 11, 12, 64)] == [False, False, False, True, True]
    assert [chosen(bins, (0.25, 0.5, 0.75)) for bins in (32, 33)] == [False, True]
    assert not chosen(400, (0.0, 0.5))
    assert not chosen(64, per="row", clip=3)
    assert not chosen(64, per_group=0.5)
    assert not chosen(64, rho=None, epsilon=1.0)
    assert not chosen(64, rho=None, sigma=2.0**17)
    assert not chosen(64, correlated=False)
    with pytest.raises(ArgumentError, match="correlated=1 must be"):
        Quantiles("v", range(9), correlated=1, rho=0.1)
    for bins in (12, 64, 300):
        factor = bin_factor(bins)
        assert all(factor.error(0.5, e) <= math.sqrt(bins) / 2 for e in range(1, bins))


def test_records_keep_their_meaning(tmp_path):
    """An answer is read again and replayed, and a question that does not say it has correlated noise."""
    asked = Quantiles("v", EDGES, step=1, chosen=0, rho=0.05)
    with opened(tmp_path / "l", ROWS) as session:
        ann = session.analyst("ann")
        first = ann.ask(asked, key="new")
        assert ann.ask(asked, key="new") == first
        assert all(finding.holds for finding in session.verify(replay=True))
        assert min(session.ledger.left_by_period("ann").values()) < MEASURE
        assert question(described(asked)) == asked
        less = {name: value for name, value in described(asked).items() if name != "correlated"}
        assert question(less) == asked  # a file of questions that does not say it

"""The value of a quantile: read off running counts that do not fall, near the truth however narrow the bins are."""

from itertools import pairwise

import numpy as np
import pytest

from almoner.queries import Quantiles
from almoner.queries._questions.intervals import NoiseBand

SPENDING = np.sort(np.random.default_rng(5).lognormal(5.0, 1.6, 4001))  # a median of 148, and few above 10,000
RUNS = 60


def values(asked, seed=1):
    """(runs, levels) of an answer's values over noise with a fixed seed, and how often each interval covers."""
    counts = np.histogram(np.minimum(SPENDING, asked.edges[-1]), asked.edges)[0].astype(float)
    factor, rng = asked.bin_factor(), np.random.default_rng(seed)
    base = counts if factor is None else np.convolve(np.array(factor.column) / 2**16, counts)[: counts.size]
    draw = rng.laplace if asked.pure else rng.normal
    band = NoiseBand(asked.spread, asked.pure)
    read = [asked.read((base + draw(0, asked.noise, counts.size)).tolist(), band) for _ in range(RUNS)]
    truths = [SPENDING[int(level * (SPENDING.size - 1))] for level in asked.levels]
    covered = np.mean([[a <= t <= b for (a, b), t in zip(each, truths, strict=True)] for _, each in read], axis=0)
    return np.array([each for each, _ in read], dtype=float), np.array(truths), covered


@pytest.mark.parametrize("price", [{"epsilon": 0.1}, {"rho": 3e-4}], ids=["pure", "gaussian"])
@pytest.mark.parametrize("step", [10, 25, 100])
def test_bins_where_nobody_is_move_a_median_to_neither_side(price, step):
    """With 400 to 4,000 bins, nearly all of them empty, the bias is below 15 % of the median, and intervals cover."""
    asked = Quantiles("v", tuple(range(0, 40_001, step)), per="total", chosen=0, **price)
    found, (truth,), covered = values(asked)
    assert abs(np.mean(found) - truth) < 0.15 * truth
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.5 * truth
    assert covered[0] >= 0.92


def test_quantiles_rise_with_the_level_and_stay_between_the_edges():
    """Without noise each value is in the bin of its quantile; with it none is beyond the outer edges."""
    edges, levels = (*range(0, 1001, 50), 40_000), (0.0, 0.1, 0.5, 0.9, 1.0)
    asked = Quantiles("v", edges, levels, per="total", chosen=0, correlated=False, rho=0.01)
    counts = np.histogram(SPENDING, edges)[0].astype(float).tolist()
    exact, _ = asked.read(counts, NoiseBand(1e-9, False))
    for level, value in zip(levels, exact, strict=True):
        truth = SPENDING[int(level * (SPENDING.size - 1))]
        low, high = next(each for each in pairwise(edges) if each[0] <= truth <= each[1])
        assert low <= value <= high
    assert exact == sorted(exact)
    found, _, _ = values(asked)
    assert (found >= 0).all()
    assert (found <= 40_000).all()


def test_a_group_of_noise_alone_has_no_value():
    """Where the noisy counts add up to nothing, there is no value, and the interval is all that is possible."""
    asked = Quantiles("v", (0, 1, 2, 4), per="total", epsilon=0.1)
    assert asked.read([5.0, -9.0, 1.0], NoiseBand(14.0, True)) == ([None], [(0, 4)])

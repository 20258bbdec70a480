"""The one discretisation of privacy losses, against many digits."""

import mpmath
import numpy as np
import pytest

from almoner.curves._grid import connect_the_dots as dots

mpf = mpmath.mpf


@pytest.mark.parametrize("rate", [1e-12, 0.001, 0.5, 0.999, 1 - 1e-12, 1.0])
def test_sampled_losses_to_full_accuracy(rate):
    """log(1 - q + q r) from far below zero to far above, also where 1 - q is tiny beside r: in sixty digits."""
    mpmath.mp.dps = 60
    log_ratios = np.concatenate([-np.geomspace(1e-9, 600, 200), np.geomspace(1e-9, 1700, 200), [0.0]])
    for log_ratio, loss in zip(log_ratios.tolist(), dots.sampled_losses(log_ratios, rate).tolist(), strict=True):
        true = mpmath.log(1 - mpf(rate) + mpf(rate) * mpmath.exp(mpf(log_ratio)))
        assert abs(loss - true) <= 4 * dots.ULP * (1 + abs(log_ratio)) * abs(true)


@pytest.mark.parametrize("z", [0.02, 0.3, 5.0, 1e4])
def test_cells_keep_their_masses_under_both_laws(z):
    """Under each law the points' masses add up to the mass between the outermost edges, and P is r times Q wherever
    neither underflows; the merged cells keep the masses too, each."""
    mpmath.mp.dps = 40
    edges = np.linspace(-9 * z, 1 + 9 * z, int(np.ceil((1 + 18 * z) / min(0.05 * z, z * z / 2))) + 1)
    for pair in (dots.gaussian(edges, z), dots.gaussian_merged(edges, z)):
        for masses, mean in ((pair.p, 1), (pair.q, 0)):
            low, high = ((mpf(float(x)) - mean) / mpf(z) for x in edges[[0, -1]])
            true = mpmath.ncdf(high) - mpmath.ncdf(low)
            assert abs(float(np.sum(masses)) / true - 1) <= pair.error + 1e-15
        seen = (pair.p > 1e-290) & (pair.q > 1e-290)
        assert seen.sum() > 20
        log_ratios = np.log(pair.p[seen]) - np.log(pair.q[seen])
        assert np.all(np.abs(log_ratios - pair.log_ratios[seen]) <= 3 * pair.error)


@pytest.mark.parametrize("eps", [1e-3, 0.4, 30.0])
def test_laplace_and_two_points_are_laws_with_the_right_ratio(eps):
    """All masses add up to one under both laws, and their ratio is the loss of their point."""
    for pair in (dots.laplace(eps, 64), dots.laplace_merged(eps, 64), dots.two_points(-eps, eps / 3)):
        assert float(np.sum(pair.p)) == pytest.approx(1, abs=pair.error)
        assert float(np.sum(pair.q)) == pytest.approx(1, abs=pair.error)
        assert np.log(pair.p) - np.log(pair.q) == pytest.approx(pair.log_ratios, abs=2 * pair.error)

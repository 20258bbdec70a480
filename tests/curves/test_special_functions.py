"""The errors of special functions that bounds allow for, on the SciPy that is installed, against 50 digits."""

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import erfcx, log_ndtr, ndtr, ndtri

ULP = 2.0**-52


def errors(function, exact, points):
    """The relative error at each point."""
    with mp.workdps(50):
        values = [exact(mpf(float(x))) for x in points]
        return np.array([float(abs(mpf(float(function(x))) / v - 1)) for x, v in zip(points, values, strict=True)])


def grid(low, high, count=600):
    """Points on both sides of round numbers, and random ones between."""
    rng = np.random.default_rng(1)
    return np.concatenate([np.linspace(low, high, count // 2), rng.uniform(low, high, count // 2)])


def test_ndtr_is_as_exact_as_the_residue_certificate_and_the_pairs_allow():
    """Its relative error is below a quarter of 2^-52 (16 + 4 x^2), and below 2^-48 (1 + x^2), from -37 to 9."""
    points = grid(-37.0, 9.0)
    error = errors(ndtr, mp.ncdf, points)
    assert (error <= ULP * (16 + 4 * points**2) / 4).all()
    assert (error <= 2.0**-48 * (1 + points**2)).all()


def test_erfcx_is_as_exact_as_gaussian_curves_allow():
    """Below 8 units of 2^-52 from 0 to 60: ``curves.gaussian`` and the certificate allow for more."""
    points = grid(0.0, 60.0)
    assert errors(erfcx, lambda x: mp.exp(x * x) * mp.erfc(x), points).max() <= 8 * ULP


def test_log_ndtr_is_as_exact_as_gaussian_curves_allow():
    """Its absolute error is below 1e-15 (1 + its size), from -40 to 9, and its relative error below 4e-15 left of 1."""
    points = grid(-40.0, 9.0)
    with mp.workdps(50):
        values = [mp.log(mp.ncdf(mpf(float(x)))) for x in points]
        error = np.array([float(abs(mpf(float(log_ndtr(x))) - v)) for x, v in zip(points, values, strict=True)])
        sizes = np.array([float(abs(v)) for v in values])
    assert (error <= 1e-15 * (1 + sizes)).all()
    assert (error <= 4e-15 * sizes)[points < 1].all()


def test_ndtri_is_as_exact_as_the_gaussian_cost_of_a_pair_allows():
    """Its absolute error is below 1e-13 (1 + its size) at probabilities from 1e-290 to 0.5."""
    points = 10.0 ** -np.concatenate([np.linspace(0.302, 290.0, 100), np.linspace(0.302, 5.0, 100)])
    with mp.workdps(60):
        for p in points:
            x = mpf(float(ndtri(p)))
            step = (mp.ncdf(x) - mpf(float(p))) / mp.npdf(x)  # Newton's: the distance from the exact quantile
            assert abs(step) <= 1e-13 * (1 + abs(x)), p


@pytest.mark.parametrize("function", ["exp", "log", "expm1", "log1p", "sin", "cos"])
def test_elementary_functions_are_within_four_units(function):
    """NumPy's functions of whole arrays, as vector code computes them: at most 4 units of 2^-52 off."""
    ends = {"log": (1e-3, 1e3), "log1p": (-0.9, 1e3), "exp": (-700, 700), "expm1": (-30, 700)}
    low, high = ends.get(function, (-30, 30))
    points = grid(low, high, 2000)
    values = getattr(np, function)(points)
    with mp.workdps(50):
        exact = [getattr(mp, function)(mpf(float(x))) for x in points]
        worst = max(abs(mpf(float(v)) / e - 1) for v, e in zip(values, exact, strict=True) if e)
    assert worst <= 4 * ULP

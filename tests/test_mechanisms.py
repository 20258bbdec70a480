"""Descriptions are frozen, public and validated."""

from dataclasses import FrozenInstanceError
from math import inf, nan

import pytest

from bursar import mechanisms as m
from bursar.errors import ArgumentError


@pytest.mark.parametrize(
    "make",
    [
        lambda bad: m.Gaussian(sigma=bad),
        lambda bad: m.Gaussian(sigma=1.0, sensitivity=bad),
        lambda bad: m.SampledGaussian(sigma=bad, sample_rate=0.1),
        lambda bad: m.SampledGaussian(sigma=1.0, sample_rate=bad),
        lambda bad: m.DiscreteGaussian(sigma=bad),
        lambda bad: m.Laplace(scale=bad),
        lambda bad: m.RandomizedResponse(bad),
    ],
)
@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf, "1", None, True])
def test_noise_must_be_positive_and_finite(make, bad):
    """The noise multiplier NaN that a peer prices at epsilon 0 is refused here, and so is every other non-noise."""
    with pytest.raises(ArgumentError):
        make(bad)


@pytest.mark.parametrize(
    "make",
    [
        lambda: m.Pure(-0.1),
        lambda: m.Pure(nan),
        lambda: m.Approximate(0.1, 1.5),
        lambda: m.Approximate(0.1, nan),
        lambda: m.Zcdp(-1.0),
        lambda: m.Exponential(nan),
        lambda: m.SampledGaussian(1.0, 1.0, 1.5),
        lambda: m.Renyi((), ()),
        lambda: m.Renyi((2.0, 3.0), (1.0,)),
        lambda: m.Renyi((1.0,), (1.0,)),
        lambda: m.Renyi((3.0, 2.0), (1.0, 1.0)),
        lambda: m.Renyi((2.0,), (nan,)),
        lambda: m.Repeated(m.Pure(0.1), -1),
        lambda: m.Repeated(m.Pure(0.1), 1.5),
        lambda: m.Repeated("gauss", 1),
        lambda: m.Composed((1,)),
    ],
)
def test_impossible_parameters_are_refused(make):
    """No description of an impossible mechanism can be made."""
    with pytest.raises(ArgumentError):
        make()


def test_descriptions_are_frozen_values():
    """Equal descriptions are equal and hash alike, and nobody can change one after it was priced."""
    assert m.Gaussian(1.0) == m.Gaussian(1.0)
    assert hash(m.Renyi([2.0], [0.1])) == hash(m.Renyi((2.0,), (0.1,)))
    with pytest.raises(FrozenInstanceError):
        m.Gaussian(1.0).sigma = 2.0

"""Noise by a counter: exactly the inverse of the factor, little memory, the same after a restart."""

import tracemalloc

import numpy as np
import pytest

from almoner import errors
from almoner.training.correlated import Banded, BandedInverse, PrefixSums
from almoner.training.correlated._factor import Noise

FACTORS = [PrefixSums(), Banded(1), Banded(4), BandedInverse(3)]
each_factor = pytest.mark.parametrize("description", FACTORS, ids=repr)


@each_factor
def test_unit_vectors_give_the_inverse(description):
    """Where z_s is the unit vector e_s, the noise of step t is row t of C^-1: so the covariance is C^-1 C^-T."""
    factor, unit = description.factor(17), np.eye(17)
    found = np.array(list(factor.noise(lambda step: unit[step])))
    assert np.allclose(found @ factor.columns(range(17)), unit, rtol=0, atol=1e-14)
    assert np.array_equal(np.triu(found, 1), np.zeros((17, 17)))


@each_factor
def test_the_noise_is_that_map_of_the_draws_of_the_counter(description):
    """next() is C^-1 times the draws; multiplied by C it is the independent draws again, which have unit variance."""
    factor = description.factor(12)
    noise = Noise(factor, 4000, key=11)
    rows = np.array([noise.next() for _ in range(12)])
    draws = np.array([noise.draw(step) for step in range(12)])
    assert np.allclose(factor.columns(range(12)) @ rows, draws, rtol=0, atol=1e-12)
    assert abs(np.corrcoef(draws) - np.eye(12)).max() < 0.12  # 7 standard errors
    assert abs(draws.std() - 1) < 0.02


@each_factor
def test_nothing_more_than_the_band_is_kept(description):
    """While noise is made, memory never holds more than factor.vectors vectors of that length, and three at work."""
    size, factor = 100_000, description.factor(20)
    noise = Noise(factor, size, key=1)
    tracemalloc.start()
    for _ in range(20):
        noise.next()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < (factor.vectors + 3.1) * 8 * size


@each_factor
def test_a_restart_makes_the_same_rows_and_goes_on_with_a_fresh_key(description):
    """The rows before the restart are the same to the last bit; the draws after it are others."""
    factor = description.factor(10)
    first = Noise(factor, 5, key=7)
    rows = [first.next() for _ in range(10)]
    keys = Noise(factor, 5, key=7).keys
    again = Noise(factor, 5, key=99)
    again.go_on(keys, 6, key=8)
    assert all(np.array_equal(again.draw(s), first.draw(s)) for s in range(6))
    assert not any(np.array_equal(again.draw(s), first.draw(s)) for s in range(6, 10))
    more = np.array([again.next() for _ in range(4)])
    whole = np.array([*rows[:6], *more])
    draws = np.array([again.draw(s) for s in range(10)])
    assert np.allclose(factor.columns(range(10)) @ whole, draws, rtol=0, atol=1e-12)


def test_steps_and_keys_have_streams_of_their_own():
    """No two steps, and no two keys, have a draw in common."""
    factor = Banded(1).factor(50)
    values = np.concatenate([Noise(factor, 200, key=key).draw(step) for key in (0, 1, 2**64) for step in range(50)])
    assert len(np.unique(values)) == len(values)


def test_without_a_key_the_system_gives_one():
    """Two generators made without a key differ; neither shows its key."""
    factor = Banded(1).factor(2)
    one, other = Noise(factor, 8), Noise(factor, 8)
    assert not np.array_equal(one.next(), other.next())
    assert str(one.keys[0][1]) not in repr(one)


def test_there_is_no_noise_beyond_the_last_step():
    """A further step has no row of the factor; bad keys and sizes are refused without showing the key."""
    noise = Noise(PrefixSums().factor(1), 2, key=1)
    noise.next()
    with pytest.raises(errors.ArgumentError, match="steps=1"):
        noise.next()
    with pytest.raises(errors.ArgumentError, match="size=0"):
        Noise(PrefixSums().factor(1), 0)
    with pytest.raises(errors.ArgumentError, match=r"key must be a whole number in \[0, 2\^128\)$"):
        Noise(PrefixSums().factor(1), 2, key=-5)

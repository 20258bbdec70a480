"""The counts that each person's epsilon is computed from: rounded against the person, mergeable, restored exactly."""

import io
import re

import numpy as np
import pytest

from almoner import individual, mechanisms
from almoner.errors import ArgumentError

STEP = mechanisms.SampledGaussian(sigma=10.0, sensitivity=5.0, sample_rate=0.005)


def filled(people, seed, rounds=30):
    """Counts of some random norms."""
    rng = np.random.default_rng(seed)
    kept = individual.Losses(people, least=2.0, most=2000.0)
    for _ in range(rounds):
        kept.record(STEP, rng.exponential(2.0, people))
    return kept


def test_buckets_are_never_above_a_persons_noise():
    """Each norm's relative noise is at least its bucket's, and within one bucket of it."""
    norms = np.concatenate([np.geomspace(0.01, 5.0, 500), 10.0 / np.geomspace(2.0, 2000.0, 64)])
    kept = individual.Losses(len(norms), least=2.0, most=2000.0)
    kept.record(STEP, norms)
    counts = kept.counts(0.005)
    assert (counts.sum(axis=1) == 1).all()
    chosen = kept.noise[counts.argmax(axis=1)]
    true = 10.0 / np.minimum(norms, 5.0)
    assert (chosen <= true).all()
    inner = true < 1900
    assert (chosen[inner] * 1.12 >= true[inner]).all()


@pytest.mark.slow
def test_zero_is_free_clipped_is_clipped_and_unknown_is_infinite():
    """Nothing contributed costs nothing; above the clip counts as the clip; NaN and negative norms make it inf."""
    kept = individual.Losses(5, least=2.0, most=2000.0)
    kept.record(STEP, np.array([0.0, 5.0, 80.0, np.nan, -1.0]))
    found = kept.epsilon(delta=1e-6)
    assert found[0] == 0
    assert 0 < found[1] == found[2] < np.inf
    assert (found[3:] == np.inf).all()


@pytest.mark.parametrize(
    "norms",
    [np.ma.array([0.0, 5.0], mask=[True, False]), np.array([5j, 5.0]), np.array(["5", "1"]), np.array([True, True])],
)
def test_norms_are_real_numbers(norms):
    """What is hidden under a mask or beside a real part would not be counted: refused, and nothing is counted."""
    kept = individual.Losses(2, least=2.0, most=2000.0)
    with pytest.raises(ArgumentError, match="real numbers"):
        kept.record(STEP, norms)
    assert not kept.counts(0.005).any()


def test_a_step_below_the_least_noise_is_unknown():
    """A relative noise that no bucket can hold is never counted at a larger one."""
    kept = individual.Losses(1, least=4.0, most=40.0)
    kept.record(STEP, np.array([5.0]))
    assert kept.epsilon(delta=1e-5)[0] == np.inf


def test_shards_add_up():
    """Merging two shards is counting everything in one."""
    one, other = filled(20, 1), filled(20, 2)
    expected = one.counts(0.005) + other.counts(0.005)
    one.merge(other)
    assert np.array_equal(one.counts(0.005), expected)
    with pytest.raises(ArgumentError, match="same people"):
        one.merge(filled(21, 1))


@pytest.mark.slow
def test_saved_and_restored_exactly():
    """Through a file and back: the same counts, the same epsilons, and it goes on as before."""
    kept = filled(10, 3)
    kept.record(mechanisms.Gaussian(sigma=100.0), np.full(10, 0.5))
    file = io.BytesIO()
    np.savez(file, **kept.state())
    file.seek(0)
    with np.load(file) as saved:
        again = individual.Losses.from_state(dict(saved))
    assert again.rates == kept.rates == (0.005, 1.0)
    for rate in kept.rates:
        assert np.array_equal(again.counts(rate), kept.counts(rate))
    assert np.array_equal(again.epsilon(delta=1e-5), kept.epsilon(delta=1e-5))
    with pytest.raises(ArgumentError, match="state"):
        individual.Losses.from_state({**kept.state(), "unknown": np.zeros(3, bool)})


def test_some_people_only():
    """Norms of some people are counted for those people, and unknown people are refused."""
    kept = individual.Losses(4, least=2.0, most=2000.0)
    kept.record(STEP, np.array([1.0, 2.0]), people=np.array([3, 1]))
    assert kept.counts(0.005).sum(axis=1).tolist() == [0, 1, 0, 1]
    for people in ([4, 1], [-1, 1], [1, 1]):
        with pytest.raises(ArgumentError):
            kept.record(STEP, np.array([1.0, 2.0]), people=np.array(people))


def test_nothing_private_in_the_repr():
    """The repr is public: buckets only, not even the number of people."""
    assert repr(filled(20, 1)) == "Losses(least=2, most=2000, buckets=64)" == repr(filled(30, 2))


@pytest.mark.slow
def test_a_statement_is_the_persons_epsilon_with_its_limits_in_words():
    """Both bounds and the steps of that row alone; the sentence says under what condition, and what is not guaranteed;
    the repr says nothing."""
    kept = filled(3, 5)
    kept.record(STEP, np.array([0.0, np.nan, 1.0]))
    told = kept.statement(2, delta=1e-5)
    low, high = kept.epsilon(delta=1e-5, bounds=True)
    assert told.steps == int(kept.counts(0.005)[2].sum()) == 31
    assert told.epsilon == pytest.approx(high[2], rel=1e-6)
    assert told.least == pytest.approx(low[2], rel=1e-3)
    high, low = map(float, re.search(r"epsilon ([\d.]+) \(and not less than ([\d.]+)\)", str(told)).groups())
    assert low <= told.least <= told.epsilon <= high <= told.epsilon * 1.001
    for words in ("fixed in advance", "no guarantee", "31 steps", "1e-05", "person 2"):
        assert words in str(told)
    assert not any(character.isdigit() for character in repr(told))
    assert "no bound" in str(kept.statement(1, delta=1e-5))
    assert kept.statement(1, delta=1e-5).epsilon == np.inf
    unused = individual.Losses(1, least=2.0, most=20.0)
    assert "contributed nothing" in str(unused.statement(0, delta=1e-5))
    for bad in (3, -1, 1.5):
        with pytest.raises(ArgumentError, match="row="):
            kept.statement(bad, delta=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_norms_of_torch_are_counted_as_the_numbers_they_are(dtype):
    """Tensors of any precision, with or without a gradient, and people as a tensor."""
    torch = pytest.importorskip("torch")
    norms = torch.tensor([0.5, 2.0, 5.0], dtype=getattr(torch, dtype), requires_grad=True)
    ours, theirs = (individual.Losses(3, least=2.0, most=200.0) for _ in range(2))
    ours.record(STEP, np.array([0.5, 2.0, 5.0]), people=[2, 0, 1])
    theirs.record(STEP, norms, people=torch.tensor([2, 0, 1]))
    assert np.array_equal(ours.counts(0.005), theirs.counts(0.005))

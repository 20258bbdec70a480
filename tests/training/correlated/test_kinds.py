"""Fixed batches: nobody moves when somebody else comes or goes; wrong sizes are refused."""

import numpy as np
import pytest

from almoner import errors
from almoner.training import FixedBatches


def test_somebody_else_moves_nobody():
    """By id and by records: without any one person, in any order, all others are where they were."""
    batches, rng = FixedBatches(10), np.random.default_rng(0)
    ids, x, y = [f"person {i}" for i in range(60)], rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    by_id, by_record = batches.of_ids(ids, count=6), batches.of_records((x, y), None, count=6, n=60)
    for gone in range(60):
        stay = rng.permutation(np.delete(np.arange(60), gone))
        assert np.array_equal(batches.of_ids([ids[i] for i in stay], count=6), by_id[stay])
        assert np.array_equal(batches.of_records((x[stay], y[stay]), None, count=6, n=59), by_record[stay])


def test_all_records_of_a_person_together_decide():
    """A person with several records has one batch, in whatever order and between whomever they stand."""
    batches, rng = FixedBatches(5), np.random.default_rng(1)
    x, people = rng.normal(size=(40, 2)), np.arange(40) // 4
    found = batches.of_records((x,), people, count=7, n=10)
    order = rng.permutation(40)
    assert np.array_equal(batches.of_records((x[order],), people[order], count=7, n=10), found)
    alone = [batches.of_records((x[people == i],), np.zeros(4, dtype=int), count=7, n=1)[0] for i in range(10)]
    assert found.tolist() == alone


def test_batches_are_about_equal():
    """30,000 people in 30 batches: none is further from 1,000 than six standard errors; another key moves most."""
    first = FixedBatches(1000).of_ids(range(30_000), count=30)
    assert abs(np.bincount(first, minlength=30) - 1000).max() < 6 * 31.1
    other = FixedBatches(1000, key="other").of_ids(range(30_000), count=30)
    assert np.mean(first == other) < 0.05


def test_ids_have_spellings_of_their_own():
    """The number 1, the text "1" and bytes are three people; NumPy's numbers are Python's."""
    batches = FixedBatches(1)
    number, text, raw = batches.of_ids([1, "1", b"1"], count=2**40)
    assert len({number, text, raw}) == 3
    assert batches.of_ids(np.array([1]), count=2**40)[0] == number


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FixedBatches(0), "size=0"),
        (lambda: FixedBatches(2.5), "size=2.5"),
        (lambda: FixedBatches(True), "size=True"),
        (lambda: FixedBatches(5, order="random"), "order='random'"),
        (lambda: FixedBatches(5, key=""), "key=''"),
        (lambda: FixedBatches(100).count(99), "size=100 must be at most"),
        (lambda: FixedBatches(100).count(float("inf")), "people=inf"),
        (lambda: FixedBatches(5).of_ids([1.5], count=3), "ids must be"),
        (lambda: FixedBatches(5).of_ids([True], count=3), "ids must be"),
        (lambda: FixedBatches(5).of_ids([1], count=0), "count=0"),
    ],
)
def test_wrong_sizes_are_refused(make, words):
    """The error names the argument and the rule, and no person's id."""
    with pytest.raises(errors.ArgumentError, match=words):
        make()


def test_the_number_of_batches_follows_from_public_numbers():
    """The public number of people over the size, rounded, at least one."""
    assert FixedBatches(512).count(32_561) == 64
    assert FixedBatches(10).count(10) == 1
    assert FixedBatches(10).count(14.9) == 1

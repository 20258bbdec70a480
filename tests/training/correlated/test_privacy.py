"""The theorem on correlated noise against an adversary: exact privacy loss, and wrong variants that are caught.

The adversary knows all other people, sees all outputs, and picks the person's gradients, and whether there are any,
from the past outputs: what it can reach is computed by dynamic programming over the privacy loss, in both directions
(for Gaussian rounds the law of the loss is the same in both).
"""

from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.special import ndtr

from almoner.training import FixedBatches
from almoner.training.correlated import Banded, BandedInverse, PrefixSums
from almoner.training.correlated._factor import Noise, price

BUDGET = 1.0  # mu of the person's account; sigma is 1
WIDTH = 0.012
LOSSES = np.arange(-750, 751) * WIDTH


def gaussian_delta(mu, epsilon):
    """delta of mu-Gaussian DP at epsilon (theory 3.3)."""
    return ndtr(-epsilon / mu + mu / 2) - np.exp(epsilon) * ndtr(-epsilon / mu - mu / 2)


def by_columns(factor, places, gradients, total):
    """The right charge, which the library computes: all rows, with what overlaps."""
    products = factor.inner_products(places)
    cross = np.array([abs(np.asarray(gradients[:-1])) @ products[-1, :-1]])
    return total + float(price(products[-1, -1], cross, np.array([abs(gradients[-1])]))[0]) ** 2


def without_tails(factor, places, gradients, total):
    """Wrong: the row of the step alone is paid; later rows are never judged."""
    row = factor.columns(places)[places[-1]]
    return total + float(row @ np.asarray(gradients)) ** 2


def by_rows(factor, places, gradients, total):
    """Wrong: the length of the step's row in place of its column."""
    row = factor.columns(range(factor.steps))[places[-1]]
    return total + float(row @ row) * gradients[-1] ** 2


def without_overlap(factor, places, gradients, total):
    """Wrong: the column by itself, whatever it overlaps."""
    return total + factor.column_norm(places[-1]) ** 2 * gradients[-1] ** 2


def expected(after, mu, epsilon):
    """The mean of a value after a Gaussian round, for every loss before it; its loss is N(mu^2 / 2, mu^2)."""
    reach = len(LOSSES)
    jumps = np.arange(-reach, reach + 1) * WIDTH
    ends = (np.append(jumps - WIDTH / 2, jumps[-1] + WIDTH / 2) - mu * mu / 2) / mu
    masses = np.diff(ndtr(ends))
    above = -np.expm1(epsilon - (LOSSES[-1] + np.arange(1, reach + 1) * WIDTH))  # nothing else matters up there
    padded = np.concatenate([np.zeros(reach), after, above])
    return fftconvolve(padded, masses[::-1], mode="valid")


def worst_delta(factor, charge, epsilon, *, choices, allowed=None):
    """The largest delta that an adversary reaches, and the largest sum of squared row moves on any path."""
    steps = factor.steps
    columns = factor.columns(range(steps))
    most = 0.0

    @cache
    def value(gradients, total):
        """The adversary's value after some steps, for every loss so far."""
        nonlocal most
        step = len(gradients)
        if step == steps:
            most = max(most, float(((columns @ np.asarray(gradients)) ** 2).sum()))
            return np.maximum(0.0, -np.expm1(epsilon - LOSSES))
        best = np.full(len(LOSSES), -np.inf)
        for gradient in choices if allowed is None or step in allowed else (0.0,):
            paid, now = total, (*gradients, gradient)
            if gradient:
                places = [place for place, given in enumerate(now) if given]
                paid = charge(factor, places, [now[place] for place in places], total)
                if paid > BUDGET**2:
                    continue  # the account refuses
            mu = abs(float(columns[step, : step + 1] @ np.asarray(now)))
            after = value(now, paid)
            best = np.maximum(best, expected(after, mu, epsilon) if mu else after)
        return best

    return float(np.interp(0.0, LOSSES, value((), 0.0))), most


CHOICES = (-0.8, -0.4, 0.0, 0.4, 0.8)
FACTORS = [PrefixSums(), Banded(2), Banded(3), BandedInverse(2)]
each_factor = pytest.mark.parametrize("description", FACTORS, ids=repr)


@each_factor
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.5])
def test_no_adversary_beats_the_account(description, epsilon):
    """Whatever is chosen from outputs, at all places, delta is at most that of the account's budget."""
    delta, most = worst_delta(description.factor(3), by_columns, epsilon, choices=CHOICES)
    assert most <= BUDGET**2
    assert delta <= gaussian_delta(BUDGET, epsilon) + 2e-5
    assert delta > gaussian_delta(BUDGET, epsilon) * 0.3  # and the adversary is not asleep


def test_the_adversary_finds_what_is_there():
    """With a budget that a single gradient meets exactly, the value is the Gaussian mechanism's, in closed form."""
    factor = Banded(1).factor(2)
    delta, most = worst_delta(factor, by_columns, 1.0, choices=(0.0, 1.0 - 1e-9))
    assert delta == pytest.approx(gaussian_delta(1.0, 1.0), abs=2e-5)
    assert most == pytest.approx(1.0)


WRONG = {
    "tail not paid": (without_tails, PrefixSums(), None),
    "row in place of column": (by_rows, BandedInverse(3), {0}),
    "overlap not paid": (without_overlap, PrefixSums(), None),
    "overlap not paid within the band": (without_overlap, Banded(3), None),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_charges_are_caught(name):
    """The same adversary beats each wrong variant: delta is above the budget's, and rows move further than it says."""
    charge, description, allowed = WRONG[name]
    factor = description.factor(3)
    choices = (-0.4, 0.0, 0.4, 0.55, 0.8, 0.99)
    delta, most = worst_delta(factor, charge, 1.0, choices=choices, allowed=allowed)
    assert delta > gaussian_delta(BUDGET, 1.0) * 1.05
    assert most > BUDGET**2 * 1.05
    right, _ = worst_delta(factor, by_columns, 1.0, choices=choices, allowed=allowed)
    assert right <= gaussian_delta(BUDGET, 1.0) + 2e-5


@each_factor
def test_places_chosen_from_outputs_cost_what_they_commit(description):
    """On every path of joining or not, at any place with any sign, rows move by at most what was charged, exactly."""
    steps = 5
    factor = description.factor(steps)
    columns = [[Fraction(float(v)) for v in row] for row in factor.columns(range(steps))]
    slack = Fraction(1) + Fraction(1, 10**12)  # entries of columns are themselves rounded up
    for gradients in product((-0.5, 0.0, 1.0), repeat=steps):
        total, so_far = 0.0, []
        for gradient in gradients:
            so_far.append(gradient)
            if gradient:
                places = [place for place, given in enumerate(so_far) if given]
                total = by_columns(factor, places, [so_far[place] for place in places], total)
            rows = [sum(c * Fraction(g) for c, g in zip(row, so_far, strict=False)) ** 2 for row in columns]
            assert sum(rows) <= Fraction(total) * slack


def batches_by_rank(ids, count):
    """Wrong: the place in a sorted list of all people, in turns."""
    ranks = {each: rank for rank, each in enumerate(sorted(ids))}
    return np.array([ranks[each] % count for each in ids])


def moves_of_one_person(rule, *, gone, count=3, steps=6):
    """The squared moves of all rows of C G when a person is removed, all gradients being 1 or -1."""
    ids = list(range(12))
    stay = [each for each in ids if each != gone]
    factor = Banded(3).factor(steps)

    def sums(present):
        batch = rule(present, count)
        gradients = np.array([1.0 if each % count else -1.0 for each in present])
        return np.array([gradients[batch == step % count].sum() for step in range(steps)])

    difference = factor.columns(range(steps)) @ (sums(ids) - sums(stay))
    return float(difference @ difference)


def test_batches_by_other_people_are_caught():
    """By hash, removing anyone moves the rows by that person's own columns; by rank others' moves come on top."""
    charged = 2.0  # two places, columns of length 1 that do not overlap
    by_hash = [moves_of_one_person(lambda ids, m: FixedBatches(4).of_ids(ids, count=m), gone=i) for i in range(12)]
    by_rank = [moves_of_one_person(batches_by_rank, gone=i) for i in range(12)]
    assert max(by_hash) <= charged * (1 + 1e-12)
    assert max(by_rank) > 2 * charged


def rows_released(factor, keys):
    """The map from independent draws (one per key and step) to what is released: C G + z of each attempt."""
    names = sorted({(key, step) for attempt in keys for step, key in enumerate(attempt)})
    return np.array(
        [[float(name == (key, step)) for name in names] for attempt in keys for step, key in enumerate(attempt)]
    )


def test_noise_that_is_used_twice_is_caught():
    """Two attempts at a step under one key have a combination without noise; with a fresh key they have none."""
    factor = Banded(2).factor(2)
    reused = rows_released(factor, [["a", "a"], ["a", "a"]])
    assert np.linalg.matrix_rank(reused) < 4  # row 1 less row 1 of the other attempt: G against G, and no noise
    one, other = Noise(factor, 3, key=1), Noise(factor, 3, key=1)
    one.next(), other.next()
    assert np.array_equal(one.next(), other.next())
    other = Noise(factor, 3, key=2)
    other.go_on([(0, 1)], 1, key=2)
    one = Noise(factor, 3, key=1)
    one.next()
    assert not np.array_equal(one.next(), other.next())

"""Prices of rounds that are not planned, against curves that are added up term by term."""

import math

import numpy as np
import pytest

from almoner import mechanisms as m
from almoner._units import FAILURE
from almoner.curves import _loss_grid, planned
from almoner.curves.planned import _anytime
from almoner.curves.planned._anytime import Exchanges
from almoner.curves.planned._prices import no_louder

RUN = _anytime.Run(((m.RandomizedResponse(0.1), 1),), 200, delta=1e-5)
EXCHANGES = Exchanges(RUN)
SLACK = 10**20  # of 10**30


def composed(*rounds):
    """The law of several rounds on the run's grid, term by term: the least place, and the weights."""
    first, weights = 0, np.ones(1)
    for law, count in rounds:
        for _ in range(count):
            first, weights = first + law.first, np.convolve(weights, law.weights)
    return first, weights


def curve(law, epsilons):
    losses = RUN.step * (law[0] + np.arange(len(law[1])))
    return np.array([float(law[1] @ -np.expm1(np.minimum(epsilon - losses, 0.0))) for epsilon in epsilons])


@pytest.mark.parametrize("epsilon", [0.05, 0.15, 0.3])
def test_an_exchange_is_no_easier_to_tell_apart(epsilon):
    """The price of a round of another epsilon is valid beside its context and a larger one, and near its variance."""
    here = planned.level(40)
    price = EXCHANGES.price(m.RandomizedResponse(epsilon), 1, level=here, slack=SLACK)
    variance = (epsilon / 0.1) ** 2
    assert price.rounds is not None
    assert variance * 0.99 <= price.rounds <= 2 * variance + 1
    step, change = _loss_grid.laws(m.RandomizedResponse(0.1), RUN.step, RUN.cut)[0], _loss_grid.change(RUN.step)[0]
    epsilons, truth = np.linspace(-2.0, 6.0, 161), 1 / (1 + math.exp(-epsilon))
    for context in (planned.rounds_at(here) - price.rounds, 60):
        beside = composed((step, context), (change, price.back))
        after = truth * curve(beside, epsilons - epsilon) + (1 - truth) * curve(beside, epsilons + epsilon)
        before = curve(composed((step, context + price.rounds)), epsilons)
        assert np.all(after <= before + SLACK / FAILURE + 1e-13)
    more = composed((step, planned.rounds_at(here) - price.rounds), (change, price.back + 3 + price.back // 5))
    after = truth * curve(more, epsilons - epsilon) + (1 - truth) * curve(more, epsilons + epsilon)
    before = curve(composed((step, planned.rounds_at(here))), epsilons)
    assert np.any(after > before + SLACK / FAILURE)  # a fifth more change back is too much


def test_more_noise_at_a_smaller_rate_is_no_louder():
    """What is a planned round by monotony alone, and what is not."""
    step = m.SampledGaussian(1.0, 1.0, 0.01)
    assert no_louder(m.SampledGaussian(1.5, 1.0, 0.01), step)
    assert no_louder(m.SampledGaussian(1.0, 0.5, 0.005), step)
    assert no_louder(m.SampledGaussian(1.0, 1.0, 0.5), m.Gaussian(1.0))
    assert no_louder(m.Laplace(2.0), m.Laplace(1.0))
    assert no_louder(m.Pure(0.1), m.RandomizedResponse(0.1))
    for other in (m.SampledGaussian(0.9, 1.0, 0.001), m.SampledGaussian(9.0, 1.0, 0.02), m.Gaussian(9.0), m.Pure(0.0)):
        assert not no_louder(other, step)


def test_a_round_louder_than_all_that_is_left_has_no_price():
    """No number of planned rounds buys it."""
    price = EXCHANGES.price(m.Gaussian(0.5), 1, level=planned.level(16), slack=SLACK)
    assert price.rounds is None

"""Bounds that hold whenever one stops, against the best stopping rule by an independent dynamic programme."""

import math
from itertools import pairwise

import numpy as np
import pytest

from almoner import errors
from almoner import mechanisms as m
from almoner.accounting.compare import optimum
from almoner.curves.planned import _anytime
from stopping_rules import best_stop, crossing, post_processed, response

DELTA = 1e-4
PLANS = {
    "response": (m.RandomizedResponse(0.1), response(0.1), 300),
    "sampled": (m.SampledGaussian(0.8, 1.0, 0.05), post_processed(0.8, 0.05), 100),
}


@pytest.fixture(scope="module", params=PLANS)
def planned(request):
    mechanism, law, rounds = PLANS[request.param]
    return _anytime.Run(((mechanism, 1),), rounds, delta=DELTA), law, mechanism


def at_every_round(run, bounds):
    """The bound after 1, 2, ... rounds."""
    places = np.searchsorted(run.checkpoints, np.arange(1, run.checkpoints[-1] + 1))
    return np.asarray(bounds.epsilons)[places]


def test_checkpoints_begin_with_every_round_and_grow():
    """All of the first few, the end of the plan, and some beyond; then a part of themselves apart."""
    places = _anytime.checkpoints(1000)
    assert places[:5] == (1, 2, 3, 4, 5)
    assert 1000 in places
    assert places[-1] >= 1250
    assert all(a < b <= max(a + 1, 1.13 * a) for a, b in pairwise(places[:-1]))


@pytest.mark.slow
def test_the_best_stopping_rule_reaches_most_of_delta(planned):
    """At most delta, and more than half of it: the ex-post promise has little to spare."""
    run, law, _ = planned
    worth = best_stop(law, at_every_round(run, run.ex_post))
    assert 0.5 * DELTA < worth <= DELTA


@pytest.mark.slow
def test_the_loss_crosses_the_pathwise_bound_with_at_most_delta(planned):
    """The probability of ever being above it, by the same programme."""
    run, law, _ = planned
    assert 0.01 * DELTA < crossing(law, at_every_round(run, run.pathwise)) <= DELTA


@pytest.mark.slow
def test_without_a_level_the_same_rule_catches_the_bounds(planned):
    """The epsilons of fixed numbers of rounds at the whole delta, read at any moment: several times delta."""
    run, law, _ = planned
    whole = run._epsilons(1.0, np.ones(len(run.checkpoints)))
    unsplit = _anytime.Bounds(tuple(whole), 1.0)
    assert best_stop(law, at_every_round(run, unsplit)) > 2 * DELTA


@pytest.mark.slow
def test_five_times_the_level_is_caught(planned):
    """The level is near the largest there is: with five times it, the end's own part left alone, delta is exceeded."""
    run, law, _ = planned
    more = run._epsilons(min(1.0, 5 * run.ex_post.level), np.ones(len(run.checkpoints)))
    assert best_stop(law, at_every_round(run, _anytime.Bounds(tuple(more), 1.0))) > DELTA


def test_bounds_are_above_those_of_rounds_fixed_in_advance():
    """At every checkpoint, and within 20 per cent at the end of the plan."""
    run = _anytime.Run(((m.Pure(0.05), 1),), 400, delta=1e-6)
    for place, bound in zip(run.checkpoints, run.ex_post.epsilons, strict=True):
        assert bound >= optimum(m.Pure(0.05), place, 1e-6) if place in (1, 20, 400, run.checkpoints[-1]) else bound > 0
    assert run.ex_post.epsilons[run.checkpoints.index(400)] < 1.1 * optimum(m.Pure(0.05), 400, 1e-6)
    assert all(path > post for path, post in zip(run.pathwise.epsilons, run.ex_post.epsilons, strict=True))


def test_a_plan_of_several_mechanisms():
    """An epoch of two kinds of rounds lies between plans of each kind alone."""
    quiet, loud = m.SampledGaussian(1.0, 1.0, 0.02), m.SampledGaussian(2.0, 1.0, 0.02)

    def end(*plan):
        return _anytime.Run(plan, 50, delta=1e-5).ex_post.epsilons[-3]

    assert end((loud, 2)) < end((quiet, 1), (loud, 1)) < end((quiet, 2))


@pytest.mark.parametrize(("epsilon", "rounds"), [(4.0, 200), (1.0, 900)])
def test_a_plan_whose_loss_has_no_exponential(epsilon, rounds):
    """Rounds of up to 800 or 900 nats have bounds: near what few can lose, and no less than the optimum of all."""
    run = _anytime.Run(((m.Pure(epsilon), 1),), rounds, delta=1e-5)
    bounds = dict(zip(run.checkpoints, run.ex_post.epsilons, strict=True))
    assert bounds[3] < 1.1 * 3 * epsilon
    assert optimum(m.Pure(epsilon), rounds, 1e-5) <= bounds[rounds] < 1.05 * rounds * epsilon


@pytest.mark.slow
def test_what_is_refused():
    """Runs of no round or too many, and deltas below what transforms can certify."""
    step = ((m.Gaussian(20.0), 1),)
    for rounds, delta in ((0, 1e-5), (10**6 + 1, 1e-5), (10, 0.0), (10, math.nan)):
        with pytest.raises(errors.ArgumentError):
            _anytime.Run(step, rounds, delta=delta)
    with pytest.raises(errors.ArgumentError, match="at least about 1e-12"):
        _ = _anytime.Run(step, 10, delta=1e-17).ex_post

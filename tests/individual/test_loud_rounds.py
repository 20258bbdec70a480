"""Rounds that are not planned, charged to planned accounts: the quick form of benchmarks/tightness/loud_rounds.py."""

from dataclasses import replace

import numpy as np
import pytest

import loud_rounds
from almoner import filters, individual
from almoner import mechanisms as m
from almoner.curves import gaussian
from almoner.curves.planned import _table as planned_table

pytestmark = pytest.mark.slow


MARGIN = 1 + 1e-6  # of the oracle's own rounding


def test_one_round_that_breaks_the_promise_by_itself_is_refused():
    """Refused for people and for one account: in closed form its own delta is five times the promise."""
    budget = filters.Planned(m.SampledGaussian(0.2, 1.0, 0.0003), epsilon=0.5, delta=0.02)
    loud = m.Gaussian(1.5)
    assert gaussian.delta(1 / 1.5, epsilon=0.5) > 5 * 0.02
    assert not budget.admits(loud)
    people = individual.Filter(2, budget)
    assert people.charge(loud, np.array([1.0, 0.0])).tolist() == [False, True]
    assert not people.state()["spent"].any()


@pytest.mark.parametrize("seed", [1, 2, 6, 10, 12, 33, 36, 57])
def test_no_adversary_who_switches_by_the_loss_gains(seed):
    """Random plan, budget and other round, each judged by its own law of losses: never above the promised delta."""
    found = loud_rounds.played(*loud_rounds.random_triple(np.random.default_rng(seed)))
    assert found["alone"] <= MARGIN
    assert found["switch"] is not None
    assert 0.5 < found["switch"] <= MARGIN
    assert found["people"] == 0 or found["one"], "people are sold what the filter of one account refuses"


@pytest.mark.parametrize("seed", [1, 36])
def test_too_small_a_price_is_caught(seed, monkeypatch):
    """With one planned round as the price of a louder round, both oracles together find more than delta."""
    table = planned_table.table

    def one_unit(prices, mechanism, **options):
        right = table(prices, mechanism, **options)
        given = np.where(right.norms[:, None] > 0, 1, 0) * np.ones_like(right.given)
        return replace(right, given=given, back=np.zeros_like(given))

    monkeypatch.setattr(planned_table, "table", one_unit)
    found = loud_rounds.played(*loud_rounds.random_triple(np.random.default_rng(seed)))
    assert max(found["alone"], found["switch"]) > 1.2

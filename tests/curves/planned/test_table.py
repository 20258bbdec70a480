"""Prices for people whose accounts hold planned rounds: certified again, monotone, and near the least."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from almoner import mechanisms
from almoner.curves import _loss_grid
from almoner.curves.planned import Prices
from almoner.curves.planned import _table as planned_table
from almoner.curves.planned._table import CHANGE, NEVER, SHARE
from almoner.errors import Unsupported

PLAN = mechanisms.SampledGaussian(1.0, 1.0, 0.01)


@pytest.fixture(scope="module")
def prices():
    """A plan of about 1,200 rounds."""
    return Prices(((PLAN, 1),), epsilon=2.0, delta=1e-5)


@pytest.fixture(scope="module")
def table(prices):
    return planned_table.table(prices, PLAN)


@pytest.fixture(scope="module")
def grid(prices):
    """A grid of its own, with a window twice as wide, to check entries on."""
    own = _loss_grid.Grid(prices.grid.step, prices.grid.low - prices.grid.size // 2, 2 * prices.grid.size)
    own.add(PLAN, _loss_grid.laws(PLAN, own.step, prices.cut))
    own.add(CHANGE, _loss_grid.change(own.step, SHARE))
    return own


def round_at(table, grid, row):
    """A round at a norm of the table, known to the grid."""
    one = mechanisms.SampledGaussian(PLAN.sigma, float(table.norms[row]), PLAN.sample_rate)
    if one not in grid:
        grid.add(one, _loss_grid.laws(one, grid.step, 1e-18))
    return one


def shares(prices, table, given, change):
    """The slack of so many exchanges and of so much change, as the proof hands it out."""
    return prices.all_slack / 2 * (given / prices.rounds + change / (prices.rounds * table.worth))


def test_the_largest_norm_costs_alone_what_it_costs_in_the_whole_table(prices, table):
    """By itself it is found without the others, and is the last row."""
    top = planned_table.table(prices, PLAN, top=True)
    assert top.norms.tolist() == [0.0, table.norms[-1]] == [0.0, PLAN.sensitivity]
    for name in ("given", "back", "change"):
        assert np.array_equal(getattr(top, name)[-1], getattr(table, name)[-1])
    assert (top.unit, top.worth, top.most) == (table.unit, table.worth, table.most)
    assert np.array_equal(top.contexts, table.contexts)


@pytest.mark.slow
@pytest.mark.parametrize("row", [20, 36, 44, 52, 60])
def test_payments_are_valid_and_near_the_least(prices, table, grid, row):
    """On a grid of its own: each is certified with its share of the slack; one three per cent smaller is not."""
    one, checked = round_at(table, grid, row), 0
    for column, level in enumerate(table.contexts[:, 0].tolist()):
        change = int(table.change[row, column])
        if change < NEVER:
            slack = prices.spare(shares(prices, table, 0, change))
            assert grid.covers({one: 1}, {CHANGE: change}, {PLAN: level}, slack)
            checked += 1
    assert checked >= 3
    at = int(np.flatnonzero(table.change[row] < NEVER)[0])
    less = int(0.95 * table.change[row, at])
    assert not grid.covers({one: 1}, {CHANGE: less}, {PLAN: int(table.contexts[at, 0])}, slack)


@pytest.mark.slow
@pytest.mark.parametrize("row", [1, 30, 45, 55, 62])
def test_exchanges_are_valid(prices, table, grid, row):
    """Certified with the slack of the exchange alone, at every level; a fifth of a unit more in change is not."""
    one = round_at(table, grid, row)
    for column, level in enumerate(table.contexts[:, 0].tolist()):
        given, back = int(table.given[row, column]), int(table.back[row, column])
        if given < NEVER and back:
            slack = prices.spare(shares(prices, table, given, 0))
            assert grid.covers({one: 1, CHANGE: back}, {PLAN: given}, {PLAN: level - given}, slack)
            assert not grid.covers(
                {one: 1, CHANGE: back + table.worth // 5}, {PLAN: given}, {PLAN: level - given}, slack
            )


LOUD = (mechanisms.Gaussian(8.0), mechanisms.Gaussian(60.0), mechanisms.Laplace(40.0), mechanisms.Pure(0.02))


@pytest.mark.slow
@pytest.mark.parametrize("loud", LOUD, ids=repr)
def test_entries_of_several_units_are_valid(prices, grid, loud):
    """Certified again as they are sold, each with its own share of the slack: what comes back is in the bundle too."""
    dear, checked = planned_table.table(prices, loud), 0
    several = np.argwhere((dear.given > 1) & (dear.given < NEVER))
    for row, column in several[:: max(1, len(several) // 40)].tolist():
        norm = float(dear.norms[row])
        one = replace(loud, sensitivity=norm) if hasattr(loud, "sensitivity") else loud
        if one not in grid:
            grid.add(one, _loss_grid.laws(one, grid.step, 1e-18))
        given, back, level = (
            int(part) for part in (dear.given[row, column], dear.back[row, column], dear.contexts[column, 0])
        )
        slack = prices.spare(shares(prices, dear, given, 0))
        assert grid.covers({one: 1, CHANGE: back}, {PLAN: given}, {PLAN: level - given}, slack)
        checked += 1
    assert checked >= 3


def test_prices_rise_with_the_norm_and_fall_with_what_is_left(table):
    """In net and in change; no exchange gives back more than the planned rounds that it takes."""
    net = np.where(table.given < NEVER, table.given * table.worth - table.back, NEVER)
    for part in (net, table.change, table.given):
        assert np.all(np.diff(part[1:], axis=0) >= 0)
        assert np.all(np.diff(part[1:], axis=1) <= 0)
    sold = table.given[1:] < NEVER
    assert np.all(table.back[1:][sold] < table.given[1:][sold] * table.worth)
    assert np.all(table.change[1:] > 0)


@pytest.mark.slow
def test_the_planned_round_costs_one_and_so_does_all_that_it_dominates(prices, table):
    """At every level, also with a single planned round left; for another unit of the same noise too."""
    assert np.all(table.given[-1] == 1)
    assert not table.back[-1].any()
    assert np.all(table.given[1:, 0] == 1)
    doubled = planned_table.table(prices, mechanisms.SampledGaussian(2.0, 2.0, 0.01))
    assert np.array_equal(doubled.given[-1], table.given[-1])


@pytest.mark.slow
def test_less_noise_takes_several_planned_rounds(prices):
    """Gaussian noise of a third of what one planned round is worth: two to six of them, while many are left."""
    other = mechanisms.Gaussian(sigma=0.01**-1 / 2.3)
    dear = planned_table.table(prices, other)
    assert dear.given[-1, 0] == NEVER
    net = dear.given[-1, -1] - dear.back[-1, -1] / dear.worth
    assert 2 < net < 6


def test_a_reserve_and_rounds_without_a_distribution_are_refused(prices):
    """Accounts per person start without change; zCDP has no losses to certify."""
    with pytest.raises(Unsupported, match="reserve"):
        planned_table.table(Prices(((PLAN, 1),), epsilon=2.0, delta=1e-5, reserve=0.1), PLAN)
    with pytest.raises(Unsupported):
        planned_table.table(prices, mechanisms.Zcdp(1e-6))


def test_quick_looks_agree_with_the_certificate(prices, table, grid):
    """Five per cent above and below a payment, both say the same."""
    one, level = round_at(table, grid, 50), int(table.contexts[-1, 0])
    change = int(table.change[50, -1])
    slack = prices.spare(shares(prices, table, 0, change))
    for part in (0.9, 1.1):
        bundles = {one: 1}, {CHANGE: int(part * change)}, {PLAN: level}
        assert grid.seems_to_cover(*bundles, slack) == grid.covers(*bundles, slack) == (part > 1)


def test_the_worth_is_that_of_the_plans_dearest_round(prices, table):
    """Of a plan of one mechanism the worth of its table; nobody pays more rounds than there are units and change."""
    assert planned_table.worths(prices) == (table.worth,)
    assert table.most == prices.rounds * (1 + table.worth)


@pytest.mark.slow
def test_tables_built_in_two_threads_are_those_built_one_after_the_other():
    """All tables of a budget are certified on one grid: another thread's round must not stand for one's own."""
    both = [mechanisms.Gaussian(40.0), mechanisms.Gaussian(4000.0)]
    alone = [planned_table.table(Prices(((PLAN, 1),), epsilon=2.0, delta=1e-5), one) for one in both]
    for _ in range(2):
        shared = Prices(((PLAN, 1),), epsilon=2.0, delta=1e-5)
        with ThreadPoolExecutor(2) as pool:
            together = list(pool.map(partial(planned_table.table, shared), both))
        for one, other in zip(alone, together, strict=True):
            assert all(np.array_equal(getattr(one, part), getattr(other, part)) for part in ("given", "back", "change"))

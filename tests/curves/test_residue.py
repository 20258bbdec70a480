"""Costs of rounds under a residue budget, and their certificate, against independent high precision."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from almoner import mechanisms as m
from almoner._units import FAILURE, MEASURE, RANGE
from almoner.curves import _pairs, _residue
from hockey_sticks import CONTINUOUS, after_round, hockey


def least_gap(mechanism, rng, points, shrink=1.0, slacks=(1e-15, 1e-10)):
    """The least of H + slack - F over random states and epsilons, with the cost (times ``shrink``) of the table."""
    worst = mpf(1)
    for _ in range(points):
        level, slack = 8 * int(rng.integers(-10, 4)) + 3, int(FAILURE * rng.choice(slacks))
        cost = _residue.cost_at(mechanism, level, slack)
        if cost == math.inf:
            continue
        square = _residue.grid(level) * int(rng.choice([1000, 1000, 1050, 3000])) // 1000
        b, rest = mp.sqrt(mpf(square) / MEASURE), mp.sqrt((square - mpf(cost) * shrink) / MEASURE)
        e = mpf(float(rng.choice([rng.normal(), rng.uniform(0, 9), -rng.uniform(0, 9)]))) * b
        spare = hockey(e, b) + mpf(slack) / FAILURE
        worst = min(worst, *(spare - f for f in after_round(mechanism, e, rest)))
    return worst


SMALL = [m.Pure(0.1), m.Pure(0.01), m.Pure(1e-3), m.Pure(0.7), m.Exponential(0.3), m.Exponential(0.05)]


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", SMALL)
def test_costs_are_valid_at_random_points(mechanism):
    """Guarantee of cost: 500 random (e, b) for each mechanism, b at and above the grid, e of both signs."""
    assert least_gap(mechanism, np.random.default_rng(1), 500) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", CONTINUOUS)
def test_costs_of_continuous_losses_are_valid_at_random_points(mechanism):
    """The same for Laplace and for both directions of the sampled Gaussian, whose losses are put on points."""
    with mp.workdps(25):
        assert least_gap(mechanism, np.random.default_rng(2), 60) >= -(mpf(10) ** -19)


@pytest.mark.parametrize("mechanism", [m.Pure(0.01), m.Pure(0.1)])
def test_two_percent_less_would_not_be_valid(mechanism):
    """The check above can fail: costs two per cent smaller are caught."""
    assert least_gap(mechanism, np.random.default_rng(1), 500, shrink=0.98, slacks=(1e-15, 1e-13)) < 0


@pytest.mark.slow
@pytest.mark.parametrize("b", [0.05, 0.5, 3.0])
def test_the_bound_between_points_holds(b):
    """The certificate's lower bound over a cell is below D at 50 points inside it, for cells of several widths."""
    pair, square, cost = _pairs.randomized_response(b / 12)[0], b * b, (b / 12) ** 2 * 1.01
    rest = math.sqrt(square - cost)
    for width in (b / 200, b / 20, b / 3):
        left = np.arange(0.0, 8 * b, width)
        edges = np.stack([left, left + width / 2, left + width], axis=1)
        low, ends = _residue._lower_bounds(pair, edges, b, rest, 1e-13)
        for row, bounds, at in zip(edges, low, ends, strict=True):
            for cell in (0, 1):
                inside = np.linspace(row[cell], row[cell + 1], 50)
                d = _residue._gaussian(inside, b)[0] + 1e-13 - _residue._after(pair, inside, rest)[0]
                assert bounds[cell] <= d.min() + 1e-15
                assert at[cell] <= d[0] + 1e-15
                assert at[cell + 1] <= d[-1] + 1e-15


@pytest.mark.slow
def test_rounding_is_within_the_stated_bound():
    """H and its slope in floating point, against 50 digits, at 3000 points: a quarter of the allowance at most."""
    rng = np.random.default_rng(5)
    for _ in range(3000):
        b = float(10 ** rng.uniform(-3, 1))
        e = float((rng.uniform(-12, 12) + b / 2) * b) if rng.random() < 0.7 else float(rng.uniform(-15, 15))
        value, fall, doubt = (float(x[0]) for x in _residue._gaussian(np.array([e]), b))
        slope = mp.exp(e) * mp.ncdf(-mpf(e) / b - mpf(b) / 2)
        assert max(abs(hockey(mpf(e), mpf(b)) - value), abs(slope - fall)) <= doubt / 4 + 1e-300


def test_the_certificate_refuses_what_is_false():
    """A cost below the variance of the loss is not certified, whatever the slack of rounding."""
    pair = _pairs.randomized_response(0.1)[0]
    assert _residue.certified(pair, square=4.0, cost=0.0101, slack=1e-12)
    assert not _residue.certified(pair, square=4.0, cost=0.0099, slack=1e-12)
    assert not _residue.certified(_pairs.Pair(np.zeros(1), np.zeros(1), 0.1), square=4.0, cost=1.0, slack=1e-12)


@pytest.mark.slow
def test_tables_for_people_hold_costs_with_slack_of_their_own():
    """Every entry is at least a cost certified for its norm, at its level or below, with the slack of its row, and
    at least that slack's share of everything."""
    step, most, total = m.Laplace(20.0), MEASURE // 10, 10**23
    table = _residue.table(step, most=most, slack=total)
    levels = [_residue.level(int(square)) for square in table.squares]
    assert table.units[0].tolist() == [0] * len(levels)
    for row in range(1, len(table.norms), 9):
        one, slack = m.Laplace(20.0, float(table.norms[row])), table.slacks[row]
        for column in range(0, len(levels), 8):
            cost = int(table.units[row, column])
            assert cost == RANGE or cost >= min(_residue.cost_at(one, at, slack) for at in levels[: column + 1])
            assert cost * total >= slack * most
            assert cost == RANGE or cost <= table.squares[column]
    assert (np.diff(table.units, axis=0) >= 0).all()
    assert (np.diff(table.units, axis=1) <= 0).all()

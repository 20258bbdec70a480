"""Mixed questions by one budget, caps and accounts: the rows are what their words say, and what the product does."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[2] / "experiments" / "queries"))
import mixed

PLAN = {"full": [6.1, 2.2, 3.3, 4.4], "clips": [0.5, 0.5]}


def customers(count=60):
    """(2, count, WEEKS) pounds and items of made-up customers, of whom some run out of budget soon."""
    rng = np.random.default_rng(0)
    came = rng.random((count, mixed.WEEKS)) < rng.beta(1, 2, (count, 1))
    came[0] = True  # somebody comes in each week
    return came * rng.lognormal(6, 1, (2, count, mixed.WEEKS))


@pytest.mark.parametrize("pace", [None, 0.0, 0.2])
def test_accounts_are_those_of_a_session(pace):
    """A session charges each person what the experiment charges, and answers what it expects, but for the noise."""
    found = mixed.product(customers(), PLAN | {"pace": pace}, 2.0, 3)
    assert found["answers"] == 12
    assert found["largest difference of a person's spending"] < 1e-6 * found["budget"]
    assert found["mean square of (answer - expected) / noise"] < 4  # more once in 300,000 runs


def test_caps_count_the_first_weeks_and_cost_no_more_than_the_budget():
    """Nobody is counted more often than the cap of a kind says, and all kinds together cost the budget."""
    shop, rho = mixed.Shop(customers()), 0.1
    plan = {"weeks": [2, 3, 4, 5], "shares": [0.1, 0.2, 0.3, 0.4], "clips": [1.0, 1.0]}
    counted, times = mixed.caps(shop, plan), np.zeros((4, shop.people))
    for week in range(mixed.WEEKS):
        for kind in range(4):
            times[kind, shop.who[week]] += counted(kind, week, np.ones(len(shop.who[week])))
    assert times.max(axis=1).tolist() == plan["weeks"]
    cost = np.array(plan["weeks"]) / (2 * mixed.noises(plan, rho) ** 2)
    assert cost.sum() == pytest.approx(rho)


def test_without_noise_and_limits_the_answers_are_the_truth():
    """A budget that is never used up and no noise give the true figures."""
    shop = mixed.Shop(customers())
    found = mixed.answers(shop, PLAN | {"full": [1e9] * 4, "clips": [1.0, 1.0], "pace": 0.0}, 1.0, 0, noise=0.0)
    for name in ("customers", "revenue", "items", "mean"):
        np.testing.assert_allclose(found[name], shop.truth[name])
    chosen = [shop.truth[asked][week] for week, asked in enumerate(found["asked"])]
    np.testing.assert_allclose(found["chosen"], chosen)

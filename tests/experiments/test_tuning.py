"""Tuning under one budget: every trial and every question is charged to the accounts of the final model."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from almoner import filters, individual
from data_folders import needs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tuning():
    spec = importlib.util.spec_from_file_location("tuning", ROOT / "experiments" / "lecuyer_2021" / "tuning.py")
    module = sys.modules["tuning"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["tuning"]


def people_and_size(tuning):
    """Records of 200 people, and the size of a small run."""
    generator = torch.Generator().manual_seed(4)
    x = torch.nn.functional.normalize(torch.randn(200, 5, generator=generator))
    return x, (x[:, 0] > 0).long(), tuning.Size(epsilon=2.0, steps=30, first=2, second=4, sigma=40.0)


def accounts(size, share=1.0):
    mu = filters.Gaussian(epsilon=size.epsilon, delta=size.delta).mu
    return individual.Filter(200, filters.Gaussian(mu=share**0.5 * mu))


class Naive:
    """What is not done: every trial gets fresh accounts, and what it spent is forgotten."""

    def __init__(self, size, share):
        self.make, self.total = lambda: accounts(size, share), np.zeros(200)

    def next(self, now):
        self.total += now.spent()
        return self.make()


def trials(tuning, size, share, naive=None, kind="rates"):
    """What each person has spent after each training, and the budget; all trainings of a tuned run."""
    x, y, _ = people_and_size(tuning)
    run = tuning.Tuning(x, y, accounts(size, share), size, seed=1)
    budget, seen, go_on = run.accounts.budget.mu**2, [], run.go_on

    def watched(candidate, steps, *, ask):
        answer = go_on(candidate, steps, ask=ask)
        seen.append(run.accounts.spent().copy())
        if naive is not None:
            run.accounts = naive.next(run.accounts)
        return answer

    run.go_on = watched
    tuning.tuned(run, tuning.KINDS[kind])
    return seen, budget


@pytest.mark.parametrize("kind", ["rates", "networks"])
def test_the_plan_fits_and_every_trial_is_charged(tuning, kind):
    """Seven trainings, each of which somebody pays for; nobody spends more than the budget."""
    _, _, size = people_and_size(tuning)
    seen, budget = trials(tuning, size, share=1.0, kind=kind)
    assert len(seen) == 7
    for before, after in zip([np.zeros(200), *seen], seen, strict=False):
        assert (after >= before).all()
        assert after.max() > before.max()
    assert seen[-1].max() <= budget


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_nobody_overspends_where_the_budget_is_too_small_for_the_trials(tuning, share):
    """With a part of the budget that was planned for, people run out during the trials, and no account exceeds it."""
    _, _, size = people_and_size(tuning)
    seen, budget = trials(tuning, size, share)
    assert all((spent <= budget).all() for spent in seen)
    assert (seen[-1] > 0.999 * budget).any()  # somebody has run out


def test_forgetting_the_trials_would_overspend(tuning):
    """With fresh accounts for every trial, the same trainings spend more on a person than the budget."""
    _, _, size = people_and_size(tuning)
    naive = Naive(size, 0.4)
    _, budget = trials(tuning, size, 0.4, naive)
    assert naive.total.max() > 1.2 * budget


@pytest.mark.slow
@needs("adult", "fashion_mnist")
def test_tuning_in_quick_form(tuning, tmp_path):
    """The tuned run and each candidate alone, for each budget; nobody's account exceeds it, and there is a table."""
    results = tuning.main(["--quick", "--out", str(tmp_path)])
    assert len(results) == len(tuning.KINDS) * len(tuning.BUDGETS) * (1 + tuning.CANDIDATES)
    assert all(0 < row["most spent of a budget"] <= 1 for row in results)
    assert {row["trainings"] for row in results if row["how"] == "tuned"} == {7}
    assert "| 1 | tuned: chose" in (tmp_path / "tuning.md").read_text(encoding="utf-8")

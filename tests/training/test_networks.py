"""Searches among networks: what a run may cost, what is released, and which trainers are refused."""

import numpy as np
import pytest
import torch
from torch import nn

from almoner import filters, training
from almoner import mechanisms as m
from almoner.curves import gaussian, renyi, tuning
from almoner.errors import ArgumentError, Unsupported
from almoner.training import PrivateSearch, _networks
from almoner.training._linear import search as searching

X = torch.randn(300, 5, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
DP_SGD = {"sampling": training.Poisson(0.1), "steps": 20, "individual": False}


def trainer(budget, rate=1.0, module=None, optimizer=torch.optim.SGD, **others):
    module = module or nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2))
    loss = nn.CrossEntropyLoss(reduction="none")
    settings = {"max_grad_norm": 1.0, "divisor": 300, "steps": 8} | others
    return training.Trainer(module, loss, optimizer(module.parameters(), lr=rate), budget, **settings)


def sampled(budget, rate=1.0, **others):
    return trainer(budget, rate, **DP_SGD | others)


def run_once(monkeypatch, make=trainer, grid=None, **settings):
    """Search with one run; the trainer of this run."""
    kept = []
    fit = training.Trainer.fit
    monkeypatch.setattr(training.Trainer, "fit", lambda self, *given: kept.append(self) or fit(self, *given))
    monkeypatch.setattr(searching.tuning, "draw_runs", lambda best, seed: 1)
    search = PrivateSearch(make, grid or {"rate": [1.0]}, runs=5, **settings)
    return search.fit(X, Y), kept[0]


@pytest.mark.parametrize("held_out", [False, True])
def test_a_run_and_its_score_are_what_was_priced(held_out, monkeypatch):
    """What the accounts of one run have spent, and the score, are within the mechanism whose best costs (1, 1e-5)."""
    search, one = run_once(monkeypatch)
    planned = search._plan(held_out)
    assert 0.99 < tuning.epsilon(planned.best, delta=1e-5) <= 1.0
    score, whole = planned.score.sigma**-2, planned.best.mechanism.sigma**-2
    training_alone = planned.training.sigma**-2
    assert (max(training_alone, score) if held_out else training_alone + score) <= whole
    if not held_out:
        assert one.accounts.budget.mu**2 == pytest.approx(training_alone, rel=1e-9)
        assert float(np.max(one.accounts.spent())) <= training_alone
        assert float(np.max(one.accounts.spent())) > 0.9 * training_alone


@pytest.mark.parametrize("held_out", [False, True])
def test_dp_sgd_takes_the_steps_that_were_priced(held_out, monkeypatch):
    """As many as were priced, with no less noise; all of them and the score are the run whose best costs (1, 1e-5)."""
    search, one = run_once(monkeypatch, sampled)
    planned = search._plan(held_out, (0.1, 20))
    assert 0.99 < tuning.epsilon(planned.best, delta=1e-5) <= 1.0
    parts = m.leaves(planned.best.mechanism)
    assert parts.pop(planned.training.mechanism) == 20
    assert parts == ({} if held_out else {planned.score: 1})
    if not held_out:
        ((step, count),) = one.card(delta=1e-5).released
        assert count == 20
        assert step.sample_rate == planned.training.mechanism.sample_rate
        assert 1 <= step.sigma / planned.training.mechanism.sigma < 1.002
        # noise that one run alone may have at this epsilon is too little for the best of several
        alone = m.Repeated(m.SampledGaussian(0.8 * step.sigma, 1.0, 0.1), 20)
        assert tuning.epsilon(m.BestOf(alone, 5, 1.0), delta=1e-5) > 1.0


def test_the_price_of_dp_sgd_is_within_that_of_its_renyi_curve():
    """Two theorems price the best run: hockey-stick divergences, and Rényi's, which are never smaller by much."""
    planned = PrivateSearch(sampled, {"rate": [1.0]}, runs=5)._plan(False, (0.1, 20))
    curve = renyi.of(planned.best)
    assert renyi.epsilon(curve.values, curve.orders, delta=1e-5) >= 0.99


@pytest.mark.parametrize("make", [trainer, sampled])
def test_a_search_finds_what_works(make):
    """A rate that learns nothing is not the best; the module is what was made, and its card that of the search."""
    search = PrivateSearch(make, {"rate": [1e-6, 2.0]}, epsilon=8.0, runs=10, seed=3).fit(X, Y)
    assert search.best_params_ == {"rate": 2.0}
    assert isinstance(search.best_estimator_, nn.Sequential)
    assert float((search.best_estimator_(X).argmax(1) == Y).double().mean()) > 0.8
    assert 200 < search.best_score_ < 320
    assert (search.card_.epsilon, search.card_.delta) == (8.0, 1e-5)
    assert "one of 2 public settings (rate=2.0)" in search.card_.to_markdown()
    told = set(vars(search)) - set(search.get_params(deep=False))
    assert told == {"best_estimator_", "best_params_", "best_score_", "card_"}
    assert not hasattr(search, "predict")


def test_one_person_moves_a_score_by_at_most_one():
    """With all of that person's records; a value that is not a number counts for nothing."""
    values = torch.rand(300, generator=torch.Generator().manual_seed(1)).double()
    values[7] = float("nan")
    values[8:20] *= 1e6
    door = _networks.Trainers(trainer, lambda output, rows: values[rows], reproducible=False)
    one, people, rows = trainer(filters.Gaussian(mu=1.0)), np.arange(300) // 3, torch.arange(300)
    whole = door.right(one, X, rows, people)
    for person in (2, 3, 50):
        rest = people != person
        others = np.unique(people[rest], return_inverse=True)[1]
        assert 0 <= whole - door.right(one, X[rest], rows[rest], others) <= _networks.Trainers.parts
    assert door.right(one, X[7:8], rows[7:8], None) == 0
    assert door.right(one, X[8:20], rows[8:20], None) <= 12 * _networks.Trainers.parts


def test_held_out_people_are_scored():
    """By the labels that they have, here the opposite ones, and by the scoring that was given."""
    search = PrivateSearch(trainer, {"rate": [2.0]}, epsilon=8.0, runs=2, seed=1)
    right = search.fit(X, Y, held_out=(X[:150], Y[:150])).best_score_
    wrong = search.fit(X, Y, held_out=(X[:150], 1 - Y[:150])).best_score_
    assert right > 90 > 60 > wrong
    half = search.set_params(scoring=lambda output, goals: torch.full((len(goals),), 0.5))
    assert half.fit(X, Y, held_out=(X[:150], Y[:150])).best_score_ == pytest.approx(75, abs=30)


class Louder(torch.optim.SGD):
    """An optimizer that has the next step take another clip, as one that hears of the run may."""

    def __call__(self, run):
        run.max_grad_norm *= 2


SHARED = nn.Linear(5, 2)


@pytest.mark.parametrize(
    ("make", "grid", "told"),
    [
        (lambda budget, rate: budget, {"rate": [1.0]}, "new training.Trainer"),
        (lambda budget, rate: trainer(filters.Gaussian(mu=9.0)), {"rate": [1.0]}, "new training.Trainer"),
        (lambda budget, rate: trainer(training.Target(9.0, 1e-5)), {"rate": [1.0]}, "new training.Trainer"),
        (lambda budget, rate: trainer(budget, seed=1), {"rate": [1.0]}, "seed="),
        (sampled, {"individual": [True]}, "individual=False"),
        (sampled, {"steps": [20, 21]}, "steps=20"),
        (sampled, {"sampling": [training.Poisson(0.1), training.Poisson(0.2)]}, r"Poisson\(0.1\)"),
        (sampled, {"noise_multiplier": [0.3]}, "noise of the budget"),
        (sampled, {"sampling": [training.Poisson(0.1), training.FullBatch()]}, "same steps of DP-SGD"),
    ],
)
def test_trainers_that_were_not_priced_are_refused(make, grid, told):
    """Before anybody's data are touched, which are no data here."""
    with pytest.raises(ArgumentError, match=told):
        PrivateSearch(make, grid, runs=5).fit("no records", "no labels")


def same_numbers(budget, rate):
    """A new module whose weight is the numbers of another one."""
    module = nn.Linear(5, 2)
    module.weight = nn.Parameter(SHARED.weight.data)
    return trainer(budget, module=module)


def assigned(budget, rate):
    """A new module that takes the numbers of a state for its own, which is all that is kept of a run."""
    module = nn.Linear(5, 2)
    module.load_state_dict(STATE, assign=True)
    return trainer(budget, module=module)


def frozen_at_times(freeze):
    """A function that makes a trainer of one part and a new head; in some runs the part is trained."""
    part, turns = nn.Linear(5, 5), iter(freeze)

    def make(budget, rate):
        part.requires_grad_(not next(turns))
        return trainer(budget, module=nn.Sequential(part, nn.Linear(5, 2)))

    return make


STATE = nn.Linear(5, 2).state_dict()


@pytest.mark.parametrize(
    "make",
    [
        lambda budget, rate: trainer(budget, module=SHARED),
        same_numbers,
        assigned,
        frozen_at_times([True, True, False, True]),  # tried, made, and twice trained: it begins with a trained part
        frozen_at_times([True, True, True, False]),  # the model of the run before would be moved
    ],
)
def test_a_module_that_shares_with_another_run_is_refused(make, monkeypatch):
    """Runs that are not independent have no such price."""
    monkeypatch.setattr(searching.tuning, "draw_runs", lambda best, seed: 2)
    with pytest.raises(ArgumentError, match="new module each time"):
        PrivateSearch(make, {"rate": [1.0]}, runs=5).fit(X, Y)


def test_a_frozen_part_may_be_in_all_runs(monkeypatch):
    """It is public, and no run changes it."""
    monkeypatch.setattr(searching.tuning, "draw_runs", lambda best, seed: 2)
    search = PrivateSearch(frozen_at_times([True] * 4), {"rate": [1.0]}, runs=5, seed=1).fit(X, Y)
    assert search.card_.reproducible  # the noise of the scores can be drawn again


def test_held_out_people_who_cannot_be_scored_are_refused():
    """Before anybody pays for a training."""
    search = PrivateSearch(trainer, {"rate": [2.0]}, runs=2)
    with pytest.raises(ArgumentError, match="as many"):
        search.fit(X, Y, held_out=(X[:5], Y[:4]))
    with pytest.raises(ArgumentError, match="at least one record"):
        search.fit(X, Y, held_out=(X[:0], Y[:0]))
    with pytest.raises(ArgumentError, match="values must give one number for each record"):
        search.set_params(scoring=lambda output, goals: output).fit(X, Y, held_out=(X[:5], Y[:5]))
    assert not hasattr(search, "card_")


def test_an_optimizer_that_changes_steps_is_refused(monkeypatch):
    """DP-SGD was priced as it was planned; with accounts per person others may follow, which these pay for."""
    with pytest.raises(Unsupported, match="changes the steps"):
        run_once(monkeypatch, sampled, {"optimizer": [Louder]})
    found, one = run_once(monkeypatch, trainer, {"optimizer": [Louder]})
    assert float(np.max(one.accounts.spent())) <= found._plan(False).training.sigma ** -2
    assert gaussian.epsilon(one.accounts.budget.mu, delta=1e-5) < found.card_.epsilon

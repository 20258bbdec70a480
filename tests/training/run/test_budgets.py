"""Training with epsilon and delta alone: the recommended filter, its reason on the card, and the noise it needs."""

import pytest
import torch
from torch import nn

from almoner import filters, individual, mechanisms, training
from almoner.accounting import calibrate
from almoner.errors import ArgumentError, CalibrationFailed
from almoner.training._run import settings as run_settings
from training_runs import BY_RECORD

N = 200
TARGET = {"epsilon": 1.0, "delta": 1e-5}


def trainer(**options):
    """A linear classifier of ten features, with a clip whose product with the noise is rounded."""
    torch.manual_seed(0)
    module = nn.Linear(10, 2)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    if "epsilon" in options:
        options["budget"] = training.Target(options.pop("epsilon"), options.pop("delta"))
    return training.Trainer(module, BY_RECORD, optimizer, **{"max_grad_norm": 0.7, "divisor": N} | options)


def records():
    x = torch.randn(N, 10, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


@pytest.mark.slow
def test_sampled_steps_are_as_many_as_if_they_were_fixed():
    """DP-SGD at noise 1.1 and rate 0.01: the filter is planned for these very steps, and admits what is possible."""
    job = trainer(noise_multiplier=1.1, sampling=training.Poisson(0.01), individual=False, **TARGET)
    run = job.fit(*records())
    fixed = calibrate.in_advance(noise_multiplier=1.1, sample_rate=0.01, **TARGET).steps
    assert 0.99 * fixed <= run.step <= fixed
    card = job.card()
    assert (card.notion, card.epsilon, card.delta) == ("Planned", 1.0, 1e-5)
    assert card.why.startswith("Planned: ")
    assert f"**Why this filter**: {card.why}" in card.to_markdown()
    exact = individual.losses([[run.step]], [1.1 * 0.7 / 0.7], sample_rate=0.01, delta=1e-5)[0]
    assert 0.99 < exact <= 1.0


@pytest.mark.slow
def test_the_least_noise_is_that_of_a_plan():
    """Without noise, the least with which the steps fit: all are taken, and the noise is hardly above a fixed run's."""
    job = trainer(steps=30, sampling=training.Poisson(0.05), individual=False, **TARGET)
    fixed = calibrate.in_advance(steps=30, sample_rate=0.05, **TARGET).noise_multiplier
    assert fixed <= job.noise_multiplier * (1 + 1e-4) <= 1.01 * fixed
    assert job.fit(*records()).step == 30


@pytest.mark.parametrize("per_person", [True, False])
@pytest.mark.parametrize("noise", [None, 20.0])
def test_steps_of_everybody_have_the_exact_filter(per_person, noise):
    """Without sampling it is `filters.Gaussian`, with the noise that this filter has always had."""
    job = trainer(steps=10, noise_multiplier=noise, individual=per_person, **TARGET)
    same = trainer(budget=filters.Gaussian(**TARGET), steps=10, noise_multiplier=noise, individual=per_person)
    assert job.noise_multiplier == same.noise_multiplier
    assert job.fit(*records()).step == 10
    card, other = job.card(), same.fit(*records()) and same.card()
    assert (card.budget, card.total) == (other.budget, other.total)
    assert card.why.startswith("Gaussian: ")
    assert other.why == ""


def test_accounts_per_person_have_the_best_filter_that_they_can_have():
    """Whatever is named admits at least as many steps as each filter that was a choice before."""
    step = mechanisms.SampledGaussian(2.0, 1.0, 0.05)
    budget, why = run_settings.recommended(1.0, 1e-5, step, per_person=True)
    individual.Filter(1, budget)
    others = filters.Residue(**TARGET), filters.Renyi(plan=step, **TARGET), filters.Renyi(**TARGET)
    assert calibrate.steps(budget, step) >= 0.99 * max(calibrate.steps(each, step) for each in others) > 0
    assert why.startswith(type(budget).__name__)


@pytest.mark.slow
def test_a_resumed_run_has_the_same_budgets(tmp_path):
    """The filter and its plan are chosen anew from the same public facts; another epsilon is refused."""
    options = {"noise_multiplier": 1.5, "sampling": training.Poisson(0.1), "individual": False, "steps": 4, "seed": 1}
    x, y = records()
    trainer(**options, **TARGET).fit(x, y, folder=training.RunFolder(tmp_path, every=1))
    again = trainer(**options, **TARGET)
    assert again.fit(x, y, folder=training.RunFolder(tmp_path, resume=True)).step == 4
    assert again.card().notion == "Planned"
    with pytest.raises(ArgumentError, match="do not hold the budget"):
        trainer(**options, epsilon=2.0, delta=1e-5).fit(x, y, folder=training.RunFolder(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": None}, r"budget=None must be a fresh filter, training.Target\(epsilon, delta\)"),
        ({"budget": filters.Gaussian}, "must be a fresh filter"),
        ({"epsilon": 0.0, "delta": 1e-5}, "epsilon=0.0"),
        ({"epsilon": 1.0, "delta": 2.0}, "delta=2.0"),
        ({"noise_multiplier": -1.0, **TARGET}, "noise_multiplier=-1.0"),
    ],
)
def test_what_is_missing_or_twice_is_refused(options, message):
    """Before anything is charged, by name."""
    with pytest.raises(ArgumentError, match=message):
        trainer(steps=5, **options)


@pytest.mark.slow
def test_no_noise_may_be_enough(monkeypatch):
    """Where no noise is enough the search ends in an error that names the target."""
    monkeypatch.setattr(run_settings, "least", lambda *_, **__: float("inf"))
    with pytest.raises(CalibrationFailed, match=r"epsilon=1\.0.*5 steps"):
        trainer(steps=5, sampling=training.Poisson(0.1), individual=False, **TARGET)


def test_the_estimators_default_is_what_is_recommended():
    """Logistic regression: the exact Gaussian filter, and the card says why."""
    x, y = records()
    options = {"steps": 5, "n_people": N, "classes": [0, 1], "seed": 1}
    model = training.LogisticRegression(**TARGET, **options).fit(x.numpy() / 4, y.numpy())
    assert model.card_.why == filters.recommend(plan=mechanisms.Gaussian(1.0), **TARGET).why

"""What an account cannot price or count is refused before anybody is charged, at every door."""

import numpy as np
import pytest
import torch

from almoner import errors, filters, individual, mechanisms, odometers, training
from almoner.training import callbacks, stopping
from training_runs import BY_RECORD, N, network, records, trainer

SAMPLED = odometers.Gaussian(delta=1e-5, plan=1.0)  # no price for sampled steps


@pytest.mark.slow
@pytest.mark.parametrize("own", [True, False])
def test_trainer_asks_the_odometer_first(tmp_path, own):
    """A budget that takes sampled steps beside an odometer that does not: nothing is charged, written or taken."""
    people = individual.Filter(N, filters.Renyi(epsilon=1.0, delta=1e-5)) if own else None
    budget = people or filters.Renyi(epsilon=1.0, delta=1e-5)
    job = trainer(budget, sampling=training.Poisson(0.2), noise_multiplier=9.0, individual=own)
    with pytest.raises(errors.Unsupported):
        job.fit(*records(), watch=SAMPLED, folder=None if own else tmp_path / "run")
    assert not (tmp_path / "run").exists()
    if people is not None:
        assert not people.spent().any()
    else:
        trainer(budget, individual=False, steps=1, sampling=training.Poisson(0.2), noise_multiplier=9.0).fit(
            *records()
        )  # not taken


def test_accounts_are_asked_before_a_step_whatever_is_set_in_between(tmp_path):
    """An odometer's filters that are too small for a step with less noise: neither accounts nor journal see it."""
    people = individual.Filter(N, filters.RenyiOrder(alpha=8.0, rho=5.0))
    odometer = odometers.FeldmanZrnic(alpha=8.0, step=0.05, delta=1e-5)

    def louder(run):
        if run.step == 1:
            run.noise_multiplier = 1.0

    job = trainer(filters.RenyiOrder(alpha=8.0, rho=5.0), noise_multiplier=20.0, individual=False)
    with pytest.raises(errors.BudgetExceeded):
        job.fit(*records(), callbacks=[louder], watch=odometer, folder=tmp_path / "run")
    assert len((tmp_path / "run" / "journal.jsonl").read_text().splitlines()) == 1
    assert job.accounts.state()["count"] == 1
    assert not people.spent().any()


def test_counting_gives_back_its_price_where_losses_or_bounds_cannot_count_it():
    """A pure question beside Gaussian counts: the caller's accounts are as they were."""
    people = individual.Filter(N, filters.Zcdp(rho=2.0))
    for beside in (individual.Losses(N, least=4.0, most=400.0), odometers.Renyi(delta=1e-5)):
        job = trainer(people, noise_multiplier=40.0)
        with pytest.raises(errors.Unsupported, match="can't be counted"):
            job.fit(
                *records(), watch=[beside, lambda accounts: stopping.StillActive(accounts, at_least=9, epsilon=0.1)]
            )
        assert not people.spent().any()


def test_questions_of_callbacks_are_asked_of_all_accounts_first():
    """A question that the odometer has no price for costs nobody anything."""
    people = individual.Filter(N, filters.RenyiOrder(alpha=8.0, rho=5.0))
    seen = []

    def ask(run):
        if run.step == 0:
            with pytest.raises(errors.BudgetExceeded):
                run.noisy_sum(lambda output, target: torch.ones(len(target)), sigma=0.1)
            seen.append(people.spent().any())
            run.stop()

    odometer = odometers.FeldmanZrnic(alpha=8.0, step=0.05, delta=1e-5)
    job = trainer(filters.RenyiOrder(alpha=8.0, rho=5000.0), noise_multiplier=20.0, individual=False)
    run = job.fit(*records(), callbacks=[ask], watch=odometer)
    assert run.answers == ()
    assert job.accounts.state()["count"] == 0


@pytest.mark.slow
def test_early_stopping_asks_its_odometer_before_the_first_step():
    """Its odometer has no price for the run's steps: refused before anybody is charged for one."""
    people = individual.Filter(N, filters.Renyi(epsilon=1.0, delta=1e-5))
    stop = callbacks.EarlyStopping(target=10, every=5, odometer=SAMPLED.fresh())
    with pytest.raises(errors.Unsupported):
        trainer(people, sampling=training.Poisson(0.2), noise_multiplier=9.0).fit(*records(), callbacks=[stop])
    assert not people.spent().any()


class Deaf(individual.Odometer):
    """An odometer that has no price for anything."""

    def check(self, step):
        raise errors.Unsupported("no price")

    def charge(self, step, norms, people=None):
        raise errors.Unsupported("no price")


def test_streams_ask_the_odometer_first(tmp_path, monkeypatch):
    """Nobody who is in the update is charged, and the journal says nothing."""
    x, y = records()
    people = individual.Filter([], filters.Gaussian(mu=2.0))
    module = network()
    stream = training.Stream(
        module,
        BY_RECORD,
        torch.optim.SGD(module.parameters(), lr=1.0),
        people,
        max_grad_norm=1.0,
        noise_multiplier=4.0,
        watch=odometers.Renyi(delta=1e-5),
    )
    (bounds,) = stream._run.book.observers
    monkeypatch.setattr(bounds, "odometer", Deaf([], odometers.Renyi(delta=1e-5)))
    with pytest.raises(errors.Unsupported, match="no price"):
        stream.update(x[:9], y[:9], [*range(9)], divisor=9)
    assert not people.spent().any()


def test_an_estimator_asks_the_odometer_first():
    """``fit`` with a budget that takes the steps beside an odometer that does not take them, or not the counting."""
    x, y = records()
    small = odometers.FeldmanZrnic(alpha=2.0, step=1e-9, delta=1e-5)
    spent = []
    model = training.LogisticRegression(steps=5, n_people=N, classes=[0, 1], individual=False)
    real = training.Everybody.charge

    def noting(self, step, norms):
        spent.append(step)
        return real(self, step, norms)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.Everybody, "charge", noting)
        with pytest.raises(errors.BudgetExceeded):
            model.fit(x.numpy(), y.numpy(), odometer=small)
    assert spent == []


def test_asking_changes_nothing():
    """``check`` of accounts and odometers raises what ``charge`` would, and leaves them as they are."""
    people, bounds = individual.Filter(3, filters.Gaussian(mu=1.0)), individual.Odometer(3, SAMPLED)
    sampled, plain = mechanisms.SampledGaussian(2.0, 1.0, 0.1), mechanisms.Gaussian(2.0)
    for account in (people, bounds, SAMPLED):
        account.check(plain)
        with pytest.raises(errors.Unsupported):
            account.check(sampled)
    restarts = odometers.FeldmanZrnic(alpha=8.0, step=0.05, delta=1e-5)
    with pytest.raises(errors.BudgetExceeded):
        restarts.check(mechanisms.Gaussian(0.1))
    repeated = individual.Odometer(3, odometers.FeldmanZrnic(alpha=8.0, step=0.05, delta=1e-5))
    with pytest.raises(errors.Unsupported, match="one by one"):
        repeated.check(mechanisms.Repeated(plain, 2))
    assert not np.asarray(people.spent()).any()
    assert (SAMPLED.count, restarts.count) == (0, 0)

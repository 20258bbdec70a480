"""Training with an odometer, beside a budget or without one: a running bound for each person, or the worst case."""

import numpy as np
import pytest
import torch

from almoner import errors, filters, individual, mechanisms, odometers, training
from training_runs import BY_RECORD, N, dies, network, records, trainer

PLAN = mechanisms.Repeated(mechanisms.Gaussian(20.0), 12)


def boundary():
    return odometers.Renyi(delta=1e-5, plan=PLAN)


def norm_of(module, x, y):
    """The norm of one record's gradient."""
    module.zero_grad()
    BY_RECORD(module(x[None]), y[None]).sum().backward()
    return float(torch.sqrt(sum((part.grad.double() ** 2).sum() for part in module.parameters())))


def test_each_persons_bound_is_that_of_their_own_clipped_gradients():
    """A naive loop over three people, step by step, finds the bounds of a run without a budget."""
    x, y = records()
    watched, naive = (0, 7, 399), {}
    module = network()

    def follow(run):
        if run.step == 6:
            return
        twin = network()
        twin.load_state_dict(module.state_dict())
        for person in watched:
            own = naive.setdefault(person, boundary())
            own.charge(mechanisms.Gaussian(20.0, min(1.0, norm_of(twin, x[person], y[person]))))

    job = trainer(boundary(), module, steps=6, noise_multiplier=20.0)
    # the sensitivity of a person's own round is their norm; the noise is the same
    run = job.fit(x, y, callbacks=[follow])
    assert run.step == 6
    bounds = job.odometer.epsilon()
    assert bounds.shape == (N,)
    for person, own in naive.items():
        assert bounds[person] == pytest.approx(own.epsilon(), rel=1e-4)
    assert len(set(bounds.round(9))) > N / 2


def test_without_a_budget_nobody_is_left_out_and_the_card_has_the_worst_case():
    """The public bound is that of every step at the full clip; no person's bound is above it."""
    x, y = records()
    job = trainer(boundary(), steps=12, noise_multiplier=20.0)
    job.fit(x, y)
    worst = boundary()
    worst.charge(mechanisms.Repeated(mechanisms.Gaussian(20.0), 12))
    card = job.card()
    assert (card.epsilon, card.delta) == (worst.epsilon(), 1e-5)
    assert np.all(job.odometer.epsilon() <= worst.epsilon())
    assert "odometer" in card.to_markdown()
    for private in (lambda: job.accounts, job.shares, lambda: job.holder_report):
        with pytest.raises(errors.ArgumentError, match="no budget"):
            private()


def test_an_odometer_beside_a_budget_counts_what_was_admitted():
    """The run is that of the budget alone, and people who ran out stop paying."""
    x, y = records()
    settings = {"steps": 20, "noise_multiplier": 5.0, "seed": 1, "sampling": training.FullBatch(pace=0.0)}
    budget = filters.Gaussian(mu=0.5)
    alone = trainer(budget, **settings)
    alone.fit(x, y)
    both = trainer(budget.fresh(), **settings)
    both.fit(x, y, watch=odometers.Gaussian(delta=1e-5, plan=1.0))
    assert np.array_equal(alone.accounts.spent(), both.accounts.spent())
    again = individual.Odometer(1, odometers.Gaussian(delta=1e-5, plan=1.0))
    again.charge(mechanisms.Gaussian(2.0), np.array([1.0]))  # mu squared of 1/4: all that the budget has
    most = float(again.epsilon()[0])
    assert np.max(both.odometer.epsilon()) <= most * (1 + 1e-9)
    assert np.max(both.odometer.epsilon()) == pytest.approx(most, rel=1e-6)


def test_the_worst_case_alone():
    """With individual=False there is one public odometer."""
    job = trainer(boundary(), individual=False, steps=3, noise_multiplier=20.0)
    job.fit(*records())
    worst = boundary()
    worst.charge(mechanisms.Repeated(mechanisms.Gaussian(20.0), 3))
    assert job.odometer.epsilon() == worst.epsilon()


def test_a_statement_for_a_person_of_a_trained_model():
    """The running bound with an odometer, the used share of the budget without; none where all are charged the same."""
    x, y = records()
    bounded = trainer(boundary(), steps=3, noise_multiplier=20.0)
    bounded.fit(x, y)
    assert bounded.statement(7).epsilon == bounded.odometer.epsilon([7])[0]
    budgeted = trainer(filters.Gaussian(mu=0.5), steps=3)
    budgeted.fit(x, y)
    assert budgeted.statement(7, delta=1e-5).used == budgeted.shares()[7]
    alike = trainer(filters.Gaussian(mu=0.5), individual=False, steps=3)
    alike.fit(x, y)
    with pytest.raises(errors.ArgumentError, match="all are charged the same"):
        alike.statement(7, delta=1e-5)


@pytest.mark.parametrize("own", [True, False])
def test_a_resumed_run_has_paid_for_every_step(tmp_path, own):
    """After a stop between checkpoints each bound holds what was counted, and the worst case of what was not."""
    x, y = records()
    settings = {"steps": 12, "individual": own, "noise_multiplier": 20.0}

    def stop(run):
        if run.step == 5:
            raise KeyboardInterrupt

    first = trainer(boundary(), **settings)
    with dies(KeyboardInterrupt):
        first.fit(x, y, folder=training.RunFolder(tmp_path / "run", every=3), callbacks=[stop])
    counted = np.atleast_1d(first.odometer.epsilon())
    second = trainer(boundary(), **settings)
    run = second.fit(x, y, folder=training.RunFolder(tmp_path / "run", every=3, resume=True))
    assert sum(run.released.values()) == 12 + 2  # two steps after the last checkpoint were paid for twice
    assert np.all(np.atleast_1d(second.odometer.epsilon()) > counted)
    assert second.card().epsilon >= np.max(second.odometer.epsilon())
    other = trainer(odometers.Gaussian(delta=1e-5), **settings)
    with pytest.raises(errors.ArgumentError, match="odometer="):
        other.fit(x, y, folder=training.RunFolder(tmp_path / "run", resume=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": None, "noise_multiplier": 2.0}, "steps=None"),
        ({"noise_multiplier": None}, "steps and noise_multiplier must be given"),
        ({"budget": "renyi"}, "fresh odometer"),
        ({"budget": odometers.Planned(PLAN, delta=1e-5)}, "per person"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_read(options, message):
    """Steps, noise and the odometer are checked when the trainer is made."""
    with pytest.raises((errors.ArgumentError, errors.Unsupported), match=message):
        trainer(**{"budget": boundary(), "noise_multiplier": 20.0} | options)


def test_an_odometer_in_use_is_refused():
    """Its bounds would be about something else, too."""
    used = boundary()
    used.charge(mechanisms.Gaussian(20.0))
    with pytest.raises(errors.ArgumentError, match="fresh"):
        trainer(used, noise_multiplier=20.0)

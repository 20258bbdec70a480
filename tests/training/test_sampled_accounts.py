"""Sampled trainings whose accounts owe rounds: the same accounts, samples and models as if all were charged at once."""

import numpy as np
import pytest
import torch
from torch import nn

from almoner import filters, individual, odometers, training

N, STEPS = 120, 24


def records():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(N, 4, generator=generator, dtype=torch.float64) * torch.linspace(0.1, 2.0, N)[:, None]
    x[7] = torch.nan
    return x, (x[:, 0] > 0).long()


class Stopped(Exception):
    """An error between two steps, after which the run goes on from its folder."""


def trained(folder, budget, stops, lowered=None):
    """Charged units, and the parameters, of a run that was stopped after these steps."""
    module = nn.Linear(4, 2).double()
    for stop in (*stops, None):
        nn.init.zeros_(module.weight), nn.init.zeros_(module.bias)

        def look(run, stop=stop):
            if run.step == lowered:
                run.max_grad_norm = 0.6
            if run.step == stop:
                raise Stopped

        trainer = training.Trainer(
            module,
            nn.CrossEntropyLoss(reduction="none"),
            torch.optim.SGD(module.parameters(), lr=0.5),
            budget(),
            max_grad_norm=1.0,
            noise_multiplier=1.0,
            divisor=N,
            steps=STEPS,
            sampling=training.Poisson(0.2, refresh_every=7),
            seed=5,
        )
        try:
            trainer.fit(*records(), callbacks=[look], folder=training.RunFolder(folder, every=3, resume=True))
        except Stopped:
            continue
    return trainer.accounts.state()["spent"], module.weight.detach().clone()


@pytest.mark.parametrize(
    ("budget", "stops", "lowered"),
    [
        (lambda: filters.RenyiOrder(alpha=8.0, rho=1.2), (), None),
        (lambda: filters.RenyiOrder(alpha=8.0, rho=1.2), (4, 13), None),
        (lambda: filters.RenyiOrder(alpha=8.0, rho=1.2), (9,), 5),
        (lambda: filters.RenyiCurve(orders=[4, 16], values=[0.6, 9.0]), (11,), None),
    ],
)
def test_a_run_is_that_of_accounts_that_are_all_charged_at_once(tmp_path, monkeypatch, budget, stops, lowered):
    """To the unit and to the bit, also after stops and where the clip is lowered; some people run out on the way."""
    owing = trained(tmp_path / "owing", budget, stops, lowered)
    real = individual.Filter.charge
    monkeypatch.setattr(
        individual.Filter, "charge", lambda self, *given, sample=None: np.asarray(real(self, *given))[sample]
    )
    judge = trained(tmp_path / "judge", budget, stops, lowered)
    assert np.array_equal(owing[0], judge[0])
    assert torch.equal(owing[1], judge[1])
    assert len(np.unique(owing[0][:, 0])) > 3


def refreshed(monkeypatch, steps, *, caller=False, watch=None, shares=None, individual_=True, **sampling):
    """The steps before which the norms of all people are computed, and what they have spent; an epoch is four steps."""
    module, taken = nn.Linear(4, 2).double(), []
    norms = training._trainer.TorchModel.norms
    monkeypatch.setattr(training._trainer.TorchModel, "norms", lambda *all_: taken.append(view.step) or norms(*all_))
    budget = filters.RenyiOrder(alpha=8.0, epsilon=4.0, delta=1e-5)
    trainer = training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=0.1),
        individual.Filter(N, budget) if caller else budget,
        max_grad_norm=1.0,
        divisor=N,
        steps=steps,
        noise_multiplier=2.0,
        individual=individual_,
        sampling=training.Poisson(0.25, **sampling),
        seed=0,
    )
    x, y = records()
    run = trainer.steps(torch.nan_to_num(x, 0.0), y, watch=watch, shares=shares)
    view = next(run)
    for _ in run:
        pass
    return taken, trainer.accounts


@pytest.mark.parametrize(
    ("steps", "options", "expected"),
    [
        (7, {}, []),
        (8, {}, [0]),
        (12, {}, [0, 4]),
        (4, {"refresh_every": 4}, [0]),
        (4, {"refresh_every": 2}, [0, 2]),
        (4, {"extra_steps": 1}, [0]),
        (4, {"shares": np.full(N, 0.9)}, [0]),
        (4, {"caller": True}, [0]),
        (4, {"watch": odometers.Renyi(delta=1e-6)}, [0]),
        (12, {"individual_": False}, []),
    ],
)
def test_norms_of_all_people_are_computed_where_that_pays(monkeypatch, steps, options, expected):
    """Once an epoch, until two are left; from the start to the end where something else can spend what it saves."""
    assert refreshed(monkeypatch, steps, **options)[0] == expected


def test_a_run_without_refresh_charges_everybody_the_clip(monkeypatch):
    """In one epoch each pays for the clip, as after a refresh whoever has a longer gradient; others then pay less."""
    clip, fresh = (refreshed(monkeypatch, 4, **options)[1].spent() for options in ({}, {"refresh_every": 4}))
    assert len(np.unique(clip)) == 1
    assert (fresh <= clip).all()
    assert fresh.max() == clip[0] > fresh.mean()

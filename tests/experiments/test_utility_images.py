"""The experiment on private image models: its fast descents are the library's, and its records are whole."""

import importlib
from pathlib import Path

import numpy as np
import pytest
import torch

from almoner import filters, individual
from almoner.mechanisms import Gaussian
from almoner.training import Descent, LogisticGradients, descend


def program(name, monkeypatch):
    """A module of the folder experiments/utility."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "experiments" / "utility"))
    return importlib.import_module(name)


class Given:
    """A generator that gives noise drawn before, so that two descents get the same."""

    def __init__(self, draws):
        self.draws = iter(draws)

    def normal(self, mean, sigma, size):
        draw = next(self.draws)
        assert draw.shape == size
        return sigma * draw


@pytest.mark.parametrize("rule", ["plain", "planned", "paced", "filtered"])
def test_the_fast_descents_are_those_of_the_library(rule, monkeypatch):
    """With the same noise, several runs at once give the models of ``descend`` with ``individual.Filter``."""
    module = program("descents", monkeypatch)
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(3, (120,), generator=draw)
    x = torch.randn(3, 6, generator=draw)[y] + torch.randn(120, 6, generator=draw)
    x = torch.nn.functional.normalize(x)
    runs = [module.Run(module.Setting(12, clip, 20.0), 3.0, rule, seed) for seed, clip in ((0, 0.3), (1, 0.6))]
    found = module.descents(x, y, runs, people=120, classes=3)
    for place, run in enumerate(runs):
        noise = torch.Generator().manual_seed(run.seed)
        draws = [torch.randn(6, 3, generator=noise).double().numpy() for _ in range(run.steps)]
        gradients = LogisticGradients(x.double().numpy(), y.numpy(), 3, intercept=False)
        expected = descend(
            gradients,
            gradients.start,
            individual.Filter(120, filters.Gaussian(mu=run.mu * (1 + 1e-9))),
            Gaussian(run.sigma, run.setting.clip),
            steps=run.steps,
            learning_rate=run.setting.rate,
            divisor=120.0,
            noise=Given(draws),
            descent=Descent(
                average=run.setting.average,
                momentum=run.setting.momentum,
                decay=run.setting.decay,
                pace=module.RULES[rule][1],
            ),
        )
        assert found[:, place].numpy() == pytest.approx(expected, abs=2e-3)
    assert not np.allclose(found[:, 0].numpy(), found[:, 1].numpy(), atol=0.1)


def test_every_rule_has_the_same_trials_and_every_result_is_the_best_of_them(monkeypatch):
    """A test run has the setting that judged best on the training file, among all that the list has for every rule."""
    module = program("images", monkeypatch)
    runs = module.recorded(module.RESULTS / "images.jsonl")
    keys = [(row["stage"], row["data"], row["epsilon"], row["rule"], row["seed"], str(row["setting"])) for row in runs]
    assert len(keys) == len(set(keys))
    for row in runs:
        if row["stage"] == "test":
            chosen = module.best(runs, row["data"], row["epsilon"], row["rule"])
            assert chosen == module.Setting(**row["setting"])


def test_whatever_goes_on_stands_beside_plain_descent_that_is_planned_for_as_many_steps(monkeypatch):
    """The control of each rule: ten seeds, as many trials, and as many steps, which together cost the whole budget."""
    module, descents = program("utility_page", monkeypatch), program("descents", monkeypatch)
    runs = module.recorded()
    for data, epsilon, rule in module.cells(runs):
        if rule in ("paced", "filtered"):
            assert sorted(module.cell(runs, data, epsilon, "planned")) == list(range(10))
            tried = [len(module.of(runs, "tune", data, epsilon, each)) for each in ("planned", rule)]
            assert tried[0] == tried[1]
    run = descents.Run(descents.Setting(80, 0.5, 1.0), 0.7, "planned", 0)
    assert run.steps == descents.Run(run.setting, 0.7, "filtered", 0).steps == 100
    assert run.steps * (run.setting.clip / run.sigma) ** 2 == pytest.approx(0.7**2)

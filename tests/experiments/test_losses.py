"""Figure 1 of Koskela, Tobaben & Honkela: the program's gradients and accountings, and the numbers saved beside it."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from data_folders import needs

torch = pytest.importorskip("torch")

HERE = Path(__file__).parents[2] / "experiments" / "koskela_2023"
AT_THE_BOUND = 1.1501787  # tests/golden/losses.json: dpsgd_ref_e6_r1


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("figure1", HERE / "figure1.py")
    module = sys.modules["figure1"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["figure1"]


def test_norms_and_gradients_are_those_of_automatic_differentiation(program):
    """Each person's gradient norm, from norms of layers, is that of PyTorch's own gradient of the cross-entropy."""
    generator = torch.Generator().manual_seed(1)
    network = program.Network(generator)
    x, y = torch.rand(6, 784, generator=generator), torch.arange(6)
    into, low, hidden, top, norms = network.backward(x, y)
    weights = [network.first.clone().requires_grad_(), network.second.clone().requires_grad_()]
    for person in range(6):
        middle = torch.relu(x[person] @ weights[0][:-1] + weights[0][-1])
        scores = middle @ weights[1][:-1] + weights[1][-1]
        first, second = torch.autograd.grad(torch.nn.functional.cross_entropy(scores, y[person]), weights)
        assert torch.allclose(torch.outer(into[person], low[person]), first, atol=1e-5)
        assert torch.allclose(torch.outer(hidden[person], top[person]), second, atol=1e-5)
        assert float(norms[person]) == pytest.approx(float((first.norm() ** 2 + second.norm() ** 2).sqrt()), rel=1e-4)


@pytest.mark.slow
@needs("mnist")
def test_the_quick_form_runs_and_orders_the_accountings(program):
    """Everybody: privacy losses <= the dominating Gaussian and <= Rényi; the person's curve is below the Gaussian's."""
    data = program.figure(program.QUICK)
    exact, gauss, rdp = (np.array(data["people"][name]) for name in ("privacy loss distributions", "Gaussian", "Rényi"))
    assert len(exact) == 50
    assert data["steps"] == 40
    assert (exact > 0).all()
    assert (exact <= gauss + 1e-5).all()
    assert (exact <= rdp + 1e-5).all()
    levels = data["quantiles"]["privacy loss distributions"]
    assert np.all(np.array(levels) <= np.array(data["norm once an epoch"]["privacy loss distributions"]) + 1e-9)
    assert levels[-1] <= data["at the clip"]["privacy loss distributions"] + 1e-9
    person = data["one person"]
    assert np.all(np.array(person["composition"]) <= np.array(person["dominating Gaussian"]) * (1 + 1e-6))


def test_the_saved_numbers_fit_together(program):
    """1000 people, 10,000 steps; the bound at C is the golden epsilon; quantiles are the people's, and on the page."""
    docs = HERE.parents[1] / "docs" / "experiments"
    data = json.loads((docs / "koskela.json").read_text(encoding="utf-8"))
    assert data["steps"] == 10_000
    assert len(data["labels"]) == 1000
    exact = np.array(data["people"]["privacy loss distributions"])
    assert data["at the clip"]["privacy loss distributions"] == pytest.approx(AT_THE_BOUND, rel=1e-3)
    assert data["at the clip"]["privacy loss distributions"] >= AT_THE_BOUND
    assert exact.max() <= data["at the clip"]["privacy loss distributions"] + 1e-5
    assert exact.min() < data["norm once an epoch"]["privacy loss distributions"][0] / 2  # the refresh hides the tail
    assert np.mean(exact < 0.1) > 0.25
    assert min(data["people"]["Rényi"]) > 0.2
    for name, values in data["people"].items():
        assert len(values) == 1000
        assert np.all(np.array(values) >= exact - 1e-5)
        expected = np.quantile(values, data["levels"], method="higher")
        assert np.allclose(expected, data["quantiles"][name], atol=1e-5)
    assert data["test accuracy"] > 0.9
    person = data["one person"]
    assert np.all(np.array(person["composition"]) <= np.array(person["dominating Gaussian"]) * (1 + 1e-6))
    assert program.table(data) in (docs / "koskela.md").read_text(encoding="utf-8")

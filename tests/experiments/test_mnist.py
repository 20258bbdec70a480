"""The MNIST experiment runs from end to end in its quick form, and its page says what was recorded."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import pytest

from data_folders import DATA, needs

SCRIPT = Path(__file__).parents[2] / "experiments" / "feldman_zrnic_2021" / "mnist.py"


@pytest.fixture(scope="module")
def mnist():
    """The script, as a module."""
    spec = importlib.util.spec_from_file_location("mnist", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["mnist"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mnist"]


@pytest.mark.slow
@needs("mnist")
def test_the_quick_form_trains(mnist, monkeypatch, capsys, tmp_path):
    """A printed line with both accuracies; nothing but the checkpoint is written, and it is gone at the end."""
    out = tmp_path / "runs.jsonl"
    arguments = ["mnist.py", "--quick", "--data", DATA, "--work", tmp_path / "work", "--out", out]
    monkeypatch.setattr(sys, "argv", [str(part) for part in arguments])
    mnist.main()
    (line,) = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert all(0 <= line[name] <= 100 for name in ("at_steps", "accuracy"))
    assert not out.exists()
    assert not list((tmp_path / "work").iterdir())


def test_recorded_runs_are_complete(mnist):
    """Every recorded line has its row's printed noise, unless the noise is ours, and an accuracy after all steps."""
    for line in mnist.recorded(SCRIPT.parents[1] / "results" / "mnist.jsonl"):
        row = mnist.PRINTED[line["epsilon"]]
        longer = (line["k_max"] / row.steps) ** 0.5 if line["kind"] == "control" else 1.0
        printed = pytest.approx(row.sigma * line["people"] / 60_000 * longer)
        assert line["kind"] == "exact" or line["noise_multiplier"] == printed
        assert line["curve"][-1][:2] == [line["k_max"], line["accuracy"]]
        assert next(found for step, found, *_ in line["curve"] if step == line["steps"]) == line["at_steps"]
        if line["kind"] == "printed":
            settings = tuple(line[name] for name in ("clip", "learning_rate", "steps", "k_max"))
            assert settings == (row.clip, row.rate, row.steps, row.k_max)
            assert (line["average"], line["charged_again_after_a_kill"]) == (0.0, 0)
            assert all(sum(counts) == line["people"] for _, counts in line.get("odometers", ()))
        if line["kind"] == "control":
            settings = tuple(line[name] for name in ("clip", "learning_rate", "steps", "k_max"))
            assert settings == (row.clip, row.rate, row.k_max, row.k_max)


def test_every_row_has_its_seeds_on_one_device(mnist):
    """Ten at 0.3 and 0.5, where there is something to gain, each with its control; three at 1.2 and 3.0."""
    lines = [line for line in mnist.recorded(SCRIPT.parents[1] / "results" / "mnist.jsonl") if line["people"] == 60_000]
    wanted = {("printed", 0.3): 10, ("control", 0.3): 10, ("printed", 0.5): 10, ("control", 0.5): 10}
    for (kind, epsilon), count in (wanted | {("printed", 1.2): 3, ("printed", 3.0): 3}).items():
        seeds: dict[str, set[int]] = {}
        for line in lines:
            if (line["kind"], line["epsilon"]) == (kind, epsilon):
                seeds.setdefault(line["device"], set()).add(line["seed"])
        assert max(map(len, seeds.values())) >= count


def test_the_control_makes_the_same_promise(mnist):
    """Each step of the control has so much more noise that its k_max steps cost what k printed ones do."""
    from almoner import filters, mechanisms

    options = {"quick": False, "steps": None, "tune": False, "people": 60_000, "exact": False, "tuned": False}
    options |= {"momentum": 0.0, "decay": 0.0, "epsilon": [0.3, 0.5]}
    for control in (False, True):
        for setting, mu in mnist.settings(argparse.Namespace(control=control, **options)):
            budget = filters.Gaussian(mu=mu)
            step = mechanisms.Gaussian(setting.noise_multiplier)
            budget.charge(mechanisms.Repeated(step, setting.steps))
            assert not budget.admits(step)
            assert not filters.Gaussian(mu=mu).admits(
                mechanisms.Repeated(mechanisms.Gaussian(setting.noise_multiplier * (1 - 1e-6)), setting.steps)
            )


def test_everybody_can_pay_for_every_step_until_k(mnist):
    """So one run with filtering is plain descent until step k: with the printed budget nobody is out before."""
    from almoner import filters, individual, mechanisms

    for row in mnist.PRINTED.values():
        budget = filters.Gaussian(mu=row.steps**0.5 / row.sigma * (1 + 1e-9))
        people, step = individual.Filter(1, budget), mechanisms.Gaussian(row.sigma * row.clip, row.clip)
        for _ in range(row.steps):
            assert people.allowance(step)[0] >= row.clip * (1 - 1e-12)
            assert people.charge(step, [row.clip])[0]
        assert people.allowance(step)[0] < 2e-3 * row.clip

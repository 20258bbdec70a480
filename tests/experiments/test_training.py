"""Lécuyer's policies and private fine-tuning in their quick form, and the results that are recorded."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("BURSAR_DATA", ROOT.parent / "shared" / "data"))
RECORDED = ROOT / "docs" / "experiments"


def needs(*names):
    there = all((DATA / name).is_dir() for name in names)
    return pytest.mark.skipif(not there, reason=f"{', '.join(names)}: not in BURSAR_DATA or ../shared/data")


def program(name):
    path = ROOT / "experiments" / "lecuyer_2021" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"lecuyer_{name}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


@needs("cifar10")
def test_policies_in_quick_form(tmp_path):
    """Three runs until the filter refuses; the policies asked and paid, and the noise of the start was the least."""
    results = program("policies").main(["--quick", "--out", str(tmp_path)])
    assert [row["policy"] for row in results] == ["fixed", "adaptive noise", "adaptive batch"]
    fixed, *adaptive = results
    assert fixed["questions"] == 0
    for row in results:
        assert row["ended"] == "the budget is spent"
        assert row["last_noise_multiplier"] >= 1.0  # where it began is the least
        assert 0 <= row["accuracy"] <= 100
        assert row["policy"] in (tmp_path / "policies.md").read_text(encoding="utf-8")
    assert all(row["questions"] > 0 for row in adaptive)
    assert fixed["steps"] == 30  # what the budget was planned for


@needs("mnist", "fashion_mnist")
def test_fine_tuning_in_quick_form(tmp_path):
    """Both starts run within the plan; the odometer's promise along the whole path costs more than that at the end."""
    results = program("finetune").main(["--quick", "--out", str(tmp_path)])
    assert [row["start"] for row in results] == ["Fashion-MNIST", "random"]
    for row in results:
        assert 5 <= row["step"] <= 20
        assert 0 < row["ex_post_epsilon"] < row["pathwise_epsilon"]
        assert row["counts"][-1][0] == row["step"]


@pytest.mark.parametrize("name", ["policies", "finetune"])
def test_the_page_shows_what_was_recorded(name):
    """The table of the page is made of the numbers beside it."""
    numbers = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    module = program(name)
    size = module.Size(**numbers["size"])
    text = module.table(numbers["rows"], size) if name == "finetune" else module.table(numbers["rows"])
    assert text in (RECORDED / f"{name}.md").read_text(encoding="utf-8")

"""The MNIST experiment runs from end to end in its quick form."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "experiments" / "feldman_zrnic_2021" / "mnist.py"
DATA = Path(os.environ.get("BURSAR_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.skipif(not (DATA / "mnist").exists(), reason="needs the MNIST files: set BURSAR_DATA")
def test_the_quick_form_trains_both_ways(monkeypatch, capsys):
    """Plain and filtered gradient descent, a printed line for each, nothing written."""
    spec = importlib.util.spec_from_file_location("mnist", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["mnist.py", "--quick", "--data", str(DATA)])
    module.main()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["filtering"] for line in lines] == [False, True]
    assert all(0 <= line["accuracy"] <= 100 for line in lines)


def test_recorded_runs_are_complete():
    """Every recorded line has its row's printed noise, unless the noise is ours, and an accuracy after all steps."""
    file = SCRIPT.with_name("mnist.jsonl")
    if not file.exists():
        pytest.skip("no run is recorded")
    for text in file.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        assert line["ours"] or line["noise_multiplier"] in (170.0, 130.0, 88.0, 50.0)
        assert line["curve"][-1][:2] == [line["steps"] + line["extra"], line["accuracy"]]

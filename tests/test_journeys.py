"""Four journeys through the house: how often a call goes from one module into another, which may only become less."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PINS = {
    "charge": {
        "charge, Gaussian, first step, calls": (33, 33),
        "charge, Gaussian, second step, calls": (8, 8),
        "charge, Renyi, first step, calls": (228, 229),
        "charge, Renyi, second step, calls": (14, 15),
    },
    "ask": {
        "ask, first question, calls": (122, 300),
        "ask, second question, calls": (87, 90),
        "ask, second question, queries and ledger": (6, 6),
    },
    "fit": {"fit, one step, calls": (95, 90), "fit, outside of steps, calls": (518, 700)},
    "epsilon": {"epsilon, calls": (157, 100)},
}
"""For each journey of benchmarks/house.py: the most that is allowed now, which may only fall, and the aim."""


@pytest.mark.parametrize("name", PINS)
def test_a_journey_goes_through_few_calls(name):
    """No figure is above its pin."""
    if name == "ask":
        pytest.importorskip("duckdb")
    if name == "fit":
        pytest.importorskip("torch")
    command = [sys.executable, "-P", ROOT / "benchmarks" / "house.py", "--journey", name]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    found = json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert PINS[name].keys() <= found.keys(), found
    above = {each: (found[each], most) for each, (most, _) in PINS[name].items() if found[each] > most}
    assert not above, "figures above their pins"

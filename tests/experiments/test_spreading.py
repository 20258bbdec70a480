"""The experiment on how budgets are spread, in its quick form."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from data_folders import DATA, needs

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "experiments" / "utility" / "spreading.py"


@needs("adult", "diabetes130")
def test_runs_are_recorded_once_and_the_table_is_printed(tmp_path):
    """A run that was cut off goes on where it stopped, and repeats nothing."""
    command = [sys.executable, SCRIPT, "--quick", "--data", DATA, "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    recorded = (tmp_path / "spreading.jsonl").read_text().splitlines()
    assert len({(json.loads(line)["data"], json.loads(line)["rule"]) for line in recorded}) == len(recorded) == 14
    (tmp_path / "spreading.jsonl").write_text("\n".join(recorded[:-1]) + "\n")
    again = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (tmp_path / "spreading.jsonl").read_text().splitlines() == recorded
    assert again.count("| diabetes130 |") == 7
    assert (tmp_path / "spreading.png").stat().st_size > 10_000

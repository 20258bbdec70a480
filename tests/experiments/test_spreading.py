"""The experiment on how budgets are spread, in its quick form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("BURSAR_DATA", ROOT.parent / "shared" / "data"))
SCRIPT = ROOT / "experiments" / "utility" / "spreading.py"


@pytest.mark.skipif(
    not all((DATA / name).is_dir() for name in ("adult", "diabetes130")),
    reason="adult and diabetes130 are not both in BURSAR_DATA or ../shared/data",
)
def test_runs_are_recorded_once_and_the_table_is_printed(tmp_path):
    """A run that was cut off goes on where it stopped, and repeats nothing."""
    command = [sys.executable, SCRIPT, "--quick", "--data", DATA, "--out", tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    recorded = (tmp_path / "spreading.jsonl").read_text().splitlines()
    assert len({(json.loads(line)["data"], json.loads(line)["rule"]) for line in recorded}) == len(recorded) == 10
    (tmp_path / "spreading.jsonl").write_text("\n".join(recorded[:-1]) + "\n")
    again = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (tmp_path / "spreading.jsonl").read_text().splitlines() == recorded
    assert again.count("| diabetes130 |") == 5
    assert (tmp_path / "spreading.png").stat().st_size > 10_000

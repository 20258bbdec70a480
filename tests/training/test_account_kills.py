"""Killed at random moments, across both doors: nobody is undercharged, and no answer, model or reservation is lost."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


HELPER = Path(__file__).parents[1] / "helpers" / "account_kills.py"


@pytest.mark.parametrize("kind", ["file", pytest.param("server", marks=pytest.mark.server)])
def test_killed_at_random_moments(kind, request, tmp_path):
    """Workers that ask and train on one ledger are killed; after each kill both doors are checked."""
    place = tmp_path / "l" if kind == "file" else request.getfixturevalue("server").place()
    command = [sys.executable, "-W", "ignore", HELPER, place, tmp_path, "3", "2", "7"]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert '"steps"' in run.stdout

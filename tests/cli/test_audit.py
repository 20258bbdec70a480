"""`almoner audit`: exit codes, what is printed, and what a file must define."""

import json

import pytest
from typer.testing import CliRunner

from almoner.cli import app

PIPELINE = """
import numpy as np
from almoner import audit, filters
from almoner.mechanisms import Gaussian

data = {{"ann": 1.0, "bob": 0.5}}
people = ["ann"]

def without(data, person):
    return {{who: each for who, each in data.items() if who != person}}

def pipeline(data):
    account, step = filters.Gaussian(mu=1.0), Gaussian(4.0, {sensitivity})
    account.charge(step)
    exact = sum(data.values())
    released = audit.released(lambda: exact + np.random.default_rng().normal(0, 4.0), exact=exact, mechanism=step)
    return audit.Outcome(released, account)
"""


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


@pytest.mark.parametrize(("sensitivity", "code"), [(1.0, 0), (0.9, 1)])
def test_replay_prints_what_it_finds(tmp_path, sensitivity, code):
    """Marked as private, with exit code 1 where something is found; as JSON too."""
    file = tmp_path / "pipeline.py"
    file.write_text(PIPELINE.format(sensitivity=sensitivity))
    result = run("replay", file)
    assert result.exit_code == code
    assert result.output.startswith("private: for the data holder: 1 releases, 1 people removed")
    told = json.loads(run("replay", file, "--json").output)
    assert told["holds"] is (code == 0)
    assert bool(told["findings"]) is (code == 1)


def test_a_file_must_define_the_names(tmp_path):
    """Exit code 2 without a file, or without one of the names."""
    assert run("replay", tmp_path / "none.py").exit_code == 2
    file = tmp_path / "pipeline.py"
    file.write_text("data = 1")
    assert run("replay", file).exit_code == 2


@pytest.mark.parametrize(("correct", "code"), [(700, 0), (970, 1)])
def test_guesses_beside_a_claim(correct, code):
    """Refuted or not, with exit code 1 where it is."""
    given = ("guesses", correct, "--guesses", 1000, "--canaries", 10_000, "--mu", 0.7)
    result = run(*given)
    assert result.exit_code == code
    assert ("not refuted" in result.output) is (code == 0)
    assert json.loads(run(*given, "--json").output)["refuted"] is (code == 1)

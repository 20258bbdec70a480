"""`almoner init`: what it writes runs as it is, and overwrites nothing unasked."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from almoner.cli import app

ROOT = Path(__file__).parents[2]


def call(*arguments, code=0):
    result = CliRunner(env={"COLUMNS": "120", "TERM": "dumb"}).invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.output


def test_the_script_trains_and_predicts(tmp_path):
    """The script of `init train --example` runs as it is: a model with a card, and predictions."""
    pytest.importorskip("sklearn")
    folder = tmp_path / "first model"
    printed = call("init", "train", folder, "--example")
    assert "sh " in printed
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "almoner").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m almoner "$@"\n')
    (commands / "almoner").chmod(0o755)
    found = {"PATH": f"{commands}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    told = subprocess.run(
        ["sh", str(folder / "train.sh")], env=os.environ | found, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert "(1, 1e-05)-differential privacy" in told.stdout
    metrics = json.loads((folder / "model" / "metrics.json").read_text())
    assert 0.8 < metrics["accuracy"] < 1
    assert len((folder / "predictions.csv").read_text().splitlines()) == 501


def test_the_questions_are_answered(tmp_path):
    """The file of `init query --example` is asked as it is: seven weeks fit everybody, later ones are answered, too."""
    pytest.importorskip("duckdb")
    folder = tmp_path / "clinic"
    call("init", "query", folder, "--example")
    quoted = json.loads(call("query", "quote", folder / "questions.toml", "--json"))
    assert [key[:8] for key in quoted] == [f"2026-W{week:02d}" for week in range(2, 32)]
    table = call("query", "quote", folder / "questions.toml")
    assert "95 % within" in table
    assert f"{1.96 * 12:.1f}" in table
    call("ledger", "create", folder / "questions.toml")
    answers = json.loads(call("query", "ask", folder / "questions.toml", "--json"))
    means = [
        sum(answers[f"2026-W{week:02d}: patients"]["values"][0] for week in weeks) / len(weeks)
        for weeks in (range(2, 9), range(10, 32))
    ]
    assert abs(means[0] - 124) < 25  # noise of 12 in each, 5 standard deviations of a mean of seven
    assert abs(means[1] - 100) < 15  # those who come every week are missing
    told = call("query", "list", folder / "questions.toml")
    assert "2026-W02: patients and 6 more: the number of people" in told
    assert "2026-W02" in call("statement", folder / "clinic.ledger", "--person", "p0")


@pytest.mark.parametrize(("what", "file"), [("train", "train.sh"), ("query", "questions.toml")])
def test_nothing_is_overwritten(tmp_path, what, file):
    """A file that exists is kept, and no other is written; with --force all are written."""
    (tmp_path / file).write_text("mine")
    refused = call("init", what, tmp_path, "--example", code=2)
    assert "--force" in refused
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert (tmp_path / file).read_text() == "mine"
    call("init", what, tmp_path, "--example", "--force")
    assert (tmp_path / file).read_text() != "mine"
    assert list(tmp_path.glob("*.csv"))


def test_without_the_example_no_data_are_written(tmp_path):
    """Without --example there are the commented files alone, and the command says where the data belong."""
    printed = call("init", "query", tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["questions.toml"]
    assert "visits.csv" in printed

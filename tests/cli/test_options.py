"""Every command: options that mean one thing, help in sentences, and an example that runs."""

import shlex
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import typer
from pyarrow import parquet
from typer.testing import CliRunner

from almoner.cli import app
from pictures import bars

FIRST = ("train", "ledger create", "query ask", "ledger export", "ledger retire")  # other examples use what these write
SHARED = {
    "delta",
    "epsilon",
    "force",
    "as_json",
    "csv",
    "max_grad_norm",
    "noise_multiplier",
    "sample_rate",
    "steps",
    "picture",
}
QUESTIONS = """
data = "visits.parquet"
person = "who"
ledger = "people.ledger"
pseudonyms = "people.key"
rho = 1.0
analyst = "ann"

[[questions]]
key = "rows"
ask = "count"
clip = 1
sigma = 20
"""
POLICY = f"""
ledger = "served.ledger"
person = "who"
rho = 1.0

[tables.visits]
data = "visits.parquet"
columns = {{ who = {{}} }}

[analysts.ann]
token = "sha256:{"1" * 64}"

[holders.steward]
token = "sha256:{"2" * 64}"
may = ["console"]
"""
"""What the example of `almoner serve` reads."""
SCHEMA = """
target = "income"
classes = ["low", "high"]
people = 200

[columns.age]
low = 0
high = 100
"""


def commands(group=None, prefix=""):
    group = group or typer.main.get_command(app)
    found = {}
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            found |= commands(command, f"{prefix}{name} ")
        else:
            found[prefix + name] = command
    return found


COMMANDS = commands()
ROOT = typer.main.get_command(app)
GROUPS = {"": ROOT, **{name: each for name, each in ROOT.commands.items() if hasattr(each, "commands")}}


PIPELINE = """
import numpy as np
from almoner import audit
from almoner.mechanisms import Gaussian
people = ["ann", "bob"]
data = {"ann": 1.0, "bob": 0.5}
def without(data, person):
    return {name: value for name, value in data.items() if name != person}
def pipeline(data):
    step, total = Gaussian(5.0), sum(data.values())
    noise = np.random.default_rng().normal(0, step.sigma)
    return audit.Outcome(audit.released(lambda: total + noise, exact=total, mechanism=step))
"""
"""What the example of `almoner audit replay` runs."""


def run(words, code=0):
    result = CliRunner().invoke(app, words)
    assert result.exit_code == code, (words, result.output, result.stderr)
    return result.stdout


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The files that the examples name, and no census data."""
    ages = np.random.default_rng(0).integers(0, 101, size=200)
    rows = [f"{age},{'high' if age > 50 else 'low'}" for age in ages]
    for name in ("people.csv", "others.csv"):
        (tmp_path / name).write_text("\n".join(["age,income", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    (tmp_path / "policy.toml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "questions.toml").write_text(QUESTIONS, encoding="utf-8")
    parquet.write_table(pa.table({"who": [row % 20 for row in range(100)]}), tmp_path / "visits.parquet")
    np.save(tmp_path / "norms.npy", np.array([1.0, 0.5, 0.0]))
    bars(tmp_path / "bars.npz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALMONER_DATA", str(tmp_path))
    return tmp_path


REFUSED = {"ledger write-off": 2, "ledger protect": 1}
"""Examples that are refused here: no training is open, and there is no such server."""


def test_the_example_of_every_command_runs(folder):
    """Each command's help ends in examples, which begin with the command's name and succeed."""
    Path("pipeline.py").write_text(PIPELINE)
    for name in (*FIRST, *(name for name in COMMANDS if name not in FIRST)):
        start, *examples = COMMANDS[name].epilog.split("Example: ")
        assert start == "\b\n"
        assert examples
        for example in examples:
            program, *words = shlex.split(example)
            assert program == "almoner"
            assert words[: len(name.split())] == name.split()
            run(words, REFUSED.get(name, 0))
            assert example.split()[1] in " ".join(run([*name.split(), "--help"]).split())


def test_the_examples_of_groups_are_examples_of_their_commands():
    """What the help of a group shows runs, because a command of the group shows the same; all but its --json."""
    shown = " ".join(" ".join(command.epilog.replace(" --json", "").split()) + " " for command in COMMANDS.values())
    for name, group in GROUPS.items():
        for example in group.epilog.split("Example: ")[1:]:
            assert example.startswith(f"almoner {name}".rstrip() + " ")
            assert example.strip() in shown


def test_an_option_means_the_same_in_every_command():
    """The same name has the same help in all commands, whether it is required or not."""
    texts = {}
    for name, command in COMMANDS.items():
        for parameter in command.params:
            if parameter.name in SHARED:
                text = parameter.help.replace("PRIVATE ", "")
                assert texts.setdefault(parameter.name, text) == text, f"--{parameter.name} of {name}"
    assert set(texts) == SHARED


def test_no_word_has_two_names():
    """Words that mean what a shared option means are not used beside it."""
    names = {option for command in COMMANDS.values() for each in command.params for option in each.opts}
    assert not names & {"--sigma", "--rounds", "--draw", "--plot", "--holder-report", "--sensitivity", "--no-force"}


def test_help_is_in_sentences():
    """What commands and options say of themselves begins with a capital or a code word and ends in a period."""
    for name, command in COMMANDS.items():
        for text in (command.help, *(each.help for each in command.params if each.name != "help")):
            assert text.rstrip().endswith("."), (name, text)
            assert text[0].isupper() or text.startswith(".npy"), (name, text)

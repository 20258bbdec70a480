"""`almoner epsilon` and `almoner calibrate`: the library's numbers, for people and machines, helpful refusals."""

import json
import os
import re
import subprocess
import sys
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from almoner import __version__, filters, individual, mechanisms
from almoner.accounting import calibrate
from almoner.cli import app
from almoner.cli._options import Sampling
from almoner.curves import gaussian, renyi, zcdp
from almoner.curves._totals import tightest
from almoner.curves.losses import epsilon_at

RUN = CliRunner()


def output(*arguments, code=0):
    result = RUN.invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output + result.stderr
    return result


def test_epsilon_prints_the_librarys_numbers():
    """All notions side by side, as JSON and as a table."""
    run = mechanisms.Repeated(mechanisms.Gaussian(170.0), 104)
    found = json.loads(output("epsilon", "--noise-multiplier", 170, "--steps", 104, "--json").stdout)
    epsilons = {row["notion"]: row["epsilon"] for row in found["bounds"]}
    assert epsilons["Gaussian DP, exact"] == gaussian.of(run).epsilon(delta=1e-5)
    assert epsilons["zCDP"] == zcdp.of(run).epsilon(delta=1e-5)
    assert epsilons["Rényi DP"] == renyi.of(run).epsilon(delta=1e-5)
    assert "0.19522" in output("epsilon", "--noise-multiplier", 170, "--steps", 104).stdout


def test_epsilon_of_sampling_leaves_out_what_does_not_apply():
    """A sampled run has no Gaussian or zCDP line; that of loss distributions is the first."""
    found = json.loads(
        output("epsilon", "--noise-multiplier", 2, "--steps", 100, "--sample-rate", 0.01, "--json").stdout
    )
    names = ["privacy loss distributions", "Rényi DP", "Rényi DP, Mironov's conversion"]
    assert [row["notion"] for row in found["bounds"]] == names
    assert found["epsilon"] == found["bounds"][0]["epsilon"] < found["bounds"][1]["epsilon"]


def test_epsilon_begins_with_the_run_that_was_fixed():
    """The certified epsilon first, then a filter's and an odometer's, and a sentence that says which one is needed."""
    options = ("epsilon", "--noise-multiplier", 1.1, "--sample-rate", 0.01, "--steps", 421)
    found = json.loads(output(*options, "--json").stdout)
    run = mechanisms.Repeated(mechanisms.SampledGaussian(1.1, 1.0, 0.01), 421)
    exact = tightest(run, delta=1e-5).epsilon
    assert exact < individual.losses([[421]], [1.1], sample_rate=0.01, delta=1e-5)[0]
    assert found["epsilon"] == exact == pytest.approx(1.0, rel=1e-3)
    assert [each["promise"] for each in found["answers"]] == ["fixed", "filter", "ex-post"]
    text = " ".join(output(*options).stdout.replace("│", " ").split())
    first, second, third = (text.index(words) for words in (str(exact)[:7], "a filter with this", "an odometer"))
    assert first < second < third < text.index("You need the first if") < text.index("Rényi DP")


def test_sizes_and_epochs_are_a_second_way_to_say_rate_and_steps():
    """60 000 people in batches of 600 are rate 0.01, and two epochs 200 steps; what does not divide is rounded up."""
    sizes = ("--dataset-size", 60_000, "--batch-size", 600)
    said = output("epsilon", "--noise-multiplier", 1.1, "--sample-rate", 0.01, "--steps", 20, "--json").stdout
    assert output("epsilon", "--noise-multiplier", 1.1, *sizes, "--epochs", 0.2, "--json").stdout == said
    assert Sampling(dataset_size=60_000, batch_size=600, epochs=2.0).rate_and_steps() == (0.01, 200)
    rate, steps = Sampling(dataset_size=1001, batch_size=100, epochs=5.0).rate_and_steps()
    assert steps == 5 * 11
    assert Fraction(rate) >= Fraction(100, 1001)
    assert rate == pytest.approx(100 / 1001, rel=1e-15)
    assert Sampling(steps=7, dataset_size=10, batch_size=10).rate_and_steps() == (1.0, 7)
    assert Sampling().rate_and_steps() == (1.0, None)


@pytest.mark.slow
def test_calibrate_prints_noise_or_steps():
    """The least noise for the steps, and the steps for a noise, as the filters say."""
    found = json.loads(output("calibrate", "--epsilon", 1, "--steps", 100, "--max-grad-norm", 3, "--json").stdout)
    exact = calibrate.sigma(filters.Gaussian(epsilon=1.0, delta=1e-5), 100, sensitivity=3.0)
    row = found["filters"][0]
    assert (row["sigma"], row["noise_multiplier"]) == (exact, exact / 3)
    found = json.loads(output("calibrate", "--epsilon", 1, "--noise-multiplier", 20, "--json").stdout)
    assert [row["steps"] for row in found["filters"]][:2] == [28, 24]
    sampled = json.loads(
        output("calibrate", "--epsilon", 1, "--noise-multiplier", 2, "--sample-rate", 0.01, "--json").stdout
    )
    assert "no Gaussian mechanism" in sampled["filters"][0]["note"]
    assert sampled["filters"][0]["steps"] is None
    assert "1950" in output("calibrate", "--epsilon", 1, "--noise-multiplier", 2, "--sample-rate", 0.01).stdout
    fixed, planned = sampled["fixed"]["steps"], sampled["filters"][4]["steps"]
    step = mechanisms.SampledGaussian(2.0, sample_rate=0.01)
    exact = [epsilon_at({step: count}, delta=1e-5) for count in (fixed, fixed + 1)]
    assert exact[0] <= 1.0 < exact[1]
    assert individual.losses([[fixed]], [2.0], sample_rate=0.01, delta=1e-5)[0] == pytest.approx(exact[0], rel=1e-3)
    assert 0.99 * fixed <= planned <= fixed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["epsilon", "--noise-multiplier", "nan"], "--noise-multiplier=nan"),
        (["epsilon", "--noise-multiplier", "-1"], "--noise-multiplier=-1.0"),
        (["epsilon", "--noise-multiplier", "1", "--delta", "0"], "delta=0.0"),
        (["epsilon", "--noise-multiplier", "1", "--steps", "-5"], "steps=-5"),
        (["epsilon", "--noise-multiplier", "1", "--sample-rate", "2"], "--sample-rate=2.0"),
        (["calibrate", "--epsilon", "1"], "--steps or --noise-multiplier"),
        (["calibrate", "--epsilon", "1", "--epochs", "2", "--noise-multiplier", "1"], "--steps or --noise-multiplier"),
        (["calibrate", "--epsilon", "1", "--steps", "0"], "steps=0"),
        (["epsilon", "--noise-multiplier", "1", "--steps", "0"], "steps=0 must be a whole number >= 1"),
        (["epsilon", "--noise-multiplier", "1", "--steps", "5", "--epochs", "1"], "either --epochs or `--steps=5`"),
        (["epsilon", "--noise-multiplier", "1", "--batch-size", "5"], "must be given together"),
        (["epsilon", "--noise-multiplier", "1", "--batch-size", "9", "--dataset-size", "8"], "--batch-size=9"),
        (["epsilon", "--noise-multiplier", "1", "--batch-size", "0", "--dataset-size", "8"], "--batch-size=0"),
        (["epsilon", "--noise-multiplier", "1", "--epochs", "nan"], "epochs=nan"),
        (["epsilon", "--noise-multiplier", "1", "--epochs", "-1"], "epochs=-1.0"),
        (["epsilon", "--noise-multiplier", "1", "--epochs", "1e300"], "must be at most"),
        (
            ["compare", "--noise-multiplier", "1", "--sample-rate", "0.1", "--batch-size", "1", "--dataset-size", "9"],
            "either --sample-rate",
        ),
        (["calibrate", "--epsilon", "0", "--steps", "5"], "epsilon=0.0"),
    ],
)
def test_bad_arguments_are_one_clear_line_and_exit_code_2(arguments, message):
    """The argument, its value and the rule; no traceback."""
    result = output(*arguments, code=2)
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr


def test_version():
    """--version prints the version and nothing else."""
    assert output("--version").stdout.strip() == f"almoner {__version__}"


def test_a_run_in_batches_needs_its_number_of_steps():
    """Without steps or epochs a sampling rate is not taken for a run of one step, whose epsilon would be tiny."""
    for rate in (("--sample-rate", 0.01), ("--dataset-size", 60_000, "--batch-size", 600)):
        assert "--steps is missing" in output("epsilon", "--noise-multiplier", 1.1, *rate, code=2).stderr
    assert "1 x Gaussian" in output("epsilon", "--noise-multiplier", 1.1).stdout


def test_json_is_strict():
    """What is infinite is the string "inf": every reader of JSON accepts the output."""
    command = ["epsilon", "--noise-multiplier", "1e-60", "--sample-rate", "0.5", "--steps", "2", "--json"]
    bounds = json.loads(output(*command).stdout, parse_constant=pytest.fail)["bounds"]
    assert {row["epsilon"] for row in bounds} == {"inf"}


def test_python_m_almoner_is_the_command():
    """``python -m almoner`` runs the same program, and tells its version without loading any command."""
    command = [sys.executable, "-X", "importtime", "-m", "almoner", "--version"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == f"almoner {__version__}"
    assert not re.search(r"\b(typer|rich|numpy)\b", run.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["epsilon --noise-multiplier 20 --steps 3", "epsilon --help", "predict"])
def test_a_terminal_with_ascii_alone(arguments):
    """Where a terminal cannot show letters such as é, commands and their errors do not fail for that."""
    environment = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "almoner", *arguments.split()]
    run = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert run.returncode == (2 if arguments == "predict" else 0)
    assert b"Traceback" not in run.stderr
    assert (run.stdout + run.stderr).isascii()
    if arguments.endswith("3"):
        assert b"Renyi" in run.stdout


def test_a_certificate_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch):
    """Before anything is computed: a folder that is not there, a folder in place of a file, a file without --force."""
    monkeypatch.setattr("almoner.accounting.answers.of_run", lambda *_, **__: pytest.fail("computed"))
    (tmp_path / "there.json").write_text("{}", encoding="utf-8")
    for path, why in ((tmp_path / "no" / "c.json", "folder is not there"), (tmp_path / "there.json", "exists already")):
        told = CliRunner().invoke(app, ["epsilon", "--noise-multiplier", "4", "--certificate", str(path)])
        assert told.exit_code == 2
        assert why in " ".join(told.stderr.split())
    told = CliRunner().invoke(app, ["epsilon", "--noise-multiplier", "4", "--certificate", str(tmp_path), "--force"])
    assert told.exit_code == 2

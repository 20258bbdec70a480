"""`bursar epsilon` and `bursar calibrate`: the library's numbers, readable by people and machines, helpful refusals."""

import json

import pytest
from typer.testing import CliRunner

from bursar import __version__, calibrate, filters, mechanisms
from bursar.cli import app
from bursar.curves import gaussian, renyi, zcdp

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
    """A sampled run has no Gaussian or zCDP line, and the Rényi line is the library's."""
    found = json.loads(
        output("epsilon", "--noise-multiplier", 2, "--steps", 100, "--sample-rate", 0.01, "--json").stdout
    )
    assert [row["notion"] for row in found["bounds"]] == ["Rényi DP", "Rényi DP, Mironov's conversion"]


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
    assert "not a Gaussian" in sampled["filters"][0]["note"]
    assert sampled["filters"][0]["steps"] is None
    assert "1950" in output("calibrate", "--epsilon", 1, "--noise-multiplier", 2, "--sample-rate", 0.01).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["epsilon", "--noise-multiplier", "nan"], "noise_multiplier=nan"),
        (["epsilon", "--noise-multiplier", "-1"], "noise_multiplier=-1.0"),
        (["epsilon", "--noise-multiplier", "1", "--delta", "0"], "delta=0.0"),
        (["epsilon", "--noise-multiplier", "1", "--steps", "-5"], "steps=-5"),
        (["epsilon", "--noise-multiplier", "1", "--sample-rate", "2"], "sample_rate=2.0"),
        (["calibrate", "--epsilon", "1"], "--steps or --noise-multiplier"),
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
    assert output("--version").stdout.strip() == __version__


def test_json_is_strict():
    """What is infinite is the string "inf": every reader of JSON accepts the output."""
    command = ["epsilon", "--noise-multiplier", "1e-60", "--sample-rate", "0.5", "--json"]
    bounds = json.loads(output(*command).stdout, parse_constant=pytest.fail)["bounds"]
    assert {row["epsilon"] for row in bounds} == {"inf"}

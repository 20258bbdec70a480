"""`almoner compare`: a table, JSON and a picture."""

import json

import pytest
from typer.testing import CliRunner

from almoner import errors
from almoner import mechanisms as m
from almoner.cli import app
from almoner.cli._accounting import described


def test_the_command(tmp_path):
    """``almoner compare`` prints JSON that reads back, and draws a picture."""
    picture = tmp_path / "bounds.png"
    options = ["compare", "--mechanism", "gaussian", "--noise-multiplier", "20", "--steps", "100", "--points", "2"]
    run = CliRunner().invoke(app, [*options, "--delta", "1e-5", "--json", "--picture", str(picture)])
    assert run.exit_code == 0, run.output
    data = json.loads(run.output)
    assert data["rounds"] == [1, 100]
    assert {"name", "promise", "epsilons"} == set(data["bounds"][0])
    assert picture.read_bytes()[:4] == b"\x89PNG"
    text = CliRunner().invoke(app, [*options[:6], "20", "--points", "1"])
    assert "odometers.Renyi" in text.output


def test_the_mechanisms_of_the_command():
    """Each name, and what is missing, unknown or without a meaning for the mechanism."""
    assert described("laplace", epsilon_each=0.5) == m.Laplace(2.0)
    assert described("gaussian", noise_multiplier=2.0) == m.Gaussian(2.0)
    assert described("gaussian", noise_multiplier=2.0, sample_rate=0.1) == m.SampledGaussian(2.0, 1.0, 0.1)
    assert described("approximate", epsilon_each=0.1, delta_each=1e-9) == m.Approximate(0.1, 1e-9)
    assert described("randomized-response", epsilon_each=0.1) == m.RandomizedResponse(0.1)
    assert described("pure", epsilon_each=0.1) == m.Pure(0.1)
    for name in ("gaussian", "pure", "approximate", "exponential"):
        with pytest.raises(errors.ArgumentError):
            described(name, epsilon_each=0.1 if name == "approximate" else None)
    with pytest.raises(errors.ArgumentError, match="--sample-rate"):
        described("laplace", epsilon_each=0.1, sample_rate=0.5)
    with pytest.raises(errors.ArgumentError, match=r"epsilon_each=0\.0"):
        described("laplace", epsilon_each=0.0)

"""`almoner train-images`, and `almoner predict` and `almoner score` with its models."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from almoner.cli import app
from pictures import NAMES, bars, drawn, folder_of

STATED = ["--classes", "level,upright", "--people", 200, "--kind", "strokes", "--drawings", 60]


def call(*arguments, code=0):
    """Run one command; what it prints, or what it complains about when another exit code is expected."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.stderr.split())


@pytest.mark.slow
def test_images_become_a_model_that_predicts_and_has_statements(tmp_path):
    """From a folder of PNG files to a model with its card; answers for other images; what a person may be told."""
    folder = folder_of(tmp_path / "bars", *drawn(120))
    arguments = ["train-images", folder, "--shape", "16x16", *STATED, "--out", tmp_path / "m", "--epsilon", 4]
    kept = 'features = "features"\npicture = "spends.png"\nkeep_accounts = true\n'
    (tmp_path / "kept.toml").write_text(kept, encoding="utf-8")
    arguments += ["--settings", tmp_path / "kept.toml"]
    told = json.loads(call(*arguments, "--json"))
    assert told["card"]["epsilon"] == 4.0
    assert told["card"]["preprocessing"] == "drawings"
    assert len(told["private"]) == 3
    assert len(list((tmp_path / "features").iterdir())) == 1
    metrics = json.loads(call("score", tmp_path / "m", folder, "--features", tmp_path / "features", "--json"))
    assert metrics["accuracy"] > 0.8
    assert json.loads((tmp_path / "m" / "metrics.json").read_text(encoding="utf-8")) == metrics
    assert len(list((tmp_path / "features").iterdir())) == 1  # the same images: not computed again
    images, labels = drawn(40, seed=1)
    np.savez(tmp_path / "others.npz", images=images)
    rows = list(csv.DictReader(call("predict", tmp_path / "m", tmp_path / "others.npz").splitlines()))
    assert list(rows[0]) == ["predicted", *NAMES]
    assert np.mean([row["predicted"] == NAMES[label] for row, label in zip(rows, labels, strict=True)]) > 0.8
    assert "--skip-rows=1" in call("predict", tmp_path / "m", tmp_path / "others.npz", "--skip-rows", 1, code=2)
    assert "images" in call("predict", tmp_path / "m", tmp_path / "spends.json", code=2)
    assert json.loads(call("statement", tmp_path / "m", "--person", 7, "--json"))["epsilon"] <= 4.0
    assert "What this model promises" in call(*arguments, "--force", "--epsilon", 3)
    assert len(list((tmp_path / "features").iterdir())) == 1  # the same images: not computed again


def without(option):
    """What must be stated, less one option."""
    place = STATED.index(option)
    return STATED[:place] + STATED[place + 2 :]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (without("--classes"), "--classes is missing"),
        (without("--people"), "--people is missing"),
        (without("--kind"), "--kind is missing"),
        ([*without("--kind"), "--kind", "cats"], "--kind must be one of strokes, objects, scenes; for example"),
        ([*without("--classes"), "--classes", "level"], "at least two"),
        ([*without("--classes"), "--classes", "level,"], "names"),
        ([*STATED, "--shape", "16"], "HEIGHTxWIDTH"),
        ([*STATED, "--shape", "28x28"], "28x28"),
        ([*STATED, "--epsilon", "nan"], "epsilon"),
        ([*STATED, "--steps", 3], "No such option: --steps"),
        ([*STATED, "--schema", "s.toml"], "No such option: --schema"),
        ([*STATED, "--target", "x"], "No such option: --target"),
        ([*STATED, "--features", "f"], "No such option: --features"),
        ([*STATED, "--settings", "steps.toml"], "steps.toml, line 1: steps is no setting of `almoner train-images`"),
        ([*STATED, "--settings", "inside.toml"], "is private"),
        ([*STATED, "people.csv"], "unexpected extra argument"),
    ],
)
def test_what_must_be_stated_or_does_not_fit_is_refused_before_training(tmp_path, monkeypatch, options, word):
    """One line names the option; there is no model."""
    monkeypatch.chdir(tmp_path)
    bars(tmp_path / "a.npz")
    (tmp_path / "steps.toml").write_text("steps = 3\n", encoding="utf-8")
    (tmp_path / "inside.toml").write_text('picture = "m/spends.png"\n', encoding="utf-8")
    assert word in call("train-images", "a.npz", "--out", "m", *options, code=2)
    assert not (tmp_path / "m").exists()


def test_options_of_images_need_images(tmp_path):
    """`almoner train` refuses them, and so is a command without images or a folder refused."""
    for option in ("--kind", "--images", "--dimensions"):
        assert f"No such option: {option}" in call("train", "people.csv", "--target", "x", option, 3, code=2)
    assert "images" in call("train-images", code=2)
    assert "--out is missing" in call("train-images", tmp_path, *STATED, code=2)
    (tmp_path / "m").mkdir()
    assert "--force" in call("train-images", tmp_path, *STATED, "--out", tmp_path / "m", code=2)

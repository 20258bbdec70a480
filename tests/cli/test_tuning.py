"""`almoner train --tune`."""

import json

import pytest
from typer.testing import CliRunner

from age_files import age_folder
from almoner.cli import app


def call(*arguments, code=0):
    """Run one command; what it prints, or what it complains about when another exit code is expected."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.stderr.split())


@pytest.fixture
def folder(tmp_path):
    """A file of made-up people, and its schema."""
    return age_folder(tmp_path)


def test_train_tunes_and_pays_for_it(folder):
    """--tune keeps the best of a random number of runs; the card states the search; other people can pay for scores."""
    arguments = ["train", folder / "data.csv", "--target", "bought", "--schema", folder / "schema.toml", "--steps", 5]
    tuned = [*arguments, "--tune", 4, "--tune-learning-rate", "1,8", "--tune-max-grad-norm", "1"]
    told = call(*tuned, "--out", folder / "tuned")
    assert "Tuning" in told
    assert "training" not in told.split("What this model promises")[0]
    card = json.loads((folder / "tuned" / "card.json").read_text(encoding="utf-8"))
    assert card["epsilon"] == 1.0
    assert "4 expected" in card["tuned"]
    assert "the same people pay" in card["tuned"]
    (folder / "others.csv").write_text((folder / "data.csv").read_text(encoding="utf-8"), encoding="utf-8")
    call(*tuned, "--tune-on", folder / "others.csv", "--out", folder / "judged")
    card = json.loads((folder / "judged" / "card.json").read_text(encoding="utf-8"))
    assert "other people pay" in card["tuned"]
    out = ["--out", folder / "refused"]
    for more, why in (
        (["--tune-on", folder / "data.csv"], "trained on"),
        (["--keep-accounts"], "keep_accounts"),
        (["--tune-learning-rate", "1;8"], "numbers with commas"),
        (["--noise-multiplier", 3], "noise_multiplier"),
        (["--picture", folder / "spends.png"], "best run alone"),
        (["--learning-rate", 2], "--tune-learning-rate"),
        (["--max-grad-norm", 2], "--tune-max-grad-norm"),
    ):
        assert why in call(*tuned, *more, *out, code=2)
    assert not (folder / "refused").exists()
    for alone in (["--tune-on", folder / "others.csv"], ["--tune-learning-rate", "1"], ["--tune-max-grad-norm", "1"]):
        assert f"{alone[0]} needs --tune" in call(*arguments, *alone, *out, code=2)

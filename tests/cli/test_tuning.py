"""`almoner tune`."""

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
    """The best of a random number of runs is kept; the card states the search; other people can pay for scores."""
    tried = folder / "tune.toml"
    tried.write_text("steps = 5\nlearning_rate = [1, 8]\nmax_grad_norm = [1]\n", encoding="utf-8")
    tuned = ["tune", folder / "data.csv", "--target", "bought", "--schema", folder / "schema.toml", "--runs", 4]
    told = call(*tuned, "--settings", tried, "--out", folder / "tuned")
    assert "Tuning" in told
    assert "training" not in told.split("What this model promises")[0]
    card = json.loads((folder / "tuned" / "card.json").read_text(encoding="utf-8"))
    assert card["epsilon"] == 1.0
    assert "4 expected" in card["tuned"]
    assert "the same people pay" in card["tuned"]
    (folder / "others.csv").write_text((folder / "data.csv").read_text(encoding="utf-8"), encoding="utf-8")
    call(*tuned, "--settings", tried, "--on", folder / "others.csv", "--out", folder / "judged")
    card = json.loads((folder / "judged" / "card.json").read_text(encoding="utf-8"))
    assert "other people pay" in card["tuned"]
    out = ["--out", folder / "refused"]
    for more, why in (
        (["--on", folder / "data.csv"], "trained on"),
        (["--runs", 0.5], "runs"),
        (["--keep-accounts"], "No such option"),
        (["--noise-multiplier", 3], "No such option"),
        (["--picture", folder / "spends.png"], "No such option"),
        (["--learning-rate", 2], "No such option"),
        (["--ledger", folder / "l"], "No such option"),
    ):
        assert why in call(*tuned, *more, *out, code=2)
    for line, why in (
        ("keep_accounts = true", "no setting of `almoner tune`: leave it out"),
        ("noise_multiplier = 3", "no setting of `almoner tune`: leave it out"),
        ('picture = "a.png"', "no setting of `almoner tune`: leave it out"),
        ("learning_rate = 2", "must be a list of numbers above 0, the values to try: learning_rate = [0.25, 1, 4, 16]"),
        ("max_grad_norm = []", "must be a list of numbers above 0, the values to try: max_grad_norm = [0.25, 1]"),
        ("learning_rate = [1, -8]", "must be a list of numbers above 0, the values to try: learning_rate = ["),
    ):
        (folder / "wrong.toml").write_text(line + "\n", encoding="utf-8")
        assert why in call(*tuned, "--settings", folder / "wrong.toml", *out, code=2)
    assert not (folder / "refused").exists()

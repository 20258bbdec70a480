"""`almoner schema`, `almoner train`, `almoner score`, `almoner predict` and `almoner demo`."""

import csv
import json
import tomllib

import pytest
from typer.testing import CliRunner

from age_files import age_folder
from almoner import filters
from almoner.cli import app
from almoner.ledger import Consumer, Ledger, Terms


def call(*arguments, code=0):
    """Run one command; what it prints, or what it complains about when another exit code is expected."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.stderr.split())


def settings(folder, **given):
    """The option that names a file with these settings."""
    path = folder / "train.toml"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in given.items()), encoding="utf-8")
    return ["--settings", path]


@pytest.fixture
def folder(tmp_path):
    """A file of made-up people, and its schema."""
    return age_folder(tmp_path)


def test_train_writes_a_model_and_predict_uses_it(folder):
    """The main job from end to end: model, card, metrics, and predictions that are right for most."""
    arguments = ["train", folder / "data.csv", "--target", "bought", "--schema", folder / "schema.toml"]
    arguments += ["--epsilon", 4, "--out", folder / "model"]
    told = json.loads(call(*arguments, *settings(folder, picture="spends.png"), "--json"))
    assert told["card"]["epsilon"] == 4.0
    assert (folder / "spends.png").stat().st_size > 0
    assert json.loads((folder / "spends.json").read_text(encoding="utf-8"))["mark"] == "private: for the data holder"
    for card in ("card.md", "card.html"):
        assert "(4, 1e-05)-differential privacy" in (folder / "model" / card).read_text(encoding="utf-8")
    rows = list(csv.DictReader(call("predict", folder / "model", folder / "data.csv").splitlines()))
    assert len(rows) == 500
    assert float(rows[0]["no"]) + float(rows[0]["yes"]) == pytest.approx(1.0)
    call("predict", folder / "model", folder / "data.csv", "--out", folder / "answers.csv")
    assert (folder / "answers.csv").read_text(encoding="utf-8").startswith("predicted,no,yes")
    assert "What this model promises" in call(*arguments, "--force")


def test_score_judges_a_model_by_other_people(folder):
    """metrics.json is written into the folder, with its warning, and replaced with --force alone."""
    model, data = folder / "model", folder / "data.csv"
    arguments = ["train", data, "--target", "bought", "--schema", folder / "schema.toml", "--epsilon", 4]
    call(*arguments, "--out", model)
    assert not (model / "metrics.json").exists()
    told = json.loads(call("score", model, data, "--json"))
    assert told["accuracy"] > 0.9
    assert told["rows"] == 500
    assert "does not cover the people in that file" in told["note"]
    assert json.loads((model / "metrics.json").read_text(encoding="utf-8")) == told
    assert "exists already" in call("score", model, data, code=2)
    (folder / "late.csv").write_text("no table\n" + data.read_text(encoding="utf-8"), encoding="utf-8")
    assert "Held-out file: accuracy" in call("score", model, folder / "late.csv", "--skip-rows", 1, "--force")
    (folder / "ages.csv").write_text("age\n50\n", encoding="utf-8")
    (folder / "none.csv").write_text("age,bought\n", encoding="utf-8")
    assert "'bought'" in call("score", model, folder / "ages.csv", "--force", code=2)
    assert "no rows" in call("score", model, folder / "none.csv", "--force", code=2)
    assert "does not hold a model" in call("score", folder, data, code=2)
    assert json.loads((model / "metrics.json").read_text(encoding="utf-8")) == told
    call("predict", model, data)


def test_a_delta_that_allows_to_show_a_person_is_told(folder):
    """With a delta above one in the number of people a warning stands beside the model; with a small one none does."""
    for delta, warned in ((0.1, True), (1e-5, False)):
        arguments = ["--target", "bought", "--schema", folder / "schema.toml", "--epsilon", 4, "--delta", delta]
        words = ["train", folder / "data.csv", *arguments, "--out", folder / f"model {delta}", "--json"]
        result = CliRunner().invoke(app, [str(each) for each in words])
        assert (result.exit_code, "in full: choose a delta far below" in result.stderr) == (0, warned)


def test_a_model_that_is_there_is_refused_before_any_training(folder):
    """Without --force nothing is trained and nothing overwritten."""
    (folder / "model").mkdir()
    arguments = ["train", folder / "absent.csv", "--target", "bought", "--schema", folder / "schema.toml"]
    assert "is not there" in call(*arguments, "--out", folder / "other", code=2)
    arguments[1] = folder / "data.csv"
    assert "--force" in call(*arguments, "--out", folder / "model", code=2)


def test_without_a_schema_the_reason_is_told_and_a_template_can_be_had(folder):
    """Data-dependent preprocessing is refused with an explanation; the template holds the names of the columns."""
    told = call("train", folder / "data.csv", "--target", "bought", "--out", folder / "model", code=2)
    assert "must be public" in told
    assert "--target bought --out schema.toml`" in told
    made, arguments = folder / "mine.toml", ["schema", folder / "data.csv", "--target"]
    call(*arguments, "bought", "--out", made)
    written = made.read_text(encoding="utf-8")
    assert set(tomllib.loads(written)["columns"]) == {"age"}
    assert call(*arguments, "bought") == written
    assert json.loads(call(*arguments, "bought", "--json")) == {"schema": written}
    assert "exists already" in call(*arguments, "bought", "--out", made, code=2)
    assert "is what is read" in call(*arguments, "bought", "--out", folder / "data.csv", "--force", code=2)
    assert "no column 'sold'" in call(*arguments, "sold", "--out", folder / "other.toml", code=2)
    assert "give either" in call(*arguments, "bought", "--out", made, "--check", made, code=2)
    model = ["train", folder / "data.csv", "--target", "bought", "--schema", folder / "schema.toml"]
    assert "--out is missing" in call(*model, code=2)


@pytest.mark.slow
def test_the_demo_falls_back_to_digits(folder, monkeypatch):
    """Without Adult the demonstration takes the digits of scikit-learn; a folder that is given must hold Adult."""
    monkeypatch.setenv("ALMONER_DATA", str(folder))
    told = json.loads(call("demo", "--runs", 2, "--out", folder / "demo", "--json"))
    assert told["data"].startswith("handwritten digits")
    assert told["accuracy without privacy"] > 90
    assert min(told["accuracies"]) > 70
    assert sorted(path.name for path in (folder / "demo").iterdir()) == ["index.html", "statement.html"]
    page = (folder / "demo" / "index.html").read_text(encoding="utf-8")
    assert told["shop"]["weeks"] == 52
    assert page.count("<circle") == 52
    for error in told["shop"]["typical error of a week"].values():
        assert f"{100 * error:.1f} %" in page
    assert f"{told['accuracy without privacy']:.2f} %" in page
    assert f"{sum(told['accuracies']) / 2:.2f} % ±" in page
    assert 'href="statement.html"' in page
    assert "://" not in page
    assert "the person 17" in (folder / "demo" / "statement.html").read_text(encoding="utf-8")
    assert "exists already" in call("demo", "--out", folder / "demo", code=2)
    assert "no privacy" in call("demo", "--runs", 1, "--out", folder / "demo", "--force")
    assert "adult.data" in call("demo", "--data", folder, "--out", folder / "other", code=2)


def test_what_cannot_be_finished_is_refused_before_any_training(folder):
    """A picture of no known kind, a file without rows: one line, and no model."""
    data, out = folder / "data.csv", folder / "model"
    (folder / "none.csv").write_text("age,bought\n", encoding="utf-8")
    options = ["--target", "bought", "--schema", folder / "schema.toml", "--out", out]
    assert "must end in" in call("train", data, *options, *settings(folder, picture="spends.doc"), code=2)
    assert "no rows" in call("train", folder / "none.csv", *options, code=2)
    assert "is private" in call("train", data, *options, *settings(folder, picture="model/card.png"), code=2)
    (folder / "notes.json").write_text("mine", encoding="utf-8")
    told = call("train", data, *options, *settings(folder, picture="notes.png"), code=2)
    assert "notes.json exists already" in told
    assert not out.exists()
    assert "can't be written" in call("train", data, *options[:-1], data / "model", code=2)


def test_answers_overwrite_nothing(folder):
    """Predictions replace no file without --force, and never the people's data."""
    data, model = folder / "data.csv", folder / "model"
    schema = ["--target", "bought", "--schema", folder / "schema.toml"]
    call("train", data, *schema, "--out", model, *settings(folder, steps=5))
    before = data.read_bytes()
    assert "is what is read" in call("predict", model, data, "--out", data, "--force", code=2)
    assert data.read_bytes() == before
    call("predict", model, data, "--out", folder / "answers.csv")
    assert "exists already" in call("predict", model, data, "--out", folder / "answers.csv", code=2)
    call("predict", model, data, "--out", folder / "answers.csv", "--force")


def test_a_model_with_kept_accounts_has_a_statement_for_each_person(folder):
    """With keep_accounts `almoner train` writes a private file beside the model, which `almoner statement` reads."""
    arguments = ["train", folder / "data.csv", "--target", "bought", "--schema", folder / "schema.toml"]
    arguments += ["--out", folder / "model", "--epsilon", 2]
    keep = settings(folder, keep_accounts=True)
    told = json.loads(call(*arguments, *keep, "--json"))
    kept = folder / "model.accounts"
    assert told["private"] == [str(kept)]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert not any("account" in path.name for path in (folder / "model").iterdir())
    one = json.loads(call("statement", folder / "model", "--person", "17", "--json"))
    assert (one["person"], one["epsilon"], one["delta"]) == ("17", pytest.approx(2.0), 1e-5)
    assert 0 < one["used"] <= 1
    assert one["words"] in " ".join(call("statement", kept, "--person", "17").split())
    assert "no records of this person" in call("statement", kept, "--person", "500", code=1)
    assert "--delta" in call("statement", kept, "--person", "17", "--delta", "1e-6", code=2)
    assert "exists already" in call(*arguments, "--force", code=2)  # they would seem to be those of the new model
    kept.unlink()
    assert "keep_accounts = true" in call("statement", folder / "model", "--person", "17", code=2)
    refused = settings(folder, keep_accounts=True, individual=False)
    assert "individual" in call(*arguments, "--force", *refused, code=2)


def test_train_stops_when_too_many_people_are_out(folder):
    """The setting stop_when_inactive reaches the noisy counts, and the card lists what they cost."""
    arguments = ["train", folder / "data.csv", "--target", "bought", "--schema", folder / "schema.toml"]
    arguments += ["--out", folder / "model", "--json"]
    stopping = {"stop_when_inactive": 0.2, "steps": 20, "extra_steps": 2000}
    assert "pace" in call(*arguments, *settings(folder, **stopping), code=2)
    card = json.loads(call(*arguments, *settings(folder, **stopping, pace=0)))["card"]
    assert len(card["released"]) == 2
    assert card["released"][0]["times"] == card["steps"] + card["extra_steps"]


def test_a_training_on_a_ledger_that_questions_charge_too(tmp_path):
    """`almoner train --ledger` charges the people of the column, once for each key; the ledger lists it."""
    folder = age_folder(tmp_path)
    rows = (folder / "data.csv").read_text(encoding="utf-8").splitlines()
    named = ["who," + rows[0], *(f"p{number},{row}" for number, row in enumerate(rows[1:]))]
    (folder / "data.csv").write_text("\n".join(named) + "\n", encoding="utf-8")
    budget = filters.Gaussian(epsilon=4.0, delta=1e-6)
    Ledger.open(folder / "l", Terms(budget, person="VARCHAR"), create=True).close()
    arguments = ["train", folder / "data.csv", "--target", "bought", "--schema", folder / "schema.toml"]
    arguments += ["--person", "who", "--epsilon", 2, "--delta", 1e-6, "--ledger", folder / "l"]
    arguments += settings(folder, steps=20)
    assert "belong together" in call(*arguments, "--out", folder / "model", code=2)
    call(*arguments, "--key", "first", "--out", folder / "model")
    assert "training 'first', entry 1:" in (folder / "model" / "card.md").read_text(encoding="utf-8")
    assert "settled" in call(*arguments, "--key", "first", "--out", folder / "other", code=2)
    told = json.loads(call("ledger", "trainings", folder / "l", "--json"))
    assert [(each["key"], each["state"]) for each in told] == [("first", "settled")]
    assert "first" in call("ledger", "trainings", folder / "l")
    assert "no training that is open" in call("ledger", "write-off", folder / "l", "--key", "first", code=2)
    assert "1 training" in call("statement", folder / "l", "--person", "p7")
    data = (folder / "data.csv").read_text(encoding="utf-8").replace("p7,", " p7,")
    (folder / "data.csv").write_text(data, encoding="utf-8")
    assert "blanks" in call(*arguments, "--key", "second", "--out", folder / "other", code=2)


def test_streams_are_listed_and_merged(tmp_path):
    """`almoner ledger streams` says how many updates each stream made; `size` and `compact`, how they are kept."""
    with Ledger.open(tmp_path / "l", Terms(filters.Gaussian(mu=1.0), person="VARCHAR"), create=True) as book:
        updates = Consumer(book, key="news", analyst="lab", claim="secret").begin()
        for _ in range(2):
            updates.update(["ann"], 10, contribute=lambda most: most, release=dict)
    (told,) = json.loads(call("ledger", "streams", tmp_path / "l", "--json"))
    assert (told["key"], told["analyst"], told["updates"]) == ("news", "lab", 2)
    assert "secret" not in str(told)
    assert "news" in call("ledger", "streams", tmp_path / "l")
    before = json.loads(call("ledger", "size", tmp_path / "l", "--json"))
    assert (before["charges"], before["merged"], "private" in before) == (2, None, True)
    assert "nothing was merged" in call("ledger", "compact", tmp_path / "l", "--before", "2000-01-01")
    assert "must be a day" in call("ledger", "compact", tmp_path / "l", "--before", "soon", code=2)
    assert "entries up to 3" in call("ledger", "compact", tmp_path / "l")
    assert "1 charges" in call("ledger", "size", tmp_path / "l")
    call("ledger", "verify", tmp_path / "l")

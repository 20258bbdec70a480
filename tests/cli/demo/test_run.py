"""What `almoner demo` says beside its figures, on the page and on the screen."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from almoner import _extras
from almoner.cli import _demo, app
from almoner.cli._demo import FULL_WEEKS, MOST, promised, ways
from almoner.training import LogisticRegression, demo_tables


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a demonstration on digits, and what it printed."""
    folder = tmp_path_factory.mktemp("demo")
    runner = CliRunner(env={"ALMONER_DATA": str(folder), "COLUMNS": "300"})
    result = runner.invoke(app, ["demo", "--runs", "2", "--out", str(folder / "out")])
    assert result.exit_code == 0, result.output
    return folder / "out", " ".join(result.stdout.split())


@pytest.mark.slow
def test_page_and_screen_read_the_figures_alike(demo):
    """Both tell of the shop with its rivals, of accounts on one table, of the guess, and that an image is a person."""
    folder, printed = demo
    page = (folder / "index.html").read_text(encoding="utf-8")
    for said in (
        "one budget for all people",
        "a cap, the best in hindsight",
        "Who spends much runs out of budget",
        "On one table, trained once, accounts per person gain little or nothing.",
        "mean ± spread of 2 models",
        "With it the guess is right at most 55.4 times in 100.",
        "1,348 images, each of which stands for one person",
    ):
        assert page.count(said) == printed.count(said) == 1, said


@pytest.mark.slow
def test_no_hint_is_given_about_columns_that_are_scaled(tmp_path):
    """The first words that a newcomer sees are those of the demonstration: a fresh process writes no warning."""
    command = [sys.executable, "-m", "almoner", "demo", "--runs", "1", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        command, env=os.environ | {"ALMONER_DATA": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert "Scale them" not in done.stderr
    assert "an account for each customer" in done.stdout


def test_a_key_of_the_shop_names_the_week_of_its_condition(demo):
    """In the statement each question's key and its exact condition are about the same week."""
    told = (demo[0] / "statement.html").read_text(encoding="utf-8")
    named, asked = (re.findall(rf"{words} (\d+)", told) for words in ("revenue of week", "where week ="))
    assert named
    assert named == asked


def test_accounts_and_rivals_of_the_shop_follow_their_rules():
    """One budget pays for all weeks, a cap for the first, an account for what its customer spent; and no other."""
    rho = FULL_WEEKS * 0.5  # a full week costs 0.5: its noise is MOST
    spent = np.full((8, 2), [MOST, MOST / 10])
    errors, expected = ways(spent, rho)
    np.testing.assert_allclose(expected[:FULL_WEEKS], spent[0].sum())  # the first customer pays for three weeks in full
    np.testing.assert_allclose(expected[FULL_WEEKS:], MOST / 10, rtol=1e-6)  # the second for a hundredth of each week
    share = np.array([spent.sum(axis=1), expected])
    least = np.sqrt(np.mean(((share[1] - share[0]) ** 2 + MOST**2) / share[0] ** 2))
    assert errors["an account for each customer"] == pytest.approx(least)
    assert errors["one budget for all people"] <= np.sqrt(8 / FULL_WEEKS) * MOST / share[0, 0] + 1e-9
    (cap,) = (error for way, error in errors.items() if way.startswith("a cap"))
    assert cap <= errors["one budget for all people"]


def test_what_is_missing_is_named_at_once(monkeypatch, tmp_path):
    """Without any library one message names all of them, and the extra that brings them."""
    found = importlib.util.find_spec
    lacking = {"duckdb", "pyarrow", "sklearn"}
    monkeypatch.setattr(_extras, "find_spec", lambda name: None if name in lacking else found(name))
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code != 0
    told = result.output + result.stderr
    assert "not installed: duckdb, pyarrow, sklearn; pip install '.[demo]'" in " ".join(told.split())


def test_the_shop_runs_where_only_it_can(monkeypatch, tmp_path):
    """Without scikit-learn the page has the shop, and says what brings the model."""
    monkeypatch.setattr(_extras, "find_spec", lambda name: None if name == "sklearn" else True)
    monkeypatch.setattr(_demo, "WEEKS", 9)
    result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    for told in (page.replace("&#x27;", "'").replace("&#39;", "'"), result.stdout):
        assert "not installed: sklearn; pip install '.[demo]'" in " ".join(told.split())
    assert page.count("<circle") == 9


def test_both_private_rows_take_the_same_steps():
    """With the same noise a model with accounts is the one without them, as the page says of one table."""
    example = demo_tables.digits()
    settings = {"classes": range(10), "n_people": len(example.train[1]), "seed": 1}
    models = [LogisticRegression(individual=each, **settings).fit(*example.train) for each in (False, True)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_a_guess_is_rounded_up():
    """How often a guess is right is never shown as less; where it is not known nothing is said of it."""
    assert "at most 56.1 times" in promised(1.0, 1e-5, 0.56001)[-1]
    assert promised(1.0, 1e-5, None) == ["Each private model promises epsilon 1 at delta 1e-05."]


@pytest.mark.slow
def test_programs_read_expectations(tmp_path):
    """The JSON has the accuracies of all models, and of the shop what is expected, not what noise made of it."""
    runner = CliRunner(env={"ALMONER_DATA": str(tmp_path)})
    result = runner.invoke(app, ["demo", "--runs", "1", "--out", str(tmp_path / "out"), "--json"])
    told = json.loads(result.stdout)
    assert len(told["accuracies"]) == 1
    assert told["card"]["epsilon"] == 1
    everybody, cap, accounts = told["shop"]["typical error of a week"].values()
    assert everybody > cap > accounts
    assert told["shop"]["epsilon"] == 2

"""What `almoner demo` says beside its figures, on the page and on the screen."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from almoner.cli import app
from almoner.cli._demo import difference, promised, reading
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
    """Both tell of the shop, of accounts on one table, of the guess, and that an image stands for a person."""
    folder, printed = demo
    page = (folder / "index.html").read_text(encoding="utf-8")
    for said in (
        "One budget for all people is used up after 8 weeks.",
        "On one table, trained once, accounts per person gain little or nothing.",
        "over 2 runs of each",
        "With it the guess is right at most 55.4 times in 100.",
        "1,348 images, each of which stands for one person",
    ):
        assert page.count(said) == printed.count(said) + ("images" in said), said  # the caption is a label too
        assert printed.count(said) == 1, said


@pytest.mark.slow
def test_no_hint_is_given_about_columns_that_are_scaled(tmp_path):
    """The first words that a newcomer sees are those of the demonstration: a fresh process writes no warning."""
    command = [sys.executable, "-m", "almoner", "demo", "--runs", "1", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        command, env=os.environ | {"ALMONER_DATA": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert "Scale them" not in done.stderr
    assert "One budget for all people" in done.stdout


def test_a_key_of_the_shop_names_the_week_of_its_condition(demo):
    """In the statement each question's key and its exact condition are about the same week."""
    told = (demo[0] / "statement.html").read_text(encoding="utf-8")
    named, asked = (re.findall(rf"{words} (\d+)", told) for words in ("customers of week", "where week ="))
    assert named
    assert named == asked


def test_the_difference_has_the_interval_of_a_t_test():
    """Difference and interval are those of SciPy's t-test for two groups."""
    plain, accounts = [83.1, 84.0, 82.2, 85.5], [82.0, 84.4, 81.1, 83.0]
    gained, half = difference(plain, accounts)
    low, high = stats.ttest_ind(accounts, plain).confidence_interval()
    np.testing.assert_allclose([gained - half, gained + half], [low, high])
    assert difference([83.0], [82.0]) == (-1.0, None)


@pytest.mark.parametrize(
    ("gained", "half", "runs", "said"),
    [
        (-1.38, 2.0, 5, "1.38 points lower here. The 95 % interval of this difference, over 5 runs of each"),
        (-1.38, 2.0, 5, "from -3.38 to +0.62. It contains 0: the difference is within the noise"),
        (1.38, 0.5, 5, "1.38 points higher here."),
        (1.38, 0.5, 5, "from +0.88 to +1.88. It does not contain 0"),
        (1.38, None, 1, "One run of each cannot tell a difference from noise"),
    ],
)
def test_the_reading_follows_the_interval(gained, half, runs, said):
    """Noise is named as the reason only where the interval allows it, and one run decides nothing."""
    assert said in " ".join(reading(gained, half, runs))


def test_both_private_rows_take_the_same_steps():
    """With the same noise the demonstration's two private models are the same, as its page says."""
    example = demo_tables.digits()
    settings = {"classes": range(10), "n_people": len(example.train[1]), "seed": 1}
    models = [LogisticRegression(individual=each, **settings).fit(*example.train) for each in (False, True)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_a_guess_is_rounded_up():
    """How often a guess is right is never shown as less; where it is not known nothing is said of it."""
    assert "at most 56.1 times" in promised(1.0, 1e-5, 0.56001)[-1]
    assert promised(1.0, 1e-5, None) == ["Each private run promises epsilon 1 at delta 1e-05."]


@pytest.mark.slow
def test_difference_is_in_the_json(tmp_path):
    """Programs read the difference of the private rows; one run has no interval."""
    runner = CliRunner(env={"ALMONER_DATA": str(tmp_path)})
    result = runner.invoke(app, ["demo", "--runs", "1", "--out", str(tmp_path / "out"), "--json"])
    told = json.loads(result.stdout)
    plain, accounts = (row["accuracy"] for row in told["lines"][1:])
    assert told["difference"] == {"points": accounts - plain, "half of the 95 % interval": None}

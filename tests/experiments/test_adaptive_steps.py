"""The figure of docs/residue.md: its recorded numbers, and the page that shows them."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from almoner import filters, mechanisms

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("adaptive_steps", ROOT / "benchmarks" / "tightness" / "adaptive_steps.py")
adaptive_steps = importlib.util.module_from_spec(SPEC)
sys.modules[SPEC.name] = adaptive_steps  # dataclasses look themselves up
SPEC.loader.exec_module(adaptive_steps)
ROWS = json.loads((ROOT / "docs" / "experiments" / "adaptive_steps.json").read_text(encoding="utf-8"))


def test_the_page_shows_the_recorded_numbers():
    """Every line of the table is in docs/residue.md, and the picture that it names is there."""
    page = (ROOT / "docs" / "residue.md").read_text(encoding="utf-8")
    for line in adaptive_steps.table(ROWS):
        assert line in page
    assert (ROOT / "docs" / "experiments" / "adaptive_steps.svg").stat().st_size > 10_000


def test_certified_numbers_stay_below_the_fixed_one_and_the_approximation_does_not():
    """At every noise: filters admit at most what is fixed in advance; the central limit theorem says more."""
    for row in ROWS:
        assert max(row["planned"], row["residue"], row["renyi"]) <= row["fixed"] < row["clt"]
        assert row["planned"] >= 0.99 * row["fixed"]


@pytest.mark.parametrize("row", [row for row in ROWS if row["sigma"] in (1.0, 2.0)])
def test_recorded_numbers_are_what_the_package_says_now(row):
    """Two of the rows again: the fixed number, the plan's and the closed form."""
    step = mechanisms.SampledGaussian(row["sigma"], 1.0, adaptive_steps.RATE)
    assert adaptive_steps.fits(step, row["fixed"])
    assert not adaptive_steps.fits(step, row["fixed"] + 1)
    plan = filters.Planned(step, epsilon=adaptive_steps.EPSILON, delta=adaptive_steps.DELTA)
    assert plan.left == row["planned"]
    assert adaptive_steps.clt(row["sigma"]) == row["clt"]

"""What was recorded of stopping by counts, and of gradient descent against DP-SGD, is what the pages say."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "experiments"


def recorded(name):
    return json.loads((PAGES / f"{name}.json").read_text(encoding="utf-8"))


def test_counts_cost_a_hundredth_and_stop_where_they_are_above_the_share():
    """Each way costs 1 % of a budget; a count that stopped a run is above its share, and near the truth."""
    for one in recorded("stopping-counts"):
        if one["way"] == "plain, planned":
            continue
        assert one["price_of_budget"] == pytest.approx(0.01, rel=1e-3)
        for moment, found in one["noted"].items():
            if moment not in ("k", "k_max", "longest") and found["counted"] is not None:
                assert found["counted"] > float(moment) * one["people"]
                assert abs(found["counted"] - found["dropped"]) < 6 * found["standard_error"]


def test_the_control_of_the_counts_makes_the_promise_of_the_counted_runs():
    """Plain descent is planned for the mean step at which 10 % are out, with as much budget, for the same seeds."""
    runs = [one for one in recorded("stopping-counts") if one["setting"] == "as printed"]
    counted, control = ([one for one in runs if one["way"] == way] for way in ("square root", "plain, planned"))
    assert [one["seed"] for one in control] == [one["seed"] for one in counted]
    steps = sum(one["noted"]["0.1"]["step"] for one in counted) / len(counted)
    for one in control:
        assert one["stopped"] == round(steps)
        assert one["epsilon"] == pytest.approx(counted[0]["epsilon"], rel=1e-9)
        assert one["noise_multiplier"] / 455.34 == pytest.approx((one["stopped"] / 800) ** 0.5)


def test_both_descents_were_tuned_with_the_same_effort_and_paired_seeds():
    """As many trials, and as many seeds; what was chosen is the best of its trials."""
    for one in recorded("descent"):
        ways = one["GD"], one["SGD"]
        assert len({len(way["trials"]) for way in ways}) == len({len(way["test"]) for way in ways}) == 1
        for way in ways:
            best = max(way["trials"], key=lambda trial: trial[-1])
            assert best == [way["sample_rate"], way["steps"], way["learning_rate"], way["validation"]]
    networks = {one["epsilon"]: len(one["GD"]["test"]) for one in recorded("descent") if "network" in one["task"]}
    assert networks == {1.19: 3, 3.0: 3}


def test_an_odometer_of_restarts_says_no_less_than_was_paid():
    """At every size of the filters each person's reading is at least what was paid, and at some size near it."""
    for one in recorded("odometer-sizes")["people"].values():
        readings = one["grid"] + [found["rdp"] for found in one["at"].values()]
        assert min(readings) >= one["paid"]
        assert min(readings) < 1.04 * one["paid"]

"""Truth intervals hold the truth: every kind of question, through real ledgers, under both kinds of noise and a pace.

It is the quick form of ``benchmarks/tightness/coverage.py``, over made-up rows.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from almoner import filters
from almoner.queries import Count
from sessions import opened

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "tightness" / "coverage.py"
SPEC = importlib.util.spec_from_file_location("truths", PROGRAM)  # another module has its own name
truths = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(truths)
ANSWERS = 3
LEAST = 0.9


def rows():
    generator = np.random.default_rng(3)
    who = np.repeat(np.arange(400), generator.integers(1, 6, 400))
    v = np.minimum(generator.poisson(2 + who % 3), 9).astype(float)
    return truths.Data(who, v, (v > 2).astype(float), generator.integers(1, 5, len(who)), (0, 9, 1), 5)


def told(path, budget, asked):
    """(Truth, interval) of every number of every answer."""
    with opened(path, rows().table(), budget=budget) as session:
        ann = session.analyst("ann")
        for name, question, truth in asked:
            for run in range(ANSWERS):
                answer = ann.ask(question, key=f"{name} {run}", anyway=question.pace != 1)
                intervals = answer.truth_intervals
                assert intervals is not None, name
                one = intervals[0] if len(answer.groups) == 1 else intervals
                yield from truths.pairs(truth(answer) if callable(truth) else truth, one)


def share(found, times=1.0):
    """The share of intervals that hold the truth; ``times`` as wide as they are."""
    held = []
    for truth, (low, high) in found:
        middle, half = (low + high) / 2, times * (high - low) / 2 + 1e-6 * max(1.0, abs(truth))
        held.append(abs(truth - middle) <= half)
    return np.mean(held)


@pytest.mark.parametrize("price", [{"rho": 0.02}, {"epsilon": 0.3}], ids=["rho", "epsilon"])
def test_truth_intervals_hold_the_truth(tmp_path, price):
    """Of all kinds together, and more often than that those of half the width; which would be found."""
    budget = filters.Zcdp(rho=100.0) if "rho" in price else filters.Basic(epsilon=1000.0)
    found = list(told(tmp_path / "l", budget, truths.cases(rows(), price)))
    assert len(found) > 150
    assert share(found) >= LEAST
    assert share(found, times=0.5) < LEAST


def test_truth_intervals_of_people_who_are_shrunk_hold_the_truth(tmp_path):
    """Where each person pays a 200th part of what is left, less than the price; intervals about the noise don't."""
    asked = list(truths.paced(rows(), {"rho": 0.02}))
    assert share(list(told(tmp_path / "l", filters.Zcdp(rho=2.0), asked))) >= LEAST - 0.12  # of nine intervals
    with opened(tmp_path / "m", rows().table(), budget=filters.Zcdp(rho=2.0)) as session:
        count = Count(at_most=5, pace=200, rho=0.02)
        answer = session.analyst("ann").ask(count, key="a", anyway=True)
        assert answer.interval[1] < len(rows().v) <= answer.truth_interval[1]

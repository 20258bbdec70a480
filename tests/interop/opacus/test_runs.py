"""Runs of steps: merging copies of them, old and new, loses no step and counts none twice."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("opacus")

from almoner.errors import ArgumentError
from almoner.interop.opacus._engine import Runs

NAMES = st.sampled_from("abc")
CUTS = st.lists(st.dictionaries(NAMES, st.integers(0, 6)))
STEPS = st.lists(st.tuples(st.sampled_from([1.0, 1.5]), st.sampled_from([0.1, 0.2])), max_size=6)


def single(state):
    """Each run's steps one by one."""
    return {name: [(z, q) for z, q, count in steps for _ in range(count)] for name, steps in state.items()}


@given(
    steps=st.dictionaries(st.sampled_from("abc"), STEPS),
    cuts=st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 6))),
)
def test_merging_copies_in_any_order_knows_the_longest_of_each(steps, cuts):
    """Each copy has the beginnings of some runs; what is missing is added once, in order."""
    here, longest = Runs(), {}
    for cut in cuts:
        copy = Runs()
        for name, length in cut.items():
            for step in steps.get(name, [])[:length]:
                copy.add(*step, run=name)
            longest[name] = max(longest.get(name, 0), min(length, len(steps.get(name, []))))
        for name, *step in here.missing(copy.state()):
            here.add(*step, run=name)
        assert here.missing(copy.state()) == []
    assert single(here.state()) == {name: steps[name][:length] for name, length in longest.items() if length}


def test_runs_of_one_name_that_differ_are_refused():
    """No process writes two different beginnings of its run; neither is taken for the other."""
    here = Runs()
    here.add(1.0, 0.1, run="a")
    for wrong in ([(2.0, 0.1, 1)], [(1.0, 0.1, 0)], [(1.0, 0.1, -3)], [(float("nan"), 0.1, 1)]):
        with pytest.raises(ArgumentError):
            here.missing({"a": wrong})


def test_a_forked_process_has_a_run_of_its_own(monkeypatch):
    """The same number of steps before and after a fork are two processes' steps, not two copies of one run."""
    here, number = Runs(), os.getpid()
    here.add(1.0, 0.1)
    monkeypatch.setattr(os, "getpid", lambda: number + 1)
    here.add(1.0, 0.1)
    assert [len(steps) for steps in here.state().values()] == [1, 1]

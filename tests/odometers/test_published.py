"""Odometers as papers state them: where they start, what they refuse, and the naive algorithm as an oracle."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bursar import errors, odometers
from bursar import mechanisms as m
from bursar._units import MEASURE
from bursar.curves import gaussian
from bursar.odometers import published


def charged(odometer, *steps):
    for step in steps:
        odometer.charge(step)
    return odometer


def test_users_of_the_papers_find_the_names_in_the_room_itself():
    """Each published odometer is served as odometers.NAME too; those that restart filters are no Odometer."""
    for name in published.__all__:
        assert getattr(odometers, name) is getattr(published, name)
    assert not issubclass(published.FeldmanZrnic, odometers.Odometer)
    assert not issubclass(published.GaussianRestarts, odometers.Odometer)


def test_stitched_start_is_the_first_round_that_costs():
    """Fixed by the first round, whatever it is wrapped in, and never again."""
    first = odometers.Stitched(delta=1e-5)
    charged(first, m.Pure(0.0), m.Composed((m.Repeated(m.Pure(0.1), 5), m.Pure(1.0))), m.Pure(3.0))
    given = odometers.Stitched(delta=1e-5, start=0.01)
    charged(given, m.Repeated(m.Pure(0.1), 5), m.Pure(1.0), m.Pure(3.0))
    assert first.epsilon() == given.epsilon()


def test_restarts_refuse_what_does_not_fit_into_a_filter():
    """A round above the step is refused, nothing is counted, and a cheaper one still goes."""
    odometer = charged(odometers.FeldmanZrnic(delta=1e-5, alpha=16.0, step=0.1), m.Gaussian(10.0))
    before = odometer.state()
    with pytest.raises(errors.BudgetExceeded) as refusal:
        odometer.charge(m.Gaussian(5.0))
    assert (refusal.value.asked, refusal.value.spent) == (0.32, 0.08)
    assert refusal.value.left == pytest.approx(0.02)
    assert odometer.state() == before
    odometer.charge(m.Gaussian(20.0))
    assert odometer.filters == 1
    with pytest.raises(errors.Unsupported):
        odometer.ex_post_epsilon()


@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0.02, 1.0)), min_size=1, max_size=8))
def test_restarts_by_the_naive_algorithm(blocks):
    """Algorithm 5, one round at a time, in exact arithmetic."""
    odometer, step = odometers.GaussianRestarts(delta=1e-5, step=1.0), MEASURE
    opened, held = 0, 0
    for count, mu in blocks:
        price = math.ceil(gaussian.cost(m.Gaussian(1 / mu)) * MEASURE)
        if price > step:
            continue
        odometer.charge(m.Repeated(m.Gaussian(1 / mu), count))
        for _ in range(count):
            if not opened or held + price > step:
                opened, held = opened + 1, 0
            held += price
    assert odometer.state()["totals"] == [opened, held]
    assert odometer.epsilon() == pytest.approx(float(gaussian.epsilon(math.sqrt(opened), delta=1e-5)), rel=1e-9)

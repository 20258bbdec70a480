"""Odometers as papers state them: where they start, what they refuse, and the naive algorithm as an oracle."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almoner import errors, individual, odometers
from almoner import mechanisms as m
from almoner._units import MEASURE
from almoner.curves import gaussian, renyi
from almoner.odometers import _published


def charged(odometer, *steps):
    for step in steps:
        odometer.charge(step)
    return odometer


def test_users_of_the_papers_find_the_names_in_the_room_itself():
    """Each published odometer is served as odometers.NAME too; those that restart filters are no Odometer."""
    for name in _published.__all__:
        assert getattr(odometers, name) is getattr(_published, name)
    assert not issubclass(_published.FeldmanZrnic, odometers.Odometer)
    assert not issubclass(_published.GaussianRestarts, odometers.Odometer)


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


SIZES = st.lists(st.floats(0.05, 2.0), min_size=1, max_size=6)


@given(SIZES, st.lists(st.tuples(st.integers(1, 15), st.floats(0.02, 1.4)), min_size=1, max_size=8))
def test_restarts_of_several_sizes_by_the_naive_algorithm(sizes, blocks):
    """One round at a time into the open filter, or into the next that holds it; filters too small stay empty."""
    odometer, units = (
        odometers.GaussianRestarts(delta=1e-5, step=sizes),
        [int(Fraction(repr(x)) * MEASURE) for x in sizes],
    )
    opened, used = 0, 0

    def size(number):
        return units[min(number, len(units)) - 1]

    for count, mu in blocks:
        price, before = math.ceil(gaussian.cost(m.Gaussian(1 / mu)) * MEASURE), odometer.state()
        there, fits = (opened, used), True
        for _ in range(count):
            if not there[0] or there[1] + price > size(there[0]):
                later = range(there[0] + 1, max(there[0] + 1, len(units)) + 1)
                number = next((one for one in later if size(one) >= price), None)
                fits = fits and number is not None
                there = (number or there[0], 0)
            there = there[0], there[1] + price
        if not fits:
            with pytest.raises(errors.BudgetExceeded):
                odometer.charge(m.Repeated(m.Gaussian(1 / mu), count))
            assert odometer.state() == before
            continue
        odometer.charge(m.Repeated(m.Gaussian(1 / mu), count))
        opened, used = there
    assert odometer.state()["totals"] == [opened, used]
    total = math.fsum(size(number + 1) for number in range(opened)) / MEASURE
    expected = float(gaussian.epsilon(math.sqrt(total), delta=1e-5)) if opened else 0.0
    assert odometer.epsilon() == pytest.approx(expected, rel=1e-9)
    assert type(odometer).from_state(json.loads(json.dumps(odometer.state()))).state() == odometer.state()


def test_doubling_sizes_are_lecuyers():
    """Sizes that double: filter f holds up to the sum 2^f - 1 of the first, and the bound is that of the sum."""
    first = 0.05
    odometer = odometers.FeldmanZrnic(delta=1e-5, alpha=8.0, step=[first * 2**f for f in range(12)])
    for filters in (1, 2, 3, 5):
        while odometer.total < first * (2**filters - 1):
            odometer.charge(m.Gaussian(20.0))
        assert odometer.filters == filters
        total = first * (2**filters - 1)
        assert odometer.epsilon() == pytest.approx(float(renyi.epsilon([total], [8.0], delta=1e-5)), rel=1e-9)


def test_sizes_that_are_refused():
    """None, not positive, below a unit; accounts per person have one size."""
    for sizes in ([], [0.1, 0.0], [0.1, math.nan], [1e-18]):
        with pytest.raises(errors.ArgumentError):
            odometers.GaussianRestarts(delta=1e-5, step=sizes)
    with pytest.raises(errors.Unsupported, match="one size"):
        individual.Odometer(3, odometers.GaussianRestarts(delta=1e-5, step=[0.1, 0.2]))


def test_a_plan_chooses_the_order_and_the_size_of_filters():
    """No other number of rounds a filter has a smaller bound, and no order a smaller epsilon."""
    step = m.Gaussian(170.0)
    plan = m.Repeated(step, 104)
    odometer = odometers.FeldmanZrnic.for_plan(plan, delta=1e-5)
    alpha, size = odometer.state()["parameters"]["alpha"], odometer.state()["parameters"]["step"]
    cost = float(renyi.cost(step, alpha))
    rounds = round(size / cost)

    def bound(each):
        return 104 * cost * each / (each - 1) + each * cost

    assert bound(rounds) <= min(map(bound, range(2, 104))) * 1.01
    for other in renyi.ORDERS:
        at = [
            float(renyi.epsilon([104 * float(renyi.cost(step, order))], [order], delta=1e-5))
            for order in (alpha, other)
        ]
        assert at[0] <= at[1]


def test_uneven_contributions_stay_below_the_bound_that_the_size_is_chosen_by():
    """The odometer of a person who pays s in all stands at no more than s m / (m - 1) + m r."""
    plan = m.Repeated(m.Gaussian(10.0), 50)
    rng = np.random.default_rng(0)
    for share in (0.1, 1.0):
        boundary = odometers.FeldmanZrnic.for_plan(plan, delta=1e-5, share=share)
        alpha, size = boundary.state()["parameters"]["alpha"], boundary.state()["parameters"]["step"]
        largest = float(renyi.cost(m.Gaussian(10.0), alpha))
        rounds, paid = round(size / largest), 0.0
        for norm in rng.uniform(0, 1, 50):
            boundary.charge(m.Gaussian(10.0, float(norm)))
            paid += float(renyi.cost(m.Gaussian(10.0, float(norm)), alpha))
        assert boundary.total <= (paid * rounds / (rounds - 1) + rounds * largest) * (1 + 1e-9)


def test_a_plan_that_costs_nothing_or_a_share_out_of_range_is_refused():
    """The size would be nothing."""
    plan = m.Repeated(m.Gaussian(10.0), 50)
    for share in (0.0, -1.0, 1.5, math.nan):
        with pytest.raises(errors.ArgumentError, match="share"):
            odometers.FeldmanZrnic.for_plan(plan, delta=1e-5, share=share)
    with pytest.raises(errors.ArgumentError, match="costs nothing"):
        odometers.FeldmanZrnic.for_plan(m.Repeated(m.Gaussian(10.0), 0), delta=1e-5)


@pytest.mark.parametrize(
    ("run", "plan"),
    [
        *((m.Repeated(m.Gaussian(10 * z), 100), z > 100) for z in (0.3, 1.0, 5.0, 30.0, 300.0, 3000.0)),
        (m.Repeated(m.SampledGaussian(1.0, 1.0, 0.01), 1000), False),
        (m.Repeated(m.SampledGaussian(0.7, 1.0, 0.001), 1000), False),
    ],
)
def test_no_orders_need_be_chosen_for_a_range_of_noise(run, plan):
    """The mixture's own orders are below Lécuyer's odometer with the best of nine ranges of orders, in hindsight."""
    ranges = [{"orders": tuple(2.0**i for i in range(1, most))} for most in (4, 8, 12, 20)]
    ranges += [
        {"orders": tuple(1 + np.geomspace(*ends, 5))} for ends in ((0.05, 1.0), (0.5, 8.0), (4.0, 64.0), (32.0, 1000.0))
    ]
    his = []
    for options in ({}, *ranges):
        odometer = odometers.Lecuyer(delta=1e-5, **options)
        odometer.charge(run)
        his.append(odometer.epsilon())
    ours = odometers.Renyi(delta=1e-5, plan=run) if plan else odometers.Renyi(delta=1e-5)
    ours.charge(run)
    assert ours.epsilon() <= min(his)

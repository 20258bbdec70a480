"""Odometers as accounts: prices, readings, refusals, state."""

import copy
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almoner import errors, filters, odometers
from almoner import mechanisms as m
from almoner._notions import _order_mixture
from almoner.curves import zcdp
from almoner.odometers import _roots

KINDS = {
    "renyi": lambda **k: odometers.Renyi(delta=1e-5, **k),
    "renyi_plan": lambda **k: odometers.Renyi(delta=1e-5, plan=m.Repeated(m.Pure(0.1), 50), **k),
    "gaussian": lambda **k: odometers.Gaussian(delta=1e-5, **k),
    "gaussian_plan": lambda **k: odometers.Gaussian(delta=1e-5, plan=0.5, **k),
    "line": lambda **k: odometers.Line(delta=1e-5, plan=0.5, **k),
    "mixture": lambda **k: odometers.Mixture(delta=1e-5, **k),
    "stitched": lambda **k: odometers.Stitched(delta=1e-5, **k),
    "lecuyer": lambda **k: odometers.Lecuyer(delta=1e-5, **k),
    "rogers": lambda **k: odometers.Rogers(delta=1e-5, people=10_000, **k),
}
RESTARTS = {
    "feldman_zrnic": lambda: odometers.FeldmanZrnic(delta=1e-5, alpha=16.0, step=0.2),
    "gaussian_restarts": lambda: odometers.GaussianRestarts(delta=1e-5, step=0.1),
}
every = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
every_and_restarts = pytest.mark.parametrize("make", (KINDS | RESTARTS).values(), ids=KINDS | RESTARTS)
STEPS = (m.Gaussian(20.0), m.Gaussian(7.3), m.Repeated(m.Gaussian(31.0), 7), m.Gaussian(1e4))


def charged(odometer, *steps):
    for step in steps:
        odometer.charge(step)
    return odometer


@every_and_restarts
def test_state_is_exact_at_every_round(make):
    """Stopped at any round, saved as JSON, restored and continued: the same numbers to the last unit."""
    straight, restored = make(), make()
    for step in STEPS * 5:
        straight.charge(step)
        restored.charge(step)
        restored = type(restored).from_state(json.loads(json.dumps(restored.state())))
        assert restored.state() == straight.state()
        assert restored.epsilon() == straight.epsilon()
        assert restored.count == straight.count
    if make not in RESTARTS.values():
        assert restored.ex_post_epsilon() == straight.ex_post_epsilon()


@every
def test_state_is_exact_with_rounds_that_may_fail(make):
    """Failures, and what they cost pathwise, are part of the state."""
    steps = (m.Approximate(0.1, 1e-12), m.Pure(0.2), m.Approximate(0.05, 1e-13))
    straight, restored = make(), make()
    for step in steps:
        straight.charge(step)
        restored.charge(step)
        restored = type(restored).from_state(json.loads(json.dumps(restored.state())))
    assert restored.state() == straight.state()
    assert restored.epsilon() == straight.epsilon() < math.inf
    assert restored.ex_post_epsilon() == straight.ex_post_epsilon() <= straight.epsilon()


@every_and_restarts
def test_repeated_costs_its_rounds(make):
    """Repeated(m, k) is k single charges, to the unit; Composed is its parts."""
    one, many, nested = make(), make(), make()
    for _ in range(37):
        one.charge(STEPS[0])
    many.charge(m.Repeated(STEPS[0], 37))
    nested.charge(m.Composed((m.Repeated(m.Repeated(STEPS[0], 3), 12), STEPS[0], m.Repeated(STEPS[1], 0))))
    assert one.state() == many.state() == nested.state()
    assert one.count == 37


@every_and_restarts
def test_a_copy_is_refused(make):
    """Two copies would each miss the other's charges."""
    for way in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(errors.CopyRefused):
            way(make())


@every
def test_nothing_spent_is_nothing_lost(make):
    """Before the first round, and after rounds that cost nothing, the bound is 0 where a boundary can say so."""
    odometer = charged(make(), m.Pure(0.0), m.Repeated(m.Gaussian(1.0), 0))
    floor = odometers.Lecuyer(delta=1e-5).epsilon() if "Lecuyer" in repr(odometer) else 0.0
    assert odometer.epsilon() == odometer.ex_post_epsilon() == floor


@every
def test_bounds_never_fall(make):
    """More rounds, larger bounds, in both promises; the ex-post bound is never above the pathwise one."""
    odometer, before = make(), (0.0, 0.0)
    for step in (m.Gaussian(1e3), m.Gaussian(20.0), m.Laplace(9.0), m.Zcdp(0.3), m.Gaussian(0.5), m.Gaussian(0.1)):
        odometer.charge(step)
        now = odometer.epsilon(), odometer.ex_post_epsilon()
        assert now[0] >= before[0]
        assert now[1] >= before[1]
        assert now[1] <= now[0]
        before = now


@every
def test_another_delta(make):
    """A smaller delta has a larger bound; the odometer's own delta is the default."""
    odometer = charged(make(), m.Gaussian(3.0))
    assert odometer.epsilon(delta=1e-5) == odometer.epsilon()
    assert odometer.epsilon(delta=1e-9) > odometer.epsilon() > odometer.epsilon(delta=1e-3)
    assert odometer.ex_post_epsilon(delta=1e-9) > odometer.ex_post_epsilon()
    for bad in (0.0, 1.0, math.nan):
        with pytest.raises(errors.ArgumentError):
            odometer.epsilon(delta=bad)


@every
def test_infinite_costs_are_infinite(make):
    """A round without any protection makes every bound infinite, for good."""
    odometer = charged(make(), m.Pure(math.inf), m.Pure(0.1))
    assert odometer.epsilon() == odometer.ex_post_epsilon() == math.inf


@every
def test_failures_have_a_share_of_their_own(make):
    """Once the deltas of the rounds exceed sum_delta, both bounds are infinite; before, they are not."""
    odometer = make(sum_delta=1e-6)
    odometer.charge(m.Repeated(m.Approximate(0.01, 1e-8), 100))
    assert odometer.ex_post_epsilon() < math.inf
    odometer.charge(m.Approximate(0.01, 1e-8))
    assert odometer.ex_post_epsilon() == odometer.epsilon() == math.inf


@every
def test_a_round_that_cannot_fail_leaves_the_door_open(make):
    """Whatever came first, a thousandth of delta is kept for later rounds that may fail; nothing run is no charge."""
    nothing, pure = charged(make(), m.Composed(())), charged(make(), m.Pure(0.01))
    for odometer in (nothing, pure):
        odometer.charge(m.Approximate(0.01, 1e-10))
        assert odometer.ex_post_epsilon() <= odometer.epsilon() < math.inf
    if "Rogers" not in repr(pure):
        assert pure.state()["parameters"]["sum_delta"] == pytest.approx(1e-8)
        assert nothing.state()["parameters"]["sum_delta"] == 5e-6


@every
def test_states_saved_before_the_door_was_open_mean_the_same(make):
    """A state with sum_delta = 0 refuses rounds that may fail, and reads the same at the whole delta."""
    state = charged(make(), m.Pure(0.1)).state()
    old = type(make()).from_state(state | {"parameters": state["parameters"] | {"sum_delta": 0.0}})
    explicit = charged(make(sum_delta=0.0), m.Pure(0.1))
    assert (old.epsilon(), old.ex_post_epsilon()) == (explicit.epsilon(), explicit.ex_post_epsilon())
    with pytest.raises(errors.Unsupported, match="sum_delta"):
        old.charge(m.Approximate(0.01, 1e-9))


@every_and_restarts
def test_counts_that_no_float_holds_are_infinite(make):
    """10**60 rounds that cost something each: the bound is infinite, and no error."""
    odometer = make()
    try:
        odometer.charge(m.Repeated(m.Repeated(m.Gaussian(1e-60, 1e60), 10**30), 10**30))
    except errors.BudgetExceeded:
        return
    assert odometer.epsilon() == math.inf


@pytest.mark.parametrize("kind", ["Renyi", "Gaussian", "Mixture", "Stitched", "Lecuyer"])
@pytest.mark.parametrize("delta", [1e-310, 5e-324])
def test_deltas_below_the_normal_floats(kind, delta):
    """No warning, and a bound that is above that of a larger delta."""
    odometer = charged(getattr(odometers, kind)(delta=delta, sum_delta=0.0), m.Repeated(m.Gaussian(20.0), 100))
    larger = charged(getattr(odometers, kind)(delta=1e-290, sum_delta=0.0), m.Repeated(m.Gaussian(20.0), 100))
    assert larger.epsilon() < odometer.epsilon() < math.inf


def test_without_a_share_rounds_that_may_fail_are_refused():
    """A share cannot be made afterwards: refused, and nothing is counted."""
    odometer = charged(odometers.Gaussian(delta=1e-5, sum_delta=0.0), m.Gaussian(10.0))
    before = odometer.state()
    with pytest.raises(errors.Unsupported, match="sum_delta"):
        odometer.charge(m.Approximate(0.1, 1e-9))
    assert odometer.state() == before
    first = charged(odometers.Gaussian(delta=1e-5), m.Approximate(0.1, 1e-9), m.Gaussian(10.0))
    assert first.state()["parameters"]["sum_delta"] == 5e-6


@every_and_restarts
def test_what_has_no_price_is_refused(make):
    """Not a mechanism, or one without a theorem here: nothing is counted."""
    odometer = make()
    with pytest.raises(errors.ArgumentError):
        odometer.charge("gaussian")
    with pytest.raises(errors.ArgumentError):
        odometer.charge([1])
    if not isinstance(odometer, odometers.Renyi | odometers.Lecuyer | odometers.FeldmanZrnic):
        with pytest.raises(errors.Unsupported):
            odometer.charge(m.SampledGaussian(1.0, 1.0, 0.1))
    assert odometer.count == 0


@every
def test_state_of_another_kind_is_refused(make):
    """A state is restored by the class that wrote it, whole and unchanged."""
    state = charged(make(), m.Gaussian(3.0)).state()
    with pytest.raises(errors.ArgumentError):
        type(make()).from_state(state | {"odometer": "Other"})
    with pytest.raises(errors.ArgumentError):
        type(make()).from_state(state | {"totals": state["totals"] * 2})
    with pytest.raises(errors.ArgumentError):
        type(make()).from_state(state | {"totals": [-1] * len(state["totals"])})


@given(st.lists(st.floats(1e-9, 30.0), min_size=1, max_size=12), st.floats(1e-12, 0.4))
def test_one_order_is_the_known_conversions(values, delta):
    """With one order the boundaries are Mironov's conversion (pathwise) and the tighter one (ex-post)."""
    order, total = 7.5, sum(map(Fraction, values))
    odometer = odometers.Renyi(delta=delta, orders=(order,), sum_delta=0.0)
    for value in values:
        odometer.charge(m.Renyi((order,), (value,)))
    mironov = float(total) + math.log(1 / delta) / (order - 1)
    tighter = float(total) + math.log1p(-1 / order) - math.log(order * delta) / (order - 1)
    assert odometer.epsilon() == pytest.approx(mironov, rel=1e-10)
    assert odometer.epsilon() >= mironov * (1 - 1e-15)
    assert odometer.ex_post_epsilon() == pytest.approx(max(tighter, 0.0), rel=1e-10, abs=2e-11)


@given(
    st.lists(st.floats(1e-6, 50.0), min_size=1, max_size=6),
    st.lists(st.floats(0.05, 1.0), min_size=6, max_size=6),
    st.floats(1e-10, 0.2),
)
def test_roots_are_bounds_and_tight(totals, weights, delta):
    """At the pathwise bound the mixture has reached 1/delta, just below it not; ex-post the sup of G is at most delta.

    G by a fine grid of losses, and by the filters' own arithmetic.
    """
    lam = np.geomspace(0.05, 400, len(totals))
    log_w = np.log(np.array(weights[: len(totals)]) / sum(weights[: len(totals)]))
    s = np.array(totals) * (1 + lam) / 10
    exponent = log_w + math.log(delta) - lam * s

    def mixture(loss):
        return np.logaddexp.reduce(log_w - lam * s + lam * loss) + math.log(delta)

    pathwise, ex_post = _roots.exponentials(exponent, lam), _roots.exponentials_ex_post(exponent, lam)
    assert mixture(pathwise) >= 0
    assert mixture(pathwise * (1 - 1e-9) - 1e-9) < 0
    allowed = float(_order_mixture.allowed_delta(s, lam, log_w, float(ex_post)))
    assert allowed <= delta * (1 + 1e-9)
    if ex_post > 0:
        assert allowed >= delta * (1 - 1e-6)
        inside = [math.log(-math.expm1(ex_post - x)) - mixture(x) for x in ex_post + np.geomspace(1e-6, 60, 500)]
        assert max(inside) <= 1e-9


def test_fewer_steps_give_larger_bounds():
    """Newton's method stays on the safe side: every iterate is a bound, and they fall towards the root."""
    lam = np.geomspace(0.05, 500, 24)
    exponent = math.log(1e-5 / 24) - lam * (1 + lam) * np.array([1e-4, 0.3, 4.0])[:, None]
    for solve in (_roots.exponentials, _roots.exponentials_ex_post):
        bounds = [solve(exponent, lam, steps=k) for k in range(1, 9)]
        for more, fewer in zip(bounds[1:], bounds, strict=False):
            assert np.all(more <= fewer * (1 + 1e-10))
        np.testing.assert_allclose(bounds[3], bounds[-1], rtol=1e-6)


@pytest.mark.quick(4)
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 0.05, 0.4])
@pytest.mark.parametrize("clock", [1e-6, 0.02, 1.0, 40.0, 2000.0])
def test_normal_mixture_is_the_integral(delta, clock):
    """The closed form of the mixture is the integral over positive lam, and its root is a bound."""
    plan = 1.0
    odometer = charged(odometers.Gaussian(delta=delta, plan=plan, sum_delta=0.0), m.Zcdp(clock / 2))
    scale = plan / (2 * math.log(1 / (2 * delta)) + math.log1p(2 * math.log(1 / (2 * delta))))
    lam = np.linspace(0, 40 / math.sqrt(scale), 400_001)

    def value(loss):
        exponent = lam * (loss - clock / 2) - lam**2 * (clock + scale) / 2
        return 2 * math.sqrt(scale / (2 * math.pi)) * np.trapezoid(np.exp(exponent), lam)

    assert value(odometer.epsilon()) == pytest.approx(1 / delta, rel=1e-5)
    bound = odometer.ex_post_epsilon()
    if bound > 0:
        losses = np.linspace(bound, odometer.epsilon(), 60)  # above, the mixture alone is at least 1/delta
        slack = [value(x) * delta + math.expm1(bound - x) for x in losses]
        assert -1e-6 < min(slack) < 0.02


def test_orders_that_are_lost_do_no_harm():
    """A curve that is infinite at large orders leaves the bound of the others."""
    grid = (2.0, 3.0, 400.0)
    with_inf = odometers.Renyi(delta=1e-5, orders=grid)
    with_inf.charge(m.Renyi((2.0, 3.0), (0.1, 0.15)))
    assert with_inf.totals == pytest.approx((0.1, 0.15, math.inf))
    assert with_inf.epsilon() < math.inf
    with_inf.charge(m.Renyi((1.5,), (0.1,)))
    assert with_inf.epsilon() == with_inf.ex_post_epsilon() == math.inf


@pytest.mark.parametrize("plan", [None, m.Repeated(m.Pure(0.01), 100)])
def test_pure_rounds_never_exceed_basic_composition(plan):
    """Below the plain sum of epsilons from the first round to the thousandth; equal to it at the start."""
    odometer = odometers.Renyi(delta=1e-6, plan=plan)
    for rounds in range(1, 1001):
        odometer.charge(m.RandomizedResponse(0.01))
        if rounds in (1, 10, 100, 1000):
            assert odometer.ex_post_epsilon() <= odometer.epsilon() <= Fraction(rounds, 100) * Fraction(1 + 1e-14)
    assert odometer.ex_post_epsilon() < 3.0


def test_directions_are_symmetric():
    """Costs are the larger of the two directions, so that one account serves adding and removing."""
    orders = (1.5, 4.0, 40.0)
    odometer = charged(odometers.Renyi(delta=1e-5, orders=orders), m.SampledGaussian(0.7, 1.0, 0.2))
    x = np.linspace(-30, 60, 400_001)
    noise = np.exp(-(x**2) / (2 * 0.7**2)) / (0.7 * np.sqrt(2 * np.pi))
    mixed = 0.8 * noise + 0.2 * np.exp(-((x - 1) ** 2) / (2 * 0.7**2)) / (0.7 * np.sqrt(2 * np.pi))
    for order, total in zip(orders, odometer.totals, strict=True):
        for one, other in ((noise, mixed), (mixed, noise)):
            there = (one > 1e-300) & (other > 1e-300)  # beyond, both are next to nothing
            logs = order * np.log(one[there]) - (order - 1) * np.log(other[there]) + np.log(x[1] - x[0])
            assert total >= np.logaddexp.reduce(logs) / (order - 1) * (1 - 1e-9)


@pytest.mark.parametrize(
    "bad",
    [
        lambda: odometers.Renyi(delta=0.0),
        lambda: odometers.Renyi(delta=1e-5, orders=(3.0, 2.0)),
        lambda: odometers.Renyi(delta=1e-5, orders=(1.0, 2.0)),
        lambda: odometers.Renyi(delta=1e-5, orders=(2.0, 3.0), weights=(1.0,)),
        lambda: odometers.Renyi(delta=1e-5, orders=(2.0, 3.0), weights=(1.0, 0.0)),
        lambda: odometers.Renyi(delta=1e-5, orders=(2.0,), plan=1.0),
        lambda: odometers.Renyi(delta=1e-5, plan=-1.0),
        lambda: odometers.Renyi(delta=1e-5, sum_delta=1e-5),
        lambda: odometers.Renyi(delta=1e-5, sum_delta=math.nan),
        lambda: odometers.Gaussian(delta=0.5),
        lambda: odometers.Gaussian(delta=1e-5, plan=0.0),
        lambda: odometers.Stitched(delta=1e-5, start=0.0),
        lambda: odometers.Lecuyer(delta=1e-5, orders=()),
        lambda: odometers.Lecuyer(delta=1e-5, first=0.0),
        lambda: odometers.Rogers(delta=1e-5, people=2),
        lambda: odometers.Rogers(delta=0.4, people=100),
        lambda: filters.Rogers(epsilon=1.0, delta=0.4),
        lambda: odometers.FeldmanZrnic(delta=1e-5, alpha=1.0, step=0.1),
        lambda: odometers.FeldmanZrnic(delta=1e-5, alpha=2.0, step=1e-18),
        lambda: odometers.Capped(odometers.Renyi(delta=1e-5), epsilon=0.0),
        lambda: odometers.Capped(odometers.Stitched(delta=1e-5), epsilon=1.0),
    ],
)
def test_arguments_that_break_a_rule(bad):
    """Refused at construction."""
    with pytest.raises(errors.ArgumentError):
        bad()


def test_capped_refuses_like_a_filter_and_reads_like_an_odometer():
    """Never above the target ex-post, refusals cost nothing, something cheaper still fits, and the price is stated."""
    account, step = odometers.Capped(odometers.Renyi(delta=1e-5), epsilon=2.0), m.Gaussian(20.0)
    while account.admits(step):
        account.charge(step)
        assert account.ex_post_epsilon() <= 2.0
    before = account.state()
    with pytest.raises(errors.BudgetExceeded) as refusal:
        account.charge(step)
    assert refusal.value.asked > 2.0 >= refusal.value.spent
    assert account.state() == before
    account.charge(m.Gaussian(1000.0))
    assert account.epsilon() > account.ex_post_epsilon()
    restored = odometers.Capped.from_state(json.loads(json.dumps(account.state())))
    assert restored.state() == account.state()
    with pytest.raises(errors.ArgumentError):
        odometers.Capped.from_state(account.state() | {"target": 1.0})
    plain = filters.Renyi(epsilon=2.0, delta=1e-5)
    while plain.admits(step):
        plain.charge(step)
    price = account.price(step)
    assert price.capped == account.count - 1 < price.tuned
    assert price.tuned == pytest.approx(plain.count, rel=0.03)
    with pytest.raises(errors.CopyRefused):
        copy.copy(account)
    with pytest.raises(errors.ArgumentError):
        odometers.Capped(charged(odometers.Renyi(delta=1e-5), step), epsilon=1.0)
    with pytest.raises(errors.ArgumentError):
        odometers.Capped(odometers.FeldmanZrnic(delta=1e-5, alpha=2.0, step=1.0), epsilon=1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: odometers.Renyi(delta=1e-5),
        lambda: odometers.Gaussian(delta=1e-5),
        lambda: odometers.Line(delta=1e-5, plan=0.1),
        lambda: odometers.Mixture(delta=1e-5, plan=0.1),
        lambda: odometers.Stitched(delta=1e-5, start=0.0025),
        lambda: odometers.Lecuyer(delta=1e-5),
        lambda: odometers.Rogers(delta=1e-5, people=1000),
    ],
)
def test_what_a_cap_admits_is_what_it_then_reads(make):
    """Asked before and read after, the bound is the same: the cap is kept to the last digit."""
    account, step = odometers.Capped(make(), epsilon=3.0), m.Repeated(m.Approximate(0.05, 1e-9), 3)
    while account.admits(step):
        expected = account._odometer.ex_post_epsilon(after=step)
        account.charge(step)
        assert account.ex_post_epsilon() == expected <= 3.0
    assert account.count > 0


def test_line_touches_the_fixed_bound_at_its_plan():
    """One order: pathwise Mironov's best bound at V = plan, ex-post within 3 per cent of the tighter conversion."""
    for clock in (0.01, 1.0, 30.0):
        odometer = charged(odometers.Line(delta=1e-5, plan=clock, sum_delta=0.0), m.Zcdp(clock / 2))
        ell = math.log(1e5)
        assert odometer.epsilon() == pytest.approx(clock / 2 + math.sqrt(2 * ell * clock), rel=1e-9)
        assert odometer.ex_post_epsilon() == pytest.approx(zcdp.Zcdp(clock / 2).epsilon(delta=1e-5), rel=0.03)

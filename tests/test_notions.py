"""Notions of privacy: prices, conditions and promises agree with the filters that hold them."""

from fractions import Fraction
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner import _notions, filters
from almoner import mechanisms as m
from almoner._units import FINE
from almoner.curves import gaussian, renyi, zcdp
from almoner.errors import ArgumentError, Unsupported

KINDS = {
    "Gaussian": lambda: filters.Gaussian(epsilon=1.0, delta=1e-6),
    "mu": lambda: filters.Gaussian(mu=0.3),
    "Zcdp": lambda: filters.Zcdp(epsilon=1.0, delta=1e-6),
    "rho": lambda: filters.Zcdp(rho=0.05),
    "RenyiOrder": lambda: filters.RenyiOrder(alpha=16, rho=0.3),
    "RenyiCurve": lambda: filters.RenyiCurve(orders=(2.0, 8.5, 32.0), values=(0.2, 0.5, 2.0)),
    "OrderMixture": lambda: filters.Renyi(epsilon=1.0, delta=1e-6),
    "Residue": lambda: filters.Residue(epsilon=1.0, delta=1e-6),
    "Approximate": lambda: filters.Approximate(epsilon=1.0, delta=1e-6),
    "Basic": lambda: filters.Basic(epsilon=1.0, delta=1e-6),
    "Pure": lambda: filters.Pure(epsilon=1.0, delta=1e-6),
    "Rogers": lambda: filters.Rogers(epsilon=1.0, delta=1e-6),
}
each_kind = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
LEAVES = {
    "Gaussian": m.Gaussian(37.0),
    "mu": m.Gaussian(37.0),
    "Basic": m.Pure(0.013),
    "Pure": m.Pure(0.013),
    "Rogers": m.Zcdp(0.0001),
}


def leaf(make):
    name = next(name for name, each in KINDS.items() if each is make)
    return LEAVES.get(name, m.Gaussian(37.0))


def nested(draw_counts, one):
    """The same rounds, once as nested descriptions and once as a flat one."""
    a, b, c = draw_counts
    deep = m.Repeated(m.Composed((m.Repeated(m.Repeated(one, a), b), m.Composed((one, m.Repeated(one, 0))))), c)
    return deep, m.Repeated(one, (a * b + 1) * c)


@each_kind
@given(counts=st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)))
@settings(max_examples=10)
def test_nested_descriptions_cost_what_flat_ones_do(make, counts):
    """A Repeated of Composed of Repeated costs, to the unit, what its rounds cost one after the other."""
    notion, (deep, flat) = make().notion, nested(counts, leaf(make))
    assert notion.price(deep) == notion.price(flat)
    assert m.rounds(deep) == m.rounds(flat)


@given(counts=st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)))
def test_curves_flatten_descriptions_too(counts):
    """The exact costs of a nested description are those of the flat one."""
    deep, flat = nested(counts, m.Gaussian(37.0))
    assert zcdp.cost(deep) == zcdp.cost(flat)
    assert gaussian.cost(deep) == gaussian.cost(flat)
    assert renyi.costs(deep, (2.0, 8.5)) == renyi.costs(flat, (2.0, 8.5))
    assert renyi.cost(deep, 8.5) == renyi.costs(deep, (2.0, 8.5))[1]


@given(counts=st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_rounds_come_in_the_order_in_which_they_are_run(counts):
    """``in_order`` and ``leaves`` count the same rounds, and ``in_order`` keeps their order."""
    plays = [m.Pure(0.1 * (j + 1)) for j in range(len(counts))]
    run = m.Repeated(m.Composed(tuple(m.Repeated(play, count) for play, count in zip(plays, counts, strict=True))), 2)
    one_by_one = [play for play, times in m.in_order(run) for _ in range(times)]
    assert one_by_one == 2 * [play for play, count in zip(plays, counts, strict=True) for _ in range(count)]
    assert {play: times for play, times in m.leaves(run).items() if times} == {
        play: 2 * count for play, count in zip(plays, counts, strict=True) if count
    }


@each_kind
def test_the_condition_is_the_verdict_of_the_filter(make):
    """The filter admits exactly what the notion holds, one round after the other until the first refusal."""
    account, step = make(), m.Repeated(leaf(make), 7)
    for _ in range(200):
        after = account.notion.after(account._totals, step)
        assert account.admits(step) == account.notion.holds(after)
        if not account.admits(step):
            break
        account.charge(step)
    else:
        pytest.fail("never refused")


@each_kind
def test_prices_are_exact_and_rounded_up(make):
    """A Gaussian round of 37 costs its mu squared, rho or divergence in units, rounded up, never less."""
    notion = make().notion
    if isinstance(notion, _notions.Gaussian | _notions.Zcdp | _notions.RenyiOrder):
        exact = {_notions.Gaussian: Fraction(1, 37**2), _notions.Zcdp: Fraction(1, 2 * 37**2)}
        share = exact.get(type(notion), Fraction(16, 2 * 37**2))
        (units,) = notion.price(m.Gaussian(37.0))
        assert share * FINE <= units < share * FINE + 1


@each_kind
def test_a_budget_says_its_epsilon_at_its_delta(make):
    """What a filter promises at its own delta is the epsilon that was given; at larger deltas never more."""
    account = make()
    promised = account.notion.statement(1e-5) if account.delta is None else account.notion.statement()
    assert promised.theorem
    assert promised.epsilon < inf
    if account.delta is None:
        with pytest.raises(ArgumentError, match="has no delta of its own"):
            account.epsilon()
    else:
        assert (promised.epsilon, promised.delta) == (1.0, account.delta) == (account.epsilon(), account.delta)
        assert account.epsilon(delta=1e-3) <= 1.0
    account.charge(leaf(make))
    assert account.epsilon(delta=promised.delta) == promised.epsilon  # it does not depend on what was charged


@pytest.mark.parametrize("name", ["OrderMixture", "Residue", "Approximate", "Basic", "Pure", "Rogers"])
def test_nothing_is_promised_below_the_budgets_own_delta(name):
    """Budgets that hold at one delta alone refuse a smaller one."""
    with pytest.raises(Unsupported, match="nothing below its own"):
        KINDS[name]().epsilon(delta=1e-9)


@given(rho=st.floats(1e-6, 5), mu=st.floats(1e-3, 3), delta=st.floats(1e-12, 1e-2))
@settings(max_examples=50)
def test_promises_are_rounded_up(rho, mu, delta):
    """The epsilon of a budget is never below the conversion of the units that accounts may hold, exactly."""
    for account, convert in (
        (filters.Zcdp(rho=rho), lambda total: zcdp.epsilon(float(total), delta=delta)),
        (filters.Gaussian(mu=mu), lambda total: gaussian.epsilon(float(total) ** 0.5, delta=delta)),
    ):
        limit = Fraction(account.notion.limit, FINE)
        assert account.epsilon(delta=delta) >= convert(limit) * (1 - 1e-15)
        assert account.epsilon(delta=delta) == account.notion.statement(delta).epsilon


@each_kind
def test_a_fresh_filter_has_the_same_promise_and_nothing_spent(make):
    """``fresh`` gives the parameters again, whatever was charged, and charging it leaves the first alone."""
    account = make()
    account.charge(leaf(make))
    again, before = account.fresh(), account.state()
    assert again.count == 0
    assert again.state() == make().state()
    again.charge(leaf(make))
    assert account.state() == before
    assert type(account).from_state(before).state() == before


@each_kind
def test_every_filter_says_its_theorem_as_data(make):
    """The theorem of a notion is the Source of its filter, and survives without docstrings."""
    account = make()
    source = " ".join(type(account).__doc__.split())
    assert account.notion.theorem in source

"""One account per person: exact, silent, the same on every array library."""

import copy
import pickle
import threading
from fractions import Fraction
from functools import partial
from math import inf, nan

import array_api_strict
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from almoner import filters, individual, odometers
from almoner import mechanisms as m
from almoner.accounting import calibrate, meaning
from almoner.curves import gaussian, renyi
from almoner.errors import ArgumentError, BudgetExceeded, CopyRefused, UnknownPerson, Unsupported
from forks import needs_fork, raises_in_fork

STEP = m.Gaussian(sigma=3.7, sensitivity=2.0)
BUDGETS = {
    "Gaussian": lambda: filters.Gaussian(mu=1.0),
    "Zcdp": lambda: filters.Zcdp(rho=0.5),
    "RenyiOrder": lambda: filters.RenyiOrder(alpha=8, rho=8.0),
    "RenyiCurve": lambda: filters.RenyiCurve(orders=[2, 8], values=[2.0, 8.0]),
    "Renyi": lambda: filters.Renyi(epsilon=6.0, delta=1e-5),
}
each_budget = pytest.mark.parametrize("make", BUDGETS.values(), ids=BUDGETS)
NORMS = hnp.arrays(np.float64, 5, elements=st.floats(0, 2.0))
ANY = st.one_of(st.floats(0, 2.0), st.sampled_from([nan, inf, -inf, -1.0, -0.0, 2.0, 2.0000001, 1e-300, 1e300, 5e-324]))


def as_libraries(values):
    """The same numbers as arrays of every library and precision that holds them exactly."""
    values = np.asarray(values, np.float64)
    yield values
    yield torch.from_numpy(values.copy())
    yield array_api_strict.asarray(values)


@settings(max_examples=50)
@given(st.lists(hnp.arrays(np.float64, 4, elements=ANY), max_size=12))
def test_nobody_overspends_judged_in_fractions(steps):
    """For every person the exact costs of the rounds they took part in add up to at most the budget."""
    people = individual.Filter(4, filters.Gaussian(mu=1.0))
    exact = [Fraction(0)] * 4
    for norms in steps:
        active = people.charge(STEP, norms)
        for person in np.flatnonzero(active):
            exact[person] += (Fraction(float(norms[person])) / Fraction("3.7")) ** 2
            assert 0 <= norms[person] <= 2.0
        assert all(total <= 1 for total in exact)
        assert all(
            Fraction(int(s), 10**15) >= total for s, total in zip(people.state()["spent"][:, 0], exact, strict=True)
        )


@settings(max_examples=40)
@given(st.lists(hnp.arrays(np.float32, 6, elements=st.floats(0, 2.0, width=32)), max_size=8), st.permutations(range(6)))
def test_libraries_precisions_and_splits_agree_to_the_last_unit(steps, order):
    """NumPy, PyTorch and the strict standard; float32 and float64; all at once and in any split or order of people."""
    whole = individual.Filter(6, filters.Gaussian(mu=0.9))
    others = [individual.Filter(6, filters.Gaussian(mu=0.9), xp=xp) for xp in (torch, array_api_strict)]
    split = individual.Filter(6, filters.Gaussian(mu=0.9))
    for norms in steps:
        expected = whole.charge(STEP, norms.astype(np.float64))
        for people, given_norms in zip(others, (torch.from_numpy(norms), array_api_strict.asarray(norms)), strict=True):
            assert np.array_equal(np.asarray(people.charge(STEP, given_norms)), expected)
        parts = np.concatenate([split.charge(STEP, norms[list(rows)], rows) for rows in (order[:2], order[2:])])
        assert np.array_equal(parts, expected[list(order)])
    for people in (*others, split):
        assert np.array_equal(people.state()["spent"], whole.state()["spent"])


@pytest.mark.slow
@given(st.permutations([0.3, 1.1, 2.0, 0.0, 0.7]))
def test_order_of_charges_does_not_matter(norms):
    """Permuting the charges changes no account."""
    people = individual.Filter(1, filters.Gaussian(mu=5.0))
    for norm in norms:
        assert people.charge(STEP, np.array([norm]))[0]
    reference = individual.Filter(1, filters.Gaussian(mu=5.0))
    for norm in sorted(norms):
        reference.charge(STEP, np.array([norm]))
    assert np.array_equal(people.state()["spent"], reference.state()["spent"])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 1000, 2**15 + 7, 2**20 + 3])
def test_the_fast_path_is_the_general_law(size):
    """Blocks and threads charge exactly what one array operation after the other charges, person by person."""
    rng = np.random.default_rng(size)
    fast, slow = (individual.Filter(size, filters.Gaussian(mu=1.0)) for _ in range(2))
    for _ in range(8):
        norms = rng.uniform(-0.05, 2.1, size)
        norms[rng.random(size) < 0.05] = rng.choice([nan, inf, -inf, -0.0, 2.0, 1e300])
        assert np.array_equal(fast.charge(STEP, norms), slow.charge(STEP, norms, np.arange(size)))
        assert np.array_equal(fast.state()["spent"], slow.state()["spent"])


@pytest.mark.parametrize("make", [lambda: filters.Gaussian(mu=1.0), lambda: odometers.Gaussian(delta=1e-5)])
def test_adding_people_and_saving_wait_for_a_charge_in_another_thread(make):
    """A second thread that adds people, or saves the accounts, waits until the charge of the first thread is done."""
    kind = individual.Filter if isinstance(make(), filters.Filter) else individual.Odometer
    people = kind(3, make())
    for wait in (lambda: people.join(1), people.state):
        thread = threading.Thread(target=wait)
        with people._lock:
            thread.start()
            thread.join(0.2)
            assert thread.is_alive()
        thread.join()
    assert people.epsilon().shape == (4,) if kind is individual.Odometer else people.spent().shape == (4,)


@each_budget
def test_what_is_not_a_number_is_out(make):
    """NaN, negative, infinite and above the promise: out, and not charged; nothing contributed: in, and free."""
    people = individual.Filter(8, make())
    norms = np.array([nan, -1.0, inf, -inf, 2.0 + 1e-9, 0.0, -0.0, 2.0])
    active = people.charge(STEP, norms)
    assert active.tolist() == [False] * 5 + [True] * 3
    assert np.all(people.state()["spent"][:7] == 0)
    assert np.all(people.state()["spent"][7] > 0)


@each_budget
@pytest.mark.parametrize("mask", [[True], [0, 2, 5], [1, 0, 0], [[True], [False], [False]], [True] * 4])
def test_a_refund_wants_a_bool_for_each_person(make, mask):
    """Rows, and masks of other lengths, are refused: read as a mask they would give money back to others."""
    people = individual.Filter(3, make())
    people.charge(STEP, np.full(3, 2.0))
    before = people.state()["spent"]
    with pytest.raises(ArgumentError):
        people.refund(STEP, np.array(mask))
    assert (people.state()["spent"] == before).all()
    people.refund(STEP, np.array([True, False, True]))
    assert (people.state()["spent"] == before * [[0], [1], [0]]).all()


@pytest.mark.parametrize("sensitivity", [0.5, 4.0])
@pytest.mark.parametrize(
    ("kind", "noise"),
    [
        ("Residue", partial(m.DiscreteGaussian, dimension=1)),
        ("Planned", partial(m.DiscreteGaussian, dimension=1)),
        ("Planned", partial(m.ReplacedGaussian, sample_rate=0.1)),
    ],
)
def test_noise_priced_at_the_sensitivity_alone_takes_contributions_up_to_it(kind, noise, sensitivity):
    """Rounds with one price for all contributions know those up to the sensitivity, whatever its size; more is out."""
    step, budget = noise(sigma=20.0 * sensitivity, sensitivity=sensitivity), {"epsilon": 1.0, "delta": 1e-5}
    people = individual.Filter(4, filters.Residue(**budget) if kind == "Residue" else filters.Planned(step, **budget))
    assert (people.allowance(step) == sensitivity).all()
    active = people.charge(step, sensitivity * np.array([0.0, 0.4, 1.0, 1.0 + 1e-9]))
    assert active.tolist() == [True, True, True, False]
    spent = people.spent()
    assert spent[0] == spent[3] == 0 < spent[1] == spent[2]
    people.write_off(step)
    assert (people.spent()[:3] - spent[:3] == spent[2]).all()


@each_budget
def test_a_person_at_the_sensitivity_pays_what_the_filter_charges(make):
    """The account of a person at full norm and the plain filter stop after the same round."""
    people, plain = individual.Filter(1, make()), make()
    rounds = 0
    while plain.admits(STEP):
        plain.charge(STEP)
        rounds += 1
        assert people.charge(STEP, np.array([2.0]))[0]
    assert rounds > 1
    assert not people.charge(STEP, np.array([2.0]))[0]
    for repeated in (m.Repeated(STEP, rounds), m.Repeated(STEP, rounds + 1)):
        fresh = individual.Filter(1, make())
        assert fresh.charge(repeated, np.array([2.0]))[0] == make().admits(repeated)


@pytest.mark.parametrize("xp", [np, torch], ids=["numpy", "torch"])
@pytest.mark.parametrize("step", [m.Gaussian(1.0, 1000.0), m.Repeated(m.Gaussian(1.0), 10**6)], ids=str)
@pytest.mark.parametrize("most", [0.01, 8000.0])
def test_small_contributions_pay_in_full_where_the_clip_costs_more_than_accounts_hold(step, most, xp):
    """Clips whose price is over the range do not make the prices of smaller contributions smaller."""
    norms = getattr(step, "mechanism", step).sensitivity * np.array([1.0, 0.3, 0.01, 1e-4, 1e-5, 1e-6])
    exact = [getattr(step, "count", 1) * Fraction(norm) ** 2 for norm in norms.tolist()]
    people = individual.Filter(6, filters.Gaussian(mu=most**0.5), xp=xp)
    active = np.asarray(people.charge(step, xp.asarray(norms)))
    spent = np.asarray(people.state()["spent"])[:, 0].tolist()
    assert active.tolist() == [price <= Fraction(most) for price in exact]
    assert all(Fraction(s, 10**15) >= price for s, price, a in zip(spent, exact, active, strict=True) if a)
    allowed = np.asarray(people.allowance(step))
    assert np.asarray(people.charge(step, xp.asarray(allowed))).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda most: filters.RenyiCurve(orders=[2, 8], values=[1.0, most]),
        lambda most: filters.Renyi(epsilon=most, delta=0.5, orders=[2, 8], weights=[1, 1]),
    ],
    ids=["RenyiCurve", "Renyi"],
)
def test_budgets_of_several_orders_are_below_what_counts_as_infinite(make):
    """Where totals stop growing at 4600 of the measure, no budget is so large; just below, it ends."""
    with pytest.raises(ArgumentError, match="must be below 4600"):
        individual.Filter(1, make(4601.0))
    people = individual.Filter(1, make(4599.0))
    assert not people.charge(m.Zcdp(40_000.0), np.array([True]))[0]


def test_noise_that_hides_nothing_is_refused():
    """Prices that no float holds are no prices."""
    people = individual.Filter(1, filters.Gaussian(mu=1.0))
    with pytest.raises(ArgumentError, match="too little noise"):
        people.charge(m.Gaussian(1e-60, 1e60), np.array([1.0]))


def test_4000_steps_at_the_clip():
    """A person whose norm is the clip 3.7 gets exactly the 4000 steps that the budget was made for."""
    step = m.Gaussian(sigma=100.0, sensitivity=3.7)
    people = individual.Filter(2, filters.Zcdp(rho=2.738))  # 4000 * 3.7**2 / (2 * 100**2)
    for _ in range(4000):
        assert people.charge(step, np.array([3.7, 0.37]))[0]
    assert people.charge(step, np.array([3.7, 3.7])).tolist() == [False, True]
    assert people.left()[0] == 0


@pytest.mark.slow
@each_budget
@pytest.mark.parametrize("mechanism", [STEP, m.SampledGaussian(1.5, 2.0, 0.1), m.Laplace(20.0, 2.0)], ids=str)
def test_allowance_is_admitted_and_nearly_the_most(make, mechanism):
    """A person who contributes the allowance is admitted; one who contributes 2 % and 0.003 more is not."""
    budget = make()
    if isinstance(mechanism, m.SampledGaussian | m.Laplace) and isinstance(budget, filters.Gaussian):
        with pytest.raises(Unsupported):
            individual.Filter(1, budget).allowance(mechanism)
        return
    if isinstance(mechanism, m.SampledGaussian) and isinstance(budget, filters.Zcdp):
        with pytest.raises(Unsupported):
            individual.Filter(1, budget).allowance(mechanism)
        return
    people = individual.Filter(200, budget)
    rng = np.random.default_rng(3)
    for _ in range(12):
        people.charge(STEP, rng.uniform(0, 2, 200))
    most = people.allowance(mechanism)
    assert most.max() <= 2.0
    assert people.admits(mechanism, most).all()
    more = np.minimum(most * 1.02 + 3e-3, 2.0)
    beyond = more > most
    assert not people.admits(mechanism, more)[beyond].any()


def test_spending_the_remainder_leaves_nothing():
    """Algorithm 8: clip to the allowance, and everybody ends with less than one part in 10^12 of the budget left."""
    people = individual.Filter(50, filters.Gaussian(mu=1.0))
    rng = np.random.default_rng(4)
    for _ in range(60):
        norms = np.minimum(rng.uniform(0, 2, 50), people.allowance(STEP))
        assert people.charge(STEP, norms).all()
    assert np.all(people.left() < 1e-12)


@each_budget
def test_table_costs_are_never_below_the_curve(make):
    """For tabulated mechanisms, a person's charge is at least the exact cost at their norm and at most 3 % above."""
    mechanism = m.Laplace(3.0, 2.0)
    if isinstance(make(), filters.Gaussian):
        pytest.skip("only Gaussian mechanisms have a Gaussian cost")
    norms = np.random.default_rng(5).uniform(0.02, 2.0, 100)
    people = individual.Filter(100, make())
    active = people.charge(mechanism, norms)
    spent = people.state()["spent"] / 1e15
    budget = make()
    for norm, row in zip(norms[active], spent[active], strict=True):
        if isinstance(budget, filters.Zcdp):
            truth = (norm / 3.0) ** 2 / 2
        else:
            orders = [budget.alpha] if isinstance(budget, filters.RenyiOrder) else list(budget.orders)
            truth = renyi.values(m.Laplace(3.0, float(norm)), orders)
        assert np.all(row >= truth * (1 - 1e-11))
        assert np.all(row <= truth * 1.03 + 2e-15)


@pytest.mark.slow
def test_whole_curve_accounts_admit_what_the_plain_filter_admits():
    """With several orders the quick test and the mixture give the plain filter's verdict, step by step."""
    people, plain = individual.Filter(1, filters.Renyi(epsilon=1.0, delta=1e-5)), filters.Renyi(epsilon=1.0, delta=1e-5)
    step = m.SampledGaussian(2.0, 1.0, 0.05)
    while plain.admits(step):
        plain.charge(step)
        assert people.charge(step, np.array([1.0]))[0]
    assert not people.charge(step, np.array([1.0]))[0]


def test_mechanisms_without_a_sensitivity_charge_those_who_take_part():
    """Pure and zCDP mechanisms cost everybody who takes part the same; norms are then bool."""
    people = individual.Filter(3, filters.Zcdp(rho=0.1))
    taking_part = np.array([True, False, True])
    for _ in range(20):
        assert people.charge(m.Pure(0.1), taking_part).all()
    assert people.charge(m.Pure(0.1), taking_part).tolist() == [False, True, False]
    assert people.spent().tolist() == [0.1, 0.0, 0.1]
    with pytest.raises(ArgumentError, match="bool"):
        people.charge(m.Pure(0.1), np.ones(3))
    with pytest.raises(Unsupported):
        people.allowance(m.Pure(0.1))


def test_people_are_addressed_by_row_or_by_id_and_may_join():
    """Ids and rows reach the right accounts; who joins has the full budget; nobody gets a second account."""
    people = individual.Filter(["ann", "bob"], filters.Gaussian(mu=1.0))
    people.charge(STEP, np.array([2.0, 1.0]), ["bob", "ann"])
    people.join(["cy"])
    assert np.argsort(people.spent()).tolist() == [2, 0, 1]
    assert people.spent(["bob"])[0] == people.spent()[1]
    for bad in (["ann"], ["dee", "dee"]):
        with pytest.raises(ArgumentError, match="new and different"):
            people.join(bad)
    rows = individual.Filter(2, filters.Gaussian(mu=1.0))
    rows.join(3)
    assert rows.charge(STEP, np.array([1.0, 1.0]), [4, 0]).all()
    assert np.flatnonzero(rows.spent()).tolist() == [0, 4]
    for accounts, joining in ((people, 2), (rows, ["x"])):
        with pytest.raises(ArgumentError):
            accounts.join(joining)


def test_bad_input_changes_nothing_and_shows_nothing():
    """Wrong shapes and types, unknown and repeated people: a clear error, no private value in it, state unchanged."""
    people = individual.Filter(3, filters.Gaussian(mu=1.0))
    secret = 0.123456789
    people.charge(STEP, np.full(3, secret))
    before = people.state()["spent"]
    for error, attempt in (
        (ArgumentError, lambda: people.charge(STEP, np.full(2, secret))),
        (ArgumentError, lambda: people.charge(STEP, np.full((3, 1), secret))),
        (ArgumentError, lambda: people.charge(STEP, np.array(["a", "b", "c"]))),
        (ArgumentError, lambda: people.charge(STEP, np.ma.array([secret] * 3, mask=[0, 1, 0]))),
        (ArgumentError, lambda: people.charge(3.0, np.full(3, secret))),
        (ArgumentError, lambda: people.charge(STEP, np.array([True, True, True]))),
        (ArgumentError, lambda: people.charge(STEP, np.full(2, secret), [1, 1])),
        (ArgumentError, lambda: people.charge(STEP, np.full(2, secret), [0.0, 1.0])),
        (UnknownPerson, lambda: people.charge(STEP, np.full(2, secret), [1, 3])),
        (UnknownPerson, lambda: people.charge(STEP, np.full(1, secret), [-1])),
        (Unsupported, lambda: people.charge(m.Pure(0.1), np.full(3, True))),
        (Unsupported, lambda: people.charge(m.Composed((STEP,)), np.full(3, secret))),
    ):
        with pytest.raises(error) as caught:
            attempt()
        assert "123456" not in str(caught.value)
    assert np.array_equal(people.state()["spent"], before)
    assert "3" not in repr(people).replace("individual.Filter(budget=Gaussian(mu=1.0))", "")


def test_impossible_accounts_are_refused():
    """Budgets that were charged before, that have no account per person, or that int64 cannot hold."""
    used = filters.Zcdp(rho=1.0)
    used.charge(m.Zcdp(0.1))
    for error, people, budget in (
        (ArgumentError, 3, used),
        (Unsupported, 3, filters.Basic(epsilon=1.0, delta=1e-6)),
        (Unsupported, 3, "Gaussian"),
        (ArgumentError, 3, filters.Zcdp(rho=9300.0)),
        (ArgumentError, -1, filters.Zcdp(rho=1.0)),
        (ArgumentError, 2.5, filters.Zcdp(rho=1.0)),
        (ArgumentError, ["a", "a"], filters.Zcdp(rho=1.0)),
        (ArgumentError, "ab", filters.Zcdp(rho=1.0)),
        (ArgumentError, [["a"], ["b"]], filters.Zcdp(rho=1.0)),
    ):
        with pytest.raises(error):
            individual.Filter(people, budget)


@each_budget
def test_accounts_are_saved_exactly_and_never_copied(make):
    """state and from_state keep every unit and id; copy and pickle refuse."""
    people = individual.Filter(["a", "b", "c"], make())
    people.charge(STEP, np.array([0.5, 1.5, 2.0]))
    again = individual.Filter.from_state(people.state())
    for accounts in (people, again):
        accounts.charge(STEP, np.array([1.0, 0.25]), ["c", "a"])
    assert np.array_equal(people.state()["spent"], again.state()["spent"])
    assert again.state()["ids"] == ["a", "b", "c"]
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(CopyRefused):
            attempt(people)
    with pytest.raises(ArgumentError):
        individual.Filter.from_state(people.state() | {"spent": people.state()["spent"] - 10**17})
    with pytest.raises(ArgumentError, match="fit the budget"):  # the next charge would come round at 2^63
        individual.Filter.from_state(people.state() | {"spent": np.full_like(people.state()["spent"], 2**63 - 1)})
    for _ in range(40):
        people.write_off(STEP)  # until nothing is left
    assert np.array_equal(individual.Filter.from_state(people.state()).state()["spent"], people.state()["spent"])


def test_answers_come_in_the_library_of_the_question():
    """NumPy accounts asked with PyTorch norms answer with a PyTorch mask, and the other way round."""
    for xp in (np, torch):
        people = individual.Filter(2, filters.Gaussian(mu=1.0), xp=xp)
        for norms in as_libraries([1.0, 3.0]):
            active = people.charge(STEP, norms)
            assert type(active) is type(norms)
            assert np.asarray(active).tolist() == [True, False]
        assert isinstance(people.charge(STEP, [1.0, 3.0]), np.ndarray if xp is np else torch.Tensor)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_every_number_type_is_read_exactly(dtype):
    """Half precision, whole numbers, with or without a gradient: charged as the float64 they stand for."""
    norms = torch.tensor([0.0, 1.0, 2.0], dtype=dtype, requires_grad=dtype.is_floating_point)
    expected = individual.Filter(3, filters.Gaussian(mu=1.0))
    expected.charge(STEP, np.array([0.0, 1.0, 2.0]))
    for xp in (np, torch):
        people = individual.Filter(3, filters.Gaussian(mu=1.0), xp=xp)
        people.charge(STEP, norms)
        assert np.array_equal(people.state()["spent"], expected.state()["spent"])


def test_a_charge_allocates_little():
    """Charging many people allocates less than one extra array of their number of int64s."""
    import tracemalloc

    count = 2**20
    people = individual.Filter(count, filters.Gaussian(mu=1.0))
    norms = np.random.default_rng(0).random(count)
    people.charge(STEP, norms)
    tracemalloc.start()
    people.charge(STEP, norms)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * count


@pytest.mark.parametrize("people", [{"ann", "bob"}, {"ann": 1, "bob": 2}, "ab", ["ann", nan], np.eye(2), [[1], [2]]])
def test_ids_are_a_list_whose_order_stays(people):
    """Sets, mappings, text, tables and NaN name nobody: contributions come in the order of the ids."""
    with pytest.raises(ArgumentError, match="people must be"):
        individual.Filter(people, filters.Gaussian(mu=1.0))


def test_tensors_of_ids_are_numbers():
    """To Python two tensors of one number differ; here they are one person, who has one account."""
    with pytest.raises(ArgumentError, match="different"):
        individual.Filter(torch.tensor([7, 7]), filters.Gaussian(mu=1.0))
    with pytest.raises(ArgumentError, match="different"):
        individual.Filter(list(torch.tensor([7, 7])), filters.Gaussian(mu=1.0))
    people = individual.Filter(list(torch.tensor([7, 9])), filters.Gaussian(mu=1.0))
    with pytest.raises(ArgumentError, match="new"):
        people.join(list(torch.tensor([9])))
    assert people.charge(STEP, np.array([0.1]), people=list(torch.tensor([9]))).tolist() == [True]
    people = individual.Filter(torch.tensor([7, 9]), filters.Gaussian(mu=1.0))
    assert people.charge(STEP, np.array([1.0]), people=torch.tensor([9])).tolist() == [True]
    assert people.charge(STEP, np.array([1.0]), people=[7]).tolist() == [True]
    assert individual.Filter({7: "x"}.keys(), filters.Gaussian(mu=1.0)).spent([7]).tolist() == [0.0]


@pytest.mark.parametrize("state", [None, {}, [1, 2], {"budget": None, "ids": None, "spent": []}])
@pytest.mark.parametrize(
    "kind", [individual.Filter, individual.Odometer, individual.Losses, filters.Gaussian, odometers.Renyi]
)
def test_what_no_account_saved_is_refused(kind, state):
    """A state of another kind, or none: the error says what is missing."""
    with pytest.raises(ArgumentError, match="must be what state"):
        kind.from_state(state)


def test_a_budget_is_a_filter():
    """An odometer, a number or a kind of filter in place of a budget: the error names what a budget may be."""
    for budget in (odometers.Renyi(delta=1e-5), 1.0, filters.Gaussian):
        with pytest.raises(Unsupported, match=r"accounts need a filters\.Basic, Gaussian, Zcdp"):
            individual.Filter(3, budget)
    with pytest.raises(ArgumentError, match=r"budget=1\.0 must be a filter"):
        calibrate.sigma(1.0, 10)


@pytest.mark.parametrize("kind", ["zcdp", "gaussian", "curve"])
@pytest.mark.parametrize("noise", [1.0, 1e59])
def test_no_contribution_is_free(kind, noise):
    """However small it is beside the sensitivity, a contribution above 0 costs at least one unit; 0 costs nothing."""
    budget = {
        "zcdp": lambda: filters.Zcdp(rho=1.0),
        "gaussian": lambda: filters.Gaussian(mu=1.0),
        "curve": lambda: filters.RenyiCurve(orders=[2.0, 8.0], values=[1.0, 4.0]),
    }[kind]()
    people = individual.Filter(4, budget)
    norms = np.array([1e-110, 5e-324, 0.0, 1e-20 * noise])
    assert people.charge(m.Gaussian(noise * 10, noise), norms).all()
    spent = people.state()["spent"]
    assert (spent[[0, 1, 3]] >= 1).all()
    assert (spent[2] == 0).all()


def test_the_least_sensitivity_has_a_table_of_costs():
    """Norms of the table stay within what mechanisms allow; the contribution is charged as any other."""
    people = individual.Filter(2, filters.Renyi(epsilon=1.0, delta=1e-5))
    assert people.charge(m.Laplace(1e-58, 1e-60), np.array([1e-60, 1e-61])).all()
    assert np.all(people.spent()[0] > 0)


def test_a_state_without_its_parameters_is_refused():
    """In words, not with a TypeError."""
    state = filters.Renyi(epsilon=1.0, delta=1e-5).state()
    for parameters in ({}, {**state["parameters"], "colour": 1}):
        with pytest.raises(ArgumentError, match="parameters"):
            filters.Renyi.from_state({**state, "parameters": parameters})


def test_people_are_addressed_by_row_in_every_array_library():
    """Charging, asking and reading some people by row or id is the same in the strict standard as in NumPy."""
    step, rows = m.Gaussian(10.0), [3, 0]
    for budget in (filters.Gaussian(mu=0.2), filters.Renyi(epsilon=0.5, delta=1e-5)):
        filter_of = {xp: individual.Filter(4, budget, xp=xp) for xp in (np, array_api_strict)}
        outcomes = []
        for xp, people in filter_of.items():
            active = people.charge(step, xp.asarray([0.5, 2.0]), people=rows)  # the second is above the promise
            people.charge(step, xp.asarray([1.0, 1.0, 0.2]), people=[1, 2, 3])
            people.write_off(m.Gaussian(7.0))
            admitted = people.admits(step, xp.asarray([0.1]), people=[2])
            parts = (active, admitted, people.allowance(step, people=rows), people.left(people=rows))
            outcomes.append([*(np.asarray(part).tolist() for part in parts), people.state()["spent"].tolist()])
        assert outcomes[0] == outcomes[1]
        assert outcomes[0][0] == [True, False]


@pytest.mark.parametrize(
    "budget",
    [
        filters.Gaussian(epsilon=1.0, delta=1e-5),
        filters.Zcdp(epsilon=1.0, delta=1e-5),
        filters.Residue(epsilon=1.0, delta=1e-5),
    ],
    ids=lambda budget: type(budget).__name__,
)
def test_a_statement_says_how_much_of_a_persons_own_budget_is_used(budget):
    """The share is what was spent of spent and left, also of a part of the budget; the promise is the person's own."""
    people = individual.Filter(["ann", "bob", "eve"], budget, shares=[1.0, 0.25, 1.0])
    people.charge(m.Gaussian(20.0), np.array([1.0, 0.5, 0.0]))
    ann, bob, eve = (people.statement(name) for name in ("ann", "bob", "eve"))
    assert eve.used == 0.0 < ann.used < 1.0
    assert bob.used == pytest.approx(ann.used, rel=1e-3)  # a quarter of the cost of a quarter of the budget
    assert ann.epsilon == eve.epsilon == pytest.approx(1.0, rel=1e-6)
    assert bob.epsilon == people.epsilon(["bob"])[0] < ann.epsilon
    assert np.array_equal(people.used(), [ann.used, bob.used, eve.used])
    assert "ann" in str(ann)
    assert "ann" not in repr(ann)


def test_a_statement_needs_a_delta_and_a_person():
    """A budget without a delta has no epsilon by itself; strangers have no account."""
    people = individual.Filter(2, filters.Gaussian(mu=0.5))
    with pytest.raises(ArgumentError, match="delta"):
        people.statement(0)
    assert people.statement(1, delta=1e-6).delta == 1e-6
    with pytest.raises(UnknownPerson):
        people.statement(2, delta=1e-6)


def test_a_statement_about_a_budget_at_several_orders():
    """One order within its budget is enough: the share is that of the order with the most left."""
    people = individual.Filter(2, filters.Renyi(epsilon=1.0, delta=1e-5))
    people.charge(m.Gaussian(20.0), np.array([1.0, 0.0]))
    spent, most = people.spent()[0], people.spent()[0] + people.left()[0]
    assert people.statement(0).used == np.min(spent[most > 0] / most[most > 0])
    assert people.statement(1).used == 0.0
    assert people.statement(0).epsilon == 1.0


def test_the_best_guess_of_a_budget_is_never_above_what_is_said():
    """Against the exact best guess of the whole Gaussian budget, for whole budgets and for parts of it."""
    shares = np.asarray([1.0, 0.5, 0.05])
    for mu in (0.05, 1.0, 6.0):
        people = individual.Filter(3, filters.Gaussian(mu=mu), shares=shares)
        exact = [meaning.of(gaussian.Gaussian(mu * share**0.5)).guess() for share in shares]
        assert np.all(people.guess() >= exact)
        assert people.guess() == pytest.approx(exact, abs=5e-3)
        assert people.guess([1]) == pytest.approx(people.guess()[1:2], rel=1e-12)
    assert meaning.largest_advantage([np.nan, -1.0, np.inf, 0.0], [0.0, 0.0, 0.0, 0.25]).tolist() == pytest.approx(
        [1, 1, 1, 0.25]
    )


def test_a_series_with_labels_is_refused_and_not_charged_by_place():
    """Sums by person come sorted from pandas, and accounts stand in another order: nobody pays for another."""
    people = individual.Filter(["bob", "ann"], filters.Zcdp(rho=1.0))
    sums = pd.DataFrame({"who": ["bob", "ann"], "paid": [9.0, 1.0]}).groupby("who").paid.sum()
    step = m.Gaussian(sigma=100.0, sensitivity=10.0)
    with pytest.raises(ArgumentError, match=r"labels: give series\.loc\[ids\]\.to_numpy\(\)"):
        people.charge(step, sums)
    with pytest.raises(ArgumentError, match="labels"):
        people.charge(m.Zcdp(rho=0.01), sums > 1.0)
    assert not people.spent().any()
    people.charge(step, sums.loc[["bob", "ann"]].to_numpy())
    people.charge(step, sums.reset_index(drop=True))  # no labels: in the accounts' order, as an array
    assert people.spent()[0] == people.spent()[1] == pytest.approx(82.0 / (2 * 100.0**2))


LABELLED = pd.Series([0.9, 0.1], index=["bob", "ann"])
BY_PLACE = {
    "a filter": lambda: individual.Filter(2, filters.Zcdp(rho=1.0)).charge(m.Gaussian(9.0), LABELLED),
    "shares": lambda: individual.Filter(2, filters.Zcdp(rho=1.0), shares=LABELLED),
    "shares of who joins": lambda: individual.Filter(1, filters.Zcdp(rho=1.0), shares=[1.0]).join(2, shares=LABELLED),
    "shares by epsilons": lambda: individual.shares(LABELLED, filters.Gaussian(epsilon=1.0, delta=1e-5)),
    "an odometer": lambda: individual.Odometer(2, odometers.Gaussian(delta=1e-5)).charge(m.Gaussian(9.0), LABELLED),
    "losses": lambda: individual.Losses(2, least=5.0, most=100).record(m.Gaussian(9.0), LABELLED),
}


@pytest.mark.parametrize("form", BY_PLACE.values(), ids=BY_PLACE)
def test_labels_are_refused_in_every_form(form):
    """Whatever is in the order of the accounts has no other order of its own."""
    with pytest.raises(ArgumentError, match="must not be a Series with labels"):
        form()


def test_a_budget_that_was_handed_over_opens_no_accounts():
    """Training took all of it: a second use would spend it twice."""
    budget = filters.Gaussian(mu=1.0)
    budget.hand_over("Trainer.fit")
    with pytest.raises(BudgetExceeded, match=r"Trainer\.fit"):
        individual.Filter(2, budget)


def test_accounts_of_one_charge_pay_no_less_than_it_costs():
    """The part that rounding takes from the limit is there once: a ledger opens such accounts for every charge."""
    budget, (most,) = filters.Zcdp(rho=1.234567890123456), filters.Zcdp(rho=1.234567890123456).notion.person_limits()
    assert budget.notion.person_spare() > 0
    for rounds in range(2, 200):
        step = m.Gaussian(sigma=float(np.sqrt(rounds / 2 / 1.234567890123456)))
        accounts = individual.Filter.with_left(budget, np.array([most]))
        accounts.charge(step, np.ones(1))
        assert int(accounts.charged_units()[0]) * 10**15 >= budget.notion.price(step)[0]


@needs_fork
def test_accounts_of_a_forked_process_charge_nobody():
    """Parent and child would each spend everybody's whole budget; accounts that the child makes are its own."""
    norms = np.full(2, 0.1)
    people, bounds = individual.Filter(2, filters.Zcdp(rho=1.0)), individual.Odometer(2, odometers.Renyi(delta=1e-5))
    for charge in (lambda: people.charge(STEP, norms), lambda: bounds.charge(STEP, norms)):
        assert raises_in_fork(ArgumentError, charge)
        charge()
    state = people.state()
    assert not raises_in_fork(ArgumentError, lambda: individual.Filter.from_state(state).charge(STEP, norms))

"""Each person a budget of their own: never more than that budget, in exact units, and through every door."""

import math

import numpy as np
import pytest
import torch

from almoner import filters, individual, training
from almoner import mechanisms as m
from almoner.errors import ArgumentError, Unsupported
from almoner.training import stopping

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
STEP = m.Gaussian(sigma=40.0)
PLAN = m.SampledGaussian(1.0, 1.0, 0.01)
BUDGETS = {
    "Gaussian": lambda: filters.Gaussian(**BUDGET),
    "Zcdp": lambda: filters.Zcdp(**BUDGET),
    "RenyiOrder": lambda: filters.RenyiOrder(alpha=12.0, **BUDGET),
    "Residue": lambda: filters.Residue(**BUDGET),
    "Planned": lambda: filters.Planned(PLAN, **BUDGET),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BUDGETS)
def test_a_person_gets_the_share_and_not_more(name):
    """Steps until nothing fits: in proportion to the share, at most one more than it; a share of one is everything."""
    step = PLAN if name == "Planned" else STEP
    shares = np.array([1.0, 0.5, 0.13])
    people = individual.Filter(3, BUDGETS[name](), shares=shares)
    whole = individual.Filter(3, BUDGETS[name]())
    counts = np.zeros(3)
    for _ in range(400):
        active = people.charge(step, np.ones(3))
        assert not (active & ~whole.charge(step, np.ones(3))).any()
        counts += active
        if not active.any():
            break
    assert counts[0] > 20
    assert np.all(counts <= shares * counts[0] + 1)
    assert np.all(counts >= shares * counts[0] - 2)
    assert np.all(people.spent() + people.left() <= shares * (whole.spent() + whole.left()) * (1 + 1e-12))


@pytest.mark.parametrize("name", BUDGETS)
def test_each_persons_epsilon_is_that_of_the_own_budget(name):
    """It grows with the share, is the budget's own for a share of one, and is above the truth of what is spent."""
    people = individual.Filter(3, BUDGETS[name](), shares=[1.0, 0.5, 0.1])
    own = people.epsilon()
    assert own[0] == 1.0
    assert own[2] < own[1] < 1.0
    assert people.epsilon([2, 0]).tolist() == [own[2], own[0]]
    assert individual.Filter(2, BUDGETS[name]()).epsilon().tolist() == [1.0, 1.0]
    if name == "Gaussian":
        mu = math.sqrt(0.5 * filters.Gaussian(**BUDGET).left)
        assert filters.Gaussian(mu=mu).epsilon(delta=1e-5) == pytest.approx(own[1], rel=1e-9)


@pytest.mark.parametrize("name", ["Gaussian", "Zcdp", "Residue", "Planned"])
def test_epsilons_become_shares_that_promise_them(name):
    """The promise of each share is at most the epsilon asked for, and within two per cent of it."""
    asked = np.array([0.4, 1.0, 0.7, 0.4])
    shares = individual.shares(asked, BUDGETS[name]())
    own = individual.Filter(4, BUDGETS[name](), shares=shares).epsilon()
    assert np.all(own <= asked)
    assert np.all(own >= 0.98 * asked)
    assert shares[1] == 1.0


@pytest.mark.slow
def test_many_different_epsilons_are_rounded_down():
    """Of three thousand different ones each promise is below what was asked for, by at most one per cent."""
    asked = np.linspace(0.5, 1.0, 3000)
    shares = individual.shares(asked, filters.Gaussian(**BUDGET))
    own = individual.Filter(3000, filters.Gaussian(**BUDGET), shares=shares).epsilon()
    assert np.all((own <= asked) & (own >= 0.99 * asked))


def test_bad_shares_are_refused_without_telling_them():
    """NaN, 0, negative, above one, of a wrong length, bools; a message holds no share, and nothing is opened."""
    for bad in (
        [0.5, math.nan],
        [0.5, 0.0],
        [0.5, -0.25],
        [0.5, 1.0625],
        [0.5],
        [[0.5], [0.5]],
        [True, True],
        ["a", "b"],
    ):
        with pytest.raises(ArgumentError, match="shares") as refused:
            individual.Filter(2, filters.Gaussian(**BUDGET), shares=bad)
        for value in ("0.5", "0.25", "1.0625", "nan"):
            assert value not in str(refused.value)
    with pytest.raises(Unsupported, match="shares"):
        individual.Filter(2, filters.Renyi(**BUDGET), shares=[0.5, 0.5])
    for bad in ([0.5, math.nan], [0.0], [1.5], [[0.5]]):
        with pytest.raises(ArgumentError, match="epsilons"):
            individual.shares(bad, filters.Gaussian(**BUDGET))
    with pytest.raises(ArgumentError, match="too small"):
        individual.shares([0.1], filters.RenyiOrder(alpha=12.0, **BUDGET))


@pytest.mark.slow
@pytest.mark.parametrize("name", BUDGETS)
def test_states_keep_the_shares(name):
    """Restored accounts are the same to the last unit; totals below the opening, or without the shares, are refused."""
    step = PLAN if name == "Planned" else STEP
    people = individual.Filter(3, BUDGETS[name](), shares=[1.0, 0.5, 0.1])
    people.charge(step, np.array([1.0, 0.5, 1.0]))
    again = individual.Filter.from_state(people.state())
    assert np.array_equal(again.state()["spent"], people.state()["spent"])
    assert again.epsilon().tolist() == people.epsilon().tolist()
    assert again.spent().tolist() == people.spent().tolist()
    with pytest.raises(ArgumentError, match="spent"):
        individual.Filter.from_state({**people.state(), "spent": np.zeros_like(people.state()["spent"])})


def test_people_who_join_bring_a_share():
    """With shares it must be given, without it must not; ids and rows; an account is opened only if all is right."""
    people = individual.Filter(["a", "b"], filters.Gaussian(**BUDGET), shares=[1.0, 0.5])
    people.join(["c"], shares=[0.25])
    assert people.left().tolist()[2] == pytest.approx(people.left().tolist()[0] / 4)
    for more in ({}, {"shares": [0.5, 0.5]}, {"shares": [2.0]}):
        with pytest.raises(ArgumentError, match="shares"):
            people.join(["d"], **more)
    assert people.epsilon().shape == (3,)
    with pytest.raises(ArgumentError, match="shares"):
        individual.Filter(1, filters.Gaussian(**BUDGET)).join(1, shares=[0.5])


def test_allowances_refunds_and_steps_written_off_keep_to_the_share():
    """The allowance spends the remainder of the own budget; a refund gives back no more than was booked."""
    people = individual.Filter(2, filters.Gaussian(**BUDGET), shares=[1.0, 0.01])
    step = m.Gaussian(sigma=10.0)
    most = people.allowance(step)
    assert most[0] == 1.0
    assert most[1] == pytest.approx(10 * math.sqrt(0.01 * filters.Gaussian(**BUDGET).left), rel=1e-6)
    assert people.charge(step, most).all()
    assert people.left()[1] < 1e-12
    before = people.spent()
    assert people.charge(step, np.array([1.0, 0.0])).all()
    people.refund(step, np.array([True, False]))
    assert people.spent().tolist() == before.tolist()
    people.write_off(step)
    assert people.left()[1] == 0


def test_torch_accounts_have_shares_too():
    """The same units as NumPy's."""
    shares = [1.0, 0.3, 0.77]
    one = individual.Filter(3, filters.Zcdp(**BUDGET), shares=shares)
    other = individual.Filter(3, filters.Zcdp(**BUDGET), shares=torch.tensor(shares, dtype=torch.float64), xp=torch)
    one.charge(STEP, np.ones(3))
    other.charge(STEP, torch.ones(3, dtype=torch.float64))
    assert np.array_equal(one.state()["spent"], other.state()["spent"])
    assert one.spent().tolist() == other.spent().tolist()


def test_training_takes_shares():
    """Trainer.fit and LogisticRegression.fit: nobody's own share is exceeded; wrong places are refused."""
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    shares = np.linspace(0.05, 1.0, 60)

    def trainer(**options):
        module = torch.nn.Linear(2, 2)
        return training.Trainer(
            module,
            torch.nn.CrossEntropyLoss(reduction="none"),
            torch.optim.SGD(module.parameters(), lr=0.1),
            options.pop("budget", filters.Gaussian(**BUDGET)),
            max_grad_norm=1.0,
            divisor=60,
            steps=5,
            noise_multiplier=20.0,
            seed=0,
            **options,
        )

    trainer().fit(x, y, shares=shares)
    people = individual.Filter(60, filters.Gaussian(**BUDGET), shares=shares)
    trainer(budget=people).fit(x, y)
    assert np.all(people.left() >= 0)
    with pytest.raises(ArgumentError, match="shares"):
        trainer(budget=people).fit(x, y, shares=shares)
    model = training.LogisticRegression(**BUDGET, classes=[0, 1], n_people=60, steps=5, seed=0)
    used = model.fit(x.numpy(), y.numpy(), shares=shares).holder_report_.shares
    assert np.all((used >= 0) & (used <= 1))
    with pytest.raises(ArgumentError, match="shares"):
        training.LogisticRegression(**BUDGET, classes=[0, 1], n_people=60, individual=False).fit(
            x.numpy(), y.numpy(), shares=shares
        )


@pytest.mark.slow
def test_counting_dropouts_needs_prices_that_can_be_given_back():
    """A planned budget is refused before anything is booked."""
    people = individual.Filter(10, filters.Planned(PLAN, **BUDGET))
    with pytest.raises(Unsupported, match="given back"):
        stopping.Dropouts(people, stopping.SquareRoot(steps=5, sigma=50.0))
    assert not people.spent().any()


def test_a_share_of_a_curve_is_that_share_at_every_order():
    """Half of the budget at each order admits half as many rounds, whichever order binds."""
    budget = filters.RenyiCurve(orders=[2, 8], values=[2.0, 8.0])
    for sigma in (5.1, 4.1):
        people, step = individual.Filter(3, budget, shares=[1.0, 0.5, 0.1]), m.Gaussian(sigma)
        rounds = np.zeros(3, int)
        while (active := people.charge(step, np.ones(3))).any():
            rounds += active
        assert rounds.tolist() == [int(share * 2 * sigma**2) for share in (1.0, 0.5, 0.1)]
        assert np.all(people.used() <= 1.0)

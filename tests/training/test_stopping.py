"""Accounts that count dropouts with noise, and the sparse vector technique: who pays, who is counted, who stops."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from almoner import errors, filters, individual, mechanisms
from almoner.training import descend
from almoner.training._linear.descent import LogisticGradients
from almoner.training.stopping import Dropouts, SquareRoot, StillActive, Tree
from drop_counts import COUNTERS, STEP, Silent, both, budget
from forks import needs_fork, raises_in_fork
from written import written


@given(
    kind=st.sampled_from(COUNTERS),
    steps=st.integers(1, 9),
    data=st.data(),
    sigma=st.floats(0.5, 20),
    noise=st.floats(0.5, 50),
    mu=st.floats(0.2, 3),
)
def test_nobody_overspends(kind, steps, data, sigma, noise, mu):
    """Contributions and counts of everybody, added up in exact arithmetic, keep within the budget on every path."""
    people, step = individual.Filter(3, budget(mu)), mechanisms.Gaussian(sigma=sigma, sensitivity=1.0)
    counter = kind(steps, noise)
    try:
        accounts = Dropouts(people, counter, noise=Silent())
    except errors.ArgumentError:
        assert Fraction(counter.mechanism.sensitivity) ** 2 / Fraction(noise) ** 2 > Fraction(mu) ** 2 * (1 - 10**-9)
        return
    spent = [Fraction(counter.mechanism.sensitivity) ** 2 / Fraction(noise) ** 2] * 3
    for _ in range(steps):
        norms = np.array(data.draw(st.lists(st.floats(0, 1), min_size=3, max_size=3)))
        if data.draw(st.booleans()):
            norms = np.minimum(norms, accounts.allowance(step))
        for person in np.flatnonzero(accounts.charge(step, norms)):
            spent[person] += Fraction(float(norms[person])) ** 2 / Fraction(sigma) ** 2
    assert max(spent) <= written(mu) ** 2


def naive(norms, sigma, most):
    """Who takes part in each step and when each drops, by a plain loop: refused, or under 1 % of the clip left."""
    n = len(norms[0])
    left, inside, active, dropped = np.full(n, most), np.ones(n, bool), [], []
    for row in norms:
        short = left < 1e-4 / sigma**2 * (1 - 1e-9)
        cost = row**2 / sigma**2
        takes = inside & ~short & (cost <= left)
        left = left - np.where(takes, cost, 0)
        active.append(takes)
        dropped.append(inside & ~takes & ~np.isnan(row))
        inside &= takes | np.isnan(row)
    return np.array(active), np.cumsum(np.sum(dropped, axis=1))


@both
def test_drops_are_counted_once_and_exactly_without_noise(kind):
    """Against a plain loop over people; those who dropped stay out, NaN is out of one step only."""
    rng = np.random.default_rng(5)
    norms = rng.uniform(0, 1, (30, 40)) * rng.uniform(0, 1, 40)
    norms[3, :5] = np.nan
    people = individual.Filter(40, budget(0.25))
    accounts = Dropouts(people, kind(30, 20.0), noise=Silent())
    price = accounts.price.sensitivity**2 / 400
    expected, drops = naive(norms, STEP.sigma, 0.0625 - price)
    for row, active, count in zip(norms, expected, drops, strict=True):
        np.testing.assert_array_equal(accounts.charge(STEP, row), active)
        assert accounts.count == count
    assert 0 < drops[-1] < 40
    assert drops[0] == 0


def test_processes_count_together_and_only_about_the_same_question():
    """Two processes with the same people count each drop twice; counters that differ are refused in all of them."""
    accounts = Dropouts(individual.Filter(40, budget(0.25)), Tree(8, 20.0), noise=Silent())
    accounts.among(lambda value: [value, value])
    active = accounts.charge(STEP, np.ones(40))
    while active.all():
        active = accounts.charge(STEP, np.ones(40))
    assert accounts.count == 80
    with pytest.raises(errors.ArgumentError, match="do not ask the same question"):
        accounts.among(lambda value: [value, "Tree(steps=9, sigma=20.0)"])
    still = StillActive(individual.Filter(40, filters.Zcdp(rho=1.0)), at_least=60, epsilon=0.1, noise=Silent())
    still.among(lambda value: [value, value])
    still.charge(STEP, np.ones(40))
    assert still.still


def test_whoever_spent_the_remainder_has_dropped_out():
    """With contributions clipped to the allowance nobody is refused, but who has nothing left is counted."""
    accounts = Dropouts(individual.Filter(2, budget(0.5)), Tree(40, 10.0), noise=Silent())
    counts = []
    for _ in range(40):
        accounts.charge(STEP, np.minimum([1.0, 0.01], accounts.allowance(STEP)))
        counts.append(accounts.count)
    affordable = int((0.25 - 6 / 100) * 100)  # whole clips after the reserve of six nodes
    assert counts.index(1) in (affordable, affordable + 1)
    assert counts[-1] == 1
    assert accounts.allowance(STEP)[0] == 0
    assert accounts.allowance(STEP)[1] == 1


def test_when_somebody_drops_depends_on_nobody_else():
    """The same person among others who spend much, little or nothing takes part in the same steps."""
    mine, seen = np.linspace(1, 0.2, 25), []
    for others in (0.0, 0.3, 1.0):
        accounts = Dropouts(individual.Filter(6, budget(0.3)), SquareRoot(25, 30.0), noise=np.random.default_rng(1))
        rows = [accounts.charge(STEP, np.array([norm] + [others] * 5))[0] for norm in mine]
        seen.append(rows)
    assert seen[0] == seen[1] == seen[2]
    assert {True, False} == {bool(each) for each in seen[0]}


@pytest.mark.parametrize(
    "make",
    [
        lambda: filters.Zcdp(epsilon=1.0, delta=1e-5),
        lambda: filters.Renyi(epsilon=1.0, delta=1e-5),
        lambda: filters.RenyiOrder(alpha=16, rho=0.2),
    ],
)
def test_other_budgets_work_too_and_closing_gives_back_to_the_last_unit(make):
    """Whoever never dropped has paid nothing for the counts after close; whoever dropped has paid."""
    people = individual.Filter(2, make())
    accounts = Dropouts(people, Tree(4, 20.0), noise=Silent())
    step = mechanisms.Gaussian(sigma=4.0)
    for _ in range(4):
        accounts.charge(step, np.array([1.0, 0.0]))
    assert accounts.count == 1
    before = np.array(people.spent())
    assert accounts.close() is people
    assert accounts.close() is people  # once is enough
    np.testing.assert_array_equal(people.spent()[0], before[0])
    assert np.all(people.spent()[1] == 0)
    assert np.all(before[1] > 0)
    with pytest.raises(errors.ArgumentError, match="closed"):
        accounts.charge(step, np.zeros(2))


def test_other_uses_of_the_accounts_cannot_touch_what_is_booked():
    """Charging the accounts directly until nothing fits leaves the counts paid for."""
    people = individual.Filter(1, budget(1.0))
    accounts = Dropouts(people, Tree(1, 2.0), noise=Silent())
    steps = 0
    while people.charge(mechanisms.Gaussian(sigma=4.0), np.ones(1))[0]:
        steps += 1
    assert steps == (1 - 1 / 4) * 16
    accounts.charge(STEP, np.zeros(1))
    assert accounts.count == 1


def test_whoever_cannot_pay_for_the_counts_is_out_and_not_counted():
    """Accounts that were used before: no price, no part, no drop."""
    people = individual.Filter(2, budget(1.0))
    people.charge(mechanisms.Gaussian(sigma=1.01), np.array([1.0, 0.0]))
    accounts = Dropouts(people, Tree(3, 2.0), noise=Silent())
    assert accounts.charge(STEP, np.ones(2)).tolist() == [False, True]
    assert accounts.count == 0
    assert accounts.allowance(STEP).tolist() == [0.0, 1.0]


def test_refusals_say_why_and_charge_nobody():
    """Too dear a count, too many steps, steps without a sensitivity, people who join, norms of another shape."""
    people = individual.Filter(2, budget(1.0))
    with pytest.raises(errors.ArgumentError, match="whole budget"):
        Dropouts(people, Tree(8, 1.0))
    with pytest.raises(errors.ArgumentError, match="counter"):
        Dropouts(people, 3)
    with pytest.raises(errors.ArgumentError, match="people"):
        Dropouts(budget(), Tree(8, 1.0))
    with pytest.raises(errors.ArgumentError, match="least"):
        Dropouts(people, Tree(8, 10.0), least=0.0)
    assert np.all(people.spent() == 0)
    accounts = Dropouts(people, Tree(1, 10.0))
    before = people.spent().copy()
    with pytest.raises(errors.Unsupported, match="sensitivity"):
        accounts.charge(mechanisms.Pure(0.1), np.ones(2, bool))
    with pytest.raises(errors.ArgumentError, match="norms"):
        accounts.charge(STEP, np.ones(3))
    np.testing.assert_array_equal(people.spent(), before)
    accounts.charge(STEP, np.zeros(2))
    with pytest.raises(errors.ArgumentError, match="all 1 counts"):
        accounts.charge(STEP, np.zeros(2))
    with pytest.raises(errors.Unsupported):
        StillActive(people, at_least=1, epsilon=0.1)  # a pure mechanism is no Gaussian one
    people.join(1)
    for use in (lambda: accounts.allowance(STEP), accounts.close):
        with pytest.raises(errors.ArgumentError, match="join"):
            use()


def test_torch_accounts_agree():
    """The same steps on PyTorch accounts: the same people, the same counts."""
    torch = pytest.importorskip("torch")
    norms = np.random.default_rng(7).uniform(0, 1, (12, 50))
    one = Dropouts(individual.Filter(50, budget(0.3)), SquareRoot(12, 40.0), noise=np.random.default_rng(1))
    two = Dropouts(individual.Filter(50, budget(0.3), xp=torch), SquareRoot(12, 40.0), noise=np.random.default_rng(1))
    for row in norms:
        assert one.charge(STEP, row).tolist() == two.charge(STEP, torch.from_numpy(row)).tolist()
        assert one.count == two.count


def test_descend_takes_the_accounts_and_shows_a_count_after_each_step():
    """In place of the filter in ``descend``; nothing private is in a repr."""
    rng = np.random.default_rng(2)
    people = LogisticGradients(rng.normal(size=(200, 2)), rng.integers(0, 2, 200), 2, intercept=True)
    accounts = Dropouts(individual.Filter(200, budget(0.5)), SquareRoot(30, 20.0), noise=rng)
    counts = []
    descend(
        people,
        people.start,
        accounts,
        mechanisms.Gaussian(sigma=8.0),
        steps=30,
        learning_rate=1.0,
        divisor=200,
        noise=rng,
        observe=lambda number, parameters: counts.append(accounts.count),
    )
    assert len(set(counts)) == 30
    assert repr(accounts).startswith("training.stopping.Dropouts(price=Gaussian(")
    assert "200" not in repr(accounts)


@pytest.mark.parametrize("sample_rate", [None, 0.3])
def test_a_trainer_stops_because_of_a_noisy_count(sample_rate):
    """In front of a trainer's accounts: a callback reads the count and stops; everybody keeps within the budget."""
    torch = pytest.importorskip("torch")
    from almoner.training import FullBatch, Poisson, Trainer

    torch.manual_seed(1)
    x, y = torch.randn(300, 3), torch.randint(0, 2, (300,))
    module, most = torch.nn.Linear(3, 2), filters.RenyiOrder(alpha=8, rho=2.0)
    loss, optimizer = torch.nn.CrossEntropyLoss(reduction="none"), torch.optim.SGD(module.parameters(), 1.0)
    trainer = Trainer(
        module,
        loss,
        optimizer,
        most,
        max_grad_norm=0.3,
        divisor=300,
        steps=40,
        sampling=FullBatch(pace=0.0, extra_steps=60) if sample_rate is None else Poisson(sample_rate, extra_steps=60),
    )
    noise, seen = np.random.default_rng(4), []

    def enough(run):
        seen.append(run.counting.count)
        if run.step and run.counting.count > 100 + 2 * run.counting.standard_error:
            run.stop("many have dropped out")

    run = trainer.fit(x, y, callbacks=[enough], watch=lambda people: Dropouts(people, SquareRoot(100, 5), noise=noise))
    assert run.reason == "many have dropped out"
    assert seen[0] == 0
    assert len(seen) == run.step + 1
    assert np.all(trainer.accounts.spent() <= 2.0)
    assert np.all(trainer.accounts.spent() >= 8 * run.counting.price.sensitivity**2 / 25 / 2)


def test_still_active_stops_at_the_threshold_without_noise():
    """ "No" comes as soon as fewer are active, and stays; afterwards steps go on."""
    people = individual.Filter(10, filters.Zcdp(rho=0.4))
    accounts = StillActive(people, at_least=6, epsilon=0.5, noise=Silent())
    step, seen, active = mechanisms.Gaussian(sigma=2.0), [], []
    for _ in range(30):
        active.append(int(np.sum(accounts.charge(step, np.linspace(0.2, 1, 10)))))
        seen.append(accounts.still)
    assert seen == [count >= 6 for count in active]
    assert seen[0]
    assert not seen[-1]
    assert np.all(people.spent() <= 0.4)


def test_everybody_pays_the_whole_price_at_the_start():
    """A pure mechanism of this epsilon, from each account, before any step; and not twice."""
    people = individual.Filter(3, filters.Zcdp(rho=0.4))
    accounts = StillActive(people, at_least=1, epsilon=0.5)
    priced = filters.Zcdp(rho=0.4)
    priced.charge(mechanisms.Pure(0.5))
    np.testing.assert_array_equal(people.spent(), priced.spent)
    accounts.charge(STEP, np.zeros(3))
    np.testing.assert_array_equal(people.spent(), priced.spent)
    assert accounts.price == mechanisms.Pure(0.5)


@pytest.mark.slow
def test_the_margin_holds():
    """Over 400 runs of 20 answers, wrong ones beyond the margin come in less than a share beta of the runs."""
    noise, wrong = np.random.default_rng(11), 0
    for _ in range(400):
        accounts = StillActive(individual.Filter(60, filters.Zcdp(rho=2.0)), at_least=30, epsilon=1.0, noise=noise)
        margin = accounts.margin(steps=20, beta=0.1)
        assert margin < 30
        for _ in range(20):
            accounts.charge(STEP, np.zeros(60))
        wrong += not accounts.still
    assert wrong < 0.1 * 400


@pytest.mark.parametrize("sigma", [0.4, 0.45, 1.0, 20.0])
def test_closing_never_leaves_less_than_nothing_spent(sigma):
    """Also with many orders, at some of which the price is more than an account counts."""
    people = individual.Filter(3, filters.Renyi(epsilon=16.0, delta=1e-5))
    Dropouts(people, Tree(steps=1, sigma=sigma)).close()
    assert (people.spent() >= 0).all()
    individual.Filter.from_state(people.state())


def test_what_was_booked_comes_back_once_and_not_after_an_answer():
    """After a count is released nobody is paid back by undo, and after closing nobody a second time."""
    for counting in (
        lambda people: Dropouts(people, Tree(4, 20.0)),
        lambda people: StillActive(people, at_least=1, epsilon=0.1),
    ):
        people = individual.Filter(3, filters.Zcdp(rho=1.0))
        accounts = counting(people)
        accounts.begin_after(1)
        accounts.charge(STEP, np.ones(3))  # to the accounts directly: nothing is asked
        accounts.charge(STEP, np.ones(3))
        spent = np.array(people.spent())
        accounts.begin_after(5)
        with pytest.raises(errors.ArgumentError, match="released"):
            accounts.undo()
        assert np.array_equal(people.spent(), spent)
    people = individual.Filter(3, filters.Zcdp(rho=1.0))
    accounts = Dropouts(people, Tree(4, 20.0))
    accounts.close()
    accounts.undo()
    assert np.array_equal(people.spent(), np.zeros(3))


@needs_fork
def test_a_forked_process_may_not_count_with_the_same_noise():
    """Two processes with the same noise would show, by their difference, who dropped out."""
    doors = Dropouts(individual.Filter(3, filters.Zcdp(rho=1.0)), Tree(steps=5, sigma=20.0))
    assert raises_in_fork(errors.ArgumentError, lambda: doors.charge(mechanisms.Gaussian(sigma=10.0), np.ones(3)))
    doors.charge(mechanisms.Gaussian(sigma=10.0), np.ones(3))

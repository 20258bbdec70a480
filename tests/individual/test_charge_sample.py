"""Rounds that everybody pays and few are looked at: accounts hold what charging everybody at once would have left."""

import numpy as np
import pytest

from almoner import errors, filters, individual
from almoner import mechanisms as m
from almoner.individual._costs import FromPlan

N, STEP = 60, m.SampledGaussian(2.0, 1.0, 0.05)
LOUD = m.SampledGaussian(1.5, 1.0, 0.05)
GAUSS = m.Gaussian(6.0, 1.0)
BUDGETS = {
    "Gaussian": (lambda: filters.Gaussian(mu=1.0), GAUSS),
    "Basic": (lambda: filters.Basic(epsilon=5.0), m.Laplace(8.0)),
    "RenyiOrder": (lambda: filters.RenyiOrder(alpha=8.0, rho=0.4), STEP),
    "RenyiCurve": (lambda: filters.RenyiCurve(orders=[4, 16], values=[0.08, 0.9]), STEP),
    "Renyi": (lambda: filters.Renyi(epsilon=0.6, delta=1e-3, orders=[3, 6, 12, 24], weights=[0.25] * 4), STEP),
    "Residue": (lambda: filters.Residue(epsilon=0.7, delta=1e-3), STEP),
    "Planned": (lambda: filters.Planned(m.Repeated(STEP, 60), epsilon=1.2, delta=1e-3), STEP),
    "Planned, other steps": (lambda: filters.Planned(m.Repeated(STEP, 60), epsilon=1.2, delta=1e-3), LOUD),
}
SLOW = {"Residue": pytest.mark.slow}  # its prices take seconds
each_budget = pytest.mark.parametrize(
    ("make", "step"), [pytest.param(*each, id=name, marks=SLOW.get(name, ())) for name, each in BUDGETS.items()]
)


class Both:
    """The same operations on accounts that owe, and on the judge, which charges everybody at every step."""

    def __init__(self, budget, chance):
        self.owing, self.judge = individual.Filter(N, budget), individual.Filter(N, budget)
        self.chance, self.out = chance, 0
        self.kept = self.owing.state(), self.judge.state()
        self.assign()

    def assign(self):
        """New bounds: some are 0, the clip, or no number."""
        self.norms = np.minimum(self.chance.lognormal(-0.5, 0.7, len(self.judge.spent())), 1.0)
        self.norms[self.chance.integers(0, N, 3)] = [0.0, 1.0, np.nan]
        self.norms.flags.writeable = False

    def step(self, step):
        sample = np.flatnonzero(self.chance.random(len(self.norms)) < 0.1)
        takes_part = self.judge.charge(step, self.norms.copy())
        assert np.array_equal(self.owing.charge(step, self.norms, sample=sample), takes_part[sample])
        self.out += int(np.count_nonzero(~takes_part))

    def look(self, step):
        """Read, charge, give up, add people, or go on from what was kept before: the last of these is a kill."""
        some = self.chance.integers(0, N, 1)
        match int(self.chance.integers(0, 9)):
            case 0:
                self.same(lambda each: each.spent(some))
            case 1:
                self.same(lambda each: each.left())
            case 2:
                self.same(lambda each: each.admits(step, np.full(1, 0.7), some))
            case 3:
                self.same(lambda each: each.charge(step, np.full(1, 0.7), some))
            case 4:
                self.same(lambda each: each.allowance(step))
            case 5:
                self.same(lambda each: each.forget(some))
            case 6:
                self.same(lambda each: each.join(1))
                self.assign()
            case 7:
                self.kept = self.owing.state(), self.judge.state()
            case 8:
                self.owing, self.judge = map(individual.Filter.from_state, self.kept)
                self.assign()

    def same(self, of):
        assert np.array_equal(of(self.owing), of(self.judge))


@each_budget
@pytest.mark.parametrize("seed", [0, 1])
def test_accounts_are_exact_after_any_order_of_steps_looks_and_kills(make, step, seed):
    """To the unit; and who is looked at is out from the step on at which charging everybody leaves them out."""
    both = Both(make(), np.random.default_rng(seed))
    for _ in range(5):
        both.assign()
        for number in range(25):
            both.step(GAUSS if number == 11 and step is GAUSS else step)
            if both.chance.random() < 0.15:
                both.look(step)
    both.same(lambda each: each.state()["spent"])
    assert both.out


def pays_all_or_nothing(self, owed, rows):
    """What a Repeated of the rounds that are owed would do."""
    asked = owed.rounds - owed.paid[rows]
    done = REAL(self, owed, rows)
    lost = ~np.asarray(done) & (asked > 1)
    self._held[rows] = np.where(np.atleast_1d(lost)[:, None], BEFORE(self)[rows], self._held[rows])
    return done


def forgets_who_is_out(self, owed, rows):
    """Takes whoever was in at the start of the bounds."""
    return REAL(self, owed, rows) | True


REAL = individual.Filter._pay
BEFORE = lambda accounts: np.zeros_like(accounts._held)  # noqa: E731 - nothing was spent


@pytest.mark.parametrize("broken", [pays_all_or_nothing, forgets_who_is_out])
def test_wrong_ways_to_settle_are_found(monkeypatch, broken):
    """All rounds or none, and a person whose budget ended while nobody looked: both differ from the judge."""
    monkeypatch.setattr(individual.Filter, "_pay", broken)
    both = Both(filters.Gaussian(mu=1.0), np.random.default_rng(0))

    def compared():
        for _ in range(80):
            both.step(GAUSS)
        both.same(lambda each: each.state()["spent"])

    with pytest.raises(AssertionError):
        compared()


def test_a_round_touches_only_the_sample():
    """Nobody else's account is written, until somebody looks."""
    accounts, norms = individual.Filter(N, filters.Gaussian(mu=1.0)), np.full(N, 0.5)
    norms.flags.writeable = False
    for person in range(3):
        assert accounts.charge(GAUSS, norms, sample=np.array([person])).all()
    assert np.flatnonzero(accounts._held[:, 0]).tolist() == [0, 1, 2]
    assert np.ptp(accounts.spent()) == 0 < accounts.spent()[0]


def test_bounds_that_can_be_written_are_charged_at_once():
    """An array that may change between two steps is read at each of them."""
    accounts, norms = individual.Filter(2, filters.Gaussian(mu=1.0)), np.array([0.5, 0.5])
    for size in (0.5, 1.0):
        norms[:] = size
        accounts.charge(GAUSS, norms, sample=np.array([0]))
    assert accounts.spent() == pytest.approx([(0.25 + 1) / 36] * 2)
    with pytest.raises(errors.ArgumentError, match="one entry for each person"):
        accounts.charge(GAUSS, np.ones(3), sample=np.array([0]))


def test_a_view_of_bounds_that_can_be_written_is_charged_at_once():
    """What is read-only may show an array that is not: a bound that grows there is charged as it is now."""
    bounds = np.full(N, 0.1)
    shown = bounds.view()
    shown.flags.writeable = False
    people, judge = (individual.Filter(N, filters.Gaussian(mu=1.0)) for _ in range(2))
    for size in (0.1, 0.9):
        bounds[:] = size
        people.charge(GAUSS, shown, sample=np.arange(3))
        judge.charge(GAUSS, bounds)
    assert np.array_equal(people.spent(), judge.spent())


def test_rounds_of_a_plan_in_one_go_end_where_single_ones_do():
    """Prices by what is left, for people who can pay for some of the rounds asked."""
    accounts = individual.Filter(N, BUDGETS["Planned, other steps"][0]())
    costs, norms = accounts._costs(LOUD), np.linspace(0.2, 1.0, N)
    assert isinstance(costs, FromPlan)
    spent, asked = accounts.state()["spent"], np.arange(N) * 7
    cost, done, _ = costs.rounds(norms, spent, asked, accounts._xp)
    for number in range(int(asked.max())):
        at = np.flatnonzero(asked > number)
        accounts.charge(LOUD, norms[at], at)
    assert np.array_equal(accounts.state()["spent"], spent + cost)
    assert 0 < np.count_nonzero(done < asked) < N

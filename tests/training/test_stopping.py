"""Noisy counts of the people who dropped out, and the sparse vector technique: prices, noise, accounts, audits."""

import os
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg, special, stats

from bursar import errors, filters, individual, mechanisms
from bursar.curves import gaussian
from bursar.training import descend
from bursar.training._logistic.gradients import LogisticGradients
from bursar.training.stopping import Dropouts, SquareRoot, StillActive, Tree

COUNTERS = (Tree, SquareRoot)
both = pytest.mark.parametrize("kind", COUNTERS)
STEP = mechanisms.Gaussian(sigma=10.0, sensitivity=1.0)


def decoder_and_encoder(kind, steps):
    """(L, R) with L R = running sums, written out naively."""
    sums = np.tril(np.ones((steps, steps)))
    if kind is SquareRoot:
        c = special.binom(2 * np.arange(steps), np.arange(steps)) / 4.0 ** np.arange(steps)
        root = linalg.toeplitz(c, np.zeros(steps))
        return root, root
    left, right = np.zeros((steps, steps)), np.zeros((steps, steps))
    for t in range(1, steps + 1):
        right[t - 1, t - (t & -t) : t] = 1  # the node that ends at t
        end = t
        while end:
            left[t - 1, end - 1] = 1
            end -= end & -end
    np.testing.assert_array_equal(left @ right, sums)
    return left, right


def budget(mu=1.0):
    return filters.Gaussian(mu=mu)


class Silent:
    """A generator without noise."""

    def normal(self, mean, sigma, size=None):
        return 0.0 if size is None else np.zeros(size)

    def laplace(self, mean, scale):
        return 0.0


# counters


@both
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 13, 64])
def test_the_factors_multiply_to_running_sums_and_the_price_is_the_longest_column(kind, steps):
    """The price is the largest squared column of R, to rounding and never below it; L R adds up."""
    left, right = decoder_and_encoder(kind, steps)
    np.testing.assert_allclose(left @ right, np.tril(np.ones((steps, steps))), atol=1e-12)
    longest = np.max(np.sum(right**2, axis=0))
    priced = kind(steps, 3.0).mechanism
    assert priced.sigma == 3.0
    assert longest * (1 - 1e-14) <= priced.sensitivity**2 <= longest * (1 + 1e-12)


@pytest.mark.parametrize("steps", [1, 7, 104, 1000])
def test_prices_are_rounded_up_in_exact_arithmetic(steps):
    """floor(log2 T) + 1 nodes; and the sum of squares of the exact coefficients."""
    c, exact = Fraction(1), Fraction(1)
    for k in range(1, steps):
        c *= Fraction(2 * k - 1, 2 * k)
        exact += c * c
    found = Fraction(SquareRoot(steps, 1.0).mechanism.sensitivity) ** 2
    assert exact <= found <= exact * (1 + Fraction(1, 10**11))
    nodes = Fraction(int(np.floor(np.log2(steps))) + 1)
    assert nodes <= Fraction(Tree(steps, 1.0).mechanism.sensitivity) ** 2 <= nodes * (1 + Fraction(1, 10**14))


def test_the_square_root_costs_what_theory_says():
    """2.5 to 4.7 over sigma squared for 100 to 100,000 steps, and less than the tree's 7 and 17."""
    assert SquareRoot(100, 1.0).mechanism.sensitivity ** 2 == pytest.approx(2.53, abs=0.01)
    assert SquareRoot(100_000, 1.0).mechanism.sensitivity ** 2 == pytest.approx(4.73, abs=0.01)
    assert Tree(100, 1.0).mechanism.sensitivity ** 2 == pytest.approx(7)
    assert Tree(100_000, 1.0).mechanism.sensitivity ** 2 == pytest.approx(17)


@both
def test_the_noise_is_that_of_the_matrix_mechanism(kind):
    """The errors' covariance is sigma^2 L L^T: exactly, by sending unit draws through the code, as L itself."""
    steps, sigma = 21, 2.5
    left, _ = decoder_and_encoder(kind, steps)

    class Unit:
        """The only draw that is not zero is number j."""

        def __init__(self, j):
            self.j, self.seen = j, -1

        def normal(self, mean, scale):
            self.seen += 1
            assert (mean, scale) == (0.0, sigma)
            return sigma if self.seen == self.j else 0.0

    columns = [list(kind(steps, sigma).errors(Unit(j))) for j in range(steps)]
    np.testing.assert_allclose(np.array(columns).T, sigma * left, atol=1e-12)
    said = [kind(steps, sigma).standard_error(step) for step in range(1, steps + 1)]
    np.testing.assert_allclose(said, sigma * np.sqrt(np.sum(left**2, axis=1)), rtol=1e-12)


@both
def test_the_standard_error_is_that_of_many_runs(kind):
    """The spread of the errors over 4000 runs is the one that was announced, at every step."""
    noise, counter = np.random.default_rng(3), kind(12, 2.0)
    errors_ = np.array([list(counter.errors(noise)) for _ in range(4000)])
    said = [counter.standard_error(step) for step in range(1, 13)]
    np.testing.assert_allclose(errors_.std(axis=0), said, rtol=5 / np.sqrt(2 * 4000))
    assert np.all(np.abs(errors_.mean(axis=0)) < 5 * np.array(said) / np.sqrt(4000))


@both
def test_counters_refuse_nonsense(kind):
    """No steps, no noise, steps outside the run."""
    for bad in ((0, 1.0), (5, 0.0), (5, float("nan")), (2.5, 1.0)):
        with pytest.raises(errors.ArgumentError):
            kind(*bad)
    with pytest.raises(errors.ArgumentError):
        kind(5, 1.0).standard_error(6)


# accounts


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
    assert max(spent) <= Fraction(repr(mu)) ** 2


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
    from bursar.training._trainer import Trainer

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
        extra_steps=60,
        sample_rate=sample_rate,
        pace=0.0,
    )
    noise, seen = np.random.default_rng(4), []

    def enough(run):
        seen.append(run.counting.count)
        if run.step and run.counting.count > 100 + 2 * run.counting.standard_error:
            run.stop("many have dropped out")

    run = trainer.fit(
        x, y, callbacks=[enough], counting=lambda people: Dropouts(people, SquareRoot(100, 5), noise=noise)
    )
    assert run.reason == "many have dropped out"
    assert seen[0] == 0
    assert len(seen) == run.step + 1
    assert np.all(trainer.accounts.spent() <= 2.0)
    assert np.all(trainer.accounts.spent() >= 8 * run.counting.price.sensitivity**2 / 25 / 2)


# sparse vector


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


def stop_times(activity, scale, threshold_scale, at_least=0.0):
    """P(first "no" at 1, ..., k; never) for the numbers active, by quadrature over the threshold's noise."""
    z, dz = np.linspace(-60, 60, 48_001, retstep=True)
    density = stats.laplace.pdf(z, scale=threshold_scale) * dz
    stay = [stats.laplace.sf(at_least + z - count, scale=scale) for count in activity]
    chances, alive = [], np.ones_like(z)
    for each in stay:
        chances.append(np.sum(density * alive * (1 - each)))
        alive = alive * each
    return np.array([*chances, np.sum(density * alive)])


def test_the_scales_make_the_answers_epsilon_dp():
    """For every pattern of one person's presence in five steps, no answer is more than e^epsilon likelier; and with
    a threshold that has hardly any noise some are."""
    epsilon = 1.2
    scale = StillActive(individual.Filter(1, filters.Zcdp(rho=2.0)), at_least=1, epsilon=epsilon)._scale
    worst = {scale: 0.0, 0.1: 0.0}
    for others, present in product(([3, 3, 3, 3, 3], [2, 0, -1, -4, 5]), range(6)):
        without = np.array(others, dtype=float)
        there = without + (np.arange(5) < present)  # present until the drop
        for threshold_scale in worst:
            a, b = stop_times(there, scale, threshold_scale), stop_times(without, scale, threshold_scale)
            worst[threshold_scale] = max(worst[threshold_scale], float(np.max(np.abs(np.log(a / b)))))
    assert 0.5 * epsilon < worst[scale] <= epsilon + 1e-6
    assert worst[0.1] > 1.2 * epsilon


# audits

MU, DELTA, T, RUNS = 1.0, 0.02, 16, 2500
SHARE = 2 / 3  # of the budget for the counts
AFFORDED = 4  # steps that the canary can pay for besides


class Unpaid(Dropouts):
    """A planted error: drops are counted, but nobody has paid."""

    def __init__(self, people, counter, **more):
        super().__init__(people, counter, **more)
        people.refund(self.price, np.ones(len(people.spent()), bool))


def transcript(kind, present, seed, *, accounts_as=Dropouts):
    """(runs, steps) noisy sums and noisy counts, and what the canary moved in them, in many runs."""
    noise = np.random.default_rng(seed)
    counter = kind(T, kind(T, 1.0).mechanism.sensitivity / (MU * np.sqrt(SHARE)) * (1 + 1e-9))
    step = mechanisms.Gaussian(sigma=np.sqrt(AFFORDED / (1 - SHARE)) / MU * (1 + 1e-6))
    others = np.array([0.05, 0.04, 0.0])
    norms = np.array([1.0, *others]) if present else others
    sums, counts = np.zeros((2, RUNS, T))
    moved = np.zeros(T)
    for run in range(RUNS):
        accounts = accounts_as(individual.Filter(len(norms), budget(MU)), counter, noise=noise)
        for t in range(T):
            active = accounts.charge(step, norms)
            sums[run, t] = norms @ active - others.sum()
            counts[run, t] = accounts.count
            moved[t] = active[0] and present
    return sums + noise.normal(0, step.sigma, sums.shape), counts, moved, step.sigma, counter.sigma


def found(kind, seed, **more):
    """A lower bound on epsilon with 95 % confidence, from the best statistic for Gaussian noise."""
    sums, counts, moved, sigma, counter_sigma = transcript(kind, True, seed, **more)
    sums_without, counts_without, *_ = transcript(kind, False, seed + 1, **more)
    left, right = decoder_and_encoder(kind, T)
    decoded = np.linalg.inv(left).T @ right[:, int(moved.sum())] / counter_sigma**2
    there = sums @ moved / sigma**2 + counts @ decoded
    absent = sums_without @ moved / sigma**2 + counts_without @ decoded
    square = moved @ moved / sigma**2 + decoded @ left @ left.T @ decoded * counter_sigma**2
    grid = np.linspace(-1, square + 4, 500)  # the best threshold for Gaussian noise, fixed before the runs are judged
    score = stats.norm.sf(grid, square, np.sqrt(square)) - DELTA, stats.norm.sf(grid, 0, np.sqrt(square)) + 4 / RUNS
    threshold = grid[np.argmax(score[0] / score[1])]
    hits, alarms = int(np.sum(there > threshold)), int(np.sum(absent > threshold))
    low = stats.binomtest(hits, RUNS).proportion_ci(0.95, method="exact").low
    high = stats.binomtest(alarms, RUNS).proportion_ci(0.95, method="exact").high
    return float(np.log((low - DELTA) / high)), int(moved.sum())


@both
def test_an_audit_of_sums_and_counts_keeps_below_the_claim(kind):
    """A canary that takes part, drops and is counted: the bound found is at most the claim and at least 60 % of it."""
    claimed = float(gaussian.epsilon(MU, delta=DELTA))
    bound, took_part = found(kind, 20)
    assert took_part == AFFORDED
    assert 0.6 * claimed <= bound <= claimed


def test_counting_drops_without_paying_is_caught():
    """The same audit exceeds the claim when nothing was booked for the counts."""
    bound, took_part = found(SquareRoot, 30, accounts_as=Unpaid)
    assert took_part == round(AFFORDED / (1 - SHARE))
    assert bound > 1.05 * float(gaussian.epsilon(MU, delta=DELTA))


def test_an_audit_of_still_active_keeps_below_the_claim():
    """How soon the answer is "no", with and without a canary: no answer is more than e^epsilon likelier."""
    epsilon, runs, times = 1.0, 2000, np.zeros((2, 2000))
    noise = np.random.default_rng(40)
    for canary in (0, 1):
        for run in range(runs):
            people = individual.Filter(4 + canary, filters.Zcdp(rho=3.0))
            accounts = StillActive(people, at_least=4.5, epsilon=epsilon, noise=noise)
            for t in range(5):
                if not accounts.still:
                    break
                accounts.charge(STEP, np.zeros(4 + canary))
                times[canary, run] = t + 1 if accounts.still else times[canary, run]
    bounds = []
    for stayed in range(6):
        a, b = (int(np.sum(times[canary] >= stayed)) for canary in (1, 0))
        low = stats.binomtest(a, runs).proportion_ci(0.95, method="exact").low
        high = stats.binomtest(b, runs).proportion_ci(0.95, method="exact").high
        bounds.append(np.log(low / high))
    assert 0.2 * epsilon < max(bounds) <= epsilon


def test_counts_do_not_show_the_last_digits_of_their_noise():
    """What is released is a multiple of about a millionth of the noise's standard deviation, and near what it was."""
    people = individual.Filter(100, filters.Gaussian(epsilon=1.0, delta=1e-5))
    accounts = Dropouts(people, SquareRoot(steps=5, sigma=50.0), noise=np.random.default_rng(3))
    accounts.charge(mechanisms.Gaussian(sigma=20.0), np.ones(100))
    exact = next(SquareRoot(steps=5, sigma=50.0).errors(np.random.default_rng(3)))
    assert accounts.count != exact
    assert abs(accounts.count - exact) <= 2**-16
    assert (accounts.count * 2**15).is_integer()


@pytest.mark.parametrize("sigma", [0.4, 0.45, 1.0, 20.0])
def test_closing_never_leaves_less_than_nothing_spent(sigma):
    """Also with many orders, at some of which the price is more than an account counts."""
    people = individual.Filter(3, filters.Renyi(epsilon=16.0, delta=1e-5))
    Dropouts(people, Tree(steps=1, sigma=sigma)).close()
    assert (people.spent() >= 0).all()
    individual.Filter.from_state(people.state())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_may_not_count_with_the_same_noise():
    """Two processes with the same noise would show, by their difference, who dropped out."""
    doors = Dropouts(individual.Filter(3, filters.Zcdp(rho=1.0)), Tree(steps=5, sigma=20.0))
    child = os.fork()
    if child == 0:
        try:
            doors.charge(mechanisms.Gaussian(sigma=10.0), np.ones(3))
        except errors.ArgumentError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    doors.charge(mechanisms.Gaussian(sigma=10.0), np.ones(3))

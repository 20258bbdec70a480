"""Budgets of a ledger: zCDP, Gaussian and pure; what each counts, promises and admits, and audits at the claimed mu."""

import itertools
import json
import math
import statistics
from fractions import Fraction
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from almoner import filters
from almoner.curves import gaussian, zcdp
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger import Ledger, Terms, summary
from almoner.ledger._record.terms import RecordedTerms
from almoner.mechanisms import Gaussian, Laplace
from almoner.queries import Count, Histogram, Mean, People, Quantiles, Sum, Variance
from almoner.queries._ask.answer import answer
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.noise import noisy
from almoner.queries.plans import Plan
from ledgers import RHO, exact
from sessions import opened

DRAWS = 500_000


def distance(mechanism, drawn_with):
    """A lower bound, wrong once in 10**7, on how far outputs on two neighbouring sums are apart in normal quantiles."""
    step = round(mechanism.sensitivity)
    absent, there = (np.array(noisy([value] * DRAWS, drawn_with)) for value in (0, step))
    bounds = []
    for threshold in (0, step // 2, step):
        counts = int(np.sum(absent < threshold)), int(np.sum(there < threshold))
        low = stats.beta.ppf(5e-9, counts[0], DRAWS - counts[0] + 1)
        high = stats.beta.isf(5e-9, counts[1] + 1, DRAWS - counts[1])
        bounds.append(stats.norm.ppf(low) - stats.norm.ppf(high))
    return max(bounds)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.8, 2.0])
def test_noise_keeps_the_claimed_mu_and_no_less(sigma):
    """Counts on neighbouring data are told apart as mu says, less 0.03; noise that is 5 % too small is found."""
    mechanism = Count(clip=1, sigma=sigma).mechanism
    mu = mechanism.sensitivity / mechanism.sigma
    assert mu - 0.03 < distance(mechanism, mechanism) <= mu
    assert distance(mechanism, Gaussian(mechanism.sigma * 0.95, mechanism.sensitivity)) > mu


def test_laplace_noise_keeps_the_claimed_epsilon_and_no_less():
    """Counts on neighbouring data differ by a factor of exp(epsilon) in probability, to 1 %; less noise is found."""
    mechanism = Count(clip=1, epsilon=1.0).mechanism
    step = int(mechanism.sensitivity)

    def bound(drawn_with):
        absent, there = (int(np.sum(np.array(noisy([value] * DRAWS, drawn_with)) >= step)) for value in (0, step))
        low = stats.beta.ppf(5e-8, there, DRAWS - there + 1)
        return math.log(low / stats.beta.isf(5e-8, absent + 1, DRAWS - absent))

    assert 0.93 < bound(mechanism) <= 1
    assert bound(Laplace(mechanism.scale * 0.9, mechanism.sensitivity)) > 1


def test_a_gaussian_budget_admits_more(path):
    """At the same epsilon and delta its rho = mu squared / 2 is larger than zCDP's, and never more than mu allows."""
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-5), (4.0, 1e-9)):
        path.unlink(missing_ok=True)
        budget = filters.Gaussian(epsilon=epsilon, delta=delta)
        with opened(path, budget=budget) as session:
            rho = session.ledger.budget_units
            assert 2 * rho <= Fraction(budget.mu) ** 2 * RHO < 2 * rho + 3
            assert rho > 1.05 * filters.Zcdp(epsilon=epsilon, delta=delta).rho * RHO
            assert session.ledger.promise(delta) == pytest.approx(epsilon, rel=1e-12)
            assert session.ledger.measure == "Gaussian rho"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "price"),
    [
        (filters.Zcdp(rho=0.02), {"rho": 0.01}),
        (filters.Gaussian(mu=0.2), {"rho": 0.01}),
        (filters.Basic(epsilon=0.2), {"epsilon": 0.1}),
    ],
)
def test_a_budget_is_charged_until_it_is_spent_and_no_further(path, budget, price):
    """Two questions fit a budget for two, and a third charges nobody; the ledger replays, verifies and opens again."""
    rows = pa.table({"who": ["a", "b", "b"], "n": [1.0, 2.0, 3.0]})
    with opened(path, rows, budget=budget) as session:
        analyst = session.analyst("ann")
        for key in "12":
            analyst.ask(Count(clip=1, **price), key=key)
        units = session.ledger.budget_units // 2
        assert session.ledger.spent("a") == pytest.approx(2 * units, rel=1e-8)
        assert session.ledger.spent("b") == 2 * analyst.ask(Count(clip=1, **price), key="1").question.price
        before = [session.ledger.spent(each) for each in "ab"]
        analyst.ask(Count(clip=1, **price), key="3", anyway=True)
        assert [session.ledger.spent(each) for each in "ab"] == before
        assert max(before) <= session.ledger.budget_units
        assert all(finding.holds for finding in session.verify(replay=True))
        statement = session.statement("b", delta=1e-6)
        assert statement.rho <= statement.budget
        assert statement.symbol == session.ledger.symbol
        assert "used 100 % of your budget" in str(statement)
        with pytest.raises(BudgetExceeded, match=f"{session.ledger.symbol} = "):
            analyst.check(Count(clip=1, **{name: 10 * value for name, value in price.items()}), key="4")
    with Ledger.open(path) as book:
        assert summary(book).terms["measure"] == book.measure
        assert len(list(book.history())) == 3


def test_what_the_whole_budget_promises(path):
    """Of zCDP and Gaussian budgets the epsilon at delta; of pure ones epsilon at any delta."""
    for budget, wanted in (
        (filters.Zcdp(rho=0.02), zcdp.epsilon(0.02, delta=1e-6)),
        (filters.Gaussian(mu=0.2), gaussian.epsilon(0.2, delta=1e-6)),
        (filters.Basic(epsilon=0.5), 0.5),
    ):
        path.unlink(missing_ok=True)
        with opened(path, budget=budget) as session:
            assert session.ledger.promise(1e-6) == pytest.approx(float(wanted), rel=1e-9)
            assert session.statement("ann", delta=1e-6).epsilon == session.ledger.promise(1e-6)


def test_other_budgets_are_refused(path):
    """A ledger is opened for its own measure only; a pure budget has no delta; a watch has its price."""
    opened(path, budget=filters.Gaussian(mu=0.2)).close()
    for other in (filters.Zcdp(rho=0.02), filters.Basic(epsilon=0.2), filters.Gaussian(mu=0.3)):
        with pytest.raises(ArgumentError, match="was made for a budget"):
            opened(path, budget=other)
    with opened(path, budget=filters.Gaussian(mu=0.2)) as session:
        price = session.watch(3, epsilon=0.01).price(session.ledger.measure)
        assert 0.78e-4 < price / RHO < 0.79e-4  # pi / 4 of epsilon squared
        with pytest.raises(ArgumentError, match="give rho="):
            session.limit(epsilon=0.1, analyst="ann")
    path.unlink()
    with pytest.raises(ArgumentError, match="delta=0"):
        opened(path, budget=filters.Basic(epsilon=1.0, delta=1e-6))
    assert not path.exists()


def test_the_first_entry_names_the_measure():
    """Terms come back as they were written; a measure that is not known, or not there, is refused."""
    for budget in (filters.Zcdp(rho=0.1), filters.Gaussian(epsilon=1.0, delta=1e-6), filters.Basic(epsilon=1.0)):
        terms = RecordedTerms.of(Terms(budget, person="BIGINT"))
        public = json.loads(json.dumps(terms.public))
        assert RecordedTerms.read(public) == terms
        with pytest.raises(ValueError, match="not known"):
            RecordedTerms.read({**public, "measure": "Pufferfish"})
        del public["measure"]
        with pytest.raises(KeyError, match="measure"):
            RecordedTerms.read(public)


def test_a_question_must_fit_the_measure(path):
    """Gaussian noise is refused in a pure ledger, Laplace noise in the others, before anything is charged."""
    for budget, wrong in (
        (filters.Zcdp(rho=1.0), {"epsilon": 0.1}),
        (filters.Gaussian(mu=1.0), {"epsilon": 0.1}),
        (filters.Basic(epsilon=1.0), {"sigma": 10.0}),
        (filters.Basic(epsilon=1.0), {"rho": 0.1}),
    ):
        path.unlink(missing_ok=True)
        with opened(path, budget=budget) as session:
            analyst = session.analyst("ann")
            for act in (analyst.quote, partial(analyst.ask, key="k"), partial(analyst.check, key="k")):
                with pytest.raises(ArgumentError, match="this ledger counts"):
                    act(Count(clip=1, **wrong))
            assert session.ledger.spent("ann") == 0


def test_a_pure_budget_has_limits_and_reservations_in_epsilon(path):
    """Limits and reservations of a pure ledger are epsilons, and hold."""
    with opened(path, budget=filters.Basic(epsilon=1.0)) as session:
        session.limit(epsilon=0.1, analyst="bob")
        session.reserve(epsilon=0.5, key="later", analyst="ann")
        with pytest.raises(BudgetExceeded):
            session.analyst("bob").ask(Count(clip=1, epsilon=0.2), key="b")
        with pytest.raises(BudgetExceeded):
            session.analyst("ann").ask(Count(clip=1, epsilon=0.6), key="a")
        session.analyst("ann").ask(Count(clip=1, epsilon=0.5), key="a", reserved="later")
        with pytest.raises(ArgumentError, match="give epsilon="):
            session.limit(0.1, analyst="eve")


def test_one_question_with_all_of_epsilon_one(path):
    """A count of people at epsilon 1 has a standard deviation of 1.4142 in its quote, and in 2000 answers."""
    asked = People(by={"n": list(range(2000))}, clip=1, epsilon=1.0)
    with opened(path, budget=filters.Basic(epsilon=1.0)) as session:
        analyst = session.analyst("ann")
        quoted = analyst.quote(People(epsilon=1.0))
        assert quoted.standard_errors["count"] == pytest.approx(math.sqrt(2), rel=1e-9)
        assert quoted.epsilon == pytest.approx(1.0)
        assert quoted.rho == pytest.approx(0.5)
        assert quoted.of_budget == pytest.approx(1.0)
        values = analyst.ask(asked, key="a").values[9:]
    assert statistics.pstdev(values) == pytest.approx(math.sqrt(2), rel=0.12)
    assert statistics.fmean(values) == pytest.approx(0, abs=0.2)


def test_contributions_are_clipped_in_the_norm_of_the_noise(path):
    """In a pure ledger a person with one row in each of four groups counts as one row, elsewhere as two."""
    rows = pa.table({"who": ["a"] * 4, "n": [1, 2, 3, 4]})
    by = {"n": [1, 2, 3, 4]}
    for budget, asked, each in (
        (filters.Basic(epsilon=1e3), Count(by=by, clip=1, epsilon=1e3), 0.25),
        (filters.Zcdp(rho=1e3), Count(by=by, clip=1, rho=1e3), 0.5),
        (filters.Gaussian(mu=40.0), Count(by=by, clip=1, rho=800), 0.5),
    ):
        path.unlink(missing_ok=True)
        with opened(path, rows, budget=budget) as session:
            for value in session.analyst("ann").ask(asked, key="a").values:
                assert value == pytest.approx(each, abs=0.2)


@pytest.mark.parametrize("groups", [1, 30])
def test_bounds_for_a_group_are_in_the_norm_of_the_noise(path, groups):
    """Three rows in three bins of one group are shrunk to 1/3 each in a pure ledger, to 1 / sqrt(3) in another."""
    rows = pa.table({"who": ["a"] * 3, "n": [0.5, 1.5, 2.5], "g": [0] * 3})
    shared = {"edges": (0, 1, 2, 3), "by": {"g": list(range(groups))}, "per_group": 1, "clip": 5}
    for budget, price, each in (
        (filters.Basic(epsilon=10.0), {"epsilon": 5.0}, 1 / 3),
        (filters.Zcdp(rho=10.0), {"rho": 5.0}, 3**-0.5),
    ):
        path.unlink(missing_ok=True)
        asked = Histogram("n", **shared, **price)
        with opened(path, rows, budget=budget) as session:
            sums, units = exact(session, asked)
        assert [step / 2**20 for step in sums[:3]] == pytest.approx([each] * 3, rel=1e-5)
        assert not any(sums[3:])
        assert units["a"] == pytest.approx((1.0 if asked.pure else 0.2) * RHO, rel=1e-5)


@pytest.mark.parametrize("clip", [1.0, 7.3])
def test_rows_are_at_most_one_long_in_the_norm_of_the_noise(clip):
    """A row's coordinates, each as large as it can be, have L1 norm at most one row in pure questions, else L2 norm.

    Coordinates of means and variances that add up to 1 have it for every entry, rounded to whole steps.
    """
    for pure, kind, correlated in itertools.product((True, False), (Mean, Variance), (True, False)):
        price = {"epsilon": 0.5} if pure else {"rho": 0.5}
        asked = kind("n", 0, 1, per="row", clip=clip, correlated=correlated, **price)
        rows = [[1.0] * asked.coordinates]
        if pure and correlated:
            rows = [
                [t, t - 1] if kind is Mean else [t * t, (1 - t) ** 2, -2 * t * (1 - t)] for t in np.linspace(0, 1, 999)
            ]
        for row in rows:
            steps = [math.floor(abs(each) * asked.steps + 0.5) for each in row]
            assert (sum(steps) if pure else math.hypot(*steps)) <= 2**20
        assert asked.price <= RHO // 2


def test_the_intervals_of_laplace_noise_cover(path):
    """At least 95 % of intervals of counts, sums and quantiles hold what they are about, in 400 draws of each."""
    counts = [40 * 2**20] * 8
    for asked, sums, truth in (
        (Count(clip=1, epsilon=0.5), [100 * 2**20], 100.0),
        (Sum("n", 0, 10, clip=1, epsilon=0.5), [100 * 2**20], 1000.0),
        (Quantiles("n", tuple(range(9)), clip=1, per="row", epsilon=1.0), counts, 4.0),
        (Quantiles("n", (0, 4, 8), clip=1, per="row", epsilon=1.0), [160 * 2**20] * 2, 4.0),
    ):
        hits = 0
        for _ in range(400):
            low, high = np.ravel(answer(asked, noisy(sums, asked.mechanism), "k").intervals[0])
            hits += low <= truth <= high
        assert hits >= 361  # 95 % of 400, less 4.4 standard errors


def test_pure_questions_are_described_and_priced(path):
    """A question with an epsilon is recorded as such, made again the same, and costs at most that epsilon."""
    for asked in (
        Count(clip=1, epsilon=0.1),
        Mean("n", 0, 3, per="row", clip=7, epsilon=1 / 3),
        Histogram("n", (0, 1, 2), clip=1, epsilon=0.7),
    ):
        values = json.loads(json.dumps(described(asked)))
        assert question(values) == asked
        assert asked.price <= math.ceil(Fraction(asked.epsilon) * RHO)
        assert asked.price >= asked.epsilon * RHO * (1 - 1e-5)
    for wrong in (
        {},
        {"epsilon": 0.1, "sigma": 1.0},
        {"epsilon": 0.1, "rho": 1.0},
        {"epsilon": 0.0},
        {"epsilon": math.nan},
    ):
        with pytest.raises(ArgumentError):
            Count(**wrong)
    with pytest.raises(ArgumentError, match="noise would be"):
        Count(clip=1e6, rho=1e-12)


@pytest.mark.slow
def test_files_of_questions_name_their_budget(tmp_path):
    """budget = "gaussian" or "pure" makes such a ledger; what another kind takes is refused."""
    pa_rows = tmp_path / "rows.csv"
    pa_rows.write_text("who,n\na,1\nb,2\n", encoding="utf-8")
    base = 'data = "rows.csv"\nperson = "who"\nledger = "{0}.ledger"\nanalyst = "ann"\n'
    for place, (terms, price, measure) in enumerate(
        (
            ('budget = "gaussian"\nepsilon = 1.0\ndelta = 1e-6', "rho = 0.01", "Gaussian rho"),
            ('budget = "gaussian"\nmu = 0.5', "rho = 0.01", "Gaussian rho"),
            ('budget = "pure"\nepsilon = 1.0', "epsilon = 0.5", "epsilon"),
            ("rho = 0.5", "rho = 0.01", "zCDP rho"),
        )
    ):
        file = tmp_path / f"{place}.toml"
        file.write_text(
            base.format(place) + terms + f'\n[[questions]]\nkey = "k"\nask = "count"\nclip = 1\n{price}\n', "utf-8"
        )
        plan = Plan.read(file)
        with plan.open(create=True) as session:
            assert session.ledger.measure == measure
            plan.ask(session)
    for terms, match in (
        ('budget = "pure"\nepsilon = 1.0\ndelta = 1e-6', "delta"),
        ('budget = "pure"\n', "needs epsilon"),
        ('budget = "gauss"\nepsilon = 1.0\ndelta = 1e-6', "budget"),
        ("mu = 1.0", "mu"),
    ):
        file = tmp_path / "wrong.toml"
        file.write_text(
            base.format("w") + terms + '\n[[questions]]\nkey = "k"\nask = "count"\nclip = 1\nrho = 0.1\n', "utf-8"
        )
        with pytest.raises(ArgumentError, match=match):
            _ = Plan.read(file).budget

"""The descent: what people contribute, who pays for it, and that it is Algorithm 8."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from almoner import filters, individual
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.mechanisms import Gaussian
from almoner.training import Descent, Everybody, descend
from almoner.training._linear.descent import LinearModel, LogisticGradients


def people_and_labels(rows=40, features=3, classes=2, seed=0):
    """A small made-up problem."""
    draw = np.random.default_rng(seed)
    return draw.normal(size=(rows, features)), draw.integers(classes, size=rows)


def naive_gradients(x, y, weights, classes, intercept):
    """One gradient per row, written out: (rows, features [+ 1], columns)."""
    x = np.column_stack([x, np.ones(len(x))]) if intercept else x
    gradients = []
    for row, label in zip(x, y, strict=True):
        if classes == 2:
            error = np.array([1 / (1 + np.exp(-row @ weights[:, 0])) - label])
        else:
            chances = np.exp(row @ weights)
            error = chances / chances.sum() - np.eye(classes)[label]
        gradients.append(np.outer(row, error))
    return np.array(gradients)


class Silent:
    """A generator without noise, which notes what was drawn from it."""

    def __init__(self):
        self.draws = []

    def normal(self, mean, sigma, size):
        self.draws.append((mean, sigma, size))
        return np.zeros(size)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("grouped", [False, True])
def test_norms_and_sums_are_those_of_gradients_written_out(classes, intercept, form, grouped):
    """Nothing of size n times features is built, yet norms and weighted sums are the same."""
    x, y = people_and_labels(classes=classes)
    owners = np.random.default_rng(1).permutation(np.arange(40) % 7) if grouped else np.arange(40)
    model = LogisticGradients(form(x), y, classes, intercept=intercept, people=owners if grouped else None)
    weights = np.random.default_rng(2).normal(size=model.start.shape)
    each = naive_gradients(x, y, weights, classes, intercept)
    each = np.array([each[owners == person].sum(axis=0) for person in range(owners.max() + 1)])
    np.testing.assert_allclose(model.norms(weights), np.sqrt((each**2).sum(axis=(1, 2))), rtol=1e-12)
    shares = np.random.default_rng(3).random(len(each))
    np.testing.assert_allclose(model.weighted_sum(shares), np.tensordot(shares, each, axes=1), rtol=1e-11, atol=1e-12)


def test_entries_of_a_sparse_row_that_share_a_place_are_added_before_the_norm():
    """A CSR matrix may hold a feature twice: the norm is that of their sum, not smaller."""
    double = sparse.csr_matrix((np.array([3.0, 3.0, 8.0]), np.array([0, 0, 1]), np.array([0, 3])), shape=(1, 2))
    model = LogisticGradients(double, np.array([0]), 2, intercept=False)
    assert model.norms(model.start)[0] == 5.0  # half of the length of (6, 8)


@pytest.mark.parametrize("size", [1e-200, 1e200])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("owners", [None, np.arange(2)])
def test_norms_of_tiny_and_huge_gradients_neither_vanish_nor_overflow(size, form, owners):
    """Squares of these numbers are no floats any more; the norms are."""
    model = LogisticGradients(
        form(np.array([[3.0, 4.0], [0.0, 2.0]]) * size), np.zeros(2, int), 2, intercept=False, people=owners
    )
    np.testing.assert_allclose(model.norms(model.start), [2.5 * size, 1.0 * size], rtol=1e-12)


def test_the_descent_is_algorithm_8_written_out():
    """The loop agrees with a literal one: clip to min(C, root of what is left), sum, one draw of noise, divide by n."""
    x, y = people_and_labels()
    clip, sigma, steps, budget = 0.6, 0.8, 30, 5 * 0.6**2
    model = LogisticGradients(x, y, 2, intercept=False)
    accounts = individual.Filter(len(x), filters.Gaussian(mu=np.sqrt(budget) / sigma))
    found = descend(
        model,
        model.start,
        accounts,
        Gaussian(sigma, clip),
        steps=steps,
        learning_rate=0.5,
        divisor=len(x),
        noise=np.random.default_rng(4),
        descent=Descent(average=0.0, momentum=0.0, pace=0.0),
    )
    weights, spent, noise = np.zeros((3, 1)), np.zeros(len(x)), np.random.default_rng(4)
    for _ in range(steps):
        total = np.zeros((3, 1))
        for person, gradient in enumerate(naive_gradients(x, y, weights, 2, False)):
            norm = np.linalg.norm(gradient)
            most = min(clip, np.sqrt(max(0.0, budget - spent[person])))
            total += gradient * min(1.0, most / norm)
            spent[person] += min(norm, most) ** 2
        weights = weights - 0.5 * (total + noise.normal(0, sigma, size=(3, 1))) / len(x)
    np.testing.assert_allclose(found, weights, rtol=1e-6)
    assert (spent > budget * (1 - 1e-9)).any()  # somebody ran out, so the remainder was spent


@settings(max_examples=30, deadline=None)
@given(
    clip=st.floats(0.01, 10),
    noise=st.floats(0.5, 50),
    scale=st.sampled_from([1e-12, 1e-3, 1.0, 1e3, 1e9]),
    seed=st.integers(0, 2**32),
)
def test_nobody_contributes_more_than_is_charged(clip, noise, scale, seed):
    """In exact arithmetic, what a person really contributes has at most the norm charged, and all fits the budget."""
    x, y = people_and_labels(rows=6, seed=seed)
    budget, step = filters.Gaussian(mu=2.5 / noise), Gaussian(noise * clip, clip)
    contributed, charged = [], []

    class SeenGradients(LogisticGradients):
        def weighted_sum(self, weights):
            each = [
                [Fraction(float(w)) * Fraction(float(r)) * Fraction(float(v)) for v in row]
                for w, r, row in zip(weights, self._residuals[:, 0], self._x, strict=True)
            ]
            contributed.append([sum(value**2 for value in row) for row in each])
            return super().weighted_sum(weights)

    class SeenAccounts(individual.Filter):
        def charge(self, step, norms, people=None):
            charged.append([Fraction(float(norm)) ** 2 for norm in norms])
            return super().charge(step, norms, people)

    model = SeenGradients(x * scale, y, 2, intercept=False)
    noisy = {"learning_rate": 1.0, "divisor": 6, "noise": np.random.default_rng(seed)}
    descend(model, model.start, SeenAccounts(6, budget), step, steps=20, **noisy)
    assert all(a <= b for one, other in zip(contributed, charged, strict=True) for a, b in zip(one, other, strict=True))
    most = Fraction(budget.mu) ** 2 * Fraction(step.sigma) ** 2
    assert all(sum(norms) <= most for norms in zip(*charged, strict=True))


def test_noise_is_one_draw_of_one_size_whoever_is_left():
    """Noise on the sum does not shrink when people drop out, and the divisor stays the public number."""
    x, y = people_and_labels()
    model, noise = LogisticGradients(100 * x, y, 2, intercept=False), Silent()
    accounts = individual.Filter(len(x), filters.Gaussian(mu=1.0))
    steps = []
    descend(
        model,
        model.start,
        accounts,
        Gaussian(2.0, 1.0),
        steps=12,
        learning_rate=1.0,
        divisor=1000,
        noise=noise,
        descent=Descent(average=0.0, momentum=0.0, pace=0.0),
        observe=lambda number, parameters: steps.append(parameters),
    )
    assert noise.draws == [(0.0, 2.0, (3, 1))] * 12
    assert np.count_nonzero(accounts.left() > 1e-6) == 0
    assert np.linalg.norm(steps[0]) <= len(x) / 1000  # n clipped gradients over the public number
    np.testing.assert_allclose(steps[-1], steps[5], atol=1e-5)  # nobody left: nothing moves but the noise


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("owners", [None, np.arange(5)])
def test_whoever_has_no_number_for_a_gradient_is_out_and_the_others_go_on(form, owners):
    """A person whose gradient is infinite or NaN pays nothing and contributes nothing."""
    x, y = people_and_labels(rows=5)
    broken = x.copy()
    broken[0], broken[1] = np.nan, np.inf
    results = []
    for rows in (broken, np.where(np.isfinite(broken), broken, 0.0)):
        model = LogisticGradients(form(rows), y, 2, intercept=False, people=owners)
        accounts = individual.Filter(5, filters.Gaussian(mu=1.0))
        with np.errstate(invalid="ignore"):
            results.append(
                descend(
                    model,
                    model.start,
                    accounts,
                    Gaussian(5.0),
                    steps=3,
                    learning_rate=1.0,
                    divisor=5,
                    noise=np.random.default_rng(0),
                )
            )
        assert list(accounts.spent()[:2]) == [0.0, 0.0]
    np.testing.assert_array_equal(*results)


def test_whoever_the_accounts_refuse_leaves_no_trace():
    """Accounts may refuse for reasons of their own: then the data of the refused do not move the model."""
    x, y = people_and_labels(rows=6)

    class Closed(individual.Filter):
        def charge(self, step, norms, people=None):
            return super().charge(step, norms, people) & (np.arange(6) != 2)

    results = []
    for third in (x[2], -5 * x[2]):
        model = LogisticGradients(np.vstack([x[:2], third, x[3:]]), y, 2, intercept=False)
        accounts, noise = Closed(6, filters.Gaussian(mu=1.0)), np.random.default_rng(0)
        run = {"steps": 5, "learning_rate": 1.0, "divisor": 6, "noise": noise}
        results.append(descend(model, model.start, accounts, Gaussian(5.0), **run))
    np.testing.assert_array_equal(*results)


def test_a_person_of_weight_zero_is_left_out_of_a_sum_even_without_a_number():
    """Where parameters overflow, a gradient is NaN; with weight zero it does not spoil the sum."""
    model = LogisticGradients(np.array([[1.0, -1.0], [1.0, 1.0]]), np.array([0, 1]), 2, intercept=False)
    with np.errstate(invalid="ignore"):
        assert np.isnan(model.norms(np.full((2, 1), np.inf))).tolist() == [True, False]
    np.testing.assert_array_equal(model.weighted_sum(np.array([0.0, 1.0])), np.zeros((2, 1)))


def test_without_individual_accounts_the_filter_is_charged_the_worst_case():
    """Algorithm 7: the public filter pays every step in full, and refuses the one that does not fit."""
    x, y = people_and_labels(rows=5)
    model, public = LogisticGradients(x * 1e-9, y, 2, intercept=False), filters.Gaussian(mu=1.0)
    run = {"learning_rate": 1.0, "divisor": 5, "noise": np.random.default_rng(0)}
    descend(model, model.start, Everybody(5, public), Gaussian(2.0), steps=4, **run)
    assert public.count == 4
    assert public.left == 0.0
    with pytest.raises(BudgetExceeded):
        descend(model, model.start, Everybody(5, public), Gaussian(2.0), steps=1, **run)


def test_the_average_is_the_mean_of_the_last_iterates():
    """average=0.5 of 6 steps is the mean of the last three; 0 is the last, 1 all."""
    x, y = people_and_labels()
    for share, kept in ((0.0, 1), (0.5, 3), (1.0, 6)):
        seen = []
        model = LogisticGradients(x, y, 2, intercept=False)
        found = descend(
            model,
            model.start,
            individual.Filter(len(x), filters.Gaussian(mu=1.0)),
            Gaussian(5.0),
            steps=6,
            learning_rate=1.0,
            divisor=len(x),
            noise=np.random.default_rng(0),
            descent=Descent(average=share),
            observe=lambda number, parameters, seen=seen: seen.append(parameters),
        )
        np.testing.assert_allclose(found, np.mean(seen[-kept:], axis=0))


def test_arguments_of_another_kind_are_refused_before_anybody_is_charged():
    """A seed in place of a generator, a filter in place of accounts: an error by name, and nothing spent."""
    x, y = people_and_labels()
    model, people = LogisticGradients(x, y, 2, intercept=False), individual.Filter(40, filters.Gaussian(mu=1.0))
    options = {"steps": 2, "learning_rate": 1.0, "divisor": 40}
    with pytest.raises(ArgumentError, match="noise=3 must be a generator"):
        descend(model, model.start, people, Gaussian(5.0), noise=3, **options)
    with pytest.raises(ArgumentError, match="accounts="):
        descend(model, model.start, people.budget, Gaussian(5.0), noise=np.random.default_rng(0), **options)
    assert not people.spent().any()


def test_rows_that_cancel_do_not_round_the_others_away():
    """Two huge rows of one person, with opposite labels, add up to little: the others' sum must survive."""
    n, huge = 200, 1e17
    x, y = np.ones((n, 2)), np.zeros(n, dtype=int)
    alone = LogisticGradients(x, y, 2, intercept=False, people=np.arange(n))
    more = np.vstack([[[huge, 1.0]], x, [[huge, 0.0]]])
    both = LogisticGradients(more, np.r_[0, y, 1], 2, intercept=False, people=np.r_[n, np.arange(n), n])
    sums = []
    for gradients in (alone, both):
        norms = gradients.norms(np.zeros((2, 1)))
        sums.append(gradients.weighted_sum(np.minimum(1.0, 1.0 / norms)))
    assert np.linalg.norm(sums[1] - sums[0]) <= 1.0  # the clip


def test_momentum_and_a_falling_rate_are_those_written_out():
    """Nesterov's momentum takes gradients ahead; the rate falls to zero in a line over the last steps."""
    x, y = people_and_labels()
    model, accounts = LogisticGradients(x, y, 2, intercept=False), individual.Filter(40, filters.Gaussian(mu=50.0))
    found = descend(
        model,
        model.start,
        accounts,
        Gaussian(1.0, 5.0),
        steps=6,
        learning_rate=3.0,
        divisor=40.0,
        noise=Silent(),
        descent=Descent(average=0.0, momentum=0.7, decay=0.5),
    )
    weights = velocity = np.zeros((3, 1))
    for rate in (3.0, 3.0, 3.0, 3.0, 2.0, 1.0):
        ahead = weights + 0.7 * velocity
        velocity = 0.7 * velocity - rate / 40 * naive_gradients(x, y, ahead, 2, False).sum(axis=0)
        weights = weights + velocity
    assert found == pytest.approx(weights, rel=1e-9)


def test_with_momentum_each_person_pays_for_the_gradient_that_was_used():
    """What is charged is the norm where the gradients are taken, not where the parameters are."""
    x, y = people_and_labels()
    model, seen = LogisticGradients(x, y, 2, intercept=False), []
    norms = model.norms
    model.norms = lambda parameters: seen.append(norms(parameters)) or seen[-1]
    accounts = individual.Filter(40, filters.Gaussian(mu=50.0))
    step = Gaussian(1.0, 5.0)
    run = {"steps": 4, "learning_rate": 9.0, "divisor": 40.0, "noise": Silent()}
    descend(model, model.start, accounts, step, descent=Descent(average=0.0, momentum=0.9), **run)
    assert np.asarray(accounts.spent()).ravel() == pytest.approx(np.square(seen).sum(axis=0), rel=1e-6)


@pytest.mark.parametrize("options", [{"momentum": 1.0}, {"momentum": -0.1}, {"decay": 1.1}, {"decay": np.nan}])
def test_momentum_and_decay_out_of_range_are_refused_before_anybody_is_charged(options):
    """The error names the argument."""
    model, accounts = (
        LogisticGradients(*people_and_labels(), 2, intercept=False),
        individual.Filter(40, filters.Gaussian(mu=1.0)),
    )
    with pytest.raises(ArgumentError, match=next(iter(options))):
        descend(
            model,
            model.start,
            accounts,
            Gaussian(9.0, 1.0),
            steps=2,
            learning_rate=1.0,
            divisor=40.0,
            noise=Silent(),
            descent=Descent(**options),
        )
    assert not np.asarray(accounts.spent()).any()


def test_the_course_is_an_object_and_steps_are_numbers_of_their_own():
    """Steps of an estimator have no place here."""
    people = individual.Filter(40, filters.Gaussian(mu=1.0))
    model = LogisticGradients(*people_and_labels(), 2, intercept=False)
    run = {"steps": 2, "learning_rate": 1.0, "divisor": 40, "noise": np.random.default_rng(0)}
    with pytest.raises(ArgumentError, match="steps= and stop="):
        descend(model, model.start, people, Gaussian(9.0), descent=Descent(extra_steps=3), **run)
    assert not people.spent().any()


def swings(noise, seed=0, rate=100.0, steps=40):
    """A parameter on a parabola with noisy slopes, and a rate that is too large: all values, the rates."""
    rng = np.random.default_rng(seed)
    model = LinearModel(np.array([1.0, -1.0]), rate, steps=steps, momentum=0.8, noise=noise)
    values, rates = [], []
    for _ in range(steps):
        ahead = model.parameters + 0.8 * model._velocity
        model.step([ahead + rng.normal(0, noise or 0.0, 2)], 1.0)
        values.append(np.abs(model.parameters).max())
        rates.append(model._rate)
    return values, rates


def test_a_rate_at_which_steps_swing_is_halved():
    """On a parabola a rate above 1.4 explodes; it is halved until it does not, and without the look it explodes."""
    values, rates = swings(1e-3, rate=6.0, steps=200)
    assert values[-1] < 0.1
    assert 0.05 < rates[-1] < 1.5
    assert swings(None, rate=6.0)[0][-1] > 1e10
    assert rates[:8] == [6.0] * 8  # a few such steps are usual at the start


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_halves_no_rate(seed):
    """Slopes that are nothing but noise turn back in half of the steps, and that says nothing."""
    assert swings(5.0, seed=seed, rate=1e-6, steps=500)[1][-1] == 1e-6


def test_lengths_are_right_where_a_matrix_says_wrongly_that_it_names_no_feature_twice():
    """SciPy keeps what it once found out, also when indices are changed afterwards; the clip would be too large."""
    records = sparse.csr_matrix(np.ones((1, 4)))
    assert records.has_canonical_format
    records.indices[:] = 0
    assert LogisticGradients(records, [0], 2, intercept=0).lengths.tolist() == [4.0]
    assert records.nnz == 4

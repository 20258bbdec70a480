"""Linear and Poisson regressions, and what all linear models share: bounds, penalties, weights."""

import numpy as np
import pytest
from sklearn import linear_model
from sklearn.utils.estimator_checks import parametrize_with_checks

from almoner import filters, individual, mechanisms
from almoner.errors import ArgumentError, DataError
from almoner.training import Descent, LinearRegression, LogisticRegression, PoissonRegressor, descend
from almoner.training._linear.descent import INTERCEPT, LogisticGradients, PoissonGradients, SquaredGradients

NO_NOISE = {"epsilon": None, "noise_multiplier": 1e-3, "max_grad_norm": 5.0, "seed": 1, "individual": False}
"""So little noise that a model is the one without privacy."""


def slopes(kind, scores, y):
    """The slope of each row's loss in its score, written out."""
    if kind is SquaredGradients:
        return scores - y
    return (np.exp(scores) if kind is PoissonGradients else 1 / (1 + np.exp(-scores))) - y


@pytest.mark.parametrize("kind", [SquaredGradients, PoissonGradients, LogisticGradients])
@pytest.mark.parametrize("constant", [0.0, INTERCEPT, 1.0])
@pytest.mark.parametrize("owners", [None, np.array([0, 0, 1, 2, 2, 2, 3, 4])])
def test_norms_and_sums_are_those_of_gradients_written_out(kind, constant, owners):
    """Each person's gradient by a loop over rows, with weights, with and without a constant feature."""
    draw = np.random.default_rng(3)
    x, y, weights = draw.normal(size=(8, 3)), draw.integers(0, 2, 8), draw.random(8) * 3
    features = np.column_stack([x, np.full(8, constant)]) if constant else x
    at = draw.normal(size=(features.shape[1], 1))
    each = features * (weights * slopes(kind, features @ at[:, 0], y))[:, None]
    people = np.arange(8) if owners is None else owners
    own = np.array([each[people == person].sum(axis=0) for person in range(people.max() + 1)])
    made = kind(x, y, 2, intercept=constant, people=owners, weights=weights)
    np.testing.assert_allclose(made.norms(at), np.linalg.norm(own, axis=1), rtol=1e-6)
    shares = draw.random(len(own))
    np.testing.assert_allclose(made.weighted_sum(shares), (shares @ own)[:, None], rtol=1e-9)
    assert made.start.shape == at.shape


@pytest.mark.parametrize("wrong", [1.0, 2.0])
def test_nobody_contributes_more_than_is_charged(wrong):
    """The norm that is charged bounds what a person adds, constant and weights included; half of it would not."""
    draw = np.random.default_rng(5)
    x, y, weights = draw.normal(size=(6, 2)), draw.random(6), np.full(6, 7.0)
    made = SquaredGradients(x, y, 2, intercept=INTERCEPT, weights=weights)
    norms = made.norms(draw.normal(size=(3, 1))) / wrong
    alone = [np.linalg.norm(made.weighted_sum(np.eye(6)[person])) for person in range(6)]
    assert np.all(alone <= norms * (1 + 1e-12)) == (wrong == 1.0)


def exact_task(seed=0, rows=600):
    """Records of a public table, as people have them: three columns of very different sizes."""
    draw = np.random.default_rng(seed)
    x = np.column_stack([draw.uniform(18, 90, rows), draw.uniform(0, 1e5, rows), draw.integers(0, 2, rows)])
    return x, 0.3 * x[:, 0] + 2e-4 * x[:, 1] - 5 * x[:, 2] + draw.normal(size=rows)


BOUNDS = ([18, 0, 0], [90, 1e5, 1])


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_without_noise_it_is_least_squares_and_ridge(alpha):
    """In the units of records and targets; the penalty is on scaled features, as a closed form has it."""
    x, y = exact_task()
    given = {"bounds_X": BOUNDS, "bounds_y": (-20, 60), "n_people": len(y), "alpha": alpha, "steps": 4000}
    model = LinearRegression(**given, learning_rate=0.3, descent=Descent(average=0.0), **NO_NOISE).fit(x, y)
    low, high = map(np.asarray, BOUNDS)
    scaled = (x - (low + high) / 2) / ((high - low) / 2 * np.sqrt(3) / 2)
    centred, targets = scaled - scaled.mean(axis=0), (y - 20) / 40
    theory = np.linalg.solve(centred.T @ centred / len(y) + alpha * np.eye(3), centred.T @ targets / len(y))
    np.testing.assert_allclose(model.coef_, 40 * theory / ((high - low) / 2 * np.sqrt(3) / 2), rtol=1e-3)
    assert model.predict(x).mean() == pytest.approx(y.mean(), rel=1e-3)
    if alpha == 0:
        plain = linear_model.LinearRegression().fit(x, y)
        np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-3)
        assert model.intercept_ == pytest.approx(plain.intercept_, rel=1e-2)


def test_without_noise_it_is_poisson_regression():
    """The coefficients of scikit-learn's, to a share of a percent."""
    draw = np.random.default_rng(1)
    x = draw.random((3000, 2)) * [10, 1]
    y = draw.poisson(np.exp(0.1 * x[:, 0] - x[:, 1] + 1))
    given = {"bounds_X": ([0, 0], [10, 1]), "bounds_y": (0, 50), "n_people": 3000, "steps": 3000}
    model = PoissonRegressor(**given, learning_rate=4.0, descent=Descent(average=0.0), **NO_NOISE).fit(x, y)
    plain = linear_model.PoissonRegressor(alpha=0, tol=1e-9, max_iter=2000).fit(x, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-2)
    np.testing.assert_allclose(model.predict(x[:9]), plain.predict(x[:9]), rtol=1e-2)


def test_columns_as_people_have_them_need_their_bounds():
    """An age and an income: chance without bounds, nearly the best there is with them."""
    x, target = exact_task(rows=4000)
    y = (target > np.median(target)).astype(int)
    common = {"classes": [0, 1], "n_people": 4000, "seed": 1}
    assert LogisticRegression(bounds_X=BOUNDS, **common).fit(x, y).score(x, y) > 0.95
    assert LogisticRegression(**common).fit(x, y).score(x, y) < 0.8


def test_private_regressions_are_near_the_exact_ones_at_epsilon_1():
    """4,000 people, default settings."""
    x, y = exact_task(rows=4000)
    model = LinearRegression(bounds_X=BOUNDS, bounds_y=(-20, 60), n_people=4000, seed=1).fit(x, y)
    assert model.score(x, y) > linear_model.LinearRegression().fit(x, y).score(x, y) - 0.01
    assert model.card_.epsilon == 1.0
    assert model.statement(3).used <= 1.0


def test_weights_move_the_model_and_are_from_public_knowledge():
    """A weight of a label is the same as that of its rows; what would read the data is refused."""
    x, target = exact_task()
    y = (target > np.quantile(target, 0.8)).astype(int)
    common = {"classes": [0, 1], "bounds_X": BOUNDS, "n_people": len(y), "seed": 1, "steps": 20}
    by_label = LogisticRegression(class_weight={1: 3.0}, **common).fit(x, y)
    by_row = LogisticRegression(**common).fit(x, y, sample_weight=np.where(y == 1, 3.0, 1.0))
    np.testing.assert_allclose(by_label.coef_, by_row.coef_, rtol=1e-9)
    assert by_label.predict(x).mean() > LogisticRegression(**common).fit(x, y).predict(x).mean()
    with pytest.raises(ArgumentError, match="how many rows have a label is private"):
        LogisticRegression(class_weight="balanced", **common).fit(x, y)
    for refused in ({2: 3.0}, "balanced", {0: -1.0}):
        with pytest.raises(ArgumentError, match=r"^class_weight.*; for example `class_weight.*`$") as told:
            LogisticRegression(class_weight=refused, **common).fit(x, y)
        written = {"class_weight": dict(refused) if isinstance(refused, dict) else {}}
        exec(str(told.value).split("`")[1], written)
        LogisticRegression(class_weight=written["class_weight"], **common).fit(x, y)
    for wrong in (np.ones(3), np.full(len(y), -1.0), np.full(len(y), np.nan)):
        with pytest.raises(DataError, match="sample_weight"):
            LogisticRegression(**common).fit(x, y, sample_weight=wrong)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: LinearRegression(), "bounds_y=None"),
        (lambda: LinearRegression(bounds_y=(3, 3)), "below the high"),
        (lambda: LinearRegression(bounds_y=(0, np.inf)), "bounds_y"),
        (lambda: PoissonRegressor(bounds_y=(1, 9)), "begin at 0"),
        (lambda: LinearRegression(bounds_y=(0, 9), bounds_X=(0, 0)), "below its high"),
        (lambda: LinearRegression(bounds_y=(0, 9), bounds_X=([0, 1], [2, 3])), "each of 3 features"),
        (lambda: LinearRegression(bounds_y=(0, 9), alpha=-1.0), "alpha"),
        (lambda: LinearRegression(bounds_y=(0, 9), learning_rate=0.0), "learning_rate"),
    ],
)
def test_wrong_bounds_are_refused_before_anybody_pays(made, words):
    """The error names the argument and the rule, and no model is there."""
    x, y = exact_task(rows=20)
    model = made().set_params(n_people=20)
    with pytest.raises(ArgumentError, match=words):
        model.fit(x, y)
    assert not hasattr(model, "card_")


def test_targets_that_are_no_numbers_are_refused_without_their_values():
    """A text or an infinite target; the message has none of them."""
    x, _ = exact_task(rows=20)
    for wrong in (np.array(["marker"] * 20, dtype=object), np.full(20, "marker")):
        with pytest.raises((DataError, ValueError)) as caught:
            LinearRegression(bounds_y=(0, 9), n_people=20).fit(x, wrong)
        assert "marker" not in str(caught.value)


def test_a_stream_takes_bounds_and_goes_on_with_them(tmp_path):
    """partial_fit scales as fit does; the folder keeps the bounds."""
    x, target = exact_task()
    y = (target > np.median(target)).astype(int)
    model = LogisticRegression(bounds_X=BOUNDS, classes=[0, 1], n_people=600, steps=3, epsilon=5.0, seed=1)
    model.partial_fit(x, y, people=range(600), folder=tmp_path / "m")
    again = LogisticRegression.resume(tmp_path / "m")
    assert again.bounds_X == [[18, 0, 0], [90, 1e5, 1]]
    np.testing.assert_array_equal(again.coef_, model.coef_)
    again.partial_fit(x, y, people=range(600))
    assert again.score(x, y) > 0.6


def test_a_penalty_is_paid_by_nobody():
    """It pulls parameters to zero by public numbers: the accounts are those of the sums alone."""
    x, y = np.ones((50, 1)), np.ones(50)
    people = individual.Filter(50, filters.Gaussian(mu=1.0))
    made = SquaredGradients(x, y, 2, intercept=0.0)
    step = mechanisms.Gaussian(10.0, 1.0)
    noise = np.random.default_rng(0)
    descend(made, made.start, people, step, steps=3, learning_rate=1e-9, divisor=50, noise=noise)
    spent = individual.Filter(50, filters.Gaussian(mu=1.0))
    for _ in range(3):
        spent.charge(step, np.ones(50))
    np.testing.assert_allclose(people.spent(), spent.spent(), rtol=1e-6)


REPEATED = "a row that is repeated is of another person, and a weight is of the same one"
NOT_ALL = "whether all weights are 0 is a fact about people: a model that nobody moved is released"
EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": REPEATED,
    "check_sample_weight_equivalence_on_sparse_data": REPEATED,
    "check_all_zero_sample_weights_error": NOT_ALL,
}


@pytest.mark.filterwarnings("ignore::almoner.errors.PrivacyWarning")  # the checks fit many copies
@parametrize_with_checks(
    [LinearRegression(bounds_y=(-100, 100), seed=0), PoissonRegressor(bounds_y=(0, 100), seed=0)],
    expected_failed_checks=lambda _: EXCEPTIONS,
)
def test_scikit_learns_conventions(estimator, check):
    """check_estimator passes, but for the exceptions above."""
    check(estimator)

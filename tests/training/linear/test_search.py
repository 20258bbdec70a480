"""The best of a random number of private trainings: what each run may cost, what is released, and what is refused."""

from math import inf

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler, TargetEncoder

from almoner import mechanisms as m
from almoner.curves import gaussian, tuning
from almoner.errors import ArgumentError, DataError
from almoner.filters import Gaussian
from almoner.training import LinearRegression, LogisticRegression, PrivateSearch
from almoner.training._linear import search as searching
from almoner.training._linear.search import Estimators

GRID = {"learning_rate": [1e-4, 8.0], "max_grad_norm": [0.5, 1.0]}


def people(count=400, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 2)) / 2
    return x, (x[:, 0] > 0).astype(int)


def times(x, factor):
    return x * factor


def one(**settings):
    return LogisticRegression(steps=10, classes=[0, 1], n_people=400, **settings)


@pytest.mark.slow
@pytest.mark.parametrize("held_out", [False, True])
def test_all_runs_and_all_scores_fit_the_promise(held_out):
    """One run's accounts and score are at most the mechanism that was priced, whose best of several costs (1, 1e-5)."""
    found = PrivateSearch(one(), GRID, epsilon=1.0, delta=1e-5, runs=7)._plan(held_out)
    assert tuning.epsilon(found.best, delta=1e-5) <= 1.0
    assert tuning.epsilon(found.best, delta=1e-5) > 0.99  # and nothing is wasted
    door = searching.Estimators(one())
    door.prepare([{}], found.training, 1e-5)
    squares = Gaussian(epsilon=door._models[0].epsilon, delta=1e-5).mu ** 2
    score = (found.score.sensitivity / found.score.sigma) ** 2
    priced = found.best.mechanism
    whole = 1 / priced.sigma**2
    assert (max(squares, score) if held_out else squares + score) <= whole
    assert squares + score * (not held_out) > 0.999 * whole
    if not held_out:
        assert score == pytest.approx(0.1 * whole, rel=1e-6)


def test_runs_that_each_spend_the_whole_budget_break_the_promise():
    """What free tuning hides: the best of ten expected runs at epsilon = 1 each is not (1, 1e-5)-DP by this price."""
    mu = gaussian.mu(epsilon=1.0, delta=1e-5)
    assert tuning.epsilon(m.BestOf(m.Gaussian(1 / mu), 10), delta=1e-5) > 1.5
    found = PrivateSearch(one(), GRID, runs=10)._plan(True)
    assert gaussian.epsilon(1 / found.training.sigma, delta=1e-5) < 0.75
    # yet one run has more than a share of a budget that ten runs add up to
    assert 1 / found.best.mechanism.sigma > 1.9 * mu / 10**0.5


def test_the_best_is_kept_and_nothing_tells_the_number_of_runs(monkeypatch):
    """Of six runs the one with the largest noisy score; no attribute changes with runs that are not the best."""
    scores, models, answers = iter([5, 9, 9, 2, 8, 1]), [], iter([0, 1, 2, 3, 0, 1])
    monkeypatch.setattr(searching.tuning, "draw_runs", lambda best, seed: 6)
    monkeypatch.setattr(Estimators, "right", lambda self, model, *judged: models.append(model) or next(scores))
    monkeypatch.setattr(PrivateSearch, "_noise", lambda self, sigma, number: 0)
    chosen = type("Chosen", (), {"randrange": lambda self, count: next(answers)})
    monkeypatch.setattr(searching, "SystemRandom", chosen)
    search = PrivateSearch(one(), GRID).fit(*people())
    assert len(models) == 6
    assert models[0].card_.epsilon < search.card_.epsilon == models[1].card_.epsilon
    assert search.best_estimator_ is models[1]  # the first of the best
    assert search.best_score_ == 9
    assert search.best_params_ == {"learning_rate": 1e-4, "max_grad_norm": 1.0}
    told = set(vars(search)) - set(search.get_params(deep=False))
    assert told == {"best_estimator_", "best_params_", "best_score_", "card_", "classes_", "n_features_in_"}
    assert "6" not in search.card_.tuned.split("by noisy counts")[0]


@pytest.mark.slow
def test_a_search_finds_what_works():
    """A learning rate that learns nothing is not the best; the card states the whole search."""
    x, y = people()
    search = PrivateSearch(one(), GRID, epsilon=4.0, runs=12, seed=7).fit(x, y)
    assert search.best_params_["learning_rate"] == 8.0
    assert search.score(x, y) > 0.8
    assert search.predict_proba(x).shape == (400, 2)
    assert (search.decision_function(x) > 0).astype(int).tolist() == search.predict(x).tolist()
    card = search.card_
    assert (card.epsilon, card.delta, card.reproducible) == (4.0, 1e-5, True)
    assert 0.5 < card.guess < 1
    text = card.to_markdown()
    assert "- **Tuning**: the best of a random number of runs (12 expected, geometric)" in text
    assert "in one run; all runs and the choice are (4, 1e-05)-DP" in text
    assert search.best_estimator_.card_ == card
    assert search.best_estimator_.epsilon < 4.0  # what one run may cost
    for private in ("accounts_", "holder_report_", "odometer_"):
        assert getattr(search.best_estimator_, private) is None
    with pytest.raises(ArgumentError, match="tuned model has no accounts"):
        search.best_estimator_.statement(0)
    again = clone(search).fit(x, y)
    np.testing.assert_array_equal(again.best_estimator_.coef_, search.best_estimator_.coef_)


@pytest.mark.slow
def test_held_out_people_pay_for_the_scores():
    """Models are scored on the other people, whose labels here say the opposite of what is learned."""
    x, y = people()
    judges = people(300, seed=1)
    search = PrivateSearch(one(), GRID, epsilon=8.0, runs=4, seed=1).fit(x, y, held_out=judges)
    turned = PrivateSearch(one(), GRID, epsilon=8.0, runs=4, seed=1).fit(x, y, held_out=(judges[0], 1 - judges[1]))
    assert search.best_score_ > 200 > turned.best_score_
    assert "other people pay for the scores" in search.card_.tuned
    with_groups = (*judges, np.arange(300) // 3)
    assert PrivateSearch(one(), GRID, runs=2, seed=1).fit(x, y, held_out=with_groups).best_score_ <= 200


def test_rows_of_nobody_score_no_model(monkeypatch):
    """Held-out rows without a name may be anybody's, who would count twice; refused before anything is trained."""
    monkeypatch.setattr(Estimators, "train", None)
    x, y = people(6)
    for groups in (["a", "b", "c", "d", "e", np.nan], [1.0, 2.0, 3.0, 4.0, 5.0, np.nan]):
        with pytest.raises(DataError, match="nobody"):
            PrivateSearch(one(), GRID).fit(x, y, held_out=(x, y, groups))


def test_one_person_moves_a_score_by_at_most_one():
    """With all of a person's rows; at least half of them right count."""
    x, y = people(60)
    owners = np.repeat(np.arange(20), 3)
    model, right = one(seed=1).fit(x, y), Estimators(one()).right
    whole = right(model, x, y, owners)
    for person in range(20):
        rest = owners != person
        assert whole - right(model, x[rest], y[rest], owners[rest]) in (0, 1)
    assert right(model, x, y, None) == int(np.sum(model.predict(x) == y))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"grid": {}}, "grid"),
        ({"grid": {"epsilon": [1.0, 2.0]}}, "grid='epsilon'"),
        ({"grid": {"learning_rate": []}}, "learning_rate"),
        ({"grid": {"learning_rate": [1.0, -1.0]}}, "learning_rate=-1.0"),
        ({"grid": {"average": [0.0]}}, "descent__average"),
        ({"grid": {"steps": range(1, 200), "learning_rate": range(1, 200)}}, "candidates"),
        ({"estimator": "svm"}, "estimator"),
        ({"estimator": LogisticRegression(noise_multiplier=1.0)}, "noise_multiplier"),
        ({"runs": 1.0}, "runs"),
        ({"runs": 5000.0}, "runs"),
        ({"shape": inf}, "shape"),
        ({"shape": -1.0}, "shape"),
        ({"scoring": abs}, "scoring"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"delta": 1e-13}, "delta"),
        ({"epsilon": 30.0}, "delta"),
        ({"seed": -1}, "seed"),
    ],
)
def test_what_breaks_a_rule_is_refused_before_data_are_touched(change, name):
    """The error names the argument; the data are no data at all."""
    search = PrivateSearch(**({"estimator": one(), "grid": GRID} | change))
    with pytest.raises(ArgumentError, match=name):
        search.fit("no rows", "no labels")


def test_a_pipeline_that_reads_no_data_is_searched():
    """Settings of its steps are candidates too; a step that would be fitted on people's data is nobody's budget."""
    x, y = people()
    pipeline = make_pipeline(FunctionTransformer(times, kw_args={"factor": 1.0}), one())
    name = "functiontransformer__kw_args"
    grid = {name: [{"factor": 0.0}, {"factor": 0.1}], "logisticregression__learning_rate": [4.0]}
    search = PrivateSearch(pipeline, grid, epsilon=8.0, runs=12, seed=3).fit(10 * x, y, np.arange(400) // 2)
    assert search.best_params_[name] == {"factor": 0.1}
    assert search.score(10 * x, y) > 0.9
    assert search.best_estimator_[-1].accounts_ is None
    assert search.best_estimator_[-1].card_ == search.card_
    assert search.predict_proba(x).shape == (400, 2)
    inside = make_pipeline(make_pipeline(FunctionTransformer()), one())
    encoded = make_pipeline(TargetEncoder(categories=[[0, 1]]), one())  # whose public categories get means of labels
    for estimator, grid, told in (
        (make_pipeline(StandardScaler(), one()), GRID, "nobody pays for that"),
        (encoded, {"logisticregression__steps": [5]}, "nobody pays for that"),
        (inside, {"pipeline__steps": [[("scale", StandardScaler())]]}, "nobody pays for that"),
        (pipeline, {"functiontransformer": [StandardScaler()]}, "a setting of a step"),
        (pipeline, {"logisticregression": [LinearRegression(bounds_y=(0, 1))]}, "a setting of a step"),
        (pipeline, {"steps": [[("only", one())]]}, "a setting of a step"),
        (pipeline, {"memory": [None]}, "a setting of a step"),
    ):
        with pytest.raises(ArgumentError, match=told):
            PrivateSearch(estimator, grid).fit("no rows", "no labels")


@pytest.mark.parametrize("held_out", [(people(5)[0], [0, 1]), (people(0)[0], []), (people(4)[0], people(4)[1], [1])])
def test_held_out_people_who_cannot_be_scored_are_refused(held_out):
    """Before anybody pays for a training."""
    search = PrivateSearch(one(), GRID, epsilon=8.0, runs=2)
    with pytest.raises(ArgumentError, match="held_out must be"):
        search.fit(*people(), held_out=held_out)
    assert not hasattr(search, "card_")


def test_a_pipeline_ends_in_a_search():
    """As it may in an estimator."""
    x, y = people()
    search = PrivateSearch(one(), {"learning_rate": [0.5, 4.0]}, epsilon=8.0, runs=2, seed=3)
    scaled = make_pipeline(FunctionTransformer(lambda x: x / 10), search).fit(10 * x, y)
    assert scaled.score(10 * x, y) > 0.9
    assert scaled[-1].card_.epsilon == 8.0


def test_a_regression_is_searched():
    """Its score is the people whose targets are near, and one person moves it by at most one."""
    x, _ = people(1000)
    y = 3 * x[:, 0] + 2
    model = LinearRegression(steps=30, n_people=1000, bounds_X=(-2, 2), bounds_y=(-1, 5))
    search = PrivateSearch(model, {"learning_rate": [1e-3, 1.0]}, epsilon=8.0, runs=12, seed=7).fit(x, y)
    assert search.best_params_ == {"learning_rate": 1.0}
    assert 0.9 * 1000 < search.best_score_ < 1.1 * 1000
    assert search.score(x, y) > 0.8
    assert not hasattr(search, "predict_proba")
    best, owners = search.best_estimator_, np.arange(1000) // 3
    right = Estimators(model).right
    whole = right(best, x, y, owners)
    for person in (0, 7, 333):
        without = right(best, x[owners != person], y[owners != person], owners[owners != person])
        assert 0 <= whole - without <= searching.PARTS
    assert right(best, x[:1], np.array([np.nan]), None) == 0

"""Wrappers of scikit-learn that spend or read beside the guarantee are told of once, with a line that works."""

import copy
import pickle
import re
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import BaggingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, StandardScaler

from almoner.errors import PrivacyWarning
from almoner.training import LinearRegression, LogisticRegression, PrivateSearch


def estimator(**options):
    return LogisticRegression(steps=3, classes=[0, 1], n_people=60, **options)


@pytest.fixture(name="data")
def fixture_data():
    x = np.random.default_rng(0).normal(size=(60, 2))
    return x, (x[:, 0] > 0).astype(int)


def told(work):
    """What is told of privacy while this works."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PrivacyWarning)
        work()
    return [str(each.message) for each in caught if issubclass(each.category, PrivacyWarning)]


@pytest.mark.parametrize(
    "before",
    [
        StandardScaler(),
        FeatureUnion([("plain", FunctionTransformer()), ("scaled", StandardScaler())]),
        ColumnTransformer([("scaled", StandardScaler(), [0])], remainder="passthrough"),
        Pipeline([("scaled", StandardScaler())]),
        OneHotEncoder(handle_unknown="ignore"),
    ],
)
def test_steps_that_read_the_data_before_a_private_estimator_are_told_of(data, before):
    """Means, scales and categories of the data are not paid for: one warning, and training goes on."""
    (words,) = told(lambda: make_pipeline(before, estimator()).fit(*data))
    assert "nobody pays for that" in words
    assert type(before).__name__.lower() in words


@pytest.mark.parametrize(
    "before",
    [
        FunctionTransformer(np.tanh),
        Normalizer(),
        "passthrough",
        FrozenEstimator(StandardScaler().fit(np.ones((3, 2)))),
        ColumnTransformer([("kept", "passthrough", [0]), ("row", Normalizer(), [0, 1])]),
        OneHotEncoder(categories=[[0.0, 1.0], [0.0, 1.0]], handle_unknown="ignore"),
    ],
)
def test_steps_that_read_nothing_are_not(data, before):
    """Functions of a row, frozen steps and categories that are given cost nothing."""
    assert told(lambda: make_pipeline(before, estimator()).fit(*data)) == []


def test_what_transforms_the_targets_is_told_of_if_it_reads_them(data):
    """The mean of people's targets is not paid for, either; a function of each target reveals nothing of others."""
    x, y = data
    models = [LinearRegression(steps=3, bounds_y=(-2, 2), n_people=60) for _ in range(2)]
    (words,) = told(lambda: TransformedTargetRegressor(models[0], transformer=StandardScaler()).fit(x, y))
    assert "'transformer'" in words
    assert "FrozenEstimator(StandardScaler()" in words
    assert not told(lambda: TransformedTargetRegressor(models[1], func=np.sqrt, inverse_func=np.square).fit(x, y))


def test_pipelines_of_pipelines_are_seen_and_others_are_not(data):
    """The estimator at the end counts, however deep; a pipeline that merely runs meanwhile does not."""
    deep = make_pipeline(StandardScaler(), make_pipeline(FunctionTransformer(), estimator()))
    assert len(told(lambda: deep.fit(*data))) == 1

    def within(x):
        estimator().fit(*data)
        return x

    assert told(lambda: make_pipeline(StandardScaler(), FunctionTransformer(within)).fit(data[0])) == []


def test_the_lines_of_the_warning_about_a_scaler_work(data):
    """Both are what a user would write, with public numbers, and are told of no more."""
    (words,) = told(lambda: make_pipeline(StandardScaler(), estimator()).fit(*data))
    frozen, formula = re.findall(r"make_pipeline\(.*?, model\)", words)
    names = {"X_public": np.random.default_rng(1).normal(size=(9, 2)), "low": -3.0, "high": 3.0}
    made = globals() | names | {"model": estimator()}
    for line in (frozen, formula):
        pipeline = eval(line, made)
        assert told(lambda pipeline=pipeline: pipeline.fit(*data)) == []
        assert set(pipeline.predict(data[0])) <= {0, 1}


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    "wrapped",
    [
        lambda one, x, y: cross_val_score(one, x, y, cv=3),
        lambda one, x, y: GridSearchCV(one, {"learning_rate": [0.1, 1.0]}, cv=2).fit(x, y),
        lambda one, x, y: BaggingClassifier(one, 2).fit(x, y),
        lambda one, x, y: CalibratedClassifierCV(one, cv=2).fit(x, y),
        lambda one, x, y: [clone(one).fit(x, y) for _ in range(3)],
        lambda one, x, y: [pickle.dumps(clone(one)) for _ in range(3)],  # as it is sent to other processes
    ],
)
def test_several_budgets_are_told_of_once(data, wrapped):
    """The second copy that is fitted warns, with its budget; the others are silent."""
    (words,) = told(lambda: wrapped(estimator(epsilon=0.7), *data))
    assert "a budget of its own (epsilon=0.7)" in words


@pytest.mark.slow
def test_copies_in_other_processes_are_told_of_here(data):
    """With n_jobs each copy is fitted by a worker; it counts when it is sent there."""
    assert len(told(lambda: cross_val_score(estimator(), *data, cv=3, n_jobs=2))) == 1


@pytest.mark.slow
def test_one_fit_is_told_of_by_nobody(data):
    """A model alone, its copy, what travels of it once it is fitted, and a search that pays for all of its runs."""
    one = estimator()
    assert told(lambda: one.fit(*data)) == []
    assert told(lambda: clone(one).fit(*data)) == []
    assert told(lambda: [pickle.loads(pickle.dumps(one)) for _ in range(3)]) == []
    assert told(lambda: [copy.copy(one) for _ in range(3)]) == []
    search = PrivateSearch(estimator(), {"learning_rate": [0.1, 1.0]}, runs=5, seed=1)
    assert told(lambda: search.fit(*data)) == []
    assert len(told(lambda: cross_val_score(search, *data, cv=3))) == 1


@pytest.mark.slow
def test_the_lines_of_the_warning_about_copies_work(data):
    """A search within one budget, and a score by other people."""
    (words,) = told(lambda: cross_val_score(estimator(), *data, cv=2))
    lines = re.findall(r"(PrivateSearch\(.*?\)\.fit\(X, y\)|model\.fit.*?y_others\))", words)
    X, y = data
    made = globals() | {"X": X[:40], "y": y[:40], "X_others": X[40:], "y_others": y[40:]}
    made |= {"model": estimator(), "estimator": estimator(), "grid": {"learning_rate": [0.1, 1.0]}}
    search, score = (eval(line, made) for line in lines)
    assert search.card_.epsilon == 1.0
    assert 0 <= score <= 1

"""`LogisticRegression.partial_fit`: the numbers of a stream of the same settings, the same accounts and refusals."""

import copy
import inspect
import pickle
from fractions import Fraction

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from almoner import filters, individual, mechanisms, training
from almoner.errors import ArgumentError, DataError, UnknownPerson, Unsupported
from almoner.training import Descent, LogisticRegression
from almoner.training._linear import partial
from almoner.training._linear.descent import INTERCEPT
from almoner.training._run import models as run_models
from almoner.training.saved_model import saved_statement
from forks import needs_fork, raises_in_fork

PEOPLE = ["ann", "bob", "cat", "dan", "eve"]
SIGMA = 4.0


def rows(update, classes=2):
    """Rows of some people in an update: everybody in turn, one with two rows."""
    rng = np.random.default_rng(update)
    ids = [person for number, person in enumerate(PEOPLE) if (number + update) % 3] + ["ann"]
    return rng.normal(size=(len(ids), 3)), rng.integers(0, classes, len(ids)), ids


def model(**options):
    settings = {"noise_multiplier": SIGMA, "learning_rate": 0.5, "steps": 3, "n_people": 4, "seed": 3}
    settings["max_grad_norm"] = 1.0
    return LogisticRegression(**(settings | {"classes": [0, 1]} | options))


def as_stream(columns, updates, **options):
    """The same by ``training.Stream``: a linear module that begins at zero, in double precision."""
    module = nn.Linear(4, columns, bias=False).double()  # the last feature is the constant of the intercept
    nn.init.zeros_(module.weight)

    def binary(scores, labels):
        return nn.functional.binary_cross_entropy_with_logits(scores[:, 0], labels.double(), reduction="none")

    loss = binary if columns == 1 else nn.CrossEntropyLoss(reduction="none")
    settings = {"noise_multiplier": SIGMA, "max_grad_norm": 1.0, "seed": 3} | options
    stream = training.Stream(module, loss, torch.optim.SGD(module.parameters(), lr=0.5), **settings)
    for update in range(updates):
        x, y, ids = rows(update, max(2, columns))
        stream.update(torch.tensor(np.hstack([x, np.full((len(x), 1), INTERCEPT)])), torch.tensor(y), ids, divisor=4.0)
    return stream


@pytest.mark.parametrize("columns", [1, 3])
def test_calls_are_the_updates_of_a_stream(columns, monkeypatch):
    """The same model and the same accounts, to rounding, while some people's budgets run out.

    Noise is drawn in one order for one column of parameters, and in another for several: there it is left out.
    """
    if columns > 1:
        monkeypatch.setattr(partial, "independent", lambda noise: lambda sums, sigma, rows: sums)
        monkeypatch.setattr(run_models.Processes, "noisy_total", lambda self, sums, sigma, generator: list(sums))
    classes, budget = list(range(max(2, columns))), {"epsilon": 2.0 if columns == 1 else 2.6, "delta": 1e-5}
    fitted = model(classes=classes, **budget)
    for update in range(8):
        assert fitted.partial_fit(*rows(update, len(classes))) is fitted
    stream = as_stream(columns, 8, budget=filters.Gaussian(**budget))
    weights = stream.module.weight.detach().numpy()
    np.testing.assert_allclose(fitted.coef_, weights[:, :3], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fitted.intercept_, INTERCEPT * weights[:, 3], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(fitted.accounts_.people.spent(PEOPLE), stream.accounts.spent(PEOPLE), rtol=1e-4)
    left = fitted.accounts_.people.left(PEOPLE)
    assert left.min() < 1e-6 < left.max()
    assert fitted.card_.to_dict() | {"why": ""} == stream.card().to_dict() | {"why": ""}
    assert fitted.n_iter_ == 8
    assert fitted.predict(rows(0)[0]).shape == (len(rows(0)[2]),)


def test_noise_is_that_of_a_stream_for_as_many_updates():
    """With steps=5 a person at the clip can be in five calls in full, and not in more."""
    planned = model(noise_multiplier=None, epsilon=1.0, delta=1e-6, steps=5).partial_fit(*rows(0))
    module = nn.Linear(3, 1)
    stream = training.Stream(
        module,
        nn.BCEWithLogitsLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=0.5),
        training.Target(epsilon=1.0, delta=1e-6),
        updates=5,
        max_grad_norm=1.0,
    )
    assert planned.card_.noise_multiplier == pytest.approx(stream.noise_multiplier, rel=1e-9)
    accounts = individual.Filter(["a"], filters.Gaussian(epsilon=1.0, delta=1e-6))
    step = mechanisms.Gaussian(planned.card_.sigma, 1.0)
    assert [bool(accounts.charge(step, np.ones(1))[0]) for _ in range(7)] == [True] * 5 + [False] * 2


def test_nobody_exceeds_the_budget_and_the_absent_pay_nothing():
    """In exact arithmetic, over calls with other people each time; who was never there has no account."""
    fitted = model(epsilon=0.3, noise_multiplier=1.0)
    most = Fraction(repr(filters.Gaussian(epsilon=0.3, delta=1e-5).left))
    for update in range(12):
        before = {person: fitted.accounts_.people.spent([person])[0] for person in PEOPLE} if update > 2 else {}
        x, y, ids = rows(update)
        fitted.partial_fit(x, y, ids)
        for person in set(before) - set(ids):
            assert fitted.accounts_.people.spent([person])[0] == before[person]
    assert all(Fraction(repr(float(each))) <= most for each in fitted.accounts_.people.spent())
    with pytest.raises(UnknownPerson):
        fitted.statement("nobody")
    assert 0 < fitted.statement("ann").used <= 1
    assert "ann" not in repr(fitted.accounts_) + repr(fitted) + fitted.card_.to_json()


def test_a_call_without_rows_is_noise_like_any_other():
    """It is released, also as the first one; it looks like one of people who can pay nothing."""
    x, y, ids = rows(0)
    models = []
    for count in (0, 3):
        fitted = model(epsilon=1e-9)
        fitted.partial_fit(x[:count], y[:count], ids[:count])
        models.append(fitted)
    assert models[0].n_iter_ == 1
    assert np.abs(models[0].coef_).min() > 0
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, atol=1e-4)


def test_what_is_refused_is_refused_before_anybody_pays():
    """With the argument and the rule; the accounts and the model stay as they were."""
    x, y, ids = rows(0)
    for options, more, why in (
        ({"classes": None}, {}, "classes must be given"),
        ({"n_people": None}, {}, "n_people or divisor"),
        ({"individual": False}, {}, "individual=False"),
        ({"descent": Descent(extra_steps=5)}, {}, "extra_steps=5"),
        ({"descent": Descent(momentum=0.5)}, {}, "momentum"),
        ({"descent": Descent(stop_when_inactive=0.5)}, {}, "stop_when_inactive"),
        ({"epsilon": -1.0}, {}, "epsilon"),
        ({"learning_rate": float("nan")}, {}, "learning_rate"),
        ({}, {"people": None}, "people must be given"),
        ({}, {"people": ids[:-1]}, "people"),
        ({}, {"people": [*ids[:-1], None]}, "people"),
        ({}, {"divisor": 0.0}, "divisor"),
        ({}, {"classes": [0, 2]}, "classes"),
    ):
        fitted = model(**options)
        with pytest.raises((ArgumentError, Unsupported), match=why):
            fitted.partial_fit(**({"X": x, "y": y, "people": ids} | more))
        assert not hasattr(fitted, "coef_")
    fitted = model().partial_fit(x, y, ids)
    spent, coefficients = fitted.accounts_.people.spent().copy(), fitted.coef_.copy()
    for settings in ({"noise_multiplier": 0.1}, {"epsilon": 9.0}, {"max_grad_norm": 2.0}, {"individual": False}):
        with pytest.raises(ArgumentError, match="as at the first call"):
            clone_of_settings(fitted, settings).partial_fit(x, y, ids)
        fitted.set_params(**{name: getattr(model(), name) for name in settings})
    with pytest.raises(ArgumentError, match="those of before"):
        fitted.partial_fit(x, y, ids, classes=[0, 1, 2])
    with pytest.raises(DataError, match="labels"):
        fitted.partial_fit(x, y + 7, ids)
    with pytest.raises(ValueError, match="features"):
        fitted.partial_fit(x[:, :2], y, ids)
    assert (fitted.accounts_.people.spent() == spent).all()
    assert (fitted.coef_ == coefficients).all()
    fitted.set_params(learning_rate=0.1, n_people=9).partial_fit(x, y, ids, classes=[1, 0])
    assert (fitted.card_.learning_rate, fitted.card_.divisor, fitted.n_iter_) == (0.1, 9.0, 2)


def clone_of_settings(fitted, settings):
    """The same model with other settings."""
    return fitted.set_params(**settings)


def test_budgets_are_not_copied():
    """A copy, a model that was read from a pickle, and one that fit made have no accounts to go on with."""
    x, y, ids = rows(0)
    fitted = model().partial_fit(x, y, ids)
    for copied in (pickle.loads(pickle.dumps(fitted)), copy.copy(fitted), copy.deepcopy(fitted), model().fit(x, y)):
        assert copied.predict(x).shape == y.shape
        with pytest.raises(ArgumentError, match="no accounts to go on with"):
            copied.partial_fit(x, y, ids)
    assert not hasattr(clone(fitted), "coef_")
    fitted.fit(x, y)
    with pytest.raises(ArgumentError, match="no accounts to go on with"):
        fitted.partial_fit(x, y, ids)


def test_accounts_are_saved_for_statements(tmp_path):
    """In a private file; what it tells a person is what the model tells."""
    fitted = model().partial_fit(*rows(0)).partial_fit(*rows(1))
    path = fitted.accounts_.save(tmp_path / "people")
    assert path.stat().st_mode & 0o777 == 0o600
    assert saved_statement(path, "ann").used == fitted.statement("ann").used
    x, y, _ = rows(0)
    fitted.partial_fit(x[:2], y[:2], [1, "1"])
    with pytest.raises(Unsupported, match="same as text"):
        fitted.accounts_.save(tmp_path / "mixed")


def test_texts_as_labels_and_sparse_rows():
    """Labels of any kind, and CSR matrices, as in fit."""
    from scipy import sparse

    x, y, ids = rows(0)
    fitted = model(classes=None).partial_fit(
        sparse.csr_matrix(x), np.array(["no", "yes"])[y], ids, classes=["yes", "no"]
    )
    dense = model(classes=["no", "yes"]).partial_fit(x, np.array(["no", "yes"])[y], ids)
    np.testing.assert_allclose(fitted.coef_, dense.coef_)
    assert fitted.classes_.tolist() == ["no", "yes"]


def test_scikit_learns_conventions_for_calls():
    """y comes second, another number of features is refused, and a call returns the estimator: what the checks ask for
    that cannot say who comes."""
    x, y, ids = rows(0)
    fitted = model(classes=None)
    assert list(inspect.signature(fitted.partial_fit).parameters)[:3] == ["X", "y", "people"]
    assert fitted.partial_fit(x, y, ids, classes=[0, 1]) is fitted
    assert fitted.n_features_in_ == 3
    for method in (fitted.predict, fitted.predict_proba, fitted.decision_function):
        with pytest.raises(ValueError, match="features"):
            method(x[:, :2])
    with pytest.raises(ValueError, match="features"):
        fitted.partial_fit(x[:, :2], y, ids)
    with pytest.raises(ValueError, match="inconsistent"):
        fitted.partial_fit(x, y[:-1], ids)
    assert fitted.n_iter_ == 1


@needs_fork
def test_a_forked_process_may_not_go_on():
    """Two processes would draw the same noise, and spend the same accounts."""
    fitted = model().partial_fit(*rows(0))
    assert raises_in_fork(ArgumentError, lambda: fitted.partial_fit(*rows(1)))
    assert fitted.partial_fit(*rows(1)).n_iter_ == 2

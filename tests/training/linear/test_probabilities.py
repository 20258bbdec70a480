"""Probabilities of linear classifiers: what the clip does to them is undone, without any data."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.special import softmax

from almoner.errors import DataError
from almoner.training import LogisticRegression, saved_model
from almoner.training._linear.descent import ARRIVED, KEPT, LinearModel, probabilities
from almoner.training._linear.model_folder import ModelFolder

LENGTHS = np.array([0.5, 1.0, 1.5, 2.0])
SHARES = {
    2: np.array([[0.98, 0.02], [0.35, 0.65], [0.8, 0.2], [0.1, 0.9]]),
    3: np.array([[0.9, 0.07, 0.03], [0.2, 0.7, 0.1], [0.15, 0.25, 0.6], [0.05, 0.05, 0.9]]),
}
EACH = 2000
"""People of each of four kinds, who have one feature of their own: so the model can tell the shares of each."""


def kinds(classes):
    """Features (rows, 4) of so many people of each kind, whose records are of different lengths, and their labels."""
    counts = np.rint(EACH * SHARES[classes]).astype(int)
    y = np.concatenate([np.repeat(np.arange(classes), each) for each in counts])
    return sparse.csr_matrix(np.repeat(np.diag(LENGTHS), EACH, axis=0)), y


def trained(classes, clip, **settings):
    """A model with next to no noise, which has arrived."""
    how = {"epsilon": 1e3, "fit_intercept": False, "n_people": 4 * EACH, "steps": 3000, "learning_rate": 4.0}
    model = LogisticRegression(classes=range(classes), max_grad_norm=clip, seed=0, **how | settings)
    x, y = kinds(classes)
    return model.fit(x, y)


def alone(model):
    """Probabilities of each kind by the scores alone."""
    return probabilities(model._scores(np.diag(LENGTHS)))


@pytest.mark.parametrize("clip", [0.1, 0.3, 10.0])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_the_shares_of_labels_whatever_the_clip(classes, clip):
    """A model that has arrived knows how frequent a label is among people who are alike, though all were clipped."""
    model = trained(classes, clip)
    told, scores = model.predict_proba(np.diag(LENGTHS)), alone(model)
    share = model.arrived_ * (1 - KEPT)
    assert share > 0.85 or clip > 1
    undone = (told - (1 - share) * scores) / share if clip < 1 else told
    assert np.abs(undone - SHARES[classes]).max() < 0.01
    if clip < 1:
        assert np.abs(scores - SHARES[classes]).max() > 0.1  # too sure, without it
        assert np.abs(told - SHARES[classes]).max() < 0.5 * np.abs(scores - SHARES[classes]).max()
    else:
        np.testing.assert_allclose(told, scores, atol=1e-12)


@pytest.mark.parametrize("columns", [1, 3, 7])
def test_the_order_of_classes_is_that_of_the_scores(columns):
    """Whatever the length of a record, shares are numbers that add up to 1, and the likeliest class stays so."""
    rng = np.random.default_rng(0)
    for scale in (0.1, 3.0, 40.0, 1e4):
        scores = rng.normal(0, scale, size=(5000, columns))
        lengths = 10.0 ** rng.uniform(-3, 400, size=5000).clip(max=307) * rng.choice([1.0, 10.0], size=5000)
        told, plain = probabilities(scores, lengths), probabilities(scores)
        assert np.isfinite(told).all()
        assert (told >= 0).all()
        np.testing.assert_allclose(told.sum(axis=1), 1.0, rtol=1e-12)
        np.testing.assert_array_equal(told.argmax(axis=1), plain.argmax(axis=1))
        np.testing.assert_array_less(-1e-15, np.diff(np.take_along_axis(told, plain.argsort(axis=1), 1), axis=1))


def test_scores_are_logs_of_probabilities():
    """Decisions, probabilities and predictions agree; one record's do not depend on who else is asked about."""
    for classes in SHARES:
        model, x = trained(classes, 0.3, steps=50), np.diag(LENGTHS)
        scores, told = model.decision_function(x), model.predict_proba(x)
        pairs = scores if classes > 2 else np.stack([np.zeros(4), scores], axis=1)
        np.testing.assert_allclose(softmax(pairs, axis=1), told, rtol=1e-9)
        np.testing.assert_array_equal(model.predict(x), told.argmax(axis=1))
        np.testing.assert_array_equal(model.predict_proba(x[2:3]), told[2:3])
        assert np.isfinite(model.decision_function(1e6 * x)).all()


def test_weighted_classes_have_the_probabilities_of_the_scores():
    """Weights change which gradients are clipped: what the scores say is told as it is."""
    model = trained(2, 0.3, steps=50, class_weight={0: 2.0})
    np.testing.assert_array_equal(model.predict_proba(np.diag(LENGTHS)), alone(model))


def test_a_saved_model_tells_the_same(tmp_path):
    """The folder holds the clip; one of an older version, which has none, tells what the scores say."""
    from almoner.training.tables import Schema

    columns = {name: {"low": 0, "high": 9} for name in ("age", "far")}
    schema = Schema.parse({"target": "y", "classes": ["no", "yes"], "people": 500, "columns": columns})
    rows = "".join(f"{k % 10},{k % 7},{'yes' if (k * k) % 10 + k % 7 > 8 else 'no'}\n" for k in range(500))
    data = tmp_path / "people.csv"
    data.write_text("age,far,y\n" + rows)
    trained = saved_model.train(data, schema, seed=1, max_grad_norm=0.1)
    model = replace(trained.model, arrived=0.5)
    trained = replace(trained, model=model)
    saved_model.save(trained, tmp_path / "model")
    told = saved_model.load(tmp_path / "model").predict_proba(data)
    assert model.clip == 0.1
    np.testing.assert_array_equal(told, model.predict_proba(data))
    plain = replace(model, arrived=0.0).predict_proba(data)
    assert np.abs(told - plain).max() > 0.01
    for arrived, found in (("none", plain), (-1.0, None), ("0.1", None), (1.5, None)):
        held = ModelFolder.read(tmp_path / "model", "logistic regression")
        fields = dict(held.fields) | {"arrived": arrived}
        if arrived == "none":
            del fields["arrived"]
        replace(held, fields=fields).write(tmp_path / "other", force=True)
        if found is None:
            with pytest.raises(DataError):
                saved_model.load(tmp_path / "other")
        else:
            np.testing.assert_array_equal(saved_model.load(tmp_path / "other").predict_proba(data), found)
    assert json.loads((tmp_path / "model" / "model.json").read_text())["arrived"] == model.arrived


def test_scores_that_still_grow_are_told_as_they_are():
    """Few steps on labels that are easy to tell apart: the scores are not yet sure enough, and nothing is undone."""
    x, y = kinds(2)
    easy = (x.toarray().argmax(axis=1) > 1).astype(int)
    for steps, arrived in ((5, 0.0), (3000, None)):
        model = LogisticRegression(
            epsilon=1e3, classes=[0, 1], fit_intercept=False, n_people=len(y), steps=steps, learning_rate=4.0, seed=0
        ).fit(x, easy)
        if arrived is not None:
            assert model.arrived_ == arrived
            np.testing.assert_array_equal(model.predict_proba(np.diag(LENGTHS)), alone(model))


def test_noise_that_hides_whether_scores_grow_leaves_them_alone():
    """The slope in the size of all scores is that of public sums; half its noise counts against having arrived."""
    model = LinearModel(np.array([[1.0]]), 1e-9)
    model.step([np.array([[0.0]])], 1.0)
    assert model.arrived(0.0) == 1.0
    assert model.arrived(ARRIVED) == pytest.approx(0.5)
    assert model.arrived(3 * ARRIVED) == 0.0
    model = LinearModel(np.array([[2.0]]), 1e-9)
    model.step([np.array([[-ARRIVED / 4]])], 1.0)  # a gradient that makes the score larger
    assert model.arrived(0.0) == pytest.approx(0.5)


def test_a_stream_tells_what_its_scores_say():
    """Each call of partial_fit is one step, which says nothing of where the scores come to rest."""
    x, y = kinds(2)
    model = LogisticRegression(epsilon=10.0, steps=5, max_grad_norm=0.3, fit_intercept=False, seed=0)
    model.partial_fit(x, y, people=range(len(y)), classes=[0, 1], divisor=float(len(y)))
    assert model.arrived_ == 0.0
    np.testing.assert_array_equal(model.predict_proba(np.diag(LENGTHS)), alone(model))


def test_recorded_log_losses_are_below_those_of_the_scores():
    """On six tables of people and four that are easy: below where people were clipped, and hardly ever above."""
    text = (Path(__file__).parents[3] / "experiments/results/defaults.jsonl").read_text("utf-8")
    rows = [row for row in map(json.loads, text.splitlines()) if row["stage"] == "log loss" and row["epsilon"]]
    apart = {}
    for row in rows:
        apart.setdefault((row["data"], row["epsilon"], row["people"]), []).append(row["score"][0] - row["score"][1])
    assert len(apart) == 30
    for (_, epsilon, people), each in apart.items():
        most = 0.0005 if people > 410 else 0.01 if epsilon >= 1 else 0.04  # few people: noise hides whether scores grow
        assert np.mean(each) < most
    assert sum(np.mean(each) < -0.002 for each in apart.values()) >= 13

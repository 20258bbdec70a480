"""The three-line door: from images to a private model, and what it refuses before anything is charged."""

import pickle

import numpy as np
import pytest

from almoner.errors import ArgumentError, DataError
from almoner.training.images import image_classifier
from almoner.training.images.drawings import Scenes, Strokes
from almoner.training.images.features import Patches, Scattering, cached
from almoner.training.images.image_classifier import ImageClassifier


def crosses_and_bars(count=300, seed=0, side=16):
    """Upright and level bars on black, with grain: (count, side, side) uint8 and labels."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(2, size=count)
    images = draw.integers(0, 30, (count, side, side)).astype(np.uint8)
    for image, label, place in zip(images, labels, draw.integers(5, 10, count), strict=True):
        image[(slice(3, 13), slice(place, place + 2)) if label else (slice(place, place + 2), slice(3, 13))] = 220
    return images, labels


def classifier(**options):
    """Quick settings."""
    chosen = {"epsilon": 3.0, "classes": [0, 1], "n_people": 300, "kind": Strokes(60), "dimensions": 30, "seed": 1}
    return ImageClassifier(**{**chosen, **options})


def test_three_lines_make_a_private_model_of_images(tmp_path):
    """It learns what tells the images apart, its card says the budget, and what was cached is not computed again."""
    images, labels = crosses_and_bars()
    model = classifier(folder=tmp_path).fit(images, labels)
    others, expected = crosses_and_bars(seed=1)
    assert np.mean(model.predict(others) == expected) > 0.9
    assert model.predict_proba(others[:2]).shape == (2, 2)
    assert (model.card_.epsilon, model.card_.delta) == (3.0, 1e-5)
    assert model.card_.momentum == 0.8
    files = sorted(tmp_path.iterdir())
    again = classifier(folder=tmp_path).fit(images, labels)
    assert np.array_equal(again.model_.coef_, model.model_.coef_)
    assert sorted(tmp_path.iterdir()) == files


def test_bytes_and_fractions_are_the_same_images():
    """uint8 from 0 to 255 and floats from 0 to 1 give the same model; a copy predicts the same and has no accounts."""
    images, labels = crosses_and_bars(60)
    one = classifier().fit(images, labels)
    other = classifier().fit((images / 255).astype(np.float32)[:, None], labels)
    assert np.allclose(one.model_.coef_, other.model_.coef_, atol=1e-4)
    copy = pickle.loads(pickle.dumps(one))
    assert np.array_equal(copy.predict(images), one.predict(images))
    assert not hasattr(copy.model_, "accounts_")


def test_images_of_one_person_are_charged_to_that_person():
    """With groups the accounts are those of people, and the card says so."""
    images, labels = crosses_and_bars(60)
    model = classifier().fit(images, labels, np.arange(60) // 3)
    assert model.card_.people_from == "group"


def test_more_people_or_more_budget_mean_more_steps():
    """Steps follow the budget times the number of people, and nothing else."""
    one = image_classifier.settings(epsilon=0.3, delta=1e-5, n_people=60_000)
    assert one["steps"] == 40
    assert image_classifier.settings(epsilon=0.3, delta=1e-5, n_people=6_000)["steps"] < 40
    assert image_classifier.settings(epsilon=3.0, delta=1e-5, n_people=60_000)["steps"] > 100
    assert image_classifier.settings(epsilon=100.0, delta=1e-5, n_people=10**9)["steps"] == image_classifier.MOST_STEPS
    assert image_classifier.settings(epsilon=0.01, delta=1e-5, n_people=1)["steps"] == 1


def test_photographs_have_features_of_patches_and_others_scattering():
    """The kind of drawings chooses features, their number, and the rate, which is that of CIFAR-10's best trials."""
    scenes, strokes = (
        image_classifier.features_for(Scenes(3000), (32, 32)),
        image_classifier.features_for(Strokes(), (28, 28)),
    )
    assert isinstance(scenes.transform, Patches)
    assert isinstance(strokes.transform, Scattering)
    assert (scenes.dimensions, strokes.dimensions) == (2000, 500)
    assert image_classifier.features_for(Strokes(60), (28, 28)).dimensions == 59
    of_scenes = [image_classifier.settings(epsilon=e, delta=1e-5, n_people=50_000, kind="scenes") for e in (1, 2, 3, 8)]
    assert [each["learning_rate"] for each in of_scenes] == [100.0, 250.0, 250.0, 250.0]
    assert [each["steps"] for each in of_scenes] == [71, 106, 133, 226]
    with pytest.raises(ArgumentError, match="kind"):
        image_classifier.settings(epsilon=1, delta=1e-5, n_people=100, kind="cats")


def test_features_that_are_kept_are_read_again(tmp_path):
    """With a folder they are computed once; without, they are the same and nothing is left."""
    images = crosses_and_bars(5)[0][:, None]
    transform = image_classifier.features_for(Strokes(30), (16, 16))
    kept = cached(transform, images, tmp_path)
    assert np.array_equal(kept, cached(transform, images, None))
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("images", "word"),
    [
        (np.zeros((4, 16), np.uint8), "shape"),
        (np.zeros((0, 16, 16), np.uint8), "shape"),
        (np.zeros((4, 16, 16, 3), np.uint8), "channels before"),
        (np.zeros((4, 16, 16), np.int64), "int64"),
        (np.full((4, 16, 16), 255.0), "from 0 to 1"),
        (np.full((4, 16, 16), np.nan), "from 0 to 1"),
        (np.full((4, 16, 16), -0.1), "from 0 to 1"),
        (np.zeros((4, 6, 16), np.uint8), "shape"),
        (np.zeros((3, 16, 16), np.uint8), "labels"),
    ],
)
def test_images_of_wrong_shape_or_range_are_refused_before_anything_is_charged(images, word):
    """The error names the argument and the rule, and there is no model and no account."""
    model = classifier()
    with pytest.raises(ArgumentError, match=word):
        model.fit(images, np.zeros(4, int))
    assert not hasattr(model.model_, "accounts_")
    assert not hasattr(model.model_, "coef_")


def test_labels_and_images_that_were_not_declared_are_refused():
    """A label that is not a class, images of another shape than in fit, and a model that was not fitted."""
    images, labels = crosses_and_bars(20)
    with pytest.raises(DataError, match="labels"):
        classifier().fit(images, labels + 1)
    with pytest.raises(ArgumentError, match="fit first"):
        classifier().predict(images)
    fitted = classifier().fit(images, labels)
    with pytest.raises(ArgumentError, match="1, 16, 16"):
        fitted.predict(np.zeros((2, 16, 17), np.uint8))


@pytest.mark.parametrize(
    ("options", "word"),
    [({"epsilon": -1.0}, "epsilon"), ({"delta": 1.0}, "delta"), ({"n_people": 0}, "n_people"), ({"kind": "x"}, "kind")],
)
def test_arguments_that_make_no_sense_are_refused(options, word):
    """The error names the argument."""
    with pytest.raises(ArgumentError, match=word):
        classifier(**options)

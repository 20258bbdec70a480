"""From images in a file or a folder to a model in a folder, and back."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from almoner.errors import ArgumentError, DataError
from almoner.training import saved_model
from model_folders import rewrite, weights
from pictures import NAMES, bars, drawn, folder_of

OPTIONS = {"classes": NAMES, "people": 200, "kind": "strokes", "drawings": 60, "epsilon": 3.0}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a model in ``m``, what training gave, and the numbers of its steps."""
    folder, steps = tmp_path_factory.mktemp("made"), []
    path = bars(folder / "a.npz")
    trained = saved_model.train_images_to_folder(
        path, folder / "m", test=path, observe=lambda number, _: steps.append(number), **OPTIONS
    )
    return folder, trained, steps


@pytest.mark.slow
def test_one_call_trains_and_saves_a_model_that_predicts_the_same(made, tmp_path):
    """The folder holds the model, its card and its metrics; loaded, it is right about other images, in either form."""
    folder, trained, steps = made
    assert trained.card.epsilon == 3.0
    assert steps == list(range(1, trained.card.steps + 1))
    card = (folder / "m" / "card.md").read_text()
    assert "pictures that a public rule draws" in card
    assert "given by the caller" in card
    assert json.loads((folder / "m" / "metrics.json").read_text())["accuracy"] == trained.metrics["accuracy"] > 0.9
    loaded = saved_model.load(folder / "m")
    assert loaded.classes == NAMES
    images, labels = drawn(50, seed=1)
    np.savez(tmp_path / "others.npz", images=images)
    found = loaded.predict_proba(tmp_path / "others.npz")
    assert np.mean(found.argmax(axis=1) == labels) > 0.9
    assert np.allclose(found, loaded.predict_proba(folder_of(tmp_path / "flat", images)))
    assert np.allclose(found, trained.model.predict_proba(tmp_path / "others.npz"), atol=1e-6)
    assert loaded.predict(tmp_path / "others.npz") == [NAMES[code] for code in found.argmax(axis=1)]


def test_images_of_one_person_are_one_person(tmp_path):
    """With people in the file the accounts are theirs; without, each image is a person."""
    images, labels = drawn(60)
    names = np.repeat([f"p{number}" for number in range(30)], 2)
    path = bars(tmp_path / "a.npz", images=images, labels=labels, people=names)
    trained = saved_model.train_images_to_folder(path, tmp_path / "m", keep_accounts=True, **{**OPTIONS, "people": 30})
    assert trained.card.people_from == "group"
    assert 0 < saved_model.statement(tmp_path / "m", "p7").used <= 1
    with pytest.raises(ArgumentError, match="exists already"):
        saved_model.train_images_to_folder(path, tmp_path / "m", force=True, **OPTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["objects", "scenes"])
def test_the_other_kinds_in_colour_come_back_as_they_were(tmp_path, kind):
    """Features of patches, too, are the same after loading; one image alone has the probabilities it had among all."""
    images, labels = drawn(20)
    colour = np.repeat(images[..., None], 3, axis=3)
    path = bars(tmp_path / "a.npz", images=colour, labels=labels)
    trained = saved_model.train_images_to_folder(path, tmp_path / "m", **{**OPTIONS, "kind": kind, "drawings": 30})
    found = saved_model.load(tmp_path / "m").predict_proba(path)
    assert np.allclose(found, trained.model.predict_proba(path), atol=1e-6)
    np.savez(tmp_path / "one.npz", images=colour[5:6])
    assert np.allclose(found[5:6], saved_model.load(tmp_path / "m").predict_proba(tmp_path / "one.npz"), atol=1e-5)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"classes": ("level",)}, "at least two"),
        ({"classes": ("level", "level")}, "each once"),
        ({"classes": ("level", " upright")}, "blanks"),
        ({"classes": ("a", "b/c")}, "slash"),
        ({"kind": "cats"}, "kind="),
        ({"people": 0}, "n_people=0"),
        ({"epsilon": float("nan")}, "epsilon"),
        ({"drawings": 1}, "count=1"),
        ({"dimensions": 60}, "dimensions=60"),
        ({"shape": (1, 28, 28)}, "28x28"),
        ({"test": "absent.npz"}, "absent.npz"),
    ],
)
def test_what_breaks_a_rule_is_refused_before_any_step(tmp_path, monkeypatch, options, word):
    """The error names the argument and the rule; no step is taken, and there is no folder."""
    monkeypatch.chdir(tmp_path)
    path = bars(tmp_path / "a.npz")
    if "test" in options:
        options = {"test": Path(options["test"])}
    with pytest.raises((ArgumentError, DataError), match=word):
        saved_model.train_images_to_folder(path, tmp_path / "m", observe=pytest.fail, **{**OPTIONS, **options})
    assert not (tmp_path / "m").exists()


def test_a_label_that_is_no_class_is_refused_before_any_step(tmp_path):
    """More classes than were stated: no model, and the label is not told."""
    images, labels = drawn(20)
    labels[3] = 77
    with pytest.raises(DataError, match="from 0 to 1") as error:
        saved_model.train_images_to_folder(
            bars(tmp_path / "a.npz", images=images, labels=labels), tmp_path / "m", observe=pytest.fail, **OPTIONS
        )
    assert "77" not in str(error.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("damage", ["classes", "shape", "drawings", "dimensions", "features", "format", "axes", "coef"])
def test_a_damaged_folder_is_refused(made, tmp_path, damage):
    """Whatever part is missing, or does not fit the others, loading says so."""
    shutil.copytree(made[0] / "m", tmp_path / "m")
    if damage in ("axes", "coef"):
        arrays = weights(tmp_path / "m")
        rewrite(tmp_path / "m", arrays | {damage: arrays[damage][:, :-1]})
    else:
        rewrite(tmp_path / "m", **{damage: {"classes": ["a"], "shape": [1, 28, 28], "dimensions": 11}.get(damage, "x")})
    with pytest.raises(DataError, match="m"):
        saved_model.load(tmp_path / "m")

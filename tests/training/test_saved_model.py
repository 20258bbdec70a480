"""From a file with a table to a folder with a model, and back."""

import tomllib

import numpy as np
import pytest

from age_files import age_folder
from almoner.errors import ArgumentError
from almoner.training import saved_model


@pytest.fixture
def folder(tmp_path):
    return age_folder(tmp_path)


def test_one_call_trains_and_saves(folder):
    """The folder holds the model that was trained; steps are reported; what is there is refused before any step."""
    numbers = []
    files = {"target": "bought", "schema": folder / "schema.toml"}
    trained = saved_model.train_to_folder(
        folder / "data.csv",
        folder / "model",
        **files,
        observe=lambda number, _: numbers.append(number),
        epsilon=4.0,
        steps=20,
    )
    assert numbers == list(range(1, 21))
    loaded = saved_model.load(folder / "model")
    np.testing.assert_array_equal(loaded.coef, trained.model.coef)
    assert trained.card.epsilon == 4.0
    with pytest.raises(ArgumentError, match="exists already"):
        saved_model.train_to_folder(folder / "data.csv", folder / "model", **files, observe=pytest.fail)


def test_metrics_are_for_the_owner_and_stand_in_no_repr(folder):
    """They are as private as the held-out file; the folder that they are in is open to all."""
    trained = saved_model.train_to_folder(
        folder / "data.csv",
        folder / "model",
        target="bought",
        schema=folder / "schema.toml",
        test=folder / "data.csv",
        steps=1,
    )
    assert (folder / "model" / "metrics.json").stat().st_mode & 0o777 == 0o600
    assert (folder / "model" / "card.json").stat().st_mode & 0o777 != 0o600
    assert str(trained.metrics["log_loss"]) not in repr(trained)


def test_a_template_holds_the_names_of_the_columns_only(folder):
    """It can be parsed, and nothing of the rows is in it; unknown columns are named."""
    text = saved_model.schema_template(folder / "data.csv", target="bought")
    assert set(tomllib.loads(text)["columns"]) == {"age"}
    with pytest.raises(ArgumentError, match="no column 'sold'"):
        saved_model.schema_template(folder / "data.csv", target="sold")
    with pytest.raises(ArgumentError, match="no column 'who'"):
        saved_model.schema_template(folder / "data.csv", target="bought", person="who")

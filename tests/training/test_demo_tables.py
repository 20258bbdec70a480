"""The tasks of the demonstration."""

import numpy as np

from almoner.training import demo_tables
from data_folders import DATA, needs


def test_digits_are_split_and_scaled():
    """Ten classes, a quarter kept for the test, features bounded by how they are made."""
    task = demo_tables.digits()
    assert (task.classes, len(task.train[1]) + len(task.test[1])) == (10, 1797)
    assert len(task.test[1]) == 449
    assert np.asarray(task.train[0]).max() <= 0.25
    assert task.accuracy_without_privacy() > 0.9


@needs("adult")
def test_the_folder_of_adult_is_the_given_one_or_where_data_are_kept(tmp_path, monkeypatch):
    """Both files must be there; a folder that is given is the only one that is looked at."""
    monkeypatch.setenv("ALMONER_DATA", str(tmp_path))
    assert demo_tables.adult() is None
    (tmp_path / "adult").mkdir()
    (tmp_path / "adult" / "adult.data").symlink_to(DATA / "adult" / "adult.data")
    assert demo_tables.adult() is None
    (tmp_path / "adult" / "adult.test").symlink_to(DATA / "adult" / "adult.test")
    assert demo_tables.adult() is not None
    assert demo_tables.adult(tmp_path) is None


@needs("adult")
def test_adult_has_the_known_sizes():
    """32,561 people to learn from and 16,281 to judge by."""
    task = demo_tables.adult(DATA / "adult")
    assert (task.classes, len(task.train[1]), len(task.test[1])) == (2, 32_561, 16_281)

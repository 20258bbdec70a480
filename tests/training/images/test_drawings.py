"""Drawings: pictures by a public rule, the same each time."""

import numpy as np
import pytest

from almoner.errors import ArgumentError
from almoner.training.images.drawings import Scenes, Shapes, Strokes


@pytest.mark.parametrize("kind", [Strokes, Shapes, Scenes])
def test_a_seed_gives_the_same_pictures_and_another_seed_others(kind):
    """Pictures are from 0 to 1, of the shape that is asked for, no two are the same, and the seed decides."""
    pictures = kind(20, seed=3).images((12, 16), 3)
    assert pictures.shape == (20, 3, 12, 16)
    assert pictures.dtype == np.float32
    assert pictures.min() >= 0
    assert pictures.max() <= 1
    assert len(np.unique(pictures.reshape(20, -1), axis=0)) == 20
    assert np.array_equal(pictures, kind(20, seed=3).images((12, 16), 3))
    assert not np.array_equal(pictures, kind(20, seed=4).images((12, 16), 3))


def test_strokes_are_in_the_middle_on_black():
    """The mass of every picture is within a pixel of the middle, and most of it is black."""
    pictures = Strokes(30).images((28, 28))[:, 0].astype(float)
    places = np.arange(28) + 0.5
    mass = pictures.sum(axis=(1, 2))
    assert np.abs(pictures.sum(axis=2) @ places / mass - 14).max() < 1.6
    assert np.abs(pictures.sum(axis=1) @ places / mass - 14).max() < 1.6
    assert np.mean(pictures == 0) > 0.6


def test_scenes_cover_the_picture_and_shapes_leave_black():
    """Dead leaves fill nearly everything; shapes around the middle leave corners black."""
    assert np.mean(Scenes(30).images((32, 32), 3) > 0) > 0.9
    assert np.mean(Shapes(30).images((28, 28))[:, 0, 0, 0] == 0) > 0.6


def test_numbers_that_make_no_sense_are_refused():
    """The error names the argument."""
    with pytest.raises(ArgumentError, match="count"):
        Strokes(1)
    with pytest.raises(ArgumentError, match="seed"):
        Strokes(10, seed=-1)
    with pytest.raises(ArgumentError, match="shape"):
        Strokes(10).images((4, 28))
    with pytest.raises(ArgumentError, match="channels"):
        Shapes(10).images((28, 28), 0)

"""Features of patches: against a naive loop, mirrored, record by record, and what is refused."""

import numpy as np
import pytest
import torch

from almoner.errors import ArgumentError
from almoner.training.images.drawings import Scenes
from almoner.training.images.features import Patches


def patches(**options):
    """Small settings for 12 x 12 pixels."""
    chosen = {"shape": (12, 12), "drawings": Scenes(20), "filters": 6, "size": 4, "stride": 2, "cells": 3}
    return Patches(**{**chosen, **options})


def naive(transform, image):
    """(2 * filters, cells, cells) of one image: patch by patch, filter by filter."""
    size, stride = transform.size, transform.stride
    products = transform.products.double().numpy()
    positions = (image.shape[1] - size) // stride + 1
    table = np.zeros((positions, positions, products.shape[1]))
    for row in range(positions):
        for column in range(positions):
            patch = image[:, row * stride : row * stride + size, column * stride : column * stride + size].ravel()
            patch = patch - patch.mean()
            table[row, column] = (patch / np.sqrt(patch.var() + (10 / 255) ** 2)) @ products
    length = max(1, round(positions * 1.3 / transform.cells))
    starts = [round(cell * (positions - length) / (transform.cells - 1)) for cell in range(transform.cells)]
    weights = np.zeros((transform.cells, positions))
    for cell, start in enumerate(starts):
        weights[cell, start : start + length] += 0.5 / length
        weights[-1 - cell, positions - start - length : positions - start] += 0.5 / length
    found = np.zeros((2 * transform.filters, transform.cells, transform.cells))
    for which, sign in enumerate((1, -1)):
        excess = np.maximum(sign * table - transform.threshold, 0)
        for i, down in enumerate(weights):
            for j, across in enumerate(weights):
                window = np.einsum("r,c,rck->k", down, across, excess)
                for filter_ in range(transform.filters):
                    place = which * transform.filters + filter_
                    found[place, i, j] += window[filter_] / 2
                    found[place, i, transform.cells - 1 - j] += window[transform.filters + filter_] / 2
    return found


def test_features_are_those_of_a_naive_loop():
    """Patch by patch and filter by filter, in double precision."""
    draw = np.random.default_rng(0)
    images = draw.random((3, 3, 12, 12))
    transform = patches()
    found = transform(torch.from_numpy(images)).numpy()
    assert found.shape == (3, 12, 3, 3)
    assert found.std() > 0.01
    for image, own in zip(images, found, strict=True):
        np.testing.assert_allclose(own, naive(transform, image), atol=1e-9)


def test_a_record_has_the_features_it_has_alone():
    """Nothing of the other records comes in, however many there are and whatever they are."""
    images = torch.rand(20, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    transform = patches()
    together = transform(images)
    assert torch.allclose(together[13:14], transform(images[13:14]), atol=1e-6)
    images[:13] *= 1e3
    assert torch.allclose(together[13:], transform(images)[13:], atol=1e-6)
    assert torch.allclose(patches()(images[13:])[0], together[13], atol=1e-6)  # who comes first does not matter


def test_an_image_and_its_mirror_image_have_the_same_features():
    """Filters come in mirrored pairs; an image that is turned upside down has others."""
    images = torch.rand(4, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    transform = patches()
    assert torch.allclose(transform(images), transform(images.flip(3)), atol=1e-5)
    assert not torch.allclose(transform(images), transform(images.flip(2)), atol=1e-3)


def test_filters_are_whitened_patches_of_the_drawings_and_nothing_else():
    """The same drawings give the same filters, others give others; brightness and, nearly, contrast do not matter."""
    images = torch.rand(2, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(patches()(images), patches()(images))
    assert not torch.allclose(patches()(images), patches(drawings=Scenes(20, seed=1))(images), atol=1e-3)
    assert torch.allclose(patches()(images), patches()(images + 3), atol=1e-5)
    assert "filters=6" in repr(patches())
    assert "Scenes(count=20, seed=0)" in repr(patches())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"filters": 0}, "filters"),
        ({"size": 1}, "size"),
        ({"stride": 0}, "stride"),
        ({"cells": 0}, "cells"),
        ({"threshold": -0.1}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"shape": (12, 7)}, "shape"),
        ({"shape": (12,)}, "shape"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, word):
    """The error names the argument."""
    with pytest.raises(ArgumentError, match=word):
        patches(**options)


def test_images_that_do_not_fit_are_refused():
    """Another size, whole numbers, and more filters than the drawings have patches."""
    for images in (torch.zeros(2, 3, 12, 13), torch.zeros(12, 12), torch.zeros(2, 12, 12, dtype=torch.uint8)):
        with pytest.raises(ArgumentError, match="images must"):
            patches()(images)
    with pytest.raises(ArgumentError, match="filters"):
        patches(filters=10_000)(torch.zeros(1, 12, 12))

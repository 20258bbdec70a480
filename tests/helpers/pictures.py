"""Tiny pictures of level and upright bars, as arrays and in a file."""

import numpy as np

__all__ = ["bars", "drawn"]


def drawn(count=200, seed=0, side=16):
    """(count, side, side) uint8 bars on black with grain, and labels: 1 is upright."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(2, size=count)
    images = draw.integers(0, 30, (count, side, side)).astype(np.uint8)
    for image, label, place in zip(images, labels, draw.integers(5, 10, count), strict=True):
        image[(slice(3, 13), slice(place, place + 2)) if label else (slice(place, place + 2), slice(3, 13))] = 220
    return images, labels


def bars(path, **more):
    """An .npz file of them; more arrays, or others in their place, by name."""
    images, labels = drawn()
    np.savez(path, **{"images": images, "labels": labels, **more})
    return path

"""Pictures drawn at random by a public rule: they show what images look like in general, and nobody's data are used.

Random curves, random shapes and random scenes (dead leaves: shapes over each other, small ones more often than large
ones). The statistics of their features stand in for those of private images, which would cost: see ``Whitened``.

Source: Baradad et al. (2021), Learning to see by looking at noise; Tang et al. (2023), Differentially private image
    classification by learning priors from random processes.
"""

from dataclasses import dataclass
from math import log, pi

import numpy as np
from numpy.typing import NDArray

from almoner import _check
from almoner.errors import ArgumentError

__all__ = ["Scenes", "Shapes", "Strokes"]

Images = NDArray[np.float32]
Size = tuple[int, int, int, int]  # (count, channels, height, width)
_BATCH = 250  # pictures that are drawn at a time


@dataclass(frozen=True, slots=True)
class Drawings:
    """A number of pictures and the seed of their rule. Every field is public."""

    count: int = 3000
    seed: int = 0

    def __post_init__(self) -> None:
        _check.whole(2, count=self.count)
        _check.whole(0, seed=self.seed)

    def images(self, shape: tuple[int, int], channels: int = 1) -> Images:
        """(count, channels, height, width), from 0 to 1: the pictures, the same in every call.

        The shape is (height, width) in pixels, each at least 8; all is public.
        """
        _check.whole(1, channels=channels)
        if len(shape) != 2 or min(shape) < 8:
            raise ArgumentError(f"shape={shape!r} must be (height, width), each at least 8 pixels")
        draw = np.random.default_rng(self.seed)
        sizes = [min(_BATCH, self.count - start) for start in range(0, self.count, _BATCH)]
        return np.concatenate([self._draw(draw, (size, channels, *shape)) for size in sizes])

    def _draw(self, draw: np.random.Generator, size: Size) -> Images:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Strokes(Drawings):
    """One to three curves on black, drawn with one pen and moved so that their mass is in the middle: like writing."""

    def _draw(self, draw: np.random.Generator, size: Size) -> Images:
        count, channels, height, width = size
        side = min(height, width)
        rows, columns = (np.arange(length, dtype=np.float64) + 0.5 - length / 2 for length in (height, width))
        pen = draw.uniform(0.8, 1.6, (count, 1, 1)) * side / 28
        number, joined = draw.integers(1, 4, count), draw.random((3, count)) < 0.6
        time = np.linspace(0, 1, 40)[:, None]
        ink, end = np.zeros((count, height, width), np.float32), np.zeros((count, 2))
        for stroke in range(3):
            corners = draw.uniform(-0.36, 0.36, (count, 4, 2)) * side
            if stroke:
                corners[joined[stroke], 0] = end[joined[stroke]]
            weights = np.hstack([(1 - time) ** 3, 3 * (1 - time) ** 2 * time, 3 * (1 - time) * time**2, time**3])
            curve, end = np.einsum("tc,ncx->ntx", weights, corners), corners[:, 3]
            nearest = np.full((count, height, width), np.inf, np.float32)
            for place in range(len(time)):  # a point of all curves at a time
                down, along = (rows - curve[:, place, :1]) ** 2, (columns - curve[:, place, 1:]) ** 2
                np.minimum(nearest, down[:, :, None] + along[:, None, :], out=nearest)
            drawn = np.clip(1.5 - np.sqrt(nearest) / pen, 0, 1)
            ink = np.where((stroke < number)[:, None, None], np.maximum(ink, drawn), ink)
        mass = ink.sum(axis=(1, 2)) + 1e-9
        down = np.rint(-(ink.sum(axis=2) @ rows) / mass).astype(int)
        right = np.rint(-(ink.sum(axis=1) @ columns) / mass).astype(int)
        moved = [np.roll(one, by, (0, 1)) for one, *by in zip(ink, down, right, strict=True)]
        return np.repeat(np.stack(moved)[:, None], channels, axis=1).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Shapes(Drawings):
    """Some ellipses and rectangles over each other around the middle, some with stripes, on black: like an object."""

    def _draw(self, draw: np.random.Generator, size: Size) -> Images:
        smooth, pictures = _leaves(draw, size, number=8, sizes=(0.08, 0.45), spread=0.35)
        return np.where(smooth > 0, pictures, 0).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Scenes(Drawings):
    """Dead leaves: shapes of all sizes over each other, in colours that are mostly near to grey, like a photograph."""

    def _draw(self, draw: np.random.Generator, size: Size) -> Images:
        _, pictures = _leaves(draw, size, number=40, sizes=(0.05, 1.0), spread=0.7)
        colour, grey = draw.uniform(0.1, 0.7, (len(pictures), 1, 1, 1)), pictures.mean(axis=1, keepdims=True)
        return np.asarray(grey + colour * (pictures - grey), np.float32)


def _leaves(
    draw: np.random.Generator, size: Size, *, number: int, sizes: tuple[float, float], spread: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """So many shapes one over the other, smooth, and with grain; sizes, in sides, by an inverse cube law."""
    count, _, height, width = size
    down = ((np.arange(height) + 0.5) / height - 0.5)[:, None]
    across = ((np.arange(width) + 0.5) / width - 0.5)[None, :]
    pictures, one = np.zeros(size), (count, 1, 1)
    for _ in range(number):
        x, y = spread * draw.uniform(-1, 1, (2, *one))
        angle, ratio = draw.uniform(0, pi, one), np.exp(draw.uniform(-1, 1, one))
        small, large = sizes[0] ** -2, sizes[1] ** -2
        radius = (small + draw.random(one) * (large - small)) ** -0.5
        long = ((across - x) * np.cos(angle) + (down - y) * np.sin(angle)) / (radius * np.sqrt(ratio))
        wide = ((down - y) * np.cos(angle) - (across - x) * np.sin(angle)) * np.sqrt(ratio) / radius
        rectangle = draw.random(one) < 0.5
        reach = np.where(rectangle, np.maximum(np.abs(long), np.abs(wide)), np.hypot(long, wide))
        cover = np.clip((1 - reach) * radius * min(height, width) + 0.5, 0, 1)[:, None]
        pictures += cover * (_surface(draw, size, down, across) - pictures)
    grain = draw.normal(0, 1, size) * draw.uniform(0, 0.03, (count, 1, 1, 1))
    return pictures, np.clip(pictures + grain, 0, 1)


def _surface(
    draw: np.random.Generator, size: Size, down: NDArray[np.float64], across: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(count, channels, height, width): one colour each, most of them with stripes."""
    count, channels, one = size[0], size[1], (size[0], 1, 1)
    waves, phase = np.exp(draw.uniform(log(2), log(14), one)), draw.uniform(0, 2 * pi, one)
    angle = draw.uniform(0, pi, one)
    stripes = np.sin(2 * pi * waves * (across * np.cos(angle) + down * np.sin(angle)) + phase)
    stripes = stripes * draw.random(one) * (draw.random(one) < 0.6)
    base, depth = draw.random((2, count, channels, 1, 1))
    return np.asarray(np.clip(base + 0.3 * depth * stripes[:, None], 0, 1))

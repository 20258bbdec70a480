"""Private image models with settings that were tuned on public data: from arrays to a model in three lines.

The settings come from MNIST, Fashion-MNIST and CIFAR-10 (docs/experiments/utility.md). They depend on the kind of
images, epsilon and the public number of people alone, so that no budget is needed to choose them for other data.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check
from almoner.curves import gaussian
from almoner.errors import ArgumentError
from almoner.training._card import Card
from almoner.training._linear.estimator import Descent, LogisticRegression
from almoner.training.images.drawings import Drawings, Scenes, Shapes, Strokes
from almoner.training.images.features import Patches, Scattering, Whitened, cached

__all__ = ["ImageClassifier"]

DRAWINGS: dict[str, type[Drawings]] = {"strokes": Strokes, "objects": Shapes, "scenes": Scenes}

MOST_STEPS = 300


def features_for(drawings: Drawings, shape: tuple[int, int], *, dimensions: int | None = None) -> Whitened:
    """The transform from images of a shape (height, width) to the features that a private linear model is trained on.

    Whitened patches where the drawings are scenes, in grey or colour; else scattering transforms. ``dimensions`` are
    kept; None: 2000 of scenes, 500 of others, if the drawings are enough.
    """
    most = 2000 if isinstance(drawings, Scenes) else 500
    kept = min(most, drawings.count - 1) if dimensions is None else dimensions
    if isinstance(drawings, Scenes):
        patches = Patches(shape, Scenes(min(600, drawings.count), drawings.seed), filters=1000)
        return Whitened(patches, drawings, groups=1, dimensions=kept, power=0.8, floor=0.1)
    return Whitened(Scattering(shape), drawings, dimensions=kept)


def settings(*, epsilon: float, delta: float, n_people: int, kind: str = "strokes") -> dict[str, Any]:
    """The tuned settings of the descent for a kind of images, as arguments of ``LogisticRegression``. All public.

    What matters is how many people there are for each unit of noise: with more of them, more steps pay.

    >>> settings(epsilon=0.3, delta=1e-5, n_people=60_000)["steps"]
    40
    """
    _check.whole(1, n_people=n_people)
    _check.one_of(list(DRAWINGS), kind=kind)
    signal = gaussian.mu(epsilon=epsilon, delta=delta) * n_people
    steps = min(MOST_STEPS, max(1, round(40 * (signal / 5339) ** 0.63)))
    return {
        "steps": steps,
        "max_grad_norm": 0.35,
        "learning_rate": 250.0 if kind == "scenes" and signal > 20_000 else 100.0,
        "descent": Descent(average=0.3, momentum=0.8, decay=0.5),
        "fit_intercept": False,
    }


class ImageClassifier:
    """A private model of images without public data: a linear model on features that drawings were enough for.

    Args:
        epsilon, delta: public. The guarantee for each person.
        classes: public. The labels.
        n_people: public. The number of people, which sums are divided by; it need not be exact.
        kind: public. What the images look like: "strokes" (writing on black), "objects" (one thing on black) or
            "scenes" (photographs); or which drawings stand in for them.
        folder: private. Where features are kept, so that they are computed once; None: nowhere.
        dimensions: public. How many features of each image are kept; None: 2000 of scenes, 500 of others.
        seed: public. As of ``LogisticRegression``: a number makes the run reproducible and therefore NOT private.

    Attributes:
        card_: the guarantee (:class:`almoner.training.Card`), after ``fit``; public.
        model_: the ``LogisticRegression`` on the features, after ``fit``; its accounts are private.

    Guarantee: the model is (epsilon, delta)-differentially private when one person, with all of that person's images,
        is added or removed; if arguments were chosen without looking at the data, and no seed was given.
    Source: theory 5.1, 5.3; Tramèr & Boneh (2021), Differentially private learning needs better features.
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float = 1e-5,
        classes: Sequence[Any] | NDArray[Any],
        n_people: int,
        kind: str | Drawings = "strokes",
        folder: str | Path | None = None,
        dimensions: int | None = None,
        seed: int | None = None,
    ) -> None:
        if not isinstance(kind, Drawings):
            _check.one_of(list(DRAWINGS), kind=kind)
        _check.positive(epsilon=epsilon)
        _check.between(0, 1, delta=delta)
        self.drawings = kind if isinstance(kind, Drawings) else DRAWINGS[kind]()
        self.folder, self.dimensions = folder, dimensions
        public: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "n_people": n_people}
        tuned = settings(**public, kind="scenes" if isinstance(self.drawings, Scenes) else "strokes")
        self.model_ = LogisticRegression(**public, classes=list(classes), seed=seed, **tuned)
        self._transform: Whitened | None = None
        self._shape: tuple[int, ...] = ()

    def fit(
        self,
        images: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike | None = None,
        *,
        observe: Callable[[int, NDArray[np.float64]], None] | None = None,
    ) -> Self:
        """Train; nothing is charged before all arguments are checked and all features are there.

        Args:
            images: (records, [channels,] height, width), private: uint8, or floats from 0 to 1; sides of 8 or more.
            labels: (records,) private, each one of the classes.
            groups: (records,) whose image it is, private; None: every image is a person of its own.
            observe: called after each step with the step's number and the parameters, which are public.
        """
        pixels = _images(images)
        if np.shape(labels) != (len(pixels),):
            raise ArgumentError("labels must have one entry for each image")
        self._transform = features_for(self.drawings, pixels.shape[2:], dimensions=self.dimensions)
        self._shape = pixels.shape[1:]
        self.model_.fit(self._features(pixels), labels, groups, observe=observe)
        return self

    def predict(self, images: ArrayLike) -> NDArray[Any]:
        """The most likely class of each image, of the shape and type that ``fit`` takes."""
        return np.asarray(self.model_.predict(self._features(images)))

    def predict_proba(self, images: ArrayLike) -> NDArray[np.float64]:
        """(records, classes) probabilities of the classes."""
        return np.asarray(self.model_.predict_proba(self._features(images)))

    @property
    def card_(self) -> Card:
        """The guarantee; public."""
        return replace(self.model_.card_, preprocessing="drawings")

    def _features(self, images: ArrayLike) -> NDArray[np.float32]:
        pixels = _images(images)
        if self._transform is None:
            raise ArgumentError("predict: call fit first")
        if pixels.shape[1:] != self._shape:
            raise ArgumentError(f"images must have the shape (records, {', '.join(map(str, self._shape))}), as in fit")
        return cached(self._transform, pixels, self.folder)


def _images(images: ArrayLike) -> NDArray[Any]:
    """(records, channels, height, width), uint8 or floats from 0 to 1; an error never tells what a pixel is."""
    pixels = np.asarray(images)
    if pixels.ndim not in (3, 4) or not len(pixels):
        raise ArgumentError("images must have the shape (records, height, width) or (records, channels, height, width)")
    if pixels.ndim == 4 and pixels.shape[3] in (1, 3) and pixels.shape[1] not in (1, 3):
        raise ArgumentError("images must have the channels before height and width: images.transpose(0, 3, 1, 2)")
    if pixels.dtype != np.uint8:
        if not np.issubdtype(pixels.dtype, np.floating):
            raise ArgumentError(f"images must be uint8 from 0 to 255, or floats from 0 to 1, not {pixels.dtype}")
        if not all(bool((part >= 0).all() and (part <= 1).all()) for part in pixels):
            raise ArgumentError("images of floats must be from 0 to 1: divide whole numbers by 255")
    return pixels if pixels.ndim == 4 else pixels[:, None]

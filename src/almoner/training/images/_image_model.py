"""Train a private model of images, save it in a folder, and load it again (extras ``torch``, ``sklearn``, ``images``).

The features' centre and axes are in the folder, since they were drawn.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from almoner import _check
from almoner.errors import AlmonerError, ArgumentError, DataError
from almoner.training._card import Card
from almoner.training._linear.gradients import probabilities
from almoner.training._linear.model_folder import IMAGES, ModelFolder, Trained, metrics_of
from almoner.training.images import _image_files, image_classifier
from almoner.training.images.drawings import Drawings
from almoner.training.images.features import Whitened

__all__ = ["ImageModel", "TrainedOnImages", "train"]

DRAWINGS: dict[str, type[Drawings]] = {each.__name__: each for each in image_classifier.DRAWINGS.values()}


@dataclass(frozen=True, slots=True, eq=False)
class ImageModel:
    """A trained model of images. Every field is public.

    Attributes: classes, the names of the labels; shape, (channels, height, width) of the images; transform, what turns
    them into features; coef, (classes, or 1 for two; features).
    """

    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    transform: Whitened
    coef: NDArray[np.float64]

    def predict_proba(self, path: Path, *, skip_rows: int = 0, features: Path | None = None) -> NDArray[np.float64]:
        """Probabilities of the classes, (records, classes), private, for an .npz file or a folder of image files.

        A folder is read in the order of the names of its files. ``features``: where features are kept, private.
        """
        if skip_rows:
            raise ArgumentError(f"skip_rows={skip_rows} must be 0: images have no lines")
        return self.probabilities(_image_files.read(path, classes=None, shape=self.shape), features)

    def predict(self, path: Path) -> list[str]:
        """The most likely class of each image, private."""
        return [self.classes[code] for code in self.predict_proba(path).argmax(axis=1)]

    def probabilities(self, found: _image_files.Pictures, folder: Path | None) -> NDArray[np.float64]:
        """Probabilities of the classes, (records, classes), for images; both private, as the folder of features."""
        features = image_classifier.features_of(self.transform, found.images, folder)
        return probabilities(features.astype(np.float64) @ self.coef.T)

    def to_folder(self, card: Card) -> ModelFolder:
        """The model as a folder holds it."""
        drawn = self.transform.drawings
        fields = {
            "classes": list(self.classes),
            "shape": list(self.shape),
            "drawings": {"name": type(drawn).__name__, **asdict(drawn)},
            "dimensions": self.transform.dimensions,
            "features": repr(self.transform),
        }
        arrays = {"coef": self.coef, "centre": self.transform.centre.numpy(), "axes": self.transform.axes.numpy()}
        return ModelFolder(IMAGES, fields, arrays, card)

    @classmethod
    def from_folder(cls, path: Path, held: ModelFolder) -> Self:
        """The model that a folder holds.

        Raises:
            DataError: its parts do not fit each other, or its features are not those of this version.
        """
        try:
            drawn = dict(held.fields["drawings"])
            rule = DRAWINGS[drawn.pop("name")](**drawn)
            channels, height, width = (int(side) for side in held.fields["shape"])
            transform = image_classifier.features_for(rule, (height, width), dimensions=held.fields["dimensions"])
            size = transform.transform(torch.zeros(1, channels, height, width)).numel()
            names, own = _class_names(held.fields["classes"]), held.fields["features"]
        except (ValueError, KeyError, TypeError, RuntimeError, AlmonerError) as error:
            raise DataError(f"{path} does not hold a model that almoner saved") from error
        if own != repr(transform):
            raise DataError(f"{path}: its features are not those that this version computes: train the model again")
        rows, kept = 1 if len(names) == 2 else len(names), transform.dimensions
        held.check(path, coef=(rows, kept), centre=(size,), axes=(size, kept))
        centre, axes = (torch.from_numpy(held.arrays[name].astype(np.float32)) for name in ("centre", "axes"))
        transform.centre, transform.axes = centre, axes
        return cls(names, (channels, height, width), transform, held.arrays["coef"].astype(np.float64))


class TrainedOnImages(Trained):
    """A trained model of images: the model and its card are public, the rest is not."""


def train(
    images: Path,
    *,
    classes: Sequence[str],
    people: int,
    kind: str,
    drawings: int | None = None,
    shape: tuple[int, int, int] | None = None,
    features: Path | None = None,
    test: Path | None = None,
    observe: Callable[[int, NDArray[np.float64]], None] | None = None,
    **options: Any,
) -> TrainedOnImages:
    """Train a private linear model on the images of a file or a folder.

    Arguments, errors and guarantee are those of ``saved_model.train_images_to_folder``.
    """
    _check.one_of(list(image_classifier.DRAWINGS), kind=kind)
    rule = image_classifier.DRAWINGS[kind](**({} if drawings is None else {"count": drawings}))
    names = _class_names(classes)
    estimator = image_classifier.ImageClassifier(
        classes=range(len(names)), n_people=people, kind=rule, folder=features, **options
    )
    found = _image_files.read(images, classes=names, shape=shape)
    held_out = None if test is None else _image_files.read(test, classes=names, shape=found.shape)
    estimator.fit(found.images, found.labels, found.people, observe=observe)
    estimator.transform_.learn(torch.zeros(1, *found.shape))  # where all features were kept, they were not needed yet
    linear = estimator.model_
    model = ImageModel(names, found.shape, estimator.transform_, linear.coef_)
    metrics = None if held_out is None else metrics_of(model.probabilities(held_out, features), held_out.labels)
    return TrainedOnImages(model, estimator.card_, metrics, linear.holder_report_, linear.accounts_)


def _class_names(classes: Sequence[str]) -> tuple[str, ...]:
    names = tuple(classes)
    if len(names) < 2 or len(set(names)) != len(names):
        raise ArgumentError("classes must name at least two labels, each once")
    if any(not isinstance(name, str) or not name or name != name.strip() or "/" in name for name in names):
        raise ArgumentError("classes must be names without blanks around them and without a slash")
    return names

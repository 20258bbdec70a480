"""Train a private model of images, save it in a folder, and load it again (extras ``torch``, ``sklearn``, ``images``).

The folder holds what that of a table's model holds, see ``_logistic.model_folder``: no pickle, and nothing that the
guarantee does not cover, except ``metrics.json``. The features' centre and axes are in it, since they were drawn.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from almoner import _check, _disk
from almoner.errors import AlmonerError, ArgumentError, DataError
from almoner.training._accounts.holder_report import HolderReport
from almoner.training._card import Card
from almoner.training._linear import model_folder
from almoner.training._linear.gradients import probabilities
from almoner.training._linear.personal_accounts import PersonalAccounts
from almoner.training.images import _image_files, image_classifier
from almoner.training.images.drawings import Drawings
from almoner.training.images.features import Whitened

__all__ = ["KIND", "ImageModel", "TrainedOnImages", "load", "save", "train"]

FORMAT, KIND = 1, "logistic regression on images"

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
        return self._probabilities(_image_files.read(path, classes=None, shape=self.shape), features)

    def predict(self, path: Path) -> list[str]:
        """The most likely class of each image, private."""
        return [self.classes[code] for code in self.predict_proba(path).argmax(axis=1)]

    def _probabilities(self, found: _image_files.Pictures, folder: Path | None) -> NDArray[np.float64]:
        features = image_classifier.features_of(self.transform, found.images, folder)
        return probabilities(features.astype(np.float64) @ self.coef.T)


@dataclass(frozen=True, slots=True, eq=False)
class TrainedOnImages:
    """A trained model of images: the model and its card are public, the rest is not."""

    model: ImageModel
    card: Card
    metrics: dict[str, Any] | None
    """Private, where the held-out images are."""
    holder_report: HolderReport
    """PRIVATE: for the data holder."""
    accounts: PersonalAccounts | None
    """PRIVATE: what each person may be told."""


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

    Args:
        images: private. An .npz file or a folder, see ``_pictures.read``; each image is a person, unless the file has
            an array ``people``.
        classes: public. The names of the labels.
        people: public. The number of people, which sums are divided by; it need not be exact.
        kind: public. What the images look like, see ``image_classifier.ImageClassifier``.
        drawings: public. How many drawings features are whitened by; None: as in ``image_classifier.ImageClassifier``.
        shape: public. (channels, height, width); needed for a folder.
        features: private. A folder where features are kept, so that they are computed once; None: nowhere.
        test: a held-out file or folder with labels; its people are not covered by the guarantee.
        observe: called after each step with the step's number and the parameters, which are public.
        **options: epsilon, delta, dimensions and seed of ``image_classifier.ImageClassifier``.

    Raises:
        ArgumentError, DataError: before anything is charged.

    Guarantee: model and card are (epsilon, delta)-differentially private for the people in ``images``, as long as the
        arguments were not chosen by looking at the data.
    Source: theory 4.3, 5.1 and 5.3.
    """
    names = _class_names(classes)
    estimator = image_classifier.ImageClassifier(
        classes=range(len(names)), n_people=people, kind=_rule(kind, drawings), folder=features, **options
    )
    found = _image_files.read(images, classes=names, shape=shape)
    held_out = None if test is None else _image_files.read(test, classes=names, shape=found.shape)
    estimator.fit(found.images, _labels(found), found.people, observe=observe)
    estimator.transform_.learn(torch.zeros(1, *found.shape))  # where all features were kept, they were not needed yet
    linear = estimator.model_
    model = ImageModel(names, found.shape, estimator.transform_, linear.coef_)
    metrics = None if held_out is None else _metrics(model, held_out, features)
    return TrainedOnImages(model, estimator.card_, metrics, linear.holder_report_, linear.accounts_)


def _rule(kind: str, count: int | None) -> Drawings:
    """Drawings of a kind."""
    _check.one_of(list(image_classifier.DRAWINGS), kind=kind)
    chosen = image_classifier.DRAWINGS[kind]
    return chosen() if count is None else chosen(count)


def _class_names(classes: Sequence[str]) -> tuple[str, ...]:
    names = tuple(classes)
    if len(names) < 2 or len(set(names)) != len(names):
        raise ArgumentError("classes must name at least two labels, each once")
    if any(not isinstance(name, str) or not name or name != name.strip() or "/" in name for name in names):
        raise ArgumentError("classes must be names without blanks around them and without a slash")
    return names


def _labels(found: _image_files.Pictures) -> NDArray[np.int64]:
    if found.labels is None:
        raise DataError("labels are missing")
    return found.labels


def _metrics(model: ImageModel, found: _image_files.Pictures, folder: Path | None) -> dict[str, Any]:
    chances, labels = model._probabilities(found, folder), _labels(found)
    own = np.maximum(chances[np.arange(len(labels)), labels], 1e-300)
    return {
        "rows": len(labels),
        "accuracy": float(np.mean(chances.argmax(axis=1) == labels)),
        "log_loss": float(-np.log(own).mean()),
        "note": model_folder.NOT_COVERED,
    }


def save(trained: TrainedOnImages, out: Path, *, force: bool = False) -> Path:
    """Write the folder, whole or not at all; what is there already is kept unless force says otherwise."""
    model, drawn = trained.model, trained.model.transform.drawings
    described = {
        "format": FORMAT,
        "kind": KIND,
        "classes": list(model.classes),
        "shape": list(model.shape),
        "drawings": {"name": type(drawn).__name__, **asdict(drawn)},
        "dimensions": model.transform.dimensions,
        "features": repr(model.transform),
    }
    arrays = {"coef": model.coef, "centre": model.transform.centre.numpy(), "axes": model.transform.axes.numpy()}
    model_folder.check_free(out, force=force)
    with _disk.whole_folder(Path(out), mode=0o755) as fresh:
        model_folder.write(fresh, described, arrays, trained.card, trained.metrics)
    return Path(out)


def load(folder: Path) -> ImageModel:
    """The model in a folder that ``save`` wrote."""
    try:
        described = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        with (folder / "weights.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            coef, centre, axes = (np.asarray(arrays[name]) for name in ("coef", "centre", "axes"))
        drawn = dict(described["drawings"])
        rule = DRAWINGS[drawn.pop("name")](**drawn)
        channels, height, width = (int(side) for side in described["shape"])
        transform = image_classifier.features_for(rule, (height, width), dimensions=described["dimensions"])
        size = transform.transform(torch.zeros(1, channels, height, width)).numel()
        names, own, written = _class_names(described["classes"]), described["features"], described["format"]
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError, BadZipFile, AlmonerError) as error:
        raise DataError(f"{folder} does not hold a model that almoner saved") from error
    if written != FORMAT or own != repr(transform):
        raise DataError(f"{folder}: its features are not those that this version computes: train the model again")
    rows = 1 if len(names) == 2 else len(names)
    fits = coef.shape == (rows, transform.dimensions) and axes.shape == (size, transform.dimensions)
    if not fits or centre.shape != (size,) or not all(np.isfinite(each).all() for each in (coef, centre, axes)):
        raise DataError(f"{folder}: the weights do not fit the model")
    transform.centre, transform.axes = (torch.from_numpy(each.astype(np.float32)) for each in (centre, axes))
    return ImageModel(names, (channels, height, width), transform, coef.astype(np.float64))

"""Private logistic regression from a file with a table to a folder with a model, and back (extra ``sklearn``).

The same from images, see :func:`train_images_to_folder` (extra ``images``). The folder holds the model and its card,
which are public, and no pickle; see :func:`save`.

Of images only their size and classes are public: the caller states the classes, and the size of what is in a folder.
Errors never quote a label, the name of a file, or how many records there are.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from almoner import _check, _extras
from almoner._disk import whole_file
from almoner.errors import ArgumentError, DataError
from almoner.individual import BudgetStatement
from almoner.training import tables
from almoner.training._card import Card
from almoner.training._linear.descent import probabilities
from almoner.training._linear.model_folder import (
    IMAGES,
    TABLE,
    ModelFolder,
    Trained,
    accounts_file,
    check_places,
    metrics_of,
    saved_statement,
)
from almoner.training._on_ledger import OnLedger
from almoner.training.tables import Schema, template

if TYPE_CHECKING:
    from almoner.training.images.features import Whitened

__all__ = [
    "Trained", "Tuning", "accounts_file", "image_shape", "load", "save", "schema_template", "score", "statement",
    "train", "train_images_to_folder", "train_to_folder",
]  # fmt: skip

Observe = Callable[[int, NDArray[np.float64]], None]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained model and the public schema of its tables. Every field is public."""

    schema: Schema
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels, in the order of the probabilities."""
        return tuple(self.schema.classes)

    def predict_proba(self, path: Path, *, skip_rows: int = 0) -> NDArray[np.float64]:
        """Probabilities of the classes, in the schema's order, for each row of a file: (rows, classes), private."""
        table = tables.read(path, self.schema, target=False, skip_rows=skip_rows)
        return self.probabilities(tables.encode(table, self.schema))

    def predict(self, path: Path, *, skip_rows: int = 0) -> list[str]:
        """The most likely class for each row of a file, private."""
        return [self.classes[code] for code in self.predict_proba(path, skip_rows=skip_rows).argmax(axis=1)]

    def probabilities(self, features: sparse.csr_matrix) -> NDArray[np.float64]:
        """Probabilities of the classes, (rows, classes), for features of rows by the schema; both private."""
        return probabilities(np.asarray(features @ self.coef.T) + self.intercept)

    def judged(self, path: Path, skip_rows: int, _: Path | None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Probabilities of the classes, and the true ones, for each row of a file; private."""
        features, codes, _table = _labelled(path, self.schema, skip_rows)
        return self.probabilities(features), codes

    def to_folder(self, card: Card) -> ModelFolder:
        """The model as a folder holds it."""
        fields = {"schema": self.schema.to_dict(), "features": tables.feature_names(self.schema)}
        return ModelFolder(TABLE, fields, {"coef": self.coef, "intercept": self.intercept}, card)

    @classmethod
    def from_folder(cls, path: Path, held: ModelFolder) -> Self:
        """The model that a folder holds; raises DataError where its parts do not fit each other."""
        schema = Schema.parse(held.fields["schema"])
        columns = 1 if len(schema.classes) == 2 else len(schema.classes)
        held.check(path, coef=(columns, len(tables.feature_names(schema))), intercept=(columns,))
        return cls(schema, held.arrays["coef"], held.arrays["intercept"])


SMALLEST = 8  # pixels of a side, at least
ENDINGS = (".png", ".jpg", ".jpeg")
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")  # become eight bits without a loss

Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Images of one size. Private, except the size."""

    images: NDArray[np.uint8]  # (records, channels, height, width)
    labels: Any  # (records,) numbers of the classes; None where they were not asked for
    people: NDArray[Any] | None  # (records,) whose each image is; None: each is a person of its own

    @property
    def shape(self) -> Shape:
        """(channels, height, width), public."""
        _, channels, height, width = self.images.shape
        return channels, height, width


def image_shape(text: str) -> Shape:
    """(channels, height, width) from HEIGHTxWIDTH, which is grey, or HEIGHTxWIDTHx3, which is in colour."""
    parts = text.lower().split("x")
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit()]
    if len(numbers) != len(parts) or len(numbers) not in (2, 3) or numbers[2:] not in ([], [1], [3]):
        raise ArgumentError(f"shape={text!r} must be HEIGHTxWIDTH for grey images, or HEIGHTxWIDTHx3 for colour")
    if min(numbers[:2]) < SMALLEST:
        raise ArgumentError(f"shape={text!r} must have sides of at least {SMALLEST} pixels")
    return (numbers[2] if len(numbers) == 3 else 1), numbers[0], numbers[1]


def read_pictures(path: Path, *, classes: Sequence[str] | None, shape: Shape | None) -> Pictures:
    """Images from a file or a folder, private; DataError where what is there breaks one of these rules.

    An .npz file has ``images``, uint8 (records, height, width) or (records, height, width, 1 or 3), ``labels``, whole
    numbers that count the classes from 0, and, if it has them, ``people``; a folder has a folder of PNG and JPEG files
    for each class, whose name is public; with None labels are not read, and it holds the files themselves. The images
    of a file must have the public shape (channels, height, width); None: any. Each one of a folder is scaled to it.
    """
    if path.is_dir():
        if shape is None:
            raise ArgumentError("shape is missing: the images of a folder are scaled to one public size")
        return _from_folder(path, classes, shape)
    found = _from_arrays(path, classes)
    if shape is not None and found.shape != shape:
        channels, height, width = shape
        size = f"{height}x{width}" + (f"x{channels}" if channels > 1 else "")
        raise DataError(f"{path}: images must have the size that was stated, {size}")
    return found


def _from_arrays(path: Path, classes: Sequence[str] | None) -> Pictures:
    images, labels, people = _arrays(path)
    if images is None or (classes is not None and labels is None):
        missing = "images" if images is None else "labels"
        raise DataError(f"{path} must hold an array named {missing!r}")
    if images.dtype != np.uint8:
        raise DataError(f"{path}: images must be uint8, from 0 to 255, not {images.dtype}")
    if images.ndim not in (3, 4) or not len(images) or (images.ndim == 4 and images.shape[3] not in (1, 3)):
        rule = "(records, height, width), or (records, height, width, channels) with 1 or 3 channels"
        raise DataError(f"{path}: images must be of shape {rule}")
    if min(images.shape[1:3]) < SMALLEST:
        raise DataError(f"{path}: images must have sides of at least {SMALLEST} pixels")
    if people is not None and (people.dtype.kind not in "iuU" or people.shape != (len(images),)):
        raise DataError(f"{path}: people must be one whole number or one text for each image")
    pixels = images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    if classes is None or labels is None:
        return Pictures(pixels, None, people)
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        raise DataError(f"{path}: labels must be one whole number for each image")
    if not bool(((labels >= 0) & (labels < len(classes))).all()):
        last = len(classes) - 1
        raise DataError(
            f"{path}: labels must be from 0 to {last}, the places of the {last + 1} classes that were stated"
        )
    return Pictures(pixels, labels.astype(np.int64), people)


def _arrays(path: Path) -> tuple[Any, Any, Any]:
    """images, labels and people; None for what is not there."""
    try:
        with path.open("rb") as file:
            held = np.load(file, allow_pickle=False)
            if isinstance(held, np.ndarray):
                raise DataError(f"{path} is one array; it must be an .npz file, made by numpy.savez")
            images, labels, people = (held.get(name) for name in ("images", "labels", "people"))
            return images, labels, people
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read: it must be an .npz file, or a folder of PNG and JPEG files") from error


def _from_folder(path: Path, classes: Sequence[str] | None, shape: Shape) -> Pictures:
    if classes is None:
        files = [(file, 0) for file in _files(path, "")]
    else:
        inside = [each for each in sorted(path.iterdir()) if not each.name.startswith(".")]
        if any(not each.is_dir() or each.name not in classes for each in inside):
            raise DataError(
                f"{path} must hold folders that are named like the classes that were stated, and nothing else"
            )
        places = {name: place for place, name in enumerate(classes)}
        files = [(file, places[each.name]) for each in inside for file in _files(each, f" of class {each.name!r}")]
    if not files:
        raise DataError(f"{path} holds no images")
    with _extras.need("PIL", extra="images"):
        import PIL.Image  # noqa: F401
    images = np.stack([_decoded(file, shape, path) for file, _ in files])
    labels = None if classes is None else np.array([place for _, place in files], np.int64)
    return Pictures(images, labels, None)


def _files(folder: Path, whose: str) -> Iterator[Path]:
    """The pictures of a folder by their names; a file of another kind would be somebody who is left out."""
    for file in sorted(folder.iterdir()):
        if file.name.startswith("."):
            continue
        if not file.is_file() or file.suffix.lower() not in ENDINGS:
            raise DataError(f"the images{whose} must be files that end in {', '.join(ENDINGS)}, and nothing else")
        yield file


def _decoded(file: Path, shape: Shape, folder: Path) -> NDArray[np.uint8]:
    """(channels, height, width), turned upright, in grey or colour, and scaled to the size."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    channels, height, width = shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a file that unpacks into a huge picture
            with Image.open(file, formats=("PNG", "JPEG")) as picture:
                if picture.mode not in MODES:
                    raise ValueError("more than eight bits")
                upright = ImageOps.exif_transpose(picture).convert("L" if channels == 1 else "RGB")
        if upright.size != (width, height):
            upright = upright.resize((width, height), Image.Resampling.BICUBIC)
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError, Warning):
        raise DataError(f"{folder}: a file cannot be read as a PNG or JPEG image of eight bits a channel") from None
    pixels = np.asarray(upright, np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


@dataclass(frozen=True, slots=True, eq=False)
class ImageModel:
    """A trained model of images: labels, (channels, height, width), the transform to features, coefficients. Public."""

    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    transform: "Whitened"
    coef: NDArray[np.float64]

    def predict_proba(self, path: Path, *, skip_rows: int = 0, features: Path | None = None) -> NDArray[np.float64]:
        """Probabilities of the classes, (records, classes), private, for an .npz file or a folder of image files.

        A folder is read in the order of the names of its files. ``features``: where features are kept, private.
        """
        return self.probabilities(self._pictures(path, None, skip_rows), features)

    def predict(self, path: Path) -> list[str]:
        """The most likely class of each image, private."""
        return [self.classes[code] for code in self.predict_proba(path).argmax(axis=1)]

    def probabilities(self, found: Pictures, folder: Path | None) -> NDArray[np.float64]:
        """Probabilities of the classes, (records, classes), for images; both private, as the folder of features."""
        _, image_classifier = _for_images()
        features = image_classifier.features_of(self.transform, found.images, folder)
        return probabilities(features.astype(np.float64) @ self.coef.T)

    def judged(
        self, path: Path, skip_rows: int, features: Path | None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Probabilities of the classes, and the true ones, for each image; private."""
        found = self._pictures(path, self.classes, skip_rows)
        if found.labels is None:
            raise DataError(f"{path}: labels are missing")
        return self.probabilities(found, features), found.labels

    def _pictures(self, path: Path, classes: tuple[str, ...] | None, skip_rows: int) -> Pictures:
        if skip_rows:
            raise ArgumentError(f"skip_rows={skip_rows} must be 0: images have no lines")
        return read_pictures(path, classes=classes, shape=self.shape)

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
        """The model that a folder holds; DataError: its parts do not fit, or are not those of this version."""
        torch, image_classifier = _for_images()
        rules = {each.__name__: each for each in image_classifier.DRAWINGS.values()}
        drawn = dict(held.fields["drawings"])
        rule = rules[drawn.pop("name")](**drawn)
        channels, height, width = (int(side) for side in held.fields["shape"])
        transform = image_classifier.features_for(rule, (height, width), dimensions=held.fields["dimensions"])
        size = transform.transform(torch.zeros(1, channels, height, width)).numel()
        names = _class_names(held.fields["classes"])
        if held.fields["features"] != repr(transform):
            raise DataError(f"{path}: its features are not those that this version computes: train the model again")
        rows, kept = 1 if len(names) == 2 else len(names), transform.dimensions
        held.check(path, coef=(rows, kept), centre=(size,), axes=(size, kept))
        centre, axes = (torch.from_numpy(held.arrays[name].astype(np.float32)) for name in ("centre", "axes"))
        transform.centre, transform.axes = centre, axes
        return cls(names, (channels, height, width), transform, held.arrays["coef"].astype(np.float64))


@dataclass(frozen=True, slots=True)
class Tuning:
    """Which settings are tried, how often, and whose labels say which is best. Every field is public."""

    runs: float
    """The expected number of runs; their number is random and secret."""
    grid: Mapping[str, Sequence[float]]
    """Settings of ``LogisticRegression`` and their values."""
    on: Path | None = None
    """A file of other people with labels, PRIVATE, who pay for the scores; None: the people who are trained on."""
    skip_rows: int = 0


def train(
    data: Path,
    schema: Schema,
    *,
    test: Path | None = None,
    skip_rows: int = 0,
    test_skip_rows: int = 0,
    observe: Observe | None = None,
    ledger: OnLedger | None = None,
    tune: Tuning | None = None,
    **options: Any,
) -> Trained:
    """Train a private logistic regression on a file.

    Args:
        data: a CSV or Parquet file, private.
        schema: public.
        test: a held-out file with labels; its people are not covered by the guarantee.
        skip_rows, test_skip_rows: lines to leave out at the start of the files.
        observe: called after each step with the step's number and the parameters, which are public.
        ledger: accounts that others charge too, where people are named as in the schema's column of people.
        tune: which settings are tried; see ``training.PrivateSearch``. Not with ``observe`` or ``ledger``.
        **options: parameters of `LogisticRegression`.

    Guarantee: model and card are (epsilon, delta)-differentially private for the people in `data`, whatever is said in
        the schema, as long as the schema was not made by looking at the data.
    Source: theory 4.3, 5.1, 5.3, 5.7 and 8.2.
    """
    from almoner.training._linear.estimator import LogisticRegression

    if tune is not None and (observe is not None or ledger is not None):
        raise ArgumentError(
            "tune: no observe, which would tell the number of runs, and no ledger, which has no such price"
        )
    features, codes, table = _labelled(data, schema, skip_rows, blanks=ledger is None)
    held_out = None if test is None else _labelled(test, schema, test_skip_rows)  # refused before anything is trained
    judges = None  # the people of another file: features, classes, and whose row each is; private
    if tune is not None and tune.on is not None:
        if Path(tune.on).resolve() == Path(data).resolve():
            raise ArgumentError(
                f"{tune.on} is the file that is trained on: without it the same people pay for the scores"
            )
        *judged, others = _labelled(tune.on, schema, tune.skip_rows)
        judges = (*judged, tables.owners(others, schema))
    owners = tables.owners(table, schema)
    classes = range(len(schema.classes))
    estimator = LogisticRegression(classes=classes, n_people=schema.people, fit_intercept=False, **options)
    if tune is None:
        estimator.fit(features, codes, groups=owners, observe=observe, ledger=ledger)
    else:
        from almoner.training._linear.search import PrivateSearch

        budget = {name: getattr(estimator, name) for name in ("epsilon", "delta", "seed")}
        search = PrivateSearch(estimator, tune.grid, runs=tune.runs, **budget)
        estimator = search.fit(features, codes, owners, held_out=judges).best_estimator_
    model = Model(schema, estimator.coef_, estimator.intercept_)
    card = replace(estimator.card_, classes_from="schema", preprocessing="schema")
    metrics = None if held_out is None else metrics_of(model.probabilities(held_out[0]), held_out[1])
    return Trained(model, card, metrics, estimator.holder_report_, estimator.accounts_)


def _labelled(
    path: Path, schema: Schema, skip_rows: int, *, blanks: bool = True
) -> tuple[sparse.csr_matrix, NDArray[np.int64], tables.Table]:
    """Features of a labelled file's rows, the numbers of their classes, and the columns that were read; private."""
    table = tables.read(path, schema, skip_rows=skip_rows, blanks=blanks)
    features, codes = tables.encode(table, schema), tables.labels(table, schema)
    if not len(codes):
        raise DataError(f"{path} has no rows")
    return features, codes, table


def train_to_folder(
    data: Path,
    out: Path,
    *,
    target: str,
    schema: Path,
    person: str | None = None,
    force: bool = False,
    keep_accounts: bool = False,
    **options: Any,
) -> Trained:
    """Train on a file and save the model in a folder; what could not be saved is refused before training.

    Args:
        data: a CSV or Parquet file, private.
        out: the folder to write.
        target: the column to predict.
        schema: a TOML file with what is public about the columns.
        person: the column that names the person of a row; None: each row is a person.
        force: overwrite a model that is there already.
        keep_accounts: also write ``accounts_file(out)``, PRIVATE, which ``statement`` reads.
        **options: arguments of ``train`` and parameters of ``LogisticRegression``.

    Guarantee: that of ``train``.
    Source: theory 4.3, 5.1, 5.3 and 5.7.
    """
    if keep_accounts and options.get("tune") is not None:
        raise ArgumentError(
            "keep_accounts: accounts of the best run alone would understate what people paid for all runs"
        )
    if keep_accounts and not options.get("individual", True):
        raise ArgumentError("keep_accounts needs individual=True: else all are charged the same, as the card says")
    check_places(out, force=force, keep_accounts=keep_accounts)
    trained = train(data, Schema.read(schema, target=target, person=person), **options)
    save(trained, out, force=force, keep_accounts=keep_accounts)
    return trained


def train_images_to_folder(
    images: Path,
    out: Path,
    *,
    classes: Sequence[str],
    people: int,
    kind: str,
    drawings: int | None = None,
    shape: tuple[int, int, int] | None = None,
    features: Path | None = None,
    test: Path | None = None,
    force: bool = False,
    keep_accounts: bool = False,
    **options: Any,
) -> Trained:
    """Train on images and save the model in a folder; what could not be saved is refused before training.

    Args:
        images: private. An .npz file with the arrays ``images``, uint8 of shape (records, height, width) or (records,
            height, width, channels), and ``labels``, whole numbers that count the classes from 0; with an array
            ``people``, images with the same entry are one person's. Or a folder with a folder of PNG or JPEG files for
            each class: each image is then a person.
        classes: public. The names of the labels.
        people: public. About how many people there are, which sums are divided by.
        kind: public. What the images look like: "strokes", "objects" or "scenes".
        drawings: public. How many drawings features are whitened by; None: as in ``image_classifier.ImageClassifier``.
        shape: public. (channels, height, width), which images of a folder are scaled to; needed for a folder.
        features: private. A folder where features are kept, so that they are computed once; None: nowhere.
        test: held-out images with labels; their people are not covered by the guarantee.
        out, force, keep_accounts: as of ``train_to_folder``.
        **options: public: ``epsilon, delta, dimensions, seed`` of ``ImageClassifier``, and ``observe`` of its ``fit``.

    Raises:
        ArgumentError, DataError: before anything is charged.

    Guarantee: model and card are (epsilon, delta)-differentially private for the people in ``images``, as long as the
        public arguments were not chosen by looking at the data, and no seed was given.
    Source: theory 4.3, 5.1 and 5.3.
    """
    torch, image_classifier = _for_images()
    check_places(out, force=force, keep_accounts=keep_accounts)
    observe, names = options.pop("observe", None), _class_names(classes)
    _check.one_of(list(image_classifier.DRAWINGS), kind=kind)
    rule = image_classifier.DRAWINGS[kind](**({} if drawings is None else {"count": drawings}))
    estimator = image_classifier.ImageClassifier(
        classes=range(len(names)), n_people=people, kind=rule, folder=features, **options
    )
    found = read_pictures(images, classes=names, shape=shape)
    held_out = None if test is None else read_pictures(test, classes=names, shape=found.shape)
    estimator.fit(found.images, found.labels, found.people, observe=observe)
    estimator.transform_.learn(torch.zeros(1, *found.shape))  # where all features were kept, they were not needed yet
    linear = estimator.model_
    model = ImageModel(names, found.shape, estimator.transform_, linear.coef_)
    metrics = None if held_out is None else metrics_of(model.probabilities(held_out, features), held_out.labels)
    trained = Trained(model, estimator.card_, metrics, linear.holder_report_, linear.accounts_)
    save(trained, out, force=force, keep_accounts=keep_accounts)
    return trained


def _for_images() -> tuple[Any, Any]:
    with _extras.need("torch", "sklearn", extra="images"):
        import torch

        from almoner.training.images import image_classifier
    return torch, image_classifier


def _class_names(classes: Sequence[str]) -> tuple[str, ...]:
    names = tuple(classes)
    if len(names) < 2 or len(set(names)) != len(names):
        raise ArgumentError("classes must name at least two labels, each once")
    if any(not isinstance(name, str) or not name or name != name.strip() or "/" in name for name in names):
        raise ArgumentError("classes must be names without blanks around them and without a slash")
    return names


def save(trained: Trained, out: Path, *, force: bool = False, keep_accounts: bool = False) -> Path:
    """Write the folder, and PRIVATE accounts beside it if asked; what is there already is kept, but for force."""
    held: ModelFolder = trained.model.to_folder(trained.card)
    accounts = trained.accounts if keep_accounts else None
    return held.write(out, force=force, metrics=trained.metrics, accounts=accounts)


def load(folder: Path) -> Model | ImageModel:
    """The model in a folder: of tables, or of images; raises DataError where it holds none, or is damaged."""
    held = ModelFolder.read(folder, TABLE, IMAGES)
    kind: type[Model | ImageModel] = ImageModel if held.kind == IMAGES else Model
    try:
        return kind.from_folder(folder, held)
    except (ArgumentError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{folder} does not hold a model that almoner saved") from error


def statement(model: Path, person: str) -> BudgetStatement:
    """One person's statement about a model. PRIVATE: to be disclosed to this person alone.

    Args:
        model: the folder of a model, beside which its accounts were kept, or the file of the accounts.
        person: named as in the data; where each row is a person, the number of the row, from 0.

    Raises:
        DataError, UnknownPerson: no accounts were kept, or none of this person.
    """
    model = Path(model)
    kept = accounts_file(model.resolve()) if model.is_dir() else model
    if not kept.is_file():
        raise DataError(f"{kept} is not there: accounts are kept where training was asked to, by keep_accounts = true")
    return saved_statement(kept, person)


def schema_template(data: Path, *, target: str, person: str | None = None) -> str:
    """A schema to fill in, as TOML: it holds the names of the file's columns and nothing else of the data."""
    names = tables.column_names(data)
    for name in (target, *([person] if person else [])):
        if name not in names:
            raise ArgumentError(f"{data} has no column {name!r}")
    return template(names, target, person)


def score(
    folder: Path, data: Path, *, skip_rows: int = 0, features: Path | None = None, force: bool = False
) -> dict[str, Any]:
    """Judge a saved model by other people, and write ``metrics.json`` into its folder. PRIVATE, as the data are.

    Accuracy and log loss, without noise, the number of rows, and the warning.

    Args:
        folder: the model's.
        data: a held-out file with labels, or images in folders by class; its people are covered by no guarantee.
        skip_rows: lines to leave out at the start of a table.
        features: a private folder where the features of images are kept; None: nowhere.
        force: replace metrics that are there already; else they are refused.

    Raises:
        DataError: there is no model, or no row, or a label that the model does not know.
    """
    written = Path(folder) / "metrics.json"
    if written.exists() and not force:
        raise ArgumentError(f"{written} exists already: --force replaces it")
    chances, codes = load(folder).judged(data, skip_rows, features)
    if not len(codes):
        raise DataError(f"{data} has no rows")
    metrics = metrics_of(chances, codes)
    with whole_file(written) as file:
        file.write((json.dumps(metrics, indent=2) + "\n").encode("utf-8"))
    return metrics

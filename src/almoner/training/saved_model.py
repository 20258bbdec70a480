"""Private logistic regression from a file with a table to a folder with a model, and back (extra ``sklearn``).

The same from images, see :func:`train_images_to_folder` (extra ``images``). The folder holds the model and its card,
which are public, and no pickle; see :func:`save`.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from almoner import _extras
from almoner._disk import whole_file
from almoner.errors import ArgumentError, DataError
from almoner.individual import BudgetStatement
from almoner.training._linear import model_folder, tables
from almoner.training._linear.gradients import probabilities
from almoner.training._linear.model_folder import NOT_COVERED, Model, Trained, Tuning, check_free, save, train
from almoner.training._linear.personal_accounts import PersonalAccounts, SavedAccounts, accounts_file
from almoner.training._linear.schema import Schema, template
from almoner.training.images import _image_files
from almoner.training.images._image_files import shape_of as image_shape

if TYPE_CHECKING:
    from almoner.training.images._model_folder import ImageModel, TrainedOnImages

__all__ = [
    "ImageModel",
    "Model",
    "PersonalAccounts",
    "SavedAccounts",
    "Schema",
    "Trained",
    "TrainedOnImages",
    "Tuning",
    "accounts_file",
    "image_shape",
    "load",
    "save",
    "schema_template",
    "score",
    "statement",
    "train",
    "train_images_to_folder",
    "train_to_folder",
]

ON_IMAGES, MODULE = "logistic regression on images", "PyTorch module"


def __getattr__(name: str) -> object:
    if name not in ("ImageModel", "TrainedOnImages"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_images(), name)


def _images() -> Any:
    """Load the part that needs PyTorch when it is first asked for."""
    with _extras.need("torch", "sklearn", extra="images"):
        from almoner.training.images import _model_folder
    return _model_folder


def train_to_folder(
    data: Path,
    out: Path,
    *,
    target: str,
    schema: Path,
    person: str | None = None,
    force: bool = False,
    keep_accounts: bool = False,
    observe: Callable[[int, NDArray[np.float64]], None] | None = None,
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
        observe: called after each step with the step's number and the parameters, which are public.
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
    kept = _check_places(out, force=force, keep_accounts=keep_accounts)
    trained = train(data, Schema.read(schema, target=target, person=person), observe=observe, **options)
    save(trained, out, force=force)
    if keep_accounts and trained.accounts is not None:
        trained.accounts.save(kept)
    return trained


def train_images_to_folder(
    images: Path, out: Path, *, force: bool = False, keep_accounts: bool = False, **options: Any
) -> "TrainedOnImages":
    """Train on images and save the model in a folder; what could not be saved is refused before training.

    Args:
        images: private. An .npz file with the arrays ``images``, uint8 of shape (records, height, width) or (records,
            height, width, channels), and ``labels``, whole numbers that count the classes from 0; with an array
            ``people``, images with the same entry are one person's. Or a folder with a folder of PNG or JPEG files for
            each class: each image is then a person.
        out: the folder to write.
        force: overwrite a model that is there already.
        keep_accounts: also write ``accounts_file(out)``, PRIVATE, which ``statement`` reads.
        **options: all public but the first two. ``features``, a private folder where features are kept; ``test``,
            held-out images with labels; ``classes``, the names of the labels; ``people``, about how many there are;
            ``kind`` of images, "strokes", "objects" or "scenes"; ``drawings``, by how many features are whitened;
            ``shape``, (channels, height, width), which images of a folder are scaled to; ``epsilon``, ``delta``,
            ``dimensions``, ``seed`` and ``observe`` as in ``image_classifier.ImageClassifier``.

    Raises:
        ArgumentError, DataError: before anything is charged.

    Guarantee: model and card are (epsilon, delta)-differentially private for the people in ``images``, as long as the
        public arguments were not chosen by looking at the data, and no seed was given.
    Source: theory 4.3, 5.1 and 5.3.
    """
    _model_folder = _images()
    kept = _check_places(out, force=force, keep_accounts=keep_accounts)
    trained: TrainedOnImages = _model_folder.train(images, **options)
    _model_folder.save(trained, out, force=force)
    if keep_accounts and trained.accounts is not None:
        trained.accounts.save(kept)
    return trained


def load(folder: Path) -> "Model | ImageModel":
    """The model in a folder: of tables, or of images.

    Raises:
        DataError: it holds none, or is damaged.
    """
    folder = Path(folder)
    try:
        kind = json.loads((folder / "model.json").read_text(encoding="utf-8"))["kind"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder} does not hold a model that almoner saved") from error
    if kind == MODULE:
        raise DataError(f"{folder} holds a {MODULE}: load it with training.saved_module.load(folder, module)")
    if kind != ON_IMAGES:
        return model_folder.load(folder)
    model: ImageModel = _images().load(folder)
    return model


def _check_places(out: Path, *, force: bool, keep_accounts: bool) -> Path:
    """Refuse what could not be written; where the accounts of the model go, PRIVATE."""
    check_free(out, force=force)
    kept = accounts_file(out)
    if kept.exists() and not (keep_accounts and force):
        raise ArgumentError(f"{kept} exists already: the accounts of another model; choose another folder for this one")
    return kept


def statement(model: Path, person: str) -> BudgetStatement:
    """One person's statement about a model. PRIVATE: to be disclosed to this person alone.

    Args:
        model: the folder of a model, beside which its accounts were kept, or the file of the accounts.
        person: named as in the data; where each row is a person, the number of the row, from 0.

    Raises:
        DataError: no accounts were kept.
        UnknownPerson: the model was trained on no records of this person.
    """
    model = Path(model)
    kept = accounts_file(model.resolve()) if model.is_dir() else model
    if not kept.is_file():
        raise DataError(f"{kept} is not there: accounts are kept where training was asked to, by keep_accounts = true")
    return SavedAccounts.read(kept).statement(person)


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

    Args:
        folder: the model's.
        data: a held-out file with labels, or images in folders by class; its people are covered by no guarantee.
        skip_rows: lines to leave out at the start of a table.
        features: a private folder where the features of images are kept; None: nowhere.
        force: replace metrics that are there already.

    Returns:
        Accuracy and log loss, without noise, the number of rows, and the warning.

    Raises:
        ArgumentError: there are metrics already.
        DataError: there is no model, or no row, or a label that the model does not know.
    """
    written = Path(folder) / "metrics.json"
    if written.exists() and not force:
        raise ArgumentError(f"{written} exists already: --force replaces it")
    model = load(folder)
    if isinstance(model, Model):
        chances, codes = _judged_table(model, data, skip_rows)
    elif skip_rows:
        raise ArgumentError(f"skip_rows={skip_rows} must be 0: images have no lines")
    else:
        chances, codes = _judged_images(model, data, features)
    if not len(codes):
        raise DataError(f"{data} has no rows")
    own = np.maximum(chances[np.arange(len(codes)), codes], 1e-300)
    right, loss = np.mean(chances.argmax(axis=1) == codes), -np.log(own).mean()
    metrics = {"rows": len(codes), "accuracy": float(right), "log_loss": float(loss), "note": NOT_COVERED}
    with whole_file(written) as file:
        file.write((json.dumps(metrics, indent=2) + "\n").encode("utf-8"))
    return metrics


def _judged_table(model: Model, data: Path, skip_rows: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities of the classes, and the true ones, for each row; private."""
    table = tables.read(data, model.schema, skip_rows=skip_rows)
    scores = np.asarray(tables.encode(table, model.schema) @ model.coef.T) + model.intercept
    return probabilities(scores), tables.labels(table, model.schema)


def _judged_images(
    model: "ImageModel", data: Path, features: Path | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities of the classes, and the true ones, for each image; private."""
    from almoner.training.images.image_classifier import features_of

    found = _image_files.read(data, classes=model.classes, shape=model.shape)
    if found.labels is None:
        raise DataError(f"{data}: labels are missing")
    computed = features_of(model.transform, found.images, features)
    return probabilities(computed.astype(np.float64) @ model.coef.T), found.labels

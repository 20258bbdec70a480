"""Train a private model on a table, save it in a folder, and load it again.

The folder holds no pickle, and nothing that the guarantee does not cover, except `metrics.json`:

    model.json      schema, classes, settings; public
    weights.npz     coef and intercept; public
    card.json       the guarantee, in fields
    card.md         the guarantee, in words
    card.html       the same as a page
    metrics.json    how well the model does on a held-out file: computed without noise, so as private as that file is
"""

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from almoner._disk import whole_folder
from almoner.errors import ArgumentError, DataError
from almoner.training._accounts.holder_report import HolderReport
from almoner.training._card import Card
from almoner.training._linear import tables
from almoner.training._linear.gradients import probabilities
from almoner.training._linear.personal_accounts import PersonalAccounts
from almoner.training._linear.schema import Schema
from almoner.training._on_ledger.run import OnLedger

__all__ = ["NOT_COVERED", "Model", "Trained", "Tuning", "check_free", "load", "save", "train", "write", "write_card"]

FORMAT = 1

NOT_COVERED = (
    "computed on the held-out file without noise: the guarantee of the model does not cover the people in that file; "
    "keep these numbers as private as the file"
)


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
        return self._probabilities(tables.read(path, self.schema, target=False, skip_rows=skip_rows))

    def predict(self, path: Path, *, skip_rows: int = 0) -> list[str]:
        """The most likely class for each row of a file, private."""
        chosen = self.predict_proba(path, skip_rows=skip_rows).argmax(axis=1)
        return [self.schema.classes[code] for code in chosen]

    def _probabilities(self, table: tables.Table) -> NDArray[np.float64]:
        return probabilities(np.asarray(tables.encode(table, self.schema) @ self.coef.T) + self.intercept)


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A trained model with its accounts: the model and its card are public, the rest is not."""

    model: Model
    card: Card
    metrics: dict[str, Any] | None
    """Private, where the held-out file is."""
    holder_report: HolderReport | None
    """PRIVATE: for the data holder. None where settings were tuned: the best run alone is not what people paid."""
    accounts: PersonalAccounts | None = None
    """PRIVATE: what each person may be told; None where all were charged the same, or settings were tuned."""


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
    observe: Callable[[int, Any], None] | None = None,
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
        ledger: the accounts that other trainings and questions charge too, where people are named as in the schema's
            column of people.
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
    table = tables.read(data, schema, skip_rows=skip_rows, blanks=ledger is None)
    held_out = None if test is None else _held_out(test, schema, test_skip_rows)  # refused before anything is trained
    judges = None if tune is None or tune.on is None else _judges(tune.on, schema, tune.skip_rows, data)
    features, codes, owners = tables.encode(table, schema), tables.labels(table, schema), tables.owners(table, schema)
    if not len(codes):
        raise DataError(f"{data} has no rows")
    estimator = LogisticRegression(
        classes=range(len(schema.classes)), n_people=schema.people, fit_intercept=False, **options
    )
    if tune is None:
        estimator.fit(features, codes, groups=owners, observe=observe, ledger=ledger)
        promised = estimator.card_
    else:
        estimator, promised = _tuned(estimator, tune, features, codes, owners, judges)
    model = Model(schema, estimator.coef_, estimator.intercept_)
    card = replace(promised, classes_from="schema", preprocessing="schema")
    metrics = None if held_out is None else _metrics(model, *held_out)
    return Trained(model, card, metrics, estimator.holder_report_, estimator.accounts_)


def _tuned(
    estimator: Any,
    tune: Tuning,
    features: Any,
    codes: NDArray[np.int64],
    owners: NDArray[np.str_] | None,
    judges: tuple[Any, ...] | None,
) -> tuple[Any, Card]:
    """The best of a random number of runs, and its card."""
    from almoner.training._linear.search import PrivateSearch

    budget = {name: getattr(estimator, name) for name in ("epsilon", "delta", "seed")}
    search = PrivateSearch(estimator, tune.grid, runs=tune.runs, **budget)
    search.fit(features, codes, owners, held_out=judges)
    return search.best_estimator_, search.card_


def _judges(path: Path, schema: Schema, skip_rows: int, data: Path) -> tuple[Any, ...]:
    """The people of another file: features, classes, and whose row it is where the schema says so; private."""
    if Path(path).resolve() == Path(data).resolve():
        raise ArgumentError(f"{path} is the file that is trained on: without it the same people pay for the scores")
    table, codes = _held_out(path, schema, skip_rows)
    owners = tables.owners(table, schema)
    return (tables.encode(table, schema), codes, *([] if owners is None else [owners]))


def _held_out(test: Path, schema: Schema, skip_rows: int) -> tuple[tables.Table, NDArray[np.int64]]:
    """A labelled file's rows and the numbers of their classes, private."""
    table = tables.read(test, schema, skip_rows=skip_rows)
    codes = tables.labels(table, schema)
    if not len(codes):
        raise DataError(f"{test} has no rows")
    return table, codes


def _metrics(model: Model, table: tables.Table, codes: NDArray[np.int64]) -> dict[str, Any]:
    chances = model._probabilities(table)
    loss = -log_softmax(np.log(np.maximum(chances, 1e-300)), axis=1)[np.arange(len(codes)), codes]
    return {
        "rows": len(codes),
        "accuracy": float(np.mean(chances.argmax(axis=1) == codes)),
        "log_loss": float(loss.mean()),
        "note": NOT_COVERED,
    }


def save(trained: Trained, out: Path, *, force: bool = False) -> Path:
    """Write the folder, whole or not at all; what is there already is kept unless force says otherwise."""
    out = Path(out)
    check_free(out, force=force)
    with whole_folder(out, mode=0o755) as fresh:
        arrays = {"coef": trained.model.coef, "intercept": trained.model.intercept}
        write(fresh, _described(trained), arrays, trained.card, trained.metrics)
    return out


def check_free(out: Path, *, force: bool) -> None:
    """Refuse to overwrite, and what cannot be written; asked before training, so that no budget is spent in vain."""
    out = Path(out)
    if out.exists() and not force:
        raise ArgumentError(
            f"{out} exists already; choose another folder, or overwrite it with --force. A second model of the same "
            "people is a second release: its budget comes on top of the first"
        )
    if out.exists() and not (out / "model.json").is_file() and (not out.is_dir() or any(out.iterdir())):
        raise ArgumentError(f"{out} is not a model's folder, so it is not overwritten, not even with --force")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent):
            pass
    except OSError as error:
        raise ArgumentError(f"{out} can't be written: {error.strerror}") from error


def load(folder: Path) -> Model:
    """The model in a folder that `save` wrote."""
    folder = Path(folder)
    try:
        described = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        with (folder / "weights.npz").open("rb") as file, np.load(file, allow_pickle=False) as weights:
            coef, intercept = weights["coef"], weights["intercept"]
        written_format, described_schema = described["format"], described["schema"]
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise DataError(f"{folder} does not hold a model that almoner saved") from error
    if written_format != FORMAT:
        raise DataError(f"{folder}: format {written_format!r} is not {FORMAT}, the one this version reads")
    schema = Schema.parse(described_schema)
    columns = 1 if len(schema.classes) == 2 else len(schema.classes)
    if coef.shape != (columns, len(tables.feature_names(schema))) or intercept.shape != (columns,):
        raise DataError(f"{folder}: the weights do not fit the schema")
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise DataError(f"{folder}: the weights are not all numbers")
    return Model(schema, coef, intercept)


def _described(trained: Trained) -> dict[str, Any]:
    model = trained.model
    return {
        "format": FORMAT,
        "kind": "logistic regression",
        "schema": model.schema.to_dict(),
        "features": tables.feature_names(model.schema),
    }


def write(
    folder: Path,
    described: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    card: Card,
    metrics: dict[str, Any] | None,
) -> None:
    """The files of a model's folder."""
    _text(folder / "model.json", json.dumps(described, indent=2, ensure_ascii=False))
    np.savez(folder / "weights.npz", allow_pickle=False, **arrays)
    write_card(folder, card)
    if metrics is not None:
        _text(folder / "metrics.json", json.dumps(metrics, indent=2))


def write_card(folder: Path, card: Card) -> None:
    """The card of a model: in fields, in words, and as a page."""
    _text(folder / "card.json", card.to_json())
    _text(folder / "card.md", card.to_markdown())
    _text(folder / "card.html", card.to_html())


def _text(path: Path, text: str) -> None:
    path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")

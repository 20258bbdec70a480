"""Private logistic regression from a file with a table to a folder with a model, and back (extra ``sklearn``).

The folder holds the model and its card, which are public, and no pickle; see :func:`save`. Errors never quote a label
or how many records there are.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from almoner import _check
from almoner._disk import whole_file
from almoner.errors import ArgumentError, DataError
from almoner.individual import BudgetStatement
from almoner.training import tables
from almoner.training._card import Card
from almoner.training._linear.descent import probabilities
from almoner.training._linear.model_folder import (
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

__all__ = [
    "Trained", "Tuning", "accounts_file", "load", "save", "schema_template", "score", "statement", "train",
    "train_to_folder",
]  # fmt: skip

Observe = Callable[[int, NDArray[np.float64]], None]


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A trained model and the public schema of its tables. Every field is public."""

    schema: Schema
    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    clip: float = 1.0  # of the gradients in the training
    arrived: float = 0.0  # how far probabilities undo it

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
        scores, lengths = np.asarray(features @ self.coef.T) + self.intercept, sparse.linalg.norm(features, axis=1)
        return probabilities(scores, lengths / self.clip, self.arrived)

    def to_folder(self, card: Card) -> ModelFolder:
        """The model as a folder holds it."""
        names, arrays = tables.feature_names(self.schema), {"coef": self.coef, "intercept": self.intercept}
        fields = {"schema": self.schema.to_dict(), "features": names, "arrived": self.arrived}
        return ModelFolder(TABLE, fields, arrays, card)

    @classmethod
    def from_folder(cls, path: Path, held: ModelFolder) -> Self:
        """The model that a folder holds; raises DataError where its parts do not fit each other."""
        schema = Schema.parse(held.fields["schema"])
        columns = 1 if len(schema.classes) == 2 else len(schema.classes)
        held.check(path, coef=(columns, len(tables.feature_names(schema))), intercept=(columns,))
        _check.within(0, 1, arrived=(arrived := held.fields.get("arrived", 0.0)))  # an older folder has none
        return cls(schema, held.arrays["coef"], held.arrays["intercept"], held.card.max_grad_norm, arrived)


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
        raise ArgumentError("tune: no observe, which tells the number of runs, and no ledger, which has no such price")
    features, codes, table = _labelled(data, schema, skip_rows, blanks=ledger is None)
    held_out = None if test is None else _labelled(test, schema, test_skip_rows)  # refused before anything is trained
    judges = None  # the people of another file: features, classes, and whose row each is; private
    if tune is not None and tune.on is not None:
        if Path(tune.on).resolve() == Path(data).resolve():
            raise ArgumentError(f"{tune.on} is the file trained on: without it the same people pay for the scores")
        *judged, others = _labelled(tune.on, schema, tune.skip_rows)
        judges = (*judged, tables.owners(others, schema))
    owners, classes = tables.owners(table, schema), range(len(schema.classes))
    estimator = LogisticRegression(classes=classes, n_people=schema.people, fit_intercept=False, **options)
    if tune is None:
        estimator.fit(features, codes, groups=owners, observe=observe, ledger=ledger)
    else:
        from almoner.training._linear.search import PrivateSearch

        budget = {name: getattr(estimator, name) for name in ("epsilon", "delta", "seed")}
        search = PrivateSearch(estimator, tune.grid, runs=tune.runs, **budget)
        estimator = search.fit(features, codes, owners, held_out=judges).best_estimator_
    model = Model(schema, estimator.coef_, estimator.intercept_, estimator.card_.max_grad_norm, estimator.arrived_)
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
        raise ArgumentError("keep_accounts: accounts of the best run alone would understate what people paid for all")
    if keep_accounts and not options.get("individual", True):
        raise ArgumentError("keep_accounts needs individual=True: else all are charged the same, as the card says")
    check_places(out, force=force, keep_accounts=keep_accounts)
    trained = train(data, Schema.read(schema, target=target, person=person), **options)
    save(trained, out, force=force, keep_accounts=keep_accounts)
    return trained


def save(trained: Trained, out: Path, *, force: bool = False, keep_accounts: bool = False) -> Path:
    """Write the folder, and PRIVATE accounts beside it if asked; what is there already is kept, but for force."""
    held: ModelFolder = trained.model.to_folder(trained.card)
    accounts = trained.accounts if keep_accounts else None
    return held.write(out, force=force, metrics=trained.metrics, accounts=accounts)


def load(folder: Path) -> Model:
    """The model in a folder; raises DataError where it holds none, or is damaged."""
    held = ModelFolder.read(folder, TABLE)
    try:
        return Model.from_folder(folder, held)
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


def score(folder: Path, data: Path, *, skip_rows: int = 0, force: bool = False) -> dict[str, Any]:
    """Judge a saved model by other people, and write ``metrics.json`` into its folder. PRIVATE, as the data are.

    Accuracy and log loss, without noise, the number of rows, and the warning.

    Args:
        folder: the model's.
        data: a held-out file with labels; its people are covered by no guarantee.
        skip_rows: lines to leave out at the start of it.
        force: replace metrics that are there already; else they are refused.

    Raises:
        DataError: there is no model, or no row, or a label that the model does not know.
    """
    written = Path(folder) / "metrics.json"
    if written.exists() and not force:
        raise ArgumentError(f"{written} exists already: --force replaces it")
    model = load(folder)
    features, codes, _table = _labelled(data, model.schema, skip_rows)
    metrics = metrics_of(model.probabilities(features), codes)
    with whole_file(written) as file:
        file.write((json.dumps(metrics, indent=2) + "\n").encode("utf-8"))
    return metrics

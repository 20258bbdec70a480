"""Private logistic regression from a file with a table to a folder with a model, and back (extra ``sklearn``).

The folder holds the model and its card, which are public, and no pickle; see :func:`save`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bursar.errors import ArgumentError, DataError
from bursar.individual import BudgetStatement
from bursar.training._logistic import tables
from bursar.training._logistic.model_folder import Model, Trained, Tuning, check_free, load, save, train
from bursar.training._logistic.personal_accounts import PersonalAccounts, SavedAccounts, accounts_file
from bursar.training._logistic.schema import Schema, template

__all__ = [
    "Model",
    "PersonalAccounts",
    "SavedAccounts",
    "Schema",
    "Trained",
    "Tuning",
    "accounts_file",
    "load",
    "save",
    "schema_template",
    "statement",
    "train",
    "train_to_folder",
]


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
    check_free(out, force=force)
    kept = accounts_file(out)
    if keep_accounts and options.get("tune") is not None:
        raise ArgumentError(
            "keep_accounts: accounts of the best run alone would understate what people paid for all runs"
        )
    if keep_accounts and not options.get("individual", True):
        raise ArgumentError("keep_accounts needs individual=True: else all are charged the same, as the card says")
    if kept.exists() and not (keep_accounts and force):
        raise ArgumentError(f"{kept} exists already: the accounts of another model; choose another folder for this one")
    trained = train(data, Schema.read(schema, target=target, person=person), observe=observe, **options)
    save(trained, out, force=force)
    if keep_accounts and trained.accounts is not None:
        trained.accounts.save(kept)
    return trained


def statement(model: Path, person: str) -> BudgetStatement:
    """What one person may be told about a model. PRIVATE: to be disclosed to this person alone.

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
        raise DataError(f"{kept} is not there: accounts are kept where training was asked to, by --keep-accounts")
    return SavedAccounts.read(kept).statement(person)


def schema_template(data: Path, *, target: str, person: str | None = None) -> str:
    """A schema to fill in, as TOML: it holds the names of the file's columns and nothing else of the data."""
    names = tables.column_names(data)
    for name in (target, *([person] if person else [])):
        if name not in names:
            raise ArgumentError(f"{data} has no column {name!r}")
    return template(names, target, person)

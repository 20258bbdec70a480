"""Statements for people about a model: from the accounts of its training, or from a private file of them."""

import json
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner._disk import whole_file
from almoner._private import MARK
from almoner.errors import ArgumentError, DataError, UnknownPerson, Unsupported
from almoner.individual import BudgetStatement, Filter, Odometer, Statement

__all__ = ["PersonalAccounts", "SavedAccounts", "accounts_file", "named_accounts"]

FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PersonalAccounts:
    """The accounts of a finished training. PRIVATE: for the data holder.

    Attributes: people, the accounts; odometer, each person's running bound, or None; ids, (n,) whose each account is,
    or None: then people are the numbers of their rows. Public: delta, at which the budgets are stated.
    """

    people: Filter
    odometer: Odometer | None
    ids: NDArray[Any] | None
    delta: float

    def __repr__(self) -> str:
        return f"PersonalAccounts({MARK})"

    def statement(self, person: object) -> BudgetStatement | Statement:
        """One person's statement, for nobody else: the running bound if there is one, else the budget."""
        row = self._row(person)
        if self.odometer is None:
            told = self.people.statement(row, delta=self.delta)
            return BudgetStatement(_plain(person), told.used, told.epsilon, told.delta, told.guess)
        bound = self.odometer.statement(row)
        return Statement(_plain(person), bound.epsilon, bound.ex_post_epsilon, bound.delta)

    def save(self, path: Path) -> Path:
        """Write what ``SavedAccounts`` reads: a file that its owner alone can read; PRIVATE."""
        count = len(self.people.used())
        fields = {
            "format": FORMAT,
            "mark": MARK,
            "delta": self.delta,
            "ids": [str(row) for row in range(count)] if self.ids is None else [str(each) for each in self.ids],
            "used": self.people.used().tolist(),
            "epsilon": np.asarray(self.people.epsilon(delta=self.delta)).tolist(),
            "guess": self.people.guess().tolist(),
        }
        with whole_file(path) as file:
            file.write(json.dumps(fields).encode())
        return path

    def _row(self, person: object) -> int:
        count = len(self.people.used())
        if self.ids is None:
            if not isinstance(person, int | np.integer) or isinstance(person, bool) or not 0 <= person < count:
                raise UnknownPerson("person must be the number of a row that the model was trained on, from 0")
            return int(person)
        found = np.flatnonzero(self.ids == person)
        if len(found) != 1:
            raise UnknownPerson("person: the model was trained on no records of this person")
        return int(found[0])


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SavedAccounts:
    """Accounts as a file holds them, for statements alone: nothing can be charged to them. PRIVATE.

    Attributes: ids, used, epsilon and guess, one for each person. Public: delta.
    """

    ids: Sequence[str]
    used: Sequence[float]
    epsilon: Sequence[float]
    guess: Sequence[float]
    delta: float

    def __repr__(self) -> str:
        return f"SavedAccounts({MARK})"

    @classmethod
    def read(cls, path: Path) -> "SavedAccounts":
        """The file that ``PersonalAccounts.save`` wrote.

        Raises:
            DataError: it is not such a file, or it is damaged.
        """
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            ids, used, epsilon, guess = (fields[name] for name in ("ids", "used", "epsilon", "guess"))
            kept = cls(ids, used, epsilon, guess, float(fields["delta"]))
            numbers = np.asarray([kept.used, kept.epsilon, kept.guess], dtype=np.float64)
            people = len(set(kept.ids))
            sound = fields["format"] == FORMAT and numbers.shape == (3, people) and people == len(kept.ids)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} does not hold the accounts of a model") from error
        if not sound or not np.all(numbers >= 0) or np.any(numbers[[0, 2]] > 1):
            raise DataError(f"{path} does not hold the accounts of a model, or is damaged")
        return kept

    def statement(self, person: str) -> BudgetStatement:
        """The statement of one person, named as in the data, for nobody else."""
        if person not in self.ids:
            raise UnknownPerson("--person: the model was trained on no records of this person")
        row = list(self.ids).index(person)
        return BudgetStatement(person, self.used[row], self.epsilon[row], self.delta, self.guess[row])


def named_accounts(people: Filter, ids: Sequence[Hashable] | None, delta: float) -> PersonalAccounts:
    """Accounts of people who are named by any ids, to be saved: a file names people by text; None: by rows.

    Raises:
        Unsupported: two ids are the same as text.
    """
    if ids is None:
        return PersonalAccounts(people, None, None, delta)
    named = np.empty(len(ids), dtype=object)
    named[:] = [str(each) for each in ids]
    if len(set(named)) != len(ids):
        raise Unsupported("accounts: some ids are the same as text, and a file names people by text")
    return PersonalAccounts(people, None, named, delta)


def accounts_file(model: Path) -> Path:
    """Where the accounts of the model in a folder are kept: beside the folder, which may be given away."""
    if not model.name:
        raise ArgumentError(f"{model} must be the folder of a model")
    return model.with_name(model.name + ".accounts")


def _plain(person: object) -> Any:
    return person.item() if isinstance(person, np.generic) else person

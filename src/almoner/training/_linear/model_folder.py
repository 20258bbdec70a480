"""Folders of trained models: one format for tables, images and modules, with one writer and one reader.

Nothing in a folder can run, and nothing is in it that the guarantee does not cover, except ``metrics.json``:

    model.json      format, kind and its own entries; names, shapes and types of arrays, SHA-256 of weights.npz; public
    weights.npz     the arrays, no pickle; public
    card.json       the guarantee, in fields
    card.md         the guarantee, in words
    card.html       the same as a page
    metrics.json    how well the model does on a held-out file: computed without noise, so as private as that file is

Accounts are private: they are beside the folder, which may be given away. People get their statements from them.
"""

import json
import tempfile
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import Any, Self, cast
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray

from almoner import __version__
from almoner._disk import whole_file, whole_folder
from almoner._private import MARK
from almoner.errors import ArgumentError, DataError, UnknownPerson, Unsupported
from almoner.individual import BudgetStatement, Filter, Odometer, Statement
from almoner.training._accounts import HolderReport
from almoner.training._card import Card

FORMAT, ACCOUNTS_FORMAT = 2, 1  # of what a folder, and a file of accounts, holds
TABLE, MODULE = "logistic regression", "PyTorch module"

LOADERS = {
    TABLE: "training.saved_model.load(folder)",
    MODULE: "training.saved_module.load(folder, module)",
}  # kinds of folders, and the call that reads each

OF_ALL = ("format", "kind", "arrays", "weights")  # entries of ``model.json`` that every kind has

NOT_COVERED = (
    "computed on the held-out file without noise: the guarantee of the model does not cover the people in that file; "
    "keep these numbers as private as the file"
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PersonalAccounts:
    """Accounts of a finished training, or of all who ever came to a stream. PRIVATE: for the data holder."""

    people: Filter | None  # None where a ledger has them
    delta: float  # at which budgets are stated; public
    odometer: Odometer | None = None  # each person's running bound
    ids: Sequence[Hashable] | None = None  # (n,) whose each account is; None: the numbers of rows
    stream: Any = None  # accounts that know people by id: a ledger's, or these

    def __repr__(self) -> str:
        return f"PersonalAccounts({MARK})"

    def statement(self, person: Any) -> BudgetStatement | Statement:
        """One person's statement, for nobody else: the running bound if there is one, else the budget."""
        if self.stream is not None:
            return cast(BudgetStatement, self.stream.statement(person, delta=self.delta))
        row = self._row(person)
        person = person.item() if isinstance(person, np.generic) else person
        if self.odometer is None:
            return replace(self._own.statement(row, delta=self.delta), person=person)
        return replace(self.odometer.statement(row), person=person)

    def save(self, path: Path) -> Path:
        """Write what ``saved_statement`` reads, for its owner alone; PRIVATE. Unsupported: ids are alike as text."""
        text = self.text()
        with whole_file(path) as file:
            file.write(text.encode())
        return path

    def text(self) -> str:
        """The text of that file; PRIVATE."""
        people, used = self._own, self._own.used()
        ids = people.state()["ids"] if self.ids is None else self.ids
        names = [str(each) for each in (range(len(used)) if ids is None else ids)]
        if len(set(names)) != len(names):
            raise Unsupported("accounts: some ids are the same as text, and a file names people by text")
        fields = {
            "format": ACCOUNTS_FORMAT,
            "mark": MARK,
            "delta": self.delta,
            "ids": names,
            "used": used.tolist(),
            "epsilon": np.asarray(people.epsilon(delta=self.delta)).tolist(),
            "guess": people.guess().tolist(),
        }
        return json.dumps(fields)

    @property
    def _own(self) -> Filter:
        if self.people is None:
            raise Unsupported("accounts: they are the ledger's; see Ledger.spent")
        return self.people

    def _row(self, person: object) -> int:
        if self.ids is None:
            count = len(self._own.used())
            if not isinstance(person, int | np.integer) or isinstance(person, bool) or not 0 <= person < count:
                raise UnknownPerson("person must be the number of a row that the model was trained on, from 0")
            return int(person)
        found = [row for row, each in enumerate(self.ids) if each == person]
        if len(found) != 1:
            raise UnknownPerson("person: the model was trained on no records of this person")
        return found[0]


def saved_statement(path: Path, person: str) -> BudgetStatement:
    """One person's statement, for nobody else, from the file that ``PersonalAccounts.save`` wrote; else DataError."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        ids, delta = fields["ids"], float(fields["delta"])
        numbers = np.asarray([fields[name] for name in ("used", "epsilon", "guess")], dtype=np.float64)
        people = len(set(ids))
        sound = fields["format"] == ACCOUNTS_FORMAT and numbers.shape == (3, people) and people == len(ids)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} does not hold the accounts of a model") from error
    if not sound or not np.all(numbers >= 0) or np.any(numbers[[0, 2]] > 1):
        raise DataError(f"{path} does not hold the accounts of a model, or is damaged")
    if person not in ids:
        raise UnknownPerson("--person: the model was trained on no records of this person")
    used, epsilon, guess = numbers[:, ids.index(person)].tolist()
    return BudgetStatement(person, used, epsilon, delta, guess)


def accounts_file(model: Path) -> Path:
    """Where the accounts of the model in a folder are kept: beside the folder, which may be given away."""
    if not model.name:
        raise ArgumentError(f"{model} must be the folder of a model")
    return model.with_name(model.name + ".accounts")


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A trained model with its accounts: the model and its card are public, the rest is not."""

    model: Any
    card: Card
    metrics: dict[str, Any] | None = field(repr=False)
    """Private, where the held-out file is."""
    holder_report: HolderReport | None
    """PRIVATE: for the data holder. None where settings were tuned: the best run alone is not what people paid."""
    accounts: PersonalAccounts | None = None
    """PRIVATE: what each person may be told; None where all were charged the same, or settings were tuned."""


@dataclass(frozen=True, slots=True, eq=False)
class ModelFolder:
    """A model as its folder holds it. Every field is public."""

    kind: str
    fields: Mapping[str, Any]  # entries of the kind, as JSON has them: settings, and a schema or the recipe of features
    arrays: Mapping[str, NDArray[Any]]
    card: Card
    torch_types: Mapping[str, str] = field(default_factory=dict)
    """{array: type of its tensor} for types that NumPy lacks, of which the array holds the words: bfloat16 as int16."""

    def write(
        self,
        out: Path,
        *,
        force: bool = False,
        metrics: Mapping[str, Any] | None = None,
        accounts: PersonalAccounts | None = None,
    ) -> Path:
        """Write the folder, whole or not at all; a model that is there already is kept, but for ``force``.

        ``metrics``, private as the held-out file is, get the warning that says so; ``accounts``, PRIVATE, are written
        beside the folder. Raises ArgumentError where it cannot be written, Unsupported as ``PersonalAccounts.save``.
        """
        out, kept = Path(out), None if accounts is None else accounts.text()
        _check_free(out, force=force)
        with whole_folder(out, mode=0o755) as fresh:
            with ZipFile(fresh / "weights.npz", "w") as archive:
                for name, array in self.arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                        np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
            described = {"format": FORMAT, "kind": self.kind, **self.fields, "arrays": self._described()}
            described["weights"] = _digest(fresh / "weights.npz")
            texts = {"model.json": json.dumps(described, indent=2, ensure_ascii=False)}
            day = datetime.now(UTC).date().isoformat()
            card = replace(self.card, version=__version__, day=day, weights=described["weights"])
            texts |= {"card.json": card.to_json(), "card.md": card.to_markdown(), "card.html": card.to_html()}
            if metrics is not None:
                (fresh / "metrics.json").touch(0o600)
                texts["metrics.json"] = json.dumps({**metrics, "note": NOT_COVERED}, indent=2)
            for name, text in texts.items():
                (fresh / name).write_text(text.rstrip("\n") + "\n", encoding="utf-8")
        if kept is not None:
            with whole_file(accounts_file(out)) as file:
                file.write(kept.encode())
        return out

    @classmethod
    def read(cls, folder: Path, *kinds: str) -> Self:
        """Read a folder of these kinds, running nothing that is in it; DataError: it is another, or damaged."""
        from almoner._reading import json_values  # which those who only train never need

        folder = Path(folder)
        try:
            described = json_values((folder / "model.json").read_bytes())
            kind, written = described["kind"], described["format"]
        except (OSError, DataError, KeyError, TypeError) as error:
            raise DataError(f"{folder} does not hold a model that almoner saved") from error
        if kind not in kinds:
            cure = next((f": load it with {call}" for known, call in LOADERS.items() if known == kind), "")
            raise DataError(f"{folder} holds {kind!r}, not {' or '.join(map(repr, kinds))}{cure}")
        if written != FORMAT:
            raise DataError(
                f"{folder} has format {written!r}, and this version reads format {FORMAT}: train the model again, or "
                "read the folder with the version that wrote it"
            )
        try:
            card = Card.from_dict(json_values((folder / "card.json").read_bytes()))
            sound = {_digest(folder / "weights.npz"), card.weights or described["weights"]} == {described["weights"]}
            with (folder / "weights.npz").open("rb") as file:
                arrays = dict(np.load(file, allow_pickle=False)) if sound else {}
            types = {name: told["torch"] for name, told in described["arrays"].items() if "torch" in told}
            fields = {name: value for name, value in described.items() if name not in OF_ALL}
            found = cls(kind, fields, arrays, card, types)
            sound = sound and found._described() == described["arrays"]
        except Exception as error:  # a broken file raises many kinds
            raise DataError(f"{folder} does not hold a whole model that almoner saved") from error
        if not sound:
            raise DataError(f"{folder / 'weights.npz'} is damaged: it is not what model.json describes")
        return found

    def check(self, folder: Path, **shapes: tuple[int, ...]) -> None:
        """Refuse arrays of other names or shapes than these, or that are not all numbers."""
        if {name: array.shape for name, array in self.arrays.items()} != shapes:
            raise DataError(f"{folder}: the weights do not fit the model")
        if not all(array.dtype.kind == "f" and np.isfinite(array).all() for array in self.arrays.values()):
            raise DataError(f"{folder}: the weights are not all numbers")

    def _described(self) -> dict[str, dict[str, Any]]:
        return {
            name: {"shape": list(array.shape), "dtype": str(array.dtype)}
            | ({"torch": self.torch_types[name]} if name in self.torch_types else {})
            for name, array in self.arrays.items()
        }


def check_places(out: Path, *, force: bool, keep_accounts: bool) -> None:
    """Refuse to overwrite, and what cannot be written; asked before training, so that no budget is spent in vain."""
    kept = accounts_file(Path(out))
    _check_free(Path(out), force=force)
    if kept.exists() and not (keep_accounts and force):
        raise ArgumentError(f"{kept} exists already: the accounts of another model; choose another folder for this one")


def _check_free(out: Path, *, force: bool) -> None:
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


def metrics_of(chances: NDArray[np.float64], codes: NDArray[np.int64]) -> dict[str, Any]:
    """Accuracy and log loss of probabilities (rows, classes), by the true classes (rows,); private, as a note says."""
    own = np.maximum(chances[np.arange(len(codes)), codes], 1e-300)
    accuracy, loss = np.mean(chances.argmax(axis=1) == codes), -np.log(own).mean()
    return {"rows": len(codes), "accuracy": float(accuracy), "log_loss": float(loss), "note": NOT_COVERED}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()

"""The folder that the calls of ``LogisticRegression.partial_fit`` go on from. Private: the accounts are in it.

A call is told to nobody before what it leaves behind is on the disk, in one file that takes the place of the last one:
after a crash there is a call that was charged and released, or one that never was. On a ledger, the noisy sums of a
call are kept before the ledger charges it, and the ledger says whether it did.
"""

import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from almoner._disk import Lock, private_folder, whole_file
from almoner.errors import ArgumentError, DataError
from almoner.ledger import new_claim

__all__ = ["Saved", "StreamFolder"]

FORMAT = 2
"""Of what the folder holds. It grows when a version can't go on from what an earlier one wrote."""

NAMES = {"settings", "n_features", "names", "divisor", "classes", "sigma", "ledger", "accounts"}
"""Settings that are kept of a model beside its numbers."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Saved:
    """The state that a call leaves behind.

    Attributes:
        number: of the call. Public.
        fields: what JSON can hold; private, because people's ids are in it.
        parameters: of the model. Public.
        spent: (people, totals) what each person has spent; None on a ledger. Private.
    """

    number: int
    fields: Mapping[str, Any]
    parameters: Floats
    spent: NDArray[np.int64] | None


class StreamFolder:
    """Files for their owner alone.

    Args:
        folder: made if it does not exist.
        resume: whether to go on from what is there; a folder with a model is refused otherwise.

    Raises:
        ArgumentError: it holds a model, or holds none.
    """

    def __init__(self, folder: str | Path, *, resume: bool) -> None:
        self.path = Path(folder)
        self._state, self._update = self.path / "state.npz", self.path / "update.npz"
        self._claim = self.path / "claim"
        if resume and not self._state.exists():
            raise ArgumentError(f"checkpoint={str(folder)!r} holds no model that partial_fit began")
        if not resume and self._state.exists():
            raise ArgumentError(
                f"checkpoint={str(folder)!r} holds a model already: go on with it by LogisticRegression.resume"
            )
        private_folder(self.path)

    @contextmanager
    def alone(self, number: int | None) -> Iterator[None]:
        """Keep other processes out, and make sure that nobody went on from this folder elsewhere.

        Args:
            number: the calls that were made here; None: whatever the folder says.

        Raises:
            ArgumentError: another process is at it, or the folder has seen other calls.
        """
        lock = Lock(self.path / "lock")
        try:
            taken = lock.take()
        except OSError as error:
            raise ArgumentError(f"checkpoint={str(self.path)!r} cannot be locked: {error.strerror}") from error
        if not taken:
            raise ArgumentError(f"checkpoint={str(self.path)!r} is in use by another process")
        try:
            found = self._number()
            if number is not None and found != number:
                raise ArgumentError(
                    f"checkpoint={str(self.path)!r} has seen {found} calls of partial_fit, and this model {number}: "
                    "another process went on from it. Go on by LogisticRegression.resume"
                )
            yield
        finally:
            lock.release()

    def save(self, saved: Saved) -> None:
        """Replace what is there; returns when it is on the disk.

        Raises:
            ArgumentError: an id or a label is not a whole number or a text.
            DataError: it cannot be written; what was there is kept.
        """
        text = json.dumps({"format": FORMAT, **saved.fields}, allow_nan=False)
        arrays: dict[str, Any] = {"number": np.int64(saved.number), "parameters": saved.parameters}
        arrays["fields"] = np.frombuffer(text.encode(), dtype=np.uint8)
        if saved.spent is not None:
            arrays["spent"] = saved.spent
        self._write(self._state, arrays)

    def load(self) -> Saved:
        """Read the state that the last call left behind.

        Raises:
            DataError: it cannot be read, or another version of Almoner wrote it; nothing was changed.
        """
        arrays = self._read(self._state)
        try:
            fields = json.loads(arrays["fields"].tobytes())
            found = fields.pop("format")
            spent = arrays.get("spent")
            saved = Saved(int(arrays["number"]), fields, np.asarray(arrays["parameters"], dtype=np.float64), spent)
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            raise self._damaged(self._state) from broken
        if found == FORMAT and (
            not saved.fields.keys() >= NAMES or saved.parameters.ndim != 2 or not np.all(np.isfinite(saved.parameters))
        ):
            raise self._damaged(self._state)
        if found != FORMAT:
            raise DataError(
                f"checkpoint: {str(self._state)!r} has format {found!r}, of another version of Almoner; this one reads "
                f"format {FORMAT}. Nothing was changed: go on with the version that began it"
            )
        return saved

    def claim(self) -> str:
        """The secret by which this folder's stream shows a ledger that it is the one of its name. Private."""
        if not self._claim.exists():
            with whole_file(self._claim) as file:
                file.write(new_claim().encode())
        return self._claim.read_text(encoding="ascii")

    def keep(self, number: int, noisy: Floats, factor: float) -> None:
        """Keep the noisy sum of a call on a ledger, and by what it is multiplied. Private until the ledger charges."""
        self._write(self._update, {"number": np.int64(number), "noisy": noisy, "factor": np.float64(factor)})

    def kept(self, number: int) -> tuple[list[Floats], float] | None:
        """The noisy sum of the call of this number, and its factor, if they are what was kept last. Private."""
        if not self._update.exists():
            return None
        arrays = self._read(self._update)
        try:
            return ([arrays["noisy"]], float(arrays["factor"])) if int(arrays["number"]) == number else None
        except (ValueError, KeyError, TypeError) as broken:
            raise self._damaged(self._update) from broken

    def _number(self) -> int:
        """The number of calls that the folder has seen."""
        return int(self._read(self._state, "number")["number"]) if self._state.exists() else 0

    def _write(self, path: Path, arrays: Mapping[str, Any]) -> None:
        try:
            with whole_file(path) as file:
                np.savez(file, allow_pickle=False, **arrays)
        except OSError as failed:
            raise DataError(f"checkpoint: {str(path)!r} can't be written: {failed.strerror}") from failed

    def _read(self, path: Path, *names: str) -> dict[str, Any]:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in names or arrays.files}
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as broken:
            raise self._damaged(path) from broken

    @staticmethod
    def _damaged(path: Path) -> DataError:
        return DataError(f"checkpoint: {str(path)!r} can't be read; nothing was changed")

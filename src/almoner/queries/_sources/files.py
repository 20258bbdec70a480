"""Files to be read as one table: which they are, and whether they are still what they were."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

from almoner.errors import DataError

__all__ = ["CSV", "PARQUET", "Files", "files_of", "is_split", "suffix"]

PARQUET, CSV = (".parquet", ".pq"), (".csv", ".tsv")

_Identity = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Files:
    """Files to be read as one table, each as it is when this is made.

    A file is what it was while its device, inode, size and time of change are the same. A file that is moved away and
    back is what it was; a copy of it in its place is another one.

    Fields:
        shown: how they are called.
        listed: all of them.
        folder: that they are in; None where they were named one by one. Files that come into it later do not belong.
    """

    shown: Path
    listed: tuple[Path, ...]
    folder: Path | None
    _seen: tuple[_Identity, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_seen", tuple(map(_identity, self.listed)))

    @property
    def csv(self) -> bool:
        """Tell whether they are CSV files."""
        return suffix(self.listed[0]) in CSV

    def check(self) -> None:
        """Refuse files that are away, or are not what they were.

        Raises:
            DataError: with its reason, "away" or "changed".
        """
        for path, seen in zip(self.listed, self._seen, strict=True):
            if _identity(path) != seen:
                raise DataError(
                    f"{path} is another file than when the session was opened, or was written to: open the session "
                    "again, and questions are about the rows as they are then",
                    reason="changed",
                )


def _identity(path: Path) -> _Identity:
    """The device, inode, size and time of change of a file that can be read."""
    try:
        found = path.stat()
        readable = os.access(path, os.R_OK)
    except OSError:
        raise DataError(f"{path} is not there", reason="away") from None
    if not readable:
        raise DataError(f"{path} may not be read by this user", reason="away")
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def is_split(path: Path, files: Iterable[Path]) -> bool:
    """True if names of folders, like day=2011-12-09, are columns; a name above the data must not become one."""
    return any("=" in part for file in files for part in file.relative_to(path).parts[:-1])


def suffix(path: Path) -> str:
    """The ending of a file's name in small letters, without that of its compression."""
    return (path.with_suffix("") if path.suffix in (".gz", ".zst") else path).suffix.lower()


def files_of(data: str | Path | Sequence[str | Path]) -> Files:
    """The files that a path, a pattern or a list stands for."""
    if isinstance(data, list | tuple):
        listed = [Path(each).absolute() for each in data]
        shown = listed[0].parent
    else:
        path = Path(str(data)).absolute()  # a view is read again after changes of folder
        if "://" in str(data):
            raise DataError(f"data: {data} is no file here: load it first, or give a DuckDB connection and table=")
        if path.is_dir():
            return Files(path, tuple(_files_in(path)), path)
        if path.is_file():
            return Files(path, (path,), None)
        listed, shown = sorted(map(Path, glob(str(path), recursive=True))), path  # noqa: PTH207 (of any folder)
    missing = next((each for each in listed if not each.is_file()), None if listed else shown)
    if missing is not None:
        raise DataError(f"{missing} is not there", reason="away")
    if len({suffix(each) for each in listed}) > 1 or len(set(listed)) < len(listed):
        raise DataError(f"{shown}: the files must all be of one kind, each given once")
    return Files(shown, tuple(listed), None)


def _files_in(path: Path) -> list[Path]:
    """The files of a folder, all of one kind; refuses what a reader would leave out without a word."""
    inside = sorted(path.rglob("*"))
    if any(each.is_symlink() and not each.is_file() for each in inside):
        raise DataError(f"{path} holds a link to a folder, or to nothing, which would not be read: put the rows there")
    files = [each for each in inside if each.is_file()]
    hidden = {file for file in files if any(part.startswith((".", "_")) for part in file.relative_to(path).parts)}
    kinds = {file.suffix for file in files if file not in hidden}  # letter by letter: .CSV is another kind
    if len(kinds) != 1 or not kinds <= {*PARQUET, *CSV}:
        raise DataError(f"{path} must hold files of one kind, .parquet or .csv, and no others")
    (kind,) = kinds
    if any(file.suffix == kind for file in hidden):  # half-written or deleted rows of programs that keep such files
        raise DataError(f"{path} holds hidden {kind} files, in it or in folders whose names begin with . or _")
    files = [file for file in files if file.suffix == kind]
    if is_split(path, files) and any("=" in part for part in path.parts):
        raise DataError(f"{path} is a part of a folder that is split by names with =; give the whole of it")
    return files

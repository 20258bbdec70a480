"""Public facts about a table: its columns, their bounds and categories, the labels, and who a row belongs to.

Nothing here is read from the data. Bounds, categories and bins say what values *may* occur, from knowledge that does
not depend on the people in the table: a codebook, a questionnaire, a law. A schema is a small TOML file::

    target = "income"
    classes = ["<=50K", ">50K"]        # the labels
    person = "id"                      # optional: rows with the same entry are one person; else each row is a person
    people = 32561                     # optional: their number, only if it is public
    missing = ["", "?"]                # entries that mean "not known"
    decimal = ","                      # optional: numbers are written 1.234,5 and €12,50; "." for 1,234.5 and €12.50

    [columns.age]                      # a number: clamped to the bounds, scaled to [-1, 1]
    low = 17
    high = 90

    [columns.hours]                    # a number in bins: 0-20, 20-40, 40-99
    low = 0
    high = 99
    bins = [20, 40]

    [columns.sex]                      # a category
    categories = ["Female", "Male"]

    [columns.married]                  # a column used a second time, with some categories merged
    source = "marital-status"
    categories = [["Married-civ-spouse", "Married-AF-spouse"], ["Divorced", "Never-married", "Widowed"]]

    [[crosses]]                        # pairs of columns with bins or categories
    columns = ["hours", "sex"]

Every row is treated alike: a missing entry gets an indicator of its own (``missing = "refuse"`` in a
column refuses it); an entry that is not a number counts as missing; a number outside the bounds is clamped; a category
that is not listed gives no indicator (``unseen = "refuse"`` refuses it); columns that are not listed are not used. A
column with entries none of which is a number, or listed, is refused: the schema or the file is mistaken.
"""

import re
import tomllib
from dataclasses import asdict, dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from almoner.errors import DataError

__all__ = ["Categorical", "Numeric", "Schema", "template"]

_TOP = {"target", "classes", "person", "people", "missing", "decimal", "file", "aliases", "columns", "crosses"}


@dataclass(frozen=True, slots=True)
class Numeric:
    """A column of numbers with public bounds, and public bins if it has any."""

    name: str
    low: float
    high: float
    bins: tuple[float, ...] = ()
    missing: str = "indicator"
    source: str = ""
    """The column of the file; empty: the one of the same name."""

    def __post_init__(self) -> None:
        if not (_finite(self.low) and _finite(self.high) and self.low < self.high):
            raise DataError(f"column {self.name!r}: low={self.low!r} must be below high={self.high!r}, both finite")
        if any(not _finite(edge) for edge in self.bins) or list(self.bins) != sorted(set(self.bins)):
            raise DataError(f"column {self.name!r}: bins must be finite numbers in rising order")
        _policy(self.name, missing=self.missing, options=("indicator", "refuse"))

    @property
    def codes(self) -> int:
        """The number of indicators: one for each bin and one for missing; 0 where the column is scaled instead."""
        return len(self.bins) + 2 if self.bins else 0


@dataclass(frozen=True, slots=True)
class Categorical:
    """A column of categories, publicly known."""

    name: str
    categories: tuple[tuple[str, ...], ...]
    """Groups of entries; the entries of a group count as the same category."""
    missing: str = "indicator"
    unseen: str = "zeros"
    source: str = ""

    def __post_init__(self) -> None:
        entries = [entry for group in self.categories for entry in group]
        if len(set(entries)) != len(entries) or len(self.categories) < 2 or not all(self.categories):
            raise DataError(f"column {self.name!r}: categories must be at least two, all different")
        _policy(self.name, missing=self.missing, options=("indicator", "refuse"))
        _policy(self.name, unseen=self.unseen, options=("zeros", "refuse"))

    @property
    def codes(self) -> int:
        """The number of indicators of the column: one for each category and one for missing."""
        return len(self.categories) + 1


@dataclass(frozen=True, slots=True)
class Schema:
    """Everything public about a table. Made by `read` or `parse`."""

    target: str
    classes: tuple[str, ...]
    columns: tuple[Numeric | Categorical, ...]
    crosses: tuple[tuple[str, str], ...] = ()
    person: str | None = None
    people: int | None = None
    missing: tuple[str, ...] = ("",)
    names: tuple[str, ...] = ()
    """The names of the columns, for a CSV file without a header."""
    aliases: dict[str, str] = field(default_factory=dict)
    """Other spellings of labels: {entry of the file: label}."""
    decimal: str | None = None
    """Mark before the decimals of numbers as people write them; None: they are written as in 1234.5 or 1e3."""

    def __post_init__(self) -> None:
        if len(set(self.classes)) != len(self.classes) or len(self.classes) < 2:
            raise DataError("classes must name at least two labels, all different")
        names = [name for column in self.columns for name in (column.name, column.source)]
        if not names:
            raise DataError("the schema lists no columns: give [columns.NAME] with low and high, or categories")
        for name in (self.target, *([self.person] if self.person else [])):
            if name in names:
                raise DataError(f"column {name!r} cannot be a feature as well as the target or the person")
        if self.people is not None and not (isinstance(self.people, int) and self.people >= 1):
            raise DataError(f"people={self.people!r} must be a whole number >= 1")
        with_codes = {column.name for column in self.columns if column.codes}
        for pair in self.crosses:
            if len(pair) != 2 or not set(pair) <= with_codes:
                raise DataError(f"crosses: {list(pair)!r} must be two listed columns with bins or categories")
        if not set(self.aliases.values()) <= set(self.classes):
            raise DataError("aliases must point to labels that classes names")
        if self.decimal not in (None, ",", "."):
            raise DataError(f"decimal={self.decimal!r} must be ',' or '.'")

    @property
    def wanted(self) -> list[str]:
        """The columns that are read from a file to train."""
        sources = dict.fromkeys(column.source or column.name for column in self.columns)
        return [*sources, *([self.person] if self.person else [])]

    @classmethod
    def read(cls, path: Path, *, target: str | None = None, person: str | None = None) -> "Schema":
        """The schema in a TOML file; target and person, where given, must agree with it or fill its gaps."""
        try:
            return cls.parse(tomllib.loads(Path(path).read_text(encoding="utf-8")), target=target, person=person)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not a TOML file: {error}") from error
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error

    @classmethod
    def parse(cls, described: dict[str, Any], *, target: str | None = None, person: str | None = None) -> "Schema":
        """The schema in a dictionary, as TOML has it (see the top of this module)."""
        if unknown := set(described) - _TOP:
            raise DataError(f"the schema has unknown entries {sorted(unknown)}; known are {sorted(_TOP)}")
        for name, wanted in (("target", target), ("person", person)):
            if wanted is not None and described.get(name, wanted) != wanted:
                raise DataError(f"{name} is {wanted!r} in the call and {described[name]!r} in the schema")
        target = target or described.get("target")
        if not target or "classes" not in described:
            raise DataError("the schema must name a target and its classes (labels are never read from the data)")
        return cls(
            target=target,
            classes=tuple(map(str, described["classes"])),
            columns=tuple(_column(name, entry) for name, entry in described.get("columns", {}).items()),
            crosses=tuple(tuple(cross.get("columns", ())) for cross in described.get("crosses", ())),
            person=person or described.get("person"),
            people=described.get("people"),
            missing=tuple(map(str, described.get("missing", [""]))),
            names=tuple(described.get("file", {}).get("names", ())),
            aliases={str(key): str(value) for key, value in described.get("aliases", {}).items()},
            decimal=described.get("decimal"),
        )

    def to_dict(self) -> dict[str, Any]:
        """The schema as `parse` takes it."""
        named = ("target", "classes", "person", "people", "missing", "aliases", "decimal")
        described = {name: getattr(self, name) for name in named} | {
            "columns": {column.name: _described(column) for column in self.columns},
            "crosses": [{"columns": pair} for pair in self.crosses],
            "file": {"names": self.names},
        }
        return {name: value for name, value in described.items() if value is not None}


def template(names: list[str], target: str, person: str | None = None) -> str:
    """A schema to fill in, as TOML: it holds the names of the columns and nothing of their entries."""
    lines = [
        "# Fill in what is publicly known; delete the columns that the model should not use.",
        "# Bounds and categories must not be taken from the data: they would reveal something about the people in it.",
        f"target = {_quoted(target)}",
        "classes = []          # the labels that there may be",
        f"person = {_quoted(person)}"
        if person
        else '# person = "id"       # whose row it is; else each row is a person',
        "# people = 1000       # the number of people, only if it is public",
        'missing = [""]        # entries that mean "not known"',
    ]
    for name in names:
        if name in (target, person):
            continue
        key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)
        lines += ["", f"[columns.{key}]", "# low = 0", "# high = 100", '# or: categories = ["a", "b"]']
    return "\n".join(lines) + "\n"


def _described(column: Numeric | Categorical) -> dict[str, Any]:
    """A column as ``_column`` takes it."""
    return {name: value for name, value in asdict(column).items() if name != "name" and value not in ("", ())}


def _column(name: str, entry: object) -> Numeric | Categorical:
    if not isinstance(entry, dict):
        raise DataError(f"column {name!r} must have low and high, or categories")
    options = {key: entry[key] for key in ("missing", "unseen", "source") if key in entry}
    if {"low", "high"} <= set(entry) <= {"low", "high", "bins", "missing", "source"}:
        return Numeric(name, entry["low"], entry["high"], tuple(entry.get("bins", ())), **options)
    if "categories" in entry and set(entry) <= {"categories", "missing", "unseen", "source"}:
        groups = (group if isinstance(group, list | tuple) else [group] for group in entry["categories"])
        return Categorical(name, tuple(tuple(map(str, group)) for group in groups), **options)
    raise DataError(
        f"column {name!r} must have low and high (beside them: bins, missing, source), or categories (beside them: "
        "missing, unseen, source). They are public, so they are not read from the data. Delete the section of a column "
        "that the model shall not use; a column that names people is not listed, but given as person"
    )


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _policy(column: str, *, options: tuple[str, ...], **named: str) -> None:
    for name, value in named.items():
        if value not in options:
            raise DataError(f"column {column!r}: {name}={value!r} must be one of {', '.join(map(repr, options))}")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

"""Tables from CSV and Parquet files as features, labels and people, by a public schema (extra ``sklearn``).

:func:`read` gives the columns that a schema needs; :func:`encode`, :func:`labels` and :func:`people` make of them what
training takes. The features of a row depend on that row and on the schema, never on other rows, so encoding costs no
privacy. Messages name the column and the rule; they hold no entry, row number or count. Those of entries that cannot be
read are in :func:`misfits`, and in the note of the error that refuses a column: PRIVATE, for the data holder.

A schema has public facts: a table's columns, their bounds and categories, the labels, and who a row belongs to.
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

import json
import logging
import re
import tomllib
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from almoner import _extras, _misfits
from almoner._csv import batches, form, guarded, lines_of
from almoner._misfits import DECIMALS, FIRST, Misfit
from almoner.errors import DataError

with _extras.need("pyarrow", extra="sklearn"):
    import pyarrow as arrow
    from pyarrow import compute, parquet

__all__ = ["Schema", "encode", "feature_names", "labels", "misfits", "people", "read"]

LOG = logging.getLogger("almoner.training")

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".data")
_CURES = {
    "number": "numbers are written 1234.5; decimal = ',' in the schema, before its tables, reads 1.234,5 and €12,50, "
    "decimal = '.' reads 1,234.5 and €12.50",
    "category": "categories must be listed as the file spells them, from what is public",
}

_POLICIES = {"missing": ("indicator", "refuse"), "unseen": ("zeros", "refuse")}
"""Options of columns that say what becomes of some entries; the first is the default."""

Table = dict[str, arrow.Array]
"""{column: its entries}, private."""

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
        _check_policies(self)

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
        _check_policies(self)

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
        columns = {column.name: asdict(column) for column in self.columns}
        for name, entry in columns.items():
            columns[name] = {key: value for key, value in entry.items() if key != "name" and value not in ("", ())}
        crosses, file = [{"columns": pair} for pair in self.crosses], {"names": self.names}
        described = {**asdict(self), "columns": columns, "crosses": crosses, "file": file}
        return {name: value for name, value in described.items() if name in _TOP and value is not None}


def template(names: list[str], target: str, person: str | None = None) -> str:
    """A schema to fill in, as TOML: it holds the names of the columns and nothing of their entries."""
    quoted = partial(json.dumps, ensure_ascii=False)  # as TOML quotes a text
    lines = [
        "# Fill in what is publicly known; delete the columns that the model should not use.",
        "# Bounds and categories must not be taken from the data: they would reveal something about the people in it.",
        f"target = {quoted(target)}",
        "classes = []          # the labels that there may be",
        f"person = {quoted(person)}"
        if person
        else '# person = "id"       # whose row it is; else each row is a person',
        "# people = 1000       # the number of people, only if it is public",
        'missing = [""]        # entries that mean "not known"',
    ]
    for name in names:
        if name in (target, person):
            continue
        key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else quoted(name)
        lines += ["", f"[columns.{key}]", "# low = 0", "# high = 100", '# or: categories = ["a", "b"]']
    return "\n".join(lines) + "\n"


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


def _check_policies(column: "Numeric | Categorical") -> None:
    for name, options in _POLICIES.items():
        value = getattr(column, name, options[0])
        if value not in options:
            raise DataError(f"column {column.name!r}: {name}={value!r} must be one of {', '.join(map(repr, options))}")


def column_names(path: Path, *, names: tuple[str, ...] = (), skip_rows: int = 0) -> list[str]:
    """The names of a file's columns: ``names`` for a CSV file without a line of names."""
    path = Path(path)
    if names:
        listed = list(names)
    elif path.suffix in _PARQUET:
        listed = guarded(path, lambda: list(parquet.read_schema(path).names))
    elif path.suffix in _CSV:
        listed = list(form(path, skip_rows=skip_rows).names)
    else:
        raise DataError(f"{path} must end in .csv or .parquet")
    if len(set(listed)) != len(listed):
        raise DataError(f"{path} has two columns of the same name")
    return listed


def read(path: Path, schema: Schema, *, target: bool = True, skip_rows: int = 0, blanks: bool = True) -> Table:
    """The columns that a schema needs, as Arrow arrays of stripped text or of numbers; missing entries are null.

    Of columns with entries that cannot be read the data holder is told in the log ``almoner.training``; how many there
    are is in ``misfits``.

    Args:
        path: a .csv or .parquet file.
        schema: public.
        target: whether labels, and whose each row is, are needed too. Then a column whose entries can none of them be
            read is refused: somebody is to pay for it.
        skip_rows: how many lines to leave out at the start of a CSV file, before its line of names.
        blanks: whether blanks around the names of people are taken off; else they are refused, because a ledger takes
            such names for those of other people.
    """
    table, found = _read(Path(path), schema, target, skip_rows, blanks)
    if target:
        kinds = dict.fromkeys(each.kind for each in _misfits.unread(found))
        cures = [*map(_CURES.__getitem__, kinds), "delete the section of a column that the model shall not use"]
        _misfits.refuse(found, "; ".join(cures))
    numbers = [each for each in found if each.kind == "number"]  # that a category is not listed may be meant
    _misfits.tell(LOG, numbers, "training.tables.misfits, as `almoner schema --check`,")
    return table


def misfits(path: Path, schema: Schema, *, skip_rows: int = 0) -> list[Misfit]:
    """Numbers of entries of a file that are no numbers, or not among the categories, and where the first are. PRIVATE.

    Such entries count as missing, or give no indicator; ``read`` refuses a column of nothing else.

    Args:
        path: a .csv or .parquet file.
        schema: public.
        skip_rows: as of ``read``.
    """
    return _read(Path(path), schema, False, skip_rows, True)[1]


def _read(path: Path, schema: Schema, target: bool, skip_rows: int, blanks: bool) -> tuple[Table, list[Misfit]]:
    """(The columns that a schema needs, which of their entries cannot be read); private."""
    listed = column_names(path, names=schema.names, skip_rows=skip_rows)
    wanted = [*schema.wanted, schema.target] if target else [n for n in schema.wanted if n != schema.person]
    for name in wanted:
        if name not in listed:
            raise DataError(f"column {name!r} is in the schema but not in {path}")
    table = _load(path, wanted, schema, skip_rows)
    if not blanks and schema.person is not None:
        names = table.column(schema.person).combine_chunks().to_pylist()
        if any(isinstance(name, str) and name != name.strip() for name in names):
            raise DataError(f"column {schema.person!r}: names of people must not begin or end with blanks")
    clean = {name: _clean(name, table.column(name), schema) for name in wanted}
    found = []
    for column in schema.columns:
        name = column.source or column.name
        entries, there = clean[name]
        kind, fit = "number", entries.is_valid()
        if isinstance(column, Categorical):
            known = arrow.array([entry for group in column.categories for entry in group], arrow.string())
            kind, fit = "category", compute.is_in(entries.cast(arrow.string()), value_set=known)
        unfit = compute.and_not(there, fit)
        many = compute.sum(unfit).as_py() or 0
        rows = np.flatnonzero(unfit.to_numpy(zero_copy_only=False))[:FIRST].tolist() if many else []
        places = [f"row {row + 1}" for row in rows]
        if rows and path.suffix not in _PARQUET:
            places = [f"line {n}" for n in lines_of(form(path, names=schema.names, skip_rows=skip_rows), rows)]
        found.append(Misfit(None, name, kind, compute.sum(there).as_py() or 0, many, tuple(places)))
    return {name: entries for name, (entries, _) in clean.items()}, found


def labels(table: Table, schema: Schema) -> NDArray[np.int64]:
    """(rows,) the number of each row's class, private. A label that the schema does not name is refused."""
    entries = np.asarray(compute.fill_null(table[schema.target], "").to_numpy(zero_copy_only=False), dtype=object)
    entries = np.array([schema.aliases.get(entry, entry) for entry in entries], dtype=object)
    codes = _positions(entries, tuple((label,) for label in schema.classes))
    if (codes < 0).any():
        raise DataError(f"column {schema.target!r}: entries must be among the classes or aliases that the schema names")
    return codes


def people(table: Table, schema: Schema) -> NDArray[np.int64] | None:
    """(rows,) the number of the person to whom each row belongs, private; None where each row is a person."""
    names = owners(table, schema)
    return None if names is None else np.unique(names, return_inverse=True)[1]


def owners(table: Table, schema: Schema) -> NDArray[np.str_] | None:
    """(rows,) the name of the person to whom each row belongs, private; None where each row is a person."""
    if schema.person is None:
        return None
    column = table[schema.person].to_numpy(zero_copy_only=False)
    if any(entry in (None, "") for entry in column):
        raise DataError(f"column {schema.person!r}: every row must say whose it is: a row of nobody cannot be charged")
    return np.asarray(column.astype(str))


def feature_names(schema: Schema) -> list[str]:
    """The names of the features, in order."""
    names = []
    for column in schema.columns:
        if isinstance(column, Categorical):
            names += [f"{column.name}={' or '.join(group)}" for group in column.categories]
        elif column.bins:
            edges = [column.low, *column.bins, column.high]
            names += [f"{column.name} in [{a:g}, {b:g})" for a, b in pairwise(edges)]
        else:
            names.append(column.name)
        names.append(f"{column.name} missing")
    by_name = {column.name: column for column in schema.columns}
    for first, second in schema.crosses:
        a, b = by_name[first].codes, by_name[second].codes
        names += [f"{first}[{i}] and {second}[{j}]" for i in range(a) for j in range(b)]
    return [*names, "constant"]


def encode(table: Table, schema: Schema) -> sparse.csr_matrix:
    """Features (rows, len(feature_names)) in CSR, private: every row has L2 norm at most 1.

    Each column, each cross and a constant make one block, and each block is divided by the square root of their number.
    """
    rows = len(next(iter(table.values()))) if table else 0
    blocks = len(schema.columns) + len(schema.crosses) + 1
    indices, values = np.full((rows, blocks), -1, dtype=np.int64), np.ones((rows, blocks))
    codes: dict[str, NDArray[np.int64]] = {}
    widths = {column.name: column.codes for column in schema.columns}
    offset = 0
    for block, column in enumerate(schema.columns):
        code, values[:, block] = _block(table[column.source or column.name], column)
        codes[column.name] = code
        indices[:, block] = np.where(code < 0, -1, offset + code)
        offset += column.codes or 2
    for block, (first, second) in enumerate(schema.crosses, start=len(schema.columns)):
        a, b, width = codes[first], codes[second], widths[second]
        indices[:, block] = np.where((a < 0) | (b < 0), -1, offset + a * width + b)
        offset += widths[first] * width
    indices[:, -1] = offset
    there = indices >= 0
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    scaled = values[there] / np.sqrt(blocks)
    return sparse.csr_matrix((scaled, indices[there], starts), shape=(rows, offset + 1))


def _block(
    entries: arrow.Array, column: Numeric | Categorical
) -> tuple[NDArray[np.int64], NDArray[np.float64] | float]:
    """Which of a column's features is not zero in each row (-1: none), and its value."""
    missing = np.asarray(compute.is_null(entries, nan_is_null=True).to_numpy(zero_copy_only=False))
    if column.missing == "refuse" and missing.any():
        raise DataError(f"column {column.name!r}: missing entries are refused by its schema")
    if isinstance(column, Categorical):
        code = _positions(compute.fill_null(entries, "").to_numpy(zero_copy_only=False), column.categories)
        if column.unseen == "refuse" and (code[~missing] < 0).any():
            raise DataError(f"column {column.name!r}: entries must be among the categories that the schema names")
        return np.where(missing, len(column.categories), code), 1.0
    numbers = np.nan_to_num(compute.fill_null(entries, 0.0).to_numpy(zero_copy_only=False), nan=0.0)
    numbers = np.clip(numbers, column.low, column.high)
    if column.bins:
        return np.where(missing, column.codes - 1, np.searchsorted(column.bins, numbers, side="right")), 1.0
    scaled = 2 * (numbers - column.low) / (column.high - column.low) - 1
    return np.where(missing, 1, 0), np.where(missing, 1.0, scaled)


def _positions(entries: NDArray[np.object_], known: tuple[tuple[str, ...], ...]) -> NDArray[np.int64]:
    """The position of the group that each entry is in, or -1."""
    order = {text: position for position, group in enumerate(known) for text in group}
    return np.fromiter((order.get(entry, -1) for entry in entries), dtype=np.int64, count=len(entries))


def _load(path: Path, wanted: list[str], schema: Schema, skip_rows: int) -> arrow.Table:
    if path.suffix in _PARQUET:
        return guarded(path, lambda: parquet.read_table(path, columns=wanted))
    rows = list(batches(form(path, names=schema.names, skip_rows=skip_rows), wanted=wanted))
    return arrow.Table.from_batches(rows, arrow.schema([(name, arrow.string()) for name in wanted]))


def _clean(name: str, column: arrow.ChunkedArray, schema: Schema) -> tuple[arrow.Array, arrow.BooleanArray]:
    """Entries as stripped text, or as float64, null where missing; and a mask of those that are there."""
    numeric = any(isinstance(kind, Numeric) and (kind.source or kind.name) == name for kind in schema.columns)
    entries = column.combine_chunks()
    if arrow.types.is_dictionary(entries.type):
        entries = entries.dictionary_decode()
    simple = (arrow.types.is_string, arrow.types.is_large_string, arrow.types.is_boolean, arrow.types.is_integer)
    floating = arrow.types.is_floating(entries.type)
    if not (any(test(entries.type) for test in simple) or floating):
        raise DataError(f"column {name!r}: its type {entries.type} is not supported; use text or numbers")
    if floating:
        entries = compute.if_else(compute.is_nan(entries), None, entries)
    if not (floating and numeric):
        entries = compute.utf8_trim_whitespace(entries.cast(arrow.string()))
        unknown = compute.is_in(entries, value_set=arrow.array(schema.missing, arrow.string()))
        entries = compute.if_else(unknown, None, entries)
    return _numbers(entries, schema) if numeric else entries, entries.is_valid()


def _numbers(entries: arrow.Array, schema: Schema) -> arrow.Array:
    """Entries, as text or as numbers of a width, as finite float64; null where they are none."""
    if not arrow.types.is_floating(entries.type):
        spelled = compute.match_substring_regex(entries, DECIMALS.get(schema.decimal or "", _NUMBER))
        entries = compute.if_else(spelled, entries, None)
        if schema.decimal is not None:
            digits = compute.replace_substring_regex(entries, f"[^0-9{schema.decimal}-]", "")
            entries = compute.replace_substring(digits, schema.decimal, ".")
    entries = entries.cast(arrow.float64())
    return compute.if_else(compute.is_finite(entries), entries, None)

"""Tables from CSV and Parquet files as features, labels and people, by a public schema (extra ``sklearn``).

:func:`read` gives the columns that a schema needs; :func:`encode`, :func:`labels` and :func:`owners` make of them what
training takes. The features of a row depend on that row and on the schema, never on other rows, so encoding costs no
privacy. Messages name the column and the rule; they hold no entry, row number or count. Those of entries that cannot be
read are in :func:`misfits`, and in the note of the error that refuses a column: PRIVATE, for the data holder.

A schema has public facts: a table's columns, their bounds and categories, the labels, and who a row belongs to.
Nothing here is read from the data. Bounds, categories and bins say what values *may* occur, from knowledge that does
not depend on the people in the table: a codebook, a questionnaire, a law. ``Schema`` has every
line of its TOML file, with what it takes and what it is for; from it the tables of docs/training/schema.md, which
shows one, are made, and ``almoner schema schema``.

Every row is treated alike: a missing entry gets an indicator of its own (``missing = "refuse"`` in a
column refuses it); an entry that is not a number counts as missing; a number outside the bounds is clamped; a category
that is not listed gives no indicator (``unseen = "refuse"`` refuses it); columns that are not listed are not used. A
column with entries none of which is a number, or listed, is refused: the schema or the file is mistaken.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from almoner import _extras, _misfits
from almoner._check import told
from almoner._csv import batches, form, guarded, lines_of
from almoner._misfits import DECIMALS, FIRST, Misfit
from almoner._reading import Checked, Either, Field, Model, Number, Rule, broken, model_validator, toml
from almoner._reading import read as as_model
from almoner.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Schema", "encode", "labels", "misfits", "read"]

LOG = logging.getLogger("almoner.training")

_quoted = partial(json.dumps, ensure_ascii=False)  # as TOML has texts

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".data")
_CURES = {
    "number": "numbers are written 1234.5; decimal = ',' in the schema, before its tables, reads 1.234,5 and €12,50, "
    "decimal = '.' reads 1,234.5 and €12.50",
    "category": "categories must be listed as the file spells them, from what is public",
}

Table = dict[str, "pyarrow.Array"]  # {column: its entries}, private


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list | tuple) or any(isinstance(each, list | tuple | Mapping) for each in values):
        raise TypeError
    return list(map(str, values))


def _groups(values: Any) -> list[list[str]]:
    return [_texts(group if isinstance(group, list | tuple) else [group]) for group in values]


_Entry = str | int | float | bool
Texts = Annotated[list[str], Checked(_texts, list[_Entry], "a list of texts")]
Groups = Annotated[list[list[str]], Checked(_groups, list[_Entry | list[_Entry]], "a list of texts, or of lists")]
IfMissing = Literal["indicator", "refuse"]


class Numeric(Model):
    """A column of numbers with public bounds, and public bins if it has any."""

    low: float
    """numbers below are clamped to it"""
    high: float
    """numbers above are clamped to it"""
    bins: Annotated[list[float], Rule("finite numbers in rising order")] = Field(default=[])
    """edges between the bounds: the number becomes an indicator of its bin"""
    missing: IfMissing = "indicator"
    """what a missing entry gives; `"refuse"` refuses it"""
    source: str = ""
    """the column of the file, where it is called otherwise"""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if not self.low < self.high:
            raise broken(f": {told(low=self.low)} must be below {told(high=self.high)}")
        if list(self.bins) != sorted(set(self.bins)):
            raise broken(".bins must be finite numbers in rising order")
        return self

    @property
    def codes(self) -> int:
        """The number of indicators: one for each bin and one for missing; 0 where the column is scaled instead."""
        return len(self.bins) + 2 if self.bins else 0


class Categorical(Model):
    """A column of categories, publicly known."""

    categories: Groups
    """its entries; those of a group, such as `["a", "b"]`, count as the same category"""
    missing: IfMissing = "indicator"
    """what a missing entry gives; `"refuse"` refuses it"""
    unseen: Literal["zeros", "refuse"] = "zeros"
    """what an entry that is not listed gives: no indicator; `"refuse"` refuses it"""
    source: str = ""
    """the column of the file, where it is called otherwise"""

    @model_validator(mode="after")
    def _differ(self) -> Self:
        entries = [entry for group in self.categories for entry in group]
        if len(set(entries)) != len(entries) or len(self.categories) < 2 or not all(self.categories):
            raise broken(".categories must be at least two, all different")
        return self

    @property
    def codes(self) -> int:
        """The number of indicators of the column: one for each category and one for missing."""
        return len(self.categories) + 1


def _kind(entry: Any) -> type[Model] | None:
    if isinstance(entry, Mapping) and {"low", "high", "categories"} & entry.keys():
        return Categorical if "categories" in entry else Numeric
    return type(entry) if isinstance(entry, Numeric | Categorical) else None


Column = Annotated[
    Numeric | Categorical,
    Either(
        _kind,
        " must have low and high (beside them: bins, missing, source), or categories (beside them: missing, unseen, "
        "source). They are public, so they are not read from the data. Delete the section of a column that the model "
        "shall not use; a column that names people is not listed, but given as person",
    ),
]


class Cross(Model):
    """A pair of columns, each pair of whose bins or categories is a feature."""

    columns: list[str]
    """two columns with bins or categories"""


class Header(Model):
    """A CSV file without a line of names."""

    names: list[str] = Field(default=[])
    """the names of its columns"""


class Schema(Model):
    """Everything public about a table, as TOML has it. Made by `read` or `parse`."""

    target: Annotated[str, Field(min_length=1), Rule("the column of the labels")]
    """the column of the labels"""
    classes: Texts
    """the labels that there may be"""
    person: str | None = None
    """rows with the same entry here are one person; without it each row is a person"""
    people: Annotated[int, Number(1, 2**52, whole=True)] | None = None
    """the number of people, only if it is public"""
    missing: Texts = Field(default=[""])
    """entries that mean "not known\""""
    decimal: Literal[",", "."] | None = None
    """mark before the decimals of numbers as people write them; without it they are written as in 1234.5 or 1e3"""
    file: Header = Header()
    """a CSV file without a line of names"""
    aliases: dict[str, str] = Field(default={})
    """other spellings of labels: entry of the file = label"""
    columns: dict[str, Column]
    """the columns that the model uses: `[columns.NAME]`"""
    crosses: list[Cross] = Field(default=[])
    """pairs of columns: `[[crosses]]`"""

    @model_validator(mode="after")
    def _together(self) -> Self:
        if len(set(self.classes)) != len(self.classes) or len(self.classes) < 2:
            raise broken(".classes must name at least two labels, all different")
        if not self.columns:
            raise broken(".columns: the schema lists no columns: give [columns.NAME] with low and high, or categories")
        used = [each for name, column in self.columns.items() for each in (name, column.source)]
        for name in (self.target, self.person):
            if name and name in used:
                raise broken(f".columns: {name!r} cannot be a feature as well as the target or the person")
        with_codes = {name for name, column in self.columns.items() if column.codes}
        if not all(len(each.columns) == 2 and set(each.columns) <= with_codes for each in self.crosses):
            raise broken(".crosses must each be two listed columns with bins or categories")
        if not set(self.aliases.values()) <= set(self.classes):
            raise broken(".aliases must point to labels that classes names")
        return self

    @property
    def wanted(self) -> list[str]:
        """The columns that are read from a file to train."""
        sources = dict.fromkeys(column.source or name for name, column in self.columns.items())
        return [*sources, *([self.person] if self.person else [])]

    @classmethod
    def read(cls, path: Path, *, target: str | None = None, person: str | None = None) -> "Schema":
        """The schema in a TOML file; target and person, where given, must agree with it or fill its gaps."""
        return cls.parse(toml(Path(path)), target=target, person=person)

    @classmethod
    def parse(cls, described: dict[str, Any], *, target: str | None = None, person: str | None = None) -> "Schema":
        """The schema in a dictionary, as TOML has it; DataError where it breaks a rule, or not what the call says."""
        given = {name: value for name, value in {"target": target, "person": person}.items() if value is not None}
        for name, wanted in given.items():
            if described.get(name, wanted) != wanted:
                told = f"{name} is {wanted!r} in the call and {described[name]!r} in the schema"
                raise DataError(f"{told}: write `{name}={json.dumps(described[name])}`")
        try:
            return as_model(cls, {**described, **given})
        except ArgumentError as error:
            raise DataError(f"the schema: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """The schema as `parse` takes it."""
        return self.model_dump(exclude_defaults=True)


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


def column_names(path: Path, *, names: Sequence[str] = (), skip_rows: int = 0) -> list[str]:
    """The names of a file's columns: ``names`` for a CSV file without a line of names."""
    path = Path(path)
    if names:
        listed = list(names)
    elif path.suffix in _PARQUET:
        parquet = _arrow("parquet")
        listed = guarded(path, lambda: list(parquet.read_schema(path).names))
    elif path.suffix in _CSV:
        _arrow()
        listed = list(form(path, skip_rows=skip_rows).names)
    else:
        raise DataError(f"{path} must end in .csv or .parquet")
    if len(set(listed)) != len(listed):
        raise DataError(f"{path} has two columns of the same name")
    return listed


def read(path: Path, schema: Schema, *, target: bool = True, skip_rows: int = 0, blanks: bool = True) -> Table:
    """The columns that a schema needs, as Arrow arrays of stripped text or of numbers; missing entries are null.

    The log ``almoner.training`` tells of columns with entries that cannot be read; ``misfits`` of how many there are.

    Args:
        path: a .csv or .parquet file.
        schema: public.
        target: whether labels, and whose each row is, are needed too. Then columns with nothing readable are refused.
        skip_rows: how many lines to leave out at the start of a CSV file, before its line of names.
        blanks: whether blanks around people's names are taken off; else they are refused: to a ledger they are others.
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
    """
    return _read(Path(path), schema, False, skip_rows, True)[1]


def _read(path: Path, schema: Schema, target: bool, skip_rows: int, blanks: bool) -> tuple[Table, list[Misfit]]:
    """(The columns that a schema needs, which of their entries cannot be read); private."""
    listed = column_names(path, names=schema.file.names, skip_rows=skip_rows)
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
    found, (arrow, compute) = [], (_arrow(), _arrow("compute"))
    for called, column in schema.columns.items():
        name = column.source or called
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
            places = [f"line {n}" for n in lines_of(form(path, names=schema.file.names, skip_rows=skip_rows), rows)]
        found.append(Misfit(None, name, kind, compute.sum(there).as_py() or 0, many, tuple(places)))
    return {name: entries for name, (entries, _) in clean.items()}, found


def labels(table: Table, schema: Schema) -> NDArray[np.int64]:
    """(rows,) the number of each row's class, private. A label that the schema does not name is refused."""
    compute = _arrow("compute")
    entries = [schema.aliases.get(each, each) for each in compute.fill_null(table[schema.target], "").to_pylist()]
    codes = _positions(entries, tuple((label,) for label in schema.classes))
    if (codes < 0).any():
        raise DataError(f"column {schema.target!r}: entries must be among the classes or aliases that the schema names")
    return codes


def owners(table: Table, schema: Schema) -> NDArray[np.object_] | None:
    """(rows,) the name of the person to whom each row belongs, private; None where each row is a person."""
    if schema.person is None:
        return None
    column: NDArray[np.object_] = table[schema.person].to_numpy(zero_copy_only=False)
    if any(entry in (None, "") for entry in column):
        raise DataError(f"column {schema.person!r}: every row must say whose it is: a row of nobody cannot be charged")
    return column


def feature_names(schema: Schema) -> list[str]:
    """The names of the features, in order."""
    names = []
    for name, column in schema.columns.items():
        if isinstance(column, Categorical):
            names += [f"{name}={' or '.join(group)}" for group in column.categories]
        elif column.bins:
            edges = [column.low, *column.bins, column.high]
            names += [f"{name} in [{a:g}, {b:g})" for a, b in pairwise(edges)]
        else:
            names.append(name)
        names.append(f"{name} missing")
    for first, second in (each.columns for each in schema.crosses):
        a, b = schema.columns[first].codes, schema.columns[second].codes
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
    offset = 0
    for block, (name, column) in enumerate(schema.columns.items()):
        codes[name], values[:, block] = _block(table[column.source or name], name, column)
        code = codes[name]
        indices[:, block] = np.where(code < 0, -1, offset + code)
        offset += column.codes or 2
    for block, (first, second) in enumerate((each.columns for each in schema.crosses), start=len(schema.columns)):
        a, b, width = codes[first], codes[second], schema.columns[second].codes
        indices[:, block] = np.where((a < 0) | (b < 0), -1, offset + a * width + b)
        offset += schema.columns[first].codes * width
    indices[:, -1] = offset
    there = indices >= 0
    starts = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return sparse.csr_matrix((values[there] / np.sqrt(blocks), indices[there], starts), shape=(rows, offset + 1))


def _block(
    entries: "pyarrow.Array", name: str, column: Numeric | Categorical
) -> tuple[NDArray[np.int64], NDArray[np.float64] | float]:
    """Which of a column's features is not zero in each row (-1: none), and its value."""
    compute = _arrow("compute")
    missing = np.asarray(compute.is_null(entries, nan_is_null=True).to_numpy(zero_copy_only=False))
    if column.missing == "refuse" and missing.any():
        raise DataError(f"column {name!r}: missing entries are refused by its schema")
    if isinstance(column, Categorical):
        code = _positions(compute.fill_null(entries, "").to_numpy(zero_copy_only=False), column.categories)
        if column.unseen == "refuse" and (code[~missing] < 0).any():
            raise DataError(f"column {name!r}: entries must be among the categories that the schema names")
        return np.where(missing, len(column.categories), code), 1.0
    numbers = np.nan_to_num(compute.fill_null(entries, 0.0).to_numpy(zero_copy_only=False), nan=0.0)
    numbers = np.clip(numbers, column.low, column.high)
    if column.bins:
        return np.where(missing, column.codes - 1, np.searchsorted(column.bins, numbers, side="right")), 1.0
    scaled = 2 * (numbers - column.low) / (column.high - column.low) - 1
    return np.where(missing, 1, 0), np.where(missing, 1.0, scaled)


def _positions(entries: Sequence[str] | NDArray[np.object_], known: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """The position of the group that each entry is in, or -1."""
    order = {text: position for position, group in enumerate(known) for text in group}
    return np.fromiter((order.get(entry, -1) for entry in entries), dtype=np.int64, count=len(entries))


def _load(path: Path, wanted: list[str], schema: Schema, skip_rows: int) -> "pyarrow.Table":
    if path.suffix in _PARQUET:
        parquet = _arrow("parquet")
        return guarded(path, lambda: parquet.read_table(path, columns=wanted))
    arrow = _arrow()
    rows = list(batches(form(path, names=schema.file.names, skip_rows=skip_rows), wanted=wanted))
    return arrow.Table.from_batches(rows, arrow.schema([(name, arrow.string()) for name in wanted]))


def _clean(name: str, column: "pyarrow.ChunkedArray", schema: Schema) -> tuple["pyarrow.Array", "pyarrow.BooleanArray"]:
    """Entries as stripped text, or as float64, null where missing; and a mask of those that are there."""
    arrow, compute = _arrow(), _arrow("compute")
    numeric = any(isinstance(kind, Numeric) and (kind.source or own) == name for own, kind in schema.columns.items())
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


def _numbers(entries: "pyarrow.Array", schema: Schema) -> "pyarrow.Array":
    """Entries, as text or as numbers of a width, as finite float64; null where they are none."""
    arrow, compute = _arrow(), _arrow("compute")
    if not arrow.types.is_floating(entries.type):
        spelled = compute.match_substring_regex(entries, DECIMALS.get(schema.decimal or "", _NUMBER))
        entries = compute.if_else(spelled, entries, None)
        if schema.decimal is not None:
            digits = compute.replace_substring_regex(entries, f"[^0-9{schema.decimal}-]", "")
            entries = compute.replace_substring(digits, schema.decimal, ".")
    entries = entries.cast(arrow.float64())
    return compute.if_else(compute.is_finite(entries), entries, None)


def _arrow(part: str = "") -> ModuleType:
    with _extras.need("pyarrow", extra="sklearn"):
        return import_module(f"pyarrow.{part}" if part else "pyarrow")

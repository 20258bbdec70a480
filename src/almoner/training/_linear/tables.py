"""Read tables from CSV and Parquet files, and make the features that a schema describes.

The features of a row depend on that row and on the schema, never on other rows, so encoding costs no privacy. Messages
name the column and the rule; they hold no entry, row number or count. Those of entries that cannot be read are in
``misfits``, and in the note of the error that refuses a column: PRIVATE, for the data holder.
"""

import logging
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from almoner import _extras, _misfits
from almoner._csv import batches, form, guarded, lines_of
from almoner._misfits import DECIMALS, FIRST, Misfit
from almoner.errors import DataError
from almoner.training._linear.schema import Categorical, Numeric, Schema

if TYPE_CHECKING:
    import pyarrow

__all__ = ["column_names", "encode", "feature_names", "labels", "misfits", "owners", "people", "read"]

LOG = logging.getLogger("almoner.training")

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_PARQUET, _CSV = (".parquet", ".pq"), (".csv", ".data")
_CURES = {
    "number": "numbers are written 1234.5; decimal = ',' in the schema, before its tables, reads 1.234,5 and €12,50, "
    "decimal = '.' reads 1,234.5 and €12.50",
    "category": "categories must be listed as the file spells them, from what is public",
}

Table = dict[str, "pyarrow.Array"]
"""{column: its entries}, private."""


def column_names(path: Path, *, names: tuple[str, ...] = (), skip_rows: int = 0) -> list[str]:
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
    _misfits.tell(LOG, numbers, "training.tables.misfits, as `almoner train --check`,")
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
    found, (arrow, compute) = [], (_arrow(), _arrow("compute"))
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
    compute = _arrow("compute")
    entries = np.asarray(compute.fill_null(table[schema.target], "").to_numpy(zero_copy_only=False), dtype=object)
    entries = np.array([schema.aliases.get(entry, entry) for entry in entries], dtype=object)
    codes = _positions(entries, tuple((label,) for label in schema.classes))
    if (codes < 0).any():
        raise DataError(f"column {schema.target!r}: entries must be among the classes or aliases that the schema names")
    return codes


def people(table: Table, schema: Schema) -> NDArray[np.int64] | None:
    """(rows,) the number of the person to whom each row belongs, private; None where each row is a person."""
    names = owners(table, schema)
    return None if names is None else np.asarray(np.unique(names, return_inverse=True)[1])


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
    entries: "pyarrow.Array", column: Numeric | Categorical
) -> tuple[NDArray[np.int64], NDArray[np.float64] | float]:
    """Which of a column's features is not zero in each row (-1: none), and its value."""
    compute = _arrow("compute")
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


def _load(path: Path, wanted: list[str], schema: Schema, skip_rows: int) -> "pyarrow.Table":
    if path.suffix in _PARQUET:
        parquet = _arrow("parquet")
        return guarded(path, lambda: parquet.read_table(path, columns=wanted))
    arrow = _arrow()
    rows = list(batches(form(path, names=schema.names, skip_rows=skip_rows), wanted=wanted))
    return arrow.Table.from_batches(rows, arrow.schema([(name, arrow.string()) for name in wanted]))


def _clean(name: str, column: "pyarrow.ChunkedArray", schema: Schema) -> tuple["pyarrow.Array", "pyarrow.BooleanArray"]:
    """Entries as stripped text, or as float64, null where missing; and a mask of those that are there."""
    arrow, compute = _arrow(), _arrow("compute")
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
    """The library, or one of its modules."""
    with _extras.need("pyarrow", extra="sklearn"):
        return import_module(f"pyarrow.{part}" if part else "pyarrow")

"""One table in every form that a session takes, and questions about it: some numbers are NaN, which statistics hide."""

from math import inf, nan

import duckdb
import polars as pl
import pyarrow as pa
from pyarrow import csv
from pyarrow import parquet as pq

from almoner.queries import (
    Count,
    Covariance,
    Histogram,
    Lookup,
    Mean,
    Quantiles,
    Ratio,
    Regression,
    Sum,
    Table,
    Variance,
    ranges,
)

_W = [nan, 0.0, 1.0, -0.0, 0.25, -nan, None, 0.5, 0.75, 0.5, 1.0, 0.0]
ROWS = pa.table(
    {
        "who": ["a", "b", "c", "d", "a", "e", "f", "g", "g", "h", "a", "b"],
        "w": _W,
        "f": pa.array([0.5, nan, 1.0, 0.0, nan, -1.0, 2.0, 2.0, None, 0.5, 0.25, 1.0], pa.float32()),
        "i": [inf, -inf, 0.5, nan, 5e-324, -5e-324, 1e300, None, -1e300, 0.0, 0.5, 1.0],
        "z": [nan] * 12,
        "day": [f"d{place % 3}" for place in range(12)],
        "place": [place % 4 for place in range(12)],
    }
)
CUSTOMERS = pa.table({"who": [*"abcdefgh"], "w": [nan, 0.0, 1.0, 0.75, nan, None, 0.5, 0.25]})
PLACES = pa.table({"number": [0, 1, 2, 3], "w": [nan, 0.0, 1.0, 0.75]})
_CHEAP = {"sigma": 1000.0}


def _about(name):
    """Questions of every kind about a column of numbers."""
    bins = (-1.0, 0.0, 0.5, 1.0)
    per = ("row", "person", "total")
    clips = {each: {"clip": 2.0} if each == "row" else {} for each in per}
    yield from (Mean(name, 0, 1, per=each, **clips[each], **_CHEAP) for each in per)
    yield from (Variance(name, 0, 1, per=each, **clips[each], **_CHEAP) for each in per)
    yield from (Histogram(name, bins, per=each, **clips[each], **_CHEAP) for each in per)
    yield from (Quantiles(name, bins, per=each, **clips[each], **_CHEAP) for each in per)
    yield Sum(name, -1, 1, clip=2, **_CHEAP)
    yield Ratio(name, numerator_bounds=(0, 1), denominator_where=f"{name} is not null", clip=2, **_CHEAP)
    yield Covariance({name: (0, 1), "place": (0, 3)}, clip=2, **_CHEAP)
    yield Regression("place", {name: (0, 1), "place": (0, 3)}, clip=2, **_CHEAP)
    yield Sum(f"coalesce({name}, 2)", -9, 9, clip=2, **_CHEAP)
    yield Sum(f"greatest({name}, 0.5) + least({name}, 0.5)", -9, 9, clip=2, **_CHEAP)
    yield Sum(f"case when {name} is null then 3 else 1 - {name} end", -9, 9, clip=2, **_CHEAP)
    yield Count(by={name: ranges([None, 0, 0.5, 1, None])}, clip=2, **_CHEAP)
    each = {"total": f"sum({name})", "most": f"max({name})", "least": f"min({name})", "last": f"last({name}, place)"}
    yield from (Sum(step, -9, 9, each_person=each, **_CHEAP) for step in each)
    yield Count(each_person={"n": f"count({name} is null)"}, where="n > 0", **_CHEAP)
    conditions = (f"{name} is null", f"{name} is not null", f"{name} = {name}", f"{name} > 0.5", f"not ({name} <= 0.5)")
    yield from (Count(where=each, clip=2, **_CHEAP) for each in (*conditions, f"{name} in (0, 0.5)", f"{name} != 0.5"))


def asked(*names):
    """Questions of every kind about columns of numbers."""
    return [question for name in names for question in _about(name)]


def filters(*names):
    """Questions about which rows have a number, for columns of numbers."""
    return [question for question in asked(*names) if isinstance(question, Count) and question.where is not None]


def _files(folder, rows, name):
    """One table of rows, written by each library, some rows at a time: {form: (what to open, how to read it)}."""
    folder.mkdir()
    paths = {
        form: folder / f"{name}-{form}.parquet" for form in ("pyarrow", "dictionaries", "polars", "pandas", "duckdb")
    }
    pq.write_table(rows, paths["pyarrow"], row_group_size=4, use_dictionary=False)
    pq.write_table(rows, paths["dictionaries"], row_group_size=5, write_page_index=True)
    pl.from_arrow(rows).write_parquet(paths["polars"], row_group_size=4)
    rows.to_pandas().to_parquet(paths["pandas"], index=False)
    found = {form: (path, {}) for form, path in paths.items()}
    with duckdb.connect(folder / f"{name}.duckdb") as connection:
        connection.register("given", rows)
        connection.execute(f"COPY given TO '{paths['duckdb']}' (ROW_GROUP_SIZE 2048)")
        connection.execute("CREATE TABLE held AS FROM given")
        connection.execute(f"CREATE VIEW over_file AS FROM '{paths['pyarrow']}'")
    found |= {table: (folder / f"{name}.duckdb", {"table": table}) for table in ("held", "over_file")}
    csv.write_csv(pa.table({each: _spelled(rows[each]) for each in rows.column_names}), folder / f"{name}.csv")
    found["csv"] = folder / f"{name}.csv", {}
    for place, part in enumerate((rows.slice(0, 6), rows.slice(6))):
        (folder / f"{name}-folder").mkdir(exist_ok=True)
        pq.write_table(part, folder / f"{name}-folder" / f"{place}.parquet")
    found["folder"] = folder / f"{name}-folder", {}
    found["pattern"] = str(folder / f"{name}-folder" / "*.parquet"), {}
    return found


def _spelled(column):
    """Entries as CSV files have them."""
    return [None if entry is None else str(entry) for entry in column.to_pylist()]


def forms(folder, rows=ROWS, name="rows"):
    """{form: (what to open, how to read it)}, of which the first is the Arrow table itself."""
    memory = {"arrow": (rows, {}), "frame": (pl.from_arrow(rows), {}), "pandas frame": (rows.to_pandas(), {})}
    return memory | _files(folder / name, rows, name)


def joined(folder):
    """{form: tables of people, public tables}."""
    each = [forms(folder, *given) for given in ((ROWS, "rows"), (CUSTOMERS, "customers"), (PLACES, "places"))]
    return {
        form: {
            "tables": {"rows": Table(rows, **how), "customers": Table(people, **his, one_row=True)},
            "public": {"places": Lookup(places, "number", on="place", **its)},
        }
        for form in each[0]
        for (rows, how), (people, his), (places, its) in [[given[form] for given in each]]
    }

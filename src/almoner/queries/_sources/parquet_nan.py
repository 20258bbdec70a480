"""NaN in Parquet files, which DuckDB overlooks unless it is told to expect it.

A Parquet file names the least and the largest entry of each column, and neither is ever NaN. By default DuckDB takes
them to cover every entry: then no entry is NaN, and ``isnan`` is false without a look at the rows.
Source: https://github.com/apache/parquet-format, "Statistics"; https://github.com/duckdb/duckdb/issues/25521.
"""

import tempfile
from base64 import b64decode
from functools import cache
from pathlib import Path

from almoner._workspace import duckdb, text
from almoner.errors import DataError, MissingExtra
from almoner.queries._sql.columns import cast
from almoner.queries._sql.dialects import duckdb_dialect

__all__ = ["EXPECT_NAN", "check_engine"]

_FILE = b64decode(
    "UEFSMRUAFTwVPCwVBhUAFQYVBhwYCAAAAAAAAPA/GAgAAAAAAAAAgBYAKAgAAAAAAADwPxgIAAAAAAAAAIAREQAAAAIAAAAGAQAAAAAAAPh/AA"
    "AAAAAAAAAAAAAAAADwPxUAFSQVJCwVBhUAFQYVBhwYBAAAgD8YBAAAAIAWACgEAACAPxgEAAAAgBERAAAAAgAAAAYBAADAfwAAAAAAAIA/FQQZ"
    "PDUAGAZzY2hlbWEVBAAVCiUCGAF3ABUIJQIYAWYAFgYZHBksJgAcFQoZJQYAGRgBdxUAFgYWugEWugEmCDwYCAAAAAAAAPA/GAgAAAAAAAAAgB"
    "YAKAgAAAAAAADwPxgIAAAAAAAAAIAREQAZHBUAFQAVAgA8KQYZJgAGAAAAJgAcFQgZJQYAGRgBZhUAFgYWggEWggEmwgE8GAQAAIA/GAQAAACA"
    "FgAoBAAAgD8YBAAAAIAREQAZHBUAFQAVAgA8KQYZJgAGAAAAFrwCFgYmCBa8AgAoIHBhcnF1ZXQtY3BwLWFycm93IHZlcnNpb24gMjYuMC4xGS"
    "wcAAAcAAAAAgEAAFBBUjE="
)
"""A Parquet file of the columns w (double) and f (float), each NaN, 0 and 1, whose statistics say: from 0 to 1.

pyarrow wrote it: parquet.write_table(table, path, store_schema=False, use_dictionary=False, compression="NONE").
"""

EXPECT_NAN = "SET parquet_can_have_nan = true"
"""For a connection to DuckDB: its SQL, whoever wrote it, then finds every NaN of the Parquet files that it reads."""


@cache
def check_engine() -> None:
    """Read a small Parquet file in the way in which questions read; once in a process.

    Raises:
        MissingExtra: the DuckDB that is installed overlooks NaN, whatever it is told.
        DataError: no temporary file can be written.
    """
    right = False
    try:
        with tempfile.TemporaryDirectory(prefix="almoner-") as folder, duckdb().connect() as connection:
            path = Path(folder) / "nan.parquet"
            path.write_bytes(_FILE)
            rows = f"FROM read_parquet({text(str(path))}) d"
            connection.execute(EXPECT_NAN)
            right = all(connection.execute(f"{sql} {rows}{where}").fetchall() == [(1,)] for sql, where in _asked())
    except OSError as error:
        raise DataError(
            f"{tempfile.gettempdir()}: no file can be written there; set TMPDIR to another folder"
        ) from error
    except duckdb().Error:  # versions before 2.0.1 do not know the setting
        pass
    if not right:
        version = duckdb().__version__
        raise MissingExtra(f"duckdb {version} counts NaN in Parquet files as a number: pip install 'duckdb>=2.0.1'")


def _asked() -> list[tuple[str, str]]:
    """(SELECT, WHERE) that each give 1, of SQL that an optimizer rewrites in different ways."""
    dialect, asked = duckdb_dialect(["w", "f"]), []
    for name, column in dialect.columns.items():
        for missing in (f"{cast(name, 'number', dialect)} IS NULL", f"NOT ({dialect.present.format(column)})"):
            asked += [(f"SELECT count(*) FILTER (WHERE {missing})", ""), ("SELECT count(*)", f" WHERE {missing}")]
    return asked

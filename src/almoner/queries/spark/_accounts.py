"""Writes accounts in Parquet files with Spark: generations that only the ledger's transaction puts in force.

What a question computes is written once, and everything that is charged, added up or revealed is read back from those
files. So a part of a job that Spark runs again, even on rows that come out differently, changes nothing any more.
"""

import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from almoner.errors import AlmonerError, ArgumentError, DataError, LedgerError
from almoner.ledger.interfaces import Extent, Payment, Verdicts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["SparkCharges", "SparkWriter", "WorkedOut", "quiet"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_TYPES = {"BIGINT": "BIGINT", "VARCHAR": "STRING"}
_COLUMNS = {
    "accounts": "spent BIGINT, gone BOOLEAN",
    "shares": "spent BIGINT",
    "charges": "question BIGINT, units BIGINT",
    "marks": "gone BOOLEAN",
}
_WRITE = {
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
}
_READ = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false", "recursiveFileLookup": "false"}
_NEXT = (
    "SELECT person, sum(spent) AS spent, coalesce(max(mark), max(gone)) AS gone FROM ("
    "SELECT person, spent, gone, CAST(NULL AS BOOLEAN) AS mark FROM {accounts} "
    "UNION ALL SELECT person, units, FALSE, CAST(NULL AS BOOLEAN) FROM {charged} "
    "UNION ALL SELECT person, CAST(0 AS BIGINT), FALSE, gone FROM {marks}) GROUP BY person"
)
_NEXT_SHARE = (
    "SELECT person, sum(spent) AS spent FROM (SELECT person, spent FROM {share} "
    "UNION ALL SELECT person, units FROM {charged}) GROUP BY person"
)


def quiet(work: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Work on the data: Spark's errors may quote entries, so they are not even the context of what is raised."""

    @wraps(work)
    def quietly(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return work(*arguments, **named)
        except AlmonerError:
            raise
        except Exception:
            pass
        raise DataError("the data cannot be read, or Spark cannot work; nothing was charged")

    return quietly


@dataclass(frozen=True, slots=True)
class WorkedOut:
    """Each person's price and contribution, and the tables that the sums read besides. Private."""

    charges: "DataFrame"
    tables: "Mapping[str, DataFrame]" = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SparkCharges:
    """Charges of a question, to be worked out once."""

    work_out: Callable[[], WorkedOut]


class _SparkVerdicts:
    """Charges with a verdict on each, in files."""

    def __init__(
        self, writer: "SparkWriter", judged: "DataFrame", payment: Payment, tables: "Mapping[str, DataFrame]"
    ) -> None:
        self._writer, self._payment = writer, payment
        self._refused = judged.where("paid < wanted")
        self.taken = judged.where("taken").drop("taken", "wanted", "paid")
        self.admitted: object = {**tables, "admitted": self.taken}

    @quiet
    def refused(self) -> int:
        return int(self._refused.count())

    @quiet
    def missing_mass(self, price: int) -> int:
        return int(self._refused.selectExpr(self._payment.mass_sql(price)).collect()[0][0])

    def extent(self) -> Extent:
        return self._writer.extent(self.taken, "units")


class SparkWriter:
    """Writes the accounts of a ledger with a Spark session."""

    _folder: Path

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        self._person = ""

    def open(self, folder: Path, person: str) -> None:
        """Workers must see the folder under the same path."""
        self._folder, self._person = folder, f"person {_TYPES[person]}"

    def scratch(self) -> Path:
        """A folder, yet to be made, for what the question at hand computes on its way."""
        return self._folder / "work" / secrets.token_hex(12)

    def remove_scratch(self) -> None:
        """The question at hand is over: remove what it computed on its way."""
        for path in (self._folder / "work").iterdir():
            shutil.rmtree(path, ignore_errors=True)

    @quiet
    def prepare(self, charges: object) -> WorkedOut:
        """A data frame with person (each once), units and more; it is computed once, by ``judge``."""
        if not isinstance(charges, SparkCharges):
            raise ArgumentError("the accounts of this ledger are kept by Spark: ask about a Spark DataFrame")
        return charges.work_out()

    @quiet
    def judge(
        self,
        prepared: object,
        accounts: Path | None,
        marks: Path,
        shares: Sequence[tuple[Path | None, int]],
        most: int,
        payment: Payment,
    ) -> Verdicts:
        """Write each person's charge, all that came with it, and whether they can pay; the rows are read once."""
        if not isinstance(prepared, WorkedOut):
            raise ArgumentError("prepared: it is not what prepare() returned")
        tables: dict[str, Any] = {
            "charges": prepared.charges,
            "accounts": self._frame("accounts", accounts),
            "marks": self._frame("marks", marks),
        }
        joins, left = "", [f"{most:d} - coalesce(a.spent, 0)"]
        for place, (share, of_scope) in enumerate(shares):
            tables[f"s{place}"] = self._frame("shares", share)
            joins += f" LEFT JOIN {{s{place}}} s{place} ON s{place}.person = c.person"
            left.append(f"{of_scope:d} - coalesce(s{place}.spent, 0)")
        pays = payment.sql(left[0] if len(left) == 1 else f"least({', '.join(left)})", divide="div")
        judged = self._spark.sql(
            f"SELECT c.* EXCEPT (units, factor), {pays.units} AS units, {pays.factor} AS factor, "
            f"{pays.taken} AS taken, c.units AS wanted, CASE WHEN {pays.taken} THEN {pays.part} ELSE 0 END AS paid "
            "FROM {charges} c LEFT JOIN {accounts} a ON a.person = c.person "
            f"LEFT JOIN {{marks}} m ON m.person = c.person{joins} "
            "WHERE c.units > 0 AND NOT coalesce(m.gone, a.gone, FALSE)",
            **tables,
        )
        path = self.scratch() / "judged"
        self.write(judged, path)
        return _SparkVerdicts(self, self.read(path, judged.schema), payment, prepared.tables)

    def write_charges(self, verdicts: Verdicts, question: int, into: Path) -> None:
        if not isinstance(verdicts, _SparkVerdicts):
            raise ArgumentError("verdicts: they are not what judge() returned")
        charged = f"SELECT CAST({question:d} AS BIGINT) AS question, person, units FROM {{admitted}}"
        self.write(self._spark.sql(charged, admitted=verdicts.taken), into)

    def write_accounts(self, charges: Path, accounts: Path | None, marks: Path, into: Path) -> Extent:
        tables = {"charged": charges, "accounts": accounts, "marks": marks}
        frames: dict[str, Any] = {
            name: self._frame(name.replace("charged", "charges"), path) for name, path in tables.items()
        }
        self.write(self._spark.sql(_NEXT, **frames), into)
        return self.extent(self._frame("accounts", into), "spent")

    def write_share(self, charges: Path, share: Path | None, into: Path) -> None:
        frames: dict[str, Any] = {
            "charged": self._frame("charges", charges),
            "share": self._frame("shares", share),
        }
        self.write(self._spark.sql(_NEXT_SHARE, **frames), into)

    def extent(self, rows: "DataFrame", column: str) -> Extent:
        """Of a column of units, exactly."""
        row = self._spark.sql(
            f"SELECT count(*), coalesce(sum(CAST({column} AS DECIMAL(19, 0))), 0), coalesce(max({column}), 0) "
            "FROM {rows}",
            rows=rows,
        ).collect()[0]
        return Extent(int(row[0]), int(row[1]), int(row[2]))

    def _frame(self, kind: str, path: Path | None) -> "DataFrame":
        """The rows in the files of a folder; none where there is no folder."""
        schema = f"{self._person}, {_COLUMNS[kind]}"
        if path is not None:
            return self.read(path, schema)
        empty = ", ".join(f"CAST(NULL AS {each.split()[1]}) AS {each.split()[0]}" for each in schema.split(", "))
        return self._spark.sql(f"SELECT {empty} WHERE FALSE")

    def read(self, path: Path, schema: "StructType | str") -> "DataFrame":
        """A data frame over files, none of which may be missing."""
        return self._spark.read.schema(schema).options(**_READ).parquet(f"file://{path}")

    def write(self, rows: "DataFrame", path: Path) -> None:
        """Write files; they are complete when this returns."""
        rows.write.options(**_WRITE).parquet(f"file://{path}")
        if not (path / "_SUCCESS").is_file():
            raise LedgerError(f"{self._folder}: Spark's workers do not write into the folder that this program sees")

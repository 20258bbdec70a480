"""Accounts in Parquet files, made by Spark: generations that only the ledger's transaction puts in force.

What a question computes is written once, and everything that is charged, added up or revealed is read back from those
files. So a part of a job that Spark runs again, even on rows that come out differently, changes nothing any more.
"""

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from bursar.errors import BursarError, DataError, LedgerError
from bursar.ledger._accounts.parquet import Generations, check_whole, seal
from bursar.ledger._stores.store import Store
from bursar.ledger._workspace import text

__all__ = ["SparkGenerations", "quiet"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_TYPES = {"BIGINT": "BIGINT", "VARCHAR": "STRING"}
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
    def quietly(*given: Arguments.args, **named: Arguments.kwargs) -> Result:
        try:
            return work(*given, **named)
        except BursarError:
            raise
        except Exception:
            pass
        raise DataError("the data cannot be read, or Spark cannot work; nothing was charged")

    return quietly


class SparkGenerations(Generations):
    """Keeps accounts with a Spark session."""

    def __init__(self, spark: Any) -> None:
        super().__init__()
        self._spark = spark
        self._offered: Any = None
        self._name = ""

    def open(self, store: Store) -> None:
        """Folders for everything, for their owner alone; workers must see them under the same path."""
        super().open(store)
        for kind in ("accounts", "shares", "charges", "work"):
            (self.folder / kind).mkdir(mode=0o700, exist_ok=True)

    def clean(self) -> None:
        """Remove what jobs that were killed left behind; refuse to go on without what is in force."""
        now = self.now
        named = {"accounts": [now.accounts], "shares": now.shares.values(), "charges": self._charges.values()}
        for kind, names in named.items():
            if not all((self.folder / kind / name).is_dir() for name in names if name is not None):
                raise LedgerError(f"{self.folder} does not hold the accounts that the record names")
        self._keep(self.now.names | self._before.names, "accounts", "shares")
        self._keep(set(self._charges.values()), "charges")
        self._keep(set(), "work")

    def _keep(self, names: set[str], *kinds: str) -> None:
        for kind in kinds:
            for path in (self.folder / kind).iterdir():
                if path.name not in names:
                    shutil.rmtree(path, ignore_errors=True)

    def work(self, name: str) -> Path:
        """A folder for what the question at hand computes on its way."""
        return self.folder / "work" / name

    def offer(self, charges: Any, parameters: list[Any]) -> None:
        """A data frame with person (each once), units and more; it is computed once, by ``admit``."""
        self._offered = charges

    def admit(self, most: int, shares: Sequence[tuple[str, int]]) -> None:
        """Write everybody's charge, with all that came with it, and whether they can pay; the rows are read once."""
        self._keep(self.now.names | self._before.names, "accounts", "shares")
        tables = {"charges": self._offered, "accounts": self._frame("accounts"), "marks": self._marked()}
        joins, tests = "", ""
        for place, (scope, left) in enumerate(shares):
            tables[f"s{place}"] = self._frame("shares", self.now.shares[scope])
            joins += f" LEFT JOIN {{s{place}}} s{place} ON s{place}.person = c.person"
            tests += f" AND c.units <= {left:d} - coalesce(s{place}.spent, 0)"
        self._name = self.fresh()
        judged = self._spark.sql(
            f"SELECT c.*, c.units <= {most:d} - coalesce(a.spent, 0){tests} AS taken "
            "FROM {charges} c LEFT JOIN {accounts} a ON a.person = c.person "
            f"LEFT JOIN {{marks}} m ON m.person = c.person{joins} "
            "WHERE c.units > 0 AND NOT coalesce(m.gone, a.gone, FALSE)",
            **tables,
        )
        self.write(judged, self.work(self._name) / "judged")
        self._columns = judged.schema

    def _judged(self, *, taken: bool) -> Any:
        judged = self.read(self.work(self._name) / "judged", self._columns)
        return judged.where("taken" if taken else "NOT taken").drop("taken")

    def admitted(self) -> Any:
        """Those who take part, from the files."""
        return self._judged(taken=True)

    @quiet
    def refused(self) -> int:
        """How many of those who were offered, and have not left, were not admitted."""
        return int(self._judged(taken=False).count())

    def charge(self, question: int, scopes: Collection[str], budget: int) -> dict[str, Any]:
        """Write the next generation beside the one in force; refuses to go on if it does not add up."""
        people, units, _ = self._extent(self.admitted(), "units")
        if not people:
            return {"units": 0, "people": 0}
        try:
            return {"units": units, "people": people, **self._written(question, scopes, budget, units)}
        except LedgerError:
            raise
        except Exception:  # full, or not to be written; the message may quote entries
            pass
        raise LedgerError(f"{self.folder} could not be written")

    def _written(self, question: int, scopes: Collection[str], budget: int, units: int) -> dict[str, Any]:
        name, now = self._name, self.now
        charged = f"SELECT CAST({question:d} AS BIGINT) AS question, person, units FROM {{admitted}}"
        self.write(self._spark.sql(charged, admitted=self.admitted()), self.folder / "charges" / name)
        tables = {"charged": self._frame("charges", name)}
        given = {**tables, "accounts": self._frame("accounts"), "marks": self._marked()}
        self.write(self._spark.sql(_NEXT, **given), self.folder / "accounts" / name)
        shares = dict(now.shares)
        for place, scope in enumerate(sorted(scopes)):
            before, after = self._frame("shares", now.shares[scope]), f"{name}-{place:d}"
            self.write(self._spark.sql(_NEXT_SHARE, **tables, share=before), self.folder / "shares" / after)
            shares[scope] = after
        people, total, most = self._extent(self._frame("accounts", name), "spent")
        if total != now.units + units or most > budget or people < now.people:
            raise LedgerError("the accounts do not add up")
        self._store.run("DELETE FROM ledger.accounts")
        return self.propose(
            accounts=name, people=people, units=total, most=most, shares=shares, charges={str(question): name}
        )

    def _extent(self, rows: Any, column: str) -> tuple[int, int, int]:
        """(rows, the sum, the maximum) of a column."""
        found = self._spark.sql(
            f"SELECT count(*), coalesce(sum(CAST({column} AS DECIMAL(19, 0))), 0), coalesce(max({column}), 0) "
            "FROM {rows}",
            rows=rows,
        ).collect()[0]
        return int(found[0]), int(found[1]), int(found[2])

    def _marked(self) -> Any:
        """Who left or returned since the last generation, as a file for Spark."""
        (self.folder / "work" / "marks").mkdir(mode=0o700, exist_ok=True)
        path = self.work("marks") / f"{self.fresh()}.parquet"
        self._store.run(f"COPY (SELECT person, gone FROM ledger.accounts) TO {text(str(path))}")
        return self.read(path, f"person {_TYPES[self._type]}, gone BOOLEAN")

    def _frame(self, kind: str, name: str | None = None) -> Any:
        """The rows in the files of a name; of the generation in force by default."""
        columns: Mapping[str, str] = {
            "accounts": "spent BIGINT, gone BOOLEAN",
            "shares": "spent BIGINT",
            "charges": "question BIGINT, units BIGINT",
        }
        schema = f"person {_TYPES[self._type]}, {columns[kind]}"
        name = self.now.accounts if name is None and kind == "accounts" else name
        if name is None:
            empty = ", ".join(f"CAST(NULL AS {each.split()[1]}) AS {each.split()[0]}" for each in schema.split(", "))
            return self._spark.sql(f"SELECT {empty} WHERE FALSE")
        check_whole(self.folder / kind / name)
        return self.read(self.folder / kind / name, schema)

    def read(self, path: Path, schema: Any) -> Any:
        """A data frame over files, nothing of which may be missing."""
        return self._spark.read.schema(schema).options(**_READ).parquet(f"file://{path}")

    def write(self, rows: Any, path: Path) -> None:
        """Files that are complete and on the disk when this returns."""
        rows.write.options(**_WRITE).parquet(f"file://{path}")
        if not (path / "_SUCCESS").is_file():
            raise LedgerError(f"{self.folder}: Spark's workers do not write into the folder that this program sees")
        seal(path)

    def finish(self) -> None:
        """The question at hand is over: remove what it computed on its way."""
        self._keep(set(), "work")

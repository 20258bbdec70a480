"""DuckDB in memory, where people's rows are looked at. What it holds is gone when it is closed."""

import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from almoner import _check, _extras
from almoner._disk import PRIVATE_FOLDER, never_close
from almoner.errors import ArgumentError, LedgerError

HANDED = "handed_over"  # the name under which a statement reads rows that another engine gave


class TempTable(NamedTuple):
    """A table to make in a workspace: its name, and the SQL that fills it with its parameters.

    ``rows`` gives an Arrow table, once, which the SQL reads as ``HANDED``; None where it reads tables of the workspace.
    """

    name: str
    sql: str
    parameters: tuple[object, ...] = ()
    rows: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """SQL for a workspace, its parameters, and the tables that are made before it and dropped after it."""

    sql: str
    parameters: tuple[object, ...] = ()
    tables: tuple[TempTable, ...] = ()


class StepRefused(LedgerError):
    """A statement failed in a workspace: on the data, or on a ledger that is attached to it."""


def quoted(name: str) -> str:
    """A name as SQL: in double quotes, which are doubled inside."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as SQL: in single quotes, which are doubled inside."""
    return "'" + value.replace("'", "''") + "'"


def duckdb() -> ModuleType:
    """The library; raises MissingExtra where it is not installed."""
    with _extras.need("duckdb", extra="queries"):
        import duckdb as library
    return library


def apart(sql: str, *parameters: object, refusal: str, **tables: object) -> list[tuple[Any, ...]]:
    """Rows of a statement in a database of its own, with these tables and no files; ArgumentError where it fails."""
    with duckdb().connect(config={"autoload_known_extensions": False, "enable_external_access": False}) as connection:
        try:
            for name, table in tables.items():
                connection.register(name, table)
            rows: list[tuple[Any, ...]] = connection.execute(sql, parameters).fetchall()
        except duckdb().Error:
            raise ArgumentError(refusal) from None
    return rows


class Workspace:
    """A connection to DuckDB in memory."""

    def __init__(
        self,
        spill: Path | None,
        *,
        memory_limit: str | None = None,
        threads: int | None = None,
        name: str = "the workspace",
    ) -> None:
        """Open it; what does not fit into memory goes to ``spill``, by default among temporary files of the system."""
        if memory_limit is not None and not re.fullmatch(r"\d+(\.\d+)?(MB|GB|MiB|GiB)", memory_limit):
            raise ArgumentError(f"memory_limit={memory_limit!r} must be a size like '4GB'")
        _check.given(_check.whole, 1, threads=threads)
        self.library = duckdb()
        self._name, self._why_closed = name, "is closed; open it again"
        self._owns_spill = spill is None
        self._spill = spill or Path(tempfile.mkdtemp(prefix="almoner-"))
        self._numbers, self._places = count(1), 0
        config: dict[str, object] = {"temp_directory": str(self._spill), "autoinstall_known_extensions": False}
        config |= {} if memory_limit is None else {"memory_limit": memory_limit}
        config |= {} if threads is None else {"threads": threads}
        self.connection: Any = self.library.connect(config=config)

    def make_spill(self) -> None:
        """Make the folder anew, once it is certain that no other process uses it; closing removes it."""
        shutil.rmtree(self._spill, ignore_errors=True)  # left over from a process that was killed
        self._spill.mkdir(mode=PRIVATE_FOLDER)
        self._owns_spill = True

    def run(self, sql: str, parameters: Iterable[object] = ()) -> Any:
        if self.connection is None:
            raise LedgerError(f"{self._name} {self._why_closed}", reason="closed")
        with suppress(self.library.Error):  # its message may quote the data: not even a context of ours
            return self.connection.execute(sql, list(parameters))
        raise StepRefused(f"{self._name}: the database refused a step; nothing was revealed")

    def fresh_name(self, of: str) -> str:
        return f"{of}_{next(self._numbers):d}"

    def places(self, tables: int) -> int:
        """The first of so many numbers in a row that nobody else here gets: for the tables of a session."""
        first, self._places = self._places, self._places + tables
        return first

    def make(self, tables: Iterable[TempTable]) -> None:
        """Make tables, in the place of older ones of the same names."""
        for table in tables:
            make = f"CREATE OR REPLACE TEMP TABLE {table.name} AS {table.sql}"
            if table.rows is None:
                self.run(make, table.parameters)
                continue
            self.connection.register(HANDED, table.rows())
            try:
                self.run(make, table.parameters)
            finally:
                self.connection.unregister(HANDED)

    def drop(self, names: Iterable[str]) -> None:
        """Drop tables, if they are there and this is still open."""
        for name in names:
            if self.connection is not None:
                self.run(f"DROP TABLE IF EXISTS {name}")

    def abandon(self) -> None:
        """In a forked process: let go without closing anything that the parent uses."""
        never_close(self.connection)
        self.connection, self._owns_spill = None, False
        self._why_closed = "was opened by another process; open it again in this one"

    def close(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(self.library.Error):
                connection.close()
        owned, self._owns_spill = self._owns_spill, False  # later it may be another ledger's
        if owned:
            shutil.rmtree(self._spill, ignore_errors=True)

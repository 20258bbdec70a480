"""The desk: DuckDB in memory, where people's rows are looked at. What it holds is gone when it is closed."""

import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from bursar.errors import ArgumentError, LedgerError, MissingExtra

__all__ = ["Desk", "duckdb", "quoted", "text"]


def quoted(name: str) -> str:
    """A name as SQL: in double quotes, which are doubled inside."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as SQL: in single quotes, which are doubled inside."""
    return "'" + value.replace("'", "''") + "'"


def duckdb() -> Any:
    """The library, or what to install."""
    try:
        import duckdb as library
    except ModuleNotFoundError as missing:
        raise MissingExtra("ledgers and queries need DuckDB: pip install 'bursar[queries]'") from missing
    return library


class Desk:
    """A connection to DuckDB in memory."""

    def __init__(self, spill: Path, *, memory_limit: str | None = None, threads: int | None = None) -> None:
        """Open it.

        Args:
            spill: a folder for what does not fit into memory.
            memory_limit, threads: what DuckDB may use.
        """
        self.library = duckdb()
        self._spill = spill
        self._ours = False
        config: dict[str, Any] = {"temp_directory": str(spill), "autoinstall_known_extensions": False}
        if memory_limit is not None:
            if not re.fullmatch(r"\d+(\.\d+)?(MB|GB|MiB|GiB)", memory_limit):
                raise ArgumentError(f"memory_limit={memory_limit!r} must be a size like '4GB'")
            config["memory_limit"] = memory_limit
        if threads is not None:
            config["threads"] = threads
        self.connection: Any = self.library.connect(config=config)

    def clear(self) -> None:
        """Make the folder anew, now that it is known to be ours; it is removed on closing."""
        shutil.rmtree(self._spill, ignore_errors=True)  # left over from a process that was killed
        self._spill.mkdir(mode=0o700)
        self._ours = True

    def run(self, sql: str, parameters: list[Any] | None = None, *, name: str = "the ledger") -> Any:
        """Execute SQL of our own making."""
        if self.connection is None:
            raise LedgerError(f"{name} is closed; open it again")
        with suppress(self.library.Error):  # its message may quote the data: not even a context of ours
            return self.connection.execute(sql, parameters or [])
        raise LedgerError(f"{name}: the database refused a step; nothing was revealed")

    def close(self) -> None:
        """Let everything go."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(self.library.Error):
                connection.close()
        if self._ours:
            shutil.rmtree(self._spill, ignore_errors=True)

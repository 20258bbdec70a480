"""The desk: DuckDB in memory, where people's rows are looked at. What it holds is gone when it is closed."""

import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from bursar import _check, _extras
from bursar._disk import PRIVATE_FOLDER, never_close
from bursar.errors import ArgumentError, LedgerError

__all__ = ["Desk", "Refused", "duckdb", "quoted", "text"]


def quoted(name: str) -> str:
    """A name as SQL: in double quotes, which are doubled inside."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text as SQL: in single quotes, which are doubled inside."""
    return "'" + value.replace("'", "''") + "'"


def duckdb() -> Any:
    """The library, or what to install."""
    with _extras.need("duckdb", extra="queries"):
        import duckdb as library
    return library


class Refused(LedgerError):
    """A step on the desk failed: on the data, or on a ledger that is there too."""


class Desk:
    """A connection to DuckDB in memory."""

    def __init__(
        self, spill: Path | None, *, memory_limit: str | None = None, threads: int | None = None, name: str = "the desk"
    ) -> None:
        """Open it.

        Args:
            spill: a folder for what does not fit into memory; None for one among the system's temporary files.
            memory_limit, threads: what DuckDB may use.
            name: of the ledger, for messages.
        """
        if memory_limit is not None and not re.fullmatch(r"\d+(\.\d+)?(MB|GB|MiB|GiB)", memory_limit):
            raise ArgumentError(f"memory_limit={memory_limit!r} must be a size like '4GB'")
        if threads is not None:
            _check.whole(1, threads=threads)
        self.library = duckdb()
        self._name = name
        self._why = "is closed; open it again"
        self._ours = spill is None
        self._spill = spill or Path(tempfile.mkdtemp(prefix="bursar-"))
        config: dict[str, Any] = {"temp_directory": str(self._spill), "autoinstall_known_extensions": False}
        config |= {} if memory_limit is None else {"memory_limit": memory_limit}
        config |= {} if threads is None else {"threads": threads}
        self.connection: Any = self.library.connect(config=config)

    def clear(self) -> None:
        """Make the folder anew, now that it is known to be ours; it is removed on closing."""
        shutil.rmtree(self._spill, ignore_errors=True)  # left over from a process that was killed
        self._spill.mkdir(mode=PRIVATE_FOLDER)
        self._ours = True

    def run(self, sql: str, parameters: list[Any] | None = None) -> Any:
        """Execute SQL of our own making."""
        if self.connection is None:
            raise LedgerError(f"{self._name} {self._why}")
        with suppress(self.library.Error):  # its message may quote the data: not even a context of ours
            return self.connection.execute(sql, parameters or [])
        raise Refused(f"{self._name}: the database refused a step; nothing was revealed")

    def abandon(self) -> None:
        """In a forked process: let go, and close nothing."""
        never_close(self.connection)
        self.connection, self._ours = None, False
        self._why = "was opened by another process; open it again in this one"

    def close(self) -> None:
        """Let everything go."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(self.library.Error):
                connection.close()
        ours, self._ours = self._ours, False  # later it may be somebody else's
        if ours:
            shutil.rmtree(self._spill, ignore_errors=True)

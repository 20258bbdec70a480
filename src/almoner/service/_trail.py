"""The log of a service: lines of JSON, each with a hash over itself and the line before it, so that it is a trail.

A line has no token, no value of a question, no answer, and no name of a person: whose statement somebody saw is in the
private part of an entry of the ledger, which the line numbers. The ledger's record notes the newest hash now and then.
"""

import hashlib
import json
import logging
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import NamedTuple

from almoner._disk import private_files
from almoner.errors import ArgumentError
from almoner.ledger import Finding, Ledger

_SEAL = ', "hash": "'


class Head(NamedTuple):
    """The newest line: of which start of a service, its number there, and its hash."""

    run: str
    line: int = -1
    hash: str = ""

    def followed(self, text: str) -> "Head":
        """The line with this text, all but the hash, after this one."""
        return Head(self.run, self.line + 1, hashlib.sha256(f"{self.hash}\n{text}".encode()).hexdigest())


class Trail(logging.Handler):
    """Write what is logged as lines of JSON, to a file, which may be moved away at any time, or to standard error."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self.head, self.broken = Head(secrets.token_hex(8)), False
        try:
            with private_files():
                self._out = logging.StreamHandler() if path is None else WatchedFileHandler(path, encoding="utf-8")
        except OSError as error:
            wanted = 'give this user the right to it, or leave the line log = "..." out: then it is standard error'
            raise ArgumentError(f"log={str(path)!r} cannot be written: {error.strerror}: {wanted}") from None
        self._out.format, self._out.handleError = self.format, self.handleError  # type: ignore[method-assign]
        logging.getLogger("almoner").addHandler(self)
        logging.getLogger("almoner.service").setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.broken = False
        try:
            with private_files():
                self._out.emit(record)
        except OSError:  # its folder is gone
            self.broken = True

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002
        self.broken = True

    def format(self, record: logging.LogRecord) -> str:
        """The line, which is the newest from now on."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told = {"time": time, "level": record.levelname.lower(), "did": record.getMessage()}
        where = {"run": self.head.run, "line": self.head.line + 1}
        text = json.dumps(told | getattr(record, "facts", {}) | where)[:-1]
        self.head = self.head.followed(text)
        return f'{text}{_SEAL}{self.head.hash}"}}'

    def close(self) -> None:
        logging.getLogger("almoner").removeHandler(self)
        super().close()
        self._out.close()


def check_trail(ledger: Ledger, lines: Iterable[str]) -> list[Finding]:
    """Check the lines of a service's log, of all its files, the oldest first, against what the ledger noted of them.

    Guarantee: where it holds, all lines up to the newest note of each start of the service are as they were written.
    """
    heads, seen, faults = dict[str, Head](), set[Head](), list[str]()
    for place, line in enumerate(lines, 1):
        text, _, seal = line.rstrip("\n").rpartition(_SEAL)
        try:
            told = json.loads(text + "}")
            now = Head(str(told["run"]), int(told["line"]), seal.removesuffix('"}'))
        except (ValueError, KeyError, TypeError):
            faults.append(f"line {place} is no line of a log")
            continue
        if heads.get(now.run, Head(now.run)).followed(text) != now:
            faults.append(f"line {place} was altered, or one before it was altered or removed")
        heads[now.run] = now
        seen.add(now)
    for note in ledger.entries("trail"):
        noted = Head(*(note.public[name] for name in Head._fields))
        if noted not in seen:
            where = f"line {noted.line} of {noted.run}"
            faults.append(f"entry {note.number} of the ledger noted {where}, which is not here, or is another one now")
    return [Finding(f"log: {fault}", False) for fault in faults] or [Finding("no line of the log was altered", True)]

"""Entries of the record, each sealed by a hash over itself and the entry before it.

An entry has a public part (what was asked, by whom, the worst-case price, the noisy answer) and a private part (what
people were charged in all). The seal covers the public part and a salted digest of the private part, so an auditor who
may not see the private part can check the public record.
"""

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

START = "0" * 64  # the seal of the first entry, in place of an entry before it


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the record. Only ``private`` is not public."""

    number: int
    public: dict[str, Any]
    hash: str
    private: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def kind(self) -> str:
        """Kind of the entry.

        One of opened, answered, limited, reserved, released, retired, returned, watched, spoke, delta, training,
        claimed, settled, written off, stream, update, merged, erased, witnessed, shared, dataset or trail.
        """
        return str(self.public["kind"])


class Row(NamedTuple):
    """An entry as the table ``record`` holds it. ``private`` is private."""

    number: int
    kind: str
    key: str | None
    analyst: str | None
    purpose: str | None
    reserved: str | None
    public: str
    private: str
    hash: str

    def entry(self, *, private: bool = False) -> Entry:
        """The entry, with its private part for the data holder alone."""
        return Entry(self.number, json.loads(self.public), self.hash, json.loads(self.private) if private else {})


Run = Callable[[str, Sequence[object]], Any]  # executes SQL with parameters where a ledger is

_READ = "CAST(replace(public, chr(92) || 'u0000', chr(92) || 'u0001') AS JSON)"  # PostgreSQL reads no U+0000
_TERMS = (
    "'{' || "
    + " || ',' || ".join(
        f"'\"{name}\":' || coalesce(CAST(({_READ} -> '{name}') AS VARCHAR), 'null')"
        for name in ("price", "pace", "time", "periods")
    )
    + " || '}'"
)  # of an answer, as JSON
COLUMNS = ", ".join(Row._fields)  # of the table ``record``, in the order of a row


def plain(value: Mapping[str, object]) -> str:
    """JSON with one spelling for each value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(private: str) -> str:
    """SHA-256 of the private part, which stands for it in the seal."""
    return hashlib.sha256(private.encode()).hexdigest()


def seal(before: str, number: int, public: str, private_digest: str) -> str:
    """The hash of an entry: SHA-256 over the seal before, the number, the public part and the private part's digest."""
    return hashlib.sha256("\n".join((before, str(number), private_digest, public)).encode()).hexdigest()


def sealed(number: int, before: str, public: Mapping[str, object], private: Mapping[str, object]) -> Row:
    """An entry as a row of the record, filed under its public part, after the one with this hash; salted here."""
    shown = plain({**public, "time": datetime.now(UTC).isoformat(timespec="milliseconds")})
    hidden = plain({**private, "salt": secrets.token_hex(16)})  # so that the digest does not tell what it says
    return Row(number, *filed_under(public), shown, hidden, seal(before, number, shown, digest(hidden)))


def filed_under(public: Mapping[str, Any]) -> tuple[str, str | None, str | None, str | None, str | None]:
    """(kind, key, analyst, purpose, reserved) of an entry's row, by its public part."""
    kind = public["kind"]
    key = public.get("name") if kind == "reserved" else public.get("key")
    return kind, key, public.get("analyst"), public.get("purpose"), public.get("reserved")


def read_rows(run: Run, where: str = "TRUE", parameters: Sequence[object] = (), *, answers: bool = True) -> list[Row]:
    """Rows of the record in order; without ``answers``, which may be long, only their price, pace, time and periods."""
    public = "public" if answers else f"CASE WHEN kind = 'answered' THEN {_TERMS} ELSE public END"
    columns = COLUMNS.replace("public", public, 1)
    return [Row(*row) for row in run(f"SELECT {columns} FROM ledger.record WHERE {where} ORDER BY number", parameters)]


def insert(run: Run, row: Sequence[object]) -> None:
    run(f"INSERT INTO ledger.record({COLUMNS}) VALUES ({', '.join('?' for _ in Row._fields)})", list(row))


def find(run: Run, key: str) -> Entry | None:
    """The entry under a key, without its private part."""
    return next((row.entry() for row in read_rows(run, "key = ?", (key,))), None)

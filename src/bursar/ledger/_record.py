"""Entries of the record, each sealed by a hash over itself and the entry before it.

An entry has a public part (what was asked, by whom, the worst-case price, the noisy answer) and a private part (what
people were charged in all). The seal covers the public part and a salted digest of the private part, so the public
record can be checked by somebody who may not see the private one.
"""

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bursar.errors import ArgumentError

__all__ = ["START", "Entry", "digest", "name", "plain", "seal", "sealed"]

START = "0" * 64
"""What the first entry is sealed with in place of an entry before it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the record. Only ``private`` is not public."""

    number: int
    public: dict[str, Any]
    hash: str
    private: dict[str, Any] = field(repr=False, default_factory=dict)

    @property
    def kind(self) -> str:
        """opened, answered, limited, reserved, released, retired, returned, watched or spoke."""
        return str(self.public["kind"])


def plain(value: dict[str, Any]) -> str:
    """JSON with one spelling for each value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(private: str) -> str:
    """What stands for the private part in the seal."""
    return hashlib.sha256(private.encode()).hexdigest()


def seal(before: str, number: int, public: str, private_digest: str) -> str:
    """The hash of an entry: SHA-256 over the seal before, the number, the public part and the private part's digest."""
    return hashlib.sha256("\n".join((before, str(number), private_digest, public)).encode()).hexdigest()


def sealed(
    number: int,
    before: str,
    public: dict[str, Any],
    private: dict[str, Any],
    *,
    key: str | None = None,
    analyst: str | None = None,
    purpose: str | None = None,
    reserved: str | None = None,
) -> tuple[Any, ...]:
    """An entry as a row of the record."""
    told = plain({**public, "time": datetime.now(UTC).isoformat(timespec="milliseconds")})
    kept = plain({**private, "salt": secrets.token_hex(16)})  # so that the digest does not tell what it says
    return number, public["kind"], key, analyst, purpose, reserved, told, kept, seal(before, number, told, digest(kept))


def name(**named: object) -> None:
    """Refuse what is no name or key: 1 to 200 printable characters."""
    for argument, value in named.items():
        if not isinstance(value, str) or not 1 <= len(value) <= 200 or not value.isprintable():
            raise ArgumentError(f"{argument}={value!r} must be 1 to 200 printable characters")

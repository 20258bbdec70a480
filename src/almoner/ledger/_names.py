"""Names of people in a ledger's tables and record: as in the data, or a keyed hash of it.

A keyed hash is the first 128 bits of HMAC-SHA256 of the name (whole numbers in decimal digits, text in UTF-8), under a
key that is in a file beside the data and never in the ledger. Nobody who reads the ledger without the key learns a name
from it, or can try names out. It is computed where the rows are, so a server never gets a name.

Source: FIPS 198-1 (HMAC), FIPS 180-4 (SHA-256); docs/ledger/people.md, "Pseudonyms"
"""

import hmac
import secrets
from pathlib import Path
from typing import Any

from almoner._disk import first_file
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger._periods import Periods

Person = int | str  # a person's name, as the data have it or as the record says it
HASHED = "BLOB"  # the type of a keyed hash in tables
_BITS = 128
_BLOCK = 64  # bytes in a block of SHA-256
_CHECKED = b"\xffthe key of a ledger"  # the text whose hash checks a key; no name in UTF-8 begins with its first byte


class Names:
    """Names of people in a ledger's tables: as the data have them, keyed hashes, or numbers of ``units``. Private."""

    def __init__(self, kind: str, key: bytes | None = None, units: Periods | None = None) -> None:
        self.given, self._key, self._units, self.hashed = kind, key, units, key is not None

    def __repr__(self) -> str:
        return f"Names({self.given!r})"

    @property
    def kind(self) -> str:
        """The type of the names in the tables of a file, as SQL. Public."""
        return self.given if self._key is None else HASHED

    def token(self, person: Person) -> Person:
        """A person's name as the record says it."""
        return person if self._key is None else _hash(self._key, str(person).encode()).hex()

    def stored(self, person: Person) -> Any:
        """A person's name as the tables have it."""
        if self._units is not None:
            return self._units.number_of(str(person))
        return person if self._key is None else _hash(self._key, str(person).encode())

    def named(self, stored: Any) -> Person:
        """The value that ``token`` gives, of a name as the tables have it."""
        if self._key is not None:
            return bytes(stored).hex()
        if self._units is not None:
            return self._units.unit_of(int(stored))
        name: Person = stored
        return name

    def listed(self, token: Person) -> Any:
        """A name as the tables have it, of what ``token`` gave."""
        return bytes.fromhex(str(token)) if self._key is not None else self.stored(token)

    def sql(self, person: str) -> str:
        """The stored name, as SQL over SQL of the name as the data have it. Private: the key is in it."""
        if self._key is None:
            return person
        inner, outer = (bytes(byte ^ pad for byte in self._key.ljust(_BLOCK, b"\0")).hex() for pad in (0x36, 0x5C))
        message = f"encode(CAST({person} AS VARCHAR))"
        digest = f"sha256(unhex('{outer}') || unhex(sha256(unhex('{inner}') || {message})))"
        return f"unhex(substr({digest}, 1, {_BITS // 4}))"


def new_key(path: Path) -> bytes:
    """The key in a file, which is made, for its owner alone, if it is not there."""
    try:
        first_file(path, secrets.token_hex(32) + "\n")
    except OSError as error:
        raise LedgerError(f"{path} cannot be made: {error.strerror}", reason="forbidden") from None
    return key_of(path)


def key_of(path: Path) -> bytes:
    """The key in a file; a LedgerError where it is missing, cannot be read, or holds none."""
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        raise LedgerError(
            f"{path}, the key of this ledger's pseudonyms, is missing: nobody's account can be found without it. If it "
            "is elsewhere now, say where: pseudonyms=",
            reason="missing",
        ) from None
    except OSError as error:
        raise LedgerError(
            f"{path}, the key of this ledger's pseudonyms, cannot be read: {error.strerror}. Give this user the right "
            "to read it; or, if it is elsewhere, say where: pseudonyms=",
            reason="forbidden",
        ) from None
    except ValueError:
        key = b""
    if len(key) != 32:
        raise LedgerError(f"{path} holds no key: it is a line of 64 hexadecimal digits", reason="damaged")
    return key


def check_of(key: bytes) -> str:
    """The check value of a key, which a ledger keeps so that another key is refused. Public."""
    return hmac.digest(key, _CHECKED, "sha256").hex()


def checked_key(path: Path, check: str) -> bytes:
    """The key in a file, if it is the one that a ledger says; else an ArgumentError."""
    key = key_of(path)
    if not hmac.compare_digest(check_of(key), check):
        raise ArgumentError(f"pseudonyms={str(path)!r} holds another key than the one that this ledger was made with")
    return key


def _hash(key: bytes, name: bytes) -> bytes:
    return hmac.digest(key, name, "sha256")[: _BITS // 8]

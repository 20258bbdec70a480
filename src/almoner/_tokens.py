"""Tokens: who has one may come in. They are random, and a file that names their owners holds hashes alone."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping

_TOKEN = re.compile(r"token_[A-Za-z0-9_-]{43}")
_NOBODY = "sha256:" + "0" * 64


def new_token() -> str:
    """A new token, with 256 random bits. Private: for one analyst, or for the data holder."""
    return f"token_{secrets.token_urlsafe(32)}"


def hash_of(token: str) -> str:
    """The hash of a token that a policy file has. A hash of so many random bits tells nothing about them."""
    return f"sha256:{hashlib.sha256(token.encode()).hexdigest()}"


def holder_of(token: str, hashes: Mapping[str, str]) -> str | None:
    """The name of the owner of a token, of ``hashes`` with their owners' names; None: nobody's. All take equal time."""
    proper = _TOKEN.fullmatch(token) is not None
    given, found = hash_of(token) if proper else _NOBODY, None
    for known, name in hashes.items():
        found = name if hmac.compare_digest(given, known) else found
    return found if proper else None

"""Find out who sends a request: an analyst by token or by the cookie of a page, the data holder by theirs."""

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from almoner import _extras
from almoner._disk import PRIVATE_FILE, first_file, private_folder
from almoner.errors import ArgumentError
from almoner.service._bodies import Refused
from almoner.service._http.application import Request, Response
from almoner.service.policies import Policy

with _extras.need("itsdangerous", extra="service"):
    from itsdangerous import BadData, Signer, URLSafeTimedSerializer

_SECONDS, _AWAY = 8 * 3600, 600


def bearer(request: Request) -> str:
    """The token of a request; empty if there is none, or more than one."""
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""


class Visit(NamedTuple):
    """A visit to the pages: its cookie has name, number and a fingerprint of the token, signed; forms have ``form``."""

    name: str
    number: str
    form: str


class Visits:
    """Visits as signed cookies: they go on when the service is started again, and at others that have its folder.

    The folder is for its owner alone. It has the file ``keys``, a line for each key, of which the last signs and all
    are taken; and for each visit that was ended before its time an empty file of its number. A visit also ends when
    ``hashes``, those in force with their names, have not any more the one that it began with.
    """

    def __init__(self, cookie: str, policy: Callable[[], Policy], hashes: Callable[[], Mapping[str, str]]) -> None:
        self._policy, self._hashes, self._folder = policy, hashes, policy().visits
        keys, https = _keys(self._folder), policy().file.service.https
        self._sent: dict[str, Any] = {"httponly": True, "samesite": "strict", "secure": https}
        how: dict[str, Any] = {"key_derivation": "hmac", "digest_method": hashlib.sha256}
        self._cookie = f"__Host-{cookie}" if https else cookie  # then no other host can set it
        self._cookies = URLSafeTimedSerializer(keys, f"{cookie} cookie", signer_kwargs=how)
        self._forms = Signer(keys, f"{cookie} form", **how)
        self._away = URLSafeTimedSerializer(keys, f"{cookie} away", signer_kwargs=how)

    def begin(self, name: str, hashed: str, response: Response) -> None:
        """Begin a visit with a token or a login, of which this is the hash, and send its cookie."""
        value = self._cookies.dumps([name, secrets.token_hex(16), self._fingerprint(hashed)])
        response.set_cookie(self._cookie, value, max_age=_SECONDS, **self._sent)

    def send_away(self, values: list[str] | None, response: Response) -> None:
        """Have the browser bring these back from another site, within minutes; None: forget them."""
        value, age = ("", 0) if values is None else (self._away.dumps(values), _AWAY)
        response.set_cookie(f"{self._cookie}_away", value, max_age=age, **{**self._sent, "samesite": "lax"})

    def back(self, request: Request) -> list[str] | None:
        try:
            return list(self._away.loads(request.cookies.get(f"{self._cookie}_away", ""), max_age=_AWAY))
        except BadData:
            return None

    def of(self, request: Request) -> Visit | None:
        try:
            name, number, token = self._cookies.loads(request.cookies.get(self._cookie, ""), max_age=_SECONDS)
        except BadData:
            return None
        now = {self._fingerprint(hashed): known for hashed, known in self._hashes().items()}
        if now.get(token) != name or (self._folder / number).exists():
            return None
        return Visit(name, number, self._forms.get_signature(number).decode())

    def end(self, visit: Visit, response: Response) -> None:
        """End a visit, for whoever has its cookie; and forget those ended that would be over by now."""
        (self._folder / visit.number).touch(PRIVATE_FILE)
        for each in self._folder.glob("[0-9a-f]" * 32):
            with suppress(FileNotFoundError):  # another service was faster
                if each.stat().st_mtime < time.time() - _SECONDS:
                    each.unlink()
        response.delete_cookie(self._cookie, **self._sent)

    def _fingerprint(self, hashed: str) -> str:
        """Of the hash of a token; of that of a login also of the issuer that says it, and of its claim."""
        part = self._policy().file.oidc if hashed.startswith("login:") else None
        said = "" if part is None else f" {part.issuer} {part.claim}"
        return hashlib.sha256(f"{hashed}{said}".encode()).hexdigest()[:32]

    def check_form(self, visit: Visit, sent: str) -> None:
        """Refuse a form that no page of this visit sent."""
        if not self._forms.verify_signature(visit.number, sent.encode("utf-8", "replace")):
            raise Refused(403, "form", "the form is not of this visit: load the page again")


def _keys(folder: Path) -> list[str]:
    """The keys that sign, the oldest first; the folder and one key are made where there are none."""
    try:
        private_folder(folder)
        first_file(folder / "keys", secrets.token_hex(32) + "\n")
        keys = (folder / "keys").read_text(encoding="ascii", errors="replace").split()
    except OSError as error:
        wanted = 'give this user the right to it, or say where: [service] visits = "/a/folder"'
        raise ArgumentError(f"service.visits={str(folder)!r} cannot be used: {error.strerror}: {wanted}") from None
    if not keys or not all(map(re.compile("[0-9a-f]{64}").fullmatch, keys)):
        raise ArgumentError(f"{folder / 'keys'} must hold 64 hexadecimal digits in each line; without it one is made")
    return keys

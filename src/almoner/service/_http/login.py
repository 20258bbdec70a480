"""Find out who sends a request: an analyst by token or by the cookie of a page, the data holder by theirs."""

import hashlib
import hmac
import secrets
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from almoner.service._http.application import Request, Response
from almoner.service._refusals import Refused
from almoner.service._tokens import holder_of
from almoner.service.policies import AnalystTerms

__all__ = ["HOLDER", "Visit", "Visits", "analyst_of", "bearer", "in_force"]

HOLDER = "the data holder"
_HOURS = 8
_MOST_VISITS = 10_000
_UNKNOWN = "a token is needed, and must be known and not expired: Authorization: Bearer ..."


def bearer(request: Request) -> str:
    """The token of a request; empty if there is none, or more than one."""
    given = request.headers.getlist("authorization")
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""


def in_force(terms: AnalystTerms) -> bool:
    """True if an analyst's token has not expired."""
    return terms.expires is None or datetime.now(UTC).date() <= terms.expires


def analyst_of(token: str, analysts: Mapping[str, AnalystTerms]) -> AnalystTerms:
    """Whose token it is.

    Raises:
        Refused: nobody's, or one that expired: told alike.
    """
    name = holder_of(token, {name: terms.token for name, terms in analysts.items()})
    if name is None or not in_force(analysts[name]):
        raise Refused(401, "token", _UNKNOWN)
    return analysts[name]


class Visit(NamedTuple):
    """A visit to the pages, begun with a token."""

    name: str
    ends: float
    form: str
    """A random text that every form of this visit must send back."""
    token: str
    """The hash of the token that it began with: another token ends the visit."""


class Visits:
    """Visits by the random name in their cookie, in memory alone.

    Args:
        cookie: its name.
        secure: whether browsers send it over https alone.
    """

    def __init__(self, cookie: str, *, secure: bool) -> None:
        self._cookie, self._secure = cookie, secure
        self._lock = threading.Lock()
        self._visits: dict[str, Visit] = {}

    def begin(self, name: str, token: str, response: Response) -> None:
        """Begin a visit with the token of this hash, and send its cookie."""
        value = secrets.token_urlsafe(32)
        with self._lock:
            now = time.monotonic()
            self._visits = {key: visit for key, visit in self._visits.items() if visit.ends > now}
            if len(self._visits) >= _MOST_VISITS:
                self._visits.pop(next(iter(self._visits)))
            self._visits[_hashed(value)] = Visit(name, now + _HOURS * 3600, secrets.token_urlsafe(32), token)
        response.set_cookie(
            self._cookie, value, max_age=_HOURS * 3600, httponly=True, samesite="strict", secure=self._secure
        )

    def of(self, request: Request) -> Visit | None:
        """The visit of a request; None if there is none."""
        value = request.cookies.get(self._cookie, "")
        with self._lock:
            visit = self._visits.get(_hashed(value))
        return visit if visit is not None and visit.ends > time.monotonic() else None

    def end(self, request: Request, response: Response) -> None:
        """End the visit of a request."""
        with self._lock:
            self._visits.pop(_hashed(request.cookies.get(self._cookie, "")), None)
        response.delete_cookie(self._cookie, httponly=True, samesite="strict", secure=self._secure)

    @staticmethod
    def check_form(visit: Visit, sent: str) -> None:
        """Refuse a form that no page of this visit sent."""
        if not hmac.compare_digest(visit.form.encode(), sent.encode("utf-8", "replace")):
            raise Refused(403, "form", "the form is not of this visit: load the page again")


def _hashed(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()

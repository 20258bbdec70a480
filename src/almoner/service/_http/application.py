"""Headers, limits and counts that every answer over HTTP has, and never the text of an unforeseen error."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any
from urllib.parse import urlencode

from almoner import _extras, _html
from almoner.service._analyst_api import Metrics, Rates
from almoner.service._bodies import FIXED_TEXTS, Refused, dumps

with _extras.need("starlette", "uvicorn", extra="service"):
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = [
    "Guard", "Handler", "Request", "Response", "application", "body_of", "json_response", "note", "page_response",
    "redirect",
]  # fmt: skip

MOST_BODY = 65_536  # largest number of bytes of the body of a request
_BODY_SECONDS = 10.0
_NOBODYS = ("token", "sign-on", "login", "issuer")  # codes of refusals before it is known whose the request is
_WRONG = 30  # of these from one address that have a line in the log, in a minute
_LOG = logging.getLogger("almoner.service")

_FACTS: ContextVar[dict[str, object]] = ContextVar("facts of the request that is being answered")

Handler = Callable[[Request], Awaitable[Response]]  # answers a request

_HEADERS = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}

_PAGES = (
    f"default-src 'none'; style-src '{_html.style_hash()}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def json_response(value: object, status: int = 200) -> Response:
    return Response(dumps(value), status, media_type="application/json")


def page_response(page: str, status: int = 200, *, retry: int | None = None) -> Response:
    """A page; its policy allows our style, forms to ourselves, and nothing else."""
    headers = {} if retry is None else {"retry-after": str(retry)}
    return Response(page, status, media_type="text/html", headers={**headers, "content-security-policy": _PAGES})


def redirect(path: str, **query: str) -> Response:
    """Send on to another of our pages, which all lie beside each other: so under any path of a proxy."""
    path = "./" + path.removeprefix("/")
    return Response(status_code=303, headers={"location": f"{path}?{urlencode(query)}" if query else path})


def problem(refused: Refused) -> Response:
    """A refusal as JSON, as RFC 9457 has it."""
    headers = {} if refused.retry is None else {"retry-after": str(refused.retry)}
    headers |= {"www-authenticate": "Bearer"} if refused.status == 401 else {}
    return Response(dumps(refused.body), refused.status, media_type="application/problem+json", headers=headers)


def note(**facts: object) -> None:
    """Have the log say who sent the request that is being answered, and what comes of it."""
    _FACTS.get().update(facts)


async def body_of(request: Request, kind: str = "application/json") -> bytes:
    """The body of a request, of one kind, that is not too long and comes soon; others are Refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != kind:
        raise Refused(415, "type", f"the body must be of type {kind}")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or len(length) > 20 or int(length) > MOST_BODY:
        raise Refused(413, "size", f"the body must have at most {MOST_BODY} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BODY:
                    raise Refused(413, "size", f"the body must have at most {MOST_BODY} bytes")
    except (TimeoutError, ClientDisconnect):
        raise Refused(408, "slow", "the body did not come in time") from None
    return bytes(body)


class Guard:
    """An application with headers, counts and log lines around it; no error leaves it, nor is logged with its text."""

    def __init__(self, inner: ASGIApp, metrics: Metrics, port: str) -> None:
        self._inner, self._metrics, self._port, self._strangers = inner, metrics, port, Rates()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        began, status, facts = time.monotonic(), 0, dict[str, object]()
        _FACTS.set(facts)

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                has = {bytes(name).lower() for name, _ in message.get("headers", ())}
                more = [each for each in _HEADERS.items() if each[0] not in has]
                message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in scope["headers"]}:
                refused = problem(Refused(400, "body", "give either a content-length or a transfer-encoding"))
                refused.headers["connection"] = "close"  # a proxy before us may see another request in the rest
                await refused(scope, receive, sent)
                return
            await self._inner(scope, receive, sent)
        except Exception as error:  # its text may be private
            _LOG.error("a request failed: %s", type(error).__name__)
            self._metrics.count("failures", kind=type(error).__name__)
            if not status:
                await problem(Refused(500, "internal", FIXED_TEXTS["internal"]))(scope, receive, sent)
        finally:
            name = getattr(scope.get("route"), "path", "none")
            self._metrics.count("requests", route=name, status=str(status), port=self._port)
            self._metrics.took(name, time.monotonic() - began)
            address = (scope.get("client") or ("",))[0]
            stranger = facts.get("code") in _NOBODYS and not self._strangers.wait(address, _WRONG)
            if "who" in facts or stranger:
                told = {"port": self._port, "address": address, "method": scope["method"], "route": name}
                _LOG.info("request", extra={"facts": {**told, "status": status, **facts}})


def _by_method(methods: Mapping[str, Handler]) -> Handler:
    async def answer(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        try:
            return await methods[method](request)
        except Refused as refused:
            note(code=refused.code)
            return problem(refused)

    return answer


async def _plain(_: Request, error: Exception) -> Response:
    """Answer a request that Starlette refuses itself: no such path, or another method."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    texts = {404: "there is no such path", 405: "the path has no such method"}
    response = problem(Refused(status, "path", texts.get(status, "the request is refused")))
    for name, value in (getattr(error, "headers", None) or {}).items():
        response.headers[name] = value
    return response


def application(handlers: Sequence[Any], metrics: Metrics, port: str) -> Guard:
    """The application of these handlers (method, path, handler), guarded; those of one path are called by method."""
    paths: dict[str, dict[str, Handler]] = {}
    for method, path, handler in handlers:
        paths.setdefault(path, {})[method] = handler
    routes = [Route(path, _by_method(methods), methods=list(methods)) for path, methods in paths.items()]
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _plain})
    inner.router.redirect_slashes = False  # it would send on to whatever the request calls this host
    return Guard(inner, metrics, port)

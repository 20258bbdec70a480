"""Serve a policy: for analysts and for the data holder, each on a port of its own, until it is told to stop."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from functools import partial
from typing import Any, NamedTuple

from almoner import _extras
from almoner.errors import AlmonerError, ArgumentError
from almoner.ledger import Ledger
from almoner.service._analyst_api import AnalystApi
from almoner.service._holder_api import HolderApi
from almoner.service._http.application import Guard, application
from almoner.service._http.pages import AnalystPages, Console
from almoner.service._http.routes import AnalystRoutes, HolderRoutes
from almoner.service.policies import Policy, apply_policy, check_against_data

with _extras.need("starlette", "uvicorn", extra="service"):
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

_CONFIG: Mapping[str, Any] = {
    **dict.fromkeys(("access_log", "server_header", "date_header", "proxy_headers"), False),
    "ws": "none",
    "lifespan": "off",
    "log_config": None,
    "limit_concurrency": 256,
    "timeout_keep_alive": 15,
    "timeout_graceful_shutdown": 60,  # seconds that requests have to finish when the service stops
    "h11_max_incomplete_event_size": 16_384,
}
_HEADER_SECONDS = 15.0  # for a request's line and headers, from the connection's first moment or the answer before


class OpenService(NamedTuple):
    """An open service: what it is made of, for one process."""

    api: AnalystApi
    analysts: Guard
    holder: Guard

    def close(self) -> None:
        """Finish the question that is being answered, and close the ledger."""
        self.api.close()


def opened(policy: Policy, *, create: bool = False) -> OpenService:
    """Open the data and the ledger of a policy, which ``create`` makes if missing, and make its two applications."""
    if create and not Ledger.exists(policy.plan.ledger):
        with policy.plan.look() as session:  # a policy that is refused makes no ledger
            check_against_data(policy, session)
    session = policy.plan.open(create=create)
    with ExitStack() as undo:
        undo.callback(session.close)
        apply_policy(policy, session)
        api = AnalystApi(policy, session)
        undo.pop_all()
        undo.callback(api.close)
        holder_api = HolderApi(api)
        analysts = [*AnalystRoutes(api).handlers, *AnalystPages(api).handlers]
        holder = [*HolderRoutes(holder_api).handlers, *Console(holder_api).handlers]
        undo.pop_all()
    return OpenService(api, application(analysts, api.metrics), application(holder, api.metrics))


class HeaderTimeout(H11Protocol):
    """uvicorn's protocol, which closes connections that send no head of a request in time, to make room."""

    _headers: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._headers is not None:
            self._headers.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        if self._headers is not None:
            self._headers.cancel()
        self._headers = self.loop.call_later(_HEADER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()


class _Server(uvicorn.Server):
    """A server that leaves signals to ``serve``."""

    capture_signals: Any = nullcontext


def serve(
    policy: Policy,
    *,
    ready: Callable[[str, str], None],
    again: Callable[[], Policy] | None = None,
    changed: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve until the process gets SIGINT or SIGTERM; the question that is being answered then is finished.

    Args:
        policy: what is served.
        ready: called with the addresses of analysts and of the data holder, once both are open.
        again: reads the policy once more at SIGHUP. Analysts, tokens, limits, prices, sharing, the usual question and
            the holder's token may differ; anything else is refused, and the policy before stays in force. Data whose
            files changed are opened again.
        changed: told in words what came of that.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # else strangers fill the log with what they send
    settings = policy.file.service
    with ExitStack() as closing:
        sockets = [
            closing.enter_context(_bound("port", settings.host, settings.port)),
            closing.enter_context(_bound("holder_port", settings.holder_host, settings.holder_port)),
        ]
        service = opened(policy)
        closing.callback(service.close)
        places = [each.getsockname()[:2] for each in sockets]
        ready(*(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}" for host, port in places))
        change = None if again is None else partial(_change, service.api, again, changed)
        asyncio.run(_serve([service.analysts, service.holder], sockets, change))


def _change(api: AnalystApi, again: Callable[[], Policy], changed: Callable[[str], None]) -> None:
    """Take over the policy that is read now, and the data if they changed, or say why not."""
    for what, done in (
        ("the data were {}opened again", api.renew_data),
        ("the policy was {}changed", lambda: api.change_policy(again())),
    ):
        try:
            if done() is not False:
                changed(what.format(""))
        except Exception as error:  # of an unforeseen one the name alone: its text may be private
            changed(f"{what.format('not ')}: {error if isinstance(error, AlmonerError) else type(error).__name__}")


def _bound(name: str, host: str, port: int) -> socket.socket:
    """A socket at a place; refuses one that is taken, before anything is opened."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named: asyncio sets TCP_NODELAY then
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((host, port))
    except OSError as error:
        made.close()
        raise ArgumentError(f"service.{name}={port} cannot be opened on {host}: {error.strerror or error}") from None
    return made


async def _serve(applications: list[Guard], sockets: list[socket.socket], change: Callable[[], None] | None) -> None:
    servers = [_Server(uvicorn.Config(each, http=HeaderTimeout, **_CONFIG)) for each in applications]

    def stop() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    if change is not None and hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, change))
    await asyncio.gather(*(server.serve([bound]) for server, bound in zip(servers, sockets, strict=True)))

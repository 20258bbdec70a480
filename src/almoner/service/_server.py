"""Serve a policy: for analysts and for the data holder, each on a port of its own, until it is told to stop."""

import asyncio
import errno
import logging
import re
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from almoner import _extras
from almoner._disk import private_files
from almoner.errors import AlmonerError, ArgumentError
from almoner.ledger import Ledger, on_a_server, protect
from almoner.service._analyst_api import AnalystApi
from almoner.service._holder_api import CHANGE, LOOKS, HolderApi, in_holder_thread
from almoner.service._http.application import Guard, application
from almoner.service._http.pages import AnalystPages, Console
from almoner.service._http.routes import AnalystRoutes, HolderRoutes
from almoner.service._trail import Trail
from almoner.service.policies import Policy, apply_policy, check_against_data

with _extras.need("starlette", "uvicorn", extra="service"):
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

_CONFIG: Mapping[str, Any] = {
    **dict.fromkeys(("access_log", "server_header", "date_header"), False),
    "ws": "none",
    "lifespan": "off",
    "log_config": None,
    "limit_concurrency": 256,
    "timeout_keep_alive": 15,
    "timeout_graceful_shutdown": 60,  # seconds that requests have to finish when the service stops
    "h11_max_incomplete_event_size": 16_384,
}
_LOG = logging.getLogger("almoner.service")
_UNIX = "unix"  # the address of who comes by a UNIX socket: a proxy
_HEADER_SECONDS = 15.0  # for a request's line and headers, from the connection's first moment or the answer before


class OpenService(NamedTuple):
    """An open service: what it is made of, for one process."""

    api: AnalystApi
    holder_api: HolderApi
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
    with ExitStack() as undo:
        trail = Trail(None if policy.file.log is None else policy.plan.folder / policy.file.log)
        undo.callback(trail.close)
        session = policy.plan.open(create=create)
        undo.callback(session.close)
        apply_policy(policy, session)
        api = AnalystApi(policy, session, trail)
        undo.callback(api.worker.stop)
        undo.callback(api.tries.stop)
        holder_api = HolderApi(api)
        analysts = [*AnalystRoutes(api).handlers, *AnalystPages(api).handlers]
        holder = [*HolderRoutes(holder_api).handlers, *Console(holder_api).handlers]
        undo.pop_all()
    doors = application(analysts, api.metrics, "analysts"), application(holder, api.metrics, "holders")
    return OpenService(api, holder_api, *doors)


def prepare(policy: Policy, *, owner: str | None = None) -> bool:
    """Make the ledger of a policy and its witness, once, and on a server the service's rights: True if it was made.

    ``owner``: on a server the role that makes the tables and owns them; the policy names the service's.
    """
    ledger, settings = str(policy.plan.ledger), policy.plan.settings
    if policy.plan.witness is None:
        raise ArgumentError('witness = "/other/volume/people.head" is needed: else a lost ledger is taken for new')
    role = re.match(r"(postgres(?:ql)?://)([a-z_][a-z0-9_]*)(?::[^@/]*)?@", ledger)
    if on_a_server(policy.plan.ledger) != (owner is not None):
        said = "a ledger that is a file has no roles" if owner else "say which role makes the tables: --owner postgres"
        raise ArgumentError(f"--owner: {said}")
    if owner is not None:
        if role is None or owner == role[2]:
            raise ArgumentError('ledger must name the role of the service: "postgresql://service@server/database"')
        settings = settings.model_copy(update={"ledger": f"{role[1]}{quote(owner)}@{ledger[role.end() :]}"})
    making = replace(policy, plan=replace(policy.plan, settings=settings))
    new = not Ledger.exists(making.plan.ledger)
    if new:
        opened(making, create=True).close()
    if role is not None:
        with Ledger.open(making.plan.ledger) as book:
            protect(book, role=role[2])
    return new


class Impatient(H11Protocol):
    """uvicorn's protocol, which ends connections that send no request, or read no answer, in time, to make room."""

    most = 256  # of one address at a time
    _headers: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        hosts = [each.client[0] for each in self.connections if isinstance(each, H11Protocol) and each.client]
        if self.client and hosts.count(self.client[0]) > self.most:
            transport.abort()
        self.client = self.client or (_UNIX, 0)

    def pause_writing(self) -> None:
        super().pause_writing()
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
        if self.flow.write_paused or self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


class _Server(uvicorn.Server):
    """A server that leaves signals to ``serve``."""

    capture_signals: Any = nullcontext


def serve(policy: Policy, *, ready: Callable[[str, str], None], again: Callable[[], Policy] | None = None) -> None:
    """Serve until the process gets SIGINT or SIGTERM; the question that is being answered then is finished.

    Args:
        policy: what is served.
        ready: called with the addresses of analysts and of the data holder, once both are open.
        again: reads the policy once more at SIGHUP. Analysts, holders, tokens, limits, prices, sharing and the usual
            question may differ; anything else is refused, and the policy before stays in force. Data whose
            files changed are opened again.
    """
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # else strangers fill the log with what they send
    with ExitStack() as closing:
        sockets = [closing.enter_context(_bound(policy, side)) for side in ("", "holder_")]
        service = opened(policy)
        closing.callback(service.close)
        for each in sockets:
            each.listen(2048)  # so that who is told the addresses may come at once
        ready(*(_shown(each.getsockname()) for each in sockets))
        if again is not None:
            service.holder_api.change = partial(_change, service.api, again)
        asyncio.run(_serve(service, sockets))


def _change(api: AnalystApi, again: Callable[[], Policy], who: str) -> list[str]:
    """Take over the policy that is read now, and the data if they changed, or say why not."""
    said = []
    with CHANGE:
        for what, done in (
            ("the data were {}opened again", api.renew_data),
            ("the policy was {}changed", lambda: api.change_policy(again())),
        ):
            try:
                lines, words = done(), what.format("")
            except Exception as error:  # of an unforeseen one the name alone: its text may be private
                lines, why = [], error if isinstance(error, AlmonerError) else type(error).__name__
                words = f"{what.format('not ')}: {why}"
            if lines is not None:
                _LOG.info(words, extra={"facts": {"who": who, "lines": lines}})
                said.append(words)
    return said


def _bound(policy: Policy, side: str) -> socket.socket:
    """The socket of a side at its place; refuses one that is taken, before anything is opened."""
    host, port, path = (getattr(policy.file.service, side + name) for name in ("host", "port", "socket"))
    if path is not None:
        made, name, value, place = socket.socket(socket.AF_UNIX), "socket", path, policy.plan.folder / path
    else:
        family, name, value = socket.AF_INET6 if ":" in host else socket.AF_INET, "port", port
        made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named: asyncio sets TCP_NODELAY then
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if path is None:
            made.bind((host, port))
        else:
            if made.connect_ex(str(place)) == errno.ECONNREFUSED:  # a service that was killed left it
                place.unlink()
            with private_files():
                made.bind(str(place))
            place.chmod(0o660)
            made.listen()  # so that another service finds it taken
    except OSError as error:
        made.close()
        on = "" if path else f" on {host}"
        raise ArgumentError(f"service.{side}{name}={value} cannot be opened{on}: {error.strerror or error}") from None
    return made


def _shown(place: Any) -> str:
    """The address of a socket, as a client writes it."""
    if isinstance(place, str):
        return f"unix:{place}"
    return f"http://[{place[0]}]:{place[1]}" if ":" in place[0] else f"http://{place[0]}:{place[1]}"


async def _look(api: HolderApi) -> None:
    """Look at everything every few seconds, so that a change of state is logged soon, whoever asks for it."""
    while True:
        with suppress(Exception):
            await in_holder_thread(api.alarms)
        await asyncio.sleep(LOOKS)


async def _serve(service: OpenService, sockets: list[socket.socket]) -> None:
    doors, change = (service.analysts, service.holder), service.holder_api.change
    settings = service.api.policy.file.service
    protocol = type("Protocol", (Impatient,), {"most": settings.connections or (256 if settings.https else 64)})
    how: dict[str, Any] = {**_CONFIG, "http": protocol, "forwarded_allow_ips": [_UNIX, *settings.proxies]}
    servers = [_Server(uvicorn.Config(each, **how)) for each in doors]

    def stop() -> None:
        for server in servers:
            server.should_exit = True

    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, stop)
    if change is not None and hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, lambda: loop.run_in_executor(None, change, "SIGHUP"))
    looking = loop.create_task(_look(service.holder_api))
    await asyncio.gather(*(server.serve([bound]) for server, bound in zip(servers, sockets, strict=True)))
    looking.cancel()

"""Close connections on which no whole request comes in time, so that silent ones do not take the places of others."""

import asyncio
from typing import Any

from almoner import _extras

with _extras.need("starlette", "uvicorn", extra="service"):
    from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["Patient"]

SECONDS = 15.0
"""For the line and the headers of a request, from the connection's first moment or from the answer before."""


class Patient(H11Protocol):
    """uvicorn's protocol, with a time for the headers; uvicorn limits only the pause before their first byte."""

    _headers: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._stop()
        self._headers = self.loop.call_later(SECONDS, self._give_up)

    def _stop(self) -> None:
        if self._headers is not None:
            self._headers.cancel()
            self._headers = None

    def _give_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()

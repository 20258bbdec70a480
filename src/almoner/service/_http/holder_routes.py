"""The data holder's routes, on a port of their own: what is private stays behind one token."""

from collections.abc import Callable
from functools import partial
from typing import Any

from almoner.errors import AlmonerError, UnknownPerson
from almoner.service._bodies import parsed
from almoner.service._holder_api import HolderApi, in_holder_thread
from almoner.service._http.application import Handler, Request, Response, body_of, json_response
from almoner.service._http.login import HOLDER, bearer
from almoner.service._refusals import Refused, problem_of
from almoner.service._tokens import holder_of

__all__ = ["HolderRoutes"]


class HolderRoutes:
    """Handlers over what the data holder sees."""

    def __init__(self, api: HolderApi) -> None:
        self._api = api

    @property
    def handlers(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route."""
        return [
            ("GET", "/v1/overview", partial(self._told, "overview")),
            ("GET", "/v1/people", partial(self._told, "people")),
            ("GET", "/v1/spending", partial(self._told, "spending")),
            ("GET", "/v1/alarms", partial(self._told, "alarms")),
            ("POST", "/v1/verify", self.verify),
            ("POST", "/v1/statement", self.statement),
            ("GET", "/metrics", self.metrics),
        ]

    async def _told(self, name: str, request: Request) -> Response:
        self._check(request)
        return json_response(await self._do(getattr(self._api, name)))

    async def verify(self, request: Request) -> Response:
        self._check(request)
        values = await self._values(request, {"replay"})
        replay = values.get("replay", False)
        if not isinstance(replay, bool):
            raise Refused(422, "body", "replay must be true or false")
        return json_response(await self._do(partial(self._api.verify, replay=replay)))

    async def statement(self, request: Request) -> Response:
        self._check(request)
        values = await self._values(request, {"person"})
        person = values.get("person")
        if not isinstance(person, int | str) or isinstance(person, bool):
            raise Refused(422, "body", "person must be a text or a whole number: whose statement it is")
        return json_response(await self._do(partial(self._api.statement, person)))

    async def metrics(self, request: Request) -> Response:
        self._check(request)
        return Response(await self._do(self._api.exposition), media_type="text/plain; version=0.0.4")

    def _check(self, request: Request) -> None:
        token = self._api.analysts.policy.holder_token
        if holder_of(bearer(request), {HOLDER: token}) is None:
            raise Refused(401, "token", "the data holder's token is needed: Authorization: Bearer ...")

    @staticmethod
    async def _values(request: Request, names: set[str]) -> dict[str, Any]:
        values = parsed(await body_of(request))
        if not isinstance(values, dict) or values.keys() - names:
            raise Refused(422, "body", f"the body may have {', '.join(sorted(names))}")
        return values

    @staticmethod
    async def _do(work: Callable[[], Any]) -> Any:
        """Work in a thread; the data holder is told why something is refused."""
        try:
            return await in_holder_thread(work)
        except UnknownPerson as error:
            raise Refused(422, "person", str(error)) from None
        except AlmonerError as error:
            known = problem_of(error)
            raise Refused(known.status, known.code, str(error)) from None

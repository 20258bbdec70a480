"""The routes of analysts: what they may do, as JSON. Each needs a token, but for the two that tell nothing."""

import asyncio
from functools import partial
from typing import Any

from almoner.service._analyst_api import AnalystApi, Reply
from almoner.service._bodies import parsed
from almoner.service._http.application import Handler, Request, Response, body_of, json_response
from almoner.service._http.login import analyst_of, bearer
from almoner.service._http.openapi import document
from almoner.service._refusals import Refused, problem_of, refusing
from almoner.service.policies import AnalystTerms

__all__ = ["AnalystRoutes", "ask", "count_request"]


class AnalystRoutes:
    """Handlers of what analysts may do."""

    def __init__(self, api: AnalystApi) -> None:
        self._api = api

    @property
    def handlers(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each route."""
        return [
            ("GET", "/openapi.json", self.openapi),
            ("GET", "/health", self.health),
            ("GET", "/v1/datasets", self.data_sets),
            ("GET", "/v1/me", self.me),
            ("POST", "/v1/quote", self.quote),
            ("POST", "/v1/answers", self.ask),
            ("GET", "/v1/answers", self.answers),
            ("GET", "/v1/answer", self.answer),
        ]

    async def openapi(self, _: Request) -> Response:
        return json_response(document())

    async def health(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def data_sets(self, request: Request) -> Response:
        self._terms(request)
        return json_response(self._api.data_sets())

    async def me(self, request: Request) -> Response:
        return json_response(await asyncio.to_thread(self._api.left, self._terms(request)))

    async def quote(self, request: Request) -> Response:
        terms = self._terms(request)
        values = parsed(await body_of(request))
        return json_response(await asyncio.to_thread(refusing, partial(self._api.quote, terms, values)))

    async def ask(self, request: Request) -> Response:
        terms = self._terms(request, "fresh")
        fresh = _flag(request, "fresh")
        keys = request.headers.getlist("idempotency-key")
        if len(keys) != 1:
            raise Refused(400, "key", "one Idempotency-Key is needed: a name of your own for this question")
        values = parsed(await body_of(request))
        given = await ask(self._api, terms, values, keys[0], fresh=fresh)
        return json_response(given.body, 200 if given.old else 201)

    async def answers(self, request: Request) -> Response:
        terms = self._terms(request, "skip", "most")
        skip, most = _number(request, "skip", 0, 10**9), _number(request, "most", 100, 1000)
        listed = self._api.answers(terms)
        return json_response({"total": len(listed), "answers": listed[skip : skip + most]})

    async def answer(self, request: Request) -> Response:
        terms = self._terms(request, "key")
        given = await asyncio.to_thread(self._api.stored, terms, request.query_params.get("key", ""))
        if given is None:
            raise Refused(404, "answer", "you have no answer under this key")
        return json_response(given.body)

    def _terms(self, request: Request, *parameters: str) -> AnalystTerms:
        """Whose request it is, which is counted; of its parameters only these are known."""
        try:
            terms = analyst_of(bearer(request), self._api.policy.analysts)
        except Refused:
            self._api.metrics.count("refusals", code="token")
            raise
        count_request(self._api, terms)
        given = [name for name, _ in request.query_params.multi_items()]
        if len(set(given)) < len(given) or not set(given) <= set(parameters):
            known = ", ".join(parameters) or "none"
            raise Refused(400, "query", f"parameters that are known here: {known}; each once at most")
        return terms


def count_request(api: AnalystApi, terms: AnalystTerms) -> None:
    """Count a request of an analyst; refuse it if there were too many."""
    wait = api.rates.wait(terms.name, terms.limits.requests)
    if wait:
        api.metrics.count("refusals", code="rate")
        raise Refused(429, "rate", f"{terms.limits.requests} requests a minute are allowed", retry=wait)


async def ask(api: AnalystApi, terms: AnalystTerms, values: Any, key: str, *, fresh: bool) -> Reply:
    """Queue a question for the worker; a refusal is padded to the same steps of time as an answer."""
    try:
        known = await asyncio.to_thread(api.known, terms, values, key)
        if api.session.ledger.store.closed:  # which takes no time of the analyst's
            await asyncio.shield(asyncio.wrap_future(api.worker.submit(terms.name, api.reopen, padded=False)))
        work = partial(api.ask, terms, values, key, fresh=fresh)
        done = api.worker.submit(terms.name, work, padded=not known, count=partial(api.count_seconds, terms))
        return await asyncio.shield(asyncio.wrap_future(done))
    except Exception as error:
        told = problem_of(error)
        api.metrics.count("refusals", code=told.code)
        if told.code in ("internal", "data", "away", "changed", "ledger"):
            api.metrics.count("failures", kind=type(error).__name__)
        raise told from None


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false")
    if value not in ("true", "false"):
        raise Refused(400, "query", f"{name} must be true or false")
    return value == "true"


def _number(request: Request, name: str, default: int, most: int) -> int:
    value = request.query_params.get(name, str(default))
    if not (value.isascii() and value.isdecimal()) or len(value) > 12 or int(value) > most:
        raise Refused(400, "query", f"{name} must be a whole number from 0 to {most}")
    return int(value)

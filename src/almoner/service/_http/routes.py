"""The routes of analysts and of the data holder: what they may do, as JSON. Each needs a token, but for two."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from almoner._tokens import holder_of
from almoner.errors import AlmonerError, UnknownPerson
from almoner.service._analyst_api import NO_ANSWER, AnalystApi, Reply, is_statement
from almoner.service._bodies import QuoteBody, Refused, parsed, problem_of, refusing
from almoner.service._holder_api import HolderApi, in_holder_thread
from almoner.service._http.application import Handler, Request, Response, body_of, json_response, note
from almoner.service._http.login import bearer
from almoner.service._http.openapi import MOST_QUESTIONS, document
from almoner.service.policies import AnalystTerms, Right, in_force

_SHORT = 512  # bytes of a question that is quoted at once, in some milliseconds at most
_STRANGERS = 600  # requests without a token in a minute from one address: who asks more could time what others ask


class AnalystRoutes:
    """Handlers of what analysts may do: a method for each operation of the document."""

    def __init__(self, api: AnalystApi) -> None:
        self._api = api
        self.handlers: list[tuple[str, str, Handler]] = [
            (method.upper(), path, getattr(self, operation["operationId"]))
            for path, methods in document()["paths"].items()
            for method, operation in methods.items()
        ]

    async def health(self, request: Request) -> Response:
        self._anybody(request)
        return json_response({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        self._anybody(request)
        wrong = {"ledger": not self._api.ledger_up, "data": self._api.data_state, "clerk": self._api.worker.stuck}
        if any(wrong.values()):  # as it was at the end of a step, from memory
            raise Refused(503, "ready", f"not usable now: {', '.join(filter(wrong.get, wrong))}", retry=10)
        return json_response({"status": "ready"})

    def _anybody(self, request: Request) -> None:
        if wait := self._api.strangers.wait(request.client.host if request.client else "", _STRANGERS):
            raise Refused(429, "rate", f"{_STRANGERS} requests a minute are allowed without a token", retry=wait)

    async def openapi(self, request: Request) -> Response:
        self._anybody(request)
        return json_response(document())

    async def datasets(self, request: Request) -> Response:
        self._terms(request)
        return json_response(self._api.data_sets())

    async def me(self, request: Request) -> Response:
        return json_response(await asyncio.to_thread(self._api.left, self._terms(request)))

    async def quote(self, request: Request) -> Response:
        terms, body = self._terms(request), await body_of(request)
        work = partial(refusing, partial(self._api.quote, terms, values := parsed(body)))
        short = len(body) <= _SHORT and not is_statement(values)  # going to a thread would take longer
        return json_response(work() if short else await asyncio.to_thread(work))

    async def ask(self, request: Request) -> Response:
        terms, fresh = self._terms(request, "fresh"), _fresh(request)
        keys = request.headers.getlist("idempotency-key")
        if len(keys) != 1:
            raise Refused(400, "key", "one Idempotency-Key is needed, a name of your own: `Idempotency-Key: visits-1`")
        given = await ask_one(self._api, terms, parsed(await body_of(request)), keys[0], fresh=fresh)
        return json_response(given.body, 200 if given.old else 201)

    async def batch(self, request: Request) -> Response:
        terms, fresh = self._terms(request, "fresh"), _fresh(request)
        body = parsed(await body_of(request))
        questions = body.get("questions") if isinstance(body, dict) and len(body) == 1 else None
        most = min(MOST_QUESTIONS, terms.limits.requests)  # each is a request of the minute
        if not isinstance(questions, dict) or not 1 <= len(questions) <= most:
            rule = f'the body must be {{"questions": {{key: question}}}}, with 1 to {most} of them'
            raise Refused(422, "body", rule)
        count_request(self._api, terms, count=len(questions) - 1)
        told = await ask(self._api, terms, questions, fresh=fresh)
        note(answers={key: each.state if isinstance(each, Reply) else each.code for key, each in told.items()})
        answers = {key: each.body for key, each in told.items() if isinstance(each, Reply)}
        refused = {key: each.body for key, each in told.items() if isinstance(each, Refused)}
        return json_response({"answers": answers, "refused": refused})

    async def dummy(self, request: Request) -> Response:
        terms = self._terms(request)
        quoted, told = await try_one(self._api, terms, parsed(await body_of(request)))
        return json_response({"dummy": True, "quote": quoted, "answer": told.body})

    async def answers(self, request: Request) -> Response:
        terms = self._terms(request, "skip", "most")
        skip, most = _number(request, "skip", 0, 10**9), _number(request, "most", 100, 1000)
        listed = self._api.answers(terms)
        return json_response({"total": len(listed), "answers": listed[skip : skip + most]})

    async def csv(self, request: Request) -> Response:
        return await table(self._api, self._terms(request, "key"), request.query_params.getlist("key") or None)

    async def answer(self, request: Request) -> Response:
        owner = self._api.owner(self._terms(request, "key", "of"), request.query_params.get("of"))
        given = await asyncio.to_thread(self._api.stored, owner, request.query_params.get("key", ""))
        if given is None:
            raise Refused(404, "answer", NO_ANSWER)
        return json_response(given.body)

    def _terms(self, request: Request, *parameters: str) -> AnalystTerms:
        """Whose request it is, which is counted; of its parameters only these are known."""
        policy = self._api.policy
        name = holder_of(bearer(request), in_force(policy.analysts, self._api.clock.now()))
        if name is None:  # nobody's, or one that expired: told alike
            self._api.metrics.count("refusals", code="token")
            told = "a token is needed, and must be known and not expired: Authorization: Bearer ..."
            raise Refused(401, "token", told)
        terms = policy.analysts[name]
        note(who=name)
        count_request(self._api, terms)
        given = [name for name, _ in request.query_params.multi_items()]
        if len(set(given)) < len(given) or not set(given) <= set(parameters):
            known = ", ".join(parameters) or "none"
            raise Refused(400, "query", f"parameters that are known here: {known}; each once at most")
        return terms


def count_request(api: AnalystApi, terms: AnalystTerms, count: int = 1) -> None:
    """Count a request of an analyst, or several; refuse them if there were too many."""
    wait = api.rates.wait(terms.name, terms.limits.requests, count=count)
    if wait:
        api.metrics.count("refusals", code="rate")
        raise Refused(429, "rate", f"{terms.limits.requests} requests a minute are allowed", retry=wait)


async def ask(
    api: AnalystApi, terms: AnalystTerms, questions: Mapping[str, Any], *, fresh: bool = False
) -> dict[str, Reply | Refused]:
    """Find the answers that are there, and have the worker ask the other questions together, in whole steps of time.

    A refusal that comes up while they are asked is padded to the same steps.
    """
    told = await asyncio.to_thread(api.free, terms, questions)
    rest = {key: values for key, values in questions.items() if key not in told}
    try:
        if rest and api.session.ledger.store.closed:  # which takes no time of the analyst's
            await asyncio.shield(asyncio.wrap_future(api.worker.submit(terms.name, api.reopen, padded=False)))
        if rest:
            work = partial(api.ask, terms, rest, fresh=fresh)
            done = api.worker.submit(terms.name, work, told=partial(api.count_seconds, terms))
            new = await asyncio.shield(asyncio.wrap_future(done))
            told |= new
    except Exception as error:
        refused = problem_of(error)
        told |= dict.fromkeys(rest, refused)
        if refused.code in ("internal", "data", "away", "changed", "ledger"):
            api.metrics.count("failures", kind=type(error).__name__)
    for key, each in told.items():
        if isinstance(each, Reply) and is_statement(questions[key]):
            with suppress(Refused):  # it is paid: what cannot be shown so is shown whole
                told[key] = await asyncio.to_thread(api.arranged, terms, questions[key], each)
        elif isinstance(each, Refused):
            api.metrics.count("refusals", code=each.code)
    return {key: told[key] for key in questions}


async def ask_one(api: AnalystApi, terms: AnalystTerms, values: Any, key: str, *, fresh: bool) -> Reply:
    """The answer to one question; or its refusal is raised."""
    told = (await ask(api, terms, {key: values}, fresh=fresh))[key]
    if isinstance(told, Refused):
        raise told
    note(key=key, answer=told.state)
    return told


async def try_one(api: AnalystApi, terms: AnalystTerms, values: Any) -> tuple[QuoteBody, Reply]:
    """The quote of a question, and its answer about made-up data: in no step of time, since nothing private is read."""
    try:
        done = api.tries.submit(terms.name, partial(api.dummy, terms, values), padded=False)
        told = await asyncio.shield(asyncio.wrap_future(done))
    except Exception as error:
        raise problem_of(error) from None
    note(answer="dummy")
    return told


async def table(api: AnalystApi, terms: AnalystTerms, keys: list[str] | None) -> Response:
    """Own answers as a CSV file: those under keys, or the newest."""
    return csv_response(await asyncio.to_thread(api.csv, terms, keys), "answers.csv")


def csv_response(told: str, name: str) -> Response:
    return Response(told, media_type="text/csv", headers={"content-disposition": f'attachment; filename="{name}"'})


def _fresh(request: Request) -> bool:
    fresh = request.query_params.get("fresh", "false")
    if fresh not in ("true", "false"):
        raise Refused(400, "query", "fresh must be true or false")
    return fresh == "true"


def _number(request: Request, name: str, default: int, most: int) -> int:
    value = request.query_params.get(name, str(default))
    if not (value.isascii() and value.isdecimal()) or len(value) > 12 or int(value) > most:
        raise Refused(400, "query", f"{name} must be a whole number from 0 to {most}")
    return int(value)


class HolderRoutes:
    """Handlers over what holders see, on a port of their own: each needs a token that may do it."""

    def __init__(self, api: HolderApi) -> None:
        self._api, told = api, ("overview", "people", "spending", "alarms")
        anybody = AnalystRoutes(api.analysts)
        self.handlers: list[tuple[str, str, Handler]] = [
            *(("GET", f"/v1/{name}", partial(self._told, name)) for name in told),
            ("POST", "/v1/verify", self.verify),
            ("POST", "/v1/statement", self.statement),
            ("POST", "/v1/backup", partial(self._told, "backup", right="backup")),
            ("POST", "/v1/policy", self.policy),
            ("GET", "/metrics", self.metrics),
            ("GET", "/health", anybody.health),
            ("GET", "/ready", anybody.ready),
        ]

    async def _told(self, name: str, request: Request, *, right: Right = "console") -> Response:
        self._check(request, right)
        return json_response(await self._do(getattr(self._api, name)))

    async def verify(self, request: Request) -> Response:
        self._check(request, "verify")
        replay = await self._value(request, "replay", False)
        if not isinstance(replay, bool):
            raise Refused(422, "body", "replay must be true or false")
        return json_response(await self._do(partial(self._api.verify, replay=replay)))

    async def statement(self, request: Request) -> Response:
        who = self._check(request, "statements")
        person = await self._value(request, "person", None)
        if not isinstance(person, int | str) or isinstance(person, bool):
            raise Refused(422, "body", "person must be a text or a whole number: whose statement it is")
        told, entry = await self._do(partial(self._api.statement, person, who))
        note(entry=entry)
        return json_response(told)

    async def policy(self, request: Request) -> Response:
        who = self._check(request, "policy")
        await self._value(request, "", None)
        return json_response({"told": await self._do(partial(self._api.change, who))})

    async def metrics(self, request: Request) -> Response:
        self._check(request, "metrics")
        return Response(await self._do(self._api.exposition), media_type="text/plain; version=0.0.4")

    def _check(self, request: Request, right: Right) -> str:
        """Whose request it is, who may do it."""
        name = holder_of(bearer(request), self._api.hashes())
        if name is None:
            self._api.analysts.metrics.count("refusals", code="token")
            raise Refused(401, "token", "a token of [holders] is needed: Authorization: Bearer ...")
        note(who=name)
        self._api.refuse_without(right, name)
        return name

    async def _value(self, request: Request, name: str, default: Any) -> Any:
        """The one value that a body may have."""
        values = parsed(await body_of(request))
        if not isinstance(values, dict) or values.keys() - {name}:
            raise Refused(422, "body", f"the body may have {name or 'nothing: {}'}")
        return values.get(name, default)

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

"""The pages of analysts: data sets, a form to quote and ask, and own answers with bars for their intervals.

They are made by the server, work without JavaScript, ask for nothing from elsewhere, and show what JSON routes tell.
"""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import urlencode

from almoner import _html
from almoner._intervals import interval_shown, value_shown
from almoner.queries import Answer
from almoner.service._analyst_api import AnalystApi
from almoner.service._bodies import AnswerBody
from almoner.service._http.analyst_routes import ask, count_request
from almoner.service._http.application import Handler, Request, Response, page_response, redirect
from almoner.service._http.forms import Fields, fields_of, key_of, new_key, options_of, question_of
from almoner.service._http.login import Visit, Visits, analyst_of, in_force
from almoner.service._refusals import Refused, problem_of
from almoner.service.policies import AnalystTerms

__all__ = ["AnalystPages", "login_page"]

_MOST_ROWS = 200
_MOST_ANSWERS = 50


class AnalystPages:
    """Handlers of the analysts' pages."""

    def __init__(self, api: AnalystApi) -> None:
        self._api = api
        self._visits = Visits("analyst_session", api.policy, self._token)

    @property
    def handlers(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each page."""
        return [
            ("GET", "/", self._shown(self.home)),
            ("GET", "/login", self.login),
            ("POST", "/login", self.enter),
            ("POST", "/logout", self._sent(self.leave)),
            ("GET", "/answer", self._shown(self.answer)),
            ("POST", "/ask", self._sent(self.ask)),
        ]

    async def login(self, _: Request) -> Response:
        return page_response(login_page("Statistics", "Your token"))

    async def enter(self, request: Request) -> Response:
        fields = await fields_of(request)
        try:
            terms = analyst_of(fields.get("token", ""), self._api.policy.analysts)
        except Refused as refused:
            self._api.metrics.count("refusals", code="token")
            words = "This token is not known, or it has expired."
            return page_response(login_page("Statistics", "Your token", words), refused.status)
        response = redirect("/")
        self._visits.begin(terms.name, response)
        return response

    async def leave(self, request: Request, _: Visit, __: AnalystTerms, ___: Fields) -> Response:
        response = redirect("/login")
        self._visits.end(request, response)
        return response

    async def home(self, _: Request, visit: Visit, terms: AnalystTerms) -> Response:
        return page_response(await asyncio.to_thread(self._home, visit, terms, {}))

    async def answer(self, request: Request, _: Visit, terms: AnalystTerms) -> Response:
        key = request.query_params.get("key", "")
        given = await asyncio.to_thread(self._api.stored, terms, key)
        if given is None:
            raise Refused(404, "answer", "you have no answer under this key")
        return page_response(_answer(given.answer, given.body, key))

    async def ask(self, _: Request, visit: Visit, terms: AnalystTerms, fields: Fields) -> Response:
        try:
            ledger = self._api.session.ledger
            values = question_of(fields, self._api.policy, ledger.symbol, ledger.budget)
            if fields.get("do") == "ask":
                key = key_of(fields, values)
                await ask(self._api, terms, values, key, fresh=fields.get("fresh") == "yes")
                return redirect("/answer", key=key)
            quoted = await asyncio.to_thread(self._api.quote, terms, values)
            status, said = 200, (f"Quote: {quoted['words']}.", "status")
        except Exception as error:
            refused = problem_of(error)
            status, said = refused.status, (f"Refused: {refused.text}.", "alert")
        return page_response(await asyncio.to_thread(self._home, visit, terms, fields, *said), status)

    def _shown(self, make: Callable[[Request, Visit, AnalystTerms], Awaitable[Response]]) -> Handler:
        """A page for a visit; without one the visitor is sent to log in."""

        async def answer(request: Request) -> Response:
            visit = self._visits.of(request)
            terms = None if visit is None else self._api.policy.analysts.get(visit.name)
            if visit is None or terms is None:
                return redirect("/login")
            try:
                count_request(self._api, terms)
                return await make(request, visit, terms)
            except Refused as refused:
                page = _html.render("refused.html", said=refused.text)
                return page_response(page, refused.status, retry=refused.retry)

        return answer

    def _sent(self, make: Callable[[Request, Visit, AnalystTerms, Fields], Awaitable[Response]]) -> Handler:
        """The handler of a form, which must be of this visit."""

        async def answer(request: Request, visit: Visit, terms: AnalystTerms) -> Response:
            fields = await fields_of(request)
            self._visits.check_form(visit, fields.get("form", ""))
            return await make(request, visit, terms, fields)

        return self._shown(answer)

    def _token(self, name: str) -> str | None:
        """The hash of the token of an analyst, if it is in force."""
        terms = self._api.policy.analysts.get(name)
        return terms.token if terms is not None and in_force(terms) else None

    def _home(self, visit: Visit, terms: AnalystTerms, fields: Fields, *said: str) -> str:
        told, listed, answers = self._api.data_sets()["data_sets"], self._api.answers(terms), []
        for each in listed[:_MOST_ANSWERS]:
            given = self._api.stored(terms, each["key"])
            if given is not None:
                first = next(iter(_spans(given.answer, 1, zero=True)), {"value": "", "interval": ""})
                address = f"/answer?{urlencode({'key': each['key']}, errors='replace')}"
                answers.append({**each, **first, "address": address})
        return _html.render(
            "analyst.html",
            name=terms.name,
            said=said,
            left=self._api.left(terms),
            data_sets=told,
            answers=answers,
            number=len(listed),
            most=_MOST_ANSWERS,
            options=options_of(told),
            sent=fields,
            # a form that is sent twice asks once
            hidden={"form": visit.form, "made": fields.get("made", "") or new_key()},
        )


def login_page(title: str, label: str, said: str = "") -> str:
    """The page that asks for a token."""
    return _html.render("login.html", title=title, label=label, said=said)


def _answer(answer: Answer, told: AnswerBody, key: str) -> str:
    table = answer.columns()
    named = [name for name in table if name not in ("value", "low", "high", "truth_low", "truth_high")]
    rows = [
        {**span, "cells": [str(table[name][place]) for name in named]}
        for place, span in enumerate(_spans(answer, _MOST_ROWS))
    ]
    return _html.render(
        "answer.html",
        key=key,
        told=told,
        named=named,
        rows=rows,
        count=len(table["value"]),
        answer=answer,
        about=answer.about.replace("truth_intervals cover", "intervals for the truth cover"),
    )


def _spans(answer: Answer, most: int, *, zero: bool = False) -> list[dict[str, str | None]]:
    """Value and interval of the first rows, and where they lie on a scale, which may have to show zero."""
    table = answer.columns()
    values, lows, highs = (table[name][:most] for name in ("value", "low", "high"))
    ends = [0.0] if zero or not lows else []
    least, half = min([*lows, *ends]), max([*highs, *ends]) / 2
    width = half - least / 2 or 1.0  # halves: the difference of huge numbers is not finite

    def place(number: float) -> str:
        share = (number / 2 - least / 2) / width
        return f"{2 + 96 * min(max(share, 0.0), 1.0) if share == share else 2:.2f}"

    return [
        {
            "value": "-" if value is None else value_shown(value, low, high, thousands=","),
            "interval": interval_shown(low, high, thousands=","),
            "low": place(low),
            "mark": None if value is None else place(value),
            "high": place(high),
        }
        for value, low, high in zip(values, lows, highs, strict=True)
    ]

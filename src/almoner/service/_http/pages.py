"""The pages of analysts: data sets, a form to quote and ask, and own answers with bars for their intervals.

They are made by the server, work without JavaScript, ask for nothing from elsewhere, and show what JSON routes tell.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from almoner import _html
from almoner._intervals import interval_shown, value_shown
from almoner.queries import Answer
from almoner.service._analyst_api import AnalystApi
from almoner.service._http.analyst_routes import ask, count_request
from almoner.service._http.application import Handler, Request, Response, page_response, redirect
from almoner.service._http.forms import Fields, fields_of, form_for, key_of, question_of
from almoner.service._http.login import Visit, Visits, analyst_of, in_force
from almoner.service._refusals import Refused, problem_of
from almoner.service.policies import AnalystTerms

__all__ = ["AnalystPages", "login_page"]

_MOST_ROWS = 200
_MOST_ANSWERS = 50
_MOST_PERIODS = 60


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
        return page_response(await asyncio.to_thread(self._home, visit, terms, {}, []))

    async def answer(self, request: Request, _: Visit, terms: AnalystTerms) -> Response:
        key = request.query_params.get("key", "")
        given = await asyncio.to_thread(self._api.stored, terms, key)
        if given is None:
            raise Refused(404, "answer", "you have no answer under this key")
        body = [*_answer(given.answer, given.body, key), _html.anchor("/", "Back to all answers and the form")]
        return page_response(_html.page(f"Answer: {key}", body))

    async def ask(self, _: Request, visit: Visit, terms: AnalystTerms, fields: Fields) -> Response:
        status, said = 200, []
        try:
            ledger = self._api.session.ledger
            values = question_of(fields, self._api.policy, ledger.symbol, ledger.budget)
            if fields.get("do") == "ask":
                key = key_of(fields, values)
                await ask(self._api, terms, values, key, fresh=fields.get("fresh") == "yes")
                return redirect("/answer", key=key)
            quoted = await asyncio.to_thread(self._api.quote, terms, values)
            said = [_html.notice(f"Quote: {quoted['words']}.")]
        except Exception as error:
            refused = problem_of(error)
            status, said = refused.status, [_html.notice(f"Refused: {refused.text}.", alert=True)]
        return page_response(await asyncio.to_thread(self._home, visit, terms, fields, said), status)

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
                body = [_html.notice(f"{refused.text}.", alert=True), _html.anchor("/", "Back")]
                return page_response(_html.page("Refused", body), refused.status, retry=refused.retry)

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

    def _home(self, visit: Visit, terms: AnalystTerms, fields: Fields, said: list[str]) -> str:
        told, left = self._api.data_sets(), self._api.left(terms)
        body = [
            *said,
            _html.heading("What is left to you"),
            *_left(left),
            _html.heading("Ask"),
            form_for(self._api.policy, told, fields, visit.form),
            _html.heading("Your answers"),
            self._answers(terms),
            _html.heading("Data sets"),
            *(_data_set(each) for each in told["data_sets"]),
            _html.heading("This visit"),
            _html.form("/logout", [], [("", "", "Leave")], {"form": visit.form}),
        ]
        return _html.page(f"Statistics for {terms.name}", body)

    def _answers(self, terms: AnalystTerms) -> str:
        listed = self._api.answers(terms)
        if not listed:
            return _html.paragraph("You have no answers yet.")
        rows = []
        for each in listed[:_MOST_ANSWERS]:
            given = self._api.stored(terms, each["key"])
            if given is not None:
                price = "nothing" if each["share"] == 0 else f"{each['share']:.3%}"
                shown = _spans(given.answer, 1, zero=True)[0]
                rows.append(
                    (
                        _html.anchor("/answer", each["key"], key=each["key"]),
                        _html.text(each["day"]),
                        _html.text(_words(each["question"])),
                        *shown,
                        _html.text(price),
                    )
                )
        columns = ("Key", "Day", "Question", "First value", "95 % interval", "With zero", "Price, of a budget")
        more = f", the newest {_MOST_ANSWERS} of {len(listed)}" if len(listed) > _MOST_ANSWERS else ""
        return _html.table(f"Your answers{more}", columns, rows)


def login_page(title: str, label: str, said: str | None = None) -> str:
    """The page that asks for a token."""
    told = [] if said is None else [_html.notice(said, alert=True)]
    field = _html.field("token", label, kind="password", required=True, hint="It begins with token_")
    return _html.page(title, [*told, _html.form("/login", [field], [("", "", "Log in")], {})])


def _left(left: dict[str, Any]) -> list[str]:
    share, limit = left["left"]["share"], left["limits"]["share"]
    usual, periods = left["usual"], left["left"]["by_period"]
    least = " in the period where it is least" if periods else ""
    return [
        _html.bar(1 - share / limit if limit else 1.0, f"{1 - share / limit:.1%} of your share of the budgets is used"),
        _html.paragraph(
            f"{share:.2%} of each person's budget is certainly left to you{least}, of the {limit:.2%} you may use.",
            f"That is {left['left']['usual_questions']} usual questions ({_words(usual['question'])}) "
            f"at {usual['share']:.3%} each.",
            f"Today you may ask {left['left']['questions_today']} more questions.",
        ),
        _html.paragraph(
            "This follows from prices and limits.",
            "When nothing is left, answers may miss people who have paid much; each answer says so.",
        ),
        *([_periods(periods)] if len(periods) > 1 else []),
    ]


def _periods(periods: list[dict[str, Any]]) -> str:
    """A table of what is left in the last periods; rows stand for all periods up to the next row."""
    rows = [(_html.text(each["from"]), _html.text(f"{each['share']:.2%}")) for each in periods[-_MOST_PERIODS:]]
    return _html.table("Left of each person's budget, by the day of the data", ["from", "certainly left"], rows)


def _data_set(told: dict[str, Any]) -> str:
    rows = [
        (
            _html.text(column["name"]),
            _html.text(column["kind"]),
            _html.text("" if column["low"] is None else f"{column['low']:g} to {column['high']:g}"),
            _html.text(_shortened(", ".join(map(str, column["keys"])))),
            _html.text(column["about"] or ""),
        )
        for column in told["columns"]
    ]
    caption = f"{told['name']}: {told['about']}" if told["about"] else told["name"]
    return _html.table(caption, ("Column", "Kind", "Bounds", "Keys", "About"), rows)


def _answer(answer: Answer, told: dict[str, Any], key: str) -> list[str]:
    rows = _spans(answer, _MOST_ROWS)
    table = answer.columns()
    named = [name for name in table if name not in ("value", "low", "high", "truth_low", "truth_high")]
    listed = [(*map(_html.text, (str(table[n][place]) for n in named)), *row) for place, row in enumerate(rows)]
    about = answer.about.replace("truth_intervals cover", "intervals for the truth cover")
    about = about[0].upper() + about[1:]
    said = [f"It is {answer.estimand}.", "Intervals are 95 % each, for the noise alone.", about, answer.about_budgets]
    if answer.complete is False:
        said.append("Too many people could not pay any more: do not trust totals.")
    facts = [("Day", _html.text(told["day"])), ("Question", _html.text(_words(told["question"])))]
    facts.append(("Price", _html.text(f"{told['share']:.4%} of each person's budget, at most")))
    if told["released_on"] is not None:
        facts.append(("Shared", _html.text(f"released on {told['released_on']}; it cost nothing again")))
    more = (
        [_html.paragraph(f"The first {_MOST_ROWS} of {len(table['value'])}.")]
        if len(rows) < len(table["value"])
        else []
    )
    columns = (*named, "Value", "95 % interval", "Where it lies")
    return [_html.facts(facts), _html.table(key, columns, listed), *more, _html.paragraph(*said)]


def _spans(answer: Answer, most: int, *, zero: bool = False) -> list[tuple[str, ...]]:
    """Value, interval and bar of the first rows; with ``zero`` on the scale, or without."""
    table = answer.columns()
    values, lows, highs = (table[name][:most] for name in ("value", "low", "high"))
    ends = [0.0] if zero or not lows else []
    between = min([*lows, *ends]), max([*highs, *ends])
    rows: list[tuple[str, ...]] = []
    for value, low, high in zip(values, lows, highs, strict=True):
        shown = "-" if value is None else value_shown(value, low, high, thousands=",")
        span = interval_shown(low, high, thousands=",")
        bar = _html.interval(low, value, high, between, f"{shown}, {span}")
        rows.append((_html.text(shown), _html.text(span), bar))
    return rows or [("", "", "")]


def _words(question: dict[str, Any]) -> str:
    """A question in a line."""
    words = str(question["ask"])
    words += f" of {question['column']}" if "column" in question else ""
    words += f" where {question['where']}" if "where" in question else ""
    by = question.get("by") or []
    words += " by " + ", ".join(str(column) for column, _ in by) if by else ""
    return _shortened(words)


def _shortened(words: str) -> str:
    return words if len(words) <= 200 else f"{words[:197]}..."

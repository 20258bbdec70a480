"""The pages of both doors: a form to quote and ask with own answers, and the data holder's console (PRIVATE).

They are made by the server, work without JavaScript, ask for nothing from elsewhere, and show what JSON routes tell.
"""

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from functools import partial
from itertools import accumulate, groupby
from math import ceil, floor
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit

from almoner import _html
from almoner._intervals import interval_shown, round_step, value_shown
from almoner._reading import json_values, told_of
from almoner._tokens import hash_of, holder_of
from almoner.errors import AlmonerError, DataError
from almoner.queries import Answer
from almoner.queries.plans import question_schema
from almoner.service._analyst_api import NO_ANSWER, AnalystApi, Reply, csv_of
from almoner.service._bodies import Refused, problem_of, refusing
from almoner.service._holder_api import HolderApi, in_holder_thread
from almoner.service._http.application import (
    Handler,
    Request,
    Response,
    body_of,
    json_response,
    note,
    page_response,
    redirect,
)
from almoner.service._http.login import Visit, Visits
from almoner.service._http.routes import ask_one, count_request, csv_response, table, try_one
from almoner.service.policies import AnalystTerms, Limits, Policy, in_force, login_hash

if TYPE_CHECKING:
    from almoner.service._http.sign_on import SignOn

Fields = Mapping[str, str]
KINDS = {
    "people": "Number of people", "count": "Number of rows", "sum": "Sum", "mean": "Mean", "quantiles": "Quantiles",
    "histogram": "Histogram", "top": "Most frequent keys", "distinct": "Number of different values",
    "variance": "Variance", "ratio": "Ratio of two sums", "several": "Several statistics", "covariance": "Covariance",
    "regression": "Regression", "keys": "Keys that nobody listed", "sql": "SQL statement",
}  # fmt: skip
HINTS = {
    "column": "A column, or an expression such as: hours * 60",
    "low": "Entries below count as this; left out: as the data set says",
    "high": "Entries above count as this; left out: as the data set says",
    "edges": "Ends of bins, such as: 0, 6, 12, 24; left out: 64 bins between the bounds that the data set says",
    "levels": "0.5 is the median",
    "columns": 'Columns with their bounds, such as: {"hours": [0, 24]}',
    "among": "Public keys, such as: FR, ES",
    "aggregates": 'Such as: {"rows": "count", "hours": {"ask": "mean", "column": "hours"}}',
    "sql": "Such as: SELECT country, count(*) FROM visits GROUP BY country",
    "where": "Which rows count, such as: hours > 2 and country = 'FR'",
    "by": "One answer for each public key of these columns, such as: country, day",
    "clip": "Most rows of a person, for rows and sums: who has more counts as so many",
    "error": "In place of a price: half the width of the interval, such as 50, or 2%",
    "anyway": "Ask also where people may be missing, because not everybody's budget pays for it for certain",
}
_FIRST = ("where", "by", "clip", "error", "anyway")  # of the fields that all kinds have; the others are for few
_FEW = ("bounds_hold", "correlated", "chosen", "step", "quantile_bins")  # of the fields of one kind
_SAID = ("ask", "table", "sigma", "rho", "epsilon", "level")  # said in other words, or not at all
_BINS = 64
_MOST_ROWS = 200
_MOST_ANSWERS = 50
_DAYS = 60
_TRIES = 30  # logins in a minute that may be tried from one address; behind a proxy, from it

Page = Callable[[Visit, Any, Fields], Awaitable[Response]]
"""Makes a page for a visit, of whom ``_admit`` returns, from the fields of its form or of its address."""


class _Pages:
    """Pages behind a login, by the hashes in force; ``unknown`` and ``words`` are said at the login."""

    _door: Literal["address", "holder_address"] = "address"

    def __init__(
        self, api: AnalystApi, cookie: str, hashes: Callable[[], Mapping[str, str]], unknown: str, **words: str
    ) -> None:
        self._analysts, self._hashes, self._unknown, self._words = api, hashes, unknown, words
        self._sign_on: tuple[Any, SignOn] | None = None
        self._visits = Visits(cookie, lambda: api.policy, hashes)
        self.handlers: list[tuple[str, str, Handler]] = [
            ("GET", "/", self._page(self._home)),
            ("GET", "/login", self._login),
            ("POST", "/login", self._tried(self._enter)),
            ("GET", "/signin", self._tried(self._send_away)),
            ("GET", "/signed-in", self._tried(self._come_back)),
            ("POST", "/logout", self._page(self._leave, form=True)),
        ]

    def _admit(self, name: str) -> Any:
        """Whoever makes a visit, whose request is counted; None if nobody does any more."""
        return name

    async def _home(self, visit: Visit, who: Any, fields: Fields) -> Response:
        raise NotImplementedError

    async def _login(self, _: Request, *, said: str = "", status: int = 200, retry: int | None = None) -> Response:
        part = self._analysts.policy.file.oidc
        words = {**self._words, "sign_on": part.name if part is not None and self._signs_on() else ""}
        return page_response(_html.render("login.html", said=said, **words), status, retry=retry)

    def _signs_on(self) -> "SignOn | None":
        """Single sign-on as the policy in force has it; None: it has none for these pages."""
        policy = self._analysts.policy
        part = policy.file.oidc
        address = None if part is None else getattr(part, self._door)
        if part is None or address is None:
            return None
        if self._sign_on is None or self._sign_on[0] is not part:
            from almoner.service._http.sign_on import SignOn

            self._sign_on = part, SignOn(part, address, policy.secret)
        return self._sign_on[1]

    def _tried(self, make: Handler) -> Handler:
        """A login more from where a request comes; the login page says why it is refused."""

        async def answer(request: Request) -> Response:
            try:
                if wait := self._analysts.logins.wait(request.client.host if request.client else "", _TRIES):
                    said = f"Too many logins were tried from here. Try again in {wait} seconds"
                    raise Refused(429, "rate", said, retry=wait)
                return await make(request)
            except Refused as refused:
                note(code=refused.code)
                self._analysts.metrics.count("refusals", code=refused.code)
                return await self._login(request, said=f"{refused.text}.", status=refused.status, retry=refused.retry)

        return answer

    async def _enter(self, request: Request) -> Response:
        fields = await _fields(request)
        name = holder_of(fields.get("token", ""), self._hashes())
        if name is None:
            raise Refused(401, "token", self._unknown)
        response = redirect("/")
        self._begin(name, hash_of(fields["token"]), response)
        return response

    async def _send_away(self, _: Request) -> Response:
        if (sign_on := self._signs_on()) is None:
            raise Refused(404, "path", "The policy has no single sign-on for this page")
        address, sent = await sign_on.begin()
        response = Response(status_code=303, headers={"location": address})
        self._visits.send_away(sent, response)
        return response

    async def _come_back(self, request: Request) -> Response:
        sign_on, sent = self._signs_on(), self._visits.back(request)
        if sign_on is None or sent is None:
            raise Refused(401, "sign-on", "No login began in this browser, or too long ago: log in again")
        hashed = login_hash(await sign_on.login(request.query_params, sent))
        name = self._hashes().get(hashed)
        if name is None:
            raise Refused(403, "login", "The policy lets nobody in here by this login: ask the data holder")
        page = _html.render("refused.html", title="Logged in", said=f"You are {name}", link_words="Go on")
        response = page_response(page)
        response.headers["refresh"] = "0; url=./"  # a redirect from the issuer's site would leave out the cookie
        self._begin(name, hashed, response)
        self._visits.send_away(None, response)
        return response

    def _begin(self, name: str, hashed: str, response: Response) -> None:
        note(who=name)
        self._visits.begin(name, hashed, response)

    async def _leave(self, visit: Visit, _: Any, __: Fields) -> Response:
        response = redirect("/login")
        self._visits.end(visit, response)
        return response

    def _page(self, make: Page, *, form: bool = False) -> Handler:
        """A page for a visit, or for a form of this visit; without one the visitor is sent to log in."""

        async def answer(request: Request) -> Response:
            try:
                visit = self._visits.of(request)
                who = None if visit is None else self._admit(visit.name)
                if visit is None or who is None:
                    return redirect("/login")
                note(who=visit.name)
                fields: Fields = await _fields(request) if form else request.query_params
                if form:
                    self._visits.check_form(visit, fields.get("form", ""))
                return await make(visit, who, fields)
            except Refused as refused:
                note(code=refused.code)
                page = _html.render("refused.html", title="Refused", said=refused.text, link_words="Back")
                return page_response(page, refused.status, retry=refused.retry)

        return answer


class AnalystPages(_Pages):
    def __init__(self, api: AnalystApi) -> None:
        unknown, words = "This token is not known, or it has expired", {"title": "Statistics", "label": "Your token"}
        super().__init__(
            api, "analyst_session", lambda: in_force(api.policy.analysts, api.clock.now()), unknown, **words
        )
        self._api = api
        self.handlers += [
            ("GET", "/answer", self._page(self._answer)),
            ("GET", "/ask", self._page(self._home)),
            ("GET", "/download", self._page(self._download)),
            ("POST", "/ask", self._page(self._ask, form=True)),
        ]

    def _admit(self, name: str) -> AnalystTerms | None:
        terms = self._api.policy.analysts.get(name)
        if terms is not None:
            count_request(self._api, terms)
        return terms

    async def _home(self, visit: Visit, who: AnalystTerms, fields: Fields) -> Response:
        return page_response(await asyncio.to_thread(self._filled, visit, who, fields))

    async def _answer(self, _: Visit, who: AnalystTerms, fields: Fields) -> Response:
        key, owner = fields.get("key", ""), self._api.owner(who, fields.get("of"))
        given = await asyncio.to_thread(self._api.stored, owner, key)
        if given is None:
            raise Refused(404, "answer", NO_ANSWER)
        shares = who.name in self._api.policy.file.sharing.analysts
        shared = urlencode({"of": owner.name, "key": key}, errors="replace") if shares else ""
        own, again = (urlencode({name: key}, errors="replace") for name in ("key", "again"))
        links = (own, again, shared) if owner is who else (shared, "", "")
        named = dict(zip(("address", "again", "shared"), links, strict=True))
        return page_response(_answer_page(given, key=_own(key), sent=None, owner=owner.name, **named))

    async def _download(self, _: Visit, who: AnalystTerms, fields: Fields) -> Response:
        key, owner = fields.get("key", ""), self._api.owner(who, fields.get("of"))
        given = await asyncio.to_thread(self._api.stored, owner, key) if fields.get("as") == "json" else None
        keys = [key] if key or owner is not who else None  # of own answers all, of a colleague's one
        return await table(self._api, owner, keys) if given is None else json_response(given.body)

    async def _ask(self, visit: Visit, who: AnalystTerms, fields: Fields) -> Response:
        made, ledger = fields.get("made", "") or _new_key(), self._api.session.ledger  # one form asks one thing once
        try:
            values = question_of(fields, self._api.policy, ledger.symbol, ledger.budget)
            if fields.get("do") == "ask":
                digest = hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()
                key = fields.get("key", "").strip() or f"{made} {digest[:8]}"
                await ask_one(self._api, who, values, key, fresh=fields.get("fresh") == "yes")
                return redirect("/answer", key=key)
            if fields.get("do") in ("try", "try as CSV"):
                _, told = await try_one(self._api, who, values)
                sent = {name: value for name, value in fields.items() if name not in ("do", "made")}
                again = urlencode({name: value for name, value in sent.items() if name != "form" and value})
                page = partial(_answer_page, told, key="", sent=sent, address="", again=again, owner="", shared="")
                if fields["do"] == "try":
                    return page_response(await asyncio.to_thread(page))
                return csv_response(csv_of([told.answer]), "dummy.csv")
            quoted = await asyncio.to_thread(self._api.quote, who, values)
            status, said = 200, (f"Quote: {quoted['words']}.", "status")
        except Exception as error:
            refused = problem_of(error)
            note(code=refused.code)
            status, said = refused.status, (f"Refused: {refused.text}.", "alert")
        return page_response(await asyncio.to_thread(self._filled, visit, who, fields, *said), status)

    def _filled(self, visit: Visit, terms: AnalystTerms, fields: Fields, *said: str) -> str:
        again = self._api.stored(terms, fields["again"]) if "again" in fields else None
        if again is not None:
            fields = filled_in(again.body["question"], again.body["share"])
        listed, answers = self._api.answers(terms), []
        page = int(sent) if (sent := fields.get("page", "")).isdecimal() and len(sent) < 9 else 0
        for each in listed[page * _MOST_ANSWERS : (page + 1) * _MOST_ANSWERS]:
            given = self._api.stored(terms, each["key"])
            if given is not None:
                first = next(iter(_spans(given.answer, 1)[0]), {"value": "", "interval": ""})
                address = f"/answer?{urlencode({'key': each['key']}, errors='replace')}"
                answers.append({**each, **first, "address": address, "own": _own(each["key"])})
        ask, told = fields.get("ask", ""), self._api.data_sets()["data_sets"]
        hidden = {"ask": ask if ask in KINDS else "people", "table": fields.get("table") or told[0]["name"]}
        shown: dict[str, Any] = {"name": terms.name, "said": said, "left": self._api.left(terms), "answers": answers}
        shown |= {"page": page, "pages": -(-len(listed) // _MOST_ANSWERS), "data_sets": told}
        shown |= {"kinds": KINDS, "hints": HINTS, "form_fields": form_fields(hidden["ask"])}
        hidden |= {"form": visit.form, "made": fields.get("made", "") or _new_key()}
        return _html.render("analyst.html", **shown, sent={**fields, **hidden}, hidden=hidden)


class Console(_Pages):
    _door = "holder_address"

    def __init__(self, api: HolderApi) -> None:
        self._api = api
        words = {"title": "Console of the data holder", "label": "Your token"}
        hashes, unknown = partial(api.hashes, "console"), "This token may not see the console"
        super().__init__(api.analysts, "holder_session", hashes, unknown, **words)
        self.handlers += [
            ("GET", "/find", self._page(self._home)),
            ("POST", "/verify", self._page(self._verify, form=True)),
            ("POST", "/limits", self._page(self._limit, form=True)),
        ]

    async def _home(self, visit: Visit, _: str, fields: Fields) -> Response:
        return page_response(await in_holder_thread(partial(self._filled, visit, fields.get("find", "").strip())))

    async def _limit(self, _: Visit, who: str, fields: Fields) -> Response:
        self._api.refuse_without("policy", who)
        sent = {name: fields.get(name, "").strip() for name in Limits.model_fields}
        wanted = {name: _value(value, {"number"}) for name, value in sent.items() if value}
        try:
            await in_holder_thread(partial(self._api.limit, fields.get("analyst", ""), wanted, who))
        except AlmonerError as error:
            raise Refused(422, "policy", str(error)) from None
        return redirect("/")

    async def _verify(self, _: Visit, who: str, fields: Fields) -> Response:
        self._api.refuse_without("verify", who)
        await in_holder_thread(partial(refusing, partial(self._api.verify, replay=fields.get("replay") == "yes")))
        return redirect("/")

    def _filled(self, visit: Visit, find: str) -> str:
        api = self._api
        found = refusing(lambda: api.found(find)) if find else None
        told, people, spending, alarms = refusing(lambda: (api.overview(), api.people(), api.spending(), api.alarms()))
        values = {"visit": visit, "api": api, "told": told, "people": people, "spending": spending, "alarms": alarms}
        days, may = _days(spending["by_day"]), visit.name in api.hashes("policy").values()
        limits = {name: told for name, told in told_of(Limits).items() if may and name in Limits.model_fields}
        values |= {"find": find, "found": found, "limits": limits}
        return _html.render("console.html", **values, days=days, most=_DAYS, kinds=KINDS)


def _days(spent: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]], float, int]]:
    """Each day with questions, the shares of a budget that analysts spent on it, all so far, and its number."""
    days = [(day, list(rows)) for day, rows in groupby(spent, itemgetter("day"))]
    totals = accumulate(sum(row["share"] for row in rows) for _, rows in days)
    return [(*each, total, date.fromisoformat(each[0]).toordinal()) for each, total in zip(days, totals, strict=True)]


def _spans(answer: Answer, most: int) -> tuple[list[dict[str, str | None]], list[tuple[str, str]]]:
    """Value and interval of the first rows, and where they lie on a scale; and its ticks: where, and numbers."""
    table = answer.columns()
    values, lows, highs = (table[name][:most] for name in ("value", "low", "high"))
    least, half = min(lows, default=0.0), max(highs, default=0.0) / 2
    width = half - least / 2 or 1.0  # halves: the difference of huge numbers is not finite

    def place(number: float) -> str:
        share = (number / 2 - least / 2) / width
        return f"{2 + 96 * min(max(share, 0.0), 1.0) if share == share else 2:.2f}"

    spans = list[dict[str, str | None]]()
    for value, low, high in zip(values, lows, highs, strict=True):
        shown = value_shown(value, low, high, thousands=",")
        spans.append({"value": shown, "interval": interval_shown(low, high, thousands=",")})
        spans[-1] |= {"low": place(low), "mark": None if value is None else place(value), "high": place(high)}
    if not 1e-300 < width < 1e300:
        return spans, []
    step = round_step(width / 3)
    ticks = [step * tick for tick in range(ceil(least / step), floor(2 * half / step) + 1)]
    return spans, [(place(tick), f"{tick:,.6g}") for tick in ticks]


def _answer_page(given: Reply, **shown: object) -> str:
    """The page of an answer; of one about made-up data ``sent`` is the form that asked for it."""
    answer, cells = given.answer, given.answer.columns()
    named = [name for name in cells if name not in ("value", "low", "high", "truth_low", "truth_high")]
    spans, ticks = _spans(answer, _MOST_ROWS)
    rows = [{**span, "cells": [str(cells[name][place]) for name in named]} for place, span in enumerate(spans)]
    about = answer.about.replace("truth_intervals cover", "intervals for the truth cover")
    shown |= {"told": given.body, "answer": answer, "about": about, "ticks": ticks, "kinds": KINDS}
    return _html.render("answer.html", **shown, named=named, rows=rows, count=len(cells["value"]))


def _own(key: str) -> str:
    """A key that an analyst chose; empty for one that was made here."""
    return "" if re.fullmatch(r"[\d-]{10} [0-9a-f]{12} [0-9a-f]{8}", key) else key


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a form, each once; Refused where it was sent from elsewhere, or is no form."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is None and origin is not None:  # an older browser, or no https
        site = "same-origin" if urlsplit(origin).netloc == request.headers.get("host") else "cross-site"
    if site not in (None, "same-origin", "none"):
        raise Refused(403, "form", "the form was sent from another site")
    body = await body_of(request, "application/x-www-form-urlencoded")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=40, errors="strict")
    except ValueError:
        raise Refused(400, "form", "the form cannot be read") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Refused(400, "form", "the form has a field twice")
    return fields


def _new_key() -> str:
    """A new start for keys of questions that are given none."""
    return f"{datetime.now(UTC):%Y-%m-%d} {secrets.token_hex(6)}"


def form_fields(ask: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Schemas of the fields of a kind of question by their names, and of those that few questions need."""
    named = {name: schema for name, schema in _properties(ask).items() if name not in _SAID}
    own = {name: schema for name, schema in named.items() if name not in (*_FEW, *_properties("people"))}
    first = own | {name: named[name] for name in _FIRST if name in named}
    return first, {name: schema for name, schema in named.items() if name not in first}


def question_of(fields: Fields, policy: Policy, symbol: str, budget: float) -> dict[str, Any]:
    """The question that a form describes, as plain values; its price is in the symbol of the ledger's budget."""
    ask, table = fields.get("ask", ""), fields.get("table", "")
    if ask not in KINDS:
        raise Refused(422, "question", f"ask must be one of {', '.join(KINDS)}")
    values: dict[str, Any] = {"ask": ask} | ({} if ask == "sql" else {"table": table})
    for name, schema in _properties(ask).items():
        if name not in _SAID and (text := fields.get(name, "").strip()):
            values[name] = _value(text, {each.get("type", "string") for each in schema.get("anyOf", [schema])})
    part = getattr(policy.file.tables.get(table), "columns", {}).get(values.get("column"))
    if ask in ("quantiles", "histogram") and part is not None and part.low is not None and part.high is not None:
        ends = [part.low + place * (part.high - part.low) / _BINS for place in range(_BINS + 1)]
        values.setdefault("edges", ends)
    if "error" not in values:
        price = _value(fields.get("price", "").strip(), {"number"})
        if not isinstance(price, int | float) or not 0 < price <= 100:
            raise Refused(422, "question", "the price must be above 0 and at most 100 percent of a budget")
        values[symbol] = price / 100 * budget
    return values


def filled_in(question: Mapping[str, Any], share: float) -> dict[str, str]:
    """The form that describes a question, by which it is asked again; ``share`` is its price."""
    return {name: _text(value) for name, value in question.items()} | {"price": f"{100 * share:.6g}" if share else ""}


def _properties(ask: str) -> dict[str, Any]:
    schema = question_schema("{model}")
    return dict(schema["$defs"][schema["discriminator"]["mapping"][ask]]["properties"])


def _value(text: str, types: set[str]) -> Any:
    """Value of a field that takes these types of JSON: a text, yes or no, JSON, or a list with commas."""
    if types <= {"string", "null"} or types == {"boolean"}:
        return text == "yes" if types == {"boolean"} else text
    with suppress(DataError):
        return json_values(text.encode("utf-8", "replace"))
    return [_value(each.strip(), {"number"}) for each in text.split(",")] if "array" in types else text


def _text(value: Any) -> str:
    if isinstance(value, list) and not any(isinstance(each, list | dict) for each in value):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else "yes" if value is True else json.dumps(value)

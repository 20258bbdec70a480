"""The data holder's console: budgets over time, people near the end, limits, alarms and checks. PRIVATE."""

from functools import partial
from typing import Any

from almoner import _html
from almoner.service._holder_api import HolderApi, in_holder_thread
from almoner.service._http.application import Handler, Request, Response, page_response, redirect
from almoner.service._http.forms import fields_of
from almoner.service._http.login import HOLDER, Visit, Visits
from almoner.service._http.pages import login_page
from almoner.service._refusals import refusing
from almoner.service._tokens import holder_of

__all__ = ["Console"]

_DAYS = 60


class Console:
    """Handlers of the data holder's pages."""

    def __init__(self, api: HolderApi) -> None:
        self._api = api
        self._visits = Visits("holder_session", api.analysts.policy, lambda _: api.analysts.policy.holder_token)

    @property
    def handlers(self) -> list[tuple[str, str, Handler]]:
        """Method, path and handler of each page."""
        return [
            ("GET", "/", self.home),
            ("GET", "/login", self.login),
            ("POST", "/login", self.enter),
            ("POST", "/logout", self.leave),
            ("POST", "/verify", self.verify),
        ]

    async def login(self, _: Request) -> Response:
        return page_response(login_page("Console of the data holder", "The data holder's token"))

    async def enter(self, request: Request) -> Response:
        fields = await fields_of(request)
        if holder_of(fields.get("token", ""), {HOLDER: self._api.analysts.policy.holder_token}) is None:
            words = "This is not the data holder's token."
            return page_response(login_page("Console of the data holder", "The data holder's token", words), 401)
        response = redirect("/")
        self._visits.begin(HOLDER, response)
        return response

    async def leave(self, request: Request) -> Response:
        visit = self._visits.of(request)
        if visit is not None:
            self._visits.check_form(visit, (await fields_of(request)).get("form", ""))
        response = redirect("/login")
        self._visits.end(request, response)
        return response

    async def home(self, request: Request) -> Response:
        visit = self._visits.of(request)
        if visit is None:
            return redirect("/login")
        return page_response(await in_holder_thread(partial(self._home, visit)))

    async def verify(self, request: Request) -> Response:
        visit, fields = self._visits.of(request), await fields_of(request)
        if visit is None:
            return redirect("/login")
        self._visits.check_form(visit, fields.get("form", ""))
        verify = partial(self._api.verify, replay=fields.get("replay") == "yes")
        await in_holder_thread(partial(refusing, verify))
        return redirect("/")

    def _home(self, visit: Visit) -> str:
        api = self._api
        told, people, spending, alarms = refusing(lambda: (api.overview(), api.people(), api.spending(), api.alarms()))
        return _html.render(
            "console.html",
            visit=visit,
            api=api,
            told=told,
            people=people,
            spending=spending,
            days=_days(spending["by_day"])[-_DAYS:],
            most=_DAYS,
            alarms=alarms,
        )


def _days(spent: list[dict[str, Any]]) -> list[tuple[str, str, float]]:
    """Each day with questions, the shares of a budget that analysts spent on it, in words, and all so far."""
    days: dict[str, dict[str, float]] = {}
    for row in spent:
        days.setdefault(row["day"], {})[row["analyst"]] = row["share"]
    total, told = 0.0, []
    for day, shares in sorted(days.items()):
        total += sum(shares.values())
        told.append((day, ", ".join(f"{who} {share:.2%}" for who, share in sorted(shares.items())), total))
    return told

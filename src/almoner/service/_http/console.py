"""The data holder's console: budgets over time, people near the end, limits, alarms and checks. PRIVATE."""

from functools import partial
from typing import Any

from almoner import _html
from almoner._private import MARK
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
        body = [
            _html.heading("Alarms"),
            *_alarms(alarms),
            _html.heading("People"),
            *_people(people),
            _html.heading("Budget over time"),
            *_over_time(spending),
            _html.heading("Analysts and their limits"),
            _analysts(told),
            _html.heading("Spent by analyst and purpose"),
            _by_analyst(spending),
            _html.heading("Verification"),
            *self._checks(told, visit),
            _html.heading("This visit"),
            _html.form("/logout", [], [("", "", "Leave")], {"form": visit.form}),
        ]
        return _html.page("Console of the data holder", body, mark=f"{MARK[0].upper()}{MARK[1:]}.")

    def _checks(self, told: dict[str, Any], visit: Visit) -> list[str]:
        buttons = [("replay", "no", "Verify the ledger"), ("replay", "yes", "Verify, and charge everything again")]
        form = _html.form("/verify", [], buttons, {"form": visit.form})
        facts = [("Entries", _html.text(told["entries"])), ("Head", _html.text(told["head"]))]
        shown = [_html.facts(facts), _html.paragraph("Analysts wait while the ledger is verified."), form]
        if self._api.checked is None:
            return [*shown, _html.paragraph("It was not verified since the service was started.")]
        rows = [(_html.text("yes" if each["holds"] else "NO"), _html.text(each["what"])) for each in self._api.checks]
        when = _html.facts([("Last verified", _html.when(self._api.checked))])
        return [*shown, when, _html.table("What was verified", ("Holds", "What"), rows)]


def _alarms(alarms: list[dict[str, str]]) -> list[str]:
    if not alarms:
        return [_html.paragraph("There are none.")]
    return [_html.notice(alarm["text"], alert=True) for alarm in alarms]


def _people(people: dict[str, Any]) -> list[str]:
    charged = max(1, people["charged"])
    rows = [
        (
            _html.text(f"{share:.0%} to {share + 0.05:.0%}" if share < 1 else "all"),
            _html.text(f"{number:,}"),
            _html.bar(number / charged, f"{number / charged:.1%} of the people who were charged"),
        )
        for share, number in zip(people["shares"], people["people"], strict=True)
        if number
    ]
    near = f"{people['near_the_end']:,} of {people['charged']:,} people who were charged have spent "
    near += f"{people['near']:.0%} of their budget or more."
    return [
        _html.paragraph(near, large=True),
        _html.table("How much of their budget people have spent", ("Spent", "People", "Share"), rows),
    ]


def _over_time(spending: dict[str, Any]) -> list[str]:
    days: dict[str, dict[str, float]] = {}
    for row in spending["by_day"]:
        days.setdefault(row["day"], {})[row["analyst"]] = row["share"]
    total, rows = 0.0, []
    for day, shares in sorted(days.items()):
        total += sum(shares.values())
        spent = ", ".join(f"{who} {share:.2%}" for who, share in sorted(shares.items()))
        label = f"{total:.2%} of a budget in all"
        rows.append((_html.text(day), _html.text(spent), _html.text(f"{total:.2%}"), _html.bar(total, label)))
    told = f"Who paid the highest price of everything has spent {spending['share']:.2%} of a budget; others less."
    columns = ("Day", "Highest prices", "In all", "Of a budget")
    return [_html.paragraph(told), _html.table(f"The last {_DAYS} days with questions", columns, rows[-_DAYS:])]


def _analysts(told: dict[str, Any]) -> str:
    rows = [
        (
            _html.text(each["analyst"]),
            _html.text(each["purpose"] or "not stated"),
            _html.text(f"{each['share']:.2%}"),
            _html.text(f"{each['spent']:.2%}"),
            _html.text(f"{each['left']:.2%}"),
            _html.text(each["answers"]),
            _html.text(each["expires"] or "never"),
        )
        for each in told["analysts"]
    ]
    columns = ("Analyst", "Purpose", "Limit", "Highest prices", "Certainly left", "Answers", "Token expires")
    return _html.table("Analysts of the policy; shares are of each person's budget", columns, rows)


def _by_analyst(spending: dict[str, Any]) -> str:
    rows = [
        (
            _html.text(each["analyst"]),
            _html.text(each["purpose"] or "not stated"),
            _html.text(each["questions"]),
            _html.text(f"{each['share']:.2%}"),
            _html.bar(each["share"], f"{each['share']:.2%} of a budget"),
        )
        for each in spending["by_analyst"]
    ]
    columns = ("Analyst", "Purpose", "Questions", "Highest prices", "Of a budget")
    return _html.table("All that was ever charged", columns, rows)

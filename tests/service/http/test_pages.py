"""The pages of analysts and the console: they work without JavaScript, stand alone, and tell nothing private."""

import re

import httpx2
import pytest

from almoner import _html
from almoner._intervals import interval_shown, value_shown
from almoner.queries.plans import ASKS
from almoner.service._dummy import ABOUT
from almoner.service._http.pages import KINDS, _days, _spans
from almoner.service.policies import Policy
from browser import browser, chromium
from page_reader import Reader
from service_processes import started
from services import COUNT, MARKER, POLICY, TOKENS, Door, service, service_folder

HOSTILE = "<script>alert('x')</script>"


@pytest.fixture
def running(tmp_path):
    with service(service_folder(tmp_path)) as made:
        yield made


def entered(application, token):
    """A client that logged in with a token, in a form, as a browser does."""
    door = Door(application)
    assert door.get("/").headers["location"] == "./login"
    assert "token" in Reader(door.get("/login").text).forms["/login"]
    response = door.post("/login", data={"token": token})
    assert (response.status_code, response.headers["location"]) == (303, "./")
    return door


@pytest.fixture
def ann(running):
    return entered(running.service.analysts, TOKENS["ann"])


@pytest.fixture
def holder(running):
    return entered(running.service.holder, TOKENS["holder"])


def sent(door, **fields):
    """Fill in the form of the page and send it."""
    own = Reader(door.get("/").text).forms["/ask"]
    first = {"table": "visits", "ask": "count", "clip": "5", "price": "1", "do": "ask"}
    return door.post("/ask", data={**own, **first, **fields})


def test_a_question_is_quoted_and_asked_in_a_form(running, ann):
    """A quote costs nothing; asking leads to the answer, which is listed, and is the same over JSON."""
    quoted = sent(ann, do="quote", by="country")
    assert "Quote: about table visits: 95 % within about" in Reader(quoted.text).text
    assert running.api.session.ledger.entries("answered") == []
    asked = sent(ann, by="country", key="monday", where="hours > 2")
    assert (asked.status_code, asked.headers["location"]) == (303, "./answer?key=monday")
    page = Reader(ann.get("/answer?key=monday").text)
    told = running.ann.get("/v1/answer?key=monday").json()
    assert told["question"]["where"] == "hours > 2"
    for value, interval in zip(told["values"], told["intervals"], strict=True):
        assert f"{value_shown(value, *interval)} {interval_shown(*interval)}" in page.text
    assert len([named for named in page.all("svg") if named["class"] == "span"]) == 2
    home = Reader(ann.get("/").text)
    assert "monday: Number of rows by country where hours > 2" in home.text
    assert sent(ann, by="country", key="monday", where="hours > 2").status_code == 303
    assert len(running.api.session.ledger.entries("answered")) == 1


def test_prices_on_pages_are_rounded_up_and_what_is_left_down(running, ann):
    """A small price is told with three digits, and never as less than it is; what is left is never told as more."""
    assert sent(ann, key="cheap", price="0.123456").status_code == 303
    share = running.ann.get("/v1/answer?key=cheap").json()["share"]
    told, home = (Reader(ann.get(path).text).text.replace("\u00a0", " ") for path in ("/answer?key=cheap", "/"))
    assert "0.124 % of each person's budget, at most" in told
    assert "0.124 %" in home
    assert 0.00123 < share < 0.00124
    left = running.ann.get("/v1/me").json()["left"]["share"]
    said = re.search(r"([\d.]+) % of each person's budget is certainly left", home)
    assert 100 * left - 0.1 < float(said[1]) <= 100 * left


def test_the_console_rounds_up_what_was_spent(running, holder):
    """The least prices are no 0.00 % of a budget, in sentences and in every table."""
    running.ann.ask("cheap", {"ask": "people", "rho": 0.0001234})
    share = 100 * running.holder.get("/v1/spending").json()["share"]
    told = Reader(holder.get("/").text).text
    assert 0.0123 < share < 0.0124
    assert told.count("0.0124 %") == 5
    assert "0.0124 percent of a budget." in told


def test_a_question_is_tried_on_made_up_data(running, ann):
    """Its page and its file say that they are dummies; the form is there again, filled in; nothing was asked."""
    tried = sent(ann, do="try", by="country", where="hours > 2", key="monday")
    page = Reader(tried.text)
    assert tried.status_code == 200
    assert "DUMMY: Number of rows by country where hours > 2" in page.text
    assert page.text.count(ABOUT) >= 2
    file = ann.post("/ask", data={**page.forms["/ask"], "do": "try as CSV"})
    assert file.headers["content-type"].startswith("text/csv")
    assert file.text.count(f"\n{ABOUT},") == 2
    (again,) = [named["href"] for named in page.all("a") if "/ask?" in named["href"]]
    form = Reader(ann.get(again.removeprefix(".")).text).forms["/ask"]
    assert (form["where"], form["by"], form["price"]) == ("hours > 2", "country", "1")
    assert running.api.session.ledger.entries("answered") == []
    assert ann.get("/answer?key=monday").status_code == 404
    refused = sent(ann, do="try", where=HOSTILE)
    assert refused.status_code == 422
    assert HOSTILE not in refused.text


HOURS = {"column": "hours"}
ROWS = {"count", "sum", "ratio", "histogram", "several", "sql", "covariance", "regression", "top"}
EDGES = [0.375 * place for place in range(65)]
FILLED = [
    ({"ask": "people"}, {"ask": "people"}),
    ({"ask": "people", "where": "hours > 2", "error": "50"}, {"ask": "people", "error": None}),
    ({"ask": "sum", **HOURS}, {"ask": "sum", "low": 0, "high": 24, "clip": 5}),
    ({"ask": "mean", **HOURS, "high": "12", "low": "0", "per": "row", "clip": "5"},
     {"low": 0, "high": 12, "per": "row"}),
    ({"ask": "quantiles", **HOURS, "levels": "0.25, 0.5"}, {"levels": [0.25, 0.5], "edges": EDGES}),
    ({"ask": "histogram", **HOURS, "edges": "0, 6,24"}, {"ask": "histogram", "edges": [0, 6, 24]}),
    ({"ask": "variance", **HOURS, "bounds_hold": "yes"}, {"ask": "variance", "bounds_hold": True}),
    ({"ask": "count", "by": '{"country": ["FR"]}'}, {"by": [["country", ["FR"]]]}),
    ({"ask": "top", "column": "country", "k": "1", "among": "FR, ES"}, {"ask": "top", "among": ["FR", "ES"]}),
    ({"ask": "distinct", "column": "country", "most": "3"}, {"ask": "distinct", "most": 3}),
    ({"ask": "ratio", "numerator": "hours", "numerator_bounds": "0, 24"}, {"numerator_bounds": [0, 24]}),
    ({"ask": "covariance", "columns": '{"hours": [0, 24], "hours * hours": [0, 576]}'}, {"ask": "covariance"}),
    ({"ask": "regression", "target": "hours", "columns": '{"hours": [0, 24], "hours * hours": [0, 576]}'},
     {"target": "hours"}),
    ({"ask": "several", "aggregates": '{"n": "count", "h": {"ask": "mean", "column": "hours"}}'}, {"ask": "several"}),
    ({"ask": "keys", "column": "country", "delta": "0.001", "most": "2", "price": "20"}, {"ask": "keys"}),
    ({"ask": "sql", "sql": "SELECT country, count(*) FROM visits GROUP BY country"}, {"ask": "several"}),
]  # fmt: skip


@pytest.mark.slow
def test_each_kind_of_question_is_asked_in_its_form_and_again(tmp_path):
    """Every kind has a form of its fields, gives the question that it says, and is filled in again from its answer."""
    assert {fields["ask"] for fields, _ in FILLED} == set(ASKS) == set(KINDS)
    with service(service_folder(tmp_path), lambda text: f"keys_delta = 0.01\n{text}") as running:
        ann = entered(running.service.analysts, TOKENS["ann"])
        for place, (fields, wanted) in enumerate(FILLED):
            form = Reader(ann.get("/ask", params={"ask": fields["ask"], "table": "visits"}).text)
            named = {each["name"] for each in form.all("input", "select")}
            assert fields.keys() <= named, fields
            filled = {**form.forms["/ask"], "clip": "5" * (fields["ask"] in ROWS), "price": "0.5", **fields}
            asked = ann.post("/ask", data={**filled, "key": f"k{place}", "do": "ask"})
            assert asked.status_code == 303, Reader(asked.text).text
            question = running.ann.get(f"/v1/answer?key=k{place}").json()["question"]
            assert {name: question.get(name) for name in wanted} == wanted
            assert ann.get(f"/answer?key=k{place}").status_code == 200
            again = Reader(ann.get(f"/ask?again=k{place}").text).forms["/ask"]
            quoted = ann.post("/ask", data={**again, "do": "quote"})
            assert "Quote: " in quoted.text, (fields, Reader(quoted.text).text)


def test_answers_are_saved_as_files(running, ann):
    """One answer as CSV and JSON, and all of them as one CSV; nobody else's."""
    running.ann.ask("one")
    running.ann.ask("two", {"ask": "people", "rho": 0.01})
    running.bob.ask("theirs")
    one = ann.get("/download?key=one")
    assert one.headers["content-disposition"] == 'attachment; filename="answers.csv"'
    assert one.text == running.ann.get("/v1/answers.csv?key=one").text
    assert one.text.splitlines()[0].startswith("key,country,value,low,high")
    assert [line.split(",")[:2] for line in one.text.splitlines()[1:]] == [["one", "FR"], ["one", "ES"]]
    every = ann.get("/download").text.splitlines()
    assert [line.split(",")[0] for line in every] == ["key", "two", "one", "one"]
    assert ann.get("/download?as=json&key=one").json() == running.ann.get("/v1/answer?key=one").json()
    for path in ("/download?key=theirs", "/download?as=json&key=theirs"):
        assert ann.get(path).status_code == 404
    assert running.ann.get("/v1/answers.csv?key=theirs").status_code == 404
    assert running.door().get("/v1/answers.csv").status_code == 401


def test_older_answers_are_on_further_pages(running, ann, monkeypatch):
    """Two answers to a page: links lead to older and newer ones, and a page that is not there has none."""
    monkeypatch.setattr("almoner.service._http.pages._MOST_ANSWERS", 2)
    for place in range(5):
        running.ann.ask(f"key {place}", {"ask": "people", "rho": 0.001, "where": f"hours > {place}"})
    seen = []
    for page in range(3):
        told = Reader(ann.get(f"/?page={page}").text)
        seen += re.findall(r"key \d", told.text)
        links = {named["href"] for named in told.all("a") if "page" in named["href"]}
        assert links == {f"./?page={each}" for each in (page - 1, page + 1) if 0 <= each < 3}
    assert seen == [f"key {place}" for place in (4, 3, 2, 1, 0)]
    for page in ("9", "-1", "x", "9" * 30):
        assert ann.get("/", params={"page": page}).status_code == 200


def test_a_scale_has_ticks_at_its_numbers():
    """Ticks lie where their numbers say, within the intervals' reach, and are few; where there is no width are none."""
    for low, high in ((-3.0, 17.0), (0.0, 1e9), (1e-6, 2e-6), (-1e18, 1e18)):
        _, ticks = _spans(Drawn([(low + high) / 2], [low], [high]), 9)
        assert 2 <= len(ticks) <= 7
        for place, number in ticks:
            share = (float(number.replace(",", "")) - low) / (high - low)
            assert float(place) == pytest.approx(2 + 96 * share, abs=0.01)
    for low, high in ((-1.7e308, 1.7e308), (float("-inf"), float("inf"))):
        assert _spans(Drawn([5.0], [low], [high]), 9)[1] == []
    assert _spans(Drawn([], [], []), 9)[0] == []


class Drawn:
    """An answer of these values and intervals."""

    def __init__(self, values, lows, highs):
        self.columns = lambda: {"value": values, "low": lows, "high": highs}


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"ask": "mean"}, "'mean' needs column"),
        ({"ask": "mean", "column": "diagnosis"}, "diagnosis"),
        ({"clip": ""}, "clip= must be given"),
        ({"clip": "nan"}, "clip must be a number"),
        ({"ask": "histogram", "column": "country"}, "'histogram' needs edges"),
        ({"ask": "several", "aggregates": "{"}, "aggregates"),
        ({"price": "0"}, "the price must be above 0"),
        ({"price": "0.001"}, "the least price"),
        ({"price": "60"}, "more than your limits"),
        ({"where": "diagnosis = 'x'"}, "diagnosis"),
        ({"where": HOSTILE}, "where"),
        ({"key": "caf\u00e9"}, "printable characters of ASCII"),
        ({"ask": HOSTILE}, "ask must be one of"),
    ],
)
def test_what_is_refused_is_said_beside_the_form(running, ann, fields, words):
    """A refusal stands on the page as an alert, the form keeps what was sent, and nothing was charged."""
    refused = sent(ann, **fields)
    assert 400 <= refused.status_code < 500
    page = Reader(refused.text)
    assert any(named.get("role") == "alert" for named in page.all("p"))
    assert words in page.text
    assert page.all("script") == []
    if "where" in fields:
        assert page.forms["/ask"]["where"] == fields["where"]
    assert running.api.session.ledger.entries("answered") == []


def test_what_is_left_in_each_period(tmp_path):
    """With periods, a question about one week leaves the other weeks as they were, over HTTP and on the page."""
    periods = '[periods]\ncolumn = "day"\nevery = "week"\nfirst = "2026-01-05"\nlast = "2026-02-01"\n\n[tables.visits]'
    usual = "\n[usual]\nask = \"people\"\nwhere = \"day >= '2026-01-19' and day < '2026-01-26'\"\nrho = 0.1\n"
    policy = POLICY.replace("[tables.visits]", periods, 1) + usual
    with service(service_folder(tmp_path, policy)) as running:
        assert running.ann.get("/v1/me").json()["left"]["by_period"] == [{"from": "2026-01-05", "share": 0.5}]
        week = {"ask": "people", "where": "week(day) = '2026-01-12'", "rho": 0.3}
        assert running.ann.ask("week", week).status_code == 201
        left = running.ann.get("/v1/me").json()["left"]
        assert [each["from"] for each in left["by_period"]] == ["2026-01-05", "2026-01-12", "2026-01-19"]
        assert [each["share"] for each in left["by_period"]] == pytest.approx([0.5, 0.2, 0.5])
        assert (left["share"], left["usual_questions"]) == (pytest.approx(0.2), 5)
        page = entered(running.service.analysts, TOKENS["ann"]).get("/").text
        assert "by the day of the data" in page
        assert "2026-01-12" in page


def test_a_form_that_is_sent_twice_asks_once(running, ann):
    """The second sending of the same form without a key leads to the answer of the first, which alone was charged."""
    filled = {**Reader(ann.get("/").text).forms["/ask"], "table": "visits", "ask": "people", "price": "1", "do": "ask"}
    first, second = (ann.post("/ask", data=filled) for _ in range(2))
    assert first.status_code == second.status_code == 303
    assert first.headers["location"] == second.headers["location"]
    assert len(running.api.session.ledger.entries("answered")) == 1
    other = ann.post("/ask", data={**filled, "price": "2"})
    assert (other.status_code, other.headers["location"] == first.headers["location"]) == (303, False)
    again = {**filled, **Reader(ann.get("/").text).forms["/ask"]}
    assert ann.post("/ask", data=again).headers["location"] != first.headers["location"]


def test_a_browser_that_names_another_origin_is_refused(running):
    """Where a browser does not say which site a form was sent from, its origin must be this host."""
    for origin, status in (("https://evil.example", 403), ("null", 403), ("http://testserver", 303)):
        door = Door(running.service.analysts)
        sent = door.post("/login", data={"token": TOKENS["ann"]}, headers={"origin": origin})
        assert sent.status_code == status


def test_forms_from_elsewhere_are_refused(running, ann, holder):
    """Without the visit's own word in the form, or from another site, nothing is asked, verified or ended."""
    form = Reader(ann.get("/").text).forms["/ask"]
    fields = {"table": "visits", "ask": "people", "price": "1", "do": "ask", "key": "k"}
    other = Reader(entered(running.service.analysts, TOKENS["ann"]).get("/").text).forms["/ask"]["form"]
    for word in ("", "x", "caf\u00e9", other):
        assert ann.post("/ask", data={**fields, "form": word}).status_code == 403
        assert ann.post("/logout", data={"form": word}).status_code == 403
        assert holder.post("/verify", data={"form": word}).status_code == 403
        assert holder.post("/logout", data={"form": word}).status_code == 403
    elsewhere = {"sec-fetch-site": "cross-site"}
    assert ann.post("/ask", data={**fields, **form}, headers=elsewhere).status_code == 403
    assert ann.post("/login", data={"token": TOKENS["bob"]}, headers=elsewhere).status_code == 403
    assert ann.post("/ask", content=b"ask=people&ask=count", headers={"content-type": "text/plain"}).status_code == 415
    assert running.api.session.ledger.entries("answered") == []
    assert ann.get("/").status_code == 200


def test_a_visit_needs_its_cookie_and_ends(running, ann):
    """The cookie is for this site, not for scripts, and is no token; JSON routes do not take it; leaving ends it."""
    response = Door(running.service.analysts).post("/login", data={"token": TOKENS["ann"]})
    cookie = response.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert TOKENS["ann"] not in cookie
    assert ann.get("/v1/me").status_code == 401
    form = Reader(ann.get("/").text).forms["/logout"]
    value = ann.cookies["analyst_session"]
    assert ann.post("/logout", data=form).status_code == 303
    again = Door(running.service.analysts)
    assert again.get("/", headers={"cookie": f"almoner={value}"}).headers["location"] == "./login"
    for token in ("", TOKENS["stranger"], TOKENS["old"], TOKENS["holder"]):
        assert Door(running.service.analysts).post("/login", data={"token": token}).status_code == 401
    for token in ("", TOKENS["ann"]):
        assert Door(running.service.holder).post("/login", data={"token": token}).status_code == 401


def test_cookies_are_for_https_where_the_policy_says_so(tmp_path):
    """With https = true browsers send the cookie over https alone."""
    with service(
        service_folder(tmp_path), lambda text: text.replace("step = 0.02", "step = 0.02\nhttps = true")
    ) as made:
        response = made.door().post("/login", data={"token": TOKENS["ann"]})
        assert "Secure" in response.headers["set-cookie"]


def test_the_console_shows_budgets_people_limits_and_checks(running, holder):
    """Shares by day and analyst, people near the end, limits, alarms; a button verifies the ledger."""
    running.ann.ask("one")
    running.bob.ask("two", {"ask": "people", "rho": 0.1})
    running.door().get("/v1/me")
    page = Reader(holder.get("/").text)
    for words in (
        "0 of 60 people who were charged have spent 90 % of their budget or more.",
        "1 requests had no token",
        "ann 0.348 %, bob 10 %",
        "weekly",
        "It was not verified since the service was started.",
    ):
        assert words in page.text, words
    assert holder.post("/verify", data={**page.forms["/verify"], "replay": "yes"}).status_code == 303
    page = Reader(holder.get("/").text)
    assert "charging every question again from the data gives the same accounts" in page.text
    assert " NO " not in page.text
    assert page.text.startswith("Console of the data holder Private: for the data holder.")


def test_a_colleague_reads_an_answer_by_its_link(tmp_path):
    """The link names analyst and key, and no secret; it is free, and opens for who logs in and shares answers alone."""
    text = POLICY.replace("[holders", "[sharing]\nanalysts = ['ann', 'bob']\n[holders")
    with service(service_folder(tmp_path, text)) as running:
        ann, bob = (entered(running.service.analysts, TOKENS[name]) for name in ("ann", "bob"))
        told, own = running.ann.ask("mon day").json(), Reader(ann.get("/answer", params={"key": "mon day"}).text)
        link = "/answer?of=ann&key=mon+day"
        assert f".{link}" in [named["href"] for named in own.all("a")]
        head, left = running.api.session.ledger.head, running.bob.get("/v1/me").json()["left"]
        assert bob.get("/download?of=ann").status_code == 400  # only by their keys
        page = Reader(bob.get(link).text)
        assert "Asked by ann" in page.text
        assert value_shown(told["values"][0], *told["intervals"][0]) in page.text
        assert not [named for named in page.all("a") if "again" in named["href"]]
        for address in [named["href"] for named in page.all("a") if "download" in named["href"]]:
            assert bob.get(address.removeprefix(".")).status_code == 200
        assert running.bob.get("/v1/answer?key=mon day&of=ann").json() == told
        assert (running.api.session.ledger.head, running.bob.get("/v1/me").json()["left"]) == (head, left)
        assert Door(running.service.analysts).get(link).headers["location"] == "./login"
        policy = tmp_path / "policy.toml"
        policy.write_text(policy.read_text().replace("['ann', 'bob']", "['bob', 'old']"))
        running.api.change_policy(Policy.read(policy))
        refused = [
            bob.get(f"/answer?of={of}&key={key}") for of in ("ann", "eve", "", "old") for key in ("mon day", "x")
        ]
        refused += [ann.get("/answer?of=bob&key=x"), bob.get("/download?of=ann&key=mon day")]
        refused += [bob.get("/download?of=ann")]
        assert {(each.status_code, Reader(each.text).text) for each in refused} == {(404, Reader(refused[0].text).text)}
        assert running.bob.get("/v1/answer?key=mon day&of=ann").status_code == 404
        assert "Link for colleagues" not in ann.get("/answer", params={"key": "mon day"}).text


def test_the_console_finds_questions_and_lines(tmp_path):
    """A text is sought in questions, keys and names, and in the log; what it has in it is no part of the page."""
    with service(service_folder(tmp_path), lambda text: f'log = "log.jsonl"\n{text}') as running:
        holder = entered(running.service.holder, TOKENS["holder"])
        running.ann.ask(f"monday {HOSTILE}", {**COUNT, "where": "hours > 7"})
        running.bob.ask("tuesday")
        for find, there, away in (
            ("HOURS > 7", "monday", "tuesday"),
            ("bob", "tuesday", "monday"),
            ("/v1/answers", "route: /v1/answers", "x"),
        ):
            response = holder.get("/find", params={"find": find})
            page = Reader(response.text)
            assert there in page.text, find
            assert away == "x" or away not in page.text
            assert HOSTILE not in response.text
        assert "monday" not in Reader(holder.get("/find", params={"find": HOSTILE + "x"}).text).text
        assert MARKER not in holder.get("/find", params={"find": MARKER}).text.replace(f'value="{MARKER}"', "")


def test_the_console_shows_lines_of_nobody(tmp_path):
    """Lines that name nobody, as of strangers and alarms, are found too; what is no line of a log is left out."""
    with service(service_folder(tmp_path), lambda text: f'log = "log.jsonl"\n{text}') as running:
        holder = entered(running.service.holder, TOKENS["holder"])
        running.door().get("/v1/me")
        with (tmp_path / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write('5\n"5 sign"\n[5]\n{"time": 5}\nhalf of a line 5"}\n')
        page = Reader(holder.get("/find", params={"find": "token"}).text)
        assert "code: token" in page.text
        for find in ("request", "level", '"', "5"):
            assert holder.get("/find", params={"find": find}).status_code == 200, find


def test_the_console_draws_what_was_spent(running, holder):
    """A line of steps goes up with each day's prices, and its ends are said in words."""
    spent = [(1, "ann", 0.1), (3, "ann", 0.0), (5, "ann", 0.05), (5, "bob", 0.05)]
    days = _days([{"day": f"2026-01-0{day}", "analyst": who, "share": share} for day, who, share in spent])
    drawn = (
        _html._environment().from_string('{% from "parts.html" import curve %}{{ curve(days, "x") }}').render(days=days)
    )
    (line,) = Reader(drawn).all("polyline")
    assert line["points"].split() == [
        "1.00,39.00",
        "1.00,20.00",
        "50.00,20.00",
        "50.00,20.00",
        "99.00,20.00",
        "99.00,1.00",
    ]
    assert Reader(holder.get("/").text).all("polyline") == []
    running.ann.ask("one")
    page = Reader(holder.get("/").text)
    assert len(page.all("polyline")) == 1
    assert ": 0.348 percent of a budget." in page.text


def pages(running, ann, holder):
    """Every page, with what makes it long."""
    for key in range(3):
        running.ann.ask(f"{HOSTILE} {key}", {**COUNT, "clip": 4 + key})
    running.ann.ask("mean", {"ask": "mean", "column": "hours", "low": 0, "high": 24, "sigma": 9})
    yield Door(running.service.analysts).get("/login")
    yield ann.get("/")
    yield sent(ann, do="quote")
    yield sent(ann, price="0", where=HOSTILE)
    yield ann.get("/answer", params={"key": f"{HOSTILE} 0"})
    yield ann.get("/answer?key=mean")
    yield ann.get("/ask?ask=quantiles&table=visits")
    yield ann.get("/ask?again=mean")
    yield ann.get("/answer?key=none")
    yield sent(ann, do="try", by="country")
    yield Door(running.service.holder).get("/login")
    yield holder.get("/")
    yield holder.get("/find", params={"find": "script"})


def test_pages_stand_alone_and_tell_nothing_private(running, ann, holder):
    """No script, no request to elsewhere, the one style that the policy allows, and no name of a person."""
    for response in pages(running, ann, holder):
        page = Reader(response.text)
        assert page.all("script", "img", "link", "iframe") == []
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert f"style-src '{_html.style_hash()}'" in policy
        assert not any(name.startswith("on") or name == "style" for _, named in page.tags for name in named)
        assert all(named["href"].startswith("./") for named in page.all("a"))
        assert all(re.fullmatch(r"/\w+", action) for action in page.forms)
        assert MARKER not in response.text
        assert "people.ledger" not in response.text


def test_the_hash_is_that_of_the_style():
    """The policy's hash is of the text between the tags of the style, as a browser computes it."""
    import base64
    import hashlib

    style = Reader(_html.render("base.html", title="x")).style
    assert "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode() == _html.style_hash()


def test_pages_can_be_read_by_everybody(running, ann, holder):
    """A language, one title and heading, labels for fields, names for pictures, captions, headers, and unique ids."""
    for response in pages(running, ann, holder):
        page = Reader(response.text)
        assert page.all("html") == [{"lang": "en"}]
        headings = [tag for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
        assert headings[0] == "h1"
        assert headings.count("h1") == 1
        assert set(headings) <= {"h1", "h2"}
        assert len(page.all("title")) == len(page.all("main")) == 1
        ids = [named["id"] for _, named in page.tags if "id" in named]
        assert len(set(ids)) == len(ids)
        labelled = {named["for"] for named in page.all("label")}
        for named in page.all("input", "select"):
            if named.get("type") != "hidden":
                assert named["id"] in labelled
                assert named.get("aria-describedby", named["id"]) in ids
        assert all(named.get("aria-label") and named.get("role") == "img" for named in page.all("svg"))
        assert len(page.all("caption")) == len(page.all("table"))
        assert all(named.get("scope") == "col" for named in page.all("th"))
        assert all(named.get("type") == "submit" for named in page.all("button"))
        assert "viewport" in [named.get("name") for named in page.all("meta")]


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_contrast_in_light_and_dark():
    """Text on each background has 4.5 to 1, and borders and marks have 3 to 1, as WCAG 2.2 asks (1.4.3 and 1.4.11)."""
    style = Reader(_html.render("base.html", title="x")).style
    light, dark = re.findall(r":root \{ ([^}]*--ink: #[^}]*--warm: #\w+;) \}", style)[:2]
    for scheme in (light, dark):
        colours = dict(re.findall(r"--(\w+): (#\w{6})", scheme))
        for paper in ("paper", "soft", "warm"):
            assert contrast(colours["ink"], colours[paper]) >= 4.5
        assert contrast(colours["used"], colours["paper"]) >= 4.5
        assert contrast(colours["mark"], colours["warm"]) >= 4.5
        for edge in ("line", "used"):
            assert contrast(colours[edge], colours["paper"]) >= 3


CHROMIUM = pytest.mark.skipif(chromium() is None, reason="chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    """One browser for all tests."""
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.mark.browser
@CHROMIUM
def test_a_browser_shows_accessible_pages(tmp_path, tab, running, ann, holder):
    """At a desk and on a phone, light and dark, no page reaches over the edge, and axe finds nothing wrong."""
    for place, response in enumerate(pages(running, ann, holder)):
        file = tmp_path / f"{place}.html"
        file.write_text(response.text, encoding="utf-8")
        for width, dark in ((1280, False), (420, True)):
            tab.open(file, width=width, dark=dark)
            assert tab.run("document.documentElement.scrollWidth") <= width
            assert tab.requested == [file.as_uri()]
            assert tab.violations() == []


@pytest.mark.browser
@CHROMIUM
def test_a_browser_takes_the_style_that_the_policy_allows(tmp_path, tab):
    """A page that Chromium gets from a running service, with its policy, looks as from a file without one."""
    folder = service_folder(tmp_path)
    with started(folder) as (process,):
        address = f"{process.address}/login"
        (tmp_path / "login.html").write_text(httpx2.get(address).text, encoding="utf-8")
        tab.go(address, width=1280)
        served = tab.picture()
        assert tab.complaints == []
    tab.open(tmp_path / "login.html", width=1280)
    assert served == tab.picture()

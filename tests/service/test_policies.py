"""Policy files: what is refused, in which words, and what is never shown."""

import json
import re
from functools import partial
from pathlib import Path

import pytest

from almoner.errors import ArgumentError, DataError
from almoner.service import explain, hash_of, opened
from almoner.service.policies import Limits, Policy
from services import MARKER, POLICY, TOKENS, service, service_folder

ANN = POLICY.index("[analysts.ann]")


def changed(old, new, text=POLICY):
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


def read(folder, text):
    (folder / "policy.toml").write_text(text, encoding="utf-8")
    return Policy.read(folder / "policy.toml")


def test_limits_of_an_analyst_stand_before_those_of_all(tmp_path):
    """What is not said of an analyst is as [limits] has it, and what that does not say is the default."""
    policy = read(tmp_path, changed("[analysts.bob]", "[analysts.bob]\nquestions = 3"))
    assert policy.analysts["bob"].limits == Limits(share=0.5, cells=100, requests=100_000, questions=3)
    assert policy.analysts["ann"].limits.questions == Limits().questions
    assert policy.analysts["ann"].purpose == "weekly"


def test_what_a_service_keeps_stands_beside_its_ledger_from_wherever_it_is_started(tmp_path, monkeypatch):
    """Limits of the console and keys of visits are in one place, whether the policy's path is relative or not."""
    read(tmp_path, POLICY)
    monkeypatch.chdir(tmp_path.parent)
    for path in (tmp_path, Path(tmp_path.name)):
        policy = Policy.read(path / "policy.toml")
        assert policy.limits_file.absolute() == tmp_path / "people.ledger.limits"
        assert policy.visits.absolute() == tmp_path / "people.ledger.visits"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("share = 0.5", "share = 1.5", "limits.share must be a number above 0, and at most 1"),
        ("share = 0.5", "share = nan", "limits.share must be"),
        ("share = 0.5", "share = true", "limits.share must be"),
        ("cells = 100", "cells = 0", "limits.cells must be a whole number from 1 to 1000000"),
        ("rho = 1.0", "rhoo = 1.0", "rhoo is not known; known are"),
        ("[holders.steward]", "[holder]", "holder is not known; known are .*; did you mean `holders`"),
        ('"backup"]', '"admin"]', "holders.steward.may.5 must be one of 'metrics', 'console'"),
        (
            'may = ["metrics", "console", "statements", "verify", "policy", "backup"]',
            "",
            "holders.steward.may is missing",
        ),
        ("cells = 100", "cell = 100", "limits.cell is not known; known are"),
        ("step = 0.02", "step = 0", "service.step must be"),
        ("step = 0.02", "steps = 1", "service.steps is not known"),
        ("port = 0", "port = 65536", "service.port must be"),
        ("[analysts.bob]", "[analysts.Bob]", "names that differ by case or spelling"),
        ("[analysts.bob]", '[analysts."b/o"]', "must be called by 1 to 40 of"),
        ("low = 0, high = 24", "low = 24, high = 0", "columns.hours must have both low and high"),
        ("low = 0, high = 24", "low = 0", "columns.hours must have both low and high"),
        ('keys = ["FR", "ES"]', "keys = []", "columns.country.keys must be a list of 1 to"),
        ('keys = ["FR", "ES"]', 'keys = ["FR", "FR"]', "columns.country.keys must be keys that differ"),
        ("expires = 2020-01-01", 'expires = "2020"', "analysts.old.expires must be a date"),
        ("rho = 1.0", "rho = -1.0", "rho must be"),
        ("rho = 1.0", "", "rho"),
        ("rho = 1.0", "rho = 1.0\nbudgets = 1", "budgets is not known"),
        ('data = "MARKER-visits.csv"', "", "tables.visits.data is missing"),
        (
            'types = { hours = "number", day = "date" }',
            "",
            "tables.visits.types must be given: without it one",
        ),
        (
            "[holders.steward]",
            "[sharing]\nanalysts = ['carl']\n[holders.steward]",
            "must be a list of analysts of this file",
        ),
        ("[holders.steward]", "[watch]\npeople = 3\n[holders.steward]", "watch must have people or mass, and epsilon"),
        ("[holders.steward]", "[usual]\nask = 'cunt'\n[holders.steward]", "usual: ask must be one of"),
        (
            "[holders.steward]",
            "[usual]\nask = 'count'\nclip = 3\nerror = 5\n[holders.steward]",
            "usual must have a price",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_with_its_key(tmp_path, old, new, message):
    """Each error names the key of the file and the rule; it quotes no value, which may be a secret."""
    with pytest.raises(ArgumentError, match=message):
        read(tmp_path, changed(old, new))


def test_no_error_shows_a_secret(tmp_path):
    """Neither a token that was put where its hash belongs, nor a password, is in an error or a repr."""
    secret = TOKENS["ann"]
    line = next(line for line in POLICY.splitlines() if line.startswith("token"))
    for place in ("ann", "holder"):
        text = POLICY.replace(f"[{'analysts.' if place == 'ann' else ''}{place}]\n{line}", f"[x{place}]")
        head = "[analysts.ann]" if place == "ann" else "[holders.steward]"
        start = POLICY.index(head)
        text = POLICY[:start] + POLICY[start:].replace("sha256:", f"{secret}:", 1)
        with pytest.raises(ArgumentError, match="token must be what") as refused:
            read(tmp_path, text)
        assert secret not in str(refused.value)
    with pytest.raises(DataError) as refused:
        read(tmp_path, POLICY + f"\ntoken = {secret}")
    assert secret not in str(refused.value)
    policy = read(tmp_path, changed('"people.ledger"', '"postgresql://user:hunter2@db.example/x"'))
    assert "hunter2" not in repr(policy)
    assert "sha256" not in repr(policy)


def test_two_analysts_with_one_token_are_refused(tmp_path):
    """A token names one analyst."""
    lines = POLICY.splitlines()
    tokens = [line for line in lines if line.startswith("token")]
    with pytest.raises(ArgumentError, match=r"analysts\.bob\.token must be of bob alone"):
        read(tmp_path, POLICY.replace(tokens[1], tokens[0]))


def test_the_data_holder_s_token_is_no_analyst_s(tmp_path):
    """An analyst's token does not open the data holder's door: such a policy is refused, and shows no hash."""
    text = POLICY.replace(hash_of(TOKENS["holder"]), hash_of(TOKENS["ann"]))
    with pytest.raises(ArgumentError, match=r"holders.steward.token must be of steward alone") as refused:
        Policy.read(service_folder(tmp_path, text) / "policy.toml")
    assert hash_of(TOKENS["ann"]) not in str(refused.value)


def test_the_policy_is_explained_and_a_usual_question_priced(tmp_path):
    """`--check` says who may do what, what a usual question costs and how many fit, and makes no ledger."""
    folder = service_folder(tmp_path)
    usual = '[usual]\nask = "people"\nrho = 0.01\n'
    text = "\n".join(explain(read(folder, POLICY + usual)))
    assert "ann may spend 0.5 of each person's budget for 'weekly'" in text
    assert "old may spend 0.5 of each person's budget, until 2020-01-01 (the token has expired)" in text
    assert "use no columns but country (text, 2 keys), hours (number, 0 to 24), day (date)" in text
    assert "costs 0.01 of a budget" in text
    assert "100 of them certainly fit a fresh budget, and 100 what is left now" in text
    assert "bob alone: 50 of them." in text
    assert "The analysts' limits add up to 1.5 budgets" in text
    assert not (folder / "people.ledger").exists()


def test_a_policy_with_periods_is_explained_with_what_all_of_them_promise(tmp_path):
    """A month's budget is not all that a person may lose: the sum over the months is told beside it."""
    periods = '[periods]\ncolumn = "day"\nevery = "month"\nfirst = 2026-01-01\nlast = 2026-12-31\n[tables.visits]'
    text = "\n".join(explain(read(service_folder(tmp_path), changed("[tables.visits]", periods))))
    assert re.search(r"\(rho = 1\) in each month, and in all of them epsilon [1-9]\d\d", text)


def test_entries_that_do_not_fit_their_type_are_told_to_the_holder(tmp_path):
    """`--check` says how many dates are in another format, marked as private, and quotes none of them."""
    folder = service_folder(tmp_path)
    assert not any("count as missing" in line for line in explain(read(folder, POLICY)))
    path = next(folder.glob("*visits.csv"))
    path.write_text(path.read_text(encoding="utf-8").replace("2026-01-05", "5.1.2026"), encoding="utf-8")
    (told,) = [line for line in explain(read(folder, POLICY)) if "count as missing" in line]
    assert told.startswith(
        "private: for the data holder: column 'day' of table 'visits': 11 of 300 entries are no 'date'"
    )
    assert "5.1.2026" not in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ('["FR", "ES"]', "[1, 2]", "columns.country: 1 cannot be compared with a column of kind text"),
        ("day = {}", "day = { low = 0, high = 9 }", "columns.day: "),
        ("day = {}", "day = { keys = ['5.1.2026'] }", "columns.day: '5.1.2026' cannot be compared"),
        ("hours = { low = 0, high = 24", "hours = { keys = ['long']", "columns.hours: "),
    ],
)
def test_keys_and_bounds_fit_the_types_of_their_columns(tmp_path, right, wrong, words):
    """A policy whose keys or bounds no question could use is refused when it is checked, and makes no ledger."""
    policy = read(service_folder(tmp_path), POLICY.replace(right, wrong))
    for refuses in (explain, partial(opened, create=True)):
        with pytest.raises(ArgumentError, match=words):
            refuses(policy)
    assert not list(tmp_path.glob("people*"))


def test_a_usual_question_below_the_least_price_is_told(tmp_path):
    """A usual question that nobody may ask is named when the policy is checked."""
    folder = service_folder(tmp_path)
    usual = '[usual]\nask = "people"\nrho = 0.00005\n'
    assert any("ann may not ask it" in line for line in explain(read(folder, POLICY + usual)))


def test_a_column_that_is_not_there_is_refused(tmp_path):
    """A column that the policy lists must be in the table."""
    folder = service_folder(tmp_path)
    with pytest.raises(ArgumentError, match="columns: table 'visits' has no column 'dai'"):
        explain(read(folder, changed("day = {}", "dai = {}")))


@pytest.mark.slow
def test_limits_and_the_watch_are_put_into_the_ledger_once(tmp_path):
    """Opening a service again records nothing new; a changed limit is recorded, another watch is refused."""
    watched = POLICY + "[watch]\npeople = 5\nepsilon = 0.1\n"
    folder = service_folder(tmp_path, watched)
    for _ in range(2):
        with service(folder) as running:
            entries = running.api.session.ledger.entries("limited", "watched")
            assert [entry.kind for entry in entries] == ["watched"] + ["limited"] * 3
    with service(folder, lambda text: text.replace("share = 0.5", "share = 0.25")) as running:
        assert len(running.api.session.ledger.entries("limited")) == 6
        assert running.ann.get("/v1/me").json()["left"]["share"] == pytest.approx(0.25)
    with (
        pytest.raises(ArgumentError, match="watched otherwise"),
        service(folder, lambda t: t.replace("0.1\n", "0.2\n")),
    ):
        pass


@pytest.mark.slow
def test_the_policy_of_the_page_serves(tmp_path):
    """The policy and the question that docs/service.md shows work as they stand, for both of its analysts."""
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    for number, name in enumerate(("ann", "bob", "holder"), start=1):
        shown = changed(f"sha256:{str(number) * 64}", hash_of(TOKENS[name]), shown)
    shown = f"{shown}[service]\nstep = 0.01\n"
    lines = [f"{row % 90},{('FR', 'ES', 'DE')[row % 3]},{row % 24},x" for row in range(900)]
    (tmp_path / "visits.csv").write_text("\n".join(["customer,country,hours,diagnosis", *lines]) + "\n")
    assert any("ann alone" in line for line in explain(read(tmp_path, shown)))
    questions = {json.loads(text) and text for text in re.findall(r"-d '(\{.*?\})'", page)}
    (question,) = questions
    with service(tmp_path) as running:
        asked = running.ann.ask("monday", json.loads(question))
        assert asked.status_code == 201
        again = running.bob.ask("tuesday", json.loads(question)).json()
        assert (again["share"], again["values"]) == (0, asked.json()["values"])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ledger = = 'MARKER'", "line 1, column 10"),
        ("a = 1\nledger = 'MARKER", r"line 2, column \d+|end of document"),
    ],
)
def test_what_is_no_toml_is_refused_with_its_place_and_no_text(tmp_path, text, place):
    """A syntax error is told with line and column, and none of the file's words, which may be passwords."""
    with pytest.raises(DataError, match=f"is not a TOML file: look at ({place})") as refused:
        read(tmp_path, text)
    assert "MARKER" not in str(refused.value)


def test_a_policy_in_another_encoding_is_refused(tmp_path):
    """A file in UTF-16 is told to be UTF-8."""
    (tmp_path / "policy.toml").write_bytes(POLICY.encode("utf-16"))
    with pytest.raises(DataError, match="its text must be in UTF-8"):
        Policy.read(tmp_path / "policy.toml")


def test_both_ports_are_not_the_same(tmp_path):
    """One port of one host for analysts and holder is refused, before either is opened."""
    text = changed("holder_port = 0", "holder_port = 8090", changed("\nport = 0", "\nport = 8090"))
    with pytest.raises(ArgumentError, match=r"service\.holder_port must differ from the port of analysts"):
        read(tmp_path, text)
    other = changed("holder_port = 8090", 'holder_port = 8090\nholder_host = "::1"', text)
    assert read(tmp_path, other).file.service.port == 8090


def test_statements_and_several_aggregates_take_keys_and_bounds_of_the_policy(tmp_path):
    """Over HTTP a statement needs neither where the policy says them; a refusal quotes no word of it."""
    with service(service_folder(tmp_path)) as running:
        statement = {"ask": "sql", "sql": "SELECT country, avg(hours) AS mean FROM visits GROUP BY country"}
        told = running.ann.ask("sql", {**statement, "clip": 5, "sigma": 60})
        assert told.status_code == 201, told.text
        assert told.json()["groups"] == [["FR"], ["ES"]]
        steps = "SELECT avg(hours) FROM (SELECT customer, sum(hours) AS hours FROM visits GROUP BY customer)"
        told = running.ann.ask("steps", {"ask": "sql", "sql": steps, "sigma": 60})  # those bounds are of a visit
        assert (told.status_code, "bounds" in told.text) == (422, True)
        hours = {"ask": "several", "aggregates": {"mean": {"ask": "mean", "column": "hours"}}}
        assert running.ann.ask("several", {**hours, "by": "country", "sigma": 60}).status_code == 201
        refused = running.ann.ask("no", {"ask": "sql", "sql": "SELECT MARKERED(hours) FROM visits", "sigma": 60})
        assert refused.status_code == 422
        assert "MARKERED" not in refused.text


def test_statements_and_questions_go_along_a_path_to_the_person(tmp_path):
    """Lines belong to whoever their visit belongs to; no statement reads a column that the policy leaves out.

    Keys and bounds that it leaves out are those of the policy, of each of its tables.
    """
    folder = service_folder(tmp_path)
    lines = ["visit,price,margin", *(f"{row},{row % 9},{MARKER}" for row in range(320))]
    (folder / "lines.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    visits = (folder / f"{MARKER}-visits.csv").read_text(encoding="utf-8").splitlines()
    numbered = [f"{'id' if place == 0 else place - 1},{line}" for place, line in enumerate(visits)]
    (folder / f"{MARKER}-visits.csv").write_text("\n".join(numbered) + "\n", encoding="utf-8")
    more = """
[tables.lines]
data = "lines.csv"
person = "visit -> visits.id"
types = { visit = "whole", price = "number" }
[tables.lines.columns.price]
low = 0
high = 8
[tables.lines.columns.visit]
[tables.visits.columns.id]
"""
    policy = changed("types = {", 'types = { id = "whole",')
    (folder / "policy.toml").write_text(policy + more, encoding="utf-8")
    with service(folder) as running:
        joined = "FROM lines JOIN visits ON lines.visit = visits.id"
        asked = {"ask": "sql", "clip": 5, "sigma": 60}
        listed = "country, avg(price) AS p, avg(hours) AS h"
        told = running.ann.ask("a", {**asked, "sql": f"SELECT {listed} {joined} GROUP BY country"})
        assert told.status_code == 201, told.text
        assert told.json()["groups"] == [["FR"], ["ES"]]
        rolled = {**asked, "sql": f"SELECT country, count(*) {joined} GROUP BY ROLLUP (country)"}
        assert running.ann.ask("rolled", rolled).json()["groups"] == [[None], ["FR"], ["ES"]]
        several = {"ask": "several", "table": "lines", "by": "visits.country", "clip": 5, "sigma": 60}
        means = {"h": {"ask": "mean", "column": "visits.hours"}, "p": {"ask": "sum", "column": "price"}}
        told = running.ann.ask("both", {**several, "aggregates": means})
        assert told.status_code == 201, told.text
        each = f"(SELECT customer, sum(price) AS price, count(*) AS n {joined} GROUP BY customer)"
        statement = {"ask": "sql", "sql": f"SELECT avg(price) FROM {each} WHERE n > 3", "sigma": 60}
        unbounded = running.ann.ask("b", statement)
        assert (unbounded.status_code, "bounds" in unbounded.text) == (422, True)
        told = running.ann.ask("b", {**statement, "bounds": {"price": [0, 99]}})
        assert told.status_code == 201, told.text
        plain = {"ask": "count", "table": "lines", "where": "visits.country = 'FR'", "clip": 5, "sigma": 60}
        assert running.ann.ask("c", plain).status_code == 201
        for wrong in (f"SELECT count(margin) {joined}", f"SELECT count(diagnosis) {joined}", "SELECT * FROM lines"):
            refused = running.ann.ask("d", {**asked, "sql": wrong})
            assert refused.status_code == 422, refused.text
        assert not any(MARKER in seen for seen in running.ann.seen)

"""Limits that a holder changes on the console: checked as a policy is, in force at once, and kept."""

import json
import re
import time
from threading import Thread

import pytest

from almoner.errors import AlmonerError
from almoner.service import explain, opened
from almoner.service._holder_api import CHANGE
from almoner.service.policies import Limits, Policy
from page_reader import Reader
from services import TOKENS, Door, Service, service_folder


class Running(Service):
    """A service with a log, whose policy is read again as SIGHUP does."""

    def __init__(self, folder):
        super().__init__(folder, lambda text: text if "log =" in text else f'log = "log.jsonl"\n{text}')
        self.folder, self.console = folder, Door(self.service.holder)
        self.console.post("/login", data={"token": TOKENS["holder"]})

    def change(self, **fields):
        form = Reader(self.console.get("/").text).forms["/limits"]
        return self.console.post("/limits", data={**form, "analyst": "ann", **fields})

    def again(self):
        return self.api.change_policy(Policy.read(self.folder / "policy.toml"))

    def share(self):
        return self.ann.get("/v1/me").json()["limits"]["share"]


@pytest.fixture
def running(tmp_path):
    made = Running(service_folder(tmp_path))
    yield made
    made.service.close()


def test_a_limit_holds_at_once_and_after_a_restart(tmp_path):
    """It is in force for the next question, and for the next service; the trail says who changed what."""
    made = Running(service_folder(tmp_path))
    assert made.change(share="0.01", questions="7").status_code == 303
    assert (made.share(), made.ann.get("/v1/me").json()["limits"]["questions"]) == (0.01, 7)
    assert made.ann.ask("much", {"ask": "people", "rho": 0.02}).json()["code"] == "budget"
    assert made.bob.get("/v1/me").json()["limits"]["share"] == 0.5
    assert made.again() == []  # reading the file again loses nothing
    assert made.share() == 0.01
    made.service.close()
    made = Running(tmp_path)
    assert made.share() == 0.01
    made.service.close()
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    (told,) = [line for line in lines if line["did"] == "the policy was changed"]
    assert (told["who"], told["limits"]) == ("steward", {"share": 0.01, "questions": 7})
    assert told["lines"] == ["analysts.ann.questions", "analysts.ann.share"]
    said = "\n".join(explain(Policy.read(tmp_path / "policy.toml")))
    assert "analysts.ann.share was changed on the console, from 0.5 to 0.01" in said
    assert (tmp_path / "people.ledger.limits").stat().st_mode & 0o777 == 0o600


def test_a_change_that_the_file_replaced_never_comes_back(running, tmp_path):
    """Also where the line becomes again what it was, what was changed on the console before does not hold."""
    policy = tmp_path / "policy.toml"
    text = policy.read_text()
    running.change(share="0.4")
    policy.write_text(text.replace("share = 0.5", "share = 0.1"))
    running.again()
    policy.write_text(text.replace("share = 0.5", "share = 0.5  # as it was"))
    running.again()
    assert running.share() == 0.5
    running.change(share="0.3")
    assert (running.share(), running.again(), running.share()) == (0.3, [], 0.3)


def test_two_changes_at_once_both_hold(running):
    """A change that waits for another begins with what that one left."""
    with CHANGE:
        waiting = Thread(target=lambda: running.change(share="0.2"))
        waiting.start()
        time.sleep(0.5)
        changed = running.api.policy.with_limits({"bob": {"share": [0.5, 0.3]}})
        running.api.change_policy(changed)
        changed.keep_limits()
    waiting.join()
    assert running.share() == 0.2
    assert running.bob.get("/v1/me").json()["limits"]["share"] == 0.3


def test_changes_of_services_that_share_a_file_all_hold(running, tmp_path):
    """A change on one console keeps what another service's console changed, and takes it over."""
    Policy.read(tmp_path / "policy.toml").with_limits({"bob": {"share": [0.5, 0.3]}}).keep_limits()
    running.change(share="0.2")
    assert (running.share(), running.bob.get("/v1/me").json()["limits"]["share"]) == (0.2, 0.3)
    read = Policy.read(tmp_path / "policy.toml").analysts
    assert [read[name].limits.share for name in ("ann", "bob")] == [0.2, 0.3]


def test_policies_of_other_ledgers_have_other_files(tmp_path):
    """Of two policies in a folder, with ledgers on servers, neither takes the other's limits, whatever the password."""
    text, names = (service_folder(tmp_path) / "policy.toml").read_text(encoding="utf-8"), []
    schemas = ["ann:one@db/people?password=x&schema=a", "db/people?schema=b"]
    others = ["db:5433/people", "db/other", "db2/people", "a%2Fb/../x", *schemas]
    for server in ("ann:one@db/people", "ann:two@db/people", *others):
        (tmp_path / "other.toml").write_text(text.replace("people.ledger", f"postgresql://{server}"), encoding="utf-8")
        read = Policy.read(tmp_path / "other.toml")
        assert (read.limits_file.parent, read.analysts["ann"].limits.share) in {(tmp_path, 0.5), (tmp_path, 0.9)}
        names.append((read.limits_file.name, read.analysts["ann"].limits.share))
        read.with_limits({"ann": {"share": [0.5, 0.9]}}).keep_limits()
    assert names[:2] == [("db-people.limits", 0.5), ("db-people.limits", 0.9)]
    assert len({name for name, _ in names}) == 1 + len(others)
    assert not any("password" in name for name, _ in names)
    assert {share for _, share in names[2:]} == {0.5}


def test_a_line_of_the_file_that_is_changed_later_holds(running, tmp_path):
    """Whichever was said last holds, and what does not hold any more is named in the log and by --check."""
    running.change(share="0.2")
    running.change(share="0.3", seconds="5")
    policy = tmp_path / "policy.toml"
    policy.write_text(policy.read_text().replace("share = 0.5", "share = 0.1"))
    assert "analysts.ann.share" in running.again()
    limits = running.ann.get("/v1/me").json()["limits"]
    assert (limits["share"], limits["seconds"]) == (0.1, 5)
    assert (
        "analysts.ann.share was changed on the console, and in the policy since" in (tmp_path / "log.jsonl").read_text()
    )
    assert Policy.read(policy).stale == ("analysts.ann.share",)
    policy.write_text(policy.read_text().replace("[analysts.ann]", "[analysts.eve]"))
    assert set(Policy.read(policy).stale) == {"analysts.ann.share", "analysts.ann.seconds"}  # who left stays away


@pytest.mark.parametrize(
    "fields",
    [{"share": "1.5"}, {"share": "nan"}, {"share": "x"}, {"share": "-1"}, {"questions": "1.5"}, {"cells": "0"},
     {"analyst": "nobody", "share": "0.1"}, {"analyst": "../x", "share": "0.1"}, {"requests": "1e400"}],
)  # fmt: skip
def test_what_a_policy_may_not_say_is_refused(running, tmp_path, fields):
    """Nothing is changed or kept; the holder is told the rule."""
    before = running.api.policy
    told = running.change(**fields)
    assert told.status_code == 422
    assert "must be" in Reader(told.text).text
    assert running.api.policy is before
    assert not (tmp_path / "people.ledger.limits").exists()


def test_it_needs_the_right_and_a_form_of_the_visit(tmp_path):
    """A holder without the right sees no form, and is refused; so are an analyst, a stranger, and a false form."""
    folder = service_folder(tmp_path)
    policy = folder / "policy.toml"
    policy.write_text(policy.read_text().replace('"verify", "policy"', '"verify"'))
    made = Running(folder)
    try:
        page = Reader(made.console.get("/").text)
        assert "/limits" not in page.forms
        form = page.forms["/verify"]["form"]
        fields = {"analyst": "ann", "share": "0.9"}
        assert made.console.post("/limits", data={"form": form, **fields}).status_code == 403
        assert made.console.post("/limits", data={"form": "x", **fields}).status_code == 403
        assert Door(made.service.holder).post("/limits", data=fields).headers["location"] == "./login"
        assert made.ann.post("/limits", data=fields).status_code == 404
        assert made.share() == 0.5
    finally:
        made.service.close()


def test_a_change_that_cannot_be_kept_is_not_made(running, monkeypatch):
    """Where the file cannot be written, the limit stays as it was, and the holder is told."""

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("almoner.service.policies.whole_file", full)
    told = running.change(share="0.2")
    assert (told.status_code, running.share()) == (422, 0.5)
    assert "cannot be written" in told.text


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"ann": 1}', '{"ann": {"share": 1}}', '{"ann": {"other": [1, 2]}}', '{"ann": {"share": [0.5, 7]}}'],
)
def test_a_damaged_file_is_refused(running, tmp_path, text):
    """A service does not start with limits that it cannot read, and says which file it is."""
    (tmp_path / "people.ledger.limits").write_text(text)
    with pytest.raises(AlmonerError, match=r"people.ledger.limits|analysts.ann.share"):
        opened(Policy.read(tmp_path / "policy.toml"))


def test_the_form_has_a_field_for_each_limit_and_no_other(tmp_path):
    """The console asks for the analyst and the limits of a policy, by the names that its lines have."""
    made = Running(service_folder(tmp_path))
    try:
        (form,) = re.findall(r'<form[^>]*action="\./limits".*?</form>', made.console.get("/").text, re.S)
    finally:
        made.service.close()
    assert set(re.findall(r' name="(\w+)"', form)) == {"form", "analyst", *Limits.model_fields}

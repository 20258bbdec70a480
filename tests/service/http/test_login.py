"""Visits to the pages: signed cookies that go on after a restart and at other services, and end on leaving."""

import os
import time

import pytest
from itsdangerous import TimestampSigner, URLSafeTimedSerializer
from starlette.testclient import TestClient

from almoner.errors import ArgumentError
from almoner.service import hash_of
from almoner.service._analyst_api import Rates
from page_reader import Reader
from services import POLICY, TOKENS, Door, service, service_folder

COOKIE = "analyst_session"


def cookie_of(running, name="ann"):
    """The cookie of a new visit."""
    door = running.door()
    door.post("/login", data={"token": TOKENS[name]})
    return door.cookies[COOKIE]


def opens(running, cookie, door=None):
    """True if a cookie opens the page of analysts, or of another door."""
    page = Door(door or running.service.analysts).get("/", headers={"cookie": f"{COOKIE}={cookie}"})
    assert page.status_code in (200, 303)
    return page.status_code == 200


@pytest.fixture
def folder(tmp_path):
    return service_folder(tmp_path)


def test_visits_go_on_after_a_restart(folder):
    """The cookie opens the page and sends forms of before the restart; who left before it is not let in again."""
    with service(folder) as first:
        kept, left = Door(first.service.analysts), Door(first.service.analysts)
        for door in (kept, left):
            door.post("/login", data={"token": TOKENS["ann"]})
        forms, gone = Reader(kept.get("/").text).forms, left.cookies[COOKIE]
        assert left.post("/logout", data=Reader(left.get("/").text).forms["/logout"]).status_code == 303
        assert not opens(first, gone)
        assert opens(first, kept.cookies[COOKIE])
    with service(folder) as second:
        assert opens(second, kept.cookies[COOKIE])
        assert not opens(second, gone)
        again = Door(second.service.analysts)
        again.cookies.set(COOKIE, kept.cookies[COOKIE])
        assert again.post("/logout", data={"form": "x"}).status_code == 403
        assert again.post("/logout", data={**forms["/logout"]}).status_code == 303
        assert not opens(second, kept.cookies[COOKIE])


def test_services_that_share_the_folder_share_visits(tmp_path):
    """A visit of one opens the other and ends at both; a service with another folder does not know it."""
    places = [tmp_path / name for name in ("one", "two", "three")]
    shared = f'step = 0.02\nvisits = "{tmp_path / "visits"}"'
    for place in places:
        place.mkdir()
        service_folder(place, POLICY.replace("step = 0.02", shared) if place.name != "three" else POLICY)
    with service(places[0]) as one, service(places[1]) as two, service(places[2]) as three:
        door = one.door()
        door.post("/login", data={"token": TOKENS["ann"]})
        cookie = door.cookies[COOKIE]
        assert opens(two, cookie)
        assert not opens(three, cookie)
        door.post("/logout", data=Reader(door.get("/").text).forms["/logout"])
        assert not opens(one, cookie)
        assert not opens(two, cookie)


def test_a_cookie_holds_nothing_secret_and_cannot_be_made(folder):
    """It names the analyst and no token, hash or word of forms; changed, old and other doors' cookies open nothing."""
    with service(folder) as running:
        cookie = cookie_of(running)
        told = URLSafeTimedSerializer("no key").loads_unsafe(cookie)[1]
        name, *_ = told
        assert name == "ann"
        word = Reader(running.door().get("/", headers={"cookie": f"{COOKIE}={cookie}"}).text).forms["/logout"]["form"]
        keys = (running.api.policy.visits / "keys").read_text().split()
        for secret in (TOKENS["ann"], hash_of(TOKENS["ann"]), hash_of(TOKENS["ann"])[7:], word, *keys):
            assert secret not in f"{told} {cookie}"
        bobs = URLSafeTimedSerializer("no key", salt=f"{COOKIE} cookie").dumps(["bob", *told[1:]])
        payload, signed = cookie.rsplit(".", 2)[0], cookie.rsplit(".", 2)[1:]
        mixed = ".".join([bobs.rsplit(".", 2)[0], *signed])
        changed = f"{cookie[:-3]}{'B' if cookie[-3] == 'A' else 'A'}{cookie[-2:]}"  # swapcase would leave digits
        for made in (bobs, mixed, changed, payload, "", "..", f"{cookie}.x"):
            assert not opens(running, made)
        holder = Door(running.service.holder)
        holder.post("/login", data={"token": TOKENS["holder"]})
        assert not opens(running, holder.cookies["holder_session"])
        as_holder = Door(running.service.holder).get("/", headers={"cookie": f"holder_session={cookie}"})
        assert as_holder.status_code == 303


def test_visits_end_after_eight_hours(folder, monkeypatch):
    """So does the list of those that were ended, which lies in files without contents."""
    with service(folder) as running:
        place = running.api.policy.visits
        with monkeypatch.context() as patch:
            patch.setattr(TimestampSigner, "get_timestamp", lambda _: int(time.time()) - 8 * 3600 + 60)
            young = cookie_of(running)
            patch.setattr(TimestampSigner, "get_timestamp", lambda _: int(time.time()) - 8 * 3600 - 1)
            old = cookie_of(running)
        assert opens(running, young)
        assert not opens(running, old)
        (place / ("0" * 32)).touch()
        (place / ("1" * 32)).touch()
        os.utime(place / ("0" * 32), (0, time.time() - 8 * 3600 - 1))
        door = running.door()
        door.cookies.set(COOKIE, young)
        door.post("/logout", data=Reader(door.get("/").text).forms["/logout"])
        ended = sorted(path.name for path in place.iterdir() if path.name != "keys")
        assert len(ended) == 2
        assert "1" * 32 in ended
        assert all((place / name).stat().st_size == 0 for name in ended)


def test_the_keys_are_the_owners_alone_and_can_be_replaced(folder):
    """A line that is added signs from then on, and the visits of the lines before go on until these are removed."""
    with service(folder) as running:
        keys = running.api.policy.visits / "keys"
        assert keys.parent == folder / "people.ledger.visits"
        assert (keys.parent.stat().st_mode & 0o777, keys.stat().st_mode & 0o777) == (0o700, 0o600)
        before = cookie_of(running)
    first, second = keys.read_text(), "ab" * 32 + "\n"
    keys.write_text(first + second)
    with service(folder) as running:
        assert opens(running, before)
        after = cookie_of(running)
    keys.write_text(second)
    with service(folder) as running:
        assert not opens(running, before)
        assert opens(running, after)
    keys.unlink()
    with service(folder) as running:
        assert not opens(running, after)
        assert keys.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "keys' must hold 64 hexadecimal digits"), ("a" * 63, "must hold"), ("\xff" * 64, "must hold")],
)
def test_keys_that_are_none_are_refused(folder, text, told):
    """Half a key, or none: the file is named, and not what it holds."""
    place = folder / "people.ledger.visits"
    place.mkdir()
    (place / "keys").write_bytes(text.encode("latin-1"))
    with pytest.raises(ArgumentError, match=told.replace("'", "")) as refused, service(folder):
        pass
    assert "aaa" not in str(refused.value)


def test_logins_of_one_address_are_limited(folder, monkeypatch):
    """After 30 in a minute, of good and bad tokens, none is let in and the page says when; other addresses may."""
    wait = Rates.wait
    monkeypatch.setattr(Rates, "wait", lambda self, whose, a_minute: wait(self, whose, a_minute, now=0.0))  # no time
    with service(folder) as running:
        for application, name in ((running.service.analysts, "ann"), (running.service.holder, "holder")):
            door, other = Door(application), TestClient(application, client=("10.0.0.2", 1), follow_redirects=False)
            tried = [
                door.post("/login", data={"token": "token_bad" if place % 2 else TOKENS[name]}) for place in range(33)
            ]
            assert {each.status_code for each in tried[:30]} == {303, 401}
            assert [each.status_code for each in tried[30:]] == [429] * 3
            assert 1 <= int(tried[-1].headers["retry-after"]) <= 2
            assert "Too many logins" in tried[-1].text
            assert other.post("/login", data={"token": TOKENS[name]}).status_code == 303
            assert running.api.metrics.total("refusals", code="rate") >= 3
            running.api.logins = Rates()


def test_a_folder_that_cannot_be_used_is_refused(folder):
    """With the line that says where another one is."""
    (folder / "people.ledger.visits").write_text("no folder")
    with pytest.raises(ArgumentError, match=r'cannot be used: .*\[service\] visits = "/a/folder"'), service(folder):
        pass

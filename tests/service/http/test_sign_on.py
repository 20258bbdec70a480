"""Single sign-on: an issuer of OpenID Connect says who visits; what it did not say for this login lets nobody in."""

import asyncio
import json
import time
import tomllib
from pathlib import Path

import pytest
from joserfc.jwk import KeySet

from almoner.errors import ArgumentError
from almoner.service import explain
from almoner.service._analyst_api import Rates
from almoner.service._bodies import Refused
from almoner.service._http.sign_on import SignOn
from almoner.service.policies import Policy, SignOnPart
from issuer import curve_key, issuer, other_key, secret_of_public_key
from services import POLICY, TOKENS, service, service_folder

PAGES = "http://127.0.0.1:9"


@pytest.fixture
def at():
    """An issuer that runs."""
    with issuer() as made:
        yield made


@pytest.fixture
def opened(tmp_path, at):
    """A service whose policy has the issuer; ann and steward come in by it."""
    with service(service_folder(tmp_path, policy(at))) as made:
        yield made


def policy(at, more=""):
    """The policy, with the issuer's lines."""
    lines = f'[oidc]\nissuer = "{at.address}"\nclient = "almoner"\n{more}\n'
    lines += f'address = "{PAGES}/stats"\nholder_address = "{PAGES}/console"\n\n'
    text = POLICY.replace('purpose = "weekly"', 'purpose = "weekly"\nlogin = "ann-at-issuer"')
    return text.replace("[holders.steward]", '[holders.steward]\nlogin = "ann-at-issuer"').replace(
        "[limits]", f"{lines}[limits]"
    )


def sent_away(door):
    """The issuer's address to which a browser is sent from the login page."""
    response = door.get("/signin")
    assert response.status_code == 303
    return response.headers["location"]


def come_back(door, at, **other):
    """A browser goes to the issuer and back."""
    return door.get("/signed-in", params={**at.code(sent_away(door)), **other})


def inside(door):
    """True if the browser is shown its own page."""
    return door.get("/").status_code == 200


def test_the_issuer_lets_in(opened, at):
    """Who logs in at the issuer has the page of the analyst with that login; the door of the holder, theirs."""
    door = opened.door()
    assert "single sign-on" in door.get("/login").text
    back = come_back(door, at)
    assert back.status_code == 200
    assert "You are ann" in back.text
    assert back.headers["refresh"] == "0; url=./"
    assert inside(door)
    console = type(door)(opened.service.holder)
    assert "You are steward" in come_back(console, at).text
    assert "Console" in console.get("/").text
    assert all("ann-at-issuer" not in seen.partition("{")[2] for seen in door.seen)


def test_a_token_lets_in_as_before(opened, at):
    """Tokens go on beside single sign-on, and while the issuer is away."""
    at.broken = 500, {}
    door = opened.door()
    assert door.post("/login", data={"token": TOKENS["ann"]}).status_code == 303
    assert inside(door)
    assert opened.ann.get("/v1/me").status_code == 200


WRONG = {
    "another issuer": {"iss": "https://evil.example"},
    "another client": {"aud": "other"},
    "no client": {"aud": None},
    "several clients, and it does not say for which": {"aud": ["almoner", "other"]},
    "made for another client": {"azp": "other"},
    "expired": {"exp": 1},
    "no end": {"exp": None},
    "an end that is no number": {"exp": "never"},
    "not yet": {"nbf": time.time() + 1e6},
    "another login": {"nonce": "other"},
    "no nonce": {"nonce": None},
    "nobody": {"sub": None},
    "many": {"sub": ["ann-at-issuer"]},
    "a stranger": {"sub": "eve"},
}


def test_wrong_claims_let_nobody_in(opened, at):
    """A token that is signed, but not for this client and this login, is refused."""
    for name, claims in WRONG.items():
        opened.api.logins = Rates()
        door, at.claims = opened.door(), claims
        assert come_back(door, at).status_code in (401, 403), name
        assert not inside(door), name
    door, at.claims = opened.door(), {}
    assert come_back(door, at).status_code == 200


def test_wrong_signatures_let_nobody_in(opened, at):
    """No signature, another key, the public key as a secret, and a key that is none of the issuer's are refused."""
    wrong = {"none": ("none", None), "key": ("RS256", other_key()), "secret": ("HS256", secret_of_public_key(at))}
    wrong["curve"] = ("ES256", curve_key())
    for name, (algorithm, signer) in wrong.items():
        door, at.algorithm, at.signer = opened.door(), algorithm, signer
        assert come_back(door, at).status_code == 401, name
        assert not inside(door), name


def test_a_new_key_of_the_issuer_is_asked_for(opened, at, monkeypatch):
    """After the issuer has changed its key people come in, but its keys are not asked for again and again."""
    assert come_back(opened.door(), at).status_code == 200
    at.key = curve_key()
    at.algorithm, at.header = "ES256", {"kid": "two"}
    assert come_back(opened.door(), at).status_code == 401  # within a minute
    monkeypatch.setattr("almoner.service._http.sign_on._AGAIN", 0.0)
    assert come_back(opened.door(), at).status_code == 200
    assert at.asked.count("/keys") == 2
    assert KeySet([at.key]).as_dict(private=False)


def test_keys_that_nobody_here_knows_are_left_out(opened, at):
    """Beside the one that signs, an issuer may have keys of other kinds; where it has no other, it cannot be used."""
    at.beside = [{"kty": "EC", "crv": "P-999", "x": "a", "y": "b"}, {"kty": "new"}, {"kty": "RSA"}, "no key", None]
    assert come_back(opened.door(), at).status_code == 200


def test_an_issuer_without_keys_cannot_be_used(opened, at):
    """Neither keys that nobody here knows, nor none, nor something else, let anybody in."""
    whole = at.page
    for keys in ([{"kty": "EC", "crv": "P-999", "x": "a", "y": "b"}], [], "keys", None):
        at.page = lambda path, form, keys=keys: (200, {"keys": keys}) if path == "/keys" else whole(path, form)
        door = opened.door()
        assert come_back(door, at).status_code == 503
        assert not inside(door)


def test_an_answer_counts_once_and_in_one_browser(opened, at):
    """Another browser, another login of the same browser, another state, and a code that was used are refused."""
    ann, eve = opened.door(), opened.door()
    brought = at.code(sent_away(ann))
    assert eve.get("/signed-in", params=brought).status_code == 401
    sent_away(eve)
    assert eve.get("/signed-in", params=brought).status_code == 401  # a login that somebody else began
    assert ann.get("/signed-in", params={**brought, "state": ""}).status_code == 401
    assert ann.get("/signed-in", params=brought).status_code == 200
    assert ann.get("/signed-in", params=brought).status_code == 401
    later = opened.door()
    state = at.code(sent_away(later))["state"]
    assert later.get("/signed-in", params={"code": brought["code"], "state": state}).status_code == 401
    refused = later.get("/signed-in", params={"error": "access_denied", "state": state})
    assert refused.status_code == 401


def test_an_answer_of_another_issuer_is_refused(opened, at):
    """An answer that names another issuer, or none where ours would name itself, is refused before its code is sent."""
    assert come_back(opened.door(), at, iss="https://evil.example").status_code == 401
    assert "/token" not in at.asked
    assert come_back(opened.door(), at, iss=at.address).status_code == 200


def test_an_issuer_that_names_itself_must_do_so(opened, at):
    """Where the issuer says that its answers name it, one that does not is refused."""
    at.more = {"authorization_response_iss_parameter_supported": True}
    assert come_back(opened.door(), at).status_code == 401


AWAY = {
    "an error": (500, {}),
    "no object": (200, []),
    "no JSON": (200, b"<html>"),
    "too long": (200, b" " * 2_000_000),
    "sent elsewhere": (302, b""),
    "another issuer": (200, {"issuer": "https://evil.example"}),
    "deep": (200, b"[" * 100_000),
}


def test_an_issuer_that_is_away_is_said(opened, at):
    """Where the issuer does not answer as it must, the login page says so, with 503, and offers the token."""
    for name, answer in AWAY.items():
        at.broken = answer
        response = opened.door().get("/signin")
        assert response.status_code == 503, name
        assert "does not answer as it must" in response.text
        assert 'name="token"' in response.text


UNSAFE = {
    "http": "http://evil.example/token",
    "a header more": "https://login.example/in\r\nset-cookie: a=b",
    "a space": " https://login.example/in",
    "a letter that no header has": "https://login.example/\u20ac",
    "half a letter": "https://login.example/\ud800",
    "no text": {},
}


@pytest.mark.parametrize("address", UNSAFE.values(), ids=UNSAFE)
@pytest.mark.parametrize("name", ["token_endpoint", "authorization_endpoint"])
def test_an_issuer_may_not_send_secrets_over_http(opened, at, name, address):
    """Addresses that the issuer tells must be safe ones, and of the letters that addresses have."""
    at.more = {name: address}
    assert opened.door().get("/signin").status_code == 503


@pytest.mark.parametrize("name", ["token_endpoint", "authorization_endpoint", "jwks_uri"])
def test_an_issuer_elsewhere_names_nothing_on_this_machine(monkeypatch, name):
    """Addresses by http are for an issuer of this machine alone: another one's would have us ask our neighbours."""
    issuer, found = "https://login.example", {"issuer": "https://login.example"}
    for each in ("token_endpoint", "authorization_endpoint", "jwks_uri"):
        found[each] = f"{issuer}/{each}"

    async def told(*_):
        return found

    monkeypatch.setattr(SignOn, "_fetch", told)
    assert asyncio.run(signing(issuer).begin())[0].startswith(f"{issuer}/auth")
    for local in ("http://127.0.0.1:9200/x", "HTTP://localhost/x"):
        found[name] = local
        with pytest.raises(Refused) as refused:
            asyncio.run(signing(issuer).begin())
        assert refused.value.code == "issuer"


def signing(issuer, **lines):
    """Sign-on at an issuer, with nothing around it."""
    return SignOn(SignOnPart(issuer=issuer, client="almoner", **lines), PAGES, None)


def test_a_claim_that_no_policy_could_have_lets_nobody_in():
    """Half a letter, or what cannot be seen, is refused as a claim that is missing is."""
    for told in ("\ud800", "ann\x00", "ann\u200b", "ann\n", ""):
        claims = {"iss": "https://a.example", "aud": "almoner", "nonce": "n", "exp": time.time() + 60, "sub": told}
        with pytest.raises(Refused, match="sign-on"):
            signing("https://a.example")._checked(claims, "n")


def test_an_issuer_is_not_waited_for_without_end(opened, at, monkeypatch):
    """One whose answer comes byte by byte is away after some seconds in all, and others are served meanwhile."""
    monkeypatch.setattr("almoner.service._http.sign_on._SECONDS", 0.5)
    at.drip = 0.05
    began = time.monotonic()
    assert opened.door().get("/signin").status_code == 503
    assert time.monotonic() - began < 4


def test_an_issuer_is_not_read_without_end(opened, at):
    """An answer longer than a megabyte is refused, also where it is right; a compressed one is not read at all."""
    at.more = {"padding": " " * 3_000_000}
    assert opened.door().get("/signin").status_code == 503
    at.more, at.squeezed = {}, True
    assert opened.door().get("/signin").status_code == 503
    at.squeezed = False
    assert opened.door().get("/signin").status_code == 303


def test_a_key_that_the_issuer_took_back_signs_nothing(opened, at, monkeypatch):
    """Within an hour a key that the issuer does not publish any more lets nobody in."""
    monkeypatch.setattr("almoner.service._http.sign_on._KNOWN", 1.0)
    assert come_back(opened.door(), at).status_code == 200
    at.signer, at.key = at.key, other_key()
    time.sleep(1.1)
    assert come_back(opened.door(), at).status_code == 401


def test_a_verified_email_counts(tmp_path, at):
    """An email lets in only where the issuer says that it is verified."""
    text = policy(at, 'claim = "email"')
    with service(service_folder(tmp_path, text)) as made:
        for verified, status in ((True, 200), (False, 401), (None, 401), ("true", 401)):
            at.claims = {"email": "ann-at-issuer", "email_verified": verified}
            assert come_back(made.door(), at).status_code == status


def test_a_visit_ends_with_its_line(tmp_path, at):
    """Who is taken out of the policy is out, though the cookie is still good; an expired line lets nobody in."""
    folder = service_folder(tmp_path, policy(at))
    with service(folder) as made:
        door = made.door()
        come_back(door, at)
        assert inside(door)
        file = folder / "policy.toml"
        file.write_text(file.read_text(encoding="utf-8").replace('login = "ann-at-issuer"\n\n', "\n"), encoding="utf-8")
        made.api.change_policy(Policy.read(file))
        assert not inside(door)
        assert come_back(made.door(), at).status_code == 403


def test_a_visit_ends_with_the_issuer_that_said_it(tmp_path, at):
    """Where the policy has another issuer or claim, whom the old one let in is out; who came by a token is not."""
    folder = service_folder(tmp_path, policy(at))
    file = folder / "policy.toml"
    text = file.read_text(encoding="utf-8")
    with service(folder) as made:
        by_token = made.door()
        by_token.post("/login", data={"token": TOKENS["ann"]})
        for change in (
            (f'issuer = "{at.address}"', 'issuer = "https://other.example"'),
            ('client = "', 'claim = "email"\nclient = "'),
        ):
            door = made.door()
            come_back(door, at)
            assert inside(door)
            file.write_text(text.replace(*change), encoding="utf-8")
            made.api.change_policy(Policy.read(file))
            assert not inside(door)
            assert inside(by_token)
            file.write_text(text, encoding="utf-8")
            made.api.change_policy(Policy.read(file))
            assert inside(door)  # the cookie's time is not over


def test_a_policy_says_that_sign_on_needs_https(tmp_path, at):
    """Where browsers come over https to log in, their cookies are for https alone only if the policy says so."""
    folder = service_folder(tmp_path, policy(at))
    said = "and set service.https = true"
    assert said in "\n".join(explain(Policy.read(folder / "policy.toml")))
    (folder / "policy.toml").write_text(policy(at).replace("[service]", "[service]\nhttps = true"), encoding="utf-8")
    assert said not in "\n".join(explain(Policy.read(folder / "policy.toml")))


def test_a_policy_that_cannot_be_signed_on_by_is_not_taken(tmp_path, at):
    """A policy whose secret is gone is refused when it is read again; the pages go on with the one before."""
    folder = service_folder(tmp_path, policy(at, 'secret = "oidc.secret"'))
    (folder / "oidc.secret").write_text("client-secret\n", encoding="utf-8")
    with service(folder) as made:
        assert come_back(made.door(), at).status_code == 200
        (folder / "oidc.secret").unlink()
        with pytest.raises(ArgumentError, match=r"oidc\.secret cannot be read"):
            Policy.read(folder / "policy.toml")
        assert made.door().get("/login").status_code == 200
        assert come_back(made.door(), at).status_code == 200


def test_who_is_not_let_in_is_in_the_log(tmp_path, at):
    """Each login that the issuer or the policy refused has a line, without what the issuer said."""
    with service(service_folder(tmp_path, f'log = "lines"\n{policy(at)}')) as made:
        at.broken = 500, {}
        made.door().get("/signin")
        at.broken, at.claims = None, {"sub": "eve-at-issuer"}
        come_back(made.door(), at)
        at.claims = {"aud": "other"}
        come_back(made.door(), at)
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text(encoding="utf-8").splitlines()]
    codes = [line["code"] for line in lines if line["did"] == "request" and "code" in line]
    assert codes == ["issuer", "login", "sign-on"]
    assert "eve-at-issuer" not in json.dumps(lines)


def test_the_page_s_lines_are_read(tmp_path):
    """The lines that docs/service/sign-on.md shows fit into a policy."""
    page = (Path(__file__).parents[3] / "docs" / "service" / "sign-on.md").read_text(encoding="utf-8")
    shown = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    (tmp_path / shown["oidc"]["secret"]).write_text("secret", encoding="utf-8")
    read = Policy.of({**tomllib.loads(POLICY), **shown}, tmp_path)
    assert (read.secret, read.analysts["ann"].login) == ("secret", "ann@example.org")


def test_tries_are_few(opened):
    """Logins that are begun count among those that one address may try in a minute."""
    door = opened.door()
    told = [door.get("/signin").status_code for _ in range(32)]
    assert told[:30] == [303] * 30
    assert told[30:] == [429] * 2


BROKEN = {
    "oidc.issuer": ('issuer = "http://127', 'issuer = "http://evil.example/http://127'),
    "analysts.bob.login": ("[analysts.bob]", '[analysts.bob]\nlogin = "ann-at-issuer"'),
    "analysts.bob.token": ("[analysts.bob]\ntoken", "[analysts.bob]\npurpose"),
    "oidc.secret": ('client = "almoner"', 'client = "almoner"\nsecret = "nowhere"'),
}


@pytest.mark.parametrize(("line", "change"), BROKEN.items(), ids=BROKEN)
def test_lines_that_make_no_sense_are_refused(tmp_path, at, line, change):
    """A policy is refused that names no safe issuer, a login without one or of two, nobody's login, or no secret."""
    text = policy(at).replace(*change)
    assert text != policy(at)
    with pytest.raises(ArgumentError, match=line):
        Policy.read(service_folder(tmp_path, text) / "policy.toml")


def test_a_login_needs_an_issuer(tmp_path, at):
    """A login without [oidc] is refused, and the policy says what is missing."""
    text = POLICY.replace('purpose = "weekly"', 'login = "ann-at-issuer"')
    with pytest.raises(ArgumentError, match=r"analysts\.ann\.login needs \[oidc\]"):
        Policy.read(service_folder(tmp_path, text) / "policy.toml")

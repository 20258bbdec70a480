"""Single sign-on: an issuer of OpenID Connect says who visits the pages; nothing else is taken from it.

Source: OpenID Connect Core 1.0, 3.1; RFC 7636 (PKCE), RFC 9207 (the issuer in an answer), RFC 9700.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

from almoner import _extras
from almoner.service._bodies import Refused
from almoner.service.policies import SignOnPart, safe_address

with _extras.need("joserfc", "httpx2", extra="oidc"):
    import httpx2
    from joserfc import jwt
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA")
"""Of signatures; none that anybody could make who knows what the issuer publishes."""

_SECONDS, _LEEWAY, _KNOWN, _AGAIN, _BYTES = 10.0, 60, 3600.0, 60.0, 2**20
_WRONG = (httpx2.HTTPError, httpx2.InvalidURL, JoseError, ValueError, TypeError, LookupError, AttributeError)
_PLAIN = {"accept-encoding": "identity"}  # what is compressed may be huge, and is not read


class SignOn:
    """Logins at a policy's issuer, which sends browsers back to the pages at an address; the secret is the client's."""

    def __init__(self, part: SignOnPart, address: str, secret: str | None) -> None:
        self._part, self._back = part, f"{address.rstrip('/')}/signed-in"
        self._who: Any = None if secret is None else httpx2.BasicAuth(part.client, secret)
        self._found: tuple[float, dict[str, Any]] = (-_KNOWN, {})
        self._keys: tuple[float, KeySet] = (-_KNOWN, KeySet([]))

    async def begin(self) -> tuple[str, list[str]]:
        """The issuer's address for a browser; and the state, nonce and verifier that the browser must bring back."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {"response_type": "code", "client_id": self._part.client, "redirect_uri": self._back, "state": state}
        asked |= {"scope": "openid email profile", "nonce": nonce}
        asked |= {"code_challenge": challenge, "code_challenge_method": "S256"}
        address = (await self._issuer())["authorization_endpoint"]
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}", [state, nonce, verifier]

    async def login(self, query: Mapping[str, str], sent: list[str]) -> str:
        """Take the policy's claim about who came back, with what the browser was sent away with, from the issuer."""
        (state, nonce, verifier), issuer = sent, await self._issuer()
        if not hmac.compare_digest(query.get("state", "").encode(), state.encode()):
            raise _refused("The answer belongs to another login")
        unnamed = None if issuer.get("authorization_response_iss_parameter_supported") else issuer["issuer"]
        if query.get("iss", unnamed) != issuer["issuer"]:
            raise _refused("The answer came from another issuer")
        asked = {"grant_type": "authorization_code", "code": query.get("code", ""), "redirect_uri": self._back}
        asked |= {"client_id": self._part.client, "code_verifier": verifier}
        token = (await self._fetch(issuer["token_endpoint"], asked)).get("id_token")
        return self._checked(await self._claims(token, issuer["jwks_uri"]), nonce)

    def _checked(self, claims: dict[str, Any], nonce: str) -> str:
        """The policy's claim, of claims that were signed, if they are for us, for this login, and in time."""
        part, several = self._part, isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        wanted: dict[str, Any] = {"iss": part.issuer, "aud": part.client, "nonce": nonce}
        options: dict[str, Any] = {name: {"essential": True, "value": value} for name, value in wanted.items()}
        options |= {"azp": {"essential": several, "value": part.client}, "exp": {"essential": True}}
        try:
            jwt.JWTClaimsRegistry(leeway=_LEEWAY, **options).validate(claims)
        except (*_WRONG, OverflowError) as error:
            raise _refused("The issuer's token is of another client or login, or has expired") from error
        told = claims.get(part.claim)
        if not isinstance(told, str) or not told or not told.isprintable():  # as no login is
            raise _refused(f"The issuer tells no {part.claim} of yours")
        if part.claim == "email" and claims.get("email_verified") is not True:
            raise _refused("The issuer does not say that your email is verified")
        return told

    async def _claims(self, token: object, address: str) -> dict[str, Any]:
        """The claims of a token that the issuer signed; its keys are asked for hourly, and where it has a new one."""
        age = time.monotonic() - self._keys[0]
        try:
            return jwt.decode(str(token), self._keys[1] if age < _KNOWN else KeySet([]), algorithms=ALGORITHMS).claims
        except _WRONG as error:
            if age < _AGAIN:
                raise _refused("The issuer's token is not signed as it must be") from error
        told, known = (await self._fetch(address)).get("keys"), list[Any]()
        for each in told if isinstance(told, list) else []:
            with suppress(*_WRONG):  # keys of kinds that nobody here knows
                known += KeySet.import_key_set({"keys": [each]}).keys
        if not known:
            raise _away()
        self._keys = time.monotonic(), KeySet(known)
        return await self._claims(token, address)

    async def _issuer(self) -> dict[str, Any]:
        """Description of the issuer by itself, at most an hour old."""
        if time.monotonic() - self._found[0] > _KNOWN:
            told = await self._fetch(f"{self._part.issuer.rstrip('/')}/.well-known/openid-configuration")
            try:
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    if safe_address(told[name]).lower().startswith("http:") and self._part.issuer.startswith("https:"):
                        raise _away()  # it is no issuer of this machine
            except _WRONG as error:
                raise _away() from error
            if told.get("issuer") != self._part.issuer:
                raise _away()
            self._found = time.monotonic(), told
        return self._found[1]

    async def _fetch(self, address: str, form: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The object that the issuer answers, soon and in not too many bytes; redirects are not followed."""
        body, (method, who) = bytearray(), ("GET", None) if form is None else ("POST", self._who)
        try:
            async with asyncio.timeout(_SECONDS), httpx2.AsyncClient(timeout=_SECONDS, headers=_PLAIN) as client:
                asked = client.build_request(method, address, data=form)
                response = await client.send(asked, auth=who, stream=True)
                async for part in response.aiter_raw():
                    body += part
                    if len(body) > _BYTES:
                        raise _away()
            if form is None or response.status_code not in (400, 401, 403):
                response.raise_for_status()
                return dict(json.loads(body))
        except (*_WRONG, RecursionError, TimeoutError) as error:
            raise _away() from error
        raise _refused("The issuer did not take the login's code")


def _refused(why: str) -> Refused:
    return Refused(401, "sign-on", f"{why}: log in again")


def _away() -> Refused:
    return Refused(503, "issuer", "The issuer of single sign-on does not answer as it must: try later, or use a token")

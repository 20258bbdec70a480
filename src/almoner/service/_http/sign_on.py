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

_SECONDS, _LEEWAY, _KNOWN, _AGAIN = 10.0, 60, 3600.0, 60.0
_MOST = 1_000_000  # bytes of an issuer's answer


class SignOn:
    """Logins at a policy's issuer, which sends browsers back to the pages at an address; the secret is the client's."""

    def __init__(self, part: SignOnPart, address: str, secret: str | None) -> None:
        self._part, self._secret, self._back = part, secret, f"{address.rstrip('/')}/signed-in"
        self._found: tuple[float, dict[str, Any]] = (0.0, {})
        self._keys: tuple[float, KeySet] = (0.0, KeySet([]))

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
        state, nonce, verifier = sent
        if not hmac.compare_digest(query.get("state", "").encode(), state.encode()):
            raise _refused("The answer belongs to another login")
        issuer = await self._issuer()
        told = query.get(
            "iss", None if issuer.get("authorization_response_iss_parameter_supported") else issuer["issuer"]
        )
        if told != issuer["issuer"]:
            raise _refused("The answer came from another issuer")
        if not query.get("code"):
            raise _refused("The issuer let nobody in")
        asked = {"grant_type": "authorization_code", "code": query["code"], "redirect_uri": self._back}
        asked |= {"client_id": self._part.client, "code_verifier": verifier}
        who = None if self._secret is None else (self._part.client, self._secret)
        token = (await self._fetch(issuer["token_endpoint"], asked, who)).get("id_token")
        return self._checked(await self._claims(token, issuer["jwks_uri"]), nonce)

    def _checked(self, claims: Mapping[str, Any], nonce: str) -> str:
        """The policy's claim, of claims that were signed, if they are for us, for this login, and in time."""
        part, now, for_whom = self._part, time.time(), claims.get("aud")
        meant = [for_whom] if isinstance(for_whom, str) else for_whom if isinstance(for_whom, list) else []
        ends, begins = (claims.get(name, 0) for name in ("exp", "nbf"))
        timely = all(isinstance(each, int | float) for each in (ends, begins))
        if claims.get("iss") != part.issuer or part.client not in meant:
            raise _refused("The token is not of this issuer for this client")
        if claims.get("azp", part.client) != part.client or (len(meant) > 1 and "azp" not in claims):
            raise _refused("The token was made for another client")
        if not timely or not begins - _LEEWAY <= now < ends + _LEEWAY:
            raise _refused("The token has expired, or clocks differ")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise _refused("The token belongs to another login")
        told = claims.get(part.claim)
        if (
            not isinstance(told, str)
            or not told
            or (part.claim == "email" and claims.get("email_verified") is not True)
        ):
            why = "an email that it does not say is verified" if part.claim == "email" and told else f"no {part.claim}"
            raise _refused(f"The issuer tells {why} of yours")
        return told

    async def _claims(self, token: object, address: str) -> Mapping[str, Any]:
        """The claims of a token that the issuer signed; its keys are asked for anew where it has a new one."""
        for last in (False, True):
            try:
                return jwt.decode(str(token), self._keys[1], algorithms=ALGORITHMS).claims
            except (JoseError, ValueError, TypeError) as error:
                if last or (time.monotonic() - self._keys[0] < _AGAIN and self._keys[1].keys):
                    raise _refused("The token is not signed as it must be") from error
            try:
                self._keys = time.monotonic(), KeySet.import_key_set(await self._fetch(address))  # type: ignore[arg-type]
            except (JoseError, ValueError, TypeError, KeyError) as error:
                raise _away() from error
        raise AssertionError

    async def _issuer(self) -> dict[str, Any]:
        """Description of the issuer by itself, at most an hour old."""
        if time.monotonic() - self._found[0] > _KNOWN or not self._found[1]:
            told = await self._fetch(f"{self._part.issuer.rstrip('/')}/.well-known/openid-configuration")
            try:
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    safe_address(told[name])
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise _away() from error
            if told.get("issuer") != self._part.issuer:
                raise _away()
            self._found = time.monotonic(), told
        return self._found[1]

    async def _fetch(self, address: str, form: Mapping[str, str] | None = None, who: Any = None) -> dict[str, Any]:
        """The object that the issuer answers, soon and not too long; redirects are not followed."""
        try:
            async with asyncio.timeout(_SECONDS), httpx2.AsyncClient(timeout=_SECONDS) as client:
                method = "GET" if form is None else "POST"
                async with client.stream(method, address, data=form, auth=who) as response:
                    body = bytearray()
                    async for chunk in response.aiter_bytes():
                        body += chunk
                        if len(body) > _MOST:
                            raise _away()
            if form is not None and response.status_code in (400, 401, 403):
                raise _refused("The issuer did not take the login's code")
            found = json.loads(body) if response.status_code == 200 else None
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, ValueError, RecursionError) as error:
            raise _away() from error
        if not isinstance(found, dict):
            raise _away()
        return found


def _refused(why: str) -> Refused:
    return Refused(401, "sign-on", f"{why}: log in again")


def _away() -> Refused:
    return Refused(503, "issuer", "The issuer of single sign-on does not answer as it must: try later, or use a token")

"""An issuer of OpenID Connect for tests, on this machine, which can be told to lie."""

import gzip
import hmac
import json
import threading
import time
from base64 import urlsafe_b64encode
from contextlib import contextmanager, suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey

CLIENT, SECRET = "almoner", "client-secret"


class Issuer:
    """Codes and what is signed for them; ``claims`` and ``header`` are put over the right ones.

    ``drip``: the seconds that each byte of an answer takes; ``squeezed``: answers are compressed, whoever asks;
    ``beside``: keys that it shows beside its own.
    """

    def __init__(self, address):
        self.address, self.key = address, RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})
        self.claims, self.header, self.signer, self.algorithm = {}, {}, None, "RS256"
        self.broken, self.more, self.codes, self.asked = None, {}, {}, []
        self.drip, self.squeezed, self.beside = 0.0, False, []
        self.numbers = count()

    def code(self, location):
        """What a person's browser brings back, who logs in at this address: the query."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        code = f"code-{next(self.numbers)}"
        self.codes[code] = query
        return {"code": code, "state": query["state"]}

    def page(self, path, form):
        """(Status, object) of a request."""
        self.asked.append(path)
        if self.broken is not None:
            return self.broken
        if path == "/.well-known/openid-configuration":
            names = {"authorization_endpoint": "/in", "token_endpoint": "/token", "jwks_uri": "/keys"}
            found = {name: self.address + place for name, place in names.items()}
            return 200, {"issuer": self.address, **found, **self.more}
        if path == "/keys":
            return 200, {"keys": [*self.beside, self.key.as_dict(private=False)]}
        return self.token(form)

    def token(self, form):
        """The token of a code, which is good once and for whoever has its verifier."""
        query = self.codes.pop(form.get("code"), None)
        made = _encoded(sha256(form.get("code_verifier", "").encode()).digest())
        if query is None or made != query["code_challenge"] or form.get("redirect_uri") != query["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.address, "aud": CLIENT, "sub": "ann-at-issuer", "nonce": query["nonce"]}
        claims |= {"iat": now, "exp": now + 300, **self.claims}
        claims = {name: value for name, value in claims.items() if value is not None}
        return 200, {"id_token": self.signed(claims), "access_token": "unused", "token_type": "Bearer"}

    def signed(self, claims):
        """A token with these claims, by the algorithm and the signer that are set."""
        header = {"alg": self.algorithm, "kid": "one", **self.header}
        whole = f"{_part(header)}.{_part(claims)}"
        if self.algorithm == "none":
            return f"{whole}."
        if self.algorithm == "HS256":
            return f"{whole}.{_encoded(hmac.digest(self.signer, whole.encode(), 'sha256'))}"
        return jwt.encode(header, claims, self.signer or self.key, algorithms=[self.algorithm])


def _encoded(value):
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def _part(value):
    return _encoded(json.dumps(value).encode())


def secret_of_public_key(issuer):
    """The public key as a secret, as the attack by HS256 takes it."""
    return issuer.key.as_pem(private=False)


def other_key():
    """A key that the issuer never had, by the name of its own."""
    return RSAKey.generate_key(2048, {"kid": "one"})


def curve_key():
    """A key of another kind."""
    return ECKey.generate_key("P-256", {"kid": "two", "use": "sig"})


@contextmanager
def issuer():
    """An issuer that runs."""
    made = None

    class Handler(BaseHTTPRequestHandler):
        """Answers as the issuer says."""

        def log_message(self, *_):
            """Print nothing."""

        def answer(self, form):
            """Send what the issuer says."""
            status, found = made.page(self.path, form)
            body = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(status)
            if status in (301, 302):
                self.send_header("location", made.address + "/.well-known/other")
            if made.squeezed:
                body = gzip.compress(body)
                self.send_header("content-encoding", "gzip")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            for place in range(0, len(body), 1 if made.drip else len(body)):
                with suppress(OSError):  # nobody waits any more
                    self.wfile.write(body[place : place + (1 if made.drip else len(body))])
                time.sleep(made.drip)

        def do_GET(self):
            """Answer without a form."""
            self.answer({})

        def do_POST(self):
            """Answer with a form."""
            sent = self.rfile.read(int(self.headers["content-length"])).decode()
            self.answer({name: values[0] for name, values in parse_qs(sent).items()})

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Issuer(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()

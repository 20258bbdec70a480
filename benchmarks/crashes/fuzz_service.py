"""Fuzz both doors of a service: no request gives a 500, and no response tells anything private.

python benchmarks/crashes/fuzz_service.py [--requests 100000] [--seed 0]

Requests are made from right ones: values, types, bytes, headers, methods and paths are changed at random. People,
entries and a file's name hold a marker. All responses are kept and searched for it, and so is the log; the ledger is
checked at the end. Prints one JSON object: how many requests of each door had which status.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "service"))

from test_planted import BODIES, changed

from almoner.ledger import verify
from services import MARKER, TOKENS, Door, service, service_folder

COLUMNS = {"a": "hours", "b": "hours", "c": "country", "d": "day", "h": "hours", "x": "FR", "y": "ES", "z": "DE"}
QUESTIONS = [
    json.loads(re.sub(r"\b[abcdhxyz]\b", lambda found: COLUMNS[found[0]], json.dumps(each))) for each in BODIES
]
ODD = [
    "",
    "\x00",
    "é" * 300,
    "../" * 9,
    "%00",
    "' OR 1=1 --",
    "{{7*7}}",
    "\ud800x",
    "ann",
]
ANALYST = [
    "/v1/quote",
    "/v1/answers",
    "/v1/batch",
    "/v1/dummy",
    "/v1/answer",
    "/v1/answers.csv",
    "/v1/me",
    "/v1/datasets",
]
PAGES = [
    "/",
    "/login",
    "/ask",
    "/answer",
    "/download",
    "/logout",
    "/signin",
    "/signed-in",
    "/health",
    "/ready",
    "/openapi.json",
]
POSTED = {"/v1/quote", "/v1/batch", "/v1/dummy", "/v1/statement", "/v1/verify", "/v1/policy", "/logout", "/limits"}
QUERY = ["key", "of", "skip", "most", "as"]
BOTH = {"/v1/answers", "/login", "/ask"}
HOLDER = ["/v1/statement", "/v1/verify", "/v1/policy", "/v1/backup", "/v1/metrics", "/v1/people", "/metrics", "/limits"]


def odd(draw: random.Random, *usual: str) -> str:
    """An odd text or one of the usual ones, as addresses and forms have it."""
    return quote(draw.choice([*ODD, *usual]), errors="surrogatepass")


def body_of(draw: random.Random, path: str) -> bytes:
    """A body: a question, several, a form, or noise; changed at one place or at many."""
    asked = draw.choice(QUESTIONS)
    asked = asked if draw.random() < 0.6 else changed(draw, asked)
    whole = (
        {"questions": {f"k{n}": draw.choice(QUESTIONS) for n in range(draw.randrange(4))}} if "batch" in path else asked
    )
    if path == "/v1/statement":
        whole = draw.choice([{"person": "nobody"}, changed(draw, {"person": "nobody", "delta": 0.1})])
    if not path.startswith("/v1") and draw.random() < 0.8:
        names = ("ask", "key", "token", "form", "where", "sigma", "price", "do", "by", "column", "low", "high", "clip")
        return "&".join(f"{name}={odd(draw, 'people', 'hours', '1')}" for name in names).encode()
    text = bytearray(json.dumps(whole, default=str).encode("utf-8", "replace"))
    for _ in range(draw.choice([0] * 9 + [1, 3])):
        place = draw.randrange(len(text) + 1)
        text[place : place + draw.randrange(3)] = draw.randbytes(draw.randrange(4))
    return bytes(text)


def request_of(draw: random.Random, visits: Mapping[str, tuple[str, str]]) -> tuple[str, dict[str, object], bytes]:
    """(The door, the scope of a request, its body); some are of a visit, with its cookie and the word of its forms."""
    door = draw.choice(["analysts"] * 4 + ["holder"])
    path = draw.choice((ANALYST * 2 if door == "analysts" else HOLDER) + PAGES)
    page, body = not path.startswith("/v1"), body_of(draw, path)
    path += "" if draw.random() < 0.95 else str(draw.choice(ODD))
    cookie, form = visits[door]
    body = body.replace(b"form=", f"form={form}&was=".encode()) if page and draw.random() < 0.9 else body
    wrong = draw.random() < 0.1
    right = TOKENS["holder"] if door == "holder" else draw.choice([TOKENS["ann"], TOKENS["bob"]])
    token = draw.choice([*TOKENS.values(), "x", ""]) if wrong else right
    kind = "application/x-www-form-urlencoded" if page else "application/json"
    length = draw.choice(["9", "-1", "x"]) if draw.random() < 0.02 else str(len(body))
    key = draw.choice(ODD) if draw.random() < 0.1 else f"k{draw.randrange(900)}"
    headers = [("host", "service"), ("authorization", f"Bearer {token}"), ("content-length", length)]
    headers.append(("content-type", "text/html" if draw.random() < 0.05 else kind))
    headers += [("idempotency-key", str(key))] * (2 if draw.random() < 0.03 else draw.random() < 0.95)
    headers.append(("cookie", draw.choice([cookie] * 9 + [f"{cookie}x"])))
    names = draw.sample(QUERY, draw.choice([0] * 8 + [1, 2]))
    asked = "&".join(f"{name}={odd(draw, 'k1')}" for name in names)
    usual = "POST" if path in POSTED or (path in BOTH and draw.random() < 0.6) else "GET"
    method = usual if draw.random() < 0.95 else draw.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "X"])
    return door, scope_of(method, path, asked, headers), body


def scope_of(method: str, path: str, asked: str, headers: list[tuple[str, str]]) -> dict[str, object]:
    """A request as an application of ASGI is given it."""
    sent = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http"}
    scope |= {"path": path, "raw_path": quote(path, errors="surrogatepass").encode(), "query_string": asked.encode()}
    return scope | {"headers": sent, "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2)}


def visit(door: Door, token: str) -> tuple[str, str]:
    """The cookie of a visit, and the word that its forms must send."""
    cookie = door.post("/login", data={"token": token}).headers["set-cookie"].partition(";")[0]
    found = re.search(r'name="form" value="([^"]+)"', door.get("/").text)
    return cookie, found[1]


async def answered(application: object, scope: dict[str, object], body: bytes) -> tuple[int, bytes]:
    """The status of a response, and all of it."""
    messages, sent = [{"type": "http.request", "body": body, "more_body": False}], []

    async def receive() -> dict[str, object]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await application(dict(scope), receive, send)
    return sent[0]["status"], b" ".join(repr(each).encode() for each in sent)


def fuzzed(folder: Path, requests: int, seed: int) -> dict[str, object]:
    """Counts of what so many requests were answered; AssertionError: one failed, or told something private."""
    draw, statuses = random.Random(seed), Counter()
    wide = {
        "step = 0.02": "step = 0.002",
        "cells = 100": "cells = 100\nleast = 0\nquestions = 1000000\nseconds = 86400",
    }

    def change(text: str) -> str:
        for old, new in wide.items():
            text = text.replace(old, new)
        return f'log = "service.log"\n{text}'

    with service(service_folder(folder), change) as made, (folder / "responses").open("ab") as kept:
        doors = {"analysts": made.service.analysts, "holder": made.service.holder}

        visits = {"analysts": visit(made.door(), TOKENS["ann"])}
        visits["holder"] = visit(Door(made.service.holder), TOKENS["holder"])

        async def work() -> None:
            for _ in range(requests):
                door, scope, body = request_of(draw, visits)
                if not draw.randrange(50):
                    made.api.rates, made.api.logins, made.api.strangers = (type(made.api.rates)() for _ in range(3))
                status, sent = await answered(doors[door], scope, body)
                kept.write(sent + b"\n")
                statuses[f"{door} {status}"] += 1
                private = door == "analysts" and MARKER.encode() in sent  # the data holder is told of people
                if status == 500 or private:
                    raise SystemExit(f"{'private' if private else 'failed'}: {door} {scope} {body!r}")

        asyncio.run(work())
        if not all(finding.holds for finding in verify(made.api.session.ledger)):
            raise SystemExit("the ledger does not hold")
    log = (folder / "service.log").read_text(encoding="utf-8")
    if MARKER in log:
        raise SystemExit("the log tells something private")
    return {"requests": requests, "seed": seed, "answers": dict(sorted(statuses.items()))}


def main() -> None:
    """Fuzz, and print what was answered."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(fuzzed(Path(name), given.requests, given.seed), indent=2))


if __name__ == "__main__":
    main()

"""A client of ``almoner serve``, for analysts: questions and answers are the library's own (extra ``client``).

It needs neither DuckDB nor the service. The same key gives the same answer and is charged once, so what got lost on the
way is asked again.
"""

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from almoner import _check, _extras
from almoner.errors import ArgumentError, ServiceRefused
from almoner.queries import Answer, Keys, Question, Quote, Rows, Sql
from almoner.queries.plans import described, question

with _extras.need("httpx2", extra="client"):
    import httpx2

__all__ = ["Client"]

_MOST = 64  # questions of a batch

Asked = Question | Mapping[str, Any]  # a question, or its fields as docs/queries/plans.md has them


class Client(AbstractContextManager["Client"]):
    """A service, as an analyst reaches it with a token. Threads may share it.

    Args:
        url: where analysts come to, such as "https://statistics.example.org".
        token: what ``almoner serve --new-token`` printed. Secret.
        patience: seconds for which a request is sent again, when connections are lost or the service says to wait.
        timeout: seconds to wait for each answer.
        options: of ``httpx2.Client``, such as ``verify=`` or ``proxy=``.

    Every method raises ServiceRefused where the service refuses, with its status and code.
    """

    def __init__(self, url: str, token: str, *, patience: float = 60.0, timeout: float = 60.0, **options: Any) -> None:
        _check.positive(patience=patience, timeout=timeout)
        if not url.startswith(("https://", "http://")):
            raise ArgumentError("url must begin with https://, as in Client('https://statistics.example.org', token)")
        if not (token.isascii() and token.isprintable() and token.strip() == token != ""):
            raise ArgumentError("token must be what `almoner serve --new-token` printed, without blanks or line breaks")
        headers, self.url, self._patience = {"authorization": f"Bearer {token}"}, url, patience
        self._http = httpx2.Client(base_url=url, headers=headers, timeout=timeout, **options)

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def datasets(self) -> Any:
        """The tables that questions may be about, and what is public of their columns."""
        return self._send("GET", "/v1/datasets")

    def me(self) -> Any:
        """Limits of this analyst, and what is left by them."""
        return self._send("GET", "/v1/me")

    def quote(self, asked: Asked) -> Quote:
        """Price of a question at worst, and the noise to expect; costs nothing."""
        body = _numbers(self._send("POST", "/v1/quote", json=_values(asked)))
        return Quote(of_budget=body.pop("share"), **{name: body[name] for name in body if name != "words"})

    def ask(self, asked: Asked, *, key: str, fresh: bool = False) -> Answer:
        """Ask a question, and its answer; the same key again gives the same answer and costs nothing.

        Args:
            asked: a question of ``almoner.queries``, or its fields as in a file of questions.
            key: a name of your own for it.
            fresh: an earlier answer of others, by the policy's ``sharing``, must not stand for it.
        """
        return _answer(self._ask(asked, key, fresh=fresh))

    def sql(self, text: str, *, key: str, **options: Any) -> Rows:
        """Ask a SELECT statement: its rows by HAVING, ORDER BY and LIMIT; ``options`` are the fields of ``Sql``."""
        body = self._ask(Sql(text, **options), key)
        keys = {key for group in body["groups"] for key in group if isinstance(key, str)}  # one may be called "nan"
        rows = [tuple(cell if cell in keys else _numbers(cell) for cell in row) for row in body["rows"]["rows"]]
        return Rows(_answer(body), tuple(body["rows"]["columns"]), rows)

    def dummy(self, asked: Asked) -> Answer:
        """Answer about made-up data of the public shape; costs nothing, and its key and ``about`` say DUMMY."""
        body = self._send("POST", "/v1/dummy", json=_values(asked))["answer"]
        return replace(_answer(body), about=body["about"])

    def batch(self, asked: Mapping[str, Asked], *, fresh: bool = False) -> dict[str, Answer | ServiceRefused]:
        """Ask questions by their keys together, 64 at a time; a refusal stands in the place of an answer."""
        rest, answers = {key: _values(each) for key, each in asked.items()}, dict[str, Answer | ServiceRefused]()
        gives_up = time.monotonic() + self._patience
        while rest:
            part = dict(islice(rest.items(), _MOST))
            body = self._send("POST", "/v1/batch", json={"questions": part}, params={"fresh": fresh})
            refused = {key: _refused(each) for key, each in body["refused"].items()}
            answers |= {key: _answer(each) for key, each in body["answers"].items()} | refused
            later = {key: each.retry_after for key, each in refused.items() if each.retry_after}
            wait = max(later.values(), default=0.0)
            again = later if wait <= gives_up - time.monotonic() else {}
            time.sleep(wait if again else 0)
            rest = {key: each for key, each in rest.items() if key not in part or key in again}
        return {key: answers[key] for key in asked}

    def answers(self) -> list[dict[str, Any]]:
        """Key, day, question and price of each own answer, newest first."""
        listed: list[dict[str, Any]] = []
        while more := self._send("GET", "/v1/answers", params={"skip": len(listed), "most": 1000})["answers"]:
            listed += more
        return listed

    def answer(self, key: str, *, of: str | None = None) -> Answer:
        """The answer under a key: an own one, or ``of`` another analyst who shares answers, by the policy."""
        return _answer(self._send("GET", "/v1/answer", params={"key": key} | ({} if of is None else {"of": of})))

    def _ask(self, asked: Asked, key: str, *, fresh: bool = False) -> Any:
        if not (key.isascii() and key.isprintable() and key.strip() == key):  # no header of HTTP holds others
            raise ArgumentError("key must be printable characters of ASCII, without blanks at its ends: 'monday'")
        sent: dict[str, Any] = {"json": _values(asked), "headers": {"idempotency-key": key}}
        return self._send("POST", "/v1/answers", params={"fresh": fresh}, **sent)

    def _send(self, method: str, path: str, **sent: Any) -> Any:
        """Send a request, and again while that may help: all of them may be repeated."""
        gives_up = time.monotonic() + self._patience
        while True:
            try:
                response = self._http.request(method, path, **sent)
                if response.is_success:
                    with suppress(ValueError):
                        return response.json()
                refused = _problem(response)
            except httpx2.TransportError as error:
                said = f"{self.url} cannot be reached, or does not answer: {type(error).__name__}"
                refused = ServiceRefused(said, status=0, code="connection", retry_after=0.5)
            wait = refused.retry_after
            if wait is None or wait > gives_up - time.monotonic():
                raise refused
            time.sleep(wait)


def _problem(response: httpx2.Response) -> ServiceRefused:
    """The refusal in a response, which may be a proxy's."""
    with suppress(ValueError, KeyError, TypeError):
        return _refused(response.json())
    again = 1.0 if response.status_code in (502, 503, 504) else None
    said = "no service of Almoner sent this, but perhaps a proxy's page: open the address in a browser"
    return ServiceRefused(said, status=response.status_code, code="http", retry_after=again)


def _refused(body: Mapping[str, Any]) -> ServiceRefused:
    return ServiceRefused(body["detail"], status=body["status"], code=body["code"], retry_after=body["retry_after"])


def _values(asked: Asked) -> dict[str, Any]:
    return dict(asked) if isinstance(asked, Mapping) else described(asked)


def _numbers(value: Any) -> Any:
    """Numbers in place of "inf", "-inf" and "nan", which JSON has no numbers for."""
    if isinstance(value, dict):
        return {name: _numbers(each) for name, each in value.items()}
    return float(value) if value in ("inf", "-inf", "nan") else value


def _answer(body: Mapping[str, Any]) -> Answer:
    """The library's answer, worked out from the noisy sums as the service works it out."""
    asked = question(body["question"])
    keys = [group[0] for group in body["groups"]] if isinstance(asked, Keys) else None
    return Answer.recorded({**body, "keys": keys, "released at": body["released_on"]}, asked)

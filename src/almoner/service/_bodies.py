"""JSON in and out: strict on the way in, and finite on the way out; and refusals, which tell nothing private.

The types here make the OpenAPI document.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar, cast

from typing_extensions import TypedDict

from almoner._check import similar, told, unquoted
from almoner._reading import Field, Model, json_values
from almoner.errors import ArgumentError, BudgetExceeded, DataError, LedgerError
from almoner.queries import Answer, Question, Quote
from almoner.queries.plans import ASKS, described, question
from almoner.service._padded_worker import Busy, Stopped
from almoner.service.policies import ColumnPart, Limits

Result = TypeVar("Result")

MOST_TEXT = 4_000  # largest number of characters of all texts of a question together, but for public keys

Finite = Annotated[float | str | None, Field(description="A number; 'inf', '-inf' or 'nan' where not finite.")]
Cell = float | str | bool | None
Cells = list[Cell | list[Cell | list[Cell]]]
Share = Annotated[float, Field(ge=0, description="A share of each person's budget.")]


class QuoteBody(TypedDict):
    """Cost of a question at worst."""

    share: Share
    rho: Finite
    epsilon: Finite
    half_width: Finite
    standard_errors: Mapping[str, Finite]
    margins: Mapping[str, Finite]
    fits: int | None
    table: str | None
    alone: Finite
    warning: str | None
    words: str


class ListedBody(TypedDict):
    """An answer in a list, without its values."""

    key: str
    day: str
    question: dict[str, Any]
    share: Share


class RowsBody(TypedDict):
    """Rows of a SELECT's answer, by its HAVING, ORDER BY and LIMIT."""

    columns: list[str]
    rows: list[list[Cell]]


class AnswerBody(ListedBody):
    """An answer."""

    groups: Sequence[Sequence[Cell | list[Cell]]]
    values: Sequence[Cell | Cells]
    intervals: Sequence[Cell | Cells]
    truth_intervals: Sequence[Cell | Cells] | None
    estimand: str
    about: str
    about_budgets: str
    complete_clip: Finite
    complete: bool | None
    released: Annotated[list[int], Field(description="The noisy sums, in whole steps, that all else comes from.")]
    floor: int
    released_on: str | None
    rows: Annotated[RowsBody | None, Field(description="Of a statement that is asked: as it says to show the answer.")]


class AnswersBody(TypedDict):
    """Answers, newest first."""

    total: int
    answers: list[ListedBody]


class BatchAnswersBody(TypedDict):
    """Answers and refusals of several questions, by their keys."""

    answers: dict[str, AnswerBody]
    refused: dict[str, "ProblemBody"]


class ColumnBody(ColumnPart):
    """A column that questions may use, and the kind of its entries."""

    name: str
    kind: str


class DummyBody(TypedDict):
    """An answer about made-up data, and what the question would cost."""

    dummy: Literal[True]
    quote: QuoteBody
    answer: AnswerBody


class DataSetBody(TypedDict):
    """A table of people."""

    name: str
    about: str | None
    columns: list[ColumnBody]


class PublicTableBody(TypedDict):
    """A table that holds nobody's data, with the kinds of its columns."""

    name: str
    columns: dict[str, str]


class DataSetsBody(TypedDict):
    """The tables that questions may be about, and use."""

    data_sets: list[DataSetBody]
    public_tables: list[PublicTableBody]


PeriodBody = TypedDict("PeriodBody", {"from": str, "share": Share})


class LeftBody(TypedDict):
    """Budget and questions that are left to an analyst."""

    share: Share
    by_period: list[PeriodBody]
    usual_questions: int | None
    questions_today: int
    seconds_today: float


class UsualBody(QuoteBody):
    """The usual question, and what it would cost at worst."""

    question: dict[str, Any]


class MeBody(TypedDict):
    """An analyst: limits, and what is left by them."""

    analyst: str
    purpose: str | None
    expires: str | None
    limits: Limits
    step: float
    shares_answers: bool
    left: LeftBody
    usual: UsualBody


class HealthBody(TypedDict):
    """The state of the service."""

    status: str


class ProblemBody(TypedDict):
    """A refusal, as RFC 9457 has it."""

    type: str
    status: int
    code: str
    detail: str
    retry_after: Annotated[int | None, Field(description="Seconds after which to ask again, with the same key.")]


_ANSWERED = (
    QuoteBody, AnswerBody, AnswersBody, BatchAnswersBody, DataSetsBody, DummyBody, MeBody, HealthBody, ProblemBody
)  # fmt: skip
BODIES: dict[str, Any] = {body.__name__.removesuffix("Body"): body for body in _ANSWERED}
"""Types of answers, by their names in the document."""

FIXED_TEXTS = {
    "data": "the data cannot be read; the data holder has been told",
    "away": "the data are not there at the moment; ask again later, with the same key",
    "changed": "the data are not those that the service was opened with; ask again later, with the same key",
    "ledger": "the ledger cannot be used at the moment; ask again later, with the same key",
    "budget": "the question costs more than your limits or people's budgets certainly have left: /v1/me says how much; "
    'with "anyway": true it is asked where people may be missing',
    "question": "the question is refused; where it says 'auto', give a higher price, or numbers",
    "busy": "too many questions of yours are waiting; ask again later, with the same key",
    "stopping": "the service is being stopped; ask again later, with the same key",
    "dummy": "the question cannot be tried on made-up data; ask for a quote",
    "internal": "the request failed; ask again with the same key, or tell the data holder",
}  # fixed texts: what went wrong while the data were looked at is told in no other words


class Refused(Exception):
    """A request that is refused, as the analyst is told."""

    def __init__(self, status: int, code: str, text: str, *, retry: int | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.text, self.retry = status, code, text[:500], retry

    @property
    def body(self) -> ProblemBody:
        told: Any = {"type": "about:blank", "status": self.status, "code": self.code, "detail": self.text}
        return cast(ProblemBody, {**told, "retry_after": self.retry})


_PROBLEMS: dict[type[Exception], tuple[int, str, int | None]] = {
    BudgetExceeded: (403, "budget", None),
    DataError: (503, "data", None),
    ArgumentError: (422, "question", None),
    LedgerError: (503, "ledger", 10),
    Busy: (429, "busy", 5),
    Stopped: (503, "stopping", 10),
    Exception: (500, "internal", None),
}  # status, code and seconds after which to ask again; the first that an error is


def problem_of(error: Exception) -> Refused:
    """The refusal that an analyst gets for an error that came up while a question was answered."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, DataError) and error.reason != "unfit":
        return Refused(503, error.reason, FIXED_TEXTS[error.reason], retry=60)
    status, code, retry = next(told for kind, told in _PROBLEMS.items() if isinstance(error, kind))
    return Refused(status, code, FIXED_TEXTS[code], retry=retry)


def refusing(work: Callable[[], Result]) -> Result:
    """Do a piece of work; an error becomes the refusal that is told of it."""
    try:
        return work()
    except Exception as error:
        raise problem_of(error) from None


def parsed(body: bytes) -> Any:
    """A body as plain values; Refused where it is no strict JSON."""
    try:
        return json_values(body)
    except DataError as error:
        raise Refused(400, "body", f"the body {error}") from None


@unquoted()
def asked(values: object) -> Question:
    """The question that plain values describe; a refusal depends on them alone, and quotes none of them."""
    if not isinstance(values, dict):
        raise Refused(422, "question", "a question must be an object")
    try:
        if _length({name: value for name, value in values.items() if name not in ("by", "among")}) > MOST_TEXT:
            raise ArgumentError(f"the texts of a question have at most {MOST_TEXT} characters together")
        if values.get("ask") not in ASKS:
            listed = ", ".join(ASKS) + similar(str(values.get("ask")), ASKS)
            raise ArgumentError(f"{told(ask=values.get('ask'))} must be one of {listed}")
        return question(values)
    except ArgumentError as error:
        raise Refused(422, "question", str(error)) from None
    except (ValueError, RecursionError):
        raise Refused(422, "question", "the values of the question are of other types than it takes") from None


def _length(value: object) -> int:
    """Characters of all texts in a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(name) + _length(each) for name, each in value.items())
    return sum(map(_length, value)) if isinstance(value, list) else 0


def quote_of(quoted: Quote) -> QuoteBody:
    return _filled(QuoteBody, quoted, share=quoted.of_budget, words=str(quoted))


def answer_of(answer: Answer, key: str, day: str, share: float) -> AnswerBody:
    """An answer as plain values, with its cost as a share of the budget; of times the day alone, not the moment."""
    own = {"key": key, "day": day, "question": described(answer.question), "share": share}
    released = None if answer.earlier is None else answer.earlier[:10]
    return _filled(AnswerBody, answer, **own, released_on=released, rows=None)


def _filled(body: type[Result], told: object, **more: Any) -> Result:
    """A body whose other fields are those of a value, by their names."""
    return cast(Result, {name: more[name] if name in more else getattr(told, name) for name in body.__annotations__})


def dumps(value: object) -> bytes:
    """Strict JSON; numbers that are not finite become the strings "inf", "-inf" and "nan"."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")


def _plain(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, Model):
        value = value.model_dump()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)  # a date that is a key

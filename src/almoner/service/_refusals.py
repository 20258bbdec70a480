"""Refusals of requests: a status, a code for programs, and a text that tells nothing private."""

from collections.abc import Callable
from typing import TypeVar

from almoner.errors import ArgumentError, BudgetExceeded, DataError, LedgerError
from almoner.service._padded_worker import Busy, Stopped

__all__ = ["FIXED_TEXTS", "Refused", "problem_of", "refusing"]

Result = TypeVar("Result")

_LONGEST = 500  # characters of a text

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
    "internal": "the request failed; ask again with the same key, or tell the data holder",
}
"""Fixed texts: what went wrong while the data were looked at is told in no other words."""


class Refused(Exception):
    """A request that is refused, as the analyst is told."""

    def __init__(self, status: int, code: str, text: str, *, retry: int | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.text, self.retry = status, code, text[:_LONGEST], retry


_PROBLEMS: dict[type[Exception], tuple[int, str, int | None]] = {
    BudgetExceeded: (403, "budget", None),
    DataError: (503, "data", None),
    ArgumentError: (422, "question", None),
    LedgerError: (503, "ledger", 10),
    Busy: (429, "busy", 5),
    Stopped: (503, "stopping", 10),
    Exception: (500, "internal", None),
}
"""Status, code and seconds after which to ask again; the first that an error is."""


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

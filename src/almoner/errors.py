"""Every error that Almoner raises on purpose.

::

    AlmonerError
    ├── ArgumentError (also ValueError)      an argument breaks a rule; nothing was spent
    ├── BudgetExceeded                       a filter refuses; nothing was spent, the filter stays open
    ├── Unsupported (also TypeError)         no theorem that we know covers this combination
    ├── UnknownPerson (also KeyError)        an account was addressed that does not exist
    ├── CopyRefused (also TypeError)         a budget that can be copied can be spent twice
    ├── DataError (also ValueError)          a table or file does not fit its schema
    ├── CalibrationFailed                    no parameter in the searched range meets the target
    ├── LedgerError                          a ledger is held by another process, damaged, or not to be written
    ├── ServiceRefused                       a service refuses a request, or cannot be reached
    └── MissingExtra (also ImportError)      an optional library is not installed

    PrivacyWarning (a UserWarning)           something beside a training costs privacy that its guarantee does not cover

Messages name the argument, the value and the rule. They never hold private values. Who opens data may get a note with
the error (``__notes__``, which Python prints below it), PRIVATE and marked so: where a file breaks a rule, say.
"""

from typing import Literal

__all__ = [
    "AlmonerError", "ArgumentError", "BudgetExceeded", "CalibrationFailed", "CopyRefused", "DataError", "LedgerError",
    "MissingExtra", "PrivacyWarning", "ServiceRefused", "UnknownPerson", "Unsupported",
]  # fmt: skip

DataReason = Literal["away", "changed", "unfit"]
"""Why data cannot be used."""

LedgerReason = Literal["busy", "closed", "damaged", "forbidden", "missing", "unavailable"]
"""Why a ledger cannot be used."""


class AlmonerError(Exception):
    """The root of the tree: catch this to catch all of them."""

    def __reduce__(self) -> tuple[object, ...]:  # without its notes, which are private
        attributes = {name: value for name, value in vars(self).items() if name != "__notes__"}
        return _rebuilt, (type(self), str(self), attributes)


class ArgumentError(AlmonerError, ValueError):
    """An argument breaks a rule. Nothing was spent."""


class BudgetExceeded(AlmonerError):
    """A filter refuses a charge. Nothing was spent and the filter stays open for something cheaper.

    Attributes (public, in the filter's own measure):
        asked: what the refused mechanism would have cost.
        spent: what was spent before.
        left: what is left.
    """

    def __init__(self, message: str, *, asked: object, spent: object, left: object) -> None:
        super().__init__(message)
        self.asked, self.spent, self.left = asked, spent, left


class Unsupported(AlmonerError, TypeError):
    """No theorem that we know covers this combination, so we give no number."""


class UnknownPerson(AlmonerError, KeyError):
    """An account was addressed that does not exist."""

    def __str__(self) -> str:  # KeyError would show the repr of the message
        return Exception.__str__(self)


class CopyRefused(AlmonerError, TypeError):
    """A budget that can be copied can be spent twice."""


class DataError(AlmonerError, ValueError):
    """A table or a file does not fit its schema, or is not what it was.

    Attributes (public):
        reason: what a program can do about it. One of
            "away": a file is not there, or may not be read; try again later.
            "changed": a file is another one than when the session was opened; open the session again.
            "unfit": anything else, for example entries that a view cannot read.
    """

    def __init__(self, message: str, *, reason: DataReason = "unfit") -> None:
        super().__init__(message)
        self.reason = reason


class CalibrationFailed(AlmonerError):
    """No parameter in the searched range meets the target."""


class LedgerError(AlmonerError):
    """A ledger is held by another process, damaged, or cannot be written; nothing was revealed.

    Attributes (public):
        reason: what a program can do about it. One of
            "busy": another program has it; try again later.
            "closed": it is closed now; open it again and ask with the same key.
            "damaged": it is no ledger, or not a whole one.
            "forbidden": this user or this role may not do that.
            "missing": it is not there.
            "unavailable": anything else, for example a server that does not answer.
    """

    def __init__(self, message: str, *, reason: LedgerReason = "unavailable") -> None:
        super().__init__(message)
        self.reason = reason


class ServiceRefused(AlmonerError):
    """A service refuses a request of ``almoner.client``, or cannot be reached.

    Attributes (public):
        status, code: of the refusal, as docs/service/api.md lists them; 0 and "connection" where no answer came.
        retry_after: seconds after which the same request, with the same key, may do; None where it will not.
    """

    def __init__(self, message: str, *, status: int, code: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_after = status, code, retry_after


class MissingExtra(AlmonerError, ImportError):
    """An optional library is not installed; the message names the extra that brings it."""


class PrivacyWarning(UserWarning):
    """Something around a training costs privacy that its guarantee does not cover; the training itself goes on."""


def _rebuilt(kind: type[AlmonerError], message: str, attributes: dict[str, object]) -> AlmonerError:
    return kind(message, **attributes)

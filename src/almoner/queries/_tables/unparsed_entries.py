"""Entries that don't fit the type that was given for their column, and so count as missing. PRIVATE.

The data holder is told when a session is opened, and nobody while questions are answered, because how many entries fit
is a fact about people. So a wrong type, or dates of another format, are noticed before the budget is spent on answers
about nothing.
"""

import logging
from collections.abc import Iterable

from almoner import _misfits
from almoner._misfits import Misfit
from almoner._workspace import quoted

__all__ = ["Misfit", "refuse", "tell"]

LOG = logging.getLogger("almoner.queries")

_TYPES = {"number", "decimal comma", "decimal point", "whole"}
_FORMATS = {
    "date": "CAST(try_strptime({0}, '%d/%m/%Y') AS DATE)",
    "time": "try_strptime({0}, '%d/%m/%Y %H:%M')",
    "bool": "CASE {0} WHEN 'ja' THEN true WHEN 'nein' THEN false END",
}
_READ = {"date": "31/12/2026", "time": "31/12/2026 14:30", "bool": "ja and nein"}


def refuse(found: Iterable[Misfit]) -> None:
    """Refuse columns of which no entry can be read, with what to write. For the data holder, who opens the session."""
    found = list(found)
    _misfits.refuse(found, _cure(_misfits.unread(found)))


def tell(found: Iterable[Misfit]) -> None:
    """Log of which columns some entries cannot be read; how many and where is in ``Session.misfits``."""
    _misfits.tell(LOG, list(found), "session.misfits, as `almoner query check`,")


def _cure(unread: list[Misfit]) -> str:
    """Line to write: by the types alone, whatever the entries are."""
    cures = []
    numbers = [each for each in unread if each.kind in _TYPES]
    if numbers:
        types = ", ".join(f"'{each.column}': 'decimal comma'" for each in numbers)
        toml = ", ".join(f"'{each.column}' = 'decimal comma'" for each in numbers)
        cures.append(
            f"types={{{types}}} (in TOML: types = {{ {toml} }}) reads 1.234,5 and €12,50; 'decimal point' in its place "
            "reads 1,234.5 and €12.50; 'text' takes entries as they are, as ids with letters"
        )
    for kind in dict.fromkeys(each.kind for each in unread if each.kind in _FORMATS):
        columns = [each.column for each in unread if each.kind == kind]
        listed = ", ".join(f"{_FORMATS[kind].format(quoted(name))} AS {quoted(name)}" for name in columns)
        cures.append(
            f"without a type for {', '.join(map(repr, columns))}, view='''SELECT * REPLACE ({listed}) FROM data''' "
            f"reads {_READ[kind]}"
        )
    return "; ".join(cures)

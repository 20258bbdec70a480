"""Entries that cannot be read as what is declared of their column: one rule for questions and trainings.

Such entries count as missing. A column whose entries can none of them be read is refused, before anything is charged.
Of others the data holder is told that there are some. What is raised or logged names columns and types, all public.
How many entries there are, and where the first stand, is PRIVATE: it is in ``Misfit.words`` and in the note of an error
(``__notes__``, which Python prints below it), both marked as for the data holder.

An empty or blank entry is missing by intent: a column of nothing else is no mistake.
"""

from collections.abc import Iterable, Sequence
from logging import Logger
from typing import NamedTuple

from almoner._private import MARK
from almoner.errors import DataError

FIRST = 5  # number of entries that cannot be read whose places are shown
_BLANK = "[\\s\u00a0\u202f]*"
_SIGN = f"{_BLANK}([+-]?{_BLANK}[€$£¥]?|[€$£¥]{_BLANK}[+-]){_BLANK}"
_DIGITS = "([0-9]+|[0-9]{1,3}([%s '’\u00a0\u202f][0-9]{3})+)(%s[0-9]*)?"
_END = f"{_BLANK}[€$£¥]?{_BLANK}"
DECIMALS = {",": f"^{_SIGN}{_DIGITS % ('.', ',')}{_END}$", ".": f"^{_SIGN}{_DIGITS % (',', '[.]')}{_END}$"}
"""Numbers as people write them, by what stands before the decimals, as regular expressions: 1.234,5 and €12,50 with a
comma; 1,234.5 and €12.50 with a point. Which of the two it is must be declared: 1.234 may be either."""


class Misfit(NamedTuple):
    """A column with a type, and how many of its entries cannot be read. PRIVATE: the numbers are exact."""

    table: str | None  # the table's name; None for the only one
    column: str
    kind: str  # declared type: whole, number, bool, date, time, ... of questions; number or category in a schema
    entries: int  # number of entries that are not empty
    unfit: int  # number of them that are spelled otherwise, and count as missing
    first: tuple[str, ...] = ()  # places of the first of those: lines of files, rows of other tables

    def __repr__(self) -> str:
        return f"Misfit(column={self.column!r}, kind={self.kind!r}, {MARK})"

    @property
    def where(self) -> str:
        """The column, and of which table; public."""
        return f"column {self.column!r}" + ("" if self.table is None else f" of table {self.table!r}")

    def words(self) -> str:
        """A sentence for the data holder. PRIVATE."""
        places = f": {', '.join(self.first)}" if self.first else ""
        more = " ..." if self.first and len(self.first) < self.unfit else ""
        what = f"{self.unfit:,} of {self.entries:,} entries are no {self.kind!r}, and count as missing"
        return f"{self.where}: {what}{places}{more}"


def unread(found: Iterable[Misfit]) -> list[Misfit]:
    """Columns with entries none of which can be read. PRIVATE."""
    return [each for each in found if each.unfit == each.entries > 0]


def refuse(found: Sequence[Misfit], cure: str) -> None:
    """Refuse columns whose entries can none of them be read, by a DataError for the data holder, who opens the data.

    Its note, PRIVATE, has the numbers. Nothing in ``cure``, which says what to write, may depend on entries.
    """
    listed = unread(found)
    if not listed:
        return
    columns = " and ".join(f"{each.where} as a {each.kind!r}" for each in listed)
    refused = DataError(f"no entry can be read of {columns}: {cure}")
    for each in listed:
        refused.add_note(f"{MARK}: {each.words()}")
    raise refused


def tell(log: Logger, found: Sequence[Misfit], view: str) -> None:
    """Tell the data holder, in the log of their own process, that some entries cannot be read: in which columns alone.

    The log's handlers write where the data holder reads, and no analyst; ``view`` says where the numbers are.
    """
    some = [each.where for each in found if each.unfit]
    if some:
        told = "entries that cannot be read as the type of their column count as missing"
        log.warning(f"{told}: %s. %s says how many and where (%s)", ", ".join(some), view, MARK)

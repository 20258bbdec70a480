"""Watch whether the data of a running service are those that it was opened with: for the data holder's log."""

import logging
from collections.abc import Mapping

from almoner.queries import Session

__all__ = ["DATA_TEXTS", "DataLog"]

_LOG = logging.getLogger("almoner.service")

DATA_TEXTS: Mapping[str | None, str] = {
    None: "The data of table {!r} can be read again.",
    "away": "A file of table {!r} is away: questions are refused until it is back.",
    "changed": "A file of table {!r} is another one now: questions are refused until SIGHUP, or a new start.",
    "unfit": "The data could not be read for a question. Start the service again.",
}
"""Words for the data holder about the data, by the state of a table."""


class DataLog:
    """A line in the log for each change of what can be asked about; it names tables, and nothing of their rows."""

    def __init__(self) -> None:
        self._before: dict[str, str] = {}

    def state(self, session: Session, *, unreadable: bool) -> dict[str, str]:
        """The tables about which no question can be answered now, by name, each with why.

        Args:
            session: that is open, or was until its ledger was closed: then it can be opened again with all files as
                they were, and no others.
            unreadable: whether a question failed on the rows; then none is answered: "unfit", under the name "".
        """
        files = session.changed_files if session.ledger.store.closed else session.refused_files
        now: dict[str, str] = {**files, **({"": "unfit"} if unreadable else {})}
        before, self._before = self._before, now
        for name in before.keys() | now.keys():
            if before.get(name) != now.get(name):
                _LOG.warning(DATA_TEXTS[now.get(name)].format(name))
        return now

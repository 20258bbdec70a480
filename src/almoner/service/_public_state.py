"""Public state of each analyst, as it was when the ledger was last read: answers, prices, what is left."""

import threading
from collections.abc import Mapping
from datetime import date
from typing import Any

from almoner.queries import Analyst, Answer, SoFar

__all__ = ["PublicState"]

_MOST_ANSWERS = 256


class PublicState:
    """The public facts about each analyst. Reading them never waits for the ledger; ``read`` and ``catch_up`` may.

    Args:
        views: each analyst's view of the session.
    """

    def __init__(self, views: Mapping[str, Analyst]) -> None:
        self._views = views
        self._lock = threading.Lock()
        self._so_far: dict[str, SoFar] = {}
        self._by_key: dict[str, dict[str, Mapping[str, Any]]] = {name: {} for name in views}
        self._made: dict[str, Answer] = {}

    def of(self, name: str) -> SoFar:
        """The facts of an analyst."""
        return self._so_far[name]

    def read(self, name: str) -> SoFar:
        """The facts of an analyst as the ledger is now."""
        before = self._so_far.get(name)
        now = self._views[name].so_far(before)
        if now is not before:
            known = 0 if before is None else len(before.answers)
            with self._lock:
                self._by_key[name] |= {str(public["key"]): public for public in now.answers[known:]}
                self._so_far[name] = now
        return now

    def catch_up(self) -> None:
        """Read the facts of all analysts."""
        for name in self._views:
            self.read(name)

    def has(self, name: str, key: str) -> bool:
        """True if an analyst has an answer under a key of the ledger."""
        return key in self._by_key[name]

    def answer(self, name: str, key: str) -> tuple[Answer, Mapping[str, Any]] | None:
        """An analyst's answer under a key of the ledger, and what the record says of it."""
        public = self._by_key[name].get(key)
        if public is None:
            return None
        made = self._made.get(key)
        if made is None:
            made = self._so_far[name].answer(key)
            if made is None:
                return None
            with self._lock:
                if len(self._made) >= _MOST_ANSWERS:
                    self._made.pop(next(iter(self._made)))
                self._made[key] = made
        return made, public

    def charged_on(self, name: str, day: date) -> int:
        """Number of questions that were charged for an analyst on a day."""
        shown, number = day.isoformat(), 0
        for public in reversed(self._so_far[name].answers):
            if str(public["time"])[:10] < shown:
                break
            number += public["kind"] == "answered"
        return number

"""Limit the requests of each analyst: a bucket that fills at a steady rate."""

import threading
import time
from math import ceil

__all__ = ["Rates"]


class Rates:
    """A bucket for each analyst, full at first: a minute's requests at once, and that rate on the whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait(self, whose: str, a_minute: int, *, now: float | None = None) -> int:
        """0 if a request may be made, which is counted; else in how many seconds one may be made."""
        now = time.monotonic() if now is None else now
        with self._lock:
            tokens, last = self._buckets.get(whose, (float(a_minute), now))
            tokens = min(float(a_minute), tokens + (now - last) * a_minute / 60)
            allowed = tokens >= 1
            self._buckets[whose] = tokens - 1 if allowed else tokens, now
            return 0 if allowed else ceil((1 - tokens) * 60 / a_minute)

"""Count how the answers of a suite compare with ours, beside a judge that no valid answer may be below."""

import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from statistics import median
from time import perf_counter
from typing import Any

NEAR = 0.01
"""Relative difference up to which two answers agree."""


class TooLong(Exception):
    """A question took longer than its limit."""


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Stop a question after so many seconds."""

    def stop(*_: object) -> None:
        raise TooLong(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def timed(ask: Callable[..., float], *values: Any, **options: Any) -> tuple[float, float]:
    """An answer, and the seconds that it took."""
    start = perf_counter()
    answer = ask(*values, **options)
    return answer, perf_counter() - start


@dataclass
class Tally:
    """Comparison of answers, of which a smaller one is tighter: give lower bounds with a minus sign."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    looser: list[tuple[float, str]] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    judged: int = 0

    def add(self, question: str, ours: float, theirs: float, *, floor: float = -inf, time: float | None = None) -> None:
        """Count one question; the floor is the judge's, with its own error taken off."""
        self.judged += floor > -inf
        if ours < floor:
            self.below.append(f"{question}: {ours!r} < {floor!r}")
        if time is not None:
            self.ratios.append(time)
        if ours == theirs or abs(ours - theirs) <= NEAR * abs(theirs) + 1e-9:
            self.counts["agree"] += 1
        elif ours < theirs:
            self.counts["tighter"] += 1
        else:
            self.counts["looser"] += 1
            of, ours_or_theirs = (theirs, ours) if theirs >= 0 else (ours, theirs)
            self.looser.append((ours_or_theirs / of if of else inf, f"{question}: {ours:.6g}, theirs {theirs:.6g}"))

    def refuse(self, reason: str) -> None:
        """Count a question that has no answer here."""
        self.counts["refused"] += 1
        self.refusals[reason[:150]] += 1

    def show(self) -> None:
        """Print the counts, then what is looser, refused or below."""
        counts = ", ".join(f"{name} {self.counts[name]}" for name in ("agree", "tighter", "looser", "refused"))
        asked = sum(self.counts.values())
        print(f"{self.name}: {asked} questions: {counts}; {self.judged} judged, below {len(self.below)}")
        if self.ratios:
            print(f"  median time, ours by theirs: {median(self.ratios):.3g}; worst {max(self.ratios):.3g}")
        for ratio, line in sorted(self.looser, reverse=True)[:20]:
            print(f"  looser x {ratio:.4g}: {line}")
        for reason, count in self.refusals.most_common():
            print(f"  refused {count}: {reason}")
        for line in self.below:
            print(f"  BELOW {line}")

"""Counts and latencies of requests, for the data holder, in the text form of Prometheus. They name no person."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping

__all__ = ["Metrics", "exposition"]

EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Counters by name and labels, and one histogram of seconds for each route."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[str, Labels]] = Counter()
        self._seconds: dict[str, list[float]] = {}

    def count(self, name: str, **labels: str) -> None:
        """Add one to a counter."""
        with self._lock:
            self._counts[name, tuple(sorted(labels.items()))] += 1

    def took(self, route: str, seconds: float) -> None:
        """Add a request of a route to its histogram."""
        with self._lock:
            row = self._seconds.setdefault(route, [0.0] * (len(EDGES) + 2))
            row[bisect_left(EDGES, seconds)] += 1
            row[-1] += seconds

    def total(self, name: str, **labels: str) -> int:
        """The sum over all counters of a name that have these labels."""
        with self._lock:
            return sum(
                n for (each, has), n in self._counts.items() if each == name and labels.items() <= dict(has).items()
            )

    def text(self, more: Iterable[tuple[str, str, Mapping[str, str], float]] = ()) -> str:
        """All of it in the text form, with gauges beside it: (name, help, labels, value)."""
        with self._lock:
            counts, seconds = dict(self._counts), {route: list(row) for route, row in self._seconds.items()}
        lines: list[str] = []
        for name in sorted({name for name, _ in counts}):
            lines += [f"# TYPE privacy_{name}_total counter"]
            lines += [
                f"privacy_{name}_total{exposition(dict(labels))} {value}"
                for (each, labels), value in sorted(counts.items())
                if each == name
            ]
        if seconds:
            lines.append("# TYPE privacy_request_seconds histogram")
        for route, row in sorted(seconds.items()):
            lines += _histogram(route, row)
        told: set[str] = set()
        for name, about, labels, value in more:
            if name not in told:
                lines += [f"# HELP privacy_{name} {about}", f"# TYPE privacy_{name} gauge"]
                told.add(name)
            lines.append(f"privacy_{name}{exposition(labels)} {value:.10g}")
        return "\n".join(lines) + "\n"


def _histogram(route: str, row: list[float]) -> list[str]:
    lines, below = [], 0.0
    for edge, number in zip((*map(str, EDGES), "+Inf"), row[:-1], strict=True):
        below += number
        lines.append(f"privacy_request_seconds_bucket{exposition({'route': route, 'le': edge})} {below:.0f}")
    name = exposition({"route": route})
    return [
        *lines,
        f"privacy_request_seconds_sum{name} {row[-1]:.6f}",
        f"privacy_request_seconds_count{name} {below:.0f}",
    ]


def exposition(labels: Mapping[str, str]) -> str:
    """Labels in the text form."""
    escaped = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(escaped) + "}" if labels else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

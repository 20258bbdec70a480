"""Counts and latencies of requests, for the data holder, in the text form of Prometheus. They name no person."""

from collections.abc import Iterable, Iterator, Mapping

from almoner import _extras

with _extras.need("prometheus_client", extra="service"):
    from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
    from prometheus_client.core import GaugeMetricFamily, Metric

__all__ = ["Metrics", "gauge"]

_COUNTS = {
    "requests": ("Requests, by route and status.", ("route", "status")),
    "questions": ("Questions that were answered, or that an earlier answer was shared for.", ("analyst", "state")),
    "refusals": ("Requests that were refused, by the code that was told.", ("code",)),
    "failures": ("Errors that nobody foresaw, by name.", ("kind",)),
}
_EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters by name and labels, and one histogram of seconds for each route."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()  # the library's own one would be shared by all services of a process
        self._counts = {
            name: Counter(f"privacy_{name}", about, labels, registry=self._registry)
            for name, (about, labels) in _COUNTS.items()
        }
        about = "Seconds that requests took, by route."
        self._seconds = Histogram("privacy_request_seconds", about, ["route"], buckets=_EDGES, registry=self._registry)

    def count(self, name: str, **labels: str) -> None:
        """Add one to a counter."""
        self._counts[name].labels(**labels).inc()

    def took(self, route: str, seconds: float) -> None:
        """Add a request of a route to its histogram."""
        self._seconds.labels(route).observe(seconds)

    def total(self, name: str, **labels: str) -> int:
        """Value of the counter of this name that has these labels."""
        return int(self._registry.get_sample_value(f"privacy_{name}_total", labels) or 0)

    def text(self, gauges: Iterable[Metric]) -> bytes:
        """All of it, with gauges beside it."""
        return generate_latest(_Collected([*self._registry.collect(), *gauges]))


class _Collected:
    """Metrics without the moments at which their series began, which would be finer than a step of time."""

    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        for each in self._metrics:
            each.samples = [sample for sample in each.samples if not sample.name.endswith("_created")]
            yield each


def gauge(name: str, about: str, value: float | Mapping[str, float], *, label: str = "") -> Metric:
    """A gauge of one number, or of a number for each value of a label."""
    family = GaugeMetricFamily(f"privacy_{name}", about, labels=[label] if label else [])
    for each, number in value.items() if isinstance(value, Mapping) else [("", value)]:
        family.add_metric([each] if label else [], float(number))
    return family

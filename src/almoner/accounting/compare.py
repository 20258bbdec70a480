"""Compare all bounds that apply to one mechanism: for rounds fixed in advance, by filters, by odometers.

>>> from almoner import mechanisms
>>> table = compare(mechanisms.Gaussian(sigma=20.0), rounds=10, delta=1e-5, points=1)
>>> table.rounds
(1, 10)
>>> round(table.bound("exact, rounds fixed in advance").epsilons[-1], 4)
0.5613
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from math import e, expm1, inf, isfinite, log, sqrt, tanh

import numpy as np

from almoner import _check, _search, filters, mechanisms, odometers
from almoner._units import exact, shown
from almoner.accounting.answers import TOLERANCE, plan_fits
from almoner.curves import approximate, gaussian, renyi
from almoner.curves._totals import optimum, totals
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported

__all__ = ["Bound", "Comparison", "compare", "optimum"]

_STRONG = "strong composition (Dwork et al.)", "strong composition (Kairouz)"
_FIXED = {
    "privacy loss distributions": "loss distributions, rounds fixed",
    "Gaussian DP, exact": "exact, rounds fixed in advance",
    "pure DP, exact": "optimum, rounds fixed in advance",
    "zCDP": "zCDP, rounds fixed in advance",
    "Rényi DP": "Rényi, rounds fixed in advance",
    "basic composition": "basic composition",
}  # the rows of ``curves._totals`` that ``compare`` shows, in its order, and their names there

Rows = Iterator[tuple[str, str, Callable[[int], float]]]  # name, promise, and the epsilon after a number of rounds
Running = odometers.Odometer | odometers.FeldmanZrnic | odometers.GaussianRestarts


@dataclass(frozen=True, slots=True)
class Bound:
    """One bound along the rounds. Every field is public.

    Attributes:
        name: the filter, the odometer or the notion of privacy that gives the bound.
        promise: "fixed" (rounds fixed in advance), "filter" (the smallest epsilon whose filter admits the rounds),
            "pathwise", "ex-post" (odometers) or "restarts" (a number of filters fixed in advance).
        epsilons: one for each number of rounds, nats.
    """

    name: str
    promise: str
    epsilons: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Bounds of one mechanism, side by side. Every field is public."""

    mechanism: mechanisms.Mechanism
    delta: float
    rounds: tuple[int, ...]
    bounds: tuple[Bound, ...]

    def bound(self, name: str) -> Bound:
        """The bound with this name.

        Raises:
            ArgumentError: there is none; the message lists the names.
        """
        for bound in self.bounds:
            if bound.name == name:
                return bound
        raise ArgumentError(f"name={name!r} must be one of {', '.join(repr(bound.name) for bound in self.bounds)}")

    def as_dict(self) -> dict[str, object]:
        """Plain numbers and lists for JSON; null where a bound is infinite."""
        bounds = [
            asdict(bound) | {"epsilons": [epsilon if isfinite(epsilon) else None for epsilon in bound.epsilons]}
            for bound in self.bounds
        ]
        return {"mechanism": repr(self.mechanism), "delta": self.delta, "rounds": [*self.rounds], "bounds": bounds}

    def __str__(self) -> str:
        """A table: one line a bound, one column a number of rounds."""
        rows = [[shown(epsilon, 4) for epsilon in bound.epsilons] for bound in self.bounds]
        heads = [str(rounds) for rounds in self.rounds]
        width = max(len(bound.name) for bound in self.bounds)
        columns = [max(map(len, column)) + 1 for column in zip(heads, *rows, strict=True)]
        lines = [f"Epsilon after so many rounds of {self.mechanism!r}, at delta={self.delta:g}:"]
        labels = [("", "promise"), *((bound.name, bound.promise) for bound in self.bounds)]
        for (name, promise), numbers in zip(labels, [heads, *rows], strict=True):
            listed = "".join(f"{number:>{wide}}" for number, wide in zip(numbers, columns, strict=True))
            lines.append(f"{name:{width}} {promise:8}{listed}")
        return "\n".join(lines)


def compare(
    mechanism: mechanisms.Mechanism, *, rounds: int, delta: float, points: int = 8, people: int = 100_000
) -> Comparison:
    """Every bound that applies to this mechanism, at a geometric list of numbers of rounds.

    Args:
        mechanism: one round, public.
        rounds: the most rounds; also the plan of the bounds that are tuned to one.
        delta: the failure probability of each bound, in (0, 1/2).
        points: how many numbers of rounds to look at.
        people: the number of people in the data set, public: only the odometer of Rogers et al. needs it.

    Guarantee: each bound has the promise that its line names, alone. The smallest of several is no bound of any kind
    unless delta is split between them (theory 1.5).
    Source: theory 3, 4 and 6.
    """
    _check.whole(1, rounds=rounds, points=points)
    _check.between(0, 0.5, delta=delta)
    counts = tuple(sorted({int(count) for count in np.geomspace(1, rounds, points).round()} | {rounds}))
    bounds = _fixed(mechanism, counts, delta)
    least = [min(bound.epsilons[place] for bound in bounds) for place in range(len(counts))] if bounds else [1.0]
    starts = dict(zip(counts, least * (1 if bounds else len(counts)), strict=True))
    kinds = (*_filters(mechanism, delta, starts), *_odometers(mechanism, rounds, delta, people))
    for name, promise, epsilon_after in kinds:
        try:
            bounds.append(Bound(name, promise, tuple(float(epsilon_after(count)) for count in counts)))
        except (Unsupported, BudgetExceeded):
            continue  # it does not apply to this mechanism
    return Comparison(mechanism, delta, counts, tuple(bounds))


def _fixed(mechanism: mechanisms.Mechanism, counts: tuple[int, ...], delta: float) -> list[Bound]:
    epsilons: dict[str, list[float]] = {notion: [] for notion in _FIXED}
    for count in counts:
        for row in totals(mechanisms.Repeated(mechanism, count), delta=delta):
            if row.notion in epsilons:
                epsilons[row.notion].append(row.epsilon)
    full = {_FIXED[notion]: tuple(column) for notion, column in epsilons.items() if len(column) == len(counts)}
    with suppress(Unsupported):
        full |= zip(_STRONG, zip(*(_strong(mechanism, count, delta) for count in counts), strict=True), strict=True)
    return [Bound(name, "fixed", column) for name, column in full.items()]


def _strong(mechanism: mechanisms.Mechanism, count: int, delta: float) -> tuple[float, float]:
    """Two epsilons that rounds of pure or approximate mechanisms keep to, as printed; inf where all of delta may fail.

    Guarantee: so many rounds, fixed in advance, are (epsilon, delta)-DP with each.
    Source: Dwork, Rothblum & Vadhan (2010), Theorem III.3; Kairouz, Oh & Viswanath (2015), Theorem 3.4
    """
    cost, failure = approximate.cost(mechanism)
    epsilon, rest = float(cost), float(exact(delta) - count * failure) * (1 - 1e-9)
    if not (epsilon < 700 and rest > 0):
        return inf, inf
    spread, wide = (epsilon * sqrt(2 * count * log(x)) for x in (1 / rest, e + sqrt(count) * epsilon / rest))
    kairouz = count * epsilon * tanh(epsilon / 2) + min(spread, wide)
    return (spread + count * epsilon * expm1(epsilon)) * (1 + 1e-9), min(count * epsilon, kairouz) * (1 + 1e-9)


def _filters(mechanism: mechanisms.Mechanism, delta: float, starts: Mapping[int, float]) -> Rows:
    """The filters by name; ``starts`` holds, for each number of rounds, an epsilon from which to search."""

    def least(fits: Callable[..., bool], count: int) -> float:
        known = partial(fits, mechanisms.Repeated(mechanism, count), delta)
        return _search.least(known, near=starts[count] if starts[count] < inf else 1.0, tolerance=TOLERANCE)

    yield "filters.Planned", "filter", partial(least, partial(plan_fits, mechanism))
    authors = {"Approximate": " (Whitehouse)", "Pure": " (Feldman & Zrnic)"}
    for name in ("Gaussian", "Residue", "Zcdp", "Renyi", "Approximate", "Pure", "Rogers"):
        yield f"filters.{name}{authors.get(name, '')}", "filter", partial(least, partial(_fits, getattr(filters, name)))


def _fits(kind: Callable[..., filters.Filter], run: mechanisms.Mechanism, delta: float, epsilon: float) -> bool:
    return kind(epsilon=epsilon, delta=delta).admits(run)


def _odometers(mechanism: mechanisms.Mechanism, rounds: int, delta: float, people: int) -> Rows:
    plan = mechanisms.Repeated(mechanism, rounds)
    recommended: tuple[tuple[str, Callable[[], odometers.Odometer]], ...] = (
        ("odometers.Renyi", lambda: odometers.Renyi(delta=delta)),
        ("odometers.Renyi, planned", lambda: odometers.Renyi(delta=delta, plan=plan)),
        ("odometers.Gaussian", lambda: odometers.Gaussian(delta=delta)),
        ("odometers.Gaussian, planned", lambda: odometers.Gaussian(delta=delta, plan=plan)),
        ("odometers.Line, planned", lambda: odometers.Line(delta=delta, plan=plan)),
    )
    for name, make in recommended:
        yield name, "pathwise", partial(_charged, make, mechanism, "epsilon")
        yield f"{name}, ex-post", "ex-post", partial(_charged, make, mechanism, "ex_post_epsilon")
    published: tuple[tuple[str, str, Callable[[], Running]], ...] = (
        ("odometers.Mixture (Whitehouse)", "pathwise", lambda: odometers.Mixture(delta=delta, plan=plan)),
        ("odometers.Stitched (Whitehouse)", "pathwise", lambda: odometers.Stitched(delta=delta)),
        ("odometers.Lecuyer", "pathwise", lambda: odometers.Lecuyer(delta=delta)),
        ("odometers.Rogers", "pathwise", lambda: odometers.Rogers(delta=delta, people=people)),
        ("odometers.FeldmanZrnic, ten", "restarts", lambda: _feldman_zrnic(plan, delta)),
        ("odometers.GaussianRestarts, ten", "restarts", lambda: _restarts(plan, delta)),
    )
    for name, promise, other in published:
        yield name, promise, partial(_charged, other, mechanism, "epsilon")


def _charged(make: Callable[[], Running], mechanism: mechanisms.Mechanism, bound: str, count: int) -> float:
    odometer = make()
    odometer.charge(mechanisms.Repeated(mechanism, count))
    return float(getattr(odometer, bound)())


def _feldman_zrnic(plan: mechanisms.Repeated, delta: float) -> odometers.FeldmanZrnic:
    """Filters of a tenth of the plan, or of one round if that is more, at the order that is best for the plan."""
    alpha, _ = renyi.of(plan).order(delta=delta)
    total, single = (float(renyi.cost(run, alpha)) for run in (plan, plan.mechanism))
    return odometers.FeldmanZrnic(delta=delta, alpha=alpha, step=max(total / 10, single) * (1 + 1e-9))


def _restarts(plan: mechanisms.Repeated, delta: float) -> odometers.GaussianRestarts:
    total, single = (gaussian.of(run).mu for run in (plan, plan.mechanism))
    return odometers.GaussianRestarts(delta=delta, step=max(total / sqrt(10), single) ** 2 * (1 + 1e-9))

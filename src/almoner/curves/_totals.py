"""Price one run in every notion of privacy that has a price for it, side by side.

>>> for row in totals(mechanisms.Repeated(mechanisms.Gaussian(sigma=170.0), 104), delta=1e-5)[:2]:
...     print(row.notion, row.total, round(row.epsilon, 4))
Gaussian DP, exact mu = 0.0599885 0.1952
zCDP rho = 0.00179931 0.2161

Source: the statements of the theory that each row names.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np
from scipy import special

from almoner import _check, mechanisms
from almoner._search import edge
from almoner._units import exact, shown
from almoner.curves import _selection, approximate, gaussian, renyi, zcdp
from almoner.errors import Unsupported

_MOST_ROUNDS = 10**7  # most rounds of the exact pure bound

_ADAPTIVE, _IN_ADVANCE = "within a budget, however adaptive", "fixed in advance"


@dataclass(frozen=True, slots=True)
class Total:
    """Cost of one run in one notion of privacy. Every field is public.

    Attributes:
        notion: the notion of privacy, and the conversion to epsilon where there are several.
        total: the run's parameter in that notion, in words, rounded up; empty where another row shows it.
        epsilon: nats, at the delta that was asked for; rounded up.
        holds: whether the epsilon also holds for rounds chosen adaptively within a budget of that total.
        source: the statements of the theory.
    """

    notion: str
    total: str
    epsilon: float
    holds: str
    source: str


def totals(run: mechanisms.Mechanism, *, delta: float) -> tuple[Total, ...]:
    """Price a run in every notion of privacy that has a price for it, side by side.

    The first row is the exact epsilon where there is a formula for it, else that of privacy loss distributions, where
    the run has any. The run is public, with all its rounds, ``Repeated(step, steps)``; delta in (0, 1).

    Guarantee: the run, fixed in advance, is (epsilon, delta)-DP with the epsilon of each row; a row that holds "however
    adaptive" also bounds rounds chosen from past results, while a filter with that total as its budget admits them.
    Source: theory 2.3, 3 and 4.
    """
    _check.between(0, 1, delta=delta)
    rows: list[Total] = []
    for price in (_gaussian, _pure, _tuned, _losses, _zcdp, _renyi, _basic):
        if price is _losses and any(_exact(row) for row in rows):
            continue  # the exact epsilon is there
        try:
            rows += price(run, delta)
        except Unsupported:
            continue  # this notion has no price for the run
    return tuple(rows)


def _exact(row: Total) -> bool:
    return row.notion.endswith(", exact") and row.epsilon < inf


def tightest(run: mechanisms.Mechanism, *, delta: float) -> Total:
    """The row of :func:`totals` with the least epsilon; the others are not worked out where one is exact.

    Raises:
        Unsupported: no notion has a price for the run.

    Guarantee: the run, fixed in advance, is (epsilon, delta)-DP.
    Source: theory 2.3, 3, 4.13 and 7.2.
    """
    _check.between(0, 1, delta=delta)
    for price in (_gaussian, _pure):
        try:
            row = next(price(run, delta))
        except Unsupported:
            continue
        if _exact(row):
            return row
    rows = totals(run, delta=delta)
    if not rows:
        raise Unsupported(f"{run!r} has no price in any notion of privacy")
    return min(rows, key=lambda row: row.epsilon)


def _gaussian(run: mechanisms.Mechanism, delta: float) -> Iterator[Total]:
    exact = gaussian.of(run)
    epsilon = exact.epsilon(delta=delta)
    own = any(isinstance(leaf, mechanisms.Paired) for leaf in mechanisms.leaves(run))
    yield Total(
        "Gaussian DP" if own else "Gaussian DP, exact",
        f"mu = {shown(exact.mu, 6)}",
        epsilon,
        _ADAPTIVE,
        "theory 3.3, 4.3",
    )


def _losses(run: mechanisms.Mechanism, delta: float) -> Iterator[Total]:
    from almoner.curves.losses import epsilon_at  # here: exact epsilons need none of it

    epsilon = epsilon_at(mechanisms.leaves(run), delta=delta)
    yield Total("privacy loss distributions", "certified", epsilon, _IN_ADVANCE, "theory 4.13, 7.2")


def _tuned(run: mechanisms.Mechanism, delta: float) -> Iterator[Total]:
    best = _selection.only(run)
    if best is None:
        raise Unsupported("not the best of several runs")
    from almoner.curves import tuning  # here: all other runs need none of it

    total = f"{shown(best.runs, 6)} runs expected"
    yield Total("hockey-stick curve of one run", total, tuning.epsilon(best, delta=delta), _IN_ADVANCE, "theory 8.2")


def _zcdp(run: mechanisms.Mechanism, delta: float) -> Iterator[Total]:
    total = zcdp.of(run)
    yield Total("zCDP", f"rho = {shown(total.rho, 6)}", total.epsilon(delta=delta), _ADAPTIVE, "theory 3.2, 4.2")


def _renyi(run: mechanisms.Mechanism, delta: float) -> Iterator[Total]:
    curve = renyi.of(run)
    alpha, at_edge = curve.order(delta=delta)
    total = f"order {alpha:g}" + (" (edge of the grid)" if at_edge else "")
    yield Total("Rényi DP", total, curve.epsilon(delta=delta), _IN_ADVANCE, "theory 3.2, 4.1")
    mironov = float(renyi.mironov(curve.values, curve.orders, delta=delta))
    yield Total("Rényi DP, Mironov's conversion", "", mironov, _IN_ADVANCE, "theory 3.1")


def _pure(run: mechanisms.Mechanism, delta: float) -> Iterator[Total]:
    step, count = mechanisms.repeated(run)
    yield Total("pure DP, exact", f"{count} rounds", optimum(step, count, delta), _IN_ADVANCE, "theory 2.3")


def _basic(run: mechanisms.Mechanism, delta: float) -> Iterator[Total]:
    sums = approximate.of(run)
    total = f"epsilon = {shown(sums.epsilon, 6)}, delta = {shown(sums.delta, 6)}"
    epsilon = sums.epsilon if approximate.cost(run)[1] <= exact(delta) else inf
    yield Total("basic composition", total, epsilon, _IN_ADVANCE, "theory 2.2 to 2.5")


def optimum(mechanism: mechanisms.Mechanism, rounds: int, delta: float) -> float:
    """The exact epsilon of equal pure rounds whose number is fixed in advance, to 1e-9, rounded up.

    Raises:
        Unsupported: the mechanism is not pure, or there are more than 10**7 rounds.

    Guarantee: so many rounds of the mechanism, fixed in advance, are (epsilon, delta)-DP; no smaller epsilon holds.
    Source: theory 2.3; Kairouz, Oh & Viswanath (2015), Theorem 3.3.
    """
    if not isinstance(mechanism, mechanisms.Pure | mechanisms.RandomizedResponse):
        raise Unsupported(f"{type(mechanism).__name__} is not dominated exactly by randomised response")
    if rounds > _MOST_ROUNDS:
        raise Unsupported(f"the exact epsilon of {rounds} rounds is not computed: at most {_MOST_ROUNDS}")
    if mechanism.epsilon == inf:
        return inf
    lies = np.arange(rounds + 1)
    losses = mechanism.epsilon * (1 + 2.0**-50) * (rounds - 2.0 * lies)
    from scipy import stats  # slow to import, and needed here only

    shares = stats.binom.pmf(lies, rounds, special.expit(-mechanism.epsilon))  # but for what no float is as small as

    def holds(at: float) -> bool:
        return float(np.sum(shares * -np.expm1(np.minimum(at - losses, 0.0)))) <= delta * (1 - 1e-8) - rounds * 1e-323

    return 0.0 if holds(0.0) else edge(holds, float(losses[0]), 0.0, relative=1e-10)

"""Write down an epsilon so that others can check it, with a program that uses nothing of Almoner.

A certificate is a dictionary for JSON: a run, an epsilon, a delta, and what a checker needs to prove that the run is
(epsilon, delta)-DP. ``tools/check_certificate.py`` in the repository is such a checker: 250 lines of whole-number and
interval arithmetic.

>>> from almoner import mechanisms
>>> certificate = of_run(mechanisms.Repeated(mechanisms.Gaussian(sigma=20.0), 100), delta=1e-5)
>>> certificate["kind"], round(float(certificate["epsilon"]), 3)
('gaussian', 1.993)

Source: docs/certificates.md; theory 3.2, 3.3, 7.2.
"""

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, inf, log, log2, sqrt
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve

from almoner import _check, _notions, _search, filters, mechanisms
from almoner.curves import _loss_grid, _totals, gaussian, renyi
from almoner.errors import ArgumentError, Unsupported

__all__ = ["of_filter", "of_run"]

Floats = NDArray[np.float64]
Fields = dict[str, Any]
Rounds = dict[mechanisms.Mechanism, int]

ADJACENCY = "add or remove one person, with all of that person's records"
THEOREMS = {
    "gaussian": "theory 3.3: rounds fixed in advance; 4.3: within this budget, under full adaptivity",
    "renyi": "theory 3.2: rounds fixed in advance; 4.1: within this budget at this order, under full adaptivity",
    "losses": "theory 7.2: rounds fixed in advance; 4.11: as a filter's plan, under full adaptivity",
}
"""The worth of a certificate of each kind."""

_BITS = 64
_MOST_PLACES = 1024  # on either side of 0, so that a check takes less than a second
_FINE = 12  # places in one standard deviation of one round's loss, if there is room
_MOST_EPSILON, _MOST_ROUNDS, _SMALLEST = 500.0, 10**7, 1e-9
_MOST_SAMPLED_ORDER = 2000
_DIGITS = 60.0  # of Gaussian rounds, epsilon - log(delta): above it 136 binary digits do not tell the two terms apart
_GRID_DIGITS = 57.0  # of the end of a grid; less for a finer step and for more rounds
_KINDS = ("Gaussian", "SampledGaussian", "Laplace", "Pure", "Approximate", "Zcdp")


def of_run(run: mechanisms.Mechanism, /, *, delta: float, order: int | None = None) -> dict[str, Any]:
    """The certificate of a run that was fixed in advance.

    Args:
        run: public; rounds of Gaussian, sampled Gaussian, Laplace, randomised response, pure or approximate mechanisms.
        delta: public, in [1e-12, 1).
        order: a whole Rényi order above 1: certify by Rényi divergences at this order, which is quicker and looser.
            None: exactly for Gaussian rounds, else by privacy loss distributions on a grid.

    Returns:
        Fields for JSON. Its epsilon is never below that of ``curves._totals``, and a little above it on a grid.

    Raises:
        Unsupported: a round is of another kind, or so many that the grid would be too coarse.

    Guarantee: the run, fixed in advance, is (epsilon, delta)-DP with the epsilon of the certificate.
    Source: theory 3.2, 3.3, 7.2; docs/certificates.md.
    """
    return _certified(run, delta, order, 0.0)


def _certified(run: mechanisms.Mechanism, delta: float, order: int | None, least: float) -> dict[str, Any]:
    _check.within(1e-12, 1 - 1e-12, delta=delta)
    rounds = {_known(leaf): count for leaf, count in mechanisms.leaves(run).items()}
    if not 1 <= len(rounds) <= 20:
        raise Unsupported(f"a certificate names 1 to 20 kinds of rounds, not {len(rounds)}")
    if order is not None:
        _check.whole(2, order=order)
        if any(isinstance(leaf, mechanisms.Laplace | mechanisms.Pure | mechanisms.Approximate) for leaf in rounds):
            raise Unsupported("certificates by Rényi divergences name Gaussian, sampled Gaussian and zCDP rounds only")
        if order > _MOST_SAMPLED_ORDER and any(isinstance(leaf, mechanisms.SampledGaussian) for leaf in rounds):
            raise Unsupported(f"order={order!r}: sampled rounds are checked at orders up to {_MOST_SAMPLED_ORDER}")
        value = float(renyi.epsilon(renyi.values(run, [order]), [order], delta=delta))
        return _signed("renyi", rounds, max(least, value), delta, delta, {"order": str(order)})
    if any(isinstance(leaf, mechanisms.Zcdp) for leaf in rounds):
        raise Unsupported("zCDP rounds have no privacy loss distribution: give an order")
    if all(isinstance(leaf, mechanisms.Gaussian) for leaf in rounds):
        return _signed("gaussian", rounds, max(least, gaussian.of(run).epsilon(delta=delta)), delta, delta, {})
    return _on_grid(rounds, max(least, _totals.tightest(run, delta=delta).epsilon), delta)


def of_filter(account: filters.Filter, /) -> dict[str, Any]:
    """The certificate of what a filter's budget promises, under full adaptivity.

    Args:
        account: a ``filters.Gaussian``, ``filters.RenyiOrder`` with a whole order, or ``filters.Planned`` that was not
            charged yet and has no reserve, with an epsilon and a delta of its own.

    Returns:
        As of ``of_run``; its epsilon is never below the filter's own.

    Raises:
        Unsupported: another filter, a plan of another kind, or a plan beside which change is kept in reserve.
        ArgumentError: the filter has no delta of its own, or was charged.

    Guarantee: the run that the certificate names is (epsilon, delta)-DP; by the theorem that it names, whatever the
        filter admits is.
    Source: theory 3.2, 3.3, 4.1, 4.3, 4.11.
    """
    if account.delta is None:
        raise ArgumentError("the budget has no delta of its own: give it epsilon= and delta=")
    delta, promised = account.delta, account.epsilon()
    if isinstance(account, filters.Gaussian):
        return _certified(mechanisms.Gaussian(1 / account.mu), delta, None, promised)
    if isinstance(account, filters.RenyiOrder):
        if account.alpha % 1:
            raise Unsupported(f"alpha={account.alpha!r} must be whole")
        return _certified(mechanisms.Zcdp(account.rho / account.alpha), delta, int(account.alpha), promised)
    if isinstance(account, filters.Planned):
        if account.count:
            raise ArgumentError("the plan was charged already: certify the fresh filter")
        notion = cast(_notions.Planned, account.notion)
        if notion.prices.change:
            raise Unsupported(
                f"reserve={notion.reserve!r}: what is kept for other rounds is no part of the plan, so that the plan "
                "alone says too little; certificates are for plans that fill the budget, with reserve=0"
            )
        return _certified(mechanisms.Repeated(notion.plan, notion.prices.rounds), delta, None, promised)
    raise Unsupported(f"{type(account).__name__} has no certificate: take Gaussian, RenyiOrder or Planned")


def _known(leaf: mechanisms.Mechanism) -> mechanisms.Mechanism:
    if isinstance(leaf, mechanisms.RandomizedResponse):
        return mechanisms.Pure(leaf.epsilon)
    if type(leaf).__name__ not in _KINDS:
        raise Unsupported(f"{type(leaf).__name__} has no certificate; those that have: {', '.join(_KINDS)}")
    return leaf


def _text(value: float | Fraction) -> str:
    """A decimal that is the number itself, as ``_units.exact`` reads it."""
    return str(value) if isinstance(value, Fraction) else repr(float(value) + 0.0)  # without the sign of -0.0


def _signed(kind: str, rounds: Rounds, epsilon: float, delta: float, bound: float, more: Fields) -> Fields:
    if not epsilon < inf:
        raise Unsupported(f"nothing finite is known at delta={delta!r}")
    _refuse_unchecked(kind, rounds, epsilon, delta)
    listed = []
    for leaf, count in rounds.items():
        fields = mechanisms.to_fields(leaf)
        name = fields.pop("kind")
        listed.append({"kind": name, "count": count, **{key: _text(value) for key, value in fields.items()}})  # type: ignore[arg-type]
    content: Fields = {"format": 1, "kind": kind, "adjacency": ADJACENCY, "theorem": THEOREMS[kind]}
    content |= {"epsilon": _text(epsilon * (1 + 1e-12)), "delta": _text(delta), "bound": _text(bound)}
    content |= {"rounds": listed, **more}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return {**content, "digest": hashlib.sha256(text.encode()).hexdigest()}


def _refuse_unchecked(kind: str, rounds: Rounds, epsilon: float, delta: float) -> None:
    """Refuse what the checker would refuse, because its numbers or its time do not suffice."""
    most = min(_MOST_EPSILON, _DIGITS + log(delta)) if kind == "gaussian" else _MOST_EPSILON
    if epsilon > most:
        raise Unsupported(f"epsilon={epsilon:.6g} at delta={delta!r} is above {most:.6g}, the most that is checked")
    for leaf, count in rounds.items():
        if count > _MOST_ROUNDS:
            raise Unsupported(f"{count} rounds of {leaf!r}: at most {_MOST_ROUNDS} are checked")
        for name, value in mechanisms.to_fields(leaf).items():
            number = 1.0 if name == "kind" else float(cast(float, value))
            if not (_SMALLEST <= number <= 1 / _SMALLEST or (number == 0 and name in ("epsilon", "delta"))):
                raise Unsupported(f"{name}={number!r} is out of [{_SMALLEST:g}, {1 / _SMALLEST:g}], which is checked")


@dataclass(frozen=True, slots=True)
class _Law:
    """A composition on the grid: masses from the place ``first`` on, and the mass of infinite losses. No bound."""

    first: int
    masses: Floats
    beyond: float

    def times(self, other: "_Law", places: int) -> "_Law":
        first, masses = self.first + other.first, np.maximum(fftconvolve(self.masses, other.masses), 0.0)
        beyond = self.beyond * float(other.masses.sum() + other.beyond) + float(self.masses.sum()) * other.beyond
        if first < -places:
            cut = -places - first
            masses = np.concatenate([[masses[: cut + 1].sum()], masses[cut + 1 :]])
            first = -places
        kept = places + 1 - first
        return _Law(first, masses[:kept], beyond + float(masses[kept:].sum()))

    def to_the(self, count: int, places: int) -> "_Law":
        result = _Law(0, np.ones(1), 0.0)
        for digit in bin(count)[2:]:
            result = result.times(result, places)
            result = result.times(self, places) if digit == "1" else result
        return result

    def delta(self, epsilon: float, step: float) -> float:
        losses = step * (self.first + np.arange(len(self.masses)))
        return float(self.masses @ np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0)))) + self.beyond


def _on_grid(rounds: Rounds, least: float, delta: float) -> Fields:
    if not least < inf:
        raise Unsupported(f"nothing finite is known at delta={delta!r}")
    found = [_in_window(rounds, *_grid(rounds, least, wider), least, delta) for wider in (1, 3, 9, 27)]
    epsilon, bound, more = min(found, key=lambda each: each[0])
    if epsilon > 2 * least + 0.01:
        raise Unsupported("the rounds are too many or too different for a grid that is checked in a second")
    return _signed("losses", rounds, epsilon, delta, bound, more)


def _in_window(rounds: Rounds, step: float, places: int, least: float, delta: float) -> tuple[float, float, Fields]:
    """About the least epsilon that is proven on this grid, the delta there, and the fields of the grid."""
    both = [_Law(0, np.ones(1), 0.0)] * 2
    inside = places - 1 - places // 16  # lattice.laws moves small masses by several places, the checker by one
    for leaf, count in rounds.items():
        for side, law in enumerate(_loss_grid.laws(leaf, step, 1e-18)):
            one = _Law(0, np.ones(1), 0.0).times(_Law(law.first, law.weights, law.leak), inside)
            both[side] = both[side].times(one.to_the(count, places), places)
    rounding = 2.0 ** (12 - _BITS) * sum(rounds.values()) * places + 1e-14

    def bound(epsilon: float) -> float:
        return max(law.delta(epsilon, step) for law in both) * (1 + 1e-6) + rounding

    top = places * step
    if top > _GRID_DIGITS + 2 * log(step) - log(sum(rounds.values())) or bound(top) > delta:
        return inf, delta, {}
    epsilon = least if bound(least) <= delta else _search.edge(lambda at: bound(at) <= delta, top, least, relative=1e-6)
    beyond = max(law.beyond for law in both) * (1 + 1e-6) + rounding
    more = {"step": str(Fraction(step)), "places": places, "bits": _BITS, "beyond": _text(min(1.0, beyond))}
    return epsilon, min(delta, bound(epsilon)), more


def _grid(rounds: Rounds, least: float, wider: float) -> tuple[float, int]:
    """A step that is a power of two, and the places of a window beyond which little mass lies."""
    single = [_loss_grid.spread(_loss_grid.laws(leaf, 2.0**-12, 1e-18)[0], 2.0**-12) for leaf in rounds]
    together = sqrt(sum(count * spread**2 for count, spread in zip(rounds.values(), single, strict=True)))
    top = least + wider * max(2.0 * together, 0.05 * least) + 1e-6
    step = 2.0 ** ceil(log2(max(min(single) / _FINE, top / _MOST_PLACES, 1e-6)))
    return step, min(_MOST_PLACES, ceil(top / step) + 1)

"""Privacy accountants in the interface of dp_accounting, each of which counts in a notion of ours."""

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from almoner import _check, _extras, mechanisms
from almoner.curves import approximate, gaussian, losses, renyi, zcdp
from almoner.curves.totals import tightest
from almoner.errors import ArgumentError, Unsupported

if TYPE_CHECKING:
    from dp_accounting import PrivacyAccountant

__all__ = ["NOTIONS", "accountant_of"]


def _certified(run: mechanisms.Mechanism, delta: float) -> float:
    rounds = mechanisms.leaves(run)
    return float(losses.epsilons(np.asarray([[*rounds.values()]]), [*rounds], delta=delta)[0])


def _basic(run: mechanisms.Mechanism, delta: float) -> float:
    sums = approximate.of(run)
    return sums.epsilon if sums.delta <= delta else inf


NOTIONS: dict[str, Callable[[mechanisms.Mechanism, float], float]] = {
    "tightest": lambda run, delta: tightest(run, delta=delta).epsilon,
    "losses": _certified,
    "gaussian": lambda run, delta: gaussian.of(run).epsilon(delta=delta),
    "zcdp": lambda run, delta: zcdp.of(run).epsilon(delta=delta),
    "renyi": lambda run, delta: renyi.of(run).epsilon(delta=delta),
    "basic": _basic,
}


def _by_losses(run: mechanisms.Mechanism) -> None:
    rounds = list(mechanisms.leaves(run))
    losses.epsilons(np.zeros((1, len(rounds)), np.int64), rounds, delta=0.5)  # nobody takes part: only laws are made


_CHECKS: dict[str, Callable[[mechanisms.Mechanism], object]] = {
    "gaussian": gaussian.cost,
    "zcdp": zcdp.cost,
    "basic": approximate.cost,
    "renyi": lambda run: renyi.of(run, (2.0,)),
    "losses": _by_losses,
}
"""What raises Unsupported where a mechanism has no price in a notion, without working the price out."""


def _check_priced(notion: str, run: mechanisms.Mechanism) -> None:
    if notion != "tightest":
        _CHECKS[notion](run)
        return
    for check in _CHECKS.values():
        try:
            check(run)
        except Unsupported:
            continue
        return
    raise Unsupported(f"{run!r} has no price in any notion of privacy")


def accountant_of(
    notion: str, read: Callable[[Any], mechanisms.Mechanism | None], *, null_records: bool
) -> "PrivacyAccountant":
    """A fresh accountant that counts in this notion.

    Args:
        notion: one of ``NOTIONS``.
        read: the mechanism of an event; None of one without privacy, from which on epsilon is infinite.
        null_records: which relation it says that it has.
    """
    _check.one_of(list(NOTIONS), notion=notion)
    with _extras.need("dp_accounting", extra="interop"):
        from dp_accounting import NeighboringRelation, PrivacyAccountant
    epsilon = NOTIONS[notion]

    class Accountant(PrivacyAccountant):  # type: ignore[misc]
        """Counts what was composed in a notion of Almoner."""

        def __init__(self) -> None:
            relation = "REPLACE_SPECIAL" if null_records else "ADD_OR_REMOVE_ONE"
            super().__init__(NeighboringRelation[relation])
            self._rounds: list[mechanisms.Mechanism] = []
            self._exposed = False

        def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
            try:
                mechanism = read(event)
                if mechanism is not None:
                    _check_priced(notion, mechanism)
            except (ArgumentError, Unsupported) as refused:
                return self.CompositionErrorDetails(event, str(refused))
            if mechanism is None:
                self._exposed |= do_compose and count > 0
            elif do_compose:
                self._rounds.append(mechanisms.Repeated(mechanism, count))
            return None

        def get_epsilon(self, target_delta: float) -> float:
            if self._exposed:
                return inf
            run = mechanisms.Composed(tuple(self._rounds))
            return float(epsilon(run, target_delta)) if mechanisms.leaves(run) else 0.0

    return Accountant()

"""Exact enumeration: the true delta of an interaction of discrete rounds, chosen from the results so far.

A round is a pair of laws over the same outcomes, with and without one person, and for each outcome what comes next
(nothing: the analyst stops). All numbers are mpmath's, at 50 digits.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf, nextafter

from mpmath import mp, mpf

from almoner import mechanisms
from almoner.errors import Unsupported
from almoner.filters import Filter

mp.dps = 50

Law = tuple[mpf, ...]


@dataclass(frozen=True)
class Round:
    """One round: P(outcome), Q(outcome), what comes after each outcome, and the epsilon and delta it promises."""

    there: Law
    back: Law
    after: tuple["Round | None", ...] = ()
    delta: float = 0.0
    epsilon: float = field(default=0.0)

    def then(self, *after: "Round | None") -> "Round":
        """The same round, followed by others."""
        return Round(self.there, self.back, after, self.delta, self.epsilon)


def biased(rare: float, loss: float) -> Round:
    """Two outcomes: the first has probability ``rare`` under P and e^-loss times that under Q (theory 4.4)."""
    q, c = mpf(rare), mpf(loss)
    there, back = (q, 1 - q), (q * mp.exp(-c), 1 - q * mp.exp(-c))
    return Round(there, back, epsilon=_up(max(abs(mp.log(p / r)) for p, r in zip(there, back, strict=True))))


def response(epsilon: float) -> Round:
    """Randomised response."""
    truth = 1 / (1 + mp.exp(-mpf(epsilon)))
    return Round((truth, 1 - truth), (1 - truth, truth), epsilon=epsilon)


def leak(delta: float) -> Round:
    """Tells everything with probability delta, and nothing otherwise: the worst (0, delta)-DP round."""
    d = mpf(delta)
    return Round((d, 1 - d, mpf(0)), (mpf(0), 1 - d, d), delta=delta)


def delta(tree: Round | None, epsilon: float | mpf) -> mpf:
    """The true delta at epsilon: the larger of both directions of E[(1 - e^(epsilon - loss))_+]."""
    return max(_one_way(tree, mp.exp(mpf(epsilon)), mpf(1), mpf(1), way) for way in (False, True))


def _one_way(tree: Round | None, bound: mpf, p: mpf, q: mpf, swapped: bool) -> mpf:
    if tree is None:
        return max(mpf(0), p - bound * q)
    laws = (tree.back, tree.there) if swapped else (tree.there, tree.back)
    after: Sequence[Round | None] = tree.after or (None,) * len(tree.there)
    return mp.fsum(
        _one_way(child, bound, p * one, q * other, swapped) for one, other, child in zip(*laws, after, strict=True)
    )


def pruned(tree: Round | None, account: Filter, describe: Callable[[Round], mechanisms.Mechanism]) -> Round | None:
    """What an honest analyst may still run: rounds that the filter refuses are replaced by stopping.

    The filter lives once in every world: it is saved before each outcome and restored in the next.
    """
    if tree is None:
        return None
    mechanism = describe(tree)
    try:
        if not account.admits(mechanism):
            return None
    except Unsupported:
        return None
    account.charge(mechanism)
    state = account.state()
    after = tree.after or (None,) * len(tree.there)
    return tree.then(*(pruned(child, type(account).from_state(state), describe) for child in after))


def renyi(round_: Round, orders: Sequence[float]) -> mechanisms.Renyi:
    """The Rényi curve of a round, the larger direction, rounded up."""
    return mechanisms.Renyi(tuple(orders), tuple(_renyi_value(round_, mpf(order)) for order in orders))


def _renyi_value(round_: Round, order: mpf) -> float:
    ways = ((round_.there, round_.back), (round_.back, round_.there))
    sums = [mp.fsum(p**order * r ** (1 - order) for p, r in zip(*way, strict=True)) for way in ways]
    return _up(max(mp.log(total) for total in sums) / (order - 1))


def _up(value: mpf) -> float:
    return nextafter(float(value), inf)

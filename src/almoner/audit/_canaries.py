"""Statistical audits: train once with half of many canaries, or many times with and without one, and guess."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check
from almoner.audit._guesses import epsilon_refuted, gaussian_p_value, mu_from_rates, mu_refuted, p_value
from almoner.curves import gaussian
from almoner.errors import ArgumentError

__all__ = ["ManyRuns", "OneRun", "many_runs", "one_run"]

APART = 2.0
"""Factor between the places of two neighbouring thresholds."""


@dataclass(frozen=True)
class OneRun:
    """Counts of right guesses in a one-run audit, and what they show. Every field is public.

    Canaries are not people: what is told about them tells nothing about anybody.
    """

    correct: int
    guesses: int
    canaries: int
    confidence: float = 0.95

    def epsilon(self, *, delta: float) -> float:
        """The largest epsilon at delta that is refuted, whatever the mechanism; 0 where none.

        Guarantee: above the true epsilon with a probability of at most 1 - confidence.
        Source: Steinke, Nasr & Jagielski (2023), Theorem 5.2.
        """
        return epsilon_refuted(
            self.correct, guesses=self.guesses, canaries=self.canaries, delta=delta, confidence=self.confidence
        )

    def mu(self) -> float:
        """The largest mu that is refuted, of a training that is mu-GDP for some mu; 0 where none.

        Guarantee: above the true mu with a probability of at most 1 - confidence.
        Source: Mahloujifar, Melis & Chaudhuri (2024); docs/proofs/audits.md
        """
        return mu_refuted(self.correct, guesses=self.guesses, canaries=self.canaries, confidence=self.confidence)

    def refutes(self, *, mu: float | None = None, epsilon: float | None = None, delta: float = 0.0) -> bool:
        """True if these guesses refute a claim: mu-GDP, or (epsilon, delta)-DP."""
        counted = {"guesses": self.guesses, "canaries": self.canaries}
        if (mu is None) == (epsilon is None):
            raise ArgumentError("give either mu= or epsilon=")
        if mu is not None:
            return gaussian_p_value(self.correct, mu=mu, **counted) < 1 - self.confidence
        return p_value(self.correct, epsilon=float(epsilon or 0.0), delta=delta, **counted) < 1 - self.confidence

    def beside(self, *, mu: float, delta: float) -> str:
        """The lower bounds beside a claim of mu-GDP, in a sentence."""
        low, claimed = self.mu(), gaussian.epsilon(mu, delta=delta)
        reached = gaussian.epsilon(low, delta=delta) if low > 0 else 0.0
        verdict = "REFUTED" if self.refutes(mu=mu) else "not refuted"
        return (
            f"{self.correct} of {self.guesses} guesses about {self.canaries} canaries are right: with "
            f"{self.confidence:.0%} confidence mu >= {low:.4g} and epsilon >= {reached:.4g} at delta = {delta:g}; "
            f"claimed are mu = {mu:.4g} and epsilon = {claimed:.4g}: {verdict}"
        )


def one_run(
    train: Callable[[NDArray[np.bool_]], ArrayLike],
    *,
    canaries: int,
    guesses: int,
    confidence: float = 0.95,
    seed: int | None = None,
) -> OneRun:
    """Audit a training from one run: half of the canaries are in, and its scores are used to guess which.

    Args:
        train: called with (m,) bool, which canaries are in the data; gives (m,) scores, the larger the likelier that a
            canary was in. It trains once. Scores may depend on all that is released and on the canaries, not on what
            it was called with.
        canaries: m, public.
        guesses: r, public, even, fixed before the run: "in" for the r/2 canaries of the largest scores, "out" for the
            r/2 of the smallest. Canaries between say nothing.
        confidence: in (0, 1).
        seed: of the choice of canaries.

    Guarantee: that of ``OneRun``, for adding or removing one canary, if scores are made as described.
    Source: Steinke, Nasr & Jagielski (2023), Algorithm 1.
    """
    _check.whole(2, canaries=canaries, guesses=guesses)
    _check.between(0, 1, confidence=confidence)
    if guesses % 2 or guesses > canaries:
        raise ArgumentError(f"guesses={guesses} must be even, and at most canaries={canaries}")
    rng = np.random.default_rng(seed)
    included = rng.random(canaries) < 0.5
    scores = np.asarray(train(included.copy()), np.float64)
    if scores.shape != (canaries,) or np.isnan(scores).any():
        raise ArgumentError(f"train must give one score, a number, for each of {canaries} canaries")
    order = np.lexsort((rng.random(canaries), scores))  # equal scores in a random order
    half = guesses // 2
    correct = int(np.count_nonzero(included[order[-half:]]) + np.count_nonzero(~included[order[:half]]))
    return OneRun(correct, guesses, canaries, confidence)


@dataclass(frozen=True)
class ManyRuns:
    """Counts of how often attacks say that a person is there, of runs with and without, and what that shows. Public.

    Attributes:
        hits: of the runs with the person, in how many the attack says so; a tuple of one for each of several attacks.
        present: how many runs with the person.
        alarms: of the runs without, in how many at most the attack says so; a tuple likewise.
        absent: how many runs without.
        confidence: in (0, 1), shared evenly by all attacks.
    """

    hits: int | tuple[int, ...]
    present: int
    alarms: int | tuple[int, ...]
    absent: int
    confidence: float = 0.95

    def epsilon(self, *, delta: float) -> float:
        """The largest epsilon at delta that an attack refutes; 0 where none.

        Guarantee: above the true epsilon, at any of all deltas, with a probability of at most 1 - confidence.
        Source: docs/proofs/audits.md, Statement 5.
        """
        return max(epsilon(delta) for _, epsilon in self._refuted())

    def mu(self) -> float:
        """The largest mu that an attack refutes; above the true one with a probability of at most 1 - confidence."""
        return max(mu for mu, _ in self._refuted())

    def _refuted(self) -> list[tuple[float, Callable[[float], float]]]:
        hits, alarms = (each if isinstance(each, tuple) else (each,) for each in (self.hits, self.alarms))
        if len(hits) != len(alarms) or not hits:
            raise ArgumentError(f"hits and alarms must be equally many, not {len(hits)} and {len(alarms)}")
        _check.between(0, 1, confidence=self.confidence)
        each = 1 - (1 - self.confidence) / len(hits)
        counts = zip(hits, alarms, strict=True)
        return [mu_from_rates(hit, self.present, alarm, self.absent, confidence=each) for hit, alarm in counts]


def many_runs(there: Sequence[float] | Any, absent: Sequence[float] | Any, *, confidence: float = 0.95) -> ManyRuns:
    """Audit by the scores of many runs with and without a person, at many thresholds at once.

    Args:
        there, absent: (runs,) scores, at least 4 each, the larger the likelier that the person was there.
        confidence: in (0, 1).

    Returns:
        One attack for each threshold: "there" above a score of a run without, or from a score of a run with the person
        on. The places of these scores in their order are fixed before, from either end ever further apart; so whatever
        is asked of the result, the threshold that answers it best is among them.

    Guarantee: that of ``ManyRuns``, whatever the laws of the scores.
    Source: docs/proofs/audits.md, Statements 5 and 6; Jagielski, Ullman & Oprea (2020), https://arxiv.org/abs/2006.07709
    """
    ins, outs = (np.sort(np.asarray(each, np.float64).reshape(-1)) for each in (there, absent))
    if min(len(ins), len(outs)) < 4 or np.isnan(ins).any() or np.isnan(outs).any():
        raise ArgumentError("there and absent must be at least 4 numbers each")
    alarms, misses = _places(len(outs)), _places(len(ins))
    above = len(ins) - np.searchsorted(ins, outs[::-1][alarms], side="right")
    from_on = len(outs) - np.searchsorted(outs, ins[misses], side="left")
    hits = (*above.tolist(), *(len(ins) - misses).tolist())
    return ManyRuns(hits, len(ins), (*alarms.tolist(), *from_on.tolist()), len(outs), confidence)


def _places(count: int) -> NDArray[np.int64]:
    """Numbers of scores, of so many, that are beyond a threshold: 0, 1, 2, and then ever fewer."""
    most = int(np.ceil(np.log(count) / np.log(APART)))
    return np.unique(np.rint(APART ** np.arange(most)).astype(np.int64) - 1)[: count - 1]

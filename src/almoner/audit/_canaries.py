"""Attack a training with canaries, and say which claims the right guesses refute: p-values, and the largest such claim.

Names and symbols
    m             canaries, each in the data with probability 1/2, independently; public
    guesses   r   of how many canaries "in" or "out" is guessed; fixed in advance; public
    correct   v   how many guesses are right
    p-value       a bound on the probability of so many right guesses, if the claim holds

Source: Steinke, Nasr & Jagielski (2023), https://arxiv.org/abs/2305.08846; Mahloujifar, Melis & Chaudhuri (2024),
https://arxiv.org/abs/2410.22235; docs/proofs/audits.md
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, isnan
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from almoner import _check
from almoner._search import edge
from almoner._units import shown
from almoner.curves import gaussian
from almoner.errors import ArgumentError

LARGEST_EPSILON, LARGEST_MU = 64.0, 32.0
FINENESS = 2.0**-40
ROUND = 1e-9


def p_value(correct: int, *, guesses: int, canaries: int, epsilon: float, delta: float = 0.0) -> float:
    """Bound the probability of v right guesses, ``correct``, of r about m canaries under (epsilon, delta)-DP. Public.

    Guarantee: if adding or removing any one canary is (epsilon, delta)-DP, then the probability, over canaries,
        training and guesses, of at least v right guesses of r is at most this; with delta = 0 it can be reached.
    Source: Steinke, Nasr & Jagielski (2023), Theorem 5.2 and Appendix D.
    """
    _checked(correct, guesses, canaries)
    _check.within(0, inf, epsilon=epsilon)
    _check.within(0, 1, delta=delta)
    right = 1 / (1 + exp(-epsilon))
    chance = float(binom.sf(correct - 1, guesses, right))
    if delta > 0 and correct > 0:
        short = np.arange(1, correct + 1)
        below = np.cumsum(binom.pmf(correct - short, guesses, right))  # P[v > W >= v - i]
        chance += float((below / short).max()) * 2 * canaries * delta
    return min(1.0, chance)


def gaussian_p_value(correct: int, *, guesses: int, canaries: int, mu: float) -> float:
    """Bound that probability for the claim that the training is mu-GDP; there much tighter than ``p_value``. Public.

    Guarantee: if adding or removing any one canary is mu-GDP, at least v right guesses of r have at most this chance.
    Source: Mahloujifar, Melis & Chaudhuri (2024), Theorem 9 and Algorithm 3; docs/proofs/audits.md
    """
    _checked(correct, guesses, canaries)
    _check.within(0, inf, mu=mu)
    return edge(lambda chance: _impossible(chance, correct, guesses, canaries, mu), 1.0, 0.0, absolute=FINENESS)


def _impossible(chance: float, correct: int, guesses: int, canaries: int, mu: float) -> bool:
    """True if so many right guesses cannot have this probability under mu-GDP.

    With p_i the probability of i right guesses: r_i sums (j / m) p_j, and h_i sums ((r - j) / m) p_j, over j >= i.
    """
    right, wrong = chance * correct / canaries, chance * (guesses - correct) / canaries
    for number in range(correct - 1, -1, -1):
        before = wrong
        wrong = max(wrong, float(ndtr(ndtri(min(right, 1.0)) - mu)) * (1 - ROUND))
        right += number / (guesses - number) * (wrong - before)
        if right + wrong > guesses / canaries * (1 + ROUND):
            return True
    return False


def mu_from_rates(
    hits: int, present: int, alarms: int, absent: int, *, confidence: float = 0.95
) -> tuple[float, Callable[[float], float]]:
    """The largest mu, and epsilon by delta, that an attack refutes by how often it says "there"; 0 where none. Public.

    It says so in ``hits`` of the runs with a person, and in ``alarms`` of those without; they share the confidence.

    Guarantee: for an attack fixed before these runs, either exceeds the truth with a chance of at most 1 - confidence.
    Source: Clopper & Pearson (1934); Jagielski, Ullman & Oprea (2020), https://arxiv.org/abs/2006.07709
    """
    for count, of in ((hits, present), (alarms, absent)):
        if not 0 <= count <= of or of < 1:
            raise ArgumentError(f"hits and alarms: {count} of {of} runs must be between 0 and all of them")
    _check.between(0, 1, confidence=confidence)
    share = (1 - confidence) / 2
    low = 0.0 if hits == 0 else float(beta.ppf(share, hits, present - hits + 1))
    high = 1.0 if alarms == absent else float(beta.ppf(1 - share, alarms + 1, absent - alarms))
    mu = float(ndtri(low) - ndtri(high))
    return (0.0 if isnan(mu) else max(0.0, mu)), lambda delta: _epsilon(low, high, delta)


def _epsilon(low: float, high: float, delta: float) -> float:
    """The least epsilon with which both rates, and one minus both, are compatible."""
    _check.within(0, 1, delta=delta)
    ways = [(low - delta, high), (1 - high - delta, 1 - low)]
    return max([0.0, *(float(np.log(one / other)) for one, other in ways if one > 0 and other > 0)])


def _largest(refuted: Callable[[float], bool], most: float) -> float:
    """The largest value that is refuted, by halving, rounded down; 0 where not even 0 is."""
    return edge(refuted, 0.0, most, absolute=FINENESS * most) if refuted(0.0) else 0.0


def _checked(correct: int, guesses: int, canaries: int) -> None:
    _check.whole(0, correct=correct)
    _check.whole(1, guesses=guesses, canaries=canaries)
    if not correct <= guesses <= canaries:
        raise ArgumentError(f"correct={correct}, guesses={guesses} and canaries={canaries} must not decrease")


APART = 2.0  # factor between the places of two neighbouring thresholds


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
        """The largest epsilon at delta that is refuted, whatever the mechanism, rounded down; 0 where none.

        Guarantee: above the true epsilon with a probability of at most 1 - confidence.
        Source: Steinke, Nasr & Jagielski (2023), Theorem 5.2; the p-value grows with epsilon.
        """
        _check.between(0, 1, confidence=self.confidence)

        def refuted(epsilon: float) -> bool:
            chance = p_value(self.correct, guesses=self.guesses, canaries=self.canaries, epsilon=epsilon, delta=delta)
            return chance * (1 + ROUND) < 1 - self.confidence

        return _largest(refuted, LARGEST_EPSILON)

    def mu(self) -> float:
        """The largest mu that is refuted, of a training that is mu-GDP for some mu, rounded down; 0 where none.

        Guarantee: above the true mu with a probability of at most 1 - confidence.
        Source: Mahloujifar, Melis & Chaudhuri (2024); docs/proofs/audits.md; the p-value grows with mu.
        """
        counts = self.correct, self.guesses, self.canaries
        _checked(*counts)
        _check.between(0, 1, confidence=self.confidence)
        return _largest(lambda mu: _impossible(1 - self.confidence, *counts, mu), LARGEST_MU)

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
        low, claimed = self.mu(), float(gaussian.epsilon(mu, delta=delta))
        reached = float(gaussian.epsilon(low, delta=delta)) if low > 0 else 0.0
        verdict = "REFUTED" if self.refutes(mu=mu) else "not refuted"
        return (
            f"{self.correct} of {self.guesses} guesses about {self.canaries} canaries are right: with "
            f"{100 * self.confidence:.10g} % confidence mu >= {shown(low, 4, down=True)} and epsilon >= "
            f"{shown(reached, 4, down=True)} at delta = {delta:g}; "
            f"claimed are mu = {shown(mu, 4)} and epsilon = {shown(claimed, 4)}: {verdict}"
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
            canary was in. It trains once. Scores may depend on all that is released and on the canaries, no more.
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
        _check.equally_long(hits=hits, alarms=alarms)
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

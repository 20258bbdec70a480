"""Statistics of right guesses about canaries: p-values of a claim, and the largest claim that they refute.

Names and symbols
    m             canaries, each in the data with probability 1/2, independently; public
    guesses   r   of how many canaries "in" or "out" is guessed; fixed in advance; public
    correct   v   how many guesses are right
    p-value       a bound on the probability of so many right guesses, if the claim holds

Source: Steinke, Nasr & Jagielski (2023), https://arxiv.org/abs/2305.08846; Mahloujifar, Melis & Chaudhuri (2024),
https://arxiv.org/abs/2410.22235; docs/proofs/audits.md
"""

from collections.abc import Callable
from math import exp, inf, isnan

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom

from almoner import _check
from almoner.errors import ArgumentError

__all__ = ["epsilon_refuted", "gaussian_p_value", "mu_from_rates", "mu_refuted", "p_value"]

LARGEST_EPSILON, LARGEST_MU = 64.0, 32.0
HALVINGS = 40
ROUND = 1e-9


def p_value(correct: int, *, guesses: int, canaries: int, epsilon: float, delta: float = 0.0) -> float:
    """Bound the probability of so many right guesses, if the training is (epsilon, delta)-DP. Public.

    Args:
        correct, guesses, canaries: v, r and m, public; v <= r <= m.
        epsilon: of the claim, nats, >= 0.
        delta: of the claim, in [0, 1].

    Returns:
        In [0, 1].

    Guarantee: if adding or removing any one canary is (epsilon, delta)-DP, then the probability, over canaries,
        training and guesses, of at least v right guesses of r is at most this. With delta = 0 randomised response
        reaches it.
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


def epsilon_refuted(
    correct: int, *, guesses: int, canaries: int, delta: float = 0.0, confidence: float = 0.95
) -> float:
    """The largest epsilon that so many right guesses refute at delta, rounded down; 0 where none. Public.

    Guarantee: if the training is (epsilon, delta)-DP, what this returns is above that epsilon with a probability of at
        most 1 - confidence.
    Source: that of ``p_value``, which grows with epsilon.
    """
    _check.between(0, 1, confidence=confidence)

    def refuted(epsilon: float) -> bool:
        chance = p_value(correct, guesses=guesses, canaries=canaries, epsilon=epsilon, delta=delta)
        return chance * (1 + ROUND) < 1 - confidence

    return _largest(refuted, LARGEST_EPSILON)


def gaussian_p_value(correct: int, *, guesses: int, canaries: int, mu: float) -> float:
    """Bound that probability for the claim that the training is mu-GDP; there much tighter than ``p_value``. Public.

    Guarantee: if adding or removing any one canary is mu-GDP, the probability of at least v right guesses of r is at
        most this.
    Source: Mahloujifar, Melis & Chaudhuri (2024), Theorem 9 and Algorithm 3; docs/proofs/audits.md
    """
    _checked(correct, guesses, canaries)
    _check.within(0, inf, mu=mu)
    low, high = 0.0, 1.0  # the largest chance that is not refuted is between
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _impossible(middle, correct, guesses, canaries, mu) else (middle, high)
    return high


def mu_refuted(correct: int, *, guesses: int, canaries: int, confidence: float = 0.95) -> float:
    """The largest mu that so many right guesses refute, rounded down; 0 where none. Public.

    Guarantee: if the training is mu-GDP, what this returns is above that mu with a probability of at most
        1 - confidence.
    Source: that of ``gaussian_p_value``, which grows with mu.
    """
    _checked(correct, guesses, canaries)
    _check.between(0, 1, confidence=confidence)
    return _largest(lambda mu: _impossible(1 - confidence, correct, guesses, canaries, mu), LARGEST_MU)


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
    """Claims that an attack refutes by how often it says "there", of many runs with and without a person. Public.

    Args:
        hits, present: of so many runs with the person, in how many it says so.
        alarms, absent: of so many runs without.
        confidence: in (0, 1), shared evenly by the two rates (Clopper & Pearson).

    Returns:
        The largest mu that is refuted; and the largest epsilon, as a function of delta; 0 where none.

    Guarantee: for an attack that was fixed before these runs, either is above the truth with a probability of at most
        1 - confidence.
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
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, most
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _checked(correct: int, guesses: int, canaries: int) -> None:
    _check.whole(0, correct=correct)
    _check.whole(1, guesses=guesses, canaries=canaries)
    if not correct <= guesses <= canaries:
        raise ArgumentError(f"correct={correct}, guesses={guesses} and canaries={canaries} must not decrease")

"""Meaning of a promise: how well anyone can tell, from everything that is released, whether a person was in the data.

Names and symbols
    alpha      α    false positive rate of an attack: the share of people who are not in and are said to be in
    mu         μ    the Gaussian promise (mu-GDP) that is nearest from above

An *attack* knows everything about all other people, the program, and all results; it says "in" or "out" of one person.

Source: Dong, Roth & Su (2022), https://arxiv.org/abs/1905.02383; Kulynych et al. (2024),
https://arxiv.org/abs/2407.02191; Gomez et al. (2025), https://arxiv.org/abs/2503.10945
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, exp, inf, log, log1p, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from almoner import _check, _search, mechanisms
from almoner._units import shown
from almoner.curves import gaussian, tradeoff
from almoner.curves.tradeoff import Curve
from almoner.errors import ArgumentError, Unsupported

__all__ = ["GaussianEquivalent", "Meaning", "largest_advantage", "of", "sentence"]

Floats = NDArray[np.float64]

RATES = (0.001, 0.01, 0.1)
"""The false positive rates that words and tables show."""

_LARGEST_MU = 500.0
_GUARD = 1e-9  # more than gaussian.delta is raised by, up to the largest mu
_ROUND_UP = 1 + 2.0**-48


@dataclass(frozen=True, slots=True)
class GaussianEquivalent:
    """One number for a promise: the least mu whose Gaussian promise, with a slack, covers it. Every field is public.

    Attributes:
        mu: rounded up; 1 is a fair guess that is right 69 times in 100, 0 is nothing learned.
        slack: in [0, 1]; added to the deltas of mu.
        regret: in [0, 1], measured: by how much mu overstates how often a guess is right, at the worst prior.
    """

    mu: float
    slack: float
    regret: float


@dataclass(frozen=True)
class Meaning:
    """Limits of every attack against a promise. Every field is public.

    Attributes:
        promise: a trade-off curve, or a Gaussian promise, for which the formulas are exact.

    >>> meaning = Meaning(gaussian.Gaussian(1.0))
    >>> round(meaning.guess(), 4), meaning.true_positives([0.001, 0.01, 0.1]).round(4).tolist()
    (0.6915, [0.0183, 0.0924, 0.3891])
    """

    promise: Curve | gaussian.Gaussian

    def true_positives(self, alpha: ArrayLike, /) -> Floats:
        """The most that an attack finds of the people who are in, at each false positive rate.

        Rates are (...), public, in [0, 1]; gives shares (...) in [0, 1], rounded up.

        Guarantee: no attack with false positive rate at most alpha has a larger true positive rate.
        Source: theory 8.1; Dong, Roth & Su (2022), Propositions 2.4 and 2.12.
        """
        rate = _check.floats(alpha=alpha)
        if isinstance(self.promise, Curve):
            return np.asarray(np.minimum((1 - self.promise.beta(rate)) * _ROUND_UP, 1.0))
        if not ((rate >= 0) & (rate <= 1)).all():
            raise ArgumentError("alpha must be numbers in [0, 1]")
        with np.errstate(divide="ignore", invalid="ignore"):
            quantile = special.ndtri(rate)
            power = special.ndtr(quantile + self.promise.mu) * (1 + 1e-14 * (1 + quantile**2))
        return np.asarray(np.where(rate == 0, 0.0 if self.promise.mu < inf else 1.0, np.fmin(power, 1.0)))

    @property
    def advantage(self) -> float:
        """The most by which an attack's true positive rate exceeds its false positive rate, rounded up.

        Guarantee: no attack has a larger advantage; the total variation distance is at most this.
        Source: theory 8.1.
        """
        return self._delta(0.0)

    def guess(self, *, prior: float = 0.5) -> float:
        """Largest probability that the best guess "in" or "out" is right, rounded up.

        Without any release it would be the larger of 1 - prior and prior, which says how likely the person is in before
        anything is released: public, in (0, 1).

        Guarantee: no attack is right with a larger probability, over the prior and the noise.
        Source: theory 8.1: the best of all tests, by the hockey-stick curve at the odds of the prior.
        """
        _check.between(0, 1, prior=prior)
        rarer = min(prior, 1 - prior)
        odds = max(0.0, log((1 - rarer) / rarer) * (1 - 1e-14) - 1e-15)
        return min(1.0, (1 - rarer + rarer * self._delta(odds)) * _ROUND_UP)

    def belief(self, *, prior: float = 0.5, failure: float = 0.01) -> tuple[float, float]:
        """The lowest and the highest belief that a person is in, whatever is released; (0, 1) if nothing is known.

        Prior, the belief before, and failure are public, in (0, 1).

        Guarantee: whether the person is in or not, the belief ends above the highest with probability at most failure,
            and below the lowest with probability at most failure.
        Source: theory 2.4: at each point, P(loss > epsilon + t) <= delta/(1 - exp(-t)).
        """
        _check.between(0, 1, prior=prior)
        _check.between(0, 1, failure=failure)
        points = zip(self._curve.epsilons, self._curve.deltas, strict=True)
        share = ((epsilon, delta / failure * _ROUND_UP) for epsilon, delta in points)
        loss = min((epsilon - log1p(-part) for epsilon, part in share if part < 1), default=inf) * _ROUND_UP
        odds = (1 - prior) / prior
        if loss > 700 or not 0 < odds < inf:
            return 0.0, 1.0
        lowest, highest = 1 / (1 + odds * exp(loss)), 1 / (1 + odds * exp(-loss))
        return lowest * (2 - _ROUND_UP), min(1.0, highest * _ROUND_UP)

    def as_gaussian(self, *, slack: float = 1e-9) -> GaussianEquivalent:
        """The promise as one number mu, and how much that number overstates.

        Slack is public, in [0, 1]; for a curve at least its last delta, below which nothing is known.

        Raises:
            Unsupported: no mu up to 500 covers the promise with this slack.

        Guarantee: the promise is (epsilon, delta + slack)-DP wherever mu-GDP is (epsilon, delta)-DP.
        Source: theory 8.1, 7.4; Gomez et al. (2025).
        """
        _check.within(0, 1, slack=slack)
        if isinstance(self.promise, gaussian.Gaussian):
            return GaussianEquivalent(self.promise.mu, slack, 0.0)
        chords = _Chords(self.promise, slack)
        mu = 0.0 if chords.below(0.0) else _search.least(chords.below, near=1.0, tolerance=1e-6, high=_LARGEST_MU)
        if mu == inf:
            told = f"no mu up to {_LARGEST_MU:g} covers the promise with slack={slack}"
            raise Unsupported(f"{told}; its last delta is {self.promise.deltas[-1]}")
        ends = np.linspace(0.0, min(max(self._curve.epsilons[-1], 1.0), 700.0), 1000)
        more = tradeoff.of(gaussian.Gaussian(mu), points=1000).delta(ends) - self._curve.delta(ends)
        return GaussianEquivalent(mu, slack, float(max(0.0, (1 / (1 + np.exp(ends)) * more).max())))

    def _delta(self, epsilon: float) -> float:
        if isinstance(self.promise, Curve):
            return float(self.promise.delta(epsilon))
        if epsilon == 0:  # a formula without the guard of the general one
            return min(1.0, float(special.erf(self.promise.mu / sqrt(8))) * (1 + 1e-14))
        return self.promise.delta(epsilon=epsilon)

    @cached_property
    def _curve(self) -> Curve:
        return self.promise if isinstance(self.promise, Curve) else tradeoff.of(self.promise, points=512)

    @property
    def words(self) -> str:
        """Three sentences for someone who chooses a budget: how often a guess is right, and what attacks find."""
        found = [f"{in_100(float(self.true_positives(rate)))} % with {100 * rate:g} %" for rate in RATES]
        return (
            "An attack knows everything about all other people, and all results. It guesses right at most "
            f"{in_100(self.guess())} % of the time whether a person was in (50 % without the results). Of the "
            f"people who were in, it finds at most {', '.join(found[:-1])} and {found[-1]} false alarms."
        )

    @property
    def sentence(self) -> str:
        """One thought for the person whose data it was: what everything that is published lets others guess."""
        return sentence(self.guess())

    def figures(self) -> dict[str, object]:
        """Return the limits as numbers, for files and tables: advantage, guess and true positives at each of RATES."""
        found = dict(zip(map(str, RATES), self.true_positives(RATES).tolist(), strict=True))
        return {"advantage": self.advantage, "guess": self.guess(), "true_positives": found}


def largest_advantage(epsilon: ArrayLike, delta: ArrayLike, /) -> Floats:
    """(...) the most by which an attack's true positive rate exceeds its false positive rate, rounded up.

    Epsilons (...) are public or private, >= 0, deltas (...) public, in [0, 1]; nothing is known of NaN, inf and others.

    Guarantee: no attack on an (epsilon, delta)-DP release has a larger advantage.
    Source: theory 8.1: the two error lines of (epsilon, delta)-DP cross where both errors are (1 - delta)/(1 + e^eps).
    """
    epsilons = _check.floats(epsilon=epsilon)
    known = np.where(epsilons >= 0, epsilons, np.inf)
    deltas = _check.floats(delta=delta)
    lines, failing = np.tanh(known / 2), np.where((deltas >= 0) & (deltas <= 1), deltas, 1.0)
    return np.asarray(np.clip((lines + failing * (1 - lines)) * _ROUND_UP, 0.0, 1.0))


def sentence(guess: float, /) -> str:
    """Say to the person whose data it was what everything that is published lets others guess.

    ``guess``, in [0.5, 1], is how often a guess whether the person was in is right at most, at even odds.
    """
    _check.within(0.5, 1, guess=guess)
    return (
        "Suppose somebody knows everything about all other people and must guess whether your records were used. "
        "Without the published results this guess is right 50 times in 100. "
        f"With all of them it is right at most {in_100(guess)} times in 100."
    )


def of(promise: object, /, *, points: int = 512) -> Meaning:
    """Work out the meaning of a promise.

    Args:
        promise: public; a mechanism (also Repeated or Composed, with all rounds fixed in advance), a total
            (``curves.gaussian.Gaussian``, ``zcdp.Zcdp``, ``renyi.Renyi``, ``approximate.Approximate``), a
            ``tradeoff.Curve`` or a filter's ``filter.tradeoff()``. An odometer has no curve: see ``curves.tradeoff``.
        points: how many points of a curve are worked out.

    Raises:
        Unsupported: nothing is known about the promise.

    >>> run = mechanisms.Repeated(mechanisms.SampledGaussian(sigma=1.1, sample_rate=0.01), 1000)
    >>> round(of(run).guess(), 2)
    0.57
    """
    match promise:
        case Meaning():
            return promise
        case Curve() | gaussian.Gaussian():
            return Meaning(promise)
        case mechanisms.Mechanism():
            if all(isinstance(leaf, mechanisms.Gaussian) for leaf in mechanisms.leaves(promise)):
                return Meaning(gaussian.of(promise))
    return Meaning(tradeoff.of(promise, points=points))


class _Chords:
    """A curve as chords in x = exp(epsilon), to be covered by delta of mu plus slack.

    Between two points delta of mu is convex with slope -Phi(-log(x)/mu - mu/2): it is nearest to the chord where the
    slopes agree, or at an end.
    """

    def __init__(self, curve: Curve, slack: float) -> None:
        self.curve, self.slack = curve, slack
        self.ends = np.array(sorted({0.0, *curve.epsilons}))
        self.deltas = curve.delta(self.ends)
        with np.errstate(over="ignore"):
            lengths = np.diff(np.exp(self.ends))
        slopes = np.clip(-np.diff(self.deltas) / np.where(lengths < inf, lengths, inf), 1e-300, 1 - 1e-16)
        self.quantiles = special.ndtri(slopes)

    def below(self, mu: float) -> bool:
        if self.curve.deltas[-1] > self.slack:
            return False
        nearest = np.clip(-mu * (self.quantiles + mu / 2), self.ends[:-1], self.ends[1:])
        at, chords = np.append(self.ends, nearest), np.append(self.deltas, self.curve.delta(nearest))
        return bool((chords <= gaussian.delta(mu, epsilon=at) * (1 - _GUARD) + self.slack).all())


def in_100(share: float) -> str:
    """A share in percent, rounded up to a tenth; to a whole where that says enough."""
    return shown(min(1000, ceil(share * 1000 - 1e-9)) / 10, 4)

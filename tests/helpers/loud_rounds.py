"""Rounds that are not planned, charged to a person's planned account: what they really reveal, by laws of their own.

Laws of losses are put on an even grid with the masses under both neighbours kept, cell by cell, from the distribution
functions alone: nothing of the package computes them. The adversary plays planned rounds, looks at the loss so far, and
goes on in the way that is best from there: with more planned rounds, or with the other kind as often as it is admitted
and then with planned rounds again.
"""

from dataclasses import replace
from math import ceil, exp, expm1, inf, log, log1p

import numpy as np
from scipy.special import ndtr

from almoner import filters, individual, mechanisms
from almoner.errors import ArgumentError

LARGEST = 2**20  # losses on a grid
OTHERS = 4096  # rounds of the other kind that are charged, at most
ATTACKED = (  # sigma and rate of the plan, epsilon, delta, sigma of a Gaussian round: once sold for too little
    (0.15, 1 / 6000, 0.5, 0.01, 0.7),
    (0.15, 1 / 6000, 0.5, 0.01, 1.0),
    (0.15, 1 / 6000, 0.5, 0.01, 1.5),
    (0.2, 1e-4, 0.1, 0.003, 8.0),
    (0.4, 0.002, 0.1, 0.05, 8.0),
    (0.2, 3e-4, 0.5, 0.02, 1.5),
    (0.2, 1e-3, 0.2, 0.05, 3.0),
    (0.2, 0.01, 1.0, 0.3, 10.0),
    (0.35, 1e-3, 1.0, 0.2, 100.0),
    (0.5, 0.002, 0.5, 0.1, 3.0),
    (0.8, 0.01, 2.0, 1e-5, 10.0),
    (0.6, 1e-3, 1.0, 1e-5, 20.0),
    (1.0, 0.01, 2.0, 1e-5, 8.0),
)


def random_triple(rng):
    """A plan, epsilon, delta, a round of another kind, a norm; drawn until the plan fits a dozen times."""
    while True:
        sigma, rate = float(np.exp(rng.uniform(log(0.15), log(3)))), float(np.exp(rng.uniform(log(1e-4), log(0.3))))
        plan = mechanisms.SampledGaussian(sigma, 1.0, rate)
        plan = (plan, plan, plan, mechanisms.Gaussian(10 * sigma), mechanisms.Laplace(20 * sigma))[rng.integers(5)]
        epsilon, delta = float(np.exp(rng.uniform(log(0.05), log(4)))), float(np.exp(rng.uniform(log(1e-12), log(0.5))))
        other = (
            mechanisms.Gaussian(float(np.exp(rng.uniform(log(0.5), log(100))))),
            mechanisms.Gaussian(float(np.exp(rng.uniform(log(0.5), log(100))))),
            mechanisms.Laplace(float(np.exp(rng.uniform(log(0.5), log(50))))),
            mechanisms.Pure(float(np.exp(rng.uniform(log(0.01), log(2))))),
            mechanisms.SampledGaussian(sigma * float(rng.uniform(0.3, 1.5)), 1.0, min(1.0, 5 * rate)),
        )[rng.integers(5)]
        try:
            if 12 <= filters.Planned(plan, epsilon=epsilon, delta=delta).left < 10**6:
                return plan, epsilon, delta, other, 1.0 if rng.integers(2) else float(rng.uniform(0.1, 1.0))
        except ArgumentError:
            continue


def _normal(low, high):
    """The mass of the standard normal law in (low, high], exact in both tails."""
    return np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))


def _masses(mechanism, side, edges):
    """Masses of the losses between neighbouring edges, under the law that outcomes are drawn from and the other one."""
    match mechanism:
        case mechanisms.Gaussian(sigma, sensitivity):
            mu = sensitivity / sigma
            return tuple(_normal((edges[:-1] + at) / mu, (edges[1:] + at) / mu) for at in (-(mu**2) / 2, mu**2 / 2))
        case mechanisms.SampledGaussian(sigma, sensitivity, rate):
            z, lines = sigma / sensitivity, edges if side == 0 else -edges[::-1]
            with np.errstate(divide="ignore", over="ignore"):
                over = np.maximum(np.expm1(lines) + rate, 0.0) / rate
                places = z**2 * np.log(over) + 0.5
            without = _normal(places[:-1] / z, places[1:] / z)
            joined = (1 - rate) * without + rate * _normal((places[:-1] - 1) / z, (places[1:] - 1) / z)
            return (joined, without) if side == 0 else (without[::-1], joined[::-1])
        case mechanisms.Laplace(scale, sensitivity):
            reach = sensitivity / scale

            def below(at):
                return np.where(at < -reach, 0.0, np.where(at >= reach, 1.0, np.exp((at - reach) / 2) / 2))

            def below_other(at):
                return np.where(at < -reach, 0.0, np.where(at >= reach, 1.0, 1 - np.exp(-(at + reach) / 2) / 2))

            return np.diff(below(edges)), np.diff(below_other(edges))
        case mechanisms.Pure(epsilon):
            more, less = 1 / (1 + exp(-epsilon)), 1 / (1 + exp(epsilon))
            high, low = (np.searchsorted(edges, at) - 1 for at in (epsilon, -epsilon))
            first, second = np.zeros(len(edges) - 1), np.zeros(len(edges) - 1)
            for cell, (one, two) in ((high, (more, less)), (low, (less, more))):
                first[cell] += one
                second[cell] += two
            return first, second
    raise TypeError(mechanism)


class _Losses:
    """Compositions of rounds on a circle of losses, wide enough for all that is asked of it."""

    def __init__(self, step, low, size):
        self.step, self.low, self.size = step, low, size
        self.places = step * (low + np.arange(size))

    def spectrum(self, mechanism, side):
        """The transform of one round's law, whose curve is nowhere below the exact one."""
        first, second = _masses(mechanism, side, self.places)
        up = (first - second * np.exp(self.places[:-1])) / -expm1(-self.step)
        up = np.clip(up, 0.0, first)
        weights = np.zeros(self.size)
        weights[1:] += up
        weights[:-1] += first - up
        return np.fft.rfft(np.roll(weights, self.low))

    def mean(self, values, spectrum):
        """The mean of a function of the loss so far and of a further loss."""
        return np.fft.irfft(np.fft.rfft(values) * np.conj(spectrum), self.size)

    def law(self, spectrum):
        """The law that belongs to a transform."""
        return np.roll(np.fft.irfft(spectrum, self.size), -self.low)


def admitted(accounts, mechanism, norm=1.0, most=2**21):
    """Number of rounds of a kind in which one person still takes part, by bisection over repeated ones."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        fits = accounts.admits(mechanisms.Repeated(mechanism, middle), _norms(mechanism, norm))[0]
        low, high = (middle, high) if fits else (low, middle)
    return low


def _norms(mechanism, norm):
    """Of one person: what they contribute, or that they take part."""
    return np.array([norm]) if hasattr(mechanism, "sensitivity") else np.ones(1, bool)


def alone(mechanism, count, epsilon):
    """A lower bound on the delta of so many rounds at epsilon, nothing else run: in closed form, else of one round."""
    match mechanism:
        case mechanisms.Gaussian(sigma, sensitivity):
            mu = sensitivity / sigma * count**0.5
            return float(ndtr(-epsilon / mu + mu / 2) - exp(epsilon) * ndtr(-epsilon / mu - mu / 2))
        case mechanisms.SampledGaussian(sigma, sensitivity, rate):
            z = sigma / sensitivity
            over = expm1(epsilon) + rate
            at = z**2 * log(over / rate) + 0.5
            return float(rate * ndtr((1 - at) / z) - over * ndtr(-at / z))
        case mechanisms.Laplace(scale, sensitivity):
            return max(0.0, -expm1((epsilon - sensitivity / scale) / 2))
        case mechanisms.Pure(own):
            return max(0.0, (exp(own) - exp(epsilon)) / (1 + exp(own)))
    raise TypeError(mechanism)


def played(plan, epsilon, delta, other, norm=1.0, *, parts=(0.0, 0.3, 0.6, 0.9)):
    """Find what a person with a norm in the other round is admitted to, and the largest delta over the promised one.

    Returns: rounds of the plan; rounds of the other kind that a fresh account takes, and whether the filter of one
    account takes one; ``alone`` and ``switch``, deltas over the promise (None where the grid would be too large).
    """
    budget, loud = filters.Planned(plan, epsilon=epsilon, delta=delta), other
    if hasattr(other, "sensitivity"):
        loud = replace(other, sensitivity=norm * other.sensitivity)
    one, rounds = budget.admits(loud), budget.left
    many = admitted(individual.Filter(1, budget), other, norm, OTHERS)
    found = {"rounds": rounds, "people": many, "one": one, "alone": alone(loud, many, epsilon) / delta if many else 0.0}
    grid, switch = budget.notion.prices.grid, None
    largest, variance = _sizes(loud)
    reach = 2 * largest + 12 * (many * variance) ** 0.5 + many * variance
    low = min(grid.low, -ceil(reach / grid.step)) - 2
    size = 1 << (max(grid.low + grid.size, ceil(reach / grid.step)) - low).bit_length()
    if size <= LARGEST:
        losses = _Losses(grid.step, low, size)
        play = (budget, plan, epsilon, (other, loud, norm), parts)
        switch = max(_best_switch(losses, side, *play) for side in (0, 1)) / delta
    return {**found, "switch": switch}


def _sizes(mechanism):
    """About the largest loss of one round, but for what never happens, and its mean square."""
    match mechanism:
        case mechanisms.Pure(epsilon):
            return epsilon, epsilon**2
        case mechanisms.Laplace(scale, sensitivity):
            return sensitivity / scale, (sensitivity / scale) ** 2
    relative, rate = mechanism.sensitivity / mechanism.sigma, getattr(mechanism, "sample_rate", 1.0)
    return log1p(rate * expm1(9 * relative + relative**2 / 2)), rate**2 * expm1(min(relative**2, 50.0))


def _best_switch(losses, side, budget, plan, epsilon, others, parts):
    other, loud, norm = others
    end = np.where(losses.places > epsilon, -np.expm1(np.minimum(epsilon - losses.places, 0.0)), 0.0)
    planned, another, best = losses.spectrum(plan, side), losses.spectrum(loud, side), -inf
    for part in parts:
        accounts = individual.Filter(1, budget)
        first = int(part * budget.left)
        if first:
            accounts.charge(mechanisms.Repeated(plan, first), np.ones(1))
        going_on = losses.mean(end, planned ** (budget.left - first))
        many = admitted(accounts, other, norm, OTHERS)
        if many:
            accounts.charge(mechanisms.Repeated(other, many), _norms(other, norm))
        switched = losses.mean(end, another**many * planned ** admitted(accounts, plan))
        value = float(losses.law(planned**first) @ np.maximum(going_on, switched))
        best = max(best, value)
    return best

"""Simulated adversaries against odometers: they choose the next mechanism and the moment to stop from the loss so far.

A menu has two mechanisms, so the totals are known from two counts, and the boundary is looked up in a table that the
odometer itself computed. Losses are drawn from the mechanisms' true distributions, in the worst direction.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from almoner import mechanisms
from almoner._units import MEASURE

CONFIDENCE = 1e-4


@dataclass(frozen=True)
class Play:
    """A mechanism, with a sampler of its realised losses."""

    mechanism: mechanisms.Mechanism
    losses: Callable[[np.random.Generator, int], np.ndarray]


def gaussian(mu: float) -> Play:
    return Play(mechanisms.Gaussian(1 / mu), lambda rng, n: mu * mu / 2 + mu * rng.standard_normal(n))


def response(epsilon: float) -> Play:
    truth = 1 / (1 + np.exp(-epsilon))
    return Play(
        mechanisms.RandomizedResponse(epsilon), lambda rng, n: np.where(rng.random(n) < truth, epsilon, -epsilon)
    )


def laplace(epsilon: float) -> Play:
    """Centre 0 against centre 1, scale 1/epsilon."""

    def losses(rng: np.random.Generator, n: int) -> np.ndarray:
        x = rng.laplace(0.0, 1 / epsilon, n)
        return epsilon * (np.abs(x - 1) - np.abs(x))

    return Play(mechanisms.Laplace(1 / epsilon), losses)


def sampled(rate: float, noise: float) -> Play:
    """The person is there, and was sampled with probability rate, against not being there."""

    def losses(rng: np.random.Generator, n: int) -> np.ndarray:
        x = noise * rng.standard_normal(n) + (rng.random(n) < rate)
        return np.log1p(rate * np.expm1((2 * x - 1) / (2 * noise**2)))

    return Play(mechanisms.SampledGaussian(noise, 1.0, rate), losses)


def left_out(rate: float, noise: float) -> Play:
    """The other direction: the person is not there, against being there."""

    def losses(rng: np.random.Generator, n: int) -> np.ndarray:
        x = noise * rng.standard_normal(n)
        return -np.log1p(rate * np.expm1((2 * x - 1) / (2 * noise**2)))

    return Play(mechanisms.SampledGaussian(noise, 1.0, rate), losses)


MENUS = {
    "gaussian": (gaussian(0.1), gaussian(0.6)),
    "response": (response(0.1), response(0.7)),
    "laplace": (laplace(0.1), laplace(0.7)),
    "sampled": (sampled(0.1, 1.0), sampled(0.3, 0.7)),
    "left_out": (left_out(0.1, 1.0), left_out(0.3, 0.7)),
}


def steady(loss: np.ndarray, bound: np.ndarray) -> np.ndarray:
    return np.zeros(loss.shape, bool)


def sprint(loss: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Large steps when the boundary is near."""
    return loss > 0.6 * bound


def creep(loss: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Large steps while the boundary is far, small ones when it is near."""
    return loss < 0.6 * bound


POLICIES = {"steady": steady, "sprint": sprint, "creep": creep}
TIE = 1e-9  # a loss that equals the bound (pure mechanisms, basic composition) is not above it


def table(odometer: object, menu: tuple[Play, Play], rounds: int, ex_post: bool = False) -> np.ndarray:
    """The boundary for every pair of counts, from the odometer's own arithmetic."""
    notion = odometer.notion
    costs = [
        np.array([float(units) / MEASURE for units in notion.price(play.mechanism)[: notion.width]]) for play in menu
    ]
    counts = np.arange(rounds + 1, dtype=float)
    with np.errstate(invalid="ignore"):
        first, second = counts[:, None] * costs[0], counts[:, None] * costs[1]
    first[0] = second[0] = 0.0
    delta = notion.rest(notion.delta, notion._kept(failing=False))
    rows = [notion.bound(row + second[: rounds + 1 - j], delta=delta, ex_post=ex_post) for j, row in enumerate(first)]
    full = np.full((rounds + 1, rounds + 1), np.inf)
    for j, row in enumerate(rows):
        full[j, : len(row)] = row
    return full


def crossings(
    bounds: np.ndarray,
    menu: tuple[Play, Play],
    policy: Callable,
    rounds: int,
    runs: int,
    seed: int,
    *,
    margin: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """(loss, bound) of every run when it stops: as soon as the loss is above the bound by margin, or at the end."""
    rng = np.random.default_rng(seed)
    margin += TIE
    loss, small, large = np.zeros(runs), np.zeros(runs, int), np.zeros(runs, int)
    final_loss, final_bound = np.empty(runs), np.empty(runs)
    alive = np.arange(runs)
    for _ in range(rounds):
        which = policy(loss, bounds[small, large])
        loss = loss + np.where(which, menu[1].losses(rng, loss.size), menu[0].losses(rng, loss.size))
        small, large = small + ~which, large + which
        stop = loss > bounds[small, large] + margin
        if stop.any():
            final_loss[alive[stop]], final_bound[alive[stop]] = loss[stop], bounds[small[stop], large[stop]]
            alive, loss, small, large = alive[~stop], loss[~stop], small[~stop], large[~stop]
    final_loss[alive], final_bound[alive] = loss, bounds[small, large]
    return final_loss, final_bound


def at_most(successes: int, runs: int) -> float:
    """Clopper-Pearson's upper limit for a rate."""
    return float(stats.beta.ppf(1 - CONFIDENCE, successes + 1, runs - successes)) if successes < runs else 1.0


def at_least(successes: int, runs: int) -> float:
    """Clopper-Pearson's lower limit for a rate."""
    return float(stats.beta.ppf(CONFIDENCE, successes, runs - successes + 1)) if successes else 0.0

"""Ask for the error rates that riskcal works out, and for the noise that it calibrates to them.

    python benchmarks/suites/riskcal_suite.py CHECKOUT

CHECKOUT is a clone of github.com/bogdan-kulynych/riskcal. The settings are those of its tests. Risks are compared:
advantages, and one minus the error rate; the judge is the formula of Gaussian noise, or an optimistic distribution.
"""

import logging
import sys
from math import inf
from pathlib import Path

sys.path.insert(0, sys.argv[1])

from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from riskcal import conversions, dpsgd
from tally import Tally, timed

from almoner import _search, mechanisms
from almoner.accounting import meaning
from almoner.curves import tradeoff

ALPHAS = (0.1, 0.2, 0.3)
RUNS = ((2.0, 1.0, 1), (1.0, 1.0, 1), (1 / 2.5, 0.1, 5), (5.0, 0.001, 10_000), (1.0, 0.001, 10_000))
POINTS = 512


def run_of(noise: float, rate: float, steps: int) -> mechanisms.Repeated:
    """Steps of a training."""
    return mechanisms.Repeated(mechanisms.gaussian_step(noise, 1.0, rate), steps)


their_beta = dpsgd.get_beta_for_dpsgd


def beta_of(
    noise_multiplier: float, sample_rate: float, num_steps: int, alpha: float, grid_step: float = 1e-3
) -> float:
    """Their error rate of a training, as a number: their search wants one, and gets a list from itself."""
    return float(their_beta(noise_multiplier, sample_rate, num_steps, [alpha], grid_step=grid_step)[0])


def optimistic(noise: float, rate: float, steps: int) -> float:
    """An advantage that is below the truth."""
    one = from_gaussian_mechanism(
        noise, sampling_prob=rate, pessimistic_estimate=False, value_discretization_interval=1e-3
    )
    return float((one if steps == 1 else one.self_compose(steps)).get_delta_for_epsilon(0)) - 1e-9


def risks(tally: Tally) -> None:
    """Advantages and error rates of the trainings, and of one promise in (epsilon, delta)."""
    for noise, rate, steps in RUNS:
        asked = f"noise {noise:g}, rate {rate:g}, {steps} steps"
        theirs, slow = timed(lambda: dpsgd.get_advantage_for_dpsgd(noise, rate, steps, grid_step=1e-3))
        ours, quick = timed(lambda: meaning.of(run_of(noise, rate, steps)).advantage)
        floor = optimistic(noise, rate, steps)
        tally.add(f"advantage of {asked}", ours, theirs, floor=floor, time=quick / slow)
        curve = tradeoff.of(run_of(noise, rate, steps), points=POINTS)
        for alpha in ALPHAS:
            theirs, slow = timed(lambda: 1 - beta_of(noise, rate, steps, alpha))
            ours, quick = timed(lambda: 1 - float(curve.beta(alpha)))
            floor = 1 - float(conversions.get_beta_for_mu(1 / noise, alpha)) - 1e-9 if (rate, steps) == (1, 1) else -inf
            tally.add(f"power at {alpha} of {asked}", ours, theirs, floor=floor, time=quick / slow)
    for epsilon, delta in ((1.0, 0.001), (0.1, 1e-5), (4.0, 0.01)):
        promise = mechanisms.Approximate(epsilon, delta)
        theirs = float(conversions.get_advantage_for_epsilon_delta(epsilon, delta))
        asked = f"({epsilon:g}, {delta:g})"
        tally.add(f"advantage of {asked}", meaning.of(promise).advantage, theirs, floor=theirs * (1 - 1e-9))
        for alpha in (*ALPHAS, 0.8):
            theirs = 1 - float(conversions.get_beta_for_epsilon_delta(epsilon, delta, alpha))
            ours = 1 - float(tradeoff.of(promise, points=POINTS).beta(alpha))
            tally.add(f"power at {alpha} of {asked}", ours, theirs, floor=theirs * (1 - 1e-9))


def noises(tally: Tally) -> None:
    """The least noise for an error rate."""
    for alpha, beta, rate, steps in ((0.1, 0.33, 0.001, 10_000), (0.1, 0.5, 0.001, 10_000), (0.1, 0.7, 0.001, 10_000)):

        def enough(noise: float) -> bool:
            return float(tradeoff.of(run_of(noise, rate, steps), points=128).beta(alpha)) >= beta

        theirs, slow = timed(
            lambda: dpsgd.find_noise_multiplier_for_err_rates(
                alpha=alpha, beta=beta, sample_rate=rate, num_steps=steps, beta_error=2e-3, grid_step=1e-3
            )
        )
        ours, quick = timed(lambda: _search.least(enough, near=1.0, tolerance=1e-3))
        tally.add(f"noise for beta {beta} at alpha {alpha}", ours, theirs, time=quick / slow)


if __name__ == "__main__":
    logging.disable()
    dpsgd.get_beta_for_dpsgd = beta_of
    for name, ask in (("riskcal, risks", risks), ("riskcal, noise for error rates", noises)):
        counted = Tally(name)
        ask(counted)
        counted.show()

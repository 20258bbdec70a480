"""Ask for the error rates that riskcal works out, and for the noise that it calibrates to them.

    python benchmarks/suites/riskcal_suite.py CHECKOUT

CHECKOUT is a clone of github.com/bogdan-kulynych/riskcal. The settings are those of its tests. Risks are compared:
advantages, and one minus the error rate; the judge is the formula of Gaussian noise, or an optimistic distribution.
"""

import logging
import sys
from math import inf

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


def advantage(noise: float, rate: float, steps: int) -> float:
    """Our advantage of a training."""
    return meaning.of(run_of(noise, rate, steps)).advantage


def power(promise: mechanisms.Mechanism, alpha: float) -> float:
    """One minus our error rate."""
    return 1 - float(tradeoff.of(promise, points=POINTS).beta(alpha))


def risks(tally: Tally) -> None:
    """Advantages and error rates of the trainings, and of promises in (epsilon, delta)."""
    for run in RUNS:
        asked = f"noise {run[0]:g}, rate {run[1]:g}, {run[2]} steps"
        theirs, slow = timed(dpsgd.get_advantage_for_dpsgd, *run, grid_step=1e-3)
        ours, quick = timed(advantage, *run)
        tally.add(f"advantage of {asked}", ours, theirs, floor=optimistic(*run), time=quick / slow)
        for alpha in ALPHAS:
            beta, slow = timed(beta_of, *run, alpha)
            ours, quick = timed(power, run_of(*run), alpha)
            exact = 1 - float(conversions.get_beta_for_mu(1 / run[0], alpha)) - 1e-9
            floor = exact if run[1:] == (1, 1) else -inf
            tally.add(f"power at {alpha} of {asked}", ours, 1 - beta, floor=floor, time=quick / slow)
    for epsilon, delta in ((1.0, 0.001), (0.1, 1e-5), (4.0, 0.01)):
        promise, asked = mechanisms.Approximate(epsilon, delta), f"({epsilon:g}, {delta:g})"
        theirs = float(conversions.get_advantage_for_epsilon_delta(epsilon, delta))
        tally.add(f"advantage of {asked}", meaning.of(promise).advantage, theirs, floor=theirs * (1 - 1e-9))
        for alpha in (*ALPHAS, 0.8):
            theirs = 1 - float(conversions.get_beta_for_epsilon_delta(epsilon, delta, alpha))
            tally.add(f"power at {alpha} of {asked}", power(promise, alpha), theirs, floor=theirs * (1 - 1e-9))


def least_noise(alpha: float, beta: float, rate: float, steps: int) -> float:
    """Our least noise for an error rate."""

    def enough(noise: float) -> bool:
        return float(tradeoff.of(run_of(noise, rate, steps), points=128).beta(alpha)) >= beta

    return _search.least(enough, near=1.0, tolerance=1e-3)


def noises(tally: Tally) -> None:
    """The least noise for error rates."""
    find = dpsgd.find_noise_multiplier_for_err_rates
    for beta in (0.33, 0.5, 0.7):
        theirs, slow = timed(find, 0.1, beta, 0.001, 10_000, beta_error=2e-3, grid_step=1e-3)
        ours, quick = timed(least_noise, 0.1, beta, 0.001, 10_000)
        tally.add(f"noise for beta {beta} at alpha 0.1", ours, theirs, time=quick / slow)


if __name__ == "__main__":
    logging.disable()
    dpsgd.get_beta_for_dpsgd = beta_of
    for name, ask in (("riskcal, risks", risks), ("riskcal, noise for error rates", noises)):
        counted = Tally(name)
        ask(counted)
        counted.show()

"""Time odometers: a million charges on one account, and one step for a million people.

python benchmarks/speed/odometers.py

Prints seconds for the charges, for reading both bounds, and the peak memory.
"""

import resource
import time

import numpy as np

from almoner import individual, mechanisms, odometers


def account(odometer: odometers.Odometer, charges: int = 1_000_000, every: int = 1000) -> float:
    """Seconds for the given number of charges, reading both bounds at regular intervals."""
    step = mechanisms.Gaussian(sigma=200.0)
    start = time.perf_counter()
    for j in range(charges):
        odometer.charge(step)
        if j % every == 0:
            odometer.epsilon()
            odometer.ex_post_epsilon()
    return time.perf_counter() - start


def people(boundary: odometers.Odometer, step: mechanisms.Mechanism, n: int = 1_000_000) -> tuple[float, float, float]:
    """Seconds to charge each person once, to read the pathwise bounds, and to read the ex-post bounds."""
    accounts = individual.Odometer(n, boundary)
    norms = np.random.default_rng(1).uniform(0, step.sensitivity, n)
    accounts.charge(step, norms)  # the first charge computes the table of prices
    accounts.epsilon(people=np.arange(10))
    times = [time.perf_counter()]
    for action in (lambda: accounts.charge(step, norms), accounts.epsilon, accounts.ex_post_epsilon):
        action()
        times.append(time.perf_counter())
    return tuple(np.diff(times))


def main() -> None:
    """Measure and print the table."""
    for kind in (odometers.Renyi, odometers.Gaussian, odometers.Lecuyer):
        print(f"{kind.__name__:10} 10^6 charges, 1000 readings of both bounds: {account(kind(delta=1e-6)):6.2f} s")
    orders = tuple(1 + np.geomspace(0.05, 500, 24))
    for name, boundary, step in (
        ("Renyi, 24 orders, Gaussian", odometers.Renyi(delta=1e-6, orders=orders), mechanisms.Gaussian(20.0)),
        (
            "Renyi, 24 orders, sampled Gaussian",
            odometers.Renyi(delta=1e-6, orders=orders),
            mechanisms.SampledGaussian(2.0, 1.0, 0.01),
        ),
        ("Gaussian, planned", odometers.Gaussian(delta=1e-6, plan=1.0), mechanisms.Gaussian(20.0)),
        ("Gaussian, 13 scales", odometers.Gaussian(delta=1e-6), mechanisms.Gaussian(20.0)),
        ("Feldman-Zrnic", odometers.FeldmanZrnic(delta=1e-6, alpha=16.0, step=0.1), mechanisms.Gaussian(20.0)),
    ):
        try:
            charge, pathwise, ex_post = people(boundary, step)
        except TypeError:  # has no ex-post guarantee
            continue
        print(f"10^6 people, {name:36} charge {charge:5.2f} s, epsilon {pathwise:5.2f} s, ex-post {ex_post:5.2f} s")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB")


if __name__ == "__main__":
    main()

"""Measure how long filters take: to be built, to price a round never seen before, and to be calibrated against.

python benchmarks/speed/filter_speed.py [--quick]

Prints one JSON line for each, with seconds of processor time; --quick leaves out tables of prices per person, and the
calibration of `Residue` and `Planned` by noise, which take most of the time. Run it in two versions, one after the
other and with the same number of threads, and compare the lines.
"""

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from almoner import filters, individual, mechanisms
from almoner.accounting import calibrate
from almoner.mechanisms import SampledGaussian

BUDGET = {"epsilon": 1.0, "delta": 1e-5}
PLAN = SampledGaussian(1.0, 1.0, 0.001)
KINDS: dict[str, Callable[[], filters.Filter]] = {
    "Gaussian": lambda: filters.Gaussian(**BUDGET),
    "Zcdp": lambda: filters.Zcdp(**BUDGET),
    "Renyi": lambda: filters.Renyi(**BUDGET),
    "Renyi, plan": lambda: filters.Renyi(**BUDGET, plan=PLAN),
    "Residue": lambda: filters.Residue(**BUDGET),
    "Planned": lambda: filters.Planned(PLAN, **BUDGET),
    "Planned, noise 2, rate 0.01": lambda: filters.Planned(SampledGaussian(2.0, 1.0, 0.01), **BUDGET),
    "Planned, noise 0.6, rate 0.001": lambda: filters.Planned(SampledGaussian(0.6, 1.0, 0.001), **BUDGET),
    "Planned, noise 1, rate 0.0001": lambda: filters.Planned(SampledGaussian(1.0, 1.0, 0.0001), **BUDGET),
}
TABLES = (SampledGaussian(2.0, 1.0, 0.005), SampledGaussian(0.8, 1.0, 0.001))


def report(what: str, name: str, run: Callable[[], object]) -> None:
    """Print one line."""
    start = time.process_time()
    result = run()
    print(
        json.dumps(
            {"what": what, "filter": name, "seconds": round(time.process_time() - start, 4), "result": str(result)}
        )
    )


def report_planned() -> None:
    """Rounds that differ from the plan: a little more noise, twice the noise, a little less."""
    for noise, rate in ((0.6, 0.001), (0.8, 0.001), (0.8, 0.01), (1.0, 0.0001), (2.0, 0.01)):
        account = filters.Planned(SampledGaussian(noise, 1.0, rate), **BUDGET)
        for factor in (1.25, 2.0, 0.9):
            fresh = SampledGaussian(noise * factor, 1.0, rate)
            what = f"fresh round, {factor} times the noise"
            report(
                what, f"Planned, noise {noise}, rate {rate}", lambda account=account, fresh=fresh: account.admits(fresh)
            )


def report_tables() -> None:
    """The first question to accounts per person, which builds their table of prices, and the second."""
    for step in TABLES:
        makes = {name: KINDS[name] for name in ("Renyi", "Residue")}
        for name, make in {**makes, "Planned": lambda step=step: filters.Planned(step, **BUDGET)}.items():
            accounts = individual.Filter(1, make())
            for what in ("individual.Filter, first", "individual.Filter, then"):
                report(what, f"{name}, {step}", lambda accounts=accounts, step=step: accounts.admits(step, np.ones(1)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    KINDS["Residue"]().admits(SampledGaussian(3.0, 1.0, 0.01))  # what is loaded on first use
    filters.Planned(mechanisms.Pure(0.1), **BUDGET)
    for name, make in KINDS.items():
        report("build", name, make)
    for name in ("Residue", "Renyi", "Planned", "Planned, noise 2, rate 0.01"):
        account = KINDS[name]()
        for number, noise in enumerate((1.7, 2.9)):
            fresh = SampledGaussian(noise + len(name) / 1000, 1.0, 0.0031 + number / 1000)
            report(f"fresh round, noise {noise}", name, lambda account=account, fresh=fresh: account.admits(fresh))
    for name in ("Zcdp", "Renyi", "Renyi, plan", "Residue", "Planned"):
        report(
            "calibrate.steps",
            name,
            lambda name=name: calibrate.steps(KINDS[name](), PLAN if name != "Zcdp" else mechanisms.Gaussian(30.0)),
        )
    report("calibrate.sigma", "Zcdp", lambda: calibrate.sigma(KINDS["Zcdp"](), 100))
    report("calibrate.sigma", "Renyi", lambda: calibrate.sigma(KINDS["Renyi"](), 10_000, sample_rate=0.005))
    report_planned()
    if quick:
        return
    report("calibrate.sigma", "Residue", lambda: calibrate.sigma(KINDS["Residue"](), 10_000, sample_rate=0.005))
    planned = filters.Planned(TABLES[0], **BUDGET)
    report("calibrate.sigma", "Planned", lambda: calibrate.sigma(planned, 10_000, sample_rate=0.005))
    report_tables()


if __name__ == "__main__":
    main()

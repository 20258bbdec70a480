"""Ask our accountant what the tests of Opacus and of prv_accountant ask theirs.

    python benchmarks/suites/opacus_suite.py OPACUS PRV_ACCOUNTANT

OPACUS and PRV_ACCOUNTANT are clones of github.com/meta-pytorch/opacus and github.com/microsoft/prv_accountant. Opacus's
Gaussian accountant is an approximation that is below the truth: its answers are not compared. The judges are an
optimistic distribution of dp_accounting, and the lower ends that prv_accountant gives.
"""

import os
import sys
from pathlib import Path
from typing import Any
from unittest import TestSuite, TextTestRunner, defaultTestLoader

OPACUS, PRV = map(Path, sys.argv[1:3])
sys.path[:0] = [str(OPACUS / "opacus" / "tests"), str(PRV)]

import accountants_test  # noqa: E402 - of the suite
import prv_accountant as of_opacus  # noqa: E402 - the file of Opacus's tests, which is named like the package
import pytest  # noqa: E402
from asked import floor  # noqa: E402
from dp_accounting import dp_event  # noqa: E402
from opacus import accountants  # noqa: E402
from tally import Tally, timed  # noqa: E402

from almoner import mechanisms  # noqa: E402
from almoner.accounting import calibrate  # noqa: E402
from almoner.curves import losses  # noqa: E402
from almoner.curves._totals import tightest  # noqa: E402

Steps = tuple[tuple[float, float, int], ...]
epsilons: dict[tuple[Steps, float], tuple[float, float]] = {}
deltas: dict[tuple[tuple[tuple[Any, int], ...], float], tuple[float, float, float]] = {}
noises: dict[tuple[Any, ...], tuple[float, float]] = {}
searching: list[bool] = []


def run_of(steps: Steps) -> mechanisms.Composed:
    """Steps of trainings."""
    return mechanisms.Composed(tuple(mechanisms.Repeated(mechanisms.gaussian_step(z, 1.0, q), n) for z, q, n in steps))


def event_of(steps: Steps) -> dp_event.ComposedDpEvent:
    """Describe steps as an event of dp_accounting."""
    events = [(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(z)), n) for z, q, n in steps]
    return dp_event.ComposedDpEvent([dp_event.SelfComposedDpEvent(each, n) for each, n in events])


def log_opacus() -> None:
    """Run the tests of Opacus's accountants, and keep what they ask."""
    for kind in (accountants.RDPAccountant, accountants.PRVAccountant):

        def ask(self: Any, delta: float, *more: Any, method: Any = kind.get_epsilon, **options: Any) -> float:
            answer, seconds = timed(method, self, delta, *more, **options)
            if searching:
                return answer
            key = tuple(tuple(each) for each in self.history), delta
            before = epsilons.get(key, (float("inf"), 0.0))
            epsilons[key] = min(before, (float(answer), seconds))
            return answer

        kind.get_epsilon = ask
    find = accountants_test.get_noise_multiplier

    def noise(**asked: Any) -> float:
        searching.append(True)
        answer, seconds = timed(find, **asked)
        searching.clear()
        if asked.get("accountant") != "gdp":
            steps = asked.get("steps") or int(asked["epochs"] / asked["sample_rate"])
            key = asked["target_epsilon"], asked["target_delta"], asked["sample_rate"], steps
            noises[key] = min(noises.get(key, (float("inf"), 0.0)), (float(answer), seconds))
        return answer

    accountants_test.get_noise_multiplier = noise
    loaded = map(defaultTestLoader.loadTestsFromModule, (accountants_test, of_opacus))
    TextTestRunner(verbosity=0).run(TestSuite(loaded))


def log_prv() -> None:
    """Run the tests of prv_accountant, and keep the deltas that they ask for with the least error."""
    sys.path.remove(str(OPACUS / "opacus" / "tests"))
    del sys.modules["prv_accountant"]
    from prv_accountant import PRVAccountant

    def ask(self: Any, epsilon: float, counts: list[int], method: Any = PRVAccountant.compute_delta) -> Any:
        (low, middle, high), seconds = timed(method, self, epsilon, counts)
        steps = tuple((float(one.sigma), float(one.p), count) for one, count in zip(self.prvs, counts, strict=True))
        before = deltas.get((steps, epsilon), (float("-inf"), float("inf"), 0.0))
        deltas[steps, epsilon] = max(low, before[0]), min(high, before[1]), seconds
        return low, middle, high

    PRVAccountant.compute_delta = ask
    pytest.main(
        ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "-W", "ignore", str(PRV / "tests" / "test_accountant.py")]
    )


if __name__ == "__main__":
    log_opacus()
    tally = Tally("Opacus, epsilons")
    for (steps, delta), (theirs, slow) in epsilons.items():
        ours, quick = timed(lambda steps=steps, delta=delta: tightest(run_of(steps), delta=delta).epsilon)
        tally.add(f"{steps} at {delta:g}", ours, theirs, floor=floor(event_of(steps), delta), time=quick / slow)
    tally.show()
    tally = Tally("Opacus, noise")
    for (epsilon, delta, rate, count), (theirs, slow) in noises.items():
        asked = {"epsilon": epsilon, "delta": delta, "sample_rate": rate, "steps": count}
        ours, quick = timed(lambda asked=asked: calibrate.in_advance(**asked).noise_multiplier)
        tally.add(str(asked), ours, theirs, time=quick / slow)
    tally.show()
    log_prv()
    tally = Tally("prv_accountant, deltas")
    for (steps, epsilon), (low, theirs, slow) in deltas.items():
        rounds = mechanisms.leaves(run_of(steps))
        ours, quick = timed(lambda rounds=rounds, epsilon=epsilon: losses.delta_at(rounds, epsilon=epsilon))
        tally.add(f"{steps} at {epsilon:g}", ours, theirs, floor=low, time=quick / slow)
    tally.show()

"""Log the questions that tests of others ask the accountants of dp_accounting, and ask ours the same."""

import logging
import unittest
from contextlib import redirect_stderr, suppress
from importlib import import_module
from io import StringIO
from math import inf, isfinite
from typing import Any

import dp_accounting
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant, privacy_loss_distribution
from dp_accounting.rdp import RdpAccountant
from tally import Tally, TooLong, limit, timed

from almoner.errors import AlmonerError
from almoner.interop.dp_accounting import accountant

SECONDS = 30
asked: dict[tuple[str, ...], tuple[Any, ...]] = {}
depth = 0


def logged(kind: type, name: str) -> None:
    """Log a method of an accountant, but not what it asks itself."""
    method = getattr(kind, name)

    def ask(self: Any, target: float, *more: Any) -> float:
        global depth
        depth += 1
        try:
            answer: float = method(self, target, *more)
        finally:
            depth -= 1
        if not depth:
            key = (kind.__name__, name, repr(self.ledger), str(self._neighboring_relation), repr(target))
            asked[key] = (kind, name, self.ledger, self._neighboring_relation, target, answer)
        return answer

    setattr(kind, name, ask)


def optimistic(event: Any) -> Any:
    """A distribution that is below that of an event; None where there is none."""
    kind = type(event)
    options = {"pessimistic_estimate": False, "value_discretization_interval": 1e-3}
    if kind is dp_event.GaussianDpEvent:
        return privacy_loss_distribution.from_gaussian_mechanism(event.noise_multiplier, **options)
    if kind is dp_event.LaplaceDpEvent:
        return privacy_loss_distribution.from_laplace_mechanism(event.noise_multiplier, **options)
    if kind is dp_event.PoissonSampledDpEvent and type(event.event) is dp_event.GaussianDpEvent:
        noise, rate = event.event.noise_multiplier, event.sampling_probability
        return privacy_loss_distribution.from_gaussian_mechanism(noise, sampling_prob=rate, **options)
    if kind is dp_event.SelfComposedDpEvent:
        one = optimistic(event.event)
        return one if one is None or event.count == 1 else one.self_compose(event.count)
    if kind is dp_event.ComposedDpEvent and event.events:
        parts = [optimistic(each) for each in event.events]
        whole = parts[0]
        for part in parts[1:]:
            whole = None if whole is None or part is None else whole.compose(part)
        return whole
    return None


def floor(event: Any, delta: float) -> float:
    """An epsilon that no valid one is below."""
    try:
        with limit(SECONDS):
            judge = optimistic(event)
            return -inf if judge is None else judge.get_epsilon_for_delta(delta) * (1 - 1e-6) - 1e-6
    except (TooLong, ValueError, ZeroDivisionError, MemoryError, OverflowError):
        return -inf


def log_tests(modules: tuple[str, ...]) -> None:
    """Run the tests of modules with a logger."""
    logging.disable()
    for kind in (RdpAccountant, PLDAccountant):
        logged(kind, "get_epsilon")
        logged(kind, "get_delta")
    tests = [unittest.defaultTestLoader.loadTestsFromModule(import_module(name)) for name in modules]
    with redirect_stderr(StringIO()):
        result = unittest.TextTestRunner(verbosity=0).run(unittest.TestSuite(tests))
    print(f"{result.testsRun} tests, {len(asked)} distinct questions", flush=True)


def ask_all(name: str) -> None:
    """Ask our accountant what was logged, and print how its answers compare; Ctrl-C prints what there is."""
    tally, other = Tally(name), 0
    try:
        for question in list(asked.values()):
            other += ask(tally, *question)
    except KeyboardInterrupt:
        print("stopped")
    tally.show()
    print(f"  not asked: {other} with an answer that is no epsilon or delta")


def ask(tally: Tally, kind: Any, method: str, event: Any, relation: Any, target: float, answer: float) -> bool:
    """Ask one question; True if it has no answer here by its nature."""
    nulls, replace = relation is NeighboringRelation.REPLACE_SPECIAL, relation is NeighboringRelation.REPLACE_ONE
    delta, theirs = (target, answer) if method == "get_epsilon" else (answer, target)
    if not 0 <= delta <= 1 or not theirs >= 0:
        return True
    try:
        with limit(SECONDS):
            ours, seconds = timed(
                lambda: accountant(null_records=nulls, replace=replace).compose(event).get_epsilon(delta)
            )
    except (AlmonerError, dp_accounting.UnsupportedEventError, TooLong, ValueError) as refused:
        tally.refuse(f"{type(event).__name__}: {refused}"[-150:])
        return False
    ratio = None
    with suppress(TooLong), limit(SECONDS):
        _, slow = timed(lambda: kind(neighboring_relation=relation).compose(event).get_epsilon(delta))
        ratio = seconds / slow
    judge = floor(event, delta) if isfinite(ours) and not (nulls or replace) and 0 < delta < 1 else -inf
    tally.add(f"{kind.__name__}.{method}({target!r}) of {event}"[:200], ours, theirs, floor=judge, time=ratio)
    return False

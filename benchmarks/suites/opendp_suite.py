"""Ask our filters what OpenDP's tests of composition, filters and odometers ask theirs.

    python benchmarks/suites/opendp_suite.py CHECKOUT

CHECKOUT is a clone of github.com/opendp/opendp; its Python tests run on the installed package, and three of its Rust
tests are written again below. Each history of measurements is charged to a filter of the same notion. Compared are the
totals, and who is admitted; the judge is the sum of OpenDP's own privacy maps in exact arithmetic. Fixed compositions
are also asked for the least epsilon at the delta that OpenDP gives.
"""

import os
import sys
import warnings
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import opendp.core as core
import pytest
from opendp import combinators
from tally import Tally, timed

from almoner import filters, mechanisms
from almoner.curves._totals import tightest
from almoner.errors import AlmonerError, BudgetExceeded
from almoner.interop.opendp import mechanism

TESTS = Path(sys.argv[1]) / "python" / "test"
FILES = "test_interactive.py", "test_comb.py", "test_core.py", "test_metrics.py", "context"
MAKERS = "make_composition", "make_adaptive_composition", "make_privacy_filter", "make_fully_adaptive_composition"
made: dict[int, tuple[str, dict[str, Any], Any]] = {}  # what each object was made as
histories: dict[int, tuple[str, dict[str, Any], list[tuple[Any, ...]], Any]] = {}  # by queryable
maps: list[tuple[list[Any], Any, Any, float]] = []  # of fixed compositions
asking: list[bool] = []  # we ask, not a test


def log_makers() -> None:
    """Keep what is made of what."""
    for name in MAKERS:
        setattr(combinators, name, partial(kept, getattr(combinators, name), name))


def kept(make: Any, name: str, *values: Any, **options: Any) -> Any:
    """Make, and keep."""
    result = make(*values, **options)
    names = make.__code__.co_varnames[: make.__code__.co_argcount]
    made[id(result)] = name, dict(zip(names, values, strict=False)) | options, result
    return result


def log_calls() -> None:
    """Keep what is asked of what was made."""
    to_map, read = core.measurement_map, core.odometer_queryable_privacy_loss

    def mapped(measurement: Any, d_in: Any) -> Any:
        answer, seconds = timed(to_map, measurement, d_in)
        if not asking and made.get(id(measurement), ("",))[0] == "make_composition":
            maps.append((made[id(measurement)][1]["measurements"], d_in, answer, seconds))
        return answer

    def loss(value: Any, d_in: Any) -> Any:
        answer, seconds = timed(read, value, d_in)
        if id(value) in histories:
            histories[id(value)][2].append(("loss", d_in, answer, seconds))
        return answer

    core.measurement_map, core.odometer_queryable_privacy_loss = mapped, loss
    for name in ("measurement_invoke", "odometer_invoke"):
        setattr(core, name, partial(invoked, getattr(core, name)))
    for name in ("odometer_queryable_invoke", "queryable_eval"):
        setattr(core, name, partial(queried, getattr(core, name)))


def begun(one: Any, answer: Any) -> Any:
    """Begin the history of an answer that can be asked again."""
    if id(one) in made and hasattr(answer, "value"):
        histories[id(answer.value)] = (*made[id(one)][:2], [], answer)
    return answer


def invoked(invoke: Any, one: Any, arg: Any) -> Any:
    """Invoke, and keep what can be asked again."""
    return begun(one, invoke(one, arg))


def queried(ask: Any, value: Any, query: Any) -> Any:
    """Ask, and keep who was admitted."""
    admitted = False
    try:
        answer = ask(value, query)
        admitted = True
    finally:
        if id(value) in histories and hasattr(query, "map"):
            histories[id(value)][2].append(("query", query, admitted))
    return begun(query, answer)


def rust_tests() -> None:
    """Three tests of rust/src/combinators: a filter that is overrun, an odometer, and approximate zCDP."""
    import opendp.prelude as dp

    space = dp.atom_domain(T=bool), dp.discrete_distance()
    whole = combinators.make_fully_adaptive_composition(*space, dp.max_divergence())
    queryable = combinators.make_privacy_filter(whole, 1, 1.0)(True)
    for chance in (0.51, 0.51, 0.75):
        with suppress(dp.OpenDPException):
            queryable(dp.m.make_randomized_response_bool(chance))
            queryable.privacy_loss(1)
    odometer = whole(True)
    half = dp.m.make_randomized_response_bool(0.5)
    for _ in range(2):
        odometer(half)
    for d_mids in ([0.1, 0.1], [0.2, 0.3]):
        child = odometer(combinators.make_adaptive_composition(*space, dp.max_divergence(), 1, d_mids))
        for _ in range(2):
            child(half)
    odometer.privacy_loss(1)
    measure = dp.approximate(dp.zero_concentrated_divergence())
    odometer = combinators.make_fully_adaptive_composition(*space, measure)(False)
    odometer(dp.m.make_user_measurement(*space, measure, lambda arg: not arg, lambda _: (1.0, 1e-7)))
    odometer.privacy_loss(1)


def account(measure: str, budget: Any = None) -> filters.Filter | None:
    """A filter of a notion, with a budget of theirs or a large one."""
    if measure == "MaxDivergence":
        return filters.Basic(epsilon=min(budget or 1e3, 1e3))
    if measure == "Approximate<MaxDivergence>":
        epsilon, delta = budget or (1e3, 0.5)
        return filters.Basic(epsilon=min(epsilon, 1e3), delta=delta)
    if measure == "ZeroConcentratedDivergence":
        return filters.Zcdp(rho=budget or 1e3)
    return None


def of_measure(options: dict[str, Any]) -> tuple[str, Any, Any]:
    """The measure, the distance and the budget of a history."""
    if "odometer" in options:
        of = options["odometer"]
        return str(of.output_measure.type), options["d_in"], options["d_out"]
    mids = options.get("d_mids")
    budget = None
    if mids:
        pairs = isinstance(mids[0], tuple)
        budget = tuple(map(added, zip(*mids, strict=True))) if pairs else added(mids)
    return str(options["output_measure"].type), options.get("d_in"), budget


def added(numbers: Any) -> float:
    """A sum, rounded up."""
    exactly = sum(map(Fraction, numbers), Fraction(0))
    nearest = float(exactly)
    return nearest if Fraction(nearest) >= exactly else nearest * (1 + 2.0**-52)


def first(cost: Any) -> Any:
    """The epsilon of a pair."""
    return cost[0] if isinstance(cost, tuple) else cost


def replay() -> None:
    """Charge every history; compare who is admitted, and the totals."""
    totals, admitted = Tally("OpenDP, totals of filters and odometers"), Tally("OpenDP, admissions (0 is admitted)")
    for name, options, history, _ in histories.values():
        measure, d_in, budget = of_measure(options)
        try:
            ours = account(measure, budget)
        except AlmonerError as refused:
            totals.refuse(f"{name}: {refused}")
            continue
        exact, closed = Fraction(0), False
        for kind, query, answer, *seconds in history:
            if ours is None:
                totals.refuse(f"{name}: {measure} has no filter whose total is asked for")
            elif kind == "loss":
                spent, quick = timed(lambda f=ours: f.spent)
                floor = float(exact) * (1 - 1e-12)
                totals.add(f"{name}, {measure}", first(spent), first(answer), floor=floor, time=quick / seconds[0])
            else:
                exact, closed = charged(ours, query, d_in or 1, answer, exact, closed, admitted, name)
    totals.show()
    admitted.show()


def charged(
    ours: filters.Filter, query: Any, d_in: Any, theirs: bool, exact: Fraction, closed: bool, tally: Tally, name: str
) -> tuple[Fraction, bool]:
    """Charge one measurement; what the maps add up to, and if theirs takes no more."""
    try:
        asking.append(True)
        price = mechanism(query, d_in)
        if id(query) in made and made[id(query)][0] != "make_composition":
            tally.refuse("interactive measurements are charged in whole, and not released by interop.opendp")
        ours.charge(price)
        tally.add(f"{name}, {price!r}{' after a refusal' if closed else ''}", 0.0, 0.0 if theirs else 1.0)
        return exact + Fraction(first(query.map(d_in))), closed
    except BudgetExceeded:
        tally.add(f"{name}, {query}", 1.0, 0.0 if theirs else 1.0)
        return exact, True
    except AlmonerError as refused:
        tally.refuse(f"{name}: {refused}")
        return exact, closed
    finally:
        asking.clear()


def compositions() -> None:
    """Fixed compositions: the same sums, and the least epsilon at their delta."""
    sums, least = Tally("OpenDP, fixed compositions"), Tally("OpenDP, fixed compositions, our least epsilon")
    for parts, d_in, answer, slow in maps:
        measure = str(parts[0].output_measure.type)
        try:
            asking.append(True)
            prices = [mechanism(part, d_in) for part in parts]
            exact = sum(Fraction(first(part.map(d_in))) for part in parts)
            ours = account(measure)
            if ours is None:
                sums.refuse(f"{measure} has no filter whose total is asked for")
                continue
            for price in prices:
                ours.charge(price)
            floor = float(exact) * (1 - 1e-12)
            sums.add(f"{len(parts)} parts", first(ours.spent), first(answer), floor=floor)
            if measure == "Approximate<MaxDivergence>" and answer[1]:
                run = mechanisms.Composed(tuple(prices))
                bound, quick = timed(lambda run=run, delta=answer[1]: tightest(run, delta=delta).epsilon)
                least.add(f"{len(parts)} parts at {answer[1]}", bound, answer[0], time=quick / slow)
        except AlmonerError as refused:
            sums.refuse(str(refused))
        finally:
            asking.clear()
    sums.show()
    least.show()


if __name__ == "__main__":
    log_makers()
    log_calls()
    warnings.simplefilter("ignore")
    names = [str(TESTS / name) for name in FILES]
    pytest.main(["-q", "-p", "no:cacheprovider", "-c", os.devnull, "-W", "ignore", *names])
    rust_tests()
    asked = sum(len(each[2]) for each in histories.values())
    print(f"{len(histories)} histories with {asked} questions, {len(maps)} fixed compositions", flush=True)
    replay()
    compositions()

"""Odometers against simulated adversaries who can fail them; formulas that fail are caught by the same adversaries."""

import math

import numpy as np
import pytest

from almoner import mechanisms as m
from almoner import odometers
from almoner.curves import zcdp
from odometer_adversaries import MENUS, POLICIES, TIE, at_least, at_most, crossings, gaussian, response, table

DELTA, ROUNDS, RUNS = 0.05, 250, 8_000  # three adversaries of 8,000 runs each for every odometer and menu

ANY = {
    "renyi": lambda: odometers.Renyi(delta=DELTA),
    "renyi_plan": lambda: odometers.Renyi(delta=DELTA, plan=1.0, sum_delta=0.0),
    "lecuyer": lambda: odometers.Lecuyer(delta=DELTA),
}
ZCDP = {
    "gaussian": lambda: odometers.Gaussian(delta=DELTA),
    "gaussian_plan": lambda: odometers.Gaussian(delta=DELTA, plan=1.0),
    "line": lambda: odometers.Line(delta=DELTA, plan=1.0),
    "mixture": lambda: odometers.Mixture(delta=DELTA),
    "stitched": lambda: odometers.Stitched(delta=DELTA, start=0.01),
    "rogers": lambda: odometers.Rogers(delta=DELTA, people=1000),
}
CASES = [(name, menu) for name in ANY for menu in MENUS]
CASES += [(name, menu) for name in ZCDP for menu in MENUS if menu not in ("sampled", "left_out")]
case = pytest.mark.parametrize(("name", "menu"), CASES, ids=["-".join(c) for c in CASES])
STRATEGIES = ("steady", "sprint", "creep")


@pytest.mark.quick(2)
@case
def test_losses_stay_below_the_pathwise_bound(name, menu):
    """At delta = 0.05 and 24,000 runs, the rate of crossing at any time is below delta (Clopper-Pearson, 1e-4)."""
    odometer = (ANY | ZCDP)[name]()
    bounds, crossed = table(odometer, MENUS[menu], ROUNDS), []
    for seed, strategy in enumerate(STRATEGIES):
        loss, bound = crossings(bounds, MENUS[menu], POLICIES[strategy], ROUNDS, RUNS, seed)
        crossed.append(int(np.sum(loss > bound + TIE)))
        assert at_least(crossed[-1], RUNS) <= DELTA
    assert at_most(sum(crossed), len(STRATEGIES) * RUNS) <= DELTA


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("name", "menu"), [c for c in CASES if c[0] not in ("lecuyer", "mixture", "stitched", "rogers")]
)  # theirs is the pathwise one
def test_losses_keep_the_ex_post_promise(name, menu):
    """The promise is E[(1 - e^(bound - loss))_+] <= delta at every stopping time: that of a coin of this bias.

    The adversaries stop where the excess is worth the most, a little above the bound.
    """
    odometer = (ANY | ZCDP)[name]()
    bounds, rng = table(odometer, MENUS[menu], ROUNDS, ex_post=True), np.random.default_rng(7)
    for seed, strategy in enumerate(STRATEGIES):
        for margin in (0.15, 0.5):
            loss, bound = crossings(bounds, MENUS[menu], POLICIES[strategy], ROUNDS, RUNS, seed, margin=margin)
            paid = rng.random(RUNS) < -np.expm1(np.minimum(bound - loss, 0.0))
            assert at_least(int(paid.sum()), RUNS) <= DELTA


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["renyi_plan", "gaussian_plan", "line"])
@pytest.mark.parametrize("ex_post", [False, True], ids=["pathwise", "ex-post"])
def test_the_adversaries_can_fail_an_odometer(name, ex_post):
    """A bound a fifth lower is refuted by the same adversary: the tests above are not vacuous."""
    menu = MENUS["gaussian"]
    bounds = 0.8 * table((ANY | ZCDP)[name](), menu, ROUNDS, ex_post=ex_post)
    loss, bound = crossings(bounds, menu, POLICIES["steady"], ROUNDS, 4 * RUNS, 3, margin=0.15 if ex_post else 0.0)
    worth = -np.expm1(np.minimum(bound - loss, 0.0)) if ex_post else loss > bound + TIE
    caught = int(np.sum(np.random.default_rng(5).random(4 * RUNS) < worth))
    assert at_least(caught, 4 * RUNS) > DELTA


def long_run(step, per_round, last, runs, seed, points=400):
    """(rounds, losses) at geometric times up to the last round, for rounds that are all alike."""
    rng = np.random.default_rng(seed)
    rounds = np.unique(np.geomspace(1, last, points).astype(int))
    loss = np.zeros(runs)
    for before, now in zip((0, *rounds[:-1]), rounds, strict=True):
        loss = loss + per_round(rng, int(now - before), runs)
        yield now, loss


def response_block(epsilon):
    truth = 1 / (1 + math.exp(-epsilon))
    return lambda rng, rounds, runs: epsilon * (2 * rng.binomial(rounds, truth, runs) - rounds)


def gaussian_block(mu):
    return lambda rng, rounds, runs: rounds * mu**2 / 2 + mu * math.sqrt(rounds) * rng.standard_normal(runs)


LONG = {
    "response": (m.RandomizedResponse(0.1), response_block(0.1)),
    "gaussian": (m.Gaussian(20.0), gaussian_block(0.05)),
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("what", LONG)
@pytest.mark.parametrize("name", list(ANY | ZCDP))
def test_a_hundred_thousand_rounds(name, what):
    """20,000 runs of 10^5 equal rounds, looked at four hundred times: still crossed less often than delta."""
    step, per_round = LONG[what]
    odometer, crossed, charged = (ANY | ZCDP)[name](), np.zeros(20_000, bool), 0
    for rounds, loss in long_run(step, per_round, 100_000, 20_000, 11):
        odometer.charge(m.Repeated(step, int(rounds) - charged))
        charged = int(rounds)
        crossed |= loss > odometer.epsilon() + TIE
    assert at_most(int(crossed.sum()), 20_000) <= DELTA


def poster_mixture(clock, delta, scale):
    return math.sqrt(2 * (clock + scale) * math.log(math.sqrt((clock + scale) / scale) / (2 * delta) + 1))


def poster_stitched(clock, delta, start):
    return 1.7 * math.sqrt(clock * (math.log(math.log(2 * clock / start)) + 0.72 * math.log(5.2 / delta)))


@pytest.mark.parametrize("formula", [poster_mixture, poster_stitched])
def test_the_formulas_without_drift_are_crossed(formula):
    """As the poster prints them, without V/2: nearly every run of 4 10^4 rounds of 0.1-DP crosses, at delta 1e-6."""
    crossed = np.zeros(2000, bool)
    for rounds, loss in long_run(m.RandomizedResponse(0.1), response_block(0.1), 40_000, 2000, 12):
        crossed |= loss > formula(rounds * 0.01, 1e-6, 0.0338 if formula is poster_mixture else 0.01)
    assert at_least(int(crossed.sum()), 2000) > 0.99


def first_broken(bound, delta, last):
    """The first round by which losses of 0.1-DP randomised response exceeded a bound with more than delta, exactly."""
    truth, crossed = 1 / (1 + math.exp(-0.1)), 0.0
    net = np.arange(-last, last + 1)
    weights = (net == 0).astype(float)
    for rounds in range(1, last + 1):
        weights = truth * np.roll(weights, 1) + (1 - truth) * np.roll(weights, -1)
        over = 0.1 * net > bound(rounds * 0.01) + TIE
        crossed += weights[over].sum()
        weights[over] = 0.0
        if crossed > delta:
            return rounds
    return None


def test_the_formulas_without_drift_break_after_some_hundred_rounds():
    """As the poster prints them they keep delta = 1e-6 over its 100 rounds, not over 600; with the drift they do."""
    mixture = odometers.Mixture(delta=1e-6, sum_delta=0.0, plan=1.0).notion
    assert first_broken(lambda clock: poster_mixture(clock, 1e-6, mixture.scale), 1e-6, 600) == 132
    assert first_broken(lambda clock: poster_stitched(clock, 1e-6, 0.01), 1e-6, 600) == 486
    assert first_broken(lambda clock: clock / 2 + poster_mixture(clock, 1e-6, mixture.scale), 1e-6, 600) is None
    assert first_broken(lambda clock: clock / 2 + poster_stitched(clock, 1e-6, 0.01), 1e-6, 600) is None


def test_the_formulas_without_drift_are_crossed_at_the_large_delta():
    """The same two at delta = 0.05: refuted far beyond doubt."""
    for formula, constant in ((poster_mixture, 0.15), (poster_stitched, 0.01)):
        crossed = np.zeros(5000, bool)
        for rounds, loss in long_run(m.RandomizedResponse(0.1), response_block(0.1), 20_000, 5000, 13):
            crossed |= loss > formula(rounds * 0.01, DELTA, constant)
        assert at_least(int(crossed.sum()), 5000) > 10 * DELTA


def test_a_running_total_is_no_odometer():
    """The bound for a number of rounds fixed in advance, read off all along, is crossed more often than delta."""
    crossed = np.zeros(20_000, bool)
    for rounds, loss in long_run(m.Gaussian(20.0), gaussian_block(0.05), 100_000, 20_000, 14):
        crossed |= loss > zcdp.Zcdp(rounds * 0.05**2 / 2).epsilon(delta=DELTA)
    assert at_least(int(crossed.sum()), 20_000) > 2 * DELTA


@pytest.mark.parametrize("kind", ["feldman_zrnic", "gaussian_restarts"])
def test_restarts_keep_their_promise_at_the_end_of_a_filter(kind):
    """An adversary spends K filters, steps chosen by the loss so far; then E[(1 - e^(epsilon-L))_+] <= delta."""
    filters, runs, rng = 3, 20_000, np.random.default_rng(21)
    small, large = gaussian(0.1), gaussian(0.45)
    if kind == "feldman_zrnic":
        odometer = odometers.FeldmanZrnic(delta=DELTA, alpha=4.0, step=0.5)
        size = 0.5 / 2  # alpha mu^2 / 2 = 2 mu^2
    else:
        odometer = odometers.GaussianRestarts(delta=DELTA, step=0.25)
        size = 0.25
    loss, held, opened = np.zeros(runs), np.zeros(runs), np.ones(runs, int)
    for _ in range(400):
        wish = loss < 0.5 * (1 + opened)
        square = np.where(wish, 0.45**2, 0.1**2)
        opens = held + square > size + 1e-12
        done = opens & (opened == filters)
        step = np.where(wish, large.losses(rng, runs), small.losses(rng, runs))
        loss = np.where(done, loss, loss + step)
        held = np.where(done, held, np.where(opens, square, held + square))
        opened = np.where(done, opened, opened + opens)
    for _ in range(filters):  # the public odometer at the same number of filters
        odometer.charge(m.Gaussian(1 / math.sqrt(size)))
    assert odometer.filters == filters
    paid = rng.random(runs) < -np.expm1(np.minimum(odometer.epsilon() - loss, 0.0))
    assert at_most(int(paid.sum()), runs) <= DELTA
    assert at_least(int((loss > 0.4 * odometer.epsilon()).sum()), runs) > 0.01


def test_capped_stops_in_time():
    """Early stopping at epsilon = 2 by the running bound: the interaction is (2, 0.05)-DP against the adversaries."""
    account = odometers.Capped(odometers.Renyi(delta=DELTA, plan=1.0, sum_delta=0.0), epsilon=2.0)
    menu = (response(0.1), gaussian(0.6))
    bounds = table(account._odometer, menu, ROUNDS, ex_post=True)
    for seed, strategy in enumerate(("steady", "sprint", "creep")):
        rng, runs = np.random.default_rng(seed), 8_000
        loss, small, large = np.zeros(runs), np.zeros(runs, int), np.zeros(runs, int)
        for _ in range(ROUNDS - 1):
            which = POLICIES[strategy](loss, bounds[small, large])
            fits = (bounds[small + ~which, large + which] <= 2.0) & (loss < 2.3)  # it may stop when it pleases
            step = np.where(which, menu[1].losses(rng, runs), menu[0].losses(rng, runs))
            loss = loss + np.where(fits, step, 0.0)
            small, large = small + (~which & fits), large + (which & fits)
        paid = rng.random(runs) < -np.expm1(np.minimum(2.0 - loss, 0.0))
        assert at_most(int(paid.sum()), runs) <= DELTA * 1.2
        assert at_least(int(paid.sum()), runs) <= DELTA


def test_the_table_is_the_odometer():
    """The simulations look bounds up in a table: it agrees with charging the public odometer."""
    menu = MENUS["response"]
    for name, make in (ANY | ZCDP).items():
        for ex_post in (False, True):
            odometer, bounds = make(), table(make(), menu, 40, ex_post=ex_post)
            odometer.charge(m.Composed((m.Repeated(menu[0].mechanism, 17), m.Repeated(menu[1].mechanism, 6))))
            read = odometer.ex_post_epsilon() if ex_post else odometer.epsilon()
            assert bounds[17, 6] == pytest.approx(read, rel=1e-9), name

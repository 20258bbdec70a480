"""Odometers that follow a plan: prices, readings, saved states, and the best adversary by dynamic programming."""

import json
import math
from functools import cache, lru_cache

import pytest

from almoner import errors, odometers
from almoner import mechanisms as m
from almoner.curves import gaussian

STEP = m.SampledGaussian(1.0, 1.0, 0.02)
QUIET = m.SampledGaussian(2.0, 1.0, 0.02)
DELTA = 1e-5


def fresh(**options):
    return odometers.Planned(m.Repeated(STEP, 60), **{"delta": DELTA, **options})


def charged(odometer, *steps):
    for step in steps:
        odometer.charge(step)
    return odometer


@pytest.mark.slow
def test_early_bounds_are_a_fraction_of_those_over_orders():
    """Few rounds of little noise: below the mixture that is planned for just so many; a fifth where rates are small."""
    for step, rounds, part in ((STEP, 3, 0.7), (m.SampledGaussian(0.8, 1.0, 0.001), 10, 0.2)):
        mixture = charged(odometers.Renyi(delta=DELTA, plan=m.Repeated(step, rounds)), m.Repeated(step, rounds))
        planned = charged(odometers.Planned(m.Repeated(step, 60), delta=DELTA), m.Repeated(step, rounds))
        assert planned.ex_post_epsilon() < part * mixture.ex_post_epsilon()
        assert planned.ex_post_epsilon() <= planned.epsilon() < mixture.epsilon()


def test_the_end_of_a_plan_is_near_the_bound_fixed_in_advance():
    """Gaussian rounds, whose exact epsilon is known: above it, and within 8 per cent."""
    run = m.Repeated(m.Gaussian(20.0), 400)
    exact = gaussian.of(run).epsilon(delta=DELTA)
    assert exact < charged(odometers.Planned(run, delta=DELTA), run).ex_post_epsilon() < 1.08 * exact


def test_one_by_one_or_in_one_go():
    """Planned rounds are counted: the same totals and bounds, and after the plan the bound goes on."""
    together, single = charged(fresh(), m.Repeated(STEP, 20)), charged(fresh(), *(STEP,) * 20)
    assert together.state() == single.state()
    before = single.ex_post_epsilon()
    after = charged(single, m.Repeated(STEP, 500)).ex_post_epsilon()
    assert before < after < math.inf
    assert after <= charged(odometers.Renyi(delta=DELTA / 20), m.Repeated(STEP, 520)).ex_post_epsilon()


def test_more_noise_than_planned_counts_as_planned():
    """Twice the noise, half the rate or both: a planned round each, and the bound of as many of them."""
    others = (QUIET, m.SampledGaussian(1.0, 1.0, 0.01), m.SampledGaussian(3.0, 1.0, 0.01))
    odometer = charged(fresh(), m.Repeated(STEP, 10), *others * 10)
    assert odometer.state()["run"][0] == 40
    assert odometer.ex_post_epsilon() <= charged(fresh(), m.Repeated(STEP, 40)).ex_post_epsilon()


@pytest.mark.parametrize(
    "other", [m.Pure(0.004), m.Laplace(300.0), m.Gaussian(150.0), m.Approximate(0.004, 1e-11), m.PDP(0.004, 1e-11)]
)
def test_other_rounds_are_bought(other):
    """Each kind of round that has a privacy loss distribution, beside the plan; the bounds rise and stay finite."""
    odometer = charged(fresh(), m.Repeated(STEP, 5))
    before = odometer.epsilon(), odometer.ex_post_epsilon()
    odometer.charge(other)
    assert math.inf not in odometer.state()["run"]
    assert before[0] <= odometer.epsilon() < 2 * before[0]
    assert before[1] <= odometer.ex_post_epsilon() < 2 * before[1]


def test_where_the_plan_says_nothing_the_mixture_does():
    """Rounds without a distribution, and rounds as loud as all that is planned: finite bounds, and for good."""
    for other in (m.Zcdp(1e-4), m.Gaussian(0.5)):
        odometer = charged(fresh(), STEP, other)
        assert math.inf in odometer.state()["run"]
        assert 0 < odometer.ex_post_epsilon() <= odometer.epsilon() < math.inf
        assert odometer.epsilon() <= charged(odometer, STEP).epsilon()
    assert charged(fresh(), m.Pure(math.inf)).epsilon() == math.inf


def test_failures_have_their_share():
    """Above sum_delta both bounds are infinite; with none, such rounds are refused and nothing is counted."""
    odometer = charged(fresh(sum_delta=1e-6), m.Approximate(0.001, 5e-7))
    assert odometer.ex_post_epsilon() < math.inf
    assert charged(odometer, m.Approximate(0.001, 6e-7)).ex_post_epsilon() == math.inf
    closed = fresh(sum_delta=0.0)
    before = closed.state()
    with pytest.raises(errors.Unsupported, match="sum_delta"):
        closed.charge(m.Approximate(0.001, 1e-9))
    assert closed.state() == before


def test_state_is_exact_at_every_round():
    """Saved as JSON and restored at every step: the same totals and bounds; nothing run is nothing lost."""
    straight = restored = fresh()
    assert straight.epsilon() == straight.ex_post_epsilon() == 0.0
    for step in (STEP, QUIET, m.Repeated(STEP, 8), m.Pure(0.01), m.Approximate(0.01, 1e-12), m.Zcdp(1e-5), STEP):
        straight.charge(step)
        restored.charge(step) if restored is not straight else None
        restored = odometers.Planned.from_state(json.loads(json.dumps(straight.state())))
        assert restored.state() == straight.state()
        assert restored.ex_post_epsilon() == straight.ex_post_epsilon()
    assert restored.epsilon() == straight.epsilon()
    state = charged(fresh(), STEP).state()
    for change in ({"units": {"step": 1.0}}, {"run": [1, 1]}, {"run": [1, 10**6, 0, 0, 0]}, {"totals": [1]}):
        with pytest.raises(errors.ArgumentError):
            odometers.Planned.from_state(state | change)


def test_a_cap_and_another_delta():
    """A cap refuses like a filter, also once restored; at a larger delta the bound is not above that at the own one."""
    account = odometers.Capped(fresh(), epsilon=1.0)
    while account.admits(STEP):
        account.charge(STEP)
    assert account.count > 0
    assert account.ex_post_epsilon() <= 1.0
    restored = odometers.Capped.from_state(json.loads(json.dumps(account.state())), odometers.Planned)
    assert (restored.count, restored.ex_post_epsilon()) == (account.count, account.ex_post_epsilon())
    assert not restored.admits(STEP)
    odometer = charged(fresh(), m.Repeated(STEP, 5))
    assert odometer.epsilon(delta=1e-3) <= odometer.epsilon() < odometer.epsilon(delta=1e-9)


@pytest.mark.parametrize("bad", [None, m.Composed(()), m.Repeated(STEP, 10**7)])
def test_plans_that_are_refused(bad):
    """No mechanism, no round, too many rounds; and plans whose rounds may fail or have no distribution."""
    with pytest.raises(errors.ArgumentError):
        odometers.Planned(bad, delta=DELTA)
    for other in (m.Approximate(0.1, 1e-9), m.Zcdp(0.1)):
        with pytest.raises(errors.Unsupported):
            odometers.Planned(m.Repeated(other, 5), delta=DELTA)


TENTH = 0.1
PLANNED, OTHERS = (m.RandomizedResponse(0.5), 5), ((m.RandomizedResponse(0.4), 4), (m.RandomizedResponse(0.7), 7))
ROUNDS = 14
MENU = {"delta": 0.02, "sum_delta": 0.0}


def planned():
    return odometers.Planned(m.Repeated(m.RandomizedResponse(0.5), 2), **MENU)


def adversary(reading, odometer, gain, *, others=1):
    """The best that rounds and a moment to stop, both chosen from the results, make of the bounds.

    Of fourteen rounds at most so many are others than the planned one.
    """
    notion = odometer.notion
    bound = lru_cache(maxsize=None)(lambda totals: reading(notion, totals))
    after = lru_cache(maxsize=None)(lambda totals, mechanism: notion.after(totals, mechanism))

    @cache
    def value(totals, loss, left, free):
        best = gain(loss * TENTH, bound(totals)) if any(totals) else 0.0
        for mechanism, tenths in (PLANNED, *(OTHERS if free else ())) if left else ():
            truth = 1 / (1 + math.exp(-tenths * TENTH))
            then, spare = after(totals, mechanism), free - (tenths != PLANNED[1])
            chances = ((truth, loss + tenths), (1 - truth, loss - tenths))
            best = max(best, sum(chance * value(then, there, left - 1, spare) for chance, there in chances))
        return best

    return value((0,) * notion.columns, 0, ROUNDS, others)


def stopping(loss, bound):
    return -math.expm1(min(bound - loss, 0.0))


def crossed(loss, bound):
    return float(loss > bound + 1e-9)


def test_the_best_adversary_stays_within_delta():
    """Rounds chosen among the plan's, less and more noise, and when to stop: a good part of delta, and no more."""
    worth = adversary(lambda notion, totals: notion.epsilon(totals, notion.delta, ex_post=True), planned(), stopping)
    assert 0.5 * MENU["delta"] < worth <= MENU["delta"]


def test_the_best_adversary_crosses_the_pathwise_bound_with_at_most_delta():
    """The same choices, to be above the pathwise bound once."""
    chance = adversary(lambda notion, totals: notion.epsilon(totals, notion.delta, ex_post=False), planned(), crossed)
    assert 0 < chance <= MENU["delta"]


def test_a_bound_without_a_level_is_caught():
    """The epsilons of numbers of rounds fixed in advance, read at any moment: the same adversary exceeds delta."""
    run = planned().notion.run(0)
    whole = dict(zip(run.checkpoints, run._epsilons(1.0, 1.0 + 0 * run._curves[:, 0]), strict=True))
    worth = adversary(lambda _, totals: whole.get(totals[1], math.inf), planned(), stopping)
    assert worth > 1.1 * MENU["delta"]


def test_a_free_exchange_is_caught():
    """Louder rounds charged as one planned round each: the same adversary exceeds delta at once."""

    def careless(notion, totals):
        return notion.epsilon(totals, notion.delta, ex_post=True)

    odometer = planned()
    notion, charge = odometer.notion, type(odometer.notion).after
    cheap = {mechanism: m.RandomizedResponse(0.5) for mechanism, _ in OTHERS}
    object.__setattr__(notion, "after", lambda totals, one: charge(notion, totals, cheap.get(one, one)))
    assert adversary(careless, odometer, stopping, others=6) > MENU["delta"]

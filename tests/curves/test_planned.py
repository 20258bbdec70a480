"""Prices of a planned account: as many planned rounds as composition fixed in advance, and valid prices of others."""

import math
import random

import numpy as np
import pytest

from almoner import mechanisms
from almoner._units import FAILURE
from almoner.curves import losses, planned
from almoner.curves.planned import Prices
from almoner.curves.planned._prices import Price, exchange_of_block
from almoner.errors import ArgumentError, Unsupported

DELTA = 1e-5


def prices(mechanism, epsilon, delta=DELTA, **options):
    return Prices(((mechanism, 1),), epsilon=epsilon, delta=delta, **options)


def both_prices(some, mechanism, count, *, level, slack):
    """Both prices of a block."""
    rounds, back = some.exchange(mechanism, count, level=level, slack=slack) or (None, 0)
    return Price(rounds, back, some.payment(mechanism, count, level=level, slack=slack))


def fixed(mechanism, epsilon, delta, rounds, *, lower=False):
    """Whether the certified epsilon of so many rounds, fixed in advance, is at most this."""
    counts = np.array([[rounds]])
    return float(losses.epsilons(counts, [mechanism], delta=delta, lower=lower)[0]) <= epsilon


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("q", "z", "epsilon", "least"),
    [
        (0.001, 0.6, 1.0, 235),
        (0.01, 0.8, 2.0, 284),
        (0.01, 1.0, 2.0, 1188),
        (0.001, 0.8, 1.0, 16_300),
        (1, 20, 1.0, 28),
        (0.1, 0.8, 8.0, 49),
        (0.001, 0.5, 2.0, 79),
        (0.001, 4, 0.3, 122_000),
    ],
)
def test_the_plan_gets_what_composition_fixed_in_advance_gets(q, z, epsilon, least):
    """At least 99 % of the rounds whose certified epsilon fits, and none whose epsilon is certainly too large."""
    step = mechanisms.SampledGaussian(z, 1.0, q) if q < 1 else mechanisms.Gaussian(z)
    rounds = prices(step, epsilon).rounds
    assert rounds >= least
    assert fixed(step, epsilon, DELTA, rounds, lower=True)
    assert not fixed(step, epsilon, DELTA, math.ceil((rounds + 1) / 0.99))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("q", "z", "epsilon"), [(0.001, 0.5, 1.0), (0.01, 1.0, 1.0), (0.001, 0.6, 2.0), (0.1, 2.0, 2.0)]
)
@pytest.mark.parametrize("delta", [1e-5, 1e-7])
def test_few_rounds_are_all_there(q, z, epsilon, delta):
    """None is lost to the slack where there are fewer than two hundred; some of delta is left for it."""
    step = mechanisms.SampledGaussian(z, 1.0, q)
    if fixed(step, epsilon, delta, 1):
        found = prices(step, epsilon, delta)
        assert not fixed(step, epsilon, delta, math.ceil((found.rounds + 1) / (1 if found.rounds < 200 else 0.995)))
        assert found.delta(
            tuple(count * found.rounds for _, count in found.plan), found.change, epsilon=epsilon
        ) <= delta * (1 - found.slack) * (1 - 9e-6)
        assert planned.LEAST_SLACK <= found.slack <= planned.SLACK


def test_the_most_rounds_are_a_limit():
    """A round that is nearly free does not take the account beyond it, nor does one that is free."""
    assert prices(mechanisms.SampledGaussian(20.0, 1.0, 1e-5), 1.0).rounds <= planned.MOST_ROUNDS
    assert prices(mechanisms.Pure(0.0), 1.0).rounds <= planned.MOST_ROUNDS


def test_planned_rounds_of_randomised_response_are_counted_to_the_last():
    """Against the binomial sum: one more round would be too many, at most one is lost to the slack."""
    epsilon, each = 2.0, 0.3
    p = 1 / (1 + math.exp(-each))

    def delta(count):
        masses = [math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)]
        return sum(-m * math.expm1(epsilon - (2 * k - count) * each) for k, m in enumerate(masses)
                   if (2 * k - count) * each > epsilon)  # fmt: skip

    most = next(count for count in range(1, 1000) if delta(count + 1) > DELTA)
    assert most - 1 <= prices(mechanisms.Pure(each), epsilon).rounds <= most


@pytest.fixture(scope="module")
def some():
    """A plan of some hundred rounds."""
    return prices(mechanisms.SampledGaussian(1.0, 1.0, 0.01), 2.0)


@pytest.mark.parametrize("noise", [0.9, 1.25, 2.0])
@pytest.mark.parametrize("count", [1, 16])
def test_prices_are_valid_beside_what_they_were_found_for_and_beside_more(some, noise, count):
    """The certificate says yes again at the level, and with half as many rounds more."""
    other, slack = mechanisms.SampledGaussian(noise, 1.0, 0.01), FAILURE // 10**9
    level = planned.level(some.rounds // 2)
    price = both_prices(some, other, count, level=level, slack=slack)
    here = planned.rounds_at(level)
    plan = mechanisms.SampledGaussian(1.0, 1.0, 0.01)
    for rounds in (here, here + here // 2):
        assert some.grid.covers({other: count}, {"change": price.change}, {plan: rounds}, slack / FAILURE)
        assert some.grid.covers(
            {other: count, "change": price.back}, {plan: price.rounds}, {plan: rounds - price.rounds}, slack / FAILURE
        )


def test_prices_are_near_the_least(some):
    """Three per cent less change, or three per cent of a round more back, is refused by the certificate."""
    other, slack = mechanisms.SampledGaussian(1.25, 1.0, 0.01), FAILURE // 10**9
    level = planned.level(some.rounds)
    plan, here = mechanisms.SampledGaussian(1.0, 1.0, 0.01), planned.rounds_at(level)
    price = both_prices(some, other, 8, level=level, slack=slack)
    spare = slack / FAILURE
    assert not some.grid.covers({other: 8}, {"change": math.floor(0.97 * price.change)}, {plan: here}, spare)
    context = {plan: here - price.rounds}
    more = price.back + math.ceil(0.03 * price.rounds * some.worth)
    assert not some.grid.covers({other: 8, "change": more}, {plan: price.rounds}, context, spare)


def least(holds, low, high):
    """The least whole number in (low, high] for which this holds, by asking the certificate each time; None if none."""
    if not holds(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@pytest.mark.quick(9)
@pytest.mark.parametrize("seed", range(12))
def test_no_price_is_below_the_least_that_a_slow_search_certifies(seed):
    """Random plans, rounds, blocks, levels and slacks: never below, certified, and at most two per cent above."""
    chance = random.Random(seed)
    rate, noise = chance.choice([0.01, 0.02, 0.05]), chance.uniform(0.9, 2.0)
    plan = mechanisms.SampledGaussian(noise, 1.0, rate)
    some = prices(plan, chance.choice([2.0, 3.0, 4.0]))
    other = mechanisms.SampledGaussian(noise * chance.uniform(0.95, 2.0), 1.0, rate * chance.uniform(0.5, 1.0))
    here_level = planned.level(max(8, int(some.rounds * chance.uniform(0.2, 1.0))))
    here, count = planned.rounds_at(here_level), chance.choice([1, 2, 4])
    slack = FAILURE // 10 ** chance.randrange(8, 10)
    price = both_prices(some, other, count, level=here_level, slack=slack)
    spare, grid = some.spare(slack / FAILURE), some.grid

    def pays(change):
        return grid.covers({other: count}, {"change": change}, {plan: here}, spare)

    def buys(given, net):
        less = {other: count, "change": given * some.worth - net}
        return grid.covers(less, {plan: given}, {plan: here - given}, spare)

    slow = least(pays, 0, 64 * math.ceil(count * some.size(other)))
    assert (slow is None) == (price.change is None)
    if slow is not None:
        assert slow <= price.change <= 1.02 * slow + 1
        assert pays(price.change)
    slow = least(lambda given: buys(given, given * some.worth), 0, here)
    assert (slow is None) == (price.rounds is None)
    if slow is not None:
        net = price.rounds * some.worth - price.back
        assert slow <= price.rounds <= slow + 1
        assert buys(price.rounds, net)
        assert least(lambda one: buys(price.rounds, one), 0, price.rounds * some.worth) <= net
        if price.rounds == slow:
            assert net <= 1.02 * least(lambda one: buys(slow, one), 0, slow * some.worth) + 1


@pytest.mark.parametrize(("noise", "given", "too_few", "short"), [(0.75, 43, 37, 2e-6), (1.2, 16, 10, 4e-6)])
def test_a_plan_with_little_noise_cannot_sell_quieter_rounds_for_less(noise, given, too_few, short):
    """64 rounds for 43, or 16, of 237 planned ones; for fewer the curve grows by more than all the slack there is."""
    plan, other = mechanisms.SampledGaussian(0.6, 1.0, 0.001), mechanisms.SampledGaussian(noise, 1.0, 0.001)
    some = prices(plan, 1.0)
    exchange = some.exchange(other, 64, level=planned.level(some.rounds), slack=FAILURE // 10**8)
    assert exchange is not None
    assert given - 1 <= exchange[0] <= given
    gaps = some.grid.rough_gaps({other: 64}, {plan: too_few}, {plan: some.rounds - too_few})
    assert float(gaps.min()) < -short < -10 * some.all_slack


def test_more_noise_is_cheaper_and_less_is_dearer(some):
    """In planned rounds less what comes back; both are close to what a trial without certificate gave."""
    level = planned.level(some.rounds)

    def cost(noise):
        other = mechanisms.SampledGaussian(noise, 1.0, 0.01)
        price = both_prices(some, other, 64, level=level, slack=FAILURE // 10**7)
        return (price.rounds - price.back / some.worth) / 64

    assert cost(2.0) < 1.3 * 0.203 < cost(1.25) < 1.3 * 0.586 < 1 < cost(0.9) < 1.3 * 1.9


def test_a_plan_of_several_mechanisms_is_composed_of_all():
    """Two noises in one planned round: fewer rounds than either alone, about as their variances add up."""
    loud, quiet = mechanisms.SampledGaussian(1.0, 1.0, 0.01), mechanisms.SampledGaussian(2.0, 1.0, 0.01)
    both = Prices(((loud, 1), (quiet, 2)), epsilon=2.0, delta=DELTA).rounds
    alone = prices(loud, 2.0).rounds
    assert 0.7 * alone < both < alone


def test_a_reserve_is_taken_from_the_planned_rounds():
    """A tenth of the rounds becomes change: the rest is a little over nine tenths."""
    step = mechanisms.SampledGaussian(1.0, 1.0, 0.01)
    some, less = prices(step, 2.0), prices(step, 2.0, reserve=0.1)
    assert 0.85 * some.rounds < less.rounds < 0.95 * some.rounds
    assert less.change >= 0.09 * some.rounds * some.worth


def test_levels_and_their_rounds_agree():
    """The level of a number has at most so many rounds, and the next one more."""
    for rounds in (1, 2, 3, 10, 1000, 123_456):
        assert planned.rounds_at(planned.level(rounds)) <= rounds < planned.rounds_at(planned.level(rounds) + 1)
    assert planned.level(0) == -1
    assert planned.rounds_at(-1) == 0


def test_plans_that_do_not_fit_are_refused():
    """Not one round within the budget, and rounds without a loss distribution."""
    with pytest.raises(ArgumentError, match="does not fit once"):
        prices(mechanisms.Gaussian(0.1), 0.5)
    with pytest.raises(Unsupported):
        prices(mechanisms.Zcdp(0.01), 1.0)


UNIT = 1 / 80


def binomial(step, count):
    """Losses of so many responses of this many units, as masses at the whole numbers of units around zero."""
    p, masses = 1 / (1 + math.exp(-step * UNIT)), np.zeros(2 * step * count + 1)
    masses[:: 2 * step] = [math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)]
    return masses


def best_adversary(some, epsilon, count, slack):
    """The largest delta of rounds of the plan and blocks of twice its epsilon, chosen by the loss so far."""
    middle = 4 * some.rounds + 200
    losses = (np.arange(2 * middle + 1) - middle) * UNIT
    now = np.where(losses > epsilon, -np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0)
    found = {}

    def cost(level):
        if level not in found:
            bought = some.exchange(mechanisms.Pure(2 * UNIT), count, level=level, slack=slack)
            found[level] = some.rounds + 1 if bought is None else bought[0]
        return found[level]

    def mean(values, masses):
        half, whole = len(masses) // 2, np.convolve(values, masses[::-1], "same")
        whole[:half], whole[-half:] = 0.0, 1.0
        return whole

    values = [now]
    for left in range(1, some.rounds + 1):
        choices = [now, mean(values[-1], binomial(1, 1))]
        if cost(planned.level(left)) <= left:
            choices.append(mean(values[left - cost(planned.level(left))], binomial(2, count)))
        values.append(np.max(choices, axis=0))
    return float(values[-1][middle])


@pytest.mark.parametrize(("delta", "moment"), [(1e-9, True), (1e-12, True), (1e-9, False)])
def test_no_choice_by_results_gets_beyond_a_small_delta(delta, moment):
    """Blocks bought under a tilt stay below delta; in units that leave out the plan's own moment they do not."""
    some = prices(mechanisms.Pure(UNIT), 1.0, delta)
    assert min(some.grid.under) > 0
    if not moment:
        some.grid.per = tuple(math.exp(-tilt) for tilt in some.grid.under)
    slack = math.floor(some.all_slack / (some.rounds // 8 + 1) * FAILURE)
    found = best_adversary(some, 1.0, 8, slack)
    assert 0.5 * delta < found <= delta if moment else found > delta


@pytest.mark.parametrize(("q", "z", "most"), [(0.01, 2.0, 3), (1e-4, 1.2, 40)])
def test_a_loud_round_has_the_cheaper_price_of_both_with_a_tilt_and_without(q, z, most):
    """Three quarters of the noise at a delta of 9e-9, which comparisons under a tilt alone do not price."""
    some = prices(mechanisms.SampledGaussian(z, 1.0, q), 1.0 if q == 0.01 else 0.5, 9e-9)
    level, slack = planned.level(some.rounds), math.floor(some.all_slack / 64 * FAILURE)
    loud = mechanisms.SampledGaussian(0.75 * z, 1.0, q)
    rounds, _ = some.exchange(loud, 1, level=level, slack=slack)
    assert 1 < rounds <= most
    tilted = exchange_of_block(
        some.grid, {loud: 1}, some.plan, planned.rounds_at(level), size=some.size(loud), worth=some.worth,
        spare=some.spare(slack / FAILURE),
    )  # fmt: skip
    assert tilted is None or rounds - 1 <= tilted[0]


@pytest.mark.parametrize(
    ("q", "z", "epsilon", "delta", "rounds"),
    [
        (5.004e-5, 0.5739, 0.2419, 6.8e-10, 2),
        (1.141e-4, 1.091, 0.3773, 7.58e-14, 177_600),
        (1e-4, 1.2, 0.5, 1e-18, 362_000),
    ],
)
def test_errors_of_a_curve_are_in_proportion_to_it(q, z, epsilon, delta, rounds):
    """Delta of one round, of two and of all: never below that of fixed answers, and near it."""
    step = mechanisms.SampledGaussian(z, 1.0, q)
    some = prices(step, epsilon, delta)
    assert some.rounds >= rounds
    for count in (1, 2, some.rounds):
        exact = losses.delta_at({step: count}, epsilon=epsilon)
        assert exact * (1 - 1e-6) <= some.delta((count,), 0, epsilon=epsilon) <= 1.04 * exact + 1e-4 * delta


@pytest.mark.parametrize(
    ("q", "z", "epsilon", "delta"),
    [
        (0.01, 1.0, 2.0, 1e-10), (0.008, 9.0, 1.2, 1e-14), (4.08e-5, 0.614, 2.0, 1.1e-10), (1.0, 5.0, 3.0, 1e-20),
        (1e-4, 1.2, 0.5, 9e-9), (1e-4, 1.2, 0.5, 1e-12),
    ],
)  # fmt: skip
def test_small_deltas_lose_no_planned_rounds(q, z, epsilon, delta):
    """At most two in a hundred fewer than the fixed answer has, never more; rounds with more noise are for sale."""
    step = mechanisms.SampledGaussian(z, 1.0, q)
    some = prices(step, epsilon, delta)
    assert losses.delta_at({step: some.rounds}, epsilon=epsilon) <= delta
    assert losses.delta_at({step: math.ceil((some.rounds + 1) / 0.98)}, epsilon=epsilon) > delta
    other = mechanisms.SampledGaussian(1.5 * z, 1.0, q)
    level, slack = planned.level(some.rounds), math.floor(some.all_slack / 100 * FAILURE)
    rounds, back = some.exchange(other, max(1, some.rounds // 40), level=level, slack=slack)
    assert rounds - back / some.worth < max(1, some.rounds // 40)

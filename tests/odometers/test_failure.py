"""Rounds that may fail: what is left of delta on one path may not be spent on another. By exact enumeration."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner import errors, filters, odometers
from almoner import mechanisms as m

ALPHA, DELTA = 9.0, 1e-5
LAM = ALPHA - 1
RARE, LOSS, NEXT_RARE, NEXT_LOSS = 1.3598376719971684e-4, 1.1877143054685162, 0.40723475672031817, 0.26400742461885285


def outcomes(rare, loss):
    """P = (rare, 1 - rare) against Q = (rare e^-loss, ...): (probability, loss) of both outcomes."""
    return (rare, loss), (1 - rare, math.log((1 - rare) / (1 - rare * math.exp(-loss))))


def divergence(rare, loss):
    """The Rényi divergence at ALPHA, the larger direction."""
    forth = sum(p * math.exp(LAM * x) for p, x in outcomes(rare, loss))
    back = sum(p * math.exp(-x) * math.exp(-LAM * x) for p, x in outcomes(rare, loss))
    return math.log(max(forth, back)) / LAM


FIRST = m.Renyi((ALPHA,), (divergence(RARE, LOSS),))
SECOND = m.Renyi((ALPHA,), (divergence(NEXT_RARE, NEXT_LOSS),))


def truth(after_rare, after_common, leak):
    """sup over events of P(E) - E_Q[e^U 1_E]: after the rare outcome one round more, after the common one a leak.

    The leak reveals everything with probability ``leak``, which no bound helps against.
    """
    (rare, first), (common, other) = outcomes(RARE, LOSS)
    excess = leak + (1 - leak) * max(0.0, -math.expm1(after_common - other))
    total = common * excess
    for p, more in outcomes(NEXT_RARE, NEXT_LOSS):
        total += rare * p * max(0.0, -math.expm1(after_rare - first - more))
    return total


def naive(total, failures):
    """The conversion at one order with "delta minus the sum of deltas so far"."""
    return total + math.log1p(-1 / ALPHA) - math.log(ALPHA * (DELTA - failures)) / LAM


def test_delta_minus_the_sum_of_deltas_is_wrong():
    """Both branches are certified at the same epsilon, and the truth is 1.33 delta."""
    epsilon = naive(FIRST.values[0] + SECOND.values[0], 0.0)
    used = DELTA * math.exp(LAM * (naive(FIRST.values[0], 0.0) - epsilon))
    leak = DELTA - used
    assert naive(FIRST.values[0], leak) <= epsilon * (1 + 1e-12)
    assert truth(epsilon, epsilon, leak) > 1.32 * DELTA


@pytest.mark.parametrize("share", [0.01, 0.1, 0.3, 0.5, 0.8, 0.95])
def test_a_share_fixed_in_advance_is_right(share):
    """The same adversary, using all of the share for the leak: at most delta, for every share."""
    kept = share * DELTA
    leak = kept * (1 - 1e-12)
    first = odometers.Renyi(delta=DELTA, orders=(ALPHA,), sum_delta=kept)
    second = odometers.Renyi(delta=DELTA, orders=(ALPHA,), sum_delta=kept)
    for odometer, step in ((first, SECOND), (second, m.Approximate(0.0, leak))):
        odometer.charge(FIRST)
        odometer.charge(step)
    assert second.ex_post_epsilon() < math.inf
    assert truth(first.ex_post_epsilon(), second.ex_post_epsilon(), leak) <= DELTA


def test_no_event_is_left_out():
    """The enumeration is of a distribution: probabilities add up on both sides."""
    for pair in ((RARE, LOSS), (NEXT_RARE, NEXT_LOSS)):
        assert sum(p for p, _ in outcomes(*pair)) == pytest.approx(1.0)
        assert sum(p * math.exp(-x) for p, x in outcomes(*pair)) == pytest.approx(1.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (0.0, 1e-6), (2.0, 1e-4), (0.5, 0.01)])
def test_an_approximate_round_outside_of_its_event(epsilon, delta):
    """The worst (epsilon, delta)-DP round: outside of an event of the probability charged, its moments are paid for.

    The round that reveals all with probability delta, and one that trades delta for a larger loss.
    """
    odometer = odometers.Renyi(delta=0.4, orders=(1.5, 3.0, 20.0), sum_delta=0.3)
    odometer.charge(m.Approximate(epsilon, delta))
    state = odometer.state()
    charged = sum(state["failures"]) / 10**30
    totals = [(a + b) / 10**15 for a, b in zip(state["totals"], state["excess"], strict=True)][:-1]
    truth_of = math.exp(epsilon) / (1 + math.exp(epsilon))
    for stretch in (0.02, 0.1, 0.3, 1.0, 5.0):
        # with probability b the loss is epsilon + stretch, else randomised response: as large a b as both directions
        # allow, delta / (1 - e^-stretch) in this one, and in the other what is missing under Q at most delta
        b = delta / -math.expm1(-epsilon - stretch)
        losses = [(b, epsilon + stretch), ((1 - b) * truth_of, epsilon), ((1 - b) * (1 - truth_of), -epsilon)]
        wide = epsilon + 0.25 * max(epsilon, 0.1)
        outside = [(p, x) for p, x in losses if x <= wide]
        assert sum(p for p, x in losses if x > wide) <= charged
        for order, total in zip(odometer.orders, totals, strict=True):
            moment = math.log(sum(p * math.exp((order - 1) * x) for p, x in outside)) / (order - 1)
            assert moment <= total + 1e-12


PAIR = st.tuples(st.floats(-12.0, -0.01).map(math.exp), st.floats(0.01, 6.0))


def mechanism(rare, loss, orders):
    """The curve of a pair at these orders, the larger direction."""
    values = []
    for order in orders:
        lam = order - 1
        forth = logsumexp([math.log(p) + lam * x for p, x in outcomes(rare, loss)])
        back = logsumexp([math.log(p) - x - lam * x for p, x in outcomes(rare, loss)])
        values.append(max(forth, back, 0.0) / lam * (1 + 1e-12))
    return m.Renyi(orders, tuple(values))


def logsumexp(values):
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


ENUMERATED = {
    "renyi": lambda: odometers.Renyi(delta=0.01, orders=(1.3, 2.0, 5.0, 20.0, 100.0), sum_delta=0.0),
    "renyi_plan": lambda: odometers.Renyi(delta=0.01, plan=0.5, sum_delta=0.0),
    "lecuyer": lambda: odometers.Lecuyer(delta=0.01, orders=(1.5, 3.0, 10.0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ENUMERATED)
@given(PAIR, PAIR, PAIR)
@settings(max_examples=150)
def test_two_rounds_by_enumeration(name, first, after_rare, after_common):
    """Every stopping rule of two rounds whose second depends on the first: both promises, with exact probabilities."""

    def read(*pairs):
        odometer = ENUMERATED[name]()
        orders = odometer.orders if name != "lecuyer" else (1.5, 3.0, 10.0)
        for pair in pairs:
            odometer.charge(mechanism(*pair, orders))
        return odometer.epsilon(), odometer.ex_post_epsilon()

    pathwise, ex_post = read(first)
    ever, excess = 0.0, 0.0
    for (p, loss), second in zip(outcomes(*first), (after_rare, after_common), strict=True):
        path_2, post_2 = read(first, second)
        stop = max(0.0, -math.expm1(min(0.0, ex_post - loss)))
        go = sum(q * -math.expm1(min(0.0, post_2 - loss - more)) for q, more in outcomes(*second))
        excess += p * max(stop, go)
        later = sum(q for q, more in outcomes(*second) if loss + more > path_2)
        ever += p * (1.0 if loss > pathwise else later)
    assert ever <= 0.01
    assert excess <= 0.01


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (2.0, 1e-4), (0.5, 0.01)])
def test_a_probabilistic_round_outside_of_its_event(epsilon, delta):
    """The worst of (epsilon, delta)-probabilistic DP: outside of an event that is charged, its moments are paid for.

    With probability delta the loss is infinite; with delta under Q minus infinity; else it is as large as it may be.
    """
    odometer = odometers.Renyi(delta=0.4, orders=(1.5, 3.0, 20.0), sum_delta=0.3)
    odometer.charge(m.PDP(epsilon, delta))
    state = odometer.state()
    assert delta <= sum(state["failures"]) / 10**30 <= 2 * delta * (1 + 1e-9)
    totals = [(a + b) / 10**15 for a, b in zip(state["totals"], state["excess"], strict=True)][:-1]
    up = (math.exp(epsilon) * (1 - delta) - (1 - delta)) / (math.exp(epsilon) - math.exp(-epsilon))
    losses = [(up, epsilon), (1 - delta - up, -epsilon)]  # and (delta, infinity); under Q they add up to 1 - delta
    assert sum(p * math.exp(-x) for p, x in losses) == pytest.approx(1 - delta)
    for order, total in zip(odometer.orders, totals, strict=True):
        moment = math.log(sum(p * math.exp((order - 1) * x) for p, x in losses)) / (order - 1)
        assert moment <= total + 1e-12
    converted = odometers.Renyi(delta=0.4, orders=(1.5, 3.0, 20.0), sum_delta=0.3)
    converted.charge(m.Approximate(epsilon, delta))
    assert odometer.epsilon() < converted.epsilon()
    assert odometer.ex_post_epsilon() == converted.ex_post_epsilon()


def test_probabilistic_rounds_cost_their_own_epsilon():
    """Whitehouse et al.'s formulas at delta', V the sum of epsilon squared: theirs with the drift, to nine digits."""
    epsilon, rounds, delta, kept = 0.1, 100, 1e-6, 4e-7
    run = m.Repeated(m.PDP(epsilon, 1e-16), rounds)
    mixture = odometers.Mixture(delta=delta, sum_delta=kept)
    mixture.charge(run)
    clock, level = rounds * epsilon**2, -math.log(2 * delta)
    scale = 1 / (2 * level + math.log1p(2 * level))
    boundary = 2 * (clock + scale) * math.log(math.sqrt((clock + scale) / scale) / (2 * (delta - kept)) + 1)
    assert mixture.epsilon() == pytest.approx(clock / 2 + math.sqrt(boundary), rel=1e-9)
    stitched = odometers.Stitched(delta=delta, sum_delta=kept, start=epsilon**2)
    stitched.charge(run)
    inner = math.log(math.log(2 * clock / epsilon**2)) + 0.72 * math.log(5.2 / (delta - kept))
    assert stitched.epsilon() == pytest.approx(clock / 2 + 1.7 * math.sqrt(clock * inner), rel=1e-9)
    stitched.charge(m.Repeated(m.PDP(epsilon, 1e-9), 400))  # delta'' is used up
    assert stitched.epsilon() == math.inf


def test_elsewhere_a_probabilistic_round_is_an_approximate_one():
    """Filters and the plain sums price it as (epsilon, delta)-DP; it is written down as what it is."""
    probabilistic, approximate = m.PDP(0.1, 1e-9), m.Approximate(0.1, 1e-9)
    assert probabilistic != approximate
    assert m.from_fields(m.to_fields(probabilistic)) == probabilistic
    for kind in (filters.Renyi, filters.Residue, filters.Approximate):
        one, other = (kind(epsilon=1.0, delta=1e-5) for _ in range(2))
        one.charge(m.Repeated(probabilistic, 3))
        other.charge(m.Repeated(approximate, 3))
        assert one.state() == other.state()
    with pytest.raises(errors.ArgumentError):
        m.PDP(0.1, 2.0)

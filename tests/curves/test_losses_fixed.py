"""Fixed answers over the whole range: never below the truth by other means, and close to it, in both orders."""

import subprocess
import sys
from dataclasses import replace
from math import exp, inf, log
from pathlib import Path

import mpmath
import numpy as np
import pytest

from almoner import mechanisms as m
from almoner.curves._grid import tilted
from almoner.curves._totals import tightest
from almoner.curves.losses import _fixed, delta_at, epsilon_at


def one_round(noise, rate, epsilon):
    """(remove, add): delta of one round in both orders, with 150 digits."""
    with mpmath.workdps(150):
        q, z, e = mpmath.mpf(rate), mpmath.mpf(noise), mpmath.exp(mpmath.mpf(epsilon))
        x = z**2 * mpmath.log((e - 1) / q + 1) + 0.5
        remove = q * mpmath.ncdf((1 - x) / z) - (e - 1 + q) * mpmath.ncdf(-x / z)
        if 1 / e <= 1 - q:
            return remove, mpmath.mpf(0)
        x = z**2 * mpmath.log((1 / e - 1) / q + 1) + 0.5
        return remove, (1 - e * (1 - q)) * mpmath.ncdf(x / z) - e * q * mpmath.ncdf((x - 1) / z)


def response(kinds, epsilon):
    """Delta of randomised responses: {epsilon: count}, with 40 digits, term by term."""
    with mpmath.workdps(40):
        law = {mpmath.mpf(0): mpmath.mpf(1)}
        for each, count in kinds.items():
            p = 1 / (1 + mpmath.exp(-mpmath.mpf(each)))
            one = {
                each * (count - 2 * lies): mpmath.binomial(count, lies) * p ** (count - lies) * (1 - p) ** lies
                for lies in range(count + 1)
            }
            law = _added(law, one)
        return sum(mass * max(0, 1 - mpmath.exp(epsilon - loss)) for loss, mass in law.items())


def _added(first, second):
    total = {}
    for a, p in first.items():
        for b, q in second.items():
            total[a + b] = total.get(a + b, mpmath.mpf(0)) + p * q
    return total


@pytest.mark.parametrize(
    ("noise", "rate", "delta"),
    [
        (0.776436, 0.01, 1e-6),
        (1.432586, 0.1, 1e-6),
        (0.05, 1e-12, 1e-15),
        (0.7, 1e-95, 1e-120),
        (0.5, 0.999, 1e-20),
        (0.77, 1 - 4 * 2.0**-52, 1e-200),
        (1e4, 0.5, 1e-9),
    ],
)
def test_one_round_is_its_closed_form(noise, rate, delta):
    """At the epsilon given delta is enough, and not at a part in a million less."""
    run = {m.SampledGaussian(noise, 1.0, rate): 1}
    epsilon = epsilon_at(run, delta=delta)
    assert max(one_round(noise, rate, epsilon)) <= delta
    assert max(one_round(noise, rate, epsilon * (1 - 1e-6))) > delta
    for at in (0.0, 0.5 * epsilon, epsilon):
        truth = max(one_round(noise, rate, at))
        assert truth <= delta_at(run, epsilon=at) <= truth * (1 + 1e-6) + 1e-300


def test_a_round_too_quiet_for_floats_is_not_free():
    """Where the truth is below all floats, delta is small, and not zero."""
    assert delta_at({m.SampledGaussian(0.77, 1.0, 1e-95): 1}, epsilon=1.0) > 0


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 5.0, 9.0])
def test_randomised_responses_by_enumeration(epsilon):
    """Two kinds of randomised response against all terms in 40 digits, down to small deltas."""
    kinds = {0.25: 40, 1.0: 4}
    run = {m.RandomizedResponse(each): count for each, count in kinds.items()}
    truth = response(kinds, epsilon)
    assert truth <= delta_at(run, epsilon=epsilon) <= truth * (1 + 2e-2)
    if truth > 0:
        found = epsilon_at(run, delta=float(truth))
        assert epsilon * (1 - 1e-9) <= found <= epsilon * 1.001 + 1e-3


@pytest.mark.parametrize("mu", [0.01, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-20, 1e-5, 0.3])
def test_the_lattice_reproduces_gaussian_rounds(mu, delta):
    """Gaussian rounds put on points and composed on the lattice are above the closed form by little."""
    rounds = 25
    leaf = m.SampledGaussian(1.0, mu / 5, 1.0)
    side, _ = _fixed._sides({leaf: rounds})
    exact = tightest(m.Repeated(m.Gaussian(1.0, mu / 5), rounds), delta=delta).epsilon
    assert exact <= _fixed._epsilon(side, delta, 0.0) <= exact * (1 + 1e-3) + 1e-12


def test_published_setting():
    """delta 1.1e-10, noise 0.614, epsilon 2: some 375,500 steps fit."""
    step = m.SampledGaussian(0.614, 1.0, 517989 / (13e12 / 1024))
    assert 1.99 < tightest(m.Repeated(step, 375_485), delta=1.1e-10).epsilon <= 2.0


@pytest.mark.parametrize(
    ("noise", "rate", "rounds", "delta"),
    [(0.994, 3.34e-5, 37, 6.26e-16), (0.655, 4.38e-9, 10_906_202, 3.65e-19), (0.4616, 4e-9, 633_539, 3.92e-9)],
)
def test_one_large_loss(noise, rate, rounds, delta):
    """Where the largest loss decides alone: above that of exactly one round above epsilon, and close to it."""
    epsilon = epsilon_at({m.SampledGaussian(noise, 1.0, rate): rounds}, delta=delta)

    def lower(at):
        x = noise**2 * log(np.expm1(at) / rate + 1) + 0.5
        with mpmath.workdps(40):
            large = (1 - rate) * mpmath.ncdf(-x / noise) + rate * mpmath.ncdf((1 - x) / noise)
            less = -(rounds - 1) * mpmath.log1p(-large)
            return rounds * mpmath.exp(-less) * max(one_round(noise, rate, at + less))

    assert lower(epsilon) <= delta
    assert lower(0.85 * epsilon) > delta


def test_answers_are_zero_where_delta_covers_all():
    """Total variation below delta: epsilon 0, at once; just above it, epsilon is positive."""
    step = m.SampledGaussian(0.1, 1.0, 0.01)
    assert epsilon_at({step: 1}, delta=0.01) == 0
    assert epsilon_at({m.SampledGaussian(1.0, 1.0, 1e-9): 100}, delta=1e-7) == 0
    assert epsilon_at({m.SampledGaussian(1.0, 1.0, 1e-9): 100}, delta=2e-9) > 0
    assert epsilon_at({}, delta=0.1) == 0 == delta_at({}, epsilon=0.0)


def test_leaks_are_charged():
    """Failures count as infinite losses, and the rest counts the less; a loss that is not certified is infinite."""
    step = m.Approximate(0.1, 1e-3)
    assert epsilon_at({step: 10}, delta=9.9e-3) == inf
    truth = 1 - (1 - 1e-3) ** 10 * (1 - response({0.1: 10}, 0.5))
    assert truth <= delta_at({step: 10}, epsilon=0.5) <= truth * 1.01
    assert epsilon_at({m.DominatingPair((0.76, 0.24), (0.0, 1.0)): 1}, delta=0.7600129) == 0
    assert epsilon_at({m.SampledGaussian(1e-3, 1.0, 0.5): 2}, delta=0.1) == inf
    assert delta_at({m.SampledGaussian(1e-3, 1.0, 0.5): 3}, epsilon=1.0) == 1


def test_orders_that_differ_in_their_leak_alone():
    """The finite losses of both orders are the same and their leaks are not: the larger one is charged."""
    pair = m.DominatingPair((0.5, 0.5, 0), (0.5, 0, 0.5), (0.25, 0.75, 0), (0.25, 0, 0.75))
    assert delta_at({pair: 1}, epsilon=10.0) >= 0.75
    assert epsilon_at({pair: 1}, delta=0.7) == inf


def test_outcomes_that_count_as_none_are_charged():
    """An outcome below the least probability that is looked at reveals the person where it happens."""
    pair = m.DominatingPair((2.85e-291, 0.8857927, 0.1142073 - 1e-16), (0.0, 0.8770868, 0.1229132))
    assert delta_at({pair: 100}, epsilon=400.0) >= 2.85e-289
    assert epsilon_at({pair: 100}, delta=1.7687e-289) == inf


def test_leaks_that_surely_happen():
    """Where hardly any run is free of a leak, nothing overflows."""
    assert epsilon_at({m.Approximate(0.1, 0.01): 10**6}, delta=0.5) == inf


@pytest.mark.parametrize("rate", [1e-304, 1e-305, 5e-324])
def test_rates_next_to_zero(rate):
    """The likelihood ratio above which a loss is counted does not overflow."""
    step = m.SampledGaussian(1.0, 1.0, rate)
    assert epsilon_at({step: 1}, delta=1e-5) == 0 == epsilon_at({step: 3}, delta=1e-5)
    for epsilon in (0.0, 1e-18, 1e-10, 1.0, 800.0):
        assert max(one_round(1.0, rate, epsilon)) <= delta_at({step: 1}, epsilon=epsilon) <= rate


def test_delta_never_exceeds_the_rate():
    """Who is not sampled loses nothing: at a delta of the sample rate epsilon is zero."""
    assert epsilon_at({m.SampledGaussian(0.0253, 1.0, 0.5): 1}, delta=0.5) == 0


@pytest.mark.parametrize(("sigma", "sensitivity"), [(1e60, 1e-10), (1e60, 1e-60), (1e-50, 1e40), (1e-60, 1e60)])
def test_extreme_gaussian_rounds_beside_others(sigma, sensitivity):
    """They are one round whose noise and sensitivity are in the range of arguments."""
    found = epsilon_at({m.Gaussian(sigma, sensitivity): 2, m.Laplace(1.0, 1.0): 1}, delta=1e-5)
    assert found == inf if sensitivity > sigma else 0.99 < found <= 1.0001


@pytest.mark.parametrize("count", [2**53, 2**62, 2**64, 2**70, 10**40, 10**400])
@pytest.mark.parametrize(
    "step", [m.RandomizedResponse(1e-3), m.SampledGaussian(1e3, 1.0, 1e-3), m.Approximate(1e-3, 1e-300)]
)
def test_more_rounds_than_floats_count(step, count):
    """Answers are numbers, though loose ones; what costs nothing costs nothing however often it runs."""
    assert epsilon_at({step: count}, delta=1e-5) > 1
    assert 0 < delta_at({step: count}, epsilon=1.0) <= 1
    assert epsilon_at({m.Pure(0.0): count}, delta=1e-5) == 0


def test_searches_that_begin_far_off():
    """No epsilon is given where a far smaller one is certified."""
    run = {m.SampledGaussian(0.3668331354702001, 1.0, 5.25789e-9): 1, m.SampledGaussian(8.331, 1.0, 2.34157e-5): 1}
    epsilon = epsilon_at(run, delta=2.43e-9)
    assert delta_at(run, epsilon=0.4 * epsilon) > 2.43e-9


def test_a_search_ends_where_what_suits_its_end_finds_no_less():
    """Chernoff's bound is 140 times too large here; what suits it found an epsilon of 0.5445 and stopped."""
    run = {m.SampledGaussian(25.403257122829135, 1.0, 0.00032776371971819304): 6_583_200}
    assert 0.260108 < epsilon_at(run, delta=9.412566414883286e-18) < 0.26021  # 0.260108595 by a contour


def test_a_lattice_too_coarse_to_tell_does_not_choose_the_tilt():
    """Two million rounds on 4,096 places look as if one round decided: the tilt was too small, and 2.3 % too much."""
    run = {m.SampledGaussian(8.545802463341788, 1.0, 0.07075983504299033): 1_846_148}
    assert 146.4499 < epsilon_at(run, delta=6.826807859719113e-14) < 146.48  # 146.449921 by a contour


def test_epsilons_next_to_zero_are_zero_or_found():
    """Where delta covers nearly all, the search goes down to zero, and ends."""
    run = {m.SampledGaussian(394707.1991666153, 1.0, 3.6992279057336616e-9): 4151}
    assert 0 <= epsilon_at(run, delta=3.2397883115841977e-13) < 1e-9


def gaussian_kinds(count=30, mu=0.4):
    side, _ = _fixed._sides({m.SampledGaussian(1.0, mu, 1.0): count})
    return side.kinds, mu * count**0.5


def exact_log_delta(mu, epsilon):
    with mpmath.workdps(40):
        x = mpmath.mpf(epsilon) / mu
        return float(mpmath.log(mpmath.ncdf(-x + mu / 2) - mpmath.exp(epsilon) * mpmath.ncdf(-x - mu / 2)))


def test_any_tilt_and_window_is_valid():
    """Bounds hold under tilts, at epsilons outside the window and on few places, though they become loose."""
    kinds, mu = gaussian_kinds()
    for tilt in (1e-3, 1.0, 4.0, 9.0):
        made = tilted.composition(kinds, tilt, 5.0, most=2**12)
        for epsilon in (0.0, 1.0, 5.0, 12.0, 20.0):
            assert made.log_delta(epsilon) >= exact_log_delta(mu, epsilon)


def test_wrong_variants_are_below_the_truth():
    """Without the mass beyond the window, or with the wrong sign of the tilt, bounds would be too small."""
    kinds, mu = gaussian_kinds()
    made = tilted.composition(kinds, 6.0, 12.0, most=2**12)
    low = made.first * made.step - 1.0
    uncharged = replace(made, below=0.0)
    assert made.log_delta(low) >= exact_log_delta(mu, low) > uncharged.log_delta(low)
    lattice = [tilted._on_lattice(kind, made.step) for kind in kinds]
    wrapped = tilted._composed(lattice, 0.0, made.step, -256, 512, np.geomspace(0.1, 20.0, 16))
    at = 200 * made.step
    assert wrapped.log_delta(at) >= exact_log_delta(mu, at) > replace(wrapped, beyond=0.0).log_delta(at)
    turned = replace(made, tilt=-made.tilt)
    assert turned.log_delta(12.0) - exact_log_delta(mu, 12.0) > 50  # of the wrong sign a tilt says nothing


def test_error_of_fourier_coefficients_is_counted():
    """Masses of a lattice composed by the transform agree with direct convolution up to what is charged."""
    kinds, _ = gaussian_kinds(count=3, mu=1.0)
    step = 2.0**-5
    lattice = [tilted._on_lattice(kind, step) for kind in kinds]
    made = tilted._composed(lattice, 0.0, step, -2048, 4096, np.geomspace(0.1, 20.0, 16))
    one = np.zeros(4096)
    np.add.at(one, lattice[0].places + 2048, np.exp(lattice[0].logs))
    direct = np.convolve(np.convolve(one, one), one)[4096 : 4096 + 4096] / one.sum() ** 3
    assert np.abs(made.masses - direct).max() <= made.rounding + 1e-17
    assert made.rounding < 1e-11
    assert exp(made.log_delta(1.0)) >= exp(exact_log_delta(3**0.5, 1.0))


@pytest.mark.slow
def test_the_judge_finds_no_answer_below_the_truth_and_few_above_it():
    """Random rows over the whole range: it ends with an error where one is below, or too many are above."""
    program = Path(__file__).parents[2] / "benchmarks" / "tightness" / "edges.py"
    done = subprocess.run([sys.executable, program, "--quick"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "below the truth 0" in done.stdout


def test_many_rounds_of_rare_large_losses_do_not_stop_at_the_end_of_a_bracket():
    """Epsilon grows with the rounds, and half of it is not given away where first searches ended far above."""
    step = m.SampledGaussian(0.953, 1.0, 4.3737e-5)
    few, more, most = (epsilon_at({step: n}, delta=2.4859e-14) for n in (7_000_000, 8_350_772, 10_000_000))
    assert few < more < most
    assert few == pytest.approx(1.18, abs=0.03)
    assert most == pytest.approx(1.40, abs=0.03)

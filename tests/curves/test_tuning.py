"""What the best of a random number of runs costs: never less than an exact enumeration says."""

from fractions import Fraction
from itertools import permutations
from math import inf, ldexp, log
from random import Random

import numpy as np
import pytest
from mpmath import mp, mpf

from almoner import mechanisms as m
from almoner.curves import _selection as selection
from almoner.curves import _totals, renyi, tradeoff, tuning
from almoner.errors import ArgumentError, Unsupported
from almoner.filters import Filter, Planned, Renyi, Residue
from almoner.odometers import Renyi as Odometer

LAWS = [(2.0, -0.5), (3.0, 0.0), (10.0, 0.0), (4.0, 1.0), (30.0, 1.0), (5.0, 2.5), (0.1, inf), (3.0, inf), (12.0, inf)]
ORDERS = [1.05, 1.5, 2.0, 3.0, 8.0, 40.0]
ROUNDS = [
    ((0.75, 0.25), (0.25, 0.75)),
    ((0.3, 0.3, 0.4), (0.2, 0.35, 0.45)),
    ((0.05, 0.9, 0.05), (0.01, 0.9, 0.09)),
    ((0.02, 0.28, 0.3, 0.4), (0.05, 0.3, 0.25, 0.4)),
]


def generating(runs, shape):
    """f(x) = E[x^K], in mpmath, with the law's own gamma; not the code under test."""
    if shape == inf:
        return lambda x: mp.exp(runs * (x - 1))
    g = mp.exp(-mpf(selection.span(runs, shape)))
    if shape == 0:
        return lambda x: mp.log(1 - (1 - g) * x) / mp.log(g)
    return lambda x: ((1 - (1 - g) * x) ** (-shape) - 1) / (g ** (-shape) - 1)


def uniform(most):
    """The generating function of a number of runs that is uniform on 1, ..., most."""
    return lambda x: sum(x**k for k in range(1, most + 1)) / mpf(most)


def best(law, f, order):
    """The law of the best run, exactly: outcomes from worst to best in this order; last, that there was no run."""
    law = [mpf(each) for each in law]
    total, reached, chosen = sum(law), mpf(0), []
    for place in order:
        below, reached = reached, reached + law[place] / total
        chosen.append(f(min(reached, mpf(1))) - f(below))
    return [*chosen, f(mpf(0))]


def divergence(there, back, order):
    return mp.log(sum(p**order * q ** (1 - order) for p, q in zip(there, back, strict=True) if p)) / (order - 1)


def hockey(there, back, epsilon):
    return sum(max(mpf(0), p - mp.exp(epsilon) * q) for p, q in zip(there, back, strict=True))


def both(laws, f):
    """The two laws of the best run for every order on the outcomes, in both directions."""
    for order in permutations(range(len(laws[0]))):
        p, q = (best(law, f, order) for law in laws)
        yield p, q
        yield q, p


@pytest.mark.parametrize(("runs", "shape"), LAWS)
def test_the_law_of_the_number_of_runs(runs, shape):
    """The probabilities add up to one and to the mean, and give the generating function that the proofs use."""
    if shape == inf:
        pytest.skip("Poisson numbers are priced, not drawn")
    chances = list(selection.probabilities(runs, shape))
    assert sum(chances) == pytest.approx(1, abs=1e-12)
    assert sum(k * chance for k, chance in enumerate(chances, 1)) == pytest.approx(runs, rel=1e-9)
    f = generating(runs, shape)
    for x in (0.2, 0.9, 0.999):
        assert sum(chance * x**k for k, chance in enumerate(chances, 1)) == pytest.approx(float(f(x)), rel=1e-9)


@pytest.mark.parametrize(("runs", "shape"), LAWS)
def test_rényi_values_are_not_below_an_enumeration(runs, shape):
    """For every order on the outcomes of four rounds, both directions: the exact divergence is at most the value."""
    f = generating(runs, shape)
    for p, q in ROUNDS:
        values = renyi.values(m.BestOf(m.DominatingPair(p, q), runs, shape), ORDERS)
        for there, back in both((p, q), f):
            for order, value in zip(ORDERS, values, strict=True):
                assert divergence(there, back, mpf(order)) <= value


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "shape"), LAWS)
def test_hockey_stick_curves_are_not_below_an_enumeration(runs, shape):
    """So are epsilon at several deltas, the curve at its points, and the pair at epsilons of both signs."""
    f = generating(runs, shape)
    for p, q in ROUNDS:
        described = m.BestOf(m.DominatingPair(p, q), runs, shape)
        curve, pair = tradeoff.of(described), tuning.pair(described)
        deltas = (1e-9, 1e-3, 0.05, 0.3)
        epsilons = [tuning.epsilon(described, delta=delta) for delta in deltas]
        grid = [-1.5, -0.3, 0.0, 0.05, 0.2, 0.5, 1.0, 1.5, 2.5, 4.0]
        shown = curve.delta([e for e in grid if e >= 0])
        bounds = [hockey(list(map(mpf, pair.p)), list(map(mpf, pair.q)), mpf(e)) for e in grid]
        for there, back in both((p, q), f):
            for delta, epsilon in zip(deltas, epsilons, strict=True):
                assert hockey(there, back, mpf(epsilon)) <= delta
            for e, bound in zip(grid, bounds, strict=True):
                assert hockey(there, back, mpf(e)) <= bound
            for e, bound in zip([e for e in grid if e >= 0], shown, strict=True):
                assert hockey(there, back, mpf(e)) <= bound


def test_the_enumeration_catches_wrong_prices():
    """One run's price, a uniform number of runs, and Poisson's without the chance of no run are all below the truth."""
    p, q = ROUNDS[0]
    one = m.DominatingPair(p, q)

    def exceeded(f, values):
        found = [
            divergence(there, back, mpf(order)) > value
            for there, back in both((p, q), f)
            for order, value in zip(ORDERS, values, strict=True)
        ]
        return any(found)

    f = generating(10.0, 1.0)
    assert exceeded(f, renyi.values(one, ORDERS))
    assert not exceeded(f, renyi.values(m.BestOf(one, 10.0, 1.0), ORDERS))
    # a number of runs that is uniform on 1, ..., 1000: an output just below the best is e^(3 epsilon) times as likely
    laws = (0.96, 0.03, 0.01), (0.96, 0.01, 0.03)
    there, back = (best(law, uniform(1000), (0, 1, 2)) for law in laws)
    values = renyi.values(m.BestOf(m.DominatingPair(*laws), 500.5, -0.5), ORDERS)
    assert divergence(there, back, mpf(40)) > values[-1]
    without = renyi.values(one, [2.0]) + 0.1 + log(0.1)  # Theorem 6 as printed, with delta = 1 even
    assert any(divergence(a, b, mpf(2)) > without[0] for a, b in both((p, q), generating(0.1, inf)))


def test_values_agree_with_dp_accounting():
    """The same values at the same orders, but for Poisson's chance of no run."""
    rdp = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    orders = np.asarray(renyi.ORDERS)
    for step in (m.Gaussian(2.0), m.Repeated(m.Gaussian(30.0), 100), m.Laplace(3.0)):
        one = renyi.values(step, orders)
        for runs, shape in ((3.0, 0.0), (10.0, 1.0), (50.0, 2.0), (10.0, inf)):
            theirs = np.asarray(rdp._compute_rdp_repeat_and_select(orders, one, runs, shape))
            ours = renyi.values(m.BestOf(step, runs, shape), orders)
            assert np.all(ours <= theirs * (1 + 1e-6) + 1e-6 + (np.exp(-runs) / (orders - 1) if shape == inf else 0))
            if shape < inf:
                np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_pure_runs_cost_at_most_the_published_factor():
    """(2 + shape) epsilon for pure runs, by Papernot & Steinke's Corollary 3; three epsilon where K is geometric."""
    for shape in (-0.5, 0.0, 1.0, 2.0):
        found = tuning.epsilon(m.BestOf(m.Pure(0.5), 1000.0, shape), delta=1e-6)
        assert 0.5 < found <= (2 + shape) * 0.5 + 1e-6


def test_the_curve_is_tighter_than_rényi_and_both_are_rows():
    """For Gaussian noise the hockey-stick curve gives less than Rényi values, and more than one run."""
    one, best_ = m.Gaussian(5.0), m.BestOf(m.Gaussian(5.0), 10)
    rows = {row.notion: row.epsilon for row in _totals.totals(best_, delta=1e-5)}
    assert tuning.epsilon(one, delta=1e-5) < rows["hockey-stick curve of one run"] < rows["Rényi DP"]
    assert _totals.tightest(best_, delta=1e-5).epsilon == rows["hockey-stick curve of one run"]


@pytest.mark.parametrize("kind", [Renyi, Residue])
def test_filters_and_odometers_charge_it(kind):
    """Rényi filters and odometers take the mechanism; others take its pair; both refuse what does not fit."""
    best_ = m.BestOf(m.Gaussian(20.0), 5)
    account: Filter = kind(epsilon=1.0, delta=1e-5)
    charged = best_ if kind is Renyi else tuning.pair(best_)
    account.charge(charged)
    assert not account.admits(m.Repeated(charged, 30))
    odometer = Odometer(delta=1e-5)
    odometer.charge(best_)
    assert odometer.epsilon() > renyi.of(m.Gaussian(20.0)).epsilon(delta=1e-5)


def test_the_pair_costs_less_in_a_filter():
    """Of what the pair admits the Rényi values admit less: ten runs expected, Gaussian noise."""
    best_ = m.BestOf(m.Gaussian(5.0), 10)
    assert Renyi(epsilon=1.3, delta=1e-5).admits(tuning.pair(best_))
    assert not Renyi(epsilon=1.3, delta=1e-5).admits(best_)
    fixed = tuning.epsilon(best_, delta=1e-5)
    assert Planned(tuning.pair(best_), epsilon=1.002 * fixed, delta=1e-5).left == 1
    with pytest.raises(ArgumentError):
        Planned(tuning.pair(best_), epsilon=0.99 * fixed, delta=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("best_", [m.BestOf(m.Pure(1.0), 1000, 5.0), m.BestOf(m.Gaussian(5.0), 1000, inf)], ids=str)
def test_the_tightest_row_is_the_least_of_all(best_):
    """Also where the Rényi curve of the best run is below its hockey-stick curve; so is the curve of both."""
    for delta in (1e-2, 1e-6):
        rows = _totals.totals(best_, delta=delta)
        least = _totals.tightest(best_, delta=delta).epsilon
        assert least == min(row.epsilon for row in rows)
        assert float(tradeoff.of(best_, points=400).delta(least * 1.02 + 0.01)) <= delta


def test_a_pair_leaks_at_most_one():
    """One run that may fail for certain: the best of many fails, and the pair says so."""
    pair = tuning.pair(m.BestOf(m.Approximate(0.1, 0.9), 1000))
    assert max(pair.p) <= 1


def test_nothing_is_priced_that_is_not_proven():
    """Runs that may fail, laws out of range, no mechanism; a mechanism comes back from its fields."""
    with pytest.raises(Unsupported, match="may fail"):
        renyi.values(m.BestOf(m.Approximate(0.1, 1e-9), 3), [2.0])
    for bad in (1.0, 0.5, inf, float("nan"), 1e7):
        with pytest.raises(ArgumentError, match="runs"):
            m.BestOf(m.Pure(0.1), bad)
    for bad in (-1.0, -0.95, float("nan"), 2000.0):
        with pytest.raises(ArgumentError, match="shape"):
            m.BestOf(m.Pure(0.1), 3.0, bad)
    with pytest.raises(ArgumentError, match="mechanism"):
        m.BestOf("gauss", 3.0)
    with pytest.raises(ArgumentError, match="best"):
        tuning.pair(m.Pure(0.1))
    described = m.BestOf(m.Repeated(m.Gaussian(3.0), 4), 7.5, 1.0)
    assert m.from_fields(m.to_fields(described)) == described
    assert tuning.epsilon(m.BestOf(m.Approximate(0.1, 1e-3), 3), delta=1e-3) == inf  # three chances to fail
    assert tuning.epsilon(m.BestOf(m.Approximate(0.1, 1e-4), 3), delta=1e-3) < 0.3


@pytest.mark.parametrize(
    ("runs", "shape"), [(1.0000001, 0.0), (1e6, -0.9), (1e6, 0.0), (1e6, 1000.0), (1e-6, inf), (1e6, inf)]
)
def test_the_ends_of_the_range_are_numbers(runs, shape):
    """No NaN, and no value below that of one run, where laws are as extreme as they may be."""
    one = m.Gaussian(10.0)
    values = renyi.values(m.BestOf(one, runs, shape), ORDERS)
    assert not np.isnan(values).any()
    if shape < inf:
        assert np.all(values >= renyi.values(one, ORDERS))
        assert tuning.epsilon(m.BestOf(one, runs, shape), delta=1e-5) >= tuning.epsilon(one, delta=1e-5)


class Bits(Random):
    """A generator that always gives the same bits."""

    def __init__(self, fraction):
        super().__init__()
        self.fraction = fraction

    def getrandbits(self, bits):
        return int(self.fraction * 2**bits)


def exactly(runs, shape, digits=300):
    """The probabilities of 1, 2, ... runs times 2^digits, in whole numbers, by the law's own span."""
    one = 1 << digits
    with mp.workprec(digits + 60):
        s = mpf(selection.span(runs, shape))
        shrink = int(-mp.expm1(-s) * one)
        first = -mp.expm1(-s) * (1 / s if shape == 0 else mpf(shape) / mp.expm1(mpf(shape) * s))
        chance, up = int(first * one), Fraction(shape)
    number = 1
    while True:
        yield chance
        chance = (
            (chance * shrink >> digits) * (number * up.denominator + up.numerator) // (number + 1) // up.denominator
        )
        number += 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "shape"), [(1000.0, 0.0), (1000.0, -0.3), (20.0, -0.5), (1000.0, 1000.0), (3.0, 1e-16)]
)
def test_the_law_that_is_drawn_is_off_by_less_than_missed(runs, shape):
    """In whole numbers: the total variation between what 192 bits draw and the law, with all that is cut off."""
    drawn, off, total = 0, 0, 0
    digits = 1300 if shape == 1000 else 300
    for chance, true in zip(selection.probabilities(runs, shape), exactly(runs, shape, digits), strict=False):
        units = int(ldexp(chance, 192)) << (digits - 192)
        off, drawn, total = off + abs(units - true), drawn + units, total + true
    left_out = abs((1 << digits) - drawn) + max(0, (1 << digits) - total)
    assert float(Fraction(off + left_out, 1 << digits)) < 2 * tuning.MISSED  # total variation is half of it


@pytest.mark.parametrize(("runs", "shape"), [(1000.0, 0.0), (20.0, -0.5), (4.0, 1.0)])
def test_numbers_are_drawn_at_the_edges_of_their_probabilities(monkeypatch, runs, shape):
    """Just below the sum of the first k probabilities k is drawn, just above it k + 1, also where k is above 10,000."""
    described, below = m.BestOf(m.Pure(0.1), runs, shape), 0
    edges = {1, 2, 50, 3000, 20_000}
    for number, chance in zip(range(1, max(edges) + 1), exactly(runs, shape), strict=False):
        below += chance
        if number in edges and chance > 1 << 270:
            for fraction, answer in ((below - (chance >> 9), number), (below + (chance >> 9), number + 1)):
                monkeypatch.setattr(tuning, "Random", lambda seed, at=Fraction(fraction, 1 << 300): Bits(at))
                assert tuning.draw_runs(described, seed=1) == answer


def test_numbers_of_runs_are_drawn_by_the_law():
    """Of 20,000 draws each number has the share that its probability says, by a chi-squared test at 1e-6."""
    from scipy import stats

    described = m.BestOf(m.Pure(0.1), 3.0, 0.0)
    drawn = np.array([tuning.draw_runs(described, seed=number) for number in range(20_000)])
    chances = np.array(list(selection.probabilities(3.0, 0.0)))[:12]
    counts = np.array([np.sum(drawn == k) for k in range(1, 13)])
    expected = np.append(chances, 1 - chances.sum()) * len(drawn)
    assert stats.chisquare(np.append(counts, len(drawn) - counts.sum()), expected).pvalue > 1e-6
    assert tuning.draw_runs(described) >= 1
    for bad in (m.BestOf(m.Pure(0.1), 3.0, inf), m.BestOf(m.Pure(0.1), 2000.0), m.BestOf(m.Pure(0.1), 1000.0, -0.9)):
        with pytest.raises(ArgumentError):
            tuning.draw_runs(bad)

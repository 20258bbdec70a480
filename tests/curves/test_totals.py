"""One run in every notion of privacy that has a price for it."""

from fractions import Fraction

import mpmath
import pytest

from almoner import individual
from almoner import mechanisms as m
from almoner.curves import approximate, gaussian, renyi, zcdp
from almoner.curves._totals import optimum, tightest, totals
from almoner.errors import ArgumentError

DELTA = 1e-5


def epsilons(run):
    return {row.notion: row.epsilon for row in totals(run, delta=DELTA)}


def test_each_row_is_what_its_notion_says():
    """A Gaussian run has exact, zCDP and Rényi rows, from the smallest epsilon to the largest."""
    run = m.Repeated(m.Gaussian(20.0), 100)
    rows = epsilons(run)
    assert list(rows) == ["Gaussian DP, exact", "zCDP", "Rényi DP", "Rényi DP, Mironov's conversion"]
    assert rows["Gaussian DP, exact"] == gaussian.of(run).epsilon(delta=DELTA)
    assert rows["zCDP"] == zcdp.of(run).epsilon(delta=DELTA)
    assert rows["Rényi DP"] == renyi.of(run).epsilon(delta=DELTA)
    assert sorted(rows.values()) == list(rows.values())


def test_notions_without_a_price_are_left_out():
    """Sampled Gaussians have losses and a Rényi curve; pure rounds have the optimum and basic composition."""
    sampled = epsilons(m.Repeated(m.SampledGaussian(2.0, 1.0, 0.01), 100))
    assert list(sampled) == ["privacy loss distributions", "Rényi DP", "Rényi DP, Mironov's conversion"]
    run = m.Repeated(m.Pure(0.1), 20)
    pure = epsilons(run)
    assert pure["pure DP, exact"] == optimum(m.Pure(0.1), 20, DELTA)
    assert pure["basic composition"] == approximate.of(run).epsilon
    assert "Gaussian DP, exact" not in pure


def test_the_optimum_holds_at_the_least_deltas_that_are_floats():
    """At delta 5e-324, 1e5 rounds at epsilon 0.001 needed 5.7 times as much with the epsilon that was said."""
    found, log_of = Fraction(optimum(m.Pure(0.001), 10**5, 5e-324)), mpmath.log
    with mpmath.workdps(40):
        lie, count = 1 / (1 + mpmath.exp(mpmath.mpf("0.001"))), 10**5
        top, true = int((count - 1000 * found) / 2), mpmath.mpf(0)
        for lies in range(max(0, top - 2000), top + 1):
            logs = mpmath.loggamma(count + 1) - mpmath.loggamma(lies + 1) - mpmath.loggamma(count - lies + 1)
            logs += lies * log_of(lie) + (count - lies) * log_of(1 - lie)
            above = mpmath.mpf("0.001") * (count - 2 * lies) - mpmath.mpf(found.numerator) / found.denominator
            true += mpmath.exp(logs) * max(0, -mpmath.expm1(-above))
        assert true <= mpmath.mpf(5e-324)


@pytest.mark.parametrize(("epsilon", "rounds"), [(0.7, 3), (1.1, 9), (0.3, 11)])
def test_the_largest_loss_of_pure_rounds_is_rounded_up(epsilon, rounds):
    """At a tiny delta the optimum is the sum of the epsilons, of which the product of floats may be a little less."""
    assert Fraction(optimum(m.Pure(epsilon), rounds, 1e-30)) >= rounds * max(Fraction(epsilon), Fraction(str(epsilon)))


def test_one_round_need_not_be_repeated():
    """A mechanism alone is a run of one round."""
    assert epsilons(m.Pure(0.1)) == epsilons(m.Repeated(m.Pure(0.1), 1))


def test_basic_composition_is_infinite_where_its_delta_is_larger():
    """Failures that add up to more than delta leave no epsilon; to exactly delta, as it is written, they may."""
    run = m.Repeated(m.Approximate(0.1, 1e-6), 20)
    assert epsilons(run)["basic composition"] == float("inf")
    exactly, a_little_less = (
        {row.notion: row.epsilon for row in totals(run, delta=delta)}["basic composition"]
        for delta in (2e-5, 1.9999e-5)
    )
    assert exactly == pytest.approx(2.0)
    assert a_little_less == float("inf")


def test_more_rounds_than_memory_holds_are_left_out():
    """The exact bound of pure rounds is not computed for 10**12 of them; the others are."""
    rows = epsilons(m.Repeated(m.Pure(1e-7), 10**12))
    assert "pure DP, exact" not in rows
    assert rows["zCDP"] > 0


@pytest.mark.parametrize("delta", [0.0, 1.0, float("nan")])
def test_delta_is_checked(delta):
    """A probability that is none is refused by name."""
    with pytest.raises(ArgumentError, match="delta="):
        totals(m.Gaussian(20.0), delta=delta)


def test_loss_distributions_come_first_where_there_is_no_formula():
    """A sampled run, Laplace and mixed rounds: the certified row is the first and the least, and `tightest` is it."""
    sampled = m.Repeated(m.SampledGaussian(1.1, 1.0, 0.01), 421)
    for run in (sampled, m.Repeated(m.Laplace(10.0), 50), m.Composed((m.Gaussian(20.0), m.Laplace(3.0)))):
        rows = totals(run, delta=DELTA)
        assert rows[0].notion == "privacy loss distributions"
        assert rows[0].epsilon == min(row.epsilon for row in rows)
        assert tightest(run, delta=DELTA) == rows[0]
    everybody = individual.losses([[421]], [1.1], sample_rate=0.01, delta=DELTA)[0]
    assert 0.999 * everybody < totals(sampled, delta=DELTA)[0].epsilon < everybody


def test_where_there_is_a_formula_it_is_the_tightest():
    """Gaussian and equal pure rounds have exact rows and no other in front; of others the least row is taken."""
    for run, name in (
        (m.Repeated(m.Gaussian(20.0), 50), "Gaussian DP, exact"),
        (m.Repeated(m.Repeated(m.Pure(0.1), 5), 10), "pure DP, exact"),
        (m.Repeated(m.SampledGaussian(5.0, 1.0, 0.01), 10**7 + 1), "privacy loss distributions"),
    ):
        best = tightest(run, delta=DELTA)
        assert (best.notion, best.epsilon) == (name, min(row.epsilon for row in totals(run, delta=DELTA)))
    nested = m.Repeated(m.Repeated(m.Pure(0.1), 5), 10)
    assert tightest(nested, delta=DELTA).epsilon == optimum(m.Pure(0.1), 50, DELTA)

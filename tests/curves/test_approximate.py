"""(epsilon, delta) adds up exactly."""

from fractions import Fraction

from almoner import mechanisms as m
from almoner.curves import approximate


def test_basic_composition_is_exact():
    """Epsilons and deltas add up as decimals."""
    assert approximate.cost(m.Repeated(m.Approximate(0.1, 1e-9), 10)) == (1, Fraction(1, 10**8))
    assert approximate.of(m.Composed(())) == approximate.Approximate(0.0, 0.0)

"""Running counts with noise: what they cost, and the law of their noise."""

from fractions import Fraction

import numpy as np
import pytest

from almoner import errors, filters, individual, mechanisms
from almoner.training.stopping import Dropouts, SquareRoot, Tree
from drop_counts import both, decoder_and_encoder


@both
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 13, 64])
def test_the_factors_multiply_to_running_sums_and_the_price_is_the_longest_column(kind, steps):
    """The price is the largest squared column of R, to rounding and never below it; L R adds up."""
    left, right = decoder_and_encoder(kind, steps)
    np.testing.assert_allclose(left @ right, np.tril(np.ones((steps, steps))), atol=1e-12)
    longest = np.max(np.sum(right**2, axis=0))
    priced = kind(steps, 3.0).mechanism
    assert priced.sigma == 3.0
    assert longest * (1 - 1e-14) <= priced.sensitivity**2 <= longest * (1 + 1e-12)


@pytest.mark.parametrize("steps", [1, 7, 104, 1000])
def test_prices_are_rounded_up_in_exact_arithmetic(steps):
    """floor(log2 T) + 1 nodes; and the sum of squares of the exact coefficients."""
    c, exact = Fraction(1), Fraction(1)
    for k in range(1, steps):
        c *= Fraction(2 * k - 1, 2 * k)
        exact += c * c
    found = Fraction(SquareRoot(steps, 1.0).mechanism.sensitivity) ** 2
    assert exact <= found <= exact * (1 + Fraction(1, 10**11))
    nodes = Fraction(int(np.floor(np.log2(steps))) + 1)
    assert nodes <= Fraction(Tree(steps, 1.0).mechanism.sensitivity) ** 2 <= nodes * (1 + Fraction(1, 10**14))


def test_the_square_root_costs_what_theory_says():
    """2.5 to 4.7 over sigma squared for 100 to 100,000 steps, and less than the tree's 7 and 17."""
    assert SquareRoot(100, 1.0).mechanism.sensitivity ** 2 == pytest.approx(2.53, abs=0.01)
    assert SquareRoot(100_000, 1.0).mechanism.sensitivity ** 2 == pytest.approx(4.73, abs=0.01)
    assert Tree(100, 1.0).mechanism.sensitivity ** 2 == pytest.approx(7)
    assert Tree(100_000, 1.0).mechanism.sensitivity ** 2 == pytest.approx(17)


@both
def test_the_noise_is_that_of_the_matrix_mechanism(kind):
    """The errors' covariance is sigma^2 L L^T: exactly, by sending unit draws through the code, as L itself."""
    steps, sigma = 21, 2.5
    left, _ = decoder_and_encoder(kind, steps)

    class Unit:
        """The only draw that is not zero is number j."""

        def __init__(self, j):
            self.j, self.seen = j, -1

        def normal(self, mean, scale):
            self.seen += 1
            assert (mean, scale) == (0.0, sigma)
            return sigma if self.seen == self.j else 0.0

    columns = [list(kind(steps, sigma).errors(Unit(j))) for j in range(steps)]
    np.testing.assert_allclose(np.array(columns).T, sigma * left, atol=1e-12)
    said = [kind(steps, sigma).standard_error(step) for step in range(1, steps + 1)]
    np.testing.assert_allclose(said, sigma * np.sqrt(np.sum(left**2, axis=1)), rtol=1e-12)


@both
def test_the_standard_error_is_that_of_many_runs(kind):
    """The spread of the errors over 4000 runs is the one that was announced, at every step."""
    noise, counter = np.random.default_rng(3), kind(12, 2.0)
    errors_ = np.array([list(counter.errors(noise)) for _ in range(4000)])
    said = [counter.standard_error(step) for step in range(1, 13)]
    np.testing.assert_allclose(errors_.std(axis=0), said, rtol=5 / np.sqrt(2 * 4000))
    assert np.all(np.abs(errors_.mean(axis=0)) < 5 * np.array(said) / np.sqrt(4000))


@both
def test_counters_refuse_nonsense(kind):
    """No steps, no noise, steps outside the run."""
    for bad in ((0, 1.0), (5, 0.0), (5, float("nan")), (2.5, 1.0)):
        with pytest.raises(errors.ArgumentError):
            kind(*bad)
    with pytest.raises(errors.ArgumentError):
        kind(5, 1.0).standard_error(6)


def test_counts_do_not_show_the_last_digits_of_their_noise():
    """What is released is a multiple of about a millionth of the noise's standard deviation, and near what it was."""
    people = individual.Filter(100, filters.Gaussian(epsilon=1.0, delta=1e-5))
    accounts = Dropouts(people, SquareRoot(steps=5, sigma=50.0), noise=np.random.default_rng(3))
    accounts.charge(mechanisms.Gaussian(sigma=20.0), np.ones(100))
    exact = next(SquareRoot(steps=5, sigma=50.0).errors(np.random.default_rng(3)))
    assert accounts.count != exact
    assert abs(accounts.count - exact) <= 2**-16
    assert (accounts.count * 2**15).is_integer()

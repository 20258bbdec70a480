"""Factors: sensitivities by exact definitions, closed forms and every pattern; optimality; errors of workloads."""

from fractions import Fraction
from itertools import combinations, pairwise
from math import comb, sqrt

import numpy as np
import pytest
from scipy.linalg import solve_triangular, sqrtm
from scipy.optimize import minimize

from almoner import errors
from almoner.training.correlated import Banded, BandedInverse, PrefixSums, Workload
from almoner.training.correlated._kinds import BandedFactor

STEPS = 12


def exact_inverse(rows):
    """The inverse of a lower triangular matrix of fractions."""
    steps = len(rows)
    found = [[Fraction(0)] * steps for _ in range(steps)]
    for column in range(steps):
        for row in range(column, steps):
            total = Fraction(int(row == column)) - sum(rows[row][k] * found[k][column] for k in range(column, row))
            found[row][column] = total / rows[row][row]
    return found


def exact(kind, steps):
    """C in exact arithmetic, from its definition: what the noise is really made with, inverted."""
    if kind == "prefix":
        inverse = [-Fraction(comb(2 * k, k), 4**k * (2 * k - 1)) for k in range(steps)]
    else:
        inverse = [-Fraction(comb(2 * k, k), 4**k * (2 * k - 1)) if k < kind else Fraction(0) for k in range(steps)]
    rows = [[inverse[t - s] if s <= t else Fraction(0) for s in range(steps)] for t in range(steps)]
    return exact_inverse(rows)


def moved(columns, places):
    """The exact squared length of the sum of columns at some places."""
    return sum(sum(row[place] for place in places) ** 2 for row in columns)


def patterns(steps, separation, participations):
    for count in range(1, participations + 1):
        for places in combinations(range(steps), count):
            if all(b - a >= separation for a, b in pairwise(places)):
                yield places


def tight(bound, square, *, relative=1e-9):
    """Whether a bound on a length is at least it, in exact arithmetic, and hardly larger."""
    return Fraction(bound) ** 2 >= square and bound <= sqrt(square) * (1 + relative)


@pytest.mark.parametrize("kind", ["prefix", 1, 3, 5])
@pytest.mark.parametrize(("separation", "participations"), [(1, 3), (2, 4), (4, 3), (6, 2), (12, 1)])
def test_toeplitz_sensitivities_are_those_of_the_worst_pattern(kind, separation, participations):
    """In exact arithmetic, no pattern moves the rows further, one moves them as far to 1e-9."""
    factor = (PrefixSums() if kind == "prefix" else BandedInverse(kind)).factor(STEPS)
    columns = exact(kind, STEPS)
    worst = max(moved(columns, places) for places in patterns(STEPS, separation, participations))
    assert tight(factor.sensitivity(separation=separation, participations=participations), worst)


@pytest.mark.parametrize("epochs", range(1, 11))
def test_square_root_sensitivities_in_closed_form(epochs):
    """Prefix sums, 16 steps an epoch, 1 to 10 epochs: binomials in exact arithmetic, Kalinin & Lampert's pattern."""
    separation, steps = 16, 16 * epochs
    entries = [Fraction(comb(2 * k, k), 4**k) for k in range(steps)]
    rows = [sum(entries[t - s] for s in range(0, t + 1, separation)) for t in range(steps)]
    square = sum(row**2 for row in rows)
    factor = PrefixSums().factor(steps)
    assert tight(factor.sensitivity(separation=separation, participations=epochs), square)
    assert tight(factor.sensitivity_at(range(0, steps, separation)), square)
    assert tight(factor.column_norm(0), sum(entry**2 for entry in entries))


@pytest.mark.parametrize("band", [1, 2, 4, 8, 16, 32, 64])
def test_banded_sensitivity_is_the_root_of_the_participations(band):
    """Columns of length 1 that do not overlap: sqrt(epochs), from 1 to 10 (Choquette-Choo et al. 2023, Theorem 2)."""
    unit = np.random.default_rng(band).uniform(-1, 1, size=(band, 10 * band))
    unit[0] = 1.0
    unit *= np.where(np.arange(band)[:, None] + np.arange(10 * band) < 10 * band, 1.0, 0.0)
    factor = BandedFactor(unit / np.sqrt((unit**2).sum(axis=0)))
    for epochs in range(1, 11):
        assert factor.sensitivity(separation=band, participations=epochs) == pytest.approx(sqrt(epochs), rel=1e-12)
        places = range(0, band * epochs, band)
        assert factor.sensitivity_at(places) == pytest.approx(sqrt(epochs), rel=1e-12)


@pytest.mark.parametrize(("separation", "participations"), [(1, 2), (2, 3), (3, 3), (4, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_the_sensitivity_of_signed_bands_covers_every_pattern_and_sign(separation, participations, seed):
    """Every pattern, with every sign of its gradients, moves the rows by at most the sensitivity; exact if apart."""
    band = 3
    factor = BandedFactor(np.random.default_rng(seed).uniform(0.1, 1, size=(band, 9)) * [[1.0], [-1.0], [1.0]])
    columns = [[Fraction(float(v)) for v in row] for row in factor.columns(range(9))]
    bound = Fraction(factor.sensitivity(separation=separation, participations=participations)) ** 2
    worst = Fraction(0)
    for places in patterns(9, separation, participations):
        at_places = Fraction(factor.sensitivity_at(places)) ** 2
        for signs in np.ndindex(*[2] * len(places)):
            square = sum(
                sum(row[p] * (1 - 2 * sign) for p, sign in zip(places, signs, strict=True)) ** 2 for row in columns
            )
            assert square <= at_places <= bound * (1 + Fraction(1, 10**12))
            worst = max(worst, square)
    assert bound <= worst * (1 + Fraction(1, 10**9)) or separation < band


def best_without_a_band(steps):
    """The least noise of any factor with columns of length at most 1, by the fixed point of Denisov et al. (2022)."""
    moves = Workload().matrix(steps)
    square, scale = moves.T @ moves, np.ones(steps)
    for _ in range(300):
        root = np.sqrt(scale)
        scale = np.diag(np.real(sqrtm(root[:, None] * square * root[None, :]))).copy()
    return sqrt(scale.sum() / steps)


def test_the_widest_band_is_the_best_factor_there_is():
    """With a band of all steps the optimisation finds the optimum that a fixed point of another kind finds."""
    assert Banded(24).factor(24).error() == pytest.approx(best_without_a_band(24), rel=1e-9)


def noise_of(matrix, moves):
    return np.linalg.norm(solve_triangular(matrix.T, moves.T, lower=False)) / sqrt(len(moves))


@pytest.mark.parametrize("band", [2, 4])
def test_no_other_band_does_better_for_momentum_and_a_schedule(band):
    """A naive optimiser without our derivative, from another start, finds nothing better for the workload."""
    steps = 8
    workload = Workload(momentum=0.8, rates=tuple(0.5 + 0.25 * (t % 3) for t in range(steps)))
    moves = workload.matrix(steps)
    inside = [(t, s) for s in range(steps) for t in range(s, min(s + band, steps))]

    def naive(entries):
        matrix = np.zeros((steps, steps))
        matrix[tuple(zip(*inside, strict=True))] = entries
        return noise_of(matrix / np.sqrt((matrix**2).sum(axis=0)), moves)

    start = np.array([1.0 if t == s else 0.1 for t, s in inside])
    found = minimize(naive, start, options={"maxiter": 3000, "gtol": 1e-8}).fun
    factor = Banded(band, workload).factor(steps)
    assert factor.error(workload) == pytest.approx(noise_of(factor.columns(range(steps)), moves), rel=1e-9)
    assert factor.error(workload) <= found * (1 + 1e-6)
    assert factor.error(workload) < Banded(1).factor(steps).error(workload)


def test_bands_have_columns_of_length_one_and_zeros_below():
    """Every column has length 1 to rounding, and nothing is more than band - 1 below the diagonal."""
    factor = Banded(4).factor(20)
    matrix = factor.columns(range(20))
    assert np.allclose((matrix**2).sum(axis=0), 1.0, rtol=1e-14)
    assert not np.tril(matrix, -4).any()
    assert np.tril(matrix, -3).any()
    assert not np.triu(matrix, 1).any()


def test_independent_noise_is_for_any_number_of_steps():
    """Band 1 has no optimisation, and so no limit; every row is its own draw."""
    factor = Banded(1).factor(100_000)
    assert (factor.band, factor.steps) == (1, 100_000)
    drawn = factor.noise(lambda step: np.array([float(step)]))
    assert [float(next(drawn)[0]) for _ in range(5)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    with pytest.raises(errors.ArgumentError, match="steps=4097 must be at most 4,096"):
        Banded(2).factor(4097)


def test_wider_bands_have_less_noise():
    """Error at sigma 1 falls with the band; all factors but the identity beat independent noise at equal privacy."""
    steps = 32
    found = [Banded(band).factor(steps).error() for band in (1, 2, 4, 8, 16)]
    assert found == sorted(found, reverse=True)
    independent = sqrt((steps + 1) / 2)
    assert found[0] == pytest.approx(independent, rel=1e-12)
    for description in (PrefixSums(), BandedInverse(8)):
        factor = description.factor(steps)
        assert factor.error() * factor.sensitivity(separation=steps, participations=1) < independent * 1.02


def test_the_inverse_of_prefix_sums_times_itself_is_the_prefix_sums():
    """C C = A: the exact square of the first column, and noise made with its inverse."""
    factor = PrefixSums().factor(40)
    root = factor.columns(range(40))
    assert np.allclose(root @ root, np.tril(np.ones((40, 40))), rtol=0, atol=1e-13)
    assert np.allclose(root @ factor.inverse, np.eye(40), rtol=0, atol=1e-13)


def test_a_narrow_inverse_is_the_banded_inverse_square_root():
    """C^-1 has the first entries of the series of (1 - x)^(1/2), 1, -1/2, -1/8, ..., and zeros below them."""
    inverse = BandedInverse(3).factor(6).inverse
    assert inverse[:, 0].tolist() == [1.0, -0.5, -0.125, 0.0, 0.0, 0.0]
    assert inverse[5].tolist() == [0.0, 0.0, 0.0, -0.125, -0.5, 1.0]


def test_a_workload_is_what_an_optimizer_does():
    """A g is how far momentum and a schedule move the iterate, step by step."""
    rates, momentum = (0.5, 0.25, 1.0, 0.125), 0.9
    gradients = np.random.default_rng(0).normal(size=4)
    buffer, iterate, iterates = 0.0, 0.0, []
    for rate, gradient in zip(rates, gradients, strict=True):
        buffer = momentum * buffer + gradient
        iterate += rate * buffer
        iterates.append(iterate)
    assert np.allclose(Workload(momentum, rates).matrix(4) @ gradients, iterates, rtol=1e-14)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Banded(0), "band=0"),
        (lambda: Banded(2.5), "band=2.5"),
        (lambda: Banded(2, workload=3), "workload=3"),
        (lambda: BandedInverse(-1), "band=-1"),
        (lambda: PrefixSums().factor(0), "steps=0"),
        (lambda: Banded(2).factor(5000), "steps=5000"),
        (lambda: Workload(momentum=1.0), "momentum=1"),
        (lambda: Workload(momentum=float("nan")), "momentum=nan"),
        (lambda: Workload(rates=(0.1, 0.0)), "rates=0.0"),
        (lambda: Workload(rates=(0.1,)).matrix(2), "rates"),
        (lambda: PrefixSums().factor(8).sensitivity(separation=0, participations=1), "separation=0"),
        (lambda: PrefixSums().factor(8).sensitivity_at([1, 1]), "places"),
        (lambda: PrefixSums().factor(8).column_norm(8), "places"),
        (lambda: BandedFactor(np.array([[1.0, 0.0]])), "diagonals"),
    ],
)
def test_what_makes_no_sense_is_refused(make, words):
    """The error names the argument and the rule."""
    with pytest.raises(errors.ArgumentError, match=words.replace("+", r"\+")):
        make()

"""The certificate of each person's epsilon, judged by closed forms in thirty digits that share no code with it."""

from itertools import product

import mpmath
import numpy as np
import pytest

from almoner import individual, mechanisms
from almoner.curves import losses as curve

mpf = mpmath.mpf


def above(x, mean, z):
    """P(N(mean, z^2) > x)."""
    return mpmath.erfc((x - mean) / (z * mpmath.sqrt(2))) / 2


def remove(e, z, q):
    """Hockey-stick at exp(e) of (1-q) N(0, z^2) + q N(1, z^2) against N(0, z^2)."""
    level = mpmath.exp(e)
    if level <= 1 - q:
        return 1 - level
    x = z * z * mpmath.log((level - 1 + q) / q) + mpf(1) / 2
    return (1 - q - level) * above(x, 0, z) + q * above(x, 1, z)


def add(e, z, q):
    """The same of N(0, z^2) against the mixture."""
    level = mpmath.exp(e)
    if level * (1 - q) >= 1:
        return mpf(0)
    x = z * z * mpmath.log((1 / level - 1 + q) / q) + mpf(1) / 2
    return (1 - level * (1 - q)) * above(-x, 0, z) - level * q * above(-x, -1, z)


def responses(kinds):
    """Losses and masses of randomised responses, each (epsilon, count)."""
    outcomes = [(mpf(0), mpf(1))]
    for epsilon, count in kinds:
        p = 1 / (1 + mpmath.exp(-mpf(epsilon)))
        each = [((2 * k - count) * mpf(epsilon), mpmath.binomial(count, k) * p**k * (1 - p) ** (count - k))
                for k in range(count + 1)]  # fmt: skip
        outcomes = [(a + b, m * n) for a, m in outcomes for b, n in each]
    return outcomes


def exact(epsilon, z, q, kinds):
    """Delta of one sampled Gaussian step and randomised responses: the larger of both directions."""
    z, q, epsilon = mpf(z), mpf(q), mpf(epsilon)
    outcomes = responses(kinds)
    return max(sum(mass * side(epsilon - loss, z, q) for loss, mass in outcomes) for side in (remove, add))


@pytest.mark.slow
def test_the_closed_form_is_the_integral():
    """The oracle itself, against numerical integration of the densities, in both directions."""
    z, q = mpf("0.8"), mpf("0.3")

    def density(x, mean):
        return mpmath.exp(-((x - mean) ** 2) / (2 * z * z)) / (z * mpmath.sqrt(2 * mpmath.pi))

    for e in (-0.5, -0.1, 0.0, 0.2, 0.9):
        level = mpmath.exp(mpf(e))
        for side, sign in ((remove, 1), (add, -1)):

            def excess(x, level=level, sign=sign):
                pair = ((1 - q) * density(x, 0) + q * density(x, 1), density(x, 0))[::sign]
                return max(mpf(0), pair[0] - level * pair[1])

            area = mpmath.quad(excess, mpmath.linspace(-7, 8, 40))
            assert abs(area - side(mpf(e), z, q)) < 1e-5


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", range(4))
def test_random_small_compositions_never_exceed_the_bound(seed):
    """1,536 cases: one sampled step of any noise and rate with up to fourteen randomised responses. The true delta at
    our upper epsilon is at most the delta asked for (and more than that 1 % below it), at our lower epsilon at least;
    our delta is at least the truth."""
    rng = np.random.default_rng(seed)
    mpmath.mp.dps = 30
    noise, rates = 10 ** rng.uniform(-0.2, 1.5, 2), 10 ** rng.uniform(-3, 0, 2)
    sizes = 10 ** rng.uniform(-2, 0.1, 3)
    steps = [mechanisms.SampledGaussian(float(z), 1.0, float(q)) for z, q in zip(noise, rates, strict=True)]
    rounds = [*steps, *(mechanisms.Pure(float(size)) for size in sizes)]
    chosen = np.array(list(product(range(2), range(8), range(6), range(4))))
    counts = np.concatenate([1 - chosen[:, :1], chosen], axis=1)
    delta = float(10 ** rng.uniform(-10, -2))
    high = individual.losses(counts, rounds, delta=delta)
    epsilon = float(np.median(high) / 2)
    found = individual.losses(counts, rounds, epsilon=epsilon)
    cases = [(noise[row[0]], rates[row[0]], list(zip(sizes, row[1:], strict=True))) for row in chosen.tolist()]
    for at, above_it, case in zip(found, high, cases, strict=True):
        assert at >= exact(epsilon, *case) * (1 - mpf(10) ** -13)
        if above_it < np.inf:
            assert exact(above_it, *case) <= delta
    low = individual.losses(counts[::16], rounds, delta=delta, bounds=True)[0]
    for below, case in zip(low, cases[::16], strict=True):
        if below > 0:
            assert exact(below, *case) >= delta * (1 - 1e-9)
    some = zip(high[5::16], cases[5::16], strict=True)
    tight = [exact(above_it / 1.01 - 1e-4, *case) >= delta for above_it, case in some if above_it < np.inf]
    assert np.mean(tight) > 0.9


@pytest.mark.parametrize("delta", [1e-5, 1e-76, 1e-300])
def test_pure_rounds_never_have_more_than_they_add_up_to(delta):
    """Also where the certificate does not reach delta: then it is exactly that, and no warning is given."""
    counts, rounds = np.array([[7, 0], [7, 3], [0, 0]]), [mechanisms.Pure(0.00183), mechanisms.Laplace(100.0)]
    bounds = curve.epsilons(counts, rounds, delta=delta)
    most = np.array([7 * 0.00183, 7 * 0.00183 + 0.03, 0.0])
    assert np.all(bounds <= most * (1 + 1e-12))
    if delta < 1e-70:
        assert np.all(bounds >= most)

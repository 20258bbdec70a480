"""Few steps and small deltas: each person's epsilon against closed forms and integrals; each error bound by itself."""

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr

from almoner import individual, mechanisms
from almoner.curves._grid import laws
from almoner.curves.losses import _bounds, _groups

DELTAS = (1e-10, 1e-8, 1e-5, 1e-3)


def above(epsilon, z, q):
    """Hockey-stick of one step at exp(epsilon), removal, in closed form; an array of epsilons."""
    excess = np.expm1(epsilon) + q
    reached = excess > 0
    with np.errstate(invalid="ignore", divide="ignore"):
        x = z * z * np.log(excess / q) + 0.5
    found = q * np.exp(log_ndtr((1 - x) / z)) - excess * np.exp(log_ndtr(-x / z))
    return np.where(reached, found, -np.expm1(epsilon))


def at_least(epsilon, z, q):
    """The same of adding: 1 - e^eps + e^eps above(-eps), without cancellation."""
    left = -np.expm1(-epsilon) - q  # 1 - q < exp(-epsilon) where negative
    reached = left < 0
    x = z * z * np.log(np.where(reached, -left, 1.0) / q) + 0.5
    found = (1 - np.exp(epsilon) * (1 - q)) * np.exp(log_ndtr(x / z)) - np.exp(epsilon) * q * np.exp(
        log_ndtr((x - 1) / z)
    )
    return np.where(reached, found, 0.0)


def two(epsilon, first, second, q):
    """Delta of one step at each of two relative noises: an integral over the first one's outcome, both directions."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.linspace(-10 * first, 1 + 10 * first, 801)
    half = np.diff(edges)[:, None] / 2
    x, w = (edges[:-1, None] + half * (1 + nodes)).ravel(), (half * weights).ravel()
    w = w * np.exp(-((x / first) ** 2) / 2) / (first * np.sqrt(2 * np.pi))
    growth = np.log1p(q * np.expm1((2 * x - 1) / (2 * first**2)))
    remove = np.sum(w * np.exp(growth) * above(epsilon - growth, second, q))
    add = np.sum(w * at_least(epsilon + growth, second, q))
    return max(float(remove), float(add))


def root(curve, delta):
    """The epsilon at which a curve falls to delta."""
    return 0.0 if curve(0.0) <= delta else brentq(lambda e: float(curve(e)) / delta - 1, 0.0, 200.0, xtol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize(("z", "q"), [(0.5, 0.3), (1.0, 0.001), (1.5, 0.004), (4.0, 0.05), (50.0, 0.9)])
def test_one_step_is_within_two_thousandths_of_the_closed_form(z, q):
    """From delta 1e-10 to 1e-3 and down to epsilon = 0.001: never below, at most 0.2 % above."""
    high = individual.losses([[1]], [z], sample_rate=q, delta=DELTAS)[:, 0]
    for delta, over in zip(DELTAS, high, strict=True):
        truth = root(lambda e: above(e, z, q), delta)
        assert over >= truth * (1 - 1e-9)
        if truth >= 1e-3:
            assert over <= truth * 1.002


@pytest.mark.slow
def test_lower_bounds_of_one_step():
    """Below the closed form, and within 1 % of it; the upper one too as far down as delta = 1e-18."""
    deltas = (1e-18, 1e-10, 1e-5)
    low, high = individual.losses([[1]], [3.0], sample_rate=0.1, delta=deltas, bounds=True)
    for delta, under, over in zip(deltas, low[:, 0], high[:, 0], strict=True):
        truth = root(lambda e: above(e, 3.0, 0.1), delta)
        assert truth * 0.99 <= under <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= over <= truth * 1.002


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second", "q"), [(0.5, 0.5, 0.03), (1.5, 2.55, 0.004), (3.0, 20.0, 0.8)])
def test_two_steps_are_within_two_thousandths_of_the_integral(first, second, q):
    """Constant and mixed norms, both directions, delta 1e-10 to 1e-3."""
    noise, counts = ([first], [[2]]) if first == second else ([first, second], [[1, 1]])
    deltas = (1e-10, 1e-5)
    high = individual.losses(counts, noise, sample_rate=q, delta=deltas)[:, 0]
    for delta, over in zip(deltas, high, strict=True):
        truth = root(lambda e: two(e, first, second, q), delta)
        assert over >= truth * (1 - 1e-6)
        if truth >= 1e-3:
            assert over <= truth * 1.002


@pytest.mark.slow
@pytest.mark.parametrize(
    ("z", "q", "delta"), [(0.02, 0.5, 0.1), (0.025, 0.5, 1e-4), (0.03, 0.5, 1e-8), (0.04, 0.5, 1e-5)]
)
def test_very_little_noise_is_not_below_the_closed_form(z, q, delta):
    """Where the masses of the law without the person underflow, those with the person count all the same."""
    mpmath.mp.dps = 60
    bound = individual.losses([[1]], [z], sample_rate=q, delta=delta)[0]
    if bound < np.inf:
        excess = mpmath.expm1(mpmath.mpf(float(bound))) + q
        x = mpmath.mpf(z) ** 2 * mpmath.log(excess / q) + mpmath.mpf(1) / 2
        truth = q * mpmath.ncdf((1 - x) / z) - excess * mpmath.ncdf(-x / z)
        assert 0.9 * delta <= truth <= delta


@pytest.mark.slow
def test_small_deltas_at_given_epsilons():
    """Delta of one step at an epsilon is right to 1 % as far down as 1e-20; far beyond it is small and never zero."""
    epsilons = [0.5, 2.0, 4.0, 6.0, 8.0]
    found = individual.losses([[1]], [1.0], sample_rate=0.01, epsilon=epsilons)[:, 0]
    for epsilon, delta in zip(epsilons, found, strict=True):
        truth = float(above(epsilon, 1.0, 0.01))
        assert truth <= delta
        assert delta <= truth * 1.01 + 1e-21
    assert 0 < individual.losses([[1]], [1.0], sample_rate=0.01, epsilon=1e4)[0] < 1e-20


@pytest.mark.parametrize("tilt", [0.0, 4.0, 45.0])
@pytest.mark.parametrize("lower", [False, True])
def test_tilted_masses_give_the_masses_back(tilt, lower):
    """exp(scale - tilt loss) times a tilted mass is the mass, up to the error that is charged; in forty digits."""
    mpmath.mp.dps = 40
    for given in laws.law(mechanisms.SampledGaussian(1.3, 1.0, 0.02), lower=lower):
        tilted = laws.tilted(given, tilt, lower=lower)
        masses = dict(zip(given.losses.tolist(), given.masses.tolist(), strict=True))
        assert abs(sum(map(mpmath.mpf, tilted.masses.tolist())) - 1) < 1e-13
        for loss, mass in zip(tilted.losses.tolist(), tilted.masses.tolist(), strict=True):
            back = mpmath.exp(mpmath.mpf(tilted.scale) - mpmath.mpf(tilt) * mpmath.mpf(loss)) * mpmath.mpf(mass)
            if mass > 1e-280:
                assert abs(back / mpmath.mpf(masses[loss]) - 1) <= tilted.error - given.error + 1e-30
            elif not lower:
                assert back >= masses[loss]


@pytest.mark.parametrize("tilt", [0.0, 8.0])
@pytest.mark.parametrize("width", [0.5, 6.0])
def test_the_error_of_the_characteristic_function_is_bounded(tilt, width):
    """At low and at high frequencies the computed value is off by at most the error that is charged, and no range of
    frequencies holds a value above the bound of its range; in thirty digits."""
    mpmath.mp.dps = 30
    law = laws.tilted(laws.law(mechanisms.SampledGaussian(0.9, 1.0, 0.05))[0], tilt)
    columns = _groups.columns(law, width, 3000)
    ranges = _groups.decay(law, width, 2048)
    edges = _groups.frequency_counts(2048)
    for k in (1, 2, 7, 30, 31, 200, 1024, 1500, 2999, 3000):
        angle = mpmath.mpf(np.pi / width) * k
        terms = zip(law.losses.tolist(), law.masses.tolist(), strict=True)
        true = sum(mpmath.mpf(m) * mpmath.expj(angle * (mpmath.mpf(x) - mpmath.mpf(law.mean))) for x, m in terms)
        got = mpmath.exp(mpmath.mpc(columns.real[k - 1], columns.imaginary[k - 1]))
        assert abs(got - true) <= columns.error[k - 1] + 4e-16 * abs(true)
        assert columns.error[k - 1] < 1e-9
        for least, low, high in zip(ranges, edges[:-1], edges[1:], strict=True):
            if low < k <= high:
                assert abs(true) <= mpmath.exp(-mpmath.mpf(least))


def certified(window, count, u):
    """For one step: the truth for its law, its series alone, and its certified delta, at centre + u."""
    law = laws.law(mechanisms.SampledGaussian(1.0, 1.0, 0.2))
    direction = _groups.directions([mechanisms.SampledGaussian(1.0, 1.0, 0.2)], False, window.tilt)[0]
    cutoffs = _groups.cutoff_errors(np.ones((1, 1)), (direction, direction), window, np)
    cutoff = cutoffs[:, _groups.frequency_counts(window.cap).index(count)]
    group = _groups._group(direction, np.ones((1, 1)), window, count, cutoff, 0.0, np.ones(1), False, np)
    everybody = np.array([0])
    points = np.array([u])
    losses, masses = law[0].losses, law[0].masses
    truth = float(np.sum(masses * np.maximum(-np.expm1(group.centre[0] + u - losses), 0.0)))
    factor = float(np.exp(group.height[0] - group.window.tilt * u))
    return (
        truth,
        factor * float(_bounds._series_at(group, points, everybody, np)[0]),
        float(_bounds._value(group, points, everybody, False, np)[0]),
    )


@pytest.mark.parametrize("tilt", [0.0, 2.0])
def test_windows_and_frequencies_too_few_are_paid_for(tilt):
    """With far too small a window, or too few frequencies, the series alone is below the truth at some epsilons; what
    is charged lifts it above the truth at every one."""
    for window, count in (
        (_groups.Window(tilt, 0.9, 8192), 4096),
        (_groups.Window(tilt, 12.0, 8192), 16),
    ):
        short = 0
        for u in np.linspace(-0.8, 0.8, 33) * min(window.half_width, 3.0):
            truth, alone, paid = certified(window, count, float(u))
            assert paid >= truth * (1 - 1e-12)
            short += alone < truth * (1 - 1e-3)
        assert short > 0

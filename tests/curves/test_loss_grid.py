"""Laws on an even grid of losses: they dominate, compose to upper bounds, and compare with every error counted."""

import math
import random
from fractions import Fraction
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import integrate
from scipy.stats import norm

from almoner import mechanisms
from almoner.curves import _loss_grid, gaussian
from almoner.curves._grid import laws as _laws
from almoner.curves._loss_grid import Grid, Law, Untilted
from almoner.errors import Unsupported


def curve(law, step, e):
    """The privacy curve of a law, by its definition."""
    losses = step * (law.first + np.arange(len(law.weights)))
    above = losses > e
    return float(law.weights[above] @ -np.expm1(e - losses[above])) * (1 + law.error) + law.leak


def sampled(q, z, e, side):
    """The curve of the Poisson-sampled Gaussian by quadrature."""

    def value(x):
        p, r = norm.pdf(x, 0, z), norm.pdf(x, 1, z)
        mixed = (1 - q) * p + q * r
        return max(mixed - math.exp(e) * p, 0.0) if side == 0 else max(p - math.exp(e) * mixed, 0.0)

    points = [-9 * z, 0.5, 1 + 9 * z]
    if side == 0 and math.exp(e) > 1 - q:
        points.append(z * z * math.log((math.exp(e) - 1 + q) / q) + 0.5)
    if side == 1 and math.exp(-e) > 1 - q:
        points.append(z * z * math.log((math.exp(-e) - 1 + q) / q) + 0.5)
    points = sorted(min(max(point, -9 * z), 1 + 9 * z) for point in points)
    return sum(
        integrate.quad(value, low, high, epsabs=1e-16, epsrel=1e-10, limit=400)[0]
        for low, high in pairwise(points)
        if high > low
    )


@pytest.mark.slow
@pytest.mark.parametrize(("q", "z"), [(0.01, 0.6), (0.001, 1.0), (0.1, 2.0), (0.5, 5.0)])
def test_laws_of_sampled_gaussians_dominate_in_both_directions(q, z):
    """At many epsilons of both signs: at or above the round's curve, and at or below it one step of the grid before."""
    step = 0.05 * q * math.sqrt(math.expm1(1 / z**2))
    for side, law in enumerate(_loss_grid.laws(mechanisms.SampledGaussian(z, 1.0, q), step, 1e-15)):
        for e in np.linspace(-2 * q, 8 * q, 17):
            truth = sampled(q, z, float(e), side)
            bound = curve(law, step, float(e))
            assert bound >= truth - 1e-13
            assert bound <= 1.001 * sampled(q, z, float(e) - step, side) + 1e-13


def test_laws_of_other_rounds_dominate():
    """Gaussian, Laplace, pure and approximate rounds: at or above the closed form at every epsilon tried."""
    step = 1e-3
    for e in np.linspace(-0.5, 0.5, 21).tolist():
        for side in (0, 1):
            law = _loss_grid.laws(mechanisms.Gaussian(5.0), step, 1e-18)[side]
            truth = norm.cdf(-e * 5 + 0.1) - math.exp(e) * norm.cdf(-e * 5 - 0.1)
            assert truth <= curve(law, step, e) <= truth + 1e-5
            law = _loss_grid.laws(mechanisms.Laplace(5.0), step, 1e-18)[side]
            truth = 1 - math.exp((e - 0.2) / 2) if abs(e) < 0.2 else max(-math.expm1(e), 0.0)
            assert truth <= curve(law, step, e) + 1e-16 <= truth + 1e-5
            law = _loss_grid.laws(mechanisms.Approximate(0.2, 1e-3), step, 1e-18)[side]
            truth = 1e-3 + max(math.exp(0.2) - math.exp(e), 0.0) / (1 + math.exp(0.2))
            truth = max(truth, -math.expm1(e))
            assert truth <= curve(law, step, e) + 1e-16 <= truth + 2e-3


def test_compositions_are_upper_bounds_and_close():
    """A hundred Gaussian rounds against the closed form: never below, at most a thousandth above."""
    grid = Grid(1e-3, -(2**12), 2**13)
    grid.add("round", _loss_grid.laws(mechanisms.Gaussian(25.0), 1e-3, 1e-22))
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        truth = gaussian.Gaussian(0.4).delta(epsilon=epsilon)
        assert truth <= grid.delta({"round": 100}, epsilon) <= truth * 1.002 + 1e-12


def test_compositions_of_randomised_response_are_exact():
    """Losses on the grid: the binomial sum in fractions, to eleven digits."""
    step, count, epsilon = 0.125, 40, 1.0
    grid = Grid(step, -(2**9), 2**10)
    grid.add("round", _loss_grid.laws(mechanisms.Pure(0.125), step, 1e-22))
    p = 1 / (1 + math.exp(-step))
    losses = [(2 * k - count) * step for k in range(count + 1)]
    masses = [math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)]
    truth = sum(m * -math.expm1(epsilon - loss) for m, loss in zip(masses, losses, strict=True) if loss > epsilon)
    assert truth <= grid.delta({"round": count}, epsilon) <= truth * (1 + 1e-9) + 1e-11


def composed_exactly(bundle):
    """The masses of a composition by place, in the precision that is set."""
    total = {0: mpmath.mpf(1)}
    for law, count in bundle:
        for _ in range(count):
            following = {}
            for place, mass in total.items():
                for index, weight in enumerate(law.weights.tolist()):
                    if weight:
                        at = place + law.first + index
                        following[at] = following.get(at, mpmath.mpf(0)) + mass * mpmath.mpf(weight)
            total = following
    return total


def exact_spare(less, more, context):
    """The least of the difference of two curves over all e, in 40 digits; bundles as lists of (law, count)."""
    with mpmath.workdps(40):
        left, right = composed_exactly([*less, *context]), composed_exactly([*more, *context])
        places = sorted({*left, *right})
        step = mpmath.mpf(STEP)

        def value(bundle, place):
            return sum(mass * (1 - mpmath.e ** ((place - at) * step)) for at, mass in bundle.items() if at > place)

        least = [value(right, place) - value(left, place) for place in places]
        return float(min(*least, sum(right.values()) - sum(left.values()), mpmath.mpf(0)))


STEP = 0.05


def drawn(chance):
    """A random law on the grid whose weights add up to one."""
    first = -chance.randrange(1, 4)
    weights = np.array([chance.random() ** 3 for _ in range(chance.randrange(2, 7))])
    return Law(first, weights / weights.sum(), 0.0, 0.0)


@pytest.mark.slow
def test_comparisons_never_say_more_than_forty_digits_do():
    """Five hundred random bundles: the bound is at most the true least difference, and within 1e-11 of it."""
    chance = random.Random(7)
    for _ in range(500):
        laws = {name: drawn(chance) for name in "abc"}
        grid = Grid(STEP, -128, 256)
        for name, law in laws.items():
            grid.add(name, (law, law))
        counts = {name: chance.randrange(1, 4) for name in "abc"}
        less, more, context = ({name: counts[name]} for name in "abc")
        truth = exact_spare(*([(laws[name], counts[name])] for name in "abc"))
        found = grid._spare(less, more, context, 0)
        assert found <= truth
        assert found >= truth - 1e-11
        if truth < -1e-9:
            assert not grid.covers(less, more, context, -truth * 0.999)
        assert grid.covers(less, more, context, 1e-11 - truth)


def exact_tilted_spare(less, more, context, tilt, per, parts):
    """The least difference of two curves at many e, in units of slack, and that of their moments; in 40 digits."""
    with mpmath.workdps(40):
        left, right = (composed_exactly([*each, *context]) for each in (less, more))
        step, t, per = mpmath.mpf(STEP), mpmath.mpf(tilt), mpmath.mpf(per)
        scales = [mpmath.log(sum(m * mpmath.exp(t * at * step) for at, m in each.items())) for each in (left, right)]

        def value(masses, e):
            return sum(mass * (1 - mpmath.exp(e - at * step)) for at, mass in masses.items() if at * step > e)

        places = sorted({*left, *right})
        tried = [step * part / parts for part in range(parts * places[0] - 9 * parts, parts * places[-1] + parts)]
        gaps = [2 * (value(right, e) - value(left, e)) / (1 + mpmath.exp(scales[1] - t * e) / per) for e in tried]
        return float(min(0, *gaps)), float(2 * per * (scales[1] - scales[0]))


@pytest.mark.parametrize("seed", range(6))
def test_comparisons_under_a_tilt_never_say_more_than_forty_digits_do(seed):
    """Random laws, tilts and units: at most the truth at every quarter of a step, and near it at whole ones."""
    chance = random.Random(seed)
    for _ in range(4):
        laws, tilt, per = {name: drawn(chance) for name in "abc"}, chance.uniform(2, 20), 10 ** chance.uniform(-9, 0)
        grid = Grid(STEP, -128, 256, under=(tilt, tilt / 2))
        grid.per = per * math.exp(tilt * STEP), 1.0
        for name, law in laws.items():
            grid.add(name, (law, law))
        counts = {name: chance.randrange(1, 4) for name in "abc"}
        less, more, context = ({name: counts[name]} for name in "abc")
        bundles = [[(laws[name], counts[name])] for name in "abc"]
        curve, moment = exact_tilted_spare(*bundles, tilt, per, 4)
        found = grid._spare(less, more, context, 0)
        assert found <= min(curve, moment) + 1e-12 * abs(moment)
        near, moment = exact_tilted_spare(*bundles, tilt, grid.per[0], 1)
        assert found >= min(near, moment) * (1 + 1e-4) - 1e-4 * grid.per[0]
        assert not grid.covers(less, more, context, -0.999 * min(curve, moment, -1e-300))
        either = Untilted(grid)
        for name, law in laws.items():
            either.add(name, (law, law))
        without = min(2 * exact_spare(*bundles), exact_tilted_spare(*bundles, tilt, grid.per[0], 4)[1])
        best = max(min(curve, moment), without)
        assert found <= either._spare(less, more, context, 0) <= best + 1e-12 * abs(moment)
        assert either._spare(less, more, context, 0) >= without - 1e-11 - 1e-9 * abs(without)
        assert not either.covers(less, more, context, -0.999 * min(best, -1e-300))


def test_a_comparison_under_a_tilt_refuses_a_moment_that_grows():
    """A curve that is nowhere above by more than the slack, and a mean of exp(t loss) that is: no, both ways."""
    tilt, slack = 8.0, 1e-3
    more = Law(-1, np.array([0.5, 0.0, 0.5]), 0.0, 0.0)
    weights = 1e-4 * np.exp(-tilt * STEP * np.arange(1, 41))
    less = Law(-1, np.array([0.5 - weights.sum(), 0.0, 0.5, *weights[1:]]), 0.0, 0.0)
    curve, moment = exact_tilted_spare([(less, 1)], [(more, 1)], [(more, 2)], tilt, 1.0, 4)
    grid, plain = Grid(STEP, -256, 512, under=(tilt, tilt)), Grid(STEP, -256, 512)
    either = Untilted(grid)
    for name, law in (("less", less), ("more", more)):
        for each in (grid, plain, either):
            each.add(name, (law, law))
    assert -slack < curve < 0
    assert moment < -slack
    assert not grid.covers({"less": 1}, {"more": 1}, {"more": 2}, slack)
    assert plain.covers({"less": 1}, {"more": 1}, {"more": 2}, slack / 2)  # wrong beside purchases under a tilt
    assert not either.covers({"less": 1}, {"more": 1}, {"more": 2}, slack)


def test_a_delta_under_a_tilt_is_exact_where_it_is_tiny():
    """Three hundred responses against the binomial sum: to ten digits of 1e-20, where no tilt shows nothing."""
    each, count, epsilon = 0.05, 300, 8.5
    p = 1 / (1 + math.exp(-each))
    truth = math.fsum(
        math.comb(count, k) * p**k * (1 - p) ** (count - k) * -math.expm1(min(epsilon - (2 * k - count) * each, 0.0))
        for k in range(count + 1)
    )
    grid = Grid(each / 8, -2048, 4096, under=(11.0, 11.0))
    grid.add("round", _loss_grid.laws(mechanisms.Pure(each), each / 8, 1e-40, far=True))
    assert truth < 1e-16
    assert truth <= grid.delta({"round": count}, epsilon) <= truth * (1 + 1e-6)


def test_leaks_and_losses_outside_the_window_count_against_a_comparison():
    """A leak of what is bought, and mass that the window does not hold, make the bound fail."""
    one = Law(-1, np.array([0.5, 0.0, 0.5]), 0.0, 0.0)
    leaking = Law(-1, np.array([0.5, 0.0, 0.5]), 1e-6, 0.0)
    grid = Grid(STEP, -64, 128)
    grid.add("one", (one, one))
    grid.add("leaking", (leaking, leaking))
    assert grid.covers({"one": 1}, {"one": 1}, {"one": 3}, 1e-9)
    assert not grid.covers({"leaking": 1}, {"one": 1}, {"one": 3}, 1e-7)
    assert not grid.covers({"one": 1}, {"one": 1}, {"one": 20_000}, 1e-9)


def test_the_curve_of_a_law_only_grows_when_it_is_put_on_a_coarser_grid():
    """The same round on grids of 1, 2 and 4 steps: each coarser curve is at or above the finer one."""
    round_ = mechanisms.SampledGaussian(1.0, 1.0, 0.05)
    for side in (0, 1):
        for e in np.linspace(-0.1, 0.5, 13).tolist():
            values = [curve(_loss_grid.laws(round_, h, 1e-15)[side], h, e) for h in (0.001, 0.002, 0.004)]
            assert values[0] <= values[1] * (1 + 1e-9) <= values[2] * (1 + 2e-9)


def test_change_is_the_randomised_response_of_one_step():
    """Its masses follow from epsilon, in fractions of exp."""
    law, mirror = _loss_grid.change(0.25)
    assert law is mirror
    assert law.first == -1
    assert float(Fraction(law.weights[2]) / Fraction(law.weights[0])) == pytest.approx(math.exp(0.25), rel=1e-14)


def test_rounds_without_a_distribution_are_refused():
    """A known Rényi curve alone is not enough; nor is noise so small that losses count as infinite."""
    with pytest.raises(Unsupported):
        _loss_grid.laws(mechanisms.Zcdp(0.1), 1e-3, 1e-20)
    with pytest.raises(Unsupported):
        _loss_grid.laws(mechanisms.SampledGaussian(0.001, 1.0, 0.1), 1e-3, 1e-20)


@pytest.mark.parametrize(("q", "z"), [(1e-4, 0.5), (0.001, 0.8), (0.01, 2.0), (0.3, 20.0), (1.0, 5.0)])
def test_losses_are_within_their_own_error_bounds(q, z):
    """Against 40 digits: each loss is within the bound kept for it, far below the general one at small rates."""
    both = _laws.law(mechanisms.SampledGaussian(z, 1.0, q), fine=True, points=True)
    reach, width = _laws.REACH * z, min(_laws.CELL_WIDTH * z, z * z / 2) / _laws.FINE_PARTS
    edges = _laws.known_pairs.irregular(-reach, 1 + reach, int(np.ceil((1 + 2 * reach) / width)))
    for sign, one in zip((1, -1), both, strict=True):
        assert len(one.losses) == len(edges)
        bounds = one.loss_errors
        for place in range(0, len(edges), 37):
            with mpmath.workdps(40):
                ratio = (2 * mpmath.mpf(edges[place]) - 1) / (2 * mpmath.mpf(z) ** 2)
                exact = sign * mpmath.log(1 - mpmath.mpf(q) + mpmath.mpf(q) * mpmath.exp(ratio))
                assert abs(mpmath.mpf(one.losses[place]) - exact) <= bounds[place]
        assert np.median(bounds) < (0.1 if q < 0.1 else 1) * one.error


def test_a_composition_of_sampled_rounds_keeps_the_mass_of_the_other_law():
    """A law that loses mass there would be paid for in every round: at most 1e-14 is lost."""
    for law in _loss_grid.laws(mechanisms.SampledGaussian(0.8, 0.3, 0.001), 1e-4, 1e-15):
        losses = 1e-4 * (law.first + np.arange(len(law.weights)))
        assert abs(math.fsum((law.weights * np.exp(-losses)).tolist()) - 1) < 1e-14


def test_change_that_runs_rarely_is_composed_exactly():
    """Against the binomial sum over how often it runs: to eleven digits, and never below."""
    step, share, count, epsilon = 0.125, 0.25, 30, 1.0
    grid = Grid(step, -(2**9), 2**10)
    grid.add("change", _loss_grid.change(step, share))
    p = 1 / (1 + math.exp(-step))
    truth = 0.0
    for runs in range(count + 1):
        often = math.comb(count, runs) * share**runs * (1 - share) ** (count - runs)
        for k in range(runs + 1):
            loss = (2 * k - runs) * step
            if loss > epsilon:
                truth += often * math.comb(runs, k) * p**k * (1 - p) ** (runs - k) * -math.expm1(epsilon - loss)
    assert truth <= grid.delta({"change": count}, epsilon) <= truth * (1 + 1e-9) + 1e-11


def test_a_huge_loss_counts_as_infinite_and_not_as_a_huge_array():
    """At most a few million places on either side of zero, and the curve is above the exact one."""
    remove, add = _loss_grid.laws(mechanisms.Pure(450.0), 1e-7, 1e-12)
    assert len(remove.weights) <= 2 * _loss_grid.MOST_PLACES + 2
    assert remove.leak > 0.999
    assert add.leak > 0.999


def test_without_long_numbers_the_error_terms_grow_and_the_bound_stays_above(monkeypatch):
    """Where a machine has 64-bit floats alone: the delta of two hundred responses, against exact binomial sums."""
    each, count, epsilon = 0.05, 200, 2.0
    p = 1 / (1 + math.exp(-each))
    masses = [math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(count + 1)]
    truth = math.fsum(-mass * math.expm1(min(epsilon - (2 * k - count) * each, 0.0)) for k, mass in enumerate(masses))

    def delta():
        grid = Grid(each / 8, -2048, 4096)
        grid.add("round", _loss_grid.laws(mechanisms.Pure(each), each / 8, 1e-20))
        return grid.delta({"round": count}, epsilon)

    long = delta()
    monkeypatch.setattr(_loss_grid, "_LONG", np.float64)
    short = delta()
    assert truth <= long <= short <= truth + 1e-8
    assert short > long


@pytest.mark.parametrize(("size", "live"), [(2**13, 5), (2**16, 80), (2**18, 300)])
def test_first_coefficients_are_within_their_error_bound(size, live):
    """Of a law with losses in clusters and alone, also outside the window, against sums of 40 digits."""
    chance = np.random.default_rng(live)
    places = np.unique(np.concatenate([chance.integers(-40, 200, 150), chance.integers(-size, 2 * size, 30)]))
    weights = chance.random(len(places)) ** 4
    weights /= weights.sum()
    whole = np.zeros(places[-1] - places[0] + 1)
    whole[places - places[0]] = weights
    seen = _loss_grid._Seen(_loss_grid.Law(int(places[0]), whole, 0.0, 0.0), 1e-3, size, np.ones(1))
    found, bound = seen.spectrum(live), seen.fine
    for k in sorted({0, 1, live // 3, live - 1}):
        with mpmath.workdps(40):
            turns = [mpmath.expjpi(-2 * mpmath.mpf((int(place) * k) % size) / size) for place in places]
            truth = mpmath.fsum(mpmath.mpf(w) * turn for w, turn in zip(weights.tolist(), turns, strict=True))
            real, imaginary = (
                mpmath.mpf(repr(part)[len("np.longdouble('") : -2]) for part in (found[k].real, found[k].imag)
            )
            assert abs(mpmath.mpc(real, imaginary) - truth) <= bound


def test_rough_looks_agree_with_what_is_certified():
    """Deltas of searches are within a millionth of the certified bounds, and gaps within a thousandth."""
    grid = Grid(1e-3, -(2**13), 2**14)
    grid.add("round", _loss_grid.laws(mechanisms.SampledGaussian(1.0, 1.0, 0.05), 1e-3, 1e-20))
    grid.add("change", _loss_grid.change(1e-3))
    for count in (20, 200):
        bound = grid.delta({"round": count}, 1.0)
        assert bound * (1 - 1e-6) - 1e-13 <= grid.rough_delta({"round": count}, 1.0) <= bound
        bundles = {"round": 1}, {"change": 6000}, {"round": count}
        gaps, doubts = zip(*(grid._gap(*bundles, side) for side in (0, 1)), strict=True)
        assert grid.rough_gaps(*bundles).min() == pytest.approx(min(gaps), rel=1e-3, abs=1e-10)
        assert 0 < max(doubts) == grid.doubt(*bundles) < 1e-6

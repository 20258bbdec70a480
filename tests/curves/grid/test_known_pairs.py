"""Mechanisms with a known pair are charged at least their exact curve, in both orders, and wrong variants are not."""

from itertools import product
from math import inf

import numpy as np
import pytest
from mpmath import mp, mpf

from almoner import mechanisms as m
from almoner.curves import gaussian, renyi
from almoner.curves._grid import discrete, known_pairs
from almoner.curves.losses import delta_at, deltas, epsilons
from almoner.errors import Unsupported

mp.dps = 40
EPSILONS = (-2.0, -0.7, -0.1, 0.0, 0.05, 0.3, 1.0, 2.5, 4.0)


def charged(one, e):
    """The curve that is charged in one order, with its errors."""
    losses, masses = one.losses + one.error, one.masses * (1 + one.error)
    return one.leak + float(np.sum(masses * -np.expm1(np.minimum(e - losses, 0.0))))


def assert_charged(mechanism, exact, *, loose):
    """At every epsilon and in both orders the charge is not below the exact curve, nor far above it."""
    for mirrored, one in enumerate(discrete.directions(mechanism)):
        for e in EPSILONS:
            truth = exact(mpf(e)) if not mirrored else 1 - mp.exp(e) + mp.exp(e) * exact(mpf(-e))
            assert truth - mpf(10) ** -15 <= charged(one, e) <= truth + loose


def undercharged(mechanism, exact):
    """True if the charge is below the exact curve somewhere: what the comparison says of a wrong variant."""
    one = discrete.directions(mechanism)[0]
    return any(charged(one, e) < exact(mpf(e)) - mpf(10) ** -12 for e in EPSILONS)


def upper(x):
    """The mass of N(0, 1) above x."""
    return mp.erfc(x / mp.sqrt(2)) / 2


def line(p, q):
    """The exact curve of two mixtures of (chance, mean) on the line, whose ratio increases."""

    def exact(e):
        def above(x):
            terms = [[c * mp.exp(a * x - mpf(a) ** 2 / 2) for c, a in law] for law in (p, q)]
            return mp.fsum(terms[0]) > mp.exp(e) * mp.fsum(terms[1])

        low, high = mpf(-60), mpf(60)
        for _ in range(130):
            middle = (low + high) / 2
            low, high = (low, middle) if above(middle) else (middle, high)
        one, other = (mp.fsum(c * upper(high - a) for c, a in law) for law in (p, q))
        return max(mpf(0), one - mp.exp(e) * other)

    return exact


def binomial(k, q):
    """Chances of 0 to k."""
    return [mp.binomial(k, j) * mpf(q) ** j * (1 - mpf(q)) ** (k - j) for j in range(k + 1)]


def test_mixtures_of_gaussians():
    """Three sensitivities at two levels of noise against the exact curve; one of them left out is caught."""
    for sigma in (0.8, 5.0):
        mechanism = m.MixtureOfGaussians(sigma, (2.0, 0.0, 1.0), (0.2, 0.2, 0.6))
        exact = line([(0.2, 2 / mpf(sigma)), (0.2, 0), (0.6, 1 / mpf(sigma))], [(1, 0)])
        assert_charged(mechanism, exact, loose=1e-5)
        assert undercharged(m.MixtureOfGaussians(sigma, (0.0, 1.0), (0.4, 0.6)), exact)
    (found,) = epsilons(np.ones((1, 1), int), [m.MixtureOfGaussians(1.0, (0.0, 1.0, 2.0), (0.2, 0.6, 0.2))], delta=1e-6)
    assert found == pytest.approx(8.733, abs=1e-3)


@pytest.mark.parametrize(("sigma", "rate", "records"), [(1.0, 0.1, 3), (3.0, 0.01, 20), (2.0, 1.0, 2)])
def test_records_sampled_each_by_a_coin(sigma, rate, records):
    """The binomial mixture; as if one record were sampled, or one less, is caught."""
    exact = line([(c, j / mpf(sigma)) for j, c in enumerate(binomial(records, rate))], [(1, 0)])
    assert_charged(m.SampledRecords(sigma, 1.0, rate, records), exact, loose=1e-5)
    assert undercharged(m.SampledRecords(sigma, 1.0, rate, 1), exact)
    assert undercharged(m.SampledRecords(sigma, 1.0, rate, records - 1), exact)


@pytest.mark.parametrize(("records", "rate"), [(10**7, 1e-6), (1_476_330_004, 5.5156e-9), (3 * 10**9, 1e-7)])
def test_many_records_come_up_as_often_as_is_charged(records, rate):
    """Chances that so many or more come up, of millions, are not below sums of 40 digits, nor far above."""
    ((_, (weights, moves), _),) = known_pairs._parts(m.SampledRecords(1.0, 1.0, rate, records))
    charged = dict(zip(moves.tolist(), np.cumsum(weights).tolist(), strict=True))
    odds, chances = mpf(rate) / (1 - mpf(rate)), [(1 - mpf(rate)) ** records]
    for count in range(1, 1000):
        chances.append(chances[-1] * odds * (records - count + 1) / count)
    for least in (1, 2, 5, 8, 10, 29, 53, 300, 340, 420):
        exact = mp.fsum(chances[least:])
        found = max(chance for move, chance in charged.items() if least <= move < least + 0.5)
        assert exact < 1e-60 or exact * (1 - mpf(10) ** -30) <= found <= exact * (1 + mpf(2) / 10**7)


def test_vectors_in_the_plane_are_dominated():
    """Records at right angles: quadrature over the plane is below the line's curve in both orders."""
    rate, axis = 0.3, np.linspace(-9, 11, 1201)
    x, y = np.meshgrid(axis, axis)
    cell = (axis[1] - axis[0]) ** 2 / (2 * np.pi)

    def density(a, b):
        return np.exp(-((x - a) ** 2 + (y - b) ** 2) / 2) * cell

    coins = ((1 - rate) ** 2, rate * (1 - rate), rate**2)
    q = density(0, 0)
    p = coins[0] * q + coins[1] * (density(1, 0) + density(0, 1)) + coins[2] * density(1, 1)
    one, other = (1 - rate) * q + rate * density(1, 0), (1 - rate) * q + rate * density(0, 1)
    for mechanism, first, second in (
        (m.SampledRecords(1.0, 1.0, rate, 2), p, q),
        (m.ReplacedGaussian(1.0, 1.0, rate), one, other),
    ):
        for law, (a, b) in zip(discrete.directions(mechanism), ((first, second), (second, first)), strict=True):
            for e in EPSILONS:
                assert np.maximum(a - np.exp(e) * b, 0).sum() <= charged(law, e) + 1e-9


def test_replaced_records():
    """Both laws are mixtures; the pair of adding and removing, or half of the move, is caught."""
    for sigma, rate in ((1.0, 0.1), (0.6, 0.5), (4.0, 1.0)):
        move = 1 / mpf(sigma)
        exact = line([(1 - mpf(rate), 0), (rate, move)], [(1 - mpf(rate), 0), (rate, -move)])
        assert_charged(m.ReplacedGaussian(sigma, 1.0, rate), exact, loose=1e-5)
        assert undercharged(m.SampledRecords(sigma, 1.0, rate, 1), exact)
        assert undercharged(m.ReplacedGaussian(sigma, 0.5, rate), exact)
    found = [epsilons(np.full((1, 1), k), [m.ReplacedGaussian(1.0, 1.0, 0.1)], delta=1e-5)[0] for k in (1, 20, 100)]
    assert found == pytest.approx([1.789, 4.590, 10.516], abs=2e-3)


@pytest.mark.parametrize(("rate", "size", "people"), [(0.4, 1, 3), (0.7, 2, 4), (0.3, 3, 3), (0.5, 4, 3)])
def test_batches_that_are_cut(rate, size, people):
    """The law of the sum by enumeration, the person at 1 and others at -1, is below the charge; one clip is caught."""
    mechanism = m.TruncatedGaussian(1.0, 1.0, rate, size, people)
    for others in (people - 1, people):
        sizes = binomial(others, rate)
        without = [(chance, -min(s, size)) for s, chance in enumerate(sizes)]
        within = [((1 - mpf(rate)) * chance, at) for chance, at in without]
        for s, chance in enumerate(sizes):
            kept = mpf(1) if s < size else mpf(size) / (s + 1)
            within += [(rate * chance * kept, 1 - min(s, size - 1)), (rate * chance * (1 - kept), -min(s, size))]
        exact = line(within, without)  # half-lines are at most the best events
        for mirrored, one in enumerate(discrete.directions(mechanism)):
            for e in EPSILONS:
                truth = exact(mpf(e)) if not mirrored else 1 - mp.exp(e) + mp.exp(e) * exact(mpf(-e))
                assert truth <= charged(one, e) + 1e-14
        if size == 1:
            assert undercharged(m.SampledRecords(1.0, 1.0, rate, 1), exact)


def test_probabilities_of_a_full_batch():
    """Against 40 digits, and rounded the right way, for small and for many people."""
    for rate, size, people in ((0.01, 16, 1000), (0.16, 16, 1000), (0.001, 1100, 10**6), (0.5, 3, 3), (1e-4, 40, 1000)):
        fewer, more, taken = known_pairs._met(rate, size, people)
        q = mpf(rate)

        def tail(n, least, q=q):
            return mp.betainc(least, n - least + 1, 0, q, regularized=True) if least <= n else mpf(0)

        assert fewer <= tail(people - 1, size)
        assert tail(people, size) <= more <= 1.000001 * tail(people, size)
        if tail(people - 1, size) > 0:
            true = mpf(size) / people * tail(people, size + 1) / tail(people - 1, size)
            assert true <= taken <= 1.000001 * true


def test_the_published_plans():
    """Two plans with cut batches: below what Google's accountant says, which takes two clips for replaced people."""
    for rate, rounds, theirs in ((0.01, 128, 5.10), (0.16, 8, 6.30)):
        mechanism = m.TruncatedGaussian(1.0, 1.0, rate, 16, 1000)
        (found,) = epsilons(np.full((1, 1), rounds), [mechanism], delta=1e-6)
        assert 0.97 * theirs < found < theirs


def lattice(sigma, step):
    """The exact curve of discrete noise against itself, moved."""
    reach = int(40 * sigma) + step + 2
    weights = {k: mp.exp(-(mpf(k) ** 2) / (2 * mpf(sigma) ** 2)) for k in range(-reach - step, reach + step + 1)}
    total = mp.fsum(weights.values())

    def exact(e):
        return (
            mp.fsum(max(mpf(0), weights[k - step] - mp.exp(e) * weights[k]) for k in range(-reach, reach + 1)) / total
        )

    return exact


@pytest.mark.parametrize(("sigma", "step"), [(0.5, 1), (1.0, 1), (3.3, 2), (6.0, 5)])
def test_discrete_noise(sigma, step):
    """Sums over the lattice with 40 digits; a smaller step, or that of continuous noise a little larger, is caught."""
    mechanism = m.DiscreteGaussian(sigma, step + 0.5, 1)
    assert_charged(mechanism, lattice(sigma, step), loose=1e-11)
    assert undercharged(m.DiscreteGaussian(sigma * 1.01, step, 1), lattice(sigma, step))
    if step > 1:
        assert undercharged(m.DiscreteGaussian(sigma, step - 1, 1), lattice(sigma, step))


def test_discrete_noise_in_several_numbers():
    """Below sqrt(2) one number moves by one; above, losses are not known, but zCDP holds and is larger."""
    several = m.DiscreteGaussian(2.0, 1.4)
    assert (
        discrete.directions(several)[0].losses.tolist()
        == discrete.directions(m.DiscreteGaussian(2.0))[0].losses.tolist()
    )
    for mechanism in (m.DiscreteGaussian(2.0, 2.0**0.5), m.DiscreteGaussian(2.0, 3.0, 5), m.DiscreteGaussian(1e6)):
        with pytest.raises(Unsupported, match=r"filters\.Zcdp"):
            discrete.directions(mechanism)
    (upper_bound,) = epsilons(np.full((1, 1), 30), [several], delta=1e-6)
    (lower_bound,) = epsilons(np.full((1, 1), 30), [several], delta=1e-6, lower=True)
    assert lower_bound <= upper_bound <= lower_bound * 1.01


def clones(epsilon, people, chance):
    """The exact curve of the clones' pair, by enumeration."""
    told = mp.exp(epsilon) / (1 + mp.exp(epsilon))
    p, q = {}, {}
    for count, weight in enumerate(binomial(people - 1, chance)):
        for a, kind in enumerate(binomial(count, 0.5)):
            for law, share in ((p, told), (q, 1 - told)):
                for own in (1, 0):
                    at = a + own, count - a + 1 - own
                    law[at] = law.get(at, 0) + weight * kind * (share if own else 1 - share)

    def exact(e):
        return mp.fsum(max(mpf(0), p[at] - mp.exp(e) * q[at]) for at in p)

    return exact


@pytest.mark.parametrize(("epsilon", "people"), [(0.5, 6), (1.5, 12), (3.0, 30), (2.0, 1)])
def test_shuffled_reports(epsilon, people):
    """The clones' pair by enumeration; clones twice as often are caught."""
    exact = clones(mpf(epsilon), people, mp.exp(-mpf(epsilon)))
    assert_charged(m.Shuffled(epsilon, people), exact, loose=1e-5)
    often = clones(mpf(epsilon), people, min(mpf(1), 2 * mp.exp(-mpf(epsilon))))
    if people > 1:
        assert any(often(mpf(e)) < exact(mpf(e)) for e in EPSILONS)
        assert undercharged(m.Shuffled(epsilon, 4 * people), exact)


@pytest.mark.parametrize("epsilon", [12.0, 20.0, 34.0, 36.5, 60.0])
@pytest.mark.parametrize("people", [1, 2, 4])
def test_shuffled_reports_of_a_loud_randomiser(epsilon, people):
    """Where a lie is rarer than the rounding of the truth, the curve is still that of the clones near its end."""
    exact, (one, other) = (
        clones(mpf(epsilon), people, mp.exp(-mpf(epsilon))),
        discrete.directions(m.Shuffled(epsilon, people)),
    )
    for below in (1e-6, 1e-3, 0.1, 1.0):
        truth = exact(mpf(epsilon - below))
        assert all(truth <= charged(each, epsilon - below) <= truth * (1 + mpf(10) ** -4) for each in (one, other))


def test_shuffled_answers_of_three_kinds():
    """Randomised response with three answers, all data sets of four people: every curve is below the charge."""
    epsilon, people = 1.0, 4
    kept = np.exp(epsilon) / (np.exp(epsilon) + 2)
    table = np.full((3, 3), (1 - kept) / 2) + np.eye(3) * (kept - (1 - kept) / 2)

    def law(data):
        found = {}
        for reports in product(range(3), repeat=people):
            key = tuple(np.bincount(reports, minlength=3))
            found[key] = found.get(key, 0.0) + float(np.prod([table[x, r] for x, r in zip(data, reports, strict=True)]))
        return found

    one, other = discrete.directions(m.Shuffled(epsilon, people))
    for rest in product(range(3), repeat=people - 1):
        p, q = law((0, *rest)), law((1, *rest))
        for e in EPSILONS:
            for first, second, charge in ((p, q, one), (q, p, other)):
                assert sum(max(0.0, first[at] - np.exp(e) * second[at]) for at in first) <= charged(charge, e) + 1e-12


def two_batches(sigma):
    """The exact curve of one epoch of two batches: an option on the mean of two lognormal numbers."""
    s = 1 / mpf(sigma)

    def exact(e):
        level = mp.exp(e)

        def inner(g):
            left = 2 * level - mp.exp(s * g - s * s / 2)
            if left <= 0:
                return (1 - left) / 2
            d = -mp.log(left) / s
            return (upper(-d - s / 2) - left * upper(-d + s / 2)) / 2

        kink = (mp.log(2 * level) + s * s / 2) / s
        points = sorted({mpf(-14), mpf(-4), mpf(0), mpf(4), mpf(18), *([kink] if -14 < kink < 18 else [])})
        return mp.quad(lambda g: mp.npdf(g) * inner(g), points)

    return exact


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.7, 2.0])
def test_one_batch_of_an_epoch(sigma):
    """Two batches by quadrature; three in the place of two are caught."""
    exact = two_batches(sigma)
    assert_charged(m.RandomAllocation(sigma, 1.0, 2), exact, loose=2e-5)
    assert undercharged(m.RandomAllocation(sigma, 1.0, 3), exact)


def test_one_batch_for_everybody_is_gaussian():
    """An epoch of one batch costs what the Gaussian sum does, and many batches less than Poisson samples."""
    (one,) = epsilons(np.ones((1, 1), int), [m.RandomAllocation(1.0, 1.0, 1)], delta=1e-5)
    assert gaussian.of(m.Gaussian(1.0)).epsilon(delta=1e-5) <= one <= 4.40
    (many,) = epsilons(np.ones((1, 1), int), [m.RandomAllocation(1.0, 1.0, 50)], delta=1e-5)
    (poisson,) = epsilons(np.full((1, 1), 50), [m.SampledGaussian(1.0, 1.0, 0.02)], delta=1e-5)
    assert 0.5 * poisson < many < poisson


@pytest.mark.parametrize(
    "mechanism",
    [
        m.SampledRecords(1e-3, 1.0, 0.5, 3),
        m.ReplacedGaussian(1e-3, 1.0, 0.5),
        m.TruncatedGaussian(1e-3, 1.0, 0.5, 2, 9),
        m.RandomAllocation(1e-3, 1.0, 4),
        m.Shuffled(1e4, 10),
        m.SampledRecords(1.0, 1.0, 1.0, 10**6),
        m.MixtureOfGaussians(1e-60, (1e60,), (1.0,)),
    ],
    ids=str,
)
def test_what_is_too_loud_counts_as_revealing(mechanism):
    """No overflow, and no small number."""
    assert epsilons(np.ones((1, 1), int), [mechanism], delta=1e-5)[0] == inf
    assert renyi.failure(mechanism) > 0.1


@pytest.mark.parametrize("move", [20.0, 28.0, 30.0, 35.0, 40.0, 150.0])
@pytest.mark.parametrize("chance", [1.0, 1e-3, 1e-25])
def test_loud_rounds_cost_at_least_what_they_do(move, chance):
    """No overflow, and no mass is lost where ratios are no floats: one move, made sometimes or always."""
    moves, chances = ((move,), (1.0,)) if chance == 1 else ((move, 0.0), (chance, 1 - chance))
    one, other = discrete.directions(m.MixtureOfGaussians(1.0, moves, chances))
    for r in (1.0, move**2 / 2, move**2 / 2 + 11 * move):
        least = chance * float(gaussian.delta(move * (1 - 1e-12), epsilon=r))
        found = charged(one, r + np.log(chance + (1 - chance) * np.exp(-r)))
        assert least * (1 - 1e-9) <= found <= 2 * chance + 3 * one.error
    assert charged(other, 1e-9) <= 2 * chance + 3 * other.error


def test_quiet_rounds_cost_little():
    """Noise that drowns everything leaves nearly nothing, in a thousand rounds too."""
    for mechanism in (m.SampledRecords(1e8, 1.0, 0.5, 3), m.ReplacedGaussian(1e8), m.RandomAllocation(1e8, 1.0, 4)):
        assert 0 <= deltas(np.full((1, 1), 1000), [mechanism], epsilon=1e-3)[0] < 1e-9


@pytest.mark.parametrize("mechanism", [m.ReplacedGaussian(1e46), m.MixtureOfGaussians(1e30, (0.0, 1.0), (0.5, 0.5))])
def test_rounds_so_quiet_that_all_losses_are_zero(mechanism):
    """Three thousand equal losses are put on fewer points as they are."""
    assert 0 <= delta_at({mechanism: 1000}, epsilon=1e-3) < 1e-9


def test_lower_bounds_are_below():
    """Merged cells bound the epsilon from below, within a hundredth; where none is known it is said."""
    for mechanism in (m.MixtureOfGaussians(1.0, (0, 1, 2), (0.9, 0.08, 0.02)), m.ReplacedGaussian(2.0, 1.0, 0.1)):
        counts = np.full((1, 1), 40)
        low, high = (epsilons(counts, [mechanism], delta=1e-5, lower=lower)[0] for lower in (True, False))
        assert 0.98 * high < low <= high
    for mechanism in (m.Shuffled(1.0, 5), m.SampledRecords(1.0, 1.0, 0.05, 3)):
        with pytest.raises(Unsupported, match="no lower bound"):
            known_pairs.outcomes(mechanism, lower=True)

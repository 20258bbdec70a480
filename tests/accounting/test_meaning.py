"""What a promise means: never below what the best attack does, and exact for Gaussian noise."""

from itertools import combinations, product
from math import inf, log, nan, sqrt

import mpmath
import numpy as np
import pytest

from almoner import filters
from almoner import mechanisms as m
from almoner.accounting import meaning
from almoner.curves import gaussian, renyi, tradeoff, zcdp
from almoner.errors import ArgumentError, Unsupported

RATES = np.linspace(0.0, 1.0, 101)
PRIORS = (0.01, 0.3, 0.5, 0.8, 0.999)


def random_pair(seed, outcomes=4, scale=0.7):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(outcomes))
    q = p * np.exp(scale * rng.normal(size=outcomes))
    return p, q / q.sum()


def composed(law, rounds):
    return np.array([float(np.prod(each)) for each in product(law, repeat=rounds)])


def best_power(p, q, rate):
    """Neyman and Pearson: the most of p that a randomised test finds at rate under q."""
    order = np.argsort(-np.where(q > 0, p / np.maximum(q, 1e-300), inf))
    used = power = 0.0
    for place in order:
        part = 1.0 if q[place] == 0 else min(1.0, max(0.0, (rate - used) / q[place]))
        used, power = used + part * q[place], power + part * p[place]
    return power


def concave_hull(powers):
    """The least concave function of the rate above the powers."""
    best = powers.copy()
    for left, right in combinations(range(len(RATES)), 2):
        share = (RATES[left + 1 : right] - RATES[left]) / (RATES[right] - RATES[left])
        chord = powers[left] + share * (powers[right] - powers[left])
        best[left + 1 : right] = np.maximum(best[left + 1 : right], chord)
    return best


@pytest.mark.quick(18)
@pytest.mark.parametrize("seed", range(40))
def test_no_attack_does_better_than_what_is_said(seed):
    """Random pairs, one to three rounds, every outcome listed: powers, advantage, guesses and beliefs of the best
    attack are never above ours; powers and guesses are within 0.01 of ours."""
    rounds = 1 + seed % 3
    p, q = random_pair(seed)
    said = meaning.of(m.Repeated(m.DominatingPair(p, q), rounds))
    p, q = composed(p, rounds), composed(q, rounds)
    powers = np.array([max(best_power(p, q, rate), best_power(q, p, rate)) for rate in RATES])
    mixed = concave_hull(powers)  # what is known of both orders alike
    ours = said.true_positives(RATES)
    assert (ours >= mixed - 1e-13).all()
    assert (ours <= mixed + 0.01).all()
    assert said.advantage >= np.abs(p - q).sum() / 2 - 1e-14
    for prior in PRIORS:
        right = max(np.maximum(prior * p, (1 - prior) * q).sum(), np.maximum(prior * q, (1 - prior) * p).sum())
        assert right - 1e-14 <= said.guess(prior=prior) <= right + 0.01
    for prior, failure in product(PRIORS, (0.3, 0.01, 1e-4)):
        lowest, highest = said.belief(prior=prior, failure=failure)
        for inside, outside in ((p, q), (q, p)):
            belief = prior * inside / (prior * inside + (1 - prior) * outside)
            for truth in (inside, outside):
                assert truth[belief > highest * (1 + 1e-12)].sum() <= failure
                assert truth[belief < lowest * (1 - 1e-12)].sum() <= failure


def test_a_bound_from_epsilon_alone_would_be_wrong():
    """Reveal everything with probability 0.05: epsilon is 0 for all others, yet an attack finds 5 % without any false
    alarm. We say 5 %, and a belief of 1 within that probability."""
    reveals = meaning.of(tradeoff.Curve((0.0,), (0.05,)))
    assert reveals.true_positives(0.0) == pytest.approx(0.05, abs=1e-12)
    assert reveals.true_positives(0.0) >= 0.05
    assert reveals.belief(failure=0.05) == (0.0, 1.0)
    lowest, highest = reveals.belief(failure=0.1)  # the tail bound: 0 - log(1 - 0.05/0.1)
    assert lowest == pytest.approx(1 / 3)
    assert highest == pytest.approx(2 / 3)


@pytest.mark.parametrize("mu", [1e-6, 0.01, 0.3, 1.0, 4.0, 30.0])
def test_gaussian_promises_are_exact(mu):
    """True positives, advantage and guesses agree with formulas in 40 digits to 1e-12 relative, never below them."""
    said = meaning.of(gaussian.Gaussian(mu))
    with mpmath.workdps(40):
        size = mpmath.mpf(mu)
        for rate in (1e-12, 1e-5, 0.001, 0.01, 0.1, 0.5, 0.9):
            quantile = mpmath.sqrt(2) * mpmath.erfinv(2 * mpmath.mpf(rate) - 1)
            exact = mpmath.ncdf(quantile + size)
            ours = float(said.true_positives(rate))
            assert exact * (1 - mpmath.mpf("1e-30")) <= ours <= exact * (1 + mpmath.mpf("1e-12"))
        advantage = 2 * mpmath.ncdf(size / 2) - 1
        assert advantage <= said.advantage <= advantage * (1 + mpmath.mpf("1e-12"))
        assert mpmath.ncdf(size / 2) <= said.guess() <= mpmath.ncdf(size / 2) * (1 + mpmath.mpf("1e-12"))
        for prior in (0.01, 0.9):
            bound = log((1 - prior) / prior)
            edge = mpmath.mpf(abs(bound))
            gain = mpmath.ncdf(-edge / size + size / 2) - mpmath.exp(edge) * mpmath.ncdf(-edge / size - size / 2)
            right = max(prior, 1 - prior) + min(prior, 1 - prior) * gain
            assert right - mpmath.mpf("1e-13") <= said.guess(prior=prior) <= right + mpmath.mpf("1e-11")


def test_nothing_released_and_everything_released():
    """Without releases nobody can be told apart; with an infinite loss everybody can."""
    nothing, everything = meaning.of(gaussian.Gaussian(0.0)), meaning.of(gaussian.Gaussian(inf))
    assert nothing.advantage == 0
    assert nothing.guess() == pytest.approx(0.5)
    assert nothing.true_positives(RATES) == pytest.approx(RATES)
    assert everything.advantage == everything.guess() == 1
    assert (everything.true_positives(RATES) == 1).all()
    assert everything.belief() == (0.0, 1.0)


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "promise",
    [
        m.Repeated(m.SampledGaussian(1.0, 1.0, 0.01), 500),
        m.Laplace(2.0),
        zcdp.Zcdp(0.1),
        tradeoff.of(m.Repeated(m.Gaussian(3.0), 4)),
        tradeoff.Curve((0.0, 1.0), (0.2, 1e-10)),
    ],
)
def test_one_number_covers_a_promise(promise):
    """mu-GDP with the slack is above the promise at 20,001 epsilons, and a mu smaller by 1e-4 is not."""
    said = meaning.of(promise)
    number = said.as_gaussian(slack=1e-8)
    assert 0 <= number.regret < 1
    curve = tradeoff.of(promise, points=512) if not isinstance(promise, tradeoff.Curve) else promise
    at = np.linspace(0.0, 2 * curve.epsilons[-1] + 1, 20_001)
    assert (gaussian.delta(number.mu, epsilon=at) + 1e-8 >= curve.delta(at)).all()
    assert (gaussian.delta(number.mu * (1 - 1e-4), epsilon=at) + 1e-8 < curve.delta(at)).any()


def test_one_number_for_gaussian_noise_is_its_mu():
    """The summary of Gaussian noise is the mu that it was made with."""
    assert meaning.of(m.Gaussian(0.5)).as_gaussian().mu == pytest.approx(2.0)
    points = meaning.of(tradeoff.of(m.Gaussian(0.5), points=2000)).as_gaussian(slack=1e-6)
    assert points.mu == pytest.approx(2.0, abs=2e-3)
    assert points.regret < 1e-3


def test_the_middle_of_a_chord_decides():
    """At both ends of this chord mu = 0.5 is above the curve, between them it is not: only a test of the middle sees
    that."""
    ends = (0.0, 2.5)
    curve = tradeoff.Curve(ends, tuple(float(gaussian.Gaussian(0.5).delta(epsilon=at)) for at in ends))
    assert meaning.of(curve).as_gaussian(slack=1e-3).mu > 0.6


def test_total_variation_of_zcdp_is_by_pinsker():
    """KL is at most rho, so the advantage is at most sqrt(rho/2), which Gaussian noise with that rho stays below."""
    for rho in (1e-6, 0.01, 0.5):
        said = meaning.of(zcdp.Zcdp(rho)).advantage
        assert meaning.of(m.Gaussian(1 / sqrt(2 * rho))).advantage <= said <= sqrt(rho / 2) * (1 + 1e-9)
    assert meaning.of(renyi.Renyi((1.5, 8.0), (0.02, 0.1))).advantage <= 0.1 * (1 + 1e-9)


def test_filters_have_a_meaning():
    """A filter's curve means about what its exact budget means, and never less."""
    budget = filters.Gaussian(epsilon=1.0, delta=1e-5)
    exact = meaning.of(gaussian.Gaussian(gaussian.mu(epsilon=1.0, delta=1e-5)))
    assert exact.guess() <= meaning.of(budget.tradeoff()).guess() <= exact.guess() + 0.01


def test_words():
    """The sentences state the odds of mu = 1, rounded up."""
    said = meaning.of(gaussian.Gaussian(1.0))
    assert said.sentence.endswith("at most 69.2 times in 100.")
    assert "at most 69.2 % of the time whether a person was in (50 % without the results)" in said.words
    assert said.words.endswith("it finds at most 1.9 % with 0.1 %, 9.3 % with 1 % and 39 % with 10 % false alarms.")
    assert said.figures()["true_positives"].keys() == {"0.001", "0.01", "0.1"}


def test_bad_input_is_refused():
    """Bad arguments are refused by name."""
    said = meaning.of(gaussian.Gaussian(1.0))
    for rate in (-0.1, 1.1, nan):
        with pytest.raises(ArgumentError, match="alpha"):
            said.true_positives(rate)
    for name, call in (("prior", said.guess), ("prior", said.belief)):
        for value in (0.0, 1.0, nan, -1.0):
            with pytest.raises(ArgumentError, match=name):
                call(prior=value)
    with pytest.raises(ArgumentError, match="failure"):
        said.belief(failure=0.0)
    with pytest.raises(ArgumentError, match="slack"):
        said.as_gaussian(slack=nan)
    with pytest.raises(Unsupported, match=r"last delta is 0\.2"):
        meaning.of(tradeoff.Curve((1.0,), (0.2,))).as_gaussian()
    with pytest.raises(Unsupported):
        meaning.of("epsilon")


def test_large_losses_do_not_overflow():
    """A loss beyond the range of exp means certainty, with a finite mu and no warning."""
    huge = meaning.of(tradeoff.Curve((1e5,), (0.0,)))
    assert huge.belief() == (0.0, 1.0)
    assert huge.guess() == 1.0
    assert huge.as_gaussian().mu < inf


def test_a_delta_that_is_no_delta_and_a_prior_near_zero_promise_nothing():
    """What is not known counts as everything being known to the attacker."""
    assert meaning.largest_advantage(0.1, [nan, -0.5, 2.0]).tolist() == [1.0, 1.0, 1.0]
    assert meaning.largest_advantage(0.0, 0.25) >= 0.25
    assert meaning.of(gaussian.Gaussian(0.1)).belief(prior=5e-324) == (0.0, 1.0)

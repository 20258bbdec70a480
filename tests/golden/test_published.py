"""Numbers that other libraries publish or test themselves against, each with its source (tests/golden/published.json).

Ours must not be below the truth. A printed number is the truth to its rounding, or a bound of the other library; where
that bound is wide, or no number is printed, the truth is worked out with mpmath.
"""

import json
import re
from math import exp
from pathlib import Path

import mpmath
import numpy as np
import pytest

from almoner import filters
from almoner import mechanisms as m
from almoner.accounting import meaning
from almoner.curves import approximate, gaussian, losses, renyi, tradeoff, tuning, zcdp
from almoner.curves._totals import optimum, tightest

ENTRIES = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))["numbers"]
TESTED: list[str] = []
OPACUS_ORDERS = [1 + j / 10 for j in range(1, 100)] + list(range(12, 64))


def chosen(pattern):
    found = [entry for entry in ENTRIES if re.match(pattern, entry["id"])]
    assert found
    TESTED.extend(entry["id"] for entry in found)
    return pytest.mark.parametrize("entry", found, ids=[entry["id"] for entry in found])


def fits(entry, ours):
    """Not below the number by more than its stated error, and not above it by more than the stated share."""
    if entry["below"] is not None:
        assert ours >= entry["value"] - entry["below"]
    assert ours <= entry["value"] * (1 + entry["above"])


def training(given):
    step = m.SampledGaussian(given["sigma"], given.get("sensitivity", 1.0), given["sample_rate"])
    return m.Repeated(step, given.get("steps", given.get("rounds")))


def renyi_integral(sigma, rate, order):
    """The Rényi divergence of one sampled Gaussian step by its integral, split around both modes."""
    with mpmath.workdps(20):
        variance, alpha, q = mpmath.mpf(sigma) ** 2, mpmath.mpf(order), mpmath.mpf(rate)

        def integrand(x):
            ratio = 1 - q + q * mpmath.exp((2 * x - 1) / (2 * variance))
            return mpmath.npdf(x, 0, mpmath.mpf(sigma)) * ratio**alpha

        places = sorted({mode + away * sigma for mode in (0, order) for away in (-12, -6, -3, 0, 3, 6, 12)})
        total = mpmath.quad(integrand, [-mpmath.inf, *places, mpmath.inf])
        return float(mpmath.log(total) / (alpha - 1))


def gaussian_delta(mu, epsilon):
    with mpmath.workdps(30):
        x = mpmath.mpf(epsilon)
        return float(mpmath.ncdf(mu / 2 - x / mu) - mpmath.exp(x) * mpmath.ncdf(-mu / 2 - x / mu))


@pytest.mark.slow
@chosen("prv_([0-9]|test|noise)|noise_sampled")
def test_epsilon_of_trainings_by_privacy_random_variables(entry):
    """PRV's upper bounds are 0.01 above its estimates, and 0.02 above its lower bounds; ours lie near the estimates."""
    fits(entry, tightest(training(entry["inputs"]), delta=entry["inputs"]["delta"]).epsilon)


@chosen("opacus_")
def test_epsilon_of_trainings_by_renyi(entry):
    """Opacus's RDP accountant, at its orders."""
    fits(entry, renyi.of(training(entry["inputs"]), OPACUS_ORDERS).epsilon(delta=entry["inputs"]["delta"]))


@chosen("clt_")
def test_the_central_limit_is_no_bound(entry):
    """Opacus's GDP accountant gives epsilons that no (epsilon, delta) promise can keep: our lower bound is above."""
    run, delta = training(entry["inputs"]), entry["inputs"]["delta"]
    least = losses.epsilons(np.array([[run.count]]), [run.mechanism], delta=delta, lower=True)[0]
    assert entry["value"] + 0.1 < least <= tightest(run, delta=delta).epsilon


@pytest.mark.quick(4)
@chosen("rdp_sampled|log_a")
def test_renyi_divergence_of_sampled_noise(entry):
    """Not below the integral at any order, and within 1e-10 of it."""
    given = entry["inputs"]
    ours = renyi.values(training(given), [given["order"]])[0]
    truth = given["steps"] * renyi_integral(given["sigma"], given["sample_rate"], given["order"])
    assert truth <= ours <= truth * (1 + 1e-10)
    if entry["value"] is not None:
        fits(entry, ours)


@chosen("conversion_pure")
def test_conversion_of_a_constant_curve(entry):
    """Pure DP as a constant Rényi curve."""
    given = entry["inputs"]
    orders = np.arange(given["first"], given["last"] + 1)
    fits(entry, float(renyi.epsilon(np.full(len(orders), given["value"]), orders, delta=given["delta"])))


@chosen("conversion_gaussian")
def test_conversion_of_a_gaussian_curve(entry):
    """The noise at which the best order of the Rényi curve gives (1, 1e-6)-DP."""
    fits(entry, zcdp.of(m.Gaussian(entry["inputs"]["sigma"])).epsilon(delta=entry["inputs"]["delta"]))


@chosen("response_")
def test_renyi_divergence_of_randomized_response(entry):
    """Many answers: against another person's truth, and against an answer at random."""
    given = entry["inputs"]
    count, lie = given["buckets"], given["noise"] / given["buckets"]
    truth = 1 - given["noise"] + lie
    if given["replace"] == "one":
        rest = [lie] * (count - 2)
        pair = m.DominatingPair((truth, lie, *rest), (lie, truth, *rest))
    else:
        pair = m.DominatingPair((truth, *[lie] * (count - 1)), (1 / count,) * count)
    fits(entry, renyi.values(pair, [given["order"]])[0])


@pytest.mark.slow
@chosen("laplace_")
def test_epsilon_of_laplace_at_a_small_delta(entry):
    """One round is nearly pure; a hundred are at most what they add up to."""
    given = entry["inputs"]
    fits(entry, tightest(m.Repeated(m.Laplace(given["scale"]), given["rounds"]), delta=given["delta"]).epsilon)


@pytest.mark.quick(1)
@chosen("tuning_")
def test_epsilon_of_the_best_of_many_runs(entry):
    """Pure runs cost 2 + shape times their epsilon at most, by each of our two ways; one run costs less."""
    given = entry["inputs"]
    best = m.BestOf(m.Laplace(given["scale"]), given["runs"], given["shape"])
    fits(entry, renyi.values(best, [1e10])[0])
    ours = tuning.epsilon(best, delta=given["delta"])
    fits(entry, ours)
    assert ours > tightest(best.mechanism, delta=given["delta"]).epsilon


@chosen("pld_gaussian")
def test_delta_of_gaussian_rounds(entry):
    """Three rounds that together are 1-GDP."""
    given = entry["inputs"]
    run = m.Repeated(m.Gaussian(given["sigma_squared"] ** 0.5), given["rounds"])
    fits(entry, gaussian.of(run).delta(epsilon=given["epsilon"]))


@chosen("pld_sampled")
def test_delta_of_sampled_rounds(entry):
    """Three loud rounds at a rate of a fifth."""
    given = entry["inputs"]
    step = m.SampledGaussian(given["sigma"], 1.0, given["sample_rate"])
    fits(entry, losses.deltas(np.array([[given["rounds"]]]), [step], epsilon=given["epsilon"])[0])


@chosen("pld_laplace")
def test_epsilon_of_unlike_laplace_rounds(entry):
    """Nearly no delta is left, so epsilons add up: basic composition."""
    given = entry["inputs"]
    parts = [m.Repeated(m.Laplace(s), k) for s, k in zip(given["scales"], given["rounds"], strict=True)]
    fits(entry, approximate.of(m.Composed(parts)).epsilon)


@chosen("pld_approximate")
def test_delta_of_unlike_failing_rounds(entry):
    """The least delta is 1 - 0.9 * 0.8; ours adds up, and is 0.30."""
    given = entry["inputs"]
    run = m.Composed([m.Approximate(e, d) for e, d in zip(given["epsilons"], given["deltas"], strict=True)])
    fits(entry, float(tradeoff.of(run).delta(given["epsilon"])))


@chosen("noise_laplace")
def test_least_noise_of_laplace_rounds(entry):
    """The scale at which epsilon is one lies within 0.1 of the published one."""
    given = entry["inputs"]
    less, more = (
        tightest(m.Repeated(m.Laplace(scale, given["sensitivity"]), given["rounds"]), delta=given["delta"]).epsilon
        for scale in (given["scale"] - 0.1, given["scale"] + 0.1)
    )
    assert more < entry["value"] < less


@chosen("noise_gaussian")
def test_least_noise_of_gaussian_rounds(entry):
    """The published noise has the published delta."""
    given = entry["inputs"]
    run = m.Repeated(m.Gaussian(given["sigma"], given["sensitivity"]), given["rounds"])
    fits(entry, gaussian.of(run).delta(epsilon=given["epsilon"]))


@chosen("advanced_")
def test_optimal_composition_of_failing_rounds(entry):
    """The published epsilon is the least on a grid of two steps that is enough: the truth is above the one before."""
    given = entry["inputs"]
    if given["delta"]:
        run = m.Repeated(m.Approximate(given["epsilon"], given["delta"]), given["rounds"])
        ours = tightest(run, delta=given["total_delta"]).epsilon
    else:
        ours = optimum(m.Pure(given["epsilon"]), given["rounds"], given["total_delta"])
    fits(entry, ours)


@chosen("prv_gaussian")
def test_delta_of_many_gaussian_rounds(entry):
    """The closed form with which PRV's tests compare, in many digits."""
    given = entry["inputs"]
    parts = [m.Repeated(m.Gaussian(s), k) for s, k in zip(given["sigmas"], given["rounds"], strict=True)]
    with mpmath.workdps(30):
        mu = mpmath.sqrt(sum(k / mpmath.mpf(s) ** 2 for s, k in zip(given["sigmas"], given["rounds"], strict=True)))
    truth = gaussian_delta(mu, given["epsilon"])
    assert truth <= gaussian.of(m.Composed(parts)).delta(epsilon=given["epsilon"]) <= truth * (1 + 1e-8)


@chosen("prv_failures")
def test_delta_of_rounds_that_only_fail(entry):
    """At least 1 - (1 - delta)^rounds; ours adds up, which is half a per cent more at most."""
    given = entry["inputs"]
    with mpmath.workdps(30):
        truth = float(1 - (1 - mpmath.mpf(given["delta"])) ** given["rounds"])
    ours = approximate.of(m.Repeated(m.Approximate(0.0, given["delta"]), given["rounds"])).delta
    assert truth <= ours <= truth * (1 + entry["above"])


@chosen("riskcal_beta")
def test_errors_of_an_attack(entry):
    """Of the people who were in, at least so many are missed at this false positive rate."""
    given = entry["inputs"]
    said = meaning.of(approximate.Approximate(given["epsilon"], given["delta"]))
    missed = 1 - float(said.true_positives(given["alpha"]))
    fits(entry, missed)
    assert missed <= exp(-given["epsilon"]) * (1 - given["delta"] - given["alpha"])


@chosen("riskcal_advantage")
def test_advantage_of_an_attack(entry):
    """What only fails gives an advantage of its delta."""
    fits(entry, float(meaning.largest_advantage(entry["inputs"]["epsilon"], entry["inputs"]["delta"])))


@chosen("riskcal_epsilon")
def test_epsilon_from_errors_of_an_attack(entry):
    """Back from errors to epsilon: between its roundings up and down, the share of people missed crosses 0.8."""
    given = entry["inputs"]
    more, less = (
        1 - float(meaning.of(approximate.Approximate(epsilon, given["delta"])).true_positives(given["alpha"]))
        for epsilon in (entry["value"] - 5e-4, entry["value"] + 5e-4)
    )
    assert less < given["beta"] < more


@chosen("riskcal_zcdp")
def test_errors_of_an_attack_on_zcdp(entry):
    """Never more than the Gaussian mechanism of the same rho leaves; below the peer's, which tests each order."""
    given = entry["inputs"]
    missed = 1 - float(meaning.of(zcdp.Zcdp(given["rho"])).true_positives(given["alpha"]))
    fits(entry, missed)
    exact = meaning.of(gaussian.Gaussian((2 * given["rho"]) ** 0.5))
    assert missed <= 1 - float(exact.true_positives(given["alpha"]))


@chosen("gdpnum_(readme|test)")
def test_one_number_for_a_training(entry):
    """The least mu, with a slack of 1e-9 (the peer cuts off at 1e-10), and its regret."""
    said = meaning.of(training(entry["inputs"])).as_gaussian(slack=1e-9)
    fits(entry, said.mu)
    assert 5e-4 < said.regret <= entry["inputs"]["regret"]


@chosen("gdpnum_laplace")
def test_one_number_says_less_of_laplace(entry):
    """A Laplace mechanism is far from every Gaussian one."""
    said = meaning.of(m.Laplace(entry["inputs"]["scale"])).as_gaussian()
    assert said.regret > entry["value"]
    assert gaussian_delta(mpmath.mpf(said.mu), 0.5 / entry["inputs"]["scale"]) >= 1 - exp(
        -0.25 / entry["inputs"]["scale"]
    )


@chosen("w3c_")
def test_budgets_of_attribution(entry):
    """Each epoch has a budget; a measurement is a Laplace round, and one that does not fit takes nothing."""
    given = entry["inputs"]
    epochs = [filters.Basic(epsilon=given["budget"], delta=0.0) for _ in given["sensitivities"][0]]
    for asked, expected in zip(given["sensitivities"], entry["value"], strict=True):
        for account, sensitivity, admitted in zip(epochs, asked, expected, strict=True):
            if sensitivity is not None:
                one = m.Laplace(given["noise_scale"], sensitivity)
                assert account.admits(one) == admitted
                if admitted:
                    account.charge(one)


def test_every_number_has_a_source_and_a_test():
    """Each entry says where it is printed, and one of the tests above takes it."""
    names = [entry["id"] for entry in ENTRIES]
    assert sorted(names) == sorted(TESTED)
    assert all(re.search(r"line \d+|commit \w{7}", entry["source"]) for entry in ENTRIES)

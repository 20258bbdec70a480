"""What dp_accounting does without options: brackets that start at no noise, and its own distributions."""

import math

import numpy as np
import pytest

from almoner.curves import gaussian
from almoner.errors import AlmonerError
from almoner.interop.dp_accounting import accountant, from_event, from_pld, of_a_pair

dp = pytest.importorskip("dp_accounting")
e = dp.dp_event
RUNS = {
    "Gaussian": lambda noise: e.GaussianDpEvent(noise),
    "Laplace": lambda noise: e.LaplaceDpEvent(noise),
    "DP-SGD": lambda noise: e.SelfComposedDpEvent(e.PoissonSampledDpEvent(0.01, e.GaussianDpEvent(noise)), 200),
    "truncated": lambda noise: e.TruncatedSubsampledGaussianDpEvent(1000, 0.01, 16, noise),
    "mixture": lambda noise: e.MixtureOfGaussiansDpEvent(noise, [0, 1, 2], [0.2, 0.6, 0.2]),
}


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
def test_their_calibration_needs_no_bracket(run):
    """Its own bracket starts at zero noise, where epsilon is infinite; the noise that is found keeps the target."""
    noise = dp.calibrate_dp_mechanism(lambda: accountant("losses"), run, 1.0, 1e-5)
    assert accountant("losses").compose(run(noise)).get_epsilon(1e-5) <= 1.0
    assert accountant("losses").compose(run(noise * 0.999)).get_epsilon(1e-5) > 1.0
    if run is RUNS["Gaussian"]:
        assert gaussian.Gaussian(1 / noise).delta(epsilon=1.0) <= 1e-5
        assert noise == pytest.approx(dp.calibrate_dp_mechanism(dp.pld.PLDAccountant, run, 1.0, 1e-5), rel=1e-3)


def test_no_noise_is_an_infinite_epsilon_for_accountants_alone():
    """At every depth; a sample of nobody costs nothing whatever is in it; one event alone is refused as before."""
    for name, run in RUNS.items():
        silent = run(0.0)
        assert accountant().compose(silent).get_epsilon(0.5) == math.inf, name
        assert accountant().compose(e.ComposedDpEvent([e.GaussianDpEvent(9.0), silent])).get_epsilon(0.5) == math.inf
        with pytest.raises(AlmonerError):
            from_event(silent)
    nobody = e.PoissonSampledDpEvent(0.0, e.GaussianDpEvent(0.0))
    for event in (nobody, e.PoissonSampledDpEvent(0.0, e.UnsupportedDpEvent()), e.SelfComposedDpEvent(nobody, 9)):
        assert accountant().compose(event).get_epsilon(1e-9) == 0
    assert accountant().compose(e.TruncatedSubsampledGaussianDpEvent(9, 0.0, 3, 0.0)).get_epsilon(1e-9) == 0
    assert not accountant().supports(e.PoissonSampledDpEvent(1.5, e.GaussianDpEvent(0.0))) or (
        accountant().compose(e.PoissonSampledDpEvent(1.5, e.GaussianDpEvent(0.0))).get_epsilon(0.5) == math.inf
    )


def constructed():
    """Distributions of theirs, and the least delta at epsilon that is true of the mechanism, where it is known."""
    make = dp.pld.privacy_loss_distribution
    finer = {"value_discretization_interval": 1e-3}

    def exact(mu):
        return lambda epsilon: float(gaussian.Gaussian(mu).delta(epsilon=epsilon))

    sampled = make.from_gaussian_mechanism(1.0, sampling_prob=0.1, **finer)
    return {
        "default": (make.from_gaussian_mechanism(1.0), exact(1.0)),
        "finer": (make.from_gaussian_mechanism(1.0, **finer), exact(1.0)),
        "sampled": (sampled, None),
        "composed": (sampled.self_compose(50), None),
        "composed Gaussian": (make.from_gaussian_mechanism(10.0, **finer).self_compose(50), exact(math.sqrt(50) / 10)),
        "Laplace": (make.from_laplace_mechanism(5.0).self_compose(5), None),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["default", "finer", "sampled", "composed", "composed Gaussian", "Laplace"])
def test_their_constructors_make_what_is_read(name):
    """In both directions deltas are never below theirs, nor the truth, and at most a part in 10,000 above theirs."""
    pld, truth = constructed()[name]
    pair = from_pld(pld)
    for laws, pmf in (((pair.p, pair.q), pld._pmf_remove), ((pair.p_add, pair.q_add), pld._pmf_add)):
        p, q = map(np.asarray, laws)
        assert max(len(p), len(q)) <= 100_000
        assert abs(math.fsum(p) - 1) < 1e-9
        assert math.fsum(q) <= 1 + 1e-9
        for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
            theirs = float(pmf.get_delta_for_epsilon(epsilon))
            ours = math.fsum(np.maximum(p - math.exp(epsilon) * q, 0.0))
            assert theirs * (1 - 1e-12) - 1e-15 <= ours <= theirs * 1.0001 + 1e-12
            if truth is not None:
                assert ours >= truth(epsilon) * (1 - 1e-9)


@pytest.mark.quick(4)
@pytest.mark.parametrize("seed", range(20))
def test_what_is_made_of_a_list_dominates_it(seed):
    """Random lists with too much or too little in P or Q: a pair above each mechanism that is under the list."""
    rng = np.random.default_rng(seed)
    size = int(rng.choice([1, 7, 400, 250_000]))
    losses = np.sort(rng.normal(0, 3, size))
    masses = rng.dirichlet(np.ones(size)) * rng.choice([0.9, 1.0, 1 + 1e-6, 1.2]) - (rng.random(size) < 0.1) * 1e-12
    infinity = float(rng.choice([0.0, 1e-6, 0.3]))
    found, weights, lost = of_a_pair(losses, masses, infinity)
    assert math.fsum((*weights, lost)) == pytest.approx(1, abs=1e-9)
    assert (weights * np.exp(-found)).sum() <= 1 + 1e-12
    assert len(found) <= 99_998
    tops = np.concatenate([np.linspace(-12, 12, 400), found[:50]])
    given = np.array([min(1.0, at(top, losses, np.maximum(masses, 0), infinity)) for top in tops])
    for epsilon in (-9.0, -1.0, 0.0, 0.5, 2.0, 7.0):
        chords = 1 - np.exp(epsilon - tops) * (1 - given)  # a mechanism's curve is convex in exp(epsilon), and 1 at 0
        least = min(at(epsilon, losses, np.maximum(masses, 0), infinity), chords[tops >= epsilon].min())
        assert at(epsilon, found, weights, lost) >= least - 1e-12


def at(epsilon, losses, masses, infinity):
    """The hockey-stick divergence that a list of losses says."""
    return masses @ np.maximum(1 - np.exp(epsilon - losses), 0) + infinity

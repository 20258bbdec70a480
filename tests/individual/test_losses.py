"""Each person's epsilon: against published numbers, an independent library, and exact sums in high precision."""

import json
import logging
from pathlib import Path

import mpmath
import numpy as np
import pytest

from almoner import individual, mechanisms
from almoner.curves import gaussian
from almoner.errors import ArgumentError, Unsupported

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "losses.json").read_text())


@pytest.mark.parametrize("entry", GOLDEN, ids=[entry["id"] for entry in GOLDEN])
def test_reference_numbers_of_dp_sgd(entry):
    """The individual epsilons of theory's table lie between our bounds, and the upper one is within 0.1 %."""
    given = entry["inputs"]
    low, high = individual.losses(
        [[given["steps"]]], [given["effective_sigma"]], sample_rate=given["q"], delta=given["delta"], bounds=True
    )
    if "add_direction" in entry["id"]:  # the smaller direction
        assert high[0] >= entry["value"]
        return
    slack = 2e-4 if "dpacc" in entry["id"] else 3e-6  # the peer's numbers are pessimistic
    assert low[0] <= entry["value"] * (1 + slack)
    assert entry["value"] * (1 - slack) <= high[0] <= entry["value"] * 1.001
    assert low[0] >= entry["value"] * 0.97


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "counts", "rate"),
    [
        ([0.7, 3.0], [3, 400], 0.001),
        ([0.55], [12], 0.003),
        ([1.5, 1.6], [2, 19], 0.97),
        ([50.0], [100_000], 0.002),
        ([5.0, 20.0], [200, 5000], 0.05),
    ],
)
def test_against_dp_accounting(noise, counts, rate):
    """Never below the peer's optimistic estimate; within 1 % (0.5 % at delta 1e-5) of its pessimistic one."""
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    logging.disable(logging.WARNING)
    deltas = [1e-10, 1e-8, 1e-5, 1e-3]
    low, high = individual.losses([counts], noise, sample_rate=rate, delta=deltas, bounds=True)
    interval = max(3e-6, min(1e-4, 1e-3 * high[2, 0]))
    peers = []
    for pessimistic in (False, True):
        total = None
        for z, count in zip(noise, counts, strict=True):
            one = pld.from_gaussian_mechanism(
                z, sampling_prob=rate, value_discretization_interval=interval, pessimistic_estimate=pessimistic
            ).self_compose(count)
            total = one if total is None else total.compose(one)
        peers.append([total.get_epsilon_for_delta(delta) for delta in deltas])
    logging.disable(logging.NOTSET)
    for i, delta in enumerate(deltas):
        assert low[i, 0] <= peers[1][i]
        assert high[i, 0] >= peers[0][i]
        if peers[1][i] >= 1e-3:
            assert high[i, 0] <= peers[1][i] * (1.005 if delta == 1e-5 else 1.01)


def exact(answers, square, epsilon):
    """Delta of randomised responses (epsilon, count) and Gaussians of mu squared in all, by an exact sum."""
    mpmath.mp.dps = 40
    losses = {mpmath.mpf(0): mpmath.mpf(1)}
    for each, count in answers:
        p = 1 / (1 + mpmath.exp(-mpmath.mpf(each)))
        grown = {}
        for loss, mass in losses.items():
            for k in range(count + 1):
                key = loss + (2 * k - count) * mpmath.mpf(each)
                more = mass * mpmath.binomial(count, k) * p**k * (1 - p) ** (count - k)
                grown[key] = grown.get(key, 0) + more
        losses = grown
    total = mpmath.mpf(0)
    mu = mpmath.sqrt(mpmath.mpf(square))
    for loss, mass in losses.items():
        left = mpmath.mpf(epsilon) - loss
        if square == 0:
            total += mass * max(mpmath.mpf(0), 1 - mpmath.exp(left))
        else:
            total += mass * (mpmath.ncdf(mu / 2 - left / mu) - mpmath.exp(left) * mpmath.ncdf(-mu / 2 - left / mu))
    return total


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_exact_sums_never_exceed_the_bound(seed):
    """A thousand random small cases: delta in forty digits at our upper epsilon and our delta, and at the lower."""
    rng = np.random.default_rng(seed)
    first, second, mu = 10 ** rng.uniform(-2, 0.3, 3)
    rounds = [mechanisms.RandomizedResponse(first), mechanisms.Pure(second), mechanisms.Gaussian(1 / (mu / 3))]
    counts = rng.integers(0, 9, (100, 3))
    counts[:, 2] = rng.integers(0, 3, 100)
    delta = float(10 ** rng.uniform(-10, -3))
    low, high = individual.losses(counts, rounds, delta=delta, bounds=True)
    epsilon = float(np.median(high) / 2)
    deltas = individual.losses(counts, rounds, epsilon=epsilon)
    for row, below, above, at in zip(counts, low, high, deltas, strict=True):
        kinds = [(first, int(row[0])), (second, int(row[1]))]
        square = int(row[2]) * (mpmath.mpf(mu) / 3) ** 2
        assert exact(kinds, square, above) <= delta
        assert at >= exact(kinds, square, epsilon) * (1 - mpmath.mpf(10) ** -14)
        if below > 0:
            assert exact(kinds, square, below) >= delta * (1 - 1e-9)
        assert below <= above


@pytest.mark.slow
@pytest.mark.parametrize(("z", "q"), [(0.5, 0.01), (1.0, 0.3), (3.0, 0.05), (20.0, 0.9), (0.8, 0.001)])
def test_one_step_of_the_sampled_gaussian(z, q):
    """Closed form in both directions, in forty digits: between our bounds for one step."""
    mpmath.mp.dps = 40
    for epsilon in (0.001, 0.05, 0.4):

        def ratio_at(level, z=z, q=q):
            return mpmath.mpf(z) ** 2 * mpmath.log((level - 1 + mpmath.mpf(q)) / q) + mpmath.mpf(1) / 2

        def above(x, mean, z=z):
            return mpmath.ncdf((mean - x) / mpmath.mpf(z))

        grown = mpmath.exp(mpmath.mpf(epsilon))
        x = ratio_at(grown)
        remove = (1 - mpmath.mpf(q)) * above(x, 0) + mpmath.mpf(q) * above(x, 1) - grown * above(x, 0)
        add = mpmath.mpf(0)
        if 1 / grown > 1 - q:
            x = ratio_at(1 / grown)
            add = (1 - above(x, 0)) - grown * (
                (1 - mpmath.mpf(q)) * (1 - above(x, 0)) + mpmath.mpf(q) * (1 - above(x, 1))
            )
        truth = max(remove, add)
        ours = individual.losses([[1]], [z], sample_rate=q, epsilon=epsilon)[0]
        assert truth <= ours <= truth * 1.01 + 1e-11
        if 1e-10 < truth < 0.5:
            low, high = individual.losses([[1]], [z], sample_rate=q, delta=float(truth), bounds=True)
            assert low[0] <= epsilon <= high[0]
            if truth <= 1e-3:  # above that delta hardly changes with epsilon, and 1 % of it is much epsilon
                assert high[0] <= epsilon * 1.01


def test_laplace_alone():
    """One Laplace step: delta(eps) = 1 - exp((eps - eps0)/2) in closed form."""
    for start in (0.1, 1.0, 3.0):
        delta = 1 - np.exp(-start / 4)
        low, high = individual.losses([[1]], [mechanisms.Laplace(1 / start)], delta=float(delta), bounds=True)
        assert low[0] <= start / 2 <= high[0] <= start / 2 * 1.002


def test_plain_gaussians_are_the_closed_form():
    """Rate one alone is the exact curve; beside one sampled step the series agrees with it."""
    found = individual.losses([[400], [0]], [40.0], delta=1e-6)
    assert found[0] == pytest.approx(gaussian.epsilon(0.5, delta=1e-6), rel=1e-9)
    assert found[0] >= gaussian.epsilon(0.5, delta=1e-6)
    assert found[1] == 0
    mixed = individual.losses([[400, 1]], [40.0, 50.0], sample_rate=[1.0, 1e-5], delta=1e-6)
    assert found[0] < mixed[0] < found[0] * 1.001


def test_nothing_contributed_costs_nothing_and_more_costs_more():
    """Infinite noise is free; epsilon rises with steps and falls with delta and noise."""
    counts = np.array([[0, 9], [1000, 0], [2000, 0], [2000, 9]])
    found = individual.losses(counts, [3.0, np.inf], sample_rate=0.01, delta=[1e-6, 1e-5])
    assert found.shape == (2, 4)
    assert found[0, 0] == 0
    assert found[0, 1] < found[0, 2] == found[0, 3]
    assert (found[0, 1:] > found[1, 1:]).all()


def test_delta_and_epsilon_are_inverse():
    """The delta at the epsilon found is the delta asked for, to a tenth of a per cent."""
    counts, noise = [[3000, 100], [10, 5000]], [4.0, 9.0]
    found = individual.losses(counts, noise, sample_rate=0.02, delta=1e-5)
    for person, epsilon in enumerate(found):
        delta = individual.losses(counts, noise, sample_rate=0.02, epsilon=float(epsilon))[person]
        assert delta == pytest.approx(1e-5, rel=3e-3)


def test_out_of_reach_is_infinite():
    """Beyond the certified range there is inf and never a number."""
    assert individual.losses([[100_000]], [0.5], sample_rate=0.9, delta=1e-5)[0] == np.inf
    assert individual.losses([[1]], [1e-3], sample_rate=0.5, delta=1e-5)[0] == np.inf
    assert individual.losses([[10]], [2.0], sample_rate=0.5, delta=1e-22)[0] == np.inf
    low, high = individual.losses([[3]], [mechanisms.Approximate(0.1, 1e-4)], delta=1e-5, bounds=True)
    assert high[0] == np.inf
    assert low[0] <= 0.3


@pytest.mark.parametrize(
    ("counts", "noise", "options", "words"),
    [
        ([[-1]], [1.0], {"delta": 1e-5}, "negative"),
        ([[10**12]], [1.0], {"delta": 1e-5}, "exceed"),
        ([[1.5]], [1.0], {"delta": 1e-5}, "whole"),
        ([[1]], [0.0], {"delta": 1e-5}, "noise=0.0"),
        ([[1]], [float("nan")], {"delta": 1e-5}, "noise=nan"),
        ([[1]], [1.0], {"delta": 1e-5, "sample_rate": 0.0}, "sample_rate=0.0"),
        ([[1]], [1.0], {"delta": 1e-5, "sample_rate": 1.5}, "sample_rate=1.5"),
        ([[1]], [1.0], {"delta": 0.0}, "delta=0.0"),
        ([[1]], [1.0], {}, "exactly one"),
        ([[1]], [1.0], {"epsilon": -1.0}, "epsilon=-1.0"),
        ([[1, 2]], [1.0], {"delta": 1e-5}, "shape"),
    ],
)
def test_bad_input_is_refused(counts, noise, options, words):
    """Clear errors, which name the argument and the rule."""
    with pytest.raises(ArgumentError, match=words):
        individual.losses(counts, noise, **options)


def test_rounds_without_a_known_distribution_are_refused():
    """A Rényi curve has no privacy loss distribution."""
    with pytest.raises(Unsupported, match="Zcdp"):
        individual.losses([[1]], [mechanisms.Zcdp(0.1)], delta=1e-5)


MIXED = [
    mechanisms.SampledGaussian(2.0, 1.0, 0.01),
    mechanisms.SampledGaussian(5.0, 1.0, 0.2),
    mechanisms.Gaussian(9.0),
    mechanisms.Laplace(8.0),
    mechanisms.Pure(0.05),
]


@pytest.mark.quick(2)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("kinds", [MIXED, MIXED[:1] + MIXED[2:3]], ids=["mixed", "gaussians"])
def test_the_same_on_torch(kinds, dtype):
    """PyTorch tensors give the same bounds as NumPy arrays: upper and lower epsilons at several deltas, deltas at
    several epsilons, and the dominating mu; people without steps and plain Gaussian ones among them."""
    torch = pytest.importorskip("torch")
    counts = np.random.default_rng(3).integers(0, 100, (12, len(kinds)))
    counts[0], counts[1], counts[1, -1 if len(kinds) == 2 else 2] = 0, 0, 30
    tensor = torch.from_numpy(counts).to(getattr(torch, dtype))
    ours = individual.losses(counts, kinds, delta=[1e-6, 1e-3], bounds=True)
    theirs = individual.losses(tensor, kinds, delta=[1e-6, 1e-3], bounds=True)
    for mine, yours in zip(ours, theirs, strict=True):
        assert isinstance(yours, np.ndarray)
        assert np.allclose(mine, yours, rtol=1e-10)
    deltas = [individual.losses(each, kinds, epsilon=[0.0, 0.2, 1.0]) for each in (counts, tensor)]
    assert deltas[0].shape == (3, 12)
    assert np.allclose(*deltas, rtol=1e-8)
    assert np.allclose(deltas[0][1], individual.losses(counts, kinds, epsilon=0.2))
    mu = [individual.dominating_mu(each[:3], kinds, slack=1e-4, points=40) for each in (counts, tensor)]
    assert np.allclose(*mu, rtol=1e-8)

"""The learning rate that LogisticRegression takes where none is given."""

from math import sqrt

import numpy as np
import pytest

from almoner.errors import ArgumentError
from almoner.mechanisms import Gaussian
from almoner.training import LogisticRegression
from almoner.training._linear.descent import rate_of

STEP = Gaussian(20.0, 1.0)


def people(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that overlap, along one of ten directions; records of norm about 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 10)) / sqrt(10)
    return x, (x[:, 0] + 0.2 * rng.normal(size=count) > 0).astype(int)


@pytest.mark.parametrize(("steps", "momentum"), [(1, 0.0), (50, 0.0), (50, 0.9)])
def test_noise_alone_moves_each_parameter_by_two(steps: int, momentum: float):
    """Descent over noise alone, with the rule's rate, ends at a standard deviation of 2 (less the end of momentum)."""
    rng, divisor = np.random.default_rng(1), 10.0
    rate = rate_of(None, STEP, steps, divisor, momentum=momentum)
    place, velocity = np.zeros(20_000), np.zeros(20_000)
    for _ in range(steps):
        velocity = momentum * velocity - rate / divisor * rng.normal(0.0, STEP.sigma, len(place))
        place += velocity
    assert place.std() == pytest.approx(2.0, rel=0.02 if momentum == 0 else 0.2)


def test_what_is_given_is_taken():
    """A rate that is given is the rate, also above what the rule gives at most."""
    assert rate_of(100.0, STEP, 3, 1.0) == 100.0
    assert rate_of(None, Gaussian(1e-9, 1.0), 3, 1e6) == 16.0
    assert rate_of(None, Gaussian(1e-9, 1.0), 3, 1e6, most=4.0) == 4.0


@pytest.mark.parametrize("wrong", [0.0, -1.0, float("nan"), float("inf")])
def test_wrong_rates_are_refused(wrong: float):
    """No rate of zero or less, or without a size; nothing is trained."""
    x, y = people(20)
    with pytest.raises(ArgumentError, match="learning_rate"):
        LogisticRegression(learning_rate=wrong, classes=[0, 1], n_people=20).fit(x, y)
    with pytest.raises(ArgumentError, match="learning_rate"):
        LogisticRegression(learning_rate=wrong, classes=[0, 1], n_people=20).partial_fit(x, y, range(20))


def test_the_card_and_the_model_say_which_rate():
    """It follows from the plan and the public number of people: more of them, a larger epsilon, a larger rate."""
    x, y = people(400)
    found = []
    for epsilon, count in ((0.3, 400), (0.6, 400), (0.6, 800)):
        model = LogisticRegression(epsilon=epsilon, classes=[0, 1], n_people=count, steps=50, seed=1).fit(x, y)
        noise = model.card_.noise_multiplier * model.card_.max_grad_norm
        assert (
            model.learning_rate_
            == model.card_.learning_rate
            == pytest.approx(0.4 * count / (noise * sqrt(50)), rel=0.01)
        )
        found.append(model.learning_rate_)
    assert found[0] < found[1] < found[2]
    assert found[2] == pytest.approx(2 * found[1], rel=0.01)


def test_it_follows_from_the_noisy_count_alone():
    """Where the people are counted with noise, the rate is that of the divisor on the card, which is public."""
    x, y = people(400)
    model = LogisticRegression(epsilon=0.6, classes=[0, 1], steps=50, seed=1).fit(x, y)
    noise = model.card_.noise_multiplier * model.card_.max_grad_norm
    assert model.card_.divisor != 400
    assert model.learning_rate_ == pytest.approx(0.4 * model.card_.divisor / (noise * sqrt(50)), rel=0.01)


@pytest.mark.slow
def test_few_people_are_not_drowned_in_noise():
    """With 300 people at epsilon 0.3 it scores more than the rate that suits 30,000; twenty seeds, paired."""
    x, y = people(300)
    fresh, labels = people(5000, seed=1)
    common = {"epsilon": 0.3, "classes": [0, 1], "n_people": 300, "steps": 100, "individual": False}

    def score(seed: int, **rate: float) -> float:
        return float(LogisticRegression(**common, **rate, seed=seed).fit(x, y).score(fresh, labels))

    gains = np.array([score(seed) - score(seed, learning_rate=16.0) for seed in range(20)])
    assert gains.mean() > 3 * gains.std() / sqrt(len(gains))


def test_in_a_stream_it_is_at_most_four():
    """Nobody knows how many calls a stream will have, so little noise in one call is no reason for a long step."""
    x, y = people(400)
    model = LogisticRegression(epsilon=3.0, classes=[0, 1], n_people=400, steps=1, seed=1)
    assert model.partial_fit(x, y, range(400)).learning_rate_ == 4.0
    few = LogisticRegression(epsilon=0.2, classes=[0, 1], n_people=4, steps=1, seed=1)
    assert few.partial_fit(x[:4], y[:4], range(4)).learning_rate_ < 1.0
    assert few.card_.learning_rate == few.learning_rate_

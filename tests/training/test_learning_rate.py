"""The learning rate that LogisticRegression takes where none is given."""

from math import sqrt

import numpy as np
import pytest

from almoner.errors import ArgumentError
from almoner.mechanisms import Gaussian
from almoner.training import LinearRegression, LogisticRegression

STEP = Gaussian(20.0, 1.0)


def rate_of(model=LogisticRegression, *, given=None, step=STEP, steps=3, divisor=1.0, most=16.0, **course) -> float:
    """The rate that a model takes for a step of this noise."""
    return model(learning_rate=given, steps=steps)._rate(step, divisor, most, **course)


def people(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that overlap, along one of ten directions; records of norm about 1."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 10)) / sqrt(10)
    return x, (x[:, 0] + 0.2 * rng.normal(size=count) > 0).astype(int)


@pytest.mark.parametrize(("steps", "momentum"), [(1, 0.0), (50, 0.0), (50, 0.9)])
def test_noise_alone_moves_each_parameter_by_two(steps: int, momentum: float):
    """Descent over noise alone, with the rule's rate, ends at a standard deviation of 2 (less the end of momentum)."""
    rng, divisor = np.random.default_rng(1), 10.0
    rate = rate_of(steps=steps, divisor=divisor, momentum=momentum)
    place, velocity = np.zeros(20_000), np.zeros(20_000)
    for _ in range(steps):
        velocity = momentum * velocity - rate / divisor * rng.normal(0.0, STEP.sigma, len(place))
        place += velocity
    assert place.std() == pytest.approx(2.0, rel=0.02 if momentum == 0 else 0.2)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_steps_that_arrived_lose_a_fortieth_to_noise(momentum: float):
    """On four parabolas that few parameters allow steps to reach, noise costs 1/40 in all of them together."""
    rng, runs, course = np.random.default_rng(1), 5000, {"steps": 1000, "divisor": 400.0, "momentum": momentum}
    rate = rate_of(**course, numbers=4)
    assert rate > rate_of(**course)
    assert rate_of(**course, numbers=8) == pytest.approx(rate / 2, rel=0.01)
    steep = np.array([0.02, 0.05, 0.1, 0.2]) * (1 - momentum) / rate
    place, velocity = np.zeros((runs, 4)), np.zeros((runs, 4))
    for _ in range(400):
        noise = rng.normal(0.0, STEP.sigma / 400, place.shape)
        velocity = momentum * velocity - rate * (steep * (place + momentum * velocity) + noise)
        place += velocity
    assert (steep / 2 * place**2).sum(axis=1).mean() == pytest.approx(1 / 40, rel=0.1)


def test_what_is_given_is_taken():
    """A rate that is given is the rate, also above what the rule gives at most."""
    little = {"step": Gaussian(1e-9, 1.0), "divisor": 1e6}
    assert rate_of(given=100.0) == 100.0
    assert rate_of(**little) == rate_of(**little, numbers=5) == 16.0
    assert rate_of(**little, most=4.0) == 4.0
    assert rate_of(LinearRegression, **little, most=1.0) == 1.0
    assert rate_of(LinearRegression, **little, most=1.0, numbers=5) == 4.0


def test_it_never_falls_with_people_or_epsilon():
    """Less noise for each person is never a smaller rate, whatever the number of parameters."""
    for model, numbers in ((LogisticRegression, 5), (LogisticRegression, 500), (LinearRegression, 5)):
        rates = [rate_of(model, divisor=people, momentum=0.8, numbers=numbers) for people in np.geomspace(1, 1e6, 60)]
        assert rates == sorted(rates)


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
    for epsilon, count in ((0.1, 400), (0.2, 400), (0.2, 800)):
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


def test_few_features_allow_a_larger_rate():
    """The number of features is public: noise in three parameters costs less than in eleven, so steps may be longer."""
    x, y = people(400)
    given = {"epsilon": 1.0, "classes": [0, 1], "n_people": 400, "steps": 50, "seed": 1}
    many, few = (LogisticRegression(**given).fit(each, y) for each in (x, x[:, :2]))
    each = few.card_.noise_multiplier * few.card_.max_grad_norm / 400
    assert few.card_.learning_rate == pytest.approx(0.1 * 0.2 / (3 * each**2), rel=0.01)
    assert few.learning_rate_ > many.learning_rate_


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

"""How a person's budget is spread over the steps of a training."""

import numpy as np
import pytest

from almoner import filters, individual
from almoner.errors import ArgumentError
from almoner.mechanisms import Gaussian
from almoner.training import Descent, Everybody, LogisticGradients, LogisticRegression, descend

CLIP, SIGMA, PLANNED = 0.6, 0.8, 20
SQUARES = PLANNED * CLIP**2  # what each person may spend, in squared norms


class Silent:
    """No noise, to compare iterates."""

    def normal(self, loc, scale, size):
        return np.zeros(size)


def people_and_labels(count=60):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(count, 3)) * rng.choice([0.2, 1.0, 3.0], (count, 1))
    return x, rng.integers(0, 2, count)


def accounts_of(x):
    return individual.Filter(len(x), filters.Gaussian(mu=np.sqrt(SQUARES) / SIGMA * (1 + 1e-12)))


def run(accounts, x, y, **options):
    model = LogisticGradients(x, y, 2, intercept=False)
    common = {"learning_rate": 0.5, "divisor": len(x), "noise": Silent()}
    common |= {"descent": Descent(average=0.0, momentum=0.0, pace=options.pop("pace"))} if "pace" in options else {}
    return descend(model, model.start, accounts, Gaussian(SIGMA, CLIP), **common, **options)


@pytest.mark.parametrize(
    ("pace", "shared"), [(1.0, lambda r: r), (0.0, lambda r: 1), (0.5, lambda r: 1 + (r - 1) // 2)]
)
def test_contributions_are_clipped_to_a_share_of_what_is_left(pace, shared):
    """The loop agrees with one written out: min(C, root of what is left over the steps that share it)."""
    x, y = people_and_labels()
    accounts, steps = accounts_of(x), 2 * PLANNED
    parameters = run(accounts, x, y, steps=steps, pace=pace)
    by_hand, left = np.zeros((3, 1)), np.full(len(x), SQUARES)
    for number in range(steps):
        error = 1 / (1 + np.exp(-x @ by_hand)) - y[:, None]
        gradients = error * x
        norms = np.linalg.norm(gradients, axis=1)
        most = np.minimum(CLIP, np.sqrt(np.maximum(left, 0) / shared(steps - number)))
        clipped = np.minimum(norms, most)
        left -= clipped**2
        by_hand -= 0.5 / len(x) * (gradients * (clipped / norms)[:, None]).sum(axis=0)[:, None]
    assert np.allclose(parameters, by_hand, atol=1e-6)
    assert np.allclose(np.asarray(accounts.left()) * SIGMA**2, left, atol=1e-6)


def test_no_person_is_out_before_the_last_step():
    """People who contribute all they may have a share for each step, which never falls; with pace 0 they run out."""
    step, steps = Gaussian(SIGMA, CLIP), 3 * PLANNED
    from almoner.training._run.samplings import paced_allowance

    for pace, runs_out in ((1.0, False), (0.0, True)):
        accounts = individual.Filter(2, filters.Gaussian(mu=np.sqrt(SQUARES) / SIGMA))
        allowances = []
        for number in range(steps):
            allowance = paced_allowance(accounts, step, steps - number, pace)
            contribution = allowance * (1.0, 0.0 if number < steps // 2 else 1.0)  # the second saves at first
            assert accounts.charge(step, contribution).all()
            allowances.append(allowance)
        first, second = np.array(allowances).T
        assert (first[-1] < 1e-6) == runs_out
        if not runs_out:
            assert np.allclose(first, np.sqrt(SQUARES / steps), rtol=1e-6)
            assert (np.diff(second) > -1e-7).all()
            assert second[steps // 2] == pytest.approx(np.sqrt(2 * SQUARES / steps), rel=1e-6)


def test_with_the_planned_number_of_steps_it_is_plain_descent():
    """No one is clipped further than by the clip while each can pay for it in every step that is left."""
    x, y = people_and_labels()
    plain = Everybody(len(x), filters.Gaussian(mu=np.sqrt(SQUARES) / SIGMA * (1 + 1e-12)))
    parameters = run(accounts_of(x), x, y, steps=PLANNED)
    assert np.array_equal(parameters, run(plain, x, y, steps=PLANNED))


def hard_to_tell():
    """46 per cent of people have label 1, and a weak feature points to the label of 65 per cent of all."""
    rng = np.random.default_rng(0)
    y = (rng.random(4000) < 0.46).astype(int)
    side = np.where(rng.random(4000) < 0.65, 2 * y - 1, 1 - 2 * y)
    return np.column_stack([np.ones(len(y)), 0.1 * side]), y


def test_pacing_keeps_a_model_that_algorithm_8_ruins():
    """Where people of one label pay the clip in every step they leave together, unless their budgets are paced."""
    x, y = hard_to_tell()
    settings = {"epsilon": 2.0, "max_grad_norm": 0.45, "learning_rate": 4.0, "steps": 100}
    common = {"classes": [0, 1], "n_people": len(y), "seed": 1, "fit_intercept": False}
    scores = {}
    for pace in (0.0, 1.0):
        descent = Descent(average=0.0, momentum=0.0, extra_steps=25, pace=pace)
        scores[pace] = LogisticRegression(descent=descent, **settings, **common).fit(x, y).score(x, y)
    assert scores[0.0] < 0.56
    assert scores[1.0] > 0.62


@pytest.mark.parametrize("pace", [-0.1, 1.1, float("nan"), None, "even"])
def test_a_pace_outside_its_range_is_refused(pace):
    """The error names the argument, before anything is charged."""
    x, y = people_and_labels(6)
    accounts = accounts_of(x)
    with pytest.raises(ArgumentError, match="pace"):
        run(accounts, x, y, steps=3, pace=pace)
    assert not np.asarray(accounts.spent()).any()


def test_a_card_says_how_budgets_were_spread():
    """Evenly, with a pace, or until nothing is left."""
    x, y = people_and_labels(40)
    common = {"classes": [0, 1], "n_people": 40, "seed": 1, "steps": 3}
    words = {
        1.0: "spread evenly over the steps that are left",
        0.5: "spread with pace 0.5 over the steps that are left",
        0.0: "the last contribution spends the remainder",
    }
    for pace, sentence in words.items():
        card = LogisticRegression(descent=Descent(pace=pace), **common).fit(x, y).card_
        assert card.pace == pace
        assert sentence in card.to_markdown()

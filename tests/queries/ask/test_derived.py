"""What follows from an answer at no cost: differences, the largest, running totals, moving means, shares and roots."""

from math import inf, sqrt

import numpy as np
import pytest

from almoner.errors import ArgumentError
from almoner.queries import Count, Histogram, Mean, People, Quantiles, Sum, Top, Variance
from almoner.queries._ask.answer import answer
from almoner.queries._questions.intervals import NoiseBand, share_interval
from almoner.queries._questions.noise import STEPS

RUNS = 800
GROUPS = 12
BY = {"month": list(range(GROUPS))}
SIZES = np.array([30.0 + 7 * (place % 5) for place in range(GROUPS)])
PRICES = pytest.mark.parametrize("price", [{"sigma": 6.0}, {"epsilon": 1.0}], ids=["gaussian", "laplace"])


def answers(asked, exact, runs=RUNS, floor=None):
    """Answers with fresh noise to a question whose numbers, in units of the largest entry, are exactly these."""
    random, size = np.random.default_rng(8), asked.noise * STEPS
    draw = random.laplace if asked.pure else random.normal
    for _ in range(runs):
        noisy = np.rint(np.asarray(exact) * asked.steps + draw(0, size, len(exact)))
        yield answer(asked, [int(each) for each in noisy], "key", floor=asked.price if floor is None else floor)


def covered(pairs):
    """The share of (interval, truth) in which the truth is inside."""
    return np.mean([low <= truth <= high for (low, high), truth in pairs])


@PRICES
def test_a_difference_of_counts_is_covered_and_no_wider_than_it_must_be(price):
    """Noise on both counts is in it; the interval of one count alone fails."""
    asked = Count(by=BY, clip=1, at_most=1, **price)
    truth, found = SIZES[1] - SIZES[0], list(answers(asked, SIZES))
    made = [each.difference(1, 0) for each in found]
    assert covered((each.interval, truth) for each in made) >= 0.93
    assert [each.interval for each in made] == [each.truth_interval for each in made]
    halves = [(high - low) / 2 for low, high in (each.intervals[0] for each in found)]
    wrong = [(each.value - half, each.value + half) for each, half in zip(made, halves, strict=True)]
    assert covered((interval, truth) for interval in wrong) < 0.9
    assert made[0].groups == [("1 - 0",)]


@PRICES
def test_a_difference_of_means_is_covered(price):
    """Two intervals that hold together are subtracted; the plain difference of the ends that face each other fails."""
    asked = Mean("n", 0, 2, by={"g": ["a", "b"]}, bounds_hold=True, **price)
    exact = [200.0, 60.0, 150.0, -30.0]
    if asked.pure:  # halves of their sum and difference are released
        exact = [130.0, -70.0, 60.0, -90.0]
    truth = (1 + 60 / 200) - (1 - 30 / 150)
    made = [(each.difference("a", "b"), each) for each in answers(asked, exact, 500)]
    assert covered((each.interval, truth) for each, _ in made) >= 0.95
    assert covered((each.truth_interval, truth) for each, _ in made) >= 0.95
    wrong = [(x[0] - y[0], x[1] - y[1]) for x, y in (one.intervals for _, one in made)]
    assert covered((tuple(sorted(each)), truth) for each in wrong) < 0.9


@PRICES
def test_the_largest_is_covered_although_it_was_chosen(price):
    """With twelve equal groups the interval of a single one fails, and that for all together holds."""
    asked = Count(by=BY, clip=1, **price)
    found = list(answers(asked, [50.0] * GROUPS))
    assert covered((each.largest(1).interval, 50.0) for each in found) >= 0.95
    assert covered((each.intervals[np.argmax(each.values)], 50.0) for each in found) < 0.85
    top = found[0].largest(3)
    assert top.values == sorted(found[0].values, reverse=True)[:3]
    assert [found[0].values[found[0].groups.index(group)] for group in top.groups] == top.values


@PRICES
def test_running_totals_and_moving_means_are_covered(price):
    """Each of them by its own interval; that of the last group alone fails for the total."""
    asked = Count(by=BY, clip=1, at_most=1, **price)
    found = list(answers(asked, SIZES))
    running = [each.running() for each in found]
    for place in (0, GROUPS // 2, GROUPS - 1):
        assert covered((each.intervals[place], SIZES[: place + 1].sum()) for each in running) >= 0.93
        assert covered((each.truth_intervals[place], SIZES[: place + 1].sum()) for each in running) >= 0.93
    assert (
        covered(
            ((each.values[-1] - half, each.values[-1] + half), SIZES.sum())
            for each, half in (
                (made, (one.interval[1] - one.interval[0]) / 2) for made, one in zip(running, found, strict=True)
            )
        )
        < 0.6
    )
    moving = [each.moving(3) for each in found]
    for place in (1, GROUPS - 1):
        wanted = SIZES[max(0, place - 2) : place + 1].mean()
        assert covered((each.intervals[place], wanted) for each in moving) >= 0.93


def test_what_a_pace_took_is_allowed_for():
    """People who count for at least a share of themselves: their totals are covered; the noise alone covers nothing."""
    asked = Count(by={"month": [0, 1, 2, 3]}, clip=1, at_most=1, per_group=1, sigma=2.0, pace=2)
    whole, floor = np.array([400.0, 500.0, 300.0, 600.0]), asked.price // 2
    least = None
    for each in answers(asked, whole * 0.75, 300, floor=floor):
        made = each.running()
        low, high = made.truth_intervals[-1]
        assert low <= whole.sum() <= high
        assert not made.intervals[-1][0] <= whole.sum() <= made.intervals[-1][1]
        low, high = each.difference(1, 0).truth_interval
        least = min(least or inf, high - low)
        assert low <= 100 <= high
        assert each.shares().truth_intervals is None
    assert least > 100


@PRICES
def test_shares_are_covered(price):
    """The noise on the others is in the total; a total that is taken to be exact fails."""
    asked = Count(by=BY, clip=1, at_most=1, **price)
    exact = np.array([300.0] + [27.0] * (GROUPS - 1))
    found = [(each, each.shares()) for each in answers(asked, exact)]
    for place in (0, 1):
        share = exact[place] / exact.sum()
        assert covered((made.intervals[place], share) for _, made in found) >= 0.93
        assert covered((made.truth_intervals[place], share) for _, made in found) >= 0.93
    wrong = [[end / sum(each.values) for end in each.intervals[0]] for each, _ in found]
    assert covered((interval, exact[0] / exact.sum()) for interval in wrong) < 0.85


def test_shares_solve_their_test():
    """At each end of the interval the test at that share is at its margin, by plain arithmetic."""
    noise, size = NoiseBand(3.0, False), 5
    for part, total in ((10.0, 100.0), (90.0, 100.0), (-2.0, 40.0), (0.0, 30.0)):
        value, ends = share_interval(part, total, noise, size, positive=False)
        assert ends[0] < value < ends[1]
        for share in ends:
            error = sqrt((1 - share) ** 2 + (size - 1) * share**2)
            assert abs(part - share * total) == pytest.approx(noise.margin(1) * error)
    assert share_interval(1.0, 2.0, noise, size, positive=False) == (0.5, (-inf, inf))
    assert share_interval(1.0, -2.0, noise, size, positive=True) == (None, (0.0, 1.0))


def test_bins_of_each_group_and_the_last_of_several_columns_are_lines():
    """Totals begin anew for each group of a histogram, and for each combination of the other columns."""
    asked = Histogram("n", [0, 1, 2, 3], by={"g": ["a", "b"]}, clip=1, sigma=0.02)
    (found,) = answers(asked, [1, 2, 3, 10, 20, 30], 1)
    assert found.running().values[1] == pytest.approx([10, 30, 60], abs=0.9)
    assert found.shares().values[0] == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.05)
    assert found.difference("b", "a").value == pytest.approx([9, 18, 27], abs=0.9)
    asked = Sum("n", -4, 8, by={"g": ["a", "b"], "m": [1, 2]}, clip=1, sigma=0.02)
    (found,) = answers(asked, [1, 2, 10, 20], 1)
    assert found.running().values == pytest.approx([8, 24, 80, 240], abs=0.9)
    assert found.difference(("b", 2), ("a", 2)).value == pytest.approx(144, abs=0.9)
    assert len(found.running().to_pandas()) == 4
    assert found.running().estimand == "running totals of the sum of n over rows, each entry clipped to [-4, 8]"


def test_roots_are_standard_deviations():
    """Both ends, too."""
    (found,) = answers(Variance("n", 0, 2, sigma=0.01), [100.0, 0.0, 36.0], 1)
    made = found.roots()
    assert made.value == sqrt(found.value) == pytest.approx(0.6, abs=1e-3)
    assert made.interval == tuple(map(sqrt, found.interval))


def test_what_cannot_be_said_is_refused():
    """Kinds without such totals, groups that are not there, and what was made of an answer already."""
    (counts,) = answers(People(by={"g": ["a", "b"]}, sigma=1.0), [5, 3], 1)
    (tops,) = answers(Top(1, "g", ["a", "b"], clip=1, sigma=1.0), [5, 3], 1)
    (means,) = answers(Mean("n", 0, 1, by={"g": ["a", "b"]}, sigma=1.0), [5, 3, 2, 1], 1)
    edges = list(range(200))
    chosen = answer(Quantiles("n", edges, by={"g": ["a", "b"]}, sigma=1.0), [5, 3, 2, 1], "key")
    assert chosen.question.choice is not None
    with pytest.raises(ArgumentError, match="'c' is no group of the answer; there are"):
        counts.difference("a", "c")
    for wrong in (tops.running, means.shares, counts.roots, counts.running().running, means.running):
        with pytest.raises(ArgumentError):
            wrong()
    for wrong in (tops, chosen, counts.running()):
        with pytest.raises(ArgumentError, match="chosen=0"):
            wrong.difference("a", "b")
    with pytest.raises(ArgumentError, match="k=0 must be a whole number"):
        counts.largest(0)

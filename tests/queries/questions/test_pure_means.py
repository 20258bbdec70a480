"""Means and variances under pure budgets: a row's parts add up to one, and what is read off them is what was asked."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner.queries import Mean, Variance
from almoner.queries._ask.answer import answer
from almoner.queries._questions.kinds_of import described
from almoner.queries._questions.noise import STEPS, noisy
from almoner.queries._questions.row_contributions import Entry, Product
from ledgers import exact
from sessions import opened, without_noise

PRICE = {"epsilon": 0.5}
KINDS = [
    Mean("v", -3, 7, **PRICE),
    Mean("v", -3, 7, per="row", clip=4, **PRICE),
    Mean("v", -3, 7, per="total", **PRICE),
    Variance("v", -3, 7, **PRICE),
    Variance("v", -3, 7, per="row", clip=4, **PRICE),
    Variance("v", -3, 7, per="total", **PRICE),
]
WHO = [1, 1, 1, 2, 3, 4, 4, 5, 6, 6, 6, 6]
ENTRIES = [-3.0, 0.1, 6.9, 7.0, -9.0, 2.0, 1.999999, 1e12, 3.3, None, -3.0, 0.7]


def length(coordinates, entry):
    """L1 norm of a row with this entry, exactly, in full rows before it is rounded to steps."""
    total = Fraction(0)
    for each in coordinates:
        parts = (each.first, each.second) if isinstance(each, Product) else (each,) * each.power
        value = Fraction(1)
        for part in parts:
            value *= (Fraction(entry) - Fraction(part.center)) / Fraction(part.scale)
        total += abs(value)
    return total


@pytest.mark.parametrize("asked", [KINDS[0], KINDS[3]])
def test_parts_of_a_row_add_up_to_one(asked):
    """For every entry between the bounds; with parts of half the scale, as the entry alone has, it is two or more."""
    entries = [Fraction(k, 8) for k in range(-24, 57)]
    assert {length(asked.row(), each) for each in entries} == {1}
    wrong = [
        Entry(one.column, one.low, one.high, one.center, asked.half) for one in asked.row() if isinstance(one, Entry)
    ]
    assert max(length(wrong, each) for each in entries) == 2


def session_of(path, people):
    kept = [place for place, who in enumerate(WHO) if who in people]
    rows = pa.table({"who": [WHO[k] for k in kept], "v": pa.array([ENTRIES[k] for k in kept], pa.float64())})
    return opened(path, rows, budget=filters.Basic(epsilon=1e3))


@pytest.mark.parametrize("asked", KINDS, ids=lambda asked: f"{type(asked).__name__} {asked.per}")
def test_removing_a_person_moves_sums_by_no_more_than_was_charged(tmp_path, asked):
    """In L1 norm, in whole steps, for each person; nobody is charged more than the price."""
    with session_of(tmp_path / "all", set(WHO)) as session:
        whole, _ = exact(session, asked)
        session.analyst("ann").ask(asked, key="a")
        spent = {who: session.ledger.spent(who) for who in set(WHO)}
    for who in set(WHO):
        with session_of(tmp_path / f"{who}", set(WHO) - {who}) as session:
            moved = sum(abs(a - b) for a, b in zip(whole, exact(session, asked)[0], strict=True))
        assert moved / STEPS / asked.noise * 1e15 <= spent[who] * (1 + 1e-9) <= asked.price * (1 + 1e-9)


@pytest.mark.parametrize("asked", KINDS, ids=lambda asked: f"{type(asked).__name__} {asked.per}")
def test_the_answer_is_that_of_a_count_and_sums(tmp_path, asked):
    """Without noise it is what the form without correlated noise tells, whose rows are twice or three times as long."""
    with session_of(tmp_path / "l", set(WHO)) as session:
        other = type(asked)(**{**described_fields(asked), "correlated": False})
        assert without_noise(session, asked) == pytest.approx(without_noise(session, other), abs=1e-4)


def described_fields(asked):
    values = described(asked)
    del values["ask"]
    return values


@pytest.mark.parametrize("per", ["row", "person"])
@pytest.mark.parametrize("kind", [Mean, Variance])
def test_noise_is_less_and_intervals_are_right(kind, per):
    """The errors over 400 draws, beside the other form; 95 % of intervals hold it, and they are not much too wide."""
    generator = np.random.default_rng(4)
    t = generator.beta(2, 4, 2000)
    parts = {True: [t, t - 1] if kind is Mean else [t**2, (1 - t) ** 2, -2 * t * (1 - t)]}
    x = 2 * t - 1
    parts[False] = [np.ones(2000), x, x**2][: 2 if kind is Mean else 3]
    truth, errors = x.mean() * 5 + 2 if kind is Mean else x.var() * 25, {}
    for correlated, columns in parts.items():
        clip = {"clip": 1} if per == "row" else {}
        asked = kind("v", -3, 7, per=per, correlated=correlated, epsilon=0.1, **clip)
        sums = [round(float(each.sum()) * asked.steps) for each in columns]
        told = [answer(asked, noisy(sums, asked.mechanism), "k") for _ in range(400)]
        errors[correlated] = np.std([each.value - truth for each in told])
        hits = sum(each.interval[0] <= truth <= each.interval[1] for each in told)
        assert hits >= 361
        width = np.mean([each.interval[1] - each.interval[0] for each in told])
        assert width <= 8 * errors[correlated]
    assert errors[True] <= 0.88 * errors[False]

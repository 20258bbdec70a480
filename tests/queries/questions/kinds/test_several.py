"""Several aggregates at one price: their values, what they share, what is charged, and intervals that hold."""

import json
import math
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner import filters
from almoner.errors import ArgumentError
from almoner.ledger import Domain, Ledger, Terms
from almoner.queries import Answer, Count, Mean, Session, Several, Sum
from almoner.queries._ask.answer import answer
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.noise import STEPS
from ledgers import exact
from sessions import opened, without_noise

ALL = {
    "rows": "count",
    "people": {"ask": "people"},
    "total": {"ask": "sum", "column": "n", "low": 0, "high": 10},
    "mean": {"ask": "mean", "column": "n", "low": 0, "high": 10, "per": "row"},
    "spread": {"ask": "variance", "column": "n", "low": 0, "high": 10, "per": "row"},
    "amount": {"ask": "mean", "column": "amount", "low": -5, "high": 5, "per": "row"},
    "each": {"ask": "mean", "column": "amount", "low": -5, "high": 5},
    "totals": {"ask": "mean", "column": "amount", "low": -5, "high": 5, "per": "total"},
    "signed": {"ask": "sum", "column": "amount", "low": -5, "high": 5},
    "wide": {"ask": "sum", "column": "n", "low": 0, "high": 2},
}
RICH = filters.Zcdp(rho=1e3)


@pytest.mark.parametrize("by", [{}, {"place": ["x", "y", "z"]}, {"n": [*range(1, 9)], "place": ["x", "y", "z"]}])
@pytest.mark.parametrize("where", [None, "n > 1 and n is not null", "amount is not null"])
def test_each_aggregate_is_that_of_its_own_question(tmp_path, by, where):
    """In one group, in few and in many: without noise each value is what the aggregate alone would give."""
    asked = Several(ALL, by=by, where=where, clip=20, sigma=300.0)
    with opened(tmp_path / "l", budget=RICH) as session:
        together = without_noise(session, asked)
        for place, (name, member) in enumerate(asked.members):
            alone = replace(
                member, by=by, where=where, sigma=300.0, clip=20 if member.most_in_group() is None else None
            )
            for one, other in zip(together, without_noise(session, alone), strict=True):
                if other is None:
                    assert one[place] is None, name
                else:
                    assert one[place] == pytest.approx(other, abs=2e-4), name


def test_an_answer_is_the_same_when_it_is_read_again(tmp_path):
    """A record does not keep the order of aggregates; each name has its value, also asked again in another order."""
    given = {"z": "count", "a": "people", "m": {"ask": "sum", "column": "n", "low": 0, "high": 10}}
    with opened(tmp_path / "l", budget=RICH) as session:
        analyst = session.analyst("ann")
        first = analyst.ask(Several(given, clip=20, sigma=300.0), key="k")
        again = analyst.ask(Several(dict(sorted(given.items())), clip=20, sigma=300.0), key="k")
        listed = [first, again, analyst.answers()[0], Answer.recorded(analyst.so_far().find("k").public)]
        told = [dict(zip(dict(each.question.members), each.value, strict=True)) for each in listed]
        assert told == [told[0]] * 4


def test_shared_numbers_are_released_once():
    """A mean's count is the count where no entry is missing; a sum beside it is read off it, with less noise."""
    mean = {"ask": "mean", "column": "n", "low": 0, "high": 10, "per": "row"}
    total = {"ask": "sum", "column": "n", "low": 0, "high": 10}
    three = {"rows": "count", "mean": mean, "total": total}
    assert Several(three, where="n > 3", clip=1, rho=0.1).coordinates == 2
    assert Several(three, where="paid and n is not null", clip=1, rho=0.1).coordinates == 2
    assert Several(three, where="n > 3 or paid", clip=1, rho=0.1).coordinates == 3
    assert Several(three, clip=1, rho=0.1).coordinates == 3
    assert Several({"rows": "count", "total": total}, where="not paid", clip=1, rho=0.1).coordinates == 2
    one = Several(three, where="n > 3", clip=1, rho=0.1)
    alone = Sum("n", 0, 10, clip=1, rho=0.1 / 3)
    widths = [high - low for low, high in one.read([500.0, 100.0], band(one))[1]]
    assert widths[2] < np.ptp(alone.read([0.5], band(alone))[1])  # at a third of the price each
    assert widths[0] < np.ptp(Count(clip=1, rho=0.1 / 3).read([500.0], band(Count(clip=1, rho=0.1 / 3)))[1])


def band(asked):
    from almoner.queries._questions.intervals import NoiseBand

    return NoiseBand(asked.spread * STEPS / asked.steps, asked.pure)


ENTRY = st.one_of(st.none(), st.floats(-20, 20), st.sampled_from([math.inf, -math.inf, math.nan, 1e300, 0.0]))
ROW = st.tuples(st.sampled_from("abc"), ENTRY, ENTRY, st.sampled_from(["x", "y", "z"]))
COLUMN = {"x": st.sampled_from(["x", "y"]), "low": st.integers(-9, 0), "high": st.integers(1, 9)}
MEMBER = st.one_of(
    st.just({"ask": "count"}),
    st.just({"ask": "people"}),
    st.builds(
        lambda ask, column, low, high, per: {
            "ask": ask, "column": column, "low": low, "high": high, **({} if ask == "sum" else {"per": per})
        },
        st.sampled_from(["sum", "mean", "variance"]),
        *COLUMN.values(),
        st.sampled_from(["row", "person", "total"]),
    ),
)  # fmt: skip


def moved(session, asked, without):
    """How far the removal of a person moves the vector, in the norm that is charged, and what the person is charged."""
    (sums, units), (others, _) = exact(session, asked), exact(without, asked)
    steps = [a - b for a, b in zip(sums, others, strict=True)]
    if asked.pure:
        return sum(map(abs, steps)) / (asked.noise * STEPS), units.get("a", 0) / 1e15
    return sum(each**2 for each in steps) / (2 * (asked.noise * STEPS) ** 2), units.get("a", 0) / 1e15


def pair(folder, rows, pure):
    """Sessions over rows, with and without those of a."""
    budget = filters.Basic(epsilon=5e3) if pure else filters.Zcdp(rho=5e3)
    for name, kept in (("all", rows), ("less", [row for row in rows if row[0] != "a"])):
        who, x, y, g = ([row[place] for row in kept] for place in range(4))
        numbers = {"x": pa.array(x, pa.float64()), "y": pa.array(y, pa.float64())}
        table = pa.table({"who": pa.array(who, pa.string()), **numbers, "g": pa.array(g, pa.string())})
        yield opened(folder / name, table, budget=budget)


def differential(factory, rows, members, more, pure):
    """(Moved, charged) of a question over some rows, for a's removal."""
    asked = Several(dict(enumerate_names(members)), clip=2.5, **more, **({"epsilon": 0.4} if pure else {"rho": 0.3}))
    ours, theirs = pair(factory.mktemp("several"), rows, pure)
    with ours, theirs:
        return moved(ours, asked, theirs)


def enumerate_names(members):
    return ((f"m{place}", each) for place, each in enumerate(members))


@pytest.mark.quick(6)
@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=12),
    members=st.lists(MEMBER, min_size=1, max_size=5),
    by=st.booleans(),
    where=st.sampled_from([None, "x is not null", "y > -3"]),
    pure=st.booleans(),
)
def test_nobody_moves_more_than_is_charged(tmp_path_factory, rows, members, by, where, pure):
    """Random data and aggregates: one person's removal moves the whole vector by no more than that person paid for."""
    more = {"where": where, "by": {"g": ["x", "y"]} if by else {}}
    came, charged = differential(tmp_path_factory, rows, members, more, pure)
    assert came <= charged * (1 + 1e-9) + 1e-15
    assert charged <= (0.4 if pure else 0.3) * (1 + 1e-12)


@pytest.mark.parametrize("pure", [True, False])
def test_a_number_released_twice_and_charged_once_is_caught(tmp_path_factory, pure):
    """The wrong variant, in which a shared count is in the vector twice and in the charge once."""
    from almoner.queries._sql import compiler

    members = ["count", {"ask": "mean", "column": "x", "low": 0, "high": 2, "per": "row"}]
    rows = [("a", 1.5, 1.0, "x"), ("a", 0.5, None, "x"), ("b", 1.0, 1.0, "x")]
    right = compiler._length

    def once(names, **how):
        return right(names[1:], **how)

    with patch.object(compiler, "_length", once):
        came, charged = differential(tmp_path_factory, rows, members, {}, pure)
    assert came > charged * 1.1
    came, charged = differential(tmp_path_factory, rows, members, {}, pure)
    assert came <= charged * (1 + 1e-9)


@pytest.mark.parametrize("price", [{"rho": 0.5}, {"epsilon": 2.0}])
def test_intervals_and_truth_intervals_hold_for_each_aggregate(tmp_path, price):
    """Each holds in 95 % of releases or more, at a clip that takes much away, as the aggregate's own would."""
    generator = np.random.default_rng(4)
    who = np.repeat(np.arange(300), np.minimum(1 + generator.geometric(0.1, 300), 30))
    value = np.clip(generator.normal(3 + who / 60, 2), 0, 12)
    table = pa.table({"who": who, "v": value})
    asked = Several(
        {
            "rows": "count",
            "total": {"ask": "sum", "column": "v", "low": 0, "high": 12, "bounds_hold": True},
            "mean": {"ask": "mean", "column": "v", "low": 0, "high": 12, "per": "row", "bounds_hold": True},
            "spread": {"ask": "variance", "column": "v", "low": 0, "high": 12, "per": "row", "bounds_hold": True},
        },
        where="v is not null", clip=12, at_most=40, **price,
    )  # fmt: skip
    budget = filters.Basic(epsilon=1e3) if asked.pure else RICH
    with opened(tmp_path / "l", table, budget=budget) as session:
        sums = np.array(exact(session, asked)[0], float)
    wanted, held, clipped = [len(value), value.sum(), value.mean(), value.var()], np.zeros(4), np.zeros(4)
    plain = answer(asked, [int(each) for each in sums], "key", floor=asked.price).values[0]
    for seed in range(200):
        draws = np.random.default_rng(seed)
        noise = draws.laplace(0, 1 / math.sqrt(2), len(sums)) if asked.pure else draws.normal(0, 1, len(sums))
        one = answer(asked, [round(each) for each in sums + noise * asked.spread * STEPS], "key", floor=asked.price)
        held += [low <= value <= high for (low, high), value in zip(one.truth_interval, wanted, strict=True)]
        clipped += [low <= value <= high for (low, high), value in zip(one.interval, plain, strict=True)]
    assert min(held) >= 0.91 * 200
    assert min(clipped) >= 0.91 * 200


def test_answers_have_a_column_for_each_aggregate(tmp_path):
    """Wide tables: the keys, then each value with its ends; long ones name the aggregate; both for pandas and Arrow."""
    asked = Several({"rows": "count", "n": {"ask": "mean", "column": "n", "low": 0, "high": 9}}, clip=1, sigma=9.0)
    with opened(tmp_path / "l", budget=RICH) as session:
        told = session.analyst("ann").ask(replace(asked, by={"place": ["x", "y"]}), key="a")
        again = session.analyst("ann").ask(replace(asked, by={"place": ["x", "y"]}), key="a")
        assert session.verify(replay=True)[-1].holds
    assert told == again
    assert list(told.columns()) == ["place", "aggregate", "value", "low", "high"]
    wide = told.columns(wide=True)
    assert list(wide) == ["place", "rows", "rows_low", "rows_high", "n", "n_low", "n_high"]
    assert wide["rows"] == [each[0] for each in told.values]
    assert told.to_arrow(wide=True).column_names == list(wide)
    assert told.to_pandas(wide=True).shape == (2, 7)


def test_several_as_plain_values(tmp_path):
    """What is described is the same question again, also through JSON; bounds may be left to a data set."""
    asked = Several(ALL, by={"place": ["x"]}, clip=3, rho=0.1)
    assert question(json.loads(json.dumps(described(asked)))) == asked
    hours = {"hours": {"ask": "mean", "column": "n"}}
    with Ledger.open(tmp_path / "l", Terms(filters.Zcdp(rho=1.0), person="VARCHAR"), create=True) as book:
        book.dataset("visits", person="who", columns={"n": Domain(low=0, high=9)})
        table = pa.table({"who": ["a", "b"], "n": [1, 2]})
        with Session.open(table, person="who", ledger=book, dataset="visits") as session:
            told = session.analyst("ann").ask(Several(hours, rho=0.1), key="a")
    assert dict(told.question.aggregates)["hours"] == (("ask", "mean"), ("column", "n"), ("low", 0), ("high", 9))


@pytest.mark.parametrize(
    ("aggregates", "more"),
    [
        ({}, {}),
        ([], {}),
        ({"a": "median"}, {}),
        ({"a": {"ask": "quantiles", "column": "n", "edges": [0, 1]}}, {}),
        ({"a": {"ask": "count", "where": "n > 1"}}, {}),
        ({"a": {"ask": "count", "rho": 1.0}}, {}),
        ({"a": {"ask": "people", "spare": 1.0}}, {}),
        ({"a": {"ask": "sum", "column": "n", "low": "auto", "high": "auto"}}, {}),
        ({"a": {"ask": "sum", "column": "n", "low": 3, "high": 1}}, {}),
        ({"a": {"ask": "sum", "column": "n", "low": 3, "high": [1]}}, {}),
        ({"a": {"ask": "sum", "column": "n", "low": 0, "high": 1, "per": "row"}}, {}),
        ({"a": {"ask": "sum"}}, {}),
        ({1: "count"}, {}),
        ({"a": 3}, {}),
        ({str(place): "count" for place in range(65)}, {}),
        ({"a": "count"}, {"clip": None}),
        ({"a": "people"}, {"clip": None, "rho": None, "error": 3}),
    ],
)
def test_aggregates_that_make_no_sense(aggregates, more):
    """Each is an argument error."""
    with pytest.raises(ArgumentError):
        Several(aggregates, **{"clip": 1, "rho": 0.1, **more})


def test_a_clip_is_wanted_only_where_rows_are_counted():
    """People and means per person count once; with rows beside them the clip must be given, or can be chosen."""
    assert Several({"a": "people", "b": {"ask": "mean", "column": "n", "low": 0, "high": 1}}, rho=0.1).clip == 1
    assert Several({"a": "count", "b": "people"}, each_person={"n": "count()"}, rho=0.1).clip == 1
    assert Several({"a": "count", "b": "people"}, clip="auto", rho=0.1).open
    assert Mean("n", 0, 1, rho=0.1).clip == 1

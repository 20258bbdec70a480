"""One row for each person, before the question: what it holds, and that it holds nobody else's entries."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner.errors import ArgumentError
from almoner.queries import Count, Mean, Sum
from almoner.queries._questions.kinds_of import described, question
from ledgers import exact
from sessions import CHEAP, opened, without_noise

EVERY = {
    "visits": "count()",
    "big": "count(n > 2)",
    "place": "first(place, n)",
    "latest": "last(place, day)",
    "total": "sum(amount)",
    "any": "any(paid)",
    "all": "all(paid)",
    "kinds": "distinct(place)",
    "least": "min(n * 2)",
    "most": "max(day)",
}


@pytest.mark.quick(8)
@pytest.mark.parametrize(
    ("where", "people"),
    [
        ("visits = 3", 1),
        ("visits = 1", 2),
        ("big = 1", 3),
        ("place = 'x'", 3),
        ("place is null", 1),
        ("latest = 'z'", 1),
        ("total is null", 2),
        ("total = -1", 1),
        ("any", 4),
        ("all", 3),
        ("not all", 1),
        ("kinds = 2", 2),
        ("least = 2 and most = '2011-12-02'", 1),
        ("total / visits < 0", 1),
    ],
)
def test_steps_are_about_each_persons_rows(path, where, people):
    """Counts, sums, first and last entries, and what is true of any or all rows."""
    with opened(path) as session:
        assert without_noise(session, Count(each_person=EVERY, where=where, **CHEAP)) == [people]


def test_steps_stand_wherever_columns_do(path):
    """Also among the groups; and nobody is longer than one row, so the clip may be left out."""
    with opened(path) as session:
        groups = Count(each_person=EVERY, by={"visits": [(0, 2), (2, 3), (3, None)]}, **CHEAP)
        assert without_noise(session, groups) == [2, 1, 1]
        assert groups.clip == 1
        assert set(exact(session, groups)[1].values()) == {groups.price}
        assert without_noise(session, Mean("kinds", 0, 4, each_person=EVERY, **CHEAP)) == pytest.approx([1.25])
        assert without_noise(session, Sum("total / visits", 0, 5, clip=1, each_person=EVERY, **CHEAP)) == pytest.approx(
            [5]
        )
        assert question(json.loads(json.dumps(described(groups)))) == groups
        assert "each_person" not in described(Count(clip=1, **CHEAP))


@pytest.mark.quick(10)
@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ({}, "must be {name: aggregate}"),
        ({"a": 1}, "must be {name: aggregate}"),
        ({"a": "n"}, "must be one of"),
        ({"a": "count() + 1"}, "must be one of"),
        ({"a": "sum(sum(n))"}, "inside of an aggregate"),
        ({"a": "sum(case when min(n) > 1 then 1 end)"}, "inside of an aggregate"),
        ({"a": "first(n)"}, "takes 2 values"),
        ({"a": "count(1)"}, "not a literal alone"),
        ({"a": "sum(place)"}, "takes a whole or number, not a text"),
        ({"a": "any(n)"}, "takes a bool, not a whole"),
        ({"a": "distinct(amount)"}, "not a number"),
        ({"a": "count()", "A": "count()"}, "each name once"),
        ({"a": "sum(nothing)"}, "'nothing' is not in the data"),
    ],
)
def test_what_is_no_step_is_refused(path, steps, message):
    """By its form and the kinds of the columns, before anything is charged."""
    with opened(path) as session, pytest.raises(ArgumentError, match=message):
        session.analyst("a").quote(Count(each_person=steps, **CHEAP))


rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.floats(allow_nan=True), st.one_of(st.none(), st.integers(0, 2))), max_size=8
)


@pytest.mark.slow
@settings(max_examples=25)
@given(rows=rows, others=rows, order=st.randoms(use_true_random=False))
def test_nobody_else_changes_a_persons_row(tmp_path_factory, rows, others, order):
    """With other people's rows beside them, and in another order, a person's row is the same to the last bit."""
    asked = [
        Sum("total", -1e6, 1e6, each_person={"total": "sum(v * 1.1)", "k": "last(v, k)"}, clip=1, sigma=1000.0),
        Count(
            each_person={"k": "first(k, v)", "v": "max(v)"}, by={"k": [0, 1, 2]}, where="v > 0", clip=1, sigma=1000.0
        ),
    ]
    mixed = [*rows, *(("c", *row[1:]) for row in others)]
    order.shuffle(mixed)
    charged = []
    for listed in (rows, mixed):
        columns = [pa.array([row[place] for row in listed], kind) for place, kind in enumerate(KINDS.values())]
        with opened(tmp_path_factory.mktemp("q") / "l", pa.table(columns, names=list(KINDS))) as session:
            charged.append([exact(session, each)[1] for each in asked])
    for alone, beside in zip(*charged, strict=True):
        beside.pop("c", None)
        assert alone == beside


KINDS = {"who": pa.string(), "v": pa.float64(), "k": pa.int64()}

"""Descriptions of questions: checked when they are made, and the same after they were written down."""

import datetime
import json
import math

import pytest

from almoner.errors import ArgumentError
from almoner.queries import Count, Histogram, Quantiles, Sum, Variance
from almoner.queries._questions.kinds_of import described, question

WRONG = [
    lambda: Count(clip=1),
    lambda: Count(clip=1, sigma=1.0, rho=1.0),
    lambda: Count(clip=1, sigma=math.nan),
    lambda: Count(clip=1, sigma=0.0),
    lambda: Count(sigma=1.0, clip=math.inf),
    lambda: Count(sigma=1.0, clip=0),
    lambda: Count(clip=1, sigma=1.0, per_group=-1),
    lambda: Count(sigma=0.001, clip=1e6),
    lambda: Count(clip=1, sigma=1.0, by={"a": []}),
    lambda: Count(clip=1, sigma=1.0, by={"a": "text"}),
    lambda: Count(clip=1, sigma=1.0, by={"a": [1, 1]}),
    lambda: Count(clip=1, sigma=1.0, by={"a": [1.5]}),
    lambda: Count(clip=1, sigma=1.0, by={"a": [None]}),
    lambda: Count(clip=1, sigma=1.0, by={"a": ["x" * 1001]}),
    lambda: Count(clip=1, sigma=1.0, by={"a": range(10_000), "b": range(10_000)}),
    lambda: Sum("a", 1.0, 1.0, clip=1, sigma=1.0),
    lambda: Sum("a", 2.0, 1.0, clip=1, sigma=1.0),
    lambda: Sum("a", math.nan, 1.0, clip=1, sigma=1.0),
    lambda: Sum("a", -math.inf, 1.0, clip=1, sigma=1.0),
    lambda: Sum("a", 1.0, 1.0 + 1e-12, clip=1, sigma=1.0),
    lambda: Sum(3, 0.0, 1.0, clip=1, sigma=1.0),
    lambda: Histogram("a", (1.0,), clip=1, sigma=1.0),
    lambda: Histogram("a", (1.0, 1.0), clip=1, sigma=1.0),
    lambda: Histogram("a", (0.0, math.nan), clip=1, sigma=1.0),
    lambda: Histogram("a", "01", clip=1, sigma=1.0),
    lambda: Histogram("a", tuple(range(5000)), clip=1, sigma=1.0),
    lambda: Quantiles("a", (0.0, 1.0), clip=1, per="row", levels=(), sigma=1.0),
    lambda: Quantiles("a", (0.0, 1.0), clip=1, per="row", levels=(1.5,), sigma=1.0),
    lambda: question({"ask": "delete"}),
    lambda: question({"ask": "count", "sigma": 1.0, "having": "x"}),
    lambda: question({"ask": "sum", "column": "a", "sigma": 1.0}),
    lambda: question({"ask": "count", "sigma": "much"}),
    lambda: question({"ask": "count", "sigma": 1.0, "by": [1]}),
]


@pytest.mark.parametrize("make", WRONG)
def test_questions_that_make_no_sense(make):
    """Each is an argument error."""
    with pytest.raises(ArgumentError):
        make()


def test_questions_as_plain_values():
    """What ``described`` wrote is the same question again, and is the same after the record kept it as JSON."""
    for asked in (
        Count(by={"age": [(0, 18), (18, None)]}, each={"visit": {"n": "count()"}}, clip=3, rho=0.5),
        Count(where="a = 1", by={"b": ["x", 1, True], "c": (datetime.date(2011, 1, 2),)}, clip=3, rho=0.5),
        Quantiles("v", (0, 1, 2.5), clip=1, per="row", levels=(0.1, 0.9), sigma=3.0, per_group=2.0),
        Variance("v", -1, 1, clip=1, per="row", sigma=1e4),
    ):
        assert question(described(asked)) == asked
        assert json.loads(json.dumps(described(asked))) == described(asked)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_keys_may_be_a_column_of_a_public_table(library):
    """Of texts, numbers and dates: the same question as with a list."""
    module, listed = pytest.importorskip(library), {"w": ["a", "b"], "n": [3, 1], "d": ["2011-01-01", "2011-01-02"]}
    days = [datetime.date.fromisoformat(day) for day in listed["d"]]
    wards = (module.table if library == "pyarrow" else module.DataFrame)(listed | {"d": days})
    for column, keys in listed.items():
        assert Count(clip=1, sigma=2.0, by={column: wards[column]}) == Count(clip=1, sigma=2.0, by={column: keys})

"""The language of row filters: what it chooses, and what it refuses."""

import datetime

import pyarrow as pa
import pytest

from almoner.errors import ArgumentError
from almoner.queries import Count
from sessions import CHEAP, opened, without_noise

WHERE = [
    ("place = 'x'", 4),
    ("place != 'x'", 2),
    ("place in ('y', 'z')", 2),
    ("place not in ('y')", 5),
    ("place is null", 1),
    ("place is not null and not place = 'x'", 2),
    ("paid", 5),
    ("not paid", 1),
    ("paid is null or n >= 6", 3),
    ("n between 2 and 4", 3),
    ("n not between 2 and 4", 4),
    ("n > 2.5 and n < 5.0", 2),
    ("n in (1, 2.0, 3.5)", 2),
    ("amount > n", 2),
    ("4 <= n", 4),
    ("day = '2011-12-01' and (n = 1 or (n = 2 or n = 4))", 3),
    ("\"day\" > '2011-12-01'", 3),
    ("paid = true", 5),
    ("n = 1e0", 1),
    ("amount < -1e300", 0),
]


@pytest.mark.quick(8)
@pytest.mark.parametrize(("where", "rows"), WHERE)
def test_filters_choose_rows(path, where, rows):
    """Each form of the language chooses the rows that SQL would."""
    with opened(path) as session:
        assert without_noise(session, Count(where=where, clip=100, **CHEAP)) == [rows]


def test_a_date_that_no_time_has_fails_no_comparison_with_times(path):
    """It is missing there, as in functions of dates; by itself it is a date."""
    days = pa.array([20_000, 19_000, 10**8, 2**31 - 1, -(10**8)], pa.int32()).cast(pa.date32())
    at = pa.array([datetime.datetime(2022, 1, 1, 12)] * len(days), pa.timestamp("us"))
    with opened(path, pa.table({"who": range(len(days)), "day": days, "at": at})) as session:
        for where, rows in (("day > at", 2), ("coalesce(day, at) < '2300-01-01'", 5), ("day > '2300-01-01'", 2)):
            assert without_noise(session, Count(where=where, clip=1, **CHEAP)) == [rows]


REFUSED = [
    "",
    "n",
    "n =",
    "= n",
    "1 = 1",
    "n = 'x'",
    "place = 1",
    "nothing = 1",
    "day = 'yesterday'",
    "paid = 1",
    "n = 1; drop table data",
    "n = 1 -- comment",
    "n = (select 1)",
    "sum(n) > 1",
    "n + place = 2",
    "n like 'x%'",
    "place = 'x' or",
    "place is 'x'",
    "place not 'x'",
    "n in ()",
    "n in (n)",
    "n between n and 3",
    "place = x",
    "((n = 1)",
    "n = 1)",
    "place = 'it''s",
    "not " * 50 + "paid",
    "(" * 50 + "paid" + ")" * 50,
    "n = 1e999",
    "n = nan",
    "data.n = 1",
    "place = '\ud800'",
    "paid and" * 2000 + " paid",
]


@pytest.mark.quick(9)
@pytest.mark.parametrize("where", REFUSED, ids=lambda where: where[:20].encode("ascii", "replace").decode())
def test_what_is_not_in_the_language_is_refused(path, where):
    """Anything else is an argument error before anything is computed or charged."""
    with opened(path) as session:
        with pytest.raises(ArgumentError):
            session.analyst("a").ask(Count(clip=1, where=where, **CHEAP), key="k")
        assert session.ledger.entries("answered") == []

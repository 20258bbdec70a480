"""Sessions over one small table for tests, and what their answers would be without noise."""

import datetime
import math

import pyarrow as pa

from almoner import filters
from almoner.queries import Session
from almoner.queries._ask.answer import answer
from ledgers import exact
from terms import grouped

ROWS = {
    "who": ["ann", "ann", "ann", "bob", "bob", "cy", None, "dee"],
    "amount": [1.0, 2.5, 1e9, 3.0, -4.0, math.nan, 7.0, None],
    "place": ["x", "y", "x", "x", "z", "x", "x", None],
    "day": [datetime.date(2011, 12, day) for day in (1, 1, 2, 1, 2, 2, 1, 1)],
    "paid": [True, False, True, True, None, True, True, True],
    "n": [1, 2, 3, 4, 5, 6, 7, 8],
}


CHEAP = {"sigma": 1000.0}


def opened(path, data=None, **options):
    data = pa.table(ROWS) if data is None else data
    given = {"data": data, "person": "who", "budget": filters.Zcdp(rho=1.0), "ledger": path, "create": True}
    return Session.open(**grouped(given | options))


def without_noise(session, asked):
    """The values that the question would have without noise."""
    return answer(asked, exact(session, asked)[0], "key").values

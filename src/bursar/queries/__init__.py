"""Statistics over a table about people, with a durable privacy account for every person.

Questions describe; a ``Session`` (the data holder's) has rows and accounts; an ``Analyst`` (from it) asks.

The language of row filters, ``where=``:

    country = 'France' and (amount between 1 and 9.5 or not returned) and day in ('2011-12-08', '2011-12-09')
    "a column's name with blanks" is not null

Comparisons ``= != < <= > >=``, ``in``, ``between``, ``like``, ``is null``, ``and``, ``or``, ``not`` and brackets;
columns by name, or in double quotes; numbers, texts in single quotes, ``true`` and ``false``; dates and times are
texts; arithmetic, ``case`` and functions. An expression may also stand in place of a column:
``Mean("hours > 12", 0, 1)``.
"""

from bursar.queries._analyst import Analyst
from bursar.queries._answers import Answer, Quote, write_csv
from bursar.queries._engines.view_check import ViewCheck
from bursar.queries._kinds.bins import Histogram, Quantiles
from bursar.queries._kinds.counts import Count, People
from bursar.queries._kinds.entries import Mean, Sum, Variance
from bursar.queries._kinds.moments import Covariance, Regression
from bursar.queries._kinds.ratios import Ratio
from bursar.queries._kinds.tops import Top
from bursar.queries._kinds.values import Distinct, Keys
from bursar.queries._question import Question
from bursar.queries._ranges import ranges
from bursar.queries._recommend import Recommendation, recommend
from bursar.queries._session import Session
from bursar.queries._so_far import SoFar
from bursar.queries._statements import Line, Statement, statement
from bursar.queries._tables import Lookup, Table

__all__ = [
    "Analyst",
    "Answer",
    "Count",
    "Covariance",
    "Distinct",
    "Histogram",
    "Keys",
    "Line",
    "Lookup",
    "Mean",
    "People",
    "Quantiles",
    "Question",
    "Quote",
    "Ratio",
    "Recommendation",
    "Regression",
    "Session",
    "SoFar",
    "Statement",
    "Sum",
    "Table",
    "Top",
    "Variance",
    "ViewCheck",
    "ranges",
    "recommend",
    "statement",
    "write_csv",
]

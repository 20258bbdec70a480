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

from almoner.queries._ask.answer import Answer, write_csv
from almoner.queries._ask.ask import Analyst
from almoner.queries._ask.quoted import Quote
from almoner.queries._ask.rows import Rows
from almoner.queries._ask.so_far import SoFar
from almoner.queries._language.keys import ranges
from almoner.queries._questions.kinds.counts import Count, Histogram, People, Quantiles, Top, spaced_edges
from almoner.queries._questions.kinds.entries import Distinct, Keys, Mean, Ratio, Sum, Variance
from almoner.queries._questions.kinds.moments import Covariance, Regression
from almoner.queries._questions.kinds.several import Several
from almoner.queries._questions.kinds.sql import Sql
from almoner.queries._questions.question import Question
from almoner.queries._session import Recommendation, Session, recommend
from almoner.queries._statements import Line, Statement, statement
from almoner.queries._tables.checks import ViewCheck
from almoner.queries._tables.tables import Lookup, Table

__all__ = [
    "Analyst", "Answer", "Count", "Covariance", "Distinct", "Histogram", "Keys", "Line", "Lookup", "Mean", "People",
    "Quantiles", "Question", "Quote", "Ratio", "Recommendation", "Regression", "Rows", "Session", "Several", "SoFar",
    "Sql", "Statement", "Sum", "Table", "Top", "Variance", "ViewCheck", "ranges", "recommend", "spaced_edges",
    "statement", "write_csv",
]  # fmt: skip

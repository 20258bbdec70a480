"""Write accounts as pages of HTML: for one person, and for the data holder; and answers, for everybody.

Each page is one file that asks for nothing from elsewhere. Names, keys and questions on it are escaped.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from almoner import _html
from almoner.accounting.meaning import in_100
from almoner.individual import BudgetStatement
from almoner.ledger import Entry, Ledger, summary, verify
from almoner.queries import Answer, Statement

__all__ = ["answers", "ledger", "statement"]

_ASKED = {
    "count": "a number of rows",
    "people": "a number of people",
    "sum": "a sum",
    "mean": "a mean",
    "ratio": "a ratio of two sums",
    "variance": "how much values differ",
    "covariance": "how values change together",
    "regression": "a line through values",
    "histogram": "how many values lie where",
    "quantiles": "values in the middle and at the ends",
    "top": "the most frequent of some names",
    "distinct": "a number of different values",
    "several": "several numbers",
    "sql": "a table of numbers",
    "keys": "names that many people share",
    "lengths": "how much one person adds",
    "extremes": "how far values reach",
    "earlier": "earlier results, of which only the sum is kept",
    "training": "the training of a model",
    "update": "an update of a model",
    "watch": "a check whether totals can still be trusted",
}  # kinds of questions, in words

_PLAIN = re.compile(r"[^\W\d_][\w.]{0,63}")  # names of columns and tables that stand in a sentence


def statement(told: Statement | BudgetStatement, *, person: object) -> str:
    """One person's account as a page, in plain words. PRIVATE: for this person, and for the data holder.

    ``told`` is from a ledger (``queries.statement``), or from a model (``training.saved_model.statement``), private, as
    is the person's name in the data. Gives HTML. The share that is used is rounded up; so is how often a guess is right
    """
    share = told.used if isinstance(told, BudgetStatement) else told.rho / told.budget
    return _html.render("statement.html", told=told, person=person, share=share, right=in_100(told.guess), asked=_asked)


def answers(told: Mapping[str, Answer], *, title: str) -> str:
    """Answers (``Analyst.summary``) as a page of HTML: tables with pictures of intervals; public, as they are."""
    return _html.render("answers.html", title=title, tables=[Markup(each._repr_html_()) for each in told.values()])


def _asked(question: Mapping[str, Any], key: str) -> dict[str, str]:
    """A question in words: key, what it asks for, and the condition as written, with columns of no plain name."""
    kind = str(question.get("ask", ""))
    words, exact = _ASKED.get(kind, kind), []
    for before, name in (("of", "column"), ("in", "table"), ("where", "where")):
        told = question.get(name)
        if told and name != "where" and _PLAIN.fullmatch(str(told)):
            words += f" {before} {told}"
        elif told:
            exact.append(f"{before} {told}")
    return {"key": key, "words": words, "exact": ", ".join(exact)}


def ledger(book: Ledger, *, head: str | None = None, made: datetime | None = None) -> str:
    """A ledger as a page for its data holder: terms, checks, prices by analyst, and every question. PRIVATE.

    Args:
        book: an open ledger. It is verified for the page.
        head: public: what ``ledger.head`` said at some time in the past, which must still be there.
        made: public: the time on the page, with a zone; now, if it is not given.

    Returns:
        HTML. It names no person, and holds no answer. Prices are the highest that a person can have paid.
    """
    return book.snapshot(lambda: _ledger(book, head, made or datetime.now(UTC)))


def _ledger(book: Ledger, head: str | None, made: datetime) -> str:
    """The page, of the ledger as it is after one of its transactions."""
    entries = [entry for entry in book.entries() if entry.kind in _CHARGING]
    totals: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        if entry.kind not in ("watched", "spoke"):
            who = (str(entry.public["analyst"]), str(entry.public["purpose"] or "not stated"))
            totals.setdefault(who, []).append(_price(entry))
    told: dict[str, Any] = {"book": book, "record": summary(book), "findings": verify(book, head=head)}
    told |= {"made": made.isoformat(), "entries": entries, "price": _price, "asked": _asked}
    told["first"] = {entry.kind: entry.number for entry in reversed(entries)}
    told["short"] = [e.number for e in entries if e.kind == "answered" and int(e.public.get("floor", 0)) < _price(e)]
    told["total"] = sum(map(_price, entries)) / book.budget_units
    told["totals"] = [(*who, len(prices), sum(prices) / book.budget_units) for who, prices in sorted(totals.items())]
    return _html.render("ledger.html", **told)


_CHARGING = ("answered", "training", "update", "watched", "spoke")


def _price(entry: Entry) -> int:
    """The most that an entry can have cost a person, in units."""
    return int(entry.public.get("price", entry.public.get("units", 0)))

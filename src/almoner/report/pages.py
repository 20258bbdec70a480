"""Write accounts as pages of HTML: for one person, and for the data holder.

Each page is one file that asks for nothing from elsewhere. Names, keys and questions on it are escaped.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any

from almoner import _html
from almoner._private import MARK
from almoner._units import shown
from almoner.individual import BudgetStatement
from almoner.ledger import Entry, Ledger, summary, verify
from almoner.queries import Line, Statement

__all__ = ["ledger", "statement"]

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
    "keys": "names that many people share",
    "lengths": "how much one person adds",
    "extremes": "how far values reach",
    "earlier": "earlier results, of which only the sum is kept",
    "training": "the training of a model",
    "update": "an update of a model",
    "watch": "a check whether totals can still be trusted",
}
"""Kinds of questions, in words."""

_PLAIN = re.compile(r"[^\W\d_][\w.]{0,63}")
"""Names of columns and tables that stand in a sentence."""


def statement(told: Statement | BudgetStatement, *, person: object) -> str:
    """One person's account as a page, in plain words. PRIVATE: for this person, and for the data holder.

    Args:
        told: private: from a ledger (``queries.statement``), or from a model (``training.saved_model.statement``).
        person: private: the name of the person, as in the data.

    Returns:
        HTML. The share that is used is rounded up; so is how often a guess is right.
    """
    mark = f"Private. This page is for the person {person}, and for the holder of the data. Show it to nobody else."
    return _html.page("Your privacy account", _told(told), mark=mark)


def _told(told: Statement | BudgetStatement) -> list[str]:
    if isinstance(told, BudgetStatement):
        share, asked = told.used, ["A model was trained on data about you.", "This is your account for that model."]
    else:
        share, asked = told.rho / told.budget, [_how_many(told)]
    used = _percent(share)
    lifetime = told.lifetime if isinstance(told, Statement) else None
    whose = "your budget" if lifetime is None else f"your budget of one {lifetime.every}"
    return [
        _html.paragraph(*asked, large=True),
        _html.heading("How much of your budget is used"),
        *([] if lifetime is None else [_html.paragraph(lifetime.words(used))]),
        _html.bar(share, f"{used} percent of {whose} is used"),
        _html.paragraph(f"{used}\u00a0% of {whose} is used.", "It can never be more than 100\u00a0%.", large=True),
        _html.paragraph(
            "Your budget limits what all results together can reveal about you.",
            "Each result uses a part of it, for what your own records add.",
            "When it is used up, your records are left out.",
        ),
        *_meaning(told.guess),
        *(_asked(told) if isinstance(told, Statement) else []),
        _html.heading("About this page"),
        _html.paragraph(
            "Random noise is added to every result, to hide single people.",
            "If something on this page surprises you, ask the holder of the data.",
        ),
        _html.paragraph(
            f"For specialists: the budget is ({shown(told.epsilon, 6)}, {shown(told.delta, 6)})-differential privacy.",
            "It is for adding or removing one person, with all of their records.",
            *([] if lifetime is None else [f"{lifetime.technical[0].upper()}{lifetime.technical[1:]}."]),
        ),
    ]


_SURPRISED = "If that is a surprise, check the name above: it counts letter by letter, as in the data."


def _how_many(told: Statement) -> str:
    number = sum(bool(line.key) for line in told.lines)
    if any(line.question["ask"] == "earlier" for line in told.lines):
        return f"Earlier results have used your records, and {number or 'no'} more."
    if not number:
        return f"No result has used your records so far. {_SURPRISED}"
    return f"{number} results have used your records." if number > 1 else "1 result has used your records."


def _percent(share: float) -> str:
    """A share in percent, with three digits, rounded up."""
    return shown(100 * share, 3)


def _meaning(guess: float) -> list[str]:
    """Odds that the whole budget lets anybody guess with."""
    right = min(1000, ceil(1000 * guess - 1e-9)) / 10
    return [
        _html.heading("What this means"),
        _html.paragraph(
            "Suppose somebody knows everything about all other people.",
            "They must guess whether your records were used.",
            "Without any results they can only toss a coin, and are right 50 times in 100.",
        ),
        _html.bar(guess, f"with all results a guess is right at most {right:g} times in 100", tick=0.5),
        _html.paragraph(f"With all results they are right at most {right:g} times in 100."),
        _html.paragraph("This holds for your whole budget, also for results that are still to come."),
    ]


def _asked(told: Statement) -> list[str]:
    if not told.lines:
        return []
    rows = [
        (
            _html.when(line.time),
            _what(line.question, line.key, hidden=True),
            _html.percent(_percent(line.rho / told.budget)),
            *(_html.text(each, short=True) for each in _who_and_why(line)),
        )
        for line in told.lines
    ]
    columns = ("When", "What was asked", "Used of your budget", "Who asked", "What for")
    return [_html.heading("What was asked, and when"), _html.table("Each result that used your budget", columns, rows)]


def _who_and_why(line: Line) -> tuple[str, str]:
    """Analyst and purpose; of what was kept as one total after an erasure, neither is known any more."""
    if line.question["ask"] == "earlier" and not line.analyst:
        return "not kept", "not kept"
    return line.analyst or "the data holder", line.purpose or "not stated"


def _what(question: Mapping[str, Any], key: str, *, hidden: bool) -> str:
    """A question in words: its key, what it asks for, and the condition as it was written, which may be hidden.

    Everything that an analyst wrote is escaped. A column or table that is no plain name is part of the condition.
    """
    kind = str(question.get("ask", ""))
    words, exact = _ASKED.get(kind, kind), []
    for before, name in (("of", "column"), ("in", "table"), ("where", "where")):
        told = question.get(name)
        if told and name != "where" and _PLAIN.fullmatch(str(told)):
            words += f" {before} {told}"
        elif told:
            exact.append(f"{before} {told}")
    if not exact:
        return _html.question(key, words)
    written = _html.exact(", ".join(exact))
    return _html.question(key, words, _html.details("exact question", written) if hidden else written)


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
    record, entries = summary(book), [entry for entry in book.entries() if entry.kind in _CHARGING]
    findings = verify(book, head=head)
    good = all(finding.holds for finding in findings)
    checks = [("yes" if finding.holds else "NO", finding.what) for finding in findings]
    body = [
        _html.paragraph(
            "The record is unbroken, and the accounts follow from it."
            if good
            else "THE CHECKS FAIL. Trust no account here.",
            large=True,
        ),
        _html.heading("Terms"),
        _html.facts(_terms(book, record.terms, record.entries, record.head, made)),
        _html.heading("Can totals still be trusted?"),
        *_trusted(book, entries),
        _html.heading("Who asked"),
        _by_analyst(book, entries),
        _html.heading("Every question"),
        _questions(book, entries),
        _html.heading("What was checked"),
        _html.table("Checks of the record", ("Holds", "What"), [tuple(map(_html.text, each)) for each in checks]),
    ]
    return _html.page("Privacy ledger", body, mark=f"{MARK[0].upper()}{MARK[1:]}. It names no person.")


_CHARGING = ("answered", "training", "update", "watched", "spoke")


def _terms(book: Ledger, terms: Mapping[str, Any], entries: int, head: str, made: datetime) -> list[tuple[str, str]]:
    delta = book.stated_delta
    promise = f"epsilon {shown(book.promise(delta), 6)} at delta {shown(delta, 6)}"
    return [
        ("Budget of each person", _html.text(promise)),
        *_in_periods(book, delta),
        ("As accounted", _html.text(f"{book.symbol} = {shown(terms[book.symbol], 6)} ({terms['measure']})")),
        ("What it means", _html.text(book.meaning().words)),
        ("Kept since", _html.when(terms["time"])),
        ("This page", _html.when(made.isoformat())),
        ("Entries", _html.text(entries)),
        ("Head", _html.text(head)),
    ]


def _in_periods(book: Ledger, delta: float) -> list[tuple[str, str]]:
    """Where each period brings a budget, how many there are, and what they promise together."""
    if book.periods is None:
        return []
    together = f"{book.periods.count} times; together epsilon {shown(book.lifetime(delta), 6)} at the same delta"
    return [(f"A new one each {book.periods.every}", _html.text(together))]


def _price(entry: Entry) -> int:
    """The most that an entry can have cost a person, in units."""
    return int(entry.public.get("price", entry.public.get("units", 0)))


def _trusted(book: Ledger, entries: list[Entry]) -> list[str]:
    """From when on people may be missing: by the record alone, and by what a watch said."""
    answered = [entry for entry in entries if entry.kind == "answered"]
    short = [entry for entry in answered if int(entry.public.get("floor", 0)) < _price(entry)]
    total = sum(map(_price, entries)) / book.budget_units
    said = [
        f"Somebody who paid the highest price of everything would have needed {_percent(total)}\u00a0% of a budget.",
        "Everybody could pay for every question in full."
        if not short
        else f"From question {short[0].number} on, people who paid much may be missing, in whole or in part.",
    ]
    spoke = [entry for entry in entries if entry.kind == "spoke"]
    if spoke and not short:
        said.append(f"A watch spoke at entry {spoke[0].number}, by its noise alone: nobody was missing then.")
    elif spoke:
        said.append(
            f"A watch said at entry {spoke[0].number} that too much is missing: do not trust totals from there on."
        )
    elif any(entry.kind == "watched" for entry in entries):
        said.append("A watch is on, and has not spoken.")
    elif short:
        said.append("No watch is on, so nothing tells how much is missing.")
    return [_html.bar(total, f"highest prices so far: {_percent(total)} percent of a budget"), _html.paragraph(*said)]


def _by_analyst(book: Ledger, entries: list[Entry]) -> str:
    totals: dict[tuple[str, str], list[int]] = {}
    for entry in entries:
        if entry.kind not in ("watched", "spoke"):
            who = (str(entry.public["analyst"]), str(entry.public["purpose"] or "not stated"))
            totals.setdefault(who, []).append(_price(entry))
    rows = [
        (*map(_html.text, who), _html.text(len(prices)), _html.percent(_percent(sum(prices) / book.budget_units)))
        for who, prices in sorted(totals.items())
    ]
    columns = ("Analyst", "Purpose", "Questions", "Highest prices, of a budget")
    return _html.table("Questions, trainings and updates by analyst and purpose", columns, rows)


def _questions(book: Ledger, entries: list[Entry]) -> str:
    rows = []
    for entry in entries:
        public = entry.public
        if entry.kind == "spoke":
            continue
        question = {"training": {"ask": "training"}, "update": {"ask": "update"}, "watched": {"ask": "watch"}}.get(
            entry.kind, public.get("question", {})
        )
        key = str(public.get("key") or public.get("stream") or "")
        full = "floor" in public and int(public["floor"]) >= _price(entry)
        rows.append(
            (
                _html.text(entry.number),
                _html.when(public["time"]),
                _what(question, key, hidden=False),
                _html.percent(_percent(_price(entry) / book.budget_units)),
                _html.text("everybody" if full else "perhaps not everybody" if entry.kind == "answered" else "-"),
                _html.text(public.get("analyst") or "the data holder", short=True),
                _html.text(public.get("purpose") or "not stated", short=True),
            )
        )
    columns = ("Number", "When", "What", "Highest price, of a budget", "Who could pay in full", "Analyst", "Purpose")
    return _html.table("In the order of the record", columns, rows)

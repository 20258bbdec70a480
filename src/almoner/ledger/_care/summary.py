"""Summary of a ledger for its data holder, as the command line shows it, and the check of an exported file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from almoner.errors import LedgerError
from almoner.ledger._care.verify import check_export
from almoner.ledger._ledger import Ledger

__all__ = ["Summary", "check_export_file", "left_at_worst", "summary"]


@dataclass(frozen=True, slots=True)
class Summary:
    """The terms of a ledger and the questions that were answered, without their answers. Every field is public.

    Attributes:
        terms: measure, epsilon, delta and amount of the budget (under the name of its symbol, rho or epsilon), the kind
            of people's names, and when it was made; the periods, where there are any.
        entries: the number of entries of the record.
        head: number and hash of the last entry, as ``verify`` takes it.
        questions: number, time, analyst, purpose, key, question and "rho at most" (or epsilon) of each, in order; and
            the data set, where the ledger knows some.
    """

    terms: dict[str, Any]
    entries: int
    head: str
    questions: tuple[dict[str, Any], ...]


def summary(ledger: Ledger) -> Summary:
    """The terms of an open ledger, its head, and every question that was answered, with its worst-case price."""
    entries, head = ledger.entries(), ledger.head
    first = entries[0].public
    terms = {name: first[name] for name in ("measure", "epsilon", "delta", "person", "time")}
    if ledger.terms.keys_delta is not None:
        terms["keys_delta"] = ledger.terms.keys_delta
    if ledger.periods is not None:
        terms["periods"] = ledger.periods.public | {"count": ledger.periods.count}
    terms[ledger.symbol] = first["budget"] / first["units"]
    questions = tuple(
        {"number": entry.number}
        | {name: entry.public[name] for name in ("time", "analyst", "purpose", "key")}
        | {name: entry.public[name] for name in ("dataset",) if name in entry.public}
        | {
            "question": entry.public.get("question", {}),
            f"{ledger.symbol} at most": entry.public["price"] / first["units"],
        }
        for entry in entries
        if entry.kind == "answered"
    )
    return Summary(terms, len(entries), head, questions)


def left_at_worst(ledger: Ledger, *, analyst: str, purpose: str | None = None) -> int:
    """Units left for an analyst's new questions to a person who paid the highest price of every question so far.

    In units, public: from the budget, limits, reservations and prices alone. Most people have more left; with periods,
    most periods have.

    Guarantee: every person who has not left can still pay a question of at most this price, whatever their rows are.
    Source: docs/proofs/individual-filter.md, "How complete an answer is".
    """
    return min(ledger.left_by_period(analyst, purpose).values())


def check_export_file(path: Path) -> tuple[int, str]:
    """Check the chain of hashes in a file of lines that ``export`` gave.

    Returns:
        The number of entries, and the head: compare it with a ``ledger.head`` that was kept elsewhere, since a chain
        that was cut off at the end is unbroken.

    Raises:
        LedgerError: the file cannot be read.
        DataError: the chain is broken, or a line is no entry.
    """
    try:
        text = path.read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError):
        raise LedgerError(f"{path} cannot be read") from None
    lines = text.split("\n") if text else []  # not splitlines(): text in the entries may hold other ends of lines
    count = check_export(lines)
    last = json.loads(lines[-1])
    return count, f"{last['number']}:{last['hash']}"

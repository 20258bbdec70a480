"""Free answers: under a key that was used, the answer that is there; and an earlier one of others, by agreement."""

from collections.abc import Collection, Mapping
from typing import Any

from almoner.errors import ArgumentError
from almoner.ledger import Entry, Ledger, Transaction
from almoner.queries._ask.so_far import AnalystId
from almoner.queries._questions.kinds_of import described, recorded
from almoner.queries._questions.question import Question

__all__ = ["refuse_other", "share_earlier"]

_NOISE = frozenset({"sigma", "rho", "epsilon"})
"""Fields that may differ between a question and an earlier one whose answer will do."""
_SHARED = ("question", "released", "keys", "floor", "complete", "dataset", "declared")
"""Fields of an earlier answer that the entry which reuses it repeats."""


def refuse_other(entry: Entry, values: Mapping[str, object], who: AnalystId, *, key: str, named: bool) -> None:
    """Refuse a key that was used for another question, analyst or purpose; ``named``: tables are data sets."""
    public, values = entry.public, _without_anyway(values)
    question, wanted = (
        None if each is None else _without_anyway(each) for each in map(public.get, ("question", "asked"))
    )
    if named and "dataset" not in public and "table" not in public.get("asked", question or {}):  # from before it
        values = {name: value for name, value in values.items() if name != "table"}
    if question is not None and question != values and wanted != values:
        # the same, written before questions said per whom, or had a pace
        question = _without_anyway(described(recorded(public)))
        if "correlated" not in public.get("question", {}):
            question, values = ({n: each[n] for n in each if n != "correlated"} for each in (question, values))
        if "floor" not in public:
            question, values = ({**each, "pace": None} for each in (question, values))
    if (public.get("analyst"), public.get("purpose")) != who or values not in (question, wanted):
        raise ArgumentError(f"key={key!r} was used for another question, analyst or purpose: choose another")


def _without_anyway(values: Mapping[str, object]) -> Mapping[str, object]:
    """A question that is answered is the same, whether or not it would be asked anyway."""
    return {name: value for name, value in values.items() if name != "anyway"}


def share_earlier(
    ledger: Ledger, asked: Question, who: AnalystId, *, key: str, analysts: Collection[str]
) -> Entry | None:
    """Record, under a new key, an earlier answer to the same question; None where there is none, or the key is used.

    Args:
        ledger: open.
        asked: the question, with noise and clip as numbers: an open one is never shared.
        who: who asks.
        key: of the question.
        analysts: whose earlier answers will do.

    Guarantee: the new entry is a function of an answer that was released before and charged then, and of public facts:
        it costs nobody anything.
    Source: Dwork & Roth (2014), Prop. 2.1 (post-processing).
    """
    if asked.open:
        return None
    values = described(asked)

    def work(transaction: Transaction) -> Entry | None:
        if transaction.find(key) is not None:
            return None
        for entry in reversed(ledger.entries("answered")):
            if entry.public["analyst"] in analysts and _will_do(entry.public, asked, values):
                return transaction.append(_shared(entry, values, who, key))
        return None

    return ledger.transact(work)


def _shared(entry: Entry, values: Mapping[str, Any], who: AnalystId, key: str) -> dict[str, Any]:
    """The public part of the entry that says so: the earlier answer, for whom, and which one it was."""
    told: dict[str, Any] = {name: entry.public[name] for name in _SHARED if name in entry.public}
    told |= {"pace": entry.public.get("pace"), "asked": values, "of": entry.number, "released at": entry.public["time"]}
    told |= {"analyst": who.analyst, "purpose": who.purpose, "key": key, "price": 0}
    return {**told, "kind": "shared"}


def _will_do(public: Mapping[str, Any], asked: Question, values: Mapping[str, Any]) -> bool:
    """True if an answer is to the same question, with no more noise than is asked for."""
    earlier = public["question"]
    if "correlated" not in earlier and "correlated" in values:  # from before there were such
        return False
    names = {*earlier, *values} - _NOISE
    if any(name not in earlier or name not in values or earlier[name] != values[name] for name in names):
        return False
    released = recorded(public)
    return released.pure == asked.pure and released.noise <= asked.noise

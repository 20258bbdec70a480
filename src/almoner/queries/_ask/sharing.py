"""Reuse an earlier answer to the same question at no charge."""

from collections.abc import Collection, Mapping
from typing import Any

from almoner.ledger import Entry, Ledger, Turn
from almoner.queries._answers.analyst import Asker
from almoner.queries._questions.kinds_of import described, recorded
from almoner.queries._questions.question import Question

__all__ = ["share_earlier"]

_NOISE = frozenset({"sigma", "rho", "epsilon"})
_TOLD = ("question", "released", "keys", "floor", "complete", "dataset", "declared")


def share_earlier(ledger: Ledger, asked: Question, who: Asker, *, key: str, analysts: Collection[str]) -> Entry | None:
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

    def work(turn: Turn) -> Entry | None:
        if turn.find(key) is not None:
            return None
        for entry in reversed(ledger.entries("answered")):
            if entry.public["analyst"] in analysts and _will_do(entry.public, asked, values):
                return turn.append(_shared(entry, values, who, key))
        return None

    return ledger.transact(work)


def _shared(entry: Entry, values: Mapping[str, Any], who: Asker, key: str) -> dict[str, Any]:
    """The public part of the entry that says so: the earlier answer, for whom, and which one it was."""
    told: dict[str, Any] = {name: entry.public[name] for name in _TOLD if name in entry.public}
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

"""Ask a question: find an earlier answer, close the question, price and charge it, add noise, and record.

Questions with an ``error`` or "auto" are closed in ``closing``, the periods of a question are found in ``spans``.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from almoner import _audit_hook, _check
from almoner._uncopyable import Uncopyable
from almoner.errors import ArgumentError, DataError, LedgerError
from almoner.ledger import Dataset, Entry, Ledger, Transaction, Watch
from almoner.ledger.interfaces import Offer
from almoner.mechanisms import Gaussian
from almoner.queries._answers.answers import Answer, Quote, answer_of, quote, quote_of_price
from almoner.queries._answers.so_far import AnalystId, SoFar
from almoner.queries._ask.closing import stand_in, with_auto, with_error, with_known_auto
from almoner.queries._ask.spans import span_of
from almoner.queries._engines.engine import Engine
from almoner.queries._questions.bin_factor import noisy_mixed
from almoner.queries._questions.kinds.values import Keys
from almoner.queries._questions.kinds_of import described, recorded
from almoner.queries._questions.noise import laplace, noisy
from almoner.queries._questions.prices import STEPS
from almoner.queries._questions.question import Key, Question
from almoner.queries._sql.compiler import Compiled
from almoner.queries._tables.datasets import filled

__all__ = ["Asking", "told_keys"]

_NOISE = frozenset({"sigma", "rho", "epsilon"})
"""Fields that may differ between a question and an earlier one whose answer will do."""
_SHARED = ("question", "released", "keys", "floor", "complete", "dataset", "declared")
"""Fields of an earlier answer that the entry which reuses it repeats."""


class Asking(Uncopyable):
    """The questions of a session: rows, and the ledger that they are charged to."""

    def __init__(self, ledger: Ledger, rows: Engine, datasets: Mapping[str, Dataset]) -> None:
        self._ledger = ledger
        self._rows = rows
        self._schema, self._periods, self._pure = rows.schema, ledger.periods, ledger.symbol == "epsilon"
        self.datasets = datasets
        """Data sets that the tables are, by name; none where the ledger knows none. Public."""
        self._unreadable = self._closed_already = False
        self._so_far: dict[AnalystId, SoFar] = {}

    @property
    def ledger(self) -> Ledger:
        """The record and the accounts. Private."""
        return self._ledger

    def close(self) -> None:
        """Let the rows go; no more questions follow."""
        with self._ledger.store.lock:
            self._closed_already = True
            if not self._ledger.store.closed:  # nor in a forked process, where all of it is its parent's
                self._rows.close()

    def ask(
        self,
        asked: Question,
        who: AnalystId,
        *,
        key: str,
        reserved: str | None = None,
        earlier_of: Collection[str] | None = None,
    ) -> Answer:
        """The answer under a key, which is charged and stored if it is not there."""
        asked = self.filled(asked)
        if earlier_of is not None and reserved is None:
            _share_earlier(self._ledger, asked, who, key=key, analysts=earlier_of)
        return self._asked(asked, who, key=key, reserved=reserved)

    def _asked(
        self, asked: Question, who: AnalystId, *, key: str, reserved: str | None = None, first_for: str | None = None
    ) -> Answer:
        values = described(asked)
        with self._ledger.store.lock:
            entry = self._ledger.find(key)
            if entry is None:
                if self._closed_already:
                    raise LedgerError("the session is closed; open it again", reason="closed")
                if self._unreadable:
                    raise DataError("the data could not be read for an earlier question; open the session again")
                closed = self._closed(asked, who, key=key, reserved=reserved)
                more = {"asked": values if asked.open else None, "first_for": first_for}
                plain = values if closed is asked else described(closed)
                public = {"question": plain, **{name: each for name, each in more.items() if each is not None}}
                try:
                    entry = self._answered(closed, public, who, key=key, reserved=reserved)
                except DataError as error:
                    if error.reason == "unfit":
                        self._rows.check_files()  # a file that went away meanwhile is no fact about anybody
                        self._unreadable = True  # which question it was may tell whose entry: it is told once
                    raise
        _refuse_other(entry, values, who, key=key, named=bool(self.datasets))
        same = entry.public.get("question") == values  # else it is closed now, or older than a field of questions
        return answer_of(entry.public, asked if same else recorded(entry.public))

    def _answered(
        self, closed: Question, public: Mapping[str, Any], who: AnalystId, *, key: str, reserved: str | None
    ) -> Entry:
        """Charge, answer and store a question; the entry under its key, if another writer came first."""
        plan = self._plan(closed, public["question"])
        if self.datasets:
            about = {"dataset": closed.table, "declared": {name: each.number for name, each in self.datasets.items()}}
            public = {**public, **about}

        periods = self._span(closed)

        def work(transaction: Transaction, offer: Offer) -> Entry:
            earlier = transaction.find(key)
            if earlier is not None:  # another writer came first
                return earlier
            _refuse_undeclared(transaction, self.datasets)
            admission = transaction.admit(
                offer,
                key=key,
                price=closed.price,
                spare=closed.spare_units,
                payment=closed.payment,
                analyst=who.analyst,
                purpose=who.purpose,
                reserved=reserved,
                delta=closed.reveals,
                periods=periods,
                anyway=closed.anyway or bool(closed.spare_units),  # with spare=, it asks who can still pay
            )
            released = _release(self._rows, plan, admission.people.rows, closed)
            return transaction.settle(admission, {**public, **released}, watch_noise=_watch_noise)

        return self._ledger.answer(self._rows.charges(plan), work)

    def _closed(self, asked: Question, who: AnalystId, *, key: str, reserved: str | None) -> Question:
        """The question with noise and clip as numbers; asks, first, for what its clip is chosen by."""
        if asked.error is not None:
            return self._with_error(asked, self._facts(who))
        if not asked.open:
            return asked

        def release(wanted: Question, its_key: str) -> Entry:
            entry = self._ledger.find(its_key)
            if entry is None:
                if reserved is not None:
                    raise ArgumentError(
                        "reserved: ask a question with clip='auto' without it first, to choose the clip"
                    )
                self._asked(wanted, who, key=its_key, first_for=key)
                entry = self._ledger.find(its_key)
            if entry is None:
                raise DataError("the record lost an entry")
            return entry

        self._refuse_measure(asked)
        self._refuse_uncertain(asked, who, reserved)
        return with_auto(asked, key, who.analyst, who.purpose, release)

    def _refuse_uncertain(self, asked: Question, who: AnalystId, reserved: str | None) -> None:
        """Refuse what does not certainly fit before anything is paid for its clip or bounds."""
        trial = stand_in(asked, pure=self._pure)
        left = self._facts(who).left_in(self._span(trial)) - trial.spare_units
        if not asked.anyway and reserved is None and not self._ledger.watched():
            trial.payment.refuse_uncertain(left, trial.price, self._ledger.budget_units, self._ledger.symbol)

    def _with_error(self, asked: Question, facts: SoFar) -> Question:
        released = facts.released(described(asked))
        return with_error(asked, pure=self._pure, budget=self._ledger.budget_units, released=released)

    def _facts(self, who: AnalystId) -> SoFar:
        facts = SoFar.read(self._ledger, who.analyst, who.purpose, self._so_far.get(who))
        self._so_far[who] = facts
        return facts

    def filled(self, asked: Question) -> Question:
        """The question with its table, where tables have names, and with what it leaves out to its data set."""
        if not isinstance(asked, Question):
            return asked
        if self._schema.named and asked.table is None:  # the record must tell which it was
            asked = replace(asked, table=self._schema.name(None))
        return filled(asked, self.datasets) if asked.unfilled else asked

    def check(self, asked: Question, who: AnalystId, *, key: str) -> None:
        """Refuse what could not be asked under this key whatever the data."""
        _check.name(key=key)
        asked = self.filled(asked)
        values, entry = described(asked), self._ledger.find(key)
        if entry is not None:
            _refuse_other(entry, values, who, key=key, named=bool(self.datasets))
            return
        trial = stand_in(asked, pure=self._pure)
        self._plan(trial, described(trial))
        if asked.error is None:
            self._ledger.refuse_beyond_budget(trial.price, delta=trial.reveals)

    def quote(self, asked: Question, who: AnalystId, so_far: SoFar | None = None) -> Quote:
        """Price of a question at worst, from public facts alone: those given, or as they are now."""
        if so_far is not None and (so_far.analyst, so_far.purpose) != who:
            raise ArgumentError(f"so_far: it is of analyst {so_far.analyst!r} and purpose {so_far.purpose!r}")
        facts, asked = so_far or self._facts(who), self.filled(asked)
        find = self._ledger.find if so_far is None else so_far.find
        if asked.error is not None:
            asked = self._with_error(asked, facts)
        trial = stand_in(asked, pure=self._pure)
        self._plan(trial, described(trial))  # refuses what could not be asked
        if asked.open:
            closed = with_known_auto(asked, who.analyst, who.purpose, find)
            if closed is None:
                return quote_of_price(trial, self._ledger.budget_units, left=facts.left_in(self._span(trial)))
            trial = closed
        released = facts.released(described(trial))
        left = facts.left_in(self._span(trial))
        return quote(trial, self._ledger.budget_units, left=left, released=released)

    def _span(self, asked: Question) -> tuple[str, str] | None:
        """The periods that a question can be about."""
        return None if self._periods is None else span_of(asked, self._periods, self._schema)

    def _refuse_measure(self, asked: Question) -> None:
        if asked.pure != self._pure:
            wanted = "sigma= or rho=" if asked.pure else "epsilon="
            raise ArgumentError(f"question: this ledger counts {self._ledger.measure}, so give {wanted}")

    def _plan(self, asked: Question, values: Mapping[str, object]) -> Compiled:
        """The statements of a question that fits the ledger and the data."""
        self._refuse_measure(asked)
        return self._rows.plan(asked, values)


def _share_earlier(
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


def _release(rows: Engine, plan: Compiled, admitted: object, asked: Question) -> dict[str, object]:
    """The public part of an answer: noisy sums, and the keys that they belong to where the question lists none."""
    if not isinstance(asked, Keys):
        sums, factor, mechanism = rows.sums(plan, admitted), asked.bin_factor(), asked.mechanism
        if factor is None or not isinstance(mechanism, Gaussian):
            return {"released": noisy(sums, mechanism)}
        return {"released": noisy_mixed(sums, factor, mechanism)}
    people = {_plain(value): count for value, count in rows.people_by_value(plan, admitted)}
    counts = told_keys(people, asked)
    return {"released": [count for _, count in counts], "keys": [key for key, _ in counts]}


def told_keys(people: dict[Key, int], asked: Keys) -> list[tuple[Key, int]]:
    """The keys whose noisy numbers of people reach the threshold, with these numbers in whole steps.

    Args:
        people: the people who take part, by key, private; a key is in it only if at least one of them has it.
        asked: the question, public.

    Returns:
        Largest first, then by key. The order of the rows, or of the keys, changes nothing.

    Guarantee: for a person with n of the keys, n <= ``asked.most``, it is (sqrt(n) / sigma)-GDP, and so
        n / (2 sigma**2)-zCDP, but for a probability of at most ``asked.delta``.
    Source: docs/proofs/unknown-keys.md, Theorem 1.
    """
    keys = sorted(key for key, count in people.items() if count >= 1)
    exact = {key: people[key] * STEPS for key in keys}
    mechanism = Gaussian(sigma=asked.noise * STEPS, sensitivity=float(asked.clip_steps))

    def release() -> list[tuple[Key, int]]:
        counts = noisy(list(exact.values()), mechanism)
        frequent = [(key, count) for key, count in zip(keys, counts, strict=True) if count >= asked.threshold_steps]
        frequent.sort(key=lambda pair: -pair[1])
        return frequent[: asked.top]

    return _audit_hook.released(release, exact=exact, mechanism=mechanism)


def _plain(value: Any) -> Key:
    """A key as the record holds it."""
    key: Key = value.isoformat() if isinstance(value, date) else value
    return key


def _refuse_undeclared(transaction: Transaction, datasets: Mapping[str, Dataset]) -> None:
    """Refuse, in the transaction, a session whose data sets are not those that are declared now."""
    if not datasets and transaction.datasets:
        raise ArgumentError("dataset= is missing: data sets were declared since; open the session again and name it")
    for name, declared in datasets.items():
        if transaction.datasets[name].number != declared.number:
            raise ArgumentError(f"the data set {name!r} was declared anew: open the session again")


def _watch_noise(watch: Watch) -> int:
    """The noise on the number of missing people."""
    return laplace(watch.scales[1])


def _refuse_other(entry: Entry, values: Mapping[str, object], who: AnalystId, *, key: str, named: bool) -> None:
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

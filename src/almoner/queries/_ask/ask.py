"""The way of a question: an answer that is there is free; else it is priced, charged and released, and answered.

free       ``free``: the answer under a key that was used, or an earlier one of others, by agreement
price      ``price``: noise and clip as numbers, for an ``error`` or "auto"; ``spans``: the periods it can be about
charge     ``Transaction.admit`` and ``settle`` of the ledger, in one transaction with
release    ``release``: the sums of the people who take part, with noise
answer     ``answer``: what is told of it, with intervals
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from almoner import _check
from almoner._uncopyable import Uncopyable
from almoner.errors import ArgumentError, DataError, LedgerError
from almoner.ledger import Dataset, Entry, Ledger, Transaction
from almoner.ledger.interfaces import Offer
from almoner.queries._ask.answer import Answer, Quote, answer_of, quote, quote_of_price
from almoner.queries._ask.free import refuse_other, share_earlier
from almoner.queries._ask.price import stand_in, with_auto, with_error, with_known_auto
from almoner.queries._ask.release import released, watch_noise
from almoner.queries._ask.so_far import AnalystId, SoFar
from almoner.queries._ask.spans import span_of
from almoner.queries._engines.engine import Engine
from almoner.queries._questions.kinds_of import described, recorded
from almoner.queries._questions.question import Question
from almoner.queries._sql.compiler import Compiled
from almoner.queries._tables.datasets import filled

__all__ = ["Asking"]


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
            share_earlier(self._ledger, asked, who, key=key, analysts=earlier_of)
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
                closed = self._priced(asked, who, key=key, reserved=reserved)
                more = {"asked": values if asked.open else None, "first_for": first_for}
                plain = values if closed is asked else described(closed)
                public = {"question": plain, **{name: each for name, each in more.items() if each is not None}}
                try:
                    entry = self._charged(closed, public, who, key=key, reserved=reserved)
                except DataError as error:
                    if error.reason == "unfit":
                        self._rows.check_files()  # a file that went away meanwhile is no fact about anybody
                        self._unreadable = True  # which question it was may tell whose entry: it is told once
                    raise
        refuse_other(entry, values, who, key=key, named=bool(self.datasets))
        same = entry.public.get("question") == values  # else it is closed now, or older than a field of questions
        return answer_of(entry.public, asked if same else recorded(entry.public))

    def _charged(
        self, closed: Question, public: Mapping[str, Any], who: AnalystId, *, key: str, reserved: str | None
    ) -> Entry:
        """Charge people for a question, and release and store its answer; if another writer came first, its entry."""
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
            told = released(self._rows, plan, admission.people.rows, closed)
            return transaction.settle(admission, {**public, **told}, watch_noise=watch_noise)

        return self._ledger.answer(self._rows.charges(plan), work)

    def _priced(self, asked: Question, who: AnalystId, *, key: str, reserved: str | None) -> Question:
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
            refuse_other(entry, values, who, key=key, named=bool(self.datasets))
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


def _refuse_undeclared(transaction: Transaction, datasets: Mapping[str, Dataset]) -> None:
    """Refuse, in the transaction, a session whose data sets are not those that are declared now."""
    if not datasets and transaction.datasets:
        raise ArgumentError("dataset= is missing: data sets were declared since; open the session again and name it")
    for name, declared in datasets.items():
        if transaction.datasets[name].number != declared.number:
            raise ArgumentError(f"the data set {name!r} was declared anew: open the session again")

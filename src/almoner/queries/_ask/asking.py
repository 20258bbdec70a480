"""Ask a question: from an analyst's words to an answer that is charged and stored."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from almoner import _check
from almoner._uncopyable import Uncopyable
from almoner.errors import ArgumentError, DataError, LedgerError
from almoner.ledger import Dataset, Entry, Ledger, Turn, Watch
from almoner.ledger.interfaces import Offer
from almoner.queries._answers.analyst import Asker
from almoner.queries._answers.answers import Answer, Quote, answer_of, quote, quote_of_price
from almoner.queries._answers.so_far import SoFar
from almoner.queries._ask.closing import stand_in, with_auto, with_error, with_known_auto
from almoner.queries._ask.release import release
from almoner.queries._ask.sharing import share_earlier
from almoner.queries._ask.spans import span_of
from almoner.queries._engines.engine import Rows
from almoner.queries._questions.kinds_of import described, recorded
from almoner.queries._questions.noise import laplace
from almoner.queries._questions.question import Question
from almoner.queries._sql.compiler import Compiled
from almoner.queries._tables.datasets import filled, refuse_undeclared

__all__ = ["Asking"]


class Asking(Uncopyable):
    """The questions of a session: rows, and the ledger that they are charged to."""

    def __init__(self, ledger: Ledger, rows: Rows, datasets: Mapping[str, Dataset]) -> None:
        self._ledger = ledger
        self._rows = rows
        self.datasets = datasets
        """Those that the tables are, by name; none where the ledger knows none. Public."""
        self._unreadable = self._closed_already = False
        self._so_far: dict[Asker, SoFar] = {}

    @property
    def ledger(self) -> Ledger:
        """The record and the accounts. Private."""
        return self._ledger

    def close(self) -> None:
        """Let the rows go; no more questions follow."""
        with self._ledger.store.lock:
            self._closed_already = True
            self._rows.close()

    def ask(
        self,
        asked: Question,
        who: Asker,
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
        self, asked: Question, who: Asker, *, key: str, reserved: str | None = None, first_for: str | None = None
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
                public = {"question": described(closed), **{k: each for k, each in more.items() if each is not None}}
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
        self, closed: Question, public: Mapping[str, object], who: Asker, *, key: str, reserved: str | None
    ) -> Entry:
        """Charge, answer and store a question; the entry under its key, if another writer came first."""
        plan = self._plan(closed, described(closed))
        if self.datasets:
            about = {"dataset": closed.table, "declared": {name: each.number for name, each in self.datasets.items()}}
            public = {**public, **about}

        periods = self._span(closed)

        def work(turn: Turn, offer: Offer) -> Entry:
            earlier = turn.find(key)
            if earlier is not None:  # another writer came first
                return earlier
            refuse_undeclared(turn, self.datasets)
            admission = turn.admit(
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
            released = release(self._rows, plan, admission.people.rows, closed)
            return turn.settle(admission, {**public, **released}, watch_noise=_watch_noise)

        return self._ledger.answer(self._rows.charges(plan), work)

    def _closed(self, asked: Question, who: Asker, *, key: str, reserved: str | None) -> Question:
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

    def _refuse_uncertain(self, asked: Question, who: Asker, reserved: str | None) -> None:
        """Refuse what does not certainly fit before anything is paid for its clip or bounds."""
        trial = stand_in(asked, pure=self._ledger.symbol == "epsilon")
        left = self._facts(who).left_in(self._span(trial)) - trial.spare_units
        if not asked.anyway and reserved is None and not self._ledger.watched():
            trial.payment.refuse_uncertain(left, trial.price, self._ledger.budget_units, self._ledger.symbol)

    def _with_error(self, asked: Question, facts: SoFar) -> Question:
        released = facts.released(described(asked))
        pure = self._ledger.symbol == "epsilon"
        return with_error(asked, pure=pure, budget=self._ledger.budget_units, released=released)

    def _facts(self, who: Asker) -> SoFar:
        facts = SoFar.read(self._ledger, who.analyst, who.purpose, self._so_far.get(who))
        self._so_far[who] = facts
        return facts

    def filled(self, asked: Question) -> Question:
        """The question with its table, where tables have names, and with what it leaves out to its data set."""
        if not isinstance(asked, Question):
            return asked
        if self._rows.schema.named and asked.table is None:  # the record must tell which it was
            asked = replace(asked, table=self._rows.schema.name(None))
        return filled(asked, self.datasets)

    def check(self, asked: Question, who: Asker, *, key: str) -> None:
        """Refuse what could not be asked under this key whatever the data."""
        _check.name(key=key)
        asked = self.filled(asked)
        values, entry = described(asked), self._ledger.find(key)
        if entry is not None:
            _refuse_other(entry, values, who, key=key, named=bool(self.datasets))
            return
        trial = stand_in(asked, pure=self._ledger.symbol == "epsilon")
        self._plan(trial, described(trial))
        if asked.error is None:
            self._ledger.refuse_beyond_budget(trial.price, delta=trial.reveals)

    def quote(self, asked: Question, who: Asker, so_far: SoFar | None = None) -> Quote:
        """Price of a question at worst, from public facts alone: those given, or as they are now."""
        if so_far is not None and (so_far.analyst, so_far.purpose) != who:
            raise ArgumentError(f"so_far: it is of analyst {so_far.analyst!r} and purpose {so_far.purpose!r}")
        facts, asked = so_far or self._facts(who), self.filled(asked)
        find = self._ledger.find if so_far is None else so_far.find
        if asked.error is not None:
            asked = self._with_error(asked, facts)
        trial = stand_in(asked, pure=self._ledger.symbol == "epsilon")
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
        return span_of(asked, self._ledger.periods, self._rows.schema)

    def _refuse_measure(self, asked: Question) -> None:
        if asked.pure != (self._ledger.symbol == "epsilon"):
            wanted = "sigma= or rho=" if asked.pure else "epsilon="
            raise ArgumentError(f"question: this ledger counts {self._ledger.measure}, so give {wanted}")

    def _plan(self, asked: Question, values: Mapping[str, object]) -> Compiled:
        """The statements of a question that fits the ledger and the data."""
        self._refuse_measure(asked)
        return self._rows.plan(asked, values)


def _watch_noise(watch: Watch) -> int:
    """The noise on the number of missing people."""
    return laplace(watch.scales[1])


def _refuse_other(entry: Entry, values: Mapping[str, object], who: Asker, *, key: str, named: bool) -> None:
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

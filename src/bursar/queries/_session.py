"""A table about people, a ledger with each person's budget, and two views: the data holder's and the analyst's."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from bursar import _check
from bursar._uncopyable import Uncopyable
from bursar._units import budget as rounded_down
from bursar._units import up
from bursar._workspace import duckdb
from bursar.errors import ArgumentError, DataError
from bursar.filters import Basic, Gaussian, Zcdp
from bursar.ledger import Entry, Finding, Ledger, Turn, Watch, verify
from bursar.ledger.interfaces import Offer
from bursar.queries._analyst import Analyst, Asker
from bursar.queries._answers import Answer, Quote, answer_of, quote, quote_of_price
from bursar.queries._closing import stand_in, with_auto, with_error, with_known_auto
from bursar.queries._engines import sources, view_check
from bursar.queries._engines.compiler import Compiled
from bursar.queries._engines.duckdb_engine import DuckDB
from bursar.queries._engines.rows import Rows
from bursar.queries._engines.spark_accounts import SparkWriter
from bursar.queries._engines.spark_engine import Spark, columns_of, is_data_frame
from bursar.queries._engines.view_check import ViewCheck
from bursar.queries._noise import laplace
from bursar.queries._question import Question
from bursar.queries._questions import described, recorded
from bursar.queries._releases import release
from bursar.queries._replay import replayed
from bursar.queries._so_far import SoFar
from bursar.queries._statements import Statement, statement

__all__ = ["Session"]

_SAMPLE = 20  # people for whom a view is checked
_CHECK_SECONDS = 5.0


class Session(Uncopyable):
    """The data holder's view: rows, accounts, statements. Analysts get what ``analyst`` returns, and nothing else."""

    def __init__(self, ledger: Ledger, rows: Rows) -> None:
        self._ledger = ledger
        self._rows = rows
        self._unreadable = False
        self._so_far: SoFar | None = None
        self._view_check: ViewCheck | None = None

    @classmethod
    def open(
        cls,
        data: Any,
        *,
        person: str,
        budget: Zcdp | Gaussian | Basic,
        ledger: Path | str,
        table: str | None = None,
        view: str | None = None,
        check_view: bool = True,
        types: Mapping[str, str] | None = None,
        keys_delta: float | None = None,
        create: bool = True,
        memory_limit: str | None = None,
        threads: int | None = None,
    ) -> Self:
        """Open a table and the ledger of the people in it.

        Args:
            data: a Parquet, CSV or DuckDB file, a folder, list or pattern (``visits-*.csv.gz``) of Parquet or CSV
                files, a table in memory (pandas, Polars, Arrow), a connection to DuckDB, or a data frame of Spark; one
                row for each event, private.
            person: the column that says whose row it is: text or whole numbers. Rows without a name are in no answer.
            budget: what each person may spend, public. ``filters.Gaussian(epsilon=, delta=)`` gives the least noise for
                many questions, ``filters.Basic(epsilon=)`` for a few (``recommend`` says which).
            ledger: the ledger's file, or ``postgresql://user@server/database`` for several writers at once; made if
                there is none, and ``create``.
            table: which table or view of a DuckDB file or connection; that of a connection is read once.
            view: SQL over ``data`` that gives the rows that questions see: by the data holder, run as it is. What it
                does to a person's rows must depend on that person's rows alone.
            check_view: whether to run the view over the rows of single people too, a few drawn at random, and refuse it
                where that gives them other rows; for at most a few seconds. ``session.view_check`` says what was
                compared. What no drawn person shows is not found.
            types: of the columns of CSV files, such as ``{"hours": "number"}``: text (where none is given), whole,
                number, bool, date or time. Entries that are spelled otherwise are missing. Without it types are
                guessed from all entries, so that one person's can change them.
            keys_delta: what all questions for ``Keys`` together may cost in delta, public, beside the budget: all
                answers together keep what the budget promises but for this probability. Without it no keys can be asked
                for. It is fixed when the ledger is made; None for what the ledger was made for.
            memory_limit, threads: what DuckDB may use, for example "4GB" and 2.

        Guarantee: all answers together, to all analysts, are rho-zCDP at the budget (mu-GDP for ``filters.Gaussian``,
            epsilon-DP for ``filters.Basic``) for adding or removing any person with all their rows, whatever is asked,
            in whatever order, however the questions depend on earlier answers; with ``keys_delta``, but for that
            probability.
        Source: theory 2.9, 4.2, 4.3, 4.5 and 5.1; Feldman & Zrnic (2021), Thm 4.5; docs/proofs/unknown-keys.md.
        """
        spark = is_data_frame(data)
        if not spark and not isinstance(data, str | Path):
            data = list(map(Path, data)) if _are_paths(data) else sources.as_arrow(data, person=person, table=table)
            table = table if isinstance(data, list) else None
        reading = sources.ReadOptions(table, view, types)
        kind, data, checked = _prepared(data, person, reading, check=check_view)
        writer = SparkWriter(data.sparkSession) if spark else None
        book = Ledger.open(
            ledger,
            budget=budget,
            person=kind,
            keys_delta=keys_delta,
            create=create,
            memory_limit=memory_limit,
            threads=threads,
            writer=writer,
        )
        try:
            if writer is not None:
                return cls(book, Spark.open(book, data, writer, person=person))
            session = cls(book, DuckDB.open(book, data, reading, person=person))
            session._view_check = checked
            return session
        except BaseException:
            book.close()
            raise

    @property
    def view_check(self) -> ViewCheck | None:
        """What the check of the view came to when the session was opened: how many people, and why no more.

        None where there was no view, or no check. For the data holder.
        """
        return self._view_check

    def __repr__(self) -> str:
        return f"Session({self._ledger!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the data and the ledger."""
        try:
            self._rows.close()
        finally:
            self._ledger.close()

    @property
    def ledger(self) -> Ledger:
        """The record and the accounts. Private."""
        return self._ledger

    def analyst(self, name: str, *, purpose: str | None = None) -> Analyst:
        """What an analyst may hold: questions and answers."""
        return Analyst(self, name, purpose)

    def limit(
        self,
        rho: float | None = None,
        *,
        epsilon: float | None = None,
        analyst: str | None = None,
        purpose: str | None = None,
    ) -> None:
        """The most that one analyst, or all questions for one purpose, may cost each person; pure budgets: epsilon."""
        self._ledger.limit(rounded_down(self._amount(rho, epsilon)), analyst=analyst, purpose=purpose)

    def reserve(
        self,
        rho: float | None = None,
        *,
        epsilon: float | None = None,
        key: str,
        analyst: str | None = None,
        purpose: str | None = None,
    ) -> None:
        """Set a part of each person's budget aside; a question asked with ``reserved=key`` may use it.

        By this analyst, or for this purpose, where given; else by any analyst who knows the key. In rho, or epsilon in
        pure budgets.
        """
        self._ledger.reserve(int(up(self._amount(rho, epsilon))), key=key, analyst=analyst, purpose=purpose)

    def _amount(self, rho: float | None, epsilon: float | None) -> float:
        """An amount in the ledger's measure."""
        amounts = {"rho": rho, "epsilon": epsilon}
        amount = amounts.pop(self._ledger.symbol)
        if amount is None or any(other is not None for other in amounts.values()):
            raise ArgumentError(f"give {self._ledger.symbol}=, which is what this ledger counts")
        _check.positive(**{self._ledger.symbol: amount})
        return amount

    def release(self, key: str) -> None:
        """Give back what was reserved."""
        self._ledger.release(key)

    def watch(self, people: int | None = None, *, mass: int | None = None, epsilon: float) -> Watch:
        """Have every answer tell whether too many people are missing from it, because they could not pay in full.

        From now on each answer's ``complete`` is True, until one question from which about that many people, or so
        much, was missing; from there on it is False, for good, and totals are not to be trusted. People who have left,
        and questions with ``spare``, do not matter. Who is shrunk counts as missing, with ``mass`` for a part.

        Args:
            people: how many may be missing, public; or
            mass: how many full clips may be missing of all contributions together, public.
            epsilon: the watch's own, public; its ``Watch.price`` is set aside from each person's budget now.

        Returns:
            The watch; its ``margin`` tells how sharp it is. Before anything is paid it is that of
            ``ledger.Watch(people, epsilon)``, or of ``ledger.Watch(mass, epsilon, mass=True)``.

        Raises:
            BudgetExceeded: by public facts alone, a person may not have that much left: begin early.
        """
        threshold = people if mass is None else mass
        if threshold is None or (people is not None and mass is not None):
            raise ArgumentError("give either people= or mass=")
        watch = Watch(threshold, epsilon, mass=mass is not None)
        self._ledger.watch(replace(watch, noise=laplace(watch.scales[0])))
        return watch

    def retire(self, person: object) -> None:
        """A person leaves: in no later answer. The account is kept, so that nobody returns with a fresh one."""
        self._ledger.retire(person)

    def restore(self, person: object) -> None:
        """A person returns to the account as it was left."""
        self._ledger.restore(person)

    def statement(self, person: object, *, delta: float | None = None) -> Statement:
        """Every question that charged a person, the total, and what it means. Private."""
        return self._ledger.snapshot(lambda: statement(self._ledger, person, delta=delta))

    def verify(self, *, head: str | None = None, replay: bool = False) -> list[Finding]:
        """Check the ledger; with ``replay``, charge every question again from the data and compare the accounts.

        A replay differs if rows were added, changed or removed since a question was asked.
        """

        def work() -> list[Finding]:
            findings = verify(self._ledger, head=head)
            return [*findings, replayed(self._ledger, self._rows)] if replay else findings

        return self._ledger.snapshot(work)

    def _ask(
        self, asked: Question, who: Asker, *, key: str, reserved: str | None = None, first_for: str | None = None
    ) -> Answer:
        values = described(asked)
        with self._ledger.store.lock:
            entry = self._ledger.find(key)
            if entry is None:
                if self._unreadable:
                    raise DataError("the data could not be read for an earlier question; open the session again")
                closed = self._closed(asked, who, key=key, reserved=reserved)
                more = {"asked": values if asked.open else None, "first_for": first_for}
                public = {"question": described(closed), **{k: each for k, each in more.items() if each is not None}}
                try:
                    entry = self._answered(closed, public, who, key=key, reserved=reserved)
                except DataError:  # which question it was may tell whose entry: an analyst gets to know it once
                    self._unreadable = True
                    raise
        _refuse_other(entry, values, who, key=key)
        return answer_of(entry.public, recorded(entry.public) if asked.open else asked)

    def _answered(
        self, closed: Question, public: Mapping[str, object], who: Asker, *, key: str, reserved: str | None
    ) -> Entry:
        """Charge, answer and store a question; the entry under its key, if another writer came first."""
        plan = self._plan(closed, described(closed))

        def work(turn: Turn, offer: Offer) -> Entry:
            earlier = turn.find(key)
            if earlier is not None:  # another writer came first
                return earlier
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
            )
            released = release(self._rows, plan, admission.people.rows, closed)
            return turn.settle(admission, {**public, **released}, watch_noise=_watch_noise)

        return self._ledger.answer(self._rows.charges(plan), work)

    def _closed(self, asked: Question, who: Asker, *, key: str, reserved: str | None) -> Question:
        """The question with noise and clip as numbers; asks, first, for what its clip is chosen by."""
        if asked.error is not None:
            return self._with_error(asked, who)
        if not asked.open:
            return asked

        def release(wanted: Question, its_key: str) -> Entry:
            entry = self._ledger.find(its_key)
            if entry is None:
                if reserved is not None:
                    raise ArgumentError(
                        "reserved: ask a question with clip='auto' without it first, to choose the clip"
                    )
                self._ask(wanted, who, key=its_key, first_for=key)
                entry = self._ledger.find(its_key)
            if entry is None:
                raise DataError("the record lost an entry")
            return entry

        self._refuse_measure(asked)
        return with_auto(asked, key, who.analyst, who.purpose, release)

    def _with_error(self, asked: Question, who: Asker) -> Question:
        released = self._facts(who).released(described(asked))
        pure = self._ledger.symbol == "epsilon"
        return with_error(asked, pure=pure, budget=self._ledger.budget_units, released=released)

    def _facts(self, who: Asker) -> SoFar:
        self._so_far = SoFar.read(self._ledger, who.analyst, who.purpose, self._so_far)
        return self._so_far

    def _check(self, asked: Question, who: Asker, *, key: str) -> None:
        _check.name(key=key)
        values, entry = described(asked), self._ledger.find(key)
        if entry is not None:
            _refuse_other(entry, values, who, key=key)
            return
        trial = stand_in(asked, pure=self._ledger.symbol == "epsilon")
        self._plan(trial, described(trial))
        if asked.error is None:
            self._ledger.refuse_beyond_budget(trial.price, delta=trial.reveals)

    def _quote(self, asked: Question, who: Asker) -> Quote:
        facts = self._facts(who)
        if asked.error is not None:
            asked = self._with_error(asked, who)
        trial = stand_in(asked, pure=self._ledger.symbol == "epsilon")
        self._plan(trial, described(trial))  # refuses what could not be asked
        if asked.open:
            closed = with_known_auto(asked, who.analyst, who.purpose, self._ledger.find)
            if closed is None:
                return quote_of_price(trial, self._ledger.budget_units, left=facts.left)
            trial = closed
        released = facts.released(described(trial))
        return quote(trial, self._ledger.budget_units, left=facts.left, released=released)

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


def _refuse_other(entry: Entry, values: Mapping[str, object], who: Asker, *, key: str) -> None:
    """Refuse a key that was used for another question, analyst or purpose."""
    public = entry.public
    question = public.get("question")
    if question is not None and question != values and public.get("asked") != values:
        question = described(recorded(public))  # the same, written before questions said per whom, or had a pace
        if "floor" not in public:
            question, values = ({**each, "pace": None} for each in (question, values))
    if (public.get("analyst"), public.get("purpose")) != who or values not in (question, public.get("asked")):
        raise ArgumentError(f"key={key!r} was used for another question, analyst or purpose: choose another")


def _are_paths(data: object) -> bool:
    return isinstance(data, list | tuple) and bool(data) and all(isinstance(each, str | Path) for each in data)


def _prepared(
    data: Any, person: str, reading: sources.ReadOptions, *, check: bool
) -> tuple[str, Any, ViewCheck | None]:
    """(How the data name people, the data, what a check of the view came to); before the ledger is touched."""
    if is_data_frame(data):
        if reading != sources.ReadOptions():
            raise ArgumentError("table=, view= and types= are not for data frames of Spark: say it in Spark")
        return sources.person_type(columns_of(data), person), data, None
    short, checked = sources.is_short_csv(data), None
    with duckdb().connect() as connection:
        kinds = sources.attach(connection, data, reading, person=person, load=short)
        kind = sources.person_type(kinds, person)
        if check and reading.view is not None:
            checked = view_check.check_view(
                connection, reading.view, kinds, person, sample=_SAMPLE, seconds=_CHECK_SECONDS
            )
        return kind, sources.loaded(connection) if short else data, checked

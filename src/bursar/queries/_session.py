"""A table about people, a ledger with everybody's budget, and two views: the data holder's and the analyst's."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from bursar import _check
from bursar._uncopyable import Uncopyable
from bursar._units import budget as rounded_down
from bursar._units import up
from bursar.errors import ArgumentError, DataError
from bursar.filters import Zcdp
from bursar.ledger import Entry, Finding, Ledger, Watch, verify
from bursar.ledger._accounts.parquet import place
from bursar.ledger._record import name as check_name
from bursar.ledger._terms import exceeded
from bursar.ledger._workspace import duckdb
from bursar.queries._answers import Answer, Quote, answer, quote
from bursar.queries._engines import sources
from bursar.queries._engines.duckdb_engine import DuckDB, Rows
from bursar.queries._engines.spark_accounts import SparkGenerations
from bursar.queries._engines.spark_engine import Spark, columns_of, is_data_frame
from bursar.queries._forms import described, question
from bursar.queries._noise import laplace, noisy
from bursar.queries._questions import Question
from bursar.queries._statements import Statement, statement

__all__ = ["Analyst", "Session"]


class Session(Uncopyable):
    """The data holder's view: rows, accounts, statements. Analysts get what ``analyst`` returns, and nothing else."""

    def __init__(self, ledger: Ledger, rows: Rows) -> None:
        self._ledger = ledger
        self._rows = rows
        self._unreadable = False

    @classmethod
    def open(
        cls,
        data: Any,
        *,
        person: str,
        budget: Zcdp,
        ledger: Path | str,
        table: str | None = None,
        view: str | None = None,
        types: Mapping[str, str] | None = None,
        create: bool = True,
        memory_limit: str | None = None,
        threads: int | None = None,
    ) -> Self:
        """Open a table and the ledger of the people in it.

        Args:
            data: a Parquet, CSV or DuckDB file, a folder of Parquet or CSV files, a table in memory (pandas, Polars,
                Arrow), or a data frame of Spark; one row for each event, private.
            person: the column that says whose row it is: text or whole numbers. Rows of nobody are in no answer.
            budget: what everybody may spend, public.
            ledger: the ledger's file, or ``postgresql://user@server/database`` for several writers at once; made if
                there is none, and ``create``.
            table: which table or view of a DuckDB file.
            view: SQL over ``data`` that gives the rows that questions see: by the data holder, run as it is. What it
                does to a person's rows must depend on that person's rows alone.
            types: of the columns of CSV files, such as ``{"hours": "number"}``: text (where none is given), whole,
                number, bool, date or time. Entries that are spelled otherwise are missing. Without it types are
                guessed from all entries, so that one person's can change them.
            memory_limit, threads: what DuckDB may use, for example "4GB" and 2.

        Guarantee: all answers together, to all analysts, are rho-zCDP at the budget for adding or removing any person
            with all their rows, whatever is asked, in whatever order, however the questions depend on earlier answers.
        Source: theory 2.7, 4.2 and 5.1; Feldman & Zrnic (2021), Thm 4.5.
        """
        spark = is_data_frame(data)
        if not spark and not isinstance(data, str | Path):
            data = sources.as_arrow(data)
        reading = sources.ReadOptions(table, view, types)
        kind = _kind_of_people(data, person, reading)
        if spark:
            place(ledger)  # refused before anything is made
        book = Ledger.open(
            ledger,
            budget=budget,
            person=kind,
            create=create,
            memory_limit=memory_limit,
            threads=threads,
            keeper=SparkGenerations(data.sparkSession) if spark else None,
        )
        try:
            if spark:
                return cls(book, Spark.open(book, data, person=person))
            return cls(book, DuckDB.open(book, data, reading, person=person))
        except BaseException:
            book.close()
            raise

    def __repr__(self) -> str:
        return f"Session({self._ledger!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let data and ledger go."""
        try:
            self._rows.close()
        finally:
            self._ledger.close()

    @property
    def ledger(self) -> Ledger:
        """The record and the accounts. Private."""
        return self._ledger

    def analyst(self, name: str, *, purpose: str | None = None) -> "Analyst":
        """What an analyst may hold: questions and answers."""
        return Analyst(self, name, purpose)

    def limit(self, rho: float, *, analyst: str | None = None, purpose: str | None = None) -> None:
        """The most that one analyst, or all questions for one purpose, may cost each person."""
        _check.positive(rho=rho)
        self._ledger.limit(rounded_down(rho), analyst=analyst, purpose=purpose)

    def reserve(self, rho: float, *, key: str, analyst: str | None = None, purpose: str | None = None) -> None:
        """Set a part of everybody's budget aside; a question asked with ``reserved=key`` may use it.

        By this analyst, or for this purpose, where given; else by anybody who knows the key.
        """
        _check.positive(rho=rho)
        self._ledger.reserve(int(up(rho)), key=key, analyst=analyst, purpose=purpose)

    def release(self, key: str) -> None:
        """Give back what was reserved."""
        self._ledger.release(key)

    def watch(self, people: int, *, epsilon: float) -> Watch:
        """Have every answer tell whether too many people are missing from it, because they could not pay.

        From now on each answer's ``complete`` is True, until one question from which about that many people were
        missing; from there on it is False, for good, and totals are not to be trusted. People who have left, and
        questions with ``spare``, do not matter.

        Args:
            people: how many may be missing, public.
            epsilon: the watch's own, public: it costs everybody epsilon**2 / 2 of rho, set aside now.

        Returns:
            The watch; its ``margin`` tells how sharp it is.

        Raises:
            BudgetExceeded: by public facts alone, somebody may not have that much left: begin early.
        """
        watch = Watch(people, epsilon)
        self._ledger.watch(replace(watch, noise=laplace(watch.scales[0])))
        return watch

    def retire(self, person: object) -> None:
        """Somebody leaves: in no later answer. The account stays, so that nobody returns with a fresh one."""
        self._ledger.retire(person)

    def restore(self, person: object) -> None:
        """Somebody returns to the account as it was left."""
        self._ledger.restore(person)

    def statement(self, person: object, *, delta: float | None = None) -> Statement:
        """Every question that charged a person, the total, and what it means. Private."""
        return self._ledger.store.snapshot(lambda: statement(self._ledger, person, delta=delta))

    def verify(self, *, head: str | None = None, replay: bool = False) -> list[Finding]:
        """Check the ledger; with ``replay``, charge every question again from the data and compare the accounts.

        A replay differs if rows were added, changed or removed since a question was asked.
        """
        from bursar.queries._replay import replayed

        def work() -> list[Finding]:
            found = verify(self._ledger, head=head)
            return [*found, replayed(self._ledger, self._rows)] if replay else found

        return self._ledger.store.snapshot(work)

    def _ask(self, asked: Question, *, key: str, analyst: str, purpose: str | None, reserved: str | None) -> Answer:
        told = described(asked)

        def work() -> Entry:
            before = self._ledger.find(key)
            if before is not None:  # another writer came first
                return before
            self._rows.admit(asked, analyst=analyst, purpose=purpose, reserved=reserved)
            released = noisy(self._rows.sums(asked), asked.mechanism)
            public = {"question": told, "price": asked.price, "released": released}
            if not asked.spare_units:
                complete = self._ledger.complete(lambda watch: laplace(watch.scales[1]))
                public |= {} if complete is None else {"complete": complete}
            return self._ledger.settle(
                public,
                key=key,
                analyst=analyst,
                purpose=purpose,
                reserved=reserved,
            )

        with self._ledger.store.lock:
            entry = self._known(asked, key=key, analyst=analyst, purpose=purpose)
            if entry is None:
                self._rows.check(asked)
                if self._unreadable:
                    raise DataError("the data could not be read for an earlier question; open the session again")
                try:
                    self._rows.offer(asked)
                    entry = self._ledger.transaction(work)
                except DataError:  # which question it was may tell whose entry: an analyst gets to know it once
                    self._unreadable = True
                    raise
                entry = _same(entry, asked, key=key, analyst=analyst, purpose=purpose)
        public = entry.public
        return answer(asked, public["released"], key, public.get("complete"))

    def _check(self, asked: Question, *, key: str, analyst: str, purpose: str | None) -> None:
        check_name(key=key)
        if self._known(asked, key=key, analyst=analyst, purpose=purpose) is not None:
            return
        self._rows.check(asked)
        budget = self._ledger.budget_units
        if asked.price > budget:
            raise exceeded(asked.price, budget, budget)

    def _known(self, asked: Question, *, key: str, analyst: str, purpose: str | None) -> Entry | None:
        """This question's entry, if it was answered; refuses a key that was used for another one."""
        entry = self._ledger.find(key)
        return None if entry is None else _same(entry, asked, key=key, analyst=analyst, purpose=purpose)


class Analyst(Uncopyable):
    """The analyst's view: it holds questions and answers, and nothing about single people.

    Python hides nothing from whoever runs code in the same process: give analysts whom you do not trust a service or a
    command around this object, not the object.
    """

    __slots__ = ("_name", "_purpose", "_session")

    def __init__(self, session: Session, name: str, purpose: str | None) -> None:
        check_name(analyst=name)
        if purpose is not None:
            check_name(purpose=purpose)
        self._session, self._name, self._purpose = session, name, purpose

    def __repr__(self) -> str:
        return f"Analyst({self._name!r}, purpose={self._purpose!r})"

    def quote(self, asked: Question) -> Quote:
        """What a question would cost at worst, and what noise to expect. Asking changes nothing."""
        self._session._rows.check(asked)  # refuses what could not be asked
        return quote(asked, self._session.ledger.budget_units)

    def check(self, asked: Question, *, key: str) -> None:
        """Refuse, before anything is charged, what could not be asked under this key whatever the data.

        Raises:
            ArgumentError: the question does not fit the data's columns, or the key was used for another one.
            BudgetExceeded: it costs more than the whole budget.
        """
        self._session._check(asked, key=key, analyst=self._name, purpose=self._purpose)

    def ask(self, asked: Question, *, key: str, reserved: str | None = None) -> Answer:
        """Ask; the answer is stored, and everybody in it charged, before it is revealed.

        Args:
            asked: the question.
            key: a name of your own for this question. The same key again gives the same answer and costs nothing, also
                after a crash.
            reserved: the key under which budget was set aside for this question.

        Raises:
            ArgumentError: the question does not fit the data's columns, or the key was used for another one.
            BudgetExceeded: by public facts alone, nobody could pay the full price.
            DataError: the data could not be read, for this question or for an earlier one of this session, which then
                answers no new questions. Nothing was charged.

        Guarantee: everybody in the answer could pay, and was charged, for what their own rows contribute; whoever could
            not is left out, which nothing tells.
        Source: theory 5.1 and 2.7.
        """
        check_name(key=key)
        if reserved is not None:
            check_name(reserved=reserved)
        return self._session._ask(asked, key=key, analyst=self._name, purpose=self._purpose, reserved=reserved)

    def answers(self) -> list[Answer]:
        """This analyst's answers for this purpose so far, in order."""
        store = self._session.ledger.store
        entries = store.snapshot(lambda: self._session.ledger.entries("answered"))
        return [
            answer(
                question(entry.public["question"]),
                entry.public["released"],
                entry.public["key"],
                entry.public.get("complete"),
            )
            for entry in entries
            if entry.public["analyst"] == self._name and entry.public["purpose"] == self._purpose
        ]


def _same(entry: Entry, asked: Question, *, key: str, analyst: str, purpose: str | None) -> Entry:
    """The entry, if it is about this question."""
    public = entry.public
    same = public.get("question") == described(asked) and public.get("analyst") == analyst
    if not same or public.get("purpose") != purpose:
        raise ArgumentError(f"key={key!r} was used for another question, analyst or purpose: choose another")
    return entry


def _kind_of_people(data: Any, person: str, reading: sources.ReadOptions) -> str:
    """How the data name people; found out before the ledger is touched."""
    if is_data_frame(data):
        if reading != sources.ReadOptions():
            raise ArgumentError("table=, view= and types= are not for data frames of Spark: say it in Spark")
        return sources.person_type(columns_of(data), person)
    with duckdb().connect() as connection:
        return sources.person_type(sources.attach(connection, data, reading, person=person), person)

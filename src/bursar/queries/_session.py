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
from bursar.queries._answers import Answer, Quote, answer, quote
from bursar.queries._engines import sources
from bursar.queries._engines.compiler import Compiled
from bursar.queries._engines.duckdb_engine import DuckDB
from bursar.queries._engines.rows import Rows
from bursar.queries._engines.spark_accounts import SparkWriter
from bursar.queries._engines.spark_engine import Spark, columns_of, is_data_frame
from bursar.queries._noise import laplace, noisy
from bursar.queries._question import Question
from bursar.queries._questions import described, recorded
from bursar.queries._replay import replayed
from bursar.queries._so_far import SoFar
from bursar.queries._statements import Statement, statement

__all__ = ["Analyst", "Session"]


class Session(Uncopyable):
    """The data holder's view: rows, accounts, statements. Analysts get what ``analyst`` returns, and nothing else."""

    def __init__(self, ledger: Ledger, rows: Rows) -> None:
        self._ledger = ledger
        self._rows = rows
        self._unreadable = False
        self._so_far: SoFar | None = None

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
        types: Mapping[str, str] | None = None,
        create: bool = True,
        memory_limit: str | None = None,
        threads: int | None = None,
    ) -> Self:
        """Open a table and the ledger of the people in it.

        Args:
            data: a Parquet, CSV or DuckDB file, a folder of Parquet or CSV files, a table in memory (pandas, Polars,
                Arrow), or a data frame of Spark; one row for each event, private.
            person: the column that says whose row it is: text or whole numbers. Rows without a name are in no answer.
            budget: what each person may spend, public. ``filters.Gaussian(epsilon=, delta=)`` gives the least noise for
                many questions, ``filters.Basic(epsilon=)`` for a few (``recommend`` says which), ``filters.Zcdp`` also
                pays for a watch.
            ledger: the ledger's file, or ``postgresql://user@server/database`` for several writers at once; made if
                there is none, and ``create``.
            table: which table or view of a DuckDB file.
            view: SQL over ``data`` that gives the rows that questions see: by the data holder, run as it is. What it
                does to a person's rows must depend on that person's rows alone.
            types: of the columns of CSV files, such as ``{"hours": "number"}``: text (where none is given), whole,
                number, bool, date or time. Entries that are spelled otherwise are missing. Without it types are
                guessed from all entries, so that one person's can change them.
            memory_limit, threads: what DuckDB may use, for example "4GB" and 2.

        Guarantee: all answers together, to all analysts, are rho-zCDP at the budget (mu-GDP for ``filters.Gaussian``,
            epsilon-DP for ``filters.Basic``) for adding or removing any person with all their rows, whatever is asked,
            in whatever order, however the questions depend on earlier answers.
        Source: theory 2.9, 4.2, 4.3, 4.5 and 5.1; Feldman & Zrnic (2021), Thm 4.5.
        """
        spark = is_data_frame(data)
        if not spark and not isinstance(data, str | Path):
            data = sources.as_arrow(data)
        reading = sources.ReadOptions(table, view, types)
        kind = _kind_of_people(data, person, reading)
        writer = SparkWriter(data.sparkSession) if spark else None
        book = Ledger.open(
            ledger,
            budget=budget,
            person=kind,
            create=create,
            memory_limit=memory_limit,
            threads=threads,
            writer=writer,
        )
        try:
            if writer is not None:
                return cls(book, Spark.open(book, data, writer, person=person))
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
        """Close the data and the ledger."""
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

    def watch(self, people: int, *, epsilon: float) -> Watch:
        """Have every answer tell whether too many people are missing from it, because they could not pay.

        From now on each answer's ``complete`` is True, until one question from which about that many people were
        missing; from there on it is False, for good, and totals are not to be trusted. People who have left, and
        questions with ``spare``, do not matter.

        Args:
            people: how many may be missing, public.
            epsilon: the watch's own, public: it costs each person epsilon**2 / 2 of rho, set aside now.

        Returns:
            The watch; its ``margin`` tells how sharp it is.

        Raises:
            BudgetExceeded: by public facts alone, a person may not have that much left: begin early.
        """
        watch = Watch(people, epsilon)
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

    def _ask(self, asked: Question, *, key: str, analyst: str, purpose: str | None, reserved: str | None) -> Answer:
        values = described(asked)

        def answered(turn: Turn, offer: Offer) -> Entry:
            earlier = turn.find(key)
            if earlier is not None:  # another writer came first
                return earlier
            admission = turn.admit(
                offer,
                key=key,
                price=asked.price,
                spare=asked.spare_units,
                analyst=analyst,
                purpose=purpose,
                reserved=reserved,
            )
            released = noisy(self._rows.sums(plan, admission.people.rows), asked.mechanism)
            return turn.settle(admission, {"question": values, "released": released}, watch_noise=_watch_noise)

        with self._ledger.store.lock:
            entry = self._ledger.find(key)
            if entry is None:
                plan = self._plan(asked, values)
                if self._unreadable:
                    raise DataError("the data could not be read for an earlier question; open the session again")
                try:
                    entry = self._ledger.answer(self._rows.charges(plan), answered)
                except DataError:  # which question it was may tell whose entry: an analyst gets to know it once
                    self._unreadable = True
                    raise
        _refuse_other(entry, values, key=key, analyst=analyst, purpose=purpose)
        return answer(asked, entry.public["released"], key, entry.public.get("complete"), entry.public.get("floor"))

    def _check(self, asked: Question, *, key: str, analyst: str, purpose: str | None) -> None:
        _check.name(key=key)
        values, entry = described(asked), self._ledger.find(key)
        if entry is not None:
            _refuse_other(entry, values, key=key, analyst=analyst, purpose=purpose)
            return
        self._plan(asked, values)
        self._ledger.refuse_beyond_budget(asked.price)

    def _quote(self, asked: Question, *, analyst: str, purpose: str | None) -> Quote:
        values = described(asked)
        self._plan(asked, values)  # refuses what could not be asked
        self._so_far = SoFar.read(self._ledger, analyst, purpose, self._so_far)
        return quote(asked, self._ledger.budget_units, left=self._so_far.left, released=self._so_far.released(values))

    def _plan(self, asked: Question, values: Mapping[str, object]) -> Compiled:
        """The statements of a question that fits the ledger and the data."""
        if asked.pure != (self._ledger.symbol == "epsilon"):
            wanted = "sigma= or rho=" if asked.pure else "epsilon="
            raise ArgumentError(f"question: this ledger counts {self._ledger.measure}, so give {wanted}")
        return self._rows.plan(asked, values)


class Analyst(Uncopyable):
    """The analyst's view: it holds questions and answers, and nothing about single people.

    Python hides nothing from code that runs in the same process: give analysts whom you do not trust a service or a
    command around this object, not the object.
    """

    __slots__ = ("_name", "_purpose", "_session")

    def __init__(self, session: Session, name: str, purpose: str | None) -> None:
        _check.name(analyst=name)
        if purpose is not None:
            _check.name(purpose=purpose)
        self._session, self._name, self._purpose = session, name, purpose

    def __repr__(self) -> str:
        return f"Analyst({self._name!r}, purpose={self._purpose!r})"

    def quote(self, asked: Question) -> Quote:
        """What a question would cost at worst, and what noise to expect. Asking changes nothing."""
        return self._session._quote(asked, analyst=self._name, purpose=self._purpose)

    def check(self, asked: Question, *, key: str) -> None:
        """Refuse, before anything is charged, what could not be asked under this key whatever the data.

        Raises:
            ArgumentError: the question does not fit the data's columns, or the key was used for another one.
            BudgetExceeded: it costs more than the whole budget.
        """
        self._session._check(asked, key=key, analyst=self._name, purpose=self._purpose)

    def ask(self, asked: Question, *, key: str, reserved: str | None = None) -> Answer:
        """Ask; the answer is stored, and each person in it charged, before it is revealed.

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

        Guarantee: each person in the answer could pay, and was charged, for what their own rows contribute; a person
            who could not is left out, which nothing tells.
        Source: theory 5.1 and 2.7.
        """
        _check.name(key=key)
        if reserved is not None:
            _check.name(reserved=reserved)
        return self._session._ask(asked, key=key, analyst=self._name, purpose=self._purpose, reserved=reserved)

    def answers(self) -> list[Answer]:
        """This analyst's answers for this purpose so far, in order."""
        ledger = self._session.ledger
        entries = ledger.snapshot(lambda: ledger.entries("answered"))
        publics = [entry.public for entry in entries]
        return [
            answer(
                recorded(public["question"]),
                public["released"],
                public["key"],
                public.get("complete"),
                public.get("floor"),
            )
            for public in publics
            if public["analyst"] == self._name and public["purpose"] == self._purpose
        ]


def _watch_noise(watch: Watch) -> int:
    """The noise on the number of missing people."""
    return laplace(watch.scales[1])


def _refuse_other(entry: Entry, values: Mapping[str, object], *, key: str, analyst: str, purpose: str | None) -> None:
    """Refuse a key that was used for another question, analyst or purpose."""
    public = entry.public
    asked = public.get("question"), public.get("analyst"), public.get("purpose")
    if asked[0] is not None and asked[0] != values:  # the same question, written before questions said per whom
        asked = described(recorded(asked[0])), *asked[1:]
    if asked != (values, analyst, purpose):
        raise ArgumentError(f"key={key!r} was used for another question, analyst or purpose: choose another")


def _kind_of_people(data: Any, person: str, reading: sources.ReadOptions) -> str:
    """How the data name people; found out before the ledger is touched."""
    if is_data_frame(data):
        if reading != sources.ReadOptions():
            raise ArgumentError("table=, view= and types= are not for data frames of Spark: say it in Spark")
        return sources.person_type(columns_of(data), person)
    with duckdb().connect() as connection:
        return sources.person_type(sources.attach(connection, data, reading, person=person), person)

"""A table about people, a ledger with each person's budget, and two views: the data holder's and the analyst's."""

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any, Self

from almoner import _check, _misfits
from almoner._misfits import Misfit
from almoner._spelling import EXACT
from almoner._uncopyable import Uncopyable
from almoner._units import budget as rounded_down
from almoner._units import up
from almoner.curves import gaussian, zcdp
from almoner.errors import ArgumentError, DataReason
from almoner.filters import Basic, Gaussian, Zcdp
from almoner.ledger import Dataset, Finding, Ledger, Terms, Watch, verify
from almoner.queries._ask.ask import Analyst, Asking
from almoner.queries._ask.replay import replayed
from almoner.queries._questions.noise import laplace
from almoner.queries._statements import Statement, statement
from almoner.queries._tables.checks import SAMPLE, Division, ViewCheck, on_terms, prepared, refuse
from almoner.queries._tables.engine import DuckDB, Elsewhere, Engine
from almoner.queries._tables.tables import Lookup, TableInput, changed, check_shared, fitting, given_tables
from almoner.queries.engines import plugin_of

LOG = logging.getLogger("almoner.queries")


class Session(Uncopyable, AbstractContextManager["Session"]):
    """The data holder's view: rows, accounts, statements. Analysts get what ``analyst`` returns, and nothing else."""

    def __init__(self, ledger: Ledger, rows: Engine, datasets: Mapping[str, Dataset] | None = None) -> None:
        self.ledger = ledger
        """The record and the accounts. Private."""
        self._rows = rows
        self._asking = Asking(ledger, rows, datasets or {})
        self._shares_ledger = False
        self._given: list[TableInput] = []
        self._checks: dict[str | None, ViewCheck] = {}

    @classmethod
    def open(
        cls,
        data: Any = None,
        *,
        tables: Mapping[str, Any] | None = None,
        public: Mapping[str, Lookup] | None = None,
        person: str | Mapping[str, str],
        budget: Terms | Zcdp | Gaussian | Basic | None = None,
        ledger: Path | str | Ledger,
        dataset: str | None = None,
        pseudonyms: Path | str | None = None,
        witness: Path | str | None = None,
        create: bool = False,
        memory_limit: str | None = None,
        threads: int | None = None,
    ) -> Self:
        """Open a table, or several, and the ledger of the people in it.

        Args:
            data: what there is: a Parquet, CSV or DuckDB file, a folder, list or pattern (``visits-*.csv.gz``) of
                Parquet or CSV files, a table in memory (pandas, Polars, Arrow), a connection to DuckDB, a data frame of
                Spark, or data of another engine that a plugin brings (``queries.engines``); one row for each event,
                private. ``Table(data, view=, types=)`` says how it is read.
            tables: several such tables by name, in place of ``data``, each its data or a ``Table``: a question is about
                the rows of one (``Question.table``), and may use columns of others.
            public: tables that hold nobody's data, by name, in which rows look up columns, each a ``Lookup``.
            dataset: which of the ledger's data sets ``data`` is, as ``Ledger.dataset`` declared it; it is the name of
                their table to questions. Of several ``tables``, each is the data set of its own name. None where the
                ledger knows none.
            person: who: the column that says whose row it is, of text, whole numbers or dates. Rows without a name are
                in no answer. Of several tables: one column for all, or {table: column}; or a path, as in {"items":
                "order -> orders.id"}: a row belongs to whoever the row of ``orders`` with that ``id`` belongs to.
            budget: how much each person may spend, public. ``filters.Gaussian(epsilon=, delta=)`` gives the least noise
                for many questions, ``filters.Basic(epsilon=)`` for a few (``recommend`` says which). With periods,
                spellings, or questions for keys, ``ledger.Terms(budget, ...)``: periods and spelling must be given
                again each time. None for what the ledger was made for.
            ledger: where: the ledger's file, or ``postgresql://user@server/database`` for several writers at once. Or
                an open ``Ledger``, which several sessions of one process share, and which stays open when they are
                closed.
            create: make the ledger where there is none, with a fresh budget for everybody; else that is refused.
            pseudonyms, witness, memory_limit, threads: as of ``Ledger.open``.

        Guarantee: all answers together, to all analysts, are rho-zCDP at the budget (mu-GDP for ``filters.Gaussian``,
            epsilon-DP for ``filters.Basic``) for adding or removing any person with all their rows, whatever is asked,
            in whatever order, however the questions depend on earlier answers; with ``Terms.keys_delta``, but for that
            probability. With ``Terms.periods``, for adding or removing a person's rows of one period; for all of them
            see ``ledger.Periods``.
        Source: theory 2.9, 4.2, 4.3, 4.5, 5.1 and 5.13; Feldman & Zrnic (2021), Thm 4.5; docs/proofs/unknown-keys.md;
            docs/proofs/periods.md.
        """
        terms = Terms.of(budget)
        if isinstance(ledger, Ledger):
            periods, spelling = terms.periods or ledger.periods, terms.spelling or ledger.terms.spelling
            terms = replace(terms, periods=periods, spelling=spelling)
        given = on_terms(given_tables(data, person, tables, public, dataset), terms)
        kind, given, checks = prepared(given)
        if terms.person not in (None, kind):
            raise ArgumentError(f"budget: its terms are for person={terms.person!r}; the data name people by {kind}")
        terms = replace(terms, person=kind, spelling=terms.spelling or EXACT)
        options = dict[str, Any](pseudonyms=pseudonyms, witness=witness, memory_limit=memory_limit, threads=threads)
        if isinstance(ledger, Ledger):
            check_shared(ledger, options)
            ledger.terms.refuse_other(ledger.store.name, terms)
            ledger.declare(terms)
            return cls._over(ledger, given, checks, dataset=dataset, shared=True)
        book = Ledger.open(ledger, terms, create=create, **options)
        try:
            if book.periods != terms.periods:
                raise ArgumentError(f"{book.store.name} was made for periods={book.periods!r}, not {terms.periods!r}")
            return cls._over(book, given, checks, dataset=dataset)
        except BaseException:
            book.close()
            raise

    @classmethod
    def _over(
        cls,
        book: Ledger,
        given: list[TableInput],
        checks: dict[str | None, ViewCheck],
        *,
        dataset: str | None,
        shared: bool = False,
    ) -> Self:
        with book.store.lock:
            plugin = plugin_of(given[0].data)
            rows = DuckDB.open(book, given) if plugin is None else Elsewhere.open(book, given, plugin)
            try:
                misfits = [misfit for each in given for misfit in each.misfits or ()]
                refuse(misfits)
                session = cls(book, rows, fitting(book, given, rows.schema, dataset=dataset))
            except BaseException:
                rows.close()
                raise
        session._given, session._checks, session._shares_ledger = given, checks, shared
        # tells columns of which some entries cannot be read; how many and where is in ``misfits``
        _misfits.tell(LOG, misfits, "session.misfits, as `almoner query check`,")
        return session

    @property
    def misfits(self) -> list[Misfit]:
        """Numbers of entries that don't fit the type that was given for their column, and where the first are. PRIVATE.

        Of a path to the person, numbers of rows whose key is of no row with a person.
        Such entries count as missing in every answer. A column of which no entry fits is refused at opening. When rows
        of Parquet, DuckDB or a view are read anew for a question, nothing is counted again.
        """
        return [misfit for each in self._given for misfit in each.misfits or ()]

    @property
    def view_check(self) -> ViewCheck | None:
        """Result of the check of the view when the session was opened: how many people, and why no more.

        None where there was no view, or no check; of several tables with views, the one of fewest people. For the data
        holder.
        """
        return min(self._checks.values(), key=lambda each: each.people, default=None)

    def check_view(
        self, view: str | None = None, *, table: str | None = None, sample: int = SAMPLE, seconds: float = 60.0
    ) -> ViewCheck:
        """Check again, with a sample of your own, that a view gives each person rows of that person's rows alone.

        Args:
            view: SQL over ``data``, the rows that were given for the table; None for the view that it was opened with.
            table: the name of the table, of several.
            sample: of how many people, drawn at random.
            seconds: after which the check stops, and says so.

        Returns:
            Of how many people rows were compared, and why no more. For the data holder.

        Raises:
            ArgumentError: there is no view, or the tables are in Spark.
            DataError: the view gives a person rows that depend on other people's, or cannot be read.
        """
        _check.whole(1, sample=sample)
        _check.within(0.1, 86_400, seconds=seconds)
        which = [each.name or "data" for each in self._given].index(self._rows.schema.name(table))
        given, connection = self._given[which], self.ledger.store.workspace.connection
        if not isinstance(self._rows, DuckDB):
            plugin = plugin_of(given.data)
            raise ArgumentError(f"check_view: views are made in {plugin and plugin.name}, and cannot be checked here")
        if view is None and given.reading.view is None:
            raise ArgumentError(f"check_view: {given.label('the data')} has no view: give view=")
        self._rows.check_files()
        with self.ledger.store.lock:
            division = Division(connection, self._given, self._rows.places, self._rows.schema)
            return division.check(which, sample=sample, seconds=seconds, view=view)

    @property
    def changed_files(self) -> dict[str, DataReason]:
        """The tables whose files are not what they were when the session was opened: each "away" or "changed".

        For the data holder. Questions are answered as long as the rows are in memory, as those of CSV files are; see
        ``refused_files``.
        """
        return changed(self._given)

    @property
    def refused_files(self) -> dict[str, DataReason]:
        """Tables of ``changed_files`` that every question reads, of Parquet or DuckDB. For the data holder.

        Questions are refused until they are what they were.
        """
        return changed([each for each in self._given if each.read_each_time is not None])

    def __repr__(self) -> str:
        return f"Session({self.ledger!r})"

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, ledger: bool = True) -> None:
        """Close the data, and the ledger if the session opened it; that not where ``ledger`` is False."""
        try:
            self._asking.close()
        finally:
            if ledger and not self._shares_ledger:
                self.ledger.close()

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The ledger's data sets that the tables of people are, by name; empty where none is declared. Public."""
        return self._asking.datasets

    @property
    def columns(self) -> dict[str, dict[str, str]]:
        """The tables of people, and the columns of each: their kinds, or types that questions can't use. Public."""
        return {name: dict(table.kinds) for name, table in self._rows.schema.people.items()}

    @property
    def public_columns(self) -> dict[str, dict[str, str]]:
        """The tables that hold nobody's data, and their columns with their kinds. Public."""
        return {name: dict(table.kinds) for name, table in self._rows.schema.public.items()}

    def analyst(self, name: str, *, purpose: str | None = None) -> Analyst:
        """View that an analyst may hold: questions and answers."""
        return Analyst(self._asking, name, purpose)

    def limit(
        self,
        rho: float | None = None,
        *,
        epsilon: float | None = None,
        analyst: str | None = None,
        purpose: str | None = None,
    ) -> None:
        """The most that one analyst, or all questions for one purpose, may cost each person; pure budgets: epsilon."""
        self.ledger.limit(rounded_down(self.ledger.amount(rho, epsilon)), analyst=analyst, purpose=purpose)

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
        self.ledger.reserve(int(up(self.ledger.amount(rho, epsilon))), key=key, analyst=analyst, purpose=purpose)

    def release(self, key: str) -> None:
        """Give back what was reserved."""
        self.ledger.release(key)

    def watch(
        self,
        people: int | None = None,
        *,
        epsilon: float,
        mass: int | None = None,
        analyst: str | None = None,
        purpose: str | None = None,
    ) -> Watch:
        """Have every answer tell whether too many people are missing from it, because they could not pay in full.

        From now on each answer's ``complete`` is True, until one question from which about that many people, or so
        much, was missing; from there on it is False, for good, and totals are not to be trusted. People who have left,
        and questions with ``spare``, do not matter. Who is shrunk counts as missing, with ``mass`` for a part. There
        may be one watch over all questions, and one for each analyst and each purpose, each at its own price.

        Args:
            people: how many may be missing, public; or
            mass: how many full clips may be missing of all contributions together, public.
            epsilon: the watch's own, public; its ``Watch.price`` is set aside from each person's budget now.
            analyst, purpose: public. Watch the questions of an analyst, or for a purpose, alone.

        Returns:
            The watch; its ``margin``, which ``ledger.Watch(people, epsilon)`` has too, tells how sharp it is.

        Raises:
            BudgetExceeded: by public facts alone, a person may not have that much left: begin early.
        """
        threshold = people if mass is None else mass
        if threshold is None or (people is not None and mass is not None):
            raise ArgumentError("give either people= or mass=")
        watch = Watch(threshold, epsilon, mass=mass is not None)
        self.ledger.watch(replace(watch, noise=laplace(watch.scales[0])), analyst=analyst, purpose=purpose)
        return watch

    def retire(self, person: object) -> bool:
        """A person leaves: in no later answer; the account is kept. False, private, where no account has this name."""
        return self.ledger.retire(person)

    def restore(self, person: object) -> None:
        """A person returns to the account as it was left; ArgumentError where nobody of this name has left."""
        self.ledger.restore(person)

    def statement(self, person: object, *, delta: float | None = None) -> Statement:
        """Every question that charged a person, the total, and what it means. Private."""
        return self.ledger.snapshot(lambda: statement(self.ledger, person, delta=delta))

    def verify(self, *, head: str | None = None, replay: bool = False) -> list[Finding]:
        """Check the ledger; with ``replay``, charge every question again from the data and compare the accounts.

        A replay differs if rows were added, changed or removed since a question was asked.
        """

        def work() -> list[Finding]:
            findings = verify(self.ledger, head=head)
            return [*findings, replayed(self.ledger, self._rows)] if replay else findings

        return self.ledger.snapshot(work)


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The budget with the least noise, and what each budget gives. Every field is public."""

    budget: Zcdp | Gaussian | Basic
    """Fresh, for one ``Session.open``."""
    standard_errors: dict[str, float]
    """By budget ("Zcdp", "Gaussian", "Basic"): of each answer, in full rows, for people with one row in each group. Of
    Basic alone where delta is 0."""
    why: str

    def __str__(self) -> str:
        return self.why


def recommend(*, epsilon: float, delta: float, questions: int, groups: int = 1) -> Recommendation:
    """The budget that gives each of several equal questions the least noise.

    Args:
        epsilon: what all questions together may cost a person, public, nats, > 0.
        delta: public, in [0, 1); 0 for pure DP.
        questions: how many there will be, public, >= 1.
        groups: how many groups (``by=``) of a question one person may be in, public, >= 1.

    Raises:
        ArgumentError: an argument is out of its range.

    Guarantee: that of the budget, whatever is asked: at most ``questions`` such questions fit, and each budget is
        (epsilon, delta)-DP.
    Source: theory 4.2, 4.3, 4.5.

    >>> print(recommend(epsilon=1.0, delta=1e-5, questions=1))
    Basic, with Laplace noise: standard error 1.41 (Gaussian 3.73, Zcdp 4.05)
    >>> print(recommend(epsilon=1.0, delta=1e-5, questions=100))
    Gaussian: standard error 37.3 (Zcdp 40.5, Basic 141)
    """
    _check.positive(epsilon=epsilon)
    _check.within(0, 1 - 1e-15, delta=delta)
    _check.whole(1, questions=questions, groups=groups)
    errors = {"Basic": sqrt(2) * questions * groups / epsilon}
    if delta:
        errors["Gaussian"] = sqrt(questions * groups) / gaussian.mu(epsilon=epsilon, delta=delta)
        errors["Zcdp"] = sqrt(questions * groups / (2 * zcdp.rho(epsilon=epsilon, delta=delta)))
    best, *others = sorted(errors, key=errors.__getitem__)
    budget: Zcdp | Gaussian | Basic = Basic(epsilon=epsilon)
    if best != "Basic":
        budget = Gaussian(epsilon=epsilon, delta=delta) if best == "Gaussian" else Zcdp(epsilon=epsilon, delta=delta)
    listed = ", ".join(f"{name} {errors[name]:.3g}" for name in others)
    name = "Basic, with Laplace noise" if best == "Basic" else best
    why = f"{name}: standard error {errors[best]:.3g}" + (f" ({listed})" if listed else "")
    return Recommendation(budget, errors, why)

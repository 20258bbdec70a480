"""The way of a question: an answer that is there is free; else it is priced, charged and released, and answered.

free       the answer under a key that was used, or an earlier one of others, by agreement
price      ``price``: noise and clip as numbers, for an ``error`` or "auto"; ``span_of``: the periods it can be about
charge     ``Transaction.admit`` and ``settle`` of the ledger, in one transaction with
release    ``released``: the sums of the people who take part, with noise, and keys with enough people
answer     ``answer``: what is told of it, with intervals

``Analyst`` is the analyst's view of it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date
from typing import Any

from almoner import _audit_hook, _check
from almoner._uncopyable import Uncopyable
from almoner._units import to_float
from almoner.errors import ArgumentError, DataError, LedgerError
from almoner.ledger import Dataset, Domain, Entry, Ledger, Transaction
from almoner.ledger._accounts.tables import TableOffer
from almoner.mechanisms import Gaussian
from almoner.queries._ask.answer import Answer, answer, without
from almoner.queries._ask.price import at_epsilon, stand_in, with_auto, with_error, with_known_auto
from almoner.queries._ask.quoted import Quote, quote
from almoner.queries._ask.rows import Rows, arranged
from almoner.queries._ask.so_far import AnalystId, SoFar, answered, span_of
from almoner.queries._ask.summary import SHOWN_KINDS, SURE, summary_questions
from almoner.queries._language.expressions import is_condition
from almoner.queries._language.keys import Key
from almoner.queries._questions.kinds.entries import Keys
from almoner.queries._questions.kinds.sql import Sql
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.noise import STEPS, laplace, noisy, noisy_mixed
from almoner.queries._questions.question import Question, Told
from almoner.queries._sql.compiler import Compiled
from almoner.queries._tables.engine import Engine
from almoner.queries._tables.statements import domain_of, read_with
from almoner.queries._tables.tables import filled

_NOISE = frozenset({"sigma", "rho", "epsilon"})
"""Fields that may differ between a question and an earlier one whose answer will do."""
_SHARED = ("question", "released", "keys", "floor", "complete", "dataset", "declared", "pace")
"""Fields of an earlier answer that the entry which reuses it repeats."""


def refuse_other(entry: Entry, values: Mapping[str, object], who: AnalystId, *, key: str, named: bool) -> None:
    """Refuse a key that was used for another question, analyst or purpose; ``named``: tables are data sets."""
    public = entry.public
    parts = public.get("question"), public.get("asked"), values  # the same, whether or not it would be asked anyway
    question, wanted, values = ({n: part for n, part in (each or {}).items() if n != "anyway"} for each in parts)
    if question:  # what was declared since then makes no other question of it
        since = {name for name in ("bounds_hold", "at_most") if values.get(name) == 1 and not question.get(name)}
        values = {name: each for name, each in values.items() if name not in since}
        values |= {name: question[name] for name in since & question.keys()}
    if named and "dataset" not in public and "table" not in public.get("asked", question):  # from before it
        values = {name: value for name, value in values.items() if name != "table"}
    if (public.get("analyst"), public.get("purpose")) != who or values not in (question, wanted):
        told = f"key={key!r} was used for another question, analyst or purpose"
        raise ArgumentError(f"{told}: choose another, as `{key} again`")


def share_earlier(
    ledger: Ledger, asked: Question, who: AnalystId, *, key: str, analysts: Collection[str]
) -> Entry | None:
    """Record, under a new key, an earlier answer to the same question; None where there is none, or the key is used.

    An open question, whose noise and clip are no numbers yet, is never shared.

    Guarantee: the new entry is a function of an answer that was released before and charged then, and of public facts:
        it costs nobody anything.
    Source: Dwork & Roth (2014), Prop. 2.1 (post-processing).
    """
    if asked.open:
        return None
    values = described(asked)
    wanted = without(values, _NOISE)

    def work(transaction: Transaction) -> Entry | None:
        if transaction.find(key) is not None:
            return None
        for entry in reversed(ledger.entries("answered")):
            public = entry.public
            if public["analyst"] not in analysts or without(public["question"], _NOISE) != wanted:
                continue
            earlier = question(public["question"])
            if earlier.pure == asked.pure and earlier.noise <= asked.noise:
                told: dict[str, Any] = {name: public[name] for name in _SHARED if name in public}
                told |= {"asked": values, "of": entry.number, "released at": public["time"]}
                told |= {"analyst": who.analyst, "purpose": who.purpose, "key": key, "price": 0}
                return transaction.append({**told, "kind": "shared"})
        return None

    return ledger.transact(work)


def released(rows: Engine, plan: Compiled, admitted: str, asked: Question) -> dict[str, object]:
    """The public part of an answer: noisy sums, and the keys that they belong to where the question lists none."""
    if not isinstance(asked, Keys):
        sums, factor, mechanism = rows.sums(plan, admitted), asked.bin_factor(), asked.mechanism
        if asked.choice is not None:
            return {"released": asked.choice.released(sums)}
        if factor is None or not isinstance(mechanism, Gaussian):
            return {"released": noisy(sums, mechanism)}
        return {"released": noisy_mixed(sums, factor, mechanism)}
    people = rows.people_by_value(plan, admitted)
    counts = told_keys({key.isoformat() if isinstance(key, date) else key: count for key, count in people}, asked)
    return {"released": [count for _, count in counts], "keys": [key for key, _ in counts]}


def told_keys(people: dict[Key, int], asked: Keys) -> list[tuple[Key, int]]:
    """The keys whose noisy numbers of people, in whole steps, reach the threshold: largest first, then by key.

    ``people`` are those who take part, by key, private; a key is in it only if at least one of them has it. The order
    of the rows, or of the keys, changes nothing.

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


class Asking(Uncopyable):
    """The questions of a session: rows, and the ledger that they are charged to."""

    def __init__(self, ledger: Ledger, rows: Engine, datasets: Mapping[str, Dataset]) -> None:
        self.ledger = ledger  # the record and the accounts. Private
        self._rows = rows
        self._schema, self._periods, self.pure = rows.schema, ledger.periods, ledger.symbol == "epsilon"
        self.datasets, self.declared = datasets, {name: each.columns for name, each in datasets.items()}
        """Data sets that the tables are, by name; none where the ledger knows none. Public."""
        self._unreadable = self._closed_already = False
        self._so_far: dict[AnalystId, SoFar] = {}

    def close(self) -> None:
        with self.ledger.store.lock:
            self._closed_already = True
            if not self.ledger.store.closed:  # nor in a forked process, where all of it is its parent's
                self._rows.close()

    def entry(
        self, asked: Question, who: AnalystId, *, key: str, reserved: str | None = None, first_for: str | None = None
    ) -> tuple[Entry, Question | None]:
        """The entry of a key, charged and stored if it is not there; and the question, if it is as it was recorded."""
        values = described(asked)
        with self.ledger.store.lock:
            entry = self.ledger.find(key)
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
        return entry, asked if entry.public.get("question") == values else None

    def _charged(
        self, closed: Question, public: Mapping[str, Any], who: AnalystId, *, key: str, reserved: str | None
    ) -> Entry:
        """Charge people for a question, and release and store its answer; if another writer came first, its entry."""
        plan = self.plan(closed, public["question"])
        if self.datasets:
            about = {"dataset": closed.table, "declared": {name: each.number for name, each in self.datasets.items()}}
            public = {**public, **about}

        def work(transaction: Transaction, offer: TableOffer) -> Entry:
            earlier = transaction.find(key)
            if earlier is not None:  # another writer came first
                return earlier
            if not self.datasets and transaction.datasets:
                missing = "dataset= is missing: data sets were declared since; open the session again and name it"
                raise ArgumentError(missing)
            for name, declared in self.datasets.items():
                if transaction.datasets[name].number != declared.number:
                    raise ArgumentError(f"the data set {name!r} was declared anew: open the session again")
            admission = transaction.admit(
                offer,
                key=key,
                price=closed.price,
                spare=closed.spare_units,
                payment=closed.payment,
                **who._asdict(),
                reserved=reserved,
                delta=closed.reveals,
                periods=self.span(closed),
                anyway=closed.anyway or bool(closed.spare_units),  # with spare=, it asks who can still pay
            )
            told = released(self._rows, plan, admission.people.rows, closed)
            return transaction.settle(admission, {**public, **told}, watch_noise=lambda watch: laplace(watch.scales[1]))

        return self.ledger.answer(self._rows.charges(plan), work)

    def _priced(self, asked: Question, who: AnalystId, *, key: str, reserved: str | None) -> Question:
        """The question with noise and clip as numbers; asks, first, for what its clip is chosen by."""
        if asked.error is not None:
            return self.with_error(asked, self.facts(who))
        if not asked.open:
            return asked

        def release(wanted: Question, its_key: str) -> Entry:
            entry = self.ledger.find(its_key)
            if entry is None and reserved is not None:
                raise ArgumentError("reserved: ask a question with clip='auto' without it first, for its clip")
            return entry or self.entry(wanted, who, key=its_key, first_for=key)[0]

        self._refuse_measure(asked)
        if not asked.anyway and reserved is None and not self.ledger.watched():
            trial = stand_in(asked, pure=self.pure)  # before anything is paid for its clip or bounds
            left = self.facts(who).left_in(self.span(trial)) - trial.spare_units
            trial.payment.refuse_uncertain(left, trial.price, self.ledger.budget_units, self.ledger.symbol)
        return with_auto(asked, key, who, release)

    def with_error(self, asked: Question, facts: SoFar) -> Question:
        released = facts.released(described(asked))
        return with_error(asked, pure=self.pure, budget=self.ledger.budget_units, released=released)

    def facts(self, who: AnalystId) -> SoFar:
        facts = SoFar.read(self.ledger, who.analyst, who.purpose, self._so_far.get(who))
        if not self.ledger.store.inside:  # what a transaction wrote may be undone
            self._so_far[who] = facts
        return facts

    def filled(self, asked: Question) -> Question:
        """The question with its table, where tables have names, with what its data set declares, and what is known."""
        if not isinstance(asked, Question):
            return asked
        if self._schema.named and asked.table is None and not isinstance(asked, Sql):  # the record must tell which
            asked = replace(asked, table=self._schema.name(None))
        asked = self._with_known(filled(asked, self.datasets, self._schema))
        return asked if asked.epsilon is None or self.pure else at_epsilon(asked, self.ledger.terms.delta)

    def _with_known(self, asked: Question) -> Question:
        """The question with what types and declarations show: bounds change no entry, each person has one row."""
        table = self._schema.people.get(asked.table or next(iter(self._schema.people)))
        if table is None or asked.each_person is not None or asked.each:
            return asked
        known: dict[str, Any] = {}
        if getattr(asked, "bounds_hold", True) is False and getattr(asked, "per", "row") != "total":
            column, edges = getattr(asked, "column", ""), getattr(asked, "edges", None)
            given = (getattr(asked, "low", None), getattr(asked, "high", None)) if edges is None else edges
            domain = domain_of(column, str(asked.table), self.declared) if self.declared else None
            shown: tuple[Any, Any] = (None, None) if domain is None else (domain.low, domain.high)
            if table.kinds[column] == "bool" if column in table.kinds else is_condition(column):
                shown = 0.0, 1.0
            ends = given[0], *shown, given[-1]
            if not {str, type(None)} & set(map(type, ends)) and ends[0] <= ends[1] and ends[2] <= ends[3]:
                known["bounds_hold"] = True
        if table.one_row and asked.at_most is None and asked.values() is None and not asked.spare_units:
            known["at_most"] = 1.0
        return replace(asked, **known) if known else asked

    def span(self, asked: Question) -> tuple[str, str] | None:
        return None if self._periods is None else span_of(asked, self._periods, self._schema)

    def _refuse_measure(self, asked: Question) -> None:
        if asked.pure != self.pure:
            wanted = "sigma= or rho=" if asked.pure else "epsilon="
            raise ArgumentError(f"question: this ledger counts {self.ledger.measure}, so give {wanted}")

    def plan(self, asked: Question, values: Mapping[str, object]) -> Compiled:
        """The statements of a question that fits the ledger and the data."""
        self._refuse_measure(asked)
        return self._rows.plan(asked, values)


class Analyst(Uncopyable):
    """The analyst's view: it holds questions and answers, and nothing about single people.

    Python hides nothing from code that runs in the same process: give analysts whom you do not trust a service or a
    command around this object, not the object.
    """

    __slots__ = ("_session", "_who")

    def __init__(self, session: Asking, name: str, purpose: str | None) -> None:
        _check.name(analyst=name)
        if purpose is not None:
            _check.name(purpose=purpose)
        self._session, self._who = session, AnalystId(name, purpose)

    def __repr__(self) -> str:
        return f"Analyst({self._who.analyst!r}, purpose={self._who.purpose!r})"

    def quote(self, asked: Question, *, so_far: SoFar | None = None) -> Quote:
        """Price of a question at worst, and the noise to expect. Quoting changes nothing.

        Args:
            asked: the question.
            so_far: what ``so_far`` gave, by which it is quoted without waiting for the ledger; None to read it now.
        """
        if so_far is not None and (so_far.analyst, so_far.purpose) != self._who:
            raise ArgumentError(f"so_far: it is of analyst {so_far.analyst!r} and purpose {so_far.purpose!r}")
        session, budget = self._session, self._session.ledger.budget_units
        facts, asked, alone = so_far or session.facts(self._who), session.filled(asked), getattr(asked, "epsilon", None)
        find = session.ledger.find if so_far is None else so_far.find
        if asked.error is not None:
            asked = session.with_error(asked, facts)
        trial = stand_in(asked, pure=session.pure)
        session.plan(trial, described(trial))  # refuses what could not be asked
        closed = with_known_auto(asked, self._who, find) if asked.open else trial
        left = facts.left_in(session.span(closed or trial))
        if closed is None:  # the noise is not known before the clip is chosen
            return replace(quote(trial, budget, left=left), standard_errors={}, margins={}, half_width=None)
        known = quote(closed, budget, left=left, released=facts.released(described(closed)))
        return replace(known, alone=None if session.pure else alone)

    def filled(self, asked: Question) -> Question:
        """The question as it will be recorded: with its table, and bounds and keys that it leaves to the data set.

        Raises:
            ArgumentError: the data set declares none for what is left out.
        """
        return self._session.filled(asked)

    def so_far(self, before: SoFar | None = None) -> SoFar:
        """Public facts for this analyst as the ledger is now: the answers, and the budget left at worst.

        Args:
            before: what this method gave earlier, so that only what is new is read.
        """
        return SoFar.read(self._session.ledger, *self._who, before)

    @property
    def left(self) -> float:
        """The budget left to this analyst, for this purpose, at worst: in rho, or epsilon in pure budgets.

        To a person who paid the highest price of every question so far, within the analyst's and the purpose's limits,
        and beside what others set aside; in periods, of that with least. By public facts alone: most people have more.
        """
        return to_float(self._session.facts(self._who).left, down=True)

    def check(self, asked: Question, *, key: str, so_far: SoFar | None = None) -> None:
        """Refuse, before anything is charged, what could not be asked under this key whatever the data.

        By ``so_far``, as of ``quote``, where it is given, and then without waiting for the ledger.

        Raises:
            ArgumentError: the question does not fit the data's columns, or the key was used for another one.
            BudgetExceeded: it costs more than the whole budget.
        """
        _check.name(key=key)
        session, asked = self._session, self._session.filled(asked)
        values, entry = described(asked), (session.ledger if so_far is None else so_far).find(key)
        if entry is not None:
            refuse_other(entry, values, self._who, key=key, named=bool(session.datasets))
            return
        trial = stand_in(asked, pure=session.pure)
        session.plan(trial, described(trial))
        if asked.error is None:
            session.ledger.refuse_beyond_budget(trial.price, delta=trial.reveals)

    def ask(
        self,
        asked: Question[Told],
        *,
        key: str,
        reserved: str | None = None,
        earlier_of: Collection[str] | None = None,
        anyway: bool = False,
    ) -> Answer[Told]:
        """Ask; the answer is stored, and each person in it charged, before it is revealed.

        Args:
            asked: the question.
            key: a name of your own for this question. The same key again gives the same answer and costs nothing, also
                after a crash.
            reserved: the key under which budget was set aside for this question.
            earlier_of: analysts whose earlier answer will do: the latest to the same question, with no more noise than
                is asked for, and whatever was paid for it. It is recorded under this key too, and costs nothing, since
                it is released already; ``Answer.earlier`` tells when. It is about the rows as they were then.
            anyway: ask although the question does not certainly fit (``Quote.fits`` is 0), as its own ``anyway`` says.

        Raises:
            ArgumentError: the question does not fit the data's columns, or the key was used for another one.
            BudgetExceeded: by public facts alone, nobody could pay the full price; or, but for ``anyway``, a person who
                paid the highest price of every question so far could not.
            DataError: the data could not be read, for this question or for an earlier one of this session, which then
                answers no new questions. Nothing was charged.

        Guarantee: each person in the answer could pay, and was charged, for what is in it of their own rows. Who has
            too little left contributes what that pays for, or with ``pace=None`` nothing, which nothing tells; the
            answer's ``complete_clip`` says what is certain.
        Source: theory 5.1, 5.3 and 2.9; docs/proofs/individual-filter.md.
        """
        _check.name(key=key)
        if reserved is not None:
            _check.name(reserved=reserved)
        if anyway and isinstance(asked, Question):
            asked = replace(asked, anyway=True)
        asked = self._session.filled(asked)
        if earlier_of is not None and reserved is None:
            share_earlier(self._session.ledger, asked, self._who, key=key, analysts=earlier_of)
        entry, same = self._session.entry(asked, self._who, key=key, reserved=reserved)
        return Answer.recorded(entry.public, same)

    def sql(self, text: str, *, key: str, **options: Any) -> Rows:
        """Ask a SELECT statement, as docs/sql.md says: rows, with intervals beside each aggregate.

        Args:
            text: the statement. It is read, never run: it becomes one question, with one price for all its aggregates.
            key: as of ``ask``.
            options: the fields of ``Sql``: a price (``rho=``, ``epsilon=`` or ``sigma=``), ``clip=``, ``bounds=``,
                ``by=`` and so on; and those of ``ask``.

        Raises:
            ArgumentError: a word of the statement is not known, or keys or bounds are not public: with what to write.
            BudgetExceeded, DataError: as of ``ask``.

        Guarantee: that of ``ask``; HAVING, ORDER BY and LIMIT work on the answer alone, and cost nothing.
        Source: theory 5.1 and 2.9; Dwork & Roth (2014), Prop. 2.1 (post-processing).
        """
        asking = {name: options.pop(name) for name in ("reserved", "earlier_of") if name in options}
        asked = Sql(text, **options)
        self.shown(asked)
        return self.shown(asked, self.ask(asked, key=key, **asking))

    def shown(self, asked: Sql, its_answer: Answer | None = None) -> Rows:
        """The rows of a statement's answer by its HAVING, ORDER BY and LIMIT, at no cost.

        Without an answer they are of zeros, so that it refuses what cannot be shown before it is paid.
        """
        session = self._session
        if its_answer is None:
            trial = stand_in(session.filled(asked), pure=session.pure)
            zeros = [0] * (trial.groups * trial.numbers + trial.reports)
            its_answer = answer(trial, zeros, "", keys=[] if isinstance(trial, Keys) else None)
        return arranged(read_with(asked.sql, session._schema), its_answer)

    def summary(
        self,
        *,
        price: float | None = None,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        keys: Mapping[str, Collection[Key]] | None = None,
        clip: float | None = None,
        table: str | None = None,
        name: str = "summary",
    ) -> dict[str, Answer]:
        """Ask for each column what is in it and how many people lack an entry, and how many people there are.

        Of numbers it is quartiles over people, between declared bounds or by steps of about a tenth; of dates those of
        years; of truth values a rate; of texts the 20 most frequent keys, declared ones or, where the ledger has a
        ``keys_delta``, such as many people share. The price is shared equally by columns. Again, it is free.

        Args:
            price: the most that it costs a person in all, rho or a pure budget's epsilon; None before any answer: all.
            bounds: {column: (low, high)}, public.
            keys: {column: keys}, public: the names that may be in a column.
            clip: the most rows of a person that count; None to count no rows.
            table, name: the table, where there are several; what the keys of its questions begin with.

        Returns:
            {key: answer}: of ``name`` the people, of "name: column" entries, of "name, missing: column" who has none.

        Guarantee: that of ``ask``. Names and types of columns, which are public, say what is asked, and nothing else
            of the data.
        Source: theory 5.1 and 2.9.
        """
        session, ledger = self._session, self._session.ledger
        named = next(iter(session._schema.people)) if table is None else table
        if named not in session._schema.people:
            raise ArgumentError(f"{_check.told(table=table)} must be one of {', '.join(session._schema.people)}")
        its = session._schema.people[named]
        columns = {each: kind for each, kind in its.kinds.items() if each != its.person and kind in SHOWN_KINDS}
        given = {each: Domain(low, high) for each, (low, high) in (bounds or {}).items()}
        given |= {each: Domain(keys=tuple(listed)) for each, listed in (keys or {}).items()}
        declared = {each: domain_of(each, named, session.declared) for each in columns}
        domains = {each: domain for each, domain in declared.items() if domain is not None} | given
        before, measure = {each.key: each.question for each in self.answers()}, "epsilon" if session.pure else "rho"
        if name in before and price is None:
            price = getattr(before[name], measure) * (1 + len(columns)) / SURE
        elif price is None and ledger.entries("answered"):
            raise ArgumentError("price=None would cost all that is left: write summary(price=0.1), or what it may cost")
        total = self.left if price is None else price
        more: dict[str, Any] = {"clip": clip, "table": table, "keys_delta": float(ledger.terms.keys_delta or 0)}
        asked = summary_questions(columns, domains, (measure, total), name=name, **more)
        for key, each in asked.items():  # before anything is charged
            self.check(each, key=key)
        return {key: self.ask(each, key=key) for key, each in asked.items()}

    def answers(self) -> list[Answer]:
        """This analyst's answers for this purpose so far, in order."""
        ledger = self._session.ledger
        return [Answer.recorded(entry.public) for entry in ledger.snapshot(lambda: answered(ledger, *self._who))]

"""The actions of analysts, apart from how they reach them: quote, ask, read own answers, see what is left.

Everything but asking is answered from public facts that were read before, so that it never waits for the ledger.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import lru_cache
from io import StringIO
from itertools import takewhile
from math import ceil, inf
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar, cast

from almoner import _check, _extras
from almoner.errors import ArgumentError, BudgetExceeded, DataError, LedgerError
from almoner.ledger import Ledger, Transaction, on_a_server
from almoner.queries import Analyst, Answer, Question, Quote, Session, SoFar, Sql, write_csv
from almoner.queries.plans import described
from almoner.service import _bodies, policies
from almoner.service._bodies import FIXED_TEXTS, Refused, answer_of, asked, problem_of, quote_of
from almoner.service._dummy import Dummy
from almoner.service._padded_worker import PaddedWorker
from almoner.service._trail import Trail
from almoner.service.policies import AnalystTerms, Policy

with _extras.need("prometheus_client", extra="service"):
    from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
    from prometheus_client.core import GaugeMetricFamily

Result = TypeVar("Result")

_LOG = logging.getLogger("almoner.service")

KEY_CHARACTERS = 120
DUMMIES = 60  # questions that an analyst may try in a minute
_NOTE_AFTER = 900.0  # seconds between two notes of the trail in the ledger's record
NO_ANSWER = "you have no answer under this key"
_KEY_USED = "the key was used for another question or purpose: choose another key"
_MOST_NAMES = 4096
_MOST_ANSWERS = 256
_MOST_NUMBERS = 200_000  # of one table
SEPARATOR = "/"  # stands between the name of an analyst, which has none, and a key: nobody's key is ever another's

DATA_TEXTS: Mapping[str, str] = {
    "away": "A file of table {!r} is away: questions are refused until it is back.",
    "changed": "A file of table {!r} is another one now: questions are refused until SIGHUP, or a new start.",
    "unfit": "The data could not be read for a question. Start the service again.",
}  # words for the data holder about the data, by the state of a table

_COUNTS = {
    "requests": ("Requests, by route, status, and port: of analysts or of holders.", ("route", "status", "port")),
    "questions": ("Questions that were answered, or that an earlier answer was shared for.", ("analyst", "state")),
    "refusals": ("Requests that were refused, by the code that was told.", ("code",)),
    "failures": ("Errors that nobody foresaw, by name.", ("kind",)),
}
_EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Reply(NamedTuple):
    """An answer, as it is sent, and whether it was there before."""

    body: _bodies.AnswerBody
    old: bool
    answer: Answer

    @property
    def state(self) -> str:
        """State of its price: "new" if it was asked now, and charged; "repeated"; or "shared"."""
        return "repeated" if self.old else "new" if self.answer.earlier is None else "shared"


class AnalystApi:
    """The questions of all analysts of a policy, over one open session, to whose ledger it is applied."""

    def __init__(self, policy: Policy, session: Session, trail: Trail) -> None:
        self.policy, self.session, self.trail, self.clock = policy, session, trail, policies.Clock()
        self.metrics, self.rates, self.logins, self.strangers, self.dummies = Metrics(), *(Rates() for _ in range(4))
        self._worked: dict[tuple[str, date], float] = {}
        self._analysts: dict[str, AnalystTerms] = {}
        self._unreadable = self._changed = False
        self.ledger_up, self.data_state, self._tried = True, dict[str, str](), dict[str, int]()
        self._noted, self._try_again = (trail.head, -inf), -inf
        self._take_over(policy, session)
        self.worker = PaddedWorker(policy.file.service.step, publish=self._catch_up)
        self.tries = PaddedWorker(policy.file.service.step)
        self._dummy: tuple[object, Dummy] | None = None

    def look(self) -> None:
        """Look at the ledger, which is opened again if its server is back; note the trail. The worker does it."""
        ledger, where = self.session.ledger, self.policy.plan.ledger
        if ledger.store.closed and on_a_server(str(where)) and time.monotonic() > self._try_again:
            began = time.monotonic()
            try:
                if Ledger.exists(where):
                    self.reopen()
            finally:  # an attempt may read all data: it takes a sixth of the worker's time at most
                self._try_again = 6 * time.monotonic() - 5 * began
        if time.monotonic() > self._noted[1] + _NOTE_AFTER and not ledger.store.closed:
            self.note()

    def note(self, who: str | None = None, person: object = None) -> int | None:
        """Put the newest hash of the trail into the record, with who sees whose statement: the number of the entry."""
        ledger, head = self.session.ledger, self.trail.head
        if who is None and head == self._noted[0]:
            return None
        public, private = {"kind": "trail", **head._asdict()}, dict[str, Any]()
        if who is not None:
            public["statement_to"] = who
            private["person"] = ledger.accounts.names.token(ledger.accounts_of(person)[0])
        entry = ledger.transact(lambda transaction: transaction.append(public, private))
        self._noted = head, time.monotonic()
        return entry.number

    def change_policy(self, policy: Policy) -> list[str]:
        """Take over another policy of the same data, ledger and ports: the places of lines that differ."""
        different = policies.fixed_part(self.policy, policy)
        if different is not None:
            raise ArgumentError(f"{different} must be as before while the service runs: stop it, and start it again")

        def work() -> None:
            self.reopen()
            policies.apply_policy(policy, self.session)
            self._take_over(policy, self.session)

        lines = list(policies.changed_lines(self.policy.file.model_dump(), policy.file.model_dump()))
        self.worker.submit("", work, padded=False).result()
        return lines

    def reopen(self, *, new_data: bool = False) -> None:
        """Open data and ledger again, where the ledger was closed because its server failed. The worker does it.

        A file is not opened again, nor a ledger that lost an entry, whose answers would not be charged, nor any after
        data could not be read, which may tell something each time. Data that cannot be read now are to analysts as if
        the server had failed for good. With ``new_data`` the data holder said that the files of the data may be others
        than before.
        """
        before, plan = self.session, self.policy.plan
        if not before.ledger.store.closed:
            return
        if self._unreadable:
            raise DataError("the data could not be read for an earlier question: start the service again")
        for name, why in () if new_data else before.changed_files.items():
            raise DataError(DATA_TEXTS[why].format(name), reason=why)
        if not on_a_server(str(plan.ledger)):
            raise LedgerError(f"{before.ledger.store.name} was closed: start the service again", reason="closed")
        if self._changed and not new_data:
            raise LedgerError(f"{before.ledger.store.name}: the data changed: start the service again")
        try:
            session = plan.open()
        except DataError as error:
            if new_data or error.reason != "unfit":
                raise
            self._changed = True
            _LOG.warning("the data cannot be read any more: %s", error)
            raise LedgerError(f"{before.ledger.store.name}: {error}") from None
        try:
            if not session.ledger.continues(before.ledger.last_seen):
                raise LedgerError(f"{before.ledger.store.name} lacks entries: it is an older copy", reason="damaged")
            policies.apply_policy(self.policy, session)
            self._take_over(self.policy, session)
        except BaseException as error:
            session.close()
            if isinstance(error, ArgumentError):  # the service's, not the analyst's
                raise LedgerError(f"{before.ledger.store.name}: {error}", reason="unavailable") from None
            raise
        before.close()

    def renew_data(self) -> list[str] | None:
        """Open the data again, on the open ledger, if a file is not what it was: the tables; None if all are."""

        def work() -> list[str] | None:
            before, changed = self.session, [*self.session.changed_files]
            if not changed:
                return None
            if self._unreadable:
                raise DataError("the data could not be read for an earlier question: start the service again")
            if before.ledger.store.closed:
                self.reopen(new_data=True)
                return changed
            session = self.policy.plan.open(over=before.ledger)
            try:
                policies.check_against_data(self.policy, session)
                self._take_over(self.policy, session)
            except BaseException:
                session.close()
                raise
            before.close(ledger=False)
            return changed

        return self.worker.submit("", work, padded=False).result()

    def _take_over(self, policy: Policy, session: Session) -> None:
        """Set what follows from a policy; those who are no analysts any more may still have requests under way."""
        analysts, usual = {**self._analysts, **policy.analysts}, policies.usual_question(policy, session)
        views = {name: session.analyst(name, purpose=terms.purpose) for name, terms in analysts.items()}
        facts = PublicState(views)
        facts.catch_up()
        self.public_state, self._views, self._analysts, self.usual = facts, views, analysts, usual
        self.policy, self.session = policy, session
        for place in policy.stale:
            _LOG.warning("%s was changed on the console, and in the policy since: the policy holds", place)
        if policy.stale:  # also where the policy's line becomes again what it was
            with suppress(OSError):
                policy.keep_limits()
        path = session.ledger.store.path
        self._file = None if path is None else (path, path.stat())

    def close(self) -> None:
        """Finish the question that is being answered, note the trail, and close the data and the ledger."""
        self.worker.stop()
        self.tries.stop()
        self._forget_dummy()
        ledger = self.session.ledger
        with suppress(LedgerError):
            self.note()
        self.session.close()
        ledger.close()
        self.trail.close()

    def _catch_up(self) -> None:
        """Publish, at the end of a step, what was answered, and whether the ledger and the data can be used.

        ``data_state`` has the tables about which no question can be answered now, each "away" or "changed". Under "",
        "unfit": they could not be read for a question, and none is answered until the service starts anew.
        """
        session, up = self.session, False
        with suppress(Exception):  # the next question tells
            self.public_state.catch_up()
            up = self._file is None or os.path.samestat(self._file[0].stat(), self._file[1])
        self.ledger_up = up
        # what was closed can be opened again with all files as they were, and no others
        files = session.changed_files if session.ledger.store.closed else session.refused_files
        self.data_state = {**files, **({"": "unfit"} if self._unreadable else {})}

    # what a request thread may call: no ledger, no data

    def quote(self, terms: AnalystTerms, values: object) -> _bodies.QuoteBody:
        """The price of a question at worst, from public facts."""
        return quote_of(self._allowed(terms, values)[1])

    def left(self, terms: AnalystTerms) -> _bodies.MeBody:
        """Budget and questions left to an analyst, by limits and public prices, and never by people's accounts."""
        so_far, budget = self.public_state.of(terms.name), self.session.ledger.budget_units
        usual = quote_of(self._views[terms.name].quote(self.usual, so_far=so_far))
        today = self.public_state.charged_on(terms.name, _today())
        worked = self._worked.get((terms.name, self.clock.now().date()), 0.0)
        periods = so_far.left_by_period.items()
        return {
            "analyst": terms.name,
            "purpose": terms.purpose,
            "expires": None if terms.expires is None else terms.expires.isoformat(),
            "limits": terms.limits,
            "step": self.policy.file.service.step,
            "shares_answers": terms.name in self.policy.file.sharing.analysts,
            "left": {
                "share": so_far.left / budget,
                "by_period": [{"from": start, "share": units / budget} for start, units in periods if start],
                "usual_questions": usual["fits"],
                "questions_today": max(0, terms.limits.questions - today),
                "seconds_today": max(0.0, terms.limits.seconds - worked),
            },
            "usual": {"question": described(self.usual), **usual},
        }

    def data_sets(self) -> _bodies.DataSetsBody:
        kinds, told = self.session.columns, list[_bodies.DataSetBody]()
        for name, table in self.policy.file.tables.items():
            parts: Any = [{"name": n, **part.model_dump(), "kind": kinds[name][n]} for n, part in table.columns.items()]
            told.append({"name": name, "about": table.about, "columns": parts})
        public = self.session.public_columns.items()
        return {"data_sets": told, "public_tables": [{"name": name, "columns": columns} for name, columns in public]}

    def answers(self, terms: AnalystTerms) -> list[_bodies.ListedBody]:
        """The answers of an analyst, newest first, without their values."""
        listed: list[_bodies.ListedBody] = []
        for public in reversed(self.public_state.of(terms.name).answers):
            name, separator, key = str(public["key"]).partition(SEPARATOR)
            if separator and name == terms.name:  # else it belongs to another answer
                day, question = public["time"][:10], public["question"]
                listed.append({"key": key, "day": day, "question": question, "share": self._share(public)})
        return listed

    def stored(self, terms: AnalystTerms, key: str) -> Reply | None:
        """The answer of an analyst under a key; None if there is none yet."""
        found = self.public_state.answer(terms.name, _filed(terms, key))
        if found is None:
            return None
        answer, public = found
        return Reply(answer_of(answer, key, public["time"][:10], self._share(public)), True, answer)

    def owner(self, terms: AnalystTerms, of: str | None) -> AnalystTerms:
        """Whose answers an analyst reads: own ones, or of another of ``sharing``; all else is refused alike."""
        shares = self.policy.file.sharing.analysts
        if of is None or of == terms.name:
            return terms
        if not {of, terms.name} <= set(shares):
            raise Refused(404, "answer", NO_ANSWER)
        return self.policy.analysts[of]

    def csv(self, terms: AnalystTerms, keys: Iterable[str] | None) -> str:
        """Answers under keys, or the newest of all, as one table: with 200,000 numbers at most, or one answer."""
        told, numbers = list[Answer](), 0
        for key in keys or [each["key"] for each in self.answers(terms)]:
            reply = self.stored(terms, key)
            if reply is None:
                raise Refused(404, "answer", NO_ANSWER)
            numbers += len(reply.answer.released)
            if told and numbers > _MOST_NUMBERS:
                break
            told.append(replace(reply.answer, key=key))
        return csv_of(told)

    def free(self, terms: AnalystTerms, questions: Mapping[str, Any]) -> dict[str, "Reply | Refused"]:
        """Answers that are there, by their keys, and refusals of questions that by their form may not be asked."""
        told, numbers = dict[str, Reply | Refused](), 0
        for key, values in questions.items():
            try:
                old, so_far = self.stored(terms, key), self.public_state.of(terms.name)
                if old is None:
                    if key != key.strip():  # HTTP takes them off a header: asked singly it would be another key
                        raise Refused(400, "key", "a key has no blanks at its ends")
                    question, _ = self._allowed(terms, values)
                    own = question.groups * question.coordinates
                else:
                    self._views[terms.name].check(asked(values), key=_filed(terms, key), so_far=so_far)
                    own = len(old.answer.released)
                numbers += own
                if own < numbers > terms.limits.cells:
                    together = f"answers of a batch have {terms.limits.cells} numbers at most together"
                    raise Refused(422, "cells", together)
                if old is not None:
                    told[key] = old
            except ArgumentError:
                told[key] = Refused(409, "key", _KEY_USED)
            except Exception as error:
                told[key] = problem_of(error)
        return told

    def dummy(self, terms: AnalystTerms, values: object) -> tuple[_bodies.QuoteBody, Reply]:
        """The quote of a question, and its answer about made-up data with that price. In the thread of tries."""
        if wait := self.dummies.wait(terms.name, DUMMIES, count=self._tried.get(terms.name, 1)):
            raise Refused(429, "rate", f"{DUMMIES} questions a minute may be tried; fewer that take long", retry=wait)
        (question, quoted), began = self._allowed(terms, values), time.monotonic()
        of = self.policy.file.tables, (public := self.session.columns | self.session.public_columns)
        try:
            if self._dummy is None or self._dummy[0] != of:
                self._forget_dummy()
                self._dummy = of, Dummy(self.policy, public)
            answer = self._dummy[1].ask(question)
        except (ArgumentError, BudgetExceeded) as error:
            raise problem_of(error) from None
        except Exception as error:
            self._forget_dummy()
            self.metrics.count("failures", kind=type(error).__name__)
            raise Refused(503, "dummy", FIXED_TEXTS["dummy"], retry=60) from None
        finally:  # each tenth of a second counts as one more, at the next
            self._tried[terms.name] = 1 + int(10 * (time.monotonic() - began))
        reply = Reply(answer_of(answer, answer.key, _today().isoformat(), quoted.of_budget), False, answer)
        return quote_of(quoted), self.arranged(terms, values, reply) if is_statement(values) else reply

    def _forget_dummy(self) -> None:
        if self._dummy is not None:
            self._dummy[1].close()
        self._dummy = None

    # what the worker calls: it is the only one that touches the ledger

    def ask(
        self, terms: AnalystTerms, questions: Mapping[str, Any], *, fresh: bool = False
    ) -> dict[str, "Reply | Refused"]:
        """Answer questions by their keys, or find their answers; one that is refused by public facts harms no other.

        In the worker's thread, which publishes them when its step ends. All that are charged are charged in one
        transaction, or none: if the data cannot be read for one, which one is not told.
        """
        if self.policy.analysts.get(terms.name) != terms:
            raise Refused(503, "policy", "the policy was changed while the question waited: send it again", retry=1)
        self.public_state.read(terms.name)  # another process may have answered
        told, charged = self.free(terms, questions), self.public_state.charged_on(terms.name, _today())
        rest = {key: values for key, values in questions.items() if key not in told}

        def work(transaction: Transaction | None = None) -> dict[str, Reply | Refused]:
            replies, begun = dict[str, Reply | Refused](), 0 if transaction is None else transaction.number
            counted = "SELECT count(*) FROM ledger.record WHERE kind = 'answered' AND number > ?"  # also for an 'auto'
            for key, values in rest.items():
                before = charged + (self.session.ledger.store.run(counted, [begun])[0][0] if replies else 0)
                try:
                    replies[key] = self._answered(terms, asked(values), key, before, fresh=fresh)
                except (ArgumentError, BudgetExceeded, Refused) as error:  # by public facts, before anything is written
                    replies[key] = problem_of(error)
            return replies

        try:
            replies = self.session.ledger.transact(work) if len(rest) > 1 else work()
        except DataError as error:
            self._unreadable |= error.reason == "unfit"
            raise
        for each in replies.values():
            if isinstance(each, Reply) and not each.old:
                state = "answered" if each.state == "new" else "shared"
                self.metrics.count("questions", analyst=terms.name, state=state)
        return told | replies

    def _answered(self, terms: AnalystTerms, question: Question, key: str, before: int, *, fresh: bool) -> Reply:
        """Ask a question, after so many that were charged today, or find an answer that another process just made."""
        filed = _filed(terms, key)
        found = self.session.ledger.find(filed)
        if found is None:
            self._refuse_beyond(terms, before)
        sharing = [] if fresh else self.policy.file.sharing.analysts
        try:
            of = sharing if terms.name in sharing else None
            answer = self._views[terms.name].ask(question, key=filed, earlier_of=of)
        except ArgumentError:
            if found is None:
                raise
            raise Refused(409, "key", _KEY_USED) from None  # for another question, or for the purpose before
        day = _today().isoformat() if found is None else found.public["time"][:10]
        price = answer.question.price if answer.earlier is None else 0
        body = answer_of(answer, key, day, price / self.session.ledger.budget_units)
        return Reply(body, found is not None, answer)

    def arranged(self, terms: AnalystTerms, values: object, reply: Reply) -> Reply:
        """The reply to a statement, with the rows that it says to show; Refused, where its order compares keys."""
        shown = _told(lambda: self._views[terms.name].shown(cast(Sql, asked(values)), reply.answer))
        body: Any = {**reply.body, "rows": {"columns": shown.columns, "rows": shown.rows}}
        return reply._replace(body=body)

    def count_seconds(self, terms: AnalystTerms, seconds: float) -> None:
        """Count seconds of answering, which are whole steps."""
        today = self.clock.now().date()
        self._worked = {of: worked for of, worked in self._worked.items() if of[1] == today}
        self._worked[terms.name, today] = self._worked.get((terms.name, today), 0.0) + seconds

    @_check.unquoted()
    def _allowed(self, terms: AnalystTerms, values: object) -> tuple[Question, Quote]:
        """The question and its quote, if the analyst may ask it by its form: cells and least price."""
        if isinstance(values, dict) and len(tables := self.policy.file.tables) == 1 and not is_statement(values):
            values = {"table": next(iter(tables)), **values}  # by which it need not be made anew
        read = asked(values)  # how many numbers an answer has may depend on what is left to the policy or data set
        question = _told(lambda: self._views[terms.name].filled(read))
        if isinstance(read, Sql):
            _told(lambda: self._views[terms.name].shown(read))  # refuses what cannot be shown
        cells = question.groups * question.coordinates
        cells = 2 * cells if question.open else cells + question.reports
        if cells > terms.limits.cells:
            raise Refused(422, "cells", f"the answer has {cells} numbers; at most {terms.limits.cells} are allowed")
        quoted = _told(lambda: self._views[terms.name].quote(question, so_far=self.public_state.of(terms.name)))
        if quoted.of_budget < terms.limits.least:
            costs = f"the question costs {quoted.of_budget:.3g} of a budget; the least price is"
            raise Refused(422, "least", f"{costs} {terms.limits.least:.3g}: ask with less noise")
        return question, quoted

    def _refuse_beyond(self, terms: AnalystTerms, charged: int) -> None:
        """Refuse what is above the limits of a day, in which so many questions were charged."""
        now, limits = datetime.now(UTC), terms.limits
        to_midnight = 86_400 - (now.hour * 3600 + now.minute * 60 + now.second)
        if charged >= limits.questions:
            raise Refused(429, "questions", f"{limits.questions} questions a day are allowed", retry=to_midnight)
        if self._worked.get((terms.name, self.clock.now().date()), 0.0) >= limits.seconds:
            raise Refused(429, "seconds", f"{limits.seconds:g} seconds a day are allowed", retry=to_midnight)

    def _share(self, public: Mapping[str, Any]) -> float:
        return int(public["price"]) / self.session.ledger.budget_units


def is_statement(values: object) -> bool:
    """True for plain values that ask a SELECT."""
    return isinstance(values, dict) and values.get("ask") == "sql"


def csv_of(answers: list[Answer]) -> str:
    file = StringIO()
    write_csv(answers, file)
    return file.getvalue()


def _told(work: Callable[[], Result]) -> Result:
    """Work whose refusals depend on the question and public facts alone: the analyst is told them."""
    try:
        return work()
    except ArgumentError as error:
        raise Refused(422, "question", str(error)) from None


def _filed(terms: AnalystTerms, key: str) -> str:
    """A key as the ledger has it: with the name of the analyst before it."""
    if not 1 <= len(key) <= KEY_CHARACTERS or not (key.isprintable() and key.isascii()) or key.startswith("DUMMY:"):
        raise Refused(400, "key", f"a key has 1 to {KEY_CHARACTERS} printable characters of ASCII, and no DUMMY: first")
    filed = f"{terms.name}{SEPARATOR}{key}"
    _check.name(key=filed)
    return filed


def _today() -> date:
    return datetime.now(UTC).date()


class Rates:
    """A bucket for each of at most ``_MOST_NAMES`` names: a minute's requests at once, and that rate on the whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait(self, whose: str, a_minute: int, *, count: int = 1, now: float | None = None) -> int:
        """0 if so many requests may be made, which are counted; else in how many seconds they may be made."""
        now, count = time.monotonic() if now is None else now, min(count, a_minute)
        with self._lock:
            tokens, last = self._buckets.pop(whose, (float(a_minute), now))
            tokens = min(float(a_minute), tokens + (now - last) * a_minute / 60)
            allowed = tokens >= count
            self._buckets[whose] = tokens - count if allowed else tokens, now
            if len(self._buckets) > _MOST_NAMES:
                del self._buckets[next(iter(self._buckets))]
            return 0 if allowed else ceil((count - tokens) * 60 / a_minute)


class PublicState:
    """The public facts about each analyst. Reading them never waits for the ledger; ``read`` and ``catch_up`` may."""

    def __init__(self, views: Mapping[str, Analyst]) -> None:
        self._views = views
        self._lock = threading.Lock()
        self._so_far: dict[str, SoFar] = {}
        self._by_key: dict[str, dict[str, Mapping[str, Any]]] = {name: {} for name in views}
        self._made = lru_cache(_MOST_ANSWERS)(lambda name, key: Answer.recorded(self._by_key[name][key]))

    def of(self, name: str) -> SoFar:
        return self._so_far[name]

    def read(self, name: str) -> SoFar:
        """The facts of an analyst as the ledger is now."""
        before = self._so_far.get(name)
        now = self._views[name].so_far(before)
        if now is not before:
            known = 0 if before is None else len(before.answers)
            with self._lock:
                self._by_key[name] |= {str(public["key"]): public for public in now.answers[known:]}
                self._so_far[name] = now
        return now

    def catch_up(self) -> None:
        for name in self._views:
            self.read(name)

    def answer(self, name: str, key: str) -> tuple[Answer, Mapping[str, Any]] | None:
        """An analyst's answer under a key of the ledger, and what the record says of it."""
        public = self._by_key[name].get(key)
        return None if public is None else (self._made(name, key), public)

    def charged_on(self, name: str, day: date) -> int:
        """Number of questions that were charged for an analyst on a day."""
        newest = takewhile(lambda public: str(public["time"])[:10] >= str(day), reversed(self._so_far[name].answers))
        return sum(public["kind"] == "answered" for public in newest)


class Metrics:
    """Counters by name and labels, and one histogram of seconds for each route."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()  # the library's own one would be shared by all services of a process
        ProcessCollector(registry=self._registry)
        self._counts = {
            name: Counter(f"privacy_{name}", about, labels, registry=self._registry)
            for name, (about, labels) in _COUNTS.items()
        }
        about = "Seconds that requests took, by route."
        self._seconds = Histogram("privacy_request_seconds", about, ["route"], buckets=_EDGES, registry=self._registry)

    def count(self, name: str, **labels: str) -> None:
        self._counts[name].labels(**labels).inc()

    def took(self, route: str, seconds: float) -> None:
        self._seconds.labels(route).observe(seconds)

    def total(self, name: str, **labels: str) -> int:
        return int(self._registry.get_sample_value(f"privacy_{name}_total", labels) or 0)

    def text(self, gauges: Iterable[tuple[str, str, float | Mapping[str, float]]]) -> bytes:
        """All of it, with gauges (name, about, numbers), but for when series began: that is finer than a step."""
        metrics = list(self._registry.collect())
        for name, about, value in gauges:
            labels = ["analyst"] if isinstance(value, Mapping) else []
            family = GaugeMetricFamily(f"privacy_{name}", about, labels=labels)
            for each, number in value.items() if isinstance(value, Mapping) else [("", value)]:
                family.add_metric([each] if labels else [], float(number))
            metrics.append(family)
        for metric in metrics:
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        return generate_latest(SimpleNamespace(collect=lambda: metrics))

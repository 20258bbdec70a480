"""A file of questions: where the rows are, whose budget, and what to ask under which keys.

Examples are in docs/queries/plans.md, and ``almoner init query`` writes one. ``PlanFile`` has every line, with what it
takes and what it is for; from it the tables there are made, and ``almoner schema plan``.

``pace = "rest"`` is how many questions of this file have it, from this one on: who pays much is shrunk a little each
time, so that everybody can pay for the whole series. A template with it needs ``to``; its periods that did not end
before today are counted, and asked later.

{day}, {week} (2011-W09) or {month} (2011-01), {from}, {until} and the names of ``for`` stand in any text of the
question; a text that is one of them alone becomes its value, so ``clip = "{clip}"`` works. A bracket itself is
written twice.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, Self

from almoner._calendar import start_of
from almoner._check import placed, told, unquoted
from almoner._misfits import Misfit
from almoner._reading import AfterValidator, Checked, Day, Field, Model, Rule, broken, model_validator, read, toml
from almoner.errors import ArgumentError, BudgetExceeded, Unsupported
from almoner.filters import Basic, Gaussian, Zcdp
from almoner.ledger import Finding, Ledger, Periods, Terms, on_a_server
from almoner.queries._ask.answer import Answer
from almoner.queries._ask.ask import Analyst
from almoner.queries._ask.quoted import Quote
from almoner.queries._questions.kinds_of import ASKS, described, question, question_schema
from almoner.queries._questions.question import Question
from almoner.queries._session import Session
from almoner.queries._tables.tables import Lookup, Table
from almoner.queries.engines import plugin_named, told_nothing

__all__ = ["ASKS", "AccountsPart", "Plan", "PlanFile", "RowsPart", "described", "question", "question_schema"]

Amount = Annotated[float, Rule("a finite number")]
Start = Annotated[date | str, Rule("a date, such as 2026-01-01")]


class _ReadPart(Model):
    table: str | None = None
    """the table or view of a DuckDB file"""
    view: str | None = None
    """SQL over `data`, whose rows questions read"""
    types: dict[str, str] | None = None
    """types of columns: `"text"`, `"whole"`, `"number"`, `"decimal comma"` (`1.234,5`), `"decimal point"` (`1,234.5`),
    `"bool"`, `"date"` or `"time"`; of a CSV file, others are text"""
    zone: str | None = None
    """the zone, such as `"Europe/Berlin"`, whose days and hours times with a zone have"""

    def read(self, folder: Path, spark: str | None) -> dict[str, Any]:
        """The data and how they are read; with ``spark``, the master of Spark, as a data frame."""
        data: str = getattr(self, "data")  # noqa: B009 - a field of each part, in its own place
        path = folder / data
        plugin = None if spark is None else plugin_named("pyspark")
        if plugin is None or spark is None:
            return {"data": path, "table": self.table, "view": self.view, "types": self.types, "zone": self.zone}
        if any(each is not None for each in (self.table, self.types, self.zone)):
            raise ArgumentError("table= is for DuckDB files, types= for CSV files; times are those of Spark's own zone")
        return {"data": told_nothing(plugin, partial(plugin.read, spark, data if "://" in data else path, self.view))}


class RowsPart(_ReadPart):
    """A table of people's rows."""

    data: str
    """the path of the file or folder: CSV, Parquet or DuckDB"""
    person: str | None = None
    """the column that says whose row it is, where it differs; or a path to it, such as `"order -> orders.id"`"""
    one_row: bool = False
    """each person has at most one row here"""


class TablePart(RowsPart):
    """A table of people's rows in a file of questions."""

    columns: list[str] | None = None
    """the columns that questions may use; all, if left out"""


class LookupPart(_ReadPart):
    """A table that holds nobody's data."""

    data: str
    """the path of the file: CSV, Parquet or DuckDB"""
    key: str
    """the column of this table that names a row"""
    on: str | None = None
    """the column of people's tables that holds the key, where it is called otherwise"""


class PeriodsPart(Model):
    """Periods of the rows, in each of which every person has a budget."""

    column: str
    """the column, of dates or times, that says in which period a row is"""
    every: Literal["day", "week", "month", "quarter", "year"]
    """how long a period is"""
    first: Start
    """a day in the first period; rows before it are in no answer"""
    last: Start
    """a day in the last period; rows after it are in no answer"""


class AccountsPart(Model):
    """The ledger and each person's budget, as files of questions and policies name them."""

    ledger: str
    """the path of the ledger, or `"postgresql://server/database"`"""
    person: str | None = None
    """the column that says whose row it is, unless each table says it"""
    public: dict[str, LookupPart] = Field(default={})
    """tables that hold nobody's data: `[public.NAME]`"""
    budget: Literal["zcdp", "gaussian", "pure"] = "zcdp"
    """the notion of the budget"""
    epsilon: Amount | None = None
    """each person's budget, for all analysts together; or `rho`, or `mu`"""
    delta: Amount | None = None
    """the failure probability of that budget; `"pure"` takes none"""
    rho: Amount | None = None
    """a `"zcdp"` budget, in place of `epsilon` and `delta`"""
    mu: Amount | None = None
    """a `"gaussian"` budget, in place of `epsilon` and `delta`"""
    keys_delta: Amount | None = None
    """what all questions for `"keys"` together may cost in delta, beside the budget; without it they are refused"""
    pseudonyms: str | None = None
    """the path of a key: the ledger then holds keyed hashes of people's names"""
    periods: PeriodsPart | None = None
    """each person has a budget in each period of the rows, such as each month"""
    spelling: str | None = None
    """which spellings of an id are one person's: `"nfc"` or `"caseless"`"""
    memory_limit: str | None = None
    """the memory that DuckDB may use, such as `"4GB"`"""
    witness: str | None = None
    """the path of a file on another volume that remembers the ledger's newest entry"""
    spark: str | None = None
    """the master of Spark, such as `"local[*]"`, which then reads Parquet files"""


class PlanPart(AccountsPart, _ReadPart):
    """The data, the ledger and the budget of a file of questions."""

    data: str | None = None
    """the path of the file or folder with people's rows"""
    tables: dict[str, TablePart] | None = None
    """several tables of people's rows, in place of `data`: `[tables.NAME]`"""
    dataset: str | None = None
    """which of the ledger's data sets it is, where some are declared"""

    @model_validator(mode="after")
    def _tables(self) -> Self:
        """Refuse data that are named twice or not at all, and rows of nobody."""
        for name in ("data", "table", "view", "types", "zone"):
            if self.tables is not None and getattr(self, name) is not None:
                raise broken(f".{name} stands in [tables.NAME], beside the table that it is about")
        if self.tables is None and self.data is None:
            raise broken(".data is missing; or give [tables.NAME]")
        if self.person is None and (self.tables is None or any(each.person is None for each in self.tables.values())):
            raise broken(".person is missing")
        return self

    def opened(self, folder: Path, domains: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Arguments of ``Session.open`` about tables: ``data`` or ``tables``, ``public`` and ``person``."""
        spark = self.spark
        public = {n: Lookup(key=part.key, on=part.on, **part.read(folder, spark)) for n, part in self.public.items()}
        if self.tables is None:
            return {"data": Table(**self.read(folder, spark)), "public": public or None, "person": self.person}
        tables = {
            name: Table(one_row=part.one_row, columns=domains.get(name, part.columns), **part.read(folder, spark))
            for name, part in self.tables.items()
        }
        person = {name: part.person or self.person for name, part in self.tables.items()}
        return {"tables": tables, "public": public or None, "person": person}


_BUDGETS: dict[str, tuple[type[Zcdp] | type[Gaussian] | type[Basic], set[str]]] = {
    "zcdp": (Zcdp, {"epsilon", "delta", "rho"}),
    "gaussian": (Gaussian, {"epsilon", "delta", "mu"}),
    "pure": (Basic, {"epsilon"}),
}
_REST = "rest"
_MOST = 100_000
_PLACE = re.compile(r"\{\{|\}\}|\{(\w*)\}")
_PLACED = {"type": "string", "pattern": r"\{"}  # JSON Schema of a text in a template that becomes something else


def _day(given: date | str) -> date:
    with suppress(ValueError):
        day = date.fromisoformat(str(given))
        if 1000 <= day.year <= 9000:
            return day
    raise broken(" must be a date in the years 1000 to 9000, such as 2011-12-09")


def _names(given: dict[str, list[Any]]) -> dict[str, list[Any]]:
    if not all(given.values()):
        raise broken(" must be a table of lists, such as { country = ['France', 'Spain'] }")
    if not all(re.fullmatch(r"\w+", name) and name not in ("day", "week", "month", "from", "until") for name in given):
        raise broken(": each name must be letters and digits, and no name of a period")
    return given


_Day = Annotated[date, Checked(_day, Day | str, "a date, such as 2027-01-01, without quotes")]


class Template(Model):
    """Fields of a question in a file beside those of its kind: its key, and what makes it a template of several."""

    key: str
    """the name of the answer; it has places, such as `{day}`, where it is a template"""
    every: Literal["day", "week", "month"] | None = None
    """a question for each: `{day}`, `{week}` or `{month}`, `{from}` and `{until}` are its places"""
    from_: _Day | None = Field(default=None, alias="from")
    """a day in the first of them"""
    to: _Day | None = None
    """a day in the last of them; without it, the last that ended before today (UTC)"""
    for_: Annotated[dict[str, list[Any]], AfterValidator(_names)] | None = Field(default=None, alias="for")
    """a question for each combination of these values, by the names of their places"""

    def places(self, today: date) -> list[dict[str, Any]]:
        """Values for the places of each question; without ``to``, up to the last period that ended before today."""
        if self.every is not None:
            if self.from_ is None:
                raise ArgumentError("from is missing: a day in the first period, such as from = 2011-12-09")
            if self.to is not None and self.to < self.from_:
                raise ArgumentError("to must not be before from")
        elif self.from_ is not None or self.to is not None:
            raise ArgumentError("from and to need every = 'day', 'week' or 'month'")
        periods = [{}] if self.every is None else list(islice(self._periods(today), _MOST + 1))
        names = [dict(zip(self.for_ or {}, each, strict=True)) for each in product(*(self.for_ or {}).values())]
        if len(periods) * len(names) > _MOST:
            raise ArgumentError(f"a template stands for at most {_MOST} questions")
        return [{**period, **each} for period in periods for each in names]

    def _periods(self, today: date) -> Iterator[dict[str, Any]]:
        every, stop = str(self.every), today if self.to is None else self.to + timedelta(days=1)
        start = start_of(every, self.from_ or today)
        while True:
            until = start_of(every, start + timedelta(days={"day": 1, "week": 7, "month": 31}[every]))
            if until > stop if self.to is None else start >= stop:
                return
            year, week, _ = start.isocalendar()
            named = {"day": start.isoformat(), "week": f"{year:04d}-W{week:02d}", "month": f"{start:%Y-%m}"}
            yield {every: named[every], "from": start.isoformat(), "until": until.isoformat()}
            start = until


class PlanFile(PlanPart):
    """A file of questions: data, ledger, budget, and what to ask under which keys."""

    analyst: str
    """who asks"""
    purpose: str | None = None
    """what the answers are for"""
    questions: list[dict[str, Any]]
    """`[[questions]]`, each with its key and the fields of its kind, or a template of several"""

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """JSON Schema of a file of questions; texts with places in brackets may stand for what is no text."""
        described, asked = super().json_schema(), deepcopy(question_schema())
        kinds = asked.pop("$defs")
        for kind in kinds.values():
            takes = {name: {"anyOf": [each, _PLACED]} for name, each in kind["properties"].items() if name != "ask"}
            kind["properties"] |= takes | Template.json_schema()["properties"]
            kind["required"] = ["key", *kind["required"]]
        described["properties"]["questions"]["items"] = asked
        return described | {"$defs": {**described["$defs"], **kinds}}


@dataclass(frozen=True, slots=True)
class Plan:
    """Contents of a file of questions. Every field is public."""

    folder: Path
    settings: PlanPart = field(repr=False)  # a connection string may hold a password
    questions: tuple[tuple[str, Question], ...]
    """Each with its key."""
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For tables in place of their columns: these with keys and bounds, as of ``Table``."""

    @classmethod
    @unquoted()
    def read(cls, path: Path | str, *, ledger: str | None = None, today: date | None = None) -> "Plan":
        """The plan in a TOML file.

        Args:
            path: the file.
            ledger: if given, stands in place of the file's.
            today: templates go to the last period that ended before it; None for today in UTC.
        """
        path = Path(path)
        settings = toml(path)
        if ledger is not None:
            settings["ledger"] = ledger if on_a_server(ledger) else str(Path(ledger).absolute())
        file = read(PlanFile, settings)
        return cls(path.parent, file, _questions(file.questions, today or datetime.now(UTC).date()))

    @classmethod
    @unquoted()
    def of(cls, settings: Mapping[str, Any], folder: Path) -> "Plan":
        """The data, ledger and budget in such settings, without questions; paths start from the folder."""
        return cls(folder, read(PlanPart, settings), ())

    @property
    @unquoted()
    def budget(self) -> Zcdp | Gaussian | Basic:
        """Budget of each person."""
        given = {name: getattr(self.settings, name) for name in ("epsilon", "delta", "rho", "mu")}
        amounts, kind = {name: value for name, value in given.items() if value is not None}, self.settings.budget
        make, takes = _BUDGETS[kind]
        for name in amounts:
            if name not in takes:
                raise ArgumentError(f"{told(**{name: amounts[name]})} is nothing that budget={kind!r} takes")
        if kind == "pure" and "epsilon" not in amounts:
            raise ArgumentError("budget='pure' needs epsilon=")
        return make(**amounts)

    @property
    @unquoted()
    def periods(self) -> Periods | None:
        """The periods of the rows that bring every person a budget; None: there is one for good."""
        given = self.settings.periods
        return None if given is None else Periods(**dict(given))

    @property
    def terms(self) -> Terms:
        """Terms of the ledger that the plan is about."""
        given = self.settings
        return Terms(self.budget, keys_delta=given.keys_delta, periods=self.periods, spelling=given.spelling)

    @property
    def ledger(self) -> Path | str:
        """Where the accounts are: a file beside this one, or a server."""
        name = self.settings.ledger
        return name if on_a_server(name) else self.folder / name

    @property
    def files(self) -> list[Path]:
        """Where the rows are, of people and of public tables."""
        tables: list[Any] = [self.settings, *(self.settings.tables or {}).values(), *self.settings.public.values()]
        return [self.folder / each.data for each in tables if each.data is not None]

    @property
    def witness(self) -> Path | None:
        """The file that remembers the ledger's newest entry; None where the plan names none."""
        return None if self.settings.witness is None else self.folder / self.settings.witness

    def open(self, *, create: bool = False, over: Ledger | None = None) -> Session:
        """The data holder's session.

        Args:
            create: make the ledger where there is none; else a missing one is refused.
            over: the plan's ledger, where it is open already; it stays open when the session is closed.

        Raises:
            AlmonerError: the ledger is not there and was not to be made, or a question can't be asked whatever the
                data: none is made.
        """
        if over is not None:
            return self._open(over)
        if create and self.questions and not Ledger.exists(self.ledger):
            with self.look() as session:
                self.check(session)
        return self._open(self.ledger, create=create)

    @contextmanager
    def look(self) -> Iterator[Session]:
        """A session in which nothing will be asked: it makes no ledger, and has an empty one if there is none.

        A LedgerError says that the ledger got lost: it is not there, but its witness is.
        """
        witnessed = self.witness is not None and self.witness.exists()
        with self.open() if witnessed or Ledger.exists(self.ledger) else self._empty() as session:
            yield session

    @contextmanager
    def _empty(self) -> Iterator[Session]:
        with TemporaryDirectory() as folder, self._open(Path(folder) / "ledger", create=True) as session:
            yield session

    def _open(self, ledger: Path | str | Ledger, *, create: bool = False) -> Session:
        opened, own = isinstance(ledger, Ledger), ledger == self.ledger  # an empty one to look at needs no key
        pseudonyms = self.settings.pseudonyms
        return Session.open(
            budget=self.terms,
            ledger=ledger,
            pseudonyms=self.folder / pseudonyms if own and pseudonyms is not None else None,
            witness=self.witness if own else None,
            create=create,
            memory_limit=None if opened else self.settings.memory_limit,
            dataset=self.settings.dataset if own or opened else None,
            **self.settings.opened(self.folder, self.domains),
        )

    def misfits(self) -> list[Misfit]:
        """Numbers of entries that don't fit the types the plan gives their columns: ``Session.misfits``. PRIVATE."""
        with self._empty() as session:
            return session.misfits

    def analyst(self, session: Session) -> Analyst:
        """The plan's analyst, who asks for its purpose."""
        if not isinstance(self.settings, PlanFile):
            raise ArgumentError("analyst is missing: who asks")
        return session.analyst(self.settings.analyst, purpose=self.settings.purpose)

    def quote(self, session: Session) -> dict[str, Quote]:
        """Quote of each question at worst."""
        return self._each(session, lambda analyst, asked, _: analyst.quote(asked))

    def check(self, session: Session) -> None:
        """Refuse questions that could not be asked whatever the data. Asks nothing.

        Raises:
            ArgumentError: a question does not fit the data's columns, or its key was used for another one.
            BudgetExceeded: it costs more than the whole budget.
        """
        self._each(session, lambda analyst, asked, key: analyst.check(asked, key=key))

    def ask(self, session: Session) -> dict[str, Answer]:
        """Every question's answer, in order; those asked before cost nothing.

        A question that ``check`` refuses stops all before the first is charged.

        Raises:
            BudgetExceeded: a question does not certainly fit, and does not say ``anyway``. The answers to those before
                it are stored.
        """
        self.check(session)
        return self._each(session, lambda analyst, asked, key: analyst.ask(asked, key=key))

    def _each(self, session: Session, do: Callable[[Analyst, Question, str], Any]) -> dict[str, Any]:
        analyst, made = self.analyst(session), dict[str, Any]()
        for key, asked in self.questions:
            try:
                made[key] = do(analyst, asked, key)
            except (ArgumentError, BudgetExceeded, Unsupported) as refused:
                refused.args = (f"question {key!r}: {refused}",)
                raise
        return made

    def verify(self, ledger: Path | str, *, head: str | None = None) -> list[Finding]:
        """Check a ledger against the data: every charge is computed again from the rows. Makes no ledger.

        Args:
            ledger: the file or the server that should be checked; it must be the plan's.
            head: what ``ledger.head`` said at some time in the past.

        Raises:
            ArgumentError: the plan is about another ledger.
        """
        own = self.ledger
        if not (own.resolve() == Path(ledger).resolve() if isinstance(own, Path) else own == ledger):
            raise ArgumentError("the file of questions is about another ledger")
        with self.open() as session:
            return session.verify(head=head, replay=True)


def _questions(entries: list[dict[str, Any]], today: date) -> tuple[tuple[str, Question], ...]:
    listed: list[tuple[int, dict[str, Any], bool]] = []
    for place, entry in enumerate(entries, start=1):
        with placed(f"question {place}"):
            listed += [(place, fields, now) for fields, now in _written(entry, today)]
    rest = sum(fields.get("pace") == _REST for _, fields, _ in listed)
    questions: dict[str, Question] = {}
    for place, fields, now in listed:
        if fields.get("pace") == _REST:
            fields["pace"], rest = rest, rest - 1
        elif fields.get("pace") == "none":
            fields["pace"] = None
        if not now:
            continue
        key = fields.pop("key", None)
        if not isinstance(key, str) or not key or key in questions:
            raise ArgumentError(f"question {place}: needs a key of its own")
        with placed(f"question {place}"):
            questions[key] = question(fields)
    return tuple(questions.items())


def _written(fields: dict[str, Any], today: date) -> list[tuple[dict[str, Any], bool]]:
    """Each question that an entry stands for, and whether it is asked now; of a series all are counted."""
    given: dict[str, Any] = {name: fields.pop(name) for name in ("every", "from", "to", "for") if name in fields}
    if not given:
        return [(fields, True)]
    template = read(Template, {"key": "", **given})
    places = ended = template.places(today)
    if fields.get("pace") == _REST and template.every is not None:
        if template.to is None:
            raise ArgumentError("pace='rest' needs to=: where a series without an end stops is not known")
        ended = template.model_copy(update={"to": None}).places(today)
    return [(_filled(fields, each), each in ended) for each in places]


def _filled(value: Any, places: Mapping[str, Any], field: str = "") -> Any:
    """The value with each {name} in its texts replaced; a text that is nothing else becomes what stands there."""
    if isinstance(value, dict):
        return {name: _filled(each, places, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, places) for each in value]
    if not isinstance(value, str):
        return value

    def at(name: str) -> Any:
        if name not in places:
            raise ArgumentError(f"{{{name}}} is not known; known are {', '.join(f'{{{each}}}' for each in places)}")
        return places[name]

    def replaced(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0][0]  # a doubled bracket
        text = str(at(match[1]))
        return text.replace("'", "''") if field in ("where", "sql") else text  # it stands in quotes there

    alone = _PLACE.fullmatch(value)
    return at(alone[1]) if alone and alone[1] and field not in ("key", "where", "sql") else _PLACE.sub(replaced, value)

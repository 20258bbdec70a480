"""Policies: data, budget, analysts, limits and prices that a data holder allows, as one file, which is checked whole.

::

    ledger = "people.ledger"             # as in a file of questions: also epsilon, delta, rho, mu, budget, keys_delta,
    person = "customer"                  # pseudonyms, spelling, memory_limit, witness, [periods], [public.NAME]
    epsilon = 1.0
    delta = 1e-6
    budget = "gaussian"

    [tables.visits]                      # a data set: also table =, view =, types =, person =, one_row =
    data = "visits.csv"
    types = { hours = "number" }         # text, whole, number, "decimal comma", bool, date, time; others are missing
    about = "One row for each visit"     # may be left out
    [tables.visits.columns]              # the columns that questions may use, and what is public about them
    country = { keys = ["FR", "ES"] }
    hours = { low = 0, high = 24, about = "length of the visit" }

    [limits]                             # of each analyst; may be left out, as may each line
    share = 0.1                          # of each person's budget, for all questions of one analyst
    least = 0.0001                       # the least price of a question, as a share of the budget
    questions = 100                      # a day (UTC)
    cells = 10000                        # numbers in one answer
    seconds = 600                        # of answering a day
    requests = 600                       # a minute

    [analysts.ann]                       # each analyst; limits may stand here too
    token = "sha256:..."                 # what `almoner serve --new-token` printed
    purpose = "weekly figures"           # may be left out
    expires = 2030-01-01                 # may be left out

    [holder]
    token = "sha256:..."
    near = 0.9                           # from this share spent on, a person is near the end

    [sharing]                            # may be left out
    analysts = ["ann", "bob"]            # what one of them was answered serves the others, for nothing

    [watch]                              # may be left out: see Session.watch
    people = 50                          # or mass =
    epsilon = 0.05

    [usual]                              # a usual question, in which what is left is counted; may be left out
    ask = "count"
    clip = 5
    rho = 0.0002

    [service]                            # may be left out, as may each line
    host = "127.0.0.1"
    port = 8080
    holder_host = "127.0.0.1"
    holder_port = 8081
    step = 0.25                          # seconds: every answer takes a multiple of it
    https = false                        # whether pages are reached over https, through a proxy
    visits = "people.ledger.visits"      # the folder of what signs visits; for PostgreSQL: "visits"
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from math import isfinite
from pathlib import Path
from typing import Any

from almoner.errors import ArgumentError, DataError
from almoner.ledger import Watch, on_a_server
from almoner.queries import Question
from almoner.queries.plans import Plan, question
from almoner.service._tokens import is_hash

__all__ = ["AnalystTerms", "Column", "DataSet", "Limits", "Policy", "ServiceSettings", "fixed_part"]

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_PLAN = (
    "ledger", "person", "public", "epsilon", "delta", "rho", "mu", "budget", "keys_delta", "pseudonyms",
    "periods", "spelling", "memory_limit", "witness", "spark",
)  # fmt: skip
_PARTS = ("tables", "limits", "analysts", "holder", "sharing", "watch", "usual", "service")
_TABLE = ("data", "table", "view", "types", "person", "one_row")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one analyst. Every field is public. Shares are of each person's budget."""

    share: float = 0.1
    """Most that all questions of the analyst together may cost a person."""
    least: float = 1e-4
    """The least price of a question."""
    questions: int = 100
    """Most questions that are charged on a day, in UTC."""
    cells: int = 10_000
    """Most numbers in one answer."""
    seconds: float = 600.0
    """Most seconds of answering a day, in whole steps; counted anew when the service starts."""
    requests: int = 600
    """Most requests a minute, of whatever kind."""


@dataclass(frozen=True, slots=True)
class AnalystTerms:
    """An analyst as the policy has them. ``token`` is the hash of the token; the rest is public."""

    name: str
    token: str = field(repr=False)
    purpose: str | None
    limits: Limits
    expires: date | None


@dataclass(frozen=True, slots=True)
class Column:
    """Public facts about a column that questions may use."""

    name: str
    about: str | None = None
    low: float | None = None
    high: float | None = None
    keys: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class DataSet:
    """Public facts about a table of people."""

    name: str
    about: str | None
    columns: tuple[Column, ...]

    def fill(self, question: Question) -> Question:
        """The question with the keys and bounds that it leaves out, where this says them of a column."""
        if not question.unfilled or question.each_person:
            return question
        known = {column.name: column for column in self.columns}
        nothing = Column("")
        by = {name: keys or known.get(name, nothing).keys or None for name, keys in question.keys}
        column = known.get(str(getattr(question, "column", "")), nothing)
        bounds: dict[str, Any] = {}
        if column.low is not None and getattr(question, "per", None) != "total":
            bounds = {name: getattr(column, name) for name in question.left_out()}
        return replace(question, by=by, **bounds)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """Where the service listens, and how it answers."""

    host: str = "127.0.0.1"
    port: int = 8080
    holder_host: str = "127.0.0.1"
    holder_port: int = 8081
    step: float = 0.25
    https: bool = False
    visits: str | None = None

    def __post_init__(self) -> None:
        if self.port == self.holder_port != 0 and self.host == self.holder_host:
            raise ArgumentError(f"service.holder_port={self.holder_port} must differ from the port of analysts")


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy file, read and checked. ``plan`` may hold a password in a connection string, and is not shown."""

    plan: Plan = field(repr=False)
    data_sets: tuple[DataSet, ...]
    analysts: Mapping[str, AnalystTerms]
    holder_token: str = field(repr=False)
    near: float
    sharing: frozenset[str]
    watch: Watch | None
    usual: Mapping[str, Any] | None
    service: ServiceSettings

    @property
    def visits(self) -> Path:
        """The folder of visits: as the policy says, or else beside a ledger that is a file, or beside the policy."""
        ledger, folder = self.plan.ledger, self.plan.folder
        named = self.service.visits or ("visits" if on_a_server(str(ledger)) else f"{ledger}.visits")
        return folder / named

    @classmethod
    def read(cls, path: Path | str) -> "Policy":
        """The policy in a TOML file.

        Raises:
            DataError: the file cannot be read, or is no TOML.
            ArgumentError: something in it breaks a rule; the message has the key, the value unless it is secret, and
                the rule.
        """
        path = Path(path)
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError:
            raise DataError(f"{path} cannot be read") from None
        except UnicodeDecodeError:
            raise DataError(f"{path} is not a TOML file: its text must be in UTF-8") from None
        except tomllib.TOMLDecodeError as error:  # its reason may quote a secret; the place does not
            place = re.search(r"\((at line \d+, column \d+|at end of document)\)$", str(error))
            raise DataError(f"{path} is not a TOML file{f': look {place[1]}' if place else ''}") from None
        return cls.of(values, path.parent)

    @classmethod
    def of(cls, values: Mapping[str, Any], folder: Path) -> "Policy":
        """The policy in the values of a file, with the folder that its paths start from."""
        file = _FileTable("", values)
        for name in (*_PLAN, *_PARTS):
            file.take(name)
        file.done()  # a misspelled key is named before anything is missed under its right name
        plan, data_sets = _plan(file, folder)
        plan_budget(plan)
        defaults = _limits(file.table("limits"), Limits(), alone=True)
        analysts = _analysts(file.table("analysts"), defaults)
        holder = file.table("holder")
        if not is_hash(holder.take("token")):
            raise holder.refuse("token", "what `almoner serve --new-token` printed: sha256:...", secret=True)
        if any(holder.take("token") == analyst.token for analyst in analysts.values()):
            raise holder.refuse("token", "of the data holder alone, and of no analyst", secret=True)
        near = holder.share("near", 0.9)
        holder.done()
        sharing = _sharing(file.table("sharing"), analysts)
        watch = _watch(file.take("watch"))
        usual = file.take("usual")
        if usual is not None:
            _check_usual(usual)
        service = _service(file.table("service"))
        return cls(plan, data_sets, analysts, holder.take("token"), near, sharing, watch, usual, service)


class _FileTable:
    """One table of the file: each value is read with its name and its rule.

    What was not asked for when ``done`` is called is refused as unknown.

    Args:
        where: its name, with a point behind it, such as ``limits.``; empty for the file itself.
        values: as the file has them.
    """

    def __init__(self, where: str, values: object) -> None:
        if not isinstance(values, Mapping):
            raise ArgumentError(f"{where.rstrip('.')} must be a table")
        self.where, self._values, self._known = where, dict(values), set[str]()

    def take(self, name: str) -> Any:
        """A value as it is; None if it is not there."""
        self._known.add(name)
        return self._values.get(name)

    def names(self) -> list[str]:
        """The names in this table, all of which are taken for known."""
        self._known |= self._values.keys()
        return list(self._values)

    def refuse(self, name: str, rule: str, *, secret: bool = False) -> ArgumentError:
        """The error for a value that breaks a rule."""
        shown = "" if secret or name not in self._values else f"={self._values[name]!r:.100}"
        return ArgumentError(f"{self.where}{name}{shown} must be {rule}")

    def number(self, name: str, default: Any, *, above: float, most: float) -> Any:
        """A number above ``above`` and at most ``most``."""
        value = self.take(name)
        if value is None:
            return default
        right = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
        if not right or not above < value <= most:
            raise self.refuse(name, f"a number above {above:g}, and at most {most:g}")
        return float(value)

    def share(self, name: str, default: Any, *, zero: bool = False) -> Any:
        """A share above 0, or from 0 on, and at most 1."""
        if zero and self._values.get(name) == 0 and not isinstance(self._values.get(name), bool):
            return float(self.take(name))
        return self.number(name, default, above=0, most=1)

    def whole(self, name: str, default: Any, *, low: int, high: int) -> Any:
        """A whole number."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.refuse(name, f"a whole number from {low} to {high}")
        return value

    def text(self, name: str, default: Any = None, *, most: int = 200) -> Any:
        """A printable text."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, str) or not 1 <= len(value) <= most or not value.isprintable():
            raise self.refuse(name, f"1 to {most} printable characters")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return value

    def day(self, name: str) -> date | None:
        """A date, such as 2027-01-01."""
        value = self.take(name)
        if value is not None and (not isinstance(value, date) or isinstance(value, datetime)):
            raise self.refuse(name, "a date, such as 2027-01-01, without quotes")
        return value

    def table(self, name: str) -> "_FileTable":
        """A table in this one; empty if it is not there."""
        value = self.take(name)
        return _FileTable(f"{self.where}{name}.", {} if value is None else value)

    def done(self) -> None:
        """Refuse what nobody asked for."""
        for name in self._values:
            if name not in self._known:
                raise ArgumentError(f"{self.where}{name} is not known; known are {', '.join(sorted(self._known))}")


def fixed_part(before: Policy, after: Policy) -> str | None:
    """The first part that differs of those which a running service keeps: data, ledger and budget, watch, ports."""
    kept = {
        "data_sets": "tables",
        "plan": "the ledger, its budget or the tables",
        "watch": "watch",
        "service": "service",
    }
    for name, called in kept.items():
        if getattr(before, name) != getattr(after, name):
            return called
    return None


def plan_budget(plan: Plan) -> None:
    """Refuse a budget that makes no sense, before any data is read."""
    _ = plan.budget


def _plan(file: _FileTable, folder: Path) -> tuple[Plan, tuple[DataSet, ...]]:
    """The data, the ledger and the budget; and what is public about the tables."""
    settings = {name: value for name in _PLAN if (value := file.take(name)) is not None}
    tables, data_sets = file.table("tables"), []
    settings["tables"] = {}
    for name in tables.names():
        table = tables.table(name)
        given = {key: value for key in _TABLE if (value := table.take(key)) is not None}
        if str(given.get("data", "")).lower().endswith((".csv", ".csv.gz")) and "types" not in given:
            raise ArgumentError(
                f"{table.where}types must be given: without it one person's entry can change the kind of a column, "
                "which analysts see"
            )
        columns = table.table("columns")
        listed = tuple(_column(each, columns.table(each)) for each in columns.names())
        if not listed:
            raise ArgumentError(f"{columns.where.rstrip('.')} must list the columns that questions may use")
        data_sets.append(DataSet(name, table.text("about", most=1000), listed))
        table.done()
        settings["tables"][name] = {**given, "columns": [each.name for each in listed]}
    if not data_sets:
        raise ArgumentError("tables must have one table or more: [tables.NAME]")
    return Plan.of(settings, folder), tuple(data_sets)


def _column(name: str, told: _FileTable) -> Column:
    low, high = (told.number(end, None, above=-1e100, most=1e100) for end in ("low", "high"))
    keys = told.take("keys")
    if (low is None) != (high is None) or (low is not None and not low < high):
        raise ArgumentError(f"{told.where.rstrip('.')} must have both low and high, and low below high, or neither")
    if keys is not None and (not isinstance(keys, list) or not 0 < len(keys) <= 100_000):
        raise told.refuse("keys", "a list of 1 to 100000 keys")
    if keys is not None and len({str(key) for key in keys}) < len(keys):
        raise told.refuse("keys", "keys that differ from each other")
    column = Column(name, told.text("about", most=1000), low, high, tuple(keys or ()))
    told.done()
    return column


def _limits(told: _FileTable, otherwise: Limits, *, alone: bool = False) -> Limits:
    """The limits that a table states, others as before."""
    given = {
        "share": told.share("share", None),
        "least": told.share("least", None, zero=True),
        "questions": told.whole("questions", None, low=0, high=1_000_000),
        "cells": told.whole("cells", None, low=1, high=1_000_000),
        "seconds": told.number("seconds", None, above=0, most=86_400),
        "requests": told.whole("requests", None, low=1, high=1_000_000),
    }
    if alone:
        told.done()
    return replace(otherwise, **{name: value for name, value in given.items() if value is not None})


def _analysts(told: _FileTable, defaults: Limits) -> dict[str, AnalystTerms]:
    analysts: dict[str, AnalystTerms] = {}
    for name in told.names():
        one = told.table(name)
        if not _NAME.fullmatch(name):
            raise ArgumentError(
                f"analysts.{name!r:.60} must be called by 1 to 40 of a-z, 0-9, '.', '_' and '-': "
                "names that differ by case or spelling would have limits of their own"
            )
        if not is_hash(one.take("token")):
            raise one.refuse("token", "what `almoner serve --new-token` printed: sha256:...", secret=True)
        if any(one.take("token") == other.token for other in analysts.values()):
            raise one.refuse("token", "of one analyst alone", secret=True)
        terms = AnalystTerms(name, one.take("token"), one.text("purpose"), _limits(one, defaults), one.day("expires"))
        one.done()
        analysts[name] = terms
    if not analysts:
        raise ArgumentError("analysts must have one analyst or more: [analysts.NAME]")
    return analysts


def _sharing(told: _FileTable, analysts: Mapping[str, AnalystTerms]) -> frozenset[str]:
    names = told.take("analysts")
    told.done()
    for name in names if isinstance(names, list) else [] if names is None else [names]:
        if name not in analysts:
            raise told.refuse("analysts", "a list of analysts of this file")
    return frozenset(names or ())


def _watch(given: object) -> Watch | None:
    if given is None:
        return None
    told = _FileTable("watch.", given)
    people, mass = (told.whole(name, None, low=0, high=2**52) for name in ("people", "mass"))
    epsilon = told.number("epsilon", None, above=0, most=100)
    told.done()
    if (people is None) == (mass is None) or epsilon is None:
        raise ArgumentError("watch must have people or mass, and epsilon")
    return Watch(mass if people is None else people, epsilon, mass=people is None)


def _check_usual(usual: object) -> None:
    """Refuse a usual question that is none."""
    if not isinstance(usual, dict):
        raise ArgumentError("usual must be a table: a question as in a file of questions")
    try:
        asked = question(usual)
    except (ArgumentError, TypeError, ValueError) as error:
        raise ArgumentError(f"usual: {error}") from None
    if asked.open:
        raise ArgumentError("usual must have a price: no error=, and no 'auto'")


def _service(told: _FileTable) -> ServiceSettings:
    given = {
        "host": told.text("host"),
        "port": told.whole("port", None, low=0, high=65_535),
        "holder_host": told.text("holder_host"),
        "holder_port": told.whole("holder_port", None, low=0, high=65_535),
        "step": told.number("step", None, above=1e-3, most=60),
        "https": told.flag("https", False),
        "visits": told.text("visits", most=4_000),
    }
    told.done()
    known = {each.name for each in fields(ServiceSettings)}
    return replace(ServiceSettings(), **{n: v for n, v in given.items() if n in known and v is not None})

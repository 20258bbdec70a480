"""Data sets as a ledger knows them: whose rows a table holds, and what is public about its columns."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from numbers import Real
from typing import Any, Self

from almoner import _check
from almoner.errors import ArgumentError
from almoner.ledger._record.terms import NAMES

_MOST_KEYS = 100_000
_LONGEST = 1000
_LARGEST = 1e100


@dataclass(frozen=True, slots=True)
class Domain:
    """Public facts about a column: its bounds, or its keys. They must not depend on who is in the table.

    Args:
        low, high: between which all entries are; a question that leaves its bounds out clips to them.
        keys: of the groups, where a question that groups by the column leaves them out: text, whole numbers, truth
            values or dates.
    """

    low: float | None = None
    high: float | None = None
    keys: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        if (self.low is None) != (self.high is None) or (self.low is None) == (self.keys is None):
            raise ArgumentError(f"columns: {self!r:.200} must have either low and high, or keys")
        if self.keys is not None:
            object.__setattr__(self, "keys", _checked_keys(self.keys))
            return
        for name in ("low", "high"):
            end = getattr(self, name)
            real = isinstance(end, Real) and not isinstance(end, bool)
            if not real or not -_LARGEST <= end <= _LARGEST:
                raise ArgumentError(f"columns: {name}={end!r:.40} must be a number within {_LARGEST:g}")
            object.__setattr__(self, name, end if isinstance(end, int) else float(end))
        if not self.low < self.high:  # type: ignore[operator]  # both are numbers now
            raise ArgumentError(f"columns: low={self.low!r} must be below high={self.high!r}")

    @classmethod
    def of(cls, column: str, given: object) -> Self:
        """A domain, or what ``public`` says of one."""
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping) or not set(given) <= {"low", "high", "keys"}:
            raise ArgumentError(f"columns: {column!r} must have low and high, or keys, and nothing else")
        return cls(given.get("low"), given.get("high"), given.get("keys"))

    @property
    def public(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high} if self.keys is None else {"keys": list(self.keys)}


@dataclass(frozen=True, slots=True)
class Dataset:
    """A table of people, as a ledger knows it. Every field is public.

    Fields:
        name: of the data set.
        person: the column that says whose row it is.
        names: how people are named there, as in all data sets of the ledger: BIGINT (whole numbers) or VARCHAR (text).
        columns: what is public about columns; all of them must be there.
        version: 1, and 1 more for each time that it was declared anew.
        number: of the entry that declares it.
    """

    name: str
    person: str
    names: str
    columns: Mapping[str, Domain] = field(default_factory=dict)
    version: int = 1
    number: int = -1

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[^\W\d]\w{0,99}", self.name):
            raise ArgumentError(f"dataset={self.name!r} must be a name of letters, digits and _, of at most 100")
        _check.name(person=self.person)
        if not isinstance(self.columns, Mapping):
            raise ArgumentError("columns must be {name: Domain(...)}")
        _check.each(_check.name, column=self.columns)
        columns = {column: Domain.of(column, given) for column, given in self.columns.items()}
        object.__setattr__(self, "columns", columns)

    @classmethod
    def read(cls, public: Mapping[str, Any], number: int) -> Self:
        name, person, names = public["dataset"], public["person"], public["names"]
        return cls(name, person, names, public["columns"], int(public["version"]), number)

    @property
    def public(self) -> dict[str, object]:
        said = {"dataset": self.name, "version": self.version, "person": self.person, "names": self.names}
        columns = {column: domain.public for column, domain in self.columns.items()}
        return {"kind": "dataset", **said, "columns": columns}

    def difference(self, other: "Dataset") -> str | None:
        """The first field in which another declaration of the name differs, in words; None where there is none."""
        if self.person != other.person:
            return f"person={self.person!r}, not {other.person!r}"
        for column in (*self.columns, *other.columns):
            own, new = self.columns.get(column), other.columns.get(column)
            if own is None or new is None:
                return f"no column {column!r}" if own is None else f"a column {column!r}, not without"
            if (own.low, own.high) != (new.low, new.high):
                return f"low={own.low!r} and high={own.high!r} of {column!r}, not {new.low!r} and {new.high!r}"
            if [*map(repr, own.keys or ())] != [*map(repr, new.keys or ())]:
                return f"other keys of {column!r}"
        return None

    def following(self, known: "Mapping[str, Dataset]", *, new_version: bool) -> "Dataset":
        """The declaration in force, where this one says nothing new; else this one, as the version after it.

        Raises: ArgumentError: it was declared otherwise, without ``new_version``, or a name differs from another by
        case alone.
        """
        twins = [other for other in known if other != self.name and other.casefold() == self.name.casefold()]
        if twins:
            raise ArgumentError(f"dataset={self.name!r}: there is {twins[0]!r} already, which differs by case alone")
        if self.name not in known:
            return self
        before = known[self.name]
        difference = before.difference(self)
        if difference is None:
            return before
        if not new_version:
            raise ArgumentError(f"dataset={self.name!r} was declared with {difference}; new_version=True declares anew")
        return replace(self, version=before.version + 1)

    @property
    def spelled(self) -> str:
        """Kind of people's names, in words."""
        return NAMES[self.names]


def _checked_keys(keys: object) -> tuple[Any, ...]:
    if isinstance(keys, str | bytes) or not hasattr(keys, "__iter__"):
        raise ArgumentError("columns: keys must be a list")
    checked = tuple(_key(key) for key in keys)
    if not 0 < len(checked) <= _MOST_KEYS or len({(type(key), key) for key in checked}) < len(checked):
        raise ArgumentError(f"columns: keys must be 1 to {_MOST_KEYS} keys, each of them once")
    return checked


def _key(key: object) -> object:
    if isinstance(key, date) and not isinstance(key, datetime):
        return key.isoformat()
    if not isinstance(key, str | int | bool) or (isinstance(key, str) and len(key) > _LONGEST):
        raise ArgumentError(f"columns: key {key!r:.60} must be text, a whole number, a truth value or a date")
    return key

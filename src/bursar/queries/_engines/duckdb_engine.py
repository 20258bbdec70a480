"""The door to DuckDB: what a session needs of an engine, computed on the connection that holds the ledger.

Another engine is another class of ``Rows``. It must give the same whole sums and the same units.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Protocol, Self

from bursar.errors import DataError
from bursar.ledger import Ledger
from bursar.ledger._workspace import Refused
from bursar.queries._engines import sources
from bursar.queries._engines.compiler import Compiled, compiled
from bursar.queries._forms import described
from bursar.queries._questions import Question

__all__ = ["DuckDB", "Rows", "fill_keys"]


class Rows(Protocol):
    """The people's rows, in an engine that adds up. Private."""

    def check(self, asked: Question) -> None:
        """Refuse what cannot be asked of these columns. Public: names and types of columns only."""

    def charges(self, asked: Question) -> tuple[str, list[Any]]:
        """A query for the desk that gives everybody's price (person, units, ...), and its parameters."""

    def offer(self, asked: Question) -> None:
        """Work out everybody's contribution and price, for ``admit``."""

    def admit(self, asked: Question, *, analyst: str, purpose: str | None, reserved: str | None) -> None:
        """Have the ledger choose who takes part in the question that was offered."""

    def sums(self, asked: Question) -> list[int]:
        """The contributions of those admitted, added up, in whole steps."""

    def close(self) -> None:
        """Nothing more will be asked."""


class DuckDB:
    """Rows in DuckDB. Private: it belongs to the data holder's session."""

    def __init__(self, ledger: Ledger, person: str, kinds: Mapping[str, str]) -> None:
        self._ledger = ledger
        self._person = person
        self._kinds = dict(kinds)
        self._once = lru_cache(maxsize=16)(lambda asked, _: self._compile(asked))

    @classmethod
    def open(cls, ledger: Ledger, data: Any, reading: sources.ReadOptions, *, person: str) -> Self:
        """Attach the rows beside the ledger."""
        return cls(ledger, person, sources.attach(ledger.store.desk.connection, data, reading, load=True))

    def check(self, asked: Question) -> None:
        """Refuse what cannot be asked of these columns. Public: names and types of columns only."""
        self._compiled(asked)

    def charges(self, asked: Question) -> tuple[str, list[Any]]:
        """A query that gives everybody's price (person, units, ...), and its parameters."""
        plan, run = self._compiled(asked), self._ledger.store.desk.run
        fill_keys(run, plan.keys)
        if plan.cells is None:
            return plan.charges, list(plan.parameters)
        run(f"CREATE OR REPLACE TEMP TABLE cells AS {plan.cells}", list(plan.parameters))
        return plan.charges, []

    def offer(self, asked: Question) -> None:
        """Work out everybody's contribution and price, for ``admit``."""
        with self._reading():
            self._ledger.offer(*self.charges(asked))

    def admit(self, asked: Question, *, analyst: str, purpose: str | None, reserved: str | None) -> None:
        """Have the ledger choose who takes part in the question that was offered."""
        with self._reading():
            self._ledger.admit(
                price=asked.price,
                spare=asked.spare_units,
                analyst=analyst,
                purpose=purpose,
                reserved=reserved,
            )

    def sums(self, asked: Question) -> list[int]:
        """The contributions of those admitted, added up, in whole steps. Private."""
        found = [0] * (asked.groups * asked.coordinates)
        rows = self._ledger.store.desk.run(self._compiled(asked).sums)
        while block := rows.fetchmany(65_536):
            for cell, *values in block:
                place = cell * len(values)
                found[place : place + len(values)] = [int(value or 0) for value in values]
        return found

    def close(self) -> None:
        """The desk is closed with the ledger."""

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """A step that is refused while the ledger stays open is about the data."""
        try:
            yield
        except Refused:
            if self._ledger.store.closed:
                raise
            raise DataError("the data cannot be read; nothing was charged") from None

    def _compiled(self, asked: Question) -> Compiled:
        return self._once(asked, repr(described(asked)))  # to Python 1 and True are the same

    def _compile(self, asked: Question) -> Compiled:
        return compiled(asked, self._person, self._ledger.person_kind, self._kinds)


def fill_keys(run: Callable[..., Any], keys: tuple[tuple[str, str, tuple[Any, ...]], ...]) -> None:
    """Make the tables of keys to group by, on the desk."""
    for table, kind, values in keys:
        run(f"CREATE OR REPLACE TEMP TABLE {table}(key {kind}, place BIGINT)")
        run(
            f"INSERT INTO {table} SELECT unnest(CAST(? AS {kind}[])), unnest(range({len(values):d}))",
            [[_key(value) for value in values]],
        )


def _key(key: Any) -> Any:
    """A key as DuckDB takes it in a list."""
    if isinstance(key, date | datetime):
        return key.isoformat()
    return str(key).lower() if isinstance(key, bool) else key

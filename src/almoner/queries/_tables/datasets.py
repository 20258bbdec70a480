"""Sessions on a ledger that knows its data sets, and several sessions on one open ledger: what is checked of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from almoner.errors import ArgumentError, LedgerError, Unsupported
from almoner.ledger import Dataset, Domain, Ledger
from almoner.queries._engines.plugins import plugin_of
from almoner.queries._questions.question import Question
from almoner.queries._sources.table_input import TableInput
from almoner.queries._sql.columns import literal
from almoner.queries._sql.keys import key_kind
from almoner.queries._sql.schemas import Schema

__all__ = ["check_shared", "filled", "fitting"]


def check_shared(ledger: Ledger, given: list[TableInput], own: Mapping[str, object]) -> None:
    """Refuse an open ledger that a session cannot share.

    Args:
        ledger: that is open.
        given: the tables of the session.
        own: what only a session with a ledger of its own may say, None where it does not.
    """
    for name, value in own.items():
        if value is not None:
            raise ArgumentError(f"{name}= is for a ledger that the session opens; this one is open")
    plugin = plugin_of(given[0].data)
    if plugin is not None or ledger.accounts.kind != "tables":
        told = "data of a plugin" if plugin is None else plugin.data
        raise Unsupported(f"ledger: sessions with {told} open ledgers of their own: give its path")
    if ledger.store.closed:
        raise LedgerError(f"{ledger.store.name} is closed; open it again", reason="closed")
    ledger.refuse_inside("a session can't be opened")


def fitting(book: Ledger, given: list[TableInput], schema: Schema, *, dataset: str | None) -> dict[str, Dataset]:
    """The data sets that the tables of people are, by name; none where the ledger knows none, and none is asked for.

    Raises:
        ArgumentError: a table is no data set of the ledger, or does not fit its declaration.
    """
    known = book.datasets
    if not known and dataset is None:
        return {}
    listed = f"the data sets of this ledger are {', '.join(known)}" if known else "this ledger knows no data sets"
    people = [each for each in given if each.person is not None]
    if any(each.name is None for each in people):
        raise ArgumentError(f"dataset= is missing: {listed}")
    for each in people:
        if each.name not in known:
            raise ArgumentError(f"dataset={each.name!r} is not declared (Ledger.dataset): {listed}")
        _check_fits(known[each.name], each, schema)
    return {str(each.name): known[str(each.name)] for each in people}


def _check_fits(declared: Dataset, given: TableInput, schema: Schema) -> None:
    """Refuse a table with another person's column, or without a column, or with one of another kind."""
    declared.refuse_person(given.person)
    table = schema.people[declared.name]
    for column, domain in declared.columns.items():
        if column not in table.columns:
            raise ArgumentError(f"the data set {declared.name!r} was declared with a column {column!r}: it is missing")
        if column in table.kinds:  # else no question may use it
            _check_kind(declared.name, column, domain, table.kinds)


def _check_kind(name: str, column: str, domain: Domain, kinds: Mapping[str, str]) -> None:
    kind = kinds[column]
    if domain.keys is None:
        if kind not in ("whole", "number"):
            raise ArgumentError(f"the data set {name!r} was declared with bounds of {column!r}, whose kind is {kind}")
        return
    key_kind(column, kinds)
    for key in domain.keys:
        literal(key, kind)


def filled(asked: Question, datasets: Mapping[str, Dataset]) -> Question:
    """The question with the bounds and keys that it leaves out, as its data set declares them.

    Args:
        asked: names its table, where tables have names.
        datasets: of the session, by name.

    Raises:
        ArgumentError: none are declared for what is left out.
    """
    if not asked.unfilled:
        return asked
    changes: dict[str, Any] = {}
    if names := asked.left_out():
        domain = _domain(str(getattr(asked, "column", "")), asked, datasets)
        if domain is None or domain.keys is not None or getattr(asked, "per", None) == "total":
            listed = " and ".join(f"{name}=" for name in names)
            raise ArgumentError(f"{listed} must be given: no data set declares bounds of {_told(asked)}")
        changes |= {name: getattr(domain, name) for name in names}
    by = tuple((column, keys or _keys(column, asked, datasets)) for column, keys in asked.keys)
    return replace(asked, **changes, by=by)


def _keys(column: str, asked: Question, datasets: Mapping[str, Dataset]) -> tuple[Any, ...]:
    """The keys that are declared of a column."""
    domain = _domain(column, asked, datasets)
    if domain is None or domain.keys is None:
        raise ArgumentError(f"by: no data set declares keys of {column!r}: give by={{{column!r}: keys}}")
    return domain.keys


def _told(asked: Question) -> str:
    """Noun phrase for what bounds are about."""
    column = getattr(asked, "column", None)
    return f"a person's total of {column!r}" if getattr(asked, "per", None) == "total" else repr(column)


def _domain(column: str, asked: Question, datasets: Mapping[str, Dataset]) -> Domain | None:
    """Declaration of a column of the question's table, or of another one as ``table.column``."""
    if asked.each_person:  # columns are steps, whatever they are called
        return None
    table, dot, name = column.partition(".")
    if dot and table in datasets:
        return datasets[table].columns.get(name)
    own = datasets.get(asked.table or "")
    return None if own is None else own.columns.get(column)

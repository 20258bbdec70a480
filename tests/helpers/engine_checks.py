"""Checks for engines of other warehouses: whatever is asked, the sums and everybody's charges are those of DuckDB.

Each check of ``CHECKS`` opens sessions over tables that your engine holds, and over the same tables in memory::

    @pytest.mark.parametrize("check", engine_checks.CHECKS)
    def test_my_engine(check, tmp_path):
        check(lambda table: my_warehouse.table_of(table), tmp_path)

A check raises AssertionError, with the question, where the two differ. Nothing in it depends on noise.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date, datetime
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa

from almoner.errors import BudgetExceeded, DataError
from almoner.filters import Zcdp
from almoner.ledger import Finding, Ledger, Terms, verify
from almoner.queries import (
    Count,
    Covariance,
    Distinct,
    Histogram,
    Keys,
    Lookup,
    Mean,
    People,
    Quantiles,
    Question,
    Ratio,
    Regression,
    Session,
    Several,
    Sum,
    Table,
    Top,
    Variance,
)
from almoner.queries.plans import described

__all__ = ["CHECKS"]

Load = Callable[[pa.Table], Any]
"""Puts a table into the engine, and returns what ``Session.open`` takes."""

_ROWS = pa.table(
    {
        "who": ["ann", "ann", "ann", "bob", "bob", "cy", None, "d\\'ee", "d\\'ee", "É", "ann "],
        "x": [1.0, 2.5, 1e300, 3.0, -4.0, nan, 7.0, None, inf, -inf, -0.5],
        "n": [1, 2, 3, 4, 5, 6, 7, 8, 2**63 - 1, -(2**63), None],
        "t": ["x", "y", "x", "X", "it's", "\u00a01.5 \u3000", "x", None, "\\", "e\u0301", "100%_"],
        "b": [True, False, None, True, True, False, True, False, None, True, False],
        "d": [date(2011, 12, day) for day in range(1, 9)] + [None, date(1, 1, 1), date(9999, 12, 31)],
        "time": [
            datetime(2011, 3, 27, 2, 30),
            None,
            *[datetime(1969, 12, 31, hour, 59, 59, 999999) for hour in range(9)],
        ],
        'an odd "name"': pa.array([0.5] * 11, pa.float32()),
    }
)
_CHEAP: dict[str, Any] = {"sigma": 1e4}
_PERS = ("row", "person", "total")
_MEANS = {per: {"ask": "mean", "column": "x", "low": -1, "high": 9, "per": per} for per in _PERS}
_QUESTIONS: Sequence[Question] = (
    Count(clip=2, **_CHEAP),
    People(where="t like '%s' or t like '_' or t like '100%'", **_CHEAP),
    People(where="not (x <= 3) and d is not null", **_CHEAP),
    Count(where="n in (1, 2.5, 9223372036854775807) or n < x", clip=0.7, **_CHEAP),
    Count(where="d >= '2011-12-03' and time < '2011-03-27T02:30:00'", clip=9, **_CHEAP),
    Count(by={"t": ["x", "X", "it's", "\\", "e\u0301"], "b": [True, False]}, clip=3, per_group=1.3, **_CHEAP),
    Count(by={"t": [*map(chr, range(97, 122))], "n": [1, 2, 2**63 - 1]}, clip=3, **_CHEAP),
    Count(by={"d": [f"2011-12-0{day}" for day in range(1, 9)]}, clip=3, **_CHEAP),
    Sum("x", -10, 7.5, clip=2, **_CHEAP),
    Sum('"an odd ""name"""', 0, 1, clip=2, **_CHEAP),
    Sum("coalesce(number(t), abs(x) / n, floor(x))", -5, 5, clip=9, **_CHEAP),
    Sum("length(upper(t)) + year(d) + weekday(d)", 0, 5000, clip=9, **_CHEAP),
    People(where="trim(t) = '1.5'", **_CHEAP),
    Sum("days(week(d), month(d)) + hour(time)", -50, 50, clip=9, **_CHEAP),
    Mean("x", -1, 20.25, by={"b": [True, False]}, **_CHEAP),
    Mean("round(x) + bucket(n, 5)", 0, 20, per="row", clip=2, **_CHEAP),
    Variance("n", 0, 30, per="total", **_CHEAP),
    Histogram("x", (-10.0, 0.0, 0.5, 10.0), per="row", clip=2, **_CHEAP),
    Quantiles("x", tuple(range(-3, 10)), by={"t": ["x", "y", "z"]}, clip=0.8, per="row", **_CHEAP),
    Ratio("x", "n", numerator_bounds=(0, 9), denominator_bounds=(1, 5), clip=3, **_CHEAP),
    Covariance({"x": (-1, 3.5), "n": (0, 7)}, clip=1.5, per_group=1.2, **_CHEAP),
    Regression("n", {"x": (0, 1e6), "n": (0, 7)}, clip=1, by={"t": [*"xyzabc"]}, **_CHEAP),
    Top(2, "t", ("y", "x", "nowhere"), count="rows", by={"n": [1, 3, 4]}, clip=4, **_CHEAP),
    Several(
        {"rows": "count", "people": "people", "sum": {"ask": "sum", "column": "n", "low": 0, "high": 5}, **_MEANS},
        by={"b": [True, False]},
        sets=[["b"], []],
        clip=2,
        **_CHEAP,
    ),
    Count(
        each_person={"total": "sum(x)", "last": "last(t, d)", "kinds": "distinct(t)", "some": "any(b)"},
        where="total > -3 and last != 'y' and (kinds < 3 or some)",
        **_CHEAP,
    ),
    Count(each={"t": {"total": "sum(x)"}}, where="total > 1", by={"t": ["x", "y"]}, clip=2, **_CHEAP),
)
_KEPT: Sequence[Question] = (
    Keys("t", most=2, delta=1e-9, **_CHEAP),
    Keys("d", most=1, delta=1e-9, **_CHEAP),
    Distinct("n", most=3, by={"b": [True, False]}, **_CHEAP),
)


def same_sums(load: Load, folder: Path) -> None:
    """Every kind of question, in the wide and the long form, over missing, odd and huge entries."""
    for ours, theirs in _pairs(load, folder):
        _compare(ours, theirs, _QUESTIONS, _exact)


def same_values(load: Load, folder: Path) -> None:
    """Keys that nobody listed, and numbers of different values: the same ones are kept."""
    for ours, theirs in _pairs(load, folder, budget=Terms(Zcdp(rho=1.0), keys_delta=1e-6)):
        _compare(ours, theirs, _KEPT, _exact)


def same_joins(load: Load, folder: Path) -> None:
    """Columns of other tables and steps over their rows; a second row where one was declared is refused."""
    people = pa.table({"id": ["ann", "bob", "cy"], "age": [30, 40, None], "zip": ["n", "s", "n"]})
    zips = pa.table({"zip": ["n", "s"], "name": ["north", "south"]})
    asked = (
        Sum("x * homes.age", -99, 99, by={"zips.name": ["north", "south"]}, clip=9, table="rows", **_CHEAP),
        Count(table="homes", each_person={"n": "count(rows)", "x": "sum(rows.x)"}, where="n > 1 and x < 9", **_CHEAP),
        Count(table="parts", where="boxes.age > 25", by={"homes.zip": ["n", "s"]}, clip=9, **_CHEAP),
    )
    keyed = pa.table({"id": [1, 2, 3, None], "of": ["ann", "bob", "bob", "cy"], "age": [20, 30, 40, 50]})
    parts = pa.table({"box": [1, 2, 2, 3, 9, None], "n": [1, 2, 3, 4, 5, 6]})
    person = {"rows": "who", "homes": "id", "boxes": "of -> homes.id", "parts": "box -> boxes.id"}

    def made(place: Load) -> dict[str, Any]:
        tables = {"rows": place(_ROWS), "homes": Table(place(people), one_row=True)}
        tables |= {"boxes": place(keyed), "parts": place(parts)}
        return {"tables": tables, "public": {"zips": Lookup(place(zips), "zip", on="homes.zip")}, "person": person}

    with (
        _opened(folder / "ours", **made(load)) as ours,
        _opened(folder / "theirs", **made(lambda table: table)) as theirs,
    ):
        _compare(ours, theirs, asked, _exact)
    with suppress(DataError), _opened(folder / "twice", tables={"rows": Table(load(_ROWS), one_row=True)}):
        raise AssertionError("two rows of a person, where one was declared, were not refused")


def same_accounts(load: Load, folder: Path) -> None:
    """Budgets, limits, reservations, people who leave, return and shrink; the ledger is read without the engine too."""
    tenth = Count(clip=3, rho=0.3)
    for ours, theirs in _pairs(load, folder):
        told = []
        for session in (ours, theirs):
            ann, bea = session.analyst("ann"), session.analyst("bea", purpose="ads")
            first = ann.ask(tenth, key="a")
            session.limit(0.32, analyst="ann")
            session.retire("bob")
            session.reserve(0.3, key="later")
            bea.ask(Mean("n", 0, 8, per="row", by={"t": ["x", "y"]}, clip=3, rho=0.3), key="b", reserved="later")
            session.restore("bob")
            ann.ask(tenth, key="c", anyway=True)
            ann.ask(Count(by={"n": [*range(40)]}, clip=1, at_most=2, rho=0.01, pace=3), key="d", anyway=True)
            with suppress(BudgetExceeded):
                ann.ask(Count(clip=1, rho=0.33), key="e")
                raise AssertionError("a question beyond an analyst's limit was answered")
            session.analyst("cat").ask(Count(clip=3, rho=0.9), key="f", anyway=True)
            _same("the answer under the same key", ann.ask(tenth, key="a"), first)
            told.append(_accounts(session))
            _all_hold(session.verify(replay=True))
        _same("accounts", *told)
    with Ledger.open(folder / "ours") as book:
        _all_hold(verify(book))
        spent = {who: (book.spent(who), lines) for who, (_, lines) in told[0].items()}
        _same("accounts without the engine", spent, told[0])


def same_missing(load: Load, folder: Path) -> None:
    """As many people are missing because they could not pay, and as much mass of those who shrank, who are added up."""
    asked = (Count(clip=1, rho=0.25), Count(by={"n": [*range(40)]}, clip=1, at_most=2, rho=0.6, pace=3))
    shrunk = Sum("n", 0, 8, by={"t": ["x", "y", "z"]}, clip=1, at_most=4, bounds_hold=True, rho=0.6, pace=2)
    for ours, theirs in _pairs(load, folder):
        clips = []
        for session in (ours, theirs):
            session.limit(0.7, analyst="ann")
            session.retire("bob")
            session.analyst("ann").ask(Count(clip=2, rho=0.5), key="a")
            clips.append(session.analyst("ann").ask(shrunk, key="b", anyway=True).complete_clip)
        _same("complete_clip", *clips)
        _compare(ours, theirs, asked, _missing)
        _compare(ours, theirs, asked, _exact)
        _same("accounts", _accounts(ours), _accounts(theirs))
        _all_hold(ours.verify(replay=True))


CHECKS = (same_sums, same_values, same_joins, same_accounts, same_missing)
"""All checks, each with a folder that is empty."""


def _opened(path: Path, **options: Any) -> Session:
    """A session with a large budget, whose people are called ``who`` unless said otherwise."""
    there = Ledger.exists(path)
    budget = None if there else Zcdp(rho=1.0)
    return Session.open(**{"person": "who", "budget": budget, "ledger": path, "create": not there, **options})


def _pairs(load: Load, folder: Path, **options: Any) -> Iterable[tuple[Session, Session]]:
    """A session over the engine, and one over the same rows in memory."""
    with (
        _opened(folder / "ours", data=load(_ROWS), **options) as ours,
        _opened(folder / "theirs", data=_ROWS, **options) as theirs,
    ):
        yield ours, theirs


def _compare(
    ours: Session, theirs: Session, asked: Iterable[Question], measure: Callable[[Session, Question], object]
) -> None:
    for question in asked:
        _same(str(described(question)), measure(ours, question), measure(theirs, question))


def _same(what: str, ours: object, theirs: object) -> None:
    if ours != theirs:
        raise AssertionError(f"{what}: the engine gives {ours!r}, DuckDB {theirs!r}")


def _all_hold(findings: Iterable[Finding]) -> None:
    for finding in findings:
        if not finding.holds:
            raise AssertionError(f"verify: {finding.what}: this does not hold")


def _exact(session: Session, asked: Question) -> object:
    """Before noise: what is added up of all people who can pay, and everybody's price."""
    rows, workspace = session._rows, session.ledger.store.workspace
    plan = rows.plan(asked, described(asked))

    def work(transaction: Any, offer: Any) -> object:
        terms = {"price": asked.price, "spare": asked.spare_units, "payment": asked.payment}
        admitted = transaction.admit(offer, key="exact", analyst="ann", **terms).people.rows
        valued = isinstance(asked, Keys | Distinct)
        return dict(rows.people_by_value(plan, admitted)) if valued else rows.sums(plan, admitted)

    sums = session.ledger.answer(rows.charges(plan), work)
    prices = rows.charges(plan)
    workspace.make(prices.tables)
    units = workspace.run(f"SELECT person, units FROM ({prices.sql}) p WHERE units > 0", prices.parameters).fetchall()
    workspace.drop(table.name for table in prices.tables)
    if len(dict(units)) < len(units):
        raise AssertionError(f"{described(asked)}: a person has two prices")
    return sums, dict(units)


def _missing(session: Session, asked: Question) -> object:
    """(People who cannot pay, the mass that is missing of what they would contribute)."""

    def work(transaction: Any, offer: Any) -> object:
        people = transaction.admit(offer, key="missing", price=asked.price, payment=asked.payment, analyst="ann").people
        return people.refused(), people.missing_mass(asked.price)

    plan = session._rows.plan(asked, described(asked))
    return session.ledger.answer(session._rows.charges(plan), work)


def _accounts(session: Session) -> dict[str, tuple[int, list[float]]]:
    people = sorted({who for who in _ROWS["who"].to_pylist() if who is not None})
    return {who: (session.ledger.spent(who), [line.rho for line in session.statement(who).lines]) for who in people}

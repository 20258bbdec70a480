"""Which periods a question can be about, as its filter says, and what that leaves to the next one."""

import datetime as dt
import random

import pyarrow as pa
import pytest

from almoner import errors, filters, ledger, queries
from almoner.ledger import Terms
from almoner.ledger._record.rules import HighestCharge
from almoner.queries._ask import ask

FIRST, DAYS, BUDGET = dt.date(2025, 12, 29), 70, 0.5
WEEKS = ledger.Periods("day", every="week", first=FIRST, last="2026-02-28")
MONTHS = ledger.Periods("day", every="month", first=FIRST, last="2026-03-31")
KINDS = {"date": pa.date32(), "time": pa.timestamp("us"), "fine": pa.timestamp("ns")}


def table(kind="date", *, people=7, seed=0):
    """400 rows: each of some person and day; times are often the first or the last of a day."""
    drawn = random.Random(seed)
    days = [FIRST + dt.timedelta(days=drawn.randrange(-3, DAYS + 3)) for _ in range(400)]
    if kind != "date":
        moments = [dt.time.min, dt.time.max, dt.time(12, 30)]
        days = [dt.datetime.combine(day, drawn.choice(moments)) for day in days]
    who = [f"p{drawn.randrange(people)}" for _ in days]
    return pa.table({"who": who, "day": pa.array(days, KINDS[kind]), "n": [drawn.randrange(9) for _ in days]})


def opened(path, rows=None, periods=WEEKS, budget=BUDGET, **options):
    rows = table() if rows is None else rows
    return queries.Session.open(
        rows, person="who", budget=Terms(filters.Zcdp(rho=budget), periods=periods), ledger=path, create=True, **options
    )


def span(session, question):
    """The periods that the record of a new question says."""
    key = f"question {len(session.ledger.entries('answered'))}"
    session.analyst("a").ask(question, key=key, anyway=True)
    said = session.ledger.find(key).public.get("periods")
    return None if said is None else tuple(said)


@pytest.mark.quick(7)
@pytest.mark.parametrize(
    ("where", "first", "last"),
    [
        ("day >= '2026-01-05' and day < '2026-01-12'", "2026-01-05", "2026-01-05"),
        ("day >= '2026-01-05' and day <= '2026-01-12'", "2026-01-05", "2026-01-12"),
        ("'2026-01-12' > day and '2026-01-06' <= day and n > 3", "2026-01-05", "2026-01-05"),
        ("day > '2026-01-11' and day < '2026-01-20'", "2026-01-12", "2026-01-19"),
        ("day between '2026-01-10' and '2026-01-13'", "2026-01-05", "2026-01-12"),
        ("week(day) = '2026-01-05'", "2026-01-05", "2026-01-05"),
        ("week(day) in ('2026-01-05', '2026-01-19')", "2026-01-05", "2026-01-19"),
        ("month(day) = '2026-02-01'", "2026-01-26", "2026-02-23"),
        ("quarter(day) = '2025-10-01'", "2025-12-29", "2025-12-29"),
        ("year(day) < 2026", "2025-12-29", "2025-12-29"),
        ("year(day) <= 2025.5", "2025-12-29", "2025-12-29"),
        ("date(day) = '2026-02-03'", "2026-02-02", "2026-02-02"),
        ("day = '2026-01-05' or day = '2026-01-19'", "2026-01-05", "2026-01-19"),
        ("not day = '2026-01-05'", None, None),
        ("day <> '2026-01-05'", None, None),
        ("n > 3", None, None),
        ("day = '2026-01-05' or n > 3", None, None),
        ("day >= '2020-01-01'", None, None),
        ("day < '2020-01-01'", None, None),
        ("weekday(day) = 1", None, None),
        ("case when n > 3 then day else day end = '2026-01-05'", None, None),
    ],
)
def test_a_filter_says_which_periods_it_lets_through(tmp_path, where, first, last):
    """By hand: the weeks of the first and the last row that the filter can be true of; all, where it is not known."""
    with opened(tmp_path / "l") as session:
        expected = None if first is None else (first, last)
        assert span(session, queries.People(where=where, rho=1e-4)) == expected


def test_rows_that_are_made_of_others_can_be_of_any_period(tmp_path):
    """A column of one row for each person may be called as that of the periods: nothing follows from a filter of it."""
    with opened(tmp_path / "l") as session:
        early = queries.People(where="day = '2026-01-05'", each_person={"day": "min(day)"}, rho=1e-4)
        assert span(session, early) is None


def random_filter(drawn, depth=0):
    """A filter of the columns day and n."""
    day = (FIRST + dt.timedelta(days=drawn.randrange(-5, DAYS + 5))).isoformat()
    if depth < 2 and drawn.random() < 0.5:
        word = drawn.choice([" and ", " or "])
        parts = word.join(random_filter(drawn, depth + 1) for _ in range(drawn.choice([2, 3])))
        return f"{drawn.choice(['', '', 'not '])}({parts})"
    sign = drawn.choice(["=", "<", "<=", ">", ">=", "<>"])
    left = drawn.choice(["day", "day", "day", "date(day)", "week(day)", "month(day)", "quarter(day)"])
    match drawn.randrange(6):
        case 0:
            return f"n {sign} {drawn.randrange(9)}"
        case 1:
            return f"year(day) {sign} {drawn.choice([2025, 2026])}"
        case 2:
            return f"{left} in ('{day}', '{day[:7]}-01')"
        case 3:
            return f"{left} between '{day[:7]}-01' and '{day}'"
        case 4:
            return f"'{day}' {sign} {left}"
    return f"{left} {sign} '{day}'"


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("periods", [WEEKS, MONTHS])
def test_nobody_is_charged_in_other_periods_and_everybody_has_what_is_said(tmp_path, kind, periods):
    """Random filters, clips, paces and limits: charges lie in the periods said, and what is left is never below."""
    drawn = random.Random(f"{kind} {periods.every}")
    names = [f"p{place}" for place in range(7)]
    narrow = 0
    with opened(tmp_path / "l", table(kind), periods) as session:
        book = session.ledger
        book.limit(book.budget_units // 2, analyst="a")
        units = {unit: unit.rpartition(" ")[2] for name in names for unit in book.accounts_of(name)}
        before = dict.fromkeys(units, 0)
        for place in range(30):
            question = queries.Count(
                where=random_filter(drawn), clip=drawn.choice([1, 3]), rho=drawn.choice([0.002, 0.02]),
                pace=drawn.choice([1, 4, None]),
            )  # fmt: skip
            fits = session.analyst("a").quote(question).fits
            try:
                said = span(session, question)
            except errors.BudgetExceeded:
                break
            narrow += said is not None
            floor = book.find(f"question {place}").public["floor"]
            assert fits is not None
            after = {unit: book.spent(unit) for unit in units}
            touched = {period for unit, period in units.items() if after[unit] > before[unit]}
            low, high = said or (periods.labels[0], periods.labels[-1])
            assert all(low <= period <= high for period in touched)
            left = book.left_by_period("a")
            for unit, period in units.items():
                worst = [value for start, value in left.items() if start <= period][-1]
                assert worst <= book.budget_units // 2 - after[unit]
                if low <= period <= high:
                    assert floor <= book.budget_units // 2 - before[unit]
            before = after
        assert all(finding.holds for finding in session.verify(replay=True))
    assert narrow > 5


def test_each_week_has_a_whole_budget_of_complete_answers(where):
    """Counts of one week each spend the whole budget: each is complete, and fits before it is asked."""
    with opened(where) as session:
        analyst = session.analyst("a")
        for monday in WEEKS.labels:
            question = queries.People(where=f"week(day) = '{monday}'", rho=BUDGET)
            assert analyst.quote(question).fits == 1
            assert analyst.ask(question, key=monday).complete_clip == 1.0
            assert analyst.quote(question).fits == 0
        assert analyst.quote(queries.People(rho=1e-6)).fits == 0
        assert min(session.ledger.left_by_period("a").values()) <= 1  # units
        assert all(finding.holds for finding in session.verify(replay=True))
    with opened(where) as session:  # what was read again from the record
        assert session.analyst("a").quote(question).fits == 0


def test_a_record_that_says_too_few_periods_is_found_by_replaying_it(tmp_path, monkeypatch):
    """An entry whose periods do not hold all that its question can be about does not stand."""
    with opened(tmp_path / "l") as session:
        monkeypatch.setattr(ask, "span_of", lambda *_: ("2026-01-05", "2026-01-05"))
        session.analyst("a").ask(queries.People(where="day >= '2026-01-05'", rho=0.1), key="k")
        monkeypatch.undo()
        assert all(finding.holds for finding in session.verify())
        assert not all(finding.holds for finding in session.verify(replay=True))


def test_periods_that_are_none_of_the_ledger_are_refused(tmp_path):
    """The ledger takes the first days of its periods, in order, or none."""
    with opened(tmp_path / "l") as session:
        rules = session.ledger._rules
        assert rules.places(None) is None
        assert rules.places(("2026-01-05", "2026-01-19")) == (1, 3)
        for wrong in (("2026-01-06", "2026-01-19"), ("2026-01-19", "2026-01-05")):
            with pytest.raises(errors.ArgumentError, match="period"):
                rules.places(wrong)
    with queries.Session.open(
        table(), person="who", budget=filters.Zcdp(rho=1.0), ledger=tmp_path / "m", create=True
    ) as session:
        with pytest.raises(errors.ArgumentError, match="has none"):
            session.ledger._rules.places(("2026-01-05", "2026-01-05"))
        assert span(session, queries.People(where="day = '2026-01-05'", rho=0.1)) is None


@pytest.mark.parametrize("seed", range(40))
def test_runs_of_periods_are_what_a_list_of_all_periods_says(seed):
    """Random charges, some to all periods: the same as keeping a number for each."""
    drawn, count, worst = random.Random(seed), 30, HighestCharge()
    each = [0] * (count + 5)
    for _ in range(60):
        price, most = drawn.randrange(1, 9), drawn.randrange(40, 60)
        first = drawn.randrange(count)
        places = None if drawn.random() < 0.2 else (first, drawn.randrange(first, count))

        def after(units, price=price, most=most):
            return units + max(0, min(price, most - units))

        worst.charge(places, after)
        low, high = places or (0, len(each) - 1)
        each[low : high + 1] = [after(units) for units in each[low : high + 1]]
        asked = drawn.randrange(count)
        assert worst.most() == max(each)
        assert worst.most((asked, count)) == max(each[asked : count + 1])
        assert worst.most((0, asked)) == max(each[: asked + 1])
        starts = [start for start, _ in worst.runs]
        assert starts == sorted(set(starts))
        assert [units for _, units in worst.runs] == [each[start] for start in starts]

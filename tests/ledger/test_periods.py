"""Budgets that come anew with each period of the rows, and what they add up to for one person."""

import datetime as dt
import itertools
from math import inf

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import logsumexp

from almoner import errors, filters, ledger, queries
from almoner.curves import gaussian, zcdp
from almoner.ledger import Terms
from almoner.ledger._record.terms import RecordedTerms
from almoner.queries._statements import together
from terms import grouped

DAY = dt.date(2026, 1, 1)
MONTHS = ledger.Periods("day", every="month", first="2026-01-15", last="2026-04-02")
BUDGET = 0.5
ROWS = {
    "who": ["ann", "ann", "ann", "bob", "cy", None, "dee", "eve"],
    "day": [dt.date(2026, 1, 1), dt.date(2026, 1, 31), dt.date(2026, 2, 1), dt.date(2026, 4, 30), dt.date(2026, 5, 1)],
}
ROWS["day"] += [dt.date(2026, 2, 2), None, dt.date(2025, 12, 31)]


def opened(path, rows=None, periods=MONTHS, budget=None, **options):
    data = pa.table(ROWS if rows is None else rows)
    terms = {"budget": filters.Zcdp(rho=BUDGET) if budget is None else budget, "periods": periods}
    return queries.Session.open(
        **grouped({"data": data, "person": "who", "ledger": path, "create": True, **terms, **options})
    )


@pytest.mark.parametrize(
    ("every", "first", "last", "labels"),
    [
        ("day", "2028-02-28", "2028-03-01", ["2028-02-28", "2028-02-29", "2028-03-01"]),
        ("week", "2026-01-01", "2026-01-12", ["2025-12-29", "2026-01-05", "2026-01-12"]),
        ("month", "2025-12-31", "2026-02-01", ["2025-12-01", "2026-01-01", "2026-02-01"]),
        ("quarter", "2025-11-05", dt.date(2026, 4, 1), ["2025-10-01", "2026-01-01", "2026-04-01"]),
        ("year", "2026-07-01", "2027-01-01", ["2026-01-01", "2027-01-01"]),
    ],
)
def test_periods_are_named_by_their_first_day(every, first, last, labels):
    """By hand, with a leap year, weeks that begin in another year, and dates in the middle."""
    periods = ledger.Periods("day", every=every, first=first, last=last)
    assert list(periods.labels) == labels
    assert periods.count == len(labels)
    assert ledger.Periods.read(periods.public) == periods
    assert [periods.period_of(unit) for unit in periods.units_of("ann 2026")] == labels


@pytest.mark.quick(1)
@pytest.mark.parametrize("every", ["day", "week", "month", "quarter", "year"])
def test_sql_and_python_agree_on_the_period_of_every_day(every, tmp_path):
    """Every day of seven years, with the days around the ends, is charged to the account that Python names."""
    periods = ledger.Periods("day", every=every, first="2024-02-10", last="2029-11-20")
    days = [DAY.replace(year=2023) + dt.timedelta(days=each) for each in range(2700)]
    rows = {"who": ["ann"] * len(days), "day": days}
    with opened(tmp_path / "people.ledger", rows, periods) as session:
        session.analyst("a").ask(queries.Count(clip=1e6, rho=0.1), key="all")
        charged = {name for name in session.ledger.accounts_of("ann") if session.ledger.spent(name)}
    starts = sorted({_start(each, every) for each in days})
    first, last = _start(dt.date(2024, 2, 10), every), _start(dt.date(2029, 11, 20), every)
    assert charged == {f"ann {each}" for each in starts if first <= each <= last}


def _start(day, every):
    """The period of a day, another way: the last day up to it that begins one."""
    first = {
        "day": lambda each: True,
        "week": lambda each: each.isoweekday() == 1,
        "month": lambda each: each.day == 1,
        "quarter": lambda each: each.day == 1 and each.month in (1, 4, 7, 10),
        "year": lambda each: (each.month, each.day) == (1, 1),
    }[every]
    while not first(day):
        day -= dt.timedelta(days=1)
    return day


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"every": "fortnight"}, "every='fortnight'"),
        ({"first": "2026-02-30"}, "first='2026-02-30'"),
        ({"last": dt.datetime(2026, 5, 1)}, "last="),
        ({"first": "2027-01-01"}, "must not be after"),
        ({"every": "day", "last": "2126-01-01"}, "5,000 periods"),
        ({"first": "0001-01-01"}, "years 1900 to 2999"),
        ({"column": ""}, "column"),
    ],
)
def test_periods_that_make_no_sense_are_refused(wrong, message):
    """By argument, value and rule."""
    given = {"column": "day", "every": "month", "first": "2026-01-01", "last": "2026-12-31"} | wrong
    with pytest.raises(errors.ArgumentError, match=message):
        ledger.Periods(**given)


def test_new_rows_bring_a_budget_and_old_rows_never_get_one(where):
    """January is spent; February has its own; asking about January again gives nobody anything."""
    with opened(where) as session:
        analyst = session.analyst("a")
        analyst.ask(queries.Count(clip=2, rho=BUDGET, pace=None, where="day < '2026-02-01'"), key="January")
        book = session.ledger
        spent = [book.spent(f"ann 2026-{month}-01") for month in ("01", "02")]
        assert spent == pytest.approx([book.budget_units, 0], abs=2)
        analyst.ask(queries.Count(clip=2, rho=BUDGET, pace=None, anyway=True), key="all")
        spent = [book.spent(name) for name in book.accounts_of("ann")]
        assert spent == pytest.approx([book.budget_units, book.budget_units / 4, 0, 0], abs=2)  # a row, of a clip of 2
        assert book.spent("bob 2026-04-01") == pytest.approx(book.budget_units / 4, abs=2)
        assert max(spent) <= book.budget_units
        for nobody in ("cy", "dee", "eve"):  # after the last period, without a date, before the first
            assert not book.charged(nobody)
        again = analyst.ask(
            queries.People(rho=1e-9, pace=None, anyway=True, where="day < '2026-02-01'"), key="January again"
        )
        assert again.values  # noise, and next to nothing of anybody
        assert book.spent("ann 2026-01-01") <= book.budget_units
        assert all(finding.holds for finding in session.verify(replay=True))


def test_dates_without_an_end_are_in_no_answer(tmp_path):
    """Dates and times of infinity, of other ages, and with a time of day."""
    import duckdb

    table = duckdb.sql(
        "SELECT * FROM (VALUES ('ann', TIMESTAMP 'infinity'), ('bob', TIMESTAMP '-infinity'), "
        "('cy', TIMESTAMP '2026-02-28 23:59:59.999999'), ('dee', TIMESTAMP '0044-03-15 (BC) 00:00:00'), "
        "('eve', TIMESTAMP '2026-05-01 00:00:00')) t(who, day)"
    )
    rows = tmp_path / "rows.parquet"
    table.write_parquet(str(rows))
    with queries.Session.open(
        rows, person="who", budget=Terms(filters.Zcdp(rho=1.0), periods=MONTHS), ledger=tmp_path / "l", create=True
    ) as session:
        session.analyst("a").ask(queries.Count(clip=1, rho=0.1), key="all")
        assert [name for name in ("ann", "bob", "cy", "dee", "eve") if session.ledger.charged(name)] == ["cy"]
        assert session.ledger.spent("cy 2026-02-01")


@pytest.mark.parametrize("unit", ["s", "ms"])
def test_a_time_beyond_all_dates_fails_no_question(tmp_path, unit):
    """One row's time, in a column of seconds or milliseconds, is in no period and stops nobody else's answer."""
    january = {"s": 1, "ms": 1000}[unit] * int(dt.datetime(2026, 1, 15, tzinfo=dt.UTC).timestamp())
    times = pa.array([january, 2**62, -(2**62)], pa.int64()).cast(pa.timestamp(unit))
    with opened(tmp_path / "l", {"who": ["ann", "bob", "cy"], "day": times}) as session:
        session.analyst("a").ask(queries.Count(clip=1, rho=0.1), key="all")
        assert [name for name in ("ann", "bob", "cy") if session.ledger.charged(name)] == ["ann"]


def test_a_ledger_keeps_its_periods(where):
    """Without them, or with others, people would have other accounts: refused; so are trainings on people's names."""
    opened(where).close()
    with pytest.raises(errors.ArgumentError, match="made for periods"):
        opened(where, periods=None)
    with pytest.raises(errors.ArgumentError, match="made for periods"):
        opened(where, periods=ledger.Periods("day", every="month", first="2026-01-01", last="2026-05-01"))
    with opened(where) as session, pytest.raises(errors.UnknownPerson, match="an account for each period"):
        session.ledger.person("ann")
    with ledger.Ledger.open(where) as book:
        assert book.periods == MONTHS
        assert ledger.summary(book).terms["periods"]["count"] == 4


def test_a_ledger_without_periods_gets_none(tmp_path):
    """Its people have spent already under their own names."""
    opened(tmp_path / "l", periods=None).close()
    with pytest.raises(errors.ArgumentError, match="was made for periods=None"):
        opened(tmp_path / "l")


def test_what_periods_cannot_be_given_with(tmp_path):
    """Budgets for keys, several tables of people, columns that hold no dates; nothing is made."""
    place = tmp_path / "l"
    with pytest.raises(errors.Unsupported, match="keys_delta with periods"):
        opened(place, keys_delta=1e-8)
    given = {
        "tables": {"a": pa.table(ROWS), "b": pa.table(ROWS)},
        "person": "who",
        "budget": Terms(filters.Zcdp(rho=1), periods=MONTHS),
        "create": True,
    }
    with pytest.raises(errors.Unsupported, match="several tables"):
        queries.Session.open(ledger=place, **given)
    for column, message in (("who", "must hold dates"), ("when", "is no column")):
        periods = ledger.Periods(column, every="month", first="2026-01-01", last="2026-02-01")
        with pytest.raises(errors.ArgumentError, match=message):
            opened(place, periods=periods)
    with pytest.raises(errors.ArgumentError, match=r"must be a ledger\.Periods"):
        opened(place, periods="month")
    assert not place.exists()


def test_people_named_by_numbers_and_hashes(tmp_path):
    """Whole numbers become text of one spelling; with pseudonyms no name is in the file."""
    rows = {"who": [17, 17, 4], "day": [DAY, DAY.replace(month=2), DAY]}
    with opened(tmp_path / "l", rows, pseudonyms=tmp_path / "key") as session:
        session.analyst("a").ask(queries.Count(clip=1, rho=0.1), key="all")
        assert [bool(session.ledger.spent(name)) for name in session.ledger.accounts_of("0017")] == [1, 1, 0, 0]
        assert session.statement(17).lifetime.used == session.statement("17").lifetime.used
        with pytest.raises(errors.UnknownPerson, match="whole numbers"):
            session.statement("seventeen")
        with pytest.raises(errors.UnknownPerson):
            session.ledger.person("017 2026-01-01")  # another spelling would be another account
        assert all(finding.holds for finding in session.verify(replay=True))
    assert b"17 2026-01-01" not in (tmp_path / "l").read_bytes()


def test_who_leaves_is_out_of_every_period(where):
    """Also of those that are still to come, until the return."""
    with opened(where) as session:
        session.retire("ann")
        analyst, ask = session.analyst("a"), queries.Count(clip=1, rho=0.1, pace=None)
        analyst.ask(ask, key="without")
        assert not session.ledger.charged("ann")
        session.restore("ann")
        analyst.ask(ask, key="with")
        assert session.ledger.charged("ann")
        assert all(finding.holds for finding in session.verify(replay=True))


# what a person's periods add up to


def divergence(shift, sigma, order, wide=2000):
    """The Renyi divergence of a discrete Gaussian from itself shifted, by a sum over whole numbers."""
    at = np.arange(-wide, wide + 1)
    normal = logsumexp(-(at**2) / (2 * sigma**2))
    one, other = (-((at - moved) ** 2) / (2 * sigma**2) - normal for moved in (shift, 0))
    return logsumexp(order * one + (1 - order) * other) / (order - 1)


def test_a_release_over_several_periods_costs_more_than_their_sum(tmp_path):
    """A count over three months moves by three with a person of each: nine times the rho of one, not three times."""
    rows = {"who": ["ann"] * 3, "day": [DAY.replace(month=month) for month in (1, 2, 3)]}
    sigma = 20.0
    with opened(tmp_path / "l", rows) as session:
        session.analyst("a").ask(queries.Count(clip=1, sigma=sigma, pace=None), key="all")
        told = session.statement("ann")
    exact = max(divergence(3, sigma, order) / order for order in (1.5, 2, 8, 32))
    assert exact == pytest.approx(9 / (2 * sigma**2), rel=1e-6)
    assert told.lifetime.rho >= exact * (1 - 1e-9)
    assert told.lifetime.rho == pytest.approx(exact, rel=1e-6)
    assert sum(used for _, used in told.lifetime.used) < exact / 2  # the wrong variant: a sum
    assert told.rho == pytest.approx(1 / (2 * sigma**2))  # of one month


def test_a_release_in_each_period_costs_their_sum(tmp_path):
    """Three counts of a month each: the rho of one, three times."""
    rows = {"who": ["ann"] * 3, "day": [DAY.replace(month=month) for month in (1, 2, 3)]}
    with opened(tmp_path / "l", rows) as session:
        for month in (1, 2, 3):
            asked = queries.Count(clip=1, rho=0.1, pace=None, where=f"day = '2026-0{month}-01'")
            session.analyst("a").ask(asked, key=str(month))
        told = session.statement("ann")
    assert told.lifetime.rho == pytest.approx(0.3, rel=1e-9)
    assert told.rho == pytest.approx(0.1, rel=1e-9)
    assert len(told.lines) == 3


def test_laplace_noise_adds_up(tmp_path):
    """Pure budgets: a count over three months costs three times the epsilon, which needs no odometer."""
    rows = {"who": ["ann"] * 3, "day": [DAY.replace(month=month) for month in (1, 2, 3)]}
    with opened(tmp_path / "l", rows, budget=filters.Basic(epsilon=1.0)) as session:
        session.analyst("a").ask(queries.Count(clip=1, epsilon=0.25, pace=None), key="all")
        lifetime = session.statement("ann", delta=1e-6).lifetime
    assert lifetime.rho == lifetime.epsilon == pytest.approx(0.75)
    assert lifetime.at_most == pytest.approx(4.0)


def test_the_promise_for_a_lifetime():
    """K times mu, K squared times rho, K times epsilon; by the closed forms."""
    budgets = {
        filters.Gaussian(epsilon=1.0, delta=1e-6): lambda mu: gaussian.epsilon(4 * mu, delta=1e-6),
        filters.Zcdp(rho=0.1): lambda _: zcdp.Zcdp(1.6).epsilon(delta=1e-6),
        filters.Basic(epsilon=0.5): lambda _: 2.0,
    }
    for budget, promised in budgets.items():
        terms = RecordedTerms.of(Terms(budget, person="VARCHAR", periods=MONTHS))
        mu = getattr(budget, "mu", inf)
        assert terms.lifetime(1e-6) == pytest.approx(float(promised(mu)), rel=1e-6)
        assert terms.lifetime(1e-6) > terms.promise(1e-6)
        assert RecordedTerms.read(terms.public) == terms


def test_no_questions_exceed_the_promise_for_a_lifetime(tmp_path):
    """Whatever is asked, over one month or all: what was reached is at most K squared times the budget."""
    rng = np.random.default_rng(1)
    rows = {"who": ["ann"] * 8, "day": [DAY.replace(month=month) for month in (1, 2, 3, 4)] * 2}
    with opened(tmp_path / "l", rows) as session:
        for number in range(12):
            since, until = sorted(rng.integers(1, 5, size=2))
            where = f"day >= '2026-0{since}-01' and day <= '2026-0{until}-01'"
            asked = queries.Count(clip=2, rho=float(rng.uniform(0.02, 0.5)), pace=None, where=where)
            session.analyst("a").ask(asked, key=str(number), anyway=True)
        told = session.statement("ann")
        book = session.ledger
        assert all(book.spent(name) <= book.budget_units for name in book.accounts_of("ann"))
    assert 4 * BUDGET < told.lifetime.rho <= 16 * BUDGET
    assert told.lifetime.epsilon >= zcdp.Zcdp(told.lifetime.rho).epsilon(delta=told.delta) * 0.9


def test_roots_are_added_and_rounded_up():
    """Against whole numbers whose roots are exact, and never below the exact value."""
    assert together([9]) == 9
    assert together([9, 16]) == 49
    assert together([0, 4]) == 4
    for parts in itertools.combinations(range(1, 12), 3):
        exact = sum(part**0.5 for part in parts) ** 2
        assert exact - 1e-6 <= together(parts) <= exact + 1 + 1e-6


def test_a_watch_counts_in_every_period(tmp_path):
    """Any month that could not pay may move it: the price, sixteen times."""
    with opened(tmp_path / "l") as session:
        watch = session.watch(people=2, epsilon=0.1)
        lifetime = session.statement("zoe").lifetime
    assert lifetime.rho == pytest.approx(16 * watch.price(session.ledger.measure) / 1e15, rel=1e-6)


def test_what_compaction_merged_is_not_less(tmp_path):
    """One total for each month: together at least what the single questions came to."""
    rows = {"who": ["ann"] * 3, "day": [DAY.replace(month=month) for month in (1, 2, 3)]}
    with opened(tmp_path / "l", rows) as session:
        for number in range(4):
            where = "day >= '2026-01-01'" if number % 2 else "day = '2026-02-01'"
            session.analyst("a").ask(queries.Count(clip=1, rho=0.05, pace=None, where=where), key=str(number))
        before = session.statement("ann").lifetime.rho
        ledger.compact(session.ledger)
        after = session.statement("ann").lifetime.rho
    assert before <= after <= before * 1.3


def test_what_an_erasure_left_is_not_less(tmp_path):
    """A person who was in questions about several months is told no smaller bound once single charges are erased."""
    rows = {"who": ["ann"] * 3, "day": [DAY.replace(month=month) for month in (1, 2, 3)]}
    for budget in (filters.Zcdp(rho=BUDGET), filters.Basic(epsilon=BUDGET)):
        place = tmp_path / type(budget).__name__
        with opened(place, rows, budget=budget, pseudonyms=tmp_path / "key") as session:
            for key in ("one", "two"):
                price = {session.ledger.symbol: 0.05}
                session.analyst("a").ask(queries.Count(clip=1, pace=None, **price), key=key)
            before = session.statement("ann").lifetime
            ledger.erase(session.ledger, "ann")
            after = session.statement("ann")
        assert before.rho == pytest.approx(0.9 if session.ledger.symbol == "rho" else 0.3)
        assert after.lifetime.rho == pytest.approx(before.rho)
        assert [line.question["ask"] for line in after.lines] == ["earlier"]


def test_the_statement_in_words(tmp_path):
    """How many months were used, which one most, and what all of it means."""
    with opened(tmp_path / "l") as session:
        session.analyst("a").ask(queries.Count(clip=2, rho=0.2, pace=None), key="all")
        told = session.statement("ann")
        assert "1 answer used your records. Each month brings you a budget of its own" in told.words
        assert "2 months of yours were used, at most 40 % of it (the month from 2026-01-01)" in told.words
        assert "the budget of a month is" in told.words
        assert "none has been used" in session.statement("zoe").words
        assert "private" in repr(told.lifetime)
        assert "0." not in repr(told.lifetime)


def test_erasing_a_person_erases_every_period(tmp_path):
    """One total for each period remains, none of it is spent again, and everything verifies."""
    with opened(tmp_path / "l", pseudonyms=tmp_path / "key") as session:
        ask = queries.Count(clip=2, rho=0.1, pace=None)
        for key in ("one", "two"):
            session.analyst("a").ask(ask, key=key)
        book = session.ledger
        before = [book.spent(name) for name in book.accounts_of("ann")]
        ledger.erase(book, "ann")
        assert [book.spent(name) for name in book.accounts_of("ann")] == before
        assert all(len(book.charges(name)) <= 1 for name in book.accounts_of("ann"))
        session.analyst("a").ask(ask, key="three")
        assert [book.spent(name) for name in book.accounts_of("ann")] == before
        assert all(finding.holds for finding in session.verify(replay=True))


@pytest.mark.slow
@pytest.mark.parametrize("pseudonyms", [False, True])
def test_a_statement_takes_as_many_queries_for_many_periods_as_for_few(where, tmp_path, pseudonyms, monkeypatch):
    """It reads all accounts of a person at once, and what it says of each is what each account says."""
    weeks = ledger.Periods("day", every="week", first="2026-01-01", last="2035-12-31")
    rows = {"who": ["ann"] * 9 + ["bob"], "day": [DAY + dt.timedelta(days=7 * week) for week in range(10)]}
    options = {"pseudonyms": tmp_path / "people.key"} if pseudonyms else {}
    with opened(where, rows, weeks, **options) as session:
        for number in range(3):
            session.analyst("a").ask(queries.Count(clip=9, rho=0.1), key=f"{number}")
        book, asked = session.ledger, []
        run = book.store.run
        monkeypatch.setattr(book.store, "run", lambda *each: asked.append(each) or run(*each))
        told = session.statement("ann")
        assert len(asked) < 10 < weeks.count
        by_account = book.charges_by_account("ann")
        assert by_account == {name: book.charges(name) for name in book.accounts_of("ann")}
        assert sum(map(bool, by_account.values())) == 9
        assert dict(told.lifetime.used) == {
            weeks.period_of(name): sum(units for _, units in charged) / 1e15
            for name, charged in by_account.items()
            if charged
        }
        assert book.accounts.spent(book.accounts_of("ann")) == {n: book.spent(n) for n in book.accounts_of("ann")}

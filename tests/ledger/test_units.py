"""People of whole numbers in periods: stored as numbers of units, told as names, the same accounts as with names."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters, ledger, queries, training
from almoner.ledger import Terms

LEAST, MOST = -(2**63), 2**63 - 1
WHO = [LEAST, -5000, -1, 0, 1, 8191, 8192, 10**12, MOST]
MONTHS = ledger.Periods("day", every="month", first="2026-01-15", last="2026-04-02")


def table(who) -> pa.Table:
    """Each person in January and, but for every third, in February and out of all periods."""
    rows = [(person, dt.date(2026, 1, 5)) for person in who]
    rows += [(person, dt.date(2026, 2, 7)) for place, person in enumerate(who) if place % 3]
    rows += [(person, dt.date(2027, 1, 1)) for place, person in enumerate(who) if place % 3]
    return pa.table({"who": [person for person, _ in rows], "day": [day for _, day in rows]})


def opened(path, rows=None, **options):
    rows = table(WHO) if rows is None else rows
    budget = filters.Zcdp(rho=1.0)
    return queries.Session.open(
        rows, person="who", budget=Terms(budget, periods=MONTHS), ledger=path, create=True, **options
    )


def kind_of(session) -> str:
    """The type of the accounts' names in the file."""
    return session.ledger.store.run("SELECT any_value(typeof(person)) FROM ledger.accounts")[0][0]


@pytest.mark.parametrize("every", ["day", "week", "month", "quarter", "year"])
def test_each_unit_has_a_number_of_its_own(every):
    """Names and numbers, there and back, for the least and the largest persons and all periods."""
    periods = ledger.Periods("day", every=every, first="2024-02-10", last="2029-11-20")
    names = [name for person in WHO for name in periods.units_of(str(person))]
    numbers = [periods.number_of(name) for name in names]
    assert len(set(numbers)) == len(names)
    assert [periods.unit_of(number) for number in numbers] == names
    assert -(2**127) < min(numbers) < max(numbers) < 2**127


@pytest.mark.slow
def test_what_is_charged_is_what_text_would_be_charged(tmp_path):
    """The same questions over the same people, named by numbers and by text: the same accounts, by name."""
    text = table(WHO).set_column(0, "who", pa.array([str(each) for each in table(WHO)["who"].to_pylist()]))
    found = []
    for name, rows in (("numbers", None), ("text", text)):
        with opened(tmp_path / name, rows) as session:
            ann, book = session.analyst("ann"), session.ledger
            session.limit(0.3, analyst="ann")
            ann.ask(queries.People(rho=0.1), key="all")
            ann.ask(queries.Count(clip=1, rho=0.05, where="day >= '2026-02-01'"), key="later")
            book.retire("8192" if name == "text" else 8192)
            ann.ask(queries.People(rho=0.1), key="again")
            session.analyst("bob").ask(queries.People(rho=0.4), key="bob")
            people = [person if name == "numbers" else str(person) for person in WHO]
            units = [unit for person in people for unit in book.accounts_of(person)]
            found.append([(unit, book.spent(unit)) for unit in units])
            assert kind_of(session) == ("HUGEINT" if name == "numbers" else "VARCHAR")
            assert all(each.holds for each in session.verify(replay=True))
            ledger.compact(book)
            assert all(each.holds for each in session.verify(replay=True))
            book.restore("8192" if name == "text" else 8192)
    assert found[0] == found[1]
    assert sum(spent > 0 for _, spent in found[0]) == len(WHO) + 6


def test_a_statement_names_the_periods(tmp_path):
    """A person's lifetime over all periods, read again after the file was closed."""
    with opened(tmp_path / "people.ledger") as session:
        session.analyst("ann").ask(queries.People(rho=0.1), key="all")
    with opened(tmp_path / "people.ledger") as session:
        told = queries.statement(session.ledger, MOST, delta=1e-6)
        assert [period for period, _ in told.lifetime.used] == ["2026-01-01", "2026-02-01"]
        assert session.ledger.spent(f"{LEAST} 2026-01-01") > 0
        assert session.ledger.spent(f"{LEAST} 2026-02-01") == 0


def test_a_budget_holds_in_each_period(tmp_path):
    """Questions until nothing is left of January: February's rows still answer, and nobody is above the budget."""
    with opened(tmp_path / "people.ledger") as session:
        ann = session.analyst("ann")
        for number in range(12):
            ann.ask(queries.Count(clip=1, rho=0.1, where="day < '2026-02-01'"), key=f"january {number}", anyway=True)
        ann.ask(queries.Count(clip=1, rho=0.1, where="day >= '2026-02-01'"), key="february")
        book = session.ledger
        for place, person in enumerate(WHO):
            january, february, *_ = (book.spent(unit) for unit in book.accounts_of(person))
            assert 0.9 * book.budget_units < january <= book.budget_units
            assert (february > 0) == bool(place % 3)


def test_a_hashed_or_older_ledger_keeps_its_names(tmp_path):
    """With pseudonyms units are hashed as before; a file that was made with names goes on with names."""
    with opened(tmp_path / "hashed", pseudonyms=tmp_path / "key") as session:
        session.analyst("ann").ask(queries.People(rho=0.1), key="all")
        assert kind_of(session) == "BLOB"
        assert session.ledger.spent(f"{MOST} 2026-01-01") > 0


def test_a_training_charges_units(tmp_path):
    """A model of three people's January rows, on the ledger: their accounts of January pay, and nobody else's."""
    with opened(tmp_path / "people.ledger") as session:
        book = session.ledger
        groups = np.array([f"{person} 2026-01-01" for person in (LEAST, 0, MOST)] * 2)
        model = training.LogisticRegression(epsilon=None, noise_multiplier=20.0, classes=[0, 1], n_people=3, steps=3)
        on = training.OnLedger(book, "model", "ann")
        model.fit(np.ones((6, 1)), [0, 1, 0, 1, 0, 1], groups=groups, ledger=on)
        charged = {unit for person in WHO for unit in book.accounts_of(person) if book.spent(unit)}
        assert charged == set(groups)
        assert all(each.holds for each in session.verify(replay=True))


@pytest.mark.slow
def test_a_stream_charges_units(tmp_path):
    """Updates of a model on the ledger: each person's January pays as far as it has something left."""
    with opened(tmp_path / "people.ledger") as session:
        book = session.ledger
        groups = [f"{person} 2026-01-01" for person in (LEAST, 0, MOST)]
        model = training.LogisticRegression(epsilon=None, noise_multiplier=2.0, classes=[0, 1], n_people=3, steps=3)
        on = training.OnLedger(book, "model", "ann")
        x, y = np.full((3, 1), 5.0), [0, 1, 0]
        model.partial_fit(x, y, groups, ledger=on)
        once = [book.spent(unit) for unit in groups]
        assert min(once) > 0
        for _ in range(20):
            model.partial_fit(x, y, groups)
        spent = [book.spent(unit) for unit in groups]
        assert all(before < after <= book.budget_units for before, after in zip(once, spent, strict=True))
        charged = {unit for person in WHO for unit in book.accounts_of(person) if book.spent(unit)}
        assert charged == set(groups)
        assert all(each.holds for each in session.verify(replay=True))


def test_many_random_people_are_charged_once_each(tmp_path):
    """A thousand random persons of 64 bits: one account for each person and month that has rows."""
    who = np.unique(np.random.default_rng(1).integers(LEAST, MOST, 1000)).tolist()
    with opened(tmp_path / "people.ledger", table(who)) as session:
        session.analyst("ann").ask(queries.People(rho=0.1), key="all")
        ((accounts, least, most),) = session.ledger.store.run(
            "SELECT count(*), min(spent), max(spent) FROM ledger.accounts"
        )
        assert (accounts, least) == (len(who) + sum(place % 3 > 0 for place in range(len(who))), most)
        assert all(session.ledger.spent(f"{person} 2026-01-01") == most for person in who[:50])

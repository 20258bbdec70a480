"""Several data sets on one ledger: one account for each person over all of them."""

import json
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from datetime import date
from fractions import Fraction
from functools import partial

import pyarrow as pa
import pytest

import writers
from almoner import filters
from almoner._workspace import duckdb
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger import Domain, Ledger, Periods, Terms, compact
from almoner.queries import Count, Mean, People, Session, Sum, Table
from almoner.queries._questions.kinds_of import described, question
from terms import grouped

ORDERS = pa.table({"customer": ["ann", "ann", "bob"], "amount": [1.0, 2.0, 3.0], "country": ["FR", "ES", "FR"]})
VISITS = pa.table({"who": ["ann", "cy", "cy"], "hours": [1, 2, 3]})
TABLES = {"orders": (ORDERS, "customer"), "visits": (VISITS, "who")}
COLUMNS = {"amount": Domain(low=0, high=10), "country": Domain(keys=["FR", "ES"])}


def made(where, rho=1.0, person="VARCHAR"):
    """A ledger that knows both tables."""
    book = Ledger.open(where, Terms(filters.Zcdp(rho=rho), person=person), threads=1, create=True)
    book.dataset("orders", person="customer", columns=COLUMNS)
    book.dataset("visits", person="who")
    return book


def session(book, name, **options):
    data, person = TABLES[name]
    return Session.open(**grouped({"data": data, "person": person, "ledger": book, "dataset": name, **options}))


def test_charges_of_all_data_sets_add_up(where):
    """Sessions side by side charge one account; who has spent it on one table is left out of the other."""
    with made(where) as book, session(book, "orders") as orders, session(book, "visits") as visits:
        orders.analyst("x").ask(People(rho=0.6, pace=None), key="a")
        visits.analyst("x").ask(People(rho=0.6, pace=None), key="b", anyway=True)
        spent = {person: book.spent(person) for person in ("ann", "bob", "cy")}
        assert len(set(spent.values())) == 1, "ann is in both tables, and paid once"
        assert [line.dataset for line in orders.statement("ann").lines] == ["orders"]
        assert [line.dataset for line in visits.statement("cy").lines] == ["visits"]
        entry = book.find("b")
        assert (entry.public["dataset"], entry.public["declared"]) == ("visits", {"visits": 2})
        assert entry.public["question"]["table"] == "visits"


@pytest.mark.slow
def test_replay_takes_other_data_sets_as_they_are_and_says_so(where):
    """With one table its questions are charged again, with all tables all; a changed row is found by either."""
    with made(where) as book:
        with session(book, "orders") as orders, session(book, "visits") as visits:
            for number in range(3):
                orders.analyst("x").ask(Count(clip=2, rho=0.1), key=f"orders {number}", anyway=True)
                visits.analyst("y").ask(Sum("hours", 0, 5, clip=2, rho=0.25), key=f"visits {number}", anyway=True)
            for each, other in ((orders, "visits"), (visits, "orders")):
                findings = each.verify(replay=True)
                assert all(finding.holds for finding in findings)
                assert f"but for questions about {other}, whose" in findings[-1].what
        people = {name: person for name, (_, person) in TABLES.items()}
        rows = {name: data for name, (data, _) in TABLES.items()}
        with Session.open(tables=rows, person=people, ledger=book) as both:
            findings = both.verify(replay=True)
            assert all(finding.holds for finding in findings)
            assert findings[-1].what == "charging every question again from the data gives the same accounts"
        for changed in rows:
            with Session.open(tables={**rows, changed: rows[changed].slice(1)}, person=people, ledger=book) as both:
                assert not both.verify(replay=True)[-1].holds
        with session(book, "orders", data=ORDERS.slice(1)) as orders:
            assert not orders.verify(replay=True)[-1].holds


def test_replay_of_a_question_that_used_another_table(path):
    """A session without that table takes it as it is; one with both charges it again."""
    people = pa.table({"customer": ["ann", "bob"], "age": [40, 50]})
    with made(path) as book:
        book.dataset("customers", person="customer")
        tables = {"orders": ORDERS, "customers": Table(people, one_row=True)}
        with Session.open(tables=tables, person="customer", ledger=book) as both:
            both.analyst("x").ask(Count(where="customers.age > 45", clip=2, rho=0.1), key="a")
            both.analyst("x").ask(Count(clip=2, rho=0.1), key="b")
            assert "but for" not in both.verify(replay=True)[-1].what
        with session(book, "orders") as alone:
            told = alone.verify(replay=True)[-1]
            assert told.holds
            assert "about customers," in told.what


def test_questions_from_before_the_first_declaration(path):
    """They name no data set, so that a replay takes them as they are."""
    with Session.open(ORDERS, person="customer", budget=filters.Zcdp(rho=1.0), ledger=path, create=True) as session_:
        session_.analyst("x").ask(Count(clip=2, rho=0.1), key="a")
        assert "but for" not in session_.verify(replay=True)[-1].what
        session_.ledger.dataset("orders", person="customer")
        with pytest.raises(ArgumentError, match="data sets were declared since"):
            session_.analyst("x").ask(Count(clip=2, rho=0.1), key="b")
    with Session.open(ORDERS, person="customer", ledger=path, dataset="orders") as session_:
        session_.analyst("x").ask(Count(clip=2, rho=0.1), key="b")
        told = session_.verify(replay=True)
        assert all(finding.holds for finding in told)
        assert "about tables that were no data sets yet" in told[-1].what


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"data": VISITS, "person": "who", "dataset": "orders"}, "declared with person='customer'"),
        ({"data": ORDERS, "person": "country", "dataset": "orders"}, "person='country'"),
        (
            {"data": ORDERS.drop_columns(["amount"]), "person": "customer", "dataset": "orders"},
            "'amount': it is missing",
        ),
        (
            {"data": ORDERS, "person": "customer"},
            "dataset= is missing: the data sets of this ledger are orders, visits",
        ),
        ({"data": ORDERS, "person": "customer", "dataset": "other"}, "'other' is not declared"),
        ({"tables": {"other": ORDERS}, "person": "customer"}, "'other' is not declared"),
        ({"tables": {"orders": ORDERS}, "person": "customer", "dataset": "orders"}, "own name"),
        (
            {
                "data": ORDERS.set_column(1, "amount", pa.array(["a", "b", "c"])),
                "person": "customer",
                "dataset": "orders",
            },
            "bounds of 'amount', whose kind is text",
        ),
        (
            {"data": ORDERS.set_column(2, "country", pa.array([1, 2, 3])), "person": "customer", "dataset": "orders"},
            "'FR' cannot be compared with a column of kind whole",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(path, options, told):
    """Before anything is charged, and the ledger stays open for the sessions that share it."""
    with made(path) as book, session(book, "orders") as orders:
        head = book.head
        with pytest.raises(ArgumentError) as refused:
            Session.open(ledger=book, **options)
        assert told in str(refused.value)
        assert book.head == head
        orders.analyst("x").ask(Count(clip=2, rho=0.1), key="a")


def test_a_ledger_without_data_sets_knows_none(path):
    """A name that nobody declared is refused, and sessions without one go on as before."""
    with pytest.raises(ArgumentError, match="this ledger knows no data sets"):
        Session.open(
            ORDERS, person="customer", budget=filters.Zcdp(rho=1.0), ledger=path, dataset="orders", create=True
        )
    with Session.open(ORDERS, person="customer", ledger=path) as plain:
        plain.analyst("x").ask(Count(clip=2, rho=0.1), key="a")
        assert plain.datasets == {}
        assert "dataset" not in plain.ledger.find("a").public
        assert plain.ledger.find("a").public["question"].get("table") is None


def test_a_number_and_the_same_digits_as_text(path):
    """All data sets of a ledger name people by one kind: a table with the other one is refused."""
    numbers = pa.table({"customer": [7, 8], "amount": [1.0, 2.0], "country": ["FR", "ES"]})
    texts = pa.table({"who": ["7", "9"], "hours": [1, 2]})
    with made(path, person="BIGINT") as book, session(book, "orders", data=numbers) as orders:
        with pytest.raises(ArgumentError, match=r"names that are whole numbers, not .*text: cast the column in a view"):
            session(book, "visits", data=texts)
        cast = "SELECT * REPLACE (TRY_CAST(who AS BIGINT) AS who) FROM data"
        with session(book, "visits", data=texts, view=cast) as visits:
            orders.analyst("x").ask(People(rho=0.25), key="a")
            visits.analyst("x").ask(Count(clip=2, rho=0.25), key="b")
        assert [line.dataset for line in orders.statement(7).lines] == ["orders", "visits"]


def test_spellings_in_text_are_different_people(path):
    """'7' and '07' have accounts of their own: the holder spells people alike in all tables."""
    other = pa.table({"who": ["07", "7"], "hours": [1, 1]})
    with made(path) as book, session(book, "visits", data=other) as visits:
        visits.analyst("x").ask(People(rho=0.25), key="a")
        assert book.spent("7") == book.spent("07") > 0


def test_an_answer_is_never_that_of_another_table(path):
    """Keys, earlier answers and chosen clips are of one table: about another one it is another question."""
    with made(path) as book, session(book, "orders") as orders, session(book, "visits") as visits:
        first = orders.analyst("x").ask(Count(clip=2, rho=0.05), key="a")
        with pytest.raises(ArgumentError, match="another question"):
            visits.analyst("x").ask(Count(clip=2, rho=0.05), key="a")
        shared = visits.analyst("y").ask(Count(clip=2, rho=0.05), key="b", earlier_of=["x"])
        assert shared.earlier is None
        assert orders.analyst("y").ask(Count(clip=2, rho=0.05), key="c", earlier_of=["x"]).released == first.released
        for each in (orders, visits):
            with suppress(ArgumentError):  # so few people are all noise
                each.analyst("z").ask(Count(clip="auto", rho=0.05), key=next(iter(each.datasets)))
        lengths = [entry for entry in book.entries("answered") if entry.public["question"]["ask"] == "lengths"]
        assert {entry.public["dataset"] for entry in lengths} == {"orders", "visits"}


def test_a_closed_session_leaves_the_ledger_open(path):
    """Its tables are gone from memory, it answers nothing new, and others go on."""
    with made(path) as book:
        first, other = session(book, "orders"), session(book, "visits")
        first.close()
        with pytest.raises(LedgerError, match="the session is closed"):
            first.analyst("x").ask(Count(clip=2, rho=0.1), key="a")
        other.analyst("x").ask(Count(clip=2, rho=0.1), key="b")
        other.close()
        names = book.store.workspace.run("SELECT view_name FROM duckdb_views() WHERE NOT internal").fetchall()
        assert names == []
        assert not book.store.closed


def test_what_an_open_ledger_cannot_be_shared_with(path):
    """Other terms, terms of the opening, an open transaction and a closed ledger are refused."""
    with made(path) as book:
        with pytest.raises(ArgumentError, match="budget of rho = 1 for each person, not 2"):
            session(book, "orders", budget=filters.Zcdp(rho=2.0))
        with pytest.raises(ArgumentError, match="threads= is for a ledger that the session opens"):
            session(book, "orders", threads=1)
        with pytest.raises(ArgumentError, match="while a transaction is open"):
            book.transact(lambda turn: session(book, "orders"))
        session(book, "orders", budget=filters.Zcdp(rho=1.0)).close()
    with pytest.raises(LedgerError, match="closed"):
        session(book, "orders")


def test_a_new_version_stops_sessions_of_the_old_one(path):
    """Their next question is refused, uncharged; the questions of each version say which it was."""
    with made(path) as book, session(book, "visits") as old:
        old.analyst("x").ask(Count(clip=2, rho=0.1), key="a")
        book.dataset("visits", person="guest", new_version=True)
        with pytest.raises(ArgumentError, match="declared anew: open the session again"):
            old.analyst("x").ask(Count(clip=2, rho=0.1), key="b")
        renamed = VISITS.rename_columns(["guest", "hours"])
        with session(book, "visits", data=renamed, person="guest") as new:
            new.analyst("x").ask(Count(clip=2, rho=0.1), key="b")
            told = new.verify(replay=True)
            assert all(finding.holds for finding in told)
            assert "about visits with another person column," in told[-1].what
        assert [book.find(key).public["declared"]["visits"] for key in "ab"] == [2, 4]


def ask_many(where, name, own):
    """Ask about one table, opening the ledger again whenever another process has it."""
    for number in range(own):

        def work(each, number=number):
            each.analyst(f"{name}{os.getpid() % 3}").ask(People(rho=0.07), key=f"{os.getpid()} {number}", anyway=True)

        patient(where, name, work)


def patient(where, name, work):
    end = time.monotonic() + 120
    while True:
        try:
            data, person = TABLES[name]
            with Session.open(data, person=person, ledger=where, dataset=name, threads=1) as each:
                return work(each)
        except LedgerError:
            if time.monotonic() > end:
                raise
            time.sleep(0.02)


@pytest.mark.slow
def test_four_processes_two_tables_one_budget(where):
    """Nobody is above the budget in exact arithmetic, whoever asks about whichever table; some of them are killed."""
    made(where, rho=0.5).close()
    children = [writers.spawn(ask_many, where, name, 6) for name in ("orders", "visits", "orders", "visits")]
    time.sleep(1)
    os.kill(children[0], signal.SIGKILL)
    codes = [os.waitpid(child, 0)[1] for child in children]
    assert codes[1:] == [0, 0, 0]
    with Ledger.open(where) as book:
        charges = {person: sum(units for _, units in book.charges(person)) for person in ("ann", "bob", "cy")}
        assert all(Fraction(units, 10**15) <= Fraction(1, 2) for units in charges.values())
        assert charges == {person: book.spent(person) for person in charges}
        assert charges["ann"] > Fraction(45, 100) * 10**15, "24 questions cost far more than the budget"
        about = {entry.public["dataset"] for entry in book.entries("answered")}
        assert about == {"orders", "visits"}
        tables, people = {n: d for n, (d, _) in TABLES.items()}, {n: p for n, (_, p) in TABLES.items()}
        with Session.open(tables=tables, person=people, ledger=book) as both:
            assert all(finding.holds for finding in both.verify(replay=True))


def test_a_crash_between_two_tables(path):
    """What one table's question charged before the crash holds; the other one's, not written, charged nobody."""

    def die():
        with made(path) as book, session(book, "orders") as orders, session(book, "visits") as visits:
            orders.analyst("x").ask(People(rho=0.25), key="a")
            with suppress(ZeroDivisionError):
                book.transact(lambda turn: (visits.analyst("x").ask(People(rho=0.25), key="b"), os._exit(7)))

    child = writers.spawn(die)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    with Ledger.open(path) as book, session(book, "visits") as visits:
        assert (book.find("a") is None, book.find("b") is None) == (False, True)
        assert book.spent("cy") == 0 < book.spent("ann")
        visits.analyst("x").ask(People(rho=0.25), key="b")
        assert all(finding.holds for finding in visits.verify(replay=True))


@pytest.mark.parametrize(
    ("left_out", "filled"),
    [
        (Sum("amount", clip=2, rho=0.01), Sum("amount", 0, 10, bounds_hold=True, clip=2, rho=0.01)),
        (Sum("amount", low=2, clip=2, rho=0.01), Sum("amount", 2, 10, clip=2, rho=0.01)),
        (Mean("amount", rho=0.01), Mean("amount", 0, 10, bounds_hold=True, rho=0.01)),
        (Mean("orders.amount", rho=0.01), Mean("orders.amount", 0, 10, bounds_hold=True, rho=0.01)),
        (Count(by="country", clip=2, rho=0.01), Count(by={"country": ["FR", "ES"]}, clip=2, rho=0.01)),
        (People(by=["country"], rho=0.01), People(by={"country": ["FR", "ES"]}, rho=0.01)),
        (
            Sum("amount", by={"country": None, "amount": [(0, 5), (5, 10)]}, clip=2, rho=0.01),
            Sum(
                "amount",
                0,
                10,
                bounds_hold=True,
                by={"country": ["FR", "ES"], "amount": [(0, 5), (5, 10)]},
                clip=2,
                rho=0.01,
            ),
        ),
        (
            Mean("amount", by="country", error=5.0),
            Mean("amount", 0, 10, bounds_hold=True, by={"country": ["FR", "ES"]}, error=5.0),
        ),
    ],
)
def test_what_a_question_leaves_out_is_filled_in(path, left_out, filled):
    """With what the data set declares; the quote is of the filled question, which the record and files hold."""
    with made(path) as book, session(book, "orders") as orders:
        ann = orders.analyst("ann")
        wanted = replace(filled, table="orders")
        assert ann.filled(left_out) == ann.filled(filled) == wanted
        assert described(question(described(left_out))) == described(left_out)
        if wanted.error is None:
            assert ann.quote(left_out) == ann.quote(filled)
            answer = ann.ask(left_out, key="a")
            assert answer.question == wanted
            assert book.find("a").public["question"] == json.loads(json.dumps(described(wanted)))
            assert ann.ask(filled, key="a").released == ann.ask(left_out, key="a").released == answer.released


@pytest.mark.quick(6)
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (Mean("country", rho=0.01), "low= and high= must be given: no data set declares bounds of 'country'"),
        (Sum("amount * 2", high=9, clip=1, rho=0.01), r"low= must be given: .* 'amount \* 2'"),
        (Mean("amount", per="total", rho=0.01), "bounds of a person's total of 'amount'"),
        (Mean("amount", each_person={"amount": "sum(amount)"}, rho=0.01), "declares bounds of 'amount'"),
        (Count(by="amount", clip=1, rho=0.01), "by: no data set declares keys of 'amount'"),
        (Count(by=["country", "customer"], clip=1, rho=0.01), "keys of 'customer'"),
        (Sum("amount", low=11, clip=1, rho=0.01), "low=11 and high=10 must be increasing"),
    ],
)
def test_what_no_data_set_declares_must_be_given(path, asked, told):
    """Bounds of an expression, of totals and of steps are others than those of entries; nothing is charged."""
    with made(path) as book, session(book, "orders") as orders:
        ann, head = orders.analyst("ann"), book.head
        for refused in (ann.quote, partial(ann.check, key="a"), partial(ann.ask, key="a")):
            with pytest.raises(ArgumentError, match=told):
                refused(asked)
        assert book.head == head


def test_without_data_sets_nothing_is_filled_in(path):
    """A question that leaves out bounds is refused as it always was, only later."""
    with Session.open(ORDERS, person="customer", budget=filters.Zcdp(rho=1.0), ledger=path, create=True) as plain:
        for asked in (Mean("amount", rho=0.01), Count(by="country", clip=1, rho=0.01)):
            with pytest.raises(ArgumentError, match="no data set declares"):
                plain.analyst("ann").ask(asked, key="a")
    for bad in ({"by": {"country": []}}, {"by": {"country": ()}}):
        with pytest.raises(ArgumentError, match="needs keys"):
            Count(clip=1, rho=0.1, **bad)


def test_filled_questions_are_charged_again_without_the_declaration(path):
    """The record holds what was filled in: a later version of the data set does not change the replay."""
    with made(path) as book:
        with session(book, "orders") as orders:
            orders.analyst("ann").ask(Sum("amount", by="country", clip=2, rho=0.1), key="a")
        book.dataset("orders", person="customer", columns={"amount": Domain(low=0, high=1)}, new_version=True)
        with session(book, "orders") as orders:
            told = orders.verify(replay=True)
            assert all(finding.holds for finding in told)
            assert "but for" not in told[-1].what


def test_two_tables_of_one_file_with_pseudonyms(tmp_path):
    """Sessions on tables of one DuckDB file, with a view and hashed names: charged, checked and compacted."""
    source = tmp_path / "shop.duckdb"
    with duckdb().connect(str(source)) as connection:
        connection.execute("CREATE TABLE orders AS SELECT i % 5 AS customer, i AS amount FROM range(50) t(i)")
        connection.execute("CREATE TABLE visits AS SELECT i % 7 AS who FROM range(50) t(i)")
    terms, key = Terms(filters.Zcdp(rho=1.0), person="BIGINT"), tmp_path / "people.key"
    with Ledger.open(tmp_path / "people.ledger", terms, pseudonyms=key, create=True) as book:
        book.dataset("orders", person="customer", columns={"amount": Domain(low=0, high=50)})
        book.dataset("visits", person="who")
        first = session(book, "orders", data=source, table="orders")
        with session(book, "visits", data=source, table="visits", view="SELECT * FROM data") as visits:
            first.analyst("x").ask(People(rho=0.25), key="a")
            visits.analyst("x").ask(People(rho=0.25), key="b")
            assert visits.check_view().people == 7
            first.close()
            assert visits.check_view().people == 7, "the file is still there for the other session"
            compact(book)
            with session(book, "orders", data=source, table="orders") as again:
                assert all(finding.holds for finding in again.verify(replay=True))
            spent = [book.spent(person) for person in range(8)]
            assert len(set(spent[:5])) == len(set(spent[5:7])) == 1
            assert spent[0] > spent[5] > spent[7] == 0


def test_periods_of_two_tables(where):
    """A person's rows of one month have one budget, whichever table they are in."""
    months = Periods("day", every="month", first="2026-01-01", last="2026-12-01")
    days = [date(2026, 1, 3), date(2026, 2, 3)]
    orders = pa.table({"customer": ["ann", "bob"], "day": days})
    visits = pa.table({"who": ["ann", "ann"], "day": days})
    with Ledger.open(where, Terms(filters.Zcdp(rho=1.0), person="VARCHAR", periods=months), create=True) as book:
        book.dataset("orders", person="customer")
        book.dataset("visits", person="who")
        with session(book, "orders", data=orders) as one, session(book, "visits", data=visits) as other:
            one.analyst("x").ask(People(rho=0.6), key="a")
            other.analyst("x").ask(People(rho=0.6), key="b", anyway=True)
            spent = [Fraction(book.spent(f"ann 2026-0{month}-01"), 10**15) for month in (1, 2, 3)]
            assert spent[0] <= 1
            assert spent[0] > Fraction(9, 10)
            assert spent[1] == Fraction(book.spent("bob 2026-02-01"), 10**15) < spent[0]
            assert spent[2] == 0
            assert all(finding.holds for each in (one, other) for finding in each.verify(replay=True))
        with pytest.raises(ArgumentError, match="names that are text, not 'BIGINT'"):
            session(book, "visits", data=pa.table({"who": [1], "day": days[:1]}))

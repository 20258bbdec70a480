"""Ledgers for tests: opened with a budget of rho = 1, asked by hand, checked."""

from almoner import filters
from almoner._workspace import Query
from almoner.ledger import Ledger, verify
from almoner.queries._questions.kinds_of import described
from terms import on_terms

RHO = 10**15


def opened(path, **options):
    return Ledger.open(
        path, **on_terms({"budget": filters.Zcdp(rho=1.0), "person": "VARCHAR", "create": True, **options})
    )


def ask(book, key, charges, *, price=None, analyst="ann", purpose=None, reserved=None):
    """A question that costs each person what charges says; returns who took part."""
    workspace = book.store.workspace
    workspace.run("CREATE OR REPLACE TEMP TABLE charges(person VARCHAR, units BIGINT)")
    for person, units in charges.items():
        workspace.run("INSERT INTO charges VALUES (?, ?)", [person, units])
    price = max(charges.values()) if price is None else price

    def work(turn, offer):
        admission = turn.admit(offer, key=key, price=price, analyst=analyst, purpose=purpose, reserved=reserved)
        took = set(people(book, admission))
        turn.settle(admission, {"answer": [1]})
        return took

    return book.answer(Query("SELECT * FROM charges"), work)


def people(book, admission):
    """Who was admitted, in any order."""
    rows = book.store.workspace.run(f"SELECT person FROM {admission.people.rows}").fetchall()
    return [person for (person,) in rows]


def exact(session, asked, analyst="ann"):
    """Before noise, and undone: sums in whole steps as one list, and each admitted person's units."""

    def work(turn, offer):
        terms = {"price": asked.price, "spare": asked.spare_units, "payment": asked.payment}
        admission = turn.admit(offer, key="exact", analyst=analyst, **terms)
        admitted = admission.people.rows
        charged = session.ledger.store.workspace.run(f"SELECT person, units FROM {admitted}").fetchall()
        assert len(dict(charged)) == len(charged)
        return session._rows.sums(plan, admitted), dict(charged)

    plan = session._rows.plan(asked, described(asked))
    return session.ledger.answer(session._rows.charges(plan), work)


def counted(session, asked):
    """People by key, before noise, and each admitted person's units; on DuckDB."""

    def work(turn, offer):
        admission = turn.admit(offer, key="exact", price=asked.price, analyst="ann")
        rows = session.ledger.store.workspace.run(f"SELECT person, units FROM {admission.people.rows}").fetchall()
        return dict(session._rows.people_by_value(plan, admission.people.rows)), dict(rows)

    plan = session._rows.plan(asked, described(asked))
    return session.ledger.answer(session._rows.charges(plan), work)


def clean(book, **options):
    return all(finding.holds for finding in verify(book, **options))

"""Ledgers for tests: opened with a budget of rho = 1, asked by hand, checked."""

from bursar import filters
from bursar.ledger import Ledger, verify

RHO = 10**15


def opened(path, **options):
    return Ledger.open(path, **{"budget": filters.Zcdp(rho=1.0), "person": "VARCHAR", **options})


def ask(book, key, charges, *, price=None, analyst="ann", purpose=None, reserved=None):
    """A question that costs each person what charges says; returns who took part."""
    desk = book.store.desk
    desk.run("CREATE OR REPLACE TEMP TABLE charges(person VARCHAR, units BIGINT)")
    for person, units in charges.items():
        desk.run("INSERT INTO charges VALUES (?, ?)", [person, units])
    price = max(charges.values()) if price is None else price
    book.offer("SELECT * FROM charges")

    def work():
        book.admit(price=price, analyst=analyst, purpose=purpose, reserved=reserved)
        took = {person for (person,) in desk.run("SELECT person FROM admitted").fetchall()}
        book.settle({"price": price, "answer": [1]}, key=key, analyst=analyst, purpose=purpose, reserved=reserved)
        return took

    return book.transaction(work)


def clean(book, **options):
    return all(finding.holds for finding in verify(book, **options))

"""A shop for tests: orders and customers of the same people, and public tables beside them."""

import datetime

import pyarrow as pa

from almoner import filters
from almoner.queries import Count, Lookup, Session, Sum, Table
from terms import grouped

ORDERS = pa.table(
    {
        "customer": [1, 1, 2, 3, None, 4],
        "product": ["a", "b", "a", "z", "a", None],
        "amount": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "day": [datetime.date(2011, 12, day) for day in (1, 2, 3, 4, 5, 6)],
    }
)
CUSTOMERS = pa.table({"id": [1, 2, 3, 5, None], "age": [30, 40, 50, 60, 70], "zip": ["n", "s", "n", "s", "n"]})
PRODUCTS = pa.table({"code": ["a", "b", None, None], "category": ["X", "Y", "X", "X"], "group no": [1, 2, 1, 1]})
GROUPS = pa.table({"number": [1, 2], "title": ["one", "two"]})
REGIONS = pa.table({"zip": ["n", "s"], "name": ["north", "south"]})
PUBLIC = {
    "products": Lookup(PRODUCTS, "code", on="product"),
    "sections": Lookup(GROUPS, "number", on="products.group no"),
    "regions": Lookup(REGIONS, "zip", on="customers.zip"),
}
TABLES = {"orders": ORDERS, "customers": Table(CUSTOMERS, one_row=True)}
PERSON = {"orders": "customer", "customers": "id"}
ON_BOTH = [
    Count(by={"sections.title": ["one", "two"]}, where="customers.age < 60", clip=9, sigma=1000.0),
    Sum("amount * customers.age", 0, 1000, by={"regions.name": ["north", "south"]}, clip=9, sigma=1000.0),
    Count(
        table="customers",
        each_person={
            "n": "count(orders)",
            "spent": "sum(orders.amount)",
            "best": "max(case when orders.amount > 0 then products.category end)",
        },
        where="n > 0 and spent < 100 and best is not null",
        sigma=1000.0,
    ),
]


def opened(path, **options):
    given = {
        "tables": TABLES,
        "public": PUBLIC,
        "person": PERSON,
        "budget": filters.Zcdp(rho=1.0),
        "ledger": path,
        "create": True,
    }
    return Session.open(**grouped({**given, **options}))

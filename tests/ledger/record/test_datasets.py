"""Data sets that a ledger knows: declared once, kept in the record, refused where they differ."""

import math
from datetime import date

import pytest

from almoner.errors import ArgumentError
from almoner.ledger import Domain, verify
from almoner.ledger._record.entries import read_rows
from ledgers import ask, clean, opened

COLUMNS = {"amount": Domain(low=0, high=500), "country": {"keys": ["FR", "ES"]}}


def test_a_declaration_is_an_entry_and_stays(path):
    """It has the number of its entry, is there when the ledger is opened again, and the chain of hashes holds."""
    with opened(path) as book:
        first = book.dataset("orders", person="customer", columns=COLUMNS)
        second = book.dataset("visits", person="who")
        assert (first.number, second.number) == (1, 2)
    with opened(path) as book:
        assert book.datasets == {"orders": first, "visits": second}
        assert [row.kind for row in read_rows(book.store.run)] == ["opened", "dataset", "dataset"]
        assert clean(book)


def test_the_same_declaration_again_is_no_entry(path):
    """Programs may declare whenever they start."""
    with opened(path) as book:
        first = book.dataset("orders", person="customer", columns=COLUMNS)
        head = book.head
        assert book.dataset("orders", person="customer", columns=COLUMNS) == first
        assert book.head == head


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("person", "columns", "told"),
    [
        ("client", COLUMNS, "person='customer', not 'client'"),
        ("customer", {}, "a column 'amount'"),
        ("customer", {**COLUMNS, "more": Domain(0, 1)}, "no column 'more'"),
        ("customer", {**COLUMNS, "amount": Domain(0, 501)}, "low=0 and high=500 of 'amount', not 0 and 501"),
        ("customer", {**COLUMNS, "country": Domain(keys=["FR"])}, "other keys of 'country'"),
        ("customer", {**COLUMNS, "country": Domain(keys=["ES", "FR"])}, "other keys of 'country'"),
    ],
)
def test_another_declaration_is_refused_with_what_differs(path, person, columns, told):
    """Nothing is written, unless a new version is wanted: then both are in the record."""
    with opened(path) as book:
        book.dataset("orders", person="customer", columns=COLUMNS)
        head = book.head
        with pytest.raises(ArgumentError, match=r"was declared with .*new_version") as refused:
            book.dataset("orders", person=person, columns=columns)
        assert told in str(refused.value)
        assert book.head == head
        anew = book.dataset("orders", person=person, columns=columns, new_version=True)
        assert (anew.version, anew.number) == (2, 2)
        assert book.datasets == {"orders": anew}
        assert clean(book)


def test_names_that_differ_by_case_alone_are_refused(path):
    """Nobody means two tables by them."""
    with opened(path) as book:
        book.dataset("orders", person="customer")
        with pytest.raises(ArgumentError, match="'orders' already, which differs by case"):
            book.dataset("Orders", person="customer")


@pytest.mark.quick(10)
@pytest.mark.parametrize(
    "bad",
    [
        {"low": 0},
        {"low": 1, "high": 1},
        {"low": math.nan, "high": 1},
        {"low": 0, "high": math.inf},
        {"low": True, "high": 2},
        {"low": 0, "high": 10**400},
        {"low": 0, "high": 1, "keys": ["a"]},
        {"keys": []},
        {"keys": "FR"},
        {"keys": ["a", "a"]},
        {"keys": [1.5]},
        {"keys": ["x" * 1001]},
        {"low": 0, "high": 1, "more": 2},
        {},
        7,
    ],
)
def test_domains_that_make_no_sense_are_refused(path, bad):
    """Before anything is written."""
    with opened(path) as book:
        with pytest.raises(ArgumentError, match="columns"):
            book.dataset("orders", person="customer", columns={"amount": bad})
        assert book.head.startswith("0:")


@pytest.mark.parametrize("name", ["", "a b", "a;b", "1a", "x" * 101, 7])
def test_names_that_are_no_names_are_refused(path, name):
    """They stand in questions as the names of tables."""
    with opened(path) as book, pytest.raises(ArgumentError, match="dataset="):
        book.dataset(name, person="customer")


def test_dates_are_keys_as_text(path):
    """The record holds what a question holds."""
    with opened(path) as book:
        told = book.dataset("orders", person="customer", columns={"day": Domain(keys=[date(2026, 5, 1)])})
        assert told.columns["day"].keys == ("2026-05-01",)


def test_a_question_without_a_data_set_is_found(path):
    """What was written around sessions after a declaration does not pass the checks."""
    with opened(path) as book:
        ask(book, "a", {"ann": 1})
        book.dataset("orders", person="customer")
        assert clean(book)
        ask(book, "b", {"ann": 1})
        wrong = [finding.what for finding in verify(book) if not finding.holds]
        assert len(wrong) == 1
        assert "data sets are declared" in wrong[0]

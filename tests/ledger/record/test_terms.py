"""What a ledger was made for: its budget, and how it names people."""

import math

import pytest

from almoner import filters
from almoner.errors import ArgumentError, CopyRefused, LedgerError, UnknownPerson
from almoner.ledger import Ledger, Terms
from ledgers import ask, clean, opened


def test_a_lost_ledger_is_not_replaced_silently(path):
    """Without create=True a missing file is an error; without a budget it cannot be made; nor without its folder."""
    with pytest.raises(LedgerError, match="there is no ledger at") as refused:
        Ledger.open(path, Terms(filters.Zcdp(rho=1.0), person="VARCHAR"))
    assert refused.value.reason == "missing"
    assert not path.exists()
    with pytest.raises(LedgerError, match="without a budget"):
        Ledger.open(path, create=True)
    with pytest.raises(LedgerError, match="cannot be created"):
        opened(path / "below")


def test_terms_are_fixed(where):
    """Another budget or another kind of names is refused; none given takes the ledger's own."""
    opened(where).close()
    with pytest.raises(ArgumentError, match="budget"):
        opened(where, budget=filters.Zcdp(rho=2.0))
    with pytest.raises(ArgumentError, match="person"):
        opened(where, person="BIGINT")
    with pytest.raises(ArgumentError, match="must be a fresh"):
        opened(where, budget=filters.Renyi(epsilon=1.0, delta=1e-6))
    for other in (filters.Gaussian(mu=math.sqrt(2.0)), filters.Basic(epsilon=1.0)):
        with pytest.raises(ArgumentError, match="counts zCDP rho, not"):
            opened(where, budget=other)
    with pytest.raises(ArgumentError, match="below"):
        opened(where, budget=filters.Zcdp(rho=1e5))
    with Ledger.open(where) as book:
        assert book.budget == 1.0
        assert repr(book) == f"Ledger({book.store.name!r}, rho=1.0)"
        with pytest.raises(CopyRefused):
            __import__("copy").copy(book)


def test_names_of_people(where):
    """Whole-number ledgers take numbers and their decimal text; anything else is unknown, without being quoted."""
    with opened(where, person="BIGINT") as book:
        book.retire("17")
        book.restore(17)
        for wrong in ("x", True, 1.5, 2**63, None):
            with pytest.raises(UnknownPerson, match="whole numbers"):
                book.spent(wrong)


def test_names_of_people_that_are_text(where):
    """Text ledgers take any text at all, and tell people apart to the last character; halves of characters are none."""
    people = ["", "ann", "Ann", "ann ", "a\0b", "a\\0b", "\\x61", "é", "e\u0301", "\t", "\r\n", "'\"?%s", "\U0001f642"]
    with opened(where) as book:
        assert ask(book, "a", {person: place for place, person in enumerate(people, start=1)}) == set(people)
        assert [book.spent(person) for person in people] == list(range(1, len(people) + 1))
        for person in people[:5]:
            book.retire(person)
        assert ask(book, "b", dict.fromkeys(people, 1)) == set(people[5:])
        charged = book.store.workspace.run(book.accounts.charged()).fetchall()
        assert {person for _, person, _ in charged} == set(people)
        assert clean(book)
        for wrong in (17, None, b"ann", "\ud800"):
            with pytest.raises(UnknownPerson, match="text"):
                book.spent(wrong)


def test_data_sets_and_limits_of_terms_are_put_in_force_once(where):
    """What is in force already is not written again; another share is a new limit; another declaration is refused."""
    visits = {"visits": {"person": "who", "columns": {"hours": {"low": 0, "high": 24}}}}
    terms = Terms(
        filters.Zcdp(rho=1.0), person="VARCHAR", datasets=visits, limits={"analyst:ann": 0.1, "purpose:a:b": 1}
    )
    for opening in range(2):
        with Ledger.open(where, terms, create=not opening) as book:
            assert book.datasets["visits"].columns["hours"].high == 24
            limits = {entry.public["scope"]: entry.public["units"] for entry in book.entries("limited")}
            assert limits == {"analyst:ann": 10**14, "purpose:a:b": 10**15}
            assert book.head.startswith("3:")
    with Ledger.open(where, Terms(limits={"analyst:ann": 0.2})) as book:
        assert [entry.public["units"] for entry in book.entries("limited")][-1] == 2 * 10**14
    with pytest.raises(ArgumentError, match="was declared with person='who', not 'id'"):
        Ledger.open(where, Terms(datasets={"visits": {"person": "id"}}))
    for wrong in ({"ann": 0.1}, {"analyst:ann": 2.0}):
        with pytest.raises(ArgumentError, match="limits"):
            Terms(limits=wrong)
    with Ledger.open(where) as book:
        assert clean(book)

"""A ledger's terms and questions at a glance, and the check of an exported file."""

import json

import pytest

from almoner.errors import DataError, LedgerError
from almoner.ledger import check_export_file, export, summary
from ledgers import RHO, ask, opened


@pytest.fixture
def book(tmp_path):
    with opened(tmp_path / "people.ledger") as book:
        ask(book, "a", {"ann": RHO // 10})
        book.retire("bob")
        ask(book, "b\u2028c", {"cy": RHO // 2}, purpose="weekly")
        yield book


def test_a_summary_holds_terms_and_questions_and_nothing_private(book):
    """Every answered question with its worst-case price; other entries only in the count."""
    record = summary(book)
    assert record.terms["rho"] == 1.0
    assert (record.entries, record.head) == (4, book.head)
    assert [(asked["key"], asked["purpose"], asked["rho at most"]) for asked in record.questions] == [
        ("a", None, 0.1),
        ("b\u2028c", "weekly", 0.5),
    ]
    assert not any(name in json.dumps(record.questions) for name in ("bob", "cy"))
    assert "bob" not in repr(record)


def test_an_exported_file_is_checked_to_its_head(book, tmp_path):
    """The number of entries and the head; keys may hold characters that end lines for Python."""
    path = tmp_path / "record.jsonl"
    path.write_text("".join(f"{line}\n" for line in export(book)), encoding="utf-8")
    assert check_export_file(path) == (4, book.head)
    path.write_text(path.read_text(encoding="utf-8").replace("weekly", "weakly"), encoding="utf-8")
    with pytest.raises(DataError, match="broken"):
        check_export_file(path)
    with pytest.raises(LedgerError, match="cannot be read"):
        check_export_file(tmp_path / "none.jsonl")


def test_what_is_left_at_worst_is_public(book):
    """The budget less every price, whoever paid it; a limit counts the prices of its analyst."""
    assert min(book.left_by_period("x").values()) == RHO * 4 // 10
    book.limit(RHO // 5, purpose="weekly")
    assert min(book.left_by_period("x").values()) == RHO * 4 // 10
    assert min(book.left_by_period("x", "weekly").values()) == 0

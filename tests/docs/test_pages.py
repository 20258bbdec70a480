"""Pages for users are short, and answer one question each."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = {"api.md", "cli.md", "theory.md", "benchmarks.md", "glossary.md", "questions.md"}
"""Pages to look something up in: lists, most of them made by a program."""

PAGES = sorted(
    page
    for page in DOCS.rglob("*.md")
    if page.parent.name not in ("proofs", "experiments", "papers") and page.name not in REFERENCE
)


def words(page, *, code=True):
    """How many words a page has, without the tables that a program makes."""
    text = re.sub(r"<!-- table:.*?<!-- end -->", " ", page.read_text(encoding="utf-8"), flags=re.S)
    return len((text if code else re.sub(r"^```.*?^```", " ", text, flags=re.S | re.M)).split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_guide_is_short(page):
    """At most 1,500 words, with its examples."""
    assert words(page) <= 1500


def test_all_guides_together_are_a_small_book():
    """At most 65,000 words of text."""
    assert sum(words(page, code=False) for page in PAGES) <= 65_000


def test_pages_are_counted():
    """A long page is seen to be long."""
    assert words(DOCS / "glossary.md") > 1500
    assert len(PAGES) > 60

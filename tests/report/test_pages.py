"""Pages about accounts: what they say, that they stand alone, and that no name on them is anything but text."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from jinja2 import UndefinedError

from almoner import _html, filters, queries
from almoner.individual import BudgetStatement
from almoner.ledger import Ledger, compact, erase
from almoner.queries import Line, Statement
from almoner.queries._questions.kinds_of import _KINDS
from almoner.queries._statements import Lifetime
from almoner.report import pages
from page_reader import Reader

HOSTILE = (
    "<script>alert('x')</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></style></bdi></td>--><!--",
    "javascript:alert(1)//http://elsewhere.example/?a=1&b=2",
    "&lt;b&gt; ' \" {{7*7}} ${7*7}",
)
WHEN = "2026-03-01T08:30:00.000+00:00"


def told(analyst="ann", purpose="weekly", key="week 1", where="week = 1", rho=0.25):
    """A statement of one answer."""
    line = Line(1, WHEN, analyst, purpose, key, {"ask": "people", "where": where}, rho)
    return Statement((line,), rho, 1.0, 2.0, 1e-6, "rho", 0.6049)


@pytest.fixture
def book(tmp_path):
    """A ledger that was asked by two analysts until people had to be left out."""
    rows = pa.table({"who": [k % 40 for k in range(400)], "day": [k // 100 for k in range(400)]})
    path = tmp_path / "people.ledger"
    with queries.Session.open(rows, person="who", budget=filters.Zcdp(rho=0.03), ledger=path, create=True) as session:
        first, second = session.analyst("ann", purpose="weekly"), session.analyst(HOSTILE[0], purpose=HOSTILE[1])
        for day in range(4):
            first.ask(queries.People(where=f"day = {day}", sigma=10.0), key=f"day {day}")
        second.ask(queries.People(where="day < 3", sigma=7.0), key=HOSTILE[2], anyway=True)
    with Ledger.open(path) as opened:
        yield opened


def every_page(book):
    return [
        pages.statement(told(), person="Ann"),
        pages.statement(BudgetStatement("Ann", 0.4, 1.0, 1e-5, 0.56), person="Ann"),
        pages.ledger(book),
    ]


def test_pages_stand_alone_and_can_be_read_aloud(book):
    """No page asks for anything from elsewhere; each has a language, a title, headings, headers and labels."""
    for page in every_page(book):
        read = Reader(page)
        assert {tag for tag, _ in read.tags}.isdisjoint(
            {"script", "link", "iframe", "img", "object", "a", "form", "base"}
        )
        names = {name for _, attributes in read.tags for name in attributes}
        assert names.isdisjoint({"src", "href", "srcset", "action", "style", "onload", "onerror", "xmlns"})
        assert not re.search(r"url\(|@import|https?:", read.style)
        assert read.all("html") == [{"lang": "en"}]
        assert [tag for tag, _ in read.tags].count("h1") == 1
        assert any(tag == "title" and data for tag, data in read.texts)
        (policy,) = (each["content"] for each in read.all("meta") if "http-equiv" in each)
        assert policy == "default-src 'none'; style-src 'unsafe-inline'"
        assert read.all("svg")
        assert all(each["role"] == "img" and each["aria-label"] for each in read.all("svg"))
        assert all(each["scope"] == "col" for each in read.all("th"))
        assert len(read.all("caption")) == len(read.all("table"))
        assert "prefers-color-scheme: dark" in page
        assert "@media print" in page


def test_private_pages_say_so_first(book):
    """Before anything else a page says that it is private, and for whom."""
    for page, whose in zip(every_page(book), ("the person Ann", "the person Ann", "the data holder"), strict=True):
        first = next(data for tag, data in Reader(page).texts if tag in ("p", "h1", "h2"))
        assert first.startswith("Private")
        assert whose in first


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text(name):
    """A name of a person, an analyst, a purpose, a key or a condition is shown letter by letter, and makes no tag."""
    plain = Reader(pages.statement(told(), person="Ann"))
    page = pages.statement(told(name, name, name, name), person=name)
    read = Reader(page)
    assert [tag for tag, _ in read.tags] == [tag for tag, _ in plain.tags]
    shown = [data for _, data in read.texts]
    assert sum(name == data for data in shown) == 3
    assert sum(data == f"where {name}" for data in shown) == 1
    assert any(name in data and data.startswith("Private") for data in shown)


@pytest.mark.parametrize("unseen", ["\u202e", "\x00", "\x1b", "\ud800", "\u2066", "\x85"])
def test_characters_that_nobody_sees_are_marked(unseen):
    """What turns the direction of a line around, or no file can hold, is replaced by a sign that is seen."""
    page = pages.statement(told(f"a{unseen}b"), person=f"a{unseen}b")
    assert unseen not in page
    assert page.count("a\ufffdb") == 2
    page.encode("utf-8")


def test_the_statement_is_in_plain_words(book):
    """Every sentence for a person is under 25 words, without Greek, and without the letters of the field."""
    for page in every_page(book)[:2]:
        sentences = [
            each
            for tag, data in Reader(page).texts
            if tag in ("p", "h1", "h2")
            for each in re.split(r"(?<=[.?!])\s+(?=[A-Z])", data)
        ]
        assert len(sentences) > 10
        for each in sentences:
            assert len(each.split()) < 25, each
        assert not re.search(r"[α-ωΑ-Ω]|\b(rho|epsilon|delta|sigma|mu)\b", Reader(page).text)


def test_the_statement_says_what_was_used_and_what_it_means():
    """The share, as a number and as a bar, rounded up; the odds; what was asked, by whom, when and what for."""
    page = pages.statement(told(rho=0.1234567), person=17)
    text = Reader(page).text
    assert "12.4 % of your budget is used." in text.replace("\u00a0", " ")
    assert 'class="used" x="0" y="0" width="12.346"' in page
    assert "right at most 60.5 times in 100." in text  # 0.6049, rounded up
    assert "week 1 a number of people exact question where week = 1" in text
    assert "1 March 2026, 08:30 UTC" in text
    assert "1 result has used your records." in text
    for each in ("ann", "weekly", "(2, 1e-06)-differential privacy"):
        assert each in text


def test_a_page_without_links_names_none():
    """Where no analyst wrote an address, there is none in the whole file."""
    assert "://" not in pages.statement(told(), person="Ann")


TEMPLATES = sorted(Path(_html.__file__).with_name("_templates").iterdir())


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_lead_nowhere_else_and_run_nothing(path):
    """Links are to a file beside the page, or to a page of the same server; no template turns escaping off."""
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\b(?:href|action|src)=(\S*?)[\s>]", text)
    assert set(links) <= {'"statement.html"', '"{{', '".{{', "address", "action"}  # with the dot: beside the page
    assert not re.search(r"<script|javascript:|://|\bon\w+=|\|\s*safe|autoescape", text)
    given = re.findall(r"\b(?:link|form)\(\s*([^,]+),", text)
    ours = r'"/\w*(\?[\w=&%]*)?"( ~ \w+| \| format\(page [-+] 1\))?|address|action|each\.address'
    assert all(re.fullmatch(ours, each) for each in given), given


def test_a_value_that_is_not_given_is_an_error():
    """No page is written with a hole in it."""
    with pytest.raises(UndefinedError):
        _html.render("base.html")


def test_a_statement_without_questions():
    """Nobody's empty account is told plainly, and has no empty table."""
    empty = Statement((), 0.0, 1.0, 2.0, 1e-6, "rho", 0.6)
    page = pages.statement(empty, person="Ann")
    assert "No result has used your records so far." in page
    assert "check the name above" in page  # it may be a name that is not in the data
    assert "check the name above" not in pages.statement(told(), person="Ann")
    assert "<table" not in page
    assert 'width="0.000"' in page


def test_a_compacted_account(book):
    """What a ledger keeps only as a sum is told as such, with its share."""
    before = Reader(pages.statement(queries.statement(book, "17"), person=17)).text.replace("\u00a0", " ")
    assert "5 results have used your records." in before
    assert "100 % of your budget is used." in before
    compact(book)
    text = Reader(pages.statement(queries.statement(book, "17"), person=17)).text.replace("\u00a0", " ")
    assert "Earlier results have used your records, and 1 more." in text  # the other analyst's only one stays
    assert "earlier results, of which only the sum is kept 66.7 %" in text
    assert text.count("a number of people") == 1


def test_an_erased_account(tmp_path):
    """Who asked for what was erased, and what for, is not kept, and nobody is named instead."""
    rows = pa.table({"who": ["ann", "bob"]})
    place = {"ledger": tmp_path / "people.ledger", "pseudonyms": tmp_path / "key"}
    with queries.Session.open(rows, person="who", budget=filters.Zcdp(rho=0.03), **place, create=True) as session:
        session.analyst("zoe", purpose="weekly").ask(queries.People(sigma=10.0), key="one")
        before = Reader(pages.statement(session.statement("ann"), person="ann")).text
        assert "zoe" in before
        erase(session.ledger, "ann")
        after = Reader(pages.statement(session.statement("ann"), person="ann")).text
    assert after.count("not kept") == 2
    assert not any(word in after for word in ("zoe", "weekly", "not stated", "check the name"))
    assert after.count("the data holder") == before.count("the data holder")


def test_a_model_s_statement():
    """The account that a model kept is told in the same words."""
    text = Reader(pages.statement(BudgetStatement("Ann", 0.4012, 1.0, 1e-5, 1.0), person="Ann")).text
    assert "40.2 % of your budget is used." in text.replace("\u00a0", " ")
    assert "A model was trained on data about you." in text
    assert "right at most 100 times in 100." in text


def test_only_plain_names_stand_in_a_sentence():
    """A column or a table that is no plain name is part of the exact question, where the condition is."""

    def asked(**question):
        line = Line(1, WHEN, "ann", "weekly", "k", {"ask": "sum", **question}, 0.25)
        return Reader(pages.statement(Statement((line,), 0.25, 1.0, 2.0, 1e-6, "rho", 0.6), person="Ann"))

    plain = asked(column="visits.hours", table="visits")
    assert "k a sum of visits.hours in visits" in plain.text
    assert plain.all("details") == []
    computed = asked(column="hours * 2", table="(select 1)", where="day = 3")
    assert "k a sum exact question of hours * 2, in (select 1), where day = 3" in computed.text
    assert ("bdi", "of hours * 2, in (select 1), where day = 3") in computed.texts


@pytest.mark.parametrize("kind", [*_KINDS, "training", "update", "watch", "earlier"])
def test_every_kind_of_question_has_words(kind):
    """No kind of question is shown by its name in the code."""
    assert kind in pages._ASKED


def test_the_ledger_s_page(book):
    """Terms, the checks, prices by analyst, every question, and from when on people may be missing."""
    made = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
    text = Reader(pages.ledger(book, made=made)).text
    assert "The record is unbroken" in text
    assert f"Head {book.head}" in text
    assert "2 March 2026, 09:00 UTC" in text
    for name in HOSTILE[:3]:
        assert name in text
    assert "ann weekly 4 66.7 %" in text.replace("\u00a0", " ")  # four times 1/200 of 3/100
    # the fifth question costs 0.0103 and, at worst, 0.01 is left
    assert "From question 5 on, people who paid much may be missing" in text
    assert "No watch is on" in text
    assert text.count("everybody") == 5
    assert text.count("perhaps not everybody") == 1


def test_the_ledger_s_page_tells_of_a_watch(tmp_path):
    """What a watch said stands on the page; and where nobody can be missing, that it was its noise."""
    rows = pa.table({"who": list(range(20))})
    path = tmp_path / "people.ledger"
    with queries.Session.open(rows, person="who", budget=filters.Zcdp(rho=1.0), ledger=path, create=True) as session:
        session.watch(people=5, epsilon=0.1)
    with Ledger.open(path) as book:
        assert "A watch is on, and has not spoken." in Reader(pages.ledger(book)).text
        book.transact(lambda turn: turn.append({"kind": "spoke"}))
        assert "by its noise alone" in Reader(pages.ledger(book)).text


def test_the_ledger_s_page_is_of_one_moment(book, monkeypatch):
    """Everything on the page is read inside one snapshot."""
    inside, seen = [], []
    snapshot = Ledger.snapshot

    def noting(self, work):
        inside.append(True)
        try:
            return snapshot(self, work)
        finally:
            inside.pop()

    for name in ("summary", "verify"):
        original = getattr(pages, name)
        monkeypatch.setattr(pages, name, lambda *a, of=original, **k: (seen.append(bool(inside)), of(*a, **k))[1])
    monkeypatch.setattr(Ledger, "snapshot", noting)
    pages.ledger(book)
    assert seen == [True, True]


def test_a_broken_ledger_is_told_first(book):
    """Where a check fails, the page begins with it."""
    text = Reader(pages.ledger(book, head="3:" + "0" * 64)).text
    assert text.index("THE CHECKS FAIL") < text.index("Terms")
    assert "NO the entry that was the last once is still there" in text


def test_a_statement_with_periods_says_of_which_rows_its_budget_is():
    """The budget of a month is for the rows of one month; without periods it is for all of a person's records."""
    one, many = told(), replace(told(), lifetime=Lifetime((("2026-01-01", 0.25),), "month", 0.25, 3.0, 9.0))
    pages_of = [" ".join(Reader(pages.statement(each, person="Ann")).text.split()) for each in (one, many)]
    for page, of in zip(pages_of, ("", " of one month"), strict=True):
        assert f"adding or removing one person, with all of their records{of}." in page

"""Ids that are spelled in several ways: one account for all spellings, the same in SQL and in Python."""

import random
import sys
import unicodedata

import pyarrow as pa
import pytest

from almoner import filters, queries
from almoner._spelling import EXACT, spelled, spelling_sql
from almoner._workspace import duckdb
from almoner.errors import ArgumentError, DataError, Unsupported
from almoner.ledger import Consumer, Ledger, Periods, Terms, verify
from almoner.queries.plans import Plan
from sparks import needs_spark, started
from terms import grouped

COMPOSED, DECOMPOSED = "Zo\u00e9", "Zoe\u0301"
IDS = [COMPOSED, DECOMPOSED, COMPOSED.upper(), DECOMPOSED.lower(), "A1", "a1", "a1 ", "stra\u00dfe", "strasse", None]
NUMBERS = {"exact": 9, "nfc": 8, "caseless": 5}
"""How many people are in the ids."""
SPELLINGS = list(NUMBERS)
LETTERS = [chr(place) for place in range(1, sys.maxunicode + 1) if not 0xD800 <= place <= 0xDFFF]


def opened(place, spelling, rows=None, **options):
    data = pa.table({"who": IDS, "hours": list(range(len(IDS)))} if rows is None else rows)
    options = {"person": "who", "budget": filters.Zcdp(rho=0.5), "create": True, "spelling": spelling, **options}
    return queries.Session.open(**grouped({"data": data, "ledger": place, **options}))


def in_sql(spelling, names):
    """What an engine makes of ids in a column."""
    with duckdb().connect() as connection:
        listed = "SELECT unnest(?) AS name, unnest(range(?)) AS place"
        sql = f"SELECT {spelling_sql(spelling, 'name')} FROM ({listed}) ORDER BY place"
        return [name for (name,) in connection.execute(sql, [names, len(names)]).fetchall()]


@pytest.mark.slow
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_python_and_sql_spell_alike_and_once(spelling):
    """Every letter of Unicode and 20,000 words of accents, cases and odd letters; again, nothing changes."""
    draw = random.Random(5)
    accents = [letter for letter in LETTERS if unicodedata.combining(letter)]
    cased = [letter for letter in LETTERS if letter.lower() != letter.upper()]
    kinds = [accents, cased, LETTERS, list("aAzZ09 -\x00\u0345\u03c2\u0130\u0131\u0307")]
    words = ["".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randint(0, 6))) for _ in range(20_000)]
    once = spelled(spelling, LETTERS + words)
    assert once == in_sql(spelling, LETTERS + words)
    assert spelled(spelling, once) == once


@pytest.mark.slow
def test_what_is_united():
    """All ways to write an accent, and letters with their capitals; and no more letters than Unicode says."""
    known = [letter for letter in LETTERS if unicodedata.category(letter) != "Cn"]
    for form in ("NFC", "NFD"):
        assert spelled("nfc", [unicodedata.normalize(form, each) for each in known]) == spelled("nfc", known)
    pairs = [(a, b) for a in known for b in {a.lower(), a.upper()} if len(b) == 1 and b != a]
    assert len(pairs) > 2500
    assert spelled("caseless", [a for a, _ in pairs]) == spelled("caseless", [b for _, b in pairs])
    plain = [each for each in known if each.casefold() == each == unicodedata.normalize("NFC", each)]
    apart = [each for each in plain if len(each.upper()) == 1 and each.upper().lower() == each and each != "i"]
    assert len(set(spelled("caseless", apart))) == len(apart)


@pytest.mark.slow
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_one_account_for_all_spellings(where, spelling):
    """As many accounts as people; each spelling is told of the one account, and a person counts once."""
    with opened(where, spelling) as session:
        session.analyst("ann").ask(queries.People(rho=1e-3), key="people")
        book = session.ledger
        accounts = {book.person(each) for each in IDS[:-1]}
        assert len(accounts) == NUMBERS[spelling]
        prices = {book.spent(each) for each in IDS[:-1]}
        assert len(prices) == 1
        assert prices != {0}
        assert book.above([0.0]) == [NUMBERS[spelling]]
        assert (book.terms.spelling, book.person("Zo\u00e9") == book.person("zoe\u0301")) == (
            spelling,
            spelling == "caseless",
        )
        assert all(each.holds for each in verify(book))
        assert all(each.holds for each in session.verify(replay=True))
    with opened(where, spelling) as again:
        assert again.ledger.terms.spelling == spelling


def test_a_person_who_leaves_is_out_in_every_spelling(where):
    """And returns in another one, to the same account; the clip is of all rows together."""
    with opened(where, "caseless") as session:
        session.retire("ZO\u00c9")
        session.analyst("ann").ask(queries.Count(clip=1, rho=1e-3), key="one")
        assert {session.ledger.spent(each) for each in IDS[:4]} == {0}
        session.restore("zoe\u0301")
        session.analyst("ann").ask(queries.Count(clip=1, rho=1e-3), key="two")
        paid = {session.ledger.spent(each) for each in IDS[:4]}
        assert paid == {session.ledger.spent("A1") // 2}
        assert all(each.holds for each in session.verify(replay=True))


def test_with_periods_and_pseudonyms(where, tmp_path):
    """Accounts of a period, and hashes, are of the one spelling."""
    months = Periods("day", every="month", first="2026-01-01", last="2026-02-01")
    rows = {"who": ["A1", "a1", COMPOSED], "day": pa.array([0, 1, 40], pa.int32()).cast(pa.date32())}
    rows["day"] = pa.array([20454, 20455, 20490], pa.int32()).cast(pa.date32())  # 2026-01-01, -02, 2026-02-06
    with opened(where, "caseless", rows, periods=months, pseudonyms=tmp_path / "key") as session:
        session.analyst("ann").ask(queries.Count(clip=3, rho=1e-3), key="one")
        book = session.ledger
        assert book.above([0.0]) == [2]
        assert book.accounts_of("A1") == ["a1 2026-01-01", "a1 2026-02-01"]
        assert book.spent("A1 2026-01-01") == book.spent("a1 2026-01-01") > 0
        assert book.spent(f"{DECOMPOSED} 2026-02-01") > 0
        assert session.statement(DECOMPOSED).lifetime.used


def test_several_tables_find_the_rows_of_one_person(path):
    """A join goes by the one spelling; two rows of a person are refused where one was declared."""
    visits = pa.table({"who": ["A1", "a1", "b2"], "hours": [1, 2, 3]})
    ages = pa.table({"who": ["a1", "B2"], "age": [30, 40]})
    tables = {"visits": visits, "people": queries.Table(ages, one_row=True)}
    budget = Terms(filters.Zcdp(rho=0.5), spelling="caseless")
    options = {"person": "who", "budget": budget, "create": True, "ledger": path}
    with queries.Session.open(tables=tables, **options) as session:
        asked = queries.Count(table="visits", where="people.age = 30", clip=2, rho=0.4)
        told = session.analyst("ann").ask(asked, key="thirty")
        assert abs(told.value - 2) < 30
        assert session.ledger.spent("A1") > 0 == session.ledger.spent("B2")
    with pytest.raises(DataError, match="one row for each person"):
        queries.Session.open(tables={"visits": queries.Table(visits, one_row=True)}, **options)


def test_trainings_take_each_person_once(path):
    """Two spellings of a person are refused in one training; the name of a training's person is the account's."""
    opened(path, "caseless").close()
    with Ledger.open(path) as book:
        with pytest.raises(ArgumentError, match="one person in this ledger"):
            Consumer(book, key="model", analyst="lab").reserve(["A1", "a1"], 10)
        Consumer(book, key="model", analyst="lab").reserve(["A1", COMPOSED], 10)
        assert book.spent("a1") == book.spent(DECOMPOSED.upper()) == 10


def test_a_ledger_keeps_its_spelling(path):
    """Another one, or none, is refused by both names, before anything is asked; a session on it follows it."""
    opened(path, "nfc").close()
    for other in (None, "caseless", "exact"):
        with pytest.raises(ArgumentError, match=f"was made for spelling='nfc', not '{other or 'exact'}'"):
            opened(path, other)
    with Ledger.open(path) as book, opened(book, None) as session:
        assert session.ledger.terms.spelling == "nfc"
        with pytest.raises(ArgumentError, match="spelling='nfc', not 'caseless'"):
            opened(book, "caseless")


def test_what_has_no_spelling(path):
    """An unknown one, and whole numbers; nothing is made."""
    with pytest.raises(ArgumentError, match="spelling='NFC'"):
        opened(path, "NFC")
    for make in (
        lambda: opened(path, "nfc", {"who": [1, 2]}),
        lambda: Ledger.open(path, Terms(filters.Zcdp(rho=1.0), person="BIGINT", spelling="nfc"), create=True),
    ):
        with pytest.raises(ArgumentError, match="whole numbers"):
            make()
    assert not path.exists()


@pytest.mark.server
@needs_spark
def test_not_in_spark(path, tmp_path):
    """Its SQL has no normal form C: refused before anything is made."""
    spark = started(tmp_path)
    try:
        frame = spark.createDataFrame([("A1", 1)], ["who", "hours"])
        with pytest.raises(Unsupported, match="spelling='nfc': not for data frames of Spark"):
            queries.Session.open(
                frame, person="who", budget=Terms(filters.Zcdp(rho=0.5), spelling="nfc"), ledger=path, create=True
            )
    finally:
        spark.stop()
    assert not path.exists()


def test_a_ledger_from_before_reads_as_exact(path):
    """Nothing is written where nothing was asked for, so that older programs read it, too."""
    opened(path, None).close()
    with Ledger.open(path) as book:
        assert book.terms.spelling == EXACT
        assert "spelling" not in book.entries()[0].public


def test_in_a_file_of_questions(tmp_path):
    """``spelling = "caseless"`` reaches the ledger."""
    (tmp_path / "rows.csv").write_text("who,hours\nA1,1\na1,2\n", encoding="utf-8")
    (tmp_path / "plan.toml").write_text(
        'data = "rows.csv"\nperson = "who"\nledger = "people.ledger"\nrho = 0.5\nanalyst = "ann"\n'
        'spelling = "caseless"\n[[questions]]\nkey = "n"\nask = "count"\nclip = 1\nrho = 0.01\n',
        encoding="utf-8",
    )
    plan = Plan.read(tmp_path / "plan.toml")
    with plan.open(create=True) as session:
        assert session.ledger.terms.spelling == "caseless"
        assert session.ledger.person("A1") == "a1"

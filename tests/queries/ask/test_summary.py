"""A first look at a table: what is asked follows from names and types alone, at one price, once."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from almoner import filters
from almoner.cli import app
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger import Terms
from almoner.queries import Keys, Mean, People, Quantiles, Several, Top
from almoner.queries._questions.kinds_of import described
from almoner.report import pages
from sessions import opened

GENERATOR = np.random.default_rng(1)
SIZE = 1200
COLUMNS = {
    "who": np.arange(SIZE) // 2,
    "age": np.clip(GENERATOR.normal(40, 12, SIZE), 17, 90),
    "paid": GENERATOR.random(SIZE) < 0.3,
    "town": GENERATOR.choice(["north", "south"], SIZE),
    'odd "x"': pa.array([None if k % 4 < 2 else float(k) for k in range(SIZE)]),
    "day": [datetime.date(2000 + k % 20, 1, 1) for k in range(SIZE)],
    "empty": pa.nulls(SIZE, pa.string()),
    "raw": pa.array([b"x"] * SIZE),
}
BUDGETS = {
    "gaussian": Terms(filters.Gaussian(epsilon=4.0, delta=5e-7), keys_delta=5e-7),
    "zcdp": filters.Zcdp(rho=0.5),
    "pure": filters.Basic(epsilon=4.0),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_summary_says_what_is_in_each_column(tmp_path, name):
    """Each kind of column has its question; all cost what there is, and again they are the same and free."""
    with opened(tmp_path / "l", pa.table(COLUMNS), budget=BUDGETS[name]) as session:
        ann = session.analyst("ann")
        whole = ann.left
        told = ann.summary(bounds={"age": (17, 90)}, clip=2)
        assert 0 <= ann.left <= 1e-5 * whole
        assert sum(each.question.price for each in told.values()) <= session.ledger.budget_units
        assert ann.summary(bounds={"age": (17, 90)}, clip=2) == told
        kinds = {key: type(each.question) for key, each in told.items()}
        assert kinds["summary"] is Several
        assert kinds["summary: age"] is kinds['summary: odd "x"'] is kinds["summary: day"] is Quantiles
        assert kinds["summary: paid"] is Mean
        assert kinds.get("summary: town") is (Keys if name == "gaussian" else None)
        assert kinds["summary, missing: empty"] is People
        assert not any("raw" in key or "who" in key for key in told)
        people, rows = told["summary"].value
        assert people == pytest.approx(600, abs=250)
        assert rows == pytest.approx(1200, abs=400)
        assert told["summary: age"].value == pytest.approx(np.quantile(COLUMNS["age"], (0.25, 0.5, 0.75)), abs=12)
        assert told['summary, missing: odd "x"'].value == pytest.approx(300, abs=250)
        with pytest.raises(BudgetExceeded):
            ann.ask(People(**{"epsilon" if name == "pure" else "rho": 0.1}), key="more")
        page = pages.answers(told, title="Summary")
        assert page.count("<table>") == len(told)
        assert "odd &quot;x&quot;" in page or "odd &#34;x&#34;" in page


def test_nothing_of_the_data_decides_what_is_asked(tmp_path):
    """Other rows with the same names and types, and no rows at all, are asked the same questions."""
    asked = []
    for place, rows in enumerate((pa.table(COLUMNS), pa.table(COLUMNS).slice(3, 90), pa.table(COLUMNS).slice(0, 0))):
        with opened(tmp_path / f"{place}", rows, budget=BUDGETS["gaussian"]) as session:
            told = session.analyst("ann").summary(price=0.05)
            asked.append({key: described(each.question) for key, each in told.items()})
            assert session.analyst("ann").left > 0.1
    assert asked[0] == asked[1] == asked[2]


def test_declared_keys_are_counted_and_what_is_wrong_is_refused_before_anything_is_charged(tmp_path):
    """Keys make a Top; columns that are not there, bounds that fall and a price above the budget cost nothing."""
    with opened(tmp_path / "l", pa.table(COLUMNS), budget=BUDGETS["zcdp"]) as session:
        ann = session.analyst("ann")
        for wrong in ({"bounds": {"nobody": (0, 1)}}, {"bounds": {"age": (9, 1)}}, {"table": "other"}):
            with pytest.raises(ArgumentError):
                ann.summary(**wrong)
        with pytest.raises(BudgetExceeded):
            ann.summary(price=100.0)
        assert ann.left == 0.5
        told = ann.summary(price=0.1, keys={"town": ["north", "south", "west"]}, name="first")
        assert isinstance(told["first: town"].question, Top)
        assert sum(each.rho for each in told.values()) <= 0.1
        assert len(told["first: town"].value) == 3
        with pytest.raises(ArgumentError, match=r"all that is left: write summary\(price=0\.1\)"):
            session.analyst("bea").summary()  # what others have asked is charged to the same people


def test_the_command_shows_it_and_writes_a_page(tmp_path):
    """With --epsilon the ledger is made; without one that is not there is refused, with the line to write."""
    table = tmp_path / "visits.csv"
    table.write_text("who,age\n" + "".join(f"{k // 2},{k % 70}\n" for k in range(400)), encoding="utf-8")
    book, page = tmp_path / "l.ledger", tmp_path / "page.html"
    words = ["query", "summary", str(table), "--person", "who", "--ledger", str(book), "--bounds", "age=0:120"]
    refused = CliRunner().invoke(app, words)
    assert refused.exit_code == 2
    assert "give --epsilon 1 to make it" in refused.stderr
    made = CliRunner().invoke(app, [*words, "--epsilon", "2", "--html", str(page)])
    assert made.exit_code == 0, made.stderr
    again = CliRunner().invoke(app, words)
    assert again.stdout == made.stdout
    assert "summary: age" in made.stdout
    assert "<svg" in page.read_text(encoding="utf-8")
    assert CliRunner().invoke(app, [*words[:-1], "age=low"]).exit_code == 2

"""Questions of docs/questions.md on the real data: each is asked as its line says, and compared with plain SQL."""

import importlib.util
from functools import partial
from pathlib import Path

import pandas
import pytest

from almoner import filters, ledger, queries
from almoner._workspace import duckdb
from almoner.queries import Answer, Keys, Quantiles, Rows, Session, Table
from almoner.queries._ask.answer import answer
from almoner.queries._ask.rows import arranged
from almoner.queries._tables.statements import read_with
from data_folders import DATA, needs
from ledgers import exact

FILE = DATA / "online_retail" / "online_retail.csv.gz"
VIEW = "SELECT *, Quantity * UnitPrice AS amount, CAST(InvoiceDate AS DATE) AS day FROM data"
KINDS = queries.Count, queries.People, queries.Sum, queries.Mean, queries.Ratio, queries.Variance, queries.Top
KINDS += queries.Covariance, queries.Regression, queries.Histogram, Quantiles, queries.Distinct, Keys
LEAST = 75
pytestmark = pytest.mark.slow


def listed():
    """The page's source as a module."""
    path = Path(__file__).parents[2] / "docs" / "questions.py"
    spec = importlib.util.spec_from_file_location("questions", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


QUESTIONS = listed()


def asked_exactly(session, asked):
    """The answer that a question would have without noise; with little where noise is drawn otherwise."""
    ann = session.analyst("ann")
    asked = ann.filled(asked)
    ann.check(asked, key="not used")
    if isinstance(asked, Keys) or asked.bin_factor() is not None or asked.choice is not None:
        return ann.ask(asked, key=f"{len(ann.answers())}")
    return answer(asked, exact(session, asked)[0], "key", floor=asked.price)


def sql_exactly(session, text, **options):
    asked = queries.Sql(text, rho=100.0, **options)
    return arranged(read_with(asked.sql, session._asking._schema), asked_exactly(session, asked))


def names(session, **price):
    """What the lines of the page may say, with a price beside."""
    spaced = {"pandas": pandas, "spaced_edges": queries.spaced_edges, "ann": session.analyst("ann")}
    kinds = {kind.__name__: partial(kind, **price) for kind in KINDS}
    spaced |= {**kinds, "ask": partial(asked_exactly, session), "sql": partial(sql_exactly, session)}
    exec(QUESTIONS.CONSTANTS, spaced)
    return spaced


def flat(found):
    """The values of an answer, in the order in which plain SQL lists them."""
    if isinstance(found, Answer):
        found = found.values
    if isinstance(found, Rows):
        places = [place for place, name in enumerate(found.columns) if not name.endswith(("_low", "_high"))]
        found = [tuple(row[place] for place in places) for row in found.rows]
    if isinstance(found, list | tuple):
        return [each for one in found for each in flat(one)]
    return [str(found) if isinstance(found, str) else found]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The session of the page, and a connection with the customers' lines as the table rows."""
    with duckdb().connect() as connection:
        read = f"read_csv('{FILE}', header = true, sample_size = -1)"
        connection.execute(f"CREATE TABLE rows AS {VIEW.replace('FROM data', f'FROM {read}')}")
        connection.execute("DELETE FROM rows WHERE CustomerID IS NULL")
        path = tmp_path_factory.mktemp("shop") / "shop.ledger"
        terms = ledger.Terms(filters.Zcdp(rho=5000.0), keys_delta=1e-6)
        table = Table(FILE, view=VIEW, check_view=False)
        given = {"person": "CustomerID", "budget": terms, "ledger": path, "create": True}
        with Session.open(table, **given) as session:
            yield session, connection


CASES = [(words, line, sql) for cases in QUESTIONS.GROUPS.values() for words, line, sql in cases]


@needs("online_retail")
@pytest.mark.parametrize(("words", "line", "sql"), CASES, ids=[words for words, _, _ in CASES])
def test_the_line_says_what_plain_sql_says(shop, words, line, sql):
    """But for the steps in which contributions are counted, and the bins of quantiles."""
    session, connection = shop
    if sql is None:  # about the budget, with prices of its own
        assert eval(line, names(session)) is not None
        return
    found = eval(line, names(session, rho=100.0))
    wanted = [each for row in connection.execute(sql).fetchall() for each in row]
    close = 0.01 if "Quantiles" in line or "median" in line else 5e-4
    assert flat(found) == [
        each if isinstance(each, str) else pytest.approx(float(each), rel=close) for each in wanted
    ], words


def test_enough_can_be_asked():
    """Of 82 questions at least 75 have a line, and the others a reason."""
    assert len(CASES) + len(QUESTIONS.CANNOT) == 82
    assert len(CASES) >= LEAST
    assert all(reason for _, reason in QUESTIONS.CANNOT)

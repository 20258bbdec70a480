"""Replay audits of questions elsewhere: tables and ledgers on a PostgreSQL server, and data frames of Spark."""

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import planted
from almoner import audit
from almoner.queries import Count, Keys, Sum
from pipelines import records, session, table
from sparks import NO_CODE, needs_spark, started

QUICK = {"asked": planted.asked, "watch": False}
NUMBERS = itertools.count()


class Visits:
    """A table on the server; ``without`` makes a view of it, and ``rows`` reads it as a pipeline of a user would."""

    def __init__(self, server, name, query="SELECT * FROM {}"):
        self.server, self.name, self._query = server, name, query

    @classmethod
    def made(cls, server, query="SELECT * FROM {}"):
        visits = cls(server, f"visits{next(NUMBERS)}", query)
        with visits.connection() as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {visits.name}(who TEXT, a DOUBLE PRECISION, b BIGINT, kind TEXT)")
            cursor.executemany(
                f"INSERT INTO {visits.name} VALUES (%s, %s, %s, %s)",
                [tuple(row.values()) for row in table(records()).to_pylist()],
            )
        return visits

    def connection(self):
        psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
        return psycopg.connect(self.server.uri(), autocommit=True)

    def without(self, person):
        view = f"visits{next(NUMBERS)}"
        with self.connection() as connection:
            connection.execute(f"CREATE VIEW {view} AS SELECT * FROM {self.name} WHERE who <> '{person}'")
        return Visits(self.server, view, self._query)

    def rows(self):
        with self.connection() as connection:
            found = connection.execute(self._query.format(self.name)).fetchall()
        return pa.table(dict(zip(["who", "a", "b", "kind"], zip(*found, strict=True), strict=True)))


def on_server(visits, people=("p0", "p1"), **options):
    """The report of a session whose rows and whose ledger are on the server."""
    asking = session(place=visits.server.place, **options)

    def pipeline(given):
        yield from asking(given.rows())

    return audit.replay(pipeline, visits, people=people, without=Visits.without, fresh=False)


def test_nothing_is_found_in_a_session_on_a_server(server):
    """Questions of every kind, keys and a watch: all that accounts on the server paid is revealed, and no more."""
    report = on_server(Visits.made(server), questions=8, people=["p0", "p1", "p2"])
    assert report.holds, str(report)
    assert report.tightest == pytest.approx(1, rel=1e-6)


SERVER = planted.QUESTIONS | {planted.a_quarter_sent: "account"}


@pytest.mark.parametrize("plant", SERVER)
def test_planted_errors_are_found_on_a_server(plant, server, monkeypatch):
    """Each by the rule that it breaks; what the server is told of a charge is one of them."""
    plant(monkeypatch)
    assert SERVER[plant] in on_server(Visits.made(server), questions=4, **QUICK).rules


def test_a_query_of_the_server_that_mixes_people_is_found(server):
    """Rows that are chosen by other people's rows, before the session sees them."""
    visits = Visits.made(server, "SELECT * FROM {} ORDER BY a DESC LIMIT 60")
    people = [f"p{number}" for number in range(4)]
    assert on_server(visits, people, questions=4, **QUICK).rules & {"account", "sensitivity"}


@pytest.fixture(scope="module")
def frame(tmp_path_factory):
    """The same rows as a data frame."""
    folder = tmp_path_factory.mktemp("spark")
    pq.write_table(table(records()), folder / "rows.parquet")
    spark = started(folder, **NO_CODE)
    yield spark.read.parquet(str(folder / "rows.parquet"))
    spark.stop()


def on_spark(frame, person="p0", **options):
    """The report of a session over a data frame, one person removed."""
    without = lambda rows, who: rows.filter(rows["who"] != who)  # noqa: E731
    return audit.replay(session(**options), frame, people=[person], without=without, fresh=False)


def kinds(told):
    """Three questions, the second chosen by the answer before."""
    more_than = 10 + (told[-1].released or [5])[0] % 17 if told else 15
    return [
        Count(clip=4, rho=0.02),
        Sum("a", 0, 40, clip=3, rho=0.02, where=f"a > {more_than}", by={"kind": ["even", "odd"]}),
        Keys("b", most=2, rho=0.02, delta=1e-7),
    ]


@pytest.mark.server
@needs_spark
def test_nothing_is_found_in_a_session_on_spark(frame):
    """Adaptive questions, keys and a watch: all that accounts in files paid is revealed, and no more."""
    report = on_spark(frame, questions=3, asked=kinds)
    assert report.holds, str(report)
    assert report.tightest == pytest.approx(1, rel=1e-6)


@pytest.mark.server
@needs_spark
@pytest.mark.parametrize("plant", [planted.no_clipping, planted.a_ninth_charged, planted.rows_as_people])
def test_planted_errors_are_found_on_spark(plant, frame, monkeypatch):
    """Each by the rule that it breaks."""
    plant(monkeypatch)
    assert planted.QUESTIONS[plant] in on_spark(frame, questions=2, **QUICK).rules

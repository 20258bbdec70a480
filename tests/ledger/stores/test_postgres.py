"""A ledger on a PostgreSQL server: several writers at once, lost connections, and no password in any message."""

import contextlib
import random
import re
import string
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import writers
from almoner import filters
from almoner._workspace import Query
from almoner.cli import app
from almoner.errors import ArgumentError, BudgetExceeded, DataError, LedgerError
from almoner.ledger import Ledger, Terms
from almoner.ledger._stores.postgres import SCHEMA, _reason, read
from almoner.queries import Count, Histogram, Mean, Session, Sum, Table
from ledgers import RHO, ask, clean, opened, people

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
PASSWORD = "hunter2hunter2"


@pytest.fixture
def where(server):
    return server.place()


def sql(server, *statements):
    """Run SQL of the server's owner's; returns the rows of the last statement."""
    with psycopg.connect(server.uri(), autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else None


def schema_of(where):
    return where.rpartition("schema=")[2]


def test_a_race_of_writers(where, tmp_path):
    """Four processes ask 240 questions at once: nobody is over budget, equal keys are charged once, all adds up."""
    stored = writers.race(where, tmp_path, own=30, common=30)
    assert len(stored) == 4 * 30 + 30
    assert writers.revealed(tmp_path).keys() == stored.keys()


def test_what_is_left_is_known_from_the_newest_entries_alone(where, monkeypatch):
    """After any number of questions of two writers the next one reads only what is new; undone entries never count."""

    def left(book):
        (units,) = book.snapshot(lambda: book.left_by_period("ann")).values()
        return units

    with opened(where) as one, opened(where) as two:
        for day in range(6):
            ask((one, two)[day % 2], f"day {day}", {"a": 10})
        assert left(one) == RHO - 60
        run, seen = one.store.run, []

        def counted(*arguments):
            rows = run(*arguments)
            seen.extend(rows)
            return rows

        ask(two, "day 6", {"a": 10})
        monkeypatch.setattr(one.store, "run", counted)
        assert left(one) == RHO - 70
        assert 0 < len(seen) < 6
        monkeypatch.undo()

        def undone(turn):
            turn.append({"kind": "limited", "scope": "analyst:ann", "units": 71})
            assert left(one) == 1
            raise ArgumentError("undone")

        with pytest.raises(ArgumentError, match="undone"):
            one.transact(undone)
        assert left(one) == left(two) == RHO - 70


def test_killed_writers_and_a_killed_server(server, where, tmp_path):
    """Writers and the server are killed at random moments: every answer was charged, none twice, none is lost."""
    recorded, revealed = writers.campaign(where, tmp_path, server, kills=12, crashes=3)
    assert recorded >= revealed > 5


def test_all_writers_see_limits_and_reservations_and_who_left(where):
    """What one session sets is in force in another that is open already, from its next question on."""
    with opened(where) as one, opened(where) as two:
        ask(one, "a", {"x": 10})
        two.limit(12, analyst="ann")
        assert ask(one, "b", {"x": 3, "y": 3}, price=3) == {"y"}
        one.reserve(RHO - 20, key="later")
        with pytest.raises(BudgetExceeded):
            ask(two, "c", {"x": 21}, analyst="zoe")
        with pytest.raises(BudgetExceeded):
            two.reserve(21, key="more")
        two.release("later")
        with pytest.raises(ArgumentError, match="reserves nothing"):
            one.release("later")
        assert ask(two, "c", {"x": 21}, analyst="zoe") == {"x"}
        two.retire("x")
        assert ask(one, "d", {"x": 1, "z": 1}, analyst="zoe") == {"z"}
        two.reserve(5, key="used")
        assert ask(one, "e", {"z": 5}, analyst="zoe", reserved="used") == {"z"}
        with pytest.raises(ArgumentError, match="reserves nothing"):
            ask(two, "f", {"z": 5}, analyst="zoe", reserved="used")
        assert clean(one)
        assert clean(two)


def test_a_transaction_that_finds_no_order_is_begun_again_with_fresh_noise(server, where):
    """A program that takes no turns changes an account in between: the question is answered on what it left behind."""
    with opened(where) as book:
        ask(book, "a", {"ann": 5, "bob": 5})
        tried = []

        def work(turn, offer):
            admission = turn.admit(offer, key="b", price=7, analyst="ann")
            if not tried:
                sql(server, f"UPDATE {schema_of(where)}.accounts SET spent = spent + 1 WHERE person = 'ann'::bytea")
            tried.append(len(people(book, admission)))
            return turn.settle(admission, {"answer": [len(tried)]})

        entry = book.answer(Query("SELECT 'ann' AS person, 7 AS units"), work)
        assert tried == [1, 1]
        assert entry.public["answer"] == [2]  # what was drawn first was never told
        assert book.spent("ann") == 5 + 1 + 7
        assert len(book.entries("answered")) == 2


def test_a_server_that_never_finds_an_order_is_an_error(where, monkeypatch):
    """After many attempts the ledger says that it is busy; nothing was charged, and it stays open."""
    from almoner.ledger._stores import postgres

    monkeypatch.setattr(postgres, "TRIES", 3)
    with opened(where) as book:

        def work(_):
            raise postgres._TryAgain

        with pytest.raises(LedgerError, match="busy"):
            book.transact(work)
        assert ask(book, "a", {"ann": 5}) == {"ann"}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_connection_lost_at_the_commit(server, where, monkeypatch, moment):
    """The verdict is unknown, and the error says so; asking again with the same key gives one answer, charged once."""
    from almoner.ledger._stores.postgres import Postgres

    rows, question = pa.table({"who": [1, 2, 3]}), Count(clip=1, sigma=20.0)
    options = {"person": "who", "budget": filters.Zcdp(rho=1.0), "create": True, "ledger": where}
    commit = Postgres._commit

    def lost(store):
        if moment == "after":
            commit(store)
        ((backend,),) = store.run("SELECT pg_backend_pid()")
        sql(server, f"SELECT pg_terminate_backend({backend}, 5000)")
        commit(store)

    with Session.open(rows, **options) as session:
        monkeypatch.setattr(Postgres, "_commit", lost)
        with pytest.raises(LedgerError, match="recorded whole or not at all: open the ledger again"):
            session.analyst("ann").ask(question, key="a")
        with pytest.raises(LedgerError, match="closed"):
            session.analyst("ann").ask(question, key="a")
    monkeypatch.undo()
    with Session.open(rows, **options) as session:
        before = session.ledger.find("a")
        assert (before is not None) == (moment == "after")
        found = session.analyst("ann").ask(question, key="a")
        assert before is None or found.released == before.public["released"]
        assert session.ledger.spent(1) == question.price
        assert all(finding.holds for finding in session.verify(replay=True))


def test_a_lost_connection_between_questions(server, where):
    """It closes the ledger with an error that says what to do."""
    with opened(where) as book:
        ((backend,),) = book.store.run("SELECT pg_backend_pid()")
        sql(server, f"SELECT pg_terminate_backend({backend}, 5000)")
        with pytest.raises(LedgerError, match="connection is lost"):
            book.spent("ann")
        with pytest.raises(LedgerError, match="closed"):
            book.spent("ann")


def test_a_commit_that_the_server_turns_into_a_rollback_is_no_commit(where):
    """A step that failed and was passed over undoes everything; nobody is told that it was written."""
    with opened(where) as book:

        def work(_):
            with contextlib.suppress(LedgerError):
                book.store.run("SELECT 1 / 0")
            return "done"

        with pytest.raises(LedgerError, match="undid"):
            book.transact(work)


def test_what_is_refused_leaves_the_ledger_open(where):
    """A question that is too dear, or data that cannot be read, undoes the transaction; the next one is answered."""
    with opened(where) as book:
        with pytest.raises(BudgetExceeded):
            ask(book, "a", {"ann": RHO + 1})
        assert ask(book, "a", {"ann": 1}) == {"ann"}
    rows = pa.table({"who": [1, 2], "given": ["1", "x"]})
    view = "SELECT who, CAST(given AS BIGINT) AS n FROM data"
    options = {"person": "who", "budget": filters.Zcdp(rho=1.0), "create": True}
    with Session.open(Table(rows, view=view), ledger=where.replace("schema=", "schema=other_"), **options) as session:
        analyst = session.analyst("ann")
        with pytest.raises(DataError, match="nothing was charged"):
            analyst.ask(Count(where="n > 0", clip=1, sigma=20.0), key="a")
        with pytest.raises(DataError, match="open the session again"):
            analyst.ask(Count(where="n > 0", clip=1, sigma=20.0), key="a")
        assert clean(session.ledger)


def test_two_that_make_the_same_ledger_at_once(server, where):
    """One of them makes it, and both open it."""
    for _ in range(5):
        place = server.place()
        with ThreadPoolExecutor(4) as pool:
            books = list(pool.map(opened, [place] * 4))
        for number, book in enumerate(books):
            with book:
                assert ask(book, f"q{number}", {"ann": 1}) == {"ann"}
        with opened(place) as book:
            assert book.spent("ann") == 4
            assert clean(book)


def test_both_kinds_of_ledger_charge_the_same_units(where, tmp_path):
    """The same questions leave the same people out and charge the same units, through limits and leaving."""
    rows = pa.table({"who": [f"p{i % 150}" for i in range(900)], "n": [i * 7 % 40 for i in range(900)]})
    questions = [
        Count(clip=4, rho=0.02),
        Sum("n", 0, 40, clip=3, rho=0.01),
        Mean("n", 0, 40, per="row", clip=2, rho=0.015, where="n > 3"),
        Histogram("n", [0, 10, 20, 30, 40], clip=6, rho=0.02),
        Count(clip=5, by={"n": list(range(40))}, rho=0.03),
    ]
    charged = []
    for place in (tmp_path / "l", where):
        with Session.open(rows, person="who", budget=filters.Zcdp(rho=0.1), ledger=place, create=True) as session:
            session.limit(0.03, purpose="ads")
            for number in range(20):
                if number == 7:
                    session.retire("p3")
                analyst = session.analyst("ann", purpose="ads" if number % 3 == 0 else None)
                analyst.ask(questions[number % 5], key=str(number), anyway=True)
            assert all(finding.holds for finding in session.verify(replay=True))
            kept = session.ledger.store.workspace.run(session.ledger.accounts.charged()).fetchall()
            charged.append(sorted(kept))
    assert charged[0] == charged[1]
    assert len(charged[0]) < 20 * 150  # somebody ran out


def test_checks_see_one_moment(where):
    """verify and statements, while another session writes, see the ledger as it was after one of its transactions."""
    with opened(where) as one, opened(where) as two:
        ask(one, "a", {"ann": 5})

        def work():
            before = one.head, one.spent("ann")
            ask(two, "b", {"ann": 7})
            return before == (one.head, one.spent("ann"))

        assert one.store.snapshot(work)
        assert one.spent("ann") == 12
        assert clean(one)


SECRET = f"postgresql://owner:{PASSWORD}@"


@pytest.mark.parametrize(
    "wrong",
    [
        f"{SECRET}localhost:1/none",
        f"{SECRET}localhost:notaport/none",
        f"{SECRET}[bad/none",
        f"{SECRET}/none?host=/nowhere&{PASSWORD}",
        f"{SECRET}/none?host=/nowhere&schema={PASSWORD}%zz",
        f"{SECRET}/none?host=/nowhere%zz{PASSWORD}",
        f"{SECRET}no.such.host.invalid/none?connect_timeout=2",
    ],
)
def test_a_password_is_in_no_message(wrong, tmp_path):
    """Neither messages, nor tracebacks, nor what the command line prints, quote a connection string's password."""
    try:
        Ledger.open(wrong, Terms(filters.Zcdp(rho=1.0), person="BIGINT"), create=True)
    except (LedgerError, ArgumentError):
        told = traceback.format_exc()
    if "schema=" not in wrong:
        assert PASSWORD not in told.replace(repr(wrong), "")
    run = CliRunner().invoke(app, ["ledger", "show", wrong])
    assert run.exit_code in (1, 2)
    assert "schema=" in wrong or PASSWORD not in run.output


def test_a_ledger_that_is_open_shows_no_password(server, where):
    """Its repr, its errors and its record are without it."""
    secret = where.replace("owner@", f"owner:{PASSWORD}@")
    with opened(secret) as book:
        ask(book, "a", {"ann": 1})
        shown = [repr(book), repr(book.store), book.store.name, *(str(entry) for entry in book.entries())]
        try:
            book.store.run("SELECT 1 / 0")
        except LedgerError:
            shown.append(traceback.format_exc())
        with pytest.raises(ArgumentError) as refused:
            opened(secret, person="BIGINT")
        shown.append(str(refused.value))
        assert not any(PASSWORD in each for each in shown)


def test_a_connection_string_is_read_to_the_last_character():
    """Schemas are taken off; strange ones are refused; passwords with question marks and ampersands stay whole."""
    assert read("postgresql://u:p@h:5/d") == ("postgresql://u:p@h:5/d", "privacy_ledger", "postgresql://h:5/d")
    given, schema, shown = read("postgresql://u:p%3F%26schema=x@h/d?sslmode=require&schema=mine")
    assert given == "postgresql://u:p%3F%26schema=x@h/d?sslmode=require"
    assert (schema, shown) == ("mine", "postgresql://h/d?schema=mine")
    for slip in ("postgresql://u:p@h/d", "u:p", "u:p@h:p", "h/u:p", "h/d?port=p"):
        with pytest.raises(ArgumentError, match="makes no sense"):
            read(f"postgresql://{slip}")
    for schema in ('x"; DROP', "pg_catalog", "", "X", "a" * 64):
        with pytest.raises(ArgumentError, match="schema"):
            read(f"postgresql://h/d?schema={schema}")


def test_servers_on_which_commits_can_be_lost_are_refused(server, where):
    """fsync off, another encoding: refused by name. synchronous_commit off: switched on for the session."""
    try:
        sql(server, "ALTER SYSTEM SET fsync = off", "SELECT pg_reload_conf()", "SELECT pg_sleep(0.3)")
        with pytest.raises(LedgerError, match="fsync is 'off'"):
            opened(where)
    finally:
        sql(server, "ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()", "SELECT pg_sleep(0.3)")
    sql(server, "CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LOCALE 'C'")
    with pytest.raises(LedgerError, match="server_encoding is 'LATIN1'"):
        opened(server.uri("latin"))
    try:
        sql(server, "ALTER ROLE owner SET synchronous_commit = off")
        with opened(where) as book:
            assert book.store.run("SHOW synchronous_commit") == [("on",)]
    finally:
        sql(server, "ALTER ROLE owner RESET synchronous_commit")


def test_the_role_of_a_service(server, where):
    """With the rights that the documentation lists, a service can answer, and cannot change what is recorded."""
    opened(where).close()
    schema = schema_of(where)
    role = f"service_{schema}"
    page = (Path(__file__).parents[3] / "docs" / "ledger" / "postgresql.md").read_text(encoding="utf-8")
    (told,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    assert told.count(SCHEMA) == 9  # the page names the schema that a ledger has where nobody names one
    told = told.replace(SCHEMA, schema).replace("service;", f"{role};")
    granted = [each for each in told.split(";") if each.strip()]
    assert len(granted) == 6
    sql(server, f"CREATE ROLE {role} LOGIN", *granted)
    own = where.replace("owner@", f"{role}@")
    with opened(own) as book:
        assert ask(book, "a", {"ann": 5}) == {"ann"}
        book.limit(7, analyst="ann")
        assert ask(book, "b", {"ann": 3, "bob": 3}) == {"bob"}
        book.retire("ann")
        assert clean(book)
        for change in (
            "UPDATE ledger.record SET public = 'x'",
            "DELETE FROM ledger.record",
            "DELETE FROM ledger.charges",
            "UPDATE ledger.charges SET units = 1",
            "DELETE FROM ledger.accounts",
            "UPDATE ledger.accounts SET person = 'zoe'",
            "DROP TABLE ledger.turn",
            "TRUNCATE ledger.shares",
        ):
            with pytest.raises(LedgerError, match="this role may not"):
                book.store.run(change)
    with pytest.raises(LedgerError, match="may this role create a schema"):
        opened(own.replace(f"schema={schema}", "schema=other"))


def test_a_server_that_refuses_a_step_says_why(server, where):
    """A role that may not write gets an error that says so."""
    opened(where).close()
    schema = schema_of(where)
    role = f"reader_{schema}"
    sql(
        server,
        f"CREATE ROLE {role} LOGIN",
        f"GRANT USAGE ON SCHEMA {schema} TO {role}",
        f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
    )
    with opened(where.replace("owner@", f"{role}@")) as book:
        assert book.spent("ann") == 0
        assert clean(book)
        with pytest.raises(LedgerError, match="this role may not do that"):
            ask(book, "a", {"ann": 5})


def test_other_versions(server, where):
    """Tables of another version are refused."""
    opened(where).close()
    sql(server, f"INSERT INTO {schema_of(where)}.ledger_format VALUES (99, '')")
    with pytest.raises(LedgerError, match="version 99"):
        opened(where)


def test_a_server_that_cannot_write(server, where):
    """When its files may not grow a question is refused whole; all before it is there, and room makes it work again."""
    rows, asked = pa.table({"who": list(range(100_000))}), Count(clip=1, rho=0.01)
    options = {"person": "who", "budget": filters.Zcdp(rho=1.0), "create": True, "ledger": where, "threads": 1}
    keys = iter(f"q{number}" for number in range(20))
    done = []
    server.crash()
    server.start(largest=17 * 2**20)
    try:
        refused = pytest.raises(LedgerError, match="recorded whole or not at all")
        with Session.open(rows, **options) as session, refused:
            done.extend(session.analyst("ann").ask(asked, key=key) for key in keys)
    finally:
        server.crash()
        server.start()
    assert done
    with Session.open(rows, **options) as session:
        assert len(session.ledger.entries("answered")) == len(done)
        session.analyst("ann").ask(asked, key=f"q{len(done)}")
        assert session.ledger.spent(7) == (len(done) + 1) * asked.price
        assert all(finding.holds for finding in session.verify())


def test_a_name_that_no_index_holds_is_told_once(where):
    """A server refuses such a name, which told an analyst, exactly and for nothing, which rows that person has."""
    name = "".join(random.Random(0).choices(string.ascii_letters + string.digits, k=9000))  # no server makes it shorter
    rows = pa.table({"who": ["ann", name], "c": ["x", "z"]})
    with Session.open(rows, person="who", budget=filters.Zcdp(rho=1.0), ledger=where, create=True) as session:
        asked = {each: Count(clip=1, rho=0.1, where=f"c = '{each}'") for each in "xzy"}
        session.analyst("zoe").ask(asked["x"], key="x")
        for each, match in (("z", "cannot be read"), ("y", "open the session again"), ("z", "open the session again")):
            with pytest.raises(DataError, match=match):
                session.analyst("zoe").ask(asked[each], key=each)
        assert session.analyst("zoe").ask(asked["x"], key="x").key == "x"
        assert session.statement("ann").rho == 0.1
    rows = pa.table({"who": ["ann", name[:1800]], "c": ["x", "z"]})
    with Session.open(rows, person="who", ledger=where) as session:
        session.limit(rho=0.5, purpose="\U0001f600" * 200)
        session.analyst("zoe", purpose="\U0001f600" * 200).ask(asked["z"], key="z")
        assert session.statement(name[:1800]).rho == 0.1


@pytest.fixture(scope="module")
def shared(server):
    """One ledger for many hostile words."""
    with opened(server.place()) as book:
        yield book


WORDS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20),
    st.sampled_from(
        ["'; DROP SCHEMA public; --", '"', "%s", "%(a)s", "?", "$1", "\\x00", "\\", "\0", "ledger.record", "{}"]
    ),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(people=st.lists(WORDS, min_size=1, max_size=4, unique=True), name=WORDS, key=WORDS)
def test_hostile_words_are_names_and_nothing_else(server, shared, people, name, key):
    """People, analysts and keys of any characters are kept to the last one, or refused; nothing is executed."""
    before = {person: shared.spent(person) for person in [*people, "somebody else"]}
    tables = (
        "SELECT count(*) FROM pg_class WHERE relnamespace NOT IN (SELECT oid FROM pg_namespace WHERE nspname ~ '^pg_')"
    )
    there = sql(server, tables)
    used = shared.find(key) if key.isprintable() else None
    if used is not None:
        return
    if key.isprintable() and name.isprintable():
        assert ask(shared, key, dict.fromkeys(people, 3), analyst=name) == set(people)
        assert shared.find(key).public["analyst"] == name
        assert {person: shared.spent(person) - before[person] for person in people} == dict.fromkeys(people, 3)
    for person in people:
        shared.retire(person)
        assert person in shared.accounts.gone()
        shared.restore(person)
    assert shared.spent("somebody else") == before["somebody else"]
    assert sql(server, tables) == there
    assert clean(shared)


PLAN = """
data = "rows.parquet"
person = "who"
ledger = "{ledger}"
rho = 1.0
analyst = "ann"

[[questions]]
key = "rows"
ask = "count"
clip = 1
sigma = 20
"""


def test_the_command_line(where, tmp_path):
    """Questions from a file, the checks of the ledger and a statement, with a server in place of a file."""
    from pyarrow import parquet

    def run(*arguments, code=0):
        result = CliRunner().invoke(app, [str(each) for each in arguments])
        assert result.exit_code == code, result.output
        return result.output

    parquet.write_table(pa.table({"who": [1, 2, 3]}), tmp_path / "rows.parquet")
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.format(ledger="people.ledger"))
    run("ledger", "create", plan, "--ledger", where)
    first = run("query", "ask", plan, "--ledger", where, "--json")
    assert not (tmp_path / "people.ledger").exists()
    plan.write_text(PLAN.format(ledger=where))
    assert run("query", "ask", plan, "--json") == first
    assert run("query", "list", plan, "--json") == first
    assert "NO" not in run("ledger", "verify", where, "--replay", plan)
    assert "rows" in run("ledger", "show", where)
    (tmp_path / "record").write_text(run("ledger", "export", where))
    assert "2 entries, unbroken" in run("ledger", "check-export", tmp_path / "record")
    run("ledger", "retire", where, "--person", "2")
    assert "1 answer used" in run("statement", where, "--person", "2")
    run("ledger", "show", where.replace("schema=", "schema=none_"), code=1)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('FATAL:  role "ann" does not exist', "does not know this role"),
        ('FATAL:  database "people" does not exist', "does not know this database"),
        ("FATAL:  the database system is starting up", "is starting up"),
        ("FATAL:  the database system is not yet accepting connections", "is starting up"),
        ("FATAL:  the database system is in recovery mode", "is starting up"),
        ("FATAL:  the database system is shutting down", "is shutting down"),
        ('FATAL:  database "too many role passwords" does not exist', "does not know this database"),
        ('connection to server at "database.role", port 5432 failed: Connection refused', "no server answers"),
        ('FATAL:  password authentication failed for user "database"', "refuses this role or its password"),
    ],
)
def test_why_there_is_no_connection_is_told_by_the_whole_phrase(said, words):
    """A server that is starting up does not "know no database", and names in quotes decide nothing."""
    assert words in _reason(f'connection to server at "127.0.0.1", port 5432 failed: {said}')

"""Pseudonyms: no name is in the ledger, everybody has the account that they would have, and no other key is taken."""

import errno
import hashlib
import hmac
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner import filters
from almoner._workspace import duckdb
from almoner.errors import ArgumentError, LedgerError
from almoner.ledger import Consumer, Ledger, backup, compact, export, restore, verify
from almoner.ledger._accounts import tables
from almoner.ledger._names import Names, key_of, new_key
from almoner.queries import Count, People, Session
from almoner.queries.plans import Plan
from ledgers import RHO, ask, clean, opened

KEY = bytes(range(32))


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def place(request, tmp_path):
    """A ledger's file, or a schema on a server."""
    return tmp_path / "people.ledger" if request.param == "file" else request.getfixturevalue("server").place()


@pytest.fixture(name="key")
def fixture_key(tmp_path):
    return tmp_path / "people.key"


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(st.characters(exclude_categories=["Cs"]), max_size=200)))
def test_hashes_are_hmac_sha256_in_both_places(name):
    """What DuckDB computes from a row, and Python from a name, are the first 128 bits of HMAC-SHA256."""
    kind = "BIGINT" if isinstance(name, int) else "VARCHAR"
    names = Names(kind, KEY)
    expected = hmac.new(KEY, str(name).encode(), hashlib.sha256).digest()[:16]
    assert names.stored(name) == expected
    assert names.token(name) == names.named(expected) == expected.hex()
    with duckdb().connect() as connection:
        ((found,),) = connection.execute(f"SELECT {names.sql(f'CAST(? AS {kind})')}", [name]).fetchall()
    assert found == expected


def test_accounts_are_those_of_a_ledger_with_names(place, tmp_path, key):
    """The same questions, trainings, updates, limits, people who leave and compaction: to the unit."""

    def lived(book):
        book.limit(RHO // 2, analyst="zoe")
        took = [ask(book, "a", {"ann": 10, "bob": RHO}), ask(book, "b", {"ann": RHO // 2, "bob": 1}, analyst="zoe")]
        book.retire("ann")
        took.append(ask(book, "c", {"ann": 1, "bøb": 2, "": 3}))
        book.restore("ann")
        hold = Consumer(book, key="model", analyst="lab").reserve(["ann", "bob", "cy"], 100)
        held = hold.units.tolist()
        hold.settle(np.minimum(hold.units, [60, 60, 60]))
        updates = Consumer(book, key="news", analyst="lab", claim="x").begin()
        updates.update(["cy", "dan"], 50, contribute=lambda most: most // 2, release=dict)
        compact(book)
        took.append(ask(book, "d", {"ann": RHO // 2 - 71, "cy": RHO}))
        assert clean(book)
        return took, held, [book.spent(name) for name in ("ann", "bob", "cy", "dan", "bøb", "")]

    with opened(tmp_path / "plain") as book:
        expected = lived(book)
    with opened(place, pseudonyms=key) as book:
        assert lived(book) == expected
        assert book.terms.pseudonyms
    with opened(place) as book:
        assert clean(book)
        assert book.spent("dan") == expected[2][3]
        assert book.budget_units == RHO


def asked_twice(place, key):
    """What is kept of people's names after two questions, the second about more people; and if all is in order."""
    rows = pa.table({"who": ["ann", "bob", "bøb", "", "cy"], "late": [False, False, False, True, True]})
    options = {"person": "who", "budget": filters.Zcdp(rho=0.01), "pseudonyms": key, "create": True}
    with Session.open(rows, ledger=place, **options) as session:
        ann = session.analyst("ann")
        ann.ask(People(sigma=20.0, where="not late"), key="1")
        ann.ask(People(sigma=20.0), key="2")
        kept = session.ledger.store.workspace.run("SELECT person, account FROM hashes_of_names").fetchall()
        right = {person: session.ledger.accounts.names.stored(person) for person in rows["who"].to_pylist()}
        charged = {name: len(session.statement(name).lines) for name in right}
        return sorted(kept) == sorted(right.items()), charged


def test_hashes_are_kept_while_a_ledger_is_open(place, key, monkeypatch):
    """Each person's once, and it is that person's; an account that is kept for two people charges nobody."""
    twice = {"ann": 2, "bob": 2, "bøb": 2, "": 1, "cy": 1}
    assert asked_twice(place, key) == (True, twice)

    def mixed_up(store, table, names):
        store.workspace.run(f"INSERT INTO {tables._HASHES} SELECT person, min(account) OVER () FROM {table}")

    monkeypatch.setattr(tables, "keep_hashes", mixed_up)
    other = key.with_name("other")
    with pytest.raises(LedgerError):
        asked_twice(other.with_suffix(".ledger"), other)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["VARCHAR", "BIGINT"])
def test_sessions_statements_and_replays(place, key, kind):
    """Of people who are named by text or by numbers: the same charges again from the data, also with somebody gone."""
    who = ["ann", "ann", "bob", "cy"] if kind == "VARCHAR" else [17, 17, -18, 2**62]
    rows = pa.table({"who": who, "n": [1.0, 2.0, 3.0, 4.0]})
    with Session.open(
        rows, person="who", budget=filters.Zcdp(rho=0.01), ledger=place, pseudonyms=key, create=True
    ) as session:
        ann = session.analyst("ann")
        ann.ask(Count(clip=2, sigma=20.0), key="1")
        session.retire(who[3])
        ann.ask(People(sigma=20.0), key="2")
        ann.ask(Count(clip=2, sigma=20.0, pace=1, anyway=True), key="3")
        assert [line.key for line in session.statement(who[3]).lines] == ["1"]
        assert all(finding.holds for finding in session.verify(replay=True))
        session.ledger.store.run("UPDATE ledger.charges SET units = units - 1 WHERE question = 1")
        assert not all(finding.holds for finding in session.verify(replay=True))


def test_no_name_is_in_the_ledger(tmp_path, key):
    """Neither in its file, nor in the log beside it, nor in private parts of the record, nor in what is exported."""
    path, name = tmp_path / "people.ledger", "Zebedee-Quux"
    plain = tmp_path / "plain.ledger"
    for place, options in ((path, {"pseudonyms": key}), (plain, {})):
        with opened(place, **options) as book:
            for number in range(3):
                ask(book, f"{number}", {name: 5, "ann": 1})
            book.limit(RHO, analyst="ann")
            book.retire(name)
            book.restore(name)
            Consumer(book, key="model", analyst="lab").reserve([name], 10)
            contents = b"".join(each.read_bytes() for each in tmp_path.glob(f"{place.name}*") if each.is_file())
            told = "".join(export(book)) + str([row.private for row in book.rows()])
            found = name.encode() in contents or name in told
            assert found == (place == plain)
            assert KEY.hex() not in told
            assert place == plain or key.read_text().strip() not in told
    assert name.encode() not in path.read_bytes()
    assert bytes.fromhex(key.read_text()) not in path.read_bytes()
    assert key.read_text().strip().encode() not in path.read_bytes()


def test_the_server_gets_no_name(server, key):
    """Its tables hold hashes alone; the temporary ones too, as its log would show."""
    place = server.place()
    with opened(place, pseudonyms=key) as book:
        sent = []
        original = book.store.send
        book.store.send = lambda table, blocks: original(table, [sent.append(block) or block for block in blocks])
        ask(book, "a", {"Zebedee-Quux": 5})
        assert sent
        assert not any("Zebedee" in block or b"Zebedee".hex() in block.lower() for block in sent)
        ((stored,),) = book.store.run("SELECT person FROM ledger.charges")
        assert bytes(stored) == Names("VARCHAR", bytes.fromhex(key.read_text())).stored("Zebedee-Quux")


def test_other_keys_are_refused(place, tmp_path, key):
    """With another key everybody would have a fresh budget: it is refused, as a missing one is; a moved one is not."""
    with opened(place, pseudonyms=key) as book:
        ask(book, "a", {"ann": 5})
    assert key.stat().st_mode & 0o777 == 0o600
    assert len(bytes.fromhex(key.read_text())) == 32
    other = tmp_path / "other.key"
    other.write_text("ab" * 32)
    with pytest.raises(ArgumentError, match="another key"):
        opened(place, pseudonyms=other)
    broken = tmp_path / "broken.key"
    for contents in ("", "ab" * 31, "zz" * 32, "ab" * 33):
        broken.write_text(contents)
        with pytest.raises(LedgerError, match="holds no key"):
            opened(place, pseudonyms=broken)
    moved = key.rename(tmp_path / "moved.key")
    with pytest.raises(LedgerError, match="missing") as refused:
        opened(place)
    assert refused.value.reason == "missing"
    assert not key.exists()  # no new one is made for a ledger that has one
    with pytest.raises(LedgerError, match="missing"):
        opened(place, pseudonyms=key)
    assert not key.exists()
    with opened(place, pseudonyms=moved) as book:
        assert book.spent("ann") == 5
    key.write_text(other.read_text())  # another key where the right one was
    with pytest.raises(ArgumentError, match="another key"):
        opened(place)


def test_ledgers_that_have_none(tmp_path, key):
    """A ledger with names is not opened as if it had pseudonyms; a key that is there is taken for a new one."""
    opened(tmp_path / "plain").close()
    with pytest.raises(ArgumentError, match="names people as the data do"):
        opened(tmp_path / "plain", pseudonyms=key)
    assert not key.exists()
    opened(tmp_path / "first", pseudonyms=key).close()
    before = key.read_text()
    opened(tmp_path / "second", pseudonyms=key).close()
    assert key.read_text() == before
    with pytest.raises(LedgerError, match="cannot be made"):
        opened(tmp_path / "third", pseudonyms=tmp_path / "nowhere" / "key")
    assert not Ledger.exists(tmp_path / "third")


def test_a_backup_needs_the_key_too(tmp_path, key):
    """It is restored with the key where the record says, and goes on with the same accounts."""
    with opened(tmp_path / "l", pseudonyms=key) as book:
        ask(book, "a", {"ann": 5})
        backup(book, tmp_path / "copy")
    (tmp_path / "l").unlink()
    restore(tmp_path / "copy", tmp_path / "l")
    with opened(tmp_path / "l") as book:
        assert book.spent("ann") == 5
        assert all(finding.holds for finding in verify(book))


def test_two_spellings_are_two_hashes_as_they_are_two_names(tmp_path, key):
    """The hash is of the name as the ledger would have kept it: 17 and "17" are one person, "A" and "a" are two."""
    with opened(tmp_path / "n", person="BIGINT", pseudonyms=key) as book:
        book.retire("17")
        with pytest.raises(ArgumentError, match="one person in this ledger"):
            Consumer(book, key="m", analyst="lab").reserve([17, "17"], 5)
        Consumer(book, key="m", analyst="lab").reserve(["17", 18], 5)
        assert (book.spent(17), book.spent("18")) == (0, 5)
    with opened(tmp_path / "t", pseudonyms=key) as book:
        ask(book, "a", {"A": 5, "a": 6, "a ": 7})
        assert [book.spent(name) for name in ("A", "a", "a ", "b")] == [5, 6, 7, 0]


def test_a_file_of_questions_says_it(tmp_path):
    """pseudonyms = makes the key beside the file; looking at what would be asked makes none."""
    (tmp_path / "visits.csv").write_text("who,n\nann,1\nbob,2\n")
    (tmp_path / "plan.toml").write_text(
        'data = "visits.csv"\nperson = "who"\nledger = "l"\nrho = 1.0\nanalyst = "ann"\npseudonyms = "people.key"\n'
        '[[questions]]\nkey = "rows"\nask = "count"\nclip = 1\nsigma = 20\n'
    )
    plan = Plan.read(tmp_path / "plan.toml")
    with plan.look() as session:
        plan.quote(session)
    assert not (tmp_path / "people.key").exists()
    for _ in range(2):
        with plan.open(create=True) as session:
            plan.ask(session)
            assert session.ledger.terms.pseudonyms
    assert b"bob" not in (tmp_path / "l").read_bytes()


def test_a_key_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    """A crash while it is written leaves no half of a key under its name; the next try makes one."""
    place = tmp_path / "key"

    def killed(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(LedgerError, match="cannot be made: No space"):
            new_key(place)
    assert list(tmp_path.iterdir()) == []
    key = new_key(place)
    assert new_key(place) == key
    assert list(tmp_path.iterdir()) == [place]
    assert place.stat().st_mode & 0o777 == 0o600


def test_a_key_that_is_missing_and_one_that_cannot_be_read(tmp_path):
    """Two messages, each with what to do."""
    with pytest.raises(LedgerError, match=r"is missing.*say where: pseudonyms="):
        key_of(tmp_path / "key")
    (tmp_path / "folder").mkdir()
    with pytest.raises(LedgerError, match=r"cannot be read: .*right to read it; or, if it is elsewhere, .*pseudonyms="):
        key_of(tmp_path / "folder")


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_key_without_hard_links(tmp_path, monkeypatch, code):
    """On such a file system the key is made all the same, for its owner alone, and never replaces another one."""

    def none(*_):
        raise OSError(code, "Operation not permitted")

    place = tmp_path / "key"
    monkeypatch.setattr(os, "link", none)
    key = new_key(place)
    assert new_key(place) == key == key_of(place)
    assert list(tmp_path.iterdir()) == [place]
    assert place.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(type(place), "exists", lambda _: False)  # another process makes it right after this looked
    assert new_key(place) == key


def test_half_a_key_is_refused(tmp_path, monkeypatch):
    """What a crash leaves under the name, where there are no hard links, is no key: no ledger is made with it."""

    def none(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    place = tmp_path / "key"
    monkeypatch.setattr(os, "link", none)
    new_key(place)
    place.write_text(place.read_text()[:63])
    with pytest.raises(LedgerError, match="holds no key"):
        opened(tmp_path / "people.ledger", pseudonyms=place)
    assert not (tmp_path / "people.ledger").exists()

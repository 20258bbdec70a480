"""Updates of a stream on a ledger: charged in one transaction, numbered, released once, whoever else writes."""

import json
from threading import Thread

import numpy as np
import pytest

from almoner.errors import ArgumentError, BudgetExceeded, LedgerError
from almoner.ledger import Consumer, Ledger, verify
from ledgers import RHO, ask, clean, opened

PEOPLE = ["ann", "bob", "cy"]


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def place(request, tmp_path):
    """A ledger's file, or a schema on a server."""
    return tmp_path / "people.ledger" if request.param == "file" else request.getfixturevalue("server").place()


def begun(book, *, key="news", claim="secret", number=0, **options):
    return Consumer(book, key=key, analyst="lab", claim=claim, **options).begin(number)


def streams(book):
    return [each for each in book.consumers.values() if each.kind == "stream"]


def update(updates, wanted, *, price=RHO // 4, pace=1, people=PEOPLE, between=None, told=None):
    """Each person pays what is wanted, or what is left; what each could pay at most is returned."""
    seen = []

    def contribute(most):
        seen.append(most.tolist())
        if between is not None:
            between(len(seen))
        return np.minimum(np.array(wanted, dtype=np.int64), most)

    def release():
        if told is not None:
            told.append(len(seen))
        return {"released": "abc"}

    entry = updates.update(people, price, pace=pace, contribute=contribute, release=release)
    return entry, seen


def spent(book, people=PEOPLE):
    return [book.spent(person) for person in people]


def test_each_update_charges_those_who_are_in_it_what_they_pay(place):
    """At most the price, at most what is left, of questions too; nobody else; the record counts the updates."""
    with opened(place) as book:
        ask(book, "before", {"ann": RHO, "bob": RHO - 30})
        stream = begun(book, described={"sigma": 2.0})
        entry, seen = update(stream, [50, 50, 20], price=40)
        assert seen == [[0, 30, 40]]
        assert spent(book) == [RHO, RHO, 20]
        assert (entry.kind, entry.public["update"], entry.public["stream"], entry.public["price"]) == (
            "update", 1, "news", 40,
        )  # fmt: skip
        update(stream, [7], people=["dan"])
        assert spent(book, [*PEOPLE, "dan"]) == [RHO, RHO, 20, 7]
        update(stream, [], people=[])
        (listed,) = streams(book)
        assert (listed.updates, listed.described, listed.analyst) == (3, {"sigma": 2.0}, "lab")
        assert book.consumers["news"].last["update"] == 3
        assert "other" not in book.consumers
        assert [units for _, units in book.charges("cy")] == [20]
        assert ask(book, "after", {"cy": RHO - 20, "dan": RHO - 6}) == {"cy"}
        assert clean(book)
    with opened(place) as book:
        assert clean(book)
        assert streams(book)[0].updates == 3


def test_limits_retirement_and_pace(place):
    """A limit of the analyst holds, also one that is set later; who left pays nothing; one part of what is left."""
    with opened(place) as book:
        stream = begun(book)
        assert update(stream, [RHO] * 3, price=RHO, pace=4)[1] == [[RHO // 4] * 3]
        assert update(stream, [RHO] * 3, price=RHO, pace=4)[1] == [[3 * RHO // 16] * 3]
        book.limit(RHO // 2, analyst="lab")
        book.retire("cy")
        assert update(stream, [RHO] * 3)[1] == [[RHO // 16, RHO // 16, 0]]
        assert spent(book) == [RHO // 2, RHO // 2, 7 * RHO // 16]
        book.restore("cy")
        assert update(stream, [RHO] * 3)[1] == [[0, 0, RHO // 16]]
        assert min(book.left_by_period("lab").values()) == 0
        assert clean(book)
        book.reserve(RHO // 2, key="set aside")
        book.reserve(RHO // 2, key="set aside too")
        with pytest.raises(BudgetExceeded):
            update(stream, [1] * 3)
        assert clean(book)


def test_what_another_writer_charged_meanwhile_is_not_spent_twice(place):
    """A question between what a person has left and the charge: the update is computed again, on what is left then;
    where questions keep coming it is computed in their way. Nothing of the first attempts is released."""
    with opened(place) as book:
        told = []
        stream = begun(book)
        entry, seen = update(
            stream,
            [RHO] * 3,
            price=RHO,
            between=lambda time: time <= 2 and ask(book, f"q{time}", {"ann": RHO // 4}),
            told=told,
        )
        assert seen == [[RHO] * 3, [3 * RHO // 4, RHO, RHO], [RHO // 2, RHO, RHO]]
        assert told == [3]
        assert spent(book) == [RHO] * 3
        assert entry.number == 4
        assert clean(book)


def test_a_retry_depends_on_no_person(place):
    """An entry that takes nothing from anybody leads to the same second attempt as one that does: whether others
    contribute what they had left before or after it says nothing of who could not pay."""
    with opened(place) as book:
        stream = begun(book)
        _, seen = update(stream, [5] * 3, between=lambda time: time == 1 and book.limit(RHO, analyst="zoe"))
        assert len(seen) == 2
        _, seen = update(stream, [5] * 3)
        assert len(seen) == 1


def test_a_number_is_released_once(place):
    """Two processes of one stream: the second release of a number is refused, and charges nobody."""
    with opened(place) as book:
        first, second = begun(book), begun(book)
        update(first, [1] * 3)
        told = []
        with pytest.raises(ArgumentError, match="went on elsewhere"):
            update(second, [1] * 3, told=told)
        assert not told
        assert spent(book) == [1] * 3
        update(first, [1] * 3)
        for number in (0, 1, 3):
            with pytest.raises(ArgumentError, match="made 2 updates"):
                begun(book, number=number)
        update(begun(book, number=2), [1] * 3)
        assert spent(book) == [3] * 3
        assert clean(book)


def test_names_are_of_one_stream(place):
    """A name that a question, a training or another stream has is refused; so is a ledger that does not know it."""
    with opened(place) as book:
        ask(book, "question", {"ann": 1})
        stream = begun(book)
        for wrong, match in (
            ({"key": "question"}, "used for a question"),
            ({"claim": "another"}, "another stream"),
            ({"key": "other", "number": 3}, "knows of no such stream"),
        ):
            with pytest.raises(ArgumentError, match=match):
                begun(book, **wrong)
        with pytest.raises(ArgumentError, match="another stream"):
            Consumer(book, key="news", analyst="zoe", claim="secret").begin()
        for inside in (lambda _: update(stream, [1] * 3), lambda _: begun(book, key="other"), lambda _: begun(book)):
            with pytest.raises(ArgumentError, match="no stream goes on while a transaction is open"):
                book.transact(inside)
        assert [each.key for each in streams(book)] == ["news"]
        with pytest.raises(ArgumentError, match="one person in this ledger"):
            update(stream, [1, 1], people=["ann", "ann"])
        for wrong in ([-1, 0, 0], [RHO, 0, 0], [1, 1]):
            with pytest.raises(ArgumentError, match="whole numbers from 0"):
                stream.update(
                    PEOPLE, 10, contribute=lambda _, wrong=wrong: np.array(wrong, dtype=np.int64), release=dict
                )
        assert spent(book) == [1, 0, 0]
        assert clean(book)


def test_numbers_that_spell_one_person_in_two_ways(tmp_path):
    """17 and "17" are one person in a ledger of whole numbers, and cannot come twice in one update."""
    with opened(tmp_path / "n.ledger", person="BIGINT") as book:
        with pytest.raises(ArgumentError, match="one person in this ledger"):
            update(begun(book), [1, 1], people=[17, "17"])
        update(begun(book), [1], people=["17"])
        assert book.spent(17) == 1


def test_an_error_before_the_end_leaves_nothing(place):
    """Where the release fails, or what computes it, nobody is charged and the number is free."""
    with opened(place) as book:
        stream = begun(book)

        def fails(*_):
            raise ArgumentError("no")

        zero = {"contribute": lambda most: most, "release": dict}
        for broken in ({"contribute": fails}, {"release": fails}):
            with pytest.raises(ArgumentError, match="no"):
                stream.update(PEOPLE, 10, **zero | broken)
        assert spent(book) == [0] * 3
        update(stream, [1] * 3)
        assert book.consumers["news"].last["update"] == 1


def test_verify_finds_updates_that_are_missing_or_of_another(tmp_path):
    """An update that is left out, counted twice or filed under another analyst is found."""
    path = tmp_path / "people.ledger"
    with opened(path) as book:
        stream = begun(book)
        for _ in range(3):
            update(stream, [1] * 3)
    for change in ({"update": 2}, {"update": 5}, {"analyst": "zoe"}):
        with opened(path) as book:
            ((number, public),) = book.store.run(
                "SELECT number, public FROM ledger.record WHERE kind = 'update' ORDER BY number DESC LIMIT 1"
            )
            book.store.run(
                "UPDATE ledger.record SET public = ? WHERE number = ?",
                [json.dumps(json.loads(public) | change), number],
            )
            findings = {finding.what: finding.holds for finding in verify(book)}
            assert not findings["the updates of every stream follow one another, under its own analyst and purpose"]
            book.store.run("UPDATE ledger.record SET public = ? WHERE number = ?", [public, number])
            assert clean(book)


@pytest.mark.slow
def test_two_writers_of_a_server_share_one_budget(server):
    """A stream and questions at the same time, from two connections: nobody is above the budget, all adds up."""
    place = server.place()
    opened(place).close()

    def asking():
        with opened(place) as book:
            for number in range(12):
                try:
                    ask(book, f"q{number}", dict.fromkeys(PEOPLE, RHO // 16))
                except (BudgetExceeded, LedgerError):
                    return

    thread = Thread(target=asking)
    with opened(place) as book:
        stream = begun(book)
        thread.start()
        for _ in range(12):
            update(stream, [RHO // 16] * 3, price=RHO // 16)
        thread.join()
        assert clean(book)
        assert max(spent(book)) == RHO


def test_a_ledger_of_files_and_a_closed_one_are_refused(tmp_path):
    """A stream on a closed ledger is refused, and the ledger stays."""
    book = opened(tmp_path / "people.ledger")
    stream = begun(book)
    book.close()
    with pytest.raises(LedgerError):
        update(stream, [1] * 3)
    assert Ledger.exists(tmp_path / "people.ledger")

"""Budget that a training holds on a ledger: reserved at once, settled once, never more than what is left."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from almoner import filters
from almoner.errors import ArgumentError, BudgetExceeded, LedgerError
from almoner.ledger import Consumer, Ledger, Terms, write_off
from almoner.queries import statement
from ledgers import RHO, ask, clean, opened

PEOPLE = ["ann", "bob", "cy"]


def take(book, key="model", units=RHO // 2, people=PEOPLE, **options):
    of_claim = {name: options.pop(name) for name in ("claim", "earlier", "purpose") if name in options}
    return Consumer(book, key=key, analyst="lab", **of_claim).reserve(people, units, **options)


def units(*values):
    return np.array(values, dtype=np.int64)


@pytest.fixture(params=["file", pytest.param("server", marks=pytest.mark.server)])
def place(request, tmp_path):
    """A ledger's file, or a schema on a server."""
    return tmp_path / "people.ledger" if request.param == "file" else request.getfixturevalue("server").place()


def test_everybody_is_held_for_what_is_left_and_pays_what_it_cost(place):
    """What is reserved is the least of the units and of what is left; settled, the rest is there again."""
    with opened(place) as book:
        ask(book, "before", {"ann": RHO, "bob": 3 * RHO // 4})
        hold = take(book)
        assert hold.units.tolist() == [0, RHO // 4, RHO // 2]
        assert ask(book, "meanwhile", {"bob": 1, "cy": RHO // 2, "dan": 1}) == {"cy", "dan"}
        hold.settle(units(0, 10, 20))
        assert [book.spent(person) for person in PEOPLE] == [RHO, 3 * RHO // 4 + 10, RHO // 2 + 20]
        assert ask(book, "after", {"bob": RHO // 4 - 10, "cy": RHO // 2 - 19}) == {"bob"}
        assert [(e.kind, charged) for e, charged in book.charges("cy")] == [("training", 20), ("answered", RHO // 2)]
        assert clean(book)
        assert [each.state for each in book.consumers.values()] == ["settled"]
    with opened(place) as book:
        assert clean(book)


def test_limits_count_trainings_and_give_back(place):
    """A limit of an analyst holds over trainings and questions, also where it is set while a training is open."""
    with opened(place) as book:
        book.limit(100, analyst="lab")
        hold = take(book, people=["ann"])
        assert hold.units.tolist() == [100]
        hold.settle(units(60))
        assert ask(book, "a", {"ann": 40}, analyst="lab") == {"ann"}
        book.limit(1000, purpose="care")
        second = take(book, key="second", people=["bob"], units=70, purpose="care")
        assert second.units.tolist() == [70]
        second.settle(units(0))
        with pytest.raises(BudgetExceeded):
            ask(book, "b", {"bob": 101}, analyst="lab", purpose="care")
        assert ask(book, "c", {"bob": 100}, analyst="lab", purpose="care") == {"bob"}
        third = Consumer(book, key="third", analyst="zoe").reserve(["dan"], 50)
        book.limit(60, analyst="zoe")
        assert ask(book, "d", {"dan": 20}, analyst="zoe") == set()
        third.settle(units(30))
        assert ask(book, "e", {"dan": 30}, analyst="zoe") == {"dan"}
        assert clean(book)


def test_a_training_goes_on_after_each_of_three_crashes(place):
    """Only the newest claim is in force: it may go on however many there were before, and no earlier one may."""
    claims: list[str] = []
    with opened(place) as book:
        holds = []
        for claim in ("one", "two", "three"):
            holds.append(take(book, claim=claim, earlier=claims))
            holds[-1].check()
            claims.append(claim)
        for hold in holds[:2]:
            with pytest.raises(LedgerError, match="elsewhere"):
                hold.check()
        holds[2].settle(units(1, 2, 3))
        assert [book.spent(person) for person in PEOPLE] == [1, 2, 3]
        assert clean(book)


def test_a_killed_training_stays_reserved_until_it_is_written_off(place):
    """Whatever happens to the process: nothing comes back but by the one claim that is in force."""
    with opened(place) as book:
        first = take(book, claim="one")
        assert clean(book)
    with opened(place) as book:
        assert book.spent("ann") == RHO // 2
        with pytest.raises(ArgumentError, match="elsewhere"):
            take(book)
        with pytest.raises(ArgumentError, match="elsewhere"):
            take(book, claim="two", earlier=["none of it"])
        second = take(book, claim="two", earlier=["one"])
        assert second.units.tolist() == [RHO // 2] * 3
        with pytest.raises(ArgumentError, match="elsewhere"):  # a copy of the checkpoint, which knows only the first
            take(book, claim="three", earlier=["one"])
        first._ledger = book
        with pytest.raises(LedgerError, match="elsewhere"):
            first.check()
        with pytest.raises(ArgumentError, match="elsewhere"):
            first.settle(units(0, 0, 0))
        second.check()
        write_off(book, "model")
        for refused in (lambda: second.settle(units(0, 0, 0)), lambda: write_off(book, "model")):
            with pytest.raises(ArgumentError):
                refused()
        with pytest.raises(LedgerError, match="written off"):
            second.check()
        with pytest.raises(ArgumentError, match="written off"):
            take(book, earlier=["two"])
        assert book.spent("ann") == RHO // 2
        assert [each.state for each in book.consumers.values()] == ["written off"]
        assert clean(book)


def test_a_training_is_settled_once_and_for_no_more_than_it_had(place):
    """A second settlement, more than was reserved, and other people's units are refused; nothing comes back."""
    with opened(place) as book:
        hold = take(book, units=10)
        for wrong in (units(11, 0, 0), units(-1, 0, 0), units(1, 1), np.array([1.0, 1.0, 1.0])):
            with pytest.raises(ArgumentError, match="units"):
                hold.settle(wrong)
        hold.settle(units(1, 2, 3))
        with pytest.raises(LedgerError, match="settled"):
            hold.check()
        with pytest.raises(ArgumentError):
            hold.settle(units(0, 0, 0))
        with pytest.raises(ArgumentError, match="settled"):
            take(book, units=10, earlier=[hold.claim])
        assert [book.spent(person) for person in PEOPLE] == [1, 2, 3]
        assert clean(book)


def test_what_verify_finds(tmp_path):
    """More given back than was reserved, a second refund, and a forged one are found."""
    changes = (
        "UPDATE ledger.charges SET units = -11 WHERE question = 2 AND person = 'ann'",
        "INSERT INTO ledger.charges VALUES (1, 'dan', -5)",
        "UPDATE ledger.charges SET units = units + 1 WHERE question = 2",
        "UPDATE ledger.accounts SET spent = 0",
    )
    for number, change in enumerate(changes):
        with opened(tmp_path / f"{number}.ledger") as book:
            take(book, units=10).settle(units(1, 2, 3))
            assert clean(book)
            book.store.run(change)
            assert not clean(book)


def test_one_person_under_two_spellings_is_refused_where_they_are_one(tmp_path):
    """A ledger of whole numbers takes '17' and 17 for one person: both at once would be reserved once, spent twice."""
    with Ledger.open(tmp_path / "l", Terms(filters.Zcdp(rho=1.0), person="BIGINT"), create=True) as book:
        with pytest.raises(ArgumentError, match="two of them are one person"):
            take(book, people=[17, "17", 18])
        assert take(book, people=["17", np.int64(18)], units=5).units.tolist() == [5, 5]
        assert book.spent(17) == book.spent("18") == 5


def test_retired_people_and_public_reservations_are_not_touched(tmp_path):
    """Who has left is held for nothing; what is reserved for a question stays there for it."""
    with opened(tmp_path / "l") as book:
        book.reserve(RHO // 4, key="later")
        book.retire("bob")
        assert take(book, units=RHO).units.tolist() == [3 * RHO // 4, 0, 3 * RHO // 4]
        assert ask(book, "now", {"ann": RHO // 4}, reserved="later") == {"ann"}
        book.restore("bob")
        assert book.spent("bob") == 0
        assert clean(book)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 60), st.integers(0, 100), st.booleans()), max_size=14))
def test_nobody_is_ever_above_the_budget(tmp_path_factory, moves):
    """Any order of reserving, asking, settling and giving up keeps everybody within the budget, in exact arithmetic."""
    budget = 100
    rho = Fraction(budget, RHO)
    truth = dict.fromkeys(PEOPLE, 0)  # what was really released about each person
    with opened(tmp_path_factory.mktemp("l") / "l", budget=filters.Zcdp(rho=float(rho))) as book:
        holds = []
        for number, (move, amount, part, off) in enumerate(moves):
            if move in (0, 1):
                hold = take(book, key=str(number), units=amount)
                used = hold.units * part // 100
                for person, each in zip(PEOPLE, used.tolist(), strict=True):
                    truth[person] += each
                holds.append((hold, used, off))
            elif move == 2:
                for person in ask(book, str(number), dict.fromkeys(PEOPLE, amount)):
                    truth[person] += amount
            elif holds:
                hold, used, off = holds.pop(amount % len(holds))
                write_off(book, hold.key) if off else hold.settle(used)
            spent = [book.spent(person) for person in PEOPLE]
            assert all(truth[person] <= each <= budget for person, each in zip(PEOPLE, spent, strict=True))
        assert clean(book)


def test_nothing_of_a_training_is_done_inside_a_transaction(path):
    """What was reserved, renewed or settled could be undone with it: each is refused, and then goes on."""
    with opened(path) as book:
        hold = take(book, units=10, people=["ann"])
        head = book.head
        for inside, match in (
            (
                lambda _: take(book, key="other", units=10, people=["ann"]),
                "no training begins or ends",
            ),
            (lambda _: hold.renew("next"), "no round of a training is released"),
            (lambda _: hold.settle(np.array([3])), "no training begins or ends"),
        ):
            with pytest.raises(ArgumentError, match=match):
                book.transact(inside)
        assert book.head == head
        hold.renew("next")
        hold.settle(np.array([3]))
        assert book.spent("ann") == 3
        assert clean(book)


def test_trainings_and_updates_say_their_data_set(path):
    """One that is not declared is refused, and nothing is reserved; the record and statements say it."""
    with opened(path) as book:
        model = Consumer(book, key="model", analyst="lab", dataset="orders")
        stream = Consumer(book, key="news", analyst="lab", dataset="orders")
        for refused in (lambda: model.reserve(["ann"], 10), stream.begin):
            with pytest.raises(ArgumentError, match="'orders' is not declared"):
                refused()
        assert book.head.startswith("0:")
        number = book.dataset("orders", person="customer").number
        model.reserve(["ann"], 10).settle(np.array([3]))
        stream.begin().update(["ann"], 5, contribute=lambda most: most, release=dict)
        said = [entry.public for entry in book.entries("training", "update")]
        assert [(each["dataset"], each["declared"]) for each in said] == [("orders", {"orders": number})] * 2
        assert [line.dataset for line in statement(book, "ann").lines] == ["orders"] * 2
        assert clean(book)

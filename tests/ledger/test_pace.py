"""Shrinking to what is left: in exact arithmetic, by enumeration, and on ledgers in a file and on a server."""

import itertools
import math
import random
from fractions import Fraction

import pytest

from almoner._workspace import Query, Workspace
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger import Watch
from almoner.ledger._payment import Payment
from almoner.ledger._transaction import Transaction
from ledgers import RHO, clean, opened

LOG = math.log(1.5)  # what one whole step costs under the noise below, epsilon
LARGEST = 12


def pays(payment, units, left):
    """What a person pays, in whole numbers; None for a person who is left out."""
    if payment.pace is None:
        return units + payment.fixed if units + payment.fixed <= left else None
    allowed = math.floor(Fraction(max(0, left)) / payment.pace)
    return None if allowed <= payment.fixed else payment.fixed + min(units, allowed - payment.fixed)


@pytest.mark.parametrize("linear", [False, True])
def test_the_sql_of_a_payment_is_whole_number_arithmetic(tmp_path, linear):
    """Units to the last one, and a factor under which a contribution costs no more than is paid for it."""
    workspace = Workspace(tmp_path / "spill")
    amounts = (1, 5, 6, 10**13 + 7, 10**18), (-4, 0, 1, 5, 9, 53, 10**15 + 1, 2**62)
    listed = ", ".join(f"({units}::BIGINT, {left}::BIGINT, 1::DOUBLE)" for units, left in itertools.product(*amounts))
    for pace, fixed in itertools.product((None, 1, 2, 7, 53), (0, 3, 10**12)):
        payment = Payment(pace, fixed, linear)
        terms = payment.sql("c.has - 0", divide="//")
        columns = f"c.units, c.has, {terms.units}, {terms.factor}, {terms.taken}"
        rows = workspace.run(f"SELECT {columns} FROM (VALUES {listed}) c(units, has, factor)").fetchall()
        for units, left, charged, factor, taken in rows:
            assert taken == (pays(payment, units, left) is not None)
            if taken:
                assert charged == pays(payment, units, left)
                assert factor <= 1
                assert (factor == 1) == (charged - fixed == units)
                assert units * Fraction(factor) ** (1 if linear else 2) <= charged - fixed
                assert charged <= payment.allowed(left)
    workspace.close()


def paths(budget, questions, contributions):
    """Every path of one person: for each question the pair (left before it, units charged)."""
    for wanted in itertools.product(contributions, repeat=len(questions)):
        spent, steps = 0, []
        for (payment, price), units in zip(questions, wanted, strict=True):
            charged = pays(payment, min(units, price), budget - spent) or 0
            steps.append((budget - spent, charged))
            spent += charged
        yield spent, steps


def test_the_public_bound_holds_on_every_path_and_is_reached():
    """Nobody is charged more or has less left than the floor; after paced questions some path was charged just that."""
    kinds = [(Payment(None), 4), (Payment(1), 5), (Payment(2), 4), (Payment(2), 7), (Payment(3), 7)]
    for budget, questions in itertools.product((9, 12), itertools.product(kinds, repeat=3)):
        bound, reached = 0, []
        bounds = [0]
        for payment, price in questions:
            bound = payment.after(bound, budget, price)
            bounds.append(bound)
        for spent, steps in paths(budget, questions, (0, 1, 2, 4, 5, 7)):
            assert spent <= min(budget, bound)
            for (left, charged), before, (payment, price) in zip(steps, bounds, questions, strict=False):
                assert budget - before <= left
                assert charged <= max(payment.allowed(left), 0)
                assert payment.floor(budget - before, price) <= payment.allowed(left)
            reached.append(spent)
        assert max(reached) == bound or any(payment.pace is None for payment, _ in questions)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda payment, spent, most, price: spent + min(price, most // (payment.pace or 1)) // 2,
        lambda payment, spent, most, price: spent + min(price, (most - spent) // ((payment.pace or 1) + 1)),
        lambda payment, spent, most, price: min(price, payment.allowed(most - spent)),
    ],
)
def test_wrong_public_bounds_are_caught(wrong):
    """Halved, divided by the next pace, or forgetting the past: some path is charged more."""
    questions = [(Payment(2), 7), (Payment(1), 4)]
    bound = 0
    for payment, price in questions:
        bound = wrong(payment, bound, 12, price)
    assert any(spent > bound for spent, _ in paths(12, questions, range(8)))


def law(total):
    """Probabilities of a sum with discrete Laplace noise, cut off: a step moves each by a factor of 1.5 at most."""
    ratio = Fraction(2, 3)
    weights = [ratio ** abs(out - total) for out in range(-LARGEST, LARGEST + 1)]
    ends = ratio / (1 - ratio)
    weights[0] += ratio ** abs(-LARGEST - total) * ends
    weights[-1] += ratio ** abs(LARGEST - total) * ends
    return [weight * (1 - ratio) / (1 + ratio) for weight in weights]


def loss(rule, rows, budget, rounds, outcomes=(-3, 0, 3)):
    """The largest log ratio, over outcomes of adaptive rounds, with and without the first person.

    ``rows(person, past)`` is what a person's rows contribute, given the outcomes so far; ``rounds`` are the paces.
    """

    def ratio(people, spent, past):
        if len(past) == len(rounds):
            return Fraction(1)
        laws = []
        after = []
        for group, accounts in zip(people, spent, strict=True):
            total, paid, scale = rule(group, accounts, past, rounds[len(past)], budget, rows)
            laws.append([(out, p) for out, p in zip(range(-LARGEST, LARGEST + 1), law(total), strict=True)])
            laws[-1] = {round(out * scale): 0 for out, _ in laws[-1]} | _summed(
                (round(o * scale), p) for o, p in laws[-1]
            )
            after.append({person: accounts[person] + paid[person] for person in group})
        worst = Fraction(1)
        for out in outcomes:
            p, q = (each.get(out, Fraction(0)) for each in laws)
            if not p and not q:
                continue
            if not p or not q:
                return None
            deeper = ratio(people, after, (*past, out))
            if deeper is None:
                return None
            worst = max(worst, (p / q) * deeper, (q / p) * deeper, key=lambda x: x)
        return worst

    both = ((0, 1), (1,))
    worst = ratio(both, [dict.fromkeys(group, 0) for group in both], ())
    return math.inf if worst is None else math.log(worst)


def _summed(pairs):
    sums = {}
    for out, p in pairs:
        sums[out] = sums.get(out, Fraction(0)) + p
    return sums


def fair(group, spent, past, pace, budget, rows):
    """Each person's contribution in whole steps, of one unit each, as a ledger shrinks it."""
    total, paid = 0, {}
    for person in group:
        payment = Payment(pace, 0, True)
        units = pays(payment, rows(person, past), budget - spent[person]) or 0
        total, paid[person] = total + units, units
    return total, paid, Fraction(1)


def by_the_least(group, spent, past, pace, budget, rows):
    """Wrong: everybody may pay a part of what the person with the least has left."""
    least = min(budget - spent[person] for person in group)
    paid = {person: min(rows(person, past), least // pace) for person in group}
    return sum(paid.values()), paid, Fraction(1)


def below_one(group, spent, past, pace, budget, rows):
    """Wrong: a pace below one, so twice what is left."""
    paid = {person: min(rows(person, past), 2 * (budget - spent[person])) for person in group}
    return (
        sum(paid.values()),
        {person: min(units, budget - spent[person]) for person, units in paid.items()},
        Fraction(1),
    )


def realised(group, spent, past, pace, budget, rows):
    """Wrong: the noisy sum is multiplied by the share that people could pay."""
    wanted = sum(rows(person, past) for person in group)
    paid = {person: pays(Payment(pace), rows(person, past), budget - spent[person]) or 0 for person in group}
    return wanted, paid, Fraction(sum(paid.values()), wanted) if wanted else Fraction(1)


def rounded_down(group, spent, past, pace, budget, rows):
    """Wrong: a step is charged a part of a unit, rounded down."""
    total, paid, scale = fair(group, spent, past, pace, budget, rows)
    return total, {person: max(0, units - 1) for person, units in paid.items()}, scale


def heavy(person, past):
    """The first person contributes 3 steps each time; the second saves, and contributes more after high outcomes."""
    if person == 0:
        return 3
    return 0 if not past else 4 if past[-1] > 0 else 3


@pytest.mark.parametrize("rounds", [(1, 1, 1), (3, 2, 1), (2, 2, 2)])
def test_shrunk_contributions_stay_within_the_budget_exactly(rounds):
    """In every adaptive interaction the exact loss is at most the budget; with pace 1 it is all of it."""
    exact = loss(fair, heavy, 4, rounds)
    assert exact <= 4 * LOG + 1e-12
    if rounds[-1] == 1:
        assert exact == pytest.approx(4 * LOG)


@pytest.mark.parametrize("rule", [by_the_least, below_one, realised, rounded_down])
def test_wrong_rules_lose_more_than_the_budget(rule):
    """What another person has left, a pace below one, shrinking the noisy sum, charging less than it costs."""
    assert max(loss(rule, heavy, 4, rounds) for rounds in ((1, 1, 1), (2, 2, 1))) > 4 * LOG + 0.1


PEOPLE = ("ann", "bob", "cy", "dan")


def ask(book, key, units, *, price, payment, analyst="ann", reserved=None):
    """A question under a payment; returns each person's charge and factor, and the stored entry."""
    workspace = book.store.workspace
    listed = ", ".join(f"('{person}', {each}, 1.0::DOUBLE)" for person, each in units.items())
    query = Query(f"SELECT * FROM (VALUES {listed}) charges(person, units, factor)")

    def work(turn, offer):
        admission = turn.admit(offer, key=key, price=price, payment=payment, analyst=analyst, reserved=reserved)
        sql = f"SELECT person, units, factor FROM {admission.people.rows}"
        rows = {person: (charged, factor) for person, charged, factor in workspace.run(sql).fetchall()}
        return rows, turn.settle(admission, {"answer": [1]})

    return book.answer(query, work)


@pytest.mark.slow
def test_ledgers_charge_as_in_whole_numbers(where):
    """Random questions with limits, reservations and a watch: charges, factors, what is left at least; it adds up."""
    chance = random.Random(5)
    with opened(where) as book:
        spent, on_bea = dict.fromkeys(PEOPLE, 0), dict.fromkeys(PEOPLE, 0)
        most, limit, least_left = RHO, 2**62, []
        for number in range(24):
            if number == 4:
                book.reserve(RHO // 8, key="r")
                most -= RHO // 8
            if number == 8:
                book.limit(RHO // 3, analyst="bea")
                limit = RHO // 3
            if number == 10:
                watch = Watch(1, 0.1, 1)
                book.watch(watch)
                most -= watch.units
            analyst = chance.choice(["ann", "bea"])
            price = chance.randrange(1, RHO // 16)
            payment = Payment(chance.choice([1, 2, 5, 24 - number]), chance.choice([0, price // 4]))
            units = {person: chance.randrange(1, price - payment.fixed + 1) for person in PEOPLE}
            units["ann"] = price - payment.fixed  # who always contributes the full clip
            left = {
                person: min(most - spent[person], limit - on_bea[person] if analyst == "bea" else 2**62)
                for person in PEOPLE
            }
            rows, entry = ask(book, f"q{number}", units, price=price, payment=payment, analyst=analyst)
            expected = {person: pays(payment, units[person], left[person]) for person in PEOPLE}
            assert {person: charged for person, (charged, _) in rows.items()} == {
                person: charged for person, charged in expected.items() if charged is not None
            }
            for person, (charged, factor) in rows.items():
                share = Fraction(charged - payment.fixed, units[person])
                assert factor == 1 if share == 1 else float(share) ** 0.5 * (1 - 2e-8) < factor < float(share) ** 0.5
            assert entry.public["floor"] == payment.floor(left["ann"], price)
            least_left.append(entry.public["floor"] < price)
            for person, (charged, _) in rows.items():
                spent[person] += charged
                on_bea[person] += charged if analyst == "bea" else 0
            assert {person: book.spent(person) for person in PEOPLE} == spent
        assert 0 < sum(least_left) < 24
        assert clean(book)


def test_a_false_floor_is_found(where):
    """An entry that promises more than the record before it proves is found, also where its seal is right."""
    with opened(where) as book:
        ask(book, "a", {"ann": 5}, price=RHO // 2, payment=Payment(1))
        assert ask(book, "b", {"ann": 5}, price=RHO // 2 + 7, payment=Payment(2))[1].public["floor"] == RHO // 4
        assert clean(book)
        book.transact(
            lambda turn: turn.append(
                {
                    "kind": "answered",
                    "key": "c",
                    "analyst": "ann",
                    "purpose": None,
                    "price": 9 * RHO // 10,
                    "pace": 1,
                    "floor": 9 * RHO // 10,
                },
                {"units": 0, "people": 0},
            )
        )
        assert not clean(book)


@pytest.mark.parametrize(("floor", "right"), [(RHO // 2, True), (0, False), (RHO // 4, False), (RHO // 2 + 1, False)])
def test_floors_follow_the_rule(where, floor, right):
    """A floor is what everybody has left, under every analyst's limit together; any other one is not right."""
    entry = {"kind": "answered", "key": "c", "analyst": "bob", "purpose": None, "price": RHO, "pace": 1, "floor": floor}
    with opened(where) as book:
        book.limit(RHO // 2, analyst="ann")
        for key in "ab":
            ask(book, key, {"ann": 5}, price=RHO // 2, payment=Payment(1))
        book.transact(lambda turn: turn.append(entry, {"units": 0, "people": 0}))
        assert clean(book) == right


def test_an_entry_without_a_floor_is_found(where):
    """Without a pace it counts with its full price, and a check of the ledger tells that its floor is missing."""
    with opened(where) as book:
        book.transact(
            lambda turn: turn.append(
                {"kind": "answered", "key": "a", "analyst": "ann", "purpose": None, "price": RHO // 4},
                {"units": 0, "people": 0},
            )
        )
    with opened(where) as book:
        assert ask(book, "b", {"ann": 5}, price=RHO, payment=Payment(1))[1].public["floor"] == RHO - RHO // 4
        assert not clean(book)


@pytest.mark.parametrize("pace", [0, -1, 0.5, math.nan, True, 1.5])
def test_a_pace_is_a_whole_number_from_one_on(path, pace):
    """Anything else is refused before the data is looked at."""
    with opened(path) as book, pytest.raises((ArgumentError, TypeError), match="pace"):
        ask(book, "a", {"ann": 5}, price=5, payment=Payment(pace))


@pytest.mark.slow
def test_a_limit_of_one_analyst_leaves_what_is_certain_for_others(where):
    """Analysts who use up their limits take no more than these from what is certain for all; it never is too much."""
    chance = random.Random(7)
    with opened(where) as book:
        limits = {"ann": 3 * RHO // 10, "dana": 3 * RHO // 10, "bob": RHO // 10}
        for analyst, limit in limits.items():
            book.limit(limit, analyst=analyst)
        spent = dict.fromkeys(PEOPLE, 0)
        for number in range(30):
            analyst = chance.choice(["ann", "bob"])
            price = chance.randrange(1, limits[analyst])
            payment = Payment(chance.choice([1, 3]))
            units = {person: chance.randrange(1, price + 1) for person in PEOPLE}
            for person, (charged, _) in ask(book, f"q{number}", units, price=price, payment=payment, analyst=analyst)[
                0
            ].items():
                spent[person] += charged
            (left,) = book.left_by_period("eve").values()
            assert left <= min(RHO - each for each in spent.values())
        assert left == RHO - limits["ann"] - limits["bob"]  # the first bound alone says that nothing is left
        assert book.left_by_period("dana") == {"": limits["dana"]}
        rows, entry = ask(book, "dana", {"ann": 5}, price=limits["dana"], payment=Payment(1), analyst="dana")
        assert (rows["ann"][0], entry.public["floor"]) == (5, limits["dana"])
        assert clean(book)


def test_what_depends_on_limits_is_set_aside_in_a_transaction_of_its_own(where):
    """Reservations and watches come first in a transaction, or alone; a limit is set once in it."""
    changes = {
        "ask": lambda book: ask(book, "a", {"ann": 5}, price=RHO, payment=Payment(1)),
        "limit": lambda book: book.limit(RHO // 10, analyst="ann"),
        "reserve": lambda book: book.reserve(RHO // 2, key="r"),
        "watch": lambda book: book.watch(Watch(1, 0.5, 1)),
    }
    pairs = [(first, second) for first in changes for second in ("reserve", "watch") if first != second]
    with opened(where) as book:
        for pair in pairs:
            with pytest.raises(ArgumentError, match="after another change in the same transaction"):
                book.transact(lambda _, pair=pair: [changes[name](book) for name in pair])
        with pytest.raises(ArgumentError, match="limited already in this transaction"):
            book.transact(lambda _: [changes["limit"](book) for _ in range(2)])
        assert len(book.entries()) == 1
        changes["ask"](book)
        assert clean(book)


def asked_in_turn(book, seed, *, together):
    """Ten random questions, a limit and a retirement, in one transaction or each in its own; what is told of each."""
    draw, told = random.Random(seed), []
    book.limit(int(0.6 * RHO), analyst="ann")

    def work(_=None):
        for key in range(10):
            price, pace = draw.randrange(1, RHO // 3), draw.choice([None, 1, 3])
            charges = {person: draw.randrange(1, price + 1) for person in ("ann", "bob", "cid")}
            if key == 4:
                book.limit(int(0.5 * RHO), analyst="bob")
            if key == 6:
                book.retire("cid")
            try:
                payment, analyst = Payment(pace), draw.choice(["ann", "bob"])
                took, entry = ask(book, str(key), charges, price=price, payment=payment, analyst=analyst)
                told.append((took, entry.public["floor"]))
            except BudgetExceeded as refused:
                told.append(str(refused))

    book.transact(work) if together else work()
    return told, {person: book.spent(person) for person in ("ann", "bob", "cid")}, book.left_by_period("bob")


@pytest.mark.quick(2)
@pytest.mark.parametrize("seed", range(8))
def test_questions_of_one_transaction_are_charged_as_one_after_the_other(where, tmp_path, seed):
    """The same people pay the same units, with the same floors and refusals, and all checks of the record hold."""
    with opened(where) as book, opened(tmp_path / "other.ledger") as other:
        assert asked_in_turn(book, seed, together=True) == asked_in_turn(other, seed, together=False)
        assert clean(book)


def test_questions_that_forget_those_before_them_in_the_transaction_are_caught(tmp_path, monkeypatch):
    """With rules from before the transaction, floors promise what people no longer have left."""
    monkeypatch.setattr(Transaction, "_read_own", lambda self: None)
    with opened(tmp_path / "a.ledger") as book, opened(tmp_path / "b.ledger") as other:
        assert asked_in_turn(book, 1, together=True)[0] != asked_in_turn(other, 1, together=False)[0]


def test_questions_of_an_undone_transaction_leave_nothing(where):
    """After an error in the middle of a transaction, accounts, floors and what is left are those of before."""
    with opened(where) as book:

        def work(_):
            ask(book, "a", {"ann": RHO // 2}, price=RHO // 2, payment=Payment(1))
            ask(book, "b", {"ann": 5}, price=5, payment=Payment(1))
            raise ArgumentError("no")

        with pytest.raises(ArgumentError, match="no"):
            book.transact(work)
        assert (book.spent("ann"), book.find("a"), book.left_by_period("ann")) == (0, None, {"": RHO})
        assert ask(book, "a", {"ann": RHO}, price=RHO, payment=Payment(1))[1].public["floor"] == RHO
        assert clean(book)

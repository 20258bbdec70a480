"""Keys that nobody listed, numbers of different values: what is told, what it costs; wrong variants are found."""

import datetime
import hashlib
import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from almoner import filters
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger import Ledger
from almoner.queries import Count, Distinct, Keys, People, Session
from almoner.queries._ask.answer import answer
from almoner.queries._ask.ask import told_keys
from almoner.queries._questions.kinds.entries import key_threshold, tail
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.noise import STEPS
from hockey_sticks import hockey
from ledgers import RHO, clean, counted, exact
from terms import grouped

DELTA = 1e-6
ROWS = {
    "who": ["ann"] * 4 + ["bob"] * 3 + ["cy", "cy", None, "dee"],
    "shop": ["a", "b", "c", "a", "a", "b", "a", "a", "z", "n", None],
    "n": [1, 2, 3, 1, 1, 2, 2, 7, 8, 9, 4],
    "day": [datetime.date(2011, 12, day) for day in (1, 1, 2, 1, 2, 2, 1, 1, 9, 9, 9)],
    "paid": [True, False, True, True, True, True, None, True, True, True, True],
    "x": [1.5] * 11,
}


def opened(path, data=None, **options):
    chosen = {
        "person": "who",
        "budget": filters.Zcdp(rho=100.0),
        "ledger": path,
        "create": True,
        "keys_delta": 0.5,
        **options,
    }
    return Session.open(**grouped({"data": pa.table(ROWS) if data is None else data, **chosen}))


def naive_values(rows, column, most):
    """Each person's values that are kept, by plain Python."""
    kept = {}
    for who, value in zip(rows["who"], rows[column], strict=True):
        if who is not None and value is not None:
            kept.setdefault(who, set()).add(value)

    def order(who, value):
        spelled = str(value).lower() if isinstance(value, bool) else str(value)
        return hashlib.md5(f"{who}:0:{spelled}".encode()).hexdigest()

    return {who: sorted(found, key=lambda value: order(who, value))[:most] for who, found in kept.items()}


@pytest.mark.quick(6)
@pytest.mark.parametrize("column", ["shop", "n", "day", "paid"])
@pytest.mark.parametrize("most", [1, 2, 9])
def test_people_count_once_for_each_of_their_keys(tmp_path, column, most):
    """Numbers of people by key, and everybody's price, are those of plain Python, for every kind of keys."""
    asked = Keys(column, most=most, delta=DELTA, sigma=30.0)
    wanted = naive_values(ROWS, column, most)
    with opened(tmp_path / "l") as session:
        people, units = counted(session, asked)
    assert people == {
        value: sum(value in found for found in wanted.values()) for value in itertools.chain(*wanted.values())
    }
    for who, found in wanted.items():
        assert units[who] == math.ceil(mpf(len(found)) * RHO / (2 * mpf(30) ** 2))
    assert max(units.values()) <= asked.price


@pytest.mark.quick(5)
@pytest.mark.parametrize("price", [{"sigma": 30.0}, {"epsilon": 0.5}])
@pytest.mark.parametrize("most", [1, 2, 9])
def test_different_values_are_counted_exactly(tmp_path, most, price):
    """Before noise it is the size of the union of what people keep; each pays for the values that they keep."""
    asked = Distinct("shop", most=most, **price)
    wanted = naive_values(ROWS, "shop", most)
    budget = filters.Basic(epsilon=100.0) if asked.pure else filters.Zcdp(rho=100.0)
    with opened(tmp_path / "l", budget=budget, keys_delta=None) as session:
        sums, units = exact(session, asked)
    assert sums == [len(set(itertools.chain(*wanted.values()))) * STEPS]
    for who, found in wanted.items():
        cost = len(found) / mpf(asked.noise) if asked.pure else len(found) ** 2 / (2 * mpf(30) ** 2)
        assert math.ceil(cost * RHO) <= units[who] <= math.ceil(cost * RHO) + 1
        assert units[who] <= asked.price


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([None, "a", "b", "c'd", "é"]), TEXTS),
        max_size=20,
    ),
    most=st.integers(1, 3),
)
def test_any_text_is_a_key(tmp_path_factory, rows, most):
    """Hostile and odd texts: people by key, and prices, are those of plain Python; nothing is executed or mixed up."""
    who, texts = [row[0] for row in rows], [row[1] for row in rows]
    table = pa.table({"who": pa.array(who, pa.string()), "shop": pa.array(texts, pa.string())})
    wanted = naive_values({"who": who, "shop": texts}, "shop", most)
    with opened(tmp_path_factory.mktemp("keys") / "l", table) as session:
        people, units = counted(session, Keys("shop", most=most, delta=DELTA, sigma=30.0))
        sums, _ = exact(session, Distinct("shop", most=most, sigma=30.0))
    kept = list(itertools.chain(*wanted.values()))
    assert people == {value: kept.count(value) for value in kept}
    assert sums == [len(set(kept)) * STEPS]
    assert set(units) == set(wanted)


def test_different_values_by_group(tmp_path):
    """Each group has a number of its own; a person's values are bounded over all groups, and paid in L2 norm."""
    asked = Distinct("shop", most=9, by={"paid": [True, False]}, sigma=30.0)
    with opened(tmp_path / "l") as session:
        sums, units = exact(session, asked)
        one = exact(session, Distinct("shop", most=1, by={"paid": [True, False]}, sigma=30.0))
    assert sums == [4 * STEPS, 1 * STEPS]  # a, b, c, z paid; b not
    assert units["ann"] == math.ceil(mpf(2**2 + 1) * RHO / (2 * 30**2))  # a, c and b
    assert sum(one[0]) <= 4 * STEPS
    assert set(one[1].values()) == {math.ceil(mpf(1) * RHO / (2 * 30**2))}


def moves(asked, session, without):
    """The largest change of exact results when a person's rows are taken out."""
    return np.abs(np.array(exact(session, asked)[0]) - np.array(exact(without, asked)[0])) / STEPS


@pytest.mark.slow
def test_no_person_moves_more_than_they_pay_for(tmp_path):
    """Over all people, and all bounds: what taking a person out changes is within what that person is charged."""
    for place, who in enumerate(("ann", "bob", "cy")):
        rows = [row for row in zip(*ROWS.values(), strict=True) if row[0] != who]
        less = pa.table({name: list(entries) for name, entries in zip(ROWS, zip(*rows, strict=True), strict=True)})
        with opened(tmp_path / f"a{place}") as session, opened(tmp_path / f"b{place}", less) as without:
            for most in (1, 2, 5):
                asked = Distinct("shop", most=most, by={"paid": [True, False]}, sigma=30.0)
                moved = (moves(asked, session, without) ** 2).sum()
                assert math.ceil(mpf(moved) * RHO / 1800) <= exact(session, asked)[1].get(who, 0)
                keys = Keys("shop", most=most, delta=DELTA, sigma=30.0)
                there, units = counted(session, keys)
                back, _ = counted(without, keys)
                moved = sum((there.get(key, 0) - back.get(key, 0)) ** 2 for key in there | back)
                assert math.ceil(mpf(moved) * RHO / 1800) <= units.get(who, 0)


# exact enumeration, of a person whose steps are few


def noise(sigma, reach=60):
    """The exact law of rounded Gaussian noise."""
    mp.dps = 30
    return {k: mp.ncdf((k + mpf(1) / 2) / sigma) - mp.ncdf((k - mpf(1) / 2) / sigma) for k in range(-reach, reach + 1)}


def law(count, sigma, least, *, considered=True):
    """The exact law of what is told about one key: a noisy count, or None."""
    if not considered:
        return {None: mpf(1)}
    told = {}
    for k, chance in noise(sigma).items():
        told.setdefault(count + k if count + k >= least else None, mpf(0))
        told[count + k if count + k >= least else None] += chance
    return told


def both(*laws):
    """Of several keys at once."""
    together = {}
    for outcome in itertools.product(*(each.items() for each in laws)):
        together[tuple(name for name, _ in outcome)] = mp.fprod(chance for _, chance in outcome)
    return together


def delta_of(there, back, epsilon):
    """The exact delta at epsilon between two laws, the larger direction."""
    factor = mp.exp(epsilon)
    outcomes = set(there) | set(back)
    return max(
        mp.fsum(max(mpf(0), p.get(each, mpf(0)) - factor * q.get(each, mpf(0))) for each in outcomes)
        for p, q in ((there, back), (back, there))
    )


def release(counts, least, sigma, *, zeros=False):
    """The exact law of a release, with people in steps of 2; ``zeros`` also considers keys that nobody paid for."""
    return both(*(law(2 * count, sigma, least, considered=count > 0 or zeros) for count in counts))


@pytest.mark.quick(3)
@pytest.mark.parametrize(("sigma", "delta"), [(2.0, 0.01), (3.5, 1e-4), (1.2, 1e-3)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 9.0])
def test_a_release_keeps_its_promise_and_a_lower_threshold_does_not(sigma, delta, epsilon):
    """Enumerated: with the threshold the delta is at most the Gaussian's plus delta; with one step less it is above."""
    least = key_threshold(sigma=sigma, delta=delta, most=2, person=2)
    # a person with a key that another one has, and a fresh key; and one with two fresh keys
    for with_person, without in (([2, 1], [1, 0]), ([1, 1], [0, 0])):
        shared = math.sqrt(sum(min(a, b) > 0 for a, b in zip(with_person, without, strict=True)))
        gauss = hockey(mpf(epsilon), 2 * shared / mpf(sigma)) if shared else mpf(0)
        right = delta_of(release(with_person, least, sigma), release(without, least, sigma), epsilon)
        assert right <= gauss + delta
    wrong = delta_of(release([1, 1], least - 1, sigma), release([0, 0], least - 1, sigma), 50.0)
    # by exact union the chance is 1 - (1 - p)**2; the bound is 2 p
    p = tail(least - 1 - 2, sigma)
    assert 2 * p > delta
    assert wrong >= 1 - (1 - p / (1 + 1e-9)) ** 2 - 1e-12
    one = key_threshold(sigma=sigma, delta=delta, most=1, person=2) - 1
    assert delta_of(release([1], one, sigma), release([0], one, sigma), 50.0) > delta


def test_deltas_of_several_questions_add_up():
    """Enumerated: two questions have nearly twice the delta; a ledger that charged the delta once would be wrong."""
    sigma, delta = 2.0, 0.01
    least = key_threshold(sigma=sigma, delta=delta, most=1, person=2)
    there, back = release([1], least, sigma), release([0], least, sigma)
    twice = delta_of(
        {(a, b): p * q for (a, p), (b, q) in itertools.product(there.items(), repeat=2)},
        {(a, b): p * q for (a, p), (b, q) in itertools.product(back.items(), repeat=2)},
        50.0,
    )
    one = delta_of(there, back, 50.0)
    assert key_threshold(sigma=sigma, delta=float(one) * (1 + 1e-6), most=1, person=2) == least
    assert 1.9 * one < twice <= 2 * one


def test_considering_keys_of_nobody_would_tell_who_paid_nothing():
    """Enumerated: if keys with no people were considered, a person who pays nothing would change the release."""
    sigma, delta = 2.0, 0.01
    least = key_threshold(sigma=sigma, delta=delta, most=1, person=2)
    refused = release([0], least, sigma)  # the person's key, where the person may not take part
    absent = {(None,): mpf(1)}  # no such key
    assert delta_of(refused, absent, 0.0) == 0
    assert delta_of(release([0], least, sigma, zeros=True), absent, 50.0) > 0
    asked = Keys("shop", delta=0.4, sigma=0.5)
    assert all(told_keys({"ghost": 0, "x": 0}, asked) == [] for _ in range(200))


@pytest.mark.parametrize("sigma", [0.7, 5.0, 2.0**20 * 30, 1e12])
@pytest.mark.parametrize(("delta", "most"), [(0.3, 1), (1e-5, 3), (1e-30, 100), (1e-99, 7)])
def test_the_threshold_is_the_least(sigma, delta, most):
    """In many digits: at the threshold the chance is at most delta, one step below it is above."""
    mp.dps = 60
    steps = key_threshold(sigma=sigma, delta=delta, most=most, person=11) - 11
    chance = [most * mp.ncdf(-(mpf(t) - mpf(1) / 2) / mpf(sigma)) for t in (steps, steps - 1)]
    assert chance[0] <= mpf(delta)
    assert chance[1] * (1 + mpf(2) / 10**9) > mpf(delta) or steps == 0


@pytest.mark.slow
def test_the_release_has_the_law_that_was_enumerated():
    """20,000 draws: a key of one person is told at most as often as delta says, and about as often."""
    asked = Keys("shop", delta=0.05, most=2, sigma=3.0)
    told = sum(len(told_keys({"mine": 1, "other": 1}, asked)) for _ in range(20_000))
    assert told / 40_000 == pytest.approx(0.025, abs=0.004)
    large = told_keys({"a": 100, "b": 200, "c": 150}, asked)
    assert [key for key, _ in large] == ["b", "c", "a"]
    assert [count / STEPS for _, count in large] == pytest.approx([200, 150, 100], abs=20)


def test_the_order_of_rows_changes_nothing(tmp_path):
    """The numbers of people are the same for shuffled rows, and what is told stands by its noisy count."""
    asked = Keys("shop", most=2, delta=DELTA, sigma=30.0)
    order = np.random.default_rng(1).permutation(len(ROWS["who"]))
    with opened(tmp_path / "a") as first, opened(tmp_path / "b", pa.table(ROWS).take(order)) as second:
        assert counted(first, asked) == counted(second, asked)


def people_of(count, keys):
    """So many people, each with the same keys; and one with a key of their own."""
    who = [f"p{k}" for k in range(count) for _ in keys] + ["odd"]
    return pa.table({"who": who, "shop": [*keys] * count + ["only mine"]})


def test_keys_are_told_recorded_and_public_from_then_on(tmp_path):
    """An answer names keys that enough people have; the same key gives the same again, after opening, and as ``by``."""
    asked = Keys("shop", most=2, delta=1e-9, sigma=5.0)
    with opened(tmp_path / "l", people_of(300, ["x", "y"]), keys_delta=1e-8) as session:
        ann = session.analyst("ann")
        first = ann.ask(asked, key="shops")
        assert sorted(first.keys) == ["x", "y"]
        assert first.values == sorted(first.values, reverse=True)
        assert first.values == pytest.approx([300, 300], abs=30)
        again = ann.ask(Count(by={"shop": first.keys}, clip=2, sigma=5.0), key="rows")
        assert again.values == pytest.approx([300, 300], abs=30)
        assert first.to_arrow().column_names == ["shop", "value", "low", "high"]
        assert ann.ask(Keys("shop", most=2, delta=1e-9, sigma=5.0, top=1), key="best").groups in ([("x",)], [("y",)])
    with opened(tmp_path / "l", people_of(300, ["x", "y"]), keys_delta=None) as session:
        assert session.analyst("ann").ask(asked, key="shops") == first
        assert session.analyst("ann").answers()[0] == first
        assert session.ledger.terms.keys_delta == 1e-8
        assert all(finding.holds for finding in session.verify(replay=True))


def test_the_declared_delta_is_never_exceeded(tmp_path):
    """Deltas are added up exactly, also after opening again: ten tenths fit and no more; refusals cost nothing."""
    tenth = Keys("shop", delta=1e-9, sigma=50.0)
    with opened(tmp_path / "l", keys_delta=1e-8) as session:
        for place in range(9):
            session.analyst("ann").ask(tenth, key=f"k{place}")
        with pytest.raises(BudgetExceeded, match="1e-09 is left"):
            session.analyst("ann").ask(Keys("shop", delta=1.0000001e-9, sigma=50.0), key="more")
    with opened(tmp_path / "l", keys_delta=1e-8) as session:
        spent = session.ledger.spent("ann")
        with pytest.raises(BudgetExceeded):
            session.analyst("bea").check(Keys("shop", delta=1.0000001e-9, sigma=50.0), key="more")
        assert session.ledger.spent("ann") == spent
        session.analyst("ann").ask(tenth, key="last")
        with pytest.raises(BudgetExceeded):
            session.analyst("ann").ask(Keys("shop", delta=1e-30, sigma=50.0), key="more")
        session.analyst("ann").ask(tenth, key="last")  # again, for nothing
        session.analyst("ann").ask(People(sigma=50.0), key="people")
        assert clean(session.ledger)


def test_a_ledger_says_what_it_was_made_for(tmp_path):
    """The declared delta is a part of the terms; what the budget promises holds at the sum of both deltas."""
    budget = filters.Gaussian(epsilon=1.0, delta=1e-6)
    with opened(tmp_path / "l", budget=budget, keys_delta=1e-7) as session:
        ledger = session.ledger
        assert ledger.promise(1.1e-6) == pytest.approx(1.0, rel=1e-6)
        assert ledger.promise(1e-6) > 1.0
        assert ledger.promise(1e-7) == math.inf
        assert ledger.promise(1e-8) == math.inf
        statement = session.statement("ann")
        assert statement.delta == pytest.approx(1.1e-6)
        assert statement.epsilon == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(ArgumentError, match=r"made for keys_delta=1e-07, not 2e-07"):
        opened(tmp_path / "l", budget=filters.Gaussian(epsilon=1.0, delta=1e-6), keys_delta=2e-7)
    with Ledger.open(tmp_path / "l") as ledger:
        assert ledger.terms.keys_delta == 1e-7


def test_without_a_declared_delta_keys_are_refused(tmp_path):
    """A ledger without one, and a pure one, refuse in words and charge nothing."""
    asked = Keys("shop", delta=1e-9, sigma=50.0)
    with opened(tmp_path / "l", keys_delta=None) as session:
        with pytest.raises(ArgumentError, match="made without keys_delta="):
            session.analyst("ann").ask(asked, key="k")
        assert session.ledger.spent("ann") == 0
    with pytest.raises(ArgumentError, match="pure budget has delta = 0"):
        opened(tmp_path / "p", budget=filters.Basic(epsilon=1.0), keys_delta=1e-9)
    with pytest.raises(ArgumentError, match="need a delta, so no pure budget"):
        Keys("shop", delta=1e-9, epsilon=0.5)


def test_a_record_with_another_delta_is_found(tmp_path):
    """Verifying compares what was charged in delta with the questions that cost it."""
    with opened(tmp_path / "l", keys_delta=1e-8) as session:
        session.analyst("ann").ask(Keys("shop", delta=1e-9, sigma=50.0), key="k")
        assert clean(session.ledger)
        run = session.ledger.store.run
        ((number, public),) = run("SELECT number, public FROM ledger.record WHERE kind = 'delta'")
        changed = json.dumps({**json.loads(public), "delta": 1e-12})
        run("UPDATE ledger.record SET public = ? WHERE number = ?", [changed, number])
        names = {finding.what: finding.holds for finding in session.verify()}
        assert not next(holds for what, holds in names.items() if "cost in delta" in what)


@pytest.mark.parametrize(
    "asked",
    [
        Keys("shop", delta=1e-9, most=3, sigma=5.0, where="n > 2", top=4),
        Keys("day", 1e-6, rho=0.1),
        Distinct("shop", most=7, by={"paid": [True]}, epsilon=0.5),
    ],
)
def test_questions_are_plain_values_and_back(asked):
    """What the record holds, through JSON, is the same question again."""
    values = json.loads(json.dumps(described(asked)))
    assert values == described(asked)
    assert question(values) == asked
    assert described(question(values)) == values


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Keys("shop", delta=0.0, sigma=5.0), "delta=0.0"),
        (lambda: Keys("shop", delta=math.nan, sigma=5.0), "delta=nan"),
        (lambda: Keys("shop", delta=1.0, sigma=5.0), "delta=1.0"),
        (lambda: Keys("shop", delta=1e-9, most=0, sigma=5.0), "most=0"),
        (lambda: Keys("shop", delta=1e-9, most=2.5, sigma=5.0), "most=2.5"),
        (lambda: Keys("shop", delta=1e-9, clip=3.0, sigma=5.0), "clip=3.0: most="),
        (lambda: Keys("shop", delta=1e-9, per_group=3.0, sigma=5.0), "per_group=3.0: most="),
        (lambda: Keys("shop", delta=1e-9, by={"n": [1]}, sigma=5.0), "by: the keys of one column"),
        (lambda: Keys("shop", delta=1e-9, top=0, sigma=5.0), "top=0"),
        (lambda: Distinct("shop", most=0, sigma=5.0), "most=0"),
        (lambda: Distinct("shop", most=200_000, sigma=5.0), "most=200000"),
        (lambda: question({"ask": "keys", "column": "shop", "sigma": 5}), "'keys' needs delta"),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    """Errors name the argument, its value and the rule."""
    with pytest.raises(ArgumentError, match=message):
        make()


def test_expressions_have_keys_too(tmp_path):
    """Keys of an expression: what people have after it, with a filter; spellings of texts stay apart."""
    with opened(tmp_path / "l") as session:
        asked = Keys("upper(shop)", most=9, delta=DELTA, sigma=50.0, where="n < 3 and upper(shop) != 'B'")
        assert counted(session, asked)[0] == {"A": 2}
        assert exact(session, Distinct("n * 0 = 0", most=9, sigma=50.0))[0] == [STEPS]
    view = "SELECT who, t COLLATE nocase AS t FROM data"
    table = pa.table({"who": ["a", "b", "c"], "t": ["x", "X", "x"]})
    with opened(tmp_path / "m", table, view=view) as session:
        assert counted(session, Keys("t", delta=DELTA, sigma=50.0))[0] == {"x": 2, "X": 1}
        assert exact(session, Distinct("t", most=1, sigma=50.0))[0] == [2 * STEPS]


def test_columns_that_are_no_keys_are_refused(tmp_path):
    """Numbers with fractions have no keys; texts longer than a key are missing; so are rows of nobody."""
    with opened(tmp_path / "l") as session:
        for asked in (Keys("x", delta=DELTA, sigma=50.0), Distinct("x", most=1, sigma=50.0)):
            with pytest.raises(ArgumentError, match="column 'x' is of kind number"):
                session.analyst("ann").ask(asked, key="k")
    odd = pa.table({"who": ["a", "b", "c", None], "t": ["y" * 1001, "y" * 1000, "é\0'", "nobody"]})
    with opened(tmp_path / "m", odd) as session:
        people, _ = counted(session, Keys("t", delta=DELTA, sigma=50.0))
    assert people == {"y" * 1000: 1, "é\0'": 1}


def test_a_date_that_is_told_like_another_one_is_no_key(tmp_path):
    """Python has one name for infinity and 9999-12-31; a person with the first may not take the place of all others."""
    last, without_end = (datetime.date(9999, 12, 31) - datetime.date(1970, 1, 1)).days, 2**31 - 1
    days = pa.array([last] * 40 + [without_end, -without_end, last + 1, None], pa.int32()).cast(pa.date32())
    rows = pa.table({"who": range(len(days)), "day": days})
    with opened(tmp_path / "l", rows) as session:
        people, units = counted(session, Keys("day", delta=DELTA, sigma=1.0))
        assert people == {datetime.date(9999, 12, 31): 40}
        assert [*units] == [*range(40)]
        told = session.analyst("ann").ask(Keys("day", delta=DELTA, sigma=1.0), key="k")
        assert told.keys == ["9999-12-31"]
        assert told.value == pytest.approx(40, abs=8)


def test_answers_without_keys_are_empty(tmp_path):
    """Where no key is told the answer has no groups, prints and is recorded; bounded questions have keys too."""
    with opened(tmp_path / "l") as session:
        found = session.analyst("ann").ask(Keys("shop", delta=1e-12, sigma=50.0), key="k")
        assert found.groups == found.values == found.keys == []
        assert "shop" in str(found)
        assert found.to_pandas().empty
    assert answer(Count(by={"n": [1, 2]}, clip=1, sigma=1.0), [0, 0], "k").keys == [1, 2]
    with pytest.raises(ArgumentError):
        _ = answer(Count(clip=1, sigma=1.0), [0], "k").keys


def test_values_do_not_shrink_so_who_cannot_pay_in_full_is_left_out(tmp_path):
    """A person with less left than the price of all that they keep is in no number, and pays nothing."""
    for place, make in enumerate((lambda **o: Distinct("n", 2, **o), lambda **o: Keys("n", 1e-9, 2, **o))):
        for pace in (2, 53):
            with pytest.raises(ArgumentError, match="pace"):
                make(rho=0.4, pace=pace)
        asked = make(rho=0.4)
        assert asked.pace is None
        assert question(described(asked)) == asked
        with opened(tmp_path / f"{place}", budget=filters.Zcdp(rho=0.5)) as session:
            ann = session.analyst("ann")
            ann.ask(asked, key="first")
            kept = naive_values(ROWS, "n", 2)
            if isinstance(asked, Distinct):  # dee has one value and paid a quarter of the price; the others all of it
                sums, units = exact(session, asked)
                assert (sums, list(units)) == ([STEPS * len(kept["dee"])], ["dee"])
            else:  # a person pays for the root of the number of keys: dee half, the others all of it
                counts, units = counted(session, asked)
                assert (dict(counts), list(units)) == (dict.fromkeys(kept["dee"], 1), ["dee"])

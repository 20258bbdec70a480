"""A watch over how many people could not pay: what it says, what it costs, and that it tells no more than it may."""

import math
import statistics

import pyarrow as pa
import pytest

from almoner import filters
from almoner._workspace import Query
from almoner.curves import gaussian
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger import Watch
from almoner.ledger._record import watch as _watch
from almoner.ledger._record.terms import GAUSSIAN, PURE, ZCDP
from almoner.queries import Count, People, Session
from almoner.queries._questions.noise import laplace
from ledgers import RHO, ask, clean, opened

PEOPLE = 400


def laws(scale, reach):
    """The probabilities of a discrete Laplace, and of being at least so much."""
    p = math.exp(-1 / scale)
    mass = {k: (1 - p) / (1 + p) * p ** abs(k) for k in range(-reach, reach + 1)}

    def at_least(k):
        return p**k / (1 + p) if k > 0 else 1 - p ** (1 - k) / (1 + p)

    return mass, at_least


def first_words(watch, missing, *, narrower=1.0):
    """The probability that the watch speaks first at each question, and that it never does: exact but for far tails."""
    first, each = (scale / narrower for scale in watch.scales)
    thresholds, _ = laws(first, math.ceil(40 * first))
    _, at_least = laws(each, 0)
    told = [0.0] * (len(missing) + 1)
    for noise, mass in thresholds.items():
        silent = mass
        for place, number in enumerate(missing):
            speaks = at_least(watch.people + noise - number)
            told[place] += silent * speaks
            silent *= 1 - speaks
        told[-1] += silent
    return told


NEIGHBOURS = [
    ([3, 3, 3, 9], [2, 2, 2, 10]),
    ([5] * 12, [4] * 12),
    ([0, 4, 8, 12], [0, 5, 8, 13]),
    ([4] * 30 + [5], [5] * 30 + [4]),
    ([9, 0, 9, 0, 9], [8, 1, 8, 1, 8]),
]


def loss(watch, **options):
    """The largest logarithm of a ratio between what neighbours make the watch say."""
    found = []
    for one, other in NEIGHBOURS:
        pairs = zip(first_words(watch, one, **options), first_words(watch, other, **options), strict=True)
        found += [abs(math.log(a / b)) for a, b in pairs if min(a, b) > 1e-12]
    return max(found)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_all_that_a_watch_tells_is_epsilon_private(epsilon):
    """Where each number differs by one, the law of what it says differs by at most epsilon; with less noise by more."""
    watch = Watch(5, epsilon)
    assert loss(watch) <= epsilon
    assert loss(watch, narrower=2.5) > epsilon
    assert math.isclose(sum(first_words(watch, [3, 4, 5])), 1, rel_tol=1e-9)


@pytest.mark.slow
def test_the_price_and_the_noise():
    """It costs epsilon squared over two, rounded up; the noise that is drawn has the promised scale."""
    watch = Watch(5, 0.1)
    assert watch.units == RHO // 200
    assert Watch(5, 1 / 3).units * 18 >= RHO * (1 - 1e-15)
    scale = watch.scales[1]
    draws = [laplace(scale) for _ in range(4000)]
    assert statistics.fmean(map(abs, draws)) == pytest.approx(scale, rel=0.1)  # six standard errors
    assert abs(statistics.fmean(draws)) < 6 * scale * math.sqrt(2 / 4000)
    assert "noise" not in repr(Watch(5, 0.1, 77))
    for wrong in ({"people": -1}, {"epsilon": 0.0}, {"epsilon": math.nan}, {"epsilon": 1e9}, {"people": 1.5}):
        with pytest.raises(ArgumentError):
            Watch(**{"people": 5, "epsilon": 0.1, **wrong})


def test_the_margin():
    """It is wrong by more than its margin less often than was said, on either side: exact probabilities."""
    watch = Watch(2000, 1.0)
    margin = watch.margin(50, failure=0.1)
    few, many = [math.floor(2000 - margin)] * 50, [math.floor(2000 - margin)] * 49 + [math.ceil(2000 + margin)]
    assert first_words(watch, few)[-1] > 0.9
    assert first_words(watch, many)[-2] > 0.9


def test_how_many_are_missing(where):
    """Those who cannot pay, for want of budget or by a limit; nobody who left, and nobody without a charge."""
    with opened(where) as book:
        ask(book, "a", {"ann": RHO, "bob": 5, "cy": 5})
        book.limit(6, analyst="ann")
        book.retire("bob")
        charges = {"ann": 2, "bob": 2, "cy": 2, "dan": 2}
        assert ask(book, "b", charges) == {"dan"}

        def work(turn, offer):
            return turn.admit(offer, key="c", price=2, analyst="ann").people.refused()

        listed = ", ".join(f"('{person}', {units})" for person, units in {**charges, "eve": 0}.items())
        query = Query(f"SELECT * FROM (VALUES {listed}) charges(person, units)")
        assert book.answer(query, work) == 2  # ann and cy


def watched(where, **options):
    rows = pa.table({"who": [i % PEOPLE for i in range(2 * PEOPLE)], "odd": [i % 2 for i in range(2 * PEOPLE)]})
    return Session.open(rows, person="who", budget=filters.Zcdp(rho=100.0), ledger=where, **options, create=True)


@pytest.mark.slow
def test_a_watch_tells_when_to_stop_trusting_totals(where):
    """Silent while all can pay; it speaks when most cannot, and for good; its price is everybody's, and all adds up."""
    count = Count(clip=2, rho=20.0)
    with watched(where) as session:
        analyst = session.analyst("ann")
        assert analyst.ask(count, key="before").complete is None
        watch = session.watch(PEOPLE // 2, epsilon=2.0)
        assert watch.units == 2 * RHO
        with pytest.raises(ArgumentError, match="watched already"):
            session.watch(5, epsilon=0.1)
        assert [analyst.ask(count, key=f"q{number}").complete for number in range(3)] == [True] * 3
        assert analyst.ask(People(rho=0.1, spare=5.0), key="those who can pay").complete is None
    with watched(where) as session:  # 80.1 of 98 are spent, and the next question costs 20
        analyst = session.analyst("ann")
        assert analyst.ask(count, key="q3").complete is False
        assert analyst.ask(Count(clip=2, rho=0.1), key="q4").complete is False
        assert analyst.ask(count, key="q1").complete is True  # as it was answered
        assert [each.complete for each in analyst.answers()][-2:] == [False, False]
        assert max(session.ledger.spent(person) for person in range(PEOPLE)) <= 98 * RHO
        told = session.statement(7)
        assert told.lines[1].question == {"ask": "watch"}
        assert told.rho == pytest.approx(session.ledger.spent(7) / RHO + 2)
        assert len(session.ledger.entries("spoke")) == 1
        assert all(finding.holds for finding in session.verify(replay=True))


@pytest.mark.slow
def test_a_watch_over_one_purpose(where):
    """It hears the questions for its purpose alone; each watch has its own price, and all are set aside together."""
    count = Count(clip=2, rho=20.0)
    with watched(where) as session:
        first = session.watch(PEOPLE // 2, epsilon=2.0, purpose="weekly")
        second = session.watch(PEOPLE // 2, epsilon=1.0)
        for scope in ({"purpose": "weekly"}, {}):
            with pytest.raises(ArgumentError, match="watched already"):
                session.watch(5, epsilon=0.1, **scope)
        with pytest.raises(ArgumentError, match="either analyst= or purpose="):
            session.watch(5, epsilon=0.1, analyst="ann", purpose="weekly")
        weekly, other = session.analyst("ann", purpose="weekly"), session.analyst("ann")
        assert [other.ask(count, key=f"q{number}").complete for number in range(4)] == [True] * 4
        assert other.ask(count, key="broke").complete is False  # 80 of 97.5 are spent
        assert [entry.public.get("scope", "all") for entry in session.ledger.entries("spoke")] == ["all"]
        cheap = Count(clip=2, rho=0.1)
        assert weekly.ask(cheap, key="all watches are heard").complete is False
        told = session.statement(7)
        assert [line.question for line in told.lines[:2]] == [{"ask": "watch"}] * 2
        both = first.units + second.units
        assert told.rho == pytest.approx((session.ledger.spent(7) + both) / RHO)
        assert max(session.ledger.spent(person) for person in range(PEOPLE)) <= 100 * RHO - both
        assert all(finding.holds for finding in session.verify(replay=True))
    with watched(where) as session:
        assert session.analyst("bea").ask(Count(clip=2, rho=0.1), key="again").complete is False


def test_watches_of_other_purposes_stay_silent(where):
    """What is missing from one purpose's questions says nothing of another's."""
    with watched(where) as session:
        session.watch(PEOPLE // 2, epsilon=2.0, purpose="weekly")
        weekly, other = session.analyst("ann", purpose="weekly"), session.analyst("ann", purpose="daily")
        for number in range(4):
            assert other.ask(Count(clip=2, rho=20.0), key=f"q{number}").complete is None
        assert weekly.ask(Count(clip=2, rho=0.1), key="w").complete is True
        assert (
            other.ask(Count(clip=2, rho=20.0), key="broke", anyway=True).complete is None
        )  # not everybody has 20 left
        assert session.ledger.entries("spoke") == []


def test_a_watch_is_set_aside_from_everybody(where):
    """Its price is left to nobody; it cannot begin when somebody may have spent too much, nor be released or used."""
    with opened(where) as book:
        ask(book, "a", {"ann": 10}, price=RHO // 2)
        book.reserve(RHO // 4, key="r")
        with pytest.raises(BudgetExceeded):
            book.watch(Watch(5, 0.8, 3))  # 0.32 of rho; 0.25 are certain to be left
        book.watch(Watch(5, 0.4, 3))  # 0.08
        with pytest.raises(BudgetExceeded):
            ask(book, "b", {"ann": 10}, price=RHO // 4 * 3 - RHO // 20)
        with pytest.raises(ArgumentError, match="reserves nothing"):
            ask(book, "b", {"ann": 10}, reserved="")
        with pytest.raises(ArgumentError, match="key=''"):
            book.release("")
        with pytest.raises(BudgetExceeded):
            book.reserve(RHO * 3 // 4 - RHO // 20, key="more")
        assert ask(book, "c", {"zoe": RHO // 4 * 3 - RHO * 8 // 100}) == {"zoe"}
        assert clean(book)
        book.store.run(
            f"UPDATE ledger.accounts SET spent = {RHO - 1} WHERE person = {PERSON[type(book.store).__name__]}"
        )
        assert not clean(book)


PERSON = {"File": "'zoe'", "Postgres": "'zoe'::bytea"}


MONOTONE = [
    ([3 * 8, 3 * 8, 3 * 8, 8], [2 * 8, 2 * 8, 2 * 8, 0]),
    ([40] * 12, [32] * 12),
    ([48] * 60 + [0], [40] * 60 + [0]),
    ([0, 32, 64, 96], [0, 24, 56, 88]),
    ([33] * 30 + [40], [33] * 30 + [32]),
    ([72, 8, 72, 8, 72], [72, 0, 72, 0, 72]),
]


def mass_loss(monkeypatch, narrower=1.0):
    """As ``loss``, for a watch over mass in eighths of a clip, and a person who adds up to eight of them."""
    monkeypatch.setattr(_watch, "MASS", 8)
    watch = Watch(5, 1.0, mass=True)
    found = []
    for one, other in MONOTONE:
        told = []
        for missing in (one, other):
            shifted = [number - 5 * 8 + 5 for number in missing]  # the helper compares with 5, the watch with 5 * 8
            told.append(first_words(watch, shifted, narrower=narrower))
        found += [abs(math.log(a / b)) for a, b in zip(*told, strict=True) if min(a, b) > 1e-12]
    return max(found)


def test_a_watch_over_mass_tells_no_more(monkeypatch):
    """Where a person adds up to a clip to what is missing and takes none of it away, the loss is at most epsilon."""
    assert mass_loss(monkeypatch) <= 1.0
    assert mass_loss(monkeypatch, narrower=2.0) > 1.0


def test_the_margin_of_mass(monkeypatch):
    """It is wrong by more less often than was said, by exact probabilities; it is far below people's."""
    assert Watch(50, 0.2, mass=True).margin(100) < Watch(50, 0.2).margin(100) / 2.7
    monkeypatch.setattr(_watch, "MASS", 1)
    watch = Watch(2000, 1.0, mass=True)
    margin = watch.margin(50, failure=0.1)
    few, many = [math.floor(2000 - margin)] * 50, [math.floor(2000 - margin)] * 49 + [math.ceil(2000 + margin)]
    assert first_words(watch, few)[-1] > 0.9
    assert first_words(watch, many)[-2] > 0.9


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.2, 1.0, 5.0, 30.0])
def test_its_price_in_a_gaussian_ledger(epsilon):
    """Randomised response is no easier to tell apart than mu-GDP at any epsilon; one fiftieth less does not hold."""
    units = Watch(5, epsilon).price(GAUSSIAN)
    mu = math.sqrt(2 * units / RHO)
    at = [epsilon * k / 40 for k in range(41)]
    curve = [-math.expm1(e - epsilon) / (1 + math.exp(-epsilon)) for e in at]  # delta of randomised response
    assert all(d <= gaussian.delta(mu, epsilon=e) * (1 + 1e-6) + 1e-15 for d, e in zip(curve, at, strict=True))
    if epsilon <= 5:
        assert any(d > gaussian.delta(mu * 0.98, epsilon=e) for d, e in zip(curve, at, strict=True))
    assert Watch(5, epsilon).price(PURE) == pytest.approx(epsilon * RHO)
    assert Watch(5, epsilon).price(ZCDP) == Watch(5, epsilon).units


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "asked"),
    [
        (filters.Gaussian(mu=14.0), Count(clip=2, rho=20.0, pace=None)),
        (filters.Basic(epsilon=100.0), Count(clip=2, epsilon=20.0, pace=None)),
        (filters.Zcdp(rho=100.0), Count(clip=2, rho=20.0, pace=4)),
    ],
)
def test_a_watch_over_mass_in_every_kind_of_ledger(path, budget, asked):
    """It is silent while all can pay, and speaks when half of everything is missing; its price is set aside."""
    rows = pa.table({"who": [i % PEOPLE for i in range(2 * PEOPLE)]})
    with Session.open(rows, person="who", budget=budget, ledger=path, create=True) as session:
        analyst = session.analyst("ann")
        watch = session.watch(mass=PEOPLE // 8, epsilon=1.0)
        assert watch.margin(8) < PEOPLE // 8
        told = [analyst.ask(asked, key=f"q{number}").complete for number in range(8)]
        assert told[0] is True
        assert told[-1] is False
        assert told == sorted(told, reverse=True)
        spent = max(session.ledger.spent(person) for person in range(PEOPLE))
        assert spent <= session.ledger.budget_units - watch.price(session.ledger.measure)
        assert all(finding.holds for finding in session.verify(replay=True))
        with pytest.raises(ArgumentError, match="either"):
            session.watch(epsilon=1.0)

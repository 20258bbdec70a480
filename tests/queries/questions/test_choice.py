"""Quantiles that are chosen: exact odds on small data, what people pay, coverage, the record."""

import itertools
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from almoner import audit, filters, noise
from almoner._units import MEASURE
from almoner.errors import ArgumentError
from almoner.noise import _draws
from almoner.queries import Quantiles, Session
from almoner.queries._questions import choice as chosen
from almoner.queries._questions.choice import Choice, winning_choice
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.noise import STEPS
from ledgers import exact
from sessions import opened

N = NormalDist()


def odds(losses, rate, weights):
    """The probabilities of each place, as floats."""
    least = min(losses)
    sizes = [w * math.exp(-float(rate * (each - least))) for each, w in zip(losses, weights, strict=True)]
    return [each / sum(sizes) for each in sizes]


def law(one, counts, level, monkeypatch):
    """The probability of each (cell, width) of a group, by running every path of the choice."""
    found = {}
    for cell in range(one.bins * one.cells):
        seen = []

        def choose(losses, rate, *, weights=None, seen=seen, cell=cell):
            seen.append(odds(losses, rate, weights or [1] * len(losses)))
            return cell if len(seen) == 1 else 0

        monkeypatch.setattr(noise, "choice", choose)
        one._of_level([each * STEPS // 2 for each in counts], level)
        first, second = seen
        found |= {(cell, width): first[cell] * each for width, each in enumerate(second)}
    monkeypatch.undo()
    return np.array(list(found.values()))


def worst(one, level, monkeypatch):
    """(Largest loss, largest mu, largest rho) over small data sets and people, per full row; weights are halves."""
    monkeypatch.setattr(chosen, "_CELLS", 8)
    laws, largest = {}, [0.0, 0.0, 0.0]
    for counts in itertools.product(range(4), repeat=one.bins):
        monkeypatch.setattr(chosen, "_CELLS", 8)
        laws[counts] = law(one, counts, level, monkeypatch)
    for counts, person in itertools.product(laws, itertools.product(range(3), repeat=one.bins)):
        without, weight = tuple(a - b for a, b in zip(counts, person, strict=True)), sum(person) / 2
        if without not in laws or not 0 < weight <= 1:
            continue
        p, q = laws[counts], laws[without]
        for one_way, other in ((p, q), (q, p)):
            ratio = np.log(one_way / other)
            order = np.argsort(-ratio)
            tops = zip(np.cumsum(one_way[order])[:-1], np.cumsum(other[order])[:-1], strict=True)
            mu = max(
                N.inv_cdf(min(max(a, 1e-12), 1 - 1e-12)) - N.inv_cdf(min(max(b, 1e-12), 1 - 1e-12)) for a, b in tops
            )
            rho = max(np.log(np.sum(one_way * np.exp((a - 1) * ratio))) / (a - 1) / a for a in (1.01, 2, 8, 64))
            largest = [
                max(a, b) for a, b in zip(largest, (ratio.max() / weight, mu / weight, rho / weight**2), strict=True)
            ]
    return largest


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("pure", [True, False], ids=["epsilon", "rho"])
def test_odds_on_small_data_are_within_the_price(monkeypatch, pure, level):
    """All data sets of 0 to 3 halves in 3 bins, each person removed; half the sensitivity is found to be too little."""
    for price in (0.5, 3.0):
        one = Choice(3, (level,), 0.6, 1 / price, pure)
        epsilon, mu, rho = worst(one, level, monkeypatch)
        if pure:
            assert epsilon <= price * (1 + 1e-9)
        else:
            assert mu <= price
            assert rho <= price**2 / 2
        if level == 0.5:
            wrong = Choice(3, (level,), 0.6, 0.5 / price, pure)  # as if people moved losses by half of what they do
            epsilon, mu, rho = worst(wrong, level, monkeypatch)
            assert (epsilon if pure else mu) > price


def test_a_range_of_eta_is_gaussian():
    """Theorem 2 for pairs of two points with any odds; a smaller factor does not hold."""
    for eta in (0.01, 0.3, 2.0, 10.0):
        most = 0.0
        for y in np.linspace(-15, 15, 3001):
            q, p = 1 / (1 + math.exp(-y)), 1 / (1 + math.exp(-y - eta))
            if q > 1e-15 and p < 1 - 1e-15:
                most = max(most, N.inv_cdf(p) - N.inv_cdf(q))
        assert most <= eta * math.sqrt(math.pi / 8) * (1 + 1e-9)
        if eta < 0.5:
            assert most > 0.99 * eta * math.sqrt(math.pi / 8)


def test_choices_have_the_stated_odds():
    """20,000 draws against the weights; one seed of bits gives one place, whether doubles decide it or exact bounds."""
    losses, rate, weights = [0, 3, 1, 10, 2**70], Fraction(1, 3), [1, 2, 5, 50, 3]
    counts = np.bincount([noise.choice(losses, rate, weights=weights) for _ in range(20_000)], minlength=5)
    want = np.array(odds(losses, rate, weights)) * 20_000
    assert ((counts - want) ** 2 <= 30 * (want + 0.1)).all()
    assert counts[4] == 0
    assert noise.choice([0, 2**2000], Fraction(1, 2**1990)) == 0
    for seed in range(40):
        fast = _draws._choice(losses, rate, weights, np.random.default_rng(seed).bytes)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_draws, "_OFF", 1.0)
            assert fast == _draws._choice(losses, rate, weights, np.random.default_rng(seed).bytes)


@pytest.mark.parametrize(
    "bad", [([], 1.0, None), ([1], 0.0, None), ([1], math.nan, None), ([1, 2], 1.0, [1, 0]), ([1], 1.0, [1, 1])]
)
def test_choices_refuse_what_has_no_odds(bad):
    """No place, no rate, a weight of 0, or too many weights."""
    losses, rate, weights = bad
    with pytest.raises(ArgumentError, match="choice: give"):
        noise.choice(losses, rate, weights=weights)


HEAPS = {
    "smooth": lambda rng: rng.lognormal(5, 1, 3000),
    "one heap": lambda rng: np.full(3000, 160.0),
    "a gap at the median": lambda rng: np.repeat([100.5, 900.5], [1499, 1501]),
    "nobody above": lambda rng: np.repeat([0.5, 40.5], [1499, 1501]),
    "few people": lambda rng: rng.uniform(0, 1000, 30),
}


@pytest.mark.parametrize("name", HEAPS)
@pytest.mark.parametrize("price", [{"epsilon": 0.3}, {"rho": 0.01}], ids=["epsilon", "rho"])
def test_intervals_cover_whatever_the_data(name, price):
    """Of 250 answers at least 93 % cover the median, with heaps and gaps too; values lie inside."""
    values = np.clip(HEAPS[name](np.random.default_rng(3)), 0, 999)
    asked = Quantiles("v", range(0, 1001, 2), per="total", **price)
    sums = (np.histogram(values, asked.edges)[0] * STEPS).tolist()
    truth, covered = np.sort(values)[(len(values) - 1) // 2], 0
    for _ in range(250):
        parts = [each / STEPS for each in asked.choice.released(sums)]
        (value,), ((low, high),) = asked.read(parts, None)
        assert low <= value <= high
        covered += low <= truth <= high
    assert covered >= 0.93 * 250


def test_intervals_with_less_room_do_not_cover(monkeypatch):
    """Wrong variant: ends that are sought at the quantile itself leave it out, where there is a gap beside it."""
    asked = Quantiles("v", range(0, 1001, 2), per="total", epsilon=0.3)
    sums = (np.histogram(HEAPS["a gap at the median"](None), asked.edges)[0] * STEPS).tolist()
    monkeypatch.setattr(Choice, "room", lambda self, level: 0.0)
    low, high = zip(
        *(asked.read([e / STEPS for e in asked.choice.released(sums)], None)[1][0] for _ in range(60)), strict=True
    )
    assert np.mean((np.array(low) <= 900.5) & (np.array(high) >= 900.5)) < 0.8


def test_it_is_done_where_values_gain():
    """By bins, levels, price and what people are alone; not for rows, reports, levels 0 and 1, and an error."""

    def choosing(bins, levels=(0.5,), **options):
        return Quantiles("v", range(bins + 1), levels, **{"epsilon": 0.1, **options}).choice is not None

    assert [choosing(bins) for bins in (1, 21, 22, 1000)] == [False, False, True, True]
    assert [choosing(bins, (0.25, 0.5, 0.75)) for bins in (300, 2000)] == [False, True]
    assert choosing(200, epsilon=None, rho=0.1)
    assert choosing(200, epsilon=None, sigma=100.0, chosen=1)
    assert not choosing(200, chosen=0)
    assert not choosing(200, (0.0,))
    assert not choosing(200, (1e-300,))
    assert not choosing(200, chosen=1e-300)
    assert not choosing(200, per="row", clip=2)
    assert not choosing(200, per_group=0.5)
    assert not choosing(200, report=0.1)
    assert not choosing(200, clip=0.5, at_most=1)
    assert Quantiles("v", range(201), error=5).chosen == 0
    assert not winning_choice(1, (0.5,), 0.85, True)
    with pytest.raises(ArgumentError, match=r"chosen=2\.0 must be"):
        Quantiles("v", range(9), chosen=2.0, rho=0.1)


def exact_error(asked, values, level, monkeypatch, inside=None):
    """Root mean squared error of a chosen value, from the odds of all cells; ``inside`` in place of interpolation."""
    seen, sums = [], (np.histogram(values, asked.edges)[0] * STEPS).tolist()
    monkeypatch.setattr(noise, "choice", lambda losses, rate, **_: seen.append((losses, rate)) or 0)
    asked.choice._of_level(sums, level)
    monkeypatch.undo()
    losses, rate = seen[0]
    p = np.array(odds(losses, rate, [1] * len(losses)))
    places = [divmod(cell, asked.choice.cells) for cell in range(len(p))]
    told = [(inside or asked._inside)(place, (part + 0.5) / asked.choice.cells) for place, part in places]
    truth = np.sort(values)[math.ceil(level * len(values)) - 1]
    return math.sqrt(p @ (np.array(told) - truth) ** 2)


@pytest.mark.parametrize("bins", [24, 60, 500])
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_values_are_about_as_good_as_the_best_without_an_interval(monkeypatch, bins, level):
    """Within 1.2 times a choice among the same edges for the whole price; a line in bins that grow is often far off."""
    values = np.clip(np.random.default_rng(7).lognormal(4, 1.5, 6000), 0, 39_999)
    edges = (0.0, *np.geomspace(1, 40_000, bins))
    asked = Quantiles("v", edges, (level,), per="total", epsilon=0.1)
    if bins == 24 and level == 0.9:
        assert asked.choice is None  # counts have hardly more error there, and much narrower intervals
        return
    below = np.concatenate([[0], np.cumsum(np.histogram(values, edges)[0])])
    p = np.array(odds(np.abs(below - level * below[-1]).tolist(), 0.05 / max(level, 1 - level), [1] * len(below)))
    truth = np.sort(values)[math.ceil(level * len(values)) - 1]
    best = math.sqrt(p @ (np.array(edges) - truth) ** 2)
    own = exact_error(asked, values, level, monkeypatch)
    assert own < 1.2 * best

    def line(place, share):
        return edges[place] + (edges[place + 1] - edges[place]) * share

    assert own < 1.02 * exact_error(asked, values, level, monkeypatch, line)
    if (bins, level) == (24, 0.5):
        assert own < 0.9 * exact_error(asked, values, level, monkeypatch, line)


def test_values_in_bins_that_grow_are_as_their_logarithms():
    """By the factor between the edges; where bins are even, below 0, or with steps, on a line."""
    grown = Quantiles("v", (-4, -1, 0, 1, 4, 16), (0.5,), sigma=1.0)
    assert [grown._inside(place, 0.5) for place in range(5)] == [-2.5, -0.5, 0.5, 2.0, 8.0]
    assert [grown._inside(4, share) for share in (0.0, 1.0)] == [4.0, 16.0]
    assert Quantiles("v", (10, 20, 30), (0.5,), sigma=1.0)._inside(1, 0.5) == 25
    assert Quantiles("v", (1, 4, 16), (0.5,), step=1, sigma=1.0)._inside(1, 0.5) == 10


def test_one_price_for_all_levels_and_both_parts():
    """The squares, or the sums, of what values and intervals of all levels may reveal make up the whole."""
    for pure, share in itertools.product((True, False), (0.3, 0.85, 1.0)):
        one = Choice(500, (0.25, 0.5, 0.9), share, 7.0, pure)
        parts = [
            2 * max(Fraction(e), 1 - Fraction(e)) * one.rate(e, value=v) for e in one.levels for v in (True, False)
        ]
        total = sum(parts) if pure else sum(each**2 for each in parts) * Fraction(math.pi / 8)
        assert 0.9999 < total * (7 if pure else 49) <= 1


WHO = np.sort(np.random.default_rng(2).integers(0, 300, 2000))
ROWS = pa.table(
    {"who": WHO, "v": np.random.default_rng(4).integers(0, 400, 2000), "g": [("a", "b")[k % 2] for k in range(2000)]}
)


@pytest.mark.parametrize("options", [{}, {"by": {"g": ["a", "b"]}}], ids=["one", "groups"])
@pytest.mark.parametrize("price", [{"epsilon": 0.5}, {"rho": 0.02}], ids=["epsilon", "rho"])
def test_people_pay_for_their_weight_and_records_replay(tmp_path, price, options):
    """Whose rows are in several bins pays for a full row in each group, not for squares of shares; nothing is lost."""
    budget = filters.Basic(epsilon=5.0) if "epsilon" in price else filters.Zcdp(rho=1.0)
    asked = Quantiles("v", range(0, 401, 2), bounds_hold=True, **options, **price)
    with opened(tmp_path / "l", ROWS, budget=budget) as session:
        sums, units = exact(session, asked)
        ann = session.analyst("ann")
        first = ann.ask(asked, key="k")
        assert ann.ask(asked, key="k") == first
        assert len(first.released) == 2 * asked.groups
        assert sum(sums) <= 300 * asked.groups * STEPS
        assert max(units.values()) <= asked.price
        both = asked.groups if asked.pure else math.sqrt(asked.groups)
        lowest = (1 / both) if asked.pure else (1 / both) ** 2
        assert min(units.values()) >= 0.999 * lowest * asked.price  # a full row in one group, at least
        assert first.truth_intervals is not None
        assert all(finding.holds for finding in session.verify(replay=True))
        assert question(described(asked)) == asked
        assert ann.quote(asked).standard_errors.keys() == {"people beyond the quantile"}


def test_people_with_little_left_are_chosen_for_as_they_are(tmp_path):
    """A person who can pay a part has that part of a weight; then there are no truth intervals."""
    table = pa.table({"who": ["p"] * 5, "v": [1.0, 9.0, 20.0, 33.0, 60.0]})
    with opened(tmp_path / "l", table, budget=filters.Basic(epsilon=1.0)) as session:
        ann = session.analyst("ann")
        ann.ask(Quantiles("v", range(200), epsilon=0.6), key="before")
        asked = Quantiles("v", range(200), epsilon=0.8)
        sums, units = exact(session, asked)
        assert sum(sums) / (asked.noise * STEPS) * MEASURE <= units["p"] <= 0.4001 * MEASURE
        assert ann.ask(asked, key="after", anyway=True).truth_intervals is None


@pytest.mark.parametrize(
    ("budget", "price"), [(filters.Basic(epsilon=5.0), {"epsilon": 0.5}), (filters.Zcdp(rho=1.0), {"rho": 0.02})]
)
def test_an_audit_sees_what_people_move_and_what_they_paid(tmp_path, monkeypatch, budget, price):
    """A replay without a person finds nothing; and finds too little paid where choices are twice as loud."""
    rows = pa.table({"who": [k // 2 for k in range(40)], "v": [k * 7 % 200 for k in range(40)]})

    def asked(table):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        with Session.open(table, person="who", budget=budget, ledger=folder, create=True) as session:
            analyst = session.analyst("dora")
            analyst.ask(Quantiles("v", range(201), **price), key="k")
            yield audit.Outcome(analyst.answers(), session)

    def without(table, person):
        return table.filter(pc.not_equal(table["who"], person))

    assert audit.replay(asked, rows, people=[3, 4], without=without).holds
    plain = Choice.eta.fget
    monkeypatch.setattr(Choice, "eta", property(lambda self: 2 * plain(self)))
    assert not audit.replay(asked, rows, people=[3], without=without).holds

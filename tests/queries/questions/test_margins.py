"""Several tables of one question: they agree, with the least noise, and each person pays for all of them."""

from fractions import Fraction
from itertools import combinations, product
from math import floor, isqrt, prod, sqrt

import numpy as np
import pyarrow as pa
import pytest

from almoner import filters
from almoner._units import MEASURE
from almoner.errors import ArgumentError
from almoner.queries import Count, Histogram, Mean, People, Several, Sum, Variance
from almoner.queries._ask.answer import answer
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.margins import agreeing
from almoner.queries._questions.noise import STEPS
from ledgers import exact
from sessions import opened

RANDOM = np.random.default_rng(5)
ROWS = pa.table({
    "who": RANDOM.integers(0, 60, 500), "g": RANDOM.choice(["a", "b", "c", "other"], 500),
    "d": RANDOM.integers(0, 5, 500), "x": RANDOM.integers(-4, 9, 500).astype(float)})  # fmt: skip
BY = {"g": ["a", "b", "c"], "d": [0, 1, 2, 3]}
SETS = [["g", "d"], ["g"], ["d"], []]
PRICES = pytest.mark.parametrize("price", [{"sigma": 40.0}, {"epsilon": 0.05}], ids=["gaussian", "laplace"])
SEVERAL = {"n": "count", "p": "people", "m": {"ask": "mean", "column": "x", "low": -4, "high": 8, "per": "row"}}


def design(sets, sizes):
    """The matrix that makes all tables of the cells of the finest one."""
    cells = list(product(*map(range, sizes)))
    groups = [(each, keys) for each in sets for keys in product(*(range(sizes[a]) for a in each))]
    return np.array([[tuple(cell[a] for a in each) == keys for cell in cells] for each, keys in groups], float)


def all_sets(columns):
    """Some lists of tables over so many columns, among them all of one table, and all tables."""
    every = [each for size in range(columns + 1) for each in combinations(range(columns), size)]
    drawn = [
        [every[k] for k in RANDOM.permutation(len(every))[: RANDOM.integers(1, len(every) + 1)]] for _ in range(25)
    ]
    return [[each] for each in every] + [every] + drawn


@pytest.mark.parametrize("sizes", [(3,), (1, 4), (2, 3), (4, 1, 3), (2, 3, 2)])
def test_numbers_and_their_noise_are_those_of_dense_least_squares(sizes):
    """For every list of tables; the mean of a total and of the sum of a finer table, each once, has more noise."""
    worse = 0
    for sets in all_sets(len(sizes)):
        matrix = design(sets, sizes)
        hat = matrix @ np.linalg.pinv(matrix)  # all numbers have noise of one size
        noisy = RANDOM.normal(0, 10, (len(matrix), 2))
        found, left = agreeing(noisy, sets, sizes)
        assert np.allclose(found, hat @ noisy)
        assert np.allclose(left, np.sqrt(np.clip(np.diag(hat), 0, None)), atol=1e-7)
        assert np.all(np.array(left) >= np.sqrt(np.clip(np.diag(hat), 0, None)) * (1 - 1e-12))
        if () in sets and tuple(range(len(sizes))) in sets:
            total = len(matrix[: sum(prod(sizes[a] for a in each) for each in sets[: sets.index(())])])
            worse += sqrt(1 + prod(sizes)) / 2 > left[total] * 1.001
    assert worse > 0


def test_tables_agree_and_tables_that_agree_stay():
    """The sums over a finer table are the coarser one, for all that share columns; agreed tables are not moved."""
    asked = Count(by=BY, sets=SETS, clip=9, sigma=20.0)
    numbers = RANDOM.normal(0, 50, (20, 1)).tolist()
    parts, _ = asked.agreed(numbers)
    values = {group: each[0] for group, each in zip(asked.labels, parts, strict=True)}
    for d in BY["d"]:
        assert values[None, d] == pytest.approx(sum(values[g, d] for g in BY["g"]))
    for g in BY["g"]:
        assert values[g, None] == pytest.approx(sum(values[g, d] for d in BY["d"]))
    assert values[None, None] == pytest.approx(sum(values[None, d] for d in BY["d"]))
    assert np.allclose(asked.agreed(parts)[0], parts)


def contributions(asked, pure):
    """Each person's whole steps in every cell of every table, in plain arithmetic; of a count."""
    steps = STEPS // len(SETS) if pure else floor(STEPS / sqrt(len(SETS)))
    found = {}
    for who, g, d in zip(*(ROWS[name].to_pylist() for name in ("who", "g", "d")), strict=True):
        if g in BY["g"] and d in BY["d"]:
            cells = found.setdefault(who, {})
            for each in SETS:
                group = (g if "g" in each else None, d if "d" in each else None)
                cells[group] = cells.get(group, 0) + steps
    return found


@PRICES
def test_each_person_is_charged_for_all_tables(tmp_path, price):
    """To the unit, by the length over all cells of all tables; a charge for the finest table alone is too small."""
    budget = filters.Basic(epsilon=10.0) if "epsilon" in price else filters.Zcdp(rho=1.0)
    asked, small = Count(by=BY, sets=SETS, clip=30, **price), 0
    with opened(tmp_path / "a.ledger", ROWS, budget=budget) as session:
        sums, charged = exact(session, asked)
    told = contributions(asked, asked.pure)
    assert sums == [sum(cells.get(group, 0) for cells in told.values()) for group in asked.labels]
    for who, cells in told.items():
        whole = Fraction(asked.noise) * STEPS

        def cost(numbers, whole=whole):
            square = sum(numbers) if asked.pure else sum(each**2 for each in numbers)
            return (square / whole if asked.pure else square / (2 * whole**2)) * MEASURE

        assert cost(cells.values()) <= charged[who] <= cost(cells.values()) * Fraction(1 + 1e-9) + 2
        small += charged[who] > cost([each for group, each in cells.items() if None not in group]) + 2
    assert small == len(told) > 50


def test_a_shrunk_person_is_shrunk_alike_in_all_tables(tmp_path):
    """With a clip that shortens most people, exact tables agree but for whole steps, and nobody is longer than it."""
    asked = Count(by=BY, sets=SETS, clip=2, sigma=40.0)
    with opened(tmp_path / "a.ledger", ROWS) as session:
        sums, charged = exact(session, asked)
    parts, _ = asked.agreed([[each] for each in sums])
    assert np.allclose([each for (each,) in parts], sums, atol=60 * len(sums))
    assert max(charged.values()) <= asked.price
    assert isqrt(sum(each**2 for each in sums)) < 60 * 2 * STEPS


@PRICES
@pytest.mark.parametrize("kind", ["count", "sum", "mean", "variance", "several"])
def test_intervals_of_every_table_are_covered(tmp_path, kind, price):
    """By 95 % and not much more, through ledgers; with the noise that is left of single numbers twice, they fail."""
    hold = {"by": BY, "sets": SETS, "clip": 30, "at_most": 30, **price}
    if kind in ("mean", "variance"):
        hold |= {"per": "row", **({"sigma": 4.0} if "sigma" in price else {"epsilon": 1.0})}
    bounds = {"low": -4, "high": 8, "bounds_hold": True}
    asked = {
        "count": lambda: Count(**hold),
        "sum": lambda: Sum("x", **bounds, **hold),
        "mean": lambda: Mean("x", **bounds, **hold),
        "variance": lambda: Variance("x", **bounds, **hold),
        "several": lambda: Several({"n": "count", "p": "people", "s": {"ask": "sum", "column": "x", **bounds}}, **hold),
    }[kind]()
    budget = filters.Basic(epsilon=100.0) if asked.pure else filters.Zcdp(rho=1000.0)
    with opened(tmp_path / "a.ledger", ROWS, budget=budget) as session:
        sums, _ = exact(session, asked)
    truth = answer(asked, sums, "key", floor=asked.price).values
    told = narrow = shown = wide = 0
    for _ in range(40):
        size = asked.noise * STEPS
        noise = RANDOM.laplace(0, size, len(sums)) if asked.pure else RANDOM.normal(0, size, len(sums))
        found = answer(asked, [round(a + b) for a, b in zip(sums, noise, strict=True)], "key", floor=asked.price)
        assert kind in ("mean", "variance") or found.truth_intervals == found.intervals
        for (value, ends), group in zip(
            zip(found.values, found.intervals, strict=True), range(asked.groups), strict=True
        ):
            listed = zip(value, ends, truth[group], strict=True) if kind == "several" else [(value, ends, truth[group])]
            for middle, (low, high), true in listed:
                told, wide = told + (low <= true <= high), wide + 1
                if middle is not None:
                    half = (high - low) / 2 * 0.6
                    narrow, shown = narrow + (abs(middle - true) <= half), shown + 1
    assert told / wide > 0.93
    assert narrow / shown < 0.9
    if kind in ("count", "sum", "several") and not asked.pure:
        assert told / wide < 0.97


def test_numbers_of_people_are_as_they_were_released():
    """A person with two wards is in both: people do not add up, so nothing is made of their numbers."""
    people, each = People(by=BY, sets=SETS, sigma=9.0), {"n": "count()", "g": "max(g)", "d": "max(d)"}
    numbers = RANDOM.normal(0, 50, (20, 1)).tolist()
    assert people.agreed(numbers) == (numbers, [1.0] * 20)
    parts, left = People(by=BY, sets=SETS, each_person=each, sigma=9.0).agreed(numbers)  # one row each: they do
    assert parts[-1][0] == pytest.approx(sum(part[0] for part in parts[:12]))
    assert max(left) < 1
    mean = Mean("x", 0, 1, by=BY, sets=SETS, sigma=9.0)
    assert mean.agreed(RANDOM.normal(0, 1, (20, 2)).tolist())[1] == [1.0] * 20
    both = Several(SEVERAL, by=BY, sets=SETS, clip=3, where="x is not null", sigma=9.0)
    noisy = [RANDOM.normal(100, 9, 3).tolist() for _ in range(20)]
    place = [type(each).__name__ for each in both.row()].index("AnyRow")
    assert [each[place] for each in both.agreed(noisy)[0]] == [each[place] for each in noisy]
    ends = answer(both, [round(each * STEPS) for part in noisy for each in part], "key").intervals
    alone = both.spread * STEPS / both.steps * 1.96
    assert [(high - low) / 2 for _, (low, high), _ in ends] == pytest.approx([alone] * 20, rel=1e-4)
    assert all((high - low) / 2 < 0.9 * alone for (low, high), _, _ in ends)


def test_nobody_is_longer_than_a_full_row_for_each_of_theirs():
    """Where no clip is given, it is the longest there is: as long as one table's, in its largest."""
    assert People(by=BY, sets=SETS, sigma=1.0).clip == pytest.approx(sqrt(20 / 4))
    assert People(by=BY, sets=SETS, epsilon=1.0).clip == pytest.approx(20 / 4)
    assert Count(each_person={"g": "max(g)", "d": "max(d)"}, by=BY, sets=SETS, sigma=1.0).clip == 1


def test_it_is_recorded_and_shown(tmp_path):
    """A record keeps it as it is; tables have None where a column is not of theirs; ROLLUP says it in SQL."""
    asked = Several(SEVERAL, by=BY, sets=[["d", "g"], []], clip=30, sigma=9.0)
    assert question(described(asked)) == asked
    assert described(asked)["sets"] == [["d", "g"], []]
    assert "sets" not in described(Count(by=BY, clip=1, sigma=1.0))
    with opened(tmp_path / "a.ledger", ROWS, budget=filters.Zcdp(rho=100.0)) as session:
        ann = session.analyst("ann")
        found = ann.ask(asked, key="both")
        assert found.groups[-1] == (None, None) == found.groups[-1]
        assert found.columns(wide=True)["g"][-1] is None
        text = "SELECT g, d, count(*) AS n FROM data WHERE g IN ('a', 'b', 'c') AND d IN (0, 1) GROUP BY {} "
        text += "ORDER BY n DESC"
        rolled = ann.sql(text.format("ROLLUP (g, d)"), key="rolled", clip=30, rho=20)
        assert rolled.answer.question.sets == ((), ("g",), ("g", "d"))
        assert rolled.rows[0][:2] == (None, None)
        assert len(rolled.rows) == 1 + 3 + 6
        cubed = ann.sql(text.format("CUBE (g, d)"), key="cubed", clip=30, rho=20)
        assert len(cubed.rows) == 1 + 3 + 2 + 6
        total = ann.ask(Count(by={"g": ["a", "b"]}, sets=[["g"], []], clip=30, sigma=9.0), key="one")
        assert total.keys == ["a", "b"]
        assert total.difference("a", "b").value == pytest.approx(total.values[0] - total.values[1])
        for made in (total.running, total.shares):
            with pytest.raises(ArgumentError, match="without sets="):
                made()
        with pytest.raises(ArgumentError, match="stand in the last SELECT"):
            ann.sql("SELECT count(*) FROM (SELECT who, g FROM data GROUP BY ROLLUP (who, g))", key="in", rho=0.01)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Count(by=BY, sets=[["g"]], clip=1, sigma=1.0), "'d' must be a column of by=, of at most 8, and of"),
        (lambda: Count(by=BY, sets=[["g", "d"], ["h"]], clip=1, sigma=1.0), "'h' must be a column of by="),
        (lambda: Count(by=BY, sets=[["g", "d"], ["d", "g"]], clip=1, sigma=1.0), "each list once"),
        (lambda: Count(by=BY, sets=[], clip=1, sigma=1.0), "each list once"),
        (lambda: Count(by=BY, sets="gd", clip=1, sigma=1.0), "each list once"),
        (lambda: Count(by=BY, sets=3, clip=1, sigma=1.0), "lists of columns"),
        (lambda: Count(by=BY, sets=[["g", "d"], []], clip=1, error=5.0), "without error="),
        (lambda: Count(by=BY, sets=[["g", "d"], []], clip=1, per_group=1, sigma=1.0), "per_group="),
        (lambda: Histogram("x", (0, 1, 2), by=BY, sets=[["g", "d"], []], clip=1, sigma=1.0), "numbers and sums"),
        (lambda: Count(by={c: [1] for c in "abcdefghi"}, sets=[[*"abcdefghi"]], clip=1, rho=1), "of at most 8"),
    ],
)  # fmt: skip
def test_what_it_is_not_for_is_refused(made, words):
    """By words that say what is wanted."""
    with pytest.raises(ArgumentError, match=words):
        made()

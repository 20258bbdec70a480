"""All bounds side by side, as numbers and as text."""

import math

import pytest

from almoner import errors
from almoner import mechanisms as m
from almoner.accounting.compare import _strong, compare, optimum


@pytest.fixture(scope="module")
def table():
    """Gaussian mechanisms, all bounds that apply."""
    return compare(m.Gaussian(20.0), rounds=1000, delta=1e-5, points=2)


def test_every_bound_is_above_the_reference(table):
    """Nothing that holds under adaptivity is below the exact bound for rounds fixed in advance; all of them grow."""
    reference = table.bound("exact, rounds fixed in advance").epsilons
    assert table.rounds == (1, 1000)
    assert len(table.bounds) >= 20
    for bound in table.bounds:
        assert all(mine >= least * (1 - 1e-9) for mine, least in zip(bound.epsilons, reference, strict=True))
        assert bound.epsilons[0] <= bound.epsilons[-1] < math.inf


def test_the_order_of_the_bounds(table):
    """At the plan's end: exact, tuned ex-post, default ex-post, default pathwise, Lécuyer, Rogers."""
    names = ("exact, rounds fixed in advance", "odometers.Renyi, planned, ex-post", "odometers.Renyi, ex-post")
    names += ("odometers.Renyi", "odometers.Lecuyer", "odometers.Rogers")
    ends = [table.bound(name).epsilons[-1] for name in names]
    assert ends == sorted(ends)
    assert {bound.promise for bound in table.bounds} == {"fixed", "filter", "pathwise", "ex-post", "restarts"}


def test_only_what_applies():
    """Pure rounds have no Gaussian bounds; approximate ones no zCDP filter; nothing is made up."""
    pure = compare(m.Pure(0.1), rounds=20, delta=1e-6, points=1)
    names = [bound.name for bound in pure.bounds]
    assert "basic composition" in names
    assert "filters.Gaussian" not in names
    assert "odometers.GaussianRestarts, ten" not in names
    assert pure.bound("basic composition").epsilons[-1] == pytest.approx(2.0)
    with pytest.raises(errors.ArgumentError, match="must be one of"):
        pure.bound("filters.Gaussian")
    with pytest.raises(errors.ArgumentError):
        compare("gaussian", rounds=20, delta=1e-6)


def test_text_has_every_bound(table):
    """One line a bound under a heading."""
    lines = str(table).splitlines()
    assert len(lines) == len(table.bounds) + 2
    assert any(line.startswith("odometers.Renyi, ex-post") and "ex-post" in line for line in lines)


def test_more_rounds_than_a_plan_has():
    """Beyond 10**7 rounds there is no planned filter and no certificate; all other bounds are there, in own columns."""
    table = compare(m.Gaussian(1e5), rounds=10**9, delta=1e-5, points=1)
    names = [bound.name for bound in table.bounds]
    assert "filters.Planned" not in names
    assert table.bound("filters.Gaussian").epsilons[-1] < math.inf
    assert str(table).splitlines()[1].split() == ["promise", "1", "1000000000"]


def test_the_table_of_the_command_line_is_at_most_80_wide():
    """But for its heading, which names the mechanism."""
    for step in (m.SampledGaussian(1.0, 1.0, 0.01), m.Gaussian(20.0), m.Pure(0.1)):
        _, *lines = str(compare(step, rounds=1000, delta=1e-5, points=5)).splitlines()
        assert max(map(len, lines)) <= 80


def test_strong_composition_is_never_below_the_optimum():
    """Both printed bounds are at or above the exact epsilon of pure rounds; without their drift they would not be."""
    below = 0
    for epsilon in (1e-3, 0.01, 0.1, 0.5, 1.0, 3.0):
        for rounds in (1, 2, 10, 100, 10_000):
            for delta in (1e-12, 1e-6, 0.01, 0.4):
                least = optimum(m.Pure(epsilon), rounds, delta)
                dwork, kairouz = _strong(m.Pure(epsilon), rounds, delta)
                assert dwork >= least
                assert kairouz >= least
                below += epsilon * math.sqrt(2 * rounds * math.log(1 / delta)) < least
    assert below > 5


def test_strong_composition_stands_beside_the_others_and_counts_failures():
    """Rows of a table for pure rounds, and of rounds that may fail, which take their part of delta first."""
    table = compare(m.Pure(0.1), rounds=1000, delta=1e-6, points=1)
    dwork, kairouz, planned = (
        table.bound(name).epsilons[-1]
        for name in ("strong composition (Dwork et al.)", "strong composition (Kairouz)", "filters.Planned")
    )
    assert planned < kairouz < dwork == pytest.approx(0.1 * math.sqrt(2000 * math.log(1e6)) + 100 * math.expm1(0.1))
    fails = m.Approximate(0.1, 1e-9)
    assert _strong(fails, 999, 1e-6)[0] > _strong(m.Pure(0.1), 999, 1e-6)[0]
    assert _strong(fails, 1000, 1e-6) == (math.inf, math.inf)
    assert _strong(m.Pure(math.inf), 1, 1e-6) == (math.inf, math.inf)

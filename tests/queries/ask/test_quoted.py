"""Quotes say the price at most, and warn of truth intervals that a declaration makes wide; from public facts alone."""

import re

import pyarrow as pa
import pytest

from almoner import filters
from almoner.queries import Count, Histogram, Mean, People, Sum
from almoner.queries._ask.answer import answer
from almoner.queries._ask.quoted import quote
from sessions import opened

FEW = pa.table({"who": [n % 30 for n in range(90)], "n": [float(n % 5) for n in range(90)]})
MANY = pa.table({"who": [n % 300 for n in range(9000)], "n": [float(n % 7) for n in range(9000)]})


def warned(path, asked, data=FEW, budget=None):
    with opened(path, data, budget=budget or filters.Zcdp(rho=10.0)) as session:
        return session.analyst("ann").quote(asked).warning


@pytest.mark.parametrize("price", [{"rho": 0.02}, {"sigma": 2000.0}, {"epsilon": 0.02}])
def test_a_clip_that_gives_narrower_truth_intervals_is_named(path, price):
    """It does at the same price what the warning says, whatever the data are."""
    budget = filters.Basic(epsilon=3.0) if "epsilon" in price else None
    asked = Count(clip=1500, at_most=3000, report=0.1, **price)
    with opened(path, FEW, budget=budget or filters.Zcdp(rho=10.0)) as session:
        ann = session.analyst("ann")
        quoted = ann.quote(asked)
        own, clip, better = map(
            float, re.findall(r"\+- ([\d.e+]+).* clip=(\d+) at this price gives \+- ([\d.e+]+)", quoted.warning)[0]
        )
        assert better < 0.9 * own
        paid = {"epsilon": quoted.epsilon} if quoted.epsilon else {"rho": quoted.rho}
        again = Count(clip=clip, at_most=3000, report=0.1, **paid)
        for each, half in ((asked, own), (again, better)):
            low, high = answer(each, [0, 0], "key", floor=each.price).truth_interval  # noise of 0
            assert (high - low) / 2 == pytest.approx(half, rel=0.01)
    assert str(quoted).endswith(quoted.warning)


def test_the_data_change_no_word(path, tmp_path):
    """Two tables of other people give one warning."""
    asked = Count(clip=500, at_most=3000, rho=0.02)
    assert warned(path, asked) == warned(tmp_path / "other.ledger", asked, MANY) is not None


def test_an_earlier_answer_tells_that_they_are_too_wide(path):
    """It is named, since it is released."""
    asked = Count(clip=5, at_most=300, rho=0.02)
    with opened(path, FEW, budget=filters.Zcdp(rho=10.0)) as session:
        ann = session.analyst("ann")
        assert "earlier answer" not in ann.quote(asked).warning
        value = abs(ann.ask(asked, key="rows").value)
        assert f"more than the earlier answer of {value:.3g}, since at_most=300" in ann.quote(asked).warning


@pytest.mark.parametrize(
    "asked",
    [
        Count(clip=5, rho=0.1),
        Count(clip=250, at_most=300, rho=0.1),
        Count(clip=300, at_most=300, rho=0.1),
        Mean("n", 0, 5, per="row", clip=5, at_most=300, bounds_hold=True, rho=0.1),
        Sum("n", 0, 5, clip=5, at_most=300, rho=0.1),
    ],
)
def test_others_are_quoted_without_a_warning(path, asked):
    """No declaration, a clip near it, and answers whose width depends on the data."""
    assert warned(path, asked) is None


def test_bins_and_groups_are_warned_of_too(path):
    """Each number has an interval of that width."""
    assert "no clip" in warned(path, Histogram("n", [0, 2, 5], by={"who": [1, 2]}, clip=5, at_most=900, rho=0.02))


@pytest.mark.parametrize(
    ("asked", "price"),
    [
        (People(sigma=12.0), "rho = 0.00348,"),  # 0.0034722...
        (People(rho=0.3), "rho = 0.3,"),
        (People(epsilon=0.3), "epsilon = 0.3,"),
        (People(epsilon=0.30001), "epsilon = 0.301,"),
    ],
)
def test_a_quote_says_no_less_than_the_price(asked, price):
    """Three digits, rounded up; a price in few decimals is told as it is."""
    assert f"costs a person at most {price}" in str(quote(asked, 10**15, left=10**15))

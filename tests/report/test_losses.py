"""Each person's epsilon by several accountings, from norms."""

import numpy as np
import pytest

from almoner import individual
from almoner._units import shown
from almoner.errors import ArgumentError
from almoner.report.losses import from_norms, histogram, means, page, quantiles, side_by_side
from page_reader import Reader

RUN = {"noise_multiplier": 2.0, "sample_rate": 0.005, "delta": 1e-5}


@pytest.mark.slow
def test_equal_norms_may_be_given_once():
    """(people,) norms with a number of steps are (people, steps) norms that stay the same."""
    norms = np.array([1.0, 0.5, 0.0])
    once, each = from_norms(norms, steps=30, **RUN), from_norms(np.tile(norms[:, None], 30), **RUN)
    assert set(once) == {"privacy loss distributions", "Rényi"}
    for name in once:
        np.testing.assert_array_equal(once[name], each[name])
    assert once["Rényi"][2] == 0


@pytest.mark.slow
def test_norms_in_buckets_cost_no_less_than_exact_norms():
    """Rounding norms up to a bucket only raises an epsilon, and by little."""
    norms = np.array([0.9, 0.37, 0.05])
    bucketed = from_norms(norms, steps=1000, **RUN)["privacy loss distributions"]
    exact = individual.losses(np.diag([1000] * 3), 2.0 / norms, sample_rate=0.005, delta=1e-5)
    assert (bucketed >= exact).all()
    assert (bucketed <= 1.1 * exact).all()


@pytest.mark.slow
@pytest.mark.parametrize("norm", [np.nan, -1.0, np.inf])
def test_unknown_norms_are_an_infinite_epsilon(norm):
    """What is no norm is not counted as nothing."""
    epsilons = from_norms(np.array([1.0, norm]), steps=3, **RUN)
    for column in epsilons.values():
        assert np.isfinite(column[0])
        assert column[1] == np.inf


@pytest.mark.parametrize(
    ("norms", "steps"),
    [
        (np.ones(3), None),
        (np.ones((3, 2)), 5),
        (np.ones((2, 2, 2)), None),
        (np.ones(0), 5),
        (np.array(["a"]), 5),
        (np.ones(3), 0),
        (np.ma.masked_array(np.ones(3), [True, False, False]), 5),
    ],
)
def test_norms_of_no_known_shape_are_refused(norms, steps):
    """Shapes, types, masks and numbers of steps that have no one meaning."""
    with pytest.raises(ArgumentError):
        from_norms(norms, steps=steps, **RUN)


def test_quantiles_are_taken_from_above():
    """A quantile is a person's epsilon, never between two; groups follow all people."""
    rows = list(quantiles({"a": np.array([1.0, 2.0, 4.0])}, groups=["x", "y", "y"], levels=(0.4, 1.0)))
    assert [(name, group) for name, group, _ in rows] == [("a", None), ("a", "x"), ("a", "y")]
    assert [values.tolist() for _, _, values in rows] == [[2.0, 4.0], [1.0, 1.0], [4.0, 4.0]]


def test_means_are_of_all_people_and_of_each_group():
    """Rows in the order of the quantiles; a group with one person without a bound has none."""
    rows = list(means({"a": np.array([1.0, 2.0, 4.0]), "b": np.array([1.0, np.inf, 2.0])}, groups=["x", "y", "y"]))
    assert rows[:3] == [("a", None, 7 / 3), ("a", "x", 1.0), ("a", "y", 3.0)]
    assert rows[3:] == [("b", None, np.inf), ("b", "x", 1.0), ("b", "y", np.inf)]
    assert list(means({"a": np.array([1.0, 2.0])})) == [("a", None, 1.5)]


def test_side_by_side_bounds_are_in_order():
    """Privacy losses <= dominating Gaussian <= Rényi."""
    counts = np.array([[1000, 0], [0, 1000], [0, 0]])
    bounds = side_by_side(counts, [2.0, 4.0], sample_rate=0.005, delta=1e-5, dominating=True)
    exact, gauss, renyi = (bounds[name] for name in ("privacy loss distributions", "Gaussian", "Rényi"))
    assert (exact <= gauss).all()
    assert (gauss <= renyi).all()


def test_histograms_name_what_they_leave_out(tmp_path):
    """Infinite epsilons are counted in the title of their panel, colours are for groups, and the mark is there."""
    path = tmp_path / "picture.svg"
    histogram({"one": [1.0, np.inf], "two": [2.0, 3.0]}, path, groups=["a", "b"], title="here")
    text = path.read_text(encoding="utf-8")
    assert all(words in text for words in ("one (1 without a bound)", "here", "private: for the data holder"))
    for wrong in ({"one": [1.0], "two": [1.0, 2.0]}, {"one": [np.inf]}, {"one": [[1.0]]}):
        with pytest.raises(ArgumentError):
            histogram(wrong, path)


def columns_of(text):
    """The columns of a page's picture, where the dashed line stands, and the table of numbers below."""
    read = Reader(text)
    (picture,) = (named for named in read.all("svg") if named["class"] == "columns")
    heights = [float(each["height"]) for each in read.all("rect")]
    limit = [float(each["x1"].rstrip("%")) for each in read.all("line") if each.get("class") == "limit"]
    table = text[text.index("<details") : text.index("</details>")]
    cells = [data for tag, data in Reader(table + "</details>").texts if tag == "bdi"]
    return picture, heights, limit, {cells[k]: int(cells[k + 1].replace(",", "")) for k in range(0, len(cells), 2)}


def test_the_page_s_picture_counts_everybody_once():
    """Each finite epsilon is in one column, as high as its share; those without a bound are told beside it."""
    values = np.concatenate([np.repeat([0.05, 0.55, 1.0], [10, 20, 40]), [np.inf]])
    told = page({"one": values, "two": values}, delta=1e-5)
    picture, heights, limit, table = columns_of(told)
    assert len(heights) == 30
    assert sorted(table.values()) == [10, 20, 40]
    assert sum(table.values()) == 70
    tall = sorted(height for height in heights if height)
    assert tall[1] == pytest.approx(2 * tall[0], abs=0.02)
    assert tall[2] == pytest.approx(4 * tall[0], abs=0.03)
    assert limit == []
    assert picture["aria-label"] == "histogram of the epsilons of 70 people, from 0.05 to 1"
    text = Reader(told).text
    assert "1 person has no bound and is not in the picture." in text
    assert "The largest" in text
    assert "inf" not in text.split()


def test_the_page_says_which_run_it_is_of():
    """With noise, rate and steps the page describes the run, and a line that no column passes is its worst case."""
    epsilons = from_norms(np.array([1.0, 0.5, 0.0]), steps=1000, **RUN)
    told = page(epsilons, steps=1000, **RUN)
    worst = float(individual.losses([[1000]], [2.0], sample_rate=0.005, delta=1e-5)[0])
    assert f"Somebody who adds the whole clip to every step has epsilon {shown(worst, 4)}." in Reader(told).text
    _, heights, (limit,), _ = columns_of(told)
    wide = 81 / 30
    last = max(place for place, height in enumerate(heights) if height)
    assert 13 + wide * last <= limit <= 13 + wide * (last + 1)
    for words in ("People", "Sigma: noise, in clips", "Sampling rate", "Steps", "Delta"):
        assert f"<dt>{words}</dt>" in told


@pytest.mark.parametrize("value", [0.0, 1e-12, 3e7])
def test_the_page_draws_tiny_and_huge_epsilons(value):
    """Equal epsilons of any size are one column."""
    _, heights, _, table = columns_of(page({"one": np.full(5, value)}, delta=1e-5))
    assert sum(height > 0 for height in heights) == 1
    assert list(table.values()) == [5]


def test_a_page_where_nobody_has_a_bound():
    """There is no picture, and the page says why."""
    told = page({"one": np.full(2, np.inf)}, delta=1e-5, noise_multiplier=1.0, sample_rate=1.0, steps=1)
    assert "2 people have no bound and are not in the picture." in told
    assert "<svg" not in told

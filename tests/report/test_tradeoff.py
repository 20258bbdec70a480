"""Pictures of trade-off functions."""

import pytest

from almoner import filters, mechanisms
from almoner.curves import tradeoff
from almoner.errors import ArgumentError
from almoner.report import figures


def test_curves_are_drawn_side_by_side(tmp_path):
    """A mechanism, a composition and a budget in one picture, with their names and the title as text."""
    curves = {
        "one response": tradeoff.of(mechanisms.RandomizedResponse(1.0)),
        "ten sums": tradeoff.of(mechanisms.Repeated(mechanisms.Gaussian(5.0), 10)),
        "the budget": filters.Gaussian(epsilon=1.0, delta=1e-5).tradeoff(),
    }
    path = tmp_path / "tradeoff.svg"
    figures.tradeoff(curves, path, title="what an attack can do")
    assert path.stat().st_size > 10_000
    with pytest.raises(ArgumentError, match="curves"):
        figures.tradeoff({}, path)

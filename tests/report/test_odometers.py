"""The picture of a comparison."""

import pytest

from almoner.accounting.compare import Bound, Comparison
from almoner.mechanisms import Gaussian
from almoner.report import figures

BOUNDS = (
    Bound("exact", "fixed", (1.0, 2.0)),
    Bound("a filter", "filter", (1.5, 3.0)),
    Bound("restarts", "restarts", (2.0, 4.0)),
    Bound("an odometer", "pathwise", (2.0, 5.0)),
)


@pytest.mark.parametrize("bounds", [BOUNDS, BOUNDS[:1], BOUNDS[1:2], ()])
def test_every_bound_is_in_the_legend(tmp_path, bounds):
    """A panel for each promise that occurs, whatever is missing; the title is the mechanism's unless one is given."""
    path = tmp_path / "bounds.svg"
    figures.bounds(Comparison(Gaussian(20.0), 1e-5, (1, 10), bounds), path)
    text = path.read_text(encoding="utf-8")
    assert all(bound.name in text for bound in bounds if bound.promise != "fixed")
    assert "sigma=20.0" in text
    figures.bounds(Comparison(Gaussian(20.0), 1e-5, (1, 10), bounds), path, title="mine")
    assert "mine" in path.read_text(encoding="utf-8")

"""The table of docs/filters.md says what the filters admit: a few of its cells, counted again."""

from pathlib import Path

import pytest

from almoner import filters
from almoner.accounting import calibrate
from almoner.mechanisms import Pure, SampledGaussian

PAGE = (Path(__file__).parents[2] / "docs" / "filters.md").read_text(encoding="utf-8")


def cells(name, epsilon):
    """The cells of one line of the table, by the names of their columns."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")
    ]
    head = next(line for line in lines if "fixed in advance" in line)
    return next(dict(zip(head, line, strict=True)) for line in lines if line[:2] == [name, epsilon])


@pytest.mark.parametrize(
    ("name", "epsilon", "plan"),
    [
        ("noise 0.8, rate 0.01", "2", SampledGaussian(0.8, 1.0, 0.01)),
        ("noise 0.6, rate 0.001", "1", SampledGaussian(0.6, 1.0, 0.001)),
        ("pure, epsilon 0.01", "1", Pure(0.01)),
    ],
)
def test_the_table_says_what_the_filters_admit(name, epsilon, plan):
    """Planned, Residue, Renyi with the plan, and the one that is recommended."""
    said, budget = cells(name, epsilon), {"epsilon": float(epsilon), "delta": 1e-5}
    budgets = {
        "Planned": filters.Planned(plan, **budget),
        "Residue": filters.Residue(**budget),
        "Renyi, plan": filters.Renyi(**budget, plan=plan),
    }
    for column, account in budgets.items():
        assert said[column] == f"{calibrate.steps(account, plan):,}"
    assert said["recommended"] == type(filters.recommend(**budget, plan=plan).budget).__name__
    assert int(said["Planned"].replace(",", "")) >= 0.99 * int(said["fixed in advance"].replace(",", ""))

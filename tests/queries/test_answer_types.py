"""The type of an answer follows from the question, for type checkers too: `make types` reads this file."""

from pathlib import Path
from typing import Any, assert_type

import pytest

from almoner import filters, queries
from almoner.ledger import Terms

Q = queries.Quantiles
ROWS = "who,x,y,word\n" + "".join(f"p{n},{n % 7},{n % 3},{'ab'[n % 2]}\n" for n in range(600))


def test_values_have_the_types_that_are_told(tmp_path: Path) -> None:
    """Each kind's value is what its type says: a type checker and the answer agree."""
    pytest.importorskip("duckdb")
    (tmp_path / "rows.csv").write_text(ROWS, encoding="utf-8")
    table = queries.Table(str(tmp_path / "rows.csv"), types={"x": "number", "y": "number"})
    budget = Terms(filters.Zcdp(epsilon=30.0, delta=1e-6), keys_delta=1e-7)
    with queries.Session.open(table, person="who", budget=budget, ledger=tmp_path / "a.ledger", create=True) as session:
        ann, box = session.analyst("ann", purpose="types"), {"x": (0.0, 7.0), "y": (0.0, 3.0)}
        count = ann.ask(queries.Count(clip=1, sigma=2.0), key="count").value
        people = ann.ask(queries.People(sigma=2.0), key="people").value
        total = ann.ask(queries.Sum("x", low=0, high=7, clip=7, sigma=9.0), key="sum").value
        mean = ann.ask(queries.Mean("x", low=0, high=7, clip=1, sigma=2.0), key="mean").value
        distinct = ann.ask(queries.Distinct("word", most=1, sigma=2.0), key="distinct").value
        bins = ann.ask(queries.Histogram("x", (0, 3, 7), clip=1, sigma=2.0), key="bins").value
        levels = ann.ask(Q("x", (0, 3, 7), (0.5,), clip=1, sigma=2.0), key="levels").value
        top = ann.ask(queries.Top(1, "word", among=("a", "b"), clip=1, sigma=2.0), key="top").value
        matrix = ann.ask(queries.Covariance(columns=box, clip=1, sigma=2.0), key="matrix").value
        line = ann.ask(queries.Regression("y", columns=box, clip=1, sigma=2.0), key="line").value
        keys = ann.ask(queries.Keys("word", delta=1e-8, sigma=2.0), key="keys").value
    assert_type((count, people, total, mean, distinct), tuple[float, float, float, float | None, float])
    assert_type((bins, levels, top), tuple[list[float], list[float], list[tuple[Any, float]]])
    assert_type((matrix, line, keys), tuple[list[list[float]] | None, list[float] | None, float])
    assert {type(each) for each in (count, people, total, mean, distinct, keys, *bins, *levels)} == {float}
    assert matrix is not None
    assert line is not None
    assert {type(each) for each in (*matrix[0], *line, top[0][1])} == {float}

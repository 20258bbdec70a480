"""Totals of the same people, period after period: who is missing when budgets run out, and what answers say of it.

    python experiments/queries/streams.py [--ledgers 10]
    python experiments/queries/streams.py --quick    # a year of MovieLens, once; writes nothing

Two streams: the revenue of each of 53 weeks in Online Retail (a person's week clipped to 2000, noise of 5 % of a mean
week), and the people who rated films in each of 267 months in MovieLens latest-small. Each is asked in fresh ledgers
in three ways: people who cannot pay are left out (pace=None), spend what remains (pace=1), or pay at most what is left
over the number of periods to come (paced). Truth is the total of all people, clipped as the question says. Prints the
result as JSON and writes experiments/results/query_streams.json; the true totals would be private for other data.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute

from almoner import filters
from almoner._workspace import duckdb
from almoner.queries import People, Question, Session, Sum

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from data_sets import folder  # noqa: E402

EPSILON, DELTA = 2.0, 1e-6
WAYS = {"left out": None, "remainder": 1, "paced": "rest"}


def retail() -> pa.Table:
    """(person, period, amount): what each customer of Online Retail bought in each week."""
    return _table(
        folder("online_retail") / "online_retail.csv.gz",
        "SELECT TRY_CAST(CustomerID AS BIGINT) AS person, "
        "CAST(floor(date_diff('day', DATE '2010-12-01', CAST(InvoiceDate AS DATE)) / 7) AS BIGINT) AS period, "
        "sum(Quantity * UnitPrice) AS amount FROM data WHERE Quantity > 0 AND CustomerID IS NOT NULL "
        "AND CAST(InvoiceDate AS DATE) < DATE '2010-12-01' + 371 GROUP BY ALL",
    )


def movielens() -> pa.Table:
    """(person, period, amount): the months in which each person of MovieLens rated films."""
    return _table(
        folder("movielens_latest_small") / "ratings.csv.gz",
        "SELECT userId AS person, CAST(date_diff('month', DATE '1996-03-01', CAST(to_timestamp(timestamp) AS DATE)) "
        "AS BIGINT) AS period, CAST(1 AS DOUBLE) AS amount FROM data GROUP BY ALL",
    )


def _table(path: Path, sql: str) -> pa.Table:
    with duckdb().connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW data AS SELECT * FROM read_csv('{path}', ignore_errors = true)")
        return connection.sql(f"SELECT * FROM ({sql}) WHERE person IS NOT NULL ORDER BY ALL").to_arrow_table()


def revenue(period: int, sigma: float, pace: int | None) -> Question:
    """A week's revenue, each person's clipped to 2000."""
    return Sum("amount", 0, 2000, where=f"period = {period}", clip=1, sigma=sigma, pace=pace)


def visitors(period: int, sigma: float, pace: int | None) -> Question:
    """A month's people."""
    return People(where=f"period = {period}", clip=1, sigma=sigma, pace=pace)


def truths(rows: pa.Table, most: float) -> np.ndarray:
    """The clipped total of each period."""
    amounts = np.clip(rows["amount"].to_numpy(), 0, most)
    return np.bincount(rows["period"].to_numpy(), amounts)


def asked(
    rows: pa.Table, ask: Callable[[int, float, int | None], Question], sigma: float, way: int | str | None
) -> list[dict[str, float]]:
    """One question for each period, in a fresh ledger: value, interval, and the share of the clip that is certain."""
    periods = int(rows["period"].to_numpy().max()) + 1
    answers = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Session.open(
            rows,
            person="person",
            budget=filters.Zcdp(epsilon=EPSILON, delta=DELTA),
            ledger=Path(folder) / "people.ledger",
            create=True,
        ) as session,
    ):
        analyst = session.analyst("ann", purpose="figures")
        for period in range(periods):
            pace = periods - period if isinstance(way, str) else way
            question = ask(period, sigma, pace)
            answer = analyst.ask(question, key=str(period), anyway=True)
            low, high = answer.interval
            certain = (answer.complete_clip or 0) / question.clip
            answers.append({"value": answer.value, "low": low, "high": high, "certain": certain})
    return answers


def judged(ledgers: list[list[dict[str, float]]], truth: np.ndarray) -> dict[str, list[float]]:
    """By quarter of the periods: error of the total, share of intervals that cover, certain share of the clip."""
    fields = {
        name: np.array([[answer[name] for answer in answers] for answers in ledgers])
        for name in ("value", "low", "high", "certain")
    }
    covers = (fields["low"] <= truth) & (truth <= fields["high"])
    quarters = np.array_split(np.arange(len(truth)), 4)
    return {
        "mean error of answers": [
            round(float(fields["value"][:, q].sum() / len(ledgers) / truth[q].sum() - 1), 4) for q in quarters
        ],
        "share of noise intervals that cover": [round(float(covers[:, q].mean()), 3) for q in quarters],
        "answers that say that nobody is shrunk": [
            round(float((fields["certain"][:, q] >= 1).mean()), 3) for q in quarters
        ],
        "certain clip as a share of the clip, at least": [
            round(float(fields["certain"][:, q].min()), 4) for q in quarters
        ],
    }


def measured(
    rows: pa.Table,
    ask: Callable[[int, float, int | None], Question],
    most: float,
    sigma: Callable[[np.ndarray], float],
    ledgers: int,
) -> dict[str, object]:
    """A stream in each of the three ways."""
    truth = truths(rows, most)
    noise = sigma(truth)
    price = ask(0, noise, None).price
    result: dict[str, object] = {
        "periods": len(truth),
        "people": len(set(rows["person"].to_pylist())),
        "sigma as a share of the mean period": round(noise * most / float(truth.mean()), 4),
        "questions that a worst-case filter answers": int(
            filters.Zcdp(epsilon=EPSILON, delta=DELTA).notion.person_limits()[0] // price
        ),
    }
    for name, way in WAYS.items():
        result[name] = judged([asked(rows, ask, noise, way) for _ in range(ledgers)], truth)
    return result


def streams(ledgers: int) -> Mapping[str, object]:
    """Both streams."""
    return {
        "Online Retail, revenue a week": measured(
            retail(), revenue, 2000.0, lambda truth: 0.05 * float(truth.mean()) / 2000, ledgers
        ),
        "MovieLens, people a month": measured(
            movielens(), visitors, 1.0, lambda truth: 1.2 * float(truth.mean()), ledgers
        ),
    }


def main() -> None:
    """Run, write and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ledgers", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="a year of MovieLens, once; writes nothing")
    given = parser.parse_args()
    if given.quick:
        rows = movielens()
        year = rows.filter(pa.compute.less(rows["period"], 12))
        print(json.dumps(measured(year, visitors, 1.0, lambda truth: 1.2 * float(truth.mean()), 1), indent=1))
        return
    result = {"epsilon": EPSILON, "delta": DELTA, "ledgers": given.ledgers, **streams(given.ledgers)}
    (HERE.parent / "results" / "query_streams.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

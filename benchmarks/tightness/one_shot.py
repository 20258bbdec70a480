"""Compare the error of one question with OpenDP's context API and with PipelineDP, at the same epsilon.

python benchmarks/tightness/one_shot.py [--runs 100] [--peer-runs 10] [--peers /path/to/python]

MovieLens, epsilon = 1, the whole budget for one question: people, ratings (at most 50 of a person), their sum and their
mean. Every library is told the same public facts: at most 50 ratings of a person, ratings from 0 to 5. Printed are the
standard deviation of the answers and their root mean squared error from the truth without any bound. Almoner's budget
is what `queries.recommend` says for one question. The peers run in an environment of their own (--peers: its Python).
OpenDP 0.16 needs Polars 1.36.1, PipelineDP 0.3.1 nothing special. Data sets are looked for in the folder ALMONER_DATA.
"""

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from math import sqrt
from pathlib import Path
from statistics import fmean, pstdev
from tempfile import TemporaryDirectory

FILE = Path(os.environ.get("ALMONER_DATA", "../shared/data")) / "movielens_latest_small" / "ratings.csv.gz"
MOST, HIGH = 50, 5.0
ASKED = ("people", "count", "sum", "mean")
PEERS = ("opendp", "pipelinedp")
DELTA = 1e-6


def rows() -> list[tuple[int, float]]:
    """(Person, rating) of each rating."""
    with gzip.open(FILE, "rt", encoding="utf-8", newline="") as file:
        return [(int(row["userId"]), float(row["rating"])) for row in csv.DictReader(file)]


def almoner(runs: int) -> dict[str, list[float]]:
    """Answers of Almoner."""
    import pyarrow as pa

    from almoner import filters, queries

    best = queries.recommend(epsilon=1.0, delta=DELTA, questions=1).budget
    if not isinstance(best, filters.Basic):
        raise SystemExit("the recommended budget is no longer pure: measure with that")
    people, ratings = zip(*rows(), strict=True)
    questions = {
        "people": queries.People(epsilon=1.0),
        "count": queries.Count(clip=MOST, epsilon=1.0),
        "sum": queries.Sum("x", 0, HIGH, clip=MOST, epsilon=1.0),
        "mean": queries.Mean("x", 0, HIGH, per="row", clip=MOST, epsilon=1.0),
    }
    table = pa.table({"who": people, "x": ratings})
    with (  # each run has an epsilon of 1 to itself; one ledger holds them all
        TemporaryDirectory() as folder,
        queries.Session.open(
            table, person="who", budget=filters.Basic(epsilon=4.0 * runs + 1), ledger=Path(folder) / "l", create=True
        ) as session,
    ):
        ann = session.analyst("ann")
        return {
            name: [ann.ask(asked, key=f"{name} {run}").value for run in range(runs)]
            for name, asked in questions.items()
        }


def opendp(runs: int) -> dict[str, list[float]]:
    """Answers of OpenDP's context API."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    people, ratings = zip(*rows(), strict=True)
    frame = pl.LazyFrame({"who": people, "x": ratings})
    context = dp.Context.compositor(
        data=frame,
        privacy_unit=dp.unit_of(contributions=1, identifier=pl.col("who")),
        privacy_loss=dp.loss_of(epsilon=1.0 * 4 * runs),
        split_evenly_over=4 * runs,
        margins=[dp.polars.Margin(max_length=200_000)],
    )
    column = pl.col("x").dp
    queries: dict[str, Callable[[], object]] = {
        "people": lambda: context.query().truncate_per_group(1).select(dp.len()),
        "count": lambda: context.query().truncate_per_group(MOST).select(dp.len()),
        "sum": lambda: context.query().truncate_per_group(MOST).select(column.sum((0.0, HIGH))),
        "mean": lambda: context.query().truncate_per_group(MOST).select(column.mean((0.0, HIGH))),
    }
    return {name: [float(ask().release().collect().item()) for _ in range(runs)] for name, ask in queries.items()}


def pipelinedp(runs: int) -> dict[str, list[float]]:
    """Answers of PipelineDP, with Laplace noise."""
    import pipeline_dp

    data, metrics = rows(), pipeline_dp.Metrics

    def ask(metric: object, most: int) -> float:
        accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=DELTA)
        engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
        parameters = pipeline_dp.AggregateParams(
            metrics=[metric],
            noise_kind=pipeline_dp.NoiseKind.LAPLACE,
            max_partitions_contributed=1,
            max_contributions_per_partition=most,
            min_value=0.0,
            max_value=HIGH,
        )
        extractors = pipeline_dp.DataExtractors(
            privacy_id_extractor=lambda row: row[0],
            partition_extractor=lambda _: 0,
            value_extractor=lambda row: row[1],
        )
        lazy = engine.aggregate(data, parameters, extractors, public_partitions=[0])
        accountant.compute_budgets()
        return float(next(iter(lazy))[1][0])

    wanted = {"people": (metrics.PRIVACY_ID_COUNT, 1), "count": (metrics.COUNT, MOST)}
    wanted |= {"sum": (metrics.SUM, MOST), "mean": (metrics.MEAN, MOST)}
    return {name: [ask(metric, most) for _ in range(runs)] for name, (metric, most) in wanted.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--peer-runs", type=int, default=10)
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--one", choices=PEERS, help="run this peer here, and print its answers")
    options = parser.parse_args()
    if options.one:
        print(json.dumps({"opendp": opendp, "pipelinedp": pipelinedp}[options.one](options.peer_runs)))
        return
    answers = {"almoner": almoner(options.runs)}
    for peer in PEERS:
        command = [options.peers, __file__, "--one", peer, "--peer-runs", str(options.peer_runs)]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            print(f"{peer} does not run: {run.stderr.strip().splitlines()[-1]}")
            continue
        answers[peer] = json.loads(run.stdout.splitlines()[-1])
    ratings = [rating for _, rating in rows()]
    truth = {"people": len({person for person, _ in rows()}), "count": len(ratings), "sum": sum(ratings)}
    truth["mean"] = fmean(ratings)
    for name in ASKED:
        for who, told in answers.items():
            error = sqrt(fmean((value - truth[name]) ** 2 for value in told[name]))
            print(f"{name:7} {who:11} standard deviation {pstdev(told[name]):10.4g}   error {error:10.4g}")


if __name__ == "__main__":
    main()

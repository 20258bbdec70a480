"""Measure clip="auto" against the best fixed clip in hindsight, its price included.

python benchmarks/tightness/auto_clip.py [--seeds 30] [--out results.json]

For each data set and question it asks, as so many analysts, with all of a budget of epsilon = 1 (delta = 1e-6; and
pure), and prints the mean squared error (what the chosen clip cuts off, squared, plus the variance of the noise at the
price that the choice leaves) as a multiple of that of the best fixed clip, which an analyst could only know from the
data. With --out, cases that are in the file are not run again. Data sets are looked for in the folder ALMONER_DATA.
"""

import argparse
import json
import os
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import numpy as np
import pyarrow as pa

from almoner import filters
from almoner.curves import gaussian
from almoner.queries import Count, Question, Session, Sum

DATA = Path(os.environ.get("ALMONER_DATA", "../shared/data"))
TABLES = {
    "Online Retail": "SELECT CAST(CustomerID AS BIGINT) AS who, Quantity * UnitPrice AS x FROM "
    "'{data}/online_retail/online_retail.csv.gz' WHERE CustomerID IS NOT NULL",
    "MovieLens": "SELECT userId AS who, rating AS x FROM '{data}/movielens_latest_small/ratings.csv.gz'",
    "diabetes130": "SELECT patient_nbr AS who, CAST(time_in_hospital AS DOUBLE) AS x FROM "
    "'{data}/diabetes130/diabetic_data.csv.gz'",
    "RAND HIE": "SELECT CAST(zper AS BIGINT) AS who, CAST(meddol AS DOUBLE) AS x FROM '{data}/rand_hie/randhie.csv.gz'",
}
SUMS = {"Online Retail": (0, 1000), "MovieLens": (0, 5), "diabetes130": (0, 14), "RAND HIE": (0, 1000)}


def lengths_of(table: pa.Table, bounds: tuple[float, float] | None) -> np.ndarray:
    """What each person contributes, in full rows, unclipped."""
    who = np.unique(table["who"].to_numpy(), return_inverse=True)[1]
    rows = np.ones(len(who)) if bounds is None else np.clip(table["x"].to_numpy(), *bounds) / bounds[1]
    return np.bincount(who, rows)


def error(lengths: np.ndarray, clip: float, noise: float) -> float:
    """Mean squared error with a clip, in full rows."""
    return float(np.maximum(lengths - clip, 0).sum() ** 2 + noise**2)


def best(lengths: np.ndarray, noise: float) -> tuple[float, float]:
    """(The best fixed clip, its mean squared error); ``noise`` is for a clip of 1."""
    clips = np.unique(np.concatenate([np.geomspace(1e-2, lengths.max(), 2000), np.unique(lengths)[-2000:]]))
    errors = [error(lengths, clip, noise * clip) for clip in clips]
    place = int(np.argmin(errors))
    return float(clips[place]), errors[place]


def measure(table: pa.Table, bounds: tuple[float, float] | None, *, pure: bool, seeds: int) -> dict[str, float]:
    """The ratio of errors, and which clips were chosen."""
    mu = gaussian.mu(epsilon=1.0, delta=1e-6)
    budget = filters.Basic(epsilon=9000.0) if pure else filters.Gaussian(mu=100.0)
    price = {"epsilon": 1.0} if pure else {"rho": mu**2 / 2}
    asked: Question = Count(clip="auto", **price) if bounds is None else Sum("x", *bounds, clip="auto", **price)
    lengths = lengths_of(table, bounds)
    clip, least = best(lengths, sqrt(2) if pure else 1 / mu)
    ratios, clips = [], []
    with (
        TemporaryDirectory() as folder,
        Session.open(table, person="who", budget=budget, ledger=Path(folder) / "l", create=True) as session,
    ):
        for seed in range(seeds):  # each analyst pays for a choice of their own
            answer = session.analyst(f"analyst {seed}").ask(asked, key=f"{seed}")
            ratios.append(error(lengths, answer.question.clip, answer.question.spread) / least)
            clips.append(answer.question.clip / clip)
    low, middle, high = np.quantile(clips, (0.1, 0.5, 0.9))
    return {
        "ratio": float(np.mean(ratios)),
        "worst": max(ratios),
        "best clip": clip,
        "clip, 10 %": float(low),
        "clip, median": float(middle),
        "clip, 90 %": float(high),
    }


def main() -> None:
    """Measure what is missing, and print all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results = json.loads(options.out.read_text()) if options.out and options.out.exists() else {}
    for name, sql in TABLES.items():
        table = duckdb.sql(sql.format(data=DATA)).arrow().read_all()
        for bounds in (None, SUMS[name]):
            for pure in (False, True):
                case = f"{name}, {'count' if bounds is None else 'sum'}, {'pure' if pure else 'Gaussian'}"
                if case not in results:
                    results[case] = measure(table, bounds, pure=pure, seeds=options.seeds)
                    if options.out:
                        options.out.write_text(json.dumps(results, indent=1))
                print(case, {key: round(float(value), 2) for key, value in results[case].items()}, flush=True)


if __name__ == "__main__":
    main()

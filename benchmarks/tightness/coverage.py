"""Measure how many truth intervals of answers hold the truth: real sessions, ledgers and noise, all kinds of questions.

Each answer is asked under a key of its own, charged to a ledger of many answers, and drawn by the library. Declared:
the bounds of columns, and at_most = the most rows of a person. The truth is computed by NumPy, without a clip. Cases
that are in the file of --out are not asked again.
Run: ALMONER_DATA=/folder python benchmarks/tightness/coverage.py --out docs/experiments/coverage.json
"""

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa

from almoner import filters
from almoner.queries import (
    Answer,
    Count,
    Covariance,
    Distinct,
    Histogram,
    Mean,
    People,
    Quantiles,
    Question,
    Ratio,
    Regression,
    Session,
    Several,
    Sql,
    Sum,
    Top,
    Variance,
)

SOURCES = {
    "hie": ("rand_hie/randhie.csv.gz", "zper", "CAST(mdvis AS DOUBLE)", "CAST(mdvis AS DOUBLE) > 0", "year"),
    "movielens": (
        "movielens_latest_small/ratings.csv.gz",
        "userId",
        "CAST(rating AS DOUBLE)",
        "CAST(rating AS DOUBLE) >= 4",
        "CAST(movieId AS BIGINT) % 4 + 1",
    ),
    "diabetes": (
        "diabetes130/diabetic_data.csv.gz",
        "patient_nbr",
        "CAST(time_in_hospital AS DOUBLE)",
        "readmitted = '<30'",
        "CAST(admission_type_id AS BIGINT) % 4 + 1",
    ),
}
BOUNDS = {"hie": (0, 77, 1), "movielens": (0.5, 5, 0.5), "diabetes": (1, 14, 1)}
"""Of v: lowest, highest, step."""
Truth = Any  # as the answer's truth_intervals of a group or of all, or what gives it for an answer


class Data(NamedTuple):
    """Rows, by column: who they are of, a number, a truth as 0 or 1, one of the keys; and what is public of them."""

    who: np.ndarray
    v: np.ndarray
    r: np.ndarray
    g: np.ndarray
    bounds: tuple[float, float, float]
    most: int

    def table(self) -> pa.Table:
        """The rows for a session."""
        columns = {"who": self.who, "v": self.v, "r": self.r, "g": self.g.astype(np.int64)}
        return pa.table(columns | {"n": self.v.round().astype(np.int64), "p": self.r == 1})


def data(folder: Path, name: str) -> Data:
    """One of the data sets."""
    path, who, *columns = SOURCES[name]
    named = ", ".join(f"{sql} AS {as_}" for sql, as_ in zip(columns, ("v", "r", "g"), strict=True))
    sql = f"SELECT {who} AS who, {named} FROM read_csv('{folder / path}', all_varchar=true)"
    sql = f"SELECT CAST(CAST(who AS DOUBLE) AS BIGINT), v, CAST(r AS DOUBLE), CAST(g AS BIGINT) FROM ({sql})"
    who, v, r, g = (np.array(each) for each in duckdb.sql(sql).fetchnumpy().values())
    return Data(who, v, r, g, BOUNDS[name], int(np.unique(who, return_counts=True)[1].max()))


def quantile(values: np.ndarray, level: float, weights: np.ndarray | None = None) -> float:
    """The least value at or below which there is this share of the weight."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(np.ones(len(values)) if weights is None else weights[order])
    return float(values[order][np.searchsorted(below, level * below[-1] * (1 - 1e-12))])


def cases(rows: Data, price: dict[str, float]) -> Iterator[tuple[str, Question, Truth]]:
    """Each kind of question, with its truth: with clips that change nothing, or of two thirds of the longest person."""
    who, v, r, g, (low, high, step), most = rows
    place, lengths = np.unique(who, return_inverse=True, return_counts=True)[1:]
    total, square = (np.bincount(place, weights=each) for each in (v, v * v))
    rate, keys = np.bincount(place, weights=r), [1, 2, 3, 4]
    whole, bounds = {"clip": most, "at_most": most, **price}, (low, high)
    clipped = {**whole, "clip": max(1, most * 2 / 3)}
    hold, row = {"bounds_hold": True}, {"bounds_hold": True, "per": "row"}
    edges = np.arange(low - step / 2, high + step, step)
    top = float(ceil(high * most))
    weights = (1 / lengths)[place]
    by = {"g": keys}
    yield "people", People(**price), len(lengths)
    yield "people by key", People(by=by, **price), [len(np.unique(who[g == key])) for key in keys]
    yield "count", Count(**whole), len(v)
    yield "count, clipped", Count(**clipped), len(v)
    yield "count by key, clipped", Count(by=by, **clipped), [int((g == key).sum()) for key in keys]
    yield "count where", Count(where="r = 1 and v >= 2", **whole), int(((r == 1) & (v >= 2)).sum())
    yield "sum", Sum("v", low, high, **hold, **whole), v.sum()
    yield "sum, clipped", Sum("v", low, high, **hold, **clipped), v.sum()
    yield "mean per person", Mean("v", low, high, **hold, **price), (total / lengths).mean()
    yield "mean per row", Mean("v", low, high, **row, **whole), v.mean()
    yield "mean per row, clipped", Mean("v", low, high, **row, **clipped), v.mean()
    yield "mean of totals", Mean("v", 0, top, **hold, per="total", **price), total.mean()
    yield "rate per person", Mean("p", 0, 1, **price), (rate / lengths).mean()
    yield "rate per row, clipped", Mean("p", 0, 1, **row, **clipped), r.mean()
    within = (square / lengths).mean() - (total / lengths).mean() ** 2
    yield "variance per person", Variance("v", low, high, **hold, **price), within
    yield "variance per row, clipped", Variance("v", low, high, **row, **clipped), v.var()
    yield "variance of totals", Variance("v", 0, top, **hold, per="total", **price), total.var()
    yield "ratio of counts, clipped", Ratio(numerator_where="r = 1", **clipped), r.mean()
    parts = {"numerator_bounds": (0, 1), "denominator_bounds": bounds}
    yield "ratio of sums", Ratio("r", "v", **parts, **hold, **whole), r.sum() / v.sum()
    yield (
        "histogram",
        Histogram("v", edges[:8], **whole),
        np.histogram(np.clip(v, *edges[[0, 7]]), edges[:8])[0].tolist(),
    )
    few = np.linspace(low - step / 2, high + step / 2, 9)
    read = {"step": step, **hold}
    middle = quantile(v, 0.5, weights)
    yield "median per person, counts", Quantiles("v", few, **read, chosen=0, **price), [middle]
    yield "median per row, clipped", Quantiles("v", few, per="row", **read, **clipped), [quantile(v, 0.5)]
    fine = np.linspace(0, top, 400)
    levels = [0.25, 0.5, 0.9]
    totals = [quantile(total, level) for level in levels]
    yield "median of totals, chosen", Quantiles("v", fine, per="total", **hold, **price), [quantile(total, 0.5)]
    yield "three quantiles, chosen", Quantiles("v", fine, levels, per="total", **hold, **price), totals
    of = {key: int((g == key).sum()) for key in keys}
    yield "top two keys", Top(2, "g", keys, count="rows", **whole), lambda told: [of[key] for key, _ in told.value]
    yield "different values", Distinct("n", min(most, 100), at_most=min(most, 100), **price), len(np.unique(v.round()))
    pair = {"v": bounds, "r": (0, 1)}
    moments = np.cov(np.array([v, r]), bias=True)
    yield "covariance", Covariance(pair, **hold, **whole), moments.tolist()
    slope = moments[0, 1] / moments[1, 1]
    yield "regression", Regression("v", pair, **hold, **whole), [v.mean() - slope * r.mean(), slope]
    column = {"column": "v", "low": low, "high": high, **row}
    both = {"rows": "count", "people": "people", "sum": {**column, "ask": "sum"}, "mean": {**column, "ask": "mean"}}
    del both["sum"]["per"]
    told = [len(v), len(lengths), v.sum(), v.mean()]
    yield "several", Several(both, **whole), told
    both["variance"] = {**column, "ask": "variance"}
    yield "several, clipped", Several(both, **clipped), [*told, v.var()]
    by_key = [[int((g == key).sum()), v[g == key].mean()] for key in keys]
    told_by = {"by": by, "bounds": {"v": bounds}, **hold, **whole}
    yield "SQL by key", Sql("SELECT g, count(*), avg(v) FROM data GROUP BY g", **told_by), by_key
    yield "each person's step", Mean("s", 0, top, each_person={"s": "sum(v)"}, **hold, **price), total.mean()
    pairs = np.unique(np.stack([place, g]), axis=1)[0]
    own = {"clip": int(np.bincount(pairs).max()), "at_most": int(np.bincount(pairs).max())}
    yield "each key's step", Count(each={"g": {"rows": "count()"}}, **own, **price), len(pairs)
    frequent = int((lengths[place] >= 3).sum())
    yield "beside", Count(beside={"rows": "count()"}, where="rows >= 3", **whole), frequent


def paced(rows: Data, price: dict[str, float]) -> Iterator[tuple[str, Question, Truth]]:
    """Questions of which nobody can pay the whole price, since each takes a part of what is left."""
    _, v, r, *_, most = rows
    whole = {"at_most": most, "pace": 200, **price}
    yield "count, paced", Count(**whole), len(v)
    yield "count, paced, report=0.4", Count(report=0.4, **whole), len(v)
    yield "rate per row, paced", Mean("r", 0, 1, bounds_hold=True, per="row", **whole), r.mean()


def pairs(truth: Truth, interval: Any) -> Iterator[tuple[float, tuple[float, float] | None]]:
    """(Truth, interval) of each number."""
    if isinstance(truth, list):
        for place, each in enumerate(truth):
            yield from pairs(each, None if interval is None else interval[place])
    else:
        yield float(truth), interval


def measured(ask: Callable[[str], Answer], truth: Truth, answers: int) -> dict[str, Any]:
    """The share of intervals that hold the truth, of those with two ends, and the median width."""
    covered, widths, missing = [], [], 0
    for run in range(answers):
        told = ask(f"{run}")
        known = truth(told) if callable(truth) else truth
        intervals = told.truth_intervals
        if intervals is not None and len(told.groups) == 1:
            intervals = intervals[0]
        for each, interval in pairs(known, intervals):
            if interval is None:
                missing += 1
                continue
            low, high = interval
            slack = 1e-6 * max(1.0, abs(each))  # entries are rounded to whole steps
            covered.append(low - slack <= each <= high + slack)
            widths.append(high - low)
    return {
        "covered": float(np.mean(covered)) if covered else None,  # of those that are given
        "intervals": len(covered),
        "given": sum(map(isfinite, widths)) / (len(widths) + missing),  # with both ends
        "width": _finite(np.median(widths)) if widths else None,
    }


def _finite(number: float) -> float | None:
    """The number; None for an infinite one."""
    return float(number) if abs(number) < inf else None


def all_cases(rows: Data, answers: int) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Each case's name, and what measures it in a ledger of its kind of budget."""
    prices = {"rho": {"rho": 0.02}, "epsilon": {"epsilon": 0.3}}
    budgets = {"rho": filters.Zcdp(rho=1e3), "epsilon": filters.Basic(epsilon=9e3)}
    for name, price in prices.items():
        for case, asked, truth in cases(rows, price):
            yield f"{case}, {name}", lambda a=asked, t=truth, b=budgets[name]: of_case(rows, b, a, t, answers)
    for case, asked, truth in paced(rows, {"rho": 0.02}):  # each person pays a 200th part of what is left
        yield case, lambda a=asked, t=truth: of_case(rows, filters.Zcdp(rho=2.0), a, t, answers)


def of_case(rows: Data, budget: Any, asked: Question, truth: Truth, answers: int) -> dict[str, Any]:
    """Ask a question again and again in one ledger."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Session.open(rows.table(), person="who", budget=budget, ledger=Path(folder) / "l", create=True) as session,
    ):
        ann = session.analyst("ann")
        return measured(lambda key: ann.ask(asked, key=key, anyway=asked.pace != 1), truth, answers)


def main() -> None:
    """Run what is not in the file, and write it after each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--answers", type=int, default=100)
    parser.add_argument("--data", nargs="*", default=list(SOURCES), choices=SOURCES)
    options = parser.parse_args()
    done = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.data:
        for case, measure in all_cases(data(Path(os.environ["ALMONER_DATA"]), name), options.answers):
            key = f"{name}: {case}"
            if key not in done:
                done[key] = measure()
                print(key, done[key], flush=True)
                options.out.write_text(json.dumps(done, indent=1) + "\n")


if __name__ == "__main__":
    main()

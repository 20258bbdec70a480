"""How often truth_intervals cover the truth on real data, and how wide they are.

Exact sums come from a session over the data; the noise of 1000 fresh answers is drawn with NumPy, on the same sums, by
the same law up to rounding. Cases that are in the file already are not run
again. Run: ALMONER_DATA=/folder python benchmarks/tightness/coverage.py --out docs/experiments/coverage.json
"""

import argparse
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import duckdb
import numpy as np

from almoner import filters
from almoner.errors import ArgumentError
from almoner.ledger import left_at_worst
from almoner.queries import Count, Mean, People, Quantiles, Ratio, Session, Sum, Variance
from almoner.queries._ask.answer import answer
from almoner.queries._questions.kinds_of import described
from almoner.queries._questions.noise import FACTOR_BITS, STEPS

RUNS = 1000
SOURCES = {
    "retail": (
        "online_retail/online_retail.csv.gz",
        "CustomerID",
        "CAST(Quantity AS DOUBLE) AS v, Country = 'EIRE' AS b",
    ),
    "movielens": ("movielens_latest_small/ratings.csv.gz", "userId", "CAST(rating AS DOUBLE) AS v, rating >= 4 AS b"),
    "diabetes": (
        "diabetes130/diabetic_data.csv.gz",
        "patient_nbr",
        "CAST(time_in_hospital AS DOUBLE) AS v, readmitted = '<30' AS b",
    ),
    "hie": ("rand_hie/randhie.csv.gz", None, "CAST(mdvis AS DOUBLE) AS v, mdvis > 0 AS b"),
}
STEP = {"retail": 1, "movielens": 0.5, "diabetes": 1, "hie": 1}
BOUNDS = {"retail": (-80995, 80995), "movielens": (0.5, 5), "diabetes": (1, 14), "hie": (0, 77)}


def table(folder, name):
    """Rows of one data set: who, v (a number), r (0 or 1)."""
    path, person, columns = SOURCES[name]
    connection = duckdb.connect()
    source = f"read_csv('{folder / path}', all_varchar=true)"
    if person is None:
        names = [row[0] for row in connection.sql(f"DESCRIBE SELECT * FROM {source}").fetchall()]
        person = next(each for each in names if each.lower() in ("zper", "person", "id"))
    columns = columns.replace("rating >= 4", "CAST(rating AS DOUBLE) >= 4").replace(
        "mdvis > 0", "CAST(mdvis AS DOUBLE) > 0"
    )
    who = f"CAST(CAST({person} AS DOUBLE) AS BIGINT)"
    inner = f"SELECT {person}, {columns} FROM {source} WHERE {person} IS NOT NULL AND {person} <> ''"
    sql = f"SELECT {who} AS who, v, CAST(b AS DOUBLE) AS r FROM ({inner})"
    return connection.sql(sql).to_arrow_table()


def cases(name, who, v, r):
    """Each question with its truth; clips between a fifth and all of the longest person."""
    _, lengths = np.unique(who, return_counts=True)
    most = int(lengths.max())
    per_person = np.bincount(np.unique(who, return_inverse=True)[1], weights=r) / lengths
    mean_of_person = np.bincount(np.unique(who, return_inverse=True)[1], weights=v) / lengths
    squares = np.bincount(np.unique(who, return_inverse=True)[1], weights=v * v) / lengths
    low, high = BOUNDS[name]
    rho = {"rho": 0.02}
    half = {"clip": max(1, most * 2 / 3), "at_most": most, **rho}
    step = STEP[name]  # edges between the values that entries can have
    edges = np.arange(low, high + 2 * step, step) - step / 2 if name != "retail" else np.arange(-2, 62) - 0.5
    yield "people", People(**rho), len(lengths)
    yield "count", Count(**half), len(v)
    yield "count, clip = at_most", Count(at_most=most, **rho), len(v)
    yield "rate per person", Mean("r", 0, 1, bounds_hold=True, **rho), per_person.mean()
    yield "rate per row", Mean("r", 0, 1, bounds_hold=True, per="row", **half), r.mean()
    yield "mean per person", Mean("v", low, high, bounds_hold=True, **rho), mean_of_person.mean()
    yield "mean per row", Mean("v", low, high, bounds_hold=True, per="row", **half), v.mean()
    yield "sum", Sum("v", low, high, bounds_hold=True, **half), v.sum()
    yield (
        "variance per person",
        Variance("v", low, high, bounds_hold=True, **rho),
        squares.mean() - mean_of_person.mean() ** 2,
    )
    order, weights = np.argsort(v, kind="stable"), 1 / lengths[np.unique(who, return_inverse=True)[1]]
    below = np.cumsum(weights[order])
    read = {"step": step, "bounds_hold": name != "retail"}
    median = Quantiles("v", edges, chosen=0, **read, **rho)  # those that are chosen: quantiles.py
    yield "median per person", median, v[order][np.searchsorted(below, below[-1] / 2)]
    yield "median per row", Quantiles("v", edges, per="row", **read, **half), np.sort(v)[(len(v) - 1) // 2]
    yield "ratio per row", Ratio(numerator_where="r = 1", **half), r.mean()


def paced_cases(name, v, r, most):
    """Questions for people of whom the worst has half of the price left, with and without a report."""
    low, high = BOUNDS[name]
    whole = {"at_most": most, "rho": 0.02}
    yield "count, half left", Count(**whole), len(v)
    yield "count, half left, report=0.4", Count(report=0.4, **whole), len(v)
    yield "rate per row, half left", Mean("r", 0, 1, bounds_hold=True, per="row", **whole), r.mean()
    yield (
        "mean per row, half left, report=0.4",
        Mean("v", low, high, bounds_hold=True, per="row", report=0.4, **whole),
        v.mean(),
    )


def exact(session, asked):
    """The sums without noise, in a transaction that is undone by an error of the ledger's own kind."""
    sums = []
    plan = session._rows.plan(asked, described(asked))

    def work(turn, offer):
        admitted = turn.admit(offer, key="k", price=asked.price, analyst="a", payment=asked.payment)
        sums.append(session._rows.sums(plan, admitted.people.rows))
        raise ArgumentError("undone")

    try:
        session._ledger.answer(session._rows.charges(plan), work)
    except ArgumentError:
        return sums[0]
    raise RuntimeError("no sums")


def mixed(asked, sums):
    """The sums to which noise is added."""
    factor = asked.bin_factor()
    if factor is None:
        return sums
    blocks = [factor.mixed(sums[start : start + factor.bins]) for start in range(0, len(sums), factor.bins)]
    return [each / 2**FACTOR_BITS for block in blocks for each in block]


def measure(session, asked, truth, seed):
    """Coverage, and the median width over that of the noise of the same price without a report at the same bound."""
    floor = asked.payment.floor(left_at_worst(session.ledger, analyst="a", purpose=None), asked.price)
    sums, noise = np.array(mixed(asked, exact(session, asked)), float), np.random.default_rng(seed)
    plain = replace(asked, clip=asked.at_most, report=None) if asked.at_most is not None else asked
    base = np.array(mixed(plain, exact(session, plain)), float) if plain is not asked else sums
    covered, widths, widths_of_noise, values = [], [], [], []
    for _ in range(RUNS):
        one = answer(
            asked, [round(x) for x in sums + noise.normal(0, asked.spread * STEPS, len(sums))], "k", floor=floor
        )
        two = answer(
            plain, [round(x) for x in base + noise.normal(0, plain.spread * STEPS, len(base))], "k", floor=plain.price
        )
        interval, own = (each[0] if isinstance(each, list) else each for each in (one.truth_interval, two.interval))
        if interval is not None:
            covered.append(interval[0] <= truth <= interval[1])
            widths.append(interval[1] - interval[0])
        widths_of_noise.append(own[1] - own[0])
        values.append(one.value[0] if isinstance(one.value, list) else one.value)
    width = float(np.median(widths_of_noise))
    return {
        "truth": float(truth),
        "value": float(np.median([each for each in values if each is not None])),
        "covered": float(np.mean(covered)) if covered else None,  # of those that are given
        "given": float(np.isfinite(widths).sum()) / RUNS,  # with both ends
        "width": _finite(np.median(widths)) if widths else None,
        "noise width": width,
        "ratio": _finite(np.median(widths) / width) if width and widths else None,
    }


def _finite(number):
    """The number; None for an infinite one."""
    return float(number) if np.isfinite(number) else None


def main():
    """Run what is not in the file, and write it after each case."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    cases_done = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in ("diabetes", "hie", "movielens", "retail"):
        rows = table(Path(os.environ["ALMONER_DATA"]), name)
        who, v, r = (rows[each].to_numpy().astype(float) for each in ("who", "v", "r"))
        most = int(np.unique(who, return_counts=True)[1].max())
        with tempfile.TemporaryDirectory() as folder:
            with Session.open(
                rows, person="who", budget=filters.Zcdp(rho=1e3), ledger=Path(folder) / "a", create=True
            ) as session:
                fill(cases_done, session, name, cases(name, who, v, r), options.out)
            with Session.open(
                rows, person="who", budget=filters.Zcdp(rho=1.01), ledger=Path(folder) / "b", create=True
            ) as session:
                session.analyst("a").ask(Count(clip=most, rho=1.0), key="before")
                fill(cases_done, session, name, paced_cases(name, v, r, most), options.out)


def fill(cases_done, session, name, found, out):
    """Measure the cases that are not done."""
    for case, asked, truth in found:
        key = f"{name}: {case}"
        if key not in cases_done:
            cases_done[key] = measure(session, asked, truth, crc32(key.encode()))
            print(key, cases_done[key], flush=True)
            out.write_text(json.dumps(cases_done, indent=1) + "\n")


if __name__ == "__main__":
    main()

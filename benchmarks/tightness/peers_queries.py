"""Compare errors of questions at one epsilon with diffprivlib, OpenDP and SmartNoise SQL, and those of series.

python benchmarks/tightness/peers_queries.py [--runs 60] [--peers PYTHON ...] [--without-quantiles] [--json]

Adult and RAND HIE, epsilon = 0.1 for each question: root mean squared errors. Series are of 20 counts at (1, 1e-6) in
all. All are told the same bounds, edges and clips. Almoner asks a real ledger, once, and draws
its noise again on the same sums; under a pure budget ("pure"), and at the rho at which one question is (0.1, 1e-6)-DP
("rho"). Peers run in environments of their own (--peers: their Pythons);
one that is missing is named and left out. Neighbours differ:

almoner, opendp, smartnoise    one person more or less, the number of people unknown
diffprivlib, opendp sized      one person's values changed, the number of people known: half the problem for a mean

A peer without people is given a number for each person. SmartNoise SQL has a delta of 1e-6. The data sets are looked
for in the folder ALMONER_DATA.
"""

import argparse
import csv
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from math import ceil, log, sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

FOLDER = Path(os.environ.get("ALMONER_DATA", "../shared/data"))
EPSILON, DELTA, SERIES = 0.1, 1e-6, 20
BOUNDS = {"age": (17, 90), "hours": (1, 99), "gain": (0, 99_999), "visits": (0, 77)}
EDGES = {
    "fnlwgt, step 5,000": np.arange(0, 1_500_001, 5_000.0),
    "fnlwgt, step 500": np.arange(0, 1_500_001, 500.0),
    "spending, 24 log-spaced": np.array([0.0, *np.geomspace(1, 40_000, 24)]),
    "spending, step 10": np.arange(0, 40_001, 10.0),
}
QUANTILES = [(name, level) for name in EDGES for level in (0.5, 0.9)]
AGES = range(20, 20 + 2 * SERIES, 2)
PEERS = ("diffprivlib", "opendp", "smartnoise")


def tables() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Adult, a row a person, and RAND HIE, up to 5 rows a person."""
    lines = [line.split(", ") for line in (FOLDER / "adult/adult.data").read_text().splitlines() if line.strip()]
    places = {"age": 0, "fnlwgt": 2, "gain": 10, "hours": 12}
    adult = {name: np.array([int(line[place]) for line in lines]) for name, place in places.items()}
    with gzip.open(FOLDER / "rand_hie/randhie.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    names = {"who": "zper", "visits": "mdvis", "spending": "meddol"}
    hie = {name: np.array([float(row[column]) for row in rows]) for name, column in names.items()}
    return adult, hie


def per_person(hie: dict[str, np.ndarray], column: str | None) -> np.ndarray:
    """Totals of a column, or numbers of rows, by person."""
    place = np.unique(hie["who"], return_inverse=True)[1]
    return np.bincount(place, weights=None if column is None else hie[column])


def truths() -> dict[str, float]:
    """The answer to each question without noise."""
    adult, hie = tables()
    spending = per_person(hie, "spending")
    told = {"people": len(adult["age"]), "rows": len(hie["who"]), "sum of visits": hie["visits"].sum()}
    told |= {"sum of gain": adult["gain"].sum(), "mean age": adult["age"].mean(), "mean hours": adult["hours"].mean()}
    told |= {"variance of age": adult["age"].var()}
    for name, level in QUANTILES:
        values = np.sort(adult["fnlwgt"] if name.startswith("fnlwgt") else spending)
        told[f"{name}, {level}"] = values[ceil(level * len(values)) - 1]
    return {name: float(value) for name, value in told.items()}


def almoner(runs: int, pure: bool) -> dict[str, list[float]]:
    """Answers of Almoner, each question with a price to itself."""
    import pyarrow as pa

    from almoner import filters
    from almoner.queries import Count, Mean, People, Quantiles, Session, Sum, Variance

    adult, hie = tables()
    adult = {"who": np.arange(len(adult["age"])), **adult}
    rho = filters.Gaussian(epsilon=EPSILON, delta=DELTA).mu ** 2 / 2
    price = {"epsilon": EPSILON} if pure else {"rho": rho}
    asked = {
        "people": (adult, People(**price)),
        "rows": (hie, Count(clip=5, **price)),
        "sum of visits": (hie, Sum("visits", *BOUNDS["visits"], clip=5, **price)),
        "sum of gain": (adult, Sum("gain", *BOUNDS["gain"], clip=1, **price)),
        "mean age": (adult, Mean("age", *BOUNDS["age"], **price)),
        "mean hours": (adult, Mean("hours", *BOUNDS["hours"], **price)),
        "variance of age": (adult, Variance("age", *BOUNDS["age"], **price)),
    }
    for name, level in QUANTILES:
        options = {"levels": [level], "per": "total", **price}
        table = adult if name.startswith("fnlwgt") else hie
        for way, chosen in (("", {}), (" (no interval)", {"chosen": 1})):
            asked[f"{name}, {level}{way}"] = table, Quantiles(name.split(",")[0], EDGES[name], **options, **chosen)
    budget = (filters.Basic if pure else filters.Zcdp)(**{name: each * 100 for name, each in price.items()})
    told: dict[str, list[float]] = {}
    with TemporaryDirectory() as folder:
        for table in (adult, hie):
            path = Path(folder) / f"{table is hie}"
            with Session.open(pa.table(table), person="who", budget=budget, ledger=path, create=True) as session:
                for name, (its_table, question) in asked.items():
                    if its_table is table:
                        told[name] = list(drawn(session, question, runs))
    return told


class Known:
    """Sums that were read once, in place of an engine."""

    def __init__(self, sums: list[int]) -> None:
        self._sums = sums

    def sums(self, *_: object) -> list[int]:
        """They, again."""
        return list(self._sums)


def drawn(session: object, asked: object, runs: int) -> Iterator[float]:
    """Values of answers: of one through the ledger, then of the same exact sums with fresh noise of the library."""
    from almoner.queries._ask import ask

    kept: list[Known] = []
    release = ask.released

    def keeping(rows: object, plan: object, admitted: object, question: object) -> dict[str, object]:
        kept.append(Known(rows.sums(plan, admitted)))
        return release(kept[-1], plan, admitted, question)

    ask.released = keeping
    try:
        told = [session.analyst("a").ask(asked, key=str(hash(str(asked))))]
    finally:
        ask.released = release
    closed = told[0].question
    more = (ask.answer(closed, release(kept[-1], None, "", closed)["released"], "k") for _ in range(runs - 1))
    for each in (*told, *more):
        yield each.value[0] if isinstance(each.value, list) else each.value


def almoner_series(runs: int) -> list[float]:
    """Errors of 20 counts in one ledger whose budget is the recommended one."""
    import pyarrow as pa

    from almoner import queries

    adult, _ = tables()
    table = pa.table({"who": np.arange(len(adult["age"])), "age": adult["age"]})
    budget = queries.recommend(epsilon=1.0, delta=DELTA, questions=SERIES).budget
    with (
        TemporaryDirectory() as folder,
        queries.Session.open(table, person="who", budget=budget, ledger=Path(folder) / "l", create=True) as session,
    ):
        price = "epsilon" if session.ledger.symbol == "epsilon" else "rho"
        share = session.ledger.budget_units / SERIES / 1e15 * (1 - 1e-12)
        errors: list[float] = []
        for age in AGES:
            asked = queries.People(where=f"age >= {age}", **{price: share})
            errors += [value - int((adult["age"] >= age).sum()) for value in drawn(session, asked, runs)]
    return errors


def diffprivlib(runs: int) -> dict[str, list[float]]:
    """Answers of diffprivlib."""
    import warnings

    from diffprivlib import BudgetAccountant, tools

    warnings.simplefilter("ignore")
    adult, hie = tables()
    spending, ones = per_person(hie, "spending"), np.ones(len(adult["age"]))
    of = {name: adult[name].astype(float) for name in ("age", "hours", "gain")}
    visits, rows = per_person(hie, "visits"), per_person(hie, None).astype(float)
    ways: dict[str, Callable[[], float]] = {
        "people": lambda: tools.count_nonzero(ones, epsilon=EPSILON),
        "rows": lambda: tools.sum(rows, epsilon=EPSILON, bounds=(0, 5)),
        "sum of visits": lambda: tools.sum(visits, epsilon=EPSILON, bounds=(0, 5 * 77)),
        "sum of gain": lambda: tools.sum(of["gain"], epsilon=EPSILON, bounds=BOUNDS["gain"]),
        "mean age": lambda: tools.mean(of["age"], epsilon=EPSILON, bounds=BOUNDS["age"]),
        "mean hours": lambda: tools.mean(of["hours"], epsilon=EPSILON, bounds=BOUNDS["hours"]),
        "variance of age": lambda: tools.var(of["age"], epsilon=EPSILON, bounds=BOUNDS["age"]),
    }
    for name, level in QUANTILES:
        values = adult["fnlwgt"].astype(float) if name.startswith("fnlwgt") else spending
        bounds = (EDGES[name][0], EDGES[name][-1])
        ways[f"{name}, {level}"] = lambda v=values, q=level, b=bounds: tools.quantile(v, q, epsilon=EPSILON, bounds=b)
    told = {name: [float(way()) for _ in range(runs)] for name, way in ways.items()}
    per = 1.0
    while True:  # the largest price of each of 20 that its accountant admits
        accountant = BudgetAccountant(epsilon=1.0, delta=DELTA, slack=DELTA * 0.999)
        try:
            for _ in AGES:
                accountant.spend(per, 0)
            break
        except Exception:
            per *= 0.995
    told["series"] = [
        float(tools.count_nonzero((adult["age"] >= age).astype(float), epsilon=per)) - int((adult["age"] >= age).sum())
        for age in AGES
        for _ in range(runs)
    ]
    return told


def opendp(runs: int) -> dict[str, list[float]]:
    """Answers of OpenDP, by measurements of its own."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    adult, hie = tables()
    spending = per_person(hie, "spending")
    whole = dp.vector_domain(dp.atom_domain(T=int)), dp.symmetric_distance()

    def made(build: Callable[[float], object], d_in: int, price: float) -> object:
        scale = dp.binary_search(lambda scale: build(scale).map(d_in) <= price, bounds=(1e-9, 1e12))
        return build(scale)

    def count(price: float, d_in: int = 1) -> object:
        return made(lambda s: whole >> dp.t.then_count() >> dp.m.then_laplace(scale=s), d_in, price)

    def total(bounds: tuple[int, int], price: float, d_in: int = 1) -> object:
        def build(scale: float) -> object:
            return whole >> dp.t.then_clamp(bounds) >> dp.t.then_sum() >> dp.m.then_laplace(scale=scale)

        return made(build, d_in, price)

    ages, hours = adult["age"].tolist(), adult["hours"].tolist()
    people, rows = count(EPSILON), count(EPSILON, 5)
    ways = {"people": lambda: people(ages), "rows": lambda: rows([0] * len(hie["who"]))}
    visits, gain = total(BOUNDS["visits"], EPSILON, 5), total(BOUNDS["gain"], EPSILON)
    ways["sum of visits"] = lambda: visits(hie["visits"].astype(int).tolist())
    ways["sum of gain"] = lambda: gain(adult["gain"].tolist())
    half = count(EPSILON / 2)
    for name, values in (("age", ages), ("hours", hours)):
        sums = total(BOUNDS[name], EPSILON / 2)
        ways[f"mean {name}"] = lambda v=values, s=sums: s(v) / half(v)
        low, high = map(float, BOUNDS[name])
        sized = dp.vector_domain(dp.atom_domain(bounds=(low, high)), size=len(values)), dp.symmetric_distance()
        kinds = (
            {"mean": dp.t.then_mean, "variance of": dp.t.then_variance} if name == "age" else {"mean": dp.t.then_mean}
        )
        for kind, then in kinds.items():
            own = made(lambda s, t=then, z=sized: z >> t() >> dp.m.then_laplace(scale=s), 2, EPSILON)
            floats = [float(each) for each in values]
            ways[f"{kind} {name}, sized"] = lambda m=own, v=floats: m(v)
    numbers = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    for name, level in QUANTILES:
        values = (adult["fnlwgt"] if name.startswith("fnlwgt") else spending).astype(float).tolist()
        edges = EDGES[name].tolist()

        def build(scale: float, edges: list[float] = edges, level: float = level) -> object:
            scores = numbers >> dp.t.then_quantile_score_candidates(edges, level)
            return scores >> dp.m.then_noisy_max(dp.max_divergence(), scale=scale, negate=True)

        own = made(build, 1, EPSILON)
        ways[f"{name}, {level}"] = lambda m=own, v=values, e=edges: e[m(v)]
    told = {name: [float(way()) for _ in range(runs)] for name, way in ways.items()}
    rho = max(r for r in np.linspace(1e-4, 0.1, 4000) if best_epsilon(r) <= 1.0)
    one = whole >> dp.t.then_count() >> dp.m.then_gaussian(scale=sqrt(SERIES / (2 * rho)))
    if SERIES * one.map(1) > rho * (1 + 1e-9):
        raise SystemExit("the series costs more than its budget")
    lists = {age: adult["age"][adult["age"] >= age].tolist() for age in AGES}
    told["series"] = [float(one(each)) - len(each) for each in lists.values() for _ in range(runs)]
    return told


def best_epsilon(rho: float) -> float:
    """The epsilon of rho-zCDP at DELTA, the least over orders (Canonne, Kamath & Steinke 2020, Prop. 12)."""
    orders = 1 + np.geomspace(1e-3, 1e4, 20_000)
    return float(np.min(orders * rho + np.log1p(-1 / orders) - (log(DELTA) + np.log(orders)) / (orders - 1)))


def smartnoise(runs: int) -> dict[str, list[float]]:
    """Answers of SmartNoise SQL; its own price of a question is EPSILON."""
    import pandas as pd
    from snsql import Privacy, from_df

    adult, hie = tables()
    people = {**adult, "who": np.arange(len(adult["age"]))}

    def reader(table: dict[str, np.ndarray], most: int, epsilon: float) -> object:
        columns = {
            name: {"type": "int", "lower": BOUNDS[name][0], "upper": BOUNDS[name][1]}
            for name in table
            if name in BOUNDS
        }
        about = {"max_ids": most, "rows": len(table["who"]), "who": {"type": "int", "private_id": True}, **columns}
        frame = pd.DataFrame({name: table[name].astype(int) for name in ("who", *columns)})
        return from_df(frame, privacy=Privacy(epsilon=epsilon, delta=DELTA), metadata={"": {"s": {"t": about}}})

    asked = {
        "people": (people, 1, "COUNT(DISTINCT who)"),
        "rows": (hie, 5, "COUNT(*)"),
        "sum of visits": (hie, 5, "SUM(visits)"),
        "sum of gain": (people, 1, "SUM(gain)"),
        "mean age": (people, 1, "AVG(age)"),
        "mean hours": (people, 1, "AVG(hours)"),
        "variance of age": (people, 1, "VAR(age)"),
    }
    told = {}
    for name, (table, most, what) in asked.items():
        sql = f"SELECT {what} AS c FROM s.t"
        cost = reader(table, most, EPSILON).get_privacy_cost(sql)[0]
        ask = reader(table, most, EPSILON * EPSILON / cost)
        told[name] = [float(ask.execute(sql)[1][0]) for _ in range(runs)]
    return told


def run_peer(peer: str, pythons: list[str], more: list[str]) -> dict[str, list[float]] | str:
    """Answers of a peer in the first environment that has it; else what was missing."""
    reason = "no environment"
    for python in pythons:
        command = [python, __file__, "--one", peer, *more]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode == 0:
            return json.loads(run.stdout.splitlines()[-1])
        reason = (run.stderr.strip().splitlines() or ["no message"])[-1]
    return reason


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--peers", nargs="*", default=[sys.executable])
    parser.add_argument("--one", choices=PEERS, help="run this peer here, and print its answers")
    parser.add_argument("--without-quantiles", action="store_true", help="leave them out: they take most of the time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    more = ["--without-quantiles"] * options.without_quantiles
    if more:
        QUANTILES.clear()
    if options.one:
        print(json.dumps(globals()[options.one](options.runs)))
        return
    told = {"pure": almoner(options.runs, True), "rho": almoner(options.runs, False)}
    told["rho"]["series"] = almoner_series(options.runs)
    for peer in PEERS:
        found = run_peer(peer, options.peers, ["--runs", str(options.runs), *more])
        if isinstance(found, str):
            print(f"{peer} does not run, and is left out: {found}", flush=True)
        else:
            told[peer] = found
    rows = {}
    for name, truth in {**truths(), "series": 0.0}.items():
        row = rows[name] = {}
        for who, answers in told.items():
            for key in (name, f"{name} (no interval)", f"{name}, sized"):
                if key in answers:
                    error = sqrt(np.mean((np.array(answers[key], float) - truth) ** 2))
                    row[f"{who}{key.removeprefix(name).removeprefix(',')}"] = float(error)
        peers = {who: error for who, error in row.items() if who.split()[0] not in ("pure", "rho")}
        own = "rho" if name == "series" else "pure"
        if peers:
            row["against the best"] = row[own] / min(peers.values())
        if not options.json:
            shown = "; ".join(f"{who} {error:,.4g}" for who, error in row.items())
            print(f"{name} ({truth:,.6g}): {shown}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()

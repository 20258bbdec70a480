"""Time a question with an account for each person, and the same GROUP BY per person without privacy.

python benchmarks/speed/queries.py [--events 20000000] [--people 1000000] [--rounds 5] [--text] [--memory 2GB]
python benchmarks/speed/queries.py --cells         # also whether 48,000 cells take longer than 480
python benchmarks/speed/queries.py --joins --events 1000000 --people 100000   # columns of other tables, and plain joins
python benchmarks/speed/queries.py --many 1000     # whether the thousandth question takes as long as the first
python benchmarks/speed/queries.py --csv 500000    # to open a CSV file of so many lines, and DuckDB's own reading of it

Both run on the same DuckDB with the same rows, in turns. A question includes the charge of each person, the noise and
the commit to the ledger on disk. Prints one JSON object; times are medians of the rounds. On a busy machine compare the
CPU times.
"""

import argparse
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from almoner import filters
from almoner.queries import Count, Lookup, Mean, Session, Sum, Table


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """(seconds, CPU seconds)."""
    start = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - start[0], time.process_time() - start[1]


PAIRS = {
    "count": (
        Count(clip=30, sigma=1000.0),
        "SELECT sum(x) FROM (SELECT person, count(*) AS x FROM data GROUP BY person)",
    ),
    "sum": (
        Sum("v", low=0, high=100, clip=30, sigma=1000.0),
        "SELECT sum(x) FROM (SELECT person, sum(v) AS x FROM data GROUP BY person)",
    ),
    "mean": (
        Mean("v", per="row", low=0, high=100, clip=30, sigma=1000.0),
        "SELECT sum(x) / sum(n) FROM (SELECT person, sum(v) AS x, count(v) AS n FROM data GROUP BY person)",
    ),
    "count by 28 days": (
        Count(clip=10, sigma=1000.0, by={"day": list(range(28))}),
        "SELECT day, sum(x) FROM (SELECT person, day, count(*) AS x FROM data GROUP BY person, day) GROUP BY day",
    ),
    "count by 28 days of a year": (
        Count(clip=10, sigma=1000.0, by={"date": list(range(28))}),
        "SELECT date, sum(x) FROM (SELECT person, date, count(*) AS x FROM data WHERE date < 28 GROUP BY person, date) "
        "GROUP BY date",
    ),
    "a quarter of the events: count by 7 days": (
        Count(clip=10, sigma=1000.0, by={"day": list(range(7))}),
        "SELECT day, sum(x) FROM (SELECT person, day, count(*) AS x FROM data WHERE day < 7 GROUP BY person, day) "
        "GROUP BY day",
    ),
}


CELLS = "48,000 cells against 480"


def by_cells(cells: int) -> Count:
    """A count of all events in so many groups."""
    column = "cell" if cells == 48_000 else "few"
    return Count(clip=30, sigma=1000.0, by={column: list(range(cells))})


def cells(ask: Callable[[Count, str], object], rounds: int) -> dict[str, float]:
    """Seconds of a count by 480 and by 48,000 cells, over the same events, in turns."""
    few, many = [], []
    for turn in range(rounds + 1):
        few.append(timed(lambda turn=turn: ask(by_cells(480), f"few {turn}")))
        many.append(timed(lambda turn=turn: ask(by_cells(48_000), f"many {turn}")))
    first, second = ([statistics.median(c) for c in zip(*each[1:], strict=True)] for each in (few, many))
    return {
        "480 cells, s": round(first[0], 3),
        "48,000 cells, s": round(second[0], 3),
        "times": round(second[0] / first[0], 2),
        "times, processors": round(second[1] / first[1], 2),
    }


def many(questions: int, people: int) -> dict[str, object]:
    """Seconds of a question with a ledger that has answered many, and with a new ledger, in turns."""
    rows = pa.table({"person": range(people)})
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("old", "new")]
        old, new = (
            Session.open(rows, person="person", budget=filters.Zcdp(rho=10.0), ledger=path, threads=1, create=True)
            for path in paths
        )
        with old, new:
            analysts = [session.analyst("benchmark") for session in (old, new)]
            for number in range(questions):
                analysts[0].ask(Count(clip=1, sigma=100.0), key=f"question {number}")
            times = [
                [
                    timed(lambda a=a, turn=turn: a.ask(Count(clip=1, sigma=100.0), key=f"question {questions + turn}"))[
                        0
                    ]
                    for a in analysts
                ]
                for turn in range(60)
            ]
        last, first = (statistics.median(column[10:]) for column in zip(*times, strict=True))
        return {
            "people": people,
            "questions before": questions,
            "a question after them, s": round(last, 4),
            "a question over a new ledger, s": round(first, 4),
            "times": round(last / first, 2),
            "ledger, MB": round(paths[0].stat().st_size / 2**20, 1),
        }


def csv(lines: int, rounds: int) -> dict[str, object]:
    """Seconds to open a session over a CSV file, and of DuckDB's own reading of it into a table, in turns."""
    import duckdb

    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        data = Path(folder) / "events.csv"
        connection.execute(
            f"COPY (SELECT (hash(i) % {lines // 20})::BIGINT AS person, (hash(i + 77) % 28)::INTEGER AS day, "
            f"(hash(i * 3) % 1000) / 10.0 AS v, 'category ' || (i % 20) AS category, "
            f"DATE '2020-01-01' + (hash(i + 5) % 300)::INTEGER AS bought FROM range({lines}) t(i)) TO '{data}'"
        )

        def opened(turn: int) -> None:
            budget, ledger = filters.Zcdp(rho=1.0), Path(folder) / f"{turn}.ledger"
            Session.open(data, person="person", budget=budget, ledger=ledger, create=True).close()

        for turn in range(rounds + 1):
            read = f"CREATE OR REPLACE TEMP TABLE events AS FROM read_csv('{data}')"
            theirs.append(timed(lambda read=read: connection.execute(read)))
            ours.append(timed(lambda turn=turn: opened(turn)))
        without, within = ([statistics.median(c) for c in zip(*each[1:], strict=True)] for each in (theirs, ours))
        return {
            "lines": lines,
            "MB": round(data.stat().st_size / 2**20, 1),
            "DuckDB alone, s": round(without[0], 3),
            "session opened, s": round(within[0], 3),
            "times": round(within[0] / without[0], 2),
            "times, processors": round(within[1] / without[1], 2),
        }


JOINS = {
    "sum for customers from 40": (
        Sum("v", low=0, high=100, clip=30, sigma=1000.0, where="customers.age >= 40"),
        "SELECT sum(x) FROM (SELECT e.person, sum(v) AS x FROM data e LEFT JOIN data_1 c ON c.person = e.person "
        "WHERE c.age >= 40 GROUP BY e.person)",
    ),
    "count by 20 categories": (
        Count(clip=30, sigma=1000.0, by={"products.category": [f"category {k}" for k in range(20)]}),
        "SELECT category, sum(x) FROM (SELECT e.person, category, count(*) AS x FROM data e "
        "LEFT JOIN data_2 p ON p.product = e.product GROUP BY e.person, category) GROUP BY category",
    ),
    "sum without a join": PAIRS["sum"],
}


def joins(events: int, people: int, rounds: int) -> dict[str, object]:
    """Processor seconds of questions over joined tables, and of the same plain joins and GROUP BY, in turns."""
    import duckdb

    result: dict[str, object] = {"events": events, "people": people}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "shop.duckdb"
        with duckdb.connect(str(data)) as connection:
            connection.execute(
                f"CREATE TABLE events AS SELECT (hash(i) % {people})::BIGINT AS person, "
                f"(hash(i + 77) % 5000)::INTEGER AS product, (hash(i * 3) % 1000) / 10.0::DOUBLE AS v "
                f"FROM range({events}) t(i)"
            )
            age = "(hash(i * 7) % 90)::INTEGER AS age"
            connection.execute(f"CREATE TABLE customers AS SELECT i AS person, {age} FROM range({people}) t(i)")
            category = "'category ' || (i % 20) AS category"
            connection.execute(f"CREATE TABLE products AS SELECT i AS product, {category} FROM range(5000) t(i)")
        with Session.open(
            tables={"orders": Table(data, table="events"), "customers": Table(data, table="customers", one_row=True)},
            public={"products": Lookup(data, "product", table="products")},
            person="person",
            budget=filters.Zcdp(rho=1.0),
            ledger=Path(folder) / "people.ledger",
            threads=1,
            create=True,
        ) as session:
            analyst = session.analyst("benchmark")
            for name, (question, sql) in JOINS.items():
                ours, theirs = [], []
                for turn in range(rounds + 1):
                    theirs.append(timed(lambda sql=sql: session.ledger.store.workspace.run(sql).fetchall())[1])
                    ours.append(timed(lambda q=question, key=f"{name} {turn}": analyst.ask(q, key=key))[1])
                without, within = statistics.median(theirs[1:]), statistics.median(ours[1:])
                result[name] = {
                    "without privacy, s": round(without, 3),
                    "with accounts, s": round(within, 3),
                    "times, processors": round(within / without, 2),
                }
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=20_000_000)
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--text", action="store_true", help="people named by text")
    parser.add_argument("--memory", default=None, help="DuckDB's limit, for example 2GB")
    parser.add_argument("--cells", action="store_true", help="also by 480 and by 48,000 cells")
    parser.add_argument("--joins", action="store_true", help="columns of other tables")
    parser.add_argument("--many", type=int, default=None)
    parser.add_argument("--csv", type=int, default=None, help="lines of a CSV file")
    options = parser.parse_args()
    if options.many:
        print(json.dumps(many(options.many, 10_000), indent=1))
        return
    if options.csv:
        print(json.dumps(csv(options.csv, options.rounds), indent=1))
        return
    if options.joins:
        print(json.dumps(joins(options.events, options.people, options.rounds), indent=1))
        return
    result: dict[str, object] = {"events": options.events, "people": options.people, "text": options.text}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "events.duckdb"
        person = f"(hash(i) % {options.people})::BIGINT"
        if options.text:
            person = f"'person ' || {person}"
        import duckdb

        with duckdb.connect(str(data)) as connection:
            connection.execute(
                f"CREATE TABLE events AS SELECT {person} AS person, (hash(i + 77) % 28)::INTEGER AS day, "
                f"(hash(i * 3) % 1000) / 10.0::DOUBLE AS v, (hash(i * 5) % 48000)::INTEGER AS cell, "
                f"(hash(i * 5) % 480)::INTEGER AS few, (hash(i + 33) % 364)::INTEGER AS date "
                f"FROM range({options.events}) t(i)"
            )
        ledger = Path(folder) / "people.ledger"
        with Session.open(
            Table(data, table="events"),
            person="person",
            budget=filters.Zcdp(rho=1.0),
            ledger=ledger,
            memory_limit=options.memory,
            create=True,
        ) as session:
            analyst = session.analyst("benchmark")
            for name, (question, sql) in PAIRS.items():
                ours, theirs = [], []
                for turn in range(options.rounds + 1):
                    theirs.append(timed(lambda sql=sql: session.ledger.store.workspace.run(sql).fetchall()))
                    ours.append(timed(lambda q=question, key=f"{name} {turn}": analyst.ask(q, key=key)))
                without, within = (
                    [statistics.median(c) for c in zip(*each[1:], strict=True)] for each in (theirs, ours)
                )
                result[name] = {
                    "without privacy, s": round(without[0], 3),
                    "with accounts, s": round(within[0], 3),
                    "times": round(within[0] / without[0], 2),
                    "times, processors": round(within[1] / without[1], 2),
                    "the first question over the second, s": round(ours[0][0] - ours[1][0], 2),
                }
            if options.cells:
                result[CELLS] = cells(lambda question, key: analyst.ask(question, key=key), options.rounds)
        result["ledger, MB"] = round(ledger.stat().st_size / 2**20, 1)
    result["peak memory, GB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

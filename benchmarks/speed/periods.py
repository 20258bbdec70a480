"""What a question costs in processor time where each week of the rows brings a budget, beside one budget for good.

    python benchmarks/speed/periods.py [--people 1000000] [--weeks 52]

Two ledgers over the same rows, two rows a person, in Parquet: the same questions are asked of both in turn, one about
all weeks and one about a single week. Prints the median processor time of each, and the ratio.
"""

import argparse
import statistics
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

from almoner import filters
from almoner._workspace import duckdb
from almoner.ledger import Periods, Terms
from almoner.queries import People, Session

FIRST = date(2024, 1, 1)


def rows(place: Path, people: int, weeks: int) -> None:
    """Two rows a person, on days that are spread over the weeks by a hash."""
    with duckdb().connect() as connection:
        connection.execute(
            f"COPY (SELECT i % {people} AS who, DATE '{FIRST}' + CAST(hash(i) % {7 * weeks} AS INTEGER) AS day "
            f"FROM range({2 * people}) t(i)) TO '{place}' (FORMAT parquet)"
        )


def main() -> None:
    """Ask in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--weeks", type=int, default=52)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "rows.parquet"
        rows(place, given.people, given.weeks)
        periods = Periods("day", every="week", first=FIRST, last=FIRST + timedelta(days=7 * given.weeks - 1))
        common, budget = {"person": "who", "create": True}, filters.Zcdp(rho=1.0)
        terms = Terms(budget, periods=periods)
        with (
            Session.open(place, ledger=Path(folder) / "good", budget=budget, **common) as for_good,
            Session.open(place, ledger=Path(folder) / "weekly", budget=terms, **common) as weekly,
        ):
            sessions = {"one budget for good": for_good, "a budget for each week": weekly}
            for what, where in (("all weeks", None), ("one week", f"day < '{FIRST + timedelta(days=7)}'")):
                times: dict[str, list[float]] = {name: [] for name in sessions}
                for number in range(given.rounds + 1):
                    for name, session in sessions.items():
                        began = time.process_time()
                        session.analyst("ann").ask(People(rho=1e-4, where=where), key=f"{what} {number}")
                        times[name].append(time.process_time() - began)
                medians = [statistics.median(each[1:]) for each in times.values()]  # the first is slower
                told = ", ".join(f"{name} {median:.2f} s" for name, median in zip(times, medians, strict=True))
                print(f"{what}: {told}, ratio {medians[1] / medians[0]:.2f}")


if __name__ == "__main__":
    main()

"""Feldman & Zrnic (2021): daily counts of the same people, each charged only for the days on which they appear.

    python experiments/feldman_zrnic_2021/daily.py [--people 10000] [--share 0.05] [--full-days 20] [--retail]
    python experiments/feldman_zrnic_2021/daily.py --draw     # the pictures again, from the recorded days
    python experiments/feldman_zrnic_2021/daily.py --cap      # adds to the records what a cap by count would count
    python experiments/feldman_zrnic_2021/daily.py --quick    # 500 people, 30 days; writes nothing

Measures after how many days the mean relative error of a daily count doubles. In the generated data, each person
appears on a random share of the days. A worst-case zCDP filter answers ``full-days`` counts and no more. With an
account for each person, the same budget lasts longer: the script asks one count a day through a session (rows in
memory, ledger on disk).

``--retail`` counts the customers of each day in Online Retail (folder in ALMONER_DATA) instead. Prints the result as
JSON. Writes it (daily.json or daily_retail.json) and every day (.jsonl) into experiments/results, and a picture (.svg
and .png) into docs/experiments. The true counts in them would be private for other data.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from almoner import filters
from almoner.curves import zcdp
from almoner.queries import People, Session, Table
from almoner.report import figures

sys.path.append(str(Path(__file__).parents[1]))
import pages
from data_sets import folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FULL = "worst-case filter answers"
CAPPED = "share of the truth under a cap of as many days, last tenth"
RUNS = (
    ("daily", "10,000 generated people, each present on 5 % of the days", "daily-generated"),
    ("daily_retail", "Online Retail: customers a day, 4,372 people", "daily"),
)
"""The recorded days, the title of their picture, and its name among the pages."""


def sparse(people: int, days: int, share: float, seed: int = 0) -> pa.Table:
    """(person, day) for each person's random days: synthetic sparse daily indicators of any size."""
    rng = np.random.default_rng(seed)
    persons, when = [], []
    for day in range(days):
        there = np.flatnonzero(rng.random(people) < share)
        persons.append(there)
        when.append(np.full(len(there), day))
    return pa.table({"person": np.concatenate(persons), "day": np.concatenate(when)})


def retail() -> tuple[Path, str]:
    """The file of Online Retail, and a view of it: a customer and a day for each line."""
    return (
        folder("online_retail") / "online_retail.csv.gz",
        "SELECT TRY_CAST(CustomerID AS BIGINT) AS person, CAST(InvoiceDate AS DATE) AS day FROM data",
    )


def count_days(
    data: object, view: str | None, full_days: int, sigma: float, most: int | None
) -> list[dict[str, float]]:
    """One count for each day: the truth (for the comparison only) and the answer."""
    price = People(sigma=sigma).price / 10**15
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Session.open(
            Table(data, view=view),
            person="person",
            budget=filters.Zcdp(rho=full_days * price * (1 + 1e-12)),
            ledger=Path(folder) / "people.ledger",
            create=True,
        ) as session,
    ):
        rows = session.ledger.store.run(
            "SELECT day, count(DISTINCT person) FROM data WHERE person IS NOT NULL GROUP BY day ORDER BY day"
        )
        analyst = session.analyst("monitor", purpose="daily counts")
        for day, truth in rows[:most]:
            where = f"day = {day}" if isinstance(day, int) else f"day = '{day}'"
            value = analyst.ask(People(where=where, sigma=sigma, pace=None), key=f"day {day}", anyway=True).value
            found.append({"truth": truth, "answer": value})
    return found


def capped(data: object, view: str | None, full_days: int) -> float:
    """The share of the last tenth of the days that is left if each person's first ``full_days`` days count."""
    with duckdb.connect() as rows:
        if isinstance(data, Path):
            rows.execute("CREATE TABLE data AS SELECT * FROM read_csv(?)", [str(data)])
        else:
            rows.register("data", data)
        counts = rows.execute(
            "SELECT count(*), count(*) FILTER (WHERE nth <= ?) FROM (SELECT day, row_number() OVER "
            "(PARTITION BY person ORDER BY day) AS nth FROM (SELECT DISTINCT person, day FROM "
            f"({view or 'SELECT * FROM data'}) v "
            "WHERE person IS NOT NULL) d) n GROUP BY day ORDER BY day",
            [full_days],
        ).fetchall()
    truth, left = np.array(counts[-max(1, len(counts) // 10) :]).sum(axis=0)
    return round(float(left / truth), 3)


def judged(days: list[dict[str, float]], full_days: int, sigma: float) -> dict[str, object]:
    """After how many days the mean relative error is twice that of the noise alone: running mean, and 21-day window."""
    truth, answers = (np.array([day[name] for day in days]) for name in ("truth", "answer"))
    error = np.abs(answers - truth) / truth
    noise = sigma * 2 * NormalDist().pdf(0) / truth  # mean absolute value of the noise
    running = np.cumsum(error) / np.cumsum(noise)
    window = np.convolve(error, np.ones(21), "same") / np.convolve(noise, np.ones(21), "same")

    def days_before(ratio: np.ndarray, start: int) -> int:
        late = np.flatnonzero(ratio[start:] > 2)
        return int(late[0]) + start if len(late) else len(ratio)

    doubled, sooner = days_before(running, full_days), days_before(window, full_days)
    return {
        "days asked": len(days),
        FULL: full_days,
        "days until the mean relative error doubles": doubled,
        "times": round(doubled / full_days, 1),
        "days until that of three weeks doubles": sooner,
        "times, three weeks": round(sooner / full_days, 1),
        "mean relative error of the noise alone": round(float(noise.mean()), 4),
        "mean relative error, all days": round(float(error.mean()), 4),
        "share of the truth that is answered, last tenth": round(
            float(answers[-max(1, len(days) // 10) :].sum() / truth[-max(1, len(days) // 10) :].sum()), 3
        ),
    }


@figures.styled()
def picture(days: list[dict[str, float]], full_days: int, title: str) -> "Figure":
    """The truth and the answers by day, and the day on which one budget for all people is used up."""
    truth, answers = ([day[name] for day in days] for name in ("truth", "answer"))
    drawn = figures.figure(9, 3.6)
    axes = drawn.subplots()
    axes.axvspan(0.5, full_days + 0.5, color="C4", alpha=0.3, lw=0)
    axes.plot(range(1, len(days) + 1), truth, color="#808080", lw=0.9, label="truth")
    axes.plot(range(1, len(days) + 1), answers, ".", color="C0", ms=4, label="answers with an account per person")
    axes.annotate(
        f"one budget for all people: answers end on day {full_days}",
        (full_days + 0.5, 0.93),
        (30, 0),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="center",
        arrowprops={"arrowstyle": "->", "color": figures.INK},
    )
    axes.set(xlabel="day", ylabel="people counted", xlim=(0, len(days) + 1), ylim=(0, 1.3 * max(truth)))
    axes.set_title(title)
    figures.thousands(axes.yaxis)
    axes.legend(loc="upper right")
    return drawn


def recorded(path: Path) -> list[dict[str, float]]:
    """The recorded days of a run."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def draw() -> None:
    """Write the picture of every run that is recorded, as SVG and as PNG."""
    for name, title, place in RUNS:
        days = recorded(pages.RESULTS / f"{name}.jsonl")
        drawn = picture(days, json.loads((pages.RESULTS / f"{name}.json").read_text(encoding="utf-8"))[FULL], title)
        pages.save_picture(drawn, place)


def main() -> None:
    """Run, write and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--full-days", type=int, default=20)
    parser.add_argument("--days", type=int, default=None)
    parser.add_argument("--sigma", type=float, default=None)
    parser.add_argument("--retail", action="store_true")
    parser.add_argument("--draw", action="store_true", help="the pictures again, from the recorded days")
    parser.add_argument("--cap", action="store_true", help="adds to the records what a cap by count would count")
    parser.add_argument("--quick", action="store_true", help="500 people, 30 days; writes nothing")
    given = parser.parse_args()
    if given.quick:
        people = sparse(500, 30, 0.2)
        print(
            json.dumps(
                judged(count_days(people, None, 5, 5.0, 30), 5, 5.0) | {CAPPED: capped(people, None, 5)}, indent=1
            )
        )
        return
    if given.cap:
        people = sparse(10_000, 600, 0.05)
        for name, (data, view) in {"daily": (people, None), "daily_retail": retail()}.items():
            path = pages.RESULTS / f"{name}.json"
            record = json.loads(path.read_text(encoding="utf-8"))
            record[CAPPED] = capped(data, view, record[FULL])
            path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        return
    if not given.draw:
        run(given)
    draw()


def run(given: argparse.Namespace) -> None:
    """Count the days of one stream, write what was found, and print it."""
    if given.retail:
        data, view = retail()
        sigma, name = given.sigma or 10.0, "daily_retail"
        days = count_days(data, view, given.full_days, sigma, given.days)
    else:
        most = given.days or round(1.5 * given.full_days / given.share)
        sigma, name = given.sigma or 0.05 * given.people * given.share, "daily"
        days = count_days(sparse(given.people, most, given.share), None, given.full_days, sigma, most)
    epsilon = zcdp.Zcdp(given.full_days * People(sigma=sigma).price / 10**15).epsilon(delta=1e-6)
    result = {"sigma": sigma, "epsilon at delta = 1e-6": round(epsilon, 3), **judged(days, given.full_days, sigma)}
    (pages.RESULTS / f"{name}.jsonl").write_text("".join(json.dumps(day) + "\n" for day in days), encoding="utf-8")
    (pages.RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""Feldman & Zrnic (2021): daily counts of the same people, each charged only for the days on which they appear.

    python experiments/feldman_zrnic_2021/daily.py [--people 10000] [--share 0.05] [--full-days 20] [--retail]
    python experiments/feldman_zrnic_2021/daily.py --quick    # 500 people, 30 days; writes nothing

Measures after how many days the mean relative error of a daily count doubles. In the generated data, each person
appears on a random share of the days. A worst-case zCDP filter answers ``full-days`` counts and no more. With an
account for each person, the same budget lasts longer: the script asks one count a day through a session (rows in
memory, ledger on disk).

``--retail`` counts the customers of each day in Online Retail (folder in BURSAR_DATA) instead. Prints the result as
JSON, and writes daily.json or daily_retail.json, and a picture, beside this file. The true counts in them would be
private for other data.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pyarrow as pa

from bursar import filters
from bursar.curves import zcdp
from bursar.queries import People, Session

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from data_sets import folder  # noqa: E402


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
            data,
            view=view,
            person="person",
            budget=filters.Zcdp(rho=full_days * price * (1 + 1e-12)),
            ledger=Path(folder) / "people.ledger",
        ) as session,
    ):
        rows = session.ledger.store.run(
            "SELECT day, count(DISTINCT person) FROM data WHERE person IS NOT NULL GROUP BY day ORDER BY day"
        )
        analyst = session.analyst("monitor", purpose="daily counts")
        for day, truth in rows[:most]:
            where = f"day = {day}" if isinstance(day, int) else f"day = '{day}'"
            value = analyst.ask(People(where=where, sigma=sigma, pace=None), key=f"day {day}").value
            found.append({"truth": truth, "answer": value})
    return found


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
        "worst-case filter answers": full_days,
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


def picture(days: list[dict[str, float]], full_days: int, path: Path, title: str) -> None:
    """Plot truth and answers by day, and where a worst-case filter stops."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 3.5), layout="constrained")
    axes.plot([day["answer"] for day in days], ".", ms=3, label="answers, an account for every person")
    axes.plot([day["truth"] for day in days], lw=0.8, label="truth")
    axes.axvline(full_days, color="tab:red", lw=1, label="a worst-case filter stops")
    axes.set(xlabel="day", ylabel="people", title=title, ylim=(0, 1.25 * max(day["truth"] for day in days)))
    axes.legend(loc="upper center", ncols=3, fontsize="small")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    """Run, write and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--full-days", type=int, default=20)
    parser.add_argument("--days", type=int, default=None)
    parser.add_argument("--sigma", type=float, default=None)
    parser.add_argument("--retail", action="store_true")
    parser.add_argument("--quick", action="store_true", help="500 people, 30 days; writes nothing")
    given = parser.parse_args()
    if given.quick:
        print(json.dumps(judged(count_days(sparse(500, 30, 0.2), None, 5, 5.0, 30), 5, 5.0), indent=1))
        return
    if given.retail:
        data, view = retail()
        sigma, name, title = given.sigma or 10.0, "daily_retail", "Online Retail: customers a day"
        days = count_days(data, view, given.full_days, sigma, given.days)
    else:
        most = given.days or round(1.5 * given.full_days / given.share)
        sigma = given.sigma or 0.05 * given.people * given.share
        name, title = "daily", f"{given.people} people, each there on {given.share:.0%} of the days"
        days = count_days(sparse(given.people, most, given.share), None, given.full_days, sigma, most)
    epsilon = zcdp.Zcdp(given.full_days * People(sigma=sigma).price / 10**15).epsilon(delta=1e-6)
    result = {"sigma": sigma, "epsilon at delta = 1e-6": round(epsilon, 3), **judged(days, given.full_days, sigma)}
    (HERE / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    picture(days, given.full_days, HERE / f"{name}.png", title)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

"""Mixed questions about the customers of one shop, week after week: one budget for all, caps, and accounts.

    python experiments/queries/mixed.py           # goes on where it was stopped; then writes page, record and picture
    python experiments/queries/mixed.py --quick   # one epsilon, one split, few trials; writes nothing
    python experiments/queries/mixed.py --page    # page and picture from what is recorded

48 weeks of Online Retail. Each week four questions: the number of customers, the revenue, the items sold, and one that
is chosen when the revenue is known; the mean spending follows from two of them. All rows promise the same (epsilon,
delta) by Gaussian noise. Each row but the fixed one is tuned with as many trials, on a fifth of the customers with
noise a quarter as large, and judged on the others; one more row is the best cap for the judged customers themselves.
True answers would be private for other data.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from almoner import filters
from almoner.queries import Histogram, People, Session, Sum, Table
from almoner.report import figures

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
import journal  # noqa: E402
import pages  # noqa: E402
from data_sets import folder  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST, WEEKS, DELTA = date(2011, 1, 3), 48, 1e-6
EPSILONS, SHOWN = (1.0, 2.0, 4.0), 2.0
MOST = {"customers": 1.0, "revenue": 2000.0, "items": 1000.0, "new": 1.0}
"""The most that a customer's week counts for: a person, pounds, items."""

EDGES = np.array([0, 50, 100, 150, 200, 250, 300, 350, 400, 500, 600, 800, 1000, 1500, 2000.0])
CLIPS = (0.15, 0.25, 0.35, 0.5, 0.7, 1.0)
"""Shares of MOST to which a plan may clip pounds and items."""

PACES = (None, 0.0, 0.05, 0.1, 0.2, 0.3, 0.5)
"""An account pays at most one part in so many of what it has left: this share of the weeks to come, at least 1.
None: who cannot pay in full is left out."""

KINDS = ("customers", "revenue", "items", "chosen")
FIGURES = ("customers", "revenue", "mean", "items", "chosen")
"""What is published: the mean spending is the revenue over the customers, and costs nobody anything."""

PARTS, SPLITS, RUNS, TRIALS, SEEDS = 5, 3, 200, 400, 6
RULE = {"weeks": [WEEKS // 4] * 4, "shares": [0.25] * 4, "clips": [0.5, 0.5]}
"""The cap that is fixed in advance: a quarter of the weeks, equal shares, half of MOST."""

ROWS = {
    "all": "one budget for all people, tuned",
    "rule": "caps fixed in advance: a quarter of the weeks",
    "cap": "a cap for each question, tuned",
    "hindsight": "the best caps in hindsight",
    "accounts": "an account for each person, tuned",
}

Plan = dict[str, Any]


def spending(given: Path | None = None) -> np.ndarray:
    """(2, customers, weeks) pounds and items of each customer in each week; 0 for who did not come."""
    path, last = folder("online_retail", given) / "online_retail.csv.gz", FIRST + timedelta(days=7 * WEEKS - 1)
    with duckdb.connect() as rows:
        rows.execute("CREATE TABLE data AS SELECT * FROM read_csv(?)", [str(path)])
        found = rows.execute(
            "SELECT TRY_CAST(CustomerID AS BIGINT) AS person, date_diff('day', ?, CAST(InvoiceDate AS DATE)) // 7 AS "
            "week, sum(Quantity * UnitPrice) AS pounds, sum(Quantity) AS items FROM data "
            "WHERE Quantity > 0 AND UnitPrice > 0 AND CustomerID IS NOT NULL "
            "AND CAST(InvoiceDate AS DATE) BETWEEN ? AND ? GROUP BY ALL ORDER BY ALL",
            [FIRST, FIRST, last],
        ).fetchnumpy()
    people, place = np.unique(found["person"], return_inverse=True)
    bought = np.zeros((2, len(people), WEEKS))
    for kind, name in enumerate(("pounds", "items")):
        bought[kind, place, found["week"]] = found[name]
    return bought


class Shop:
    """Some customers: who came in each week, and what each of them adds to each figure."""

    def __init__(self, bought: np.ndarray) -> None:
        (spent, items), came = bought, bought[0] > 0
        self.people = len(spent)
        self.who = [np.flatnonzero(week) for week in came.T]
        first = came & (np.cumsum(came, axis=1) == 1)
        weeks = {"customers": came, "new": first, "revenue": spent, "items": items}
        self.parts = {
            name: [np.minimum(week[who], MOST[name]) for week, who in zip(each.T, self.who, strict=True)]
            for name, each in weeks.items()
        }
        self.place = [np.clip(np.digitize(each, EDGES) - 1, 0, len(EDGES) - 2) for each in self.parts["revenue"]]
        self.truth = {name: np.array([week.sum() for week in every]) for name, every in self.parts.items()}
        self.truth["mean"] = self.truth["revenue"] / self.truth["customers"]
        bins = [self.bins(week, self.parts["customers"][week]) for week in range(WEEKS)]
        self.truth["median"] = np.array(list(map(median, bins)))

    def bins(self, week: int, parts: np.ndarray) -> np.ndarray:
        """The counts of the customers of a week by what they spent, each as much as ``parts`` says."""
        return np.bincount(self.place[week], parts, minlength=len(EDGES) - 1)


def median(bins: np.ndarray) -> float:
    """Where the counts below the edges, made to rise, pass half of them all."""
    below = np.maximum.accumulate(np.maximum(np.cumsum(np.concatenate([[0.0], bins])), 0.0))
    half = below[-1] / 2
    edge = int(np.clip(np.searchsorted(below, half), 1, len(EDGES) - 1))
    rise = below[edge] - below[edge - 1]
    return float(EDGES[edge - 1] + (EDGES[edge] - EDGES[edge - 1]) * ((half - below[edge - 1]) / rise if rise else 0))


def noises(plan: Plan, rho: float) -> np.ndarray:
    """(4,) the noise of each kind of question, as a multiple of a full contribution."""
    if "full" in plan:  # accounts: for how many full contributions a person's whole budget would pay
        return np.sqrt(np.array(plan["full"]) / (2 * rho))
    return np.sqrt(np.array(plan["weeks"]) / (2 * rho * np.array(plan["shares"])))


def pace_of(plan: Plan, week: int) -> int | None:
    """The ``pace`` of a week's questions."""
    return None if plan["pace"] is None else max(1, int(np.ceil((WEEKS - week) * plan["pace"])))


def unit_of(plan: Plan, name: str) -> float:
    """A full contribution to a question."""
    return MOST.get(name, 1.0) * dict(zip(("revenue", "items"), plan["clips"], strict=True)).get(name, 1.0)


Counted = Callable[[int, int, np.ndarray], np.ndarray]
"""A function of kind, week and contributions in [0, 1]: what of each contribution is counted."""


def caps(shop: Shop, plan: Plan) -> Counted:
    """Each person's first weeks count, as many for each kind of question as the plan says."""
    asked = np.zeros((len(KINDS), shop.people))

    def capped(kind: int, week: int, parts: np.ndarray) -> np.ndarray:
        asked[kind, shop.who[week]] += parts > 0
        return np.where(asked[kind, shop.who[week]] <= plan["weeks"][kind], parts, 0.0)

    return capped


def accounts(shop: Shop, plan: Plan, rho: float) -> tuple[Counted, np.ndarray]:
    """Each person pays for what they add, as long as they can; and what each has left."""
    sigma, left = noises(plan, rho), np.full(shop.people, rho)

    def charged(kind: int, week: int, parts: np.ndarray) -> np.ndarray:
        who = shop.who[week]
        cost, mine = parts**2 / (2 * sigma[kind] ** 2), left[who]
        may = mine / (pace_of(plan, week) or 1)
        share = np.where(cost <= may, 1.0, 0.0 if plan["pace"] is None else np.sqrt(may / np.maximum(cost, 1e-300)))
        left[who] = np.maximum(mine - cost * share**2, 0.0)
        return parts * share

    return charged, left


def choice(revenue: list[float]) -> str:
    """The last question of a week: new customers where the revenue fell, else the median of what customers spent."""
    return "new" if len(revenue) > 1 and revenue[-1] < revenue[-2] else "median"


def answers(shop: Shop, plan: Plan, rho: float, seed: int, noise: float = 1.0) -> dict[str, Any]:
    """One run: the figures of each week, and what was chosen; with the same seed each plan has the same draws."""
    draws = np.random.default_rng(seed).standard_normal((WEEKS, 3 + len(EDGES) - 1))
    sigma = noise * noises(plan, rho)
    counted = accounts(shop, plan, rho)[0] if "full" in plan else caps(shop, plan)
    found: dict[str, Any] = {name: [] for name in (*KINDS, "asked")}
    for week in range(WEEKS):
        for kind, name in enumerate(KINDS[:3]):
            unit = unit_of(plan, name)
            total = counted(kind, week, np.minimum(shop.parts[name][week] / unit, 1.0)).sum()
            found[name].append(unit * (total + sigma[kind] * draws[week, kind]))
        asked = choice(found["revenue"])
        if asked == "new":
            value = counted(3, week, shop.parts["new"][week]).sum() + sigma[3] * draws[week, 3]
        else:
            value = median(
                shop.bins(week, counted(3, week, shop.parts["customers"][week])) + sigma[3] * draws[week, 3:]
            )
        found["chosen"].append(value)
        found["asked"].append(asked)
    found["mean"] = np.clip(np.array(found["revenue"]) / np.maximum(found["customers"], 1.0), 0, MOST["revenue"])
    return found


def errors(shop: Shop, found: dict[str, Any]) -> list[float]:
    """(5,) the root of the mean square, over weeks, of (answer - truth) / truth, for each of FIGURES."""
    chosen = np.array([shop.truth[asked][week] for week, asked in enumerate(found["asked"])])
    truth = shop.truth | {"chosen": chosen}
    return [float(np.sqrt(np.mean((np.array(found[name]) / truth[name] - 1) ** 2))) for name in FIGURES]


def drawn(kind: str, rng: np.random.Generator, near: Plan | None) -> Plan:
    """A plan at random, or near one."""

    def moved(name: str, low: float, high: float, wide: float) -> np.ndarray:
        if near is None:
            return np.exp(rng.uniform(np.log(low), np.log(high), len(KINDS)))
        return np.clip(np.array(near[name]) * np.exp(rng.normal(0, wide, len(KINDS))), low, high)

    clips = [float(rng.choice(CLIPS)) for _ in range(2)]
    if near is not None:
        clips = [new if rng.random() < 0.25 else old for new, old in zip(clips, near["clips"], strict=True)]
    if kind == "accounts":
        pace = PACES[rng.integers(len(PACES))]
        pace = near["pace"] if near is not None and rng.random() < 0.75 else pace
        return {"full": moved("full", 1.05, 200, 0.25).tolist(), "clips": clips, "pace": pace}
    shares = moved("shares", 0.02, 1, 0.25)
    weeks = moved("weeks", 1, WEEKS, 0.25) if kind == "cap" else np.full(len(KINDS), WEEKS)
    return {"weeks": np.rint(weeks).astype(int).tolist(), "shares": (shares / shares.sum()).tolist(), "clips": clips}


def tuned(kind: str, shop: Shop, rho: float, trials: int, noise: float) -> Plan:
    """The best of half as many plans at random, and of as many near the best so far."""
    rng, best, least = np.random.default_rng(0), dict(RULE), np.inf
    for trial in range(trials):
        plan = drawn(kind, rng, None if trial < trials // 2 else best)
        error = float(np.mean([errors(shop, answers(shop, plan, rho, seed, noise)) for seed in range(SEEDS)]))
        if error < least:
            best, least = plan, error
    return best


def judged(name: str, bought: np.ndarray, epsilon: float, split: int, runs: int, trials: int) -> dict[str, Any]:
    """One row: its plan, and the errors of its runs on the customers who did not tune it."""
    rho = filters.Zcdp(epsilon=epsilon, delta=DELTA).rho
    fold = np.random.default_rng(1).permutation(bought.shape[1]) % PARTS
    part, shop = Shop(bought[:, fold == split]), Shop(bought[:, fold != split])
    if name == "rule":
        plan = RULE
    elif name == "hindsight":
        plan = tuned("cap", shop, rho, trials, 1.0)
    else:
        plan = tuned(name, part, rho, trials, part.people / shop.people)
    found = [errors(shop, answers(shop, plan, rho, 1000 + seed)) for seed in range(runs)]
    return {
        "row": name, "epsilon": epsilon, "split": split, "plan": plan, "customers": shop.people,
        "errors": [[round(each, 5) for each in run] for run in found],
    }  # fmt: skip


def rows(record: Path | None, bought: np.ndarray, epsilons: Any, splits: int, runs: int, trials: int) -> list[Plan]:
    """All rows; with a record, those in it are taken from it, and each new one is added to it."""
    done = {(row["row"], row["epsilon"], row["split"]): row for row in (journal.recorded(record) if record else [])}
    for epsilon in epsilons:
        for split in range(splits):
            for name in ROWS:
                if (name, epsilon, split) not in done:
                    row = judged(name, bought, epsilon, split, runs, trials)
                    done[name, epsilon, split] = row
                    print(epsilon, split, name, np.mean(row["errors"], axis=0).round(3), flush=True)
                    if record:
                        journal.record(record, row)
    return list(done.values())


def table(bought: np.ndarray) -> pa.Table:
    """A row for each customer and week, as a session reads them."""
    persons, week = np.nonzero(bought[0])
    first = np.cumsum(bought[0] > 0, axis=1)[persons, week] == 1
    spent, items = bought[:, persons, week]
    return pa.table({"person": persons, "week": week, "revenue": spent, "items": items, "first": first})


def question(kind: int, asked: str, plan: Plan, week: int, sigma: float) -> Any:
    """A question of a week, in the words of a session."""
    options = {"where": f"week = {week}", "sigma": sigma, "pace": pace_of(plan, week)}
    if asked in ("revenue", "items"):
        return Sum(asked, 0, unit_of(plan, asked), clip=1, **options)
    if asked == "median":
        return Histogram("revenue", tuple(EDGES.tolist()), clip=1, **options)
    return People(**options | {"where": options["where"] + (" and first" if asked == "new" else "")})


def product(bought: np.ndarray, plan: Plan, epsilon: float, weeks: int) -> dict[str, float]:
    """Accounts through a session with its ledger on disk: how far answers and spends are from those computed here."""
    budget, bought = filters.Zcdp(epsilon=epsilon, delta=DELTA), np.minimum(bought, MOST["revenue"] - 0.01)
    shop, rho, far, revenue = Shop(bought), budget.rho, [], []
    sigma, (counted, left) = noises(plan, rho), accounts(shop, plan, rho)
    with tempfile.TemporaryDirectory() as place:
        options = {"person": "person", "budget": budget, "ledger": Path(place) / "shop.ledger"}
        with Session.open(Table(table(bought)), **options, create=True) as session:
            analyst = session.analyst("shop", purpose="weekly report")
            for week in range(weeks):
                for kind, name in enumerate(KINDS):
                    asked = choice(revenue) if name == "chosen" else name
                    unit = unit_of(plan, asked)
                    parts = np.minimum(shop.parts["customers" if asked == "median" else asked][week] / unit, 1.0)
                    asking = question(kind, asked, plan, week, sigma[kind])
                    answer = analyst.ask(asking, key=f"{name} of week {week}", anyway=True)
                    revenue += [float(answer.value)] if name == "revenue" else []
                    noise = sigma[kind] * np.sqrt(np.size(answer.values))
                    far.append((np.sum(answer.values) / unit - counted(kind, week, parts).sum()) / noise)
            some = np.flatnonzero(bought[0, :, :weeks].any(axis=1))[:: max(1, bought.shape[1] // 100)]
            told = np.array([session.statement(int(who)).rho for who in some])
    return {
        "answers": len(far),
        "mean square of (answer - expected) / noise": round(float(np.mean(np.square(far))), 3),
        "largest difference of a person's spending": float(np.abs(told - (rho - left[some])).max()),
        "budget": rho,
    }


def summary(done: list[Plan]) -> dict[str, Any]:
    """What the page and the picture tell: mean errors by epsilon and row, and gains with 95 % intervals over runs."""
    told: dict[str, Any] = {"delta": DELTA, "weeks": WEEKS, "customers": done[0]["customers"], "epsilons": {}}
    for epsilon in sorted({row["epsilon"] for row in done}):
        found = {name: [r for r in done if (r["row"], r["epsilon"]) == (name, epsilon)] for name in ROWS}
        runs = {name: np.concatenate([np.array(row["errors"]) for row in each]) for name, each in found.items()}
        means = {name: each.mean(axis=1) for name, each in runs.items()}
        gains = {}
        for name in ("cap", "hindsight"):
            ratio = means["accounts"] / means[name] - 1
            parts = ratio.reshape(len(found[name]), -1).mean(axis=1)
            half = float(pages.half_width(ratio))
            gains[name] = {"mean": ratio.mean(), "half": half, "splits": [parts.min(), parts.max()]}
        errors_of = {name: [*each.mean(axis=0), means[name].mean()] for name, each in runs.items()}
        plans = {name: each[0]["plan"] for name, each in found.items()}
        told["epsilons"][str(epsilon)] = {"errors": errors_of, "gains": gains, "plans": plans, "runs": len(runs["all"])}
    told["needed"] = {name: needed(told, name) for name in ("all", "rule", "cap", "hindsight")}
    return json.loads(json.dumps(told), parse_float=lambda text: float(f"{float(text):.4g}"))


def needed(told: dict[str, Any], name: str) -> float | None:
    """The epsilon at which a row has the error that accounts have at SHOWN, between those that ran; None: none had."""
    curve = [(float(epsilon), each["errors"][name][-1]) for epsilon, each in told["epsilons"].items()]
    goal = told["epsilons"][str(SHOWN)]["errors"]["accounts"][-1] if str(SHOWN) in told["epsilons"] else np.nan
    for (low, far), (high, near) in pairwise(curve):
        if near <= goal <= far:
            return float(np.exp(np.interp(-np.log(goal), -np.log([far, near]), np.log([low, high]))))
    return None


def written(told: dict[str, Any]) -> str:
    """The tables of the page."""
    lines = [f"| epsilon | | {' | '.join(FIGURES)} | mean of all |", "|---|---|---|---|---|---|---|---|"]
    for epsilon, each in told["epsilons"].items():
        for name, words in ROWS.items():
            cells = [f"{100 * error:.1f} %" for error in each["errors"][name]]
            lines.append(f"| {float(epsilon):g} | {words} | {' | '.join(cells)} |")
    lines += [
        "",
        "| epsilon | accounts against | difference of the mean error | in the splits | runs |",
        "|---|---|---|---|---|",
    ]
    for epsilon, each in told["epsilons"].items():
        for name, gain in each["gains"].items():
            low, high = (f"{100 * part:+.1f}" for part in gain["splits"])
            shown = f"{100 * gain['mean']:+.1f} ± {100 * gain['half']:.1f} %"
            lines.append(f"| {float(epsilon):g} | {ROWS[name]} | {shown} | {low} to {high} % | {each['runs']} |")
    lines += ["", f"| for the error that accounts have at epsilon {SHOWN:g} | epsilon |", "|---|---|"]
    for name, epsilon in told["needed"].items():
        lines.append(f"| {ROWS[name]} | {'none that ran' if epsilon is None else f'{epsilon:.1f}'} |")
    lines += ["", f"| plans at epsilon {SHOWN:g}, first split | |", "|---|---|"]
    for name, plan in told["epsilons"][str(SHOWN)]["plans"].items():
        lines.append(f"| {ROWS[name]} | {said(plan)} |")
    return "\n".join(lines) + "\n"


def said(plan: Plan) -> str:
    """A plan in words; numbers by kind of question."""
    clip = "up to {:.0f} pounds, {:.0f} items".format(*(unit_of(plan, name) for name in ("revenue", "items")))
    if "full" in plan:
        ways = {None: "people who have too little are left out", 0.0: "people who have too little spend the remainder"}
        pace = f"people pay at most one part in {plan['pace']} times the weeks to come of what they have left"
        full = ", ".join(f"{each:.1f}" for each in plan["full"])
        return f"{clip}; a budget pays for {full} full contributions; {ways.get(plan['pace'], pace)}"
    shares = ", ".join(f"{100 * each:.0f}" for each in plan["shares"])
    return f"{clip}; weeks {', '.join(map(str, plan['weeks']))}; {shares} % of the budget"


@figures.styled()
def picture(bought: np.ndarray, told: dict[str, Any], runs: int = 200) -> "Figure":
    """Revenue by week in four ways: the truth, where 95 % of all runs' answers are, and the answers of one run."""
    shop = Shop(bought[:, np.random.default_rng(1).permutation(bought.shape[1]) % PARTS != 0])
    rho, each = filters.Zcdp(epsilon=SHOWN, delta=DELTA).rho, told["epsilons"][str(SHOWN)]
    drawn, weeks, thousand = figures.figure(7, 5.4), np.arange(1, WEEKS + 1), 1000.0
    axes = drawn.subplots(2, 2, sharex=True, sharey=True).flat
    titles = {"all": "One budget for all", "rule": "Caps, fixed", "hindsight": "Caps, best in hindsight"}
    for panel, (name, title) in zip(axes, {**titles, "accounts": "Accounts"}.items(), strict=True):
        every = np.array([answers(shop, each["plans"][name], rho, 1000 + k)["revenue"] for k in range(runs)]) / thousand
        panel.fill_between(weeks, *np.quantile(every, [0.025, 0.975], axis=0), color="C0", alpha=0.25, lw=0)
        panel.plot(weeks, shop.truth["revenue"] / thousand, color="#808080", lw=1.6)
        panel.plot(weeks, every[0], ".", color="C0", ms=5)
        panel.set_title(f"{title}: {100 * each['errors'][name][-1]:.0f} %", fontsize=13.5)
        panel.tick_params(labelsize=12)
        panel.set_ylim(0, 1.35 * shop.truth["revenue"].max() / thousand)
    drawn.supxlabel("week", fontsize=12.5)
    drawn.supylabel("revenue, thousand pounds", fontsize=12.5)
    return drawn


def main() -> None:
    """Run, or go on; then write the record, the page and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--quick", action="store_true", help="one epsilon, one split, few trials; writes nothing")
    parser.add_argument("--page", action="store_true", help="page and picture from what is recorded")
    given = parser.parse_args()
    bought = spending(given.data)
    if given.quick:
        rows(None, bought, (SHOWN,), 1, 5, 10)
        print(product(bought[:, :200], {"full": [20, 4, 6, 6], "clips": [0.5, 0.5], "pace": 0.1}, SHOWN, 3))
        return
    record = pages.RESULTS / "mixed.jsonl"
    done = journal.recorded(record) if given.page else rows(record, bought, EPSILONS, SPLITS, RUNS, TRIALS)
    told = summary(done)
    kept = pages.DOCS / "mixed.json"
    checked = json.loads(kept.read_text(encoding="utf-8")).get("product") if given.page and kept.is_file() else None
    told["product"] = checked or product(bought, told["epsilons"][str(SHOWN)]["plans"]["accounts"], SHOWN, WEEKS)
    pages.save("mixed", told, written(told), picture(bought, told))


if __name__ == "__main__":
    main()

"""`almoner demo`: a shop's weekly counts and models on real data, with an account for each person and without."""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option, echo

from almoner import _html
from almoner.cli._options import Delta, Epsilon, Force, Json, check_free
from almoner.cli._shown import Listing, draw_spends, dumps, progress_bar, show
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.queries import Statement
    from almoner.training import Card, HolderReport
    from almoner.training.demo_tables import Example

CUSTOMERS, WEEKS, FULL_WEEKS = 3000, 52, 8  # the last: weeks that a budget pays for in full
PERSON = 17
SIGMA, DELTA = 10.0, 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """The shop's published counts, and what one customer may be told. The customers are generated: all is public."""

    truth: list[int]
    answers: list[float]
    one_budget: int  # number of weeks that one budget of the same size for all people answers
    epsilon: float
    statement: "Statement"

    @property
    def late_share(self) -> float:
        """The last eight weeks' answers, as a share of the truth."""
        return sum(self.answers[-8:]) / sum(self.truth[-8:])

    @property
    def words(self) -> tuple[list[str], list[str]]:
        """Sentences on budgets, and on what the last answers lack."""
        return [
            f"One budget for all people is used up after {self.one_budget} weeks.",
            f"With an account for each customer, the same budget answers all {len(self.answers)} weeks.",
        ], [
            f"Who came in more than {FULL_WEEKS} weeks is left out from then on.",
            f"So the last eight answers add up to {100 * self.late_share:.0f}\u00a0% of the truth.",
        ]

    def to_dict(self) -> dict[str, int | float]:
        weeks = {"weeks asked": len(self.answers), "weeks that one budget answers": self.one_budget}
        promise = {"epsilon": self.epsilon, "delta": DELTA}
        return weeks | promise | {"share of the truth, last eight weeks": self.late_share}


def weekly_counts(observe: Callable[[int, int], None]) -> Counts:
    """Ask for the number of customers of each week, with a ledger on disk; ``observe`` gets the weeks done, and all."""
    import tempfile

    import numpy as np

    from almoner import filters
    from almoner.accounting.calibrate import steps
    from almoner.mechanisms import Gaussian
    from almoner.queries import People, Session, Table

    rng = np.random.default_rng(0)  # the same customers every time; the noise is the operating system's
    there = rng.random((WEEKS, CUSTOMERS)) < rng.beta(1.0, 19.0, CUSTOMERS)
    weeks, customers = np.nonzero(there)
    budget = filters.Zcdp(rho=FULL_WEEKS * People(sigma=SIGMA).price / 10**15)
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        visits = Path(folder) / "visits.csv"
        rows = zip(customers.tolist(), weeks.tolist(), strict=True)
        visits.write_text("customer,week\n" + "".join(f"{who},{week + 1}\n" for who, week in rows), encoding="utf-8")
        table, ledger = Table(visits, types={"customer": "whole", "week": "whole"}), Path(folder) / "shop.ledger"
        with Session.open(table, person="customer", budget=budget, ledger=ledger, create=True) as session:
            analyst = session.analyst("the shop", purpose="weekly report")
            for week in range(1, WEEKS + 1):
                question = People(where=f"week = {week}", sigma=SIGMA, pace=None)
                answers.append(float(analyst.ask(question, key=f"customers of week {week}", anyway=True).value))
                observe(week, WEEKS)
            statement = session.statement(PERSON)
    truth = there.sum(axis=1).tolist()
    return Counts(truth, answers, min(WEEKS, steps(budget, Gaussian(SIGMA))), statement.epsilon, statement)


@dataclass(frozen=True, slots=True)
class _Row:
    """One way to train, and how well it did on the test data, in percent."""

    method: str
    epsilon: float | None  # the promise of one run; None: nothing
    accuracy: float
    spread: float  # standard deviation over the runs
    runs: int
    seconds: float  # time of one run


@dataclass(frozen=True, slots=True, eq=False)
class _Results:
    """The rows of the demonstration, and what the last run with individual accounts left."""

    data: str
    people: int
    unit: str  # name of the people
    delta: float
    rows: list[_Row]
    gained: float  # points that accounts per person add to the mean accuracy
    half: float | None  # half of the 95 % interval of ``gained``; None: one run has none
    card: "Card"
    holder_report: "HolderReport"  # PRIVATE: for the data holder

    def to_dict(self) -> dict[str, object]:
        told = {"data": self.data, "people": self.people, "delta": self.delta, "lines": list(map(asdict, self.rows))}
        difference = {"points": self.gained, "half of the 95 % interval": self.half}
        return {**told, "difference": difference, "card": self.card.to_dict()}

    @property
    def about(self) -> str:
        return f"{self.data}: {self.people:,} {self.unit}"

    @property
    def words(self) -> tuple[list[str], list[str]]:
        """Sentences that compare the private rows, and on what one private run promises."""
        promise = promised(self.card.epsilon, self.delta, self.card.guess)
        return reading(self.gained, self.half, self.rows[-1].runs), promise


def demo(
    data: Annotated[Path | None, Option(help="The folder of UCI Adult: adult.data, adult.test.")] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    runs: Annotated[int, Option(help="How many models of each private kind to train.")] = 5,
    out: Annotated[Path, Option(help="The folder to write to: a page, and a PRIVATE picture with its numbers.")] = Path(
        "demo"
    ),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Count a shop's customers every week, and train models without privacy, with it, and with accounts per person.

    Ends with OUT/index.html, for a browser. The models predict census income where the files of UCI Adult are found
    (in --data, ALMONER_DATA or ../shared/data), and else read handwritten digits.
    """
    from almoner import _extras

    _extras.check(duckdb="queries", pyarrow="queries", sklearn="sklearn", matplotlib="plots")
    from almoner.training import demo_tables

    adult = demo_tables.adult(data)
    if data is not None and adult is None:
        raise ArgumentError(f"data={str(data)!r} does not hold adult.data and adult.test")
    picture, page, told = (out / name for name in ("spends-private.png", "index.html", "statement.html"))
    for path in (picture, page, told):
        check_free(path, force=force)
    example = adult or demo_tables.digits()
    unit = "people" if adult else "images, each of which stands for one person"
    with progress_bar(quiet=as_json) as progress:
        task = progress.add_task("training", total=None)

        def observe(method: str, done: int, total: int) -> None:
            progress.update(task, description=method, completed=done, total=total)

        counts = weekly_counts(lambda done, total: observe("a shop's weeks", done, total))
        results = _run(example, unit, epsilon=epsilon, delta=delta, runs=runs, observe=observe)
    private = draw_spends(results.holder_report, picture, f"{results.data}, epsilon {epsilon:g}")
    _write_pages(counts, results, page, told)
    if as_json:
        echo(dumps(results.to_dict() | {"shop": counts.to_dict(), "page": str(page), "private": private}))
    else:
        _print(counts, results, private)
        show(f"Open {page} in a browser.")


def _write_pages(counts: Counts, results: _Results, page: Path, told: Path) -> None:
    """The page of the demonstration, and, beside it and linked, the statement of one generated customer: all public."""
    from almoner.report.pages import statement

    rows, (compared, promise), (shop, late) = [], results.words, counts.words
    for row in results.rows:
        spread = f" ± {row.spread:.2f} ({row.runs} runs)" if row.runs > 1 else ""
        rows.append((row.method, "-" if row.epsilon is None else f"{row.epsilon:g}", f"{row.accuracy:.2f} %{spread}"))
    told.write_text(statement(counts.statement, person=PERSON), encoding="utf-8")
    words = {"shop": shop, "late": late, "promise": promise, "compared": compared}
    facts = {"counts": counts, "customers": CUSTOMERS, "model": rows, "about": results.about, "person": PERSON}
    page.write_text(_html.render("demo.html", **facts, **words), encoding="utf-8")


def _run(
    example: "Example", unit: str, *, epsilon: float, delta: float, runs: int, observe: Callable[[str, int, int], None]
) -> _Results:
    """Train in the three ways; each private run has fresh noise and is a release of its own."""
    from almoner.training import LogisticRegression

    people, models, log = len(example.train[1]), 2 * runs + 1, logging.getLogger("almoner.training")
    observe("no privacy", 0, models)
    start = time.perf_counter()
    rows = [_Row("no privacy", None, 100 * example.accuracy_without_privacy(), 0.0, 1, time.perf_counter() - start)]
    reached: list[list[float]] = []
    for individual in (False, True):
        method = "private, accounts per person" if individual else "private gradient descent"
        reached.append(accuracies := [])
        start = time.perf_counter()
        for number in range(runs):
            observe(method, 1 + individual * runs + number, models)
            public: Any = {"n_people": people, "classes": range(example.classes)}
            model = LogisticRegression(epsilon=epsilon, delta=delta, individual=individual, **public)
            with ExitStack() as after:  # columns of the examples are scaled: no hint on scales
                after.callback(log.setLevel, log.level)
                log.setLevel(logging.ERROR)
                model.fit(*example.train)
            accuracies.append(100 * model.score(*example.test))
        seconds = (time.perf_counter() - start) / runs
        spread = stdev(accuracies) if runs > 1 else 0.0
        rows.append(_Row(method, epsilon, fmean(accuracies), spread, runs, seconds))
    compared = difference(*reached)
    return _Results(example.name, people, unit, delta, rows, *compared, model.card_, model.holder_report_)


def _print(counts: Counts, results: _Results, private: list[str]) -> None:
    (shop, late), runs, rows = counts.words, results.rows[-1].runs, []
    for row in results.rows:
        spread = f" ± {row.spread:.2f}" if row.runs > 1 else ""
        promise = ("-", "-") if row.epsilon is None else (f"{row.epsilon:g}", f"{results.delta:g}")
        rows.append((row.method, *promise, f"{row.accuracy:.2f} %{spread}", f"{row.seconds:.2f}"))
    caption = f"private: mean ± spread of {runs} runs" if runs > 1 else "private: one run each"
    columns = ("trained with", "epsilon", "delta", "test accuracy", "seconds")
    show(
        " ".join(["1. A shop counts its customers every week.", *shop, *late]),
        "2. A model is trained without privacy, with it, and with accounts per person.",
        Listing(columns, rows, title=f"{results.about}; {caption}", right=columns[1:]),
        *map(" ".join, results.words),
        f"The promise of each run is for adding or removing one person. Charged, with accounts per person: "
        f"{results.card.charged_at_most}. Each run is a release of its own.",
        f"How people's budgets were spent (private: for the data holder): {', '.join(private)}",
    )


def difference(plain: Sequence[float], accounts: Sequence[float]) -> tuple[float, float | None]:
    """(Mean with accounts minus mean without, half of its 95 % interval), in points; None where each ran once."""
    from scipy import special

    runs, gained = len(plain), fmean(accounts) - fmean(plain)
    if runs < 2:
        return gained, None
    spread = variance(plain) + variance(accounts)
    return gained, float(special.stdtrit(2 * runs - 2, 0.975)) * sqrt(spread / runs)


def promised(epsilon: float, delta: float, guess: float | None) -> list[str]:
    """Sentences on what a private run promises, and what that lets others guess."""
    promise = f"Each private run promises epsilon {epsilon:g} at delta {delta:g}."
    if guess is None:
        return [promise]
    return [
        promise,
        "These two numbers limit what others can guess about a person.",
        "Suppose somebody knows everything about all other people, and guesses whether one person is in the data.",
        "Without the model the guess is right 50 times in 100.",
        f"With it the guess is right at most {min(1000, ceil(1000 * guess - 1e-9)) / 10:g} times in 100.",
    ]


def reading(gained: float, half: float | None, runs: int) -> list[str]:
    """Sentences that compare the two private rows, whose allowances are never below the clip: no ``extra_steps``."""
    words = [
        "On one table, trained once, accounts per person gain little or nothing.",
        "In this table both private rows take the same steps, and only their random noise differs.",
        "Accounts per person pay in streams and repeated releases, as in the shop's counts.",
        f"The row with accounts is {abs(gained):.2f} points {'lower' if gained < 0 else 'higher'} here.",
    ]
    if half is None:
        return [*words, "One run of each cannot tell a difference from noise; more --runs give an interval."]
    low, high = gained - half, gained + half
    words.append(f"The 95 % interval of this difference, over {runs} runs of each, is from {low:+.2f} to {high:+.2f}.")
    if low <= 0 <= high:
        return [*words, "It contains 0: the difference is within the noise of so few runs."]
    return [*words, "It does not contain 0; with noise alone that happens in one of 20 demonstrations."]

"""`almoner demo`: a shop's weekly revenue and models on real data, with an account for each person and without."""

import logging
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option, echo

import almoner
from almoner import _extras, _html
from almoner.cli._options import Delta, Epsilon, Force, Json, check_free
from almoner.cli._shown import Listing, dumps, progress_bar, show
from almoner.errors import ArgumentError, MissingExtra

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from almoner.queries import Statement
    from almoner.training import Card

CUSTOMERS, WEEKS, FULL_WEEKS = 3000, 52, 3  # the last: weeks of the highest price that a budget pays for
PERSON = 17
MOST, EPSILON, DELTA = 200.0, 2.0, 1e-6  # pounds of a customer in a week, and the budget of each customer


@dataclass(frozen=True, slots=True, eq=False)
class Shop:
    """The shop's published revenue, and what one customer may be told. The customers are generated: all is public."""

    truth: list[float]
    answers: list[float]
    expected: list[float]  # the answers without their noise
    noise: float  # standard deviation of an answer, in pounds
    errors: dict[str, float]  # of each way to stay within the budget: the typical error of a week, as a share
    statement: "Statement"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Each way, its promise, and its typical error."""
        return [(way, f"{EPSILON:g}", f"{DELTA:g}", error) for way, error in self.shown]

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Each way, and its typical error in percent."""
        return [(way, f"{100 * error:.1f} %") for way, error in self.errors.items()]

    @property
    def words(self) -> list[str]:
        """Sentences on what an account does, and where it does no more than a cap."""
        late = 100 * sum(self.expected[-8:]) / sum(self.truth[-8:])
        return [
            "Most customers spend far less, and an account charges them for what they spend.",
            f"Who spends much runs out of budget: the last eight weeks add up to about {late:.0f} % of the truth.",
            "For counts of people, where everybody adds the same, a cap in the right place does as well.",
        ]

    def to_dict(self) -> dict[str, object]:
        """Give programs expectations over the noise, not the answers of this run."""
        return {"weeks": WEEKS, "epsilon": EPSILON, "delta": DELTA, "typical error of a week": self.errors}


def ways(spent: "NDArray[np.float64]", rho: float) -> "tuple[dict[str, float], NDArray[np.float64]]":
    """The typical error of one budget, of the best cap, and of accounts; and what accounts answer but for the noise.

    The two rivals are as good as they can be: their clips, and the weeks of the cap, are chosen by the truth.
    """
    import numpy as np

    truth, week_of = spent.sum(axis=1), np.cumsum(spent > 0, axis=0)
    sigma, left, expected = MOST * sqrt(FULL_WEEKS / (2 * rho)), np.full(spent.shape[1], rho), []

    def error(answer: "NDArray[np.float64]", noise: float) -> float:
        return float(np.sqrt(np.mean(((answer - truth) ** 2 + noise**2) / truth**2)))

    def capped(clip: float, weeks: int) -> float:
        return error((np.minimum(spent, clip) * (week_of <= weeks)).sum(axis=1), clip * sqrt(weeks / (2 * rho)))

    for week in spent:
        cost = week**2 / (2 * sigma**2)
        part = np.sqrt(np.clip(left / np.maximum(cost, 1e-300), 0.0, 1.0))  # too little left: the remainder is spent
        left -= cost * part**2
        expected.append((week * part).sum())
    clips = np.linspace(MOST / 8, MOST, 8)
    cap, weeks = min((capped(clip, weeks), weeks) for clip in clips for weeks in range(1, WEEKS + 1))
    return {
        "one budget for all people": min(capped(clip, WEEKS) for clip in clips),
        f"a cap, the best in hindsight: each customer's first {weeks} weeks": cap,
        "an account for each customer": error(np.array(expected), sigma),
    }, np.array(expected)


def weekly_revenue(observe: Callable[[int, int], None]) -> Shop:
    """Ask for the revenue of each week, with a ledger on disk; ``observe`` gets the weeks done, and all."""
    import numpy as np

    from almoner import filters
    from almoner.queries import Session, Sum, Table

    rng = np.random.default_rng(0)  # the same customers every time; the noise is the operating system's
    there = rng.random((WEEKS, CUSTOMERS)) < rng.beta(1.0, 19.0, CUSTOMERS)
    usual, varies = rng.standard_normal(CUSTOMERS), rng.standard_normal((WEEKS, CUSTOMERS))
    spent = np.minimum(there * np.round(40 * np.exp(0.7 * (usual + varies)), 2), MOST)
    budget, answers = filters.Zcdp(epsilon=EPSILON, delta=DELTA), []
    errors, expected = ways(spent, budget.rho)
    sigma = sqrt(FULL_WEEKS / (2 * budget.rho))
    with tempfile.TemporaryDirectory() as folder:
        visits, rows = Path(folder) / "visits.csv", zip(*np.nonzero(spent), strict=True)
        lines = (f"{who},{week + 1},{spent[week, who]:.2f}\n" for week, who in rows)
        visits.write_text("customer,week,spent\n" + "".join(lines), encoding="utf-8")
        table = Table(visits, types={"customer": "whole", "week": "whole", "spent": "number"})
        ledger = Path(folder) / "shop.ledger"
        with Session.open(table, person="customer", budget=budget, ledger=ledger, create=True) as session:
            analyst = session.analyst("the shop", purpose="weekly report")
            for week in range(1, WEEKS + 1):
                question = Sum("spent", 0, MOST, where=f"week = {week}", clip=1, sigma=sigma)
                answers.append(float(analyst.ask(question, key=f"revenue of week {week}", anyway=True).value))
                observe(week, WEEKS)
            statement = session.statement(PERSON)
    return Shop(spent.sum(axis=1).tolist(), answers, expected.tolist(), MOST * sigma, errors, statement)


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """Accuracies of a model without privacy and with it, on the test data, in percent."""

    data: str
    people: int
    unit: str  # name of the people
    without: float
    accuracies: list[float]  # of the private models: each is a release of its own
    card: "Card"  # of the last of them

    @property
    def shown(self) -> list[tuple[str, str]]:
        """Accuracies by model; of private models the mean, with its spread."""
        several = len(self.accuracies) > 1
        spread = f" ± {stdev(self.accuracies):.2f}" if several else ""
        models = f"mean ± spread of {len(self.accuracies)} models" if several else "one model"
        private = f"{fmean(self.accuracies):.2f} %{spread}"
        return [("no privacy", f"{self.without:.2f} %"), (f"private, epsilon {self.card.epsilon:g}, {models}", private)]

    @property
    def words(self) -> list[str]:
        """Sentences on what privacy costs here, why, and what it promises."""
        return [
            f"Privacy costs {self.without - fmean(self.accuracies):.1f} points of accuracy here.",
            f"In every step the noise is {self.card.noise_multiplier:.0f} times as large as what one person may add.",
            "The noise is the same for few people and for many: the more people, the less privacy costs.",
            "On one table, trained once, accounts per person gain little or nothing. They pay in streams, as above.",
            *promised(self.card.epsilon, self.card.delta, self.card.guess),
        ]

    def to_dict(self) -> dict[str, object]:
        """Give programs the accuracies and the card."""
        told = {"data": self.data, "people": self.people, "accuracy without privacy": self.without}
        return told | {"accuracies": self.accuracies, "card": self.card.to_dict()}


def demo(
    data: Annotated[Path | None, Option(help="The folder of UCI Adult: adult.data, adult.test.")] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    runs: Annotated[int, Option(help="How many models of each private kind to train.")] = 5,
    out: Annotated[Path, Option(help="The folder to write to: two pages.")] = Path("demo"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Publish a shop's weekly revenue with an account for each customer, and train a model without privacy and with it.

    Ends with OUT/index.html, for a browser. The models predict census income where the files of UCI Adult are found
    (in --data, ALMONER_DATA or ../shared/data), and else read handwritten digits.
    """
    lacking = [name for name in ("duckdb", "pyarrow", "sklearn") if _extras.gone(name)]
    cure = f"not installed: {', '.join(lacking)}; pip install '.[demo]' in your checkout of Almoner brings all"
    if lacking not in ([], ["sklearn"]):
        raise MissingExtra(cure)
    page, told = out / "index.html", out / "statement.html"
    for path in (page, told):
        check_free(path, force=force)
    with progress_bar(quiet=as_json) as progress:
        task = progress.add_task("training", total=None)

        def observe(what: str, done: int, total: int) -> None:
            progress.update(task, description=what, completed=done, total=total)

        models = None if lacking else _models(data, epsilon, delta, runs, partial(observe, "private models"))
        shop = weekly_revenue(partial(observe, "a shop's weeks"))
    _write_pages(shop, models, page, told, cure)
    if as_json:
        echo(dumps((models.to_dict() if models else {}) | {"shop": shop.to_dict(), "page": str(page)}))
        return
    columns = ("the budget is kept by", "epsilon", "delta", "typical error of a week")
    title = f"1. A shop publishes its revenue every week: {CUSTOMERS:,} generated customers, {WEEKS} weeks"
    show(Listing(columns, shop.rows, title=title, right=columns[1:]), " ".join(shop.words))
    trained = ("trained with", "test accuracy")
    if models:
        title = f"2. A model is trained: {models.data}, {models.people:,} {models.unit}"
        show(Listing(trained, models.shown, title=title, right=trained[1:]), " ".join(models.words))
    else:
        show(f"2. The model is left out. {cure}")
    show(f"Open {page} in a browser.")


def _models(data: Path | None, epsilon: float, delta: float, runs: int, observe: Callable[[int, int], None]) -> Models:
    """Train without privacy once, and with it ``runs`` times, each with fresh noise."""
    from almoner.training import LogisticRegression, demo_tables

    adult, log, accuracies = demo_tables.adult(data), logging.getLogger("almoner.training"), []
    if data is not None and adult is None:
        raise ArgumentError(f"data={str(data)!r} does not hold adult.data and adult.test")
    example = adult or demo_tables.digits()
    unit, people = "people" if adult else "images, each of which stands for one person", len(example.train[1])
    public: Any = {"n_people": people, "classes": range(example.classes)}
    with ExitStack() as after:  # columns of the examples are scaled: no hint on scales
        after.callback(log.setLevel, log.level)
        log.setLevel(logging.ERROR)
        for number in range(runs):
            observe(number, runs)
            model = LogisticRegression(epsilon=epsilon, delta=delta, **public).fit(*example.train)
            accuracies.append(100 * model.score(*example.test))
    return Models(example.name, people, unit, 100 * example.accuracy_without_privacy(), accuracies, model.card_)


def _write_pages(shop: Shop, models: Models | None, page: Path, told: Path, cure: str) -> None:
    """The page of the demonstration, and, beside it and linked, the statement of one generated customer: all public."""
    from almoner.report.pages import statement

    page.parent.mkdir(parents=True, exist_ok=True)
    told.write_text(statement(shop.statement, person=PERSON), encoding="utf-8")
    facts = {"customers": CUSTOMERS, "most": MOST, "epsilon": EPSILON, "delta": DELTA, "person": PERSON, "cure": cure}
    right = almoner.accounting.meaning.in_100(shop.statement.guess)
    page.write_text(_html.render("demo.html", shop=shop, models=models, right=right, **facts), encoding="utf-8")


def promised(epsilon: float, delta: float, guess: float | None) -> list[str]:
    """Sentences on what a private model promises, and what that lets others guess."""
    right = None if guess is None else almoner.accounting.meaning.in_100(guess)
    promise = f"Each private model promises epsilon {epsilon:g} at delta {delta:g}."
    if right is None:
        return [promise]
    return [
        promise,
        "These two numbers limit what others can guess about a person.",
        "Suppose somebody knows everything about all other people, and guesses whether one person is in the data.",
        "Without the model the guess is right 50 times in 100.",
        f"With it the guess is right at most {right} times in 100.",
    ]

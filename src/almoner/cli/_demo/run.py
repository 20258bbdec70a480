"""`almoner demo`: real data without privacy, with private gradient descent, and with a budget for every person."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from almoner.cli._demo.page import difference, index, late, promised, reading, shop
from almoner.cli._demo.shop import PERSON, Counts, weekly_counts
from almoner.cli._options.common import Delta, Epsilon, Force, Json
from almoner.cli._options.files import check_free
from almoner.cli._shown.json import dumps
from almoner.cli._shown.spends import draw_spends, progress_bar
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.training import Card, HolderReport
    from almoner.training.demo_tables import Example

__all__ = ["demo"]

_STATEMENT = "statement.html"
"""The page of a generated customer, who is nobody: public."""


@dataclass(frozen=True, slots=True)
class _Row:
    """One way to train, and how well it did on the test data, in percent."""

    method: str
    epsilon: float | None
    """The promise of one run; None: nothing."""
    accuracy: float
    spread: float
    """Standard deviation over the runs."""
    runs: int
    seconds: float
    """Time of one run."""


@dataclass(frozen=True, slots=True, eq=False)
class _Results:
    """The rows of the demonstration, and what the last run with individual accounts left."""

    data: str
    people: int
    unit: str
    """Name of the people."""
    delta: float
    rows: list[_Row]
    gained: float
    """Points that accounts per person add to the mean accuracy."""
    half: float | None
    """Half of the 95 % interval of ``gained``; None: one run has none."""
    card: "Card"
    holder_report: "HolderReport"
    """PRIVATE: for the data holder."""

    def to_dict(self) -> dict[str, object]:
        """All fields that are public."""
        return {
            "data": self.data,
            "people": self.people,
            "delta": self.delta,
            "lines": [asdict(row) for row in self.rows],
            "difference": {"points": self.gained, "half of the 95 % interval": self.half},
            "card": self.card.to_dict(),
        }

    @property
    def about(self) -> str:
        """The data, and how many people they are of."""
        return f"{self.data}: {self.people:,} {self.unit}"

    @property
    def promise(self) -> list[str]:
        """Sentences on what one private run promises."""
        return promised(self.card.epsilon, self.delta, self.card.guess)

    @property
    def compared(self) -> list[str]:
        """Sentences that compare the private rows."""
        return reading(self.gained, self.half, self.rows[-1].runs)


def demo(
    data: Annotated[Path | None, typer.Option(help="The folder of UCI Adult: adult.data, adult.test.")] = None,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-5,
    runs: Annotated[int, typer.Option(help="How many models of each private kind to train.")] = 5,
    out: Annotated[
        Path, typer.Option(help="The folder to write to: a page, and a PRIVATE picture with its numbers.")
    ] = Path("demo"),
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Count a shop's customers every week, and train models without privacy, with it, and with accounts per person.

    Ends with OUT/index.html, for a browser. The models predict census income where the files of UCI Adult are found
    (in --data, ALMONER_DATA or ../shared/data), and else read handwritten digits.
    """
    from almoner.training import demo_tables

    adult = demo_tables.adult(data)
    if data is not None and adult is None:
        raise ArgumentError(f"data={str(data)!r} does not hold adult.data and adult.test")
    picture, page, told = (out / name for name in ("spends-private.png", "index.html", _STATEMENT))
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
        typer.echo(dumps(results.to_dict() | {"shop": counts.to_dict(), "page": str(page), "private": private}))
    else:
        _print(counts, results, private)
        Console().print(f"Open {page} in a browser.", markup=False, highlight=False, soft_wrap=True)


def _write_pages(counts: Counts, results: _Results, page: Path, told: Path) -> None:
    """The page of the demonstration, and the statement of one generated customer beside it."""
    from almoner.report.pages import statement

    rows = []
    for row in results.rows:
        spread = f" ± {row.spread:.2f} ({row.runs} runs)" if row.runs > 1 else ""
        rows.append((row.method, "-" if row.epsilon is None else f"{row.epsilon:g}", f"{row.accuracy:.2f} %{spread}"))
    told.write_text(statement(counts.statement, person=PERSON), encoding="utf-8")
    page.write_text(index(counts, rows, results.about, results.promise, results.compared), encoding="utf-8")


@contextmanager
def _without_hints() -> Iterator[None]:
    """Keep the hint on scales off the screen: columns of the examples are scaled."""
    log = logging.getLogger("almoner.training")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _run(
    example: "Example", unit: str, *, epsilon: float, delta: float, runs: int, observe: Callable[[str, int, int], None]
) -> _Results:
    """Train in the three ways; each private run has fresh noise and is a release of its own."""
    from almoner.training import LogisticRegression

    people, models = len(example.train[1]), 2 * runs + 1
    observe("no privacy", 0, models)
    start = time.perf_counter()
    accuracy = 100 * example.accuracy_without_privacy()
    rows = [_Row("no privacy", None, accuracy, 0.0, 1, time.perf_counter() - start)]
    reached: list[list[float]] = []
    for individual in (False, True):
        method = "private, accounts per person" if individual else "private gradient descent"
        reached.append(accuracies := [])
        start = time.perf_counter()
        for number in range(runs):
            observe(method, 1 + individual * runs + number, models)
            model = LogisticRegression(
                epsilon=epsilon,
                delta=delta,
                individual=individual,
                classes=range(example.classes),
                n_people=people,
                **example.settings,
            )
            with _without_hints():
                model.fit(*example.train)
            accuracies.append(100 * model.score(*example.test))
        seconds = (time.perf_counter() - start) / runs
        spread = float(np.std(accuracies, ddof=1)) if runs > 1 else 0.0
        rows.append(_Row(method, epsilon, float(np.mean(accuracies)), spread, runs, seconds))
    compared = difference(*reached)
    return _Results(example.name, people, unit, delta, rows, *compared, model.card_, model.holder_report_)


def _print(counts: Counts, results: _Results, private: list[str]) -> None:
    console = Console()
    runs = results.rows[-1].runs
    console.print("1. A shop counts its customers every week.", *shop(counts), *late(counts))
    console.print("2. A model is trained without privacy, with it, and with accounts per person.")
    caption = f"private: mean ± spread of {runs} runs" if runs > 1 else "private: one run each"
    table = Table(title=results.about, caption=caption)
    for column in ("trained with", "epsilon", "delta", "test accuracy", "seconds"):
        table.add_column(column, justify="left" if column == "trained with" else "right")
    for row in results.rows:
        spread = f" ± {row.spread:.2f}" if row.runs > 1 else ""
        promise = ("-", "-") if row.epsilon is None else (f"{row.epsilon:g}", f"{results.delta:g}")
        table.add_row(row.method, *promise, f"{row.accuracy:.2f} %{spread}", f"{row.seconds:.2f}")
    console.print(table)
    console.print(*results.compared)
    console.print(*results.promise)
    console.print(
        f"The promise of each run is for adding or removing one person. Charged, with accounts per person: "
        f"{results.card.charged_at_most}. Each run is a release of its own."
    )
    console.print(f"How people's budgets were spent (private: for the data holder): {', '.join(private)}")

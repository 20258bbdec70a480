"""`almoner compare`: all bounds of one mechanism, as a table, a picture or JSON."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from almoner import _check, mechanisms
from almoner._units import shown
from almoner.cli._options.common import (
    CsvFile,
    Delta,
    Force,
    Json,
    OptionalNoiseMultiplier,
    Picture,
    Sampling,
)
from almoner.cli._options.files import check_new_file, check_picture
from almoner.cli._shown.json import dumps
from almoner.cli._shown.tables import Listing, show, working
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.accounting.compare import Comparison

__all__ = ["compare", "described"]

WHICH = (
    "You need a bound that is fixed if mechanism and number of steps were fixed before the run; the epsilon of a "
    "filter if they may depend on results and that filter is charged before each step; an odometer if there is no "
    "budget and results may decide when to stop."
)


class Step(StrEnum):
    """Kinds of one step."""

    gaussian = "gaussian"
    laplace = "laplace"
    randomized_response = "randomized-response"
    pure = "pure"
    approximate = "approximate"


def described(
    name: str,
    *,
    noise_multiplier: float | None = None,
    sample_rate: float = 1.0,
    epsilon_each: float | None = None,
    delta_each: float | None = None,
) -> mechanisms.Mechanism:
    """The mechanism that the options describe, with sensitivity 1."""
    if name not in list(Step):
        raise ArgumentError(f"--mechanism {name!r} must be one of {', '.join(Step)}")
    if name == "gaussian":
        if noise_multiplier is None:
            raise ArgumentError("--noise-multiplier is needed for --mechanism gaussian")
        return mechanisms.gaussian_step(noise_multiplier, 1.0, sample_rate)
    if sample_rate != 1:
        raise ArgumentError("--sample-rate is for --mechanism gaussian")
    if epsilon_each is None:
        raise ArgumentError(f"--epsilon-each is needed for --mechanism {name}")
    if name == "approximate":
        if delta_each is None:
            raise ArgumentError("--delta-each is needed for --mechanism approximate")
        return mechanisms.Approximate(epsilon_each, delta_each)
    if name == "laplace":
        _check.positive(epsilon_each=epsilon_each)
        return mechanisms.Laplace(1 / epsilon_each)
    return (mechanisms.Pure if name == "pure" else mechanisms.RandomizedResponse)(epsilon_each)


def compare(
    *,
    mechanism: Annotated[
        Step, typer.Option(help=f"One step: {', '.join([*Step][:-1])} or {Step.approximate}.")
    ] = Step.gaussian,
    noise_multiplier: OptionalNoiseMultiplier = None,
    epsilon_each: Annotated[float | None, typer.Option(help="Epsilon of one step, unless it is gaussian.")] = None,
    delta_each: Annotated[float | None, typer.Option(help="Delta of one step, if it is approximate.")] = None,
    sampling: Sampling,
    delta: Delta = 1e-5,
    people: Annotated[int, typer.Option(help="Number of people in the data set, for Rogers et al.")] = 100_000,
    points: Annotated[int, typer.Option(help="At how many numbers of steps to evaluate the bounds.")] = 5,
    picture: Picture = None,
    csv: CsvFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Compare all bounds that apply to one mechanism: fixed in advance, by filters, by odometers.

    Bounds that are tuned to a plan are tuned to --steps, which is 1000 unless it is given, or follows from --epochs.
    """
    check_picture(picture)
    if csv is not None:
        check_new_file(csv, force=force)
    rate, count = sampling.rate_and_steps()
    step = described(
        mechanism,
        noise_multiplier=noise_multiplier,
        sample_rate=rate,
        epsilon_each=epsilon_each,
        delta_each=delta_each,
    )
    from almoner.accounting.compare import compare as comparison

    with working("Computing every bound"):
        table = comparison(step, rounds=1000 if count is None else count, delta=delta, points=points, people=people)
    if picture is not None:
        from almoner.report.odometers import draw

        draw(table, picture)
    rows = _rows(table)
    rows.write(csv)
    if as_json:
        print(dumps(table.as_dict() | {"which": WHICH}))
    else:
        show(rows, WHICH)


def _rows(table: "Comparison") -> Listing:
    """A line for each bound, a column for each number of steps."""
    counts = tuple(map(str, table.rounds))
    title = f"Epsilon after so many steps of {table.mechanism!r}, delta = {table.delta:g}"
    rows = [(each.name, each.promise, *(shown(epsilon, 4) for epsilon in each.epsilons)) for each in table.bounds]
    return Listing(("bound", "promise", *counts), rows, title=title, right=counts, narrow=True)

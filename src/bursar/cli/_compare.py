"""The command ``bursar compare``: arguments in, a table, a picture or JSON out."""

from pathlib import Path
from typing import Annotated

import typer

from bursar import mechanisms
from bursar.cli._files import picture
from bursar.cli._json import dumps
from bursar.errors import ArgumentError

__all__ = ["add", "command", "described"]


def described(
    name: str, sigma: float | None, epsilon: float | None, sample_rate: float, delta_each: float | None
) -> mechanisms.Mechanism:
    """The mechanism that the options describe; sensitivity is 1, so sigma is relative noise."""
    if name in ("gaussian", "sampled-gaussian"):
        if sigma is None:
            raise ArgumentError(f"--sigma is needed for --mechanism {name}")
        return mechanisms.Gaussian(sigma) if name == "gaussian" else mechanisms.SampledGaussian(sigma, 1.0, sample_rate)
    if name not in ("pure", "laplace", "randomized-response", "approximate"):
        raise ArgumentError(
            f"--mechanism {name!r} must be gaussian, sampled-gaussian, laplace, randomized-response, pure "
            "or approximate"
        )
    if epsilon is None:
        raise ArgumentError(f"--epsilon is needed for --mechanism {name}")
    if name == "laplace":
        return mechanisms.Laplace(1 / epsilon)
    if name == "approximate":
        if delta_each is None:
            raise ArgumentError("--delta-each is needed for --mechanism approximate")
        return mechanisms.Approximate(epsilon, delta_each)
    return mechanisms.RandomizedResponse(epsilon) if name == "randomized-response" else mechanisms.Pure(epsilon)


def command(
    mechanism: Annotated[
        str,
        typer.Option(help="gaussian, sampled-gaussian, laplace, randomized-response, pure or approximate"),
    ] = "gaussian",
    sigma: Annotated[float | None, typer.Option(help="noise relative to the sensitivity")] = None,
    epsilon: Annotated[float | None, typer.Option(help="epsilon of one round")] = None,
    delta_each: Annotated[float | None, typer.Option(help="delta of one round (approximate)")] = None,
    sample_rate: Annotated[float, typer.Option(help="Poisson sampling rate (sampled-gaussian)")] = 0.01,
    rounds: Annotated[int, typer.Option(help="the most rounds; also the plan")] = 1000,
    delta: Annotated[float, typer.Option(help="failure probability of each bound")] = 1e-5,
    people: Annotated[int, typer.Option(help="people in the data set (Rogers et al.)")] = 100_000,
    points: Annotated[int, typer.Option(help="how many numbers of rounds to look at")] = 6,
    draw: Annotated[Path | None, typer.Option(help="save a picture here (png, svg, pdf)")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """All bounds that apply to one mechanism, side by side: fixed in advance, filters, odometers."""
    picture(draw)
    run = described(mechanism, sigma, epsilon, sample_rate, delta_each)
    from bursar.compare import compare

    table = compare(run, rounds=rounds, delta=delta, points=points, people=people)
    if draw is not None:
        from bursar.report.odometers import draw as save

        save(table, draw)
    typer.echo(dumps(table.as_dict()) if as_json else str(table))


def add(app: typer.Typer) -> None:
    """Make ``bursar compare`` a command of an application."""
    app.command("compare")(command)

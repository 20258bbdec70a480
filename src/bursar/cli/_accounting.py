"""`bursar epsilon` and `bursar calibrate`: what noise costs, and how much noise a budget needs."""

from dataclasses import asdict

import typer
from rich.console import Console
from rich.table import Table

from bursar import _check
from bursar._units import shown
from bursar.cli._json import dumps
from bursar.cli._options import (
    Delta,
    Epsilon,
    Json,
    MaxGradNorm,
    NoiseMultiplier,
    OptionalNoiseMultiplier,
    OptionalSteps,
    SampleRate,
    Steps,
)
from bursar.errors import ArgumentError

__all__ = ["add", "calibrate", "epsilon"]


def add(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    app.command(epilog="Example: bursar epsilon --noise-multiplier 1.1 --sample-rate 0.01 --steps 1000")(epsilon)
    app.command(epilog="Example: bursar calibrate --epsilon 1 --delta 1e-6 --steps 100")(calibrate)


def epsilon(
    noise_multiplier: NoiseMultiplier,
    steps: Steps = 1,
    sample_rate: SampleRate = 1.0,
    delta: Delta = 1e-5,
    as_json: Json = False,
) -> None:
    """Show the epsilon of a run of Gaussian steps in every notion of privacy, and whether it holds under adaptivity."""
    from bursar import mechanisms
    from bursar.curves.totals import totals

    _check.noise(noise_multiplier=noise_multiplier)
    _check.whole(0, steps=steps)
    step = mechanisms.gaussian_step(noise_multiplier, 1.0, sample_rate)
    rows = totals(mechanisms.Repeated(step, steps), delta=delta)
    if as_json:
        print(dumps({"steps": steps, "delta": delta, "bounds": [asdict(row) for row in rows]}))
        return
    table = Table(title=f"{steps} x {step!r}, delta = {delta:g}", title_justify="left")
    for column in ("notion", "total", "epsilon", "holds", "source"):
        table.add_column(column, justify="right" if column == "epsilon" else "left")
    for row in rows:
        table.add_row(row.notion, row.total, shown(row.epsilon, 6), row.holds, row.source)
    Console().print(table, "Adding or removing one person, with all of that person's records.")


def calibrate(
    epsilon: Epsilon,
    delta: Delta = 1e-5,
    steps: OptionalSteps = None,
    noise_multiplier: OptionalNoiseMultiplier = None,
    max_grad_norm: MaxGradNorm = 1.0,
    sample_rate: SampleRate = 1.0,
    as_json: Json = False,
) -> None:
    """Find the least noise with which --steps fit into a budget, or how many steps fit with --noise-multiplier.

    One line for each kind of filter; sigma is the absolute noise, the noise multiplier times the clip.
    """
    from bursar.calibrate import by_filter

    if (steps is None) == (noise_multiplier is None):
        raise ArgumentError("give either --steps or --noise-multiplier")
    rows = by_filter(
        epsilon=epsilon,
        delta=delta,
        steps=steps,
        noise_multiplier=noise_multiplier,
        max_grad_norm=max_grad_norm,
        sample_rate=sample_rate,
    )
    if as_json:
        print(dumps({"epsilon": epsilon, "delta": delta, "filters": [asdict(row) for row in rows]}))
        return
    table = Table(title=f"epsilon = {epsilon:g}, delta = {delta:g}", title_justify="left")
    for column in ("filter", "sigma", "noise multiplier", "steps", "note"):
        table.add_column(column, justify="left" if column in ("filter", "note") else "right")
    for row in rows:
        noise = ("" if number is None else shown(number, 10) for number in (row.sigma, row.noise_multiplier))
        table.add_row(row.filter, *noise, "" if row.steps is None else str(row.steps), row.note)
    Console().print(table)

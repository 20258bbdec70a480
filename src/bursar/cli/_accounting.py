"""`bursar epsilon` and `bursar calibrate`: arguments in, text out."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bursar._units import shown
from bursar.cli._json import dumps
from bursar.errors import ArgumentError

__all__ = ["add", "calibrate", "epsilon"]

Sigma = Annotated[float, typer.Option(help="Standard deviation of the noise, absolute (noise multiplier times clip).")]
Sensitivity = Annotated[float, typer.Option("--sensitivity", "--max-grad-norm", help="The clip: the most one adds.")]
Rate = Annotated[float, typer.Option(help="Poisson sampling rate; 1 is the full batch.")]
Delta = Annotated[float, typer.Option(help="The probability with which the promise may fail.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    for command in (epsilon, calibrate):
        app.command()(command)


def epsilon(
    sigma: Sigma,
    steps: Annotated[int, typer.Option(help="How many steps.")] = 1,
    sensitivity: Sensitivity = 1.0,
    sample_rate: Rate = 1.0,
    delta: Delta = 1e-5,
    as_json: Json = False,
) -> None:
    """What a run of Gaussian steps costs, in all notions side by side, fixed in advance or chosen adaptively."""
    from bursar import mechanisms

    run = mechanisms.Repeated(_step(sigma, sensitivity, sample_rate), steps)
    rows = [row for row in _notions(run, delta) if row is not None]
    if as_json:
        print(dumps({"steps": steps, "delta": delta, "bounds": rows}))
        return
    table = Table(title=f"{steps} x {run.mechanism!r}, delta = {delta:g}", title_justify="left")
    for column in ("notion", "total", "epsilon", "holds", "source"):
        table.add_column(column, justify="right" if column == "epsilon" else "left")
    for row in rows:
        table.add_row(row["notion"], row["total"], shown(row["epsilon"], 6), row["holds"], row["source"])
    Console().print(table, "Adding or removing one person, with all of that person's records.")


def _step(sigma: float, sensitivity: float, sample_rate: float) -> Any:
    from bursar import mechanisms

    if sample_rate == 1:
        return mechanisms.Gaussian(sigma, sensitivity)
    return mechanisms.SampledGaussian(sigma, sensitivity, sample_rate)


def _notions(run: Any, delta: float) -> Any:
    from bursar.curves import gaussian, renyi, zcdp
    from bursar.errors import Unsupported

    filtered = "within a budget, however adaptive"
    try:
        exact, plain = gaussian.of(run), zcdp.of(run)
        yield _row(
            "Gaussian DP, exact", f"mu = {shown(exact.mu, 6)}", exact.epsilon(delta=delta), filtered, "theory 3.3, 4.3"
        )
        yield _row("zCDP", f"rho = {shown(plain.rho, 6)}", plain.epsilon(delta=delta), filtered, "theory 3.2, 4.2")
    except Unsupported:
        pass  # sampled Gaussians are not Gaussian and have no useful rho
    curve = renyi.of(run)
    alpha, edge = curve.order(delta=delta)
    best = f"order {alpha:g}" + (" (edge of the grid)" if edge else "")
    fixed = "fixed in advance"
    yield _row("Rényi DP", best, curve.epsilon(delta=delta), fixed, "theory 3.2, 4.1")
    mironov = float(renyi.mironov(curve.values, curve.orders, delta=delta))
    yield _row("Rényi DP, Mironov's conversion", "", mironov, fixed, "theory 3.1")


def _row(notion: str, total: str, value: float, holds: str, source: str) -> dict[str, Any]:
    return {"notion": notion, "total": total, "epsilon": value, "holds": holds, "source": source}


def calibrate(
    epsilon: Annotated[float, typer.Option(help="The budget.")],
    delta: Delta = 1e-5,
    steps: Annotated[int | None, typer.Option(help="How many steps must fit: prints the least noise.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise of a step: prints how many fit.")] = None,
    sensitivity: Sensitivity = 1.0,
    sample_rate: Rate = 1.0,
    as_json: Json = False,
) -> None:
    """The least noise for a number of steps, or the steps for a noise, for each kind of filter."""
    if (steps is None) == (sigma is None):
        raise ArgumentError("give either --steps or --sigma")
    rows = [
        _calibrated(kind, epsilon, delta, steps, sigma, sensitivity, sample_rate)
        for kind in ("Gaussian", "Zcdp", "Renyi", "Approximate")
    ]
    if as_json:
        print(dumps({"epsilon": epsilon, "delta": delta, "filters": rows}))
        return
    table = Table(title=f"epsilon = {epsilon:g}, delta = {delta:g}", title_justify="left")
    for column in ("filter", "sigma", "noise multiplier", "steps", "note"):
        table.add_column(column, justify="left" if column in ("filter", "note") else "right")
    for row in rows:
        numbers = ["" if row[key] is None else shown(row[key], 10) for key in ("sigma", "noise_multiplier")]
        numbers.append("" if row["steps"] is None else str(row["steps"]))
        table.add_row(row["filter"], *numbers, row["note"])
    Console().print(table)


def _calibrated(
    kind: str,
    epsilon: float,
    delta: float,
    steps: int | None,
    sigma: float | None,
    sensitivity: float,
    sample_rate: float,
) -> dict[str, Any]:
    from bursar import calibrate, filters
    from bursar.errors import CalibrationFailed, Unsupported

    budget, note = getattr(filters, kind)(epsilon=epsilon, delta=delta), ""
    try:
        if steps is not None:
            sigma = calibrate.sigma(budget, steps, sensitivity=sensitivity, sample_rate=sample_rate)
        elif sigma is not None:
            steps = calibrate.steps(budget, _step(sigma, sensitivity, sample_rate))
    except (Unsupported, CalibrationFailed) as error:
        note = str(error)
    return {
        "filter": kind,
        "sigma": sigma,
        "noise_multiplier": None if sigma is None else sigma / sensitivity,
        "steps": steps,
        "note": note,
    }

"""`bursar losses`: everybody's epsilon from an array of norms. What it prints is private."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bursar._private import LEVELS, MARK
from bursar.cli._files import picture
from bursar.cli._json import dumps
from bursar.errors import ArgumentError, DataError

__all__ = ["add", "losses"]

STATUS = "Exact for noise, rates and norms fixed in advance; under adaptivity an approximation and no guarantee."


def add(app: typer.Typer) -> None:
    """Add the command of this module to the command line."""
    app.command()(losses)


def losses(
    norms: Annotated[Path, typer.Argument(help=".npy: (people,) or (people, steps) norms, the clip being 1.")],
    noise_multiplier: Annotated[float, typer.Option(help="Noise over clip.")],
    sample_rate: Annotated[float, typer.Option(help="Poisson sampling rate; 1 is the full batch.")] = 1.0,
    steps: Annotated[int | None, typer.Option(help="How many steps, for norms that stay the same.")] = None,
    delta: Annotated[float, typer.Option(help="The probability with which the promise may fail.")] = 1e-5,
    groups: Annotated[Path | None, typer.Option(help=".npy: (people,) a label for each person.")] = None,
    gaussian: Annotated[
        bool, typer.Option("--gaussian", help="Also by the dominating Gaussian: 30 people a second.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(help="A PRIVATE picture: .png, .svg or .pdf.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with everybody's epsilon.")] = False,
) -> None:
    """Everybody's epsilon (PRIVATE) from privacy loss distributions, beside Rényi and Gaussian accounting."""
    import numpy as np

    from bursar import _check
    from bursar._units import shown

    _check.positive(noise_multiplier=noise_multiplier)
    _check.between(0, 1, delta=delta)
    if steps is not None:
        _check.whole(1, steps=steps)
    picture(plot)
    values, labels = _loaded(norms), None if groups is None else _loaded(groups)
    if labels is not None and labels.shape != values.shape[:1]:
        raise DataError(f"{groups}: must have one entry for each person in {norms}")
    found = _epsilons(values, noise_multiplier, sample_rate, steps, delta, gaussian)
    if plot is not None:
        from bursar.report.losses import histogram

        histogram(found, plot, groups=labels, title=f"delta = {delta:g}")
    if as_json:
        everybody = {name: epsilons.tolist() for name, epsilons in found.items()}
        print(dumps({"private": MARK, "status": STATUS, "delta": delta, "epsilon": everybody}))
        return
    table = Table(title=f"{MARK}: everybody's epsilon at delta = {delta:g}", title_justify="left")
    for column in ("accounting", "group", *(f"{level:.0%}" if level < 1 else "most" for level in LEVELS)):
        table.add_column(column, justify="left" if column in ("accounting", "group") else "right")
    for name, epsilons in found.items():
        for group in [None, *([] if labels is None else np.unique(labels))]:
            chosen = epsilons if group is None else epsilons[labels == group]
            quantiles = np.quantile(chosen, LEVELS, method="higher")
            table.add_row(name, "all" if group is None else str(group), *(shown(q, 4) for q in quantiles))
    Console().print(table, STATUS)


def _loaded(path: Path) -> Any:
    import numpy as np

    if not path.is_file():
        raise DataError(f"{path} is not there")
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: must be an array that numpy.save wrote, without objects") from error


def _epsilons(
    values: Any, noise: float, rate: float, steps: int | None, delta: float, gaussian: bool
) -> dict[str, Any]:
    """Name of the accounting -> everybody's epsilon."""
    import numpy as np

    from bursar import individual, mechanisms
    from bursar.report.losses import side_by_side

    if not np.issubdtype(values.dtype, np.number) or values.ndim not in (1, 2) or not values.size:
        raise DataError("norms must be numbers of shape (people,) or (people, steps)")
    if (values.ndim == 1) == (steps is None):
        raise ArgumentError("give --steps with norms of shape (people,), and not with (people, steps)")
    kept = individual.Losses(len(values), least=noise, most=noise * 1e4, buckets=256)
    step = mechanisms.SampledGaussian(noise, 1.0, rate)
    if values.ndim == 2:
        for column in values.T:
            kept.record(step, column)
        counts = kept.counts(rate).astype(np.int64)
    else:
        kept.record(step, values)
        counts = kept.counts(rate).astype(np.int64) * int(steps or 0)
    unknown = ~((values >= 0) & (values < np.inf)).reshape(len(values), -1).all(axis=1)
    found = side_by_side(counts, kept.noise, sample_rate=rate, delta=delta, dominating=gaussian)
    return {name: np.where(unknown, np.inf, values) for name, values in found.items()}

"""`almoner losses`: each person's epsilon from an array of norms. What it prints is private."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from almoner import _check
from almoner._private import LEVELS, MARK
from almoner._units import shown
from almoner.cli._options.common import (
    Delta,
    Force,
    Json,
    NoiseMultiplier,
    OptionalSteps,
    Page,
    PrivatePicture,
    SampleRate,
)
from almoner.cli._options.files import check_page, check_picture, write_page
from almoner.cli._shown.json import dumps
from almoner.cli._shown.tables import Listing, show
from almoner.errors import ArgumentError, DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["losses"]

STATUS = "Exact for noise, rates and norms fixed in advance; under adaptivity an approximation and no guarantee."


def losses(
    norms: Annotated[Path, typer.Argument(help=".npy: (people,) or (people, steps) norms, in units of the clip.")],
    noise_multiplier: NoiseMultiplier,
    sample_rate: SampleRate = 1.0,
    steps: OptionalSteps = None,
    delta: Delta = 1e-5,
    groups: Annotated[Path | None, typer.Option(help=".npy: (people,) a label for each person.")] = None,
    gaussian: Annotated[
        bool, typer.Option("--gaussian", help="Also by the dominating Gaussian: 30 people a second.")
    ] = False,
    picture: PrivatePicture = None,
    html: Page = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show each person's epsilon (PRIVATE) by privacy loss distributions, beside Rényi and Gaussian accounting.

    Give --steps for norms of shape (people,), which are those of every step. The table holds quantiles and means over
    people, and --html writes it as a page; --json prints each person's epsilon.
    """
    _check.positive(noise_multiplier=noise_multiplier)
    _check.between(0, 1, delta=delta)
    check_picture(picture)
    check_page(html, force=force, read=(norms,))
    if html is not None and as_json:
        raise ArgumentError("give either --html or --json")
    values, labels = _loaded(norms), None if groups is None else _loaded(groups)
    if values.ndim in (1, 2) and (values.ndim == 1) == (steps is None):
        raise ArgumentError("give --steps with norms of shape (people,), and not with (people, steps)")
    if labels is not None and labels.shape != values.shape[:1]:
        raise DataError(f"{groups}: must have one entry for each person in {norms}")
    from almoner.report.losses import from_norms, histogram, page

    epsilons = from_norms(
        values,
        noise_multiplier=noise_multiplier,
        delta=delta,
        sample_rate=sample_rate,
        steps=steps,
        dominating=gaussian,
    )
    if picture is not None:
        histogram(epsilons, picture, groups=labels, title=f"delta = {delta:g}")
    if as_json:
        lists = {name: column.tolist() for name, column in epsilons.items()}
        print(dumps({"private": MARK, "status": STATUS, "delta": delta, "epsilon": lists}))
        return
    if html is not None:
        written = page(
            epsilons,
            delta=delta,
            groups=labels,
            noise_multiplier=noise_multiplier,
            sample_rate=sample_rate,
            steps=values.shape[1] if steps is None else steps,
        )
        write_page(html, written)
        return
    _print_table(epsilons, labels, delta)


def _print_table(
    epsilons: "Mapping[str, NDArray[np.float64]]", labels: "NDArray[np.generic] | None", delta: float
) -> None:
    """Quantiles and means over people."""
    from almoner.report.losses import means, quantiles

    title = f"{MARK}: each person's epsilon at delta = {delta:g}"
    numbers = (*(f"{level:.0%}" if level < 1 else "most" for level in LEVELS), "mean")
    averages = means(epsilons, groups=labels)
    rows = [
        (name, "all" if group is None else group, *(shown(value, 4) for value in [*levels, mean]))
        for (name, group, levels), (_, _, mean) in zip(quantiles(epsilons, groups=labels), averages, strict=True)
    ]
    show(Listing(("accounting", "group", *numbers), rows, title=title, right=numbers, narrow=True), STATUS)


def _loaded(path: Path) -> "NDArray[np.generic]":
    import numpy as np

    if not path.is_file():
        raise DataError(f"{path} is not there")
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: must be an array that numpy.save wrote, without objects") from error
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: must be one array that numpy.save wrote")
    return array

"""`almoner epsilon` and `almoner calibrate`: what noise costs, and how much noise a budget needs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from almoner import _check
from almoner._units import shown
from almoner.cli._options.common import (
    CsvFile,
    Delta,
    Epsilon,
    Force,
    Json,
    MaxGradNorm,
    NoiseMultiplier,
    OptionalNoiseMultiplier,
    Sampling,
)
from almoner.cli._options.files import check_new_file
from almoner.cli._shown.json import dumps
from almoner.cli._shown.tables import Listing, show, working
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.accounting.calibrate import Calibration
    from almoner.mechanisms import Mechanism

__all__ = ["calibrate", "epsilon"]

WHICH = (
    "You need the first if noise, sample rate and number of steps were fixed before the run; the second if any of them "
    "may depend on results and a filter with that budget refuses what does not fit; the third if there is no budget "
    "and results may decide when to stop."
)


def epsilon(
    *,
    noise_multiplier: NoiseMultiplier,
    sampling: Sampling,
    delta: Delta = 1e-5,
    certificate: Annotated[
        Path | None,
        typer.Option(help="Write a certificate of an epsilon of the fixed run here, as JSON."),
    ] = None,
    csv: CsvFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show the epsilon of a run of Gaussian steps: fixed in advance, within a filter's budget, and by an odometer.

    Say rate and steps by --sample-rate and --steps, or by --dataset-size, --batch-size and --epochs. Without any of
    them it is one step with everybody in it. Below stand the bounds of every notion of privacy for the same run.
    """
    from almoner import mechanisms
    from almoner.accounting.answers import of_run
    from almoner.accounting.meaning import of as meaning_of
    from almoner.curves._totals import totals

    for path in (certificate, csv):
        if path is not None:
            check_new_file(path, force=force)
    _check.noise(noise_multiplier=noise_multiplier)
    rate, count = sampling.rate_and_steps()
    if count is None and rate < 1:
        raise ArgumentError("--steps is missing: how many batches were drawn; or give --epochs")
    rounds = 1 if count is None else count
    step = mechanisms.gaussian_step(noise_multiplier, 1.0, rate)
    best, run = of_run(step, rounds=rounds, delta=delta), mechanisms.Repeated(step, rounds)
    if certificate is not None:
        _write_certificate(run, delta, certificate)
    rows, meaning = totals(run, delta=delta), meaning_of(run, points=128)
    answers = [(shown(each.epsilon, 6), each.holds, each.bound) for each in best]
    bounds = [(row.notion, row.total, shown(row.epsilon, 6), row.holds, row.source) for row in rows]
    if csv is not None:
        Listing(_BOUNDS, [*(("(epsilon, delta)", "", *each) for each in answers), *bounds]).write(csv)
    if as_json:
        said: dict[str, object] = {"epsilon": best[0].epsilon, "steps": rounds, "sample_rate": rate}
        said |= {"noise_multiplier": noise_multiplier, "delta": delta, "answers": list(map(asdict, best))}
        said |= {"which": WHICH, "meaning": meaning.figures() | {"words": meaning.words}}
        print(dumps(said | {"bounds": list(map(asdict, rows))}))
        return
    show(
        Listing(_ANSWERS, answers, title=f"{rounds} x {step!r}, delta = {delta:g}", right=("epsilon",)),
        f"{WHICH}\n\nWhat the first means: {meaning.words}\n",
        Listing(_BOUNDS, bounds, title="The same run in every notion of privacy", right=("epsilon",)),
        "Adding or removing one person, with all of that person's records.",
    )


_ANSWERS = ("epsilon", "holds if", "by")
_BOUNDS = ("notion", "total", "epsilon", "holds", "source")


def _write_certificate(run: "Mechanism", delta: float, path: Path) -> None:
    from almoner.accounting.certificates import of_run

    path.write_text(dumps(of_run(run, delta=delta)) + "\n", encoding="utf-8")


def calibrate(
    *,
    epsilon: Epsilon,
    delta: Delta = 1e-5,
    sampling: Sampling,
    noise_multiplier: OptionalNoiseMultiplier = None,
    max_grad_norm: MaxGradNorm = 1.0,
    csv: CsvFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Find the least noise with which --steps fit into a budget, or how many steps fit with --noise-multiplier.

    First for a run whose noise, rate and steps are fixed in advance, then for every filter, the best first. Say rate
    and steps by --sample-rate and --steps, or by --dataset-size, --batch-size and --epochs. Sigma is the absolute
    noise, the noise multiplier times the clip.
    """
    from almoner.accounting.calibrate import by_filter, in_advance

    if csv is not None:
        check_new_file(csv, force=force)
    rate, count = sampling.rate_and_steps()
    if (count is None) == (noise_multiplier is None):
        raise ArgumentError("give either --steps or --noise-multiplier (or --epochs in place of --steps)")
    asked: Any = {"epsilon": epsilon, "delta": delta, "steps": count, "noise_multiplier": noise_multiplier}
    asked |= {"max_grad_norm": max_grad_norm, "sample_rate": rate}
    with working("Asking every filter"):
        fixed, rows = in_advance(**asked), by_filter(**asked)
    table = _calibrations(fixed, rows, f"epsilon = {epsilon:g}, delta = {delta:g}, sample rate = {rate:g}")
    table.write(csv)
    if as_json:
        listed = [asdict(row) for row in rows]
        print(dumps({"epsilon": epsilon, "delta": delta, "fixed": asdict(fixed), "which": FILTERS, "filters": listed}))
        return
    notes = [f"filters.{row.filter}: {row.note}." for row in rows if row.note]
    if fixed.note:
        notes.insert(0, f"fixed in advance: {fixed.note}.")
    show(table, FILTERS, *notes)


FILTERS = (
    "You need the first line if noise, sample rate and number of steps are fixed before the run; if results may change "
    "any of them, charge a filter before each step, and its own line holds."
)


def _calibrations(fixed: "Calibration", rows: "Sequence[Calibration]", title: str) -> Listing:
    """The run fixed in advance, then the filters: most steps or least noise first, those without a number below."""
    numbers = ("noise multiplier", "sigma", "steps")
    answered = [row for row in rows if not row.note]
    answered.sort(key=lambda row: (-(row.steps or 0), row.noise_multiplier or 0.0))
    cells = []
    for row in (fixed, *answered):
        name = row.filter if row is fixed else f"filters.{row.filter}"
        noise = ["" if number is None else shown(number, 7) for number in (row.noise_multiplier, row.sigma)]
        cells.append((name, *noise, "" if row.steps is None or row.note else str(row.steps)))
    return Listing(("run", *numbers), cells, title=title, right=numbers)

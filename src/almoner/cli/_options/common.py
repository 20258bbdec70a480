"""The options that several commands share: each name means one thing in every command."""

from fractions import Fraction
from math import ceil, nextafter
from pathlib import Path
from typing import Annotated

import typer

from almoner import _check
from almoner._units import exact
from almoner.errors import ArgumentError

__all__ = [
    "BatchSize",
    "CsvFile",
    "DatasetSize",
    "Delta",
    "Epochs",
    "Epsilon",
    "Force",
    "Json",
    "MaxGradNorm",
    "NoiseMultiplier",
    "OptionalDelta",
    "OptionalNoiseMultiplier",
    "OptionalSampleRate",
    "OptionalSteps",
    "OutFile",
    "OutFolder",
    "Page",
    "Picture",
    "PrivatePicture",
    "SampleRate",
    "Steps",
    "rate_and_steps",
]

_NOISE_MULTIPLIER = typer.Option(
    "--noise-multiplier", help="Standard deviation of the noise of one step, divided by the clip (the sensitivity)."
)
_DELTA = typer.Option("--delta", help="Delta: the probability with which the guarantee may fail.")
_STEPS = typer.Option("--steps", help="Number of steps.")
_SAMPLE_RATE = typer.Option("--sample-rate", help="Poisson sampling rate of each step; 1 is the full batch.")

Epsilon = Annotated[float, typer.Option("--epsilon", help="Epsilon of the privacy budget of each person.")]
Delta = Annotated[float, _DELTA]
OptionalDelta = Annotated[float | None, _DELTA]
NoiseMultiplier = Annotated[float, _NOISE_MULTIPLIER]
OptionalNoiseMultiplier = Annotated[float | None, _NOISE_MULTIPLIER]
Steps = Annotated[int, _STEPS]
OptionalSteps = Annotated[int | None, _STEPS]
SampleRate = Annotated[float, _SAMPLE_RATE]
OptionalSampleRate = Annotated[float | None, _SAMPLE_RATE]
DatasetSize = Annotated[
    int | None, typer.Option("--dataset-size", help="Number of people in the data set; with --batch-size.")
]
BatchSize = Annotated[
    int | None,
    typer.Option("--batch-size", help="Expected size of a batch; with --dataset-size, in place of --sample-rate."),
]
Epochs = Annotated[float | None, typer.Option("--epochs", help="Passes over the data set, in place of --steps.")]
MaxGradNorm = Annotated[
    float, typer.Option("--max-grad-norm", help="The clip: the largest L2 norm that one person adds to a step.")
]
Picture = Annotated[Path | None, typer.Option("--picture", help="Save a picture here: .png, .svg or .pdf.")]
PrivatePicture = Annotated[
    Path | None, typer.Option("--picture", help="Save a PRIVATE picture here: .png, .svg or .pdf.")
]
OutFile = Annotated[Path | None, typer.Option("--out", help="Write to this file instead of printing.")]
OutFolder = Annotated[Path | None, typer.Option("--out", help="The folder to write to.")]
Page = Annotated[Path | None, typer.Option("--html", help="Write a PRIVATE page to this file instead of printing.")]
CsvFile = Annotated[Path | None, typer.Option("--csv", help="Write the rows to this CSV file as well.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def rate_and_steps(
    *,
    sample_rate: float | None,
    steps: int | None,
    dataset_size: int | None,
    batch_size: int | None,
    epochs: float | None,
) -> tuple[float, int | None]:
    """The sampling rate and the number of steps, given as such or as sizes and epochs.

    The rate is the batch size divided by the dataset size, rounded up; an epoch is as many steps as one over the rate,
    rounded up (Opacus's loader has as many batches, and takes each with a rate that is not above this one).

    Returns:
        The rate, 1 if nothing says it; the steps, None if nothing says them.

    Raises:
        ArgumentError: a number breaks a rule, one is missing, or two say the same.
    """
    if (dataset_size is None) != (batch_size is None):
        raise ArgumentError("--dataset-size and --batch-size must be given together")
    if dataset_size is not None and sample_rate is not None:
        raise ArgumentError("give either --sample-rate, or --dataset-size and --batch-size")
    if epochs is not None and steps is not None:
        raise ArgumentError("give either --steps or --epochs")
    exactly = Fraction(1)
    if dataset_size is not None and batch_size is not None:
        _check.whole(1, dataset_size=dataset_size, batch_size=batch_size)
        if batch_size > dataset_size:
            raise ArgumentError(f"batch_size={batch_size} must be at most dataset_size={dataset_size}")
        exactly = Fraction(batch_size, dataset_size)
        sample_rate = float(exactly) if Fraction(float(exactly)) >= exactly else nextafter(float(exactly), 1.0)
    elif sample_rate is not None:
        _check.positive(sample_rate=sample_rate)
        _check.within(0, 1, sample_rate=sample_rate)
        exactly = exact(sample_rate)
    if epochs is not None:
        _check.positive(epochs=epochs)
        steps = ceil(exact(epochs) * ceil(1 / exactly))
    if steps is not None:
        _check.whole(1, steps=steps)
    return 1.0 if sample_rate is None else sample_rate, steps

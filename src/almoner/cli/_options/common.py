"""The options that several commands share: each name means one thing in every command."""

from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from fractions import Fraction
from functools import wraps
from inspect import Parameter, Signature, signature
from math import ceil, nextafter
from pathlib import Path
from typing import Annotated, Any

import typer

from almoner import _check
from almoner._units import exact
from almoner.errors import ArgumentError

__all__ = [
    "CsvFile",
    "Delta",
    "Epsilon",
    "Force",
    "Json",
    "MaxGradNorm",
    "NoiseMultiplier",
    "OptionalDelta",
    "OptionalNoiseMultiplier",
    "OptionalSteps",
    "OutFile",
    "OutFolder",
    "Page",
    "Picture",
    "PrivatePicture",
    "SampleRate",
    "Sampling",
    "flattened",
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
OptionalSteps = Annotated[int | None, _STEPS]
SampleRate = Annotated[float, _SAMPLE_RATE]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Options that say the sampling rate and the number of steps, as such or as sizes and epochs."""

    steps: OptionalSteps = None
    sample_rate: Annotated[float | None, _SAMPLE_RATE] = None
    dataset_size: Annotated[
        int | None, typer.Option("--dataset-size", help="Number of people in the data set; with --batch-size.")
    ] = None
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", help="Expected size of a batch; with --dataset-size, in place of --sample-rate."),
    ] = None
    epochs: Annotated[float | None, typer.Option("--epochs", help="Passes over the data set, in place of --steps.")] = (
        None
    )

    def rate_and_steps(self) -> tuple[float, int | None]:
        """The sampling rate and the number of steps.

        The rate is the batch size divided by the dataset size, rounded up; an epoch is as many steps as one over the
        rate, rounded up (Opacus's loader has as many batches, and takes each with a rate that is not above this one).

        Returns:
            The rate, 1 if nothing says it; the steps, None if nothing says them.

        Raises:
            ArgumentError: a number breaks a rule, one is missing, or two say the same.
        """
        dataset_size, batch_size, sample_rate, steps = self.dataset_size, self.batch_size, self.sample_rate, self.steps
        if (dataset_size is None) != (batch_size is None):
            raise ArgumentError("--dataset-size and --batch-size must be given together")
        if dataset_size is not None and sample_rate is not None:
            raise ArgumentError("give either --sample-rate, or --dataset-size and --batch-size")
        if self.epochs is not None and steps is not None:
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
        if self.epochs is not None:
            _check.positive(epochs=self.epochs)
            steps = ceil(exact(self.epochs) * ceil(1 / exactly))
        if steps is not None:
            _check.whole(1, steps=steps)
        return 1.0 if sample_rate is None else sample_rate, steps


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """A command that takes every field of its parameters that are dataclasses, such as ``Sampling``, as an option."""
    options: list[Parameter] = []
    groups: dict[str, tuple[Callable[..., object], list[str]]] = {}
    for each in signature(command, eval_str=True).parameters.values():
        own = [each]
        if is_dataclass(each.annotation):
            group: Any = each.annotation
            own = list(signature(group).parameters.values())
            groups[each.name] = group, [option.name for option in own]
        options += [option.replace(kind=Parameter.KEYWORD_ONLY) for option in own]

    @wraps(command)
    def flat(**values: object) -> None:
        grouped = {
            name: group(**{option: values.pop(option) for option in names}) for name, (group, names) in groups.items()
        }
        command(**values, **grouped)

    flat.__signature__ = Signature(options)  # type: ignore[attr-defined]
    flat.__annotations__ = {option.name: option.annotation for option in options}
    return flat

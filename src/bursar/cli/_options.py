"""The options that several commands share: each name means one thing in every command."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
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
    "Picture",
    "PrivatePicture",
    "SampleRate",
    "Steps",
]

_NOISE_MULTIPLIER = typer.Option(
    "--noise-multiplier", help="Standard deviation of the noise of one step, divided by the clip (the sensitivity)."
)
_DELTA = typer.Option("--delta", help="Delta: the probability with which the guarantee may fail.")
_STEPS = typer.Option("--steps", help="Number of steps.")

Epsilon = Annotated[float, typer.Option("--epsilon", help="Epsilon of the privacy budget of each person.")]
Delta = Annotated[float, _DELTA]
OptionalDelta = Annotated[float | None, _DELTA]
NoiseMultiplier = Annotated[float, _NOISE_MULTIPLIER]
OptionalNoiseMultiplier = Annotated[float | None, _NOISE_MULTIPLIER]
Steps = Annotated[int, _STEPS]
OptionalSteps = Annotated[int | None, _STEPS]
SampleRate = Annotated[
    float, typer.Option("--sample-rate", help="Poisson sampling rate of each step; 1 is the full batch.")
]
MaxGradNorm = Annotated[
    float, typer.Option("--max-grad-norm", help="The clip: the largest L2 norm that one person adds to a step.")
]
Picture = Annotated[Path | None, typer.Option("--picture", help="Save a picture here: .png, .svg or .pdf.")]
PrivatePicture = Annotated[
    Path | None, typer.Option("--picture", help="Save a PRIVATE picture here: .png, .svg or .pdf.")
]
OutFile = Annotated[Path | None, typer.Option("--out", help="Write to this file instead of printing.")]
OutFolder = Annotated[Path | None, typer.Option("--out", help="The folder to write to.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]

"""The options of `almoner train --images`, and the training itself."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from almoner.cli._shown.spends import progress_bar
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.training.saved_model import TrainedOnImages

__all__ = [
    "Classes",
    "Dimensions",
    "Drawings",
    "Features",
    "Images",
    "Kind",
    "People",
    "Shape",
    "check_options",
    "train_on_images",
    "typed",
]

Images = Annotated[
    Path | None,
    typer.Option("--images", help="In place of DATA: an .npz file, or a folder of PNG or JPEG files by class."),
]
Classes = Annotated[
    str | None, typer.Option("--classes", help="With --images: the names of the labels, public, between commas.")
]
People = Annotated[int | None, typer.Option("--people", help="With --images: about how many people, public.")]


class Look(StrEnum):
    """Kinds of images."""

    strokes = "strokes"
    objects = "objects"
    scenes = "scenes"


Kind = Annotated[
    Look | None, typer.Option("--kind", help="With --images, what they look like: strokes, objects or scenes.")
]
Dimensions = Annotated[
    int | None, typer.Option("--dimensions", help="With --images: how many features of each image are kept.")
]
Drawings = Annotated[
    int | None, typer.Option("--drawings", help="With --images: by how many random drawings features are whitened.")
]
Shape = Annotated[
    str | None,
    typer.Option(
        "--shape", help="With --images, their size: HEIGHTxWIDTH, or HEIGHTxWIDTHx3; folders are scaled to it."
    ),
]
Features = Annotated[
    Path | None, typer.Option("--features", help="With --images, a PRIVATE folder where their features are kept.")
]

OF_IMAGES = {"images", "classes", "people", "kind", "shape", "features", "dimensions", "drawings"}
OF_BOTH = {"out", "epsilon", "delta", "test", "keep_accounts", "seed", "picture", "force", "as_json"}


_PATHS = ("images", "out", "picture", "features", "test")


def typed(given: dict[str, Any]) -> dict[str, Any]:
    """The values of the command's options by name; some versions of typer have paths and choices as text there."""
    choices = {} if given["kind"] is None else {"kind": Look(given["kind"])}
    return given | choices | {name: Path(given[name]) for name in _PATHS if given[name] is not None}


def check_options(ctx: typer.Context) -> bool:
    """Refuse options of tables with --images, and options of images without; whether there is --images."""
    with_images = ctx.params.get("images") is not None
    for parameter in ctx.command.params:
        name = str(parameter.name)
        source = ctx.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given and name not in OF_BOTH and (name in OF_IMAGES) != with_images:
            reason = "is about tables: leave it out with --images" if with_images else "needs --images"
            raise ArgumentError(f"{parameter.opts[0] if name != 'data' else 'DATA'} {reason}")
    return with_images


def train_on_images(given: dict[str, Any]) -> "TrainedOnImages":
    """Train with the values of the command's options, by name."""
    missing = [f"--{name}" for name in ("classes", "people", "kind") if given[name] is None]
    if missing:
        raise ArgumentError(f"{missing[0]} is missing: it must be public, so that it cannot be read off the images")
    if given["out"] is None:
        raise ArgumentError("--out is missing: the folder for the model")
    from almoner.training.saved_model import image_shape, train_images_to_folder

    with progress_bar(quiet=given["as_json"]) as progress:
        task = progress.add_task("features, then training", total=None)
        return train_images_to_folder(
            given["images"],
            given["out"],
            force=given["force"],
            keep_accounts=given["keep_accounts"],
            observe=lambda number, _: progress.update(task, completed=number),
            classes=given["classes"].split(","),
            people=given["people"],
            kind=given["kind"].value,
            drawings=given["drawings"],
            dimensions=given["dimensions"],
            shape=None if given["shape"] is None else image_shape(given["shape"]),
            features=given["features"],
            test=given["test"],
            epsilon=given["epsilon"],
            delta=given["delta"],
            seed=given["seed"],
        )

"""The options of `almoner train --images`, and the training itself."""

from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from almoner.cli._shown.spends import progress_bar
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.training.saved_model import TrainedOnImages

__all__ = ["ImageOptions", "check_options", "train_on_images"]


class Kind(StrEnum):
    """Kinds of images."""

    strokes = "strokes"
    objects = "objects"
    scenes = "scenes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """Images, and what is public about them."""

    images: Annotated[
        Path | None,
        typer.Option("--images", help="In place of DATA: an .npz file, or a folder of PNG or JPEG files by class."),
    ] = None
    classes: Annotated[
        str | None, typer.Option("--classes", help="With --images: the names of the labels, public, between commas.")
    ] = None
    people: Annotated[int | None, typer.Option("--people", help="With --images: about how many people, public.")] = None
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="With --images, what they look like: strokes, objects or scenes.")
    ] = None
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape", help="With --images, their size: HEIGHTxWIDTH, or HEIGHTxWIDTHx3; folders are scaled to it."
        ),
    ] = None
    features: Annotated[
        Path | None, typer.Option("--features", help="With --images, a PRIVATE folder where their features are kept.")
    ] = None
    dimensions: Annotated[
        int | None, typer.Option("--dimensions", help="With --images: how many features of each image are kept.")
    ] = None
    drawings: Annotated[
        int | None,
        typer.Option("--drawings", help="With --images: by how many random drawings features are whitened."),
    ] = None


OF_IMAGES = {each.name for each in fields(ImageOptions)}
OF_BOTH = {"out", "epsilon", "delta", "test", "keep_accounts", "seed", "picture", "force", "as_json"}


def check_options(ctx: typer.Context) -> None:
    """Refuse options of tables with --images, and options of images without."""
    with_images = ctx.params.get("images") is not None
    for parameter in ctx.command.params:
        name = str(parameter.name)
        source = ctx.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given and name not in OF_BOTH and (name in OF_IMAGES) != with_images:
            reason = "is about tables: leave it out with --images" if with_images else "needs --images"
            raise ArgumentError(f"{parameter.opts[0] if name != 'data' else 'DATA'} {reason}")


def train_on_images(
    images: Path, told: ImageOptions, out: Path, *, quiet: bool, force: bool, keep_accounts: bool, **shared: Any
) -> "TrainedOnImages":
    """Train, with a progress bar.

    Args:
        images, told: the images, and the options about them.
        out: the folder for the model.
        quiet: whether to show no progress.
        force, keep_accounts, shared: options that tables have too: test, epsilon, delta, seed.
    """
    if told.classes is None or told.people is None or told.kind is None:
        missing = next(name for name in ("classes", "people", "kind") if getattr(told, name) is None)
        raise ArgumentError(f"--{missing} is missing: it must be public, so that it cannot be read off the images")
    from almoner.training.saved_model import image_shape, train_images_to_folder

    with progress_bar(quiet=quiet) as progress:
        task = progress.add_task("features, then training", total=None)
        return train_images_to_folder(
            images,
            out,
            force=force,
            keep_accounts=keep_accounts,
            observe=lambda number, _: progress.update(task, completed=number),
            classes=told.classes.split(","),
            people=told.people,
            kind=told.kind.value,
            drawings=told.drawings,
            dimensions=told.dimensions,
            shape=None if told.shape is None else image_shape(told.shape),
            features=told.features,
            **shared,
        )

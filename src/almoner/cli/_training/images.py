"""`almoner train-images`: from images to a private model in a folder."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from almoner.cli._options import Delta, Epsilon
from almoner.cli._shown import progress_bar
from almoner.cli._training.outcome import RunOptions, print_trained, stopped_in_order
from almoner.errors import ArgumentError

__all__ = ["OF_TRAIN_IMAGES", "train_images"]

OF_TRAIN_IMAGES = dict(
    test="after the training, `almoner score OUT {}`",
    **dict.fromkeys(("target", "schema", "person", "ledger", "key"), "it is about tables: leave it out"),
)
"""Options that `almoner train` has, or had, and `almoner train-images` lacks."""


class Kind(StrEnum):
    """Kinds of images."""

    strokes = "strokes"
    objects = "objects"
    scenes = "scenes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageOptions:
    """Images, what is public about them, and a budget for every person."""

    images: Annotated[Path, typer.Argument(help="An .npz file, or a folder of PNG or JPEG files by class.")]
    classes: Annotated[str | None, typer.Option(help="The names of the labels, public, between commas.")] = None
    people: Annotated[int | None, typer.Option(help="About how many people there are, public.")] = None
    kind: Annotated[Kind | None, typer.Option(help="What they look like: strokes, objects or scenes.")] = None
    shape: Annotated[
        str | None, typer.Option(help="Their size: HEIGHTxWIDTH, or HEIGHTxWIDTHx3; folders are scaled to it.")
    ] = None
    drawings: Annotated[int | None, typer.Option(help="By how many random drawings features are whitened.")] = None
    epsilon: Epsilon = 1.0
    delta: Delta = 1e-5

    def stated(self) -> dict[str, Any]:
        """Arguments of ``train_images_to_folder``."""
        if self.classes is None or self.people is None or self.kind is None:
            missing = next(name for name in ("classes", "people", "kind") if getattr(self, name) is None)
            raise ArgumentError(f"--{missing} is missing: it must be public, so that it cannot be read off the images")
        from almoner.training.saved_model import image_shape

        shape = None if self.shape is None else image_shape(self.shape)
        return asdict(self) | {"classes": self.classes.split(","), "kind": self.kind.value, "shape": shape}


def train_images(*, pictured: ImageOptions, run: RunOptions) -> None:
    """Train a private linear model on images, with a privacy budget for every person in them.

    Steps, clip and rate are tuned already. The classes, the kind of images and about how many people there are must be
    stated, because they are public. The folder --out gets the model and its card; the file of --settings says where
    features, accounts and a picture are kept, which are PRIVATE.
    """
    from almoner.cli._training.settings import IMAGES, read_settings

    settings = read_settings(run.settings, IMAGES)
    picture = settings.pop("picture")
    out = run.folder(picture)
    given = pictured.stated() | settings | {"out": out, "force": run.force, "seed": run.seed}
    from almoner.training.saved_model import train_images_to_folder

    with stopped_in_order(out), progress_bar(quiet=run.as_json) as progress:
        task = progress.add_task("features, then training", total=None)
        trained = train_images_to_folder(**given, observe=lambda number, _: progress.update(task, completed=number))
    title, keep = pictured.images.name, settings["keep_accounts"]
    print_trained(trained, run, title=title, picture=picture, keep_accounts=keep)

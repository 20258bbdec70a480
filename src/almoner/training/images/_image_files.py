"""Labelled images from a file of arrays (.npz) or a folder of PNG and JPEG files (extra ``images``); all private.

Only the size of the images and their classes are public: the caller states the classes, and the size of what is in a
folder. Errors never quote a label, the name of a file, or how many records there are.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from almoner import _extras
from almoner.errors import ArgumentError, DataError

__all__ = ["Pictures", "read", "shape_of"]

SMALLEST = 8  # pixels of a side, at least

ENDINGS = (".png", ".jpg", ".jpeg")
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
"""Modes that Pillow turns into grey or colour of eight bits without cutting off values."""

Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Pictures:
    """Images of one size. Private, except the size."""

    images: NDArray[np.uint8]  # (records, channels, height, width)
    labels: Any  # (records,) numbers of the classes; None where they were not asked for
    people: NDArray[Any] | None  # (records,) whose each image is; None: each is a person of its own

    @property
    def shape(self) -> Shape:
        """(channels, height, width), public."""
        _, channels, height, width = self.images.shape
        return channels, height, width


def shape_of(text: str) -> Shape:
    """(channels, height, width) from HEIGHTxWIDTH, which is grey, or HEIGHTxWIDTHx3, which is in colour."""
    parts = text.lower().split("x")
    numbers = [int(part) for part in parts if part.isascii() and part.isdigit()]
    if len(numbers) != len(parts) or len(numbers) not in (2, 3) or numbers[2:] not in ([], [1], [3]):
        raise ArgumentError(f"shape={text!r} must be HEIGHTxWIDTH for grey images, or HEIGHTxWIDTHx3 for colour")
    if min(numbers[:2]) < SMALLEST:
        raise ArgumentError(f"shape={text!r} must have sides of at least {SMALLEST} pixels")
    return (numbers[2] if len(numbers) == 3 else 1), numbers[0], numbers[1]


def read(path: Path, *, classes: Sequence[str] | None, shape: Shape | None) -> Pictures:
    """Images from a file or a folder, private; DataError where what is there breaks one of these rules.

    An .npz file has ``images``, uint8 (records, height, width) or (records, height, width, 1 or 3), ``labels``, whole
    numbers that count the classes from 0, and, if it has them, ``people``; a folder has a folder of PNG and JPEG files
    for each class, whose name is public; with None labels are not read, and it holds the files themselves. The images
    of a file must have the public shape (channels, height, width); None: any. Each one of a folder is scaled to it.
    """
    if path.is_dir():
        if shape is None:
            raise ArgumentError("shape is missing: the images of a folder are scaled to one public size")
        return _from_folder(path, classes, shape)
    found = _from_arrays(path, classes)
    if shape is not None and found.shape != shape:
        channels, height, width = shape
        size = f"{height}x{width}" + (f"x{channels}" if channels > 1 else "")
        raise DataError(f"{path}: images must have the size that was stated, {size}")
    return found


def _from_arrays(path: Path, classes: Sequence[str] | None) -> Pictures:
    images, labels, people = _arrays(path)
    if images is None or (classes is not None and labels is None):
        missing = "images" if images is None else "labels"
        raise DataError(f"{path} must hold an array named {missing!r}")
    if images.dtype != np.uint8:
        raise DataError(f"{path}: images must be uint8, from 0 to 255, not {images.dtype}")
    if images.ndim not in (3, 4) or not len(images) or (images.ndim == 4 and images.shape[3] not in (1, 3)):
        rule = "(records, height, width), or (records, height, width, channels) with 1 or 3 channels"
        raise DataError(f"{path}: images must be of shape {rule}")
    if min(images.shape[1:3]) < SMALLEST:
        raise DataError(f"{path}: images must have sides of at least {SMALLEST} pixels")
    if people is not None and (people.dtype.kind not in "iuU" or people.shape != (len(images),)):
        raise DataError(f"{path}: people must be one whole number or one text for each image")
    pixels = images[:, None] if images.ndim == 3 else np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    if classes is None or labels is None:
        return Pictures(pixels, None, people)
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        raise DataError(f"{path}: labels must be one whole number for each image")
    if not bool(((labels >= 0) & (labels < len(classes))).all()):
        last = len(classes) - 1
        raise DataError(
            f"{path}: labels must be from 0 to {last}, the places of the {last + 1} classes that were stated"
        )
    return Pictures(pixels, labels.astype(np.int64), people)


def _arrays(path: Path) -> tuple[Any, Any, Any]:
    """images, labels and people; None for what is not there."""
    try:
        with path.open("rb") as file:
            held = np.load(file, allow_pickle=False)
            if isinstance(held, np.ndarray):
                raise DataError(f"{path} is one array; it must be an .npz file, made by numpy.savez")
            images, labels, people = (held.get(name) for name in ("images", "labels", "people"))
            return images, labels, people
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read: it must be an .npz file, or a folder of PNG and JPEG files") from error


def _from_folder(path: Path, classes: Sequence[str] | None, shape: Shape) -> Pictures:
    if classes is None:
        files = [(file, 0) for file in _files(path, "")]
    else:
        inside = [each for each in sorted(path.iterdir()) if not each.name.startswith(".")]
        if any(not each.is_dir() or each.name not in classes for each in inside):
            raise DataError(
                f"{path} must hold folders that are named like the classes that were stated, and nothing else"
            )
        places = {name: place for place, name in enumerate(classes)}
        files = [(file, places[each.name]) for each in inside for file in _files(each, f" of class {each.name!r}")]
    if not files:
        raise DataError(f"{path} holds no images")
    with _extras.need("PIL", extra="images"):
        import PIL.Image  # noqa: F401
    images = np.stack([_decoded(file, shape, path) for file, _ in files])
    labels = None if classes is None else np.array([place for _, place in files], np.int64)
    return Pictures(images, labels, None)


def _files(folder: Path, whose: str) -> Iterator[Path]:
    """The pictures of a folder by their names; a file of another kind would be somebody who is left out."""
    for file in sorted(folder.iterdir()):
        if file.name.startswith("."):
            continue
        if not file.is_file() or file.suffix.lower() not in ENDINGS:
            raise DataError(f"the images{whose} must be files that end in {', '.join(ENDINGS)}, and nothing else")
        yield file


def _decoded(file: Path, shape: Shape, folder: Path) -> NDArray[np.uint8]:
    """(channels, height, width), turned upright, in grey or colour, and scaled to the size."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    channels, height, width = shape
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a file that unpacks into a huge picture
            with Image.open(file, formats=("PNG", "JPEG")) as picture:
                if picture.mode not in MODES:
                    raise ValueError("more than eight bits")
                upright = ImageOps.exif_transpose(picture).convert("L" if channels == 1 else "RGB")
        if upright.size != (width, height):
            upright = upright.resize((width, height), Image.Resampling.BICUBIC)
    except (OSError, ValueError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError, Warning):
        raise DataError(f"{folder}: a file cannot be read as a PNG or JPEG image of eight bits a channel") from None
    pixels = np.asarray(upright, np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)

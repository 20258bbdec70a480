"""Images from files and folders: what is read, and what is refused before anything is charged."""

import numpy as np
import pytest

from almoner.errors import ArgumentError, DataError
from almoner.training import saved_model
from pictures import NAMES, bars, drawn, folder_of


def test_a_file_of_arrays_is_read_with_its_labels_and_people(tmp_path):
    """Grey and colour images come out with the channels first; labels and people stay as they are."""
    images, labels = drawn(6)
    path = bars(tmp_path / "a.npz", images=images, labels=labels, people=np.array(list("aabbcc")))
    found = saved_model.read_pictures(path, classes=NAMES, shape=None)
    assert found.shape == (1, 16, 16)
    assert np.array_equal(found.images[:, 0], images)
    assert np.array_equal(found.labels, labels)
    assert found.people.tolist() == list("aabbcc")
    colour = np.stack([images, images // 2, images // 3], axis=3)
    found = saved_model.read_pictures(
        bars(tmp_path / "b.npz", images=colour, labels=labels), classes=None, shape=(3, 16, 16)
    )
    assert np.array_equal(found.images[:, 1], images // 2)
    assert found.labels is None


def test_a_folder_gives_the_images_that_were_saved(tmp_path):
    """Classes are numbered as stated, not as the folders are sorted; grey pixels of the right size are not changed."""
    images, labels = drawn(8)
    folder = folder_of(tmp_path / "f", images, labels)
    found = saved_model.read_pictures(folder, classes=("upright", "absent", "level"), shape=(1, 16, 16))
    order = np.argsort(labels, kind="stable")  # level comes first
    assert np.array_equal(found.images[:, 0], images[order])
    assert found.labels.tolist() == [2 - 2 * label for label in labels[order]]
    scaled = saved_model.read_pictures(folder, classes=NAMES, shape=(3, 8, 12))
    assert scaled.images.shape == (8, 3, 8, 12)
    flat = saved_model.read_pictures(folder_of(tmp_path / "g", images), classes=None, shape=(1, 16, 16))
    assert np.array_equal(flat.images[:, 0], images)


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"images": np.zeros((4, 16, 16))}, "uint8"),
        ({"images": np.zeros((4, 16, 16), np.int32)}, "uint8"),
        ({"images": np.zeros((4, 16), np.uint8)}, "of shape"),
        ({"images": np.zeros((0, 16, 16), np.uint8)}, "of shape"),
        ({"images": np.zeros((4, 3, 16, 16), np.uint8)}, "1 or 3 channels"),
        ({"images": np.zeros((4, 7, 16), np.uint8)}, "at least 8"),
        ({"labels": np.zeros((4, 1), int)}, "labels must be one whole number"),
        ({"labels": np.zeros(3, int)}, "labels must be one whole number"),
        ({"labels": np.zeros(4)}, "labels must be one whole number"),
        ({"labels": np.array([0, 1, 2, 0])}, "from 0 to 1"),
        ({"labels": np.array([0, 1, -1, 0])}, "from 0 to 1"),
        ({"people": np.zeros(3, int)}, "people"),
        ({"people": np.full(4, np.nan)}, "people"),
        ({"labels": np.array([None] * 4)}, "cannot be read"),
    ],
)
def test_arrays_that_break_a_rule_are_refused(tmp_path, arrays, word):
    """The error names the array and the rule, and no value of it."""
    images, labels = drawn(4)
    path = tmp_path / "a.npz"
    np.savez(path, **{"images": images, "labels": labels, **arrays})
    with pytest.raises(DataError, match=word):
        saved_model.read_pictures(path, classes=NAMES, shape=None)


def test_files_that_are_no_archive_of_images_are_refused(tmp_path):
    """Text, one array, an archive without images or labels, one that was cut off, and images of another size."""
    text, one = tmp_path / "t.npz", tmp_path / "o.npz"
    text.write_text("no")
    with one.open("wb") as file:
        np.save(file, np.zeros(3))
    for path, word in ((text, "cannot be read"), (one, "one array"), (tmp_path / "absent.npz", "cannot be read")):
        with pytest.raises(DataError, match=word):
            saved_model.read_pictures(path, classes=NAMES, shape=None)
    images, _ = drawn(4)
    np.savez(tmp_path / "n.npz", images=images)
    with pytest.raises(DataError, match="'labels'"):
        saved_model.read_pictures(tmp_path / "n.npz", classes=NAMES, shape=None)
    with pytest.raises(DataError, match="28x28"):
        saved_model.read_pictures(tmp_path / "n.npz", classes=None, shape=(1, 28, 28))
    cut = (tmp_path / "n.npz").read_bytes()
    text.write_bytes(cut[: len(cut) // 2])
    with pytest.raises(DataError, match="cannot be read"):
        saved_model.read_pictures(text, classes=None, shape=None)


def test_folders_that_break_a_rule_are_refused_without_a_name_in_the_error(tmp_path):
    """A class that was not stated, a file of another kind, a broken one, 16 bits, none at all, and no size."""
    images, labels = drawn(4)
    folder = folder_of(tmp_path / "f", images, labels)

    def refused(word, **options):
        with pytest.raises((ArgumentError, DataError), match=word) as error:
            saved_model.read_pictures(folder, **{"classes": NAMES, "shape": (1, 16, 16), **options})
        assert "secret" not in str(error.value)

    refused("shape is missing", shape=None)
    refused("named like the classes", classes=("level", "other"))
    (folder / "level" / ".hidden").write_text("is passed over")
    saved_model.read_pictures(folder, classes=NAMES, shape=(1, 16, 16))
    for name, content in (("secret.gif", b"x"), ("secret.png", b"x"), ("secret.jpg", b"\xff\xd8\xff")):
        (folder / "level" / name).write_bytes(content)
        refused("must be files that end in" if name.endswith("gif") else "cannot be read")
        (folder / "level" / name).unlink()
    from PIL import Image

    Image.fromarray(np.full((16, 16), 40_000, np.uint16)).save(folder / "level" / "secret.png")
    refused("eight bits")
    (folder / "level" / "secret.png").unlink()
    (folder / "secret").mkdir()
    refused("named like the classes")
    folder = tmp_path / "empty"
    folder.mkdir()
    refused("no images")


@pytest.mark.parametrize("text", ["28", "28x28x2", "x28", "28x28x3x1", "7x28", "-8x28", "28.0x28", "²8x28"])
def test_sizes_that_make_no_sense_are_refused(text):
    """The error has the text and the rule."""
    with pytest.raises(ArgumentError, match="shape="):
        saved_model.image_shape(text)


def test_sizes_are_grey_or_in_colour():
    """HEIGHTxWIDTH, and with x3 three channels."""
    assert saved_model.image_shape("28x30") == (1, 28, 30)
    assert saved_model.image_shape("32X32x3") == (3, 32, 32)

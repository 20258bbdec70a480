"""One format of folders for every kind of model: digest, format and card are checked before anything is built."""

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from almoner import filters
from almoner.errors import DataError, Unsupported
from almoner.training import saved_model, saved_module
from almoner.training._linear import model_folder
from almoner.training._linear.model_folder import MODULE, TABLE, ModelFolder
from model_folders import rewrite, weights
from training_cards import cards
from training_runs import network, records, trainer

(_, CARD), *_ = cards()
ARRAYS = {"file": np.arange(6.0).reshape(2, 3), "b": np.float32(1.5), "sub/words": np.int16([1, 2])}


def held(kind=TABLE, **options):
    return ModelFolder(kind, {"settings": {"a": 1}}, ARRAYS, CARD, **options)


@pytest.fixture
def folder(tmp_path):
    return held(torch_types={"sub/words": "bfloat16"}).write(tmp_path / "m")


def test_what_is_written_is_read(folder):
    """Whatever arrays are called, scalars too; the entries of the kind, the card and the types of tensors."""
    found = ModelFolder.read(folder, MODULE, TABLE)
    assert (found.kind, found.fields, found.card) == (TABLE, {"settings": {"a": 1}}, CARD)
    assert found.torch_types == {"sub/words": "bfloat16"}
    assert found.arrays.keys() == ARRAYS.keys()
    assert all(np.array_equal(found.arrays[name], array) for name, array in ARRAYS.items())
    described = json.loads((folder / "model.json").read_text())
    assert described["arrays"]["sub/words"] == {"shape": [2], "dtype": "int16", "torch": "bfloat16"}
    assert folder.stat().st_mode & 0o777 == 0o755


def test_two_writings_are_the_same_to_the_byte(folder, tmp_path):
    """No time, path or user is in the files."""
    again = held(torch_types={"sub/words": "bfloat16"}).write(tmp_path / "elsewhere")
    for file in folder.iterdir():
        assert file.read_bytes() == (again / file.name).read_bytes()


def test_metrics_are_never_without_their_warning(tmp_path):
    """The file says that the guarantee does not cover it, whatever was given."""
    written = held().write(tmp_path / "m", metrics={"accuracy": 0.5})
    assert json.loads((written / "metrics.json").read_text()) == {"accuracy": 0.5, "note": model_folder.NOT_COVERED}


@pytest.mark.parametrize("written", [1, 3, "2", None, [2]])
def test_another_format_is_refused_by_its_name(folder, written):
    """The message has the format that was found and the one that is read, and says what to do."""
    rewrite(folder, format=written)
    with pytest.raises(DataError, match="and this version reads format 2: train the model again") as told:
        ModelFolder.read(folder, TABLE)
    assert f"has format {written!r}" in str(told.value)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (MODULE, r"load it with training\.saved_module\.load"),
        ("a tree", "holds 'a tree', not 'logistic"),
        ([1], r"\[1\]"),
    ],
)
def test_another_kind_is_refused_by_its_name(folder, kind, words):
    """With the call that loads it, if it is a kind that almoner saves."""
    rewrite(folder, kind=kind)
    with pytest.raises(DataError, match=words):
        saved_model.load(folder)


class Trap:
    """What a pickle would run."""

    def __reduce__(self):
        return (pytest.fail, ("code in the folder was run",))


DAMAGE = [
    "other",
    "renamed",
    "retyped",
    "lost",
    "pickle",
    "objects",
    "array",
    "cut",
    "no card",
    "bad card",
    "no digest",
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused_and_nothing_in_it_runs(folder, damage):
    """Other weights; entries that are not those of the weights; a pickle whose digest fits; no card, or a bad one."""
    card, file = folder / "card.json", folder / "weights.npz"
    described = json.loads((folder / "model.json").read_text())["arrays"]
    if damage == "other":
        np.savez(file, **{f"{name}_": array for name, array in weights(folder).items()})
    elif damage == "renamed":
        rewrite(folder, arrays={f"{name}_": told for name, told in described.items()})
    elif damage == "retyped":
        rewrite(folder, arrays=described | {"b": {"shape": [], "dtype": "float64"}})
    elif damage == "lost":
        rewrite(folder, arrays={"b": described["b"]})
    elif damage == "pickle":
        file.write_bytes(pickle.dumps({"b": Trap()}))
        rewrite(folder, weights=model_folder._digest(file))
    elif damage == "objects":
        rewrite(folder, {"b": np.array([Trap()], dtype=object)})
    elif damage == "array":
        np.save(file, np.ones(3))
        (folder / "weights.npz.npy").replace(file)
        rewrite(folder, weights=model_folder._digest(file))
    elif damage == "cut":
        file.write_bytes(file.read_bytes()[:-30])
        rewrite(folder, weights=model_folder._digest(file))
    elif damage == "no card":
        card.unlink()
    elif damage == "bad card":
        card.write_text(json.dumps(json.loads(card.read_text()) | {"epsilon": -1.0}))
    else:
        told = json.loads((folder / "model.json").read_text())
        (folder / "model.json").write_text(json.dumps({name: told[name] for name in told if name != "weights"}))
    with pytest.raises(DataError, match="m"):
        ModelFolder.read(folder, TABLE)


def test_digests_are_checked_without_torch(folder):
    """Reading a folder of any kind loads neither PyTorch nor scikit-learn."""
    code = (
        "import sys; from almoner.training._linear.model_folder import ModelFolder; "
        f"ModelFolder.read({str(folder)!r}, 'logistic regression'); print({{'torch', 'sklearn'}} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float64", "float8_e4m3fn", "complex64"])
def test_tensors_of_every_type_come_back_to_the_bit(tmp_path, name):
    """Types that NumPy lacks are words in the file, with the name of the type beside; nothing is rounded."""
    job = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), steps=2, seed=1)
    job.fit(*records())
    values = torch.linspace(-3, 3, 7).to(getattr(torch, name))
    for module in (job.module, other := network()):
        module.register_buffer("file", values.clone() if module is job.module else torch.zeros_like(values))
    folder = saved_module.save(job, tmp_path / "m")
    saved_module.load(folder, other)
    assert other.file.dtype is values.dtype
    assert torch.equal(other.file.view(torch.uint8), values.view(torch.uint8))
    told = json.loads((folder / "model.json").read_text())["arrays"]["file"]
    assert told.get("torch", name) == name
    assert ("torch" in told) == (name in ("bfloat16", "float8_e4m3fn"))


def test_states_that_no_array_holds_are_refused(tmp_path):
    """A sparse buffer: before anything is written."""
    job = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), steps=2, seed=1)
    job.fit(*records())
    job.module.register_buffer("thin", torch.eye(3).to_sparse())
    with pytest.raises(Unsupported, match="'thin' is no dense tensor"):
        saved_module.save(job, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("entry", [{"torch": "nn"}, {"torch": "no_such_type"}, {"torch": 3}])
def test_a_type_that_is_none_is_refused(tmp_path, entry):
    """The name of a type in ``model.json`` is taken for nothing else."""
    job = trainer(filters.Gaussian(epsilon=1.0, delta=1e-5), steps=2, seed=1)
    job.fit(*records())
    folder = saved_module.save(job, tmp_path / "m")
    arrays = json.loads((folder / "model.json").read_text())["arrays"]
    rewrite(folder, arrays=arrays | {"0.bias": arrays["0.bias"] | entry})
    with pytest.raises(DataError):
        saved_module.load(folder, nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2)))

"""Folders of models with other arrays or entries, whose digest fits all the same."""

import json
from hashlib import sha256

import numpy as np


def weights(folder):
    """The arrays in a folder."""
    with np.load(folder / "weights.npz") as held:
        return dict(held)


def rewrite(folder, new=None, **entries):
    """Put other arrays, or other entries of ``model.json``, into a folder; digest, shapes and types are those."""
    described = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    if new is not None:
        np.savez(folder / "weights.npz", **new)
        described["arrays"] = {
            name: {"shape": list(array.shape), "dtype": str(array.dtype)} for name, array in new.items()
        }
        described["weights"] = sha256((folder / "weights.npz").read_bytes()).hexdigest()
    (folder / "model.json").write_text(json.dumps(described | entries), encoding="utf-8")

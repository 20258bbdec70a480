"""A folder with a table of made-up people, who bought something if they are over 50, and its schema."""

from pathlib import Path

import numpy as np

__all__ = ["SCHEMA", "age_folder"]

SCHEMA = """
target = "bought"
classes = ["no", "yes"]
people = 500

[columns.age]
low = 0
high = 100
"""


def age_folder(folder: Path) -> Path:
    """The folder, with ``data.csv`` of 500 people and ``schema.toml``."""
    ages = np.random.default_rng(0).integers(0, 101, size=500)
    lines = [f"{age},{'yes' if age > 50 else 'no'}" for age in ages]
    (folder / "data.csv").write_text("\n".join(["age,bought", *lines]) + "\n", encoding="utf-8")
    (folder / "schema.toml").write_text(SCHEMA, encoding="utf-8")
    return folder

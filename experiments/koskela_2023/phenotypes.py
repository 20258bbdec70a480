"""Which acute conditions does a patient have? The task of Koskela, Tobaben & Honkela's section 6, from three sources.

1. ``diabetes130``: open data in place of MIMIC-III. The 25 phenotypes of the MIMIC-III benchmark, from the up to three
   diagnoses of each patient's first encounter; features are what else is known of the encounter.
2. ``benchmark``: the files of the MIMIC-III benchmark, for people who have them (see mimic.py).
3. ``demo``: files of that form, generated from the open MIMIC-III demo. They test the program; results mean nothing.

Features depend on each record alone, so they cost no privacy.
"""

import csv
import gzip
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mimic
import numpy as np
from data_sets import folder
from groups import Data

from almoner.training import tables
from almoner.training.tables import Schema

HERE = Path(__file__).parent
TRAIN, TEST = (
    29_252,
    10_000,
)  # patients of diabetes130 to learn from, as many as the authors have stays, and to judge by
GROUP, GROUP_TEST = 1000, 400  # people in each of the five groups, as in the paper

# ICD-9 categories of three digits, because two of the three diagnoses of diabetes130 have no more. Where a phenotype of
# the benchmark needs more digits, the category in which it is the most frequent one stands for it.
CATEGORIES = mimic.CODES | {
    "Diabetes mellitus with complications": "250+",
    "Diabetes mellitus without complication": "250-",
    "Other upper respiratory disease": "470 471 472 473 474 475 476 477 478",
    "Pleurisy; pneumothorax; pulmonary collapse": "511 512",
    "Pneumonia (except that caused by tuberculosis or sexually transmitted disease)": "480 481 482 483 484 485 486",
    "Respiratory failure; insufficiency; arrest (adult)": "518 799",
    "Septicemia (except in labor)": "038 995",
}
CHAPTERS = {  # of the first diagnosis; the five largest in diabetes130
    "circulatory": ((390, 459), (785, 785)),
    "respiratory": ((460, 519), (786, 786)),
    "digestive": ((520, 579), (787, 787)),
    "diabetes": ((250, 250),),
    "injury": ((800, 999),),
}


def five_groups(y: Any, phenotypes: Sequence[str], size: int, seed: int = 0) -> Any:
    """The paper's five groups without overlap, picked in its order, each of at most so many; all others are "others".

    No condition at all; pneumonia; no pneumonia; heart attack; no heart attack.
    """
    labels, rng = np.full(len(y), "others", dtype="<U16"), np.random.default_rng(seed)
    pneumonia, attack = (
        y[:, next(j for j, name in enumerate(phenotypes) if name.startswith(start))] == 1
        for start in ("Pneumonia", "Acute myocardial")
    )
    wanted = {
        "no condition": ~y.any(axis=1),
        "pneumonia": pneumonia,
        "no pneumonia": ~pneumonia,
        "heart attack": attack,
        "no heart attack": ~attack,
    }
    for name, members in wanted.items():
        free = np.flatnonzero(members & (labels == "others"))
        labels[rng.choice(free, min(size, len(free)), replace=False)] = name
    return labels


# Diabetes 130-US hospitals


def diabetes130(given: Path | None = None, *, train: int = TRAIN, test: int = TEST) -> Data:
    """First encounters of patients, shuffled; the first to learn from, the next to judge by."""
    raw = gzip.decompress((folder("diabetes130", given) / "diabetic_data.csv.gz").read_bytes())
    schema = Schema.read(HERE / "phenotypes.toml")
    with tempfile.TemporaryDirectory() as unpacked:
        path = Path(unpacked) / "diabetic_data.csv"
        path.write_bytes(raw)
        x = tables.encode(tables.read(path, schema, target=False), schema).toarray() * np.sqrt(len(schema.columns) + 1)
    rows = list(csv.DictReader(raw.decode().splitlines()))
    _, first = np.unique([row["patient_nbr"] for row in rows], return_index=True)
    chosen = np.random.default_rng(0).permutation(first)[: train + test]
    codes = [[rows[i][f"diag_{k}"] for k in (1, 2, 3)] for i in chosen]
    y = np.array([conditions(three) for three in codes], dtype=np.int64)
    chapters = np.array([chapter(three[0]) for three in codes])
    names = tuple(CATEGORIES)
    x, parts = x[chosen].astype(np.float32), (slice(train), slice(train, None))
    groups, groups_test = (
        {"condition": five_groups(y[part], names, size), "main diagnosis": chapters[part]}
        for part, size in zip(parts, (min(GROUP, train // 25), min(GROUP_TEST, test // 25)), strict=True)
    )
    return Data(x[parts[0]], y[parts[0]], None, x[parts[1]], y[parts[1]], groups, groups_test)


def conditions(codes: Sequence[str]) -> list[int]:
    """The 25 labels of an encounter, from its ICD-9 codes, of which those of diabetes alone have decimals."""
    had = set()
    for code in codes:
        whole, _, decimals = code.partition(".")
        if whole == "250":
            had.add("250+" if decimals[:1] in tuple("123456789") else "250-")
        else:
            had.add(whole.zfill(3))
    return [int(not had.isdisjoint(listed.split())) for listed in CATEGORIES.values()]


def chapter(code: str) -> str:
    """The chapter of a first diagnosis, if it is one of the five largest."""
    whole = code.partition(".")[0]
    number = int(whole) if whole.isdigit() else -1
    found = (name for name, ranges in CHAPTERS.items() if any(low <= number <= high for low, high in ranges))
    return next(found, "others")


# The files of the MIMIC-III benchmark


def benchmark(folder: Path, *, sizes: tuple[int, int] = (GROUP, GROUP_TEST)) -> Data:
    """Stays in the folders train and test; a subject with all stays is a person, in the group of the first stay."""
    learn, judge = mimic.read(folder / "train"), mimic.read(folder / "test")
    _, first, people = np.unique(learn.subjects, return_index=True, return_inverse=True)
    scale = np.sqrt(learn.x.shape[1])  # entries in [-1, 1]
    return Data(
        (learn.x * scale).astype(np.float32),
        learn.y,
        people,
        (judge.x * scale).astype(np.float32),
        judge.y,
        {"condition": five_groups(learn.y[first], learn.phenotypes, sizes[0])},
        {"condition": five_groups(judge.y, judge.phenotypes, sizes[1])},
    )


def demo(given: Path | None = None, *, train: int = 3000, test: int = 800) -> Data:
    """Generated stays in the benchmark's form: rows drawn from a stay of the open demo, each value changed a little."""
    with tempfile.TemporaryDirectory() as made:
        source = mimic.make_from_demo(mimic.demo_folder(given), Path(made) / "demo")
        for part, count in (("train", train), ("test", test)):
            generate(source / part, Path(made) / part, count)
        return benchmark(Path(made), sizes=(train // 10, test // 10))


def generate(source: Path, out: Path, count: int, seed: int = 0) -> None:
    """Write so many stays of new subjects, each from one stay in the source: half of its lines, 48 at most."""
    rng = np.random.default_rng(seed)
    header, *lines = csv.reader((source / "listfile.csv").read_text(encoding="utf-8").splitlines())
    stays = [list(csv.reader((source / line[0]).read_text(encoding="utf-8").splitlines())) for line in lines]
    listed = []
    out.mkdir(parents=True)
    for subject in range(count):
        base = int(rng.integers(len(lines)))
        columns, *rows = stays[base]
        kept = np.sort(rng.permutation(len(rows))[: min(48, (len(rows) + 1) // 2)])
        name = f"{100_000 + subject}_episode1_timeseries.csv"
        mimic.write(out / name, columns, [_changed(rows[i], columns, rng) for i in kept])
        listed.append([name, *lines[base][1:]])
    mimic.write(out / "listfile.csv", header, listed)


def _changed(row: list[str], columns: list[str], rng: np.random.Generator) -> list[str]:
    """A line with each measured value times a factor near 1; answers on the coma scale stay."""
    return [
        entry
        if not entry or column == "Hours" or column.startswith("Glascow") or mimic.number(entry) is None
        else f"{mimic.number(entry) * (1 + 0.05 * rng.standard_normal()):.4f}"
        for entry, column in zip(row, columns, strict=True)
    ]


def held_out(task: Data, share: float = 0.2, seed: int = 1) -> Data:
    """Some people of the training records to tune by, and the others to learn from; the test records are not seen."""
    aside = np.random.default_rng(seed).random(task.count) < share
    rows = aside if task.people is None else aside[task.people]
    people = None if task.people is None else np.unique(task.people[~rows], return_inverse=True)[1]
    groups = {name: labels[~aside] for name, labels in task.groups.items()}
    judged = {name: labels[aside] for name, labels in task.groups.items()} if task.people is None else {}
    return replace(
        task,
        x=task.x[~rows],
        y=task.y[~rows],
        people=people,
        x_test=task.x[rows],
        y_test=task.y[rows],
        groups=groups,
        groups_test=judged,
    )

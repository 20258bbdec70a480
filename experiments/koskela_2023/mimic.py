"""Koskela, Tobaben & Honkela (2023), section 6, on the phenotyping files of the MIMIC-III benchmark.

    python experiments/koskela_2023/mimic.py data/phenotyping --stays data/root/all_stays.csv
    python experiments/koskela_2023/mimic.py --quick           # files of that shape, made from the open MIMIC-III demo

Trains a private logistic regression for one phenotype with an account for each subject, and prints the report of the
groups, which is for the data holder. The paper's own experiment, a network for all 25 phenotypes, reads the same files:
``python experiments/koskela_2023/section6.py --benchmark data/phenotyping``.

MIMIC-III needs a licence and is not included. People with a licence create the files with
github.com/YerevaNN/mimic3-benchmarks (Harutyunyan et al. 2019): folders train and test, each with listfile.csv (stay,
period_length, 25 phenotypes) and for each stay a file SUBJECT_episodeN_timeseries.csv (Hours and 17 channels, empty
where nothing was measured). The subject is the person: all stays of one subject are one contribution. all_stays.csv
(SUBJECT_ID, GENDER, ETHNICITY, ...) gives the groups.

With --quick the open demo (100 patients) is converted into that shape. Its phenotypes are taken from prefixes of ICD-9
codes, which is coarser than the benchmark's lists: it tests the program, and its results mean nothing.
"""

import argparse
import csv
import gzip
import re
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from almoner import filters, individual, mechanisms
from almoner.curves import gaussian
from almoner.errors import DataError
from almoner.training import Descent, LogisticGradients, descend

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))
from data_sets import folder  # noqa: E402
from group_reports import Audience, GroupReport, GroupWatch, linear_measure  # noqa: E402

NAME = re.compile(r"(\d+)_episode\d+_timeseries\.csv")
PHENOTYPES = 25

# Channels in the benchmark's order, with public ranges; values outside are clamped. No range is read from data.
RANGES = {
    "Capillary refill rate": (0, 1),
    "Diastolic blood pressure": (0, 200),
    "Fraction inspired oxygen": (0.2, 1),
    "Glascow coma scale eye opening": (1, 4),
    "Glascow coma scale motor response": (1, 6),
    "Glascow coma scale total": (3, 15),
    "Glascow coma scale verbal response": (1, 5),
    "Glucose": (30, 500),
    "Heart Rate": (0, 250),
    "Height": (100, 220),
    "Mean blood pressure": (0, 250),
    "Oxygen saturation": (50, 100),
    "Respiratory rate": (0, 60),
    "Systolic blood pressure": (0, 300),
    "Temperature": (30, 43),
    "Weight": (30, 250),
    "pH": (6.8, 7.8),
}
CHANNELS = tuple(RANGES)
# Answers on the coma scale that are not written with their number.
WORDS = {
    "no response": 1, "none": 1, "no response-ett": 1, "to pain": 2, "to speech": 3, "spontaneously": 4,
    "abnormal extension": 2, "abnormal flexion": 3, "flex-withdraws": 4, "localizes pain": 5, "obeys commands": 6,
    "incomprehensible sounds": 2, "inappropriate words": 3, "confused": 4, "oriented": 5,
}  # fmt: skip
SUMMARIES = ("measured", "mean", "least", "most", "last")


@dataclass(frozen=True)
class Stays:
    """One folder of the benchmark."""

    x: Any
    """(stays, 17 channels times 5 summaries and a constant), each row of norm at most 1."""
    y: Any
    """(stays, 25) labels."""
    subjects: Any
    """(stays,) the number of the person."""
    hours: Any
    """(stays,) length of the stay."""
    phenotypes: tuple[str, ...]


def read(folder: Path, listfile: Path | None = None) -> Stays:
    """The stays of a list (default: listfile.csv in the folder), as features."""
    path = listfile or folder / "listfile.csv"
    if not path.is_file():
        raise DataError(f"{path} is not there")
    with path.open(encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines)
    if header[:2] != ["stay", "period_length"] or len(header) != 2 + PHENOTYPES:
        raise DataError(f"{path}: its header must be stay, period_length and {PHENOTYPES} phenotypes")
    if not rows:
        raise DataError(f"{path} lists no stay")
    names = [NAME.fullmatch(row[0]) for row in rows]
    if not all(names) or any(len(row) != len(header) or set(row[2:]) - {"0", "1"} for row in rows):
        raise DataError(f"{path}: every line must be SUBJECT_episodeN_timeseries.csv, hours, and labels 0 or 1")
    return Stays(
        x=np.array([summaries(folder / row[0]) for row in rows]),
        y=np.array([row[2:] for row in rows], dtype=np.int64),
        subjects=np.array([int(name[1]) for name in names if name]),
        hours=np.array([float(row[1]) for row in rows]),
        phenotypes=tuple(header[2:]),
    )


def summaries(path: Path) -> Any:
    """Whether each channel was measured, and its mean, least, most and last value, scaled to [-1, 1] by its range.

    Depends on this stay alone. Divided by the root of the number of entries, so the norm is at most 1.
    """
    with path.open(encoding="utf-8", newline="") as lines:
        header, *rows = csv.reader(lines)
    if tuple(header) != ("Hours", *CHANNELS):
        raise DataError(f"{path.parent}: the columns of every stay must be Hours and the {len(CHANNELS)} channels")
    if any(len(row) != len(header) for row in rows):
        raise DataError(f"{path.parent}: every line of a stay must have an entry for each column, empty or not")
    found = []
    for place, (low, high) in enumerate(RANGES.values(), 1):
        values = [value for row in rows if row[place] and (value := number(row[place])) is not None]
        if values:
            scaled = np.clip(2 * (np.array(values) - low) / (high - low) - 1, -1, 1)
            found += [1.0, scaled.mean(), scaled.min(), scaled.max(), scaled[-1]]
        else:
            found += [0.0] * len(SUMMARIES)
    return np.array([*found, 1.0]) / np.sqrt(len(found) + 1)


def number(entry: str) -> float | None:
    """A value, or the score of an answer on the coma scale ("4 Spontaneously", "To Speech"); None where missing."""
    entry = entry.strip()
    leading = re.match(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", entry)
    return float(leading[0]) if leading else WORDS.get(entry.lower())


def groups_of(stays: Path | None, subjects: Any) -> dict[str, Any]:
    """Gender and ethnicity of each subject, from all_stays.csv; without it, one group of all subjects."""
    if stays is None:
        return {"all": np.full(len(subjects), "all")}
    known: dict[int, tuple[str, str]] = {}
    with stays.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            known.setdefault(int(row["SUBJECT_ID"]), (row["GENDER"], row["ETHNICITY"].split("/")[0].split(" - ")[0]))
    pairs = [known.get(int(subject), ("not known", "not known")) for subject in subjects]
    return {"gender": np.array([a for a, _ in pairs]), "ethnicity": np.array([b for _, b in pairs])}


def train(
    data: Stays, test: Stays, *, phenotype: str, stays: Path | None, epsilon: float, steps: int, last: int, seed: int
) -> tuple[Any, GroupReport, individual.Filter]:
    """Private logistic regression for one phenotype with an account for each subject; the report; the accounts."""
    column = next((j for j, name in enumerate(data.phenotypes) if name.lower().startswith(phenotype.lower())), None)
    if column is None:
        raise DataError(f"phenotype={phenotype!r} is none of {', '.join(data.phenotypes)}")
    subjects, people = np.unique(data.subjects, return_inverse=True)
    y = data.y[:, column]
    budget = filters.Gaussian(epsilon=epsilon, delta=1e-5)
    accounts = individual.Filter(len(subjects), budget)
    watch = GroupWatch(
        Audience(groups_of(stays, subjects), linear_measure(data.x, y, intercept=False, people=people)),
        lambda: accounts.spent() / budget.mu**2,
        steps=last,
        test=Audience(groups_of(stays, test.subjects), linear_measure(test.x, test.y[:, column], intercept=False)),
    )
    gradients = LogisticGradients(data.x, y, 2, intercept=False, people=people)
    sigma = float(np.sqrt(steps) / gaussian.mu(epsilon=epsilon, delta=1e-5)) * (1 + 1e-9)
    found = descend(
        gradients,
        gradients.start,
        accounts,
        mechanisms.Gaussian(sigma=sigma, sensitivity=1.0),
        steps=last,
        learning_rate=4.0,
        divisor=float(len(subjects)),  # published for MIMIC-III
        noise=np.random.default_rng(seed),
        descent=Descent(average=0.0, momentum=0.0, pace=0.0),  # Feldman and Zrnic's Algorithm 8
        observe=watch.look,
    )
    return found, watch.report(), accounts


# The open demo, converted into the shape of the benchmark

ITEMS = {
    "Diastolic blood pressure": (8368, 220051, 220180, 8441),
    "Fraction inspired oxygen": (223835, 190),
    "Glascow coma scale eye opening": (184, 220739),
    "Glascow coma scale motor response": (454, 223901),
    "Glascow coma scale total": (198,),
    "Glascow coma scale verbal response": (723, 223900),
    "Glucose": (807, 811, 1529, 226537, 220621, 225664),
    "Heart Rate": (211, 220045),
    "Height": (226707, 226730),
    "Mean blood pressure": (52, 456, 220052, 220181, 225312),
    "Oxygen saturation": (646, 220277),
    "Respiratory rate": (618, 615, 220210, 224690),
    "Systolic blood pressure": (51, 455, 220050, 220179),
    "Temperature": (676, 223762, 678, 223761),
    "Weight": (763, 224639, 226512),
    "pH": (780, 1126, 220274, 223830),
}
FAHRENHEIT, INCHES = (678, 223761), (226707,)
CODES = {  # prefixes of ICD-9 codes, in place of the lists of the benchmark
    "Acute and unspecified renal failure": "584 586",
    "Acute cerebrovascular disease": "430 431 432 434 436",
    "Acute myocardial infarction": "410",
    "Cardiac dysrhythmias": "427",
    "Chronic kidney disease": "585",
    "Chronic obstructive pulmonary disease and bronchiectasis": "491 492 494 496",
    "Complications of surgical procedures or medical care": "997 998 999",
    "Conduction disorders": "426",
    "Congestive heart failure; nonhypertensive": "428",
    "Coronary atherosclerosis and other heart disease": "411 413 414",
    "Diabetes mellitus with complications": "2504 2505 2506",
    "Diabetes mellitus without complication": "2500",
    "Disorders of lipid metabolism": "272",
    "Essential hypertension": "401",
    "Fluid and electrolyte disorders": "276",
    "Gastrointestinal hemorrhage": "578",
    "Hypertension with complications and secondary hypertension": "402 403 404 405",
    "Other liver diseases": "571 572 573",
    "Other lower respiratory disease": "786 515",
    "Other upper respiratory disease": "478",
    "Pleurisy; pneumothorax; pulmonary collapse": "511 512 5180",
    "Pneumonia (except that caused by tuberculosis or sexually transmitted disease)": "481 482 485 486",
    "Respiratory failure; insufficiency; arrest (adult)": "51881 51884 7991",
    "Septicemia (except in labor)": "038 99591 99592",
    "Shock": "785",
}


def make_from_demo(demo: Path, out: Path) -> Path:
    """Write train, test and all_stays.csv in the benchmark's shape, with every fifth subject in test. Returns `out`."""
    codes = defaultdict(set)
    for row in _table(demo, "DIAGNOSES_ICD"):
        codes[row["hadm_id"]].add(row["icd9_code"])
    persons = {row["subject_id"]: row for row in _table(demo, "PATIENTS")}
    admissions = {row["hadm_id"]: row for row in _table(demo, "ADMISSIONS")}
    stays = sorted(_table(demo, "ICUSTAYS"), key=lambda row: (int(row["subject_id"]), row["intime"]))
    events = _events(demo)
    lists: dict[str, list[list[Any]]] = {"train": [], "test": []}
    number_of: dict[str, int] = defaultdict(int)
    order = {subject: place for place, subject in enumerate(sorted(persons, key=int))}
    for part in lists:
        (out / part).mkdir(parents=True, exist_ok=True)
    for stay in stays:
        number_of[stay["subject_id"]] += 1
        start, hours = datetime.fromisoformat(stay["intime"]), 24 * float(stay["los"] or "nan")
        rows = _rows(events.get(stay["icustay_id"], {}), start, hours)
        if not rows:
            continue
        part = "test" if order[stay["subject_id"]] % 5 == 4 else "train"
        name = f"{stay['subject_id']}_episode{number_of[stay['subject_id']]}_timeseries.csv"
        write(out / part / name, ["Hours", *CHANNELS], rows)
        had = codes[stay["hadm_id"]]
        labels = [int(any(code.startswith(tuple(starts.split())) for code in had)) for starts in CODES.values()]
        lists[part].append([name, f"{hours:.6f}", *labels])
    for part, lines in lists.items():
        write(out / part / "listfile.csv", ["stay", "period_length", *CODES], lines)
    who = [
        [s["subject_id"], s["icustay_id"], persons[s["subject_id"]]["gender"], admissions[s["hadm_id"]]["ethnicity"]]
        for s in stays
    ]
    write(out / "all_stays.csv", ["SUBJECT_ID", "ICUSTAY_ID", "GENDER", "ETHNICITY"], who)
    return out


def _rows(events: dict[datetime, dict[str, str]], start: datetime, hours: float) -> list[list[Any]]:
    """Lines of a stay in order of time, within the stay."""
    rows = []
    for at in sorted(events):
        since = (at - start).total_seconds() / 3600
        if 0 <= since <= hours:
            rows.append([since, *(events[at].get(channel, "") for channel in CHANNELS)])
    return rows


def _events(demo: Path) -> dict[str, dict[datetime, dict[str, str]]]:
    """Stay -> time -> channel -> value as text."""
    import pyarrow
    from pyarrow import compute, parquet

    channel_of = {item: channel for channel, items in ITEMS.items() for item in items}
    columns = ["icustay_id", "itemid", "charttime", "value", "valuenum"]
    table = parquet.read_table(demo / "CHARTEVENTS.parquet", columns=columns)
    wanted = compute.is_in(table["itemid"], value_set=pyarrow.array(list(channel_of), pyarrow.int32()))
    found: dict[str, dict[datetime, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for stay, item, at, value, measured in zip(*(c.to_pylist() for c in table.filter(wanted).columns), strict=True):
        channel = channel_of[item]
        if stay is None or value is None:
            continue
        if measured is not None and not channel.startswith("Glascow"):
            if item in FAHRENHEIT:
                measured = (measured - 32) * 5 / 9
            elif item in INCHES:
                measured *= 2.54
            elif channel == "Fraction inspired oxygen" and measured > 1:
                measured /= 100
            value = f"{measured:.4f}"
        found[str(stay)][at][channel] = value
    return found


def _table(demo: Path, name: str) -> list[dict[str, str]]:
    with gzip.open(demo / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def write(path: Path, header: list[str], rows: list[list[Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def demo_folder(given: Path | None = None) -> Path:
    """The folder of the open demo."""
    place = folder("mimic3_demo", given)
    if not (place / "CHARTEVENTS.parquet").is_file():
        raise DataError(f"{place} does not contain the MIMIC-III demo; set ALMONER_DATA, or give --data")
    return place


def main() -> None:
    """Read, train, and print the report for the data holder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the benchmark's data/phenotyping")
    parser.add_argument("--stays", type=Path, default=None, help="the benchmark's data/root/all_stays.csv")
    parser.add_argument("--phenotype", default="Pneumonia", help="prefix of the name of the phenotype")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="files made from the open demo")
    parser.add_argument("--data", type=Path, default=None, help="the folder of the data sets, for --quick")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        if not given.quick and given.folder is None:
            parser.error("give the folder of the benchmark's phenotyping files, or --quick")
        folder = make_from_demo(demo_folder(given.data), Path(made)) if given.quick else given.folder
        stays = folder / "all_stays.csv" if given.quick else given.stays
        data, test = read(folder / "train"), read(folder / "test")
        print(f"{len(data.y)} stays of {len(set(data.subjects))} people for training, {len(test.y)} for testing")
        _, report, _ = train(
            data,
            test,
            phenotype=given.phenotype,
            stays=stays,
            epsilon=given.epsilon,
            steps=given.steps,
            last=2 * given.steps,
            seed=given.seed,
        )
        print(report.table())


if __name__ == "__main__":
    main()

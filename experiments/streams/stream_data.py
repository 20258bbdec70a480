"""Four public data sets as streams: who came with which records in which period, and the people who are set aside.

Every feature of a record follows from public facts and from earlier data of the same person, and every row of features
has norm 1, or as the data set has it (diabetes130). Each person belongs to one part only: 80 % are learnt from, 10 %
are to tune on, and 10 % are judged.
"""

import csv
import gzip
import io
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from math import log1p
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "koskela_2023"))
from data_sets import folder
from groups import diabetes130

Table = dict[str, list[Any]]
Labelled = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Periods:
    """The records of each period, and people to tune on and to judge by. A target is a label and a weight."""

    parts: tuple[tuple[torch.Tensor, torch.Tensor, list[int]], ...]
    people: int
    tune: Labelled
    judge: Labelled


def rows(place: Path, name: str) -> list[dict[str, str]]:
    """The rows of a compressed CSV file."""
    return list(csv.DictReader(io.StringIO(gzip.decompress((place / f"{name}.csv.gz").read_bytes()).decode())))


def readmissions(given: Path | None, periods: int, people: int | None) -> Periods:
    """diabetes130: encounters in the order of their numbers, cut into periods; is the patient admitted again?"""
    data = diabetes130(given)
    raw = rows(folder("diabetes130", given), "diabetic_data")
    patients = np.unique([row["patient_nbr"] for row in raw], return_inverse=True)[1]
    again = np.array([row["readmitted"] != "NO" for row in raw])
    aside = np.random.default_rng(0).random(patients.max() + 1) < 0.2
    test = aside[patients]
    first = np.random.default_rng(1).integers(0, 2, patients.max() + 1)[patients[test]] == 0
    if not (np.array_equal(data.y > 0, again[~test]) and np.array_equal(data.y_test > 0, again[test])):
        raise SystemExit("diabetes130: the rows are not those that were expected")
    order = np.argsort(np.array([int(row["encounter_id"]) for row in raw])[~test], kind="stable")
    order = order if people is None else order[data.people[order] < people]
    x, x_test = _dense(data.x), _dense(data.x_test)
    cut = np.array_split(order, periods)
    alike = [np.ones(len(each)) for each in cut]
    parts = [
        (*_labelled(x[each], np.asarray(data.y)[each], weights), data.people[each].tolist())
        for each, weights in zip(cut, alike, strict=True)
    ]
    y, ones = np.asarray(data.y_test), np.ones(len(x_test))
    tune, judge = (_labelled(x_test[which], y[which], ones[which]) for which in (first, ~first))
    return Periods(tuple(parts), len(set(data.people[order].tolist())), tune, judge)


def films(place: Path) -> Table:
    """MovieLens: does a user give a film 4 stars or more? Months with ratings; a person is a user."""
    about = {row["movieId"]: row for row in rows(place, "movies")}
    genres = sorted({genre for row in about.values() for genre in row["genres"].split("|")})
    own: dict[str, list[float]] = defaultdict(list)
    found: Table = defaultdict(list)
    for row in sorted(rows(place, "ratings"), key=lambda row: int(row["timestamp"])):
        film, before = about[row["movieId"]], own[row["userId"]]
        title = film["title"].strip()
        year = int(title[-5:-1]) if title.endswith(")") and title[-5:-1].isdigit() else 1990
        mean = sum(before) / len(before) - 3.5 if before else 0.0
        decades = [float(start <= year < start + 10) for start in range(1960, 2020, 10)]
        found["x"].append([1.0, mean, not before, *decades, *(genre in film["genres"].split("|") for genre in genres)])
        found["y"].append(float(row["rating"]) >= 4)
        found["people"].append(row["userId"])
        found["period"].append(tuple(time.gmtime(int(row["timestamp"]))[:2]))
        before.append(float(row["rating"]))
    return found


def baskets(place: Path) -> Table:
    """Online Retail: does a customer spend 300 pounds or more in the next order? Weeks; a person is a customer."""
    orders: dict[tuple[str, str], list[Any]] = {}
    for row in rows(place, "online_retail"):
        if not row["CustomerID"] or row["InvoiceNo"].startswith("C"):
            continue
        order = orders.setdefault((row["CustomerID"], row["InvoiceNo"]), [row["InvoiceDate"], row["Country"], 0.0, 0])
        order[2] += int(row["Quantity"]) * float(row["UnitPrice"])
        order[3] += 1
    own: dict[str, list[Any]] = defaultdict(list)
    found: Table = defaultdict(list)
    for (customer, _), (written, country, spend, lines) in sorted(orders.items(), key=lambda each: each[1][0]):
        when, before = datetime.fromisoformat(written), own[customer]
        before.append((when, max(0.0, spend), lines))
        if len(before) == 1:
            continue
        last, past, past_lines = before[-2]
        usual = sum(log1p(each[1]) for each in before[:-1]) / (7 * (len(before) - 1)) - 0.8
        earlier = [log1p(past) / 7 - 0.8, usual, past >= 300, log1p(past_lines) / 5, min(1, (when - last).days / 60)]
        hours = [when.hour < 11, 11 <= when.hour < 14, when.hour >= 14]
        days = [when.weekday() == day for day in range(6)]
        found["x"].append([1.0, country == "United Kingdom", *earlier, *hours, *days])
        found["y"].append(spend >= 300)
        found["people"].append(customer)
        found["period"].append((when - datetime(2010, 12, 1)).days // 7)
    return found


def pressures(place: Path) -> Table:
    """eICU: is a patient's mean blood pressure in the next 6 hours below 80 mmHg? The first week of each stay."""
    stays = {row["patientunitstayid"]: row for row in rows(place, "patient")}
    read: dict[str, dict[int, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows(place, "vitalaperiodic"):
        names = ("noninvasivesystolic", "noninvasivediastolic", "noninvasivemean")
        if all(row[name] not in ("", "NA") for name in names):
            values = [min(250.0, max(0.0, float(row[name]))) / 100 for name in names]
            read[row["patientunitstayid"]][int(row["observationoffset"]) // 360].append(values)
    found: Table = defaultdict(list)
    for stay, by_period in read.items():
        about = stays[stay]
        age = float(about["age"]) / 100 if about["age"].isdigit() else 0.9
        for period in (each for each in sorted(by_period) if 1 <= each <= 28):
            last = by_period.get(period - 1, [])
            earlier = [each for number, values in by_period.items() if number < period for each in values]
            mean = (np.mean(last, axis=0) - (1.2, 0.65, 0.8)) * 3 if last else np.zeros(3)
            usual = (np.mean(earlier, axis=0)[2] - 0.8) * 3 if earlier else 0.0
            lowest = (min(each[2] for each in last) - 0.8) * 3 if last else 0.0
            found["x"].append([0.5, *mean, usual, lowest, not last, age - 0.6, (about["gender"] == "Female") / 2])
            found["y"].append(np.mean([each[2] for each in by_period[period]]) < 0.8)
            found["people"].append(about["uniquepid"])
            found["period"].append(period)
    return found


def periods_of(table: Table, people: int | None) -> Periods:
    """The records of each period in which there are any; those of a person in a period weigh 1 together."""
    x = np.array(table["x"], dtype=np.float64)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    y = np.array(table["y"], dtype=np.float64)
    who = np.unique(table["people"], return_inverse=True)[1]
    when = np.unique(np.array(table["period"]), axis=0, return_inverse=True)[1].reshape(-1)
    part = np.random.default_rng(0).permutation(np.arange(who.max() + 1) % 10)[who]
    learnt = (part > 1) & (who < (who.max() + 1 if people is None else people))
    here = [np.flatnonzero(learnt & (when == period)) for period in range(when.max() + 1)]
    parts = tuple((*_labelled(x[each], y[each], _shares(who[each])), who[each].tolist()) for each in here)
    tune, judge = (_labelled(x[part == each], y[part == each], _shares(who[part == each])) for each in (0, 1))
    return Periods(parts, len(set(who[learnt].tolist())), tune, judge)


def _shares(who: Any) -> Any:
    """One over the number of records of the same person."""
    _, places, counts = np.unique(who, return_inverse=True, return_counts=True)
    return 1 / counts[places]


def _labelled(x: Any, y: Any, weights: Any) -> Labelled:
    return _tensor(x), torch.stack([_tensor(y), _tensor(weights)], dim=1)


def _tensor(values: Any) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))


def _dense(values: Any) -> Any:
    return np.asarray(values.todense() if hasattr(values, "todense") else values)


TABLES: dict[str, Callable[[Path], Table]] = {
    "movielens_latest_small": films,
    "online_retail": baskets,
    "eicu_demo": pressures,
}


def stream(name: str, periods: int, given: Path | None, people: int | None = None) -> Periods:
    """A data set as a stream; diabetes130 is cut into so many periods, the others have those that they have."""
    if name == "diabetes130":
        return readmissions(given, periods, people)
    found = periods_of(TABLES[name](folder(name, given)), people)
    if len(found.parts) != periods:
        raise SystemExit(f"{name}: it has {len(found.parts)} periods, not {periods}")
    return found

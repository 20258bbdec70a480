"""Linear models with default settings, beside settings tuned for each table, and beside models without privacy.

    python experiments/utility/defaults.py            # everything on the page; resumes after a kill
    python experiments/utility/defaults.py --quick    # one small table, few steps; nothing is written
    python experiments/utility/defaults.py --rival    # where diffprivlib is installed: its linear regressions

The rule of the defaults was fitted on digits, MNIST, breast cancer and made tables, on none of these. Tuned: the best
of six settings by a fifth of the training people, with the noise scaled to the others, for each table and epsilon.
Then the test people judge both once, with three seeds, or ten on tables of fewer than 5,000 people, where one seed's
noise says little. Each run is a line of experiments/results/defaults.jsonl.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

sys.path += [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "koskela_2023")]
import pages
from data_sets import folder
from journal import record, recorded

PAGE, RESULTS = pages.DOCS / "defaults.md", pages.RESULTS / "defaults.jsonl"
DELTA, EPSILONS = 1e-5, (0.3, 1.0, 3.0)
SEEDS, SMALL, SEEDS_OF_SMALL = 3, 5000, 10
STUDENT = {SEEDS: 4.303, SEEDS_OF_SMALL: 2.262}  # 97.5 % quantiles for intervals of so many seeds
DEFAULT, TUNED, EXACT, RIVAL = "default", "tuned", "without privacy", "diffprivlib"
CHANCES = "log loss"
"""Of default classifiers: of the probabilities as they are told, and of those of the scores alone, in nats a record."""


@dataclass(frozen=True)
class Table:
    """People who train and people who judge; what is public about them."""

    kind: str
    x: Any
    y: Any
    x_test: Any
    y_test: Any
    people: Any = None
    bounds_X: Any = None
    bounds_y: Any = None

    @property
    def count(self) -> int:
        """The number of people who train."""
        return len(self.y) if self.people is None else int(self.people.max()) + 1

    def held_out(self) -> "Table":
        """Four fifths of the training people, judged by the others."""
        owner = np.arange(len(self.y)) if self.people is None else self.people
        first = (np.random.default_rng(1).random(self.count) < 0.8)[owner]
        people = None if self.people is None else np.unique(owner[first], return_inverse=True)[1]
        parts = (self.x[first], self.y[first], self.x[~first], self.y[~first])
        return replace(self, x=parts[0], y=parts[1], x_test=parts[2], y_test=parts[3], people=people)


def seeds_of(people: int) -> int:
    """The number of seeds for a table of so many people."""
    return SEEDS_OF_SMALL if people < SMALL else SEEDS


def split(kind: str, x: Any, y: Any, people: Any = None, **bounds: Any) -> Table:
    """A third of the people judge, drawn once."""
    people = np.arange(len(y)) if people is None else np.unique(people, return_inverse=True)[1]
    test = (np.random.default_rng(0).random(people.max() + 1) < 1 / 3)[people]
    owner = np.unique(people[~test], return_inverse=True)[1]
    each = None if len(np.unique(owner)) == len(owner) else owner
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y)
    return Table(kind, x[~test], y[~test], x[test], y[test], each, **bounds)


def frame(name: str, file: str, given: Path | None, columns: list[str]) -> Any:
    """Some columns of a file, as a frame of pandas."""
    import pandas

    return pandas.read_csv(folder(name, given) / file, usecols=columns)


def adult(given: Path | None) -> Table:
    """UCI Adult: more than 50,000 dollars a year? The library's schema, and its test file."""
    from almoner.training import demo_tables

    found = demo_tables.adult(folder("adult", given))
    return Table("class", *found.train, *found.test)


def diabetes130(given: Path | None) -> Table:
    """Is a patient with diabetes readmitted? Several encounters of a patient are one person's."""
    from groups import diabetes130 as load

    data = load(given)
    return Table("class", data.x, data.y, data.x_test, data.y_test, data.people)


RAND = {
    "coins": (0, 100), "income": (0, 30_000), "xage": (0, 70), "female": (0, 1), "black": (0, 1), "educdec": (0, 25),
    "num": (1, 14), "mhi": (0, 100), "disea": (0, 60), "child": (0, 1), "hlthg": (0, 1), "hlthf": (0, 1),
    "hlthp": (0, 1), "time": (0, 1),
}  # fmt: skip


def rand(kind: str, given: Path | None) -> Table:
    """RAND Health Insurance Experiment: visits to a doctor in a year. The years of a person are one person's."""
    rows = frame("rand_hie", "randhie.csv.gz", given, [*RAND, "mdvis", "zper"]).dropna()
    low, high = np.array(list(RAND.values()), dtype=np.float64).T
    y = rows["mdvis"].to_numpy()
    if kind == "class":
        return split(kind, rows[list(RAND)], (y > 0).astype(int), rows["zper"], bounds_X=(low, high))
    return split(kind, rows[list(RAND)], y, rows["zper"], bounds_X=(low, high), bounds_y=(0, 50))


GENRES = ("Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama", "Fantasy",
          "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War", "Western")  # fmt: skip


def movielens(given: Path | None) -> Table:
    """MovieLens: 4 stars or more, by genre and year of the film? All ratings of a user are one person's."""
    rows = frame("movielens_latest_small", "ratings.csv.gz", given, ["userId", "movieId", "rating"])
    rows = rows.merge(frame("movielens_latest_small", "movies.csv.gz", given, ["movieId", "title", "genres"]))
    year = rows["title"].str.extract(r"\((\d{4})\)")[0].astype(float).fillna(1990)
    features = {genre: rows["genres"].str.contains(genre).astype(float) for genre in GENRES} | {"year": year}
    bounds = (np.r_[np.zeros(len(GENRES)), 1900], np.r_[np.ones(len(GENRES)), 2020])
    return split("class", np.stack(list(features.values()), 1), rows["rating"] >= 4, rows["userId"], bounds_X=bounds)


def eicu(given: Path | None) -> Table:
    """A day or more in intensive care? By the scores of the first day; the stays of a patient are one person's."""
    columns = ["patientunitstayid", "apacheversion", "acutephysiologyscore", "apachescore", "actualiculos"]
    rows = frame("eicu_demo", "apachepatientresult.csv.gz", given, columns)
    rows = rows[rows["apacheversion"] == "IVa"]
    patients = frame("eicu_demo", "patient.csv.gz", given, ["patientunitstayid", "age", "gender", "uniquepid"])
    rows = rows.merge(patients)
    age = rows["age"].replace("> 89", 90).astype(float).fillna(60)
    x = np.stack([rows["acutephysiologyscore"], rows["apachescore"], age, rows["gender"] == "Female"], 1)
    bounds = ([0, 0, 0, 0], [200, 250, 90, 1])
    return split("class", x, rows["actualiculos"] >= 2, rows["uniquepid"], bounds_X=bounds)


def shop(given: Path | None) -> Table:
    """A shop: does a customer of the first nine months order in the last three?"""
    columns = ["CustomerID", "InvoiceNo", "InvoiceDate", "Quantity", "UnitPrice"]
    rows = frame("online_retail", "online_retail.csv.gz", given, columns).dropna()
    rows["spent"], late = rows["Quantity"] * rows["UnitPrice"], rows["InvoiceDate"] >= "2011-09-01"
    early = rows[~late].groupby("CustomerID")
    last = (np.datetime64("2011-09-01") - early["InvoiceDate"].max().astype("datetime64[s]")).dt.days
    x = np.stack([early["InvoiceNo"].nunique(), np.log1p(early["spent"].sum().clip(0)), early.size(), last], 1)
    y = early["spent"].sum().index.isin(rows[late]["CustomerID"].unique())
    return split("class", x, y, bounds_X=([0, 0, 0, 0], [20, 10, 200, 280]))


def adult_hours(given: Path | None) -> Table:
    """UCI Adult: hours a week, by the other columns of the library's schema."""
    from almoner.training import demo_tables, tables

    whole = tables.Schema.read(demo_tables.ADULT_SCHEMA)
    columns = {name: each for name, each in whole.columns.items() if "hours" not in name}
    crosses = [each for each in whole.crosses if not any("hours" in name for name in each.columns)]
    schema = whole.model_copy(update={"columns": columns, "crosses": crosses})
    x, x_test = (
        tables.encode(tables.read(folder("adult", given) / f"adult.{part}", schema, skip_rows=part == "test"), schema)
        for part in ("data", "test")
    )
    hours = [
        np.array(
            [int(line.split(",")[12]) for line in (folder("adult", given) / f"adult.{part}").open() if "," in line]
        )
        for part in ("data", "test")
    ]
    return Table("squared", x, hours[0], x_test, hours[1], bounds_y=(0, 100))


def stay(given: Path | None) -> Table:
    """diabetes130: days in hospital (1 to 14), by age, tests and medicines; a patient is one person."""
    columns = ["patient_nbr", "time_in_hospital", "age", "num_lab_procedures", "num_procedures", "num_medications",
               "number_inpatient", "number_emergency", "number_diagnoses"]  # fmt: skip
    rows = frame("diabetes130", "diabetic_data.csv.gz", given, columns)
    rows["age"] = rows["age"].str.extract(r"(\d+)")[0].astype(float)
    bounds = (np.zeros(7), [90, 100, 6, 60, 10, 10, 16])
    return split(
        "squared", rows[columns[2:]], rows["time_in_hospital"], rows["patient_nbr"], bounds_X=bounds, bounds_y=(1, 14)
    )


TABLES: dict[str, Callable[[Path | None], Table]] = {
    "Adult": adult, "diabetes130": diabetes130, "RAND: any visit": lambda given: rand("class", given),
    "MovieLens: 4 stars": movielens, "eICU: two days or more": eicu, "Online Retail: comes again": shop,
    "Adult: hours": adult_hours, "diabetes130: days": stay, "RAND: visits": lambda given: rand("poisson", given),
}  # fmt: skip


def bundled(name: str) -> Table:
    """A table of scikit-learn's, whose labels are easy to tell apart; bounds a tenth wider than what was observed."""
    from sklearn import datasets

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    wider = np.ptp(x, axis=0) / 10 + 1e-9
    return split("class", x, y, bounds_X=(x.min(axis=0) - wider, x.max(axis=0) + wider))


EASY = {name: partial(bundled, name) for name in ("digits", "wine", "iris", "breast_cancer")}
"""Where the log loss is looked at, too."""


def model_of(table: Table) -> tuple[Any, dict[str, Any]]:
    """The estimator of a table, and what is public about the table."""
    from almoner.training import LinearRegression, LogisticRegression, PoissonRegressor

    known: dict[str, Any] = {"n_people": table.count, "delta": DELTA, "bounds_X": table.bounds_X}
    if table.kind == "class":
        return LogisticRegression, known | {"classes": range(int(np.max(table.y)) + 1)}
    return (PoissonRegressor if table.kind == "poisson" else LinearRegression), known | {"bounds_y": table.bounds_y}


def grid(table: Table) -> Iterator[dict[str, Any]]:
    """Settings that are tried: six."""
    base = model_of(table)[0]()
    rates = {"class": (2.0, 8.0, 24.0), "squared": (0.25, 1.0, 3.0), "poisson": (1.0, 4.0, 12.0)}[table.kind]
    for times, rate in product((0.5, 1.5), rates):
        yield {"max_grad_norm": times * base._clip, "learning_rate": rate}


def score(table: Table, predicted: Any) -> float:
    """Accuracy in percent; of regressions 100 times the share of the squared error, or of the deviance, explained."""
    y = np.asarray(table.y_test, dtype=np.float64)
    if table.kind == "class":
        return round(100 * float(np.mean(predicted == table.y_test)), 3)
    mean = np.full(len(y), np.mean(table.y))
    if table.kind == "squared":
        return round(100 * float(1 - np.mean((y - predicted) ** 2) / np.mean((y - mean) ** 2)), 3)

    def deviance(means: Any) -> float:
        means = np.maximum(means, 1e-9)
        return float(np.mean(np.where(y > 0, y * np.log(np.maximum(y, 1e-9) / means), 0.0) - (y - means)))

    return round(100 * (1 - deviance(predicted) / deviance(mean)), 3)


def fitted(table: Table, epsilon: float, seed: int, scale: float = 1.0, **settings: Any) -> Any:
    """A model; scale: the people of the whole table over these, whose noise is that of the whole."""
    made, known = model_of(table)
    if scale != 1:
        from almoner.curves import gaussian

        mu = scale * float(gaussian.mu(epsilon=epsilon, delta=DELTA))
        epsilon = float(gaussian.epsilon(mu, delta=DELTA))
    return made(epsilon=epsilon, seed=seed, **known, **settings).fit(table.x, table.y, groups=table.people)


def run(table: Table, epsilon: float, seed: int, scale: float = 1.0, **settings: Any) -> float:
    """The score of a model that is trained once."""
    return score(table, fitted(table, epsilon, seed, scale, **settings).predict(table.x_test))


def log_loss(table: Table, chances: Any) -> float:
    """The mean log loss of probabilities (rows, classes), in nats."""
    own = chances[np.arange(len(chances)), np.asarray(table.y_test, dtype=np.int64)]
    return round(float(-np.mean(np.log(np.maximum(own, 1e-12)))), 5)


def log_losses(table: Table, epsilon: float, seed: int) -> list[float]:
    """Log losses of a default classifier: as it tells probabilities, and by its scores alone."""
    from almoner.training._linear.descent import probabilities

    model = fitted(table, epsilon, seed)
    return [
        log_loss(table, model.predict_proba(table.x_test)),
        log_loss(table, probabilities(model._scores(table.x_test))),
    ]


def exact(table: Table) -> Any:
    """scikit-learn's model without privacy, on the same features, and the features of those who judge."""
    from sklearn import linear_model

    x, x_test = table.x, table.x_test
    if table.bounds_X is not None:
        low, high = map(np.asarray, table.bounds_X)
        x, x_test = ((np.clip(each, low, high) - low) / (high - low) for each in (x, x_test))
    made = {
        "class": lambda: linear_model.LogisticRegression(C=10.0, max_iter=5000),
        "squared": lambda: linear_model.Ridge(1e-6),
        "poisson": lambda: linear_model.PoissonRegressor(alpha=1e-9, max_iter=5000),
    }[table.kind]()
    return made.fit(x, np.asarray(table.y)), x_test


def exact_log_losses(table: Table) -> list[float]:
    """Log losses without privacy: of scikit-learn's model, and of the shares of the labels among the training rows."""
    (model, x_test), shares = exact(table), np.bincount(np.asarray(table.y, dtype=np.int64)) / len(table.y)
    both = model.predict_proba(x_test), np.tile(shares, (len(table.y_test), 1))
    return [log_loss(table, chances) for chances in both]


def do_missing(path: Path, name: str, table: Table) -> None:
    """Do the runs on a table that are not recorded."""
    done = {(row["data"], row["epsilon"], row["stage"], row["seed"], str(row["settings"])) for row in recorded(path)}
    inner, about = table.held_out(), {"data": name, "kind": table.kind, "people": table.count}

    def keep(stage: str, epsilon: float | None, seed: int, settings: dict[str, Any], made: Callable[[], Any]) -> None:
        if (name, epsilon, stage, seed, str(settings)) not in done:
            row = {"epsilon": epsilon, "stage": stage, "seed": seed, "settings": settings, "score": made()}
            record(path, about | row)
            print(name, *row.values(), flush=True)

    if table.kind == "class":
        keep(CHANCES, None, 0, {}, lambda: exact_log_losses(table))
        for epsilon, seed in product(EPSILONS, range(seeds_of(table.count))):
            keep(CHANCES, epsilon, seed, {}, partial(log_losses, table, epsilon, seed))
    if name in EASY:
        return
    likeliest = max(float(np.mean(table.y_test)), 1 - float(np.mean(table.y_test)))
    keep("base rate", None, 0, {}, lambda: round(100 * likeliest, 3) if table.kind == "class" else 0.0)
    keep(EXACT, None, 0, {}, lambda: score(table, np.asarray((found := exact(table))[0].predict(found[1]))))
    for epsilon in EPSILONS:
        scale = table.count / inner.count
        for settings in grid(table):
            keep("tune", epsilon, 1000, settings, partial(run, inner, epsilon, 1000, scale, **settings))
        tried = [r for r in recorded(path) if (r["data"], r["epsilon"], r["stage"]) == (name, epsilon, "tune")]
        best = max(tried, key=lambda row: row["score"])["settings"]
        for seed in range(seeds_of(table.count)):
            keep(DEFAULT, epsilon, seed, {}, partial(run, table, epsilon, seed))
            keep(TUNED, epsilon, seed, best, partial(run, table, epsilon, seed, **best))


def rival(path: Path, given: Path | None) -> None:
    """diffprivlib's linear regression (functional mechanism, pure budgets) with the same bounds: a row is a person."""
    from diffprivlib.models import LinearRegression

    for name in ("Adult: hours", "diabetes130: days"):
        table = TABLES[name](given)
        x, x_test = (
            np.asarray(each.todense() if hasattr(each, "todense") else each) for each in (table.x, table.x_test)
        )
        bounds = (0.0, 1.0) if table.bounds_X is None else table.bounds_X
        for epsilon, seed in product(EPSILONS, range(SEEDS)):
            np.random.seed(seed)  # noqa: NPY002 - which that library takes
            model = LinearRegression(epsilon=epsilon, bounds_X=bounds, bounds_y=table.bounds_y).fit(x, table.y)
            found = score(table, np.clip(model.predict(x_test), *table.bounds_y))
            row = {"data": name, "kind": table.kind, "people": table.count, "epsilon": epsilon, "stage": RIVAL}
            record(path, row | {"seed": seed, "settings": {}, "score": found})


def table(runs: list[dict[str, Any]]) -> str:
    """The table of the page."""
    lines = [
        "| table | people | epsilon | default | tuned | default - tuned [95 %] | tuned settings | without privacy "
        "| base rate |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, epsilon in product(TABLES, EPSILONS):
        own = [row for row in runs if row["data"] == name]
        found = {
            stage: [
                r["score"]
                for r in sorted(own, key=lambda r: r["seed"])
                if (r["stage"], r["epsilon"]) == (stage, epsilon)
            ]
            for stage in (DEFAULT, TUNED)
        }
        if not own or not all(len(each) == seeds_of(own[0]["people"]) for each in found.values()):
            continue
        alone = {row["stage"]: row["score"] for row in own if row["epsilon"] is None}
        best = next(r["settings"] for r in own if (r["stage"], r["epsilon"]) == (TUNED, epsilon))
        apart = np.subtract(found[DEFAULT], found[TUNED])
        half = STUDENT[len(apart)] * apart.std(ddof=1) / np.sqrt(len(apart))
        rivals = [r["score"] for r in own if (r["stage"], r["epsilon"]) == (RIVAL, epsilon)]
        cells = [
            name, f"{own[0]['people']:,}", f"{epsilon:g}",
            *(f"{np.mean(each):.2f} ± {np.std(each, ddof=1):.2f}" for each in found.values()),
            f"{apart.mean():+.2f} [{apart.mean() - half:+.2f}, {apart.mean() + half:+.2f}]",
            "clip {max_grad_norm:g}, rate {learning_rate:g}".format(**best),
            f"{alone[EXACT]:.2f}" + (f" (diffprivlib: {np.mean(rivals):.2f})" if rivals else ""),
            f"{alone['base rate']:.2f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def chances_table(runs: list[dict[str, Any]]) -> str:
    """Log losses of default classifiers, as a table of the page."""
    lines = [
        "| table | epsilon | as told | by the scores alone | as told - scores [95 %] | without privacy "
        "| share of rows |",
        "|---|---|---|---|---|---|---|",
    ]
    own = [row for row in runs if row["stage"] == CHANCES]
    for name, epsilon in product([*TABLES, *EASY], EPSILONS):
        found = np.array([row["score"] for row in own if (row["data"], row["epsilon"]) == (name, epsilon)])
        if not len(found):
            continue
        (alone,) = (row["score"] for row in own if (row["data"], row["epsilon"]) == (name, None))
        apart = found[:, 0] - found[:, 1]
        half = STUDENT[len(apart)] * apart.std(ddof=1) / np.sqrt(len(apart))
        interval = f"{apart.mean():+.4f} [{apart.mean() - half:+.4f}, {apart.mean() + half:+.4f}]"
        told, scores = (f"{each:.4f}" for each in found.mean(axis=0))
        lines.append(f"| {name} | {epsilon:g} | {told} | {scores} | {interval} | {alone[0]:.4f} | {alone[1]:.4f} |")
    return "\n".join(lines)


def main() -> None:
    """Do what is missing, and write the page's tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[*TABLES, *EASY], choices=[*TABLES, *EASY])
    parser.add_argument("--data", type=Path, help="the folder of the data sets; else ALMONER_DATA")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where runs are recorded")
    parser.add_argument("--rival", action="store_true", help="runs of diffprivlib alone")
    parser.add_argument("--quick", action="store_true", help="a small table and ten steps; nothing is written")
    given = parser.parse_args()
    if given.quick:
        few = TABLES["Online Retail: comes again"](given.data)
        print(*(run(few, epsilon, 0, steps=10) for epsilon in EPSILONS))
        return
    if given.rival:
        rival(given.out, given.data)
    else:
        for name in given.only:
            do_missing(given.out, name, EASY[name]() if name in EASY else TABLES[name](given.data))
    pages.insert(PAGE, table(recorded(given.out)) + "\n")
    pages.insert(PAGE, chances_table(recorded(given.out)) + "\n", "probabilities")


if __name__ == "__main__":
    main()

"""Statistics about people's health with an account for each person: three tables, and the answers beside the truth.

    python experiments/queries/health.py [--epsilon 2]
    python experiments/queries/health.py --quick          # the smallest of the tables

The tables are diabetes130 (101,766 stays of 71,518 patients), the RAND Health Insurance Experiment (20,190 years of
5,912 persons), and the eICU demo (2,520 stays of 1,841 patients). Every question costs the same share of the budget.
Prints each answer with its interval and the true value, which would be private for other data.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from almoner import filters
from almoner.queries import Count, Histogram, Mean, People, Quantiles, Session, Table, Variance

AGES = [f"[{low}-{low + 10})" for low in range(0, 100, 10)]
sys.path.append(str(Path(__file__).parents[1]))
from data_sets import folder  # noqa: E402

TABLES = {
    "diabetes130/diabetic_data.csv.gz": (
        "patient_nbr",
        "SELECT *, readmitted = '<30' AS soon FROM data",
        {
            "stays": Count(clip=3, rho=1.0),
            "patients by age": People(by={"age": AGES}, clip=1.5, rho=1.0),
            "stays with a return within 30 days": Count(where="soon", clip=2, rho=1.0),
            "days in hospital, mean by sex": Mean(
                "time_in_hospital", 1, 14, per="row", by={"gender": ["Female", "Male"]}, clip=2, rho=1.0
            ),
            "medications, quartiles": Quantiles(
                "num_medications", tuple(range(0, 41, 2)), (0.25, 0.5, 0.75), per="row", clip=2, rho=1.0
            ),
        },
    ),
    "rand_hie/randhie.csv.gz": (
        "zper",
        "SELECT * FROM data",
        {
            "years": Count(clip=5, rho=1.0),
            "visits a year, mean by plan": Mean(
                "mdvis",
                0,
                20,
                per="row",
                by={"plan": [1, 2, 3, 4, 6, 7, 9, 10, 11, 13, 14, 15, 16, 17, 18]},
                clip=3,
                rho=1.0,
            ),
            "visits a year, variance": Variance("mdvis", 0, 20, per="row", clip=3, rho=1.0),
            "spending, median": Quantiles(
                "meddol", (0, 10, 25, 50, 75, 100, 150, 200, 400, 800), per="row", clip=3, rho=1.0
            ),
        },
    ),
    "eicu_demo/patient.csv.gz": (
        "uniquepid",
        "SELECT *, unitdischargestatus = 'Expired' AS died FROM data",
        {
            "stays by sex": Count(by={"gender": ["Female", "Male"]}, clip=2, rho=1.0),
            "died in the unit": Count(where="died", clip=1, rho=1.0),
            "hours in the unit": Histogram("unitdischargeoffset", (0, 720, 1440, 2880, 5760, 20000), clip=2, rho=1.0),
        },
    ),
}


def truth(session: Session, question) -> list:
    """The same answer with almost no noise or clipping, from accounts that are deleted afterwards."""
    exact = replace(question, rho=None, sigma=1.0, clip=50.0, per_group=None)
    return session.analyst("truth").ask(exact, key=f"truth of {question!r}"[:200]).values


def main() -> None:
    """Ask and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--quick", action="store_true", help="the smallest of the tables")
    given = parser.parse_args()
    for name, (person, view, questions) in list(TABLES.items())[-1:] if given.quick else TABLES.items():
        budget = filters.Zcdp(epsilon=given.epsilon, delta=1e-6)
        print(f"\n{name}: epsilon = {given.epsilon:g} at delta = 1e-6, {len(questions)} questions")
        file = folder(str(Path(name).parent)) / Path(name).name
        with tempfile.TemporaryDirectory() as scratch:
            options, rows = {"person": person}, Table(file, view=view)
            with (
                Session.open(rows, budget=budget, ledger=Path(scratch) / "ledger", **options, create=True) as session,
                Session.open(
                    rows, budget=filters.Zcdp(rho=9000.0), ledger=Path(scratch) / "truth", **options, create=True
                ) as other,
            ):
                analyst = session.analyst("example")
                for key, question in questions.items():
                    asked = replace(question, rho=budget.rho / len(questions))
                    found = analyst.ask(asked, key=key, anyway=True)
                    print(f"  {key} (clip {asked.clip:g}, noise {asked.noise:.3g} rows)")
                    for group, value, right in zip(found.groups, found.values, truth(other, asked), strict=True):
                        print(f"    {', '.join(map(str, group)):14} {shown(value):40} {shown(right)}")


def shown(value) -> str:
    """A value or a list of them."""
    return " ".join("-" if v is None else f"{v:.6g}" for v in (value if isinstance(value, list) else [value]))


if __name__ == "__main__":
    main()

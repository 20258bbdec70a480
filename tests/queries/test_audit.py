"""A privacy audit of whole sessions on neighbouring tables, and planted errors that it must find.

One person has three rows in one table and none in the other; the adversary knows everything else, chooses each
question by the answer before, and asks six questions of which the budget allows two in full. Along any fixed direction
of the answers the two worlds must be no further apart than sqrt(2 rho) standard deviations of the promised noise, and
the noise must be what was promised. A run without errors fails with probability below 1e-5.
"""

import math
import statistics
from dataclasses import replace

import pyarrow as pa
import pytest
from scipy.stats import chi2

from almoner import filters
from almoner.queries import Count, Session, Sum
from almoner.queries._ask import ask as release
from almoner.queries._questions import question
from almoner.queries._sql import compiler
from almoner.queries._tables import engine as duckdb_engine

pytestmark = pytest.mark.slow


ROUNDS, PAID = 6, 2
RHO = 18.0
SIGMA = 1 / math.sqrt(2 * RHO / PAID)
BUDGETS = {
    filters.Zcdp: lambda: filters.Zcdp(rho=RHO),
    filters.Gaussian: lambda: filters.Gaussian(mu=math.sqrt(2 * RHO)),
}
OTHERS = {"who": ["b", "b", "c", "d"], "n": [8.0] * 4, "row": [1, 2, 3, 4]}
TARGET = {"who": ["t"] * 3, "n": [8.0] * 3, "row": [5, 6, 7]}
ASKED = (
    (Count(clip=1, sigma=SIGMA), 3.0),
    (Sum("n", 0, 8, clip=1, sigma=SIGMA), 24.0),
)


def play(path, there, budget=filters.Zcdp):
    """Every round's answer less what all others can contribute at most, in standard deviations of the noise."""
    rows = {name: OTHERS[name] + (TARGET[name] if there else []) for name in OTHERS}
    path.unlink(missing_ok=True)
    told, choice = [], 0
    with Session.open(pa.table(rows), person="who", budget=BUDGETS[budget](), ledger=path, create=True) as held:
        analyst = held.analyst("adversary")
        for number in range(ROUNDS):
            asked, others = ASKED[choice]
            unit = 8.0 if choice else 1.0
            seen = (analyst.ask(asked, key=str(number), anyway=True).value - others * (number < PAID)) / (SIGMA * unit)
            told.append(seen)
            choice = int(seen > 0)
    return told


def audit(path, times, budget=filters.Zcdp):
    """(The largest distance less five standard errors, the estimated share of the noise's variance.)"""
    worlds = [[play(path, there, budget) for _ in range(times)] for there in (True, False)]
    distances = []
    for rounds in (PAID, ROUNDS):
        with_, without = (statistics.fmean(sum(told[:rounds]) for told in world) for world in worlds)
        distances.append(abs(with_ - without) / math.sqrt(rounds) - 5 * math.sqrt(2 / times))
    spreads = [statistics.variance(column) for world in worlds for column in zip(*world, strict=True)]
    return max(distances), statistics.fmean(spreads)


def broken(path, times):
    """Whether the audit shows that a promise is not kept."""
    distance, share = audit(path, times)
    freedom = 2 * ROUNDS * (times - 1)
    return distance > math.sqrt(2 * RHO) or share < chi2.ppf(1e-6, freedom) / freedom


@pytest.mark.parametrize("budget", BUDGETS)
def test_sessions_keep_their_promise(tmp_path, budget):
    """Twenty adaptive sessions in each world keep it, and the adversary gets what the budget allows, not nothing."""
    distance, share = audit(tmp_path / "l", 20, budget)
    assert 0.5 * math.sqrt(2 * RHO) < distance <= math.sqrt(2 * RHO)
    assert share > 0.5


def no_clipping(monkeypatch):
    monkeypatch.setattr(compiler, "_shrinking", lambda *_: "1::DOUBLE")


def rows_as_people(monkeypatch):
    right = duckdb_engine.duckdb_dialect
    row = {"BIGINT": 'CAST(d."row" AS BIGINT)', "VARCHAR": 'CAST(d."row" AS VARCHAR)'}
    monkeypatch.setattr(duckdb_engine, "duckdb_dialect", lambda columns: replace(right(columns), person=row))


def a_ninth_charged(monkeypatch):
    right, price = compiler.units_per_step, question.price_of
    monkeypatch.setattr(compiler, "units_per_step", lambda noise, **pure: right(noise, **pure) / 9)
    monkeypatch.setattr(question, "price_of", lambda clip_steps, noise, **pure: price(clip_steps, noise, **pure) // 9)
    cheaper = tuple((replace(asked), others) for asked, others in ASKED)  # priced as they are made
    monkeypatch.setitem(globals(), "ASKED", cheaper)


def a_third_of_the_noise(monkeypatch):
    right = release.noisy
    smaller = lambda mechanism: type(mechanism)(mechanism.sigma / 3, mechanism.sensitivity)  # noqa: E731
    monkeypatch.setattr(release, "noisy", lambda sums, mechanism: right(sums, smaller(mechanism)))


@pytest.mark.parametrize("plant", [no_clipping, rows_as_people, a_ninth_charged, a_third_of_the_noise])
def test_planted_errors_are_found(tmp_path, monkeypatch, plant):
    """Each single error makes the audit fail within eight sessions in each world."""
    plant(monkeypatch)
    assert broken(tmp_path / "l", 8)

"""Values that are planted where they break a rule: no message about a body, a plan or a policy quotes one."""

import copy
import datetime
import json
import math
import os
import random
import tomllib

import pytest

from almoner.errors import AlmonerError
from almoner.queries.plans import ASKS, Plan, described
from almoner.service import _bodies
from almoner.service._bodies import Refused
from almoner.service.policies import Policy
from plan_files import PLAN
from services import POLICY

SEED = 20261125
QUICK, ALL = 600, int(os.environ.get("ALMONER_PLANTED", "10000"))
MARKS = ("hunter2", "4815162342")
"""In every planted value, and in nothing else."""
TEXT, WHOLE, REAL = "hunter2", 4815162342, 4815162342.25

BODIES = [
    {"ask": "count", "where": "a = 'x' or b > 3", "by": {"c": ["x", "y"], "d": [[0, 2]]}, "clip": 2, "rho": 1},
    {"ask": "people", "sigma": 20, "each_person": {"n": "count()", "m": "max(a)"}, "pace": 3},
    {"ask": "sum", "column": "h", "low": 0, "high": 24, "clip": 5, "error": "2% of 5000", "level": 0.9},
    {"ask": "mean", "column": "h", "low": 0, "high": 24, "sigma": 20, "per": "person"},
    {"ask": "variance", "column": "h", "low": 0, "high": 24, "sigma": 20},
    {"ask": "ratio", "numerator": "a", "numerator_bounds": [0, 3], "clip": 2, "sigma": 20},
    {"ask": "covariance", "columns": {"a": [0, 1], "b": [0, 2]}, "clip": 2, "sigma": 20},
    {"ask": "regression", "target": "a", "columns": {"a": [0, 1], "b": [0, 2]}, "clip": 2, "sigma": 20},
    {"ask": "histogram", "column": "h", "edges": [0, 1, 5], "clip": 2, "sigma": 20},
    {"ask": "quantiles", "column": "h", "edges": [0, 1, 5], "levels": [0.5], "sigma": 20},
    {"ask": "top", "k": 2, "column": "c", "among": ["x", "y", "z"], "clip": 1, "sigma": 20},
    {"ask": "distinct", "column": "c", "most": 4, "sigma": 20},
    {"ask": "keys", "column": "c", "delta": 1e-9, "most": 2, "sigma": 20},
    {"ask": "several", "aggregates": {"n": "count", "m": {"ask": "mean", "column": "h", "low": 0, "high": 24}},
     "each": {"c": {"h": "sum(h)"}}, "clip": 2, "sigma": 20},
    {"ask": "sql", "sql": "SELECT c, count(*), avg(h) FROM data WHERE c IN ('x', 'y') AND h > 2 GROUP BY c",
     "bounds": {"h": [0, 24]}, "clip": 2, "sigma": 20},
]  # fmt: skip
TABLES = """
[periods]
column = "day"
every = "month"
first = 2026-01-01
last = 2027-01-01
[public.places]
data = "places.csv"
key = "code"
on = "place"
"""
TEMPLATE = """
[[questions]]
every = "day"
from = 2026-01-01
to = 2026-01-03
for = { place = ["x", "y"], clip = [2, 3.5] }
key = "{day}: {place}, clip {clip}"
ask = "count"
where = "place = '{place}' and day < '{until}'"
clip = "{clip}"
sigma = 200
"""
REST = """
[sharing]
analysts = ["ann", "bob"]
[watch]
people = 5
epsilon = 0.1
[usual]
ask = "people"
rho = 0.01
"""


def planted(draw):
    """A value that holds a marker, or one that no file may hold."""
    some = [TEXT, f"it's {TEXT} $", f"{TEXT}(x) = '", f"sha256:{TEXT}", f"postgresql://u:{TEXT}@h/db", WHOLE, -WHOLE]
    some += [REAL, [TEXT], [WHOLE, TEXT], {"a": TEXT}, {"ask": TEXT}, [[TEXT, WHOLE]], [TEXT, TEXT], math.nan, math.inf]
    return draw.choice([*some, True, "", [], {}, 0, -1, 10**400, datetime.date(2026, 1, 1), TEXT * 3000])


def places(value, path=()):
    """The ways to everything in a value."""
    listed = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in listed:
        yield (*path, name)
        yield from places(each, (*path, name))


def changed(draw, values):
    """A copy in which one to three values are others, are gone, or stand beside it under names that are not known."""
    values = copy.deepcopy(values)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        *way, name = draw.choice(list(places(values)) or [("ask",)])
        inside = values
        for step in way:
            inside = inside[step]
        if draw.random() < 0.1:
            del inside[name]
        elif draw.random() < 0.1 and isinstance(inside, dict):
            inside["other"] = planted(draw)
        else:
            inside[name] = planted(draw)
    return values


def toml(value):
    """A value as TOML has it, in one line."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(name)} = {toml(each)}' for name, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return (
        value.isoformat() if isinstance(value, datetime.date) else json.dumps(value).lower().replace("infinity", "inf")
    )


def file(draw, values):
    """A file, now and then with a mistake of spelling."""
    text = "\n".join(f"{json.dumps(name)} = {toml(each)}" for name, each in values.items())
    return text if draw.random() < 0.95 else text[: draw.randrange(len(text))]


def body(draw, folder):
    text = json.dumps(changed(draw, draw.choice(BODIES)), default=str)
    _bodies.asked(_bodies.parsed((text if draw.random() < 0.95 else text[: draw.randrange(len(text))]).encode()))


def plan(draw, folder):
    top, first, *others = PLAN.split("[[questions]]")
    values = tomllib.loads("[[questions]]".join([top + TABLES, first, *others]) + TEMPLATE)
    (folder / "plan.toml").write_text(file(draw, changed(draw, values)))
    read = Plan.read(folder / "plan.toml", today=datetime.date(2026, 2, 1))
    _ = read.budget, read.periods


def policy(draw, folder):
    (folder / "policy.toml").write_text(file(draw, changed(draw, tomllib.loads(POLICY + REST))))
    Policy.read(folder / "policy.toml")


def refusals(number, folder):
    """The messages of as many bodies, plans and policies, each of which is read or refused."""
    draw = random.Random(SEED)
    for _ in range(number):
        try:
            draw.choice((body, plan, policy))(draw, folder)
        except Refused as refused:
            yield refused.text
        except AlmonerError as refused:
            yield str(refused)


@pytest.mark.parametrize("number", [QUICK, pytest.param(ALL, marks=pytest.mark.slow)])
def test_no_message_quotes_a_value(tmp_path, number):
    """Each says the place and the rule; nothing else than a refusal is raised."""
    told = list(refusals(number, tmp_path))
    assert len(told) > number / 2
    assert not [text for text in told if any(mark in text for mark in MARKS)]
    assert all(0 < len(text) < 1000 for text in told)


@pytest.mark.parametrize("values", BODIES, ids=ASKS)
def test_the_values_that_are_changed_are_right_ones(values):
    """Each body is a question, which is described by the values that it was read from."""
    asked = _bodies.asked(_bodies.parsed(json.dumps(values).encode()))
    assert described(asked)["ask"] == values["ask"]

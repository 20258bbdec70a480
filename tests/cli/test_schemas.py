"""`almoner schema plan` and its like: JSON Schemas of files, judged by another validator."""

import datetime
import json
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import almoner
from almoner.cli import app
from almoner.mechanisms import Gaussian, Renyi, Repeated, to_fields

jsonschema_rs = pytest.importorskip("jsonschema_rs", reason="jsonschema-rs comes with schemathesis")

ROOT, PACKAGE = Path(__file__).parents[2], Path(almoner.__file__).parent
MECHANISMS = [to_fields(each) for each in (Gaussian(1.0, 2), Repeated(Gaussian(1.0), 3), Renyi((2.0, 3.0), (0.1, 0.2)))]


def schema_of(name):
    run = CliRunner().invoke(app, ["schema", name])
    assert run.exit_code == 0, run.output
    return json.loads(run.stdout)


def shown(page, place):
    """An example of a page, by its place."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return as_json(tomllib.loads(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[place]))


def as_json(values):
    """Values of TOML as JSON has them: dates are texts."""
    return json.loads(json.dumps(values, default=datetime.date.isoformat))


RIGHT = [
    ("plan", shown("queries/plans.md", 0)),
    ("plan", as_json(tomllib.loads((PACKAGE / "cli" / "templates" / "questions.toml").read_text(encoding="utf-8")))),
    ("policy", shown("service.md", 0)),
    ("question", shown("service.md", 0).get("usual", {"ask": "people", "rho": 0.01})),
    ("schema", as_json(tomllib.loads((PACKAGE / "training" / "adult.toml").read_text(encoding="utf-8")))),
    ("schema", shown("training/schema.md", 0)),
    ("train", {"steps": 100, "learning_rate": 4, "purpose": "research"}),
    ("tune", {"learning_rate": [1, 4.5]}),
    ("run", {"mechanisms": [{"kind": "Gaussian", "sigma": "?", "count": 9}, {"file": "model.json", "name": "model"}]}),
    ("run", {"mechanisms": MECHANISMS}),
    *(("mechanism", each) for each in MECHANISMS),
]


@pytest.mark.parametrize(("name", "values"), RIGHT)
def test_examples_follow_their_schema(name, values):
    """What the pages and the package show is right by the JSON Schema; with a line that is not known it is wrong."""
    described = schema_of(name)
    jsonschema_rs.meta.validate(described)
    judge = jsonschema_rs.validator_for(described)
    assert not [error.message for error in judge.iter_errors(values)]
    assert not judge.is_valid({**values, "misspelled": 1})


def test_questions_of_a_plan_take_the_fields_of_their_kind():
    """The schema refuses another kind's field, a text for a number, and a question without a key."""
    plan, judge = shown("queries/plans.md", 0), jsonschema_rs.validator_for(schema_of("plan"))
    (asked,) = plan["questions"]
    for wrong in ({**asked, "k": 3}, {**asked, "low": "much"}, {n: v for n, v in asked.items() if n != "key"}):
        assert not judge.is_valid({**plan, "questions": [wrong]})
    assert judge.is_valid({**plan, "questions": [{**asked, "every": "day", "from": "2026-01-01", "low": "{low}"}]})


def test_a_card_follows_its_schema():
    """The schema has the fields of a card, and knows which may be left out."""
    described = schema_of("card")
    jsonschema_rs.meta.validate(described)
    assert {"epsilon", "delta", "released"} <= set(described["required"])
    assert not {"why", "guess"} & set(described["required"])


def test_data_need_a_target():
    """Without one of the words, the column to predict must be named."""
    run = CliRunner().invoke(app, ["schema", "people.csv"])
    assert "--target is missing" in run.output

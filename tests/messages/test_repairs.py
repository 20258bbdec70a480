"""Mistakes of beginners, each repaired by its message alone: in Python, SQL, TOML, on the command line, over HTTP.

A case is what a beginner wrote, with the wrong part between « and »; an empty pair stands where a part is missing.
The rule that repairs is fixed: what stands between the last two backticks of the message takes the place of the wrong
part, and nothing else changes. Names in comments are the projects where people made such a mistake.
"""

import json
import re
import shlex
import shutil
import tomllib

import pytest
from typer.testing import CliRunner

from almoner.cli import app
from services import service, service_folder

PYTHON = [
    "filters.Gaussian(epsilon=1.0, «delta=1.5»)",  # dp-wizard
    "filters.Zcdp(«epsilon=0.0», delta=1e-5)",  # Safe-Synthesizer
    "filters.Zcdp(«epsilon='1'», delta=1e-5)",
    "filters.Gaussian(«epsilon=1.0»)",  # tensorflow/privacy
    "mechanisms.Gaussian(«sigma=0»)",
    "mechanisms.SampledGaussian(sigma=1.0, «sample_rate=50»)",  # opacus
    "calibrate.in_advance(epsilon=1.0, delta=1e-6, «steps=0»)",  # FL-bench
    "filters.Basic(epsilon=1.0).charge(«0.1»)",  # opendp
    "«filters.Gaussian»(epsilon=1.0, delta=1e-5).charge(mechanisms.Pure(0.1))",
    "«filters.Zcdp»(epsilon=5.0, delta=1e-5).charge(mechanisms.SampledGaussian(sigma=1.0, sample_rate=0.01))",
    "individual.Filter(600, «1.0»)",
    "«almoner.Session»",
    "ask(Count(rho=0.01, «»))",  # smartnoise-sdk
    "ask(Mean('price', rho=0.01, «»))",  # smartnoise-sdk, diffprivlib
    "ask(Mean('price', low=0, high=10, «»))",
    'ask(People(rho=0.01, where="ward = «north»"))',
    'ask(People(rho=0.01, where="day > «2026-01-01»"))',
    "ask(People(rho=0.01, by={'«wards»': ['north']}))",
    "ask(People(rho=0.01, «by='ward'»))",
    "Session.open(«zoned», person='who', budget=filters.Zcdp(rho=1.0), ledger='zoned.ledger', create=True)"
    ".analyst('ann').ask(People(rho=0.01, where=\"ts > '2026-01-02'\"), key='k')",  # polars
]
SQL = [
    "SELECT count(DISTINCT who) FROM «dta»",
    "SELECT count(DISTINCT who) FROM data WHERE «wrad» = 'north'",
    'SELECT count(DISTINCT who) FROM data WHERE ward = «"north"»',
    "«SELEC» count(DISTINCT who) FROM data",
    "SELECT «*» FROM data",
    "SELECT «count(DISTINCT ward)» FROM data",
]
TOML = [  # the command, the file, and what it reads
    ("train", "steps = 3\n«leraning_rate» = 0.5\n"),
    ("train", "«steps = 2.5»\n"),
    ("train", 'steps = 3\n«pace = "even"»\n'),
    ("query", 'data = "visits.csv"\nperson = "«patent»"\n'),
    ("query", 'person = "patient"\ndata = "visits.csv"\n«delta = 2.0»\n'),
    ("query", '«dta» = "visits.csv"\nperson = "patient"\n'),
    ("run", '[[mechanisms]]\nkind = "«Gausian»"\nsigma = 3.0\n'),
    ("run", '[[mechanisms]]\nkind = "Gaussian"\n«sigma = -3.0»\n'),
]
LINES = [
    "epsilon «--sigma» 1.1 --sample-rate 0.01 --steps 10",  # tensorflow/privacy
    "epsilon --noise-multiplier 1.1 «--sample-rate 50» --steps 10",  # opacus
    "epsilon --noise-multiplier 1.1 --dataset-size 100 «--batch-size 200» --steps 10",  # opacus
    "epsilon --noise-multiplier 1.1 --sample-rate 0.01 «»",
    "epsilon --noise-multiplier 1.1 «--steps 10 --epochs 3»",  # FL-bench
    "epsilon --noise-multiplier 1.1 --steps 10 «--delta 2»",
    "«calibrat» --epsilon 1 --steps 10",
    "calibrate «» --steps 10",
    "compare «--mechanism gausian» --noise-multiplier 20 --steps 10",
    "train «peple.csv» --target returns --schema schema.toml --settings settings.toml --out model",
]
HTTP = [
    {"ask": "«cuont»", "clip": 5, "sigma": 60},
    {"ask": "count", "clip": 5, "«sgima»": 60},
    {"ask": "count", "clip": 5, "sigma": "«-60»"},
    {"ask": "mean", "column": "hours", "rho": 0.01, "by": {"«contry»": ["FR", "ES"]}},
    {"ask": "people", "rho": 0.01, "where": "country = «FR»"},
    {"ask": "count", "sigma": 60, "«»": 0},
]


def test_fifty_mistakes_are_planted():
    """All of them are repaired: each is a test of its own below."""
    assert [*map(len, (PYTHON, SQL, TOML, LINES, HTTP))] == [20, 6, 8, 10, 6]


def repaired(text, message):
    """The mistake with what the message says in the place of the wrong part."""
    lines = re.findall("`([^`]+)`", message)
    assert lines, f"no line to write in: {message}"
    return re.sub("«.*»", lambda _: lines[-1], text, flags=re.S)


def wrong(text):
    return text.replace("«", "").replace("»", "")


def refusal(call, text):
    """The words on a mistake, which must be refused."""
    try:
        call(wrong(text))
    except Exception as error:
        return str(error)
    pytest.fail(f"not refused: {text}")
    return None


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """A function that runs a line of Python, with a session over a table of visits."""
    import pandas as pd

    import almoner
    from almoner import filters, individual, mechanisms, queries
    from almoner.accounting import calibrate

    folder = tmp_path_factory.mktemp("python")
    days = pd.to_datetime(["2026-01-01", "2026-01-02"] * 100)
    rows = {"who": [f"p{row % 50}" for row in range(200)], "ward": ["north", "south"] * 100, "day": days.date}
    data = pd.DataFrame({**rows, "price": [float(row % 10) for row in range(200)]})
    zoned = data.assign(ts=days.tz_localize("UTC"))
    keys = iter(range(1000))
    with queries.Session.open(
        data, person="who", budget=filters.Zcdp(rho=1.0), ledger=folder / "people.ledger", create=True
    ) as session:
        ann = session.analyst("ann")
        names = {name: getattr(queries, name) for name in queries.__all__}
        names |= {"almoner": almoner, "filters": filters, "individual": individual, "mechanisms": mechanisms}
        names |= {"calibrate": calibrate, "data": zoned, "zoned": zoned, "ann": ann}
        names["ask"] = lambda question: ann.ask(question, key=f"k{next(keys)}")
        names["sql"] = lambda text: ann.sql(text, key=f"k{next(keys)}", rho=0.01, clip=1)

        def run(text):
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                eval(text, dict(names))

        yield run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the files of `almoner init`, and a training that takes moments."""
    folder = tmp_path_factory.mktemp("files")
    for words in (["init", "train"], ["init", "query"]):
        assert CliRunner().invoke(app, [*words, str(folder), "--example"]).exit_code == 0
    (folder / "settings.toml").write_text("steps = 3\n", encoding="utf-8")
    return folder


def command(words, folder):
    """Run a command in a folder; ValueError with its words where it fails."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        shutil.rmtree(folder / "model", ignore_errors=True)
        result = CliRunner().invoke(app, words)
    if result.exit_code:
        assert result.exit_code == 2, result.output
        assert result.stderr.strip().startswith("Error: "), result.stderr
        raise ValueError(result.stderr)


def with_file(kind, text, folder):
    """Run the command that reads such a file."""
    file = folder / "file.toml"
    if kind == "query":
        plan = (folder / "questions.toml").read_text(encoding="utf-8")
        whole = tomllib.loads(text)
        for name in whole.keys() - {"dta"}:
            plan = re.sub(rf"(?m)^{name} = .*$", lambda _, name=name: f"{name} = {json.dumps(whole[name])}", plan)
        text = plan.replace("data =", "dta =") if "dta" in whole else plan
    file.write_text(text, encoding="utf-8")
    table = "train people.csv --target returns --schema schema.toml --out model --settings file.toml"
    command(shlex.split({"train": table, "query": "query quote file.toml", "run": "epsilon file.toml"}[kind]), folder)


def check(call, text):
    """True if the mistake is refused, and runs once it is repaired by the words of the refusal."""
    message = refusal(call, text)
    call(repaired(text, message))
    return True


@pytest.mark.parametrize("text", PYTHON)
def test_python_is_repaired_by_the_message(python, text):
    """Wrong numbers, names, mechanisms and questions."""
    check(python, text)


@pytest.mark.parametrize("text", SQL)
def test_sql_is_repaired_by_the_message(python, text):
    """Wrong tables, columns, quotes and aggregates."""
    check(lambda sql: python(f"sql({sql!r})"), text)


@pytest.mark.parametrize(("kind", "text"), TOML)
def test_files_are_repaired_by_the_message(folder, kind, text):
    """Settings of a training, files of questions, and lists of mechanisms."""
    check(lambda whole: with_file(kind, whole, folder), text)


@pytest.mark.parametrize("line", LINES)
def test_command_lines_are_repaired_by_the_message(folder, line):
    """Options of other programs, numbers out of range, missing options, names with a letter missing."""
    check(lambda words: command(shlex.split(words), folder), line)


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    with service(service_folder(tmp_path_factory.mktemp("service"))) as running:
        yield running.ann


@pytest.mark.parametrize("asked", HTTP, ids=json.dumps)
def test_requests_are_repaired_by_the_message(door, asked):
    """Questions in JSON: `name=value` in a message is a field and its value."""
    body = json.dumps(asked, ensure_ascii=False)

    def post(text):
        response = door.ask(f"k{len(door.seen)}", {name: each for name, each in json.loads(text).items() if name})
        if response.status_code != 201:
            raise ValueError(response.json()["detail"])

    message = refusal(post, re.sub('"«(-?[0-9]+)»"', r"«\1»", body))
    (*_, line) = re.findall("`([^`]+)`", message)
    name, _, value = line.partition("=")
    if value:
        post(
            json.dumps({**{key: each for key, each in json.loads(wrong(body)).items() if key}, name: json.loads(value)})
        )
    else:
        post(repaired(body, message))

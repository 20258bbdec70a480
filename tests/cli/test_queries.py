"""The command line of queries and ledgers, from a file of questions to one person's statement."""

import json
import os
import subprocess
import sys

import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from almoner.cli import app
from plan_files import PLAN, plan_folder

MORE = """
[[questions]]
key = "mean"
ask = "mean"
column = "n"
low = 0
high = 8
rho = 0.001
"""


@pytest.fixture
def folder(tmp_path):
    return plan_folder(tmp_path)


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == code, result.output
    return result.output


def first_asked(plan, *options):
    """The answers of a file whose ledger is made first."""
    assert run("ledger", "create", plan).startswith("made ")
    return run("query", "ask", plan, *options)


@pytest.mark.slow
def test_quote_ask_list(folder):
    """Quoting asks nothing; asking twice gives the same; a longer file asks only what is new."""
    plan = folder / "plan.toml"
    quoted = json.loads(run("query", "quote", plan, "--json"))
    assert quoted["rows"]["rho"] == pytest.approx(1 / 800)
    assert "margin" in run("query", "quote", plan)
    first = json.loads(first_asked(plan, "--json"))
    assert [len(first[key]["values"]) for key in ("rows", "middle")] == [2, 1]
    assert json.loads(run("query", "ask", plan, "--json")) == first
    plan.write_text(PLAN + MORE)
    second = json.loads(run("query", "ask", plan, "--json"))
    assert {key: second[key] for key in first} == first
    assert json.loads(run("query", "list", plan, "--json")) == second
    assert "for the noise alone" in run("query", "ask", plan)


@pytest.mark.slow
def test_an_export_is_utf_8_everywhere(folder):
    """What is exported to a terminal with ASCII alone is byte by byte what a file gets: the chain of hashes holds."""
    plan = folder / "plan.toml"
    plan.write_text(PLAN.replace('"middle"', '"mitté"'), encoding="utf-8")
    first_asked(plan)
    run("ledger", "export", folder / "people.ledger", "--out", folder / "record.jsonl")
    environment = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "almoner", "ledger", "export", str(folder / "people.ledger")]
    told = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert "mitté".encode() in told.stdout
    assert told.stdout == (folder / "record.jsonl").read_bytes()


def test_pages(folder):
    """--html writes private pages for a person and for the data holder, and overwrites nothing without --force."""
    ledger, page = folder / "people.ledger", folder / "page.html"
    first_asked(folder / "plan.toml")
    told = run("statement", ledger, "--person", "18", "--html", page)
    assert told.replace("\n", "").endswith(str(page))
    assert "for this person" in told
    text = page.read_text(encoding="utf-8")
    assert "the person 18" in text
    assert "2 results have used your records." in text
    assert page.stat().st_mode & 0o777 == 0o600
    assert "exists already" in run("ledger", "report", ledger, "--html", page, code=2)
    assert page.read_text(encoding="utf-8") == text
    run("ledger", "report", ledger, "--html", page, "--force")
    assert "Privacy ledger" in page.read_text(encoding="utf-8")
    assert "--json" in run("statement", ledger, "--person", "18", "--html", folder / "other.html", "--json", code=2)
    assert "must end in .html" in run("ledger", "report", ledger, "--html", ledger, "--force", code=2)


@pytest.mark.slow
def test_ledger_and_statement(folder):
    """verify, show, export, check, retire, restore, limit and statement on a ledger that was used."""
    plan, ledger = folder / "plan.toml", folder / "people.ledger"
    first_asked(plan)
    assert "NO" not in run("ledger", "verify", ledger)
    shown = json.loads(run("ledger", "show", ledger, "--json"))
    assert [each["key"] for each in shown["questions"]] == ["rows", "middle"]
    assert shown["terms"]["rho"] == 1.0
    assert "weekly" in run("ledger", "show", ledger)
    run("ledger", "verify", ledger, "--head", shown["head"], "--replay", plan)
    found = json.loads(run("ledger", "verify", ledger, "--head", "2:wrong", "--json", code=1))
    assert [each["holds"] for each in found] == [True] * (len(found) - 1) + [False]
    lines = run("ledger", "export", ledger)
    run("ledger", "export", ledger, "--out", folder / "record.jsonl")
    assert (folder / "record.jsonl").read_text() == lines
    assert "3 entries" in run("ledger", "check-export", folder / "record.jsonl")
    assert shown["head"] in run("ledger", "check-export", folder / "record.jsonl")
    (folder / "record.jsonl").write_text("".join(lines.splitlines(keepends=True)[:-1]))
    assert shown["head"] not in run("ledger", "check-export", folder / "record.jsonl")  # cut off at the end
    (folder / "record.jsonl").write_text(lines.replace("weekly", "weakly"))
    assert "broken" in run("ledger", "check-export", folder / "record.jsonl", code=2)
    run("ledger", "retire", ledger, "--person", "17")
    run("ledger", "limit", ledger, "--rho", "0.5", "--analyst", "ann")
    told = json.loads(run("statement", ledger, "--person", "17", "--json"))
    assert [line["key"] for line in told["lines"]] == ["rows"]  # 17 has no row at x
    assert "private" in told
    assert "rows" in run("statement", ledger, "--person", "18")
    run("ledger", "restore", ledger, "--person", "17")
    assert "NO" not in run("ledger", "verify", ledger, "--replay", plan)


def test_words_are_shown_letter_by_letter(folder):
    """Nothing in keys, names and groups is a style, a link or a picture; no key hides others or stops a command."""
    plan, ledger = folder / "plan.toml", folder / "people.ledger"
    told = PLAN.replace('["x", "y"]', '["x", "[y]"]').replace('"rows"', '"[a]:on:"').replace('"middle"', '"[/b]"')
    plan.write_text(told.replace('"ann"', '"[i]ann"').replace('"weekly"', '"[k]"'))
    run("ledger", "create", plan)
    for command in ("quote", "ask", "list"):
        shown = run("query", command, plan)
        assert "[a]:on:" in shown
        assert "[/b]" in shown
        assert command == "quote" or "[y]" in shown
    for shown in (run("ledger", "show", ledger), run("statement", ledger, "--person", "18")):
        assert all(word in shown for word in ("[a]:on:", "[i]ann", "[k]"))


def test_an_export_does_not_replace_the_ledger(folder):
    """The ledger's own file is refused as a place for the export, under any of its names, and is left as it was."""
    first_asked(folder / "plan.toml")
    (folder / "link").symlink_to("people.ledger")
    for name in ("people.ledger", "link"):
        run("ledger", "export", folder / "people.ledger", "--out", folder / name, code=2)
    assert "NO" not in run("ledger", "verify", folder / "people.ledger")


@pytest.mark.slow
def test_only_create_makes_a_ledger(folder):
    """A ledger that is not there is refused by every command, with what to write, and `create` makes one once."""
    plan, ledger = folder / "plan.toml", folder / "people.ledger"
    for command in ("ask", "list"):
        told = " ".join(run("query", command, plan, code=1).split())
        assert f"there is no ledger at {ledger}" in told
        assert "`almoner ledger create FILE`" in told
        assert "restore a backup" in told
    assert "`almoner ledger create" in run("query", "quote", plan)
    assert not list(folder.glob("people*"))
    assert "rho = 1" in run("ledger", "create", plan)
    assert "already" in run("ledger", "create", plan, code=2)
    assert "`almoner ledger create" not in run("query", "quote", plan)
    first = run("query", "ask", plan, "--json")
    assert run("query", "ask", plan, "--json") == first
    other = folder / "other.ledger"
    assert "no ledger" in run("query", "ask", plan, "--ledger", other, code=1)
    run("ledger", "create", plan, "--ledger", other)
    assert json.loads(run("query", "list", plan, "--ledger", other, "--json")) == {}


def test_a_lost_ledger_stops_the_nightly_run(folder):
    """After `rm` the same keys are not answered again from fresh budgets: there is no ledger, and none is made."""
    plan, ledger = folder / "plan.toml", folder / "people.ledger"
    answers = first_asked(plan, "--json")
    ledger.rename(folder / "elsewhere.ledger")
    for command in ("ask", "list"):
        assert "there is no ledger at" in run("query", command, plan, code=1)
    assert not ledger.exists()
    (folder / "elsewhere.ledger").rename(ledger)
    assert run("query", "ask", plan, "--json") == answers


@pytest.mark.slow
def test_a_plan_names_its_witness(folder):
    """It begins with the ledger; a lost ledger is not made anew beside it, not even by `create`, nor quoted for."""
    plan, ledger, head = folder / "plan.toml", folder / "people.ledger", folder / "volume" / "people.head"
    plan.write_text('witness = "volume/people.head"\n' + PLAN)
    assert "folder must be there" in run("ledger", "create", plan, code=1)
    assert not ledger.exists()
    head.parent.mkdir()
    answers = first_asked(plan, "--json")
    shown = json.loads(run("ledger", "show", ledger, "--json"))
    assert head.read_text(encoding="ascii").splitlines()[-1] == shown["head"]
    ledger.rename(folder / "elsewhere.ledger")
    for command in (("ledger", "create"), ("query", "ask"), ("query", "quote"), ("query", "list")):
        assert "the ledger got lost" in " ".join(run(*command, plan, code=1).split())
        assert not ledger.exists()
    (folder / "elsewhere.ledger").rename(ledger)
    assert run("query", "ask", plan, "--json") == answers
    plan.write_text('witness = "volume/other.head"\n' + PLAN)
    told = " ".join(run("query", "ask", plan, code=2).split())
    assert "moves it" in told
    run("ledger", "witness", ledger, "--file", folder / "volume" / "other.head")
    assert run("query", "ask", plan, "--json") == answers


def test_errors_have_exit_codes(folder):
    """A mistake is one line and exit code 2; a question that nobody could pay is exit code 1."""
    plan = folder / "plan.toml"
    run("ledger", "create", plan)
    plan.write_text(PLAN.replace("sigma = 2\n", "sigma = 0.1\n"))
    assert "Error: question 'middle': this may cost rho = 50" in run("query", "ask", plan, code=1)
    plan.write_text(PLAN.replace("place = 'x'", "plaice = 'x'"))
    for command in ("ask", "quote"):
        assert "Error: question 'middle': column 'plaice'" in run("query", command, plan, code=2)
    run("ledger", "verify", folder / "other.ledger", code=1)
    run("statement", folder / "people.ledger", "--person", "x", code=1)


def test_a_plan_says_of_which_types_a_csv_file_is(folder):
    """The same answers as from the Parquet file, though one entry is no number; unknown columns are named."""
    plan, rows = folder / "plan.toml", parquet.read_table(folder / "events.parquet").to_pylist()
    lines = [f"{row['who']},{row['n']},{row['place']}" for row in rows]
    (folder / "events.csv").write_text("\n".join(["who,n,place", *lines, "0,nothing,z"]) + "\n")
    told = PLAN.replace("events.parquet", "events.csv")
    plan.write_text('types = { who = "whole", n = "number" }\n' + told)
    found = json.loads(first_asked(plan, "--json"))
    assert len(found["middle"]["values"]) == 1
    plan.write_text('types = { number = "number" }\n' + told)
    assert "no such column" in run("query", "ask", plan, code=2)


def test_no_file_is_overwritten_by_a_record(folder):
    """An export never replaces the ledger, not even with --force, and replaces another file only with it."""
    plan, ledger, record = folder / "plan.toml", folder / "people.ledger", folder / "record.jsonl"
    first_asked(plan)
    for force in ([], ["--force"]):
        assert "is what is read" in run("ledger", "export", ledger, "--out", ledger, *force, code=2)
    assert "NO" not in run("ledger", "verify", ledger)
    run("ledger", "export", ledger, "--out", record)
    assert "exists already" in run("ledger", "export", ledger, "--out", record, code=2)
    run("ledger", "export", ledger, "--out", record, "--force")
    assert "folder is not there" in run("ledger", "export", ledger, "--out", folder / "no" / "x.jsonl", code=2)


def test_who_leaves_is_confirmed(folder):
    """Leaving, returning and limits say what was done, and a name that no question ever charged is pointed out."""
    ledger = folder / "people.ledger"
    first_asked(folder / "plan.toml")
    known, unknown = (run("ledger", "retire", ledger, "--person", person) for person in ("18", "1800"))
    assert "left" in known
    assert "spelt" not in known
    assert "spelt" in unknown
    assert "18" not in known + unknown  # the screen may be seen by others
    assert "is back" in run("ledger", "restore", ledger, "--person", "18")
    assert "at most rho = 0.5" in run("ledger", "limit", ledger, "--rho", "0.5", "--purpose", "ads")


@pytest.mark.slow
def test_a_plan_that_cannot_be_asked_to_its_end_charges_nobody(folder):
    """A question dearer than the budget, or under a key that another one has, stops all before the first."""
    plan = folder / "plan.toml"
    dear = MORE.replace("0.001", "3.0")
    run("ledger", "create", plan)
    plan.write_text(PLAN + dear)
    assert "rho = 3" in run("query", "ask", plan, code=1)
    assert json.loads(run("query", "list", plan, "--json")) == {}
    plan.write_text(PLAN)
    run("query", "ask", plan)
    plan.write_text(PLAN.replace("sigma = 20", "sigma = 21").replace('key = "middle"', 'key = "other"'))
    assert "was used for another question" in run("query", "ask", plan, code=2)
    assert set(json.loads(run("query", "list", plan, "--json"))) == {"rows", "middle"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        (PLAN.replace("place = 'x'", "plaice = 'x'"), 2, "plaice"),
        (PLAN.replace('"ann"', '""'), 2, "analyst"),
        (PLAN + MORE.replace("0.001", "3.0"), 1, "rho = 3"),
    ],
)
def test_a_plan_that_cannot_be_asked_makes_no_ledger(folder, wrong, code, words):
    """A first run that is refused leaves no ledger, which would keep the budget of that run."""
    plan = folder / "plan.toml"
    plan.write_text(wrong)
    assert words in run("ledger", "create", plan, code=code)
    assert not list(folder.glob("people*"))
    plan.write_text(PLAN.replace("rho = 1.0", "rho = 2.0"))
    assert set(json.loads(first_asked(plan, "--json"))) == {"rows", "middle"}


def test_an_export_with_line_separators_in_text_is_unbroken(folder):
    """Some characters end lines for Python and not for JSON."""
    plan = folder / "plan.toml"
    plan.write_text(PLAN.replace("place = 'x'", "place = 'x\u2028y\u0085z'"))
    first_asked(plan)
    run("ledger", "export", folder / "people.ledger", "--out", folder / "record.jsonl")
    assert "3 entries, unbroken" in run("ledger", "check-export", folder / "record.jsonl")
    (folder / "empty.jsonl").write_text("")
    run("ledger", "check-export", folder / "empty.jsonl", code=2)


def test_a_lost_ledger_is_not_replaced_by_checking_it(folder):
    """Verifying makes no ledger, with data or without."""
    plan, book = folder / "plan.toml", folder / "people.ledger"
    first_asked(plan)
    assert run("ledger", "verify", book, "--replay", plan)
    book.unlink()
    assert "there is no ledger at" in run("ledger", "verify", book, "--replay", plan, code=1)
    assert not book.exists()


@pytest.mark.slow
def test_a_person_is_erased(folder):
    """`almoner ledger erase` leaves the total, in a ledger with pseudonyms; without them it is refused."""
    plan, book = folder / "plan.toml", folder / "people.ledger"
    first_asked(plan)
    assert "without pseudonyms" in run("ledger", "erase", book, "--person", 1, code=2)
    plan.write_text(
        PLAN.replace("people.ledger", "hidden.ledger").replace("rho = 1.0", 'rho = 1.0\npseudonyms = "key"')
    )
    first_asked(plan)
    hidden = folder / "hidden.ledger"
    before = json.loads(run("statement", hidden, "--person", 1, "--json"))
    assert "is erased" in run("ledger", "erase", hidden, "--person", 1)
    after = json.loads(run("statement", hidden, "--person", 1, "--json"))
    assert after["rho"] == before["rho"] > 0
    assert [line["question"]["ask"] for line in after["lines"]] == ["earlier"]
    assert "No question has charged" in run("ledger", "erase", hidden, "--person", 10**9)
    run("ledger", "verify", hidden, "--replay", plan)


def test_quoting_makes_no_ledger_on_a_server(folder, server):
    """Nothing is asked, so nothing is made."""
    plan, place = folder / "plan.toml", server.place()
    plan.write_text(PLAN.replace("people.ledger", place))
    assert "rows" in json.loads(run("query", "quote", plan, "--json"))
    run("query", "list", plan, code=1)
    plan.write_text(PLAN.replace("people.ledger", place).replace("rho = 1.0", "rho = 2.0"))
    first_asked(plan)  # the budget is not that of the draft
    assert len(json.loads(run("query", "list", plan, "--json"))) == 2


@pytest.mark.slow
def test_data_sets_are_declared_and_listed(folder):
    """A plan on a ledger that knows data sets must name its own; statements and lists say it."""
    book, plan = folder / "people.ledger", folder / "plan.toml"
    first = json.loads(first_asked(plan, "--json"))
    kept = ["--bounds", "n=[0, 8]", "--keys", 'place=["x", "y"]']
    said = run("ledger", "dataset", book, "--name", "rows", "--column", "who", *kept)
    assert said.startswith("'rows', version 1: entry ")
    assert run("ledger", "dataset", book, "--name", "rows", "--column", "who", *kept) == said
    run("ledger", "dataset", book, "--name", "rows", "--column", "who", code=2)
    (listed,) = json.loads(run("ledger", "datasets", book, "--json"))
    assert listed["columns"] == {"n": {"low": 0, "high": 8}, "place": {"keys": ["x", "y"]}}
    assert "(2 keys)" in run("ledger", "datasets", book)
    assert "dataset= is missing" in " ".join(CliRunner().invoke(app, ["query", "ask", str(plan)]).stderr.split())
    plan.write_text('dataset = "rows"\n' + PLAN + MORE)
    again = json.loads(run("query", "ask", plan, "--json"))
    assert {key: again[key] for key in first} == first, "what was asked before is not asked again"
    shown = run("ledger", "show", book, "--json")
    assert [asked.get("dataset") for asked in json.loads(shown)["questions"]] == [None, None, "rows"]
    lines = json.loads(run("statement", book, "--person", "7", "--json"))["lines"]
    assert lines[-1]["dataset"] == "rows"
    assert "data" in run("ledger", "show", book)
    assert "data" in run("statement", book, "--person", "7")


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["n", "n=", "n=7", "n=[1]", "n=[1, 2, 3]", "n=[2, 1]", 'n=["a", "b"]', "n={}"])
def test_bounds_that_make_no_sense_are_refused(folder, wrong):
    """Exit code 2, and nothing is declared."""
    book = folder / "people.ledger"
    first_asked(folder / "plan.toml")
    run("ledger", "dataset", book, "--name", "rows", "--column", "who", "--bounds", wrong, code=2)
    assert json.loads(run("ledger", "datasets", book, "--json")) == []


def test_a_service_is_told_of_how_its_ledger_is_made(tmp_path):
    """`almoner serve` names the command; `almoner ledger create` makes none of a policy."""
    pytest.importorskip("starlette")
    from services import service_folder

    policy = service_folder(tmp_path) / "policy.toml"
    assert "`almoner serve --prepare FILE` with a policy" in " ".join(run("serve", policy, code=1).split())
    assert "is not known" in run("ledger", "create", policy, code=2)
    assert not (tmp_path / "people.ledger").exists()

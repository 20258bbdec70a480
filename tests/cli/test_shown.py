"""Tables of commands: borders on a terminal, tabs in a pipe, CSV files; and the manners of groups and errors."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from almoner.cli import app
from almoner.cli._options import _options_named
from almoner.cli._shown import Listing

TERMINAL = {"COLUMNS": "80", "TERM": "dumb", "TTY_COMPATIBLE": "1"}
RUN = ["--noise-multiplier", "20", "--steps", "3"]


def called(*words, env=None, code=0):
    result = CliRunner(env=env).invoke(app, list(map(str, words)))
    assert result.exit_code == code, result.output + result.stderr
    return result


def read(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


@pytest.mark.slow
@pytest.mark.parametrize(("words", "columns"), [(("epsilon", *RUN), {3, 4}), (("compare", *RUN, "--points", 2), {4})])
def test_pipes_get_tabs_and_terminals_get_borders(words, columns):
    """In a pipe each row is one line, however long; a terminal's lines fit into its width."""
    piped, boxed = called(*words).stdout, called(*words, env=TERMINAL).stdout
    assert "\t" in piped
    assert not set("┃│─━") & set(piped)
    assert {len(line.split("\t")) for line in piped.splitlines() if "\t" in line} == columns
    assert "\t" not in boxed
    assert set("─━") & set(boxed)
    assert max(map(len, boxed.splitlines())) <= 80


@pytest.mark.slow
def test_the_same_rows_as_a_csv_file(tmp_path):
    """--csv writes every row beside what is printed, also with --json, and overwrites only with --force."""
    path = tmp_path / "rows.csv"
    told = json.loads(called("compare", *RUN, "--points", 2, "--csv", path, "--json").stdout)
    header, *rows = read(path)
    assert header == ["bound", "promise", "1", "3"]
    assert [row[0] for row in rows] == [bound["name"] for bound in told["bounds"]]
    for words in (("epsilon", *RUN), ("calibrate", "--epsilon", 1, "--steps", 3), ("compare", *RUN)):
        assert "exists already" in called(*words, "--csv", path, code=2).stderr
        called(*words, "--csv", path, "--force")
        header, *rows = read(path)
        assert len(rows) >= 3
        assert {len(row) for row in rows} == {len(header)}


def test_what_repeats_is_empty_on_a_terminal_alone():
    """A pipe and a CSV file have every cell; nothing in a cell breaks a line or moves the cursor."""
    rows = [("a", "1", "x"), ("a", "1", "y"), ("b", "1", "z\t\n\x1b[2J")]
    listing = Listing(("key", "price", "value"), rows, once=("key", "price"))
    assert listing.lines() == ["key\tprice\tvalue", "a\t1\tx", "a\t1\ty", "b\t1\tz   [2J"]
    keys, prices, _ = ([*column.cells] for column in listing.table().columns)
    assert keys == ["a", "", "b"]
    assert prices == ["1", "", "1"]


@pytest.mark.parametrize("words", [(), ("query",), ("ledger",), ("init",), ("audit",)])
def test_a_group_alone_prints_its_help(words):
    """The same as with --help, and no error; each has an example."""
    alone = called(*words)
    assert alone.stdout == called(*words, "--help").stdout
    assert "Example: almoner" in alone.stdout
    assert not alone.stderr


def test_commands_stand_below_headings():
    """No command is in a heap of its own: every one has a heading, and so has every group."""

    def headed(group):
        for each in group.commands.values():
            yield each.rich_help_panel
            if each.name == "ledger":
                yield from headed(each)

    assert all(isinstance(panel, str) for panel in headed(typer.main.get_command(app)))


@pytest.mark.slow
def test_completion_offers_choices():
    """The shell offers what --mechanism can be."""
    for words, expected in (("compare --mechanism ", "randomized-response"),):
        env = os.environ | {"_ALMONER_COMPLETE": "complete_bash", "COMP_WORDS": f"almoner {words}", "COMP_CWORD": "3"}
        command = [sys.executable, "-c", "from almoner.cli import app; app(prog_name='almoner')"]
        told = subprocess.run(command, env=env | {"COMP_CWORD": "3"}, capture_output=True, text=True, check=False)
        assert expected in told.stdout, told


def test_errors_name_the_option():
    """An argument's name becomes the option of the command that ran; what a file says keeps its name."""
    assert "--noise-multiplier=-1.0 must" in called("epsilon", "--noise-multiplier", -1, code=2).stderr
    epsilon = typer.main.get_command(app).commands["epsilon"]
    assert _options_named("batch_size=9 must be at most dataset_size=8", epsilon).startswith("--batch-size=9 must")
    for words in ("sigma=-1 must be positive", "noise_multiplier = 3", "plan.delta=2 is wrong", "--delta=2"):
        assert _options_named(words, epsilon) == words
    assert _options_named("delta=2 must be small", None) == "delta=2 must be small"


def test_a_missing_ledger_says_who_makes_one(tmp_path):
    """A command that reads a ledger says which command creates it, and makes none."""
    path = tmp_path / "people.ledger"
    assert "`almoner ledger create FILE`" in called("ledger", "show", path, code=1).stderr
    assert not path.exists()


@pytest.mark.slow
def test_stored_answers_are_said_to_cost_nothing(tmp_path):
    """The second run of a file of questions says that nothing was charged."""
    pytest.importorskip("duckdb")
    called("init", "query", tmp_path / "clinic", "--example")
    called("ledger", "create", tmp_path / "clinic" / "questions.toml")
    first = called("query", "ask", tmp_path / "clinic" / "questions.toml").stdout
    again = called("query", "ask", tmp_path / "clinic" / "questions.toml").stdout
    assert "stored" not in first
    assert (
        again == first + "30 answers were stored already: nothing was charged for them. To ask anew, change the key.\n"
    )


@pytest.mark.slow
def test_questions_that_do_not_fit_together_are_announced(tmp_path):
    """A quote adds up what is not asked yet; asking says so first where a person in all questions would run out."""
    pytest.importorskip("duckdb")
    called("init", "query", tmp_path / "clinic", "--example")
    plan = tmp_path / "clinic" / "questions.toml"
    seven = plan.read_text(encoding="utf-8").replace("to = 2026-08-02", "to = 2026-02-22")
    plan.write_text(seven, encoding="utf-8")
    fitting = called("query", "quote", plan)
    assert "Together these 7 questions cost a person who is in all of them 99.8 % of the budget.\n" in fitting.stdout
    assert "Later ones" not in fitting.stdout
    plan.write_text(seven.replace("sigma = 12", "sigma = 8"), encoding="utf-8")
    words = "225 % of the budget. Later ones will be refused, or, with anyway = true, leave such people out "
    words += "or count them for less."
    assert f"{words} With 1.5 times the noise all of them would fit." in called("query", "quote", plan).stdout
    called("ledger", "create", plan)
    assert words in called("query", "ask", plan).stderr
    after = called("query", "quote", plan).stdout
    assert "Together" not in after
    assert after.count("stored: 0") == 7


def test_a_csv_file_can_be_the_standard_output(tmp_path, monkeypatch):
    """`--csv -` prints the rows and nothing else, one table, and makes no file of that name."""
    monkeypatch.chdir(tmp_path)
    np.save("norms.npy", np.array([1.0, 0.5]))
    for words, column in (
        (("epsilon", *RUN), "epsilon"),
        (("calibrate", "--epsilon", 1, "--steps", 3), "run"),
        (("losses", "norms.npy", *RUN), "accounting"),
    ):
        told = called(*words, "--csv", "-").stdout
        header, *rows = csv.reader(told.splitlines())
        assert header[0] == column
        assert rows
        assert {len(row) for row in rows} == {len(header)}
    assert {path.name for path in tmp_path.iterdir()} == {"norms.npy"}
    called("losses", "norms.npy", *RUN, "--csv", "private.csv")
    assert Path("private.csv").stat().st_mode & 0o777 == 0o600


def test_narrow_terminals_get_a_block_for_each_row():
    """Below 70 columns no table is folded: each row is lines of `column: cell`."""
    told = called("epsilon", *RUN, env=TERMINAL | {"COLUMNS": "60", "TERM": "xterm", "NO_COLOR": "1"}).stdout
    assert "holds if: a filter with this budget was charged" in told
    assert not set("┃│─━") & set(told)
    assert max(map(len, told.splitlines())) <= 60


def test_help_wraps_and_says_defaults():
    """No line break of a docstring is kept, flags take no value, and defaults are told; also on narrow terminals."""
    command = [sys.executable, "-m", "almoner", "epsilon", "--help"]
    for columns in (60, 80):
        env = os.environ | {"COLUMNS": str(columns)}
        told = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
        assert "<bool>" not in told
        assert "[default: 1e-05]" in " ".join(told.split())
        assert max(len(line) for line in told.splitlines() if "Example:" not in line) <= columns
        *full, _ = told.partition("Say rate")[2].partition("\n\n")[0].splitlines()[1:]
        assert min(map(len, full)) > columns - 24


def test_errors_have_one_style():
    """A wrong option, value, command or file: `Error:`, a sentence without the name of a class, and exit code 2."""
    for words in (
        ("epsilon", "--sigma", 1),
        ("epsilon", "--noise-multiplier", "x"),
        ("epsilon", "--noise-multiplier", -1),
        ("epsilonn",),
        ("--verison",),
        ("losses", "none.npy", "--noise-multiplier", 1),
        ("query", "quote", "none.toml"),
    ):
        told = called(*words, code=2).stderr
        assert told.startswith("Error: ")
        assert told.count("\n") == 1
        assert "Error" not in told[7:]
        assert "Usage" not in told


def test_what_was_meant_is_told(tmp_path):
    """Options as other programs call them, commands and files with a letter missing."""
    (tmp_path / "people.csv").touch()
    for words, meant in (
        (("epsilon", "--sigma", 1), "--noise-multiplier"),
        (("calibrate", "--target-epsilon", 1), "--epsilon"),
        (("compare", "--clip", 1), None),
        (("lossess",), "losses"),
        (("ledger", "shwo"), "show"),
        (("train", tmp_path / "peple.csv", "--target", "x"), str(tmp_path / "people.csv")),
    ):
        told = called(*words, code=2).stderr
        assert meant is None or f"`{meant}`" in told
        assert meant is not None or "`" not in told

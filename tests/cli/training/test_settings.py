"""The file of --settings: what it may say, where a mistake is, and the line that replaces an option of before."""

import json
import re
import tomllib

import pytest
import typer
from typer.testing import CliRunner

from age_files import age_folder
from almoner.cli import app
from almoner.cli._training.settings import MODELS, TRAIN, TUNE, read_settings, settings_template
from almoner.errors import DataError
from almoner.training import Descent, LogisticRegression

COMMANDS = (TRAIN, TUNE)


def call(*arguments, code=0):
    """Run one command; what it prints, or what it complains about when another exit code is expected."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else " ".join(result.stderr.split())


def written(folder, text):
    path = folder / "train.toml"
    path.write_text(text, encoding="utf-8")
    return path


def examples(command):
    """The lines of the template that are for a command, each taken out of its comment."""
    for line in settings_template().splitlines():
        if (found := re.fullmatch(r"# (\w+) = (.*)", line)) and found[1] in MODELS[command].model_fields:
            tried = found[2].startswith("[")
            if tried == isinstance(MODELS[command].model_fields[found[1]].default, tuple):
                yield line.removeprefix("# ")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_template_says_nothing_and_each_of_its_lines_can_be_taken(tmp_path, command):
    """As it is written, all is by default; with every line of a command in force, it is read too."""
    plain = read_settings(None, command)
    assert read_settings(written(tmp_path, settings_template()), command) == plain
    lines = list(examples(command))
    assert len(lines) == len(plain)
    found = read_settings(written(tmp_path, "\n".join(lines)), command)
    assert found.keys() == plain.keys()
    for name, value in plain.items():
        if value is not None:
            assert found[name] == value


def test_defaults_are_those_of_the_library():
    """A training without a file of settings is one of LogisticRegression's defaults."""
    known = LogisticRegression().get_params() | Descent().get_params()
    own = {name: each.default for name, each in MODELS[TRAIN].model_fields.items() if name in known}
    assert own == {name: known[name] for name in own}
    assert own.keys() >= Descent().get_params().keys()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# first\navergae = 0.5\n", "train.toml, line 2: avergae is not known; write `average`"),
        ("qqq = 1\n", "line 1: qqq is not known; known are steps, max_grad_norm"),
        ("steps = 5\n[descent]\naverage = 0.5\n", "line 2: descent is not known"),
        ("steps = 2.5\n", "line 1: steps=2.5 must be a whole number"),
        ("steps = true\n", "steps=True must be a whole number"),
        ('pace = "even"\n', "pace='even' must be a number"),
        ("pace = nan\n", "pace=nan must be a finite number"),
        ("individual = 1\n", "individual=1 must be true or false"),
        ('purpose = ""\n', "purpose='' must be 1 to 1000 printable characters"),
        ("picture = 3\n", "picture=3 must be 1 to 1000 printable characters"),
        ("learning_rate = [1, 4]\n", "must be a number: `almoner tune` tries the values of a list"),
        ("steps = \n", "is not a TOML file"),
    ],
)
def test_a_mistake_is_refused_with_its_place_and_the_cure(tmp_path, text, words):
    """The file, the line, and the nearest name or the kind that is wanted."""
    with pytest.raises(DataError) as refused:
        read_settings(written(tmp_path, text), TRAIN)
    assert words in str(refused.value)


def test_a_setting_of_another_command_is_told(tmp_path):
    """What `almoner train` takes and `almoner tune` does not is said to be that."""
    with pytest.raises(DataError, match="noise_multiplier is no setting of `almoner tune`: leave it out"):
        read_settings(written(tmp_path, "noise_multiplier = 3\n"), TUNE)


def test_no_such_file_and_no_text(tmp_path):
    """A file that is not there says what writes one; one that is no text is refused."""
    with pytest.raises(DataError, match="`almoner init settings` writes one"):
        read_settings(tmp_path / "none.toml", TRAIN)
    (tmp_path / "train.toml").write_bytes(b"\xff")
    with pytest.raises(DataError, match="not a TOML file"):
        read_settings(tmp_path / "train.toml", TRAIN)


def test_paths_begin_at_the_folder_of_the_file(tmp_path):
    """As those of a file of questions do; a whole number is a number too."""
    found = read_settings(written(tmp_path, 'picture = "spends.png"\npace = 0\n'), TRAIN)
    assert found["picture"] == tmp_path / "spends.png"
    assert isinstance(found["pace"], float)


def test_init_writes_the_file(tmp_path):
    """`almoner init settings` writes the template; `init train` the same with its own steps."""
    call("init", "settings", tmp_path)
    assert (tmp_path / "train.toml").read_text(encoding="utf-8") == settings_template()
    assert "exists already" in call("init", "settings", tmp_path, code=2)
    call("init", "train", tmp_path / "new")
    assert tomllib.loads((tmp_path / "new" / "train.toml").read_text(encoding="utf-8")) == {"steps": 100}


def test_settings_reach_the_training(tmp_path):
    """Steps, clip, rate and what is of the descent stand on the card."""
    folder = age_folder(tmp_path)
    chosen = {"steps": 7, "max_grad_norm": 0.5, "learning_rate": 2, "average": 0.3, "momentum": 0.4, "decay": 0.2}
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in chosen.items())
    arguments = ["train", folder / "data.csv", "--target", "bought", "--schema", folder / "schema.toml"]
    arguments += ["--settings", written(folder, text), "--out", folder / "model"]
    card = json.loads(call(*arguments, "--json"))["card"]
    assert {name: card[name] for name in chosen} == chosen
    assert "average=1.5" in call(*arguments[:-3], written(folder, "average = 1.5\n"), "--out", folder / "m", code=2)


@pytest.mark.parametrize(
    ("word", "near"),
    [("--settigns", "--settings"), ("--keep-accounts", ""), ("--check", ""), ("--runs", ""), ("--drawings", "")],
)
def test_an_option_that_a_command_lacks_is_refused(word, near):
    """Whatever else is given or missing; one that is spelt nearly so is named."""
    told = call("train", "people.csv", "--target", "x", word, code=2)
    assert f"No such option: {word}" in told
    assert near in told


@pytest.mark.parametrize("name", ["train", "tune", "score", "predict", "schema"])
def test_a_command_has_twelve_options_at_most(name):
    """Beside its arguments and --help."""
    command = typer.main.get_command(app).commands[name]
    assert sum(each.param_type_name == "option" and each.name != "help" for each in command.params) <= 12

"""`almoner init`: commented files to begin with, which run as they are on an example that is generated."""

import csv
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, Typer

from almoner.cli._options import Force, Group, added, check_free, examples
from almoner.cli._shown import dumps

Rows = Iterable[tuple[object, ...]]

Folder = Annotated[Path, Argument(help="The folder to write to; it is made if it is not there.")]
Ledger = Annotated[str | None, Option(help="The ledger: a file, or postgresql://service@server/database.")]
Example = Annotated[bool, Option("--example", help="Write an example table, too, of people who are made up.")]

init = Typer(cls=Group, help="Write commented files to begin with.", epilog=examples("init query clinic --example"))


@added(init, "init train", "first-model --example")
def train(folder: Folder = Path(), example: Example = False, force: Force = False) -> None:
    """Write a schema, settings and a script that train a private model on a CSV file, and predict with it."""
    from almoner.cli._training.settings import settings_template

    tables = {"people.csv": _patients(3000, 0), "heldout.csv": _patients(500, 1)} if example else {}
    texts = {"schema.toml": _template("schema.toml"), "train.toml": settings_template(steps=100)}
    _write(folder, texts | {"train.sh": _template("train.sh")}, tables, force=force)
    _say(example, "people.csv and heldout.csv", f"sh {folder / 'train.sh'}")


@added(init, "init settings", "")
def settings(folder: Folder = Path(), force: Force = False) -> None:
    """Write train.toml: every setting of a training, with a comment, for --settings of `almoner train`."""
    from almoner.cli._training.settings import settings_template

    _write(folder, {"train.toml": settings_template()}, {}, force=force)


@added(init, "init query", "clinic --example")
def query(folder: Folder = Path(), example: Example = False, force: Force = False) -> None:
    """Write a file of questions: how many people came in each week, with a budget for each of them."""
    tables = {"visits.csv": _visits()} if example else {}
    _write(folder, {"questions.toml": _template("questions.toml")}, tables, force=force)
    plan = folder / "questions.toml"
    commands = (
        f"almoner query check {plan}    # are days read as days?",
        f"almoner query quote {plan}    # prices and errors, before anything is charged",
        f"almoner ledger create {plan}    # once: the record of charges and answers",
        f"almoner query ask {plan}",
    )
    _say(example, "visits.csv", *commands[0 if not example else -2 :])


@added(init, "init serve", "surgery --example")
def serve(folder: Folder = Path(), example: Example = False, ledger: Ledger = None, force: Force = False) -> None:
    """Write a policy of `almoner serve`, with new tokens of two analysts and the data holder, which are printed."""
    from almoner._tokens import hash_of, new_token

    text, tokens = _template("policy.toml"), {name: new_token() for name in ("ann", "bob", "carla")}
    if ledger is not None:
        text = text.replace('"people.ledger"', dumps(ledger), 1)
    for name, token in tokens.items():
        text = text.replace(f"hash of {name}", hash_of(token))
    _write(folder, {"policy.toml": text}, {"visits.csv": _visits()} if example else {}, force=force)
    print(*(f"token of {name}, for nobody else: {token}" for name, token in tokens.items()), sep="\n")
    policy = folder / "policy.toml"
    _say(example, "visits.csv", f"almoner serve --prepare {policy}", f"almoner serve {policy}")


def _template(name: str) -> str:
    return files("almoner.cli").joinpath("templates", name).read_text(encoding="utf-8")


def _write(folder: Path, texts: Mapping[str, str], tables: Mapping[str, Rows], *, force: bool) -> None:
    """Write all files, or none if one of them is there already."""
    for name in (*texts, *tables):
        check_free(folder / name, force=force)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    for name, rows in tables.items():
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    for name in (*texts, *tables):
        print(folder / name)


def _say(example: bool, data: str, *commands: str) -> None:
    own = f" put your data beside them as {data}, and change the files to fit. Then run:"
    print(f"Next:{'' if example else own}", *commands, sep="\n  ")


def _patients(count: int, seed: int) -> Rows:
    """Made-up patients: the older, the more of them return within a month."""
    from numpy.random import default_rng

    draw = default_rng(seed)  # the data may repeat; the noise of a training never does
    yield ("id", "age", "days", "ward", "returns")
    for number in range(count):
        age = int(draw.integers(18, 91))
        returns = "yes" if age + draw.normal(scale=8) > 54 else "no"
        yield (f"p{seed}-{number}", age, int(draw.integers(0, 31)), ("north", "south")[draw.integers(2)], returns)


def _visits() -> Rows:
    """Made-up visits to a clinic on 30 Mondays: 600 patients come one week in six, 24 others every week."""
    mondays = [date(2026, 1, 5) + timedelta(weeks=week) for week in range(30)]
    yield ("patient", "day", "ward", "minutes")
    for patient in range(624):
        for week, monday in enumerate(mondays):
            if patient >= 600 or (week + patient) % 6 == 0:
                yield (f"p{patient}", monday, ("north", "south")[patient % 2], 10 + (7 * patient + 13 * week) % 50)

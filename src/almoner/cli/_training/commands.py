"""`almoner schema`, `train`, `tune`, `predict`, `score`: from data to a private model, and back."""

import csv
import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option, echo

import almoner
from almoner import _check
from almoner.cli import _options
from almoner.cli._shown import draw_spends, dumps, print_misfits, progress_bar, show, tell
from almoner.errors import ArgumentError, DataError

if TYPE_CHECKING:
    from almoner.training import OnLedger
    from almoner.training.saved_model import Trained

Person = Annotated[str | None, Option(help="The column that names the person of a row; else each row is a person.")]

_NO_SCHEMA = (
    "--schema is missing. The bounds of numbers, the categories and the labels must be public: read off the data, they "
    "would tell something about the people in them (the richest person's income is the largest entry). "
    "`almoner schema {} --target {} --out schema.toml` writes a schema to fill in, with the names of the "
    "columns only; `almoner init train --example` writes a schema with comments, and data that it fits"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Settings of a run, and a place for the model."""

    out: _options.OutFolder = None
    settings: Annotated[
        Path | None, Option(help="More settings: a TOML file. `almoner init settings` writes one with comments.")
    ] = None
    seed: Annotated[int | None, Option(help="Repeats the run on the same machine and versions: NOT private.")] = None
    force: _options.Force = False
    as_json: _options.Json = False

    def folder(self, picture: Path | None = None) -> Path:
        """The folder for the model; refuses a private picture inside of it, or where it would overwrite a file."""
        if self.out is None:
            raise ArgumentError("--out is missing: the folder for the model; for example `--out=model`")
        _options.check_picture(picture, makes_folder=True)
        if picture is not None:
            if self.out.resolve() in picture.resolve().parents:
                raise ArgumentError(f"{picture} is private, and {self.out} holds what may be given away")
            for path in (picture, picture.with_suffix(".json")):
                _options.check_free(path, force=self.force)
        return self.out


class _Told(BaseException):
    """SIGTERM, as an error."""

    @classmethod
    def tell(cls, _number: int, _frame: object) -> None:
        raise cls


@contextmanager
def stopped_in_order(out: Path, ledger: str | None = None, key: str | None = None) -> Iterator[None]:
    """Say how to go on where a command is stopped: exit code 130 after Ctrl-C, 143 after SIGTERM."""
    words = f"Stopped: {out} was not written, and nothing about people was told. Run the same command again."
    if ledger is not None:
        words = (
            f"Stopped: {out} was not written. What the steps so far have cost stays charged on {ledger} as {key!r}, "
            "and the rest was given back. To train again: the same command with another --key"
        )
    heard = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if heard:
        signal.signal(signal.SIGTERM, _Told.tell)
    try:
        yield
    except (KeyboardInterrupt, _Told) as stopped:
        print(words, file=sys.stderr)
        raise Exit(128 + (signal.SIGTERM if isinstance(stopped, _Told) else signal.SIGINT)) from None
    finally:
        if heard:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def print_trained(
    trained: "Trained", run: RunOptions, *, title: str = "", picture: Path | None = None, keep_accounts: bool = False
) -> None:
    from almoner.training.saved_model import accounts_file

    out, card = run.folder(), trained.card
    private = draw_spends(trained.holder_report, picture, title)
    private += [str(accounts_file(out))] if keep_accounts else []
    if card.delta * card.divisor > 1:  # the divisor is the public number of people
        told = f"delta = {card.delta:g} allows a model to show one of {card.divisor:g} people in full"
        print(f"{told}: choose a delta far below one in the number of people", file=sys.stderr)
    if run.as_json:
        print(dumps({"out": str(out), "card": card.to_dict(), "private": private}))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(card.to_markdown()))
    show(f"\nWritten to {out}" + "".join(f"; PRIVATE: {path}" for path in private))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """A table, what is public about its columns, and a budget for every person in it."""

    data: Annotated[Path, Argument(help="A CSV or Parquet file with the people's data.")]
    target: Annotated[str, Option(help="The column to predict.")]
    schema: Annotated[Path | None, Option(help="What is public about the columns: a TOML file.")] = None
    person: Person = None
    epsilon: _options.Epsilon = 1.0
    delta: _options.Delta = 1e-5

    def given(self) -> dict[str, Any]:
        if not self.data.exists():
            raise DataError(_check.away(self.data))
        if self.schema is None:
            raise ArgumentError(_NO_SCHEMA.format(self.data, self.target))
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """A ledger that is charged in place of budgets of this training's own."""

    ledger: Annotated[
        str | None, Option(help="Charge this ledger, which questions charge too; needs --key and --person.")
    ] = None
    key: Annotated[str | None, Option(help="A name for this training on the ledger.")] = None

    def on_ledger(self, analyst: str, purpose: str | None) -> "OnLedger | None":
        """Where the training is charged; None where it has a budget of its own."""
        if (self.ledger is None) != (self.key is None):
            raise ArgumentError("--ledger and --key belong together: a training is charged once, under its name")
        if self.ledger is None or self.key is None:
            return None
        return almoner.training.OnLedger(self.ledger, self.key, analyst, purpose)


FILES = {
    "plan": ("queries.plans", "PlanFile.json_schema"),
    "question": ("queries.plans", "question_schema"),
    "policy": ("service.policies", "PolicyFile.json_schema"),
    "schema": ("training.tables", "Schema.json_schema"),
    "card": ("training", "Card.json_schema"),
    "train": ("cli._training.settings", "TrainSettings.json_schema"),
    "tune": ("cli._training.settings", "TuneSettings.json_schema"),
    "mechanism": ("mechanisms", "fields_schema"),
    "run": ("accounting.runs", "RunFile.json_schema"),
}  # kinds of files whose JSON Schema `almoner schema` writes, and what makes it


def schema(
    data: Annotated[
        Path, Argument(help=f"A CSV or Parquet file with the people's data; or one of the words {', '.join(FILES)}.")
    ],
    target: Annotated[str | None, Option(help="The column to predict.")] = None,
    person: Person = None,
    out: _options.OutFile = None,
    check: Annotated[
        Path | None, Option(help="PRIVATE: only count the entries that cannot be read by this schema.")
    ] = None,
    skip_rows: Annotated[int, Option(help="Lines to leave out at the start of DATA, with --check.")] = 0,
    force: _options.Force = False,
    as_json: _options.Json = False,
) -> None:
    """Write a schema to fill in: the names of the columns, and nothing else of the data.

    With --check a schema that is filled in is compared with the data, for the data holder. For a word in place of DATA
    the JSON Schema of such files is written, by which editors complete and check them: `almoner schema policy`.
    """
    if str(data) in FILES:
        module, made = FILES[str(data)]
        described = attrgetter(made)(import_module(f"almoner.{module}"))()
        echo(dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **described}))
        return
    if target is None:
        raise ArgumentError("--target is missing: the column to predict")
    from almoner.training import tables
    from almoner.training.saved_model import schema_template

    if check is not None:
        if out is not None:
            raise ArgumentError("give either --out, for a schema to fill in, or --check, for one that is filled in")
        known = tables.Schema.read(check, target=target, person=person)
        print_misfits(tables.misfits(data, known, skip_rows=skip_rows), as_json=as_json)
        return
    text = schema_template(data, target=target, person=person)
    if out is None:
        echo(dumps({"schema": text}) if as_json else text, nl=as_json)
        return
    _options.check_new_file(out, force=force, read=(data,))
    out.write_text(text, encoding="utf-8")
    echo(dumps({"schema": str(out)}) if as_json else f"{out}: fill in what is publicly known about the columns")


def train(*, table: TableOptions, charged: LedgerOptions, run: RunOptions) -> None:
    """Train a private logistic regression on a table, with a privacy budget for every person in it.

    The folder --out gets the model and its card. Steps, clip, learning rate and all else stand in the file that
    --settings names: `almoner init settings` writes one with a comment for each. `almoner score` judges the model by
    other people, and `almoner tune` chooses settings within one budget.
    """
    from almoner.cli._training.settings import TRAIN, read_settings

    given, settings = table.given(), read_settings(run.settings, TRAIN)
    picture, keep = settings.pop("picture"), settings["keep_accounts"]
    out = run.folder(picture)
    on_ledger = charged.on_ledger(settings.pop("analyst"), settings.pop("purpose"))
    settings = _parameters(settings)
    from almoner.training.saved_model import train_to_folder

    given |= settings | {"out": out, "force": run.force, "seed": run.seed, "ledger": on_ledger}
    total = settings["steps"] + settings["descent"].extra_steps * settings["individual"]
    with stopped_in_order(out, charged.ledger, charged.key), progress_bar(quiet=run.as_json) as progress:
        task = progress.add_task("training", total=total)
        trained = train_to_folder(**given, observe=lambda number, _: progress.update(task, completed=number))
    print_trained(trained, run, title=f"{table.data.name}, target {table.target}", picture=picture, keep_accounts=keep)


def tune(
    *,
    table: TableOptions,
    runs: Annotated[float, Option(help="The expected number of runs, of which the best is kept.")] = 10.0,
    on: Annotated[
        Path | None, Option(help="A file of other people, who pay for the scores in place of those in DATA.")
    ] = None,
    run: RunOptions,
) -> None:
    """Try settings within one budget: the best of a random number of trainings is kept, and all of them are paid for.

    The learning rates and clips to try are lists in the file of --settings: learning_rate = [0.25, 1, 4, 16] and
    max_grad_norm = [0.25, 1] by default. The number of runs, and the time that the command takes, must stay secret.
    """
    from almoner.cli._training.settings import TUNE, read_settings

    given, settings = table.given(), read_settings(run.settings, TUNE)
    out = run.folder()
    from almoner.training.saved_model import Tuning, train_to_folder

    grid = {name: settings.pop(name) for name in ("learning_rate", "max_grad_norm")}
    with stopped_in_order(out):
        given |= _parameters(settings) | {"force": run.force, "seed": run.seed}
        trained = train_to_folder(out=out, **given, tune=Tuning(runs, grid, on))
    print_trained(trained, run)


def _parameters(settings: dict[str, Any]) -> dict[str, Any]:
    """Parameters of ``LogisticRegression``, of which some are its descent's."""
    names = ("average", "momentum", "decay", "pace", "extra_steps", "stop_when_inactive")
    descent = almoner.training.Descent(**{name: settings[name] for name in names})
    return {name: value for name, value in settings.items() if name not in names} | {"descent": descent}


Model = Annotated[Path, Argument(help="A folder that `almoner train` wrote.")]
SkipRows = Annotated[int, Option(help="Lines to leave out at the start of the file.")]


def predict(
    model: Model,
    data: Annotated[Path, Argument(help="A file like the one that was trained on; without labels, too.")],
    out: _options.OutFile = None,
    skip_rows: SkipRows = 0,
    force: _options.Force = False,
    as_json: _options.Json = False,
) -> None:
    """Predict with a saved model. The answers are about the people in DATA: they are as private as that file."""
    from almoner.training.saved_model import load

    _options.check_new_file(out, force=force, read=(data,))
    loaded = load(model)
    chances, classes = loaded.predict_proba(data, skip_rows=skip_rows), loaded.classes
    rows = [{"predicted": classes[row.argmax()], **dict(zip(classes, row.tolist(), strict=True))} for row in chances]
    if as_json:
        echo(dumps(rows))
        return
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["predicted", *classes], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _options.tell_or_write(text.getvalue(), out)


def score(
    model: Model,
    file: Annotated[Path, Argument(help="A held-out file with labels, like the one that was trained on.")],
    skip_rows: SkipRows = 0,
    force: _options.Force = False,
    as_json: _options.Json = False,
) -> None:
    """Judge a saved model by other people: accuracy and log loss, in metrics.json of its folder.

    They are computed without noise, and as private as FILE: delete metrics.json before the folder is given away.
    """
    from almoner.training.saved_model import score as judged

    metrics = judged(model, file, skip_rows=skip_rows, force=force)
    words = f"Held-out file: accuracy {metrics['accuracy']:.2%}, {metrics['note']}.\n"
    tell(metrics, words, f"PRIVATE, as {file} is: {model / 'metrics.json'}", as_json=as_json)

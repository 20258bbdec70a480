"""`almoner train` and `almoner predict`: from a table to a private model in a folder, and back."""

import csv
import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown

from almoner.cli._images import ImageOptions, check_options, train_on_images
from almoner.cli._options.common import (
    Delta,
    Epsilon,
    Force,
    Json,
    MaxGradNorm,
    OptionalNoiseMultiplier,
    OutFile,
    OutFolder,
    PrivatePicture,
    Steps,
)
from almoner.cli._options.files import check_free, check_new_file, check_picture
from almoner.cli._shown.json import dumps
from almoner.cli._shown.misfits import print_misfits
from almoner.cli._shown.spends import draw_spends, progress_bar
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.training import OnLedger
    from almoner.training.saved_model import Trained, TrainedOnImages, Tuning

__all__ = ["predict", "train"]

SkipRows = Annotated[int, typer.Option(help="Lines to leave out at the start of DATA.")]

_NO_SCHEMA = (
    "--schema is missing. The bounds of numbers, the categories and the labels must be public: read off the data, they "
    "would tell something about the people in them (the richest person's income is the largest entry). "
    "`almoner train DATA --target COLUMN --init-schema schema.toml` writes a schema to fill in, with the names of the "
    "columns only; `almoner init train --example` writes a schema with comments, and data that it fits"
)


_NO_FOLDER = "--out is missing: the folder for the model"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """A table, and what is public about its columns."""

    data: Annotated[Path | None, typer.Argument(help="A CSV or Parquet file with the people's data.")] = None
    target: Annotated[str | None, typer.Option(help="The column to predict.")] = None
    schema: Annotated[Path | None, typer.Option(help="What is public about the columns: a TOML file.")] = None
    person: Annotated[
        str | None, typer.Option(help="The column that names the person of a row; else each row is a person.")
    ] = None
    test: Annotated[Path | None, typer.Option(help="A held-out file with labels, for the metrics.")] = None
    skip_rows: SkipRows = 0
    test_skip_rows: Annotated[int, typer.Option(help="The same for the held-out file.")] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions:
    """A budget for every person."""

    epsilon: Epsilon = 1.0
    delta: Delta = 1e-5
    individual: Annotated[bool, typer.Option(help="An account for each person, or one worst case.")] = True
    noise_multiplier: OptionalNoiseMultiplier = None
    stop_when_inactive: Annotated[
        float | None,
        typer.Option(help="Stop, after --steps, when noisy counts say that this share of people has no budget left."),
    ] = None
    keep_accounts: Annotated[
        bool, typer.Option("--keep-accounts", help="PRIVATE: write OUT.accounts, for `almoner statement OUT`.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentOptions:
    """Settings of gradient descent."""

    steps: Steps = 200
    extra_steps: Annotated[int, typer.Option(help="Steps more than the noise is planned for.")] = 0
    pace: Annotated[
        float, typer.Option(help="How evenly budgets are spread over the steps that are left: 1 evenly, 0 not at all.")
    ] = 1.0
    max_grad_norm: MaxGradNorm = 1.0
    learning_rate: Annotated[
        float | None, typer.Option(help="Step size on the mean gradient; else as large as the noise allows.")
    ] = None
    average: Annotated[float, typer.Option(help="Share of the last iterates that are averaged.")] = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerOptions:
    """A ledger that is charged in place of budgets of this training's own."""

    ledger: Annotated[
        str | None, typer.Option(help="Charge this ledger, which questions charge too; needs --key and --person.")
    ] = None
    key: Annotated[str | None, typer.Option(help="A name for this training on the ledger.")] = None
    analyst: Annotated[str, typer.Option(help="Whose limits on the ledger hold.")] = "training"
    purpose: Annotated[str | None, typer.Option(help="The purpose whose limits on the ledger hold.")] = None

    def on_ledger(self) -> "OnLedger | None":
        """Where the training is charged; None where it has a budget of its own."""
        from almoner.training import OnLedger

        if (self.ledger is None) != (self.key is None):
            raise ArgumentError("--ledger and --key belong together: a training is charged once, under its name")
        if self.ledger is None or self.key is None:
            return None
        return OnLedger(self.ledger, self.key, self.analyst, self.purpose)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOptions:
    """Settings that are tried."""

    tune: Annotated[
        float | None,
        typer.Option(
            help="Try settings: the expected number of runs, of which the best is kept; all of them are paid for."
        ),
    ] = None
    tune_learning_rate: Annotated[str, typer.Option(help="The learning rates to try.")] = "1,4,16,64"
    tune_max_grad_norm: Annotated[str, typer.Option(help="The clips to try.")] = "0.25,1"
    tune_on: Annotated[
        Path | None, typer.Option(help="A file of other people, who pay for the scores in place of those in DATA.")
    ] = None

    def tuning(self) -> "Tuning | None":
        """Which settings are tried; None where those of the other options are taken."""
        if self.tune is None:
            return None
        from almoner.training.saved_model import Tuning

        rates, clips = _numbers(self.tune_learning_rate), _numbers(self.tune_max_grad_norm)
        return Tuning(self.tune, {"learning_rate": rates, "max_grad_norm": clips}, self.tune_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookOptions:
    """Looks at a table that train nothing."""

    init_schema: Annotated[Path | None, typer.Option(help="Only write a schema to fill in, then stop.")] = None
    check: Annotated[
        bool, typer.Option("--check", help="PRIVATE: only count the entries that cannot be read, then stop.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """Places for the results."""

    out: OutFolder = None
    picture: PrivatePicture = None
    force: Force = False
    as_json: Json = False


def train(
    ctx: typer.Context,
    *,
    table: TableOptions,
    budget: BudgetOptions,
    descent: DescentOptions,
    charged: LedgerOptions,
    tuned: TuningOptions,
    look: LookOptions,
    pictured: ImageOptions,
    seed: Annotated[
        int | None, typer.Option(help="Repeats the run on the same machine and versions: NOT private.")
    ] = None,
    output: OutputOptions,
) -> None:
    """Train a private logistic regression on a table, or on images, with a privacy budget for every person in it.

    The whole clip can be paid for in every one of --steps; without --noise-multiplier the noise is the least that the
    budget allows. The folder --out gets the model, its card and its metrics, --picture what each person has spent.
    With --stop-when-inactive, which needs --extra-steps and a --pace below 1, the counts cost 1 % of each budget.
    With --tune the best of a random number of runs is kept, by a noisy score. Their number must stay secret, and so
    must the time that the command takes.
    With --images, steps, clip and rate are tuned already; the classes, the kind of images and about how many people
    there are must be stated, because they are public.
    """
    out, as_json = output.out, output.as_json
    check_options(ctx)
    if pictured.images is not None:
        shared = {"epsilon": budget.epsilon, "delta": budget.delta, "test": table.test, "seed": seed}
        _train_on_images(pictured.images, pictured, output, keep_accounts=budget.keep_accounts, **shared)
        return
    data, target = table.data, table.target
    if data is None or target is None:
        raise ArgumentError(_missing(data, target))
    if look.init_schema is not None or look.check:
        _look(data, target, table, look, output)
        return
    if table.schema is None or out is None:
        raise ArgumentError(_NO_SCHEMA if table.schema is None else _NO_FOLDER)
    _check_tuning(ctx)
    tuning = tuned.tuning()
    _check_private_picture(output.picture, out, force=output.force)
    from almoner.training.saved_model import train_to_folder

    on_ledger, stopped = charged.on_ledger(), _stopped(out, charged.ledger, charged.key)
    with stopped_in_order(stopped), progress_bar(quiet=as_json or tuning is not None) as progress:
        task = progress.add_task("training", total=descent.steps + descent.extra_steps * budget.individual)
        trained = train_to_folder(
            out=out,
            **asdict(table),
            **_settings(asdict(budget) | asdict(descent)),
            force=output.force,
            observe=None if tuning else lambda number, _: progress.update(task, completed=number),
            seed=seed,
            ledger=on_ledger,
            tune=tuning,
        )
    private = draw_spends(trained.holder_report, output.picture, f"{data.name}, target {target}")
    _print_trained(trained, out, private, kept=budget.keep_accounts, as_json=as_json)


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """Parameters of ``LogisticRegression``, of which some are its descent's."""
    from almoner.training import Descent

    own = {name: given.pop(name) for name in ("average", "pace", "extra_steps", "stop_when_inactive")}
    return given | {"descent": Descent(**own)}


def _stopped(out: Path | None, ledger: str | None, key: str | None) -> str:
    """Words for a training that is stopped."""
    if ledger is None:
        return f"Stopped: {out} was not written, and nothing about people was told. Run the same command again."
    return (
        f"Stopped: {out} was not written. What the steps so far have cost stays charged on {ledger} as {key!r}, and "
        "the rest was given back. To train again: the same command with another --key"
    )


def _missing(data: Path | None, target: str | None) -> str:
    if data is None:
        return f"DATA {'is' if target is not None else 'and --target are'} missing; or give --images"
    return "--target is missing: the column to predict"


def _train_on_images(
    images: Path, told: ImageOptions, output: OutputOptions, *, keep_accounts: bool, **shared: Any
) -> None:
    """Train on images, with the options that tables have too."""
    out, picture = output.out, output.picture
    if out is None:
        raise ArgumentError(_NO_FOLDER)
    _check_private_picture(picture, out, force=output.force)
    with stopped_in_order(_stopped(out, None, None)):
        trained = train_on_images(
            images, told, out, quiet=output.as_json, force=output.force, keep_accounts=keep_accounts, **shared
        )
    private = draw_spends(trained.holder_report, picture, images.name)
    _print_trained(trained, out, private, kept=keep_accounts, as_json=output.as_json)


class _Told(BaseException):
    """SIGTERM, as an error."""


def _tell(_number: int, _frame: object) -> None:
    raise _Told


@contextmanager
def stopped_in_order(words: str) -> Iterator[None]:
    """Say these words where a command is stopped: exit code 130 after Ctrl-C, 143 after SIGTERM."""
    heard = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if heard:
        signal.signal(signal.SIGTERM, _tell)
    try:
        yield
    except (KeyboardInterrupt, _Told) as stopped:
        print(words, file=sys.stderr)
        raise typer.Exit(128 + (signal.SIGTERM if isinstance(stopped, _Told) else signal.SIGINT)) from None
    finally:
        if heard:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def predict(
    model: Annotated[Path, typer.Argument(help="A folder that `almoner train` wrote.")],
    data: Annotated[
        Path, typer.Argument(help="A file like the one that was trained on, or images; without labels, too.")
    ],
    out: OutFile = None,
    skip_rows: SkipRows = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict with a saved model. The answers are about the people in DATA: they are as private as that file."""
    from almoner.training.saved_model import load

    if out is not None:
        check_new_file(out, force=force, read=(data,))
    loaded = load(model)
    probabilities, classes = loaded.predict_proba(data, skip_rows=skip_rows), loaded.classes
    rows = [
        {"predicted": classes[row.argmax()]} | dict(zip(classes, row.tolist(), strict=True)) for row in probabilities
    ]
    if as_json:
        typer.echo(dumps(rows))
        return
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["predicted", *classes], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if out is None:
        typer.echo(text.getvalue().encode("utf-8"), nl=False)  # as in a file, whatever the terminal shows
    else:
        out.write_text(text.getvalue(), encoding="utf-8")


def _check_private_picture(picture: Path | None, out: Path, *, force: bool) -> None:
    """Refuse a private picture inside the folder of the public model, and one that would overwrite a file."""
    check_picture(picture, makes_folder=True)
    if picture is None:
        return
    if out.resolve() in picture.resolve().parents:
        raise ArgumentError(f"{picture} is private, and {out} holds what may be given away")
    for path in (picture, picture.with_suffix(".json")):
        check_free(path, force=force)


def _check_tuning(ctx: typer.Context) -> None:
    """Refuse options of tuning without --tune, and with it those that would be ignored, or would mislead."""
    tuned = ctx.params["tune"] is not None
    for parameter in ctx.command.params:
        name, option = str(parameter.name), parameter.opts[0]
        source = ctx.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        if name.startswith("tune_") and not tuned:
            raise ArgumentError(f"{option} needs --tune")
        if name in ("learning_rate", "max_grad_norm") and tuned:
            raise ArgumentError(f"{option}: with --tune give the values to try, --tune-{option.removeprefix('--')}")
        if name == "picture" and tuned:
            raise ArgumentError("--picture: what people spent in the best run alone is not what they paid with --tune")


def _numbers(listed: str) -> list[float]:
    try:
        return [float(each) for each in listed.split(",")]
    except ValueError as error:
        raise ArgumentError(f"{listed!r} must be numbers with commas between them") from error


def _print_trained(
    trained: "Trained | TrainedOnImages", out: Path, private: list[str], *, kept: bool, as_json: bool
) -> None:
    from almoner.training.saved_model import accounts_file

    private = [*private, *([str(accounts_file(out))] if kept else [])]
    card = trained.card
    if card.delta * card.divisor > 1:  # the divisor is the public number of people
        few = "choose a delta far below one in the number of people"
        print(
            f"delta = {card.delta:g} allows a model to show one of {card.divisor:g} people in full: {few}",
            file=sys.stderr,
        )
    if as_json:
        values = {"out": str(out), "metrics": trained.metrics, "card": trained.card.to_dict(), "private": private}
        typer.echo(dumps(values))
        return
    console = Console()
    console.print(Markdown(trained.card.to_markdown()))
    if trained.metrics is not None:
        console.print(f"\nHeld-out file: accuracy {trained.metrics['accuracy']:.2%}, {trained.metrics['note']}.")
    console.print(f"\nWritten to {out}" + "".join(f"; PRIVATE: {path}" for path in private))


def _look(data: Path, target: str, table: TableOptions, look: LookOptions, output: OutputOptions) -> None:
    """Write a schema to fill in, or count the entries that cannot be read by one. Trains nothing."""
    if look.init_schema is not None:
        _write_template(data, target, table.person, look.init_schema, force=output.force, as_json=output.as_json)
        return
    if table.schema is None:
        raise ArgumentError(_NO_SCHEMA)
    from almoner.training.tables import Schema, misfits

    schema = Schema.read(table.schema, target=target, person=table.person)
    print_misfits(misfits(data, schema, skip_rows=table.skip_rows), as_json=output.as_json)


def _write_template(data: Path, target: str, person: str | None, path: Path, *, force: bool, as_json: bool) -> None:
    from almoner.training.saved_model import schema_template

    text = schema_template(data, target=target, person=person)
    check_free(path, force=force)
    path.write_text(text, encoding="utf-8")
    if as_json:
        typer.echo(dumps({"schema": str(path)}))
    else:
        typer.echo(f"{path}: fill in what is publicly known about the columns")

"""`bursar train`, `bursar predict` and `bursar demo`: arguments in, text out."""

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bursar.cli._files import kept, new_file, picture
from bursar.cli._json import dumps
from bursar.errors import ArgumentError

__all__ = ["add", "demo", "predict", "train"]


def add(app: typer.Typer) -> None:
    """Add the commands of this module to the command line."""
    for command in (train, predict, demo):
        app.command()(command)


def train(
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file with the people's data.")],
    target: Annotated[str, typer.Option(help="The column to predict.")],
    schema: Annotated[Path | None, typer.Option(help="What is public about the columns: a TOML file.")] = None,
    person: Annotated[str | None, typer.Option(help="Whose row it is; else each row is a person.")] = None,
    out: Annotated[Path | None, typer.Option(help="The folder for model, metrics and card.")] = None,
    epsilon: Annotated[float, typer.Option(help="The budget of every person.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The probability with which the promise may fail.")] = 1e-5,
    test: Annotated[Path | None, typer.Option(help="A held-out file with labels, for the metrics.")] = None,
    steps: Annotated[int, typer.Option(help="Steps that the whole clip can be paid for.")] = 200,
    extra_steps: Annotated[int, typer.Option(help="Further steps, for people with budget left.")] = 50,
    max_grad_norm: Annotated[float, typer.Option(help="The clip. Rows have norm 1 at most.")] = 1.0,
    learning_rate: Annotated[float, typer.Option(help="Step size on the mean gradient.")] = 16.0,
    average: Annotated[float, typer.Option(help="Share of the last iterates that are averaged.")] = 0.5,
    individual: Annotated[bool, typer.Option(help="An account for each person, or one worst case.")] = True,
    accounting: Annotated[str, typer.Option(help="gaussian (exact) or renyi.")] = "gaussian",
    noise_multiplier: Annotated[float | None, typer.Option(help="Noise over clip; else from the budget.")] = None,
    skip_rows: Annotated[int, typer.Option(help="Lines to leave out at the start of DATA.")] = 0,
    test_skip_rows: Annotated[int, typer.Option(help="The same for the held-out file.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Makes the run reproducible and NOT private.")] = None,
    holder_report: Annotated[Path | None, typer.Option(help="PRIVATE picture of people's spends, .png.")] = None,
    init_schema: Annotated[Path | None, typer.Option(help="Only write a schema to fill in, then stop.")] = None,
    force: Annotated[bool, typer.Option(help="Overwrite a model that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Train a private logistic regression on a table, with a privacy budget for every person in it."""
    if init_schema is not None:
        _write_template(data, target, person, init_schema, force=force, as_json=as_json)
        return
    if schema is None:
        raise ArgumentError(_NO_SCHEMA)
    if out is None:
        raise ArgumentError("--out is missing: the folder for the model")
    picture(holder_report, makes_folder=True)
    if holder_report is not None:
        if out.resolve() in holder_report.resolve().parents:
            raise ArgumentError(f"{holder_report} is private, and {out} holds what may be given away")
        for made in (holder_report, holder_report.with_suffix(".json")):
            kept(made, force=force)
    options = {
        "epsilon": epsilon,
        "delta": delta,
        "steps": steps,
        "extra_steps": extra_steps,
        "max_grad_norm": max_grad_norm,
        "learning_rate": learning_rate,
        "average": average,
        "individual": individual,
        "accounting": accounting,
        "noise_multiplier": noise_multiplier,
        "seed": seed,
    }
    files = {"test": test, "skip_rows": skip_rows, "test_skip_rows": test_skip_rows}
    trained = _train(data, schema, target, person, out, options, files, force=force, quiet=as_json)
    private = _draw(trained.holder_report, holder_report, f"{data.name}, target {target}") if holder_report else []
    _tell(trained, out, private, as_json=as_json)


def predict(
    model: Annotated[Path, typer.Argument(help="A folder that `bursar train` wrote.")],
    data: Annotated[Path, typer.Argument(help="A CSV or Parquet file; it needs no target column.")],
    out: Annotated[Path | None, typer.Option(help="Where the answers go, as CSV; else they are printed.")] = None,
    skip_rows: Annotated[int, typer.Option(help="Lines to leave out at the start of DATA.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict with a saved model. The answers are about the people in DATA: they are as private as that file."""
    from bursar.training._logistic import model_folder

    if out is not None:
        new_file(out, force=force, read=(data,))
    loaded = model_folder.load(model)
    chances = loaded.predict_proba(data, skip_rows=skip_rows)
    classes = loaded.schema.classes
    rows = [{"predicted": classes[row.argmax()]} | dict(zip(classes, row.tolist(), strict=True)) for row in chances]
    if as_json:
        _print_json(rows)
        return
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["predicted", *classes], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if out is None:
        typer.echo(text.getvalue(), nl=False)
    else:
        out.write_text(text.getvalue(), encoding="utf-8")


def demo(
    data: Annotated[Path | None, typer.Option(help="The folder of UCI Adult: adult.data, adult.test.")] = None,
    epsilon: Annotated[float, typer.Option(help="The budget of every person.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The probability with which the promise may fail.")] = 1e-5,
    runs: Annotated[int, typer.Option(help="How many models of each private kind.")] = 5,
    out: Annotated[Path, typer.Option(help="The folder for the PRIVATE picture and its numbers.")] = Path("demo"),
    force: Annotated[bool, typer.Option(help="Overwrite the picture of an earlier run.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Census income without privacy, with private gradient descent, and with a budget for every person."""
    from bursar.training import _demo as show

    folder = show.adult_folder(data)
    if data is not None and folder is None:
        raise ArgumentError(f"data={str(data)!r} does not hold adult.data and adult.test")
    picture = out / "spends-private.png"
    kept(picture, force=force)
    with _progress(quiet=as_json) as progress:
        task = progress.add_task("training", total=None)
        found = show.run(
            folder,
            epsilon=epsilon,
            delta=delta,
            runs=runs,
            told=lambda method, done, of: progress.update(task, description=method, completed=done, total=of),
        )
    private = _draw(found.holder_report, picture, f"{found.data}, epsilon {epsilon:g}")
    if as_json:
        _print_json(found.to_dict() | {"private": private})
        return
    _tell_demo(found, private, runs)


_NO_SCHEMA = (
    "--schema is missing. The bounds of numbers, the categories and the labels must be public: read off the data, they "
    "would tell something about the people in them (the richest person's income is the largest entry). "
    "`bursar train DATA --target COLUMN --init-schema schema.toml` writes a schema to fill in, with the names of the "
    "columns only"
)


def _train(
    data: Path,
    schema: Path,
    target: str,
    person: str | None,
    out: Path,
    options: dict[str, Any],
    files: dict[str, Any],
    *,
    force: bool,
    quiet: bool,
) -> Any:
    """Train with a progress bar, and save."""
    from bursar.training._logistic import model_folder
    from bursar.training._logistic.schema import Schema

    model_folder.check_free(out, force=force)
    known = Schema.read(schema, target=target, person=person)
    with _progress(quiet=quiet) as progress:
        task = progress.add_task("training", total=options["steps"] + options["extra_steps"] * options["individual"])
        trained = model_folder.train(
            data, known, observe=lambda number, parameters: progress.update(task, completed=number), **files, **options
        )
    model_folder.save(trained, out, force=force)
    return trained


def _tell(trained: Any, out: Path, private: list[str], *, as_json: bool) -> None:
    """Card and metrics on the screen."""
    if as_json:
        _print_json({"out": str(out), "metrics": trained.metrics, "card": trained.card.to_dict(), "private": private})
        return
    console = Console()
    console.print(Markdown(trained.card.to_markdown()))
    if trained.metrics is not None:
        console.print(f"\nHeld-out file: accuracy {trained.metrics['accuracy']:.2%}, {trained.metrics['note']}.")
    console.print(f"\nWritten to {out}" + "".join(f"; PRIVATE: {path}" for path in private))


def _tell_demo(found: Any, private: list[str], runs: int) -> None:
    """The table of the demonstration on the screen."""
    console = Console()
    table = Table(title=f"{found.data}: {found.people:,} people", caption=f"private: mean ± spread of {runs} runs")
    for column in ("trained with", "epsilon", "delta", "test accuracy", "seconds"):
        table.add_column(column, justify="left" if column == "trained with" else "right")
    for line in found.lines:
        spread = f" ± {line.spread:.2f}" if line.runs > 1 else ""
        promise = ("-", "-") if line.epsilon is None else (f"{line.epsilon:g}", f"{found.delta:g}")
        table.add_row(line.method, *promise, f"{line.accuracy:.2f} %{spread}", f"{line.seconds:.2f}")
    console.print(table)
    console.print(
        f"The promise of each run is for adding or removing one person. Charged, with a budget for every person: "
        f"{found.card.charged_at_most}. Each run is a release of its own."
    )
    console.print(f"How people's budgets were spent (private: for the data holder): {', '.join(private)}")


def _write_template(data: Path, target: str, person: str | None, path: Path, *, force: bool, as_json: bool) -> None:
    from bursar.training._logistic import tables
    from bursar.training._logistic.schema import template

    names = tables.column_names(data)
    for name in (target, *([person] if person else [])):
        if name not in names:
            raise ArgumentError(f"{data} has no column {name!r}")
    kept(path, force=force)
    path.write_text(template(names, target, person), encoding="utf-8")
    if as_json:
        _print_json({"schema": str(path)})
    else:
        typer.echo(f"{path}: fill in what is publicly known about the {len(names)} columns")


def _draw(report: Any, path: Path, title: str) -> list[str]:
    """The data holder's picture and numbers; private."""
    from bursar.report import spends

    return [str(made) for made in spends(report, path, title=title)]


def _progress(*, quiet: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), disable=quiet, transient=True)


def _print_json(value: Any) -> None:
    typer.echo(dumps(value))

"""`almoner predict` and `almoner score`: what a trained model says of other people, and how well."""

import csv
import io
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from almoner.cli._options import Force, Json, OutFile, check_new_file, tell_or_write
from almoner.cli._shown import dumps

__all__ = ["predict", "score"]

Model = Annotated[Path, typer.Argument(help="A folder that `almoner train` wrote.")]
SkipRows = Annotated[int, typer.Option(help="Lines to leave out at the start of the file.")]


def predict(
    model: Model,
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
    tell_or_write(text.getvalue(), out)


def score(
    model: Model,
    file: Annotated[Path, typer.Argument(help="A held-out file with labels, like the one that was trained on.")],
    skip_rows: SkipRows = 0,
    features: Annotated[Path | None, typer.Option(help="A PRIVATE folder where features of images are kept.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Judge a saved model by other people: accuracy and log loss, in metrics.json of its folder.

    They are computed without noise, and as private as FILE: delete metrics.json before the folder is given away.
    """
    from almoner.training.saved_model import score as judged

    metrics = judged(model, file, skip_rows=skip_rows, features=features, force=force)
    if as_json:
        print(dumps(metrics))
        return
    console = Console()
    console.print(f"Held-out file: accuracy {metrics['accuracy']:.2%}, {metrics['note']}.", highlight=False)
    console.print(f"\nPRIVATE, as {file} is: {model / 'metrics.json'}", markup=False, soft_wrap=True)

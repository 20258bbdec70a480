"""The command line: each command reads its arguments, calls the library and prints what it returns.

An option means the same in every command. `--noise-multiplier` is the standard deviation of the noise of one step
divided by the clip, `--max-grad-norm`; the absolute noise is called sigma, in files of questions and in Python.

Exit codes: 0 done; 1 a budget, a calibration or a ledger refuses, or a check fails; 2 an argument, a file or a table
breaks a rule; 3 an optional library is not installed; 130 or 143 a training was stopped by Ctrl-C or SIGTERM.

`--json` prints strict JSON; numbers that are not finite are the strings "inf", "-inf" and "nan".
"""

from typing import Annotated

from typer import Exit, Option, Typer

from almoner import __version__
from almoner.cli._accounting import calibrate, compare, epsilon, losses
from almoner.cli._audit import audit
from almoner.cli._demo import demo
from almoner.cli._init import init
from almoner.cli._ledger import ledger_commands, statement
from almoner.cli._options import Commands, flattened
from almoner.cli._queries import query
from almoner.cli._serve import serve
from almoner.cli._training import commands as training

__all__ = ["app"]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"almoner {__version__}")
        raise Exit


app = Typer(
    cls=Commands,
    pretty_exceptions_show_locals=False,  # they may be private, or hold a password
    help="A privacy account for every person.",
    epilog=(
        "Example: almoner demo --runs 1 --out demo\n\n"
        "Example: almoner epsilon --noise-multiplier 1.1 --sample-rate 0.01 --steps 1000\n\n"
        "Example: almoner init query clinic --example"
    ),
)
_PLAN, _PUBLISH = "Plan the budget", "Publish statistics"
_TABLE = "people.csv --target income --schema schema.toml --epsilon 1"
_IMAGES = "almoner train-images bars.npz --classes level,upright --people 200 --kind strokes --drawings 99 --out bars"
for _command, _panel, *_examples in (
    (demo, "Start", "almoner demo --runs 1 --out demo"),
    (epsilon, _PLAN, "almoner epsilon --noise-multiplier 1.1 --sample-rate 0.01 --steps 1000"),
    (calibrate, _PLAN, "almoner calibrate --epsilon 1 --delta 1e-6 --steps 100"),
    (compare, _PLAN, "almoner compare --mechanism gaussian --noise-multiplier 20 --steps 100"),
    (losses, _PLAN, "almoner losses norms.npy --noise-multiplier 2 --sample-rate 0.005 --steps 1000"),
    (training.schema, "Train", "almoner schema people.csv --target income --out template.toml"),
    (training.train, "Train", f"almoner train {_TABLE} --out model"),
    (training.tune, "Train", f"almoner tune {_TABLE} --runs 2 --out tuned"),
    (training.train_images, "Train", _IMAGES),
    (training.score, "Train", "almoner score model others.csv"),
    (training.predict, "Train", "almoner predict model others.csv --out answers.csv"),
    (statement, _PUBLISH, "almoner statement people.ledger --person 17"),
    (serve, _PUBLISH, "almoner serve policy.toml --check", "almoner serve --new-token"),
):
    _epilog = "\n\n".join(f"Example: {example}" for example in _examples)
    app.command(epilog=_epilog, rich_help_panel=_panel)(flattened(_command))
_groups = (init, "init", "Start"), (query, "query", _PUBLISH), (ledger_commands, "ledger", _PUBLISH)
for _group, _name, _panel in (*_groups, (audit, "audit", "Check")):
    app.add_typer(_group, name=_name, rich_help_panel=_panel)


@app.callback()
def main(
    version: Annotated[
        bool, Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A privacy account for every person."""

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
from almoner.cli._options import Commands, added, examples
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
    rich_markup_mode=None,
    pretty_exceptions_show_locals=False,  # they may be private, or hold a password
    help="A privacy account for every person.",
    epilog=examples(
        "demo --runs 1 --out demo",
        "epsilon --noise-multiplier 1.1 --sample-rate 0.01 --steps 1000",
        "init query clinic --example",
    ),
)
_PLAN, _PUBLISH = "Plan the budget", "Publish statistics"
_TABLE = "people.csv --target income --schema schema.toml --epsilon 1"
for _command, _name, _panel, *_examples in (
    (demo, "demo", "Start", "--runs 1 --out demo"),
    (epsilon, "epsilon", _PLAN, "--noise-multiplier 1.1 --sample-rate 0.01 --steps 1000"),
    (calibrate, "calibrate", _PLAN, "--epsilon 1 --delta 1e-6 --steps 100"),
    (compare, "compare", _PLAN, "--mechanism gaussian --noise-multiplier 20 --steps 100"),
    (losses, "losses", _PLAN, "norms.npy --noise-multiplier 2 --sample-rate 0.005 --steps 1000"),
    (training.schema, "schema", "Train", "people.csv --target income --out template.toml"),
    (training.train, "train", "Train", f"{_TABLE} --out model"),
    (training.tune, "tune", "Train", f"{_TABLE} --runs 2 --out tuned"),
    (training.score, "score", "Train", "model others.csv"),
    (training.predict, "predict", "Train", "model others.csv --out answers.csv"),
    (statement, "statement", _PUBLISH, "people.ledger --person 17"),
    (serve, "serve", _PUBLISH, "policy.toml --check", "--new-token"),
):
    added(app, _name, *_examples, panel=_panel)(_command)
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

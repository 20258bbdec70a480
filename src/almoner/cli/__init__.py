"""The command line: each command reads its arguments, calls the library and prints what it returns.

An option means the same in every command. `--noise-multiplier` is the standard deviation of the noise of one step
divided by the clip, `--max-grad-norm`; the absolute noise is called sigma, in files of questions and in Python.

Exit codes: 0 done; 1 a budget, a calibration or a ledger refuses, or a check fails; 2 an argument, a file or a table
breaks a rule; 3 an optional library is not installed; 130 or 143 a training was stopped by Ctrl-C or SIGTERM.

`--json` prints strict JSON; numbers that are not finite are the strings "inf", "-inf" and "nan".
"""

from typing import Annotated

import typer

from almoner import __version__
from almoner.cli import (
    _accounting,
    _audit,
    _compare,
    _datasets,
    _init,
    _ledger_upkeep,
    _losses,
    _queries,
    _serve,
    _statements,
    _training,
)
from almoner.cli._demo import run
from almoner.cli._options.groups import Commands

__all__ = ["app"]


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"almoner {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    pretty_exceptions_show_locals=False,  # they may be private, or hold a password
    help="A privacy account for every person.",
    epilog=(
        "Example: almoner demo --runs 1 --out demo\n\n"
        "Example: almoner epsilon --noise-multiplier 1.1 --sample-rate 0.01 --steps 1000\n\n"
        "Example: almoner init query clinic --example"
    ),
)
for _commands in (
    run,
    _init,
    _accounting,
    _compare,
    _losses,
    _training,
    _queries,
    _statements,
    _serve,
    _ledger_upkeep,
    _datasets,
    _audit,
):
    _commands.add(app)


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A privacy account for every person."""

"""The command line: each command reads its arguments, calls the library and prints what it returns.

An option means the same in every command. `--noise-multiplier` is the standard deviation of the noise of one step
divided by the clip, `--max-grad-norm`; the absolute noise is called sigma, in files of questions and in Python.

Exit codes: 0 done; 1 a budget, a calibration or a ledger refuses, or a check fails; 2 an argument, a file or a table
breaks a rule; 3 an optional library is not installed.

`--json` prints strict JSON; numbers that are not finite are the strings "inf", "-inf" and "nan".
"""

from typing import Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from bursar import __version__
from bursar.cli import (
    _accounting,
    _audit,
    _compare,
    _copies,
    _datasets,
    _demo,
    _init,
    _losses,
    _queries,
    _serve,
    _statements,
    _training,
)
from bursar.errors import ArgumentError, BursarError, DataError, MissingExtra

__all__ = ["app"]


class _Commands(TyperGroup):
    """Turns errors of the library into one line on the error stream and an exit code."""

    def invoke(self, ctx: Any) -> object:
        try:
            return super().invoke(ctx)
        except BursarError as error:
            Console(stderr=True).print(f"[bold red]{type(error).__name__}[/]: ", end="")
            Console(stderr=True).print(str(error), markup=False, highlight=False, soft_wrap=True)
            usage = isinstance(error, ArgumentError | DataError)
            raise typer.Exit(2 if usage else 3 if isinstance(error, MissingExtra) else 1) from None
        except BrokenPipeError:  # the reader of the output stopped reading
            raise
        except OSError as error:  # a file that cannot be written: its name and why
            Console(stderr=True).print(
                f"{type(error).__name__}: {error}", markup=False, highlight=False, soft_wrap=True
            )
            raise typer.Exit(2) from None


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"bursar {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,  # they may be private, or hold a password
    help="A privacy account for every person.",
)
for _commands in (
    _init,
    _accounting,
    _compare,
    _losses,
    _training,
    _demo,
    _queries,
    _statements,
    _serve,
    _copies,
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

"""Options and manners of all commands that train: where they write, how they stop, what they print at the end."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from almoner.cli._options import Force, Json, OutFolder, check_free, check_picture
from almoner.cli._shown import draw_spends, dumps
from almoner.errors import ArgumentError

if TYPE_CHECKING:
    from almoner.training.saved_model import Trained

__all__ = ["RunOptions", "print_trained", "stopped_in_order"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Settings of a run, and a place for the model."""

    out: OutFolder = None
    settings: Annotated[
        Path | None, typer.Option(help="More settings: a TOML file. `almoner init settings` writes one with comments.")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Repeats the run on the same machine and versions: NOT private.")] = (
        None
    )
    force: Force = False
    as_json: Json = False

    def folder(self, picture: Path | None = None) -> Path:
        """The folder for the model; refuses a private picture inside of it, or where it would overwrite a file."""
        if self.out is None:
            raise ArgumentError("--out is missing: the folder for the model")
        check_picture(picture, makes_folder=True)
        if picture is not None:
            if self.out.resolve() in picture.resolve().parents:
                raise ArgumentError(f"{picture} is private, and {self.out} holds what may be given away")
            for path in (picture, picture.with_suffix(".json")):
                check_free(path, force=self.force)
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
        raise typer.Exit(128 + (signal.SIGTERM if isinstance(stopped, _Told) else signal.SIGINT)) from None
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
    console = Console()
    console.print(Markdown(card.to_markdown()))
    console.print(f"\nWritten to {out}" + "".join(f"; PRIVATE: {path}" for path in private))

"""Commands that are stopped: Ctrl-C and SIGTERM end them in good order, and say how to go on."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["stopped_in_order"]


class _Told(BaseException):
    """SIGTERM, as an error."""


def _tell(number: int, frame: object) -> None:
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

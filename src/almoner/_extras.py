"""Optional libraries: import them where they are needed, and name the extra that brings one that is missing."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from almoner.errors import MissingExtra


@contextmanager
def need(*libraries: str, extra: str) -> Iterator[None]:
    """Import optional libraries, which an extra brings, inside a ``with`` block; raises MissingExtra where one lacks.

    A library that cannot be imported because a different one is missing is reported by Python itself.
    """
    try:
        yield
    except ImportError as error:
        missing = (error.name or libraries[0]).partition(".")[0]
        if missing not in libraries:
            raise
        lacking = sorted({missing, *filter(gone, libraries)})
        are = "is" if len(lacking) == 1 else "are"
        cure = f"`pip install '.[{extra}]'` in your checkout of Almoner"
        raise MissingExtra(f"{' and '.join(lacking)} {are} not installed: {cure}") from error


def gone(library: str) -> bool:
    """True if a library is not installed."""
    try:
        return find_spec(library) is None
    except (ImportError, ValueError):  # where Python ends, or another module stands for it
        return library not in sys.modules

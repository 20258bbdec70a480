"""Optional libraries: import them where they are needed, and name the extra that brings one that is missing."""

import sys
from collections.abc import Iterator, Mapping
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
        lacking = {missing, *filter(_gone, libraries)}
        raise _refused(dict.fromkeys(sorted(lacking), extra)) from error


def _gone(library: str) -> bool:
    try:
        return find_spec(library) is None
    except (ImportError, ValueError):  # where Python ends, or another module stands for it
        return library not in sys.modules


def _refused(lacking: Mapping[str, str]) -> MissingExtra:
    are = "is" if len(lacking) == 1 else "are"
    extras = ",".join(dict.fromkeys(lacking.values()))
    return MissingExtra(f"{' and '.join(lacking)} {are} not installed: `pip install 'almoner[{extras}]'`")

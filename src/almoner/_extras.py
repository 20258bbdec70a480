"""Optional libraries: import them where they are needed, and name the extra that brings one that is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

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
        cure = f"pip install '.[{extra}]' in your checkout of Almoner"
        raise MissingExtra(f"{missing} is not installed: {cure}") from error

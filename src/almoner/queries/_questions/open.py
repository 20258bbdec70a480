"""Check an open question: an ``error`` in place of noise, and "auto" in place of a clip or bounds."""

import re
from typing import NamedTuple

from almoner._check import told
from almoner.errors import ArgumentError

__all__ = ["SHARE", "Target", "check_auto", "target"]

SHARE = r"\s*(\d+(?:\.\d*)?|\.\d+)\s*%\s*(?:of\s+(\d[\d_]*(?:\.\d*)?(?:[eE]\+?\d+)?)\s*)?"
"""Pattern of an error that is a share."""


class Target(NamedTuple):
    """Error that an answer may have: ``amount`` in its units, or times ``of``; of its own size where that is None."""

    amount: float
    relative: bool
    of: float | None = None


def target(error: object) -> Target:
    """An ``error`` as numbers.

    Raises:
        ArgumentError: it is no positive number, and no share such as "2%" or "2% of 5000".
    """
    if isinstance(error, str):
        match = re.fullmatch(SHARE, error)
        if match:
            size = None if match[2] is None else float(match[2])
            read = Target(float(match[1]) / 100, relative=True, of=size)
            if 0 < read.amount <= 1e3 and (size is None or 0 < size <= 1e100):
                return read
    elif isinstance(error, int | float) and not isinstance(error, bool) and 0 < error <= 1e100:
        return Target(float(error), relative=False)
    raise ArgumentError(f"{told(error=error)} must be a number above 0, or a share such as '2%' or '2% of 5000'")


def check_auto(clip: object, most: float | None, *, sigma: object, error: object) -> None:
    """Refuse "auto" where there is nothing to choose, or no price to weigh it by.

    Args:
        clip: of the question.
        most: the longest that a contribution to a group can be by what the question is; None for no such bound.
        sigma, error: of the question.
    """
    if clip == "auto" and most is not None:
        raise ArgumentError("clip='auto': nobody counts for more than one full row here; leave clip= out")
    if sigma is not None or error is not None:
        raise ArgumentError("'auto' weighs clipping against the noise that a price buys: give rho= or epsilon=")

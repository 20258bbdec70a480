"""What a clip took away from an answer: how it is reported, and what the report says.

The report is one more number for each cell of an answer: the sum over people of what the clip took away from the cell's
first coordinate, up to the length ``at_most`` that is declared. It is released in the same vector and at the same noise
as the answer, at a scale at which it has its share of the price.
"""

from dataclasses import dataclass
from math import sqrt

__all__ = ["Missing", "best_share"]

_SHARES = [share / 50 for share in range(1, 41)]


@dataclass(frozen=True, slots=True)
class Missing:
    """What a clip took away from a group. Public.

    Fields:
        masses: noisy, at least 0 without the noise, for each cell of the group, in units of the largest entry in a row.
        standard_error: of each.
    """

    masses: list[float]
    standard_error: float


def best_share(excess: float, *, pure: bool) -> float:
    """The share of a price for the report, at which an interval that covers what was clipped is shortest.

    Args:
        excess: how far beyond the clip a person may be, in clips, > 0.
        pure: whether prices and lengths add up as L1 norms.
    """

    def width(share: float) -> float:
        noise = 1 / (1 - share) if pure else 1 / sqrt(1 - share)
        report = excess / (share if pure else sqrt(share))
        return noise + sqrt(noise**2 + report**2)

    return min(_SHARES, key=width)

"""Give each person a budget of their own: a share of the budget of the accounts.

Names and symbols
    share    in (0, 1], private: the part of the budget, in its measure, that a person may spend
    units    of what the share leaves out: they count as spent from the start

Source: theory 5.10 and 5.1; docs/proofs/individual-filter.md
"""

from collections.abc import Callable
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check, filters
from almoner._arrays import Array, to_numpy
from almoner._notions import Budget
from almoner.accounting import meaning
from almoner.errors import ArgumentError

MOST_DIFFERENT = 100  # different epsilons; more are rounded down onto a grid of so many
PRECISION = 1e-4  # relative precision of a share that is looked for


def in_order(name: str, array: object) -> Array:
    """``to_numpy`` of numbers in the order of accounts; ArgumentError: a Series of pandas, with labels."""
    if not callable(index := getattr(array, "index", len)) and type(index).__name__ != "RangeIndex":
        raise ArgumentError(f"{name} must not be a Series with labels: give series.loc[ids].to_numpy()")
    return to_numpy(array)


def checked_shares(shares: ArrayLike | Array, count: int) -> NDArray[np.float64]:
    """(n,) float64 in (0, 1]; the messages hold no share."""
    values = in_order("shares", shares)
    if isinstance(shares, np.ma.MaskedArray) or values.dtype.kind not in "fiu" or values.shape != (count,):
        raise ArgumentError("shares must be a list of real numbers with one entry for each person")
    values = values.astype(np.float64)
    if not np.all((values > 0) & (values <= 1)):
        raise ArgumentError("shares must all be in (0, 1]: the part of the budget that each person may spend")
    return values


def promised(notion: Budget[object], shares: NDArray[np.float64], delta: float | None) -> NDArray[np.float64]:
    """(n,) the epsilon that each person's own budget promises at delta, rounded up."""
    at = notion.delta if delta is None else delta
    if at is None:
        raise ArgumentError("delta=None: the budget has no delta of its own, so give one")
    if at != notion.delta:  # which is 0 of pure budgets
        _check.between(0, 1, delta=at)
    return _each(notion, shares, lambda units: notion.person_epsilon(units, at))


def guesses(notion: Budget[object], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) how often a guess whether a person's data were used is right at most, at even odds, rounded up.

    Guarantee: no attack on all that a person's own budget admits is right with a larger probability.
    Source: theory 8.1, 5.10.
    """
    return _each(notion, shares, lambda units: meaning.of(notion.person_curve(units)).guess())


def _each(
    notion: Budget[object], shares: NDArray[np.float64], of: Callable[[tuple[int, ...]], float]
) -> NDArray[np.float64]:
    """(n,) of what each person has spent at the start; once for each different share."""
    different, places = np.unique(shares, return_inverse=True)
    values = [of(tuple(row)) for row in notion.person_opening(different).tolist()]
    return np.asarray(values, np.float64)[places.reshape(shares.shape)]


def shares(epsilons: ArrayLike, budget: filters.Filter, /, *, delta: float | None = None) -> NDArray[np.float64]:
    """Shares of a budget with which each person is promised an epsilon of their own.

    Args:
        epsilons: (n,) private unless public by construction; nats, in (0, the budget's epsilon at delta].
        budget: public; as for ``individual.Filter``.
        delta: public; by default the budget's own.

    Returns:
        (n,) in (0, 1], as private as the epsilons: for ``individual.Filter(n, budget, shares=...)``. More than a
        hundred different epsilons are rounded down onto a geometric grid of a hundred.

    Guarantee: a person with this share is promised at most the epsilon given, at delta.
    Source: theory 5.10.

    Raises:
        ArgumentError: an epsilon is NaN, not above 0, above that of the budget, or too small for any share.
        Unsupported: the budget has no shares.

    >>> from almoner import filters
    >>> shares([0.5, 1.0], filters.Gaussian(epsilon=1.0, delta=1e-5)).round(3)
    array([0.281, 1.   ])
    """
    notion, values = budget.notion, in_order("epsilons", epsilons)
    whole = budget.epsilon(delta=delta)
    delta = notion.delta if delta is None else delta
    if values.ndim != 1 or values.dtype.kind not in "fiu" or not np.all((values > 0) & (values <= whole)):
        raise ArgumentError(f"epsilons must be a list of numbers in (0, {whole!r}], the epsilon of the budget")
    different, places = np.unique(values.astype(np.float64), return_inverse=True)
    if len(different) > MOST_DIFFERENT:
        grid = np.geomspace(different[0], different[-1], MOST_DIFFERENT)
        grid[0] = different[0]
        different, places = grid, np.maximum(np.searchsorted(grid, values, side="right") - 1, 0)
    parts = [_share(notion, float(epsilon), float(delta or 0.0), whole) for epsilon in different]
    if min(parts, default=1.0) <= 0:
        raise ArgumentError("epsilons: at least one is too small for any share of this budget")
    return np.asarray(parts, np.float64)[places]


def _share(notion: Budget[object], epsilon: float, delta: float, whole: float) -> float:
    """The largest share found whose promise is at most epsilon; 0 if none is."""
    if epsilon == whole:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > PRECISION * high and high > 1e-9:
        middle = (low + high) / 2
        units = tuple(notion.person_opening(np.array([middle]))[0].tolist())
        fits = notion.person_epsilon(units, delta, at_most=epsilon) <= epsilon < inf
        low, high = (middle, high) if fits else (low, middle)
    return low

"""Find the Gaussian that dominates a person's composition up to a slack: one mu from privacy loss distributions.

Names and symbols
    mu     μ    GDP parameter
    slack       delta_0: a probability of total failure that is charged beside mu, as that of an approximate round

Domination at *all* epsilons without slack is impossible for sampled Gaussians at the mu that a plot suggests, and a
fit on a grid of epsilons proves nothing (theory 7.4). With slack it is possible, and certified here between the points.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from almoner import _check
from almoner._arrays import Array, to_numpy
from almoner.curves import gaussian
from almoner.individual._losses import losses

__all__ = ["dominating_mu"]

_ROUNDING = 1e-9  # relative: more than the Gaussian's delta, which is rounded up, and the grid are off by


def dominating_mu(
    counts: ArrayLike | Array, noise: ArrayLike, /, *, slack: float, sample_rate: ArrayLike = 1.0, points: int = 2000
) -> NDArray[np.float64]:
    """The smallest mu found such that each composition is dominated by mu-GDP, but for a failure of probability slack.

    Args:
        counts: (n, j) whole numbers >= 0, private: steps of each person in each bucket.
        noise: (j,) public: the relative noise of each bucket, or mechanisms; as for ``losses``.
        slack: public, in (0, 1).
        sample_rate: public; as for ``losses``.
        points: public, >= 2: how many epsilons are looked at. Fewer give a larger mu.

    Returns:
        (n,) private; inf where the losses cannot be certified at the slack.

    Guarantee: for rounds fixed in advance, delta(epsilon) <= slack + (1 - slack) delta_mu(epsilon) for every real
    epsilon and in both directions: the composition post-processes "reveal all with probability slack, else mu-GDP".
    Under adaptivity none (theory 7.3).
    Source: theory 7.4; Koskela, Tobaben & Honkela (2023), eq. 5.1 to 5.3.

    >>> mu = dominating_mu([[10_000]], [2.0], sample_rate=0.005, slack=1e-6)
    >>> bool(0.267 < mu[0] < 0.27)
    True
    """
    _check.between(0, 1, slack=slack)
    _check.whole(2, points=points)
    rows = to_numpy(counts)
    ends = losses(rows, noise, sample_rate=sample_rate, delta=slack)
    people = zip(rows, ends, strict=True)
    return np.array([_one_mu(row[None], noise, sample_rate, slack, float(end), points) for row, end in people])


def _one_mu(row: NDArray[np.int64], noise: ArrayLike, rate: ArrayLike, slack: float, end: float, points: int) -> float:
    """For one person: on [a, b] the person's delta is at most that at a, and the Gaussian's at least that at b."""
    if end == np.inf:
        return np.inf
    grid = np.linspace(0.0, 1.02 * end + 1e-3, points)  # a little further than the slack is reached
    deltas = losses(row, noise, sample_rate=rate, epsilon=[float(e) for e in grid])[:, 0]
    if not deltas[-1] <= slack:
        return np.inf
    needed = (deltas[:-1] - slack) / (1 - slack) * (1 + _ROUNDING)
    right, needed = grid[1:][needed > 0], needed[needed > 0]
    if not needed.size:
        return 0.0
    low, high = 0.0, 1.0
    while not _dominates(high, right, needed):
        low, high = high, 2 * high
        if high > 1e6:
            return np.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if _dominates(middle, right, needed) else (middle, high)
    return high


def _dominates(mu: float, epsilons: NDArray[np.float64], needed: NDArray[np.float64]) -> bool:
    return bool(np.all(gaussian.delta(mu, epsilon=epsilons) * (1 - _ROUNDING) >= needed))

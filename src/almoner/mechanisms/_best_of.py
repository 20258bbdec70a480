"""The best of a random number of runs: what tuning does."""

from dataclasses import dataclass
from math import inf

from almoner import _check
from almoner.errors import ArgumentError
from almoner.mechanisms._rounds import Mechanism

__all__ = ["BestOf"]

_MOST_RUNS = 1e6


@dataclass(frozen=True, slots=True)
class BestOf(Mechanism):
    """The best of a random number of independent runs of one mechanism; nothing else is released; theory 8.2.

    "Best" is by any order that was fixed in advance on what a run gives (its score, say, which the mechanism's price
    must cover); of equals one is taken at random, or the first. A run may begin by drawing candidate settings from a
    fixed public list. The number of runs is drawn from a law that does not depend on the data, and stays secret, as do
    the other runs.

    Args:
        mechanism: one run, public, with all that its score reads.
        runs: public; how many runs are expected, above 1 (for Poisson above 0), at most a million.
        shape: public; of the truncated negative binomial law, in [-0.9, 1000]: 0 is logarithmic, 1 geometric. Smaller
            shapes are cheaper and vary more. inf is Poisson; then there may be no run, and what is released in that
            case must not depend on the data.

    >>> from almoner.mechanisms import Gaussian, Repeated
    >>> BestOf(Repeated(Gaussian(sigma=100.0), 50), runs=10)
    BestOf(mechanism=Repeated(mechanism=Gaussian(sigma=100.0, sensitivity=1.0), count=50), runs=10, shape=0.0)
    """

    mechanism: Mechanism
    runs: float
    shape: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.mechanism, Mechanism):
            raise ArgumentError(f"mechanism={self.mechanism!r} must be a mechanism")
        _check.positive(runs=self.runs)
        _check.within(-0.9, inf, shape=self.shape)
        if self.shape != inf:
            _check.within(-0.9, 1000, shape=self.shape)
        least = 0.0 if self.shape == inf else 1.0
        if not least < self.runs <= _MOST_RUNS:
            raise ArgumentError(f"runs={self.runs!r} must be in ({least:g}, {_MOST_RUNS:g}] with shape={self.shape!r}")

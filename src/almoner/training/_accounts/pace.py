"""Spread a person's budget over the steps that are left.

Names and symbols
    b, r       what a person has left, in the notion's own measure, and how many steps are left; r is public
    pace       in [0, 1], public: 1 leaves as much for each step as for every other, 0 leaves nothing for later ones

A person may contribute at most what could be contributed again in each of 1 + pace (r - 1) steps, rounded down. With
Gaussian accounts and pace 1 that is min(clip, sigma sqrt(b / r)): what is not used in a step is shared by all later
ones, and nobody is out before the last step.

Source: docs/training.md, "How a budget is spread"; theory 5.1 to 5.3
"""

from math import floor
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from almoner._arrays import Array
from almoner.mechanisms import Mechanism, Repeated

__all__ = ["paced_allowance"]


class Allowances(Protocol):
    """Accounts that say how much each person may still contribute to a step, or to each of several."""

    def allowance(self, step: Mechanism, /) -> Array:
        """(n,) private."""


def paced_allowance(accounts: Allowances, step: Mechanism, steps_left: int, pace: float) -> NDArray[np.float64]:
    """(n,) private: the largest norm that each person may contribute to this step.

    Args:
        accounts: private.
        step: public. What this step releases.
        steps_left: public, >= 1, this step counted.
        pace: public, in [0, 1].

    Guarantee: at most the allowance of the accounts for this step alone; a function of each person's own account and of
        public numbers.
    Source: theory 5.1 to 5.3.
    """
    shared = 1 + floor(pace * (steps_left - 1))
    return np.asarray(accounts.allowance(Repeated(step, shared) if shared > 1 else step), dtype=np.float64)

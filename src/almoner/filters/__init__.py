"""Filters: budgets fixed in advance, which refuse what does not fit before anything runs.

Every filter promises: however the next mechanism, its noise and the moment to stop were chosen from the results so
far, the whole interaction is (epsilon, delta)-DP (or what its own budget says) for adding or removing one person.

Gaussian      Gaussian mechanisms only; exact, hence the tightest for them
Zcdp          one rho for Gaussian, discrete Gaussian, Laplace, pure and bounded-range mechanisms
Renyi         any mechanism: all orders at once, with weights fixed in advance
RenyiOrder    any mechanism that cannot fail, at one order fixed in advance
RenyiCurve    the same at several orders, against a target curve fixed in advance
Residue       pure, approximate, Laplace, exponential and sampled Gaussian mechanisms that nobody planned
Planned       a plan of rounds, all of it under full adaptivity; anything else beside it
All           several budgets by key: all of them are charged, or none
Either        several of these side by side, with delta split between them
Approximate   pure and approximate mechanisms at the rate of advanced composition
Basic         plain sums of epsilon and delta
Pure          Feldman & Zrnic for pure mechanisms, for comparison
Rogers        Rogers et al., for comparison

Which one to take, :func:`recommend` says from epsilon, delta and the mechanism that will be charged most often.

>>> from almoner import mechanisms
>>> budget = Gaussian(epsilon=1.0, delta=1e-6)
>>> step = mechanisms.Gaussian(sigma=100.0)
>>> while budget.admits(step):
...     budget.charge(step)
>>> budget.count
560
"""

from almoner.filters._filter import Filter
from almoner.filters._filters import Approximate, Basic, Gaussian, Planned, Renyi, RenyiCurve, RenyiOrder, Residue, Zcdp
from almoner.filters._published import Pure, Rogers
from almoner.filters._recommend import Recommendation, recommend
from almoner.filters._several import All, Either

__all__ = [
    "All", "Approximate", "Basic", "Either", "Filter", "Gaussian", "Planned", "Pure", "Recommendation",
    "Renyi", "RenyiCurve", "RenyiOrder", "Residue", "Rogers", "Zcdp", "recommend",
]  # fmt: skip

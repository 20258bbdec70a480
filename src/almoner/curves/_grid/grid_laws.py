"""Laws of privacy losses on an even grid that dominate rounds.

Names and symbols as in ``curves._loss_grid``.

Source: docs/proofs/planned-filter.md, section 4; theory 7.2.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import exp, sqrt

import numpy as np

from almoner import mechanisms
from almoner.curves._grid.connect_the_dots import ULP, Floats
from almoner.curves._grid.laws import Law as Points
from almoner.curves._grid.laws import law as discrete_law
from almoner.errors import Unsupported

MOST_PLACES = 2**22  # places on either side of 0; larger losses count as infinite, and lower ones are moved up


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """One direction of one round, on the grid. Every field is public."""

    first: int  # the place of the least loss
    weights: Floats  # (k,) >= 0; they add up to one
    leak: float  # mass whose loss is infinite, rounded up
    error: float  # every weight is at least the true one divided by one plus this


@lru_cache(maxsize=256)
def laws(mechanism: mechanisms.Mechanism, step: float, cut: float, far: bool = False) -> tuple[Law, Law]:
    """The laws of one round in the directions "remove" and "add"; Unsupported where none is known, or losses infinite.

    Up to the mass ``cut`` (> 0) the largest losses count as infinite, and the least ones are made larger. A far law has
    more of its tails.

    Guarantee: in each direction the law, its weights times (1 + error), dominates the round, for every two neighbouring
        data sets (an approximate mechanism's own delta is in the leak).
    Source: docs/proofs/planned-filter.md, section 4; theory 7.2.
    """
    both = discrete_law(mechanism, fine=True, points=True, far=far)
    if both is None:
        raise Unsupported(f"{mechanism!r}: its privacy loss counts as infinite")
    remove, add = (_on_grid(one, step, cut) for one in both if isinstance(one, Points))
    return remove, add


def _on_grid(points: Points, step: float, cut: float) -> Law:
    """Move each mass to the two neighbouring losses of the grid such that both laws of the pair keep their mass."""
    losses, masses, leak, error = points.losses, points.masses, points.ceiling, points.error
    if not np.isfinite(losses).all():
        raise Unsupported("a round reveals so much that some of its losses count as infinite")
    raised = losses + (error * (1 + np.abs(losses)) if points.loss_errors is None else points.loss_errors)
    order = np.argsort(raised)
    losses, masses = raised[order] + step * 2.0**-40, masses[order]
    below = int(np.searchsorted(np.cumsum(masses), cut))
    losses[:below] = losses[below]
    within = (np.cumsum(masses[::-1])[::-1] > cut) & (losses < MOST_PLACES * step)
    within[0] |= not within.any()
    losses = np.maximum(losses, -MOST_PLACES * step)
    leak, losses, masses = leak + 2 * float(masses[~within].sum()), losses[within], masses[within]
    low = np.floor(losses / step)
    upper = np.clip(np.expm1(-np.clip(losses - low * step, 0.0, step)) / np.expm1(-step), 0.0, 1.0)
    place = (low - low[0]).astype(np.int64)
    weights = np.zeros(int(place[-1]) + 2)
    np.add.at(weights, place, masses * (1 - upper))
    np.add.at(weights, place + 1, masses * upper)
    weights /= weights.sum()
    return Law(int(low[0]), weights, leak * (1 + error), error + (64 + len(losses) + 2.0**13) * ULP)


def change(step: float, share: float = 1.0) -> tuple[Law, Law]:
    """The smallest round there is on the grid: randomised response with losses of one step either way.

    Guarantee: both directions have the same law, which dominates randomised response with epsilon = step that runs
        with the probability ``share``, known to everybody.
    Source: theory 2.3.
    """
    truth = 1 / (1 + exp(-step))
    law = Law(-1, np.array([share * (1 - truth), 1 - share, share * truth]), 0.0, 8 * ULP)
    return law, law


def spread(law: Law, step: float) -> float:
    """The standard deviation of the loss, about; no bound."""
    places = step * (law.first + np.arange(len(law.weights)))
    mean = float(law.weights @ places)
    return sqrt(max(float(law.weights @ (places - mean) ** 2), 0.0))

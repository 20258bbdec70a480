"""Terms of a round in the two sums of Rogers, Roth, Ullman & Vadhan (2016): the square and the drift of its loss.

Names and symbols
    V        the sum of epsilon squared (for zCDP rounds, twice the sum of rho)
    drift    the sum of epsilon (e^epsilon - 1) / 2 (for zCDP rounds, the sum of rho)

Source: theory 6.7; Rogers et al. (2016), https://arxiv.org/abs/1605.08294
"""

from math import expm1, inf

from almoner import mechanisms
from almoner._units import Units, exact, up
from almoner.curves import approximate, zcdp
from almoner.errors import Unsupported


def prices(mechanism: mechanisms.Mechanism) -> tuple[Units, Units]:
    """Price one round: its terms of V and of the drift, in units, rounded up.

    Guarantee: given the past, the loss is at most the drift in the mean, and sub-Gaussian around it with variance V.
    Source: theory 6.7; Hoeffding's lemma for pure mechanisms, the definition for zCDP.
    """
    try:
        epsilon, _ = approximate.cost(mechanism)
    except Unsupported:
        rho = zcdp.cost(mechanism)
        return up(2 * rho), up(rho)
    if epsilon == inf:
        return inf, inf
    value = float(epsilon) * (1 + 1e-15)
    return up(exact(epsilon) ** 2), up(value * expm1(value) / 2 * (1 + 1e-15)) if value < 700 else inf

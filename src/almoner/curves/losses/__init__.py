"""Privacy loss distributions: each person's epsilon for all people at once, and the epsilon of one run.

Source: theory 4.13, 7.1, 7.2; docs/proofs/losses.md; Koskela, Tobaben & Honkela (2023), section 5 and appendix D.
"""

from almoner.curves.losses._bounds import deltas, epsilons
from almoner.curves.losses._fixed import delta_at, epsilon_at

__all__ = ["delta_at", "deltas", "epsilon_at", "epsilons"]

"""Each person's epsilon from privacy loss distributions, for all people at once.

Source: theory 7.1, 7.2; docs/proofs/losses.md; Koskela, Tobaben & Honkela (2023), section 5 and appendix D.
"""

from almoner.curves.losses._bounds import deltas, epsilons

__all__ = ["deltas", "epsilons"]

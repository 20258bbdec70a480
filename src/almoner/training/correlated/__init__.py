"""Correlated noise for mini-batches without sampling: factors, noise by a counter, fixed batches.

>>> banded = Banded(band=4).factor(32)
>>> round(banded.column_norm(0), 9), round(banded.sensitivity(separation=8, participations=4), 9)
(1.0, 2.0)
>>> independent = Banded(band=1).factor(32)
>>> banded.error() < 0.65 * independent.error()
True
"""

from almoner.training.correlated._factor import Workload
from almoner.training.correlated._kinds import Banded, BandedInverse, PrefixSums

__all__ = ["Banded", "BandedInverse", "PrefixSums", "Workload"]

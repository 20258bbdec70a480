"""One direction of a composed round on the grid: its Fourier coefficients, and what its tails weigh.

Source: docs/proofs/planned-odometer.md, section 5; Chernoff's inequality
"""

from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from almoner.curves._grid.spectra import Spectrum, power
from almoner.curves._loss_grid import TILTS, Law

Floats = NDArray[np.float64]
Kind = type[np.floating]

_TILTS = np.asarray(TILTS)


class Side:
    """One direction of one planned round on the grid: its transform, and what its tails weigh."""

    def __init__(self, parts: Sequence[tuple[Law, int]], step: float) -> None:
        self.parts = parts
        self.leak = 1.01 * sum(count * law.leak for law, count in parts)
        self.error = sum(count * law.error for law, count in parts)
        self.up, self.down = np.zeros(len(_TILTS)), np.zeros(len(_TILTS))
        for law, count in parts:
            places = step * (law.first + np.arange(len(law.weights)))
            with np.errstate(divide="ignore"):
                logs = np.log(law.weights)
            self.up += count * np.array([_log_sum(logs + tilt * places) for tilt in _TILTS])
            self.down += count * np.array([_log_sum(logs - tilt * places) for tilt in _TILTS])

    def reach(self, rounds: int, outside: float) -> tuple[float, float]:
        """Losses between which all but so much of the mass lies, on either side: Chernoff's inequality."""
        low, high = rounds * self.down - log(outside), rounds * self.up - log(outside)
        return -float((low / _TILTS).min()), float((high / _TILTS).min())

    def above(self, rounds: int, loss: float) -> float:
        """A bound on the mass above a loss."""
        return exp(min(0.0, float((rounds * self.up - _TILTS * loss).min())))

    def spectrum(self, size: int, kind: Kind) -> Spectrum:
        """The Fourier coefficients of one planned round."""
        product: Spectrum = np.ones(size // 2 + 1, dtype=np.result_type(kind, np.complex64))
        for law, count in self.parts:
            folded = np.zeros(size, kind)
            np.add.at(folded, (law.first + np.arange(len(law.weights))) % size, law.weights)
            product = product * power(fft.rfft(folded), count)
        return product


def _log_sum(exponents: Floats) -> float:
    """Log of the sum of exp(exponents), a little too large."""
    top = float(exponents.max())
    return top + log(float(np.exp(exponents - top).sum())) + 1e-12 * (1 + abs(top))

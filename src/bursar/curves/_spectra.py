"""Fourier coefficients of laws on a grid."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Spectrum", "power"]

Spectrum = NDArray[np.complexfloating]


def power(spectrum: Spectrum, count: int) -> Spectrum:
    """A whole power by repeated squaring, whose error is at most a few units a factor."""
    power: Spectrum = np.ones_like(spectrum)
    while count:
        if count & 1:
            power = power * spectrum
        count >>= 1
        if count:
            spectrum = spectrum * spectrum
    return power

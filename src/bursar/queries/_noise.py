"""Noise: OpenDP's discrete Gaussian, exact for whole numbers, from the operating system's randomness."""

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

from bursar import _extras
from bursar.mechanisms import DiscreteGaussian

__all__ = ["laplace", "noisy"]

_AT_A_TIME = 65_536
_LARGEST = 2**62


def noisy(sums: Sequence[int], mechanism: DiscreteGaussian) -> list[int]:
    """Whole sums plus discrete Gaussian noise, independent in every coordinate.

    Args:
        sums: private. Beyond 2^62 they are cut off, which brings neighbouring data sets no further apart.
        mechanism: public; its sigma is the noise's.

    Guarantee: sensitivity**2 / (2 sigma**2)-zCDP for sums that move by at most the sensitivity in L2.
    Source: theory 2.7; Canonne, Kamath & Steinke (2020), Thm 14.
    """
    measurement, values = _measurement(mechanism.sigma), []
    for start in range(0, len(sums), _AT_A_TIME):
        block = [max(-_LARGEST, min(_LARGEST, int(value))) for value in sums[start : start + _AT_A_TIME]]
        values += measurement(block)
    return values


def laplace(scale: float) -> int:
    """A whole number from the discrete Laplace distribution, from the operating system's randomness."""
    return int(_laplace(scale)(0))


@lru_cache(maxsize=16)
def _laplace(scale: float) -> Any:
    dp = _opendp()
    return dp.m.make_laplace(dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"), scale=scale)


@lru_cache(maxsize=16)
def _measurement(sigma: float) -> Any:
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.m.make_gaussian(*space, scale=sigma)


def _opendp() -> ModuleType:
    """The library; raises MissingExtra where it is not installed."""
    with _extras.need("opendp", extra="queries"):
        import opendp.prelude as dp
    dp.enable_features("contrib")
    return dp

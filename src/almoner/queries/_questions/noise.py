"""Add noise to whole sums, and draw the noise of a watch."""

from collections.abc import Sequence

import numpy as np

from almoner import _audit_hook, noise
from almoner.mechanisms import Gaussian, Laplace

__all__ = ["laplace", "noisy"]

_LARGEST = 2**61


def noisy(sums: Sequence[int], mechanism: Gaussian | Laplace) -> list[int]:
    """Whole sums plus rounded Gaussian, or discrete Laplace, noise, independent in every coordinate.

    Args:
        sums: private. Beyond 2^61 they are cut off, which brings neighbouring data sets no further apart; so is what is
            returned.
        mechanism: public; its sigma, or its scale, is the noise's.

    Guarantee: (sensitivity / sigma)-GDP, and so sensitivity**2 / (2 sigma**2)-zCDP, for sums that move by at most the
        sensitivity in L2; (sensitivity / scale)-DP for sums that move by at most the sensitivity in L1.
    Source: theory 2.9; docs/proofs/noise.md, Theorems 2 and 3.
    """
    try:
        exact = np.clip(np.array(sums, np.int64), -_LARGEST, _LARGEST)
    except OverflowError:
        exact = np.array([max(-_LARGEST, min(_LARGEST, value)) for value in sums], np.int64)

    def release() -> list[int]:
        if isinstance(mechanism, Laplace):
            added = exact + noise.discrete_laplace(mechanism.scale, size=len(exact))
        else:
            added = exact + noise.rounded_gaussian(mechanism.sigma, size=len(exact))
        noisy_sums: list[int] = np.clip(added, -_LARGEST, _LARGEST).tolist()
        return noisy_sums

    return _audit_hook.released(release, exact=exact, mechanism=mechanism)


def laplace(scale: float) -> int:
    """A whole number from the discrete Laplace distribution, from the operating system's randomness."""
    return int(noise.discrete_laplace(scale, size=1)[0])

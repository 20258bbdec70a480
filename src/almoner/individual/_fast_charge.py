"""Charge costs that are a power of the norm in one pass over NumPy arrays, block by block, without large temporaries.

Ten million accounts take a few times as long as adding two arrays. A test holds it against the general form.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from os import cpu_count
from typing import cast

import numpy as np
from numpy.typing import NDArray

from almoner._arrays import NUMPY
from almoner.individual._costs import Power, at_least

__all__ = ["charge_all"]

_BITS = np.float64(2.0**52).view(np.int64)
_BLOCK = 2**18  # people at a time: the temporary arrays of a block stay in the processor's cache
_PARALLEL = 2**20  # from so many people on, several threads share the blocks (NumPy lets them run side by side)


def charge_all(
    costs: Power, most: int, spent: NDArray[np.int64], norms: NDArray[np.float64], active: NDArray[np.bool_]
) -> None:
    """Charge each person who fits: changes ``spent`` (n,) and fills ``active`` (n,)."""
    threads = min(4, cpu_count() or 1) if norms.size >= _PARALLEL else 1
    cuts = [norms.size * j // threads for j in range(threads + 1)]
    if threads == 1:
        return _charge_span(costs, most, spent, norms, active)
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(_charge_span, costs, most, spent[a:b], norms[a:b], active[a:b]) for a, b in pairwise(cuts)]
    for job in jobs:
        job.result()
    return None


def _charge_span(
    costs: Power, most: int, spent: NDArray[np.int64], norms: NDArray[np.float64], active: NDArray[np.bool_]
) -> None:
    size = min(_BLOCK, norms.size)
    real, low = np.empty(size), np.empty(size, np.bool_)
    smallest = costs.smallest
    with np.errstate(all="ignore"):  # NaN and overflow become costs of people who are not known, see below
        for start in range(0, norms.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            norm, held, fits = norms[block], spent[block], active[block]
            f, k = real[: norm.size], low[: norm.size]
            known = norm.min() >= smallest and norm.max() <= costs.sensitivity  # False where there is a NaN
            if known:
                c = _units(costs, norm, float(norm.max()), f)
            else:
                norm = cast(NDArray[np.float64], at_least(smallest, norm, NUMPY))
                np.logical_and(norm >= 0.0, norm <= costs.sensitivity, out=k)
                c = _units(costs, np.where(k, norm, costs.sensitivity), costs.sensitivity, f)
            if costs.full[0] > most:  # a person who would pay more than the budget cannot pay: no sum may overflow
                np.minimum(c, most + 1, out=c)
            np.add(held, c, out=held)
            np.less_equal(held, most, out=fits)
            if not known:
                np.logical_and(fits, k, out=fits)
            if not fits.all():  # give back to those who are out what was just added
                np.multiply(c, np.logical_not(fits, out=k), out=c)
                np.subtract(held, c, out=held)


def _units(costs: Power, norm: NDArray[np.float64], top: float, real: NDArray[np.float64]) -> NDArray[np.int64]:
    """The costs of norms in [0, top], top <= sensitivity; ``real`` is overwritten and holds the result."""
    power = norm if costs.power == 1 else np.multiply(norm, norm, out=real)
    np.multiply(power, costs.factor[0], out=real)
    np.ceil(real, out=real)
    units = real.view(np.int64)
    if costs.full[0] < 2**51:  # whole numbers below 2**52 stand in the last bits of their sum with 2**52
        np.add(real, 2.0**52, out=real)
        np.subtract(units, _BITS, out=units)
    else:
        np.minimum(real, float(costs.full[0]), out=real)  # beyond int64 there is no whole number
        np.copyto(units, real.astype(np.int64))
    # costs increase with the norm
    if np.ceil((top if costs.power == 1 else top * top) * costs.factor[0]) > costs.full[0]:
        np.minimum(units, costs.full[0], out=units)
    return units

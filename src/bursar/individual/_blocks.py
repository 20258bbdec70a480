"""The same arithmetic as a quadratic tariff in one pass over NumPy arrays, block by block, without large temporaries.

Ten million accounts are charged in a few times the time that adding two arrays takes. A test holds it against the
general form, unit by unit.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from os import cpu_count

import numpy as np
from numpy.typing import NDArray

from bursar.individual._tariff import TINY, Quadratic, at_least_tiny

__all__ = ["charge_all"]

_BLOCK = 2**15  # people at a time: the temporary arrays of a block stay in the processor's cache
_PARALLEL = 2**20  # from so many people on, several threads share the blocks (NumPy lets them run side by side)


def charge_all(
    price: Quadratic, most: int, spent: NDArray[np.int64], norms: NDArray[np.float64], active: NDArray[np.bool_]
) -> None:
    """Charge everybody who fits: changes ``spent`` (n,) and fills ``active`` (n,)."""
    threads = min(4, cpu_count() or 1) if norms.size >= _PARALLEL else 1
    cuts = [norms.size * j // threads for j in range(threads + 1)]
    if threads == 1:
        return _charge_span(price, most, spent, norms, active)
    with ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(_charge_span, price, most, spent[a:b], norms[a:b], active[a:b]) for a, b in pairwise(cuts)]
    for job in jobs:
        job.result()
    return None


def _charge_span(
    price: Quadratic, most: int, spent: NDArray[np.int64], norms: NDArray[np.float64], active: NDArray[np.bool_]
) -> None:
    size = min(_BLOCK, norms.size)
    real, cost, low = np.empty(size), np.empty(size, np.int64), np.empty(size, np.bool_)
    highest = min(price.full[0], most + 1)  # whoever would pay more than the budget cannot pay
    with np.errstate(all="ignore"):  # NaN and overflow become costs of people who are not known, see below
        for start in range(0, norms.size, _BLOCK):
            norm, held, fits = (array[start : start + _BLOCK] for array in (norms, spent, active))
            f, c, k = real[: norm.size], cost[: norm.size], low[: norm.size]
            np.greater_equal(norm, TINY, out=k)
            if not k.all():
                norm = at_least_tiny(norm, np)
                np.greater_equal(norm, 0.0, out=k)
            np.less_equal(norm, price.sensitivity, out=fits)
            np.logical_and(fits, k, out=fits)
            np.multiply(norm, norm, out=f)
            np.multiply(f, price.factor[0], out=f)
            np.ceil(f, out=f)
            np.copyto(c, f, casting="unsafe")
            np.minimum(c, highest, out=c)
            np.add(held, c, out=held)
            np.less_equal(held, most, out=k)
            np.logical_and(fits, k, out=fits)
            if not fits.all():  # give back to those who are out what was just added
                np.multiply(c, np.logical_not(fits, out=k), out=c)
                np.subtract(held, c, out=held)

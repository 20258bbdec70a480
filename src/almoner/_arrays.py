"""Types for arrays of NumPy and PyTorch: what both libraries share, as far as Almoner uses it.

An array library (``xp``) is a module by the array API standard: NumPy, or what ``array_api_compat.array_namespace``
gives for a tensor.
"""

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, cast

import array_api_compat
import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]  # of NumPy, or a tensor of PyTorch: what is used of both has the same types
Mask: TypeAlias = NDArray[Any]  # of truth values


class Library(Protocol):
    """An array library: functions that give arrays, and kinds of entries."""

    def __getattr__(self, name: str, /) -> Callable[..., Array]: ...


NUMPY = cast(Library, np)  # NumPy, as an array library; the module itself


def to_numpy(array: object) -> NDArray[Any]:
    """Numbers as a NumPy array: of a list, or of an array of any library and device."""
    if array_api_compat.is_torch_array(array):
        tensor = cast(Any, array).detach().cpu()
        return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)
    return np.asarray(array)

"""Types for arrays of NumPy and PyTorch: what both libraries share, as far as Almoner uses it.

An array library (``xp``) is a module by the array API standard: NumPy, or what ``array_api_compat.array_namespace``
gives for a tensor.
"""

from collections.abc import Callable
from typing import Any, Protocol, cast

import array_api_compat
import numpy as np
from numpy.typing import NDArray

Flag = bool  # a library's own ``bool`` is a kind of entry


class Array(Protocol):
    """An array of numbers. The other operand is an array of the same library, or a number."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> object: ...
    @property
    def device(self) -> object: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Any, /) -> "Array": ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __neg__(self) -> "Array": ...
    def __add__(self, other: Any, /) -> "Array": ...

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __add__

    def __eq__(self, other: object, /) -> "Mask": ...  # type: ignore[override]
    def __lt__(self, other: Any, /) -> "Mask": ...

    __le__ = __gt__ = __ge__ = __lt__


class Mask(Array, Protocol):
    """An array of truth values."""

    def __getitem__(self, key: Any, /) -> "Mask": ...
    def __and__(self, other: Any, /) -> "Mask": ...
    def __or__(self, other: Any, /) -> "Mask": ...
    def __invert__(self) -> "Mask": ...


class Library(Protocol):
    """An array library: functions that give arrays, and these."""

    bool: object
    float64: object
    int64: object

    def __getattr__(self, function: str, /) -> Callable[..., Array]: ...
    def isdtype(self, dtype: object, kind: object, /) -> Flag: ...
    def all(self, array: Array, /, *, axis: int | None = None) -> Mask: ...
    def any(self, array: Array, /, *, axis: int | None = None) -> Mask: ...


NUMPY = cast(Library, np)
"""NumPy, as an array library; the module itself."""


def to_numpy(array: object) -> NDArray[Any]:
    """Numbers as a NumPy array: of a list, or of an array of any library and device."""
    if array_api_compat.is_torch_array(array):
        tensor = cast(Any, array).detach().cpu()
        return np.asarray(tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor)
    return np.asarray(array)

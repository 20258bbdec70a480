"""Compare what two runs make public: everything in it must follow from what was released."""

from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from almoner.errors import ArgumentError

__all__ = ["difference", "plain"]

SIMPLE = (str, bytes, int, bool, type(None), date, Decimal, Fraction, Path, Enum)


def plain(value: Any) -> Any:
    """A value as texts, numbers, lists and dictionaries, which are compared entry by entry.

    Raises:
        ArgumentError: it holds something that has no entries to compare.
    """
    if isinstance(value, SIMPLE):
        return value
    if isinstance(value, float | np.generic):
        return repr(value)  # so that NaN is NaN
    if hasattr(value, "detach"):  # a tensor
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return [str(value.dtype), list(value.shape), [plain(each) for each in value.reshape(-1).tolist()]]
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: plain(getattr(value, field.name)) for field in fields(value)}
        return {"": type(value).__name__, **named}
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, Set):
        return sorted(repr(plain(each)) for each in value)
    if isinstance(value, list | tuple | range):
        return [plain(each) for each in value]
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    raise ArgumentError(
        f"public: {type(value).__name__} cannot be compared: give numbers, texts, arrays, tensors, dataclasses, or "
        "lists and dictionaries of them"
    )


def difference(one: Any, other: Any, place: str = "public") -> str:
    """Where two plain values differ first; nothing where they do not."""
    if type(one) is not type(other):
        return f"{place} is of another kind"
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{place} has other names"
        return next(filter(None, (difference(one[key], other[key], f"{place}.{key}") for key in one)), "")
    if isinstance(one, list):
        if len(one) != len(other):
            return f"{place} is of another length"
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (difference(*pair, f"{place}[{at}]") for at, pair in pairs)), "")
    return "" if one == other else f"{place} differs"

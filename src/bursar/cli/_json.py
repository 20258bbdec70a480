"""What ``--json`` prints: strict JSON, in which numbers that are not finite are the strings "inf", "-inf", "nan"."""

import json
import sys
from math import isfinite
from typing import Any

__all__ = ["dumps"]


def dumps(value: Any) -> str:
    """The value as JSON that every reader accepts; Python's own ``Infinity`` is not."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(_plain(value), indent=2, ensure_ascii=ascii_only, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value

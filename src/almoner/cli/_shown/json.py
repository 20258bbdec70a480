"""Write strict JSON for ``--json``; numbers that are not finite become the strings "inf", "-inf" and "nan"."""

import json
import sys
from math import isfinite

__all__ = ["dumps"]


def dumps(value: object) -> str:
    """The value as JSON that every reader accepts; Python's own ``Infinity`` is not."""
    ascii_only = not (sys.stdout.encoding or "").lower().startswith("utf")
    return json.dumps(_plain(value), indent=2, ensure_ascii=ascii_only, allow_nan=False)


def _plain(value: object) -> object:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value

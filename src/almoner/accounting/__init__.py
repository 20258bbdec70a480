"""The accountant's answers: which epsilon holds, how much noise fits, all bounds, certificates, meaning."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from almoner.accounting import answers, calibrate, certificates, compare, meaning, runs

__all__ = ["answers", "calibrate", "certificates", "compare", "meaning", "runs"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

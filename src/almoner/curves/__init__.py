"""Costs of mechanisms, and conversions of totals to (epsilon, delta): pure functions and frozen values.

zcdp         one number, rho, that adds up
gaussian     Gaussian differential privacy: mu squared adds up, exactly
renyi        one number per order
approximate  (epsilon, delta) itself: pure and approximate parts, basic composition
tuning       the best of a random number of runs
tradeoff     trade-off functions and hockey-stick curves of any promise

Each of the first four has ``cost(mechanism)``, what a mechanism adds to a total, and conversions from a total to
(epsilon, delta) in which every rounding goes against the spender. Modules with an underscore are engine rooms of
filters, odometers and accounting.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from almoner.curves import approximate, gaussian, renyi, zcdp

if TYPE_CHECKING:
    from almoner.curves import tuning

__all__ = ["approximate", "gaussian", "renyi", "tuning", "zcdp"]


def __getattr__(name: str) -> object:
    if name == "tuning":  # few runs need it
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

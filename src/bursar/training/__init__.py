"""Training private models: gradient descent with an account for every person.

The estimators need scikit-learn (the extra ``sklearn``), so they are loaded when they are first asked for.
"""

from typing import TYPE_CHECKING, Any

from bursar.errors import MissingExtra
from bursar.training.cards import Card
from bursar.training.descent import Everybody, descend
from bursar.training.holder import HolderReport

if TYPE_CHECKING:
    from bursar.training.estimators import LogisticRegression

__all__ = ["Card", "Everybody", "HolderReport", "LogisticRegression", "descend"]


def __getattr__(name: str) -> Any:
    if name == "LogisticRegression":
        try:
            from bursar.training.estimators import LogisticRegression
        except ModuleNotFoundError as missing:
            raise MissingExtra("LogisticRegression needs scikit-learn: pip install 'bursar[sklearn]'") from missing
        return LogisticRegression
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

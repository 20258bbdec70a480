"""Training private models: gradient descent with an account for every person.

The estimators need scikit-learn (the extra ``sklearn``) and the trainer needs PyTorch (the extra ``torch``): they are
loaded when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bursar.errors import MissingExtra
from bursar.training.cards import Card
from bursar.training.descent import Everybody, descend
from bursar.training.holder import HolderReport

if TYPE_CHECKING:
    from bursar.training.estimators import LogisticRegression
    from bursar.training.gradients import Gradients, check
    from bursar.training.runs import Run
    from bursar.training.trainer import Trainer

__all__ = ["Card", "Everybody", "Gradients", "HolderReport", "LogisticRegression", "Run", "Trainer", "check", "descend"]

LATER = {
    "Gradients": ("gradients", "torch", "PyTorch"),
    "LogisticRegression": ("estimators", "sklearn", "scikit-learn"),
    "Run": ("runs", "torch", "PyTorch"),
    "Trainer": ("trainer", "torch", "PyTorch"),
    "check": ("gradients", "torch", "PyTorch"),
}


def __getattr__(name: str) -> Any:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra, library = LATER[name]
    try:
        return getattr(import_module(f"{__name__}.{module}"), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != extra:
            raise
        raise MissingExtra(f"{name} needs {library}: pip install 'bursar[{extra}]'") from missing

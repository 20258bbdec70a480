"""Training private models: gradient descent with an account for every person.

The estimators need scikit-learn (the extra ``sklearn``) and the trainer needs PyTorch (the extra ``torch``): they are
loaded when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from almoner import _extras
from almoner.training._card import Card
from almoner.training._everybody import Everybody
from almoner.training._ledger_run import OnLedger
from almoner.training._logistic.descent import descend
from almoner.training._logistic.gradients import LogisticGradients
from almoner.training._private_report import HolderReport

if TYPE_CHECKING:
    from almoner.training._logistic.estimator import LogisticRegression
    from almoner.training._logistic.search import PrivateSearch
    from almoner.training._run import Run
    from almoner.training._stream import Stream
    from almoner.training._trainer import Trainer
    from almoner.training.gradients import Gradients, check

__all__ = [
    "Card",
    "Everybody",
    "Gradients",
    "HolderReport",
    "LogisticGradients",
    "LogisticRegression",
    "OnLedger",
    "PrivateSearch",
    "Run",
    "Stream",
    "Trainer",
    "check",
    "descend",
]

LATER = {
    "Gradients": ("gradients", "torch"),
    "LogisticRegression": ("_logistic.estimator", "sklearn"),
    "PrivateSearch": ("_logistic.search", "sklearn"),
    "Run": ("_run", "torch"),
    "Stream": ("_stream", "torch"),
    "Trainer": ("_trainer", "torch"),
    "check": ("gradients", "torch"),
}


def __getattr__(name: str) -> object:
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, library = LATER[name]
    with _extras.need(library, extra=library):
        return getattr(import_module(f"{__name__}.{module}"), name)

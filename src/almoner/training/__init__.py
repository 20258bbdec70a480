"""Training private models: gradient descent with an account for every person.

The estimators need scikit-learn (the extra ``sklearn``) and the trainer needs PyTorch (the extra ``torch``): they are
loaded when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from almoner import _extras
from almoner.training._accounts import Everybody, HolderReport
from almoner.training._card import Card
from almoner.training._linear.descent import LogisticGradients, descend
from almoner.training._on_ledger import OnLedger
from almoner.training._run.books import Bounds, MemoryBook
from almoner.training._run.folder import RunFolder
from almoner.training._run.samplings import FullBatch, Poisson, Sampling
from almoner.training._run.settings import Compute, Target
from almoner.training.correlated._kinds import FixedBatches

if TYPE_CHECKING:
    from almoner.training._evaluate import Estimate, Scores, evaluate
    from almoner.training._linear.estimator import Descent, LogisticRegression
    from almoner.training._linear.regressors import LinearRegression, PoissonRegressor
    from almoner.training._linear.search import PrivateSearch
    from almoner.training._records import PublicRecords
    from almoner.training._run.callback_view import CallbackView
    from almoner.training._stream import Stream
    from almoner.training._trainer import Trainer
    from almoner.training.gradients import Gradients, check
    from almoner.training.images import features as features

__all__ = [
    "Bounds", "CallbackView", "Card", "Compute", "Descent", "Estimate", "Everybody", "FixedBatches", "FullBatch",
    "Gradients", "HolderReport", "LinearRegression", "LogisticGradients", "LogisticRegression", "MemoryBook",
    "OnLedger", "Poisson", "PoissonRegressor", "PrivateSearch", "PublicRecords", "RunFolder", "Sampling", "Scores",
    "Stream", "Target", "Trainer", "check", "descend", "evaluate",
]  # fmt: skip

LATER = {
    "Gradients": ("gradients", "torch"),
    "Estimate": ("_evaluate", "sklearn"),
    "Scores": ("_evaluate", "sklearn"),
    "evaluate": ("_evaluate", "sklearn"),
    "Descent": ("_linear.estimator", "sklearn"),
    "LogisticRegression": ("_linear.estimator", "sklearn"),
    "LinearRegression": ("_linear.regressors", "sklearn"),
    "PoissonRegressor": ("_linear.regressors", "sklearn"),
    "PrivateSearch": ("_linear.search", "sklearn"),
    "PublicRecords": ("_records", "torch"),
    "CallbackView": ("_run.callback_view", "torch"),
    "Stream": ("_stream", "torch"),
    "Trainer": ("_trainer", "torch"),
    "check": ("gradients", "torch"),
}  # names that need an optional library: the module of each, and the library


def __getattr__(name: str) -> object:
    if name == "features":
        return import_module(f"{__name__}.images.features")
    if name not in LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, library = LATER[name]
    with _extras.need(library, extra=library):
        return getattr(import_module(f"{__name__}.{module}"), name)

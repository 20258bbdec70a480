"""A small training problem, and trainers of it."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from almoner import training
from almoner.training._run.run import Saves

BY_RECORD = nn.CrossEntropyLoss(reduction="none")
N = 400


@contextmanager
def dies(error):
    """Within, this error ends a training as kill -9 would: nothing is written to its folder any more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Saves, "__exit__", lambda *_: None)
        with pytest.raises(error):
            yield


def records():
    """400 people with five features and a label."""
    torch.manual_seed(0)
    x = torch.randn(N, 5)
    return x, (x[:, 0] + 0.5 * x[:, 1] > 0).long()


def network():
    """A network with one hidden layer, always the same."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 2))


def trainer(budget, module=None, *, lr=1.0, **options):
    """A trainer of the network with plain gradient steps."""
    module = network() if module is None else module
    options = {"max_grad_norm": 1.0, "divisor": N, "steps": 20} | options
    return training.Trainer(module, BY_RECORD, torch.optim.SGD(module.parameters(), lr=lr), budget, **options)

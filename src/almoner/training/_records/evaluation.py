"""Values of a module's outputs: one number for each record, or the mean over each person's records."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from almoner import _extras
from almoner.errors import ArgumentError

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor, nn

from almoner.training.gradients import Batch
from almoner.training.gradients._batches import as_inputs
from almoner.training.gradients._self_check import evaluation_mode

__all__ = ["Values", "correct", "means_by_person", "values_by_record"]

Values = Callable[[Tensor, Tensor], Tensor]

RECORDS_AT_ONCE = 2**10


def correct(output: Tensor, targets: Tensor) -> Tensor:
    """Give 1 where the largest output is at the target, else 0; also of what has ``logits``. For ``noisy_sum``."""
    output = getattr(output, "logits", output)
    return (output.argmax(dim=-1) == targets).double()


def values_by_record(module: nn.Module, inputs: Batch, targets: Tensor, values: Values) -> NDArray[np.float64]:
    """(records,) one number for each record, with the module in evaluation mode.

    Raises:
        ArgumentError: ``values`` gave anything but one number for each record.
    """
    like = next(module.parameters())
    device, parts_of, parts = like.device, as_inputs(inputs, like.dtype), []
    with evaluation_mode(module), torch.no_grad():
        for start in range(0, len(targets), RECORDS_AT_ONCE):
            rows = slice(start, start + RECORDS_AT_ONCE)
            output = parts_of.rows(rows).map(lambda part: part.clone().to(device)).call(module)
            goals = targets[rows].to(device)
            numbers = values(output, goals)
            if not isinstance(numbers, Tensor) or numbers.shape != (len(goals),):
                raise ArgumentError("values must give one number for each record, in a tensor of shape (records,)")
            parts.append(numbers.double().cpu())
        return np.asarray(torch.cat(parts).numpy())


def means_by_person(values: NDArray[np.float64], people: Tensor | None, count: int) -> NDArray[np.float64]:
    """(n,) the mean of each person's values; 0 for a person without records, NaN where a value is NaN."""
    if people is None:
        return values
    numbers = np.bincount(people, minlength=count)
    return np.bincount(people, values, minlength=count) / np.maximum(numbers, 1)

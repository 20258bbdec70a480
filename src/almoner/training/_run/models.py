"""A PyTorch module as a run trains it: clipped sums of its gradients, and steps of its optimizer."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from almoner.errors import ArgumentError
from almoner.training._records import Records
from almoner.training._run.samplings import Clipped, refuse_others
from almoner.training.gradients import Gradients

__all__ = ["TorchModel", "check_optimizer"]

EXPLODED = 1e12  # parameters whose norm is so many times that of the first ones are of no use to anybody

Array = NDArray[np.float64]


class TorchModel:
    """A module with its optimizer, which sees noisy gradients only; both public, and trained in place."""

    def __init__(self, gradients: Gradients, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self._gradients, self._module, self._optimizer = gradients, module, optimizer
        self._largest = EXPLODED * (1.0 + _norm(gradients.parameters))

    def norms(self, records: Records) -> Array:
        return cast(Array, self._gradients.norms(records.inputs, records.targets, people=records.people).numpy())

    def clipped_sum(self, records: Records, clip: Array, most: Array | None) -> Clipped:
        n = len(clip)
        norms, clipped, weights = np.full(n, np.nan), np.full(n, np.nan), np.zeros(n)

        def weigh(rows: Tensor, lengths: Tensor) -> Tensor:
            people, norm = rows.numpy(), lengths.numpy()
            norms[people], own = norm, np.minimum(norm, clip[people])  # NaN stays NaN
            taken = norm > 0 if most is None else (norm > 0) & (own <= most[people])
            weight = np.divide(own, norm, out=np.zeros_like(norm), where=taken)
            clipped[people], weights[people] = own, weight
            return torch.from_numpy(weight)

        sums, _ = self._gradients.sums(records.inputs, records.targets, weigh, people=records.people)
        return Clipped(norms, clipped, weights, sums)

    def of_those(self, records: Records, made: Clipped, active: NDArray[np.bool_]) -> list[Tensor]:  # noqa: ARG002 - one pass made them
        """The sums that were made, as a second pass may draw others; Unsupported where somebody was not admitted."""
        refuse_others(made.weights, active)
        return made.sums

    def step(self, noisy: Sequence[Tensor], divisor: float, rate: float | None = None) -> None:  # noqa: ARG002 - linear models have it
        """One step along the noisy sums over the divisor, and along no gradient that was left in the module."""
        self._optimizer.zero_grad(set_to_none=True)  # also of frozen parameters
        for parameter, total in zip(self._gradients.parameters, noisy, strict=True):
            parameter.grad = (total / divisor).to(parameter.dtype)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)

    def sound(self) -> bool:
        """True if the parameters, which are public, are finite and not far beyond where they began."""
        return _norm(self._gradients.parameters) <= self._largest  # False where it is not a number

    def state(self) -> dict[str, Any]:
        return {"module": self._module.state_dict(), "optimizer": self._optimizer.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._module.load_state_dict(state["module"])
        self._optimizer.load_state_dict(state["optimizer"])


def _norm(parameters: Sequence[Tensor]) -> float:
    """The norm of all parameters together; NaN or infinite where one is."""
    return float(torch.stack([each.detach().double().norm().cpu() for each in parameters]).norm())


def check_optimizer(optimizer: Any, parameters: list[Any]) -> None:
    """Refuse an optimizer that would leave a parameter where it is: its noisy gradients would be paid for in vain."""
    if not callable(getattr(optimizer, "step", None)) or not hasattr(optimizer, "param_groups"):
        raise ArgumentError(f"optimizer={optimizer!r} must be a torch.optim.Optimizer of the module's parameters")
    if type(optimizer).__name__ == "SparseAdam":
        raise ArgumentError("optimizer=SparseAdam takes sparse gradients only, and noise is in every coordinate")
    asked = inspect.signature(optimizer.step).parameters.get("closure")
    if asked is not None and asked.default is inspect.Parameter.empty:
        raise ArgumentError(
            f"optimizer={type(optimizer).__name__} computes the loss again within a step, which nobody has paid for: "
            "use one whose step needs no closure"
        )
    moved = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    missing = sum(id(parameter) not in moved for parameter in parameters)
    if missing:
        raise ArgumentError(
            f"optimizer: {missing} of the module's {len(parameters)} trained parameters are not among those it moves; "
            "make it of module.parameters(), or call requires_grad_(False) on what must stay as it is"
        )

"""Compare the gradients per record with a naive loop over the records.

Once in evaluation mode, where nothing is random, and once as the module is, where it may treat records differently.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from almoner.errors import Unsupported
from almoner.training.gradients._batches import Batch, Column, Inputs, as_inputs
from almoner.training.gradients._factors import Factor

__all__ = ["compare", "evaluation_mode", "gradients", "independent", "spread", "untainted"]

Fast = Callable[[Inputs, Tensor | None], Iterable[Factor | None]]

Value = TypeVar("Value")

FEW = 4
"""So many records from all over are compared."""

UNLIKE = 6
"""So many that are least alike are compared, too."""

LOOKED_AT, LOADED, NUMBERS = 2**12, 16, 2**22
"""They are found among so many, or so many of those that are read when asked for; of so many numbers in all."""

COINS = (0, 3, 155)
"""Seeds: the first coin of the second is less than 0.01, that of the third more than 0.99, so that what happens rarely
does happen."""

HUGE = 1e6
"""So much larger are other records made: then a mixture with a weight of 1e-8 is above the rounding."""

ABSOLUTE, RELATIVE = 1e-6, 1e-3
"""Rounding in single precision, with room for long sums: a layer that is treated wrongly is off by far more."""


def spread(inputs: Batch, targets: Tensor | None) -> tuple[Inputs, Tensor | None]:
    """A few records from all over, to compare: neighbours are more often alike; and those that are least alike.

    A module may look at the longest sequence of a batch, or sort by length, which nobody sees in records of one length:
    so the largest and the least are among them, the largest before and after the least, in no order of size.
    """
    inputs = as_inputs(inputs)
    loaded = any(isinstance(part, Column) for part in (*inputs, targets))
    widest = max(1, *(part.shape[1:].numel() for part in inputs))
    among = _evenly(inputs[0].shape[0], LOADED if loaded else max(FEW, min(LOOKED_AT, NUMBERS // widest)))
    unlike = _unlike([part[among] for part in (*inputs, targets) if part is not None])
    rows = torch.cat([_evenly(inputs[0].shape[0], FEW), among[unlike + unlike[:1]]])
    while len(rows) in {size for part in inputs for size in part.shape[1:]}:  # a table of places is no list of records
        rows = torch.cat([rows, rows[-1:]])
    return inputs.rows(rows), None if targets is None else targets[rows]


def _evenly(count: int, most: int) -> Tensor:
    rows: Tensor = torch.unique(torch.linspace(0, max(count - 1, 0), min(most, count), dtype=torch.float64).long())
    return rows


def _unlike(parts: list[Tensor]) -> list[int]:
    """The numbers of records that are the largest and the least in some part, in each of a few ways."""
    flat = [part.detach().reshape(len(part), -1) for part in parts if part.numel() and not part.is_complex()]
    even = [torch.nan_to_num(part.double()) for part in flat]
    found: list[int] = []
    for size in ("sum", "count", "amax", "amin"):
        for part in even:
            sizes = (part != 0).sum(1) if size == "count" else getattr(part, size)(1)
            if bool(sizes.max() > sizes.min()):
                found += [int(sizes.argmax()), int(sizes.argmin())]
    return list(dict.fromkeys(found))[:UNLIKE]


def gradients(
    module: nn.Module, loss: Callable[..., Tensor], inputs: Batch, targets: Tensor | None
) -> Iterator[list[Tensor]]:
    """Each record's gradient, by itself, of every trained parameter; one list a record."""
    inputs = as_inputs(inputs)
    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    device = parameters[0].device
    for number in range(inputs[0].shape[0]):
        one = slice(number, number + 1)
        with torch.enable_grad():
            output = inputs.rows(one).map(lambda part: part.clone().to(device)).call(module)
            value = (loss(output) if targets is None else loss(output, targets[one].to(device))).sum()
            slow = torch.autograd.grad(value, parameters, allow_unused=True)
        yield [torch.zeros_like(p) if g is None else g.detach() for p, g in zip(parameters, slow, strict=True)]


def compare(
    module: nn.Module,
    loss: Callable[..., Tensor],
    inputs: Inputs,
    targets: Tensor | None,
    fast: Fast,
) -> Tensor:
    """Compare all gradients with the naive loop, dropout switched off.

    Args:
        fast: gives the factor of each trained parameter, records first, for the same inputs and targets.

    Returns:
        (records,) the norms in the naive loop, private.

    Raises:
        Unsupported: they differ, so records depend on each other, or a parameter is used outside its layer.
    """
    norms = []
    with evaluation_mode(module):
        factors = list(fast(inputs, targets))
        for number, slow in enumerate(gradients(module, loss, inputs, targets)):
            squares, apart = 0.0, 0.0
            for factor, part in zip(factors, slow, strict=True):
                squares += float(part.norm()) ** 2
                difference = part if factor is None else factor.gradient_of(number).reshape(part.shape) - part
                apart += float(difference.norm()) ** 2
            norms.append(squares**0.5)
            if apart**0.5 > RELATIVE * squares**0.5 + ABSOLUTE:  # False where one is not a number
                raise Unsupported(
                    "module: gradients per record differ from those of each record by itself. Either records depend "
                    "on each other, or a layer's parameter is also used outside that layer, or the records are not on "
                    "the first axis"
                )
    return torch.tensor(norms, dtype=torch.float64)


def independent(module: nn.Module, inputs: Inputs, targets: Tensor | None, fast: Fast) -> None:
    """Compare a record's gradient among the others with its gradient among copies of itself, the same coins for both.

    Raises:
        Unsupported: they differ, so this module or its loss mixes records.
    """
    device = next(module.parameters()).device
    for seed in COINS:
        among = _drawn_alike(fast, inputs, targets, device, seed)
        for number in {0, inputs[0].shape[0] - 1} if inputs[0].shape[0] > 1 else ():
            copies = torch.full((inputs[0].shape[0],), number)
            goals = None if targets is None else targets[copies]
            alone = _drawn_alike(fast, inputs.rows(copies), goals, device, seed)
            _refuse_mixture(module, among, alone, number)


def untainted(module: nn.Module, inputs: Inputs, targets: Tensor | None, fast: Fast) -> None:
    """Compare a record's gradient among the others with its gradient among others that are huge or not numbers.

    Others that are a million times larger, or not numbers, show where they are added in, however small their weight.

    Args:
        module: a copy on the processor: it may keep something of this, or end in an error.

    Raises:
        Unsupported: they differ, so this module or its loss mixes records.
    """
    device = torch.device("cpu")
    try:
        among = _drawn_alike(fast, inputs, targets, device)
    except Exception:  # of a module that knows other devices only
        return
    for number in {0, inputs[0].shape[0] - 1} if inputs[0].shape[0] > 1 else ():
        only = torch.arange(inputs[0].shape[0]) == number
        for factor in (HUGE, torch.nan):
            try:
                with _times(module, only, factor):
                    others = inputs.map(lambda part: _but(part, only, factor))  # noqa: B023
                    tainted = _drawn_alike(fast, others, _but(targets, only, factor), device)
            except Exception:  # of a module that refuses such numbers, in its own words
                continue
            _refuse_mixture(module, among, tainted, number)


def _refuse_mixture(module: nn.Module, among: list[Factor | None], other: list[Factor | None], number: int) -> None:
    squares, apart = 0.0, 0.0
    for factor, changed in zip(among, other, strict=True):
        if factor is not None and changed is not None and torch.isfinite(factor.gradient_of(number)).all():
            squares += float(factor.gradient_of(number).norm()) ** 2
            apart += float((changed.gradient_of(number) - factor.gradient_of(number)).norm()) ** 2
    if not apart**0.5 <= RELATIVE * squares**0.5 + ABSOLUTE:
        mode = "training" if module.training else "evaluation"
        raise Unsupported(
            f"module: in {mode} mode gradients per record depend on the other records, in the module or in the loss, "
            "or on coins that are not PyTorch's"
        )


def _but(part: Value, only: Tensor, factor: float) -> Value:
    """Keep the numbers of one row and multiply all others; what holds no real numbers stays as it is."""
    if not isinstance(part, Tensor) or not part.is_floating_point() or part.shape[:1] != only.shape:
        return part
    row = only.to(part.device).view(-1, *(1,) * (part.dim() - 1))
    return cast(Value, torch.where(row, part, part.detach() * factor))


@contextmanager
def _times(module: nn.Module, only: Tensor, factor: float) -> Iterator[None]:
    """Within this context what trained layers give is multiplied for all records but one: inputs may be whole."""
    with ExitStack() as stack:
        for layer in module.modules():
            own = any(parameter.requires_grad for parameter in layer.parameters(recurse=False))
            if own and not isinstance(layer, ParametrizationList):  # what that gives is a weight
                handle = layer.register_forward_hook(lambda _layer, _inputs, output: _but(output, only, factor))
                stack.callback(handle.remove)
        yield


def _drawn_alike(
    fast: Fast, inputs: Inputs, targets: Tensor | None, device: torch.device, seed: int = 0
) -> list[Factor | None]:
    """Gradients with coins that are always the same; the generators of the caller are left as they were."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        return list(fast(inputs, targets))


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Within this context the module is in evaluation mode; afterwards each layer is in the mode that it was in."""
    before = [(layer, layer.training) for layer in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for layer, training in before:
            if layer.training != training:
                layer.train(training)  # a layer may do more than to remember it
        for layer, training in before:
            layer.training = training

"""Compare the gradients per record with a naive loop over the records.

Once in evaluation mode, where nothing is random, and once as the module is, where it may treat records differently.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from almoner.errors import ArgumentError, Unsupported
from almoner.training.gradients._batches import Batch, Column, Inputs, as_inputs
from almoner.training.gradients._factors import Factors, gradients_of, half
from almoner.training.gradients._recorder import Recorder, changed
from almoner.training.gradients._shards import is_sharded, local

Value = TypeVar("Value")

FEW = 4  # so many records from all over are compared
UNLIKE = 6  # so many that are least alike are compared, too

LOOKED_AT, LOADED, NUMBERS = 2**12, 16, 2**22
"""They are found among so many, or so many of those that are read when asked for; of so many numbers in all."""

COINS = (0, 3, 155)
"""Seeds: the first coin of the second is less than 0.01, that of the third more than 0.99: what is rare happens."""

HUGE = 1e6  # so much larger are other records made: then a mixture with a weight of 1e-8 is above the rounding

ABSOLUTE, RELATIVE, SHARE, OF_ALL = 1e-6, 1e-3, 1e-2, 1e-4
"""Rounding, with room for long sums, of all parameters together; and of each, of its own length and that of all."""

LOOSE = 64  # so many times as much is allowed in half precision; what lacks or is counted twice is more


class Mixture(Unsupported):
    """A gradient that is right for each record by itself is another one among other records."""


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


def check(recorder: Recorder, inputs: Inputs, targets: Tensor | None) -> Tensor:
    """Find out how the module is called, and compare all gradients with a naive loop; (records,) its norms, private.

    Where one pass does not give them, they are made record by record from now on, with a warning.

    Raises Unsupported where records depend on each other, or the forward pass changes what is saved with the module.
    """
    recorder.slow, recorder.rows, why = False, 0, ""
    recorder.half = any(map(half, recorder.module.parameters()))
    with _unchanged(recorder.module):
        for new_axis in (False, True):
            try:
                return _in_full(recorder, inputs, targets, new_axis=new_axis)
            except (ArgumentError, Mixture):
                raise
            except Exception as failure:  # of ours, or of torch inside a layer that is called in another way
                ours = isinstance(failure, Unsupported)
                why = str(failure) if ours else f"module: {type(failure).__name__} in one pass"
        if recorder.sharded:
            raise Unsupported(f"{why}. A sharded module can't be done record by record: train it unsharded")
        recorder.slow = True
        norms = _in_full(recorder, inputs, targets)
    warnings.warn(
        f"{why}. So gradients are made record by record, which is right and much slower: as many passes as records",
        stacklevel=2,
    )
    return norms


def _in_full(recorder: Recorder, inputs: Inputs, targets: Tensor | None, *, new_axis: bool = False) -> Tensor:
    """Look and compare; in half precision a copy in double precision, where autocast does nothing; itself loosely."""
    exact, few, goals, known = recorder, inputs, targets, recorder.half or recorder.sharded  # there half is refused
    for more in (torch.float64, torch.float32) if recorder.half and not recorder.sharded else ():
        made, change = recorder.of_copy(deepcopy(recorder.module).to(more), recorder.loss), _as(more)
        with suppress(RuntimeError), evaluation_mode(made.module):  # of a module that casts what comes
            own, aims = inputs.map(change), None if targets is None else change(targets)
            next(made.by_record(*made.copied(own, aims)))
            exact, few, goals, made.half = made, own, aims, False
            break
    if not recorder.slow:
        _look(exact, few, goals, new_axis=new_axis)
        recorder.__dict__ |= {name: getattr(exact, name) for name in ("calls", "spread", "channels_last")}
        recorder.half |= exact.half
        if recorder.half and not known:
            return _in_full(recorder, inputs, targets, new_axis=new_axis)
    norms = _compare(exact, few, goals)
    if exact is not recorder:
        _by_themselves(recorder, inputs, targets)
    return norms


def _look(recorder: Recorder, inputs: Inputs, targets: Tensor | None, *, new_axis: bool) -> None:
    """Have the recorder look; spread the parameters of those kinds of layers with which gradients are right."""
    with evaluation_mode(recorder.module), torch.random.fork_rng(devices=[]):
        kinds = recorder.look(inputs, new_axis=new_axis)
    good: frozenset[type[nn.Module]] = frozenset()
    for some in (kinds, *({kind} for kind in sorted(kinds, key=repr) if len(kinds) > 1)):
        if some:
            recorder.spread = good | some
            with suppress(Exception):
                _by_themselves(recorder, inputs, targets)
                good = recorder.spread
    recorder.spread = good


def _compare(recorder: Recorder, inputs: Inputs, targets: Tensor | None) -> Tensor:
    try:
        norms = _by_themselves(recorder, inputs, targets)
        _independent(recorder, inputs, targets)
        _untainted(recorder, inputs, targets)
        return norms
    except Unsupported:  # or the rounding of a gradient that is nearly zero, which is gone in double precision
        if recorder.sharded or all(parameter.dtype == torch.float64 for parameter in recorder.parameters):
            raise
        with suppress(RuntimeError):  # of a module that cannot be computed in double precision
            exact = recorder.of_copy(deepcopy(recorder.module).double(), recorder.loss)
            double = _as(torch.float64)
            return _compare(exact, inputs.map(double), None if targets is None else double(targets))
        raise


def _as(dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    return lambda value: value.to(dtype) if value.is_floating_point() else value


def same_bits(recorder: Recorder, count: int, inputs: Inputs, targets: Tensor | None) -> None:
    """Refuse half precision where a record's numbers depend on its place in a pass of this size, or on others there.

    A kernel may add up in another order in another place; rounded to half precision that changes whole digits.
    """
    few, recorder.rows, first = len(inputs[0]), count, list[Tensor]()
    rows, alone = torch.arange(count) % few, (torch.full((count,), each) for each in _ends(inputs))
    for each in (rows, rows.flip(0), rows.roll(1), rows[: (count + 1) // 2], *alone):
        with evaluation_mode(recorder.module):
            factors = recorder.factors(inputs, targets, each)
        found = [part for factor in factors if factor is not None for part in factor.tensors.values()]
        first = first or [part[:few].clone() for part in found]
        at = torch.nonzero(each < count).flatten()
        pairs = ((old[each[at]], new[at]) for old, new in zip(first, found, strict=True))
        if not all(torch.allclose(*pair, rtol=0.0, atol=0.0, equal_nan=True) for pair in pairs):
            raise Unsupported(
                "module: in half precision a record's gradient depends on its place among others, to the last digits: "
                "train in single precision, by module.float() and without torch.autocast"
            )


@contextmanager
def _unchanged(module: nn.Module) -> Iterator[None]:
    """Raise Unsupported where this context changes anything that is saved with the module."""

    def comparable(tensor: Tensor) -> Tensor:
        tensor = local(tensor.detach()) if hasattr(tensor, "device_mesh") else tensor.detach()
        tensor = tensor.dequantize() if tensor.is_quantized else tensor
        return tensor if tensor.layout is torch.strided else tensor.to_dense()

    saved = [*module.named_parameters(), *module.named_buffers()]
    before = [comparable(tensor).clone() for _, tensor in saved]
    yield
    for (name, tensor), old in zip(saved, before, strict=True):
        if not torch.allclose(comparable(tensor), old, rtol=0.0, atol=0.0, equal_nan=True):
            raise changed(repr(name))


def _apart(pairs: Iterable[tuple[Tensor, Tensor | None]]) -> tuple[float, float]:
    """The length of a gradient, all parameters together, and how far another one is from it; at most 1: equal."""
    both = ((part, part if other is None else other.reshape(part.shape) - part) for part, other in pairs)
    lengths = [(float(part.norm()), float(apart.norm())) for part, apart in both]
    norm, far = (sum(each[at] ** 2 for each in lengths) ** 0.5 for at in (0, 1))
    ratios = [apart / (SHARE * own + OF_ALL * norm + ABSOLUTE) for own, apart in lengths]
    return norm, float(torch.tensor([far / (RELATIVE * norm + ABSOLUTE), *ratios]).max())


def _whole(recorder: Recorder, factors: Factors, number: int) -> list[Any]:
    own = gradients_of(factors, number)
    return recorder.shards.whole_of(own, recorder.parameters) if recorder.sharded else own


def _by_themselves(recorder: Recorder, inputs: Inputs, targets: Tensor | None) -> Tensor:
    """(records,) the norms in the naive loop, if its gradients are those of the recorder, dropout switched off."""
    norms, room = [], LOOSE if recorder.half else 1  # lest rounding decide for another way, which rounds otherwise
    with evaluation_mode(recorder.module):
        factors = recorder.compared(inputs, targets)
        for number, (slow, _, loss) in enumerate(recorder.by_record(*recorder.copied(inputs, targets))):
            norms.append(_apart((each, None) for each in slow)[0])
            made = _whole(recorder, factors, number)
            _, apart = _apart(zip([loss] if recorder.slow else slow, made, strict=True))
            if apart > room:  # False where one is not a number
                raise Unsupported(
                    "module: gradients per record differ from those of each record by itself. Either records depend "
                    "on each other, or a layer's parameter is also used outside that layer, or the records are not on "
                    "the first axis"
                )
    return torch.tensor(norms, dtype=torch.float64)


def _independent(recorder: Recorder, inputs: Inputs, targets: Tensor | None) -> None:
    """Refuse a mixture of records: a gradient among others that is not that among copies of itself, at equal coins."""
    for seed in COINS:
        among, coins = _drawn_alike(recorder, inputs, targets, seed)
        for number in _ends(inputs):
            for other in (number, *range(len(inputs[0]))):  # else copies of one that draws as many coins
                rows = torch.where(torch.arange(len(inputs[0])) == number, number, other)
                goals = None if targets is None else targets[rows]
                alike, drawn = _drawn_alike(recorder, inputs.rows(rows), goals, seed)
                if torch.equal(coins, drawn):
                    break
            _refuse_mixture(recorder, among, alike, number)


def _untainted(recorder: Recorder, inputs: Inputs, targets: Tensor | None) -> None:
    """Refuse a mixture of records: a gradient among others that is not that among huge ones, or ones not numbers.

    Others that are a million times larger, or not numbers, show where they are added in, however small their weight. It
    is done with a copy on the processor, which may keep something of this, or end in an error. A sharded module has no
    copy: it meets numbers alone.
    """
    try:
        if not recorder.sharded:
            inputs, targets = inputs.map(torch.Tensor.cpu), None if targets is None else targets.cpu()
            loss = deepcopy(recorder.loss)
            loss = loss.cpu() if isinstance(loss, nn.Module) else loss
            recorder = recorder.of_copy(deepcopy(recorder.module).cpu(), loss)
        among, _ = _drawn_alike(recorder, inputs, targets)
    except Exception:  # of what cannot be copied, or knows other devices only
        return
    for number in _ends(inputs):
        only = torch.arange(len(inputs[0])) == number
        for factor in (HUGE,) if recorder.sharded else (HUGE, torch.nan):
            try:
                with _times(recorder.module, only, factor):
                    others = inputs.map(lambda part: _but(part, only, factor))  # noqa: B023
                    tainted, _ = _drawn_alike(recorder, others, _but(targets, only, factor))
            except Exception:  # of a module that refuses such numbers, in its own words
                continue
            _refuse_mixture(recorder, among, tainted, number)


def _ends(inputs: Inputs) -> tuple[int, ...]:
    return (0, len(inputs[0]) - 1) if len(inputs[0]) > 1 else ()


def _refuse_mixture(recorder: Recorder, among: Factors, other: Factors, number: int) -> None:
    pairs = zip(*(_whole(recorder, each, number) for each in (among, other)), strict=True)
    both = ((own, changed) for own, changed in pairs if own is not None and changed is not None)
    if not _apart((own, changed) for own, changed in both if torch.isfinite(own).all())[1] <= 1:
        mode = "training" if recorder.module.training else "evaluation"
        raise Mixture(
            f"module: in {mode} mode gradients per record depend on the other records, in the module or in the loss, "
            "or on coins that are not PyTorch's"
        )


def _but(part: Value, only: Tensor, factor: float) -> Value:
    """Keep the numbers of one row and multiply all others; what holds no real numbers stays as it is."""
    if not isinstance(part, Tensor) or not part.is_floating_point() or part.shape[:1] != only.shape:
        return part
    if is_sharded(part):
        own: Any = part
        return cast(Value, own.from_local(_but(own.to_local(), only, factor), own.device_mesh, own.placements))
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


def _drawn_alike(recorder: Recorder, inputs: Inputs, targets: Tensor | None, seed: int = 0) -> tuple[Factors, Tensor]:
    """Gradients with coins that are always the same, and where the processor's end; the caller's are left alone."""
    device = recorder.parameters[0].device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        return recorder.compared(inputs, targets), torch.get_rng_state()


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

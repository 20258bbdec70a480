"""Sums of people's clipped gradients, and each person's norm, for a PyTorch module.

Names and symbols
    records       rows of the inputs; private
    people        (records,) the number of the person to whom each record belongs; private
    norms         (people,) L2 norm of each person's gradient, all of that person's records together; private
    weights       (people,) what each person's gradient is multiplied by before it is added; private
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from almoner import _check
from almoner.errors import ArgumentError, Unsupported
from almoner.training.gradients import _factors, _self_check
from almoner.training.gradients._batches import Batch, Chunk, Inputs, as_inputs, check_batch, chunks
from almoner.training.gradients._layers import refuse_unsupported
from almoner.training.gradients._recorder import Loss, Observe, Recorder, trained_parameters
from almoner.training.gradients._shards import local
from almoner.training.gradients.augmentations import Views

Weigh = Callable[[Tensor, Tensor], Tensor]


def clipping(norms: Tensor, clip: float) -> Tensor:
    """(n,) the weights min(1, clip / norm) that make no contribution larger than the clip; zero for unknown norms."""
    return torch.where(torch.isfinite(norms), clip / norms.clamp(min=clip), 0.0)


def refuse_precision(module: nn.Module) -> None:
    """Raise Unsupported where parameters have too few digits or too small a range, or sums no double precision."""
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.dtype not in (torch.float32, torch.float64, torch.bfloat16):
            raise Unsupported(
                f"module: parameter {name!r} is {parameter.dtype}: use float32, float64 or bfloat16, by module.float()"
            )
        if parameter.device.type == "mps":
            raise Unsupported(f"module: parameter {name!r} is on mps, without double precision: train module.cpu()")


def checked_weights(weigh: Weigh, rows: Tensor, norms: Tensor) -> Tensor:
    """Weights as float64; people whose gradient is unknown must have none."""
    weights = torch.as_tensor(weigh(rows, norms), dtype=torch.float64)
    if weights.shape != norms.shape or not bool(((weights >= 0) & torch.isfinite(weights)).all()):
        raise ArgumentError("weigh must give a weight, finite and >= 0, for each person of the chunk")
    normal = weights >= torch.finfo(torch.float32).tiny  # smaller ones may be rounded up by more than the margin
    return torch.where(torch.isfinite(norms) & normal, weights, 0.0)


MEMORY, MUCH, FEW = 2**26, 2**28, 16  # bytes for a pass; up to so many where else it would hold few records
MOST_RECORDS = 2**12  # never more records at once than this
IN_HALF = 2**6  # in half precision, where passes have one size: in another a kernel may round all to other digits


def _usual(device: torch.device, each: float) -> float:
    """Bytes for a pass over records of so many bytes: an eighth of a GPU's; else enough for a few large ones."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 8
    return min(MUCH, max(MEMORY, FEW * each))


def _form(inputs: Inputs, targets: Tensor | None) -> list[torch.Size]:
    return [part.shape[1:] for part in (*inputs, targets) if part is not None]


class Gradients:
    """Gradients per person of a loss of a module. Nothing here is private by itself: it gives private sums.

    Args:
        module: public. Its parameters that require a gradient are trained; each record must be computed from that
            record alone (no batch normalisation). The first axis of inputs, targets and losses is the record.
        loss: public. Called with the module's output and the targets, gives one loss for each record:
            ``nn.CrossEntropyLoss(reduction="none")``.
        memory: public, bytes. About how much memory a pass may use; records are taken in chunks that fit. None: 2^26,
            or for large records what 16 of them need, up to 2^28; on a GPU an eighth of the GPU's.
        views: public. Several views of each record, whose gradients are averaged; see ``augmentations``.

    Raises:
        Unsupported: a layer has no gradient per person; the message names it and what to use instead.

    Guarantee: with weights w, the sum that is given is the sum over people of w times that person's gradient, and each
        person's norm is not below the norm of that gradient, up to the rounding of floating-point sums.
    Source: theory 5.7 (a person's records are summed before anything is clipped).
    """

    def __init__(
        self, module: nn.Module, loss: Loss, *, memory: float | None = None, views: Views | None = None
    ) -> None:
        if not isinstance(module, nn.Module):
            raise ArgumentError(f"module={type(module).__name__} must be a torch.nn.Module")
        if not callable(loss):
            raise ArgumentError(f"loss={loss!r} must be a function of the module's output and the targets")
        _check.given(_check.positive, memory=memory)
        refuse_unsupported(module)
        refuse_precision(module)
        self._recorder = Recorder(module, loss)
        self._alone = not self._recorder.sharded
        self.shards = self._recorder.shards  # over which the module is sharded; sums are then of all their people
        self._module, self._memory, self._views = module, memory, views
        self._parameters, self._factors = self._recorder.parameters, self._recorder.factors
        self.seeds: Any = None  # NumPy's generator of a seed for dropout's coins in each pass; None: the caller's coins
        if views is not None:
            self._factors = partial(self._factors, draw=views.draw, views=views.count)
        if not self._parameters:
            raise ArgumentError("module: no parameter requires a gradient, so there is nothing to train")
        self._records_at_once: int | None = None
        self._modes: list[Any] = []
        self._compared = 0
        self.half = False  # True: something was found to be computed in half precision
        self._form: list[torch.Size] = []
        self._few: Any = None  # a few records and their targets, as all processes of a sharded module have them

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters that are trained, in the module's order."""
        return list(self._parameters)

    def norms(self, inputs: Batch, targets: Tensor | None, people: Tensor | None = None) -> Tensor:
        """(people,) float64, private: the L2 norm of each person's gradient; NaN where not finite."""
        return self._pass(inputs, targets, people, None, None)[1]

    def sums(
        self,
        inputs: Batch,
        targets: Tensor | None,
        weigh: Weigh | float,
        people: Tensor | None = None,
        observe: Observe | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """The weighted sum of people's gradients and each person's norm, in one pass.

        Args:
            inputs: (records, ...) tensor, several in a list, or several by name in a dict, private: what the module is
                called with. Arrays of NumPy and columns of pandas are taken as tensors.
            targets: (records, ...) private: what the loss is called with.
            weigh: a clip C, for weights min(1, C / norm); or a function of people (rows, a chunk at a time, in order)
                and their norms that gives their weights. It is called before their gradients are added: the place to
                charge them. A person of weight zero contributes nothing, even where the gradient is not a number.
            people: (records,) whole numbers from 0, private: the person of each record; None: one each.
            observe: called with the records' numbers, the module's output and the losses of each chunk; all private.

        Returns:
            The sum for each trained parameter, in their order, float64, to be rounded only when noise is in it; and
            the norms (people,) float64. Both private.
        """
        if not callable(weigh):
            _check.positive(weigh=weigh)
            clip = float(weigh)
            return self._pass(inputs, targets, people, lambda _rows, norms: clipping(norms, clip), observe)
        return self._pass(inputs, targets, people, weigh, observe)

    def check(self, inputs: Batch, targets: Tensor | None) -> Tensor:
        """Compare with a naive loop over the records; (records,) float64, private: the loop's norms.

        Raises Unsupported where they differ: this module has no gradient per record, or none that can be computed here.
        """
        inputs = self.as_inputs(inputs)
        check_batch(inputs, targets, None)
        refuse_unsupported(self._module)
        self._modes = []  # passes are prepared anew: it may find another way
        self.shards.reshard()
        return _self_check.check(self._recorder, inputs, targets)

    def as_inputs(self, inputs: Batch) -> Inputs:
        """The inputs of the module, as tensors; numbers of NumPy and pandas in the module's precision."""
        return as_inputs(inputs, self._parameters[0].dtype)

    def ready(self, records: int) -> bool:
        """True if the module, as it is now, was compared already on as many records as are needed for so many."""
        return self._modes == self._modes_now() and self._compared >= min(records, 2)

    def prepare(self, inputs: Batch, targets: Tensor | None) -> None:
        """Compare a few records with a naive loop, as ``check``, and choose how many to take at once."""
        self._check_parameters()
        inputs = self.as_inputs(inputs)
        own = _self_check.spread(inputs, targets) if len(inputs[0]) else None
        self._few = own if self._alone or self.shards.split else self.shards.given_by_one(own, len(inputs[0]))
        few, goals = self._few
        self.check(few, goals)
        if self._views is not None:
            self._views.check(few)
        views = 1 if self._views is None else self._views.count
        self.half = self._recorder.half
        self._form, same = _form(few, goals), torch.zeros(8, dtype=torch.int64)
        if self.half:  # copies of one record, as many as nobody's record tells
            few, goals = few.rows(same), None if goals is None else goals[same]
        memory = 0
        public = self._storages()

        def pack(saved: Tensor) -> Tensor:
            nonlocal memory
            own = local(saved)
            if own.untyped_storage().data_ptr() not in (public if self._alone else self._storages()):
                memory += own.numel() * own.element_size()
            return saved

        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
            self._recorder.output(few)
        memory += sum(factor.nbytes for factor in self._recorder.factors(few, goals) if factor is not None)
        each = (memory * views + 1) / len(few[0])
        most = max(1, min(MOST_RECORDS, int((self._memory or _usual(self._parameters[0].device, each)) / each)))
        if self.half and not self._recorder.slow:
            most = min(IN_HALF, 2 ** (most.bit_length() - 1))
            _self_check.same_bits(self._recorder, most * views, *self._few)
            self._recorder.rows = most
        self._modes, self._compared = self._modes_now(), len(self._few[0][0])
        self._records_at_once = -self.shards.most(-most)  # they take as many at a time, who are in step

    def _storages(self) -> set[int]:
        """Where the parameters are in memory now, also those that FSDP has gathered."""
        return {local(each).untyped_storage().data_ptr() for each in self._module.parameters()}

    def _check_parameters(self) -> None:
        """Refuse a module that was changed: what is trained would not be what sums are made of."""
        if not self._alone:
            self.shards.reshard()
        if list(map(id, trained_parameters(self._module))) != list(map(id, self._parameters)):
            raise ArgumentError("module: its parameters changed since this was made: replace or freeze layers first")
        refuse_precision(self._module)

    def _modes_now(self) -> list[Any]:
        return [each.training for each in self._module.modules()] + [each.dtype for each in self._module.parameters()]

    def _pass(
        self, inputs: Batch, targets: Tensor | None, people: Tensor | None, weigh: Weigh | None, observe: Observe | None
    ) -> tuple[list[Tensor], Tensor]:
        inputs = self.as_inputs(inputs)
        count = check_batch(inputs, targets, people)
        # it keeps old copies of the parameters until it ends
        if torch.is_autocast_enabled(self._parameters[0].device.type):
            raise Unsupported("module: train outside torch.autocast; the module's own forward may use it")
        sums = list(map(self.shards.zeros, self._parameters))
        norms = torch.zeros(int(people.max()) + 1 if people is not None and count else count, dtype=torch.float64)
        if not (most := count if self._alone else self.shards.most(count)):
            return sums, norms
        self._check_parameters()
        if not self.ready(most):  # what was compared is what is trained
            self.prepare(inputs, targets)
        if self.half and self._form != _form(inputs, targets):
            raise Unsupported("module: in half precision records must have one form, that of the first: pad them to it")
        add = _factors.add_weighted_sums if self._alone else self._add
        norms_of = _factors.norms_of if self._alone else partial(self.shards.norms, parameters=self._parameters)
        take: Any = self._of_people if self._alone else self._in_step
        weights_of = checked_weights if self._alone else self._weights
        parts = chunks(count, people, self._records_at_once or 1) if count else []
        for number in range(len(parts) if self._alone else self.shards.most(len(parts))):
            chunk = parts[number] if number < len(parts) else None
            factors = take(inputs, targets, chunk, observe)
            rows = torch.zeros(0, dtype=torch.int64) if chunk is None else chunk.rows
            norms[rows] = chunk_norms = norms_of(factors, len(rows))
            if weigh is not None:
                add(sums, factors, chunk_norms, weights_of(weigh, rows, chunk_norms))
        return sums, norms

    def _in_step(
        self, inputs: Inputs, targets: Tensor | None, chunk: Chunk | None, observe: Observe | None
    ) -> _factors.Factors:
        """The factors of a chunk's people, in as many passes as any process takes; of no chunk, none."""
        passes, most = 0 if chunk is None else 1, self._records_at_once or 1
        if chunk is not None and len(chunk.rows) == 1 and chunk.most > most:
            passes = -(-chunk.most // most)
        fewer, (few, goals) = self.shards.most(passes) - passes, self._few
        none: _factors.Factors = [None] * len(self._parameters)
        factors = none if chunk is None else self._of_people(inputs, targets, chunk, observe)
        for _ in range(fewer):
            self._record(few, goals, slice(0, 1))  # in step with the others; it is in no sum
        return factors

    def _weights(self, weigh: Weigh, rows: Tensor, norms: Tensor) -> Tensor:
        """People's weights; raises an error in all processes where one has it."""
        error, weights = None, torch.zeros_like(norms)
        try:
            if len(rows):
                weights = checked_weights(weigh, rows, norms)
        except BaseException as failed:
            error = failed
        self.shards.agree(error)
        self.shards.same("people's weights", rows, weights)
        return weights

    def _add(self, sums: list[Tensor], factors: _factors.Factors, norms: Tensor, weights: Tensor) -> None:
        """Add weighted gradients to the sums; of a sharded module those of all processes, one parameter at a time."""
        for number, (factor, parameter) in enumerate(zip(factors, self._parameters, strict=True)):
            part = torch.zeros(self.shards.shape(parameter), dtype=torch.float64, device=parameter.device)
            _factors.add_weighted_sums([part], [factor], norms, weights)
            sums[number] += self.shards.total(part, parameter)

    def _record(self, *given: Any, **how: Any) -> _factors.Factors:
        """One pass, where there are seeds with coins that nobody knows: one record more gives all later ones others."""
        device = self._parameters[0].device
        with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=self.seeds is not None):
            if self.seeds is not None:
                torch.manual_seed(int(self.seeds.integers(2**63)))
            return self._factors(*given, **how)

    def _of_people(
        self, inputs: Inputs, targets: Tensor | None, chunk: Chunk, observe: Observe | None
    ) -> _factors.Factors:
        """One factor for each parameter, people first."""
        most = self._records_at_once or 1
        if chunk.place is None or isinstance(chunk.records, slice):  # each record is a person
            return self._record(inputs, targets, chunk.records, observe=observe)
        if len(chunk.rows) > 1 or chunk.most <= most:
            factors = self._record(inputs, targets, chunk.records, observe=observe)
            return _factors.grouped_by_person(factors, chunk.place, len(chunk.rows), chunk.most)
        total: _factors.Factors = [None] * len(self._parameters)  # one person with many records: a part at a time
        for part in torch.split(chunk.records, most):
            factors = self._record(inputs, targets, part, observe=observe)
            total = _factors.of_one_person(total, factors, list(map(self.shards.shape, self._parameters)))
        return total


def check(module: nn.Module, batch: Batch, targets: Tensor | None = None, *, loss: Loss | None = None) -> Tensor:
    """Compare the gradients per record with a naive loop over the records.

    Args:
        module: public.
        batch: (records, ...) tensor or several; every record is gone through by itself.
        targets: (records, ...) for the loss.
        loss: one number for each record; None: a fixed random mixture of the module's outputs, which needs no targets.

    Returns:
        (records,) float64, private: the norms that the naive loop gives. The fast way gives the same.

    Raises:
        Unsupported: a layer has no gradient per person, and its name, or the gradients differ.

    >>> check(nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten()), torch.ones(5, 1, 6, 6)).shape
    torch.Size([5])
    """
    return Gradients(module, _mixture if loss is None else loss).check(batch, targets)


def _mixture(output: object) -> Tensor:
    """(records,) the same weighted sum of what comes out for each record."""
    parts = [part for part in tree_leaves(output) if isinstance(part, Tensor) and part.is_floating_point()]
    flat = torch.cat([part.flatten(1) for part in parts], dim=1)
    weights = torch.cos(torch.arange(1, flat.shape[1] + 1, device=flat.device, dtype=flat.dtype))
    mixed: Tensor = flat @ weights
    return mixed

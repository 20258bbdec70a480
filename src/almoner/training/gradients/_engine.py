"""Sums of people's clipped gradients, and each person's norm, for a PyTorch module.

Names and symbols
    records       rows of the inputs; private
    people        (records,) the number of the person to whom each record belongs; private
    norms         (people,) L2 norm of each person's gradient, all of that person's records together; private
    weights       (people,) what each person's gradient is multiplied by before it is added; private
"""

from collections.abc import Callable, Collection
from contextlib import suppress
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from almoner import _check
from almoner.errors import ArgumentError, Unsupported
from almoner.training.gradients import _self_check
from almoner.training.gradients._batches import Batch, Chunk, Inputs, as_inputs, check_batch, chunks, prepared
from almoner.training.gradients._calls import Calls
from almoner.training.gradients._factors import Dense, Factor, combined, norms_of
from almoner.training.gradients._hooks import layers_with_parameters, own_parameters, record_layers, refuse_changes
from almoner.training.gradients._layers import refuse_unsupported, rule_of
from almoner.training.gradients._precision import exact, refuse_autocast, refuse_precision

__all__ = ["Gradients", "Loss", "Weigh", "check", "clipping"]


def clipping(norms: Tensor, clip: float) -> Tensor:
    """(n,) the weights min(1, clip / norm) that make no contribution larger than the clip; zero for unknown norms."""
    return torch.where(torch.isfinite(norms), clip / norms.clamp(min=clip), 0.0)


def checked_weights(weights: Tensor, norms: Tensor) -> Tensor:
    """Weights as float64; people whose gradient is unknown must have none."""
    weights = torch.as_tensor(weights, dtype=torch.float64)
    if weights.shape != norms.shape or not bool(((weights >= 0) & torch.isfinite(weights)).all()):
        raise ArgumentError("weigh must give a weight, finite and >= 0, for each person of the chunk")
    normal = weights >= torch.finfo(torch.float32).tiny  # smaller ones may be rounded up by more than the margin
    return torch.where(torch.isfinite(norms) & normal, weights, 0.0)


if TYPE_CHECKING:
    from almoner.training.gradients.augmentations import Views


Weigh = Callable[[Tensor, Tensor], Tensor]
Observe = Callable[[slice | Tensor, Tensor, Tensor], None]
Loss = Callable[..., Tensor]

MEMORY = 2**26
MOST_RECORDS = 2**12
"""Never more records at once than this."""


class Gradients:
    """Gradients per person of a loss of a module. Nothing here is private by itself: it gives private sums.

    Args:
        module: public. Its parameters that require a gradient are trained; each record must be computed from that
            record alone (no batch normalisation). The first axis of every tensor is the record.
        loss: public. Called with the module's output and the targets, gives one loss for each record:
            ``nn.CrossEntropyLoss(reduction="none")``.
        memory: public, bytes. About how much memory a pass may use; records are taken in chunks that fit.
        views: public. Several views of each record, whose gradients are averaged; see ``training.augmentations``.

    Raises:
        Unsupported: a layer has no gradient per person; the message names it and what to use instead.

    Guarantee: with weights w, the sum that is given is the sum over people of w times that person's gradient, and each
        person's norm is not below the norm of that gradient, up to the rounding of floating-point sums.
    Source: theory 5.7 (a person's records are summed before anything is clipped).
    """

    def __init__(self, module: nn.Module, loss: Loss, *, memory: float = MEMORY, views: "Views | None" = None) -> None:
        if not isinstance(module, nn.Module):
            raise ArgumentError(f"module={type(module).__name__} must be a torch.nn.Module")
        if not callable(loss):
            raise ArgumentError(f"loss={loss!r} must be a function of the module's output and the targets")
        _check.positive(memory=memory)
        refuse_unsupported(module)
        refuse_precision(module)
        self._module, self._loss, self._memory, self._views = module, loss, memory, views
        self._parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if not self._parameters:
            raise ArgumentError("module: no parameter requires a gradient, so there is nothing to train")
        self._records_at_once: int | None = None
        self._modes: list[bool] = []
        self._compared = 0
        self._channels_last = True
        self._calls = Calls()
        self._spread: Collection[type[nn.Module]] = ()

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

        Raises:
            Unsupported: they differ, so this module has no gradient per record, or none that can be computed here.
        """
        inputs = self.as_inputs(inputs)
        check_batch(inputs, targets, None)
        refuse_unsupported(self._module)
        with refuse_changes(self._module):
            self._look(inputs, targets, Calls())
            try:
                return self._compare(inputs, targets)
            except Unsupported:
                if not self._calls.without_axis:
                    raise
            self._look(inputs, targets, Calls(new_axis=True))
            return self._compare(inputs, targets)

    def as_inputs(self, inputs: Batch) -> Inputs:
        """The inputs of the module, as tensors; numbers of NumPy and pandas in the module's precision."""
        return as_inputs(inputs, self._parameters[0].dtype)

    def _look(self, inputs: Inputs, targets: Tensor | None, calls: Calls) -> None:
        """Find out how the module is called and what its layers give: see ``Calls`` and ``record_layers``."""
        device = self._parameters[0].device

        def run(rows: slice) -> None:
            part = inputs.rows(rows).map(lambda x: prepared(x.clone(), device, channels_last=self._channels_last))
            part.call(self._module)

        with _self_check.evaluation_mode(self._module), torch.random.fork_rng(devices=[]):
            self._channels_last = True
            try:
                with torch.no_grad():
                    run(slice(None))
            except RuntimeError:  # of a view of what is no longer in order
                self._channels_last = False
            own = (layer for layer in self._module.modules() if own_parameters(layer) and rule_of(layer) is None)
            kinds = {type(layer) for layer in own if not type(layer).__module__.startswith("torch.nn.")}
            everything = list(layers_with_parameters(self._module, kinds))
            self._calls = calls
            if len(inputs[0]) > 1:
                calls.learn(everything, run, len(inputs[0]))
        self._spread = ()
        for some in (kinds, *({kind} for kind in kinds if len(kinds) > 1)):
            if some and self._agrees(inputs, targets, {*self._spread, *some}):
                self._spread = {*self._spread, *some}

    def _agrees(self, inputs: Inputs, targets: Tensor | None, spread: Collection[type[nn.Module]]) -> bool:
        """True if gradients are those of a naive loop with the parameters of these kinds of layers spread out."""
        before, self._spread = self._spread, spread
        try:
            _self_check.compare(self._module, self._loss, inputs, targets, self._all_at_once)
            return True
        except (Unsupported, RuntimeError, ValueError, IndexError):
            return False
        finally:
            self._spread = before

    def _all_at_once(self, inputs: Inputs, targets: Tensor | None) -> list[Factor | None]:
        return self._of_records(inputs, targets, slice(None), None)

    def _compare(self, inputs: Inputs, targets: Tensor | None) -> Tensor:
        try:
            norms = _self_check.compare(self._module, self._loss, inputs, targets, self._all_at_once)
            _self_check.independent(self._module, inputs, targets, self._all_at_once)
            self._on_a_copy(inputs, targets)
            return norms
        except Unsupported:  # or the rounding of a gradient that is nearly zero, which is gone in double precision
            if all(parameter.dtype == torch.float64 for parameter in self._parameters):
                raise
            with suppress(RuntimeError):  # of a module that cannot be computed in double precision
                exact = self._copied(deepcopy(self._module).double(), self._loss)
                goals = None if targets is None else _double(targets)
                return exact._compare(inputs.map(_double), goals)
            raise

    def _copied(self, module: nn.Module, loss: Loss) -> "Gradients":
        """Make the same engine for a copy of the module, which is called alike."""
        copy = Gradients(module, loss, memory=self._memory)
        copy._calls, copy._spread, copy._channels_last = self._calls, self._spread, self._channels_last
        return copy

    def _on_a_copy(self, inputs: Inputs, targets: Tensor | None) -> None:
        """Do on a copy what could leave traces in the module, or end it, on a device."""
        try:
            loss = deepcopy(self._loss)
            loss = loss.cpu() if isinstance(loss, nn.Module) else loss
            copy = self._copied(deepcopy(self._module).cpu(), loss)
        except Exception:  # what cannot be copied
            return
        few = inputs.map(lambda part: part.cpu())
        _self_check.untainted(copy._module, few, None if targets is None else targets.cpu(), copy._all_at_once)

    def ready(self, records: int) -> bool:
        """True if the module, as it is now, was compared already on as many records as are needed for so many."""
        return self._modes == self._modes_now() and self._compared >= min(records, 2)

    def prepare(self, inputs: Batch, targets: Tensor | None) -> None:
        """Compare a few records with a naive loop, and choose how many to take at once; else the first pass does it.

        Raises:
            Unsupported: as ``check``.
        """
        self._check_parameters()
        few, goals = _self_check.spread(self.as_inputs(inputs), targets)
        self.check(few, goals)
        if self._views is not None:
            self._views.check(few)
        memory = 0
        public = {parameter.untyped_storage().data_ptr() for parameter in self._module.parameters()}

        def pack(saved: Tensor) -> Tensor:
            nonlocal memory
            if saved.untyped_storage().data_ptr() not in public:
                memory += saved.numel() * saved.element_size()
            return saved

        device = self._parameters[0].device
        with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
            few.map(lambda part: prepared(part, device, channels_last=self._channels_last)).call(self._module)
        factors = self._of_records(few, goals, slice(None), None)
        memory += sum(factor.nbytes for factor in factors if factor is not None)
        views = 1 if self._views is None else self._views.count
        self._modes, self._compared = self._modes_now(), len(few[0])
        self._records_at_once = max(1, min(MOST_RECORDS, int(self._memory * len(few[0]) / (memory * views + 1))))

    def _check_parameters(self) -> None:
        """Refuse a module that was changed: what is trained would not be what sums are made of."""
        now = [parameter for parameter in self._module.parameters() if parameter.requires_grad]
        if len(now) != len(self._parameters) or any(a is not b for a, b in zip(now, self._parameters, strict=True)):
            raise ArgumentError(
                "module: its trained parameters are not those it had when this was made: replace or freeze layers first"
            )
        refuse_precision(self._module)

    def _modes_now(self) -> list[bool]:
        return [layer.training for layer in self._module.modules()]

    def _pass(
        self, inputs: Batch, targets: Tensor | None, people: Tensor | None, weigh: Weigh | None, observe: Observe | None
    ) -> tuple[list[Tensor], Tensor]:
        inputs = self.as_inputs(inputs)
        count = check_batch(inputs, targets, people)
        refuse_autocast(self._parameters[0].device)
        sums = [
            torch.zeros_like(parameter, dtype=torch.float64, memory_format=torch.contiguous_format)
            for parameter in self._parameters
        ]
        if not count:
            return sums, torch.zeros(0, dtype=torch.float64)
        self._check_parameters()
        if not self.ready(count):  # what was compared is what is trained
            self.prepare(inputs, targets)
        parts = chunks(count, people, self._records_at_once or 1)
        norms = torch.zeros(count if people is None else int(people.max()) + 1, dtype=torch.float64)
        for chunk in parts:
            factors = self._of_people(inputs, targets, chunk, observe)
            with exact():
                norms[chunk.rows] = chunk_norms = norms_of(factors, len(chunk.rows)).cpu()
            if weigh is not None:
                self._add(sums, factors, chunk_norms, checked_weights(weigh(chunk.rows, chunk_norms), chunk_norms))
        return sums, norms

    def _of_people(
        self, inputs: Inputs, targets: Tensor | None, chunk: Chunk, observe: Observe | None
    ) -> list[Factor | None]:
        """One factor for each parameter, people first; None for a parameter that was not used."""
        most = self._records_at_once or 1
        if chunk.place is None or isinstance(chunk.records, slice):  # each record is a person
            return self._of_records(inputs, targets, chunk.records, observe, self._views)
        if len(chunk.rows) > 1 or chunk.most <= most:
            factors = self._of_records(inputs, targets, chunk.records, observe, self._views)
            with exact():
                return [
                    factor and factor.grouped_by_person(chunk.place, len(chunk.rows), chunk.most).cheapest()
                    for factor in factors
                ]
        total: list[Factor | None] = [None] * len(self._parameters)  # one person with many records: a part at a time
        for part in torch.split(chunk.records, most):
            for number, factor in enumerate(self._of_records(inputs, targets, part, observe, self._views)):
                if factor is not None:
                    before, ones = total[number], torch.ones(len(part), device=factor.device, dtype=factor.dtype)
                    g = torch.zeros_like(
                        self._parameters[number], dtype=factor.dtype, memory_format=torch.contiguous_format
                    )
                    with exact():
                        factor.add_weighted_sum(g, ones)
                    total[number] = Dense(g.unsqueeze(0) if before is None else before.gradients() + g)
        return total

    def _of_records(
        self,
        inputs: Inputs,
        targets: Tensor | None,
        records: slice | Tensor,
        observe: Observe | None,
        views: "Views | None" = None,
    ) -> list[Factor | None]:
        """One factor for each parameter, records first; of several views of a record it is their mean."""
        device = self._parameters[0].device
        own = inputs.rows(records)
        own = own.map(torch.clone) if isinstance(records, slice) else own  # a module may change it in place
        goals = None if targets is None else targets[records].to(device)
        each = 1 if views is None else views.count
        if views is not None:
            own, goals = views.draw(own), None if goals is None else goals.repeat_interleave(each, 0)
        chosen = own.map(lambda part: prepared(part, device, channels_last=self._channels_last))
        n = chosen[0].shape[0]
        with torch.enable_grad(), record_layers(self._module, n, self._calls, self._spread) as tape:
            output = chosen.call(self._module)
            losses = self._loss(output) if goals is None else self._loss(output, goals)
            if not isinstance(losses, Tensor) or losses.shape != (n,):
                raise ArgumentError("loss must give one number for each record: reduction='none'")
            total = losses.sum() / each
        factors = tape.factors(total)
        if observe is not None:
            observe(records, tree_map(_detached, output), losses.detach().view(-1, each).mean(1))
        with exact():
            found = [combined(factors[parameter]) if parameter in factors else None for parameter in self._parameters]
            if views is not None:
                found = [
                    factor and factor.grouped_by_person(torch.arange(n, device=device), n // each, each).cheapest()
                    for factor in found
                ]
        return found

    def _add(self, sums: list[Tensor], factors: list[Factor | None], norms: Tensor, weights: Tensor) -> None:
        broken = ~torch.isfinite(norms)
        any_broken = bool(broken.any())
        rounded = {(factor.device, factor.dtype) for factor in factors if factor is not None}
        shares = {kind: weights.to(*kind) for kind in rounded}
        with exact():
            for total, factor in zip(sums, factors, strict=True):
                if factor is not None:
                    if any_broken:  # zero times infinity is not zero
                        factor.set_zero(broken.to(total.device))
                    factor.add_weighted_sum(total, shares[factor.device, factor.dtype])


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


def _double(value: Tensor) -> Tensor:
    """Floating-point numbers in double precision; all else as it is."""
    return value.double() if value.is_floating_point() else value


def _mixture(output: object) -> Tensor:
    """(records,) the same weighted sum of what comes out for each record."""
    parts = [part for part in tree_leaves(output) if isinstance(part, Tensor) and part.is_floating_point()]
    flat = torch.cat([part.flatten(1) for part in parts], dim=1)
    weights = torch.cos(torch.arange(1, flat.shape[1] + 1, device=flat.device, dtype=flat.dtype))
    mixed: Tensor = flat @ weights
    return mixed


def _detached(part: object) -> object:
    return part.detach() if isinstance(part, Tensor) else part

"""Run a module and its loss, and give the factors of every record's gradient.

Every layer with trainable parameters puts on a tape how each record's gradient follows from that of what it gave. The
gradients of what came out of each layer are asked for and nothing else: the backward pass computes no gradient of a
parameter, and all norms and the weighted sum of gradients are then made from the same numbers.

A tensor that a layer is called with, or gives, has the records on one of its axes, one each or many, or none at all:
position embeddings, for example, are looked up once for all records. Two passes over different numbers of different
records tell. Where they do not, or where the module chooses rows by their numbers, as mixtures of experts do, a second
backward pass, in which each record's loss has a weight of its own, tells in every batch of which record each row is.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from almoner.errors import ArgumentError, Unsupported
from almoner.training.gradients import _factors
from almoner.training.gradients._batches import Inputs
from almoner.training.gradients._factors import Dense, Factors, Make, ParameterFactors, grouped_by_person, of_parameters
from almoner.training.gradients._layers import (
    FIRST,
    SHARED,
    Call,
    Place,
    Places,
    factors_of,
    rows_of,
    rule_of,
    spread_out,
)
from almoner.training.gradients._sequences import FORWARDS
from almoner.training.gradients._shards import Shards, kind_of, local

Loss = Callable[..., Tensor]
Observe = Callable[[slice | Tensor, Tensor, Tensor], None]
Kind = type[nn.Module]

POWERS = 64  # records are told apart by so many powers of two as weights of their losses
EXACT, ALIKE = 1e-5, 1e-3  # rounding: of rows that are multiplied by such, and of those in another batch


def trained_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that require a gradient, in the module's order."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def changed(named: str) -> Unsupported:
    """The error where a pass changes something that is saved with the module."""
    return Unsupported(
        f"module: {named} is changed by the forward pass: what it keeps of the records would be in the model, and "
        "nobody is charged for it"
    )


class Recorder:
    """A module, its loss, and how they are called; without ``look`` all tensors must have a row for each record."""

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self.module, self.loss, self.parameters = module, loss, trained_parameters(module)
        self.calls = Calls()  # which tensors of the layers' calls have a row for each record
        self.spread: frozenset[Kind] = frozenset()
        """Kinds of layers whose own parameters are given to them once for each record, while the layers in them are
        recorded by themselves; all others with parameters of their own are taken as a whole."""
        self.channels_last = True
        self.slow = False  # True: gradients are made record by record
        self.half = False  # True: something is computed in half precision
        self.rows = 0  # each pass is over so many, the first in place of those that lack; 0: over those there are
        self.shards = Shards(module)
        self.sharded = bool(self.shards)

    def of_copy(self, module: nn.Module, loss: Loss) -> "Recorder":
        made = copy(self)
        made.module, made.loss, made.parameters = module, loss, trained_parameters(module)
        return made

    def output(self, inputs: Inputs, records: slice | Tensor = slice(None)) -> Any:
        return self.copied(inputs, None, records)[0].call(self.module)

    def factors(
        self,
        inputs: Inputs,
        targets: Tensor | None,
        records: slice | Tensor = slice(None),
        *,
        draw: Callable[[Inputs], Inputs] | None = None,
        views: int = 1,
        observe: Observe | None = None,
    ) -> Factors:
        """One factor for each parameter, records first; of several ``views`` of a record their mean.

        All in one pass; or record by record, where the module was found to need it, or one pass fails: without a word,
        for that may be a fact about these records. In half precision it raises: others would be rounded differently.
        """
        numbers = torch.arange(len(inputs[0]))[records] if self.rows else torch.zeros(0)
        filled = torch.cat([numbers, numbers[:1].expand(self.rows - len(numbers))]) if self.rows else records
        taken = inputs, targets, filled, draw, views
        try:
            once = self._one_by_one if self.slow else self._in_one_pass
            factors, output, losses = once(*self.copied(*taken), views)
        except Exception:
            if self.slow or self.half or self.sharded:  # then other processes would take fewer passes
                raise
            factors, output, losses = self._one_by_one(*self.copied(*taken), views)
        if self.rows:
            count, own = len(losses), slice(len(numbers) * views)
            factors, losses = [factor and factor.of(own) for factor in factors], losses[own]
            output = tree_map(lambda part: part[own] if getattr(part, "shape", ())[:1] == (count,) else part, output)
        if observe is not None:
            observe(records, _detached(output), losses.view(-1, views).mean(1))
        if views == 1:
            return factors
        return grouped_by_person(factors, torch.arange(len(losses), device=losses.device), len(losses) // views, views)

    def compared(self, inputs: Inputs, targets: Tensor | None) -> Factors:
        """The factors of a few records among each other; where gradients are made record by record, their losses."""
        chosen, goals = self.copied(inputs, targets)
        if not self.slow:
            return self._in_one_pass(chosen, goals)[0]
        with torch.enable_grad(), self._kept():  # a module may do something else without
            return [Dense(self._losses(chosen.call(self.module), goals, len(chosen[0])).detach().unsqueeze(1))]

    def copied(
        self,
        inputs: Inputs,
        targets: Tensor | None,
        records: slice | Tensor = slice(None),
        draw: Callable[[Inputs], Inputs] | None = None,
        views: int = 1,
    ) -> tuple[Inputs, Tensor | None]:
        """Some records, or views of them, copied to the module's device: a module may change them in place."""
        device, everything = self.parameters[0].device, slice(None)
        goals = None if targets is None else targets[records].to(device)
        if draw is not None:
            inputs, records = draw(inputs.rows(records).map(torch.clone)), everything
        chosen = inputs.copied(records, device, channels_last=self.channels_last)
        if self.sharded:
            self.shards.same("records", *chosen, goals)
        return chosen, goals if draw is None or goals is None else goals.repeat_interleave(views, 0)

    def _losses(self, output: Any, goals: Tensor | None, records: int) -> Tensor:
        losses = self.loss(output) if goals is None else self.loss(output, goals)
        if not isinstance(losses, Tensor) or losses.shape != (records,):
            raise ArgumentError("loss must give one number for each record: reduction='none'")
        if self.sharded:
            self.shards.alike("losses", losses)
        return losses

    def _in_one_pass(self, chosen: Inputs, goals: Tensor | None, views: int = 1) -> tuple[Factors, Any, Tensor]:
        with torch.enable_grad(), self._recorded(len(chosen[0])) as tape:
            with tape.choices:
                output = chosen.call(self.module)
            losses = self._losses(output, goals, len(chosen[0]))
        return tape.factors(losses / views, self.parameters), output, losses.detach()

    def _one_by_one(self, chosen: Inputs, goals: Tensor | None, views: int = 1) -> tuple[Factors, Any, Tensor]:
        with self._kept():
            gradients, outputs, losses = zip(*self.by_record(chosen, goals), strict=True)
        factors = [Dense(torch.stack(each) / views) for each in zip(*gradients, strict=True)]
        return list(factors), tree_map(_together, *outputs), torch.cat(losses)

    def by_record(self, chosen: Inputs, goals: Tensor | None) -> Iterator[tuple[Sequence[Tensor], Any, Tensor]]:
        """Each record's gradient, output and loss, (1,), of a pass of its own."""
        for number in range(len(chosen[0])):
            one = slice(number, number + 1)
            with torch.enable_grad():
                output = chosen.rows(one).map(torch.clone).call(self.module)
                loss = self._losses(output, None if goals is None else goals[one], 1)
            try:
                gradient = self._gradient(loss.sum())
            except RuntimeError as failure:
                raise Unsupported("module: PyTorch can't differentiate it (transformers: use_cache=False)") from failure
            yield gradient, _detached(output), loss.detach()

    def _gradient(self, loss: Tensor) -> Sequence[Tensor]:
        """The gradient of a loss; of a sharded module right where all processes have one loss."""
        if not self.sharded:
            given = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
            return list(map(_factors.full, given)) if self.half else given
        self.module.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.shards.reshard()
        found = [self.shards.zeros(each) if each.grad is None else each.grad for each in self.parameters]
        self.module.zero_grad()
        return self.shards.whole_of(found, self.parameters)

    @contextmanager
    def _recorded(self, records: int) -> Iterator["Tape"]:
        """Record the forward pass inside this context; it must leave the module's buffers alone."""
        if self.sharded:
            self.shards.reshard()
        tape = Tape(records, self.calls, self.shards if self.sharded else None, half=self.half and not self.sharded)
        with ExitStack() as stack:
            stack.enter_context(self._kept())
            for name, layer in _layers(self.module, self.spread):
                forward = FORWARDS.get(kind_of(type(layer)) if self.sharded else type(layer))
                if type(layer) in self.spread:
                    stack.callback(layer._parameters.update, dict(layer._parameters))
                    tape.spread_out(name, layer)
                elif forward is None:
                    stack.callback(self._hooked(layer, partial(tape.layer, name)))
                else:
                    stack.callback(delattr, layer, "forward")  # then it is the method of the class again
                    layer.forward = partial(forward, layer, tape.record_of(layer))
            yield tape

    def _hooked(self, layer: nn.Module, hook: Callable[..., object]) -> Callable[[], None]:
        """Have a function see what a layer gives, before parts of that are put together; gives what ends that."""
        return layer.register_forward_hook(hook, with_kwargs=True, prepend=self.shards.split).remove

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Refuse a pass inside this context that changes the module's buffers."""
        before = {name: (buffer, buffer._version) for name, buffer in self.module.named_buffers()}
        yield
        for name, buffer in self.module.named_buffers():
            if name not in before or before[name][0] is not buffer or before[name][1] != buffer._version:
                raise changed(f"buffer {name!r}")

    def look(self, inputs: Inputs, *, new_axis: bool) -> frozenset[Kind]:
        """Find out how the module is called, without coins; the kinds of layers whose own parameters may be spread."""
        self.channels_last = True
        with torch.enable_grad():  # without, some layers of PyTorch take another way
            try:
                self.output(inputs)
            except RuntimeError:  # of a view of what is no longer in order
                self.channels_last = False
            own = (layer for layer in self.module.modules() if _own_parameters(layer) and rule_of(layer) is None)
            kinds = frozenset(type(layer) for layer in own if not type(layer).__module__.startswith("torch.nn."))
            kinds = kinds if self.shards.split or not self.sharded else frozenset()  # FSDP puts its own into place
            self.calls, count = Calls(), len(inputs[0])
            self.calls.new_axis = new_axis
            if count > 1:
                everything = list(_layers(self.module, kinds))
                (first, choices), (second, _) = (self._noted(everything, inputs, slice(at, count)) for at in (0, 1))
                self.shards.same("places of records", self.calls.learn(first, second, count))
                self.calls.answers, self.half = choices.answers, self.half or choices.half
        return kinds

    def _noted(self, layers: Any, inputs: Inputs, records: slice) -> tuple["Noted", "Choices"]:
        noted: Noted = {name: [] for name, _ in layers}

        def note(name: str, _: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            found = tree_leaves((args, kwargs, output))
            noted[name].append([local(part.detach()).clone() for part in found if isinstance(part, Tensor)])

        with ExitStack() as stack:
            for name, layer in layers:
                stack.callback(self._hooked(layer, partial(note, name)))
            with (choices := Choices()):
                self.output(inputs, records)
        return noted, choices


def _detached(output: Any) -> Any:
    return tree_map(lambda part: part.detach() if isinstance(part, Tensor) else part, output)


def _together(*parts: Any) -> Any:
    """The outputs of all records, from those of each; what holds no records is the first one's."""
    return torch.cat(parts) if isinstance(parts[0], Tensor) and parts[0].dim() else parts[0]


def _own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained and belong to the module itself, not to a layer in it."""
    return {name: each for name, each in module.named_parameters(recurse=False) if each.requires_grad}


def _layers(
    module: nn.Module, spread: Collection[Kind], name: str = "", seen: set[int] | None = None
) -> Iterator[tuple[str, nn.Module]]:
    """The layers that use trainable parameters, from the outside in; what has parameters of its own is taken whole."""
    seen = set() if seen is None else seen
    if id(module) in seen or not any(parameter.requires_grad for parameter in module.parameters()):
        return
    seen.add(id(module))
    if _own_parameters(module) or hasattr(module, "parametrizations"):
        yield name or type(module).__name__, module
        if type(module) not in spread:
            return
    for child_name, child in module.named_children():
        yield from _layers(child, spread, f"{name}.{child_name}".lstrip("."), seen)


Noted = dict[str, list[list[Tensor]]]  # by name of the layer: the tensors of each of its calls
CHOOSING = (
    *("nonzero", "argwhere", "masked_select", "unique", "pack", "sparse", "nested", "tensor_split"),
    *("tolist", "numpy", "dlpack", "__array__", "__int__", "__float__", "__index__"),
)
ASKING = ("__bool__", "__contains__", "is_nonzero", "equal", "allclose")
KEEPING = ("RegisterPostBackwardFunction", "_FromTorchTensor", "_ToTorchTensor", "Redistribute")  # of FSDP and DTensor
MOVING = (  # words in the names of operations
    *("Index", "Gather", "Scatter", "Take", "Put", "MaskedS", "Sort", "Topk", "Kthvalue", "edian", "Mode"),
    *("Embedding", "Pack", "Sparse", "Nested", "Segment", "ToDense", "Values"),
)


class Choices(TorchFunctionMode):
    """Notes whether rows are chosen by their numbers inside this context: then they may be others in another batch."""

    seen = half = False  # half: something comes in half precision, also of layers that are frozen
    answers: tuple[bool, ...] = ()  # which way Python takes
    largest = 1  # bytes of what an operation gave

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        answer, given = func(*args, **kwargs), (*args[1:], *kwargs.values())  # places, or what else is said
        flat = [each for part in given for each in (part if isinstance(part, list | tuple) else (part,))]
        ends = [each for part in flat if type(part) is slice for each in (part.start, part.stop)]
        whole = [part for part in flat if isinstance(part, Tensor) and not part.is_floating_point()]
        rows = name in ("__getitem__", "__setitem__")
        self.seen |= any(isinstance(each, Tensor) for each in ends)
        self.seen |= any(rows if part.dtype == torch.bool else not part.dim() for part in whole)
        self.seen |= any(word in name for word in CHOOSING) or name == "item" or (name == "where" and len(args) == 1)
        self.answers += (answer,) if name in ASKING else ()
        self.half |= isinstance(answer, Tensor) and answer.is_floating_point() and answer.element_size() < 4
        gave = [each for each in tree_leaves(answer) if isinstance(each, Tensor)]  # of a recurrent layer several
        self.largest = max([self.largest, *(each.numel() * each.element_size() for each in gave)])
        return answer


def _moves(losses: Tensor) -> bool:
    """True where operations may move rows of a layer by their numbers on the way to the losses, or are not known."""
    nodes: list[Any] = [losses.grad_fn]
    seen, moves = set(), False
    while nodes and not moves:
        if (node := nodes.pop()) is not None and node not in seen:
            seen.add(node)
            nodes += (below := [each for each, _ in node.next_functions if each is not None])
            name, _, digits = type(node).__name__.rpartition("Backward")
            moves = any(word in name for word in MOVING) or (name == "Where" and len(below) > 1)
            moves |= not digits.isdigit() and name not in KEEPING
            if name == "Index" and (at := node._saved_indices[0]) is not None:  # one place, perhaps, of each row
                moves = not torch.equal(at.flatten(), torch.arange(node._saved_self_sym_sizes[0], device=at.device))
            moves &= any(type(each).__name__ != "AccumulateGrad" for each in below)
    return moves


class Calls:
    """The places of the records in each call of each layer; without ``learn`` all must have a row for each record."""

    _places: dict[str, list[Places]] | None = None
    answers: tuple[bool, ...] = ()  # which way Python took over all records
    new_axis = False  # True: what has no records and no leading axis of 1 gets one for them

    def learn(self, first: Noted, second: Noted, records: int) -> object:
        """Compare the calls of two passes, over so many records and over all but the first; gives the places."""

        def places(ones: list[Tensor], others: list[Tensor]) -> Places:
            known = len(ones) == len(others)
            return tuple(_place(*both, records) if known else None for both in zip(ones, others, strict=False))

        self._places = {name: list(map(places, calls, second[name])) for name, calls in first.items()}
        return self._places

    def places(self, name: str, number: int, tensors: Sequence[Tensor], records: int) -> Places:
        """Places of the tensors of a layer's call, by number: those that it takes, then those that it gives."""
        seen = [(FIRST,) * len(tensors)] if self._places is None else self._places.get(name, [])
        known = seen[number] if number < len(seen) else seen[0] if len(set(seen)) == 1 else ()
        if len(known) != len(tensors):
            known = (None,) * len(tensors)
        return tuple(self._now(place, part, records) for place, part in zip(known, tensors, strict=True))

    def _now(self, place: Place | None, part: Tensor, records: int) -> Place | None:
        """The place of the records in a tensor, or None where it does not look like it."""
        if place == SHARED:
            return place if self.new_axis or part.shape[:1] == (1,) or not part.requires_grad else None
        if place is None or part.dim() <= place.axis or not part.numel():
            return None
        size = part.shape[place.axis]
        return place if size == records or (place.many and size % records == 0) else None


def _place(one: Tensor, other: Tensor, records: int) -> Place | None:
    """The place of the records in a tensor; the other is of all records but the first."""

    def alike(a: Tensor, b: Tensor) -> bool:
        if a.shape != b.shape or not a.is_floating_point():
            return torch.equal(a, b)
        largest = float(a.abs().nan_to_num(0.0, 0.0).max()) if a.numel() else 0.0
        return torch.allclose(a, b, rtol=ALIKE, atol=ALIKE * largest, equal_nan=True)

    if one.shape == other.shape:
        return SHARED if torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True) else None
    for axis, size in enumerate(one.shape if one.dim() == other.dim() else ()):
        many = size // records
        if not many or (size, other.shape[axis]) != (many * records, many * (records - 1)):
            continue
        if many == 1 and axis == 0 and one.shape[1:] != other.shape[1:]:  # as long as the longest record is
            return FIRST
        for place in (Place(axis, 1), Place(axis, 2)) if many > 1 else (Place(axis),):
            if alike(place.split(one, records)[1:], place.split(other, records - 1)):
                return place
    return None


@dataclass(frozen=True, slots=True)
class Use:
    """One use of parameters: what it gave, how gradients of that become factors, what must not be changed till then."""

    name: str
    edges: list[GradientEdge]
    make: Make
    read: Sequence[Tensor]
    versions: list[int]
    places: Places  # of what it gave
    finds: bool  # True: rows of records that are not known can be found
    axes: list[int]  # so many axes of what it gave have rows that are each of one record


class Tape:
    """Record of one forward pass over so many records, whose calls tell where the records are in each tensor."""

    def __init__(self, records: int, calls: Calls, shards: Shards | None, *, half: bool) -> None:
        self._records, self._calls, self._shards, self.choices, self._half = records, calls, shards, Choices(), half
        self._counts: dict[str, int] = {}
        self._uses: list[Use] = []

    def record_of(self, layer: nn.Module) -> Callable[..., None]:
        """As ``record``, for a layer whose parameters, while it is called, are whole ones in place of the module's."""
        own = dict(layer.named_parameters())

        def record(name: str, output: Tensor, make: Make, *read: Tensor) -> None:
            now = {id(each): own[named] for named, each in layer.named_parameters()}
            self.record(name, output, lambda b: [(now.get(id(each), each), factor) for each, factor in make(b)], *read)

        return record

    def record(self, name: str, output: Tensor, make: Make, *read: Tensor) -> None:
        """Record what a layer gave, how its gradient becomes factors, and what must not be changed until then."""
        if output.requires_grad:
            here = output.dim() and output.shape[0] == self._records
            self._add(name, [output], make, read, [FIRST if here else None], None)

    def layer(self, name: str, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> object:
        """Record a call of a layer; gives its output, spread out where it has no row for each record."""
        number = self._counts[name] = self._counts.get(name, -1) + 1
        given, given_tree = tree_flatten((args, kwargs))
        found, found_tree = tree_flatten(output)
        into = [part for part in given if isinstance(part, Tensor)]
        out = [part for part in found if isinstance(part, Tensor)]
        places = self._calls.places(name, number, [*into, *out], self._records)
        shared = [part for part, place in zip(out, places[len(into) :], strict=True) if place == SHARED]
        for at, part in enumerate(found):
            if isinstance(part, Tensor) and part.requires_grad:
                if any(part is each for each in shared):
                    found[at] = spread_out(part, self._records).clone()
                elif len(out) > 1:  # one may be made from another: then the gradient of that is counted once
                    found[at] = part.view_as(part)
        recorded = [part for part in found if isinstance(part, Tensor) and part.requires_grad]
        if recorded:
            given = [part.detach() if isinstance(part, Tensor) else part for part in given]
            call = Call(given, given_tree, places, [part.requires_grad for part in out], self._records)
            gave = [place for place, part in zip(places[len(into) :], out, strict=True) if part.requires_grad]
            gave = [None if None in places else FIRST if place == SHARED else place for place in gave]
            axes = rows_of(layer, out[0]) if len(into) == len(out) == 1 else None
            self._add(name, recorded, partial(factors_of, name, layer, call), into, gave, axes)
        return tree_unflatten(found, found_tree) if shared or len(out) > 1 else output

    def spread_out(self, name: str, layer: nn.Module) -> None:
        """Give a layer its own parameters once for each record, on a leading axis, so that gradients come apart."""
        for each, parameter in _own_parameters(layer).items():
            copies = spread_out(parameter, self._records).clone()

            def make(b: Tensor, parameter: nn.Parameter = parameter) -> ParameterFactors:
                return [(parameter, Dense(b.reshape(self._records, *parameter.shape)))]

            self.record(f"{name}.{each}", copies, make)
            layer._parameters[each] = copies  # type: ignore[assignment]

    def _add(
        self, name: str, outputs: Sequence[Tensor], make: Make, read: Sequence[Tensor], gave: Sequence[Any], axes: Any
    ) -> None:
        def refuse(*_: Tensor | None) -> ParameterFactors:
            raise Unsupported(f"module: in an input or output of layer {name!r} rows are of records that are not known")

        refused = None in gave and axes is None
        edges, read = [get_gradient_edge(part) for part in outputs], () if refused else read
        versions = [part._version for part in read]
        rows = [axes or (1 if place is None else place.axis + 1) for place in gave]
        make = refuse if refused else make
        self._uses.append(Use(name, edges, make, read, versions, tuple(gave), axes is not None, rows))

    def factors(self, losses: Tensor, parameters: Sequence[nn.Parameter]) -> Factors:
        """The factor of each parameter, after a backward pass from the losses."""
        unknown = [use.finds and place is None for use in self._uses for place in use.places]
        if self._half and (self.choices.seen or self.choices.answers):  # then others may be rounded differently
            raise Unsupported("module: it asks about a batch in half precision (transformers: masks with four axes)")
        chosen = self.choices.seen or (self._shards is None and self.choices.answers != self._calls.answers)
        chosen = chosen or _moves(losses)
        edges = [edge for use in self._uses for edge in use.edges]
        again = self._shards is None and (chosen or any(unknown))
        gradients = torch.autograd.grad(losses.sum(), edges, allow_unused=True, retain_graph=again) if edges else ()
        parts = (losses, *filter(torch.is_tensor, gradients))
        if not self._half and (self.choices.half or any(part.element_size() < 4 for part in parts)):
            raise Unsupported("module: it computes in half precision: module.float(), or MixedPrecisionPolicy()")
        seek = chosen or any(at and b is not None for at, b in zip(unknown, gradients, strict=False))
        if self._shards is not None:
            self._shards.reshard()  # then layers have the parameters of the module again
            if seek:
                raise Unsupported("module: it chooses rows by their values; sharded, it must not: train it whole")
        axes = [axis for use in self._uses for axis in use.axes]
        owners = iter(_owners(losses, edges, gradients, axes) if seek else [None] * len(edges))
        given, needed = iter(gradients), []
        for use in self._uses:
            bs, rows = [next(given) for _ in use.edges], [next(owners) for _ in use.edges]
            if any(b is not None for b in bs):
                if use.versions != [part._version for part in use.read]:
                    raise Unsupported(f"module: the input of layer {use.name!r} is changed in place later: use a copy")
                make = partial(use.make, owners=rows[0]) if self._moved(use, bs, rows) else use.make
                needed.append((make, bs))
        return of_parameters(parameters, needed)

    def _moved(self, use: Use, bs: Sequence[Tensor | None], rows: Sequence[Tensor | None]) -> bool:
        """True where rows are of other records than those of their place."""
        for b, place, axes, owners in zip(bs, use.places, use.axes, rows, strict=True):
            if b is not None and owners is not None:
                expected = None if place is None else place.numbers(b.shape[:axes], self._records)
                if expected is None or bool(((owners != expected) & (owners >= 0)).any()):
                    if not use.finds:
                        raise Unsupported(f"module: layer {use.name!r} has rows in an order that changes")
                    return True
        return False


def _owners(
    losses: Tensor, edges: Sequence[GradientEdge], gradients: Sequence[Tensor | None], axes: Sequence[int]
) -> list[Tensor | None]:
    """The record of each row of each gradient, (rows,) whole numbers; -1 where that is zero.

    A row that only one record's loss depends on is multiplied by that loss's weight, a power of two, and so exactly.
    Source: docs/proofs/powers-of-two.md
    """
    numbers, size = torch.arange(len(losses), device=losses.device), 1
    owners: list[Any] = [None if old is None else 0 for old in gradients]
    while size == 1 or size < len(losses):
        weights = torch.exp2((numbers // size % POWERS).to(losses.dtype))
        again = torch.autograd.grad((losses * weights).sum(), edges, allow_unused=True, retain_graph=True)
        for at, (old, new) in enumerate(zip(gradients, again, strict=True)):
            if old is not None and new is not None:
                digits = _powers(*(part.reshape(part.shape[: axes[at]].numel(), -1) for part in (old, new))).cpu()
                owners[at] = torch.where(digits < 0, -1, digits * size + owners[at])
        size *= POWERS
    if any(found is not None and int(found.max()) >= len(losses) for found in owners):
        raise Unsupported("module: there are rows of no record")
    return owners


def _powers(old: Tensor, new: Tensor) -> Tensor:
    """(rows,) by which power of two, from 0 to POWERS - 1, each row was multiplied; -1 where it is zero."""
    old, new = old.double(), new.double()
    largest, now = old.abs().amax(1), new.abs().amax(1)
    power = torch.log2(now / largest).round()
    right = (new - old * torch.exp2(power)[:, None]).abs().amax(1) <= EXACT * now
    nothing = largest == 0
    if not bool((nothing | (right & (power >= 0) & (power < POWERS))).all()):  # also where it is not a number
        raise Unsupported("module: there are rows that the losses of several records depend on")
    return torch.where(nothing, -1.0, power).long()

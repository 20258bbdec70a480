"""Parameters sharded over processes by FSDP2 (``torch.distributed.fsdp.fully_shard``), each process with own people.

A layer sees its whole parameters while it is used, so that what a record's gradient is made of is whole on the process
that has the record, and no norm needs another process. Sums over people are added up over the processes one parameter
at a time, and each process keeps its own rows of the total. All processes must take equally many passes.
A shard is the part of a parameter, its sum or its noise that this process alone holds.

Or layers are split by ``torch.distributed.tensor.parallel.parallelize_module``, and all processes have the same people:
a layer sees its own part alone, and the squared norms of the parts of a person's gradient add up.

Source: theory 5.3 (one draw of noise on the sum over all people), 5.7
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cache, reduce
from hashlib import blake2b
from typing import Any, cast

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from almoner.errors import ArgumentError, Unsupported
from almoner.training.gradients._factors import Factors, norms_of

CURE = "shard it by torch.distributed.fsdp.fully_shard(module) alone, over all processes of the group"
SPLIT = "split evenly over all processes, nn.Linear by Colwise- or RowwiseParallel(), nn.Embedding by ColwiseParallel()"
BIAS = {(nn.Linear, 0): 0, (nn.Linear, 1): None, (nn.Embedding, 1): -1}  # its axis, of a layer and its weight's axis
PART = {"shard", "shape", "dim"}  # what a folder keeps of a sharded tensor
ALIKE = 1e-3  # numbers that are computed in each process of the same records are no further apart, relatively


def is_sharded(tensor: object) -> bool:
    """True of a DTensor; its module is not imported for that."""
    return hasattr(tensor, "device_mesh")


def local(tensor: Any) -> Any:
    """This process's part of a tensor, once it has arrived; of what is not sharded, all of it."""
    own = tensor.to_local() if is_sharded(tensor) else tensor
    return own.trigger_wait() if hasattr(own, "trigger_wait") else own


def whole(tensor: Any) -> Any:
    """All of a tensor, gathered from the processes."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def _plain(kind: type[nn.Module]) -> type[nn.Module]:
    """The class of layers of a class, which may be the one that they had before they were sharded."""
    return kind.__mro__[2] if kind.__mro__[1].__name__ == "FSDPModule" else kind


kind_of = cast(Callable[[type[nn.Module]], type[nn.Module]], cache(_plain))


def shard_of(value: Tensor, like: Any) -> Any:
    """The shard of a tensor that every process has, as a tensor like another one; nothing is sent."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)


def _joined(part: Tensor, mesh: Any, axis: int | None, shape: torch.Size) -> Any:
    """The tensor of this shape of which each process has a part along an axis; None: all of it."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    placement, stride = Replicate() if axis is None else Shard(axis), torch.empty(shape, device="meta").stride()
    return DTensor.from_local(part, mesh, [placement], shape=shape, stride=stride)


def axis_of(tensor: Any) -> int | None:
    """The axis by which a tensor is split; None: each process has all of it; -1: something else."""
    placement, *others = tensor.placements if is_sharded(tensor) else [None]
    if placement is None or (placement.is_replicate() and not others):
        return None
    return placement.dim % tensor.dim() if type(placement).__name__ == "Shard" and not others else -1


def own_parts(name: str, layer: nn.Module, x: Any, bs: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """The input of a layer and its output's gradient, of which this process's part of the layer's gradient is made.

    Split by what it gives, a layer needs all of the input; by what it takes, all of that gradient; else Unsupported.
    """
    if not any(map(is_sharded, (x, *bs))):
        return x, bs
    axes = [axis_of(each) if is_sharded(each) else -1 for each in (x, *bs)]
    by_input = type(layer) is nn.Linear and axis_of(layer.weight) == 1  # else the weight is split by what it gives
    if len(axes) != 2 or axes != ([x.dim() - 1, None] if by_input else [None, bs[0].dim() - 1]):
        raise Unsupported(f"module: layer {name!r} takes or gives tensors that are split otherwise: it must be {SPLIT}")
    return local(x), [local(bs[0])]


class Shards:
    """The processes over which a module's parameters are sharded; false where one process has all of them.

    ``split``: by ``parallelize_module``, and all have the same people and go through their records in step. Of a layer
    that is split each has a part of each person's gradient. Of any other parameter each has all, and the first one's
    counts, once, in norms and in sums: what is released never exceeds the norm that is charged, even where they drift.

    Raises Unsupported, by name, where a parameter is sharded in another way, or over other processes.
    """

    def __init__(self, module: nn.Module) -> None:
        self._gathered = [layer for layer in module.modules() if kind_of(type(layer)) is not type(layer)]
        self.reshard()
        self.mesh, self._key = cast(Any, None), b""
        below = {id(parameter) for layer in self._gathered for parameter in layer.parameters()}
        self.split = not below and any(map(is_sharded, module.parameters()))
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if is_sharded(parameter):
                found: Any = parameter
                self.mesh = found.device_mesh if self.mesh is None else self.mesh
                right = id(found) in below and axis_of(found) in range(found.dim())
                right = self._is_part(module, name, found) if self.split else right
                if not right or found.device_mesh != self.mesh:
                    named = f"module: parameter {name!r} has placements {found.placements}"
                    raise Unsupported(f"{named}: {SPLIT if self.split else CURE}")

    def _is_part(self, module: nn.Module, name: str, parameter: Any) -> bool:
        """True of a parameter of a layer that is split evenly, over all processes, by what it takes or gives."""
        (path, _, own), axis = name.rpartition("."), axis_of(parameter)
        layer: Any = module.get_submodule(path)
        style = type(layer), axis_of(getattr(layer, "weight", None))
        even = axis is None or parameter.shape[axis] % self.mesh.size() == 0
        known = style in BIAS and axis == {"weight": style[1], "bias": BIAS[style]}.get(own, -1)
        return known and even and self.mesh.ndim == 1 and len(self.ranks) == distributed.get_world_size()

    def __bool__(self) -> bool:
        return self.mesh is not None

    @property
    def ranks(self) -> list[int]:
        """The processes' ranks in the world, in rising order."""
        return sorted(self.mesh.mesh.flatten().tolist())

    def reshard(self) -> None:
        """Have each process hold no more than its shards, which are the parameters that were there at first."""
        for layer in self._gathered:
            layer.reshard()  # type: ignore[operator]

    def most(self, number: int) -> int:
        """The largest number of all processes, in each of them."""
        return max(map(int, self._of_all(torch.tensor(number)))) if self else number

    def _of_all(self, value: Tensor) -> list[Tensor]:
        """A tensor of one shape in all processes, of each of them, in the order of the group."""
        own = value.to(self.mesh.device_type).contiguous()
        told = [torch.empty_like(own) for _ in self.ranks]
        distributed.all_gather(told, own, group=self.mesh.get_group())
        return told

    def agree(self, error: BaseException | None) -> None:
        """Raise this process's error, or Unsupported where another process has one."""
        failed = self.most(int(error is not None))
        if error is not None:
            raise error
        if failed:
            raise Unsupported("group: another process has failed in this step; nothing was released")

    def given_by_one(self, value: Any, records: int) -> Any:
        """The value of the first of the processes with the most records, in each of them."""
        counts, box = [int(each) for each in self._of_all(torch.tensor(records))], [value]
        distributed.broadcast_object_list(box, group=self.mesh.get_group(), group_src=counts.index(max(counts)))
        return box[0]

    def shape(self, parameter: Tensor) -> torch.Size:
        """The shape of each person's gradient of a parameter here."""
        return cast(torch.Size, (local(parameter) if self.split else parameter).shape)

    def norms(self, factors: Factors, people: int, parameters: Sequence[Tensor]) -> Tensor:
        """(people,) float64, the norm of each person's gradient, on the processor; rounded up; NaN where not finite."""
        if not self.split:
            return norms_of(factors, people)
        parts = [each if axis_of(of) is not None else None for each, of in zip(factors, parameters, strict=True)]
        others = [None if part is each else each for part, each in zip(parts, factors, strict=True)]
        first, own = (norms_of(each, people) for each in (others, parts))
        return reduce(torch.hypot, [self.alike("gradients", first), *self._of_all(own)]).cpu()

    def whole_of(self, gradients: Sequence[Any], parameters: Sequence[Any]) -> list[Any]:
        """All of each parameter's gradient, where PyTorch or factors gave parts; None stays so."""
        found = []
        for each, of in zip(gradients, parameters, strict=False):  # record by record these are losses
            part = self.split and each is not None and axis_of(of) is not None
            each = whole(_joined(each, self.mesh, axis_of(of), of.shape) if part and not is_sharded(each) else each)
            found.append(each if each is None or part else self.alike("gradients", each))
        return found

    def same(self, what: str, *values: object) -> None:
        """Raise ArgumentError, in all processes, where values or PyTorch's coins differ; keyed digests are sent."""
        if not self.split:
            return
        self._key = self._key or self.given_by_one(secrets.token_bytes(16), 0)
        digest, on_cuda = blake2b(digest_size=16, key=self._key), self.mesh.device_type == "cuda"
        for value in (*values, torch.get_rng_state(), torch.cuda.get_rng_state() if on_cuda else None):
            numbers = isinstance(value, Tensor) and value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
            digest.update(repr(value if numbers is False else (value.dtype, value.shape)).encode())  # type: ignore[attr-defined]
            digest.update(b"" if numbers is False else numbers.tobytes())
        told = self._of_all(torch.tensor(list(digest.digest()), dtype=torch.uint8))
        if not all(torch.equal(each, told[0]) for each in told):
            raise ArgumentError(f"group: {what} or coins differ between processes: give the same, torch.manual_seed(0)")

    def alike(self, what: str, value: Tensor) -> Tensor:
        """The first process's numbers, if all processes have the same people; Unsupported, in all: they are others."""
        first, *others = self._of_all(value.detach()) if self.split else [value]
        far = [~((each - first).abs() <= ALIKE * (ALIKE + first.abs())) & torch.isfinite(first) for each in others]
        if any(bool(each.any()) for each in far):
            raise Unsupported(f"module: {what} differ in another process: ColwiseParallel(output_layouts=Replicate())")
        return first

    def zeros(self, parameter: Tensor) -> Any:
        """A sum to begin with, float64: sharded as its parameter is, or whole in each process."""
        zeros = torch.zeros(self.shape(parameter), dtype=torch.float64, device=parameter.device)
        return self.total(zeros, parameter) if self else zeros

    def total(self, part: Tensor, parameter: Any) -> Any:
        """The sum over all processes, sharded as a parameter is, of parts of its whole shape; split: of shards."""
        if self.split:
            if axis_of(parameter) is None:
                distributed.broadcast(part, group=self.mesh.get_group(), group_src=0)
            return _joined(part, self.mesh, axis_of(parameter), parameter.shape)
        from torch.distributed.tensor import DTensor, Partial, Replicate

        placements = parameter.placements if is_sharded(parameter) else [Replicate()]
        return DTensor.from_local(part, self.mesh, [Partial()]).redistribute(placements=placements)

    def restored(self, state: Any) -> Any:
        """A state as it was before ``kept``; ArgumentError where the module is sharded in another way."""

        def restored(each: Any) -> Any:
            if not isinstance(each, Mapping):
                return each
            if not self:
                raise ArgumentError("resume: the module of the folder was sharded over processes in another way")
            return _joined(each["shard"].to(self.mesh.device_type), self.mesh, each["dim"], torch.Size(each["shape"]))

        return tree_map(restored, state, is_leaf=lambda each: isinstance(each, Mapping) and set(each) == PART)


def kept(state: Any) -> Any:
    """A state of module or optimizer, with this process's shards in place of sharded tensors."""

    def own(each: Any) -> Any:
        return {"shard": local(each), "shape": list(each.shape), "dim": axis_of(each)} if is_sharded(each) else each

    return tree_map(own, dict(state))

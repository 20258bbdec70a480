"""Parameters sharded over processes by FSDP2 (``torch.distributed.fsdp.fully_shard``), each process with own people.

A layer sees its whole parameters while it is used, so that what a record's gradient is made of is whole on the process
that has the record, and no norm needs another process. Sums over people are added up over the processes one parameter
at a time, and each process keeps its own rows of the total. All processes must take equally many passes.
A shard is the part of a parameter, its sum or its noise that this process alone holds.

Source: theory 5.3 (one draw of noise on the sum over all people), 5.7
"""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, cast

import torch
import torch.distributed as distributed
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from almoner.errors import ArgumentError, Unsupported

CURE = "shard it by torch.distributed.fsdp.fully_shard(module) alone, over all processes of the group"


def is_sharded(tensor: object) -> bool:
    """True of a DTensor; its module is not imported for that."""
    return hasattr(tensor, "device_mesh")


def local(tensor: Any) -> Any:
    """This process's part of a tensor; of what is not sharded, all of it."""
    return tensor.to_local() if is_sharded(tensor) else tensor


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


class Shards:
    """The processes over which a module's parameters are sharded; false where one process has all of them.

    Raises Unsupported, by name, where a parameter is sharded in another way: tensor parallel, or over other processes.
    """

    def __init__(self, module: nn.Module) -> None:
        self._gathered = [layer for layer in module.modules() if kind_of(type(layer)) is not type(layer)]
        self.reshard()
        self.mesh: Any = None
        below = {id(parameter) for layer in self._gathered for parameter in layer.parameters()}
        for name, parameter in module.named_parameters():
            if hasattr(parameter, "device_mesh"):
                found: Any = parameter
                kinds = [type(placement).__name__ for placement in found.placements]
                self.mesh = found.device_mesh if self.mesh is None else self.mesh
                if id(parameter) not in below or kinds != ["Shard"] or found.device_mesh != self.mesh:
                    raise Unsupported(f"module: parameter {name!r} has placements {found.placements}: {CURE}")

    def __bool__(self) -> bool:
        return self.mesh is not None

    @property
    def size(self) -> int:
        """The number of processes."""
        return len(self.ranks)

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
        if not self:
            return number
        told = torch.tensor([number], device=self.mesh.device_type)
        distributed.all_reduce(told, distributed.ReduceOp.MAX, group=self.mesh.get_group())
        return int(told)

    def agree(self, error: BaseException | None) -> None:
        """Raise this process's error, or Unsupported where another process has one."""
        failed = self.most(int(error is not None))
        if error is not None:
            raise error
        if failed:
            raise Unsupported("group: another process has failed in this step; nothing was released")

    def given_by_one(self, value: Any, records: int) -> Any:
        """The value of the first of the processes with the most records, in each of them."""
        rank, most = distributed.get_rank(self.mesh.get_group()), self.most(records)
        source = self.size - self.most(self.size - rank if records == most else 0)
        box = [value if rank == source else None]
        distributed.broadcast_object_list(box, group=self.mesh.get_group(), group_src=source)
        return box[0]

    def zeros(self, parameter: Tensor) -> Any:
        """A sum to begin with, float64: sharded as its parameter is, or whole in each process."""
        return self.total(torch.zeros(parameter.shape, dtype=torch.float64, device=parameter.device), parameter)

    def total(self, part: Tensor, parameter: Any) -> Any:
        """The sum of a tensor over all processes, sharded as a parameter is. Each has a ``part`` of its whole shape."""
        from torch.distributed.tensor import DTensor, Partial, Replicate

        placements = parameter.placements if is_sharded(parameter) else [Replicate()]
        return DTensor.from_local(part, self.mesh, [Partial()]).redistribute(placements=placements)

    def restored(self, state: Any) -> Any:
        """A state as it was before ``kept``; ArgumentError where the module is sharded in another way."""
        from torch.distributed.tensor import DTensor, Shard

        def restored(each: Any) -> Any:
            if not isinstance(each, Mapping):
                return each
            if not self:
                raise ArgumentError("resume: the module of the folder was sharded over processes in another way")
            shape, part = torch.Size(each["shape"]), each["shard"].to(self.mesh.device_type)
            stride = torch.empty(shape, device="meta").stride()
            return DTensor.from_local(part, self.mesh, [Shard(each["dim"])], shape=shape, stride=stride)

        return tree_map(restored, state, is_leaf=lambda each: isinstance(each, Mapping) and "shard" in each)


def kept(state: Any) -> Any:
    """A state of module or optimizer, with this process's shards in place of sharded tensors."""

    def own(each: Any) -> Any:
        if not is_sharded(each):
            return each
        return {"shard": local(each), "shape": list(each.shape), "dim": each.placements[0].dim}

    return tree_map(own, dict(state))

"""Several processes, each with its own people: sums are added up over the processes, and noise is added once.

Every process holds the records and the accounts of its own people and the same module. What is released is the sum over
all people plus one draw of noise, as if one process held all people.

Noise is drawn in double precision and rounded only when it is in the sum. Drawn in single precision it never exceeds
5.8 standard deviations, and its tail consists of few values: an observer of many coordinates sees who is not in the
sum. Nor may it come from PyTorch's generator on a processor, which knows 2^32 seeds: few enough to try them all.
"""

import secrets
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor, nn

from almoner.errors import ArgumentError

__all__ = ["Processes", "noise_generator"]

RELATIVE_TOLERANCE = 1e-12


NoiseGenerator = np.random.Generator | torch.Generator | Any
"""Of NumPy or PyTorch, or what gives normal numbers as NumPy's do: ``normal(mean, sigma, size)``."""

T = TypeVar("T")


def noise_generator(device: torch.device, seed: int | None) -> NoiseGenerator:
    """A generator seeded by the system, with 128 bits (63 on other devices than a processor), or reproducible."""
    if device.type == "cpu":
        return np.random.default_rng(None if seed is None else [seed, 1])  # apart from the coins of the same seed
    generator = torch.Generator(device)
    generator.manual_seed(secrets.randbits(63) if seed is None else seed)
    return generator


class Processes:
    """This process, alone or among the others of a torch.distributed group; None: alone; True: the default group."""

    def __init__(self, group: "distributed.ProcessGroup | Literal[True] | None" = None) -> None:
        if group is not None and not (distributed.is_available() and distributed.is_initialized()):
            raise ArgumentError("group: torch.distributed is not initialised")
        self.single = group is None  # true if this process holds all people
        self._group = None if group is True else group

    @property
    def first(self) -> bool:
        """True if this process is the one that adds the noise."""
        return self.single or distributed.get_rank(self._group) == 0

    def broadcast_module(self, module: nn.Module) -> None:
        """Set the parameters and buffers in every process to the first process's."""
        if not self.single:
            with torch.no_grad():
                for tensor in (*module.parameters(), *module.buffers()):
                    distributed.broadcast(tensor, group=self._group, group_src=0)

    def broadcast(self, value: T) -> T:
        if self.single:
            return value
        box = [value]
        distributed.broadcast_object_list(box, group=self._group, group_src=0)
        return box[0]

    def all_gather(self, value: T) -> list[T]:
        """Every process's value, in every process; the first process's is the first."""
        if self.single:
            return [value]
        values: list[Any] = [None] * distributed.get_world_size(self._group)
        distributed.all_gather_object(values, value, group=self._group)
        return values

    def noisy_total(self, sums: Sequence[Tensor], sigma: float, generator: NoiseGenerator) -> list[Tensor]:
        """The sums over all processes plus ONE draw of Gaussian noise, of the first process's generator; public.

        Raises ArgumentError, in every process, where not all of them charged their people for this sigma.

        Guarantee: what is returned, the same in every process, differs from the exact sum of all processes' sums by
            N(0, sigma^2) in each entry.
        Source: theory 2.1 and 5.3 (one draw on the sum).
        """
        flat = torch.cat([part.reshape(-1).double() for part in sums])
        if self.first:
            flat += _normal(flat, sigma, generator)
        if not self.single:
            flat = self._reduced(flat, sigma)
        pieces = torch.split(flat, [part.numel() for part in sums])
        return [piece.view(part.shape).to(part.dtype) for piece, part in zip(pieces, sums, strict=True)]

    def _reduced(self, flat: Tensor, sigma: float) -> Tensor:
        """The sum over all processes, each of which sends its sigma as well."""
        message = torch.cat([flat, flat.new_tensor([sigma, sigma * sigma])])
        distributed.all_reduce(message, group=self._group)
        mean, square = (float(total) / distributed.get_world_size(self._group) for total in message[-2:])
        if not (abs(mean / sigma - 1) < RELATIVE_TOLERANCE and abs(square / (mean * mean) - 1) < RELATIVE_TOLERANCE):
            raise ArgumentError("group: the processes do not agree on the noise of this step; nothing was released")
        return message[:-2]


def _normal(like: Tensor, sigma: float, generator: NoiseGenerator) -> Tensor:
    if isinstance(generator, torch.Generator):
        return torch.empty_like(like, device=generator.device).normal_(0.0, sigma, generator=generator).to(like.device)
    return torch.from_numpy(generator.normal(0.0, sigma, like.numel())).to(like.device)

"""Several processes, each with its own people: sums are added up, and noise is added once.

Every process holds the records and the accounts of its own people and the same module. What is released is the sum over
all people plus one draw of noise, as if one process held everybody.

Noise is drawn in double precision and rounded only when it is in the sum. Drawn in single precision it never exceeds
5.8 standard deviations, and its tail consists of few values: whoever sees many coordinates sees who is not in the sum.
Nor may it come from PyTorch's generator on a processor, which knows 2^32 seeds: few enough to try them all.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor, nn

from bursar.errors import ArgumentError

__all__ = ["Noise", "Together", "source"]

ALIKE = 1e-12

Noise = np.random.Generator | torch.Generator


def source(device: torch.device, seed: int | None) -> Noise:
    """A generator of noise: seeded by the operating system, or reproducible and not private.

    Args:
        device: public. Where the sums are.
        seed: public. None: 128 bits from the operating system; 63, the most that there are, on other devices.
    """
    if device.type == "cpu":
        return np.random.default_rng(None if seed is None else [seed, 1])  # apart from the coins of the same seed
    generator = torch.Generator(device)
    generator.manual_seed(secrets.randbits(63) if seed is None else seed)
    return generator


class Together:
    """This process, alone or among others of a torch.distributed group.

    Args:
        group: None: alone. A process group, or True for the default one, which must be initialised.
    """

    def __init__(self, group: Any = None) -> None:
        if group is not None and not (distributed.is_available() and distributed.is_initialized()):
            raise ArgumentError("group: torch.distributed is not initialised")
        self._alone = group is None
        self._group = None if group is True else group

    @property
    def alone(self) -> bool:
        """Whether this process holds everybody."""
        return self._alone

    @property
    def first(self) -> bool:
        """Whether this process is the one that adds noise, writes and shows."""
        return self._alone or distributed.get_rank(self._group) == 0

    def agree(self, module: nn.Module) -> None:
        """Everybody starts from the first process's parameters and buffers."""
        if not self._alone:
            with torch.no_grad():
                for tensor in (*module.parameters(), *module.buffers()):
                    distributed.broadcast(tensor, group=self._group, group_src=0)

    def same(self, value: Any) -> Any:
        """The first process's value, in every process."""
        if self._alone:
            return value
        box = [value]
        distributed.broadcast_object_list(box, group=self._group, group_src=0)
        return box[0]

    def gathered(self, value: Any) -> list[Any]:
        """Every process's value, in every process; the first process's is the first."""
        if self._alone:
            return [value]
        values = [None] * distributed.get_world_size(self._group)
        distributed.all_gather_object(values, value, group=self._group)
        return values

    def noisy_total(self, sums: Sequence[Tensor], sigma: float, generator: Noise) -> list[Tensor]:
        """The sums over all processes plus ONE draw of Gaussian noise of this standard deviation.

        Args:
            sums: this process's sums, private.
            sigma: public.
            generator: from ``source``, of this process; only the first process's noise is used.

        Returns:
            As many tensors, public, the same in every process.

        Raises:
            ArgumentError: in every process, where not all of them charged their people for this noise.

        Guarantee: what is returned differs from the exact sum of all processes' sums by N(0, sigma^2) in each entry.
        Source: theory 2.1 and 5.3 (one draw on the sum).
        """
        flat = torch.cat([part.reshape(-1).double() for part in sums])
        if self.first:
            flat += _normal(flat, sigma, generator)
        if not self._alone:
            flat = self._reduced(flat, sigma)
        pieces = torch.split(flat, [part.numel() for part in sums])
        return [piece.view(part.shape).to(part.dtype) for piece, part in zip(pieces, sums, strict=True)]

    def _reduced(self, flat: Tensor, sigma: float) -> Tensor:
        """The sum over all processes, each of which tells its sigma as well."""
        told = torch.cat([flat, flat.new_tensor([sigma, sigma * sigma])])
        distributed.all_reduce(told, group=self._group)
        mean, square = (float(total) / distributed.get_world_size(self._group) for total in told[-2:])
        if not (abs(mean / sigma - 1) < ALIKE and abs(square / (mean * mean) - 1) < ALIKE):
            raise ArgumentError("group: the processes do not agree on the noise of this step; nothing was released")
        return told[:-2]


def _normal(like: Tensor, sigma: float, generator: Noise) -> Tensor:
    if isinstance(generator, torch.Generator):
        return torch.empty_like(like, device=generator.device).normal_(0.0, sigma, generator=generator).to(like.device)
    return torch.from_numpy(generator.normal(0.0, sigma, like.numel())).to(like.device)

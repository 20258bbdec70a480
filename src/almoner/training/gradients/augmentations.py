"""Several views of each record in each step (augmentation multiplicity), whose gradients are averaged before the clip.

Source: De et al. (2022), https://arxiv.org/abs/2204.13650; theory 5.7 (a person's gradient is clipped once)
"""

from collections.abc import Callable

from almoner import _check, _extras

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor

from almoner.errors import ArgumentError, Unsupported
from almoner.training.gradients._batches import Inputs
from almoner.training.gradients._self_check import COINS, HUGE

__all__ = ["Views", "shifted_and_flipped"]

Transform = Callable[[Tensor, torch.Generator], Tensor]


class Views:
    """The number of views of each record in each step, and how they are made; drawn anew in every step.

    Args:
        transform: public. Takes (m, ...) records and a generator, and gives (m, ...) of the same shape: each row made
            from that row alone, with coins of the generator alone.
        count: public. So many views of each record.
        part: public. Which of the module's inputs is transformed: a number, or a name where they have names.
        seed: private, as the noise is. None: coins from the operating system, independent of the noise.

    Guarantee: a record's gradient is the mean of the gradients of its views, so a person's is as it would be without
        views, a function of that person's data and of coins that nobody knows; the clip and the charge are the same.
    Source: De et al. (2022); theory 5.7.

    >>> views = Views(lambda x, generator: x + torch.randn(x.shape, generator=generator), count=4, seed=0)
    >>> views.draw(Inputs.of([torch.zeros(2, 3)]))[0].shape
    torch.Size([8, 3])
    """

    def __init__(self, transform: Transform, *, count: int, part: int | str = 0, seed: int | None = None) -> None:
        if not callable(transform):
            raise ArgumentError(f"transform={transform!r} must be a function of records and a generator")
        _check.whole(1, count=count)
        self._transform, self.count, self._part, self._seed = transform, int(count), part, seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def draw(self, inputs: Inputs) -> Inputs:
        """Views of some records, those of a record side by side."""
        number, made = self._number(inputs), [part.repeat_interleave(self.count, 0) for part in inputs]
        made[number] = self._made(inputs[number], self._generator(inputs[number].device))
        return Inputs.of(made, inputs.names)

    def check(self, inputs: Inputs) -> None:
        """Raise Unsupported where one record's views depend on other records.

        Args:
            inputs: a few records, private.
        """
        part = inputs[self._number(inputs)]
        for seed in COINS:
            among = self._made(part, torch.Generator(part.device).manual_seed(seed))
            for number in {0, len(part) - 1} if len(part) > 1 else ():
                only = torch.arange(len(part), device=part.device).view(-1, *(1,) * (part.dim() - 1)) == number
                own = slice(number * self.count, (number + 1) * self.count)
                whole = not part.is_floating_point()
                for others in (part.flip(0), torch.zeros_like(part)) if whole else (part * torch.nan, part * HUGE):
                    alone = self._made(torch.where(only, part, others), torch.Generator(part.device).manual_seed(seed))
                    if not torch.allclose(among[own], alone[own], rtol=0.0, atol=0.0, equal_nan=True):
                        raise Unsupported(
                            "views: the views of a record depend on other records, or on coins that are not the "
                            "generator's: transform each row by itself"
                        )

    def _number(self, inputs: Inputs) -> int:
        places: list[int | str] = [*range(len(inputs)), *inputs.names]
        if self._part not in places:
            raise ArgumentError(f"part={self._part!r} must be one of the module's inputs")
        return places.index(self._part) % len(inputs)

    def _made(self, part: Tensor, generator: torch.Generator) -> Tensor:
        copies = part.repeat_interleave(self.count, 0)
        made = self._transform(copies, generator)
        if not isinstance(made, Tensor) or made.shape != copies.shape:
            raise ArgumentError("transform must give as many records of the same shape as it is given")
        return made

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            made = self._generators[device] = torch.Generator(device)
            made.seed() if self._seed is None else made.manual_seed(self._seed)
        return self._generators[device]


def shifted_and_flipped(padding: int = 4, *, flip: bool = True) -> Transform:
    """Images moved by up to so many pixels, what comes in mirrored at the edge, and left and right exchanged at random.

    A transform of (m, channels, height, width), for ``Views``; the padding is less than height and width, and images
    are flipped, if at all, with probability 1/2. Both are public.
    """
    _check.whole(0, padding=padding)

    def transform(x: Tensor, generator: torch.Generator) -> Tensor:
        m, channels, height, width = x.shape

        def coins(below: int) -> Tensor:
            return torch.randint(below, (m,), generator=generator, device=x.device)

        rows, columns = (
            coins(2 * padding + 1)[:, None] + torch.arange(size, device=x.device) for size in (height, width)
        )
        if flip:
            columns = torch.where(coins(2)[:, None] == 1, columns.flip(1), columns)
        padded = torch.nn.functional.pad(x, (padding,) * 4, mode="reflect") if padding else x
        each = torch.arange(m, device=x.device)[:, None, None, None]
        channel = torch.arange(channels, device=x.device)[None, :, None, None]
        return padded[each, channel, rows[:, None, :, None], columns[:, None, None, :]]

    return transform

"""What one use of a parameter says about each person's gradient: its norm, and a weighted sum over people.

Names and symbols
    a      what went into the layer: (n, t, i), n people, t places where each of them used the parameter
    b      the gradient of the loss with respect to what came out: (n, t, o)
    g      a person's gradient, the sum over places of the outer products b a: (o, i)

Three kinds of use, and nothing of size n times parameters is built where that can be avoided:
    Outer  g is a sum of outer products (linear layers, convolutions, recurrent layers)
    Rows   g has a row for each entry of a vocabulary, few of which occur (embeddings)
    Each   g itself (biases, scales of normalisations, everything else)

Source: Goodfellow (2015), https://arxiv.org/abs/1510.01799 (norms from a and b); Bu et al. (2023),
https://arxiv.org/abs/2210.00038 (the weighted sum from the same a and b, without a second backward pass)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bursar.training.gradients._precision import squares

__all__ = ["Each", "Outer", "Rows", "Use", "combined"]

TRAFFIC = 32
"""Writing one number of g costs about as much as so many multiplications: where it is better not to build g."""

DOUBLE = 2
"""A multiplication in double precision costs so many in single precision."""

PART = 512
"""So many rows of a sum are made at once."""

ROUNDING = 2.0**-20
"""What rounding may take from a squared norm where g is not built, as a share of the square without cancellation."""


@dataclass(slots=True)
class Outer:
    """g is the sum over places of the outer products of b and a; several groups (of a convolution) side by side."""

    a: Tensor  # (n, t, groups * i)
    b: Tensor  # (n, t, groups * o)
    shape: torch.Size
    order: tuple[int, ...] | None = None  # of the axes of shape, to make the parameter's
    groups: int = 1

    def squares(self) -> Tensor:
        """(n,) float64: squared norms of g, never below the truth by more than a relative 8e-6."""
        n, places = self.a.shape[:2]
        if self.groups == 1 and places == 1:
            return squares(self.a) * squares(self.b)
        if not self._plain():
            return self.settled().squares()
        products = _products(self.a).mul_(_products(self.b))
        largest = (self.a.norm(dim=2) * self.b.norm(dim=2)).sum(1).double().square_()  # as if nothing cancelled
        found: Tensor = products.view(n, -1).sum(1).clamp_(min=0.0) + ROUNDING * largest
        return found

    def settled(self) -> "Outer | Each":
        """The same use in the form in which norm and sum together cost least."""
        return self if self._plain() else Each(self.each())

    def _plain(self) -> bool:
        """Whether products of places, in double precision, cost less than building g."""
        places = self.a.shape[1]
        i, o = self.a.shape[2] // self.groups, self.b.shape[2] // self.groups
        return self.groups == 1 and (places == 1 or DOUBLE * places * places * (i + o + TRAFFIC) < TRAFFIC * i * o)

    def of(self, person: int) -> Tensor:
        """(*shape) one person's g."""
        one = slice(person, person + 1)
        return Outer(self.a[one], self.b[one], self.shape, self.order, self.groups).each()[0]

    def each(self) -> Tensor:
        """(n, *shape) everybody's g."""
        n, places = self.a.shape[:2]
        if self.groups == 1:
            return self._ordered(torch.bmm(self.b.mT, self.a).view(n, *self.shape))
        a = self.a.view(n, places, self.groups, -1)
        b = self.b.view(n, places, self.groups, -1)
        return self._ordered(torch.einsum("ntgo,ntgi->ngoi", b, a).reshape(n, *self.shape))

    def _ordered(self, g: Tensor) -> Tensor:
        return g if self.order is None else g.permute(0, *(1 + axis for axis in self.order))

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """Add the sum over people of weight times g; some rows at a time, which saves memory."""
        if self.groups > 1:
            Each(self.each()).add_to(total, weights)
            return
        a, b = self.a.flatten(0, 1), (self.b * weights[:, None, None]).flatten(0, 1)
        if self.order is not None:
            total += self._ordered((b.mT @ a).view(1, *self.shape))[0]
            return
        for rows, some in zip(torch.split(total.view(b.shape[1], -1), PART), torch.split(b, PART, dim=1), strict=True):
            rows += some.mT @ a

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.a.device

    @property
    def dtype(self) -> torch.dtype:
        """Its precision."""
        return self.a.dtype

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        return _bytes(self.a) + _bytes(self.b)

    def clear(self, people: Tensor) -> None:
        """Zero for these people (n,)."""
        self.a = self.a.masked_fill(people[:, None, None], 0.0)
        self.b = self.b.masked_fill(people[:, None, None], 0.0)

    def by_person(self, place: Tensor, people: int, most: int) -> "Outer":
        """The records of each person side by side, as places of that person; empty places count nothing."""
        places = self.a.shape[1]
        a = self.a.new_zeros(people * most, places, self.a.shape[2])
        b = self.b.new_zeros(people * most, places, self.b.shape[2])
        a[place], b[place] = self.a, self.b
        return Outer(
            a.view(people, most * places, -1), b.view(people, most * places, -1), self.shape, self.order, self.groups
        )


@dataclass(slots=True)
class Rows:
    """g has a row for each entry of a vocabulary: row k is the sum of b over the places where entry k occurred."""

    entries: Tensor  # (n, t) whole numbers; negative where nothing counts
    b: Tensor  # (n, t, o)
    shape: torch.Size

    def squares(self) -> Tensor:
        """(n,) float64: squared norms of g."""
        n, places = self.entries.shape
        owner = torch.arange(n, device=self.entries.device).repeat_interleave(places)
        keep = self.entries.reshape(-1) >= 0
        keys = (owner * self.shape[0] + self.entries.reshape(-1))[keep]
        found, inverse = torch.unique(keys, return_inverse=True)
        sums = self.b.new_zeros(found.shape[0], self.b.shape[2], dtype=torch.float64)
        sums.index_add_(0, inverse, self.b.reshape(n * places, -1)[keep].double())
        total = self.b.new_zeros(n, dtype=torch.float64)
        total.index_add_(0, found // self.shape[0], squares(sums))
        largest = (self.b.norm(dim=2).double() * (self.entries >= 0)).sum(1).square_()  # as if nothing cancelled
        return total.add_(largest, alpha=ROUNDING)

    def settled(self) -> "Rows":
        """Itself."""
        return self

    def of(self, person: int) -> Tensor:
        """(*shape) one person's g."""
        one = slice(person, person + 1)
        return Rows(self.entries[one], self.b[one], self.shape).each()[0]

    def each(self) -> Tensor:
        """(n, *shape) everybody's g."""
        n = self.entries.shape[0]
        every = self.b.new_zeros(n, *self.shape)
        b = self.b * (self.entries >= 0)[:, :, None]
        where = self.entries.clamp(min=0)[:, :, None].expand(-1, -1, self.shape[1])
        return every.scatter_add_(1, where, b)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """Add the sum over people of weight times g."""
        b = self.b * (weights[:, None] * (self.entries >= 0))[:, :, None]
        total.index_add_(0, self.entries.clamp(min=0).reshape(-1), b.flatten(0, 1).to(total.dtype))

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.b.device

    @property
    def dtype(self) -> torch.dtype:
        """Its precision."""
        return self.b.dtype

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        return _bytes(self.b)

    def clear(self, people: Tensor) -> None:
        """Zero for these people (n,)."""
        self.b = self.b.masked_fill(people[:, None, None], 0.0)

    def by_person(self, place: Tensor, people: int, most: int) -> "Rows":
        """The records of each person side by side."""
        places = self.entries.shape[1]
        entries = self.entries.new_full((people * most, places), -1)
        b = self.b.new_zeros(people * most, places, self.b.shape[2])
        entries[place], b[place] = self.entries, self.b
        return Rows(entries.view(people, most * places), b.view(people, most * places, -1), self.shape)


@dataclass(slots=True)
class Each:
    """Everybody's g, (n, *shape)."""

    g: Tensor

    def squares(self) -> Tensor:
        """(n,) float64: squared norms of g."""
        return squares(self.g)

    def settled(self) -> "Each":
        """Itself."""
        return self

    def of(self, person: int) -> Tensor:
        """(*shape) one person's g."""
        return self.g[person]

    def each(self) -> Tensor:
        """(n, *shape) everybody's g."""
        return self.g

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """Add the sum over people of weight times g."""
        total += (weights @ self.g.flatten(1)).view(self.g.shape[1:])

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.g.device

    @property
    def dtype(self) -> torch.dtype:
        """Its precision."""
        return self.g.dtype

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        return _bytes(self.g)

    def clear(self, people: Tensor) -> None:
        """Zero for these people (n,)."""
        self.g = self.g.masked_fill(people.view(-1, *(1,) * (self.g.dim() - 1)), 0.0)

    def by_person(self, place: Tensor, people: int, most: int) -> "Each":
        """The sums over each person's records."""
        g = self.g.new_zeros(people, *self.g.shape[1:])
        return Each(g.index_add_(0, torch.div(place, most, rounding_mode="floor"), self.g))


Use = Outer | Rows | Each


def combined(uses: Sequence[Use]) -> Use:
    """One use of a parameter that was used several times: its gradient is the sum of all."""
    if len(uses) == 1:
        return uses[0].settled()
    if all(isinstance(use, Outer) and use.groups == 1 for use in uses):
        outers: Any = uses
        return Outer(
            torch.cat([use.a for use in outers], dim=1),
            torch.cat([use.b for use in outers], dim=1),
            outers[0].shape,
            outers[0].order,
        ).settled()
    total = uses[0].each()
    for use in uses[1:]:
        total = total + use.each()
    return Each(total)


def _products(x: Tensor) -> Tensor:
    """(n, t, t) float64: everybody's inner products of all pairs of places."""
    x = x.double()
    return torch.bmm(x, x.mT)


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()

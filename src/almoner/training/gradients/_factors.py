"""Factors of each person's gradient, from one use of a parameter: its norm, and a weighted sum over people.

All of it is computed in single precision at least, whatever the caller allows for the rest of a training: PyTorch may
be told to multiply float32 matrices with fewer digits (TF32, bfloat16), and torch.autocast computes in half precision.
That is allowed in a forward pass: a contribution may be computed with few digits. But the norm that is charged and the
contribution that is added must not be rounded differently.

Names and symbols
    a      what went into the layer: (n, t, i), n people, t places where each of them used the parameter
    b      the gradient of the loss with respect to what came out: (n, t, o)
    g      a person's gradient, the sum over places of the outer products b a: (o, i)

Three kinds of factors, and nothing of size n times parameters is built where that can be avoided:
    OuterProducts  g is a sum of outer products (linear layers, convolutions, recurrent layers)
    SparseRows     g has a row for each entry of a vocabulary, few of which occur (embeddings)
    Dense          g itself (biases, scales of normalisations, everything else)

Source: Goodfellow (2015), https://arxiv.org/abs/1510.01799 (norms from a and b); Bu et al. (2023),
https://arxiv.org/abs/2210.00038 (the weighted sum from the same a and b, without a second backward pass)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

TRAFFIC = 32
"""Writing one number of g costs about as much as so many multiplications: where it is better not to build g."""

DOUBLE = 2  # a multiplication in double precision costs so many in single precision
ROWS_AT_ONCE = 512  # so many rows of a sum are made at once
SMALL = 1024  # gradients of so few numbers cost more for each operation than for each number

ROUNDING = 2.0**-20
"""The most that rounding takes from a squared norm where g is not built, as part of the square without cancellation."""

PIECE = 64  # so many squares are added up in single precision: in any order their sum is right to a relative 64 / 2^24

NORM_ROUNDING, NORM_UNDERFLOW = 5e-6, 1e-15
"""Norms are given larger than computed by this share and this much: more than the rounding of their sums."""


@contextmanager
def exact() -> Iterator[None]:
    """Within this context products of float32 matrices keep all of their digits."""
    backends: Any = torch.backends
    places = (backends.cuda.matmul, backends.mkldnn.matmul)
    before = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "ieee"
        yield
    finally:
        for place, precision in zip(places, before, strict=True):
            place.fp32_precision = precision


def half(x: Tensor) -> bool:
    return x.is_floating_point() and x.element_size() < 4


def full(x: Tensor) -> Tensor:
    """Convert to single precision, where they come in half precision."""
    return x.float() if half(x) else x


@dataclass(slots=True)
class Factor(ABC):
    """The numbers that each person's gradient of one parameter is computed from, people (or records) first."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors that it consists of, by the names of their fields."""
        parts = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: part for name, part in parts if isinstance(part, Tensor)}

    @property
    def values(self) -> dict[str, Tensor]:
        """Its tensors of real numbers, all of one precision and on one device."""
        return {name: part for name, part in self.tensors.items() if part.is_floating_point()}

    @property
    def first(self) -> Tensor:
        return next(iter(self.values.values()))

    @property
    def nbytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self.values.values())

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """(n,) float64: squared norms of g, never below the truth by more than a relative 8e-6."""

    @abstractmethod
    def gradients(self) -> Tensor:
        """(n, *shape) each person's g."""

    @abstractmethod
    def add_weighted_sum(self, total: Tensor, weights: Tensor) -> None:
        """Add the sum over people of weight times g to the total."""

    def of(self, people: slice) -> Self:
        return replace(self, **{name: part[people] for name, part in self.tensors.items()})

    def set_zero(self, people: Tensor) -> None:
        """Set g to zero for these people, (n,) bool."""
        for name, part in self.values.items():
            setattr(self, name, part.masked_fill(people.view(-1, *(1,) * (part.dim() - 1)), 0.0))

    def grouped_by_person(self, place: Tensor, people: int, most: int) -> Self:
        """Group the factors of records by person: record r is at ``place[r]`` among people times most places."""
        found = {}
        for name, part in self.tensors.items():
            empty = 0 if part.is_floating_point() else -1
            found[name] = part.new_full((people * most, *part.shape[1:]), empty)
            found[name][place] = part
            found[name] = found[name].view(people, most * part.shape[1], *part.shape[2:])
        return replace(self, **found)

    def cheapest(self) -> "Factor":
        """Choose the form in which norm and sum together cost least."""
        return self


@dataclass(slots=True)
class OuterProducts(Factor):
    """g is the sum over places of the outer products of b and a."""

    a: Tensor  # (n, t, i)
    b: Tensor  # (n, t, o)
    shape: torch.Size
    order: tuple[int, ...] | None = None  # of the axes of shape, to make the parameter's

    def squared_norms(self) -> Tensor:
        n, places = self.a.shape[:2]
        if places == 1:
            return squares(self.a) * squares(self.b)
        if not self._keep_products():
            return self.cheapest().squared_norms()
        products = _inner_products(self.a).mul_(_inner_products(self.b))
        largest = (self.a.norm(dim=2) * self.b.norm(dim=2)).sum(1).double().square_()  # as if nothing cancelled
        return cast(Tensor, products.view(n, -1).sum(1).clamp_(min=0.0) + ROUNDING * largest)

    def cheapest(self) -> Factor:
        return self if self._keep_products() else self._dense()

    def _keep_products(self) -> bool:
        """True if products of places, in double precision, cost less than building g."""
        return products_cost_less(self.a.shape[1], self.a.shape[2], self.b.shape[2])

    def gradients(self) -> Tensor:
        return self._dense().gradients()

    def _dense(self) -> "Dense":
        return Dense(torch.bmm(self.b.mT, self.a).view(len(self.b), *self.shape), self.order)

    def add_weighted_sum(self, total: Tensor, weights: Tensor) -> None:
        a, b = self.a.flatten(0, 1), (self.b * weights[:, None, None]).flatten(0, 1)
        if self.order is not None:
            total += (b.mT @ a).view(self.shape).permute(self.order)
            return
        rows_of_total = torch.split(total.view(b.shape[1], -1), ROWS_AT_ONCE)  # some at a time, which saves memory
        for rows, part in zip(rows_of_total, torch.split(b, ROWS_AT_ONCE, dim=1), strict=True):
            rows += part.mT @ a


@dataclass(slots=True)
class SparseRows(Factor):
    """g has a row for each entry of a vocabulary: row k is the sum of b over the places where entry k occurred."""

    entries: Tensor  # (n, t) whole numbers; negative where nothing counts
    b: Tensor  # (n, t, o)
    shape: torch.Size

    def squared_norms(self) -> Tensor:
        n, places = self.entries.shape
        person = torch.arange(n, device=self.entries.device).repeat_interleave(places)
        counts = self.entries.reshape(-1) >= 0
        keys = (person * self.shape[0] + self.entries.reshape(-1))[counts]
        occurring, inverse = torch.unique(keys, return_inverse=True)
        sums = self.b.new_zeros(occurring.shape[0], self.b.shape[2], dtype=torch.float64)
        sums.index_add_(0, inverse, self.b.reshape(n * places, -1)[counts].double())
        total = self.b.new_zeros(n, dtype=torch.float64)
        total.index_add_(0, occurring // self.shape[0], squares(sums))
        largest = (self.b.norm(dim=2).double() * (self.entries >= 0)).sum(1).square_()  # as if nothing cancelled
        return total.add_(largest, alpha=ROUNDING)

    def gradients(self) -> Tensor:
        total = self.b.new_zeros(len(self.entries), *self.shape)
        b = self.b * (self.entries >= 0)[:, :, None]
        rows = self.entries.clamp(min=0)[:, :, None].expand(-1, -1, self.shape[1])
        return total.scatter_add_(1, rows, b)

    def add_weighted_sum(self, total: Tensor, weights: Tensor) -> None:
        b = self.b * (weights[:, None] * (self.entries >= 0))[:, :, None]
        total.index_add_(0, self.entries.clamp(min=0).reshape(-1), b.flatten(0, 1).to(total.dtype))


@dataclass(slots=True)
class Dense(Factor):
    """Each person's g; its axes are in another order than the parameter's where that saves a copy."""

    g: Tensor  # (n, *axes)
    order: tuple[int, ...] | None = None  # of these axes, to make the parameter's

    def squared_norms(self) -> Tensor:
        return squares(self.g)

    def gradients(self) -> Tensor:
        return self.g if self.order is None else self.g.permute(0, *(1 + axis for axis in self.order))

    def add_weighted_sum(self, total: Tensor, weights: Tensor) -> None:
        g = (weights @ self.g.reshape(len(self.g), -1)).view(self.g.shape[1:])
        total += g if self.order is None else g.permute(self.order)

    def grouped_by_person(self, place: Tensor, people: int, most: int) -> "Dense":
        g = self.g.new_zeros(people, *self.g.shape[1:])
        return Dense(g.index_add_(0, torch.div(place, most, rounding_mode="floor"), self.g), self.order)


def products_cost_less(places: int, i: int, o: int) -> bool:
    """True if inner products of all places, in double precision, cost less than building g, o times i in size."""
    return places == 1 or DOUBLE * places * places * (i + o + TRAFFIC) < TRAFFIC * i * o


Factors = list[Factor | None]  # one for each parameter; None for a parameter that was not used

ParameterFactors = list[tuple[nn.Parameter, Factor]]

Make = Callable[..., ParameterFactors]
"""From the gradients of what one use of parameters gave, None where nothing depends on it, to the factors."""


def of_parameters(parameters: Sequence[nn.Parameter], uses: Iterable[tuple[Make, Sequence[Tensor | None]]]) -> Factors:
    """The factor of each parameter, from all of its uses: their functions, and the gradients of what they gave."""
    found: dict[nn.Parameter, list[Factor]] = {}
    with torch.no_grad(), exact():
        for make, bs in uses:
            for parameter, factor in make(*(None if b is None else full(b) for b in bs)):
                found.setdefault(parameter, []).append(factor)
        return [_combined(found[parameter]) if parameter in found else None for parameter in parameters]


def _combined(factors: Sequence[Factor]) -> Factor:
    """One factor of a parameter that was used several times: its gradient is the sum of all."""
    if len(factors) == 1:
        return factors[0].cheapest()
    if all(isinstance(factor, OuterProducts) for factor in factors):
        products = cast(Sequence[OuterProducts], factors)
        a = torch.cat([factor.a for factor in products], dim=1)
        b = torch.cat([factor.b for factor in products], dim=1)
        return OuterProducts(a, b, products[0].shape, products[0].order).cheapest()
    total = factors[0].gradients()
    for factor in factors[1:]:
        total = total + factor.gradients()
    return Dense(total)


def grouped_by_person(factors: Factors, place: Tensor, people: int, most: int) -> Factors:
    with exact():
        return [factor and factor.grouped_by_person(place, people, most).cheapest() for factor in factors]


def of_one_person(before: Factors, factors: Factors, shapes: Sequence[torch.Size]) -> Factors:
    """Add up the factors of records that all are one person's, and what was added up of that person before."""
    total = list(before)
    with exact():
        for number, (factor, shape) in enumerate(zip(factors, shapes, strict=True)):
            if factor is not None:
                first, old = factor.first, total[number]
                g = first.new_zeros(shape)
                factor.add_weighted_sum(g, first.new_ones(len(first)))
                total[number] = Dense(g.unsqueeze(0) if old is None else old.gradients() + g)
    return total


def gradients_of(factors: Factors, person: int) -> list[Tensor | None]:
    return [None if factor is None else factor.of(slice(person, person + 1)).gradients()[0] for factor in factors]


def add_weighted_sums(sums: Sequence[Tensor], factors: Factors, norms: Tensor, weights: Tensor) -> None:
    """Add to each parameter's sum its people's gradients times their weights, which are zero for unknown norms."""
    broken = ~torch.isfinite(norms)
    any_broken = bool(broken.any())
    shares: dict[tuple[torch.device, torch.dtype], Tensor] = {}
    with exact():
        for total, factor in zip(sums, factors, strict=True):
            if factor is not None:
                if any_broken:  # zero times infinity is not zero
                    factor.set_zero(broken.to(total.device))
                kind = factor.first.device, factor.first.dtype
                if kind not in shares:
                    shares[kind] = weights.to(*kind)
                factor.add_weighted_sum(total, shares[kind])


def _together(factors: Factors) -> list[Factor]:
    """Factors with the same sum of squared norms, fewer of them: small gradients of all parameters side by side."""
    small: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    others: list[Factor] = []
    for factor in factors:
        if isinstance(factor, Dense) and factor.g[:1].numel() <= SMALL:
            small.setdefault((factor.g.device, factor.g.dtype), []).append(factor.g.reshape(len(factor.g), -1))
        elif factor is not None:
            others.append(factor)
    return others + [Dense(torch.cat(parts, dim=1)) for parts in small.values()]


def _inner_products(x: Tensor) -> Tensor:
    """(n, t, t) float64: each person's inner products of all pairs of places."""
    x = x.double()
    return torch.bmm(x, x.mT)


def norms_of(factors: Factors, people: int) -> Tensor:
    """(people,) float64, the norm of each person's gradient, on the processor; rounded up; NaN where not finite."""
    with exact():
        per_parameter = (factor.squared_norms() for factor in _together(factors))
        total: Any = sum(per_parameter, torch.zeros((), dtype=torch.float64))
    norms = torch.sqrt(total.expand(people) if total.dim() == 0 else total)
    norms = torch.where(norms > 0, norms * (1 + NORM_ROUNDING) + NORM_UNDERFLOW, norms)
    return torch.where(torch.isfinite(norms), norms, torch.nan).cpu()


def squares(x: Tensor) -> Tensor:
    """(n,) float64: sums of squares over all axes but the first, right to a relative 4e-6, none too small by underflow.

    A square below the smallest normal number may become zero: so much is added for each, where that could matter.
    """
    flat = x.reshape(len(x), -1)
    even = flat.shape[1] // PIECE * PIECE
    total: Tensor = torch.linalg.vector_norm(flat[:, even:], dim=1).double().square_()
    if even:
        pieces = torch.linalg.vector_norm(flat[:, :even].reshape(len(flat), -1, PIECE), dim=2)
        total += pieces.double().square_().sum(1)
    lost = flat.shape[1] * torch.finfo(x.dtype).tiny
    doubtful = total < lost * 2**24
    if doubtful.any():
        total[doubtful] += torch.where((flat[doubtful] != 0).any(1), lost, 0.0)
    return total

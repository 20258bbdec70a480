"""Rules for each kind of layer: the factors of its parameters, from its input and the gradient of its output.

A rule takes the layer, the input (records first) and the gradient of the output, and gives the factors of the layer's
parameters, by name. A layer without a rule of its own is differentiated person by person (torch.func), as a whole.
Records need not be on the first axis of what a layer takes and gives: each tensor has a ``Place`` of its records.

Layers whose records depend on each other have no gradient per person: they are refused by name.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp, vmap
from torch.nn import functional
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrizations import _WeightNorm
from torch.nn.utils.parametrize import is_parametrized
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

from almoner.errors import ArgumentError, Unsupported
from almoner.training.gradients import _factors
from almoner.training.gradients._batches import ByPerson
from almoner.training.gradients._factors import Dense, Factor, OuterProducts, ParameterFactors, SparseRows, full, half
from almoner.training.gradients._shards import kind_of, own_parts, whole

ByName = dict[str, Factor]
Rule = Callable[[Any, Tensor, Tensor], ByName]

CACHE = 2**21  # bytes of intermediate products that are made at a time: so many stay in a cache

BATCH_NORM = (
    "normalises each record with the others of its batch: use GroupNorm, LayerNorm or InstanceNorm; or, for a network "
    "that was trained before, call eval() on this layer, which keeps its statistics, and leave it so"
)


def refuse_unsupported(module: nn.Module) -> None:
    """Raise Unsupported, naming the layer and what to use instead, where no gradient per person exists."""
    for name, layer in module.named_modules():
        named = f"module: layer {name or 'itself'!r} ({type(layer).__name__})"
        if isinstance(layer, nn.modules.lazy.LazyModuleMixin):
            raise Unsupported(f"{named} has no parameters yet: run it on one batch first")
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            if layer.training or layer.running_mean is None:
                raise Unsupported(f"{named} {BATCH_NORM}")
        elif getattr(layer, "track_running_stats", False):
            raise Unsupported(f"{named} keeps statistics of all records: set track_running_stats=False")
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag):
            for option in ("max_norm", "scale_grad_by_freq", "sparse"):
                if getattr(layer, option):
                    raise Unsupported(f"{named} must not set {option}")


class Place(NamedTuple):
    """The axis of a tensor on which the records are: one each (0), many side by side (1) or all in turns (2)."""

    axis: int
    many: int = 0

    def split(self, part: Tensor, records: int) -> Tensor:
        """(records, ...) each record's own tensor, of the form that it has for this record alone."""
        if self in (FIRST, SHARED):
            return part.unsqueeze(1) if self == FIRST else part.expand(records, *part.shape)
        sizes = (-1, records) if self.many == 2 else (records, -1)
        shape = (*part.shape[: self.axis], *sizes, *part.shape[self.axis + 1 :])
        return part.reshape(shape).movedim(self.axis + (self.many == 2), 0)

    def numbers(self, shape: Sequence[int], records: int) -> Tensor:
        """(rows,) the record of each row, where rows are all axes of this shape together."""
        rows = torch.arange(shape[self.axis])
        rows = rows % records if self.many == 2 else rows // (len(rows) // records)
        return rows.view(-1, *(1,) * (len(shape) - self.axis - 1)).expand(shape).reshape(-1)


FIRST, SHARED = Place(0), Place(-1)  # one row for each record; and no records at all
Places = tuple[Any, ...]  # each a Place, or None: not known


class Call(NamedTuple):
    """One call of a layer: what it took, and in which form it gave what it gave."""

    given: list[Any]  # the leaves of (args, kwargs)
    given_tree: TreeSpec
    places: Places  # of all tensors that it took, then of all that it gave
    trained: list[bool]  # of each tensor that it gave: whether it has a gradient
    records: int

    def one_input(self) -> Tensor | None:
        """The only thing that the layer was called with, if that is a tensor."""
        some = [part for part in self.given if part is not None]
        return full(some[0]) if len(some) == 1 and isinstance(some[0], Tensor) else None

    def split(self, number: int, part: Tensor) -> Tensor:
        """(records, ...) each record's own; the gradient of what has no records was spread over them already."""
        place = self.places[number]
        gave = number >= len(self.places) - len(self.trained)
        return part if gave and place == SHARED else place.split(part, self.records)


def spread_out(part: Tensor, records: int) -> Tensor:
    """A tensor without records, once for each record: a leading axis of 1 becomes theirs, else they get a new one."""
    one = part if part.dim() and part.shape[0] == 1 else part.unsqueeze(0)
    return one.expand(records, *one.shape[1:])


def rows_of(layer: nn.Module, output: Tensor) -> int | None:
    """The number of an output's axes whose rows the layer makes one by one; None: it has no rule."""
    rule = rule_of(layer)
    if rule is normalisation and isinstance(layer, nn.LayerNorm | nn.RMSNorm):
        return output.dim() - len(layer.normalized_shape)
    return None if rule is None else output.dim() - 1 if rule in (linear, linear_transposed, embedding) else 1


def rule_of(layer: nn.Module) -> Rule | None:
    """The rule for exactly this kind of layer, also where its parameters are parametrised."""
    kind = _kind(layer)
    if (kind.__module__, kind.__name__) == ("transformers.pytorch_utils", "Conv1D"):
        return linear_transposed
    return RULES.get(kind)


def _kind(layer: nn.Module) -> type[nn.Module]:
    """The class of a layer, or the one that it had before its parameters were parametrised."""
    return kind_of(type(layer)).__mro__[1] if is_parametrized(layer) else kind_of(type(layer))


def factors_of(name: str, layer: nn.Module, call: Call, *bs: Tensor | None, owners: Any = None) -> ParameterFactors:
    """The factors of a layer's parameters, from one call; ``owners`` (rows,): records that were found, -1: nobody's."""
    x, rule = call.one_input(), rule_of(layer)
    x, bs = own_parts(name, layer, x, bs)  # type: ignore[assignment]
    if rule is None or x is None or len(bs) != 1 or bs[0] is None:
        if is_parametrized(layer):
            raise Unsupported(f"module: layer {name!r} is parametrised and must be called with one tensor alone")
        factors = general(name, layer, call, bs)
    else:
        factors = _ruled(rule, layer, call, x, bs[0], owners)
        parametrised: Any = layer.parametrizations if is_parametrized(layer) else {}
        for each, parts in parametrised.items():
            if each in factors:
                factors |= _through(name, f"parametrizations.{each}", parts, factors.pop(each).gradients())
    parameters = dict(layer.named_parameters())
    return [(parameters[each], factor) for each, factor in factors.items() if parameters[each].requires_grad]


def _ruled(rule: Rule, layer: nn.Module, call: Call, x: Tensor, b: Tensor, owners: Tensor | None) -> ByName:
    """Apply a rule to each record's own rows; or to each row by itself, and add up those of each record."""
    n, axes = call.records, rows_of(layer, b) or 1
    if owners is None:
        shared, place = call.places[0] == SHARED, call.places[1]
        x, b = spread_out(x, n) if shared else call.split(0, x), call.split(1, b)
        if axes > 1:  # it adds up places
            return rule(layer, x, b)
        if place is not None and place.axis > 0:
            raise Unsupported(f"module: a layer {type(layer).__name__} has its records on another axis than the first")
        x, b = x if shared else x.flatten(0, 1), b if place == SHARED else b.flatten(0, 1)
        many, places = len(b) // n, torch.arange(len(b))
    else:
        by_record = ByPerson(torch.where(owners < 0, n, owners), n + 1)
        rows, whose, within = by_record.of(torch.arange(n))
        x, b = x.flatten(0, axes - 1)[rows], b.flatten(0, axes - 1)[rows]
        many = max(1, int(by_record.counts[:n].max()))
        places = whose * many + within
    found = rule(layer, x, b)
    if many == 1 and owners is None:
        return found
    return {each: factor.grouped_by_person(places.to(b.device), n, many) for each, factor in found.items()}


def _through(name: str, prefix: str, parts: nn.Module, gradients: Tensor) -> ByName:
    """From each person's gradient of a parametrised weight to those of what it is computed from."""
    values = {each: full(whole(parameter.detach())) for each, parameter in parts.named_parameters()}
    made_by: list[Any] = list(parts.children())

    def weight(values: dict[str, Tensor]) -> Tensor:
        if len(made_by) == 1 and isinstance(made_by[0], _WeightNorm):  # spelled out: PyTorch's has no batching rule
            scale, direction = values["original0"], values["original1"]
            return direction * (scale / torch.norm_except_dim(direction, 2, made_by[0].dim))
        return cast(Tensor, functional_call(parts, values, ()))

    def back(g: Tensor) -> dict[str, Tensor]:
        return cast(dict[str, Tensor], vjp(weight, values)[1](g)[0])

    try:
        found = vmap(back, randomness="error")(gradients)
    except (RuntimeError, ValueError) as failure:
        raise Unsupported(f"module: {prefix} of layer {name!r} can't be differentiated: remove it") from failure
    return {f"{prefix}.{each}": Dense(g) for each, g in found.items()}


def linear(layer: nn.Linear, x: Tensor, b: Tensor) -> ByName:
    """Places are all axes between the first and the last."""
    a, b = _places(x), _places(b)
    return {"weight": OuterProducts(a, b, torch.Size((b.shape[2], a.shape[2])))} | _bias(layer, b)


def linear_transposed(_layer: nn.Module, x: Tensor, b: Tensor) -> ByName:
    """A linear layer whose weight is (in, out), as in GPT-2."""
    a, b = _places(x), _places(b)
    return {"weight": OuterProducts(b, a, torch.Size((a.shape[2], b.shape[2]))), "bias": Dense(b.sum(1))}


def convolution(layer: _ConvNd, x: Tensor, b: Tensor) -> ByName:
    """Places are the positions of the output; what went in is the patch below each; of several groups, the image."""
    return {"weight": _of_kernel(layer, x, b)} | _bias(layer, b.flatten(2).mT)


def transposed(layer: _ConvNd, x: Tensor, b: Tensor) -> ByName:
    """A transposed convolution is a convolution backwards: what went in and what came out change places."""
    if any(layer.output_padding):
        given, given_tree = tree_flatten(((x,), {}))
        return general(type(layer).__name__, layer, Call(given, given_tree, (FIRST, FIRST), [True], len(x)), [b])
    return {"weight": _of_kernel(layer, b, x)} | _bias(layer, b.flatten(2).mT)


def embedding(layer: nn.Embedding, x: Tensor, b: Tensor) -> ByName:
    """The gradient has a row for each entry that occurs."""
    entries = x.reshape(x.shape[0], -1)
    if layer.padding_idx is not None:
        entries = entries.masked_fill(entries == layer.padding_idx, -1)
    return {"weight": SparseRows(entries, b.reshape(*entries.shape, -1), torch.Size((len(layer.weight), b.shape[-1])))}


def normalisation(layer: nn.Module, x: Tensor, b: Tensor) -> ByName:
    """Scale and shift, of each position or each channel: sums of b times the normalised x, and of b."""
    normalised = NORMALISED[_kind(layer)]

    def total(t: Tensor) -> Tensor:
        if isinstance(layer, nn.LayerNorm | nn.RMSNorm):
            return t.reshape(t.shape[0], -1, *layer.normalized_shape).sum(1)
        return t.sum(dim=tuple(range(2, t.dim()))) if t.dim() > 2 else t

    factors: ByName = {}
    if getattr(layer, "weight", None) is not None:
        parts = _few_at_once(x, x[:1].numel())
        factors["weight"] = Dense(torch.cat([total(normalised(layer, x[rows]).mul_(b[rows])) for rows in parts]))
    if getattr(layer, "bias", None) is not None:
        factors["bias"] = Dense(total(b))
    return factors


def general(name: str, layer: nn.Module, call: Call, bs: Sequence[Tensor | None]) -> ByName:
    """Any module, by one differentiation a person: slower, and each person's gradient is built."""
    parts = [full(part) for part in call.given if isinstance(part, Tensor)]
    taken = tuple(call.split(number, part) for number, part in enumerate(parts))
    trained = [number for number, has_gradient in enumerate(call.trained) if has_gradient]
    used = [number for number, b in zip(trained, bs, strict=True) if b is not None]
    if any(kind_of(type(each)) is not type(each) for each in layer.modules()):
        raise Unsupported(
            f"module: layer {name!r} ({kind_of(type(layer)).__name__}) has parameters of its own, and it or a layer in "
            "it is gathered by FSDP by itself: call fully_shard on the module around it alone, or write a rule for it"
        )
    values = {each: full(whole(part.detach())) for each, part in layer.named_parameters() if part.requires_grad}
    every = (*layer.named_parameters(), *layer.named_buffers())
    others = {each: full(part.detach()) for each, part in every if half(part)}

    def forward(values: dict[str, Tensor], parts: tuple[Tensor, ...]) -> list[Tensor]:
        whole = iter(parts)
        given = [next(whole) if isinstance(part, Tensor) else part for part in call.given]
        args, kwargs = tree_unflatten(given, call.given_tree)
        out = functional_call(layer, others | values, args, kwargs)
        found = [part for part in tree_leaves(out) if torch.is_tensor(part)]
        return [found[number] for number in used]

    def backward(parts: tuple[Tensor, ...], bs: list[Tensor]) -> dict[str, Tensor]:
        found, back = vjp(lambda values: forward(values, parts), values)[:2]
        return cast(dict[str, Tensor], back([b.reshape(part.shape) for b, part in zip(bs, found, strict=True)])[0])

    gave = [call.split(len(taken) + trained[at], b) for at, b in enumerate(bs) if b is not None]
    try:
        gradients = vmap(backward, randomness="error")(taken, gave)
    except (RuntimeError, ValueError) as failure:
        raise Unsupported(
            f"module: layer {name!r} ({type(layer).__name__}) has parameters of its own and can't be differentiated "
            "person by person: put them into layers, give each of them a leading axis of 1, or write a rule for it"
        ) from failure
    return {each: Dense(gradient) for each, gradient in gradients.items()}


def _of_kernel(layer: _ConvNd, x: Tensor, b: Tensor) -> Factor:
    """The factor of a kernel from the image under it and the other side.

    Patches are much larger than the image: without inner products few records' are made at a time, to stay in a cache.
    """
    if layer.groups > 1:
        return Dense(_of_groups(layer, x, b))
    b = b.movedim(1, -1).flatten(1, -2)
    out, channels, *kernel = layer.weight.shape
    shape = torch.Size((out, *kernel, channels))  # in which patches give the weight
    order = (0, len(kernel) + 1, *range(1, len(kernel) + 1))  # of these axes, to make (out, channels, kernel)
    places, patch = b.shape[1], prod(shape[1:])
    if _factors.products_cost_less(places, patch, out):
        return OuterProducts(_patches(layer, x), b, shape, order)
    g = b.new_empty(len(b), out, patch)
    for rows in _few_at_once(x, places * patch):
        torch.bmm(b[rows].mT, _patches(layer, x[rows]), out=g[rows])
    return Dense(g.view(len(b), *shape), order)


def _of_groups(layer: _ConvNd, x: Tensor, b: Tensor) -> Tensor:
    """(n, *weight) the image convolved with the other side, each record and group by itself: without patches."""
    n, (_, channels, *kernel) = len(b), layer.weight.shape
    x = torch.unflatten(_padded(layer, x), 1, (layer.groups, channels)).flatten(0, 1).transpose(0, 1)
    convolve = (functional.conv1d, functional.conv2d, functional.conv3d)[len(kernel) - 1]
    g = convolve(x, b.flatten(0, 1).unsqueeze(1), stride=layer.dilation, dilation=layer.stride, groups=n * layer.groups)
    for axis, size in enumerate(kernel, 2):
        g = g.narrow(axis, 0, size)
    return g.transpose(0, 1).reshape(n, *layer.weight.shape)


def _places(x: Tensor) -> Tensor:
    return x.reshape(x.shape[0], -1, x.shape[-1])


def _bias(layer: nn.Linear | _ConvNd, b: Tensor) -> ByName:
    return {} if layer.bias is None else {"bias": Dense(b.sum(1))}


def _few_at_once(x: Tensor, numbers: int) -> list[slice]:
    """Rows of x in parts for which so many numbers a row fit a processor's cache."""
    n = x.shape[0]
    at_once = max(1, CACHE // (numbers * x.element_size())) if x.device.type == "cpu" else n
    return [slice(start, start + at_once) for start in range(0, n, at_once)]


def _padded(layer: _ConvNd, x: Tensor) -> Tensor:
    widths, mode = list(layer._reversed_padding_repeated_twice), layer.padding_mode
    if mode == "zeros" and not isinstance(layer.padding, str):
        widths = [width for size in reversed(layer.padding) for width in (size, size)]
    return functional.pad(x, widths, mode="constant" if mode == "zeros" else mode) if any(widths) else x


def _patches(layer: _ConvNd, x: Tensor) -> Tensor:
    """(n, positions, kernel * channels) what each position of the output saw, channels fastest."""
    x = _padded(layer, x).movedim(1, -1)
    spatial = x.dim() - 2
    for axis in range(spatial):
        reach = layer.dilation[axis] * (layer.kernel_size[axis] - 1) + 1
        x = x.unfold(1 + axis, reach, layer.stride[axis])
    for axis in range(spatial):
        x = x.movedim(-spatial, -1)[..., :: layer.dilation[axis]]
    x = x if x.shape[1 + spatial] == 1 else x.movedim(1 + spatial, -1)  # of one channel the same, faster to copy
    return x.reshape(x.shape[0], prod(x.shape[1 : 1 + spatial]), -1)


NORMALISED: dict[type[nn.Module], Callable[[Any, Tensor], Tensor]] = {
    nn.LayerNorm: lambda layer, x: functional.layer_norm(x, layer.normalized_shape, eps=layer.eps),
    nn.RMSNorm: lambda layer, x: functional.rms_norm(x, list(layer.normalized_shape), eps=layer.eps),
    nn.GroupNorm: lambda layer, x: functional.group_norm(x, layer.num_groups, eps=layer.eps),
    **dict.fromkeys(
        (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
        lambda layer, x: functional.instance_norm(x, eps=layer.eps),
    ),
    **dict.fromkeys(
        (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),  # whose statistics stay as they are
        lambda layer, x: functional.batch_norm(x, full(layer.running_mean), full(layer.running_var), eps=layer.eps),
    ),
}
"""Each kind of normalisation without its scale and shift."""


def register_rule(kind: type[nn.Module], rule: Callable[[Any, Tensor, Tensor], dict[str, Tensor]]) -> None:
    """Have a function of your own give the gradients per record of a kind of layer.

    Args:
        kind: public. The layers of exactly this class, called with one tensor, giving one tensor.
        rule: public. Called with the layer, what it was called with and the gradient of what it gave, both (n, ...); it
            gives the gradient of each of its parameters, by name, (n, *shape). It is compared with a naive loop.
    """
    if not (isinstance(kind, type) and issubclass(kind, nn.Module) and callable(rule)):
        raise ArgumentError("register_rule needs a class of layers and a function: register_rule(Scale, rule)")

    def made(layer: nn.Module, x: Tensor, b: Tensor) -> ByName:
        found: ByName = {name: Dense(g.detach()) for name, g in rule(layer, x, b).items()}
        wanted = {name: (len(x), *each.shape) for name, each in layer.named_parameters() if each.requires_grad}
        if {name: tuple(factor.first.shape) for name, factor in found.items() if name in wanted} != wanted:
            raise Unsupported(f"module: the rule of {kind.__name__} must give {wanted}, by name")
        return found

    RULES[kind] = made


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: linear,
    **dict.fromkeys((nn.Conv1d, nn.Conv2d, nn.Conv3d), convolution),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), transposed),
    nn.Embedding: embedding,
    **dict.fromkeys(NORMALISED, normalisation),
}
"""By exact type: a subclass may do something else, so it is differentiated as a whole."""

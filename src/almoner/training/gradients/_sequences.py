"""Layers over time, spelled out as linear maps whose factors are recorded: recurrent layers, their cells, attention.

Their outputs equal those of PyTorch's layers; tests compare both. The linear map of the state is recorded once.

Names and symbols
    x       (n, t, gates) what the inputs add to the gates
    inner   (n, t, gates) zeros, or the bias, added to what the state adds to the gates: its gradient is that of that
    w       (gates, hidden) the linear map of the state; a scan computes no gradient of it
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from almoner.errors import Unsupported
from almoner.training.gradients._factors import Dense, Make, OuterProducts, ParameterFactors, full

State = tuple[Tensor, ...]
Step = Callable[[Tensor, Tensor, State], State]  # what the inputs and the state add to the gates, and the state


class Record(Protocol):
    """Records what a linear map gave, how its gradient becomes factors, and what must not be changed until then."""

    def __call__(self, name: str, output: Tensor, make: Make, *read: Tensor) -> None: ...


def _linear(record: Record, x: Tensor, weight: nn.Parameter, bias: nn.Parameter | None) -> Tensor:
    """A linear map, recorded."""
    output = functional.linear(x, weight, bias)
    _record(record, x.detach(), weight, bias, output)
    return output


def _record(record: Record, x: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, output: Tensor) -> None:
    """Record a linear map of x that was computed elsewhere; the gradient of its output is that of this tensor."""
    into = full(x)

    def make(b: Tensor) -> ParameterFactors:
        b = b.reshape(b.shape[0], -1, b.shape[-1])
        made: ParameterFactors = []
        if weight.requires_grad:
            made.append((weight, OuterProducts(into.reshape(b.shape[0], -1, into.shape[-1]), b, weight.shape)))
        if bias is not None and bias.requires_grad:
            made.append((bias, Dense(b.sum(1))))
        return made

    record("linear", output, make, into)


def _lstm(x: Tensor, h: Tensor, state: State) -> State:
    i, f, g, o = (x + h).chunk(4, dim=-1)
    c = torch.addcmul(torch.sigmoid(f) * state[1], torch.sigmoid(i), torch.tanh(g))
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru(x: Tensor, h: Tensor, state: State) -> State:
    size = 2 * state[0].shape[-1]
    r, z = torch.sigmoid(x[:, :size] + h[:, :size]).chunk(2, dim=-1)
    return (torch.lerp(torch.tanh(torch.addcmul(x[:, size:], r, h[:, size:])), state[0], z),)


def _kind(layer: nn.RNNBase | nn.RNNCellBase) -> tuple[Step, int]:
    """The function of one step, and the number of tensors in its state."""
    if isinstance(layer, nn.LSTM | nn.LSTMCell):
        return _lstm, 2
    if isinstance(layer, nn.GRU | nn.GRUCell):
        return _gru, 1
    bend = torch.relu if layer.nonlinearity == "relu" else torch.tanh
    return lambda x, h, _state: (bend(x + h),), 1


def _scanned(
    step: Step, x: Tensor, inner: Tensor, w: Tensor, state: State, present: Tensor | None
) -> tuple[Tensor, Tensor, State]:
    """(n, t, hidden) states after each place; those before, without a gradient; and the last one."""
    after, before = [], []
    for place, (own, more) in enumerate(zip(x.unbind(1), inner.unbind(1), strict=True)):
        before.append(state[0].detach())
        new = step(own, torch.addmm(more, state[0], w.T), state)
        if present is not None:
            now = present[:, place, None]
            new = tuple(torch.where(now, one, old) for one, old in zip(new, state, strict=True))
        state = new
        after.append(state[0])
    return torch.stack(after, dim=1), torch.stack(before, dim=1), state


def recurrent(
    layer: nn.RNNBase, record: Record, x: object, hx: object = None
) -> tuple[Tensor | PackedSequence, Tensor | State]:
    """nn.RNN, nn.LSTM and nn.GRU on (records, time, features), as ``batch_first`` says, or on packed sequences."""
    named = f"module: {type(layer).__name__}"
    if hx is not None or layer.proj_size:
        raise Unsupported(f"{named} must start from zero: leave out the initial state and proj_size")
    if isinstance(x, PackedSequence):
        padded, lengths = pad_packed_sequence(x, batch_first=True)
        present = (torch.arange(padded.shape[1]) < lengths[:, None]).to(padded.device)
        output, state = _all_ways(layer, record, padded, present)
        order = slice(None) if x.sorted_indices is None else x.sorted_indices
        packed = pack_padded_sequence(output[order], lengths[order.cpu() if torch.is_tensor(order) else order], True)
        return PackedSequence(packed.data, x.batch_sizes, x.sorted_indices, x.unsorted_indices), state
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise Unsupported(f"{named} needs a tensor (records, time, features), or packed sequences")
    output, state = _all_ways(layer, record, x if layer.batch_first else x.transpose(0, 1), None)
    return output if layer.batch_first else output.transpose(0, 1), state


def _all_ways(layer: nn.RNNBase, record: Record, x: Tensor, present: Tensor | None) -> tuple[Tensor, Tensor | State]:
    """The outputs of the last of the layers one above the other, in one direction or two, and the last states of all.

    Where (records, time) ``present`` is False a sequence is over or has not begun: the state stays.
    """
    step, size = _kind(layer)
    last: list[State] = []
    for number in range(layer.num_layers):
        outputs = []
        for direction in range(2 if layer.bidirectional else 1):
            ends = f"l{number}" + ("_reverse" if direction else "")
            w_ih, w_hh = getattr(layer, f"weight_ih_{ends}"), getattr(layer, f"weight_hh_{ends}")
            b_ih, b_hh = (getattr(layer, f"bias_{side}_{ends}") if layer.bias else None for side in ("ih", "hh"))
            into = _linear(record, x.flip(1) if direction else x, w_ih, b_ih).to(w_hh.dtype)
            inner = into.new_zeros(()).expand(into.shape).requires_grad_()
            start: State = (into.new_zeros(x.shape[0], layer.hidden_size),) * size
            there = present.flip(1) if direction and present is not None else present
            with torch.autocast(x.device.type, enabled=False):
                both = inner if b_hh is None else inner + b_hh.detach()
                out, before, state = _scanned(step, into, both, w_hh.detach(), start, there)
            _record(record, before, w_hh, b_hh, inner)
            last.append(state)
            outputs.append(out.flip(1) if direction else out)
        x = torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]
        if layer.dropout and layer.training and number < layer.num_layers - 1:
            x = functional.dropout(x, layer.dropout)
    states = tuple(torch.stack([state[part] for state in last]) for part in range(size))
    return x, (states if size == 2 else states[0])


def cell(layer: nn.RNNCellBase, record: Record, x: Tensor, hx: Tensor | State | None = None) -> Tensor | State:
    """nn.RNNCell, nn.LSTMCell and nn.GRUCell on (records, features)."""
    step, size = _kind(layer)
    if x.dim() != 2:
        raise Unsupported(f"module: {type(layer).__name__} needs a tensor (records, features)")
    state: State = (x.new_zeros(x.shape[0], layer.hidden_size),) * size
    if hx is not None:
        state = (hx,) if size == 1 and isinstance(hx, Tensor) else tuple(hx)
    w: Any = layer
    after = step(_linear(record, x, w.weight_ih, w.bias_ih), _linear(record, state[0], w.weight_hh, w.bias_hh), state)
    return after if size == 2 else after[0]


def attention(
    layer: nn.MultiheadAttention,
    record: Record,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,  # noqa: ARG001 - nn.MultiheadAttention has it
) -> tuple[Tensor, Tensor | None]:
    """nn.MultiheadAttention on (records, time, features), as ``batch_first`` says."""
    if layer.bias_k is not None or layer.add_zero_attn or query.dim() != 3:
        raise Unsupported("module: MultiheadAttention needs (records, time, features), no add_bias_kv, add_zero_attn")
    weight, bias = layer.in_proj_weight, layer.in_proj_bias
    if weight is None:
        raise Unsupported("module: MultiheadAttention must not set kdim or vdim: add linear layers before it")
    alike = query is key and key is value
    if not layer.batch_first:
        query, key, value = (part.transpose(0, 1) for part in (query, key, value))
    if alike:
        parts = _linear(record, query, weight, bias).chunk(3, dim=-1)
    else:
        parts = tuple(_linear(record, x, weight, bias).chunk(3, -1)[at] for at, x in enumerate((query, key, value)))
    n, heads = query.shape[0], layer.num_heads
    q, k, v = (part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in parts)  # (n, heads, time, features)
    scores = q @ k.mT * layer.head_dim**-0.5
    if attn_mask is not None:
        mask = _additive(attn_mask, scores)
        scores = scores + (mask.view(n, heads, *mask.shape[1:]) if mask.dim() == 3 else mask)
    if key_padding_mask is not None:
        scores = scores + _additive(key_padding_mask, scores)[:, None, None, :]
    weights = functional.softmax(scores, dim=-1)
    if layer.dropout and layer.training:
        weights = functional.dropout(weights, layer.dropout)
    mixed = (weights @ v).transpose(1, 2).flatten(2)
    out: Any = layer.out_proj
    output = _linear(record, mixed, out.weight, out.bias)
    output = output if layer.batch_first else output.transpose(0, 1)
    return output, (weights.mean(1) if average_attn_weights else weights) if need_weights else None


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
    return mask


FORWARDS: dict[type[nn.Module], Callable[..., Any]] = {
    **dict.fromkeys((nn.RNN, nn.LSTM, nn.GRU), recurrent),
    **dict.fromkeys((nn.RNNCell, nn.LSTMCell, nn.GRUCell), cell),
    nn.MultiheadAttention: attention,
}
"""By exact type: a subclass may do something else."""

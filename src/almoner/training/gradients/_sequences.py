"""Recurrent and attention layers, computed step by step from linear maps whose factors are recorded.

Their outputs equal those of PyTorch's layers; tests compare both.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from almoner.errors import Unsupported
from almoner.training.gradients._scans import scan
from almoner.training.gradients._tape import Tape

__all__ = ["FORWARDS"]

State = tuple[Tensor, ...]


def _lstm(x: Tensor, h: Tensor, state: State) -> State:
    i, f, g, o = (x + h).chunk(4, dim=-1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru(x: Tensor, h: Tensor, state: State) -> State:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, dim=-1), h.chunk(3, dim=-1)
    z = torch.sigmoid(xz + hz)
    n = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    return ((1 - z) * n + z * state[0],)


def _tanh(x: Tensor, h: Tensor, _state: State) -> State:
    return (torch.tanh(x + h),)


def _relu(x: Tensor, h: Tensor, _state: State) -> State:
    return (torch.relu(x + h),)


def _step(layer: nn.RNNBase | nn.RNNCellBase) -> tuple[Callable[[Tensor, Tensor, State], State], int]:
    """The function of one step, and the number of tensors in its state."""
    if isinstance(layer, nn.LSTM | nn.LSTMCell):
        return _lstm, 2
    if isinstance(layer, nn.GRU | nn.GRUCell):
        return _gru, 1
    return (_relu if getattr(layer, "nonlinearity", None) == "relu" else _tanh), 1


def recurrent(
    layer: nn.RNNBase, tape: Tape, x: object, hx: object = None
) -> tuple[Tensor | PackedSequence, Tensor | State]:
    """nn.RNN, nn.LSTM and nn.GRU on (records, time, features), or on sequences of the records that are packed."""
    named = f"module: {type(layer).__name__}"
    if hx is not None:
        raise Unsupported(f"{named} must start from zero: leave out the initial state")
    if isinstance(x, PackedSequence):
        padded, lengths = pad_packed_sequence(x, batch_first=True)
        output, state = _one_by_one(layer, tape, padded, torch.arange(padded.shape[1]) < lengths[:, None])
        order = slice(None) if x.sorted_indices is None else x.sorted_indices
        packed = pack_padded_sequence(output[order], lengths[order.cpu() if torch.is_tensor(order) else order], True)
        return PackedSequence(packed.data, x.batch_sizes, x.sorted_indices, x.unsorted_indices), state
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise Unsupported(f"{named} needs a tensor (records, time, features), or packed sequences")
    hidden, cells = [], []
    for number in range(layer.num_layers):
        outputs = []
        for direction in range(2 if layer.bidirectional else 1):
            ends = f"l{number}" + ("_reverse" if direction else "")
            out, cell_state = _one_way(layer, tape, x.flip(1) if direction else x, ends)
            hidden.append(out[:, -1])
            cells.append(cell_state)
            outputs.append(out.flip(1) if direction else out)
        x = torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]
        if layer.dropout and layer.training and number < layer.num_layers - 1:
            x = functional.dropout(x, layer.dropout)
    last = torch.stack(hidden)
    return x, ((last, torch.stack(cells)) if isinstance(layer, nn.LSTM) else last)


def _one_way(layer: nn.RNNBase, tape: Tape, x: Tensor, ends: str) -> tuple[Tensor, Tensor]:
    """Outputs (records, time, hidden) and the last cell state of one direction."""
    w_ih, w_hh = getattr(layer, f"weight_ih_{ends}"), getattr(layer, f"weight_hh_{ends}")
    b_ih, b_hh = (getattr(layer, f"bias_{side}_{ends}") if layer.bias else None for side in ("ih", "hh"))
    into = tape.linear(x, w_ih, b_ih)
    inner = into.new_zeros((), dtype=w_hh.dtype).expand(into.shape).requires_grad_()
    out, cell_state, before = scan(layer, into, inner, w_hh, b_hh)
    tape.inner(before, w_hh, b_hh, inner)
    return out, cell_state


def _one_by_one(layer: nn.RNNBase, tape: Tape, x: Tensor, present: Tensor) -> tuple[Tensor, Tensor | State]:
    """The outputs and the last state; where a sequence is over, or has not begun, the state stays as it is."""
    present = present.to(x.device)
    step, size = _step(layer)
    last: list[State] = []
    for number in range(layer.num_layers):
        outputs = []
        for direction in range(2 if layer.bidirectional else 1):
            ends = f"l{number}" + ("_reverse" if direction else "")
            w_ih, w_hh = getattr(layer, f"weight_ih_{ends}"), getattr(layer, f"weight_hh_{ends}")
            b_ih, b_hh = (getattr(layer, f"bias_{side}_{ends}") if layer.bias else None for side in ("ih", "hh"))
            into = tape.linear(x, w_ih, b_ih)
            state: State = (x.new_zeros(x.shape[0], layer.hidden_size),) * size
            line: list[Tensor] = [x] * x.shape[1]
            for t in range(x.shape[1] - 1, -1, -1) if direction else range(x.shape[1]):
                after = step(into[:, t], tape.linear(state[0], w_hh, b_hh), state)
                now = present[:, t, None]
                state = tuple(torch.where(now, new, old) for new, old in zip(after, state, strict=True))
                line[t] = state[0]
            outputs.append(torch.stack(line, dim=1))
            last.append(state)
        x = torch.cat(outputs, dim=2)
        if layer.dropout and layer.training and number < layer.num_layers - 1:
            x = functional.dropout(x, layer.dropout)
    ends_of = tuple(torch.stack([state[part] for state in last]) for part in range(size))
    return x, (ends_of if size == 2 else ends_of[0])


def cell(layer: nn.RNNCellBase, tape: Tape, x: Tensor, hx: Tensor | State | None = None) -> Tensor | State:
    """nn.RNNCell, nn.LSTMCell and nn.GRUCell on (records, features)."""
    step, size = _step(layer)
    if x.dim() != 2:
        raise Unsupported(f"module: {type(layer).__name__} needs a tensor (records, features)")
    zero = x.new_zeros(x.shape[0], layer.hidden_size)
    state: State = (zero,) * size
    if hx is not None:
        state = (hx,) if size == 1 and isinstance(hx, Tensor) else tuple(hx)
    w: Any = layer
    after = step(tape.linear(x, w.weight_ih, w.bias_ih), tape.linear(state[0], w.weight_hh, w.bias_hh), state)
    return after if size == 2 else after[0]


def attention(
    layer: nn.MultiheadAttention,
    tape: Tape,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,  # noqa: ARG001 - nn.MultiheadAttention has it
) -> tuple[Tensor, Tensor | None]:
    """nn.MultiheadAttention on (records, time, features)."""
    if layer.bias_k is not None or layer.add_zero_attn or query.dim() != 3:
        raise Unsupported(
            "module: MultiheadAttention needs (records, time, features), no add_bias_kv, no add_zero_attn"
        )
    n, heads = query.shape[0], layer.num_heads
    q, k, v = (_heads(part, heads) for part in _projections(layer, tape, query, key, value))
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
    output = tape.linear(mixed, out.weight, out.bias)
    return output, (weights.mean(1) if average_attn_weights else weights) if need_weights else None


def _projections(
    layer: nn.MultiheadAttention, tape: Tape, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, ...]:
    e = layer.embed_dim
    if layer.in_proj_weight is not None and query is key and key is value:
        return tape.linear(query, layer.in_proj_weight, layer.in_proj_bias).chunk(3, dim=-1)
    parts = [slice(e * part, e * (part + 1)) for part in range(3)]
    if layer.in_proj_weight is not None:
        inputs = zip((query, key, value), parts, strict=True)
        return tuple(tape.linear(x, layer.in_proj_weight, layer.in_proj_bias, rows) for x, rows in inputs)
    raise Unsupported("module: MultiheadAttention must not set kdim or vdim: add linear layers before it")


def _heads(x: Tensor, heads: int) -> Tensor:
    """(n, heads, time, features of a head)."""
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=like.dtype).masked_fill_(mask, float("-inf"))
    return mask


FORWARDS: dict[type[nn.Module], Callable[..., Any]] = {
    nn.RNN: recurrent,
    nn.LSTM: recurrent,
    nn.GRU: recurrent,
    nn.RNNCell: cell,
    nn.LSTMCell: cell,
    nn.GRUCell: cell,
    nn.MultiheadAttention: attention,
}
"""By exact type: a subclass may do something else."""

"""Layers over time, spelled out as linear maps whose factors are recorded: recurrent layers, their cells, attention.

Their outputs equal those of PyTorch's layers; tests compare both. A recurrent layer over whole sequences takes few
operations for each place in time, forward and backward: PyTorch would record some fifteen, and undo them one by one.
Here each place is computed in place, and on the way back what needs no places behind is computed for all at once.

Names and symbols
    x       (n, t, gates) what the inputs add to the gates
    inner   (n, t, gates) zeros, added to what the state adds to the gates: its gradient is that of the state's part
    w       (gates, hidden) and b (gates,) or None: the linear map of the state; a scan computes no gradient of them
    h, c    the state; time comes first inside a scan: (t, n, hidden)
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from almoner.errors import Unsupported
from almoner.training.gradients._factors import Dense, Make, OuterProducts, ParameterFactors, full

State = tuple[Tensor, ...]


class Record(Protocol):
    """Records what a linear map gave, how its gradient becomes factors, and what must not be changed until then."""

    def __call__(self, name: str, output: Tensor, make: Make, *read: Tensor) -> None: ...


def _linear(
    record: Record, x: Tensor, weight: nn.Parameter, bias: nn.Parameter | None, rows: slice | None = None
) -> Tensor:
    """A linear map, or some rows of it, recorded."""
    part = (weight, bias) if rows is None else (weight[rows], None if bias is None else bias[rows])
    output = functional.linear(x, *part)
    _record(record, x.detach(), weight, bias, output, rows)
    return output


def _record(
    record: Record,
    x: Tensor,
    weight: nn.Parameter,
    bias: nn.Parameter | None,
    output: Tensor,
    rows: slice | None = None,
) -> None:
    """Record a linear map of x that was computed elsewhere; the gradient of its output is that of this tensor."""
    into = full(x)

    def make(b: Tensor) -> ParameterFactors:
        b = b.reshape(b.shape[0], -1, b.shape[-1])
        if rows is not None:
            all_rows = b.new_zeros(*b.shape[:2], weight.shape[0])
            all_rows[:, :, rows] = b
            b = all_rows
        made: ParameterFactors = []
        if weight.requires_grad:
            made.append((weight, OuterProducts(into.reshape(b.shape[0], -1, into.shape[-1]), b, weight.shape)))
        if bias is not None and bias.requires_grad:
            made.append((bias, Dense(b.sum(1))))
        return made

    record("linear", output, make, into)


def _time_first(x: Tensor, like: Tensor) -> Tensor:
    """(t, n, gates) a copy that may be changed."""
    return x.transpose(0, 1).to(like.dtype, copy=True, memory_format=torch.contiguous_format)


def _states(x: Tensor, w: Tensor) -> Tensor:
    """(t + 1, n, hidden) room for the state before each place and after the last; it starts from zero."""
    states = x.new_empty(x.shape[0] + 1, x.shape[1], w.shape[1])
    states[0].zero_()
    return states


def _outputs(ctx: Any, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(n, t, hidden) outputs from zero, (n, hidden) last cells or empty, and states before, without a gradient."""
    before = h[:-1].transpose(0, 1)
    ctx.mark_non_differentiable(before)
    return h[1:].transpose(0, 1).contiguous(), c, before


class _LSTM(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, _inner: Tensor, w: Tensor, b: Tensor | None, _: str) -> tuple[Tensor, ...]:
        gates = _time_first(x if b is None else x + b, w)
        h, c = _states(gates, w), _states(gates, w)
        bends = torch.empty_like(h[1:])
        size = w.shape[1]
        for t, gate in enumerate(gates):
            gate.addmm_(h[t], w.T)
            gate[:, : 2 * size].sigmoid_()
            gate[:, 3 * size :].sigmoid_()
            i, f, g, o = gate.split(size, 1)
            g.tanh_()
            torch.mul(f, c[t], out=c[t + 1]).addcmul_(i, g)
            torch.mul(o, torch.tanh(c[t + 1], out=bends[t]), out=h[t + 1])
        ctx.save_for_backward(gates, c, bends, w)
        return _outputs(ctx, h, c[-1].clone())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, dc: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gates, c, bends, w = ctx.saved_tensors
        size = w.shape[1]
        i, f, g, o = gates.split(size, 2)
        slopes = torch.cat([g * i * (1 - i), c[:-1] * f * (1 - f), i * (1 - g * g), bends * o * (1 - o)], 2)
        into_cell = o * (1 - bends * bends)
        dh, dc = _time_first(dh, w), dc.to(w.dtype, copy=True)
        for t in range(len(gates) - 1, -1, -1):
            if t + 1 < len(gates):
                dh[t].addmm_(slopes[t + 1], w)
            dc.addcmul_(dh[t], into_cell[t])
            slopes[t, :, : 3 * size].view(-1, 3, size).mul_(dc.unsqueeze(1))
            slopes[t, :, 3 * size :].mul_(dh[t])
            dc.mul_(f[t])
        back = slopes.transpose(0, 1)
        return back, back, None, None, None


class _GRU(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, _inner: Tensor, w: Tensor, b: Tensor | None, _: str) -> tuple[Tensor, ...]:
        gates, size = _time_first(x, w), w.shape[1]
        h, own = _states(gates, w), gates.new_empty(*gates.shape[:2], size)
        for t, gate in enumerate(gates):
            part = h[t] @ w.T if b is None else torch.addmm(b, h[t], w.T)
            r, z, n = gate.split(size, 1)
            gate[:, : 2 * size].add_(part[:, : 2 * size]).sigmoid_()
            own[t] = part[:, 2 * size :]
            n.addcmul_(r, own[t]).tanh_()
            torch.lerp(n, h[t], z, out=h[t + 1])
        ctx.save_for_backward(gates, h, own, w)
        return _outputs(ctx, h, h.new_empty(0))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, _c: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        gates, h, own, w = ctx.saved_tensors
        size = w.shape[1]
        r, z, n = gates.split(size, 2)
        new = (1 - z) * (1 - n * n)
        slopes = torch.cat([new * own * r * (1 - r), (h[:-1] - n) * z * (1 - z), new * r], 2)
        dh = _time_first(dh, w)
        for t in range(len(gates) - 1, -1, -1):
            if t + 1 < len(gates):
                dh[t].addcmul_(dh[t + 1], z[t + 1]).addmm_(slopes[t + 1], w)
            slopes[t].view(-1, 3, size).mul_(dh[t].unsqueeze(1))
        back = torch.cat([slopes[:, :, : 2 * size], new * dh], 2)
        return back.transpose(0, 1), slopes.transpose(0, 1), None, None, None


class _RNN(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, _inner: Tensor, w: Tensor, b: Tensor | None, bend: str) -> tuple[Tensor, ...]:
        gates = _time_first(x if b is None else x + b, w)
        h = _states(gates, w)
        for t, gate in enumerate(gates):
            total = gate.addmm_(h[t], w.T)
            if bend == "relu":
                torch.clamp(total, min=0.0, out=h[t + 1])
            else:
                torch.tanh(total, out=h[t + 1])
        ctx.bend = bend
        ctx.save_for_backward(h, w)
        return _outputs(ctx, h, h.new_empty(0))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, _c: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        h, w = ctx.saved_tensors
        slopes = (h[1:] > 0).to(w.dtype) if ctx.bend == "relu" else 1 - h[1:] * h[1:]
        dh = _time_first(dh, w)
        for t in range(len(slopes) - 1, -1, -1):
            if t + 1 < len(slopes):
                dh[t].addmm_(slopes[t + 1], w)
            slopes[t].mul_(dh[t])
        back = slopes.transpose(0, 1)
        return back, back, None, None, None


def _lstm(x: Tensor, h: Tensor, state: State) -> State:
    i, f, g, o = (x + h).chunk(4, dim=-1)
    c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def _gru(x: Tensor, h: Tensor, state: State) -> State:
    (xr, xz, xn), (hr, hz, hn) = x.chunk(3, dim=-1), h.chunk(3, dim=-1)
    z = torch.sigmoid(xz + hz)
    n = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    return ((1 - z) * n + z * state[0],)


def _kind(layer: nn.RNNBase | nn.RNNCellBase) -> tuple[Any, Callable[[Tensor, Tensor, State], State], int]:
    """The scan over whole sequences, the function of one step, and the number of tensors in its state."""
    if isinstance(layer, nn.LSTM | nn.LSTMCell):
        return _LSTM, _lstm, 2
    if isinstance(layer, nn.GRU | nn.GRUCell):
        return _GRU, _gru, 1
    bend = torch.relu if layer.nonlinearity == "relu" else torch.tanh
    return _RNN, lambda x, h, _state: (bend(x + h),), 1


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
    scan, step, size = _kind(layer)
    last: list[State] = []
    for number in range(layer.num_layers):
        outputs = []
        for direction in range(2 if layer.bidirectional else 1):
            ends = f"l{number}" + ("_reverse" if direction else "")
            w_ih, w_hh = getattr(layer, f"weight_ih_{ends}"), getattr(layer, f"weight_hh_{ends}")
            b_ih, b_hh = (getattr(layer, f"bias_{side}_{ends}") if layer.bias else None for side in ("ih", "hh"))
            if present is None:
                into = _linear(record, x.flip(1) if direction else x, w_ih, b_ih)
                inner = into.new_zeros((), dtype=w_hh.dtype).expand(into.shape).requires_grad_()
                w, b = w_hh.detach(), None if b_hh is None else b_hh.detach()
                out, cells, before = scan.apply(into, inner, w, b, getattr(layer, "nonlinearity", ""))
                _record(record, before, w_hh, b_hh, inner)
                last.append((out[:, -1], cells))
                outputs.append(out.flip(1) if direction else out)
            else:
                state: State = (x.new_zeros(x.shape[0], layer.hidden_size),) * size
                into, line = _linear(record, x, w_ih, b_ih), [x] * x.shape[1]
                for t in range(x.shape[1] - 1, -1, -1) if direction else range(x.shape[1]):
                    after = step(into[:, t], _linear(record, state[0], w_hh, b_hh), state)
                    now = present[:, t, None]
                    state = tuple(torch.where(now, new, old) for new, old in zip(after, state, strict=True))
                    line[t] = state[0]
                last.append(state)
                outputs.append(torch.stack(line, dim=1))
        x = torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]
        if layer.dropout and layer.training and number < layer.num_layers - 1:
            x = functional.dropout(x, layer.dropout)
    states = tuple(torch.stack([state[part] for state in last]) for part in range(size))
    return x, (states if size == 2 else states[0])


def cell(layer: nn.RNNCellBase, record: Record, x: Tensor, hx: Tensor | State | None = None) -> Tensor | State:
    """nn.RNNCell, nn.LSTMCell and nn.GRUCell on (records, features)."""
    _, step, size = _kind(layer)
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
        raise Unsupported(
            "module: MultiheadAttention needs (records, time, features), no add_bias_kv, no add_zero_attn"
        )
    weight, bias, e = layer.in_proj_weight, layer.in_proj_bias, layer.embed_dim
    if weight is None:
        raise Unsupported("module: MultiheadAttention must not set kdim or vdim: add linear layers before it")
    alike = query is key and key is value
    if not layer.batch_first:
        query, key, value = (part.transpose(0, 1) for part in (query, key, value))
    if alike:
        parts = _linear(record, query, weight, bias).chunk(3, dim=-1)
    else:
        rows = (slice(e * part, e * (part + 1)) for part in range(3))
        parts = tuple(_linear(record, x, weight, bias, part) for x, part in zip((query, key, value), rows, strict=True))
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

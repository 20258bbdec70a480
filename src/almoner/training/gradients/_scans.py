"""Recurrent layers over a whole sequence: forward and backward in few operations for each place in time.

PyTorch would record some fifteen operations for each place, and undo them one by one. Here each place is computed in
place, and on the way back everything that does not depend on the places behind is computed for all places at once.

Names and symbols
    x       (n, t, gates) what the inputs add to the gates
    inner   (n, t, gates) zeros, added to what the state adds to the gates: its gradient is that of the state's part
    w       (gates, hidden) and b (gates,) or None: the linear map of the state; no gradient of them is computed here
    h, c    the state; time comes first inside: (t, n, hidden)
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

__all__ = ["scan"]


def scan(layer: nn.RNNBase, x: Tensor, inner: Tensor, w: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs of a layer in one direction, starting from zero.

    Returns:
        (n, t, hidden) the outputs; (n, hidden) the last cell state, empty where there is none; and, without a gradient,
        (n, t, hidden) the state before each place.
    """
    kind = _LSTM if isinstance(layer, nn.LSTM) else _GRU if isinstance(layer, nn.GRU) else _RNN
    nonlinearity = getattr(layer, "nonlinearity", "")
    outputs: tuple[Tensor, Tensor, Tensor] = kind.apply(x, inner, w.detach(), _detached(b), nonlinearity)  # type: ignore[no-untyped-call]
    return outputs


def _detached(b: Tensor | None) -> Tensor | None:
    return None if b is None else b.detach()


def _time_first(x: Tensor, like: Tensor) -> Tensor:
    """(t, n, gates) a copy that may be changed."""
    return x.transpose(0, 1).to(like.dtype, copy=True, memory_format=torch.contiguous_format)


def _states(x: Tensor, w: Tensor) -> Tensor:
    """(t + 1, n, hidden) room for the state before each place and after the last; it starts from zero."""
    states = x.new_empty(x.shape[0] + 1, x.shape[1], w.shape[1])
    states[0].zero_()
    return states


def _outputs(ctx: Any, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
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

"""Small PyTorch modules with every kind of layer, records for them, and their gradients record by record."""

import torch
from torch import nn

from almoner.training.gradients._batches import as_inputs

__all__ = [
    "BY_RECORD",
    "FLAT",
    "MODULES",
    "Attention",
    "Cells",
    "Own",
    "Sequence",
    "Shared",
    "by_record",
    "image",
    "naive",
    "series",
    "setting",
    "words",
]

BY_RECORD = nn.CrossEntropyLoss(reduction="none")


class Sequence(nn.Module):
    """A layer over time, read out at the end."""

    def __init__(self, layer, features, classes=3):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(features, classes)

    def forward(self, x):
        found = self.layer(x)
        return self.out((found[0] if isinstance(found, tuple) else found).mean(1))


class Attention(nn.Module):
    """Attention to itself with a mask, then to what comes out; scaled twice by one parameter."""

    def __init__(self):
        super().__init__()
        self.first = nn.MultiheadAttention(8, 2, batch_first=True)
        self.second = nn.MultiheadAttention(8, 4, batch_first=True, bias=False)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        mask = torch.triu(torch.ones(x.shape[1], x.shape[1], dtype=torch.bool), 1)
        seen, _ = self.first(x, x, x, attn_mask=mask, need_weights=False)
        padding = torch.zeros(x.shape[:2], dtype=torch.bool)
        padding[:, -1] = True
        seen, weights = self.second(x, seen, seen, key_padding_mask=padding)
        return self.out(seen.mean(1)) + weights.sum((1, 2))[:, None]


class Last(nn.Module):
    """A recurrent layer by what it is at the end; of the first maps only those of the state are trained."""

    def __init__(self, layer, freeze=False):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(6, 3)
        if freeze:
            layer.weight_ih_l0.requires_grad_(False)
            layer.bias_ih_l0.requires_grad_(False)

    def forward(self, x):
        out, last = self.layer(x)
        parts = last if isinstance(last, tuple) else (last,)
        return self.out(torch.cat([part.transpose(0, 1) for part in parts], 1).sum(1) + out.max(1).values[:, :6])


class Cells(nn.Module):
    """One cell of each kind, used several times."""

    def __init__(self):
        super().__init__()
        self.gru, self.lstm, self.rnn = nn.GRUCell(4, 5), nn.LSTMCell(5, 4), nn.RNNCell(4, 3, nonlinearity="relu")

    def forward(self, x):
        h, state = None, None
        for t in range(x.shape[1]):
            h = self.gru(x[:, t], h)
            state = self.lstm(h, state)
        return self.rnn(state[0])


class Own(nn.Module):
    """Parameters of its own, with a layer inside: taken as a whole."""

    def __init__(self):
        super().__init__()
        self.shift, self.inner = nn.Parameter(torch.randn(6)), nn.Linear(6, 3)

    def forward(self, x):
        return self.inner(torch.sin(x + self.shift)) * self.shift[:3]


class Shared(nn.Module):
    """One linear layer used three times and an embedding whose weights are also the output layer's."""

    def __init__(self):
        super().__init__()
        self.words, self.inner, self.out = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x):
        x = self.words(x)
        for _ in range(3):
            x = torch.tanh(self.inner(x))
        return self.out(x.mean(1))


class Positions(nn.Module):
    """Word and position embeddings; positions are looked up once, with a leading axis of 1 or with none."""

    def __init__(self, *, leading):
        super().__init__()
        self.words, self.positions, self.out = nn.Embedding(7, 4), nn.Embedding(9, 4), nn.Linear(4, 3)
        self.leading = leading

    def forward(self, x):
        places = torch.arange(x.shape[1])
        x = self.words(x) + torch.tanh(self.positions(places[None] if self.leading else places))
        return self.out(torch.sin(x).mean(1))


class Patches(nn.Module):
    """As in a vision transformer: parameters of its own with a leading axis of 1, around layers, with dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.places = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 6, 8))
        self.inner, self.drop, self.out = nn.Linear(8, 8), nn.Dropout(0.1).eval(), nn.Linear(8, 3)

    def forward(self, x):
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), self.inner(x)], dim=1)
        return self.out(torch.tanh(self.drop(x + self.places)).mean(1))


class Named(nn.Module):
    """Calls its layers by name; one of them has parameters of its own, takes several things and gives a dict."""

    def __init__(self):
        super().__init__()
        self.scale, self.out = Scaled(), nn.Linear(8, 3)

    def forward(self, x):
        found = self.scale(x=x, by=2.0, shift=torch.ones(1, 8), nothing=None)
        return self.out(input=(found["a"] + found["b"]).mean(1))


class Scaled(nn.Module):
    """A scale of its own, of several inputs by name."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(8))

    def forward(self, x, *, by, shift, nothing):
        return {"a": torch.sin(x * self.scale * by), "b": x + shift * self.scale, "c": x}


class Viewed(nn.Module):
    """Looks at what a convolution gives in the order in which it is kept, as the network of Opacus's examples does."""

    def __init__(self):
        super().__init__()
        self.inner, self.out = nn.Conv2d(3, 4, 3), nn.Linear(196, 3)

    def forward(self, x):
        return self.out(torch.relu(self.inner(x)).view(-1, 196))


class Packed(nn.Module):
    """A recurrent layer over sequences of different lengths: what is not negative at the start of each."""

    def __init__(self, kind, **options):
        super().__init__()
        self.layer = kind(8, 6, batch_first=True, bidirectional=True, **options)
        self.out = nn.Linear(24, 3)

    def forward(self, x):
        lengths = 1 + (x[:, :, 0] > 0).sum(1)
        lengths = lengths.clamp(max=x.shape[1]).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        outputs, last = self.layer(packed)
        last = last[0] if isinstance(last, tuple) else last
        outputs, _ = nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)
        return self.out(torch.cat([last[-2], last[-1], outputs.sum(1)], dim=1))


def frozen_batch_norm():
    """A network that was trained before, with statistics that stay as they are and a scale that is trained."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), *FLAT)
    module(torch.randn(20, 3, 9, 9) + 1)
    module[1].eval()
    return module


def words(n):
    return torch.randint(7, (n, 9))


def image(channels=3, size=9):
    return lambda n: torch.randn(n, channels, size, size)


def series(n):
    return torch.randn(n, 5, 8)


FLAT = (nn.AdaptiveAvgPool2d(1), nn.Flatten())

MODULES = {
    "linear": (lambda: nn.Linear(6, 3), lambda n: torch.randn(n, 6)),
    "linear of sequences, long": (lambda: Sequence(nn.Linear(4, 3), 3), lambda n: torch.randn(n, 30, 4)),
    "linear of sequences, short": (lambda: Sequence(nn.Linear(80, 70), 70), lambda n: torch.randn(n, 2, 80)),
    "convolution 1d": (
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3, stride=2, padding=1), nn.Flatten(), nn.LazyLinear(3)),
        lambda n: torch.randn(n, 2, 11),
    ),
    "convolution 2d": (lambda: nn.Sequential(nn.Conv2d(3, 4, (3, 2), dilation=(2, 1), padding=(1, 2)), *FLAT), image()),
    "convolution 2d, same": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding="same"), nn.ReLU(inplace=True), *FLAT),
        image(),
    ),
    "convolution 2d, circular": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), *FLAT),
        image(),
    ),
    "convolution 2d, large": (lambda: nn.Sequential(nn.Conv2d(16, 64, 5, stride=3), *FLAT), image(16)),
    "convolution 2d, groups": (lambda: nn.Sequential(nn.Conv2d(4, 8, 3, groups=2, bias=False), *FLAT), image(4)),
    "convolution 2d, depthwise": (
        lambda: nn.Sequential(nn.Conv2d(4, 8, (3, 2), stride=2, padding=1, dilation=(1, 2), groups=4), *FLAT),
        image(4),
    ),
    "convolution 1d, depthwise": (
        lambda: nn.Sequential(nn.Conv1d(2, 2, 4, padding=3, groups=2), nn.Flatten(), nn.LazyLinear(3)),
        lambda n: torch.randn(n, 2, 11),
    ),
    "convolution 3d": (
        lambda: nn.Sequential(nn.Conv3d(1, 3, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten()),
        lambda n: torch.randn(n, 1, 4, 5, 4),
    ),
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1), *FLAT),
        image(3, 5),
    ),
    "transposed convolution, groups": (
        lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), *FLAT),
        image(4),
    ),
    "transposed convolution, general": (
        lambda: nn.Sequential(nn.ConvTranspose2d(4, 4, 3, stride=2, groups=2, output_padding=1), *FLAT),
        image(4, 5),
    ),
    "embedding": (lambda: Sequence(nn.Embedding(7, 4, padding_idx=2), 4), words),
    "layer norm": (lambda: Sequence(nn.LayerNorm(8), 8), series),
    "layer norm without bias": (lambda: Sequence(nn.LayerNorm((5, 8), bias=False), 8), series),
    "root mean square norm": (lambda: Sequence(nn.RMSNorm(8), 8), series),
    "group norm": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), *FLAT), image()),
    "instance norm": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.ReLU(), *FLAT),
        image(),
    ),
    "bilinear, general": (lambda: Sequence(nn.PReLU(5), 8), series),
    "own parameters": (Own, lambda n: torch.randn(n, 6)),
    "shared parameters": (Shared, words),
    "rnn": (lambda: Sequence(nn.RNN(8, 6, batch_first=True), 6), series),
    "lstm": (lambda: Sequence(nn.LSTM(8, 6, num_layers=2, bidirectional=True, batch_first=True), 12), series),
    "lstm, last states": (lambda: Last(nn.LSTM(8, 6, num_layers=2, bias=False, batch_first=True)), series),
    "lstm, states alone": (lambda: Last(nn.LSTM(8, 6, batch_first=True), freeze=True), series),
    "gru, both ways": (lambda: Last(nn.GRU(8, 6, num_layers=2, bidirectional=True, batch_first=True)), series),
    "rnn of rectifiers": (lambda: Last(nn.RNN(8, 6, nonlinearity="relu", batch_first=True)), series),
    "gru": (lambda: Sequence(nn.GRU(8, 6, bias=False, batch_first=True), 6), series),
    "cells": (Cells, lambda n: torch.randn(n, 3, 4)),
    "attention": (Attention, series),
    "transformer": (
        lambda: nn.Sequential(
            nn.Embedding(7, 8), Sequence(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 8)
        ),
        words,
    ),
    "positions, leading axis of 1": (lambda: Positions(leading=True), words),
    "positions, no leading axis": (lambda: Positions(leading=False), words),
    "parameters with a leading axis of 1": (Patches, series),
    "calls by name": (Named, series),
    "view after a convolution": (Viewed, image()),
    "packed lstm": (lambda: Packed(nn.LSTM, num_layers=2), series),
    "packed gru": (lambda: Packed(nn.GRU), series),
    "weight norm": (
        lambda: Sequence(
            nn.Sequential(
                nn.utils.parametrizations.weight_norm(nn.Linear(8, 6)),
                nn.ReLU(),
                nn.utils.parametrizations.weight_norm(nn.Linear(6, 5, bias=False), dim=None),
            ),
            5,
        ),
        series,
    ),
    "weight norm of a convolution": (
        lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), *FLAT),
        image(),
    ),
    "frozen batch norm": (frozen_batch_norm, image()),
    "frozen first layer": (
        lambda: nn.Sequential(nn.Linear(6, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, 3)),
        lambda n: torch.randn(n, 6),
    ),
}


def setting(name, n=6):
    torch.manual_seed(3)
    make, draw = MODULES[name]
    module, x = make(), draw(n)
    module(x)  # lazy layers
    return module, x, torch.randint(3, (n,))


def naive(module, loss, inputs, targets):
    """Each record's gradient of every trained parameter, by a forward and a backward pass of its own; in order."""
    inputs, parameters = as_inputs(inputs), [each for each in module.parameters() if each.requires_grad]
    for number in range(len(inputs[0])):
        one = slice(number, number + 1)
        output = inputs.rows(one).map(torch.clone).call(module)
        losses = loss(output) if targets is None else loss(output, targets[one])
        yield torch.autograd.grad(losses.sum(), parameters, allow_unused=True, materialize_grads=True)


def by_record(module, x, y):
    """(records, parameters) by a backward pass for each record."""
    found = naive(module, BY_RECORD, (x,), y)
    return torch.stack([torch.cat([part.reshape(-1) for part in parts]) for parts in found]).double()

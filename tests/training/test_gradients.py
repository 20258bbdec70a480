"""Gradients per person in PyTorch: every kind of layer against a naive loop, people with several records, refusals."""

import warnings

import pytest
import torch
from torch import nn

from bursar import errors
from bursar.training.gradients import Gradients, _self_check, check, clipping
from bursar.training.gradients._factors import Dense, SparseRows

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
    "convolution 3d": (
        lambda: nn.Sequential(nn.Conv3d(1, 3, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten()),
        lambda n: torch.randn(n, 1, 4, 5, 4),
    ),
    "transposed convolution": (
        lambda: nn.Sequential(nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1), *FLAT),
        image(3, 5),
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
    "gru": (lambda: Sequence(nn.GRU(8, 6, bias=False, batch_first=True), 6), series),
    "cells": (Cells, lambda n: torch.randn(n, 3, 4)),
    "attention": (Attention, series),
    "transformer": (
        lambda: nn.Sequential(
            nn.Embedding(7, 8), Sequence(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 8)
        ),
        words,
    ),
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


def by_record(module, x, y):
    """(records, parameters) by a backward pass for each record."""
    found = _self_check.gradients(module, BY_RECORD, (x,), y)
    return torch.stack([torch.cat([part.reshape(-1) for part in parts]) for parts in found]).double()


@pytest.mark.parametrize("name", MODULES)
def test_every_layer_agrees_with_a_naive_loop(name):
    """Norms and clipped sums are those of one backward pass per record, to 1e-5, whatever the chunks."""
    module, x, y = setting(name)
    rows = by_record(module, x, y)
    norms = rows.norm(dim=1)
    clip = float(norms.median())
    engine = Gradients(module, BY_RECORD)
    for at_once in (None, 4):
        engine._records_at_once = at_once
        sums, found = engine.sums(x, y, clip)
        assert torch.allclose(found, norms, rtol=1e-4, atol=1e-12)
        assert (found >= norms * (1 - 1e-6)).all()
        flat = torch.cat([part.reshape(-1) for part in sums]).double()
        expected = (rows * (clip / norms.clamp(min=clip))[:, None]).sum(0)
        assert (flat - expected).norm() <= 1e-5 * clip * len(x)


@pytest.mark.parametrize("name", MODULES)
def test_several_records_of_a_person_are_one_gradient(name):
    """A person's records are summed before the norm is taken; chunks hold whole people, or parts of one."""
    module, x, y = setting(name, n=9)
    people = torch.tensor([3, 0, 3, 1, 3, 0, 3, 3, 5])
    rows = by_record(module, x, y)
    summed = torch.zeros(6, rows.shape[1], dtype=torch.float64).index_add_(0, people, rows)
    norms = summed.norm(dim=1)
    engine = Gradients(module, BY_RECORD)
    for at_once in (None, 2, 4):
        engine._records_at_once = at_once
        weights = torch.tensor([0.5, 1.0, 7.0, 0.25, 3.0, 0.0], dtype=torch.float64)
        sums, found = engine.sums(x, y, lambda rows, norms: weights[rows], people=people)  # noqa: B023
        assert torch.allclose(found, norms, rtol=1e-4, atol=1e-12)
        assert found[2] == found[4] == 0.0  # they have no records
        flat = torch.cat([part.reshape(-1) for part in sums]).double()
        assert (flat - weights @ summed).norm() <= 1e-5 * norms.sum()


@pytest.mark.parametrize("name", ["lstm", "gru", "rnn", "cells", "attention", "transformer"])
def test_layers_spelled_out_compute_what_they_did(name):
    """Recurrent and attention layers give the same output while they are recorded as before and after."""
    module, x, y = setting(name)
    module.eval()
    before = module(x)
    seen = []
    Gradients(module, BY_RECORD).sums(x, y, 1.0, observe=lambda records, output, losses: seen.append(output))
    assert torch.allclose(seen[-1], before, rtol=1e-5, atol=1e-6)
    assert torch.equal(module(x), before)


def test_a_person_whose_gradient_is_not_finite_is_left_out():
    """Their norm is NaN, their weight is zero, and the others' sum is what it would be without them."""
    module, x, y = setting("convolution 2d")
    alone = Gradients(module, BY_RECORD).sums(x[1:], y[1:], 1.0)[0]
    x[0, 0, 0, 0] = torch.inf
    sums, norms = Gradients(module, BY_RECORD).sums(x, y, 1.0)
    assert torch.isnan(norms[0])
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(sums, alone, strict=True))


def test_cancelling_places_do_not_make_a_norm_too_small():
    """Where the outer products of many places cancel, the norm is still not below the norm of their sum."""
    torch.manual_seed(0)
    module = Sequence(nn.Linear(80, 70), 70)
    x = torch.randn(4, 2, 80) * 100
    x[:, 1] = -x[:, 0] + 1e-3 * torch.randn(4, 80)  # the two places nearly cancel
    norms = Gradients(module, BY_RECORD).norms(x, torch.zeros(4, dtype=torch.long))
    exact = by_record(module.double(), x.double(), torch.zeros(4, dtype=torch.long)).norm(dim=1)
    assert (norms >= exact * (1 - 1e-6)).all()


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x - x.mean(0))


class Outside(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return self.linear(x) @ self.linear.weight


class TimeFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x.transpose(0, 1)).mean(0)


@pytest.mark.parametrize(
    ("module", "shape", "words"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), (5, 1, 4, 4), "layer '1' .BatchNorm2d. .*GroupNorm"),
        (Sequence(nn.LSTM(4, 3), 3), (5, 6, 4), "batch_first=True"),
        (Sequence(nn.Embedding(7, 4, max_norm=1.0), 4), (5, 6), "max_norm"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (5, 4), "parametris"),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2, track_running_stats=True)),
            (5, 1, 4, 4),
            "track_running",
        ),
        (nn.LazyLinear(3), (5, 4), "one batch first"),
        (Mixing(), (5, 4), "records depend on each other"),
        (Outside(), (5, 3), "used outside that layer"),
        (TimeFirst(), (5, 6, 4), "first axis must be the record"),
        (TimeFirst(), (5, 4, 4), "differ"),
        (Sequence(nn.LSTM(4, 3, proj_size=2, batch_first=True), 2), (5, 6, 4), "proj_size"),
    ],
)
def test_what_has_no_gradient_per_person_is_refused_by_name(module, shape, words):
    """The message names the layer, or what is wrong, before anything is summed."""
    x = torch.randint(7, shape) if len(shape) == 2 and words == "max_norm" else torch.randn(shape)
    with pytest.raises(errors.Unsupported, match=words):
        Gradients(module, BY_RECORD).sums(x, torch.zeros(5, dtype=torch.long), 1.0)


def test_gradients_that_are_nothing_but_rounding_are_not_refused():
    """Constant images before a normalisation have no gradient but rounding errors, which differ from way to way."""
    for seed in range(60):
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Flatten())
        assert check(module, torch.ones(3, 1, 6, 6)).shape == (3,)


def test_wrong_batches_and_losses_are_refused():
    """Losses that are not one per record, lengths that differ, weights that are not weights."""
    module, x, y = setting("linear")
    with pytest.raises(errors.ArgumentError, match="reduction='none'"):
        Gradients(module, nn.CrossEntropyLoss()).norms(x, y)
    engine = Gradients(module, BY_RECORD)
    with pytest.raises(errors.ArgumentError, match="targets must have as many records"):
        engine.norms(x, y[:4])
    with pytest.raises(errors.ArgumentError, match="people must be whole numbers"):
        engine.norms(x, y, people=torch.ones(6))
    with pytest.raises(errors.ArgumentError, match="finite and >= 0"):
        engine.sums(x, y, lambda rows, norms: -norms)
    with pytest.raises(errors.ArgumentError, match="weigh=0"):
        engine.sums(x, y, 0.0)
    with pytest.raises(errors.ArgumentError, match="no parameter requires"):
        Gradients(module.requires_grad_(False), BY_RECORD)
    assert engine.norms(x[:0], y[:0]).shape == (0,)


def test_dropout_trains_and_the_comparison_leaves_the_mode_alone():
    """With dropout in training mode the comparison switches it off for itself, and puts everything back."""
    module = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 3))
    engine = Gradients(module, BY_RECORD)
    engine.norms(torch.randn(4, 6), torch.zeros(4, dtype=torch.long))
    assert module.training
    assert module[1].training


def test_clipping_weights():
    """min(1, C / norm), and zero where the norm is unknown."""
    weights = clipping(torch.tensor([0.0, 0.5, 2.0, torch.nan, torch.inf], dtype=torch.float64), 1.0)
    assert weights.tolist() == [1.0, 1.0, 0.5, 0.0, 0.0]


def test_the_norm_of_many_numbers_is_not_rounded_against_the_person():
    """A gradient of a million equal numbers: single precision loses a thousandth of its norm on the way."""
    factor = Dense(torch.full((2, 1000, 1000), 0.7))
    assert (factor.squared_norms() >= 0.7**2 * 1e6 * (1 - 4e-6)).all()


def test_a_word_that_occurs_often_is_summed_exactly():
    """Ten thousand uses of one row of an embedding add up in double precision."""
    b = torch.full((1, 10_000, 3), 0.7)
    factor = SparseRows(torch.zeros(1, 10_000, dtype=torch.long), b, torch.Size((5, 3)))
    assert float(factor.squared_norms()[0]) >= 3 * (1e4 * float(b[0, 0, 0])) ** 2 * (1 - 4e-6)


def test_a_device_without_double_precision_is_refused_by_name(monkeypatch):
    """Apple's GPUs have none, and sums over people need it."""
    module = nn.Linear(3, 2)
    monkeypatch.setattr(nn.Parameter, "device", torch.device("mps"), raising=False)
    with pytest.raises(errors.Unsupported, match=r"'weight' is on mps.*module\.cpu"):
        Gradients(module, BY_RECORD)


def test_half_precision_of_parameters_is_refused_by_name():
    """Sums over people would be made in half precision."""
    with pytest.raises(errors.Unsupported, match=r"parameter 'weight' is torch.bfloat16"):
        Gradients(nn.Linear(3, 2).to(torch.bfloat16), BY_RECORD)


def test_training_inside_autocast_is_refused():
    """Autocast keeps old copies of the parameters, and would round the sums."""
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(errors.Unsupported, match="train outside"),
    ):
        Gradients(nn.Linear(3, 2), BY_RECORD).sums(torch.ones(4, 3), torch.zeros(4, dtype=torch.long), 1.0)


class Halved(nn.Module):
    """Computes in half precision inside."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Flatten(), nn.Linear(256, 2))

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.net(x)


@pytest.mark.parametrize("make", [Halved, lambda: Halved().net])
def test_nobody_contributes_more_than_is_charged_when_a_module_computes_with_few_digits(make):
    """With half precision inside, or matrices multiplied with fewer digits, contributions keep to the clip."""
    torch.manual_seed(0)
    module, x, y = make(), torch.randn(8, 4, 64), torch.zeros(8, dtype=torch.long)
    gradients, clip = Gradients(module, BY_RECORD), 1e-2
    torch.set_float32_matmul_precision("medium")
    try:
        for person in range(8):
            sums, _ = gradients.sums(
                x, y, lambda rows, norms, me=person: torch.where(rows == me, clipping(norms, clip), 0.0)
            )
            assert float(torch.cat([part.double().reshape(-1) for part in sums]).norm()) <= clip
        assert torch.get_float32_matmul_precision() == "medium"  # and what the caller chose is left alone
    finally:
        torch.set_float32_matmul_precision("highest")


class Running(nn.Module):
    """Keeps a running mean of what it saw, as batch normalisation does."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return x - self.mean


class Batch(nn.Module):
    """Subtracts the mean of the batch, while training or always."""

    def __init__(self, *, always):
        super().__init__()
        self.always = always

    def forward(self, x):
        return x - x.mean(0) if self.training or self.always else x


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Running(), "buffer '0.mean' is changed by the forward pass"),
        (Batch(always=False), "in training mode gradients per record depend on the other records"),
        (Batch(always=True), "gradients per record differ from those of each record by itself"),
    ],
)
def test_modules_of_ones_own_that_mix_records_are_refused(layer, words):
    """What a layer does in training mode only, what it keeps, and what neighbours that are alike would hide."""
    torch.manual_seed(0)
    x = torch.randn(50, 5)
    x[1] = x[0]
    module = nn.Sequential(layer, nn.Linear(5, 2))
    with pytest.raises(errors.Unsupported, match=words):
        Gradients(module, BY_RECORD).sums(x, torch.zeros(50, dtype=torch.long), 1.0)


def test_coins_of_pytorch_are_no_mixture_and_are_left_alone():
    """Dropout passes the comparison, and the caller's random numbers are those without it."""
    module = nn.Sequential(nn.Linear(5, 6), nn.Dropout(0.5), nn.Linear(6, 2))
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    check(module, torch.randn(4, 5, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.rand(3), expected)


def test_uses_of_a_word_that_cancel_do_not_round_the_others_away():
    """A person whose two huge uses of one row cancel is not added at full weight: between them the others must stay."""
    b = torch.full((12, 2, 1), 0.5)
    b[11, 0], b[11, 1] = 1e9, -1e9
    factor = SparseRows(torch.zeros(12, 2, dtype=torch.long), b, torch.Size((3, 1)))
    weights = clipping(factor.squared_norms().sqrt(), 1.0)
    both = [torch.zeros(factor.shape) for _ in range(2)]
    factor.add_weighted_sum(both[0], weights.float())
    SparseRows(factor.entries[:11], b[:11], factor.shape).add_weighted_sum(both[1], weights[:11].float())
    apart = both[0] - both[1]
    assert float(apart.norm()) <= 1.0


def test_sums_over_many_people_are_not_rounded_on_the_way():
    """A thousand equal people, one at a time, contribute a thousand times what one does, to the last digit but few."""
    module, x, y = setting("linear")
    engine = Gradients(module, BY_RECORD)
    one = engine.sums(x[:1], y[:1], 0.7)[0]
    engine._records_at_once = 1
    many = engine.sums(x[:1].expand(1000, *x.shape[1:]), y[:1].expand(1000), 0.7)[0]
    assert all(torch.allclose(all_, 1000 * part, rtol=1e-12, atol=0.0) for all_, part in zip(many, one, strict=True))


def test_squares_that_vanish_in_single_precision_are_charged():
    """Inputs of 2.6e-23, whose squares are below the smallest float32, times a residual of 1e19: norms are not below
    what is contributed."""
    module = nn.Linear(10_000, 1, bias=False)
    with torch.no_grad():
        module.weight.zero_()
    x = torch.full((3, 10_000), 2.6e-23)
    x[:, 0], x[2] = 3.8e-23, 0.0
    y = torch.tensor([[9e18], [0.0], [9e18]])
    engine = Gradients(module, lambda output, goals: ((output - goals) ** 2).sum(1))
    sums, norms = engine.sums(x, y, lambda rows, found: torch.ones(len(rows), dtype=torch.float64))
    assert norms[0] >= sums[0].norm() > 0.04
    assert norms[1] == 0.0
    assert norms[2] == 0.0  # nothing contributed costs nothing


@pytest.mark.parametrize("clip", [1e-2, 1e-4, 1e-6, 3e-7])
def test_weights_too_small_for_single_precision_are_rounded_down(clip):
    """A gradient of 1e38, clipped: its weight is no normal float32, and the contribution is never above the clip."""
    module = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        module.weight.zero_()
    engine = Gradients(module, lambda output, goals: ((output - goals) ** 2).sum(1))
    for goal in (9e18, 8e18, 7e18, 6e18, 5e18, 4e18):
        sums, _ = engine.sums(torch.tensor([[9e18]]), torch.tensor([[goal]]), clip)
        assert sums[0].norm() <= clip


class Secretive(nn.Module):
    """Keeps the mean of its inputs by a way that PyTorch does not count."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.out = kind, nn.Linear(5, 3)
        if kind == "buffer":
            self.register_buffer("mean", torch.zeros(5))
        else:
            self.mean = nn.Parameter(torch.zeros(5), requires_grad=False)

    def forward(self, x):
        kept = self.out.weight[0] if self.kind == "trained" else self.mean
        kept.data.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return self.out(x)


@pytest.mark.parametrize("kind", ["buffer", "frozen", "trained"])
def test_what_is_changed_behind_pytorchs_back_is_refused(kind):
    """Values are compared, not versions."""
    with pytest.raises(errors.Unsupported, match=r"'mean' is changed by the forward pass|gradients per record differ"):
        Gradients(Secretive(kind), BY_RECORD).norms(torch.randn(4, 5), torch.zeros(4, dtype=torch.long))


@pytest.mark.parametrize("change", ["replaced", "frozen", "half"])
def test_a_module_that_was_changed_since_is_refused(change):
    """Layers replaced, frozen or made half precision after the fact: sums would be of other parameters."""
    module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
    engine = Gradients(module, BY_RECORD)
    if change == "replaced":
        module[2] = nn.Linear(4, 3)
    elif change == "frozen":
        module[0].requires_grad_(False)
    else:
        module.half()
    with pytest.raises(errors.BursarError, match=r"replace or freeze layers first|train in float32 or float64"):
        engine.norms(torch.randn(4, 5), torch.zeros(4, dtype=torch.long))


class Mixing(nn.Module):
    """Mixes records, but only in training mode."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        return self.out(x - x.mean(0) if self.training else x)


def test_a_mode_that_changes_between_passes_is_looked_at_again():
    """A module that behaves in evaluation mode, and is then set to training mode."""
    module = Mixing().eval()
    engine = Gradients(module, BY_RECORD)
    x, y = torch.randn(4, 5), torch.zeros(4, dtype=torch.long)
    engine.norms(x, y)
    module.train()
    with pytest.raises(errors.Unsupported, match="in training mode"):
        engine.norms(x, y)


def test_people_are_whole_numbers_of_a_sensible_size():
    """Hashes in place of numbers, and types without a smallest element."""
    module, x, y = setting("linear")
    for people in (torch.arange(6) + 10**13, torch.arange(6).to(torch.uint16), torch.arange(6) + 0j):
        with pytest.raises(errors.ArgumentError, match="people"):
            Gradients(module, BY_RECORD).norms(x, y, people=people)


def test_a_few_records_are_found_among_very_many():
    """More records than single precision can number."""
    few, _ = _self_check.spread([torch.empty(2**24 + 4).view(-1, 1)], None)
    assert few[0].shape == (4, 1)


class Barely(nn.Module):
    """Mixes records a little, by a way that has no gradient."""

    def __init__(self, words):
        super().__init__()
        self.first = nn.Embedding(9, 5) if words else nn.Linear(4, 5)
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        x = self.first(x)
        return self.out(x + 1e-9 * x.mean(0).detach())


@pytest.mark.parametrize("words", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_a_mixture_with_a_tiny_weight_is_found(words, training):
    """One person's input of 1e9 would be in everybody's gradient."""
    module = Barely(words).train(training)
    x = torch.arange(6) if words else torch.randn(6, 4)
    with pytest.raises(errors.Unsupported, match="depend on the other records"):
        Gradients(module, BY_RECORD).norms(x, torch.zeros(6, dtype=torch.long))


def test_a_loss_that_mixes_records_a_little_is_found():
    """A term of the whole batch in everybody's loss."""
    module, x, y = setting("linear")

    def loss(output, goals):
        return BY_RECORD(output, goals) + 1e-7 * (output.mean(0) ** 2).sum()

    with pytest.raises(errors.Unsupported, match="depend on the other records"):
        Gradients(module, loss).norms(x, y)


class Checked(nn.Module):
    """Refuses what is not a number."""

    def __init__(self):
        super().__init__()
        self.out = nn.Linear(5, 3)

    def forward(self, x):
        assert torch.isfinite(x).all()
        return self.out(x)


def test_modules_that_check_their_inputs_are_compared_without_what_they_refuse():
    """Records that are not numbers are for the comparison alone."""
    assert check(nn.Sequential(Checked(), nn.ReLU()), torch.randn(4, 5)).shape == (4,)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "bool", "quantized"])
def test_buffers_of_every_layout_are_compared(layout):
    """Adjacency matrices, masks: what is constant may be kept in any form."""
    module = nn.Sequential(nn.Linear(5, 3))
    kept = {
        "sparse_coo": lambda: torch.eye(3).to_sparse(),
        "sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
        "bool": lambda: torch.eye(3) > 0,
        "quantized": lambda: torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8),
    }[layout]
    with warnings.catch_warnings():  # layouts that PyTorch calls new, or old
        warnings.simplefilter("ignore")
        kept = kept()
    module.register_buffer("kept", kept)
    assert check(module, torch.randn(4, 5)).shape == (4,)


class Hiding(nn.Module):
    """Mixes records where what is not a number would not show."""

    def __init__(self):
        super().__init__()
        self.out, self.mean = nn.Linear(5, 3), 0.0

    def forward(self, x):
        known = torch.nan_to_num(x)
        self.mean = float(known.mean())
        return self.out(x + 1e-5 * known.mean(0))


def test_comparisons_leave_what_a_module_keeps_alone_and_see_what_hides_from_them():
    """Large records show where it is only looked for numbers; the copies' own figures are not the module's."""
    module = Hiding()
    with pytest.raises(errors.Unsupported, match="depend on the other records"):
        check(module, torch.randn(6, 5))
    assert abs(module.mean) < 10

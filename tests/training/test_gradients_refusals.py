"""Gradients per person in PyTorch: modules, batches and losses that are refused, and what is compared to see it."""

import warnings

import pytest
import torch
from torch import nn

from almoner import errors
from almoner.training.gradients import Gradients, check
from gradient_modules import BY_RECORD, Sequence, setting


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x):
        return self.linear(x - x.mean(0))


@pytest.mark.parametrize(
    ("module", "shape", "words"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)), (5, 1, 4, 4), "layer '1' .BatchNorm2d. .*GroupNorm"),
        (Sequence(nn.LSTM(4, 3), 3), (5, 6, 4), "records depend on each other"),
        (Sequence(nn.Embedding(7, 4, max_norm=1.0), 4), (5, 6), "max_norm"),
        (
            nn.Sequential(nn.Conv2d(1, 2, 3), nn.InstanceNorm2d(2, track_running_stats=True)),
            (5, 1, 4, 4),
            "track_running",
        ),
        (nn.LazyLinear(3), (5, 4), "one batch first"),
        (Mixing(), (5, 4), "records depend on each other"),
    ],
)
def test_what_has_no_gradient_per_person_is_refused_by_name(module, shape, words):
    """The message names the layer, or what is wrong, before anything is summed."""
    x = torch.randint(7, shape) if len(shape) == 2 and words == "max_norm" else torch.randn(shape)
    with pytest.raises(errors.Unsupported, match=words):
        Gradients(module, BY_RECORD).sums(x, torch.zeros(5, dtype=torch.long), 1.0)


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


def test_a_device_without_double_precision_is_refused_by_name(monkeypatch):
    """Apple's GPUs have none, and sums over people need it."""
    module = nn.Linear(3, 2)
    monkeypatch.setattr(nn.Parameter, "device", torch.device("mps"), raising=False)
    with pytest.raises(errors.Unsupported, match=r"'weight' is on mps.*module\.cpu"):
        Gradients(module, BY_RECORD)


def test_half_precision_of_parameters_is_refused_by_name():
    """In float16 gradients become zero or infinite; what bfloat16 needs is tested in test_half_precision.py."""
    with pytest.raises(errors.Unsupported, match=r"'weight' is torch.float16: use float32, float64 or bfloat16"):
        Gradients(nn.Linear(3, 2).to(torch.float16), BY_RECORD)


def test_training_inside_autocast_is_refused():
    """Autocast keeps old copies of the parameters, and would round the sums."""
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(errors.Unsupported, match="train outside"),
    ):
        Gradients(nn.Linear(3, 2), BY_RECORD).sums(torch.ones(4, 3), torch.zeros(4, dtype=torch.long), 1.0)


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
    with pytest.raises(errors.AlmonerError, match=r"replace or freeze layers first|use float32, float64 or bfloat16"):
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


class Rarely(nn.Module):
    """Mixes records of rare lengths, of values that are rare, or with coins that are rare; or only sorts them."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.hidden, self.last = kind, nn.Linear(3, 8), nn.Linear(8, 2)

    def forward(self, x, lengths):
        order = torch.arange(len(x))
        if self.kind == "sorts by length":
            order = torch.argsort(lengths, descending=True, stable=True)
        if self.kind == "mixes with a rare coin" and torch.rand(()) < 0.02:
            x = (x + x.flip(0)) / 2
        if self.kind == "looks for a value" and x.min() < 0:
            x = (x + 1) / 20
        lengths = lengths[order]
        present = torch.arange(x.shape[1]) < lengths[:, None]
        h = (torch.tanh(self.hidden(x[order])) * present[..., None]).sum(1)
        h = h / lengths.max() if self.kind == "divides by the longest" else h
        return self.last(h[torch.argsort(order)])


@pytest.mark.parametrize("kind", ["divides by the longest", "looks for a value", "mixes with a rare coin"])
def test_what_mixes_rare_records_is_found(kind):
    """Nearly all records are alike in length and sign: those that are not are compared, too, in no order of size."""
    torch.manual_seed(0)
    x, lengths = torch.rand(50, 5, 3), torch.full((50,), 2)
    lengths[[20, 30]], x[21] = 5, -1.0
    with pytest.raises(errors.Unsupported, match=r"other records|each record by itself"):
        Gradients(Rarely(kind), BY_RECORD).norms([x, lengths], torch.zeros(50, dtype=torch.long))
    for harmless in ("nothing", "sorts by length"):
        Gradients(Rarely(harmless), BY_RECORD).norms([x, lengths], torch.zeros(50, dtype=torch.long))


class Ragged(nn.Module):
    """Sequences of several lengths, with coins for as many places as the longest has; mixes them or not."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.out = kind, nn.Linear(6, 3)
        self.layers = nn.LSTM(4, 6, 1 if kind == "padded" else 3, batch_first=True, dropout=0.2 * (kind != "padded"))

    def forward(self, x, lengths):
        if self.kind == "mixes" and self.training:
            x = x - 0.01 * x.mean(0)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        found, (state, _) = self.layers(packed)
        if self.kind == "padded":
            found, _ = nn.utils.rnn.pad_packed_sequence(found, batch_first=True)
            return self.out(nn.functional.dropout(found, 0.2, self.training).sum(1))
        return self.out(state[-1])


def test_coins_for_as_many_places_as_the_longest_sequence_has_are_no_mixture():
    """Among copies of itself a short sequence takes fewer coins: it is compared among copies of the longest."""
    torch.manual_seed(0)
    records = [torch.randn(9, 5, 4), torch.tensor([2, 5, 1, 3, 5, 4, 2, 1, 3])]
    for kind in ("packed", "padded"):
        Gradients(Ragged(kind), BY_RECORD).norms(records, torch.zeros(9, dtype=torch.long))
    with pytest.raises(errors.Unsupported, match="in training mode gradients per record depend on the other records"):
        Gradients(Ragged("mixes"), BY_RECORD).norms(records, torch.zeros(9, dtype=torch.long))

"""Half precision: whoever is there, no record's numbers are rounded differently; and bfloat16 trains."""

import warnings
from copy import deepcopy

import peft
import pytest
import torch
import transformers
from torch import nn

from almoner import errors, filters, training
from almoner.training import _records, saved_module
from almoner.training.gradients import Gradients, _factors, _layers, _recorder, register_rule
from almoner.training.gradients.augmentations import Views
from gradient_modules import BY_RECORD, Sequence

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning"),  # peft's, of transformers
    pytest.mark.filterwarnings("ignore:fan_in_fan_out is set:UserWarning"),  # peft's, of GPT-2
]
N = 70


class Inside(nn.Module):
    """Computes in half precision inside, after a layer whose last digits depend on the size of the batch."""

    def __init__(self):
        super().__init__()
        self.first, self.net = nn.Linear(300, 300), nn.Sequential(nn.LayerNorm(300), nn.Linear(300, 3))

    def forward(self, x):
        seen = self.first(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.net(seen)


def images():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3))
    return net.bfloat16(), torch.randn(N, 3, 8, 8).bfloat16()


class Logits(nn.Module):
    """A model of transformers whose masks ask no question about the batch."""

    def __init__(self, adapters=False):
        super().__init__()
        small = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 30, "num_labels": 3, "n_positions": 9}
        small |= {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 1, "attn_implementation": "eager"}
        model = transformers.GPT2ForSequenceClassification(transformers.GPT2Config(**small)).bfloat16()
        config = peft.LoraConfig(r=2, target_modules="all-linear")
        self.model = peft.get_peft_model(model, config, autocast_adapter_dtype=False) if adapters else model

    def forward(self, x):
        return self.model(x, attention_mask=torch.ones_like(x)).logits


def words():
    return torch.randint(2, 30, (N, 9))


class Own(nn.Module):
    """A parameter of its own, and a parametrised layer."""

    def __init__(self):
        super().__init__()
        self.by = nn.Parameter(torch.randn(20))
        self.out = nn.utils.parametrizations.weight_norm(nn.Linear(20, 3))

    def forward(self, x):
        return self.out(torch.tanh(x * self.by))


def frozen():
    """Layers in half precision in which nothing is trained, before one in single precision."""
    return nn.Sequential(nn.Linear(20, 20).requires_grad_(False).bfloat16(), Single(), nn.Linear(20, 3))


class Single(nn.Module):
    def forward(self, x):
        return x.float()


MODULES = {
    "linear": lambda: (
        nn.Sequential(nn.Linear(300, 90), nn.Tanh(), nn.Linear(90, 3)).bfloat16(),
        torch.randn(N, 300),
    ),
    "images": images,
    "lstm": lambda: (Sequence(nn.LSTM(10, 12, batch_first=True), 12).bfloat16(), torch.randn(N, 7, 10)),
    "attention": lambda: (
        Sequence(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 8).bfloat16(),
        torch.randn(N, 5, 8),
    ),
    "transformers": lambda: (Logits(), words()),
    "adapters": lambda: (Logits(adapters=True), words()),
    "own": lambda: (Own().bfloat16(), torch.randn(N, 20)),
    "frozen": lambda: (frozen(), torch.randn(N, 20)),
    "autocast": lambda: (Inside(), torch.randn(N, 300)),
}


def made(name, **options):
    """An engine, records and targets; the module in evaluation mode."""
    torch.manual_seed(0)
    module, x = MODULES[name]()
    x = x.bfloat16() if x.is_floating_point() and name != "autocast" else x
    engine, y = Gradients(module.eval(), BY_RECORD, **options), torch.randint(0, 3, (N,))
    engine.prepare(x, y)  # without a warning, which would be an error
    assert engine.half
    return engine, x, y


@pytest.mark.parametrize("name", MODULES)
def test_sums_are_those_of_a_loop_that_adds_in_double_precision(name):
    """One record at a time in passes of the same size: norms and clipped sums differ by float32 rounding at most."""
    engine, x, y = made(name)
    inputs = engine.as_inputs(x)
    alone = [_factors.gradients_of(engine._record(inputs, y, slice(r, r + 1)), 0) for r in range(9)]
    whole = [torch.cat([part.double().reshape(-1) for part in each if part is not None]) for each in alone]
    norms = torch.stack([each.norm() for each in whole])
    clip = float(norms.median())
    sums, found = engine.sums(x[:9], y[:9], clip)
    assert all(part.dtype == torch.float64 for part in sums)
    assert torch.allclose(found, norms, rtol=3e-5)
    assert (found >= norms).all()
    expected = sum(min(1.0, clip / float(norm)) * each for norm, each in zip(norms, whole, strict=True))
    got = torch.cat([part.reshape(-1) for part, one in zip(sums, alone[0], strict=True) if one is not None])
    assert float((got - expected).norm()) <= 1e-5 * float(expected.norm())
    exact = Gradients(engine._module.float(), BY_RECORD)
    if name not in ("frozen", "adapters"):  # and nearly those of single precision
        single = exact.norms(x[:9].float() if x.is_floating_point() else x[:9], y[:9])
        assert torch.allclose(found, single, rtol=0.1)


def numbers(engine, x, y, people=None):
    """What each record's gradients are made of, to the bit, as a pass over a batch makes it."""
    found, record = {}, engine._record

    def noting(inputs, targets, records=slice(None), **others):
        factors = record(inputs, targets, records, **others)
        parts = [part for each in factors if each is not None for part in each.tensors.values()]
        for place, number in enumerate(torch.arange(len(y))[records].tolist()):
            found[number] = [part[place].clone() for part in parts]
        return factors

    engine._record = noting
    engine.sums(x, y, 1.0, people)
    engine._record = record
    return found


def changed(engine, x, y, count, people=None):
    """How many records of so many have other numbers where one more person comes first; seen also by norms."""
    rows = torch.cat([torch.tensor([N - 1]), torch.arange(count)])
    both = None if people is None else torch.cat([people.max()[None] + 1, people])
    before, after = numbers(engine, x[:count], y[:count], people), numbers(engine, x[rows], y[rows], both)
    pairs = (zip(before[row], after[row + 1], strict=True) for row in range(count))
    return sum(not all(torch.equal(*both) for both in pair) for pair in pairs)


@pytest.mark.parametrize("name", MODULES)
def test_one_more_person_changes_nobody_else_to_the_bit(name):
    """Whatever the size of the batch, and how many records a person has, also more than a pass takes."""
    engine, x, y = made(name)
    for count in (1, 3, 30, 64, 66):
        assert changed(engine, x, y, count) == 0
    assert changed(engine, x, y, 66, torch.arange(66) // 3) == 0
    assert changed(engine, x, y, 69, torch.zeros(69, dtype=torch.long)) == 0


class BySize(nn.Module):
    """Stands for a kernel that adds up in another order in a batch of another size."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(20, 3).bfloat16()

    def forward(self, x):
        return self.net(x * (1 + 2**-7 * (len(x) % 2)))


@pytest.mark.parametrize("module", [BySize, Inside])
def test_passes_of_any_size_would_change_others(module):
    """The check above finds it, where passes are as large as the batch: in a stand-in, and in PyTorch's own kernels."""
    torch.manual_seed(0)
    single = module is Inside
    x, y = torch.randn(N, 300 if single else 20), torch.randint(0, 3, (N,))
    x = x if single else x.bfloat16()
    engine = Gradients(module(), BY_RECORD)
    engine.prepare(x, y)
    counts = (1, 2, 3, 4, 5)
    assert sum(changed(engine, x, y, count) for count in counts) == 0
    engine._recorder.rows = 0
    found = sum(changed(engine, x, y, count) for count in counts)
    assert found > 0 or single  # on another processor its kernels may add up in one order


def test_the_size_of_a_pass_knows_no_record():
    """Other records, and other numbers of them, give one size; it follows from the memory, and is a power of two."""
    sizes = set()
    for seed, count in ((0, 3), (1, 7), (2, 60)):
        torch.manual_seed(7)
        engine = Gradients(nn.Sequential(nn.Linear(300, 50), nn.Linear(50, 3)).bfloat16(), BY_RECORD, memory=40_000.0)
        torch.manual_seed(seed)
        engine.prepare(torch.randn(count, 300).bfloat16(), torch.randint(0, 3, (count,)))
        sizes.add(engine._records_at_once)
    (size,) = sizes
    assert size in (8, 16, 32)


def test_views_of_a_record_come_in_passes_of_one_size():
    """Each pass has so many records times so many views, and one more person changes nobody else's mean of views."""
    views = Views(lambda x, generator: x * 2, count=3, seed=0)  # without coins, to compare
    engine, x, y = made("linear", views=views)
    assert changed(engine, x, y, 5) == 0
    seen = []
    engine.sums(x[:5], y[:5], 1.0, observe=lambda rows, output, losses: seen.append((output.shape, losses.shape)))
    assert seen == [((15, 3), (5,))]


class Placed(nn.Module):
    """Each row of a pass is rounded a little differently."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(20, 3).bfloat16()

    def forward(self, x):
        return self.net((torch.sin(x.float()) * (1 + 1e-4 * torch.arange(len(x))[:, None] / len(x))).to(x.dtype))


class Among(nn.Module):
    """Each row is rounded as the other rows say."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(20, 3).bfloat16()

    def forward(self, x):
        return self.net((torch.sin(x.float()) * (1 + 1e-4 * (x[:, 0] > 0).float().mean())).to(x.dtype))


@pytest.mark.parametrize("module", [Placed, Among])
def test_a_module_whose_rounding_depends_on_the_place_is_refused(module):
    """Differences that are too small to be a mixture of records, and would change the last digits of others."""
    torch.manual_seed(0)
    x, y = torch.randn(N, 20).bfloat16(), torch.randint(0, 3, (N,))
    with pytest.raises(errors.Unsupported, match=r"its place among others.*module\.float\(\)"):
        Gradients(module(), BY_RECORD).prepare(x, y)


class Asking(nn.Module):
    """Takes another way where no record of the batch is padded, as masks of transformers do."""

    def __init__(self):
        super().__init__()
        self.net = nn.Linear(20, 3).bfloat16()

    def forward(self, x):
        return self.net(x) if (x != 0).all() else self.net(x * 1)


def test_a_module_that_asks_about_the_batch_goes_record_by_record():
    """One more person could change the answer, and with it how all others are computed: a record is its own batch."""
    torch.manual_seed(0)
    x, y = torch.randn(N, 20).bfloat16(), torch.randint(0, 3, (N,))
    engine = Gradients(Asking(), BY_RECORD)
    with pytest.warns(UserWarning, match=r"half precision.*masks with four axes.*record by record"):
        engine.prepare(x, y)
    x[N - 1] = 0.0
    assert changed(engine, x, y, 5) == 0
    alone = torch.cat([engine.norms(x[row : row + 1], y[row : row + 1]) for row in range(5)])
    assert torch.equal(engine.norms(x[:5], y[:5]), alone)


def test_a_pass_that_fails_is_an_error_and_not_done_in_another_way(monkeypatch):
    """Done record by record, all others of the pass would be rounded differently."""
    engine, x, y = made("linear")
    monkeypatch.setattr(_recorder.Tape, "factors", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        engine.sums(x, y, 1.0)


def test_records_of_another_form_are_refused():
    """A batch that is padded to its longest record would have other kernels with each person."""
    engine, x, y = made("lstm")
    with pytest.raises(errors.Unsupported, match="pad them"):
        engine.sums(x[:, :6], y, 1.0)


def test_a_wrong_rule_is_found_in_half_precision(monkeypatch):
    """A bias that is counted twice where the layer's numbers come in half precision; then it goes record by record."""
    right = _factors.of_parameters

    def wrong(parameters, uses):
        found = right(parameters, uses)
        if any(each.dtype == torch.bfloat16 for each in parameters):
            found[1] = _factors.Dense(2 * found[1].gradients())
        return found

    monkeypatch.setattr(_recorder, "of_parameters", wrong)
    engine = Gradients(nn.Linear(20, 3).bfloat16(), BY_RECORD)
    with pytest.warns(UserWarning, match="record by record"):
        engine.prepare(torch.randn(N, 20).bfloat16(), torch.randint(0, 3, (N,)))


def test_a_module_that_became_half_precision_is_compared_anew():
    """The passes of one size are then taken, too."""
    torch.manual_seed(0)
    module, x, y = nn.Linear(20, 3), torch.randn(N, 20), torch.randint(0, 3, (N,))
    engine = Gradients(module, BY_RECORD)
    engine.prepare(x, y)
    assert (engine.half, engine._recorder.rows) == (False, 0)
    module.bfloat16()
    engine.norms(x.bfloat16(), y)
    assert (engine.half, engine._recorder.rows) == (True, 64)
    engine.check(x[:3].bfloat16(), y[:3])  # which takes no passes of one size
    assert changed(engine, x.bfloat16(), y, 3) == 0
    assert engine._recorder.rows == 64


def test_a_norm_that_is_charged_is_not_below_what_is_added():
    """Each person alone contributes at most the clip, in half precision too."""
    engine, x, y = made("images")
    for person in range(6):
        sums, _ = engine.sums(
            x[:6], y[:6], lambda rows, norms, me=person: torch.where(rows == me, (1e-2 / norms).clamp(max=1.0), 0.0)
        )
        assert float(torch.cat([part.reshape(-1) for part in sums]).norm()) <= 1e-2


def table():
    x = torch.randn(400, 8, generator=torch.Generator().manual_seed(3))
    return x, (x[:, 0] + x[:, 1] > 0).long()


def trainer(dtype, optimizer, **options):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).to(dtype)
    options = {"max_grad_norm": 1.0, "divisor": 400, "noise_multiplier": 4.0, "steps": 30, **options}
    return training.Trainer(module, BY_RECORD, optimizer(module), filters.Gaussian(epsilon=8.0, delta=1e-5), **options)


def accuracy(module, dtype):
    x, y = table()
    return float((module(x.to(dtype)).argmax(1) == y).double().mean())


OPTIMIZERS = {
    "SGD": lambda module: torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.5),
    "Adam": lambda module: torch.optim.Adam(module.parameters(), lr=0.05),
    "AdamW": lambda module: torch.optim.AdamW(module.parameters(), lr=0.05),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_bfloat16_model_learns_nearly_as_well_and_costs_the_same(name):
    """Noise is in a sum of double precision before anything is rounded; the card is that of single precision."""
    x, y = table()
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        each = trainer(dtype, OPTIMIZERS[name], seed=1)
        each.fit(x.to(dtype), y)
        found.append((each.card(), accuracy(each.module, dtype)))
        assert all(parameter.dtype == dtype for parameter in each.module.parameters())
    assert found[0][0] == found[1][0]
    assert found[0][1] > 0.85
    assert abs(found[0][1] - found[1][1]) < 0.06


def test_noise_is_added_before_the_sum_is_rounded(monkeypatch):
    """A gradient that the optimizer gets is a rounded noisy sum: of clean sums no double ever becomes bfloat16."""
    each, seen = trainer(torch.bfloat16, OPTIMIZERS["SGD"], steps=2, seed=1), []
    draw = each._processes.noisy_total

    def noting(sums, sigma, generator):
        noisy = draw(sums, sigma, generator)
        seen.append((sums, noisy))
        return noisy

    monkeypatch.setattr(each._processes, "noisy_total", noting)
    step = each._optimizer.step
    monkeypatch.setattr(each._optimizer, "step", lambda: (grads.append(gradients(each.module)), step())[1])
    grads = []
    each.fit(table()[0].bfloat16(), table()[1])
    for (sums, noisy), got in zip(seen, grads, strict=True):
        assert all(part.dtype == torch.float64 for part in (*sums, *noisy))
        assert all(torch.equal(grad, (part / 400).bfloat16()) for grad, part in zip(got, noisy, strict=True))


def gradients(module):
    return [parameter.grad.clone() for parameter in module.parameters()]


def test_a_killed_run_goes_on_in_bfloat16_and_is_saved(tmp_path):
    """Its folder keeps parameters and Adam's state; questions are answered; the card is that of an unbroken run."""
    x, y = table()

    def kill(run):
        run.noisy_sum(_records.correct, sigma=2000.0, name=f"right {run.step}") if run.step == 3 else None
        if run.step == 11:
            raise KeyboardInterrupt

    first, options = trainer(torch.bfloat16, OPTIMIZERS["Adam"]), {"callbacks": [kill]}
    with pytest.raises(KeyboardInterrupt):
        first.fit(x.bfloat16(), y, folder=tmp_path / "run", **options)
    second = trainer(torch.bfloat16, OPTIMIZERS["Adam"], compute=training.Compute(memory=1e5))
    run = second.fit(x.bfloat16(), y, folder=training.RunFolder(tmp_path / "run", resume=True))
    assert (run.step, run.reason) == (30, "all planned steps are done")
    state = second._optimizer.state_dict()["state"][0]
    assert (state["exp_avg"].dtype, float(state["step"])) == (torch.bfloat16, 30.0)
    whole = trainer(torch.bfloat16, OPTIMIZERS["Adam"])
    whole.fit(x.bfloat16(), y, callbacks=[lambda run: kill(run) if run.step == 3 else None])
    assert second.card() == whole.card()
    saved_module.save(second, tmp_path / "model")
    other = trainer(torch.bfloat16, OPTIMIZERS["SGD"]).module
    saved_module.load(tmp_path / "model", other)
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), second.module.parameters(), strict=True))


class Cast(nn.Module):
    """A module that makes bfloat16 of what comes, for some of its layers."""

    def __init__(self, *, frozen, single=0):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(768, single) if single else nn.Identity()
        self.middle = nn.Linear(single or 768, 24).bfloat16().requires_grad_(not frozen)
        self.last = nn.Linear(24, 5)

    def forward(self, x):
        return self.last(torch.tanh(self.middle(self.first(x).bfloat16())).float())


@pytest.mark.parametrize("module", [Cast(frozen=True), Cast(frozen=False), Cast(frozen=False, single=500)])
def test_no_person_decides_which_way_gradients_are_made(module):
    """A forward pass that casts by itself has no form in single precision: it is compared as it is, loosely, so that
    no rounding has it go record by record, by which others would be rounded otherwise."""
    x, y = torch.randn(24, 768, generator=torch.Generator().manual_seed(1)), torch.arange(24) % 5
    found = []
    for count in (17, 18, 24):
        gradients = Gradients(deepcopy(module), nn.CrossEntropyLoss(reduction="none"))
        found.append(gradients.norms(x[:count], y[:count])[:17])
        assert not gradients._recorder.slow
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


class Scale(nn.Module):
    """Numbers times a parameter, of which a rule forgets a part."""

    def __init__(self, size):
        super().__init__()
        self.by = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * self.by


class Autocast(nn.Module):
    """A module that computes in half precision whatever its parameters are."""

    def __init__(self):
        super().__init__()
        self.scale, self.last = Scale(10), nn.Linear(10, 2)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.last(self.scale(x))


@pytest.mark.parametrize("module", [Autocast(), Autocast().bfloat16(), nn.Sequential(Scale(10), nn.Linear(10, 2))])
@pytest.mark.parametrize("part", [1.0, 0.97])
def test_half_precision_hides_no_rule_that_forgets_a_part(module, part, monkeypatch):
    """A gradient that is 3 % too short is found by a copy in double precision, in which autocast does nothing."""
    rule = lambda _, x, b: {"by": part * (x * b).reshape(len(x), -1, x.shape[-1]).sum(1)}  # noqa: E731
    monkeypatch.setattr(_layers, "RULES", dict(_layers.RULES))
    register_rule(Scale, rule)
    gradients = Gradients(module, nn.CrossEntropyLoss(reduction="none"))
    x = torch.randn(20, 10, generator=torch.Generator().manual_seed(2)).to(next(module.parameters()).dtype)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gradients.norms(x, torch.arange(20) % 2)
    assert gradients._recorder.slow == (part < 1)
    assert any("record by record" in str(each.message) for each in told) == (part < 1)

"""Lightning: steps of our own in its loop; a run stops at its budget, resumes with what was spent, people pay."""

import copy
import sys
from pathlib import Path

import numpy as np
import pytest

from almoner import filters, individual, mechanisms, training
from almoner.errors import ArgumentError, BudgetExceeded, CopyRefused, MissingExtra, Unsupported

torch = pytest.importorskip("torch")
lightning = pytest.importorskip("lightning.pytorch")

from lightning.pytorch import LightningModule, Trainer, callbacks, seed_everything  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402
from lightning.pytorch.strategies import SingleDeviceStrategy  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from almoner.interop.lightning import PrivacyCallback, poisson  # noqa: E402
from almoner.training._run.models import Processes  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in (".*does not have many workers", ".*LeafSpec", "You're resuming", ".*self.log", ".*batch_size")
]
N, BATCHES, NOISE, CLIP, DELTA = 60, 10, 1.5, 0.8, 1e-5
STEP = mechanisms.SampledGaussian(NOISE * CLIP, CLIP, 1 / BATCHES)


class Network(LightningModule):
    """What a user writes, with one loss for each record; ``seen`` has the parameters after each step."""

    def __init__(self, optimizers=1):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(3, 2, bias=False)
        self.count, self.seen = optimizers, []

    def training_step(self, batch, batch_idx):
        losses = nn.functional.cross_entropy(self.net(batch[0]), batch[1], reduction="none")
        self.log("loss", losses.mean())
        return losses

    def on_train_batch_end(self, *_):
        self.seen.append(self.net.weight.detach().clone())

    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.5) for _ in range(self.count)]


def records(scale=1.0):
    inputs = scale * torch.randn(N, 3, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, (inputs[:, 0] > 0).long())


def loader(scale=1.0):
    return poisson(DataLoader(records(scale), batch_size=N // BATCHES, shuffle=True))


def callback(budget=None, **options):
    usual = {"noise_multiplier": NOISE, "max_grad_norm": CLIP, "divisor": N, "individual": False}
    return PrivacyCallback(budget or filters.Renyi(epsilon=8.0, delta=DELTA), **usual | options)


def trainer(*more, epochs=1, **options):
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(max_epochs=epochs, callbacks=list(more), accelerator="cpu", **quiet | options)


def fit(each, *more, model=None, data=None, ckpt_path=None, **options):
    """A run with a callback; the trainer and the module."""
    model, train = model or Network(), trainer(each, *more, **options)
    train.fit(
        model, loader() if data is None else data, ckpt_path=ckpt_path, **({"weights_only": True} if ckpt_path else {})
    )
    return train, model


def paid(steps):
    """A budget for so many steps and a half."""
    one = filters.RenyiOrder(alpha=8, rho=5000)
    one.charge(STEP)
    return filters.RenyiOrder(alpha=8, rho=one.spent * (steps + 0.5))


@pytest.fixture
def silent(monkeypatch):
    """No noise, and everybody in each step: what is left is the sum of what people contributed."""
    monkeypatch.setattr(Processes, "noisy_total", lambda _, sums, sigma, generator: [part.clone() for part in sums])
    monkeypatch.setattr(training.Poisson, "begin", lambda self, run: training.FullBatch())


# --- what is charged, and when a run stops --------------------------------------------------------------------------


def test_a_run_stops_before_the_step_that_does_not_fit():
    """As many steps as the filter admits are taken and charged, in the middle of an epoch; the card says so."""
    each = callback(paid(13))
    train, model = fit(each, epochs=50)
    assert (
        train.global_step
        == len(model.seen)
        == each.private.card(delta=DELTA).steps
        == each.private.accounts.budget.count
        == 13
    )
    assert each.private._view.reason == "the budget is spent"


def test_noise_is_the_least_for_all_epochs():
    """With a target the card has its epsilon and as many steps as the epochs have; no loss of people is logged."""
    each = callback(training.Target(epsilon=2.0, delta=DELTA), noise_multiplier=None)
    train, _ = fit(each, epochs=2)
    assert train.global_step == 2 * BATCHES == each.private.card().steps
    assert each.private.card().epsilon == 2.0
    assert "loss" not in train.callback_metrics  # of the people in the training


def test_a_trainer_that_must_go_on_does_not_get_one_step_more():
    """Where min_steps asks for more than fits, BudgetExceeded leaves fit(), and no parameter changes."""
    each, model = callback(paid(7)), Network()
    with pytest.raises(BudgetExceeded, match="the budget is spent"):
        fit(each, model=model, epochs=50, min_steps=400)
    assert len(model.seen) == each.private.card(delta=DELTA).steps == 7
    assert torch.equal(model.net.weight, model.seen[-1])
    assert model.net.weight.grad is None


def test_people_with_several_records_have_one_account(silent):
    """A person's records are added up and clipped once: by hand; and each has a statement."""
    ids = np.array([f"p{row % 7}" for row in range(N)])
    each = callback(training.Target(epsilon=9.0, delta=DELTA), people=ids, divisor=7, individual=True)
    _, model = fit(each, max_steps=1)
    plain, total = Network(), 0
    x, y = records().tensors
    for person in np.unique(ids):
        rows = torch.from_numpy(np.flatnonzero(ids == person))
        plain.net.zero_grad()
        nn.functional.cross_entropy(plain.net(x[rows]), y[rows], reduction="sum").backward()
        gradient = plain.net.weight.grad
        total = total + gradient * min(1.0, CLIP / float(gradient.norm()))
    torch.testing.assert_close(model.net.weight, plain.net.weight - 0.5 * total / (7 / BATCHES), rtol=1e-4, atol=1e-5)
    assert len(each.private.shares()) == 7
    assert "private" in repr(each.private.statement("p3"))


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_updates_are_noisy_sums_of_clipped_gradients(precision):
    """Records without a gradient give pure noise of sigma = z C on the sum."""
    _, model = fit(callback(), data=loader(0.0), epochs=20, precision=precision)
    steps = torch.diff(torch.stack([Network().net.weight.detach().to(model.net.weight.dtype), *model.seen]), dim=0)
    noise = steps.double() / 0.5 * (N / BATCHES)
    assert abs(float(noise.std()) / (NOISE * CLIP) - 1) < 0.1  # 1200 numbers: five standard errors


def test_a_seed_repeats_no_noise():
    """Two runs after the same seed_everything draw other noise."""
    seen = []
    for _ in range(2):
        seed_everything(0, verbose=False)
        seen.append(fit(callback(), data=loader(0.0), max_steps=1)[1].seen[0])
    assert not torch.equal(*seen)


def test_the_module_is_as_before_when_training_ends():
    """Its own training_step is there again, after an end and after an error; a callback trains once."""
    each, model = callback(), Network()
    fit(each, model=model)
    assert "training_step" not in vars(model)
    assert "log" not in vars(model)
    with pytest.raises(ArgumentError, match="trained already"):
        trainer(each).fit(model, loader())
    broken = Network()
    broken.on_train_batch_end = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        fit(callback(), model=broken)
    assert "training_step" not in vars(broken)


class Named(Network):
    """Batches that are dicts, a step without a number, and a result that is a dict."""

    def training_step(self, batch):
        assert set(batch) == {"x", "goal"}
        return {"loss": nn.functional.cross_entropy(self.net(batch["x"]), batch["goal"], reduction="none")}


def test_batches_of_any_form(silent):
    """A data set of dicts trains the same model as one of tuples."""
    x, y = records().tensors
    rows = [{"x": x[row], "goal": y[row]} for row in range(N)]
    _, one = fit(callback(), model=Named(), data=poisson(DataLoader(rows, batch_size=6)))
    _, other = fit(callback())
    assert torch.equal(one.net.weight, other.net.weight)


# --- checkpoints ----------------------------------------------------------------------------------------------------


class Stop(callbacks.Callback):
    """Writes a checkpoint after the fourth step, and interrupts the training after another."""

    def __init__(self, path, at):
        self.path, self.at = path, at

    def on_train_batch_end(self, train, *_):
        if train.global_step == 4:
            train.save_checkpoint(self.path)
        if train.global_step == self.at:
            raise KeyError("stop")


@pytest.mark.parametrize("at", [4, 6], ids=["at the checkpoint", "after it"])
def test_a_resumed_run_is_the_undisturbed_one(tmp_path, silent, at):
    """Stopped and resumed: parameters and accounts are those of a run that nobody stopped, to the bit."""

    def fresh(**options):
        return callback(filters.RenyiOrder(alpha=8, rho=20.0), individual=True, **options)

    whole = fresh()
    _, model = fit(whole)
    path = tmp_path / "four.ckpt"
    with pytest.raises(KeyError):
        fit(fresh(folder=tmp_path / "a"), Stop(path, at))
    again = fresh(folder=tmp_path / "a")
    train, resumed = fit(again, ckpt_path=path)
    train.save_checkpoint(tmp_path / "end.ckpt")  # the folder is closed then
    assert torch.equal(model.net.weight, resumed.net.weight)
    assert train.global_step == again.private.card(delta=DELTA).steps == 10
    np.testing.assert_array_equal(again.private.shares(), whole.private.shares())


def test_a_checkpoint_gives_nothing_back(tmp_path):
    """After a crash what the journal alone knows of stays charged: ten rounds are paid, eight steps are the model's."""
    path, state = tmp_path / "four.ckpt", tmp_path / "a" / "state.npz"
    kept = []
    with pytest.raises(KeyError):
        fit(callback(paid(10), folder=tmp_path / "a"), Stop(path, 4))
    kept.append(state.read_bytes())
    with pytest.raises(KeyError):
        fit(
            callback(paid(10), folder=tmp_path / "a"),
            Stop(tmp_path / "other.ckpt", 6),
            ckpt_path=path,
        )
    state.write_bytes(kept[0])
    each = callback(paid(10), folder=tmp_path / "a")
    fit(each, ckpt_path=path)
    assert each.private.accounts.budget.count == 10
    assert each.private.card(delta=DELTA).steps == 8


def test_a_checkpoint_without_its_accounts_is_refused(tmp_path):
    """Without the folder nobody knows what was charged; and a second run over a folder is refused."""
    path = tmp_path / "four.ckpt"
    with pytest.raises(KeyError):
        fit(callback(folder=tmp_path / "a"), Stop(path, 4))
    for options in ({}, {"folder": tmp_path / "b"}):
        with pytest.raises(ArgumentError, match="those of step 0, before the checkpoint's step 4: give the folder="):
            fit(callback(**options), ckpt_path=path)
    with pytest.raises(ArgumentError, match="holds a run already"):
        fit(callback(folder=tmp_path / "a"))


# --- refusals -------------------------------------------------------------------------------------------------------


class Elsewhere(SingleDeviceStrategy):
    """A strategy whose steps nobody here has read."""


class Manual(Network):
    automatic_optimization = False


class Iterating(Network):
    def training_step(self, dataloader_iter):
        return super().training_step(next(dataloader_iter)[0], 0)


class Mean(Network):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx).mean()


@pytest.mark.filterwarnings("ignore:.*`dataloader_iter`")
@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("accumulate_grad_batches=2 is not taken", {"accumulate_grad_batches": 2}),
        ("gradient_clip_val has no effect", {"gradient_clip_val": 1.0}),
        ("precision='bf16-true'", {"precision": "bf16-true"}),
        ("LearningRateFinder", {"more": [callbacks.LearningRateFinder()]}),
        ("strategy=Elsewhere with 1", {"strategy": Elsewhere("cpu")}),
        ("automatic_optimization=False", {"model": Manual}),
        ("several batches into one step", {"model": Iterating}),
        ("2 optimizers", {"model": lambda: Network(optimizers=2)}),
        ("reduction='none'", {"model": Mean}),
        ("max_epochs= or max_steps=", {"epochs": -1}),
        (r"must be poisson\(DataLoader", {"data": DataLoader(records(), batch_size=6)}),
    ],
)
def test_what_is_not_done_in_private_steps_is_refused_by_name(match, options, monkeypatch):
    """Settings under which a step is not one noisy sum over one sample; nothing is charged."""
    if "2 optimizers" in match:
        monkeypatch.setattr("lightning.pytorch.core.optimizer._validate_multiple_optimizers_support", lambda *_: None)
    each, model = callback(), options.pop("model", Network)()
    with pytest.raises((Unsupported, ArgumentError), match=match):
        fit(each, *options.pop("more", []), model=model, **options)
    assert each._steps is None
    assert not model.seen


def test_several_devices_are_refused(monkeypatch):
    """Each process would add its own noise to its own part of the batch."""
    monkeypatch.setattr(Trainer, "world_size", 2)
    with pytest.raises(Unsupported, match="with 2 processes; one device only"):
        fit(callback())


class Endless(IterableDataset):
    def __iter__(self):
        yield from records()


def test_data_without_an_end_are_refused():
    """Who is in an endless stream cannot be sampled."""
    with pytest.raises(Unsupported, match="IterableDataset"):
        poisson(DataLoader(Endless()))


def test_a_run_with_all_that_modules_have(tmp_path):
    """Adam with a schedule, validation, a logger: resumed, the optimizer goes on as it was saved."""

    class Full(Network):
        def validation_step(self, batch, batch_idx):
            self.log("held out", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    logger = CSVLogger(tmp_path)
    each = callback(folder=tmp_path / "a")
    train = trainer(each, epochs=3, logger=logger, log_every_n_steps=1)
    train.fit(Full(), loader(), DataLoader(records(), batch_size=N))
    names = (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0]
    assert "held out" in names
    assert "loss" not in names
    (state,) = train.optimizers[0].state.values()
    assert int(state["step"]) == train.global_step == each.private.card(delta=DELTA).steps == 3 * BATCHES
    assert train.optimizers[0].param_groups[0]["lr"] == 0.1 / 8


def test_what_a_module_keeps_of_the_records_is_not_logged_where_an_epoch_ends():
    """Lightning's own recipe for a mean over an epoch: losses are kept by the step, and logged by a hook."""

    class Keeps(Network):
        def training_step(self, batch, batch_idx):
            losses = super().training_step(batch, batch_idx)
            self.seen.append(losses.detach().mean())
            return losses

        def on_train_batch_end(self, *_):
            self.log("last", self.seen[-1])

        def on_train_epoch_end(self):
            self.log("mean", torch.stack(self.seen).mean())
            self.log_dict({"means": torch.stack(self.seen).mean()})

        def validation_step(self, batch, batch_idx):
            self.log("held out", self.net(batch[0]).mean())

    train = trainer(callback())
    train.fit(Keeps(), loader(), DataLoader(records(), batch_size=N))
    assert set(train.callback_metrics) == {"held out"}


def test_a_person_who_is_refused_contributes_nothing(silent):
    """With an account that is spent, the model is bit for bit the same whatever the person's labels are."""

    def trained(share, label):
        data = records()
        data.tensors[1][:3] = label
        accounts = individual.Filter(20, filters.RenyiOrder(alpha=8, rho=5000), shares=np.r_[share, np.ones(19)])
        each = callback(accounts, people=np.arange(N) // 3, divisor=20, individual=True)
        return fit(each, data=poisson(DataLoader(data, batch_size=6)))[1].net.weight

    assert torch.equal(trained(1e-18, 0), trained(1e-18, 1))
    assert not torch.equal(trained(1.0, 0), trained(1.0, 1))


def test_arguments_are_refused_by_name():
    """No clip, no people, words of no meaning, and budgets that are none."""
    for options, match in (({"max_grad_norm": 0.0}, "max_grad_norm"), ({"divisor": float("nan")}, "divisor")):
        with pytest.raises(ArgumentError, match=match):
            fit(callback(**options))
    with pytest.raises(TypeError, match="clip"):
        fit(callback(clip=1.0))
    with pytest.raises(ArgumentError, match="budget="):
        fit(callback(1.0))
    with pytest.raises(CopyRefused):
        copy.deepcopy(callback())


def test_without_lightning_the_extra_is_named(monkeypatch):
    """An import without Lightning says what to install."""
    for name in [
        name for name in sys.modules if name.split(".")[0] == "lightning" or name == "almoner.interop.lightning"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(MissingExtra, match=r"install '\.\[lightning\]'"):
        __import__("almoner.interop.lightning")

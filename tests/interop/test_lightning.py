"""Lightning: a run stops at its budget, resumes with all that was spent, and refuses what has no price."""

import copy
import functools
import json
import logging
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from almoner import filters, mechanisms, odometers
from almoner.accounting import calibrate
from almoner.curves._totals import tightest
from almoner.errors import ArgumentError, BudgetExceeded, CopyRefused, MissingExtra, Unsupported

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
lightning = pytest.importorskip("lightning.pytorch")

from lightning.pytorch import LightningModule, Trainer, callbacks, seed_everything  # noqa: E402
from lightning.pytorch.loggers import CSVLogger  # noqa: E402
from lightning.pytorch.strategies import SingleDeviceStrategy  # noqa: E402
from opacus.data_loader import DPDataLoader  # noqa: E402
from opacus.utils.uniform_sampler import UniformWithReplacementSampler  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, IterableDataset, TensorDataset  # noqa: E402

from almoner.interop import lightning as module_under_test  # noqa: E402
from almoner.interop.lightning import PrivacyCallback, poisson  # noqa: E402
from almoner.interop.opacus import PrivacyEngine  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in ("Secure RNG", "Full backward hook", ".*does not have many workers", ".*LeafSpec", "You're resuming")
]
N, BATCHES, NOISE, CLIP, DELTA = 60, 10, 1.5, 0.8, 1e-5
COINS = 2.0**-23
STEP = mechanisms.SampledGaussian(NOISE, 1.0, 1 / BATCHES + COINS)


class Network(LightningModule):
    """What a user writes; ``seen`` has the parameters after each step."""

    def __init__(self, optimizers=1):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Linear(3, 2, bias=False)
        self.count, self.seen = optimizers, []

    def training_step(self, batch, batch_idx):
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        self.log("loss", loss, batch_size=1)
        return loss

    def on_train_batch_end(self, *_):
        self.seen.append(self.net.weight.detach().clone())

    def configure_optimizers(self):
        return [torch.optim.SGD(self.parameters(), lr=0.5) for _ in range(self.count)]


@functools.lru_cache
def records(scale=1.0):
    inputs = scale * torch.randn(N, 3, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, (inputs[:, 0] > 0).long())


def loader(scale=1.0):
    return poisson(DataLoader(records(scale), batch_size=N // BATCHES, shuffle=True))


def callback(engine=None, **options):
    engine = engine or PrivacyEngine(filters.Renyi(epsilon=8.0, delta=DELTA))
    return PrivacyCallback(engine, **{"noise_multiplier": NOISE, "max_grad_norm": CLIP, "delta": DELTA} | options)


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


# --- what is charged, and when a run stops --------------------------------------------------------------------------


def test_a_run_stops_before_the_step_that_does_not_fit():
    """As many steps as the filter admits are taken and charged, and the logged epsilon is the budget's."""
    each = callback(PrivacyEngine(epsilon=2.0, delta=DELTA))
    train, model = fit(each, epochs=50)
    admitted = calibrate.steps(filters.Planned(STEP, epsilon=2.0, delta=DELTA), STEP)
    assert train.global_step == len(model.seen) == len(each.engine.accountant) == admitted
    assert admitted % BATCHES  # in the middle of an epoch
    assert train.callback_metrics["epsilon"] == 2.0 == each.epsilon()
    assert not each.engine.accountant.admits(STEP)


def test_charges_are_those_of_the_same_run_in_a_plain_loop():
    """Two epochs by Lightning and two in a loop of Opacus have the same history and epsilon."""
    for make in (
        lambda: PrivacyEngine(filters.Renyi(epsilon=8.0, delta=DELTA)),
        lambda: PrivacyEngine(odometers.Renyi(delta=DELTA)),
        lambda: PrivacyEngine(epochs=2),
    ):
        each, plain, model = callback(make()), make(), Network()
        fit(each, epochs=2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        private, optimizer, data = plain.make_private(
            module=model.net, optimizer=optimizer, data_loader=DataLoader(records(), batch_size=N // BATCHES),
            noise_multiplier=NOISE, max_grad_norm=CLIP,
        )  # fmt: skip
        for _ in range(2):
            for x, y in data:
                optimizer.zero_grad()
                nn.functional.cross_entropy(private(x), y).backward()
                optimizer.step()
        assert each.engine.accountant.history == plain.accountant.history == [(NOISE, 0.1 + COINS, 20)]
        assert each.epsilon() == plain.get_epsilon(DELTA) > 0
    run = mechanisms.Repeated(mechanisms.SampledGaussian(NOISE, 1.0, 0.1 + COINS), 20)
    assert each.epsilon() == tightest(run, delta=DELTA).epsilon


def test_an_odometer_stops_before_its_target():
    """The last step keeps the odometer's epsilon at or below the target, and one more would not."""
    each = callback(PrivacyEngine(odometers.Renyi(delta=DELTA)), target_epsilon=2.0)
    train, _ = fit(each, epochs=50)
    assert 1.5 < each.epsilon() <= 2.0 < each.engine.accountant.get_epsilon(DELTA, one_more=True)
    assert each.epsilon() <= float(train.callback_metrics["epsilon"]) < each.epsilon() * (1 + 1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: callback(PrivacyEngine(filters.RenyiOrder(alpha=8, rho=1.0))),
        lambda: callback(PrivacyEngine(odometers.Renyi(delta=DELTA)), target_epsilon=1.5),
        lambda: callback(PrivacyEngine(steps=7)),
    ],
    ids=["filter", "odometer", "fixed"],
)
def test_a_trainer_that_must_go_on_does_not_get_one_step_more(make):
    """Where min_steps asks for more than fits, BudgetExceeded leaves fit(), and no parameter changes."""
    each, model = make(), Network()
    with pytest.raises(BudgetExceeded):
        fit(each, model=model, epochs=50, min_steps=400)
    assert 0 < len(model.seen) == len(each.engine.accountant) < 400
    assert torch.equal(model.net.weight, model.seen[-1])
    assert model.net.weight.grad is None


def test_nothing_is_trained_where_nothing_fits():
    """A budget below one step, and a target below one, take no step."""
    with pytest.raises(BudgetExceeded, match="does not fit once"):
        fit(callback(PrivacyEngine(filters.RenyiOrder(alpha=8, rho=1e-6))))
    each = callback(PrivacyEngine(odometers.Renyi(delta=DELTA)), target_epsilon=1e-3)
    assert fit(each)[0].global_step == 0 == each.epsilon()


# --- what is released -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
def test_updates_are_noisy_sums_of_clipped_gradients(precision):
    """Records without a gradient give pure noise of sigma = z C on the sum; large ones move it by at most C each."""
    _, model = fit(callback(PrivacyEngine(steps=200)), data=loader(0.0), epochs=20, precision=precision)
    steps = torch.diff(torch.stack([Network().net.weight.detach().to(model.net.weight.dtype), *model.seen]), dim=0)
    noise = steps.double() / 0.5 * (N / BATCHES)  # Opacus divides by the expected size of a batch
    assert abs(float(noise.std()) / (NOISE * CLIP) - 1) < 0.1  # 1200 numbers: five standard errors
    _, model = fit(callback(PrivacyEngine(steps=1), noise_multiplier=1e-3), data=loader(1e6), max_steps=1)
    moved = (model.seen[0] - Network().net.weight.detach().to(model.net.weight.dtype)).double().norm() / 0.5
    assert 0 < float(moved) * (N / BATCHES) < N * CLIP


@pytest.mark.slow
def test_a_seed_repeats_neither_noise_nor_batches():
    """Two runs after the same seed_everything draw other noise, and other batches."""
    seen, drawn = [], []
    for _ in range(2):
        seed_everything(0, verbose=False)
        data = loader(0.0)
        seen.append(fit(callback(PrivacyEngine(steps=1)), data=data, max_steps=1)[1].seen[0])
        seed_everything(0, verbose=False)
        drawn.append(list(loader().batch_sampler))
    assert not torch.equal(*seen)
    assert drawn[0] != drawn[1]


def test_empty_batches_are_steps_like_others():
    """At 3 records in 60 batches most batches are empty; each is a step, with noise and a charge."""
    data = poisson(DataLoader(TensorDataset(*(part[:3] for part in records().tensors)), batch_size=1))
    data.batch_sampler.sample_rate = 1e-9
    each = callback(PrivacyEngine(steps=3))
    _, model = fit(each, data=data)
    assert len(each.engine.accountant) == len(model.seen) == 3
    assert all(
        torch.isfinite(w).all() and not torch.equal(w, v) for w, v in zip(model.seen, model.seen[1:], strict=False)
    )


def test_the_module_is_as_before_when_training_ends():
    """No hook and no gradient of a record stays, after an end and after an error; and a second fit goes on counting."""
    each, model = callback(), Network()
    fit(each, model=model)
    assert not hasattr(model.net.weight, "grad_sample")
    assert not model.net._forward_hooks
    assert not model.net._backward_hooks
    trainer(each).fit(model, loader())
    assert len(each.engine.accountant) == 2 * BATCHES
    broken = Network()
    broken.on_train_batch_end = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        fit(each, model=broken)
    assert not broken.net._forward_hooks
    assert len(each.engine.accountant) == 2 * BATCHES + 1


# --- checkpoints and records ----------------------------------------------------------------------------------------


def checkpoint(path, each=None, **options):
    """A run of 10 steps whose checkpoint is written after the fourth; the trainer and the callback."""
    each = each or callback()

    class Save(callbacks.Callback):
        def on_train_batch_end(self, train, *_):
            if train.global_step == 4:
                train.save_checkpoint(path)

    fit(each, Save(), **options)
    return each


def test_an_old_checkpoint_gives_nothing_back_in_the_same_process(tmp_path):
    """Ten steps, back to the checkpoint after four, six more: sixteen were taken, and are charged once each."""
    each = checkpoint(tmp_path / "old.ckpt")
    train, model = fit(each, ckpt_path=tmp_path / "old.ckpt")
    assert train.global_step == 10
    assert len(model.seen) == 6
    assert len(each.engine.accountant) == each.engine.accountant.budget.count == 16


def test_a_new_process_needs_the_record_or_a_promise(tmp_path):
    """Without either it refuses, since ten steps were taken and the checkpoint knows of four."""
    checkpoint(tmp_path / "old.ckpt")
    each = callback()
    with pytest.raises(ArgumentError, match=r"4 steps.*record=.*checkpoint_is_newest=True"):
        fit(each, ckpt_path=tmp_path / "old.ckpt")
    assert len(each.engine.accountant) == 0
    each = callback(checkpoint_is_newest=True)
    fit(each, ckpt_path=tmp_path / "old.ckpt")
    assert len(each.engine.accountant) == 4 + 6


@pytest.mark.parametrize(
    "make",
    [
        lambda: PrivacyEngine(filters.RenyiCurve(orders=[8, 16], values=[5.0, 99.0])),
        lambda: PrivacyEngine(epsilon=4.0, delta=DELTA),
        lambda: PrivacyEngine(odometers.Renyi(delta=DELTA)),
        lambda: PrivacyEngine(steps=18),
    ],
    ids=["curve", "planned", "odometer", "fixed"],
)
def test_a_record_has_all_steps_whatever_is_resumed(make, tmp_path):
    """New processes that begin from an old checkpoint, and from none, charge all that earlier ones trained."""
    record, spent = tmp_path / "steps.json", []
    checkpoint(tmp_path / "old.ckpt", callback(make(), record=record))
    for path, steps in ((tmp_path / "old.ckpt", 16), (None, 18)):
        each = callback(make(), record=record)
        fit(each, ckpt_path=path, max_steps=10 if path else 2)
        assert len(each.engine.accountant) == steps
        spent.append(each.epsilon())
        assert sum(run[0][2] for run in json.loads(record.read_text())["runs"].values()) == steps
    assert spent[0] <= spent[1]
    assert record.stat().st_mode & 0o077 == 0


def test_a_spent_budget_is_not_spent_again_by_starting_anew(tmp_path):
    """With the record of a run that used all steps, another process takes none."""
    for taken in (7, 0):
        each = callback(PrivacyEngine(steps=7), record=tmp_path / "steps.json")
        assert fit(each)[0].global_step == taken
        assert len(each.engine.accountant) == 7


def test_a_record_is_written_before_a_step_is_taken(tmp_path, monkeypatch):
    """Where it can't be written, the step is charged and not taken."""
    each, model = callback(record=tmp_path / "steps.json"), Network()
    whole, writes = module_under_test.Record.write, []

    def write(self, state):
        writes.append(state)
        if len(writes) == 4:  # the first is at the start
            raise OSError("no space left")
        whole(self, state)

    monkeypatch.setattr(module_under_test.Record, "write", write)
    with pytest.raises(OSError, match="no space"):
        fit(each, model=model)
    assert len(model.seen) == 2
    assert torch.equal(model.net.weight, model.seen[-1])
    assert model.net.weight.grad is None
    assert len(each.engine.accountant) == 3


def test_records_are_held_by_one_training_at_a_time(tmp_path):
    """A second callback on the same file is refused, and takes no step; so is a file that is no record."""
    record = tmp_path / "steps.json"

    class Second(callbacks.Callback):
        def on_train_batch_end(self, *_):
            with pytest.raises(ArgumentError, match="in use"):
                fit(callback(record=record))

    fit(callback(record=record), Second(), max_steps=1)
    record.write_text("{")
    with pytest.raises(ArgumentError, match="can't be read"):
        fit(callback(record=record))
    with pytest.raises(ArgumentError, match="folder that exists"):
        fit(callback(record=tmp_path / "none" / "steps.json"))


def test_checkpoints_and_records_of_other_accounts_are_refused(tmp_path):
    """Another budget, another kind of account, and a checkpoint whose run was not counted at all."""
    path, record = tmp_path / "a.ckpt", tmp_path / "steps.json"
    checkpoint(path, callback(record=record))
    other = filters.Renyi(epsilon=9.0, delta=DELTA)
    with pytest.raises(ArgumentError, match="another budget"):
        fit(callback(PrivacyEngine(other), checkpoint_is_newest=True), ckpt_path=path)
    with pytest.raises(ArgumentError, match="another budget"):
        fit(callback(PrivacyEngine(other), record=record))
    with pytest.raises(ArgumentError, match="fixed-plan"):
        fit(callback(PrivacyEngine(steps=90), record=record))
    train = trainer()
    train.fit(Network(), loader())
    train.save_checkpoint(tmp_path / "plain.ckpt")
    with pytest.raises(ArgumentError, match="without PrivacyCallback"):
        fit(callback(), ckpt_path=tmp_path / "plain.ckpt")


def test_a_checkpoint_is_written_after_training_and_before_it_too(tmp_path):
    """What is saved after fit() has all steps, and resuming it takes none back."""
    each, model = callback(), Network()
    train, _ = fit(each, model=model)
    train.save_checkpoint(tmp_path / "end.ckpt")
    again = callback(checkpoint_is_newest=True)
    fit(again, ckpt_path=tmp_path / "end.ckpt", epochs=2)
    assert len(again.engine.accountant) == 20
    assert callback().state_dict() == {}


# --- refusals -------------------------------------------------------------------------------------------------------


class Elsewhere(SingleDeviceStrategy):
    """A strategy whose steps nobody here has read."""


class Manual(Network):
    automatic_optimization = False


class Iterating(Network):
    def training_step(self, dataloader_iter):
        return super().training_step(next(dataloader_iter)[0], 0)


class Ready(Network):
    def configure_optimizers(self):
        plain = super().configure_optimizers()[0]
        make = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "data_loader": DataLoader(records(), batch_size=6)}
        return PrivacyEngine(steps=9).make_private(module=self, optimizer=plain, wrap_model=False, **make)[1]


@pytest.mark.filterwarnings("ignore:.*`dataloader_iter`")
@pytest.mark.parametrize(
    ("match", "options"),
    [
        ("accumulate_grad_batches must be 1", {"accumulate_grad_batches": 2}),
        ("gradient_clip_val has no effect", {"gradient_clip_val": 1.0}),
        ("overfit_batches takes", {"overfit_batches": 2}),
        ("precision='bf16-true'", {"precision": "bf16-true"}),
        ("reload_dataloaders", {"reload_dataloaders_every_n_epochs": 1}),
        ("LearningRateFinder", {"more": [callbacks.LearningRateFinder()]}),
        ("strategy=Elsewhere with 1", {"strategy": Elsewhere("cpu")}),
        ("automatic_optimization=False", {"model": Manual}),
        ("several batches into one step", {"model": Iterating}),
        ("2 optimizers", {"model": lambda: Network(optimizers=2)}),
        ("calls make_private", {"model": Ready}),
    ],
)
def test_what_has_no_price_is_refused_by_name(match, options, monkeypatch):
    """Settings under which a step is not one noisy sum over one Poisson batch; nothing is charged."""
    monkeypatch.setattr(callbacks.BatchSizeFinder, "on_fit_start", lambda *_: None)
    if "2 optimizers" in match:
        monkeypatch.setattr("lightning.pytorch.core.optimizer._validate_multiple_optimizers_support", lambda *_: None)
    each, model = callback(), options.pop("model", Network)()
    with pytest.raises(Unsupported, match=match):
        fit(each, *options.pop("more", []), model=model, **options)
    assert each.epsilon() == 0.0
    assert not model.seen


def test_several_devices_are_refused(monkeypatch):
    """Each process would add its own noise to its own part of the batch."""
    monkeypatch.setattr(Trainer, "world_size", 2)
    with pytest.raises(Unsupported, match="with 2 processes; one device only"):
        fit(callback())


class Endless(IterableDataset):
    def __iter__(self):
        yield from records()


def test_loaders_that_are_no_poisson_samples_are_refused():
    """Shuffled batches, invented records, a sampler of its own, a seed's batches, and data sets without an end."""
    plain = DataLoader(records(), batch_size=6, shuffle=True)
    sampler = UniformWithReplacementSampler(num_samples=N, sample_rate=0.5, steps=10, generator=torch.Generator())
    invented = DPDataLoader.from_data_loader(plain, generator=torch.Generator(), rand_on_empty=True)
    half = UniformWithReplacementSampler(num_samples=N // 2, sample_rate=0.1, generator=torch.Generator())
    collate = poisson(plain).collate_fn
    for wrong, match in (
        (plain, "DataLoader with BatchSampler has no price"),
        ([loader(), loader()], "list with NoneType"),
        (DPDataLoader.from_data_loader(plain), "same batches again"),
        (invented, "rand_on_empty=False"),
        (DataLoader(records(), batch_sampler=half, collate_fn=collate), "not that of its data set"),
        (DataLoader(records(), batch_sampler=sampler, collate_fn=collate), "sample rate"),
    ):
        each = callback()
        with pytest.raises(Unsupported, match=match):
            fit(each, data=wrong)
        assert len(each.engine.accountant) == 0
    with pytest.raises(Unsupported, match="IterableDataset"):
        poisson(DataLoader(Endless()))


@pytest.mark.filterwarnings("ignore:`training_step` returned")
def test_what_training_step_cannot_do_is_refused():
    """A skipped step, which adds its batch to the next one, and one without a loss, take no step."""

    class Skipping(Network):
        def training_step(self, batch, batch_idx):
            if batch_idx == 3:
                self.trainer.optimizers[0].signal_skip_step(True)
            return super().training_step(batch, batch_idx)

    class Silent(Network):
        def training_step(self, batch, batch_idx):
            return None if batch_idx == 3 else super().training_step(batch, batch_idx)

    for model, error, match in (
        (Skipping(), Unsupported, "signal_skip_step: several Poisson batches"),
        (Silent(), ValueError, "Per sample gradient"),
    ):
        each = callback()
        with pytest.raises(error, match=match):
            fit(each, model=model)
        assert len(each.engine.accountant) == 3
        assert torch.equal(model.net.weight, model.seen[2])
        assert model.net.weight.grad is None


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_a_run_with_all_that_modules_have(tmp_path):
    """Adam with a schedule, validation, workers, a logger: resumed, the optimizer goes on as it was saved."""

    class Full(Network):
        def validation_step(self, batch, batch_idx):
            self.log("held out", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters(), lr=0.1)
            schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
            return {"optimizer": optimizer, "lr_scheduler": schedule}

    def run(each, epochs, path=None):
        logger = CSVLogger(tmp_path)
        train = trainer(each, epochs=epochs, logger=logger, log_every_n_steps=1)
        data = poisson(DataLoader(records(), batch_size=N // BATCHES, num_workers=1, persistent_workers=True))
        train.fit(Full(), data, DataLoader(records(), batch_size=N), ckpt_path=path)
        return train, logger

    train, logger = run(callback(), 2)
    train.save_checkpoint(tmp_path / "full.ckpt")
    assert "epsilon" in (Path(logger.log_dir) / "metrics.csv").read_text().splitlines()[0]
    each = callback(checkpoint_is_newest=True)
    train, _ = run(each, 3, tmp_path / "full.ckpt")
    (state,) = train.optimizers[0].state.values()
    assert int(state["step"]) == train.global_step == len(each.engine.accountant) == 3 * BATCHES
    assert train.optimizers[0].param_groups[0]["lr"] == 0.1 / 8


def test_what_changes_on_the_way_is_refused():
    """Another optimizer, sample rate or loader, and batches that add up, are noticed before the next step."""

    def rate(train):
        train.train_dataloader.batch_sampler.sample_rate = 0.5

    def optimizer(train):
        train.optimizers = [train.optimizers[0].original_optimizer]

    def hook(train):
        train.optimizers[0].attach_step_hook(lambda _: None)

    def accumulate(train):
        train.accumulate_grad_batches = 2

    for change, match in (
        (rate, "sample rate"),
        (optimizer, "optimizer was replaced"),
        (hook, "optimizer was replaced"),
        (accumulate, "must be 1"),
    ):

        class Change(callbacks.Callback):
            def on_train_batch_end(self, train, *_, change=change):
                if train.global_step == 3:
                    change(train)

        each, model = callback(), Network()
        with pytest.raises(Unsupported, match=match):
            fit(each, Change(), model=model)
        assert len(each.engine.accountant) == len(model.seen) == 3
        assert torch.equal(model.net.weight, model.seen[-1])


def test_arguments_are_refused_by_name():
    """An engine of Opacus itself, no noise, other options, ghost clipping, and targets without an odometer."""
    for options, match in (
        ({"engine": opacus.PrivacyEngine()}, "engine="),
        ({"noise_multiplier": float("nan")}, "noise_multiplier"),
        ({"noise_multiplier": 0.0}, "noise_multiplier"),
        ({"max_grad_norm": 0.0}, "max_grad_norm"),
        ({"max_grad_norm": float("inf")}, "max_grad_norm"),
        ({"delta": 1.0}, "delta"),
        ({"poisson_sampling": False}, "poisson_sampling"),
        ({"clipping": "adaptive"}, "clipping"),
        ({"target_epsilon": 1.0}, "target_epsilon"),
        ({"target_epsilon": float("nan")}, "target_epsilon"),
    ):
        with pytest.raises(ArgumentError, match=match):
            callback(**options)
    with pytest.raises(Unsupported, match="ghost"):
        callback(grad_sample_mode="ghost")
    with pytest.raises(CopyRefused):
        copy.deepcopy(callback())


def test_a_forked_process_may_not_train(monkeypatch):
    """Both would draw the same noise, and spend the same budget."""
    each, number = callback(), os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: number + 1)
    with pytest.raises(ArgumentError, match="forked"):
        fit(each)


def test_metrics_that_decide_are_named(caplog):
    """A callback that stops by a loss is reported; one that looks at epsilon is not."""
    watching = [callbacks.EarlyStopping(monitor="loss"), callbacks.EarlyStopping(monitor="epsilon", patience=99)]
    with caplog.at_level(logging.WARNING, "almoner.interop.lightning"):
        fit(callback(), *watching)
    assert [each.message for each in caplog.records] == [
        "EarlyStopping follows 'loss': what that tells of people is not in epsilon"
    ]


def test_logged_numbers_are_rounded_up():
    """A logger holds 32 bits: never less than the epsilon."""
    for number in np.random.default_rng(0).uniform(0, 20, 100).tolist():
        shown = module_under_test._rounded_up(number)
        assert number <= shown == float(np.float32(shown)) <= number * (1 + 2e-7)


def test_without_lightning_the_extra_is_named(monkeypatch):
    """An import without Lightning says what to install."""
    for name in [
        name for name in sys.modules if name.split(".")[0] == "lightning" or name == "almoner.interop.lightning"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(MissingExtra, match=r"install '\.\[lightning\]'"):
        __import__("almoner.interop.lightning")

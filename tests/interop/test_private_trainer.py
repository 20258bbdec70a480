"""transformers' Trainer with private steps: what it logs, saves and resumes, and who is in its sums."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers
from huggingface_hub.utils import filter_repo_objects
from torch.utils.data import Dataset

from almoner import errors, filters, individual, mechanisms, training
from almoner.interop.transformers import PrivateTrainer
from almoner.training._run.models import Processes

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in (".*pin_memory", ".*lr_scheduler.step", ".*does not have many workers", ".*torch.cpu.amp")
]
N = 40


class Texts(Dataset):
    """Words say the class; a column of no use beside them."""

    def __init__(self, seed=0, records=N):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(2, (records,), generator=generator)
        self.words = torch.randint(4, 20, (records, 6), generator=generator)
        self.words[:, :3] = 2 + self.labels[:, None]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, row):
        return {"input_ids": self.words[row], "labels": int(self.labels[row]), "of no use": "a text"}


def model(dropout=0.0):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    off = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), dropout)
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(num_labels=2, vocab_size=20, max_position_embeddings=8, **sizes, **off)
    )


def private(folder, *, texts=None, callbacks=(), people=None, args=None, others=None, **options):
    settings = {
        "num_train_epochs": 2, "per_device_train_batch_size": 10, "learning_rate": 0.01, "report_to": "none",
        "logging_steps": 1, "save_steps": 3, "use_cpu": True, "disable_tqdm": True, "lr_scheduler_type": "linear",
    } | (args or {})  # fmt: skip
    options = {"budget": training.Target(epsilon=8.0, delta=1e-5), "max_grad_norm": 1.0, "divisor": N} | options
    return PrivateTrainer(
        model(), transformers.TrainingArguments(str(folder), **settings), train_dataset=texts or Texts(),
        eval_dataset=Texts(seed=1), people=people, callbacks=list(callbacks), **(others or {}), **options,
    )  # fmt: skip


@pytest.fixture
def silent(monkeypatch):
    """No noise: what is left is the sum of what people contributed."""
    monkeypatch.setattr(Processes, "noisy_total", lambda _, sums, sigma, generator: [part.clone() for part in sums])


def parameters(trainer):
    return torch.cat([each.detach().flatten() for each in trainer.model.parameters()])


def test_a_model_learns_with_their_schedule_logs_and_evaluation(tmp_path):
    """Loss on other texts falls, the rate decays, the card says budget, batch and epochs; no training loss is told."""
    trainer = private(
        tmp_path,
        budget=training.Target(epsilon=1000.0, delta=1e-3),
        args={"num_train_epochs": 20, "eval_strategy": "epoch", "save_strategy": "no", "learning_rate": 0.01},
        individual=False,
    )
    done = trainer.train()
    history = trainer.state.log_history
    losses = [each["eval_loss"] for each in history if "eval_loss" in each]
    rates = [each["learning_rate"] for each in history if "learning_rate" in each]
    assert losses[-1] < 0.5 * losses[0]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == done.global_step == trainer.state.max_steps == 80
    assert not any(name in each for each in history for name in ("loss", "grad_norm", "train_loss"))
    card = trainer.private.card()
    assert (card.epsilon, card.steps, card.sample_rate, card.divisor) == (1000.0, 80, 0.25, 10.0)
    assert "10 in a step on average, 20 epochs" in card.to_markdown()


class Stop(transformers.TrainerCallback):
    """Interrupts the training after a step."""

    def __init__(self, at):
        self.at = at

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [6, 7], ids=["at the checkpoint", "after it"])
def test_a_resumed_run_is_the_undisturbed_one(tmp_path, silent, monkeypatch, at):
    """Stopped and resumed: parameters, rates and accounts are those of a run that nobody stopped, to the bit."""
    monkeypatch.setattr(training.Poisson, "begin", lambda self, run: training.FullBatch())
    whole = private(tmp_path / "a")
    whole.train()
    with pytest.raises(KeyboardInterrupt):
        private(tmp_path / "b", callbacks=[Stop(at)]).train()
    again = private(tmp_path / "b")
    again.train(resume_from_checkpoint=True)
    assert torch.equal(parameters(whole), parameters(again))
    assert again.state.global_step == again.private.card().steps == whole.state.global_step == 8
    np.testing.assert_array_equal(again.private.shares(), whole.private.shares())


def test_what_was_charged_stays_charged(tmp_path):
    """Resumed from a checkpoint without what came after it, everybody still pays for what was announced since."""
    with pytest.raises(KeyboardInterrupt):
        private(tmp_path, callbacks=[Stop(5)], individual=False).train()
    state = tmp_path / "_accounts" / "state.npz"
    kept = state.read_bytes()
    again = private(tmp_path, callbacks=[Stop(7)], individual=False)
    with pytest.raises(KeyboardInterrupt):
        again.train(resume_from_checkpoint=True)
    assert again.private.accounts.budget.count == 7
    state.write_bytes(kept)  # as after a crash: two steps are in the journal alone
    last = private(tmp_path, individual=False)
    last.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert last.private.accounts.budget.count == 8
    assert sum(times for _, times in last.private.card().released) in (0, 8)
    assert last.private._view.reason == "the budget is spent"
    assert last.private.card().steps == 6  # the model's: two of the eight that were paid are lost


def test_what_is_uploaded_to_the_hub_holds_no_accounts(tmp_path, monkeypatch):
    """Files that ``push_to_hub`` takes are the model's; the private folder beside them is none of them."""
    asked = {}
    monkeypatch.setattr(transformers.trainer, "hf_api", lambda: SimpleNamespace(upload_folder=asked.update))
    trainer = private(tmp_path, args={"num_train_epochs": 1, "save_strategy": "no"})
    monkeypatch.setattr(trainer, "create_model_card", lambda **_: None)
    trainer.hub_model_id = "somebody/model"
    trainer.train()
    trainer.push_to_hub()
    files = [str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*") if each.is_file()]
    taken = list(filter_repo_objects(files, ignore_patterns=asked["ignore_patterns"]))
    assert any(each.endswith("state.npz") for each in files)
    assert "model.safetensors" in taken
    assert not [each for each in taken if "accounts" in each]


def test_accounts_that_are_missing_or_old_are_refused(tmp_path):
    """A checkpoint without its accounts, and a second run over the first, train nothing."""
    private(tmp_path).train()
    with pytest.raises(errors.ArgumentError, match="holds a run already"):
        private(tmp_path).train()
    (tmp_path / "_accounts").rename(tmp_path / "elsewhere")
    trainer = private(tmp_path)
    with pytest.raises(errors.ArgumentError, match="those of step 0, before the checkpoint's step 6"):
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))


def test_a_person_who_is_refused_contributes_nothing(tmp_path, silent):
    """With an account that is spent, the model is bit for bit that of a table without the person."""

    def trained(folder, exhausted, labels):
        texts = Texts()
        texts.labels[:2] = labels
        accounts = individual.Filter(
            20, filters.RenyiOrder(alpha=8, rho=5000), shares=np.where(np.arange(20) == 0, exhausted, 1.0)
        )
        trainer = private(
            folder, texts=texts, budget=accounts, people=np.arange(N) // 2, divisor=20, noise_multiplier=1.0,
            args={"per_device_train_batch_size": 20, "save_strategy": "no"},
        )  # fmt: skip
        trainer.train()
        return trainer

    one, other = (trained(tmp_path / str(label), 1e-12, label) for label in (0, 1))
    assert torch.equal(parameters(one), parameters(other))  # nothing of the first person's labels
    one, other = (trained(tmp_path / f"in {label}", 1.0, label) for label in (0, 1))
    assert not torch.equal(parameters(one), parameters(other))
    assert len(one.private.shares()) == 20


def test_a_budget_that_ends_first_ends_their_loop(tmp_path):
    """Four rounds are paid for and eight planned: four steps, four in their state, and the run says why."""
    step = mechanisms.SampledGaussian(1.0, 1.0, 0.25)
    one = filters.RenyiOrder(alpha=8, rho=5000)
    one.charge(step)
    budget = filters.RenyiOrder(alpha=8, rho=one.spent * 4.5)
    trainer = private(tmp_path, budget=budget, noise_multiplier=1.0, individual=False)
    assert trainer.train().global_step == 4
    assert (trainer.private.card(delta=1e-5).steps, trainer.private._view.reason) == (4, "the budget is spent")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"args": {"gradient_accumulation_steps": 4}}, "per_device_train_batch_size=40"),
        ({"args": {"label_smoothing_factor": 0.1}}, "label_smoothing_factor=0"),
        ({"others": {"compute_loss_func": lambda *_: 0}}, "give loss="),
        ({"divisor": 5}, "must be at most divisor=5"),
    ],
)
def test_what_is_not_done_here_is_refused(tmp_path, settings, said):
    """Several sums in a step, losses that are not per record, and more people in a batch than there are."""
    with pytest.raises(errors.AlmonerError, match=said):
        private(tmp_path, **settings)


def test_a_trainer_trains_once(tmp_path):
    """The second call would spend the budget again."""
    trainer = private(tmp_path, args={"max_steps": 1})
    trainer.train()
    with pytest.raises(errors.ArgumentError, match="trained already"):
        trainer.train()
    assert json.loads((tmp_path / "checkpoint-1" / "trainer_state.json").read_text())["global_step"] == 1

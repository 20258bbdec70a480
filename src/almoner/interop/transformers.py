"""Models of Hugging Face's transformers: their ``Trainer`` with private steps, their batches and their losses.

A model is trained as it is: it is called by name with a dict of tensors, and a person may have many texts
(``people=``), whose gradients are added up and clipped once. Needs transformers 5 (extra ``transformers``).
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from almoner import _extras
from almoner.errors import ArgumentError, Unsupported
from almoner.interop._steps import MANY, Steps
from almoner.training import Compute, RunFolder, Trainer

with _extras.need("transformers", "torch", extra="transformers"):
    import torch
    import transformers
    from torch import Tensor
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader

__all__ = ["PrivateTrainer", "class_loss", "token_loss"]

IGNORED = -100  # the label of a place that does not count, as in transformers


def class_loss(output: Any, labels: Tensor) -> Tensor:
    """The loss of each record of a model that classifies whole records.

    Args:
        output: private. Has ``logits`` of shape (records, classes).
        labels: (records,) private.

    Returns:
        (records,) nats, private.
    """
    return cross_entropy(_logits(output), labels, reduction="none")


def token_loss(output: Any, labels: Tensor, *, shift: bool = True) -> Tensor:
    """The mean loss over the places of each record that count, of a language model or one that classifies words.

    Args:
        output: private. Has ``logits`` of shape (records, places, classes).
        labels: (records, places) private; ``IGNORED`` where a place does not count.
        shift: public. Whether each place is to say the next label, as in causal models; not in masked ones or classes.

    Returns:
        (records,) nats, private; 0 for a record in which no place counts. Each mean is over that record's own places.
    """
    logits = _logits(output)
    if shift:
        logits, labels = logits[:, :-1], labels[:, 1:]
    losses = cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=IGNORED)
    return losses.sum(1) / (labels != IGNORED).sum(1).clamp(min=1)


def _logits(output: Any) -> Tensor:
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        take = "take one with a head, such as AutoModelForSequenceClassification"
        raise ArgumentError(f"loss: the model gives no logits: {take}")
    return logits


class PrivateTrainer(transformers.Trainer):
    """transformers' Trainer, in which each person's gradient is clipped, charged and hidden by ``training.Trainer``.

    Schedules, logging, evaluation, callbacks, checkpoints and resuming are transformers'. A step samples people, so
    many on average as ``args`` says a batch has.

    Args:
        model, args, others: public, as of transformers, with a map-style ``train_dataset``, private, of one shape.
        budget, max_grad_norm, divisor, noise_multiplier, individual, compute: public. As of ``training.Trainer``; the
            divisor is the public number of people. The clip of ``args`` is not used.
        people: (records,) private: whose each record is; None: each is a person.
        loss: public. Of the model's output and the labels, one for each record.

    Accounts, model and optimizer are in ``args.output_dir/_accounts``, private: ``push_to_hub`` leaves it out.
    Resuming goes on from them: what was charged since the checkpoint stays charged, and steps are not taken again.

    The loss of the training records is private: it is neither computed nor logged. Evaluation is not charged.

    Guarantee: that of ``training.Trainer``.
    Source: that of ``training.Trainer``.
    """

    private: Trainer | None = None
    """The training, once it has begun: its card, its accounts, statements for people."""
    _steps: Steps | None = None

    def __init__(
        self,
        model: Any,
        args: Any,
        *,
        budget: Any,
        max_grad_norm: float,
        divisor: float,
        people: Sequence[Hashable] | None = None,
        loss: Callable[..., Tensor] = class_loss,
        noise_multiplier: float | None = None,
        individual: bool = True,
        compute: Compute | None = None,
        **others: Any,
    ) -> None:
        super().__init__(model, args, **others)
        self._settings: dict[str, Any] = {"max_grad_norm": max_grad_norm, "divisor": divisor, "individual": individual}
        self._settings |= {"noise_multiplier": noise_multiplier, "compute": compute}
        self._budget, self._people, self._loss, self._resumed = budget, people, loss, False
        args, batch = self.args, self.args.train_batch_size
        if args.gradient_accumulation_steps != 1:
            line = f"per_device_train_batch_size={batch * args.gradient_accumulation_steps}"
            raise Unsupported(MANY.format("gradient_accumulation_steps", args.gradient_accumulation_steps, line))
        for name, wanted in {"world_size": 1, "n_gpu": 1, "fp16": False, "label_smoothing_factor": 0}.items():
            if getattr(args, name) > wanted:
                raise Unsupported(f"args: {name}={getattr(args, name)!r} is not done here: give {name}={wanted!r}")
        if self.compute_loss_func is not None or self.model_init is not None:
            raise Unsupported("compute_loss_func, model_init: give loss=, one number for each record, and model=")
        if not batch <= divisor:
            raise ArgumentError(f"per_device_train_batch_size={batch} must be at most divisor={divisor!r}, the people")

    def get_train_dataloader(self) -> Any:
        """An epoch of as many steps as there are batches of people; the steps themselves take the records."""
        steps = ceil(self._settings["divisor"] / self.args.train_batch_size)
        return DataLoader([{}] * steps, collate_fn=lambda _: {})  # type: ignore[arg-type]

    def train(self, resume_from_checkpoint: str | bool | None = None, *others: Any, **named: Any) -> Any:
        """Train, once; resuming charges again nothing that was charged, and gives nothing back."""
        if self.private is not None:
            raise ArgumentError("this trainer has trained already: another run needs another trainer and budget")
        self._resumed = bool(resume_from_checkpoint)
        try:
            done = super().train(resume_from_checkpoint, *others, **named)
        except BaseException:
            if self._steps is not None:
                self._steps.close()
            raise
        if self._steps is not None:
            self._steps.finish()
        return done

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:  # noqa: ARG002 - transformers gives them
        """Take a step of the training, with its optimizer; transformers' own step after it finds no gradients."""
        model.train()
        steps = self._steps = self._steps or self._begun()
        if steps.run.step == self.state.global_step:  # else it was taken before a crash
            steps.take()
        if not steps.more:
            self.control.should_training_stop = True
        return torch.zeros((), device=self.args.device)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log what is public."""
        for name in ("loss", "grad_norm", "train_loss"):
            logs.pop(name, None)
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        if self._steps is not None:
            self._steps.save()  # first: accounts are never older than a model
        super()._save_checkpoint(model, trial)

    def _begun(self) -> Steps:
        model: Any = self.model
        optimizer: Any = getattr(self.optimizer, "optimizer", self.optimizer)
        plan: Any = {"steps": self.state.max_steps, "batch_size": self.args.train_batch_size, **self._settings}
        self.private = Trainer(model, self._loss, optimizer, self._budget, **plan)
        collate = self._get_collator_with_removed_columns(self.data_collator)
        records: Any = DataLoader(self.train_dataset, collate_fn=collate)  # type: ignore[arg-type]
        folder = RunFolder(Path(str(self.args.output_dir)) / "_accounts", resume=self._resumed)  # "_*" is not uploaded
        steps = Steps(self.private, records, people=self._people, folder=folder)
        steps.refuse_older(self.state.global_step, "resume_from_checkpoint", "output_dir")
        return steps

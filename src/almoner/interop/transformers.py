"""Models of Hugging Face's transformers in ``training.Trainer``: their batches and their losses.

A model is trained as it is: ``Trainer.fit`` and ``Stream.update`` call it by name with a dict of tensors, and a
person may have many texts (``people=``), whose gradients are added up and clipped once. This is what lies in between.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from almoner import _extras
from almoner.errors import ArgumentError

with _extras.need("torch", extra="torch"):
    import torch
    from torch import Tensor
    from torch.nn.functional import cross_entropy

__all__ = ["class_loss", "padded", "token_loss"]

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


def padded(
    encodings: Mapping[str, Sequence[Sequence[int]]], *, length: int, padding: int = 0, causal: bool = False
) -> dict[str, Tensor]:
    """Tensors of one length, cut or filled up, of what a tokenizer gave for each text.

    Args:
        encodings: private, ``tokenizer(texts)`` or columns of a data set: lists of numbers by name, with ``input_ids``.
        length: public. The number of places. It must not be the longest text's: that is a fact about one person.
        padding: public. The number that ``input_ids`` are filled up with; other columns are filled up with 0.
        causal: public. Add ``labels`` for a causal language model: the words themselves, and IGNORED behind their end.

    Returns:
        (records, length) whole numbers by name, with an ``attention_mask``.
    """
    if length < 1 or "input_ids" not in encodings:
        raise ArgumentError(f"encodings must have input_ids, and length={length!r} must be at least 1")
    sizes = torch.tensor([min(length, len(each)) for each in encodings["input_ids"]])
    there = torch.arange(length) < sizes[:, None]

    def filled(rows: Sequence[Sequence[int]], value: int) -> Tensor:
        made = torch.full((len(rows), length), value)
        for number, row in enumerate(rows):
            made[number, : min(length, len(row))] = torch.as_tensor(row[:length])
        return made

    found = {
        name: filled(rows, padding if name == "input_ids" else 0)
        for name, rows in encodings.items()
        if len(rows) == len(sizes) and all(isinstance(row, list | tuple | Tensor) for row in rows)
    }
    found["attention_mask"] = there.long()
    if causal:
        found["labels"] = torch.where(there, found["input_ids"], IGNORED)
    return found


def _logits(output: Any) -> Tensor:
    logits = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", output)
    if not isinstance(logits, Tensor):
        take = "take one with a head, such as AutoModelForSequenceClassification"
        raise ArgumentError(f"loss: the model gives no logits: {take}")
    return logits

"""Models of transformers in few lines: their losses against their own, their batches, and a person with many texts."""

import pytest
import torch
import transformers

from almoner import errors, training
from almoner.interop.transformers import IGNORED, class_loss, token_loss

SMALL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "vocab_size": 30}
TEXTS = {
    "input_ids": [[2, 3, 4], [5, 6], [7, 8, 9, 10, 11, 12], [13]],
    "token_type_ids": [[0, 0, 1], [1, 1], [0] * 6, [0]],
}


def llama():
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL))


def bert():
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(transformers.BertConfig(num_labels=3, **SMALL))


def padded(*, causal):
    """The texts filled up to six places, as a tokenizer does it, and labels where they say the next word."""
    found = {name: torch.tensor([row + [0] * (6 - len(row)) for row in rows]) for name, rows in TEXTS.items()}
    found["attention_mask"] = torch.tensor([[1] * len(row) + [0] * (6 - len(row)) for row in TEXTS["input_ids"]])
    if causal:
        found["labels"] = found["input_ids"].masked_fill(found["attention_mask"] == 0, IGNORED)
    return found


def test_losses_are_those_of_the_models_for_each_record():
    """One record at a time, transformers' own loss is ours; a text with one word has none."""
    model, batch = llama().eval(), padded(causal=True)
    del batch["token_type_ids"]
    labels = batch.pop("labels")
    ours = token_loss(model(**batch), labels)
    for row in range(3):
        one = {name: part[row : row + 1] for name, part in batch.items()}
        assert torch.allclose(model(**one, labels=labels[row : row + 1]).loss, ours[row], rtol=1e-5)
    assert ours[3] == 0.0
    classifier, classes = bert().eval(), torch.tensor([0, 2, 1, 1])
    ours = class_loss(classifier(**batch), classes)
    assert torch.allclose(classifier(**batch, labels=classes).loss, ours.mean(), rtol=1e-5)
    with pytest.raises(errors.ArgumentError, match="no logits"):
        class_loss({"hidden": 3}, classes)


@pytest.mark.parametrize("kind", ["words", "classes"])
def test_a_person_with_many_texts_is_one_person(kind):
    """Fine-tuning with a budget of each user's: two users with two texts each, two accounts."""
    batch = padded(causal=kind == "words")
    model, loss = (llama(), token_loss) if kind == "words" else (bert(), class_loss)
    labels = batch.pop("labels", torch.tensor([0, 2, 1, 1]))
    if kind == "words":
        del batch["token_type_ids"]
    trainer = training.Trainer(
        model,
        loss,
        torch.optim.AdamW(model.parameters()),
        training.Target(epsilon=8.0, delta=1e-5),
        max_grad_norm=1.0,
        divisor=2,
        steps=2,
    )
    run = trainer.fit(batch, labels, people=["anna", "bert", "anna", "bert"])
    assert run.step == 2
    assert len(trainer.shares()) == 2
    assert trainer.card().epsilon == 8.0

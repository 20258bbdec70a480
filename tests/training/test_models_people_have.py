"""Networks as people have them, from their configs: gradients per person against a naive loop, and a first step."""

import numpy as np
import peft
import pytest
import torch
import transformers
from torch import nn

from almoner import filters, mechanisms, training
from almoner.training.gradients import Gradients
from gradient_modules import naive

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # peft's, of transformers

BY_RECORD = nn.CrossEntropyLoss(reduction="none")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
WORDS = {"vocab_size": 30, "bos_token_id": 0, "eos_token_id": 1}


def of_class(output, labels):
    """One loss for each record."""
    return BY_RECORD(getattr(output, "logits", output), labels)


def of_next_words(output, words):
    """The mean over places of the loss of the next word, for each record."""
    return BY_RECORD(output.logits[:, :-1].transpose(1, 2), words[:, 1:]).mean(1)


def bert():
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(vocab_size=30, max_position_embeddings=16, num_labels=3, **SMALL)
    )


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_positions=16, n_embd=16, n_layer=2, n_head=2, **WORDS)
    )


def vit():
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, hidden_dropout_prob=0.1, **SMALL)
    )


def llama():
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(num_key_value_heads=1, **SMALL, **WORDS))


def adapted(make, *layers, **options):
    """With low-rank adapters, whose second matrix, zero at first, is drawn as well."""
    module = peft.get_peft_model(make(), peft.LoraConfig(r=2, target_modules=list(layers), **options))
    for name, parameter in module.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.1)
    return module


class Block(nn.Module):
    """Two convolutions with group normalisation around a shortcut."""

    def __init__(self, into, out, stride):
        super().__init__()
        self.first, self.norm = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.GroupNorm(2, out)
        self.second, self.other = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.GroupNorm(2, out)
        self.short = nn.Conv2d(into, out, 1, stride)

    def forward(self, x):
        y = self.other(self.second(torch.relu(self.norm(self.first(x)))))
        return torch.relu(y + self.short(x))


def resnet():
    layers = (Block(4, 4, 1), Block(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3))
    return nn.Sequential(nn.Conv2d(3, 4, 3, 1, 1), *layers)


class Lstm(nn.Module):
    """Words in, a class out, from the last state of each sequence."""

    def __init__(self):
        super().__init__()
        self.words, self.layer, self.out = nn.Embedding(30, 6), nn.LSTM(6, 5, 2, batch_first=True), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(self.layer(self.words(x))[1][0][-1])


class SampleConvNet(nn.Module):
    """The network of Opacus's examples/mnist.py, as it stands there."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 8, 2, padding=3)
        self.conv2 = nn.Conv2d(16, 32, 4, 2)
        self.fc1 = nn.Linear(32 * 4 * 4, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        # x of shape [B, 1, 28, 28]
        x = nn.functional.relu(self.conv1(x))  # -> [B, 16, 14, 14]
        x = nn.functional.max_pool2d(x, 2, 1)  # -> [B, 16, 13, 13]
        x = nn.functional.relu(self.conv2(x))  # -> [B, 32, 5, 5]
        x = nn.functional.max_pool2d(x, 2, 1)  # -> [B, 32, 4, 4]
        x = x.view(-1, 32 * 4 * 4)  # -> [B, 512]
        x = nn.functional.relu(self.fc1(x))  # -> [B, 32]
        return self.fc2(x)  # -> [B, 10]


def texts(names=("input_ids", "attention_mask")):
    """Seven texts of 9 words, some of them padded."""
    ids, mask = torch.randint(2, 30, (7, 9)), torch.ones(7, 9, dtype=torch.long)
    mask[:3, 6:] = 0
    return {name: part for name, part in (("input_ids", ids), ("attention_mask", mask)) if name in names}


def classes():
    return torch.randint(3, (7,))


def images(size=8, channels=3):
    return torch.randn(7, channels, size, size)


MODELS = {
    "BERT": (bert, texts, of_class),
    "BERT, LoRA": (lambda: adapted(bert, "query", "value"), texts, of_class),
    "GPT-2": (gpt2, texts, of_next_words),
    "GPT-2, LoRA": (lambda: adapted(gpt2, "c_attn", fan_in_fan_out=True), texts, of_next_words),
    "ViT": (vit, lambda: {"pixel_values": images()}, of_class),
    "Llama": (llama, texts, of_next_words),
    "Llama, LoRA": (lambda: adapted(llama, "q_proj", "v_proj"), texts, of_next_words),
    "Llama, DoRA": (lambda: adapted(llama, "q_proj", use_dora=True), texts, of_next_words),
    "ResNet": (resnet, images, of_class),
    "LSTM": (Lstm, lambda: texts()["input_ids"], of_class),
    "Opacus's network for MNIST": (SampleConvNet, lambda: images(28, 1), of_class),
}


def setting(name):
    """A model, records for it, targets and a loss."""
    torch.manual_seed(5)
    make, draw, loss = MODELS[name]
    module, x = make(), draw()
    return module, x, x["input_ids"] if loss is of_next_words else classes(), loss


class Silent:
    """Draws no noise."""

    def normal(self, mean, sigma, size):
        return np.zeros(size)


def naive_sum(module, loss, x, y, people, clip):
    """The sum of people's clipped gradients, flat, by a backward pass for each record, and their norms."""
    parts = naive(module, loss, x, y)
    rows = torch.stack([torch.cat([part.reshape(-1) for part in each]) for each in parts]).double()
    rows = torch.zeros(int(people.max()) + 1, rows.shape[1], dtype=torch.float64).index_add_(0, people, rows)
    norms = rows.norm(dim=1)
    return (rows * (clip / norms.clamp(min=clip))[:, None]).sum(0), norms


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_clipped_sums_over_people_are_those_of_a_naive_loop(name):
    """Two people have several records each; norms are charged and sums are made as one backward pass a record gives."""
    module, x, y, loss = setting(name)
    engine = Gradients(module, loss)
    engine.prepare(x, y)  # in training mode, with dropout
    module.eval()
    people = torch.tensor([0, 1, 1, 2, 3, 1, 2])
    _, norms = naive_sum(module, loss, x, y, people, 1.0)
    clip = float(norms.median())
    expected, _ = naive_sum(module, loss, x, y, people, clip)
    for at_once in (3, 50):
        engine._records_at_once, engine._modes, engine._compared = at_once, engine._modes_now(), 4
        sums, found = engine.sums(x, y, clip, people=people)
        assert torch.allclose(found, norms, rtol=1e-4)
        assert (found >= norms * (1 - 1e-6)).all()
        assert (torch.cat([part.reshape(-1) for part in sums]) - expected).norm() <= 1e-5 * clip * 7


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_first_step_moves_the_parameters_as_the_optimizer_says(name, monkeypatch):
    """Without the noise, plain gradient descent takes the naive clipped sum over the divisor, times the rate."""
    module, x, y, loss = setting(name)
    module.eval()
    people = torch.tensor([0, 1, 1, 2, 3, 1, 2])
    expected, _ = naive_sum(module, loss, x, y, people, 0.5)
    monkeypatch.setattr("almoner.training._trainer.noise_generator", lambda *_: Silent())
    parameters = [each for each in module.parameters() if each.requires_grad]
    before = torch.cat([each.detach().reshape(-1) for each in parameters])
    trainer = training.Trainer(
        module,
        loss,
        torch.optim.SGD(parameters, lr=2.0),
        filters.Gaussian(mu=1.0),
        max_grad_norm=0.5,
        divisor=4,
        steps=1,
        noise_multiplier=1.0,
    )
    run = trainer.fit(x, y, people)
    moved = torch.cat([each.detach().reshape(-1) for each in parameters]) - before
    assert (moved.double() + 2.0 * expected / 4).norm() <= 1e-4 * expected.norm()
    assert run.released == {mechanisms.Gaussian(0.5, 0.5): 1}

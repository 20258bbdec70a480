"""Batch sizes and epochs: public numbers that become a rate and steps; and training step by step."""

import pytest
import torch
from torch import nn

from almoner import errors, training

N = 600
RECORDS = torch.randn(N, 3, generator=torch.Generator().manual_seed(0))
LABELS = (RECORDS[:, 0] > 0).long()


def trainer(**options):
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    options = {"max_grad_norm": 1.0, "divisor": N, "individual": False} | options
    sgd, budget = torch.optim.SGD(module.parameters(), lr=0.5), training.Target(epsilon=2.0, delta=1e-5)
    return training.Trainer(module, nn.CrossEntropyLoss(reduction="none"), sgd, budget, **options)


def test_a_batch_size_and_epochs_are_a_rate_and_steps():
    """The noise, the steps and the card are those of the rate and the steps by hand; the card says both back."""
    short, long = trainer(batch_size=64, epochs=3), trainer(sampling=training.Poisson(64 / N), steps=29)
    assert short.noise_multiplier == long.noise_multiplier
    assert [each.fit(RECORDS, LABELS).step for each in (short, long)] == [29, 29]  # 28.125, rounded up
    assert short.card() == long.card()
    assert short.card().sample_rate == 64 / N
    assert "DP-SGD (64 in a step on average, 3.093 epochs)" in short.card().to_markdown()


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"epochs": 5}, 5),  # all people in every step
        ({"epochs": 7, "sampling": training.Poisson(1 / 49)}, 343),  # 1 / 49 is rounded down
        ({"epochs": 0.5, "batch_size": 60}, 5),
        ({"epochs": 0.001, "batch_size": 60}, 1),
        ({"epochs": 2, "sampling": training.FixedBatches(30)}, 40),
        ({"epochs": 1, "batch_size": N}, 1),
    ],
)
def test_epochs_are_steps_of_any_sampling(options, steps):
    """So many that each person is in as many steps as there are epochs, on average."""
    made = trainer(**options, **({"individual": True} if "sampling" in options else {}))
    assert made.fit(RECORDS, LABELS).step == steps


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_size": 64, "steps": 5, "sampling": training.Poisson(0.1)}, r"sampling=training\.Poisson\(0\.106667\)"),
        ({"batch_size": 64, "epochs": 3, "steps": 5}, r"epochs=3 is steps=29: give one of them, not steps=5"),
        ({"batch_size": N + 1, "epochs": 3}, "at most the public number of people, 600"),
        ({"batch_size": 0, "epochs": 3}, "batch_size=0 must be"),
        ({"batch_size": 64, "epochs": float("nan")}, "epochs=nan must be"),
    ],
)
def test_two_words_for_one_number_are_refused(options, said):
    """A rate beside a batch size, steps beside epochs, and numbers that are none; the line to write is in the error."""
    with pytest.raises(errors.ArgumentError, match=said):
        trainer(**options)
    with pytest.raises(TypeError):
        trainer(batchsize=64)


def test_a_training_is_taken_step_by_step():
    """``steps`` yields before the first step and after each; closed early, what was done is in the folder."""
    whole, parts = trainer(batch_size=60, epochs=1, seed=3), trainer(batch_size=60, epochs=1, seed=3)
    whole.fit(RECORDS, LABELS)
    assert [run.step for run in parts.steps(RECORDS, LABELS)] == list(range(11))
    for one, other in zip(whole.module.parameters(), parts.module.parameters(), strict=True):
        assert torch.equal(one, other)


def test_steps_that_are_left_early_are_kept(tmp_path):
    """A loop that breaks after three steps has them in its folder; another process takes the other seven."""
    first = trainer(batch_size=60, epochs=1)
    steps = first.steps(RECORDS, LABELS, folder=training.RunFolder(tmp_path, every=100))
    for run in steps:
        if run.step == 3:
            break
    steps.close()
    again = trainer(batch_size=60, epochs=1)
    seen = [run.step for run in again.steps(RECORDS, LABELS, folder=training.RunFolder(tmp_path, resume=True))]
    assert seen == list(range(3, 11))
    assert again.card().steps == 10

"""Two processes with their own people: the same model, the same accounts and one draw of noise."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as distributed

import training_together
from almoner import errors
from almoner.training._run.models import Processes, noise_generator

SCRIPT = Path(__file__).parents[2] / "helpers" / "training_together.py"


def two(folder, rate):
    jobs = [subprocess.Popen([sys.executable, SCRIPT, str(rank), "2", folder, str(rate)]) for rank in range(2)]
    assert [job.wait(timeout=120) for job in jobs] == [0, 0]
    return [np.load(folder / f"{rank}.npz") for rank in range(2)]


@pytest.mark.slow
def test_two_processes_do_what_one_does(tmp_path):
    """Same seed, so same noise: weights, accounts, answers and counts are those of one process that holds everybody."""
    first, second = two(tmp_path, 0.0)
    weights, spent, answers = training_together.train(0, 1, None)
    assert np.array_equal(first["weights"], second["weights"])
    assert np.allclose(first["weights"], weights, atol=1e-4)
    assert np.allclose(first["spent"], spent[0::2], rtol=1e-3)
    assert np.allclose(second["spent"], spent[1::2], rtol=1e-3)
    assert np.allclose(first["answers"], answers, atol=1.5)  # nobody or one person counts differently by rounding
    assert np.array_equal(first["answers"], second["answers"])


@pytest.mark.slow
def test_poisson_samples_are_each_processs_own(tmp_path):
    """With sampling both end with the same model, and everybody has paid at every step."""
    first, second = two(tmp_path, 0.3)
    assert np.array_equal(first["weights"], second["weights"])
    assert (np.concatenate([first["spent"], second["spent"]]) > 0).all()


def test_noise_is_added_once():
    """Over many draws the noise on a sum has the standard deviation that was asked for."""
    processes, generator = Processes(), noise_generator(torch.device("cpu"), 0)
    zero = [torch.zeros(300, 10), torch.zeros(5)]
    noisy = processes.noisy_total(zero, 3.0, generator)
    assert [part.shape for part in noisy] == [part.shape for part in zero]
    assert float(noisy[0].std()) == pytest.approx(3.0, rel=0.05)


def drawn(generator, size, sigma=1.0):
    """Noise on float32 sums of zero, as it is released."""
    return Processes().noisy_total([torch.zeros(size)], sigma, generator)[0].double().numpy()


def test_noise_has_more_than_32_bits_of_seed():
    """Seeds that agree in their last 32 bits, all that PyTorch's generator on a processor looks at, differ."""
    cpu = torch.device("cpu")
    assert not np.array_equal(drawn(noise_generator(cpu, 5), 64), drawn(noise_generator(cpu, 5 + 2**32), 64))
    assert not np.array_equal(drawn(noise_generator(cpu, None), 64), drawn(noise_generator(cpu, None), 64))
    assert np.array_equal(drawn(noise_generator(cpu, 5), 64), drawn(noise_generator(cpu, 5), 64))


def test_the_tail_of_the_noise_is_not_made_of_few_values():
    """Drawn in single precision, pairs of noise lie on few circles in the tail: whoever is off them has a person."""
    noise = drawn(noise_generator(torch.device("cpu"), 1), 2**22).reshape(-1, 2, 8)  # the pairs of PyTorch's sampler
    radius = np.hypot(noise[:, 0], noise[:, 1]).ravel()
    circles = np.sqrt(-2 * np.log(np.arange(1, 200) / 2**24))
    tail = radius[radius > circles[-1]]
    assert len(tail) > 10
    assert np.median(np.abs(tail[:, None] - circles).min(axis=1)) > 1e-4


def test_a_group_needs_torch_distributed():
    """Without an initialised group the error comes at once."""
    with pytest.raises(errors.ArgumentError, match="not initialised"):
        Processes(True)


@pytest.mark.parametrize("others", [[2.0], [0.5, 1.5], [1.0, 1.0 + 1e-6]])
def test_processes_that_charge_for_different_noise_are_stopped(monkeypatch, others):
    """The first process draws the noise; where another has charged its people for more, nothing is released."""

    def reduce(told, group=None):
        size = len(told) - 2
        for sigma in others:
            told += torch.cat([torch.zeros(size), torch.tensor([sigma, sigma**2])])

    processes = Processes()
    processes.single = False
    monkeypatch.setattr(distributed, "all_reduce", reduce)
    monkeypatch.setattr(distributed, "get_rank", lambda group: 0)
    monkeypatch.setattr(distributed, "get_world_size", lambda group: 1 + len(others))
    generator = noise_generator(torch.device("cpu"), 0)
    with pytest.raises(errors.ArgumentError, match="do not agree on the noise"):
        processes.noisy_total([torch.zeros(5)], 1.0, generator)
    others[:] = [1.0] * len(others)
    assert processes.noisy_total([torch.zeros(5)], 1.0, generator)[0].shape == (5,)

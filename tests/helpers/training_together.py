"""Two processes, each with its own people, train one model.

python tests/helpers/training_together.py RANK WORLD FOLDER SAMPLE_RATE
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.distributed as distributed
from torch import nn

from almoner import filters, training
from almoner.training._records import correct
from almoner.training.stopping import Dropouts, Tree

N, STEPS = 60, 12


def people():
    """Everybody's records."""
    torch.manual_seed(0)
    x = torch.randn(N, 3)
    return x, (x[:, 0] > 0).long()


def train(rank: int, world: int, rate: float | None):
    """This process's share of the people."""
    x, y = people()
    mine = slice(rank, None, world)
    torch.manual_seed(10 + rank)  # different starts: the first process's counts
    module = nn.Linear(3, 2)
    torch.manual_seed(10)
    reference = nn.Linear(3, 2)
    if rank == 0:
        module.load_state_dict(reference.state_dict())
    job = training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.SGD(module.parameters(), lr=1.0, momentum=0.5),
        filters.RenyiOrder(alpha=8.0, rho=2.0),
        max_grad_norm=1.0,
        noise_multiplier=3.0,
        divisor=N,
        steps=STEPS,
        sampling=training.FullBatch() if rate is None else training.Poisson(rate),
        compute=training.Compute(group=True if world > 1 else None),
        seed=4,
    )

    def ask(run):
        run.history.setdefault("dropped", []).append(run.counting.count)
        if run.step == 6:
            run.noisy_sum(correct, sigma=2.0)

    def counting(accounts):
        return Dropouts(accounts, Tree(steps=STEPS, sigma=6.0), noise=np.random.default_rng(rank))

    run = job.fit(x[mine], y[mine], callbacks=[ask], watch=counting)
    weights = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    return (
        weights.numpy(),
        np.asarray(job.accounts.spent()),
        np.array([*run.history["dropped"], *(answer for _, _, answer in run.answers)]),
    )


if __name__ == "__main__":
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    weights, spent, answers = train(rank, world, float(sys.argv[4]) or None)
    np.savez(folder / f"{rank}.npz", weights=weights, spent=spent, answers=answers)
    distributed.barrier()  # neither leaves while the other still talks to it
    distributed.destroy_process_group()

"""Two processes train one model that is sharded over them, and each holds its own people.

python tests/helpers/training_sharded.py RANK WORLD FOLDER CASE...
"""

import json
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.distributed as distributed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from almoner import errors, filters, training
from almoner.ledger import Ledger, verify
from almoner.training._records import correct

N, WORDS, WIDE = 14, 11, 6
PEOPLE = torch.tensor([0, 0, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4, 5, 6])


def together(script, folder, *words):
    """Two processes of a script, which do these cases, to the end."""
    command = [sys.executable, "-W", "ignore", script]
    jobs = [subprocess.Popen([*command, str(rank), "2", folder, *words]) for rank in range(2)]
    try:
        assert [job.wait(timeout=600) for job in jobs] == [0, 0]
    finally:
        for job in jobs:
            job.kill()


def told(folder, case):
    """What the two processes found."""
    return [json.loads((folder / f"{case}-{rank}.json").read_text()) for rank in range(2)]


class Scale(nn.Module):
    """A normalisation that the engine has no rule for, as models of language have."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((WIDE,), 1.1))

    def forward(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * self.weight


class Block(nn.Module):
    """Attention and two layers, one of uneven shards and one with a frozen part."""

    def __init__(self):
        super().__init__()
        self.scale, self.mix = Scale(), nn.MultiheadAttention(WIDE, 2, batch_first=True)
        self.up, self.down = nn.Linear(WIDE, 7), nn.Linear(7, WIDE)
        self.down.bias.requires_grad_(False)

    def forward(self, x):
        y = self.scale(x)
        x = x + self.mix(y, y, y, need_weights=False)[0]
        return x + self.down(torch.relu(self.up(x)))


class Words(nn.Module):
    """A small model of language, whose first and last weight are one."""

    def __init__(self):
        super().__init__()
        self.look, self.blocks = nn.Embedding(WORDS, WIDE), nn.ModuleList([Block(), Block()])
        self.tell = nn.Linear(WIDE, WORDS, bias=False)
        self.tell.weight = self.look.weight

    def forward(self, words):
        x = self.look(words)
        for block in self.blocks:
            x = block(x)
        return self.tell(x).mean(1)


def data():
    """Everybody's records."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, WORDS, shape, generator=generator) for shape in ((N, 5), (N,))]


def model(case, seed=0):
    """The module of a case, sharded where there are several processes."""
    torch.manual_seed(seed)
    module = Words()
    if case == "adapters":
        for parameter in module.parameters():
            parameter.requires_grad_(False)
        for block in module.blocks:
            block.up = nn.Sequential(nn.Linear(WIDE, 2, bias=False), nn.Linear(2, 7, bias=False))
    if distributed.is_initialized() and case != "whole":
        mesh = init_device_mesh("cpu", (2,))
        for block in module.blocks:
            fully_shard(block, mesh=mesh)
        if case != "part":
            fully_shard(module, mesh=mesh)
    return module


def mine(rank, world):
    """The rows of a process's people, who are numbered anew: the first has three, the second four."""
    if world == 1:
        return slice(None), PEOPLE
    own = PEOPLE < 3 if rank == 0 else PEOPLE >= 3
    return own, PEOPLE[own] - 3 * rank


def whole(tensors):
    """All numbers of some tensors, gathered."""
    return torch.cat([getattr(each, "full_tensor", lambda each=each: each)().double().flatten() for each in tensors])


def trainer(case, module, world, **more):
    """A training of a few steps, the same noise in one process and in two."""
    sampling = {
        "sampled": training.Poisson(0.2),  # often nobody of a process, and then it takes passes with the other
    }
    given = {"max_grad_norm": 0.5, "divisor": 7, "steps": 4, "noise_multiplier": 2.0, "seed": 5} | more
    return training.Trainer(
        module,
        nn.CrossEntropyLoss(reduction="none"),
        torch.optim.Adam(module.parameters(), lr=0.05),
        filters.RenyiOrder(alpha=4.0, rho=8.0),
        sampling=sampling.get(case),
        compute=training.Compute(group=True if world > 1 else None, memory=9_000),
        **given,
    )


def go(rank, world, case):
    """Train; the weights, everybody's spend, and an answer."""
    (x, y), (own, people) = data(), mine(rank, world)
    module = model(case)
    gradients = training.Gradients(module, nn.CrossEntropyLoss(reduction="none"), memory=9_000)
    sums, norms = (torch.zeros(0),), torch.zeros(0)
    if case != "whole":
        sums, norms = gradients.sums(x[own], y[own], 0.5, people)
    job = trainer(case, module, world)

    def ask(run):
        if run.step == 2:
            run.noisy_sum(correct, sigma=2.0)

    run = job.fit(x[own], y[own], people, callbacks=[ask])
    return {
        "sums": whole(sums).numpy(),
        "norms": norms.numpy(),
        "weights": whole(module.parameters()).detach().numpy(),
        "spent": np.asarray(job.accounts.spent()),
        "answers": np.array([answer for *_, answer in run.answers]),
    }


class Chooses(nn.Module):
    """A module that takes some of the rows by their values."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        out = x.new_zeros(len(x), 2)
        out[x[:, 0] > 0] = self.layer(x[x[:, 0] > 0])
        return out


class Elsewhere(Chooses):
    """A module that uses a weight outside its layer."""

    def forward(self, x):
        return self.layer(x) + nn.functional.linear(x, self.layer.weight)


class Mixes(Chooses):
    """A module that adds a little of everybody to everybody."""

    def forward(self, x):
        out = self.layer(x)
        return out + 1e-5 * out.mean(0)


def numbers(module, *, sharded=True, half=False, rate=1.0, **more):
    """A training of a small module on numbers, in two processes."""
    if sharded:
        policy = MixedPrecisionPolicy(torch.bfloat16 if half else None, torch.float32 if half else None)
        fully_shard(module, mesh=init_device_mesh("cpu", (2,)), mp_policy=policy)
    given = {"max_grad_norm": 0.5, "divisor": 8, "steps": 3, "noise_multiplier": 2.0} | more
    given = {"compute": training.Compute(group=True), "budget": filters.Gaussian(epsilon=9.0, delta=1e-5)} | given
    optimizer = torch.optim.SGD(module.parameters(), lr=rate)
    return training.Trainer(module, nn.CrossEntropyLoss(reduction="none"), optimizer, **given)


def refused(do):
    """The name of an error, and its message."""
    try:
        do()
    except errors.AlmonerError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def refusals(rank):
    """What each process is told about what can't be done."""
    x, y, ids = torch.randn(4, 3), torch.zeros(4, dtype=torch.long), [f"p{4 * rank + each}" for each in range(4)]
    copies = nn.Sequential(nn.Linear(3, 2))
    fully_shard(copies, mesh=init_device_mesh("cpu", (2, 1), mesh_dim_names=("copies", "shards")))
    public = training.PublicRecords(torch.ones(2, 3), y[:2])
    other = [nn.Parameter(torch.empty(1, device="meta" if rank else "cpu"))]
    frozen = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    frozen[rank].requires_grad_(False)

    def on_devices():
        job = numbers(nn.Linear(3, 2))
        with mock.patch.object(training.Gradients, "parameters", property(lambda _: other)):
            job.fit(x, y)

    cases = {
        "devices": on_devices,
        "public": lambda: numbers(nn.Linear(3, 2)).fit(x, y, public=public),
        "file": lambda: numbers(
            nn.Linear(3, 2), budget=training.OnLedger("people.ledger", "model", at_most=filters.Gaussian(mu=1.0))
        ),
        "alone": lambda: numbers(nn.Linear(3, 2), compute=None),
        "replicas": lambda: training.Gradients(copies, nn.CrossEntropyLoss(reduction="none")),
        "chooses": lambda: numbers(Chooses()).fit(x, y),
        "elsewhere": lambda: numbers(Elsewhere()).fit(x, y),
        "shape": lambda: numbers(nn.Linear(3, 2), sharded=False).fit(x, y[: 4 - rank]),
        "steps": lambda: numbers(nn.Linear(3, 2), steps=3 + rank).fit(x, y),
        "frozen": lambda: numbers(frozen, sharded=False).fit(x, y),
        "learning": lambda: numbers(nn.Linear(3, 2), sharded=False, rate=1.0 + rank).fit(x, y),
        "ids": lambda: numbers(nn.Linear(3, 2)).fit(x, y, ["one", *ids[1:]]),
        "half": lambda: numbers(nn.Linear(3, 2), half=True).fit(x, y),
        "fixed": lambda: numbers(nn.Linear(3, 2), sampling=training.FixedBatches(2)).fit(x, y, ids),
        "mixes": lambda: numbers(Mixes()).fit(x, y),
        "budgets": lambda: numbers(nn.Linear(3, 2), budget=filters.Gaussian(mu=1.0 + rank)).fit(x, y),
    }
    return {name: refused(do) for name, do in cases.items()}


def unseeded(rank):
    """Noise of the system's in one step, in units of its deviation, gathered; one process has no person with a norm."""
    module = nn.Sequential(nn.Linear(3, 41), nn.Linear(41, 30))
    fully_shard(module[0], mesh=init_device_mesh("cpu", (2,)))  # the other one is whole in each process
    job = numbers(module, steps=1, noise_multiplier=1e6)
    before = whole(each.detach() for each in module.parameters())
    job.fit(torch.full((4, 3), torch.nan if rank else 1.0), torch.zeros(4, dtype=torch.long))
    moved = (whole(each.detach() for each in module.parameters()) - before) * 8 / (0.5 * 1e6)
    return {"moved": moved.tolist(), "spent": np.asarray(job.accounts.spent()).tolist()}


def swapped(rank, folder):
    """Each process goes on with people and folder of the other one, and then with its own."""

    def go_on(whose, *, resume=True):
        kept, goals = training.RunFolder(folder / f"run-{whose}", resume=resume), torch.zeros(4, dtype=torch.long)
        numbers(nn.Linear(3, 2)).fit(torch.full((4, 3), 1.0 + whose), goals, folder=kept)

    go_on(rank, resume=False)
    distributed.barrier()
    return {"other": refused(lambda: go_on(1 - rank)), "own": refused(lambda: go_on(rank))}


def announced(rank, folder):
    """A worst case for all: the first process announces a step that the second doesn't, and both go on."""
    x, y, place = torch.randn(4, 3), torch.zeros(4, dtype=torch.long), folder / f"announced-{rank}"
    for resume in (False, True):
        job = numbers(nn.Linear(3, 2), sharded=False, individual=False, noise_multiplier=None)
        for run in job.steps(x, y, folder=training.RunFolder(place, resume=resume)):
            if not resume and run.step == 1:
                break
        if not resume and not rank:
            journal = place / "journal.jsonl"
            journal.write_bytes(2 * journal.read_bytes())
    return {"step": run.step, "reason": run.reason}


def on_ledger(rank, place):
    """Two processes, each of which reserves for its own people and settles."""
    ids, (x, y) = [f"p{4 * rank + each}" for each in range(4)], (torch.randn(4, 3), torch.zeros(4, dtype=torch.long))
    on = training.OnLedger(place, "model", at_most=filters.Gaussian(epsilon=1.0, delta=1e-6))
    job = numbers(nn.Linear(3, 2), budget=on, noise_multiplier=None)
    job.fit(x, y, ids)
    distributed.barrier()
    with Ledger.open(place) as book:
        found = [finding.what for finding in verify(book) if not finding.holds]
        charged = [2 * book.spent(person) / 1e15 for person in ids]
        keys = sorted(each.key for each in book.consumers.values())
    return {"found": found, "charged": charged, "keys": keys, "spent": np.asarray(job.accounts.spent()).tolist()}


if __name__ == "__main__":
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    others = {"refusals": partial(refusals, rank), "unseeded": partial(unseeded, rank)}
    others |= {"swapped": partial(swapped, rank, folder), "announced": partial(announced, rank, folder)}
    for case in sys.argv[4:]:
        if case in others or "://" in case:
            found = others[case]() if case in others else on_ledger(rank, case)
            (folder / f"{case.partition('://')[0]}-{rank}.json").write_text(json.dumps(found))
            continue
        np.savez(folder / f"{case}-{rank}.npz", **go(rank, world, case))
    distributed.barrier()
    distributed.destroy_process_group()
    os._exit(0)

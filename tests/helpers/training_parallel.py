"""Two processes train one model whose layers are split between them, and both hold the same people.

python tests/helpers/training_parallel.py RANK WORLD FOLDER CASE...
"""

import json
import os
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.distributed as distributed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

from almoner import filters, individual, training
from almoner.training._records import correct
from almoner.training.gradients._factors import norms_of
from almoner.training.gradients._shards import Shards
from training_sharded import PEOPLE, Scale, data, refused, whole

WORDS, WIDE, HEAD = 11, 6, 3
LOSS = nn.CrossEntropyLoss(reduction="none")
COLUMNS, ROWS, WHOLE = ColwiseParallel(), RowwiseParallel(), ColwiseParallel(output_layouts=Replicate())


class Block(nn.Module):
    """Attention of heads of HEAD numbers, as many as are here, and two layers."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDE), Scale()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDE, WIDE) for _ in range(4))
        self.up, self.down = nn.Linear(WIDE, 8), nn.Linear(8, WIDE)

    def forward(self, x):
        y = self.first(x)
        q, k, v = (part(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for part in (self.q, self.k, self.v))
        x = x + self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(self.second(x))))


class Words(nn.Module):
    """A small model of language with places of its own and a layer that stays whole."""

    def __init__(self):
        super().__init__()
        self.look, self.places = nn.Embedding(WORDS, WIDE), nn.Parameter(torch.randn(1, 5, WIDE))
        self.block, self.mix, self.tell = Block(), nn.Linear(WIDE, WIDE), nn.Linear(WIDE, 12)

    def forward(self, words):
        return self.tell(torch.tanh(self.mix(self.block(self.look(words) + self.places)))).mean(1)


class Parts(nn.Module):
    """A module in which each process normalises its own part, by weights that both have."""

    def __init__(self):
        super().__init__()
        self.up, self.scale, self.down = nn.Linear(5, 8), nn.LayerNorm(4), nn.Linear(8, 12)

    def forward(self, x):
        return self.down(self.scale(self.up(x)))


class Mixes(nn.Module):
    """A module that adds a little of everybody to everybody, where a layer is in parts."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(5, 8), nn.Linear(8, 12)

    def forward(self, x):
        out = self.up(x)
        return self.down(out + 1e-5 * out.mean(0))


def layers(dropout=0.0):
    """Layers of which two are to be split."""
    both = nn.Linear(5, 8), nn.Linear(8, 6)
    return nn.Sequential(nn.LayerNorm(5), both[0], nn.Dropout(dropout), both[1], nn.LayerNorm(6), nn.Linear(6, 12))


def split(module, **plan):
    """A module, its layers split by a plan."""
    return parallelize_module(module, init_device_mesh("cpu", (2,)), plan)


def model(case, seed=0):
    """The module of a case, split where there are several processes."""
    torch.manual_seed(seed)
    module = Words() if case.startswith("words") else layers(0.3 * case.endswith("dropout"))
    if case.endswith("frozen"):
        module.requires_grad_(False)
        module[1].bias.requires_grad_(True)
        module[3].weight.requires_grad_(True)
    if not distributed.is_initialized():
        return module
    local = ColwiseParallel(use_local_output=not case.endswith("inside"))
    plan = {"1": local, "3": ROWS}
    if case.startswith("words"):
        plan = {"look": WHOLE, "tell": WHOLE, "block.o": ROWS, "block.down": ROWS}
        plan |= {f"block.{name}": COLUMNS for name in ("q", "k", "v", "up")}
    return split(module, **plan)


def records(case):
    """Everybody's records."""
    x, y = data()
    return (x if case.startswith("words") else nn.functional.one_hot(x, WORDS).float().mean(1)[:, :5]), y


def trainer(case, module, lr=0.05, **more):
    """A training of a few steps, the same noise in one process and in two."""
    given = {"max_grad_norm": 0.5, "divisor": 7, "steps": 3, "noise_multiplier": 2.0, "seed": 5}
    given |= {"sampling": training.Poisson(0.4) if case.endswith("sampled") else None}
    given |= {"budget": filters.RenyiOrder(alpha=4.0, rho=8.0)}
    optimizer = torch.optim.SGD if case.startswith("layers") else torch.optim.AdamW
    return training.Trainer(module, LOSS, optimizer(module.parameters(), lr=lr), **(given | more))


def go(case):
    """Train; sums, norms, the weights, everybody's spend, and answers."""
    (x, y), module = records(case), model(case)
    memory = 1_000 if case.endswith("few") else 20_000  # then a person's records are taken a few at a time
    sums, norms = training.Gradients(module, LOSS, memory=memory).sums(x, y, 0.5, PEOPLE)
    job = trainer(case, module, compute=training.Compute(memory=memory))

    def ask(run):
        if run.step == 2:
            run.noisy_sum(correct, sigma=2.0)

    run = job.fit(x, y, PEOPLE, callbacks=[ask])
    return {
        "sums": whole(sums).numpy(),
        "norms": norms.numpy(),
        "weights": whole(module.parameters()).detach().numpy(),
        "spent": np.asarray(job.accounts.spent()),
        "answers": np.array([answer for *_, answer in run.answers]),
    }


def wrong(_rank, _folder):
    """Norms as they are, if each process took its own part for all, and if what both have was counted in each."""
    (x, y), module = records("layers"), model("layers")
    gradients = training.Gradients(module, LOSS)

    def own(_, factors, people, parameters):
        return norms_of(factors, people)

    def twice(shards, factors, people, parameters):
        return torch.stack(shards._of_all(norms_of(factors, people))).norm(dim=0)

    found = {"right": gradients.norms(x, y, PEOPLE).tolist()}
    for change in (own, twice):
        with mock.patch.object(Shards, "norms", change):
            found[change.__name__] = gradients.norms(x, y, PEOPLE).tolist()
    return found


def unseeded(_rank, _folder):
    """Noise and samples of the system's: what a step moves, in deviations of the noise, and everybody's spend."""
    module = split(nn.Sequential(nn.Linear(5, 40), nn.Linear(40, 12), nn.Linear(12, 12)), **{"0": COLUMNS, "1": ROWS})
    job = trainer("layers-sampled", module, lr=1.0, steps=1, noise_multiplier=1e6, seed=None)
    before = whole(each.detach() for each in module.parameters())
    job.fit(*records("layers"), PEOPLE)
    moved = (whole(each.detach() for each in module.parameters()) - before) * 7 * 0.4 / (0.5 * 1e6)
    return {"moved": moved.tolist(), "spent": np.asarray(job.accounts.spent()).tolist()}


def resumed(rank, folder):
    """One process loses its last step, both go on; everybody's spend, the weights, and what was released."""
    (x, y), place = records("layers"), folder / f"run-{rank}"
    state = place / "state.npz"
    for resume in (False, True):
        job = trainer("layers-sampled", model("layers", seed=int(resume)), seed=None)
        for run in job.steps(x, y, PEOPLE, folder=training.RunFolder(place, every=1, resume=resume)):
            if not resume and run.step == 1:
                before = state.read_bytes()
            if not resume and run.step == 2:
                break
        if not resume and rank:
            state.write_bytes(before)
        distributed.barrier()
    swapped = training.RunFolder(folder / f"run-{1 - rank}", resume=True)
    found = {"swapped": refused(lambda: trainer("layers-sampled", model("layers")).fit(x, y, PEOPLE, folder=swapped))}
    found |= {"spent": np.asarray(job.accounts.spent()).tolist(), "weights": whole(job.module.parameters()).tolist()}
    return found | {"steps": run.step, "released": sum(run.released.values())}


def refusals(rank, _folder):
    """What each process is told about what can't be done."""
    (x, y), ids = records("layers"), [f"p{each}" for each in PEOPLE.tolist()]
    both = init_device_mesh("cpu", (1, 2), mesh_dim_names=("people", "layers"))

    def fit(module=None, x=x, y=y, people=PEOPLE, watch=None, public=None, **more):
        trainer("layers", module or model("layers"), **more).fit(x, y, people, watch=watch, public=public)

    def made(module, **plan):
        return lambda: training.Gradients(split(module, **plan), LOSS)

    def coins():
        module = model("layers")
        torch.manual_seed(rank)
        fit(module)

    def clip(run):
        if run.step == 1 and rank:
            run.max_grad_norm = 0.1

    def inside():
        fully_shard(parallelize_module(module := layers(), both["layers"], {"1": COLUMNS}), mesh=both["people"])
        training.Gradients(module, LOSS)

    def stream():
        optimizer = torch.optim.SGD((module := model("layers")).parameters(), lr=1.0)
        training.Stream(module, LOSS, optimizer, filters.Zcdp(rho=1.0), max_grad_norm=1.0, noise_multiplier=1.0)

    ledger = training.OnLedger("people.ledger", "model", at_most=filters.Gaussian(mu=1.0))
    last = ColwiseParallel(output_layouts=Replicate(), use_local_output=False)
    cases = {
        "group": lambda: fit(compute=training.Compute(group=True)),
        "records": lambda: fit(x=x + rank),
        "people": lambda: fit(people=PEOPLE.flip(0) if rank else PEOPLE),
        "ids": lambda: fit(people=[*ids[:-1], f"q{rank}"]),
        "length": lambda: fit(y=y[: len(y) - rank]),
        "budget": lambda: fit(budget=filters.Zcdp(rho=1.0 + rank)),
        "learning": lambda: fit(lr=0.1 + rank),
        "coins": coins,
        "clip": lambda: trainer("layers", model("layers")).fit(x, y, PEOPLE, callbacks=[clip]),
        "own": lambda: fit(budget=individual.Filter(7, filters.Zcdp(rho=1.0))),
        "ledger": lambda: fit(seed=None, budget=ledger),
        "fixed": lambda: fit(sampling=training.FixedBatches(2)),
        "watch": lambda: fit(watch=lambda people: people),
        "public": lambda: fit(public=training.PublicRecords(torch.ones(2, 5), y[:2])),
        "stream": stream,
        "sequence": made(layers(), **{"0": SequenceParallel()}),
        "uneven": made(nn.Sequential(nn.Linear(5, 7)), **{"0": COLUMNS}),
        "rows": made(nn.Sequential(nn.Embedding(4, 6)), **{"0": RowwiseParallel(input_layouts=Replicate())}),
        "inside": inside,
        "parts": lambda: fit(split(Parts(), up=COLUMNS, down=ROWS)),
        "last": lambda: fit(split(nn.Sequential(nn.Linear(5, 24)), **{"0": COLUMNS})),
        "plain": lambda: fit(split(layers(), **{"5": last})),
        "mixes": lambda: fit(split(Mixes(), up=COLUMNS, down=ROWS)),
        "mixes inside": lambda: fit(split(Mixes(), up=ColwiseParallel(use_local_output=False), down=ROWS)),
    }
    return {name: refused(do) for name, do in cases.items()}


if __name__ == "__main__":
    rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    others = {"wrong": wrong, "unseeded": unseeded, "resumed": resumed, "refusals": refusals}
    for case in sys.argv[4:]:
        if case in others:
            (folder / f"{case}-{rank}.json").write_text(json.dumps(others[case](rank, folder)))
            continue
        np.savez(folder / f"{case}-{rank}.npz", **go(case))
    distributed.barrier()
    distributed.destroy_process_group()
    os._exit(0)

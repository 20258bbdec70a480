"""Kill either of two processes that train one model, at any moment, and let both go on: nobody is undercharged.

    python benchmarks/crashes/together.py [--steps 500] [--kills 20] [--seed S] [--doors sharded,batches] [--quick]

Each process has half of the people. ``sharded``: a module that FSDP2 has sharded, all people in every step;
``batches``: a whole module, and fixed batches with correlated noise. One process is killed (SIGKILL); the other ends by
the error that it then gets. Both go on from their folders. A witness in each process writes down what it puts into a
release before it takes part, and the noisy numbers before anybody has them; see tests/helpers/training_judged.py.

Prints one JSON object; 1 is the status if something was found.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import redirect_stderr
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as distributed

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from almoner import _audit_hook, training
from almoner.training.gradients._shards import local
from training_judged import account_problems, correlated_costs, model_of, read, repeated, squares
from training_killed import (
    BATCHES,
    BROKEN,
    BUDGET,
    CLIP,
    DOORS,
    NAMES,
    RATE,
    ROWS,
    SIGMA,
    Door,
    N,
    Witness,
    linear,
    records,
    warm_up,
)
from training_killed import logistic_loss as loss

LONG = 60.0
"""Seconds after which a process that waits for one that was killed is ended, too; and that no other one takes."""

ENDED = os.WEXITED | os.WNOHANG | os.WNOWAIT

Line = dict[str, object]


def flat(parts) -> np.ndarray:
    """This process's numbers of what is released."""
    return np.concatenate([local(each).detach().numpy().astype(np.float64).ravel() for each in parts])


class Both(Witness):
    """Writes down this process's part of a release, takes part, and writes down what came of it."""

    def released(self, release, exact, mechanism, part):
        """See the class."""
        before = flat(exact)
        line = {"step": self.done(), "sigma": mechanism.sigma}
        drawn = {} if part is None else {"drawn": part.of.draw(part.step).tolist()}
        self._write(line | {"exact": before.tolist()} | drawn)
        noisy = release()
        self._write(line | {"noisy": flat(noisy).tolist()})
        return noisy


def train(door: Door, broken: str | None, sharded: bool, folder: Path, rank: int, attempt: int) -> None:
    """One of the two processes, to the end."""
    if broken is not None:
        BROKEN[broken]()
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet-{attempt}", rank=rank, world_size=2)
    module, (x, y) = linear(), records()
    if sharded:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor import Shard

        fully_shard(module, mesh=init_device_mesh("cpu", (2,)), shard_placement_fn=lambda _: Shard(1))
    job = training.Trainer(
        module,
        loss,
        torch.optim.SGD(module.parameters(), lr=RATE),
        BUDGET[door.budget](),
        max_grad_norm=CLIP,
        noise_multiplier=SIGMA,
        divisor=N,
        steps=door.steps,
        sampling=door.sampling,
        compute=training.Compute(group=True),
    )
    mine = [row for row, person in enumerate(ROWS) if person % 2 == rank]
    witness = Both(folder / f"released-{rank}.jsonl", attempt)
    with _audit_hook.installed(witness):
        run = job.fit(
            x[mine],
            y[mine],
            [NAMES[ROWS[row]] for row in mine],
            callbacks=[witness],
            folder=training.RunFolder(folder / f"run-{rank}", every=door.every, resume=True),
        )
    end = {"steps": run.step, "charged": np.asarray(job.accounts.spent()).tolist()}
    end["model"] = local(module.weight.detach()).ravel().tolist()
    (folder / f"end-{rank}.json").write_text(json.dumps(end))
    distributed.barrier()


def started(*given) -> int:
    """The id of a forked process that trains."""
    if child := os.fork():
        return child
    try:
        with (given[3] / f"stderr-{given[4]}").open("w") as told, redirect_stderr(told):
            try:
                train(*given)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
    finally:
        os._exit(1)


def ended(child: int, most: float) -> int:
    """The status of a process, which is killed after so many seconds."""
    until = time.monotonic() + most
    while not (found := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.005)
    return found[1]


def merged(door: Door, sharded: bool, folder: Path) -> list[Line]:
    """The releases of which either process had the noisy numbers, each put together from both."""
    parts: dict[tuple[int, int], list[Line]] = {}
    for rank in range(2):
        for line in read(folder / f"released-{rank}.jsonl"):
            both = parts.setdefault((line["attempt"], line["step"]), [{}, {}])
            both[rank] |= line
    draws = []
    for (attempt, step), both in sorted(parts.items()):
        if any("noisy" in each for each in both):
            exact = np.array([each["exact"] for each in both])
            exact = np.concatenate(exact) if sharded else exact.sum(0)
            unknown = np.full(N // (1 + sharded), np.nan)
            noisy = [np.array(each.get("noisy", unknown)) for each in both]
            noisy = np.concatenate(noisy) if sharded else noisy["noisy" not in both[0]]
            line = {"attempt": attempt, "step": step, "sigma": both[0]["sigma"], "exact": exact.tolist()}
            draws.append(line | {"noise": np.where(np.isnan(noisy), 0.0, noisy - exact).tolist()})
            draws[-1] |= {"drawn": both[0]["drawn"]} if "drawn" in both[0] else {}
    return draws


def judged(door: Door, sharded: bool, folder: Path) -> Line:
    """The findings on a run that has come to its end."""
    ends = [json.loads((folder / f"end-{rank}.json").read_text()) for rank in range(2)]
    draws = merged(door, sharded, folder)
    last = list({draw["step"]: draw for draw in draws}.values())
    end = {"steps": ends[0]["steps"], "charged": np.array([each["charged"] for each in ends]).T.ravel().tolist()}
    problems = [] if end["steps"] == ends[1]["steps"] == door.steps == len(last) else ["not all steps were taken"]
    costs, wrong = squares(draws), []
    if door.sampling is BATCHES:
        costs, _, wrong = correlated_costs(door, draws)
    problems += wrong + account_problems(door, end, costs, costs)
    models = [each["model"] for each in ends]
    model = np.concatenate(models) if sharded else np.array(models[0])
    if not np.allclose(model, model_of(door, last), rtol=0, atol=1e-9) or (not sharded and models[0] != models[1]):
        problems.append("the model is not the sum of the releases")
    new = [draw for draw in draws if "drawn" not in draw]
    twice = len(repeated([draw | {"noise": [z for z in draw["noise"] if z]} for draw in new])) if new else 0
    problems += [f"{twice} numbers of noise were used again"] if twice else []
    return {"releases": len(draws), "steps taken again": len(draws) - len(last), "problems": problems}


def campaign(name: str, steps: int, kills: int, chance: random.Random, folder: Path, broken: str | None) -> Line:
    """One run of a door: processes are killed so many times, then it goes to its end and is judged."""
    sharded = name == "sharded"
    door = replace(DOORS["full" if sharded else "batches"], steps=steps)
    attempt, killed = 0, [0, 0]
    while True:
        children = [started(door, broken, sharded, folder, rank, attempt) for rank in range(2)]
        if sum(killed) < kills:
            lines = sum(len(read(path)) for path in folder.glob("released-*.jsonl"))
            until = lines + chance.randint(1, max(2, 3 * steps // kills))
            began = time.monotonic()
            while sum(len(path.read_bytes().splitlines()) for path in folder.glob("released-*.jsonl")) < until:
                if time.monotonic() > began + LONG or os.waitid(os.P_PID, children[0], ENDED):
                    break
                time.sleep(0.002)
            time.sleep(chance.uniform(0, 0.02))
            victim = chance.randrange(2)
            os.kill(children[victim], signal.SIGKILL)
            killed[victim] += 1
        statuses = [ended(child, LONG) for child in children]
        attempt += 1
        if statuses == [0, 0]:
            return {"door": name, "kills of each": killed} | judged(door, sharded, folder)
        if attempt > 3 * kills + 3:
            told = [(folder / f"stderr-{rank}").read_text().splitlines()[-1:] for rank in range(2)]
            return {"door": name, "kills of each": killed, "problems": [f"it does not end: {told}"]}


def main() -> int:
    """Run, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--doors", default="sharded,batches")
    parser.add_argument("--broken", choices=BROKEN, default=None, help="a control, which must be found")
    parser.add_argument("--quick", action="store_true", help="24 steps and 3 kills")
    given = parser.parse_args()
    steps, kills = (24, 3) if given.quick else (given.steps, given.kills)
    warm_up()

    found = []
    for name in given.doors.split(","):
        with tempfile.TemporaryDirectory() as folder:
            chance = random.Random(f"{given.seed} {name}")
            found.append(campaign(name, steps, kills, chance, Path(folder), given.broken))
    print(json.dumps(found, indent=1))
    return int(any(each["problems"] for each in found))


if __name__ == "__main__":
    sys.exit(main())

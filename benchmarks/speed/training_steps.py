"""Compare the steps of two checkouts of Almoner: six networks, a sampled step, a stream, and a million accounts.

    python benchmarks/speed/training_steps.py --against PATH/TO/OTHER/src      # everything
    python benchmarks/speed/training_steps.py --against SRC --jobs lstm stream --pairs 20
    python benchmarks/speed/training_steps.py --quick                          # few people; and a control

Processes run in pairs, one for each checkout, in alternating order, so that other load affects both alike. Each process
warms up, then takes steps; its time is the median step, in seconds of the processor, with one thread. Prints, for each
job, the medians over the processes, the median of the pairs' ratios of this checkout to the other one with an interval
that holds the true median with probability 0.95 or more (order statistics; from 6 pairs on), and the peak memory of a
process. Without --against both are this checkout, which shows what the machine adds. The other checkout may be older: a
stream's divisor and a trainer's sample rate are given as it takes them.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from math import comb
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[2] / "src"
PEOPLE, WARM_UP = 1000, 2
"""People in an update of the stream; steps that are not timed, which load and prepare what the others use."""


def trainer(name: str, count: int, steps: int, rate: float | None = None) -> list[float]:
    """The processor's clock before and after each step of a Trainer with everybody, or with Poisson samples."""
    import torch
    from torch import nn
    from training import BY_RECORD, NETWORKS

    from almoner import filters, training

    torch.manual_seed(0)
    linear = (lambda: nn.Linear(10, 2), lambda n: torch.randn(n, 10), 2)
    make, draw, classes, *_ = NETWORKS.get(name, linear)
    module, stamps = make(), []
    if rate is None:
        sampling = {}
    else:
        sampling = {"sampling": training.Poisson(rate)} if hasattr(training, "Poisson") else {"sample_rate": rate}
    job = training.Trainer(
        module,
        BY_RECORD,
        torch.optim.SGD(module.parameters(), lr=0.1),
        filters.Gaussian(mu=1.0) if rate is None else filters.RenyiOrder(alpha=8, epsilon=8.0, delta=1e-5),
        max_grad_norm=1.0,
        divisor=count,
        steps=steps,
        seed=0,
        **sampling,
    )
    job.fit(draw(count), torch.randint(classes, (count,)), callbacks=[lambda _: stamps.append(time.process_time())])
    return stamps


def stream(accounts: int, steps: int) -> list[float]:
    """The processor's clock before and after each update of a Stream; half of the people in an update are new."""
    import numpy as np
    import torch
    from torch import nn

    from almoner import filters, individual
    from almoner.training import Stream

    rng, module = np.random.default_rng(0), nn.Linear(50, 2)
    people = individual.Filter(list(range(accounts)), filters.Gaussian(mu=1.0))
    loss, optimizer = nn.CrossEntropyLoss(reduction="none"), torch.optim.SGD(module.parameters(), lr=0.1)
    divisor = {"divisor": PEOPLE}
    older = "divisor" in inspect.signature(Stream).parameters
    options = {"max_grad_norm": 1.0, "noise_multiplier": 100.0, "seed": 0, **(divisor if older else {})}
    job = Stream(module, loss, optimizer, people, **options)
    taken = []
    for number in range(steps):
        x = torch.tensor(rng.normal(size=(PEOPLE, 50)), dtype=torch.float32)
        y = torch.tensor(rng.integers(0, 2, PEOPLE))
        new = accounts + number * PEOPLE
        ids = [*rng.integers(accounts, size=PEOPLE // 2).tolist(), *range(new, new + PEOPLE // 2)]
        began = time.process_time()
        job.update(x, y, ids, **({} if older else divisor))
        taken.append(time.process_time() - began)
    return [sum(taken[:number]) for number in range(steps + 1)]


JOBS: dict[str, tuple[Callable[..., list[float]], int, int, str]] = {
    "mnist": (lambda n, steps: trainer("mnist", n, steps), 1000, 8, "convolutions on {:,} images of MNIST's shape"),
    "mlp": (lambda n, steps: trainer("mlp", n, steps), 512, 8, "a network with three linear layers on {:,} records"),
    "transformer": (lambda n, steps: trainer("transformer", n, steps), 64, 8, "a small transformer on {:,} texts"),
    "resnet": (lambda n, steps: trainer("resnet", n, steps), 64, 8, "a ResNet with GroupNorm on {:,} images"),
    "mobile": (lambda n, steps: trainer("mobile", n, steps), 64, 8, "depthwise convolutions on {:,} images"),
    "lstm": (lambda n, steps: trainer("lstm", n, steps), 512, 8, "an LSTM on {:,} sequences"),
    "sampled": (lambda n, steps: trainer("", n, steps, 0.01), 100_000, 40, "DP-SGD at rate 0.01 of {:,} accounts"),
    "accounts": (lambda n, steps: trainer("", n, steps), 1_000_000, 6, "a Trainer with {:,} accounts in a step"),
    "stream": (stream, 10_000_000, 40, f"an update of {PEOPLE:,} people of a Stream with {{:,}} accounts"),
}
"""Jobs by name: the function, the number of people or accounts, the number of steps that are timed, and the title."""


def work(name: str, count: int, source: Path) -> None:
    """Run one job in this process, with the package of a checkout, and print its figures."""
    import torch

    import almoner

    if not Path(almoner.__file__).resolve().is_relative_to(source.resolve()):
        raise SystemExit(f"{source} has no package almoner: {almoner.__file__} was imported")
    torch.set_num_threads(1)
    job, _, steps, _ = JOBS[name]
    taken = [after - before for before, after in pairwise(job(count, steps + WARM_UP))][WARM_UP:]
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
    print(json.dumps({"step": median(taken), "memory": memory}))


def process(name: str, count: int, source: Path) -> dict[str, float]:
    """Figures of one process."""
    command = [sys.executable, "-W", "ignore", __file__, "--only", name, str(count), str(source)]
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def interval(ratios: list[float]) -> tuple[float, float] | None:
    """The narrowest pair of order statistics that holds the true median with probability 0.95; None: too few."""
    count, ordered = len(ratios), sorted(ratios)
    fits = [k for k in range((count + 1) // 2) if sum(comb(count, j) for j in range(k + 1)) / 2**count <= 0.025]
    return (ordered[fits[-1]], ordered[-1 - fits[-1]]) if fits else None


def compare(name: str, count: int, pairs: int, sources: tuple[Path, Path]) -> dict[str, object]:
    """Run the pairs of one job and print its line; the figures."""
    rows: list[list[dict[str, float]]] = [[], []]
    for number in range(pairs):
        for which in (0, 1) if number % 2 else (1, 0):
            rows[which].append(process(name, count, sources[which]))
    steps, memory = ([median(row[key] for row in each) for each in rows] for key in ("step", "memory"))
    ratios = [mine["step"] / other["step"] for mine, other in zip(*rows, strict=True)]
    found = interval(ratios)
    within = "" if found is None else f" [{found[0]:.3f}, {found[1]:.3f}]"
    print(f"{name}: {JOBS[name][3].format(count)}")
    print(f"  a step {1e3 * steps[0]:.2f} ms, there {1e3 * steps[1]:.2f} ms; ratio {median(ratios):.3f}{within}")
    print(f"  peak memory {memory[0]:.0f} MiB, there {memory[1]:.0f} MiB", flush=True)
    return {"step": steps, "memory": memory, "ratio": median(ratios), "interval": found}


def main() -> None:
    """Compare, and print the figures as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, default=HERE, help="the src folder of the other checkout")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--quick", action="store_true", help="two pairs, a fiftieth of the people")
    parser.add_argument("--only", nargs=3, metavar=("JOB", "COUNT", "SRC"), help="run as a process of a pair")
    given = parser.parse_args()
    if given.only:
        work(given.only[0], int(given.only[1]), Path(given.only[2]))
        return
    sources = HERE, given.against.resolve()
    pairs, part = (2, 50) if given.quick else (given.pairs, 1)
    print(json.dumps({name: compare(name, max(8, JOBS[name][1] // part), pairs, sources) for name in given.jobs}))


if __name__ == "__main__":
    main()

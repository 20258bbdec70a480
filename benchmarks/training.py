"""Measure people per second for clipped sums of gradients: Bursar, plain training and Opacus, on three networks.

    python benchmarks/training.py            # all networks
    python benchmarks/training.py --quick    # smaller batches, fewer rounds

Prints, for each network, the time of one batch in each engine (the best of several rounds, in turns, so that other load
affects all engines alike), the ratio to plain training, the ratio of the best mode of Opacus to Bursar, and the peak
memory of each engine in a separate process. Opacus needs `pip install opacus==1.6.0`. Its modes are hooks, functorch
and ghost; its optimizer step is omitted, so that only the clipped sum is timed.
"""

import argparse
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import nn

from bursar.training.gradients import Gradients

BY_RECORD = nn.CrossEntropyLoss(reduction="none")
ENGINES = ("plain", "bursar", "hooks", "functorch", "ghost")


class Classifier(nn.Module):
    """A small transformer on 128 words."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(5000, 128), nn.Embedding(128, 128)
        self.mixes = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(128, 2)

    def forward(self, x):
        x = self.words(x) + self.places(torch.arange(128, device=x.device).repeat(len(x), 1))
        for mix in self.mixes:
            x = mix(x)
        return self.out(x.mean(1))


def mnist():
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, 3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU(),
        nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


def mlp():
    return nn.Sequential(
        nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)
    )  # fmt: skip


NETWORKS = {
    "mnist": (mnist, lambda n: torch.randn(n, 1, 28, 28), 10, 2000, 250),
    "mlp": (mlp, lambda n: torch.randn(n, 784), 10, 1024, 128),
    "transformer": (Classifier, lambda n: torch.randint(5000, (n, 128)), 2, 128, 32),
}

SHARES = {("mlp", "hooks"): 8, ("mlp", "functorch"): 8}
"""Engines that are so slow that they get fewer people; their times are scaled up."""


def plain(module, x, y, size):
    """Non-private training: the summed gradient, channels last."""
    module = module.to(memory_format=torch.channels_last)

    def run():
        module.zero_grad()
        for a, b in zip(x.split(size), y.split(size), strict=True):
            a = a.to(memory_format=torch.channels_last) if a.dim() == 4 else a
            BY_RECORD(module(a), b).sum().backward()

    return run


def bursar(module, x, y, size):
    """Bursar's clipped sum, with all defaults."""
    engine = Gradients(module.to(memory_format=torch.channels_last), BY_RECORD)
    return lambda: engine.sums(x, y, 1.0)


def opacus(mode):
    """Opacus's clipped sum, in chunks of the same size."""

    def make(module, x, y, size):
        from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
        from opacus.layers import DPMultiheadAttention  # noqa: F401
        from opacus.validators import ModuleValidator

        module = ModuleValidator.fix(module)  # replaces attention and recurrent layers by those of Opacus
        parameters = list(module.parameters())
        if mode == "ghost":
            private = GradSampleModuleFastGradientClipping(
                module, max_grad_norm=1.0, use_ghost_clipping=True, loss_reduction="sum"
            )
        else:
            private = GradSampleModule(module, loss_reduction="sum", force_functorch=mode == "functorch")

        def ghost(a, b):
            losses = BY_RECORD(private(a), b)
            losses.sum().backward(retain_graph=True)
            factors = private.get_clipping_coef()
            private.zero_grad()
            private.disable_hooks()
            (losses * factors.detach()).sum().backward()
            private.enable_hooks()
            for parameter in parameters:
                parameter.grad = None

        def hooks(a, b):
            BY_RECORD(private(a), b).sum().backward()
            norms = torch.stack([p.grad_sample.flatten(1).norm(dim=1) for p in parameters], 1).norm(dim=1)
            factors = (1.0 / (norms + 1e-6)).clamp(max=1.0)
            for parameter in parameters:
                torch.einsum("i,i...", factors, parameter.grad_sample)
                parameter.grad_sample = None

        def run():
            for a, b in zip(x.split(size), y.split(size), strict=True):
                (ghost if mode == "ghost" else hooks)(a, b)

        return run

    return make


MAKE = {"plain": plain, "bursar": bursar} | {mode: opacus(mode) for mode in ("hooks", "functorch", "ghost")}


def prepare(network, engine, count):
    """The job of one engine on one network: a function without arguments."""
    torch.manual_seed(0)
    make, draw, classes, _, size = NETWORKS[network]
    return MAKE[engine](make(), draw(count), torch.randint(classes, (count,)), size)


class Worker:
    """A process that runs one engine on one network on request, so that memory is measured for each engine alone."""

    def __init__(self, network, engine, count):
        self.people = max(1, count // SHARES.get((network, engine), 1))
        command = [sys.executable, __file__, "--only", network, engine, str(self.people)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.best = float("inf")

    def take_turn(self):
        """Run once, and store the best time and the peak memory in MiB."""
        print("go", file=self._process.stdin, flush=True)
        seconds, self.memory = map(float, self._process.stdout.readline().split())
        self.best = min(self.best, seconds)

    def stop(self):
        """End the process."""
        self._process.communicate()


def work(network, engine, count):
    """Run as a worker: for each line of input, run once and print seconds and peak memory."""
    run = prepare(network, engine, count)
    run()
    for _ in sys.stdin:
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        status = Path("/proc/self/status").read_text()
        memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
        print(seconds, memory, flush=True)


def main():
    """Take turns, print the table, and print the figures as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs=3, metavar=("NETWORK", "ENGINE", "COUNT"), help="run as a worker")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.only:
        work(*options.only[:2], int(options.only[2]))
        return
    results = {}
    for network, (_, _, _, count, _) in NETWORKS.items():
        count = count // 4 if options.quick else count
        workers = {engine: Worker(network, engine, count) for engine in ENGINES}
        for _ in range(2 if options.quick else options.rounds):
            for worker in workers.values():
                worker.take_turn()
        for worker in workers.values():
            worker.stop()
        best = {engine: worker.best * count / worker.people for engine, worker in workers.items()}
        peer = min(best[engine] for engine in ENGINES[2:])
        print(f"{network}: {count} people, {torch.get_num_threads()} threads")
        for engine, worker in workers.items():
            ratio = best[engine] / best["plain"]
            print(f"  {engine:10} {count / best[engine]:9.0f} people/s  {ratio:5.2f} x plain  {worker.memory:6.0f} MiB")
        print(f"  best of Opacus / Bursar: {peer / best['bursar']:.2f}", flush=True)
        results[network] = {"times": best, "peer_over_ours": peer / best["bursar"]}
    print(json.dumps(results))


if __name__ == "__main__":
    main()

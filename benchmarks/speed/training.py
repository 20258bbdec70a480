"""Measure people per second for clipped sums of gradients: Almoner, plain training and Opacus, on six networks.

    python benchmarks/speed/training.py                        # all networks, two threads, seconds on the clock
    python benchmarks/speed/training.py --threads 1            # one thread, seconds of the processor
    python benchmarks/speed/training.py --networks resnet lstm
    python benchmarks/speed/training.py --quick                # smaller batches, fewer rounds

Prints, for each network, the time of one batch in each engine (the best of several rounds), the median over the rounds
of its ratio to plain training and of the best mode of Opacus to Almoner (engines take turns, so that other load affects
all of them alike), and the peak memory of each engine, which has a process of its own. Opacus needs
`pip install opacus==1.6.0`. Its modes are hooks, functorch and ghost; its optimizer step is omitted, so that only the
clipped sum is timed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import nn

from almoner.training.gradients import Gradients

BY_RECORD = nn.CrossEntropyLoss(reduction="none")
ENGINES = ("plain", "almoner", "hooks", "functorch", "ghost")


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


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, into, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.GroupNorm(8, out), nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.GroupNorm(8, out),
        )  # fmt: skip
        self.around = nn.Identity() if into == out else nn.Conv2d(into, out, 1, stride, bias=False)

    def forward(self, x):
        return torch.relu(self.body(x) + self.around(x))


class Mobile(nn.Module):
    """An inverted bottleneck around a depthwise convolution."""

    def __init__(self, width, kernel):
        super().__init__()
        wide = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(width, wide, 1, bias=False), nn.GroupNorm(8, wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, kernel, padding=kernel // 2, groups=wide, bias=False), nn.GroupNorm(8, wide),
            nn.ReLU6(), nn.Conv2d(wide, width, 1, bias=False), nn.GroupNorm(8, width),
        )  # fmt: skip

    def forward(self, x):
        return x + self.body(x)


class Recurrent(nn.Module):
    """An LSTM and a linear layer on its last output."""

    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(3, 32, batch_first=True), nn.Linear(32, 2)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.GroupNorm(8, 16), nn.ReLU(),
        Block(16, 16, 1), Block(16, 32, 2), Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def mobile():
    return nn.Sequential(
        nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.GroupNorm(8, 24), nn.ReLU6(), Mobile(24, 3), Mobile(24, 5),
        nn.Conv2d(24, 64, 3, 2, 1), Mobile(64, 3), Mobile(64, 5), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10),
    )  # fmt: skip


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
    "resnet": (resnet, lambda n: torch.randn(n, 3, 32, 32), 10, 128, 32),
    "mobile": (mobile, lambda n: torch.randn(n, 3, 32, 32), 10, 128, 32),
    "lstm": (Recurrent, lambda n: torch.randn(n, 48, 3), 2, 1024, 256),
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


def almoner(module, x, y, size):
    """Almoner's clipped sum, with all defaults."""
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


MAKE = {"plain": plain, "almoner": almoner} | {mode: opacus(mode) for mode in ("hooks", "functorch", "ghost")}


def prepare(network, engine, count):
    """The job of one engine on one network: a function without arguments."""
    torch.manual_seed(0)
    make, draw, classes, _, size = NETWORKS[network]
    return MAKE[engine](make(), draw(count), torch.randint(classes, (count,)), size)


class Worker:
    """A process that runs one engine on one network on request, so that memory is measured for each engine alone."""

    def __init__(self, network, engine, count, threads):
        self.people = max(1, count // SHARES.get((network, engine), 1))
        command = [sys.executable, __file__, "--only", network, engine, str(self.people), "--threads", str(threads)]
        passive = os.environ | {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=passive)
        self.seconds = []

    def take_turn(self):
        """Run once; store the time for each person and the peak memory in MiB."""
        print("go", file=self._process.stdin, flush=True)
        seconds, self.memory = map(float, self._process.stdout.readline().split())
        self.seconds.append(seconds / self.people)

    def stop(self):
        """End the process."""
        self._process.communicate()

    def ratio(self, other):
        """The median over rounds of this engine's time by the other's."""
        return statistics.median(a / b for a, b in zip(self.seconds, other.seconds, strict=True))


def work(network, engine, count, threads):
    """Run as a worker: for each line of input, run once and print seconds and peak memory."""
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    run = prepare(network, engine, count)
    run()
    for _ in sys.stdin:
        started = clock()
        run()
        seconds = clock() - started
        status = Path("/proc/self/status").read_text()
        memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024
        print(seconds, memory, flush=True)


def compare(network, options):
    """Take turns on one network and print its table; the figures."""
    count = NETWORKS[network][3] // (4 if options.quick else 1)
    workers = {engine: Worker(network, engine, count, options.threads) for engine in ENGINES}
    for _ in range(2 if options.quick else options.rounds):
        for worker in workers.values():
            worker.take_turn()
    for worker in workers.values():
        worker.stop()
    print(f"{network}: {count} people, {options.threads} threads")
    for engine, worker in workers.items():
        rate, ratio = 1 / min(worker.seconds), worker.ratio(workers["plain"])
        print(f"  {engine:10} {rate:9.0f} people/s  {ratio:5.2f} x plain  {worker.memory:6.0f} MiB")
    peer = min(workers[engine].ratio(workers["almoner"]) for engine in ENGINES[2:])
    print(f"  best of Opacus / Almoner: {peer:.2f}", flush=True)
    return {
        "times": {engine: count * min(worker.seconds) for engine, worker in workers.items()},
        "peer_over_ours": peer,
    }


def main():
    """Take turns, print the tables, and print the figures as JSON on the last line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--only", nargs=3, metavar=("NETWORK", "ENGINE", "COUNT"), help="run as a worker")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.only:
        work(*options.only[:2], int(options.only[2]), options.threads)
        return
    print(json.dumps({network: compare(network, options) for network in options.networks}))


if __name__ == "__main__":
    main()

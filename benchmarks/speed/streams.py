"""An update of a stream costs what its own people cost: 1,000 people among few and among many accounts.

    python benchmarks/speed/streams.py                    # among 10,000 and among 10 million accounts
    python benchmarks/speed/streams.py --many 1000000

Both streams run in this process, in turns; half of the people of each update are new. Prints the medians of the
processor time of an update, and their ratio.
"""

import argparse
from statistics import median
from time import process_time

import numpy as np
import torch
from torch import nn

from almoner import filters, individual
from almoner.training import Stream

PEOPLE, FEATURES = 1000, 50


def stream(accounts: int) -> Stream:
    """A stream over people 0 to accounts - 1."""
    module = nn.Linear(FEATURES, 2)
    people = individual.Filter(list(range(accounts)), filters.Gaussian(mu=1.0))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    loss = nn.CrossEntropyLoss(reduction="none")
    return Stream(module, loss, optimizer, people, max_grad_norm=1.0, noise_multiplier=100.0)


def main() -> None:
    """Measure, and print one line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=10_000_000)
    parser.add_argument("--updates", type=int, default=60)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rng, sizes = np.random.default_rng(0), (given.few, given.many)
    streams = [stream(size) for size in sizes]
    seconds: list[list[float]] = [[], []]
    for number in range(given.updates):
        x = torch.tensor(rng.normal(size=(PEOPLE, FEATURES)), dtype=torch.float32)
        y = torch.tensor(rng.integers(0, 2, PEOPLE))
        for which, size in enumerate(sizes):
            old = rng.choice(size, PEOPLE // 2, replace=False).tolist()
            new = list(range(size + number * PEOPLE, size + number * PEOPLE + PEOPLE // 2))
            began = process_time()
            streams[which].update(x, y, old + new, divisor=PEOPLE)
            seconds[which].append(process_time() - began)
    few, many = (median(each[5:]) for each in seconds)
    print(
        f"{PEOPLE:,} people among {given.few:,} accounts: {1e3 * few:.2f} ms; among {given.many:,}: {1e3 * many:.2f} ms"
    )
    print(f"ratio {many / few:.2f}; the slowest update among many took {1e3 * max(seconds[1][1:]):.0f} ms")


if __name__ == "__main__":
    main()

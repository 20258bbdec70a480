"""Feldman & Zrnic (2021), figure 2: histograms of each person's odometer at three times of private gradient descent.

    python experiments/feldman_zrnic_2021/odometers.py            # two minutes on one core
    python experiments/feldman_zrnic_2021/odometers.py --quick    # 2,000 people: some seconds

Compares Algorithm 6 with the Rényi odometer for each person. MNIST, full batches, noise multiplier 170, alpha = 63,
Delta = 0.00109 = alpha / (2 sigma^2), as in the paper; a network with one hidden layer replaces the paper's. Writes
odometers.json and odometers.png. The histograms are functions of people's data: they are shown here because the data
are public, and must not be published for other data.

MNIST is read from $BURSAR_DATA/mnist, or from ../shared/data/mnist beside the project. The noise is seeded so that the
picture can be reproduced: this is an experiment on public data, and not private.
"""

import argparse
import gzip
import json
import os
from pathlib import Path

import numpy as np

from bursar import individual, mechanisms, odometers
from bursar.report.figures import figure

HERE = Path(__file__).parent
DATA = Path(os.environ.get("BURSAR_DATA", HERE.parents[2] / "shared" / "data")) / "mnist"
SIGMA, ALPHA, DELTA_STEP, DELTA, CLIP, RATE, HIDDEN = 170.0, 63.0, 0.00109, 1e-5, 4.0, 1.5, 64
TIMES = (26, 52, 104)


def mnist(people: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Pixels in [0, 1] and labels of the training images."""
    with gzip.open(DATA / "train-images-idx3-ubyte.gz") as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(DATA / "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(), np.uint8, offset=8)
    return pixels[:people].astype(np.float32) / 255, labels[:people]


class Network:
    """784 - 64 - 10 with tanh; each person's gradient norm, and the sum of clipped gradients."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.first = rng.normal(0, 0.05, (784, HIDDEN)).astype(np.float32)
        self.second = rng.normal(0, 0.1, (HIDDEN, 10)).astype(np.float32)
        self.shift, self.offset = np.zeros(HIDDEN, np.float32), np.zeros(10, np.float32)

    def gradients(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, list[np.ndarray], float]:
        """(n,) private norms clipped to CLIP, the sum of clipped gradients, and the accuracy."""
        hidden = np.tanh(x @ self.first + self.shift)
        logits = hidden @ self.second + self.offset
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = odds / odds.sum(axis=1, keepdims=True)
        accuracy = float(np.mean(error.argmax(axis=1) == y))
        error[np.arange(len(y)), y] -= 1
        back = (error @ self.second.T) * (1 - hidden**2)
        # a layer's gradient is an outer product, so its norm is the product of norms
        square = (error**2).sum(axis=1) * (1 + (hidden**2).sum(axis=1))
        square = square + (back**2).sum(axis=1) * (1 + (x**2).sum(axis=1))
        norms = np.sqrt(square.astype(np.float64)) * (1 + 1e-5)  # larger than the rounding error of float32
        scale = np.minimum(1.0, CLIP / np.maximum(norms, 1e-12)).astype(np.float32)[:, None]
        error, back = error * scale, back * scale
        sums = [x.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
        return np.minimum(norms, CLIP), sums, accuracy

    def step(self, sums: list[np.ndarray], people: int, rng: np.random.Generator) -> None:
        """Descend by the noisy sum, divided by the public number of people."""
        for weights, total in zip((self.first, self.shift, self.second, self.offset), sums, strict=True):
            noise = rng.normal(0, SIGMA * CLIP, total.shape)
            weights -= (RATE * (total + noise) / people).astype(np.float32)


def train(people: int | None, quick: bool) -> dict[str, object]:
    """Each person's odometer at three times."""
    x, y = mnist(people)
    rng = np.random.default_rng(1)
    network, step = Network(rng), mechanisms.Gaussian(SIGMA * CLIP, CLIP)
    plan = mechanisms.Repeated(mechanisms.Gaussian(SIGMA), TIMES[-1])
    accounts = {
        "Algorithm 6": individual.Odometer(len(y), odometers.FeldmanZrnic(delta=DELTA, alpha=ALPHA, step=DELTA_STEP)),
        "Rényi, planned": individual.Odometer(len(y), odometers.Renyi(delta=DELTA, plan=plan)),
    }
    result: dict[str, object] = {"people": len(y), "delta": DELTA, "quick": quick, "times": {}}
    for time in range(1, TIMES[-1] + 1):
        norms, sums, accuracy = network.gradients(x, y)
        for account in accounts.values():
            account.charge(step, norms)
        network.step(sums, len(y), rng)
        if time in TIMES:
            bounds = {"Algorithm 6": accounts["Algorithm 6"].epsilon()}
            bounds["Rényi, pathwise"] = accounts["Rényi, planned"].epsilon()
            bounds["Rényi, ex-post"] = accounts["Rényi, planned"].ex_post_epsilon()
            result["times"][time] = {"accuracy": accuracy} | {k: _histogram(v) for k, v in bounds.items()}
            print(time, f"accuracy {accuracy:.3f}", {k: f"{np.mean(v):.4f}" for k, v in bounds.items()})
    return result


def _histogram(values: np.ndarray) -> dict[str, object]:
    counts, edges = np.histogram(values, bins=40, range=(0.0, 0.32))
    quantiles = np.quantile(values, [0.0, 0.1, 0.5, 0.9, 1.0])
    return {"counts": counts.tolist(), "edges": edges.tolist(), "quantiles": quantiles.tolist()}


def main() -> None:
    """Compute, write and plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2,000 people")
    quick = parser.parse_args().quick
    result = train(2000 if quick else None, quick)
    if quick:
        return
    (HERE / "odometers.json").write_text(json.dumps(result) + "\n", encoding="utf-8")
    picture = figure(15, 4)
    panels = picture.subplots(1, len(TIMES), sharey=True)
    for axes, (time, at) in zip(panels, result["times"].items(), strict=True):
        for name in ("Algorithm 6", "Rényi, pathwise", "Rényi, ex-post"):
            axes.stairs(at[name]["counts"], at[name]["edges"], label=name)
        axes.set(title=f"after {time} steps (accuracy {at['accuracy']:.1%})", xlabel="epsilon of a person")
    panels[0].set_ylabel("people")
    panels[0].legend(fontsize=8)
    picture.savefig(HERE / "odometers.png", dpi=120)


if __name__ == "__main__":
    main()

"""Lécuyer (2021): Lécuyer's odometer against the plain filter while fine-tuning, and against the Rényi odometer.

    python experiments/lecuyer_2021/odometer.py

Sampling rate 512/50000 (0.01024), noise multiplier 1, 98 steps an epoch, 50 epochs, delta = 1e-6. The filter is the
bound for a number of epochs fixed in advance: what a filter of exactly that budget would have admitted. Prints some
epochs, and writes odometer.json and odometer.png beside this file; takes some seconds.
"""

import json
from pathlib import Path

from bursar import mechanisms, odometers
from bursar.compare import Bound, Comparison
from bursar.curves import renyi
from bursar.report.odometers import draw

HERE = Path(__file__).parent
DELTA, EPOCHS = 1e-6, 50
EPOCH = mechanisms.Repeated(mechanisms.SampledGaussian(1.0, 1.0, 0.01024), 98)


def comparison() -> Comparison:
    """Every curve after every epoch."""
    epochs = tuple(range(1, EPOCHS + 1))
    plan = mechanisms.Repeated(EPOCH, EPOCHS)
    one = renyi.values(EPOCH, renyi.ORDERS)
    bounds = [
        Bound(
            "Rényi, Mironov's conversion",
            "fixed",
            tuple(float(renyi.mironov(k * one, renyi.ORDERS, delta=DELTA)) for k in epochs),
        ),
        Bound("Rényi", "fixed", tuple(float(renyi.epsilon(k * one, renyi.ORDERS, delta=DELTA)) for k in epochs)),
    ]
    for name, make in (
        ("Lécuyer, as in the paper", lambda: odometers.Lecuyer(delta=DELTA, sum_delta=0.0)),
        ("Lécuyer, as in his code", lambda: odometers.Lecuyer(delta=DELTA, sum_delta=0.0, first=0.25)),
        ("Rényi", lambda: odometers.Renyi(delta=DELTA, sum_delta=0.0)),
        ("Rényi, planned", lambda: odometers.Renyi(delta=DELTA, sum_delta=0.0, plan=plan)),
    ):
        odometer, pathwise, ex_post = make(), [], []
        for _ in epochs:
            odometer.charge(EPOCH)
            pathwise.append(odometer.epsilon())
            ex_post.append(odometer.ex_post_epsilon())
        bounds.append(Bound(name, "pathwise", tuple(pathwise)))
        if ex_post != pathwise:
            bounds.append(Bound(name, "ex-post", tuple(ex_post)))
    return Comparison(EPOCH, DELTA, epochs, tuple(bounds))


def main() -> None:
    """Compute, write, plot, and print some epochs."""
    table = comparison()
    (HERE / "odometer.json").write_text(json.dumps(table.as_dict()) + "\n", encoding="utf-8")
    draw(table, HERE / "odometer.png", title=f"Fine-tuning, delta = {DELTA:g} (rounds are epochs)")
    for bound in table.bounds:
        print(f"{bound.name:32} {bound.promise:9}" + "".join(f" {bound.epsilons[k - 1]:8.4f}" for k in (1, 10, 50)))


if __name__ == "__main__":
    main()

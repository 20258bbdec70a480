"""Compare all odometers for Gaussian mechanisms at delta = 1e-5: a table of docs/odometers.md.

python benchmarks/tightness/odometers.py

Prints the table in Markdown: the epsilon of each odometer after 1 to 10,000 rounds.
"""

from almoner import mechanisms, odometers
from almoner.curves import gaussian, zcdp

DELTA = 1e-5
SIGMAS, ROUNDS = (1.0, 5.0, 20.0, 100.0), (1, 10, 100, 1000, 10_000)
HEADINGS = (
    "sigma | rounds | exact, fixed | Rényi 3.2, fixed | Renyi | Renyi ex-post | planned | planned ex-post"
    " | Gaussian | Gaussian ex-post | Stitched | Lecuyer | FeldmanZrnic"
)


def row(sigma: float, rounds: int) -> list[float]:
    """All bounds after the given number of rounds, which are also the plan."""
    run = mechanisms.Repeated(mechanisms.Gaussian(sigma), rounds)
    values = [gaussian.of(run).epsilon(delta=DELTA), zcdp.of(run).epsilon(delta=DELTA)]
    for make in (
        lambda: odometers.Renyi(delta=DELTA),
        lambda: odometers.Renyi(delta=DELTA, plan=run),
        lambda: odometers.Gaussian(delta=DELTA),
    ):
        odometer = make()
        odometer.charge(run)
        values += [odometer.epsilon(), odometer.ex_post_epsilon()]
    for odometer in (odometers.Stitched(delta=DELTA), odometers.Lecuyer(delta=DELTA)):
        odometer.charge(run)
        values.append(odometer.epsilon())
    restarts = odometers.FeldmanZrnic(delta=DELTA, alpha=16.0, step=16.0 / (2 * sigma**2) * (1 + 1e-12))
    restarts.charge(run)
    return [*values, restarts.epsilon()]


def lines() -> list[str]:
    """The lines of the table in Markdown."""
    rule = " | ".join("---:" for _ in HEADINGS.split(" | "))
    rows = [
        " | ".join([f"{sigma:g}", str(rounds), *(f"{value:.4g}" for value in row(sigma, rounds))])
        for sigma in SIGMAS
        for rounds in ROUNDS
    ]
    return [f"| {line} |" for line in (HEADINGS, rule, *rows)]


if __name__ == "__main__":
    print("\n".join(lines()))

"""Compare noise in whole numbers with its exact probabilities, and its speed with NumPy's normal numbers.

python benchmarks/tightness/noise.py [--draws 100000000] [--state counts.json] [--json]

For each of several scales it counts how often each number is drawn, and prints chi-square and total variation distance
to the exact probabilities (60 digits, mpmath). Counts are kept in the file of --state after every million draws: the
same command goes on from there. Then it times both samplers by turns: processor time for a million draws, medians of
nine.
"""

import argparse
import json
from math import pi, sqrt
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
from mpmath import mp, mpf
from scipy import stats

from almoner import noise

LAWS = {"rounded_gaussian": ("sigma", (0.3, 1.0, 2.7, 1000.7)), "discrete_laplace": ("scale", (0.5, 1.0, 30.0))}
AT_A_TIME = 1_000_000


def probabilities(law: str, parameter: float, reach: int) -> np.ndarray:
    """Of -reach, ..., reach and of all else together."""
    with mp.workdps(60):
        if law == "rounded_gaussian":
            root = mp.sqrt(2) * mpf(parameter)
            tails = [mp.erfc((k - mpf(1) / 2) / root) / 2 for k in range(reach + 2)]
            right = [tails[k] - tails[k + 1] for k in range(reach + 1)]
        else:
            q = mp.exp(-1 / mpf(parameter))
            right = [(1 - q) / (1 + q) * q**k for k in range(reach + 1)]
        exact = [*right[:0:-1], *right]
        return np.array([*map(float, exact), float(1 - mp.fsum(exact))])


def reach_of(law: str, parameter: float) -> int:
    """How far numbers are counted one by one."""
    return int(parameter * (6 if law == "rounded_gaussian" else 20)) + 2


def counted(law: str, parameter: float, draws: int, state: dict[str, list[int]], file: Path | None) -> np.ndarray:
    """Counts of that many draws, those of the state included."""
    reach, key = reach_of(law, parameter), f"{law} {parameter}"
    counts = np.array(state.get(key, [0] * (2 * reach + 2)))
    while (left := draws - int(counts.sum())) > 0:
        size = min(AT_A_TIME, left)
        numbers = getattr(noise, law)(parameter, size=size) + reach
        inside = numbers[(numbers >= 0) & (numbers <= 2 * reach)]
        counts[:-1] += np.bincount(inside, minlength=2 * reach + 1)
        counts[-1] += size - len(inside)
        state[key] = counts.tolist()
        if file is not None:
            fresh = file.with_suffix(".new")
            fresh.write_text(json.dumps(state), encoding="utf-8")
            fresh.replace(file)
    return counts


def compared(law: str, parameter: float, counts: np.ndarray) -> dict[str, object]:
    """How far counts are from the exact probabilities; numbers that are expected fewer than ten times are one."""
    draws = int(counts.sum())
    expected = draws * probabilities(law, parameter, reach_of(law, parameter))
    rare = expected < 10
    observed, expected = (np.append(each[~rare], each[rare].sum()) for each in (counts, expected))
    if expected[-1] < 1:  # too few to be a cell of their own
        observed = np.append(observed[:-2], observed[-2:].sum())
        expected = np.append(expected[:-2], expected[-2:].sum())
    chi, p = stats.chisquare(observed, expected * (draws / expected.sum()))
    share = expected / draws
    return {
        "law": law,
        LAWS[law][0]: parameter,
        "draws": draws,
        "numbers": len(observed),
        "chi-square": round(float(chi), 1),
        "p": round(float(p), 4),
        "total variation": float(f"{np.abs(observed - expected).sum() / 2 / draws:.3g}"),
        "expected of exact draws": float(f"{np.sqrt(share * (1 - share)).sum() / sqrt(2 * pi * draws):.3g}"),
    }


def speed() -> dict[str, float]:
    """Nanoseconds a draw, and ratios to NumPy's."""
    generator = np.random.default_rng()
    samplers = {
        "numpy normal": lambda: generator.normal(0.0, 2e8, AT_A_TIME),
        "sigma 3": lambda: noise.rounded_gaussian(3.0, size=AT_A_TIME),
        "sigma 2e8": lambda: noise.rounded_gaussian(2e8, size=AT_A_TIME),
        "sigma 1e15": lambda: noise.rounded_gaussian(1e15, size=AT_A_TIME),
        "laplace 1e6": lambda: noise.discrete_laplace(1e6, size=AT_A_TIME),
    }
    times: dict[str, list[float]] = {name: [] for name in samplers}
    for _ in range(9):
        for name, sample in samplers.items():
            start = process_time()
            sample()
            times[name].append((process_time() - start) / AT_A_TIME * 1e9)
    nanoseconds = {name: round(median(each), 1) for name, each in times.items()}
    ratios = {
        f"{name}, times NumPy's": round(each / nanoseconds["numpy normal"], 2) for name, each in nanoseconds.items()
    }
    return nanoseconds | ratios


def main() -> None:
    """Draw, compare, time, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1_000_000, help="for each scale")
    parser.add_argument("--state", type=Path, help="a file for the counts, to go on from")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    state = json.loads(options.state.read_text(encoding="utf-8")) if options.state and options.state.exists() else {}
    rows: list[dict[str, object]] = []
    for law, (_, parameters) in LAWS.items():
        for parameter in parameters:
            rows.append(compared(law, parameter, counted(law, parameter, options.draws, state, options.state)))
            if not options.json:
                print(*(f"{name} {value}" for name, value in rows[-1].items()), sep=", ", flush=True)
    times = speed()
    print(json.dumps({"rows": rows, "speed": times}) if options.json else json.dumps(times, indent=1))


if __name__ == "__main__":
    main()

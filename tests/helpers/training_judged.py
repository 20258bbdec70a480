"""Judges a run that was killed and went on: what was released against what people were charged, and the noise.

Names and symbols
    g             (steps, n) what each person contributed to a release, with its sign; private
    C             the factor of correlated noise: rows are released with noise C^-1 z, for independent z

Source: theory 5.1 (charges cover the sum of squared contributions over sigma squared), 5.11 (correlated noise)
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from almoner import filters, individual
from almoner.mechanisms import SampledGaussian
from almoner.training import FixedBatches, Poisson
from training_killed import BUDGET, CLIP, DELTA, NAMES, SIGMA, SQUARES, STRENGTH, Door, N, present, stream

Array = NDArray[np.float64]

SAME = 2e-15
"""Two normal numbers that are so close are one; by chance once in many thousands of campaigns."""

ROUNDING, MARGIN = 1e-9, 5e-5
"""Of sums here; and by how much more than computed norms are charged, because they are rounded."""


def judged(door: Door, folder: Path, ends: list[str]) -> dict[str, object]:
    """What was found in the folder of a run that has come to its end.

    Args:
        ends: the signals that ended its processes.

    Returns:
        Numbers of releases and of steps that were lost, and the problems: texts, none if all is well.
    """
    lines = read(folder / "released.jsonl")
    end = json.loads((folder / "end.json").read_text(encoding="utf-8"))
    draws = [line for line in lines if "told" not in line]
    last = list({draw["step"]: draw for draw in draws}.values())
    problems = list(end.get("found", []))
    if end["steps"] != door.steps or len(last) != door.steps:
        problems.append(f"{end['steps']} steps and releases of {len(last)}, planned {door.steps}")
    problems += told_twice(lines)
    costs, most, wrong = costs_of(door, last if door.whole else draws, last, end.get("parts"))
    problems += wrong + account_problems(door, end, costs, most)
    lost = end.get("lost")
    if lost is not None:
        if not door.whole and lost < len(draws) - door.steps:
            problems.append("fewer releases on record than there were")
        if lost and all(each == "SIGTERM" for each in ends):
            problems.append(f"{lost} steps were lost, though all processes were told to end")
    if "model" in end and not np.allclose(end["model"], model_of(door, last), rtol=0, atol=1e-9):
        problems.append("the model is not the sum of the releases")
    twice = len(repeated(draws))
    problems += [f"{twice} numbers of noise were used again"] if twice else []
    return {"releases": len(draws), "again": len(draws) - len(last), "lost": lost, "problems": problems}


def read(path: Path) -> list[dict[str, object]]:
    """The lines of the witness."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def told_twice(lines: list[dict[str, object]]) -> list[str]:
    """Updates that were drawn again after they had been shown."""
    told, problems = 0, []
    for line in lines:
        if "told" in line:
            told = max(told, line["told"])
        elif line["step"] < told:
            problems.append(f"update {line['step'] + 1} was shown, and made again")
    return problems


def account_problems(door: Door, end: dict[str, object], costs: Array, most: Array) -> list[str]:
    """Who is charged too little, above the budget, or for more than the run can have cost."""
    charged = np.array(end["charged"])
    problems = [f"person {who} is undercharged" for who in np.flatnonzero(charged < costs * (1 - ROUNDING))]
    if door.budget == "gaussian" and charged.max() > SQUARES / SIGMA**2 * (1 + 1e-12):
        problems.append("somebody is above the budget")
    if max(end.get("shares", [0.0])) > 1 + 1e-12:
        problems.append("somebody has spent more than their share")
    if end.get("lost") is not None and not (end["lost"] and door.budget == "residue"):  # prices there follow the rest
        over = charged > (most + end["lost"] * worst(door)) * (1 + MARGIN) + ROUNDING
        problems += [f"person {who} is charged for what never was" for who in np.flatnonzero(over)]
    for bounds in end.get("bounds", ()):
        needed = [filters.Gaussian(mu=cost**0.5).epsilon(delta=DELTA) if cost else 0.0 for cost in costs]
        below = np.flatnonzero(np.array(bounds) < np.array(needed) * (1 - 1e-6))
        problems += [f"person {who} has a running bound below what was released" for who in below]
    return problems


def model_of(door: Door, last: list[dict[str, object]]) -> Array:
    """The model that steps along these releases lead to."""
    return -door.scale * np.sum([np.add(draw["exact"], draw["noise"]) for draw in last], axis=0)


def repeated(draws: list[dict[str, object]]) -> Array:
    """The numbers of noise that come twice, at whatever place of whatever release."""
    vectors = [draw.get("drawn") or np.array(draw["noise"]) / draw["sigma"] for draw in draws]
    numbers = np.sort(np.concatenate([np.ravel(each) for each in vectors]))
    return numbers[1:][np.diff(numbers) < SAME]


# what releases cost --------------------------------------------------------------------------------------------------


def costs_of(
    door: Door, draws: list[dict[str, object]], last: list[dict[str, object]], parts: list[float] | None
) -> tuple[Array, Array, list[str]]:
    """(n,) each person's cost of these releases, in the measure of the budget; the most to be charged; and problems.

    The most is that of the last release of each step; who was in others has paid the worst case for them.

    Args:
        parts: of the budget, that a ledger has for each person.
    """
    if isinstance(door.sampling, FixedBatches):
        return correlated_costs(door, draws)
    if isinstance(door.sampling, Poisson):
        rate = door.sampling.rate
        return sampled_costs(door, draws, rate), sampled_costs(door, last, rate, slack=1.1, parts=parts), []
    again = [draw for draw in draws if all(draw is not other for other in last)]
    missed = sum((there(door, draw["step"]) * worst(door) for draw in again), np.zeros(N))
    least = np.minimum(squares(last) + missed, SQUARES / SIGMA**2)  # a step that was lost costs what it can have cost
    return np.maximum(squares(draws), least), squares(last), []


def there(door: Door, step: int) -> Array:
    """(n,) 1 for who was announced to be in a release, else 0."""
    return np.array([float(door.goes is not stream or name in present(step)[2]) for name in NAMES])


def squares(draws: list[dict[str, object]]) -> Array:
    """(n,) the sum of squared contributions over sigma squared."""
    return np.sum([(np.array(draw["exact"]) / draw["sigma"]) ** 2 for draw in draws], axis=0)


def sampled_costs(
    door: Door,
    draws: list[dict[str, object]],
    rate: float,
    *,
    slack: float | None = None,
    parts: list[float] | None = None,
) -> Array:
    """(n,) the cost of being liable to be sampled. Norms are known: those of the records.

    Args:
        slack: by how much bounds are larger than norms, for the most that is charged. None: without it, and up to the
            last release that each person is seen in: who has run out is not in later ones.
        parts: of the budget, for each person.
    """
    accounts = individual.Filter(N, BUDGET[door.budget](), shares=parts)
    seen = np.array([draw["exact"] for draw in draws]) != 0
    until = np.where(seen.any(axis=0), len(draws) - np.argmax(seen[::-1], axis=0), 0)
    norms = np.minimum(STRENGTH * (slack or 1.0), CLIP)
    for number, draw in enumerate(draws):
        there = np.full(N, True) if slack else number < until
        accounts.charge(SampledGaussian(draw["sigma"], CLIP, rate), np.where(there, norms, 0.0))
    return np.asarray(accounts.spent())


def correlated_costs(door: Door, draws: list[dict[str, object]]) -> tuple[Array, Array, list[str]]:
    """(n,) cost and the most to be charged of fixed batches: |C g|^2 for each mechanism, and with |g|; and problems.

    A process goes on with the mechanism of the last one, or begins another, whose rows hold nothing of the former.
    It must do the latter where a step is taken again.
    """
    factor = door.sampling.noise.factor(door.steps)
    inverse = factor.inverse
    matrix, problems = np.linalg.inv(inverse), []
    mechanisms: list[dict[int, dict[str, object]]] = [{}]
    for attempt in sorted({draw["attempt"] for draw in draws}):
        mine = {draw["step"]: draw for draw in draws if draw["attempt"] == attempt}
        before = mechanisms[-1]
        again = any(step >= min(mine) for step in before)
        if not again and is_noise_of(before | mine, mine, inverse):
            mechanisms[-1] = before | mine
            continue
        if not is_noise_of(mine, mine, inverse):
            problems.append(f"attempt {attempt}: its noise holds what was in rows before, or is not the factor's")
        mechanisms.append(mine)
    costs, most = np.zeros(N), np.zeros(N)
    for rows in mechanisms:
        given = np.zeros((door.steps, N))
        for step, draw in rows.items():
            given[step] = np.array(draw["exact"]) / draw["sigma"]
        costs += np.sum((matrix @ given) ** 2, axis=0)
        most += np.sum(np.abs(given) * (np.abs(matrix.T @ matrix) @ np.abs(given)), axis=0)
    return costs, most, problems


def is_noise_of(rows: dict[int, dict[str, object]], mine: dict[int, dict[str, object]], inverse: Array) -> bool:
    """True if the noise of my rows is C^-1 z, for the z of these rows."""
    drawn = np.zeros((len(inverse), N))
    for step, draw in rows.items():
        drawn[step] = draw["drawn"]
    expected = inverse @ drawn
    return all(
        np.allclose(np.array(each["noise"]) / each["sigma"], expected[step], rtol=0, atol=1e-9)
        for step, each in mine.items()
    )


def worst(door: Door) -> Array:
    """(n,) the most that a step that was lost is charged."""
    if isinstance(door.sampling, Poisson):
        accounts = individual.Filter(N, BUDGET[door.budget]())
        accounts.charge(SampledGaussian(SIGMA * CLIP, CLIP, door.sampling.rate), np.full(N, CLIP))
        return np.asarray(accounts.spent())
    most = 1.0
    if isinstance(door.sampling, FixedBatches):
        products = door.sampling.noise.factor(door.steps).inner_products(range(0, door.steps, 3))
        most = np.abs(products).sum(axis=1).max() * 2
    return np.full(N, most * (CLIP / SIGMA) ** 2)

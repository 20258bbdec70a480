"""The card of a trainer's run: what its budget promises, and what was released."""

from typing import Any

import numpy as np

from bursar import filters
from bursar.errors import ArgumentError
from bursar.notions import Promise
from bursar.training._card import Card
from bursar.training._settings import Settings
from bursar.training._state import TrainingState

__all__ = ["promise"]

MEASURES = {
    "Gaussian": "mu squared",
    "Zcdp": "rho",
    "RenyiOrder": "Rényi divergence at the order",
    "Residue": "b squared",
}


def promise(
    settings: Settings,
    state: TrainingState,
    *,
    learning_rate: float,
    several_records: bool,
    delta: float | None,
) -> Card:
    """The card of a run. Everything in it is public.

    Args:
        settings: what was decided in advance.
        state: where the run stands: what was charged and released.
        learning_rate: of the first group of parameters.
        several_records: whether the caller said whose each record is.
        delta: at which a budget without a delta of its own is stated.

    Guarantee: the epsilon and delta on the card are those of the budget, which no account exceeds.
    Source: theory 3.2, 3.3, and the source of the budget's filter.
    """
    budget = settings.budget
    promised = _stated(budget, delta)
    kind = type(budget).__name__
    left: Any = budget.left
    scalar = np.ndim(left) == 0 and kind in MEASURES
    done = "Poisson sampling of people, DP-SGD" if settings.sample_rate is not None else "everybody in every step"
    spent = settings.spend_remainder and settings.sample_rate is None
    remainder = "the last contribution spends the remainder" if spent else "who cannot pay is left out"
    accounts = f"an account for each person, {remainder}" if settings.individual else "everybody charged the worst case"
    return Card(
        epsilon=promised.epsilon,
        delta=promised.delta,
        notion=f"the filter {budget!r}",
        measure=MEASURES[kind] if scalar else "epsilon",
        total=float(left) if scalar else promised.epsilon,
        theorem="; ".join([*_statements(settings), promised.theorem]),
        algorithm=f"private gradient descent, {done}; {accounts}",
        individual=settings.individual,
        sigma=settings.noise_multiplier * settings.max_grad_norm,
        noise_multiplier=settings.noise_multiplier,
        max_grad_norm=settings.max_grad_norm,
        steps=state.step,
        extra_steps=0,
        learning_rate=learning_rate,
        average=0.0,
        divisor=settings.divisor * (settings.sample_rate or 1.0),
        divisor_from="fixed by the caller, public",
        count_sigma=None,
        classes_from="given by the caller, public",
        people_from=(
            "all records of one person together, as the caller says whose each is"
            if several_records
            else "each record is one person, so the caller declares"
        ),
        seed="reproducible: not private" if state.seeded else "noise from a generator seeded by the operating system",
        released=tuple(f"{times} times {mechanism!r}" for mechanism, times in state.released.items()),
    )


def _stated(budget: filters.Filter, delta: float | None) -> Promise:
    """What a budget promises, at its own delta if it has one."""
    if budget.delta is not None and delta not in (None, budget.delta):
        raise ArgumentError(f"delta={delta!r}: the budget {budget!r} is stated at its own delta={budget.delta:g}")
    if budget.delta is None and delta is None:
        raise ArgumentError(f"delta=None: the budget {budget!r} has no delta of its own, so give one")
    return budget.notion.statement(delta)


def _statements(settings: Settings) -> list[str]:
    """Which statements about accounts and samples are used."""
    used = ["theory 5.1 for accounts per person"] if settings.individual else []
    return used if settings.sample_rate is None else [*used, "theory 5.6 for Poisson samples"]

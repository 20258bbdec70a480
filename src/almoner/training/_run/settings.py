"""The settings of a run, which its card states, and the options that say how it is computed and watched."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf, nextafter
from typing import Any, NamedTuple, TypedDict

import numpy as np

from almoner import _check, filters, individual, mechanisms
from almoner._arrays import to_numpy
from almoner._search import least
from almoner.accounting import calibrate
from almoner.errors import ArgumentError, CalibrationFailed, Unsupported
from almoner.individual import Filter as PersonFilter
from almoner.individual import Losses
from almoner.individual import Odometer as PersonOdometer
from almoner.mechanisms import Gaussian, Mechanism, SampledGaussian
from almoner.training._card import Boundary, Card, build_card, worst_case
from almoner.training._run.run import CurrentState, TrainingState
from almoner.training._run.samplings import FullBatch, Poisson
from almoner.training.correlated._kinds import FixedBatches

RENAMED = {
    "epsilon": "budget=training.Target(epsilon=1.0, delta=1e-5)",
    "delta": "budget=training.Target(epsilon=1.0, delta=1e-5)",
    "sample_rate": "sampling=training.Poisson(0.01)",
    "ledger": "budget=training.OnLedger(ledger, key), for a Trainer with at_most=filters.Gaussian(...)",
}  # parameters that other libraries have, and the line to write in their place

OWN = (FullBatch, Poisson, FixedBatches)  # the samplings that the card can describe in words


@dataclass(frozen=True, slots=True)
class Compute:
    """The way gradients are computed, and by whom. Public.

    Args:
        views: several views of each record in each step; see ``gradients.augmentations``.
        memory: bytes; see ``training.Gradients``.
        group: a torch.distributed process group, or True for the default one: every process holds its own people.
    """

    views: Any = None
    memory: float | None = None
    group: Any = None


class Passes(TypedDict, total=False):
    """Public numbers of which sampling and steps are made; see ``training.Trainer``."""

    batch_size: float
    epochs: float


def in_passes(
    people: float, steps: int | None, sampling: Any, *, batch_size: float | None = None, epochs: float | None = None
) -> tuple[int | None, Any]:
    """Steps and sampling, of ``Passes`` over a public number of people where those are given in their place."""
    _check.given(_check.positive, batch_size=batch_size, epochs=epochs)
    if batch_size is not None:
        if not batch_size <= people:
            raise ArgumentError(f"batch_size={batch_size!r} must be at most the public number of people, {people:g}")
        if sampling is not None:
            line = f"sampling=training.Poisson({batch_size / people:.6g})"
            raise ArgumentError(f"batch_size={batch_size!r} is {line}: give one of them")
        sampling = Poisson(batch_size / people)
    if epochs is None:
        return steps, sampling
    share = getattr(sampling, "rate", None) or getattr(sampling, "size", people) / people
    many = max(1, ceil(epochs / share - 1e-6))  # a share may be rounded
    if steps is not None:
        raise ArgumentError(f"epochs={epochs!r} is steps={many}: give one of them, not steps={steps!r} as well")
    return many, sampling


TOLERANCE = 1e-3  # relative: how finely the noise is searched, from above


@dataclass(frozen=True, slots=True)
class Target:
    """A promise to each person, for which the best filter is chosen: ``filters.recommend`` names it for the steps.

    With accounts per person it is the best that these can have; the card says why. Public.

    Args:
        epsilon: > 0.
        delta: in (0, 1).
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _check.positive(epsilon=self.epsilon)
        _check.between(0, 1, delta=self.delta)


class Picked(NamedTuple):
    """A budget (None: there is an odometer alone), the reason for it, and the noise. Every field is public."""

    budget: filters.Filter | None
    why: str
    noise_multiplier: float
    odometer: Boundary | None = None  # a fresh odometer, where it stands in place of a budget


def picked(
    given: Any,
    *,
    steps: int | None,
    noise_multiplier: float | None,
    max_grad_norm: float,
    sample_rate: float | None = None,
    individual: bool = True,
) -> Picked:
    """The public budget of each person, a filter of its own, and the noise of a step over the clip.

    ``given`` is a fresh filter, accounts per person, private, a ``Target``, or a fresh odometer. ``steps`` must fit
    where no noise is given; None: as many as the budget admits. Without a noise multiplier the least that fits.

    Raises:
        ArgumentError, Unsupported: an argument breaks a rule; the odometer cannot be kept for each person.
        CalibrationFailed: no noise is enough.

    Guarantee: that of the budget; with noise that was searched, it admits so many steps.
    Source: the filter's own.
    """
    _check.positive(max_grad_norm=max_grad_norm)
    _check.given(_check.positive, noise_multiplier=noise_multiplier)
    _check.given(_check.whole, 1, steps=steps)
    noise_multiplier = None if noise_multiplier is None else float(noise_multiplier)
    if steps is None and (individual or noise_multiplier is None):
        raise ArgumentError("steps=None needs individual=False and a noise_multiplier")
    if isinstance(given, Boundary):
        if noise_multiplier is None or steps is None:
            raise ArgumentError("steps and noise_multiplier must be given where there is an odometer and no budget")
        odometer = fresh_odometer(given)
        if individual:
            PersonOdometer(1, odometer)  # refuses those that cannot be kept for each person
        return Picked(None, "", noise_multiplier, odometer)
    if isinstance(given, Target):
        both, rate = (given.epsilon, given.delta), 1.0 if sample_rate is None else sample_rate
        if noise_multiplier is None and rate == 1:  # the filter does not depend on the noise
            budget, why = recommended(*both, mechanisms.Gaussian(1.0), per_person=individual)
            return Picked(budget, why, least_noise_multiplier(budget, steps or 1, max_grad_norm))
        if noise_multiplier is None:
            noise_multiplier = _least_sampled(*both, steps or 1, max_grad_norm, rate, individual)
        step = mechanisms.gaussian_step(noise_multiplier * max_grad_norm, max_grad_norm, rate)
        budget, why = recommended(*both, step, per_person=individual)
        return Picked(budget, why, float(noise_multiplier))
    budget = given.budget if isinstance(given, PersonFilter) else given
    if not isinstance(budget, filters.Filter) or budget.count:
        raise ArgumentError(
            f"budget={given!r} must be a fresh filter, training.Target(epsilon, delta), accounts per person, a fresh "
            "odometer, or training.OnLedger(...)"
        )
    own = budget.fresh()  # a resumed run may be given the filter that the run before it took
    if noise_multiplier is None:
        noise_multiplier = least_noise_multiplier(own, steps or 1, max_grad_norm, sample_rate=sample_rate or 1.0)
    return Picked(own, "", noise_multiplier)


def fresh_odometer(odometer: Boundary) -> Boundary:
    """An odometer of one's own, with the settings of one that was charged for nothing."""
    if not isinstance(odometer, Boundary) or odometer.count:
        raise ArgumentError(f"odometer={odometer!r} must be a fresh odometer")
    return odometer.fresh()


def least_noise_multiplier(budget: filters.Filter, steps: int, clip: float, *, sample_rate: float = 1.0) -> float:
    sigma = calibrate.sigma(budget, steps, sensitivity=clip, sample_rate=sample_rate)
    multiplier = sigma / clip
    while multiplier * clip < sigma:  # rounded down: then the last step would not fit
        multiplier = nextafter(multiplier, inf)
    return multiplier


def recommended(
    epsilon: float, delta: float, step: mechanisms.Mechanism, *, per_person: bool
) -> tuple[filters.Filter, str]:
    """The filter that ``filters.recommend`` names for a step, or the best one that accounts per person can have."""
    chosen = filters.recommend(epsilon=epsilon, delta=delta, plan=step)
    with suppress(Unsupported):
        if per_person:
            individual.Filter(1, chosen.budget)
        return chosen.budget, chosen.why
    others = filters.Residue(epsilon=epsilon, delta=delta), filters.Renyi(epsilon=epsilon, delta=delta, plan=step)
    best, count = max(((each, calibrate.steps(each, step)) for each in others), key=lambda pair: pair[1])
    why = f"{type(best).__name__}: of the filters that accounts per person can have, it admits the most, {count:,}."
    return best, why


def _least_sampled(epsilon: float, delta: float, steps: int, clip: float, rate: float, per_person: bool) -> float:
    near = calibrate.in_advance(epsilon=epsilon, delta=delta, steps=steps, sample_rate=rate).noise_multiplier

    def fits(noise_multiplier: float) -> bool:
        step = mechanisms.gaussian_step(noise_multiplier * clip, clip, rate)
        budget, _ = recommended(epsilon, delta, step, per_person=per_person)
        return budget.admits(mechanisms.Repeated(step, steps))

    multiplier = inf if near is None else least(fits, near=near, tolerance=TOLERANCE, low=1e-2, high=1e6)
    if multiplier == inf:
        raise CalibrationFailed(f"epsilon={epsilon!r}, delta={delta!r}: {steps} steps do not fit with any noise")
    return multiplier


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The facts that a run's card states, fixed before any private data are read. Every field is public."""

    budget: filters.Filter | None  # the budget of each person; None: there is an odometer alone
    odometer: Boundary | None = None  # a fresh odometer that stands in place of a budget
    max_grad_norm: float  # the clip to begin with; callbacks may set another
    divisor: float
    noise_multiplier: float
    steps: int | None  # the number of steps that each person can pay in full; None: as many as the budget admits
    last_step: int | None = None
    individual: bool = True
    sampling: Any
    seeded: bool
    batches: Any = None  # the plan of fixed batches with correlated noise; None: all people, or Poisson samples of them
    why: str = ""  # why the budget is this filter, where it was recommended

    def fixed(self) -> dict[str, Any]:
        """The settings that a resumed run must share with its folder, because its card states them."""
        names = ("max_grad_norm", "noise_multiplier", "divisor")
        fixed = {name: getattr(self, name) for name in names} | dict(self.sampling.described())
        return fixed | {"batches": "" if self.batches is None else self.batches.describe()}

    def current(self) -> CurrentState:
        begun = {name: getattr(self, name) for name in ("max_grad_norm", "noise_multiplier", "seeded")}
        return CurrentState(TrainingState(sample_rate=self.sampling.rate, **begun))

    def step(self, noise_multiplier: float, clip: float, rate: float | None) -> Gaussian | SampledGaussian:
        """A step with this noise, clip and rate, which callbacks may have set."""
        return _step(noise_multiplier * clip, clip if self.batches is None else self.batches.most, rate)

    def first_step(self) -> Gaussian | SampledGaussian:
        return self.step(self.noise_multiplier, self.max_grad_norm, self.sampling.rate)

    def check_first_step(self, *priced: object) -> None:
        """Refuse what has no price for the steps, before anything else is done: Unsupported names the step."""
        step = self.first_step()
        if self.budget is not None and not any(isinstance(each, PersonFilter) for each in priced):
            self.budget.admits(step)
        for each in (self.odometer, *priced):
            check_price(each, step)

    def check_losses(self, losses: Losses | None, count: int) -> None:
        """Refuse counts of losses that are not fresh, not of so many people, or too coarse for the noise."""
        if losses is None:
            return
        if self.batches is not None:
            raise Unsupported("losses are not counted together with FixedBatches")
        if losses.n != count or losses.rates:
            raise ArgumentError("losses must be fresh individual.Losses of as many people as the records are of")
        if losses.noise[0] > self.noise_multiplier:
            raise ArgumentError(
                f"losses: its least={losses.noise[0]:g} must be at most the noise multiplier {self.noise_multiplier:g}"
            )

    def card(self, *, delta: float | None, released: Mapping[Mechanism, int], **others: Any) -> Card:
        """The promise about what was trained, and its price. Public. ``delta`` is for budgets that have none."""
        sampling, paces = self.sampling, self.individual and self.sampling.rate is None
        own = ("why", "individual", "noise_multiplier", "max_grad_norm")
        fields: dict[str, Any] = {name: getattr(self, name) for name in own} | {
            "spend_remainder": paces and getattr(sampling, "spend_remainder", False),
            "pace": getattr(sampling, "pace", 0.0) if paces else 0.0,
            "sample_rate": sampling.rate,
            "sampling": "" if type(sampling) in OWN else repr(sampling),
            "sigma": self.noise_multiplier * self.max_grad_norm,
            "extra_steps": 0,
            "average": 0.0,
            "divisor": self.divisor * (sampling.rate or 1.0),
            "count_sigma": None,
            "people_from": "group",
            "classes_from": "caller",
            "batches": "" if self.batches is None else self.batches.describe(),
            "released": tuple(released.items()),
        }
        return build_card(self.budget or worst_case(self.odometer, released), delta=delta, **(fields | others))


@lru_cache(maxsize=64)
def _step(sigma: float, sensitivity: float, rate: float | None) -> Gaussian | SampledGaussian:
    """The mechanism of a step: one object for equal steps, which are compared with one another often."""
    return Gaussian(sigma, sensitivity) if rate is None else SampledGaussian(sigma, sensitivity, rate)


class Watched(NamedTuple):
    """Observers beside the accounts: a fresh odometer, counts of losses, and accounts that count drops; or None."""

    odometer: Boundary | None = None
    losses: Losses | None = None
    counting: Callable[[PersonFilter], Any] | None = None


def watched(given: Any) -> Watched:
    """The observers that ``watch=`` asks for, one or several; ArgumentError: what can't watch, or two of a kind."""
    found: dict[str, Any] = {}
    for each in given if isinstance(given, list | tuple) else () if given is None else (given,):
        if isinstance(each, Boundary):
            name, each = "odometer", fresh_odometer(each)
        elif isinstance(each, Losses):
            name = "losses"
        elif callable(each) and not isinstance(each, type):
            name = "counting"
        else:
            raise ArgumentError(
                f"watch={each!r} must be a fresh odometer, individual.Losses, or a function of the accounts that gives "
                "Dropouts or StillActive: watch=[odometers.Gaussian(delta=1e-5)]"
            )
        if name in found:
            raise ArgumentError(f"watch must have one {name} at most")
        found[name] = each
    return Watched(**found)


def check_shares(shares: Any, saved: Mapping[str, Any] | None) -> None:
    """Refuse shares that are not those which the accounts of a folder have."""
    if shares is not None and not np.array_equal(np.asarray(shares, float), to_numpy((saved or {}).get("shares", ()))):
        raise ArgumentError("shares: a resumed run has those that it began with: give the same, or none")


def checked_callbacks(callbacks: Iterable[Any]) -> Sequence[Any]:
    listed = tuple(callbacks) if isinstance(callbacks, Iterable) else (None,)
    if not all(map(callable, listed)):
        raise ArgumentError("callbacks must be a list of functions of the run")
    return listed


def check_price(accounts: object, step: Mechanism) -> None:
    """Raise Unsupported where a step has no price in accounts; nobody is charged."""
    if callable(check := getattr(accounts, "check", None)):
        check(step)

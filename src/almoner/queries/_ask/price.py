"""Close an open question from public facts: noise from the error that is wanted, a clip from a private release."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from math import inf, log, sqrt
from statistics import NormalDist
from typing import Any

from almoner._units import to_float
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger import Entry
from almoner.queries._questions.choice import best_clip
from almoner.queries._questions.expected_width import NOT_THE_QUESTION, expected_half_width
from almoner.queries._questions.intervals import CONFIDENCE, NoiseBand
from almoner.queries._questions.kinds.lengths import SIZES, Extremes, Lengths
from almoner.queries._questions.kinds_of import described, recorded
from almoner.queries._questions.open import target
from almoner.queries._questions.prices import STEPS
from almoner.queries._questions.question import Question

__all__ = ["CLIP_SHARE", "stand_in", "with_auto", "with_error", "with_known_auto"]

CLIP_SHARE = 0.1
"""Share of a question's price that pays for the release by which its clip is chosen; the first time alone."""

_NOISES = 1e-3, 1e9
_HALVINGS = 100
_ATTEMPTS = 20


def with_error(asked: Question, *, pure: bool, budget: int, released: Sequence[int] | None) -> Question:
    """The question with the most noise at which the expected half-width is what ``error`` says.

    Args:
        asked: with an ``error``.
        pure: whether the ledger counts epsilon.
        budget: of each person, units.
        released: the noisy sums of an earlier answer to the same question, if there is one.

    Raises:
        ArgumentError: the error depends on what no earlier answer tells.
        BudgetExceeded: it would cost more than each person's budget; the message says what could be had.
    """
    wanted = _half_width(asked, pure, released)
    trial = _at_some_price(asked, pure)

    def width(noise: float) -> float:
        half = expected_half_width(trial, released, noise)
        if half is None:
            raise ArgumentError(
                f"error={asked.error!r}: how exact this answer is depends on how many rows there are, which no answer "
                "of yours to the same question tells: ask it once with rho= or epsilon="
            )
        return half

    least, most = _NOISES
    linear = not trial.width_depends_on_data()
    noise = wanted / width(1.0) if linear else _largest_below(width, wanted, least, most)
    noise, clip, whole = min(noise, most), trial.sensitivity_steps / STEPS, to_float(budget, down=True)
    ratio = clip / noise if noise else inf
    cost = sqrt(2) * ratio if pure else ratio * ratio / 2
    if noise >= least and cost <= whole:
        closed = _with_noise(trial, noise)
        if closed.price <= budget:
            return closed
    finest = sqrt(2) * clip / whole if pure else clip / sqrt(2 * whole)
    raise BudgetExceeded(
        f"error={asked.error!r} may cost {'epsilon' if pure else 'rho'} = {cost:.6g}, and each person's budget is "
        f"{whole:.6g}, for all of which the half-width is about {width(max(finest, least)) / wanted:.3g} times that",
        asked=cost,
        spent=0.0,
        left=whole,
    )


def _half_width(asked: Question, pure: bool, released: Sequence[int] | None) -> float:
    """The half-width of a 95 % interval that is wanted, in the answer's units."""
    wanted = target(asked.error)
    size = 1.0
    if wanted.relative:
        size = _size(asked, pure, released) if wanted.of is None else wanted.of
    half = wanted.amount * size
    if asked.level is None:
        return half
    if pure:
        return half * log(1 / (1 - CONFIDENCE)) / log(1 / (1 - asked.level))
    return half * NormalDist().inv_cdf((1 + CONFIDENCE) / 2) / NormalDist().inv_cdf((1 + asked.level) / 2)


def _size(asked: Question, pure: bool, released: Sequence[int] | None) -> float:
    """The mean size of an earlier answer's numbers."""
    if released is None:
        raise ArgumentError(
            f"error={asked.error!r}: no answer of yours to the same question tells its size: ask it once with rho= or "
            f"epsilon=, or say {asked.error!r} of what, as in '2% of 5000'"
        )
    trial = _at_some_price(asked, pure)
    width, band = trial.coordinates, NoiseBand(1.0, pure)
    sizes: list[float] = []
    for start in range(0, trial.groups * width, width):
        value, _ = trial.read([part / trial.steps for part in released[start : start + width]], band)
        sizes += _sizes(value)
    size = sum(value / len(sizes) for value in sizes)
    if not 0 < size < inf:
        raise ArgumentError(f"error={asked.error!r}: the earlier answer is all noise; say of what, as in '2% of 5000'")
    return size


def _sizes(value: Any) -> list[float]:
    """The sizes of numbers in lists, and in pairs with a name; 0 for what the noise left nothing of."""
    if isinstance(value, list):
        return [size for each in value for size in _sizes(each)]
    number = value[1] if isinstance(value, tuple) else value
    return [0.0 if number is None else abs(number)]


def _largest_below(width: Callable[[float], float], wanted: float, low: float, high: float) -> float:
    """The noise at which a width that grows with it reaches what is wanted."""
    for _ in range(_HALVINGS):
        middle = sqrt(low * high)
        low, high = (middle, high) if width(middle) <= wanted else (low, middle)
    return low


def _with_noise(trial: Question, noise: float) -> Question:
    """The question with noise of this standard deviation, in full rows, or a little less."""
    if not trial.pure:
        return replace(trial, sigma=noise, rho=None)
    return replace(trial, epsilon=min(1e3, trial.sensitivity_steps / STEPS * sqrt(2) / noise))


def _with_price(asked: Question, price: float) -> Question:
    """The question at a price, in the ledger's measure."""
    changes: dict[str, Any] = {"epsilon": price} if asked.pure else {"rho": price, "sigma": None}
    return replace(asked, **changes)


def _with_clip_1(asked: Question) -> Question:
    """The question with the clip and the noise of the rows that lengths are measured in."""
    changes: dict[str, Any] = {"clip": 1.0, "rho": None, "anyway": False, **_some_noise(asked.pure)}
    return replace(asked, **changes)


def _some_noise(pure: bool) -> dict[str, Any]:
    """For contributions of at most about one row."""
    return {"epsilon": 1.0} if pure else {"sigma": 1.0}


def _at_some_price(asked: Question, pure: bool) -> Question:
    """The question at a price in place of an error; with noise in its place, a large clip would have no price."""
    price: dict[str, Any] = {"epsilon": 1.0} if pure else {"rho": 1.0}
    return replace(asked, error=None, level=None, **price)


def stand_in(asked: Question, *, pure: bool) -> Question:
    """A closed question that reads the same rows at the same price, or at some price where an ``error`` is given."""
    if asked.error is not None:
        return _at_some_price(asked, pure)
    changes: dict[str, Any] = dict(asked.auto_bounds())
    if asked.clip == "auto":
        changes["clip"] = 1.0
    return replace(asked, **changes) if changes else asked


def _key_of(release: Question, who: tuple[str, str | None], attempt: int) -> str:
    """The key of a release: one for each analyst, purpose, and what it is about, at whatever price.

    A release that turned out to be all noise stays under its key; the next one is another attempt.
    """
    values = {name: value for name, value in described(release).items() if name not in NOT_THE_QUESTION}
    asks = json.dumps([values, release.pure, *who], sort_keys=True, ensure_ascii=False)
    again = "" if attempt == 1 else f", attempt {attempt}"
    return f"{values['ask']} for 'auto': {sha256(asks.encode()).hexdigest()[:16]}{again}"


def _chosen_clip(asked: Question, release: Question, released: Sequence[int]) -> dict[str, float] | None:
    """The clip with the least expected squared error at the question's price; None if the release is all noise.

    Args:
        asked: with clip="auto" and its price.
        release: what was asked for the choice.
        released: the noisy counts, in whole steps.
    """
    one = replace(asked, clip=1.0)
    noise = one.spread * sqrt(one.groups * one.coordinates)
    edges = getattr(release.bins(), "edges", ())
    clip = best_clip([part / release.steps for part in released], edges, release.spread, noise, pure=release.pure)
    return None if clip is None else {"clip": min(clip, 1e6)}


def _chosen_bounds(asked: Question, release: Question, released: Sequence[int]) -> dict[str, float] | None:
    """The bounds with the least expected squared error if each person had one entry; None if the release is all noise.

    At the price of the question that paid for the release, so that later questions at other prices get the same bounds,
    and the same lengths.
    """
    factor = CLIP_SHARE / (1 - CLIP_SHARE)
    noise = release.spread * (factor if release.pure else sqrt(factor))
    counts = [part / release.steps for part in released]
    error, half, size = release.spread * STEPS / release.steps, len(counts) // 2, len(SIZES) - 1
    high = best_clip(counts[half - size : half], SIZES, error, noise, pure=release.pure)
    low = best_clip(counts[half : half + size][::-1], SIZES, error, noise, pure=release.pure)
    if high is None and low is None:
        return None
    chosen = {"low": -low if low else 0.0, "high": high or 0.0}
    ends = {name: chosen[name] if name in asked.auto_bounds() else getattr(asked, name) for name in chosen}
    if not ends["low"] < ends["high"]:  # by the bound that was given, there is nothing between them
        free = next(iter(asked.auto_bounds()))
        ends[free] = ends["low"] + 1 + abs(ends["low"]) if free == "high" else ends["high"] - 1 - abs(ends["high"])
    return {name: ends[name] for name in asked.auto_bounds()}


Release = Callable[[Question, str], Entry]


def with_auto(asked: Question, key: str, analyst: str, purpose: str | None, release: Release) -> Question:
    """The question with its bounds, then its clip, chosen, at what its price leaves.

    Each release that a choice is made by takes ``CLIP_SHARE`` of the price of the question that first needs it. It is
    stored under a key of its own, and serves the analyst's later questions for nothing.

    Args:
        asked: with "auto" and a price.
        key: of the question.
        analyst, purpose: who asks.
        release: finds the entry under a key, or answers the question under it. For a question that was not asked yet
            the entry must say ``first_for``: the key of the question that pays.
    """
    if asked.auto_bounds():
        column = str(getattr(asked, "column", ""))
        noise = _some_noise(asked.pure)
        same = {name: getattr(asked, name) for name in ("table", "where", "each_person")}
        wanted = Extremes(column=column, **same, **noise)
        asked = _chosen(asked, wanted, key, (analyst, purpose), release, _chosen_bounds)
    if asked.clip == "auto":
        asked = _chosen(
            asked,
            Lengths(of=_with_clip_1(asked), table=asked.table, **_some_noise(asked.pure)),
            key,
            (analyst, purpose),
            release,
            _chosen_clip,
        )
    return asked


def _chosen(
    asked: Question,
    wanted: Question,
    key: str,
    who: tuple[str, str | None],
    release: Release,
    choose: Callable[[Question, Question, Sequence[int]], dict[str, float] | None],
) -> Question:
    """The question with what a release tells, at what its price leaves."""
    price = float(asked.epsilon if asked.epsilon is not None else asked.rho or 0)
    wanted = replace(_with_price(wanted, price * CLIP_SHARE), anyway=asked.anyway)
    for attempt in range(1, _ATTEMPTS + 1):
        public = release(wanted, _key_of(wanted, who, attempt)).public
        pays = public.get("first_for") == key
        released = recorded(public)
        if type(released) is not type(wanted):
            raise ArgumentError(f"key={public['key']!r} was used for another question")
        at_price = _with_price(asked, price * (1 - CLIP_SHARE) if pays else price)
        choice = choose(at_price, released, public["released"])
        if choice is not None:
            changes: dict[str, Any] = {**choice}
            return replace(at_price, **changes)
        if pays:
            break
    raise ArgumentError(
        f"'auto': {CLIP_SHARE:.0%} of this price is too little to see what people contribute: give a higher price, or "
        "numbers"
    )


def with_known_auto(
    asked: Question, analyst: str, purpose: str | None, find: Callable[[str], Entry | None]
) -> Question | None:
    """The question with bounds and clip chosen by releases that exist already; None where a new one is needed."""
    missing: list[str] = []

    def release(_: Question, its_key: str) -> Entry:
        entry = find(its_key)
        if entry is None:
            missing.append(its_key)
            raise ArgumentError(its_key)
        return entry

    try:
        return with_auto(asked, "", analyst, purpose, release)
    except ArgumentError:
        if missing:
            return None
        raise

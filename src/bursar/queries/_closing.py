"""Close an open question: noise from the error that is wanted, a clip from a private release. From public facts alone."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import inf, log, sqrt
from statistics import NormalDist
from typing import Any

from bursar._units import to_float
from bursar.errors import ArgumentError, BudgetExceeded
from bursar.ledger import Entry
from bursar.queries._choice import best_clip
from bursar.queries._kinds.lengths import Lengths
from bursar.queries._noise_bands import CONFIDENCE, NoiseBand
from bursar.queries._open import target
from bursar.queries._prices import STEPS
from bursar.queries._question import Question
from bursar.queries._questions import described, recorded
from bursar.queries._widths import NOT_THE_QUESTION, expected_half_width

__all__ = ["CLIP_SHARE", "key_of_lengths", "lengths_for", "stand_in", "with_clip", "with_error"]

CLIP_SHARE = 0.1
"""Of a question's price, for the release that its clip is chosen by; the first time alone."""

_NOISES = 1e-3, 1e9
_HALVINGS = 100


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
    trial = replace(asked, error=None, level=None, **({"epsilon": 1.0} if pure else {"sigma": 1.0}))

    def width(noise: float) -> float:
        half = expected_half_width(trial, released, noise)
        if half is None:
            raise ArgumentError(
                f"error={asked.error!r}: how exact this answer is depends on how many rows there are, which no answer "
                "of yours to the same question tells: ask it once with rho= or epsilon="
            )
        return half

    least, most = _NOISES
    if not trial.width_depends_on_data():
        noise = wanted / width(1.0)
    else:
        noise = _largest_below(width, wanted, least, most)
    noise = min(max(noise, least / 2), most)
    closed = _with_noise(trial, noise)
    if noise >= least and closed.price <= budget:
        return closed
    fits = _with_price(trial, to_float(budget, down=True) * (1 - 1e-9))
    possible, symbol = width(max(fits.spread, least)), "epsilon" if pure else "rho"
    raise BudgetExceeded(
        f"error={asked.error!r} may cost more than each person's budget, {symbol} = {to_float(budget, down=True):.6g}; "
        f"for all of it the half-width is about {possible / wanted:.3g} times that",
        asked=to_float(closed.price),
        spent=0.0,
        left=to_float(budget, down=True),
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
    trial = replace(asked, error=None, level=None, **({"epsilon": 1.0} if pure else {"sigma": 1.0}))
    width, band = trial.coordinates, NoiseBand(1.0, pure)
    sizes: list[float] = []
    for start in range(0, len(released), width):
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
        return replace(trial, sigma=noise)
    return replace(trial, epsilon=min(1e3, trial.clip_steps / STEPS * sqrt(2) / noise * (1 + 1e-12)))


def _with_price(asked: Question, price: float, **changes: Any) -> Question:
    """The question at a price, in the ledger's measure."""
    price_of = {"epsilon": price} if asked.pure else {"rho": price, "sigma": None}
    return replace(asked, **price_of, **changes)


def stand_in(asked: Question, *, pure: bool) -> Question:
    """A closed question that reads the same rows at the same price, or at some price where an ``error`` is given."""
    clip = {"clip": 1.0} if asked.clip == "auto" else {}
    if asked.error is None:
        return replace(asked, **clip) if clip else asked
    return replace(asked, error=None, level=None, **({"epsilon": 1.0} if pure else {"sigma": 1.0}))


def lengths_for(asked: Question, price: float) -> Lengths:
    """The release that the clip of a question is chosen by."""
    noise = {"epsilon": 1.0} if asked.pure else {"sigma": 1.0, "rho": None}
    one = replace(asked, clip=1.0, **noise)
    return Lengths(of=one, **({"epsilon": price} if asked.pure else {"rho": price}))


def key_of_lengths(asked: Question, analyst: str, purpose: str | None) -> str:
    """The key under which that release is stored: one for each analyst, purpose, and question but for clip and noise."""
    values: Mapping[str, object] = {
        name: value for name, value in described(asked).items() if name not in NOT_THE_QUESTION
    }
    asks = json.dumps([values, asked.pure, analyst, purpose], sort_keys=True, ensure_ascii=False)
    return f"lengths for clip='auto': {values['ask']} {sha256(asks.encode()).hexdigest()[:16]}"


def _chosen_clip(asked: Question, lengths: Lengths, released: Sequence[int]) -> float:
    """The clip with the least expected squared error at the question's price, by a release of lengths.

    Args:
        asked: with clip="auto" and its price.
        lengths: what was asked for the choice.
        released: the noisy counts, in whole steps.
    """
    one = replace(asked, clip=1.0)
    noise = one.spread * sqrt(one.groups * one.coordinates)
    counts = [part / lengths.steps for part in released]
    clip = best_clip(counts, lengths.bins().edges, lengths.spread, noise)
    return 1.0 if clip is None else clip


def with_clip(
    asked: Question, key: str, analyst: str, purpose: str | None, release: Callable[[Lengths, str], Entry]
) -> Question:
    """The question with its clip chosen, at what its price leaves.

    The release that the clip is chosen by takes ``CLIP_SHARE`` of the price of the question that first needs it. It is
    stored under a key of its own, and serves the analyst's later questions for nothing.

    Args:
        asked: with clip="auto" and a price.
        key: of the question.
        analyst, purpose: who asks.
        release: finds the entry under a key, or answers the question under it. For a question that was not asked yet the
            entry must say ``first_for``: the key of the question that pays.
    """
    price = float(asked.epsilon if asked.epsilon is not None else asked.rho or 0)
    public = release(lengths_for(asked, price * CLIP_SHARE), key_of_lengths(asked, analyst, purpose)).public
    left = price * (1 - CLIP_SHARE) if public.get("first_for") == key else price
    lengths = recorded(public["question"])
    if not isinstance(lengths, Lengths):
        raise ArgumentError(f"key={public['key']!r} was used for another question")
    at_price = _with_price(asked, left)
    return replace(at_price, clip=_chosen_clip(at_price, lengths, public["released"]))

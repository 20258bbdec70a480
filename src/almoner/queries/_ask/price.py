"""Close an open question from public facts: noise from the error that is wanted, a clip from a private release.

A clip is chosen from a noisy number of people in each bucket of lengths: bias against noise. How many people are longer
than x is modelled, from a bucket on that is well above the noise, as people * 2^(-slope * d - bend * d^2), where d is
the number of doublings. People, slope and bend have a prior and a likelihood, and the clip minimises the posterior mean
of the logarithm of the squared error: bias squared, if all that is clipped points the same way, plus the variance of
the noise. The model only serves the choice: no guarantee rests on it.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from math import comb, inf, log, nextafter, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincc

from almoner._search import edge
from almoner._units import to_float
from almoner.curves import gaussian
from almoner.errors import ArgumentError, BudgetExceeded
from almoner.ledger import Entry
from almoner.queries._ask.answer import without
from almoner.queries._ask.quoted import expected_half_width, read_off
from almoner.queries._ask.so_far import AnalystId
from almoner.queries._questions.field_types import target
from almoner.queries._questions.intervals import CONFIDENCE, NoiseBand
from almoner.queries._questions.kinds.counts import SIZES, Extremes, Lengths
from almoner.queries._questions.kinds_of import described, question
from almoner.queries._questions.noise import STEPS
from almoner.queries._questions.question import Question, longest

Floats = npt.NDArray[np.float64]

_SURE = 0.85  # of what noise alone hardly reaches, once some people stand out
_NOISE_ALONE = 1e-3
"""The probability with which noise alone passes for people: of all buckets and widths of neighbours together."""
_TOP = 0.2  # the model begins where at most this share of the people is longer
_SLOPE, _SLOPE_SPREAD = 1.5 / log(2), 0.6 / log(2)
_LEAST_BEND = 0.02
_NOBODY = 0.5  # fewer people than this count as none
_FINE = 8  # so many clips are tried for each doubling
_LIKELY = 400


def best_clip(
    counts: Sequence[float], edges: Sequence[float], standard_error: float, noise: float, *, pure: bool
) -> float | None:
    """The clip with the least expected squared error, by the model above; ``noise`` is the answer's for a clip of 1.

    None where no bucket, and no 2, 4, 8, ... neighbours, stand out of their noise. If nobody is in any bucket, another
    answer has a probability of at most 0.001.
    """
    people, doublings = np.asarray(counts, float), np.log2(np.asarray(edges, float))
    top = _last_with_people(people / standard_error, pure)
    if top is None:
        return None
    longer = np.cumsum(people[top::-1])[::-1]
    least = np.array([_least_sum(terms, _NOISE_ALONE / len(people), pure) for terms in range(top + 1, 0, -1)])
    sure = np.flatnonzero(longer > _SURE * standard_error * least)
    tops = sure[longer[sure] >= _TOP * longer[sure[0]]] if len(sure) else [top]
    start = int(min(tops[-1] if len(tops) else sure[-1], len(people) - 4))
    clips = 2.0 ** np.arange(doublings[start], doublings[-1] + 1e-9, 1 / _FINE)
    left = float(people[start:].sum())
    tails, weights = _tails(people[start:], doublings[start:], standard_error, left, np.log2(clips))
    areas = (tails[:, :-1] + tails[:, 1:]) / 2 * np.diff(clips)
    bias = np.hstack([np.cumsum(areas[:, ::-1], axis=1)[:, ::-1], np.zeros((len(tails), 1))])
    return float(clips[np.argmin(weights @ np.log(bias**2 + (noise * clips) ** 2))])


def _last_with_people(counts: Floats, pure: bool) -> int | None:
    """The last bucket of those neighbours, in standard errors, that stand out of their noise; None if none do."""
    widths = [2**power for power in range(len(counts).bit_length())]
    level = _NOISE_ALONE / sum(len(counts) - width + 1 for width in widths)
    sums = np.concatenate([[0.0], np.cumsum(counts)])
    last: int | None = None
    for width in widths:
        places = np.flatnonzero(sums[width:] - sums[:-width] > _least_sum(width, level, pure))
        if len(places):
            last = max(last or 0, int(places[-1]) + width - 1)
    return last


@cache
def _least_sum(terms: int, level: float, pure: bool) -> float:
    """Value that the sum of so many noises of standard deviation 1 exceeds with this probability."""
    if not pure:
        return -NormalDist().inv_cdf(level) * sqrt(terms)
    # A sum of Laplace variables of scale 1 has, above 0, the density of a mixture of Gamma(1) to Gamma(terms).
    more = np.arange(terms)
    weights = [comb(terms - 1 + each, each) * 0.5 ** (terms + each) for each in more.tolist()]

    def holds(value: float) -> bool:
        return float(np.dot(weights, gammaincc(terms - more, value * sqrt(2)))) <= level

    return edge(holds, 100.0 * sqrt(terms), 0.0)


def _tails(
    counts: Floats, doublings: Floats, standard_error: float, longest: float, at: Floats
) -> tuple[Floats, Floats]:
    """(How many people are longer than each length ``at``, by each likely model; the models' weights)."""
    slopes, bends = (
        each.ravel() for each in np.meshgrid(np.linspace(0.4, 6, 22), np.geomspace(_LEAST_BEND, 40, 20), indexing="ij")
    )
    reach = 0.3 if longest > 20 * standard_error else 0.7
    sizes = max(longest, 1.0) * np.exp(np.linspace(-reach, reach, 11))

    def shape(lengths: Floats) -> Floats:
        away = lengths - doublings[0]
        return np.asarray(2.0 ** -(slopes[:, None] * away + bends[:, None] * away**2))

    shares = -np.diff(shape(doublings), axis=1)
    prior = -(((slopes - _SLOPE) / _SLOPE_SPREAD) ** 2) / 2
    likelihoods = np.empty((len(sizes), len(slopes)))
    for place, size in enumerate(sizes):
        mean = size * shares
        variance = standard_error**2 + mean + (0.05 * mean) ** 2
        likelihoods[place] = prior - ((counts - mean) ** 2 / variance + np.log(variance)).sum(axis=1) / 2
    size, model = np.unravel_index(np.argsort(-likelihoods, axis=None)[:_LIKELY], likelihoods.shape)
    weights = np.exp(likelihoods[size, model] - likelihoods.max())
    tails = sizes[size][:, None] * shape(at)[model]
    return np.where(tails < _NOBODY, 0.0, tails), weights / weights.sum()


CLIP_SHARE = 0.1
"""Share of a question's price that pays for the release by which its clip is chosen; the first time alone."""

_NOISES = 1e-3, 1e9
_ATTEMPTS = 20


def with_error(asked: Question, *, pure: bool, budget: int, released: Sequence[int] | None) -> Question:
    """The question with the most noise at which the expected half-width is what ``error`` says.

    An ArgumentError says that it depends on what no earlier answer tells, a BudgetExceeded what could be had instead.
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
    noise = edge(lambda at: width(at) <= wanted, least, most) if trial.width_varies else wanted / width(1.0)
    noise, clip, whole = min(noise, most), trial.sensitivity_steps / STEPS, to_float(budget, down=True)
    ratio = clip / noise if noise else inf
    cost = sqrt(2) * ratio if pure else ratio * ratio / 2
    if noise >= least and cost <= whole:
        changes: dict[str, Any] = (
            {"epsilon": min(1e3, clip * sqrt(2) / noise)} if pure else {"sigma": noise, "rho": None}
        )
        closed = replace(trial, **changes)
        if closed.price <= budget:
            return closed
    finest = sqrt(2) * clip / whole if pure else clip / sqrt(2 * whole)
    told = (
        f"error={asked.error!r} may cost {'epsilon' if pure else 'rho'} = {cost:.6g}, and each person's budget is "
        f"{whole:.6g}, for all of which the half-width is about {width(max(finest, least)) / wanted:.3g} times that"
    )
    raise BudgetExceeded(told, asked=cost, spent=0.0, left=whole)


def _half_width(asked: Question, pure: bool, released: Sequence[int] | None) -> float:
    """The half-width of a 95 % interval that is wanted, in the answer's units."""
    amount, size = target(asked.error)
    if size is None:  # a share of the mean size of an earlier answer's numbers
        if released is None:
            raise ArgumentError(
                f"error={asked.error!r}: no answer of yours to the same question tells its size: ask it once with rho= "
                f"or epsilon=, or say {asked.error!r} of what, as in '2% of 5000'"
            )
        numbers = read_off(_at_some_price(asked, pure), released, NoiseBand(1.0, pure))
        sizes = [abs(number) for number, _, _ in numbers]
        size = sum(value / len(sizes) for value in sizes)
        if not 0 < size < inf:
            said = "the earlier answer is all noise; say of what, as in '2% of 5000'"
            raise ArgumentError(f"error={asked.error!r}: {said}")
    half = amount * size
    if asked.level is None:
        return half
    if pure:
        return half * log(1 / (1 - CONFIDENCE)) / log(1 / (1 - asked.level))
    return half * NormalDist().inv_cdf((1 + CONFIDENCE) / 2) / NormalDist().inv_cdf((1 + asked.level) / 2)


def _with_price(asked: Question, price: float) -> Question:
    changes: dict[str, Any] = {"epsilon": price} if asked.pure else {"rho": price, "sigma": None}
    return replace(asked, **changes)


def _at_some_price(asked: Question, pure: bool) -> Question:
    """The question at a price in place of an error; with noise in its place, a large clip would have no price."""
    price: dict[str, Any] = {"epsilon": 1.0} if pure else {"rho": 1.0}
    return replace(asked, error=None, level=None, **price)


def at_epsilon(asked: Question, delta: float | None) -> Question:
    """A question with an ``epsilon`` at the highest rho at which it alone is (epsilon, delta)-DP; for Gaussian noise.

    Guarantee: the answer is (epsilon, delta)-DP, whatever else is asked: its noise makes it sqrt(2 rho)-GDP.
    Source: theory 2.9 and 3.3.
    """
    if delta is None:
        raise ArgumentError("question: this ledger counts rho, and its budget has no delta: give sigma= or rho=")
    mu = gaussian.mu(epsilon=float(asked.epsilon or 0), delta=delta)
    most = longest(asked)  # in L1, as is a clip that was left out
    given = most is None or isinstance(asked.clip, str) or float(asked.clip or 0) < most
    return replace(asked, epsilon=None, rho=nextafter(mu * mu / 2, 0), clip=asked.clip if given else None)


def stand_in(asked: Question, *, pure: bool) -> Question:
    """A closed question that reads the same rows at the same price, or at some price where an ``error`` is given."""
    if asked.error is not None:
        return _at_some_price(asked, pure)
    changes: dict[str, Any] = {**asked.auto_bounds(), **({"clip": 1.0} if asked.clip == "auto" else {})}
    return replace(asked, **changes) if changes else asked


def _chosen_clip(asked: Question, release: Question, released: Sequence[int]) -> dict[str, Any] | None:
    """The clip with the least expected squared error at the question's price, by noisy counts; None if all noise."""
    one = replace(asked, clip=1.0)
    noise = one.spread * sqrt(one.groups * one.coordinates)
    edges = getattr(release.bins(), "edges", ())
    clip = best_clip([part / release.steps for part in released], edges, release.spread, noise, pure=release.pure)
    return None if clip is None else {"clip": min(clip, 1e6)}


def _chosen_bounds(asked: Question, release: Question, released: Sequence[int]) -> dict[str, Any] | None:
    """The bounds with the least expected squared error if each person had one entry; None if it is all noise."""
    factor = CLIP_SHARE / (1 - CLIP_SHARE)  # at the price that paid for the release: later questions get the same
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
Choose = Callable[[Question, Question, Sequence[int]], dict[str, Any] | None]


def with_auto(asked: Question, key: str, who: AnalystId, release: Release) -> Question:
    """The question with its bounds, then its clip, chosen, at what its price leaves.

    Each release for a choice takes ``CLIP_SHARE`` of the price of the question that first needs it (``first_for`` in
    its entry), is stored under a key of its own, and serves the analyst's later questions for nothing.
    """
    some: dict[str, Any] = {"epsilon": 1.0} if asked.pure else {"sigma": 1.0}  # contributions are about one row at most
    if asked.auto_bounds():
        same = {name: getattr(asked, name) for name in ("column", "table", "where", "beside", "each", "each_person")}
        asked = _chosen(asked, Extremes(**same, **some), key, who, release, _chosen_bounds)
    if asked.clip == "auto":
        of = replace(asked, **{"clip": 1.0, "rho": None, "anyway": False, **some})
        asked = _chosen(asked, Lengths(of=of, table=asked.table, **some), key, who, release, _chosen_clip)
    return asked


def _chosen(asked: Question, wanted: Question, key: str, who: AnalystId, release: Release, choose: Choose) -> Question:
    """The question with what a release tells, at what its price leaves."""
    price = float(asked.epsilon if asked.epsilon is not None else asked.rho or 0)
    wanted = replace(_with_price(wanted, price * CLIP_SHARE), anyway=asked.anyway)
    # a release has one key for each analyst, purpose, and what it is about, at whatever price; one that turned out to
    # be all noise stays under it: the next one is another attempt
    values = without(described(wanted))
    asks = json.dumps([values, wanted.pure, *who], sort_keys=True, ensure_ascii=False)
    its_key = f"{values['ask']} for 'auto': {sha256(asks.encode()).hexdigest()[:16]}"
    for attempt in range(1, _ATTEMPTS + 1):
        public = release(wanted, its_key if attempt == 1 else f"{its_key}, attempt {attempt}").public
        pays = public.get("first_for") == key
        released = question(public["question"])
        if type(released) is not type(wanted):
            raise ArgumentError(f"key={public['key']!r} was used for another question")
        at_price = _with_price(asked, price * (1 - CLIP_SHARE) if pays else price)
        choice = choose(at_price, released, public["released"])
        if choice is not None:
            return replace(at_price, **choice)
        if pays:
            break
    raise ArgumentError(
        f"'auto': {CLIP_SHARE:.0%} of this price is too little to see what people contribute: give a higher price, or "
        "numbers"
    )


def with_known_auto(asked: Question, who: AnalystId, find: Callable[[str], Entry | None]) -> Question | None:
    """The question with bounds and clip chosen by releases that exist already; None where a new one is needed."""
    missing: list[str] = []

    def release(_: Question, its_key: str) -> Entry:
        entry = find(its_key)
        if entry is None:
            missing.append(its_key)
            raise ArgumentError(its_key)
        return entry

    try:
        return with_auto(asked, "", who, release)
    except ArgumentError:
        if missing:
            return None
        raise

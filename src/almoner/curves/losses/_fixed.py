"""Epsilon at a delta, and delta at an epsilon, of one run whose rounds are fixed in advance.

Names and symbols
    q, z     sample rate and relative noise of a sampled Gaussian round; mu = 1/z
    r        log likelihood ratio of N(1, z²) and N(0, z²)
    leak     probability of an infinite loss, part of a mechanism; the finite losses count 1 - leak times
    ceiling  mass whose loss counts as infinite besides: it is added
    tilt     as in ``curves._grid.tilted``

One round has a closed form. More rounds are composed on a lattice under the tilt of Chernoff's bound, in both orders.

Source: theory 4.13, 7.2; docs/proofs/losses.md, sections 8 to 10.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, expm1, inf, log, log1p

import numpy as np

from almoner import _check, mechanisms
from almoner._search import edge
from almoner.curves import gaussian
from almoner.curves._grid.connect_the_dots import ULP
from almoner.curves._grid.laws import Law, law
from almoner.curves._grid.tilted import (
    MOST,
    Composition,
    Kind,
    composition,
    largest_kernel,
    moments,
    tilt_at,
    tilt_where,
)
from almoner.errors import Unsupported

Run = Mapping[mechanisms.Mechanism, int]
PRECISION = 1e-6  # relative: how far above the crossing an epsilon may be found
STEPS = 60  # most steps of a search
ROUGH, PLACES = 2, 2**12  # searches before the last, and their places
FEWER, SPLIT_PLACES = 2**14, 2**17  # places of first splits; most of a part whose largest loss is above epsilon
SPLIT_PRECISION = 1e-4  # relative, of first searches, and of split runs
FURTHER = 0.8  # share of epsilon down to which split runs are looked at first; its square next
NEARLY, NEAR = 3.0, 0.99  # log delta on few places, and share of epsilon, from which on more places are looked at
RARE, CUTS, CUT, WIDER = -5.0, 3, 0.6, 4.0  # when, how often and where a run is split
FEW, MOST_SIZES = 4, 12  # most kinds, and most sizes of the largest loss, of a split run
PARTS = (0.93, 0.85, 0.7, 0.3, 0.03)  # of a tilt, that are tried
MOST_ROUNDS = 2**53  # most rounds of a kind that are composed: more are counted by no float
DROPPED = 1e-285  # more than the outcomes of a pair that count as none have together: at most 1e5 below 1e-290
UP = 1 + 16 * ULP


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One direction of a run: finite losses, the logarithm of 1 - leak, and the ceilings."""

    kinds: tuple[Kind, ...]
    log_kept: float
    ceiling: float

    def top(self) -> float:
        """The largest finite loss of the run, rounded up."""
        return max(0.0, sum(kind.count * float(kind.losses.max()) for kind in self.kinds) * UP)

    def log_target(self, delta: float) -> float:
        """The logarithm of the delta that finite losses may have; minus infinity where none is left."""
        leak = -expm1(self.log_kept)
        left = delta - leak - self.ceiling - 8 * ULP * (delta + leak)
        return log(left) - self.log_kept if left > 0 else -inf

    def delta(self, log_finite: float) -> float:
        """The whole delta, given the logarithm of that of finite losses."""
        finite = exp(min(log_finite, 0.0)) * UP + (1e-320 if log_finite > -inf else 0.0)
        return min(1.0, (-expm1(self.log_kept) + exp(self.log_kept) * finite + self.ceiling) * UP)


def epsilon_at(run: Run, *, delta: float, places: int = MOST) -> float:
    """Epsilon, nats, >= 0, rounded up, of a run that is fixed in advance, at delta, public, in (0, 1).

    The run, public, says how often each round runs (see ``mechanisms.leaves``). With few places of the finest lattice,
    such as 2**14, the answer comes soon, and is some per cent larger. Inf where the certificate does not reach delta.

    Raises:
        Unsupported: a mechanism has no privacy loss distribution.

    Guarantee: the run is (epsilon, delta)-DP, for adding and for removing a person.
    Source: theory 4.13, 7.2; docs/proofs/losses.md, sections 8 to 10.
    """
    _check.between(0, 1, delta=delta)
    rounds = _merged(run)
    if (alone := _only(rounds)) is not None:
        return _one_epsilon(*alone, delta)
    if _share(rounds) <= delta:
        return 0.0
    epsilon, sides = 0.0, _sides(rounds)
    for side in sides:
        epsilon = max(epsilon, _epsilon(side, delta, epsilon, places))
    return epsilon if sides or not rounds else inf


def delta_at(run: Run, *, epsilon: float) -> float:
    """Delta, in [0, 1], rounded up, of a run that is fixed in advance, at an epsilon, public, nats, >= 0.

    The run, and what is refused, as of ``epsilon_at``.

    Guarantee: the run is (epsilon, delta)-DP, for adding and for removing a person.
    Source: theory 4.13, 7.2; docs/proofs/losses.md, sections 8 to 10.
    """
    _check.within(0, inf, epsilon=epsilon)
    rounds = _merged(run)
    if (alone := _only(rounds)) is not None:
        return _one_delta(*alone, epsilon)
    if not rounds:
        return 0.0
    found = [side.delta(_log_delta(side, epsilon)) for side in _sides(rounds)]
    return min(1.0, _share(rounds), max(found, default=1.0))


def _merged(run: Run) -> dict[mechanisms.Mechanism, int]:
    """The rounds that run, all Gaussian ones as one."""
    rounds = {leaf: count for leaf, count in run.items() if count}
    exact = {leaf: count for leaf, count in rounds.items() if gaussian.is_gaussian(leaf)}
    alone = mechanisms.Composed(tuple(mechanisms.Repeated(leaf, count) for leaf, count in exact.items()))
    mu = gaussian.of(alone).mu if exact else 0.0
    if 0 < mu < 1e119:
        rounds = {leaf: count for leaf, count in rounds.items() if leaf not in exact}
        sigma = min(max(mu**-0.5, 1e-60), 1e60)  # at least that mu, with numbers as far from one as each other
        rounds[mechanisms.SampledGaussian(sigma, min(max(mu * sigma * UP, 1e-60), 1e60), 1.0)] = 1
    return rounds


def _only(rounds: Run) -> tuple[float, float] | None:
    """(mu, q) of a run that is one round of the sampled Gaussian."""
    if len(rounds) == 1:
        ((leaf, count),) = rounds.items()
        if isinstance(leaf, mechanisms.SampledGaussian) and count == 1:
            return leaf.sensitivity / leaf.sigma * UP, float(leaf.sample_rate)
    return None


def _one_delta(mu: float, q: float, epsilon: float) -> float:
    """Of one round, in both orders: q times the Gaussian delta at another epsilon (section 10 of the proof)."""
    if q == 1:
        return float(gaussian.delta(mu, epsilon=epsilon))
    remove = q * float(gaussian.delta(mu, epsilon=_ratio(epsilon, q)))
    kept = q - expm1(min(epsilon, 40.0)) * (1 - q)  # q exp(epsilon + r), r <= 0 the end of the losses above epsilon
    add = 0.0
    if kept > 0:
        doubt = 16 * ULP * q / kept
        r = (log(kept / q) - epsilon) * (1 - 8 * ULP)
        add = kept * (1 + doubt) * float(gaussian.delta(mu, epsilon=max(0.0, -r - doubt)))
    elif kept > -8 * ULP * q:
        add = 8 * ULP * q
    return min(q, max(remove, add) * UP + 1e-320)


def _ratio(epsilon: float, q: float) -> float:
    """log(1 + expm1(epsilon) / q), rounded down: the r at which the loss is epsilon."""
    far = epsilon - log(q)
    if far <= 700:
        r = log1p(expm1(epsilon) / q)
    else:
        r = far + log1p((q - 1) * exp(-epsilon)) if epsilon > 1 else log(expm1(epsilon) + q) - log(q)
    return max(0.0, r) * (1 - 16 * ULP)


def _one_epsilon(mu: float, q: float, delta: float) -> float:
    if q == 1:
        return float(gaussian.epsilon(mu, delta=delta))
    if _one_delta(mu, q, 0.0) <= delta:
        return 0.0
    r = float(gaussian.epsilon(mu, delta=delta / q / UP)) if delta < q else 0.0
    top = (r + log(q) + log1p((1 - q) / q * exp(-r)) if r > 700 else log1p(q * expm1(r))) * (1 + 64 * ULP) + 1e-300
    if _one_delta(mu, q, top) <= delta:
        return top
    good = top * (1 + 1e-12)
    while _one_delta(mu, q, good) > delta:  # the other order, whose losses are at most -log(1 - q)
        good *= 2
        if good > 1e300:
            return inf
    return edge(lambda epsilon: _one_delta(mu, q, epsilon) <= delta, good, top, relative=PRECISION)


def _share(rounds: Run) -> float:
    """A bound on delta at epsilon 0: the sum over all rounds; 1 where one is not known."""
    total = 0.0
    for leaf, count in rounds.items():
        match leaf:
            case mechanisms.SampledGaussian(sigma, sensitivity, q):
                total += _times(count, _one_delta(sensitivity / sigma * UP, float(q), 0.0))
            case mechanisms.Pure(epsilon) | mechanisms.RandomizedResponse(epsilon):
                total += _times(count, float(np.tanh(epsilon / 2)) * UP)
            case mechanisms.Approximate(epsilon, leak):
                total += _times(count, (leak + (1 - leak) * float(np.tanh(epsilon / 2))) * UP)
            case mechanisms.Laplace(scale, sensitivity):
                total += _times(count, -expm1(-sensitivity / scale / 2) * UP)
            case _:
                both = law(leaf, fine=True, points=True, far=True)
                total += _times(count, max(map(_at_zero, both))) if both is not None else inf
    return total * UP


def _times(count: int, one: float) -> float:
    return inf if one and count > MOST_ROUNDS else min(count, MOST_ROUNDS) * one


def _at_zero(points: object) -> float:
    if not isinstance(points, Law):
        return 1.0
    finite = float(points.masses @ -np.expm1(-np.maximum(points.losses, 0.0)))
    error = points.error * 3 + ULP * len(points.losses)
    return points.ceiling + (1 - points.ceiling) * finite * (1 + error) + error


def _sides(rounds: Run) -> list[_Side]:
    """Both orders, one where they are the same; none where a loss counts as infinite."""
    pairs = [(law(leaf, fine=True, points=True, far=True), leaf, count) for leaf, count in rounds.items()]
    if any(both is None or count > MOST_ROUNDS for both, _, count in pairs):
        return []
    sides = []
    for which in (0, 1):
        kinds, log_kept, ceiling = [], 0.0, 0.0
        for both, leaf, count in pairs:
            points = both[which] if both is not None else None
            if not isinstance(points, Law):
                raise Unsupported(f"{leaf!r} has no points of loss")
            if isinstance(leaf, mechanisms.Approximate | mechanisms.Paired | mechanisms.DiscreteGaussian):
                if points.ceiling >= 1:
                    return []
                log_kept += count * log1p(-points.ceiling) * UP
                ceiling += count * DROPPED
            else:
                ceiling += count * points.ceiling * UP
            doubts = points.error * (1 + np.abs(points.losses)) if points.loss_errors is None else points.loss_errors
            kinds.append(Kind(count, points.losses + doubts, np.log(points.masses), points.error))
        sides.append(_Side(tuple(kinds), log_kept, ceiling))
    first, second = sides
    pairs_of_kinds = zip(first.kinds, second.kinds, strict=True)
    same = all(np.array_equal((a.losses, a.logs), (b.losses, b.logs)) for a, b in pairs_of_kinds)
    return sides[:1] if same and (first.ceiling, first.log_kept) == (second.ceiling, second.log_kept) else sides


def _epsilon(side: _Side, delta: float, least: float, most: int = MOST) -> float:
    """The epsilon of one direction, or the least where it is at most that."""
    target = side.log_target(delta)
    if target == -inf:
        return inf
    top = side.top()
    if top <= least or (least and _log_delta(side, least, most) <= target):
        return least
    tilt = tilt_where(side.kinds, lambda t, k, mean: t * mean - k + log1p(t) + target)
    near = min(top, max(0.0, (moments(side.kinds, tilt)[0] + largest_kernel(tilt) - target) / tilt))
    best = inf
    for _ in range(ROUGH):  # Chernoff's bound is far off where the loss is a mixture
        rough = composition(side.kinds, tilt, near, most=PLACES)
        best = min(best, top, _crossing(rough.log_delta, target, least, near, precision=SPLIT_PRECISION))
        near = min(near, best)
        tilt = tilt_at(side.kinds, near)
    few = len(side.kinds) <= FEW
    places = min(most, SPLIT_PLACES) if few and rough.log_chance(near) < RARE else most
    made = _composed_for(side.kinds, near, places)
    best = min(best, _crossing(made.log_delta, target, least, near))
    if 0 < best < inf and few and made.log_chance(best) < RARE:
        near = best = _by_splits(side, target, least, best, most)
    for _ in range(STEPS):  # a search that began far off: what suits half of its end may reach further
        trial = 0.5 * best
        worse = not least < trial < inf or _log_delta(side, trial, FEWER) > target + NEARLY
        if worse or _log_delta(side, trial, most) > target:
            break
        near = trial
        best = min(near, _crossing(_composed_for(side.kinds, near, most).log_delta, target, least, near))
    while least < best < NEAR * near:  # what suits the end of a search that began far off may end nearer
        near = best
        best = min(near, _crossing(_composed_for(side.kinds, near, most).log_delta, target, least, near))
    return best


def _by_splits(side: _Side, target: float, least: float, best: float, most: int) -> float:
    """An epsilon at most the best so far, by split runs, and by many places at last."""
    before = inf
    for _ in range(CUTS):
        if best > NEAR * before or best <= least:
            break
        before, parts = best, _split(side.kinds, best, FEWER)
        best = min(best, _crossing(parts, target, least, best, precision=SPLIT_PRECISION))
    before = inf
    while least < best <= FURTHER * before:  # first searches, on few places, may end far above
        before, parts, low, share = best, _split(side.kinds, best, most), best, FURTHER
        if parts(least) <= target:
            return least
        while least < best <= low:
            low, share = max(least, share * best), share**2
            best = min(best, _crossing(parts, target, low, best, precision=SPLIT_PRECISION))
    if best > least:  # few places choose smaller tilts than many do
        made = composition(side.kinds, tilt_at(side.kinds, best), best, most=most)
        best = min(best, _crossing(made.log_delta, target, max(least, FURTHER * best), best))
    return best


def _crossing(
    log_delta: Callable[[float], float], target: float, low: float, high: float, precision: float = PRECISION
) -> float:
    """The least epsilon, to the precision, that is proven: by the secant method for log delta, in a bracket."""
    first, at_high = high, log_delta(high) - target
    while at_high > 0:
        low, high = high, high * 1.1 + 1e-300
        if high > 4 * first:
            return inf
        at_high = log_delta(high) - target
    at_low = log_delta(low) - target
    if at_low <= 0:
        return low
    for step in range(STEPS):
        if high - low <= precision * high:
            break
        share = min(max(at_low / (at_low - at_high), 0.01), 0.99) if at_high > -inf else 0.5
        guess = low + (high - low) * share if step % 3 < 2 else (low + high) / 2
        value = log_delta(guess) - target
        nearer = guess * (1 - precision / 2) if value <= 0 else guess * (1 + precision / 2)
        for at, found in ((guess, value), (nearer, None)):
            if low < at < high:
                found = log_delta(at) - target if found is None else found
                high, at_high, low, at_low = (at, found, low, at_low) if found <= 0 else (high, at_high, at, found)
    return high


def _log_delta(side: _Side, epsilon: float, places: int = MOST) -> float:
    if epsilon >= side.top():
        return -inf
    made = _composed_for(side.kinds, epsilon, places)
    found = made.log_delta(epsilon)
    if epsilon and len(side.kinds) <= FEW and made.log_chance(epsilon) < RARE:
        found = min(found, _split(side.kinds, epsilon, places)(epsilon))
    return found


def _composed_for(kinds: Sequence[Kind], epsilon: float, most: int = MOST) -> Composition:
    """The composition under the tilt of Chernoff's bound, or a smaller one that looks better on few places."""
    tilt = tilt_at(kinds, epsilon)
    rough = composition(kinds, tilt, epsilon, most=PLACES)
    if rough.log_chance(epsilon) < RARE:
        others = [composition(kinds, tilt * part, epsilon, most=PLACES) for part in PARTS]
        tilt = min((rough, *others), key=lambda made: made.log_delta(epsilon)).tilt
    return composition(kinds, tilt, epsilon, most=most)


def _split(kinds: Sequence[Kind], epsilon: float, places: int = MOST) -> Callable[[float], float]:
    """Log delta by the size of the largest loss of a round: where that decides alone, no tilt is of use for all sizes.

    A run whose losses are all small; and for each kind and each range of losses one with a round in it and no larger
    one (section 9 of the proof).
    """
    largest = max(float(kind.losses.max()) for kind in kinds)
    low = max(CUT * epsilon, largest * WIDER**-MOST_SIZES)
    parts = [_log_delta_of([_part(kind, -inf, low, kind.count) for kind in kinds], epsilon, 1, places)]
    while low < largest:
        high = low * WIDER if low * WIDER < largest else inf
        most = places if low < epsilon else min(places, SPLIT_PLACES)
        for place, kind in enumerate(kinds):
            others = [_part(each, -inf, high, each.count - (at == place)) for at, each in enumerate(kinds)]
            parts.append(_log_delta_of([_part(kind, low, high, 1), *others], epsilon, kind.count, most))
        low = high

    def whole(at: float) -> float:
        log_delta = float(np.logaddexp.reduce([part(at) for part in parts]))
        return log_delta + ULP * (64 + len(parts)) * (1 + abs(log_delta)) if log_delta > -inf else -inf

    return whole


def _log_delta_of(kinds: Sequence[Kind], epsilon: float, times: int, most: int) -> Callable[[float], float]:
    """Log of so many times the delta of a composition; minus infinity where a kind that runs has no losses."""
    used = [kind for kind in kinds if kind.count]
    if not all(len(kind.losses) for kind in used):
        return lambda _: -inf
    made, more = _composed_for(used, epsilon, most), log(times) * UP
    return lambda at: made.log_delta(at) + more


def _part(kind: Kind, low: float, high: float, count: int) -> Kind:
    """The losses above low and at most high."""
    where = (kind.losses > low) & (kind.losses <= high)
    return replace(kind, count=count, losses=kind.losses[where], logs=kind.logs[where])

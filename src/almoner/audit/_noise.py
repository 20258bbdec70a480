"""Check the noise of a recorded run: as large as its mechanisms say, fresh in each call, and new in each run.

Each check is a test whose false-alarm rate is below one in a million; what it misses, it misses. Numbers of noise are
used again if they agree with earlier ones, or with those of another run, more often than by chance.

Names and symbols
    values      noise in units of its scale
    tolerance   by how much a value may be off, because the noise was added in floating point; same unit
    step        of what values are whole multiples, as far as that can be told; 0 for real numbers; same unit
    chance  p   bounds how likely a fresh number agrees with a predicted one, whatever came before
    weight  s   in (0, 1)

Each agreement counts s log(1/p), and each comparison -log(1 - p + p^(1 - s)): the exponential of the sum has a mean of
at most 1, so it exceeds 1/alarm with a probability of at most alarm (Markov's inequality).

Source: docs/proofs/audits.md, Statement 2
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincc
from scipy.stats import chi2, gamma

from almoner.audit._calls import Call, Found, Run, values_of
from almoner.mechanisms import DiscreteGaussian, Gaussian, Laplace, SampledGaussian

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

WEIGHTS = (0.6, 0.9, 0.95)
LEAST_CHANCE, FEW_SEEN = 1e-12, 5e-10
"""Real numbers agree by chance less often; nothing is taken to be rarer, nor where there are few other numbers."""
COLUMNS = 8  # the first numbers of each release, so many, are compared with those of others
MOST_COMPARED, MOST_COMPARISONS = 20_000, 5 * 10**6
REFERENCES = 9
SURE, LIKELY = 1e-3, 0.2
"""A fraction that real numbers would be near with a larger probability is no sign of a step; nor several of them."""

ALARM = 1e-7
USED_AGAIN = "the noise of an earlier release is used again"
LEAST_NUMBERS = 8  # vectors of at least so many numbers are compared by their directions as well
COARSE = 8.0  # smaller noise in whole numbers is often the same
MOST_PAIRS = 200
SINGLE, DOUBLE = 2.0**-22, 2.0**-51  # twice the largest relative error of adding noise in either precision


@dataclass(frozen=True)
class Numbers:
    """The noise of one release: values, tolerances and steps, each (n,). Private."""

    values: Floats
    tolerance: Floats
    step: Floats

    def at(self, rows: slice, there: Mask | slice = slice(None)) -> "Numbers":
        return Numbers(*(each[rows][there] for each in (self.values, self.tolerance, self.step)))

    def agree(self, values: Floats, tolerance: Floats) -> tuple[Mask, Floats]:
        """(n,) each: which are the values, up to both tolerances, and bounds of how likely a fresh number is."""
        off = self.tolerance + tolerance
        return np.abs(self.values - values) <= off, np.clip(off + self.step, LEAST_CHANCE, 1.0)


def evidence(agree: Mask, chance: Floats) -> float:
    """Evidence of agreements, by the best weight: above log(1/alarm) with a probability of at most alarm."""
    if not agree.any():
        return 0.0
    logs = float(np.log(chance[agree]).sum())
    found = [-weight * logs - float(np.log1p(chance ** (1 - weight) - chance).sum()) for weight in WEIGHTS]
    return max(found) - log(len(WEIGHTS))


def numbers_of(values: Floats, tolerance: Floats, scale: float) -> Numbers:
    """Noise of one mechanism, (n,) in units of its scale, with what it is rounded to as far as that can be told.

    A step that is binary, decimal, or a fraction of the unit or of the scale is seen in a number alone; any other one
    by common multiples with other numbers.
    """
    raw = np.where(np.isfinite(values), values, 0.0) * scale
    room = tolerance * scale
    steps = [_last_bit(raw) / scale]
    for digits in range(6, 13):
        near = np.abs(raw * 10.0**digits - np.rint(raw * 10.0**digits)) <= room * 10.0**digits
        steps.append(np.where(near & (room * 10.0**digits < SURE), 10.0**-digits / scale, 0.0))
    tens = 10.0 ** np.floor(np.log10(scale)) / scale
    steps += [_common_step(values, tolerance, unit, 0.0, SURE) for unit in (tens, 1.0)]
    steps.append(_lattice(values, tolerance))
    step = np.max(steps, axis=0)
    if (step > 100 * np.maximum(tolerance, FEW_SEEN)).all():  # the one step of all is at most the least
        step = np.full_like(step, step.min(initial=np.inf))
    whole = np.abs(raw - np.rint(raw)) <= room  # of others only those that need so fine a step are seen: 4 to 1 at most
    return Numbers(values, tolerance, np.where(whole, np.maximum(step, 1 / scale) / 2, 2 * step))


def _lattice(values: Floats, tolerance: Floats) -> Floats:
    """(n,) the step that each value has in common with others, of nine: with three for sure, or with six as it seems.

    Where there is no sign of one, what is too small to be seen.
    """
    _, different = np.unique(np.round(values, 9), return_index=True)
    different = np.sort(different[np.isfinite(values[different]) & (values[different] != 0)])
    places = np.linspace(0, len(different) - 1, min(REFERENCES, len(different))).astype(int)
    references = different[places] if len(different) else different
    other = np.abs(np.abs(values) - np.abs(values[references, None])) > 4 * tolerance + 2e-9
    count = other.sum(axis=0)
    least = np.where(count < 2, FEW_SEEN, LEAST_CHANCE)
    sizes = np.abs(values[np.abs(values) > tolerance])
    if len(sizes) < len(values):  # nothing but rounding makes noise zero: at most the least of the others is the step
        least = np.maximum(least, sizes.min(initial=np.inf))
    for sure, enough in ((SURE, np.clip(count, 1, 3)), (LIKELY, 6)):
        for_each = [_common_step(values, tolerance, values[each], tolerance[each], sure) for each in references]
        if for_each:
            steps = -np.sort(-np.where(other, for_each, 0.0), axis=0)
            seen = (steps > 0).sum(axis=0)
            median = np.take_along_axis(steps, (seen // 2)[None].clip(max=len(steps) - 1), axis=0)[0]
            least = np.maximum(least, np.where(seen >= enough, median, 0.0))
    return least


def used_again(releases: Sequence[Numbers], alarm: float) -> int | None:
    """The place of a release whose noise agrees with that of earlier ones, at one distance; None where there is none.

    Distances are counted in releases, number by number, and in numbers, all releases strung together; also among the
    releases of one size. The noise may have another sign, or be multiplied by a factor.
    """
    sizes = [len(each.values) for each in releases]
    streams: list[Sequence[int]] = [range(len(releases))]
    if len(set(sizes)) > 1:
        streams += [[i for i, each in enumerate(sizes) if each == size] for size in sorted(set(sizes))]
    tables = [table for stream in streams for table in _tables(releases, stream)]
    tests = 3 * sum(_lags(len(table.places)) for table in tables)
    for table in tables:
        for lag in range(1, _lags(len(table.places)) + 1):
            for agree, chance, place in table.compared(lag):
                if evidence(agree, chance) > log(tests / alarm):
                    return int(place[agree].min())
    return None


@dataclass(frozen=True)
class _Table:
    """Numbers in rows, of which those in one column are compared at a distance of some rows."""

    numbers: Numbers  # each (rows, columns), not a number where there is none
    places: NDArray[np.int64]  # (rows,) of the releases

    def compared(self, lag: int) -> Iterator[tuple[Mask, Floats, NDArray[np.int64]]]:
        """Agreements, chances and places: as they are, with the other sign, and up to a factor."""
        here, back = self.numbers.values[lag:], self.numbers.values[:-lag]
        there = np.isfinite(here) & np.isfinite(back)
        if not there.any():
            return
        places = np.broadcast_to(self.places[lag:, None], here.shape)[there]
        now, before = self.numbers.at(np.s_[lag:], there), self.numbers.at(np.s_[:-lag], there)
        for sign in (1.0, -1.0):
            yield *now.agree(sign * before.values, before.tolerance), places
        if len(places) > 1:
            yield *_up_to_a_factor(now, before), places[1:]


def _up_to_a_factor(now: Numbers, before: Numbers) -> tuple[Mask, Floats]:
    """Of all but the first: whether each is what the factor of the one before it makes of the earlier one."""
    with np.errstate(all="ignore"):
        factor = now.values[:-1] / before.values[:-1]
        off = np.abs(now.tolerance / now.values) + np.abs(before.tolerance / before.values)
        predicted = factor * before.values[1:]
        off = np.abs(predicted) * (off[:-1] + np.abs(before.tolerance / before.values)[1:])
    known = np.isfinite(predicted) & np.isfinite(off)
    agree, chance = now.at(np.s_[1:]).agree(np.where(known, predicted, 0.0), np.where(known, off, 0.0))
    return agree & known, np.where(known, chance, 1.0)


def _tables(releases: Sequence[Numbers], stream: Sequence[int]) -> list[_Table]:
    """Releases as rows; and all their numbers, if they are few, strung together."""
    chosen = [(place, releases[place]) for place in stream][:MOST_COMPARED]
    width = max((len(each.values) for _, each in chosen), default=0)
    places = np.array([place for place, _ in chosen], np.int64)

    def padded(name: str) -> Floats:
        rows = np.full((len(chosen), width), np.nan)
        for row, (_, each) in zip(rows, chosen, strict=True):
            row[: len(each.values)] = getattr(each, name)
        return rows

    columns = {name: padded(name) for name in ("values", "tolerance", "step")}
    tables = [_Table(Numbers(**columns), places)]
    if width > 1:
        there = np.isfinite(columns["values"])
        strung = {name: each[there][:MOST_COMPARED, None] for name, each in columns.items()}
        tables.append(_Table(Numbers(**strung), np.repeat(places, there.sum(axis=1))[:MOST_COMPARED]))
    return tables


def _lags(count: int) -> int:
    """Number of distances that are looked at: all of few numbers, fewer of many."""
    return max(0, min(count - 1, MOST_COMPARISONS // max(count, 1)))


def _last_bit(values: Floats) -> Floats:
    """The largest power of two of which each value is a whole multiple; 0 for 0."""
    mantissas, exponents = np.frexp(values)
    whole = np.abs(mantissas * 2.0**53).astype(np.int64)
    return np.asarray(np.ldexp((whole & -whole).astype(np.float64), exponents - 53))


def _common_step(values: Floats, tolerance: Floats, reference: float, off: float, sure: float) -> Floats:
    """(n,) the largest number of which a value and the reference are whole multiples; 0 where there is no sign of one.

    By continued fractions of their ratio. Real numbers are as near to a fraction with a denominator of at most q with a
    probability of about q squared times the tolerance.
    """
    if not abs(reference) > 0:
        return np.zeros_like(values)
    ratio = values / reference
    room = (tolerance + np.abs(ratio) * off) / abs(reference) + 2e-16 * (1 + np.abs(ratio))
    rest, before, now = ratio.copy(), np.zeros_like(ratio), np.ones_like(ratio)
    found = np.zeros_like(ratio)
    with np.errstate(all="ignore"):
        for _ in range(30):
            near = (found == 0) & (np.abs(ratio * now - np.rint(ratio * now)) <= room * now)
            found = np.where(near, now, found)
            rest = 1 / (rest - np.floor(rest))
            before, now = now, now * np.floor(rest) + before
            if ((found > 0) | ~(now < 1e9)).all():
                break
    seen = (found > 0) & (found**2 * room < sure)
    return np.where(seen, abs(reference) / np.where(seen, found, 1.0), 0.0)


class _Noise(NamedTuple):
    """The noise of one call, in units of its standard deviation or scale, and by how much each number may be off."""

    call: Call
    values: Floats
    tolerance: Floats


def noise_found(run: Run, again: Run | None) -> list[Found]:
    """Find what is wrong with the noise of a run; ``again``: the same pipeline once more, or None. Private."""
    drawn = [_standard(call) for call in run.calls if call.of is None]
    noises = [noise for noise in [*drawn, *_rows(run)] if noise is not None and noise.values.size]
    return [*_too_small(noises), *_twice(noises), *_known(run, again)]


def _standard(call: Call) -> _Noise | None:
    if call.exact.labels is not None or not isinstance(call.mechanism, _NOISY):
        return None
    released = values_of(call.released)
    if released.numbers.size != call.exact.numbers.size:
        return None
    scale, noise = _scale(call), np.asarray(released.minus(call.exact), np.float64)
    told, exact = (np.asarray(each.numbers, np.float64) for each in (released, call.exact))
    with np.errstate(over="ignore"):
        rounded = SINGLE if (told.astype(np.float32) == told).all() else DOUBLE
    return _Noise(call, noise / scale, (np.abs(told) + np.abs(exact)) * (rounded / scale))


_NOISY = (Gaussian, SampledGaussian, DiscreteGaussian, Laplace)


def _scale(call: Call) -> float:
    return float(call.mechanism.scale if isinstance(call.mechanism, Laplace) else call.mechanism.sigma)


def _rows(run: Run) -> list[_Noise]:
    """Correlated noise, made independent again: C times the noise of all rows."""
    groups: dict[int, list[Call]] = {}
    for call in run.calls:
        if call.of is not None and call.part is not None and call.part.rule == "rows":
            groups.setdefault(call.of, []).append(call)
    found: list[_Noise] = []
    for calls in groups.values():
        factor: Any = getattr(calls[-1].part, "factor", None)
        rows = [_standard(call) for call in calls]
        complete = [row for row in rows if row is not None]
        if factor is None or len(complete) < len(rows):
            continue
        columns = np.asarray(factor.columns(range(factor.steps)))[: len(rows), : len(rows)]
        values = columns @ np.array([row.values for row in complete])
        off = len(rows) * np.abs(columns) @ np.array([row.tolerance for row in complete])
        found += map(_Noise, calls, values, off)
    return found


def _too_small(noises: Sequence[_Noise]) -> list[Found]:
    """Noise that is smaller than stated, of each kind and size of mechanism."""
    found = []
    for mechanism, same in _kinds(noises).items():
        numbers = np.concatenate([noise.values for noise in same])
        if isinstance(mechanism, Laplace):
            chance = float(gamma.cdf(np.abs(numbers).sum() + len(numbers) / mechanism.scale, len(numbers)))
        else:
            chance = float(chi2.cdf(np.square(numbers).sum(), len(numbers)))
        if not np.isfinite(numbers).all() or chance < ALARM:
            found.append(Found("noise", same[0].call.number, f"there is less noise than {mechanism!r} says"))
    return found


def _kinds(noises: Sequence[_Noise]) -> dict[Any, list[_Noise]]:
    kinds: dict[Any, list[_Noise]] = {}
    for noise in noises:
        kinds.setdefault(noise.call.mechanism, []).append(noise)
    return kinds


def _twice(noises: Sequence[_Noise]) -> list[Found]:
    """Noise of two calls that is the same but for a factor: in few numbers of many calls, or in long vectors."""
    place = used_again(_measured(noises), ALARM)
    if place is not None:
        return [Found("noise", noises[place].call.number, USED_AGAIN)]
    fine = [each for each in noises if not each.call.exact.whole or _scale(each.call) >= COARSE]
    long = [noise for noise in fine if noise.values.size >= LEAST_NUMBERS][:MOST_PAIRS]
    pairs = max(1, len(long) * (len(long) - 1) // 2)
    for place, noise in enumerate(long):
        for before in long[:place]:
            if _alike(noise.values, before.values, ALARM / pairs):
                return [Found("noise", noise.call.number, USED_AGAIN)]
    return []


def _measured(noises: Sequence[_Noise]) -> list[Numbers]:
    """The first numbers of each noise, with what they are rounded to: seen beside other noise of the same mechanism."""
    measured: dict[int, Numbers] = {}
    for same in _kinds(noises).values():
        ends = np.cumsum([noise.values[:COLUMNS].size for noise in same])
        values = np.concatenate([noise.values[:COLUMNS] for noise in same])
        off = np.concatenate([noise.tolerance[:COLUMNS] for noise in same])
        together = numbers_of(values, off, _scale(same[0].call))
        for noise, end in zip(same, ends, strict=True):
            measured[id(noise)] = together.at(np.s_[end - len(noise.values[:COLUMNS]) : end])
    return [measured[id(noise)] for noise in noises]


def _alike(one: Floats, other: Floats, alarm: float) -> bool:
    """True if two vectors point the same way further than independent normal ones do but with this probability."""
    size = min(one.size, other.size)
    one, other = one[:size], other[:size]
    length = float(np.linalg.norm(one) * np.linalg.norm(other))
    if not length > 0:
        return False
    return float(betaincc(0.5, (size - 1) / 2, min(1.0, abs(float(one @ other)) / length) ** 2)) < alarm


def _known(run: Run, again: Run | None) -> list[Found]:
    """Noise that is the same in a second run, in more numbers than would happen by chance."""
    both = zip(map(_standard, run.calls), map(_standard, again.calls if again else []), strict=False)
    pairs = [(one, two) for one, two in both if one and two and one.values.shape == two.values.shape]
    first, second = [one for one, _ in pairs], [two for _, two in pairs]
    both_numbers = zip(_measured(first), second, strict=True)
    found = [each.agree(two.values[:COLUMNS], two.tolerance[:COLUMNS]) for each, two in both_numbers]
    if not found:
        return []
    agree, chance = (np.concatenate(each) for each in zip(*found, strict=True))
    if evidence(agree, chance) < log(1 / ALARM):
        return []
    place = next(one.call.number for one, (same, _) in zip(first, found, strict=True) if same.any())
    return [Found("noise", place, "the noise is the same in every run: anybody can draw it again")]

"""Judge the epsilon of runs fixed in advance over the whole range of inputs, by integrals of another kind.

python benchmarks/tightness/edges.py [--rows 1000] [--seed 1] [--quick] [--plans]

Random rows: delta 1e-20 to 0.5, epsilon 1e-4 to 1e5, 1 to 1e8 rounds, rate 1e-12 to 1, noise 0.05 to 1e6. One round
is judged by its closed form with 50 digits. Many rounds are judged by Bromwich's integral of exp(n K(s) - s epsilon)
over s (s + 1) along the saddle, with the cumulant K by the trapezoid rule; where that does not converge, by masses
divided between neighbouring places of three grids, extrapolated to none, or bounded from below by one large loss. Rows
whose truth is 0 must give 0. With --plans the filter of a plan is held against the fixed answer.

Printed are the excesses over the truth, the worst rows, and times; Ctrl-C prints those of the rows so far. Ends with
an error if an answer is below the truth, if more than one row in a hundred is 1 % above it, or if any is 3 % above it.
"""

import argparse
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from math import expm1, inf, log, log1p, pi, sqrt

import mpmath
import numpy as np
from scipy.special import ndtr

from almoner import filters, mechanisms
from almoner.accounting import calibrate
from almoner.curves._totals import tightest
from almoner.curves.planned import MOST_ROUNDS
from almoner.errors import ArgumentError

MOST_WORK = 2 * 10**7  # products of frequencies and points
DIGITS = 1e-6  # relative: how exact the judge is taken to be


@dataclass(frozen=True)
class Row:
    """One question."""

    noise: float
    rate: float
    rounds: int
    delta: float


def rows(seed: int):
    """Random questions, without end."""
    draw = np.random.default_rng(seed)
    while True:
        noise, rate, rounds, delta = (
            float(np.exp(draw.uniform(log(low), log(high))))
            for low, high in ((0.05, 1e6), (1e-12, 1.0), (1.0, 1e8), (1e-20, 0.5))
        )
        yield Row(noise, rate, round(rounds), delta)


def losses(row: Row, x: np.ndarray) -> np.ndarray:
    """log(1 - q + q exp((2x - 1) / 2z²))."""
    r = (2 * x - 1) / (2 * row.noise**2)
    low = np.log1p(row.rate * np.expm1(np.minimum(r, 500.0)))
    return np.where(r > 500, np.logaddexp(log(row.rate) + r, log1p(-row.rate) if row.rate < 1 else -inf), low)


def points(row: Row, side: int, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Losses and masses of one round, by the trapezoid rule with this width."""
    z = row.noise
    x = np.arange(-16 * z, 1 + 16 * z + width, width)
    q = np.exp(-((x / z) ** 2) / 2) * width / z / sqrt(2 * pi)
    p = np.exp(-(((x - 1) / z) ** 2) / 2) * width / z / sqrt(2 * pi)
    loss = losses(row, x)
    return (loss, (1 - row.rate) * q + row.rate * p) if side == 0 else (-loss, q)


class Judge:
    """Log of the true delta of one direction at any epsilon near a first one."""

    def __init__(self, row: Row, side: int, epsilon: float) -> None:
        self.row, self.side = row, side
        z = row.noise
        self.width = min(z / 10, z * z / 4)
        if 32 * z / self.width > 10**6:
            raise ArithmeticError("too many points")
        loss, mass = points(row, side, self.width)
        self.loss, self.mass = loss[mass > 0], mass[mass > 0]
        self.tilt = self.saddle(epsilon)

    def cumulants(self, t: float) -> tuple[float, float, float]:
        exponents = t * self.loss + np.log(self.mass)
        top = exponents.max()
        near = top < 1 and np.abs(t * self.loss).max() < 1
        tilted = np.exp(exponents - top)
        total = tilted.sum()
        mean = tilted @ self.loss / total
        value = log1p(self.mass @ np.expm1(t * self.loss)) if near else top + log(total)
        return value, mean, tilted @ (self.loss - mean) ** 2 / total

    def saddle(self, epsilon: float) -> float:
        spread = sqrt(self.cumulants(0.0)[2])
        low, high = 1e-6 / spread, 1e-6 / spread
        n = self.row.rounds

        def slope(t: float) -> float:
            return n * self.cumulants(t)[1] - epsilon + log(t) - log1p(t)

        while slope(high) < 0 and high < 1e20:
            low, high = high, high * 4
        for _ in range(40):
            middle = sqrt(low * high)
            low, high = (low, middle) if slope(middle) >= 0 else (middle, high)
        return high

    def by_contour(self) -> None:
        """Values of exp(n K(s) - n K(t)) / (s (s + 1)) along Re s = t."""
        n, t = self.row.rounds, self.tilt
        value, _, variance = self.cumulants(t)
        spread = sqrt(n * variance)
        step = 2 * pi / (60 * spread + 60 / t)
        top = 0.0
        values = []
        block = 256
        log_mass = np.log(self.mass)
        weight = np.exp(log_mass + t * self.loss - value)
        while True:
            tau = (top + np.arange(block)) * step
            turned = np.expm1(1j * np.outer(tau, self.loss)) @ weight
            log_m = n * np.log1p(turned)
            s = t + 1j * tau
            values.append(np.exp(log_m) / (s * (s + 1)))
            top += block
            if np.abs(values[-1][-8:]).max() * block < 1e-9 * np.abs(values[0]).max():
                break
            if top * len(self.loss) > MOST_WORK:
                raise ArithmeticError("the integral does not converge")
            if tau[-1] * np.abs(np.diff(self.loss)).max() > 2:
                raise ArithmeticError("the points are too far apart")
        self.integrand = np.concatenate(values)
        self.integrand[0] /= 2
        self.tau = np.arange(len(self.integrand)) * step
        self.scale = n * value + log(step / pi)
        self.log_delta = self._contour

    def _contour(self, epsilon: float) -> float:
        total = float((self.integrand * np.exp(-1j * self.tau * epsilon)).real.sum())
        if total <= 0:
            raise ArithmeticError("the integral is lost in rounding")
        return self.scale - self.tilt * epsilon + log(total)

    def by_grids(self) -> None:
        """Two grids, of which the second is twice as fine."""
        self.width = min(self.width, self.row.noise / 2000)  # the kernel has a corner
        loss, mass = points(self.row, self.side, self.width)
        self.loss, self.mass = loss[mass > 0], mass[mass > 0]
        self.grids = [self._grid(size) for size in (2**16, 2**17, 2**18)]
        self.log_delta = self._extrapolated

    def _grid(self, size: int):
        n, t = self.row.rounds, self.tilt
        value, _, variance = self.cumulants(t)
        weight = np.exp(np.log(self.mass) + t * self.loss - value)
        ends = [
            min(
                (n * (self.cumulants(t + sign * u)[0] - value) + 25) / u
                for u in 2.0 ** np.arange(-8, 6) / sqrt(n * variance)
            )
            * sign
            for sign in (-1, 1)
        ]
        step = (ends[1] - ends[0]) * 1.01 / size
        place = np.floor(self.loss / step)
        up = self.loss / step - place
        row = np.zeros(size)
        np.add.at(row, place.astype(int) % size, weight * (1 - up))
        np.add.at(row, (place.astype(int) + 1) % size, weight * up)
        spectrum = np.fft.rfft(row)
        masses = np.fft.irfft(np.exp(n * np.log(spectrum)), size)
        first = int(np.floor(ends[0] / step))
        return step, first, np.roll(masses, -first % size), n * value

    def _extrapolated(self, epsilon: float) -> float:
        found = []
        for step, first, masses, scale in self.grids:
            v = (first + np.arange(len(masses))) * step - epsilon
            above = v > 0
            total = float(masses[above] @ (np.exp(-self.tilt * v[above]) * -np.expm1(-v[above])))
            if total <= 0:
                raise ArithmeticError("the grid is lost in rounding")
            found.append(scale - self.tilt * epsilon + log(total))
        first, second = found[1] - found[0], found[2] - found[1]
        if abs(first) > 1e-2 * max(1.0, self.tilt * epsilon):
            raise ArithmeticError("the grids do not agree")
        ratio = second / first if 0.2 < second / first < 0.6 else 0.5
        self.doubt = abs(second) / max(self.tilt * epsilon, 1e-300)
        return found[2] + second * ratio / (1 - ratio)


def one_round(row: Row, epsilon: float) -> float:
    """Log of the larger delta of both orders of one round, with 50 digits."""
    with mpmath.workdps(50):
        q, z, e = mpmath.mpf(row.rate), mpmath.mpf(row.noise), mpmath.exp(mpmath.mpf(epsilon))
        x = z**2 * mpmath.log((e - 1) / q + 1) + 0.5
        remove = q * mpmath.ncdf((1 - x) / z) - (e - 1 + q) * mpmath.ncdf(-x / z)
        add = mpmath.mpf(0)
        if 1 / e > 1 - q:
            x = z**2 * mpmath.log((1 / e - 1) / q + 1) + 0.5
            add = (1 - e * (1 - q)) * mpmath.ncdf(x / z) - e * q * mpmath.ncdf((x - 1) / z)
        return float(mpmath.log(max(remove, add, mpmath.mpf(10) ** -400)))


def one_large(row: Row, epsilon: float) -> float:
    """Log of a lower bound on delta: the loss of exactly one round is above epsilon.

    The other rounds keep the mass exp(-less) of P, and at most the mass one of Q: by Jensen they cost less.
    """
    ratio = log1p(expm1(epsilon) / row.rate) if epsilon < 500 else epsilon - log(row.rate)
    x = row.noise**2 * ratio + 0.5
    large = (1 - row.rate) * ndtr(-x / row.noise) + row.rate * ndtr((1 - x) / row.noise)
    less = -(row.rounds - 1) * log1p(-large)
    return log(row.rounds) - less + one_round(row, epsilon + less)


def truth(row: Row, near: float) -> tuple[float, str, float]:
    """The true epsilon, which is near; who says so; and how far off that may be, relative."""
    if row.rounds == 1:
        return root(lambda e: one_round(row, e), row.delta, near), "closed", DIGITS
    best, names, doubt = 0.0, set(), DIGITS
    for side in (0, 1):
        if side and near >= -row.rounds * log1p(-min(row.rate, 1 - 1e-16)):
            continue
        judge = Judge(row, side, near)
        if row.rounds * judge.cumulants(judge.tilt)[0] - judge.tilt * near < log(row.delta):
            continue  # Chernoff's bound
        try:
            judge.by_contour()
            names.add("contour")
            found = root(judge.log_delta, row.delta, near)
            if found == inf:
                raise ArithmeticError("the integral is lost in rounding")  # the grids decide
            judge.tilt *= 0.9
            judge.by_contour()
            if abs(judge.log_delta(found) - log(row.delta)) > 1e-6 * max(1.0, judge.tilt * found):
                raise ArithmeticError("two contours do not agree")
        except ArithmeticError:
            names.discard("contour")
            found = root(lambda e: one_large(row, e), row.delta, near) if not side else 0.0
            if found > 0.998 * near:
                names.add("one large loss")
            else:
                judge.tilt = judge.saddle(near)
                judge.by_grids()
                found = root(judge.log_delta, row.delta, near)
                if judge.doubt > 1e-5:
                    raise
                names.add("grids")
                doubt = max(doubt, judge.doubt)
        best = max(best, found)
    return best, "+".join(sorted(names)), doubt


def root(log_delta, delta: float, near: float) -> float:
    """Where log delta, which falls, crosses its target: by false position in a bracket around a guess."""
    low, high = near * (1 - 1e-3), near * (1 + 1e-4)
    at_low, at_high = log_delta(low) - log(delta), log_delta(high) - log(delta)
    while at_low < 0:
        high, at_high, low = low, at_low, low - 2 * (high - low)
        if low <= 0.02 * near:
            return 0.0
        at_low = log_delta(low) - log(delta)
    while at_high > 0:
        low, at_low, high = high, at_high, high + 2 * (high - low)
        if high > 2 * near:
            return inf
        at_high = log_delta(high) - log(delta)
    for step in range(40):
        if high - low < 1e-8 * near or at_low == at_high:
            break
        share = min(max(at_low / (at_low - at_high), 1e-3), 1 - 1e-3) if step % 3 else 0.5
        middle = low + (high - low) * share
        value = log_delta(middle) - log(delta)
        low, at_low, high, at_high = (middle, value, high, at_high) if value > 0 else (low, at_low, middle, value)
    return (low + high) / 2


def share(row: Row) -> float:
    """The sum of all rounds' delta at epsilon 0."""
    return row.rounds * row.rate * float(2 * ndtr(1 / (2 * row.noise)) - 1)


def plans(count: int, seed: int) -> float:
    """The least share of the steps fixed in advance that a filter planned for them admits."""
    draw, least = np.random.default_rng(seed), 1.0
    for _ in range(count):
        noise, rate, epsilon, delta = (
            float(np.exp(draw.uniform(log(low), log(high))))
            for low, high in ((0.5, 10.0), (1e-5, 0.1), (0.1, 10.0), (1e-14, 1e-5))
        )
        fixed = calibrate.in_advance(epsilon=epsilon, delta=delta, noise_multiplier=noise, sample_rate=rate).steps
        if not fixed:
            continue
        began = time.process_time()
        try:
            admitted = filters.Planned(
                mechanisms.SampledGaussian(noise, 1.0, rate), epsilon=epsilon, delta=delta
            ).notion.prices.rounds
        except ArgumentError:
            admitted = 0
        spent = time.process_time() - began
        least = min(least, admitted / min(fixed, MOST_ROUNDS))
        print(
            f"plan {noise:.4g} {rate:.4g} {epsilon:.4g} {delta:.3g}: {admitted} of {fixed}, {spent:.2f} s", flush=True
        )
    return least


def fixed_answers(count: int, seed: int) -> bool:
    """Judge so many rows, or as many as there were until Ctrl-C; True if a bar is missed."""
    judged, zeros, unjudged, times, wrong = [], 0, 0, [], 0
    with suppress(KeyboardInterrupt):
        for row in rows(seed):
            if len(judged) >= count:
                break
            run = mechanisms.Repeated(mechanisms.SampledGaussian(row.noise, 1.0, row.rate), row.rounds)
            if share(row) <= row.delta * (1 - 1e-9):
                if zeros < count // 10 + 1:
                    zeros += 1
                    wrong += tightest(run, delta=row.delta).epsilon != 0
                continue
            began = time.process_time()
            epsilon = tightest(run, delta=row.delta).epsilon
            spent = time.process_time() - began
            if not 1e-4 < epsilon < 1.1e5:
                if epsilon == inf:
                    print(f"{row}: inf")
                    unjudged += 1
                continue
            try:
                true, who, doubt = truth(row, epsilon)
            except ArithmeticError as error:
                unjudged += 1
                print(f"{row}: {epsilon!r} not judged: {error}")
                continue
            times.append(spent)
            judged.append(((epsilon - true) / epsilon, row, epsilon, true, who, spent, doubt))
    excess = np.array([each[0] for each in judged])
    for each in sorted(judged, key=lambda j: -j[0])[:8] + sorted(judged, key=lambda j: j[0])[:4]:
        print("{:+.3%} {} answer {:.9g} truth {:.9g} by {} in {:.2f} s, doubt {:.1e}".format(*each))
    below = sum(each[0] < -each[6] for each in judged)
    print(
        f"{len(judged)} rows: median {np.median(excess):.2e}, 99 % {np.quantile(excess, 0.99):.2e}, "
        f"largest {excess.max():.2e}"
    )
    print(f"below the truth {below}; truth 0: {zeros} rows, {wrong} wrong; not judged {unjudged}")
    print(f"seconds: median {np.median(times):.3f}, 99 % {np.quantile(times, 0.99):.3f}, most {max(times):.3f}")
    return bool(below or wrong or (excess > 0.01).mean() > 0.01 or excess.max() > 0.03)


def main() -> None:
    """Draw, answer, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows")
    parser.add_argument("--plans", action="store_true", help="filters of plans, too")
    options = parser.parse_args()
    count = max(1, options.rows // (20 if options.quick else 1))
    bad = fixed_answers(count, options.seed)
    if options.plans:
        least = plans(count, options.seed)
        print(f"the least share that a plan admits: {least:.4f}")
        bad = bad or least < 0.99
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

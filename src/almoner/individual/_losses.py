"""Each person's epsilon from counts of steps: exact for parameters fixed in advance, no guarantee under adaptivity.

Each person's steps are kept as counts per bucket of relative noise (sigma over that person's norm). The counts give
each person's epsilon, as certified upper (and lower) bounds, for adding and for removing the person.

**What is guaranteed.** If the noise, the sampling rates and all norms were fixed in advance, the numbers are each
person's epsilon. In training, norms depend on earlier outputs: then this is the approximate accountant of
Koskela, Tobaben & Honkela and *no* guarantee (theory 7.3, 4.10). Guarantees come from :class:`Filter`.

``dominating_mu`` finds the Gaussian that dominates a person's composition up to a slack, a probability of total failure
that is charged beside mu, as that of an approximate round. Domination at *all* epsilons without slack is impossible for
sampled Gaussians at the mu that a plot suggests, and a fit on a grid of epsilons proves nothing (theory 7.4).

All that is per person here is private: for that person or the data holder (theory 5.9).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj, to_device
from numpy.typing import ArrayLike, NDArray

from almoner import _check, mechanisms
from almoner._arrays import Array, to_numpy
from almoner._search import edge
from almoner.curves import gaussian
from almoner.curves import losses as curves
from almoner.errors import ArgumentError
from almoner.individual._shares import in_order
from almoner.individual._statements import LossStatement

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
MOST_STEPS = 10**7  # the most steps of one person that are certified


def losses(
    counts: ArrayLike | Array,
    noise: ArrayLike | Sequence[mechanisms.Mechanism],
    /,
    *,
    sample_rate: ArrayLike = 1.0,
    delta: float | Sequence[float] | None = None,
    epsilon: float | Sequence[float] | None = None,
    bounds: bool = False,
) -> Any:
    """Each person's epsilon at delta, or delta at epsilon, from counts of steps.

    Args:
        counts: (n, j) whole numbers >= 0, private; NumPy or PyTorch. Steps of each person in each bucket.
        noise: (j,) public, the relative noise of each bucket, sigma over norm, above 0; inf costs nothing. Or (j,)
            mechanisms, for rounds other than the sampled Gaussian: Laplace, RandomizedResponse, Pure, Approximate
            and Gaussian.
        sample_rate: scalar or (j,), public, in (0, 1]; Poisson sampling.
        delta: public, in (0, 1), one or several. Exactly one of delta and epsilon is given.
        epsilon: public, >= 0, one or several.
        bounds: with delta, also return lower bounds.

    Returns:
        (n,) float64, private: upper bounds; (several, n) for several; a pair (lower, upper) with bounds. Nats. inf
        where the certificate does not reach: delta below 1e-17, or less; ``accounting.answers`` has no such end.

    Guarantee: for rounds fixed in advance every person has (epsilon, delta)-DP, in both directions; the lower bounds
        are below each person's true epsilon for the bucketed noise. Under adaptivity: none (theory 7.3).
    Source: theory 7.1 to 7.3; Koskela, Tobaben & Honkela (2023), section 5; docs/proofs/losses.md.

    >>> import numpy as np
    >>> steps = np.array([[10_000, 0], [0, 10_000], [0, 0]])
    >>> losses(steps, [2.0, 20.0], sample_rate=0.005, delta=1e-5).round(2)
    array([1.  , 0.08, 0.  ])
    """
    rounds = _rounds(noise, sample_rate)
    table = _checked_counts(counts, len(rounds))
    if (delta is None) == (epsilon is None):
        raise ArgumentError("exactly one of delta and epsilon must be given")
    kinds = [round_ for round_ in rounds if round_ is not None]
    if len(kinds) < len(rounds):
        table = table[:, [j for j, round_ in enumerate(rounds) if round_ is not None]]
    if epsilon is not None:
        if bounds:
            raise ArgumentError("bounds=True needs delta")
        return _deltas(table, kinds, epsilon)
    upper = _stacked(delta, lambda each: _epsilons(table, kinds, each))
    if not bounds:
        return upper
    return _stacked(delta, lambda each: curves.epsilons(table, kinds, delta=each, lower=True)), upper


def _stacked(values: Any, function: Callable[[float], Floats]) -> Floats:
    """The function at one value or, stacked, at several."""
    return np.stack([function(float(value)) for value in values]) if np.ndim(values) else np.asarray(function(values))


def _rounds(
    noise: ArrayLike | Sequence[mechanisms.Mechanism], sample_rate: ArrayLike
) -> list[mechanisms.Mechanism | None]:
    """One mechanism for each bucket; None where nothing is contributed."""
    if np.ndim(cast(ArrayLike, noise)) != 1:
        raise ArgumentError("noise must have one entry for each bucket")
    listed = [each for each in cast(Iterable[object], noise) if isinstance(each, mechanisms.Mechanism)]
    if listed and len(listed) == len(cast(Sequence[object], noise)):
        return [*listed]
    values = _check.floats(noise=cast(Any, noise))
    rates = np.broadcast_to(_check.floats(sample_rate=sample_rate), values.shape)
    rounds: list[mechanisms.Mechanism | None] = []
    for value, rate in zip(values.tolist(), rates.tolist(), strict=True):
        _check.number(noise=value)
        if not value > 0:
            raise ArgumentError(f"noise={value!r} must be above 0")
        if not 0 < rate <= 1:
            raise ArgumentError(f"sample_rate={rate!r} must be in (0, 1]")
        rounds.append(None if value == np.inf else mechanisms.SampledGaussian(value, 1.0, rate))
    return rounds


def _checked_counts(counts: Any, buckets: int) -> Array:
    """Counts that are whole, not negative and not too many; the messages hold no count."""
    counts = counts if is_array_api_obj(counts) else np.asarray(counts)
    xp = array_namespace(counts)
    if counts.ndim != 2 or counts.shape[1] != buckets:
        raise ArgumentError(f"counts must have shape (n, {buckets}), not {tuple(counts.shape)}")
    if not xp.isdtype(counts.dtype, "integral"):
        raise ArgumentError(f"counts must be whole numbers, not {counts.dtype}")
    if counts.shape[0] and buckets:
        if bool(xp.any(counts < 0)):
            raise ArgumentError("counts must not be negative")
        if bool(xp.any(counts > MOST_STEPS)) or bool(xp.any(xp.sum(counts, axis=1, dtype=xp.int64) > MOST_STEPS)):
            raise ArgumentError(f"counts must not exceed {MOST_STEPS} steps for one person")
    return cast(Array, counts)


def _gaussian_only(counts: Array, kinds: list[mechanisms.Mechanism]) -> tuple[Mask, Floats]:
    """Who took part in Gaussian rounds only, without sampling; and the mu of these people, rounded up."""
    squares = np.zeros(len(kinds))
    for j, kind in enumerate(kinds):
        match kind:
            case mechanisms.Gaussian(sigma, s) | mechanisms.SampledGaussian(sigma, s, 1):
                squares[j] = (s / sigma) ** 2
    xp = array_namespace(counts)
    host = to_device(counts, "cpu")
    others = np.flatnonzero(squares == 0)
    gaussian_only = np.ones(counts.shape[0], dtype=bool)
    if len(others):
        gaussian_only = ~np.asarray(xp.any(host[:, others.tolist()] > 0, axis=1))
    mu = np.zeros(len(gaussian_only))
    rows = np.flatnonzero(gaussian_only)
    mu[rows] = np.sqrt(np.asarray(host[rows.tolist() if xp is not np else rows], dtype=np.float64) @ squares)
    return gaussian_only, mu * (1 + (len(kinds) + 8) * 2.0**-52)


def _epsilons(counts: Array, kinds: list[mechanisms.Mechanism], delta: float) -> Floats:
    _check.between(0, 1, delta=delta)
    plain, mu = _gaussian_only(counts, kinds)
    result = np.zeros(len(plain))
    if plain.any():
        result[plain] = gaussian.epsilon(mu[plain], delta=delta)
    if not plain.all():
        result[~plain] = curves.epsilons(_rows(counts, ~plain), kinds, delta=delta)
    return result


def _deltas(counts: Array, kinds: list[mechanisms.Mechanism], epsilon: float | Sequence[float]) -> Floats:
    points = np.atleast_1d(_check.floats(epsilon=epsilon))
    _check.each(_check.within, 0, 1e6, epsilon=points.tolist())
    plain, mu = _gaussian_only(counts, kinds)
    result = np.zeros((len(points), len(plain)))
    if plain.any():
        for row, each in zip(result, points.tolist(), strict=True):
            row[plain] = gaussian.delta(mu[plain], epsilon=each)
    if not plain.all():
        result[:, ~plain] = curves.deltas(_rows(counts, ~plain), kinds, epsilon=points)
    return result if np.ndim(epsilon) else result[0]


def _rows(counts: Array, people: Mask) -> Array:
    """The rows of some people; without a copy if these are all."""
    if people.all():
        return counts
    xp = array_namespace(counts)
    return cast(Array, xp.take(counts, xp.asarray(np.flatnonzero(people), device=device(counts)), axis=0))


class Losses:
    """Counts of steps per bucket of relative noise, for n people; filled while training runs.

    The buckets are geometric. A step's relative noise is rounded down to a bucket's, so that the person's epsilon
    rises. A norm of zero is not counted. An unknown norm (NaN, negative, infinite, or noise below the least bucket)
    makes a person's epsilon inf. All counts are private: see the module.

    Guarantee: each step is counted at a relative noise not above the person's own, so that the epsilon of the counts
        is not below that of the steps, had they been fixed in advance; under adaptivity none (theory 7.3).
    Source: theory 7.1.

    >>> import numpy as np
    >>> counted = Losses(2, least=2.0, most=2000.0)
    >>> step = mechanisms.SampledGaussian(sigma=10.0, sensitivity=5.0, sample_rate=0.005)
    >>> for _ in range(100):
    ...     counted.record(step, np.array([5.0, 0.5]))
    >>> counted.epsilon(delta=1e-5).shape
    (2,)
    """

    def __init__(self, n: int, /, *, least: float, most: float, buckets: int = 64) -> None:
        """Args: n people; the least and the largest relative noise told apart; how many buckets. All public."""
        _check.whole(1, n=n)
        _check.whole(2, buckets=buckets)
        _check.positive(least=least, most=most)
        if not least < most:
            raise ArgumentError(f"most={most!r} must be above least={least!r}")
        self._n = int(n)
        self._noise = np.geomspace(least, most, buckets)
        self._noise[0] = least
        self._counts: dict[float, NDArray[np.uint32]] = {}
        self._unknown = np.zeros(self._n, dtype=bool)

    def __repr__(self) -> str:
        return f"Losses(least={self._noise[0]:g}, most={self._noise[-1]:g}, buckets={len(self._noise)})"

    @property
    def n(self) -> int:
        """Number of people; as private as the caller decides."""
        return self._n

    @property
    def noise(self) -> Floats:
        """(j,) public: the relative noise of each bucket, just below its edge, which covers rounding."""
        return np.asarray(self._noise * (1 - 2.0**-50))

    @property
    def rates(self) -> tuple[float, ...]:
        """The sampling rates seen, public."""
        return tuple(sorted(self._counts))

    def counts(self, sample_rate: float) -> NDArray[np.uint32]:
        """(n, j) private: a copy of the counts of one sampling rate."""
        return self._counts.get(float(sample_rate), np.zeros((self._n, len(self._noise)), np.uint32)).copy()

    def record(
        self, step: mechanisms.Gaussian | mechanisms.SampledGaussian, norms: ArrayLike, people: ArrayLike | None = None
    ) -> None:
        """Count one step.

        Args:
            step: public; its sensitivity is what norms are clipped to.
            norms: (n,) or (m,) private, in the sensitivity's unit; above the sensitivity counts as clipped to it.
            people: (m,) whole numbers, private: whose norms these are; all n if None. With Poisson sampling each person
                pays at every step, sampled or not (theory 5.6): leave out only people who could not have been sampled.
        """
        if not isinstance(step, mechanisms.Gaussian | mechanisms.SampledGaussian):
            raise ArgumentError(f"step={step!r} must be Gaussian or SampledGaussian")
        rate = float(step.sample_rate) if isinstance(step, mechanisms.SampledGaussian) else 1.0
        values = in_order("norms", norms)
        if isinstance(norms, np.ma.MaskedArray) or values.dtype.kind not in "fiu":
            raise ArgumentError("norms must be real numbers, and no masked array: use people= to say whose they are")
        values = values.astype(np.float64)
        rows = np.arange(self._n) if people is None else to_numpy(people)
        if values.shape != (len(rows),) or rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise ArgumentError(f"norms must have shape ({len(rows)},)")
        if len(rows) and (rows.min() < 0 or rows.max() >= self._n or len(np.unique(rows)) < len(rows)):
            raise ArgumentError(f"people must be different whole numbers in [0, {self._n})")
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = step.sigma / np.minimum(values, step.sensitivity)
        bucket = np.searchsorted(self._noise, relative * (1 + 2.0**-51), side="right") - 1
        unknown = ~(values >= 0) | np.isinf(values) | ((bucket < 0) & (values > 0))
        pays = ~unknown & (values > 0)
        table = self._counts.setdefault(rate, np.zeros((self._n, len(self._noise)), np.uint32))
        table[rows[pays], bucket[pays]] += np.uint32(1)
        self._unknown[rows[unknown]] = True

    def merge(self, other: "Losses") -> None:
        """Add the counts of another shard, for the same people."""
        if not isinstance(other, Losses) or self._n != other._n or not np.array_equal(self._noise, other._noise):
            raise ArgumentError("shards must have the same people and the same buckets")
        added = {}
        for rate, table in other._counts.items():
            total = self._counts.get(rate, np.zeros_like(table)).astype(np.uint64) + table
            if len(total) and int(total.max()) > MOST_STEPS:
                raise ArgumentError(f"counts must not exceed {MOST_STEPS} steps for one person")
            added[rate] = total.astype(np.uint32)
        self._counts.update(added)
        self._unknown |= other._unknown

    def state(self) -> dict[str, Any]:
        """Everything, private, for a checkpoint: a dictionary of arrays that ``numpy.savez`` can hold."""
        rates = self.rates
        tables = np.array([self._counts[rate] for rate in rates], np.uint32).reshape(-1, self._n, len(self._noise))
        saved: dict[str, Any] = {"noise": self._noise.copy(), "rates": np.asarray(rates), "counts": tables}
        return saved | {"unknown": self._unknown.copy()}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> "Losses":
        """The exact inverse of :meth:`state`."""
        _check.saved(state, "noise", "rates", "counts", "unknown")
        noise, tables = np.asarray(state["noise"], dtype=np.float64), np.asarray(state["counts"])
        unknown, rates = np.asarray(state["unknown"], dtype=bool), np.asarray(state["rates"], dtype=np.float64)
        well_formed = noise.ndim == 1 and tables.dtype == np.uint32 and np.all(np.diff(noise) > 0)
        if not well_formed or tables.shape != (len(rates), len(unknown), len(noise)):
            raise ArgumentError("state does not fit together")
        restored = cls(len(unknown), least=float(noise[0]), most=float(noise[-1]), buckets=len(noise))
        restored._noise, restored._unknown = noise.copy(), unknown.copy()
        restored._counts = {float(rate): table.copy() for rate, table in zip(rates, tables, strict=True)}
        return restored

    def epsilon(self, *, delta: float | Sequence[float], bounds: bool = False) -> Any:
        """Each person's epsilon, (n,) private; see :func:`losses`.

        Guarantee: that of losses(), at the bucketed noise; inf for people with an unknown norm.
        Source: theory 7.1 to 7.3; docs/proofs/losses.md.
        """
        return self._read(slice(None), delta, bounds)

    def statement(self, row: int, *, delta: float) -> LossStatement:
        """Tell the person of a row about that person's losses: private, to be disclosed to this person alone.

        Guarantee: its epsilon is that of epsilon(), with the same limits, which it states in words.
        Source: theory 7.1 to 7.3, 5.9.
        """
        _check.whole(0, row=row)
        if row >= self._n:
            raise ArgumentError(f"row={row} must be below {self._n}")
        low, high = self._read(slice(row, row + 1), delta, True)
        steps = sum(int(table[row].sum(dtype=np.int64)) for table in self._counts.values())
        return LossStatement(int(row), steps, float(low[0]), float(high[0]), float(delta))

    def _read(self, rows: slice, delta: float | Sequence[float], bounds: bool) -> Any:
        rates, unknown = self.rates, self._unknown[rows]
        none = np.zeros((len(unknown), 0), np.uint32)
        tables = np.concatenate([none, *(self._counts[rate][rows] for rate in rates)], axis=1)
        used = tables.any(axis=0)  # buckets without any count need not be computed
        noise = np.tile(self.noise, len(rates))[used]
        each = np.repeat(np.asarray(rates), len(self._noise))[used]
        epsilons = losses(tables[:, used], noise, sample_rate=each, delta=delta, bounds=bounds)
        (epsilons[1] if bounds else epsilons)[..., unknown] = np.inf
        return epsilons


_ROUNDING = 1e-9  # relative: more than the Gaussian's delta, which is rounded up, and the grid are off by


def dominating_mu(
    counts: ArrayLike | Array, noise: ArrayLike, /, *, slack: float, sample_rate: ArrayLike = 1.0, points: int = 2000
) -> NDArray[np.float64]:
    """The smallest mu found such that each composition is dominated by mu-GDP, but for a failure of probability slack.

    Args:
        counts, noise, sample_rate: as for ``losses``.
        slack: public, in (0, 1).
        points: public, >= 2: how many epsilons are looked at. Fewer give a larger mu.

    Returns:
        (n,) private; inf where the losses cannot be certified at the slack.

    Guarantee: for rounds fixed in advance, delta(epsilon) <= slack + (1 - slack) delta_mu(epsilon) for every real
    epsilon and in both directions: the composition post-processes "reveal all with probability slack, else mu-GDP".
    Under adaptivity none (theory 7.3).
    Source: theory 7.4; Koskela, Tobaben & Honkela (2023), eq. 5.1 to 5.3.

    >>> mu = dominating_mu([[10_000]], [2.0], sample_rate=0.005, slack=1e-6)
    >>> bool(0.267 < mu[0] < 0.27)
    True
    """
    _check.between(0, 1, slack=slack)
    _check.whole(2, points=points)
    rows = to_numpy(counts)
    people = zip(rows, losses(rows, noise, sample_rate=sample_rate, delta=slack), strict=True)
    return np.array([_one_mu(row[None], noise, sample_rate, slack, float(end), points) for row, end in people])


def _one_mu(row: NDArray[np.int64], noise: ArrayLike, rate: ArrayLike, slack: float, end: float, points: int) -> float:
    """For one person: on [a, b] the person's delta is at most that at a, and the Gaussian's at least that at b."""
    if end == np.inf:
        return np.inf
    grid = np.linspace(0.0, 1.02 * end + 1e-3, points)  # a little further than the slack is reached
    deltas = losses(row, noise, sample_rate=rate, epsilon=[float(e) for e in grid])[:, 0]
    if not deltas[-1] <= slack:
        return np.inf
    needed = (deltas[:-1] - slack) / (1 - slack) * (1 + _ROUNDING)
    right, needed = grid[1:][needed > 0], needed[needed > 0]
    if not needed.size:
        return 0.0
    low, high = 0.0, 1.0
    while not _dominates(high, right, needed):
        low, high = high, 2 * high
        if high > 1e6:
            return np.inf
    return edge(lambda mu: _dominates(mu, right, needed), high, low)


def _dominates(mu: float, epsilons: NDArray[np.float64], needed: NDArray[np.float64]) -> bool:
    return bool(np.all(gaussian.delta(mu, epsilon=epsilons) * (1 - _ROUNDING) >= needed))

"""Private gradient descent of linear models: one loop for all of them, with or without an account for each person.

The loop knows nothing of the loss: it asks for the norm of each person's gradient and for a weighted sum of all of
them. Nor does it know the notion of privacy: it asks the accounts how much each person may still contribute. Below it
are the gradients of the logistic and the softmax loss, dense or sparse. A person's gradient is the sum over that
person's rows; for one row it is an outer product, whose norm is a product: nothing of size n times features is built.

Names and symbols
    n             number of people
    step          what one step releases: a sum of clipped gradients plus Gaussian noise; public
    norms         L2 norm of each person's gradient, all of that person's records together; private
    divisor       the fixed public number that sums are divided by; never the number of active people
    x             (rows, features) the records; private
    y             (rows,) class numbers, 0 .. classes - 1; private
    people        (rows,) the number of the person to whom each row belongs, 0 .. n - 1; private

Source: theory.md statements 5.1 and 5.3; Feldman & Zrnic (2021), Algorithms 7 and 8.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import expit, softmax

from almoner import _check, filters
from almoner._units import FINE, to_float
from almoner.accounting import calibrate
from almoner.errors import ArgumentError
from almoner.individual import AccountsPerPerson
from almoner.mechanisms import Gaussian
from almoner.training._accounts import Everybody, SquareRoot
from almoner.training._card import Card
from almoner.training._run.books import Draw, MemoryBook
from almoner.training._run.run import CurrentState, Interruptions, Run, Saves
from almoner.training._run.samplings import Clipped, FullBatch, Sampling, Turnout
from almoner.training._run.settings import Settings

Array = NDArray[np.float64]
Matrix: TypeAlias = "Array | sparse.csr_matrix"

CHUNK = 2**22  # at most this many float64 of per-person gradients are held at once (32 MiB)
LARGEST_SCORE = 30.0  # of a Poisson model: larger means have the same slope, which is clipped anyway
CANCELLED = 2.0**-24
"""Rows of one person may cancel: the norm is at least this share of what it would be if they did not. In the sum over
all people they are then not so large that the others' rows are rounded away."""

KEPT, FARTHEST, ARRIVED = 0.1, 1e9, 0.03
"""The share of the scores' own probabilities that is kept; the longest record, in clips, that makes a difference; and
the slope of the loss in the size of the scores, in nats, at which they have not arrived at all."""

QUIET = np.errstate(over="ignore", invalid="ignore")  # who is out by numbers too large is private: no warning says so
ROUNDING, UNDERFLOW = 1e-9, 1e-300  # norms are charged larger by this share plus this much: above the error of theirs


Gradients: TypeAlias = Any
"""Gradients of some loss, one for each person, with ``norms`` and ``weighted_sum`` as of ``LogisticGradients``.

Norms must be right to a relative 1e-9: compute them in double precision. A person's records may cancel, but not so far
that their sum is rounding: in the weighted sum they would round away what others contribute."""


class LinearModel:
    """Parameters that descend along noisy sums; its arguments are those of ``descend``. Public.

    ``noise`` is that on each number of a mean gradient: a rate at which steps swing is halved. None: it stays.
    """

    def __init__(
        self,
        start: Array,
        rate: float = 1.0,
        *,
        steps: int = 1,
        planned: int | None = None,
        average: float = 0.0,
        momentum: float = 0.0,
        decay: float = 0.0,
        penalty: Array | float = 0.0,
        noise: float | None = None,
    ) -> None:
        self.parameters, self._penalty = np.array(start, dtype=np.float64), penalty
        self._noise, self._last, self._swings = noise, np.zeros_like(self.parameters), 0
        self._rate, self._steps, self._momentum, self._decay = rate, steps, momentum, decay
        self._average, self._further = average, planned is not None
        planned = steps if planned is None else min(planned, steps)
        self._before = planned - max(1, ceil(average * planned))
        self._velocity, self._total = np.zeros_like(self.parameters), np.zeros_like(self.parameters)
        self._count, self._done, self._slope = 0, 0, 0.0

    @QUIET
    def norms(self, records: Gradients) -> Array:
        """(n,) private: the norm of each person's gradient, as it is charged; NaN where it is not a number."""
        computed = records.norms(self.parameters + self._momentum * self._velocity)
        norms = np.where(computed > 0, computed * (1 + ROUNDING) + UNDERFLOW, computed)
        return np.where(np.isfinite(norms), norms, np.nan)  # a person whose norm is not a number takes no part

    def clipped_sum(self, records: Gradients, clip: Array, most: Array | None) -> Clipped:
        norms = self.norms(records)
        clipped = np.minimum(norms, clip)
        taken = norms > 0 if most is None else (norms > 0) & (clipped <= most)
        weights = np.divide(clipped, norms, out=np.zeros_like(norms), where=taken)
        return Clipped(norms, clipped, weights, [records.weighted_sum(weights)])

    def of_those(self, records: Gradients, made: Clipped, active: NDArray[np.bool_]) -> list[Array]:
        """The sums of those who were admitted: made again, of the same gradients, where somebody was not."""
        if not np.any((made.weights > 0) & ~active):
            return made.sums
        return [records.weighted_sum(np.where(active, made.weights, 0.0))]

    def step(self, noisy: Sequence[Array], divisor: float, rate: float | None = None) -> None:
        """One step along the noisy sum over the divisor; with a rate of its own, or the model's."""
        mean = noisy[0] / divisor
        if self._noise is not None and self._swung(mean, self._noise):
            self._swings += 1
            self._rate /= 1 if self._swings % SWINGS else 2
        left = self._steps - self._done
        share = min(1.0, left / (self._decay * self._steps)) if self._decay > 0 else 1.0
        rate = self._rate if rate is None else rate
        ahead = self._momentum * self._velocity
        slope = float(np.sum(mean * (self.parameters + ahead)))
        self._velocity = ahead - rate * share * (mean + self._penalty * (self.parameters + ahead))
        self.parameters = self.parameters + self._velocity
        self._done += 1
        if self._done > self._before:
            self._total, self._count, self._slope = self._total + self.parameters, self._count + 1, self._slope + slope

    def arrived(self, noise: float) -> float:
        """Share of the way to rest that the scores have gone; 0 where larger ones lower the loss, or noise hides it."""
        slope, unsure = self._slope / self._count, noise * float(np.linalg.norm(self.result)) / sqrt(self._count)
        return float(np.clip(1 + (slope - unsure / 2) / ARRIVED, 0, 1))

    def _swung(self, mean: Array, noise: float) -> bool:
        """True if a mean gradient turns back by more than noise explains: steps go from one side to the other."""
        last, self._last = self._last, mean
        along, lengths = float(np.sum(last * mean)), np.array([np.linalg.norm(last), np.linalg.norm(mean)])
        return along < -max(float(np.prod(lengths)) / 2, 4 * noise * float(np.linalg.norm(lengths)))

    @property
    def result(self) -> Array:
        """The last iterate, or the mean of those that are averaged."""
        return self.parameters if self._average == 0 else np.asarray(self._total / self._count)

    @property
    def share(self) -> float:
        """The share of the iterates whose mean is the result: more than planned where the run went on for longer."""
        return 1 - self._before / self._done if self._further and self._average > 0 else self._average

    def state(self) -> dict[str, Any]:
        """The parameters of a stream, which has neither momentum nor a mean."""
        return {"parameters": self.parameters}

    def load(self, state: Mapping[str, Any]) -> None:
        self.parameters = np.asarray(state["parameters"], dtype=np.float64)


def independent(noise: Any) -> Draw:
    return lambda sums, sigma, _rows: [each + noise.normal(0.0, sigma, size=np.shape(each)) for each in sums]


def descend(
    gradients: Gradients,
    start: Array,
    accounts: AccountsPerPerson | Everybody,
    step: Gaussian,
    /,
    *,
    steps: int,
    learning_rate: float,
    divisor: float,
    noise: np.random.Generator,
    descent: Any = None,
    observe: Callable[[int, Array], None] | None = None,
    stop: Callable[[int], bool] | None = None,
    planned: int | None = None,
) -> Array:
    """Descend along noisy sums of clipped gradients; contributions are clipped to what each person can still pay.

    Args:
        gradients: private. One gradient for each person.
        start: public. Where to start.
        accounts: private. One account for each person; charged before each sum is formed.
        step: public. One step: its sensitivity is the clip, its sigma the noise on the sum.
        steps: public, >= 1. How many steps, whatever happens to the accounts; with ``stop``, at most.
        learning_rate: public, > 0.
        divisor: public, > 0. The number of people that a sum is divided by, fixed in advance.
        noise: public. The generator of the noise; ONE draw a step, of the same size at every step.
        descent: public. A ``training.Descent``: average, momentum, decay and pace; None: the last iterate, pace 1.
        observe: public. Called after each step with the step's number and the parameters.
        stop: asked after each step, with its number, whether it was the last; by public numbers alone.
        planned: public, at most steps. The number of steps from which the first averaged iterate is found; None: steps.

    Returns:
        Parameters, in the shape of start, public.

    Guarantee: all iterates together are as private as the accounts' budget says, for each person: a contribution is
        fixed by own data and past outputs, has at most the norm that is charged, and is charged before it is used.
    Source: theory.md statements 2.1, 5.1, 5.2 and 5.3; Feldman & Zrnic (2021), Theorem 4.5 and Algorithm 8.
    """
    _check.whole(1, steps=steps)
    _check.positive(learning_rate=learning_rate, divisor=divisor)
    course = {"average": 0.0, "momentum": 0.0, "decay": 0.0, "pace": 1.0}
    if descent is not None:
        course = {name: getattr(descent, name) for name in course}
        if descent.extra_steps or descent.stop_when_inactive is not None:
            raise ArgumentError("descent: here steps= and stop= say how many steps there are")
    check_course(**course)
    pace = course.pop("pace")
    if not isinstance(step, Gaussian):
        raise ArgumentError(f"step={step!r} must be a mechanisms.Gaussian")
    if not (hasattr(accounts, "allowance") and hasattr(accounts, "charge")):
        raise ArgumentError(f"accounts={accounts!r} must be accounts per person: individual.Filter(n, budget)")
    if not hasattr(noise, "normal"):
        raise ArgumentError(f"noise={noise!r} must be a generator, such as numpy.random.default_rng()")
    model = LinearModel(start, learning_rate, steps=steps, planned=planned, **course)
    current = CurrentState.of_step(step)
    run = Run(model, FullBatch(pace=pace), MemoryBook(accounts, current, independent(noise)), current)
    take_steps(run, gradients, step, steps=steps, divisor=divisor, observe=observe, stop=stop)
    return np.asarray(model.result)


def take_steps(
    run: Run,
    gradients: Gradients,
    step: Gaussian,
    *,
    steps: int,
    divisor: float,
    observe: Callable[[int, Array], None] | None = None,
    stop: Callable[[int], bool] | None = None,
) -> None:
    """Take so many steps of a run on all people, or fewer where ``stop`` says so; raises BudgetExceeded for all."""
    state, model = run.current, run.model

    def everybody() -> Iterator[Turnout]:
        for number in range(steps):
            yield Turnout(gradients, 0, left=steps - number, divisor=divisor)

    def after() -> None:
        number = state.value.step
        if number and observe is not None:
            observe(number, model.parameters)  # type: ignore[attr-defined]
        if number and stop is not None and stop(number):
            run.end("stopped")

    for _ in run.go(everybody(), lambda: step, after, Saves(None, every=None, interruptions=Interruptions(None))):
        pass
    if run.book.refused is not None:
        raise run.book.refused


def check_course(*, average: float, decay: float, pace: float, momentum: float) -> None:
    _check.within(0, 1, average=average, decay=decay, pace=pace, momentum=momentum)
    if momentum == 1:
        raise ArgumentError("momentum=1 must be below 1: nothing would ever slow down")


class LogisticGradients:
    """Per-person gradients of the logistic loss (two classes, one column) or the softmax loss (one column a class).

    Args:
        x: (rows, features) float64 array or CSR matrix, private.
        y: (rows,) integers, private.
        classes: public. Number of classes; for two, the parameters have one column, as in scikit-learn.
        intercept: public. Whether the parameters end with a row that multiplies a constant 1; or this constant.
        people: (rows,) integers, private; None where every row is a person.
        weights: (rows,) what the loss of each row is multiplied by, from that row alone; private. None: 1.
    """

    def __init__(
        self,
        x: Matrix,
        y: NDArray[Any] | Sequence[int],
        classes: int,
        *,
        intercept: float,
        people: NDArray[np.int64] | Sequence[int] | None = None,
        weights: Array | None = None,
    ) -> None:
        records: Any = x if isinstance(x, np.ndarray) else sparse.csr_matrix((x.data, x.indices, x.indptr), x.shape)
        if sparse.issparse(x) and not records.has_canonical_format:  # found out anew: x may say what it once was
            records = records.copy()
            records.sum_duplicates()  # the norm of a row needs each feature once
        self._y = np.asarray(y)
        self._columns = 1 if classes == 2 else classes
        self._intercept, self._weights = float(intercept), weights
        self.lengths = np.hypot(_lengths(records), self._intercept)
        self._broken = ~np.isfinite(self.lengths)
        if self._broken.any():
            records = records.copy()
            if sparse.issparse(x):
                records.data[np.repeat(self._broken, np.diff(records.indptr))] = 0.0
            else:
                records[self._broken] = 0.0
        self._x: Matrix = records
        self._people = None if people is None else np.asarray(people)
        if self._people is not None:
            self._rows_of = np.argsort(self._people, kind="stable")
            self._starts = np.concatenate([[0], np.cumsum(np.bincount(self._people))])
        self._residuals: Array = np.zeros((len(self._y), self._columns))

    @property
    def start(self) -> Array:
        """Parameters of zero: (features, or one more with an intercept; columns), public."""
        return np.zeros((self._x.shape[1] + (self._intercept != 0), self._columns))

    @property
    def people(self) -> int:
        """The number of people; private."""
        return len(self._y) if self._people is None else len(self._starts) - 1

    @QUIET
    def norms(self, parameters: Array) -> Array:
        """L2 norms (n,) of each person's gradient, private, at these parameters, which become the current ones."""
        found = np.asarray(self._x @ parameters[: self._x.shape[1]])
        self._residuals = self._slopes(found + self._intercept * parameters[-1] if self._intercept else found)
        if self._weights is not None:
            self._residuals = self._residuals * self._weights[:, None]
        if self._people is None:
            return np.asarray(_lengths(self._residuals) * self.lengths)
        return self._grouped_norms()

    def _slopes(self, scores: Array) -> Array:
        """Slopes of each row's loss in its scores: (rows, columns), private."""
        if self._columns == 1:
            return np.asarray(expit(scores) - self._y[:, None])
        slopes = np.asarray(softmax(scores, axis=1))
        slopes[np.arange(len(self._y)), self._y] -= 1.0
        return slopes

    @QUIET
    def weighted_sum(self, weights: Array) -> Array:
        """The sum over people of weight, (n,), times gradient, private; who has weight zero is left out."""
        weights = weights if self._people is None else weights[self._people]
        residuals = np.where(weights[:, None] > 0, self._residuals * weights[:, None], 0.0)
        total = np.asarray(self._x.T @ residuals)
        return np.vstack([total, self._intercept * residuals.sum(axis=0)]) if self._intercept else total

    def _grouped_norms(self) -> Array:
        """Norms of sums over each person's rows: people times features, a chunk of people at a time."""
        n, rows = self.people, len(self._y)
        size, norms = max(1, CHUNK // max(1, self._x.shape[1])), np.zeros(n)
        for column in range(self._columns):
            values = self._residuals[self._rows_of, column]
            gather = sparse.csr_matrix((values, self._rows_of, self._starts), shape=(n, rows))
            if self._intercept:
                norms = np.hypot(norms, self._intercept * np.asarray(gather.sum(axis=1)).ravel())
            for low in range(0, n, size):
                part = slice(low, low + size)
                norms[part] = np.hypot(norms[part], _lengths(gather[part] @ self._x))
        each = _lengths(self._residuals) * np.where(self._broken, 0.0, self.lengths)
        largest = np.bincount(np.asarray(self._people), each, minlength=n)  # the norms if no rows cancelled
        norms = np.asarray(np.hypot(norms, CANCELLED * largest))
        norms[np.asarray(self._people)[self._broken]] = np.nan  # a row that is not finite: that person is out
        return norms


class SquaredGradients(LogisticGradients):
    """Per-person gradients of half the squared error; y: (rows,) numbers, private."""

    def _slopes(self, scores: Array) -> Array:
        return np.asarray(scores - self._y[:, None])


class PoissonGradients(LogisticGradients):
    """Per-person gradients of the Poisson loss of counts y, (rows,), whose mean is ``exp(score)``; private."""

    def _slopes(self, scores: Array) -> Array:
        return np.asarray(np.exp(np.minimum(scores, LARGEST_SCORE)) - self._y[:, None])


@QUIET
def _lengths(x: Any) -> Array:
    """L2 norms of rows; each row is scaled before it is squared, so that nothing underflows or overflows."""
    if not sparse.issparse(x):
        most = np.abs(x).max(axis=1, initial=0.0)
        if x.shape[1] == 1:
            return np.asarray(most)
        scaled = x / np.where(most > 0, most, 1.0)[:, None]
        return np.asarray(np.sqrt(np.einsum("ij,ij->i", scaled, scaled)) * most)
    most, rows = np.zeros(x.shape[0]), np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    np.maximum.at(most, rows, np.abs(x.data))
    squares = (x.data / np.where(most > 0, most, 1.0)[rows]) ** 2
    return np.asarray(np.sqrt(np.bincount(rows, squares, minlength=x.shape[0])) * most)


def probabilities(scores: Array, lengths: Array | None = None, arrived: float = 1.0) -> Array:
    """(rows, classes) from scores (rows, classes), or (rows, 1) for two classes; with lengths the clip is undone.

    Lengths (rows,) are norms of records, with their constant, over the clip. Where gradients (p - e_y) x are clipped,
    descent comes to rest not where class y is as frequent as p_y, but as p_y max(1, |p - e_y| |x| / clip). Where all
    are clipped these are alike for all classes: a KEPT part of p stays, and more where it has not ``arrived``.
    """
    one = scores.shape[1] == 1
    found = np.asarray(np.hstack([expit(-scores), expit(scores)]) if one else softmax(scores, axis=1))
    if lengths is None or arrived == 0:
        return found
    others = 1.0 - np.eye(found.shape[1])  # sums over the others: a 1 less p_y would be rounding alone
    squares = (found @ others) ** 2 + (0.0 if one else found**2 @ others)
    undone = found * np.maximum(1.0, np.sqrt(squares) * np.minimum(lengths, FARTHEST)[:, None])
    share = arrived * (1.0 - KEPT)
    return np.asarray((1.0 - share) * found + share * undone / undone.sum(axis=1, keepdims=True))


COUNT_SHARE = 0.01
"""The share of each person's budget that a noisy count of the people costs, where their number is not public; and the
share that all noisy counts of those who dropped out cost together."""

TINY = 1e-12
INTERCEPT = 0.25
"""The constant feature. A 1 would be as long as all features of a record together: it uses up the clip, and makes long
steps swing from one side to the other."""

MOST_RATE, NOISE, SETTLED = 16.0, 2.0, 0.1
"""Of a learning rate that is chosen: the largest; the standard deviation to which the noise of all steps may add up in
each parameter; and four times the loss that noise may cost, in nats a record, in steps that have arrived."""

SWINGS = 8  # after so many steps that turned back, a rate that was chosen is halved; a few are usual at the start

Budget: TypeAlias = filters.Gaussian | filters.Zcdp

BUDGETS: dict[str, type[Budget]] = {"gaussian": filters.Gaussian, "zcdp": filters.Zcdp}


@dataclass(frozen=True, slots=True)
class Plan:
    """The most that will be released, and its price for each person. Every field is public."""

    budget: Budget  # a fresh filter that holds the whole budget: what is left of it is mu squared, or rho
    delta: float
    step: Gaussian
    count: Gaussian | None  # a noisy count of the people, where their number is not public
    drops: SquareRoot | None = None  # noisy counts of the people who dropped out, where they decide when to stop
    why: str = ""  # why the budget is this filter, where it was recommended

    def card(self, sampling: Sampling, *, divisor: float, individual: bool = True, **training: Any) -> Card:
        """The promise about what was trained, and its price; ``training``: further fields of the card."""
        settings = Settings(
            budget=self.budget.fresh(),
            why=self.why,
            max_grad_norm=self.step.sensitivity,
            noise_multiplier=self.step.sigma / self.step.sensitivity,
            divisor=divisor,
            steps=None,
            individual=individual,
            sampling=sampling,
            seeded=training["reproducible"],
        )
        counted = None if self.count is None else self.count.sigma
        return settings.card(delta=self.delta, sigma=self.step.sigma, count_sigma=counted, **training)


def plan(
    accounting: str,
    *,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    max_grad_norm: float,
    steps: int,
    counted: bool,
    drop_counts: int = 0,
) -> Plan:
    """Noise for a budget, or the budget that a noise amounts to. All of it is public.

    The accounting is "gaussian", which is what ``filters.recommend`` names for Gaussian steps, or "zcdp". With epsilon
    None the budget is what `steps` steps at the noise multiplier cost; with that None it is the smallest for which they
    fit, each with the whole clip of a person. A noisy count of the people, and all counts of who dropped out together,
    where they are asked for, cost COUNT_SHARE of the budget.

    Guarantee: all counts and `steps` steps together cost at most the budget, which implies (epsilon, delta)-DP; except
        where both epsilon and noise_multiplier are given: then the accounts refuse what does not fit.
    Source: theory 2.1, 3.2 and 3.3.
    """
    why = ""
    _check.one_of(list(BUDGETS), accounting=accounting)
    _check.between(0, 1, delta=delta)
    _check.positive(max_grad_norm=max_grad_norm)
    _check.whole(1, steps=steps)
    _check.given(_check.positive, noise_multiplier=noise_multiplier)
    if epsilon is not None:
        _check.positive(epsilon=epsilon)
        budget = BUDGETS[accounting](epsilon=epsilon, delta=delta)
        recommended = filters.recommend(epsilon=epsilon, delta=delta, plan=Gaussian(1.0))
        why = recommended.why if type(recommended.budget) is type(budget) else ""
    elif noise_multiplier is not None:
        (price,) = _with_total(accounting, 1.0).notion.price(Gaussian(noise_multiplier * max_grad_norm, max_grad_norm))
        share = 1 - COUNT_SHARE * (counted + (drop_counts > 0))
        budget = _with_total(accounting, to_float(price, per=FINE) * steps / share * (1 + TINY) ** 3)
    else:
        raise ArgumentError("epsilon=None needs a noise_multiplier: one of the two must be given")
    planned, count, drops = budget.fresh(), None, None
    for_counts = _with_total(accounting, budget.left * COUNT_SHARE)
    if counted:
        count = Gaussian(calibrate.sigma(for_counts, 1))
        planned.charge(count)
    if drop_counts:
        worth = SquareRoot(drop_counts, 1.0).mechanism.sensitivity
        drops = SquareRoot(drop_counts, calibrate.sigma(for_counts, 1, sensitivity=worth))
        planned.charge(drops.mechanism)
    given = None if noise_multiplier is None else noise_multiplier * max_grad_norm
    sigma = calibrate.sigma(planned, steps, sensitivity=max_grad_norm) if given is None else given
    return Plan(budget, delta, Gaussian(sigma, max_grad_norm), count, drops, why)


def noise_of(step: Gaussian, steps: int, divisor: float, *, rate: float = 1.0, momentum: float = 0.0) -> float:
    """The standard deviation to which the noise of all steps adds up in each parameter, of a mean gradient."""
    return rate * step.sigma * sqrt(steps) / (divisor * (1 - momentum))


def _with_total(accounting: str, total: float) -> Budget:
    return filters.Gaussian(mu=sqrt(total)) if accounting == "gaussian" else filters.Zcdp(rho=total)

"""Judging a finished model by private records, in one noisy release that the people of these records pay for.

``cells``, (people, cells), private, are each person's means over the own rows: of a 1 for a label and a bin of the
score (or a predicted label), or of a regression's four numbers. z is half an interval in standard deviations.

Source: theory 2.1, 5.1; Fieller (1954) for intervals of ratios
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from scipy.special import expit, ndtr, ndtri

from almoner import _check, filters
from almoner.accounting import calibrate
from almoner.errors import ArgumentError, DataError
from almoner.mechanisms import Gaussian
from almoner.training._accounts import Everybody, ids_and_rows
from almoner.training._linear.descent import independent
from almoner.training._linear.wrappers import floats_of, labels_of
from almoner.training._on_ledger import LedgerStream, OnLedger
from almoner.training._run.books import LedgerBook, MemoryBook
from almoner.training._run.run import CurrentState
from almoner.training._run.samplings import Sums, Turnout

Floats = NDArray[np.float64]
EDGES = expit(np.linspace(-6, 6, 25))  # of bins of a score; one is 0.5
GROUPS = (0, *range(4, 23, 3), 26)  # of bins, which calibration takes together
WEIGHTS = np.sqrt([1 / 6, 1 / 2, 1 / 6, 1 / 6])  # of a regression's four sums: most for the error
TIMES = 4000  # draws of noise, for an interval that has no formula


class Estimate(NamedTuple):
    """A number about the people who were asked, and the interval that holds it: its noise, not other people."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Scores:
    """The quality of a model, by people who pay for it; each person counts once. All of it is public.

    Attributes:
        people: how many were there.
        accuracy, recall: the share of a person's rows with the right label, on average; by label. None for regressions.
        auc: area under the ROC curve. None unless there are two labels.
        calibration: (score from, to, share with the second label) for each eighth of the scale. None as auc.
        error, explained: root mean squared error, as targets are; its share explained, at most 1. None for classifiers.
        sigma: the noise on each number of the release; a person moves them by at most 1 in L2 norm.
        epsilon, delta: the price of a person who is judged, beside the model's; None on a ledger, which has it.
    """

    people: Estimate
    sigma: float
    accuracy: Estimate | None = None
    recall: dict[Any, Estimate] | None = None
    auc: Estimate | None = None
    calibration: tuple[tuple[float, float, Estimate], ...] | None = None
    error: Estimate | None = None
    explained: Estimate | None = None
    epsilon: float | None = None
    delta: float | None = None


def evaluate(
    model: Any,
    X: Any,
    y: ArrayLike,
    people: Any = None,
    *,
    epsilon: float | None = None,
    delta: float = 1e-5,
    sigma: float | None = None,
    ledger: OnLedger | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
) -> Scores:
    """Judge a finished model by private records, in one release.

    Args:
        model: fitted, with ``predict_proba`` and ``classes_``, or ``predict`` and ``bounds_y``. Its answer for a row
            must depend on that row alone.
        X: (rows, features), private; whatever the model takes.
        y: (rows,) labels, or targets, private.
        people: (rows,) whose row it is, private; None: every row is a person's. With a ledger: as named there.
        epsilon, delta: public. What it may cost a person who is judged; the noise follows from it.
        sigma: public. The noise, in people, in place of epsilon; on a ledger always.
        ledger: accounts that others charge too: each pays for the length of the own contribution, who has nothing left
            is not counted. The key of ``OnLedger`` names this evaluation.
        confidence: public. The share of such intervals that hold the number, of one at a time.
        seed: public. Only to have the same noise again in an experiment: who knows it can take it off.

    Raises:
        ArgumentError, DataError: before anybody is charged.

    Guarantee: for adding or removing any one person with all own rows, the release is as private as one Gaussian
        mechanism of sensitivity 1 and this sigma; on a ledger each person pays as for a sensitivity of the norm of
        that person's mean contribution, which the noise was added to.
    Source: theory 2.1, 5.1.
    """
    _check.between(0, 1, confidence=confidence)
    step = Gaussian(_noise(epsilon, delta, sigma, ledger), 1.0)
    ids, rows = (None, np.arange(len(np.asarray(y)))) if people is None else ids_and_rows(people, len(np.asarray(y)))
    if ledger is not None and (ids is None or seed is not None):
        raise ArgumentError("evaluate: with ledger=, people must say whose rows they are, and seed must be None")
    judge = _Regression(model) if hasattr(model, "bounds_y") else _Classifier(model)
    cells, rows = csr_matrix(judge.cells(X, np.asarray(y))), np.asarray(rows, dtype=np.intp)
    shares = (1 - 1e-12) / np.maximum(np.bincount(rows), 1)[rows]  # with all rounding they add up to less than 1
    whose = csr_matrix((shares, (rows, np.arange(len(rows)))), (rows.max(initial=-1) + 1, len(rows)))
    (noisy,) = _released(step, whose @ cells, ids, ledger, seed)
    found = judge.read(_Noisy(noisy, step.sigma, z=float(ndtri(0.5 + confidence / 2))))
    if ledger is None:
        found |= {"epsilon": filters.Gaussian(mu=1 / step.sigma).epsilon(delta=delta), "delta": delta}
    return Scores(sigma=step.sigma, **found)


def _noise(epsilon: float | None, delta: float, sigma: float | None, ledger: OnLedger | None) -> float:
    if (epsilon is None) == (sigma is None) or (ledger is not None and sigma is None):
        raise ArgumentError("evaluate: give epsilon=1.0, or sigma=20.0 (noise, in people); on a ledger always sigma")
    _check.given(_check.positive, sigma=sigma)
    return calibrate.sigma(filters.Gaussian(epsilon=epsilon, delta=delta), 1) if sigma is None else float(sigma)


def _released(step: Gaussian, cells: Any, ids: Any, ledger: OnLedger | None, seed: int | None) -> Sums:
    """The sum over the people who can pay, with noise; on a ledger each has paid for the norm of the own cells."""
    norms = np.minimum(np.sqrt(np.asarray(cells.multiply(cells).sum(axis=1)).ravel()) * (1 + 1e-12), 1.0)

    def contribute(accounts: Any) -> Sums:
        paid = np.asarray(accounts.charge(step, norms), dtype=bool)
        return [np.asarray(cells[paid].sum(axis=0)).ravel()]

    draw, current = independent(np.random.default_rng(seed)), CurrentState.of_step(step)
    if ledger is None:
        everybody = MemoryBook(Everybody(len(norms), None), current, draw)
        return everybody.release(step, Turnout(None, len(norms)), contribute)
    stream = LedgerStream(ledger)
    try:
        stream.refuse_used_key()
        stream.begin({"evaluates": "a model", "sigma": step.sigma}, None, 0)
        return LedgerBook(stream, current, draw).release(step, Turnout(None, len(norms), ids), contribute)
    finally:
        stream.close()


class _Noisy:
    """Sums with noise of one standard deviation, and what can be read off them. Public."""

    def __init__(self, sums: Floats, sigma: float, z: float) -> None:
        self.sums, self.sigma, self.z = sums, sigma, z

    def total(self, weights: Floats) -> Estimate:
        """The sum of cells, each times its weight."""
        value, width = float(weights @ self.sums), self.z * self.sigma * float(np.linalg.norm(weights))
        return Estimate(value, value - width, value + width)

    def ratio(self, above: Floats, below: Floats) -> Estimate:
        """One sum over another, in [0, 1]; by Fieller: all ratios for which above - ratio below may be 0."""
        a, b, wide = float(above @ self.sums), float(below @ self.sums), (self.z * self.sigma) ** 2
        square, half = b * b - wide * float(below @ below), a * b - wide * float(above @ below)
        root = half * half - square * (a * a - wide * float(above @ above))
        low, high = 0.0, 1.0
        if square > 0 and b > 0:
            low, high = ((half + sign * sqrt(max(root, 0.0))) / square for sign in (-1, 1))
        return Estimate(*(min(max(each, 0.0), 1.0) for each in (a / b if b > 0 else 0.5, low, high)))

    def drawn(self, read: Any, least: float) -> Estimate:
        """The reading of sums (draws, cells): value, low and high of each; in [least, 1].

        Noise is drawn again, z / 2 times as large, for intervals of two standard deviations: rare ones need no more
        draws. What can't be read, where noise hides the people, is anything.
        """
        draws = self.sigma * self.z / 2 * np.random.default_rng(0).standard_normal((TIMES, len(self.sums)))
        with np.errstate(all="ignore"):
            value, low, high = read(np.vstack([self.sums, self.sums + draws]))
        low, high = (np.where(np.isfinite(each), each, end) for each, end in ((low, least), (high, 1.0)))
        ends = np.quantile(low, ndtr(-2), method="lower"), np.quantile(high, ndtr(2), method="higher")
        return Estimate(*(float(np.clip(np.nan_to_num(each, nan=0.5), least, 1.0)) for each in (value[0], *ends)))


class _Classifier:
    """Cells of labels by bins of the second one's score, or by predicted labels where there are more than two."""

    def __init__(self, model: Any) -> None:
        if not (hasattr(model, "predict_proba") and hasattr(model, "classes_")):
            raise ArgumentError("model must be fitted, with predict_proba and classes_, or with predict and bounds_y")
        self._model, self._order = model, np.argsort(np.asarray(model.classes_))
        self._labels = np.asarray(model.classes_)[self._order].tolist()
        self._binary = len(self._labels) == 2
        self._columns = len(EDGES) + 1 if self._binary else len(self._labels)
        self._label, self._column = np.divmod(np.arange(len(self._labels) * self._columns), self._columns)
        self._right = self._label == (self._column > len(EDGES) // 2 if self._binary else self._column)

    def cells(self, X: Any, y: NDArray[Any]) -> Any:
        """A 1 for each row, (rows, cells)."""
        codes = labels_of(y, self._labels)[1]
        scores = np.asarray(self._model.predict_proba(X), dtype=np.float64)
        if scores.shape != (len(codes), len(self._labels)) or not np.isfinite(scores).all():
            raise DataError("model: predict_proba must give a finite share for each row and label")
        scores = scores[:, self._order]  # as the labels, which are sorted
        column = np.searchsorted(EDGES, scores[:, 1]) if self._binary else scores.argmax(axis=1)
        place = (np.arange(len(codes)), codes * self._columns + column)
        return csr_matrix((np.ones(len(codes)), place), (len(codes), len(self._label)))

    def read(self, noisy: _Noisy) -> dict[str, Any]:
        everyone = np.ones(len(self._label))
        own = {label: (self._label == code).astype(float) for code, label in enumerate(self._labels)}
        told: dict[str, Any] = {
            "people": noisy.total(everyone),
            "accuracy": noisy.ratio(self._right.astype(float), everyone),
            "recall": {label: noisy.ratio(self._right * cells, cells) for label, cells in own.items()},
        }
        if self._binary:
            told["auc"] = noisy.drawn(_auc, 0.0)
            told["calibration"] = tuple(self._calibration(noisy))
        return told

    def _calibration(self, noisy: _Noisy) -> Iterator[tuple[float, float, Estimate]]:
        edges = [0.0, *EDGES.tolist(), 1.0]
        for low, high in pairwise(GROUPS):
            inside = ((low <= self._column) & (self._column < high)).astype(float)
            yield edges[low], edges[high], noisy.ratio(inside * self._label, inside)


def _auc(sums: Floats) -> tuple[Floats, Floats, Floats]:
    """Area under the ROC curve, pairs within a bin counted half, not, and whole."""
    no, yes = np.split(sums, 2, axis=-1)
    below, pairs = np.cumsum(no, axis=-1) - no, yes.sum(axis=-1) * no.sum(axis=-1)
    pairs = np.where((yes.sum(axis=-1) > 0) & (no.sum(axis=-1) > 0), pairs, np.nan)
    apart, within = (yes * below).sum(axis=-1) / pairs, (yes * no).sum(axis=-1) / pairs
    return apart + within / 2, apart, apart + within


class _Regression:
    """Four sums, from which the squared error and what of it is explained follow."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._low, self._high = map(float, (0, 0) if model.bounds_y is None else model.bounds_y)
        if not -1e100 <= self._low < self._high <= 1e100:
            raise ArgumentError(f"model: bounds_y={model.bounds_y!r} must be (low, high), finite numbers: (0, 100)")

    def cells(self, X: Any, y: NDArray[Any]) -> Any:
        """1, the squared error, the target and its square, of [-1, 1], times WEIGHTS, (rows, 4)."""
        predicted, target = np.asarray(self._model.predict(X), dtype=np.float64), floats_of(y)
        if predicted.shape != target.shape or not np.isfinite([predicted, target]).all():
            raise DataError("y, and what model.predict gives, must be finite numbers, one for each row")
        wide = self._high - self._low
        predicted, target = ((np.clip(each, self._low, self._high) - self._low) / wide for each in (predicted, target))
        inside = 2 * target - 1
        return np.stack([np.ones_like(target), (predicted - target) ** 2, inside, inside**2], axis=1) * WEIGHTS

    def read(self, noisy: _Noisy) -> dict[str, Any]:
        count, squares, *_ = np.eye(4) / WEIGHTS
        error = Estimate(*((self._high - self._low) * sqrt(each) for each in noisy.ratio(squares, count)))
        return {"people": noisy.total(count), "error": error, "explained": noisy.drawn(_explained, -inf)}


def _explained(sums: Floats) -> tuple[Floats, Floats, Floats]:
    """The share of the squared error explained."""
    count, squares, target, its_square = (sums / WEIGHTS).T
    spread = its_square / count - (target / count) ** 2
    return (np.where((count > 0) & (spread > 0), 1 - 4 * squares / count / spread, np.nan),) * 3
